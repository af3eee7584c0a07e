"""Build the arrays of :class:`discreet.Ratings`: encode ids, align with a catalog, compress."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.catalog import Catalog
from discreet.data.columns import Columns
from discreet.data.csr import check_duplicates_rule, compress_rows, matrix_entries
from discreet.data.ids import (
    IdIndex,
    as_ids,
    canonical,
    encode,
    encode_users,
    first_repeated,
    normalize_column,
    object_array,
    stands_for_nothing,
)
from discreet.errors import ConfigError, DataError


def from_columns(
    columns: Columns,
    given: Catalog | None,
    duplicates: str,
    unknown: str,
    normalize_ids: bool = False,
) -> dict[str, Any]:
    """Return the fields of `Ratings`; each column is taken from `columns` to free memory early."""
    check_duplicates_rule(duplicates)
    if normalize_ids:
        columns.users = normalize_column(columns.users)
    with ThreadPoolExecutor(2) as pool:
        found = [
            pool.submit(encode_users, columns.take("users")),
            pool.submit(encode, columns.take("items"), "item id"),
        ]
    (user_ids, users), (item_ids, items) = (each.result() for each in found)
    found.clear()
    pa.default_memory_pool().release_unused()  # otherwise arrow keeps the memory of freed columns
    values, times = columns.take("ratings"), columns.take("timestamps")
    rated = values is not None
    values = values if rated else np.ones(len(users), np.float32)
    for name, column in (("items", items), ("ratings", values), ("timestamps", times)):
        if column is not None and len(column) != len(users):
            raise DataError(
                f"{len(column):,} {name} for {len(users):,} users: the columns must be equally long"
            )
    titles = None
    if given is not None:
        items, known = align(items, item_ids, given, unknown)
        item_ids, titles = given.ids, given.titles
        if known is not None:
            users, items, values = users[known], items[known], values[known]
            times = None if times is None else times[known]
    rows = {"users": users, "items": items, "values": values, "timestamps": times}
    del users, items, values, times  # `compress_rows` frees them one by one
    parts = compress_rows(rows, len(user_ids), len(item_ids), duplicates)
    return parts._asdict() | {
        "user_ids": user_ids,
        "item_ids": item_ids,
        "titles": titles,
        "catalog": given is not None,
        "rated": rated,
    }


def from_matrix(
    matrix: Any, user_ids: Any, item_ids: Any, given: Catalog | None, titles: Any, duplicates: str
) -> dict[str, Any]:
    """Return the fields of `Ratings` in a sparse matrix; a catalog may name its columns."""
    check_duplicates_rule(duplicates)
    parts = matrix_entries(matrix, duplicates)
    ids = []
    for axis, what, lines, wanted in (
        (0, "user", "rows", user_ids),
        (1, "item", "columns", item_ids),
    ):
        size, other = matrix.shape[axis], matrix.shape[1 - axis]
        if wanted is None and what == "item" and given is not None:
            wanted = given.ids
        own = np.arange(size, dtype=np.int64) if wanted is None else as_ids(wanted, f"{what} id")
        if len(own) != size:
            hint = (
                "did you transpose?"
                if len(own) == other
                else f"one id for each of the {lines} is needed"
            )
            raise DataError(f"{size:,} {lines} for {len(own):,} {what}s: {hint}")
        if wanted is not None and what == "user" and any(map(stands_for_nothing, own.tolist())):
            raise DataError(
                "a user id is missing or is a placeholder for a missing value: name the user"
            )
        distinct = own
        if what == "user" and own.dtype == object:  # "7" and 7 are one user
            distinct = object_array(map(canonical, own.tolist()), len(own))
        if wanted is not None and (twice := first_repeated(distinct)) is not None:
            which = "one of them" if what == "user" else repr(twice)  # messages name no user
            raise DataError(f"{what} ids must be distinct, but {which} is given twice")
        ids.append(own)
    names_columns = given is not None and item_ids is None
    if titles is None and given is not None and names_columns:
        titles = given.titles
    if titles is not None and len(titles) != matrix.shape[1]:
        raise DataError(
            f"{len(titles):,} titles for {matrix.shape[1]:,} columns: one title for each is needed"
        )
    return parts._asdict() | {
        "user_ids": ids[0],
        "item_ids": ids[1],
        "titles": titles,
        "catalog": names_columns,
    }


def align(
    items: NDArray[np.int32], item_ids: NDArray[Any], given: Catalog, unknown: str
) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
    """Map positions in ``item_ids`` to the catalog, with a mask of known items (None: all)."""
    if unknown not in ("error", "drop"):
        raise ConfigError(f'unknown_items must be "error" or "drop", not {unknown!r}')
    position = IdIndex(given.ids).positions(item_ids, "item id").astype(np.int32)
    aligned = position[items]
    known = aligned >= 0
    if bool(known.all()):
        return aligned, None
    if unknown == "error":
        raise DataError(  # which items these are, and how many, is private
            f"some rated items are not in the catalog of {len(given):,}: add them, or drop their"
            " ratings with unknown_items='drop'"
        )
    return aligned, known


def examples(values: Any, most: int = 3) -> str:
    """Format the first few values for a message."""
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return ", ".join(repr(value) for value in values[:most])
