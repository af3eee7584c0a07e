"""Ratings: users, items, values and, where known, timestamps.

Inside: compressed sparse rows, one row per user, item indices ascending and distinct within a row.
Outside: the caller's ids. Every operation returns a new object; nothing changes in place.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.data.build import align, examples, from_columns, from_matrix
from discreet.data.catalog import Catalog, as_titles
from discreet.data.columns import Column, Columns
from discreet.data.csr import compress, core, row_of_entry
from discreet.data.frames import frame_columns, make_frame
from discreet.data.ids import IdIndex, as_ids, choose
from discreet.data.readers import read_columns
from discreet.data.user_column import find_user_problem
from discreet.data.values import as_ratings, as_timestamps
from discreet.errors import ConfigError, DataError

if TYPE_CHECKING:
    from scipy import sparse

Duplicates = Literal["last", "mean", "error"]
Unknown = Literal["error", "drop"]
Missing = Literal["error", "drop"]
DateOrder = Literal["day-first", "month-first"]
_FIELDS = (
    "indptr",
    "indices",
    "values",
    "user_ids",
    "item_ids",
    "timestamps",
    "titles",
    "catalog",
    "merged",
    "filtered",
    "rated",
    "user_problem",
)


class Ratings:
    """Immutable ratings, made with `read`, `from_frame`, `from_csr` or `from_arrays`.

    Attributes
    ----------
    user_ids, item_ids : ndarray
        int64 if all ids are integers, else an object array. Ids found in data are sorted: numbers,
        text, others (see `discreet.data.ids`); ids given by the caller keep their order.
    indptr : (n_users + 1,) int64
    indices : (n_ratings,) int32
        Positions in ``item_ids``, ascending and distinct within each user's row.
    values : (n_ratings,) float32
    timestamps : (n_ratings,) int64 or None
        Seconds since 1970 where the input had dates; integers are kept as they were.
    titles : (n_items,) object or None
        Titles of the items, for display.
    catalog : bool
        Whether the items came from a public catalog, and not from the ratings themselves.
    merged : int
        Number of rows merged into others because they repeated a (user, item) pair.
    filtered : str
        Decisions by exact counts over users, as text for the statement of private models; empty if
        there were none.
    rated : bool
        Whether ratings were given; False if a file or frame has no rating column, so that each
        counts as 1.
    user_problem : str
        Why the user column of a file or frame may not identify users (`discreet.data.user_column`);
        empty if there is no doubt. Private models refuse such ratings.
    """

    __slots__ = (*_FIELDS, "_item_index", "_user_index")
    __hash__ = None  # type: ignore[assignment]

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    timestamps: NDArray[np.int64] | None
    titles: NDArray[Any] | None
    catalog: bool
    merged: int
    filtered: str
    rated: bool
    user_problem: str
    _user_index: IdIndex
    _item_index: IdIndex

    def __init__(self) -> None:
        raise TypeError("make ratings with Ratings.read, .from_frame, .from_csr or .from_arrays")

    # ---------------------------------------------------------------- in

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        user: Column = None,
        item: Column = None,
        rating: Column = None,
        timestamp: Column = None,
        items: Any = None,
        duplicates: Duplicates = "last",
        separator: str | None = None,
        header: bool | None = None,
        unknown_items: Unknown = "error",
        trust_user_column: bool = False,
        normalize_ids: bool = False,
        missing: Missing = "error",
        encoding: str | None = None,
        dates: DateOrder | None = None,
    ) -> Ratings:
        """Read ratings from csv, tsv, ``::``-separated text (plain, gz, zst), parquet or feather.

        Parameters
        ----------
        path : path of the file
        user, item, rating, timestamp : str or int, optional
            Names (or positions from 0) of the columns; found by convention where not given. Without
            a rating column every rating is 1. ``rating=False`` and ``timestamp=False`` ignore a
            column that is there.
        items : optional
            Public item catalog: a file, a frame, a list of ids or a mapping ``{id: title}``. Its
            items are the items of the result, also unrated ones.
        duplicates : {"last", "mean", "error"}
            Rule for several ratings of an item by a user: keep the newest (the last row, if there
            are no timestamps or equal ones), their mean (with the newest timestamp), or refuse.
        separator, header : optional
            Of text files; detected by default. Without header the columns are user, item, rating,
            timestamp.
        unknown_items : {"error", "drop"}
            Rule for ratings of items that are not in the catalog.
        trust_user_column : bool
            Let private models train on these ratings although the user column looks wrong: fewer
            than 100 users, dates as ids, nearly all rows merged, a file without header line for
            which `user` is not given, or no rating column although `rating_range` is given.
        normalize_ids : bool
            Treat user ids that differ only in case, surrounding blanks or Unicode form as one user.
            Each id is changed by itself: to lower case, stripped, composed (NFC).
        missing : {"error", "drop"}
            Rule for rows in which a user, an item, a rating or a timestamp is missing.
        encoding : str, optional
            Encoding of a text file, such as "cp1252" if Excel on Windows wrote it. UTF-8 by
            default, and UTF-16 if the file begins with its byte order mark.
        dates : {"day-first", "month-first"}, optional
            Order of dates such as 5/6/2025. By default they are refused, or the day is first if the
            names of the columns are in another language than English.
        """
        given = None if items is None else Catalog.from_any(items, hint=item)
        chosen = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
        columns = read_columns(path, chosen, separator, header, missing, encoding, dates)
        doubt = columns.user_doubt
        try:
            fields = from_columns(columns, given, duplicates, unknown_items, normalize_ids)
            return cls.from_indices(**fields | _check_users(fields, trust_user_column, doubt))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: Column = None,
        item: Column = None,
        rating: Column = None,
        timestamp: Column = None,
        items: Any = None,
        duplicates: Duplicates = "last",
        unknown_items: Unknown = "error",
        trust_user_column: bool = False,
        normalize_ids: bool = False,
        missing: Missing = "error",
        dates: DateOrder | None = None,
    ) -> Ratings:
        """Convert a pandas, polars or pyarrow frame, one row per rating; see :meth:`read`."""
        given = None if items is None else Catalog.from_any(items, hint=item)
        chosen = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
        columns = frame_columns(frame, chosen, missing, dates)
        doubt = columns.user_doubt
        if len(columns.users) == 0:
            raise DataError(
                f"the {type(frame).__name__} holds no ratings: it has columns but no rows"
            )
        fields = from_columns(columns, given, duplicates, unknown_items, normalize_ids)
        return cls.from_indices(**fields | _check_users(fields, trust_user_column, doubt))

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
        """Make ratings from one array or list per column, one entry per rating.

        ``item_ids`` is the public catalog (``items`` of :meth:`read`), ``titles`` are in its order.
        """
        given = None if item_ids is None else Catalog.from_any(item_ids, titles)
        if given is None and titles is not None:
            raise ConfigError("titles need item_ids: pass item_ids in the same order")
        values = None if ratings is None else as_ratings(ratings)
        times = None if timestamps is None else as_timestamps(timestamps)
        columns = Columns(users, items, values, times)
        return cls.from_indices(
            **from_columns(columns, given, duplicates, unknown_items) | {"rated": True}
        )

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
        """Convert a scipy sparse matrix of any format: one row per user, one column per item.

        Stored entries are ratings, also where the stored value is 0 (but bsr and dia pad with
        zeros, which are not). A canonical float32 CSR matrix is shared, not copied, and no matrix
        is ever changed. Without ``user_ids`` and ``item_ids`` the ids are 0, 1, 2 ..., so that a
        user who is left out must leave an empty row. ``items`` is the public catalog, which names
        the columns where ``item_ids`` does not. Repeated entries follow ``duplicates`` and are
        never summed.
        """
        given = None if items is None else Catalog.from_any(items)
        made = cls.from_indices(
            **from_matrix(matrix, user_ids, item_ids, given, titles, duplicates)
        )
        return made if given is None or item_ids is None else made.with_items(given, unknown_items)

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
        catalog: bool = False,
        merged: int = 0,
        filtered: str = "",
        rated: bool = True,
        user_problem: str = "",
    ) -> Ratings:
        """Make ratings from arrays in the inner form; trusted, so only lengths are checked.

        Arrays of the right type are shared, not copied: do not write to them afterwards.
        """
        arrays: dict[str, NDArray[Any] | None] = {
            "indptr": np.asarray(indptr, np.int64),
            "indices": np.asarray(indices, np.int32),
            "values": np.asarray(values, np.float32),
            "timestamps": None if timestamps is None else np.asarray(timestamps, np.int64),
            "user_ids": _check_ids(user_ids, "user id"),
            "item_ids": _check_ids(item_ids, "item id"),
            "titles": (
                titles if titles is None or isinstance(titles, np.ndarray) else as_titles(titles)
            ),
        }
        self = object.__new__(cls)
        for name, array in arrays.items():
            if array is not None:
                array = array.view()  # the caller's own array stays writeable
                array.flags.writeable = False
            object.__setattr__(self, name, array)
        assert len(self.indptr) == self.n_users + 1, "indptr must have one entry more than user_ids"
        assert int(self.indptr[-1]) == len(self.indices) == len(self.values), (
            "indptr, indices and values disagree"
        )
        assert self.timestamps is None or len(self.timestamps) == self.n_ratings, (
            "one timestamp per rating is needed"
        )
        assert self.titles is None or len(self.titles) == self.n_items, (
            "one title per item is needed"
        )
        facts: dict[str, Any] = {
            "catalog": bool(catalog),
            "merged": int(merged),
            "filtered": str(filtered),
        }
        facts |= {"rated": bool(rated), "user_problem": str(user_problem)}
        for name, value in facts.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_user_index", IdIndex(self.user_ids))
        object.__setattr__(self, "_item_index", IdIndex(self.item_ids))
        return self

    # ---------------------------------------------------------------- out

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
        """Return the row of each user id, −1 for unknown ones."""
        return self._user_index.positions(ids, "user id")

    def item_index(self, ids: Any) -> NDArray[np.int64]:
        """Return the column of each item id, −1 for unknown ones."""
        return self._item_index.positions(ids, "item id")

    def to_csr(self) -> sparse.csr_array:
        """Return a float32 matrix (users × items) that shares memory: copy it before writing."""
        from scipy import sparse  # takes a moment to import

        # scipy wants one type for both index arrays, and would widen the long one
        narrow = self.n_ratings <= np.iinfo(np.int32).max
        indptr = self.indptr.astype(np.int32) if narrow else self.indptr
        return sparse.csr_array(
            (self.values, self.indices, indptr), shape=(self.n_users, self.n_items)
        )

    def to_frame(self, backend: Literal["pandas", "polars", "pyarrow"] = "pandas") -> Any:
        """Return a frame with columns user_id, item_id, rating and, where known, timestamp."""
        columns: dict[str, NDArray[Any]] = {
            "user_id": np.repeat(self.user_ids, np.diff(self.indptr)),
            "item_id": self.item_ids[self.indices],
            "rating": self.values.copy(),
        }
        if self.timestamps is not None:
            columns["timestamp"] = self.timestamps.copy()
        return make_frame(columns, backend)

    # ---------------------------------------------------------------- selection

    def keep(self, mask: ArrayLike) -> Ratings:
        """Keep all users and items, but only the ratings where ``mask`` is true."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != self.values.shape:
            raise DataError(
                f"keep needs one boolean for each of the {self.n_ratings:,} ratings, "
                f"not an array of {mask.dtype} with shape {mask.shape}"
            )
        kept_before = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
        return self._replace(indptr=kept_before[self.indptr], **self._entries(mask))

    def select_users(self, users: Any, *, by: Literal["id", "index"] | None = None) -> Ratings:
        """Select these users, in the given order.

        Parameters
        ----------
        users
            A numpy array of booleans is a mask over the users, a numpy array of integers holds row
            indices, and anything else (a list, say) holds user ids.
        by : {"id", "index"}, optional
            Which of the last two is meant.
        """
        rows = choose(users, self._user_index, by)
        counts = np.diff(self.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return self._replace(indptr=indptr, user_ids=self.user_ids[rows], **self._entries(entries))

    def with_items(
        self, item_ids: Any, unknown: Unknown = "error", *, public: bool | None = None
    ) -> Ratings:
        """Change the items: a :class:`Catalog`, file, frame, mapping or list of ids.

        Ratings of other items are refused or, with ``unknown="drop"``, dropped.

        Parameters
        ----------
        public : bool, optional
            Whether these items are a public catalog. By default a file, a mapping or a `Catalog` is
            one, and a plain list is not, because it may come from the ratings themselves: pass
            ``public=True`` if it does not.
        """
        given = Catalog.from_any(item_ids)
        if public is None:
            unchanged = self.catalog and np.array_equal(given.ids, self.item_ids)
            public = unchanged or isinstance(item_ids, (Catalog, Mapping, str, os.PathLike))
        columns, known = align(self.indices, self.item_ids, given, unknown)
        entries = self._entries(slice(None) if known is None else known)
        rows = row_of_entry(self.indptr) if known is None else row_of_entry(self.indptr)[known]
        columns = columns if known is None else columns[known]
        parts = compress(
            rows, columns, self.n_users, len(given), entries["values"], entries["timestamps"]
        )
        titles = given.titles
        if titles is None and self.titles is not None:
            at = self.item_index(given.ids)
            titles = as_titles(
                self.titles[a] if a >= 0 else i for a, i in zip(at, given.ids.tolist(), strict=True)
            )
        return self._replace(
            **parts._replace(merged=self.merged + parts.merged)._asdict(),
            item_ids=given.ids,
            titles=titles,
            catalog=public,
        )

    def filter(
        self,
        *,
        min_user_ratings: int = 0,
        min_item_ratings: int = 0,
        items: Any = None,
        public: bool = False,
    ) -> Ratings:
        """Keep only the ``items`` listed, and the users and items with enough ratings.

        The minima hold in the result: users and items are dropped in turn until all have enough.

        Privacy: ``min_user_ratings`` alone depends only on each user's own ratings. With
        ``min_item_ratings`` exact counts over all users decide which ratings remain; `filtered` and
        the statement of a private model report this. The remaining items, or a list of ``items``,
        are then no public catalog, unless the list is declared ``public``.
        """
        keep_items = np.ones(self.n_items, dtype=bool)
        if items is not None:
            at = self.item_index(items)
            if bool((at < 0).any()):
                missing = [
                    value
                    for value, where in zip(as_ids(items).tolist(), at, strict=True)
                    if where < 0
                ]
                raise DataError(
                    f"{len(missing):,} of the items to keep are not in the ratings, such as"
                    f" {examples(missing)}"
                )
            keep_items = np.isin(np.arange(self.n_items), at)
        entries, users, kept = core(
            row_of_entry(self.indptr),
            self.indices,
            np.ones(self.n_users, bool),
            keep_items,
            min_user_ratings,
            min_item_ratings,
        )
        smaller = self.keep(entries).select_users(users)
        return smaller._replace(
            indices=(np.cumsum(kept, dtype=np.int32) - np.int32(1))[smaller.indices],
            item_ids=self.item_ids[kept],
            titles=None if self.titles is None else self.titles[kept],
            catalog=self.catalog and min_item_ratings <= 0 and (items is None or public),
            filtered=_with_filter(self.filtered, min_user_ratings, min_item_ratings),
        )

    def rating_range(self) -> tuple[float, float] | None:
        """Return the lowest and the highest rating; None if there are no ratings."""
        return (float(self.values.min()), float(self.values.max())) if self.n_ratings else None

    def binarize(self, threshold: float) -> Ratings:
        """Keep the ratings of at least ``threshold``, each as 1; all users and items stay."""
        if isinstance(threshold, bool) or not isinstance(threshold, Real) or math.isnan(threshold):
            raise ConfigError(
                f"threshold is {threshold!r}, but must be a number, the lowest rating to keep"
            )
        kept = self.keep(self.values >= threshold)
        return kept._replace(values=np.ones(kept.n_ratings, np.float32))

    def _entries(self, which: Any) -> dict[str, Any]:
        times = None if self.timestamps is None else self.timestamps[which]
        return {"indices": self.indices[which], "values": self.values[which], "timestamps": times}

    def _replace(self, **changes: Any) -> Ratings:
        return Ratings.from_indices(**({name: getattr(self, name) for name in _FIELDS} | changes))

    # ---------------------------------------------------------------- value semantics

    def __repr__(self) -> str:
        when = "" if self.timestamps is None else ", with timestamps"
        return (
            f"Ratings({self.n_users:,} users × {self.n_items:,} items, {self.n_ratings:,}"
            f" ratings{when})"
        )

    def __eq__(self, other: object) -> bool:
        """Compare ids and their order, ratings and timestamps."""
        if not isinstance(other, Ratings):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in _FIELDS[:6])

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"ratings are immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"ratings are immutable: {name!r} cannot be deleted")

    def __reduce__(self) -> Any:
        return Ratings.from_indices, tuple(getattr(self, name) for name in _FIELDS)


def _check_ids(ids: Any, what: str) -> NDArray[Any]:
    return (
        ids
        if isinstance(ids, np.ndarray) and ids.dtype in (np.int64, object)
        else as_ids(ids, what)
    )


def _check_users(fields: Mapping[str, Any], trusted: bool, doubt: str) -> dict[str, Any]:
    """Return the fields with the doubt about the user column; none if it is trusted."""
    if trusted:
        return {"rated": True, "user_problem": ""}
    merged = fields["merged"]
    n_rows = len(fields["indices"]) + merged
    problem = find_user_problem(fields["user_ids"], n_rows, merged)
    return {"user_problem": problem or doubt}


def _with_filter(before: str, min_user_ratings: int, min_item_ratings: int) -> str:
    """Return the decisions by exact counts, with this filter added."""
    if min_item_ratings <= 0:
        return before
    users = f", among users with at least {min_user_ratings:,}" if min_user_ratings > 0 else ""
    text = (
        f"which items have at least {min_item_ratings:,} ratings{users}, by exact counts: the"
        " others were left out"
    )
    return f"{before}; {text}" if before else text


def _same(a: Any, b: Any) -> bool:
    return a is b if a is None or b is None else bool(np.array_equal(a, b))
