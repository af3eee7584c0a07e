"""Drawing items without replacement, fast: an exponential race between all items, run once per
user.

User i picks item j with weight w_ij = exp(s_ij). Give every item an arrival time

    (1)  t_ij = E_ij / w_ij,   E_ij ~ Exponential(1) independent;

the first k_i arrivals are k_i draws without replacement, each with probability proportional to the
weights that are left (the same law as the largest s_ij + Gumbel noise). With V uniform and E =
-log(1 - V) ≥ V,

    (2)  t_ij ≥ V_ij · exp(-s_ij) =: r_ij,

so (1) is needed only for the few items with r_ij below a horizon that holds k_i arrivals. V is a
hash of (seed, user, item), hence the picks do not depend on the number of threads or on the order
in which users are visited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from discreet._numba import njit
from discreet.data.download import Progress

BLOCK = 48  # users per matrix product: 48 × 20,000 scores stay in the last-level cache


def draw_items(
    counts: NDArray[np.int64],
    user_side: NDArray[np.float32],
    item_side: NDArray[np.float32],
    seed: int,
    *,
    progress: Progress | None = None,
    text: str = "drawing items",
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Let every user pick items without replacement, with weights ``exp(user_side @ item_side.T)``.

    Parameters
    ----------
    counts : (n_users,) int64
        How many items each user picks; at most ``n_items``.
    user_side, item_side : (n_users, d) and (n_items, d) float32
        Factors whose inner product is the logarithm of the weight.
    seed : int
        The picks are a function of the seed, the factors and the position of the user.
    progress : callable, optional
        Called as ``progress(users_done, n_users, text)``.

    Returns
    -------
    indptr : (n_users + 1,) int64
    indices : (counts.sum(),) int32, ascending within each user
    """
    n_users, n_items = len(user_side), len(item_side)
    assert counts.shape == (n_users,)
    assert counts.max(initial=0) <= n_items
    assert np.isfinite(user_side).all()
    assert np.isfinite(item_side).all()
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    indices = np.empty(indptr[-1], np.int32)
    keys = user_keys(seed, n_users)
    transposed = np.ascontiguousarray(item_side.T)

    def work(start: int) -> int:
        stop = min(start + BLOCK, n_users)
        scores = user_side[start:stop] @ transposed
        _race_block(scores, keys[start:stop], indptr[start : stop + 1], indices)
        return stop - start

    done = 0
    # one BLAS thread per worker: two products side by side scale better than one product over two
    # threads
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(_workers()) as pool:
        for size in _window(pool, work, range(0, n_users, BLOCK)):
            done += size
            if progress is not None:
                progress(done, n_users, text)
    return indptr, indices


def _window(pool: ThreadPoolExecutor, work: Callable[[int], int], starts: range) -> Iterator[int]:
    """Results in order; stops handing out work when the consumer raises (Ctrl-C in a progress
    callback).
    """
    futures = [pool.submit(work, start) for start in starts]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def _workers() -> int:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    )
    limit = os.environ.get("NUMBA_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def user_keys(seed: int, n_users: int) -> NDArray[np.uint32]:
    """Two 32-bit words per user, (n_users, 2), from a stream that numpy promises never to
    change.
    """
    words = np.random.Philox(np.random.SeedSequence(seed)).random_raw(n_users)
    return np.stack([words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)], axis=1).astype(
        np.uint32
    )


def draw_items_reference(
    counts: NDArray[np.int64],
    user_side: NDArray[np.float32],
    item_side: NDArray[np.float32],
    seed: int,
) -> list[NDArray[np.intp]]:
    """What :func:`draw_items` computes, as the specification: all arrival times of all users,
    sorted.
    """
    item = np.arange(len(item_side), dtype=np.uint32)[None, :]
    low, high = (user_keys(seed, len(user_side))[:, column, None] for column in (0, 1))
    x = item * np.uint32(0x9E3779B9) + low
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B) ^ high
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    uniform = ((x ^ (x >> np.uint32(16))) + 0.5) / 2**32
    arrival = -np.log1p(-uniform) * np.exp(-(user_side @ item_side.T).astype(np.float64))
    return [np.sort(np.argsort(row)[:k]) for row, k in zip(arrival, counts, strict=True)]


