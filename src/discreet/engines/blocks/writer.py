"""Write blocks from a stream: divide rows by a hash of their users, then pack each block.

Memory is bounded by one part of the source and by the largest block, whatever the size of the data.
Meanwhile rows are in scratch files next to the result, which appears complete or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import swap_folders, temporary_sibling
from discreet.data.csr import check_duplicates_rule
from discreet.data.ratings import Ratings
from discreet.data.user_column import describe_problem
from discreet.engines.block_format import portion_of
from discreet.engines.blocks.manifest import (
    MANIFEST,
    SECRET,
    BlockFile,
    Manifest,
    write_portion,
    write_private,
)
from discreet.engines.blocks.readers import BlockRows, ItemColumn, ReadOptions, pieces
from discreet.engines.user_hash import Secret, block_of, rows_of_runs, run_starts
from discreet.errors import ConfigError, DataError
from discreet.kernels.threads import thread_count

Progress = Callable[[int, int, str], None]
MOST_BLOCKS = 1 << 16  # names have five digits, and Spark's shuffle numbers blocks in 16 bits
_ROW = [("item", "<i4"), ("rating", "<f4")]  # of scratch files
RUN = np.dtype([("who", "<u8", 3), ("rows", "<i4")])  # adjacent rows of one user


def write_blocks(
    source: Any,
    folder: Path,
    blocks: int,
    reading: ReadOptions,
    items: ItemColumn,
    duplicates: str,
    replace: bool,
    titles: NDArray[Any] | None,
    filtered: str,
    catalog: bool,
    trust_user_column: bool,
    progress: Progress | None,
) -> None:
    """Write blocks; see `BlockRatings.write`."""
    if isinstance(blocks, bool) or not isinstance(blocks, int) or not 1 <= blocks <= MOST_BLOCKS:
        raise ConfigError(
            f"blocks is {blocks!r}, but must be a whole number from 1 to {MOST_BLOCKS:,}"
        )
    check_duplicates_rule(duplicates)
    if folder.exists() and not replace:
        raise ConfigError(f"{folder} already exists: pass replace=True, or choose another folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"{folder} holds other files than blocks and is not replaced: choose another folder"
        )
    target = Path(os.path.abspath(folder))
    with temporary_sibling(target, mode=0o700) as part:
        scratch = part / "scratch"
        scratch.mkdir(mode=0o700)
        # kept in memory until all is written: what a crash leaves behind reveals nothing about ids
        secret = Secret()
        read = _divide(pieces(source, reading, items, secret), scratch, blocks, progress)
        item_ids, places = items.final()
        if any(not isinstance(one, (int, str)) for one in item_ids.tolist()):
            raise DataError("item ids must be integers or text to be written to blocks")

        def put_together(at: int) -> tuple[BlockFile, float, float, NDArray[np.int64]]:
            runs, rows = _scratch_rows(scratch, at, row_type(read.timed))
            place = rows["item"]
            if places is not None:
                place = np.where(place >= 0, places[place], -1)
            times = rows["time"] if read.timed else None
            counts = runs["rows"].astype(np.int64)
            portion = portion_of(
                runs["who"], place, rows["rating"], times, len(item_ids), duplicates, counts
            )
            low = float(portion.ratings.min(initial=np.inf))
            high = float(portion.ratings.max(initial=-np.inf))
            known = np.count_nonzero(place >= 0)
            counts = np.array([len(portion.hashes), known, known - len(portion.items)])
            return write_portion(part / f"block-{at:05d}.bin", portion), low, high, counts

        with ThreadPoolExecutor(min(thread_count(), 4)) as pool:
            made = []
            for at, one in enumerate(pool.map(put_together, range(blocks))):
                made.append(one)
                if progress:
                    progress(at + 1, blocks, "blocks")
        shutil.rmtree(scratch)
        low = min(one[1] for one in made)
        high = max(one[2] for one in made)
        some = low <= high
        manifest = Manifest(
            tuple(one[0] for one in made),
            item_ids,
            titles,
            catalog,
            filtered,
            low if some else None,
            high if some else None,
            secret.check_value(),
            *_check_users(source, read, sum(one[3] for one in made), trust_user_column),
        )
        write_private(part / MANIFEST, manifest.to_json().encode())
        write_private(part / SECRET, secret.data)
        if target.exists():
            swap_folders(part, target)
        else:
            part.rename(target)


class _Read(NamedTuple):
    """Facts about the rows that were read.

    Attributes
    ----------
    timed, rated, dates : bool
        Whether they have times, whether they have ratings, and whether user ids are dates.
    assumed : bool
        Whether the first column of a file without header was taken for users.
    """

    timed: bool
    rated: bool
    dates: bool
    doubt: str


def _check_users(source: Any, read: _Read, counts: Any, trusted: bool) -> tuple[bool, str]:
    """Return whether there are ratings, and the doubt about the user column, as in `Ratings`."""
    if trusted:
        return True, ""
    if isinstance(source, Ratings):
        return source.rated, source.user_problem
    problem = describe_problem(read.dates, *map(int, counts))
    return read.rated, problem or read.doubt


def _divide(
    rows: Iterator[BlockRows], scratch: Path, blocks: int, progress: Progress | None
) -> _Read:
    """Append every row to the scratch file of its block, in the order of the source."""
    timed: bool | None = None
    rated = dates = True
    any_rows = False
    doubt = ""
    for piece in rows:
        if timed is not None and timed != (piece.times is not None):
            raise DataError(
                "some files have a timestamp column and others have none: pass timestamp= for all"
            )
        timed = piece.times is not None
        rated = rated and piece.rated
        dates = dates and piece.dates
        doubt = doubt or piece.user_doubt
        any_rows = any_rows or len(piece.who) > 0
        _append_runs(piece, scratch, blocks)
        if progress:
            progress(0, blocks, "reading")
    if not any_rows:
        raise DataError("the source holds no ratings: at least one is needed")
    return _Read(bool(timed), rated, dates, doubt)


def _append_runs(piece: BlockRows, scratch: Path, blocks: int) -> None:
    """Append the rows of a piece to scratch files: numbers of runs and rows, then these.

    Rows of one user are often adjacent. Such a run needs one hash, and moves as a whole.
    """
    starts = run_starts(piece.who)
    counts = np.diff(starts, append=len(piece.who))
    who = piece.who[starts]
    # of 16 bits, which numpy sorts by digits
    block = block_of(who, blocks).astype(np.uint16)
    order = np.argsort(block, kind="stable")
    runs = np.empty(len(order), RUN)
    runs["who"] = who[order]
    runs["rows"] = counts[order]
    at = rows_of_runs(starts[order], counts[order])
    rows = np.empty(len(at), row_type(piece.times is not None))
    rows["item"] = piece.items[at]
    rows["rating"] = piece.ratings[at]
    if piece.times is not None:
        rows["time"] = piece.times[at]
    cuts = np.append(0, np.cumsum(np.bincount(block, minlength=blocks)))
    row_cuts = np.append(0, np.cumsum(counts[order]))[cuts]
    for number in np.flatnonzero(np.diff(cuts)).tolist():
        own = runs[cuts[number] : cuts[number + 1]]
        own_rows = rows[row_cuts[number] : row_cuts[number + 1]]
        sizes = np.array([len(own), len(own_rows)], np.int64)
        with open(_scratch(scratch, number), "ab", opener=_open_private) as stream:
            stream.write(b"".join((sizes.tobytes(), own.tobytes(), own_rows.tobytes())))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _scratch(scratch: Path, at: int) -> Path:
    return scratch / f"{at:05d}"


def row_type(timed: bool) -> np.dtype[Any]:
    """Return the type of the rows of scratch files."""
    return np.dtype([*_ROW, ("time", "<i8")] if timed else _ROW)


def _scratch_rows(scratch: Path, at: int, row: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read the runs and the rows of a scratch file, and delete it."""
    file = _scratch(scratch, at)
    data = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    runs = [np.zeros(0, RUN)]
    rows = [np.zeros(0, row)]
    begin = 0
    while begin < len(data):
        n_runs, n_rows = np.frombuffer(data, np.int64, 2, begin).tolist()
        begin += 16
        runs.append(np.frombuffer(data, RUN, n_runs, begin))
        begin += runs[-1].nbytes
        rows.append(np.frombuffer(data, row, n_rows, begin))
        begin += rows[-1].nbytes
    return np.concatenate(runs), np.concatenate(rows)
