"""Download files: resume broken transfers, check them, and put only complete files in place."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from discreet.errors import DataError

logger = logging.getLogger("discreet")

Progress = Callable[[int, int, str], None]
CHUNK = 1 << 18  # bytes between two progress reports
MOST_BYTES = 1 << 30  # of one file: four times the largest known data set
_AGENT = {"User-Agent": "discreet (recommender library; downloads once, then keeps the file)"}


def cache_folder() -> Path:
    """Return the data set folder: ``DISCREET_CACHE``, else ``discreet`` in the XDG cache folder.

    A user without a home folder, as in some containers, has none: `DataError`.
    """
    chosen, base = os.environ.get("DISCREET_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser()
        return (Path(base) if base else Path.home() / ".cache") / "discreet"
    except RuntimeError:
        raise DataError(
            "there is no home folder to store data sets in: set DISCREET_CACHE to a folder"
        ) from None


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    most: int = MOST_BYTES,
    progress: Progress | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Download ``url`` into the file ``target``.

    Received bytes are kept in ``<target>.part``; a later attempt or call resumes from there.

    Parameters
    ----------
    url : str
    target : Path
        Its folder is created where needed. It never exists half-written.
    sha256, md5 : str, optional
        Hexadecimal checksums of the whole file; on a mismatch the file is deleted and refused.
        Without a SHA-256, that of the first download is written to ``<target>.sha256``, and later
        downloads must match it.
    most : int
        Maximum size in bytes; a larger file is deleted and refused as soon as that is known.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total, file_name)``; the total is 0 if the server
        does not report it.
    attempts : int
        Number of attempts to connect before giving up.
    timeout, pause : float
        Seconds to wait for the server, and between attempts (doubling).

    Raises
    ------
    DataError
        There is no network, the server refuses, the connection keeps breaking, the file is too
        large, or a checksum differs.
    """
    import http.client  # these take a moment, and most programs download nothing
    import ssl
    import urllib.error

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DataError(
            f"the folder {target.parent} cannot be created ({problem.strerror})"
        ) from None
    part = target.with_name(target.name + ".part")
    broken = (
        urllib.error.URLError,
        http.client.HTTPException,
        ConnectionError,
        TimeoutError,
        ssl.SSLError,
    )
    for attempt in range(1, attempts + 1):
        try:
            _fetch_rest(url, part, timeout, most, progress, target.name)
            break
        except _TooLarge:
            part.unlink(missing_ok=True)
            raise DataError(
                f"{url} has more than {most:,} bytes and was deleted: it is not the published file"
            ) from None
        except urllib.error.HTTPError as problem:
            raise DataError(f"{url} answered {problem.code} {problem.reason}") from None
        except broken as problem:
            reason = getattr(problem, "reason", problem)
            no_network = attempt == 1 and isinstance(problem, urllib.error.URLError)
            if no_network or attempt == attempts:
                kept = (
                    f"; {part.stat().st_size:,} bytes are kept, and the next attempt resumes"
                    if part.exists()
                    else ""
                )
                raise DataError(f"{url} cannot be reached ({reason}){kept}") from None
            logger.info(
                "%s: connection broken (%s), attempt %d of %d",
                target.name,
                reason,
                attempt + 1,
                attempts,
            )
            time.sleep(pause * 2 ** (attempt - 1))
        except OSError as problem:
            raise DataError(f"{part} cannot be written ({problem.strerror})") from None
    _check_sums(url, part, target, sha256, md5)
    os.replace(part, target)
    return target


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_md5(path: Path) -> str:
    """Compute the MD5 of a file, in hexadecimal, against accidental (not malicious) changes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class _TooLarge(Exception):
    """A file has more bytes than allowed."""


def _check_sums(url: str, part: Path, target: Path, sha256: str | None, md5: str | None) -> None:
    """Delete and refuse a file that differs from the published one or the first download."""
    pin = target.with_name(target.name + ".sha256")
    pinned = (
        pin.read_text(encoding="ascii", errors="replace").strip()
        if sha256 is None and pin.exists()
        else None
    )
    found = file_sha256(part)
    checks = [
        ("SHA-256", found, sha256 or pinned),
        ("MD5", file_md5(part) if md5 is not None else "", md5),
    ]
    for name, digest, wanted in checks:
        if wanted is not None and digest != wanted.lower():
            part.unlink()
            accept = f", or delete {pin} if you trust the new file" if wanted == pinned else ""
            raise DataError(
                f"{url} arrived with the {name} checksum {digest} instead of {wanted} and was"
                " deleted: try again; if it happens twice, the file was changed at its"
                f" source{accept}"
            )
    if sha256 is None and pinned is None:
        pin.write_text(found + "\n", encoding="ascii")


def _fetch_rest(
    url: str, part: Path, timeout: float, most: int, progress: Progress | None, text: str
) -> None:
    """Append the missing bytes to ``part``; raises ``IncompleteRead`` if the transfer breaks."""
    import http.client
    import urllib.error
    import urllib.request

    have = part.stat().st_size if part.exists() else 0
    headers = {**_AGENT, "Range": f"bytes={have}-"} if have else _AGENT
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
    except urllib.error.HTTPError as problem:
        if problem.code != 416 or not have:
            raise
        problem.close()
        if _total(problem.headers.get("Content-Range")) == have:
            return  # everything had arrived, only the checksum test was missing
        part.unlink()
        return _fetch_rest(url, part, timeout, most, progress, text)
    with answer:
        if answer.status != 206:
            have = 0  # the server does not resume, so start over
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        if total > most:
            raise _TooLarge
        with part.open("ab" if have else "wb") as stream:
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                if have > most:
                    raise _TooLarge
                if progress is not None:
                    progress(have, total, text)
    if have < total:
        raise http.client.IncompleteRead(b"", total - have)


def _total(content_range: str | None) -> int | None:
    found = re.search(r"/(\d+)$", content_range or "")
    return int(found.group(1)) if found else None
