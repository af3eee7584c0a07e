"""Conversion of many histories, or of pairs to score, from the forms that users pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.column_words import normalize
from discreet.data.columns import Columns, conventions
from discreet.data.frames import frame_columns
from discreet.data.ids import as_ids, encode
from discreet.data.ratings import Ratings
from discreet.errors import DataError, type_name
from discreet.models.histories import is_frame

CSR = tuple[NDArray[Any], NDArray[Any]]


def to_learn_from(given: Any, trust_user_column: bool = False, items: Any = None) -> Ratings:
    """Convert the input of `fit` to `Ratings`: a frame or a scipy sparse matrix, or those.

    Columns of a frame are found by convention. Without a public catalog, `items`, its items are
    those that were rated, so that a private model's statement carries a caution.
    """
    if isinstance(given, Ratings):
        return given if items is None else given.with_items(items)
    if _is_sparse(given):
        if given.nnz == 0:
            raise DataError("the matrix holds no ratings: it needs at least one entry")
        return Ratings.from_csr(given, items=items)
    if is_table(given):
        return Ratings.from_frame(given, items=items, trust_user_column=trust_user_column)
    raise DataError(
        f"fit needs Ratings, a frame or a sparse matrix, not {type_name(given)}."
        " Read a file with Ratings.read, or construct ratings with Ratings.from_arrays."
    )


def as_user_rows(histories: Any, item_ids: NDArray[Any]) -> Ratings:
    """Convert histories to `Ratings`; a sparse matrix has one column per item of the model."""
    if isinstance(histories, Ratings):
        return histories
    if not _is_sparse(histories):
        if is_table(histories):
            return Ratings.from_frame(histories)
        raise DataError(
            f"histories must be Ratings, a frame or a sparse matrix, not"
            f" {type_name(histories)}. For a single history, use recommend."
        )
    rows, columns = histories.shape if histories.ndim == 2 else (1, histories.shape[0])
    if columns != len(item_ids):
        turned = ": did you transpose?" if rows == len(item_ids) else ""
        raise DataError(f"{columns:,} columns for the {len(item_ids):,} items of the model{turned}")
    return Ratings.from_csr(histories.reshape(rows, columns), item_ids=item_ids)


def split_one_user(history: Any, item_ids: NDArray[Any]) -> tuple[list[Any], Any]:
    """Return the item ids and ratings (or None) of a frame, a sparse row or `Ratings` of one user.

    A sparse row has one column per item of the model.
    """
    if is_frame(history):
        columns = _frame_of_one_user(history)
        if columns.ratings is None or len(columns.items) == 0:
            return as_ids(columns.items, "item id").tolist(), None
        users = np.zeros(len(columns.items), np.int64)
        rows = Ratings.from_arrays(users, columns.items, columns.ratings, columns.timestamps)
    else:
        rows = as_user_rows(history, item_ids)
    if rows.n_users != 1:
        raise DataError(
            f"the history of one user is needed, but there are {rows.n_users:,} users. Use"
            " recommend_many."
        )
    return rows.item_ids[rows.indices].tolist(), rows.values


def clip_histories(histories: Ratings, rating_range: tuple[float, float] | None) -> Ratings:
    """Clip ratings to the range, each by itself."""
    if rating_range is None:
        return histories
    low, high = rating_range
    return histories._replace(values=np.clip(histories.values, np.float32(low), np.float32(high)))


Exclusions = Sequence[Any] | Mapping[Any, Sequence[Any]] | Ratings


def as_exclusions(
    exclude: Exclusions, seen: CSR, people: Ratings, positions: Callable[[Any], NDArray[np.int64]]
) -> CSR:
    """Return what to leave out for each of `people`, as CSR rows of item positions in order.

    Parameters
    ----------
    exclude : item ids, {user id: item ids}, or Ratings
        For all users, or for each user; users who are not among `people` are ignored.
    seen : (indptr, indices)
        What is left out in any case.
    positions : function of item ids
        Where they are in the model, −1 for unknown ones.
    """
    if isinstance(exclude, (str, bytes)):
        raise DataError(f"exclude is a list of item ids, or one for each user, not {exclude!r}")
    if not isinstance(exclude, Ratings) and len(exclude) == 0:
        return seen
    if isinstance(exclude, Ratings):
        row = np.repeat(people.user_index(exclude.user_ids), np.diff(exclude.indptr))
        item = np.full(exclude.n_items, -1, np.int64)
        used = np.unique(exclude.indices)
        item[used] = positions(exclude.item_ids[used])
        item = item[exclude.indices]
    elif isinstance(exclude, Mapping):
        lists = [list(ids) for ids in exclude.values()]
        flat = [item for ids in lists for item in ids]
        row = np.repeat(
            people.user_index(as_ids(list(exclude), "user id")), [len(ids) for ids in lists]
        )
        item = positions(flat) if flat else np.zeros(0, np.int64)
    else:
        item = np.tile(positions(exclude), people.n_users)
        row = np.repeat(np.arange(people.n_users), len(exclude))
    good = (row >= 0) & (item >= 0)
    rows = np.concatenate([np.repeat(np.arange(people.n_users), np.diff(seen[0])), row[good]])
    items = np.concatenate([seen[1], item[good]]).astype(np.int64)
    width = int(items.max(initial=0)) + 1
    both = np.unique(rows * width + items)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(both // width, minlength=people.n_users))])
    return indptr, (both % width).astype(np.int32)


def as_pairs(pairs: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return distinct users, distinct items, and for each pair its positions in them."""
    if isinstance(pairs, Ratings):
        return (
            pairs.user_ids,
            pairs.item_ids,
            np.repeat(np.arange(pairs.n_users), np.diff(pairs.indptr)),
            pairs.indices,
        )
    if is_frame(pairs):
        columns = frame_columns(
            pairs, {"user": None, "item": None, "rating": False, "timestamp": False}
        )
        users, items = columns.users, columns.items
    else:
        rows = list(pairs) if hasattr(pairs, "__iter__") else [pairs]
        if any(not isinstance(row, (tuple, list, np.ndarray)) or len(row) != 2 for row in rows):
            raise DataError(
                "pairs must be rows of (user_id, item_id), a frame with these columns, or Ratings"
            )
        users, items = [row[0] for row in rows], [row[1] for row in rows]
    (user_ids, user), (item_ids, item) = encode(users, "user id"), encode(items, "item id")
    return user_ids, item_ids, user, item


