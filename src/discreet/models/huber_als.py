"""Noisy least squares, plain or reweighted, with Gaussian, Laplace or Huber noise.

After "Introducing the Huber mechanism for differentially private low-rank matrix completion"
(Gowtham et al., 2022), with a correct sensitivity. Per user, private and at no cost, from all of
its ratings y (relative to its own mean):

    u_i = clip((Σ_{j ∈ Ω_i} v_j v_jᵀ + λ_u |Ω_i| I)⁻¹ Σ_{j ∈ Ω_i} (y_ij − b_j) v_j)              (1)

Released, with noise on both, from at most k items of each user, in each of T·K inner iterations:

    G̃_j = Σ_i w_ij u_i u_iᵀ + noise,     g̃_j = Σ_i w_ij y_ij u_i + noise                       (2)
    w_ij = 1 (ALS),  or  w_ij = min(1, α / |y_ij − u_i · v_j|) (R-IRLS, Algorithms 2 and 3)     (3)

and from these alone, as post-processing:

    v_j = (Π_PSD(G̃_j) + λ_j I)⁻¹ g̃_j,     λ_j = λ + σ_g² / (τ² a_j)                            (4)

where the second part of λ_j is what least squares asks for when a right-hand side has noise of
deviation σ_g, a vector has prior variance τ² and a_j is the curvature, estimated from tr G̃_j / r
(`curvature`).

Clipping is in ℓ₁ for Laplace noise and for pure ε, in ℓ₂ for Gaussian noise and for Huber noise
priced by its Gaussian bound. The cost is the sum of pure ε, a privacy loss distribution or the
Gaussian bound, whichever needs the least noise (``accountant="auto"``); the statement names it.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.kernels import solve_psd
from discreet.models.algorithm import (
    Algorithm,
    Learned,
    Progress,
    Range,
    check_centering,
    middle,
    width,
)
from discreet.models.fold_in import FoldIn, LeastSquaresFoldIn
from discreet.models.parameters import (
    MOST_SWEEPS,
    check_choice,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Budget, Neighboring
from discreet.privacy.accounting.mechanisms import LARGEST_ALPHA, SMALLEST_ALPHA, Huber
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemGrams, ItemSums
from discreet.privacy.users.sealed_users import Users, seal
from discreet.privacy.users.steps import Choose, Reweigh, Solve

logger = logging.getLogger("discreet")

MECHANISMS = ("gaussian", "laplace", "huber")
SOLVERS = ("als", "irls")


@dataclass(frozen=True, repr=False)
class RobustSolve(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int
        Rank r.
    mechanism : {"gaussian", "laplace", "huber"}
        The noise. docs/algorithms.md says when to use which.
    solver : {"als", "irls"}
        Least squares, or reweighted least squares in which ratings far from their prediction count
        less.
    iterations : int
        T. 1 is for few users; use 3 from some 10,000 on.
    inner_iterations : int
        K of "irls", each of which is released and charged.
    alpha : float, optional
        Huber noise only: where its tails begin, in units of its scale. Default 2 where its Gaussian
        bound is the price, 0.5 where pure ε is.
    transition : float
        "irls" only: residuals beyond it, in stars, count less.
    item_regularization : float
        λ of items.
    ridge_per_rating : float
        λ_u of a user's least squares, per rating of the user.
    prior_variance : float
        τ²: how large item factors are expected to be. Smaller shrinks more where there is much
        noise.
    max_items : int
        k, how many items of a user are contributed.
    user_norm, user_norm_l1 : float
        Γ and Γ₁, to which vectors are cut in ℓ₂ and, where clipping is "l1", in ℓ₁ (by default to
        the same number).
    clipping : {"l1", "l2"}, optional
        Default "l2" for Gaussian noise and for Huber noise with δ > 0, else "l1".
    intercept : float
        The part of `user_norm` that a constant first coordinate of every user's vector has, so that
        items have a bias.
    rating_bound : float, optional
        Γ_M: centered ratings are cut to ±Γ_M. Default: a quarter of the width of the range.
    centering : "user" or float
        Subtract every user's own mean (free), or a public constant.
    prior_count : float
        A user's own mean also counts so many ratings of the middle of the range.
    gram_share : float
        Part of the budget for Gram matrices; the rest is for right-hand sides.
    initial_scale : float
        Standard deviation of the factors to start from.
    """

    name: ClassVar[str] = "robust solve"

    factors: int = 4
    mechanism: Literal["gaussian", "laplace", "huber"] = "huber"
    solver: Literal["als", "irls"] = "als"
    iterations: int = 1
    inner_iterations: int = 1
    alpha: float | None = None
    transition: float = 1.0
    item_regularization: float = 5.0
    ridge_per_rating: float = 0.4
    prior_variance: float = 0.4
    max_items: int = 30
    user_norm: float = 1.0
    user_norm_l1: float | None = None
    clipping: Literal["l1", "l2"] | None = None
    intercept: float = 0.7
    rating_range: Range | None = None
    rating_bound: float | None = None
    centering: float | Literal["user"] = "user"
    prior_count: float = 3.0
    gram_share: float = 0.2
    initial_scale: float = 0.3

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        check_choice("mechanism", self.mechanism, *MECHANISMS)
        approximate = self.mechanism == "gaussian" or (
            self.mechanism == "huber" and budget.delta > 0
        )
        usual_clipping: Literal["l1", "l2"] = "l2" if approximate else "l1"
        clipping = usual_clipping if self.clipping is None else self.clipping
        alpha = self.alpha
        if alpha is None:
            alpha = 2.0 if budget.delta > 0 and clipping == "l2" else 0.5
        found = replace(
            self,
            alpha=alpha,
            clipping=clipping,
            user_norm_l1=self.user_norm if self.user_norm_l1 is None else self.user_norm_l1,
            rating_range=rating_range,
            rating_bound=(
                width(rating_range) / 4 if self.rating_bound is None else self.rating_bound
            ),
        )
        found._check(budget)
        return found

    def _check(self, budget: Budget) -> None:
        for name in ("factors", "max_items"):
            check_int(name, getattr(self, name))
        for name in ("iterations", "inner_iterations"):
            check_int(name, getattr(self, name), 1, MOST_SWEEPS)
        for name in (
            "alpha",
            "transition",
            "prior_variance",
            "user_norm",
            "user_norm_l1",
            "rating_bound",
        ):
            check_positive(name, getattr(self, name))
        assert self.alpha is not None
        other = "Laplace" if self.alpha < 1 else "Gaussian"
        check_that(
            SMALLEST_ALPHA <= self.alpha <= LARGEST_ALPHA,
            f"alpha is {self.alpha!r}, which is {other} noise to all digits, but must lie between"
            f" {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}",
        )
        for name in ("item_regularization", "ridge_per_rating", "intercept"):
            check_number(name, getattr(self, name))
        check_positive("initial_scale", self.initial_scale)
        check_choice("solver", self.solver, *SOLVERS)
        check_choice("clipping", self.clipping, "l1", "l2")
        check_number("gram_share", self.gram_share)
        check_that(
            0 < self.gram_share < 1,
            f"gram_share is {self.gram_share!r}, but must be between 0 and 1",
        )
        check_that(
            self.intercept < 1, f"intercept is {self.intercept!r} of the norm, but must be below 1"
        )
        check_centering(self.centering, "user")
        pure = self.mechanism == "gaussian" and budget.delta == 0
        check_that(
            not pure,
            "delta is 0, but mechanism='gaussian' has no pure ε. Choose 'laplace' or 'huber'.",
        )

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        own = self.centering == "user"
        return Bounds(
            items=self.max_items,
            rating=self.rating_bound,
            center=self.centering,
            prior_mean=middle(self.rating_range),
            prior_count=self.prior_count if own else 0.0,
            norm=self.user_norm,
            norm_l1=self.user_norm_l1 if self.clipping == "l1" else None,
        )

    def releases(self, n_items: int) -> list[Release]:
        """List two releases for every inner iteration."""
        n = self.iterations * self.inner
        share = {"sum": 1 - self.gram_share, "gram": self.gram_share}
        found = self.statistics(seal(empty_ratings(n_items), self.bounds()))
        return [
            Release(name, count=n, share=share[name], shape=tuple(s.shape))
            for name, s in found.items()
        ]

    def plan(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        """Return the plan of the accountant that needs the least noise, if "auto" may choose."""
        candidates = self._accountants(budget) if accountant == "auto" else [accountant]
        plans = [self._calibrate(n_items, budget, one) for one in candidates]
        best = plans[0]
        for other in plans[1:]:  # the first is the simplest; another one must be clearly better
            if other.noise_multiplier("sum") < best.noise_multiplier("sum") * (1 - 1e-6):
                best = other
        return best

    def _calibrate(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        power = 1.0 if accountant == "pure" else 0.5  # pure ε add up, otherwise the squares of μ do
        huber = self.mechanism == "huber"
        ratio = self._ratios(n_items, budget.neighboring)
        releases = tuple(
            line.with_weight(
                (line.count / line.share) ** power,
                mechanism=self.mechanism,
                alpha=self.alpha if huber else None,
                l2_ratio=ratio[line.name] if huber else 1.0,
            )
            for line in self.releases(n_items)
        )
        return calibrate_plan(releases, budget, accountant)

    def _accountants(self, budget: Budget) -> list[str]:
        """List the accountants to compare."""
        if self.mechanism == "gaussian":
            return ["gdp"]
        if budget.delta == 0:
            return ["pure"]
        if self.clipping == "l2":  # Δ₁ is far above Δ₂ there, and only the GDP bound uses Δ₂
            return ["gdp"]
        distributions = self._many(budget) and importlib.util.find_spec("dp_accounting") is not None
        return ["pure", "gdp", *(["pld"] if distributions else [])]

    def _many(self, budget: Budget) -> bool:
        """Decide whether a loss distribution can be cheaper than the sum of ε.

        A release has its largest loss where the noise lies in the far tail: half of the draws of
        Laplace noise. Unless all releases at their worst are about as rare as δ, the sum is best;
        this saves computing a loss distribution, which takes seconds.
        """
        assert self.alpha is not None
        worst = 0.5 if self.mechanism == "laplace" else (1 - Huber(self.alpha).core) / 2
        return (
            2 * self.iterations * self.inner * math.log(1 / worst) > math.log(1 / budget.delta) - 5
        )

    def _ratios(self, n_items: int, neighboring: Neighboring) -> dict[str, float]:
        """Return Δ₂/Δ₁ of every release, from the statistics of no users."""
        found = self.statistics(seal(empty_ratings(n_items), self.bounds()))
        return {
            name: min(1.0, s.sensitivity(neighboring, "l2") / s.sensitivity(neighboring, "l1"))
            for name, s in found.items()
        }

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        users.apply(Choose())
        users.apply(Solve(np.zeros((users.n_items, self.factors)), 1.0, intercept=self.iota))
        return {"sum": users.sum(ItemSums()), "gram": users.sum(ItemGrams())}

    @property
    def iota(self) -> float:
        return self.intercept * self.user_norm

    @property
    def rank(self) -> int:
        return self.factors + (self.iota > 0)

    @property
    def inner(self) -> int:
        """K, which is 1 for plain least squares."""
        return 1 if self.solver == "als" else self.inner_iterations

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
        users.apply(Choose())
        V = self._start(users.n_items, seed)
        for step in range(self.iterations):
            F, b = self._parts(V)
            users.apply(Solve(F, self.ridge_per_rating, exponent=1.0, bias=b, intercept=self.iota))
            for _ in range(self.inner):
                robust = (
                    users.copy_after(Reweigh(V, self.transition))
                    if self.solver == "irls"
                    else users
                )
                V = self._item_step(robust, session)
            progress(step + 1, self.iterations, "steps")
        if np.abs(V).max() < 1e-2:
            epsilon = session.plan.budget.epsilon
            logger.warning(
                "at ε = %g the items are all noise: users' own means will be predicted",
                epsilon,
            )
        factors, biases = self._parts(V)
        return Learned(factors.astype(np.float32), biases.astype(np.float32))

    def _item_step(self, users: Users, session: Session) -> NDArray[Any]:
        """Solve equation (4)."""
        sums = users.sum(ItemSums())
        grams = users.sum(ItemGrams())
        g, G = session.release_together([("sum", sums), ("gram", grams)])
        G = grams.unpack(G)
        seen = np.trace(G, axis1=1, axis2=2) / self.rank
        bend = curvature(seen, session.deviation("gram", grams), self.rank)
        ridge = self.item_regularization + session.deviation("sum", sums) ** 2 / (
            self.prior_variance * bend
        )
        return solve_psd(G, g, ridge)

    def _start(self, n: int, seed: int) -> NDArray[Any]:
        V = self.initial_scale * np.random.default_rng(seed).standard_normal((n, self.factors))
        return np.hstack([np.zeros((n, self.rank - self.factors)), V])

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Split the solution of the item step into factors and biases."""
        if self.iota == 0:
            return V, np.zeros(len(V))
        return np.ascontiguousarray(V[:, 1:]), self.iota * V[:, 0]

    # ------------------------------------------------------------ fold-in

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """Return equation (1) without the cut, because the result is for that user alone."""
        assert self.rating_range is not None
        if isinstance(self.centering, str):
            center = middle(self.rating_range)
            return LeastSquaresFoldIn(
                self.ridge_per_rating, 1.0, "own mean", center, self.prior_count
            )
        return LeastSquaresFoldIn(self.ridge_per_rating, 1.0, "constant", self.centering)


def curvature(seen: NDArray[Any], deviation: float, rank: int) -> NDArray[Any]:
    """Estimate tr G / r, shrunk toward the mean as far as it is noise (James and Stein).

    None is below a tenth of the mean, or of the mean's own error.
    """
    noise = deviation / math.sqrt(rank)
    mean = float(seen.mean())
    kept = max(0.0, 1 - noise**2 / max(float(seen.var()), 1e-300))
    least = max(mean, noise / math.sqrt(len(seen)))
    return np.maximum(mean + kept * (seen - mean), 0.1 * least)


@lru_cache(maxsize=64)
def calibrate_plan(releases: tuple[Release, ...], budget: Budget, accountant: str) -> Plan:
    """Calibrate a plan; cached, because loss distributions take a second and fits ask twice."""
    return Plan.calibrate(releases, budget, accountant)


def empty_ratings(n_items: int) -> Ratings:
    """Return ratings of no users, whose statistics have the same shapes and sensitivities."""
    return Ratings.from_indices(
        [0], [], [], np.zeros(0, np.int64), np.arange(n_items), catalog=True
    )


# ------------------------------------------------------------ the model


class HuberALS(PrivateRecommender):
    """Private matrix factorization by (robust) least squares, with a choice of noise.

    ``delta=0`` asks for pure ε, which Gaussian noise cannot give.

    Parameters
    ----------
    factors : int, optional
        Rank. Default 4.
    mechanism : {"gaussian", "laplace", "huber"}, optional
        The noise. docs/algorithms.md says when to use which. Default "huber".
    solver : {"als", "irls"}, optional
        Least squares (the default), or reweighted, where ratings far from their prediction count
        less.
    iterations : int, optional
        Steps. Default 1, for few users; take 3 from some 10,000 on.
    max_items : int, optional
        Through how many items a user contributes. Default 30.
    accountant : {"auto", "gdp", "pld", "pure", "rdp"}
        How the privacy cost is computed; "auto" chooses the one that needs the least noise.
    """

    goal = "rating"
    _kinds = (RobustSolve,)

    factors: int | None = field(default=None, kw_only=False)
    mechanism: Literal["gaussian", "laplace", "huber"] | None = None
    solver: Literal["als", "irls"] | None = None
    iterations: int | None = None
    max_items: int | None = None
    accountant: str = "auto"
