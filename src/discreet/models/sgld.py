"""DPSGLD: private Langevin dynamics on the item factors (Liu, Wang & Smola, 2015), with what can be proved of it.

The paper's model has ratings y_ij ~ N(u_i · v_j, 1/φ) and a Gaussian prior λ_v on item factors. Langevin dynamics walks

    V ← V − (h_t/2) (φ Σ_i ∇_i + λ_v V) + N(0, τ h_t)                                                              (1)

and ends, after infinitely many ever shorter steps, in a sample of the posterior at temperature τ. Here the noise of (1)
*is* the noise of the release g̃ = Σ_i ∇_i + N(0, σ_t²), each user's ∇_i being cut to the norm C: (1) holds with

    h_t = 4 τ / (φ σ_t)²,                                                                                          (2)

so the budget decides how long the steps are. Where that would overshoot (an item's h_t φ c̃_j Γ²/4 > `longest`, with
noisy counts c̃_j), the step is shorter and the item's temperature lower. Step lengths fall as t^(−decay). Users solve
for their vectors by least squares, each for itself. The result is the mean over the last half of the walk.

Privacy: every g̃ is a Gaussian release of sensitivity C, and all T of them are charged, as for noisy gradient descent.
*Not provable*, and not claimed: that a sample of the posterior is private by itself ("for free"). It needs the walk to
have reached the posterior, and how far T steps are from it is unknown for this non-convex model, so no δ could be
stated; it needs bounded likelihoods, which (1) does not have without the cut; and per-rating bounds do not add up to a
promise for a whole user. What the paper calls personalised privacy, each user with its own ε, is not offered either.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Progress
from discreet.models.baseline import GradientBaseline, Lines
from discreet.models.checks import require, require_number
from discreet.privacy.budget import Neighbouring
from discreet.privacy.plan import Plan
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.subsample import clipped_gradient


class DPSGLD(GradientBaseline):
    """Private Langevin dynamics.

    Parameters
    ----------
    factors : int
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int
        T.
    temperature : float
        τ; 1 is the posterior. Where the budget allows less noise than that, items are colder.
    longest : float
        The longest step, as a part of a Newton step.
    decay : float
        Step lengths fall as t^(−decay), and the noise grows as t^(decay/2).
    precision : float
        φ of a rating, 1/variance.
    prior : float
        λ_v.
    regularization : float
        Ridge of a user's least squares, per rating.
    gradient_norm, user_norm, intercept : float
        C, Γ and ι.
    initial_scale : float
        Standard deviation of the factors at the start.
    max_items, item_fraction, rating_range, shares, feedback, allow_large_delta, noise, random_state
        As for `DPFrankWolfe`; the plan's names are "counts" and "gradient 1", "gradient 2", …
    """

    def __init__(
        self,
        factors: int = 8,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        iterations: int = 20,
        temperature: float = 1.0,
        longest: float = 2.0,
        decay: float = 1 / 3,
        precision: float = 1.0,
        prior: float = 1.0,
        regularization: float = 0.2,
        gradient_norm: float = 2.0,
        user_norm: float = 1.0,
        intercept: float = 0.5,
        initial_scale: float = 0.3,
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
        self.temperature = temperature
        self.longest = longest
        self.decay = decay
        self.precision = precision
        self.prior = prior
        self.regularization = regularization
        self.gradient_norm = gradient_norm
        self.user_norm = user_norm
        self.intercept = intercept
        self.initial_scale = initial_scale
        self.max_items = max_items
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.shares = shares
        self.feedback = feedback
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    _positive = (*GradientBaseline._positive, "temperature", "longest", "precision")

    # ------------------------------------------------------------ the promise

    def plan(self, n_items: int) -> Plan:
        self._check()
        shape, steps = (self._n_frequent(n_items), self.factors + 1), np.arange(1, self.iterations + 1)
        parts = steps**-self.decay  # of the budget: the noise is its inverse root
        parts = parts / parts.sum()
        lines: Lines = {"counts": (1, 0.05, (n_items,), 1.0)}
        for t, part in zip(steps.tolist(), parts.tolist(), strict=True):
            lines[f"gradient {t}"] = 1, 0.95 * part, shape, 1.0
        return self._shared(lines)

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        found: dict[str, Statistic] = {"counts": users.item_counts()}
        users = users.restrict(np.arange(self._n_frequent(users.n_items)))
        V = np.zeros((users.n_items, self.factors + 1))
        self._solve_users(users, V)
        names = [f"gradient {t + 1}" for t in range(self.iterations)]
        return found | dict.fromkeys(names, clipped_gradient(users, V, self.gradient_norm))

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        users, session = self._start(ratings)
        users, frequent, counts = self._count(users, session)
        V = self._initial(len(frequent))
        mean, first = np.zeros_like(V), self.iterations // 2
        for t in range(self.iterations):
            self._solve_users(users, V)
            name = f"gradient {t + 1}"
            g = session.release(name, clipped_gradient(users, V.astype(np.float32), self.gradient_norm))
            h = self._step_length(session, name, t, counts)
            V = V - h[:, None] / 2 * (self.precision * g + self.prior * V)
            mean += V * (t >= first)
            if progress:
                progress(t + 1, self.iterations, "steps")
        self._finish(ratings, *self._parts(mean / (self.iterations - first)), frequent, session)
        return self

    def _step_length(self, session: Session, name: str, t: int, counts: NDArray[Any]) -> NDArray[np.float64]:
        """h_t of each item: (2), or shorter where that would overshoot."""
        curvature = (self.precision * counts * self.user_norm**2 / 2 + self.prior) / 2
        longest = self.longest * (t + 1) ** -self.decay / curvature
        sigma = self._deviation(session, name)
        return np.minimum(longest, 4 * self.temperature / max((self.precision * sigma) ** 2, 1e-300))

    def _check(self) -> None:
        super()._check()
        for name in ("decay", "prior"):
            require_number(name, getattr(self, name))
        require(self.decay <= 1, f"decay is {self.decay!r}, but must be a number from 0 to 1")
