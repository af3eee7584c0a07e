"""Gradient and curvature of a choice model, by items that users leave out of their own history.

A model scores item j by w · x_uj with a few numbers x_uj of a user's own: the log popularity of the
item, the log lift of a factor model over it, and one log lift φ_f for each public feature
(`discreet.kernels.profiles`). Every user leaves out a few items of its own that are among some
public candidates, at most half of what it has, and computes all x from the others. U, the choice
set, is the union of the `best` best candidates by each of some scores: popularity times factor lift
times the features' lifts to some power. With L items left out, J ⊂ U those that are in U,

    p_k = exp(w · x_k)/Σ_{l ∈ U} exp(w · x_l),   x̄ = Σ_k p_k x_k,
    g_i = Σ_{j ∈ J} (x_j − x̄)/L,   H_i = |J|/L Σ_k p_k (x_k − x̄)(x_k − x̄)ᵀ

are the gradient and the negative curvature of its average log likelihood. It adds

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
from discreet.kernels.mixtures import one_mixture
from discreet.kernels.profiles import add_values, clear_values, find_value_sets
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
BLOCK = 64  # scores that are compared at once


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
        What an item of a history adds to u, times its weight over the norm of all weights; or, with
        steps, distributions over the items.
    base : (r,) float32
    floor : float
        The least that the factor model's score is of popularity.
    starts, values, inverse : see `discreet.kernels.profiles`
    tau : float
    strength, steps : float, int
        With steps, u are the mixture weights of a history over the columns of `gain`, with the
        prior `base` (`discreet.kernels.mixtures`).
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
    strength: float = 0.0
    steps: int = 0

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
    exponents : (k,)
        Of the features' lifts, in the scores whose best items are the choice set.
    best : int
    left_out : int
        Items that each user leaves out, at most.
    least_level : int
        Items that are liked less are not left out.
    levels : int
    part : float
        Of very many users a part is enough: whether a user takes part is drawn from its own id.
    """

    inputs: ProfileInputs
    weights: NDArray[np.float64]
    exponents: NDArray[np.float64]
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
        public.array("exponents", self.exponents, (len(self.exponents),))
        public.array("inverse", x.inverse, x.inverse.shape)
        starts = x.starts
        inside = starts.ndim == 2 and starts.shape[1] == m + 1 and (np.diff(starts) >= 0).all()
        if not inside or starts.min(initial=0) < 0 or starts.max(initial=0) > len(x.values):
            raise ConfigError("starts must be rising positions in values, for each feature")
        if len(x.values) and not 0 <= x.values.min() <= x.values.max() < len(x.inverse):
            raise ConfigError("values must be numbered as inverse is")
        if x.steps and not (x.strength > 0 and len(x.base) and x.gain.min(initial=1.0) > 0):
            raise ConfigError("strength and gain must be positive where there are steps")
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
        """Compute (g_i, H_i) of every user."""
        x = self.inputs
        level = levels_of(block, self.levels)
        width = x.size + triangle_size(x.size)
        found = np.zeros((block.n, width))

        place = np.full(len(x.starts[0]) - 1, -1, np.int64)
        place[x.candidates] = np.arange(len(x.candidates))
        exponential = np.exp(-x.popularity).astype(np.float32)
        sets = find_value_sets(x.starts[:, x.candidates], x.starts[:, x.candidates + 1], x.values)
        many = np.diff(sets.begin)
        share = np.where(many > 0, 1 / np.maximum(many, 1), 0.0).astype(np.float32)

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
                x.strength,
                x.steps,
                *sets,
                share,
                np.asarray(self.weights, np.float64),
                np.asarray(self.exponents, np.float32),
                found,
            )

        run(work, cost_cuts(takes_part + 1e-3))
        return found


