"""Compression of rows, duplicates, and sparse matrices in and out."""

import copy
import datetime
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from discreet import Ratings
from discreet.data.csr import compress, sort_key
from discreet.errors import ConfigError, DataError
from support.ratings_helpers import ROWS, assert_inner_form, small, triples


@settings(max_examples=200)
@given(ROWS, st.booleans(), st.sampled_from(["last", "mean"]))
def test_duplicates_against_a_dictionary(rows, with_times, rule):
    users, items, values, times = (list(column) for column in zip(*rows, strict=True))
    ratings = Ratings.from_arrays(
        users, items, values, times if with_times else None, duplicates=rule
    )
    groups = {}
    for user, item, value, time in rows:
        groups.setdefault((user, item), []).append((time if with_times else 0, value))
    expected = []
    for (user, item), group in sorted(groups.items()):
        newest = max(time for time, _ in group)
        last = [value for time, value in group if time == newest][-1]
        value = last if rule == "last" else np.float32(np.mean([value for _, value in group]))
        expected.append((user, item, float(value), newest if with_times else None))
    assert triples(ratings) == expected
    assert ratings.merged == len(rows) - len(groups)
    assert_inner_form(ratings)


def test_merging_is_the_same_across_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    users, items = (
        rng.integers(0, 9, 500).astype(np.int32),
        rng.integers(0, 7, 500).astype(np.int32),
    )
    values, times = rng.random(500, dtype=np.float32), rng.integers(0, 4, 500)
    for rule in ("last", "mean"):
        whole = compress(users, items, 9, 7, values, times, rule)
        monkeypatch.setattr("discreet.data.csr._CACHED", 7)
        pieces = compress(users, items, 9, 7, values, times, rule)
        monkeypatch.undo()
        for a, b in zip(whole, pieces, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize("timed", [True, False])
def test_users_sorted_apart_are_sorted_the_same(monkeypatch, cores, timed):
    rng = np.random.default_rng(2)
    # some have most of the rows, and some have none
    users = (40 * rng.random(3_000) ** 3).astype(np.int32)
    items = rng.integers(0, 30, 3_000).astype(np.int32)
    values = rng.random(3_000, dtype=np.float32)
    times = rng.integers(0, 4, 3_000) if timed else None
    monkeypatch.setattr("discreet.data.csr.pa.cpu_count", lambda: cores)
    for rule in ("last", "mean"):
        whole = compress(users, items, 44, 30, values, times, rule)
        monkeypatch.setattr("discreet.data.csr._APART", 100)
        pieces = compress(users, items, 44, 30, values, times, rule)
        monkeypatch.setattr("discreet.data.csr._APART", 10**9)
        assert whole.merged > 0
        for a, b in zip(whole, pieces, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.asarray(a).dtype == np.asarray(b).dtype


def test_packed_sort_equals_lexsort():
    rng = np.random.default_rng(1)
    users, items = (
        rng.integers(0, 50, 2000).astype(np.int32),
        rng.integers(0, 30, 2000).astype(np.int32),
    )
    expected = np.lexsort((items, users))
    for n_users in (50, 2**60):  # the second does not fit into 63 bits
        order, sorted_items = sort_key(users, items, 30, (0, n_users), len(users)).sort()
        np.testing.assert_array_equal(order, expected)
        np.testing.assert_array_equal(sorted_items, items[expected])


def test_duplicates_error_names_the_rows_and_the_way_out():
    with pytest.raises(DataError, match=r"rows 0 and 2 .*duplicates=\"last\""):
        Ratings.from_arrays([1, 2, 1], [5, 5, 5], duplicates="error")
    with pytest.raises(ConfigError, match="'sum'"):
        Ratings.from_arrays([1], [1], duplicates="sum")
    assert Ratings.from_arrays([1, 2], [5, 5], duplicates="error").merged == 0


def test_merging_is_counted_and_not_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="discreet"):
        assert Ratings.from_arrays([1, 1, 1], [5, 5, 6]).merged == 1
    assert caplog.text == ""


def test_no_ratings_means_ones():
    assert Ratings.from_arrays([1, 2], [3, 4]).values.tolist() == [1, 1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_ratings_must_be_finite(value):
    with pytest.raises(DataError, match=r"row 1 .*finite"):
        Ratings.from_arrays([1, 2], [3, 4], [1.0, value])


def test_columns_of_wrong_kind_or_length():
    with pytest.raises(DataError, match=r"row 1 .*'good' is not a number"):
        Ratings.from_arrays([1, 2], [3, 4], ["5", "good"])
    with pytest.raises(DataError, match="3 items for 2 users"):
        Ratings.from_arrays([1, 2], [3, 4, 5])
    with pytest.raises(DataError, match="1 ratings for 2 users"):
        Ratings.from_arrays([1, 2], [3, 4], [1])
    with pytest.raises(DataError, match="one-dimensional"):
        Ratings.from_arrays([1, 2], [3, 4], [[1], [2]])
    with pytest.raises(DataError, match=r"row 1 .*rating is missing"):
        Ratings.from_arrays([1, 2], [3, 4], [1, None])
    assert Ratings.from_arrays([1, 2], [3, 4], ["5", "1.5"]).values.tolist() == [5, 1.5]


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([5, 7], [5, 7]),
        ([5.9, -0.5], [5, -1]),
        (np.array(["1970-01-01T00:01", "1970-01-02"], dtype="datetime64[ns]"), [60, 86400]),
        (["1970-01-01T00:00:05Z", "1970-01-01 01:00:00+01:00"], [5, 0]),
        (["1970-01-02", "17"], [86400, 17]),
        ([datetime.datetime(1970, 1, 1, 0, 0, 3), datetime.date(1970, 1, 2)], [3, 86400]),
        (
            [datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-2)))]
            * 2,
            [7200, 7200],
        ),
    ],
    ids=str,
)
def test_timestamps_of_many_kinds(times, seconds):
    assert Ratings.from_arrays([1, 2], [3, 4], None, times).timestamps.tolist() == seconds


