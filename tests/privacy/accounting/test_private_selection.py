"""The price of the best of K runs: exact on small mechanisms, never below what is true, never
above other bounds.
"""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from discreet.errors import ConfigError, PrivacyError
from discreet.privacy import Budget, Plan, Release
from discreet.privacy.accounting import gdp, private_selection
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.mechanisms import Gaussian
from discreet.privacy.accounting.pricing import Event
from discreet.privacy.accounting.private_selection import Runs
from discreet.privacy.release.budget_store_log import cost
from discreet.privacy.release.ledger import Ledger

LAWS = ["geometric", "logarithmic", "poisson", "negative-binomial:-0.5", "negative-binomial:3"]
EPSILONS = np.concatenate([np.linspace(0, 2, 21), [2.5, 3, 4, 6]])


def probabilities(runs, most=4000):
    """P(K = 1), P(K = 2), …, in floating point."""
    first, ratio = runs._start()
    found = [float(first)]
    for k in range(1, most):
        found.append(found[-1] * float(ratio(k)))
    return np.array(found)


# ------------------------------------------------------------ laws


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [1.5, 3, 10, 30])
def test_laws_have_their_mean_and_their_slope(law, mean):
    runs = Runs(mean, law)
    p = probabilities(runs, 60_000 if law.endswith("-0.5") else 4000)
    k = np.arange(1, len(p) + 1)
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert p @ k == pytest.approx(mean, rel=1e-7)
    assert runs.expected == pytest.approx(mean, rel=1e-9)
    for x in (0.0, 0.3, 0.9, 1.0):
        assert runs.slope(np.array([1 - x]))[0] == pytest.approx((p * k) @ x ** (k - 1.0), rel=1e-7)


@pytest.mark.parametrize("law", LAWS)
def test_draws_follow_the_law(law):
    runs = Runs(4, law)
    drawn = np.array([runs.draw() for _ in range(4000)])
    p = probabilities(runs)
    assert drawn.min() >= 1
    for k in (1, 2, 5):
        expected = p[k - 1]
        assert abs((drawn == k).mean() - expected) < 5.5 * math.sqrt(
            expected * (1 - expected) / 4000
        )


@pytest.mark.parametrize(
    "bad", [(1, "geometric"), (0.5, "poisson"), (5000, "geometric"), (3, "uniform"), (True, "x")]
)
def test_bad_laws_are_refused(bad):
    with pytest.raises(ConfigError):
        Runs(*bad)
    for law in ("negative-binomial", "negative-binomial:-1", "negative-binomial:x"):
        with pytest.raises(ConfigError, match="choose one of"):
            Runs(3, law)


# ------------------------------------------------------------ brute force


def curve(q, other):
    """The corners of the trade-off curve between two laws on a few outcomes."""
    order = np.argsort(-other / q)  # reject q where the other is likelier
    return np.cumsum(q[order]), 1 - np.cumsum(other[order])


def least_mu(q, other):
    """The smallest μ for which two laws with the same support are μ-GDP, both ways."""
    found = 0.0
    for p0, p1 in ((q, other), (other, q)):
        alpha, beta = curve(p0, p1)
        found = max(found, float(np.max(ndtri(1 - alpha[:-1]) - ndtri(beta[:-1]))))
    return found


def best(q, classes, p):
    """The law of the winner, by adding up over k: classes of equal score, worst first, ties
    drawn by lot.
    """
    k = np.arange(1, len(p) + 1.0)
    law = np.zeros_like(q)
    below = 0.0
    for members in classes:
        mass = q[members].sum()
        top = p @ ((below + mass) ** k - below**k)
        law[members] = top * q[members] / mass
        below += mass
    return law


def hockey_stick(a, b, epsilon):
    return float(np.maximum(a - math.exp(epsilon) * b, 0).sum())


@pytest.mark.parametrize("law", LAWS)
def test_no_small_mechanism_costs_more_than_the_bound(law):
    """With and without ties; scores that follow the likelihood ratio, oppose it, or have
    nothing to do with it.
    """
    rng = np.random.default_rng(LAWS.index(law))
    closest = 0.0
    for trial in range(60):
        n = int(rng.integers(2, 9))
        q = rng.dirichlet(np.full(n, 2.0)) * 0.98 + 0.02 / n
        other = q * np.exp(rng.normal(0, rng.choice([0.05, 0.3, 1.0]), n))
        other /= other.sum()
        ratio = other / q
        keys = [ratio, -ratio, rng.random(n), rng.integers(0, 3, n)][trial % 4]
        classes = [np.flatnonzero(keys == key) for key in np.unique(keys)]
        runs = Runs(float(rng.choice([1.3, 3, 10])), law)
        p = probabilities(runs, 600)
        mu = least_mu(q, other) * (1 + 1e-12)
        a, b = best(q, classes, p), best(other, classes, p)
        for epsilon in EPSILONS:
            bound = private_selection.delta(epsilon, mu, runs)
            true = max(hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon))
            assert true <= bound + 1e-12, (trial, epsilon)
            if true > 1e-6:
                closest = max(closest, true / bound)
    assert closest > 0.3  # the bound is not far above what is possible


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [3, 30])
@pytest.mark.parametrize("mu", [0.05, 0.25, 1.0])
def test_no_gaussian_run_costs_more_than_the_bound(law, mean, mu):
    """N(0, 1) against N(μ, 1), with the outcome itself as the score, and its opposite:
    densities of the winner.
    """
    runs = Runs(mean, law)
    x = np.linspace(-9, 9 + mu, 40001)
    step = x[1] - x[0]
    with np.errstate(over="ignore"):
        base = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        moved = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    for sign in (1, -1):
        a = base * runs.slope(ndtr(-sign * x))
        b = moved * runs.slope(ndtr(-sign * (x - mu)))
        for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
            bound = private_selection.delta(epsilon, mu, runs)
            for one, two in ((a, b), (b, a)):
                true = float(np.maximum(one - math.exp(epsilon) * two, 0).sum() * step)
                assert true <= bound * (1 + 1e-3) + 1e-9


