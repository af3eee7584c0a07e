"""The private models by default on real ratings, at several budgets, against what is not private
and what is free.
"""

from __future__ import annotations

from discreet.data.splits import Split
from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from discreet.models.popularity import Popularity
from discreet.models.private import PrivateRecommender
from research.entry import Record, Settings
from research.sources import Sources

DELTA = 1e-5
RANGES = {"cinema": (0.5, 5.0)}


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``seed``, ``protocol``: "ratings" (90/10, RMSE) or "users" (held
    out, recall@20).
    """
    split = _split(settings, sources)
    metric = "rmse" if settings["protocol"] == "ratings" else "recall@20"
    model = _model(settings)
    model.fit(split.train)
    found: Record = {metric: evaluate(model, split, metric, slices=None)[metric]}
    if isinstance(model, PrivateRecommender):
        found["true_epsilon"] = model.privacy_.epsilon
    return found


def _split(settings: Settings, sources: Sources) -> Split:
    name, seed = settings["data"], settings["seed"]
    if settings["protocol"] == "ratings":
        return sources.random(name, (0.9, 0.1), seed=seed, scale=settings["scale"])
    return sources.strong(name, settings["held"], seed=seed, scale=settings["scale"])


def _model(settings: Settings) -> Recommender:
    goal = "rating" if settings["protocol"] == "ratings" else "ranking"
    name = settings["model"]
    seed = settings["seed"]
    if name in ("DPMF", "DPALS"):
        scale = RANGES.get(settings["data"], (1.0, 5.0)) if goal == "rating" else None
        common = dict(
            epsilon=settings["epsilon"],
            delta=DELTA,
            noise="seeded",
            random_state=seed,
            rating_range=scale,
        )
        common |= settings.get("parameters", {})
        if name == "DPMF":
            return DPMF.configure(goal=goal, **common)
        return DPALS.configure(goal=goal, **common)
    if name == "ALS":
        return ALS(goal=goal, random_state=seed)
    if name == "popular":
        return Popularity()
    return Bias(3.0, items=False) if name == "user mean" else Bias()
