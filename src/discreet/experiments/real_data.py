"""Models as they come on real ratings: DPALS at several budgets beside what is not private and what is free."""

from __future__ import annotations

from discreet.data.splits import Split
from discreet.evaluation.protocols import evaluate
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.popularity import Popularity

DELTA = 1e-5
RANGES = {"cinema": (0.5, 5.0)}


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``seed``, ``protocol``: "ratings" (90/10, RMSE) or "users" (held out, recall@20)."""
    split, metric = _split(settings, sources), "rmse" if settings["protocol"] == "ratings" else "recall@20"
    model = _model(settings)
    model.fit(split.train)
    found: Record = {metric: evaluate(model, split, metric, slices=None)[metric]}
    if isinstance(model, DPALS):
        found["true_epsilon"] = model.privacy_.epsilon
    return found


def _split(settings: Settings, sources: Sources) -> Split:
    name, seed = settings["data"], settings["seed"]
    if settings["protocol"] == "ratings":
        return sources.random(name, (0.9, 0.1), seed=seed, scale=settings["scale"])
    return sources.strong(name, settings["held"], seed=seed, scale=settings["scale"])


def _model(settings: Settings) -> Recommender:
    feedback = "explicit" if settings["protocol"] == "ratings" else "implicit"
    name, seed = settings["model"], settings["seed"]
    if name == "DPALS":
        scale = RANGES.get(settings["data"], (1.0, 5.0)) if feedback == "explicit" else None
        given = settings.get("parameters", {})
        return DPALS(
            epsilon=settings["epsilon"],
            delta=DELTA,
            feedback=feedback,
            rating_range=scale,
            noise="seeded",
            random_state=seed,
            **given,
        )
    if name == "ALS":
        return ALS(feedback=feedback, random_state=seed)
    if name == "popular":
        return Popularity()
    return Bias(3.0, items=False) if name == "user mean" else Bias()
