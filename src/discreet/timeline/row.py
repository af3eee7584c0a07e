"""What one row of a timeline releases, and how a model follows from all rows.

Row p releases counts of all items in the catalog, the weighted number of users s_p, and pairs of
the items in core_p, or counts once more where pairs would be hidden by noise. The core follows from
counts that were released, those of the same row included: an item enters it at `ENTER` deviations
and stays down to `STAY`. All of it is post-processing; what is released has the sensitivity and
noise of the plan in any case.

With weights γ^k the number of users who ever entered is estimated by

    N̂_p = s_p + (1 − γ) Σ_{q<p} s_q                                                              (1)

from released sizes: never from exact ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import Learned
from discreet.models.dpmf.estimates import (
    TOP_ITEMS,
    Estimate,
    Signal,
    counts_of,
    deviation_of_pairs,
    least_size,
    release_pairs,
)
from discreet.models.dpmf.ranking import ACCUMULATE, PairRanking
from discreet.models.dpmf.released_rows import ReleasedRow, ReleasedRows, make_row, uncenter_pairs
from discreet.models.dpmf.summary import without_pairs
from discreet.privacy.accounting.age_weights import ONE, AgeWeights
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Restrict

ENTER = 2.0  # deviations of a count at which an item enters the core
STAY = 1.0  # deviations at which it stays: fewer, so that items do not come and go
#: Part of a row for its size, which scales all other numbers: larger than in one training.
SIZE_SHARE = 0.02
CORE_FROM = 0.13  # times √(noise): as in `PairRanking.resolve`
#: Rows to come that a row's core and its gate count on: pairs that are released earlier are in
#: more rows.
AHEAD = 26
#: λ may fall below γ only while sizes stay above this part of their largest: without new users the
#: weights of old ones fall by γ from row to row, and forgetting faster would leave noise alone.
INFLOW = 0.5
PAIRS = Release("item pairs (or counts)")


def row_shares(algorithm: PairRanking) -> dict[str, float]:
    """Return the parts of a row by the names of its releases; together 1."""
    assert algorithm.counts_share is not None
    rest = 1 - algorithm.counts_share - SIZE_SHARE
    return {"counts": algorithm.counts_share, "size": SIZE_SHARE, str(PAIRS): rest}


@dataclass(frozen=True)
class RowRule:
    """How rows are released and read.

    Parameters
    ----------
    algorithm : PairRanking, resolved
    ages : AgeWeights
    forgetting : float, optional
        Weight of a row relative to the next; by default chosen from released counts.
    """

    algorithm: PairRanking
    ages: AgeWeights
    forgetting: float | None = None

    @property
    def gamma(self) -> float:
        return 1 - 1 / self.ages.memory

    def release(
        self, users: Users, session: Session, rows: ReleasedRows, items: NDArray[np.int32]
    ) -> ReleasedRow:
        """Release one row for users that are weighted by age, and return it.

        Parameters
        ----------
        rows : ReleasedRows
            All rows before, over the catalog of all rows.
        items : (n_items,)
            Positions in that catalog of the users' items.
        """
        counting = self.algorithm._counts(users)
        counts = Estimate.release(session, "counts", counting)
        counted = users.sum(UserCount(active=True))
        size = max(float(session.release("size", counted)[0]), least_size(counts), 1.0)
        made = partial(make_row, size=size, size_deviation=session.deviation("size", counted))
        together = replace(rows, rows=(*rows.rows, replace(made(counts), items=items)))
        core = self.core(together, session.deviation(PAIRS, counting))
        position = np.full(rows.n_items, -1)
        position[items] = np.arange(len(items))
        if len(core):
            own = position[core]
            liked = users.copy_after(Restrict(own))
            c = self.counts(together).above_noise(core)
            pairs = liked.sum(self.algorithm._pairs(c))
            G = release_pairs(session, [PAIRS], pairs, len(core))
            t = deviation_of_pairs(session, [PAIRS], pairs)
            S = uncenter_pairs(G, c) if self.algorithm.centered else G
            return replace(made(counts, core, S, t), items=items)
        again = Estimate.release(session, PAIRS, counting)
        return replace(made(counts.with_another(again)), items=items)

    def core(self, rows: ReleasedRows, deviation: float) -> NDArray[np.int64]:
        """Return the core of the last row, whose counts are known; empty where the
        signal of pairs is too weak to release them.

        Parameters
        ----------
        deviation : float
            Of the release that the pairs would be.
        """
        last = rows.rows[-1]
        t = self._noise_of_pairs(rows, deviation / math.sqrt(2))
        stays = np.zeros(rows.n_items, bool)
        stays[rows.rows[-2].core if len(rows.rows) > 1 else []] = True
        core = self._choose(rows, t, stays, last.items)
        signal = self._signal(rows, core, t, ACCUMULATE)
        return core if signal.worth else np.zeros(0, np.int64)

    def learn(self, rows: ReleasedRows, features: Any = None, seed: int = 0) -> Learned:
        """Return the model of all rows: post-processing."""
        released = rows.in_cores()
        t = [row.pairs_deviation for row in rows.rows if len(row.core)]
        core = np.zeros(0, np.int64)
        signal = self._signal(rows, np.arange(min(TOP_ITEMS, rows.n_items)), math.inf, 1.0)
        if t:
            noise = self._noise_of_pairs(rows)
            core = self._choose(rows, noise, released, np.flatnonzero(released))
            signal = self._signal(rows, core, noise, 1.0)
        counts = self.counts(rows)
        if not signal.worth:
            return self.algorithm._popular(
                counts, signal, without_pairs(signal, self.algorithm.gate)
            )
        users = self.users(rows)
        forgetting = self.weights(rows)[1]
        return self.algorithm.rank(
            counts, core, users, signal, features, seed, rows, forgetting=forgetting
        )

    # ------------------------------------------------------------ from released numbers

    def users(self, rows: ReleasedRows) -> float:
        """Compute (1); with renewal, the last size over the mean weight."""
        sizes = [row.size for row in rows.rows]
        if self.ages.renew is not None:
            return max(sizes[-1] * self.ages.renew * ONE / sum(self.ages.units), 1.0)
        return max(sizes[-1] + (1 - self.gamma) * sum(sizes[:-1]), 1.0)

    def weights(self, rows: ReleasedRows) -> tuple[float, float]:
        """Return λ of counts and of pairs: the weight of a row relative to the next."""
        if self.forgetting is not None:
            return self.forgetting, self.forgetting
        sizes = [row.size for row in rows.rows]
        return rows.choose_forgetting(0.0 if sizes[-1] >= INFLOW * max(sizes) else self.gamma)

    def counts(self, rows: ReleasedRows) -> Estimate:
        return counts_of(rows, self.users(rows), self.weights(rows)[0])

    def _noise_of_pairs(self, rows: ReleasedRows, t: float | None = None) -> float:
        """Deviation of a pair that is in all rows with pairs.

        With t, that of a last row, as it will be after `AHEAD` rows like it: one row alone is
        rarely worth its pairs, and no row would begin.
        """
        found = [(row, row.pairs_deviation) for row in rows.rows if len(row.core)]
        if t is not None:
            found += AHEAD * [(rows.rows[-1], t)]
        weights = self.weights(rows)[1] ** np.arange(len(found) - 1, -1, -1.0)
        den = var = 0.0
        for weight, (row, deviation) in zip(weights, found, strict=True):
            den += weight * row.power / deviation**2
            var += (weight * row.size / deviation) ** 2
        return self.users(rows) * math.sqrt(var) / den

    def _choose(
        self, rows: ReleasedRows, t: float, stays: NDArray[np.bool_], among: NDArray[Any]
    ) -> NDArray[np.int64]:
        users = self.users(rows)
        found = rows.counts(users, self.weights(rows)[0])
        least = CORE_FROM * math.sqrt(math.sqrt(2) * t * max(float(found.value.sum()), 1.0))
        over = found.value / found.deviation
        taken = (over >= ENTER) | (stays & (over >= STAY))
        z = np.full(rows.n_items, -np.inf)
        z[among] = np.where(taken, found.value, 0.0)[among]
        many = int(np.clip((z >= least).sum(), TOP_ITEMS, self.algorithm.largest_core))
        return np.sort(np.argsort(-z, kind="stable")[: min(many, len(among))])

    def _signal(self, rows: ReleasedRows, core: NDArray[np.int64], t: float, part: float) -> Signal:
        counts = self.counts(rows)
        gate = part * self.algorithm.gate
        return Signal.from_counts(counts, core, self.users(rows), t, gate)
