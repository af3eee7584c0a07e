"""Negative parts by batched tridiagonal eigenvectors, against numpy's decomposition."""

import numpy as np
import pytest

from discreet.kernels import reference, simd
from discreet.kernels.eigen import add_negative_parts
from discreet.kernels.psd import project_psd

pytestmark = pytest.mark.skipif(not simd.enabled(), reason="this processor runs the plain kernels")


def symmetric(rng, n, r, rank, noise=1.0):
    U, G = rng.normal(size=(n, rank, r)), noise * rng.normal(size=(n, r, r))
    A = np.swapaxes(U, 1, 2) @ U / 2 + G
    return A + np.swapaxes(A, 1, 2)


def close(found, A, tolerance):
    scale = np.abs(A).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(
        found / scale, reference.project_psd(A.astype(float)) / scale, atol=tolerance
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 5e-6), (np.float64, 1e-8)])
@pytest.mark.parametrize("r", [3, 4, 7, 8, 9, 17, 33, 64, 127])
@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_random_matrices(dtype, tolerance, r, share):
    A = symmetric(np.random.default_rng(r), 19, r, int(share * r)).astype(dtype)
    B = A.copy()
    left = add_negative_parts(B, np.arange(19))
    assert len(left) <= 1
    B = np.triu(B) + np.swapaxes(np.triu(B, 1), 1, 2)
    close(np.delete(B, left, 0), np.delete(A, left, 0), tolerance)


def test_only_the_matrices_named_are_touched():
    A = symmetric(np.random.default_rng(1), 30, 12, 3)
    B, which = A.copy(), np.array([3, 7, 8, 29])
    assert len(add_negative_parts(B, which)) == 0
    others = np.setdiff1d(np.arange(30), which)
    assert np.array_equal(B[others], A[others])
    close(np.triu(B[which]) + np.swapaxes(np.triu(B[which], 1), 1, 2), A[which], 1e-8)


def special(r):
    rng = np.random.default_rng(r)
    Q = np.linalg.qr(rng.normal(size=(r, r)))[0]
    twins = np.repeat(rng.normal(size=(r + 1) // 2), 2)[:r]  # every eigenvalue twice
    close_by = np.linspace(-1, 1, r) // 0.25 + 1e-9 * np.arange(r)  # in tight clusters
    blocks = np.zeros((r, r))
    blocks[: r // 2, : r // 2] = 1 - np.eye(r // 2)
    blocks[r // 2 :, r // 2 :] = -1
    return {
        "nothing": np.zeros((r, r)),
        "minus one": -np.eye(r),
        "one": np.eye(r),
        "diagonal": np.diag(rng.normal(size=r)),
        "twins": (Q * twins) @ Q.T,
        "clusters": (Q * close_by) @ Q.T,
        "blocks": blocks,
        "rank one": np.outer(Q[0], Q[0]),
        "negative": -np.outer(Q[0], Q[0]),
        "large": 1e15 * (Q * twins) @ Q.T,
        "small": 1e-12 * (Q * close_by) @ Q.T,
        "chain": np.eye(r, k=1) + np.eye(r, k=-1),
        "graded": (Q * (-10.0) ** -np.arange(r)) @ Q.T,
    }


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-8)])
@pytest.mark.parametrize("r", [3, 8, 30])
@pytest.mark.parametrize("name", list(special(3)))
def test_special_matrices(dtype, tolerance, r, name):
    A = special(r)[name].astype(dtype)[None]
    A = (A + np.swapaxes(A, 1, 2)) / 2
    B = A.copy()
    project_psd(B)
    if name == "nothing":
        assert not B.any()
    else:
        close(B, A, tolerance)


def test_what_is_not_finite_is_left_to_the_caller():
    A = symmetric(np.random.default_rng(0), 2, 5, 2)
    A[1, 2, 2] = np.nan
    assert add_negative_parts(A, np.arange(2)).tolist() == [1]
