"""Cells about public features and sparse catalogs: means over trainings, and what is measured."""

from typing import ClassVar

import numpy as np
import pytest

from discreet.data.ratings import Ratings
from research import public_features
from research.public_features import SHUFFLED, average_trainings, measured
from research.sparse import generate_interactions


def test_a_cell_is_the_mean_of_its_trainings():
    recalls = iter([0.1, 0.2, 0.6])
    found = average_trainings(lambda: {"recall@20": next(recalls), "profile": 1.0}, 3)
    assert found["recall@20"] == pytest.approx(0.3)
    assert found["profile"] == 1.0
    assert found["recall@20 by noise"] == pytest.approx(np.std([0.1, 0.2, 0.6], ddof=1))
    assert "recall@20 by noise" not in average_trainings(lambda: {"recall@20": 0.5}, 1)


class FixedLists:
    """A model whose lists are given."""

    details_: ClassVar = {}

    class privacy_:
        epsilon = 1.0

    def __init__(self, lists):
        self.lists = np.array(lists, np.int32)

    def recommend_indices(self, ratings, n):
        return self.lists, None


def test_recall_divides_by_all_that_is_hidden_and_leaves_out_users_without_any():
    items = np.arange(6)
    train = Ratings.from_arrays([0, 1, 2], [0, 0, 1], item_ids=items)
    hidden = Ratings.from_arrays([0, 0, 2], [2, 3, 4], item_ids=items)
    found = measured(FixedLists([[2, 5, -1], [2, 5, -1], [4, 2, -1]]), train, hidden)
    assert found["recall@20"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["coverage@20"] == pytest.approx(3 / 6)


def test_generated_users_stay_with_one_community_where_there_is_taste():
    """With taste, an item's users have fewer other items between them than without."""

    def others_of_users(taste):
        user, item = generate_interactions(400, 400, taste, 0)
        assert len(np.unique(user * 400 + item)) == len(user)
        popular = np.bincount(item).argmax()
        return len(np.unique(item[np.isin(user, user[item == popular])]))

    assert others_of_users(1.0) < 0.3 * others_of_users(0.0)


def test_shuffled_features_are_compared_on_the_same_noise(monkeypatch):
    """Each loss is between two trainings of one seed."""
    seeds = []

    class Trained:
        def __init__(self, name, random_state):
            seeds.append((name, random_state))
            self.recall = {"DPMF": 0.5, SHUFFLED: 0.5 - 0.01 * (random_state % 100)}[name]

        def fit(self, train, progress):
            return self

    def model(settings, sources, *, noise, random_state):
        assert noise == "seeded"
        return Trained(settings["model"], random_state)

    monkeypatch.setattr(public_features, "_model", model)
    monkeypatch.setattr(public_features, "measured", lambda one, *_: {"recall@20": one.recall})
    found = public_features.compare_shuffled(
        {"model": SHUFFLED, "seed": 6, "noise": 3}, None, None, None
    )
    assert seeds == [(name, 600 + i) for i in range(3) for name in (SHUFFLED, "DPMF")]
    assert found["loss"] == pytest.approx(2.0)
    assert found["error of loss"] == pytest.approx(2 / 3**0.5)
    assert found["recall@20"] == pytest.approx(0.49)
