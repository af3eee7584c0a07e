"""Reading and checking of saved folders, for whole models and for scorers.

Folders are exchanged between strangers, so nothing here trusts one: names stay inside the folder,
every file has the checksum that model.json lists, the chain of the ledger holds, and arrays are
valid for kernels. Item factors of a large catalog are memory-mapped: they stay on disk until
they are needed, and several processes share them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import find_displaced
from discreet.data.ids import as_ids, first_repeated
from discreet.data.safe_io import MOST_JSON, OpenFolder, consistently, parse_json
from discreet.errors import DataError, DiscreetError, PrivacyError
from discreet.models import MODELS
from discreet.models.storage.ledger_history import LEDGER, is_earlier
from discreet.privacy.release.hash_chain import Head

FORMAT = 2
FACTORS = "factors.safetensors"
MODEL = "model.json"
CARD = "README.md"
MAPPED = 1 << 26  # bytes from which on factors stay on disk
MOST_FACTORS = 1 << 14  # more than any model has: bounds the size of a file before it is read
MOST_HEADER = 1 << 20  # bytes that describe some arrays
LARGEST = 1e18  # of numbers whose products must stay finite in single precision
#: Errors that a forged folder may cause, because a fold-in relies on its parts to fit.
_WRONG = (
    OSError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    AssertionError,
)
_LONGEST = 400  # characters of a sentence about a folder, which may quote what is in it
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
    item_ids : (n,) int64 or object
    """

    folder: Path
    described: dict[str, Any]
    files: dict[str, bytes]
    arrays: dict[str, NDArray[Any]]
    item_ids: NDArray[Any]

    @property
    def account_head(self) -> Head | None:
        """End of the chain of the account that was charged, or None."""
        return Head.from_dict(self.described["account"]) if "account" in self.described else None


@contextlib.contextmanager
def in_one_sentence(folder: Path) -> Iterator[None]:
    """Convert any error about a folder to a one-sentence `DataError`; keep a `PrivacyError`."""
    try:
        yield
    except DiscreetError as error:
        if isinstance(error, DataError | PrivacyError) and len(str(error)) <= _LONGEST:
            raise
        raise DataError(f"{folder} cannot be used: {str(error)[:_LONGEST]}") from None
    except MemoryError:
        raise DataError(f"{folder} is too large for the memory of this machine") from None
    except _WRONG as error:
        what = f"{type(error).__name__}: {error}"[:_LONGEST]
        raise DataError(f"{folder} is not a complete model ({what})") from None


def read_contents(path: str | Path, *, mapped: int | None = None) -> Contents:
    """Read the folder `path`; factors of at least `mapped` bytes are memory-mapped.

    Another process may save a model there at the same time: the result is one of the two, whole.

    Raises
    ------
    DataError
        One sentence for everything that is not a whole, undamaged model.
    """
    folder = Path(path)
    with in_one_sentence(folder):
        return consistently(folder, lambda opened: _read(folder, opened, mapped), _open_folder)


def _open_folder(folder: Path) -> OpenFolder:
    """Open the folder, if there is one.

    Where two folders cannot be swapped at once, there is a moment without any; it is waited for.
    """
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return OpenFolder(folder)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is not a folder. Pass a folder that save() wrote.")
        if not folder.exists() and find_displaced(folder) is None and not folder.exists():
            raise DataError(f"{folder} does not exist. Pass a folder that save() wrote.")
        time.sleep(0.01)
    raise DataError(
        f"{folder} does not exist, because a save was interrupted. Rename {find_displaced(folder)}"
        " to restore it."
    )


def _read(folder: Path, opened: OpenFolder, mapped: int | None) -> Contents:
    if MODEL not in opened.names():
        raise DataError(f"{folder} has no {MODEL}. Pass a folder that save() wrote.")
    described = parse_json(opened.read(MODEL))
    sums = described["sha256"]
    _check_kind(folder, described["format"], described["class"], sums)
    if described.pop("checksum") != checksum(described):
        raise DataError(
            f"{folder / MODEL} is damaged or was changed: its checksum is not the one saved"
        )
    ids = _item_ids(described["item_ids"])
    _check_description(described, len(ids))
    content = _factors(opened, len(ids), mapped)
    files: dict[str, bytes] = {}
    for file in sums:
        if file != FACTORS:
            files[file] = opened.read(file, MOST_JSON - sum(map(len, files.values())))
    everything: dict[str, Any] = {**files, FACTORS: content}
    for file, bits in everything.items():
        if hashlib.sha256(bits).hexdigest() != sums[file]:
            raise DataError(
                f"{folder / file} is damaged or was changed: its checksum is not the one saved"
            )
    arrays = _arrays(content)
    _check_items(arrays, len(ids), folder / FACTORS)
    if LEDGER in files:
        _check_promise(described["parameters"], parse_json(files[LEDGER]))
    return Contents(folder, described, files, arrays, ids)


# ------------------------------------------------------------ checks


