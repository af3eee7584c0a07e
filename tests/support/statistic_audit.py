r"""White-box audit: what do many draws of a release tell an adversary who knows everything but one
user?

The adversary knows the exact statistic with and without the worst-case user, and with which noise a
release is made. It looks along the direction in which the user moves the statistic, at many draws
of either kind, and asks how well the two can be told apart. The answer is compared with what the
ledger claims:

- Gaussian noise: μ = (difference of means) / (standard deviation), with an interval that is exact
  for normal draws: the difference is within z σ √(2/n), and σ within the chi-square bounds of the
  pooled deviation.
- Laplace and Huber noise: ε = ln(P(E | with) / P(E | without)) for the event E in which the loss is
  largest, "beyond where the statistic with the user lies (Huber: and beyond the center of the
  noise)", with Clopper and Pearson's exact binomial bounds on both probabilities. The place is
  taken from a quarter of the draws, the counts from the others.

An audit is no proof. It finds what proofs take for granted: a clip that does not cut, a sensitivity
that forgot a factor, noise that is smaller than the ledger says, a release that nobody charged.
`error` bounds the probability that a right mechanism is called broken, 10⁻⁹ by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from discreet.errors import ConfigError
from discreet.privacy.accounting import mechanisms
from discreet.privacy.accounting.budget import Neighboring, Norm
from discreet.privacy.accounting.mechanisms import mu_of_pure
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.sealed import KEY, Key, require

ERROR = 1e-9

#: ``release(present)``: many draws, (n, …), with the user present or not.
Draws = Callable[[bool], NDArray[Any]]


@dataclass(frozen=True)
class AuditResult:
    """What was found, with bounds that hold except with probability `error`.

    ``estimate``, ``low``, ``high`` and ``claimed`` are in units of ``unit``: μ of Gaussian privacy,
    or pure ε.
    """

    unit: Literal["mu", "epsilon"]
    estimate: float
    low: float
    high: float
    claimed: float
    draws: int
    error: float = ERROR

    @property
    def mu(self) -> float:
        """The estimate as a μ, whatever the unit."""
        return self.estimate if self.unit == "mu" else mu_of_pure(max(self.estimate, 0.0))

    @property
    def verdict(self) -> Literal["broken", "tight", "loose"]:
        """Broken: more is lost than claimed. Loose: certainly less is. Tight: the claim lies
        within the bounds.
        """
        if self.low > self.claimed:
            return "broken"
        return "loose" if self.high < self.claimed else "tight"

    def __str__(self) -> str:
        sign = {"mu": "μ", "epsilon": "ε"}[self.unit]
        return (
            f"{self.verdict}: {sign} = {self.estimate:.4g} in [{self.low:.4g}, {self.high:.4g}]"
            f" from {self.draws:,} draws, {self.claimed:.4g} claimed"
        )


def audit(
    release: Draws,
    claimed: float,
    direction: NDArray[Any],
    *,
    mechanism: str = "gaussian",
    beyond: float = 0.0,
    error: float = ERROR,
) -> AuditResult:
    """Compare what draws of a release give away with what is claimed.

    Parameters
    ----------
    release : function (present) -> (n, …) array
        n independent draws of everything that is released, with the worst-case user or without.
    claimed : float
        μ for Gaussian noise, pure ε for Laplace and Huber noise.
    direction : array of the shape of one draw
        What a draw is multiplied with and summed; the user's move must be positive along it. For
        Laplace and Huber noise, one entry alone.
    mechanism : {"gaussian", "laplace", "huber"}
    beyond : float
        For Huber noise, half the width of its center along the direction, α · scale.
    error : float
        The probability with which the bounds may fail.
    """
    inside, outside = (
        np.tensordot(release(kind), direction, axes=np.ndim(direction)) for kind in (True, False)
    )
    if inside.ndim != 1 or min(len(inside), len(outside)) < 100:
        raise ConfigError(
            "an audit needs at least a hundred draws of each kind, and a direction of their shape"
        )
    draws = len(inside) + len(outside)
    if mechanism == "gaussian":
        return AuditResult("mu", *_gaussian(inside, outside, error), claimed, draws, error)
    return AuditResult("epsilon", *_tails(inside, outside, beyond, error), claimed, draws, error)


def audit_statistic(
    present: ReleasableSum,
    absent: ReleasableSum,
    *,
    mechanism: str = "gaussian",
    noise_multiplier: float = 0.25,
    alpha: float | None = None,
    neighboring: Neighboring = "add-remove",
    noise: Any = "secure",
    random_state: int | None = None,
    draws: int = 20_000,
    error: float = ERROR,
) -> AuditResult:
    """Audit one release of a statistic, given with and without the worst-case user (or with one and
    with another).

    The draws are made by `Session.release`, charged and noised as any other, and the claim is what
    its ledger says. Nothing may be learned from the result about real users: use it on made-up
    ones.
    """
    line = Release("audited", 2, noise_multiplier, mechanism, alpha)
    session = Session(Plan.explicit([line], 1e-6, neighboring), noise, random_state)
    release = {
        kind: (
            session.release("audited", Copies(KEY, statistic, draws)).reshape(draws, *present.shape)
        )
        for kind, statistic in ((True, present), (False, absent))
    }
    entry = session.ledger.entries[0]
    unit = mechanisms.make_mechanism(entry.mechanism, entry.noise_multiplier, entry.alpha)
    moved = (present.compute(KEY) - absent.compute(KEY)).astype(np.float64)
    if mechanism == "gaussian":
        weights = present.weights("l2")
        direction = moved * (1.0 if weights is None else weights**2)
        return audit(release.__getitem__, unit.mu(1.0), direction, error=error)
    direction = np.zeros_like(moved)
    most = np.unravel_index(np.argmax(np.abs(moved)), moved.shape)
    direction[most] = np.sign(moved[most])
    beyond = (alpha or 0.0) * unit.scale * entry.sensitivity
    return audit(
        release.__getitem__,
        unit.epsilon(1.0),
        direction,
        mechanism=mechanism,
        beyond=beyond,
        error=error,
    )


class Copies:
    """A statistic so many times below itself: one release of it makes that many independent draws.

    Its sensitivity is that of one copy, so it is good for audits and nothing else; it takes the key
    to make one.
    """

    def __init__(self, key: Key, statistic: ReleasableSum, times: int) -> None:
        require(key)
        self._statistic = statistic
        self._times = times

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._times * self._statistic.shape[0], *self._statistic.shape[1:])

    def sensitivity(self, neighboring: Neighboring, norm: Norm) -> float:
        return self._statistic.sensitivity(neighboring, norm)

    def weights(self, norm: Norm) -> NDArray[np.float64] | None:
        return self._statistic.weights(norm)

    def compute(
        self, key: Key, *, grid: float | None = None, rows: slice | None = None
    ) -> NDArray[Any]:
        one = self._statistic.compute(key, grid=grid)
        return np.tile(one, (self._times, *[1] * (one.ndim - 1)))[rows or slice(None)]


def _gaussian(
    inside: NDArray[Any], outside: NDArray[Any], error: float
) -> tuple[float, float, float]:
    n, m = len(inside), len(outside)
    free = n + m - 2
    deviation = math.sqrt(((n - 1) * inside.var(ddof=1) + (m - 1) * outside.var(ddof=1)) / free)
    apart = float(inside.mean() - outside.mean()) / max(deviation, 1e-300)
    small, large = (
        math.sqrt(quantile(error / 4, free) / free) for quantile in (stats.chi2.ppf, stats.chi2.isf)
    )
    around = -stats.norm.ppf(error / 4) * math.sqrt(1 / n + 1 / m)
    scaled = sorted((apart * small, apart * large))
    return apart, scaled[0] - around, scaled[1] + around


def _tails(
    inside: NDArray[Any], outside: NDArray[Any], beyond: float, error: float
) -> tuple[float, float, float]:
    cut = len(inside) // 4
    place = float(np.median(inside[:cut])) + beyond
    hits = [(int((side > place).sum()), len(side)) for side in (inside[cut:], outside)]
    (least, most), (fewest, greatest) = (_clopper_pearson(*hit, error / 4) for hit in hits)
    with np.errstate(divide="ignore"):
        ratios = np.log([hits[0][0] / hits[0][1], least, most]) - np.log(
            [hits[1][0] / hits[1][1], greatest, fewest]
        )
    return float(ratios[0]), float(ratios[1]), float(ratios[2])


def _clopper_pearson(hits: int, of: int, error: float) -> tuple[float, float]:
    """Bounds on a probability, each failing with probability `error` at most."""
    low = stats.beta.ppf(error, hits, of - hits + 1) if hits else 0.0
    return float(low), float(stats.beta.isf(error, hits + 1, of - hits) if hits < of else 1.0)
