"""Sums over what users contribute, item by item or altogether;
`discreet.privacy.statistics.sums` has the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import on_cache_lines, pack_grams, sum_rows
from discreet.kernels.gradient import sum_columns
from discreet.kernels.integer_sums import exact_sums
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.statistics.bounds import SHAVE, check_bound
from discreet.privacy.statistics.integer_sums import by_segments
from discreet.privacy.statistics.sums import (
    SensitivityBounds,
    per_item_total,
    per_user_total,
    register,
    residuals,
    triangle_size,
)

Rows = Callable[[slice], NDArray[Any]]


class OfContributions(Statistic):
    """Base of what is made of contributions: entries by item, cut to the bounds
    (`discreet.privacy.users.sealed_users`).
    """

    def check(self, public: Public) -> None:
        public.need_contributions()


@register("item counts")
@dataclass(frozen=True)
class ItemCounts(OfContributions):
    """Σ_i w_ij for each item j. One user adds its weights, Σ_j w_ij² ≤ B, and never less than 0."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items,)

    def reach(self, public: Public) -> SensitivityBounds:
        root = public.bounds.max_squared_weight(public.n_items) ** 0.5
        return SensitivityBounds(root, public.bounds.weight_sum(public.n_items), root, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        item = np.repeat(np.arange(public.n_items), np.diff(block["by_item"]))
        return lambda rows: per_item_total(item, block["weight"], public.n_items, grid)[rows]


@register("item totals")
@dataclass(frozen=True)
class ItemTotals(OfContributions):
    """Σ_i w_ij y_ij for each item j, |y_ij| ≤ c: one user moves it by at most √B c, replacing
    one by twice that.
    """

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items,)

    def reach(self, public: Public) -> SensitivityBounds:
        bounds, m = public.bounds, public.n_items
        root = bounds.max_squared_weight(m) ** 0.5 * bounds.value
        return SensitivityBounds(root, bounds.weight_sum(m) * bounds.value, root, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        item = np.repeat(np.arange(public.n_items), np.diff(block["by_item"]))
        c = block["weight"] * block["value"]
        return lambda rows: per_item_total(item, c, public.n_items, grid)[rows]


@register("item Gram matrices")
@dataclass(frozen=True)
class ItemGrams(OfContributions):
    """Σ_i w_ij u_i u_iᵀ for each item j, as packed upper triangles; isometric: with less noise
    off the diagonal.
    """

    isometric: bool = True

    def check(self, public: Public) -> None:
        super().check(public)
        public.need_vectors()

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, triangle_size(public.rank))

    def reach(self, public: Public) -> SensitivityBounds:
        bounds, m = public.bounds, public.n_items
        l2 = bounds.max_squared_weight(m) ** 0.5 * bounds.vector_l2**2
        return SensitivityBounds(
            l2, bounds.weight_sum(m) * bounds.triangle_l1(public.rank), l2, 2**0.5
        )

    def symmetric(self, public: Public) -> int | None:
        return public.rank if self.isometric else None

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        U = block["vectors"]
        rank = U.shape[1]
        whole = np.sqrt(block["weight"])
        if grid is None:
            c = whole.astype(U.dtype)
            vectors = on_cache_lines(U)
            return lambda rows: pack_grams(
                _cuts(block, rows), block["user"], c, vectors, columns=rank
            )
        whole /= grid**0.5  # in place: new memory for every entry costs more than the division
        exact = on_cache_lines(U, np.float64)

        def sums(cuts: NDArray[np.int64]) -> NDArray[np.float64]:
            return pack_grams(cuts, block["user"], whole, exact, whole=True, columns=rank)

        return lambda rows: by_segments(_cuts(block, rows), sums)


@register("item sums")
@dataclass(frozen=True)
class ItemSums(OfContributions):
    """Σ_i w_ij y_ij u_i for each item j."""

    def check(self, public: Public) -> None:
        super().check(public)
        public.need_vectors()

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.rank)

    def reach(self, public: Public) -> SensitivityBounds:
        bounds, m = public.bounds, public.n_items
        l2 = bounds.max_squared_weight(m) ** 0.5 * bounds.value * bounds.vector_l2
        return SensitivityBounds(
            l2, bounds.weight_sum(m) * bounds.value * bounds.vector_l1(public.rank), l2, 2.0
        )

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        U = block["vectors"]
        c = block["weight"] * block["value"]
        if grid is None:
            return lambda rows: sum_rows(_cuts(block, rows), block["user"], c.astype(U.dtype), U)
        c /= grid
        exact = on_cache_lines(U, np.float64)

        def sums(cuts: NDArray[np.int64]) -> NDArray[np.float64]:
            return exact_sums(cuts, block["user"], c, exact, columns=U.shape[1])

        return lambda rows: by_segments(_cuts(block, rows), sums)


