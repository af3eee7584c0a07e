"""Ratings of a history outside the public range are refused, wherever a history comes in."""

import json

import numpy as np
import pandas as pd
import pytest

import discreet
from discreet import DPALS, DPMF, Ratings
from discreet.data.splits import by_person
from discreet.errors import DataError
from discreet.evaluation.evaluator import evaluate
from discreet.models.recommend_table import recommend_table
from discreet.models.storage.load_scorer import open_model

SEEDED = {"epsilon": 10, "noise": "seeded", "random_state": 0}
OUTSIDE = "outside the range 1 to 5"


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((150, 20)) < 0.5)
    return Ratings.from_arrays(user, item, rng.integers(1, 6, len(user)), item_ids=range(20))


MODELS = {
    "ranking": lambda given: DPMF(2, rating_range=given, **SEEDED),
    "rating": lambda given: DPMF(2, goal="rating", rating_range=given, **SEEDED),
    "DPALS": lambda given: DPALS(2, rating_range=given, **SEEDED),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, ratings):
    return MODELS[request.param]((1, 5)).fit(ratings, progress=False)


@pytest.mark.parametrize("value", [99, 5.001, 0.5, -3, 1e30])
def test_every_way_in_refuses_ratings_outside_the_public_range(model, tmp_path, value):
    many = Ratings.from_arrays([1, 2], [3, 4], [3, value])
    model.save(tmp_path / "m")
    ways = (
        lambda: model.recommend({1: value}),
        lambda: model.recommend({1: 3, 2: np.float64(value)}),
        lambda: model.recommend(pd.DataFrame({"item": [1], "rating": [value]})),
        lambda: model.recommend(Ratings.from_arrays([1], [1], [value])),
        lambda: model.fold_in({1: value}),
        lambda: model.recommend_many(many, progress=False),
        lambda: model.predict(many, [(1, 5)]),
        lambda: recommend_table(model, many, progress=False),
        lambda: open_model(tmp_path / "m").scorer.history({1: value}),
        lambda: discreet.load(tmp_path / "m").recommend({1: value}),
    )
    for way in ways:
        with pytest.raises(DataError, match=OUTSIDE):
            way()


def test_the_ends_of_the_range_and_plain_lists_are_accepted(model):
    assert len(model.recommend({1: 1, 2: 5.0})[0]) == 10
    assert len(model.recommend([1, 2])[0]) == 10
    assert len(model.recommend(np.array([1, 2]))[0]) == 10


def test_a_range_that_was_read_from_the_data_bounds_no_history(ratings):
    """A new user may have played a song more often than any user of the training did."""
    for make in MODELS.values():
        assert len(make(None).fit(ratings, progress=False).recommend({1: 99})[0]) == 10
    assert len(discreet.ALS(2, iterations=1).fit(ratings).recommend({1: 99})[0]) == 10


def test_evaluation_clips_where_users_rated_outside_the_range(ratings):
    """A priced score must not stop at what one user rated."""
    wild = ratings._replace(
        values=np.where(np.arange(ratings.n_ratings) % 7, ratings.values, np.float32(99))
    )
    split = by_person(wild, (0.8, 0.1, 0.1), seed=0)
    model = MODELS["rating"]((1, 5)).fit(split.train, progress=False)
    assert np.isfinite(evaluate(model, split, ["rmse", "recall@5"], relevant=4)["rmse"])


def test_the_saved_folder_holds_the_public_range(model, tmp_path):
    model.save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "model.json").read_text())["history_range"] == [1, 5]
