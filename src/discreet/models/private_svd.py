"""DPSVD: a private covariance of ratings, factorised (McSherry & Mironov, 2009), for users instead of single ratings.

The paper measures, with noise, averages and then a covariance, and hands those to any recommender. Sections 4.1–4.3:

    G = (Σ y + noise) / (Σ 1 + noise)                                       global mean                            (1)
    b_j = (Σ_i y_ij + noise + β_j G) / (Σ_i 1 + noise + β_j) − G            item means, damped                     (2)
    r_ij = clamp(y_ij − G − b_j − own damped mean of those, ±B)             per user, private and free             (3)
    C = Σ_i w_i r_i r_iᵀ + noise,   N = Σ_i w_i 1_i 1_iᵀ + noise            covariance and by how many             (4)
    C_jl / (max(N_jl, 0) + β') ≈ Q Λ Qᵀ,   V = Q Λ^{1/2}                    factorisation                          (5)

with 1_i the indicator of what user i has rated. The paper protects single ratings. For whole users, a user contributes
through at most k items to (1) and (2), and w_i = 1/c_i with c_i its own number of ratings, so that √w_i r_i has at most
the norm B and √w_i 1_i the norm 1: what a user can move (4) by does not depend on how much it rated.

A user reads itself out by ridge regression on V or, with a public `density` p, by the textbook's estimate of a matrix
of which a part p is seen, from its row with zeros for what is not,

    r̂_i = Q Qᵀ r_i / p.                                                                                            (6)

The DPALS paper calls private SVD inconsistent, citing Jain et al. (2018); of (6) that is true, for what a user has left
unrated is in the way however many other users there are.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Progress
from discreet.models.baseline import PRIOR_COUNT, Baseline, Lines
from discreet.models.checks import require, require_fraction, require_number, require_one_of, require_positive
from discreet.privacy.bounds import Bounds
from discreet.privacy.budget import Neighbouring
from discreet.privacy.plan import Plan
from discreet.privacy.residual import item_totals, residuals_of
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import packed_size, unpack


class DPSVD(Baseline):
    """Private SVD.

    Parameters
    ----------
    factors : int
        How many eigenvectors are kept.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    regularization : float
        Ridge of a user's least squares: the variance of a rating that factors do not explain, over that which they do.
    item_prior : float
        β of (2), in ratings; β_j has as much more as the known noise on an item's sum asks for.
    weighted : bool
        Release and divide by N of (4); else the covariance is taken as it is.
    pair_prior : float
        β' of (5), in standard deviations of the noise on N.
    centring : {"user", "items"}
        Whether (3) subtracts each user's own mean too, or (1) and (2) only.
    density : float, optional
        p of (6), public; then users are read out by it. Default: by ridge regression.
    clamp : float, optional
        B. Default: a quarter of the rating range.
    max_items : int
        k: how many items of a user count for the means.
    item_fraction : float
        The share of items, the most frequent by noisy counts, that get factors; the rest get their mean only.
    rating_range : (low, high), optional
    shares : dict, optional
        Parts of the budget by the names of the plan: "sum", "count", "item sums", "item counts", "covariance", "pairs".
    feedback : {"explicit"}
    allow_large_delta : bool
        Take a `delta` above 1e-3 nevertheless; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
        Seed of where training starts and of which items people contribute; by default another one in every fit. Seeded
        noise needs one.
    """

    def __init__(
        self,
        factors: int = 4,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        regularization: float = 1.0,
        item_prior: float = 20.0,
        weighted: bool = True,
        pair_prior: float = 2.0,
        centring: Literal["user", "items"] = "user",
        density: float | None = None,
        clamp: float | None = None,
        max_items: int = 50,
        item_fraction: float = 0.1,
        rating_range: tuple[float, float] | None = None,
        shares: dict[str, float] | None = None,
        feedback: str = "explicit",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.regularization = regularization
        self.item_prior = item_prior
        self.weighted = weighted
        self.pair_prior = pair_prior
        self.centring = centring
        self.density = density
        self.clamp = clamp
        self.max_items = max_items
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.shares = shares
        self.feedback = feedback
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    # ------------------------------------------------------------ the promise

    def bounds(self) -> Bounds:
        """Ratings are measured from the middle of the range, which bounds them by half of it."""
        low, high = self._range()
        return Bounds(items=self.max_items, rating=(high - low) / 2, centre=(low + high) / 2)

    def plan(self, n_items: int) -> Plan:
        self._check()
        pairs = (1, packed_size(self._n_frequent(n_items)))
        lines: Lines = {
            "sum": (1, 0.005, (1,), 1.0),
            "count": (1, 0.005, (1,), 1.0),
            "item sums": (1, 0.3, (n_items,), 1.0),
            "item counts": (1, 0.1, (n_items,), 1.0),
            "covariance": (1, 0.45, pairs, 1.0),
        }
        if self.weighted:
            lines["pairs"] = 1, 0.15, pairs, 1.0
        return self._shared(lines)

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        found: dict[str, Statistic] = {"sum": users.rating_sum(), "count": users.rating_count()}
        found |= {"item sums": item_totals(users), "item counts": users.item_counts()}
        rows = residuals_of(users.restrict(np.arange(self._n_frequent(users.n_items))))
        return found | {"covariance": rows.covariance(self._clamp(), per_rating=True), "pairs": rows.pair_counts()}

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        users, session = self._start(ratings)
        low, high = self._range()
        users.choose()
        total, count = session.release("sum", users.rating_sum())[0], session.release("count", users.rating_count())[0]
        G = float(np.clip(total / max(count, 1.0), (low - high) / 2, (high - low) / 2))
        sums = session.release("item sums", item_totals(users))
        counts = np.maximum(session.release("item counts", users.item_counts()), 0.0)
        b = damped_means(
            sums, counts, G, self.item_prior + self._noise_on_sums(session) / np.maximum(counts, 1.0), (high - low) / 2
        )
        frequent = self._frequent(counts)
        rows = residuals_of(users.restrict(frequent), G + b[frequent], self._own_prior(), self._clamp())
        C = unpack(session.release("covariance", rows.covariance(self._clamp(), per_rating=True)), len(frequent))[0]
        if self.weighted:
            N = unpack(session.release("pairs", rows.pair_counts()), len(frequent))[0]
            C = C / (np.maximum(N, 0.0) + max(self.pair_prior * self._deviation(session, "pairs"), 1e-9))
        self.centre_ = (low + high) / 2 + G
        V = principal(C, self.factors)
        self._finish(ratings, V, b[frequent], frequent, session)
        self.item_biases_ = b.astype(np.float32)
        if progress:
            progress(1, 1, "covariance")
        return self

    def _noise_on_sums(self, session: Session) -> float:
        """Variance of the noise on (2) over the variance that item means are taken to have, (range/9)²."""
        low, high = self._range()
        return (self._deviation(session, "item sums") / ((high - low) / 9)) ** 2

    def _own_prior(self) -> float | None:
        return PRIOR_COUNT if self.centring == "user" else None

    def _clamp(self) -> float:
        low, high = self._range()
        return self.clamp or (high - low) / 4

    def _check(self) -> None:
        super()._check()
        for name in ("item_prior", "pair_prior"):
            require_number(name, getattr(self, name))
        require(isinstance(self.weighted, bool), f"weighted is {self.weighted!r}, but must be True or False")
        if self.clamp is not None:
            require_positive("clamp", self.clamp)
        if self.density is not None:
            require_fraction("density", self.density)

    def _check_centring(self) -> None:
        require_one_of("centring", self.centring, "user", "items")

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """A user's vector, by ridge regression or, with `density` p, by (6)."""
        if self.density is None:
            return super().fold(indptr, indices, values)
        from scipy.sparse import csr_array

        offset, r = self._centred(indptr, indices, values)
        V = self.item_factors_.astype(np.float64)  # V = Q Λ^{1/2}, so Q Qᵀ = V Λ⁻¹ Vᵀ
        u = csr_array((r, indices, indptr), shape=(len(offset), len(V))) @ V
        return (u / np.maximum((V**2).sum(axis=0), 1e-30) / self.density).astype(np.float32), offset

    def _centred(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(3) for anybody: the offset is the global mean and, if wanted, the user's own damped deviation from (2)."""
        n, counts = len(indptr) - 1, np.diff(indptr)
        row = np.repeat(np.arange(n), counts)
        left = values - self.centre_ - self.item_biases_[indices]
        own = np.bincount(row, left, minlength=n) / (counts + PRIOR_COUNT) * (self.centring == "user")
        target = np.where(self.frequent_[indices], left - own[row], 0.0)
        return (self.centre_ + own).astype(np.float32), target.astype(np.float32)

    def state(self) -> dict[str, Any]:
        return super().state() | {"centre": self.centre_}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.centre_ = float(state["centre"])


def damped_means(
    sums: NDArray[Any], counts: NDArray[Any], G: float, prior: NDArray[Any], largest: float
) -> NDArray[np.float64]:
    """(2): how far item means lie from the global one, between ±largest."""
    return np.clip((sums - G * counts) / np.maximum(counts + prior, 1e-9), -largest, largest)


def principal(C: NDArray[Any], factors: int) -> NDArray[np.float64]:
    """(5): leading eigenvectors times the roots of their eigenvalues, (m, factors); zeros where there are no more."""
    from scipy.linalg import eigh

    m = len(C)
    r = min(factors, m)
    values, Q = eigh((C + C.T) / 2, subset_by_index=[m - r, m - 1])
    V = np.zeros((m, factors))
    Q = Q * np.sign(Q[np.argmax(np.abs(Q), axis=0), np.arange(r)])  # LAPACK leaves the sign open
    V[:, :r] = (Q * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    return V