@pytest.mark.parametrize(
    "bad", ["yesterday", None, float("nan"), np.datetime64("NaT"), float("inf"), {}], ids=str
)
def test_bad_timestamps_are_refused_with_their_row(bad):
    with pytest.raises(DataError, match=r"row 1 .*timestamp"):
        Ratings.from_arrays(
            [1, 2], [3, 4], None, [datetime.date(2020, 1, 1) if bad == {} else 5, bad]
        )


def test_empty_arrays_make_empty_ratings():
    ratings = Ratings.from_arrays([], [])
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (0, 0, 0)
    assert ratings.user_index([1]).tolist() == [-1]
    assert ratings.to_csr().shape == (0, 0)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_from_csr_shares_memory_with_a_canonical_matrix(kind):
    matrix = kind(np.array([[0, 2, 3], [0, 0, 0], [1, 0, 0]], np.float32))
    ratings = Ratings.from_csr(matrix)
    assert np.shares_memory(ratings.values, matrix.data)
    assert np.shares_memory(ratings.indices, matrix.indices)
    assert triples(ratings) == [(0, 1, 2, None), (0, 2, 3, None), (2, 0, 1, None)]
    assert ratings.user_ids.tolist() == [0, 1, 2]  # users without ratings stay
    matrix.data[0] = 2  # still the caller's
    assert matrix.data.flags.writeable
    assert not ratings.catalog


