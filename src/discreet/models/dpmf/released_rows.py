"""Sums that several trainings on the same population have released, combined at no privacy cost.

Row p holds what was released in training (or week) p: counts y_p of all items of its catalog, the
number of users s_p, and pairs Y_p of the items of its core, each with the deviation of its noise.
Entry by entry they measure one mean per user m by y_p = s_p m + N(0, t_p²), so

    num = Σ_p λ^(P−p) s_p y_p/t_p²,  den = Σ_p λ^(P−p) (s_p² − d_p²)/t_p²,
    var = Σ_p λ^(2(P−p)) s_p²/t_p²,  estimate N num/den, deviation N √var/den                    (1)

over the rows that have the entry: the item was in the catalog, both items were in the core. d_p is
the deviation of s_p: without it den would be too large. λ forgets. If m takes steps of variance τ²
from row to row and v = t²/s², the best λ in the long run is that of exponential smoothing,

    λ = 1 + q/2 − √(q + q²/4),  q = τ²/v                                                         (2)

τ² is estimated from the differences of the largest released counts, whose noise is known
(`choose_forgetting`); pairs are taken to change by as much, relative to their size.

Pairs are kept as they are before centering. A released Y = offdiag(Z S Z) + noise with
Z = I − κ p pᵀ determines S, since S has no diagonal (`uncenter_pairs`): rows with different cores
and different popularity add up. The map enlarges the noise along p alone, and centering the sum
again takes that back.

All of this is post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.errors import DataError
from discreet.privacy.statistics.centered_pairs import BITS, KAPPA, center_reals, whole_direction
from discreet.privacy.statistics.pairs import fold_shape, fold_triangle, unfold_triangle

LARGEST = 50  # counts that choose λ: of the others noise says nothing
JUMP = 4.0  # deviations; noise alone has as many in one of 16,000 counts
ROWS = 256  # of a matrix that are computed together
LONGEST_LAG = 8  # rows between two counts that are compared: drift adds up, and noise does not
#: Rows kept with a model. An older one has weight λ^12, and each takes 2 M² bytes for M items.
MOST_ROWS = 12


@dataclass(frozen=True)
class ReleasedRow:
    """What one training released.

    Parameters
    ----------
    items : (k,) positions in the catalog of the rows
    counts : (k,) float32
    counts_deviation : float
    size, size_deviation : float
    core : (m,) positions in the catalog of the rows; empty where no pairs were released
    pairs : folded strict triangle of the core (`fold_shape`), float32, not centered
    pairs_deviation : float
        Of one entry.
    """

    items: NDArray[np.int32]
    counts: NDArray[np.float32]
    counts_deviation: float
    size: float
    size_deviation: float
    core: NDArray[np.int32]
    pairs: NDArray[np.float32]
    pairs_deviation: float

    @property
    def power(self) -> float:
        """s² without what noise adds to it, and at least a tenth of it."""
        return max(self.size**2 - self.size_deviation**2, 0.1 * self.size**2)

    def numbers(self) -> NDArray[np.float64]:
        return np.array(
            [self.counts_deviation, self.size, self.size_deviation, self.pairs_deviation]
        )


@dataclass(frozen=True)
class Combined:
    """Estimates of one quantity for all entries, with their deviations."""

    value: NDArray[Any]
    deviation: NDArray[Any]


@dataclass(frozen=True)
class ReleasedRows:
    """Rows of one population, oldest first, over a catalog of so many items."""

    rows: tuple[ReleasedRow, ...]
    n_items: int

    @property
    def have_pairs(self) -> bool:
        """Whether some row has item pairs, and not counts alone."""
        return any(len(row.core) > 0 for row in self.rows)

    def append_row(self, row: ReleasedRow) -> ReleasedRows:
        return replace(self, rows=(*self.rows, row)[-MOST_ROWS:])

    def weights(self, forgetting: float) -> NDArray[np.float64]:
        return forgetting ** np.arange(len(self.rows) - 1, -1, -1.0)

    def counts(self, users: float, forgetting: float) -> Combined:
        """Compute (1) for the counts of so many users; items of no row have an infinite deviation.

        An item whose count differs from the earlier rows by more than `JUMP` deviations begins
        anew: what becomes popular within a week is no slow change.
        """
        num, den, var = np.zeros((3, self.n_items))
        for row in self.rows:
            num *= forgetting
            den *= forgetting
            var *= forgetting**2
            jumps = row.items[_differs(row, num[row.items], den[row.items], var[row.items])]
            for total in (num, den, var):
                total[jumps] = 0.0
            precision = row.counts_deviation**-2
            num[row.items] += precision * row.size * row.counts
            den[row.items] += precision * row.power
            var[row.items] += precision * row.size**2
        return _estimate(users, num, den, var)

    def in_cores(self) -> NDArray[np.bool_]:
        """Mark the items that were in the core of some row."""
        found = np.zeros(self.n_items, bool)
        for row in self.rows:
            found[row.core] = True
        return found

    def pairs(self, core: NDArray[np.int64], users: float, forgetting: float) -> Combined:
        """Compute (1) for all pairs of the core, as matrices; pairs of no row are 0, with deviation
        ∞.
        """
        place = np.full(self.n_items, -1)
        place[core] = np.arange(len(core))
        num, den, var = np.zeros((3, len(core), len(core)), np.float32)
        for weight, row in zip(self.weights(forgetting), self.rows, strict=True):
            there = np.flatnonzero(place[row.core] >= 0)
            if len(there) < 2:
                continue
            at = np.ix_(place[row.core[there]], place[row.core[there]])
            whole = np.zeros((len(row.core), len(row.core)), np.float32)
            unfold_triangle(row.pairs, 0, whole)
            precision = weight * row.pairs_deviation**-2
            num[at] += np.float32(precision * row.size) * whole[np.ix_(there, there)]
            den[at] += np.float32(precision * row.power)
            var[at] += np.float32(weight * precision * row.size**2)
        return _estimate(users, num, den, var)

    def choose_forgetting(self, least: float = 0.0) -> tuple[float, float]:
        """Return λ of counts and λ of pairs by (2), each at least `least`."""
        counts, pairs = self._choose_forgetting
        return max(counts, least), max(pairs, least)

    @cached_property
    def _choose_forgetting(self) -> tuple[float, float]:
        q_counts, drift = self._drift()
        last = self.rows[-1] if self.rows else None
        q_pairs = 0.0
        if drift > 0 and last is not None and len(last.core):
            noise = (last.pairs_deviation / last.size) ** 2
            q_pairs = 2 * drift * self._pair_power(last) / noise
        return _smooth_weights(q_counts), _smooth_weights(q_pairs)

    def _drift(self) -> tuple[float, float]:
        """Return τ²/v of the largest counts, and τ² relative to their mean square.

        Less two standard errors, so that noise alone does not forget.
        """
        lag = min(max(len(self.rows) // 2, 1), len(self.rows) - 1, LONGEST_LAG)
        if lag < 1:
            return 0.0, 0.0
        largest = np.argsort(-self.counts(1.0, 1.0).value, kind="stable")[:LARGEST]
        means = np.full((len(self.rows), self.n_items), np.nan)
        for at, row in enumerate(self.rows):
            means[at, row.items] = row.counts / row.size
        means = means[:, largest]
        noise = np.array([(row.counts_deviation / row.size) ** 2 for row in self.rows])
        scale = np.array([(row.size_deviation / row.size) ** 2 for row in self.rows])
        expected = noise[:, None] + scale[:, None] * np.nanmean(means, axis=0) ** 2
        off = (means[lag:] - means[:-lag]) ** 2 / (expected[lag:] + expected[:-lag])
        ratio = float(np.nanmean(off)) if np.isfinite(off).any() else 1.0
        # of a mean of χ² variables; a row is in two differences at most, so half are independent
        error = math.sqrt(2 / max(np.isfinite(off).sum() / min(len(off), 2), 1.0))
        q = 2 * max(ratio - 1 - 2 * error, 0.0) / lag
        power = float(np.nanmean(means[-1] ** 2))
        return q, q * float(noise[-1]) / max(power, 1e-300)

    def _pair_power(self, row: ReleasedRow) -> float:
        """Mean square of a pair per user among the largest counts of a row, without noise."""
        place = np.full(self.n_items, -1)
        place[row.items] = np.arange(len(row.items))
        counts = row.counts[place[row.core]]
        some = np.argsort(-counts, kind="stable")[:LARGEST]
        whole = np.zeros((len(row.core), len(row.core)), np.float32)
        unfold_triangle(row.pairs, 0, whole)
        part = whole[np.ix_(some, some)].astype(np.float64)
        n = len(some)
        square = float((part**2).sum()) / max(n * (n - 1), 1) - row.pairs_deviation**2
        return max(square, 0.0) / row.size**2

    # ------------------------------------------------------------ catalogs and files

    def move_rows(self, old_ids: NDArray[Any], new_ids: NDArray[Any]) -> ReleasedRows:
        """Return the rows over another catalog; items that it lacks are left out."""
        position = {item: at for at, item in enumerate(np.asarray(new_ids).tolist())}
        to = np.array([position.get(item, -1) for item in np.asarray(old_ids).tolist()], np.int64)
        return ReleasedRows(tuple(_move(row, to) for row in self.rows), len(new_ids))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all rows as named arrays for a file."""
        found: dict[str, NDArray[Any]] = {}
        for at, row in enumerate(self.rows):
            found[f"released.{at}.items"] = row.items
            found[f"released.{at}.counts"] = row.counts
            found[f"released.{at}.core"] = row.core
            found[f"released.{at}.pairs"] = row.pairs
            found[f"released.{at}.numbers"] = row.numbers()
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_items: int) -> ReleasedRows | None:
        """Read what `to_arrays` wrote; None where there is nothing, a `DataError` where it is not
        whole.
        """
        rows: list[ReleasedRow] = []
        while f"released.{len(rows)}.items" in arrays:
            parts = ("items", "counts", "core", "pairs", "numbers")
            try:
                rows.append(_row(*(arrays[f"released.{len(rows)}.{name}"] for name in parts)))
            except (KeyError, ValueError, TypeError) as error:
                raise DataError(f"the released sums are not whole: {error}") from None
            _check(rows[-1], n_items)
        return cls(tuple(rows), n_items) if rows else None


