"""DPLMC: private matrix completion by projected gradients (Wang, Zhao and Kolar, 2023).

Algorithms 1 and 2 of the paper, with the corrections of docs/errata.md (9–11). U and V are √m and √n times the paper's,
so that their rows have the size of ordinary numbers whatever the numbers m of users and n of items (as in its §6); p is
the share of entries that are known. Per user, private and free, with e_ij = u_i · v_j − y_ij:

    u_i ← Π_α₁( u_i − η/(pn) Σ_{j ∈ Ω_i} e_ij v_j − η/2 · u_iᵀ R̃ )                                           (1)

Released, with noise, where every user's residuals are cut to ‖e_i‖ ≤ G from the first step on:

    K̃ = Σ_i u_i u_iᵀ + noise,      g̃_j = Σ_{i ∈ Ω_j} e_ij u_i + noise

and from these alone, for everybody to see, with R̃ = K̃/m − VᵀV/n:

    v_j ← Π_α₂( v_j − η/(pm) g̃_j + η/2 · R̃ v_j )                                                             (2)

That is ``variant="paper"``, for items that are rated about equally often. The default, "scaled", releases sums of the
same kind and does more with them, so that no step size has to be found and long tails do no harm: users solve least
squares on their own ratings, weigh rare items more, and items take steps scaled by the average curvature and shrunk by
the known noise. `discreet.models.residual_steps` holds it; DPALS as it comes does the same.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.kernels import second_moment, tall_product
from discreet.kernels.gradient import residual_rows
from discreet.models.base import Progress
from discreet.models.dplmc_plan import PlannedLMC
from discreet.models.private import kept_counts
from discreet.models.residual_steps import project
from discreet.privacy.descent import Descent
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session
from discreet.privacy.statistics import unpack


class DPLMC(PlannedLMC):
    """Private matrix completion by projected gradients.

    Parameters
    ----------
    factors : int, optional
        Rank r. Default: by the budget, 6 at ε = 1 and 8 at ε = 20 (δ = 1e-5), or 16 for "paper" and for implicit
        feedback.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int, optional
        T. Every step costs. Default 8, or 5 for "paper" (where 10 to 60 are usual) and for implicit feedback.
    variant : {"scaled", "paper"}
        See above.
    step_size : float
        η.
    user_norm, item_norm, residual_norm : float
        The three projections: α₁, α₂ and G. Default of G: α₁ α₂ ("paper"), a fifth of the width of the rating range
        ("scaled": what is cut is the weighted root mean square of a user's residuals), 1 for implicit feedback.
    balance_share : float, optional
        ω, the part of R̃ in the budget of (1) and (2). Default: where both kinds of noise together do least harm.
    ratings_per_item, ratings_per_user : float, optional
        pm and pn as public numbers ("paper"). Where one is missing, both are released, at a price (erratum 10).
    initialization : {"random", "spectral"}
        Item factors at random, or by Algorithm 2 ("paper").
    initial_epsilon : float, optional
        What of ε is set aside for Algorithm 2; else a tenth of μ².
    spectral_scale : float
        τ.
    balanced : bool
        Split the spectrum evenly between users and items, or as printed (erratum 11).
    constants : {"tight", "printed"}
        "printed" uses the noise of Theorems 5.1 and 5.3, for reproduction only: more than is needed (erratum 9).
    regularization : float, optional
        λ of the users' least squares. Default 8 for explicit and 1 for implicit feedback.
    feedback : {"explicit", "implicit"}
    unobserved_weight : float
        λ₀: weight of what a user has not chosen (implicit feedback); costs nothing, because K̃ is released anyway.
    bias_iterations : int
        Steps that learn item biases before all else, for explicit feedback; 0 is for data without any.
    rarity : float
        Users weigh items by q_j = c̃_j^(−2 rarity), so that rare items get a share.
    shrinkage : float
        λ_s, in units of what ratings scatter by themselves.
    momentum : float, optional
        Released gradients of earlier steps count on with this factor per step; they have been paid for. Default 0.25,
        or 0 for implicit feedback and without biases.
    growth : float, optional
        How many times the budget μ² of a step is that of the step before. Default 1.4, or 1 likewise.
    intercept : float, optional
        ι, the part of α₁ that goes to biases in every step. Default: between 0.5 and 0.9 by the released counts, more
        where there is little signal. 0: biases are learnt before the first step only.
    popularity : bool
        Draw biases towards a regression on the released counts.
    stretch : bool
        Stretch users' vectors to α₁; else they are only cut.
    rating_range : (low, high), optional
        Public range of the ratings. Inferred where not given, which is recorded as a caution.
    centring : "user" or float
        Subtract something of every user's own, or a public constant.
    initial_scale : float
    shares : dict, optional
        Parts of the budget μ² by the names of the plan.
    allow_large_delta : bool
        Take a `delta` above 1e-3 nevertheless; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
        Seed of where training starts and of which items people contribute; by default another one in every fit. Seeded
        noise needs one.

    Attributes
    ----------
    trace_ : list of float
        How far the item factors moved at each step, root mean square: made of released numbers.
    counts_ : (n_items,) float64 or None
        About how many people rated each item: the released noisy counts over what one rating adds to them on average,
        by released numbers as well. None for "paper", which releases no counts.
    """

    trace_: list[float]
    counts_: NDArray[np.float64] | None

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        self._begin(ratings)
        self._infer_range(ratings)
        users, session = self._open_session(ratings)
        self._assume(session)
        self.trace_, self.counts_, self.centre_ = [], None, 0.0
        b = np.zeros(ratings.n_items, np.float32)
        if self._paper:
            V = self._complete(users, session, progress)
        else:
            found = self._scaled().run(users, session, None, lambda step, move: self._note(move, step, progress))
            V, b, self.centre_, self.per_user_ = found.factors, found.biases, found.centre, found.per_user
            self.counts_ = found.counts
        self.privacy_ = session.finish()
        self.restore_items(
            ratings.item_ids, V.astype(np.float32), b, ratings.titles, self._range() if self._explicit else None
        )
        return self

    def _complete(self, users: Users, session: Session, progress: Progress | None) -> NDArray[Any]:
        """Algorithm 1."""
        walk, n, eta = Descent(users), users.n_items, self.step_size
        m, per_user = self._sizes(walk, session)
        per_item = per_user * m / n
        V = self._start(users, walk, session, per_user, m)
        for step in range(self._steps):
            walk.look(V, self._largest())
            K = unpack(session.release("balance", walk.gram()), self._factors)[0]
            g = session.release("gradient", walk.gradient())
            R = K / m - second_moment(V) / n
            V, before = project(V - eta / per_item * g + eta / 2 * tall_product(V, R), self.item_norm), V
            walk.step(eta / per_user, R, eta / 2)
            self._note(float(np.sqrt(((V - before) ** 2).mean())), step, progress)
        return V

    def _note(self, move: float, step: int, progress: Progress | None) -> None:
        """How far the item factors moved, root mean square: made of released numbers, and shows the rate."""
        self.trace_.append(move)
        if progress:
            progress(step + 1, self._steps, "steps")

    def _sizes(self, walk: Descent, session: Session) -> tuple[float, float]:
        """m and pn, public or released."""
        n = walk.n_items
        if self._sized:
            self.per_user_ = float(self.ratings_per_user or 0)
            return n * float(self.ratings_per_item or 0) / self.per_user_, self.per_user_
        known, m, _ = session.release("size", walk.size(self._half()))
        m = max(float(m), 1.0)
        session.judge_delta(m)
        self.per_user_ = min(max(float(known) / m, 1.0 / n), 1.0) * n
        return m, self.per_user_

    def _start(self, users: Users, walk: Descent, session: Session, per_user: float, m: float) -> NDArray[np.float64]:
        """Item factors, and every user's vector from them: one step from 0, or Algorithm 2."""
        if self.initialization == "random":
            V = self._random(users.n_items)
            walk.start(self.step_size / per_user * V)
            return V
        users.choose()
        C = session.release("initial", users.covariance(self._largest()))
        V, W = spectral_start(C, self._factors, per_user / users.n_items, m, self.spectral_scale, self.balanced)
        walk.start(W)
        return project(V, self.item_norm)

    def _random(self, n: int) -> NDArray[np.float64]:
        rng = np.random.default_rng(self.random_state)
        return self.initial_scale * rng.standard_normal((n, self._factors))

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """What a user computes for itself is its own: least squares, or T times (1) with the final items."""
        n, row = len(indptr) - 1, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        bounds = self.bounds()
        y = np.ones(len(indices), np.float32) if not self._explicit else values.astype(np.float32)
        offset = np.zeros(n, np.float32)
        if bounds.centre == "user":
            total = np.bincount(row, y, minlength=n) + bounds.prior_mean * bounds.prior_count
            offset = (total / (np.diff(indptr) + bounds.prior_count)).astype(np.float32)
        elif self._explicit:
            offset += np.float32(bounds.centre)
        y = y - offset[row]
        if self._paper:
            return self._local_steps(indptr, indices, y), offset
        U, own = self._scaled().fold(indptr, indices, y, self.item_factors_, self.item_biases_, self.centre_)
        return U, offset + own

    def _local_steps(self, indptr: NDArray[Any], indices: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float32]:
        n, V = len(indptr) - 1, self.item_factors_
        U = np.zeros((n, V.shape[1]), np.float32)
        zeros, none = np.zeros(len(V), np.float32), np.zeros(n, np.float32)
        for _ in range(self._steps + 1):
            g = residual_rows(indptr, indices, y, U, V, np.inf, zeros, none)[1]
            U = project(U - np.float32(self.step_size / self.per_user_) * g, self.user_norm).astype(np.float32)
        return U

    def state(self) -> dict[str, Any]:
        counts = None if self.counts_ is None else self.counts_.tolist()
        return {
            "centre": self.centre_,
            "range": self._range(),
            "share": self.per_user_ / len(self.item_ids_),
            "counts": counts,
            "trace": self.trace_,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.centre_, self._seen_range = state["centre"], (state["range"][0], state["range"][1])
        self.per_user_ = state["share"] * len(self.item_ids_)
        self.counts_, self.trace_ = kept_counts(state, len(self.item_ids_)), list(state.get("trace", []))


def spectral_start(
    C: NDArray[Any], r: int, p: float, m: float, tau: float = 1.0, balanced: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Algorithm 2: item factors V (n, r), and W (n, r) with which a user's vector is Σ_j y_j w_j.

    The spectrum Σ is that of τ²/p² C / (mn), an estimate of XᵀX/(mn), hence of *squared* singular values. Printed is
    V = Q Σ^½, which leaves users with U ~ Σ⁰; the balance term wants UᵀU/m = VᵀV/n, hence Q Σ^¼ (erratum 11).

    Parameters
    ----------
    C : (n, n), the released covariance Σ_i y_i y_iᵀ
    r, p, m : rank, share of known entries, number of users
    """
    n = len(C)
    values, Q = np.linalg.eigh((C + C.T) / 2 * tau**2 / (p**2 * m * n))
    values, Q = values[-r:], Q[:, -r:]
    root = np.maximum(values, 1e-6 * max(values[-1], 1e-12)) ** (0.25 if balanced else 0.5)
    return math.sqrt(n) * Q * root, tau / (p * math.sqrt(n)) * Q / root
