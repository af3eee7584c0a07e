"""EASE: against the formula in plain numpy, and as a model like the others."""

import json

import numpy as np
import pytest

import discreet
from discreet.data.cinema import make_cinema
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.models import ease
from discreet.models.storage.load_scorer import open_model


@pytest.fixture(scope="module")
def ratings():
    return make_cinema(0, 0.03)


@pytest.mark.parametrize("regularization", [5.0, 300.0])
def test_scores_are_those_of_the_formula(ratings, regularization):
    X = (ratings.to_csr().toarray() > 0).astype(float)
    P = np.linalg.inv(X.T @ X + regularization * np.eye(X.shape[1]))
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    scores = X[:40] @ B
    model = discreet.EASE(regularization).fit(ratings)
    some = ratings.select_users(np.arange(40), by="index")
    every = [(u, i) for u in some.user_ids.tolist() for i in ratings.item_ids.tolist()]
    found = model.predict(some, every).reshape(scores.shape)
    np.testing.assert_allclose(found, scores, atol=1e-5)
    best, _ = model.recommend_indices(some, 5)
    scores[X[:40] > 0] = -np.inf
    top = np.take_along_axis(scores, best, axis=1)
    np.testing.assert_allclose(top, -np.sort(-scores, axis=1)[:, :5], atol=1e-5)


def test_it_minimizes_the_ridge_with_an_empty_diagonal(ratings):
    """Each item alone, regressed on the others."""
    X = (ratings.to_csr().toarray() > 0).astype(float)
    model = discreet.EASE(20.0).fit(ratings)
    for j in (0, 7, 50):
        others = np.delete(np.arange(X.shape[1]), j)
        A = X[:, others]
        b = np.linalg.solve(A.T @ A + 20.0 * np.eye(len(others)), A.T @ X[:, j])
        np.testing.assert_allclose(model.item_factors_[j, others], b, atol=1e-5)
        assert model.item_factors_[j, j] == 0


def test_it_is_better_than_popularity_and_survives_saving(ratings, tmp_path):
    split = random_ratings(make_cinema(0, 0.1), seed=0)
    scores = {
        type(model).__name__: discreet.evaluate(model.fit(split.train), split, "recall@20")
        for model in (discreet.EASE(), discreet.Popularity())
    }
    assert scores["EASE"]["recall@20"] > 1.3 * scores["Popularity"]["recall@20"]
    model = discreet.EASE(50.0).fit(ratings)
    model.save(tmp_path / "model")
    again = discreet.load(tmp_path / "model")
    liked = ratings.item_ids[[1, 2, 3]].tolist()
    assert again.regularization == 50.0
    opened = open_model(tmp_path / "model")
    best, _ = opened.scorer.best(*opened.scorer.history(liked), 10)
    assert opened.item_ids_[best].tolist() == model.recommend(liked)[0].tolist()
    for one, other in zip(model.recommend(liked), again.recommend(liked), strict=True):
        assert np.array_equal(one, other)


def test_the_command_knows_it(run):
    args = ["evaluate", "cinema", "--scale", 0.03, "--model", "ease", "--regularization", 50]
    found = json.loads(run(*args, "--json").out)
    assert [row["name"] for row in found["models"]] == ["EASE", "Popularity"]


def test_too_many_items_and_bad_values_are_refused(ratings, monkeypatch):
    monkeypatch.setattr(ease, "MOST_ITEMS", 100)
    with pytest.raises(ConfigError, match="more than 100"):
        discreet.EASE().fit(ratings)
    for bad in (0.0, -1.0, float("nan"), "much"):
        with pytest.raises(ConfigError, match="regularization"):
            discreet.EASE(bad).fit(ratings)


def test_blocks_of_users_change_no_bit(ratings, monkeypatch):
    model = discreet.EASE(50.0).fit(ratings)
    whole = model.recommend_indices(ratings, 10)
    monkeypatch.setattr("discreet.models.base.MOST_NUMBERS", 7 * ratings.n_items)
    parts = model.recommend_indices(ratings, 10)
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one, other)
