"""The parser of one user's history, from any form: objects, typed text, or a file.

Nothing here imports more than numpy, so that one command-line query starts fast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.ids import MISSING, as_ids, unhashable
from discreet.errors import DataError
from discreet.models.parameters import check_history_range

if TYPE_CHECKING:
    from discreet.models.item_lookup import ItemLookup
    from discreet.models.scorer import Scorer


#: A rating that is followed by one digit: 4,5 may be 4.5, or 4 and the item 5.
_COMMA_RATING = re.compile(r"=\s*\d{1,2},\d\s*(?:,|$)")


class History(NamedTuple):
    """One user's history, as scorers take it.

    Attributes
    ----------
    at : (k,) int32
        Positions of the items in the model, increasing.
    values : (k,) float32
        Their ratings.
    unknown : list
        Items that were left out, because the model does not know them.
    """

    at: NDArray[np.int32]
    values: NDArray[np.float32]
    unknown: list[Any]


def parse_history(
    history: Any, scorer: Scorer, unknown: str = "error", find: Callable[[Any], int] | None = None
) -> History:
    """Convert one user's history from any form to positions and ratings.

    Every entry point uses it: the models, the scorer, the command line (after splitting its text),
    the service and the exports. The page for browsers has the same rules by construction: it
    offers only known items, holds one rating per item, and its likes count as the default rating.

    Titles stand for ids where only one item has them. An item without a rating counts as liked; of
    an item that is given twice, the last rating counts. Ratings must be finite and within the
    model's public range.

    Parameters
    ----------
    history : mapping, sequence of item ids, frame, sparse row, or Ratings of one user
        A mapping gives the rating of each item id; a sparse row is over ``scorer.item_ids``.
        A pandas Series is a mapping where its index holds the item ids, and a sequence where that
        just counts.
    unknown : {"error", "skip"}
    find : function of an item id, optional
        Where it is in the model, negative if unknown; ``scorer.position`` by default.
    """
    ids, ratings = _split_history(history, scorer)
    values = (
        np.full(len(ids), scorer.default_rating, np.float32)
        if ratings is None
        else np.asarray(ratings, np.float32)
    )
    if ratings is not None:
        check_history_range(values, scorer.history_range)
    at = np.fromiter(map(find or scorer.position, ids), np.int32, len(ids))
    strange: list[Any] = []
    if (at < 0).any():
        at = scorer.find_titles(ids, at) if find is None else at
        strange = [ids[place] for place in np.flatnonzero(at < 0)]
    if strange and unknown == "error":
        raise scorer.unknown_items(strange, "Leave them out, or pass unknown='skip'.")
    order = np.argsort(at, kind="stable")
    at = at[order]
    last = at >= 0
    last[:-1] &= at[1:] != at[:-1]
    return History(at[last], values[order][last], strange)


def _split_history(history: Any, scorer: Scorer) -> tuple[list[Any], Any]:
    """Return item ids and finite ratings, or None instead of these."""
    # a pandas Series
    if hasattr(history, "index") and hasattr(history, "to_dict") and not is_frame(history):
        numbered = history.index.tolist() == list(range(len(history)))
        history = history.to_list() if numbered else history.to_dict()
    values: list[Any] | None = None
    if isinstance(history, Mapping):
        values = list(history.values())
        # the type first: asking whether it is a number takes ten times as long
        wrong = [
            v
            for v in values
            if not (type(v) is float or isinstance(v, Real)) or not math.isfinite(v)
        ]
        if wrong:
            raise DataError(
                f"a history maps item ids to finite ratings, and {wrong[0]!r} is not one"
            )
    elif is_frame(history) or hasattr(history, "indptr") or hasattr(history, "nnz"):
        from discreet.models.user_rows import split_one_user  # needs pyarrow and scipy

        return split_one_user(history, scorer.item_ids)
    elif isinstance(history, (str, bytes)) or not hasattr(history, "__iter__"):
        advice = f": pass [{history!r}]" if isinstance(history, str) else ""
        raise DataError(
            f"a history is a list of item ids or a mapping item id -> rating, not {history!r}"
            f"{advice}"
        )
    elif isinstance(history, np.ndarray) and history.size and history.dtype.kind == "f":
        raise DataError(
            f"an array {history.shape} of {history.dtype} is not a history. Pass a list of item"
            " ids, a mapping item id -> rating or, for a row of ratings over all items, a"
            " sparse row such as csr_array(row)."
        )
    if isinstance(history, (Mapping, list, tuple)):
        ids = list(history)
        if all(type(item) in (int, str) for item in ids):
            return ids, values
        history = ids
    ids = as_ids(history, "item id").tolist()
    if not all(isinstance(item, Hashable) for item in ids):
        raise unhashable("item id")
    return ids, values


def is_frame(given: Any) -> bool:
    """Return whether it is a frame, by type: reading a lazy frame's columns may compute it."""
    return hasattr(type(given), "columns")


