"""Data sets by name: the real archives where they are, the other layouts on archives made here,
and clear refusals.
"""

import dataclasses
import logging
import re
import shutil
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import discreet
from discreet.data import archives
from discreet.data import datasets as module
from discreet.data import download as downloads
from discreet.data.datasets import FIXED, datasets, describe, load_dataset
from discreet.errors import ConfigError, DataError
from support.local_server import serving

CSV_SETS = ("ml-20m", "ml-25m", "ml-32m", "ml-latest-small")
ROWS = (
    (1, 10, 3.5, 1_100_000_000),
    (1, 30, 5.0, 1_100_000_005),
    (7, 10, 0.5, 1_100_000_001),
    (7, 20, 4.0, 1_100_000_009),
)
TITLES = {
    10: "Ballon rouge, Le (1956)",
    20: 'Say "Cheese": A Film (2001)',
    30: "Amélie & Søren (1999)",
    40: "Unrated (1970)",
}


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
    """The archives built here are far smaller than the published ones, whose sizes only real
    data have.
    """
    if "real_data" not in request.keywords and "sizes" not in request.node.name:
        monkeypatch.setattr("discreet.data.datasets.FIXED", set())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test has an empty cache folder of its own, and no network."""
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path / "cache"))

    def unreachable(url, *_, **__):
        raise DataError(f"{url} cannot be reached")

    monkeypatch.setattr(module, "download", unreachable)
    return tmp_path / "cache"


def official_files(name):
    """The files of a tiny data set in the official layout of ``name``, as text in the official
    encoding.
    """
    layout = describe(name).layout
    if layout.header:
        quoted = {
            i: '"' + t.replace('"', '""') + '"' if "," in t or '"' in t else t
            for i, t in TITLES.items()
        }
        ratings = "userId,movieId,rating,timestamp\n" + "".join(
            f"{u},{i},{r},{t}\n" for u, i, r, t in ROWS
        )
        items = "movieId,title,genres\n" + "".join(
            f"{i},{t},Drama|Comedy\n" for i, t in quoted.items()
        )
    elif layout.separator == "::":
        ratings = "".join(f"{u}::{i}::{r:g}::{t}\n" for u, i, r, t in ROWS)
        items = "".join(f"{i}::{t}::Drama|Comedy\n" for i, t in TITLES.items())
    else:
        ratings = "".join(f"{u}\t{i}\t{r:g}\t{t}\n" for u, i, r, t in ROWS)
        rest = "|01-Jan-1995||http://example.org/" + "|0" * 19
        items = "".join(f"{i}|{t}{rest}\n" for i, t in TITLES.items())
    encoding = "latin-1" if name in ("ml-100k", "ml-1m") else "utf-8"
    return {layout.ratings: ratings.encode(), layout.items: items.encode(encoding)}


def write_zip(name, file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/ml/._ratings.csv", b"junk")
        for member, data in official_files(name).items():
            archive.writestr(f"{describe(name).layout.folder}/{member}", data)
    return file


def write_folder(name, folder):
    folder.mkdir(parents=True)
    for member, data in official_files(name).items():
        (folder / member).write_bytes(data)
    return folder


def check(ratings, catalog=False):
    items = sorted(TITLES) if catalog else [10, 20, 30]
    assert ratings.user_ids.tolist() == [1, 7]
    assert sorted(ratings.item_ids.tolist()) == items
    assert ratings.n_ratings == 4
    assert dict(zip(ratings.item_ids.tolist(), ratings.titles.tolist(), strict=True)) == {
        i: TITLES[i] for i in items
    }
    assert ratings.catalog is catalog
    dense = ratings.to_csr().toarray()
    for user, item, rating, _ in ROWS:
        assert dense[ratings.user_index([user])[0], ratings.item_index([item])[0]] == rating
    assert sorted(ratings.timestamps.tolist()) == sorted(row[3] for row in ROWS)


OTHERS = ("goodbooks-10k", "movietweetings")
NEIGHBOR_LISTS = ("gowalla", "yelp2018", "amazon-book")
PUBLISHED = ("ml-100k", "ml-1m", "ml-10m", *CSV_SETS)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("catalog", [False, True])
def test_every_layout_as_archive_and_as_folder(name, catalog, tmp_path):
    archive = write_zip(name, tmp_path / "some name.zip")
    folder = write_folder(name, tmp_path / "unpacked")
    for path in (archive, str(archive), folder, folder / describe(name).layout.ratings):
        check(load_dataset(name, path, catalog=catalog), catalog)


@pytest.mark.parametrize("name", PUBLISHED)
def test_folders_around_the_data_are_searched(name, tmp_path):
    around = tmp_path / "downloads"
    write_folder(name, around / describe(name).layout.folder)
    check(load_dataset(name, around))
    shutil.rmtree(around)
    around.mkdir()
    write_zip(name, around / f"{name}.zip")
    check(load_dataset(name, around))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_cache_folder_may_hold_the_archive_or_a_folder(name, cache):
    assert not describe(name).present
    cache.mkdir()
    write_zip(name, cache / f"{name}.zip")
    assert describe(name).present
    check(load_dataset(name))
    (cache / f"{name}.zip").unlink()
    write_folder(name, cache / describe(name).layout.folder)
    assert describe(name).present
    check(load_dataset(name, download=False))


def test_goodbooks_as_archive_and_as_folder(tmp_path):
    """Its books have several columns of ids, and two of titles."""
    ratings = "user_id,book_id,rating\n1,10,5\n1,30,3\n7,10,4\n"
    books = (
        "book_id,goodreads_book_id,best_book_id,work_id,books_count,isbn,isbn13,authors,"
        "original_publication_year,original_title,title,language_code\n"
        '10,77,78,79,3,4390,9.78e12,"A. Author, B. Other",2008.0,The,"The Games (Games, #1)",en\n'
        "20,66,67,68,1,,,C. Third,1999.0,,Unrated,en\n"
        "30,55,56,57,1,,,D. Fourth,2001.0,Old,Old and New,en\n"
    )
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.writestr("ratings.csv", ratings)
        archive.writestr("books.csv", books)
    folder = tmp_path / "goodbooks-10k"
    folder.mkdir()
    (folder / "ratings.csv").write_text(ratings)
    (folder / "books.csv").write_text(books)
    for path in (tmp_path / "some.zip", folder, tmp_path):
        found = load_dataset("goodbooks-10k", path)
        assert found.item_ids.tolist() == [10, 30]
        assert found.titles.tolist() == ["The Games (Games, #1)", "Old and New"]
        assert found.to_csr().toarray().tolist() == [[5, 3], [4, 0]]


def test_movietweetings_keeps_zeros_and_the_ids_of_films(tmp_path):
    (tmp_path / "ratings.dat").write_text("1::0114508::8::1381006850\n2::0499549::0::1376753198\n")
    (tmp_path / "movies.dat").write_text("0114508::Species (1995)::Action|Sci-Fi\n")
    found = load_dataset("movietweetings", tmp_path)
    assert sorted(found.values.tolist()) == [0.0, 8.0]
    assert [str(item) for item in found.item_ids.tolist()] == ["0114508", "0499549"]
    assert found.titles.tolist() == ["Species (1995)", "0499549"]


@pytest.mark.parametrize("name", NEIGHBOR_LISTS)
def test_lines_of_a_user_and_all_items(name, tmp_path):
    (tmp_path / "train.txt").write_text("0 5 7 9\n1 5\n2\n")
    alone = load_dataset(name, tmp_path)
    assert alone.to_csr().toarray().tolist() == [[1, 1, 1], [1, 0, 0]]
    (tmp_path / "test.txt").write_text("0 11\n1 7 9 \n")
    both = load_dataset(name, tmp_path / "train.txt")
    assert both.item_ids.tolist() == [5, 7, 9, 11]
    assert both.to_csr().toarray().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    with pytest.raises(DataError, match="no list of all items"):
        load_dataset(name, tmp_path, catalog=True)
    (tmp_path / "test.txt").write_text("0 11\n1 seven\n")
    with pytest.raises(DataError, match="line 2"):
        load_dataset(name, tmp_path)


def test_parquet_tables_and_a_lonely_ratings_file(tmp_path):
    columns = [list(column) for column in zip(*ROWS, strict=True)]
    table = pa.table(dict(zip(("user", "item", "rating", "timestamp"), columns, strict=True)))
    pq.write_table(table, tmp_path / "ratings.parquet")
    ratings = load_dataset("ml-25m", tmp_path)
    assert ratings.titles is None
    assert ratings.n_ratings == 4
    with pytest.raises(DataError, match="no catalog"):
        load_dataset("ml-25m", tmp_path, catalog=True)
    pq.write_table(
        pa.table({"item": list(TITLES), "title": list(TITLES.values())}), tmp_path / "items.parquet"
    )
    check(load_dataset("ml-25m", tmp_path))


def test_without_network_one_sentence_says_where_to_get_and_put_it(cache):
    for arguments in ({}, {"download": False}):
        with pytest.raises(DataError) as caught:
            load_dataset("ml-20m", **arguments)
        message = str(caught.value)
        assert "\n" not in message
        assert "https://files.grouplens.org/datasets/movielens/ml-20m.zip" in message
        assert str(cache / "ml-20m.zip") in message
        assert "path=" in message


def test_a_download_is_checked_kept_and_shows_the_license(cache, tmp_path, monkeypatch, caplog):
    archive = write_zip("ml-1m", tmp_path / "served.zip")
    calls = []

    def fake(url, target, *, sha256, md5, most, progress):
        calls.append((url, sha256, most, progress))
        target.parent.mkdir(parents=True)
        shutil.copy(archive, target)

    monkeypatch.setattr(module, "download", fake)

    def progress(done, total, text):
        pass

    with caplog.at_level(logging.INFO, "discreet"):
        check(load_dataset("ml-1m", progress=progress))
    known = "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20"
    assert calls == [(describe("ml-1m").url, known, 5_917_549, progress)]
    assert "not for commercial use" in caplog.text
    check(load_dataset("ml-1m"))
    assert len(calls) == 1


def test_over_the_network_with_a_connection_that_breaks(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "download", downloads.download)
    monkeypatch.setattr(downloads.time, "sleep", lambda _: None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    archive = write_zip("ml-latest-small", tmp_path / "served.zip").read_bytes()
    with serving(archive) as server:
        server.cuts = [100, 200]
        there = dataclasses.replace(
            describe("ml-latest-small"), url=f"{server.url}/ml-latest-small.zip"
        )
        monkeypatch.setitem(module._BY_NAME, "ml-latest-small", there)
        check(load_dataset("ml-latest-small"))
        assert server.ranges == [None, "bytes=100-", "bytes=300-"]
        assert sorted(f.name for f in cache.iterdir()) == [
            "ml-latest-small.zip",
            "ml-latest-small.zip.sha256",
        ]
        changed = dataclasses.replace(
            there, name="ml-25m", sha256="0" * 64, layout=describe("ml-25m").layout
        )
        monkeypatch.setitem(module._BY_NAME, "ml-25m", changed)
        with pytest.raises(
            DataError, match=r"ml-25m is not on this machine and cannot be downloaded .*SHA-256"
        ):
            load_dataset("ml-25m")
        assert not (cache / "ml-25m.zip").exists()


def test_broken_input_is_answered_with_a_sentence(tmp_path, cache):
    (tmp_path / "text.zip").write_text("<html>404</html>")
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a/readme.txt", "nothing")
    whole = write_zip("ml-20m", tmp_path / "whole.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    where = whole.index(b"ml-20m/ratings.csv") + len("ml-20m/ratings.csv") + 5
    (tmp_path / "flipped.zip").write_bytes(
        whole[:where] + bytes([whole[where] ^ 0xFF]) + whole[where + 1 :]
    )
    (tmp_path / "empty").mkdir()
    bad = write_folder("ml-20m", tmp_path / "bad")
    (bad / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,2,good,3\n")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.write(bad / "ratings.csv", "ml-20m/ratings.csv")
    for path, words in [
        ("text.zip", "not a complete zip"),
        ("cut.zip", "not a complete zip"),
        ("flipped.zip", "damaged"),
        ("other.zip", "does not contain ratings.csv"),
        ("empty", "has none of ml-20m.zip, ratings.csv"),
        ("nowhere", "does not exist"),
        ("bad", "good"),
        ("bad.zip", "bad.zip/ratings.csv"),
    ]:
        with pytest.raises(DataError, match=words) as caught:
            load_dataset("ml-20m", tmp_path / path)
        assert "\n" not in str(caught.value)
    cache.mkdir()
    shutil.copy(tmp_path / "cut.zip", cache / "ml-20m.zip")
    assert not describe("ml-20m").present


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    archive = write_zip("ml-20m", tmp_path / "bomb.zip")
    monkeypatch.setattr(archives, "MOST_UNPACKED", 100)
    with pytest.raises(DataError, match=r"bomb.zip unpacks to more than 100 bytes"):
        load_dataset("ml-20m", archive)


def test_wrong_names_and_options_are_answered_with_a_sentence(tmp_path):
    for words, call in [
        ("did you mean ml-1m", lambda: load_dataset("ml1m")),
        ("the known ones are cinema", lambda: load_dataset("zzzzzz")),
        ("no option 'scale'", lambda: load_dataset("ml-1m", scale=0.1)),
        ("no option 'path'", lambda: load_dataset("cinema", tmp_path)),
        ("no option 'drop_zeros'", lambda: load_dataset("ml-1m", drop_zeros=True)),
        ("seed must be", lambda: load_dataset("cinema", seed=-1)),
    ]:
        with pytest.raises(ConfigError, match=words):
            call()


def test_the_registry_lists_everything():
    listed = {dataset.name: dataset for dataset in datasets()}
    assert next(iter(listed)) == "cinema"
    assert set(PUBLISHED) | {"cinema", "sweetrs", *OTHERS, *NEIGHBOR_LISTS} == {
        name for name in listed if not name.startswith("twin-")
    }
    for dataset in datasets():
        row = dataset.to_dict()
        assert row["license"]
        assert min(row["users"], row["items"], row["ratings"]) > 0
        if dataset.kind == "published":
            assert row["source"].startswith("https://")
            assert row["url"].startswith("https://")
            assert not row["present"]
            assert row["place"]
            assert dataset.sha256 is None or re.fullmatch("[0-9a-f]{64}", dataset.sha256)
            assert dataset.md5 is None or re.fullmatch("[0-9a-f]{32}", dataset.md5)
            assert 1_000_000 <= dataset.size < 1 << 28
            if dataset.name in FIXED - {"sweetrs"}:  # what never changes has a checksum
                assert dataset.sha256 or dataset.md5
        else:
            assert row["present"]
            assert row["place"] is None
    assert dataclasses.is_dataclass(datasets()[0])


def test_generated_sets_are_loaded_by_name():
    cinema = discreet.load_dataset("cinema", scale=0.01, seed=5)
    assert cinema.n_users == 200
    assert load_dataset(scale=0.01).titles is not None


@pytest.mark.real_data
@pytest.mark.parametrize("path", ["ml-1m", "ml-1m/ml-1m.zip", "ml-1m/ratings.parquet"])
def test_real_ml_1m(shared_data, path):
    ratings = load_dataset("ml-1m", shared_data / path)
    about = describe("ml-1m")
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (
        about.users,
        about.items,
        about.ratings,
    )
    assert ratings.merged == 0
    title = dict(zip(ratings.item_ids.tolist(), ratings.titles.tolist(), strict=True))
    assert title[1] == "Toy Story (1995)"
    assert title[73] == "Misérables, Les (1995)"  # latin-1 in the archive
    assert ratings.values.mean() == pytest.approx(3.5816, abs=1e-4)
    assert ratings.timestamps.min() == 956_703_932
    if path.endswith(".zip"):
        assert load_dataset("ml-1m", shared_data / path, catalog=True).n_items == 3_883


@pytest.mark.real_data
def test_real_ml_100k(shared_data):
    ratings = load_dataset("ml-100k", shared_data / "ml-100k")
    about = describe("ml-100k")
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (
        about.users,
        about.items,
        about.ratings,
    )
    title = dict(zip(ratings.item_ids.tolist(), ratings.titles.tolist(), strict=True))
    assert title[50] == "Star Wars (1977)"
    assert ratings.values.mean() == pytest.approx(3.52986, abs=1e-5)
    assert load_dataset("ml-100k", shared_data / "ml-100k" / "u.data") == ratings


@pytest.mark.real_data
def test_real_sweetrs_zeros_mean_never_tried(shared_data):
    ratings = load_dataset("sweetrs", shared_data / "sweetrs")
    about = describe("sweetrs")
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (
        about.users,
        about.items,
        about.ratings,
    )
    assert ratings.values.min() == 1
    assert np.diff(ratings.indptr).min() >= 1
    assert ratings.titles[0] == "7 days - cake bar"
    every = load_dataset("sweetrs", shared_data / "sweetrs", drop_zeros=False)
    assert every.n_users == 1_476
    assert every.n_ratings + every.merged == 44_543
    assert (every.values == 0).sum() > 6_000


def test_sweetrs_as_published(tmp_path, cache):
    file = cache / "sweetrs" / "ratings-final.csv"
    assert describe("sweetrs").place == file
    file.parent.mkdir(parents=True)
    file.write_text("user,product,grade\n1,Twix,5\n1,Bounty,0\n2,Bounty,3\n")
    ratings = load_dataset("sweetrs")
    assert sorted(ratings.values.tolist()) == [3, 5]
    assert set(ratings.item_ids) == {"Twix", "Bounty"}
    assert load_dataset("sweetrs", drop_zeros=False).n_ratings == 3


def test_sizes_tell_another_data_set(tmp_path):
    for name in ("ml-1m", "ml-10m"):
        write_folder(name, tmp_path / name)
        with pytest.raises(
            DataError, match=f"is not {name}: it holds .* ratings of .* users.*Ratings.read"
        ):
            load_dataset(name, tmp_path / name)
    write_folder("ml-latest-small", tmp_path / "latest")  # its publisher changes it
    check(load_dataset("ML-Latest-Small", tmp_path / "latest"))


@pytest.mark.real_data
def test_the_data_set_that_it_is_is_named(shared_data):
    with pytest.raises(
        DataError, match=r"is not ml-1m: it holds 100,000 ratings of 943 users.*load it as ml-100k"
    ):
        load_dataset("ml-1m", shared_data / "ml-100k" / "ratings.parquet")
