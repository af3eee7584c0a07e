"""Item steps on residuals: against the equations written out in numpy, and what they are for."""

import math

import numpy as np
import pytest

import discreet
from discreet.data.cinema import genre_matrix
from discreet.data.splits import random_ratings
from discreet.errors import BudgetExceeded, ConfigError
from discreet.kernels import threads
from discreet.models.algorithms.residual_gradient import project, settle, usual_rank
from discreet.privacy.door.unsafe import NoNoise
from discreet.testing import check_private_model, rule_names

SAME = dict(goal="rating", epsilon=3.0, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=0)


@pytest.fixture(scope="module")
def cinema():
    return random_ratings(discreet.load_dataset("cinema", scale=0.1), (0.8, 0.1, 0.1), seed=5)


# ---------------------------------------------------------------------- the equations


def written_out(model, ratings, factors, T, iota=None):
    """Equations (1) to (3) on dense matrices, without noise, but with estimates that expect it."""
    n, m = ratings.n_items, ratings.n_users
    Y, M = ratings.to_csr().toarray().astype(float), np.zeros((m, n), bool)
    M[np.repeat(np.arange(m), np.diff(ratings.indptr)), ratings.indices] = True
    Y = np.where(M, Y - 2.75, 0.0)
    sd = {row["name"]: row["deviation"] for row in model.price_list(n)}
    G, ridge = 0.9, 8.0
    mean = np.clip(Y.sum(axis=1) / np.maximum(M.sum(axis=1), 1) / 2.25, -1, 1).mean() * 2.25
    mean /= 1 + 16 * (sd["size"] / m) ** 2

    def weights(q):
        q = np.where(M, q, 0.0)
        return np.sqrt(q / np.maximum(q.sum(axis=1, keepdims=True), 1e-300))

    def solve(V, b):
        o, U = np.zeros(m), np.zeros((m, V.shape[1]))
        for i in range(m):
            A = np.hstack([np.ones((M[i].sum(), 1)), V[M[i]]])
            y = Y[i, M[i]] - b[M[i]] - mean
            x = np.linalg.solve(A.T @ A + np.diag([3.0, *[ridge] * V.shape[1]]), A.T @ y)
            o[i], U[i] = x[0] + mean, x[1:]
        long = np.linalg.norm(U, axis=1, keepdims=True)
        return o, np.where(long > 1e-12, U / np.maximum(long, 1e-12), 0)

    def residuals(W, predicted):
        E = np.where(M, W * (predicted - Y), 0.0)
        return E * np.minimum(1, G / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), 1e-300))

    first = weights(np.ones(n)).sum(axis=0)
    least = max(sd["counts"], 0.5)
    W = weights(np.maximum(first, least) ** -0.6)
    c = np.maximum(W.sum(axis=0), sd["recounts"] / 2)[:, None]
    spread = m / max(first.sum(), m) * G**2
    b, z, precision = np.zeros(n), 0.0, 0.0
    for _ in range(3):
        o, _ = solve(np.zeros((n, 0)), b)
        g = residuals(W, o[:, None] + b).sum(axis=0)
        z, precision = z + (c[:, 0] * b - g) / sd["bias"] ** 2, precision + sd["bias"] ** -2
        b = settle((z / precision)[:, None], c, 1 / precision, spread, 1.0, G, 0.0)[:, 0]
    steps = [sd[f"gradient {t + 1}"] / G for t in range(T)]
    if iota is None:
        iota = float(np.clip(1.05 - 0.027 * c.mean() * math.sqrt(sum(s**-2 for s in steps)), 0.5, 0.9))
    rho = math.sqrt(1 - iota**2)
    V = 0.3 * np.random.default_rng(0).standard_normal((n, factors))
    Z, P, paid = 0.0, 0.0, 0.0
    for t in range(T):
        o, U = solve(V, b)
        E = residuals(W, o[:, None] + U @ V.T + b)
        s2 = sd[f"gradient {t + 1}"] ** 2
        g, K = E.T @ (rho * U), rho**2 * U.T @ U / m
        z, precision = z + (c[:, 0] * b - E.sum(axis=0)) * iota**2 / s2, precision + iota**2 / s2
        Z, P, paid = Z / 4 + (c * (V / rho @ K) - g) / s2, P / 4 + K / s2, paid / 16 + 1 / s2
        if iota:
            b = settle((z / precision)[:, None], c, 1 / precision, spread, 1.0, G, 0.0)[:, 0]
        s, Q = np.linalg.eigh(P / paid)
        s = np.maximum(s, sd["balance"] / m)
        V = rho * settle(Z @ Q / paid, c * s, 1 / paid, spread, 3.0, G) @ Q.T
    return V, b, iota


