"""Every form in which a history, many histories or pairs may come gives the same rows."""

import datetime
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from discreet import Ratings
from discreet.errors import DataError
from discreet.models.histories import as_pairs, as_user_rows, parse_history

ITEMS = np.array([10, 20, 30, 40], np.int64)
RATED = {20: 4.0, 40: 1.0}
COLUMNS = {"item_id": [20, 40], "rating": [4.0, 1.0]}
ROW = sparse.csr_array(np.array([[0, 4.0, 0, 1.0]]))


def content(rows):
    """{item id: rating} of the only row."""
    assert rows.n_users == 1
    return dict(zip(rows.item_ids[rows.indices].tolist(), rows.values.tolist(), strict=True))


@pytest.mark.parametrize(
    "history",
    [
        RATED,
        {np.int64(40): np.float32(1), 20: 4},
        pd.DataFrame(COLUMNS),
        pd.Series(RATED),
        pd.DataFrame(COLUMNS).set_index("item_id")["rating"],
        pl.DataFrame(COLUMNS),
        pl.LazyFrame(COLUMNS),
        pa.table(COLUMNS),
        pa.table(COLUMNS).to_batches()[0],
        pd.DataFrame({"movieId": [40, 20], "score": [1, 4], "anything": ["a", "b"]}),
        pd.DataFrame(COLUMNS | {"user_id": ["me", "me"]}),
        pd.DataFrame({"item_id": [20, 40, 20], "rating": [4.0, 1.0, 2.0], "timestamp": [9, 9, 3]}),
        ROW,
        sparse.csr_matrix(ROW),
        sparse.csc_array(ROW),
        sparse.coo_array(ROW),
        sparse.coo_array(ROW).reshape(4),
        Ratings.from_arrays(["me", "me"], [20, 40], [4, 1]),
    ],
    ids=lambda h: f"{type(h).__module__.split('.')[0]}.{type(h).__name__}",
)
def test_a_history_with_ratings(history):
    assert content(parse_history(history, ITEMS, liked=5.0)) == RATED


@pytest.mark.parametrize(
    "history",
    [
        [20, 40],
        (40, 20),
        {20, 40},
        np.array([20, 40]),
        pd.Series([20, 40]),
        pl.Series([20, 40]),
        pa.array([20, 40]),
        {20: None, 40: None}.keys(),
        iter([20, 40]),
        [20, 40, 20],
        pd.DataFrame({"item_id": [20, 40]}),
        pl.DataFrame({"item": [20, 40]}),
        pa.table({"product_id": [20, 40]}),
    ],
    ids=lambda h: f"{type(h).__module__.split('.')[0]}.{type(h).__name__}",
)
def test_a_history_without_ratings_is_liked(history):
    assert content(parse_history(history, ITEMS, liked=5.0)) == {20: 5.0, 40: 5.0}


@pytest.mark.parametrize(
    "history",
    [
        [],
        {},
        (),
        set(),
        np.array([]),
        pd.DataFrame({"item_id": [], "rating": []}),
        pl.DataFrame({"item_id": []}),
        pa.table({"item_id": pa.array([], pa.int64())}),
        sparse.csr_array((1, 4)),
        sparse.csr_matrix((1, 4)),
    ],
    ids=lambda h: f"{type(h).__module__.split('.')[0]}.{type(h).__name__}",
)
def test_an_empty_history(history):
    assert content(parse_history(history, ITEMS, liked=5.0)) == {}


