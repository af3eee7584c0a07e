"""Items by id or title as users type them, and ranked lists.

Nothing here imports more than numpy, so that one command-line query starts fast.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from discreet.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_SEVERAL = -2  # several items have this title; -1: no item has it


class ItemLookup:
    """The items of a model, found by id (also an integer one, typed as text) or by title.

    A title may be given without what follows ``" · "``, without the year in brackets, with its
    words in another order ("The Matrix" for "Matrix, The (1999)"), without accents and in any case,
    as long as only one item answers to it. Ids that are text are titles where there are no others.
    """

    def __init__(self, ids: Any, titles: Any) -> None:
        self.ids: np.ndarray[Any, Any] = ids
        self.titles: np.ndarray[Any, Any] | None = titles

    @classmethod
    def of_model(cls, model: Any) -> ItemLookup:
        return cls(model.item_ids_, model.titles_)

    def id_of(self, text: str) -> Any:
        """Return the id of that item; raise a `DataError` with near misses for none or several."""
        at = self._find(text)
        if at >= 0:
            return self.ids.tolist()[at]
        if at == _SEVERAL:
            raise self.several(text)
        near = self.near(text) or f": its items are such as {', '.join(list(self._by_text)[:3])}"
        raise DataError(f"the model does not know the item {text!r}{near}")

    def several(self, text: str) -> DataError:
        """Return the error about a title that several items have."""
        same = [str(self.ids[i]) for i in self._with_title(text)]
        return DataError(
            f"{len(same)} items have the title {text!r}. Use an id: {' or '.join(same[:4])}."
        )

    def knows(self, text: str) -> bool:
        return self._find(text) >= 0

    def title_of(self, item_id: Any) -> str | None:
        if self.titles is None:
            return None
        return str(self.titles[self._by_text[str(item_id)]])

    def find_title(self, text: str) -> int:
        """Find the position of the item with that title; −1 for none and −2 for several."""
        found = self._with_title(text)
        if len(found) == 1:
            return found[0]
        return _SEVERAL if found else -1

    @property
    def _names(self) -> list[str]:
        """The titles, or without them the ids that are text."""
        if self.titles is not None:
            return [str(title) for title in self.titles]
        ids = self.ids.tolist()
        return ids if all(isinstance(item, str) for item in ids) else []

    def _with_title(self, text: str) -> list[int]:
        return self._by_title.get(fold_text(text)) or self._by_words.get(_words(text), [])

    def _find(self, text: str) -> int:
        at = self._by_text.get(text.strip())
        return self.find_title(text) if at is None else at

    def near(self, text: str) -> str:
        """Return a question about similar names, or nothing."""
        names = list(dict.fromkeys([*self._names, *self._by_text]))
        wanted = fold_text(text)
        near = [name for name in names if wanted and wanted in name.casefold()][:3]
        near = near or difflib.get_close_matches(text, names, n=3)
        return f": did you mean {' or '.join(map(repr, near))}?" if near else ""

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {str(item): at for at, item in enumerate(self.ids.tolist())}

    @cached_property
    def _by_title(self) -> dict[str, list[int]]:
        """Map every spelling of a title to positions; full titles precede shortened ones."""
        found: dict[str, list[int]] = defaultdict(list)
        for at, title in enumerate(self._names):
            for way in dict.fromkeys(map(fold_text, _spellings(title))):
                found[way].append(at)
        return found

    @cached_property
    def _by_words(self) -> dict[tuple[str, ...], list[int]]:
        """Map the words of every title, in any order, to positions."""
        found: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, title in enumerate(self._names):
            for way in dict.fromkeys(map(_words, _spellings(title))):
                found[way].append(at)
        return found


def _spellings(title: str) -> tuple[str, str, str]:
    """Return a title whole, without what follows " · ", and without the year as well."""
    plain = title.split(" · ")[0]
    short = plain[:-7] if plain.endswith(")") and plain[-7:-5] == " (" else plain
    return title, plain, short


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text without accents, sorted."""
    plain = drop_accents(fold_text(text))
    return tuple(sorted("".join(c if c.isalnum() else " " for c in plain).split()))


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


def drop_accents(text: str) -> str:
    """Replace letters with accents by the letters alone, as in "Amelie" for "Amélie"."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
