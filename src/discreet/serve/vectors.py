"""``discreet export --vectors``: item vectors for a vector database, and queries for them.

A model scores item j as ``offset + u · v_j + b_j``. With x_j = [v_j, b_j] and the query q = [u, 1]
that is an inner product up to the offset, which is the same for all items. A database that finds
the largest inner products therefore finds the model's recommendations. u and the offset come from
the user's own history (`query`), in this library or on the user's device; only q has to reach the
database.

    vectors.npy        (items, length) float32
    vectors.parquet    item_id, title, vector
    recipe.json        how to compute q: the fold-in rule and its numbers
    fold_in_rule.npz   its arrays
    README.md          the guarantee, and examples for FAISS, Qdrant and pgvector
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import temporary_sibling
from discreet.errors import ConfigError
from discreet.models.fold_in import KINDS, ProfileScores
from discreet.models.scorer import Scorer

if TYPE_CHECKING:
    from discreet.models.storage.load_scorer import OpenedModel

_README = """\
# Item vectors of a {name} model

{promise}

`vectors.npy` and `vectors.parquet` hold {items:,} vectors of length {length}: the item
factors{tail} and, last, the item's bias. The score of an item is the inner product with the query
`[u{more}, 1]`, plus an offset that is the same for all items. Search by **inner product**, not by
cosine or distance.

The query is computed from one user's history, and is for that user only:

```python
from discreet.models.storage.load_scorer import open_model
from discreet.serve.vectors import query

q, offset = query(open_model("model/").scorer, {example})
```

FAISS:

```python
import faiss, numpy as np

index = faiss.IndexFlatIP({length})
index.add(np.load("vectors.npy"))
# rows of vectors.parquet; add the offset to the scores
scores, rows = index.search(q[None], 10)
```

Qdrant: a collection with `VectorParams(size={length}, distance=Distance.DOT)`.
pgvector: `ORDER BY vector <#> %s LIMIT 10`, which is the negative inner product.

To leave out items of the history, request that many more and drop them.
"""


def item_vectors(scorer: Scorer) -> NDArray[np.float32]:
    """Return [V, b]; with one more coordinate if items without factors get the user's mean."""
    V = scorer.fold_in_rule.score_factors(scorer.factors)
    return np.ascontiguousarray(np.column_stack([V, scorer.biases]), np.float32)


def query(scorer: Scorer, history: Any) -> tuple[NDArray[np.float32], float]:
    """Return [u, 1] for a history (see `Recommender.recommend`), and the offset of the scores."""
    vector, offset = scorer.vector(*scorer.history(history))
    return np.append(vector, np.float32(1)).astype(np.float32), float(offset)


def write_vectors(opened: OpenedModel, folder: Path) -> dict[str, Any]:
    """Write the folder, completely or not at all; it must not exist."""
    import pyarrow as pa
    from pyarrow import parquet

    scorer = opened.scorer
    check_new(folder)
    if scorer.fold_in_rule.kind not in KINDS:
        raise ConfigError(
            "this model computes user vectors by its own code, which recipe.json cannot describe."
            " Serve it instead."
        )
    if isinstance(scorer.fold_in_rule, ProfileScores):
        raise ConfigError(
            "this model multiplies scores by a user's profile in public features, which no inner"
            " product gives. Serve it, or train it with features=[]."
        )
    vectors = item_vectors(scorer)
    items, length = vectors.shape
    recipe = {
        "format": 1,
        "score": "offset + query · vector",
        "query": "[u, 1]",
        "length": length,
        "items": items,
        "rating_range": scorer.rating_range,
        "default_rating": scorer.default_rating,
        "fold_in_rule": scorer.fold_in_rule.numbers(),
        "privacy": {name: opened.statement[name] for name in ("status", "epsilon", "delta")},
    }
    ids = scorer.item_ids.tolist()
    plain = scorer.item_ids.dtype == np.int64
    columns: dict[str, Any] = {"item_id": pa.array(ids if plain else [str(item) for item in ids])}
    if scorer.titles is not None:
        columns["title"] = pa.array([str(title) for title in scorer.titles.tolist()])
    columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), length)
    longer = length > scorer.factors.shape[1] + 1
    readme = _README.format(
        name=opened.name,
        promise=opened.statement["text"],
        items=items,
        length=length,
        tail=", a mark of items without factors" if longer else "",
        more=", own mean − offset" if longer else "",
        example=ids[:2],
    )
    with temporary_sibling(folder) as part:
        np.save(part / "vectors.npy", vectors)
        parquet.write_table(pa.table(columns), part / "vectors.parquet")
        (part / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
        arrays: dict[str, Any] = scorer.fold_in_rule.arrays()
        np.savez(part / "fold_in_rule.npz", **arrays)
        (part / "README.md").write_text(readme, encoding="utf-8")
        part.rename(folder)
    return {"items": items, "length": length}


def check_new(folder: Path) -> None:
    """Raise a `ConfigError` unless a folder can be created there."""
    if folder.exists():
        raise ConfigError(f"{folder} exists. Name a new folder.")
    if not folder.absolute().parent.is_dir():
        raise ConfigError(f"{folder} cannot be written: the folder {folder.parent} does not exist")
