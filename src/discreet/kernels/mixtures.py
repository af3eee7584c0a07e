"""How much of a history belongs to each community: maximum a posteriori weights of a mixture.

Items are drawn from K public distributions P_z over the catalog. A user whose items j have weights
x_j ≥ 0 has, with the public prior π and its strength α, the mixture weights that expectation
maximization finds from θ = π:

    θ_z ← (α π_z + Σ_j x_j θ_z P_jz/Σ_y θ_y P_jy)/(α + Σ_j x_j)

A fixed number of steps is made, each in float64 and in the order of the history, so that no bit
depends on which users are computed together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.kernels.threads import cost_cuts, run


def mixture_weights(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    x: NDArray[Any],
    P: NDArray[Any],
    prior: NDArray[Any],
    strength: float,
    steps: int,
) -> NDArray[np.float64]:
    """θ (users, K) of every history; `discreet.kernels.reference` has its specification.

    Parameters
    ----------
    indptr, indices, x : CSR arrays of the histories and their weights
    P : (items, K), positive
    prior : (K,), positive
    strength : α > 0
    steps : int
    """
    theta = np.empty((len(indptr) - 1, P.shape[1]))
    x = np.asarray(x, np.float64)
    prior = np.asarray(prior, np.float64)

    def work(start: int, stop: int) -> None:
        for_users(indptr, indices, x, P, prior, strength, steps, start, stop, theta)

    run(work, cost_cuts(np.diff(indptr) + 1.0))
    return theta


@njit(nogil=True, cache=True)
def for_users(
    indptr: np.ndarray,
    indices: np.ndarray,
    x: np.ndarray,
    P: np.ndarray,
    prior: np.ndarray,
    strength: float,
    steps: int,
    start: int,
    stop: int,
    theta: np.ndarray,
) -> None:
    for i in range(start, stop):
        entries = slice(indptr[i], indptr[i + 1])
        one_mixture(indices[entries], x[entries], P, prior, strength, steps, theta[i])


@njit(nogil=True, cache=True)
def one_mixture(
    items: np.ndarray,
    x: np.ndarray,
    P: np.ndarray,
    prior: np.ndarray,
    strength: float,
    steps: int,
    theta: np.ndarray,
) -> None:
    """Write the weights of one history into `theta`."""
    K = len(prior)
    part = np.empty(K)
    new = np.empty(K)
    theta[:] = prior
    for _ in range(steps):
        for z in range(K):
            new[z] = strength * prior[z]
        for e in range(len(items)):
            row = P[items[e]]
            # four partial sums in a fixed order: one alone would wait for every addition
            s0 = s1 = s2 = s3 = 0.0
            for z in range(K):
                part[z] = theta[z] * row[z]
            for z in range(0, K - 3, 4):
                s0 += part[z]
                s1 += part[z + 1]
                s2 += part[z + 2]
                s3 += part[z + 3]
            for z in range(K - K % 4, K):
                s0 += part[z]
            total = (s0 + s1) + (s2 + s3)
            if x[e] > 0.0 and total > 0.0:
                scale = x[e] / total
                for z in range(K):
                    new[z] += scale * part[z]
        total = new.sum()
        for z in range(K):
            theta[z] = new[z] / total
