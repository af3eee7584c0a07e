"""Models on disk: a folder of plain files that anyone can read, whole or not there.

    factors.safetensors   item factors and biases
    model.json            class, parameters, item ids, titles, what else was learnt, checksums of the other files
    ledger.json           what was released, for private models
    earlier-ledger-….json what was released for models that were here before (see `earlier`)
    README.md             a card that says what this is and what it promises

A folder is written under another name beside its place and changes places with an earlier one when complete: whoever
loads finds the earlier model or the new one, also if saving is killed at any moment. What it leaves then is a hidden
folder ``.name.….part``, which the next save removes (`aside`; `exchange` says what happens where two folders cannot be
swapped at once). Folders are exchanged between strangers: `load` checks everything that it reads (`untrusted`), and the
model as a whole, before anybody computes with it. There is no pickle: loading a model runs none of its contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.encode import as_ids, first_repeated, object_array
from discreet.data.untrusted import (
    MOST_FACTORS,
    MOST_HEADER,
    MOST_JSON,
    OpenFolder,
    consistently,
    parse_json,
    read_arrays,
)
from discreet.errors import ConfigError, DataError, DiscreetError, PrivacyError
from discreet.models import MODELS, model_class
from discreet.models.base import Recommender
from discreet.models.storage.aside import folder_beside, remove_left
from discreet.models.storage.card import with_earlier
from discreet.models.storage.earlier_ledgers import (
    LEDGER,
    check_replaced,
    earlier_name,
    is_earlier,
    keep_beside,
    kept_ledgers,
)
from discreet.models.storage.exchange import displaced, exchange
from discreet.version import __version__

FORMAT = 2
_LONGEST = 400  # characters of a sentence about a folder, which may quote what is in it
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
    for name, content in files.items():
        if name != FACTORS and len(content) > MOST_JSON:
            raise ConfigError(f"{name} would have {len(content):,} bytes, more than a model's folder may have")
    try:
        remove_left(target)
        with folder_beside(target) as aside:
            _put_in_place(files, aside, target, own)
    except OSError as error:
        raise _about(target, error) from error


def _put_in_place(files: dict[str, bytes], aside: Path, target: Path, own: str) -> None:
    """Write the files to one folder and let it change places with the other."""
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


def _about(target: Path, error: OSError) -> OSError:
    """The same error with the path that was asked for: a disk that is full, say, names none, or a hidden one."""
    if error.errno is None:
        return error
    return OSError(error.errno, error.strerror, str(target))


def load(path: str | os.PathLike[str]) -> Any:
    """The model saved in the folder `path`.

    Another process may save a model there at the same time: what is loaded is the one or the other.
    """
    folder = Path(path)
    try:
        return consistently(folder, lambda opened: _load(folder, opened), _opened)
    except DiscreetError as error:
        if isinstance(error, DataError | PrivacyError) and len(str(error)) <= _LONGEST:
            raise
        raise DataError(f"{folder} cannot be used: {str(error)[:_LONGEST]}") from None
    except MemoryError:
        raise DataError(f"{folder} is too large for the memory of this machine") from None
    except (OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError(f"{folder} is not a complete model ({type(error).__name__}: {str(error)[:_LONGEST]})") from None


def _opened(folder: Path) -> OpenFolder:
    """The folder, if there is one.

    Where two folders cannot be swapped at once, there is a moment without any; it is waited for.
    """
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return OpenFolder(folder)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is not a folder: give a folder that save() wrote")
        if not folder.exists() and displaced(folder) is None and not folder.exists():
            raise DataError(f"{folder} does not exist: give a folder that save() wrote")
        time.sleep(0.01)
    raise DataError(f"{folder} does not exist, because a save was cut off: rename {displaced(folder)} to have it back")


def _load(folder: Path, opened: OpenFolder) -> Recommender:
    if MODEL not in opened.names():
        raise DataError(f"{folder} holds no {MODEL}: give a folder that save() wrote")
    described = parse_json(opened.read(MODEL))
    version, name, sums = described["format"], described["class"], described["sha256"]
    if type(version) is not int or version < 1:
        raise ValueError(f"the format {version!r} is none")
    if version > FORMAT:
        raise DataError(f"{folder} was written by a newer discreet (format {version}): upgrade to load it")
    if version < 2 and LEDGER in sums:
        raise DataError(
            f"{folder} is a private model in format 1, which did not hold every number that it predicts with: "
            "train it again, or read it with the version of discreet that wrote it"
        )
    if name not in MODELS:
        raise DataError(f"{folder} holds a {name!r}, which this version of discreet does not have")
    if any(Path(file).name != file for file in sums):
        raise DataError(f"{folder / MODEL} lists files outside its folder")
    if strange := [file for file in sums if file not in (FACTORS, CARD, LEDGER) and not is_earlier(file)]:
        raise DataError(f"{folder / MODEL} lists {strange[0]!r}, which is no part of a model")
    if described.pop("checksum") != _checksum(described):
        raise DataError(f"{folder / MODEL} is damaged or was changed: its checksum is not the one saved")
    most_numbers = 8 * len(described["item_ids"]) * (MOST_FACTORS + 1) + MOST_HEADER + 8
    files: dict[str, bytes] = {}
    for file, known in sums.items():
        room = MOST_JSON - sum(len(content) for other, content in files.items() if other != FACTORS)
        files[file] = opened.read(file, most_numbers if file == FACTORS else room)
        if hashlib.sha256(files[file]).hexdigest() != known:
            raise DataError(f"{folder / file} is damaged or was changed: its checksum is not the one saved")
    return _assemble(described, files)


def _assemble(described: dict[str, Any], files: dict[str, bytes]) -> Recommender:
    """The model, with everything checked that a kernel or a reader will rely on."""
    ids = _item_ids(described["item_ids"])
    arrays = read_arrays(files[FACTORS], {"item_factors": (len(ids), None), "item_biases": (len(ids),)})
    scale = _rating_range(described["rating_range"])
    titles = _titles(described["titles"], len(ids))
    for part in ("parameters", "state"):
        if not isinstance(described[part], dict):
            raise ValueError(f"{part} must be an object")
    model: Recommender = model_class(described["class"]).from_saved(described["parameters"])
    model.restore_items(ids, arrays["item_factors"], arrays["item_biases"], titles, scale)
    model.restore(described["state"])
    model.restore_files(files)
    with np.errstate(all="ignore"):
        model.check_restored()
    return model


def _item_ids(given: Any) -> NDArray[Any]:
    if not isinstance(given, list) or not given:
        raise ValueError("item_ids must be a list of at least one id")
    ids = as_ids([_decode(value) for value in given], "item id")
    if (twice := first_repeated(ids)) is not None:
        raise ValueError(f"the item {twice!r} is there twice")
    return ids


def _titles(given: Any, n: int) -> NDArray[Any] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != n or not all(isinstance(title, str) for title in given):
        raise ValueError(f"titles must be a text for each of the {n:,} items")
    return object_array(given, n)


def _rating_range(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not all(type(end) in (int, float) and math.isfinite(end) for end in given):
        raise ValueError("rating_range must be two finite numbers")
    low, high = given
    if low > high:
        raise ValueError("rating_range must go from low to high")
    return float(low), float(high)


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
    described = json.loads(_as_json(described))  # as it will be read, so that the checksum is of that
    return {"checksum": _checksum(described)} | described


def _as_json(described: dict[str, Any]) -> bytes:
    text = json.dumps(described, indent=1, ensure_ascii=False, default=lambda number: number.item())  # of numpy
    # half of a surrogate pair, which is no character, is written as JSON's own escape
    return (text + "\n").encode("utf-8", "backslashreplace")


def _checksum(described: dict[str, Any]) -> str:
    """Of everything else in model.json, however it is laid out."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def check_target(target: Path) -> None:
    """Refuse to replace anything but a model: the folder may hold the files that its own model.json lists."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target} is a file: a model is saved to a folder of its own")

    def check(opened: OpenFolder) -> None:
        try:
            described = parse_json(opened.read(MODEL))
            own = {MODEL, *described["sha256"]} if "discreet" in described else set()
        except (OSError, ValueError, LookupError, TypeError):
            own = set()
        strange = sorted(set(opened.names()) - own)
        if strange:
            raise ConfigError(f"{target} holds more than a saved model, such as {strange[0]!r}: choose a new folder")

    consistently(target, check)


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
    if type(value) in (int, str):
        return value
    kind, inner = value["type"], value["value"]
    if kind == "tuple":
        return tuple(_decode(v) for v in inner)
    makers: dict[str, Callable[[Any], Any]] = {"float": float, "bool": bool, "bytes": bytes.fromhex, "uuid": uuid.UUID}
    return makers[kind](inner)
