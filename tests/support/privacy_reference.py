"""Slow and plain numpy forms of the kernels in discreet.privacy: what those must agree with."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.privacy.statistics.base import per_item_total
from discreet.privacy.statistics.pairs import fold_shape, folds
from discreet.privacy.users.item_sampling import _GOLDEN, _mix


def residuals_numpy(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    y: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    largest: float,
) -> NDArray[np.float64]:
    """The specification of `residuals`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    e = (U[row].astype(np.float64) * V[indices]).sum(axis=1) - y
    e[~np.isfinite(e)] = 0
    length = np.sqrt(np.bincount(row, e**2, minlength=len(indptr) - 1))
    cut: NDArray[np.float64] = e * (largest / np.maximum(length, largest))[row]
    return cut


@np.errstate(all="ignore")
def huber_weights_numpy(
    item: NDArray[Any],
    user: NDArray[Any],
    value: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    alpha: float,
) -> NDArray[np.float64]:
    """The specification of `huber_weights`."""
    e = np.abs(value - (U[user].astype(np.float64) * V[item]).sum(axis=1))
    return np.where(np.isfinite(e), np.minimum(1.0, alpha / np.maximum(e, 1e-300)), 0.0)


def pick_numpy(
    indptr: NDArray[Any],
    items: NDArray[Any],
    keys: NDArray[np.uint64],
    priority: NDArray[Any],
    k: int,
    draw: int,
) -> NDArray[np.bool_]:
    """The specification of `pick`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    lot = _mix(keys[row] + (items.astype(np.uint64) + np.uint64(1 + (draw << 32))) * _GOLDEN)
    order = np.lexsort((lot, priority[items], row))
    picked = np.zeros(len(items), bool)
    picked[order[np.arange(len(items)) - indptr[row] < k]] = True
    return picked


def power_sums_numpy(indptr: NDArray[np.int64], level: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Σ_j a_ij² and Σ_j a_ij⁴ of every user, (2, n): the specification of `power_sums`."""
    powers = np.stack([level.astype(np.int64) ** 2, level.astype(np.int64) ** 4])
    running = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(powers, axis=1)], axis=1)
    sums: NDArray[np.int64] = running[:, indptr[1:]] - running[:, indptr[:-1]]
    return sums


def add_likes_numpy(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    level: NDArray[Any],
    share: NDArray[Any],
    m: int,
    grid: float | None,
) -> NDArray[Any]:
    """Σ_i share_i a_ij for each item, each contribution truncated on the grid: the
    specification of `add_likes`.
    """
    return per_item_total(indices, np.repeat(share, np.diff(indptr)) * level, m, grid)


def fold_triangle(A: NDArray[Any]) -> NDArray[Any]:
    """The strict upper triangle of A (m, m) as a rectangle."""
    m = len(A)
    folded = np.empty(fold_shape(m), A.dtype)
    for row, j, k in folds(m, 0, len(folded)):
        folded[row] = np.concatenate([A[j, j + 1 :], A[k, k + 1 :]])
    return folded


def pair_sums_numpy(
    indptr: NDArray[Any], indices: NDArray[Any], level: NDArray[Any], w: NDArray[Any], m: int
) -> NDArray[Any]:
    """Aᵀ diag(w) A above the diagonal, folded, A being the levels: the specification of
    `PairAdder`.
    """
    A = np.zeros((len(indptr) - 1, m), w.dtype)
    A[np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices] = level
    return fold_triangle(A.T @ (w[:, None] * A))