@register("global Gram matrix")
@dataclass(frozen=True)
class GlobalGram(Statistic):
    """Σ_i u_i u_iᵀ over all users, as one packed upper triangle."""

    def check(self, public: Public) -> None:
        public.need_vectors()

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1, triangle_size(public.rank))

    def reach(self, public: Public) -> SensitivityBounds:
        l2 = public.bounds.vector_l2**2
        return SensitivityBounds(l2, public.bounds.triangle_l1(public.rank), l2, 2**0.5)

    def symmetric(self, public: Public) -> int | None:
        return public.rank

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        U = block["vectors"]
        everyone = np.arange(len(U), dtype=np.int32)
        step = min(max(4096, len(U) // 256), integer_sums.CHUNK)  # so that all cores share the work
        cuts = np.append(np.arange(0, len(U), step), len(U))
        if grid is None:
            ones = np.ones(len(U), U.dtype)
            return lambda rows: pack_grams(cuts, everyone, ones, U).sum(axis=0, keepdims=True)[rows]
        c = np.full(len(U), grid**-0.5)

        def exact(rows: slice) -> NDArray[Any]:
            whole = pack_grams(cuts, everyone, c, U.astype(np.float64), whole=True)
            return np.asarray(whole.astype(np.int64).sum(axis=0, keepdims=True)[rows])

        return exact


@register("covariance of contributions")
@dataclass(frozen=True)
class ContributedCovariance(OfContributions):
    """Σ_i y_i y_iᵀ, (n_items, n_items), y_i being what user i contributes, cut to ‖y_i‖ ≤
    `largest` (L).
    """

    largest: float

    def check(self, public: Public) -> None:
        super().check(public)
        check_bound("largest", self.largest)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.n_items)

    def reach(self, public: Public) -> SensitivityBounds:
        bounds, m = public.bounds, public.n_items
        L2 = min(self.largest**2, bounds.max_squared_weight(m) * bounds.value**2)
        return SensitivityBounds(L2, bounds.through(m) * L2, L2, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        from scipy import sparse

        y = block["weight"] * block["value"]
        length = np.sqrt(np.bincount(block["user"], y**2, minlength=block.n))
        y = y * (SHAVE * np.minimum(1.0, self.largest / np.maximum(length, 1e-300)))[block["user"]]
        data = y if grid is None else np.trunc(y / grid**0.5)
        Y = sparse.csr_array(
            (data, block["user"], block["by_item"]), shape=(public.n_items, block.n)
        )
        if grid is None:
            return lambda rows: (Y[rows] @ Y.T).toarray()
        parts = [Y[:, part] for part in integer_sums.chunks(block.n)]
        return lambda rows: sum((P[rows] @ P.T).toarray().astype(np.int64) for P in parts)


@register("sum of ratings")
@dataclass(frozen=True)
class RatingSum(OfContributions):
    """Σ w y over everything contributed, shape (1,). Without ratings it is a count, and moves
    like one.
    """

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        S = public.bounds.weight_sum(public.n_items) * public.bounds.value
        factor = 1.0 if public.bounds.rating is None else 2.0
        return SensitivityBounds(S, S, S, factor, factor)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        each = np.bincount(block["user"], block["weight"] * block["value"], minlength=1).astype(
            np.float64
        )
        return lambda rows: per_user_total(each, grid)[rows]


@register("number of ratings")
@dataclass(frozen=True)
class RatingCount(OfContributions):
    """Σ w over everything contributed, shape (1,). Replacing a user moves it no further than
    removing one.
    """

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        S = public.bounds.weight_sum(public.n_items)
        return SensitivityBounds(S, S, S, 1.0, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        each = np.bincount(block["user"], block["weight"], minlength=1).astype(np.float64)
        return lambda rows: per_user_total(each, grid)[rows]


@register("gradient")
@dataclass(frozen=True)
class Gradient(Statistic):
    """Σ_i e_ij u_i for each item j, e_ij = u_i · v_j + b_j − y_ij being cut to ‖e_i‖ ≤
    `largest` (G).
    """

    V: NDArray[Any]
    largest: float
    bias: NDArray[Any] | None = None

    def check(self, public: Public) -> None:
        public.need_vectors()
        public.factors(self.V, public.rank)
        check_bound("largest", self.largest)
        public.per_item("bias", self.bias)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.rank)

    def reach(self, public: Public) -> SensitivityBounds:
        return entries_reach(public, self.largest)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        y = (
            block.values
            if self.bias is None
            else block.values - public.per_item("bias", self.bias)[block.indices]
        )
        V = public.factors(self.V)
        e = SHAVE * residuals(block.indptr, block.indices, y, block["vectors"], V, self.largest)
        return lambda rows: row_sums(block, e, public.n_items, grid)[rows]


def entries_reach(public: Public, largest: float) -> SensitivityBounds:
    """Of Σ_i c_ij u_i for each item j, with ‖c_i‖₂ ≤ largest: ‖c_i u_iᵀ‖ = ‖c_i‖ ‖u_i‖ ≤
    largest · Γ.
    """
    l2 = largest * public.bounds.vector_l2
    # of every item at most
    l1 = public.n_items**0.5 * largest * public.bounds.vector_l1(public.rank)
    return SensitivityBounds(l2, l1, l2, 2.0)


def row_sums(block: Block, c: NDArray[Any], m: int, grid: float | None) -> NDArray[Any]:
    """Σ_i c_ij u_i for each item j, in floating point, or each term rounded to whole units of
    the grid.
    """
    U = block["vectors"]
    if grid is None:
        return sum_columns(block.indptr, block.indices, c, U, m)
    sums = np.zeros((m, U.shape[1]), np.int64)
    for part in integer_sums.chunks(len(U)):
        own = block.indptr[part.start : part.stop + 1]
        sums += sum_columns(own, block.indices, c, U[part], m, grid).astype(np.int64)
    return sums


def _cuts(block: Block, rows: slice) -> NDArray[np.int64]:
    """Where the contributions to each of these items begin and end."""
    return block["by_item"][rows.start : rows.stop + 1]