@pytest.mark.parametrize(("epsilon", "given"), [(2.0, None), (40.0, None), (40.0, 0.0), (40.0, 0.7)])
def test_without_noise_it_is_what_the_equations_say(epsilon, given):
    """Also where much noise is to be expected, and where biases take no part in the steps."""
    ratings = discreet.load_dataset("cinema", scale=0.02)
    same = SAME | dict(epsilon=epsilon, noise=NoNoise(), intercept="by signal" if given is None else given)
    model = discreet.DPMF.configured(factors=3, iterations=4, popularity=False, **same)
    V, b, iota = written_out(model, ratings, 3, 4, given)
    model.fit(ratings)
    assert (iota > 0.89) == (epsilon == 2.0)
    np.testing.assert_allclose(model.item_biases_, b, atol=2e-4 * np.abs(b).max())
    np.testing.assert_allclose(model.item_factors_, V, atol=2e-3 * np.abs(V).max())


def test_an_estimate_goes_to_its_prior_mean_where_there_is_nothing_but_noise():
    rng = np.random.default_rng(0)
    S = np.full((4000, 2), 2.0)
    x = rng.normal(size=(4000, 2)) * [1.0, 0.0]
    found = settle(S * x + rng.normal(size=(4000, 2)), S, 1.0, 0.0, 1.0, 2.0)
    assert np.abs(found[:, 1]).max() < 0.3
    np.testing.assert_allclose(((found[:, 0] - x[:, 0]) ** 2).mean(), 1 / (1 + 4), rtol=0.1)  # the least there is
    assert np.linalg.norm(project(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0), axis=1) == pytest.approx([1.0, 0.5])


# ---------------------------------------------------------------------- the promise


def test_all_of_the_budget_is_spent_and_later_steps_get_more():
    plan = discreet.DPMF.configured(factors=3, epsilon=2.0, delta=1e-5, iterations=4, growth=3.0, goal="rating").plan(
        100
    )
    spent = [plan.noise_multiplier(f"gradient {step}") ** -2 for step in (1, 2, 3, 4)]
    np.testing.assert_allclose(np.array(spent[1:]) / spent[:-1], 3.0)
    assert plan.epsilon() == pytest.approx(2.0, rel=1e-6)
    same = dict(factors=3, epsilon=2.0, delta=1e-5, iterations=4)
    for growth in (1.0, 3.0):
        usual = discreet.DPMF.configured(**same, growth=growth, goal="rating").plan(100)
        less = discreet.DPMF.configured(**same, growth=growth, shares={"gradient": 0.4}, goal="rating").plan(100)
        assert less.epsilon() == pytest.approx(2.0, rel=1e-6)
        name = "gradient" if growth == 1 else "gradient 4"
        assert less.noise_multiplier(name) > usual.noise_multiplier(name)
        assert less.noise_multiplier("counts") < usual.noise_multiplier("counts")


def test_rank_follows_the_budget():
    shapes = {e: discreet.DPMF(epsilon=e, delta=1e-5, goal="rating").plan(50).releases[-1].shape for e in (1.0, 20.0)}
    assert shapes == {1.0: (50, 6 + 1), 20.0: (50, 8 + 1)}
    assert (usual_rank(1e-6), usual_rank(1e6)) == (4, 8)


def test_a_fit_releases_its_plan_and_nothing_else():
    ratings = discreet.load_dataset("cinema", scale=0.02)
    model = discreet.DPMF(2, epsilon=5.0, rating_range=(0.5, 5.0), iterations=2, goal="rating").fit(ratings)
    assert [e.name for e in model.privacy_.ledger.entries] == [
        "size",
        "counts",
        "recounts",
        "bias",
        "bias",
        "bias",
        "balance",
        "gradient 1",
        "balance",
        "gradient 2",
    ]
    assert model.privacy_.epsilon == pytest.approx(5.0, rel=1e-6)
    assert model.privacy_.noise == "secure"