def _differs(row: ReleasedRow, num: Any, den: Any, var: Any) -> NDArray[np.bool_]:
    """Mark the counts of a row that earlier rows, with these sums, do not explain by noise."""
    seen = den > 0
    before = np.where(seen, den, 1.0)
    mean = row.counts / row.size
    noise = (row.counts_deviation**2 + (row.size_deviation * mean) ** 2) / row.size**2
    off = (mean - num / before) ** 2
    return np.asarray(seen & (off > JUMP**2 * (noise + var / before**2)), bool)


def _smooth_weights(q: float) -> float:
    """Compute the weights of (2)."""
    return 1 + q / 2 - math.sqrt(q + q * q / 4)


def _row(items: Any, counts: Any, core: Any, pairs: Any, numbers: Any) -> ReleasedRow:
    one, size, two, three = (float(x) for x in numbers)
    return ReleasedRow(items, counts, one, size, two, core, pairs, three)


def _check(row: ReleasedRow, n_items: int) -> None:
    """Raise a `DataError` for a row that cannot be used: files may come from anyone."""
    inside = all(
        x.dtype == np.int32
        and x.ndim == 1
        and len(np.unique(x)) == len(x)
        and (not len(x) or (x.min() >= 0 and x.max() < n_items))
        for x in (row.items, row.core)
    )
    shapes = row.counts.shape == row.items.shape and row.pairs.shape == fold_shape(len(row.core))
    finite = all(bool(np.isfinite(x).all()) for x in (row.counts, row.pairs, row.numbers()))
    if not (inside and shapes and finite and row.counts_deviation > 0 and row.pairs_deviation > 0):
        raise DataError("the released sums have the wrong shape, or numbers that are not finite")


