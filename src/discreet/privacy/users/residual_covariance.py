"""What users' ratings differ by from what is already known, kept sealed, and the covariances that
they add up to.

Private SVD and private Frank–Wolfe both look at rows of residuals a_i, one per user, over the items
that the user has rated, and release the sum of their outer products. A user computes its row from
public values and its own ratings; that is free. What leaves is cut first: a row to the norm L, a
rating to ±c, a user to k items.

    statistic                               remove, ℓ₂   replace, ℓ₂   remove, ℓ₁        one entry
    covariance    Σ a aᵀ, ‖a‖ ≤ L           L²           √2 L²         (m + 1)/2 · L²    L²
    pair_counts   Σ x xᵀ, x = 1/√c on Ω_i   1            √2            (m + 1)/2         1
    item_totals   Σ w y                     √B c         2 √B c        S c               √B c
    crowd         Σ 1                       1            1             1                 1

with m items, c_i the user's own number of ratings, and B, S, c as in
`discreet.privacy.statistics.sums`. Covariances and pair counts are released as packed upper
triangles; ‖a aᵀ‖ = ‖a‖² in the packing that keeps norms, so that entries off the diagonal have 1/√2
of the noise; in ℓ₁, Σ_{j≤l} |a_j a_l| = (‖a‖₁² + ‖a‖₂²)/2 ≤ (m + 1)/2 · ‖a‖₂². Outer products have
inner products (a·b)² ≥ 0: hence √2 for replacing a user.

Privacy: rounding on the grid is of the factors, toward zero, so that a rounded outer product is one
of a shorter row.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.privacy.sealed import Sealed
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import Block, Public, Statistic, UserStep
from discreet.privacy.statistics.bounds import SHAVE, check_bound, public_number
from discreet.privacy.statistics.contributions import ItemTotals, Rows
from discreet.privacy.statistics.sums import SensitivityBounds, Sum, pack, register, triangle_size
from discreet.privacy.users.sealed_users import Users

_BLOCK = 1 << 22  # entries of the dense block in which rows are multiplied
_UNBOUNDED = 1e100


class Residuals(Sealed[Users]):
    """The words of users with residuals, made by `residuals_of`; all state is the users' own."""

    __slots__ = ("_users",)

    def __init__(self, users: Users) -> None:
        super().__init__(users, f"residuals over {users.n_items:,} items")
        self._users = users

    @property
    def n_items(self) -> int:
        return self._users.n_items

    def step(
        self, direction: NDArray[Any], length: float, size: float, gamma: float, largest: float
    ) -> None:
        """Each user takes one step of Frank and Wolfe along a public direction; see
        `frank_wolfe_step`.
        """
        self._users.apply(
            FrankWolfeStep(np.asarray(direction, np.float64), length, size, gamma, largest)
        )

    def covariance(self, largest: float, per_rating: bool = False) -> Sum:
        """Σ_i a_i a_iᵀ, packed, (1, m(m+1)/2); rows a_i cut to the norm `largest` (L)."""
        return self._users.sum(ResidualCovariance(largest, per_rating))

    def pair_counts(self) -> Sum:
        """Σ_i x_i x_iᵀ, packed, with x_ij = 1/√c_i for the items that user i has rated: by whom
        a covariance is.
        """
        return self._users.sum(PairCounts())


def residuals_of(
    users: Users,
    offsets: NDArray[Any] | None = None,
    prior_count: float | None = None,
    clamp: float | None = None,
) -> Residuals:
    """What is left of each user's ratings.

    Parameters
    ----------
    users : Users
        Their ratings are centered as the bounds say.
    offsets : (n_items,), optional
        Public: subtracted from every rating of the item.
    prior_count : float, optional
        Then each user also subtracts its own mean of what is left, counting so many zeros with it.
    clamp : float, optional
        Cut what is left to ±clamp.
    """
    return Residuals(users.copy_after(SubtractBaseline(offsets, prior_count, clamp)))


def item_totals(users: Users) -> Sum:
    """Σ_i w_ij y_ij for each item j: of what users contribute, cut to the bounds."""
    return users.sum(ItemTotals())


def crowd(users: Users) -> Sum:
    """How many users there are, shape (1,)."""
    return users.sum(PopulationTotals())


# ------------------------------------------------------------------ steps


@dataclass(frozen=True)
class SubtractBaseline(UserStep):
    """Each user takes public offsets, and perhaps its own mean, from its ratings, and cuts what
    is left.
    """

    offsets: NDArray[Any] | None = None
    prior_count: float | None = None
    clamp: float | None = None

    what = "the users' residuals"

    def check(self, public: Public) -> Public:
        public.per_item("offsets", self.offsets)
        if self.prior_count is not None:
            public_number("prior_count", self.prior_count)
        if self.clamp is not None:
            check_bound("clamp", self.clamp)
        return public

    def run(self, block: Block, public: Public) -> Block:
        row = block.row
        y = (
            block.values.astype(np.float64)
            - public.per_item("offsets", self.offsets)[block.indices]
        )
        if self.prior_count is not None:
            total = np.bincount(row, y, minlength=block.n)
            y = y - (total / np.maximum(block.counts + self.prior_count, 1e-9))[row]
        if self.clamp is not None:
            y = np.clip(y, -self.clamp, self.clamp)
        y = np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0)
        return block.with_state(y=y, fitted=np.zeros_like(y))


