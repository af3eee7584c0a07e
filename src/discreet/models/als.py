"""Alternating least squares without privacy: the reference for the private models.

The loss is equation (24) of the supplement to the DPALS paper, for explicit ratings and for
implicit feedback:

    f(U, V) = Σ_{(i,j) ∈ Ω} (M_ij − m_ij − u_i · v_j)² + λ₀ ‖U Vᵀ‖²_F + Σ_i λ w_i ‖u_i‖² + Σ_j λ w_j
    ‖v_j‖² (1)

with weights w_i ∝ c_i^ν and w_j ∝ c_j^μ of the numbers of ratings c. Each half-step minimizes it
exactly:

    u_i = (Σ_{j ∈ Ω_i} v_j v_jᵀ + λ₀ VᵀV + λ w_i I)⁻¹ Σ_{j ∈ Ω_i} (M_ij − m_ij) v_j              (2)

and v_j likewise. Explicit ratings are centered: m_ij = m + b_i + b_j, where the intercepts b_i and
b_j are coordinates of the same least-squares problems: a user has the feature vector (v_j, s) and
an item (u_i, s), and s times the last coordinate is the intercept. So the ridge of an intercept is
λ w / s²; the term with λ₀ does not include it. With s² = 2σ, σ the standard deviation of ratings,
and λ in proportion to σ, stars and percents give the same recommendations. Implicit feedback has
M_ij = 1 on Ω and nothing to center; there λ₀ is what keeps the solution from being all ones.

Where λ is not given it follows from how much each vector is learned from, because vectors that do
not exceed the noise in c ratings should go to 0 and all others should not:

    λ = 2.3 σ C_u^0.1 C_v^0.25  explicit,      λ = 0.8 (C_u C_v)^(1/4)  implicit,                (3)

with C_u and C_v the mean numbers of ratings of a user and of an item, as a rating finds them (Σ c²
/ Σ c). Numbers of ratings do not show how much of a rating is noise, so for explicit ratings (3) is
where a search begins: a training on some users leaves a tenth of their ratings out, and λ moves by
factors of √2 as long as these are predicted better. The first rule was chosen on validation parts
of real and generated sets (``discreet reproduce beyond-ridge``), the second on those of MovieLens,
SweetRS and cinema, whole and down to 50 users. As V starts in proportion to √σ, ten times the
ratings give ten times the predictions.
"""

from __future__ import annotations

import logging
import math
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import kernels
from discreet.data.ratings import Ratings
from discreet.models.base import Recommender
from discreet.models.fold_in import ALSFoldIn, FoldIn
from discreet.models.parameters import MOST_STEPS, check_choice, check_int, check_number, check_that
from discreet.progress import Progress, no_progress

logger = logging.getLogger("discreet")

INTERCEPT = 2.0  # s² / σ
FARTHEST = 4  # steps by √2 from (3)
MOST_TO_TRY = 500_000  # ratings in the search, so that it takes seconds
FEW_TO_TRY = 30_000  # below, the search is fast: three parts are left out in turn, and no sweeps
FEWEST_TO_TRY = 1_000  # below, the choice would be random


