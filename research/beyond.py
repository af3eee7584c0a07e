"""From the DPALS paper's algorithm to DPMF, one lever after the other, and beyond (docs/dpmf.md).

Of `run`, every row has all levers of the rows above it, up to where the algorithm changes;
`features` compares priors for the item factors, `floor` what DPMF must not be worse than, `unseen`
what it does on data that no rule was chosen on. True (ε, δ), δ = 1e-5 by default, add or remove one
user, exactly accounted.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.datasets import load_dataset
from discreet.data.features import read_features
from discreet.data.ratings import Ratings
from discreet.data.splits import Split
from discreet.errors import DataError
from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from discreet.models.private import PrivateRecommender
from research.entry import Record, Settings
from research.families import FAMILIES, SCALES, family, made
from research.sources import Sources
from research.synthetic import dpals_task

ITEM_FILES = ("movies.dat", "movies.csv", "u.item", "items.parquet")
STARS = {
    "ml-1m": (1.0, 5.0),
    "ml-100k": (1.0, 5.0),
    "sweetrs": (1.0, 5.0),
    "movietweetings": (0.0, 10.0),
    "synthetic": (-3.0, 3.0),
    **{f"family: {one.name}": SCALES[one.scale][:2] for one in FAMILIES},
}
PAPER = dict(
    factors=16, iterations=2, centering="global", rating_bound=5.0, intercept=0.0, noise_ridge=0.0
)
PLAIN = dict(factors=0, popularity=False, slope=0.0, taste=0.0)
Lever = tuple[type[PrivateRecommender], dict[str, Any]]


# the model and its parameters; each line has one lever more than the line above, up to where the
# algorithm changes
LEVERS: dict[str, Lever] = {
    "the paper's algorithm": (DPALS, PAPER),
    "+ ridge for the noise: DPALS": (DPALS, {}),
    "biases from residuals instead": (DPMF, PLAIN),
    "+ popularity as a prior": (DPMF, dict(factors=0, slope=0.0, taste=0.0)),
    "+ how far people follow others": (DPMF, dict(factors=0, taste=0.0)),
    "+ and what is popular": (DPMF, dict(factors=0)),
    "+ taste from pairs: DPMF": (DPMF, {}),
}


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``replica`` (seed of a twin), ``lever``, ``epsilon``, ``seed`` (of noise and
    start).
    """
    name = settings["data"]
    split = split_of(
        name, settings["replica"], settings["scale"], "rating", settings.get("held", 0), sources
    )
    baselines = {"user's own mean": Bias(3.0, items=False), "bias, not private": Bias()}
    if settings["lever"] in baselines:
        baseline = baselines[settings["lever"]].fit(split.train)
        return {"rmse": evaluate(baseline, split, "rmse", slices=None)["rmse"]}
    kind, given = LEVERS[settings["lever"]]
    given = given | {"rating_range": STARS.get(name, (0.5, 5.0))}
    model = _private(kind, settings, given | {"delta": settings.get("delta", 1e-5)}, "rating")
    model.fit(split.train)
    return {
        "rmse": evaluate(model, split, "rmse", slices=None)["rmse"],
        "true_epsilon": model.privacy_.epsilon,
    }


PRIORS: dict[str, dict[str, Any]] = {
    "DPMF": {},
    "without popularity": dict(popularity=False),
    "with features alone": dict(popularity=False),
    "with features and popularity": {},
    "with features at random": {},
}
FLOORS: dict[str, dict[str, Any]] = {
    "private item bias": dict(factors=0),
    "DPMF": {},
}


def features(settings: Settings, sources: Sources) -> Record:
    """``data``, ``prior`` (one of `PRIORS`), ``epsilon``, ``scale``, ``seed`` (of split, noise
    and start).
    """
    name, prior = settings["data"], settings["prior"]
    split = split_of(name, settings["seed"], settings["scale"], "rating", 0, sources)
    given = dict(PRIORS[prior])
    if prior == "with features at random":
        given["item_features"] = np.random.default_rng(settings["seed"]).random(
            (split.train.n_items, 20)
        )
    elif "features" in prior:
        given["item_features"] = genres_and_years(name, sources)
    return score(settings, split, given)


