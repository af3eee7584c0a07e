"""Sealed blocks in a local folder that only its owner can read; Spark would let all users read."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from discreet.errors import ConfigError

#: Files that Spark writes: blocks, checksums, the mark of success, and unfinished tasks.
_WRITTEN = re.compile(r"\.?(part-.*\.parquet|_SUCCESS)(\.crc)?|_temporary")


def local_folder(path: str) -> Path | None:
    """Return the local folder of a Spark path, or None if only Spark can access its storage."""
    return Path(unquote(urlsplit(path).path)) if path.startswith("file:") else None


def make_private(folder: Path) -> None:
    """Create or empty the folder for its owner alone, before any block is written to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = list(folder.iterdir())
    if any(_WRITTEN.fullmatch(one.name) is None for one in inside):
        raise ConfigError(
            f"{folder} holds other files than sealed blocks: choose another folder, or an empty one"
        )
    os.chmod(folder, 0o700)
    for one in inside:
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


def restrict_files(folder: Path) -> None:
    """Let only the owner read the files of the folder."""
    for one in folder.rglob("*"):
        os.chmod(one, 0o700 if one.is_dir() else 0o600)
