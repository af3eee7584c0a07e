"""Lists from private and other models: recall, coverage, and recall by popularity (docs/dpmf.md).

Users who like five items or more take part (two where generated users have few ratings). A tenth
of them is held out; of what these like, 80 % is shown, with its ratings, and the rest must be
guessed. DPMF learns from all ratings of the others; models of plain choices learn from what the
others like, as in the literature.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.data import datasets
from discreet.data.ratings import Ratings
from discreet.data.splits import Split, strong_generalization
from discreet.errors import DataError
from discreet.evaluation.evaluator import Evaluation, evaluate
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from discreet.models.dpmf.pair_factorization import FittedFactors, leading_eigenpairs
from discreet.models.dpmf.ranking import PairRanking
from discreet.models.dpsvd import DPSVD
from discreet.models.popularity import Popularity
from research import families
from research.beyond import genres_and_years
from research.entry import Record, Settings
from research.sources import Sources

#: Where the upper quarter of the scale begins, and the scale; 4 of 1 to 5 by default.
LIKED_FROM = {"movietweetings": 8.0}
RANGES = {"movietweetings": (0.0, 10.0)}
LIKES_ONLY = "DPMF, likes only"
NEVER = 1e9  # a gate that no signal passes
FAMILY = "family: "  # what the names of generated data begin with
MOST_HELD = 10_000  # users


@dataclass(frozen=True)
class People:
    """Held-out users, and the ratings of all others: of what they like, and of everything."""

    split: Split
    everything: Ratings
    rating_range: tuple[float, float] | None


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``held`` (part of the users), ``scale``, ``seed`` (of
    split and noise).
    """
    people = held_out(
        settings["data"], settings["held"], settings["scale"], settings["seed"], sources
    )
    model = _model(settings, people, sources)
    graded = isinstance(model, DPMF | DPSVD) and settings["model"] != LIKES_ONLY
    model.fit(people.everything if graded else people.split.train)
    return measured(model, people)


def measured(model: Recommender, people: People, part: Literal["test", "valid"] = "test") -> Record:
    """Recall, coverage and recall by popularity of a fitted model."""
    scores: Evaluation = evaluate(model, people.split, ["recall@20", "coverage@20"], part=part)
    found: Record = {"recall@20": scores["recall@20"], "coverage@20": scores["coverage@20"]}
    for quintile in scores.slices:
        found[f"quintile {quintile.quintile}"] = quintile.values["recall@20"]
    if hasattr(model, "privacy_"):
        found["true_epsilon"] = model.privacy_.epsilon
    if isinstance(model, DPMF):
        found["dimensions"] = float(model.details_["dimensions"])
        found["signal"] = float(model.details_["signal"])
        found["core"] = float(len(model.details_["core"]))
    return found


# ------------------------------------------------------------------ models


@dataclass(frozen=True, repr=False)
class CutSpectrum(PairRanking):
    """The ancestor's way with the same pairs: eigenvectors beyond the edge of the noise, and
    nothing estimated.
    """

    name = "pairs with a cut spectrum"

    def estimate(
        self,
        G: NDArray[Any],
        t: float,
        c: NDArray[Any],
        size: float,
        seed: int,
        features: NDArray[Any] | None,
    ) -> FittedFactors:
        values, vectors, edge = leading_eigenpairs(
            (G / t).astype(np.float32), min(self.factors, len(c) - 2), seed
        )
        kept = max(int((values > edge).sum()), 1)
        V = vectors[:, :kept] * np.sqrt(np.maximum(t * values[:kept], 1e-12)) / c[:, None]
        return FittedFactors(V, V.mean(axis=0)[None], 0.0, np.inf, kept - 1)


def _model(settings: Settings, people: People, sources: Sources) -> Recommender:
    name = settings["model"]
    seed = settings["seed"]
    if name == "popularity, not private":
        return Popularity()
    if name == "ALS, not private":
        return ALS(goal="ranking", random_state=seed)
    promise: dict[str, Any] = dict(epsilon=settings["epsilon"], delta=1e-6, random_state=seed)
    if name == "DPALS":
        return DPALS(goal="ranking", **promise)
    if name == "McSherry & Mironov, by ratings":
        return DPSVD(rating_range=people.rating_range, **promise)
    return ours(
        name,
        people,
        promise,
        genres_and_years(settings["data"], sources) if "genres" in name else None,
    )


def ours(
    name: str, people: People, promise: dict[str, Any], features: Any = None, **knobs: Any
) -> DPMF:
    """DPMF by the name of a row."""
    if people.rating_range is None or name == LIKES_ONLY:
        knobs |= {"like_threshold": "everything"}
    else:
        promise = promise | {"rating_range": people.rating_range}
    if name == "private popularity":
        knobs |= {"gate": NEVER}
    if name == "pairs with a cut spectrum":
        return DPMF(goal="ranking", algorithm=CutSpectrum(**knobs), **promise)
    return DPMF.configure(goal="ranking", item_features=features, **promise, **knobs)


# ------------------------------------------------------------------ data


@lru_cache(maxsize=2)
def held_out(
    name: str, held: float, scale: float, seed: int, sources: Sources, valid: bool = False
) -> People:
    """Whole users held out, of those who like five items; `valid` holds out as many again for
    choosing.
    """
    ratings, like_threshold, rating_range = _ratings(name, scale, seed, sources)
    liked = ratings if like_threshold is None else ratings.keep(ratings.values >= like_threshold)
    sparse = name.startswith(FAMILY) and families.family(name.removeprefix(FAMILY)).per_user < 10
    # else few would be left
    liked = liked.filter(min_user_ratings=2 if sparse else 5, min_item_ratings=1)
    many = min(int(held * liked.n_users), MOST_HELD)
    split = strong_generalization(liked, many if valid else 0, many, seed=seed)
    others = ratings.select_users(split.train.user_ids, by="id").with_items(
        liked.item_ids, unknown="drop", public=True
    )
    plain = split.train if like_threshold is None else split.train.binarize(like_threshold)
    return People(Split(split.name, seed, plain, split.test, split.valid), others, rating_range)


def _ratings(
    name: str, scale: float, seed: int, sources: Sources
) -> tuple[Ratings, float | None, tuple[float, float] | None]:
    """The ratings, from which on an item is liked, and the range; None for both where only choices
    are known.

    Generated data are another replica for every seed.
    """
    if name.startswith(FAMILY):
        kind = families.family(name.removeprefix(FAMILY)).scaled(round(scale * 1_000_000))
        low, high, _ = families.SCALES[kind.scale]
        return families.made(kind, seed), low + 0.75 * (high - low), (low, high)
    if name == "twin-ml20m":
        return datasets.load_dataset(name, seed=100 + seed, scale=scale), None, None
    rating_range = RANGES.get(name, (1.0, 5.0))
    like_threshold = LIKED_FROM.get(name, 4.0)
    if name in {known.name for known in datasets.datasets()}:
        return sources.ratings(name, scale=scale), like_threshold, rating_range
    file = Path(os.environ.get("DISCREET_DATA", "."), name, "ratings.parquet")
    if not file.exists():
        raise DataError(
            f"{name} is not on this machine: put its ratings.parquet in a folder {name} of"
            " DISCREET_DATA"
        )
    return Ratings.read(file), like_threshold, rating_range
