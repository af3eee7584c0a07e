"""DPMF against factorizations without privacy, and the rules for their λ against the best λ
(docs/dpmf.md).

`reached` is DPMF by default on ML-1M and on fresh replicas of simulated ML-10M, against goals
that were set before; `dense` compares it at ε = 20 with the best of many non-private
factorizations, with many users who each have rated a good part of all items; `ridge` scans λ of
`ALS` and `Bias`. The best is the best *of the test part*, so that the reference is not weak.
"""

from __future__ import annotations

from discreet.data.datasets import load_dataset
from discreet.data.splits import Split, random_ratings
from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpmf import DPMF
from research.beyond import STARS, split_of
from research.entry import Record, Settings
from research.families import SCALES, Family, family, made
from research.sources import Sources

GOALS = {
    "ml-1m": {1: 0.925, 5: 0.880, 10: 0.865, 20: 0.855},
    "twin-ml10m": {1: 0.795, 5: 0.775, 10: 0.773, 20: 0.772},
}
DENSE = {
    one.name: one
    for one in (
        family("jokes"),
        Family(
            "sketches",
            25_000,
            100,
            40,
            skew=0.3,
            rank=6,
            taste=0.5,
            strength=1.0,
            scale="-10 to 10",
        ),
        Family("courses", 20_000, 400, 60, skew=0.8, rank=10, taste=1.0, scale="0 to 10"),
        Family("votes", 30_000, 150, 40, skew=0.5, rank=5, taste=0.0, strength=1.2, scale="0 to 1"),
        Family("party games", 25_000, 60, 15, skew=0.3, rank=3, strength=1.2, scale="-10 to 10"),
        Family("short surveys", 25_000, 100, 10, skew=0.3, rank=6),
    )
}
RANKS = (3, 4, 6, 8, 16)
FACTORS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)  # times λ by default
COUNTS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0)  # λ of `Bias`


def reached(settings: Settings, sources: Sources) -> Record:
    """``data``, ``epsilon``, ``scale``, ``seed`` (of the split of ML-1M, and of the replica of
    the twin).
    """
    name = settings["data"]
    if name.startswith("twin"):
        ratings = load_dataset(name, seed=settings["seed"], scale=settings["scale"])
        split = random_ratings(ratings, (0.8, 0.1, 0.1), seed=settings["seed"])
    else:
        split = sources.random(name, (0.9, 0.1), settings["seed"], scale=settings["scale"])
    found = _private(split, settings["epsilon"], STARS.get(name, (0.5, 5.0)))
    goal = GOALS.get(name, {}).get(settings["epsilon"])
    return {"rmse": found} if goal is None else {"rmse": found, "goal": goal}


def dense(settings: Settings, sources: Sources) -> Record:
    """``family`` (of `DENSE`), ``scale`` (of its users), ``seed`` (of all)."""
    kind = DENSE[settings["family"]]
    kind = kind.scaled(round(kind.users * settings["scale"]))
    split = random_ratings(made(kind, settings["seed"]), (0.8, 0.1, 0.1), seed=settings["seed"])
    found = {}
    for rank in RANKS:
        usual = ALS(rank)
        found[rank, 1.0] = _score(usual, split)
        for factor in FACTORS[1:-1]:
            if factor != 1:
                found[rank, factor] = _score(
                    ALS(rank, regularization=factor * usual.regularization_), split
                )
    best = min(found.values())
    ours = _private(split, 20.0, SCALES[kind.scale][:2])
    return {
        "DPMF at ε = 20": ours,
        "best ALS": best,
        "its rank": min(found, key=lambda at: found[at])[0],
        "ALS()": _score(ALS(), split),
        "DPMF above the best, %": 100 * (ours / best - 1),
    }


def ridge(settings: Settings, sources: Sources) -> Record:
    """``data``, ``scale``, ``seed`` (of the split and of what is generated)."""
    split = split_of(settings["data"], settings["seed"], settings["scale"], "rating", 0, sources)
    usual = ALS()
    found = {1.0: _score(usual, split)}
    for factor in FACTORS:
        if factor != 1:
            found[factor] = _score(ALS(regularization=factor * usual.regularization_), split)
    best = min(found, key=lambda factor: found[factor])
    by_count = min(_score(Bias(count), split) for count in COUNTS)
    biases = _score(Bias(), split)
    return {
        "ALS()": found[1.0],
        "best λ over its own": best,
        "ALS() above the best λ, %": 100 * (found[1.0] / found[best] - 1),
        "Bias()": biases,
        "Bias() above the best λ, %": 100 * (biases / by_count - 1),
    }


def _private(split: Split, epsilon: float, scale: tuple[float, float]) -> float:
    """Secure noise, so that no seed stands behind the number."""
    return _score(DPMF(epsilon=epsilon, delta=1e-5, goal="rating", rating_range=scale), split)


def _score(model: Recommender, split: Split) -> float:
    return float(evaluate(model.fit(split.train), split, "rmse", slices=None)["rmse"])
