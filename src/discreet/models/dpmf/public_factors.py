"""Item factors of public users as a prior for those of ratings, by variational Bayes.

With levels and slopes as private users have them, in columns k_j that are known, rating i, j is

    y_ij − b_j = (s_i, u_i) · (k_j, v_j) + N(0, σ²),  (s_i, u_i) ~ N(0, I),  v_j ~ N(0, T)     (1)

    Λ_i = I + Σ_j (a_j a_jᵀ + C_j)/σ²,  a_j = (k_j, v_j),  u_i = Λ_i⁻¹ Σ_j a_j (y_ij − b_j)/σ²  (2)
    C_j⁻¹ = T⁻¹ + Σ_i (u_i u_iᵀ + Λ_i⁻¹)/σ²,  T = mean of v_j v_jᵀ + C_j                      (3)

in turns, with biases b_j of these users. Dimensions without a signal vanish. All of it is computed
from public ratings and released numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from discreet.models.dpmf.public_biases import SHRINK
from discreet.models.dpmf.user_effects import UserPrior
from discreet.privacy.users.public_users import PublicUsers

RANK = 8  # at most
ROUNDS = 30
START = 0.1  # deviation of first vectors, over σ
MOST_USERS = 5000  # those with the most ratings; more would only take time
LEAST = 0.02  # of σ², by which users' ratings vary along a dimension that is kept


class PublicFactors(NamedTuple):
    """Posterior means and covariances of item vectors, and T.

    mean : (n_items, r)
    covariance : (n_items, r, r)
    T : (r, r)
    """

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    T: NDArray[np.float64]

    @property
    def rank(self) -> int:
        """Return r."""
        return int(self.mean.shape[1])

    def unit_means(self, some: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the means, with squared norm 1 on average over some items."""
        square = float((self.mean[some] ** 2).sum(axis=1).mean())
        return self.mean / math.sqrt(max(square, 1e-12))

    def first(self, rank: int) -> PublicFactors:
        """Return the first dimensions."""
        return PublicFactors(
            self.mean[:, :rank], self.covariance[:, :rank, :rank], self.T[:rank, :rank]
        )


def keep_most_active(users: PublicUsers) -> PublicUsers:
    """Return at most `MOST_USERS` of them, with the most ratings."""
    keep = np.zeros(users.block.n, bool)
    keep[np.argsort(-users.block.counts, kind="stable")[:MOST_USERS]] = True
    return users if keep.all() else users.select(keep)


def fit_public_factors(
    users: PublicUsers, prior: UserPrior, bias: NDArray[np.float64]
) -> PublicFactors:
    """Fit (1) to the ratings of these users; biases start where they are."""
    block = users.block
    n = users.n_items
    variance = prior.variance
    root = math.sqrt(variance)
    level = np.full((n, 1), math.sqrt(variance * prior.variances["level"]))
    known = np.hstack([level, prior.columns(bias) / math.sqrt(prior.ridge / variance)])
    k = known.shape[1]
    y = block.values.astype(np.float64) - prior.population.center
    row, item = block.row, block.indices
    shape = (block.n, n)
    ones = sparse.csr_matrix((np.ones(len(item)), item, block.indptr), shape)
    many = np.bincount(item, minlength=n)
    rated = np.flatnonzero(many)
    rank = min(RANK, len(rated))
    rng = np.random.default_rng(0)
    V = START * root * rng.standard_normal((n, rank))
    C = np.zeros((n, rank, rank))
    C[:] = np.eye(rank) * (START * root) ** 2
    T = np.eye(rank) * 2 * (START * root) ** 2
    b = bias.copy()
    raters = ones.T.tocsr()[rated]
    for _ in range(ROUNDS):
        A = np.hstack([known, V])
        full = A[:, :, None] * A[:, None, :]
        full[:, k:, k:] += C
        left = sparse.csr_matrix((y - b[item], item, block.indptr), shape)
        d = k + rank
        S = np.linalg.inv(np.eye(d) + (ones @ full.reshape(n, -1)).reshape(-1, d, d) / variance)
        U = np.einsum("iab,ib->ia", S, left @ A / variance)
        M = U[:, :, None] * U[:, None, :] + S
        own = (raters @ M[:, k:].reshape(block.n, -1)).reshape(-1, rank, d)
        right = (left.T @ U[:, k:])[rated] - np.einsum("jab,jb->ja", own[:, :, :k], known[rated])
        C[rated] = np.linalg.inv(np.linalg.inv(T) + own[:, :, k:] / variance)
        v = np.einsum("jab,jb->ja", C[rated], right / variance)
        V[:] = 0.0
        V[rated] = v
        T = (v.T @ v + C[rated].sum(axis=0)) / len(rated) + 1e-9 * variance * np.eye(rank)
        fit = (U[row] * np.hstack([known, V])[item]).sum(axis=1)
        b = bias + np.bincount(item, y - fit - bias[item], minlength=n) / (many + SHRINK)
        products = (ones @ (V[:, :, None] * V[:, None, :]).reshape(n, -1)).reshape(-1, rank, rank)
        error = float(((y - b[item] - fit) ** 2).sum() + (S[:, k:, k:] * products).sum())
        variance = max(error / len(y), 1e-6)
    C[many == 0] = T
    # the basis in which what explains most of the ratings comes first
    size, Q = np.linalg.eigh((V * many[:, None]).T @ V / max(int(many.sum()), 1))
    keep = size[::-1] > LEAST * variance
    Q = Q[:, ::-1][:, keep]
    return PublicFactors(V @ Q, Q.T @ C @ Q, Q.T @ T @ Q)


def choose_dimensions(users: PublicUsers, prior: UserPrior, bias: NDArray[np.float64]) -> int:
    """Return with how many dimensions factors of half of these users predict the other half best.

    0 where none gain.
    """
    half = np.random.default_rng(0).random(users.block.n) < 0.5
    total = np.zeros(RANK)
    for some in (half, ~half):
        known = users.select(some)
        if not known.block.counts.sum():
            return 0
        found = fit_public_factors(known, prior, bias)
        ranks = tuple(range(1, found.rank + 1))
        if not ranks:
            return 0
        gains = prior.leave_one_out_gains(found.mean, bias, ranks, prior.variance)
        gain = users.select(~some).sum(gains) * math.sqrt(len(ranks))
        total += np.append(gain, np.full(RANK - len(ranks), gain[-1]))
    return int(np.argmax(total)) + 1 if total.max() > 0 else 0