OPTIONS = {
    "usual": {},
    "replace-one": {"neighbouring": "replace-one", "centring": 3.0, "momentum": 0.5, "stretch": False},
    "intercept, steps alike": {"intercept": 0.3, "growth": 1.0, "popularity": False},
    "no biases, range from data": {"bias_iterations": 0, "rating_range": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_it_keeps_every_rule(name):
    threads.set_threads(1)
    try:
        given = {"factors": 3, "epsilon": 4.0, "rating_range": (1.0, 5.0), "iterations": 3} | OPTIONS[name]
        rules = [rule for rule in rule_names() if name == "usual" or rule != "re-priced"]
        report = check_private_model(discreet.DPMF.configured(**given, goal="rating"), people=4, draws=500, rules=rules)
    finally:
        threads.set_threads(None)
    assert [check.rule for check in report.checks if check.passed is None] == ["zero noise"]


# ---------------------------------------------------------------------- what it is for


def test_it_learns_more_than_a_users_own_mean_and_more_than_biases():
    split = random_ratings(discreet.load_dataset("cinema"), (0.9, 0.1), seed=0)
    mean = discreet.Bias(3, items=False).fit(split.train)
    model = discreet.DPMF(epsilon=5.0, delta=1e-5, rating_range=(0.5, 5.0), goal="rating").fit(split.train)
    bias = discreet.Bias().fit(split.train)
    own, private, free = (discreet.evaluate(m, split, ["rmse"]).values["rmse"] for m in (mean, model, bias))
    assert private < free < own
    assert model.counts_.sum() == pytest.approx(split.train.n_ratings, rel=0.3)


def test_it_learns_more_than_biases_and_than_the_papers_algorithms(cinema):
    same = {name: value for name, value in SAME.items() if name != "goal"} | dict(epsilon=20.0)
    models = dict(
        ours=discreet.DPMF(**same, goal="rating"),
        solve=discreet.DPALS(**same),
        gradient=discreet.DPLMC(**same),
        bias=discreet.DPMF(0, **same, goal="rating"),
        mean=discreet.Bias(3.0, items=False),
    )
    found = {
        name: discreet.evaluate(model.fit(cinema.train), cinema, ["rmse"]).values["rmse"]
        for name, model in models.items()
    }
    assert found["ours"] < found["solve"] < found["mean"]
    assert found["ours"] < found["bias"] < found["mean"]
    assert found["ours"] < found["gradient"]


def test_a_faint_signal_is_spent_on_biases(cinema):
    faint, strong = (discreet.DPMF(**SAME | dict(epsilon=e)).fit(cinema.train) for e in (0.5, 50.0))
    largest = discreet.DPMF.configured(**SAME | dict(epsilon=0.5), intercept=0.9).fit(cinema.train)
    least = discreet.DPMF.configured(**SAME | dict(epsilon=50.0), intercept=0.5).fit(cinema.train)
    assert np.array_equal(faint.item_biases_, largest.item_biases_)
    assert np.array_equal(strong.item_factors_, least.item_factors_)
    assert (faint.details_["intercept"], strong.details_["intercept"]) == (0.9, 0.5)
    assert faint.details_["signal_to_noise"]["average"] < strong.details_["signal_to_noise"]["average"]


def test_it_comes_back_from_disk(cinema, tmp_path):
    for changes in ({}, dict(centring=3.0, intercept=0.0), dict(factors=0)):
        model = discreet.DPMF.configured(**SAME, **changes).fit(cinema.train)
        model.save(tmp_path / "model", replace=True)
        again = discreet.load(tmp_path / "model")
        assert np.array_equal(model.predict(cinema.train, cinema.train), again.predict(cinema.train, cinema.train))
        assert np.array_equal(model.counts_, again.counts_)


def test_a_short_norm_is_priced_and_a_refused_fit_says_what_it_cost(cinema):
    for norm in (0.3, 30.0):
        assert discreet.DPMF.configured(user_norm=norm, **SAME).price_list(40)[-1]["sensitivity"] == pytest.approx(
            0.9 * norm
        )
    model = discreet.DPMF(**SAME).fit(cinema.train)
    with pytest.raises(BudgetExceeded, match="privacy_ says how much"):
        model.set_params(epsilon=0.001).fit(cinema.train)
    assert [entry.name for entry in model.privacy_.ledger.entries] == ["size", "counts", "recounts"]
    assert model.privacy_.epsilon < 0.001


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(factors=-1), "factors is -1, but must be a whole number of at least 0"),
        (dict(goal="profit"), "goal is 'profit'"),
        (dict(centring="global"), "centring is 'global', but must be 'user' or a number"),
        (dict(centring=math.nan), "centring is nan, but must be 'user' or a number"),
        (dict(rating_range=(5, 1)), "rating_range"),
        (dict(intercept=1.0), "intercept is 1.0 of the norm, but must be 0, or at least 0.001"),
        (dict(intercept="by chance"), "intercept is 'by chance', but must be a number"),
        (dict(user_norm=1e-12), "user_norm is 1e-12, but must lie between 1e-6 and 1e6"),
        (dict(user_norm=math.inf), "user_norm is inf, but must be a finite number"),
        (dict(residual_norm=math.inf), "residual_norm is inf, but must be a finite number"),
        (dict(step_size=math.inf), "step_size is inf, but must be a finite number"),
        (dict(popularity="yes"), "popularity is 'yes', but must be True or False"),
        (dict(momentum=1.0), "momentum is 1.0"),
        (dict(rarity=300), "rarity is 300, but must lie between 0 and 2"),
        (dict(growth=1000.0), "growth is 1000.0, but must lie between 0.01 and 100"),
        (dict(shares={"bogus": 0.5}), "shares names 'bogus', but the releases are size, counts, recounts, bias, bal"),
        (dict(shares={"gradient 1": 0.5}), "shares names 'gradient 1', but the releases are size, counts, recounts"),
        (dict(shares={"gradient": 0.0}), "shares has 0.0 for 'gradient'"),
        (dict(shares={"gradient": "much"}), "shares has 'much' for 'gradient'"),
        (dict(shares=0.5), "shares is 0.5, but must be a mapping"),
        (dict(max_items=9), "DPMF has no parameter 'max_items'"),
        (dict(rarety=0.1), "DPMF has no parameter 'rarety': did you mean 'rarity'?"),
    ],
)
def test_wrong_parameters_are_named(cinema, wrong, message):
    with pytest.raises(ConfigError, match=message):
        discreet.DPMF.configured(**(dict(epsilon=1.0, goal="rating") | wrong)).fit(cinema.train)


