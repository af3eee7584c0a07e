"""What users' ratings differ by from what is already known, kept sealed, and the covariances that they add up to.

Private SVD and private Frank–Wolfe both look at rows of residuals a_i, one per user, over the items that the user has
rated, and release the sum of their outer products. A user computes its row from public values and its own ratings;
that is free. What leaves is cut first: a row to the norm L, a rating to ±c, a user to k items.

    statistic                               remove, ℓ₂   replace, ℓ₂   remove, ℓ₁        one entry
    covariance    Σ a aᵀ, ‖a‖ ≤ L           L²           √2 L²         (m + 1)/2 · L²    L²
    pair_counts   Σ x xᵀ, x = 1/√c on Ω_i   1            √2            (m + 1)/2         1
    item_totals   Σ w y                     √B c         2 √B c        S c               √B c
    crowd         Σ 1                       1            1             1                 1

with m items, c_i the user's own number of ratings, and B, S, c as in `discreet.privacy.statistics`. Covariances and
pair counts are released as packed upper triangles; ‖a aᵀ‖ = ‖a‖² in the packing that keeps norms, so that entries off
the diagonal have 1/√2 of the noise; in ℓ₁, Σ_{j≤l} |a_j a_l| = (‖a‖₁² + ‖a‖₂²)/2 ≤ (m + 1)/2 · ‖a‖₂². Outer products
have inner products (a·b)² ≥ 0: hence √2 for replacing a user.

Privacy: rounding on the grid is of the factors, towards zero, so that a rounded outer product is one of a shorter row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.privacy import integer_sums
from discreet.privacy.bounds import SHAVE, bound, public_number
from discreet.privacy.sealed import Users
from discreet.privacy.statistics import Reach, Sum, entry_sum, pack, packed_size
from discreet.privacy.vault import KEY, Box, guarded

_BLOCK = 1 << 22  # entries of the dense block in which rows are multiplied
_UNBOUNDED = 1e100


class _Rows(NamedTuple):
    """CSR by user: what was to be explained and what has been."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    y: NDArray[np.float64]
    fitted: NDArray[np.float64]

    @property
    def row(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


class Residuals(Box[_Rows]):
    """Every user's own residuals, sealed. Made by `residuals_of`; public is only the number of items."""

    __slots__ = ("n_items",)

    def __init__(self, rows: _Rows, n_items: int) -> None:
        super().__init__(rows, f"residuals over {n_items:,} items")
        self.n_items = n_items

    @guarded("the users' step")
    def step(self, direction: NDArray[Any], length: float, size: float, gamma: float, largest: float) -> None:
        """Each user takes one step of Frank and Wolfe along a public direction; see `frank_wolfe_step`."""
        v = np.asarray(direction, np.float64)
        if v.shape != (self.n_items,) or not np.isfinite(v).all():
            raise ConfigError(f"a direction has {self.n_items} finite numbers")
        rows = self.open(KEY)
        n = len(rows.indptr) - 1
        fitted = frank_wolfe_step(rows.row, n, v[rows.indices], rows.y, rows.fitted, length, size, gamma, largest)[0]
        moved = rows._replace(fitted=np.nan_to_num(fitted, posinf=0.0, neginf=0.0))
        self._content = lambda: moved

    @guarded("the covariance")
    def covariance(self, largest: float, per_rating: bool = False) -> Sum:
        """Σ_i a_i a_iᵀ, packed, (1, m(m+1)/2); rows a_i cut to the norm `largest` (L).

        With `per_rating`, a_i is first divided by √c_i: then a user counts as much as its average rating.
        """
        L, rows = bound("largest", largest), self.open(KEY)
        row, n = rows.row, len(rows.indptr) - 1
        a = np.clip(rows.fitted - rows.y, -_UNBOUNDED, _UNBOUNDED)
        if per_rating:
            a = a / np.sqrt(np.maximum(np.diff(rows.indptr), 1))[row]
        norm = np.sqrt(np.bincount(row, a**2, minlength=n))
        a = a * (SHAVE * np.minimum(1.0, L / np.maximum(norm, 1e-300)))[row]
        return self._outer(a, L**2)

    @guarded("the counts of pairs")
    def pair_counts(self) -> Sum:
        """Σ_i x_i x_iᵀ, packed, with x_ij = 1/√c_i for the items that user i has rated: by whom a covariance is."""
        rows = self.open(KEY)
        x = SHAVE / np.sqrt(np.maximum(np.diff(rows.indptr), 1).astype(np.float64))
        return self._outer(x[rows.row], 1.0)

    def _outer(self, a: NDArray[np.float64], l2: float) -> Sum:
        rows, m = self.open(KEY), self.n_items

        def compute(grid: float | None, part: slice) -> NDArray[Any]:
            if grid is None:
                W = _gram(rows.indptr, rows.indices, a, m, np.float64)
            else:
                W = _gram(rows.indptr, rows.indices, np.trunc(a / math.sqrt(grid)), m, np.int64)
            return pack(W[None])[part]

        reach = Reach(l2, (m + 1) / 2 * l2, l2, 2**0.5)
        return Sum((1, packed_size(m)), reach, compute, symmetric=m)


@guarded("the users' residuals")
def residuals_of(
    users: Users, offsets: NDArray[Any] | None = None, prior_count: float | None = None, clamp: float | None = None
) -> Residuals:
    """What is left of each user's ratings.

    Parameters
    ----------
    users : Users
        Their ratings are centred as the bounds say.
    offsets : (n_items,), optional
        Public: subtracted from every rating of the item.
    prior_count : float, optional
        Then each user also subtracts its own mean of what is left, counting so many zeros with it.
    clamp : float, optional
        Cut what is left to ±clamp.
    """
    b = users._public("offsets", np.zeros(users.n_items) if offsets is None else offsets, (users.n_items,))
    rows = users.open(KEY)
    row, counts = rows.row, np.diff(rows.indptr)
    y = rows.values.astype(np.float64) - b[rows.indices]
    if prior_count is not None:
        total = np.bincount(row, y, minlength=len(counts))
        y = y - (total / np.maximum(counts + public_number("prior_count", prior_count), 1e-9))[row]
    if clamp is not None:
        y = np.clip(y, -bound("clamp", clamp), clamp)
    y = np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0)
    return Residuals(_Rows(rows.indptr, rows.indices, y, np.zeros_like(y)), users.n_items)


