"""DPALS by noisy solves: without noise it is ALS; with the paper's noise it costs what the
paper should have said.
"""

import logging
from dataclasses import fields

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.engines import LocalRatings
from discreet.errors import BudgetExceeded, ConfigError, DataError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.release.session import Session
from discreet.privacy.release.unsafe import NoNoise
from discreet.privacy.users.item_sampling import sample, user_keys
from research.papers import DPALS_TABLE_4


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((200, 30)) < 0.4)
    taste = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 30))
    stars = np.clip(np.round(3 + taste[user, item]), 1, 5)
    return discreet.Ratings.from_arrays(user, item, stars, item_ids=range(30))


def open_wide(**changes):
    """Bounds so wide that nothing is cut, and none of what the paper does not have."""
    given = dict(
        user_norm=1e3,
        max_items=30,
        item_fraction=1.0,
        rating_bound=1e3,
        rating_range=(1, 5),
        intercept=0.0,
        noise_ridge=0.0,
        user_exponent=0.0,
        item_exponent=0.0,
        recount=False,
        noise=NoNoise(),
        iterations=3,
        epsilon=1.0,
        random_state=0,
    )
    return discreet.DPALS.configure(factors=4, **(given | changes))


def test_without_noise_and_bounds_it_is_als_explicit(ratings):
    mean = float(ratings.values.mean())
    same = dict(regularization=2.0, initial_scale=0.3)
    twin = discreet.ALS(
        4, iterations=3, user_exponent=0, item_exponent=0, intercepts=False, **same
    ).fit(ratings)
    model = open_wide(centering=mean, **same).fit(ratings)
    np.testing.assert_allclose(
        model.item_factors_, twin.item_factors_, atol=2e-3 * np.abs(twin.item_factors_).max()
    )
    np.testing.assert_allclose(
        model.predict(ratings, ratings), twin.predict(ratings, ratings), atol=2e-3
    )
    assert model.privacy_.epsilon == np.inf
    assert "NOT PRIVATE" in str(model.privacy_)


def test_without_noise_and_bounds_it_is_als_implicit(ratings):
    same = dict(goal="ranking", regularization=1.5, unobserved_weight=0.3, initial_scale=0.1)
    twin = discreet.ALS(4, iterations=3, user_exponent=0, item_exponent=0, **same).fit(ratings)
    model = open_wide(**same).fit(ratings)
    np.testing.assert_allclose(
        model.item_factors_, twin.item_factors_, atol=2e-3 * np.abs(twin.item_factors_).max()
    )
    assert np.array_equal(model.recommend_many(ratings, 5)[0], twin.recommend_many(ratings, 5)[0])


@pytest.mark.parametrize("column", DPALS_TABLE_4, ids=lambda c: f"{c.data}-{c.label:g}")
def test_the_papers_noise_is_priced_as_it_should_have_been(column):
    """The plan of a model with the table's sigmas costs what the corrected theorem says, by
    both conversions.
    """
    counts = column.sigma_counts
    sigmas = {
        "counts": counts,
        "recounts": counts,
        "gram": column.sigma_gram,
        "sum": column.sigma_rhs,
    }
    model = discreet.DPALS.configure(
        factors=4,
        epsilon=1e4,
        delta=column.delta,
        iterations=column.iterations,
        max_items=column.max_items,
        sigmas=sigmas,
    )
    for accountant in ("gdp", "rdp"):
        # users center by themselves
        expected = accounting.epsilon(column.events()[:3], column.delta, accountant)
        assert model.plan(1000).epsilon(accountant) == pytest.approx(expected, rel=1e-6)


def test_erratum_03_centering_costs_k_and_not_the_root_of_k():
    """With the paper's noise, √k Γ_M σ_p on a sum that moves by k Γ_M, a release of the sum has
    multiplier σ_p / √k.
    """
    sigmas = dict.fromkeys(
        ("counts", "recounts", "center sum", "center count", "gram", "sum"), 20.0
    )
    plan = discreet.DPALS.configure(
        epsilon=1e4, factors=4, max_items=50, sigmas=sigmas, centering="global"
    ).plan(100)
    assert plan.noise_multiplier("center sum") == pytest.approx(20 / 50**0.5)


def test_noise_that_costs_more_than_the_epsilon_given_is_refused():
    sigmas = dict.fromkeys(("counts", "recounts", "gram", "sum"), 20.0)
    model = discreet.DPALS.configure(factors=4, epsilon=1e4, delta=1e-5, sigmas=sigmas)
    cost = model.plan(100).budget.epsilon
    assert model.set_params(epsilon=cost).plan(100).epsilon() == pytest.approx(cost)
    with pytest.raises(
        ConfigError, match=rf"sigmas cost ε = {cost:.4g}, which is above epsilon = 1. Raise one"
    ):
        model.set_params(epsilon=1.0).plan(100)


