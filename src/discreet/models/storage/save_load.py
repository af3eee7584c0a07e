"""Models on disk: a folder of plain files that anyone can read, whole or not there.

    factors.safetensors   item factors and biases, and arrays that reading a history needs
    model.json            class, parameters, item ids, titles, other learned values, the fold-in,
                          checksums
    ledger.json           what was released, for private models
    earlier-ledger-….json what was released for models that were here before (see `earlier`)
    README.md             a card with a description and the guarantee

A folder is written under another name and changes places with an earlier one when complete: loading
finds the earlier model or the new one, also if saving is killed at any moment. What it leaves then
is a hidden folder ``.name.….part``, which the next save removes (`data/atomic_files`). Folders are
exchanged between strangers: `load` checks everything that it reads (`safe_io`), and the model as a
whole. There is no pickle: loading a model runs none of its contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import (
    abandoned_siblings,
    swap_folders,
    sync_folder,
    temporary_sibling,
)
from discreet.data.ids import object_array
from discreet.data.safe_io import MOST_JSON, OpenFolder, consistently, parse_json
from discreet.errors import ConfigError

# the conformance kit puts models of its own in here
from discreet.models import model_class as model_class
from discreet.models.base import Recommender
from discreet.models.storage.hub import SCHEME, download
from discreet.models.storage.ledger_history import (
    LEDGER,
    check_replaced,
    earlier_name,
    keep_beside,
    ledgers_to_keep,
    names_of_ledgers,
)
from discreet.models.storage.model_card import with_earlier
from discreet.models.storage.read_folder import (
    CARD,
    FACTORS,
    FORMAT,
    MODEL,
    Contents,
    checksum,
    in_one_sentence,
    read_contents,
)
from discreet.version import __version__


@dataclass(frozen=True)
class SavedModel:
    """A fitted model as it is saved: values that the model made once (`Recommender.to_saved`).

    Attributes
    ----------
    model_class : name of the class
    parameters, state : for `Recommender.from_saved` and `Recommender.restore`, as JSON values
    item_ids, titles, rating_range : of the model
    arrays : item factors and biases, and those of the fold-in
    fold_in : how readers without the class fold in a history, as JSON; empty if they cannot
    files : further files by name, such as the ledger
    card : the README
    account : end of the charged account's chain, so that an older copy is detected; or None
    """

    model_class: str
    parameters: dict[str, Any]
    state: dict[str, Any]
    item_ids: NDArray[Any]
    titles: NDArray[Any] | None
    rating_range: tuple[float, float] | None
    arrays: dict[str, NDArray[Any]]
    fold_in: dict[str, Any]
    files: dict[str, str]
    card: str
    account: dict[str, Any] | None = None


def save(model: SavedModel, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a model to the folder `path`, replacing a model that is there, and nothing else.

    A private model is only replaced with `replace`, and its ledger stays in the folder.
    """
    from safetensors.numpy import save as to_bytes

    target = Path(os.path.realpath(path))
    check_target(target)
    check_replaced(target, replace)
    arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays.items()}
    files = {FACTORS: to_bytes(arrays)}
    files |= {name: text.encode() for name, text in model.files.items()}
    own = earlier_name(files.get(LEDGER, b""))  # a model saved again is not its own predecessor
    files |= {name: content for name, content in ledgers_to_keep(target).items() if name != own}
    files[CARD] = with_earlier(model.card, files).encode()
    # last, because a folder without it is no model
    files[MODEL] = _as_json(_description(model, files))
    for name, content in files.items():
        if name != FACTORS and len(content) > MOST_JSON:
            raise ConfigError(
                f"{name} would have {len(content):,} bytes, more than a model's file may have"
            )
    try:
        for left in abandoned_siblings(target):
            keep_beside(target, left, names_of_ledgers(target))
            shutil.rmtree(left, ignore_errors=True)
        with temporary_sibling(target) as part:
            _put_in_place(files, part, target, own)
    except OSError as error:
        raise _about(target, error) from error