# ------------------------------------------------------------ other bounds


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mu", [0.01, 0.24, 0.9, 2.0])
def test_the_bound_is_never_above_the_one_that_is_easy_to_remember(law, mu):
    """E[K] · δ_μ(ε − L)."""
    runs = Runs(10, law)
    upper, lower = private_selection._cells(mu, runs)
    most = math.log(float(np.max(upper / lower)))
    for epsilon in (0.0, 0.3, 1.0, 3.0, 10.0):
        simple = min(1.0, runs.expected * Gaussian(1.0).hockey_stick(epsilon - most, mu))
        assert private_selection.delta(epsilon, mu, runs) <= simple * (1 + 1e-6)


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize("mean", [3, 10, 30])
@pytest.mark.parametrize("base", [0.5, 1, 4])
def test_the_price_is_below_that_of_renyi_divergences_and_above_one_run(law, mean, base):
    runs = Runs(mean, law)
    mu = gdp.mu(base, 1e-6)
    price = private_selection.epsilon(mu, runs, 1e-6)
    assert base < price < private_selection.renyi_epsilon(mu, runs, 1e-6)


def test_one_run_is_the_limit():
    mu = gdp.mu(1.0, 1e-6)
    for law in LAWS:
        assert private_selection.epsilon(mu, Runs(1 + 1e-6, law), 1e-6) == pytest.approx(
            1.0, abs=2e-3
        )


def test_finer_cells_change_nothing_that_matters(monkeypatch):
    runs = Runs(10)
    mu = gdp.mu(1.0, 1e-6)
    coarse = private_selection.epsilon(mu, runs, 1e-6)
    monkeypatch.setattr(private_selection, "_FINEST", 1 / 1500)
    private_selection._hinges.cache_clear()
    fine = private_selection.epsilon(mu, runs, 1e-6)
    private_selection._hinges.cache_clear()
    assert fine <= coarse <= fine * 1.002


def test_the_inverses_agree():
    runs = Runs(10, "logarithmic")
    for epsilon in (0.1, 1.0, 8.0):
        mu = private_selection.mu(epsilon, 1e-6, runs)
        assert private_selection.delta(epsilon, mu, runs) <= 1e-6
        assert private_selection.epsilon(mu, runs, 1e-6) == pytest.approx(epsilon, rel=1e-6)
        assert private_selection.delta(epsilon, mu * 1.001, runs) > 1e-6
    assert private_selection.epsilon(0.0, runs, 1e-6) == 0.0
    assert private_selection.epsilon(0.1, runs, 0.0) == math.inf


# ------------------------------------------------------------ in plans and ledgers


def test_a_ledger_of_tuning_is_priced_again_from_its_file():
    mu = private_selection.mu(1.0, 1e-6, Runs(10))
    plan = Plan.explicit([Release("best training", weight=1 / mu, law="geometric", runs=10)], 1e-6)
    assert plan.epsilon() == pytest.approx(1.0, rel=1e-6)
    assert plan.mu is None
    ledger = Ledger(plan, "secure")
    ledger.record(
        "best training",
        mechanism="gaussian",
        sensitivity=1.0,
        norm="l2",
        noise_multiplier=1 / mu,
        shape=(),
        where="here",
        law="geometric",
        runs=10,
    )
    again = Ledger.from_dict(ledger.to_dict())
    assert again.price().epsilon == plan.epsilon()
    assert again.price().mu is None
    assert "secret number of runs" in again.price().conversion


def test_beside_other_releases_epsilon_and_delta_add_up():
    one = Event("gaussian", 5.0, law="geometric", runs=10)
    other = Event("gaussian", 3.0)
    whole = accounting.epsilon([one, other], 1e-6)
    parts = accounting.epsilon([one], 5e-7) + accounting.epsilon([other], 5e-7)
    assert whole == pytest.approx(parts)
    twice = Event("gaussian", 5.0, 2, law="geometric", runs=10)
    assert accounting.epsilon([twice], 1e-6) == pytest.approx(2 * accounting.epsilon([one], 5e-7))


def test_what_has_no_formula_is_refused():
    with pytest.raises(ConfigError, match="Gaussian noise on sums over all users"):
        Event("laplace", 5.0, law="geometric", runs=10)
    with pytest.raises(ConfigError, match="Gaussian noise on sums over all users"):
        Event("gaussian", 5.0, rate=0.1, law="geometric", runs=10)
    with pytest.raises(PrivacyError, match="no price in μ"):
        cost([Event("gaussian", 5.0, law="geometric", runs=10)])
    with pytest.raises(ConfigError, match="no independent accountant"):
        accounting.independent_epsilon([Event("gaussian", 5.0, law="geometric", runs=10)], 1e-6)


def test_ledgers_without_tuning_keep_their_hashes():
    plan = Plan.calibrate([Release("sums")], Budget(1.0))
    assert "law" not in plan.to_json()
    ledger = Ledger(plan, "secure")
    ledger.record(
        "sums",
        mechanism="gaussian",
        sensitivity=1.0,
        norm="l2",
        noise_multiplier=1.0,
        shape=(1,),
        where="here",
    )
    assert "law" not in str(ledger.to_dict())
