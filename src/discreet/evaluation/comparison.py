"""Compare models on the same splits, with the same metrics and the same relevance threshold.

The score of a model is its mean over runs. One run is one split, whose seed is the model's seed.

Two kinds of uncertainty are reported. *Standard error* is the uncertainty from the sample of test
users, averaged over runs; it is not divided by their number, because all runs have the same users.
*Spread* is the standard deviation between runs, the uncertainty from the seed.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from discreet.data.splits import Split
from discreet.errors import ConfigError
from discreet.evaluation.evaluator import evaluate
from discreet.evaluation.metrics import N_QUINTILES, parse
from discreet.evaluation.results import Evaluation

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
        spread = statistics.stdev(values) if len(values) > 1 else math.nan
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
    """

    name: str
    parameters: Mapping[str, Any]
    goal: str
    scores: Mapping[str, Score]
    quintiles: tuple[Mapping[str, Score], ...]
    seconds: float


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
    part, slices : as in `discreet.evaluate`
    progress : callable(done, total, text), optional
    """
    blanks = {name: make(0) for name, make in models.items()}
    wanted = {
        name: [m for m in metrics if _applies(m, blank.goal)] for name, blank in blanks.items()
    }
    wanted = {name: some for name, some in wanted.items() if some}
    if not wanted:
        raise ConfigError(f"None of the metrics {', '.join(metrics)} applies to these models.")
    found: dict[str, list[tuple[Evaluation, float]]] = {name: [] for name in wanted}
    names = []
    seeds = []
    total = n_splits * len(wanted)
    for run, split in enumerate(splits):
        names.append(split.name)
        seeds.append(split.seed)
        for at, (name, some) in enumerate(wanted.items()):
            report = _make_report(
                progress, run * len(wanted) + at, total, f"{name}, run {run + 1} of {n_splits}"
            )
            model = models[name](split.seed)
            start = time.perf_counter()
            model.fit(split.train, progress=report)
            seconds = time.perf_counter() - start
            lowest = _lowest(split, part) if relevant is None else relevant
            result = evaluate(model, split, some, part=part, relevant=lowest, slices=slices)
            found[name].append((result, seconds))
    rows = tuple(_row(name, blanks[name], runs) for name, runs in found.items())
    return Comparison(rows, tuple(metrics), tuple(names), tuple(seeds), relevant)


def _row(name: str, model: Any, runs: Sequence[tuple[Evaluation, float]]) -> Row:
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
    return Row(name, parameters, model.goal, scores, tuple(quintiles), seconds)


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