def _put_in_place(files: dict[str, bytes], part: Path, target: Path, own: str) -> None:
    """Write the files to one folder and swap it with the other."""
    for name, content in files.items():
        with open(part / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(part)
    if target.exists():
        swap_folders(part, target)  # from here on, part is the earlier model
        keep_beside(target, part, {own, *files})
    else:
        part.rename(target)
    sync_folder(target.parent)


def _about(target: Path, error: OSError) -> OSError:
    """Return the same error with the path that was asked for: a disk that is full, say, names none,
    or a hidden one.
    """
    if error.errno is None:
        return error
    return OSError(error.errno, error.strerror, str(target))


def load(path: str | os.PathLike[str]) -> Any:
    """Load the model saved in the folder `path`, or on the Hugging Face Hub: ``hf://user/name``.

    Another process may save a model there at the same time: the result is one of the two.
    """
    if isinstance(path, str) and path.startswith(SCHEME):
        path = download(path)
    return assemble(read_contents(Path(path)))


def assemble(contents: Contents) -> Recommender:
    """Construct the model of a folder, and try it before it is returned."""
    with in_one_sentence(contents.folder):
        return _assemble(contents)


def _assemble(contents: Contents) -> Recommender:
    described, arrays = contents.described, contents.arrays
    model: Recommender = model_class(described["class"]).from_saved(described["parameters"])
    titles, scale = described["titles"], described["rating_range"]
    model.restore_items(
        contents.item_ids,
        arrays["item_factors"],
        arrays["item_biases"],
        None if titles is None else object_array(titles, len(titles)),
        None if scale is None else (float(scale[0]), float(scale[1])),
    )
    model.restore(described["state"])
    model.restore_files(contents.files)
    model.restore_arrays(arrays)
    if contents.account_head is not None:
        model.account_head_ = contents.account_head  # type: ignore[attr-defined]
    with np.errstate(all="ignore"):
        model.check_restored()
    return model


def _description(model: SavedModel, files: dict[str, bytes]) -> dict[str, Any]:
    described = {
        "format": FORMAT,
        "discreet": __version__,
        "class": model.model_class,
        "parameters": model.parameters,
        "state": model.state,
        "rating_range": model.rating_range,
        **model.fold_in,
        **({} if model.account is None else {"account": model.account}),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "titles": None if model.titles is None else model.titles.tolist(),
        "item_ids": [encode_id(i) for i in model.item_ids.tolist()],
    }
    # as it will be, so that the checksum is of that
    read: dict[str, Any] = json.loads(_as_json(described))
    return {"checksum": checksum(read)} | read


def _as_json(described: dict[str, Any]) -> bytes:
    # `default` converts numpy scalars
    text = json.dumps(described, indent=1, ensure_ascii=False, default=lambda number: number.item())
    # half of a surrogate pair, which is no character, is written as JSON's own escape
    return (text + "\n").encode("utf-8", "backslashreplace")


def check_target(target: Path) -> None:
    """Raise a `ConfigError` unless the folder holds only files that its own model.json lists."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target} is a file. Choose a folder to save the model to.")

    def check(opened: OpenFolder) -> None:
        try:
            described = parse_json(opened.read(MODEL))
            own = {MODEL, *described["sha256"]} if "discreet" in described else set()
        except (OSError, ValueError, LookupError, TypeError):
            own = set()
        strange = sorted(set(opened.names()) - own)
        if strange:
            raise ConfigError(
                f"{target} holds more than a saved model, such as {strange[0]!r}. Choose a new"
                " folder."
            )

    consistently(target, check)


def encode_id(value: Any) -> Any:
    """Encode an id as JSON: integers and text as they are, the rest tagged with its type."""
    value = value.item() if isinstance(value, np.generic) else value
    if type(value) in (int, str):
        return value
    if type(value) in (float, bool):
        return {"type": type(value).__name__, "value": value}
    if isinstance(value, tuple):
        return {"type": "tuple", "value": [encode_id(v) for v in value]}
    if isinstance(value, bytes):
        return {"type": "bytes", "value": value.hex()}
    if isinstance(value, uuid.UUID):
        return {"type": "uuid", "value": str(value)}
    raise ConfigError(
        f"item ids of type {type(value).__name__} cannot be saved. Use integers, text, tuples,"
        " bytes or UUIDs."
    )
