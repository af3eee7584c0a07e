"""The only release point of private data: charge, then compute, then add noise.

Three facts decide whether a release is private, and each has one owner. The *statistic* owns its
sensitivity: it does the clipping that the sensitivity relies on. The *plan* owns the noise
multiplier. The *session* owns the ledger. No caller states any of them, so they cannot disagree.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from discreet.errors import ConfigError, DiscreetError, PlanMismatch, PrivacyError
from discreet.privacy.accounting import mechanisms
from discreet.privacy.accounting.budget import Neighboring, Norm
from discreet.privacy.accounting.mechanisms import Mechanism
from discreet.privacy.noise.sources import (
    BATCH_DRAWS,
    NoiseSource,
    SecureNoise,
    SeededNoise,
    delta_of,
    grid_for,
)
from discreet.privacy.release.ledger import Entry, Ledger
from discreet.privacy.release.plan import MOST_DRAWS, Plan, Release
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.sealed import KEY, Key

logger = logging.getLogger("discreet")

#: Blocks of about this many entries keep a released statistic, its noise and its copy below 300 MB.
BLOCK_ENTRIES = 8_000_000


class ReleasableSum(Protocol):
    """A sum over users with a known sensitivity.

    ``shape`` is public: it follows from hyperparameters and the item catalog.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def sensitivity(self, neighboring: Neighboring, norm: Norm) -> float:
        """Return the most that one user moves the statistic, entries times ``weights(norm)``.

        It holds for what ``compute`` returns, with and without a grid. ``norm="inf"`` bounds one
        user's contribution to one entry, without weights; it only sets the step of the grid.
        """

    def weights(self, norm: Norm) -> NDArray[np.float64] | None:
        """Return one positive weight per column (last axis), or None for ones.

        An entry has noise σ/weight.

        The isometric packing of symmetric matrices has √2 for entries off the diagonal in the L2
        norm.
        """

    def compute(
        self, key: Key, *, grid: float | None = None, rows: slice | None = None
    ) -> NDArray[Any]:
        """Compute the sum, or rows (first axis) of it, as a new array; other keys are refused.

        Without a grid: real numbers, float32 or float64. With one, a power of four: the sum in
        units of the grid, as int64 (``integer_sums``), each user's contribution being rounded
        toward zero before it is summed (or each of its factors to a multiple of √grid), so that no
        contribution grows.
        """


