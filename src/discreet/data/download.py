"""Files from the network: resumed where they were cut, checked, and put in place only when whole."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
import os
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from discreet.errors import DataError

logger = logging.getLogger("discreet")

Progress = Callable[[int, int, str], None]
CHUNK = 1 << 18
_AGENT = {"User-Agent": "discreet (recommender library; downloads once, then keeps the file)"}
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


def cache_folder() -> Path:
    """Where data sets are kept: ``DISCREET_CACHE``, else ``discreet`` in the user's cache folder (XDG).

    Somebody without any home, as in some containers, has no such folder: `DataError`.
    """
    chosen, base = os.environ.get("DISCREET_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser()
        return (Path(base) if base else Path.home() / ".cache") / "discreet"
    except RuntimeError:
        raise DataError("there is no home folder to keep data sets in: set DISCREET_CACHE to a folder") from None


@contextlib.contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """A path to write to, renamed to ``target`` when the block succeeds and removed when it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def download(
    url: str,
    target: Path,
    *,
    md5: str | None = None,
    progress: Progress | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Fetch ``url`` into the file ``target``.

    What has arrived is kept in ``<target>.part``; a cut connection, now or in an earlier call, is taken up from there.

    Parameters
    ----------
    url : str
    target : Path
        Its folder is created where needed. Never exists half-written.
    md5 : str, optional
        Hexadecimal checksum of the whole file; a file with another one is removed and refused.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total, file_name)``; the total is 0 where the server does not say.
    attempts : int
        How often a connection that breaks is opened again before giving up.
    timeout, pause : float
        Seconds to wait for the server, and between attempts (doubling).

    Raises
    ------
    DataError
        There is no network, the server refuses, the connection keeps breaking, or the checksum differs.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DataError(f"the folder {target.parent} cannot be created ({problem.strerror})") from None
    part = target.with_name(target.name + ".part")
    for attempt in range(1, attempts + 1):
        try:
            _fetch_rest(url, part, timeout, progress, target.name)
            break
        except urllib.error.HTTPError as problem:
            raise DataError(f"{url} answered {problem.code} {problem.reason}") from None
        except _BROKEN as problem:
            reason = getattr(problem, "reason", problem)
            no_network = attempt == 1 and isinstance(problem, urllib.error.URLError)
            if no_network or attempt == attempts:
                kept = f"; {part.stat().st_size:,} bytes are kept and taken up next time" if part.exists() else ""
                raise DataError(f"{url} cannot be reached ({reason}){kept}") from None
            logger.info("%s: connection broken (%s), attempt %d of %d", target.name, reason, attempt + 1, attempts)
            time.sleep(pause * 2 ** (attempt - 1))
        except OSError as problem:
            raise DataError(f"{part} cannot be written ({problem.strerror})") from None
    found = file_md5(part)
    if md5 is not None and found != md5.lower():
        part.unlink()
        raise DataError(
            f"{url} arrived with the MD5 checksum {found} instead of {md5}, so it was removed: try again, and if it "
            "happens twice the file was changed at its source"
        )
    os.replace(part, target)
    return target


def file_md5(path: Path) -> str:
    """MD5 of a file, in hexadecimal; it guards against accidents, not against attackers."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch_rest(url: str, part: Path, timeout: float, progress: Progress | None, text: str) -> None:
    """Append to ``part`` what is still missing; raises ``IncompleteRead`` where the connection ends too early."""
    have = part.stat().st_size if part.exists() else 0
    headers = {**_AGENT, "Range": f"bytes={have}-"} if have else _AGENT
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as problem:
        if problem.code != 416 or not have:
            raise
        problem.close()
        if _total(problem.headers.get("Content-Range")) == have:
            return  # everything had arrived, only the check was missing
        part.unlink()
        return _fetch_rest(url, part, timeout, progress, text)
    with answer:
        if answer.status != 206:
            have = 0  # the server does not resume, so start over
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        with part.open("ab" if have else "wb") as stream:
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                if progress is not None:
                    progress(have, total, text)
    if have < total:
        raise http.client.IncompleteRead(b"", total - have)


def _total(content_range: str | None) -> int | None:
    found = re.search(r"/(\d+)$", content_range or "")
    return int(found.group(1)) if found else None
