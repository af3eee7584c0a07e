"""What the Huber model needs of private data: weights that users give their own ratings.

A user's rating counts the less, the further it is from what the public factors predict (Holland &
Welsch, 1977):

    w_ij = ψ_α(e_ij) / e_ij = min(1, α / |e_ij|),    e_ij = y_ij − u_i · v_j.

The weights are computed by the user from its own rating and vector and from public factors, and
stay sealed. They lie between 0 and 1 and multiply what the user contributes anyway, so that every
bound on it still holds: Σ_j (w_ij β_ij)² ≤ Σ_j β_ij² ≤ B and Σ_j w_ij β_ij ≤ S for the weights β of
`Users.choose`. The sensitivities of `item_counts`, `item_grams` and `item_sums` are therefore those
of `discreet.privacy.statistics.sums`, unchanged, in both norms and both relations; the factor √2
for replacing in ℓ₂ needs only that weights are never negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.kernels.threads import even_cuts, run
from discreet.privacy.statistics.base import Block, Public, UserStep
from discreet.privacy.statistics.bounds import check_bound
from discreet.privacy.users.sealed_users import Users


def reweight(users: Users, V: NDArray[Any], alpha: float) -> Users:
    """The same users with the same vectors, each contribution multiplied by its Huber weight under
    the factors `V`.

    Privacy: releases nothing; the sums of the users returned are moved by one user no further than
    those of `users`.

    Parameters
    ----------
    users : Users who have chosen their items and formed their vectors
    V : (n_items, rank)
        Public item factors.
    alpha : float
        Residuals beyond it count less, in units of ratings.
    """
    return users.copy_after(Reweigh(V, alpha))


@dataclass(frozen=True)
class Reweigh(UserStep):
    """Each user multiplies its contributions by their Huber weights under public factors."""

    V: NDArray[Any]
    alpha: float

    what = "the users' weights"

    def check(self, public: Public) -> Public:
        check_bound("alpha", self.alpha)
        public.need_contributions()
        public.need_vectors()
        public.factors(self.V, public.rank)
        return public

    def run(self, block: Block, public: Public) -> Block:
        item = np.repeat(np.arange(public.n_items), np.diff(block["by_item"]))
        V = public.factors(self.V)
        by_residual = huber_weights(
            item, block["user"], block["value"], block["vectors"], V, self.alpha
        )
        return block.with_state(weight=block["weight"] * by_residual)


# ------------------------------------------------------------------ weights


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


def huber_weights(
    item: NDArray[Any],
    user: NDArray[Any],
    value: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    alpha: float,
) -> NDArray[np.float64]:
    """min(1, α / |value − u · v|) of each (user, item, value); 0 where that is not finite.

    Each is added up by itself and in the order of the factors, so that no bit of it depends on
    other users.
    """
    weight = np.empty(len(item))
    run(lambda a, b: _weights(item, user, value, U, V, alpha, weight, a, b), even_cuts(len(item)))
    return weight


@njit(nogil=True, cache=True, error_model="numpy")
def _weights(
    item: np.ndarray,
    user: np.ndarray,
    value: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    alpha: float,
    weight: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for at in range(start, stop):
        predicted = 0.0
        for k in range(U.shape[1]):
            predicted += float(U[user[at], k]) * float(V[item[at], k])
        size = abs(value[at] - predicted)
        if not math.isfinite(size):
            weight[at] = 0.0
        elif size > alpha:
            weight[at] = alpha / size
        else:
            weight[at] = 1.0
