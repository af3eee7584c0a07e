"""Block files: the same bits as in memory from files of any kind, and one sentence where
something is lost.
"""

import json
import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import discreet
from discreet.data.ratings import Ratings
from discreet.engines import RatingsSource
from discreet.engines.blocks import BlockRatings, readers
from discreet.engines.blocks.manifest import Manifest, read_portion
from discreet.engines.local import LocalRatings
from discreet.errors import ConfigError, DataError, EngineError, PrivacyError
from support.engine_helpers import (
    MODELS,
    SCALE,
    files_with_traces,
    modes_of,
    rows_of_recognizable_users,
    same_bits,
    silenced,
    some_ratings,
    trained,
)


@pytest.fixture(scope="module")
def ratings():
    return some_ratings()


@pytest.fixture
def silent(monkeypatch):
    return silenced(monkeypatch)


@pytest.fixture
def blocks(ratings, tmp_path):
    return discreet.BlockRatings.write(ratings, tmp_path / "blocks", blocks=7)


@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_blocks_gives_the_same_bits(ratings, silent, tmp_path, name):
    whole = trained(MODELS[name](), ratings, silent)
    for n in (1, 3, 7, 16):
        people = discreet.BlockRatings.write(ratings, tmp_path / str(n), blocks=n)
        same_bits(whole, trained(MODELS[name](), people, silent))


@pytest.mark.parametrize(
    "model",
    [
        lambda: discreet.HuberALS(epsilon=8.0, rating_range=SCALE, random_state=1),
        lambda: discreet.DPFrankWolfe(3, epsilon=8.0, rating_range=SCALE, random_state=1),
        lambda: discreet.DPSVD(epsilon=8.0, rating_range=SCALE, random_state=1),
        lambda: discreet.DPALS(8, epsilon=8.0, goal="ranking", random_state=1),
    ],
)
def test_every_other_model_of_map_and_add_up_as_well(ratings, silent, blocks, model):
    same_bits(trained(model(), ratings, silent), trained(model(), blocks, silent))


def test_secret_sampling_are_refused(blocks):
    model = discreet.DPSGD(epsilon=8.0, rating_range=SCALE, iterations=2)
    with pytest.raises(ConfigError, match="relies on secret Poisson sampling"):
        model.fit(blocks)
    assert not hasattr(model, "privacy_"), "nothing was charged"


def test_seeded_noise_is_refused_before_anything_is_charged(blocks):
    model = discreet.DPMF(
        epsilon=8.0, goal="rating", rating_range=SCALE, noise="seeded", random_state=1
    )
    with pytest.raises(ConfigError, match="sums integers only"):
        model.fit(blocks)
    assert not hasattr(model, "privacy_")


# ------------------------------------------------------------------ where ratings come from


def write_csv(ratings, path, rows=slice(None), separator=","):
    table = ratings.to_frame("pyarrow")
    columns = [column.to_pylist()[rows] for column in table.columns]
    lines = [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([separator.join(table.column_names), *lines]) + "\n")


