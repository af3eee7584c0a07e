"""DPALS on its synthetic task (§6.1, Figures 4 and 7): a cell is the error of one model on
held-out entries.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.frank_wolfe import DPFrankWolfe
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting import gdp
from research.entry import Record, Settings
from research.search import Candidate
from research.sources import Sources
from research.synthetic import LowRankTask, dpals_task
from research.tuned import choose, trials

DELTA = 1e-5
PRICED_BY_SIGMAS = 1e4  # a budget that says nothing: the ε is what the noise costs


def run(settings: Settings, sources: Sources) -> Record | list[Record]:
    """``model``: "DPALS", "DPFW", "FW", "ALS" or "mean"; ``users``, ``items``; ``epsilon`` or
    ``sigma``; ``steps``.

    ``parameters`` are those of the model. ``seed`` is that of the noise and of the start. With
    ``sigma``, a step of "DPFW" costs as much as a step of DPALS with that σ and ``k`` items of a
    user, 2k/σ² of μ², so that both have the same ε after as many steps. "FW" has next to no noise.
    ``tune`` has values of parameters to choose from, on the validation part of the same task
    (`tuned`).
    """
    task = _task(
        settings["users"],
        settings["items"],
        settings.get("task_seed", 0),
        settings.get("condition", 1.0),
    )
    if "tune" not in settings:
        return _scored(settings, task)
    found = choose(
        settings["tune"],
        lambda some, seed: _model(_tried(settings, some, seed)),
        task.split,
        "rmse",
    )
    return trials(settings, found, lambda some, seed: _scored(_tried(settings, some, seed), task))


def _tried(settings: Settings, candidate: Candidate, seed: int) -> Settings:
    return settings | {"seed": seed, "parameters": settings.get("parameters", {}) | candidate}


def _scored(settings: Settings, task: LowRankTask) -> Record:
    model = _model(settings)
    model.fit(task.split.train)
    found: Record = {"rmse": evaluate(model, task.split, "rmse", slices=None)["rmse"]}
    if isinstance(model, PrivateRecommender) and settings["model"] != "FW":
        found["true_epsilon"] = model.privacy_.epsilon
    return found


@lru_cache(maxsize=2)
def _task(users: int, items: int, seed: int, condition: float = 1.0) -> LowRankTask:
    return dpals_task(users, items, seed=seed, condition=condition)


def _model(settings: Settings) -> Recommender:
    given: dict[str, Any] = dict(settings.get("parameters", {}))
    if settings["model"] == "mean":
        return Bias(0.0, users=False, items=False)
    rank, steps = settings["rank"], settings["steps"]
    if settings["model"] == "ALS":
        return ALS(rank, iterations=steps, random_state=settings["seed"], **given)
    private: dict[str, Any] = dict(delta=DELTA, noise="seeded", random_state=settings["seed"])
    if settings["model"] in ("FW", "DPFW"):
        private |= {"factors": steps, "epsilon": PRICED_BY_SIGMAS}
        if settings["model"] == "DPFW":
            private["epsilon"] = gdp.epsilon(
                math.sqrt(2 * settings["k"] * steps) / settings["sigma"], DELTA
            )
        return DPFrankWolfe.configure(**(private | given))
    private |= {"factors": rank, "iterations": steps}
    if "sigma" in settings:
        sigma = settings["sigma"]
        private["sigmas"] = dict.fromkeys(("counts", "recounts", "gram", "sum"), sigma)
        private["epsilon"] = PRICED_BY_SIGMAS
    else:
        private["epsilon"] = settings["epsilon"]
    return DPALS.configure(**(private | given))
