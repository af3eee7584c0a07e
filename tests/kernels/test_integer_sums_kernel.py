"""Exact sums: whole numbers, the same bits in any order."""

from itertools import pairwise

import numpy as np
import pytest

from discreet.kernels import reference, set_threads, simd
from discreet.kernels.integer_sums import LARGEST, exact_grams, exact_sums
from discreet.kernels.least_squares import PACK


@pytest.fixture(params=["vector", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setenv("DISCREET_KERNELS", "plain")
    else:
        monkeypatch.delenv("DISCREET_KERNELS", raising=False)
        assert simd.enabled() == (simd.VECTOR_BYTES > 0)


def problem(seed, n=31, m=2 * PACK + 9, r=7):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 50, n)
    counts[:3] = [0, 1, m]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([rng.choice(m, c, replace=False) for c in counts]).astype(np.int32)
    return indptr, indices, rng.normal(size=len(indices)) * 2.0**12, rng.normal(size=(m, r))


@pytest.mark.parametrize("r", [1, 4, 7, 16, 33])
def test_equal_their_numpy_twins_to_the_last_bit(path, r):
    arguments = problem(r, r=r)
    G, s = exact_grams(*arguments), exact_sums(*arguments)
    assert np.array_equal(G, reference.exact_grams(*arguments))
    assert np.array_equal(s, reference.exact_sums(*arguments))
    assert np.array_equal(G, np.round(G))
    assert np.abs(G).max() < LARGEST


def test_any_order_and_any_number_of_threads_give_the_same_bits(path):
    indptr, indices, c, Y = problem(0)
    expected = exact_grams(indptr, indices, c, Y), exact_sums(indptr, indices, c, Y)
    rng = np.random.default_rng(1)
    order = np.concatenate([a + rng.permutation(b - a) for a, b in pairwise(indptr)])
    try:
        for threads in (1, 3):
            set_threads(threads)
            assert np.array_equal(exact_grams(indptr, indices[order], c[order], Y), expected[0])
            assert np.array_equal(exact_sums(indptr, indices[order], c[order], Y), expected[1])
    finally:
        set_threads(None)


def test_rounding_is_towards_zero(path):
    indptr, indices = np.array([0, 2]), np.array([0, 1], np.int32)
    Y = np.array([[0.99, -0.99, 1.5], [1.01, -2.99, -1.5]])
    assert exact_sums(indptr, indices, np.ones(2), Y).tolist() == [[1.0, -2.0, 0.0]]
    assert exact_grams(indptr, indices, np.ones(2), Y)[0].tolist() == [
        [1, -2, -1],
        [-2, 4, 2],
        [-1, 2, 2],
    ]


def test_a_block_of_rows(path):
    indptr, indices, c, Y = problem(3)
    assert np.array_equal(
        exact_grams(indptr[5:12], indices, c, Y), exact_grams(indptr, indices, c, Y)[5:11]
    )