def is_table(given: Any) -> bool:
    """Return whether it is a frame of pandas, polars or pyarrow, lazy or not."""
    return any(
        hasattr(given, name) for name in ("__dataframe__", "__arrow_c_stream__", "collect_schema")
    )


def _frame_of_one_user(frame: Any) -> Columns:
    """Read the columns of a frame; a user column is optional, but must have only one user."""
    import narwhals.stable.v2 as nw

    frame = pa.table(frame) if isinstance(frame, pa.RecordBatch) else frame
    names = list(nw.from_native(frame).collect_schema().names())
    if any(normalize(name) in conventions()["user"] for name in names):
        columns = frame_columns(frame, {})
        if (users := len(encode(columns.users, "user id")[0])) > 1:
            raise DataError(
                f"the history of one user is needed, but there are {users:,} users. Use"
                " recommend_many."
            )
        return columns
    if not any(normalize(name) in conventions()["item"] for name in names):
        raise DataError(
            "a history needs a column item_id, and may have one for the rating. Its columns are"
            f" {names}."
        )
    only = nw.from_native(frame).with_columns(nw.lit(0).alias("user")).to_native()
    return frame_columns(only, {})


def _is_sparse(given: Any) -> bool:
    """Return whether it is a scipy matrix, which exists only where scipy has been imported."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(given))
