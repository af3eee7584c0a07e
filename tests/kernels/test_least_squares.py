"""Compiled least squares against the numpy twins, in both element types, on the vector and the
portable path.
"""

import numpy as np
import pytest

from discreet.errors import ConfigError
from discreet.kernels import reference, second_moment, simd, tall_product
from discreet.kernels.cholesky import pad_rank, solve_spd
from discreet.kernels.gather import PACK, sum_rows
from discreet.kernels.integer_sums import pack_grams
from discreet.kernels.least_squares import solve_rows, solve_rows_constant

RANKS = [1, 3, 5, 8, 16, 20, 32, 40, 77, 128]


@pytest.fixture(params=["vector", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setenv("DISCREET_KERNELS", "plain")
    else:
        monkeypatch.delenv("DISCREET_KERNELS", raising=False)
        if simd.VECTOR_BYTES == 0:
            pytest.skip("this processor has no vector path")
    return request.param


def sparse_rows(rng, n, m, dtype):
    """Rows of very different length: empty, one entry, more than two packed buffers."""
    counts = rng.integers(0, 60, n)
    counts[:4] = [0, 1, m, PACK]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([np.sort(rng.choice(m, c, replace=False)) for c in counts]).astype(
        np.int32
    )
    return indptr, indices, rng.normal(size=len(indices)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("r", RANKS)
def test_rows_equal_their_numpy_twins(path, dtype, weighted, r):
    rng = np.random.default_rng(r)
    n, m = 37, 2 * PACK + 20
    indptr, indices, values = sparse_rows(rng, n, m, dtype)
    Y = rng.normal(size=(m, r)).astype(dtype)
    weights = rng.random(len(indices)).astype(dtype) if weighted else None
    ridge, shared = rng.random(n) + 0.5, Y.T @ Y * 0.01
    exact = [x.astype(np.float64) for x in (values, Y)]
    tolerance = 2e-4 if dtype == np.float32 else 1e-10

    root = np.sqrt(weights) if weighted else np.ones_like(values)
    A, b = pack_grams(indptr, indices, root, Y), sum_rows(indptr, indices, values, Y)
    A_twin, b_twin = (
        reference.gram_rows(indptr, indices, *exact, weights)[0],
        reference.sum_rows(indptr, indices, *exact),
    )
    A_twin = A_twin[:, *np.triu_indices(r)]
    assert A.dtype == b.dtype == dtype
    np.testing.assert_allclose(A, A_twin, atol=tolerance * np.abs(A_twin).max())
    np.testing.assert_allclose(b, b_twin, atol=tolerance * np.abs(b_twin).max())

    for extra in (None, shared):
        x = solve_rows(indptr, indices, values, Y, ridge, extra, weights)
        twin = reference.solve_rows(indptr, indices, *exact, ridge, extra, weights)
        assert x.dtype == dtype
        assert x.shape == (n, r)
        np.testing.assert_allclose(x, twin, atol=tolerance * max(1, np.abs(twin).max()))
        assert not x[0].any(), "a row without entries has the zero solution"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("r", [1, 8, 20, 128])
def test_a_constant_coordinate_and_offsets_equal_one_column_more(path, dtype, r):
    rng = np.random.default_rng(r)
    n, m, c = 37, 2 * PACK + 20, 1.7
    indptr, indices, values = sparse_rows(rng, n, m, dtype)
    Y, offset = rng.normal(size=(m, r)).astype(dtype), rng.normal(size=m).astype(dtype)
    ridge, shared = rng.random(n) + 0.5, Y.T @ Y * 0.01
    wide = np.column_stack([Y, np.full(m, c)]).astype(np.float64)
    tolerance = 2e-4 if dtype == np.float32 else 1e-10
    for given in (values, None):
        target = (1.0 if given is None else values.astype(np.float64)) - offset[indices]
        for w in (None, rng.random(len(indices)).astype(dtype)):
            x, x0 = solve_rows_constant(indptr, indices, given, Y, ridge, c, shared, w, offset)
            twin = reference.solve_rows(
                indptr, indices, target, wide, ridge, np.pad(shared, (0, 1)), w
            )
            assert x.dtype == x0.dtype == dtype
            np.testing.assert_allclose(
                np.column_stack([x, x0]), twin, atol=tolerance * np.abs(twin).max()
            )
            y = solve_rows(indptr, indices, given, Y, ridge, shared, w, offset)
            twin = reference.solve_rows(indptr, indices, target, wide[:, :-1], ridge, shared, w)
            np.testing.assert_allclose(y, twin, atol=tolerance * np.abs(twin).max())


def test_a_constant_coordinate_without_entries_or_ridge_is_zero(path):
    none, Y = np.zeros(0, np.int32), np.ones((4, 3), np.float32)
    x, x0 = solve_rows_constant(
        np.zeros(6, np.int64), none, none.astype(np.float32), Y, np.zeros(5), 2.0
    )
    assert not x.any()
    assert not x0.any()


@pytest.mark.parametrize("rows", [0, 1, 15, 1000])
def test_products_of_tall_matrices(rows):
    rng = np.random.default_rng(rows)
    Y, M = rng.normal(size=(rows, 5)), rng.normal(size=(5, 3))
    np.testing.assert_allclose(second_moment(Y), Y.T @ Y, atol=1e-11)
    np.testing.assert_allclose(tall_product(Y, M), Y @ M, atol=1e-12)


def test_a_block_of_rows_gives_the_same_sums_as_all_rows(path):
    rng = np.random.default_rng(0)
    indptr, indices, values = sparse_rows(rng, 40, 300, np.float64)
    Y = rng.normal(size=(300, 8))
    A, b = (f(indptr, indices, values, Y) for f in (pack_grams, sum_rows))
    A_part, b_part = (f(indptr[10:31], indices, values, Y) for f in (pack_grams, sum_rows))
    assert np.array_equal(A[10:30], A_part)
    assert np.array_equal(b[10:30], b_part)


def test_the_number_of_threads_does_not_change_a_bit(path):
    from discreet.kernels import set_threads

    rng = np.random.default_rng(1)
    indptr, indices, values = sparse_rows(rng, 200, 300, np.float32)
    Y = rng.normal(size=(300, 24)).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        set_threads(threads)
        results.append(solve_rows(indptr, indices, values, Y, np.ones(200)))
    set_threads(None)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_no_rows_no_entries(path):
    Y = np.ones((4, 3), np.float32)
    none = np.zeros(0, np.int32)
    assert solve_rows(
        np.zeros(1, np.int64), none, none.astype(np.float32), Y, np.ones(0)
    ).shape == (0, 3)
    assert pack_grams(np.zeros(1, np.int64), none, none.astype(np.float32), Y).shape == (0, 6)
    assert not solve_rows(
        np.zeros(6, np.int64), none, none.astype(np.float32), Y, np.zeros(5)
    ).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("r", RANKS)
def test_cholesky_solves_and_says_which_are_definite(path, dtype, r):
    rng = np.random.default_rng(r)
    n = 29
    X = rng.normal(size=(n, r + 5, r))
    A = (np.swapaxes(X, 1, 2) @ X + np.eye(r)).astype(dtype)
    indefinite = np.arange(n) % 3 == 1
    A[indefinite, r - 1, r - 1] = -1.0
    b = rng.normal(size=(n, r)).astype(dtype)
    kept = A.copy()
    x, definite = solve_spd(A, b)
    assert np.array_equal(definite, ~indefinite)
    assert np.array_equal(A, kept), "the input is left as it was"
    twin = reference.solve_spd(A.astype(np.float64), b.astype(np.float64))
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(
        x[definite], twin[definite], atol=tolerance * np.abs(twin[definite]).max()
    )


def test_ranks_are_padded_to_whole_vectors():
    step = max(4, simd.VECTOR_BYTES // 4)
    assert pad_rank(1, 4) == step
    assert pad_rank(step, 4) == step
    assert pad_rank(step + 1, 4) == 2 * step


def test_unknown_kernels_are_refused_by_the_library_too(monkeypatch):
    monkeypatch.setenv("DISCREET_KERNELS", "foo")
    with pytest.raises(ConfigError, match="DISCREET_KERNELS is 'foo', but must be 'vector'"):
        simd.enabled()
    monkeypatch.setenv("DISCREET_KERNELS", "vector")
    assert simd.enabled() == (simd.VECTOR_BYTES > 0)
