r"""The privacy cost of releasing only the best of K runs, with K secret and random.

Each run draws a setting, trains, scores itself and is μ-GDP as a whole, its score included. The run
with the best score is released. With f(x) = E[x^K] and g(t) = Φ(Φ⁻¹(t) − μ), the outcome satisfies
(proof below)

1. δ_A(ε) ≤ E[ v(r) ], v(r) = max over t in [0, 1] of ( f'(t) − e^ε f'(g(t)) r )₊, r = e^{μZ −
   μ²/2}, Z ~ N(0, 1)

which is never above E[K] · δ_μ(ε − L) with L = max ln f'(t) / f'(g(t)). The maximum is taken over
cells of t, with f' at their upper and f'(g) at their lower end, so it is not understated. It is a
maximum of lines in x = e^ε r that does not depend on ε, hence a sum of hinges Σ_j w_j (c_j − x)₊,
and each hinge has a closed expectation:

2. E(c − r)₊ = c Φ(k) − Φ(k − μ),   k = (ln c + μ²/2) / μ

Laws of K (all have K ≥ 1, so that there is always a winner), with m = E[K]:

==================  ======================================  ========================================
geometric           P(K = k) = γ (1 − γ)^(k−1), γ = 1/m     f'(x) = m (γ / (1 − (1 − γ) x))²
logarithmic         ∝ (1 − γ)^k / k                         f'(x) = m (γ / (1 − (1 − γ) x))
negative-binomial   ∝ (1 − γ)^k Π (l + η)/(l + 1)           f'(x) = m (γ / (1 − (1 − γ) x))^(η + 1)
poisson             ∝ λ^k / k!                              f'(x) = m e^{λ (x − 1)}
==================  ======================================  ========================================

The first two are the third with shape η = 1 and η = 0; "negative-binomial:0.5" has η = 0.5. The
lower η, the cheaper, and the more often K is 1.

*Theorem.* Let Q be the distribution of what one run gives on a data set, a model with its setting
and its score s, and Q' the same on a neighboring one. K is independent of the data, with P(K ≥ 1) =
1. A is the distribution of the run with the best score among K independent ones, ties broken at
random; A' the same for Q'. Every run is μ-GDP: for every event E,

3. Q'(E) ≥ g(Q(E)), and the same with Q and Q' exchanged.

Then A(S) − e^ε A'(S) ≤ E[v(r)] for every ε ≥ 0 and every event S, with v and r as in 1. As 3. is
symmetric, so is the bound.

*Proof.* (a) Ties. Give each run a number u, uniform on [0, 1] and independent of everything, and
order runs by (s, u) lexicographically. Adding u is post-processing, so 3. still holds for the
distributions of y = (model, s, u), called Q and Q' again. For an outcome y let F(y) = Q(those not
above y) = Q(score < s) + Q(score = s) · u. F(Y) is uniform on [0, 1] for Y ~ Q, whether scores are
discrete or not (the distributional transform), and no two of countably many runs are tied, with
probability 1.

(b) The winner. Given K = k, the winner is run i with outcome in S if y_i ∈ S and all others are
below it. Runs are independent and P(y_j below y) = F(y), so A(S | K = k) = k ∫_S F(y)^(k−1) dQ(y).
Averaging over K (all terms are positive), with F'(y) = Q'(outcomes not above y),

4. A(S) = ∫_S f'(F(y)) dQ(y),   A'(S) = ∫_S f'(F'(y)) dQ'(y)

(c) F' is not far below F. "Not above y" is an event, so by 3. F'(y) ≥ g(F(y)). f' has non-negative
coefficients, so it does not decrease, and f'(F'(y)) ≥ f'(g(F(y))).

(d) Pointwise. Let r(y) = dQ'/dQ; 3. makes Q and Q' absolutely continuous with respect to each
other, because g(t) = 0 only for t = 0. From 4. and (c), A(S) − e^ε A'(S) ≤ ∫_S (f'(F) − e^ε
f'(g(F)) r) dQ ≤ ∫ (f'(F) − e^ε f'(g(F)) r)₊ dQ ≤ E_Q[v(r(Y))].

(e) The Gaussian pair is the worst. v is a maximum of functions that are convex in r, so it is
convex. 3. says that E_Q[(1 − c r)₊] = sup_E Q(E) − c Q'(E) is for every c ≥ 0 at most what it is
for N(0, 1) and N(μ, 1), whose ratio is e^{μZ − μ²/2}; both ratios have the mean 1. So E(k − r)₊ is
ordered for every k, which with equal means is the convex order: E φ(r) ≤ E φ(e^{μZ − μ²/2}) for
every convex φ, and so for v. ∎

The simpler bound: f'(t) − e^ε f'(g(t)) r ≤ f'(t) (1 − e^{ε−L} r) ≤ f'(1) (1 − e^{ε−L} r)₊, and
f'(1) = E[K]. Neither is tight: the order that makes F' small and the one that makes r small are
opposite, and (d) allows both at once.

A run with a random setting is μ-GDP if it is for every setting: given the setting, 3. holds for the
pair of conditional distributions; the setting is drawn the same way on both data sets; g is convex,
so 3. holds for averages (Jensen). A run with its score is the composition of both, μ² = μ_training²
+ μ_score², because the score is computed from the model that was just released and from the data.
Held-out ratings are drawn from one user's ids only, so neighboring data sets stay neighboring.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from discreet.errors import ConfigError
from discreet.privacy.accounting.budget import require_number
from discreet.privacy.accounting.roots import brentq

LAWS = ("geometric", "logarithmic", "poisson")
MOST_RUNS = 1000.0
_REACH = 9.0  # of Φ⁻¹(t); what is beyond is in the first and the last cell
# width of a cell over μ: the price is then within about 0.1 % of that of infinitely many
_FINEST = 1 / 150
_MOST_CELLS = 40_000
_SAFETY = 1 + 1e-9  # for rounding in `delta`, whose terms have a relative error below 1e-12
_DIGITS = 70


@dataclass(frozen=True)
class Runs:
    """The distribution of K.

    Parameters
    ----------
    mean : float
        E[K], above 1.
    law : str
        "geometric", "logarithmic", "poisson", or "negative-binomial:η" with a shape η above −1.
    """

    mean: float
    law: str = "geometric"

    def __post_init__(self) -> None:
        require_number("runs", self.mean)
        if not 1 < self.mean <= MOST_RUNS:
            raise ConfigError(
                f"runs={self.mean!r}: the average number of runs must be above 1 and at most"
                f" {MOST_RUNS:g}"
            )
        if self.law not in LAWS and self._shape is None:
            raise ConfigError(
                f"distribution={self.law!r}: choose one of {', '.join(LAWS)}, or"
                " negative-binomial:0.5"
            )

    @property
    def _shape(self) -> float | None:
        """η; None for the Poisson law."""
        known = {"geometric": 1.0, "logarithmic": 0.0}
        if self.law in known:
            return known[self.law]
        name, _, text = self.law.partition(":")
        try:
            shape = float(text)
        except ValueError:
            return None
        return shape if name == "negative-binomial" and -1 < shape <= 100 else None

    @property
    def shape(self) -> float:
        """η as dp-accounting has it: infinite for the Poisson law."""
        return math.inf if self._shape is None else self._shape

    def slope(self, miss: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return f'(x) from 1 − x, which keeps the digits near x = 1."""
        if self._shape is None:
            return np.asarray(self.expected * np.exp(-_rate(self.mean) * miss))
        gamma = _gamma(self.mean, self._shape)
        return np.asarray(
            self.expected * (gamma / (gamma + (1 - gamma) * miss)) ** (self._shape + 1)
        )

    @property
    def expected(self) -> float:
        """E[K] of the distribution that is drawn from, which is `mean` up to rounding."""
        if self._shape is None:
            rate = _rate(self.mean)
            return rate / -math.expm1(-rate)
        return _mean(_gamma(self.mean, self._shape), self._shape)

    def draw(self) -> int:
        """Draw K from the operating system's entropy, exact to seventy digits."""
        uniform = Decimal(secrets.randbelow(10**_DIGITS))
        with localcontext() as context:
            context.prec = _DIGITS + 10
            first, ratio = self._start()
            left = uniform / Decimal(10) ** _DIGITS - first
            k = 1
            while left >= 0:
                first *= ratio(k)
                k += 1
                left -= first
        return k

    def _start(self) -> tuple[Decimal, Any]:
        """Return P(K = 1), and P(K = k + 1) / P(K = k) as a function of k."""
        if self._shape is None:
            rate = Decimal(_rate(self.mean))
            return rate / (rate.exp() - 1), lambda k: rate / (k + 1)
        gamma = Decimal(_gamma(self.mean, self._shape))
        shape = Decimal(self._shape)
        if shape == 0:
            return (1 - gamma) / -gamma.ln(), lambda k: (1 - gamma) * k / (k + 1)
        first = (1 - gamma) * shape / ((-shape * gamma.ln()).exp() - 1)
        return first, lambda k: (1 - gamma) * (k + shape) / (k + 1)


