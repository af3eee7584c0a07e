"""DPALS from the paper's algorithm to the defaults, one lever after the other, and beyond (docs/beyond.md).

Of `run`, every row has all levers of the rows above it; `features` compares priors for the item factors, `floor` what
the defaults must not be worse than, `change` the defaults with one lever changed, `unseen` what they do on data that no
rule was chosen on. True (ε, δ = 1e-5, if nothing else is said), add or remove one user, exactly accounted.
"""

from __future__ import annotations

import tempfile
import zipfile
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.data.datasets import load_dataset
from discreet.data.features import read_features
from discreet.data.splits import Split
from discreet.data.synthetic import dpals_task
from discreet.errors import DataError
from discreet.evaluation.protocols import evaluate
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.als import ALS
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.popularity import Popularity

ITEM_FILES = ("movies.dat", "movies.csv", "u.item", "items.parquet")
STARS = {"ml-1m": (1.0, 5.0), "ml-100k": (1.0, 5.0), "sweetrs": (1.0, 5.0), "synthetic": (-3.0, 3.0)}
START: dict[str, dict[str, Any]] = {
    "explicit": dict(
        factors=16,
        iterations=2,
        shrinkage=False,
        centring="global",
        rating_bound=5.0,
        intercept=0.0,
        noise_ridge=0.0,
        pooled_intercept=False,
    ),
    "implicit": dict(factors=16, iterations=2, regularization=0.5, noise_ridge=0.0, pooled_items=False),
}
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
        "+ growing budget": dict(growth=None),
        "+ faint signals for biases": dict(pooled_intercept=None),
        "gradient steps on residuals instead": dict(item_step="gradient", intercept=0.0, growth=1.0, popularity=False),
        "+ intercept by the signal": dict(intercept=None),
        "+ later steps get more": dict(growth=None),
        "+ popularity as a prior: the defaults": dict(popularity=None),
    },
    "implicit": {
        "the paper's algorithm": {},
        "+ ridge for the noise": dict(noise_ridge=0.25),
        "+ rank 32": dict(factors=None),
        "+ λ by the released counts": dict(regularization=None),
        "+ steps by the budget": dict(iterations=None),
        "+ drawn to the average item: the defaults": dict(pooled_items=None),
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
        given = dict(change) if "item_step" in change else given | change  # another item step has other parameters
        if lever == settings["lever"]:
            break
    scale = STARS.get(name, (0.5, 5.0)) if feedback == "explicit" else None
    model = DPALS(
        epsilon=settings["epsilon"],
        delta=settings.get("delta", 1e-5),
        feedback=feedback,
        rating_range=scale,
        noise="seeded",
        random_state=settings["seed"],
        **given,
    )
    model.fit(split.train)
    return {metric: evaluate(model, split, metric, slices=None)[metric], "true_epsilon": model.privacy_.epsilon}


PRIORS: dict[str, dict[str, Any]] = {
    "DPALS": {},
    "without popularity": dict(popularity=False),
    "with features alone": dict(popularity=False),
    "with features and popularity": {},
    "with features at random": {},
}
FLOORS: dict[str, dict[str, Any]] = {
    "private item bias": dict(factors=0),
    "DPALS": {},
    "DPALS, intercept of 0.5": dict(intercept=0.5),
    "DPALS, item_step='solve'": dict(item_step="solve"),
}


def features(settings: Settings, sources: Sources) -> Record:
    """``data``, ``prior`` (one of `PRIORS`), ``epsilon``, ``scale``, ``seed`` (of split, noise and start)."""
    name, prior = settings["data"], settings["prior"]
    split = _split(name, settings["seed"], settings["scale"], "explicit", 0, sources)
    given = dict(PRIORS[prior])
    if prior == "with features at random":
        given["item_features"] = np.random.default_rng(settings["seed"]).random((split.train.n_items, 20))
    elif "features" in prior:
        given["item_features"] = _features(name, sources)
    return _score(settings, split, given)


def floor(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model`` (one of `FLOORS`, or the user's own mean), ``epsilon``, ``scale``, ``seed`` (of all)."""
    split = _split(settings["data"], settings["seed"], settings["scale"], "explicit", 0, sources)
    if settings["model"] == "user's own mean":
        return {"rmse": evaluate(Bias(3.0, items=False).fit(split.train), split, "rmse", slices=None)["rmse"]}
    return _score(settings, split, FLOORS[settings["model"]])


CHANGES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "accounted by RDP": dict(accountant="rdp"),
    "residuals cut to 2 instead of a fifth of the range": dict(rating_bound=2.0),
    "no intercept": dict(intercept=0.0),
    "intercept of 0.5": dict(intercept=0.5),
    "even weights": dict(adaptivity=0.0),
    "all steps alike": dict(growth=1.0),
    "4 steps": dict(iterations=4),
    "16 steps": dict(iterations=16),
    "rank 2": dict(factors=2),
    "rank 16": dict(factors=16),
    "no popularity": dict(popularity=False),
    "item_step='solve'": dict(item_step="solve"),
    "solve, 50 rarest items instead of weights": dict(item_step="solve", sampling="rarest"),
    "solve, half of the items": dict(item_step="solve", item_fraction=0.5),
    "solve, centred by the released global mean": dict(item_step="solve", centring="global"),
    "solve, spectral start": dict(item_step="solve", initialization="spectral"),
    "the paper's item step": dict(shrinkage=False),
    "the paper's item step, counts once": dict(shrinkage=False, recount=False),
    "the paper's item step, noise not isometric": dict(shrinkage=False, isometric=False),
}


def change(settings: Settings, sources: Sources) -> Record:
    """``data``, ``change`` (one of `CHANGES`), ``epsilon``, ``scale``, ``replica``, ``seed`` (of noise and start)."""
    split = _split(settings["data"], settings["replica"], settings["scale"], "explicit", 0, sources)
    return _score(settings, split, CHANGES[settings["change"]])


def unseen(settings: Settings, sources: Sources) -> Record:
    """``users``, ``items`` of the DPALS paper's synthetic task; ``model``, ``epsilon``; ``seed`` (of all)."""
    split = _synthetic(settings["users"], settings["items"], settings["seed"])
    baselines = {"user's own mean": Bias(3.0, items=False), "bias, not private": Bias(), "ALS, not private": ALS(5)}
    if settings["model"] in baselines:
        model = baselines[settings["model"]].fit(split.train)
        return {"rmse": evaluate(model, split, "rmse", slices=None)["rmse"]}
    ways = {
        "the paper's algorithm": START["explicit"] | dict(rating_bound=3.0),
        "private item bias": dict(factors=0),
        "DPALS": {},
        "DPALS, item_step='solve'": dict(item_step="solve"),
    }
    return _score(settings | {"data": "synthetic"}, split, ways[settings["model"]])


@lru_cache(maxsize=1)
def _synthetic(users: int, items: int, seed: int) -> Split:
    return dpals_task(users, items, seed=seed).split


def _score(settings: Settings, split: Split, given: dict[str, Any]) -> Record:
    model = DPALS(
        epsilon=settings["epsilon"],
        delta=1e-5,
        rating_range=STARS.get(settings["data"], (0.5, 5.0)),
        noise="seeded",
        random_state=settings["seed"],
        **given,
    ).fit(split.train)
    return {"rmse": evaluate(model, split, "rmse", slices=None)["rmse"], "true_epsilon": model.privacy_.epsilon}


@lru_cache(maxsize=1)
def _features(name: str, sources: Sources) -> Any:
    """Genres and years, of cinema or as they are published with a data set."""
    if name == "cinema":
        from discreet.data.cinema import films

        kinds = sorted({genre for film in films() for genre in film.genres})
        return {film.id: [*(float(kind in film.genres) for kind in kinds), float(film.year)] for film in films()}
    place = sources.place(name)
    folders = [place, *place.iterdir()] if place is not None and place.is_dir() else [place]
    for path in folders:
        if path is not None and path.name in ITEM_FILES:
            return read_features(path)
        if path is not None and path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
                found = [member for member in archive.namelist() if member.rsplit("/", 1)[-1] in ITEM_FILES]
                if found:
                    return read_features(archive.extract(found[0], folder))
    raise DataError(f"no genres of {name} are at hand: give the place of its archive with --data {name}=PATH")


@lru_cache(maxsize=1)
def _split(name: str, replica: int, scale: float, feedback: str, held: int, sources: Sources) -> Split:
    from discreet.data.splits import random_ratings, strong_generalisation

    if name.startswith("twin"):
        ratings = load_dataset(name, seed=replica, scale=scale)
    else:
        ratings = sources.ratings(name, scale=scale)
    if feedback == "implicit":
        ratings = ratings if name.startswith("twin-ml20m") else ratings.binarize(4.0)
        return strong_generalisation(ratings, held, held, seed=replica)
    return random_ratings(ratings, (0.8, 0.1, 0.1), seed=replica)
