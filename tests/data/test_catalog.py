"""The public catalog from files, frames, mappings and lists."""

import gzip
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from discreet import Ratings
from discreet.data.catalog import Catalog
from discreet.errors import DataError


def written(folder, text, name="items.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "ids", "titles"),
    [
        ('movieId,title,genres\n2,"Up, and away",x\n1,Down,y\n', [2, 1], ["Up, and away", "Down"]),
        ("item_id\tname\nb\tBee\na\tAy\n", ["b", "a"], ["Bee", "Ay"]),
        ("id;genre;Title\n7;x;Seven\n", [7], ["Seven"]),
        (
            "1::Toy: a Story (1995)::Animation|Comedy\n2::Jumanji (1995)::Adventure\n",
            [1, 2],
            ["Toy: a Story (1995)", "Jumanji (1995)"],
        ),
        (
            "1|Toy Story|01-Jan-1995||0|1\n2|Get, Shorty|01-Jan-1995||1|0\n",
            [1, 2],
            ["Toy Story", "Get, Shorty"],
        ),
        ("item_id\n5\n3\n", [5, 3], None),
        ("5\n3\n", [5, 3], None),
        ("x\ny\n", ["x", "y"], None),
        ("item,genre\n5,war\n3,love\n", [5, 3], None),
        ("item,title\n5,\n3,Three\n", [5, 3], ["5", "Three"]),
        ("\ufeffitem_id,title\r\n007,Bond\r\n\r\n", ["007"], ["Bond"]),
        ("item_id,title\n1.0,One\n2.0,Two\n", [1, 2], ["One", "Two"]),
    ],
)
def test_text_files(tmp_path, text, ids, titles):
    catalog = Catalog.from_any(written(tmp_path, text))
    assert catalog.ids.tolist() == ids
    assert (None if catalog.titles is None else catalog.titles.tolist()) == titles


def test_compressed_latin_and_str_path(tmp_path):
    path = tmp_path / "movies.dat.gz"
    path.write_bytes(gzip.compress("1::Amélie::x\n2::Léon::y\n".encode("latin-1")))
    assert Catalog.from_any(str(path)).titles.tolist() == ["Amélie", "Léon"]


def test_columnar_files_and_frames(tmp_path):
    columns = {"item": [3, 1], "title": ["Three", None]}
    path = tmp_path / "items.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    for items in (
        path,
        pd.DataFrame(columns),
        pl.DataFrame(columns),
        pl.DataFrame(columns).lazy(),
        pa.table(columns),
    ):
        catalog = Catalog.from_any(items)
        assert catalog.ids.tolist() == [3, 1]
        assert catalog.titles.tolist() == ["Three", "1"]


def test_mappings_lists_and_catalogs():
    catalog = Catalog.from_any({("a", 1): "A", 7: "B"})
    assert catalog.ids.tolist() == [("a", 1), 7]
    assert catalog.titles.tolist() == ["A", "B"]
    assert Catalog.from_any(catalog) is catalog
    assert Catalog.from_any(np.array([3, 1])).titles is None
    assert Catalog.from_any(pd.Series(["x", "y"])).ids.tolist() == ["x", "y"]
    assert Catalog.from_any(pl.Series([4, 2])).ids.tolist() == [4, 2]
    assert Catalog.from_any(range(3)).ids.tolist() == [0, 1, 2]
    assert Catalog.from_any([1, 2], titles=["one", "two"]).titles.tolist() == ["one", "two"]
    assert len(catalog) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("item_id,title\n", "the catalog is empty"),
        ("item_id,title\n1,a\n1,b\n", "the catalog lists the item 1 twice"),
        ("item_id,title\n1,a\n2\n", r"item 2 has no id or no title \('2'\)"),
        ("item_id,title\n1,a\n,b\n", "item 2 has no id or no title"),
    ],
)
def test_broken_files(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        Catalog.from_any(path)
    assert "items.csv" in str(caught.value)


def test_other_refusals(tmp_path):
    path = tmp_path / "items.parquet"
    pa.parquet.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(
        DataError,
        match=r"items\.parquet has no column recognizable as item ids: its columns are 'x'",
    ):
        Catalog.from_any(path)
    with pytest.raises(DataError, match="does not exist"):
        Catalog.from_any(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a folder"):
        Catalog.from_any(tmp_path)
    with pytest.raises(DataError, match="'a' twice"):
        Catalog.from_any(["a", "b", "a"])
    with pytest.raises(DataError, match="the catalog is empty"):
        Catalog.from_any([])
    with pytest.raises(DataError, match="1 titles for 2 items"):
        Catalog.from_any([1, 2], titles=["one"])
    with pytest.raises(DataError, match="item id is missing"):
        Catalog.from_any([1, None])
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"item_id,title\n" + b"1,a\n" * 9999)[:40])
    with pytest.raises(DataError, match="is incomplete"):
        Catalog.from_any(tmp_path / "cut.csv.gz")


def test_rated_items_that_are_not_listed(tmp_path):
    path = written(tmp_path, "1,2,5\n1,3,4\n2,9,4\n", "ratings.csv")
    items = written(tmp_path, "item_id,title\n3,Three\n2,Two\n4,Never rated\n")
    with pytest.raises(DataError, match=r"some rated items are not in the catalog of 3: .*='drop'"):
        Ratings.read(path, items=items)
    ratings = Ratings.read(path, items=items, unknown_items="drop")
    assert ratings.item_ids.tolist() == [3, 2, 4]
    assert ratings.titles.tolist() == ["Three", "Two", "Never rated"]
    assert ratings.to_csr().toarray().tolist() == [[4, 5, 0], [0, 0, 0]]


@pytest.mark.real_data
def test_official_catalogs(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data / "ml-1m" / "ml-1m.zip") as archive:
        archive.extract("ml-1m/movies.dat", tmp_path)
    official = Catalog.from_any(tmp_path / "ml-1m" / "movies.dat")
    table = Catalog.from_any(shared_data / "ml-1m" / "items.parquet")
    assert len(official) == 3883
    assert official.ids.tolist() == table.ids.tolist()
    assert official.titles.tolist() == table.titles.tolist()
    small = Catalog.from_any(shared_data / "ml-100k" / "u.item")
    assert len(small) == 1682
    assert (
        small.titles.tolist()
        == Catalog.from_any(shared_data / "ml-100k" / "items.parquet").titles.tolist()
    )


def test_a_catalog_whose_ids_are_the_index_says_what_to_do():
    frame = pd.DataFrame({"title": ["Up"]}, index=[1])
    with pytest.raises(
        DataError, match=r"Rename the column to item_id, or pass frame\.reset_index"
    ):
        Catalog.from_any(frame)
    assert Catalog.from_any(frame.rename_axis("item_id").reset_index()).ids.tolist() == [1]
