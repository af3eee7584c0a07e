"""Lists on sparse catalogs: communities against item pairs and popularity (docs/dpmf.md).

All users train, on a random 80 % of their interactions; the rest is to be found, by lists from the
same histories. recall@20 divides by all that is to be found. `amazon-book` has all rows, and
`book-crossing` all rows of items with ten and then users with five; the mask is drawn in the order
of the file.

Generated items are in random order between 0 and 1 and have power-law popularity. A part `taste`
of a user's interactions is from a fortieth of the items: from one of forty `communities`, or, for
`geography`, from around the user's own place. The others are from the whole catalog. The number of
interactions is log-normal with a median of twelve, or Pareto from eight on for `power law`. In the
family `flat` popularity is the root of that of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.dpmf import DPMF
from research.entry import Record, Settings
from research.public_features import _file, average_trainings, measured
from research.ranking import _ratings
from research.sources import Sources

COMMUNITIES = 40
TESTED = 20_000  # users who get lists, drawn at random where there are more
MODELS: dict[str, dict[str, Any]] = {
    "DPMF": {},
    "item pairs": {"route": "pairs"},
    "popularity": {"route": "pairs", "gate": 1e9},
}


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``seed`` (of the split), ``noise`` (trainings of which a
    cell is the mean).

    Noise is secure. A model "DPMF and popularity" is two with the same seeded noise: they differ by
    what is learned alone, and not at all where that is the same.
    """
    user, item = _interactions(settings, sources)
    shown = np.random.default_rng(settings["seed"]).random(len(user)) < 0.8
    items = np.unique(item)
    user_of = np.unique(user[shown])
    known = np.isin(user, user_of)
    train, hidden = (_ratings_of(user[rows], item[rows], items) for rows in (shown, known & ~shown))
    tested = np.random.default_rng(0).permutation(hidden.n_users)[:TESTED]
    hidden = hidden.select_users(np.sort(tested), by="index")
    history = train.select_users(train.user_index(hidden.user_ids), by="index")

    def train_model(name: str, **noise: Any) -> Record:
        options = {"epsilon": settings["epsilon"], "delta": 1e-6} | MODELS[name] | noise
        model = DPMF.configure(goal="ranking", like_threshold="everything", **options)
        found = measured(model.fit(train, progress=False), history, hidden)
        return found | {"communities": float(len(model.details_.get("communities", ())))}

    if settings["model"] in MODELS:
        return average_trainings(lambda: train_model(settings["model"]), settings["noise"])
    pairs = [
        [train_model(name, noise="seeded", random_state=seed) for name in ("DPMF", "popularity")]
        for seed in range(settings["noise"])
    ]
    return compare_trainings(pairs)


def compare_trainings(pairs: list[list[Record]]) -> Record:
    """Means over trainings, each with popularity next to it, and by how many percent they differ:
    with the standard error where there are several.
    """
    found, popular = (np.array([one[i]["recall@20"] for one in pairs]) for i in (0, 1))
    percent = 100 / max(popular.mean(), 1e-9)
    record: Record = {
        "recall@20": float(found.mean()),
        "popularity": float(popular.mean()),
        "gain": float(percent * (found - popular).mean()),
        "communities": float(np.mean([one["communities"] for one, _ in pairs])),
    }
    if len(pairs) > 1:
        error = (found - popular).std(ddof=1) / len(pairs) ** 0.5
        record["error of gain"] = float(percent * error)
    return record


def _interactions(settings: Settings, sources: Sources) -> tuple[NDArray[Any], NDArray[Any]]:
    """Users and items of all rows, in the order of the file."""
    from pyarrow import parquet

    name = settings["data"]
    if name == "generated":
        names = ("users", "items", "taste", "seed", "family")
        return generate_interactions(*(settings[name] for name in names))
    if name in ("amazon-book", "book-crossing"):
        file = "interactions.parquet" if name == "amazon-book" else "ratings.parquet"
        table = parquet.read_table(_file(name, file))
        columns = (next(c for c in table.column_names if c.startswith(k)) for k in ("user", "item"))
        user, item = (np.unique(table[c].to_numpy(), return_inverse=True)[1] for c in columns)
        if name == "book-crossing":
            enough = np.bincount(item)[item] >= 10
            user, item = user[enough], item[enough]
            enough = np.bincount(user)[user] >= 5
            user, item = user[enough], item[enough]
        return user, item
    ratings, threshold, _ = _ratings(name, settings["scale"], settings["seed"], sources)
    liked = ratings if threshold is None else ratings.keep(ratings.values >= threshold)
    return np.repeat(np.arange(liked.n_users), np.diff(liked.indptr)), liked.indices


def _ratings_of(user: NDArray[Any], item: NDArray[Any], items: NDArray[Any]) -> Ratings:
    return Ratings.from_arrays(user, item, item_ids=items)


def generate_interactions(
    n_users: int, n_items: int, taste: float, seed: int, family: str = "communities"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and items of distinct interactions."""
    rng = np.random.default_rng([seed, 33])
    popular = (np.arange(n_items) + 20.0) ** (-0.35 if family == "flat" else -0.7)
    rng.shuffle(popular)
    below = np.append(0.0, np.cumsum(popular) / popular.sum())
    many = 12 * np.exp(0.6 * rng.standard_normal(n_users))
    if family == "power law":
        many = 8 * (1 + rng.pareto(1.5, n_users))
    user = np.repeat(np.arange(n_users), np.clip(np.rint(many), 4, 200).astype(np.int64))
    place = rng.random(n_users)[user]
    start = np.floor(COMMUNITIES * place) / COMMUNITIES
    if family == "geography":
        start = place * (1 - 1 / COMMUNITIES)
    start[rng.random(len(user)) >= taste] = -1.0
    first = np.where(start < 0, 0, (start * n_items).astype(np.int64))
    last = np.where(start < 0, n_items, first + n_items // COMMUNITIES)
    drawn = below[first] + rng.random(len(user)) * (below[last] - below[first])
    item = np.clip(np.searchsorted(below, drawn, side="right") - 1, first, last - 1)
    pairs = np.unique(user * n_items + item)
    rng.shuffle(pairs)
    return pairs // n_items, pairs % n_items
