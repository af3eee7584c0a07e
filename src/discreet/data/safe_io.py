"""Read untrusted files: regular files only, with bounded sizes and shapes.

Model folders are exchanged between strangers. Files are checked before anything is built from them,
so that no file can hang or end the process: no pipes and devices, no endless files, and no JSON
that is nested too deeply or grows to many times its size. `models.storage.read_folder` checks the
content.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from discreet.errors import DataError, DiscreetError

_Made = TypeVar("_Made")

MOST_JSON = 1 << 28  # bytes: some millions of items with their titles
# lists and objects of a document: each takes about twenty times the memory of its two brackets
MOST_CONTAINERS = 1 << 23
MOST_DEPTH = 32  # levels of nesting: a saved model needs only a few
_ATTEMPTS = 1000  # each failed attempt means that another process saved a whole model meanwhile
_CAN_HOLD = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")


class OpenFolder:
    """A folder handle that keeps reading the same folder if another one replaces it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if _CAN_HOLD else None
        self._identity = _identity(
            os.stat(path) if self._handle is None else os.fstat(self._handle)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def is_replaced(self) -> bool:
        """Check whether another folder has taken its place."""
        try:
            return _identity(os.stat(self._path)) != self._identity
        except OSError:
            return True

    def names(self) -> list[str]:
        """Return the names of the entries."""
        return os.listdir(self._path if self._handle is None else self._handle)

    def open(self, name: str, most: int = MOST_JSON) -> BinaryIO:
        """Open a regular file of at most `most` bytes for reading."""
        # without O_NONBLOCK, opening a pipe would wait forever for a writer
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        if self._handle is None:
            handle = os.open(self._path / name, flags)
        else:
            handle = os.open(name, flags, dir_fd=self._handle)
        about = os.fstat(handle)
        problem = "is not a regular file"
        if stat.S_ISREG(about.st_mode):
            if about.st_size <= most:
                return open(handle, "rb")
            problem = f"has {about.st_size:,} bytes, but at most {most:,} are allowed"
        os.close(handle)
        raise DataError(f"{self._path / name} {problem}")

    def read(self, name: str, most: int = MOST_JSON) -> bytes:
        """Read a regular file of at most `most` bytes."""
        with self.open(name, most) as file:
            content = file.read(most + 1)
        if len(content) > most:  # it grew after it was opened
            raise DataError(f"{self._path / name} has more than {most:,} bytes")
        return content


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def consistently(
    path: Path,
    read: Callable[[OpenFolder], _Made],
    opened: Callable[[Path], OpenFolder] = OpenFolder,
) -> _Made:
    """Return what `read` makes of a folder; try again if the folder was replaced meanwhile."""
    for last in (*[False] * _ATTEMPTS, True):
        with opened(path) as folder:
            try:
                return read(folder)
            except (OSError, DiscreetError, ValueError, LookupError, TypeError):
                if last or not folder.is_replaced():
                    raise
    raise AssertionError("the last attempt returns or raises")


def read_regular(path: Path) -> bytes:
    """Read one regular file."""
    with OpenFolder(path.parent) as folder:
        return folder.read(path.name)


def read_document(path: Path) -> Any:
    """Read the JSON document in one regular file."""
    return parse_json(read_regular(path))


def parse_json(content: bytes) -> Any:
    """Parse a JSON document; raise a `ValueError` if it is nested too deeply or too large."""
    if len(content) > MOST_JSON or content.count(b"[") + content.count(b"{") > MOST_CONTAINERS:
        raise ValueError("the JSON document is too large")
    try:
        document = json.loads(content)
    except RecursionError:
        raise ValueError("the JSON document is nested too deeply") from None
    level = [document]
    depth = 0
    while level:
        level = [part for container in level for part in _parts(container)]
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError("the JSON document is nested too deeply")
    return document


def _parts(container: Any) -> list[Any]:
    """Return the lists and objects in a list or object."""
    values = container.values() if isinstance(container, dict) else container
    return (
        [value for value in values if type(value) in (list, dict)]
        if isinstance(container, (list, dict))
        else []
    )


def content_policy(style: str, script: str | None = None) -> str:
    """Write a content policy: this style sheet and this script by their hashes, nothing else."""
    scripts = "'none'" if script is None else _hash_source(script)
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_hash_source(style)};"
        " connect-src 'none'; form-action 'none'; base-uri 'none'"
    )


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
