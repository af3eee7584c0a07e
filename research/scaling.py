"""How errors and times grow: planted matrices with one number varied at a time, and slopes in
double logarithms.

What theory says of the relative error ‖X̂ − X*‖/‖X*‖ where the noise of privacy rules (noiseless
observations, a good start; n users, m items, rank r, |Ω| = r n log n known entries, logarithms left
out):

    DPALS, proof of Theorem 2 of Chien et al. (2021):  r² √m / (ε n √p)  n^−1 · ε^−1 · m^1 · r^1.5
    DPLMC, Theorem 5.2 of Wang et al. (2023):  r² m / (ε √(n |Ω|)) / √r  n^−1 · ε^−1 · m^1 · r^1

(p = |Ω|/nm; the statement of Theorem 2 has √m once more, see docs/errata.md; the second theorem
bounds ‖X̂ − X*‖, and ‖X*‖ grows with √r),

and of the time of one step:

    DPALS, §3.2:    |Ω| r² + (n + m) r³            DPLMC:    |Ω| r

These are upper bounds; what is measured may grow more slowly. A cell is one model and one number
that is varied.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from discreet.errors import BudgetExceeded
from research.dplmc_runs import RANGES, error, make, nothing, planted
from research.entry import Record, Settings
from research.search import Candidate, Rounds, draw, search
from research.sources import Sources

BOUNDS = {
    ("DPALS", "users"): -1.0,
    ("DPALS", "epsilon"): -1.0,
    ("DPALS", "items"): 1.0,  # by the proof; the statement of Theorem 2 has √m once more
    ("DPALS", "rank"): 1.5,
    ("DPLMC", "users"): -1.0,
    ("DPLMC", "epsilon"): -1.0,
    ("DPLMC", "items"): 1.0,
    ("DPLMC", "rank"): 1.0,
}
_VALIDATION = 80_100
_CHOSEN: dict[str, Candidate] = {
    "DPALS": {"iterations": 4, "max_items": 50, "regularization": 1.0, "initial_scale": 0.1},
    "DPLMC": {"iterations": 20, "step_size": 0.5, "user_norm": 2.0, "item_norm": 2.0},
}


def errors(settings: Settings, sources: Sources) -> list[Record]:
    """Relative errors over the values in ``sweep`` of what is ``varied``, and their slope.

    The other numbers are the cell's. Parameters are searched for at every value, as in
    `dplmc_runs`.
    """
    records: list[Record] = []
    for value in settings["sweep"][settings["varied"]]:
        one = settings | {settings["varied"]: value}
        found = _tuned(
            one["model"], one["epsilon"], one["rank"], one["users"], one["items"], one["candidates"]
        )
        for seed in range(settings["trials"]):
            start = time.process_time()
            relative = _relative(one, found, seed)
            seconds = time.process_time() - start
            point = {
                "part": "point",
                "at": value,
                "seed": seed,
                "error": relative,
                "seconds": seconds,
            }
            records.append(point | {"chosen": found})
    points = [(record["at"], record["error"]) for record in records]
    return [*records, slope(points) | {"theory": BOUNDS[settings["model"], settings["varied"]]}]


def cost(settings: Settings, sources: Sources) -> list[Record]:
    """Seconds of one core for one step, over the values in ``sweep`` of what is ``varied``, and
    their slope.

    A step is the difference between a training with several steps and one with one, the least of
    three. The planted matrix has a rank of its own, so that the number of ratings stays what it is
    when the rank of the model grows.
    """
    records: list[Record] = []
    for value in settings["sweep"][settings["varied"]]:
        one = settings | {settings["varied"]: value}
        seconds = min(_step_seconds(one) for _ in range(settings["repeats"]))
        records.append({"part": "point", "at": value, "milliseconds": 1e3 * seconds})
    return [*records, slope([(record["at"], record["milliseconds"]) for record in records])]


def slope(points: Sequence[tuple[float, float]]) -> Record:
    """d log y / d log x by least squares, with an interval of 95 % (Student's t)."""
    from scipy import stats

    x = np.log([point[0] for point in points])
    y = np.log([max(point[1], 1e-12) for point in points])
    fitted = stats.linregress(x, y)
    reach = (
        float(stats.t.ppf(0.975, len(points) - 2)) * float(fitted.stderr)
        if len(points) > 2
        else math.nan
    )
    middle = float(fitted.slope)
    return {"part": "slope", "slope": middle, "low": middle - reach, "high": middle + reach}


def _relative(settings: Settings, chosen: Candidate, seed: int) -> float:
    users, rank, items = settings["users"], settings["rank"], settings["items"]
    X, known, ratings = planted(users, rank, 0.0, seed, items)
    model = make(
        settings["model"],
        settings["epsilon"],
        "private",
        0.0,
        rank,
        "equal",
        users,
        chosen,
        seed,
        items,
    )
    return math.sqrt(error(model.fit(ratings), X, known, ratings) / nothing(X, known))


@cache
def _tuned(
    model: str, epsilon: float, rank: int, users: int, items: int, candidates: int
) -> Candidate:
    """By the median over three other matrices."""
    settings: dict[str, Any] = {
        "model": model,
        "epsilon": epsilon,
        "rank": rank,
        "users": users,
        "items": items,
    }

    def score(chosen: Candidate, at: int) -> float:
        try:
            return _relative(settings, chosen, _VALIDATION + at)
        except BudgetExceeded:
            return math.inf

    rounds = Rounds(candidates, (max(1, candidates // 4),), (1, 3))
    return search(draw(RANGES[model], candidates), score, rounds).best


def _step_seconds(settings: Settings) -> float:
    """Of one core, by the difference between many steps and one."""
    users, rank, items = settings["users"], settings["rank"], settings["items"]
    ratings = planted(users, settings["planted_rank"], 0.0, 0, items)[2]
    taken = []
    for steps in (1, 1 + settings["steps"]):
        chosen = _CHOSEN[settings["model"]] | {"iterations": steps}
        model = make(
            settings["model"], 1000.0, "random", 0.0, rank, "equal", users, chosen, 0, items
        )
        model.fit(ratings)  # compiled, and in the cache
        start = time.process_time()
        model.fit(ratings)
        taken.append(time.process_time() - start)
    return max(taken[1] - taken[0], 1e-6) / settings["steps"]
