"""Compare the sums of two trainings that differ in one user and share the same releases.

The first training draws noise as usual. Every other one, with a canary among the users, *replays*
it: whatever the data, each release returns the value of the first training
(`discreet.auditing.conformance.recorder`). Both then have the same public past, as seen by an
adversary who knows everything except one user, so any difference comes from that user. Exact sums
are compared outside `Session.release`, so this module accepts generated users only.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from discreet.auditing.canaries import Canary, join_canary
from discreet.auditing.conformance import adversarial_ratings
from discreet.auditing.conformance.recorded_fit import Run, clone, fit
from discreet.auditing.conformance.recorder import RecordedRelease, Recorder
from discreet.auditing.result import Claim
from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded, ConfigError
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.mechanisms import Mechanism, mu_of_pure
from discreet.privacy.accounting.pricing import Event
from discreet.privacy.release.ledger import Entry

#: Enough items for every worst case; a training takes milliseconds, and an audit needs hundreds.
N_ITEMS = 60
#: Numbers of users to try in turn: a small ε needs more of them to learn anything.
CROWDS = (40, 160, 640, 2560, 10240, 40960)
RANGE = (1.0, 5.0)
#: Rounding of the comparison: sums are exact, contributions are clipped 2⁻²⁰ below their bounds.
SLACK = 1e-9
SEED = 58_204_713


@dataclass(frozen=True)
class ReleaseShift:
    """The difference of one release between two trainings, and its privacy loss.

    Attributes
    ----------
    name : name of the release
    share : length of the difference, divided by the sensitivity in the ledger
    mu : the loss in Gaussian differential privacy, with the noise that was used
    pure : the loss in pure ε, with the noise that was used
    event : what the ledger charged, or None for an uncharged release
    """

    name: str
    share: float
    mu: float
    pure: float
    event: Event | None

    @property
    def charged(self) -> bool:
        return self.event is not None

    @property
    def event_at_shift(self) -> Event | None:
        """The event as if the canary's difference were the sensitivity."""
        if self.event is None or self.share <= 0:
            return None
        # Rounded up, so that almost equal events are composed as one and none gets cheaper.
        share = math.ceil(self.share * 1e7) / 1e7
        if self.share <= 1:
            share = min(share, 1.0)
        return replace(self.event, noise_multiplier=self.event.noise_multiplier / share)


def claim_of(model: PrivateRecommender) -> Claim:
    """Return the claim of a fitted model, with μ only where the guarantee is Gaussian."""
    stated = model.privacy_
    if not stated.finite:
        raise ConfigError(
            f"{type(model).__name__} claims no finite ε after training: there is nothing to audit."
        )
    mu = None
    if stated.mu is not None and stated.delta > 0:
        mu = gdp.mu(stated.epsilon, stated.delta)
    return Claim(stated.epsilon, stated.delta, mu, stated.neighboring, stated.accountant)


class NeighboringRuns:
    """Trainings of a model on generated users, with and without a canary.

    Parameters
    ----------
    model : PrivateRecommender
    n_items : int
    """

    def __init__(self, model: PrivateRecommender, n_items: int = N_ITEMS) -> None:
        self.n_items = n_items
        given: tuple[float, float] | None = getattr(model, "rating_range", None)
        self.low, self.high = RANGE if given is None else given
        fixed = (
            {"rating_range": (self.low, self.high)} if "rating_range" in model.get_params() else {}
        )
        self.model = clone(model, noise="secure", random_state=SEED, **fixed)

    @property
    def is_replace_one(self) -> bool:
        return bool(self.model.neighboring == "replace-one")

    @property
    def crowd(self) -> Ratings:
        return self._start[0]

    @property
    def first(self) -> Run:
        """The training without a canary, whose releases the others replay."""
        return self._start[1]

    @cached_property
    def _start(self) -> tuple[Ratings, Run]:
        """Generated users, and the first training on them.

        Their number is four times the smallest with which three trainings in a row succeed.
        """
        plan = self.model.plan(self.n_items)
        # Such a model decides from released values which statistics to release: with too few users
        # it would skip those that the audit is about.
        decides = any(release.shape is None for release in plan.releases)
        for crowd in CROWDS[2:] if decides else CROWDS:
            with contextlib.suppress(BudgetExceeded):
                with quiet():
                    for _ in range(3):
                        clone(self.model).fit(self.people(crowd))
                ratings = self.people(4 * crowd)
                return ratings, fit(clone(self.model), ratings)  # its log is compared
        raise ConfigError(
            f"{type(self.model).__name__} learns nothing at ε = {self.model.epsilon:g} from"
            f" {CROWDS[-1]:,} generated users. Raise epsilon."
        )

    def people(self, crowd: int) -> Ratings:
        """Generate ratings of this many users and of a few adversarial ones."""
        implicit = self.model.goal == "ranking" and self.low == self.high
        return adversarial_ratings.make_ratings(
            crowd, n_items=self.n_items, low=self.low, high=self.high, far=False, implicit=implicit
        )

    @cached_property
    def claim(self) -> Claim:
        return claim_of(self.first.model)

    # ------------------------------------------------------------ trainings

    def closely(self, canary: Canary | None) -> Run:
        """Replay the first training, and record all output: learned, printed and saved."""
        return fit(
            clone(self.model),
            join_canary(self.crowd, canary),
            replay=self.first.watch,
            newcomers=True,
        )

    def train(self, canary: Canary | None, replay: Recorder | None = None) -> Recorder:
        """Train anew or as a replay, and keep only the releases."""
        model = clone(self.model)
        with quiet(), Recorder(replay, newcomers=True) as watch:
            model.fit(join_canary(self.crowd, canary))
        return watch

    @property
    def has_batches(self) -> bool:
        """Whether any release is a sum over a batch of users."""
        return any(release.rate < 1 for release in self.first.model.privacy_.ledger.plan.releases)

    def train_in_uneven_blocks(self) -> Recorder:
        """Replay the first training with users in blocks of 1, 1, 2, 4, …"""
        with quiet(), Recorder(self.first.watch) as watch:
            clone(self.model).fit(adversarial_ratings.UnevenPeople(self.crowd))
        return watch

    def apart(self, canary: Canary) -> list[ReleaseShift]:
        """Measure how far the canary moves each release, by joining or by replacing another."""
        there = self.train(canary, self.first.watch)
        absent = (
            self.first.watch if canary.other is None else self.train(canary.other, self.first.watch)
        )
        return moves(absent, there)


