"""Gradient and curvature of a choice model, by items that users leave out of their own history.

A model scores item j by w · x_uj with a few numbers x_uj of a user's own: the log popularity of the
item, the log lift of a factor model over it, and one log lift φ_f for each public feature
(`discreet.kernels.profiles`). Every user leaves out items of its own that are among some public
candidates, one at a time, and computes all x from the others. In a choice set U, the union of the
`best` best candidates by each of some public reference weights, it sees how probable the item is:

    p_k = exp(w · x_k)/Σ_{l ∈ U} exp(w · x_l),   x̄ = Σ_k p_k x_k,
    g = x_j − x̄,   H = Σ_k p_k (x_k − x̄)(x_k − x̄)ᵀ

and 0 where the item is not in U. The averages g_i and H_i over what it left out are the gradient
and the negative curvature of its log likelihood. It adds

    z_i = α_i (√.6 g_i, √.4 H_i)/C,     α_i = min(1, C/‖g_i‖, C/‖H_i‖_F),

H_i as the upper triangle with √2 off the diagonal.

    statistic                   remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    choice moments   Σ_i z_i        1            2            √K           2 √K          1

*Proof.* The triangle keeps the Frobenius norm, so ‖z_i‖² = α_i² (.6 ‖g_i‖² + .4 ‖H_i‖²)/C² ≤ 1.
Entries have signs, so a user and its opposite are 2 apart. K numbers of norm 1 add up to √K at
most. Everything else in this file is a user's own computation from its own items and public
numbers; what is not finite becomes 0, and z_i is cut again to norm 1 in float64 before it is
multiplied by `SHAVE` and truncated on the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.kernels.profiles import add_log_lifts
from discreet.kernels.threads import cost_cuts, run
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    register,
    total_of_users,
    triangle_size,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound
from discreet.privacy.statistics.pairs import LEVELS, check_levels, levels_of
from discreet.privacy.statistics.user_effects import MIX

CLIP = 0.5  # C: gradients of log lifts are about this long
GRADIENT = 0.6  # share of the squared norm
CURVATURE = 1 - GRADIENT


@dataclass(frozen=True)
class ProfileInputs:
    """Public numbers that a user's x is computed from.

    Parameters
    ----------
    candidates : (k,) int64
        Positions of the items that may be in a choice set.
    popularity : (k,)
        log of the score of a user without a history, of the candidates.
    counts : (k,)
        Their released counts, positive: a user's own part is taken out of that of its own item.
    factors : (r, k) float32
        Their score factors of the factor model; r = 0 where there is none.
    gain : (m, r) float32
        What an item of a history adds to u, times its weight over the norm of all weights.
    base : (r,) float32
    floor : float
        The least that the factor model's score is of popularity.
    starts, values, inverse : see `discreet.kernels.profiles`
    tau : float
    """

    candidates: NDArray[np.int64]
    popularity: NDArray[np.float64]
    counts: NDArray[np.float64]
    factors: NDArray[np.float32]
    gain: NDArray[np.float32]
    base: NDArray[np.float32]
    floor: float
    starts: NDArray[np.int64]
    values: NDArray[np.int32]
    inverse: NDArray[np.float64]
    tau: float

    @property
    def size(self) -> int:
        """How many numbers x has."""
        return 1 + (len(self.factors) > 0) + len(self.starts)


@register("choice moments")
@dataclass(frozen=True, eq=False)
class ChoiceMoments(Statistic):
    """Σ_i z_i, shape (d + d(d + 1)/2,) for d numbers x.

    Parameters
    ----------
    inputs : ProfileInputs
    weights : (d,)
        w, at which the moments are taken.
    references : (k, d)
        Weights of the scores whose best items are the choice set.
    best : int
    left_out : int
        Items that each user leaves out, one at a time; its moments are averaged over them.
    least_level : int
        Items that are liked less are not left out.
    levels : int
    part : float
        Of very many users a part is enough: whether a user takes part is drawn from its own id.
    """

    inputs: ProfileInputs
    weights: NDArray[np.float64]
    references: NDArray[np.float64]
    best: int = 30
    left_out: int = 1
    least_level: int = 1
    levels: int = LEVELS
    part: float = 1.0

    def check(self, public: Public) -> None:
        check_levels(self.levels)
        check_bound("part", self.part)
        x = self.inputs
        m = public.n_items
        k = len(x.candidates)
        if not k or not 0 <= x.candidates.min() <= x.candidates.max() < m:
            raise ConfigError(f"candidates must be positions from 0 to {m - 1:,}")
        public.array("popularity", x.popularity, (k,))
        if (public.array("counts", x.counts, (k,)) <= 0).any():
            raise ConfigError("counts must be positive")
        public.array("factors", x.factors, (len(x.base), k))
        public.array("gain", x.gain, (m, len(x.base)))
        public.array("weights", self.weights, (x.size,))
        public.array("references", self.references, (len(self.references), x.size))
        public.array("inverse", x.inverse, x.inverse.shape)
        starts = x.starts
        inside = starts.ndim == 2 and starts.shape[1] == m + 1 and (np.diff(starts) >= 0).all()
        if not inside or starts.min(initial=0) < 0 or starts.max(initial=0) > len(x.values):
            raise ConfigError("starts must be rising positions in values, for each feature")
        if len(x.values) and not 0 <= x.values.min() <= x.values.max() < len(x.inverse):
            raise ConfigError("values must be numbered as inverse is")
        if not (x.tau > 0 and x.floor > 0 and self.best >= 1):
            raise ConfigError("tau, floor and best must be positive")

    def shape(self, public: Public) -> tuple[int, ...]:
        return (self.inputs.size + triangle_size(self.inputs.size),)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, math.sqrt(self.shape(public)[0]), 1.0, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        coin = (block.key * MIX >> np.uint64(11)).astype(np.float64) * 2.0**-53
        takes_part = (coin < self.part) & (block.counts > 1)
        z = clip_moments(self._moments(block, takes_part)) * SHAVE
        return total_of_users(z, grid)

    def _moments(self, block: Block, takes_part: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(g_i, H_i) of every user."""
        x = self.inputs
        level = levels_of(block, self.levels)
        width = x.size + triangle_size(x.size)
        found = np.zeros((block.n, width))

        place = np.full(len(x.starts[0]) - 1, -1, np.int64)
        place[x.candidates] = np.arange(len(x.candidates))
        exponential = np.exp(-x.popularity).astype(np.float32)

        def work(start: int, stop: int) -> None:
            _user_moments(
                block.indptr,
                block.indices,
                level,
                block.key,
                takes_part,
                start,
                stop,
                self.levels,
                self.least_level,
                self.left_out,
                self.best,
                x.candidates,
                place,
                x.popularity,
                exponential,
                x.counts,
                np.ascontiguousarray(x.factors, np.float32),
                np.ascontiguousarray(x.gain, np.float32),
                np.asarray(x.base, np.float32),
                x.floor,
                x.starts,
                x.values,
                x.inverse,
                x.tau,
                np.asarray(self.weights, np.float64),
                np.ascontiguousarray(self.references, np.float64),
                found,
            )

        run(work, cost_cuts(takes_part + 1e-3))
        return found


