"""Counts of all items by community, and whether communities find an item that a user left out.

A community z is a public distribution P_z over all items. A user with levels a_ij computes its own
mixture weights θ_i (`discreet.kernels.mixtures`) from public numbers and its own items, chooses the
community z_i = argmax θ_i and adds

    N_i,jz = a_ij/‖a_i‖ for z = z_i, and 0 for all other communities,

and nothing where it likes no item. In the second statistic it leaves out up to L of its own items,
one at a time, and counts how often the left-out item is among the best `best` items that it does
not have: by the mixture, h_i, and by popularity, h⁰_i, both averaged over the L. It adds
d_i = (h_i − r h⁰_i)/r for a public r ≥ 1.

A user that adds to a community also moves the distribution that its own items are then judged by,
which makes any communities look good. So a public part of users, drawn from their own keys, may be
held out of the counts, and only these add to the hits.

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    community counts   Σ_i N_i           1            √2            √m           2 √m           1
    left-out hits      Σ_i d_i           1            2             1            2              1

*Proof*, with m items. θ_i and z_i depend on the user's own items and on public numbers alone, so a
user moves the sum by its own N_i. ‖N_i‖₂ = ‖a_i‖/‖a_i‖ = 1, in one column. No entry is
negative, so ‖N_i − N_k‖₂² ≤ ‖N_i‖² + ‖N_k‖² ≤ 2; two users in different communities reach it.
‖N_i‖₁ ≤ √m ‖N_i‖₂ since one column has m entries; a user who likes all items equally reaches it,
and two of them in different communities are twice as far apart. An entry is at most the norm; a
user with one item reaches it. h_i and h⁰_i are between 0 and 1, so d_i is between −1 and 1/r ≤ 1; a
user who only popularity serves and, with r = 1, one who only the mixture serves reach the ends.

Rounding: ‖a_i‖² is a whole number, added up in int64; 1/‖a_i‖ in float64 is multiplied by
`SHAVE` = 1 − 2⁻²⁰, and every entry is truncated toward zero on the grid, as like counts are
(`pairs`). d_i is cut to [−1, 1] and truncated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.kernels.mixtures import mixture_weights, one_mixture
from discreet.kernels.threads import cost_cuts, run
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    register,
    total_of_users,
)
from discreet.privacy.statistics.bounds import SHAVE
from discreet.privacy.statistics.pairs import LEVELS, check_levels, levels_of, power_sums
from discreet.privacy.statistics.user_effects import MIX

FIRST = 256  # most popular items that are tried first: they beat nine of ten left-out items


@dataclass(frozen=True, eq=False)
class Mixture:
    """Public communities.

    Parameters
    ----------
    P : (n_items, K) float32, positive
        Distributions over the items.
    prior : (K,), positive
    strength : float
        α of `discreet.kernels.mixtures`.
    steps : int
    """

    P: NDArray[np.float32]
    prior: NDArray[np.float64]
    strength: float
    steps: int

    def check(self, public: Public) -> None:
        """Raise a `ConfigError` unless users can compute their weights."""
        K = len(self.prior)
        positive = (
            public.array("P", self.P, (public.n_items, K)).min(initial=1.0) > 0
            and public.array("prior", self.prior, (K,)).min(initial=1.0) > 0
        )
        if not (positive and K and self.P.dtype == np.float32):
            raise ConfigError("P and prior must be positive, and P float32")
        if not (0 < self.strength < math.inf and self.steps >= 1):
            raise ConfigError("strength and steps must be positive")


@register("community counts")
@dataclass(frozen=True, eq=False)
class CommunityCounts(Statistic):
    """Σ_i N_i, shape (n_items, K).

    Parameters
    ----------
    mixture : Mixture
    levels : int
    held_out : float
        Part of users who add nothing.
    """

    mixture: Mixture
    levels: int = LEVELS
    held_out: float = 0.0

    def check(self, public: Public) -> None:
        check_levels(self.levels)
        self.mixture.check(public)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, len(self.mixture.prior))

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, max(math.sqrt(public.n_items), 1.0), 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        level = levels_of(block, self.levels)
        share = SHAVE / np.sqrt(np.maximum(power_sums(block.indptr, level)[0], 1))
        apart = is_held_out(block, self.held_out)
        share[apart] = 0.0
        # those who add nothing need no community: weights of 0 take no time
        x = np.where(np.repeat(apart, np.diff(block.indptr)), 0.0, level / float(self.levels))
        chosen = choose_communities(block, x, self.mixture)
        sums = np.zeros(self.shape(public), np.float64 if grid is None else np.int64)
        per_unit = 1.0 if grid is None else 1 / grid
        _add_items(block.indptr, block.indices, level, share, chosen, per_unit, sums)
        return lambda rows: sums[rows].copy()  # noise is added in place


@register("left-out hits")
@dataclass(frozen=True, eq=False)
class LeftOutHits(Statistic):
    """Σ_i d_i, shape (1,).

    A user's own part is in the counts, which P is made of as well: it is taken out of the left-out
    item's count and scores, as if nothing had been shrunk, down to a fifth of them.

    Parameters
    ----------
    mixture : Mixture
    counts : (n_items,)
        Estimated counts, positive, that popularity ranks by.
    handicap : float
        r: how much better popularity would be with the rest of the budget.
    left_out : int
        L.
    best : int
    levels : int
    held_out : float
        Part of users who add to the sum.
    """

    mixture: Mixture
    counts: NDArray[np.float64]
    handicap: float = 1.0
    left_out: int = 4
    best: int = 20
    levels: int = LEVELS
    held_out: float = 1.0

    def check(self, public: Public) -> None:
        check_levels(self.levels)
        self.mixture.check(public)
        if (public.array("counts", self.counts, (public.n_items,)) <= 0).any():
            raise ConfigError("counts must be positive")
        if not 1 <= self.handicap < math.inf or self.left_out < 1 or self.best < 1:
            raise ConfigError("handicap, left_out and best must be at least 1")

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, 1.0, 1.0, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        level = levels_of(block, self.levels)
        hits = np.zeros((block.n, 2))
        order = np.argsort(-self.counts, kind="stable")
        m = self.mixture
        bound = m.P.max(axis=1)
        by_bound = np.argsort(-bound, kind="stable")
        prior = np.asarray(m.prior, np.float64)
        takes_part = is_held_out(block, self.held_out)

        def work(start: int, stop: int) -> None:
            _count_left_out_hits(
                block.indptr,
                block.indices,
                level,
                block.key,
                takes_part,
                start,
                stop,
                m.P,
                prior,
                m.strength,
                m.steps,
                np.asarray(self.counts, np.float64),
                np.sort(np.asarray(self.counts, np.float64)),
                order,
                bound,
                by_bound,
                self.left_out,
                self.best,
                self.levels,
                hits,
            )

        run(work, cost_cuts(block.counts * takes_part + 1.0))
        d = np.clip(hits[:, 0] / self.handicap - hits[:, 1], -1.0, 1.0)
        return total_of_users(np.nan_to_num(d), grid)


def is_held_out(block: Block, part: float) -> NDArray[np.bool_]:
    """Return whether each user is, by its own key."""
    drawn = (block.key * MIX >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.asarray(drawn < part)


def choose_communities(block: Block, x: NDArray[np.float64], mixture: Mixture) -> NDArray[np.int64]:
    """z_i of every user, whose items have weights x; the first of equally likely ones."""
    theta = mixture_weights(
        block.indptr,
        block.indices,
        x,
        mixture.P,
        mixture.prior,
        mixture.strength,
        mixture.steps,
    )
    return np.asarray(np.argmax(theta, axis=1))


@njit(nogil=True, cache=True)
def _add_items(
    indptr: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    share: np.ndarray,
    chosen: np.ndarray,
    per_unit: float,
    sums: np.ndarray,
) -> None:
    """Add N_i of all users; a grid is a power of four, and storing in int64 truncates."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            sums[indices[e], chosen[i]] += sums.dtype.type(share[i] * level[e] * per_unit)


