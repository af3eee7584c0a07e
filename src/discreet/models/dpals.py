"""DPALS: alternating least squares with user-level differential privacy (Chien et al., 2021).

Algorithms 1 and 2 and the loss (24) of the paper, with the corrections of docs/errata.md. Per user, private and free:

    u_i = clip((Σ_{j ∈ Ω_i} v_j v_jᵀ + λ₀ VᵀV + λ c_i^ν / Z · I)⁻¹ Σ_{j ∈ Ω_i} y_ij v_j,  Γ_u)                (1)

Released, with noise, from at most k items of each user:

    c̃ = Counts(Ω'),   G̃_j = Σ_{i ∈ Ω''_j} u_i u_iᵀ + noise,   g̃_j = Σ_{i ∈ Ω''_j} y_ij u_i + noise,
    K̃ = Σ_i u_i u_iᵀ + noise

and from these alone, for everybody to see:

    v_j = (Π_PSD(G̃_j) + λ₀ Π_PSD(K̃) + λ c̃_j^μ / Z′ · I)⁻¹ g̃_j                                              (2)

Steps: (a) noisy counts of a uniform sample decide which items are frequent; (b) every user keeps the k rarest frequent
items it has rated; (c) ratings are centred and cut to Γ_M; (d) T times (1) and (2). Items that are not frequent are
predicted by the user's own mean.
"""

from __future__ import annotations

import logging
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded
from discreet.kernels import project_psd, solve_psd, solve_rows
from discreet.models.base import Progress
from discreet.models.dpals_plan import PlannedALS
from discreet.privacy.plan import Plan
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session
from discreet.privacy.statistics import unpack

logger = logging.getLogger("discreet")


