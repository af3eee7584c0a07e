"""Bias against the linear system that it solves."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import discreet
from discreet import Bias, Ratings
from discreet.errors import ConfigError, DataError


def some_ratings(seed=0, n=30, m=12):
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((n, m)) < 0.4, rng.integers(1, 6, (n, m)), 0)
    values[2] = values[:, 3] = 0  # a user and an item without ratings
    return Ratings.from_csr(sparse.csr_array(values))


def ridge_solution(ratings, lam):
    """User and item biases of min Σ (r − m − a_i − b_j)² + λ (‖a‖² + ‖b‖²), all at once."""
    n, m = ratings.n_users, ratings.n_items
    row = np.repeat(np.arange(n), np.diff(ratings.indptr))
    X = np.zeros((ratings.n_ratings, n + m))
    X[np.arange(len(X)), row] = X[np.arange(len(X)), n + ratings.indices] = 1
    mean = ratings.values.mean(dtype=np.float64)
    both = np.linalg.solve(X.T @ X + lam * np.eye(n + m), X.T @ (ratings.values - mean))
    return mean, both[:n], both[n:]


def test_is_the_least_squares_fit():
    ratings = some_ratings()
    bias = Bias(2.0, iterations=500).fit(ratings)
    mean, a, b = ridge_solution(ratings, 2.0)
    assert bias.mean_ == pytest.approx(mean, abs=1e-12)
    np.testing.assert_allclose(bias.item_biases_, b, atol=1e-6)
    offsets = bias.fold(ratings.indptr, ratings.indices, ratings.values)[1]
    np.testing.assert_allclose(offsets - mean, a, atol=1e-6)
    every = [(i, j) for i in range(ratings.n_users) for j in range(ratings.n_items)]
    expected = np.clip(mean + a[:, None] + b, 1, 5).ravel()
    np.testing.assert_allclose(bias.predict(ratings, every), expected, atol=1e-5)


def test_the_default_has_nearly_converged():
    ratings = some_ratings()
    few, many = Bias().fit(ratings), Bias(iterations=500).fit(ratings)
    np.testing.assert_allclose(few.item_biases_, many.item_biases_, atol=1e-3)


def test_one_side_or_none():
    ratings = some_ratings()
    table = ratings.to_csr().toarray()
    mean = ratings.values.mean(dtype=np.float64)
    by_user = Bias(0.0, items=False).fit(ratings)
    for user in (0, 1):
        own = table[user][table[user] > 0].mean()
        np.testing.assert_allclose(
            by_user.predict(ratings, [(user, j) for j in range(3)]), own, rtol=1e-6
        )
    assert by_user.predict(ratings, [(2, 0)])[0] == pytest.approx(mean), (
        "a user without ratings gets the mean"
    )
    by_item = Bias(0.0, users=False).fit(ratings)
    own = table[:, 4][table[:, 4] > 0].mean()
    np.testing.assert_allclose(
        by_item.predict(ratings, [(0, 4), (1, 4), ("stranger", 4)]), own, rtol=1e-6
    )
    neither = Bias(users=False, items=False).fit(ratings)
    np.testing.assert_allclose(neither.predict(ratings, ratings), mean, rtol=1e-6)


def test_ratings_that_are_additive_are_predicted_exactly():
    taste, quality = np.array([-1.0, 0, 1]), np.array([0.0, 0.5, -0.5, 1])
    table = 3 + taste[:, None] + quality
    bias = Bias(0.0, iterations=200).fit(Ratings.from_csr(sparse.csr_array(table)))
    known = Ratings.from_csr(sparse.csr_array(np.where(np.eye(3, 4) > 0, 0, table)))
    np.testing.assert_allclose(
        bias.predict(known, [(i, i) for i in range(3)]), table.diagonal(), atol=1e-5
    )


def test_recommends_the_best_rated():
    ratings = some_ratings()
    bias = Bias().fit(ratings)
    ids, scores = bias.recommend({0: 3.0}, n=20)
    assert len(ids) == ratings.n_items - 1
    best = np.argsort(-bias.item_biases_, kind="stable")
    assert list(ids) == [j for j in best if j != 0]
    assert (np.diff(scores) <= 0).all()
    assert bias.fold_in([1, 2]).shape == (0,)
    with pytest.raises(
        ConfigError, match=r"Bias has no item factors to compare items by. Use ALS or DPMF"
    ):
        bias.similar_items(1)


def test_estimator():
    ratings = some_ratings()
    bias, seen = Bias(3.0, users=False), []
    assert clone(bias).get_params() == {
        "regularization": 3.0,
        "users": False,
        "items": True,
        "iterations": 10,
    }
    assert bias.fit(ratings, progress=lambda *step: seen.append(step)) is bias
    assert seen[-1] == (10, 10, "sweeps")
    again = Bias(3.0, users=False).fit(some_ratings(1)).fit(ratings)
    assert np.array_equal(again.item_biases_, bias.item_biases_)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"regularization": -1}, "regularization is -1, but must be a number of at least 0"),
        ({"regularization": None}, "regularization is None"),
        ({"iterations": 0}, "iterations is 0"),
        ({"users": "no"}, "users is 'no', but must be True or False"),
    ],
)
def test_wrong_parameters(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Bias(**wrong).fit(some_ratings())


def test_nothing_to_learn_from():
    ratings = some_ratings()
    with pytest.raises(DataError, match="no ratings to learn from"):
        Bias().fit(ratings.keep(np.zeros(ratings.n_ratings, bool)))


def test_units_do_not_matter():
    ratings = discreet.load_dataset("cinema", scale=0.03)
    ten = discreet.Ratings.from_csr(ratings.to_csr() * 10)
    once, tenfold = (discreet.Bias().fit(data) for data in (ratings, ten))
    np.testing.assert_allclose(
        tenfold.predict(ten, ten), 10 * once.predict(ratings, ratings), rtol=1e-5
    )
