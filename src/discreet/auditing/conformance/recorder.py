"""Record the releases of a fit: their ledger entries, exact sums, noise and released values.

While a `Recorder` is active, it intercepts what sessions charge and compute, and what the sources
of noise draw. It has access to exact sums, so it is for tests and for audits of generated users
only. A recorder may also *replay* an earlier one: every release then returns the recorded value,
whatever the data, which shows how two data sets differ given the same released values.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.auditing.frozen import replace_attribute
from discreet.privacy.accounting import mechanisms
from discreet.privacy.accounting.mechanisms import Mechanism
from discreet.privacy.noise.sources import SecureNoise, SeededNoise
from discreet.privacy.release.ledger import Entry
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.unsafe import NoNoise
from discreet.privacy.statistics.sums import Sum
from discreet.privacy.users import poisson_batches as subsample


class Diverged(Exception):
    """Two data sets led to different releases, although all earlier released values were equal."""


@dataclass
class Part:
    """One addition of noise, to a whole statistic or to a block of its rows.

    Attributes
    ----------
    exact, released : the values without and with noise, in real units (not in those of the grid)
    mechanism : the distribution of the noise
    weights : the factors by which the noise of each entry is divided
    grid : the unit of the grid, if any
    draws : the added noise, and more draws of it for tests
    """

    exact: NDArray[np.float64]
    released: NDArray[Any]
    mechanism: Mechanism
    weights: NDArray[np.float64] | None
    grid: float | None
    draws: list[NDArray[np.float64]]


@dataclass
class RecordedRelease:
    """One release that a session charged.

    Attributes
    ----------
    name, statistic, session : as in `Session.release`
    entry : the ledger entry, if one was written
    looks : the rows computed by each access, None for all
    parts : the additions of noise
    """

    name: str
    statistic: Any
    session: Session
    entry: Entry | None = None
    looks: list[slice | None] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def exact(self) -> NDArray[np.float64]:
        """The exact statistic, concatenated from its parts."""
        return (
            np.concatenate([np.atleast_1d(part.exact) for part in self.parts])
            if self.parts
            else np.zeros(0)
        )


class RecordedRun:
    """A statistic that records every access."""

    def __init__(self, inner: Any, record: RecordedRelease, watch: Recorder):
        self._inner = inner
        self._record = record
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def compute(
        self, key: Any, *, grid: float | None = None, rows: slice | None = None
    ) -> NDArray[Any]:
        self._record.looks.append(rows)
        self._watch.current = self._record
        self._watch.in_release += isinstance(self._inner, Sum)
        exact = self._inner.compute(key, grid=grid, rows=rows)
        self.exact = np.asarray(exact, np.float64) * (grid or 1.0)
        self.grid = grid
        return exact


class Recorder:
    """A context that records releases, and optionally replays earlier ones.

    Parameters
    ----------
    replay : Recorder, optional
        Return the values that were released there.
    draws : int
        Draw at least this much noise for every release, to test its distribution. The released
        value contains the first draw.
    newcomers : bool
        In a replay, put new users in every batch: the cost of a batch is that of its members.
    """

    def __init__(self, replay: Recorder | None = None, draws: int = 0, newcomers: bool = False):
        self.replay = replay
        self.draws = draws
        self.newcomers = newcomers
        self.releases: list[RecordedRelease] = []
        self.current: RecordedRelease | None = None
        self.looks = 0
        self.in_release = 0
        self.stray = 0
        self._charged: dict[int, tuple[Entry, RecordedRelease]] = {}
        # Membership by user, because a replay must sample the same users.
        self.batches: list[dict[int, bool]] = []

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        for owner, name, make in (
            (Session, "_charge", self._charge),
            (Session, "_noisy", self._noisy),
            (SecureNoise, "add", self._add),
            (SeededNoise, "add", self._add),
            (NoNoise, "add", self._add),
            (Sum, "compute", self._look),
            (subsample, "who_is_in", self._coins),
        ):
            original = getattr(owner, name)
            self._stack.enter_context(
                replace_attribute(owner, name, self._here_alone(original, make(original)))
            )
        return self

    def _here_alone(
        self, original: Callable[..., Any], watched: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Record this thread only: a concurrent training in another may have real users."""
        here = threading.get_ident()

        def call(*given: Any, **options: Any) -> Any:
            return (watched if threading.get_ident() == here else original)(*given, **options)

        return call

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    @property
    def sessions(self) -> list[Session]:
        """Every session that released something, in order."""
        return list({id(record.session): record.session for record in self.releases}.values())

    def _charge(self, original: Callable[..., Entry]) -> Callable[..., Entry]:
        def charge(session: Session, name: str | Release, statistic: Any) -> Entry:
            before = len(session.ledger.entries)
            entry = original(session, name, statistic)
            written = next(iter(session.ledger.entries[before:]), None)
            self.releases.append(RecordedRelease(str(name), statistic, session, written))
            # The entry is stored too: while it lives, no other object can have its id.
            self._charged[id(entry)] = (entry, self.releases[-1])
            return entry

        return charge

    def _noisy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def noisy(session: Session, entry: Entry, statistic: Any, rows: slice | None) -> Any:
            if id(entry) not in self._charged:  # charged before recording began
                return original(session, entry, statistic, rows)
            record = self._charged[id(entry)][1]
            watched = RecordedRun(statistic, record, self)
            before = len(record.parts)
            result = original(session, entry, watched, rows)
            _record_result(record, before, watched, entry, result)
            return result

        return noisy

    def _add(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def add(
            source: Any,
            values: NDArray[Any],
            mechanism: Mechanism,
            weights: Any = None,
            grid: float | None = None,
        ) -> NDArray[Any]:
            record, self.current = self.current, None
            if record is None:
                self.stray += 1
                return original(source, values, mechanism, weights, grid)
            exact = np.asarray(values, np.float64) * (grid or 1.0)
            nothing = np.zeros_like(values)
            if self.replay is not None:
                # Draw anyway: the source counts its draws, as it would without a replay.
                original(source, nothing, mechanism, weights, grid)
                released = self._earlier(record, exact.shape)
            else:
                released = original(source, values.copy(), mechanism, weights, grid)
            draws = [np.asarray(released, np.float64) - exact]
            more = -(-self.draws // max(1, exact.size)) - 1
            if more > 0:  # from a copy, so that draws for tests are not counted as released
                zeros = np.zeros((more, *exact.shape), values.dtype)
                draws += list(
                    np.asarray(
                        original(copy.copy(source), zeros, mechanism, weights, grid), np.float64
                    )
                )
            given = None if weights is None else np.asarray(weights, np.float64)
            record.parts.append(Part(exact, released, mechanism, given, grid, draws))
            return released.copy()

        return add

    def _look(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compute(statistic: Sum, key: Any, **options: Any) -> NDArray[Any]:
            self.looks += 1
            return original(statistic, key, **options)

        return compute

    def _coins(
        self, original: Callable[..., NDArray[np.bool_]]
    ) -> Callable[..., NDArray[np.bool_]]:
        """Replay Poisson sampling by user: it draws by row, and a canary shifts the rows."""

        def who_is_in(rows: Any, rate: float, seed: tuple[int, int] | None) -> NDArray[np.bool_]:
            batches = [] if self.replay is None else self.replay.batches
            at = len(self.batches)
            known = batches[at] if at < len(batches) else {}
            thrown = zip(rows.key.tolist(), original(rows, rate, seed).tolist(), strict=True)
            always = self.newcomers and self.replay is not None
            self.batches.append(
                {person: known.get(person, there or always) for person, there in thrown}
            )
            return np.fromiter(self.batches[-1].values(), bool, len(self.batches[-1]))

        return who_is_in

    def _earlier(self, record: RecordedRelease, shape: tuple[int, ...]) -> NDArray[Any]:
        assert self.replay is not None
        at = len(record.parts)
        place = next(i for i, other in enumerate(self.releases) if other is record)
        known = self.replay.releases[place] if place < len(self.replay.releases) else None
        if known is None or known.name != record.name:
            there = "nothing more" if known is None else repr(known.name)
            raise Diverged(
                f"release {place + 1} is {record.name!r}, but {there} with the other data"
            )
        if at >= len(known.parts) or known.parts[at].released.shape != shape:
            then = known.parts[at].released.shape if at < len(known.parts) else "no"
            raise Diverged(
                f"release {record.name!r} has shape {shape}, but {then} with the other data"
            )
        return known.parts[at].released


def _record_result(
    record: RecordedRelease, before: int, watched: RecordedRun, entry: Entry, result: NDArray[Any]
) -> None:
    """Record the result of the session, in case it changed the output of the noise source."""
    released = np.array(result, copy=True)
    noise = np.asarray(released, np.float64) - watched.exact
    if len(record.parts) == before:  # from a noise source that is not intercepted
        mechanism = mechanisms.make_mechanism(entry.mechanism, entry.deviation, entry.alpha)
        weights = watched.weights(mechanism.norm)
        record.parts.append(
            Part(watched.exact, released, mechanism, weights, watched.grid, [noise])
        )
    elif not np.array_equal(record.parts[-1].released, released, equal_nan=True):
        record.parts[-1].released = released
        record.parts[-1].draws[0] = noise
