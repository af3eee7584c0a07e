"""The closed form against 50 digits, and against Google's accountants."""

import math

import dp_accounting
import mpmath as mp
import pytest

from discreet.errors import ConfigError
from discreet.privacy.accounting import gdp

EPSILONS = [1e-3, 3e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 150.0, 400.0, 1e3]
DELTAS = [1e-15, 1e-13, 1e-10, 1e-8, 1e-6, 1e-5, 1e-3, 0.01, 0.1, 0.5]


def log_delta_reference(epsilon, mu):
    epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)
    return mp.log(
        mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)
    )


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_both_directions_to_1e_9_and_on_the_safe_side(epsilon):
    for delta in DELTAS:
        target = mp.log(mp.mpf(delta))
        mu = gdp.mu(epsilon, delta)
        exact_mu = mp.findroot(
            lambda m, e=epsilon, t=target: log_delta_reference(e, m) - t, mp.mpf(mu)
        )
        assert 0 <= 1 - mp.mpf(mu) / exact_mu < 1e-9
        assert (
            abs(gdp.log_delta(epsilon, mu) - log_delta_reference(epsilon, mu)) < gdp.LOG_ERROR / 4
        )
        for noise in (mu, 0.7 * mu, 1.4 * mu):
            got = gdp.epsilon(noise, delta)
            if got < 1e-4:  # below the range that is promised; zero when no ε is needed
                assert log_delta_reference(got, noise) <= target
                continue
            exact = mp.findroot(
                lambda e, m=noise, t=target: log_delta_reference(e, m) - t, mp.mpf(got)
            )
            assert 0 <= mp.mpf(got) / exact - 1 < 1e-9


def test_values_in_the_privacy_document():
    assert [round(gdp.mu(e, 1e-5), 4) for e in (1, 5, 10, 20)] == [0.2681, 1.1212, 2.0004, 3.4478]


def test_the_papers_conversion_needs_31_18_14_10_percent_more_noise():
    more = [gdp.mu(e, 1e-5) / gdp.zcdp_mu(e, 1e-5) - 1 for e in (1, 5, 10, 20)]
    assert [round(100 * m) for m in more] == [31, 18, 14, 10]


@pytest.mark.parametrize("mu", [0.05, 0.2681, 1.0, 2.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-5, 1e-3])
def test_never_below_the_pld_accountant_by_more_than_1e_6(mu, delta):
    interval = 1e-4 * min(mu, 1.0)
    pld = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=interval, log_mass_truncation_bound=-60
    )
    pessimistic = pld.get_epsilon_for_delta(delta)
    ours = gdp.epsilon(mu, delta)
    assert ours >= pessimistic - 1e-6
    assert ours <= pessimistic + 1e-6
    assert ours == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, delta), abs=1e-9)


def test_composition_is_the_euclidean_norm():
    assert gdp.compose(3.0, 4.0) == 5.0
    assert gdp.compose() == 0.0


def test_edges():
    assert gdp.epsilon(0.0, 1e-6) == 0.0
    assert gdp.epsilon(math.inf, 1e-6) == math.inf
    assert gdp.epsilon(1.0, 0.0) == math.inf
    assert gdp.mu(1.0, 0.0) == 0.0
    assert gdp.mu(math.inf, 1e-6) == math.inf
    assert gdp.delta(0.0, 1e9) == 1.0
    assert gdp.delta(1.0, 0.0) == 0.0
    assert gdp.delta(0.0, 1.0) == pytest.approx(math.erf(0.5 / math.sqrt(2)), rel=1e-15)
    assert gdp.mu(0.0, 1e-6) == pytest.approx(1e-6 * math.sqrt(2 * math.pi), rel=1e-9)


def test_bad_arguments_are_named():
    for call in (
        lambda: gdp.epsilon(-1, 0.1),
        lambda: gdp.mu(1, 2),
        lambda: gdp.delta(float("nan"), 1),
    ):
        with pytest.raises(ConfigError):
            call()