@intrinsic
def _float_from_bits(typingctx: Any, bits: Any) -> Any:
    """The float32 with these 32 bits; a plain bit cast, so loops around it still vectorize."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), codegen


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _lower_bounds(scores, low, high, out):  # type: ignore[no-untyped-def]
    """Equation (2) for one user: out[j] = V_j · exp(-scores[j]), SIMD over items."""
    for j in range(len(scores)):
        x = np.uint32(np.uint32(j) * np.uint32(0x9E3779B9)) + low
        x = np.uint32(x)
        x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)) ^ high
        x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        x = np.uint32(x ^ (x >> np.uint32(16)))
        # uint32 -> float32 by two exact halves: there is no vector instruction for the whole
        v = np.float32(np.int32(x >> np.uint32(16))) * np.float32(2.0**-16)
        v += (np.float32(np.int32(x & np.uint32(0xFFFF))) + np.float32(0.5)) * np.float32(2.0**-32)
        y = -scores[j] * np.float32(1.4426950408889634)
        y = min(max(y, np.float32(-126.0)), np.float32(126.0))
        # floor, by truncation of a positive number
        i = np.int32(np.int32(y + np.float32(1024.0)) - np.int32(1024))
        f = y - np.float32(i)
        # 2^f on [0, 1): polynomial of degree 5, relative error below 2e-7
        p = np.float32(1.877541e-3)
        p = p * f + np.float32(8.9894263e-3)
        p = p * f + np.float32(5.5826246e-2)
        p = p * f + np.float32(2.4015364e-1)
        p = p * f + np.float32(6.9315307e-1)
        p = p * f + np.float32(9.9999993e-1)
        out[j] = v * p * _float_from_bits(np.int32((i + np.int32(127)) << np.int32(23)))  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def _count_below(values, limit):  # type: ignore[no-untyped-def]
    count = np.int32(0)
    for j in range(len(values)):
        count += np.int32(values[j] < limit)
    return count


@njit(cache=True, nogil=True)
def _horizon(values, least, most, guess):  # type: ignore[no-untyped-def]
    """A limit with ``least`` to ``most`` values below it (more, if equal values leave no
    choice), by bisection.
    """
    if least >= len(values):
        return np.inf
    low = 0.0
    high = np.inf
    limit = guess
    for _ in range(120):
        count = _count_below(values, limit)
        if least <= count <= most:
            return limit
        if count < least:
            low = limit
            limit = limit * 2.0 if high == np.inf else np.sqrt(low * high)  # on a log scale
        else:
            high = limit
            limit = limit * 0.5 if low == 0.0 else np.sqrt(low * high)
    return high


@njit(cache=True, nogil=True)
def _race_block(scores, keys, indptr, indices):  # type: ignore[no-untyped-def]
    """Fill ``indices[indptr[u]:indptr[u + 1]]`` with the first arrivals of every user of the
    block.
    """
    n_users, n_items = scores.shape
    bounds = np.empty(n_items, np.float32)
    candidate = np.empty(n_items, np.int32)
    arrival = np.empty(n_items, np.float64)
    guess = 1.0
    for u in range(n_users):
        k = indptr[u + 1] - indptr[u]
        if k == 0:
            continue
        _lower_bounds(scores[u], keys[u, 0], keys[u, 1], bounds)
        wanted = k + 2
        while True:
            limit = _horizon(bounds, wanted, wanted + wanted // 4 + 16, guess)
            found = within = 0
            for j in range(n_items):
                if bounds[j] < limit:
                    candidate[found] = j
                    found += 1
            for c in range(found):
                # back from r to t: V = r·w, then E = -log(1 - V)
                w = np.exp(np.float64(scores[u, candidate[c]]))
                v = min(np.float64(bounds[candidate[c]]) * w, 1.0 - 2.0**-33)
                arrival[c] = -np.log1p(-v) / w
                within += arrival[c] < limit
            if within >= k or found == n_items:
                break
            wanted += (k - within) + k // 8 + 4
        guess = limit if limit < np.inf else 1.0
        last = _horizon(arrival[:found], k, k, guess)
        position = indptr[u]
        for c in range(found):
            if arrival[c] < last and position < indptr[u + 1]:
                indices[position] = candidate[c]
                position += 1
