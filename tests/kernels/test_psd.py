"""Projection onto positive semi-definite matrices."""

import numpy as np
import pytest

from discreet.kernels import reference
from discreet.kernels.psd import project_psd, solve_psd


def noisy_grams(rng, n, r, noise, dtype):
    U = rng.normal(size=(n, 2 * r, r)) * rng.random((n, 1, 1))
    G = rng.normal(size=(n, r, r)) * noise
    return (np.swapaxes(U, 1, 2) @ U + G + np.swapaxes(G, 1, 2)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("r", [1, 5, 32, 50])
@pytest.mark.parametrize("with_shared", [False, True])
def test_solve_equals_its_twin_for_definite_and_indefinite(dtype, r, with_shared):
    rng = np.random.default_rng(r)
    A = noisy_grams(rng, 60, r, 1.0, dtype)
    negative = np.linalg.eigvalsh(A.astype(float))[:, 0] < 0
    assert negative.any()
    b, ridge = rng.normal(size=(60, r)).astype(dtype), rng.random(60) + 0.5
    shared = np.eye(r) * 0.3 + 0.1 if with_shared else None
    twin = reference.solve_psd(A.astype(float), b.astype(float), ridge, shared)
    # the upper alone
    x = solve_psd(np.triu(A) + np.tril(np.full((r, r), np.nan), -1).astype(dtype), b, ridge, shared)
    np.testing.assert_allclose(
        x, twin, atol=(5e-4 if dtype == np.float32 else 1e-9) * np.abs(twin).max()
    )


@pytest.mark.parametrize("noise", [2.0, 20.0])  # some and nearly all are indefinite
def test_projection_is_idempotent_and_leaves_definite_matrices_alone(noise):
    rng = np.random.default_rng(0)
    A = noisy_grams(rng, 200, 12, noise, np.float64)
    A[-1] = 50 * np.eye(12)
    before = A.copy()
    values = np.linalg.eigvalsh(A)
    assert (values[:, 0] < 0).mean() > (0.9 if noise > 10 else 0.05)
    project_psd(A)
    good = values[:, 0] > 0
    assert np.array_equal(A[good], before[good])
    np.testing.assert_allclose(A, reference.project_psd(before), atol=1e-9)
    assert np.array_equal(A, np.swapaxes(A, 1, 2))
    assert np.linalg.eigvalsh(A)[:, 0].min() > -1e-10 * values.max()


def test_user_effects_comes_after_the_projection():
    A, b = np.array([[[-5.0]]]), np.array([[1.0]])
    assert solve_psd(A.copy(), b, np.array([2.0]))[0, 0] == pytest.approx(1 / 2)
    assert solve_psd(A.copy(), b, np.array([2.0]), project=False)[0, 0] == pytest.approx(1 / -3)


def test_a_singular_system_without_ridge_gets_the_least_norm_solution():
    A = np.array([[[1.0, 0.0], [0.0, 0.0]]])
    x = solve_psd(A, np.array([[2.0, 3.0]]), np.zeros(1))
    np.testing.assert_allclose(x, [[2.0, 0.0]])
