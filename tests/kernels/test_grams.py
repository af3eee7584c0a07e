"""Kernels that need a small matrix or a triangle per row: against numpy, and the same for any
number of threads.
"""

import numpy as np
import pytest

from discreet.kernels import reference, threads
from discreet.kernels.grams import add_pair_products, inverse_diagonals, symmetric_of


def rows(n, m, seed=0):
    rng = np.random.default_rng(seed)
    own = [np.sort(rng.choice(m, rng.integers(0, m + 1), replace=False)) for _ in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in own])]).astype(np.int64)
    indices = np.concatenate(own).astype(np.int32)
    return indptr, indices, rng.normal(size=len(indices)), rng


@pytest.mark.parametrize("m", [1, 2, 3, 9, 40])
def test_pairs_are_what_the_numpy_version_says(m):
    indptr, indices, x, _ = rows(60, m)
    expected = reference.sum_pair_products(indptr, indices, x, m)
    np.testing.assert_allclose(add_pair_products(indptr, indices, x, m), expected, atol=1e-12)
    np.testing.assert_allclose(
        add_pair_products(indptr, indices, x, m, 0.5), expected / 2, atol=1e-12
    )
    whole = add_pair_products(indptr, indices, x, m, unit=2.0**-20)
    assert np.array_equal(whole, np.trunc(whole))
    np.testing.assert_allclose(whole * 2.0**-20, expected, atol=60 * 2.0**-20)
    assert np.array_equal(symmetric_of(expected, m)[np.triu_indices(m, 1)], expected)
    assert np.array_equal(symmetric_of(expected, m), symmetric_of(expected, m).T)


def test_every_row_has_length_1_however_uneven_it_is():
    for x in (
        [1.0, 1e-9],
        [1.0, 1e-9, 1e-9],
        [1e-20, 1e-20],
        [1e12, -1e-12, 3.0],
        list(np.geomspace(1e-15, 1e15, 30)),
    ):
        indices = np.arange(len(x), dtype=np.int32)
        p = add_pair_products(np.array([0, len(x)]), indices, np.array(x), len(x))
        assert np.linalg.norm(p) == pytest.approx(1.0, abs=1e-12)
    assert not add_pair_products(
        np.array([0, 2]), np.arange(2, dtype=np.int32), np.array([0.0, 3.0]), 2
    ).any()


@pytest.mark.parametrize("r", [0, 1, 2, 5])
def test_diagonals_of_inverses(r):
    indptr, indices, _, rng = rows(40, 12)
    V = rng.normal(size=(12, r))
    expected = reference.inverse_diagonals(indptr, indices, V, 0.3, 2.0)
    np.testing.assert_allclose(inverse_diagonals(indptr, indices, V, 0.3, 2.0), expected, rtol=1e-9)


def test_threads_do_not_change_a_bit():
    indptr, indices, x, rng = rows(500, 30)
    V = rng.normal(size=(30, 2))
    found = []
    for many in (1, 3):
        threads.set_threads(many)
        try:
            found.append(
                (
                    add_pair_products(indptr, indices, x, 30),
                    inverse_diagonals(indptr, indices, V, 1.0, 3.0),
                )
            )
        finally:
            threads.set_threads(None)
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
