"""DPSGD: private stochastic gradient descent on the item factors (Abadi et al., 2016), users by least squares.

T times, on a Poisson batch: every user is in it with probability q, by a secret coin of its own. Per user, free:

    u_i = (ι, clip((Σ v v ᵀ + λ c_i I)⁻¹ Σ (y_ij − b_j) v_j))                                                       (1)

Released, with each user's gradient cut to the Frobenius norm C (`discreet.privacy.subsample`):

    g̃_j = Σ_{i in batch} s_j (u_i · v_j − y_ij) u_i + noise                                                         (2)

and from it, with noisy counts c̃ that were released before, for everybody to see:

    v_j ← v_j − η c̃_j / (c̃_j² + κ_j²) · g̃_j / (s_j q),     κ_j = damping · sd of the noise on g̃_j / (s_j q)          (3)

The step is a gradient over a count, which is about the curvature, so that popular and rare items move at one pace; but
where the noise is as large as what the gradient can be, it is shortened as Wiener's filter would. s_j, a power of the
count, spreads a user's norm C over its items. The result is the average over the last half of the steps.

Privacy: batches are priced by their loss distribution (accountant "pld"), for add/remove one user only. Other
accountants price every batch as if it held everybody.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Progress
from discreet.models.baseline import GradientBaseline, Lines
from discreet.models.checks import require, require_number
from discreet.privacy.accounting import LEAST_RATE
from discreet.privacy.budget import Neighbouring
from discreet.privacy.plan import Plan
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.subsample import clipped_gradient, draw_batch


class DPSGD(GradientBaseline):
    """Private stochastic gradient descent.

    Parameters
    ----------
    factors : int
    epsilon, delta, neighbouring
        The promise. See docs/privacy.md. With "replace-one", `batch_rate` must be 1.
    accountant : {"pld", "gdp", "rdp"}
        Only "pld" counts that batches are random.
    iterations : int
        T.
    batch_rate : float
        q: the probability with which a user is in a batch; 1 takes everybody at every step.
    learning_rate : float
        η, in Newton steps; 1 is a full step where the noise is small.
    damping : float
        The size of the noise, relative to an item's count, at which its steps are halved, is one over this.
    regularization : float
        λ: ridge of a user's least squares, per rating.
    gradient_norm : float
        C.
    spreading : float
        s_j = (largest count / count)^spreading, up to 10: above 0, rare items get more of a user's norm.
    user_norm, intercept : float
        Γ and ι.
    initial_scale : float
        Standard deviation of the factors at the start.
    average : bool
        Return the mean over the last half of the steps instead of the last.
    max_items, item_fraction, rating_range, shares, feedback, allow_large_delta, noise, random_state
        As for `DPFrankWolfe`; the plan's names are "counts" and "gradient".
    """

    def __init__(
        self,
        factors: int = 8,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "pld",
        iterations: int = 40,
        batch_rate: float = 0.2,
        learning_rate: float = 4.0,
        damping: float = 3.0,
        regularization: float = 0.2,
        gradient_norm: float = 2.0,
        spreading: float = 0.25,
        user_norm: float = 1.0,
        intercept: float = 0.5,
        initial_scale: float = 0.3,
        average: bool = True,
        max_items: int = 50,
        item_fraction: float = 0.4,
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
        self.iterations = iterations
        self.batch_rate = batch_rate
        self.learning_rate = learning_rate
        self.damping = damping
        self.regularization = regularization
        self.gradient_norm = gradient_norm
        self.spreading = spreading
        self.user_norm = user_norm
        self.intercept = intercept
        self.initial_scale = initial_scale
        self.average = average
        self.max_items = max_items
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.shares = shares
        self.feedback = feedback
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    _positive = (*GradientBaseline._positive, "learning_rate")

    # ------------------------------------------------------------ the promise

    def plan(self, n_items: int) -> Plan:
        self._check()
        m = self._n_frequent(n_items)
        lines: Lines = {
            "counts": (1, self._counts_share(), (n_items,), 1.0),
            "gradient": (self.iterations, 1.0, (m, self.factors + 1), self.batch_rate),
        }
        return self._shared(lines)

    def _counts_share(self) -> float:
        """About a twentieth of what the gradients cost: many batches cost about q² of as many full releases."""
        return 0.05 * (self.batch_rate**2 if self.accountant == "pld" else 1.0)

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        found: dict[str, Statistic] = {"counts": users.item_counts()}
        few = users.restrict(np.arange(self._n_frequent(users.n_items)))
        batch = draw_batch(few, self.batch_rate)
        V = np.zeros((few.n_items, self.factors + 1))
        self._solve_users(batch, V)
        return found | {"gradient": clipped_gradient(batch, V, self.gradient_norm)}

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        users, session = self._start(ratings)
        users, frequent, counts = self._count(users, session)
        s = np.minimum((counts.max() / counts) ** self.spreading, 10.0)
        V = self._initial(len(frequent))
        mean, first = np.zeros_like(V), self.iterations // 2 if self.average else self.iterations - 1
        for t in range(self.iterations):
            batch = draw_batch(users, self.batch_rate, seed=self._coins(session, t))
            self._solve_users(batch, V)
            g = session.release("gradient", clipped_gradient(batch, V.astype(np.float32), self.gradient_norm, s))
            V = V - self._rates(session, counts, s)[:, None] * g
            mean += V * (t >= first)
            if progress:
                progress(t + 1, self.iterations, "steps")
        self._finish(ratings, *self._parts(mean / (self.iterations - first)), frequent, session)
        return self

    def _rates(self, session: Session, counts: NDArray[Any], s: NDArray[Any]) -> NDArray[np.float64]:
        """What a released row is multiplied with in (3)."""
        own = s * self.batch_rate
        noise = self.damping * self._deviation(session, "gradient") / own
        return self.learning_rate / own * counts / (counts**2 + noise**2)

    def _coins(self, session: Session, t: int) -> tuple[int, int] | None:
        """Secret ones, but for research with a seed."""
        if session.ledger.noise == "secure" or self.random_state is None:
            return None
        return self.random_state, t

    def _check(self) -> None:
        super()._check()
        require_number("batch_rate", self.batch_rate)
        require(
            LEAST_RATE <= self.batch_rate <= 1,
            f"batch_rate is {self.batch_rate!r}, but must lie between {LEAST_RATE:g} and 1: a smaller batch holds next "
            "to nobody, and takes minutes to price",
        )
        require(
            self.batch_rate == 1 or self.neighbouring != "replace-one",
            f"neighbouring is 'replace-one', but random batches (batch_rate={self.batch_rate:g}) are priced for "
            "'add-remove' only: use that, or set batch_rate=1",
        )
        require(isinstance(self.average, bool), f"average is {self.average!r}, but must be True or False")
        for name in ("damping", "spreading"):
            require_number(name, getattr(self, name))
