"""Models on disk: a folder of plain files that anyone can read, whole or not there.

    factors.safetensors   item factors and biases
    model.json            class, parameters, item ids, titles, what else was learnt, checksums of the other files
    ledger.json           what was released, for private models
    README.md             a card that says what this is and what it promises

A folder is written under another name beside its place and renamed when complete; `load` checks the checksums, so half
a model is never taken for a whole one. There is no pickle: loading a model runs none of its contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.encode import as_ids, object_array
from discreet.errors import ConfigError, DataError
from discreet.models import MODELS, model_class
from discreet.models.base import Recommender

FORMAT = 1
FACTORS, MODEL, CARD, LEDGER = "factors.safetensors", "model.json", "README.md", "ledger.json"


def save(model: Recommender, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to the folder `path`, replacing a model that is there, and nothing else."""
    from safetensors.numpy import save as to_bytes

    model._check_fitted()
    target = Path(path)
    _check_target(target)
    files = {FACTORS: to_bytes({"item_factors": np.ascontiguousarray(model.item_factors_),
                                "item_biases": np.ascontiguousarray(model.item_biases_)})}  # fmt: skip
    files |= {name: text.encode() for name, text in model.extra_files().items()}
    files[CARD] = model.card().encode()
    files[MODEL] = (json.dumps(_description(model, files), indent=1, ensure_ascii=False) + "\n").encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        for name, content in files.items():
            with open(aside / name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        aside.chmod(0o755)
        _swap(aside, target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def load(path: str | os.PathLike[str]) -> Any:
    """The model saved in the folder `path`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    folder = Path(path)
    if not (folder / MODEL).is_file():
        what = "is not a folder" if folder.exists() and not folder.is_dir() else "holds no model.json"
        raise DataError(f"{folder} {what if folder.exists() else 'does not exist'}: give a folder that save() wrote")
    try:
        described = json.loads((folder / MODEL).read_text(encoding="utf-8"))
        version, name = described["format"], described["class"]
        if version > FORMAT:
            raise DataError(f"{folder} was written by a newer discreet (format {version}): upgrade to load it")
        if name not in MODELS:
            raise DataError(f"{folder} holds a {name!r}, which this version of discreet does not have")
        for file, digest in described["sha256"].items():
            if hashlib.sha256((folder / file).read_bytes()).hexdigest() != digest:
                raise DataError(f"{folder / file} is damaged or was changed: its checksum is not the one saved")
        model: Recommender = model_class(name)(**described["parameters"])
        arrays = from_bytes((folder / FACTORS).read_bytes())
        titles = described["titles"]
        model.restore_items(
            as_ids([_decode(i) for i in described["item_ids"]], "item id"),
            arrays["item_factors"],
            arrays["item_biases"],
            None if titles is None else object_array(titles, len(titles)),
            None if described["rating_range"] is None else tuple(described["rating_range"]),
        )
        model.restore(described["state"])
    except (OSError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError, SafetensorError) as error:
        raise DataError(f"{folder} is not a complete model ({type(error).__name__}: {error})") from None
    return model


def _description(model: Recommender, files: dict[str, bytes]) -> dict[str, Any]:
    import discreet

    return {
        "format": FORMAT,
        "discreet": discreet.__version__,
        "class": type(model).__name__,
        "parameters": model.get_params(),
        "state": model.state(),
        "rating_range": model.rating_range_,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "titles": None if model.titles_ is None else model.titles_.tolist(),
        "item_ids": [_encode(i) for i in model.item_ids_.tolist()],
    }


def _check_target(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file: a model is saved to a folder of its own")
    if target.is_dir() and any(target.iterdir()) and not (target / MODEL).is_file():
        raise ConfigError(f"{target} holds other things than a saved model: choose a new folder")


def _swap(aside: Path, target: Path) -> None:
    """Put the finished folder in its place; the old one, if any, goes only when the new one is there."""
    if not target.exists():
        aside.rename(target)
        return
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
    target.rename(old)
    try:
        aside.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _encode(value: Any) -> Any:
    """An id as JSON: integers and text as they are, the rest tagged with its type."""
    if type(value) in (int, str):
        return value
    if type(value) in (float, bool):
        return {"type": type(value).__name__, "value": value}
    if isinstance(value, tuple):
        return {"type": "tuple", "value": [_encode(v) for v in value]}
    if isinstance(value, bytes):
        return {"type": "bytes", "value": value.hex()}
    if isinstance(value, uuid.UUID):
        return {"type": "uuid", "value": str(value)}
    raise ConfigError(
        f"item ids of type {type(value).__name__} cannot be saved: use integers, text, tuples, bytes or UUIDs"
    )


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, inner = value["type"], value["value"]
    if kind == "tuple":
        return tuple(_decode(v) for v in inner)
    makers: dict[str, Callable[[Any], Any]] = {"float": float, "bool": bool, "bytes": bytes.fromhex, "uuid": uuid.UUID}
    return makers[kind](inner)
