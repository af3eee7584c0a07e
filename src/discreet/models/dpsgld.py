"""Private Langevin dynamics on the item factors (Liu, Wang & Smola, 2015).

The paper's model has ratings y_ij ~ N(u_i · v_j, 1/φ) and a Gaussian prior λ_v on item factors.
Langevin dynamics walks

    V ← V − (h_t/2) (φ Σ_i ∇_i + λ_v V) + N(0, τ h_t)                                            (1)

and ends, after infinitely many ever shorter steps, in a sample of the posterior at temperature τ.
Here the noise of (1) *is* the noise of the release g̃ = Σ_i ∇_i + N(0, σ_t²), each user's ∇_i being
cut to the norm C: (1) holds with

    h_t = 4 τ / (φ σ_t)²,                                                                        (2)

so the budget decides how long the steps are. Where that would overshoot (an item's h_t φ c̃_j Γ²/4
> `longest`, with noisy counts c̃_j), the step is shorter and the item's temperature lower. Step
lengths fall as t^(−decay). Users solve for their vectors by least squares, each for itself. The
result is the mean over the last half of the walk.

Privacy: every g̃ is a Gaussian release of sensitivity C, and all T of them are charged, as for
noisy gradient descent. *Not provable*, and not claimed: that a sample of the posterior is private
by itself ("for free"). It needs the walk to have reached the posterior, and how far T steps are
from it is unknown for this non-convex model, so no δ could be stated; it needs bounded likelihoods,
which (1) does not have without the cut; and per-rating bounds do not add up to a guarantee for a
whole user. What the paper calls personalized privacy, each user with its own ε, is not offered
either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.models._clipped_descent import ClippedDescent
from discreet.models.algorithm import Learned, Progress, Range
from discreet.models.parameters import check_number, check_positive, check_that
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.contributions import ItemCounts
from discreet.privacy.statistics.gradients import ClippedGradient
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, Restrict


@dataclass(frozen=True, repr=False)
class Langevin(ClippedDescent):
    """The algorithm above with its parameters and those of `ClippedDescent`.

    Parameters
    ----------
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
    """

    name: ClassVar[str] = "Langevin"

    temperature: float = 1.0
    longest: float = 2.0
    decay: float = 1 / 3
    precision: float = 1.0
    prior: float = 1.0

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        found = replace(self, rating_range=rating_range)
        found._check()
        for name in ("temperature", "longest", "precision"):
            check_positive(name, getattr(found, name))
        for name in ("decay", "prior"):
            check_number(name, getattr(found, name))
        check_that(found.decay <= 1, f"decay is {found.decay!r}, but must be a number from 0 to 1")
        return found

    def releases(self, n_items: int) -> list[Release]:
        return [Release("counts", share=0.05, shape=(n_items,)), *self._gradients(n_items)]

    def _gradients(self, n_items: int) -> list[Release]:
        shape = (self.n_frequent(n_items), self.factors + 1)
        # shares of the budget: the noise is its inverse root
        parts = np.arange(1, self.iterations + 1) ** -self.decay
        parts = parts / parts.sum()
        return [
            Release("gradient", step=t + 1, share=0.95 * part, shape=shape)
            for t, part in enumerate(parts.tolist())
        ]

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        n_items = users.n_items
        users.apply(Choose())
        found: dict[str, ReleasableSum] = {"counts": users.sum(ItemCounts())}
        users = users.copy_after(Restrict(np.arange(self.n_frequent(n_items))))
        V = np.zeros((users.n_items, self.factors + 1))
        self.solve_users(users, V)
        gradient = users.sum(ClippedGradient(V, self.gradient_norm))
        return found | {str(line): gradient for line in self._gradients(n_items)}

    def learn(
        self,
        users: Users,
        session: Session,
        *,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
    ) -> Learned:
        n_items = users.n_items
        users, frequent, counts = self.count(users, session)
        V = self.start(len(frequent), seed)
        mean = np.zeros_like(V)
        first = self.iterations // 2
        for t, line in enumerate(self._gradients(n_items)):
            self.solve_users(users, V)
            gradient = users.sum(ClippedGradient(V.astype(np.float32), self.gradient_norm))
            g = session.release(line, gradient)
            sigma = 0.0 if session.silent else session.deviation(line, gradient)
            h = self._step_length(sigma, t, counts)
            V = V - h[:, None] / 2 * (self.precision * g + self.prior * V)
            mean += V * (t >= first)
            progress(t + 1, self.iterations, "steps")
        return self.make_learned(mean / (self.iterations - first), frequent, n_items)

    def _step_length(self, sigma: float, t: int, counts: NDArray[Any]) -> NDArray[np.float64]:
        """Return h_t of each item: (2), or shorter where that would overshoot."""
        curvature = (self.precision * counts * self.user_norm**2 / 2 + self.prior) / 2
        longest = self.longest * (t + 1) ** -self.decay / curvature
        rate: NDArray[np.float64] = np.minimum(
            longest, 4 * self.temperature / max((self.precision * sigma) ** 2, 1e-300)
        )
        return rate


# ------------------------------------------------------------ the model


class DPSGLD(PrivateRecommender):
    """Private Langevin dynamics (Liu, Wang & Smola, 2015).

    Parameters
    ----------
    factors : int, optional
        Default 8.
    iterations : int, optional
        Steps. Default 20.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that get factors. Default 0.4.
    """

    goal = "rating"
    _kinds = (Langevin,)

    factors: int | None = field(default=None, kw_only=False)
    iterations: int | None = None
    item_fraction: float | None = None
