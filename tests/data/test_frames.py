"""Frames of three libraries in and out, none of them imported by us."""

import datetime
import re
import subprocess
import sys
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import Ratings
from discreet.errors import ConfigError, DataError
from support.ratings_helpers import ROWS, triples

MAKERS = {
    "pandas": pd.DataFrame,
    "pandas-arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "pandas-nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "polars": pl.DataFrame,
    "polars-lazy": lambda columns: pl.DataFrame(columns).lazy(),
    "pyarrow": pa.table,
    "record-batch": pa.RecordBatch.from_pydict,
}
COLUMNS = {
    "user_id": [2, 1, 2],
    "item_id": ["b", "a", "a"],
    "rating": [1.5, 2.0, 3.0],
    "timestamp": [7, 8, 9],
}
EXPECTED = Ratings.from_arrays(*COLUMNS.values())


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def test_every_library(make):
    assert Ratings.from_frame(make(COLUMNS)) == EXPECTED


def test_columns_by_name_and_position(make):
    frame = make(
        {"when": [7, 8, 9], "who": [2, 1, 2], "what": ["b", "a", "a"], "score": [1.5, 2.0, 3.0]}
    )
    assert Ratings.from_frame(frame, user="who", item="what", timestamp="when") == EXPECTED
    assert Ratings.from_frame(frame, user=1, item=2, rating=3, timestamp=0) == EXPECTED
    assert Ratings.from_frame(frame, user="who", item="what", rating=False).values.tolist() == [
        1,
        1,
        1,
    ]
    with pytest.raises(
        DataError, match=r"no column recognizable as the user.*'when', 'who', 'what', 'score'"
    ):
        Ratings.from_frame(frame)
    with pytest.raises(
        DataError, match=r"no column 'whom': its columns are 'when', 'who', 'what', 'score'$"
    ):
        Ratings.from_frame(frame, user="whom")


def test_missing_values_are_named_by_row(make):
    with pytest.raises(DataError, match=r"row 1 .*item id is missing"):
        Ratings.from_frame(make({"user": [1, 2], "item": ["a", None]}))
    with pytest.raises(DataError, match=r"row 1 .*user id is missing"):
        Ratings.from_frame(make({"user": [1, None], "item": ["a", "b"]}))
    with pytest.raises(DataError, match=r"row 1 .*rating is (nan|missing)"):
        Ratings.from_frame(make({"user": [1, 2], "item": ["a", "b"], "rating": [1.0, None]}))
    with pytest.raises(DataError, match=r"row 0 .*rating is inf"):
        Ratings.from_frame(make({"user": [1, 2], "item": ["a", "b"], "rating": [np.inf, 1.0]}))
    with pytest.raises(DataError, match=r"row 1 .*timestamp is missing"):
        Ratings.from_frame(make({"user": [1, 2], "item": ["a", "b"], "time": [1, None]}))
    with pytest.raises(DataError, match=r"row 1 .*'good' is not a number"):
        Ratings.from_frame(make({"user": [1, 2], "item": ["a", "b"], "rating": ["1", "good"]}))
    with pytest.raises(DataError, match="holds no ratings"):
        Ratings.from_frame(make({"user": [], "item": []}))


def test_dates_are_seconds(make):
    times = [datetime.datetime(1970, 1, 1, 0, 1), datetime.datetime(1970, 1, 2)]
    assert Ratings.from_frame(
        make({"user": [1, 2], "item": [1, 2], "time": times})
    ).timestamps.tolist() == [60, 86400]
    days = [datetime.date(1970, 1, 2), datetime.date(1970, 1, 3)]
    frame = make({"user": [1, 2], "item": [1, 2], "date": days})
    assert Ratings.from_frame(frame).timestamps.tolist() == [86400, 172800]
    texts = ["1970-01-02", "1970-01-01T00:00:09Z"]
    assert Ratings.from_frame(
        make({"user": [1, 2], "item": [1, 2], "date": texts})
    ).timestamps.tolist() == [86400, 9]


def test_catalog_and_duplicates(make):
    frame = make({"user": [1, 1, 2], "item": ["a", "a", "b"], "rating": [1, 3, 5]})
    ratings = Ratings.from_frame(frame, items=["b", "a", "z"], duplicates="mean")
    assert triples(ratings) == [(1, "a", 2.0, None), (2, "b", 5.0, None)]
    assert ratings.item_ids.tolist() == ["b", "a", "z"]
    with pytest.raises(DataError, match="some rated items are not in the catalog"):
        Ratings.from_frame(frame, items=["a"])
    assert Ratings.from_frame(frame, items=["a"], unknown_items="drop").n_ratings == 1


def test_pandas_peculiarities():
    mixed = pd.DataFrame({"user": [1, "01", (1, 2)], "item": [uuid.UUID(int=n) for n in (3, 1, 2)]})
    ratings = Ratings.from_frame(mixed)
    assert ratings.user_ids.tolist() == [1, "01", (1, 2)]
    assert ratings.item_ids.tolist() == [uuid.UUID(int=n) for n in (1, 2, 3)]
    gaps = pd.DataFrame({"user": [1.0, 2.0], "item": [3, 4]})
    assert Ratings.from_frame(gaps).user_ids.tolist() == [1, 2]
    category = pd.DataFrame(
        {"user": pd.Categorical(["b", "a"], categories=["z", "b", "a"]), "item": [1, 2]}
    )
    assert Ratings.from_frame(category).user_ids.tolist() == ["a", "b"]
    with pytest.raises(DataError, match=r"index 'user'.*reset_index"):
        Ratings.from_frame(
            pd.DataFrame({"user": [1], "item": [2], "rating": [3]}).set_index("user")
        )
    numbered = pd.DataFrame([[1, 2, 3.0]])
    assert Ratings.from_frame(numbered, user=0, item=1, rating=2).values.tolist() == [3]
    twice = pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"])
    with pytest.raises(DataError, match="several columns of the same name"):
        Ratings.from_frame(twice)
    sliced = pd.DataFrame({"user": [1, 2, 3], "item": [4, 5, 6]})[1:]
    assert Ratings.from_frame(sliced).user_ids.tolist() == [2, 3]


