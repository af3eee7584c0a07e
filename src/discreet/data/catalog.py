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

from discreet.data.columns import CONVENTIONS, near_misses, normalize
from discreet.data.csv_format import guess_separator, split
from discreet.data.ids import as_ids, first_repeated, object_array, parse_id
from discreet.data.readers import read_list
from discreet.errors import DataError

ID_NAMES = (*CONVENTIONS["item"], "id", "catalogid", "key")
TITLE_NAMES = (
    "title",
    "itemtitle",
    "movietitle",
    "name",
    "itemname",
    "productname",
    "label",
    "titles",
)


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
    def from_any(cls, items: Any, titles: Any = None) -> Catalog:
        """Make a catalog from any form that the module lists; ``titles`` follow the items."""
        if isinstance(items, Catalog):
            found = items
        elif isinstance(items, (str, os.PathLike)):
            found = read_catalog(items)
        elif isinstance(items, Mapping):
            found = cls(as_ids(list(items), "item id"), as_titles(items.values()))
        elif hasattr(type(items), "columns"):
            found = _from_table(*_frame(items), "the catalog")
        else:
            found = cls(as_ids(items, "item id"))
        return found if titles is None else cls(found.ids, as_titles(titles))


def as_titles(titles: Any) -> NDArray[Any]:
    """Return titles as an object array of text."""
    values = [str(title) for title in titles]
    return object_array(values, len(values))


def read_catalog(path: str | os.PathLike[str]) -> Catalog:
    """Read a catalog from a file."""
    content = read_list(path)
    file = os.path.expanduser(path)
    try:
        if isinstance(content, list):
            return _from_text(content, file)
        return _from_table(content.column_names, content.column, file)
    except DataError as error:
        text = str(error)
        raise DataError(text if file in text else f"{file}: {text}") from error


def _from_table(names: Sequence[Any], column: Any, where: str) -> Catalog:
    at_id, at_title = _find(names, where)
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
            "a catalog must be a file, a frame, a list of ids or a mapping from id to title, not a"
            f" {type(frame).__name__}"
        ) from None
    except nw.exceptions.DuplicateError:
        raise DataError("the catalog has several columns of the same name: rename them") from None
    eager: Any = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    try:
        return list(eager.columns), lambda name: eager[name].to_native()
    except nw.exceptions.DuplicateError:
        raise DataError("the catalog has several columns of the same name: rename them") from None


def _from_text(content: list[str], file: str) -> Catalog:
    lines = [line for line in content if line.strip()]
    if not lines:
        raise DataError(f"{file} is empty: a catalog has one line per item, with its id and title")
    separator = guess_separator(lines) or guess_separator(lines[:1])
    rows = split(lines, separator) if separator else [(line,) for line in lines]
    at_id = 0
    at_title = 1 if len(rows[0]) > 1 else None
    fields = min(map(len, rows))
    if any(normalize(name) in ID_NAMES for name in rows[0]):
        fields = len(rows[0])
        at_id, at_title = _find(rows[0], str(file))
        rows = rows[1:]
    elif len(rows) > 1 and _looks_like_a_name(rows[0][0], rows[1:]):
        raise DataError(
            f"{file}: the first line ({lines[0][:60]!r}) looks like column names, but none is"
            " known: name the column of ids item_id and the column of titles title"
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


def _looks_like_a_name(first: str, others: Sequence[Sequence[str]]) -> bool:
    """Check whether the first id is a column name: a word above numbers, or a name for items."""
    if first.strip().lstrip("-").isdigit():
        return False
    integers = all(isinstance(text, int) for text in _as_written([row[0] for row in others]))
    return (integers and not isinstance(parse_id(first), int)) or (
        not any(map(str.isdigit, first)) and first.isascii() and bool(near_misses("item", [first]))
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


def _find(names: Sequence[Any], where: str) -> tuple[int, int | None]:
    plain = [normalize(name) for name in names]
    twice = next(
        (
            name
            for at, name in enumerate(plain)
            if name in plain[:at] and name in (*ID_NAMES, *TITLE_NAMES)
        ),
        None,
    )
    if twice is not None:
        raise DataError(
            f"{where} has several columns named {names[plain.index(twice)]!r}: rename the others"
        )
    at_id = next((plain.index(name) for name in ID_NAMES if name in plain), None)
    if at_id is None:
        shown = ", ".join(repr(name) for name in names[:12])
        raise DataError(
            f"{where} has no column of item ids: its columns are {shown}; name one of them item_id"
        )
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
