"""A user's profile in public features: how much more often than others a user has their values.

Features come as categories. Item j has the values `values[starts[f, j] : starts[f, j + 1]]` of
feature f, numbered over all features together. A user with weights x_j > 0 for its items has, of
value v, n_v = Σ_j x_j [j has v]/(values of j), and n = Σ_j x_j in all. With p(v), the share of all
choices that have v, the log lift of item j by feature f is

    φ_fj = log((mean over the values v of j of n_v/p(v) + τ)/(n + τ)),    0 where j has no value.

It is 0 where a user is as everyone, and τ > 0 keeps it finite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit


def log_lifts(
    at: NDArray[Any],
    x: NDArray[Any],
    starts: NDArray[Any],
    values: NDArray[Any],
    inverse: NDArray[Any],
    tau: float,
) -> NDArray[np.float64]:
    """φ (features, items) of one history; `discreet.kernels.reference` has its specification.

    Parameters
    ----------
    at, x : items of the history, and their weights
    starts : (features, items + 1) int64
    values : int32
    inverse : 1/p(v) of each value
    tau : float
    """
    items = starts.shape[1] - 1
    found = np.empty((len(starts), items))
    own = np.zeros(len(inverse))
    add_log_lifts(at, x, starts, values, inverse, tau, np.arange(items), own, found)
    return found


@njit(nogil=True, cache=True)
def add_log_lifts(
    at: np.ndarray,
    x: np.ndarray,
    starts: np.ndarray,
    values: np.ndarray,
    inverse: np.ndarray,
    tau: float,
    among: np.ndarray,
    own: np.ndarray,
    found: np.ndarray,
) -> None:
    """φ of the items `among` into `found`; `own` (values,) is 0 before and after."""
    total = 0.0
    for e in range(len(at)):
        total += x[e]
    nothing = math.log(tau / (total + tau))
    for f in range(len(starts)):
        _add(at, x, starts[f], values, own)
        for j in range(len(among)):
            begin = starts[f, among[j]]
            end = starts[f, among[j] + 1]
            lift = 0.0
            for s in range(begin, end):
                lift += own[values[s]] * inverse[values[s]]
            if begin == end:
                found[f, j] = 0.0
            elif lift <= 0.0:
                found[f, j] = nothing
            else:
                found[f, j] = math.log((lift / (end - begin) + tau) / (total + tau))
        for e in range(len(at)):
            for s in range(starts[f, at[e]], starts[f, at[e] + 1]):
                own[values[s]] = 0.0


@njit(nogil=True, cache=True)
def _add(
    at: np.ndarray, x: np.ndarray, start: np.ndarray, values: np.ndarray, own: np.ndarray
) -> None:
    for e in range(len(at)):
        many = start[at[e] + 1] - start[at[e]]
        for s in range(start[at[e]], start[at[e] + 1]):
            own[values[s]] += x[e] / many
