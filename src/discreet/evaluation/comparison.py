"""Compare models on the same splits, with the same metrics and the same relevance threshold.

The score of a model is its mean over runs. One run is one split, whose seed is the model's seed.

Two kinds of uncertainty are reported. *Standard error* is the uncertainty from the sample of test
users, averaged over runs; it is not divided by their number, because all runs have the same users.
*Spread* is the standard deviation between runs, the uncertainty from the seed.

*Differences* are those of the first model from each of the others, paired by user: what both
models find easy or hard cancels, so that their standard errors are smaller than those of the
scores. With `reference_models` they are what privacy costs.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from discreet.data.ratings import Ratings
from discreet.data.splits import Holdout, Split
from discreet.errors import ConfigError, DataError, DiscreetError
from discreet.evaluation.evaluator import evaluate
from discreet.evaluation.metrics import N_QUINTILES, paired_difference, parse
from discreet.evaluation.results import Evaluation
from discreet.models import model_class

#: ε of the reference without privacy: its noise is negligible. An infinite ε is refused.
NO_NOISE = 1000.0

Progress = Callable[[int, int, str], None]
Maker = Callable[[int], Any]
"""Makes an unfitted model from a seed."""


@dataclass(frozen=True)
class Score:
    """One metric of one model over the runs; NaN if undefined.

    Attributes
    ----------
    mean, stderr, spread : over the runs; see the top of the module
    runs : the score of each run
    """

    mean: float
    stderr: float
    spread: float
    runs: tuple[float, ...]

    @classmethod
    def from_values(cls, values: Sequence[float], errors: Sequence[float]) -> Score:
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(statistics.fmean(values), statistics.fmean(errors), spread, tuple(values))


@dataclass(frozen=True)
class Row:
    """The results of one model.

    Attributes
    ----------
    name, parameters, goal : of the model
    scores : by metric
    quintiles : scores by popularity quintile, head first
    seconds : mean training time
    differences : the first model's scores less these, by metric; empty for the first model
    """

    name: str
    parameters: Mapping[str, Any]
    goal: str
    scores: Mapping[str, Score]
    quintiles: tuple[Mapping[str, Score], ...]
    seconds: float
    differences: Mapping[str, Score]


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    rows : one per model, in the given order, without models to which no metric applies
    metrics : names, in the given order
    splits : name of each run's split
    seeds : seed of each run
    relevant : lowest relevant held-out rating for ranking metrics, None for all
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    splits: tuple[str, ...]
    seeds: tuple[int, ...]
    relevant: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "metrics": list(self.metrics),
            "splits": list(self.splits),
            "seeds": list(self.seeds),
            "relevant": self.relevant,
            "models": [
                {
                    "name": row.name,
                    "parameters": dict(row.parameters),
                    "seconds": row.seconds,
                    "scores": {name: vars(score) for name, score in row.scores.items()},
                    "differences": {name: vars(d) for name, d in row.differences.items()},
                    "quintiles": [
                        {name: vars(s) for name, s in group.items()} for group in row.quintiles
                    ],
                }
                for row in self.rows
            ],
        }


def compare(
    models: Mapping[str, Maker],
    splits: Iterable[Split],
    n_splits: int,
    metrics: Sequence[str],
    *,
    relevant: float | None = None,
    part: Literal["test", "valid"] = "test",
    slices: Literal["ratings", "items"] | None = None,
    categories: Any = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train and evaluate every model on every split.

    Parameters
    ----------
    models : name to maker
    splits, n_splits
        `splits` may be a generator, so that only one split is in memory at a time.
    metrics : names
        Rating metrics are left out for models with goal "ranking", whose scores are no ratings.
    relevant : float, optional
        Lowest relevant held-out rating, the same for all models; None for all ratings.
    part, slices, categories : as in `discreet.evaluate`
    progress : callable(done, total, text), optional

    Warnings of all models but the first are suppressed.
    """
    blanks = {name: make(0) for name, make in models.items()}
    wanted = {
        name: [m for m in metrics if _applies(m, blank.goal)] for name, blank in blanks.items()
    }
    wanted = {name: some for name, some in wanted.items() if some}
    if not wanted:
        raise ConfigError(f"None of the metrics {', '.join(metrics)} applies to these models.")
    found: dict[str, list[tuple[Evaluation, float]]] = {name: [] for name in wanted}
    paired: dict[str, list[dict[str, tuple[float, float]]]] = {name: [] for name in wanted}
    names = []
    seeds = []
    total = n_splits * len(wanted)
    for run, split in enumerate(splits):
        names.append(split.name)
        seeds.append(split.seed)
        first: Evaluation | None = None
        for at, (name, some) in enumerate(wanted.items()):
            report = _make_report(
                progress, run * len(wanted) + at, total, f"{name}, run {run + 1} of {n_splits}"
            )
            model = models[name](split.seed)
            start = time.perf_counter()
            with _no_warnings(at > 0):
                model.fit(split.train, progress=report)
            seconds = time.perf_counter() - start
            lowest = _lowest(split, part) if relevant is None else relevant
            result = evaluate(
                model,
                split,
                some,
                part=part,
                relevant=lowest,
                slices=slices,
                categories=categories,
                progress=False,
            )
            found[name].append((result, seconds))
            if first is None:
                first = result
            else:
                counts = np.diff(split.part(part).target.indptr)
                paired[name].append(_differences(first, result, counts))
    rows = tuple(_row(name, blanks[name], runs, paired[name]) for name, runs in found.items())
    return Comparison(rows, tuple(metrics), tuple(names), tuple(seeds), relevant)


