"""Tuning: one entry for all that was tried, nothing of the others, the price that was asked for."""

import itertools
import logging
import math

import numpy as np
import pyarrow as pa
import pytest

import discreet
from discreet.data.cinema import make_cinema
from discreet.errors import BudgetExceeded, ConfigError, DamagedStore, DataError
from discreet.evaluation import tuning
from discreet.evaluation.metrics import parse
from discreet.evaluation.tuning import Between, Tuning, goodness, tune
from discreet.privacy.accounting import gdp, private_selection
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.private_selection import Runs

SPACE = {"factors": [2, 3]}


@pytest.fixture(scope="module")
def ratings():
    return make_cinema(seed=1, scale=0.05)


def model(epsilon=8.0, **more):
    return discreet.DPMF(
        epsilon=epsilon, goal="rating", rating_range=(0.5, 5), iterations=2, **more
    )


# ------------------------------------------------------------ before any data


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson", "fixed"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_training_and_score_together_cost_what_was_asked_for(law, epsilon):
    prepared = Tuning(model(epsilon), SPACE, runs=5, distribution=law)
    assert prepared.plan().epsilon() == pytest.approx(epsilon, rel=1e-6)
    assert prepared.plan().epsilon() <= epsilon * (1 + 1e-9)
    for factors in SPACE["factors"]:
        plan = prepared.candidate({"factors": factors}).plan(800)
        training = accounting.total_mu(plan.events)
        assert training**2 <= prepared.mu**2 * 0.9 * (1 + 1e-9)
        assert training**2 == pytest.approx(prepared.mu**2 * 0.9, rel=1e-5)
    if law == "fixed":
        assert prepared.mu * math.sqrt(5) == pytest.approx(gdp.mu(epsilon, 1e-6), rel=1e-9)
    else:
        assert private_selection.epsilon(prepared.mu, Runs(5, law), 1e-6) <= epsilon * (1 + 1e-9)


def test_settings_are_of_the_model_or_of_its_algorithm():
    prepared = Tuning(model(), {"factors": [2], "rarity": [0.5, 0.7]}, runs=2)
    found = prepared.candidate({"factors": 2, "rarity": 0.7})
    assert found.make_algorithm().rarity == 0.7
    assert found.make_algorithm().factors == 2
    assert found.make_algorithm().iterations == 2
    whole = discreet.DPMF(
        epsilon=8, goal="rating", rating_range=(0.5, 5), algorithm=found.make_algorithm()
    )
    again = Tuning(whole, {"rarity": [0.6]}, runs=2).candidate({"rarity": 0.6})
    assert again.make_algorithm().rarity == 0.6
    assert again.make_algorithm().factors == 2


def test_ranges_are_drawn_within_their_ends():
    import random

    rng = random.Random(0)
    reals = [Between(1.0, 100.0).draw(rng) for _ in range(500)]
    assert 1 <= min(reals) < 2 < 50 < max(reals) <= 100
    assert 0.35 < np.mean(np.array(reals) < 10) < 0.65  # log-uniform
    whole = [Between(2, 9).draw(rng) for _ in range(300)]
    assert set(whole) == set(range(2, 10))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"space": {}}, "space must map parameters"),
        ({"space": {"factors": []}}, "Pass a list of values"),
        ({"space": {"factors": "16"}}, "Pass a list of values"),
        ({"space": {"epsilon": [1.0]}}, "part of the guarantee"),
        ({"space": {"factorz": [1]}}, "factorz"),
        ({"space": {"factors": [-1]}}, "factors"),
        ({"runs": 1}, "above 1"),
        ({"distribution": "composed"}, "choose one of"),
        ({"distribution": "fixed", "runs": 2.5}, "integer"),
        ({"metric": "coverage@20"}, "is no sum over users"),
        ({"held_out": 1.0}, "held_out"),
        ({"score_share": 0}, "score_share"),
        ({"space": lambda trials: {}}, "Use distribution='fixed'"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_looked_at(options, said):
    with pytest.raises(ConfigError, match=said):
        Tuning(model(), **({"space": SPACE, "runs": 3} | options))


def test_models_that_have_no_price_are_refused(ratings):
    with pytest.raises(ConfigError, match="private models"):
        tune(discreet.ALS(4), ratings, SPACE)
    with pytest.raises(ConfigError, match="secure noise"):
        tune(model(noise="seeded", random_state=1), ratings, SPACE)
    with pytest.raises(ConfigError, match="predicts none"):
        Tuning(discreet.DPMF(epsilon=1, rating_range=(0.5, 5)), SPACE, metric="rmse")
    with pytest.raises(ConfigError, match="not Gaussian sums over all users"):
        tune(discreet.DPSGD(2, epsilon=4, rating_range=(0.5, 5)), ratings, SPACE, runs=2)


RATING = {"goal": "rating", "iterations": 2}


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        (RATING, {"metric": "recall@20"}),
        ({}, {}),
        ({}, {"space": {"like_threshold": [None, 4.0], "factors": [2]}}),
    ],
    ids=["rating", "ranking", "one setting of two"],
)
def test_a_threshold_that_ratings_decide_is_refused_before_any_data(parameters, options):
    with pytest.raises(ConfigError, match="threshold of ranking scores"):
        Tuning(discreet.DPMF(epsilon=8, **parameters), **({"space": SPACE} | options))


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        (RATING, {"metric": "recall@20", "relevant": 4}),
        (RATING | {"rating_range": (0.5, 5)}, {"metric": "recall@20"}),
        (RATING, {}),
        ({}, {"relevant": 4}),
        ({"rating_range": (0.5, 5)}, {}),
        ({}, {"space": {"like_threshold": [4.0, "everything"]}}),
    ],
)
def test_a_public_threshold_is_taken(parameters, options):
    Tuning(discreet.DPMF(epsilon=8, **parameters), **({"space": SPACE} | options))


