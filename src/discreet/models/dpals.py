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
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded
from discreet.kernels import project_psd, solve_psd, solve_rows
from discreet.models.base import Progress, require
from discreet.models.private import PrivateRecommender
from discreet.privacy.bounds import Bounds
from discreet.privacy.budget import Neighbouring
from discreet.privacy.plan import Plan, Release
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import packed_size, unpack

logger = logging.getLogger("discreet")


class DPALS(PrivateRecommender):
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

    def __init__(
        self,
        factors: int = 16,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        iterations: int = 2,
        regularization: float | None = None,
        feedback: str = "explicit",
        unobserved_weight: float | None = None,
        user_exponent: float = 1.0,
        item_exponent: float = 0.5,
        noise_ridge: float = 0.25,
        user_normalizer: float = 400.0,
        max_items: int = 50,
        user_norm: float = 1.0,
        intercept: float | None = None,
        rating_range: tuple[float, float] | None = None,
        rating_bound: float | None = None,
        centring: float | Literal["user", "global"] = "user",
        item_fraction: float = 0.4,
        sampling: Literal["rarest", "uniform"] = "rarest",
        recount: bool = True,
        initialization: Literal["random", "spectral"] = "random",
        projection: bool = True,
        orthonormalize: bool = False,
        resample: bool = False,
        shares: dict[str, float] | None = None,
        sigmas: dict[str, float] | None = None,
        initial_scale: float | None = None,
        noise: Any = "secure",
        random_state: int = 0,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.iterations = iterations
        self.regularization = regularization
        self.feedback = feedback
        self.unobserved_weight = unobserved_weight
        self.user_exponent = user_exponent
        self.item_exponent = item_exponent
        self.noise_ridge = noise_ridge
        self.user_normalizer = user_normalizer
        self.max_items = max_items
        self.user_norm = user_norm
        self.intercept = intercept
        self.rating_range = rating_range
        self.rating_bound = rating_bound
        self.centring = centring
        self.item_fraction = item_fraction
        self.sampling = sampling
        self.recount = recount
        self.initialization = initialization
        self.projection = projection
        self.orthonormalize = orthonormalize
        self.resample = resample
        self.shares = shares
        self.sigmas = sigmas
        self.initial_scale = initial_scale
        self.noise = noise
        self.random_state = random_state

    _seen_range: tuple[float, float] | None = None

    # ------------------------------------------------------------ the promise

    def bounds(self) -> Bounds:
        low, high = self._range()
        rating = None if not self._explicit else self.rating_bound or (high - low) / 3
        centre = self.centring if isinstance(self.centring, (int, float)) else 0.0
        own = self.centring == "user"
        return Bounds(
            items=self.max_items, rating=rating, centre="user" if own else centre, prior_mean=(low + high) / 2,
            prior_count=3.0 if own else 0.0, norm=self.user_norm,
        )  # fmt: skip

    def plan(self, n_items: int) -> Plan:
        self._check()
        T, frequent = self.iterations, self._n_frequent(n_items)
        # how often, the part of μ², and how many numbers
        lines: dict[str, tuple[int, float, tuple[int, ...]]] = {"counts": (1, 0.035, (n_items,))}
        if self.recount:
            lines["recounts"] = 1, 0.035, (frequent,)
        if self._explicit and self.centring == "global":
            lines |= {"centre sum": (1, 0.005, (1,)), "centre count": (1, 0.005, (1,))}
        if self.initialization == "spectral":
            lines["initial"] = 1, 0.2, (frequent, frequent)
        if self._unobserved() > 0:
            lines["global"] = T, 0.02, (1, packed_size(self._rank))
        lines["gram"] = T, 0.19, (frequent, packed_size(self._rank))
        lines["sum"] = T, 0.74, (frequent, self._rank)
        if self.sigmas is not None:
            exact = [Release(name, n, self._multiplier(name), shape=shape) for name, (n, _, shape) in lines.items()]
            return Plan.explicit(exact, self.delta, self.neighbouring, self.accountant)
        share = {name: (self.shares or {}).get(name, default) for name, (_, default, _) in lines.items()}
        releases = [Release(name, n, math.sqrt(n / share[name]), shape=shape) for name, (n, _, shape) in lines.items()]
        return Plan.calibrated(releases, self.budget, self.accountant)

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        found: dict[str, Statistic] = {"counts": users.item_counts()}
        users = users.restrict(np.arange(self._n_frequent(users.n_items)))
        users.choose()
        users.solve(np.zeros((users.n_items, self.factors), np.float32), 1.0, intercept=self._intercept())
        found |= {"recounts": users.item_counts(), "gram": users.item_grams(), "sum": users.item_sums()}
        found |= {"global": users.global_gram(), "initial": users.covariance(self._row_norm())}
        return found | {"centre sum": users.rating_sum(), "centre count": users.rating_count()}

    def _multiplier(self, name: str) -> float:
        """The paper's σ over the sensitivity in its units: √k for what k items contribute to, 1 for K̃ and the start."""
        sigma = (self.sigmas or {}).get(name)
        require(sigma is not None and sigma > 0, f"sigmas needs a positive number for {name!r}")
        return float(sigma or 0) / (1.0 if name in ("global", "initial") else math.sqrt(self.max_items))

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

    def _row_norm(self) -> float:
        """The most that the ratings which a user contributes can have as ℓ₂ norm."""
        return math.sqrt(self.max_items) * self.bounds().value

    def _check_signal(self, plan: Plan, counts: NDArray[Any]) -> None:
        """Compare, from released counts alone, the most that a right-hand side can hold with the noise on it."""
        replaced = self.neighbouring == "replace-one"
        noise = plan.noise_multiplier("sum") * math.sqrt(self.max_items * self._rank) * (2.0 if replaced else 1.0)
        levels = [*np.quantile(counts / noise, [0.1, 0.5, 0.9]), counts.mean() / noise]
        self.signal_to_noise_ = dict(zip(("10 %", "50 %", "90 %", "average"), map(float, levels), strict=True))
        shown = ", ".join(f"{name}: {value:.2g}" for name, value in self.signal_to_noise_.items())
        if levels[3] < 0.1:  # the average, because single counts drown in their own noise first
            raise BudgetExceeded(
                f"ε = {self.epsilon:g} cannot support rank {self.factors}: the noise on an item's sum is more than ten "
                f"times what the sum can be (signal over noise by quantile of items, {shown}); raise epsilon or lower "
                "factors, iterations or item_fraction"
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

    # ------------------------------------------------------------ parameters

    @property
    def _explicit(self) -> bool:
        return self.feedback == "explicit"

    @property
    def _rank(self) -> int:
        return self.factors + (self._intercept() > 0)

    def _intercept(self) -> float:
        if self.intercept is not None:
            return self.intercept
        return 0.5 * self.user_norm if self._explicit else 0.0

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors and biases in what the item step solves for."""
        if self._rank == self.factors:
            return V, np.zeros(len(V), np.float32)
        return np.ascontiguousarray(V[:, 1:]), self._intercept() * V[:, 0]

    def _lambda(self) -> float:
        return self.regularization if self.regularization is not None else 80.0 if self._explicit else 0.5

    def _unobserved(self) -> float:
        return self.unobserved_weight if self.unobserved_weight is not None else 0.0 if self._explicit else 0.6

    def _user_scale(self) -> float:
        return float(self.user_normalizer**-self.user_exponent)

    def _n_frequent(self, n_items: int) -> int:
        return max(1, math.ceil(self.item_fraction * n_items))

    def _range(self) -> tuple[float, float]:
        return self.rating_range or self._seen_range or (1.0, 5.0)

    def _infer_range(self, ratings: Ratings) -> None:
        self._seen_range = None
        if self._explicit and self.rating_range is None and ratings.n_ratings:
            self._seen_range = float(ratings.values.min()), float(ratings.values.max())

    def _assume_range(self, session: Session) -> None:
        if self._explicit:
            low, high = self._range()
            session.assume("ratings", f"the range of ratings, {low:g} to {high:g}", inferred=self.rating_range is None)

    def _check(self) -> None:
        for name in ("factors", "iterations", "max_items"):
            value = getattr(self, name)
            require(isinstance(value, (int, np.integer)) and bool(value >= 1),
                    f"{name} is {value!r}, but must be a whole number of at least 1")  # fmt: skip
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            good = value in allowed or (name == "centring" and isinstance(value, (int, float)))
            require(good, f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")
        require(0 < self.item_fraction <= 1, f"item_fraction is {self.item_fraction!r}, but must be above 0, up to 1")
        low, high = self._range()
        require(low < high, f"rating_range is ({low:g}, {high:g}), but must go from low to high")


_CHOICES = {
    "feedback": ("explicit", "implicit"),
    "centring": ("user", "global"),
    "sampling": ("rarest", "uniform"),
    "initialization": ("random", "spectral"),
}
