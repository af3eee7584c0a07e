"""A user's profile in public features: how much more often than others a user has their values.

Features come as categories. Item j has the values `values[starts[f, j] : starts[f, j + 1]]` of
feature f, numbered over all features together. A user with weights x_j > 0 for its items has, of
value v, n_v = Σ_j x_j [j has v]/(values of j), and n = Σ_j x_j in all. With p(v), the share of all
choices that have v, the log lift of item j by feature f is

    φ_fj = log((mean over the values v of j of n_v/p(v) + τ)/(n + τ)),    0 where j has no value.

It is 0 where a user is like the average, and τ > 0 keeps it finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit


class ValueSets(NamedTuple):
    """Sets of values that items have, of which there are often far fewer than items.

    Attributes
    ----------
    set_of : (features, items) int32
        Which set an item has, numbered over all features.
    first : (features + 1,)
        Where the sets of each feature begin.
    begin : (sets + 1,)
        Where the values of each set begin.
    values : int32
    """

    set_of: NDArray[np.int32]
    first: NDArray[np.int64]
    begin: NDArray[np.int64]
    values: NDArray[np.int32]


class PublicParts(NamedTuple):
    """What is the same for all histories: 1/pop_j, and the sets of values."""

    inverse: NDArray[np.float64]
    sets: ValueSets


def find_value_sets(start: NDArray[Any], stop: NDArray[Any], values: NDArray[Any]) -> ValueSets:
    """Find equal ones among ``values[start[f, j] : stop[f, j]]``, by feature.

    Lists are compared by a sum of hashes, and those with the same sum by all of their values.
    """
    set_of = np.empty(start.shape, np.int32)
    first = [0]
    many: list[NDArray[np.int64]] = []
    found: list[NDArray[np.int32]] = []
    for f in range(len(start)):
        length = stop[f] - start[f]
        offset = np.concatenate([[0], np.cumsum(length)])
        row = np.repeat(np.arange(len(length)), length)
        place = np.arange(len(row)) - offset[row]
        mine = values[start[f][row] + place].astype(np.int64)
        mixed = (mine.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        _, one, number = np.unique(
            total[offset[1:]] - total[offset[:-1]], return_index=True, return_inverse=True
        )
        same = length[one[number]] == length
        if not (same.all() and (mine[offset[one[number[row]]] + place] == mine).all()):
            one = number = np.arange(len(length))
        set_of[f] = first[-1] + number
        first.append(first[-1] + len(one))
        many.append(length[one])
        of_set = np.repeat(offset[one] - np.cumsum(length[one]) + length[one], length[one])
        found.append(mine[of_set + np.arange(len(of_set))].astype(np.int32))
    begin = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *many]))])
    return ValueSets(
        set_of,
        np.array(first, np.int64),
        begin.astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *found]),
    )


def prepare_profile(
    popularity: NDArray[Any], starts: NDArray[Any], values: NDArray[Any]
) -> PublicParts:
    """Compute what `profile_scores` needs for all histories."""
    sets = find_value_sets(starts[:, :-1], starts[:, 1:], values)
    return PublicParts(np.exp(-popularity.astype(np.float64)), sets)


def profile_scores(
    at: NDArray[Any],
    x: NDArray[Any],
    u: NDArray[Any],
    V: NDArray[Any],
    popularity: NDArray[Any],
    weights: tuple[float, float, NDArray[Any]],
    floor: float,
    lists: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    tau: float,
    prepared: PublicParts | None = None,
) -> NDArray[np.float32]:
    """w₀ log pop_j + w₁ log max(u · v_j/pop_j, floor) + Σ_f w_f φ_fj of one history, for all items.

    `discreet.kernels.reference` has its specification. One thread: 20,000 items take less time than
    others need to start.

    Parameters
    ----------
    at, x : items of the history, and their weights
    u, V : (r,), (items, r)
    popularity : (items,)
        log pop_j.
    weights : w₀, w₁ and (features,) w_f
    floor : float
    lists : starts (features, items + 1), values, and inverse, 1/p(v) of each value
    tau : float
    prepared : PublicParts, optional
        From `prepare_profile`; computed where it is not given.
    """
    starts, values, inverse = lists
    found = (weights[0] * popularity).astype(np.float32)
    ready = prepare_profile(popularity, starts, values) if prepared is None else prepared
    if weights[1]:
        u = np.ascontiguousarray(u, V.dtype)
        ratios = np.empty(len(popularity), np.float32)
        _factor_ratios(u, V, ready.inverse, np.float32(floor), ratios)
        np.log(ratios, out=ratios)  # numpy's is by vector registers, that of compiled loops is not
        _add_weighted(weights[1], ratios, found)
    own = np.zeros(len(inverse))
    add_values(at, x, starts, values, own)
    sets = ready.sets
    lifts = np.empty(len(sets.begin) - 1, np.float32)
    _lift_ratios(float(x.sum()), sets.begin, sets.values, own * inverse, tau, lifts)
    np.log(lifts, out=lifts)
    _add_lifts(weights[2], lifts, sets.set_of, found)
    return found


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _factor_ratios(
    u: np.ndarray, V: np.ndarray, inverse: np.ndarray, floor: float, found: np.ndarray
) -> None:
    for j in range(len(found)):
        dot = V.dtype.type(0)
        for k in range(len(u)):
            dot += u[k] * V[j, k]
        found[j] = max(np.float32(dot * inverse[j]), floor)


@njit(nogil=True, cache=True)
def _lift_ratios(
    total: float,
    begin: np.ndarray,
    values: np.ndarray,
    lifted: np.ndarray,
    tau: float,
    found: np.ndarray,
) -> None:
    """Lifts of sets of values; 1 of an empty one."""
    scale = 1 / (total + tau)
    for q in range(len(found)):
        lift = 0.0
        for s in range(begin[q], begin[q + 1]):
            lift += lifted[values[s]]
        many = begin[q + 1] - begin[q]
        found[q] = (lift / many + tau) * scale if many > 0 else 1.0


@njit(nogil=True, cache=True)
def _add_weighted(weight: float, terms: np.ndarray, found: np.ndarray) -> None:
    """Add without BLAS, whose threads take longer to start than the sum does."""
    w = np.float32(weight)
    for j in range(len(found)):
        found[j] += w * terms[j]


@njit(nogil=True, cache=True)
def _add_lifts(
    weights: np.ndarray, lifts: np.ndarray, set_of: np.ndarray, found: np.ndarray
) -> None:
    for f in range(len(set_of)):
        w = np.float32(weights[f])
        row = set_of[f]
        for j in range(len(found)):
            found[j] += w * lifts[row[j]]


@njit(nogil=True, cache=True)
def add_values(
    at: np.ndarray, x: np.ndarray, starts: np.ndarray, values: np.ndarray, own: np.ndarray
) -> None:
    """Add n_v of a history to `own`, of all features."""
    for f in range(len(starts)):
        for e in range(len(at)):
            begin = starts[f, at[e]]
            end = starts[f, at[e] + 1]
            for s in range(begin, end):
                own[values[s]] += x[e] / (end - begin)


@njit(nogil=True, cache=True)
def clear_values(at: np.ndarray, starts: np.ndarray, values: np.ndarray, own: np.ndarray) -> None:
    """Set to 0 what `add_values` changed."""
    for f in range(len(starts)):
        for e in range(len(at)):
            for s in range(starts[f, at[e]], starts[f, at[e] + 1]):
                own[values[s]] = 0.0
