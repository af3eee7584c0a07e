"""Popularity: counts, and nothing but counts."""

import numpy as np
import pytest
from sklearn.base import clone

from discreet import Popularity, Ratings
from discreet.errors import ConfigError, DataError

USERS = ["u", "u", "u", "v", "v", "w", "x"]
ITEMS = ["tea", "jam", "rye", "tea", "jam", "tea", "fig"]


@pytest.fixture
def popular():
    return Popularity().fit(Ratings.from_arrays(USERS, ITEMS, [1, 5, 3, 2, 2, 1, 4]))


def test_orders_by_count_and_ties_by_position(popular):
    ids, scores = popular.recommend([])
    assert list(ids) == ["tea", "jam", "fig", "rye"]  # item ids are sorted, so fig is before rye
    assert list(scores) == [3, 2, 1, 1]


def test_everybody_gets_the_same_but_for_what_they_know(popular):
    assert list(popular.recommend({"tea": 1.0}, n=2)[0]) == ["jam", "fig"]
    assert list(popular.recommend({"tea": 1.0}, n=2, exclude_seen=False)[0]) == ["tea", "jam"]
    ids, scores = popular.recommend_many(Ratings.from_arrays(USERS, ITEMS), n=4)
    assert ids.tolist() == [
        ["fig", -1, -1, -1],
        ["fig", "rye", -1, -1],
        ["jam", "fig", "rye", -1],
        ["tea", "jam", "rye", -1],
    ]
    assert np.array_equal(np.isneginf(scores), ids == -1)


def test_scores_are_counts_also_in_predict(popular):
    ratings = Ratings.from_arrays(USERS, ITEMS)
    assert popular.predict(ratings, [("u", "tea"), ("nobody", "fig")]).tolist() == [3, 1]


def test_has_no_factors(popular):
    assert popular.fold_in(["tea"]).shape == (0,)
    with pytest.raises(ConfigError, match="Popularity has no item factors"):
        popular.similar_items("tea")


def test_estimator(popular):
    assert clone(popular).get_params() == {}
    assert repr(popular) == "Popularity()"
    popular.fit(Ratings.from_arrays([1, 2], [8, 8]))
    assert popular.recommend([])[0].tolist() == [8]
    with pytest.raises(DataError, match="fit needs Ratings"):
        popular.fit([1, 2])
