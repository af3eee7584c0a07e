"""What the baselines share: ratings measured from each user's own mean, and users read out by ridge regression.

They score item j as

    score_j = mean of the user's own ratings (with a few of the middle of the scale) + u · v_j + b_j

for the frequent items, by noisy counts, and predict the user's own mean for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import solve_rows
from discreet.models.algorithms.algorithm import Learnt, Range, Rows, centred_by_own_mean, middle, width
from discreet.privacy.people.bounds import Bounds


def own_mean_bounds(
    max_items: int, rating_range: Range, centring: float | str, prior_count: float, user_norm: float = 1.0
) -> Bounds:
    """Ratings relative to a user's own mean are cut to a third of the range, others to half of it."""
    if centring != "user":
        centre = float(centring)
        return Bounds(items=max_items, rating=width(rating_range) / 2, centre=centre, norm=user_norm)
    return Bounds(
        items=max_items,
        rating=width(rating_range) / 3,
        centre="user",
        prior_mean=middle(rating_range),
        prior_count=prior_count,
        norm=user_norm,
    )


def what_factors_explain(
    rows: Rows,
    learnt: Learnt,
    known: NDArray[np.bool_],
    rating_range: Range,
    centring: float | str,
    prior_count: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The offset of each user, and per entry what factors are to explain: nothing for items without them."""
    if centring == "user":
        offset = centred_by_own_mean(rows, middle(rating_range), prior_count)
    else:
        offset = np.full(rows.n, centring, np.float32)
    target = rows.values.astype(np.float32) - offset[rows.row] - learnt.biases[rows.indices]
    return offset, np.where(known[rows.indices], target, np.float32(0))


def ridge_fold(rows: Rows, learnt: Learnt, target: NDArray[Any], ridge: NDArray[Any]) -> NDArray[Any]:
    """Least squares with a ridge on the user's own ratings; not cut, for only the user sees it."""
    return solve_rows(rows.indptr, rows.indices, target.astype(np.float32), learnt.factors, ridge)
