"""numba's decorator for any installation, also without a writable home folder.

Compiled code is cached between two starts: next to the source or, if that is read-only, in the
user's cache folder. In a locked-down container neither can be written, and numba itself would
refuse to define a single function. So a folder for temporary files takes their place, and without
one nothing is cached. numba runs the code that it caches, so no other user may be able to write to
the folder.

`on_compile` reports each compilation to a progress bar: after a fresh installation they take most
of the first training. numba is imported by the first function to be compiled.
"""

from __future__ import annotations

import contextlib
import gc
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

# called with the number of functions compiled so far, and the name of the next one
Report = Callable[[int, str], None]
_reports: list[Report] = []
_lanes = os.environ.get("DISCREET_LANES", "")  # see discreet.kernels.simd
_LANES = f"-lanes-{_lanes}" if _lanes.isdigit() else ""


def njit(function: Any = None, inner: bool = False, **options: Any) -> Any:
    """Apply `numba.njit`; ``cache=True`` is ignored if no folder can be written.

    An `inner` function is called by compiled functions only. It is compiled without the code
    that Python would call it by, which takes a third of the time of a short function. No function
    here is passed to C, so none has the code for that.
    """
    options |= {"no_cpython_wrapper": inner, "no_cfunc_wrapper": True}
    return (
        _compile(function, options)
        if function is not None
        else lambda given: _compile(given, options)
    )


@contextmanager
def on_compile(report: Report) -> Iterator[None]:
    """Call `report` for every function that is compiled, not loaded, while the block runs."""
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


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
    """Register a listener for numba's compilations, once."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        compiled = 0
        open = 0
        collects = False

        def on_start(self, event: Any) -> None:
            # The compiler makes many objects and few cycles: searching them takes a tenth of its
            # time. It holds a lock, so that one thread at a time comes here.
            if not self.open:
                self.collects = gc.isenabled()
                gc.disable()
            self.open += 1
            for report in _reports:
                report(self.compiled, event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            self.compiled += 1
            self.open -= 1
            if not self.open and self.collects:
                gc.enable()

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
    """Let numba cache code in a private temporary folder, and log this."""
    import numba

    folder = next(_private_folders(), None)
    if folder is None:
        logger.warning(
            "compiled code cannot be cached anywhere, so every start compiles again: "
            "set NUMBA_CACHE_DIR to a folder that can be written"
        )
        return None
    kept = os.environ.get("NUMBA_CACHE_DIR")
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # numba reloads its configuration from here
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    if kept and _link_compiled(Path(kept), folder):
        return folder  # as intended in an image: only what is missing is compiled
    logger.warning(
        "compiled code is cached in %s, because neither the installation nor the home folder can be"
        " written: set NUMBA_CACHE_DIR to use another folder",
        folder,
    )
    return folder


def _link_compiled(kept: Path, folder: Path) -> bool:
    """Link the code of a read-only folder into another one; return whether there is any.

    numba reads only from folders that it can write to, so that the code which an image brings along
    would be compiled again at every start. Code that other users may have changed is left out.
    """
    found = False
    for file in kept.glob("*/*.nb[ci]") if hasattr(os, "getuid") else ():
        if not all(map(_is_ours_alone, (kept, file.parent, file))):
            continue
        found = True
        place = folder / file.parent.name / file.name
        place.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            place.symlink_to(file)
    return found


def _is_ours_alone(path: Path) -> bool:
    """Check that only this user or root can write to a file or a folder."""
    about = path.stat()
    return about.st_uid in (0, os.getuid()) and not about.st_mode & 0o022


def _private_folders() -> Iterator[Path]:
    """Yield folders for temporary files that only this user can write, created if needed."""
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
        # the name is taken, perhaps by an attacker: use an unpredictable one
        with contextlib.suppress(OSError):
            yield Path(tempfile.mkdtemp(prefix="discreet-compiled-", dir=place))


def _usual() -> Path | None:
    """Return the folder for temporary files, or None if none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        return None


def _is_private(folder: Path) -> bool:
    """Check for a real folder, not a link, that only this user can open."""
    about = os.lstat(folder)
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077
    return ours and os.access(folder, os.W_OK | os.X_OK)
