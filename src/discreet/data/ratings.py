"""Ratings: who rated what, how, and (where known) when.

Inside: compressed sparse rows, one row per user, item indices ascending and distinct within a row. Outside: the ids that
came in. Every operation returns a new object; nothing changes in place.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from discreet.data.catalogue import Catalogue
from discreet.data.csr import compress, row_of_entry, strictly_ordered
from discreet.data.encode import IdIndex, as_ids, encode, first_repeated, object_array
from discreet.errors import ConfigError, DataError

logger = logging.getLogger("discreet")

Duplicates = Literal["last", "mean", "error"]
Unknown = Literal["error", "drop"]


class Ratings:
    """Immutable ratings of items by users.

    Make one with :meth:`read`, :meth:`from_frame`, :meth:`from_csr` or :meth:`from_arrays`.

    Attributes
    ----------
    user_ids, item_ids : ndarray
        int64 where all ids are integers, else an object array of the values given.
    indptr : (n_users + 1,) int64
    indices : (n_ratings,) int32
        Positions in ``item_ids``, ascending and distinct within each user's row.
    values : (n_ratings,) float32
    timestamps : (n_ratings,) int64 or None
        Seconds since 1970 where the input had dates; integers are kept as they were.
    titles : (n_items,) object or None
        What the items are called, for display.
    catalogue : bool
        Whether the item ids came from a public catalogue given by the caller, and not from the ratings themselves.
    merged : int
        How many rows were merged into others because they repeated a (user, item) pair.
    """

    __slots__ = (
        "_item_index", "_user_index", "catalogue", "indices", "indptr", "item_ids", "merged", "timestamps", "titles",
        "user_ids", "values",
    )  # fmt: skip

    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    timestamps: NDArray[np.int64] | None
    titles: NDArray[Any] | None
    catalogue: bool
    merged: int
    _user_index: IdIndex
    _item_index: IdIndex
    __hash__ = None  # type: ignore[assignment]

    # ---------------------------------------------------------------- making

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("make ratings with Ratings.read, .from_frame, .from_csr or .from_arrays")

    @classmethod
    def from_indices(
        cls,
        indptr: ArrayLike,
        indices: ArrayLike,
        values: ArrayLike,
        user_ids: Any,
        item_ids: Any,
        timestamps: ArrayLike | None = None,
        titles: Any = None,
        catalogue: bool = False,
        merged: int = 0,
    ) -> Ratings:
        """Ratings over arrays that are already in the inner form; trusted, so only lengths are checked.

        Arrays of the right type are shared, not copied: do not write to them afterwards.
        """
        fields = {
            "indptr": np.asarray(indptr, np.int64),
            "indices": np.asarray(indices, np.int32),
            "values": np.asarray(values, np.float32),
            "timestamps": None if timestamps is None else np.asarray(timestamps, np.int64),
            "user_ids": _trusted_ids(user_ids, "user id"),
            "item_ids": _trusted_ids(item_ids, "item id"),
            "titles": None if titles is None else _as_titles(titles),
        }
        n = len(fields["indices"])
        assert len(fields["indptr"]) == len(fields["user_ids"]) + 1, "indptr must have one entry more than user_ids"
        assert int(fields["indptr"][-1]) == n == len(fields["values"]), "indptr, indices and values disagree"
        assert fields["timestamps"] is None or len(fields["timestamps"]) == n, "one timestamp per rating"
        assert fields["titles"] is None or len(fields["titles"]) == len(fields["item_ids"]), "one title per item"
        self = object.__new__(cls)
        for name, array in fields.items():
            if array is not None:
                array = array.view()  # the caller's own array stays writeable
                array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "catalogue", bool(catalogue))
        object.__setattr__(self, "merged", int(merged))
        object.__setattr__(self, "_user_index", IdIndex(self.user_ids))
        object.__setattr__(self, "_item_index", IdIndex(self.item_ids))
        return self

    @classmethod
    def from_arrays(
        cls,
        users: Any,
        items: Any,
        ratings: Any = None,
        timestamps: Any = None,
        *,
        item_ids: Any = None,
        titles: Any = None,
        duplicates: Duplicates = "last",
        unknown_items: Unknown = "error",
    ) -> Ratings:
        """Ratings from one array (or list) per column, one row per rating.

        Parameters
        ----------
        users, items : array-like of hashable ids
        ratings : array-like of numbers, optional
            All 1 where not given.
        timestamps : array-like, optional
            Integers, dates or ISO text.
        item_ids : catalogue, optional
            The public catalogue: a file, a list of ids or a mapping ``{id: title}``.
        titles : array-like of str, optional
            Titles in the order of ``item_ids``.
        duplicates, unknown_items
            As in :meth:`read`.
        """
        user_ids, user_of = encode(users, "user id")
        own_items, item_of = encode(items, "item id")
        n = len(user_of)
        values = np.ones(n, np.float32) if ratings is None else np.asarray(ratings, np.float32)
        times = None if timestamps is None else np.asarray(timestamps, np.int64)
        for name, column in (("items", item_of), ("ratings", values), ("timestamps", times)):
            if column is not None and len(column) != n:
                raise DataError(f"{len(column):,} {name} for {n:,} users: the columns must have the same length")
        parts = compress(user_of, item_of, len(user_ids), len(own_items), values, times, duplicates)
        if parts.merged:
            logger.warning("merged %d repeated (user, item) rows (duplicates=%r)", parts.merged, duplicates)
        made = cls.from_indices(
            parts.indptr, parts.indices, parts.values, user_ids, own_items, parts.timestamps, merged=parts.merged
        )
        if item_ids is None:
            return made
        given = Catalogue.of(item_ids)
        return made.with_items(given if titles is None else Catalogue(given.ids, _as_titles(titles)), unknown_items)

    @classmethod
    def from_csr(
        cls,
        matrix: Any,
        user_ids: Any = None,
        item_ids: Any = None,
        *,
        items: Any = None,
        titles: Any = None,
        duplicates: Duplicates = "last",
        unknown_items: Unknown = "error",
    ) -> Ratings:
        """Ratings from a sparse matrix with one row per user and one column per item.

        Stored entries are ratings, also where the stored value is 0.
        """
        matrix = sparse.csr_array(matrix)
        n_users, n_items = matrix.shape
        users = np.arange(n_users) if user_ids is None else as_ids(user_ids, "user id")
        own = np.arange(n_items) if item_ids is None else as_ids(item_ids, "item id")
        parts = compress(
            row_of_entry(matrix.indptr), matrix.indices.astype(np.int32, copy=False), n_users, n_items,
            matrix.data.astype(np.float32, copy=False), None, duplicates,
        )  # fmt: skip
        made = cls.from_indices(parts.indptr, parts.indices, parts.values, users, own, None, titles, False, parts.merged)
        return made if items is None else made.with_items(Catalogue.of(items), unknown_items)

    # ---------------------------------------------------------------- facts

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def n_ratings(self) -> int:
        return len(self.indices)

    def user_index(self, ids: Any) -> NDArray[np.int64]:
        """Row of each user id, −1 for unknown ones."""
        return self._user_index.positions(ids, "user id")

    def item_index(self, ids: Any) -> NDArray[np.int64]:
        """Column of each item id, −1 for unknown ones."""
        return self._item_index.positions(ids, "item id")

    def to_csr(self) -> sparse.csr_array:
        """Sparse matrix (users × items) of float32 that shares memory with the ratings; copy it before writing to it."""
        return sparse.csr_array((self.values, self.indices, self.indptr), shape=(self.n_users, self.n_items))

    # ---------------------------------------------------------------- choosing

    def keep(self, mask: ArrayLike) -> Ratings:
        """The same users and items with only the ratings where ``mask`` (aligned with ``values``) is true."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != self.values.shape:
            raise DataError(
                f"keep needs one boolean for each of the {self.n_ratings:,} ratings, "
                f"and an array of {mask.dtype} with shape {mask.shape} was given"
            )
        kept_before = np.concatenate(([0], np.cumsum(mask)))
        return Ratings.from_indices(
            kept_before[self.indptr], self.indices[mask], self.values[mask], self.user_ids, self.item_ids,
            None if self.timestamps is None else self.timestamps[mask], self.titles, self.catalogue,
        )  # fmt: skip

    def select_users(self, users: Any, *, by: Literal["id", "index"] | None = None) -> Ratings:
        """Only these users, in the order given.

        Parameters
        ----------
        users
            A numpy array of booleans is a mask over the users, a numpy array of integers holds row indices, and
            anything else (a list, say) holds user ids. ``by`` overrides the last two.
        """
        if isinstance(users, np.ndarray) and users.dtype == bool:
            if users.shape != (self.n_users,):
                raise DataError(f"a mask of shape {users.shape} cannot choose among {self.n_users:,} users")
            rows = np.flatnonzero(users)
        elif by == "index" or (by is None and isinstance(users, np.ndarray) and users.dtype.kind in "iu"):
            rows = np.asarray(users, np.int64).reshape(-1)
            if len(rows) and not (0 <= rows.min() and rows.max() < self.n_users):
                raise DataError(f"user indices must lie in 0 … {self.n_users - 1:,}")
        else:
            rows = self.user_index(users)
            if bool((rows < 0).any()):
                raise DataError(f"{int((rows < 0).sum()):,} of {len(rows):,} user ids are not in the ratings")
        if first_repeated(rows) is not None:
            raise DataError("each user may be selected once")
        counts = np.diff(self.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(counts)))
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Ratings.from_indices(
            indptr, self.indices[entries], self.values[entries], self.user_ids[rows], self.item_ids,
            None if self.timestamps is None else self.timestamps[entries], self.titles, self.catalogue,
        )  # fmt: skip

    def with_items(self, item_ids: Any, unknown: Unknown = "error") -> Ratings:
        """The same users over another item index space; ratings of items outside it are refused or dropped."""
        given = item_ids if isinstance(item_ids, Catalogue) else Catalogue.of(item_ids)
        if unknown not in ("error", "drop"):
            raise ConfigError(f'unknown items: "error" or "drop" is allowed, and {unknown!r} was given')
        column = IdIndex(given.ids).positions(self.item_ids, "item id").astype(np.int32)
        columns = column[self.indices]
        if unknown == "error" and len(columns) and int(columns.min()) < 0:
            missing = self.item_ids[np.unique(self.indices[columns < 0])].tolist()
            raise DataError(
                f"{len(missing):,} rated items are not in the catalogue (such as {_examples(missing)}): add them to it, "
                'or leave their ratings out with unknown_items="drop"'
            )
        known = columns >= 0
        times = None if self.timestamps is None else self.timestamps[known]
        parts = compress(
            row_of_entry(self.indptr)[known], columns[known], self.n_users, len(given.ids), self.values[known], times
        )
        return Ratings.from_indices(
            parts.indptr, parts.indices, parts.values, self.user_ids, given.ids, parts.timestamps, given.titles,
            True, self.merged,
        )  # fmt: skip

    def binarize(self, threshold: float) -> Ratings:
        """Only the ratings of at least ``threshold``, each as 1."""
        kept = self.keep(self.values >= threshold)
        return Ratings.from_indices(
            kept.indptr, kept.indices, np.ones(kept.n_ratings, np.float32), kept.user_ids, kept.item_ids,
            kept.timestamps, kept.titles, kept.catalogue,
        )  # fmt: skip

    # ---------------------------------------------------------------- being a value

    def __repr__(self) -> str:
        when = "" if self.timestamps is None else ", with timestamps"
        return f"Ratings({self.n_users:,} users × {self.n_items:,} items, {self.n_ratings:,} ratings{when})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratings):
            return NotImplemented
        names = ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids")
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"ratings are immutable: cannot set {name!r}")

    def __reduce__(self) -> Any:
        arguments = (
            self.indptr, self.indices, self.values, self.user_ids, self.item_ids, self.timestamps, self.titles,
            self.catalogue, self.merged,
        )  # fmt: skip
        return Ratings.from_indices, arguments


def _trusted_ids(ids: Any, what: str) -> NDArray[Any]:
    return ids if isinstance(ids, np.ndarray) and ids.dtype in (np.int64, object) else as_ids(ids, what)


def _as_titles(titles: Any) -> NDArray[Any]:
    if isinstance(titles, np.ndarray) and titles.dtype == object:
        return titles
    return object_array((str(title) for title in titles), len(titles))


def _examples(values: list[Any], n: int = 3) -> str:
    return ", ".join(repr(value) for value in values[:n])


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and bool(np.all(a == b))