@pytest.mark.parametrize("make", ["coo", "csc", "csr", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("dtype", [np.int32, np.float64, bool])
def test_every_sparse_format(make, dtype):
    dense = np.array([[0, 2, 3], [0, 0, 0], [1, 0, 4]]).astype(dtype)
    for origin in (sparse.csr_array(dense), sparse.csr_matrix(dense)):
        np.testing.assert_array_equal(
            Ratings.from_csr(origin.asformat(make)).to_csr().toarray(), dense
        )


def test_stored_zeros_are_ratings():
    matrix = sparse.csr_array(
        (np.array([0.0, 5.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2)
    )
    assert triples(Ratings.from_csr(matrix)) == [(0, 0, 0.0, None), (0, 1, 5.0, None)]
    assert Ratings.from_csr(matrix.tocsc()).n_ratings == 2
    assert Ratings.from_csr(matrix).to_csr().nnz == 2


def test_repeated_and_unsorted_entries_are_never_summed():
    indices, data = np.array([1, 0, 1], np.int32), np.array([2, 3, 4], np.float32)
    matrix = sparse.csr_array((data, indices, np.array([0, 3])), shape=(1, 2))
    before = copy.deepcopy((matrix.indptr, matrix.indices, matrix.data))
    ratings = Ratings.from_csr(matrix)
    assert triples(ratings) == [(0, 0, 3, None), (0, 1, 4, None)]
    assert ratings.merged == 1
    assert Ratings.from_csr(matrix, duplicates="mean").values.tolist() == [3, 3]
    assert Ratings.from_csr(matrix.tocoo()).values.tolist() == [3, 4]
    with pytest.raises(DataError, match="same user and item"):
        Ratings.from_csr(matrix, duplicates="error")
    for now, then in zip((matrix.indptr, matrix.indices, matrix.data), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_transposed_matrices_are_recognized():
    matrix = sparse.csr_array((3706, 6040), dtype=np.float32)
    with pytest.raises(DataError, match=r"3,706 rows for 6,040 users: did you transpose\?"):
        Ratings.from_csr(matrix, user_ids=range(6040))
    with pytest.raises(DataError, match=r"6,040 columns for 3,706 items: did you transpose\?"):
        Ratings.from_csr(matrix, item_ids=range(3706))
    with pytest.raises(
        DataError, match=r"6,040 columns for 5 items: one id for each of the columns"
    ):
        Ratings.from_csr(matrix, items=range(5))


def test_from_csr_with_ids_titles_and_catalog():
    matrix = sparse.csr_array(np.array([[1, 0], [2, 3]], np.float32))
    ratings = Ratings.from_csr(matrix, ["x", "a"], ["q", "p"], titles=["Q", "P"])
    assert ratings.user_ids.tolist() == ["x", "a"]  # given ids keep the order given
    assert ratings.titles.tolist() == ["Q", "P"]
    named = Ratings.from_csr(matrix, items={"q": "Queen", "p": "Pawn"})
    assert (named.item_ids.tolist(), named.titles.tolist(), named.catalog) == (
        ["q", "p"],
        ["Queen", "Pawn"],
        True,
    )
    wider = Ratings.from_csr(matrix, item_ids=["q", "p"], items=["p", "z", "q"])
    assert wider.catalog
    assert wider.to_csr().toarray().tolist() == [[0, 0, 1], [3, 0, 2]]
    with pytest.raises(DataError, match="1 titles for 2 columns"):
        Ratings.from_csr(matrix, titles=["Q"])
    with pytest.raises(DataError, match="'q' is given twice"):
        Ratings.from_csr(matrix, item_ids=["q", "q"])
    with pytest.raises(DataError, match="user ids must be distinct") as error:
        Ratings.from_csr(matrix, user_ids=["bob", "bob"])
    assert "bob" not in str(error.value)


def broken_matrix(data, indices, indptr):
    matrix = sparse.csr_array((2, 2), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = (
        np.array(data, np.float32),
        np.array(indices),
        np.array(indptr),
    )
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(2), "csr_array"),
        ([[1, 2]], "is needed, not list"),
        (
            sparse.csr_array(np.array([[1, np.nan]])),
            "NaN or infinite, the first in row 0 and column 1",
        ),
        (sparse.csr_array(np.array([[1e300, 1]])), "infinite"),
        (sparse.csr_array(np.array([[1j, 1]])), "real numbers"),
        (sparse.coo_array(np.array([1.0, 2.0])), "two dimensions"),
        (broken_matrix([1, 1], [0, 7], [0, 1, 2]), "column index"),
        (broken_matrix([1, 1], [0, -1], [0, 1, 2]), "column index"),
        (broken_matrix([1, 1], [0, 1], [0, 2, 1]), "indptr"),
        (broken_matrix([1, 1], [0, 1], [0, 1, 5]), "indptr"),
    ],
)
def test_matrices_that_cannot_be_used(matrix, message):
    with pytest.raises(DataError, match=message):
        Ratings.from_csr(matrix)


@given(ROWS)
def test_csr_round_trip(rows):
    users, items, values, _ = (list(column) for column in zip(*rows, strict=True))
    ratings = Ratings.from_arrays(users, items, values)
    assert Ratings.from_csr(ratings.to_csr(), ratings.user_ids, ratings.item_ids) == ratings
    assert Ratings.from_csr(ratings.to_csr().tocsc(), ratings.user_ids, ratings.item_ids) == ratings
    dense = np.zeros((ratings.n_users, ratings.n_items), np.float32)
    # numpy keeps the last, too
    dense[ratings.user_index(users), ratings.item_index(items)] = values
    np.testing.assert_array_equal(ratings.to_csr().toarray(), dense)


def test_to_csr_shares_memory_and_cannot_be_written_to():
    ratings = small()
    matrix = ratings.to_csr()
    assert isinstance(matrix, sparse.csr_array)
    assert matrix.dtype == np.float32
    assert np.shares_memory(matrix.data, ratings.values)
    assert np.shares_memory(matrix.indices, ratings.indices)
    with pytest.raises(ValueError, match="read-only"):
        matrix.data[0] = 9
    assert (matrix @ np.ones(4)).tolist() == [3, 3, 9]
