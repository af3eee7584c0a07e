"""DPALS from the paper's algorithm to the defaults, one lever after the other (docs/beyond.md).

Every row has all levers of the rows above it. True (ε, δ = 1e-5), add or remove one user, exactly accounted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from discreet.data.datasets import load_dataset
from discreet.data.splits import Split
from discreet.evaluation.protocols import evaluate
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.popularity import Popularity

STARS = {"ml-1m": (1.0, 5.0), "ml-100k": (1.0, 5.0), "sweetrs": (1.0, 5.0)}
START: dict[str, dict[str, Any]] = {
    "explicit": dict(factors=16, iterations=2, shrinkage=False, centring="global", rating_bound=5.0, intercept=0.0,
                     noise_ridge=0.0),
    "implicit": dict(factors=16, iterations=2, regularization=0.5, noise_ridge=0.0),
}  # fmt: skip
# what each lever changes; None takes the default
LEVERS: dict[str, dict[str, dict[str, Any]]] = {
    "explicit": {
        "the paper's algorithm": {},
        "+ each user's own mean, smaller cut": dict(centring="user", rating_bound=None),
        "+ intercept": dict(intercept=None),
        "+ ridge for the noise": dict(noise_ridge=0.25),
        "+ adaptive weights": dict(sampling="adaptive"),
        "+ estimate by known noise, heard items": dict(shrinkage=True, growth=1.0),
        "+ rank and steps by the budget": dict(factors=None, iterations=None),
        "+ growing budget: the defaults": dict(growth=None),
    },
    "implicit": {
        "the paper's algorithm": {},
        "+ ridge for the noise": dict(noise_ridge=0.25),
        "+ rank 32": dict(factors=None),
        "+ λ by the released counts": dict(regularization=None),
        "+ steps by the budget: the defaults": dict(iterations=None),
    },
}


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``replica`` (seed of a twin), ``feedback``, ``lever``, ``epsilon``, ``seed`` (of noise and start)."""
    feedback, name = settings["feedback"], settings["data"]
    split = _split(name, settings["replica"], settings["scale"], feedback, settings.get("held", 0), sources)
    metric = "rmse" if feedback == "explicit" else "recall@20"
    baselines = {"user's own mean": Bias(3.0, items=False), "bias, not private": Bias(), "popular": Popularity()}
    if settings["lever"] in baselines:
        model = baselines[settings["lever"]].fit(split.train)
        return {metric: evaluate(model, split, metric, slices=None)[metric]}
    given = dict(START[feedback])
    for lever, change in LEVERS[feedback].items():
        given |= change
        if lever == settings["lever"]:
            break
    scale = STARS.get(name, (0.5, 5.0)) if feedback == "explicit" else None
    model = DPALS(epsilon=settings["epsilon"], delta=1e-5, feedback=feedback, rating_range=scale, noise="seeded",
                  random_state=settings["seed"], **given).fit(split.train)  # fmt: skip
    return {metric: evaluate(model, split, metric, slices=None)[metric], "true_epsilon": model.privacy_.epsilon}


@lru_cache(maxsize=1)
def _split(name: str, replica: int, scale: float, feedback: str, held: int, sources: Sources) -> Split:
    from discreet.data.splits import random_ratings, strong_generalisation

    if name.startswith("twin"):
        ratings = load_dataset(name, seed=replica, scale=scale)
    else:
        ratings = sources.ratings(name, scale=scale)
    if feedback == "implicit":
        return strong_generalisation(ratings, held, held, seed=replica)
    return random_ratings(ratings, (0.8, 0.1, 0.1), seed=replica)