def test_composed_tuning_refuses_such_a_threshold_before_the_account_pays(ratings, tmp_path):
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 10.0)
    open_range = discreet.DPMF(epsilon=1)
    with pytest.raises(ConfigError, match="threshold of ranking scores"):
        tune(open_range, ratings, lambda trials: {}, runs=2, distribution="fixed", account=account)
    assert account.balance.spent == 0


def test_a_bad_range():
    for ends in ((0, 1), (2, 1), (1, math.inf)):
        with pytest.raises(ConfigError, match="a range goes from"):
            Between(*ends)


# ------------------------------------------------------------ the score


def test_what_a_person_adds_lies_between_0_and_1_and_more_is_better():
    errors = np.array([0.0, 1.0, 2.0, 9.0, np.nan])
    for name in ("rmse", "mae"):
        found = goodness(errors, parse(name), (1.0, 5.0))
        assert found[0] == 1.0
        assert found[3] == found[4] == found[2] == 0.0
        assert (np.diff(found) <= 0).all()
    assert goodness(np.array([0.25, np.nan]), parse("recall@20"), None).tolist() == [0.25, 0.0]


# ------------------------------------------------------------ with data


def test_only_the_winner_leaves_with_one_entry(ratings, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Runs, "draw", lambda self: 3)
    tried = []
    original = Tuning._try

    def watched(self, setting, split):
        found = original(self, setting, split)
        logging.getLogger("discreet").warning("loud")
        tried.append((setting, found[1]))
        return found

    monkeypatch.setattr(Tuning, "_try", watched)
    found = tune(model(), ratings, {"factors": [2, 3, 4, 5]}, runs=3)
    assert len(tried) == 3
    assert found.score == max(score for _, score in tried)
    assert found.setting == max(tried, key=lambda pair: pair[1])[0]
    assert found.trials == ()
    (entry,) = found.model.privacy_.ledger.entries
    assert (entry.law, entry.runs) == ("geometric", 3)
    assert found.privacy.epsilon == pytest.approx(8.0, rel=1e-6)
    assert found.privacy.mu is None
    assert found.privacy.private
    assert "best of a secret number of trainings, 3 on average" in str(found.privacy)
    assert "factors of 2, 3, 4, 5" in str(found.privacy)
    assert "loud" not in caplog.text
    found.model.save(tmp_path / "m")
    again = discreet.load(tmp_path / "m")
    assert again.privacy_.epsilon == found.privacy.epsilon
    assert again.privacy_.ledger.entries == found.privacy.ledger.entries


def test_a_training_that_gives_up_is_the_worst(ratings, monkeypatch):
    monkeypatch.setattr(Runs, "draw", lambda self: 6)
    calls = []
    original = discreet.DPMF.fit

    def fit(self, *given, **more):
        calls.append(self.factors)
        if len(calls) != 4:
            raise BudgetExceeded("too little")
        return original(self, *given, **more)

    monkeypatch.setattr(discreet.DPMF, "fit", fit)
    found = tune(model(), ratings, SPACE, runs=3)
    assert found.setting["factors"] == calls[3]
    calls.clear()
    monkeypatch.setattr(Runs, "draw", lambda self: 2)
    with pytest.raises(ConfigError, match="All trainings gave up") as caught:
        tune(model(), ratings, SPACE, runs=3)
    assert "2" not in str(caught.value)


def test_what_was_spent_is_known_also_after_an_interrupt(ratings, monkeypatch):
    def stop(self, setting, split):
        raise KeyboardInterrupt

    monkeypatch.setattr(Tuning, "_try", stop)
    prepared = Tuning(model(), SPACE, runs=3)
    with pytest.raises(KeyboardInterrupt):
        prepared.run(ratings)
    assert prepared.privacy_.epsilon == pytest.approx(8.0, rel=1e-6)


