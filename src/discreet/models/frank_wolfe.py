"""Private matrix completion in a nuclear-norm ball: Frank–Wolfe (Jain, Thakkar & Thakurta, 2018).

Algorithm 1 of the paper minimizes ½ ‖P_Ω(Y − Y*)‖² over ‖Y‖_nuclear ≤ k by rank-one steps. Per
user, private and at no cost (`discreet.privacy.users.steps.frank_wolfe_step`):

    a_i = P_Ωi(Y_i − Y*_i)                                                                       (1)
    û_i = a_i · v̂ / λ̂',     Y_i ← Π_L((1 − γ_t) Y_i − γ_t k û_i v̂ᵀ)                           (2)

Released, with noise, T times, rows being cut to ‖a_i‖ ≤ L_a, and from it, as post-processing:

    W = Σ_i a_i a_iᵀ + noise, v̂, λ̂² = top eigenvector and eigenvalue of W, λ̂'² = max(λ̂², 0) +
    noise's own (3)

Π_L scales a user's row to ‖P_Ωi(Y_i)‖ ≤ L. The result is Y_i = Σ_t w_it v̂_t, so the directions
v̂_t are the item factors and the rank is the number of steps. *A new user walks the same steps*
from the released (v̂_t, λ̂'_t) alone.

Three things differ from the paper. Its noise is for ‖a_i‖ ≤ L, but a difference of two rows of norm
L can have 2 L: here residuals themselves are cut, to L_a. Its λ̂' adds a bound with the number of
users in it, which is private; here it is the size of the largest eigenvalue of the noise, σ √(2 m)
for m items, which is public. And k, which should grow with the number of users, is `spread` · √(ñ
m) from a released ñ unless it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import (
    Algorithm,
    Learned,
    Progress,
    Range,
    check_centering,
    middle,
    most_frequent,
    own_mean_bounds,
    share_of_items,
    spread_out,
    what_factors_explain,
    width,
)
from discreet.models.fold_in import FoldIn, FrankWolfeFoldIn
from discreet.models.parameters import (
    check_choice,
    check_fraction,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.base import triangle_size
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemCounts
from discreet.privacy.statistics.covariance import ResidualCovariance
from discreet.privacy.statistics.sums import Sum
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, FrankWolfeStep, Restrict, SubtractBaseline

MOST_STEPS = 1000  # allowed on any catalog; more only where there are as many items


@dataclass(frozen=True, repr=False)
class FrankWolfe(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int
        T: how many steps, each of which adds one direction.
    nuclear_norm : float
        k. 0: `spread` · √(ñ m), with a noisy number of users ñ and m frequent items.
    spread : float, optional
        Root mean square of predictions around a user's mean. Default: a tenth of the rating range.
    row_norm : float, optional
        L. Default: √max_items times a quarter of the rating range.
    residual_norm : float, optional
        L_a. Default: as `row_norm`.
    steps : {"constant", "decreasing"}
        γ_t = 1/T as in the paper, or 2/(t + 1), t = 1, 2, …
    folding : {"least-squares", "steps"}
        How a user's vector is computed: by least squares on the directions, or by repeating the
        steps as in the paper.
    regularization : float
        Ridge of that least squares; directions have unit length times √m.
    centering : "user" or float
        Subtract every user's own mean (free), or a public constant.
    prior_count : float
        A user's own mean also counts so many ratings of the middle of the range.
    max_items : int
        How many items of a user count when items are counted.
    item_fraction : float
        The share of items, the most frequent by noisy counts, that the matrix has; 1 has all and
        counts none.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "Frank–Wolfe"

    factors: int = 5
    nuclear_norm: float = 0.0
    spread: float | None = None
    row_norm: float | None = None
    residual_norm: float | None = None
    steps: Literal["constant", "decreasing"] = "constant"
    folding: Literal["least-squares", "steps"] = "least-squares"
    regularization: float = 5.0
    centering: float | Literal["user"] = "user"
    prior_count: float = 3.0
    max_items: int = 50
    item_fraction: float = 0.1
    rating_range: Range | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        check_int("max_items", self.max_items)
        usual_row = math.sqrt(self.max_items) * width(rating_range) / 4
        row_norm = usual_row if self.row_norm is None else self.row_norm
        found = replace(
            self,
            rating_range=rating_range,
            spread=width(rating_range) / 10 if self.spread is None else self.spread,
            row_norm=row_norm,
            residual_norm=row_norm if self.residual_norm is None else self.residual_norm,
        )
        found._check(n_items)
        return found

    def _check(self, n_items: int) -> None:
        check_int("factors", self.factors)
        check_number("nuclear_norm", self.nuclear_norm)
        check_number("prior_count", self.prior_count)
        for name in ("spread", "row_norm", "residual_norm", "regularization"):
            check_positive(name, getattr(self, name))
        check_choice("steps", self.steps, "constant", "decreasing")
        check_choice("folding", self.folding, "least-squares", "steps")
        check_fraction("item_fraction", self.item_fraction)
        check_centering(self.centering, "user")
        most = max(n_items, MOST_STEPS)
        check_that(
            self.factors <= most,
            f"factors is {self.factors:,}, but must be at most {most:,} for {n_items:,} items,"
            " because each is a step",
        )

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        return own_mean_bounds(self.max_items, self.rating_range, self.centering, self.prior_count)

    def releases(self, n_items: int) -> list[Release]:
        m = share_of_items(self.item_fraction, n_items)
        lines = []
        if m < n_items:
            lines.append(Release("counts", share=0.05, shape=(n_items,)))
        if not self.nuclear_norm:
            lines.append(Release("crowd", share=0.002, shape=(1,)))
        return [
            *lines,
            Release("covariance", count=self.factors, share=0.948, shape=(1, triangle_size(m))),
        ]

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        users.apply(Choose())
        few = users.copy_after(
            Restrict(np.arange(share_of_items(self.item_fraction, users.n_items)))
        )
        covariance = self._covariance(few.copy_after(SubtractBaseline()))
        return {
            "counts": users.sum(ItemCounts()),
            "crowd": users.sum(UserCount()),
            "covariance": covariance,
        }

    # ------------------------------------------------------------ learning

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
        frequent = np.arange(n_items)
        if "counts" in session.list_remaining():
            users.apply(Choose())
            counts = session.release("counts", users.sum(ItemCounts()))
            frequent = most_frequent(counts, share_of_items(self.item_fraction, n_items))
        m = len(frequent)
        k = self._nuclear_norm(users, session, m)
        rows = users.copy_after(Restrict(frequent)).copy_after(SubtractBaseline())
        V = np.empty((m, self.factors))
        lengths = []
        assert self.row_norm is not None
        for t in range(self.factors):
            covariance = self._covariance(rows)
            W = session.release("covariance", covariance)
            V[:, t], top = top_eigen(covariance.unpack(W)[0])
            # the largest eigenvalue of the noise alone is σ √(2 m), with σ/√2 off the diagonal
            deviation = 0.0 if session.silent else session.deviation("covariance", covariance)
            length = math.sqrt(max(top, 0.0) + max(deviation * math.sqrt(2 * m), 1e-12))
            rows.apply(FrankWolfeStep(V[:, t], length, k, self._gamma(t), self.row_norm))
            lengths.append(length)
            progress(t + 1, self.factors, "steps")
        details = {"frequent": frequent.tolist(), "lengths": lengths, "nuclear_norm": k}
        factors = spread_out(V * math.sqrt(m), frequent, n_items)
        return Learned(factors, np.zeros(n_items, np.float32), None, details)

    def _covariance(self, rows: Users) -> Sum:
        assert self.residual_norm is not None
        return rows.sum(ResidualCovariance(self.residual_norm))

    def _nuclear_norm(self, users: Users, session: Session, m: int) -> float:
        if self.nuclear_norm:
            return float(self.nuclear_norm)
        n = max(float(session.release("crowd", users.sum(UserCount()))[0]), 1.0)
        session.warn_if_delta_large(n)
        assert self.spread is not None
        return self.spread * math.sqrt(n * m)

    def _gamma(self, t: int) -> float:
        return 1 / self.factors if self.steps == "constant" else 2 / (t + 2)

    # ------------------------------------------------------------ fold-in

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """Return a user's weights of the directions, from its own ratings and releases."""
        assert self.rating_range is not None
        assert self.row_norm is not None
        known = learned.some("frequent")
        if self.folding == "least-squares":
            ridge = self.regularization
            return what_factors_explain(
                ridge, 0.0, known, self.rating_range, self.centering, self.prior_count
            )
        by_own_mean = self.centering == "user"
        return FrankWolfeFoldIn(
            nuclear_norm=learned.details["nuclear_norm"],
            row_norm=self.row_norm,
            scale=math.sqrt(max(int(known.sum()), 1)),
            center=middle(self.rating_range) if by_own_mean else float(self.centering),
            prior_count=self.prior_count if by_own_mean else None,
            known=known,
            lengths=np.asarray(learned.details["lengths"], np.float64),
            gammas=np.array([self._gamma(t) for t in range(self.factors)]),
        )


