"""What a saved folder holds, read and checked: the one way in, for whole models and for scorers.

Folders are exchanged between strangers, so nothing here trusts one: names stay inside the folder, every file has the
checksum that model.json lists, the chain of the ledger holds, and arrays are what kernels may see. Item factors of a
large catalogue are memory-mapped: they stay on disk until they are needed, and several processes share them.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import DataError
from discreet.models import MODELS
from discreet.models.storage.earlier_ledgers import LEDGER
from discreet.models.storage.exchange import displaced

FORMAT = 2
FACTORS = "factors.safetensors"
MODEL = "model.json"
CARD = "README.md"
MAPPED = 1 << 26  # bytes from which on factors stay on disk
_KINDS = {"F32": "<f4", "F64": "<f8", "BOOL": "?", "I32": "<i4"}


@dataclass(frozen=True)
class Contents:
    """A folder that was read.

    Parameters
    ----------
    described : dict
        model.json, without its checksum.
    files : dict
        The other files by name, but for the factors.
    arrays : dict
        What factors.safetensors holds, by name.
    """

    folder: Path
    described: dict[str, Any]
    files: dict[str, bytes]
    arrays: dict[str, NDArray[Any]]

    @property
    def item_ids(self) -> list[Any]:
        return [decoded(value) for value in self.described["item_ids"]]


def read_contents(path: str | Path, *, mapped: int | None = None) -> Contents:
    """What the folder `path` holds; `mapped` is the size from which on factors are memory-mapped, if at all.

    Raises
    ------
    DataError
        One sentence for everything that is not a whole, undamaged model.
    """
    folder = Path(path)
    if not (folder / MODEL).is_file():
        if (left := displaced(folder)) is not None:
            raise DataError(f"{folder} does not exist, because a save was cut off: rename {left} to have it back")
        what = "is not a folder" if folder.exists() and not folder.is_dir() else "holds no model.json"
        raise DataError(f"{folder} {what if folder.exists() else 'does not exist'}: give a folder that save() wrote")
    try:
        return _read(folder, mapped)
    except DataError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{folder} is not a complete model ({type(error).__name__}: {error})") from None


def _read(folder: Path, mapped: int | None) -> Contents:
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
    size = (folder / FACTORS).stat().st_size
    content = _mapped(folder / FACTORS) if mapped is not None and size >= mapped else _whole(folder / FACTORS)
    files = {file: (folder / file).read_bytes() for file in described["sha256"] if file != FACTORS}
    if described.pop("checksum") != checksum(described):
        raise DataError(f"{folder / MODEL} is damaged or was changed: its checksum is not the one saved")
    for file, bits in {**files, FACTORS: content}.items():
        if hashlib.sha256(bits).hexdigest() != described["sha256"][file]:
            raise DataError(f"{folder / file} is damaged or was changed: its checksum is not the one saved")
    return Contents(folder, described, files, _arrays(content))


def checksum(described: dict[str, Any]) -> str:
    """Of everything else in model.json, however it is laid out."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def decoded(value: Any) -> Any:
    """An id as `encoded` wrote it."""
    if not isinstance(value, dict):
        return value
    kind, inner = value["type"], value["value"]
    if kind == "tuple":
        return tuple(decoded(v) for v in inner)
    makers: dict[str, Callable[[Any], Any]] = {"float": float, "bool": bool, "bytes": bytes.fromhex, "uuid": uuid.UUID}
    return makers[kind](inner)


def _whole(file: Path) -> NDArray[np.uint8]:
    content = np.frombuffer(bytearray(file.read_bytes()), np.uint8)  # a bytearray, so that arrays can be written to
    return content


def _mapped(file: Path) -> NDArray[np.uint8]:
    return np.memmap(file, np.uint8, "r")


def _arrays(content: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file as views of it; a `ValueError` for what none can be."""
    if len(content) < 8:
        raise ValueError("factors.safetensors is cut off")
    start = 8 + int(content[:8].view("<u8")[0])
    if start > len(content):
        raise ValueError("factors.safetensors is cut off")
    header = json.loads(content[8:start].tobytes())
    found = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        first, last = tensor["data_offsets"]
        kind = np.dtype(_KINDS[tensor["dtype"]])
        shape = tuple(int(length) for length in tensor["shape"])
        inside = 0 <= first <= last <= len(content) - start and min(shape, default=0) >= 0
        if not inside or last - first != kind.itemsize * int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{name} does not fit into factors.safetensors")
        part = content[start + first : start + last]
        if part.ctypes.data % kind.itemsize:
            part = part.copy()
        found[name] = part.view(kind).reshape(shape)
    return found
