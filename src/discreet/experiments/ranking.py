"""Lists from private and other models: recall, coverage, and recall by popularity (docs/beyond.md)."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from discreet.data import datasets
from discreet.data.ratings import Ratings
from discreet.data.splits import Split, strong_generalisation
from discreet.errors import DataError
from discreet.evaluation.protocols import evaluate
from discreet.experiments.beyond import genres_and_years
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from discreet.models.popularity import Popularity

#: Where the upper quarter of the scale begins.
LIKED_FROM = {"movietweetings": 8.0}
NEVER = 1e9  # a gate that no signal passes


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``held`` (part of the users), ``scale``, ``seed`` (of split and noise)."""
    split = _split(settings["data"], settings["held"], settings["scale"], settings["seed"], sources)
    model = _model(settings, sources)
    model.fit(split.train)
    scores = evaluate(model, split, ["recall@20", "coverage@20"])
    found: Record = {"recall@20": scores["recall@20"], "coverage@20": scores["coverage@20"]}
    for part in scores.slices:
        found[f"quintile {part.quintile}"] = part.values["recall@20"]
    if hasattr(model, "privacy_"):
        found["true_epsilon"] = model.privacy_.epsilon
    if isinstance(model, DPMF):
        found["dimensions"] = float(model.details_["dimensions"])
        found["signal"] = float(model.details_["signal"])
    return found


def _model(settings: Settings, sources: Sources) -> Recommender:
    name = settings["model"]
    seed = settings["seed"]
    if name == "popular, not private":
        return Popularity()
    if name == "ALS, not private":
        return ALS(feedback="implicit", random_state=seed)
    promise: dict[str, Any] = dict(epsilon=settings["epsilon"], delta=1e-6, noise="seeded", random_state=seed)
    if name == "DPALS":
        return DPALS(feedback="implicit", **promise)
    ours: dict[str, dict[str, Any]] = {
        "DPMF": {},
        "DPMF, with genres and years": {"item_features": "genres"},
        "private popularity": {"gate": NEVER},
    }
    given = ours[name]
    if "item_features" in given:
        given = {"item_features": genres_and_years(settings["data"], sources)}
    return DPMF.configured(goal="ranking", liked_from="everything", **promise, **given)


@lru_cache(maxsize=2)
def _split(name: str, held: float, scale: float, seed: int, sources: Sources) -> Split:
    """Whole users held out, of those who like five items; 80 % of what they like is shown."""
    liked = _ratings(name, scale, sources).binarize(LIKED_FROM.get(name, 4.0))
    liked = liked.filter(min_user_ratings=5, min_item_ratings=1)
    return strong_generalisation(liked, 0, int(held * liked.n_users), seed=seed)


def _ratings(name: str, scale: float, sources: Sources) -> Ratings:
    """Also of a folder in DISCREET_DATA that the library does not know by name."""
    if name in {known.name for known in datasets.datasets()}:
        return sources.ratings(name, scale=scale)
    file = Path(os.environ.get("DISCREET_DATA", "."), name, "ratings.parquet")
    if not file.exists():
        raise DataError(f"{name} is not on this machine: put its ratings.parquet in a folder {name} of DISCREET_DATA")
    return Ratings.read(file)
