"""DPALS on its synthetic task (§6.1, Figures 4 and 7): a cell is the error of one model on held-out entries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from discreet.data.synthetic import LowRankTask, dpals_task
from discreet.evaluation.protocols import evaluate
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS

DELTA = 1e-5
PRICED_BY_SIGMAS = 1e4  # a budget that says nothing: the ε is what the noise costs


def run(settings: Settings, sources: Sources) -> Record | list[Record]:
    """``model``: "DPALS", "ALS" or "mean"; ``users``, ``items``; ``epsilon`` or ``sigma``; ``steps``; ``seed``.

    ``parameters`` are those of the model. The seed is that of the noise, of the start and of the split.
    """
    task = _task(settings["users"], settings["items"], settings.get("task_seed", 0))
    model = _model(settings)
    model.fit(task.split.train)
    found: Record = {"rmse": evaluate(model, task.split, "rmse", slices=None)["rmse"]}
    if isinstance(model, DPALS):
        found |= {"true_epsilon": model.privacy_.epsilon}
    return found


@lru_cache(maxsize=2)
def _task(users: int, items: int, seed: int) -> LowRankTask:
    return dpals_task(users, items, seed=seed)


def _model(settings: Settings) -> Recommender:
    given: dict[str, Any] = dict(settings.get("parameters", {}))
    if settings["model"] == "mean":
        return Bias(0.0, users=False, items=False)
    rank, steps = settings["rank"], settings["steps"]
    if settings["model"] == "ALS":
        return ALS(rank, iterations=steps, random_state=settings["seed"], **given)
    private: dict[str, Any] = dict(
        delta=DELTA, noise="seeded", random_state=settings["seed"], factors=rank, iterations=steps
    )
    if "sigma" in settings:
        sigma = settings["sigma"]
        private["sigmas"] = dict.fromkeys(("counts", "recounts", "gram", "sum"), sigma)
        private["epsilon"] = PRICED_BY_SIGMAS
    else:
        private["epsilon"] = settings["epsilon"]
    return DPALS.configured(**(private | given))
