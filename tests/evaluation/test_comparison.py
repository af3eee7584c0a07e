"""Models side by side: the numbers are those of `evaluate`, put together as the module says."""

from __future__ import annotations

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.evaluation.comparison import compare


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((60, 30)) < 0.4)
    return discreet.Ratings.from_arrays(users, items, rng.integers(1, 6, len(users)))


MAKERS = {
    "ALS": lambda seed: discreet.ALS(2, random_state=seed),
    "Popularity": lambda seed: discreet.Popularity(),
}


def test_scores_are_means_of_the_evaluations_of_each_run(ratings):
    splits = [random_ratings(ratings, (0.8, 0.2), seed) for seed in (4, 5)]
    found = compare(MAKERS, splits, 2, ["rmse", "recall@5"], relevant=4.0, slices="ratings")
    alone = [
        discreet.evaluate(
            discreet.ALS(2, random_state=s.seed).fit(s.train), s, ["rmse", "recall@5"], relevant=4.0
        )
        for s in splits
    ]
    als, popular = found.rows
    for metric, score in als.scores.items():
        assert score.runs == tuple(e.values[metric] for e in alone)
        assert score.mean == pytest.approx(np.mean(score.runs))
        assert score.stderr == pytest.approx(np.mean([e.stderr[metric] for e in alone]))
        assert score.spread == pytest.approx(np.std(score.runs, ddof=1))
        assert als.quintiles[4][metric].runs == tuple(e.slices[4].values[metric] for e in alone)
    assert list(popular.scores) == ["recall@5"]
    assert found.seeds == (4, 5)
    assert found.to_dict()["models"][0]["parameters"]["factors"] == 2


def test_splits_are_taken_one_by_one_and_progress_ends_complete(ratings):
    held, told = [], []

    def one_by_one():
        for seed in range(3):
            held.append(seed)
            yield random_ratings(ratings, (0.8, 0.2), seed)

    compare(
        MAKERS,
        one_by_one(),
        3,
        ["recall@5"],
        progress=lambda done, total, text: told.append((done, total)),
    )
    assert held == [0, 1, 2]
    assert told == sorted(told)
    assert told[-1] == (600, 600)


def test_without_threshold_every_held_out_item_is_relevant(ratings):
    split = random_ratings(ratings, (0.8, 0.2), 0)
    both = compare({"Bias": lambda seed: discreet.Bias()}, [split], 1, ["recall@5"])
    alone = discreet.evaluate(discreet.Bias().fit(split.train), split, ["recall@5"], relevant=1.0)
    assert both.rows[0].scores["recall@5"].mean == alone.values["recall@5"]


def test_metrics_that_fit_no_model_are_refused(ratings):
    with pytest.raises(ConfigError, match="rmse"):
        compare({"Popularity": MAKERS["Popularity"]}, [], 0, ["rmse"])
