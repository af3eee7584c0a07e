"""The k best items against a full sort."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.kernels import reference, simd, topk
from discreet.kernels.topk import ITEMS, Panels, top_k


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 20),
    m=st.integers(1, 150),
    k=st.integers(1, 30),
    seed=st.integers(0, 999),
    ties=st.booleans(),
    exclude=st.booleans(),
)
def test_equals_a_full_sort(n, m, k, seed, ties, exclude):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return (rng.integers(-2, 3, shape) if ties else rng.normal(size=shape)).astype(np.float32)

    U, V, bias = draw(n, 3), draw(m, 3), draw(m)
    bias[rng.random(m) < 0.1] = -np.inf
    seen = None
    if exclude:
        rows = [np.sort(rng.choice(m, rng.integers(0, m + 1), replace=False)) for _ in range(n)]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        seen = indptr, np.concatenate([*rows, np.empty(0)]).astype(np.int32)
    items, scores = top_k(U, V, bias, k, seen)
    items_twin, scores_twin = reference.top_k(U, V, bias, k, seen)
    np.testing.assert_allclose(scores, scores_twin, rtol=1e-4, atol=1e-5)
    if ties:
        assert np.array_equal(items, items_twin)


def test_blocks_of_items_join_seamlessly():
    rng = np.random.default_rng(0)
    U, V = (
        rng.normal(size=(3, 4)).astype(np.float32),
        rng.normal(size=(2 * ITEMS + 7, 4)).astype(np.float32),
    )
    seen = np.array([0, 2, 2, 3]), np.array([0, ITEMS, 2 * ITEMS + 6], np.int32)
    items, _ = top_k(U, V, np.zeros(len(V)), 50, seen)
    assert np.array_equal(items, reference.top_k(U, V, np.zeros(len(V), np.float32), 50, seen)[0])


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 150),
    m=st.integers(1, 1500),
    k=st.integers(1, 30),
    seed=st.integers(0, 999),
    kind=st.sampled_from(["ties", "tail", "equal", "wild"]),
)
def test_panels_that_are_left_out_change_no_bit(n, m, k, seed, kind):
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(n, 5)).astype(np.float32)
    V = rng.normal(size=(m, 5)).astype(np.float32)
    bias = (0.1 * rng.normal(size=m)).astype(np.float32)
    if kind == "tail":
        V *= rng.permutation(np.arange(1, m + 1) ** -0.7).astype(np.float32)[:, None]
    elif kind == "wild":
        V[rng.random(m) < 0.02] = np.inf
        V[rng.random(m) < 0.02] = np.nan
        U[rng.random(n) < 0.02] = np.inf
    elif kind == "ties":
        U, V, bias = np.rint(U), np.rint(V), np.rint(bias)
    else:
        V[:] = V[0]
    bias[rng.random(m) < 0.1] = -np.inf
    rows = [np.sort(rng.choice(m, min(m, rng.integers(0, 40)), replace=False)) for _ in range(n)]
    seen = (
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        np.concatenate(rows).astype(np.int32),
    )
    found = []
    for find in (topk._find, lambda U, V, *rest: topk._find_sorted(U, V.panels_by_size, *rest)):
        items, scores = np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32)
        find(U, Panels(V), bias, seen, items, scores)
        topk._sort_rows(items, scores)
        found.append((items, scores.view(np.int32)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.skipif(not simd.enabled(), reason="plain kernels score all items")
def test_a_long_tail_is_left_out_and_equal_items_are_not():
    rng = np.random.default_rng(0)
    U = rng.random((topk.MANY_USERS, 6), np.float32)
    V = rng.random((4 * ITEMS, 6), np.float32)
    bias = np.zeros(len(V), np.float32)
    whole = top_k(U, V, bias, 10)
    even = Panels(V)
    assert not topk._is_tail_long(U, even, bias, 10)
    assert "panels_by_size" not in even.__dict__
    V *= rng.permutation(np.arange(1, len(V) + 1) ** -0.7).astype(np.float32)[:, None]
    tail = Panels(V)
    assert topk._is_tail_long(U, tail, bias, 10)
    assert not topk._is_tail_long(U[:9], tail, bias, 10)
    found = top_k(U, tail, bias, 10)
    alone = [top_k(U[i : i + 1], V, bias, 10) for i in range(0, len(U), 50)]
    np.testing.assert_array_equal(found[0][::50], np.vstack([items for items, _ in alone]))
    np.testing.assert_array_equal(found[1][::50], np.vstack([scores for _, scores in alone]))
    assert (whole[0] != found[0]).any()


def test_many_users_of_a_model_without_factors_get_the_same_list():
    """A long catalog, of popularity alone: there is nothing to leave panels out by."""
    bias = np.random.default_rng(0).random(2 * ITEMS + 5).astype(np.float32)
    U, V = (np.zeros((n, 0), np.float32) for n in (topk.MANY_USERS, len(bias)))
    items, scores = top_k(U, V, bias, 3)
    best = np.argsort(-bias, kind="stable")[:3]
    assert (items == best).all()
    assert (scores == bias[best]).all()


def test_nan_is_never_recommended():
    V = np.array([[np.nan], [1.0], [2.0]], np.float32)
    items, scores = top_k(np.ones((1, 1), np.float32), V, np.zeros(3), 3)
    assert items.tolist() == [[2, 1, -1]]
    assert scores[0, 2] == -np.inf


@pytest.mark.parametrize("k", [1, 20, 400])
def test_padding_is_minus_one_and_minus_infinity(k):
    items, scores = top_k(np.ones((2, 1)), np.ones((5, 1)), np.arange(5.0), k)
    assert items[0, : min(k, 5)].tolist() == [4, 3, 2, 1, 0][:k]
    assert (items[:, 5:] == -1).all()
    assert (scores[:, 5:] == -np.inf).all()


RANKS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33, 48, 64, 65, 96, 100, 128, 129, 200)


@pytest.mark.parametrize("kernels", ["vector", "plain"])
@pytest.mark.parametrize("r", RANKS)
def test_no_bit_of_a_list_depends_on_the_other_users(kernels, r, monkeypatch):
    monkeypatch.setenv("DISCREET_KERNELS", kernels)
    rng = np.random.default_rng(r)
    n, m = 300, 701
    U, V = rng.normal(size=(n, r)).astype(np.float32), rng.normal(size=(m, r)).astype(np.float32)
    V[400:450] = V[:50]  # ties
    bias = rng.normal(size=m).astype(np.float32)
    seen = np.sort([rng.choice(m, 9, replace=False) for _ in range(n)], axis=1).astype(np.int32)

    def lists(rows):
        return top_k(U[rows], V, bias, 40, (9 * np.arange(len(rows) + 1), seen[rows].ravel()))

    items, scores = lists(np.arange(n))
    batches = [
        [7],
        [n - 1],
        range(n - 1),
        range(1, n),
        range(0, n, 7),
        range(100, 165),
        rng.permutation(n),
    ]
    for batch in batches:
        rows = np.array(batch)
        some_items, some_scores = lists(rows)
        assert np.array_equal(some_items, items[rows])
        assert np.array_equal(some_scores.view(np.int32), scores[rows].view(np.int32))


@pytest.mark.parametrize("kernels", ["vector", "plain"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_no_bit_depends_on_the_number_of_threads(kernels, threads, monkeypatch):
    monkeypatch.setenv("DISCREET_KERNELS", kernels)
    rng = np.random.default_rng(0)
    U, V = (
        rng.normal(size=(333, 20)).astype(np.float32),
        rng.normal(size=(500, 20)).astype(np.float32),
    )
    whole = top_k(U, V, np.zeros(500), 10)
    monkeypatch.setenv("DISCREET_THREADS", str(threads))
    assert all(map(np.array_equal, top_k(U, V, np.zeros(500), 10), whole))


@pytest.mark.parametrize(
    "kind", [np.int64, np.int32, bool, np.float16, np.complex64, ">f4", object]
)
def test_arrays_of_another_type_never_reach_compiled_code(kind):
    good = np.ones((4, 3), np.float32)
    for place in range(3):
        arrays = [good, good, good[:, 0]]
        arrays[place] = arrays[place].astype(kind)
        with pytest.raises(ConfigError, match="must be an array of float32 or float64"):
            top_k(*arrays, 2)


def test_shapes_and_indices_are_checked():
    U, V, bias = np.ones((4, 3), np.float32), np.ones((5, 3), np.float32), np.ones(5, np.float32)
    rows = np.arange(5)
    for arrays, message in [
        (
            (U[:, :2], V, bias),
            "vectors of users and of items must have the same length, not 2 and 3",
        ),
        ((U, V, bias[:4]), "items and biases must have the same length, not 5 and 4"),
        ((U[0], V, bias), r"U must have 2 dimensions, but its shape is \(3,\)"),
    ]:
        with pytest.raises(ConfigError, match=message):
            top_k(*arrays, 2)
    for seen, message in [
        ((rows[:4], np.zeros(4, np.int32)), "rows and vectors must have the same length"),
        ((rows, np.array([0, 1, 2, 5], np.int32)), "indices must be between 0 and 4"),
        ((rows, np.array([0, 1, -1, 2], np.int32)), "indices must be between 0 and 4"),
        ((rows, np.array([0, 1, 2**32, 2])), "indices must be between 0 and 4"),
        ((rows, np.zeros(4)), "must be one-dimensional arrays of integers"),
        ((rows[::-1], np.zeros(4, np.int32)), "indptr must be ascending"),
        ((rows + 1, np.zeros(4, np.int32)), "indptr must be ascending"),
        ((rows - 1, np.zeros(4, np.int32)), "indptr must be ascending"),
    ]:
        with pytest.raises(ConfigError, match=message):
            top_k(U, V, bias, 2, seen)
    turned = top_k(np.asfortranarray(U), V[::-1][::-1], bias[::-1][::-1], 2)
    assert np.array_equal(turned[0], top_k(U, V, bias, 2)[0])
