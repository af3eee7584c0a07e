"""A user's profile in public features: how much more often than others a user has their values.

Features come as categories. Item j has the values `values[starts[f, j] : starts[f, j + 1]]` of
feature f, numbered over all features together. A user with weights x_j > 0 for its items has, of
value v, n_v = Σ_j x_j [j has v]/(values of j), and n = Σ_j x_j in all. With p(v), the share of all
choices that have v, the log lift of item j by feature f is

    φ_fj = log((mean over the values v of j of n_v/p(v) + τ)/(n + τ)),    0 where j has no value.

It is 0 where a user is like the average, and τ > 0 keeps it finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit


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
    """
    starts, values, inverse = lists
    own = np.zeros(len(inverse))
    add_values(at, x, starts, values, own)
    ratios = np.empty((1 + len(starts), len(popularity)), np.float32)
    if weights[1]:
        u = np.ascontiguousarray(u, V.dtype)
        _factor_ratios(u, V, np.exp(-popularity), np.float32(floor), ratios[0])
    _lift_ratios(float(x.sum()), starts, values, own * inverse, tau, ratios[1:])
    used = ratios if weights[1] else ratios[1:]
    np.log(used, out=used)  # numpy's is by vector registers, that of compiled loops is not
    found = (weights[0] * popularity).astype(np.float32)
    _add_weighted(np.append([weights[1]] if weights[1] else [], weights[2]), used, found)
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
    starts: np.ndarray,
    values: np.ndarray,
    lifted: np.ndarray,
    tau: float,
    found: np.ndarray,
) -> None:
    scale = 1 / (total + tau)
    for f in range(len(found)):
        for j in range(found.shape[1]):
            begin = starts[f, j]
            end = starts[f, j + 1]
            lift = 0.0
            for s in range(begin, end):
                lift += lifted[values[s]]
            found[f, j] = (lift / (end - begin) + tau) * scale if begin < end else 1.0


@njit(nogil=True, cache=True)
def _add_weighted(weights: np.ndarray, terms: np.ndarray, found: np.ndarray) -> None:
    """Add weighted rows without BLAS, whose threads take longer to start than the sum does."""
    for f in range(len(terms)):
        w = np.float32(weights[f])
        for j in range(len(found)):
            found[j] += w * terms[f, j]


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
