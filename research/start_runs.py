"""Theorem 5.3 of the DPLMC paper: the error of the private start alone, before any step.

A cell is one split of Algorithm 2 and one number that is varied: the relative error of the start,
‖U⁰ V⁰ᵀ − X*‖ / ‖X*‖ where nothing was known, on planted matrices without noise, and its slope in
double logarithms. The theorem's condition has the noise n^1.5/(|Ω| ε) for n items (its letters).
With |Ω| = r m log m, errors where noise rules have the exponents −1 in users and ε, 1.5 in items.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from discreet.privacy.users.steps import ComputeResiduals, StartFrom
from research.dplmc_runs import PRINTED_SPLIT, make, nothing, planted
from research.entry import Record, Settings
from research.scaling import slope
from research.sources import Sources

BOUNDS = {"users": -1.0, "epsilon": -1.0, "items": 1.5}
_STEPS = {"iterations": 1, "step_size": 0.1, "user_norm": 2.0, "item_norm": 2.0}
_REST = 1000.0  # of ε for the steps, which are not looked at


def run(settings: Settings, sources: Sources) -> list[Record]:
    """Relative errors over the values in ``sweep`` of what is ``varied``, and their slope.

    Settings: ``users``, ``items``, ``rank``, ``epsilon``, ``split``, ``trials``.
    """
    records: list[Record] = []
    for value in settings["sweep"][settings["varied"]]:
        one = settings | {settings["varied"]: value}
        records += [
            {"part": "point", "at": value, "seed": seed, "error": measure(one, seed)}
            for seed in range(settings["trials"])
        ]
    found = slope([(record["at"], record["error"]) for record in records])
    return [*records, found | {"bound": BOUNDS[settings["varied"]]}]


def measure(settings: Settings, seed: int) -> float:
    """Return the relative error of U⁰ V⁰ᵀ, at the ε of the start alone."""
    users, rank, items = settings["users"], settings["rank"], settings["items"]
    X, known, ratings = planted(users, rank, 0.0, seed, items)
    start = PRINTED_SPLIT if settings["split"] == "printed" else "private"
    model = make("DPLMC", _REST, start, 0.0, rank, "equal", users, dict(_STEPS), seed, items)
    model.algorithm = replace(model.algorithm, initial_epsilon=settings["epsilon"])
    model.fit(ratings)
    first = next(step for step in model.steps_ if isinstance(step, StartFrom))
    V = next(step.V for step in model.steps_ if isinstance(step, ComputeResiduals))
    U = np.asarray(ratings.to_csr() @ first.W)
    U *= np.minimum(1.0, 2.0 / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-12))
    error = float(((U @ V.T - X) ** 2)[~known].mean())
    return math.sqrt(error / nothing(X, known))
