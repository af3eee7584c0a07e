"""The k best items against a full sort."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.kernels.topk import ITEMS, top_k, top_k_numpy


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
    items_twin, scores_twin = top_k_numpy(U, V, bias, k, seen)
    np.testing.assert_allclose(scores, scores_twin, rtol=1e-4, atol=1e-5)
    if ties:
        assert np.array_equal(items, items_twin)


def test_blocks_of_items_join_seamlessly():
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=(2 * ITEMS + 7, 4)).astype(np.float32)
    seen = np.array([0, 2, 2, 3]), np.array([0, ITEMS, 2 * ITEMS + 6], np.int32)
    items, _ = top_k(U, V, np.zeros(len(V)), 50, seen)
    assert np.array_equal(items, top_k_numpy(U, V, np.zeros(len(V), np.float32), 50, seen)[0])


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
