"""Ratings as a value, and choosing users, items and ratings."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import Ratings
from discreet.errors import ConfigError, DataError
from support.ratings_helpers import ROWS, assert_inner_form, small, triples


def test_immutable():
    ratings = small()
    with pytest.raises(AttributeError, match="immutable"):
        ratings.values = None
    with pytest.raises(AttributeError, match="immutable"):
        del ratings.values
    for name in ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(ratings, name)[0] = 0
    with pytest.raises(TypeError, match=r"Ratings\.read"):
        Ratings()
    with pytest.raises(TypeError, match="unhashable"):
        hash(ratings)


def test_from_indices_shares_and_leaves_the_callers_arrays_writeable():
    indptr, indices, values = (
        np.array([0, 1, 2]),
        np.array([0, 0], np.int32),
        np.array([1, 2], np.float32),
    )
    ratings = Ratings.from_indices(
        indptr, indices, values, ["a", "b"], [7], titles=["seven"], catalog=True
    )
    assert np.shares_memory(ratings.values, values)
    assert values.flags.writeable
    assert ratings.user_ids.dtype == object
    assert (ratings.titles.tolist(), ratings.catalog, ratings.merged) == (["seven"], True, 0)
    with pytest.raises(AssertionError):
        Ratings.from_indices(indptr, indices, values, ["a"], [7])


def test_equality_pickle_and_repr():
    ratings = small()
    assert ratings == small()
    assert ratings != Ratings.from_arrays([1], ["a"])
    assert ratings != ratings.keep(np.arange(6) > 0)
    assert ratings != Ratings.from_arrays(
        [1, 1, 2, 3, 3, 3], ["a", "c", "b", "a", "b", "d"], [1, 2, 3, 4, 5, 0]
    )
    assert ratings != "ratings"
    again = pickle.loads(pickle.dumps(ratings.with_items({"a": "A", "b": "B", "c": "C", "d": "D"})))
    assert again == copy.deepcopy(ratings)
    assert again.titles.tolist() == ["A", "B", "C", "D"]
    assert again.catalog
    assert repr(ratings) == "Ratings(3 users × 4 items, 6 ratings, with timestamps)"


def test_keep():
    kept = small().keep([True, False, False, True, True, False])
    assert triples(kept) == [(1, "a", 1, 10), (3, "a", 4, 30), (3, "b", 5, 31)]
    assert (kept.n_users, kept.n_items) == (3, 4)
    for mask in ([1, 0, 0, 1, 1, 0], [True], np.ones((2, 3), bool)):
        with pytest.raises(DataError, match="one boolean for each of the 6 ratings"):
            small().keep(mask)


def test_select_users_by_mask_index_and_id():
    ratings = small()
    by_mask = ratings.select_users(np.array([True, False, True]))
    assert by_mask.user_ids.tolist() == [1, 3]
    assert by_mask.n_items == 4
    by_index = ratings.select_users(np.array([2, 0]))
    assert by_index.user_ids.tolist() == [3, 1]  # in the order given
    assert triples(by_index)[:3] == [(3, "a", 4, 30), (3, "b", 5, 31), (3, "d", 0, 33)]
    assert ratings.select_users([3, 1]) == by_index
    assert ratings.select_users(np.array([3, 1]), by="id") == by_index
    assert ratings.select_users([2, 0], by="index") == by_index
    assert ratings.select_users([]).n_users == 0
    assert_inner_form(by_index)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([99, 1], "1 of 2 user ids"),
        (np.array([3]), r"0 … 2; if these are ids"),
        (np.array([-1]), r"0 … 2"),
        (np.array([True]), "mask of shape"),
        ([1, 1], "twice"),
        (np.array([0, 0]), "twice"),
    ],
)
def test_select_users_refuses(users, message):
    with pytest.raises(DataError, match=message):
        small().select_users(users)


def test_with_items():
    ratings = small()
    moved = ratings.with_items(["d", "z", "c", "b", "a"])
    assert sorted(triples(moved)) == sorted(triples(ratings))
    assert moved.item_ids.tolist() == ["d", "z", "c", "b", "a"]
    assert not moved.catalog  # a bare list may come from anywhere
    assert ratings.with_items({"a": "A", "b": "B", "c": "C", "d": "D"}).catalog
    assert_inner_form(moved)
    with pytest.raises(DataError, match=r"some rated items are not in the catalog of 2: add them"):
        ratings.with_items(["a", "b"])
    dropped = ratings.with_items(["b", "a"], unknown="drop")
    assert sorted(triples(dropped)) == [
        (1, "a", 1, 10),
        (2, "b", 3, 21),
        (3, "a", 4, 30),
        (3, "b", 5, 31),
    ]
    assert dropped.n_users == 3
    with pytest.raises(ConfigError, match="'ignore'"):
        ratings.with_items(["a"], unknown="ignore")
    titled = ratings.with_items({"a": "A", "b": "B", "c": "C", "d": "D"}).with_items(
        ["d", "c", "b", "a", "z"]
    )
    assert titled.titles.tolist() == ["D", "C", "B", "A", "z"]


def test_unrated_items_outside_the_catalog_do_no_harm():
    ratings = small().with_items(["a", "b", "c", "d", "never"])
    assert ratings.with_items(["a", "b", "c", "d"]).n_items == 4


def test_catalog_when_reading_arrays():
    ratings = Ratings.from_arrays([1, 2], ["b", "a"], item_ids={"a": "A", "b": "B", "x": "X"})
    assert ratings.item_ids.tolist() == ["a", "b", "x"]
    assert ratings.titles.tolist() == ["A", "B", "X"]
    assert ratings.catalog
    assert Ratings.from_arrays(
        [1], [2], item_ids=[2, 3], titles=["two", "three"]
    ).titles.tolist() == ["two", "three"]
    # by their written form
    assert Ratings.from_arrays([1, 2], [1, 2], item_ids=["2", "1"]).indices.tolist() == [1, 0]
    assert Ratings.from_arrays([1, 2], ["1", "2.0"], item_ids=[2, 1]).indices.tolist() == [1, 0]
    both = Ratings.from_arrays([1, 1, 1], [1, "1", "01"], [3, 4, 5], item_ids=["01", "1", 1])
    assert both.values.tolist() == [5, 4, 3]
    left = Ratings.from_arrays([1, 2], ["b", "q"], item_ids=["b"], unknown_items="drop")
    assert (left.n_users, left.n_ratings) == (2, 1)
    with pytest.raises(ConfigError, match="titles need item_ids"):
        Ratings.from_arrays([1], [2], titles=["two"])


def test_indices_of_ids():
    ratings = small()
    assert ratings.user_index([3, 99, 1]).tolist() == [2, -1, 0]
    assert ratings.item_index(["d", "zzz", 5]).tolist() == [3, -1, -1]
    assert ratings.user_index(["1", 1.0, "01", "1.5"]).tolist() == [0, 0, -1, -1]


@settings(max_examples=150)
@given(ROWS, st.integers(0, 4), st.integers(0, 4))
def test_filter_reaches_the_fixed_point(rows, min_user, min_item):
    users, items, values, _ = (list(column) for column in zip(*rows, strict=True))
    ratings = Ratings.from_arrays(users, items, values)
    pairs = {(user, item) for user, item, *_ in triples(ratings)}
    keep_users, keep_items = set(users), set(items)
    while True:
        left = {(u, i) for u, i in pairs if u in keep_users and i in keep_items}
        new_users = {u for u in keep_users if sum(1 for a, _ in left if a == u) >= min_user}
        new_items = {i for i in keep_items if sum(1 for _, b in left if b == i) >= min_item}
        if (new_users, new_items) == (keep_users, keep_items):
            break
        keep_users, keep_items = new_users, new_items
    result = ratings.filter(min_user_ratings=min_user, min_item_ratings=min_item)
    assert result.user_ids.tolist() == sorted(keep_users)
    assert result.item_ids.tolist() == sorted(keep_items)
    assert {(user, item) for user, item, *_ in triples(result)} == left
    assert set(triples(result)) <= set(triples(ratings))
    assert_inner_form(result)


def test_filter_items_and_the_catalog_flag():
    ratings = small().with_items({"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"})
    some = ratings.filter(items=["e", "b"], public=True)
    assert (some.item_ids.tolist(), some.titles.tolist(), some.catalog) == (
        ["b", "e"],
        ["B", "E"],
        True,
    )
    assert some.n_users == 3
    assert ratings.filter(items=["b"], min_user_ratings=1).user_ids.tolist() == [2, 3]
    # which items are left depends on the data now
    assert not ratings.filter(min_item_ratings=1).catalog
    assert ratings.filter() == ratings
    with pytest.raises(DataError, match="1 of the items to keep are not in the ratings, such as 'zzz'"):
        ratings.filter(items=["a", "zzz"])


def test_a_list_of_items_is_a_catalog_only_where_the_caller_says_so():
    ratings = small().with_items({"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"})
    rated = ratings.item_ids[np.unique(ratings.indices)].tolist()  # a look at the data
    assert not ratings.with_items(rated).catalog
    assert not ratings.filter(items=rated).catalog
    assert ratings.with_items(rated, public=True).catalog
    assert ratings.filter(items=rated, public=True).catalog
    assert not ratings.with_items(dict.fromkeys(rated, ""), public=False).catalog
    assert ratings.with_items(ratings.item_ids).catalog  # its own catalog again, unchanged


def test_filtering_by_exact_item_counts_is_recorded():
    ratings = small().with_items({"a": "A", "b": "B", "c": "C", "d": "D"})
    assert ratings.filtered == ""
    own = ratings.filter(min_user_ratings=2)
    assert (own.filtered, own.catalog) == ("", True)
    counted = ratings.filter(min_item_ratings=2)
    assert counted.filtered.startswith("which items have at least 2 ratings, by exact counts")
    for later in (
        counted.binarize(1),
        counted.select_users([1]),
        counted.with_items({"a": "A", "b": "B"}),
    ):
        assert later.filtered == counted.filtered
    assert pickle.loads(pickle.dumps(counted)).filtered == counted.filtered
    both = counted.filter(min_item_ratings=3, min_user_ratings=1)
    assert both.filtered.startswith(counted.filtered)
    assert "at least 3 ratings, among users with at least 1" in both.filtered


def test_binarize():
    liked = small().binarize(3)
    assert triples(liked) == [(2, "b", 1, 21), (3, "a", 1, 30), (3, "b", 1, 31)]
    assert (liked.n_users, liked.n_items) == (3, 4)


@pytest.mark.real_data
def test_movielens_1m(shared_data):
    ratings = Ratings.read(
        shared_data / "ml-1m" / "ratings.parquet", items=shared_data / "ml-1m" / "items.parquet"
    )
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (6040, 3883, 1_000_209)
    assert ratings.filter(min_item_ratings=1).n_items == 3706
    assert ratings.titles[ratings.item_index([1])[0]] == "Toy Story (1995)"
    assert ratings.merged == 0
    assert np.diff(ratings.indptr).min() == 20
    assert_inner_form(ratings)


@pytest.mark.real_data
def test_sweetrs_has_fifty_repeated_pairs(shared_data):
    ratings = Ratings.read(
        shared_data / "sweetrs" / "ratings.parquet", items=shared_data / "sweetrs" / "items.parquet"
    )
    assert (ratings.n_users, ratings.n_items, ratings.merged) == (1476, 77, 50)
    assert ratings.n_ratings == 44_543 - 50
    assert ratings.filter(min_item_ratings=1).n_items == 77
    # "never tried" is a rating of 0 until somebody filters it
    assert (ratings.values == 0).sum() > 6000


@pytest.mark.parametrize("threshold", ["4", float("nan"), None, True])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(ConfigError, match=r"threshold is .*must be a number"):
        Ratings.from_arrays([1], [1]).binarize(threshold)
