"""HuberALS: noisy alternating least squares, plain or reweighted, with Gaussian, Laplace or Huber noise.

After "Introducing the Huber mechanism for differentially private low-rank matrix completion" (Gowtham et al., 2022),
made sound. Per user, private and free, from all of its ratings y (taken relative to its own mean):

    u_i = clip((Σ_{j ∈ Ω_i} v_j v_jᵀ + λ_u |Ω_i| I)⁻¹ Σ_{j ∈ Ω_i} (y_ij − b_j) v_j)                             (1)

Released, with noise on both, from at most k items of each user, in each of T·K inner iterations:

    G̃_j = Σ_i w_ij u_i u_iᵀ + noise,     g̃_j = Σ_i w_ij y_ij u_i + noise                                      (2)
    w_ij = 1 (ALS, Algorithm 1),   or   w_ij = min(1, α / |y_ij − u_i · v_j|) (R-IRLS, Algorithms 2 and 3)     (3)

and from these alone, for everybody to see:

    v_j = (Π_PSD(G̃_j) + λ_j I)⁻¹ g̃_j,     λ_j = λ + σ_g² / (τ² a_j)                                          (4)

where the second part of λ_j is what least squares asks for when a right-hand side has noise of deviation σ_g, a vector
has prior variance τ² and a_j is the curvature, estimated from tr G̃_j / r (`curvature`).

Clipping is in ℓ₁ for Laplace noise and for pure ε, in ℓ₂ for Gaussian noise and for Huber noise priced by its Gaussian
bound. The price is the sum of pure ε, a privacy loss distribution or the Gaussian bound, whichever asks for the least
noise (``accountant="auto"``); the statement says which it was.

With ``as_printed=True`` this is the paper to the letter: no bounds, no centring, noise of a fixed variance on
right-hand sides alone. That has no finite ε (erratum 12), and the statement says so.
"""

from __future__ import annotations

import logging
import math
import secrets
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.kernels import solve_psd, solve_rows
from discreet.models.base import Progress
from discreet.models.huber_plan import PlannedHuber, PrintedStatement
from discreet.privacy.robust import reweighted, under_noised
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session
from discreet.privacy.statistics import unpack
from discreet.privacy.unsafe import reveal

logger = logging.getLogger("discreet")


