"""Scores as a release: the same scores without noise, honest intervals, one ledger entry, and a charged account."""

import json
import math

import numpy as np
import pytest

import discreet
from discreet.data.cinema import make_cinema
from discreet.data.splits import by_person, random_ratings
from discreet.errors import BudgetExceeded, ConfigError, NotFittedError, PrivacyError
from discreet.evaluation.metrics import parse
from discreet.evaluation.priced import MOMENTS, Layout, ratio
from research.score_coverage import coverage, crowd_of

METRICS = ["rmse", "mae", "recall@20", "ndcg@100"]


@pytest.fixture(scope="module")
def measured():
    split = by_person(make_cinema(seed=3, scale=0.075), seed=1)
    return discreet.ALS(4, iterations=3).fit(split.train), split


def columns(model, split, most_ratings, half=2.25):
    layout = Layout.of([parse(name) for name in METRICS])
    exact = discreet.evaluate(model, split, METRICS, slices=None)
    counts = np.diff(split.test.target.indptr)
    return exact, layout, layout.columns(exact.per_user, counts, half, most_ratings)


# ------------------------------------------------------------ without noise


def test_without_noise_and_bounds_that_bind_the_scores_are_the_exact_ones(measured):
    exact, layout, found = columns(*measured, most_ratings=10**6, half=50.0)
    scores = layout.read(found.sum(axis=0), 0.0, 0.95)
    assert 50 * math.sqrt(scores["rmse"].value) == pytest.approx(exact["rmse"])
    assert 50 * scores["mae"].value == pytest.approx(exact["mae"])
    for name in ("recall@20", "ndcg@100"):
        assert scores[name].value == pytest.approx(exact[name])
        assert scores[name].people == exact.n_ranked


def test_without_noise_intervals_are_those_of_the_standard_error(measured):
    exact, layout, found = columns(*measured, most_ratings=10**6, half=50.0)
    scores = layout.read(found.sum(axis=0), 0.0, 0.95)
    for name in ("recall@20", "ndcg@100"):
        width = (scores[name].high - scores[name].low) / (2 * 1.959964)
        assert width == pytest.approx(exact.stderr[name], rel=0.01)


def test_columns_stay_in_their_box(measured):
    model, split = measured
    _, layout, found = columns(model, split, most_ratings=2, half=0.1)
    assert (found >= 0).all()
    assert (found <= np.array(layout.most)).all()
    assert layout.most == (1, MOMENTS, 1, MOMENTS, MOMENTS, 1, MOMENTS, MOMENTS, 1, 1, MOMENTS, 1, MOMENTS)


def test_a_person_with_many_ratings_counts_as_a_few(measured):
    model, split = measured
    _, _, few = columns(model, split, most_ratings=2)
    counts = np.diff(split.test.target.indptr)
    assert np.array_equal(few[:, 0], np.minimum(counts, 2) / 2)


# ------------------------------------------------------------ intervals


def test_an_interval_is_wide_where_nothing_is_known():
    nothing = ratio(0.3, 0.5, (0.1, 0.1, 0.1), deviation=50.0, confidence=0.95)
    assert (nothing.low, nothing.high) == (0.0, 1.0)
    assert math.isnan(ratio(1.0, -2.0, (0.0, 0.0, 0.0), 1.0, 0.95).value)