def _differences(
    first: Evaluation, other: Evaluation, counts: Any
) -> dict[str, tuple[float, float]]:
    """Return the paired differences, and their standard errors (NaN for coverage and gini)."""
    return {
        name: paired_difference(parse(name), first.per_user[name], other.per_user[name], counts)
        if name in other.per_user
        else (first.values[name] - other.values[name], math.nan)
        for name in other.values
        if name in first.values
    }


def _row(
    name: str,
    model: Any,
    runs: Sequence[tuple[Evaluation, float]],
    paired: Sequence[Mapping[str, tuple[float, float]]],
) -> Row:
    results = [result for result, _ in runs]
    # random_state is the seed of the run, not a hyperparameter.
    parameters = {k: v for k, v in model.get_params().items() if k != "random_state"}
    scores = {
        m: Score.from_values([r.values[m] for r in results], [r.stderr[m] for r in results])
        for m in results[0].values
    }
    groups = N_QUINTILES if results[0].slices else 0
    quintiles = []
    for g in range(groups):
        parts = [r.slices[g] for r in results]
        quintiles.append(
            {
                m: Score.from_values([p.values[m] for p in parts], [p.stderr[m] for p in parts])
                for m in scores
            }
        )
    seconds = statistics.fmean(seconds for _, seconds in runs)
    differences = {
        m: Score.from_values([run[m][0] for run in paired], [run[m][1] for run in paired])
        for m in (paired[0] if paired else {})
    }
    return Row(name, parameters, model.goal, scores, tuple(quintiles), seconds, differences)


def _applies(metric: str, goal: str) -> bool:
    return goal != "ranking" or parse(metric).kind != "rating"


def _lowest(split: Split, part: str) -> float:
    """Return the lowest held-out rating, so that all are relevant.

    The default of `evaluate` differs between goals, and would make the models incomparable.
    """
    values = split.part(part).target.values
    return float(values.min()) if len(values) else 0.0


def _make_report(progress: Progress | None, before: int, total: int, text: str) -> Progress | None:
    if progress is None:
        return None
    steps = 100

    def report(done: int, of: int, _: str) -> None:
        progress(before * steps + steps * done // max(of, 1), total * steps, text)

    report(0, 1, text)
    return report


@contextmanager
def _no_warnings(wanted: bool) -> Iterator[None]:
    """Suppress the warnings of reference models."""
    logger = logging.getLogger("discreet")

    def is_error(record: logging.LogRecord) -> bool:
        return not wanted or record.levelno >= logging.ERROR

    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)


# ------------------------------------------------------------ models to compare


class Trained:
    """A trained model whose `fit` does nothing, for use where a model is trained first."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Trained:
        return self


def copy_untrained(model: Any, seed: int, **changed: Any) -> Any:
    """Return an untrained model of the same class with the same parameters and this seed."""
    parameters = model.get_params()
    if "random_state" in parameters:
        changed["random_state"] = seed
    return type(model)(**(parameters | changed))


def model_name(model: Any) -> str:
    """Return the name of a model in tables: the class, and ε if it is private."""
    statement = getattr(model, "privacy_", None)
    epsilon = getattr(model, "epsilon", None) if statement is None else statement.epsilon
    name = type(model).__name__
    finite = epsilon is not None and math.isfinite(epsilon)
    return f"{name}, ε = {epsilon:.3g}" if finite else name


def reference_models(model: Any, retrain: bool = True) -> dict[str, Maker]:
    """Return what a model is compared with: itself without privacy, and baselines.

    Parameters
    ----------
    model : Recommender
        Trained or not.
    retrain : bool
        Whether the model itself is trained on the same ratings; else there is no version of it
        without privacy to compare with.
    """
    makers: dict[str, Maker] = {}
    if retrain and _trains_without_noise(model):
        makers[f"{type(model).__name__} without privacy"] = lambda seed: copy_untrained(
            model, seed, epsilon=NO_NOISE
        )
    for name in ("Bias", "Popularity") if model.goal == "rating" else ("Popularity",):
        if name != type(model).__name__:
            makers[name] = lambda seed, name=name: model_class(name)()  # type: ignore[misc]
    return makers


def _trains_without_noise(model: Any) -> bool:
    """Return whether a larger ε alone reduces the noise of this model."""
    epsilon = getattr(model, "epsilon", None)
    if epsilon is None or epsilon >= NO_NOISE / 4:
        return False
    try:
        if getattr(model.make_algorithm(), "sigmas", None):  # noise that does not depend on ε
            return False
        # 2^20 items: more than any number of factors
        copy_untrained(model, 0, epsilon=NO_NOISE).plan(1 << 20)
    except DiscreetError:
        return False
    return True


def make_test_split(known: Ratings, target: Ratings, name: str) -> Split:
    """Make a split with the users of `target` and their histories from `known`.

    A user without a history counts as a new user.
    """
    rows = known.user_index(target.user_ids)
    # such as "7" and "7.0" of a user 7
    if len(np.unique(rows[rows >= 0])) < np.count_nonzero(rows >= 0):
        raise DataError(
            "two users of the test ratings are one user of the histories: write user ids alike in"
            " both files"
        )
    there = rows >= 0
    some = known.select_users(rows[there], by="index")
    counts = np.zeros(len(rows), np.int64)
    counts[there] = np.diff(some.indptr)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    histories = Ratings.from_indices(
        indptr, some.indices, some.values, target.user_ids, known.item_ids
    )
    return Split(name, 0, known, Holdout(histories, target), apart=True)
