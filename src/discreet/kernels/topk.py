"""The k best items of every user, without ever holding all users' scores.

Scores of a block of users and items come from one matrix product; while they are in the cache each user's row is
scanned against the k-th best score so far. Almost every chunk lies below it and costs one comparison per vector.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import njit

from discreet.kernels.threads import even_cuts, run, thread_count

ITEMS, USERS = 2048, 256  # a block of scores is 2 MB: it stays in the second-level cache between product and scan
CHUNK = 64


def top_k_numpy(
    U: np.ndarray, V: np.ndarray, bias: np.ndarray, k: int, seen: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Items (n, k) and scores of ``U Vᵀ + bias``, best first, ties by index: the specification of `top_k`."""
    scores = U @ V.T + bias
    if seen:
        for i, (start, stop) in enumerate(pairwise(seen[0])):
            scores[i, seen[1][start:stop]] = -np.inf
    items = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, items, axis=1)
    items = np.where(best > -np.inf, items, -1)
    pad = ((0, 0), (0, max(0, k - items.shape[1])))
    return np.pad(items, pad, constant_values=-1), np.pad(best, pad, constant_values=-np.inf)


def top_k(
    U: np.ndarray, V: np.ndarray, bias: np.ndarray, k: int, seen: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Best `k` items of each user by ``u · v_j + bias_j``.

    Parameters
    ----------
    U : (n, r), V : (m, r), bias : (m,)
        A bias of -inf keeps an item out.
    seen : (indptr, indices), optional
        CSR rows of items to leave out, one row per user; indices sorted within a row.

    Returns
    -------
    items : (n, k) int32, best first, padded with -1
    scores : (n, k) float32, padded with -inf

    Scores that are NaN are never chosen. Equal scores are ordered by index.
    """
    n, m = len(U), len(V)
    U, V = (np.ascontiguousarray(x, np.float32) for x in (U, V))
    bias = np.ascontiguousarray(bias, np.float32)
    indptr, indices = seen if seen else (np.zeros(n + 1, np.int64), np.empty(0, np.int32))
    items, scores = np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32)
    blocks = [(j, np.ascontiguousarray(V[j : j + ITEMS].T), bias[j : j + ITEMS]) for j in range(0, m, ITEMS)]

    def work(start: int, stop: int) -> None:
        cursor = indptr[start:stop].copy()
        for j, block, offset in blocks:
            S = U[start:stop] @ block
            _scan(S, offset, j, indptr[start : stop + 1], indices, cursor, items[start:stop], scores[start:stop])

    pieces = max(-(-n // USERS), thread_count())
    run(work, even_cuts(n, pieces=pieces))
    _sort_rows(items, scores)
    return items, scores


@njit(nogil=True, cache=True)
def _before(score: float, item: int, other_score: float, other_item: int) -> bool:
    return score > other_score or (score == other_score and item < other_item)


@njit(nogil=True, cache=True)
def _sift(items: np.ndarray, scores: np.ndarray, item: int, score: float) -> None:
    """Put (item, score) in place of the root, the worst kept, and restore the heap."""
    k, at = len(items), 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        right = child + 1
        if right < k and _before(scores[child], items[child], scores[right], items[right]):
            child = right
        if not _before(score, item, scores[child], items[child]):
            break
        items[at], scores[at] = items[child], scores[child]
        at = child
    items[at], scores[at] = item, score


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def _scan(
    S: np.ndarray,
    bias: np.ndarray,
    first: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    cursor: np.ndarray,
    items: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Offer the scores of items first, first + 1, … to each user's heap (worst of the best at the root)."""
    width = S.shape[1]
    for i in range(S.shape[0]):
        row = S[i]
        at, end = cursor[i], indptr[i + 1]
        while at < end and indices[at] < first + width:
            row[indices[at] - first] = -np.inf
            at += 1
        cursor[i] = at
        for start in range(0, width, CHUNK):
            stop = min(start + CHUNK, width)
            threshold = scores[i, 0]
            above = 0
            for j in range(start, stop):
                row[j] += bias[j]
                above += row[j] > threshold
            if above:
                for j in range(start, stop):
                    if row[j] > scores[i, 0]:
                        _sift(items[i], scores[i], first + j, row[j])


@njit(nogil=True, cache=True)
def _sort_rows(items: np.ndarray, scores: np.ndarray) -> None:
    """Turn each heap into a list, best first: take the worst from the root to the end, again and again."""
    for i in range(items.shape[0]):
        for last in range(items.shape[1] - 1, 0, -1):
            item, score = items[i, last], scores[i, last]
            items[i, last], scores[i, last] = items[i, 0], scores[i, 0]
            _sift(items[i, :last], scores[i, :last], item, score)
