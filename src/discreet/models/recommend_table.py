"""Lists for many users: a table, a Parquet file written block by block, or a folder of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import atomic_write, temporary_sibling
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError
from discreet.models.base import Recommender, Unknown
from discreet.models.parameters import check_history_range, check_int
from discreet.models.user_rows import as_user_rows
from discreet.progress import Progress, ShowProgress, no_progress, progress_bar

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


def recommend_folder(
    model: Recommender,
    files: Sequence[Path],
    read: Callable[[Path], Ratings],
    to: str | os.PathLike[str],
    *,
    n: int = 10,
    exclude_seen: bool = True,
    unknown: Unknown = "error",
    progress: Progress = no_progress,
) -> int:
    """Write a folder of lists, one Parquet file for each file of ratings; return the users.

    Memory is that of the largest file and of 8 bytes per user. The folder appears complete or not
    at all.

    Parameters
    ----------
    model : Recommender
    files : list of paths
        Each has all ratings of its users.
    read : function of a path
        Reads the ratings of a file.
    to : path
        A folder that does not exist yet, or an empty one.
    n, exclude_seen, unknown, progress
        As for `recommend_table`.
    """
    target = Path(os.path.abspath(os.fspath(to)))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{to} already exists: choose another folder")
    if len({file.stem for file in files}) != len(files):
        raise ConfigError("two files of ratings differ only in their ending: rename one of them")
    known = np.zeros(0, np.int64)
    with temporary_sibling(target) as part:
        for done, file in enumerate(files):
            progress(done, len(files), "files")
            ratings = read(file)
            known = _add_users(known, ratings, file)
            recommend_table(
                model,
                ratings,
                part / f"{file.stem}.parquet",
                n=n,
                exclude_seen=exclude_seen,
                unknown=unknown,
                progress=False,
            )
            del ratings
        progress(len(files), len(files), "files")
        if target.exists():
            target.rmdir()
        part.rename(target)
    return len(known)


def _add_users(known: NDArray[np.int64], ratings: Ratings, file: Path) -> NDArray[np.int64]:
    """Add the users of a file, as hashes; refuse one of an earlier file, whose list is written."""
    ids = ratings.user_ids
    own = ids if ids.dtype == np.int64 else np.array([hash(one) for one in ids.tolist()], np.int64)
    both = np.sort(np.concatenate([known, own]), kind="stable")
    if (both[1:] == both[:-1]).any():
        raise DataError(
            f"a user of {file} is also in an earlier file: put all ratings of a user into one file"
        )
    return both


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
