"""Two folders change places in one step, where the system has such a step.

Replacing a folder by two renames leaves a moment in which there is none. A process killed in it
would leave the earlier folder beside its place, under a hidden name that `displaced` finds.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
import uuid
from pathlib import Path

_HERE = -100  # AT_FDCWD: relative paths are relative to the working directory
_SWAP = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS


def exchange(one: Path, other: Path) -> None:
    """Let the folders `one` and `other`, both there and on one file system, change places."""
    if not _in_one_step(os.fsencode(one), os.fsencode(other)):
        between = other.with_name(f".{other.name}.{uuid.uuid4().hex[:8]}.old")
        other.rename(between)
        try:
            one.rename(other)
        except BaseException:
            between.rename(other)
            raise
        # another save took it for one that was left, and removed it
        with contextlib.suppress(FileNotFoundError):
            between.rename(one)


def find_displaced(place: Path) -> Path | None:
    """The folder that belongs to `place`, where there is none, if two renames were cut off
    between.
    """
    left = place.parent.glob(f".{glob.escape(place.name)}.*.old") if not place.exists() else ()
    return max(left, key=lambda folder: folder.stat().st_mtime, default=None)


def _in_one_step(one: bytes, other: bytes) -> bool:
    """Whether the system could do it; some file systems cannot, and Windows never can."""
    if sys.platform not in ("linux", "darwin"):
        return False
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "linux":
            return bool(libc.renameat2(_HERE, one, _HERE, other, ctypes.c_uint(_SWAP)) == 0)
        return bool(libc.renamex_np(one, other, ctypes.c_uint(_SWAP)) == 0)
    except (OSError, AttributeError):
        return False