def _move(row: ReleasedRow, to: NDArray[np.int64]) -> ReleasedRow:
    items, core = to[row.items], to[row.core]
    kept = items >= 0
    row = replace(row, items=items[kept].astype(np.int32), counts=row.counts[kept])
    there = np.flatnonzero(core >= 0)
    if len(there) < len(core):
        whole = np.zeros((len(core), len(core)), np.float32)
        unfold_triangle(row.pairs, 0, whole)
        row = replace(row, pairs=fold_triangle(whole[np.ix_(there, there)]))
    return replace(row, core=core[there].astype(np.int32))


def _estimate(users: float, num: Any, den: Any, var: Any) -> Combined:
    """N num/den and N √var/den, in place: for 4,000 items each matrix has 64 MB."""
    none = den <= 0
    den[none] = 1.0
    np.sqrt(var, out=var)
    for array in (num, var):
        array *= np.asarray(users, array.dtype)
        array /= den
    num[none] = 0.0
    var[none] = np.inf
    return Combined(num, var)


# ------------------------------------------------------------------ centered pairs


def uncenter_pairs(Y: NDArray[Any], c: NDArray[Any]) -> NDArray[np.float32]:
    """Return S (m, m) without a diagonal from Y = offdiag(Z S Z), Z = I − κ p pᵀ, p = c/‖c‖.

    With u = S p and D = ‖p‖² − 2 p²: S = Y + p hᵀ + h pᵀ off the diagonal, h = κ u − ½ κ² (p·u) p
    and u = Y p + (h·p) p + D h. That is linear in u, and a diagonal plus a matrix of rank one.
    """
    p = whole_direction(c) / 2.0**BITS
    square = float(p @ p)
    D = square - 2 * p**2
    E = 1 / (1 - KAPPA * D)
    of_rows = E * (Y @ p)
    of_total = E * ((KAPPA - 0.5 * KAPPA**2 * square) * p - 0.5 * KAPPA**2 * D * p)
    total = float(p @ of_rows) / (1 - float(p @ of_total))
    u = of_rows + total * of_total
    h = KAPPA * u - 0.5 * KAPPA**2 * total * p
    S = np.empty(Y.shape, np.float32)
    for start in range(0, len(S), ROWS):  # for 10,000 items each outer product has 800 MB
        rows = slice(start, start + ROWS)
        part = Y[rows] + np.outer(p[rows], h).astype(np.float32)
        S[rows] = part + np.outer(h[rows], p).astype(np.float32)
    np.fill_diagonal(S, 0.0)
    return S


