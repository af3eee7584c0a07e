"""Sums over what users contribute, per item or in total; `sums` has the table of sensitivities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import on_cache_lines, pack_grams, sum_rows
from discreet.kernels.integer_sums import exact_sums
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    gram_of_users,
    per_item_total,
    register,
    total_of_users,
    triangle_size,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound
from discreet.privacy.statistics.integer_sums import by_segments


class OfContributions(Statistic):
    """Base of sums over contributions: entries by item, cut to the bounds."""

    def check(self, public: Public) -> None:
        public.need_contributions()


@register("item counts")
@dataclass(frozen=True)
class ItemCounts(OfContributions):
    """Σ_i w_ij for each item j. One user adds its weights, Σ_j w_ij² ≤ k, and never less than 0."""

    def reach(self, public: Public) -> SensitivityBounds:
        k = float(public.bounds.through(public.n_items))
        return SensitivityBounds(k**0.5, k, 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        item = np.repeat(np.arange(public.n_items), np.diff(block["by_item"]))
        return lambda rows: per_item_total(item, block["weight"], public.n_items, grid)[rows]


@register("item totals")
@dataclass(frozen=True)
class ItemTotals(OfContributions):
    """Σ_i w_ij y_ij for each item j, |y_ij| ≤ c: one user moves it by √k c, replacing by twice."""

    def reach(self, public: Public) -> SensitivityBounds:
        k = public.bounds.through(public.n_items)
        c = public.bounds.value
        return SensitivityBounds(k**0.5 * c, k * c, c, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        item = np.repeat(np.arange(public.n_items), np.diff(block["by_item"]))
        c = block["weight"] * block["value"]
        return lambda rows: per_item_total(item, c, public.n_items, grid)[rows]


@register("item Gram matrices")
@dataclass(frozen=True)
class ItemGrams(OfContributions):
    """Σ_i w_ij u_i u_iᵀ for each item j, packed; isometric: with less noise off the diagonal."""

    isometric: bool = True

    def check(self, public: Public) -> None:
        super().check(public)
        public.need_vectors()

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, triangle_size(public.rank))

    def reach(self, public: Public) -> SensitivityBounds:
        bounds = public.bounds
        k = bounds.through(public.n_items)
        square = bounds.vector_l2**2
        l1 = k * bounds.triangle_l1(public.rank)
        return SensitivityBounds(k**0.5 * square, l1, square, 2**0.5)

    def symmetric(self, public: Public) -> int | None:
        return public.rank

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
        bounds = public.bounds
        k = bounds.through(public.n_items)
        c = bounds.value
        l1 = k * c * bounds.vector_l1(public.rank)
        return SensitivityBounds(k**0.5 * c * bounds.vector_l2, l1, c * bounds.vector_l2, 2.0)

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
        return gram_of_users(block["vectors"], grid)


@register("covariance of contributions")
@dataclass(frozen=True)
class ContributedCovariance(OfContributions):
    """Σ_i y_i y_iᵀ, (n_items, n_items), y_i user i's contribution cut to ‖y_i‖ ≤ `largest` (L)."""

    largest: float

    def check(self, public: Public) -> None:
        super().check(public)
        check_bound("largest", self.largest)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.n_items)

    def reach(self, public: Public) -> SensitivityBounds:
        k = public.bounds.through(public.n_items)
        c = public.bounds.value
        l2 = min(self.largest**2, k * c**2)
        return SensitivityBounds(l2, k * l2, min(self.largest**2, c**2), 2**0.5)

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
    """Σ w y over all contributions, shape (1,); without ratings it is a count."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        most = public.bounds.through(public.n_items) * public.bounds.value
        factor = 1.0 if public.bounds.rating is None else 2.0
        return SensitivityBounds(most, most, most, factor, factor)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        each = np.bincount(block["user"], block["weight"] * block["value"], minlength=1)
        return total_of_users(each.astype(np.float64), grid)


@register("number of ratings")
@dataclass(frozen=True)
class RatingCount(OfContributions):
    """Σ w over all contributions, shape (1,); replacing a user moves it no further than removal."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        k = float(public.bounds.through(public.n_items))
        return SensitivityBounds(k, k, k, 1.0, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        each = np.bincount(block["user"], block["weight"], minlength=1)
        return total_of_users(each.astype(np.float64), grid)


def _cuts(block: Block, rows: slice) -> NDArray[np.int64]:
    """Return where the contributions to each of these items begin and end."""
    return block["by_item"][rows.start : rows.stop + 1]
