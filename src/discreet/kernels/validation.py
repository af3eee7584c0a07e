"""Check the arguments of kernels before compiled code uses them.

Compiled code does not check addresses. An array of another type or shape, or with an index out of
range, would make it read or write foreign memory and crash the process, or worse. Every public
kernel validates its arguments here; the checks cost one pass over the indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from discreet.errors import ConfigError

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def floats(name: str, x: Any, ndim: int, dtype: DTypeLike | None = None) -> np.ndarray:
    """Return x in C order and, if given, as `dtype`; raise unless it is float32 or float64."""
    # Foreign byte order has the same dtype kind, but compiled code would read other numbers.
    if not isinstance(x, np.ndarray) or x.dtype not in FLOATS or not x.dtype.isnative:
        kind = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise ConfigError(f"{name} must be an array of float32 or float64, not {kind}.")
    if x.ndim != ndim:
        raise ConfigError(f"{name} must have {ndim} dimensions, but its shape is {x.shape}.")
    # Kernels compute addresses from the shape, which a strided view would break.
    return np.ascontiguousarray(x, dtype)


def same_length(what: str, one: int, other: int) -> None:
    """Raise a `ConfigError` unless both lengths are equal."""
    if one != other:
        raise ConfigError(f"{what} must have the same length, not {one:,} and {other:,}.")


def positions(name: str, x: Any, length: int) -> np.ndarray:
    """Return indices of `length` rows, negative ones from the end; raise if out of range."""
    x = np.asarray(x)
    if x.ndim != 1 or (len(x) and x.dtype.kind not in "iu"):
        raise ConfigError(f"{name} must be a one-dimensional array of integers.")
    # Negative positions count from the end; anything else outside would be foreign memory.
    if len(x) and not -length <= int(x.min()) <= int(x.max()) < length:
        raise ConfigError(f"{name} must be between 0 and {length - 1:,}.")
    return np.ascontiguousarray(x, np.int64)


def sparse_rows(indptr: Any, indices: Any, n: int | None, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return CSR arrays of n rows over m columns as int64 and int32; raise if out of range.

    For a block of rows, ``indptr[a : b + 1]`` with all indices, only its entries are checked.
    """
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    good = indptr.ndim == indices.ndim == 1 and len(indptr) > 0
    if (
        not good
        or indptr.dtype.kind not in "iu"
        or (len(indices) and indices.dtype.kind not in "iu")
    ):
        raise ConfigError("indptr and indices must be one-dimensional arrays of integers.")
    if n is not None:
        same_length("rows and vectors", len(indptr) - 1, n)
    indptr = np.ascontiguousarray(indptr, np.int64)
    # A descending indptr would give a negative row length, and a loop over the address space.
    if indptr[0] < 0 or indptr[-1] > len(indices) or (np.diff(indptr) < 0).any():
        raise ConfigError("indptr must be ascending, between 0 and the number of indices.")
    if indices.dtype.kind not in "iu":  # an empty list
        indices = indices.astype(np.int32)
    if not _within(np.ascontiguousarray(indices[indptr[0] : indptr[-1]]), m):
        raise ConfigError(f"indices must be between 0 and {m - 1:,}.")
    return indptr, np.ascontiguousarray(indices, np.int32)


def _within(indices: np.ndarray, m: int) -> bool:
    """Check 0 ≤ j < m for all j in one pass: as unsigned numbers, negative ones are largest."""
    # One maximum instead of a minimum and a maximum: this pass is the cost of the check.
    unsigned = indices.view(np.dtype(f"u{indices.itemsize}"))
    return not len(indices) or int(unsigned.max()) < m
