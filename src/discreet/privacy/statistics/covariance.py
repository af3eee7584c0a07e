"""Covariances of rows of residuals, one row per user.

Private SVD and private Frank–Wolfe both use rows of residuals a_i over the items that the user has
rated (`discreet.privacy.users.steps.SubtractBaseline`), and release the sum of their outer
products. A user computes its row from public values and its own ratings; that is free. What leaves
is cut first: a row to the norm L.

    statistic                               remove, ℓ₂   replace, ℓ₂   remove, ℓ₁        one entry
    covariance    Σ a aᵀ, ‖a‖ ≤ L           L²           √2 L²         (m + 1)/2 · L²    L²
    pair counts   Σ x xᵀ, x = 1/√c on Ω_i   1            √2            (m + 1)/2         1

with m items and c_i the user's own number of ratings. They are released as packed upper triangles;
‖a aᵀ‖ = ‖a‖² in the packing that keeps norms, so that entries off the diagonal have 1/√2 of the
noise; in ℓ₁, Σ_{j≤l} |a_j a_l| = (‖a‖₁² + ‖a‖₂²)/2 ≤ (m + 1)/2 · ‖a‖₂². Outer products have inner
products (a·b)² ≥ 0: hence √2 for replacing a user.

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

from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    pack,
    register,
    triangle_size,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound

_BLOCK = 1 << 22  # entries of the dense block in which rows are multiplied
_UNBOUNDED = 1e100  # its square is finite in float64; rows are clipped to their norm afterwards


class OuterProducts(Statistic):
    """Base of Σ_i a_i a_iᵀ over rows of one norm, as one packed upper triangle."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1, triangle_size(public.n_items))

    def symmetric(self, public: Public) -> int | None:
        return public.n_items

    @abstractmethod
    def rows_of(self, block: Block) -> NDArray[np.float64]:
        """Return a_ij for each entry."""

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        a = self.rows_of(block)
        a, kind = (a, np.float64) if grid is None else (np.trunc(a / math.sqrt(grid)), np.int64)

        def add(rows: slice) -> NDArray[Any]:
            return pack(_gram(block.indptr, block.indices, a, public.n_items, kind)[None])[rows]

        return add


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
    """Σ_i x_i x_iᵀ, x_ij = 1/√c_i for the items of user i: how many users a covariance rests on."""

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, (public.n_items + 1) / 2, 1.0, 2**0.5)

    def rows_of(self, block: Block) -> NDArray[np.float64]:
        x = SHAVE / np.sqrt(np.maximum(block.counts, 1).astype(np.float64))
        return x[block.row]


def _gram(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    a: NDArray[np.float64],
    m: int,
    dtype: type[np.generic],
) -> NDArray[Any]:
    """Compute AᵀA of sparse rows, by dense blocks of at most `CHUNK` users added as `dtype`."""
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