def _check_kind(folder: Path, version: Any, name: Any, sums: Any) -> None:
    if type(version) is not int or version < 1:
        raise ValueError(f"unknown format {version!r}")
    if version > FORMAT:
        raise DataError(
            f"{folder} was written by a newer discreet (format {version}). Upgrade to load it."
        )
    if version < 2 and LEDGER in sums:
        raise DataError(
            f"{folder} is a private model in format 1, which lacked numbers needed for prediction."
            " Train it again, or read it with the version of discreet that wrote it."
        )
    if name not in MODELS:
        raise DataError(f"{folder} holds a {name!r}, which this version of discreet does not have")
    if any(Path(file).name != file for file in sums):
        raise DataError(f"{folder / MODEL} lists files outside its folder")
    if strange := [
        file for file in sums if file not in (FACTORS, CARD, LEDGER) and not is_earlier(file)
    ]:
        raise DataError(f"{folder / MODEL} lists {strange[0]!r}, which is not part of a model")


def _item_ids(given: Any) -> NDArray[Any]:
    if not isinstance(given, list) or not given:
        raise ValueError("item_ids must be a list of at least one id")
    ids = as_ids([decode_id(value) for value in given], "item id")
    if (twice := first_repeated(ids)) is not None:
        raise ValueError(f"the item {twice!r} is there twice")
    return ids


def _check_description(described: dict[str, Any], n: int) -> None:
    """Raise a `ValueError` unless the parts of model.json are of the kinds that readers rely on."""
    for part in ("parameters", "state"):
        if not isinstance(described[part], dict):
            raise ValueError(f"{part} must be an object")
    if not isinstance(described["state"].get("details", {}), dict):
        raise ValueError("details must be an object")
    if "account" in described:
        Head.from_dict(described["account"])
    titles, scale = described["titles"], described["rating_range"]
    if titles is not None and (
        not isinstance(titles, list)
        or len(titles) != n
        or not all(isinstance(title, str) for title in titles)
    ):
        raise ValueError(f"titles must be a text for each of the {n:,} items")
    if scale is None:
        return
    if not isinstance(scale, list) or not all(
        type(end) in (int, float) and abs(end) <= LARGEST for end in scale
    ):
        raise ValueError("rating_range must be two numbers")
    low, high = scale
    if low > high:
        raise ValueError("rating_range must go from low to high")


def _check_items(arrays: dict[str, NDArray[Any]], n: int, where: Path) -> None:
    """Raise a `DataError` unless these arrays are valid for kernels, and their products finite."""
    for name, ndim in (("item_factors", 2), ("item_biases", 1)):
        array = arrays[name]
        if array.dtype not in (np.float32, np.float64):
            raise DataError(f"{where}: {name} holds {array.dtype}, but must be float32 or float64")
        if array.ndim != ndim or len(array) != n:
            raise DataError(
                f"{where}: {name} has the shape {array.shape}, which does not fit {n:,} items"
            )
        if array.size and not bool(np.abs(array).max() <= LARGEST):
            raise DataError(f"{where}: {name} holds numbers that are not finite, or far too large")


def _check_promise(parameters: dict[str, Any], ledger: dict[str, Any]) -> None:
    """Raise a `DataError` where the parameters state another guarantee than the ledger.

    Where the noise was given instead of ε, the model checks it
    (`PrivateRecommender.check_restored`).
    """
    plan = ledger["plan"]
    said = {name: plan["budget"][name] for name in ("epsilon", "delta", "neighboring")}
    if plan["scale"] == 1:
        del said["epsilon"]
    same = all(parameters[name] == value for name, value in said.items())
    if not same or (parameters["noise"] == "secure" and ledger["noise"] != "secure"):
        raise DataError(
            f"the parameters state another guarantee than {LEDGER}: one of them was changed"
        )


# ------------------------------------------------------------ reading


def _factors(opened: OpenFolder, n: int, mapped: int | None) -> NDArray[np.uint8]:
    """Return the bytes of the arrays: in memory or, if there are many, on disk."""
    # a fold-in has no more than a few numbers for every item
    most = 8 * n * (MOST_FACTORS + 4) + MOST_HEADER
    with opened.open(FACTORS, most) as file:
        if mapped is not None and os.fstat(file.fileno()).st_size >= mapped:
            return np.memmap(file, np.uint8, "r")
        # a bytearray, so that arrays can be written to
        return np.frombuffer(bytearray(file.read()), np.uint8)


def checksum(described: dict[str, Any]) -> str:
    """Hash everything else in model.json, independent of its layout."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def decode_id(value: Any) -> Any:
    """Decode an id as `encoded` wrote it."""
    if type(value) in (int, str):
        return value
    kind, inner = value["type"], value["value"]
    if kind == "tuple":
        return tuple(decode_id(v) for v in inner)
    makers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "bool": bool,
        "bytes": bytes.fromhex,
        "uuid": uuid.UUID,
    }
    return makers[kind](inner)


def _arrays(content: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file as views; raise a `ValueError` if malformed."""
    if len(content) < 8:
        raise ValueError("factors.safetensors is cut off")
    start = 8 + int(content[:8].view("<u8")[0])
    if start > min(len(content), MOST_HEADER):
        raise ValueError("factors.safetensors is cut off")
    header = parse_json(content[8:start].tobytes())
    found: dict[str, NDArray[Any]] = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        if tensor["dtype"] not in _KINDS:
            raise ValueError(f"{name} holds {tensor['dtype']!r}, but must be float32 or float64")
        first, last = tensor["data_offsets"]
        if not all(type(number) is int for number in (first, last, *tensor["shape"])):
            raise ValueError(f"{name} has a shape or an offset that is not a whole number")
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
