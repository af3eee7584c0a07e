"""The dial `diversity`: against its formula, the same everywhere, and without effect at 0."""

from __future__ import annotations

import json

import numpy as np
import pytest

import discreet
from discreet.data.cinema import make_cinema
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.evaluation.evaluator import evaluate
from discreet.models.diversity import FLOOR


@pytest.fixture(scope="module")
def ratings():
    return make_cinema(0, 0.05)


@pytest.fixture(scope="module")
def model(ratings):
    given = {"rating_range": (0.5, 5), "noise": "seeded", "random_state": 0}
    return discreet.DPMF(epsilon=20, **given).fit(ratings)


@pytest.fixture(scope="module")
def profiled(ratings):
    public = {item: [["a", "b", "c"][at % 3]] for at, item in enumerate(ratings.item_ids.tolist())}
    given = {"rating_range": (0.5, 5), "noise": "seeded", "random_state": 0}
    return discreet.DPMF(epsilon=20, item_features=public, **given).fit(ratings)


def all_scores(model, history):
    ids, scores = model.recommend(history, len(model.item_ids_), exclude_seen=False)
    return dict(zip(ids.tolist(), scores.tolist(), strict=True))


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
def test_the_order_is_score_over_popularity_to_the_power_of_beta(model, beta):
    history = dict.fromkeys(model.item_ids_[[3, 17, 40]].tolist(), 5.0)
    scores, popularity = all_scores(model, history), all_scores(model, {})
    largest = max(popularity.values())
    value = {
        item: score / max(popularity[item] / largest, FLOOR) ** beta
        for item, score in scores.items()
        if score > 0 and item not in history
    }
    expected = sorted(value, key=value.__getitem__, reverse=True)[:15]
    ids, found = model.recommend(history, 15, diversity=beta)
    np.testing.assert_allclose([value[i] for i in ids.tolist()], [value[i] for i in expected], 1e-5)
    np.testing.assert_allclose(found, [scores[i] for i in ids.tolist()], 1e-5)


@pytest.mark.parametrize("which", ["model", "profiled"])
def test_zero_changes_no_bit_and_many_users_get_what_one_gets(which, request, ratings):
    model = request.getfixturevalue(which)
    some = ratings.select_users(np.arange(20), by="index")
    for beta in (0.0, 0.4):
        many = model.recommend_many(some, 10, diversity=beta)
        for user in range(20):
            own = some.select_users([user], by="index")
            ids, scores = model.recommend(own, 10, diversity=beta)
            assert many[0][user].tolist() == ids.tolist()
            np.testing.assert_allclose(many[1][user], scores, 1e-5)
        plain = model.recommend_many(some, 10)
        assert np.array_equal(plain[0], many[0]) == (beta == 0)
        if beta == 0:
            assert np.array_equal(plain[1], many[1])


@pytest.mark.parametrize("which", ["model", "profiled"])
def test_more_diversity_spreads_recommendations_over_more_items(which, request, ratings):
    model = request.getfixturevalue(which)
    split = random_ratings(ratings, seed=0)

    class Dial:
        goal = "ranking"
        item_ids_ = model.item_ids_

        def __init__(self, beta):
            self.beta = beta

        def recommend_indices(self, rows, n):
            return model.recommend_indices(rows, n, diversity=self.beta)

    found = [evaluate(Dial(b), split, ["gini@20", "popularity@20"]) for b in (0.0, 0.3, 0.6)]
    for name in ("gini@20", "popularity@20"):
        values = [one[name] for one in found]
        assert values == sorted(values, reverse=True)
        assert values[0] > values[2]


def test_items_left_out_stay_out(model):
    first = model.recommend({}, 5, diversity=0.5)[0].tolist()
    assert not set(first) & set(model.recommend({}, 20, exclude=first, diversity=0.5)[0].tolist())
    assert set(model.recommend({}, 20, items=first, diversity=0.5)[0].tolist()) == set(first)
    seen = dict.fromkeys(first, 5.0)
    assert not set(first) & set(model.recommend(seen, 50, diversity=0.5)[0].tolist())


def test_models_without_popularity_and_bad_values_are_refused(model, ratings):
    for other in (discreet.ALS(4, iterations=2), discreet.ALS(4, iterations=2, goal="ranking")):
        with pytest.raises(ConfigError, match="learned their popularity"):
            other.fit(ratings).recommend({}, 5, diversity=0.3)
    for bad in (-0.1, 1.5, "much", True, float("nan")):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            model.recommend({}, 5, diversity=bad)


def test_the_command_gives_what_python_gives(model, tmp_path, run):
    model.save(tmp_path / "model")
    liked = model.recommend({}, 60)[0][[3, 55]].tolist()
    expected = model.recommend(liked, 8, diversity=0.5)[0].tolist()
    assert expected != model.recommend(liked, 8)[0].tolist()
    args = ["recommend", tmp_path / "model", "--history", ",".join(liked), "-n", 8]
    found = json.loads(run(*args, "--diversity", 0.5, "--json").out)
    assert [row["item_id"] for row in found["recommendations"]] == expected


@pytest.fixture(scope="module", params=["Popularity", "DPMF"])
def popular(request, ratings):
    """A model that learned nothing but popularity."""
    if request.param == "Popularity":
        return discreet.Popularity().fit(ratings)
    few = ratings.select_users(np.arange(40), by="index")
    given = {"rating_range": (0.5, 5), "noise": "seeded", "random_state": 1}
    return discreet.DPMF(epsilon=1, **given).fit(few)


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_it_has_no_effect_on_popularity_and_says_so(popular, ratings, beta, caplog):
    """With β = 1 the formula makes all items equal, and their order would be that of ids."""
    history = popular.item_ids_[[3, 17]].tolist()
    plain = popular.recommend(history, 10)
    assert "no effect" not in caplog.text
    found = popular.recommend(history, 10, diversity=beta)
    assert caplog.text.count("diversity has no effect: the model learned popularity alone") == 1
    assert found.ids.tolist() == plain.ids.tolist()
    some = ratings.select_users(np.arange(5), by="index")
    lists, _ = popular.recommend_many(some, 10, diversity=beta)
    assert caplog.text.count("no effect") == 2
    assert np.array_equal(lists, popular.recommend_many(some, 10)[0])


def test_reasons_say_that_a_list_is_popularity(popular, model, profiled):
    history = popular.item_ids_[[3, 17]].tolist()
    item = popular.recommend(history, 1).ids[0]
    found = popular.explain(history, item)
    assert not found.scores.any()
    assert (
        str(found)
        .splitlines()[-1]
        .startswith(
            "This list is popularity: the same for all users, but for the items that they have."
        )
    )
    assert "<p>This list is popularity" in found._repr_html_()
    for personal in (model, profiled):
        assert personal.explain(history, item).note is None
        assert str(personal.explain([], item)) == "no contributions: the history has no items"


def test_the_command_says_that_a_list_is_popularity(popular, model, tmp_path, run):
    popular.save(tmp_path / "popular")
    model.save(tmp_path / "model")
    args = ["--history", popular.item_ids_[3], "--diversity", 1, "--why"]
    for more in ([], ["--json"]):
        found = run("recommend", tmp_path / "popular", *args, *more)
        assert found.code == 0
        assert "--diversity has no effect" in found.err
        assert "--why: This list is popularity: the same for all users" in found.err
        err = run("recommend", tmp_path / "model", *args, *more).err
        assert "no effect" not in err
        assert "popularity" not in err
