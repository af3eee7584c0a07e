"""Files and folders that are written whole or not at all.

A file or folder is made under a hidden name next to its target, ``.name.XXXXXXXX.part``, and then
renamed. A process that is killed leaves that name behind. For folders, a lock that ends with its
process tells which ones are still in use; where the system has no such locks, a day without any
change tells which ones are not. Folders are swapped in one step where the system has such a step;
two renames leave a moment without a folder, and a process killed in it leaves the earlier folder
as ``.name.XXXXXXXX.old``, which `find_displaced` finds.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ABANDONED_AFTER = 86_400.0  # seconds: no write of a folder takes a day
_HERE = -100  # AT_FDCWD: relative paths are relative to the working directory
_SWAP = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS


@contextlib.contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a path to write to, renamed to `target` if the block succeeds and removed if not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _hidden_name(target, "part")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_sibling(target: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a new hidden folder next to `target`, removed after the block if it was not renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    while True:
        part = _hidden_name(target, "part")
        part.mkdir(mode)
        handle = _open(part)
        if (handle is None or _lock(handle, wait=True)) and part.exists():
            break
        # another process took it for an abandoned one, in the moment before there was a lock
        if handle is not None:
            os.close(handle)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def abandoned_siblings(target: Path) -> Iterator[Path]:
    """Yield, locked, the hidden folders that killed processes left next to `target`."""
    name = glob.escape(target.name)
    for suffix in ("part", "old"):
        for folder in list(target.parent.glob(f".{name}.????????.{suffix}")):
            if suffix == "old" and not target.exists():
                continue  # two renames were cut off: it is the folder itself (`find_displaced`)
            handle = _open(folder)
            try:
                if _is_abandoned(folder, handle):
                    yield folder
            finally:
                if handle is not None:
                    os.close(handle)


def swap_folders(one: Path, other: Path) -> None:
    """Swap the folders `one` and `other`, which both exist on one file system."""
    if not _swap_in_one_step(os.fsencode(one), os.fsencode(other)):
        between = _hidden_name(other, "old")
        other.rename(between)
        try:
            one.rename(other)
        except BaseException:
            between.rename(other)
            raise
        # another process took it for an abandoned one, and removed it
        with contextlib.suppress(FileNotFoundError):
            between.rename(one)


def find_displaced(target: Path) -> Path | None:
    """Find the folder of a missing `target`, if a swap by two renames was cut off."""
    left = target.parent.glob(f".{glob.escape(target.name)}.*.old") if not target.exists() else ()
    return max(left, key=lambda folder: folder.stat().st_mtime, default=None)


def _hidden_name(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{suffix}")


def _swap_in_one_step(one: bytes, other: bytes) -> bool:
    """Try to swap in one step; some file systems cannot, and Windows never can."""
    if sys.platform not in ("linux", "darwin"):
        return False
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "linux":
            return bool(libc.renameat2(_HERE, one, _HERE, other, ctypes.c_uint(_SWAP)) == 0)
        return bool(libc.renamex_np(one, other, ctypes.c_uint(_SWAP)) == 0)
    except (OSError, AttributeError):
        return False


def _is_abandoned(folder: Path, handle: int | None) -> bool:
    if handle is not None:
        return _lock(handle, wait=False)
    try:
        return time.time() - folder.stat().st_mtime > _ABANDONED_AFTER
    except OSError:  # another process removed it
        return False


def _open(folder: Path) -> int | None:
    """Open a folder for locking; None where folders cannot be locked."""
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(handle, fcntl.LOCK_UN)
        except BlockingIOError:  # a lock that another process holds
            return handle
        except OSError:  # a file system without locks
            os.close(handle)
            return None
        return handle
    return None


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def durable_write(target: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all, so that it outlasts a power cut."""
    with atomic_write(target) as part:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlast a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def only_process(file: Path) -> Iterator[bool]:
    """Hold the lock of a file that is next to what it protects; yield whether it was free."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield fcntl is None or _lock(handle, wait=False)
    finally:
        os.close(handle)
