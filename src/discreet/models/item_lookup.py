"""Items by id or title as users type them, histories from text or files, and ranked lists.

Nothing here imports more than numpy, so that one command-line query starts fast.
"""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from discreet.data.ids import MISSING
from discreet.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_SEVERAL = -2


class ItemLookup:
    """The items of a model, found by id (also an integer one, typed as text) or by title.

    A title may be given without what follows ``" · "`` and without the year in brackets, in any
    case, as long as only one item answers to it.
    """

    def __init__(self, model: Any) -> None:
        self.ids: np.ndarray[Any, Any] = model.item_ids_
        self.titles: np.ndarray[Any, Any] | None = model.titles_

    def id_of(self, text: str) -> Any:
        """Return the id of that item; raise a `DataError` with near misses for none or several."""
        at = self._find(text)
        if at >= 0:
            return self.ids.tolist()[at]
        if at == _SEVERAL:
            same = [str(self.ids[i]) for i in self._by_title[fold_text(text)]]
            raise DataError(
                f"{len(same)} items have the title {text!r}. Use an id: {' or '.join(same[:4])}."
            )
        raise DataError(f"the model does not know the item {text!r}{self._near(text)}")

    def knows(self, text: str) -> bool:
        return self._find(text) >= 0

    def title_of(self, item_id: Any) -> str | None:
        if self.titles is None:
            return None
        return str(self.titles[self._by_text[str(item_id)]])

    def find_title(self, text: str) -> int:
        """Find the position of the item with that title; −1 for none and −2 for several."""
        found = self._by_title.get(fold_text(text), [])
        if len(found) == 1:
            return found[0]
        return _SEVERAL if found else -1

    def _find(self, text: str) -> int:
        at = self._by_text.get(text.strip())
        return self.find_title(text) if at is None else at

    def _near(self, text: str) -> str:
        names = [str(t) for t in self.titles] if self.titles is not None else []
        names += list(self._by_text)
        wanted = fold_text(text)
        near = [name for name in names if wanted and wanted in name.casefold()][:3]
        near = near or difflib.get_close_matches(text, names, n=3)
        if near:
            return f": did you mean {' or '.join(map(repr, near))}?"
        return f": its items are such as {', '.join(list(self._by_text)[:3])}"

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {str(item): at for at, item in enumerate(self.ids.tolist())}

    @cached_property
    def _by_title(self) -> dict[str, list[int]]:
        """Map every spelling of a title to positions; full titles precede shortened ones."""
        found: dict[str, list[int]] = defaultdict(list)
        for at, title in enumerate(self.titles if self.titles is not None else []):
            whole = str(title)
            plain = whole.split(" · ")[0]
            short = plain[:-7] if plain.endswith(")") and plain[-7:-5] == " (" else plain
            for way in dict.fromkeys(map(fold_text, (whole, plain, short))):
                found[way].append(at)
        return found


def rank_items(items: ItemLookup, ids: Any, scores: Any) -> list[dict[str, Any]]:
    """Return one dictionary per item, best first: rank, item_id, title where known, score."""
    rows = []
    for rank, (item, score) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True), start=1):
        title = items.title_of(item)
        rows.append(
            {
                "rank": rank,
                "item_id": item,
                **({} if title is None else {"title": title}),
                "score": score,
            }
        )
    return rows


def fold_text(text: str) -> str:
    """Fold case and space, so that titles compare as users type them."""
    return " ".join(text.casefold().split())


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
    from discreet.data.catalog import ID_NAMES, TITLE_NAMES
    from discreet.data.columns import CONVENTIONS, normalize
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
    at_item = _find_column(item, head, (*ID_NAMES, *TITLE_NAMES), path)
    at_rating = _find_column(rating, head, CONVENTIONS["rating"], path)
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
    from discreet.data.columns import normalize

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
