"""Histories as people type them: several items by id or title, with ratings or without."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.data.ids import MISSING, IdIndex
from discreet.errors import DataError
from discreet.models.item_lookup import ItemLookup

if TYPE_CHECKING:
    from discreet.cli.data_options import ColumnOptions
    from discreet.data.ratings import Ratings


def parse_history(
    texts: Iterable[str], items: ItemLookup, skip: bool = False
) -> dict[Any, float | None]:
    """Histories such as ``"item1=5,item2"`` as {id: rating}, None for an item without a rating.

    Titles may hold commas: at each place the longest stretch that names an item is taken. With
    `skip` an item that the model does not know is left out instead of refused.
    """
    history: dict[Any, float | None] = {}
    for text in texts:
        pieces = text.split(",")
        start = 0
        while start < len(pieces):
            ends = range(len(pieces), start, -1)
            parts = [(end, *_split_rating(",".join(pieces[start:end]), items)) for end in ends]
            # nothing fits: complain about the single piece
            end, name, rating = next((p for p in parts if items.knows(p[1])), parts[-1])
            if name.strip() and (items.knows(name) or not skip):
                _add(history, items.id_of(name), _rating(rating, name))
            start = end
    return history


def read_history(
    path: str, items: ItemLookup, layout: ColumnOptions, skip: bool = False
) -> dict[Any, float | None]:
    """One user's history from a file of any kind: a column of items (ids or titles) and perhaps
    one of ratings.
    """
    rows = _rows(path, items, layout)
    history: dict[Any, float | None] = {}
    for line, (name, rating) in rows:
        try:
            if items.knows(name) or not skip:
                given = None if rating is None or rating.strip() in MISSING else rating
                _add(history, items.id_of(name), _rating(given, name))
        except DataError as error:
            raise DataError(f"{path}, line {line:,}: {error}") from None
    return history


def with_default(history: dict[Any, float | None], model: Any) -> dict[Any, float]:
    """Ratings for all: an item without one counts as liked."""
    return {
        item: model.default_rating if rating is None else rating for item, rating in history.items()
    }


def keep_known_items(ratings: Ratings, model: Any, where: str, skip: bool) -> tuple[Ratings, int]:
    """The ratings over the model's items, and how many were of others; ids may differ in type
    but not in spelling.
    """
    strange = (IdIndex(model.item_ids_).positions(ratings.item_ids, "item id") < 0)[ratings.indices]
    count = int(strange.sum())
    if count and not skip:
        example = ratings.item_ids[ratings.indices[strange][0]]
        raise DataError(
            f"{where}: {count:,} of {ratings.n_ratings:,} ratings are of items that the model does"
            f" not know, such as {example!r}: leave them out, or say --skip-unknown"
        )
    return ratings.with_items(model.item_ids_, "drop"), count


def _split_rating(text: str, items: ItemLookup) -> tuple[str, str | None]:
    if items.knows(text):  # a title may end in "=5"
        return text, None
    name, equals, rating = text.rpartition("=")
    return (name, rating) if equals and "," not in rating else (text, None)


def _rating(text: str | None, name: str) -> float | None:
    if text is None or not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"the rating {text.strip()!r} of {name.strip()!r} is not a finite number")
    return value


def _add(history: dict[Any, float | None], item: Any, rating: float | None) -> None:
    if item in history and history[item] != rating:
        raise DataError(f"the item {item!r} is in the history twice, with different ratings")
    history[item] = rating


def _rows(
    path: str, items: ItemLookup, layout: ColumnOptions
) -> list[tuple[int, tuple[str, str | None]]]:
    """(line, (item, rating)) of a file."""
    from discreet.data.catalog import ID_NAMES, TITLE_NAMES
    from discreet.data.columns import CONVENTIONS, normalize
    from discreet.data.readers import check_file, damage, kind_of, read_table

    file = check_file(path)
    kind = kind_of(file)
    try:
        if kind == "text":
            table = _text_rows(file, items, layout)
        else:
            columns = read_table(file, kind).to_pydict()
            cells = (
                [_cell_text(value) for value in row] for row in zip(*columns.values(), strict=True)
            )
            table = [(1, list(columns)), *enumerate(cells, start=2)]
    except OSError as error:
        raise DataError(damage(file, error)) from error
    if not table:
        raise DataError(f"{path} is empty: it should name one item per line")
    head = [normalize(name) for name in table[0][1]]
    at_item = _find_column(layout.item, head, (*ID_NAMES, *TITLE_NAMES), path)
    at_rating = _find_column(layout.rating, head, CONVENTIONS["rating"], path)
    if layout.item is None and (at_item is None or items.knows(table[0][1][0])):
        at_item = 0
        at_rating = 1
    else:
        table = table[1:]
    return [(line, (_cell(row, at_item) or "", _cell(row, at_rating))) for line, row in table]


def _find_column(
    wish: str | None, head: Sequence[str], usual: Sequence[str], path: str
) -> int | None:
    """Position of the column asked for, or of one with a usual name."""
    from discreet.data.columns import normalize

    if wish is None:
        return next((head.index(name) for name in usual if name in head), None)
    if normalize(wish) in head:
        return head.index(normalize(wish))
    if wish.isdecimal() and int(wish) < len(head):
        return int(wish)
    raise DataError(f"{path} has no column {wish!r}: its columns are {', '.join(head)}")


def _text_rows(file: Path, items: ItemLookup, layout: ColumnOptions) -> list[tuple[int, list[str]]]:
    """Lines cut into cells; titles may hold what separates, as long as the model knows them."""
    from discreet.data.csv_format import guess_separator, split
    from discreet.data.readers import read_lines

    lines = read_lines(file)
    full = [line for line in lines if line.strip()]
    separator = layout.text_separator or guess_separator(full) or guess_separator(full[:1]) or ","
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, found, rating = line.rpartition(separator)
        if items.knows(line):
            cells = [line]
        elif found and items.knows(name):
            cells = [name, rating]
        else:
            cells = list(split([line], separator)[0])
        if len(cells) == 1:
            cells = [cell for cell in _split_rating(line, items) if cell is not None]
        rows.append((number, cells))
    return rows


def _cell_text(value: Any) -> str:
    """A cell of a table as text: ids that came as 7.0 because of a gap in their column are 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _cell(row: Sequence[str], at: int | None) -> str | None:
    return row[at] if at is not None and at < len(row) else None