def test_a_fit_releases_its_plan_and_nothing_else(ratings):
    model = discreet.DPALS.configure(
        factors=4, epsilon=50.0, rating_range=(1, 5), item_fraction=0.5, centering="global"
    ).fit(ratings)
    assert [e.name for e in model.privacy_.ledger.entries] == [
        "counts",
        "center sum",
        "center count",
        "recounts",
        "sum",
        "gram",
        "sum",
        "gram",
    ]
    assert model.privacy_.epsilon == pytest.approx(50.0, rel=1e-6)
    assert model.privacy_.noise == "secure"
    assert model.item_factors_.shape == (30, 4)
    assert (model.item_factors_ != 0).any(axis=1).sum() == 15


def test_items_without_factors_are_predicted_by_the_users_own_mean(ratings):
    for centering in ("user", "global", 3.0):
        model = discreet.DPALS.configure(
            factors=4, epsilon=50.0, rating_range=(1, 5), item_fraction=0.5, centering=centering
        ).fit(ratings)
        frequent = np.isin(np.arange(30), model.details_["frequent"])
        assert frequent.sum() == 15
        tail = ratings.item_ids[~frequent][0]
        history = {
            int(i): 5.0 if n % 2 else 4.0 for n, i in enumerate(ratings.item_ids[frequent][:6])
        }
        one = discreet.Ratings.from_arrays([0] * 6, list(history), list(history.values()))
        # three ratings of the middle count toward a user's mean
        own = (27.0 + 9.0) / 9 if centering == "user" else 4.5
        assert model.predict(one, [(0, tail)])[0] == pytest.approx(own, abs=1e-5)


def test_a_budget_that_cannot_support_the_request_is_refused_in_a_sentence(ratings):
    same = dict(epsilon=0.001, rating_range=(1, 5), noise="seeded", random_state=0)
    for model, advice in (
        (
            discreet.DPMF(8, goal="rating", **same),
            r"epsilon \(what was released has been charged",
        ),
        (discreet.DPALS(8, **same), "Raise epsilon or lower factors"),
    ):
        with pytest.raises(
            BudgetExceeded, match=rf"ε = 0.001 is too little for so few users: .* {advice}"
        ):
            model.fit(ratings)


def test_little_signal_is_warned_about(ratings, caplog):
    with caplog.at_level(logging.WARNING, "discreet"):
        model = discreet.DPALS(
            4, epsilon=1.2, rating_range=(1, 5), item_fraction=1.0, noise="seeded", random_state=0
        )
        model.fit(ratings)
    assert "less signal than noise" in caplog.text
    assert set(model.details_["signal_to_noise"]) == {"10 %", "50 %", "90 %", "average"}


def test_a_range_read_from_the_data_is_a_caution(ratings):
    model = discreet.DPALS(2, epsilon=50.0).fit(ratings)
    assert [a.name for a in model.privacy_.assumptions if a.inferred] == ["ratings"]
    assert "CAUTION" in str(model.privacy_)
    assert "CAUTION" not in str(
        discreet.DPALS(2, epsilon=50.0, rating_range=(1, 5)).fit(ratings).privacy_
    )


def test_options_of_the_paper(ratings):
    model = discreet.DPALS.configure(
        factors=3, epsilon=50.0, rating_range=(1, 5), orthonormalize=True, intercept=0.0
    ).fit(ratings)
    V = model.item_factors_
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-4)
    for option in (
        dict(initialization="spectral"),
        dict(resample=True),
        dict(sampling="uniform"),
        dict(projection=False),
        dict(neighboring="replace-one"),
        dict(recount=False),
        dict(isometric=False),
    ):
        model = discreet.DPALS.configure(
            factors=3, epsilon=50.0, rating_range=(1, 5), **option
        ).fit(ratings)
        assert np.isfinite(model.item_factors_).all()
        assert model.privacy_.epsilon == pytest.approx(50.0, rel=1e-6)
    model = discreet.DPALS.configure(factors=3, epsilon=50.0, initialization="spectral").fit(
        ratings
    )
    assert "initial" in [entry.name for entry in model.privacy_.ledger.entries]