@dataclass(frozen=True)
class FrankWolfeStep(UserStep):
    """One step along a public direction: see `frank_wolfe_step`."""

    direction: NDArray[np.float64]
    length: float
    size: float
    gamma: float
    largest: float

    what = "the users' step"

    def check(self, public: Public) -> Public:
        public.array("direction", self.direction, (public.n_items,))
        return public

    def run(self, block: Block, public: Public) -> Block:
        fitted, _, _ = frank_wolfe_step(
            block.row,
            block.n,
            self.direction[block.indices],
            block["y"],
            block["fitted"],
            self.length,
            self.size,
            self.gamma,
            self.largest,
        )
        return block.with_state(fitted=np.nan_to_num(fitted, posinf=0.0, neginf=0.0))


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


# ------------------------------------------------------------------ statistics


class OuterProducts(Statistic):
    """Base of Σ_i a_i a_iᵀ over rows of one norm, as one packed upper triangle."""

    def check(self, public: Public) -> None:
        """The rows are bounded when they are made."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1, triangle_size(public.n_items))

    def symmetric(self, public: Public) -> int | None:
        return public.n_items

    @abstractmethod
    def rows_of(self, block: Block) -> NDArray[np.float64]:
        """a_ij for each entry."""

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        a = self.rows_of(block)
        m = public.n_items
        if grid is None:
            return lambda rows: pack(_gram(block.indptr, block.indices, a, m, np.float64)[None])[
                rows
            ]
        whole = np.trunc(a / math.sqrt(grid))
        return lambda rows: pack(_gram(block.indptr, block.indices, whole, m, np.int64)[None])[rows]


@register("covariance of residuals")
@dataclass(frozen=True)
class ResidualCovariance(OuterProducts):
    """Σ_i a_i a_iᵀ with rows a_i of residuals, cut to the norm `largest` (L).

    With `per_rating`, a_i is first divided by √c_i: then a user counts as much as its average
    rating.
    """

    largest: float
    per_rating: bool = False

    def check(self, public: Public) -> None:
        check_bound("largest", self.largest)

    def reach(self, public: Public) -> SensitivityBounds:
        l2 = self.largest**2
        return SensitivityBounds(l2, (public.n_items + 1) / 2 * l2, l2, 2**0.5)

    def rows_of(self, block: Block) -> NDArray[np.float64]:
        row = block.row
        a = np.clip(block["fitted"] - block["y"], -_UNBOUNDED, _UNBOUNDED)
        if self.per_rating:
            a = a / np.sqrt(np.maximum(block.counts, 1))[row]
        norm = np.sqrt(np.bincount(row, a**2, minlength=block.n))
        cut: NDArray[np.float64] = (
            a * (SHAVE * np.minimum(1.0, self.largest / np.maximum(norm, 1e-300)))[row]
        )
        return cut


@register("pair counts")
@dataclass(frozen=True)
class PairCounts(OuterProducts):
    """Σ_i x_i x_iᵀ with x_ij = 1/√c_i for the items that user i has rated: by whom a covariance
    is.
    """

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, (public.n_items + 1) / 2, 1.0, 2**0.5)

    def rows_of(self, block: Block) -> NDArray[np.float64]:
        x = SHAVE / np.sqrt(np.maximum(block.counts, 1).astype(np.float64))
        return x[block.row]


@register("number of users")
@dataclass(frozen=True)
class PopulationTotals(Statistic):
    """How many users there are, shape (1,). Replacing one does not change it, and is priced as
    if it did.
    """

    def check(self, public: Public) -> None:
        """Anybody can be counted."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, 1.0, 1.0, 1.0, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        found = np.array([float(block.n) if grid is None else block.n * math.floor(1 / grid)])
        return lambda rows: found[rows]


def _gram(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    a: NDArray[np.float64],
    m: int,
    dtype: type[np.generic],
) -> NDArray[Any]:
    """AᵀA of sparse rows, by dense blocks of at most `CHUNK` users that are added as `dtype`."""
    W = np.zeros((m, m), dtype)
    n = len(indptr) - 1
    step = min(max(1, _BLOCK // max(m, 1)), integer_sums.CHUNK)
    for begin in range(0, n, step):
        part = indptr[begin : min(begin + step, n) + 1]
        block = np.zeros((len(part) - 1, m))
        row = np.repeat(np.arange(len(part) - 1), np.diff(part))
        block[row, indices[part[0] : part[-1]]] = a[part[0] : part[-1]]
        W += (block.T @ block).astype(dtype)
    return W
