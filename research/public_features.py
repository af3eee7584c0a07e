"""A user's own profile in public features: lists with and without it (docs/public-features.md).

All users train, on a random 80 % of what they like; the rest is to be found, by lists from the same
histories. recall@20 divides by all that is to be found. Book-Crossing counts every row as liked,
of items with ten rows and then users with five.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import DataError
from discreet.models.dpmf import DPMF
from research.beyond import genres_and_years
from research.entry import Record, Settings
from research.ranking import _ratings
from research.sources import Sources

N = 20
SHUFFLED = "DPMF, shuffled"


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``scale``, ``seed`` (of the split), ``noise`` (trainings of
    which a cell is the mean; noise is secure, but where features are shuffled), ``new`` (part of
    the items that training has no ratings of).
    """
    liked = _liked(settings["data"], settings["scale"], settings["seed"], sources)
    rng = np.random.default_rng(settings["seed"])
    shown = rng.random(liked.n_ratings) < 0.8
    new = rng.random(liked.n_items) < settings.get("new", 0.0)
    shown &= ~new[liked.indices]
    train = liked.keep(shown).with_items(liked.item_ids, public=True)
    hidden = liked.keep(~shown).with_items(liked.item_ids, public=True)
    if settings["model"] == SHUFFLED:
        return compare_shuffled(settings, sources, train, hidden)
    model = _model(settings, sources)

    def once() -> Record:
        model.fit(train, progress=False)
        of_new = measured_new(model, train, hidden, new) if new.any() else {}
        return measured(model, train, hidden) | of_new

    return average_trainings(once, settings["noise"])


def compare_shuffled(
    settings: Settings, sources: Sources, train: Ratings, hidden: Ratings
) -> Record:
    """Trainings with shuffled features, each next to one without any on the same seeded noise:
    what these features cost, in percent, with its standard error.
    """
    pairs = []
    for one in range(settings["noise"]):
        seeded = {"noise": "seeded", "random_state": 100 * settings["seed"] + one}
        pairs.append(
            [
                measured(model.fit(train, progress=False), train, hidden)
                for model in (
                    _model(settings | {"model": name}, sources, **seeded)
                    for name in (SHUFFLED, "DPMF")
                )
            ]
        )
    recall = np.array([[one["recall@20"] for one in pair] for pair in pairs])
    lost = 100 * (recall[:, 1] - recall[:, 0]) / recall[:, 1].mean()
    left = iter([one for one, _ in pairs])
    record = average_trainings(lambda: next(left), len(pairs))
    record |= {"without": float(recall[:, 1].mean()), "loss": float(lost.mean())}
    if len(pairs) > 1:
        record["error of loss"] = float(lost.std(ddof=1) / len(pairs) ** 0.5)
    return record


def average_trainings(train: Callable[[], Record], times: int) -> Record:
    """Means over trainings with noise of their own, and the deviation of recall between them."""
    found = [train() for _ in range(times)]
    record: Record = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    if times > 1 and "recall@20" in record:
        record["recall@20 by noise"] = float(np.std([one["recall@20"] for one in found], ddof=1))
    return record


def measured(model: DPMF, train: Ratings, hidden: Ratings) -> Record:
    """Recall over all that is hidden, coverage, and recall by fifths of all choices."""
    lists, _ = model.recommend_indices(train, N)
    count = np.bincount(train.indices, minlength=train.n_items)
    order = np.argsort(-count, kind="stable")
    fifth = np.empty(train.n_items, np.int64)
    fifth[order] = np.minimum(5 * np.cumsum(count[order]) // max(count.sum() + 1, 1), 4)
    user, wanted = pairs_of(train, hidden)
    listed = np.arange(len(lists))[:, None] * train.n_items + lists
    hit = np.isin(user * train.n_items + wanted, listed[lists >= 0])
    many = np.bincount(user, minlength=len(lists))
    recall = np.bincount(user, hit, minlength=len(lists))[many > 0] / many[many > 0]
    found = np.bincount(fifth[wanted[hit]], minlength=5)
    there = np.bincount(fifth[wanted], minlength=5)
    record: Record = {
        "recall@20": float(np.mean(recall)),
        "coverage@20": len(np.unique(lists[lists >= 0])) / train.n_items,
        "true_epsilon": model.privacy_.epsilon,
        "profile": float("profile" in model.details_),
    }
    shares = found / np.maximum(there, 1)
    return record | {f"quintile {i + 1}": float(share) for i, share in enumerate(shares)}


def measured_new(model: DPMF, train: Ratings, hidden: Ratings, new: NDArray[np.bool_]) -> Record:
    """How much of what users choose among new items is in their lists, and the places they take."""
    lists, _ = model.recommend_indices(train, N)
    user, wanted = pairs_of(train, hidden)
    rows = new[wanted]
    listed = np.arange(len(lists))[:, None] * train.n_items + lists
    hit = np.isin(user[rows] * train.n_items + wanted[rows], listed[lists >= 0])
    return {
        "recall@20 of new items": float(hit.mean()),
        "places of new items": float(new[lists[lists >= 0]].mean()),
    }


def pairs_of(train: Ratings, hidden: Ratings) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rows of the users in training, and the items that they are to find."""
    rows = train.user_index(hidden.user_ids)
    user = np.repeat(rows, np.diff(hidden.indptr))
    return user[user >= 0], hidden.indices[user >= 0]


def _model(settings: Settings, sources: Sources, **others: Any) -> DPMF:
    name = settings["model"]
    given: dict[str, Any] = {"epsilon": settings["epsilon"], "delta": 1e-6, **others}
    if name != "DPMF":
        given["item_features"] = _features(settings["data"], sources, name == SHUFFLED)
    if name == "DPMF, features as a prior":
        given["features"] = []
    return DPMF.configure(goal="ranking", like_threshold="everything", **given)


def _liked(name: str, scale: float, seed: int, sources: Sources) -> Ratings:
    if name == "book-crossing":
        ratings = Ratings.read(_file(name, "ratings.parquet"))
        return ratings.filter(min_item_ratings=10).filter(min_user_ratings=5)
    ratings, threshold, _ = _ratings(name, scale, seed, sources)
    return ratings if threshold is None else ratings.keep(ratings.values >= threshold)


def _features(name: str, sources: Sources, shuffled: bool) -> Any:
    """The published columns, or those of other items."""
    if name == "cinema":
        found = genres_and_years(name, sources)
        if not shuffled:
            return found
        values = list(found.values())
        order = np.random.default_rng(7).permutation(len(values))
        return dict(zip(found, [values[i] for i in order], strict=True))
    from pyarrow import parquet

    frame = parquet.read_table(_file(name, "items.parquet"))
    if not shuffled:
        return frame
    order = np.random.default_rng(7).permutation(frame.num_rows)
    return frame.take(order).set_column(0, frame.column_names[0], frame.column(0))


def _file(name: str, file: str) -> Path:
    path = Path(os.environ.get("DISCREET_DATA", "."), name, file)
    if not path.exists():
        raise DataError(f"{path} is not there. Put it in a folder {name} of DISCREET_DATA.")
    return path
