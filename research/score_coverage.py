"""How often the intervals of private scores hold what they should, over many repetitions.

One model, measured once on a large generated population: its scores there are the truth. A
repetition draws users from it with replacement, releases their scores with secure noise, and checks
whether the interval holds the truth. Run as a program it prints the table of docs/evaluation.md::

    python -m research.score_coverage
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.evaluation.metrics import parse
from discreet.evaluation.private_scores import RELEASE, ScoreLayout
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.user_totals import UserValues
from discreet.privacy.users.sealed_users import seal_values

METRICS = ("rmse", "mae", "recall@20", "ndcg@100")


@dataclass(frozen=True)
class Coverage:
    """The share of intervals that held the truth, and how wide they were on average, both on
    the scale of θ.
    """

    metric: str
    people: int
    epsilon: float
    held: float
    width: float
    exact_width: float


def coverage(
    crowd: NDArray[np.float64],
    layout: ScoreLayout,
    people: int,
    epsilon: float,
    repetitions: int,
    seed: int,
) -> list[Coverage]:
    """Over repetitions, for every metric of the layout; `crowd` has the columns of all users
    there is.
    """
    rng = np.random.default_rng(seed)
    truth = layout.read(crowd.sum(axis=0), 0.0, 0.95)
    plan = Plan.calibrate([Release(RELEASE, shape=(len(layout.most),))], Budget(epsilon))
    held = dict.fromkeys(truth, 0)
    width = dict.fromkeys(truth, 0.0)
    exact = dict.fromkeys(truth, 0.0)
    for _ in range(repetitions):
        rows = rng.integers(len(crowd), size=people)
        session = Session(plan)
        statistic = seal_values(lambda rows=rows: crowd[rows]).sum(UserValues(layout.most))  # type: ignore[misc]
        noisy = session.release(RELEASE, statistic)
        found = layout.read(noisy, session.deviation(RELEASE, statistic), 0.95)
        silent = layout.read(crowd[rows].sum(axis=0), 0.0, 0.95)
        for name, one in found.items():
            held[name] += one.low <= truth[name].value <= one.high
            width[name] += one.high - one.low
            exact[name] += silent[name].high - silent[name].low
    n = repetitions
    return [
        Coverage(name, people, epsilon, held[name] / n, width[name] / n, exact[name] / n)
        for name in truth
    ]


def crowd_of(
    metrics: Sequence[str] = METRICS, scale: float = 1.0, max_ratings: int = 10
) -> tuple[NDArray, ScoreLayout]:
    """What all users of the generated cinema add to the scores of a plain model."""
    from discreet.data.datasets import load_dataset
    from discreet.data.splits import random_ratings
    from discreet.evaluation.evaluator import evaluate
    from discreet.models.als import ALS

    split = random_ratings(load_dataset("cinema", scale=scale), seed=0)
    found = evaluate(ALS(16).fit(split.train), split, list(metrics), slices=None)
    layout = ScoreLayout.from_metrics([parse(name) for name in metrics])
    counts = np.diff(split.test.target.indptr)
    return layout.columns(found.per_user, counts, 2.25, max_ratings), layout


def main() -> None:
    """Print the table of docs/evaluation.md."""
    crowd, layout = crowd_of()
    print(
        "| metric | users | ε | intervals of 95 % that hold the truth | width of θ | without"
        " noise |"
    )
    print("|---|---|---|---|---|---|")
    for people, epsilon in ((500, 1.0), (5000, 0.1), (5000, 1.0), (20000, 0.1)):
        for one in coverage(crowd, layout, people, epsilon, 500, seed=people):
            cells = [one.metric, f"{one.people:,}", f"{one.epsilon:g}", f"{one.held:.1%}"]
            print(f"| {' | '.join(cells)} | {one.width:.4f} | {one.exact_width:.4f} |", flush=True)


if __name__ == "__main__":
    main()