class HuberALS(PlannedHuber):
    """Private matrix factorisation by least squares or robust least squares, with a choice of noise.

    Parameters
    ----------
    factors : int
        Rank r.
    mechanism : {"gaussian", "laplace", "huber"}
        The noise. docs/huber.md says when to use which.
    solver : {"als", "irls"}
        Least squares, or reweighted least squares in which ratings far from their prediction count less.
    epsilon, delta, neighbouring
        The promise. ``delta=0`` asks for pure ε, which Gaussian noise cannot give.
    accountant : {"auto", "gdp", "pld", "pure", "rdp"}
        How the releases are priced; "auto" takes whatever asks for the least noise.
    alpha : float, optional
        Huber noise only: where its tails begin, in units of its scale. Default 2 where its Gaussian bound is the price,
        0.5 where pure ε is; as printed, what the variance asks for.
    transition : float, optional
        "irls" only: residuals beyond it count less. Default 1 star; as printed, `alpha`.
    iterations : int, optional
        T. Default 1, which few people ask for; 3 from some 10,000 on; as printed, 50.
    inner_iterations : int, optional
        K of "irls", each of which is released and charged. Default 1; as printed, 20.
    regularization : float, optional
        λ of items. Default 5; as printed, 0.5 for users and items.
    user_regularization : float
        λ_u, per rating of the user.
    prior_variance : float
        τ²: how large item factors are expected to be. Smaller shrinks more where there is much noise.
    feedback : {"explicit"}
    max_items : int
        k, how many items of a user are contributed.
    user_norm, user_norm_l1 : float
        Γ and Γ₁, to which vectors are cut in ℓ₂ and, where clipping is "l1", in ℓ₁ (by default to the same number).
    clipping : {"auto", "l1", "l2"}
        "auto" is "l2" for Gaussian noise and for Huber noise with δ > 0, else "l1".
    intercept : float, optional
        A constant first coordinate of every user's vector, so that items have a bias. Default
        0.7 times `user_norm`.
    rating_range : (low, high), optional
        Public range of the ratings. Inferred where not given, which is recorded as a caution.
    rating_bound : float, optional
        Γ_M: centred ratings are cut to ±Γ_M. Default: a quarter of the width of the range.
    centring : {"user"} or float
        Subtract every user's own mean (free), or a public constant.
    gram_share : float
        Part of the budget for Gram matrices; the rest is for right-hand sides.
    as_printed : bool
        The paper to the letter: **not private**.
    variance : float
        Of the noise, as printed only; 0 is the paper's "vanilla" column.
    initial_scale : float, optional
        Standard deviation of the factors to start from. Default 0.3; as printed, 1.
    allow_large_delta : bool
        Take a `delta` above 1e-3 nevertheless; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
        Seed of where training starts and of which items people contribute; by default another one in every fit. Seeded
        noise needs one.
    """

    previous_factors_: NDArray[Any]

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        self._begin(ratings)
        self._infer_range(ratings)
        users, session = self._open_session(ratings)
        self._assume_range(session)
        if self.as_printed:
            V = self._printed(users, session, progress)
        else:
            V = self._sound(users, session, progress)
        self._finish(ratings, V, session)
        return self

    def _sound(self, users: Users, session: Session, progress: Progress | None) -> NDArray[Any]:
        users.choose()
        noise = self._deviations(session.plan, users.n_items)
        V = self._initial(users.n_items)
        for step in range(self._steps()):
            F, b = self._parts(V)
            users.solve(F, self.user_regularization, exponent=1.0, bias=b, intercept=self._intercept())
            for _ in range(self._inner()):
                robust = reweighted(users, V, self._transition()) if self.solver == "irls" else users
                V = self._item_step(robust, session, noise)
            if progress:
                progress(step + 1, self._steps(), "steps")
        return V

    def _item_step(self, users: Users, session: Session, noise: dict[str, float]) -> NDArray[Any]:
        """Equation (4)."""
        g = session.release("sum", users.item_sums())
        G = unpack(session.release("gram", users.item_grams()), self._rank)
        seen = np.trace(G, axis1=1, axis2=2) / self._rank
        ridge = self._lambda() + noise["sum"] ** 2 / (self.prior_variance * curvature(seen, noise["gram"], self._rank))
        return solve_psd(G, g, ridge)

    def _printed(self, users: Users, session: Session, progress: Progress | None) -> NDArray[Any]:
        """Algorithms 1, 2 and 3: what they compute, and what they let out."""
        seed = self.random_state if self.noise == "seeded" else secrets.randbits(63)
        rng, noise, lam = np.random.default_rng(seed), self._printed_noise(), self._lambda()
        users.choose()
        V = self._initial(users.n_items)
        for step in range(self._steps()):
            self.previous_factors_ = V  # the paper's Z = U Vᵀ takes the users from before the last item step
            users.solve(V, lam)
            if self.solver == "irls":
                V = rng.standard_normal(V.shape)  # Algorithm 3 starts afresh every time
            for _ in range(self._inner()):
                robust = reweighted(users, V, self._transition()) if self.solver == "irls" else users
                G = unpack(reveal(session, "gram", robust.item_grams()), self._rank)
                g = under_noised(session, "sum", robust.item_sums(), noise, rng)
                V = solve_psd(G, g, np.full(len(g), lam), project=False)
            if progress:
                progress(step + 1, self._steps(), "steps")
        return V

    def _initial(self, n: int) -> NDArray[Any]:
        scale = self.initial_scale or (1.0 if self.as_printed else 0.3)
        V = scale * np.random.default_rng(self.random_state).standard_normal((n, self.factors))
        return np.hstack([np.zeros((n, self._rank - self.factors)), V])

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors and biases in what the item step solves for."""
        if self._rank == self.factors:
            return V, np.zeros(len(V))
        return np.ascontiguousarray(V[:, 1:]), self._intercept() * V[:, 0]

    def _finish(self, ratings: Ratings, V: NDArray[Any], session: Session) -> None:
        factors, biases = self._parts(V)
        self.privacy_ = PrintedStatement.of(session.ledger) if self.as_printed else session.finish()
        if not self.as_printed and np.abs(V).max() < 1e-2:
            logger.warning(
                "at ε = %g the noise leaves nothing of the items: users' own means will predict", self.epsilon
            )
        self.restore_items(
            ratings.item_ids, factors.astype(np.float32), biases.astype(np.float32), ratings.titles, self._range()
        )

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equation (1) without the cut: what a user computes for itself is for itself."""
        n, counts = len(indptr) - 1, np.diff(indptr)
        row = np.repeat(np.arange(n), counts)
        V = self.item_factors_
        if self.as_printed:
            return solve_rows(indptr, indices, values.astype(V.dtype), V, np.full(n, self._lambda())), np.zeros(n)
        offset = self._offset(row, counts, values)
        target = values.astype(V.dtype) - offset[row] - self.item_biases_[indices]
        return solve_rows(indptr, indices, target, V, self.user_regularization * np.maximum(counts, 1.0)), offset

    def _offset(self, row: NDArray[Any], counts: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        bounds = self.bounds()
        if isinstance(self.centring, (int, float)):
            return np.full(len(counts), self.centring, np.float32)
        total = np.bincount(row, values, minlength=len(counts)) + bounds.prior_mean * bounds.prior_count
        return (total / (counts + bounds.prior_count)).astype(np.float32)

    def state(self) -> dict[str, Any]:
        return {"range": self._range()}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen_range = state["range"][0], state["range"][1]


def curvature(seen: NDArray[Any], deviation: float, rank: int) -> NDArray[Any]:
    """Estimates of tr G / r from noisy ones, drawn towards their mean as far as they are noise (James and Stein).

    None is below a tenth of the mean, nor of what the mean itself may be off by.
    """
    noise, mean = deviation / math.sqrt(rank), float(seen.mean())
    kept = max(0.0, 1 - noise**2 / max(float(seen.var()), 1e-300))
    least = max(mean, noise / math.sqrt(len(seen)))
    return np.maximum(mean + kept * (seen - mean), 0.1 * least)
