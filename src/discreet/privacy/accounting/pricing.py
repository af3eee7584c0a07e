r"""The privacy cost of a list of releases, and the noise that a budget requires.

A release is an ``Event``: a kind of noise and its *noise multiplier* z = standard deviation /
sensitivity. The cost depends on nothing else, so plans are priced without data and ledgers are
re-priced from the file alone.

=======  ============================================================================  =============
name     how the events e, each made n_e times, become (ε, δ)                          exact for
=======  ============================================================================  =============
gdp      μ² = Σ n_e μ_e², then δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)       Gaussian (the default)
rdp  ρ = Σ n_e ρ_e, then ε = ρ + 2√(ρ ln 1/δ): the papers' conversion of zCDP   none; an upper bound
pld      the distribution of the privacy loss, convolved (dp-accounting)         all, rounded upward
pure     ε = Σ n_e ε_e, δ = 0                                                         Laplace, Huber
=======  ============================================================================  =============

Per event: Gaussian μ = 1/z, ρ = μ²/2. Laplace and Huber have a pure ε; ρ = ε²/2, and for Huber also
μ = Δ₂/scale and ρ = μ²/2 (see ``mechanisms``). "gdp" prices a Laplace release through its pure ε;
"pld" is tighter there. Where all releases are pure, every accountant reports the sum of their ε
when that is smaller.

A Gaussian event with a *rate* q < 1 is a release of a Poisson batch: every user is in it with
probability q, independently, secretly, and drawn anew for each release. "pld" prices it as
dp-accounting does, the mixture (1 − q) N(0, z²) + q N(1, z²) against N(0, z²) and the other way
round, for add/remove one user only (``Plan`` refuses anything else). "gdp" and "rdp" have no
formula for it and price it as if all users were in every batch, an upper bound.

An event with a *law* is the best of a secret number of runs (``private_selection``). Every
accountant prices it from the trade-off curve of one run; ε and δ add up with those of other events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from discreet.errors import BudgetExceeded, ConfigError
from discreet.privacy.accounting import gdp, mechanisms, pld, private_selection
from discreet.privacy.accounting.budget import require_number
from discreet.privacy.accounting.roots import brentq

Accountant = Literal["gdp", "rdp", "pld", "pure"]
ACCOUNTANTS: tuple[str, ...] = get_args(Accountant)

#: Losses of batches are rounded upward to multiples of 2, 4, 8, … times this, which is what
#: dp-accounting's own accountant uses: its curve runs through all our points and more, and is
#: nowhere above ours.
FINEST_INTERVAL = 1e-4

#: Smaller batches take minutes to price, and hold almost no users.
LEAST_RATE = 1e-3

#: Label of each accountant's conversion.
CONVERSIONS: dict[str, str] = {
    "gdp": "Gaussian differential privacy, closed form",
    "rdp": "zCDP with the papers' conversion ε = ρ + 2√(ρ ln 1/δ)",
    "pld": "privacy loss distribution, rounded upward (dp-accounting)",
    "pure": "sum of pure ε",
}


def deviation_of(noise_multiplier: float, sensitivity: float) -> float:
    """Return noise multiplier × sensitivity; the only place where the two are multiplied."""
    return noise_multiplier * sensitivity


BEST_OF = "best of a secret number of runs, from the Gaussian trade-off curve (docs/tuning.md)"


@dataclass(frozen=True)
class Event:
    """One kind of release.

    Parameters
    ----------
    mechanism : {"gaussian", "laplace", "huber"}
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity, which is L2 for Gaussian and L1 for
        Laplace and Huber.
    count : int
        How often it is made.
    alpha : float, optional
        Huber only: where the tails begin, in units of the scale.
    l2_ratio : float, default 1.0
        Huber only: an upper bound of Δ₂/Δ₁. One is always right; clipping both norms allows less.
    rate : float, default 1.0
        Gaussian only: the probability with which a user is in the batch; 1 means all users.
    law, runs : str, float
        The best of a secret number of runs with this law and average (``private_selection``), each
        Gaussian with this noise multiplier as a whole. By default there is one run.
    """

    mechanism: str
    noise_multiplier: float
    count: int = 1
    alpha: float | None = None
    l2_ratio: float = 1.0
    rate: float = 1.0
    law: str = ""
    runs: float = 1.0

    def __post_init__(self) -> None:
        if self.law:
            private_selection.Runs(self.runs, self.law)
            if self.mechanism != "gaussian" or self.rate < 1:
                raise ConfigError(
                    "the best of several runs is priced only for Gaussian noise on sums over all"
                    " users"
                )
        require_number("rate", self.rate)
        if not LEAST_RATE <= self.rate <= 1:
            raise ConfigError(
                f"rate={self.rate!r}: the share of users in a batch must be at least"
                f" {LEAST_RATE:g} and at most 1"
            )
        if self.rate < 1 and self.mechanism != "gaussian":
            raise ConfigError(
                f"batches are priced for Gaussian noise only, not for {self.mechanism!r}"
            )
        require_number("noise_multiplier", self.noise_multiplier)
        if not self.noise_multiplier > 0 or not 0 < self.l2_ratio <= 1:
            raise ConfigError(
                f"noise_multiplier={self.noise_multiplier!r} must be positive, "
                f"l2_ratio={self.l2_ratio!r} above 0 and at most 1"
            )
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 0:
            raise ConfigError(f"count={self.count!r} must be a whole number of at least 0")
        # refuses unknown kinds and a missing alpha
        mechanisms.make_mechanism(self.mechanism, 1.0, self.alpha)

    @property
    def noise(self) -> mechanisms.Mechanism:
        """Noise for a statistic of unit sensitivity."""
        return mechanisms.make_mechanism(self.mechanism, self.noise_multiplier, self.alpha)

    def scale(self, factor: float) -> Event:
        """Return the event with ``factor`` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    @property
    def mu(self) -> float:
        """μ of one such release; of a batch, as if all users were in it."""
        return self.noise.mu(self.l2_ratio if self.mechanism == "huber" else 1.0)

    @property
    def share_mu(self) -> float:
        """μ for showing shares of a budget; for a batch the limit of many of them, not a bound."""
        if self.rate == 1 or self.mu > 5:
            return self.mu
        return min(self.mu, self.rate * math.sqrt(math.expm1(self.mu**2)))

    @property
    def pure(self) -> float:
        """Pure ε of one such release; infinite for Gaussian noise."""
        return self.noise.epsilon(1.0)

    @property
    def rho(self) -> float:
        """ρ of zCDP of one such release."""
        if self.mechanism == "laplace":
            return self.pure**2 / 2
        return min(self.mu, self.pure) ** 2 / 2


