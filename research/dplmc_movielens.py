"""DPLMC and DPALS, the papers' algorithms, compared with DPMF and what is free or not private, on
MovieLens shapes.
"""

from __future__ import annotations

from typing import Any

from discreet.evaluation.evaluator import evaluate
from discreet.models import model_class
from discreet.models.bias import Bias
from research.entry import Record, Settings
from research.sources import Sources

DELTA = 1e-5
_RANGES = {"ml-1m": (1.0, 5.0), "ml-100k": (1.0, 5.0)}  # half stars elsewhere


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``parts`` and ``seed`` of the split (of ratings at random); ``model``,
    ``epsilon``: test RMSE.
    """
    name = settings["data"]
    split = sources.random(
        name, tuple(settings["parts"]), seed=settings["seed"], scale=settings["scale"]
    )
    model = _model(settings, name).fit(split.train)
    found: Record = {"rmse": evaluate(model, split, "rmse", slices=None)["rmse"]}
    if hasattr(model, "privacy_"):
        found["true_epsilon"] = model.privacy_.epsilon
    return found


def _model(settings: Settings, data: str) -> Any:
    name = settings["model"]
    if "epsilon" not in settings:
        return Bias(3.0, items=False) if name == "user's own mean" else Bias()
    goal = {"goal": "rating"} if name == "DPMF" else {}
    return model_class(name).configure(
        epsilon=settings["epsilon"],
        delta=DELTA,
        rating_range=_RANGES.get(data, (0.5, 5.0)),
        noise="seeded",
        random_state=settings["seed"],
        **goal,
        **settings.get("parameters", {}),
    )
