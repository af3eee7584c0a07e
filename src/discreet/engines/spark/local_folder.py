"""Sealed blocks in a folder of this machine, which only its owner can read: Spark by itself
lets every user read.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from discreet.errors import ConfigError

#: What Spark writes: blocks, checksums, the mark of success, and a folder of tasks that are not
#: finished.
_WRITTEN = re.compile(r"\.?(part-.*\.parquet|_SUCCESS)(\.crc)?|_temporary")


def local_folder(path: str) -> Path | None:
    """Return the folder that a path of Spark stands for, or None where it is in a store that
    only Spark can reach.
    """
    return Path(unquote(urlsplit(path).path)) if path.startswith("file:") else None


def make_private(folder: Path) -> None:
    """Make the folder, or empty it of sealed blocks, so that only its owner can open it: before
    a block is in it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = list(folder.iterdir())
    if any(_WRITTEN.fullmatch(one.name) is None for one in inside):
        raise ConfigError(
            f"{folder} holds other files than sealed blocks: give another folder, or an empty one"
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
