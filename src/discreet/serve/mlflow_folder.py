"""``discreet export --mlflow``: a saved model as a folder that MLflow loads as a pyfunc model.

The folder is what MLflow's ``python_function`` flavor reads: a file ``MLmodel``, the model's own
folder under ``artifacts``, and the list of what to install. Nothing is pickled: MLflow calls
``discreet.serve.mlflow_model``, which opens the folder as any other reader does. Writing it needs
no MLflow.

What the loaded model predicts: for a frame with a column ``history`` (lists of item ids, or
mappings id → rating) and perhaps ``n``, one list of recommendations per row.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.models.storage.ledger_history import LEDGER
from discreet.serve.vectors import check_new
from discreet.version import __version__

if TYPE_CHECKING:
    from discreet.models.storage.load_scorer import OpenedModel

ARTIFACTS = "artifacts"


def tags(opened: OpenedModel) -> dict[str, str]:
    """What a registry should show of a model: ε, δ, the status, and the hash of the ledger."""
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
    """Write the folder, whole or not at all; it must not be there yet."""
    check_new(folder)
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.part")
    aside.mkdir()
    try:
        shutil.copytree(opened.contents.folder, aside / ARTIFACTS)
        (aside / "MLmodel").write_text(_mlmodel(opened), encoding="utf-8")
        (aside / "requirements.txt").write_text(f"discreet=={__version__}\n", encoding="utf-8")
        (aside / "python_env.yaml").write_text(
            "dependencies:\n- -r requirements.txt\n", encoding="utf-8"
        )
        os.rename(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return {"tags": tags(opened)}


def _mlmodel(opened: OpenedModel) -> str:
    """The file MLmodel. It is YAML, of which JSON is a part, so no YAML library is needed."""
    created = time.strftime("%Y-%m-%d %H:%M:%S.000000", time.gmtime())
    return (
        json.dumps(
            {
                "flavors": {
                    "python_function": {
                        "loader_module": "discreet.serve.mlflow_model",
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
