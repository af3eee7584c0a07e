"""Ratings behind glass: what users compute for themselves, and the bounded sums that a Session may release.

`seal` takes ratings and bounds and gives `Users`. Everything a user computes from its own ratings and from public
values (its mean, which of its items it contributes through, its vector) happens inside and stays there; it costs
nothing, because nobody else sees it. What leaves are statistics: sums over users of contributions cut to the bounds,
priced by them, released by `Session.release`.

Three rules keep the proof simple. Nothing about one user depends on another user, to the last bit, not even the random
choice of its items, which is drawn from the user's own id. Every number is finite from the start, and nothing warns:
a warning would be a message about somebody's ratings. And contributions are cut a hair below their bound (`SHAVE`), so
that no rounding of floating-point numbers can carry one over it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.kernels import on_cache_lines, packed_grams, second_moment, solve_rows, sum_rows
from discreet.kernels.exact import exact_sums
from discreet.kernels.gradient import sum_columns
from discreet.privacy import integer_sums
from discreet.privacy.bounds import SHAVE, Bounds, bound, check_rows, clip_rows, public_number
from discreet.privacy.choices import by_item, pick, user_keys
from discreet.privacy.integer_sums import by_segments
from discreet.privacy.statistics import Reach, Sum, entry_sum, packed_size, residuals, total
from discreet.privacy.vault import KEY, Box, guarded

LARGEST_RATING = 2.0**40  # beyond, float32 would overflow in a user's own least squares


class Rows(NamedTuple):
    """What `Users` holds. CSR by user of the full history, and by item of the contributions."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]  # centred, not cut: the user's own computations may use them
    mean: NDArray[np.float32]  # what was subtracted, one per user
    key: NDArray[np.uint64]  # of the user's own random choices
    user: NDArray[np.int32]  # contributions by item: who
    by_item: NDArray[np.int64]
    value: NDArray[np.float64]  # cut to ±Γ_M
    weight: NDArray[np.float64]

    @property
    def row(self) -> NDArray[np.int64]:
        """Whose each entry of the history is."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


@guarded("sealed ratings")
def seal(ratings: Any, bounds: Bounds, *, seed: int = 0) -> Users:
    """Users with their ratings behind glass.

    Parameters
    ----------
    ratings : Ratings, or anything with a method ``seal(bounds, seed=...)`` (another engine's data)
    bounds : Bounds
    seed : int
        Of the users' random choices among their items. Public.
    """
    if not isinstance(ratings, Ratings):
        return ratings.seal(bounds, seed=seed)
    keys = user_keys(ratings.user_ids, seed)
    check_rows(ratings)
    counts = np.diff(ratings.indptr)
    # a number that is none would spread through every sum that it enters, and so show that its user is there
    values = np.nan_to_num(ratings.values, nan=0.0, posinf=0.0, neginf=0.0)
    np.clip(values, -LARGEST_RATING, LARGEST_RATING, out=values)
    if bounds.rating is None:
        values = np.ones_like(values)
    mean = np.zeros(ratings.n_users, np.float32)
    if bounds.rating is not None and bounds.centre == "user":
        row = np.repeat(np.arange(ratings.n_users), counts)
        summed = np.bincount(row, values, minlength=ratings.n_users) + bounds.prior_mean * bounds.prior_count
        mean = (summed / np.maximum(counts + bounds.prior_count, 1e-9)).astype(np.float32)
    elif bounds.rating is not None:
        mean += np.float32(bounds.centre)
    none = np.zeros(0, np.float64)
    rows = Rows(
        ratings.indptr,
        ratings.indices,
        values - np.repeat(mean, counts),
        mean,
        keys,
        none.astype(np.int32),
        np.zeros(ratings.n_items + 1, np.int64),
        none,
        none,
    )
    return Users(rows, bounds, ratings.n_items)


class Users(Box[Rows]):
    """Sealed ratings. Public: the bounds, the number of items, the rank of the vectors. Everything else is refused."""

    __slots__ = ("_bounds", "_contributing", "_n_items", "_rank", "_vectors")

    def __init__(self, rows: Rows, bounds: Bounds, n_items: int) -> None:
        super().__init__(rows, f"ratings of {n_items:,} items")
        self._bounds, self._n_items, self._rank = bounds, n_items, 0
        self._contributing = False
        self._vectors: Box[NDArray[Any]] | None = None

    @property
    def bounds(self) -> Bounds:
        return self._bounds

    @property
    def n_items(self) -> int:
        return self._n_items

    @property
    def rank(self) -> int:
        """Length of the users' vectors, 0 before there are any."""
        return self._rank

    # ------------------------------------------------------------ what users do by themselves

    @guarded("the ratings of some items")
    def restrict(self, items: NDArray[np.integer[Any]]) -> Users:
        """The same users with only these items (public positions), renumbered in the order given."""
        items = np.asarray(items)
        if items.ndim != 1 or items.dtype.kind not in "iu" or len(np.unique(items)) != len(items):
            raise ConfigError("restrict needs the positions of distinct items")
        if len(items) and not (items.min() >= 0 and items.max() < self.n_items):
            raise ConfigError(f"restrict needs positions from 0 to {self.n_items - 1:,}")
        rows = self.open(KEY)
        position = np.full(self.n_items, -1, np.int32)
        position[items] = np.arange(len(items), dtype=np.int32)
        indices = position[rows.indices]
        keep = np.flatnonzero(indices >= 0)
        fewer = rows._replace(
            indptr=np.searchsorted(keep, rows.indptr),
            indices=indices[keep],
            values=rows.values[keep],
            user=rows.user[:0],
            by_item=np.zeros(len(items) + 1, np.int64),
            value=rows.value[:0],
            weight=rows.weight[:0],
        )
        return Users(fewer, self.bounds, len(items))

    @guarded("centred ratings")
    def recentre(self, centre: float) -> None:
        """Subtract this public number from every rating instead of what was subtracted before; then choose again."""
        if self.bounds.rating is None:
            raise ConfigError("implicit feedback has no ratings to centre: give Bounds(rating=...)")
        rows = self.open(KEY)
        counts = np.diff(rows.indptr)
        mean = np.full(len(counts), public_number("centre", centre), np.float32)
        moved = rows._replace(values=rows.values + np.repeat(rows.mean - mean, counts), mean=mean)
        self._content, self._contributing = (lambda: moved), False

    @guarded("the users' choice of items")
    def choose(self, priority: NDArray[np.floating[Any]] | None = None, draw: int = 0) -> None:
        """Each user picks at most k items to contribute through: at random, or those of lowest public `priority`.

        `draw` numbers the random choices: another number is another sample.
        """
        if self.bounds.items is None:
            raise ConfigError("these bounds have no number of items: use weigh, or give Bounds(items=...)")
        if not 0 <= draw < 2**31:
            raise ConfigError(f"draw is {draw!r}, but must be a whole number from 0 to 2³¹ − 1")
        k = self.bounds.through(self.n_items)
        first = self._public("priority", np.zeros(self.n_items) if priority is None else priority, (self.n_items,))
        rows = self.open(KEY)
        chosen = pick(rows.indptr, rows.indices, rows.key, first, k, draw)
        self._contribute(chosen, np.full(1, np.sqrt(self.bounds.squared_weight(self.n_items) / max(k, 1))))

    @guarded("the users' weights")
    def weigh(self, importance: NDArray[np.floating[Any]]) -> None:
        """Each user contributes through all its items, with w_ij² = B q_j / Σ_j q_j for a public `importance` q ≥ 0."""
        if self.bounds.weight is None or self.bounds.items is not None:
            raise ConfigError("weigh contributes through all items and needs Bounds(weight=...) without items")
        q = self._public("importance", importance, (self.n_items,))
        if (q < 0).any():
            raise ConfigError("importance must not be negative")
        rows = self.open(KEY)
        row = rows.row
        q = (q / max(q.max(initial=0.0), 1e-300))[rows.indices]
        all_own = np.bincount(row, q, minlength=len(rows.indptr) - 1)[row]
        share = np.divide(q, all_own, out=np.zeros_like(q), where=all_own > 0)
        self._contribute(None, np.sqrt(self.bounds.weight * share))

    def _contribute(self, chosen: NDArray[np.bool_] | None, weights: NDArray[np.float64]) -> None:
        """Turn the chosen entries of the history, or all, with a weight each, or one, by item."""
        rows = self.open(KEY)
        start, user, value, weight = by_item(rows.indptr, rows.indices, rows.values, weights, self.n_items, chosen)
        np.clip(value, -self.bounds.value, self.bounds.value, out=value)
        weight *= SHAVE
        rows = rows._replace(user=user, by_item=start, weight=weight, value=value)
        self._content, self._contributing = (lambda: rows), True

    @guarded("the users' vectors")
    def solve(
        self,
        V: NDArray[Any],
        ridge: float,
        *,
        exponent: float = 0.0,
        scale: float = 1.0,
        unobserved: float = 0.0,
        bias: NDArray[Any] | None = None,
        intercept: float = 0.0,
    ) -> None:
        """Each user's vector by least squares on its own history, cut to the norm.

            u = (Σ v vᵀ + λ₀ VᵀV + λ · scale · c^exponent I)⁻¹ Σ (y − b) v,   with c the user's own number of ratings.

        `scale` is 1 / Z of the papers' weights and must be public (erratum 4). With an `intercept`, that constant comes
        before each vector, whose other part is cut to what the norm leaves.
        """
        V = self._factors(V)
        rows = self.open(KEY)
        offset = None if bias is None else self._public("bias", bias, (self.n_items,))
        offset = offset if offset is not None and offset.any() else None
        counts = np.maximum(np.diff(rows.indptr), 1).astype(np.float64)
        shared = unobserved * second_moment(V) if unobserved else None
        target, penalty = rows.values.astype(V.dtype, copy=False), ridge * scale * counts**exponent
        U = solve_rows(rows.indptr, rows.indices, target, V, penalty, shared, offset=offset)
        U = clip_rows(U, self.bounds, intercept)
        self._rank = U.shape[1]
        self._vectors = Box(U, f"vectors of rank {self.rank}")

    # ------------------------------------------------------------ what may be released

    @guarded("the counts of items")
    def item_counts(self) -> Sum:
        """Σ_i w_ij for each item j."""
        rows, B = self._contributions(), self.bounds.squared_weight(self.n_items)
        S, n_items = self.bounds.weight_sum(self.n_items), self.n_items
        item = np.repeat(np.arange(n_items), np.diff(rows.by_item))

        return entry_sum(item, rows.weight, n_items, Reach(B**0.5, S, B**0.5, 2**0.5))

    @guarded("the Gram matrices of items")
    def item_grams(self, isometric: bool = True) -> Sum:
        """Σ_i w_ij u_i u_iᵀ for each item j, as packed upper triangles; isometric: with less noise off the diagonal."""
        rows, U, r, bounds = self._contributions(), self._opened(), self.rank, self.bounds

        @cache
        def terms(grid: float | None) -> tuple[NDArray[Any], NDArray[Any]]:  # once for all blocks of items
            root = np.sqrt(rows.weight)
            if grid is None:
                return root.astype(U.dtype), on_cache_lines(U)
            return root / grid**0.5, on_cache_lines(U, np.float64)

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            part = _part(rows.by_item, items)
            if grid is None:
                return packed_grams(part, rows.user, *terms(None))
            return by_segments(part, lambda cuts: packed_grams(cuts, rows.user, *terms(grid), whole=True))

        l2 = bounds.squared_weight(self.n_items) ** 0.5 * bounds.vector_l2**2
        reach = Reach(l2, bounds.weight_sum(self.n_items) * bounds.triangle_l1(r), l2, 2**0.5)
        return Sum((self.n_items, packed_size(r)), reach, compute, symmetric=r if isometric else None)

    @guarded("the sums of items")
    def item_sums(self) -> Sum:
        """Σ_i w_ij y_ij u_i for each item j."""
        rows, bounds, m = self._contributions(), self.bounds, self.n_items
        l2, l1 = bounds.squared_weight(m) ** 0.5 * bounds.value, bounds.weight_sum(m) * bounds.value
        U, r, c = self._opened(), self.rank, rows.weight * rows.value

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            part = _part(rows.by_item, items)
            if grid is None:
                return sum_rows(part, rows.user, c.astype(U.dtype), U)
            whole, vectors = c / grid, on_cache_lines(U, np.float64)
            return by_segments(part, lambda cuts: exact_sums(cuts, rows.user, whole, vectors))

        reach = Reach(l2 * bounds.vector_l2, l1 * bounds.vector_l1(r), l2 * bounds.vector_l2, 2.0)
        return Sum((m, r), reach, compute)

    @guarded("the gradient")
    def gradient(self, V: NDArray[Any], largest: float, bias: NDArray[Any] | None = None) -> Sum:
        """Σ_i e_ij u_i for each item j, e_ij = u_i · v_j + b_j − y_ij being cut to ‖e_i‖ ≤ `largest` (G)."""
        V, G, U = self._factors(V), bound("largest", largest), self._opened()
        if V.shape[1] != self.rank:
            raise ConfigError(f"item factors of rank {V.shape[1]} do not fit user vectors of rank {self.rank}")
        rows = self.open(KEY)
        y = rows.values if bias is None else rows.values - self._public("bias", bias, (self.n_items,))[rows.indices]
        e = SHAVE * residuals(rows.indptr, rows.indices, y, U, V, G)
        return self._entry_sums(e, G)

    @guarded("the Gram matrix of users' vectors")
    def global_gram(self) -> Sum:
        """Σ_i u_i u_iᵀ over all users, as one packed upper triangle."""
        U, r, bounds = self._opened(), self.rank, self.bounds
        everyone = np.arange(len(U), dtype=np.int32)
        step = min(max(4096, len(U) // 256), integer_sums.CHUNK)  # so that all cores share the work
        parts = np.append(np.arange(0, len(U), step), len(U))

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            if grid is None:
                return packed_grams(parts, everyone, np.ones(len(U), U.dtype), U).sum(axis=0, keepdims=True)[items]
            whole = packed_grams(parts, everyone, np.full(len(U), grid**-0.5), U.astype(np.float64), whole=True)
            return whole.astype(np.int64).sum(axis=0, keepdims=True)[items]

        l2 = bounds.vector_l2**2
        return Sum((1, packed_size(r)), Reach(l2, bounds.triangle_l1(r), l2, 2**0.5), compute, symmetric=r)

    @guarded("the covariance")
    def covariance(self, largest: float) -> Sum:
        """Σ_i y_i y_iᵀ, (n_items, n_items), y_i being what user i contributes, cut to ‖y_i‖ ≤ `largest` (L)."""
        from scipy import sparse

        L, m = bound("largest", largest), self.n_items
        rows = self._contributions()
        n = len(rows.indptr) - 1
        y = rows.weight * rows.value
        length = np.sqrt(np.bincount(rows.user, y**2, minlength=n))
        y = y * (SHAVE * np.minimum(1.0, L / np.maximum(length, 1e-300)))[rows.user]

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            Y = sparse.csr_array((y, rows.user, rows.by_item), shape=(m, n))
            if grid is None:
                return (Y[items] @ Y.T).toarray()
            Y.data = np.trunc(y / grid**0.5)
            parts = [Y[:, part] for part in integer_sums.chunks(n)]
            return sum((P[items] @ P.T).toarray().astype(np.int64) for P in parts)

        L2 = min(L**2, self.bounds.squared_weight(m) * self.bounds.value**2)
        return Sum((m, m), Reach(L2, self.bounds.through(m) * L2, L2, 2**0.5), compute)

    @guarded("the sum of ratings")
    def rating_sum(self) -> Sum:
        """Σ w y over everything contributed, shape (1,). Without ratings it is a count, and moves like one."""
        rows = self._contributions()
        S, factor = self.bounds.weight_sum(self.n_items) * self.bounds.value, 1.0 if self.bounds.rating is None else 2.0
        return total(rows.weight * rows.value, rows.user, Reach(S, S, S, factor, factor))

    @guarded("the number of ratings")
    def rating_count(self) -> Sum:
        """Σ w over everything contributed, shape (1,). Replacing a user moves it no further than removing one."""
        rows = self._contributions()
        S = self.bounds.weight_sum(self.n_items)
        return total(rows.weight, rows.user, Reach(S, S, S, 1.0, 1.0))

    # ------------------------------------------------------------ parts

    def _contributions(self) -> Rows:
        if not self._contributing:
            raise ConfigError("nothing is contributed yet: call choose or weigh first")
        return self.open(KEY)

    def _opened(self) -> NDArray[Any]:
        if self._vectors is None:
            raise ConfigError("there are no user vectors yet: call solve first")
        return self._vectors.open(KEY)

    def _factors(self, V: NDArray[Any]) -> NDArray[Any]:
        V = np.ascontiguousarray(V)
        self._public("V", V, (self.n_items, V.shape[-1] if V.ndim else 0))
        return V if V.dtype in (np.float32, np.float64) else V.astype(np.float64)

    def _public(self, name: str, given: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """A public array, checked before it meets the ratings: a later error would say where they do not fit."""
        array = np.asarray(given, np.float64)
        if array.shape != shape or not np.isfinite(array).all():
            raise ConfigError(f"{name} has shape {array.shape}, but must have finite numbers of shape {shape}")
        return array

    def _entry_sums(self, c: NDArray[Any], largest: float) -> Sum:
        """Σ_i c_ij u_i for each item j, with c for every entry of the histories, and ‖c_i‖₂ ≤ largest."""
        rows, U, m, bounds = self.open(KEY), self._opened(), self.n_items, self.bounds

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            return row_sums(rows.indptr, rows.indices, c, U, m, grid)[items]

        l2, l1 = largest * bounds.vector_l2, m**0.5 * largest * bounds.vector_l1(self.rank)  # of every item at most
        return Sum((m, self.rank), Reach(l2, l1, l2, 2.0), compute)


def _part(by_item: NDArray[np.int64], items: slice) -> NDArray[np.int64]:
    return by_item[items.start : items.stop + 1]


def row_sums(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], c: NDArray[Any], U: NDArray[Any], m: int, grid: float | None
) -> NDArray[Any]:
    """Σ_i c_ij u_i for each item j, in floating point, or each term rounded to whole units of the grid."""
    if grid is None:
        return sum_columns(indptr, indices, c, U, m)
    sums = np.zeros((m, U.shape[1]), np.int64)
    for part in integer_sums.chunks(len(U)):
        own = indptr[part.start : part.stop + 1]
        sums += sum_columns(own, indices, c, U[part], m, grid).astype(np.int64)
    return sums
