"""DPLMC: private matrix completion by projected gradients (Wang, Zhao and Kolar, 2023).

Algorithms 1 and 2 of the paper, with the corrections of docs/errata.md (9–11). U and V are √m and √n times the paper's,
so that their rows have the size of ordinary numbers whatever the numbers m of users and n of items (as in its §6); p is
the share of entries that are known. Per user, private and free, with e_ij = u_i · v_j − y_ij:

    u_i ← Π_α₁( u_i − η/(pn) Σ_{j ∈ Ω_i} e_ij v_j − η/2 · u_iᵀ R̃ )                                           (1)

Released, with noise, where every user's residuals are cut to ‖e_i‖ ≤ G from the first step on:

    K̃ = Σ_i u_i u_iᵀ + noise,      g̃_j = Σ_{i ∈ Ω_j} e_ij u_i + noise

and from these alone, for everybody to see, with R̃ = K̃/m − VᵀV/n:

    v_j ← Π_α₂( v_j − η/(pm) g̃_j + η/2 · R̃ v_j )                                                             (2)

That is ``variant="paper"``, for items that are rated about equally often. The default, "scaled", keeps what is released
and changes what is done with it, so that no step size has to be found and long tails do no harm:

    (o_i, u_i) by least squares on the user's own ratings, u_i stretched to the norm α₁                        (1′)
    g̃_j = Σ_i w_ij e_ij u_i + noise,   ‖(w_ij e_ij)_j‖ ≤ G,   w_ij² = q_j / Σ_{j ∈ Ω_i} q_j                   (2′)
    v_j ← S (S² + (λ_s S + σ²) / τ²)⁻¹ (S v_j − g̃_j),   S = c̃_j K̃/m

S is the Hessian, as far as it is released: c̃_j are noisy counts Σ_i w_ij. σ² is the variance of the noise, which is
known, and τ² that of the factors, estimated from the released numbers: what cannot be told from noise is left at 0.
Item biases are learnt before, in the same way with 1 in place of u_i.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.kernels import second_moment, solve_rows, tall_product
from discreet.kernels.gradient import residual_rows
from discreet.models.base import Progress
from discreet.models.dplmc_plan import PlannedLMC
from discreet.models.private import kept_counts
from discreet.privacy.descent import Descent
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import unpack

PRIOR_COUNT = 3.0  # a user's offset counts this many ratings at everybody's mean as well


class DPLMC(PlannedLMC):
    """Private matrix completion by projected gradients.

    Parameters
    ----------
    factors : int
        Rank r.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int
        T. Every step costs; 5 for "scaled", 10 to 60 for "paper".
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
        λ of the users' least squares. Default 10 for explicit and 1 for implicit feedback.
    feedback : {"explicit", "implicit"}
    unobserved_weight : float
        λ₀: weight of what a user has not chosen (implicit feedback); costs nothing, because K̃ is released anyway.
    bias_iterations : int
        Steps that learn item biases, for explicit feedback.
    rarity : float
        Users weigh items by q_j = c̃_j^(−2 rarity), so that rare items get a share.
    shrinkage : float
        λ_s, in units of what ratings scatter by themselves.
    momentum : float
        Released gradients of earlier steps count on with this factor per step; they have been paid for.
    stretch : bool
        Stretch users' vectors to α₁; else they are only cut.
    rating_range : (low, high), optional
        Public range of the ratings. Inferred where not given, which is recorded as a caution.
    centring : "user" or float
        Subtract something of every user's own, or a public constant.
    initial_scale : float
    shares : dict, optional
        Parts of the budget μ² by the names of the plan.
    noise : {"secure", "seeded"}
    random_state : int

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
        self.trace_, self.counts_ = [], None
        if self._paper:
            V, b = self._complete(users, session, progress), np.zeros(users.n_items)
        else:
            V, b = self._descend(users, session, progress)
        self.privacy_ = session.finish()
        self.restore_items(ratings.item_ids, V.astype(np.float32), b.astype(np.float32), ratings.titles,
                           self._range() if self._explicit else None)  # fmt: skip
        return self

    def _complete(self, users: Users, session: Session, progress: Progress | None) -> NDArray[Any]:
        """Algorithm 1."""
        walk, n, eta = Descent(users), users.n_items, self.step_size
        m, per_user = self._sizes(walk, session)
        per_item = per_user * m / n
        V = self._start(users, walk, session, per_user, m)
        for step in range(self.iterations):
            walk.look(V, self._largest())
            K = unpack(session.release("balance", walk.gram()), self.factors)[0]
            g = session.release("gradient", walk.gradient())
            R = K / m - second_moment(V) / n
            V, before = project(V - eta / per_item * g + eta / 2 * tall_product(V, R), self.item_norm), V
            walk.step(eta / per_user, R, eta / 2)
            self._note(V - before, step, progress)
        return V

    def _descend(self, users: Users, session: Session, progress: Progress | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """The scaled steps (1′) and (2′)."""
        walk = Descent(users)
        m, _ = self._sizes(walk, session)
        c, heavy = self._weigh(walk, session, m)
        G, spread = self._largest(), heavy * self._largest() ** 2
        b = self._learn_biases(walk, session, c, spread)
        V, Z, P, paid = self._random(users.n_items), 0.0, np.zeros((self.factors, self.factors)), 0.0
        unseen = self._unobserved() * heavy * m  # in the units of c
        for step in range(self.iterations):
            walk.solve(V, self._lambda(), bias=b, centre=self._centre(), prior_count=PRIOR_COUNT,
                       unobserved=self._unobserved(), stretch=self.stretch)  # fmt: skip
            walk.look(V, G, bias=b, own=False)
            K = unpack(session.release("balance", gram := walk.gram()), self.factors)[0] / m
            g = session.release("gradient", gradient := walk.gradient())
            Z, P = self.momentum * Z + c * tall_product(V, K) - g, self.momentum * P + K
            paid = self.momentum**2 * paid + 1
            s, Q = np.linalg.eigh(P)
            s = np.maximum(s, self._deviation(session, "balance", gram) / m)  # noise may have made some negative
            noise = paid * self._deviation(session, "gradient", gradient) ** 2
            found = settle(Z @ Q, (c + unseen) * s, noise, spread, self.shrinkage, G / self.user_norm) @ Q.T
            V, before = project(V + self.step_size * (found - V), self.item_norm), V
            self._note(V - before, step, progress)
        return V, b

    def _note(self, move: NDArray[Any], step: int, progress: Progress | None) -> None:
        """How far the item factors moved, root mean square: made of released numbers, and shows the rate."""
        self.trace_.append(float(np.sqrt((move**2).mean())))
        if progress:
            progress(step + 1, self.iterations, "steps")

    def _sizes(self, walk: Descent, session: Session) -> tuple[float, float]:
        """m and pn, public or released; and everybody's mean rating, if it is released with them."""
        n, self.centre_ = walk.n_items, 0.0
        if self._paper and self._sized:
            self.per_user_ = float(self.ratings_per_user or 0)
            return n * float(self.ratings_per_item or 0) / self.per_user_, self.per_user_
        known, m, mean = session.release("size", walk.size(self._half()))
        m = max(float(m), 1.0)
        self.per_user_ = min(max(float(known) / m, 1.0 / n), 1.0) * n
        if not self._paper:
            self.centre_ = float(np.clip(mean / m, -1, 1) * self._half())
        return m, self.per_user_

    def _start(self, users: Users, walk: Descent, session: Session, per_user: float, m: float) -> NDArray[np.float64]:
        """Item factors, and every user's vector from them: one step from 0, or Algorithm 2."""
        if self.initialization == "random":
            V = self._random(users.n_items)
            walk.start(self.step_size / per_user * V)
            return V
        users.choose()
        C = session.release("initial", users.covariance(self._largest()))
        V, W = spectral_start(C, self.factors, per_user / users.n_items, m, self.spectral_scale, self.balanced)
        walk.start(W)
        return project(V, self.item_norm)

    def _random(self, n: int) -> NDArray[np.float64]:
        rng = np.random.default_rng(self.random_state)
        return self.initial_scale * rng.standard_normal((n, self.factors))

    def _weigh(self, walk: Descent, session: Session, m: float) -> tuple[NDArray[Any], float]:
        """Counts c̃ (n, 1) of the items in the users' weights, and how heavy one rating is on average."""
        walk.weigh(np.ones(walk.n_items))
        c = session.release("counts", counts := walk.counts())
        least = max(self._deviation(session, "counts", counts), 0.5)
        heavy = m / max(float(c.sum()), m)
        self.counts_ = c.astype(np.float64) / heavy
        walk.weigh(np.maximum(c, least) ** (-2 * self.rarity))
        c = session.release("recounts", counts := walk.counts())
        return np.maximum(c, least / 2)[:, None], heavy

    def _learn_biases(self, walk: Descent, session: Session, c: NDArray[Any], spread: float) -> NDArray[Any]:
        """As for factors, with 1 in place of u_i; and all steps count, because 1 never changes."""
        n = len(c)
        b, Z, none = np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 0), np.float32)
        for step in range(self.bias_iterations if self._biases() else 0):
            walk.solve(none, self._lambda(), bias=b[:, 0], centre=self._centre(), prior_count=PRIOR_COUNT)
            walk.look(none, self._largest(), bias=b[:, 0], own=False)
            g = session.release("bias", gradient := walk.bias_gradient())
            Z = Z + c * b - g[:, None]
            noise = (step + 1) * self._deviation(session, "bias", gradient) ** 2
            b = settle(Z, (step + 1) * c, noise, spread, self.shrinkage, self._largest())
        return b[:, 0]

    def _deviation(self, session: Session, name: str, statistic: Statistic) -> float:
        """Standard deviation of the noise on a release: public."""
        return session.plan.noise_multiplier(name) * statistic.sensitivity(self.neighbouring, "l2")

    def _centre(self) -> float | None:
        return self.centre_ if self._explicit and self.centring == "user" else None

    def _unobserved(self) -> float:
        return 0.0 if self._explicit else self.unobserved_weight

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """(1′) without stretching, or T times (1) with the final items: what a user computes for itself is its own."""
        n, V = len(indptr) - 1, self.item_factors_
        row = np.repeat(np.arange(n), np.diff(indptr))
        bounds = self.bounds()
        y = np.ones(len(indices), np.float32) if not self._explicit else values.astype(np.float32)
        offset = np.zeros(n, np.float32)
        if bounds.centre == "user":
            total = np.bincount(row, y, minlength=n) + bounds.prior_mean * bounds.prior_count
            offset = (total / (np.diff(indptr) + bounds.prior_count)).astype(np.float32)
        elif self._explicit:
            offset += np.float32(bounds.centre)
        y = y - offset[row] - self.item_biases_[indices]
        if self._paper:
            return self._local_steps(indptr, indices, y), offset
        lead = math.sqrt(self._lambda() / PRIOR_COUNT)
        if self._centre() is None:
            shared = self._unobserved() * (V.T @ V) if self._unobserved() else None
            return solve_rows(indptr, indices, y, V, np.full(n, self._lambda()), shared), offset
        y = y - np.float32(self.centre_)
        X = solve_rows(indptr, indices, y, np.hstack([np.full((len(V), 1), lead, V.dtype), V]),
                       np.full(n, self._lambda()))  # fmt: skip
        return np.ascontiguousarray(X[:, 1:]), offset + np.float32(self.centre_) + np.float32(lead) * X[:, 0]

    def _local_steps(self, indptr: NDArray[Any], indices: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float32]:
        n, V = len(indptr) - 1, self.item_factors_
        U = np.zeros((n, V.shape[1]), np.float32)
        zeros, none = np.zeros(len(V), np.float32), np.zeros(n, np.float32)
        for _ in range(self.iterations + 1):
            g = residual_rows(indptr, indices, y, U, V, np.inf, zeros, none)[1]
            U = project(U - np.float32(self.step_size / self.per_user_) * g, self.user_norm).astype(np.float32)
        return U

    def state(self) -> dict[str, Any]:
        counts = None if self.counts_ is None else self.counts_.tolist()
        return {"centre": self.centre_, "range": self._range(), "share": self.per_user_ / len(self.item_ids_),
                "counts": counts, "trace": self.trace_}  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.centre_, self._seen_range = state["centre"], (state["range"][0], state["range"][1])
        self.per_user_ = state["share"] * len(self.item_ids_)
        self.counts_, self.trace_ = kept_counts(state, len(self.item_ids_)), list(state.get("trace", []))


def project(A: NDArray[Any], largest: float) -> NDArray[Any]:
    """Rows cut to the length `largest`."""
    return A * np.minimum(1.0, largest / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-30))


def settle(
    z: NDArray[Any], S: NDArray[Any], noise: float, spread: float, shrinkage: float, largest: float
) -> NDArray[Any]:
    """What best explains z = S x + noise + scatter, entry by entry, with x of a variance τ² that z itself tells.

    Parameters
    ----------
    z, S : (n, r), S > 0
    noise : variance of the noise
    spread : the variance of z for other reasons, over S
    shrinkage : what `spread` is multiplied by once τ is known
    largest : τ is between this and a hundredth of it
    """
    rest = noise + spread * S
    by_chance = 2 * np.sqrt(2 * (rest**2).sum(axis=0))  # two standard deviations of Σ z², were there nothing but noise
    tau = ((z**2 - rest).sum(axis=0) - by_chance) / (S**2).sum(axis=0)
    return S * z / (S**2 + (noise + shrinkage * spread * S) / np.clip(tau, 1e-4 * largest**2, largest**2))


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
