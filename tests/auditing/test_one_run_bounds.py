"""Bounds from guesses: against jax-privacy, against exact probabilities, and at their ends."""

import importlib.util

import pytest
from scipy import stats

from discreet.auditing import one_run_bounds as bounds
from discreet.errors import ConfigError

#: Canaries, guesses, right ones, δ, significance; ε by Steinke et al. and by f-DP for Gaussian
#: privacy, as _epsilon_one_run and _epsilon_one_run_fdp of jax-privacy 2.0.0 (with jax 0.10.2)
#: compute them, to about 1e-6.
BY_JAX_PRIVACY = [
    (1000, 1000, 700, 1e-05, 0.05, 0.731741, 1.371980),
    (1000, 1000, 700, 1e-05, 1e-06, 0.0, 0.508256),
    (1000, 1000, 700, 1e-06, 0.05, 0.731984, 1.560997),
    (1000, 100, 95, 1e-05, 0.05, 2.165176, 3.323300),
    (1000, 100, 95, 1e-06, 1e-06, 0.0, 1.382448),
    (1000, 100, 100, 1e-05, 0.05, 3.465376, 5.549028),
    (1000, 100, 100, 1e-06, 0.05, 3.490216, 6.169474),
    (5000, 250, 240, 1e-05, 0.05, 2.613780, 3.651792),
    (5000, 250, 240, 1e-06, 1e-06, 0.0, 1.980715),
    (2000, 2000, 1100, 1e-05, 0.05, 0.125556, 0.243454),
    (500, 40, 38, 1e-05, 0.05, 1.734537, 2.615771),
    (10000, 400, 390, 1e-06, 0.05, 3.122204, 4.714713),
]


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "error", "steinke", "fdp"), BY_JAX_PRIVACY
)
def test_both_bounds_are_those_of_jax_privacy(canaries, guesses, right, delta, error, steinke, fdp):
    assert bounds.steinke_epsilon(canaries, guesses, right, delta, error) == pytest.approx(
        steinke, abs=3e-6
    )
    assert bounds.fdp_epsilon(canaries, guesses, right, delta, error) == pytest.approx(
        fdp, abs=3e-6
    )


@pytest.mark.skipif(
    importlib.util.find_spec("jax_privacy") is None, reason="jax_privacy is not installed: 600 MB"
)
def test_both_bounds_are_those_of_jax_privacy_as_it_is_installed():
    from jax_privacy import auditing

    for canaries, guesses, right, delta, error, *_ in BY_JAX_PRIVACY:
        given = (0, canaries, guesses, right, error, delta)
        ours = bounds.steinke_epsilon(canaries, guesses, right, delta, error)
        assert ours == pytest.approx(auditing._epsilon_one_run(*given), abs=3e-6)
        ours = bounds.fdp_epsilon(canaries, guesses, right, delta, error)
        assert ours == pytest.approx(auditing._epsilon_one_run_fdp(1e-9, *given[1:]), abs=3e-6)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.5])
@pytest.mark.parametrize("m", [50, 400])
def test_independent_gaussian_canaries_are_not_refuted(m, mu):
    """Each coin moves a normal number of its own by μ: guesses are right with probability
    Φ(μ/2), independently.
    """
    law = stats.binom(m, stats.norm.cdf(mu / 2))
    for error in (0.3, 0.05, 1e-3, 1e-6):
        most = int(law.isf(error))  # P[R ≥ most] > error
        assert law.sf(most - 1) > error
        assert not bounds.fdp_refutes(m, m, most, mu, error)
        epsilon = 4 * mu
        # the first term alone: above the δ of that ε
        delta = stats.norm.cdf(-epsilon / mu + mu / 2)
        assert bounds.steinke_p_value(m, m, most, epsilon, delta) > error


def test_randomized_response_is_bounded_by_its_own_epsilon():
    """Its right guesses are binomial with e^ε/(1 + e^ε), which is the bound without δ itself."""
    epsilon, m = 1.3, 300
    q = 1 / (1 + 2.718281828459045**-epsilon)
    for right in (200, 240, 290):
        assert bounds.steinke_p_value(m, m, right, epsilon, 0.0) == pytest.approx(
            stats.binom.sf(right - 1, m, q)
        )
    least = bounds.steinke_epsilon(m, m, int(stats.binom.isf(0.05, m, q)), 0.0, 0.05)
    assert 0.9 < least <= epsilon


def test_better_guesses_say_more_and_delta_says_less():
    found = [bounds.fdp_mu(1000, 200, right, 0.05) for right in (100, 120, 150, 180, 200)]
    assert found == sorted(found)
    assert found[0] == 0.0 < found[-1]
    found = [
        bounds.steinke_epsilon(1000, 200, 190, delta, 0.05) for delta in (0.0, 1e-6, 1e-5, 1e-4)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_no_guess_says_nothing():
    assert bounds.fdp_mu(100, 0, 0, 0.05) == 0.0
    assert bounds.steinke_epsilon(100, 0, 0, 1e-6, 0.05) == 0.0


def test_impossible_numbers_are_refused():
    with pytest.raises(ConfigError, match="each must be at most"):
        bounds.fdp_mu(10, 5, 6, 0.05)
    with pytest.raises(ConfigError, match="each must be at most"):
        bounds.steinke_p_value(10, 11, 6, 1.0, 0.0)
