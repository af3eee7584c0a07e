"""Item factors from a noisy matrix of pairs of residuals, by variational Bayes with known noise.

Where users have subtracted their own level and slopes from their ratings, residuals of two items
covary as far as their factors do: E[e_j e_k] = v_j · v_k for users with u ~ N(0, I). Every user
adds the same norm (`statistics.user_effects.ResidualPairs`). So with c_j = Σ_i 1/√n_i over the
raters of item j, as if raters of different items were independent, ω = Σ_i √(n_i (n_i − 1)) / (σ²
((Σ c)² − Σ c²)), and κ = ñ/((Σ c)² − Σ c²) for sampling:

    G̃_jk = ω c_j c_k v_j · v_k + N(0, t² + κ c_j c_k),  v_j ~ N(Wᵀ f_j, T),  W_f ~ N(0, T/strength)

f_j are public features, where there are any. Rounds are those of `ranking`, without a mean that all
items share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.threads import blas_threads_for
from discreet.models.dpmf.pair_factorization import common_basis

BEYOND = 1.1  # times the edge of the noise, from which on an eigenvalue is a dimension
TAKEN_OUT = 3  # eigenvalues at the negative end that may not be noise but users' own effects
EXTRA_DIMENSIONS = 3  # in addition to those above the noise: steps may find them
OFF = 0.3  # how far the model of the pairs may be off, as a part of the variance of vectors
ROUNDS = 15  # later ones prune too much
STRENGTHS = (1e-2, 1e6)  # of features: the least and the most


class FactorPosterior(NamedTuple):
    """The posterior: v_j ~ N(mean_j, B diag(C_j) Bᵀ) in the core, N(Wᵀ f_j, T) elsewhere.

    `dimensions` is how many eigenvalues are beyond the edge of the noise.
    """

    mean: NDArray[np.float64]
    B: NDArray[np.float64]
    C: NDArray[np.float64]
    T: NDArray[np.float64]
    W: NDArray[np.float64]
    strength: float
    dimensions: int

    def covariances(self) -> NDArray[np.float64]:
        """Return those of each item of the core, (M, r, r), if the model itself is off by `OFF` T.

        Raters of different items are not independent where users rate what they like.
        """
        return np.asarray(np.einsum("ak,jk,bk->jab", self.B, self.C, self.B) + OFF * self.T)


class Spectrum(NamedTuple):
    """The matrix with noise of deviation 1 everywhere, a = h c, and its eigenvalues, largest first.

    `edge` is how far noise alone reaches: as far as its negative end does, but for a few
    eigenvalues there, which are what users' own level and slopes have taken out.
    """

    a: NDArray[np.float64]
    G: NDArray[np.float64]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    edge: float

    @property
    def dimensions(self) -> int:
        """Number of eigenvalues that stand out of the noise."""
        return int((self.values > BEYOND * self.edge).sum())


def whiten(G: NDArray[np.float64], t: float, c: NDArray[np.float64], size: float) -> Spectrum:
    """Scale the matrix by h_j = (t + √κ c_j)^−½ on both sides, and find its eigenvalues.

    Parameters
    ----------
    G : (M, M), symmetric, 0 on the diagonal
    t : deviation of its noise
    c : (M,), counts above 0
    size : ñ
    """
    kappa = size / max(float(c.sum() ** 2 - (c**2).sum()), 1e-9)
    h = (t + math.sqrt(kappa) * c) ** -0.5
    white = h[:, None] * G * h
    M = len(c)
    with blas_threads_for(M):
        values, vectors = np.linalg.eigh(white)
    k = min(TAKEN_OUT, M // 4)
    # where the semicircle has its k-th from the end
    within = 1 - 0.5 * (3 * math.pi * (k + 0.75) / (2 * M)) ** (2 / 3)
    edge = -float(values[k]) / max(within, 0.5)
    return Spectrum(
        h * c, white, values[::-1], vectors[:, ::-1], float(np.clip(edge, 1e-9, 2 * math.sqrt(M)))
    )


def find_factors(
    found: Spectrum,
    rank: int,
    scale: float,
    features: NDArray[np.float64] | None = None,
    rounds: int = ROUNDS,
) -> FactorPosterior:
    """Fit the model above with vectors of that rank.

    Parameters
    ----------
    found : Spectrum
    rank : int
    scale : ω
    features : (M, K), optional
    rounds : int
    """
    M = len(found.a)
    rank = min(rank, M)
    a = found.a[:, None]
    length = np.maximum(found.values[:rank], 1e-3 * max(float(found.values[0]), found.edge))
    v = found.vectors[:, :rank] * np.sqrt(length) / a
    largest = 5 * max(float(np.median(np.abs(v[:, 0]))), 1e-12)
    v = np.clip(v, -largest, largest)
    F = np.zeros((M, 0)) if features is None else features
    strength = 3.0
    W = np.zeros((F.shape[1], rank))
    mean = np.zeros_like(v)
    T = np.diag((v**2).mean(axis=0) + 1e-7 * largest**2)
    B = np.eye(rank)
    C = np.zeros((M, rank))
    for _ in range(rounds):
        A = (v * a**2).T @ v + (B * (a[:, 0] ** 2 @ C)) @ B.T
        own = a**3 * (v * (v**2).sum(axis=1)[:, None] + ((v @ B) * C) @ B.T)
        right = a * (found.G @ (a * v) + own)
        B, inverse, alpha = common_basis(T, A)
        C = 1 / (1 + a**2 * alpha)
        v = 0.5 * v + 0.5 * (C * (right @ B + mean @ inverse.T)) @ B.T
        if F.shape[1]:
            S = np.linalg.inv(F.T @ F + strength * np.eye(F.shape[1]))
            W = S @ (F.T @ v)
            mean = F @ W
            w = W @ inverse.T
            strength = float(
                np.clip(w.size / max(float((w**2).sum() + rank * np.trace(S)), 1e-12), *STRENGTHS)
            )
        T = ((v - mean).T @ (v - mean) + (B * C.sum(axis=0)) @ B.T) / M
    root = math.sqrt(scale)
    return FactorPosterior(v / root, B / root, C, T / scale, W / root, strength, found.dimensions)