def clip_moments(moments: NDArray[np.float64], clip: float = CLIP) -> NDArray[np.float64]:
    """Return z of (g, H) in rows, H packed as upper triangles."""
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
    strength: float,
    steps: int,
    set_of: np.ndarray,
    first_set: np.ndarray,
    begin: np.ndarray,
    set_values: np.ndarray,
    share: np.ndarray,
    weights: np.ndarray,
    exponents: np.ndarray,
    moments: np.ndarray,
) -> None:
    m = len(candidates)
    r = len(factors)
    least = np.float32(floor)
    plain = popularity.astype(np.float32)
    own = np.zeros(len(inverse))
    ratio = np.ones(m, np.float32)
    product = np.ones(m, np.float32)
    lifts = np.empty(len(share), np.float32)
    lifted = np.empty(len(inverse), np.float32)
    logarithm = np.empty(m, np.float32)
    scores = np.empty(m, np.float32)
    scratch = np.empty(m, np.float32)
    mantissa = np.empty(m, np.int32)
    seen = np.zeros(m, np.bool_)
    inside = np.zeros(m, np.bool_)
    chosen = np.empty(best * len(exponents), np.int64)
    top = np.empty(best, np.int64)
    missing = np.empty(left_out, np.int64)
    u = np.empty(r)
    for i in range(start, stop):
        if not takes_part[i]:
            continue
        at = indices[indptr[i] : indptr[i + 1]]
        many = len(at)
        kept = level[indptr[i] : indptr[i + 1]] / float(levels)
        square = (kept**2).sum()
        # items are left out from a place on that the user's own key says
        turn = int((key[i] >> np.uint64(17)) % np.uint64(many))
        held = 0
        for step in range(many):
            e = (turn + step) % many
            item = place[at[e]]
            if item < 0:
                continue
            liked = level[indptr[i] + e] >= least_level
            if liked and held < min(left_out, many // 2):
                missing[held] = item
                ratio[held] = kept[e] / np.sqrt(square)  # its part of the count
                held += 1
                kept[e] = 0.0
            else:
                seen[item] = True
        if held > 0:
            mine = ratio[:held].astype(np.float64)
            if r > 0:
                if steps > 0:
                    one_mixture(at, kept, gain, base.astype(np.float64), strength, steps, u)
                else:
                    _linear_vector(at, kept, gain, base, u)
                _factor_ratios(u, factors, exponential, ratio)
            else:
                ratio[:] = 1.0
            total = kept.sum()
            add_values(at, kept, starts, values, own)
            for v in range(len(inverse)):
                lifted[v] = np.float32(own[v] * inverse[v])
            sets = (set_of, first_set, begin, set_values, share)
            _lift_products(lifted, tau, total, sets, lifts, product)
            _approximate_log(product, mantissa, logarithm)
            for j in range(m):
                product[j] = max(ratio[j], least)
            _approximate_log(product, mantissa, scores)
            for j in range(m):
                scores[j] += plain[j]
            for e in range(many):
                if place[at[e]] >= 0 and seen[place[at[e]]]:
                    scores[place[at[e]]] = -np.inf
            found = 0
            held_before = 0
            for ref in range(len(exponents)):
                t = exponents[ref]
                held_before = _find_best(scores, t, logarithm, top, held_before, scratch)
                for k in range(held_before):
                    if not inside[top[k]]:
                        inside[top[k]] = True
                        chosen[found] = top[k]
                        found += 1
            X = np.empty((len(weights), found))
            for k in range(found):
                j = chosen[k]
                X[0, k] = popularity[j]
                for other in range(held):
                    if missing[other] == j:
                        part = max(counts[j] - mine[other], 0.2 * counts[j])
                        X[0, k] += np.log(part / counts[j])
                if r > 0:
                    X[1, k] = np.log(max(ratio[j], least))
            first = 1 + (r > 0)
            for f in range(len(starts)):
                for k in range(found):
                    item = candidates[chosen[k]]
                    lift = 0.0
                    for s in range(starts[f, item], starts[f, item + 1]):
                        lift += own[values[s]] * inverse[values[s]]
                    has = starts[f, item + 1] - starts[f, item]
                    lift = lift / has if has > 0 else total
                    X[first + f, k] = np.log((lift + tau) / (total + tau))
            there = np.zeros(found)
            for k in range(found):
                for other in range(held):
                    there[k] += missing[other] == chosen[k]
            if there.any():
                _add_moments(X, there / held, weights, moments[i])
            for k in range(found):
                inside[chosen[k]] = False
            clear_values(at, starts, values, own)
        for other in range(many):
            if place[at[other]] >= 0:
                seen[place[at[other]]] = False


@njit(nogil=True, cache=True)
def _linear_vector(
    at: np.ndarray, kept: np.ndarray, gain: np.ndarray, base: np.ndarray, u: np.ndarray
) -> None:
    """Vector of a user in the factor model, into `u`."""
    norm = np.sqrt(max((kept**2).sum(), 1e-12))
    u[:] = base
    for e in range(len(at)):
        x = kept[e] / norm
        row = gain[at[e]]
        for k in range(len(u)):
            u[k] += x * row[k]


@njit(nogil=True, cache=True)
def _factor_ratios(
    u: np.ndarray, factors: np.ndarray, exponential: np.ndarray, ratio: np.ndarray
) -> None:
    """Score of the factor model over popularity, of all candidates, into `ratio`."""
    r, m = factors.shape
    ratio[:] = 0.0
    whole = r - r % 4
    for k in range(0, whole, 4):  # four at a time: `ratio` is read and written less often
        w0 = np.float32(u[k])
        w1 = np.float32(u[k + 1])
        w2 = np.float32(u[k + 2])
        w3 = np.float32(u[k + 3])
        for j in range(m):
            part = ratio[j] + w0 * factors[k, j]
            part += w1 * factors[k + 1, j]
            part += w2 * factors[k + 2, j]
            ratio[j] = part + w3 * factors[k + 3, j]
    for k in range(whole, r):
        w0 = np.float32(u[k])
        for j in range(m):
            ratio[j] += w0 * factors[k, j]
    for j in range(m):
        ratio[j] *= exponential[j]


@njit(nogil=True, cache=True)
def _lift_products(
    lifted: np.ndarray,
    tau: float,
    total: float,
    sets: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    lifts: np.ndarray,
    product: np.ndarray,
) -> None:
    """Product of the lifts of all features into `product`; `lifts` is for those of the sets."""
    set_of, first, begin, values, share = sets
    scale = np.float32(1 / (total + tau))
    nothing = np.float32(tau) * scale
    one = np.float32(1.0)
    product[:] = one
    for f in range(len(set_of)):
        for q in range(first[f], first[f + 1]):
            lift = np.float32(0.0)
            for s in range(begin[q], begin[q + 1]):
                lift += lifted[values[s]]
            rest = nothing if share[q] > 0 else one
            lifts[q] = lift * share[q] * scale + rest
        row = set_of[f]
        for j in range(len(product)):
            product[j] *= lifts[row[j]]


@njit(nogil=True, cache=True)
def _approximate_log(x: np.ndarray, mantissa: np.ndarray, found: np.ndarray) -> None:
    """log x of positive float32 to about 1e-4, enough to choose: ten times as fast as log."""
    bits = x.view(np.int32)
    one = np.int32(0x3F800000)
    for j in range(len(x)):
        mantissa[j] = (bits[j] & np.int32(0x7FFFFF)) | one
    y = mantissa.view(np.float32)
    for j in range(len(x)):
        z = y[j] - np.float32(1.0)
        # log(1 + z) for z between 0 and 1, by least squares
        series = np.float32(-0.13474) + z * np.float32(0.03180)
        series = np.float32(-0.49122) + z * (np.float32(0.28793) + z * series)
        found[j] = z * (np.float32(0.99940) + z * series)
    for j in range(len(x)):
        found[j] += np.float32(0.6931472) * np.float32((bits[j] >> np.int32(23)) - np.int32(127))


@njit(nogil=True, cache=True)
def _find_best(
    base: np.ndarray, t: float, lifts: np.ndarray, top: np.ndarray, known: int, s: np.ndarray
) -> int:
    """Find the best items by s = base + t lifts, and return how many there are.

    `top` holds the best `known` by other weights; with as many as asked for, none that is worse
    than all of these is among the best.
    """
    best = len(top)
    m = len(base)
    for j in range(m):
        s[j] = base[j] + t * lifts[j]
    limit = np.float32(-np.inf)
    if known == best:
        least = s[top[0]]
        for k in range(1, best):
            least = min(least, s[top[k]])
        limit = least - np.float32(1e-6) * abs(least) - np.float32(1e-6)
    reach = np.empty(best, np.float32)
    held = 0
    for start in range(0, m, BLOCK):
        stop = min(start + BLOCK, m)
        if stop == start + BLOCK:
            block = s[start:stop]
            above = np.int32(0)
            for j in range(BLOCK):  # as many as the compiler knows of: by vector registers
                above |= np.int32(block[j] > limit)
            if not above:
                continue
        for j in range(start, stop):
            if not s[j] > limit:
                continue
            place = min(held, best - 1)
            while place > 0 and reach[place - 1] < s[j]:
                reach[place] = reach[place - 1]
                top[place] = top[place - 1]
                place -= 1
            reach[place] = s[j]
            top[place] = j
            held = min(held + 1, best)
            if held == best:
                limit = max(limit, reach[best - 1])
    return held


@njit(nogil=True, cache=True)
def _add_moments(
    X: np.ndarray, there: np.ndarray, weights: np.ndarray, moments: np.ndarray
) -> None:
    """Add g and the triangle of H; `there` has 1/L for each item of the choice set left out."""
    d, held = X.shape
    p = np.zeros(held)
    for a in range(d):
        for k in range(held):
            p[k] += weights[a] * X[a, k]
    p = np.exp(p - p.max())
    p /= p.sum()
    share = there.sum()
    at = d
    for a in range(d):
        mean = 0.0
        for k in range(held):
            mean += p[k] * X[a, k]
        gradient = 0.0
        for k in range(held):
            X[a, k] -= mean
            gradient += there[k] * X[a, k]
        moments[a] += gradient
    p *= share
    for a in range(d):
        for b in range(a, d):
            curvature = 0.0
            for k in range(held):
                curvature += p[k] * X[a, k] * X[b, k]
            moments[at] += curvature
            at += 1
