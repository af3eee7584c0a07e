"""Sums over users of gradients by their residuals.

A user has a vector u_i and an offset o_i; from public item factors V and biases b it has computed
its residuals, weighted and cut to a length (`discreet.privacy.users.steps.ComputeResiduals`):

    e_ij = u_i · v_j + b_j + o_i − y_ij,      x_i = (w_ij e_ij)_j  with ‖x_i‖ ≤ G.

What leaves are sums over users, with the bounds ‖u_i‖ ≤ Γ, Σ_j w_ij² ≤ 1, m items, rank r:

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    gradient       Σ x_ij u_i  (per item)    G Γ        2 G Γ         √m G Γ₁      twice         G Γ
    bias gradient  Σ x_ij      (per item)    G            2 G           √m G         twice         G
    weight counts  Σ w_ij      (per item)    1            √2            √m           twice         1
    size           Σ (|Ω_i|/m, 1, ȳ_i/h)     √3           √5            3            3             1
    clipped gradient   Σ s_j e_ij u_i        C            2 C           √(m r) C     twice         C

For the size: the first entry of a user is between 0 and 1, the second is 1, the third between −1
and 1 (ȳ_i is the user's own mean, cut to h), so exchanging a user moves them by at most 1, 0 and 2.

The clipped gradient is that of users in a Poisson batch (`discreet.privacy.users.poisson_batches`),
for item factors V, with v_j's row of the sum scaled by a public s_j, 1 where not given:

    g_j = Σ_i s_j e_ij u_i · min(1, C / ‖G_i‖), e_ij = u_i · v_j − y_ij, G_i = (s_j e_ij u_i)_j.

G_i = (s ∘ e_i) u_iᵀ has the Frobenius norm ‖s ∘ e_i‖ ‖u_i‖, so one user moves the sum by at most C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.kernels.gradient import sum_columns
from discreet.kernels.threads import cost_cuts, run
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    per_item_total,
    register,
    sums_of_rows,
    total_of_users,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound

_UNCUT = 1e100  # residuals are cut together with the vectors, below


class OfResiduals(Statistic):
    """Base of what is made of the residuals that users computed last."""

    def check(self, public: Public) -> None:
        public.need_residuals()


@register("residual gradient")
@dataclass(frozen=True)
class WeightedResidualGradient(OfResiduals):
    """Σ_i x_ij u_i for each item j: ‖x_i u_iᵀ‖ = ‖x_i‖ ‖u_i‖ ≤ G Γ."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.rank)

    def reach(self, public: Public) -> SensitivityBounds:
        l2 = public.cut * public.bounds.vector_l2
        # ‖x‖₁ ≤ √m ‖x‖₂ over the m items
        l1 = public.n_items**0.5 * public.cut * public.bounds.vector_l1(public.rank)
        return SensitivityBounds(l2, l1, l2, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return lambda rows: row_sums(block, block["residual"], public.n_items, grid)[rows]


@register("bias gradient")
@dataclass(frozen=True)
class BiasGradient(OfResiduals):
    """Σ_i x_ij for each item j, ‖x_i‖ ≤ G."""

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(public.cut, public.n_items**0.5 * public.cut, public.cut, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return lambda rows: per_item_total(block.indices, block["residual"], public.n_items, grid)[
            rows
        ]


@register("weight counts")
@dataclass(frozen=True)
class WeightCounts(Statistic):
    """Σ_i w_ij for each item j, over all entries: Σ_j w_ij² ≤ 1, and no weight is below 0."""

    def check(self, public: Public) -> None:
        if not public.weighted:
            raise ConfigError("users have no weights yet. Apply the step WeighEntries first.")

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, public.n_items**0.5, 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return lambda rows: per_item_total(
            block.indices, block["entry_weight"], public.n_items, grid
        )[rows]


@register("size")
@dataclass(frozen=True)
class Size(Statistic):
    """Σ_i (share of the items that i has rated, 1, its mean rating cut to ±half, over half)."""

    half: float

    def check(self, public: Public) -> None:
        check_bound("half", self.half)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (3,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(3**0.5, 3.0, 1.0, (5 / 3) ** 0.5, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        counts = block.counts
        mean = sums_of_rows(block.indptr, block.values) / np.maximum(counts, 1)
        share = counts / max(public.n_items, 1)
        each = np.column_stack([share, np.ones(block.n), np.clip(mean / self.half, -1, 1)]) * SHAVE
        return total_of_users(each, grid)


@register("clipped gradient")
@dataclass(frozen=True)
class ClippedGradient(Statistic):
    """Σ_i s_j e_ij u_i for each item j, each user cut to the Frobenius norm `largest` (C)."""

    V: NDArray[Any]
    largest: float
    scale: NDArray[Any] | None = None

    def check(self, public: Public) -> None:
        check_bound("largest", self.largest)
        public.need_vectors()
        public.factors(self.V, public.rank)
        self._spread(public)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.rank)

    def reach(self, public: Public) -> SensitivityBounds:
        C = self.largest
        return SensitivityBounds(C, (public.n_items * public.rank) ** 0.5 * C, C, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        V = public.factors(self.V)
        c = _coefficients(
            block.indptr,
            block.indices,
            block.values,
            block["vectors"],
            V,
            self._spread(public),
            self.largest,
        )
        return lambda rows: row_sums(block, c, public.n_items, grid)[rows]

    def _spread(self, public: Public) -> NDArray[np.float64]:
        ones = np.ones(public.n_items)
        return public.array("scale", ones if self.scale is None else self.scale, (public.n_items,))


@np.errstate(all="ignore")
def _coefficients(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    y: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    s: NDArray[np.float64],
    C: float,
) -> NDArray[np.float64]:
    """Compute s_j e_ij of every entry, cut such that ‖c_i‖ ‖u_i‖ ≤ C; non-finite becomes 0."""
    c = residuals(indptr, indices, y, U, V, _UNCUT) * s[indices]
    n = len(indptr) - 1
    row = np.repeat(np.arange(n), np.diff(indptr))
    norm = np.sqrt(np.bincount(row, c**2, minlength=n)) * np.sqrt(
        (U.astype(np.float64) ** 2).sum(axis=1)
    )
    cut: NDArray[np.float64] = c * (SHAVE * np.minimum(1.0, C / np.maximum(norm, 1e-300)))[row]
    cut[~np.isfinite(cut)] = 0
    return cut


def row_sums(block: Block, c: NDArray[Any], m: int, grid: float | None) -> NDArray[Any]:
    """Sum c_ij u_i for each item j, in floating point, or each term in whole units of the grid."""
    U = block["vectors"]
    if grid is None:
        return sum_columns(block.indptr, block.indices, c, U, m)
    sums = np.zeros((m, U.shape[1]), np.int64)
    for part in integer_sums.chunks(len(U)):
        own = block.indptr[part.start : part.stop + 1]
        sums += sum_columns(own, block.indices, c, U[part], m, grid).astype(np.int64)
    return sums


def residuals(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    y: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    largest: float,
) -> NDArray[np.float64]:
    """Compute e_ij = u_i · v_j − y_ij of each entry, cut to ‖e_i‖ ≤ largest; non-finite becomes 0.

    A user's residuals are added up in the order of its items, so that no bit of them depends on
    other users.
    """
    e = np.empty(len(indices))
    run(
        lambda a, b: _residuals(indptr, indices, y, U, V, largest, e, a, b),
        cost_cuts(np.diff(indptr) + 1.0),
    )
    return e


@njit(nogil=True, cache=True, error_model="numpy")
def _residuals(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    largest: float,
    e: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for i in range(start, stop):
        square = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            value = -float(y[at])
            for k in range(U.shape[1]):
                value += float(U[i, k]) * float(V[indices[at], k])
            e[at] = value if np.isfinite(value) else 0.0
            square += e[at] * e[at]
        length = np.sqrt(square)
        if length > largest:
            for at in range(indptr[i], indptr[i + 1]):
                e[at] *= largest / length
