"""How errors and times grow: planted matrices with one number varied at a time, and slopes in
double logarithms.

What theory says of the relative error ‖X̂ − X*‖/‖X*‖ where the noise of privacy rules (noiseless
observations, a good start; n users, m items, rank r, |Ω| = r n log n known entries, logarithms left
out):

    DPALS, proof of Theorem 2 of Chien et al. (2021):  r² √m / (ε n √p)  n^−1 · ε^−1 · m^1 · r^1.5
    DPLMC, Theorem 5.2 of Wang et al. (2023):  r² m / (ε √(n |Ω|)) / √r  n^−1 · ε^−1 · m^1 · r^1
    DPFW, Remark 6 of Chien et al.:  (m^1.25 / (n ε))^0.2             n^−0.2 · ε^−0.2 · m^0.25

(p = |Ω|/nm; the statement of Theorem 2 has √m once more, see docs/errata.md; the second theorem
bounds ‖X̂ − X*‖, and ‖X*‖ grows with √r; both fall with |Ω|/n to the power of −1/2). There is none
for the private SVD. Of the time of one step:

    DPALS, §3.2:    |Ω| r² + (n + m) r³            DPLMC:    |Ω| r

These are upper bounds; what is measured may grow more slowly. A cell is one model and one number
that is varied.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from research.dplmc_runs import error, make, nothing, planted, tune
from research.entry import Record, Settings
from research.search import Candidate, Rounds, Values
from research.sources import Sources

BOUNDS = {
    ("DPALS", "users"): -1.0,
    ("DPALS", "epsilon"): -1.0,
    ("DPALS", "items"): 1.0,  # by the proof; the statement of Theorem 2 has √m once more
    ("DPALS", "rank"): 1.5,
    ("DPALS", "per_user"): -0.5,
    ("DPLMC", "users"): -1.0,
    ("DPLMC", "epsilon"): -1.0,
    ("DPLMC", "items"): 1.0,
    ("DPLMC", "rank"): 1.0,
    ("DPLMC", "per_user"): -0.5,
    ("DPFW", "users"): -0.2,
    ("DPFW", "epsilon"): -0.2,
    ("DPFW", "items"): 0.25,
}
STEPS = {"DPFW": "factors"}  # what their number is called, where not "iterations"
_CHOSEN: dict[str, Candidate] = {
    "DPALS": {"iterations": 4, "max_items": 50, "regularization": 1.0, "initial_scale": 0.1},
    "DPLMC": {"iterations": 20, "step_size": 0.5, "user_norm": 2.0, "item_norm": 2.0},
}


def errors(settings: Settings, sources: Sources) -> list[Record]:
    """Relative errors over the values in ``sweep`` of what is ``varied``, and their slope.

    The other numbers are the cell's. Parameters are searched for at every value and for each
    read-out, as in `dplmc_runs`. seconds are of one core, for the training.
    """
    found: dict[str, list[Record]] = {}
    for value in settings["sweep"][settings["varied"]]:
        one = {"per_user": 0.0} | settings | {settings["varied"]: value}
        for read_out, chosen in _tuned(one).items():
            name = f"{one['model']}, {read_out}" if read_out else one["model"]
            for seed in range(settings["trials"]):
                point = {"part": "point", "model": name, "at": value, "seed": seed}
                found.setdefault(name, []).append(point | _measure(one, chosen, read_out, seed))
    records: list[Record] = []
    for name, points in found.items():
        fitted = slope([(point["at"], point["error"]) for point in points]) | {"model": name}
        bound = BOUNDS.get((settings["model"], settings["varied"]))
        records += [*points, fitted if bound is None else fitted | {"theory": bound}]
    return records


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


def _measure(settings: Settings, chosen: Candidate, read_out: str, seed: int) -> Record:
    size = (settings["users"], settings["rank"])
    items, per_user = settings["items"], settings["per_user"]
    X, known, ratings = planted(*size, 0.0, seed, items, per_user)
    model = make(
        settings["model"],
        settings["epsilon"],
        "private",
        0.0,
        settings["rank"],
        "equal",
        settings["users"],
        chosen,
        seed,
        items,
        per_user,
    )
    start = time.process_time()
    model.fit(ratings)
    seconds = time.process_time() - start
    relative = math.sqrt(error(model, X, known, ratings, read_out) / nothing(X, known))
    return {"error": relative, "seconds": seconds, "chosen": chosen}


def _tuned(settings: Settings) -> dict[str, Candidate]:
    """By the median over three other matrices, for each read-out."""
    candidates = settings["candidates"]
    model, per_user = settings["model"], settings["per_user"]
    fixed: list[tuple[str, Values]] = []
    if "steps" in settings:
        fixed.append((STEPS.get(model, "iterations"), (settings["steps"],)))
    if per_user and model == "DPALS":  # k follows the number of ratings
        fixed.append(("max_items", tuple(round(share * per_user) for share in (0.8, 1.0, 1.2))))
    found = tune(
        model,
        settings["epsilon"],
        "private",
        0.0,
        settings["rank"],
        "equal",
        settings["users"],
        Rounds(candidates, (max(1, candidates // 4),), (1, 3)),
        items=settings["items"],
        per_user=per_user,
        fixed=tuple(fixed),
    )
    return {name: one.best for name, one in found.items()}


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