# ------------------------------------------------------------------ prices


def delta(epsilon: float, mu: float, runs: Runs) -> float:
    """Return δ(ε) of the best of K runs that are μ-GDP each, never understated."""
    if mu == 0.0:
        return 0.0
    weight, corner = _hinges(float(mu), runs)
    log_c = np.log(corner) - epsilon
    k = (log_c + mu * mu / 2) / mu
    # E(c − r)₊ = c Φ(k) (1 − Φ(k − μ) / (c Φ(k))), which does not cancel to nothing far out
    inner = -np.expm1(np.minimum(log_ndtr(k - mu) - log_c - log_ndtr(k), 0.0))
    terms = np.exp(np.log(weight) + epsilon + log_c + log_ndtr(k)) * inner
    return min(1.0, math.fsum(terms) * _SAFETY)


def epsilon(mu: float, runs: Runs, target: float) -> float:
    """Return the smallest ε with δ(ε) ≤ `target`, rounded up."""
    if target <= 0.0:
        return math.inf if mu > 0 else 0.0
    if delta(0.0, mu, runs) <= target:
        return 0.0
    high = 1.0
    while delta(high, mu, runs) > target:
        high *= 2
        if high > 1e6:
            return math.inf
    root = float(
        brentq(lambda e: math.log(max(delta(e, mu, runs), 1e-320) / target), 0.0, high, rtol=1e-12)
    )
    while delta(root, mu, runs) > target:
        root *= 1 + 1e-12
    return root


