"""EASE: the strongest simple reference for rankings, in closed form. Not private.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data" (2019): predict each item of a user's
0/1 history x from the other items, with a ridge λ and weights B of items on items,

    B = argmin ‖X − X B‖²_F + λ ‖B‖²_F  with  diag B = 0,                                       (1)
    P = (XᵀX + λ I)⁻¹,   B_ij = −P_ij / P_jj  for i ≠ j,   score_j = Σ_i x_i B_ij.              (2)

In the terms of `Recommender`, a user's vector is the history x itself and the factors of item j are
column j of B: as many factors as items.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError
from discreet.models.base import Recommender
from discreet.models.parameters import check_positive
from discreet.progress import Progress

#: P is a dense matrix of float64: 3.2 GB at 20,000 items.
MOST_ITEMS = 20_000


class EASE(Recommender):
    """Linear item-to-item model in closed form, for rankings. **Not private.**

    Up to 20,000 items. Values of ratings are ignored: pass ``ratings.binarize(4)`` to learn from
    ratings of 4 and more.

    Parameters
    ----------
    regularization : float
        λ, in users: a pair of items that fewer users have is mostly ignored. The default was
        chosen on validation parts of ML-100K, ML-1M and cinema.
    """

    goal = "ranking"

    regularization: float = field(default=300.0, kw_only=False)

    def _check(self) -> None:
        check_positive("regularization", self.regularization)

    def _train(self, ratings: Ratings, report: Progress) -> tuple[NDArray[Any], NDArray[Any]]:
        m = ratings.n_items
        if m > MOST_ITEMS:
            raise ConfigError(
                f"EASE needs a dense matrix of items by items, and {m:,} items are more than"
                f" {MOST_ITEMS:,}. Keep the most popular ones, or use ALS."
            )
        X = ratings.to_csr().astype(np.float64)
        X.data[:] = 1.0
        G = (X.T @ X).toarray(order="F")
        report(1, 2, "pairs")
        G[np.diag_indices(m)] += self.regularization
        factor, failed = dpotrf(G, lower=1, overwrite_a=1)
        P, also_failed = dpotri(factor, lower=1, overwrite_c=1)
        if failed or also_failed:
            raise DataError("the item pairs cannot be inverted: raise regularization")
        for j in range(m):  # LAPACK has written the lower half alone
            P[j, j + 1 :] = P[j + 1 :, j]
        P /= -np.diag(P)[None, :].copy()
        P[np.diag_indices(m)] = 0.0
        # P is B now: row j of its transpose, which is contiguous, are the factors of item j
        V = P.T.astype(np.float32)
        report(2, 2, "inverse")
        return V, np.zeros(m, np.float32)

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the histories themselves, as rows of 0 and 1."""
        n = len(indptr) - 1
        x = np.zeros((n, len(self.item_ids_)), np.float32)
        x[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1.0
        return x, np.zeros(n, np.float32)
