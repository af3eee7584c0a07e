"""Hidden folders beside a model's place, in which a new one is made, and what is left of those that
never came to be.

A process that is killed while it saves leaves its folder ``.name.….part``. The next save to the
same place removes it. Whether somebody is still at work in a folder, a lock on it says, which ends
with the process that holds it; where the system has no such locks, a day without any change does.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from discreet.models.storage.ledger_history import keep_beside, names_of_ledgers

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_DAY = 86_400.0


@contextlib.contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """A new hidden folder beside `target`, which is removed when the block ends, if it still
    has that name then.
    """
    while True:
        aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        aside.mkdir(parents=True)
        handle = _open(aside)
        if (handle is None or _lock(handle, wait=True)) and aside.exists():
            break
        # another process took it for one that was left, in the moment before there was a lock
        if handle is not None:
            os.close(handle)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def remove_left(target: Path) -> None:
    """Remove what killed processes left beside `target`, but for ledgers that are nowhere else."""
    name = glob.escape(target.name)
    left = [
        *target.parent.glob(f".{name}.????????.part"),
        *target.parent.glob(f".{name}.????????.old"),
    ]
    for folder in left:
        if folder.suffix == ".old" and not target.exists():
            # two renames were cut off between: it is the model itself (`exchange.displaced`)
            continue
        handle = _open(folder)
        try:
            if _is_left(folder, handle):
                keep_beside(target, folder, names_of_ledgers(target))
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            if handle is not None:
                os.close(handle)


def _is_left(folder: Path, handle: int | None) -> bool:
    if handle is not None:
        return _lock(handle, wait=False)
    try:
        return time.time() - folder.stat().st_mtime > _DAY
    except OSError:  # somebody else removed it
        return False


def _open(folder: Path) -> int | None:
    """A handle to lock, where folders can be locked."""
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if _can_lock(handle):
            return handle
        os.close(handle)
    return None


def _can_lock(handle: int) -> bool:
    """Whether the file system has locks at all; a lock that somebody else holds is one."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
