r"""Lower bounds on ε from many guesses in one training, by two methods.

The game: each of m canaries takes part in one training with probability 1/2. An adversary sees the
result, guesses the membership of G canaries and abstains from the rest; R guesses are right. If the
training is private, R cannot be much above G/2, and each method below bounds how far.

Steinke, Nasr and Jagielski (2023), for (ε, δ). Without δ, R is stochastically dominated by
Bin(G, q) with q = e^ε/(1 + e^ε). With δ, and B ~ Bin(G, q),

    P[R ≥ c] ≤ P[B ≥ c] + 2 m δ max_i P[c > B ≥ c − i]/i.                                        (1)

Mahloujifar, Melis and Chaudhuri (2024), for a whole trade-off curve f, here that of μ-GDP. Write f̄
= 1 − f and

    r_c = Σ_i P[guess i is right, R ≥ c]/m,       h_c = Σ_i P[guess i is wrong, R ≥ c]/m.

A right guess i with R ≥ c becomes, when canary i's membership is flipped and the output stays, a
wrong one with R ≥ c − 1: so r_c ≤ f̄(h_{c−1}), since f̄ is concave. And if R = i with probability
p_i, then r_i − r_{i+1} = i p_i/m and h_i − h_{i+1} = (G − i) p_i/m. Suppose P[R ≥ c] = τ. Then
r_c ≥ τ c/m, with equality if R = c on the whole event, and downwards

    h_i ≥ max(h_{i+1}, f̄⁻¹(r_{i+1})),       r_i = r_{i+1} + i/(G − i) · (h_i − h_{i+1}),        (2)

while r_0 + h_0 = G/m. If (2) ends above G/m, then P[R ≥ c] < τ. For μ-GDP, f̄⁻¹(x) = Φ(Φ⁻¹(x) − μ).

Both hold for any guessing rule, even one that knows the membership of all other canaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from discreet.errors import ConfigError
from discreet.privacy.accounting import gdp

#: The ends of the bisection: a larger bound would take far more canaries than any training has.
LARGEST_EPSILON = 200.0
LARGEST_MU = 30.0


def steinke_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of this many right guesses, or more, for (ε, δ) by (1)."""
    _check(canaries, guesses, right)
    q = 1 / (1 + math.exp(-epsilon))
    beyond = float(stats.binom.sf(right - 1, guesses, q))
    if delta == 0 or right == 0:
        return beyond
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    alpha = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, beyond + 2 * canaries * delta * alpha)


def steinke_epsilon(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return the largest ε that (1) refutes, or 0: a lower bound with confidence 1 − `error`."""
    return _largest(
        lambda e: steinke_p_value(canaries, guesses, right, e, delta) < error, LARGEST_EPSILON
    )


def fdp_refutes(canaries: int, guesses: int, right: int, mu: float, error: float) -> bool:
    """Return whether (2) refutes μ-GDP: this many right guesses have probability below `error`."""
    _check(canaries, guesses, right)
    r = error * right / canaries
    h = error * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        least = float(ndtr(ndtri(r) - mu))
        if least <= h:  # a fixed point: r and h stay as they are
            break
        r = min(1.0, r + i / (guesses - i) * (least - h))
        h = least
    return r + h > guesses / canaries


def fdp_mu(canaries: int, guesses: int, right: int, error: float) -> float:
    """Return the largest μ that (2) refutes, or 0: a lower bound with confidence 1 − `error`."""
    return _largest(lambda mu: fdp_refutes(canaries, guesses, right, mu, error), LARGEST_MU)


def fdp_epsilon(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return the ε at δ of the largest μ that (2) refutes."""
    mu = fdp_mu(canaries, guesses, right, error)
    return gdp.epsilon(mu, delta) if mu > 0 else 0.0


def _largest(refuted: Callable[[float], bool], most: float) -> float:
    """Return the upper end of the interval of refuted claims, by bisection from below."""
    if not refuted(0.0):
        return 0.0
    if refuted(most):
        return most
    low = 0.0
    high = most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _check(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise ConfigError(
            f"{right} right guesses of {guesses} on {canaries} canaries: each must be at most the"
            " next."
        )
