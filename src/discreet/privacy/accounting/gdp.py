r"""Gaussian differential privacy in closed form: the default accountant.

A composition of Gaussian releases, release ``i`` with L2 sensitivity ``Δ_i`` and noise ``σ_i``, is
*exactly* as private as distinguishing N(0, 1) from N(μ, 1) (Dong, Roth & Su, "Gaussian differential
privacy", Corollaries 2 and 4):

1. μ² = Σ_i (Δ_i / σ_i)²
2. δ(ε) = Φ(−a) − e^ε Φ(−b),   a = ε/μ − μ/2,   b = ε/μ + μ/2

Equation 2 as printed cancels: both terms agree to all digits when μ is small, and e^ε overflows
when ε is large. Since e^ε φ(b) = φ(a), it is the same as

3. δ(ε) = φ(a) · [R(a) − R(b)],   R(x) = Φ(−x)/φ(x) = √(π/2) erfcx(x/√2)       (R is Mills' ratio)
4. R(a) − R(b) = ∫_a^b (1 − x R(x)) dx                                         (because R' = xR − 1)

in which nothing overflows, and the logarithm of δ has an absolute error below ``LOG_ERROR`` for ε
from 1e-3 to 1e3 and δ down to 1e-15. The two inverses search a monotone function and round to the
safe side: the ε returned is never below the true one, the μ returned is never above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from discreet.errors import ConfigError
from discreet.privacy.accounting.roots import brentq

#: Bound on the rounding error of ``log_delta``: the safety margin of the inverses. Tests compare
#: with 50 digits.
LOG_ERROR = 2e-13
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def compose(*mus: float) -> float:
    """Return μ of adaptively composed releases: √Σμ²."""
    return math.hypot(*mus)


def log_delta(epsilon: float, mu: float) -> float:
    """Return ln δ(ε) of μ-GDP; −inf where no δ is needed."""
    _check("epsilon", epsilon)
    _check("mu", mu)
    if mu == 0.0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    a = epsilon / mu - mu / 2
    b = epsilon / mu + mu / 2
    # equation 4, free of cancellation; exact to rounding with 20 nodes on an interval this short
    if mu <= 1.0:
        x = (a + b) / 2 + mu / 2 * _NODES
        gap = mu / 2 * float(_WEIGHTS @ (1.0 - x * _mills(x)))
    elif a > 0.0:
        gap = float(_mills(a) - _mills(b))
    else:  # δ is large: equation 2 is harmless once e^ε Φ(−b) is written as φ(a) R(b)
        second = math.exp(-a * a / 2 - _LOG_SQRT_2PI) * float(_mills(b))
        return math.log(float(ndtr(-a)) - second) if second > 0.0 else float(log_ndtr(-a))
    return -a * a / 2 - _LOG_SQRT_2PI + math.log(gap) if gap > 0.0 else -math.inf


def delta(epsilon: float, mu: float) -> float:
    """Return the smallest δ for which μ-GDP implies (ε, δ)."""
    return math.exp(min(log_delta(epsilon, mu), 0.0))


def epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε for which μ-GDP implies (ε, δ), rounded up.

    Privacy: the true δ at the returned ε is not above the one asked for.
    """
    _check("mu", mu)
    _check_delta(delta)
    if mu == 0.0 or delta >= 1.0:
        return 0.0
    if delta == 0.0 or math.isinf(mu):
        return math.inf
    target = math.log(delta) - LOG_ERROR
    if log_delta(0.0, mu) <= target:
        return 0.0
    upper = zcdp_epsilon(mu * mu / 2, math.exp(target))  # an upper bound for every μ
    return _first_not_above(lambda e: log_delta(e, mu) - target, 0.0, upper, toward=math.inf)


def mu(epsilon: float, delta: float) -> float:
    """Return the largest μ for which μ-GDP implies (ε, δ), rounded down.

    1/μ is the least noise multiplier of one release.

    Privacy: the true δ of the returned μ at ε is not above the one asked for.
    """
    _check("epsilon", epsilon)
    _check_delta(delta)
    if delta == 0.0:
        return 0.0 if math.isfinite(epsilon) else math.inf
    if delta >= 1.0 or math.isinf(epsilon):
        return math.inf
    target = math.log(delta) - LOG_ERROR
    lower = zcdp_mu(epsilon, math.exp(target)) if epsilon > 0 else delta / 4
    upper = 2 * lower + 1e-300
    while log_delta(epsilon, upper) <= target:
        upper *= 2
    return _first_not_above(lambda m: log_delta(epsilon, m) - target, upper, lower / 2, toward=0.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Convert ρ = μ²/2 as the papers do, an upper bound: ε = ρ + 2√(ρ ln 1/δ)."""
    return rho + 2 * math.sqrt(rho * -math.log(delta))


def zcdp_mu(epsilon: float, delta: float) -> float:
    """Return √(2ρ) for the ρ that the papers' conversion allows at (ε, δ), without cancellation."""
    log_inverse = -math.log(delta)
    return math.sqrt(2.0) * epsilon / (math.sqrt(epsilon + log_inverse) + math.sqrt(log_inverse))


def _first_not_above(
    excess: Callable[[float], float], bad: float, good: float, toward: float
) -> float:
    """Find the root of a monotone function between ``bad`` (> 0) and ``good`` (≤ 0).

    The root is stepped until the function is not above zero there.
    """
    tiny = 4 * np.finfo(float).eps
    root = float(brentq(excess, bad, good, xtol=1e-300, rtol=tiny, maxiter=500))
    step = abs(root) * 2.0**-52
    while excess(root) > 0.0:
        root = root + step if toward > root else root - step
        step *= 2
    return root


def _mills(x: np.ndarray | float) -> np.ndarray:
    ratio: np.ndarray = _SQRT_HALF_PI * erfcx(np.asarray(x) / math.sqrt(2.0))
    return ratio


def _check(name: str, value: float) -> None:
    if not value >= 0.0:
        raise ConfigError(f"{name}={value!r} must be a number of at least 0")


def _check_delta(value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"delta={value!r}: a probability lies between 0 and 1")