@pytest.mark.parametrize(
    "make",
    [
        str,
        lambda i: (i, "x"),
        lambda i: uuid.UUID(int=i),
        lambda i: i / 16,
        lambda i: datetime.date(2000, 1, i),
    ],
)
def test_ids_of_any_kind(make):
    ids = {make(20): 4.0, make(30): 1.0}
    assert content(parse_history(ids, ITEMS, liked=5.0)) == ids
    assert content(parse_history(list(ids), ITEMS, liked=5.0)) == dict.fromkeys(ids, 5.0)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (
            "20",
            "a history is a list of item ids or a mapping item id -> rating, not '20'",
        ),
        (b"20", "a history is a list"),
        (20, "a history is a list"),
        (None, "a history is a list"),
        ({20: "good"}, "finite ratings, and 'good' is not one"),
        ({20: None}, "finite ratings, and None is not one"),
        ({20: float("nan")}, "finite ratings, and nan is not one"),
        ({20: np.inf}, "finite ratings, and inf is not one"),
        ([[20, 40]], "must be hashable"),
        ([None], "item id is missing"),
        (np.ones((2, 2), int), "must be one-dimensional"),
        (
            np.zeros(23),
            r"an array \(23,\) of float64 is not a history. Pass a list of item ids, a mapping",
        ),
        (np.array([20.0, 40.0]), r"an array \(2,\) of float64 is not a history"),
        (
            pd.DataFrame({"a": [1]}),
            r"needs a column item_id, and may have one for the rating. Its columns are \['a'\]",
        ),
        (
            pd.DataFrame(COLUMNS | {"user": [1, 2]}),
            "the history of one user is needed, but there are 2 users",
        ),
        (
            sparse.csr_array((2, 4)),
            "the history of one user is needed, but there are 2 users. Use recommend_many",
        ),
        (
            Ratings.from_arrays([1, 2], [10, 10]),
            "the history of one user is needed, but there are 2 users",
        ),
        (sparse.csr_array((1, 5)), "5 columns for the 4 items of the model"),
    ],
)
def test_what_is_no_history(history, message):
    with pytest.raises(DataError, match=message):
        parse_history(history, ITEMS, liked=5.0)


def test_many_histories():
    table = np.array([[0, 4.0, 0, 1.0], [0, 0, 0, 0], [1, 2, 3, 4]])
    expected = Ratings.from_csr(sparse.csr_array(table), item_ids=ITEMS)
    for kind in (
        sparse.csr_array,
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_matrix,
        sparse.lil_array,
    ):
        assert as_user_rows(kind(table), ITEMS) == expected
    assert as_user_rows(expected, ITEMS) is expected


@pytest.mark.parametrize(
    ("histories", "message"),
    [
        (sparse.csr_array((4, 7)), r"7 columns for the 4 items of the model: did you transpose\?"),
        (sparse.csr_array((3, 7)), "7 columns for the 4 items of the model$"),
        (np.ones((3, 4)), "be Ratings, a frame or a sparse matrix, not a ndarray"),
        ([{20: 1.0}], "not a list. For a single history, use recommend"),
        (pd.DataFrame(COLUMNS), "has no column recognizable as the user"),
    ],
)
def test_what_are_no_histories(histories, message):
    with pytest.raises(DataError, match=message):
        as_user_rows(histories, ITEMS)


PAIRS = [("b", 20), ("a", 40), ("b", 40), ("b", 20)]


@pytest.mark.parametrize(
    "pairs",
    [
        PAIRS,
        [list(pair) for pair in PAIRS],
        iter(PAIRS),
        np.array(PAIRS, dtype=object),
        pd.DataFrame(PAIRS, columns=["user_id", "item_id"]),
        pl.DataFrame(PAIRS, schema=["user", "movieId"], orient="row"),
        pa.table(
            {
                "rating": ["x"] * 4,
                "user_id": [p[0] for p in PAIRS],
                "item_id": [p[1] for p in PAIRS],
            }
        ),
    ],
    ids=lambda p: f"{type(p).__module__.split('.')[0]}.{type(p).__name__}",
)
def test_pairs_keep_order_and_repetitions(pairs):
    user_ids, item_ids, user, item = as_pairs(pairs)
    assert list(zip(user_ids[user].tolist(), item_ids[item].tolist(), strict=True)) == PAIRS


def test_pairs_of_ratings_are_in_their_order():
    ratings = Ratings.from_arrays(["b", "a", "b"], [40, 40, 20])
    user_ids, item_ids, user, item = as_pairs(ratings)
    assert user_ids[user].tolist() == ["a", "b", "b"]
    assert item_ids[item].tolist() == [40, 20, 40]


def test_no_pairs():
    assert [len(part) for part in as_pairs([])] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "pairs", [[1, 2], [(1, 2, 3)], ("a", "b"), 7, None, ["ab"], {1: 2}, np.ones((2, 3))]
)
def test_what_are_no_pairs(pairs):
    with pytest.raises(DataError, match=r"pairs must be rows of \(user_id, item_id\)"):
        as_pairs(pairs)
