"""Ids of every kind go in and come out unchanged."""

import datetime
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from discreet import Ratings
from discreet.data.ids import IdIndex, as_ids, encode, stands_for_nothing
from discreet.engines.user_hash import Secret, identities
from discreet.errors import DataError
from support.ratings_helpers import small, triples

A_DAY = datetime.date(2024, 2, 29)


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2],
        [-5, 0, 7],
        ["b", "a", "ü"],
        ["10", "a", "9"],
        [(1, "x"), (0, "y"), (1, "a")],
        [uuid.UUID(int=3), uuid.UUID(int=1), uuid.UUID(int=2)],
        [1, "01", (1,)],
        [b"x", b"a", b"c"],
        [1.5, 0.25, 2.5],
        [2**70, 1, 2**80],
        [A_DAY, A_DAY + datetime.timedelta(1), A_DAY - datetime.timedelta(1)],
        [frozenset({1}), frozenset({2}), frozenset({1, 2})],
        [Decimal("1.1"), Decimal("0.1"), Decimal(3)],
        [10**17, -(10**17), 0],
    ],
    ids=str,
)
def test_ids_come_out_as_they_went_in(ids):
    ratings = Ratings.from_arrays(ids, ids[::-1], [1, 2, 3])
    rows = zip(ids, ids[::-1], [1.0, 2.0, 3.0], [None] * 3, strict=True)
    assert triples(ratings) == sorted(rows, key=lambda row: ratings.user_ids.tolist().index(row[0]))
    assert set(ratings.user_ids.tolist()) == set(ids)
    assert [type(value) for value in sorted(ratings.user_ids.tolist(), key=ids.index)] == [
        type(value) for value in ids
    ]
    assert ratings.user_index(ids).tolist() == [
        ratings.user_ids.tolist().index(value) for value in ids
    ]


def test_spellings_of_one_integer_are_one_user_as_in_block_files_and_two_items():
    users = [7, "7", "7.0", "007", "8.0", "ann"]
    ratings = Ratings.from_arrays(users, [1, 2, 3, 1, 1, 1], np.ones(6))
    assert ratings.user_ids.tolist() == [7, "8.0", "007", "ann"]
    assert np.diff(ratings.indptr).tolist() == [3, 1, 1, 1]
    assert ratings.user_index(["7.0", 8]).tolist() == [0, 1]
    assert Ratings.from_arrays([1, 2], [7, "7"]).n_items == 2
    both = Ratings.from_arrays(["7", "7.0"], [1, 2])
    assert (both.user_ids.dtype, both.user_ids.tolist()) == (np.int64, [7])
    with pytest.raises(DataError, match="distinct, but one of them is given twice"):
        Ratings.from_csr(sparse.csr_array(np.eye(2)), user_ids=[7, "7.0"])


INEXACT = [2.0**53, 2.0**60, 0.5]


@pytest.mark.parametrize(
    "ids",
    [
        np.array(INEXACT),
        np.array([2.0**24, 0.5, 1.0], np.float32),
        pd.Series([2**60, 2**60 + 1, 0.5]),
        pa.array(INEXACT),
    ],
    ids=["numpy", "float32", "pandas", "arrow"],
)
def test_user_ids_that_an_array_has_rounded_are_refused(ids):
    """One user's decimal id makes a column of 64-bit ids decimal, and merges its neighbors."""
    with pytest.raises(DataError, match="too large to be exact"):
        Ratings.from_arrays(ids, [1, 2, 3])
    with pytest.raises(DataError, match="too large to be exact"):
        identities(ids, Secret(bytes(32)))
    assert Ratings.from_arrays([1, 2, 3], ids).n_items > 1  # of items nobody's privacy depends


def test_lists_keep_every_id_as_it_is():
    exact = [2**60, 2**60 + 1, 0.5, 2.0**70]
    assert Ratings.from_arrays(exact, [1, 2, 3, 4]).n_users == 4
    assert Ratings.from_arrays([2.0**60, 2.0**70, 0.5], [1, 2, 3]).n_users == 3


