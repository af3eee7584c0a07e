"""The rule of timelines: one user moves all rows together by no more than its lifetime allows.

Two worlds, with and without one user, run for many rows with *the same releases replayed into
both*, since what is released later depends on them. Then

    Σ_rows Σ_releases ‖difference of exact sums‖²/σ² ≤ μ²                                        (1)

and shapes and number of rows are equal. All else that is public must be equal in both worlds, bit
for bit: what `rows_` and the statement say, the size of every public file, and the model. This is
the transcript audit over rows. Users in these worlds are adversarial: some never change,
which reaches (1), others change all their items in every row, come and go, are erased and come
back, or act on what was released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.auditing.conformance.recorder import Diverged, Recorder
from discreet.auditing.conformance.rules import must
from discreet.data.ratings import Ratings

ROWS = 60  # enough that the worst user uses more than nine tenths of its lifetime
USERS = 30
ITEMS = 12
#: Rounding of float64 sums of squares; sums themselves are exact integers.
ROUNDING = 1e-9


class AdversarialWorld:
    """Users whose histories change from row to row, and depend on released sizes.

    Parameters
    ----------
    seed : int
    without : int, optional
        The user that is not there.
    """

    def __init__(self, seed: int, without: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.without = without
        self.start = rng.integers(0, 25, USERS)
        self.start[:2] = 0
        self.absent = rng.random(USERS) < 0.2
        self.absent[:2] = False
        self.erased = np.where(rng.random(USERS) < 0.3, rng.integers(15, 50, USERS), ROWS)
        self.erased[:2] = ROWS
        sizes = rng.integers(3, 8, (ROWS, USERS))
        self.items = [
            [np.sort(rng.choice(ITEMS, size=n, replace=False)) for n in row] for row in sizes
        ]
        self.adaptive = rng.random(USERS) < 0.3
        self.adaptive[:2] = False

    def present(self, row: int, released: float) -> list[int]:
        """List the users of a row; the adaptive ones come where the released size is even."""
        found = []
        for user in range(USERS):
            away = self.absent[user] and row % 3 == 0
            away = away or (self.adaptive[user] and int(released) % 2 == 1)
            if user != self.without and self.start[user] <= row and not away:
                found.append(user)
        return found

    def ratings(self, row: int, released: float = 0.0) -> Ratings:
        users = self.present(row, released)
        # users 0 and 1 never change: they reach the bound
        lists = [self.items[0 if user < 2 else row][user] for user in users]
        counts = np.array([len(one) for one in lists], np.int64)
        return Ratings.from_indices(
            np.append(0, np.cumsum(counts)),
            np.concatenate([np.zeros(0, np.int64), *lists]),
            np.full(int(counts.sum()), 5.0),
            np.array(users, np.int64),
            np.arange(ITEMS),
            catalog=True,
        )

    def forgotten(self, row: int) -> NDArray[np.int64]:
        """List the users who are erased in a row; their data come back two rows later."""
        there = np.flatnonzero(self.erased == row)
        return there[there != (-1 if self.without is None else self.without)]


def run_world(timeline: Any, world: AdversarialWorld, rows: Iterable[int] = range(ROWS)) -> None:
    """Add all rows of a world to a timeline."""
    released = 0.0
    for row in rows:
        gone = world.forgotten(row)
        if len(gone):
            timeline.forget(gone)
        timeline.add(world.ratings(row, released))
        released = abs(timeline.rows_[-1]["size"]) if timeline.rows_ else 0.0


def lifetime_ratio(
    make: Callable[[], Any], seed: int, user: int, run: Callable[..., None] = run_world
) -> float:
    """Return (1) over μ² for one user of a world.

    Parameters
    ----------
    make : function without arguments
        Returns a new timeline, with the same key.
    seed, user : int
    run : function of a timeline and a world
    """
    with Recorder() as present:
        first = make()
        run(first, AdversarialWorld(seed))
    with Recorder(replay=present) as absent:
        timeline = make()
        try:
            run(timeline, AdversarialWorld(seed, without=user))
        except Diverged as error:
            must(False, str(error))
    must(
        len(present.releases) == len(absent.releases),
        f"{len(present.releases)} releases with the user and {len(absent.releases)} without",
    )
    without = list_public(timeline)
    for what, value in list_public(first).items():
        must(value == without.get(what), f"{what} differs with and without the user")
    total = 0.0
    for one, other in zip(present.releases, absent.releases, strict=True):
        must(one.exact.shape == other.exact.shape, f"{one.name!r} has two shapes")
        assert one.entry is not None
        total += float(((one.exact - other.exact) ** 2).sum()) / one.entry.deviation**2
    return total / float(timeline.verify().mu) ** 2


def list_public(timeline: Any) -> dict[str, Any]:
    """List what a timeline shows, apart from random names and keyed digests of a fixed length."""
    found: dict[str, Any] = {
        f"the size of {file.name}": file.stat().st_size
        for file in sorted(timeline.path.iterdir())
        if file.is_file()
    }
    model = timeline.model()
    found["rows_"] = timeline.rows_
    found["the statement"] = str(timeline.statement_)
    found["the model"] = model.item_biases_.tobytes() + model.item_factors_.tobytes()
    return found


def check_timeline(make: Callable[[], Any], seeds: Iterable[int] = range(2)) -> str:
    """Check a timeline by (1); raise `Broken` with the finding.

    Parameters
    ----------
    make : function without arguments
        Returns a new timeline for an ε so large that pairs are released, with the same key.
    seeds : of the worlds
    """
    worst = 0.0
    for seed in seeds:
        for user in (0, 2 + seed, 10 + seed):
            worst = max(worst, lifetime_ratio(make, seed, user))
    must(worst <= 1 + ROUNDING, f"one user moves the rows by {worst:.3f} of what is allowed")
    must(worst > 0.9, f"the worst user reaches {worst:.3f} only: the rule tests nothing")
    return f"{ROWS} rows: one user uses at most {worst:.6f} of its lifetime"
