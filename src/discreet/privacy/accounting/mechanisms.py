r"""Noise mechanisms and their privacy cost: Gaussian, Laplace and Huber.

A mechanism adds independent noise of one shape to every coordinate of a statistic. It can draw that
noise, and it has the cost of the noise for a statistic that one user moves by at most Δ₁ (L1) and
Δ₂ (L2):

=========  ====================  ========  ===================================  =============
mechanism  density of noise t    variance  pure ε                               μ of GDP
=========  ====================  ========  ===================================  =============
Gaussian   ∝ exp(−t²/2s²)        s²        none                                 Δ₂/s (exact)
Laplace    ∝ exp(−|t|/s)         2s²       Δ₁/s                                 from ε, below
Huber      ∝ exp(−ρ_α(t/s))      s²·v(α)   α·Δ₁/s (Theorem 2.1 of the paper)    Δ₂/s
=========  ====================  ========  ===================================  =============

with ρ_α(t) = t²/2 for |t| ≤ α and α(|t| − α/2) beyond (eq. 3), κ_α its normalizing constant (eq. 2)
and

1. 1/κ_α = (2/α) e^{−α²/2} + √(2π) (2Φ(α) − 1)
2. v(α) = κ_α [ √(2π)(2Φ(α) − 1) + e^{−α²/2} (4/α + 4/α³) ],   falling from ∞ to 1

Why Huber noise is Δ₂-GDP at unit scale. Let f be its density, F its distribution and J = f∘F⁻¹.
Then J'' = −ρ''/J, which is at least −1/J because ρ'' ≤ 1, while the Gaussian has J_γ'' = −1/J_γ,
and both vanish at 0 and 1. Were J > J_γ somewhere, then at the largest gap J'' ≤ J_γ'' = −1/J_γ <
−1/J ≤ J'', a contradiction. So J ≤ J_γ: the increasing map T that carries the Gaussian to the Huber
distribution has T' = J_γ/J ≥ 1, hence F(F⁻¹(p) − Δ) ≥ Φ(Φ⁻¹(p) − Δ): a shift by Δ
is hidden at least as well as by the Gaussian. Coordinates compose: μ² = ΣΔ_i² = Δ₂².

Why one coordinate is the worst case for Laplace and Huber. Both are log-concave, so the trade-off
functions of a shift satisfy T_{Δ+Δ'} = T_{Δ'}(1 − T_Δ). Moving one coordinate after the other, the
group property of f-DP gives for a shift (Δ, Δ') of two coordinates a trade-off of at least T_{Δ'}(1
− T_Δ): shifts of total length Δ₁ are never easier to see than Δ₁ on one coordinate. So the
one-dimensional ``hockey_stick``, ``rdp`` and ``pld`` hold for whole matrices.

Why pure ε gives GDP: an ε-DP release is no better than randomized response, whose trade-off
function is two chords that meet on the diagonal at p = 1/(1 + e^ε); the convex Gaussian curve
through that point, μ = 2Φ⁻¹(1 − p), lies below them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, ndtri_exp

from discreet.errors import ConfigError
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import Norm, require_number
from discreet.privacy.accounting.roots import brentq

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Floats = NDArray[np.float64]
Shape = int | tuple[int, ...]
#: Limits of Huber's α: beyond them it equals Laplace or Gaussian noise to all digits, and drawing
#: it would take too long.
SMALLEST_ALPHA = 1e-6
LARGEST_ALPHA = 40.0
_SQRT_2PI = math.sqrt(2 * math.pi)


class Mechanism(ABC):
    """Additive noise of one shape. ``norm`` is the norm of the sensitivity that sets its cost."""

    kind: ClassVar[str]
    norm: ClassVar[Norm]
    scale: float

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of one draw."""

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one draw."""
        return math.sqrt(self.variance)

    @abstractmethod
    def sample(self, shape: Shape, rng: np.random.Generator | int | None = None) -> Floats:
        """Draw independent float64 noise, for research; private releases draw through a Session."""

    @abstractmethod
    def density(self, x: ArrayLike) -> Floats:
        """Probability density."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """Distribution function."""

    @abstractmethod
    def epsilon(self, sensitivity: float, delta: float = 0.0) -> float:
        """Return ε of one release with this sensitivity (in ``norm``); δ = 0 asks for pure ε."""

    @abstractmethod
    def mu(self, sensitivity: float) -> float:
        """Return μ of GDP, from the L2 sensitivity for Gaussian and Huber, from L1 for Laplace."""

    @abstractmethod
    def rdp(self, order: float, sensitivity: float) -> float:
        """Return an upper bound of the Rényi divergence of order > 1; sensitivity in ``norm``."""

    @abstractmethod
    def hockey_stick(self, epsilon: float, sensitivity: float) -> float:
        """Return δ(ε) of a shift of one coordinate by the sensitivity, for any real ε."""

    def pld(self, sensitivity: float, interval: float = 1e-4) -> PrivacyLossDistribution:
        """Return the privacy loss distribution, rounded upward (needs discreet[accounting])."""
        from discreet.privacy.accounting import pld

        return pld.loss_distribution(self, sensitivity, interval)

    def __post_init__(self) -> None:
        _positive("scale", self.scale)


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Normal noise with standard deviation ``scale``."""

    scale: float = 1.0
    kind: ClassVar[str] = "gaussian"
    norm: ClassVar[Norm] = "l2"

    @property
    def variance(self) -> float:
        return self.scale**2

    def sample(self, shape: Shape, rng: np.random.Generator | int | None = None) -> Floats:
        return self.scale * np.random.default_rng(rng).standard_normal(shape)

    def density(self, x: ArrayLike) -> Floats:
        t = np.asarray(x, float) / self.scale
        return np.exp(-t * t / 2) / (self.scale * _SQRT_2PI)

    def cdf(self, x: ArrayLike) -> Floats:
        below: Floats = ndtr(np.asarray(x, float) / self.scale)
        return below

    def epsilon(self, sensitivity: float, delta: float = 0.0) -> float:
        return gdp.epsilon(self.mu(sensitivity), delta)

    def mu(self, sensitivity: float) -> float:
        return _nonnegative(sensitivity) / self.scale

    def rdp(self, order: float, sensitivity: float) -> float:
        return _order(order) * self.mu(sensitivity) ** 2 / 2

    def hockey_stick(self, epsilon: float, sensitivity: float) -> float:
        if epsilon >= 0:
            return gdp.delta(epsilon, self.mu(sensitivity))
        # the pair is symmetric
        return 1 - math.exp(epsilon) * (1 - gdp.delta(-epsilon, self.mu(sensitivity)))


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Two-sided exponential noise, density exp(−|t|/scale)/(2·scale); its variance is 2·scale²."""

    scale: float = 1.0
    kind: ClassVar[str] = "laplace"
    norm: ClassVar[Norm] = "l1"

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    def sample(self, shape: Shape, rng: np.random.Generator | int | None = None) -> Floats:
        return np.random.default_rng(rng).laplace(0.0, self.scale, shape)

    def density(self, x: ArrayLike) -> Floats:
        density: Floats = np.exp(-np.abs(np.asarray(x, float)) / self.scale) / (2 * self.scale)
        return density

    def cdf(self, x: ArrayLike) -> Floats:
        t = np.asarray(x, float) / self.scale
        tail = np.exp(-np.abs(t)) / 2
        return np.where(t < 0, tail, 1 - tail)

    def epsilon(self, sensitivity: float, delta: float = 0.0) -> float:
        pure = _nonnegative(sensitivity) / self.scale
        if delta <= 0:
            return pure
        return min(pure, max(0.0, pure + 2 * math.log1p(-min(delta, 1 - 1e-16)) + 1e-14 * pure))

    def mu(self, sensitivity: float) -> float:
        return mu_of_pure(self.epsilon(sensitivity))

    def rdp(self, order: float, sensitivity: float) -> float:
        a = _order(order)
        e = self.epsilon(sensitivity)
        up = math.log(a / (2 * a - 1)) + (a - 1) * e
        down = math.log((a - 1) / (2 * a - 1)) - a * e
        return min(e, float(np.logaddexp(up, down)) / (a - 1))

    def hockey_stick(self, epsilon: float, sensitivity: float) -> float:
        pure = self.epsilon(sensitivity)
        if epsilon <= -pure:
            return -math.expm1(epsilon)
        return -math.expm1(min(epsilon - pure, 0.0) / 2)


@dataclass(frozen=True)
class Huber(Mechanism):
    """Huber noise: Gaussian within ``±alpha·scale``, exponential tails beyond.

    Parameters
    ----------
    alpha : float
        Where the tails begin, in units of ``scale``. Small α approaches Laplace noise, large α
        Gaussian noise.
    scale : float, default 1.0
        Width of the Gaussian center; the papers use 1.
    """

    alpha: float
    scale: float = 1.0
    kind: ClassVar[str] = "huber"
    norm: ClassVar[Norm] = "l1"

    def __post_init__(self) -> None:
        _positive("alpha", self.alpha)
        if not SMALLEST_ALPHA <= self.alpha <= LARGEST_ALPHA:
            raise ConfigError(
                f"alpha={self.alpha!r} must lie between {SMALLEST_ALPHA:g}, which is Laplace"
                f" noise to all digits, and {LARGEST_ALPHA:g}, which is Gaussian noise"
            )
        super().__post_init__()

    @classmethod
    def with_variance(cls, variance: float, scale: float = 1.0) -> Huber:
        """Choose α such that noise of this scale has the given variance, above ``scale²``."""
        wanted = variance / scale**2
        if not 1.0 < wanted < math.inf:
            raise ConfigError(
                f"variance={variance!r}: Huber noise of scale {scale!r} needs more than"
                f" {scale**2!r}"
            )
        root = brentq(
            lambda t: math.log(_unit_variance(math.exp(t)) / wanted),
            math.log(1.0 / wanted),
            math.log(LARGEST_ALPHA),
        )
        return cls(math.exp(float(root)), scale)

    @property
    def normalizer(self) -> float:
        """κ_α of equation 2, at unit scale."""
        return 1.0 / (
            2 / self.alpha * math.exp(-(self.alpha**2) / 2)
            + _SQRT_2PI * math.erf(self.alpha / math.sqrt(2))
        )

    @property
    def core(self) -> float:
        """Probability of the Gaussian center |t| ≤ α·scale."""
        return self.normalizer * _SQRT_2PI * math.erf(self.alpha / math.sqrt(2))

    @property
    def variance(self) -> float:
        return self.scale**2 * _unit_variance(self.alpha)

    def sample(self, shape: Shape, rng: np.random.Generator | int | None = None) -> Floats:
        """Draw from the truncated Gaussian center with probability ``core``, else from a tail."""
        rng = np.random.default_rng(rng)
        low = float(ndtr(-self.alpha))
        center = ndtri(low + (1 - 2 * low) * rng.random(shape))
        tail = (self.alpha + rng.standard_exponential(shape) / self.alpha) * rng.choice(
            [-1.0, 1.0], shape
        )
        drawn: Floats = self.scale * np.where(rng.random(shape) < self.core, center, tail)
        return drawn

    def density(self, x: ArrayLike) -> Floats:
        density: Floats = (
            self.normalizer
            / self.scale
            * np.exp(-_huber_loss(np.asarray(x, float) / self.scale, self.alpha))
        )
        return density

    def cdf(self, x: ArrayLike) -> Floats:
        t = np.asarray(x, float) / self.scale
        a = self.alpha
        # by symmetry, only the left half is evaluated: it keeps its relative accuracy
        low = -np.abs(t)
        tail = self.normalizer / a * np.exp(np.minimum(a * low + a * a / 2, -a * a / 2))
        left = tail + self.normalizer * _SQRT_2PI * (ndtr(np.maximum(low, -a)) - ndtr(-a))
        below: Floats = np.where(t > 0, 1 - left, left)
        return below

    def epsilon(self, sensitivity: float, delta: float = 0.0) -> float:
        """Return pure ε = α·Δ₁/scale; with δ > 0, the smaller ε where ``hockey_stick`` is δ."""
        pure = self.alpha * _nonnegative(sensitivity) / self.scale
        if delta <= 0 or pure == 0:
            return pure
        if self.hockey_stick(0.0, sensitivity) <= delta:
            return 0.0
        root = float(
            brentq(lambda e: self.hockey_stick(e, sensitivity) - delta, 0.0, pure, xtol=1e-13)
        )
        return min(pure, root + 1e-12)

    def mu(self, sensitivity: float) -> float:
        return _nonnegative(sensitivity) / self.scale

    def rdp(self, order: float, sensitivity: float) -> float:
        r"""Integrate ``log ∫ exp(−aρ(t) + (a−1)ρ(t−Δ)) dt + log κ`` over ``a − 1`` numerically.

        Convex in Δ for every order (an integral of log-convex functions), so one coordinate is the
        worst case.
        """
        a = _order(order)
        d = _nonnegative(sensitivity) / self.scale
        w = self.alpha
        ends = np.unique([-w, w, d - w, d + w])
        # panels short against the steepest change of the integrand: 12 nodes are then exact to
        # rounding
        panels = [np.linspace(p, q, 2 + int((q - p) * (a * w + 1))) for p, q in pairwise(ends)]
        edges = np.unique(np.concatenate(panels))
        nodes, weights = np.polynomial.legendre.leggauss(12)
        half = np.diff(edges)[:, None] / 2
        t = (edges[:-1, None] + half) + half * nodes
        terms = (
            -a * _huber_loss(t, w) + (a - 1) * _huber_loss(t - d, w) + np.log(half * weights)
        ).ravel()
        outer = [
            -a * _huber_loss(e, w) + (a - 1) * _huber_loss(e - d, w) - math.log(w)
            for e in (edges[0], edges[-1])
        ]
        log_integral = float(np.logaddexp.reduce(np.append(terms, outer))) + math.log(
            self.normalizer
        )
        return min(
            self.epsilon(sensitivity), a * d * d / 2, log_integral / (a - 1) * (1 + 1e-9) + 1e-13
        )

    def hockey_stick(self, epsilon: float, sensitivity: float) -> float:
        return float(self.hockey_sticks(np.array([epsilon]), sensitivity)[0])

    def hockey_sticks(self, epsilon: Floats, sensitivity: float) -> Floats:
        """Evaluate δ(ε) in closed form.

        The loss ρ(x−Δ) − ρ(x) falls with x, so the worst event is a half-line.
        """
        h = _nonnegative(sensitivity) / (2 * self.scale)
        w = self.alpha
        c = np.abs(epsilon)
        small = max(min(h, w), 1e-300)
        most = 2 * w * h
        bent = h + w - np.sqrt(2 * np.maximum(most - c, 0.0))
        end = h - np.copysign(np.where(c <= 2 * small * abs(w - h), c / (2 * small), bent), epsilon)
        with np.errstate(over="ignore"):
            excess = self.cdf(self.scale * end) - np.exp(epsilon) * self.cdf(
                self.scale * (end - 2 * h)
            )
        inside = np.where(
            epsilon <= -most, -np.expm1(np.minimum(epsilon, 0.0)), np.maximum(0.0, excess)
        )
        return np.where(epsilon >= most, 0.0, inside)


def make_mechanism(kind: str, standard_deviation: float, alpha: float | None = None) -> Mechanism:
    """Construct the mechanism of that name and standard deviation."""
    if kind == "gaussian":
        return Gaussian(standard_deviation)
    if kind == "laplace":
        return Laplace(standard_deviation / math.sqrt(2))
    if kind == "huber":
        if alpha is None:
            raise ConfigError("mechanism 'huber' needs alpha, the point where its tails begin")
        return Huber(alpha, standard_deviation / math.sqrt(_unit_variance(alpha)))
    raise ConfigError(f"mechanism={kind!r}: choose one of 'gaussian', 'laplace', 'huber'")


def mu_of_pure(epsilon: float) -> float:
    """Return the μ of GDP that every ε-DP release satisfies: 2Φ⁻¹(1/(1 + e^−ε)).

    Computed in logarithms, so that no ε overflows.
    """
    if math.isinf(epsilon):
        return math.inf
    return (
        max(0.0, -2 * float(ndtri_exp(-np.logaddexp(0.0, epsilon))))
        if epsilon > 1e-8
        else epsilon * _SQRT_2PI / 2
    )


def _huber_loss(t: Any, alpha: float) -> Any:
    size = np.abs(t)
    return np.where(size <= alpha, size * size / 2, alpha * (size - alpha / 2))


def _unit_variance(alpha: float) -> float:
    core = _SQRT_2PI * math.erf(alpha / math.sqrt(2))
    edge = math.exp(-(alpha**2) / 2)
    return (core + edge * (4 / alpha + 4 / alpha**3)) / (core + edge * 2 / alpha)


def _positive(name: str, value: Any) -> None:
    require_number(name, value)
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{name}={value!r} must be positive and finite")


def _nonnegative(sensitivity: float) -> float:
    if not sensitivity >= 0:
        raise ConfigError(f"sensitivity={sensitivity!r} must be a number of at least 0")
    return float(sensitivity)


def _order(order: float) -> float:
    if not 1.0 < order < math.inf:
        raise ConfigError(f"order={order!r}: Rényi orders above 1 are supported")
    return float(order)
