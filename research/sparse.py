"""Lists on sparse catalogs: communities against item pairs and popularity (docs/dpmf.md).

All users train, on a random 80 % of their interactions; the rest is to be found, by lists from the
same histories. recall@20 divides by all that is to be found. `amazon-book` has all rows, and
`book-crossing` all rows of items with ten and then users with five; the mask is drawn in the order
of the file.

Generated users have a community of their own among forty of equal size. Items of a community have
power-law popularity, and a part `taste` of a user's interactions, whose number is log-normal with a
median of twelve, is from the own community; the others are from the whole catalog.
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
MODELS: dict[str, dict[str, Any]] = {
    "DPMF": {},
    "item pairs": {"route": "pairs"},
    "popularity": {"route": "pairs", "gate": 1e9},
}


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``seed`` (of the split), ``noise`` (trainings of which a
    cell is the mean; noise is secure).
    """
    user, item = _interactions(settings, sources)
    shown = np.random.default_rng(settings["seed"]).random(len(user)) < 0.8
    items = np.unique(item)
    user_of = np.unique(user[shown])
    known = np.isin(user, user_of)
    train, hidden = (_ratings_of(user[rows], item[rows], items) for rows in (shown, known & ~shown))
    options = {"epsilon": settings["epsilon"], "delta": 1e-6} | MODELS[settings["model"]]
    model = DPMF.configure(goal="ranking", like_threshold="everything", **options)

    def run_once() -> Record:
        found = measured(model.fit(train, progress=False), train, hidden)
        return found | {"communities": float(len(model.details_.get("communities", ())))}

    return average_trainings(run_once, settings["noise"])


def _interactions(settings: Settings, sources: Sources) -> tuple[NDArray[Any], NDArray[Any]]:
    """Users and items of all rows, in the order of the file."""
    from pyarrow import parquet

    name = settings["data"]
    if name == "generated":
        return generate_communities(
            settings["users"], settings["items"], settings["taste"], settings["seed"]
        )
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


def generate_communities(
    n_users: int, n_items: int, taste: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and items of distinct interactions."""
    rng = np.random.default_rng([seed, 33])
    popular = (np.arange(n_items) + 20.0) ** -0.7
    rng.shuffle(popular)
    group = rng.integers(0, COMMUNITIES, n_items)
    many = np.clip(np.rint(12 * np.exp(0.6 * rng.standard_normal(n_users))), 4, 200)
    user = np.repeat(np.arange(n_users), many.astype(np.int64))
    own = rng.integers(0, COMMUNITIES, n_users)[user]
    own[rng.random(len(user)) >= taste] = -1
    item = np.empty(len(user), np.int64)
    for z in range(-1, COMMUNITIES):
        some = np.arange(n_items) if z < 0 else np.flatnonzero(group == z)
        rows = np.flatnonzero(own == z)
        p = popular[some] / popular[some].sum()
        item[rows] = some[rng.choice(len(some), len(rows), p=p)]
    pairs = np.unique(user * n_items + item)
    rng.shuffle(pairs)
    return pairs // n_items, pairs % n_items
