"""Exact sums of whole numbers over any number of users, as int64.

Contributions on a grid are whole numbers of at most 2³⁰ units
(`discreet.privacy.noise.sources.grid_for`). BLAS and the vector kernels add them up as float64,
which is exact below 2⁵³. So at most `CHUNK` users are summed that way, which stays below 2⁵²
for any users, and chunks are added as int64. Nothing is ever decided by the value of a sum.

int64 is exact for 2³³ users. Beyond, it wraps around: the release is then a function of the exact
sum plus noise, modulo 2⁶⁴, which is useless but equally private. Every engine that sums users in
parts adds int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.threads import even_cuts, run

#: Users, or entries of one item, added up in float64 at a time: 2²² · 2³⁰ < 2⁵³.
CHUNK = 1 << 22
_IN_CACHE = 1 << 14  # numbers that are converted at a time
_PIECE = 1 << 20  # entries that a thread adds up at a time


def chunks(n: int) -> Iterator[slice]:
    """Yield slices of at most `CHUNK` of n users; one empty slice if n is 0."""
    for begin in range(0, max(n, 1), CHUNK):
        yield slice(begin, min(begin + CHUNK, n))


def units_at(
    at: NDArray[np.integer], x: NDArray[np.floating], m: int, grid: float
) -> NDArray[np.int64]:
    """Sum the entries of x for each of m places, each rounded toward zero to whole grid units."""
    sums = np.zeros(m, np.int64)
    lock = Lock()

    def add(start: int, stop: int) -> None:
        whole = np.divide(x[start:stop], grid, dtype=np.float64)
        found = np.bincount(at[start:stop], np.trunc(whole, out=whole), minlength=m).astype(
            np.int64
        )
        with lock:
            np.add(sums, found, out=sums)

    piece = min(CHUNK, max(_PIECE, m))
    run(add, np.append(np.arange(0, len(x), piece), len(x)))
    return sums


def as_integers(sums: NDArray[np.float64]) -> NDArray[np.int64]:
    """Convert whole numbers to int64 in the same memory, because releases may be large."""
    flat = np.ascontiguousarray(sums).reshape(-1)
    units = flat.view(np.int64)

    def convert(start: int, stop: int) -> None:
        for begin in range(start, stop, _IN_CACHE):
            part = slice(begin, min(begin + _IN_CACHE, stop))
            units[part] = flat[part].astype(np.int64)

    run(convert, even_cuts(len(flat)))
    return units.reshape(sums.shape)


def by_segments(
    indptr: NDArray[np.int64], sums: Callable[[NDArray[np.int64]], NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Sum whole numbers over rows of a sparse matrix; row i has entries indptr[i] to indptr[i + 1].

    `sums` adds up the rows of any such division of the entries; those longer than `CHUNK` are
    divided further.
    """
    pieces = np.maximum(-(-np.diff(indptr) // CHUNK), 1)
    if (pieces == 1).all():
        return as_integers(sums(indptr))
    first = np.concatenate([[0], np.cumsum(pieces)])
    within = np.arange(first[-1]) - np.repeat(first[:-1], pieces)
    cuts = np.append(np.repeat(indptr[:-1], pieces) + CHUNK * within, indptr[-1])
    return np.add.reduceat(as_integers(sums(cuts)), first[:-1])
