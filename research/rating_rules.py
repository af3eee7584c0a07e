"""How the rules for ratings were chosen: settings of DPMF compared on validation parts of data that
are not quoted.

    python -m research.rating_rules --users 3000 --out rules.md

Sets are split 7 of cinema, members 0 of the generated families (`families`) with at most so many
people, and real sets that are added by name and place (``ml-1m=ratings.parquet``). A cell of the
table is how much larger validation RMSE is than by default, in percent: the mean over all sets, and
in brackets the set that lost the most. λ of `ALS` and `Bias` has an entry of its own, ``discreet
reproduce beyond-ridge``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.datasets import load_dataset
from discreet.data.ratings import Ratings
from discreet.data.splits import Split, random_ratings
from discreet.errors import BudgetExceeded
from discreet.evaluation.evaluator import evaluate
from discreet.models.base import Recommender
from discreet.models.dpmf import DPMF
from discreet.models.dpmf.rating_training import CHECKS, PAIRS
from research.families import FAMILIES, SCALES, made

Scale = tuple[float, float]
SETTINGS: dict[str, dict[str, Any]] = {
    "biases alone": dict(factors=0),
    "no slope": dict(slope=0.0),
    "no taste for what is popular": dict(taste=0.0),
    "no popularity as a prior": dict(popularity=False),
    "even weights": dict(rarity=0.0),
    "pairs whatever they cost": dict(gate=1e9),
    "pairs only if they cost nothing": dict(gate=1e-4),
    "core of 100": dict(largest_core=100),
    "core of 400": dict(largest_core=400),
    "4 steps": dict(iterations=4),
    "8 steps": dict(iterations=8),
    "less for the size": dict(shares={"size": 0.01}),
    "more for the size": dict(shares={"size": 0.08}),
    "less for comparing ranks": dict(shares=dict.fromkeys(CHECKS, 0.003)),
    "less for pairs": dict(shares={PAIRS: 0.08}),
}


def sets(people: int, given: list[str]) -> Iterator[tuple[str, Ratings, Scale]]:
    """Names, ratings and their range."""
    yield "cinema", load_dataset("cinema", scale=min(1.0, people / 20_000)), (0.5, 5.0)
    for one in FAMILIES:
        if one.users <= 50_000 and one.items <= 10_000:  # larger catalogs take most of the time
            low, high, _ = SCALES[one.scale]
            yield one.name, made(one.scaled(people)), (low, high)
    for name, _, place in (text.partition("=") for text in given):
        ratings = Ratings.read(place)
        yield name, ratings, (float(ratings.values.min()), float(ratings.values.max()))


def score(split: Split, scale: Scale, epsilon: float, draws: int, given: dict[str, Any]) -> float:
    """Validation RMSE, the mean over draws of the noise that do not refuse."""
    assert split.valid is not None
    part = Split("valid", 0, split.train, split.valid)
    same: dict[str, Any] = dict(
        epsilon=epsilon, delta=1e-5, goal="rating", rating_range=scale, noise="seeded"
    )
    found = []
    for seed in range(draws):
        model: Recommender = DPMF.configure(**same, random_state=seed, **given)
        try:
            found.append(float(evaluate(model.fit(split.train), part, "rmse", slices=None)["rmse"]))
        except BudgetExceeded:
            continue
    return float(np.mean(found)) if found else float("nan")


def table(epsilons: list[float], people: int, draws: int, given: list[str]) -> str:
    """All settings on all sets, as Markdown."""
    names: list[str] = []
    losses: dict[tuple[str, float], list[float]] = {
        (name, epsilon): [] for name in SETTINGS for epsilon in epsilons
    }
    for name, ratings, scale in sets(people, given):
        names.append(name)
        split = random_ratings(ratings, (0.8, 0.1, 0.1), seed=7)
        for epsilon in epsilons:
            usual = score(split, scale, epsilon, draws, {})
            for setting, change in SETTINGS.items():
                loss = 100 * (score(split, scale, epsilon, draws, change) / usual - 1)
                losses[setting, epsilon].append(loss)
        print(f"{name}: done", flush=True)
    lines = [
        ["setting", *(f"ε = {epsilon:g}" for epsilon in epsilons)],
        ["---"] * (1 + len(epsilons)),
    ]
    for setting in SETTINGS:
        cells = []
        for epsilon in epsilons:
            lost = np.array(losses[setting, epsilon])
            worst = names[int(np.nanargmax(lost))]
            cells.append(f"{np.nanmean(lost):+.2f} ({np.nanmax(lost):+.2f}, {worst})")
        lines.append([setting, *cells])
    quoted = ", ".join(f'"{name}"' for name in names)  # some have commas
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\nSets: {quoted}.\n"


def main() -> None:
    """Print the table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(
        description="Settings of DPMF for ratings, compared on validation parts."
    )
    parser.add_argument(
        "data", nargs="*", metavar="NAME=PATH", help="real data in addition to the generated sets"
    )
    parser.add_argument(
        "--users", type=int, default=3_000, help="at most so many of each family (default 3000)"
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 5.0, 20.0])
    parser.add_argument(
        "--draws", type=int, default=2, help="of the noise, for each cell (default 2)"
    )
    parser.add_argument("--out", type=Path, help="a file for the table")
    asked = parser.parse_args()
    found = table(asked.epsilon, asked.users, asked.draws, asked.data)
    print(found)
    if asked.out is not None:
        asked.out.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
