"""Lists for many users: a table, a Parquet file written block by block, or a folder of them.

All have the columns user_id, rank, item_id, title (if the model has titles) and score.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
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
    """Recommend items to many users, in rows of user_id, rank, item_id, title and score.

    Without titles in the model there is no column for them.

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

    check_int("n", n)
    histories = as_user_rows(ratings, model.item_ids_)
    check_history_range(histories.values, model.history_range)
    with progress_bar(progress, "Recommending") as report:
        blocks = _blocks(model, histories, n, exclude_seen, unknown, report)
        if to is None:
            return pa.concat_tables(blocks)
        with atomic_write(Path(to)) as part:
            _write(blocks, part)
    return None


def recommend_folder(
    model: Recommender,
    files: Sequence[Path],
    read: Callable[[Path], Iterable[Ratings]],
    to: str | os.PathLike[str],
    *,
    n: int = 10,
    exclude_seen: bool = True,
    unknown: Unknown = "error",
    progress: Progress = no_progress,
) -> int:
    """Write a folder of lists, one Parquet file for each file of ratings; return the users.

    Memory is that of the largest piece, and of 8 bytes per user (16 if ids are text). The folder
    appears complete or not at all.

    Parameters
    ----------
    model : Recommender
    files : list of paths
        Each has all ratings of its users.
    read : function of a path
        Reads the ratings of a file in pieces, each with all ratings of its users.
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
    check_int("n", n)
    known = _KnownUsers()

    def lists(file: Path) -> Iterator[pa.Table]:
        for ratings in read(file):
            known.add(ratings.user_ids, file)
            check_history_range(ratings.values, model.history_range)
            yield from _blocks(model, ratings, n, exclude_seen, unknown, no_progress)

    with temporary_sibling(target) as part:
        for done, file in enumerate(files):
            progress(done, len(files), "files")
            _write(lists(file), part / f"{file.stem}.parquet")
        progress(len(files), len(files), "files")
        if target.exists():
            target.rmdir()
        part.rename(target)
    return known.count


def _write(tables: Iterator[pa.Table], to: Path) -> None:
    """Write tables of one schema, of which there is at least one, to a Parquet file."""
    from pyarrow import parquet

    first = next(tables)
    with parquet.ParquetWriter(to, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


class _KnownUsers:
    """Users whose lists are written: integers as they are, other ids by 128 bits of their hash.

    Equal hashes of different users would refuse honest data: of a billion users with 64 bits, in
    one case of forty; with 128 bits never.
    """

    def __init__(self) -> None:
        self._integers: NDArray[Any] = np.zeros(0, np.int64)
        self._others: NDArray[Any] = np.zeros(0, "S16")

    @property
    def count(self) -> int:
        return len(self._integers) + len(self._others)

    def add(self, ids: NDArray[Any], file: Path) -> None:
        """Add users; refuse one that is known."""
        if ids.dtype == np.int64:
            self._integers = _merge(self._integers, ids, file)
            return
        values = ids.tolist()
        whole = [one for one in values if _is_integer(one)]
        others = [_digest(one) for one in values if not _is_integer(one)]
        self._integers = _merge(self._integers, np.array(whole, np.int64), file)
        self._others = _merge(self._others, np.array(others, "S16"), file)


def _is_integer(one: Any) -> bool:
    return isinstance(one, int) and -(1 << 63) <= one < 1 << 63


def _digest(one: Any) -> bytes:
    text = f"{type(one).__name__} {one}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _merge(known: NDArray[Any], fresh: NDArray[Any], file: Path) -> NDArray[Any]:
    """Return both in order; refuse a user who is in both."""
    both = np.sort(np.concatenate([known, fresh]), kind="stable")
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
        yield list_rows(model, id_column(part.user_ids), at, scores)
        progress(stop, histories.n_users, "lists")


def list_rows(model: Recommender, users: pa.Array, at: Any, scores: Any) -> pa.Table:
    """Build the rows of lists from item positions; −1 is padding.

    Columns are user_id, rank, item_id, title (if the model has titles) and score.
    """
    import pyarrow as pa

    user, rank = np.nonzero(at >= 0)
    place = at[user, rank]
    titles = {}
    if model.titles_ is not None:
        titles["title"] = pa.array(model.titles_[place].tolist(), pa.string())
    return pa.table(
        {
            "user_id": users.take(pa.array(user)),
            "rank": pa.array((rank + 1).astype(np.int32)),
            "item_id": id_column(model.item_ids_[place]),
            **titles,
            "score": pa.array(scores[user, rank].astype(np.float32)),
        }
    )


def id_column(ids: Any) -> pa.Array:
    """Convert ids to arrow: integers, and text for all others."""
    import pyarrow as pa

    if ids.dtype == np.int64:
        return pa.array(ids)
    return pa.array([str(item) for item in ids.tolist()], pa.string())
