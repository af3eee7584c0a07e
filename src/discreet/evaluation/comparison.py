"""Models beside each other: the same splits, the same metrics, the same idea of what is relevant.

    score of a model = mean over the runs, one run = one split, with the seed of the split as the
    model's seed.

Two kinds of uncertainty are kept apart. *Standard error*: what other people in the test part could
have changed, from the evaluation of each run and averaged over the runs; it is not divided by their
number, because the runs look at the same people. *Spread*: the standard deviation between the runs,
what another seed could have changed.
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
"""Makes a model that is not trained yet, from a seed."""


@dataclass(frozen=True)
class Score:
    """One metric of one model over the runs; NaN where it was not or could not be measured."""

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
    """One model: its scores, the same by popularity quintile (head first), and the mean seconds
    of training.
    """

    name: str
    parameters: Mapping[str, Any]
    goal: str
    scores: Mapping[str, Score]
    quintiles: tuple[Mapping[str, Score], ...]
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    rows : one per model, in the order given; a model to which no metric applies is left out
    metrics : names, in the order asked for
    splits : name of each run's split
    seeds : seed of each run
    relevant : lowest held-out rating that the ranking metrics count as relevant, None for all
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    splits: tuple[str, ...]
    seeds: tuple[int, ...]
    relevant: float | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
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
        The splits may come one by one, so that only one is held at a time.
    metrics : names
        Rating metrics are left out for models of implicit feedback, whose scores are no ratings.
    relevant : float, optional
        Lowest held-out rating that is relevant, the same for all models; None for all of them.
    part, slices : as in `discreet.evaluate`
    progress : callable(done, total, text), optional
    """
    blanks = {name: make(0) for name, make in models.items()}
    wanted = {
        name: [m for m in metrics if _applies(m, blank.goal)] for name, blank in blanks.items()
    }
    wanted = {name: some for name, some in wanted.items() if some}
    if not wanted:
        raise ConfigError(
            f"none of the metrics {', '.join(metrics)} can be measured with these models"
        )
    found: dict[str, list[tuple[Evaluation, float]]] = {name: [] for name in wanted}
    names = []
    seeds = []
    total = n_splits * len(wanted)
    for run, split in enumerate(splits):
        names.append(split.name)
        seeds.append(split.seed)
        for at, (name, some) in enumerate(wanted.items()):
            tell = _tell(
                progress, run * len(wanted) + at, total, f"{name}, run {run + 1} of {n_splits}"
            )
            model = models[name](split.seed)
            start = time.perf_counter()
            model.fit(split.train, progress=tell)
            seconds = time.perf_counter() - start
            lowest = _lowest(split, part) if relevant is None else relevant
            result = evaluate(model, split, some, part=part, relevant=lowest, slices=slices)
            found[name].append((result, seconds))
    rows = tuple(_row(name, blanks[name], runs) for name, runs in found.items())
    return Comparison(rows, tuple(metrics), tuple(names), tuple(seeds), relevant)


def _row(name: str, model: Any, runs: Sequence[tuple[Evaluation, float]]) -> Row:
    results = [result for result, _ in runs]
    # that is the run's seed
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
    """A threshold under which nothing lies: evaluation would take the top quarter for models of
    explicit feedback.
    """
    values = split.part(part).target.values
    return float(values.min()) if len(values) else 0.0


def _tell(progress: Progress | None, before: int, total: int, text: str) -> Progress | None:
    if progress is None:
        return None
    steps = 100

    def tell(done: int, of: int, _: str) -> None:
        progress(before * steps + steps * done // max(of, 1), total * steps, text)

    tell(0, 1, text)
    return tell
