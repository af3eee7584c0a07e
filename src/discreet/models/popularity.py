"""Popularity: the most chosen items for all users, the baseline for rankings. Not private."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Recommender
from discreet.models.fold_in import ConstantFoldIn, FoldIn
from discreet.progress import Progress


class Popularity(Recommender):
    """Scores an item by the number of its ratings. **Not private**: the counts are exact."""

    goal = "ranking"

    def __init__(self) -> None:
        pass

    def _train(self, ratings: Ratings, report: Progress) -> tuple[NDArray[Any], NDArray[Any]]:
        counts = np.bincount(ratings.indices, minlength=ratings.n_items)
        report(1, 1, "counting")
        return np.zeros((ratings.n_items, 0), np.float32), counts.astype(np.float32)

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return empty vectors: scores do not depend on the user."""
        n = len(indptr) - 1
        return np.zeros((n, 0), np.float32), np.zeros(n, np.float32)

    def fold_in_rule(self) -> FoldIn:
        return ConstantFoldIn()
