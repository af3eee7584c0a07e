"""IRLS: with a huge α it is ALS, a step of it is a weighted solve, and wrong ratings do it
little harm.
"""

from itertools import pairwise

import numpy as np
import pytest

import discreet
from discreet.errors import ConfigError
from discreet.kernels import solve_rows
from discreet.models.irls import irls_rows


def huber_regression(y, A, alpha, ridge, iterations):
    """argmin Σ ρ_α(y − Aθ) + ridge/2 · ‖θ‖² (Algorithm 3 without noise), from least squares."""
    rows = (np.array([0, len(y)]), np.arange(len(y), dtype=np.int32), y, A, np.array([ridge]))
    return irls_rows(*rows, alpha, iterations, solve_rows(*rows))[0]


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((150, 40)) < 0.5)
    taste = 0.7 * rng.normal(size=(150, 2)) @ rng.normal(size=(2, 40))
    return discreet.Ratings.from_arrays(user, item, 3 + taste[user, item], item_ids=range(40))


@pytest.mark.parametrize("intercepts", [None, False])
def test_with_a_huge_alpha_it_is_als(ratings, intercepts):
    same = dict(
        iterations=4, regularization=2.0, intercepts=intercepts, dtype="float64", random_state=3
    )
    als, irls = (
        discreet.ALS(3, **same).fit(ratings),
        discreet.IRLS(3, transition=1e9, **same).fit(ratings),
    )
    np.testing.assert_allclose(irls.item_factors_, als.item_factors_, rtol=1e-9)
    np.testing.assert_allclose(irls.item_biases_, als.item_biases_, atol=1e-9)
    np.testing.assert_allclose(
        irls.predict(ratings, ratings), als.predict(ratings, ratings), rtol=1e-6
    )


def test_one_iteration_is_one_weighted_solve():
    rng = np.random.default_rng(1)
    A, y, start, alpha = rng.normal(size=(30, 4)), rng.standard_cauchy(30), rng.normal(size=4), 0.7
    rows = np.array([0, 30]), np.arange(30, dtype=np.int32)
    w = np.minimum(1, alpha / np.abs(y - A @ start))
    expected = np.linalg.solve(A.T @ (w[:, None] * A) + 0.5 * np.eye(4), A.T @ (w * y))
    found = irls_rows(*rows, y, A, np.array([0.5]), alpha, 1, start[None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-9)


def loss(y, A, theta, alpha, ridge):
    e = np.abs(y - A @ theta)
    return np.where(e <= alpha, e**2 / 2, alpha * (e - alpha / 2)).sum() + ridge / 2 * theta @ theta


def test_every_iteration_lowers_the_huber_loss_to_its_minimum():
    rng = np.random.default_rng(2)
    A, truth = rng.normal(size=(200, 3)), np.array([1.0, -2.0, 0.5])
    y = A @ truth + 0.1 * rng.normal(size=200)
    y[:30] += 50.0
    steps = [
        loss(y, A, huber_regression(y, A, alpha=0.2, ridge=0.1, iterations=k), 0.2, 0.1)
        for k in range(30)
    ]
    assert all(b <= a + 1e-9 for a, b in pairwise(steps))
    theta = huber_regression(y, A, alpha=0.2, ridge=0.1, iterations=200)
    e = y - A @ theta
    np.testing.assert_allclose(A.T @ np.clip(e, -0.2, 0.2), 0.1 * theta, atol=1e-6)
    assert np.abs(theta - truth).max() < 0.1
    assert np.abs(np.linalg.lstsq(A, y, rcond=None)[0] - truth).max() > 0.5


def test_wrong_ratings_do_it_little_harm(ratings):
    rng = np.random.default_rng(5)
    broken = ratings.values.copy()
    at = rng.random(len(broken)) < 0.08
    broken[at] += rng.choice([-30.0, 30.0], at.sum())
    noisy = discreet.Ratings.from_indices(
        ratings.indptr, ratings.indices, broken, ratings.user_ids, ratings.item_ids
    )
    same = dict(iterations=10, regularization=1.0, random_state=0)
    off = {}
    for name, model in {
        "als": discreet.ALS(2, **same),
        "irls": discreet.IRLS(2, transition=0.5, inner_iterations=5, **same),
    }.items():
        off[name] = np.sqrt(
            np.mean((model.fit(noisy).predict(noisy, ratings) - ratings.values)[~at] ** 2)
        )
    assert off["irls"] < 0.35 * off["als"]


def test_it_is_a_model_like_the_others(ratings, tmp_path):
    model = discreet.IRLS(2, iterations=3).fit(ratings)
    model.save(tmp_path / "m")
    again = discreet.load(tmp_path / "m")
    assert type(again) is discreet.IRLS
    assert np.array_equal(again.recommend_many(ratings, 5)[0], model.recommend_many(ratings, 5)[0])
    assert "NOT PRIVATE" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "wrong", [dict(transition=0.0), dict(transition="x"), dict(inner_iterations=-1)]
)
def test_wrong_parameters_are_named(ratings, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        discreet.IRLS(2, **wrong).fit(ratings)
