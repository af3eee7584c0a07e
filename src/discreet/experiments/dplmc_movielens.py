"""DPLMC as it comes, beside DPALS with the other item step and what is free or not private, on MovieLens shapes."""

from __future__ import annotations

from typing import Any

from discreet.evaluation.protocols import evaluate
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.als import ALS
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.dplmc import DPLMC
from discreet.models.popularity import Popularity

DELTA = 1e-5
_RANGES = {"ml-1m": (1.0, 5.0), "ml-100k": (1.0, 5.0)}  # half stars elsewhere


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``seed``, ``protocol``: "ratings" (held out at random, RMSE) or "users" (recall@20)."""
    name, seed, scale = settings["data"], settings["seed"], settings["scale"]
    if settings["protocol"] == "ratings":
        split, metric = sources.random(name, tuple(settings["parts"]), seed=seed, scale=scale), "rmse"
    else:
        split, metric = sources.strong(name, settings["held"], seed=seed, scale=scale), "recall@20"
    model = _model(settings, name).fit(split.train)
    found: Record = {metric: evaluate(model, split, metric, slices=None)[metric]}
    if hasattr(model, "privacy_"):
        found["true_epsilon"] = model.privacy_.epsilon
    return found


def _model(settings: Settings, data: str) -> Any:
    explicit, name, seed = settings["protocol"] == "ratings", settings["model"], settings["seed"]
    feedback = "explicit" if explicit else "implicit"
    if "epsilon" in settings:
        scale = _RANGES.get(data, (0.5, 5.0)) if explicit else None
        given: dict[str, Any] = {"item_step": "solve"} if name == "DPALS, item_step='solve'" else {}
        return (DPLMC if name == "DPLMC" else DPALS)(
            epsilon=settings["epsilon"],
            delta=DELTA,
            feedback=feedback,
            rating_range=scale,
            noise="seeded",
            random_state=seed,
            **given,
            **settings.get("parameters", {}),
        )
    if name == "ALS":
        return ALS(feedback=feedback, random_state=seed)
    if name == "most popular":
        return Popularity()
    return Bias(3.0, items=False) if name == "user's own mean" else Bias()