@pytest.mark.parametrize(
    "kind", ["csv", "::", "two files", "folder", "parquet", "feather", "frame", "frames"]
)
def test_from_any_source(ratings, silent, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(readers, "BYTES", 1 << 14)  # so that a small file has many pieces
    monkeypatch.setattr(readers, "ROWS", 1 << 10)
    table = ratings.to_frame("pyarrow")
    source = tmp_path / "source"
    if kind in ("csv", "::"):
        write_csv(ratings, source, separator="," if kind == "csv" else "::")
    elif kind in ("two files", "folder"):
        source.mkdir()
        write_csv(ratings, source / "1.csv", slice(0, 2000))
        write_csv(ratings, source / "2.csv", slice(2000, None))
        if kind == "two files":
            source = [source / "1.csv", source / "2.csv"]
    elif kind == "parquet":
        pq.write_table(table, source)
    elif kind == "feather":
        with pa.OSFile(str(source), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    elif kind == "frame":
        source = table
    else:
        source = (part for part in (table.slice(0, 3000), table.slice(3000)))
    people = discreet.BlockRatings.write(
        source, tmp_path / "blocks", blocks=5, items=ratings.item_ids.tolist()
    )
    assert people.catalog
    name = "DPMF, rating"
    same_bits(trained(MODELS[name](), ratings, silent), trained(MODELS[name](), people, silent))


def test_items_that_are_found_in_the_data_have_the_same_order(ratings, silent, tmp_path):
    file = tmp_path / "ratings.csv"
    write_csv(ratings, file)
    whole = discreet.Ratings.read(file)
    people = discreet.BlockRatings.write(file, tmp_path / "blocks", blocks=3)
    assert np.array_equal(people.item_ids, whole.item_ids)
    assert not people.catalog
    same_bits(trained(MODELS["DPLMC"](), whole, silent), trained(MODELS["DPLMC"](), people, silent))


@pytest.mark.parametrize("duplicates", ["last", "mean"])
def test_repeated_ratings_are_merged_as_in_memory(silent, tmp_path, duplicates):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 400), rng.integers(0, 9, 400)
    given = {
        "user": users,
        "item": items,
        "rating": rng.integers(1, 6, 400),
        "timestamp": rng.integers(0, 5, 400),
    }
    how = {"items": list(range(9)), "duplicates": duplicates, "trust_user_column": True}
    whole = discreet.Ratings.from_frame(pa.table(given), **how)
    people = discreet.BlockRatings.write(pa.table(given), tmp_path / "blocks", blocks=4, **how)

    def model():
        return discreet.DPLMC(3, epsilon=8.0, rating_range=(1, 5), random_state=1, iterations=2)

    same_bits(trained(model(), whole, silent), trained(model(), people, silent))
    with pytest.raises(DataError, match="rated an item twice"):
        discreet.BlockRatings.write(pa.table(given), tmp_path / "more", duplicates="error")


def test_a_person_is_one_however_its_id_is_written(silent, tmp_path):
    """As a number in one file and as text in another, which then has 007 as well: that is
    somebody else.
    """
    (tmp_path / "1.csv").write_text("user,item,rating\n7,1,5\n8,1,3\n")
    (tmp_path / "2.csv").write_text("user,item,rating\n7,2,4\n007,2,2\nann,1,1\n")
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    people = discreet.BlockRatings.write(
        files, tmp_path / "blocks", blocks=2, items=[1, 2], trust_user_column=True
    )
    whole = discreet.Ratings.from_arrays(
        [7, 8, 7, "007", "ann"], [1, 1, 2, 2, 1], [5.0, 3.0, 4.0, 2.0, 1.0], item_ids=[1, 2]
    )

    def model():
        return discreet.DPLMC(1, epsilon=8.0, rating_range=(1, 5), random_state=1, iterations=2)

    same_bits(trained(model(), whole, silent), trained(model(), people, silent))


def test_people_without_a_rating_are_counted(silent, tmp_path):
    rows = pa.table({"user": [1, 1, 2, 3], "item": [1, 2, 9, 1], "rating": [5.0, 1.0, 3.0, 4.0]})
    given = {"items": [1, 2], "unknown_items": "drop", "trust_user_column": True}
    whole = discreet.Ratings.from_frame(rows, **given)
    assert whole.n_users == 3
    people = [
        discreet.BlockRatings.write(rows, tmp_path / "rows", blocks=2, **given),
        discreet.BlockRatings.write(whole, tmp_path / "whole", blocks=3),
    ]

    def model():
        return discreet.DPLMC(1, epsilon=8.0, rating_range=(1, 5), random_state=1, iterations=2)

    first = trained(model(), whole, silent)
    for one in people:
        same_bits(first, trained(model(), one, silent))
    with pytest.raises(DataError, match="not in the catalog of 2"):
        discreet.BlockRatings.write(rows, tmp_path / "more", items=[1, 2])


# ------------------------------------------------------------------ what is written


def test_the_manifest_is_private_and_the_ledger_says_nothing_of_it(ratings, blocks, tmp_path):
    folder = tmp_path / "blocks"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["notice"].startswith("PRIVATE")
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert isinstance(blocks, RatingsSource)
    model = MODELS["DPMF, rating"]().fit(blocks)
    (engine,) = [one.text for one in model.privacy_.assumptions if one.name == "engine"]
    assert engine == "blocks: users are in 7 block files on one machine"
    assert "7 block files" in str(model.privacy_.to_dict())
    text = " ".join(one.text for one in model.privacy_.assumptions) + repr(blocks)
    for number in (ratings.n_users, ratings.n_ratings):
        assert f"{number}" not in text
        assert f"{number:,}" not in text


def test_no_file_holds_an_id_or_a_hash_of_one_without_a_key(tmp_path):
    """Neither the blocks nor what lies on the disk while they are written."""
    rows = pa.table(rows_of_recognizable_users())
    begun = []

    def source():
        yield rows.slice(0, 50)
        (aside,) = tmp_path.iterdir()
        begun.append((files_with_traces(aside), modes_of(aside)))
        yield rows.slice(50)

    discreet.BlockRatings.write(source(), tmp_path / "blocks", blocks=3, items=list(range(5)))
    assert begun == [([], ({0o700}, {0o600}))]
    assert files_with_traces(tmp_path) == []
    assert modes_of(tmp_path / "blocks") == ({0o700}, {0o600})


def test_the_order_of_users_in_a_block_says_nothing_about_their_ids(tmp_path):
    """User n rates item n: ids that ascend would show as items that ascend."""
    n = np.arange(200)
    discreet.BlockRatings.write(
        pa.table({"user": n, "item": n, "rating": n * 1.0}), tmp_path / "blocks", blocks=1
    )
    manifest = Manifest.read(tmp_path / "blocks")
    items = read_portion(tmp_path / "blocks", 0, manifest.blocks[0]).items
    assert sorted(items) == n.tolist()
    assert 60 < np.count_nonzero(np.diff(items) > 0) < 140, "12 standard deviations less than 199"


def test_blocks_of_an_earlier_format_are_refused(blocks, tmp_path):
    file = tmp_path / "blocks" / "manifest.json"
    file.write_text(file.read_text().replace('"format": 3', '"format": 2'))
    with pytest.raises(DataError, match=r"has format 2, .* reads 3: write the blocks again"):
        discreet.BlockRatings(tmp_path / "blocks")


def test_writing_is_all_or_nothing(ratings, tmp_path):
    folder = tmp_path / "blocks"

    def torn():
        yield ratings.to_frame("pyarrow")
        raise RuntimeError("the network is gone")

    with pytest.raises(RuntimeError):
        discreet.BlockRatings.write(torn(), folder)
    assert not os.listdir(tmp_path)
    discreet.BlockRatings.write(ratings, folder, blocks=2)
    with pytest.raises(ConfigError, match="already exists"):
        discreet.BlockRatings.write(ratings, folder)
    with pytest.raises(RuntimeError):
        discreet.BlockRatings.write(torn(), folder, replace=True)
    assert discreet.BlockRatings(folder).parts == 2
    assert discreet.BlockRatings.write(ratings, folder, blocks=3, replace=True).parts == 3
    assert os.listdir(tmp_path) == ["blocks"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters.txt").write_text("dear")
    with pytest.raises(ConfigError, match="holds other files than blocks and is not replaced"):
        discreet.BlockRatings.write(ratings, tmp_path / "other", replace=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"blocks": 0}, "blocks is 0"),
        ({"duplicates": "first"}, "duplicates"),
        ({"unknown_items": "x"}, "unknown"),
    ],
)
def test_what_cannot_be_meant(ratings, tmp_path, given, said):
    with pytest.raises(ConfigError, match=said):
        discreet.BlockRatings.write(ratings, tmp_path / "blocks", **given)
    with pytest.raises(DataError, match="does not exist"):
        discreet.BlockRatings(tmp_path / "nowhere")
    with pytest.raises(DataError, match="not from a int"):
        discreet.BlockRatings.write(5, tmp_path / "blocks")