def test_an_interval_solves_its_equation():
    q = 1.959963984540054
    found = ratio(300.0, 1000.0, (150.0, 300.0, 1000.0), deviation=20.0, confidence=0.95)
    for theta in (found.low, found.high):
        people = 150 - 2 * theta * 300 + theta**2 * 1000
        assert (300 - theta * 1000) ** 2 == pytest.approx(q**2 * (400 * (1 + theta**2) + people), rel=1e-6)
    assert found.low < 0.3 < found.high
    narrow = ratio(3e8, 1e9, (1e8, 3e8, 1e9), 1.0, 0.95)
    assert narrow.low < 0.3 < narrow.high < narrow.low + 1e-4


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Four metrics, 80 repetitions: below 66 of 80 has a probability of less than one in a million at 95 %."""
    crowd, layout = crowd_of(scale=0.1)
    for one in coverage(crowd, layout, people=1000, epsilon=1.0, repetitions=80, seed=5):
        assert one.held >= 66 / 80, one
        assert one.width > one.exact_width


# ------------------------------------------------------------ the release


def test_scores_are_one_release_with_a_ledger(measured):
    model, split = measured
    found = discreet.evaluate(model, split, METRICS, epsilon=1.0, delta=1e-7)
    (entry,) = found.privacy.ledger.entries
    assert (entry.name, entry.shape) == ("scores", (13,))
    assert entry.sensitivity == pytest.approx(math.hypot(*Layout.of([parse(m) for m in METRICS]).most))
    assert found.privacy.epsilon == pytest.approx(1.0)
    assert found.privacy.private
    assert set(found.values) == set(METRICS)
    assert all(low <= found[name] <= high for name, (low, high) in found.intervals.items())
    assert "released with noise" in str(found)
    json.dumps(found.to_dict())
    exact = discreet.evaluate(model, split, METRICS, slices=None)
    noise = 6 * found.noise  # six deviations
    for name in ("recall@20", "ndcg@100"):
        assert abs(found.people[name] - exact.n_ranked) < noise
        assert abs(found[name] * found.people[name] - exact[name] * exact.n_ranked) < noise * 1.01
    again = discreet.evaluate(model, split, METRICS, epsilon=1.0, delta=1e-7)
    assert again["recall@20"] != found["recall@20"]


def test_without_epsilon_the_output_says_that_it_is_a_look(measured):
    model, split = measured
    assert "a look at their data that no ε pays for" in str(discreet.evaluate(model, split))


def test_a_split_over_everybody_is_a_caution(measured):
    model, _ = measured
    split = random_ratings(make_cinema(seed=3, scale=0.015), seed=1)
    found = discreet.evaluate(model, split, "recall@20", epsilon=1.0)
    assert found.privacy.status == "private with cautions"
    assert "over all people together" in str(found.privacy)


def test_an_account_pays(measured, tmp_path):
    model, split = measured
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 1.0)
    found = discreet.evaluate(model, split, "recall@20", epsilon=0.9, budget=account)
    assert account.balance.spent == pytest.approx(found.privacy.mu**2, rel=1e-9)
    with pytest.raises(BudgetExceeded):
        discreet.evaluate(model, split, "recall@20", epsilon=0.9, budget=account)


def test_errors_of_measuring_say_nothing(measured):
    model, split = measured

    class Broken:
        feedback = "explicit"
        item_ids_ = model.item_ids_
        rating_range_ = (0.5, 5.0)

        def predict(self, ratings, pairs):
            raise ValueError(f"{ratings.n_users} users")

    with pytest.raises(PrivacyError) as caught:
        discreet.evaluate(Broken(), split, "rmse", epsilon=1.0)
    assert "1500" not in str(caught.value)
    assert caught.value.__context__ is None


def test_what_cannot_be_priced_is_refused(measured):
    model, split = measured
    for options, message in (
        ({"metrics": "coverage@20", "epsilon": 1.0}, "belongs to no single person"),
        ({"metrics": "rmse", "epsilon": 1.0, "most_ratings": 0}, "most_ratings"),
        ({"metrics": "rmse", "epsilon": 1.0, "confidence": 1.0}, "confidence"),
        ({"metrics": "rmse", "epsilon": -1.0}, "epsilon"),
        ({"metrics": "rmse", "budget": object()}, "give epsilon"),
    ):
        with pytest.raises(ConfigError, match=message):
            discreet.evaluate(model, split, **options)
    popular = discreet.Popularity().fit(split.train)
    with pytest.raises(ConfigError, match="public range"):
        discreet.evaluate(popular, split, "rmse", epsilon=1.0)
    with pytest.raises(NotFittedError):
        discreet.evaluate(discreet.ALS(4), split, epsilon=1.0)


# ------------------------------------------------------------ who is held out


def test_what_is_held_out_of_a_person_depends_on_nobody_else():
    ratings = make_cinema(seed=3, scale=0.01)
    whole = by_person(ratings, seed=7)
    some = np.arange(0, 200, 3)
    part = by_person(ratings.select_users(some), seed=7)
    for name in ("train", "test", "valid"):
        one = whole.train if name == "train" else whole.part(name).target
        other = part.train if name == "train" else part.part(name).target
        assert np.array_equal(one.select_users(some).indices, other.indices)
    share = whole.test.target.n_ratings / ratings.n_ratings
    assert abs(share - 0.1) < 6 * math.sqrt(0.09 / ratings.n_ratings)
    assert whole.apart
    assert by_person(ratings, seed=8).test.target.n_ratings != whole.test.target.n_ratings
