"""Compilation of the default models for ``discreet doctor --warm``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from discreet.progress import Progress

EPSILON = 500.0  # large, so that a few users suffice for every part of a model to be trained


def warm_up(progress: Progress) -> None:
    """Train and evaluate each model on a few users of cinema, and recommend to all of them."""
    import pyarrow as pa

    from discreet.data.cinema import films, make_cinema
    from discreet.data.splits import random_ratings, strong_generalization
    from discreet.evaluation import evaluate
    from discreet.models.als import ALS
    from discreet.models.dpmf import DPMF
    from discreet.models.popularity import Popularity

    ratings = make_cinema(0, 0.05)
    genres = pa.table(
        {
            "item_id": [film.id for film in films()],
            "genres": ["|".join(film.genres) for film in films()],
        }
    )
    stars = (0.5, 5.0)
    models: dict[str, Callable[[], Any]] = {
        "DPMF for lists": lambda: DPMF(epsilon=EPSILON, rating_range=stars),
        "DPMF with features": lambda: DPMF(
            epsilon=EPSILON, rating_range=stars, item_features=genres, features=["genres"]
        ),
        "DPMF for ratings": lambda: DPMF(epsilon=EPSILON, goal="rating", rating_range=stars),
        "ALS for ratings": lambda: ALS(iterations=2),
        "ALS for lists": lambda: ALS(goal="ranking", iterations=2),
        "popularity": Popularity,
    }
    at_random = random_ratings(ratings, (0.8, 0.1, 0.1), 0)
    by_user = strong_generalization(ratings, 20, 20, seed=0)
    logger = logging.getLogger("discreet")
    before = logger.level
    logger.setLevel(logging.ERROR)  # warnings about so few users are expected
    try:
        for done, (name, make) in enumerate(models.items()):
            progress(done, len(models), name)
            for split in (at_random, by_user):
                evaluate(make().fit(split.train, progress=False), split, progress=False)
            make().fit(ratings, progress=False).recommend_many(ratings, progress=False)
        progress(len(models), len(models), "done")
    finally:
        logger.setLevel(before)