@njit(nogil=True, cache=True)
def _count_left_out_hits(
    indptr: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    key: np.ndarray,
    takes_part: np.ndarray,
    start: int,
    stop: int,
    P: np.ndarray,
    prior: np.ndarray,
    strength: float,
    steps: int,
    counts: np.ndarray,
    ascending: np.ndarray,
    order: np.ndarray,
    bound: np.ndarray,
    by_bound: np.ndarray,
    left_out: int,
    best: int,
    levels: int,
    hits: np.ndarray,
) -> None:
    """h_i and h⁰_i of some users.

    `ascending` are the sorted counts, `order` has the items by counts, and `by_bound` by `bound`,
    the largest entry of their row of P.
    """
    theta = np.empty(len(prior))
    own = np.zeros(len(P), np.bool_)
    for i in range(start, stop):
        items = indices[indptr[i] : indptr[i + 1]]
        likes = level[indptr[i] : indptr[i + 1]] / float(levels)
        many = len(items)
        square = (likes**2).sum()
        if many < 2 or square == 0.0 or not takes_part[i]:
            continue
        for e in range(many):
            own[items[e]] = True
        # items are left out from a place on that the user's own key says
        turn = int((key[i] >> np.uint64(17)) % np.uint64(many))
        done = 0
        for step in range(many):
            e = (turn + step) % many
            if done == left_out or likes[e] == 0.0:
                continue
            done += 1
            j = items[e]
            kept = likes.copy()
            kept[e] = 0.0
            one_mixture(items, kept, P, prior, strength, steps, theta)
            count = max(counts[j] - likes[e] / np.sqrt(square), 0.2 * counts[j])
            score = 0.0
            for z in range(len(prior)):
                score += theta[z] * P[j, z] * count / counts[j]
            popular = len(counts) - np.searchsorted(ascending, count, side="right")
            for k in items:
                popular -= counts[k] > count
            # Most items are beaten by some of the most popular ones. Where they are not, items are
            # tried by the largest score that they could have, down to the score itself.
            above = _count_above(order[:FIRST], own, theta, P, bound, score, best, False)
            if above < best:
                above = _count_above(by_bound, own, theta, P, bound, score, best, True)
            hits[i, 0] += above < best
            hits[i, 1] += popular < best
        for e in range(many):
            own[items[e]] = False
        if done > 0:
            hits[i, 0] /= done
            hits[i, 1] /= done


