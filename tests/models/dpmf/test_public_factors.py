"""Factors of public users: found where there are any, and not used where they say nothing."""

import numpy as np
import pytest

import discreet
from discreet.evaluation.evaluator import evaluate
from discreet.models.dpmf import public_factors
from discreet.models.dpmf.population import Population
from discreet.models.dpmf.public_factors import (
    choose_dimensions,
    fit_public_factors,
    keep_most_active,
)
from discreet.models.dpmf.user_effects import UserPrior
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.public_users import PublicUsers

ITEMS = 80
FIXED = np.random.default_rng(0)
V = FIXED.standard_normal((ITEMS, 2))
BIAS = 0.4 * FIXED.standard_normal(ITEMS)


def make_ratings(seed, n, taste=0.9, first=0):
    """Users with two dimensions of taste, which are the same for every seed, as are biases."""
    rng = np.random.default_rng([seed, 1])
    u = rng.standard_normal((n, 2))
    user, item = np.nonzero(rng.random((n, ITEMS)) < 0.4)
    y = 3 + BIAS[item] + taste / 2**0.5 * (u[user] * V[item]).sum(axis=1)
    y += 0.4 * rng.standard_normal(len(user))
    values = np.clip(np.rint(2 * y) / 2, 1, 5)
    return discreet.Ratings.from_arrays(user + first, item, values, item_ids=np.arange(ITEMS))


def public_users(ratings):
    return PublicUsers.from_ratings(ratings, Bounds(items=ITEMS, rating=2.0, center=3.0, norm=1.0))


def make_prior():
    popularity = np.zeros(ITEMS)
    variances = {"slope": 1e-3, "level": 0.1}
    return UserPrior(Population(300.0, 30.0, 0.0, 0.0), popularity, 0.8, variances, frozenset())


def test_factors_span_the_taste_of_users():
    ratings = make_ratings(1, 100)
    users = public_users(ratings)
    assert choose_dimensions(users, make_prior(), BIAS) == 2
    found = fit_public_factors(users, make_prior(), BIAS).first(2)
    fitted = found.mean @ np.linalg.lstsq(found.mean, V, rcond=None)[0]
    assert ((V - fitted) ** 2).sum() < 0.1 * (V**2).sum()
    assert found.covariance.shape == (ITEMS, 2, 2)


@pytest.mark.parametrize("seed", range(3))
def test_users_without_taste_have_no_factors(seed):
    users = public_users(make_ratings(seed, 60, taste=0.0))
    assert choose_dimensions(users, make_prior(), BIAS) == 0


def test_few_users_and_users_without_ratings_are_no_error():
    ratings = make_ratings(1, 1)
    assert choose_dimensions(public_users(ratings), make_prior(), BIAS) == 0


def test_at_most_so_many_users_are_used(monkeypatch):
    monkeypatch.setattr(public_factors, "MOST_USERS", 10)
    users = public_users(make_ratings(1, 30))
    kept = keep_most_active(users)
    assert kept.block.n == 10
    assert kept.block.counts.min() >= np.sort(users.block.counts)[-10]


def train(private, public, epsilon):
    model = discreet.DPMF(
        goal="rating", rating_range=(1, 5), epsilon=epsilon, noise="seeded", random_state=3
    )
    return model.fit(private, public_ratings=public, progress=False)


@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_public_taste_improves_predictions_and_wrong_taste_is_not_used(epsilon):
    ratings = make_ratings(2, 1500)
    split = discreet.data.splits.random_ratings(ratings, (0.8, 0.2), seed=1)
    public = make_ratings(1, 100, first=10_000)
    other = np.random.default_rng(1).permutation(ITEMS)
    user = np.repeat(public.user_ids, np.diff(public.indptr))
    wrong = discreet.Ratings.from_arrays(
        user, other[public.indices], public.values, item_ids=public.item_ids
    )
    right, none, shuffled = (
        evaluate(train(split.train, one, epsilon), split, "rmse", slices=None)["rmse"]
        for one in (public, None, wrong)
    )
    assert right < (0.7 if epsilon < 1 else 1.02) * none
    assert shuffled < 1.02 * none
