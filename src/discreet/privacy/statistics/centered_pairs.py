"""Sums over pairs of items with popularity taken out, at the price of plain pair sums.

Released counts say already how popular items are. So a user's pairs are centered on a public
direction p before they are summed: with the levels a_i of a user, D_i = diag(a_ij²) and
W = I − κ p pᵀ,

    M_i = offdiag(W (a_i a_iᵀ − D_i) W) / q_i,      q_i = ‖offdiag(W (a_i a_iᵀ − D_i) W)‖_F     (1)

and nothing where a user has no pair. The strict upper triangle of Σ_i M_i, times √2, is released.
With e = W a, t = a · p, s = Σ_j a_j² p_j² and b_j = κ (a_j² − κ s/2) p_j, the matrix in (1) is
e eᵀ + p bᵀ + b pᵀ off its diagonal, so that

    q² = ‖e‖⁴ + 2 (‖p‖² ‖b‖² + (b·p)²) + 4 (e·b)(e·p) − Σ_j (e_j² + 2 b_j p_j)²                 (2)

takes one pass over a user's items: elsewhere e_j² + 2 b_j p_j = κ² (t² − s) p_j².

    statistic                          remove, ℓ₂   replace, ℓ₂   remove, ℓ₁       one entry
    centered pair sums   Σ_i √2 M_i       1            2             √(m(m − 1)/2)   1

*Proof.* By (1) the triangle of a user has norm 1. Its entries have signs, so that two users may be
2 apart. ℓ₁ follows by Cauchy and Schwarz.

Rounding. Contributions (1) are dense, but Σ_i M_i = offdiag(W S W) for the sparse sum
S = Σ_i w_i (a_i a_iᵀ − D_i), w_i = 1/q_i. So S is summed on the grid exactly as `pairs` does, each
w_i truncated to whole units, and engines add int64 as ever. W is applied once, to the sum, by the
map f of `center_units`. p has whole numbers P_j = ⌊2¹⁶ p_j⌋ over 2¹⁶ (so ‖P/2¹⁶‖ ≤ 1; this, and not
p, is the direction in (1) and (2)) and κ = 45/64, so

    W S W = S − (p hᵀ + h pᵀ),     h = κ S p − ½ κ² (pᵀ S p) p                                  (3)

is rational. f computes S p exactly in two words, h exactly in unbounded integers and rounds it to
whole units (an error η, |η_j| ≤ ½), then each entry of (3) exactly in two words and rounds it
(≤ ½). In the norm of the triangle f(S) is off the real L(S) = √2 offdiag(W S W) by at most
½ √(m(m − 1)/2) + √2 ‖p‖ ‖η‖ ≤ m units, *whatever S is*. For neighbors S and S' = S − s_i,

    ‖f(S) − f(S')‖ ≤ ‖L(s_i)‖ + 2 m units,

and 2 for replaced users by the same argument. So users take w_i = SHAVE (1 − 2 m grid) √2/q_i, and
1 and 2 hold to the last unit. A user who counts by age, with weight g, takes
SHAVE (g − 2 m grid) √2/q_i, or nothing where that is negative: what rounding the sum adds does not
shrink with g, and its row moves by at most g. Both hold in ℓ₁ as well, by Cauchy and Schwarz on
what is released.

(2) is computed in float64. Its terms are at most 16 ‖a‖⁴ and sums have at most 2¹⁴ of them, so that
the result is off by less than 2⁻³⁴ ‖a‖⁴; 2⁻³⁰ ‖a‖⁴ is added to q². It is also at least
‖a aᵀ − D‖²/256, which binds for no p we know of but bounds ‖s_i‖ by 2³² units: so S, S p and pᵀ S p
are exact in int64 for 2³⁰ users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    register,
    weigh_by_age,
)
from discreet.privacy.statistics.bounds import SHAVE
from discreet.privacy.statistics.pairs import (
    LEVELS,
    PairAdder,
    check_levels,
    fold_shape,
    levels_of,
    sort_by_item,
    unfold_triangle,
)
from discreet.privacy.statistics.sums import Compute

KAPPA = 45 / 64  # of popularity that is taken out; a dyadic number, so that κ² is exact as well
BITS = 16  # of P: with more, sums of 2¹⁴ items would not fit into int64
MOST_ITEMS = 1 << 14  # see BITS


@register("centered pair sums")
@dataclass(frozen=True)
class CenteredPairSums(Statistic):
    """Σ_i √2 M_i of (1) for each pair of items, as a folded strict triangle.

    Parameters
    ----------
    popularity : (n_items,), public and not negative
        In any unit: p is this over its norm.
    levels : int
        Of liking; 1 where all items of a user are liked alike.
    """

    popularity: NDArray[Any]
    levels: int = LEVELS

    def check(self, public: Public) -> None:
        check_levels(self.levels)
        check_popularity(public, self.popularity)

    def shape(self, public: Public) -> tuple[int, ...]:
        return fold_shape(public.n_items)

    def reach(self, public: Public) -> SensitivityBounds:
        pairs = public.n_items * (public.n_items - 1) / 2
        return SensitivityBounds(1.0, max(math.sqrt(pairs), 1.0), 1.0, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        level = levels_of(block, self.levels)
        indices, level = sort_by_item(block.indptr, block.indices, level)
        q = pair_norms(block.indptr, indices, level, whole_direction(self.popularity) / 2.0**BITS)
        spare = 0.0 if grid is None else 2.0 * public.n_items * grid
        norm = weigh_by_age(block, np.ones(block.n))
        room = SHAVE * np.maximum(norm - spare, 0.0) * math.sqrt(2.0)
        each = np.where(q > 0, room / np.maximum(q, 1e-300), 0.0)
        whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
        return PairAdder(block.indptr, indices, level, whole, public.n_items).rows

    def transform(self, compute: Compute, public: Public) -> Compute:
        return CenteredSums(compute, whole_direction(self.popularity))


def check_popularity(public: Public, popularity: NDArray[Any]) -> None:
    """Raise a `ConfigError` unless p can be made of it."""
    if (public.array("popularity", popularity, (public.n_items,)) < 0).any():
        raise ConfigError("popularity must not be negative")
    if public.n_items > MOST_ITEMS:
        raise ConfigError(
            f"centered pairs are exact for {MOST_ITEMS:,} items, and there are"
            f" {public.n_items:,}. Take fewer."
        )


def whole_direction(popularity: NDArray[Any]) -> NDArray[np.int64]:
    """P: the direction of these numbers in units of 2⁻¹⁶, rounded down."""
    p = np.asarray(popularity, np.float64)
    p = p / max(float(p.max(initial=0.0)), 1e-300)  # whose squares do not overflow
    length = math.sqrt(max(math.fsum(p**2), 1e-300)) * (1 + 2.0**-40)
    return np.floor(p / length * 2.0**BITS).astype(np.int64)


# ------------------------------------------------------------------ each user's own norm


def pair_norms_numpy(
    indptr: NDArray[Any], indices: NDArray[Any], level: NDArray[Any], p: NDArray[Any]
) -> NDArray[np.float64]:
    """q_i of (1) by its definition, without the margins: the specification of `pair_norms`."""
    W = np.eye(len(p)) - KAPPA * np.outer(p, p)
    q = np.zeros(len(indptr) - 1)
    for i in range(len(q)):
        a = np.zeros(len(p))
        a[indices[indptr[i] : indptr[i + 1]]] = level[indptr[i] : indptr[i + 1]]
        M = W @ (np.outer(a, a) - np.diag(a**2)) @ W
        q[i] = np.linalg.norm(M - np.diag(np.diag(M)))
    return q


def pair_norms(
    indptr: NDArray[Any], indices: NDArray[Any], level: NDArray[Any], p: NDArray[np.float64]
) -> NDArray[np.float64]:
    """q_i by (2), never below the real one; 0 for users without a pair."""
    q = np.empty(len(indptr) - 1)
    _pair_norms(indptr, indices, level, p, math.fsum(p**2), math.fsum(p**4), q)
    return q


@njit(nogil=True, cache=True)
def _pair_norms(
    indptr: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    p: np.ndarray,
    all_squares: float,
    all_fourths: float,
    q: np.ndarray,
) -> None:
    for i in range(len(indptr) - 1):
        second = fourth = t = s = squares = fourths = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            a = float(level[at])
            x = p[indices[at]]
            second += a * a
            fourth += a * a * a * a
            t += a * x
            s += a * a * x * x
            squares += x * x
            fourths += x * x * x * x
        outside = -0.5 * KAPPA * KAPPA * s  # b_j / p_j of items that the user does not have
        bb = outside * outside * (all_squares - squares)
        bp = outside * (all_squares - squares)
        eb = -KAPPA * t * bp
        same = KAPPA * KAPPA * (t * t - s)
        diagonal = same * same * (all_fourths - fourths)
        for at in range(indptr[i], indptr[i + 1]):
            a = float(level[at])
            x = p[indices[at]]
            e = a - KAPPA * t * x
            b = KAPPA * a * a * x + outside * x
            bb += b * b
            bp += b * x
            eb += e * b
            diagonal += (e * e + 2 * b * x) ** 2
        ee = second - KAPPA * t * t * (2 - KAPPA * all_squares)
        ep = t * (1 - KAPPA * all_squares)
        square = ee * ee + 2 * (all_squares * bb + bp * bp) + 4 * eb * ep - diagonal
        own = second * second - fourth
        square = max(square, own / 256) + 2.0**-30 * second * second
        q[i] = np.sqrt(square) if own > 0 else 0.0


# ------------------------------------------------------------------ W, applied to the sum


class CenteredSums:
    """W S W off the diagonal for the exact sum S that `compute` gives: a public linear map of it.

    It needs all rows of S, so it holds them until the last block of rows is taken.
    """

    def __init__(self, compute: Compute, P: NDArray[np.int64]) -> None:
        self._compute = compute
        self._P = P
        self._held: tuple[float | None, NDArray[Any]] | None = None

    def __call__(self, grid: float | None, rows: slice) -> NDArray[Any]:
        n = fold_shape(len(self._P))[0]
        if self._held is None or self._held[0] != grid:
            S = self._compute(grid, slice(0, n))
            centered = center_reals(S, self._P) if grid is None else center_units(S, self._P)
            self._held = (grid, centered)
        found = self._held[1]
        if (rows.start, rows.stop) == (0, n):
            self._held = None
            return found
        if rows.stop >= n:
            self._held = None
        return found[rows].copy()  # noise is added in place


def center_reals(S: NDArray[np.float64], P: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute (3) in real numbers: the specification of `center_units`."""
    p = P / 2.0**BITS
    A = np.zeros((len(P), len(P)))
    unfold_triangle(S, 0, A)
    r = A @ p
    h = KAPPA * r - 0.5 * KAPPA**2 * (p @ r) * p
    centered = np.asarray(S, np.float64).copy()
    _subtract_reals(centered, p, h)
    return centered