def center_pairs(S: NDArray[Any], c: NDArray[Any]) -> NDArray[np.float32]:
    """Return offdiag(Z S Z), (m, m)."""
    folded = center_reals(fold_triangle(S).astype(np.float64), whole_direction(c))
    Y = np.zeros(S.shape, np.float32)
    unfold_triangle(folded.astype(np.float32), 0, Y)
    return Y


def level_noise(found: Combined) -> tuple[NDArray[np.float32], NDArray[np.float64], float]:
    """Return G and f such that f_j f_k G_jk has about the same noise t everywhere, and t.

    Item j has the deviation t_j of its best measured pairs. A pair with more noise than √(t_j t_k),
    because it was in fewer rows than both of its items, is shrunk to that noise.
    """
    item = found.deviation.min(axis=1).astype(np.float64)
    t = float(np.median(item))
    own = np.sqrt(np.outer(item, item))
    G = found.value * np.minimum(own / found.deviation, 1.0)
    f = np.sqrt(t / item)
    G = (G * np.outer(f, f)).astype(np.float32)
    np.fill_diagonal(G, 0.0)
    return G, f, t


class Released(Protocol):
    """Released numbers and the deviation of their noise."""

    @property
    def value(self) -> NDArray[np.float64]: ...

    @property
    def deviation(self) -> float: ...


def make_row(
    counts: Released,
    core: NDArray[Any] | None = None,
    S: NDArray[Any] | None = None,
    t: float = 1.0,
    *,
    size: float,
    size_deviation: float,
) -> ReleasedRow:
    """Return the row of a training on all items; pairs `S` (m, m) of the core have deviation t."""
    core = np.zeros(0) if core is None else core
    return ReleasedRow(
        np.arange(len(counts.value), dtype=np.int32),
        counts.value.astype(np.float32),
        counts.deviation,
        max(size, 1.0),
        size_deviation,
        core.astype(np.int32),
        np.zeros(fold_shape(0), np.float32)
        if S is None
        else fold_triangle(S).astype(np.float32, copy=False),
        t,
    )
