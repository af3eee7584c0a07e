"""Models on disk: a folder of plain files that anyone can read, whole or not there.

    factors.safetensors   item factors and biases
    model.json            class, parameters, item ids, titles, what else was learnt, checksums of the other files
    ledger.json           what was released, for private models
    earlier-ledger-….json what was released for models that were here before (see `earlier`)
    README.md             a card that says what this is and what it promises

A folder is written under another name beside its place and changes places with an earlier one when complete: whoever
loads finds the earlier model or the new one, also if saving is killed at any moment. What it leaves then is a hidden
folder ``.name.….part``, which may be deleted (`exchange` says what happens where two folders cannot be swapped at
once). `load` checks the checksums, so damage is noticed. There is no pickle: loading a model runs none of its contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.encode import as_ids, object_array
from discreet.errors import ConfigError, DataError
from discreet.models import MODELS
from discreet.models import model_class as model_class  # the conformance kit puts models of its own in here
from discreet.models.base import Recommender
from discreet.models.storage.card import with_earlier
from discreet.models.storage.earlier_ledgers import LEDGER, check_replaced, earlier_name, keep_beside, kept_ledgers
from discreet.models.storage.exchange import displaced, exchange
from discreet.version import __version__

FORMAT = 2
FACTORS = "factors.safetensors"
MODEL = "model.json"
CARD = "README.md"


def save(model: Recommender, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a fitted model to the folder `path`, replacing a model that is there, and nothing else.

    A private model is only replaced where `replace` says so, and its ledger stays in the folder.
    """
    from safetensors.numpy import save as to_bytes

    model._check_fitted()
    target = Path(os.path.realpath(path))
    check_target(target)
    check_replaced(target, replace)
    files = {
        FACTORS: to_bytes(
            {
                "item_factors": np.ascontiguousarray(model.item_factors_),
                "item_biases": np.ascontiguousarray(model.item_biases_),
            }
        )
    }
    files |= {name: text.encode() for name, text in model.extra_files().items()}
    own = earlier_name(files.get(LEDGER, b""))  # saved again, a model does not come before itself
    files |= {name: content for name, content in kept_ledgers(target).items() if name != own}
    files[CARD] = with_earlier(model.card(), files).encode()
    files[MODEL] = _as_json(_description(model, files))  # last, because a folder without it is no model
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    aside.mkdir(parents=True)
    try:
        for name, content in files.items():
            with open(aside / name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _sync_folder(aside)
        if target.exists():
            exchange(aside, target)  # what is aside from here on is the earlier model
            keep_beside(target, aside, {own, *files})
        else:
            aside.rename(target)
        _sync_folder(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> Any:
    """The model saved in the folder `path`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    folder = Path(path)
    if not (folder / MODEL).is_file():
        if (left := displaced(folder)) is not None:
            raise DataError(f"{folder} does not exist, because a save was cut off: rename {left} to have it back")
        what = "is not a folder" if folder.exists() and not folder.is_dir() else "holds no model.json"
        raise DataError(f"{folder} {what if folder.exists() else 'does not exist'}: give a folder that save() wrote")
    try:
        described = json.loads((folder / MODEL).read_bytes())
        version, name = described["format"], described["class"]
        if version > FORMAT:
            raise DataError(f"{folder} was written by a newer discreet (format {version}): upgrade to load it")
        if version < 2 and LEDGER in described["sha256"]:
            raise DataError(
                f"{folder} is a private model in format 1, which did not hold every number that it predicts with: "
                "train it again, or read it with the version of discreet that wrote it"
            )
        if name not in MODELS:
            raise DataError(f"{folder} holds a {name!r}, which this version of discreet does not have")
        if any(Path(file).name != file for file in described["sha256"]):
            raise DataError(f"{folder / MODEL} lists files outside its folder")
        files = {file: (folder / file).read_bytes() for file in described["sha256"]}
        if described.pop("checksum") != _checksum(described):
            raise DataError(f"{folder / MODEL} is damaged or was changed: its checksum is not the one saved")
        for file, content in files.items():
            if hashlib.sha256(content).hexdigest() != described["sha256"][file]:
                raise DataError(f"{folder / file} is damaged or was changed: its checksum is not the one saved")
        return _assemble(described, files, from_bytes(files[FACTORS]))
    except DataError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise DataError(f"{folder} is not a complete model ({type(error).__name__}: {error})") from None


def _assemble(described: dict[str, Any], files: dict[str, bytes], arrays: dict[str, Any]) -> Recommender:
    model: Recommender = model_class(described["class"]).from_saved(described["parameters"])
    ids = as_ids([_decode(i) for i in described["item_ids"]], "item id")
    titles, scale = described["titles"], described["rating_range"]
    if not len(ids) == len(arrays["item_factors"]) == len(arrays["item_biases"]):
        raise ValueError("item ids, factors and biases differ in number")
    model.restore_items(
        ids,
        arrays["item_factors"],
        arrays["item_biases"],
        None if titles is None else object_array(titles, len(titles)),
        None if scale is None else (scale[0], scale[1]),
    )
    model.restore(described["state"])
    model.restore_files(files)
    return model


def _description(model: Recommender, files: dict[str, bytes]) -> dict[str, Any]:
    described = {
        "format": FORMAT,
        "discreet": __version__,
        "class": type(model).__name__,
        "parameters": model.saved_params(),
        "state": model.state(),
        "rating_range": model.rating_range_,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "titles": None if model.titles_ is None else model.titles_.tolist(),
        "item_ids": [_encode(i) for i in model.item_ids_.tolist()],
    }
    read: dict[str, Any] = json.loads(_as_json(described))  # as it will be, so that the checksum is of that
    return {"checksum": _checksum(read)} | read


def _as_json(described: dict[str, Any]) -> bytes:
    text = json.dumps(described, indent=1, ensure_ascii=False, default=lambda number: number.item())  # of numpy
    # half of a surrogate pair, which is no character, is written as JSON's own escape
    return (text + "\n").encode("utf-8", "backslashreplace")


def _checksum(described: dict[str, Any]) -> str:
    """Of everything else in model.json, however it is laid out."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def check_target(target: Path) -> None:
    """Refuse to replace anything but a model: the folder may hold the files that its own model.json lists."""
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file: a model is saved to a folder of its own")
    try:
        described = json.loads((target / MODEL).read_bytes())
        own = {MODEL, *described["sha256"]} if "discreet" in described else set()
    except (OSError, ValueError, LookupError, TypeError):
        own = set()
    strange = sorted({entry.name for entry in target.iterdir()} - own) if target.exists() else []
    if strange:
        raise ConfigError(f"{target} holds more than a saved model, such as {strange[0]!r}: choose a new folder")


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder outlast a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _encode(value: Any) -> Any:
    """An id as JSON: integers and text as they are, the rest tagged with its type."""
    value = value.item() if isinstance(value, np.generic) else value
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
