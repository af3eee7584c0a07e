"""``discreet export --mlflow``: a saved model as a folder that MLflow loads as a pyfunc model.

The folder is what MLflow's ``python_function`` flavor reads: a file ``MLmodel``, the model's own
folder under ``artifacts``, and the requirements. Nothing is pickled: MLflow calls `_load_pyfunc` of
this module, which opens the folder like any other reader. Writing and loading do not need MLflow.

The loaded model predicts one list of recommendations per row of a frame with a column ``history``
(lists of item ids, or mappings id → rating) and optionally ``n``.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.atomic_files import temporary_sibling
from discreet.errors import DataError
from discreet.models.storage.ledger_history import LEDGER
from discreet.models.storage.load_scorer import OpenedModel, open_model
from discreet.serve.vectors import check_new
from discreet.version import __version__

ARTIFACTS = "artifacts"
HOW_MANY = 10  # as in `recommend`


def tags(opened: OpenedModel) -> dict[str, str]:
    """Return what a registry should show: ε, δ, the status, and the hash of the ledger."""
    statement = opened.statement
    ledger = opened.contents.files.get(LEDGER)
    return {
        "discreet.model": opened.name,
        "discreet.version": __version__,
        "discreet.privacy": str(statement["status"]),
        "discreet.epsilon": str(statement["epsilon"]),
        "discreet.delta": str(statement["delta"]),
        "discreet.ledger_sha256": "none" if ledger is None else hashlib.sha256(ledger).hexdigest(),
    }


def write_mlflow(opened: OpenedModel, folder: Path) -> dict[str, Any]:
    """Write the folder, completely or not at all; it must not exist."""
    check_new(folder)
    with temporary_sibling(folder) as part:
        shutil.copytree(opened.contents.folder, part / ARTIFACTS)
        (part / "MLmodel").write_text(_mlmodel(opened), encoding="utf-8")
        (part / "requirements.txt").write_text(f"discreet=={__version__}\n", encoding="utf-8")
        (part / "python_env.yaml").write_text(
            "dependencies:\n- -r requirements.txt\n", encoding="utf-8"
        )
        part.rename(folder)
    return {"tags": tags(opened)}


def _mlmodel(opened: OpenedModel) -> str:
    """Return the file MLmodel as JSON, which is a subset of YAML, so no YAML library is needed."""
    created = time.strftime("%Y-%m-%d %H:%M:%S.000000", time.gmtime())
    return (
        json.dumps(
            {
                "flavors": {
                    "python_function": {
                        "loader_module": __name__,
                        "data": ARTIFACTS,
                        "python_version": platform.python_version(),
                        "env": {"virtualenv": "python_env.yaml"},
                    }
                },
                "metadata": tags(opened),
                "model_uuid": uuid.uuid4().hex,
                "utc_time_created": created,
            },
            indent=1,
        )
        + "\n"
    )


class HistoryModel:
    """Model with the interface of MLflow's pyfunc, which recommends items for histories."""

    def __init__(self, opened: OpenedModel) -> None:
        self._opened = opened

    def predict(
        self, frame: Any, params: dict[str, Any] | None = None
    ) -> list[list[dict[str, Any]]]:
        """Return one list per row of a frame with a column ``history`` and optionally ``n``.

        A history is a list of item ids, or a mapping item id → rating. Keys of JSON are text, so
        "7" is item 7.
        """
        if not hasattr(frame, "columns") or "history" not in list(frame.columns):
            raise DataError(
                "The input has no column 'history'. Pass a frame with lists of item ids or mappings"
                " id -> rating in it."
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
        best, scores = scorer.best(*scorer.history(plain), n)
        return [
            {"item_id": scorer.name(at), "title": scorer.title(at), "score": float(score)}
            for at, score in zip(best.tolist(), scores.tolist(), strict=True)
        ]


def _load_pyfunc(path: str) -> HistoryModel:
    """Open the model; MLflow calls this function."""
    return HistoryModel(open_model(path))
