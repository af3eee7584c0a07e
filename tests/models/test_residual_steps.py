"""Item steps on residuals: against the equations written out in numpy, and what they are for."""

import math

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.errors import BudgetExceeded, ConfigError
from discreet.models.residual_steps import project, settle, usual_rank
from discreet.privacy.unsafe import NoNoise

SAME = dict(epsilon=3.0, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=0)


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
    same = SAME | dict(epsilon=epsilon, noise=NoNoise(), intercept=given)
    model = discreet.DPALS(3, iterations=4, popularity=False, **same)
    V, b, iota = written_out(model, ratings, 3, 4, given)
    model.fit(ratings)
    assert (iota > 0.89) == (epsilon == 2.0)
    np.testing.assert_allclose(model.item_biases_, b, atol=2e-4 * np.abs(b).max())
    np.testing.assert_allclose(model.item_factors_, V, atol=2e-3 * np.abs(V).max())


def test_dplmc_as_it_comes_does_the_same(cinema):
    one, other = (model(**SAME).fit(cinema.train) for model in (discreet.DPALS, discreet.DPLMC))
    assert np.array_equal(one.item_factors_, other.item_factors_)
    assert np.array_equal(one.item_biases_, other.item_biases_)
    assert np.array_equal(one.predict(cinema.train, cinema.train), other.predict(cinema.train, cinema.train))


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
    plan = discreet.DPALS(3, epsilon=2.0, delta=1e-5, iterations=4, growth=3.0).plan(100)
    spent = [plan.noise_multiplier(f"gradient {step}") ** -2 for step in (1, 2, 3, 4)]
    np.testing.assert_allclose(np.array(spent[1:]) / spent[:-1], 3.0)
    assert plan.epsilon() == pytest.approx(2.0, rel=1e-6)
    same = dict(epsilon=2.0, delta=1e-5, iterations=4)
    for growth in (1.0, 3.0):
        usual = discreet.DPALS(3, **same, growth=growth).plan(100)
        less = discreet.DPALS(3, **same, growth=growth, shares={"gradient": 0.4}).plan(100)
        assert less.epsilon() == pytest.approx(2.0, rel=1e-6)
        name = "gradient" if growth == 1 else "gradient 4"
        assert less.noise_multiplier(name) > usual.noise_multiplier(name)
        assert less.noise_multiplier("counts") < usual.noise_multiplier("counts")


def test_rank_follows_the_budget():
    shapes = {e: discreet.DPALS(epsilon=e, delta=1e-5).plan(50).releases[-1].shape for e in (1.0, 20.0)}
    assert shapes == {1.0: (50, 6 + 1), 20.0: (50, 8 + 1)}
    assert (usual_rank(1e-6), usual_rank(1e6)) == (4, 8)


# ---------------------------------------------------------------------- what it is for


def test_it_learns_more_than_biases_and_than_the_other_item_step(cinema):
    same = SAME | dict(epsilon=20.0)
    models = dict(
        ours=discreet.DPALS(**same),
        solve=discreet.DPALS(item_step="solve", **same),
        bias=discreet.DPALS(0, **same),
        mean=discreet.Bias(3.0, items=False),
    )
    found = {
        name: discreet.evaluate(model.fit(cinema.train), cinema, ["rmse"]).values["rmse"]
        for name, model in models.items()
    }
    assert found["ours"] < found["solve"] < found["mean"]
    assert found["ours"] < found["bias"] < found["mean"]


def test_a_faint_signal_is_spent_on_biases(cinema):
    faint, strong = (discreet.DPALS(**SAME | dict(epsilon=e)).fit(cinema.train) for e in (0.5, 50.0))
    largest = discreet.DPALS(**SAME | dict(epsilon=0.5), intercept=0.9).fit(cinema.train)
    least = discreet.DPALS(**SAME | dict(epsilon=50.0), intercept=0.5).fit(cinema.train)
    assert np.array_equal(faint.item_biases_, largest.item_biases_)
    assert np.array_equal(strong.item_factors_, least.item_factors_)
    assert faint.signal_to_noise_["average"] < strong.signal_to_noise_["average"]


def test_it_comes_back_from_disk(cinema, tmp_path):
    for changes in ({}, dict(centring=3.0, intercept=0.0), dict(factors=0)):
        model = discreet.DPALS(**SAME, **changes).fit(cinema.train)
        model.save(tmp_path / "model", replace=True)
        again = discreet.load(tmp_path / "model")
        assert np.array_equal(model.predict(cinema.train, cinema.train), again.predict(cinema.train, cinema.train))
        assert np.array_equal(model.counts_, again.counts_)


@pytest.mark.parametrize(
    ("given", "gradient"),
    [
        ({}, True),
        (dict(intercept=0.4), True),
        (dict(shares={"bias": 0.2}), True),
        (dict(feedback="implicit"), False),
        (dict(shrinkage=True), False),
        (dict(max_items=20, sampling="rarest"), False),
        (dict(shares={"sum": 0.5}), False),
        (dict(centring="global"), False),
        (dict(item_step="solve"), False),
    ],
)
def test_what_only_the_other_item_step_has_asks_for_it(given, gradient):
    names = {release.name for release in discreet.DPALS(2, **given).plan(20).releases}
    assert ("balance" in names) == gradient


def test_models_saved_before_there_were_gradient_steps_still_solve(cinema, tmp_path, monkeypatch):
    model = discreet.DPALS(2, item_step="solve", **SAME).fit(cinema.train)
    old = model.saved_params() | {"item_step": None}
    monkeypatch.setattr(model, "saved_params", lambda: old)
    model.save(tmp_path / "old")
    again = discreet.load(tmp_path / "old")
    assert np.array_equal(model.predict(cinema.train, cinema.train), again.predict(cinema.train, cinema.train))
    new = discreet.DPALS(2, **SAME).fit(cinema.train)
    new.save(tmp_path / "new")
    assert discreet.load(tmp_path / "new").item_step == "gradient"


def test_a_short_norm_is_priced_and_a_refused_fit_says_what_it_cost(cinema):
    for norm in (0.3, 30.0):
        assert discreet.DPALS(user_norm=norm, **SAME).price_list(40)[-1]["sensitivity"] == pytest.approx(0.9 * norm)
    model = discreet.DPALS(**SAME).fit(cinema.train)
    with pytest.raises(BudgetExceeded, match="privacy_ says how much"):
        model.set_params(epsilon=0.001).fit(cinema.train)
    assert [entry.name for entry in model.privacy_.ledger.entries] == ["size", "counts", "recounts"]
    assert model.privacy_.epsilon < 0.001


@pytest.mark.parametrize("name", ["max_items", "noise_ridge", "item_exponent", "user_normalizer"])
def test_what_would_be_ignored_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} is 7, which goes with .*: give that too, or leave {name} out"):
        discreet.DPALS(2, **{name: 7}).plan(10)


def test_few_people_and_next_to_no_noise_are_enough():
    ratings = discreet.load_dataset("cinema", scale=0.001)
    model = discreet.DPALS(**SAME | dict(epsilon=1e6)).fit(ratings)
    assert np.isfinite(model.item_biases_).all()
