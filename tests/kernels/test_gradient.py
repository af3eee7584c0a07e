"""Residuals and own gradients equal their numpy twin, and a row does not depend on the others."""

import numpy as np
import pytest

from discreet.kernels import reference, set_threads
from discreet.kernels.gradient import (
    residual_rows,
    share_rows,
    sum_columns,
    turn_rows,
)


def problem(r, dtype, n=60, m=25):
    rng = np.random.default_rng(r)
    counts = rng.integers(0, 12, n)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([np.sort(rng.choice(m, c, replace=False)) for c in counts]).astype(
        np.int32
    )
    normal = lambda *shape: rng.normal(size=shape).astype(dtype)  # noqa: E731
    return [
        indptr,
        indices,
        normal(indptr[-1]),
        normal(n, r),
        normal(m, r),
        1.3,
        normal(m),
        normal(n),
    ]


@pytest.mark.parametrize(("r", "dtype"), [(0, "f4"), (1, "f4"), (5, "f8"), (16, "f4"), (67, "f8")])
@pytest.mark.parametrize("weighted", [False, True])
def test_residuals_equal_their_twin(r, dtype, weighted):
    given = problem(r, dtype)
    given[2][3] = np.nan
    w = np.random.default_rng(9).random(len(given[1])).astype(dtype) if weighted else None
    x, g = residual_rows(*given, w)
    X, G = reference.residual_rows(*given, w)
    tolerance = 2e-5 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(x, X, atol=tolerance)
    np.testing.assert_allclose(g, G, atol=tolerance * 20)
    assert x.dtype == g.dtype == np.dtype(dtype)
    row = np.repeat(np.arange(60), np.diff(given[0]))
    assert np.sqrt(np.bincount(row, x.astype(float) ** 2)).max() <= 1.3 * (1 + 1e-6)
    assert residual_rows(*given, w, own=False)[1].shape == (0, r)
    assert np.array_equal(residual_rows(*given, w, own=False)[0], x)


def test_rows_are_turned_as_the_expression_says_and_each_by_itself():
    indptr, indices, y, U, V, _, b, o = problem(7, "f4")
    R = np.random.default_rng(3).normal(size=(7, 7))
    x, g = residual_rows(indptr, indices, y, U, V, 0.5, b, o)
    turned = turn_rows(U, g, R, 0.1, 0.2)
    np.testing.assert_allclose(turned, U - 0.1 * g - 0.2 * U @ R, atol=1e-5)
    try:
        for threads in (1, 3):
            set_threads(threads)
            first = residual_rows(
                indptr[:11], indices[: indptr[10]], y[: indptr[10]], U[:10], V, 0.5, b, o[:10]
            )
            assert np.array_equal(first[0], x[: indptr[10]])
            assert np.array_equal(first[1], g[:10])
            assert np.array_equal(turn_rows(U[:10], g[:10], R, 0.1, 0.2), turned[:10])
    finally:
        set_threads(None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("r", [1, 7, 64])
def test_sums_of_columns_equal_their_twin_for_any_number_of_threads(r, dtype):
    rng = np.random.default_rng(r)
    n, m = 300, 40
    counts = rng.integers(0, 20, n)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([rng.choice(m - 1, k, replace=False) for k in counts]).astype(np.int32)
    c, U = rng.normal(size=len(indices)).astype(dtype), rng.normal(size=(n, r)).astype(dtype)
    twin = reference.sum_columns(indptr, indices, c.astype(float), U.astype(float), m)
    unit = 2.0**-10
    whole = np.zeros((m, r))
    np.add.at(
        whole,
        indices,
        np.trunc(c[:, None].astype(float) / unit * U[np.repeat(np.arange(n), counts)]),
    )
    found = []
    try:
        for threads in (1, 2, 5):
            set_threads(threads)
            found.append(sum_columns(indptr, indices, c, U, m))
            assert np.array_equal(sum_columns(indptr, indices, c, U, m, unit), whole)
    finally:
        set_threads(None)
    assert found[0].dtype == dtype
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], twin, atol=1e-4 if dtype == np.float32 else 1e-12)
    assert not found[0][-1].any(), "a column without entries"


def test_sums_of_columns_of_nobody():
    nothing = np.zeros(0, np.int32), np.zeros(0, np.float32)
    assert not sum_columns(np.zeros(1, np.int64), *nothing, np.zeros((0, 3), np.float32), 4).any()


def test_shares_equal_their_twin_to_the_last_bit():
    indptr, indices = problem(1, "f8")[:2]
    q = np.random.default_rng(3).random(25)
    q[4] = 0
    assert np.array_equal(
        share_rows(indptr, indices, q, 0.99), reference.share_rows(indptr, indices, q, 0.99)
    )
