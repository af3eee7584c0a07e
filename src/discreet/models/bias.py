"""Bias: global mean plus user and item biases, the baseline that a personal model has to beat.

    r̂_ij = m + b_i + b_j,      b_j = Σ_{i ∈ Ω_j} (r_ij − m − b_i) / (λ + c_j),      b_i likewise,

alternated: around the mean m, the least-squares fit of one number per user and per item with the
ridge λ.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Recommender
from discreet.models.fold_in import FoldIn, UserMeanFoldIn
from discreet.models.parameters import check_int, check_number, check_that
from discreet.progress import Progress


class Bias(Recommender):
    """Global mean plus regularized user and item biases. **Not private.**

    Parameters
    ----------
    regularization : float
        λ: how many ratings at the mean each user and item starts with.
    users, items : bool
        Leave one side out: ``Bias(items=False)`` predicts a user's own mean, with neither the
        global mean.
    iterations : int
    """

    goal = "rating"

    regularization: float = field(default=5.0, kw_only=False)
    users: bool = True
    items: bool = True
    iterations: int = 10

    def _check(self) -> None:
        check_number("regularization", self.regularization)
        check_int("iterations", self.iterations)
        for name in ("users", "items"):
            value = getattr(self, name)
            check_that(isinstance(value, bool), f"{name} is {value!r}, but must be True or False")

    def _train(self, ratings: Ratings, report: Progress) -> tuple[NDArray[Any], NDArray[Any]]:
        self.mean_ = float(ratings.values.mean(dtype=np.float64))
        m = ratings.n_items
        row = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
        count = np.bincount(ratings.indices, minlength=m)
        self.item_biases_ = np.zeros(m)
        for step in range(self.iterations if self.items else 0):
            offset = self.fold(ratings.indptr, ratings.indices, ratings.values)[1]
            total = np.bincount(ratings.indices, ratings.values - offset[row], minlength=m)
            self.item_biases_ = total / np.maximum(count + self.regularization, 1e-9)
            report(step + 1, self.iterations, "sweeps")
        return np.zeros((m, 0), np.float32), self.item_biases_.astype(np.float32)

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return no vector, and m + b_i as offset."""
        n = len(indptr) - 1
        count = np.diff(indptr)
        bias = np.zeros(n)
        if self.users:
            residual = values - self.mean_ - self.item_biases_[indices]
            total = np.bincount(np.repeat(np.arange(n), count), residual, minlength=n)
            bias = total / np.maximum(count + self.regularization, 1e-9)
        return np.zeros((n, 0), np.float32), self.mean_ + bias

    def fold_in_rule(self) -> FoldIn:
        return UserMeanFoldIn(self.mean_, self.regularization, self.users)

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean_}

    def restore(self, state: dict[str, Any]) -> None:
        self.mean_ = state["mean"]