def test_order_is_sorted_where_there_is_one_and_first_appearance_otherwise():
    assert Ratings.from_arrays([3, 1, 2], [0, 0, 0]).user_ids.tolist() == [1, 2, 3]
    assert Ratings.from_arrays(["b", "a"], [0, 0]).user_ids.tolist() == ["a", "b"]
    assert Ratings.from_arrays([(2, 1), (1, 9)], [0, 0]).user_ids.tolist() == [(1, 9), (2, 1)]
    assert Ratings.from_arrays(["b", 3, "a"], [0, 0, 0]).user_ids.tolist() == [3, "a", "b"]
    assert Ratings.from_arrays(["10", "9", "a", "010"], [0, 0, 0, 0]).user_ids.tolist() == [
        "9",
        "10",
        "010",
        "a",
    ]
    sets = [frozenset({2}), frozenset({1, 2}), frozenset({1})]
    assert Ratings.from_arrays(sets, [0, 0, 0]).user_ids.tolist() == sets


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float64]
)
def test_integers_of_any_width_are_int64(dtype):
    ids = np.array([7, 3, 7], dtype=dtype)
    ratings = Ratings.from_arrays(ids, [1, 2, 3])
    assert ratings.user_ids.dtype == np.int64
    assert ratings.user_ids.tolist() == [3, 7]


def test_numpy_scalars_text_arrays_and_huge_integers():
    assert as_ids([np.int64(3), np.int32(4)]).dtype == np.int64
    assert as_ids(np.array(["x", "y"])).tolist() == ["x", "y"]
    assert type(as_ids(np.array(["x"]))[0]) is str
    assert as_ids(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [2**64 - 1]
    assert as_ids([2**70]).dtype == object
    assert as_ids([True, False]).tolist() == [True, False]
    assert as_ids(np.array(["2024-01-01"], dtype="datetime64[D]")).dtype == object


@pytest.mark.parametrize("missing", [None, float("nan"), Decimal("nan")], ids=str)
def test_missing_ids_are_refused_with_their_row(missing):
    with pytest.raises(DataError, match=r"row 1 .*user id is missing"):
        Ratings.from_arrays([1, missing, 2], [1, 2, 3])
    with pytest.raises(DataError, match=r"row 1 .*item id is missing"):
        Ratings.from_arrays([1, 2], ["a", missing])


def test_what_cannot_be_an_id_is_refused():
    with pytest.raises(DataError, match="hashable"):
        Ratings.from_arrays([[1], [2, 3]], [1, 2])
    for single in (1, None, 2.5):
        with pytest.raises(
            DataError, match=f"a list of user ids is needed, not the single value {single}"
        ):
            Ratings.from_arrays(single, 2)
    with pytest.raises(DataError, match="a list of ratings is needed, not the single value 3"):
        Ratings.from_arrays([1], [2], 3)
    with pytest.raises(DataError, match=r"row 1 .*user id is missing"):
        Ratings.from_arrays(np.array(["2024-01-01", "NaT"], "datetime64[D]"), [1, 2])
    with pytest.raises(DataError, match="one-dimensional"):
        Ratings.from_arrays(np.zeros((2, 2), int), [1, 2])
    with pytest.raises(DataError, match=r"pass \['alice'\]"):
        small().user_index("alice")


TEXT = st.text().filter(lambda text: not stands_for_nothing(text))


@given(st.lists(st.one_of(st.integers(), TEXT, st.tuples(st.integers(), TEXT)), max_size=30))
def test_encode_is_inverted_by_indexing(ids):
    distinct, indices = encode(ids)
    assert [distinct.tolist()[at] for at in indices] == ids
    assert len(set(distinct.tolist())) == len(distinct)
    assert IdIndex(distinct).positions(ids).tolist() == indices.tolist()


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    st.integers(-(2**63), 2**63 - 1),
)
def test_encode_integers_near_and_far_apart(ids, other):
    distinct, indices = encode(np.array(ids, dtype=np.int64))
    assert distinct.tolist() == sorted(set(ids))
    assert distinct[indices].tolist() == ids
    shuffled = np.array(list(dict.fromkeys(ids)), dtype=np.int64)
    expected = shuffled.tolist().index(other) if other in ids else -1
    assert IdIndex(shuffled).positions([other]).tolist() == [expected]


def test_half_a_surrogate_pair_in_an_id_is_refused_in_a_sentence():
    """No file can hold one, so every export of such an id would fail later."""
    import pandas as pd

    half = "u\ud83d"
    for ids in ([half, "b"], np.array([half, "b"]), np.array([half, 7], object)):
        with pytest.raises(DataError, match="user ids hold half of a surrogate pair"):
            as_ids(ids, "user id")
    users = pd.Series([half, "b"], dtype=object)
    frame = pd.DataFrame({"user": users, "item": ["x", "y"], "rating": [1.0, 2.0]})
    with pytest.raises(DataError, match="half of a surrogate pair"):
        Ratings.from_frame(frame)
    assert as_ids(["ü", "\U0001f600", "b"]).tolist() == ["ü", "\U0001f600", "b"]
