"""Short rows in the dual: the same solution, to the same bits whoever shares the group."""

import numpy as np
import pytest

from discreet.kernels import reference, set_threads, simd, solve_rows
from discreet.kernels.dual import dual_size, prefers_dual
from discreet.kernels.least_squares import DUAL_RANK


@pytest.fixture(autouse=True)
def _vector_path():
    if simd.VECTOR_BYTES == 0:
        pytest.skip("this processor has no vector path")


def problem(seed, n=90, m=200, r=DUAL_RANK + 5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 70, n)
    counts[:3] = [0, 1, m]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([np.sort(rng.choice(m, c, replace=False)) for c in counts]).astype(
        np.int32
    )
    Y = rng.normal(size=(m, r)).astype(dtype)
    return indptr, indices, rng.normal(size=len(indices)).astype(dtype), Y, rng.random(n) + 0.1


def test_the_formula_is_the_normal_equations():
    indptr, indices, values, Y, ridge = problem(0)
    S, w = Y.T @ Y * 0.1, np.random.default_rng(1).random(len(values))
    x = reference.solve_rows(indptr, indices, values, Y, ridge, S, w)
    for i in (1, 5, 9):
        row = slice(indptr[i], indptr[i + 1])
        one = reference.solve_dual(values[row], Y[indices[row]], ridge[i], S, w[row])
        np.testing.assert_allclose(one, x[i], atol=1e-10)


@pytest.mark.parametrize("r", [DUAL_RANK, DUAL_RANK + 5, 128])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_every_length(r, dtype):
    indptr, indices, values, Y, ridge = problem(r, r=r, dtype=dtype)
    few = prefers_dual(np.diff(indptr), r, simd.VECTOR_BYTES // Y.itemsize)
    assert few.any()
    assert not few.all()
    for S in (None, Y.T @ Y * 0.05):
        for w in (None, np.random.default_rng(0).random(len(values)).astype(dtype)):
            x = solve_rows(indptr, indices, values, Y, ridge, S, w)
            twin = reference.solve_rows(
                indptr, indices, values.astype(float), Y.astype(float), ridge, S, w
            )
            np.testing.assert_allclose(
                x, twin, atol=(3e-4 if dtype == np.float32 else 1e-10) * np.abs(twin).max()
            )


def test_a_row_is_solved_to_the_same_bits_whoever_else_is_there():
    indptr, indices, values, Y, ridge = problem(7, dtype=np.float32)
    S = Y.T @ Y * 0.05
    x = solve_rows(indptr, indices, values, Y, ridge, S)
    gone = 40
    rest = np.delete(np.arange(len(ridge)), gone)
    keep = np.r_[0 : indptr[gone], indptr[gone + 1] : indptr[-1]]
    fewer = np.concatenate([[0], np.cumsum(np.diff(indptr)[rest])])
    try:
        for threads in (1, 2, 5):
            set_threads(threads)
            y = solve_rows(fewer, indices[keep], values[keep], Y, ridge[rest], S)
            assert np.array_equal(y, x[rest])
    finally:
        set_threads(None)


def test_without_ridge_the_normal_equations_serve():
    indptr, indices, values, Y, _ = problem(3)
    assert np.isfinite(solve_rows(indptr, indices, values, Y, np.zeros(len(indptr) - 1))).all()


def test_sizes_are_whole_vectors():
    assert dual_size(np.array([0, 1, 8, 9]), 8).tolist() == [8, 8, 8, 16]