# ------------------------------------------------------------------ lost and damaged


@pytest.mark.parametrize("harm", ["lost", "damaged", "cut"])
def test_a_block_that_is_lost_or_damaged_is_said_in_one_sentence(blocks, tmp_path, harm):
    file = tmp_path / "blocks" / "block-00003.bin"
    data = bytearray(file.read_bytes())
    if harm == "lost":
        file.unlink()
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes(data if harm == "damaged" else data[:-9])
    model = MODELS["DPMF, rating"]()
    with pytest.raises(EngineError) as caught:
        model.fit(blocks)
    told = "is lost" if harm == "lost" else "is damaged"
    assert str(caught.value).startswith(
        f"block 4 of {tmp_path / 'blocks'} {told}: restore the file block-00003.bin"
    )
    assert caught.value.__cause__ is None
    assert len(model.privacy_.ledger.entries) == 1, "what was charged stays charged"
    with pytest.raises(EngineError):
        blocks.check()


def test_a_block_that_comes_back_gives_the_same_bits(ratings, silent, blocks, tmp_path):
    file = tmp_path / "blocks" / "block-00003.bin"
    away = tmp_path / "away"
    file.rename(away)
    with pytest.raises(EngineError):
        MODELS["DPALS"]().fit(blocks)
    away.rename(file)
    same_bits(
        trained(MODELS["DPALS"](), ratings, silent), trained(MODELS["DPALS"](), blocks, silent)
    )


