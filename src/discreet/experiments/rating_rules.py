"""How the rules for ratings were chosen: settings of DPMF and λ of ALS and Bias, compared on data that nobody quotes.

``python -m discreet.experiments.rating_rules`` prints, for each set, validation RMSE by setting and ε, and how far λ by
the rule is from the best λ. Sets are validation parts of split 7 of cinema and members 0 of generated families
(`families`); real sets are added by name and place, ``ml-1m=ratings.parquet``.
"""

from __future__ import annotations

import sys
from typing import Any

from discreet.data.datasets import load_dataset
from discreet.data.ratings import Ratings
from discreet.data.splits import Split, random_ratings
from discreet.evaluation.protocols import evaluate
from discreet.experiments.families import FAMILIES, SCALES, made
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpmf import DPMF

SMALL = 10_000  # people of a family
EPSILONS = (0.25, 1.0, 5.0, 20.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "by default": {},
    "biases alone": dict(factors=0),
    "no slope": dict(slope=0.0),
    "no taste for what is popular": dict(taste=0.0),
    "counts as they are": dict(likely=False),
    "even weights": dict(rarity=0.0),
    "pairs whatever they cost": dict(gate=1e9),
    "core of 100": dict(largest_core=100),
    "core of 400": dict(largest_core=400),
    "2 steps": dict(iterations=2),
    "8 steps": dict(iterations=8),
    "steps alike": dict(growth=1.0),
}
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # times λ by the rule
COUNTS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0)  # λ of Bias


def sets(given: list[str]) -> dict[str, tuple[Ratings, tuple[float, float] | None]]:
    """Ratings and their range by name."""
    found: dict[str, tuple[Ratings, tuple[float, float] | None]] = {"cinema": (load_dataset("cinema"), (0.5, 5.0))}
    for one in FAMILIES:
        if one.users <= 2 * SMALL:
            low, high, _ = SCALES[one.scale]
            found[one.name] = (made(one.scaled(SMALL)), (low, high))
    for name, _, place in (text.partition("=") for text in given):
        found[name] = (Ratings.read(place), None)
    return found


def score(model: Recommender, split: Split) -> float:
    """RMSE on the validation part."""
    assert split.valid is not None
    model.fit(split.train)
    return float(evaluate(model, Split("valid", 0, split.train, split.valid), "rmse", slices=None)["rmse"])


def choose(name: str, ratings: Ratings, scale: tuple[float, float] | None) -> None:
    """Print what this set says."""
    split = random_ratings(ratings, (0.8, 0.1, 0.1), seed=7)
    scale = scale or ratings.rating_range()
    for setting, given in SETTINGS.items():
        models = [
            DPMF.configured(
                epsilon=epsilon,
                delta=1e-5,
                goal="rating",
                rating_range=scale,
                noise="seeded",
                random_state=0,
                **given,
            )
            for epsilon in EPSILONS
        ]
        print(name, "·", setting, *(f"{score(model, split):.4f}" for model in models), sep="\t")
    usual = ALS(16, iterations=10)
    scores = {1.0: score(usual, split)}
    for factor in FACTORS:
        if factor != 1:
            scores[factor] = score(ALS(16, iterations=10, regularization=factor * usual.regularization_), split)
    best = min(scores.values())
    print(name, "· ALS, λ over the rule's", *(f"{at:g}: {scores[at] / best:.4f}" for at in FACTORS), sep="\t")
    biases = {count: score(Bias(count), split) for count in COUNTS}
    best = min(biases.values())
    print(name, "· Bias, λ", *(f"{at:g}: {value / best:.4f}" for at, value in biases.items()), sep="\t")


def main() -> None:
    """All sets, one after the other."""
    for name, (ratings, scale) in sets(sys.argv[1:]).items():
        choose(name, ratings, scale)


if __name__ == "__main__":
    main()
