"""The forms in which people hand over a history, many histories, or pairs to score, brought into one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from discreet.data.columns import CONVENTIONS, Columns, normalise
from discreet.data.encode import as_ids, encode
from discreet.data.frames import frame_columns
from discreet.data.ratings import Ratings
from discreet.errors import DataError


def as_rows(history: Any, item_ids: NDArray[Any], liked: float) -> Ratings:
    """One user's history as `Ratings` with one row.

    Parameters
    ----------
    history : mapping item id -> rating, sequence of item ids, frame, sparse row over `item_ids`, or Ratings of one user
        A pandas Series is a mapping where its index holds the item ids, and a sequence where that just counts.
    liked : the rating that an item without one gets
    """
    if isinstance(history, Ratings) or sparse.issparse(history):
        one = as_user_rows(history, item_ids)
        if one.n_users != 1:
            raise DataError(f"a history of one user is needed, and {one.n_users:,} were given: see recommend_many")
        return one
    if hasattr(history, "index") and hasattr(history, "to_dict") and not _is_frame(history):  # a pandas Series
        numbered = history.index.tolist() == list(range(len(history)))
        history = history.to_list() if numbered else history.to_dict()
    ids: Any
    values: Any = None
    times: Any = None
    if isinstance(history, Mapping):
        ids = list(history.keys())
        values = list(history.values())
        wrong = [v for v in values if not isinstance(v, Real) or not math.isfinite(v)]
        if wrong:
            raise DataError(f"a history maps item ids to finite ratings, and {wrong[0]!r} is not one")
    elif _is_frame(history):
        columns = _frame_of_one_user(history)
        ids, values, times = columns.items, columns.ratings, columns.timestamps
    elif isinstance(history, (str, bytes)) or not hasattr(history, "__iter__"):
        raise DataError(f"a history is a list of item ids or a mapping item id -> rating, and {history!r} was given")
    else:
        if isinstance(history, np.ndarray) and history.size and history.dtype.kind == "f":
            raise DataError(
                f"an array {history.shape} of {history.dtype} is no history: give a list of item ids, a mapping "
                "item id -> rating or, for a row of ratings over all items, a sparse row such as csr_array(row)"
            )
        ids = as_ids(history, "item id")
    if len(ids) == 0:
        return Ratings.from_indices([0, 0], [], [], [0], item_ids)
    if values is None:
        values = np.full(len(ids), liked, np.float32)
    return Ratings.from_arrays(np.zeros(len(ids), np.int64), ids, values, times)


def as_user_rows(histories: Any, item_ids: NDArray[Any]) -> Ratings:
    """Many users' histories as `Ratings`; a sparse matrix has one column per item of the model."""
    if isinstance(histories, Ratings):
        return histories
    if not sparse.issparse(histories):
        raise DataError(
            f"histories come as Ratings or as a sparse matrix, and a {type(histories).__name__} was given: "
            "see Ratings.from_frame, or recommend() for a single history"
        )
    rows, columns = histories.shape if histories.ndim == 2 else (1, histories.shape[0])
    if columns != len(item_ids):
        turned = ": did you transpose?" if rows == len(item_ids) else ""
        raise DataError(f"{columns:,} columns for the {len(item_ids):,} items of the model{turned}")
    return Ratings.from_csr(histories.reshape(rows, columns), item_ids=item_ids)


def as_pairs(pairs: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Distinct users, distinct items, and for each pair its positions in them."""
    if isinstance(pairs, Ratings):
        return pairs.user_ids, pairs.item_ids, np.repeat(np.arange(pairs.n_users), np.diff(pairs.indptr)), pairs.indices
    if _is_frame(pairs):
        columns = frame_columns(pairs, {"user": None, "item": None, "rating": False, "timestamp": False})
        users, items = columns.users, columns.items
    else:
        rows = list(pairs) if hasattr(pairs, "__iter__") else [pairs]
        if any(not isinstance(row, (tuple, list, np.ndarray)) or len(row) != 2 for row in rows):
            raise DataError("pairs are rows of (user_id, item_id), a frame with these columns, or Ratings")
        users, items = [row[0] for row in rows], [row[1] for row in rows]
    (user_ids, user), (item_ids, item) = encode(users, "user id"), encode(items, "item id")
    return user_ids, item_ids, user, item


def _is_frame(given: Any) -> bool:
    return hasattr(type(given), "columns")  # of the type, because asking a lazy frame itself may be work


def _frame_of_one_user(frame: Any) -> Columns:
    """Columns of a frame that may do without a user column, but must not speak of several users."""
    import narwhals.stable.v2 as nw

    frame = pa.table(frame) if isinstance(frame, pa.RecordBatch) else frame
    names = list(nw.from_native(frame).collect_schema().names())
    if any(normalise(name) in CONVENTIONS["user"] for name in names):
        columns = frame_columns(frame, {})
        if (users := len(encode(columns.users, "user id")[0])) > 1:
            raise DataError(f"a history of one user is needed, and {users:,} were given: see recommend_many")
        return columns
    if not any(normalise(name) in CONVENTIONS["item"] for name in names):
        raise DataError(f"a history needs a column item_id and may have one for the rating: its columns are {names}")
    only = nw.from_native(frame).with_columns(nw.lit(0).alias("user")).to_native()
    return frame_columns(only, {})
