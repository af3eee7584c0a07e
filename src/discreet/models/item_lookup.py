"""Items as people name them: by id, also typed as text, or by title; and lists of them with
ranks and titles.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
        """The id of the item called so; `DataError` with near misses where there is none, or
        several.
        """
        at = self._find(text)
        if at >= 0:
            return self.ids.tolist()[at]
        if at == _SEVERAL:
            same = [str(self.ids[i]) for i in self._by_title[_key(text)]]
            raise DataError(
                f"{len(same)} items are called {text!r}: say which by its id,"
                f" {' or '.join(same[:4])}"
            )
        raise DataError(f"the model does not know the item {text!r}{self._near(text)}")

    def knows(self, text: str) -> bool:
        return self._find(text) >= 0

    def title_of(self, item_id: Any) -> str | None:
        if self.titles is None:
            return None
        return str(self.titles[self._by_text[str(item_id)]])

    def _find(self, text: str) -> int:
        text = text.strip()
        if text in self._by_text:
            return self._by_text[text]
        found = self._by_title.get(_key(text), [])
        if len(found) == 1:
            return found[0]
        return _SEVERAL if found else -1

    def _near(self, text: str) -> str:
        names = [str(t) for t in self.titles] if self.titles is not None else []
        names += list(self._by_text)
        wanted = _key(text)
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
        """Positions by every way to write a title; a longer way never shares a list with a
        shorter one of others.
        """
        found: dict[str, list[int]] = defaultdict(list)
        for at, title in enumerate(self.titles if self.titles is not None else []):
            whole = str(title)
            plain = whole.split(" · ")[0]
            short = plain[:-7] if plain.endswith(")") and plain[-7:-5] == " (" else plain
            for way in dict.fromkeys(map(_key, (whole, plain, short))):
                found[way].append(at)
        return found


def rank_items(items: ItemLookup, ids: Any, scores: Any) -> list[dict[str, Any]]:
    """One dictionary per item, best first: rank, item_id, title where known, score."""
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


def _key(text: str) -> str:
    return " ".join(text.casefold().split())
