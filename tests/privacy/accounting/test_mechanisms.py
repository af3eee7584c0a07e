"""Noise and price in one value: densities, sampling, and every price against quadrature or
another accountant.
"""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from discreet.errors import ConfigError
from discreet.privacy.accounting import gdp, mechanisms, pld
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace

ALL = [Gaussian(1.7), Laplace(0.6), Huber(0.4), Huber(1.3, 2.0), Huber(3.0, 0.5)]


@pytest.mark.parametrize("mechanism", ALL, ids=str)
def test_density_integrates_to_the_cdf_and_the_variance(mechanism):
    kinks = [-2.6, 0.0, 2.6, -0.4, 0.4, 1.5, -1.5]
    total, _ = integrate.quad(mechanism.density, -80, 80, points=kinks, limit=400)
    assert total == pytest.approx(1, abs=1e-9)
    second, _ = integrate.quad(
        lambda x: x * x * mechanism.density(x), -150, 150, points=kinks, limit=800
    )
    assert second == pytest.approx(mechanism.variance, rel=1e-8)
    for x in (-5.0, -1.0, -0.1, 0.0, 0.7, 4.0):
        below, _ = integrate.quad(
            mechanism.density, -80, x, points=[k for k in kinks if k < x], limit=400
        )
        assert mechanism.cdf(x) == pytest.approx(below, abs=1e-9)


@pytest.mark.parametrize("mechanism", ALL, ids=str)
def test_samples_follow_the_cdf(mechanism):
    draws = mechanism.sample(200_000, np.random.default_rng(5))
    assert stats.kstest(draws, mechanism.cdf).pvalue > 1e-3
    assert draws.var() == pytest.approx(mechanism.variance, rel=0.02)
    assert mechanism.sample((3, 2), 0).shape == (3, 2)


@pytest.mark.parametrize("mechanism", ALL, ids=str)
@pytest.mark.parametrize("sensitivity", [0.3, 2.0, 7.0])
@pytest.mark.parametrize("epsilon", [-2.0, -0.1, 0.0, 0.2, 1.0, 3.0])
def test_hockey_stick_is_the_integral_it_stands_for(mechanism, sensitivity, epsilon):
    x = np.linspace(-60, 60, 1_200_001)
    excess = np.maximum(
        0, mechanism.density(x) - math.exp(epsilon) * mechanism.density(x - sensitivity)
    )
    assert mechanism.hockey_stick(epsilon, sensitivity) == pytest.approx(
        np.trapezoid(excess, x), abs=2e-7
    )


@pytest.mark.parametrize("mechanism", ALL, ids=str)
@pytest.mark.parametrize("order", [1.1, 2.0, 8.0, 20.0])
def test_rdp_is_never_below_the_integral_and_close_to_it(mechanism, order):
    sensitivity, x = 1.5, np.linspace(-120, 120, 2_400_001)
    with np.errstate(divide="ignore"):
        p, q = np.log(mechanism.density(x)), np.log(mechanism.density(x - sensitivity))
    finite = np.isfinite(p) & np.isfinite(q)
    logs = order * p[finite] + (1 - order) * q[finite]
    peak = logs.max()
    exact = (peak + math.log(np.trapezoid(np.exp(logs - peak), x[finite]))) / (order - 1)
    assert exact * (1 - 1e-6) <= mechanism.rdp(order, sensitivity) <= exact * (1 + 1e-4) + 1e-9


@pytest.mark.parametrize("alpha", [0.2, 0.7, 1.3, 3.0])
@pytest.mark.parametrize("sensitivity", [0.1, 1.0, 4.0])
def test_unit_huber_noise_is_hidden_at_least_as_well_as_by_the_gaussian(alpha, sensitivity):
    huber = Huber(alpha)
    for epsilon in (0.0, 0.05, 0.5, 1.0, 3.0, 8.0):
        assert (
            huber.hockey_stick(epsilon, sensitivity)
            <= gdp.delta(epsilon, huber.mu(sensitivity)) + 1e-15
        )


