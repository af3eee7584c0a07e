"""Recommendations for all users of a Spark DataFrame, as a DataFrame.

Rows are partitioned by user, and each task reads the model, which holds nothing private, and ranks
for its own users. A user's list is the same as that of `recommend_many`, to the last bit, for any
partitioning.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from discreet.data.columns import Column, find_columns
from discreet.data.ratings import Ratings
from discreet.errors import DataError, hide_worker_errors, type_name
from discreet.models.recommend_table import list_rows

Files = tuple[tuple[str, bytes], ...]


def pack_model(model: Any) -> Files:
    """Return the files of a fitted model, to be sent to workers."""
    with tempfile.TemporaryDirectory(prefix="discreet-") as folder:
        model.save(Path(folder) / "model")
        return tuple(
            (one.name, one.read_bytes()) for one in sorted((Path(folder) / "model").iterdir())
        )


def unpack_model(files: Files) -> Any:
    """Load the model; a worker reads each one once."""
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in files)).hexdigest()
    return _unpack_model(digest, _Hidden(files))


class _Hidden:
    """Equal to every other of its kind, so that only the digest distinguishes models."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4)
def _unpack_model(digest: str, hidden: _Hidden) -> Any:
    from discreet.models.storage.save_load import load

    with tempfile.TemporaryDirectory(prefix="discreet-") as folder:
        for name, data in hidden.files:
            (Path(folder) / name).write_bytes(data)
        return load(folder)


def recommend_spark(
    model: Any,
    frame: Any,
    n: int,
    user: Column = None,
    item: Column = None,
    rating: Column = None,
    timestamp: Column = None,
    exclude_seen: bool = True,
    partitions: int | None = None,
    diversity: float = 0.0,
) -> Any:
    """Recommend to all users of a DataFrame; see `Recommender.recommend_spark`."""
    if not (hasattr(frame, "mapInArrow") and hasattr(frame, "sparkSession")):
        raise DataError(f"recommend_spark needs a Spark DataFrame, not {type_name(frame)}")
    chosen = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    names = list(frame.columns)
    columns = {
        role: names[at] for role, at in find_columns(names, chosen, "the Spark DataFrame").items()
    }
    user_kind = frame.schema[columns["user"]].dataType.simpleString()
    item_kind = "bigint" if model.item_ids_.dtype == np.int64 else "string"
    task = ranker(pack_model(model), n, columns, exclude_seen, diversity)
    rows = frame.select(*columns.values())
    rows = (
        rows.repartition(columns["user"])
        if partitions is None
        else rows.repartition(partitions, columns["user"])
    )
    title = "" if model.titles_ is None else "title string, "
    return rows.mapInArrow(
        task, f"user_id {user_kind}, rank int, item_id {item_kind}, {title}score float"
    )


def ranker(
    files: Files, n: int, columns: dict[str, str], exclude_seen: bool, diversity: float = 0.0
) -> Any:
    """Make a task from histories (all rows of a user in one partition) to lists."""

    def rank(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [batch for batch in batches if batch.num_rows]
        if not rows:
            return
        model = unpack_model(files)
        table = pa.Table.from_batches(rows)
        histories = as_histories(table, columns, model)
        options = {"exclude_seen": exclude_seen, "diversity": diversity}
        at, scores = model.recommend_indices(histories, n, **options)
        kind = table.schema.field(columns["user"]).type
        users = pa.array(histories.user_ids.tolist()).cast(kind)
        yield from list_rows(model, users, at, scores).to_batches()

    return hide_worker_errors(rank)


def as_histories(table: pa.Table, columns: dict[str, str], model: Any) -> Ratings:
    """Convert a partition to `Ratings` over the model's items; other items are left out."""
    timed = "timestamp" in columns
    return Ratings.from_frame(
        table,
        user=columns["user"],
        item=columns["item"],
        rating=columns.get("rating", False),
        timestamp=columns.get("timestamp", False),
        items=model.item_ids_,
        duplicates="last" if timed else "mean",
        unknown_items="drop",
    )
