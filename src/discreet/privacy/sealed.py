"""Ratings behind glass: what users compute for themselves, and the bounded sums that a Session may release.

`seal` takes ratings and bounds and gives `Users`. Everything a user computes from its own ratings and from public
values (its mean, which of its items it contributes through, its vector) happens inside and stays there; it costs
nothing, because nobody else sees it. What leaves are statistics: sums over users of contributions cut to the bounds,
priced by them, released by `Session.release`.

Two rules keep the proof simple. Nothing about one user depends on another user, not even the random choice of its
items, which is drawn from the user's own id. And contributions are cut a hair below their bound (`SHAVE`), so that no
rounding of floating-point numbers can carry one over it.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, PrivacyError
from discreet.kernels import gram_rows, solve_rows, sum_rows
from discreet.kernels.exact import exact_grams, exact_sums
from discreet.privacy.bounds import Bounds
from discreet.privacy.statistics import Reach, Sum, pack, packed_size
from discreet.privacy.vault import KEY, Box

SHAVE = 1 - 2.0**-20  # float32 rounds by at most 2⁻²⁴, and a norm adds up a few such errors
MOST_USERS = 2**23  # whole numbers of at most 2³⁰ units each add up exactly in float64 for this many users


class _Rows(NamedTuple):
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
    _check_one_row_per_pair(ratings)
    if ratings.n_users > MOST_USERS:
        raise PrivacyError("one machine adds up exactly for at most 2²³ users: use a distributed engine")
    counts = np.diff(ratings.indptr)
    # a number that is none would spread through every sum that it enters, and so show that its user is there
    values = np.nan_to_num(ratings.values, nan=0.0, posinf=0.0, neginf=0.0)
    if bounds.rating is None:
        values = np.ones_like(values)
    mean = np.zeros(ratings.n_users, np.float32)
    if bounds.rating is not None and bounds.centre == "user":
        row = np.repeat(np.arange(ratings.n_users), counts)
        total = np.bincount(row, values, minlength=ratings.n_users) + bounds.prior_mean * bounds.prior_count
        mean = (total / np.maximum(counts + bounds.prior_count, 1e-9)).astype(np.float32)
    elif bounds.rating is not None:
        mean += np.float32(bounds.centre)
    none = np.zeros(0, np.float64)
    rows = _Rows(
        ratings.indptr, ratings.indices, values - np.repeat(mean, counts), mean, _user_keys(ratings.user_ids, seed),
        none.astype(np.int32), np.zeros(ratings.n_items + 1, np.int64), none, none,
    )  # fmt: skip
    return Users(rows, bounds, ratings.n_items)


class Users(Box[_Rows]):
    """Sealed ratings. Public: the bounds, the number of items, the rank of the vectors. Everything else is refused."""

    __slots__ = ("_vectors", "bounds", "n_items", "rank")

    def __init__(self, rows: _Rows, bounds: Bounds, n_items: int) -> None:
        super().__init__(rows, f"ratings of {n_items:,} items")
        self.bounds, self.n_items, self.rank = bounds, n_items, 0
        self._vectors: Box[NDArray[Any]] | None = None

    # ------------------------------------------------------------ what users do by themselves

    def restrict(self, items: NDArray[np.integer[Any]]) -> Users:
        """The same users with only these items (public positions), renumbered in the order given."""
        rows = self.open(KEY)
        position = np.full(self.n_items, -1, np.int32)
        position[items] = np.arange(len(items), dtype=np.int32)
        keep = position[rows.indices] >= 0
        before = np.concatenate([[0], np.cumsum(keep)])
        fewer = rows._replace(
            indptr=before[rows.indptr], indices=position[rows.indices[keep]], values=rows.values[keep],
            user=rows.user[:0], by_item=np.zeros(len(items) + 1, np.int64), value=rows.value[:0],
            weight=rows.weight[:0],
        )  # fmt: skip
        return Users(fewer, self.bounds, len(items))

    def recentre(self, centre: float) -> None:
        """Subtract this public number from every rating instead of what was subtracted before."""
        rows = self.open(KEY)
        counts = np.diff(rows.indptr)
        mean = np.full(len(counts), centre, np.float32)
        moved = rows._replace(values=rows.values + np.repeat(rows.mean - mean, counts), mean=mean)
        self._content = lambda: moved

    def choose(self, priority: NDArray[np.floating[Any]] | None = None, draw: int = 0) -> None:
        """Each user picks at most k items to contribute through: at random, or those of lowest public `priority`.

        `draw` numbers the random choices: another number is another sample.
        """
        rows = self.open(KEY)
        k = self.bounds.items
        if k is None:
            raise ConfigError("these bounds have no number of items: use weigh, or give Bounds(items=...)")
        row = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        order = _mix(rows.key[row] + (rows.indices.astype(np.uint64) + np.uint64(1 + (draw << 32))) * _GOLDEN)
        ranked = np.lexsort((order, row) if priority is None else (order, priority[rows.indices], row))
        chosen = ranked[np.arange(len(row)) - rows.indptr[row] < k]
        weight = np.full(len(chosen), np.sqrt(self.bounds.squared_weight / k))
        self._contribute(row[chosen], rows.indices[chosen], rows.values[chosen], weight)

    def weigh(self, importance: NDArray[np.floating[Any]]) -> None:
        """Each user contributes through all its items, with w_ij² = B q_j / Σ_j q_j for a public `importance` q ≥ 0."""
        rows = self.open(KEY)
        if self.bounds.weight is None:
            raise ConfigError("these bounds have no weight budget: use choose, or give Bounds(weight=...)")
        row = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        q = np.asarray(importance, np.float64)[rows.indices]
        total = np.bincount(row, q, minlength=len(rows.indptr) - 1)[row]
        share = np.divide(q, total, out=np.zeros_like(q), where=total > 0)
        self._contribute(row, rows.indices, rows.values, np.sqrt(self.bounds.weight * share))

    def _contribute(
        self, user: NDArray[Any], item: NDArray[Any], value: NDArray[Any], weight: NDArray[np.float64]
    ) -> None:
        order = np.argsort(item, kind="stable")
        by_item = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=self.n_items))]).astype(np.int64)
        bound = self.bounds.value
        rows = self.open(KEY)._replace(
            user=user[order].astype(np.int32), by_item=by_item, weight=weight[order] * SHAVE,
            value=np.clip(value[order].astype(np.float64), -bound, bound),
        )  # fmt: skip
        self._content = lambda: rows

    def solve(
        self, V: NDArray[Any], ridge: float, *, exponent: float = 0.0, scale: float = 1.0,
        unobserved: float = 0.0, bias: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        """Each user's vector by least squares on its own history, cut to the norm.

            u = (Σ v vᵀ + λ₀ VᵀV + λ · scale · c^exponent I)⁻¹ Σ (y − b) v,   with c the user's own number of ratings.

        `scale` is 1 / Z of the papers' weights and must be public (erratum 4).
        """
        rows = self.open(KEY)
        V = np.ascontiguousarray(V)
        target = rows.values.astype(V.dtype)
        if bias is not None:
            target -= bias[rows.indices].astype(V.dtype)
        counts = np.maximum(np.diff(rows.indptr), 1).astype(np.float64)
        shared = unobserved * (V.T @ V) if unobserved else None
        U = solve_rows(rows.indptr, rows.indices, target, V, ridge * scale * counts**exponent, shared)
        self._keep_vectors(U)

    def _keep_vectors(self, U: NDArray[Any]) -> None:
        self.rank = U.shape[1]
        self._vectors = Box(clip_rows(U, self.bounds), f"vectors of rank {self.rank}")

    # ------------------------------------------------------------ what may be released

    def item_counts(self) -> Sum:
        """Σ_i w_ij for each item j."""
        rows, B = self.open(KEY), self.bounds.squared_weight
        S = self.bounds.weight_sum(self.n_items)
        item = np.repeat(np.arange(self.n_items), np.diff(rows.by_item))

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            weight = rows.weight if grid is None else np.trunc(rows.weight / grid)
            return np.bincount(item, weight, minlength=self.n_items)[items]

        return Sum((self.n_items,), Reach(B**0.5, S, B**0.5, 2**0.5), compute)

    def item_grams(self) -> Sum:
        """Σ_i w_ij u_i u_iᵀ for each item j, as packed upper triangles."""
        rows, U, B, r = self.open(KEY), self._opened(), self.bounds.squared_weight, self.rank
        root = np.sqrt(rows.weight)

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            part = _part(rows.by_item, items)
            if grid is None:
                return pack(gram_rows(part, rows.user, root.astype(U.dtype), U, rows.weight)[0])
            return pack(exact_grams(part, rows.user, root / grid**0.5, U.astype(np.float64)))

        norm, l1 = self.bounds.norm**2, self.bounds.vector_l1(r) ** 2
        reach = Reach(B**0.5 * norm, self.bounds.weight_sum(self.n_items) * l1, B**0.5 * norm, 2**0.5)
        return Sum((self.n_items, packed_size(r)), reach, compute, symmetric=r)

    def item_sums(self) -> Sum:
        """Σ_i w_ij y_ij u_i for each item j."""
        rows, B = self.open(KEY), self.bounds.squared_weight
        return self._weighted_sums(
            rows.weight * rows.value, B**0.5 * self.bounds.value,
            self.bounds.weight_sum(self.n_items) * self.bounds.value,
        )  # fmt: skip

    def gradient(self, V: NDArray[Any], largest: float, bias: NDArray[Any] | None = None) -> Sum:
        """Σ_i e_ij u_i for each item j, e_ij = u_i · v_j − y_ij being cut to ‖e_i‖ ≤ `largest` (G)."""
        rows, U = self.open(KEY), self._opened()
        row = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        residual = np.einsum("ij,ij->i", U[row], V[rows.indices]) - rows.values
        if bias is not None:
            residual = residual + bias[rows.indices]
        length = np.sqrt(np.bincount(row, residual.astype(np.float64) ** 2, minlength=len(rows.indptr) - 1))
        residual = residual * (SHAVE * np.minimum(1.0, largest / np.maximum(length, 1e-300)))[row]
        order = np.argsort(rows.indices, kind="stable")
        by_item = np.concatenate([[0], np.cumsum(np.bincount(rows.indices, minlength=self.n_items))]).astype(np.int64)
        l1 = self.n_items**0.5 * largest  # a history may hold every item
        return self._weighted_sums(
            residual[order].astype(np.float64), largest, l1, row[order].astype(np.int32), by_item
        )

    def global_gram(self) -> Sum:
        """Σ_i u_i u_iᵀ over all users, as one packed upper triangle."""
        U, r = self._opened(), self.rank
        everyone = np.arange(len(U), dtype=np.int32)
        parts = np.append(np.arange(0, len(U), max(4096, len(U) // 256)), len(U))  # so that all cores share the work

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            if grid is None:
                G = gram_rows(parts, everyone, np.ones(len(U), U.dtype), U)[0]
            else:
                G = exact_grams(parts, everyone, np.full(len(U), grid**-0.5), U.astype(np.float64))
            return pack(G.sum(axis=0, keepdims=True))[items]

        norm = self.bounds.norm**2
        return Sum((1, packed_size(r)), Reach(norm, self.bounds.vector_l1(r) ** 2, norm, 2**0.5), compute, symmetric=r)

    def covariance(self, largest: float) -> Sum:
        """Σ_i y_i y_iᵀ, (n_items, n_items), y_i being what user i contributes, cut to ‖y_i‖ ≤ `largest` (L)."""
        from scipy import sparse

        rows = self.open(KEY)
        n = len(rows.indptr) - 1
        y = rows.weight * rows.value
        length = np.sqrt(np.bincount(rows.user, y**2, minlength=n))
        y = y * (SHAVE * np.minimum(1.0, largest / np.maximum(length, 1e-300)))[rows.user]

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            whole = y if grid is None else np.trunc(y / grid**0.5)
            Y = sparse.csr_array((whole, rows.user, rows.by_item), shape=(self.n_items, n))
            return np.asarray((Y[items] @ Y.T).todense())

        L2, k = largest**2, self.n_items if self.bounds.items is None else min(self.bounds.items, self.n_items)
        return Sum((self.n_items, self.n_items), Reach(L2, k * L2, L2, 2**0.5), compute)

    def rating_sum(self) -> Sum:
        """Σ w y over everything contributed, shape (1,)."""
        rows = self.open(KEY)
        S = self.bounds.weight_sum(self.n_items) * self.bounds.value
        return _total(rows.weight * rows.value, rows.user, Reach(S, S, S, 2.0))

    def rating_count(self) -> Sum:
        """Σ w over everything contributed, shape (1,). Replacing a user moves it no further than removing one."""
        rows = self.open(KEY)
        S = self.bounds.weight_sum(self.n_items)
        return _total(rows.weight, rows.user, Reach(S, S, S, 1.0, 1.0))

    # ------------------------------------------------------------ parts

    def _opened(self) -> NDArray[Any]:
        if self._vectors is None:
            raise ConfigError("there are no user vectors yet: call solve first")
        return self._vectors.open(KEY)

    def _weighted_sums(
        self, coefficient: NDArray[np.float64], l2: float, l1: float, user: NDArray[np.int32] | None = None,
        by_item: NDArray[np.int64] | None = None,
    ) -> Sum:  # fmt: skip
        """Σ_i c_ij u_i with ‖c_i‖₂ ≤ l2 and ‖c_i‖₁ ≤ l1."""
        rows, U, r = self.open(KEY), self._opened(), self.rank
        who = rows.user if user is None else user
        pointer = rows.by_item if by_item is None else by_item

        def compute(grid: float | None, items: slice) -> NDArray[Any]:
            part = _part(pointer, items)
            if grid is None:
                return sum_rows(part, who, coefficient.astype(U.dtype), U)
            return exact_sums(part, who, coefficient / grid, U.astype(np.float64))

        norm = self.bounds.norm
        reach = Reach(l2 * norm, l1 * self.bounds.vector_l1(r), l2 * norm, 2.0)
        return Sum((self.n_items, r), reach, compute)


def clip_rows(U: NDArray[Any], bounds: Bounds) -> NDArray[Any]:
    """Vectors cut to the bounds: u · min(1, Γ / ‖u‖) (erratum 2), and likewise in ℓ₁; what is not finite becomes 0."""
    U = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0)
    exact = U.astype(np.float64)
    factor = np.minimum(1.0, bounds.norm / np.maximum(np.sqrt((exact**2).sum(axis=1)), 1e-300))
    if bounds.norm_l1 is not None:
        factor = np.minimum(factor, bounds.norm_l1 / np.maximum(np.abs(exact).sum(axis=1), 1e-300))
    return (exact * (SHAVE * factor)[:, None]).astype(U.dtype)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: neighbouring numbers become unrelated ones."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _user_keys(user_ids: NDArray[Any], seed: int) -> NDArray[np.uint64]:
    """A number per user from its id and the seed alone, so that no user's choices depend on who else is there."""
    if user_ids.dtype == np.int64:
        ids = user_ids.astype(np.uint64)
    else:
        digests = (hashlib.blake2b(repr(u).encode(), digest_size=8).digest() for u in user_ids.tolist())
        ids = np.fromiter((int.from_bytes(d, "little") for d in digests), np.uint64, len(user_ids))
    return _mix(ids * _GOLDEN + _mix(np.full(1, seed % 2**64, np.uint64)))


def _check_one_row_per_pair(ratings: Ratings) -> None:
    """A user with two rows, or two entries for an item, would contribute twice what is priced."""
    step = np.diff(ratings.indices.astype(np.int64))
    starts = ratings.indptr[1:-1]
    step[starts[(starts > 0) & (starts < ratings.n_ratings)] - 1] = 1  # from one user's last item to the next one's
    distinct = len(set(ratings.user_ids.tolist())) == ratings.n_users
    if (step <= 0).any() or not distinct:
        raise PrivacyError("the ratings repeat a user or a (user, item) pair: merge them first, as Ratings.read does")


def _part(by_item: NDArray[np.int64], items: slice) -> NDArray[np.int64]:
    return by_item[items.start : items.stop + 1]


def _total(contribution: NDArray[np.float64], user: NDArray[np.int32], reach: Reach) -> Sum:
    """One number: the sum over users of what each adds up to, rounded per user where there is a grid."""

    def compute(grid: float | None, items: slice) -> NDArray[Any]:
        each = np.bincount(user, contribution) if len(user) else np.zeros(1)
        return (each if grid is None else np.trunc(each / grid)).sum(keepdims=True)[items]

    return Sum((1,), reach, compute)