@dataclass(frozen=True)
class Price:
    """Cost of a composition and its conversion; ``mu`` is None where `gdp_mu` is."""

    epsilon: float
    delta: float
    mu: float | None
    accountant: str
    conversion: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mu": self.mu,
            "accountant": self.accountant,
            "conversion": self.conversion,
        }


def price(events: Sequence[Event], delta: float, accountant: str = "gdp") -> Price:
    """Return ε at δ, with the label of the conversion that gave it."""
    cost = epsilon(events, delta, accountant)
    return Price(
        cost, delta, gdp_mu(events, accountant), accountant, conversion(events, accountant)
    )


def conversion(events: Sequence[Event], accountant: str) -> str:
    """Return the label of the conversion that prices these events."""
    return BEST_OF if _has_selection(events) else CONVERSIONS[accountant]


def epsilon(events: Sequence[Event], delta: float, accountant: str = "gdp") -> float:
    """Return the ε of all events together, never understated.

    Privacy: valid for adaptive releases, each chosen with the results of the earlier ones at hand.
    """
    check_accountant(accountant)
    if not 0.0 <= delta < 1.0:
        raise ConfigError(f"delta={delta!r}: a probability is at least 0 and below 1")
    if _has_selection(events):
        return _selection_epsilon(events, delta, accountant)
    pure = total_pure(events)
    if accountant == "pure" or delta == 0.0 or pure == 0.0:
        return pure
    if accountant == "gdp":
        return min(pure, gdp.epsilon(total_mu(events), delta))
    if accountant == "rdp":
        return min(pure, gdp.zcdp_epsilon(total_rho(events), delta))
    if _batches(events):
        return min(pure, _batch_epsilon(tuple(events), delta))
    parts = [(event.noise, 1.0, event.count) for event in events]
    return min(pure, pld.epsilon(pld.compose(parts), delta))


