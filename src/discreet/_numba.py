"""Compiling, wherever this library is installed: numba's decorator, which does without a writable
home.

Compiled code is kept between two starts: beside the source or, where that is read-only, in the
user's cache folder. In a locked-down container neither can be written, and numba itself would
refuse to define a single function. So a folder for temporary files takes their place, and where
there is none of these either, nothing is kept. What numba keeps is code that it runs, so the folder
must be one that nobody else can write.

Whoever shows progress can be `told` what is being compiled: on a fresh installation that is most of
the time that the first training takes. numba itself is imported by the first function that is to be
compiled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

logger = logging.getLogger("discreet")

# how many functions have been compiled so far, and the name of the next one
Told = Callable[[int, str], None]
_told: list[Told] = []
_lanes = os.environ.get("DISCREET_LANES", "")  # see discreet.kernels.simd
_LANES = f"-lanes-{_lanes}" if _lanes.isdigit() else ""


def njit(function: Any = None, **options: Any) -> Any:
    """`numba.njit`, with ``cache=True`` as far as there is a folder to keep compiled code in."""
    return (
        _compile(function, options)
        if function is not None
        else lambda given: _compile(given, options)
    )


@contextmanager
def on_compile(tell: Told) -> Iterator[None]:
    """While the block runs, `tell` hears of every function that is compiled and not found in a
    cache.
    """
    _told.append(tell)
    try:
        yield
    finally:
        _told.remove(tell)


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import numba

    _listen()
    _separate_lanes()
    try:
        return numba.njit(**options)(function)
    except RuntimeError:  # no folder can be written; any other reason is raised again below
        if not options.get("cache"):
            raise
    if _use_temporary_folder() is not None:
        with contextlib.suppress(RuntimeError):
            return numba.njit(**options)(function)
    return numba.njit(**options | {"cache": False})(function)


@lru_cache(maxsize=1)
def _listen() -> None:
    """Hear of numba's compilations, once."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        compiled = 0

        def on_start(self, event: Any) -> None:
            for tell in _told:
                tell(self.compiled, event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            self.compiled += 1

    event.register("numba:compile", Listener())


@lru_cache(maxsize=1)
def _separate_lanes() -> None:
    """Keep code of ``DISCREET_LANES`` in a folder of its own: numba cannot tell it from other
    code for the same processor.
    """
    if not _LANES:
        return
    import numba
    from numba.misc.appdirs import AppDirs

    kept = os.environ.get("NUMBA_CACHE_DIR") or AppDirs("numba", appauthor=False).user_cache_dir
    if Path(kept).name != _LANES:  # a child process finds the folder of its parent
        kept = str(Path(kept, _LANES))
    os.environ["NUMBA_CACHE_DIR"] = kept
    numba.config.CACHE_DIR = kept  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _use_temporary_folder() -> Path | None:
    """Let numba keep compiled code in a private folder among the temporary files, and say so."""
    import numba

    folder = next(_private_folders(), None)
    if folder is None:
        logger.warning(
            "compiled code cannot be kept anywhere, so every start compiles again: "
            "set NUMBA_CACHE_DIR to a folder that can be written"
        )
        return None
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # numba reads it again from time to time
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    logger.warning(
        "compiled code is kept in %s, because neither the installation nor the home folder can be"
        " written: set NUMBA_CACHE_DIR to keep it elsewhere",
        folder,
    )
    return folder


def _private_folders() -> Iterator[Path]:
    """Folders for temporary files that only this user can write, made if need be."""
    for place in (_usual(), Path("/dev/shm")):
        if place is None or not place.is_dir():
            continue
        if hasattr(os, "getuid"):
            folder = place / f"discreet-compiled-{os.getuid()}{_LANES}"
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o700, exist_ok=True)
                if _is_private(folder):
                    yield folder
                    continue
        # the name is taken, perhaps on purpose: one that nobody can foresee
        with contextlib.suppress(OSError):
            yield Path(tempfile.mkdtemp(prefix="discreet-compiled-", dir=place))


def _usual() -> Path | None:
    """The folder for temporary files; there may be none that can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        return None


def _is_private(folder: Path) -> bool:
    """Whether it is a folder, and no link to one, that belongs to this user and that nobody
    else can open.
    """
    about = os.lstat(folder)
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077
    return ours and os.access(folder, os.W_OK | os.X_OK)
