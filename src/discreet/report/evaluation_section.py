"""Scores of the model and of baselines on held-out ratings.

Privacy: scores are computed exactly from users' ratings and are not covered by ε. The page marks
each section that shows one.

1. Ratings alone: 20 % are held out at random. A model with the same parameters is trained on the
   other 80 %, because the saved one may have been trained on the held-out ratings.
2. Ratings and a test set: the saved model is measured on the test set; baselines are trained on the
   ratings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.data.ratings import Ratings
from discreet.data.splits import Holdout, Split, random_ratings
from discreet.errors import DataError, DiscreetError
from discreet.evaluation.comparison import Comparison, compare
from discreet.evaluation.evaluator import lowest_relevant
from discreet.models.als import ALS
from discreet.models.bias import Bias
from discreet.models.popularity import Popularity

METRICS = {"rating": ("rmse", "recall@20", "ndcg@20"), "ranking": ("recall@20", "ndcg@100")}
QUIET = 1000.0  # an ε with almost no noise
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Quality:
    """Scores of the model and of baselines.

    Attributes
    ----------
    found : the scores
    mine : name of the model's row
    retrained : whether a model with the same parameters was trained
    trace : training trace of the retrained model
    counts : ratings per item of the catalog in training
    users, targets : number of users and of held-out ratings
    """

    found: Comparison
    mine: str
    retrained: bool
    trace: list[float]
    counts: np.ndarray[Any, Any]
    users: int
    targets: int

    @property
    def quiet(self) -> str:
        """Name of the row of the model with almost no noise, which may be missing."""
        return _quiet_name(self.mine.split(",")[0])


class _SavedModel:
    """A trained model whose `fit` does nothing, for use where a model is trained first."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> _SavedModel:
        return self


def measure(
    model: Any,
    data: Ratings,
    test: Ratings | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Quality:
    """Measure the model and the baselines, overall and by popularity.

    Parameters
    ----------
    model : Recommender
    data : Ratings
        Ratings like those that the model was trained on.
    test : Ratings, optional
        Ratings that the model has not seen, of users who are in `data`.
    seed : int
        Seed of the split.
    """
    data = data.with_items(model.item_ids_, "drop")
    if data.n_ratings == 0:
        raise DataError("no rating is of an item known to the model: check the item ids")
    split = (
        random_ratings(data, (0.8, 0.2), seed) if test is None else _make_split(model, data, test)
    )
    if test is None and _without_features(model):
        raise DataError(
            "the model was trained with item features that are not saved with it, so it cannot be"
            " trained again: give ratings that it has not seen with --test"
        )
    mine = _model_name(model)
    trained: list[Any] = []

    def anew(seed: int) -> Any:
        trained.append(_SavedModel(model) if test is not None else _fresh(model, seed))
        return trained[-1]

    makers: dict[str, Callable[[int], Any]] = {mine: anew, **_references(model, test is None)}
    scale = model.rating_range_ if model.goal == "rating" else None
    relevant = None if scale is None else lowest_relevant(scale, split.train, split.test.target)
    if scale is None:
        makers = {name: make for name, make in makers.items() if make(0).goal == "ranking"}
    with _quiet():
        found = compare(
            makers,
            [split],
            1,
            METRICS[model.goal],
            relevant=relevant,
            slices="ratings",
            progress=progress,
        )
    trace = trace_of(trained[-1])
    counts = np.bincount(split.train.indices, minlength=data.n_items)
    target = split.test.target
    return Quality(
        found,
        mine,
        test is None,
        trace,
        counts,
        int((np.diff(target.indptr) > 0).sum()),
        target.n_ratings,
    )


def trace_of(model: Any) -> list[float]:
    """Return the model's training trace, step by step; empty if it has none."""
    return [float(x) for x in getattr(model, "details_", {}).get("trace", [])]


def _make_split(model: Any, data: Ratings, test: Ratings) -> Split:
    """Make a split with the users of `test`, and their histories from `data`."""
    test = test.with_items(model.item_ids_, "drop")
    rows = data.user_index(test.user_ids)
    if (rows < 0).all() or test.n_ratings == 0:
        raise DataError("no user of the test ratings is in the data: use the same user ids in both")
    test, rows = test.select_users(np.flatnonzero(rows >= 0), by="index"), rows[rows >= 0]
    return Split(
        "the test ratings given", 0, data, Holdout(data.select_users(rows, by="index"), test)
    )


def _without_features(model: Any) -> bool:
    """Return whether the model was trained with item features that were not saved."""
    statement = getattr(model, "privacy_", None)
    used = statement is not None and any(
        assumed.name == "features" for assumed in statement.assumptions
    )
    return used and getattr(model, "item_features", None) is None


def _quiet_name(name: str) -> str:
    return f"{name} with almost no noise"


def _model_name(model: Any) -> str:
    statement = getattr(model, "privacy_", None)
    name = type(model).__name__
    return (
        name
        if statement is None or not statement.finite
        else f"{name}, ε = {statement.epsilon:.3g}"
    )


def _fresh(model: Any, seed: int, **changed: Any) -> Any:
    parameters = model.get_params()
    if "random_state" in parameters:
        changed["random_state"] = seed
    return type(model)(**(parameters | changed))


def _references(model: Any, retrain: bool) -> dict[str, Callable[[int], Any]]:
    """Return the references: the model with almost no noise, ALS, and the baselines."""
    makers: dict[str, Callable[[int], Any]] = {}
    rank = model.item_factors_.shape[1]
    if retrain and _can_be_quiet(model):
        # a model may choose its rank by ε: keep the rank, so that only the noise differs
        same = {"factors": rank} if "factors" in model.get_params() else {}
        makers[_quiet_name(type(model).__name__)] = lambda seed: _fresh(
            model, seed, epsilon=QUIET, **same
        )
    if not isinstance(model, ALS) and rank:
        makers[f"ALS of rank {rank}, not private"] = lambda seed: ALS(
            rank, goal=model.goal, random_state=seed
        )
    if type(model) is not Bias:
        makers["Bias"] = lambda seed: Bias()
    if model.goal == "rating":
        makers["User's mean"] = lambda seed: Bias(items=False)
    if type(model) is not Popularity:
        makers["Popularity"] = lambda seed: Popularity()
    return makers


def _can_be_quiet(model: Any) -> bool:
    """Return whether a larger ε alone reduces the noise."""
    statement = getattr(model, "privacy_", None)
    fixed_noise = bool(getattr(getattr(model, "algorithm_", None), "sigmas", None))
    if statement is None or not statement.finite or fixed_noise or statement.epsilon >= QUIET / 4:
        return False
    if statement.accountant not in ("gdp", "rdp"):
        return False
    try:
        _fresh(model, 0, epsilon=QUIET).plan(len(model.item_ids_))
    except DiscreetError:
        return False
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of reference models."""
    logger = logging.getLogger("discreet")

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
