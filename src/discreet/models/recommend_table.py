"""Lists for many users, as a table or as a Parquet file that is written block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.models.base import Recommender, Unknown
from discreet.models.parameters import check_history_range, check_int
from discreet.models.user_rows import as_user_rows
from discreet.progress import Progress, ShowProgress, progress_bar

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1 << 14  # users whose lists are in memory at once


def recommend_table(
    model: Recommender,
    ratings: Any,
    to: str | os.PathLike[str] | None = None,
    *,
    n: int = 10,
    exclude_seen: bool = True,
    unknown: Unknown = "error",
    progress: ShowProgress = None,
) -> pa.Table | None:
    """Recommend items to many users, in rows of user, rank, item, title (or null) and score.

    What is in the table is for these users alone: each list depends on the user's own history.

    Parameters
    ----------
    model : Recommender
    ratings : Ratings, or a sparse matrix with one column per item of the model
        One history per user.
    to : path, optional
        A Parquet file to write instead of returning a table; whole or not at all.
    n, exclude_seen, unknown, progress
        As for `Recommender.recommend_many`.
    """
    import pyarrow as pa
    from pyarrow import parquet

    from discreet.data.atomic_files import atomic_write

    check_int("n", n)
    histories = as_user_rows(ratings, model.item_ids_)
    check_history_range(histories.values, model.history_range)
    with progress_bar(progress, "Recommending") as report:
        blocks = _blocks(model, histories, n, exclude_seen, unknown, report)
        first = next(blocks)
        if to is None:
            return pa.concat_tables([first, *blocks])
        with atomic_write(Path(to)) as part, parquet.ParquetWriter(part, first.schema) as writer:
            writer.write_table(first)
            for block in blocks:
                writer.write_table(block)
    return None


def _blocks(
    model: Recommender,
    histories: Any,
    n: int,
    exclude_seen: bool,
    unknown: Unknown,
    progress: Progress,
) -> Iterator[pa.Table]:
    """Yield tables of the lists, block by block; at least one, empty if there are no users."""

    for start in range(0, max(histories.n_users, 1), BLOCK):
        stop = min(start + BLOCK, histories.n_users)
        part = histories.select_users(np.arange(start, stop), by="index")
        at, scores = model.recommend_indices(part, n, exclude_seen=exclude_seen, unknown=unknown)
        yield list_rows(model, _column(part.user_ids), at, scores)
        progress(stop, histories.n_users, "lists")


def list_rows(model: Recommender, users: pa.Array, at: Any, scores: Any) -> pa.Table:
    """Build rows (user, rank, item, title, score) from item positions; −1 is padding."""
    import pyarrow as pa

    user, rank = np.nonzero(at >= 0)
    place = at[user, rank]
    titles = [None] * len(place) if model.titles_ is None else model.titles_[place].tolist()
    return pa.table(
        {
            "user": users.take(pa.array(user)),
            "rank": pa.array((rank + 1).astype(np.int32)),
            "item": _column(model.item_ids_[place]),
            "title": pa.array(titles, pa.string()),
            "score": pa.array(scores[user, rank].astype(np.float32)),
        }
    )


def _column(ids: Any) -> pa.Array:
    """Convert ids to arrow: integers, and text for all others."""
    import pyarrow as pa

    if ids.dtype == np.int64:
        return pa.array(ids)
    return pa.array([str(item) for item in ids.tolist()], pa.string())