class Session:
    """Releases the statistics of one plan, each once.

    Parameters
    ----------
    plan : Plan
    noise : {"secure", "seeded"} or a source of noise
        "secure" (default): exact integers and noise from the operating system's entropy. "seeded":
        float noise from ``random_state``, for research; the statement declares it.
    random_state : int, optional
        The seed of seeded noise; secure noise refuses one.
    threads : int, optional
    """

    def __init__(
        self,
        plan: Plan,
        noise: Literal["secure", "seeded"] | NoiseSource = "secure",
        random_state: int | None = None,
        threads: int | None = None,
    ):
        plan.check()
        self.plan = plan
        self._noise = _source(noise, random_state, threads)
        self.ledger = Ledger(plan, _grade(self._noise))
        self._left = Counter({release.name: release.count for release in plan.releases})
        self._shapes = {
            release.name: release.shape for release in plan.releases if release.shape is not None
        }
        self._draws = 0
        self._batches = 0
        self._lock = threading.Lock()

    def release(
        self, name: str | Release, statistic: ReleasableSum, dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Release the statistic with noise.

        Privacy: releases ``statistic``; sensitivity as the statistic states it; the noise
        multiplier is the plan's. The ledger entry is written before data are accessed and stays
        even if the computation fails.

        Raises
        ------
        PlanMismatch
            The name was not planned, is used up, or was planned with another shape.
        """
        entry = self._charge(name, statistic)
        return self._noisy(entry, statistic, None).astype(dtype, copy=False)

    def release_together(
        self, wanted: Sequence[tuple[str | Release, ReleasableSum]], dtype: DTypeLike = np.float64
    ) -> list[NDArray[Any]]:
        """Release several statistics, each with its own noise, in one pass over the data.

        All are charged before any is computed. Data that are not in memory are read only once.
        """
        return [noisy.whole(dtype) for noisy in self.prepare(wanted)]

    def prepare(self, wanted: Sequence[tuple[str | Release, ReleasableSum]]) -> list[Prepared]:
        """Charge and compute the statistics now; noise is added when each is taken."""
        entries = [self._charge(name, statistic) for name, statistic in wanted]
        statistics = [statistic for _, statistic in wanted]
        if self.ledger.noise == "secure" and len(entries) > 1:
            # its kernels are slow to import
            from discreet.privacy.statistics.sums import compute_together

            grids = [
                self._grid(one, _noise_of(entry))
                for one, entry in zip(statistics, entries, strict=True)
            ]
            compute_together(KEY, list(zip(statistics, grids, strict=True)))
        return [Prepared(self, entry, one) for entry, one in zip(entries, statistics, strict=True)]

    def release_blocks(
        self,
        name: str | Release,
        statistic: ReleasableSum,
        rows: int | None = None,
        dtype: DTypeLike = np.float64,
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Release in blocks of rows, as (slice, noisy rows), for statistics larger than memory.

        The whole release is charged now, whether or not all blocks are taken.
        """
        (prepared,) = self.prepare([(name, statistic)])
        return prepared.blocks(rows, dtype)

    def deviation(self, name: str | Release, statistic: ReleasableSum) -> float:
        """Return the noise deviation of a release: public, before and after the release.

        See `Plan.deviation`.
        """
        return self.plan.deviation(name, statistic)

    @property
    def silent(self) -> bool:
        """Whether no noise is added, as in tests that compare with the non-private algorithm."""
        return self.ledger.noise == "none"

    def record_assumption(self, name: str, text: str, inferred: bool = False) -> None:
        """Record something taken to be public, with a warning if it was inferred from data."""
        if inferred:
            logger.warning("read from the data instead of a public source: %s", text)
        self.ledger.assume(name, text, inferred)

    def warn_if_delta_large(self, people: float) -> None:
        """Warn of a δ above one over the released number of users, and record both."""
        self.ledger.people = float(people)
        delta = self.plan.budget.delta
        if delta * people > 1:
            text = (
                f"δ = {delta:g} is above one over the number of users, released as about"
                f" {people:,.0f}"
            )
            logger.warning(
                "%s: with that probability one of them may be exposed. Choose a smaller delta.",
                text,
            )
            self.ledger.assume("delta", text)

    def list_remaining(self) -> dict[str, int]:
        """List planned releases that have not been made."""
        return {name: count for name, count in self._left.items() if count}

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee for everything released so far."""
        return PrivacyStatement.from_ledger(self.ledger)

    def finish(self) -> PrivacyStatement:
        """Return the statement, once ledger and plan agree."""
        left = self.list_remaining()
        if left:
            raise PlanMismatch(f"planned releases are missing: {left}")
        return self.statement

    def __reduce__(self) -> NoReturn:
        raise PrivacyError(
            "a session cannot be copied or stored, because its copy could repeat the releases"
        )

    def _charge(self, name: str | Release, statistic: ReleasableSum) -> Entry:
        """Write the ledger entry from public values alone, before any rating is read."""
        name = str(name)
        planned = self.plan.release(name)
        shape = tuple(int(n) for n in statistic.shape)
        noise = mechanisms.make_mechanism(planned.mechanism, 1.0, planned.alpha)
        neighboring = self.plan.budget.neighboring
        sensitivity = _check_sensitivity(name, statistic, neighboring, noise.norm)
        if planned.mechanism == "huber":
            both = _check_sensitivity(name, statistic, neighboring, "l2")
            if both > planned.l2_ratio * sensitivity * (1 + 1e-12):
                raise PlanMismatch(
                    f"release {name!r}: L2 sensitivity above l2_ratio={planned.l2_ratio:g} times L1"
                )
        _check_batch(planned, statistic, self.ledger.noise)
        with self._lock:
            self._admit(planned, shape)
            return self.ledger.record(
                name,
                mechanism=planned.mechanism,
                sensitivity=sensitivity,
                norm=noise.norm,
                noise_multiplier=self.plan.noise_multiplier(name),
                shape=shape,
                where=caller(),
                alpha=planned.alpha,
                l2_ratio=planned.l2_ratio,
                rate=planned.rate,
            )

    def _admit(self, planned: Release, shape: tuple[int, ...]) -> None:
        name = planned.name
        for whole in self.plan.releases:
            # the first part replaces the whole, which can then no longer be made
            if self._left[whole.name] and name in [part for part, _ in whole.parts]:
                del self._left[whole.name]
                self._left.update(part for part, _ in whole.parts)
        if self._left[name] <= 0:
            raise PlanMismatch(
                f"release {name!r} was planned {planned.count} times and has all been made"
            )
        expected = self._shapes.setdefault(name, shape)
        if shape != expected:
            raise PlanMismatch(
                f"release {name!r} has shape {shape}, but {expected} was planned or released before"
            )
        self._batches += planned.rate < 1
        self._draws += math.prod(shape) + (BATCH_DRAWS if planned.rate < 1 else 0)
        if self._draws > MOST_DRAWS:
            raise PlanMismatch(
                f"the session needs more than {MOST_DRAWS} draws of noise, which were not priced"
            )
        self._left[name] -= 1

    def _noisy(self, entry: Entry, statistic: ReleasableSum, rows: slice | None) -> NDArray[Any]:
        noise = _noise_of(entry)
        norm: Norm = noise.norm
        grid = self._grid(statistic, noise) if self.ledger.noise == "secure" else None
        failed = ""
        try:
            exact = statistic.compute(KEY, grid=grid, rows=rows)
        except DiscreetError:
            raise
        except Exception as error:
            failed = type(error).__name__
        # raised outside the except block, so that the original error, which may contain private
        # values, is not its context
        if failed:
            raise PrivacyError(
                f"the statistic of release {entry.name!r} could not be computed ({failed})"
            )
        length = entry.shape if rows is None else (rows.stop - rows.start, *entry.shape[1:])
        if exact.shape != length:
            raise PlanMismatch(
                f"release {entry.name!r} was charged with shape {length} and computed as"
                f" {exact.shape}"
            )
        result = self._noise.add(exact, noise, statistic.weights(norm), grid)
        coins = delta_of(BATCH_DRAWS * self._batches) if self.ledger.noise == "secure" else 0.0
        self.ledger.noise_delta = self._noise.delta + coins
        return result

    def _grid(self, statistic: ReleasableSum, noise: Mechanism) -> float:
        largest = statistic.sensitivity("add-remove", "inf")
        weights = statistic.weights(noise.norm)
        heaviest = 1.0 if weights is None else float(np.max(weights))
        return grid_for(largest, noise.standard_deviation / heaviest)


class Prepared:
    """A release that has been charged; it is taken once, as a whole or in blocks."""

    __slots__ = ("_entry", "_session", "_statistic", "_taken")

    def __init__(self, session: Session, entry: Entry, statistic: ReleasableSum) -> None:
        self._session = session
        self._entry = entry
        self._statistic = statistic
        self._taken = False

    def whole(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return all rows with noise."""
        self._take()
        return self._session._noisy(self._entry, self._statistic, None).astype(dtype, copy=False)

    def blocks(
        self, rows: int | None = None, dtype: DTypeLike = np.float64
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield (slice, noisy rows), block by block."""
        self._take()
        shape = self._entry.shape
        length = shape[0] if shape else 0
        step = rows or max(1, BLOCK_ENTRIES // max(1, math.prod(shape[1:])))

        def each() -> Iterator[tuple[slice, NDArray[Any]]]:
            for begin in range(0, length, step):
                part = slice(begin, min(begin + step, length))
                noisy = self._session._noisy(self._entry, self._statistic, part)
                yield part, noisy.astype(dtype, copy=False)

        return each()

    def _take(self) -> None:
        """Refuse a second draw of noise for one charge: it would reveal more than was charged."""
        if self._taken:
            raise PlanMismatch(f"release {self._entry.name!r} was already taken")
        self._taken = True


def caller() -> str:
    """Return "file:line" of the nearest calling code outside this package."""
    frame = sys._getframe(1)
    package = Path(__file__).parents[1]
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(package):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    library = package.parents[1]
    shown = path.relative_to(library).as_posix() if path.is_relative_to(library) else path.name
    return f"{shown}:{frame.f_lineno}"


def _noise_of(entry: Entry) -> Mechanism:
    return mechanisms.make_mechanism(entry.mechanism, entry.deviation, entry.alpha)


def _check_sensitivity(
    name: str, statistic: ReleasableSum, neighboring: Neighboring, norm: Norm
) -> float:
    value = float(statistic.sensitivity(neighboring, norm))
    if not 0.0 < value < math.inf:
        raise PrivacyError(
            f"release {name!r} has a {norm} sensitivity of {value}, which must be positive and"
            " finite"
        )
    return value


def _check_batch(planned: Release, statistic: ReleasableSum, grade: str) -> None:
    """Check the rate and secrecy of a batch, on which its lower cost depends."""
    rate = float(getattr(statistic, "rate", 1.0))
    if rate > planned.rate:
        raise PlanMismatch(
            f"release {planned.name!r} was priced for batches of rate {planned.rate:g}, but has"
            f" rate {rate:g}"
        )
    if planned.rate < 1 and grade == "secure" and not getattr(statistic, "secret", False):
        raise PrivacyError(
            f"release {planned.name!r}: secure noise needs secret Poisson sampling. Draw the batch"
            " without a seed."
        )


def _grade(source: NoiseSource) -> str:
    """Return the grade by type, because a source's own claim is no evidence."""
    return {SecureNoise: "secure", SeededNoise: "seeded"}.get(type(source), "none")


def _source(noise: str | NoiseSource, random_state: int | None, threads: int | None) -> NoiseSource:
    if noise == "secure":
        if random_state is not None:
            raise ConfigError(
                "secure noise has no seed. Pass noise='seeded' for research, or leave out"
                " random_state."
            )
        return SecureNoise(threads)
    if noise == "seeded":
        return SeededNoise(random_state, threads)
    if isinstance(noise, str):
        raise ConfigError(f"noise={noise!r}: choose 'secure' or 'seeded'")
    return noise