def test_seeds(ratings):
    def fit(**k):
        return discreet.DPALS(3, epsilon=20.0, rating_range=(1, 5), **k).fit(ratings).item_factors_

    assert np.array_equal(fit(noise="seeded", random_state=0), fit(noise="seeded", random_state=0))
    assert not np.array_equal(
        fit(noise="seeded", random_state=0), fit(noise="seeded", random_state=1)
    )
    assert not np.array_equal(fit(), fit()), "secure noise never repeats"
    assert not np.array_equal(fit(random_state=0), fit(random_state=0)), (
        "nor with a seed, which is of the start"
    )
    with pytest.raises(ConfigError, match="noise='seeded' needs a seed"):
        fit(noise="seeded")


def test_released_counts_are_kept_and_about_what_was_counted(ratings, tmp_path):
    true = np.bincount(ratings.indices, minlength=30)
    same = dict(epsilon=1e4, rating_range=(1, 5), noise="seeded", random_state=0)
    uniform = discreet.DPALS.configure(factors=2, sampling="uniform", **same)
    for model, off in ((uniform, 0.01), (discreet.DPMF(2, **same, goal="rating"), 0.8)):
        model.fit(ratings)
        assert model.counts_.dtype == np.float64
        # people of 12 ratings each weigh more than those of 30
        assert np.abs(model.counts_ / true - 1).max() < off
        assert np.corrcoef(model.counts_, true)[0, 1] > 0.9
        model.save(tmp_path / "model", replace=True)
        assert np.array_equal(discreet.load(tmp_path / "model").counts_, model.counts_)


def test_counts_of_other_items_are_refused(ratings, tmp_path, monkeypatch):
    model = discreet.DPALS(2, epsilon=50.0, rating_range=(1, 5)).fit(ratings)
    wrong = model.state() | {"counts": [1.0]}
    monkeypatch.setattr(model, "state", lambda: wrong)
    model.save(tmp_path / "wrong")
    with pytest.raises(DataError, match="released counts and item ids differ in number"):
        discreet.load(tmp_path / "wrong")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(factors=-1), "factors is -1, but must be a whole number of at least 1"),
        (dict(factors=0), "factors is 0, but must be a whole number of at least 1"),
        (dict(goal="both"), "goal is 'both', but must be 'rating' or 'ranking'"),
        (dict(centering="item"), "centering is 'item'"),
        (dict(item_fraction=0.0), "item_fraction is 0.0"),
        (dict(rating_range=(5, 1)), "rating_range"),
        (dict(sigmas={"gram": 1.0}), "sigmas needs a positive number for"),
        (
            dict(sigmas={"gram": 1.0}, shares={"gram": 1.0}),
            "Pass either sigmas or shares",
        ),
        (dict(epsilon=-1.0), "epsilon=-1.0"),
        (dict(noise="loud"), "noise='loud'"),
        (dict(epsilon="a"), "epsilon='a'"),
        (
            dict(shares={"bogus": 0.5}),
            "shares names 'bogus', but the releases are counts, recounts, gram, sum",
        ),
        (
            dict(shares={"gram": 0.5, "gram 1": 0.5}),
            "shares names 'gram 1', but the releases are counts, recounts, gr",
        ),
        (
            dict(growth=2.0, shares={"gram 1": 0.5}),
            "shares names 'gram 1', but the releases are counts, recounts, gra",
        ),
        (dict(intercept=1.0), "intercept is 1.0 of the norm, but must be below 1"),
        (dict(epsilon=1e300), "epsilon=1e.300 guarantees nothing"),
        (dict(recount="yes"), "recount is 'yes', but must be True or False"),
        (dict(shares={"gram": "much"}), "shares has 'much' for 'gram'"),
        (dict(shares=0.5), "shares is 0.5, but must be a mapping"),
        (dict(user_norm=float("inf")), "user_norm is inf, but must be a finite number"),
        (dict(user_norm="a"), "user_norm is 'a', but must be a number"),
        (dict(growth=1e9), "growth is 1000000000.0, but must lie between 0.01 and 100"),
        (dict(sigmas=5), "sigmas is 5, but must be a mapping"),
        (dict(centering=float("nan")), "centering is nan"),
    ],
)
def test_wrong_parameters_are_named(ratings, wrong, message):
    with pytest.raises(ConfigError, match=message):
        discreet.DPALS.configure(**(dict(epsilon=1.0) | wrong)).fit(ratings)