def test_errors_name_nobody(blocks, monkeypatch):
    from discreet.engines.block_format import PackedBlock

    def fails(self, bounds, seed, secret):
        raise ValueError("user 4711 rated 3.5")

    monkeypatch.setattr(PackedBlock, "sealed", fails)
    with pytest.raises(PrivacyError) as caught:
        MODELS["DPMF, rating"]().fit(blocks)
    assert "4711" not in str(caught.value)
    assert caught.value.__context__ is None


# ------------------------------------------------------------ the user column


def table_of(users, **more):
    rng = np.random.default_rng(0)
    return pa.table({"user": users, "item": rng.integers(0, 30, len(users))} | more)


def stars(n):
    return np.random.default_rng(1).integers(1, 6, n)


WRONG_USERS = {
    "fewer than 100": lambda: table_of(stars(900)),
    "holds dates": lambda: table_of(
        [f"2024-{1 + at % 12:02}-{1 + at % 28:02}" for at in range(900)]
    ),
    "nearly all rows repeat": lambda: table_of(np.arange(120 * 400) % 120),
}


@pytest.mark.parametrize("problem", WRONG_USERS)
@pytest.mark.parametrize("several", [False, True])
def test_a_column_that_does_not_identify_users_is_refused(tmp_path, problem, several):
    table = WRONG_USERS[problem]()
    half = len(table) // 2
    source = [table.slice(0, half), table.slice(half)] if several else table
    more = {"items": range(30), "duplicates": "mean", "blocks": 3}
    model = discreet.DPMF.configure(factors=2, epsilon=5, like_threshold="everything")
    with pytest.raises(DataError, match=problem):
        model.fit(BlockRatings.write(source, tmp_path / "wrong", **more), progress=False)
    assert not hasattr(model, "privacy_")
    assert (
        BlockRatings.write(
            source, tmp_path / "trusted", trust_user_column=True, **more
        ).user_problem
        == ""
    )


def test_blocks_keep_what_speaks_against_the_user_column(tmp_path):
    ratings = Ratings.from_frame(
        WRONG_USERS["fewer than 100"](), items=range(30), duplicates="mean"
    )
    for people in (BlockRatings.write(ratings, tmp_path / "b", blocks=2), LocalRatings(ratings, 2)):
        with pytest.raises(DataError, match="fewer than 100"):
            discreet.DPMF(2, epsilon=5).fit(people, progress=False)


def test_blocks_without_a_rating_column_are_refused_with_a_rating_range(tmp_path):
    blocks = BlockRatings.write(
        table_of(np.arange(900) % 300), tmp_path / "b", items=range(30), duplicates="mean", blocks=2
    )
    assert not blocks.rated
    with pytest.raises(DataError, match="there is no rating column"):
        discreet.DPMF(2, epsilon=5, rating_range=(1, 5)).fit(blocks, progress=False)