@njit(nogil=True, cache=True, inner=True)
def _count_above(
    order: np.ndarray,
    own: np.ndarray,
    theta: np.ndarray,
    P: np.ndarray,
    bound: np.ndarray,
    score: float,
    best: int,
    by_bound: bool,
) -> int:
    """Count the items of `order` with a larger score that the user does not have, up to `best`.

    With `by_bound`, items are in the order of `bound`. Weights add up to 1, so no score exceeds it,
    and what follows a bound below the score need not be tried.
    """
    total = theta.sum() * (1 + 1e-9)  # rounding of the sums below is far less
    above = 0
    last = len(order) - 1
    for first in range(0, len(order), 4):
        if above >= best or (by_bound and bound[order[first]] * total <= score):
            break
        # Four sums at a time, each in the order of z: one alone would wait for every addition.
        i = order[first]
        j = order[min(first + 1, last)]
        k = order[min(first + 2, last)]
        n = order[min(first + 3, last)]
        s0 = s1 = s2 = s3 = 0.0
        for z in range(len(theta)):
            s0 += theta[z] * P[i, z]
            s1 += theta[z] * P[j, z]
            s2 += theta[z] * P[k, z]
            s3 += theta[z] * P[n, z]
        above += s0 > score and not own[i]
        above += s1 > score and not own[j] and first + 1 <= last
        above += s2 > score and not own[k] and first + 2 <= last
        above += s3 > score and not own[n] and first + 3 <= last
    return min(above, best)
