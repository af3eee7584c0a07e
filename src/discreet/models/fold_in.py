"""Read-outs: how a user's own vector follows from that user's history, as a value that can be saved
and exported.

Every model without a profile scores item j as ``offset + u · v_j + b_j``; what differs is how u and
the offset come from a history. There are eleven ways, and each is a frozen value here that holds
every number it needs:

    ConstantFoldIn      nothing of the user matters: Popularity, DPMF without a signal
    UserMeanFoldIn      an offset alone, no vector: Bias
    LeastSquaresFoldIn  ridge regression of centered ratings on item factors: DPALS, DPMF (ratings)
    ALSFoldIn           the same with intercepts, and perhaps reweighted (Huber): ALS, IRLS
    PosteriorMeanFoldIn a sum of known vectors, one for each item that is liked: DPMF for ranking
    CommunityFoldIn     mixture weights of communities: DPMF for ranking on sparse catalogs
    CommunityPairsFoldIn     the same with vectors of item pairs
    ProfileFoldIn, CommunityProfileFoldIn
                        the same, times the user's own profile in public features
    GradientFoldIn      steps of projected gradient descent: DPLMC
    FrankWolfeFoldIn    the user's half of the released Frank–Wolfe steps: DPFrankWolfe by steps
    ProjectionFoldIn    onto the factors, divided by a density: DPSVD by density

Nothing here needs a model, an algorithm or a table of ratings: a `Scorer` is made of item factors,
biases and one of these, and the page of ``discreet export --web`` computes the same in the browser
(``serve/page/readout.js``). No bit of what one user gets depends on who else is asked about.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from discreet import kernels as compiled
from discreet.errors import DataError

Array = NDArray[Any]
#: What is done so often is done within a moment, whatever a file says.
DUAL_RANK = 96  # as discreet.kernels.least_squares.DUAL_RANK, which would load the compiler
LARGEST = {"steps": 20_000, "inner_iterations": 2_000}
_ITEMS = {"by": "item"}
_MATRIX = {"by": "matrix"}
_PROFILE = {"by": "profile"}


class HistoryRows(NamedTuple):
    """Histories of users as CSR arrays over the model's items."""

    indptr: Array
    indices: Array
    values: Array

    @property
    def n(self) -> int:
        """How many users."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many ratings each user has."""
        return np.diff(self.indptr)

    @property
    def row(self) -> NDArray[np.int64]:
        """Whose each entry is."""
        return np.repeat(np.arange(self.n), self.counts)


