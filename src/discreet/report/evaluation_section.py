"""How good the model is, beside baselines, on ratings that were held out.

Privacy: every number here is a look at people's ratings that no ε pays for. The page says so
wherever it shows one.

1. Ratings alone: 80 % to learn from, 20 % held out at random. The model is trained anew, with its
   own parameters, on the 80 %, because the saved one may have learned from what it would be asked.
2. Ratings and a test set: the saved model itself is asked about the test set; baselines learn from
   the ratings.
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
QUIET = 1000.0  # an ε at which there is next to no noise
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Quality:
    """What was measured.

    ``mine`` is the model's own name among the rows; ``trace`` what the model trained anew holds of
    its training; ``counts`` how often each item of the catalog was rated in training.
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
        """Name of the row that is the model with next to no noise; it need not be there."""
        return _quiet_name(self.mine.split(",")[0])


class _SavedModel:
    """A model that is trained already, in the place of one that is to be trained."""

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
    """Scores of the model and the baselines, whole and by popularity.

    Parameters
    ----------
    model : Recommender
    data : Ratings
        What the model learned from, or the like of it.
    test : Ratings, optional
        Ratings that the model has not seen, of users who are in `data`.
    seed : int
        Of the split.
    """
    data = data.with_items(model.item_ids_, "drop")
    if data.n_ratings == 0:
        raise DataError("none of the ratings is of an item that the model knows")
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
    """What the model holds of its training, step by step; empty for those that hold nothing."""
    return [float(x) for x in getattr(model, "details_", {}).get("trace", [])]


def _make_split(model: Any, data: Ratings, test: Ratings) -> Split:
    """The saved model's own test: users of `test`, known by what `data` holds of them."""
    test = test.with_items(model.item_ids_, "drop")
    rows = data.user_index(test.user_ids)
    if (rows < 0).all() or test.n_ratings == 0:
        raise DataError(
            "no user of the test ratings is in the data: both must name users in the same way"
        )
    test, rows = test.select_users(np.flatnonzero(rows >= 0), by="index"), rows[rows >= 0]
    return Split(
        "the test ratings given", 0, data, Holdout(data.select_users(rows, by="index"), test)
    )


def _without_features(model: Any) -> bool:
    """Whether the model learned with features of items that came from memory, and are gone."""
    statement = getattr(model, "privacy_", None)
    used = statement is not None and any(
        assumed.name == "features" for assumed in statement.assumptions
    )
    return used and getattr(model, "item_features", None) is None


def _quiet_name(name: str) -> str:
    return f"{name} with next to no noise"


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
    """What to compare with: the model without noise, one without privacy, and what can be had
    without taste.
    """
    makers: dict[str, Callable[[int], Any]] = {}
    rank = model.item_factors_.shape[1]
    if retrain and _can_be_quiet(model):
        # a rank may follow from ε
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
    """Whether a larger ε is all it takes to have less noise."""
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
    """Models made for comparison have nothing to say about their parameters."""
    logger = logging.getLogger("discreet")

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