def center_units(S: NDArray[np.int64], P: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute f: (3) rounded to whole units, overwriting S."""
    high = np.zeros(len(P), np.int64)
    low = np.zeros(len(P), np.int64)
    _multiply(S, P, high, low)
    # Sp · 2¹⁶ and pᵀSp · 2³², in unbounded integers
    Sp = [(one << 32) + other for one, other in zip(high.tolist(), low.tolist(), strict=True)]
    pSp = sum(x * y for x, y in zip(Sp, P.tolist(), strict=True))
    # κ = 45/2⁶ and κ²/2 = 2025/2¹³, over 2⁶¹
    h = [
        (45 * (x << 39) - 2025 * pSp * y + (1 << 60)) >> 61
        for x, y in zip(Sp, P.tolist(), strict=True)
    ]
    whole = np.array(h, np.int64)
    upper = whole >> 16
    _subtract_units(S, P, upper, whole - (upper << 16))
    return S


@njit(nogil=True, cache=True)
def _multiply(S: np.ndarray, P: np.ndarray, high: np.ndarray, low: np.ndarray) -> None:
    """S P = 2³² high + low, of a folded triangle."""
    m = len(P)
    last = m - 1 if m % 2 == 0 else m - 2
    for row in range(len(S)):
        at = 0
        for j in (row, last - row):
            for k in range(j + 1, m):
                one = S[row, at] >> 32
                other = S[row, at] - (one << 32)
                high[j] += one * P[k]
                high[k] += one * P[j]
                low[j] += other * P[k]
                low[k] += other * P[j]
                at += 1


@njit(nogil=True, cache=True)
def _subtract_units(S: np.ndarray, P: np.ndarray, high: np.ndarray, low: np.ndarray) -> None:
    """S_jk − (P_j h_k + P_k h_j)/2¹⁶, to the nearest whole number; h = 2¹⁶ high + low."""
    m = len(P)
    last = m - 1 if m % 2 == 0 else m - 2
    for row in range(len(S)):
        at = 0
        for j in (row, last - row):
            for k in range(j + 1, m):
                rest = (P[j] * low[k] + P[k] * low[j] + (1 << 15)) >> 16
                S[row, at] -= P[j] * high[k] + P[k] * high[j] + rest
                at += 1


@njit(nogil=True, cache=True)
def _subtract_reals(S: np.ndarray, p: np.ndarray, h: np.ndarray) -> None:
    m = len(p)
    last = m - 1 if m % 2 == 0 else m - 2
    for row in range(len(S)):
        at = 0
        for j in (row, last - row):
            for k in range(j + 1, m):
                S[row, at] -= p[j] * h[k] + p[k] * h[j]
                at += 1
