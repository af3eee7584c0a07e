"""Cells whose parameters are chosen on a validation part: one search, then trials with what was
found.

``tune`` in a cell's settings has lists of values. Every combination is trained once and the best
three with a second draw of noise; the lowest median wins. Then come ``trials`` trainings, with the
seeds 0, 1, …, scored on the test part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from discreet.data.splits import Split
from discreet.evaluation.evaluator import evaluate
from research.entry import Record, Settings
from research.search import Candidate, Found, Rounds, grid, search

SEED = 1000  # the first of the draws in which parameters are chosen; no trial has it
SECOND_DRAW = 3

Make = Callable[[Candidate, int], Any]


def choose(tune: Mapping[str, Any], make: Make, split: Split, metric: str) -> Found:
    """The best combination on the validation part; ``make(candidate, seed)`` gives a model that
    is not fitted.
    """
    candidates = grid(tune)
    sign = 1 if metric in ("rmse", "mae") else -1

    def score(candidate: Candidate, at: int) -> float:
        model = make(candidate, SEED + at).fit(split.train)
        return sign * evaluate(model, split, metric, part="valid", slices=None)[metric]

    found = search(
        candidates, score, Rounds(len(candidates), (min(SECOND_DRAW, len(candidates)),), (1, 2))
    )
    return Found(found.best, sign * found.score, found.trainings)


def trials(
    settings: Settings, found: Found, scored: Callable[[Candidate, int], Record]
) -> list[Record]:
    """A record for every trial, each with what was chosen and how many trainings that took."""
    chosen = {"chosen": found.best, "validation": found.score, "trainings": found.trainings}
    return [
        {"seed": seed} | scored(found.best, seed) | chosen for seed in range(settings["trials"])
    ]
