"""Shared by the baselines: ratings relative to a user's own mean, and fold-in by ridge regression.

They score item j as

    score_j = mean of the user's own ratings (with a few of the middle of the scale) + u · v_j + b_j

for the frequent items, by noisy counts, and predict the user's own mean for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import Range, middle, width
from discreet.models.fold_in import LeastSquaresFoldIn
from discreet.privacy.statistics.bounds import Bounds


def own_mean_bounds(
    max_items: int,
    rating_range: Range,
    centering: float | str,
    prior_count: float,
    user_norm: float = 1.0,
) -> Bounds:
    """Return bounds: a third of the range relative to a user's own mean, else half of it."""
    if centering != "user":
        center = float(centering)
        return Bounds(
            items=max_items, rating=width(rating_range) / 2, center=center, norm=user_norm
        )
    return Bounds(
        items=max_items,
        rating=width(rating_range) / 3,
        center="user",
        prior_mean=middle(rating_range),
        prior_count=prior_count,
        norm=user_norm,
    )


def what_factors_explain(
    ridge: float,
    exponent: float,
    known: NDArray[np.bool_],
    rating_range: Range,
    centering: float | str,
    prior_count: float,
) -> LeastSquaresFoldIn:
    """Return ridge regression on the residuals of a user; items without factors have none."""
    settings: dict[str, Any] = dict(exponent=exponent, counted="known", masked=True, known=known)
    if centering == "user":
        return LeastSquaresFoldIn(
            ridge,
            centering="own mean",
            center=middle(rating_range),
            prior_count=prior_count,
            **settings,
        )
    return LeastSquaresFoldIn(ridge, centering="constant", center=float(centering), **settings)
