"""What tuning costs, and whether it pays: the two tables of docs/tuning.md.

::

    python -m research.tuning_prices prices
    DISCREET_DATA=../shared/data python -m research.tuning_prices example ml-1m 10
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.datasets import load_dataset
from discreet.data.splits import by_person
from discreet.evaluation.evaluator import evaluate
from discreet.evaluation.tuning import Between, Space, Tuning
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting import gdp, private_selection
from discreet.privacy.accounting.private_selection import Runs

DELTA = 1e-6
LAWS = ("geometric", "logarithmic", "poisson")
#: What is tried for the goals of DPMF and for the paper's DPALS, declared before any data were
#: seen.
SPACES: Mapping[str, Space] = {
    "ranking": {"factors": [8, 16, 32, 64, 128]},
    "rating": {
        "factors": [4, 6, 8, 12, 16],
        "iterations": [4, 6, 8, 12],
        "regularization": Between(2.0, 50.0),
    },
    "dpals": {
        "factors": [2, 4, 8, 16, 32],
        "iterations": [1, 2, 3, 5],
        "regularization": Between(2.0, 200.0),
    },
}
METRICS = {"ranking": "recall@20", "rating": "rmse", "dpals": "rmse"}


def prices() -> None:
    """ε of the best of K next to that of all K composed, by Rényi divergences, and what no bound
    can go below.
    """
    head = ["one run", "E[K]", "composed"] + [
        f"{law}, {how}" for law in LAWS for how in ("here", "Rényi", "at least")
    ]
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    for base in (0.5, 1.0, 4.0):
        mu = gdp.mu(base, DELTA)
        for mean in (3, 10, 30):
            cells = [f"{base:g}", str(mean), f"{gdp.epsilon(mu * math.sqrt(mean), DELTA):.2f}"]
            for law in LAWS:
                runs = Runs(mean, law)
                found = private_selection.epsilon(mu, runs, DELTA)
                cells += [
                    f"**{found:.2f}**",
                    f"{private_selection.renyi_epsilon(mu, runs, DELTA):.2f}",
                    f"{_least(mu, runs):.2f}",
                ]
            print(f"| {' | '.join(cells)} |")


def _least(mu: float, runs: Runs) -> float:
    """ε that a real mechanism costs: one Gaussian number that is its own score, or the opposite
    of it.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    x = np.linspace(-10, 10 + mu, 100_001)
    base = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    moved = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for sign in (1, -1):
        a = base * runs.slope(ndtr(-sign * x))
        b = moved * runs.slope(ndtr(-sign * (x - mu)))
        pairs += [(a, b), (b, a)]

    def delta(epsilon: float) -> float:
        return max(
            float(np.maximum(a - math.exp(epsilon) * b, 0).sum() * (x[1] - x[0])) for a, b in pairs
        )

    return float(brentq(lambda e: delta(e) - DELTA, 0.0, 50.0, xtol=1e-4))


def example(name: str, repetitions: int) -> None:
    """DPMF with its defaults against DPMF tuned at the same total ε, on ratings that neither
    has seen.
    """
    print(f"| {name}, goal | total ε | one training | metric | defaults | tuned | factors chosen |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for goal in SPACES:
        for epsilon in (4.0, 8.0) if goal == "dpals" else (1.0, 4.0):
            print(f"| {' | '.join(compared(name, goal, epsilon, repetitions))} |", flush=True)


def compared(name: str, goal: Any, epsilon: float, repetitions: int) -> list[str]:
    """One row of the table."""
    folder = os.environ.get("DISCREET_DATA")
    ratings = (
        load_dataset(name)
        if folder is None or name == "cinema"
        else load_dataset(name, Path(folder, name))
    )
    scale = (1.0, 5.0) if name.startswith("ml") else (0.5, 5.0)
    model = _model(goal, epsilon, scale)
    tuning = Tuning(model, SPACES[goal], runs=10, metric=METRICS[goal])
    plain: list[float] = []
    tuned: list[float] = []
    chosen: list[int] = []
    for seed in range(repetitions):
        split = by_person(ratings, (0.9, 0.1), seed=seed)
        found = tuning.run(split.train)
        fitted = _model(goal, epsilon, scale).fit(split.train)
        plain.append(_score(fitted, split, goal))
        tuned.append(_score(found.model, split, goal))
        chosen.append(found.setting["factors"])
    most = ", ".join(f"{value} × {chosen.count(value)}" for value in sorted(set(chosen)))
    prices_of = [f"{epsilon:g}", f"{tuning.base_epsilon:.2f}"]
    return [goal, *prices_of, METRICS[goal], _shown(plain), _shown(tuned), most]


def _model(goal: Any, epsilon: float, scale: tuple[float, float]) -> PrivateRecommender:
    if goal == "dpals":
        return DPALS(epsilon=epsilon, rating_range=scale)
    return DPMF(epsilon=epsilon, goal=goal, rating_range=scale)


def _score(model: Any, split: Any, goal: str) -> float:
    return evaluate(model, split, METRICS[goal], slices=None)[METRICS[goal]]


def _shown(values: list[float]) -> str:
    spread = np.std(values, ddof=1) if len(values) > 1 else math.nan
    return f"{np.mean(values):.4f} ± {spread:.4f}"


if __name__ == "__main__":
    if sys.argv[1] == "prices":
        prices()
    elif len(sys.argv) > 4:  # one row, such as: example ml-1m 10 rating 4
        print(compared(sys.argv[2], sys.argv[4], float(sys.argv[5]), int(sys.argv[3])))
    else:
        example(sys.argv[2], int(sys.argv[3]))