@dataclass(frozen=True, eq=False)
class FoldIn(ABC):
    """Base of all read-outs. Fields that are arrays have one row for each item, or are small."""

    kind: ClassVar[str]

    @abstractmethod
    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        """Vectors (n, r) and offsets (n,) of users, each from its own row; V and b are factors and
        biases of items.

        `kernels` is `discreet.kernels`, or `discreet.kernels.reference` where a single request
        is answered sooner than compiled code is loaded.
        """

    def score_vectors(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        """Vectors that go with `score_factors`, and offsets."""
        return self.fold(rows, V, b, kernels)

    def score_factors(self, V: Array) -> Array:
        """Return the item factors to score with, possibly with one more coordinate."""
        return V

    def item_scores(
        self, rows: HistoryRows, vectors: Array, V: Array, kernels: Any = compiled
    ) -> Array | None:
        """Scores (n, m) of all items where they are not ``offset + u · v_j + b_j``, else None.

        `vectors` are those of `score_vectors`.
        """
        return None

    def exact_in_part(self, r: int) -> bool:
        """Return whether the rows of a history's own items suffice, to the same bits."""
        return True

    def of_items(self, at: Array) -> Self:
        """Return the rule with the rows of these items only."""
        cut = {entry.name: getattr(self, entry.name)[at] for entry in self._per_item()}
        return dataclasses.replace(self, **cut) if cut else self

    # ------------------------------------------------------------ as a document

    def numbers(self) -> dict[str, Any]:
        """Return everything but the arrays, for JSON."""
        found = {
            entry.name: getattr(self, entry.name)
            for entry in dataclasses.fields(self)
            if not entry.metadata
        }
        return {"kind": self.kind} | found

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, without those that are not used."""
        found = {
            entry.name: getattr(self, entry.name)
            for entry in dataclasses.fields(self)
            if entry.metadata
        }
        return {name: value for name, value in found.items() if value is not None}

    def _per_item(self) -> list[dataclasses.Field[Any]]:
        every = [entry for entry in dataclasses.fields(self) if entry.metadata.get("by") == "item"]
        return [entry for entry in every if getattr(self, entry.name) is not None]


@dataclass(frozen=True, eq=False)
class ConstantFoldIn(FoldIn):
    """The same list for all users."""

    kind: ClassVar[str] = "same"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        return np.zeros((rows.n, V.shape[1]), np.float32), np.zeros(rows.n, np.float32)


@dataclass(frozen=True, eq=False)
class UserMeanFoldIn(FoldIn):
    """mean + Σ_j (y_j − mean − b_j) / (count + damping), or the mean alone where users have no
    offset.
    """

    mean: float
    damping: float
    personal: bool
    kind: ClassVar[str] = "own offset"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        bias = np.zeros(rows.n)
        if self.personal:
            residual = rows.values - self.mean - b[rows.indices]
            total = np.bincount(rows.row, residual, minlength=rows.n)
            bias = total / np.maximum(rows.counts + self.damping, 1e-9)
        return np.zeros((rows.n, 0), np.float32), self.mean + bias


@dataclass(frozen=True, eq=False)
class LeastSquaresFoldIn(FoldIn):
    """u = argmin Σ_j (y_j − u · v_j)² + uᵀ S u + λ count^p ‖u‖² with y centered as said below.

    Parameters
    ----------
    ridge, exponent : float
        λ and p.
    centering : {"none", "liked", "constant", "own mean", "own deviation"}
        Subtracted from a rating before, in addition to the item's bias: nothing; nothing, and each
        item counts as 1; `center`; the user's own mean, with `prior_count` ratings of `center`; or
        `center` and then the mean of what is left over, with `prior_count` zeros.
    center, prior_count : float
    second_center : float
        Subtracted after the bias, where there is an intercept.
    intercept : float
        If above 0, the value of one more coordinate in every v_j; it does not take part in the
        score but as offset.
    counted : {"all", "known"}
        Which of the user's items the ridge counts.
    masked : bool
        Items that are not known have y = 0.
    tail : bool
        Items that are not known are scored by the user's own mean.
    known : (m,) bool, optional
    shared : (r, r), optional
        S.
    """

    ridge: float
    exponent: float = 0.0
    centering: Literal["none", "liked", "constant", "own mean", "own deviation"] = "constant"
    center: float = 0.0
    prior_count: float = 0.0
    second_center: float = 0.0
    intercept: float = 0.0
    counted: Literal["all", "known"] = "all"
    masked: bool = False
    tail: bool = False
    known: NDArray[np.bool_] | None = field(default=None, metadata=_ITEMS)
    shared: Array | None = field(default=None, metadata=_MATRIX)
    kind: ClassVar[str] = "least squares"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        offset, target = self._center(rows, V, b)
        if self.masked:
            assert self.known is not None
            target = np.where(self.known[rows.indices], target, target.dtype.type(0))
        ridge = self.ridge * np.maximum(self._counts(rows), 1.0) ** self.exponent
        if not self.intercept:
            return (
                kernels.solve_rows(rows.indptr, rows.indices, target, V, ridge, self.shared),
                offset,
            )
        mean = np.float32(self.second_center)
        target = target - mean
        if V.shape[1]:
            U, own = kernels.solve_rows_constant(
                rows.indptr, rows.indices, target, V, ridge, self.intercept
            )
        else:
            one = np.full((len(V), 1), self.intercept, V.dtype)
            own = kernels.solve_rows(rows.indptr, rows.indices, target, one, ridge)[:, 0]
            U = np.zeros((rows.n, 0), V.dtype)
        return U, offset + (mean + np.float32(self.intercept) * own)

    def score_vectors(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        vectors, offsets = self.fold(rows, V, b, kernels)
        if not self.tail:
            return vectors, offsets
        total = np.bincount(rows.row, rows.values, minlength=rows.n)
        mean = np.where(rows.counts > 0, total / np.maximum(rows.counts, 1), offsets)
        return np.column_stack([vectors, mean - offsets]), offsets

    def score_factors(self, V: Array) -> Array:
        if not self.tail:
            return V
        assert self.known is not None
        return np.hstack([V, ~self.known[:, None]])

    def exact_in_part(self, r: int) -> bool:
        return self.shared is None or not _dual(r)

    def _center(self, rows: HistoryRows, V: Array, b: Array) -> tuple[Array, Array]:
        """Offsets of users, and what is left of each entry for the factors to explain."""
        nothing = np.zeros(rows.n, np.float32)
        if self.centering == "liked":
            return nothing, np.ones(len(rows.indices), np.float32)
        if self.centering == "none":
            return nothing, rows.values.astype(V.dtype)
        if self.centering == "own deviation":
            left = rows.values - self.center - b[rows.indices]
            own = np.bincount(rows.row, left, minlength=rows.n) / (rows.counts + self.prior_count)
            return (self.center + own).astype(np.float32), (left - own[rows.row]).astype(np.float32)
        if self.centering == "own mean":
            offset = center_by_user_mean(rows, self.center, self.prior_count)
        else:
            offset = np.full(rows.n, self.center, np.float32)
        return offset, rows.values.astype(V.dtype) - offset[rows.row] - b[rows.indices]

    def _counts(self, rows: HistoryRows) -> Array:
        if self.counted == "all":
            return rows.counts
        assert self.known is not None
        return np.bincount(rows.row, self.known[rows.indices], minlength=rows.n)


@dataclass(frozen=True, eq=False)
class ALSFoldIn(FoldIn):
    """A half-step of `ALS`: with an intercept as one more coordinate, and with `transition` that of
    `IRLS`.

    Parameters
    ----------
    ridge, exponent : float
        λ w of a user with c ratings is ``ridge * c ** exponent``.
    explicit : bool
        Whether ratings are read; else every item of a history counts as 1.
    mean, intercept : float
        m, and s (0 for no intercept).
    transition, inner_iterations
        α (0 for squares) and K.
    shared : (r, r), optional
        λ₀ VᵀV.
    """

    ridge: float
    exponent: float
    explicit: bool
    mean: float = 0.0
    intercept: float = 0.0
    transition: float = 0.0
    inner_iterations: int = 0
    shared: Array | None = field(default=None, metadata=_MATRIX)
    kind: ClassVar[str] = "alternating"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        ridge = self.ridge * np.maximum(rows.counts, 1).astype(np.float64) ** self.exponent
        mean = np.asarray(self.mean, V.dtype)
        none = np.zeros(rows.n, V.dtype)
        if not self.explicit:
            return (
                kernels.solve_rows(rows.indptr, rows.indices, None, V, ridge, self.shared),
                none + mean,
            )
        offset = b + mean
        if self.transition:
            U, own = self._robust(rows, V, offset, ridge, kernels)
            return U, own + mean
        entries = (rows.indptr, rows.indices, rows.values)
        s = np.float64(self.intercept)
        if s == 0:
            return kernels.solve_rows(*entries, V, ridge, self.shared, offset=offset), none + mean
        U, x0 = kernels.solve_rows_constant(*entries, V, ridge, s, self.shared, offset=offset)
        return U, (s * x0).astype(V.dtype) + mean

    def exact_in_part(self, r: int) -> bool:
        return self.shared is None or not _dual(r)

    def _robust(
        self, rows: HistoryRows, V: Array, offset: Array, ridge: Array, kernels: Any
    ) -> tuple[Array, Array]:
        target = rows.values.astype(V.dtype) - offset[rows.indices]
        if not self.intercept:
            return self._reweight(rows, target, V, ridge, kernels), np.zeros(rows.n, V.dtype)
        s = np.asarray(self.intercept, V.dtype)
        X = self._reweight(rows, target, np.column_stack([V, np.full(len(V), s)]), ridge, kernels)
        return np.ascontiguousarray(X[:, :-1]), s * X[:, -1]

    def _reweight(
        self, rows: HistoryRows, target: Array, V: Array, ridge: Array, kernels: Any
    ) -> Array:
        X: Array = kernels.solve_rows(rows.indptr, rows.indices, target, V, ridge)
        for _ in range(self.inner_iterations):
            e = np.abs(target - kernels.pair_products(X, V, rows.row, rows.indices))
            weights = (self.transition / np.maximum(e, self.transition)).astype(V.dtype)
            X = kernels.solve_rows(rows.indptr, rows.indices, target, V, ridge, None, weights)
        return X


@dataclass(frozen=True, eq=False)
class PosteriorMeanFoldIn(FoldIn):
    """u = (1 − κ) prior + κ (base + Σ_j x_j g_j / ‖x‖) over the known items, with κ = 0 where all
    x_j are 0.

    x_j is 1 for an item that is liked and 0 for others, with κ = 1; or, by `levels`, how far up the
    range of ratings it is, in steps of 1/levels, with κ below 1 where even the best rating is below
    `like_threshold`.

    Parameters
    ----------
    like_threshold : float, optional
        Ratings from here on count as liked; None: every item does.
    levels, low, high
        Steps of the range, and the range; `levels` is 0 where items are liked or not.
    place : (m,) int32
        Which row of `gain` is an item's, −1 for items that are not known.
    gain : (k, r) float32
    base, prior : (r,) float32
    """

    like_threshold: float | None
    place: NDArray[np.int32] = field(metadata=_ITEMS)
    gain: Array = field(metadata=_MATRIX)
    base: Array = field(metadata=_MATRIX)
    prior: Array = field(metadata=_MATRIX)
    levels: int = 0
    low: float = 0.0
    high: float = 0.0
    kind: ClassVar[str] = "posterior mean"

    def of_items(self, at: Array) -> Self:
        place = self.place[at]
        own = np.where(place >= 0, np.arange(len(place), dtype=np.int32), np.int32(-1))
        return dataclasses.replace(self, place=own, gain=self.gain[np.maximum(place, 0)])

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        place = self.place[rows.indices]
        x = np.where(place >= 0, self.likes(rows.values), 0.0)
        length = np.sqrt(np.bincount(rows.row, x**2, minlength=rows.n))
        if not V.shape[1]:
            return np.zeros((rows.n, 0), np.float32), np.zeros(rows.n, np.float32)
        y = kernels.sum_rows(rows.indptr, np.maximum(place, 0), x.astype(np.float32), self.gain)
        U = self.base + y / np.where(length > 0, length, 1)[:, None].astype(np.float32)
        if self.levels:
            U = self.prior + self._conviction(rows, x)[:, None].astype(np.float32) * (
                U - self.prior
            )
        return np.where(length[:, None] > 0, U, self.prior).astype(np.float32), np.zeros(
            rows.n, np.float32
        )

    def likes(self, values: Array) -> Array:
        """Return x of every entry."""
        return likes_of(values, self.like_threshold, self.levels, self.low, self.high)

    def _conviction(self, rows: HistoryRows, x: Array) -> Array:
        """κ of every user."""
        best = np.zeros(rows.n)
        np.maximum.at(best, rows.row, x)
        liked = self.high if self.like_threshold is None else self.like_threshold
        return np.minimum(best * (self.high - self.low) / max(liked - self.low, 1e-9), 1.0)


@dataclass(frozen=True, eq=False)
class CommunityFoldIn(FoldIn):
    """Mixture weights θ of a history over communities, whose distributions are the factors.

    See `discreet.kernels.mixtures`; the prior are the shares of the communities, which a history
    without a liked item has.

    Parameters
    ----------
    like_threshold, levels, low, high : see `PosteriorMeanFoldIn`
    strength : float
        α of the prior.
    steps : int
        Of expectation maximization.
    shares : (r,) float64
    """

    like_threshold: float | None
    strength: float
    steps: int
    shares: Array = field(metadata=_MATRIX)
    levels: int = 0
    low: float = 0.0
    high: float = 0.0
    kind: ClassVar[str] = "communities"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        x = self.likes(rows.values)
        theta = kernels.mixture_weights(
            rows.indptr, rows.indices, x, V, self.shares, self.strength, self.steps
        )
        theta[np.bincount(rows.row, x, minlength=rows.n) == 0] = self.shares
        return theta.astype(np.float32), np.zeros(rows.n, np.float32)

    def likes(self, values: Array) -> Array:
        """Return x of every entry."""
        return likes_of(values, self.like_threshold, self.levels, self.low, self.high)


@dataclass(frozen=True, eq=False)
class CommunityPairsFoldIn(PosteriorMeanFoldIn):
    """The sum of two vectors: `CommunityFoldIn`, where the factors of pairs have no shares, and
    `PosteriorMeanFoldIn`, whose gain, base and prior are 0 for communities.

    Parameters
    ----------
    strength, steps, shares : see `CommunityFoldIn`
    """

    strength: float = 0.0
    steps: int = 0
    shares: Array = field(default_factory=lambda: np.zeros(0), metadata=_MATRIX)
    kind: ClassVar[str] = "communities and pairs"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        liked = (self.like_threshold, self.strength, self.steps, self.shares)
        communities = CommunityFoldIn(*liked, self.levels, self.low, self.high)
        theta, offset = communities.fold(rows, V, b, kernels)
        return theta + super().fold(rows, V, b, kernels)[0], offset


@dataclass(frozen=True, eq=False)
class ProfileScores(FoldIn):
    """Scores w₀ log pop_j + w₁ log max(u · v_j/pop_j, floor) + Σ_f w_f φ_fj.

    u is that of another base class, and φ_f are the log lifts of a user's own profile
    (`discreet.kernels.profiles`). Scores of all items are computed for one user at a time: no inner
    product gives them.

    Parameters
    ----------
    popularity_weight, factor_weight : float
        w₀ and w₁, which is 0 where there are no factors.
    floor, tau : float
    popularity : (m,) float32
        log pop_j.
    feature_weights : (features,) float64
    starts : (features, m + 1) int32
    values : int32
    inverse : float64
    """

    popularity_weight: float = 0.0
    factor_weight: float = 0.0
    floor: float = 0.0
    tau: float = 0.0
    popularity: Array = field(default_factory=lambda: np.zeros(0), metadata=_PROFILE)
    feature_weights: Array = field(default_factory=lambda: np.zeros(0), metadata=_PROFILE)
    starts: Array = field(default_factory=lambda: np.zeros((0, 1), np.int32), metadata=_PROFILE)
    values: Array = field(default_factory=lambda: np.zeros(0, np.int32), metadata=_PROFILE)
    inverse: Array = field(default_factory=lambda: np.zeros(0), metadata=_PROFILE)

    @abstractmethod
    def likes(self, values: Array) -> Array:
        """Return x of every entry."""

    def item_scores(
        self, rows: HistoryRows, vectors: Array, V: Array, kernels: Any = compiled
    ) -> Array:
        scores = np.empty((rows.n, len(self.popularity)), np.float32)
        popularity = self.popularity.astype(np.float64)
        weights = (self.popularity_weight, self.factor_weight, self.feature_weights)
        for i in range(rows.n):
            entries = slice(rows.indptr[i], rows.indptr[i + 1])
            scores[i] = kernels.profile_scores(
                rows.indices[entries],
                self.likes(rows.values[entries]),
                vectors[i],
                V,
                popularity,
                weights,
                self.floor,
                (self.starts, self.values, self.inverse),
                self.tau,
                self._public_parts,
            )
        return scores

    @cached_property
    def _public_parts(self) -> Any:
        return compiled.prepare_profile(self.popularity, self.starts, self.values)

    def check_profile(self, items: int) -> None:
        """Raise a `DataError` for arrays that compiled code must not see."""
        starts, values = self.starts, self.values
        finite = (self.popularity, self.feature_weights, self.inverse)
        good = (
            all(one.ndim == 1 and np.isfinite(one).all() for one in finite)
            and self.popularity.shape == (items,)
            and starts.dtype == np.int32
            and starts.shape == (len(self.feature_weights), items + 1)
            and values.dtype == np.int32
            and values.ndim == 1
            and bool((np.diff(starts, axis=1) >= 0).all())
            and starts.min(initial=0) >= 0
            and starts.max(initial=0) <= len(values)
            and values.min(initial=0) >= 0
            and values.max(initial=-1) < len(self.inverse)
            and bool((self.inverse > 0).all())
            and self.tau > 0
            and self.floor > 0
        )
        if not good:
            raise DataError("the profile of the read-out does not fit its items")


@dataclass(frozen=True, eq=False)
class ProfileFoldIn(ProfileScores, PosteriorMeanFoldIn):
    """Profiles times a posterior mean."""

    kind: ClassVar[str] = "profile"
    likes = PosteriorMeanFoldIn.likes


@dataclass(frozen=True, eq=False)
class CommunityProfileFoldIn(ProfileScores, CommunityFoldIn):
    """Profiles times communities."""

    kind: ClassVar[str] = "communities with a profile"
    likes = CommunityFoldIn.likes


@dataclass(frozen=True, eq=False)
class GradientFoldIn(FoldIn):
    """`steps` times u ← Π(u − rate Σ_j (u · v_j − y_j) v_j) from 0, where Π cuts to the length
    `user_norm`.
    """

    steps: int
    rate: float
    user_norm: float
    center: float
    prior_count: float | None
    kind: ClassVar[str] = "descent"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        if self.prior_count is None:
            offset = np.full(rows.n, self.center, np.float32)
        else:
            offset = center_by_user_mean(rows, self.center, self.prior_count)
        y = rows.values.astype(np.float32) - offset[rows.row]
        rate = np.float32(self.rate)
        zeros = np.zeros(len(V), np.float32)
        none = np.zeros(rows.n, np.float32)
        U = np.zeros((rows.n, V.shape[1]), np.float32)
        for _ in range(self.steps):
            g = kernels.residual_rows(rows.indptr, rows.indices, y, U, V, np.inf, zeros, none)[1]
            U = project(U - rate * g, self.user_norm).astype(np.float32)
        return U, offset


@dataclass(frozen=True, eq=False)
class FrankWolfeFoldIn(FoldIn):
    """The user's own part of the released steps: one coordinate of u after the other, each shrunk
    with those before.

    Parameters
    ----------
    nuclear_norm, row_norm, scale : float
        k and L of the steps, and by what factors are divided to be unit directions.
    center, prior_count : float
        Ratings are measured from the user's own mean, with so many of `center`; from `center` if
        `prior_count` is None.
    known : (m,) bool
    lengths, gammas : (r,)
    """

    nuclear_norm: float
    row_norm: float
    scale: float
    center: float
    prior_count: float | None
    known: NDArray[np.bool_] = field(metadata=_ITEMS)
    lengths: Array = field(metadata=_MATRIX)
    gammas: Array = field(metadata=_MATRIX)
    kind: ClassVar[str] = "Frank-Wolfe steps"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        from discreet.privacy.users.steps import frank_wolfe_step

        if self.prior_count is None:
            offset = np.full(rows.n, self.center, np.float32)
        else:
            offset = center_by_user_mean(rows, self.center, self.prior_count)
        target = rows.values.astype(np.float32) - offset[rows.row] - b[rows.indices]
        own = self.known[rows.indices]
        row = rows.row[own]
        y = target[own].astype(np.float64)
        directions = V[rows.indices[own]] / self.scale
        fitted = np.zeros(len(y))
        weights = np.zeros((rows.n, V.shape[1]))
        for t, (length, gamma) in enumerate(
            zip(self.lengths.tolist(), self.gammas.tolist(), strict=True)
        ):
            fitted, step, shrink = frank_wolfe_step(
                row,
                rows.n,
                directions[:, t],
                y,
                fitted,
                length,
                self.nuclear_norm,
                gamma,
                self.row_norm,
            )
            weights *= 1 - gamma
            weights[:, t] = step
            weights *= shrink[:, None]
        return (weights / self.scale).astype(np.float32), offset


@dataclass(frozen=True, eq=False)
class ProjectionFoldIn(FoldIn):
    """u = Σ_j y_j v_j / (density · ‖column of V‖²), with y centered as in `LeastSquares` by its own
    deviation.

    Parameters
    ----------
    center, prior_count, density : float
    personal : bool
        Whether the user's own deviation is part of the offset.
    known : (m,) bool
    squares : (r,) float64
        Squared lengths of the columns of V.
    """

    center: float
    prior_count: float
    density: float
    personal: bool
    known: NDArray[np.bool_] = field(metadata=_ITEMS)
    squares: Array = field(metadata=_MATRIX)
    kind: ClassVar[str] = "projection"

    def fold(
        self, rows: HistoryRows, V: Array, b: Array, kernels: Any = compiled
    ) -> tuple[Array, Array]:
        left = rows.values - self.center - b[rows.indices]
        own = np.bincount(rows.row, left, minlength=rows.n) / (rows.counts + self.prior_count)
        own = own * self.personal
        target = np.where(self.known[rows.indices], left - own[rows.row], 0.0).astype(np.float32)
        u = kernels.sum_rows(
            rows.indptr, rows.indices, target.astype(np.float64), V.astype(np.float64)
        )
        U = (u / np.maximum(self.squares, 1e-30) / self.density).astype(np.float32)
        return U, (self.center + own).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ItemSimilarity:
    """Which part of the factors items are compared by: coordinates from `first` on, of the
    known items if given; with shares of communities, how far an item's own differ from them.
    """

    first: int = 0
    known: NDArray[np.bool_] | None = None
    shares: Array | None = None

    def vectors(self, V: Array) -> Array:
        """Rows of zeros where nothing is known of an item."""
        if self.shares is not None:
            joint = V * self.shares
            total = np.maximum(joint.sum(axis=1, keepdims=True), 1e-30)
            return np.asarray(joint / total - self.shares, np.float32)
        if not self.first and self.known is None:
            return V
        compared = V[:, self.first :].copy()
        if self.known is not None:
            compared[~self.known] = 0
        return compared


KINDS: dict[str, type[FoldIn]] = {
    kind.kind: kind
    for kind in (
        ConstantFoldIn,
        UserMeanFoldIn,
        LeastSquaresFoldIn,
        ALSFoldIn,
        PosteriorMeanFoldIn,
        CommunityFoldIn,
        CommunityPairsFoldIn,
        ProfileFoldIn,
        CommunityProfileFoldIn,
        GradientFoldIn,
        FrankWolfeFoldIn,
        ProjectionFoldIn,
    )
}


def fold_in_from_dict(
    numbers: Mapping[str, Any], arrays: Mapping[str, Array], shape: tuple[int, int]
) -> FoldIn:
    """Return the rule that ``numbers()`` and ``arrays()`` described, for (items, factors) of this
    shape.

    Raises
    ------
    DataError
        For anything that a read-out could not have written: compiled code must not see it.
    """
    kind = KINDS.get(str(numbers.get("kind")))
    if kind is None:
        raise DataError(
            f"there is no read-out {numbers.get('kind')!r} in this version of discreet: upgrade to"
            " use it"
        )
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}
    plain = {name: value for name, value in numbers.items() if name != "kind"}
    if set(plain) != {name for name, entry in entries.items() if not entry.metadata} or set(
        arrays
    ) - set(entries):
        raise DataError(f"the read-out {kind.kind!r} is not as this version of discreet writes it")
    for name, value in plain.items():
        if isinstance(value, (int, float)) and not abs(value) <= LARGEST.get(name, 1e18):
            raise DataError(f"{name} of the read-out is not finite, or far too large")
    for name, array in arrays.items():
        if entries[name].metadata["by"] == "profile":
            continue
        _check_array(name, array, entries[name].metadata["by"] == "item", shape)
    if "place" in arrays and not (
        -1 <= arrays["place"].min() <= arrays["place"].max() < len(arrays["gain"])
    ):
        raise DataError("place of the read-out names rows that are not there")
    missing = {
        name: None for name, entry in entries.items() if entry.metadata and name not in arrays
    }
    found = kind(**plain, **missing, **arrays)
    mixtures = (CommunityFoldIn, CommunityPairsFoldIn)
    if isinstance(found, mixtures) and not (found.strength > 0 and found.steps >= 1):
        raise DataError("strength and steps of the read-out must be positive")
    if isinstance(found, ProfileScores):
        found.check_profile(shape[0])
    return found


def rank_scores(
    scores: Array, n: int, hidden: tuple[Array, Array], left_out: Array | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the best `n` items per row: positions padded with −1, scores with −inf.

    Parameters
    ----------
    scores : (users, items), overwritten
    hidden : CSR arrays of the items that each user does not get
    left_out : (items,) bool, optional
        Items that no user gets.
    """
    users, items = scores.shape
    for i in range(users):
        scores[i, hidden[1][hidden[0][i] : hidden[0][i + 1]]] = -np.inf
    if left_out is not None:
        scores[:, left_out] = -np.inf
    most = min(n, items)
    best = np.full((users, n), -1, np.int32)
    found = np.full((users, n), -np.inf, np.float32)
    for i in range(users):
        least = np.partition(scores[i], items - most)[items - most]
        some = np.flatnonzero(scores[i] >= least)  # ties by position, as `top_k` has them
        some = some[np.argsort(-scores[i, some], kind="stable")][:most]
        some = some[scores[i, some] > -np.inf]
        best[i, : len(some)] = some
        found[i, : len(some)] = scores[i, some]
    return best, found


def _check_array(name: str, array: Array, per_item: bool, shape: tuple[int, int]) -> None:
    items, factors = shape
    if per_item:
        good = array.shape == (items,) and array.dtype in (np.bool_, np.int32)
    else:
        good = (
            array.ndim in (1, 2)
            and array.shape[-1] == factors
            and array.dtype in (np.float32, np.float64)
        )
        good = good and bool(np.isfinite(array).all())
    if not good:
        raise DataError(
            f"{name} of the read-out is an array {array.shape} of {array.dtype}, which cannot be"
        )


def likes_of(
    values: Array, like_threshold: float | None, levels: int, low: float, high: float
) -> Array:
    """Return how much items of these values are liked, from 0 to 1; see `PosteriorMeanFoldIn`."""
    if levels:
        place = np.clip((values - low) / (high - low), 0.0, 1.0)
        return np.rint(levels * place) / levels
    if like_threshold is None:
        return np.ones(len(values))
    return (values >= like_threshold).astype(np.float64)


def center_by_user_mean(
    rows: HistoryRows, prior_mean: float, prior_count: float
) -> NDArray[np.float32]:
    """Return every user's mean, with `prior_count` more ratings of the public `prior_mean`."""
    total = np.bincount(rows.row, rows.values, minlength=rows.n) + prior_mean * prior_count
    return (total / (rows.counts + prior_count)).astype(np.float32)


def project(A: Array, largest: float) -> Array:
    """Rows cut to the length `largest`."""
    cut: Array = A * np.minimum(
        1.0, largest / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-30)
    )
    return cut


def _dual(r: int) -> bool:
    """Return whether least squares may turn all items' factors, whose bits then depend on how
    many there are.
    """
    return r >= DUAL_RANK
