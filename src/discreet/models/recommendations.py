"""A list of items with scores: unpacks to (ids, scores), prints as a table, converts to a frame."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SHOWN = 30  # rows of a printed list: about one screen


class Recommendations(tuple[NDArray[Any], NDArray[np.float32]]):
    """Items and their scores, best first.

    ``ids, scores = model.recommend(history)`` unpacks it; ``print`` shows a table.

    Attributes
    ----------
    ids : (n,) array of item ids
    scores : (n,) float32
    titles : (n,) array of text, or None where the model knows none
    note : str or None
        What there is to know of all scores, printed below the table.
    """

    titles: NDArray[Any] | None
    note: str | None

    def __new__(
        cls, ids: NDArray[Any], scores: NDArray[np.float32], titles: NDArray[Any] | None = None
    ) -> Recommendations:
        made = super().__new__(cls, (ids, scores))
        made.titles = titles
        made.note = None
        return made

    @property
    def ids(self) -> NDArray[Any]:
        return self[0]

    @property
    def scores(self) -> NDArray[np.float32]:
        return self[1]

    def rows(self) -> Iterator[tuple[Any, str | None, float]]:
        """Yield (item, title or None, score) of each, best first."""
        titles = (
            [None] * len(self.ids) if self.titles is None else [str(title) for title in self.titles]
        )
        return zip(self.ids.tolist(), titles, self.scores.tolist(), strict=True)

    def to_frame(self, backend: str = "pandas") -> Any:
        """Convert to a frame (pandas, polars, pyarrow) with item_id, title (if known) and score."""
        from discreet.data.frames import make_frame

        named = {} if self.titles is None else {"title": self.titles}
        return make_frame({"item_id": self.ids, **named, "score": self.scores}, backend)

    def __repr__(self) -> str:
        if not len(self.ids):
            return self.note or "no recommendations"
        head = ["", "item", "title", "score"]
        lines = [
            [str(rank), str(item), title or "", f"{score:.4g}"]
            for rank, item, title, score in self._rows_to_show()
        ]
        if self.titles is None:
            head.pop(2)
            lines = [[rank, item, score] for rank, item, _, score in lines]
        wide = [max(len(line[at]) for line in [head, *lines]) for at in range(len(head))]
        shown = [
            "  ".join(text.ljust(room) for text, room in zip(line, wide, strict=True))
            for line in [head, *lines]
        ]
        below = self._more("\n… and {:,} more") + (f"\n{self.note}" if self.note else "")
        return "\n".join(line.rstrip() for line in shown) + below

    def _repr_html_(self) -> str:
        named = self.titles is not None
        head = "<th>item</th>" + "<th>title</th>" * named + "<th>score</th>"
        rows = "".join(
            f"<tr><td>{rank}</td><td>{escape(str(item))}</td>"
            + f"<td>{escape(title or '')}</td>" * named
            + f"<td>{score:.4g}</td></tr>"
            for rank, item, title, score in self._rows_to_show()
        )
        return (
            f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
            + self._more("<p>… and {:,} more</p>")
            + (f"<p>{escape(self.note)}</p>" if self.note else "")
        )

    def _rows_to_show(self) -> Iterator[tuple[int, Any, str | None, float]]:
        for rank, (item, title, score) in enumerate(self.rows(), start=1):
            if rank > MOST_SHOWN:
                return
            yield rank, item, title, score

    def _more(self, words: str) -> str:
        return words.format(len(self.ids) - MOST_SHOWN) if len(self.ids) > MOST_SHOWN else ""