def clip_moments(moments: NDArray[np.float64], clip: float = CLIP) -> NDArray[np.float64]:
    """z of (g, H) in rows, H packed as upper triangles."""
    width = moments.shape[1]
    d = round((math.sqrt(9 + 8 * width) - 3) / 2)
    rows, columns = np.triu_indices(d)
    moments = np.where(np.isfinite(moments).all(axis=1, keepdims=True), moments, 0.0)
    g = moments[:, :d]
    H = moments[:, d:] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    long = np.maximum(np.linalg.norm(g, axis=1), np.linalg.norm(H, axis=1))
    scale = np.minimum(1.0, clip / np.maximum(long, 1e-300)) / clip
    z = np.hstack([math.sqrt(GRADIENT) * g, math.sqrt(CURVATURE) * H]) * scale[:, None]
    return np.asarray(z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1.0))


@njit(nogil=True, cache=True)
def _user_moments(
    indptr: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    key: np.ndarray,
    takes_part: np.ndarray,
    start: int,
    stop: int,
    levels: int,
    least_level: int,
    left_out: int,
    best: int,
    candidates: np.ndarray,
    place: np.ndarray,
    popularity: np.ndarray,
    exponential: np.ndarray,
    counts: np.ndarray,
    factors: np.ndarray,
    gain: np.ndarray,
    base: np.ndarray,
    floor: float,
    starts: np.ndarray,
    values: np.ndarray,
    inverse: np.ndarray,
    tau: float,
    weights: np.ndarray,
    references: np.ndarray,
    moments: np.ndarray,
) -> None:
    m = len(candidates)
    r = len(factors)
    d = len(weights)
    first = 1 + (r > 0)
    X = np.empty((d, m))
    own = np.zeros(len(inverse))
    score = np.empty(m, np.float32)
    seen = np.zeros(m, np.bool_)
    inside = np.zeros(m, np.bool_)
    chosen = np.empty(best * len(references), np.int64)
    for i in range(start, stop):
        if not takes_part[i]:
            continue
        at = indices[indptr[i] : indptr[i + 1]]
        many = len(at)
        likes = level[indptr[i] : indptr[i + 1]] / float(levels)
        square = (likes**2).sum()
        for other in range(many):
            if place[at[other]] >= 0:
                seen[place[at[other]]] = True
        # items are left out from a place on that the user's own key says
        turn = int((key[i] >> np.uint64(17)) % np.uint64(many))
        done = 0
        for step in range(many):
            e = (turn + step) % many
            item = place[at[e]]
            if done == left_out or item < 0 or level[indptr[i] + e] < least_level:
                continue
            done += 1
            kept = likes.copy()
            kept[e] = 0.0
            norm = np.sqrt(max(square - likes[e] ** 2, 1e-12))
            mine = likes[e] / np.sqrt(square)
            X[0] = popularity
            X[0, item] += np.log(max(counts[item] - mine, 0.2 * counts[item]) / counts[item])
            if r > 0:
                score[:] = 0.0
                for k in range(r):
                    u = float(base[k])
                    for other in range(many):
                        u += kept[other] * gain[at[other], k] / norm
                    w = np.float32(u)
                    for j in range(m):
                        score[j] += w * factors[k, j]
                least = np.float32(floor)
                for j in range(m):
                    X[1, j] = np.log(max(score[j] * exponential[j], least))
            add_log_lifts(at, kept, starts, values, inverse, tau, candidates, own, X[first:])
            seen[item] = False
            held = _choice_set(X, references, best, seen, inside, chosen)
            seen[item] = True
            if inside[item]:
                _add_moments(X, chosen[:held], item, weights, moments[i])
            for k in range(held):
                inside[chosen[k]] = False
        if done > 0:
            moments[i] /= done
        for other in range(many):
            if place[at[other]] >= 0:
                seen[place[at[other]]] = False