def parse_typed_history(
    texts: Iterable[str], items: ItemLookup, skip: bool = False
) -> dict[Any, float | None]:
    """Parse histories such as ``"item1=5,item2"`` to {id: rating}, None without a rating.

    Titles may hold commas: at each place the longest stretch that names an item is taken. With
    `skip` an item that the model does not know is left out instead of refused.
    """
    history: dict[Any, float | None] = {}
    for text in texts:
        pieces = text.split(",")
        if found := _COMMA_RATING.search(text):
            raise DataError(
                f"{found[0].strip(',')!r} may be a rating with a decimal comma, or a rating and"
                " another item. Write a decimal point, or put the item first."
            )
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
    path: str,
    items: ItemLookup,
    item: str | None = None,
    rating: str | None = None,
    separator: str | None = None,
    skip: bool = False,
) -> dict[Any, float | None]:
    """Read one user's history: a column of items (ids or titles) and perhaps one of ratings.

    Columns are found by their usual names unless `item` and `rating` name them.
    """
    history: dict[Any, float | None] = {}
    for line, (name, value) in _rows(path, items, item, rating, separator):
        try:
            if items.knows(name) or not skip:
                given = None if value is None or value.strip() in MISSING else value
                _add(history, items.id_of(name), _rating(given, name))
        except DataError as error:
            raise DataError(f"{path}, line {line:,}: {error}") from None
    return history


def with_default(history: dict[Any, float | None], model: Any) -> dict[Any, float]:
    """Fill in ratings: an item without one counts as liked."""
    return {
        item: model.default_rating if rating is None else rating for item, rating in history.items()
    }


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
    path: str, items: ItemLookup, item: str | None, rating: str | None, separator: str | None
) -> list[tuple[int, tuple[str, str | None]]]:
    """Yield (line, (item, rating)) of a file."""
    from discreet.data.catalog import TITLE_NAMES, id_names
    from discreet.data.column_words import normalize
    from discreet.data.columns import conventions
    from discreet.data.readers import read_list

    content = read_list(path)
    if isinstance(content, list):
        table = _text_rows(content, items, separator)
    else:
        columns = content.to_pydict()
        cells = (
            [_cell_text(value) for value in row] for row in zip(*columns.values(), strict=True)
        )
        table = [(1, list(columns)), *enumerate(cells, start=2)]
    if not table:
        raise DataError(f"{path} is empty: it should name one item per line")
    head = [normalize(name) for name in table[0][1]]
    at_item = _find_column(item, head, (*id_names(), *TITLE_NAMES), path)
    at_rating = _find_column(rating, head, conventions()["rating"], path)
    if item is None and (at_item is None or items.knows(table[0][1][0])):
        at_item = 0
        at_rating = 1
    else:
        table = table[1:]
    return [(line, (_cell(row, at_item) or "", _cell(row, at_rating))) for line, row in table]


def _find_column(
    wish: str | None, head: Sequence[str], usual: Sequence[str], path: str
) -> int | None:
    """Return the position of the named column, or of one with a usual name."""
    from discreet.data.column_words import normalize

    if wish is None:
        return next((head.index(name) for name in usual if name in head), None)
    if normalize(wish) in head:
        return head.index(normalize(wish))
    if wish.isdecimal() and int(wish) < len(head):
        return int(wish)
    raise DataError(f"{path} has no column {wish!r}: its columns are {', '.join(head)}")


def _text_rows(
    lines: list[str], items: ItemLookup, separator: str | None
) -> list[tuple[int, list[str]]]:
    """Split lines into cells; known titles may contain the separator."""
    from discreet.data.csv_format import guess_separator, split

    full = [line for line in lines if line.strip()]
    separator = separator or guess_separator(full) or guess_separator(full[:1]) or ","
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
    """Format a cell as text: ids read as 7.0 because of a gap in their column are 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _cell(row: Sequence[str], at: int | None) -> str | None:
    return row[at] if at is not None and at < len(row) else None