def calibrate(
    events: Sequence[Event], epsilon: float, delta: float, accountant: str = "gdp"
) -> float:
    """Find the factor on all noise multipliers with which the events cost at most (ε, δ).

    Privacy: the result is stepped up until ``epsilon``, which rounds upward, is within the budget.
    """
    check_accountant(accountant)
    if not any(event.count for event in events):
        raise ConfigError("nothing to calibrate: the list holds no release")
    kept = delta > 0.0 and accountant != "pure"
    if not kept and math.isinf(total_pure(events)):
        raise ConfigError(
            "Gaussian noise has no pure ε. Pass a delta above 0, or use Laplace or Huber noise."
        )
    if kept and accountant == "pld" and delta <= pld.FFT_SLACK and math.isinf(total_pure(events)):
        raise ConfigError(
            f"delta={delta:.3g} is too small for accountant='pld', whose rounding is"
            f" {pld.FFT_SLACK:g}. Choose a larger delta, or accountant='gdp'."
        )
    factor = total_pure(events) / epsilon  # enough whenever it is finite
    if kept and accountant == "rdp":
        factor = min(factor, math.sqrt(2 * total_rho(events)) / gdp.zcdp_mu(epsilon, delta))
    elif kept:
        # the answer already when all noise is Gaussian or Huber
        start = total_mu(events) / gdp.mu(epsilon, delta)
        factor = min(factor, start)
        if accountant == "pld" and _batches(events):
            try:
                factor = _batch_factor(tuple(events), epsilon, delta)
            except ArithmeticError:
                raise ConfigError(
                    f"batches cannot be priced for epsilon={epsilon:g} at delta={delta:.3g}"
                ) from None
        elif (
            accountant == "pld"
            or _has_selection(events)
            or any(event.mechanism == "laplace" for event in events)
        ):
            factor = _search(lambda c: _cost(events, c, delta, accountant) - epsilon, factor)
    for step in range(60):
        if _cost(events, factor, delta, accountant) <= epsilon:
            return factor
        factor *= 1 + 2.0 ** min(step - 52, -1)
    raise BudgetExceeded(
        f"no noise was found that keeps ε={epsilon!r} at δ={delta!r} with accountant={accountant!r}"
    )


def gdp_mu(events: Sequence[Event], accountant: str) -> float | None:
    """Return the parameter of Gaussian differential privacy, where there is one.

    That is where all noise is Gaussian on sums over all users, and where "gdp" priced Laplace or
    Huber noise by such a bound. A batch has no μ: its loss has another distribution.
    """
    plain = accountant == "gdp" or all(event.mechanism == "gaussian" for event in events)
    return (
        total_mu(events) if plain and not _batches(events) and not _has_selection(events) else None
    )


def total_mu(events: Sequence[Event]) -> float:
    """Return √Σμ² over all releases."""
    return gdp.compose(*(event.mu * math.sqrt(event.count) for event in events if event.count))


def total_rho(events: Sequence[Event]) -> float:
    """Return Σρ over all releases."""
    return math.fsum(event.rho * event.count for event in events if event.count)


def total_pure(events: Sequence[Event]) -> float:
    """Return Σε over all releases; infinite as soon as one of them is Gaussian."""
    return math.fsum(event.pure * event.count for event in events if event.count)


def independent_epsilon(
    events: Sequence[Event], delta: float, method: Literal["pld", "rdp"] = "pld"
) -> float:
    """Compute ε by Google's accountants, which share no formula with "gdp" for Gaussian noise.

    "pld" composes one loss distribution per event; "rdp" sums Rényi divergences over many orders
    and converts by dp-accounting's own, tighter rule. Both round upward. For δ = 0, pure ε are read
    off the densities. Huber noise is priced as Gaussian noise where its Gaussian bound is tighter.
    """
    if _has_selection(events):
        raise ConfigError(
            "the best of a secret number of runs has no independent accountant of equal precision"
        )
    parts = [(event.noise, 1.0, event.count) for event in events if event.count]
    if _batches(events):
        return _google_epsilon(events, delta, method)
    if delta <= pld.FFT_SLACK:
        return pld.density_epsilon(parts)
    if method == "rdp":
        return pld.renyi_epsilon(parts, delta)
    library = pld.library()
    supported = {"gaussian": library.GaussianDpEvent, "laplace": library.LaplaceDpEvent}
    google = pld.library("dp_accounting.pld.pld_privacy_accountant").PLDAccountant()
    for event in events:
        scale = event.noise.scale if event.mechanism in supported else 1 / event.mu
        google.compose(supported.get(event.mechanism, library.GaussianDpEvent)(scale), event.count)
    bound = float(google.get_epsilon(delta))
    if any(event.mechanism == "huber" for event in events) and total_pure(events) < 10 * bound:
        return min(bound, pld.epsilon(pld.compose(parts), delta))
    return bound


def check_accountant(name: str) -> None:
    """Raise a `ConfigError` for an unknown accountant."""
    if name not in ACCOUNTANTS:
        raise ConfigError(f"accountant={name!r}: choose one of {', '.join(map(repr, ACCOUNTANTS))}")


