"""Private stochastic gradient descent on the item factors (Abadi et al., 2016).

T times, on a Poisson batch: every user is in it with probability q, independently and secretly.
Per user, at no cost:

    u_i = (ι, clip((Σ v v ᵀ + λ c_i I)⁻¹ Σ (y_ij − b_j) v_j))                                    (1)

Released, with each user's gradient cut to the Frobenius norm C
(`discreet.privacy.users.poisson_batches`):

    g̃_j = Σ_{i in batch} s_j (u_i · v_j − y_ij) u_i + noise                                     (2)

and from it, with noisy counts c̃ that were released before, as post-processing:

    v_j ← v_j − η c̃_j / (c̃_j² + κ_j²) · g̃_j / (s_j q), κ_j = damping · sd of the noise on g̃_j /
    (s_j q) (3)

The step is a gradient over a count, which is about the curvature, so that popular and rare items
move at one pace; but where the noise is as large as what the gradient can be, it is shortened as
Wiener's filter would. s_j, a power of the count, spreads a user's norm C over its items. The result
is the average over the last half of the steps.

Privacy: batches are priced by their loss distribution (accountant "pld"), for add/remove one user
only. Other accountants price every batch as if it held all users.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.models._clipped_descent import ClippedDescent
from discreet.models.algorithm import Learned, Progress, Range
from discreet.models.parameters import check_bool, check_number, check_positive, check_that
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.accounting.pricing import LEAST_RATE
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.contributions import ItemCounts
from discreet.privacy.statistics.gradients import ClippedGradient
from discreet.privacy.users.poisson_batches import draw_batch
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, Restrict


@dataclass(frozen=True, repr=False)
class PoissonDescent(ClippedDescent):
    """The algorithm above with its parameters and those of `ClippedDescent`.

    Parameters
    ----------
    batch_rate : float
        q: the probability with which a user is in a batch; 1 takes all users at every step.
    learning_rate : float
        η, in Newton steps; 1 is a full step where the noise is small.
    damping : float
        One over the noise, relative to an item's count, at which its steps are halved.
    spreading : float
        s_j = (largest count / count)^spreading, up to 10: above 0, rare items get more of a user's
        norm.
    average : bool
        Return the mean over the last half of the steps instead of the last.
    """

    name: ClassVar[str] = "Poisson descent"
    secret_sampling: ClassVar[bool] = True

    iterations: int = 40
    batch_rate: float = 0.2
    learning_rate: float = 4.0
    damping: float = 3.0
    spreading: float = 0.25
    average: bool = True

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        found = replace(self, rating_range=rating_range)
        found._check()
        check_number("batch_rate", found.batch_rate)
        check_that(
            LEAST_RATE <= found.batch_rate <= 1,
            f"batch_rate is {found.batch_rate!r}, but must lie between {LEAST_RATE:g} and 1:"
            " smaller batches hold almost no users, and take minutes to price",
        )
        check_positive("learning_rate", found.learning_rate)
        for name in ("damping", "spreading"):
            check_number(name, getattr(found, name))
        check_bool("average", found.average)
        check_that(
            found.batch_rate == 1 or budget.neighboring != "replace-one",
            f"neighboring is 'replace-one', but Poisson batches (batch_rate={found.batch_rate:g})"
            " are priced for 'add-remove' only. Use that, or pass batch_rate=1.",
        )
        return found

    def releases(self, n_items: int) -> list[Release]:
        """List the releases; counts cost about a twentieth of gradients with full batches."""
        shape = (self.n_frequent(n_items), self.factors + 1)
        return [
            Release("counts", share=0.05, shape=(n_items,)),
            Release(
                "gradient", count=self.iterations, share=1.0, shape=shape, rate=self.batch_rate
            ),
        ]

    def plan(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        """Return the plan; priced by "pld", many batches cost about q² of full releases."""
        given = dict(self._shares())
        if accountant == "pld" and "counts" not in given:
            given["counts"] = 0.05 * self.batch_rate**2
        return super(PoissonDescent, replace(self, shares=given)).plan(n_items, budget, accountant)

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        users.apply(Choose())
        found: dict[str, ReleasableSum] = {"counts": users.sum(ItemCounts())}
        few = users.copy_after(Restrict(np.arange(self.n_frequent(users.n_items))))
        batch = draw_batch(few, self.batch_rate)
        V = np.zeros((few.n_items, self.factors + 1))
        self.solve_users(batch, V)
        return found | {"gradient": batch.sum(ClippedGradient(V, self.gradient_norm))}

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
        s = np.minimum((counts.max() / counts) ** self.spreading, 10.0)
        V = self.start(len(frequent), seed)
        mean = np.zeros_like(V)
        first = self.iterations // 2 if self.average else self.iterations - 1
        secure = session.ledger.noise == "secure"
        for t in range(self.iterations):
            batch = draw_batch(users, self.batch_rate, seed=None if secure else (seed, t))
            self.solve_users(batch, V)
            gradient = batch.sum(ClippedGradient(V.astype(np.float32), self.gradient_norm, s))
            g = session.release("gradient", gradient)
            deviation = 0.0 if session.silent else session.deviation("gradient", gradient)
            V = V - self._rates(deviation, counts, s)[:, None] * g
            mean += V * (t >= first)
            progress(t + 1, self.iterations, "steps")
        return self.make_learned(mean / (self.iterations - first), frequent, n_items)

    def _rates(
        self, deviation: float, counts: NDArray[Any], s: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Return what a released row is multiplied with in (3)."""
        own = s * self.batch_rate
        noise = self.damping * deviation / own
        rate: NDArray[np.float64] = self.learning_rate / own * counts / (counts**2 + noise**2)
        return rate


# ------------------------------------------------------------ the model


class DPSGD(PrivateRecommender):
    """Private stochastic gradient descent (Abadi et al., 2016).

    With ``neighboring="replace-one"``, `batch_rate` must be 1.

    Parameters
    ----------
    factors : int, optional
        Default 8.
    iterations : int, optional
        Steps. Default 40.
    batch_rate : float, optional
        The probability with which a user is in a batch (Poisson sampling); with 1, all users are in
        every batch. Default 0.2.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that get factors. Default 0.4.
    accountant : {"pld", "gdp", "rdp"}
        How the privacy cost is computed. Only "pld" takes the sampling into account.
    """

    goal = "rating"
    _kinds = (PoissonDescent,)

    factors: int | None = field(default=None, kw_only=False)
    iterations: int | None = None
    batch_rate: float | None = None
    item_fraction: float | None = None
    accountant: str = "pld"
