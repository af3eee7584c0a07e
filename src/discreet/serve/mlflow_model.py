"""What MLflow calls to load a folder that ``discreet export --mlflow`` wrote. MLflow itself is
not imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet.errors import DataError
from discreet.models.scorer import as_history
from discreet.models.storage.load_scorer import OpenedModel, open_model

HOW_MANY = 10


class HistoryModel:
    """Lists of recommendations for histories, in the form that MLflow asks for them."""

    def __init__(self, opened: OpenedModel) -> None:
        self._opened = opened

    def predict(
        self, frame: Any, params: dict[str, Any] | None = None
    ) -> list[list[dict[str, Any]]]:
        """One list per row of a frame with a column ``history`` and perhaps ``n``.

        A history is a list of item ids, or a mapping item id → rating; JSON has text for keys, and
        "7" is the item 7.
        """
        if not hasattr(frame, "columns") or "history" not in list(frame.columns):
            raise DataError(
                "a frame with a column 'history' is needed: lists of item ids, or mappings id ->"
                " rating"
            )
        many = (params or {}).get("n", HOW_MANY)
        counts = frame["n"].tolist() if "n" in list(frame.columns) else [many] * len(frame)
        return [
            self._one(history, int(n))
            for history, n in zip(frame["history"].tolist(), counts, strict=True)
        ]

    def _one(self, history: Any, n: int) -> list[dict[str, Any]]:
        scorer = self._opened.scorer
        plain = history.tolist() if isinstance(history, np.ndarray) else history
        best, scores = scorer.best(*as_history(scorer, plain), n)
        return [
            {"item_id": scorer.name(at), "title": scorer.title(at), "score": float(score)}
            for at, score in zip(best.tolist(), scores.tolist(), strict=True)
        ]


def _load_pyfunc(path: str) -> HistoryModel:
    """The entry point that MLflow looks for."""
    return HistoryModel(open_model(path))