def test_ties_are_decided_by_lot(ratings, monkeypatch):
    monkeypatch.setattr(Runs, "draw", lambda self: 2)
    monkeypatch.setattr(Tuning, "_score", lambda self, fitted, split: 1.0)
    monkeypatch.setattr(discreet.DPMF, "fit", lambda self, given, **more: self)
    monkeypatch.setattr(Tuning, "_winner", lambda self, fitted, setting, *rest: setting["factors"])
    order = itertools.cycle([2, 3])
    monkeypatch.setattr(Tuning, "_setting", lambda self, trials: {"factors": next(order)})
    prepared = Tuning(model(), SPACE, runs=3)
    order = itertools.cycle([2, 3])
    monkeypatch.setattr(Tuning, "_check_price", lambda self, candidate, n: None)
    found = [prepared.run(ratings) for _ in range(50)]
    assert 5 < found.count(2) < 45  # at even odds, beyond has a probability below 1e-8


def test_composed_runs_are_shown_and_an_account_pays(ratings, tmp_path):
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 10.0)
    seen = []

    def choose(trials):
        seen.append(len(trials))
        return {"factors": 2 + len(trials)}

    found = tune(model(), ratings, choose, runs=3, distribution="fixed", account=account)
    assert seen == [0, 1, 2]
    assert [trial.setting["factors"] for trial in found.trials] == [2, 3, 4]
    assert found.score == max(trial.score for trial in found.trials)
    assert len(found.privacy.ledger.entries) == 3
    assert account.balance.spent == pytest.approx(gdp.mu(8.0, 1e-6) ** 2, rel=1e-6)
    with pytest.raises(discreet.errors.PrivacyError, match="no price in μ"):
        tune(model(1.0), ratings, SPACE, runs=3, account=account)


def test_scores_are_noisy_and_of_the_promised_size(ratings, monkeypatch):
    """The same model, scored again and again: the spread is one over the μ of the score."""
    prepared = Tuning(model(), SPACE, runs=3, score_share=0.2)
    split = tuning.by_person(ratings, (0.9, 0.1), seed=1)
    fitted = prepared.candidate({"factors": 2}).fit(split.train)
    scores = [prepared._score(fitted, split) for _ in range(60)]
    expected = 1 / (prepared.mu * math.sqrt(0.2))
    assert 0.55 * expected < np.std(scores) < 1.6 * expected  # 60 draws: beyond six deviations


def test_without_a_held_out_rating_zeros_are_measured(ratings):
    """Also without any rating or any user: no number of them is told by an error."""
    nothing = ratings.keep(np.zeros(ratings.n_ratings, bool))
    ranking = discreet.DPMF(epsilon=8, rating_range=(0.5, 5))
    for data in (nothing, nothing.select_users([])):
        found = tune(ranking, data, SPACE, runs=2, distribution="fixed")
        assert [math.isfinite(trial.score) for trial in found.trials] == [True, True]


@pytest.mark.parametrize("metric", ["rmse", "mae", "recall@20", "ndcg@2000"])
def test_a_score_is_released_whatever_was_held_out(ratings, metric, monkeypatch):
    seen = []
    original = tuning.seal_values

    def watch(measure):
        seen.append(measure())
        return original(lambda: seen[-1])

    monkeypatch.setattr(tuning, "seal_values", watch)
    prepared = Tuning(model(), SPACE, runs=3, metric=metric)
    split = tuning.by_person(ratings, (0.9, 0.1), seed=1)
    fitted = prepared.candidate({"factors": 2}).fit(split.train)
    nothing = ratings.keep(np.zeros(ratings.n_ratings, bool))
    unknown = ratings.with_items([*ratings.item_ids.tolist()[:9], -1], "drop")
    alone = ratings.select_users(np.arange(1))
    for data in (nothing, nothing.select_users([]), alone, unknown):
        assert math.isfinite(prepared._score(fitted, tuning.by_person(data, (0.5, 0.5), seed=1)))
        assert seen[-1].shape == (data.n_users, 1)
    assert not seen[0].any()
    assert not seen[1].any()


def test_a_bad_user_column_is_refused_before_the_account_is_charged(tmp_path):
    rng = np.random.default_rng(0)
    rows = pa.table({"item": rng.integers(0, 30, 900), "stars": rng.integers(1, 6, 900)})
    stars = discreet.Ratings.from_frame(rows, user="stars", item="item", rating=False)
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 20.0)
    with pytest.raises(DataError, match="user column has fewer than 100"):
        tune(
            discreet.DPMF(epsilon=1),
            stars,
            SPACE,
            runs=2,
            distribution="fixed",
            relevant=1,
            account=account,
        )
    assert [record.kind for record in account.log()] == ["open"]


def test_tuning_notices_that_an_older_copy_of_the_account_was_put_back(ratings, tmp_path):
    store = discreet.BudgetStore(tmp_path / "people.sqlite")
    account = store.open("guests", 40.0)
    store.backup(tmp_path / "older.sqlite")
    charged = model(20.0).fit(ratings, account=account, progress=False)
    (tmp_path / "older.sqlite").replace(store.path)
    with pytest.raises(DamagedStore, match="older copy"):
        tune(charged, ratings, SPACE, runs=1, distribution="fixed", account=account)
    assert len(account.log()) == 1
