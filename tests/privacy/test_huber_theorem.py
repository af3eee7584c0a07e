"""The Huber mechanism and its paper: constants by quadrature, Theorem 2.1 by brute force, the
GDP bound on a grid.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import ndtr, ndtri

from discreet.privacy.accounting import gdp, mechanisms, pld
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace
from research import papers

ALPHAS = [0.3, 1.0, 3.0, 10.0]


def loss(t, alpha):
    size = np.abs(t)
    return np.where(size <= alpha, size**2 / 2, alpha * (size - alpha / 2))


def moment(alpha, power):
    """∫ t^power exp(−ρ(t)) dt, the two pieces apart."""
    center, _ = integrate.quad(
        lambda t: t**power * math.exp(-t * t / 2), 0, alpha, epsabs=0, epsrel=1e-13
    )
    tail, _ = integrate.quad(
        lambda t: t**power * math.exp(-alpha * (t - alpha / 2)),
        alpha,
        alpha + 60 / alpha,
        epsabs=0,
        epsrel=1e-13,
        limit=200,
    )
    return 2 * (center + tail)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_normalizer_and_variance_by_quadrature(alpha):
    huber = Huber(alpha)
    assert huber.normalizer * moment(alpha, 0) == pytest.approx(1, abs=1e-10)
    assert huber.normalizer * moment(alpha, 2) == pytest.approx(huber.variance, rel=1e-10)
    wide = Huber(alpha, 2.5)
    assert wide.variance == pytest.approx(2.5**2 * huber.variance, rel=1e-14)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_samples_pass_kolmogorov_smirnov(alpha, scale):
    huber = Huber(alpha, scale)
    draws = huber.sample(200_000, np.random.default_rng(int(10 * alpha)))
    assert stats.kstest(draws, huber.cdf).pvalue > 1e-3
    assert draws.var() == pytest.approx(huber.variance, rel=0.03)


def test_the_limits_are_laplace_and_gauss():
    x = np.linspace(-6, 6, 241)
    small, large = Huber(1e-4, 1e-4), Huber(40.0)
    np.testing.assert_allclose(small.cdf(x), Laplace(1.0).cdf(x), atol=1e-8)
    np.testing.assert_allclose(large.cdf(x), Gaussian(1.0).cdf(x), atol=1e-14)
    assert small.variance == pytest.approx(2.0, rel=1e-6)
    assert large.variance == pytest.approx(1.0, rel=1e-14)
    for epsilon in (0.0, 0.3, 0.9):
        assert small.hockey_stick(epsilon, 1.0) == pytest.approx(
            Laplace(1.0).hockey_stick(epsilon, 1.0), abs=1e-7
        )
        assert large.hockey_stick(epsilon, 1.0) == pytest.approx(gdp.delta(epsilon, 1.0), abs=1e-12)
    variances = [Huber(a).variance for a in np.geomspace(0.01, 8, 60)]
    assert all(a > b for a, b in pairwise(variances))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_theorem_2_1_by_brute_force(alpha):
    """sup_t ρ(t + Δ) − ρ(t) = α Δ, for Δ ≤ 2α (case 1) and beyond (case 2), and nowhere above
    it.
    """
    cases = {"1": alpha * np.linspace(0.01, 2.0, 40), "2": alpha * np.linspace(2.01, 12.0, 40)}
    for shifts in cases.values():
        t = np.linspace(-20 * alpha, 20 * alpha, 8001)
        g = loss(t[:, None] + shifts, alpha) - loss(t[:, None], alpha)
        assert (g <= alpha * shifts * (1 + 1e-12)).all()
        np.testing.assert_allclose(g.max(axis=0), alpha * shifts, rtol=1e-9)
        np.testing.assert_allclose(g.min(axis=0), -alpha * shifts, rtol=1e-9)
        for shift in shifts[::13]:
            assert Huber(alpha).epsilon(shift) == pytest.approx(alpha * shift, rel=1e-14)
            # which underflow at some 700
            off_densities = pld.density_epsilon([(Huber(alpha), shift, 1)])
            assert off_densities == pytest.approx(alpha * shift, rel=1e-6) or alpha * shift > 300


def test_theorem_2_1_for_vectors():
    """Coordinates add up to α‖Δ‖₁ and no more: tried with many shifts and points."""
    rng, alpha = np.random.default_rng(0), 0.9
    shift = rng.normal(size=(300, 5)) * rng.choice([0.01, 1.0, 10.0], (300, 1))
    t = rng.normal(size=(2000, 1, 5)) * 4
    g = (loss(t + shift, alpha) - loss(t, alpha)).sum(axis=2)
    assert (g.max(axis=0) <= alpha * np.abs(shift).sum(axis=1) * (1 + 1e-12)).all()
    far = 100 * np.sign(shift)
    g = (loss(far + shift, alpha) - loss(far, alpha)).sum(axis=1)
    np.testing.assert_allclose(g, alpha * np.abs(shift).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.05, *ALPHAS])
@pytest.mark.parametrize("shift", [0.01, 0.3, 1.0, 3.0, 8.0])
def test_the_gdp_bound_on_a_grid_of_trade_off_functions(alpha, shift):
    """The trade-off function of a shift, F(F⁻¹(1 − p) − Δ), is nowhere below the Gaussian one,
    Φ(Φ⁻¹(1 − p) − Δ).
    """
    huber = Huber(alpha)
    x = np.linspace(-12 - 12 / alpha, 12 + 12 / alpha, 6001)  # p = 1 − F(x): no inverse is needed
    errors = huber.cdf(-x)
    ours, gaussian = huber.cdf(x - shift), ndtr(-ndtri(errors) - shift)
    inside = (errors > 1e-14) & (errors < 1 - 1e-9)
    assert inside.sum() > 100
    assert (ours >= gaussian - 1e-13)[inside].all()


def test_the_gdp_bound_for_two_coordinates():
    """Monte Carlo of the likelihood-ratio test between t and t + (Δ, Δ'): it sees no more than
    μ = ‖Δ‖₂ allows.
    """
    rng, huber = np.random.default_rng(1), Huber(0.8)
    for shift in (np.array([1.0, 1.0]), np.array([0.2, 2.0])):
        t = huber.sample((300_000, 2), rng)
        ratio = lambda x: (loss(x, 0.8) - loss(x - shift, 0.8)).sum(axis=1)  # noqa: E731, B023
        under, other = np.sort(ratio(t)), ratio(t + shift)
        for p in (0.01, 0.1, 0.3, 0.6):
            power = np.mean(other > under[int((1 - p) * len(under))])
            assert 1 - power >= ndtr(-ndtri(p) - np.linalg.norm(shift)) - 5e-3


def test_a_mechanism_prices_one_release_as_the_accountants_do():
    """z = sd / Δ₁ and l2_ratio = Δ₂ / Δ₁ describe the same release as (Δ₁, Δ₂, α, scale)."""
    huber, l1, l2 = Huber(1.2, 3.0), 4.0, 1.5
    event = accounting.Event("huber", huber.standard_deviation / l1, 1, 1.2, l2 / l1)
    assert event.pure == pytest.approx(huber.epsilon(l1), rel=1e-12)
    assert event.mu == pytest.approx(huber.mu(l2), rel=1e-12)
    for accountant in ("gdp", "pld", "pure"):
        assert accounting.epsilon([event], 1e-5, accountant) <= huber.epsilon(l1) * (1 + 1e-9)


def test_hockey_sticks_at_once_and_one_by_one():
    for huber, shift in ((Huber(0.3), 2.0), (Huber(3.0, 0.5), 0.2), (Huber(1.0), 0.0)):
        epsilons = np.array([-50.0, -1.0, -1e-9, 0.0, 1e-9, 0.1, 0.59, 0.6, 0.61, 5.0, 800.0])
        many = huber.hockey_sticks(epsilons, shift)
        np.testing.assert_allclose(
            many, [huber.hockey_stick(float(e), shift) for e in epsilons], rtol=1e-14
        )
        assert (np.diff(many) <= 1e-15).all()
        assert ((many >= 0) & (many <= 1)).all()


def test_independent_prices_of_huber_releases():
    """Pure ε off the densities, and Google's Gaussian accountant for the GDP bound."""
    event = accounting.Event("huber", 30.0, 6, 1.5, 0.1)
    assert accounting.independent_epsilon([event], 0.0) == pytest.approx(
        accounting.total_pure([event]), rel=1e-6
    )
    stated = accounting.epsilon([event], 1e-5, "gdp")
    assert accounting.independent_epsilon([event], 1e-5) <= stated * (1 + 1e-3)
    assert math.isinf(accounting.independent_epsilon([accounting.Event("gaussian", 1.0)], 0.0))


def test_table_1_all_three_columns_as_printed_and_corrected():
    printed = {
        1: (15.964, 7.071, 15.000),
        2: (11.288, 5.000, 5.382),
        3: (9.217, 4.082, 4.235),
        4: (7.982, 3.536, 3.602),
    }
    corrected = {1: 24.224, 2: 17.129, 3: 13.986, 4: 12.112}
    for variance, (gaussian, laplace, huber) in printed.items():
        row = papers.huber_table_1(variance)
        assert papers.gaussian_classic(variance, 5.0, math.log10(1.25e5)) == pytest.approx(
            gaussian, abs=5e-4
        )
        assert row["gaussian"] == pytest.approx(corrected[variance], abs=5e-4)
        assert row["laplace"] == pytest.approx(laplace, abs=5e-4)
        assert row["huber"] == pytest.approx(huber, abs=0.02)  # the paper's α has two digits
    assert mechanisms.Huber.with_variance(2.0).alpha == pytest.approx(5.38 / 5, abs=2e-3)