def mu(epsilon: float, target: float, runs: Runs) -> float:
    """Return the largest μ of one run with which the best of K costs at most (ε, δ = `target`)."""
    low = 0.0
    high = 1e-3
    while delta(epsilon, high, runs) <= target:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        if delta(epsilon, middle, runs) <= target:
            low = middle
        else:
            high = middle
        if high - low < 1e-12 * high:
            break
    if low == 0.0:
        raise ConfigError(
            f"epsilon={epsilon:g} at delta={target:.3g} is too small for the best of"
            f" {runs.mean:g} runs. Choose fewer runs, or a larger epsilon."
        )
    return low


def renyi_epsilon(mu: float, runs: Runs, target: float) -> float:
    """Return ε by Rényi divergences (Papernot & Steinke), dp-accounting's upper bound."""
    from discreet.privacy.accounting import pld

    library = pld.library("dp_accounting.dp_event")
    # dp-accounting's Poisson law may be 0, which is redrawn here: with our λ, its mean is λ
    mean = _rate(runs.mean) if math.isinf(runs.shape) else runs.expected
    accountant = pld.library("dp_accounting.rdp.rdp_privacy_accountant").RdpAccountant(
        np.concatenate([np.linspace(1.02, 2, 40), np.geomspace(2.05, 1000, 120)])
    )
    accountant.compose(
        library.RepeatAndSelectDpEvent(library.GaussianDpEvent(1 / mu), mean, runs.shape)
    )
    return float(accountant.get_epsilon(target))


# ------------------------------------------------------------------ the curve


def _cells(mu: float, runs: Runs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluate f' at the upper and f'(g) at the lower end of cells of t from 0 to 1."""
    x = np.linspace(
        -_REACH, _REACH, min(_MOST_CELLS, math.ceil(2 * _REACH / min(0.01, _FINEST * mu)))
    )
    miss = np.concatenate([ndtr(-x), [0.0]])  # 1 − t at the upper ends
    shifted = np.concatenate([[1.0], ndtr(mu - x)])  # 1 − g(t) at the lower ends
    return runs.slope(miss), runs.slope(shifted)


@lru_cache(maxsize=512)
def _hinges(mu: float, runs: Runs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Write V(x) = max (a_i − b_i x)₊ as Σ w_j (c_j − x)₊: the weights w_j and corners c_j."""
    upper, lower = _cells(mu, runs)
    # (a, b), the upper envelope for x ≥ 0, from the right
    lines: list[tuple[float, float]] = [(0.0, 0.0)]
    corners: list[float] = []  # between line j and line j + 1, falling
    for a, b in zip(upper.tolist(), lower.tolist(), strict=True):
        while lines:
            a0, b0 = lines[-1]
            if b <= b0:  # no steeper and higher: the line before is never on top
                if a > a0:
                    lines.pop()
                    if corners:
                        corners.pop()
                    continue
                break
            corner = (a - a0) / (b - b0)
            if corners and corner >= corners[-1]:
                lines.pop()
                corners.pop()
                continue
            lines.append((a, b))
            corners.append(corner)
            break
        else:
            lines.append((a, b))
    slopes = np.array([b for _, b in lines])
    bends = np.diff(slopes)
    c = np.array(corners)
    keep = (c > 0) & (bends > 0)
    return bends[keep], c[keep]


# ------------------------------------------------------------------ parameters of the laws


def _mean(gamma: float, shape: float) -> float:
    if shape == 0:
        return (1 / gamma - 1) / -math.log(gamma)
    return shape * (1 - gamma) / (gamma * -math.expm1(shape * math.log(gamma)))


@lru_cache(maxsize=256)
def _gamma(mean: float, shape: float) -> float:
    """γ of the negative binomial law with that mean."""
    if shape == 1:
        return 1 / mean
    return float(
        brentq(lambda gamma: _mean(gamma, shape) - mean, 1e-9, 1 - 1e-9, xtol=1e-300, rtol=1e-14)
    )


@lru_cache(maxsize=256)
def _rate(mean: float) -> float:
    """λ of the Poisson law without 0 that has that mean."""
    return float(
        brentq(lambda rate: rate / -math.expm1(-rate) - mean, 1e-9, mean, xtol=1e-300, rtol=1e-14)
    )
