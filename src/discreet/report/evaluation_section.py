"""Scores of the model and of references on held-out ratings, as `discreet evaluate` measures them.

Privacy: scores are computed exactly from users' ratings and are not covered by ε. The page marks
each section that shows one.

1. Ratings alone: the default split of ``discreet evaluate``, 80/10/10 at random. A model with the
   same parameters is trained on the first part, because the saved one may have been trained on the
   held-out ratings.
2. Ratings and a test set: the saved model is measured on the test set; baselines are trained on the
   ratings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.data.ratings import Ratings
from discreet.data.splits import random_ratings
from discreet.errors import DataError
from discreet.evaluation.comparison import (
    Comparison,
    Maker,
    Trained,
    compare,
    copy_untrained,
    make_test_split,
    model_name,
    reference_models,
)
from discreet.evaluation.evaluator import DEFAULTS, choose_relevant
from discreet.privacy.release.statement import PUBLIC_USERS, UNCONFIRMED

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Quality:
    """Scores of the model and of references.

    Attributes
    ----------
    found : the scores; the first row is the model's
    retrained : whether a model with the same parameters was trained
    trace : training trace of the retrained model
    counts : ratings per item of the catalog in training
    users, targets : number of users and of held-out ratings
    """

    found: Comparison
    retrained: bool
    trace: list[float]
    counts: np.ndarray[Any, Any]
    users: int
    targets: int


def measure(
    model: Any,
    data: Ratings,
    test: Ratings | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Quality:
    """Measure the model and the references, overall and by popularity.

    Parameters
    ----------
    model : Recommender
    data : Ratings
        Ratings like those that the model was trained on.
    test : Ratings, optional
        Ratings that the model has not seen, of users who are in `data`.
    seed : int
        Seed of the split and of the models.
    """
    data = data.with_items(model.item_ids_, "drop")
    if data.n_ratings == 0:
        raise DataError("no rating is of an item known to the model: check the item ids")
    trained: list[Any] = []
    if test is None:
        if unsaved := _describe_unsaved(model):
            raise DataError(
                f"the model was trained with {unsaved} that are not saved with it, so it cannot be"
                " trained again: give ratings that it has not seen with --test"
            )
        split = random_ratings(data, seed=seed)
        relevant = choose_relevant(model, data)
    else:
        test = test.with_items(model.item_ids_, "drop")
        if test.n_ratings == 0 or (data.user_index(test.user_ids) < 0).all():
            raise DataError(
                "no user of the test ratings is in the data: use the same user ids in both"
            )
        split = make_test_split(data, test, "the test ratings given")
        relevant = choose_relevant(model, data, test)

    def make(seed: int) -> Any:
        trained.append(Trained(model) if test is not None else copy_untrained(model, seed))
        return trained[-1]

    makers: dict[str, Maker] = {model_name(model): make} | reference_models(model, test is None)
    found = compare(
        makers,
        [split],
        1,
        DEFAULTS[model.goal],
        relevant=relevant,
        slices="ratings",
        progress=progress,
    )
    target = split.test.target
    return Quality(
        found,
        test is None,
        trace_of(trained[-1]),
        np.bincount(split.train.indices, minlength=data.n_items),
        int((np.diff(target.indptr) > 0).sum()),
        target.n_ratings,
    )


def trace_of(model: Any) -> list[float]:
    """Return the model's training trace, step by step; empty if it has none."""
    return [float(x) for x in getattr(model, "details_", {}).get("trace", [])]


def _describe_unsaved(model: Any) -> str:
    """Name what a training of the same parameters would lack; empty if there is nothing."""
    statement = getattr(model, "privacy_", None)
    used = set() if statement is None else {assumed.name for assumed in statement.assumptions}
    if used & {PUBLIC_USERS, UNCONFIRMED}:  # given to `fit`, so no parameter holds them
        return "ratings of public users"
    if "prior" in used:
        return "sums of an earlier model"
    if used & {"features", "similarities"} and getattr(model, "item_features", None) is None:
        return "item features"
    return ""
