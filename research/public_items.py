"""What is public about items: features, title words and similarities (docs/public-features.md).

`run` holds out a tenth of the users, as `ranking` does, with graded ratings. `similar` trains all
users on 80 % of what they like, as `public_features` does. Similarities are cosines of the hashed
words of all text columns (title, author, publisher; title, genres), the twenty nearest per item.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from discreet.data.cinema import films
from discreet.data.public_items import PublicItems
from discreet.data.text_features import hash_words
from discreet.models.dpmf import DPMF
from research import ranking
from research.entry import Record, Settings
from research.public_features import _file, _liked, average_trainings, measured
from research.sources import Sources

NEAREST = 20


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``scale``, ``seed`` (of the split), ``noise`` (trainings of
    which a cell is the mean; noise is secure).
    """
    name = settings["data"]
    people = ranking.held_out(name, 0.1, settings["scale"], settings["seed"], sources)
    promise = {"epsilon": settings["epsilon"], "delta": 1e-6}
    table = None
    if settings["model"] != "DPMF":
        table = _table(name)
    if "title words" in settings["model"]:
        table = PublicItems(table, text=["title"])
    model = ranking.ours("DPMF", people, promise, table)

    def once() -> Record:
        return ranking.measured(model.fit(people.everything, progress=False), people)

    return average_trainings(once, settings["noise"])


def similar(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``scale``, ``seed`` (of the split; noise is secure)."""
    name, seed = settings["data"], settings["seed"]
    liked = _liked(name, settings["scale"], seed, sources)
    shown = np.random.default_rng(seed).random(liked.n_ratings) < 0.8
    train = liked.keep(shown).with_items(liked.item_ids, public=True)
    hidden = liked.keep(~shown).with_items(liked.item_ids, public=True)
    given: dict[str, Any] = {"epsilon": settings["epsilon"], "delta": 1e-6}
    if settings["model"] != "DPMF":
        K = _nearest(name, tuple(train.item_ids.tolist()))
        if "shuffled" in settings["model"]:
            order = np.random.default_rng(7).permutation(train.n_items)
            K = K[order][:, order]
        given["item_features"] = PublicItems(similarities=K)
    model = DPMF.configure(goal="ranking", like_threshold="everything", **given)
    return measured(model.fit(train, progress=False), train, hidden)


@lru_cache(maxsize=1)
def _table(name: str) -> Any:
    """The published columns of the items."""
    import pyarrow as pa
    from pyarrow import parquet

    if name == "cinema":
        columns = {
            "item_id": [film.id for film in films()],
            "title": [film.title for film in films()],
            "genres": ["|".join(film.genres) for film in films()],
            "year": [film.year for film in films()],
        }
        return pa.table(columns)
    return parquet.read_table(_file(name, "items.parquet"))


@lru_cache(maxsize=1)
def _nearest(name: str, item_ids: tuple[Any, ...]) -> sparse.csr_array:
    """Cosines of the nearest items, by the words of all columns."""
    table = _table(name)
    first, *others = table.column_names
    columns = [table[column].to_pylist() for column in others]
    texts = {
        str(item): " ".join("" if cell is None else str(cell).replace("|", " ") for cell in row)
        for item, row in zip(table[first].to_pylist(), zip(*columns, strict=True), strict=True)
    }
    X = hash_words([texts.get(str(item), "") for item in item_ids])
    rows = []
    places = []
    weights = []
    for start in range(0, X.shape[0], 1000):
        near = (X[start : start + 1000] @ X.T).toarray()
        near[np.arange(len(near)), start + np.arange(len(near))] = 0.0
        best = np.argpartition(-near, NEAREST, axis=1)[:, :NEAREST]
        rows.append(np.repeat(start + np.arange(len(near)), NEAREST))
        places.append(best.reshape(-1))
        weights.append(np.take_along_axis(near, best, axis=1).reshape(-1))
    shape = (X.shape[0], X.shape[0])
    data = np.maximum(np.concatenate(weights), 0.0)
    K = sparse.csr_array((data, (np.concatenate(rows), np.concatenate(places))), shape=shape)
    return K