def test_polars_categories_and_decimals():
    frame = pl.DataFrame({"user": ["b", "a"], "item": [1, 2]}).with_columns(
        pl.col("user").cast(pl.Categorical)
    )
    assert Ratings.from_frame(frame).user_ids.tolist() == ["a", "b"]
    decimals = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": ["1.5", "2"]}).with_columns(
        pl.col("rating").cast(pl.Decimal(10, 2))
    )
    assert Ratings.from_frame(decimals).values.tolist() == [1.5, 2]
    with pytest.raises(DataError, match="hashable"):
        Ratings.from_frame(pl.DataFrame({"user": [[1], [2]], "item": [1, 2]}))


def test_integers_of_128_bits_in_polars():
    wide = {"user": pl.Series([2**100, 7], dtype=pl.Int128), "item": [1, 2]}
    numbers = {
        "rating": pl.Series([4, 5], dtype=pl.Int128),
        "timestamp": pl.Series([8, 9], dtype=pl.Int128),
    }
    ratings = Ratings.from_frame(pl.DataFrame(wide | numbers))
    assert ratings.user_ids.tolist() == [7, 2**100]
    assert (ratings.values.tolist(), ratings.timestamps.tolist()) == ([5, 4], [9, 8])


@pytest.mark.parametrize(
    "thing",
    [
        {"user": [1], "item": [2]},
        [(1, 2)],
        np.eye(2),
        None,
        "ratings.csv",
        pd.Series([1, 2], name="user"),
        pl.Series("user", [1, 2]),
        pa.array([1]),
    ],
    ids=lambda thing: type(thing).__module__ + "." + type(thing).__name__,
)
def test_what_is_no_frame(thing):
    with pytest.raises(DataError, match="is not a data frame"):
        Ratings.from_frame(thing)


@given(ROWS, st.sampled_from(["pandas", "polars", "pyarrow"]), st.booleans())
def test_round_trip(rows, backend, text):
    users, items, values, times = (list(column) for column in zip(*rows, strict=True))
    ratings = Ratings.from_arrays(list(map(str, users)) if text else users, items, values, times)
    frame = ratings.to_frame(backend)
    assert type(frame).__module__.split(".")[0] == backend
    assert Ratings.from_frame(frame) == ratings


def test_to_frame_columns_and_failures():
    assert list(EXPECTED.to_frame().columns) == ["user_id", "item_id", "rating", "timestamp"]
    assert Ratings.from_arrays([1], [2]).to_frame("pyarrow").column_names == [
        "user_id",
        "item_id",
        "rating",
    ]
    tuples = Ratings.from_arrays([(1, 2), "x"], [1, 2])
    assert Ratings.from_frame(tuples.to_frame("pandas")) == tuples
    assert Ratings.from_frame(tuples.to_frame("polars")) == tuples
    mixed = Ratings.from_arrays([7, "x"], [1, 2])
    again = Ratings.from_frame(mixed.to_frame("pyarrow"))
    assert again.user_ids.tolist() == ["7", "x"]
    assert again.user_index([7, "x"]).tolist() == [0, 1]
    with pytest.raises(DataError, match="arrow cannot hold the values of user_id"):
        tuples.to_frame("pyarrow")
    with pytest.raises(ConfigError, match="'spark'"):
        EXPECTED.to_frame("spark")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        ConfigError, match=r"polars is not installed: pip install \"discreet\[frames\]\""
    ):
        EXPECTED.to_frame("polars")


def test_reading_imports_neither_pandas_nor_polars(tmp_path):
    code = (
        "import sys; from pyarrow import csv; from discreet import Ratings;"
        "Ratings.from_frame(csv.read_csv(sys.argv[1])); Ratings.read(sys.argv[1]);"
        "Ratings.from_arrays([1, 2**60], ['a', (1, 2)]);"
        "sys.exit(str({'pandas', 'polars'} & set(sys.modules) or ''))"
    )
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n1,a,3\n12345678901234567,b,4\n", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert run.stderr.strip() == ""


@pytest.mark.parametrize(
    "change",
    [
        {"user": None},
        {"item": None},
        {"rating": None},
        {"rating": float("inf")},
        {"time": None},
        {"item": 0},
    ],
    ids=str,
)
def test_a_refusal_names_a_row_and_not_how_many_there_are(change):
    """Of 77 rows that cannot be used the first is named: their number would be exact."""
    columns = {name: list(range(200)) for name in ("user", "item", "rating", "time")}
    columns["user"] = [at // 100 for at in range(200)]
    for name, value in change.items():
        columns[name][3:80] = [value] * 77
    names = {"user": "user", "item": "item", "rating": "rating", "timestamp": "time"}
    with pytest.raises(DataError) as caught:
        Ratings.from_frame(pa.table(columns), duplicates="error", **names)
    assert "row" in str(caught.value)
    assert not re.search("7[678]", str(caught.value))
