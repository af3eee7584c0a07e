"""Parquet read a row group at a time is what it is when read whole, and so are integers of 32
and of 64 bits.
"""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from discreet import Ratings
from discreet.data.parquet import read_row_groups
from discreet.errors import DataError

ROWS = 60
NAMES = {"user": "user_id", "item": "item_id", "rating": "rating", "timestamp": "timestamp"}


def table(user=None, item=None, rating=None, timestamp=None):
    rng = np.random.default_rng(0)
    columns = {
        "user_id": rng.integers(1, 9, ROWS),
        "item_id": rng.integers(1, 12, ROWS),
        "rating": rng.integers(1, 11, ROWS) / 2,
        "timestamp": rng.integers(10**9, 2 * 10**9, ROWS),
    }
    kinds = {"user_id": user, "item_id": item, "rating": rating, "timestamp": timestamp}
    arrays = {name: pa.array(column) for name, column in columns.items()}
    for name, kind in kinds.items():
        if kind is not None:
            text = pa.types.is_dictionary(kind) or not pa.types.is_primitive(kind)
            arrays[name] = (arrays[name].cast(pa.string()) if text else arrays[name]).cast(kind)
    return pa.table(arrays)


def both(rows: pa.Table, folder: Path) -> tuple[Path, Path]:
    """The rows in many row groups, of which the last is short, and in one."""
    many = folder / "many.parquet"
    one = folder / "one.parquet"
    parquet.write_table(rows, many, row_group_size=7)
    parquet.write_table(rows, one)
    return many, one


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.int32(),
        pa.int8(),
        pa.uint32(),
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_ids_of_every_type(tmp_path, kind):
    many, one = both(table(user=kind, item=kind), tmp_path)
    assert read_row_groups(many, NAMES) is not None
    assert Ratings.read(many) == Ratings.read(one)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_ratings_and_times_may_be_absent(tmp_path, kind):
    many, one = both(table(rating=kind), tmp_path)
    for choice in (
        {},
        {"rating": False},
        {"timestamp": False},
        {"rating": False, "timestamp": False},
    ):
        assert Ratings.read(many, **choice) == Ratings.read(one, **choice)


def test_rows_stay_in_order(tmp_path):
    """Without times, the last of several ratings counts, so that the order of row groups
    matters.
    """
    rows = pa.table(
        {"user_id": [1] * 50, "item_id": [2] * 50, "rating": [float(n) for n in range(50)]}
    )
    many, _ = both(rows, tmp_path)
    assert Ratings.read(many).values.tolist() == [49.0]


@pytest.mark.parametrize("large", [2**31, -(2**31) - 1, 2**62])
def test_an_id_beyond_32_bits_is_read_whole(tmp_path, large):
    rows = table()
    users = rows.column("user_id").to_pylist()
    users[-1] = large
    many, one = both(rows.set_column(0, "user_id", pa.array(users)), tmp_path)
    assert read_row_groups(many, NAMES) is None
    assert Ratings.read(many) == Ratings.read(one)
    assert large in Ratings.read(many).user_ids


def test_dates_are_read_whole(tmp_path):
    rows = table()
    when = [datetime.datetime(2024, 5, 1 + n % 28) for n in range(ROWS)]
    many, one = both(rows.set_column(3, "timestamp", pa.array(when)), tmp_path)
    assert read_row_groups(many, NAMES) is None
    assert Ratings.read(many) == Ratings.read(one)


@pytest.mark.parametrize(
    ("column", "value"),
    [("user_id", None), ("item_id", None), ("rating", None), ("rating", np.inf)],
)
def test_what_is_wrong_is_said_as_of_the_whole_file(tmp_path, column, value):
    rows = table()
    cells = rows.column(column).to_pylist()
    cells[40] = value
    at = rows.schema.get_field_index(column)
    many, one = both(
        rows.set_column(at, column, pa.array(cells, rows.schema.field(column).type)), tmp_path
    )
    said = []
    for path in (many, one):
        with pytest.raises(DataError, match="row 40") as caught:
            Ratings.read(path)
        said.append(str(caught.value).replace(str(path), ""))
    assert said[0] == said[1]


@pytest.mark.parametrize("late", ["3000000000", "-3000000000", "4611686018427387904"])
def test_a_large_id_far_down_a_text_file(tmp_path, late):
    """The first lines fit into 32 bits and are read so; what comes later is the same as in 64
    bits.
    """
    lines = [f"{n % 50},{n % 7},3" for n in range(60_000)]  # more than is looked at beforehand
    path = tmp_path / "r.csv"
    path.write_text("\n".join(["user,item,rating", *lines, f"{late},1,4", "1,2,5"]) + "\n")
    ratings = Ratings.read(path)
    assert ratings.user_ids.dtype == np.int64
    assert int(late) in ratings.user_ids
    assert ratings.n_users == 51