@njit(nogil=True, cache=True)
def _choice_set(
    X: np.ndarray,
    references: np.ndarray,
    best: int,
    seen: np.ndarray,
    inside: np.ndarray,
    chosen: np.ndarray,
) -> int:
    """How many items the choice set has: they are in `chosen`, and marked in `inside`."""
    d, m = X.shape
    top = np.empty(best, np.int64)
    reach = np.empty(best)
    found = 0
    for ref in range(len(references)):
        held = 0
        for j in range(m):
            s = 0.0
            for k in range(d):
                s += references[ref, k] * X[k, j]
            if seen[j] or (held == best and s <= reach[best - 1]):
                continue
            place = min(held, best - 1)
            while place > 0 and reach[place - 1] < s:
                reach[place] = reach[place - 1]
                top[place] = top[place - 1]
                place -= 1
            reach[place] = s
            top[place] = j
            held = min(held + 1, best)
        for k in range(held):
            if not inside[top[k]]:
                inside[top[k]] = True
                chosen[found] = top[k]
                found += 1
    return found


@njit(nogil=True, cache=True)
def _add_moments(
    X: np.ndarray, chosen: np.ndarray, item: int, weights: np.ndarray, moments: np.ndarray
) -> None:
    """Add g and the triangle of H for one choice."""
    d = len(weights)
    s = np.zeros(len(chosen))
    for k in range(len(chosen)):
        for a in range(d):
            s[k] += weights[a] * X[a, chosen[k]]
    p = np.exp(s - s.max())
    p /= p.sum()
    mean = np.zeros(d)
    for k in range(len(chosen)):
        for a in range(d):
            mean[a] += p[k] * X[a, chosen[k]]
    at = d
    for a in range(d):
        moments[a] += X[a, item] - mean[a]
        for b in range(a, d):
            total = 0.0
            for k in range(len(chosen)):
                total += p[k] * (X[a, chosen[k]] - mean[a]) * (X[b, chosen[k]] - mean[b])
            moments[at] += total
            at += 1
