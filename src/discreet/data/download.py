"""Files from the network: resumed where they were cut, checked, and put in place only when whole."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from discreet.errors import DataError

Progress = Callable[[int, int, str], None]
CHUNK = 1 << 18


def cache_folder() -> Path:
    """Where data sets are kept: ``DISCREET_CACHE``, else ``discreet`` in the user's cache folder (XDG)."""
    if chosen := os.environ.get("DISCREET_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "discreet"


@contextlib.contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """A path to write to, renamed to ``target`` when the block succeeds and removed when it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
