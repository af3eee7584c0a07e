"""Mixture weights of histories."""

import numpy as np

from discreet.kernels import mixture_weights, reference, set_threads


def histories(rng, n, m):
    counts = rng.integers(0, 6, n)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return indptr, rng.integers(0, m, counts.sum()).astype(np.int32), rng.random(counts.sum())


def test_compiled_weights_are_those_of_the_specification():
    rng = np.random.default_rng(0)
    for K in (1, 3, 4, 9):
        P = rng.random((20, K), np.float32) + np.float32(1e-3)
        prior = rng.dirichlet(np.ones(K))
        given = (*histories(rng, 30, 20), P, prior, 0.7, 6)
        found = mixture_weights(*given)
        np.testing.assert_allclose(found, reference.mixture_weights(*given), rtol=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_an_empty_history_has_the_prior_and_a_clear_one_its_community():
    P = np.array([[0.98, 0.01], [0.01, 0.98], [0.01, 0.01]], np.float32)
    prior = np.array([0.7, 0.3])
    indptr = np.array([0, 0, 3])
    theta = mixture_weights(indptr, np.array([1, 1, 1]), np.ones(3), P, prior, 0.1, 20)
    np.testing.assert_allclose(theta[0], prior)
    assert theta[1, 1] > 0.95
    # entries of weight 0 are as if they were not there
    weight = np.array([0.0, 0.0, 0.0])
    theta = mixture_weights(indptr, np.array([1, 1, 1]), weight, P, prior, 0.1, 20)
    np.testing.assert_allclose(theta[1], prior)


def test_no_bit_depends_on_threads_or_on_other_users():
    rng = np.random.default_rng(1)
    P = rng.random((50, 7), np.float32) + np.float32(1e-3)
    indptr, items, x = histories(rng, 40, 50)
    public = (P, np.full(7, 1 / 7), 0.3, 5)
    together = mixture_weights(indptr, items, x, *public)
    set_threads(1)
    try:
        np.testing.assert_array_equal(mixture_weights(indptr, items, x, *public), together)
    finally:
        set_threads(None)
    for i in range(40):
        own = slice(indptr[i], indptr[i + 1])
        alone = mixture_weights(np.array([0, own.stop - own.start]), items[own], x[own], *public)
        np.testing.assert_array_equal(alone[0], together[i])