def test_few_people_and_next_to_no_noise_are_enough():
    ratings = discreet.load_dataset("cinema", scale=0.001)
    model = discreet.DPMF(**SAME | dict(epsilon=1e6)).fit(ratings)
    assert np.isfinite(model.item_biases_).all()


# ------------------------------------------------------------ no factors


def test_no_factors_is_an_item_bias(cinema):
    model = discreet.DPMF(0, **SAME).fit(cinema.train)
    assert model.item_factors_.shape == (800, 0)
    assert [e.name for e in model.privacy_.ledger.entries] == [
        "size",
        "counts",
        "recounts",
        "bias",
        "bias",
        "bias",
        "balance",
        "gradient 1",
        "balance",
        "gradient 2",
        "balance",
        "gradient 3",
    ]
    mean = discreet.Bias(3.0, items=False).fit(cinema.train)
    score = [discreet.evaluate(m, cinema, metrics=["rmse"]).values["rmse"] for m in (model, mean)]
    assert score[0] < score[1] - 0.02
    model = discreet.DPMF(0, **SAME | dict(epsilon=1e4)).fit(cinema.train)
    exact = discreet.Bias(1.0, iterations=1).fit(cinema.train).item_biases_
    assert np.corrcoef(model.item_biases_, exact)[0, 1] > 0.95
    for wrong in (dict(intercept=0.0), dict(bias_iterations=0)):
        with pytest.raises(ConfigError, match="factors is 0, which leaves item biases, and they need an intercept"):
            discreet.DPMF.configured(factors=0, epsilon=1.0, **wrong, goal="rating").plan(10)


def test_no_factors_comes_back_from_disk_and_keeps_the_promise(cinema, tmp_path):
    model = discreet.DPMF(0, item_features=genre_matrix(), **SAME).fit(cinema.train)
    model.save(tmp_path / "model")
    again = discreet.load(tmp_path / "model")
    assert np.array_equal(again.predict(cinema.train, cinema.train), model.predict(cinema.train, cinema.train))
    check_private_model(discreet.DPMF(0, epsilon=5.0, rating_range=(1, 5), goal="rating"), people=4)
