"""What privacy costs in time: a whole private training against as many sweeps of ALS, on
simulated MovieLens 20M.

Three steps at rank 128, implicit feedback, seeded and secure noise, in turn with three sweeps
without privacy; once with the default share of items that get factors, and once with all of them,
which is the most that can be asked. Peak memory is that of a process which does nothing else, data
included.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import Any

import numpy as np

from discreet.data.datasets import load_dataset
from discreet.data.ratings import Ratings
from discreet.models.als import ALS
from discreet.models.dpals import DPALS

GOALS = {"seeded": 1.5, "secure": 2.5}
GIGABYTES = 6.0
STEPS = 3
EPSILON = 20.0


def benchmark(quick: bool = False, repeats: int = 3) -> dict[str, Any]:
    """Seconds of private training by share of items and grade of noise, of as many sweeps, and
    peak memory.
    """
    scale, rank = (0.05, 32) if quick else (1.0, 128)
    ratings = load_dataset("twin-ml20m", scale=scale)
    shares = (0.4, 1.0)
    best: dict[str, float] = {}
    for _ in range(repeats):  # the first round may compile
        best["sweeps"] = min(best.get("sweeps", np.inf), _sweeps(ratings, rank))
        for share in shares:
            for grade in GOALS:
                name = f"{grade}, {share:g}"
                best[name] = min(best.get(name, np.inf), _private(ratings, rank, share, grade))
    run = subprocess.run(
        [sys.executable, "-m", __name__, str(scale), str(rank)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": ratings.n_ratings,
        "rank": rank,
        "steps": STEPS,
        "shares": shares,
        "seconds": best,
        **json.loads(run.stdout),
    }


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    seconds = result["seconds"]
    lines = [
        "## Private training",
        "",
        (
            f"DPALS, rank {result['rank']}, {result['steps']} steps, implicit feedback,"
            f" {result['users']:,} users × {result['items']:,} items, {result['ratings']:,}"
            f" ratings; {result['steps']} sweeps of ALS on the same data take"
            f" {seconds['sweeps']:.1f} s. Best of alternating runs, everything from sealing to the"
            " finished model."
        ),
        "",
        "| noise | items with factors | seconds | times the sweeps | goal |",
        "|---|---|---|---|---|",
    ]
    for share in result["shares"]:
        for grade, goal in GOALS.items():
            found = seconds[f"{grade}, {share:g}"]
            lines.append(
                f"| {grade} | {100 * share:.0f} % | {found:.1f} | {found / seconds['sweeps']:.2f} |"
                f" {goal:g} |"
            )
    return [
        *lines,
        "",
        (
            "With secure noise and factors for all items, a process peaks at"
            f" {result['peak_gigabytes']:.2f} GB (goal: below {GIGABYTES:g})."
        ),
    ]


def _sweeps(ratings: Ratings, rank: int) -> float:
    """Seconds of as many sweeps as the private training has steps; the first one of a fit is
    not like the others.
    """
    times: list[float] = []
    ALS(rank, goal="ranking", iterations=STEPS + 1).fit(
        ratings, progress=lambda *_: times.append(_now())
    )
    return times[-1] - times[0]


def _private(ratings: Ratings, rank: int, share: float, grade: str) -> float:
    logger = logging.getLogger("discreet")
    before = logger.level
    start = _now()
    # most items of the simulated data hold little signal, which is known here
    logger.setLevel(logging.ERROR)
    try:
        DPALS(
            rank,
            epsilon=EPSILON,
            delta=1e-5,
            goal="ranking",
            iterations=STEPS,
            item_fraction=share,
            noise=grade,
            random_state=0,
        ).fit(ratings)
    finally:
        logger.setLevel(before)
    return _now() - start


def _now() -> float:
    return time.perf_counter()


def main(scale: float, rank: int) -> None:
    """Peak memory of the largest training, for a process of its own."""
    import resource

    _private(load_dataset("twin-ml20m", scale=scale), rank, 1.0, "secure")
    unit = 1 if sys.platform == "darwin" else 1024
    print(
        json.dumps(
            {"peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9}
        )
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