class DPALS(PlannedALS):
    """Private alternating least squares.

    Parameters
    ----------
    factors : int
        Rank r. Small budgets want small ranks: every item has r(r+3)/2 noisy numbers per step.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int
        T. Every step costs, so two or three are usual.
    regularization : float, optional
        λ. Default 80 for explicit and 0.5 for implicit feedback.
    feedback : {"explicit", "implicit"}
    unobserved_weight : float, optional
        λ₀. Default 0 for explicit and 0.6 for implicit feedback; if positive, K̃ is released at every step.
    user_exponent, item_exponent : float
        ν and μ.
    noise_ridge : float
        Added to every item's ridge, in units of the known size √(2r) · sd of the noise on its Gram matrix: what noise
        can turn into a small eigenvalue should not be divided by. 0 is the paper's algorithm.
    user_normalizer : float
        Z, a *public* number (erratum 4): a user with this many ratings gets the ridge λ.
    max_items : int
        k, how many items of a user are contributed.
    user_norm : float
        Γ_u.
    intercept : float, optional
        ι: a constant first coordinate of every user's vector, as a part of Γ_u, so that items have a bias. Default 0.5
        for explicit feedback; 0 is the paper's algorithm.
    rating_range : (low, high), optional
        Public range of the ratings. Inferred where not given, which is recorded as a caution.
    rating_bound : float, optional
        Γ_M: centred ratings are cut to ±Γ_M. Default: a third of the width of the range.
    centring : {"user", "global"} or float
        Subtract every user's own mean (free), a released global mean, or a public constant.
    item_fraction : float
        β: the share of items, the most frequent, that get factors.
    sampling : {"rarest", "uniform"}
        Which k items a user contributes.
    recount : bool
        Release the counts of what is contributed as well, as Algorithm 2 does; else the first counts serve.
    initialization : {"random", "spectral"}
        Item factors at random, or from the released covariance of the ratings (supplement B.4).
    projection, orthonormalize, resample : bool
        Project Gram matrices (else the ablation), replace V by V(VᵀV)^(−1/2), draw new samples at every step.
    shares : dict, optional
        Parts of the budget μ² (relative to each other) by the names of the plan: "counts", "recounts", "gram", "sum",
        and where they apply "centre sum", "centre count", "initial", "global".
    sigmas : dict, optional
        Noise in the paper's units instead of a budget, by the same names: σ_p for counts and centre, σ_G for "gram" and
        "global", σ_g for "sum". ``epsilon`` is then ignored; the statement says what it really costs.
    initial_scale : float, optional
    noise : {"secure", "seeded"}
    random_state : int
    """

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        self._begin(ratings)
        self._infer_range(ratings)
        users, session = self._open_session(ratings)
        self._assume_range(session)
        users.choose()
        counts = session.release("counts", users.item_counts())
        frequent = self._frequent(counts)
        users, counts = users.restrict(frequent), counts[frequent]
        self._centre(users, session)
        users.choose(counts if self.sampling == "rarest" else None)
        if self.recount:
            counts = session.release("recounts", users.item_counts())
        ridge = self._item_ridge(counts, session.plan)
        self._check_signal(session.plan, counts)
        V = self._initial(users, session, len(frequent))
        for step in range(self.iterations):
            if self.resample and step:
                users.choose(counts if self.sampling == "rarest" else None, draw=step)
            F, b = self._parts(V)
            users.solve(F, self._lambda(), exponent=self.user_exponent, scale=self._user_scale(),
                        unobserved=self._unobserved(), bias=b, intercept=self._intercept())  # fmt: skip
            V = self._item_step(users, session, ridge)
            if progress:
                progress(step + 1, self.iterations, "steps")
        self._finish(ratings, V, frequent, session)
        return self

    def _item_step(self, users: Users, session: Session, ridge: NDArray[Any]) -> NDArray[Any]:
        """Equation (2), block by block of items."""
        K = None
        if self._unobserved() > 0:
            K = unpack(session.release("global", users.global_gram(), np.float32), self._rank)
            project_psd(K)
            K = self._unobserved() * K[0]
        g = session.release("sum", users.item_sums(), np.float32)
        V = np.empty((users.n_items, self._rank), np.float32)
        for rows, G in session.release_blocks("gram", users.item_grams(), dtype=np.float32):
            V[rows] = solve_psd(unpack(G, self._rank), g[rows], ridge[rows], K, project=self.projection)
        if self.orthonormalize:
            values, Q = np.linalg.eigh((V.T @ V).astype(np.float64))
            V = (V @ (Q / np.sqrt(np.maximum(values, 1e-12))) @ Q.T).astype(np.float32)
        return V

    def _frequent(self, counts: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of the ⌈β m⌉ items with the largest noisy counts (erratum 7: noisy, and charged)."""
        return np.sort(np.argsort(-counts, kind="stable")[: self._n_frequent(len(counts))])

    def _centre(self, users: Users, session: Session) -> None:
        """Release the global mean, if that is what ratings are centred by (erratum 3: its sensitivity is k Γ_M)."""
        low, high = self._range()
        self.centre_ = float(self.centring) if isinstance(self.centring, (int, float)) else (low + high) / 2
        if self._explicit and self.centring == "global":
            users.recentre(self.centre_)  # around the middle of the range, sums are smaller
            users.choose()
            total = session.release("centre sum", users.rating_sum())[0]
            count = session.release("centre count", users.rating_count())[0]
            self.centre_ = float(np.clip(self.centre_ + total / max(count, 1.0), low, high))
            users.recentre(self.centre_)

    def _item_ridge(self, counts: NDArray[Any], plan: Plan) -> NDArray[Any]:
        """λ c̃_j^μ / Z′, with Z′ such that an average rating has weight 1, and what the noise asks for."""
        c = np.maximum(counts, 1.0)
        weight = c**self.item_exponent * c.sum() / (c ** (1 + self.item_exponent)).sum()
        relation = math.sqrt(2.0) if self.neighbouring == "replace-one" else 1.0
        sd = plan.noise_multiplier("gram") * math.sqrt(self.max_items) * self.user_norm**2 * relation
        return self._lambda() * weight + self.noise_ridge * math.sqrt(2 * self._rank) * sd

    def _initial(self, users: Users, session: Session, n: int) -> NDArray[Any]:
        scale = self.initial_scale
        if scale is None:
            implicit = math.sqrt(max(self._lambda(), 0.5) / (self._unobserved() * n + 40))
            scale = 0.3 if self._explicit else implicit
        none = np.zeros((n, self._rank - self.factors), np.float32)
        if self.initialization == "random":
            rng = np.random.default_rng(self.random_state)
            return np.hstack([none, (scale * rng.standard_normal((n, self.factors))).astype(np.float32)])
        W = session.release("initial", users.covariance(self._row_norm()))
        Q = np.linalg.eigh((W + W.T) / 2)[1][:, -self.factors :]
        return np.hstack([none, (scale * math.sqrt(n) * Q).astype(np.float32)])

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors and biases in what the item step solves for."""
        if self._rank == self.factors:
            return V, np.zeros(len(V), np.float32)
        return np.ascontiguousarray(V[:, 1:]), self._intercept() * V[:, 0]

    def _check_signal(self, plan: Plan, counts: NDArray[Any]) -> None:
        """Compare, from released counts alone, the most that a right-hand side can hold with the noise on it."""
        replaced = self.neighbouring == "replace-one"
        noise = plan.noise_multiplier("sum") * math.sqrt(self.max_items * self._rank) * (2.0 if replaced else 1.0)
        levels = [*np.quantile(counts / noise, [0.1, 0.5, 0.9]), counts.mean() / noise]
        self.signal_to_noise_ = dict(zip(("10 %", "50 %", "90 %", "average"), map(float, levels), strict=True))
        shown = ", ".join(f"{name}: {value:.2g}" for name, value in self.signal_to_noise_.items())
        counting = plan.noise_multiplier("recounts" if self.recount else "counts") * math.sqrt(self.max_items)
        unsure = 2 * counting / math.sqrt(len(counts)) / noise
        if levels[3] < max(0.1, unsure):  # the average, because single counts drown in their own noise first
            raise BudgetExceeded(
                f"ε = {self.epsilon:g} cannot support rank {self.factors}: the noise on an item's sum drowns all that "
                f"the sum can be (signal over noise by quantile of items, {shown}); raise epsilon or lower factors, "
                "iterations or item_fraction (the counts that this is read from have been paid for)"
            )
        if levels[1] < 1:
            logger.warning("half of the items hold less signal than noise at best (%s): lower item_fraction", shown)

    def _finish(self, ratings: Ratings, V: NDArray[Any], frequent: NDArray[np.int64], session: Session) -> None:
        factors, biases = np.zeros((ratings.n_items, self.factors), np.float32), np.zeros(ratings.n_items, np.float32)
        factors[frequent], biases[frequent] = self._parts(V)
        self.frequent_ = np.zeros(ratings.n_items, bool)
        self.frequent_[frequent] = True
        self.privacy_ = session.finish()
        self.restore_items(ratings.item_ids, factors, biases, ratings.titles, self._range() if self._explicit else None)

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equation (1) without the cut: what a user computes for itself is for itself."""
        n, counts = len(indptr) - 1, np.diff(indptr)
        row = np.repeat(np.arange(n), counts)
        kept = np.maximum(np.bincount(row, self.frequent_[indices], minlength=n), 1.0)
        offset = self._offset(indptr, values, row) if self._explicit else np.zeros(n, np.float32)
        target = np.ones(len(indices), np.float32)
        if self._explicit:
            target = values.astype(np.float32) - offset[row] - self.item_biases_[indices]
        V = self.item_factors_
        shared = self._unobserved() * (V.T @ V) if self._unobserved() > 0 else None
        ridge = self._lambda() * self._user_scale() * kept**self.user_exponent
        return solve_rows(indptr, indices, target, V, ridge, shared), offset

    def scoring(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Items without factors are predicted by the user's own mean, also where that is not the offset."""
        vectors, offsets = self.fold(indptr, indices, values)
        if not self._explicit or self.centring == "user":
            return vectors, offsets, self.item_factors_
        n, counts = len(indptr) - 1, np.diff(indptr)
        total = np.bincount(np.repeat(np.arange(n), counts), values, minlength=n)
        mean = np.where(counts > 0, total / np.maximum(counts, 1), offsets)
        tail = ~self.frequent_[:, None]
        return np.column_stack([vectors, mean - offsets]), offsets, np.hstack([self.item_factors_, tail])

    def _offset(self, indptr: NDArray[Any], values: NDArray[Any], row: NDArray[Any]) -> NDArray[Any]:
        n, counts, bounds = len(indptr) - 1, np.diff(indptr), self.bounds()
        if self.centring != "user":
            return np.full(n, self.centre_, np.float32)
        total = np.bincount(row, values, minlength=n) + bounds.prior_mean * bounds.prior_count
        return (total / (counts + bounds.prior_count)).astype(np.float32)

    def state(self) -> dict[str, Any]:
        return {"centre": self.centre_, "range": self._range(), "frequent": np.flatnonzero(self.frequent_).tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self.centre_, self._seen_range = state["centre"], (state["range"][0], state["range"][1])
        self.frequent_ = np.zeros(len(self.item_ids_), bool)
        self.frequent_[state["frequent"]] = True
