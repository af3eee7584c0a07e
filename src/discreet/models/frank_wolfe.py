"""DPFrankWolfe: private matrix completion in a nuclear-norm ball (Jain, Thakkar & Thakurta, 2018).

Algorithm 1 of the paper minimises ½ ‖P_Ω(Y − Y*)‖² over ‖Y‖_nuclear ≤ k by rank-one steps. Per user, private and free
(`discreet.privacy.residual.frank_wolfe_step`):

    a_i = P_Ωi(Y_i − Y*_i)                                                                                          (1)
    û_i = a_i · v̂ / λ̂',     Y_i ← Π_L((1 − γ_t) Y_i − γ_t k û_i v̂ᵀ)                                                (2)

Released, with noise, T times, rows being cut to ‖a_i‖ ≤ L_a, and from it, for everybody to see:

    W = Σ_i a_i a_iᵀ + noise,     v̂, λ̂² = top eigenvector and eigenvalue of W,     λ̂'² = max(λ̂², 0) + noise's own   (3)

Π_L scales a user's row to ‖P_Ωi(Y_i)‖ ≤ L. The result is Y_i = Σ_t w_it v̂_t, so the directions v̂_t are the item factors
and the rank is the number of steps. *A new user walks the same steps* from the released (v̂_t, λ̂'_t) alone.

Three things differ from the paper. Its noise is for ‖a_i‖ ≤ L, but a difference of two rows of norm L can have 2 L:
here residuals themselves are cut, to L_a. Its λ̂' adds a bound with the number of users in it, which is private; here it
is the size of the largest eigenvalue of the noise, σ √(2 m) for m items, which is public. And k, which should grow with
the number of users, is `spread` · √(ñ m) from a released ñ unless given.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Progress
from discreet.models.baseline import Baseline, Lines
from discreet.models.checks import require, require_one_of, require_positive
from discreet.privacy.budget import Neighbouring
from discreet.privacy.plan import Plan
from discreet.privacy.residual import crowd, frank_wolfe_step, residuals_of
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import packed_size, unpack

#: Steps that are allowed on any catalogue; more only where there are as many items.
MOST_STEPS = 1000


class DPFrankWolfe(Baseline):
    """Private Frank–Wolfe.

    Parameters
    ----------
    factors : int
        T: how many steps, each of which adds one direction.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    nuclear_norm : float, optional
        k. Default: `spread` · √(ñ m), with a noisy number of users ñ and m frequent items.
    spread : float, optional
        What predictions deviate by from a user's mean, as root mean square. Default: a tenth of the rating range.
    row_norm : float, optional
        L. Default: √max_items times a quarter of the rating range.
    residual_norm : float, optional
        L_a. Default: as `row_norm`.
    steps : {"constant", "decreasing"}
        γ_t = 1/T as in the paper, or 2/(t + 1), t = 1, 2, …
    folding : {"least-squares", "steps"}
        How a user's vector is read out: by least squares on the directions, or by walking the steps as the paper does.
    regularization : float
        Ridge of that least squares; directions have unit length times √m.
    centring : "user" or float
        Subtract every user's own mean (free), or a public constant.
    max_items : int
        How many items of a user count when items are counted.
    item_fraction : float
        The share of items, the most frequent by noisy counts, that the matrix has; 1 has all and counts none.
    rating_range : (low, high), optional
    shares : dict, optional
        Parts of the budget by the names of the plan: "counts", "crowd", "covariance".
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
        factors: int = 5,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        nuclear_norm: float | None = None,
        spread: float | None = None,
        row_norm: float | None = None,
        residual_norm: float | None = None,
        steps: str = "constant",
        folding: str = "least-squares",
        regularization: float = 5.0,
        centring: float | Literal["user"] = "user",
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
        self.nuclear_norm = nuclear_norm
        self.spread = spread
        self.row_norm = row_norm
        self.residual_norm = residual_norm
        self.steps = steps
        self.folding = folding
        self.regularization = regularization
        self.centring = centring
        self.max_items = max_items
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.shares = shares
        self.feedback = feedback
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    #: What to say of parameters that other models have.
    instead: ClassVar = {"iterations": "its number of steps is 'factors'"}

    # ------------------------------------------------------------ the promise

    def plan(self, n_items: int) -> Plan:
        self._check()
        m = self._n_frequent(n_items)
        lines: Lines = {}
        if m < n_items:
            lines["counts"] = 1, 0.05, (n_items,), 1.0
        if self.nuclear_norm is None:
            lines["crowd"] = 1, 0.002, (1,), 1.0
        lines["covariance"] = self.factors, 0.948, (1, packed_size(m)), 1.0
        return self._shared(lines)

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        few = users.restrict(np.arange(self._n_frequent(users.n_items)))
        covariance = residuals_of(few).covariance(self._residual_norm())
        return {"counts": users.item_counts(), "crowd": crowd(users), "covariance": covariance}

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        users, session = self._start(ratings)
        frequent = np.arange(ratings.n_items)
        if "counts" in session.left():
            users.choose()
            frequent = self._frequent(session.release("counts", users.item_counts()))
        k = self._nuclear_norm(users, session, len(frequent))
        rows = residuals_of(users.restrict(frequent))
        V, self.lengths_, self.nuclear_norm_ = np.empty((len(frequent), self.factors)), [], k
        for t in range(self.factors):
            W = session.release("covariance", rows.covariance(self._residual_norm()))
            V[:, t], length = top_eigen(unpack(W, len(frequent))[0])
            length = math.sqrt(max(length, 0.0) + self._noise_size(session, len(frequent)))
            rows.step(V[:, t], length, k, self._gamma(t), self._row_norm())
            self.lengths_.append(length)
            if progress:
                progress(t + 1, self.factors, "steps")
        self._finish(ratings, V * math.sqrt(len(frequent)), np.zeros(len(frequent)), frequent, session)
        return self

    def _nuclear_norm(self, users: Users, session: Session, m: int) -> float:
        if self.nuclear_norm is not None:
            return float(self.nuclear_norm)
        n = max(float(session.release("crowd", crowd(users))[0]), 1.0)
        session.judge_delta(n)
        low, high = self._range()
        return (self.spread or (high - low) / 10) * math.sqrt(n * m)

    def _noise_size(self, session: Session, m: int) -> float:
        """The largest eigenvalue that the noise alone has: σ √(2 m), entries off the diagonal having σ/√2."""
        return max(self._deviation(session, "covariance") * math.sqrt(2 * m), 1e-12)

    def _gamma(self, t: int) -> float:
        return 1 / self.factors if self.steps == "constant" else 2 / (t + 2)

    def _row_norm(self) -> float:
        low, high = self._range()
        return self.row_norm or math.sqrt(self.max_items) * (high - low) / 4

    def _residual_norm(self) -> float:
        return self.residual_norm or self._row_norm()

    def _check(self) -> None:
        super()._check()
        require_one_of("steps", self.steps, "constant", "decreasing")
        require_one_of("folding", self.folding, "least-squares", "steps")
        for name in ("nuclear_norm", "spread", "row_norm", "residual_norm"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))

    def _check_items(self, n_items: int) -> None:
        most = max(n_items, MOST_STEPS)
        require(
            self.factors <= most,
            f"factors is {self.factors:,}, but each is a step, and {most:,} are the most for {n_items:,} items",
        )

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """A user's weights of the directions, from its own ratings and what was released."""
        if self.folding == "least-squares":
            return super().fold(indptr, indices, values)
        offset, target = self._centred(indptr, indices, values)
        n, scale = len(offset), math.sqrt(max(int(self.frequent_.sum()), 1))
        row = np.repeat(np.arange(n), np.diff(indptr))
        known = self.frequent_[indices]
        row, y, V = row[known], target[known].astype(np.float64), self.item_factors_[indices[known]] / scale
        fitted, weights = np.zeros(len(y)), np.zeros((n, self.factors))
        for t, length in enumerate(self.lengths_):
            gamma = self._gamma(t)
            fitted, step, shrink = frank_wolfe_step(
                row, n, V[:, t], y, fitted, length, self.nuclear_norm_, gamma, self._row_norm()
            )
            weights *= 1 - gamma
            weights[:, t] = step
            weights *= shrink[:, None]
        return (weights / scale).astype(np.float32), offset

    def state(self) -> dict[str, Any]:
        return super().state() | {"lengths": [float(x) for x in self.lengths_], "nuclear_norm": self.nuclear_norm_}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.lengths_, self.nuclear_norm_ = list(state["lengths"]), float(state["nuclear_norm"])


def top_eigen(W: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """The top eigenvector (its largest entry positive) and eigenvalue of a symmetric matrix, by Lanczos."""
    from scipy.sparse.linalg import eigsh

    if len(W) < 3:
        values, vectors = np.linalg.eigh(W)
    else:
        start = np.linspace(1.0, 2.0, len(W))  # Lanczos would draw one, and a fit would not be repeatable
        values, vectors = eigsh(W, k=1, which="LA", v0=start)
    v = vectors[:, -1]
    return v * np.sign(v[np.argmax(np.abs(v))] or 1.0), float(values[-1])
