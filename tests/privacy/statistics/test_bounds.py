"""Bounds: what they allow, and that users are cut to them."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DiscreetError, PrivacyError
from discreet.privacy.statistics import bounds as module
from discreet.privacy.statistics.bounds import LARGEST, SMALLEST, Bounds, check_rows, clip_rows
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose
from support.sealed_helpers import make


def test_what_follows_from_the_bounds():
    by_items = Bounds(items=9, rating=2.0, norm=3.0)
    assert by_items.through(100) == 9
    assert by_items.value == 2.0
    assert by_items.vector_l2 == 3.0
    assert by_items.vector_l1(16) == 12.0
    assert by_items.triangle_l1(16) == (12.0**2 + 3.0**2) / 2
    assert Bounds(items=9).through(4) == 4
    both = Bounds(items=9, norm=3.0, norm_l1=2.0)
    assert both.value == 1.0
    # an ℓ₂ norm is never above the ℓ₁ norm
    assert both.vector_l1(16) == both.vector_l2 == 2.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"items": 0},
        {"items": -1},
        {"items": 1.5},
        {"items": True},
        {"items": "3"},
        {"items": 1, "rating": -1.0},
        {"items": 1, "norm": 0.0},
        {"items": 1, "norm": 1e-40},
        {"items": 1, "norm": 1e20},
        {"items": 1, "norm_l1": math.nan},
        {"items": 1, "center": "mean"},
        {"items": 1, "center": math.inf},
        {"items": 1, "center": 1e39},
        {"items": 1, "prior_count": -1.0},
        {"items": 1, "prior_count": math.inf},
        {"items": 1, "prior_mean": math.nan},
    ],
)
def test_what_is_no_bound_is_refused(wrong):
    with pytest.raises(ConfigError):
        Bounds(**wrong)


def test_bounds_are_values_of_plain_numbers():
    given = Bounds(items=np.int64(3), rating=np.float32(1.0), center=np.float64(3.5))
    assert type(given.items) is int
    assert type(given.rating) is type(given.center) is float
    assert given == Bounds(items=3, rating=1.0, center=3.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        given.items = 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(deadline=None, max_examples=150)
@given(
    data=st.data(),
    norm=st.sampled_from([SMALLEST, 0.3, LARGEST]),
    ratio=st.sampled_from([None, 0.4, 1.0, 1.4]),
)
def test_vectors_are_cut_to_both_norms_without_tolerance(dtype, data, norm, ratio):
    width = np.dtype(dtype).itemsize * 8
    U = data.draw(
        arrays(
            dtype, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(width=width)
        )
    )
    bounds = Bounds(
        items=1,
        norm=norm,
        norm_l1=None if ratio is None else max(SMALLEST, min(LARGEST, ratio * norm)),
    )
    cut = clip_rows(U, bounds)
    assert cut.dtype == dtype
    assert cut.shape == U.shape
    exact = [[float(x) for x in row] for row in cut]
    assert all(math.sqrt(math.fsum((x / norm) ** 2 for x in row)) <= 1 for row in exact)
    assert all(math.fsum(map(abs, row)) <= bounds.vector_l1(U.shape[1]) for row in exact)
    # what was within its bounds already is only shaved, and directions do not change
    for before, after in zip(U.astype(float), cut.astype(float), strict=True):
        if np.isfinite(before).all() and np.abs(before).max() <= min(
            norm, bounds.vector_l1(U.shape[1])
        ) / len(before):
            assert after == pytest.approx(before, rel=2e-6, abs=1e-44)


def test_a_vector_that_is_not_finite_becomes_zero():
    U = np.array([[1.0, np.nan], [np.inf, 0.0], [3.0, 4.0]], np.float32)
    assert clip_rows(U, Bounds(items=1)).tolist()[:2] == [[0.0, 0.0], [0.0, 0.0]]
    assert np.linalg.norm(clip_rows(U, Bounds(items=1))[2]) == pytest.approx(1.0, rel=1e-5)


def rows_of(indptr, indices, user_ids, n_items=4):
    return Ratings.from_indices(
        indptr, indices, np.ones(len(indices)), user_ids, np.arange(n_items)
    )


@pytest.mark.parametrize(
    ("indptr", "indices", "ids"),
    [
        ([0, 2], [1, 1], np.array([0])),  # a pair twice
        ([0, 3], [0, 2, 1], np.array([0])),  # unordered, so that a pair could hide
        ([0, 1, 2], [0, 1], np.array([5, 5])),  # a user twice
        ([0, 1, 2], [0, 1], np.array(["x", "x"], object)),
        ([0, 1, 2], [0, 1], np.array([1, True], object)),  # equal in Python, so the same user
        ([0, 1, 2], [0, 1], np.array([1, 1.0], object)),
        ([0, 1, 1, 3], [0, 3, 3], np.array([0, 1, 2])),  # after somebody without ratings
        ([0, 3, 1, 4], [0, 1, 2, 3], np.array([0, 1, 2])),  # rows that overlap
        ([1, 3], [0, 1, 2], np.array([0])),  # an entry of nobody
        ([0, 2], [0, 4], np.array([0])),  # no such item
        ([0, 2], [-1, 0], np.array([0])),
    ],
)
def test_repeated_rows_and_pairs_are_refused_at_the_seal(indptr, indices, ids):
    with pytest.raises(PrivacyError) as caught:
        seal(rows_of(indptr, indices, ids), Bounds(items=2))
    assert not any(character.isdigit() for character in str(caught.value))


@pytest.mark.parametrize(
    ("indptr", "indices", "ids"),
    [
        ([0], [], np.array([], np.int64)),
        ([0, 0, 0], [], np.array([1, 2])),
        ([0, 2, 2, 3], [2, 3, 0], np.array([3, 1, 2])),
        ([0, 0, 2, 4], [0, 3, 0, 3], np.array(["1", 1, "x"], object)),
    ],
)
def test_rows_in_order_are_sealed(indptr, indices, ids):
    seal(rows_of(indptr, indices, ids), Bounds(items=2)).apply(Choose())


def test_reading_merges_what_sealing_would_refuse():
    ratings = Ratings.from_arrays([1, 1, 1, 2], ["a", "a", "b", "a"], [5, 1, 2, 3])
    assert ratings.merged == 1
    check_rows(ratings)


@pytest.mark.parametrize(
    "strange",
    [
        object(),
        frozenset({"a", "b"}),
        float("nan"),
        None,
        complex(1, 2),
        (1, object()),
        [1],
        type("Id", (), {})(),
    ],
)
def test_ids_without_a_fixed_written_form_are_refused(strange):
    """Where an object lies in memory, or how a set is ordered, may depend on who else is there."""
    with pytest.raises(DiscreetError) as caught:
        seal(make([{0: 1.0}, {1: 1.0}], 2, ["a", strange]), Bounds(items=1))
    assert isinstance(caught.value, PrivacyError)
    assert repr(strange) not in str(caught.value) or strange is None


def test_more_users_than_rows_have_numbers_are_as_memory_that_ends(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 3)
    with pytest.raises(
        PrivacyError, match=r"^sealed ratings could not be computed \(MemoryError\)$"
    ):
        seal(make([{}] * 4, 2), Bounds(items=1))
    seal(make([{}] * 3, 2), Bounds(items=1))
