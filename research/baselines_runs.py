"""The baselines against DPALS and DPMF: Figures 3a and 4 of the DPALS paper, and one table of all
private models.

A cell trains one model and scores it on held-out ratings. All are priced the same way, exactly, by
what they really release, for adding or removing one user.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from discreet.data.splits import Split
from discreet.evaluation.evaluator import evaluate
from discreet.models import model_class
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from research import dpals_movielens
from research.entry import Record, Settings
from research.search import Candidate
from research.sources import Sources
from research.synthetic import LowRankTask, dpals_task
from research.tuned import choose, trials

DELTA = 1e-5
STARS = {"ml-1m": (1.0, 5.0), "ml-100k": (1.0, 5.0)}
HALVES = (0.5, 5.0)


def movielens(settings: Settings, sources: Sources) -> Record | list[Record]:
    """``data``, ``replica``, ``fractions``, ``top`` (most rated items), ``scale``; ``model``,
    ``epsilon``, ``seed``.

    ``model`` (or ``kind``, where the row has a name of its own) is a name of
    `discreet.models.MODELS`, or "mean" or "user mean"; ``parameters`` are its own or its
    algorithm's. The replica is that of a twin, and the number of the split; the seed is that of
    noise and start, on the same split for all. A row with ``table4`` and ``reading`` is the paper's
    DPALS (`dpals_movielens`), and its ``epsilon`` the label. ``tune`` has values of parameters to
    choose from, on the validation part (`tuned`).
    """
    data = settings["data"]
    replica = settings.get("replica", 0)
    options = {"scale": settings["scale"]} if settings["scale"] != 1 else {}
    split = sources.random(
        data, tuple(settings["fractions"]), replica, settings.get("top"), replica, **options
    )
    if "table4" in settings:
        return _score(dpals_movielens.table_4(settings, "rating"), split)
    stars = STARS.get(data, HALVES)
    if "tune" not in settings:
        return _score(_model(settings, stars), split)
    found = choose(
        settings["tune"],
        lambda some, seed: _model(_tried(settings, some, seed), stars),
        split,
        "rmse",
    )
    return trials(
        settings,
        found,
        lambda some, seed: _score(_model(_tried(settings, some, seed), stars), split),
    )


def synthetic(settings: Settings, sources: Sources) -> Record | list[Record]:
    """``users``, ``items`` and ``task_seed`` of the task of §6.1; ``model``, ``epsilon``, ``seed``,
    ``parameters``.

    ``tune`` has values of parameters to choose from, on the validation part of task 0 with
    ``tune_users`` users.
    """
    users = settings["users"]
    items = settings["items"]
    task = _task(users, items, settings.get("task_seed", 0))
    if "tune" not in settings:
        return _score(_model(settings, None), task.split)
    other = _task(settings.get("tune_users", users), items, 0)
    found = choose(
        settings["tune"],
        lambda some, seed: _model(_tried(settings, some, seed), None),
        other.split,
        "rmse",
    )
    return trials(
        settings,
        found,
        lambda some, seed: _score(_model(_tried(settings, some, seed), None), task.split),
    )


def _tried(settings: Settings, candidate: Candidate, seed: int) -> Settings:
    return settings | {"seed": seed, "parameters": settings.get("parameters", {}) | candidate}


@lru_cache(maxsize=2)
def _task(users: int, items: int, seed: int) -> LowRankTask:
    return dpals_task(users, items, seed=seed)


def _model(settings: Settings, stars: tuple[float, float] | None) -> Recommender:
    name = str(settings.get("kind", settings["model"]))
    given = dict(settings.get("parameters", {}))
    if name in ("mean", "user mean"):
        return Bias(3.0, users=name == "user mean", items=False)
    kind = model_class(name)
    usual: dict[str, Any] = {
        "delta": DELTA,
        "goal": "rating",
        "noise": "seeded",
        "random_state": settings["seed"],
    }
    if "epsilon" in settings:
        usual["epsilon"] = float(settings["epsilon"])
    if stars is not None:
        usual["rating_range"] = stars
    by_epsilon = settings.get("by_epsilon", {}).get(str(settings.get("epsilon")), {})
    usual = {key: value for key, value in usual.items() if key in kind.parameter_names()}
    make = getattr(kind, "configure", kind)  # private models take what their algorithm takes
    return make(**(usual | given | by_epsilon))  # type: ignore[no-any-return]


def _score(model: Recommender, split: Split) -> Record:
    start = time.perf_counter()
    model.fit(split.train)
    found: Record = {"seconds": round(time.perf_counter() - start, 1)}
    found["rmse"] = evaluate(model, split, "rmse", slices=None)["rmse"]
    statement = getattr(model, "privacy_", None)
    if statement is not None:
        found["true_epsilon"] = statement.epsilon
    return found
