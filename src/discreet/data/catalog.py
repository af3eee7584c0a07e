"""The public item catalog: which items exist, and their titles.

A catalog makes the list of items independent of the ratings. It may be a file (csv, tsv, ``::``-
or ``|``-separated as in MovieLens, parquet, feather; a plain list with one id per line), a data
frame, a mapping ``{id: title}`` or a list of ids. In files the columns are found by name
(``item_id``, ``movieId``, ``id`` ...; ``title``, ``name`` ...) or, without a header line, are the
first two. The given order is kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from discreet.data.column_words import TITLES, names_of_values, normalize
from discreet.data.columns import conventions, near_misses
from discreet.data.csv_format import guess_separator, split
from discreet.data.ids import as_ids, first_repeated, object_array, parse_id
from discreet.data.readers import read_list
from discreet.errors import DataError, type_name

TITLE_NAMES = names_of_values("title", TITLES)


def id_names() -> tuple[str, ...]:
    """Return the known names of a column of item ids, the most common first."""
    return (*conventions()["item"], "id", "catalogid", "key")


@dataclass(frozen=True, eq=False)
class Catalog:
    """Item ids in the given order and, where known, their titles.

    Attributes
    ----------
    ids : (n_items,) int64 or object
    titles : (n_items,) object array of str, or None
    """

    ids: NDArray[Any]
    titles: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        repeated = first_repeated(self.ids)
        if repeated is not None:
            raise DataError(f"the catalog lists the item {repeated!r} twice: list every item once")
        if not len(self.ids):
            raise DataError("the catalog is empty: it must list at least one item")
        if self.titles is not None and len(self.titles) != len(self.ids):
            raise DataError(
                f"{len(self.titles):,} titles for {len(self.ids):,} items: one title per item is"
                " needed"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_any(cls, items: Any, titles: Any = None, hint: Any = None) -> Catalog:
        """Make a catalog from any form that the module lists; ``titles`` follow the items.

        `hint` is the name of the item column in the ratings, used if the catalog has it too.
        """
        hint = hint if isinstance(hint, str) else None
        if isinstance(items, Catalog):
            found = items
        elif isinstance(items, (str, os.PathLike)):
            found = read_catalog(items, hint=hint)
        elif isinstance(items, Mapping):
            found = cls(as_ids(list(items), "item id"), as_titles(items.values()))
        elif hasattr(type(items), "columns"):
            named = ItemColumns(hint=hint)
            found = _from_table(*_frame(items), "the catalog", named, index_advice(items))
        else:
            found = cls(as_ids(items, "item id"))
        return found if titles is None else cls(found.ids, as_titles(titles))


def as_titles(titles: Any) -> NDArray[Any]:
    """Return titles as an object array of text."""
    values = [str(title) for title in titles]
    return object_array(values, len(values))


@dataclass(frozen=True)
class ItemColumns:
    """Names of columns as the caller gives them: of ids, of titles, and of ids if it is there."""

    item: str | None = None
    title: str | None = None
    hint: str | None = None

    def in_header(self, names: Sequence[Any]) -> bool:
        """Check whether a first line holds names of columns."""
        plain = {normalize(name) for name in names}
        asked = {normalize(name) for name in (self.item, self.title, self.hint) if name}
        return bool(plain & (asked | set(id_names())))


_NO_NAMES = ItemColumns()
NAMED_BY_CALLER = ", or name it with read_catalog(path, item=...)"


def read_catalog(
    path: str | os.PathLike[str],
    item: str | None = None,
    title: str | None = None,
    hint: str | None = None,
) -> Catalog:
    """Read a catalog from a file.

    Parameters
    ----------
    path : path of the file
    item, title : str, optional
        Names of the columns of ids and titles; found by convention where not given.
    hint : str, optional
        Name of the column of ids if the file has such a column.
    """
    content = read_list(path)
    file = os.path.expanduser(path)
    named = ItemColumns(item, title, hint)
    try:
        if isinstance(content, list):
            return _from_text(content, file, named)
        names = content.column_names
        return _from_table(names, content.column, file, named, NAMED_BY_CALLER)
    except DataError as error:
        text = str(error)
        raise DataError(text if file in text else f"{file}: {text}") from error


def _from_table(
    names: Sequence[Any], column: Any, where: str, named: ItemColumns, alternative: str
) -> Catalog:
    at_id, at_title = _find(names, where, named, alternative)
    ids = as_ids(column(names[at_id]), "item id")
    if at_title is None:
        return Catalog(ids)
    titles = column(names[at_title])
    values = titles.to_pylist() if hasattr(titles, "to_pylist") else titles.to_list()
    return Catalog(ids, _titles_or_ids(values, ids))


def _frame(frame: Any) -> tuple[list[Any], Any]:
    import narwhals.stable.v1 as nw

    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        raise DataError(
            "a catalog must be a file, a frame, a list of ids or a mapping from id to title, not"
            f" {type_name(frame)}"
        ) from None
    except nw.exceptions.DuplicateError:
        raise DataError("the catalog has several columns of the same name: rename them") from None
    eager: Any = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    try:
        return list(eager.columns), lambda name: eager[name].to_native()
    except nw.exceptions.DuplicateError:
        raise DataError("the catalog has several columns of the same name: rename them") from None


def _from_text(content: list[str], file: str, named: ItemColumns) -> Catalog:
    lines = [line for line in content if line.strip()]
    if not lines:
        raise DataError(f"{file} is empty: a catalog has one line per item, with its id and title")
    separator = guess_separator(lines) or guess_separator(lines[:1])
    rows = split(lines, separator) if separator else [(line,) for line in lines]
    at_id = 0
    at_title = 1 if len(rows[0]) > 1 else None
    fields = min(map(len, rows))
    if named.item or named.title or named.in_header(rows[0]):
        fields = len(rows[0])
        at_id, at_title = _find(rows[0], str(file), named, NAMED_BY_CALLER)
        rows = rows[1:]
    elif len(rows) > 1 and looks_like_name(rows[0][0], rows[1:]):
        raise DataError(
            f"{file}: the first line ({lines[0][:60]!r}) looks like column names, but none is"
            " known. Name the columns with read_catalog(path, item=..., title=...), or rename them"
            " to item_id and title."
        )
    rows = _whole_titles(rows, fields, at_title, separator or "", file)
    need = max(at_id, at_title or 0)
    for number, row in enumerate(rows, start=1):
        if len(row) <= need or not row[at_id].strip():
            raise DataError(
                f"{file}: item {number:,} has no id or no title ({separator.join(row)[:60]!r}):"
                " correct it"
                if separator
                else f"{file}: item {number:,} has no id: correct it"
            )
    ids = as_ids(_as_written([row[at_id] for row in rows]), "item id")
    return Catalog(
        ids, None if at_title is None else _titles_or_ids([row[at_title] for row in rows], ids)
    )


def _as_written(texts: list[str]) -> list[Any]:
    """Return integers if all ids are written as integers, else text; a catalog is public."""
    forms = [parse_id(text) for text in texts]
    return forms if all(isinstance(form, int) for form in forms) else texts


def looks_like_name(first: str, others: Sequence[Sequence[str]]) -> bool:
    """Check whether the first id is a column name: a word above ids with digits, or for items."""
    if any(map(str.isdigit, first)):
        return False
    below = [str(row[0]) for row in others]
    return all(any(map(str.isdigit, text)) for text in below) or (
        first.isascii() and bool(near_misses("item", [first]))
    )


def _whole_titles(
    rows: Sequence[tuple[str, ...]], fields: int, at_title: int | None, separator: str, file: str
) -> list[tuple[str, ...]]:
    """Join surplus fields: a title in the last column may contain the separator unquoted."""
    whole = []
    for number, row in enumerate(rows, start=1):
        if len(row) > fields > 1:
            if at_title != fields - 1:
                raise DataError(
                    f"{file}: item {number:,} has {len(row)} fields where there should be {fields} "
                    f"({separator.join(row)[:60]!r}): put text with {separator!r} in quotes"
                )
            row = (*row[:at_title], separator.join(row[at_title:]))
        whole.append(row)
    return whole


def index_advice(frame: Any) -> str:
    """Return what else to do where a frame of pandas may have item ids as its index."""
    if not hasattr(frame, "reset_index"):
        return ""
    return ", or pass frame.reset_index() if the ids are its index"


def find_item_column(
    names: Sequence[Any], where: str, named: ItemColumns = _NO_NAMES, alternative: str = ""
) -> int:
    """Return the position of the column of item ids.

    `alternative` is what else to do than to rename the column, for the message.
    """
    plain = [normalize(name) for name in names]
    if named.item is not None:
        return _position(named.item, plain, names, where)
    usual = (normalize(named.hint), *id_names()) if named.hint else id_names()
    found = next((plain.index(name) for name in usual if name in plain), None)
    if found is None:
        shown = ", ".join(repr(name) for name in names[:12])
        raise DataError(
            f"{where} has no column recognizable as item ids: its columns are {shown}. Rename the"
            f" column to item_id{alternative}."
        )
    return found


def _position(wish: str, plain: Sequence[str], names: Sequence[Any], where: str) -> int:
    if normalize(wish) not in plain:
        shown = ", ".join(repr(name) for name in names[:12])
        raise DataError(f"{where} has no column {wish!r}: its columns are {shown}")
    return plain.index(normalize(wish))


def _find(
    names: Sequence[Any], where: str, named: ItemColumns, alternative: str
) -> tuple[int, int | None]:
    plain = [normalize(name) for name in names]
    twice = next(
        (
            name
            for at, name in enumerate(plain)
            if name in plain[:at] and name in (*id_names(), *TITLE_NAMES)
        ),
        None,
    )
    if twice is not None:
        raise DataError(
            f"{where} has several columns named {names[plain.index(twice)]!r}: rename the others"
        )
    at_id = find_item_column(names, where, named, alternative)
    if named.title is not None:
        return at_id, _position(named.title, plain, names, where)
    at_title = next(
        (plain.index(name) for name in TITLE_NAMES if name in plain and plain.index(name) != at_id),
        None,
    )
    return at_id, at_title


def _titles_or_ids(titles: Sequence[Any], ids: NDArray[Any]) -> NDArray[Any]:
    """Return the titles, with the id in place of a missing one."""
    pairs = zip(titles, ids.tolist(), strict=True)
    return object_array(
        (str(i) if t is None or t != t or t == "" else str(t) for t, i in pairs), len(ids)
    )