def frank_wolfe_step(
    row: NDArray[Any],
    n: int,
    v: NDArray[Any],
    y: NDArray[Any],
    fitted: NDArray[Any],
    length: float,
    size: float,
    gamma: float,
    largest: float,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The local step of n users, on their own entries.

        a = fitted − y,   û_i = a_i · v / length,   fitted ← Π_L((1 − γ) fitted − γ k û_i v)

    Parameters
    ----------
    row, v, y, fitted : per entry
        Whose it is, the direction at its item, the rating, and what is predicted for it so far.
    length, size, gamma, largest : float
        λ̂', k, γ and L; Π_L scales a user's predictions on its own items to the norm L.

    Returns
    -------
    fitted : per entry
    coefficient, shrink : per user
        The prediction for any item is shrink · ((1 − γ) · the one before + coefficient · v).
    """
    u = np.bincount(row, (fitted - y) * v, minlength=n) / length
    coefficient = -gamma * size * u
    fitted = (1 - gamma) * fitted + coefficient[row] * v
    norm = np.sqrt(np.bincount(row, fitted**2, minlength=n))
    shrink = np.minimum(1.0, largest / np.maximum(norm, 1e-300))
    return fitted * shrink[row], coefficient, shrink


@guarded("the totals of items")
def item_totals(users: Users) -> Sum:
    """Σ_i w_ij y_ij for each item j: of what users contribute, cut to the bounds."""
    rows, bounds, m = users._contributions(), users.bounds, users.n_items
    item = np.repeat(np.arange(m), np.diff(rows.by_item))
    root = bounds.squared_weight(m) ** 0.5 * bounds.value
    return entry_sum(item, rows.weight * rows.value, m, Reach(root, bounds.weight_sum(m) * bounds.value, root, 2.0))


@guarded("the number of users")
def crowd(users: Users) -> Sum:
    """How many users there are, shape (1,)."""
    n = len(users.open(KEY).indptr) - 1

    def compute(grid: float | None, part: slice) -> NDArray[Any]:
        return np.array([float(n) if grid is None else n * math.floor(1 / grid)])[part]

    return Sum((1,), Reach(1.0, 1.0, 1.0, 1.0, 1.0), compute)


def _gram(
    indptr: NDArray[Any], indices: NDArray[Any], a: NDArray[np.float64], m: int, dtype: type[np.generic]
) -> NDArray[Any]:
    """AᵀA of sparse rows, by dense blocks of at most `CHUNK` users that are added as `dtype`."""
    W, n = np.zeros((m, m), dtype), len(indptr) - 1
    step = min(max(1, _BLOCK // max(m, 1)), integer_sums.CHUNK)
    for begin in range(0, n, step):
        part = indptr[begin : min(begin + step, n) + 1]
        block = np.zeros((len(part) - 1, m))
        row = np.repeat(np.arange(len(part) - 1), np.diff(part))
        block[row, indices[part[0] : part[-1]]] = a[part[0] : part[-1]]
        W += (block.T @ block).astype(dtype)
    return W