class ALS(Recommender):
    """Matrix factorization by alternating least squares. **Not private**: use `DPALS` for that.

    Parameters
    ----------
    factors : int
        Length of the vectors, r.
    iterations : int
        Sweeps over users and items.
    regularization : float, optional
        λ. By default equation (3), for explicit feedback followed by a search on ratings left out;
        what it came to is in ``regularization_`` (about 23 for MovieLens 1M).
    goal : {"rating", "ranking"}
        Predict ratings, or rank items from what was chosen at all (values are then ignored).
    unobserved_weight : float, optional
        λ₀. Default 0 for explicit and 0.1 for implicit feedback.
    user_exponent, item_exponent : float
        ν and μ: how much more those with many ratings are regularized.
    weighting : {"rating", "row"}
        What the weights w average to 1 over: the ratings, or (as the paper prints it) the users and
        the items.
    intercepts : bool, optional
        Whether users and items have intercepts. Default: for explicit feedback only.
    initial_scale : float, optional
        Standard deviation of the item factors to start from. Default 0.3 √σ (explicit), or what the
        loss suggests (implicit).
    dtype : {"float32", "float64"}
    random_state : int or None
        Seeds the initial item factors; None takes another seed in every fit.
    """

    factors: int = field(default=32, kw_only=False)
    iterations: int = 15
    regularization: float | None = None
    goal: str = "rating"
    unobserved_weight: float | None = None
    user_exponent: float = 0.5
    item_exponent: float = 0.5
    weighting: str = "rating"
    intercepts: bool | None = None
    initial_scale: float | None = None
    dtype: str = "float32"
    random_state: int | None = 0

    def _train(self, ratings: Ratings, report: Progress) -> tuple[NDArray[Any], NDArray[Any]]:
        V, b = self._sweep(ratings, self._factor_of_lambda(ratings), report)
        if ratings.values.min() < ratings.values.max() and np.abs(V).max() < 1e-3 * np.sqrt(
            self.spread_
        ):
            why = (
                "there are too few ratings for more" if self.regularization is None else "lower it"
            )
            logger.warning(
                "regularization=%.3g has shrunk every vector to zero: %s",
                self.regularization_,
                why,
            )
        return V, b

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Solve equation (2) for each user, with the intercept m + b_i as offset."""
        ridge = self._ridge(np.diff(indptr), self.user_exponent, self.user_scale_)
        rows = indptr, indices, values
        U, b = self._half_step(
            rows, self.item_factors_, self.item_biases_ + np.asarray(self.mean_, self.dtype), ridge
        )
        return U, b + np.asarray(self.mean_, self.dtype)

    def fold_in_rule(self) -> FoldIn:
        return ALSFoldIn(
            ridge=self.regularization_ * self.user_scale_,
            exponent=self.user_exponent,
            explicit=self._explicit,
            mean=self.mean_,
            intercept=self.intercept_scale_,
            shared=self._everywhere(self.item_factors_),
        )

    def state(self) -> dict[str, Any]:
        return {
            "mean": self.mean_,
            "spread": self.spread_,
            "regularization": self.regularization_,
            "user_scale": self.user_scale_,
            "unobserved_weight": self.unobserved_weight_,
            "intercept_scale": self.intercept_scale_,
        }

    def restore(self, state: dict[str, Any]) -> None:
        state = self._format_1_defaults(state["spread"]) | state
        self.mean_ = state["mean"]
        self.spread_ = state["spread"]
        self.regularization_ = state["regularization"]
        self.user_scale_ = state["user_scale"]
        self.unobserved_weight_ = state["unobserved_weight"]
        self.intercept_scale_ = state["intercept_scale"]

    def _format_1_defaults(self, spread: float) -> dict[str, float]:
        """Return the defaults of format 1, which must not follow later changes."""
        usual_weight = 0.0 if self._explicit else 0.1
        return {
            "unobserved_weight": (
                usual_weight if self.unobserved_weight is None else self.unobserved_weight
            ),
            "intercept_scale": float(np.sqrt(2.0 * spread)) if self._has_intercepts else 0.0,
        }

    # ------------------------------------------------------------ the parts

    def _sweep(
        self, ratings: Ratings, factor: float, told: Progress
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return item factors and intercepts after all sweeps, with λ or `factor` times (3)."""
        users = ratings.indptr, ratings.indices, ratings.values
        items, counts = _by_item(ratings)
        self.mean_ = float(ratings.values.mean(dtype=np.float64)) if self._explicit else 0.0
        self.spread_ = _spread(ratings.values) if self._explicit else 1.0
        self.unobserved_weight_ = self._lambda_0()
        self.intercept_scale_ = (
            float(np.sqrt(INTERCEPT * self.spread_)) if self._has_intercepts else 0.0
        )
        self.regularization_ = self._lambda(np.diff(ratings.indptr), counts, factor)
        self.user_scale_ = self._scale(np.diff(ratings.indptr), self.user_exponent)
        ridge = self._ridge(counts, self.item_exponent, self._scale(counts, self.item_exponent))
        V = self._initial(ratings.n_items)
        b = np.zeros(ratings.n_items, self.dtype)
        for step in range(self.iterations):
            self.item_factors_ = V
            self.item_biases_ = b
            U, offset = self.fold(*users)
            V, b = self._half_step(items, U, offset, ridge)
            told(step + 1, self.iterations, "sweeps")
        return V, b

    def _factor_of_lambda(self, ratings: Ratings) -> float:
        """Search the multiplier of (3): a power of √2 that neither neighbor improves on."""
        if self.regularization is not None or not self._explicit:
            return 1.0
        rng = np.random.default_rng(self.random_state)
        some = _some_users(ratings, rng)
        if some.n_ratings < FEWEST_TO_TRY:
            return 1.0
        few = some.n_ratings < FEW_TO_TRY
        parts = [rng.random(some.n_ratings) < 0.1 for _ in range(3 if few else 1)]
        trial = self._trial(self.iterations if few else min(self.iterations, 6))

        @cache
        def error(halves: int) -> float:
            return sum(trial._error_on(some, left_out, 2.0 ** (halves / 2)) for left_out in parts)

        up = 1 if error(1) < error(0) else -1
        best = 0
        while abs(best) < FARTHEST and error(best + up) < error(best):
            best += up
        return float(2.0 ** (best / 2))

    def _trial(self, iterations: int) -> ALS:
        """Make a model of at most 32 factors: more would dominate the time of a training."""
        return ALS(
            min(self.factors, 32),
            iterations=iterations,
            unobserved_weight=self.unobserved_weight,
            user_exponent=self.user_exponent,
            item_exponent=self.item_exponent,
            weighting=self.weighting,
            intercepts=self.intercepts,
            initial_scale=self.initial_scale,
            dtype=self.dtype,
            random_state=self.random_state,
        )

    def _error_on(self, ratings: Ratings, left_out: NDArray[np.bool_], factor: float) -> float:
        """Return the mean square error on the ratings left out, after training on the others."""
        learned_from = ratings.keep(~left_out)
        self.item_factors_, self.item_biases_ = self._sweep(learned_from, factor, no_progress)
        U, offset = self.fold(learned_from.indptr, learned_from.indices, learned_from.values)
        row = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))[left_out]
        item = ratings.indices[left_out]
        predicted = (
            offset[row]
            + self.item_biases_[item]
            + kernels.pair_products(U, self.item_factors_, row, item)
        )
        return float(np.mean(np.square(ratings.values[left_out] - predicted), dtype=np.float64))

    def _half_step(
        self,
        rows: tuple[NDArray[Any], ...],
        Y: NDArray[Any],
        offset: NDArray[Any],
        ridge: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Solve for factors and intercepts of every row, given those of the other side."""
        indptr, indices, values = rows
        none = np.zeros(len(indptr) - 1, Y.dtype)
        shared = self._everywhere(Y)
        if not self._explicit:
            return kernels.solve_rows(indptr, indices, None, Y, ridge, shared), none
        s = np.float64(self.intercept_scale_)
        if s == 0:
            return kernels.solve_rows(
                indptr, indices, values, Y, ridge, shared, offset=offset
            ), none
        X, x0 = kernels.solve_rows_constant(
            indptr, indices, values, Y, ridge, s, shared, offset=offset
        )
        return X, (s * x0).astype(Y.dtype)

    def _everywhere(self, Y: NDArray[Any]) -> NDArray[Any] | None:
        """Return λ₀ YᵀY, the part of the normal equations that all rows share."""
        weight = self.unobserved_weight_
        return weight * kernels.second_moment(Y) if weight else None

    def _initial(self, n_items: int) -> NDArray[Any]:
        scale = self.initial_scale
        if scale is None:
            weight = max(self.unobserved_weight_, 1e-3)
            suggested = float(np.sqrt(max(self.regularization_, 0.5) / (weight * n_items + 40)))
            scale = 0.3 * math.sqrt(self.spread_) if self._explicit else suggested
        rng = np.random.default_rng(self.random_state)
        return (scale * rng.standard_normal((n_items, self.factors))).astype(self.dtype)

    @property
    def _explicit(self) -> bool:
        return self.goal == "rating"

    def _lambda(self, users: NDArray[Any], items: NDArray[Any], factor: float) -> float:
        """Return equation (3) times a factor, unless λ was given."""
        if self.regularization is not None:
            return float(self.regularization)
        own = _mean_count_by_rating(users)
        others = _mean_count_by_rating(items)
        if self._explicit:
            return float(factor * 2.3 * self.spread_ * own**0.1 * others**0.25)
        return float(0.8 * (own * others) ** 0.25)

    @property
    def _has_intercepts(self) -> bool:
        return self._explicit and self.intercepts is not False

    def _lambda_0(self) -> float:
        if self.unobserved_weight is not None:
            return self.unobserved_weight
        return 0.0 if self._explicit else 0.1

    def _scale(self, counts: NDArray[Any], exponent: float) -> float:
        """Return 1 / Z, which makes the weights average to 1."""
        weights = np.maximum(counts, 1).astype(np.float64) ** exponent
        return float(
            1 / np.average(weights, weights=counts if self.weighting == "rating" else None)
        )

    def _ridge(self, counts: NDArray[Any], exponent: float, scale: float) -> NDArray[Any]:
        ridge: NDArray[Any] = (
            self.regularization_ * scale * np.maximum(counts, 1).astype(np.float64) ** exponent
        )
        return ridge

    def _check(self) -> None:
        check_int("factors", self.factors)
        check_int("iterations", self.iterations, 1, MOST_STEPS)
        check_number("user_exponent", self.user_exponent)
        check_number("item_exponent", self.item_exponent)
        for name in ("regularization", "unobserved_weight", "initial_scale"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if self.random_state is not None:
            check_int("random_state", self.random_state, 0)
        check_choice("goal", self.goal, "rating", "ranking")
        check_choice("weighting", self.weighting, "rating", "row")
        check_choice("dtype", self.dtype, "float32", "float64")
        check_that(
            self.initial_scale != 0,
            "initial_scale is 0, but must be above 0: factors that start at 0 stay there",
        )
        check_that(
            self.intercepts is None or isinstance(self.intercepts, bool),
            f"intercepts is {self.intercepts!r}, but must be True, False or None",
        )
        check_that(
            self._explicit or not self.intercepts,
            "intercepts is True, but only explicit feedback has intercepts",
        )


def _by_item(ratings: Ratings) -> tuple[tuple[NDArray[Any], ...], NDArray[np.int64]]:
    """Return CSR arrays by item, and the number of ratings of each."""
    turned = ratings.to_csr().T.tocsr()
    return (turned.indptr.astype(np.int64), turned.indices.astype(np.int32), turned.data), np.diff(
        turned.indptr
    )


def _some_users(ratings: Ratings, rng: np.random.Generator) -> Ratings:
    """Select users with about `MOST_TO_TRY` ratings, or all."""
    if ratings.n_ratings <= MOST_TO_TRY:
        return ratings
    share = MOST_TO_TRY / ratings.n_ratings
    return ratings.select_users(np.flatnonzero(rng.random(ratings.n_users) < share), by="index")


def _mean_count_by_rating(counts: NDArray[Any]) -> float:
    """Return the mean count over ratings: Σ c² / Σ c."""
    return float(np.average(counts, weights=counts))


def _spread(values: NDArray[Any]) -> float:
    """Return the standard deviation of the ratings; 1 where they are all the same."""
    return float(values.std(dtype=np.float64)) or 1.0