def moves(absent: Recorder, there: Recorder) -> list[ReleaseShift]:
    """Measure all releases of two trainings."""
    return [move(one, other) for one, other in zip(absent.releases, there.releases, strict=True)]


def difference(one: RecordedRelease, other: RecordedRelease) -> Any:
    """Return the difference of two sums, times the weights by which their noise is divided."""
    step = other.exact - one.exact
    weights = one.parts[0].weights
    return step if weights is None else step * weights


def move(one: RecordedRelease, other: RecordedRelease) -> ReleaseShift:
    """Measure one release of two trainings."""
    step = np.abs(difference(one, other))
    if not np.isfinite(step).all():
        step = np.full_like(step, np.inf)
    with np.errstate(over="ignore"):
        lengths = {"l2": float(np.sqrt((step**2).sum())), "l1": float(step.sum())}
    noise: Mechanism = one.parts[0].mechanism
    entry = one.entry
    event = None if entry is None else entry.event
    share = math.inf if entry is None else lengths[entry.norm] / entry.sensitivity
    if entry is not None and entry.mechanism == "huber":  # its cost depends on both norms
        share = max(share, lengths["l2"] / (entry.sensitivity * entry.l2_ratio))
    return ReleaseShift(one.name, share, _mu(noise, lengths), _pure(noise, lengths), event)


def deviation_from_price(entry: Entry) -> float:
    """Return the standard deviation of noise that the cost of an entry implies."""
    return entry.event.noise.standard_deviation * entry.sensitivity


def _mu(noise: Mechanism, lengths: dict[str, float]) -> float:
    if noise.kind == "laplace":
        return mu_of_pure(lengths["l1"] / noise.scale)
    return lengths["l2"] / noise.scale


def _pure(noise: Mechanism, lengths: dict[str, float]) -> float:
    if noise.kind == "gaussian":
        return math.inf if lengths["l2"] > 0 else 0.0
    return float(getattr(noise, "alpha", 1.0)) * lengths["l1"] / noise.scale


def privacy_loss(found: Sequence[ReleaseShift], claim: Claim) -> float:
    """Return a canary's total loss, in the unit of the claim and by its accountant."""
    if claim.mu is not None:
        return math.sqrt(math.fsum(one.mu**2 for one in found))
    if claim.delta == 0 or claim.accountant == "pure":
        return math.fsum(one.pure for one in found)
    if not all(one.charged for one in found):
        return math.inf
    counted: dict[Event, int] = {}
    for one in found:
        if one.event_at_shift is not None:
            counted[one.event_at_shift] = counted.get(one.event_at_shift, 0) + 1
    events = [replace(event, count=count) for event, count in counted.items()]
    return accounting.epsilon(events, claim.delta, claim.accountant) if events else 0.0


def reach(found: Sequence[ReleaseShift]) -> float:
    """Return a canary's loss as a share of the charged μ, given that it is in every batch."""
    charged = [one.event.mu for one in found if one.event is not None]
    most = math.sqrt(math.fsum(mu**2 for mu in charged))
    return math.sqrt(math.fsum(one.mu**2 for one in found)) / most if most else math.inf


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress log lines, which a thousand trainings would repeat a thousand times."""
    logger = logging.getLogger("discreet")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