@pytest.mark.parametrize(("fraction", "most"), [(1.0, 30), (0.5, 15)])
def test_a_spectral_start_with_too_few_items_is_refused_early(ratings, monkeypatch, fraction, most):
    monkeypatch.setattr(Session, "release", lambda *_, **__: pytest.fail("released"))
    model = discreet.DPALS.configure(
        factors=most + 1, epsilon=50.0, initialization="spectral", item_fraction=fraction
    )
    with pytest.raises(
        ConfigError, match=f"factors is {most + 1}, but a spectral start has at most {most}"
    ):
        model.fit(ratings)


def test_it_learns_more_than_a_users_own_mean():
    """On 4,000 invented people, at a budget where there is something to learn."""
    split = random_ratings(discreet.load_dataset("cinema", scale=0.2), (0.9, 0.1), seed=0)
    alone = discreet.evaluate(
        discreet.Bias(3.0, items=False).fit(split.train), split, ["rmse"], slices=None
    )["rmse"]
    model = discreet.DPALS(
        8, epsilon=10.0, rating_range=(0.5, 5), noise="seeded", random_state=0
    ).fit(split.train)
    assert discreet.evaluate(model, split, ["rmse"], slices=None)["rmse"] < alone - 0.02


# ------------------------------------------------------------ options of the paper's analysis


def test_stages_learn_more_factors_one_after_the_other(ratings):
    algorithm = open_wide(iterations=4, stages=2).resolve(30)
    assert [algorithm._active(step) for step in range(4)] == [2, 2, 4, 4]
    assert [open_wide(iterations=3, stages=3).resolve(30)._active(step) for step in range(3)] == [
        2,
        3,
        4,
    ]
    assert [open_wide().resolve(30)._active(step) for step in range(3)] == [4, 4, 4]
    plain = dict(centering=3.0, regularization=2.0, initial_scale=0.3)
    staged = open_wide(iterations=4, stages=2, **plain).fit(ratings)
    half = discreet.DPALS.configure(
        **(_settings(open_wide(iterations=2, **plain)) | {"factors": 2})
    ).fit(ratings)
    errors = {
        name: float(np.sqrt(np.mean((model.predict(ratings, ratings) - ratings.values) ** 2)))
        for name, model in {
            "staged": staged,
            "half": half,
            "plain": open_wide(iterations=4, **plain).fit(ratings),
        }.items()
    }
    assert errors["staged"] < 0.9 * errors["half"], (
        "the second stage learns what the first has left"
    )
    assert errors["staged"] < 1.1 * errors["plain"]


def _settings(model):
    own = {name: value for name, value in model.get_params().items() if name != "algorithm"}
    inner = {field.name: getattr(model.algorithm, field.name) for field in fields(model.algorithm)}
    return {name: value for name, value in (own | inner).items() if value is not None}


def test_users_may_solve_with_a_part_of_their_histories(ratings):
    plain = dict(centering=3.0, regularization=2.0, initial_scale=0.3)
    whole = open_wide(**plain).fit(ratings)
    part = open_wide(user_sampling=True, **plain).fit(ratings)
    assert not np.allclose(whole.item_factors_, part.item_factors_)
    assert [e.sensitivity for e in part.privacy_.ledger.entries] == [
        e.sensitivity for e in whole.privacy_.ledger.entries
    ]
    again = open_wide(user_sampling=True, **plain).fit(LocalRatings(ratings, 7))
    np.testing.assert_allclose(part.item_factors_, again.item_factors_, rtol=1e-5, atol=1e-6)


def test_a_users_sample_is_its_own_and_has_its_share():
    rng = np.random.default_rng(0)
    counts = rng.integers(20, 60, 300)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    items = np.concatenate([rng.permutation(100)[:n] for n in counts]).astype(np.int32)
    keys = user_keys(np.arange(300), 0)
    first = sample(indptr, items, keys, 1 / 3, 0)
    assert abs(first.mean() - 1 / 3) < 6 * np.sqrt(2 / 9 / len(items))
    assert abs((first & sample(indptr, items, keys, 1 / 3, 1)).mean() - 1 / 9) < 6 * np.sqrt(
        8 / 81 / len(items)
    )
    some = slice(indptr[100], indptr[200])
    alone = sample(indptr[100:201] - indptr[100], items[some], keys[100:200], 1 / 3, 0)
    assert np.array_equal(alone, first[some]), "what others have rated makes no difference"


@pytest.mark.parametrize(
    ("given", "words"), [(dict(stages=0), "stages"), (dict(stages=4, iterations=3), "stages is 4")]
)
def test_stages_that_cannot_be_are_refused(ratings, given, words):
    with pytest.raises(ConfigError, match=words):
        open_wide(**given).fit(ratings)