def _cost(events: Sequence[Event], factor: float, delta: float, accountant: str) -> float:
    return epsilon([event.scale(factor) for event in events], delta, accountant)


def _search(excess: Callable[[float], float], start: float) -> float:
    """Find the root of a falling function near ``start``, from above to seven digits.

    The caller verifies the result.
    """
    low = start
    high = start
    while excess(high) > 0:
        low, high = high, 2 * high
    while low == high or excess(low) <= 0:
        low, high = low / 2, low
    return float(brentq(excess, low, high, xtol=1e-300, rtol=1e-7)) * (1 + 2e-7)


# ------------------------------------------------------------ the best of several runs


def _has_selection(events: Sequence[Event]) -> bool:
    return any(event.law and event.count for event in events)


def _selection_epsilon(events: Sequence[Event], delta: float, accountant: str) -> float:
    """Split δ among the selections and the rest; ε and δ add up for any mechanisms."""
    choices = [event for event in events if event.law and event.count]
    rest = [event for event in events if not event.law and event.count]
    parts = sum(event.count for event in choices) + bool(rest)
    total = epsilon(rest, delta / parts, accountant) if rest else 0.0
    for event in choices:
        one = private_selection.epsilon(
            event.mu, private_selection.Runs(event.runs, event.law), delta / parts
        )
        total += event.count * one
    return total


# ------------------------------------------------------------ batches


def _batches(events: Sequence[Event]) -> bool:
    return any(event.rate < 1 and event.count for event in events)


# cached: every session prices its plan again, which takes a noticeable time
@lru_cache(maxsize=4096)
def _batch_epsilon(events: tuple[Event, ...], delta: float) -> float:
    """Compute ε of Poisson batches and the other releases composed with them."""
    return pld.epsilon(_batch_losses(events), delta)


@lru_cache(maxsize=4)
def _batch_losses(events: tuple[Event, ...]) -> Any:
    """Compose the loss distributions of the events."""
    plds = pld.library("dp_accounting.pld.privacy_loss_distribution")
    mu = share_mu(events)
    # about 20,000 points
    interval = FINEST_INTERVAL * 2.0 ** max(1, math.ceil(math.log2(mu * (mu + 20) / 2)))
    total = pld.compose([(e.noise, 1.0, e.count) for e in events if e.rate == 1], interval)
    for event in events:
        if event.rate < 1 and event.count:
            one = plds.from_gaussian_mechanism(
                event.noise_multiplier,
                value_discretization_interval=interval,
                log_mass_truncation_bound=-60,
                sampling_prob=event.rate,
            )
            total = total.compose(one.self_compose(event.count))
    return total


@lru_cache(maxsize=256)
def _batch_factor(events: tuple[Event, ...], epsilon: float, delta: float) -> float:
    """Find the factor of `calibrate`, starting from the limit of many batches."""
    target = gdp.mu(epsilon, delta)
    start = _search(lambda c: share_mu([event.scale(c) for event in events]) - target, 1.0)

    def excess(factor: float) -> float:
        return _cost(events, factor, delta, "pld") - epsilon

    step = 1.05
    low = start
    high = start
    while excess(high) > 0:
        low, high, step = high, high * step, step**2
    while low == high or excess(low) <= 0:
        low, high, step = low / step, low, step**2
    return float(brentq(excess, low, high, xtol=1e-300, rtol=1e-6)) * (1 + 2e-6)


def share_mu(events: Sequence[Event]) -> float:
    """Return √Σμ² for showing shares of a budget: `total_mu`, with the limit for many batches."""
    return math.sqrt(math.fsum(event.share_mu**2 * event.count for event in events))


def _google_epsilon(events: Sequence[Event], delta: float, method: str) -> float:
    """Compute ε by dp-accounting's own accountants, which check that they support the events."""
    library = pld.library()
    if method == "rdp":
        google = pld.library("dp_accounting.rdp.rdp_privacy_accountant").RdpAccountant()
    else:
        google = pld.library("dp_accounting.pld.pld_privacy_accountant").PLDAccountant()
    kinds = {"gaussian": library.GaussianDpEvent, "laplace": library.LaplaceDpEvent}
    for event in events:
        if event.mechanism not in kinds:
            raise ConfigError(f"batches with {event.mechanism} noise have no second accountant")
        one = kinds[event.mechanism](event.noise.scale)
        google.compose(
            one if event.rate == 1 else library.PoissonSampledDpEvent(event.rate, one), event.count
        )
    return float(google.get_epsilon(delta))