def top_eigen(W: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Compute the top eigenvector (largest entry positive) and eigenvalue by Lanczos."""
    from scipy.sparse.linalg import eigsh

    if len(W) < 3:
        values, vectors = np.linalg.eigh(W)
    else:
        # a fixed start, because a random one of Lanczos would not be reproducible
        start = np.linspace(1.0, 2.0, len(W))
        values, vectors = eigsh(W, k=1, which="LA", v0=start)
    v = vectors[:, -1]
    return v * np.sign(v[np.argmax(np.abs(v))] or 1.0), float(values[-1])


# ------------------------------------------------------------ the model


class DPFrankWolfe(PrivateRecommender):
    """Private Frank–Wolfe (Jain, Thakkar & Thakurta, 2018).

    Parameters
    ----------
    factors : int, optional
        Number of steps; each one adds a direction. Default 5.
    nuclear_norm : float, optional
        Largest nuclear norm of the matrix. Default: follows from a released number of users.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that take part. Default 0.1.
    """

    goal = "rating"
    _kinds = (FrankWolfe,)
    #: Messages about parameters that other models have.
    instead: ClassVar[dict[str, str]] = {"iterations": "its number of steps is 'factors'"}

    factors: int | None = field(default=None, kw_only=False)
    nuclear_norm: float | None = None
    item_fraction: float | None = None
