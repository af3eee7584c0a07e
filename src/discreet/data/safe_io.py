"""Reading files that a stranger may have written: nothing but regular files, of sizes and shapes
that can be meant.

Folders of models are exchanged between strangers. What is read here is checked before anything is
built from it, so that no file, however it was made, can hang or end the process: no pipes and
devices, no file without end, and no JSON that is nested without end or grows to many times its
size. What is in the files, `models.storage.contents` judges.
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
# lists and objects of a document, each of which takes twenty times its two brackets
MOST_CONTAINERS = 1 << 23
MOST_DEPTH = 32
_ATTEMPTS = 1000  # every one of them means that another process has saved a whole model meanwhile
_CAN_HOLD = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")


class OpenFolder:
    """A folder that stays the same one while it is read, though another may take its place
    meanwhile.
    """

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
        """Whether something else is in its place by now."""
        try:
            return _identity(os.stat(self._path)) != self._identity
        except OSError:
            return True

    def names(self) -> list[str]:
        """What is in it."""
        return os.listdir(self._path if self._handle is None else self._handle)

    def open(self, name: str, most: int = MOST_JSON) -> BinaryIO:
        """A regular file of at most so many bytes, opened for reading."""
        # a pipe would wait for a writer for ever, without the flag
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
            problem = f"has {about.st_size:,} bytes, more than such a file can have"
        os.close(handle)
        raise DataError(f"{self._path / name} {problem}")

    def read(self, name: str, most: int = MOST_JSON) -> bytes:
        """The content of a regular file of at most so many bytes."""
        with self.open(name, most) as file:
            content = file.read(most + 1)
        if len(content) > most:  # it grew
            raise DataError(f"{self._path / name} is larger than any such file can be")
        return content


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def consistently(
    path: Path,
    read: Callable[[OpenFolder], _Made],
    opened: Callable[[Path], OpenFolder] = OpenFolder,
) -> _Made:
    """What `read` makes of a folder; once more, if it failed because another folder took the
    place of that one.
    """
    for last in (*[False] * _ATTEMPTS, True):
        with opened(path) as folder:
            try:
                return read(folder)
            except (OSError, DiscreetError, ValueError, LookupError, TypeError):
                if last or not folder.is_replaced():
                    raise
    raise AssertionError("the last attempt returns or raises")


def read_regular(path: Path) -> bytes:
    """The content of one regular file."""
    with OpenFolder(path.parent) as folder:
        return folder.read(path.name)


def read_document(path: Path) -> Any:
    """The JSON document in one regular file."""
    return parse_json(read_regular(path))


def parse_json(content: bytes) -> Any:
    """A JSON document; a `ValueError` for one that is nested too deeply, or holds too many
    parts.
    """
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
    """The lists and objects in a list or object."""
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