def floor(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model`` (one of `FLOORS`, or the user's own mean), ``epsilon``, ``scale``,
    ``seed`` (of all).
    """
    split = split_of(settings["data"], settings["seed"], settings["scale"], "rating", 0, sources)
    if settings["model"] == "user's own mean":
        return {
            "rmse": evaluate(Bias(3.0, items=False).fit(split.train), split, "rmse", slices=None)[
                "rmse"
            ]
        }
    return score(settings | {"noise": "secure"}, split, FLOORS[settings["model"]])


def unseen(settings: Settings, sources: Sources) -> Record:
    """``users``, ``items`` of the DPALS paper's synthetic task; ``model``, ``epsilon``;
    ``seed`` (of all).
    """
    split = _synthetic(settings["users"], settings["items"], settings["seed"])
    baselines = {
        "user's own mean": Bias(3.0, items=False),
        "bias, not private": Bias(),
        "ALS, not private": ALS(5),
    }
    if settings["model"] in baselines:
        model = baselines[settings["model"]].fit(split.train)
        return {"rmse": evaluate(model, split, "rmse", slices=None)["rmse"]}
    ways: dict[str, Lever] = {
        "the paper's algorithm": (DPALS, PAPER | dict(rating_bound=3.0)),
        "private item bias": (DPMF, dict(factors=0)),
        "DPMF": (DPMF, {}),
    }
    kind, given = ways[settings["model"]]
    return score(settings | {"data": "synthetic"}, split, given, kind)


@lru_cache(maxsize=1)
def _synthetic(users: int, items: int, seed: int) -> Split:
    return dpals_task(users, items, seed=seed).split


def score(
    settings: Settings, split: Split, given: dict[str, Any], kind: type[PrivateRecommender] = DPMF
) -> Record:
    """Test RMSE of a private model with these parameters, and its true ε."""
    usual = {"delta": 1e-5, "rating_range": STARS.get(settings["data"], (0.5, 5.0))}
    model = _private(kind, settings, usual | given, "rating").fit(split.train)
    return {
        "rmse": evaluate(model, split, "rmse", slices=None)["rmse"],
        "true_epsilon": model.privacy_.epsilon,
    }


def _private(
    kind: type[PrivateRecommender], settings: Settings, given: dict[str, Any], goal: str
) -> PrivateRecommender:
    aim = {"goal": "rating"} if kind is DPMF else {"goal": goal}
    grade = settings.get("noise", "seeded")
    noise = {"noise": grade, "random_state": settings["seed"]}
    return kind.configure(epsilon=settings["epsilon"], **noise, **aim, **given)


@lru_cache(maxsize=1)
def genres_and_years(name: str, sources: Sources) -> Any:
    """Genres and years, of cinema or as they are published with a data set."""
    if name == "cinema":
        from discreet.data.cinema import films

        kinds = sorted({genre for film in films() for genre in film.genres})
        return {
            film.id: [*(float(kind in film.genres) for kind in kinds), float(film.year)]
            for film in films()
        }
    place = sources.place(name)
    folders = [place, *place.iterdir()] if place is not None and place.is_dir() else [place]
    for path in folders:
        if path is not None and path.name in ITEM_FILES:
            return read_features(path)
        if path is not None and path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
                found = [
                    member
                    for member in archive.namelist()
                    if member.rsplit("/", 1)[-1] in ITEM_FILES
                ]
                if found:
                    return read_features(archive.extract(found[0], folder))
    raise DataError(
        f"no genres of {name} are at hand: give the place of its archive with --data {name}=PATH"
    )


def _at_hand(name: str) -> Ratings:
    """Of a set that is no part of the library's list."""
    file = Path(os.environ.get("DISCREET_DATA", "."), name, "ratings.parquet")
    if not file.exists():
        raise DataError(
            f"{name} is not on this machine: put its ratings.parquet in a folder {name} of"
            " DISCREET_DATA"
        )
    return Ratings.read(file)


@lru_cache(maxsize=1)
def split_of(
    name: str, replica: int, scale: float, goal: str, held: int, sources: Sources
) -> Split:
    """Of a data set, a replica of a twin or a member of a family; `replica` is the seed of what
    is drawn.
    """
    from discreet.data.splits import random_ratings, strong_generalization

    if name.startswith("twin"):
        ratings = load_dataset(name, seed=replica, scale=scale)
    elif name == "movietweetings":
        ratings = _at_hand(name)
    elif name.startswith("family: "):
        ratings = made(family(name.removeprefix("family: ")).scaled(round(20_000 * scale)), replica)
    else:
        ratings = sources.ratings(name, scale=scale)
    if name == "sweetrs":  # where 0 means "never tried"
        ratings = ratings.keep(ratings.values > 0)
    if goal == "ranking":
        ratings = ratings if name.startswith("twin-ml20m") else ratings.binarize(4.0)
        return strong_generalization(ratings, held, held, seed=replica)
    return random_ratings(ratings, (0.8, 0.1, 0.1), seed=replica)
