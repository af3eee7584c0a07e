"""Our scorer in LensKit's pipelines, by LensKit's own tests for scorers.

LensKit needs torch (with what PyPI's brings, 6 GB) and pandas 2, so it is not among what the other
tests need: `make lenskit` runs this file in an environment of its own, and says so if anything is
missing there.
"""

import importlib.util
import os
from typing import Any, ClassVar

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError

if importlib.util.find_spec("lenskit") is None:
    if os.environ.get("DISCREET_LENSKIT") == "required":
        pytest.fail("LensKit is not installed", pytrace=False)
    pytest.skip("LensKit (torch, pandas 2) is tested by `make lenskit`", allow_module_level=True)

from lenskit import batch
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.metrics import NDCG, RunAnalysis
from lenskit.pipeline import predict_pipeline, topn_pipeline
from lenskit.splitting import SampleFrac, crossfold_users
from lenskit.testing import BasicComponentTests, ScorerTests

from discreet.adapters.lenskit_scorer import PrivateScorer, PrivateScorerConfig

RANGE = {"rating_range": [0.5, 5]}


@pytest.fixture(scope="session")
def ml_ratings():
    """The name is LensKit's; the people are invented. Items are numbers, as in its tests."""
    frame = discreet.load_dataset("cinema", scale=0.05).to_frame("pandas")
    return frame.assign(item_id=frame["item_id"].astype("category").cat.codes.astype("int64") + 1)


@pytest.fixture(scope="session")
def ml_100k(ml_ratings):
    return ml_ratings


@pytest.fixture(scope="session")
def ml_ds(ml_ratings):
    return from_interactions_df(ml_ratings)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


class TestComponent(BasicComponentTests):
    component = PrivateScorer
    configs: ClassVar[list[dict[str, Any]]] = [
        {"model": "DPALS", "epsilon": 2.0, "parameters": {"goal": "ranking"}}
    ]


class TestForLists(ScorerTests):
    component = PrivateScorer
    config = PrivateScorerConfig(epsilon=5, parameters=RANGE, public_items=True)
    expected_ndcg = 0.1


class TestForRatings(ScorerTests):
    component = PrivateScorer
    config = PrivateScorerConfig(
        epsilon=5, parameters={**RANGE, "goal": "rating"}, public_items=True
    )
    expected_rmse = 0.9


class TestWithoutPrivacy(ScorerTests):
    component = PrivateScorer
    config = PrivateScorerConfig(model="ALS", parameters={"factors": 4, "iterations": 3})


def test_scores_are_those_of_our_own_predict(ml_ratings, ml_ds):
    pipe = predict_pipeline(
        PrivateScorer(epsilon=5, parameters={**RANGE, "goal": "rating"}), fallback=False
    )
    pipe.train(ml_ds)
    scorer = pipe.component("scorer")
    split = random_ratings(discreet.Ratings.from_frame(ml_ratings), seed=0)
    user = ml_ds.users.ids()[3]
    items = ml_ds.items.ids()[:40].tolist()
    rows = discreet.Ratings.from_frame(ml_ratings[ml_ratings["user_id"] == user])
    expected = scorer.model_.predict(rows, [(user, item) for item in items])
    found = scorer(RecQuery(user_id=user, history_items=ml_ds.user_row(user)), ItemList(items))
    assert np.allclose(found.scores(), expected, atol=1e-4)
    assert split.train.n_items == len(scorer.model_.item_ids_)


def test_the_promise_is_passed_on(ml_ds):
    scorer = PrivateScorer(epsilon=1, parameters=RANGE, public_items=True)
    scorer.train(ml_ds)
    assert scorer.privacy_.private
    assert scorer.privacy_.epsilon == pytest.approx(1)
    cautious = PrivateScorer(epsilon=1, parameters=RANGE)
    cautious.train(ml_ds)
    assert "found in the ratings" in str(cautious.privacy_)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "how private is yours to say: give epsilon"),
        ({"model": "ALS", "epsilon": 1.0}, "epsilon is for private models, and ALS is not"),
        ({"model": "SVD"}, "there is no model 'SVD'"),
    ],
)
def test_what_cannot_be_trained_is_said(ml_ds, config, said):
    with pytest.raises(ConfigError, match=said):
        PrivateScorer(**config).train(ml_ds)


def test_lenskits_own_evaluation_takes_it(ml_ds):
    """A private list is better than one at an ε at which nothing can be learned."""
    (fold,) = list(crossfold_users(ml_ds, 1, SampleFrac(0.2, rng=3), rng=3))[:1]
    measured = {}
    for epsilon in (10.0, 1e-3):
        pipe = topn_pipeline(PrivateScorer(epsilon=epsilon, parameters=RANGE), n=20)
        pipe.train(fold.train)
        analysis = RunAnalysis()
        analysis.add_metric(NDCG(n=20))
        lists = batch.recommend(pipe, fold.test, n_jobs=1)
        measured[epsilon] = float(
            analysis.measure(lists, fold.test).list_summary().loc["NDCG@20", "mean"]
        )
    assert measured[10.0] > 1.5 * measured[1e-3]
