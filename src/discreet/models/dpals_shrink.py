"""The item step of DPALS as an estimate: what an item's factors most likely are, given sums whose noise is known.

Everything here happens after the release and costs nothing. For item j let n̂_j = Σ_i w_ij be its released count,
G̃_j its noisy Gram matrix and g̃_j its noisy right-hand side, with noise of known deviation σ_G and σ_g.

    C   = Σ_j G̃_j / Σ_j n̂_j                                  an average rating's u uᵀ, nearly without noise      (1)
    A_j = n̂_j C + κ_j (G̃_j − n̂_j C),   κ_j = n̂_j² d / (n̂_j² d + σ_G²)                                         (2)
    τ_k² = Σ_j (g̃_jk² − σ_g² − s² w̄ A_jkk) / Σ_j Σ_i A_jik²   how large factors are, coordinate by coordinate    (3)
    v_j = (A_j² + σ_j² T⁻¹ + s² w̄ T^(-1/2) A_j T^(-1/2))⁻¹ A_j g̃_j,   T = diag(τ²)                             (4)

(2) is empirical Bayes for Gram matrices: d is how much items differ from the average beyond what noise explains, so a
rare item gets the average and a popular one its own. (4) is the posterior mean of v_j ~ N(0, T) given g̃_j = A_j v_j +
noise: rating errors of variance s² weigh in like A_j, added noise like I, and an item whose sum is mostly noise gets
factors near zero, that is, the user's own mean, instead of amplified noise. No projection is needed: A_j² cannot be
indefinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import solve_psd
from discreet.models.dpals_prior import FeaturePrior, Sums

FLOOR = 1e-4  # of a prior variance, relative to Γ_M²: a coordinate may be nearly, but not quite, switched off
BLOCK = 2_000_000  # matrix entries worked on at once


def pooled(
    G: NDArray[Any], counts: NDArray[np.float64], deviation: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """C of (1), packed, and κ of (2).

    Parameters
    ----------
    G : (n, r(r+1)/2) packed noisy Gram matrices
    counts : (n,) positive
    deviation : float
        σ_G, of a diagonal entry; off-diagonal entries have it over √2.
    """
    C = G.sum(axis=0, dtype=np.float64) / counts.sum()
    r = round((2 * G.shape[1] + 0.25) ** 0.5 - 0.5)
    noise = deviation**2 * (r + r * (r - 1) / 4) / G.shape[1]  # of an average entry
    squares = sum(float(((block - n[:, None] * C) ** 2).sum()) for block, n in _blocks(G, counts))
    between = max(squares / G.shape[1] - noise * len(G), 0.0) / float((counts**2).sum())
    own = counts**2 * between
    return C, own / (own + max(noise, 1e-30))


def pooled_sums(g: NDArray[Any], counts: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Right-hand sides drawn towards n̂_j times their average, by how much items differ beyond noise: (2) for vectors.

    Where noise is all there is, an item's factors then follow from its count, and all are recommended what is popular.
    """
    mean = g.sum(axis=0, dtype=np.float64) / counts.sum()
    expected = counts[:, None] * mean
    off = g - expected
    between = np.maximum((off**2).sum(axis=0) - len(g) * deviation**2, 0.0) / float((counts**2).sum())
    own = counts[:, None] ** 2 * between
    return expected + own / (own + max(deviation**2, 1e-30)) * off


def item_factors(
    G: NDArray[Any],
    g: NDArray[Any],
    counts: NDArray[np.float64],
    *,
    gram_noise: float,
    sum_noise: float,
    rating_bound: float,
    weight: float,
    towards: FeaturePrior | None = None,
    heard: NDArray[Any] | None = None,
    gain: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """v of (4) for every item.

    Parameters
    ----------
    G : (n, r(r+1)/2), g : (n, r), counts : (n,)
        As released; counts are raised to be positive by the caller.
    gram_noise, sum_noise : float
        σ_G and σ_g.
    rating_bound : float
        Γ_M; rating errors are taken to have the deviation 0.8 Γ_M.
    weight : float
        w̄, the weight of a typical contribution.
    towards, heard : optional
        A prior for the factors by features, which learns from these sums, and which of its items they are of.
    gain : (r,), optional
        How many times smaller than σ_g² the variance of the noise on each coordinate of g is.
    """
    C, own = pooled(G, counts, gram_noise)
    r, error = g.shape[1], (0.8 * rating_bound) ** 2 * weight

    def matrices(some: slice) -> NDArray[np.float64]:
        n, kappa = counts[some, None], own[some, None]
        return _unpacked((1 - kappa) * n * C + kappa * G[some], r)

    gains = np.ones(r) if gain is None else gain
    signal, size = np.zeros(r), np.zeros(r)
    for some in _slices(len(g), r * r):
        A = matrices(some)
        signal += (g[some].astype(np.float64) ** 2 - sum_noise**2 / gains).sum(axis=0) - error * np.einsum("nkk->k", A)
        size += np.einsum("nij,nij->j", A, A)
    prior = np.maximum(signal / np.maximum(size, 1e-30), FLOOR * rating_bound**2)
    noise = sum_noise**2 + (own * gram_noise) ** 2 * prior.sum() / 2
    mean = np.zeros((len(g), r))
    if towards is not None:
        values, Q = np.linalg.eigh(_unpacked(C[None], r)[0])
        scatter = error * (Q * np.maximum(values, 0.0)) @ Q.T
        at = np.arange(len(g)) if heard is None else np.flatnonzero(heard)
        blocks = []
        for some in _slices(len(g), r * r):
            D = noise[some, None, None] * np.diag(1 / gains) + counts[some, None, None] * scatter
            blocks.append(Sums(matrices(some), g[some].astype(np.float64), D, towards.F[at[some]]))
        prior = np.maximum(towards.learn(blocks, prior, rating_bound**2), FLOOR * rating_bound**2)
        mean = towards.mean(at)
    V, root = np.empty((len(g), r), np.float32), prior**-0.5
    for some in _slices(len(g), r * r):
        A = matrices(some)
        M = (A * gains) @ A + noise[some, None, None] * np.diag(1 / prior) + error * (root[:, None] * A * root)
        b = ((A * gains) @ (g[some, :, None].astype(np.float64) - A @ mean[some, :, None]))[..., 0]
        V[some] = mean[some] + solve_psd(M, b, np.zeros(len(b)))
    return V


class Repeated:
    """What is released at every step and the same in all: its average, weighted by the known noise."""

    def __init__(self) -> None:
        self._sum: Any = 0.0
        self._precision = 0.0

    def add(self, released: NDArray[Any], deviation: float) -> tuple[NDArray[np.float64], float]:
        """The average so far, and how many times smaller its variance is than that of the last release."""
        self._sum = self._sum + released.astype(np.float64) / deviation**2
        self._precision += deviation**-2
        return np.asarray(self._sum / self._precision), self._precision * deviation**2


def _unpacked(packed: NDArray[Any], r: int) -> NDArray[np.float64]:
    """Symmetric matrices (n, r, r) from their upper triangles."""
    upper, A = np.triu_indices(r), np.empty((len(packed), r, r))
    A[:, upper[0], upper[1]] = A[:, upper[1], upper[0]] = packed
    return A


def _slices(n: int, width: int) -> list[slice]:
    step = max(1, BLOCK // width)
    return [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]


def _blocks(G: NDArray[Any], counts: NDArray[np.float64]) -> Any:
    return ((G[some], counts[some]) for some in _slices(len(G), G.shape[1]))