@pytest.mark.parametrize("epsilon", [1e-10, 1e-3, 0.5, 2.0, 10.0, 40.0, 900.0])
def test_pure_epsilon_as_gdp_dominates_randomized_response(epsilon):
    mu = mechanisms.mu_of_pure(epsilon)
    for part in (0.0, 0.3, 0.9):
        e = part * epsilon
        response = -math.expm1(e - epsilon) / (1 + math.exp(-epsilon))
        assert gdp.delta(e, mu) >= response * (1 - 1e-9)
    assert gdp.delta(0.0, mu) == pytest.approx(
        -math.expm1(-epsilon) / (1 + math.exp(-epsilon)), rel=1e-7
    )


@pytest.mark.parametrize("noise", [Laplace(0.8), Huber(0.9)], ids=str)
def test_one_coordinate_is_the_worst_case(noise):
    """δ(ε) for a shift (a, b) of two coordinates is not above the one for (a + b, 0)."""
    rng = np.random.default_rng(1)
    t = noise.sample((400_000, 2), rng)
    for epsilon in (0.1, 0.6):
        shift = np.array([0.7, 0.8])
        loss = np.log(noise.density(t) / noise.density(t - shift)).sum(axis=1)
        two = np.maximum(0, 1 - np.exp(epsilon - loss))
        assert two.mean() - 5 * two.std() / math.sqrt(len(t)) <= noise.hockey_stick(
            epsilon, shift.sum()
        )


def test_huber_limits():
    x = np.linspace(-4, 4, 81)
    assert Huber(12.0).density(x) == pytest.approx(Gaussian().density(x), rel=1e-9)
    assert Huber(1e-3, 1e-3).density(x) == pytest.approx(Laplace(1.0).density(x), rel=1e-5)
    assert Huber(2.0, 0.5).epsilon(3.0) == 12.0


@pytest.mark.parametrize("variance", [1.0001, 1.2, 2.0, 4.0, 50.0, 1e4])
@pytest.mark.parametrize("scale", [1.0, 0.2, 30.0])
def test_alpha_for_a_wanted_variance(variance, scale):
    assert Huber.with_variance(variance * scale**2, scale).variance == pytest.approx(
        variance * scale**2, rel=1e-9
    )


def test_named_by_standard_deviation():
    for kind, alpha in (("gaussian", None), ("laplace", None), ("huber", 0.8)):
        made = mechanisms.make_mechanism(kind, 3.0, alpha)
        assert made.kind == kind
        assert made.standard_deviation == pytest.approx(3.0)
    with pytest.raises(ConfigError, match="alpha"):
        mechanisms.make_mechanism("huber", 1.0)
    with pytest.raises(ConfigError, match="cauchy"):
        mechanisms.make_mechanism("cauchy", 1.0)


def test_epsilon_with_delta_is_where_the_hockey_stick_is():
    assert Gaussian(2.0).epsilon(1.0) == math.inf
    for mechanism in (Gaussian(2.0), Laplace(2.0), Huber(1.5, 2.0)):
        epsilon = mechanism.epsilon(1.0, 1e-3)
        assert mechanism.hockey_stick(epsilon, 1.0) <= 1e-3
        assert mechanism.hockey_stick(epsilon - 1e-9, 1.0) == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize("mechanism", [Gaussian(2.0), Laplace(2.0), Huber(1.5, 2.0)], ids=str)
def test_pld_of_one_release_never_understates(mechanism):
    distribution = mechanism.pld(1.0)
    for epsilon in (0.0, 0.1, 0.3, 0.6):
        exact = mechanism.hockey_stick(epsilon, 1.0)
        assert exact - 1e-14 <= pld.delta(distribution, epsilon) <= exact + 1e-8


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_bad_parameters_are_refused(bad):
    for make in (Gaussian, Laplace, Huber, lambda s: Huber(1.0, s)):
        with pytest.raises(ConfigError):
            make(bad)


def test_other_bad_arguments():
    with pytest.raises(ConfigError, match="variance"):
        Huber.with_variance(1.0)
    with pytest.raises(ConfigError, match="order"):
        Gaussian().rdp(1.0, 1.0)
    with pytest.raises(ConfigError, match="sensitivity"):
        Laplace().epsilon(-1.0)
