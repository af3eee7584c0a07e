"""Synthetic tasks: the sizes, scalings and noise that the papers state, and a truth that can be
asked.
"""

import math

import numpy as np
import pytest

from discreet.errors import ConfigError
from research.synthetic import dpals_task, dplmc_task, huber_task

TASKS = [
    lambda seed=0: dpals_task(400, 60, seed=seed, density=5),
    lambda seed=0: dplmc_task(400, 80, seed=seed),
    lambda seed=0: huber_task(50, 40, seed=seed),
]


@pytest.mark.parametrize("make", TASKS)
def test_truth_agrees_with_itself(make):
    task = make()
    full = task.truth()
    assert full.shape == (task.ratings.n_users, task.ratings.n_items)
    assert np.linalg.matrix_rank(full) == task.users.shape[1]
    assert np.allclose(task.truth([3, 1]), full[[3, 1]])
    assert np.allclose(task.truth(slice(2, 5)), full[2:5])
    target = task.split.test.target
    rows = np.repeat(np.arange(target.n_users), np.diff(target.indptr))
    assert np.allclose(task.truth_at(target), full[rows, target.indices], atol=1e-5)
    # held-out values are the truth, so a perfect model scores 0
    assert np.allclose(target.values, task.truth_at(target), atol=1e-5)


@pytest.mark.parametrize("make", TASKS)
def test_mean_squared_error_is_that_of_the_full_matrices(make):
    task = make()
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((len(task.users), 3)), rng.standard_normal((len(task.items), 3))
    assert task.mean_squared_error(U, V) == pytest.approx(np.mean((U @ V.T - task.truth()) ** 2))
    assert task.mean_squared_error(task.users, task.items) < 1e-20


@pytest.mark.parametrize("make", TASKS)
def test_the_seed_decides(make):
    assert make(0).ratings == make(0).ratings
    assert make(0).ratings != make(1).ratings


def test_dpals_task_as_in_the_paper():
    task = dpals_task(5_000)
    n, m = task.ratings.n_users, task.ratings.n_items
    assert (n, m, task.users.shape[1]) == (5_000, 1_000, 5)
    expected = n * m * 20 * math.log(n) / m
    assert abs(task.ratings.n_ratings - expected) < 5 * math.sqrt(expected)
    assert task.ratings.values.std() == pytest.approx(1, abs=1e-3)
    # the factors have orthogonal columns of equal norm
    for factors in (task.users, task.items):
        gram = factors.T @ factors
        assert np.allclose(gram, gram[0, 0] * np.eye(5), atol=1e-8 * gram[0, 0])
    # "a trivial model which always predicts the global average has a RMSE of 1"
    test = task.split.test.target.values
    assert np.sqrt(np.mean((test - task.split.train.values.mean()) ** 2)) == pytest.approx(
        1, abs=0.01
    )
    sizes = [
        part.n_ratings / task.ratings.n_ratings
        for part in (task.split.train, task.split.test.target)
    ]
    assert sizes == pytest.approx([0.8, 0.1], abs=1e-3)


def test_dpals_noise_is_on_the_observations_only():
    quiet, noisy = dpals_task(500, 50, density=4), dpals_task(500, 50, density=4, noise=0.5)
    difference = noisy.ratings.values - noisy.truth_at(noisy.ratings)
    assert difference.std() == pytest.approx(0.5, rel=0.05)
    assert np.allclose(quiet.truth(), noisy.truth())


@pytest.mark.parametrize("scaling", ["each", "common"])
def test_dplmc_task_as_in_the_paper(scaling):
    task = dplmc_task(5_000, scaling=scaling)
    assert task.truth(slice(0, 1)).shape == (1, 100)
    assert task.ratings.n_ratings == round(5 * 5_000 * math.log(5_000))
    norms = [np.linalg.norm(factors, axis=1).max() for factors in (task.users, task.items)]
    assert max(norms) == pytest.approx(2)
    assert (min(norms) == pytest.approx(2)) == (scaling == "each")
    noise = task.ratings.values - task.truth_at(task.ratings)
    assert noise.std() == pytest.approx(1, rel=0.01)
    parts = (task.split.train, task.split.valid.target, task.split.test.target)
    assert sum(part.n_ratings for part in parts) == 5_000 * 100
    together = sum(part.binarize(-np.inf).to_csr() for part in parts)
    assert together.nnz == 5_000 * 100
    assert together.max() == 1


def test_dplmc_task_without_noise():
    task = dplmc_task(300, 100, rank=3, noise=0.0)
    assert np.allclose(task.ratings.values, task.truth_at(task.ratings), atol=1e-6)


@pytest.mark.parametrize("observed", [0.05, 0.15])
def test_huber_task_as_in_the_paper(observed):
    task = huber_task(observed=observed, rank=10)
    assert task.ratings.n_ratings == round(observed * 200 * 200)
    assert task.split.test.target.n_ratings == 200 * 200 - task.ratings.n_ratings
    assert task.users.min() >= 0
    assert task.users.max() <= 1
    assert task.split.valid is None


def test_wrong_arguments_are_answered_with_a_sentence():
    for words, call in [
        ("rank", lambda: dpals_task(10, 10, rank=11)),
        ("density", lambda: dpals_task(100, 10, density=0)),
        ("noise", lambda: huber_task(noise=-1)),
        ("seed", lambda: huber_task(seed=-1)),
        ("observed", lambda: huber_task(observed=1.0)),
        ("do not fit", lambda: dplmc_task(1_000, 10)),
        ("scaling", lambda: dplmc_task(scaling="both")),
    ]:
        with pytest.raises(ConfigError, match=words):
            call()
    other = huber_task(300, 20)
    with pytest.raises(ConfigError, match="does not have"):
        huber_task(50, 20).truth_at(other.ratings)
