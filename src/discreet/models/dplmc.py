"""Private matrix completion by projected gradients: Wang, Zhao and Kolar (2023), corrected.

Algorithms 1 and 2 with the corrections of docs/errata.md (9–11). U and V are √m and √n times the
paper's, so that their rows have ordinary sizes for any numbers m of users and n of items (as in its
§6); p is the share of known entries. Per user, private and at no cost, with e_ij = u_i · v_j
− y_ij:

    u_i ← Π_α₁( u_i − η/(pn) Σ_{j ∈ Ω_i} e_ij v_j − η/2 · u_iᵀ R̃ )                              (1)

Released, with noise, where every user's residuals are cut to ‖e_i‖ ≤ G from the first step on:

    K̃ = Σ_i u_i u_iᵀ + noise,      g̃_j = Σ_{i ∈ Ω_j} e_ij u_i + noise

and from these alone, as post-processing, with R̃ = K̃/m − VᵀV/n:

    v_j ← Π_α₂( v_j − η/(pm) g̃_j + η/2 · R̃ v_j )                                               (2)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import second_moment, tall_product
from discreet.models.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learned,
    Progress,
    Range,
    check_centering,
    middle,
    width,
)
from discreet.models.fold_in import FoldIn, GradientFoldIn, project
from discreet.models.parameters import (
    MOST_SWEEPS,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.base import triangle_size
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ContributedCovariance, GlobalGram
from discreet.privacy.statistics.gradients import Size, WeightedResidualGradient
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, ComputeResiduals, GradientStep, StartFrom

SIZE_SHARE = 0.02  # of μ², for the numbers of users and ratings


@dataclass(frozen=True, repr=False)
class ProjectedGradient(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int
        Rank r.
    iterations : int
        T. Every step costs; the paper has 10 to 60.
    step_size : float
        η.
    user_norm, item_norm : float
        α₁ and α₂.
    residual_norm : float, optional
        G. Default: α₁ α₂.
    balance_share : float, optional
        ω, the part of R̃ in the budget of (1) and (2). Default: the least total noise.
    ratings_per_item, ratings_per_user : float
        pm and pn as public numbers. If one is 0, both are released, at a cost (erratum 10).
    centering : "user" or float
        Subtract every user's own mean, or a public constant.
    prior_count : float
        A user's own mean also counts so many ratings of the middle of the range.
    initialization : {"random", "spectral"}
        Item factors at random, or by Algorithm 2.
    initial_epsilon : float
        What of ε is set aside for Algorithm 2; 0 sets a tenth of μ² aside.
    initial_share : float, optional
        That part of μ² by itself. Default: follows from `initial_epsilon`.
    initial_scale : float
        Standard deviation of random factors.
    spectral_scale : float
        τ.
    balanced : bool
        Split the spectrum evenly between users and items, or as printed (erratum 11).
    constants : {"tight", "printed"}
        "printed" uses the noise of Theorems 5.1 and 5.3, for reproduction only: more than is needed
        (erratum 9).
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "projected gradient"

    factors: int = 16
    iterations: int = 5
    step_size: float = 1.0
    user_norm: float = 1.0
    item_norm: float = 4.0
    residual_norm: float | None = None
    balance_share: float | None = None
    ratings_per_item: float = 0.0
    ratings_per_user: float = 0.0
    rating_range: Range | None = None
    centering: float | Literal["user"] = "user"
    prior_count: float = 3.0
    initialization: Literal["random", "spectral"] = "random"
    initial_epsilon: float = 0.0
    initial_share: float | None = None
    initial_scale: float = 0.3
    spectral_scale: float = 1.0
    balanced: bool = True
    constants: Literal["tight", "printed"] = "tight"
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        for name in ("user_norm", "item_norm"):
            check_positive(name, getattr(self, name))
        usual_norm = self.user_norm * self.item_norm
        found = replace(
            self,
            rating_range=rating_range,
            residual_norm=usual_norm if self.residual_norm is None else self.residual_norm,
        )
        found._check(budget, n_items)
        if found.balance_share is None:
            found = replace(found, balance_share=found._best_balance(budget, n_items))
        if found.initial_share is None:
            found = replace(found, initial_share=found._usual_start(budget))
        check_number("initial_share", found.initial_share)
        left = 1 - float(found.initial_share or 0) - (0 if found.has_public_sizes else SIZE_SHARE)
        check_that(
            found.constants == "printed" or found.initialization == "random" or left > 1e-3,
            f"initial_epsilon is {found.initial_epsilon!r}, which leaves nothing of epsilon ="
            f" {budget.epsilon:g} for the steps. Lower it.",
        )
        return found

    def _check(self, budget: Budget, n_items: int) -> None:
        check_int("factors", self.factors)
        check_int("iterations", self.iterations, 1, MOST_SWEEPS)
        for name in ("step_size", "residual_norm", "initial_scale", "spectral_scale"):
            check_positive(name, getattr(self, name))
        for name in ("ratings_per_item", "ratings_per_user", "initial_epsilon", "prior_count"):
            check_number(name, getattr(self, name))
        check_bool("balanced", self.balanced)
        check_choice("initialization", self.initialization, "random", "spectral")
        check_choice("constants", self.constants, "tight", "printed")
        check_centering(self.centering, "user")
        omega = self.balance_share
        if omega is not None:
            check_positive("balance_share", omega)
            check_that(omega < 1, f"balance_share is {omega!r}, but must be between 0 and 1")
        check_that(
            self.initial_epsilon < budget.epsilon,
            f"initial_epsilon is {self.initial_epsilon!r}, but must be below epsilon",
        )
        spectral = self.initialization == "spectral"
        check_that(
            not spectral or self.factors <= n_items,
            f"factors is {self.factors:,}, but a spectral start has at most {n_items:,}, one for"
            " each item. Lower factors, or pass initialization='random'.",
        )
        if self.constants == "printed":
            check_that(
                self.has_public_sizes,
                "constants='printed' needs ratings_per_item and ratings_per_user",
            )
            check_that(
                not spectral or self.initial_epsilon > 0,
                "constants='printed' needs initial_epsilon for a spectral start",
            )
            check_that(not self.shares, "shares cannot be combined with constants='printed'")

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        if self.centering != "user":
            return Bounds(
                items=EVERY_ITEM, rating=self.largest, center=self.centering, norm=self.user_norm
            )
        return Bounds(
            items=EVERY_ITEM,
            rating=self.largest,
            center="user",
            prior_mean=middle(self.rating_range),
            prior_count=self.prior_count,
            norm=self.user_norm,
        )

    def releases(self, n_items: int) -> list[Release]:
        lines = []
        if not self.has_public_sizes:
            lines.append(Release("size", share=SIZE_SHARE, shape=(3,)))
        if self.initialization == "spectral":
            lines.append(
                Release("initial", share=float(self.initial_share or 0), shape=(n_items, n_items))
            )
        rest = 1 - sum(line.share for line in lines)
        omega = float(self.balance_share or 0)
        packed = (1, triangle_size(self.factors))
        return [
            *lines,
            Release("balance", count=self.iterations, share=omega * rest, shape=packed),
            Release(
                "gradient",
                count=self.iterations,
                share=(1 - omega) * rest,
                shape=(n_items, self.factors),
            ),
        ]

    def plan(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        if self.constants != "printed":
            return super().plan(n_items, budget, accountant)
        printed = self._paper_multipliers(budget)
        exact = [line.with_weight(printed[line.name]) for line in self.releases(n_items)]
        return Plan.explicit(
            exact, budget.delta, budget.neighboring, accountant, budget.allow_large_delta
        )

    def assumptions(self) -> dict[str, str]:
        found = {}
        if self.has_public_sizes:
            found["size"] = "how many ratings an item and a user have on average"
        if self.constants == "printed":
            found["constants"] = "noise as printed; the ε stated is what it costs"
        return found

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        users.apply(Choose())
        none = np.zeros((users.n_items, self.factors), np.float32)
        users.apply(StartFrom(none))
        found: dict[str, ReleasableSum] = {
            "size": users.sum(Size(self.half)),
            "balance": users.sum(GlobalGram()),
        }
        found["initial"] = users.sum(ContributedCovariance(self.largest))
        users.apply(ComputeResiduals(none, self.largest))
        return found | {"gradient": users.sum(WeightedResidualGradient())}

    def _best_balance(self, budget: Budget, n: int) -> float:
        """Return ω, the part of R̃ with which both kinds of noise move the item factors least.

        One step moves them by ½ V N₁ / m and by N₂ / (pm). With ‖v_j‖ ≤ α₂, the squared lengths of
        both are at most A/ω and B/(1 − ω), and their sum is least for ω = √A / (√A + √B).
        """
        gram, gradient = self._sensitivities(budget)
        # the order of magnitude is enough
        p = min(1.0, self.ratings_per_user / n) if self.ratings_per_user else 0.1
        A = self.item_norm / 2 * math.sqrt(n * (self.factors + 1) / 2) * gram
        B = math.sqrt(n * self.factors) * gradient / p
        return A / (A + B)

    def _sensitivities(self, budget: Budget) -> tuple[float, float]:
        """Return those of Gram and gradient: α₁², G α₁, times √2, 2 for replacing (erratum 9)."""
        replaced = budget.neighboring == "replace-one"
        gram = (math.sqrt(2) if replaced else 1.0) * self.user_norm**2
        return gram, (2.0 if replaced else 1.0) * self.largest * self.user_norm

    def _paper_multipliers(self, budget: Budget) -> dict[str, float]:
        """Return multipliers for the standard deviations of Theorems 5.1 and 5.3 as printed."""
        first = self.initial_epsilon if self.initialization == "spectral" else 0.0
        eps = budget.epsilon - first
        T = self.iterations
        L = math.log(1 / budget.delta)
        omega = float(self.balance_share or 0)
        a = self.user_norm
        G = self.largest
        nu_1 = a * a * math.sqrt(8 * T * (L + eps)) / (math.sqrt(omega) * eps)
        nu_2 = 4 * a * G * math.sqrt(T * (L + eps)) / (math.sqrt(1 - omega) * eps)
        gram, gradient = self._sensitivities(budget)
        found = {"balance": nu_1 / gram, "gradient": nu_2 / gradient}
        if first:
            relation = math.sqrt(2) if budget.neighboring == "replace-one" else 1.0
            found["initial"] = 4 * G * G * math.sqrt(L) / first / (relation * G * G)
        return found

    def _usual_start(self, budget: Budget) -> float:
        """Return the part of μ² for the start: that of its own ε (§6), or a tenth."""
        if not self.initial_epsilon:
            return 0.1
        return (
            gdp.mu(self.initial_epsilon, budget.delta) / gdp.mu(budget.epsilon, budget.delta)
        ) ** 2

    @property
    def has_public_sizes(self) -> bool:
        """Whether the numbers of ratings are public."""
        return self.ratings_per_item > 0 and self.ratings_per_user > 0

    @property
    def largest(self) -> float:
        """G."""
        assert self.residual_norm is not None
        return self.residual_norm

    @property
    def half(self) -> float:
        assert self.rating_range is not None
        return width(self.rating_range) / 2

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
        """Run Algorithm 1."""
        n = users.n_items
        eta = self.step_size
        m, per_user = self._sizes(users, session)
        per_item = per_user * m / n
        V = self._start(users, session, per_user, m, seed)
        moves = []
        for step in range(self.iterations):
            users.apply(ComputeResiduals(V, self.largest))
            gram = users.sum(GlobalGram())
            K, g = session.release_together(
                [("balance", gram), ("gradient", users.sum(WeightedResidualGradient()))]
            )
            R = gram.unpack(K)[0] / m - second_moment(V) / n
            before = V
            V = project(V - eta / per_item * g + eta / 2 * tall_product(V, R), self.item_norm)
            users.apply(GradientStep(eta / per_user, R, eta / 2))
            moves.append(float(np.sqrt(((V - before) ** 2).mean())))
            progress(step + 1, self.iterations, "steps")
        details = {"share_rated": per_user / n, "trace": moves}
        return Learned(V.astype(np.float32), np.zeros(n, np.float32), None, details)

    def _sizes(self, users: Users, session: Session) -> tuple[float, float]:
        """Return m and pn, public or released."""
        n = users.n_items
        if self.has_public_sizes:
            return n * self.ratings_per_item / self.ratings_per_user, self.ratings_per_user
        known, m, _ = session.release("size", users.sum(Size(self.half)))
        m = max(float(m), 1.0)
        session.warn_if_delta_large(m)
        return m, min(max(float(known) / m, 1.0 / n), 1.0) * n

    def _start(
        self, users: Users, session: Session, per_user: float, m: float, seed: int
    ) -> NDArray[np.float64]:
        """Initialize item factors and user vectors: one step from 0, or Algorithm 2."""
        if self.initialization == "random":
            V = self.initial_scale * np.random.default_rng(seed).standard_normal(
                (users.n_items, self.factors)
            )
            users.apply(StartFrom(self.step_size / per_user * V))
            return V
        users.apply(Choose())
        C = session.release("initial", users.sum(ContributedCovariance(self.largest)))
        V, W = spectral_start(
            C, self.factors, per_user / users.n_items, m, self.spectral_scale, self.balanced
        )
        users.apply(StartFrom(W))
        return project(V, self.item_norm)

    # ------------------------------------------------------------ fold-in

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """Return T times (1) with the final items, and one step more from 0."""
        assert self.rating_range is not None
        by_own_mean = self.centering == "user"
        return GradientFoldIn(
            steps=self.iterations + 1,
            rate=self.step_size / (learned.details["share_rated"] * len(learned.factors)),
            user_norm=self.user_norm,
            center=middle(self.rating_range) if by_own_mean else float(self.centering),
            prior_count=self.prior_count if by_own_mean else None,
        )


def spectral_start(
    C: NDArray[Any], r: int, p: float, m: float, tau: float = 1.0, balanced: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Run Algorithm 2: item factors V (n, r), and W (n, r) with user vectors Σ_j y_j w_j.

    The spectrum Σ is that of τ²/p² C / (mn), an estimate of XᵀX/(mn), hence of *squared* singular
    values. Printed is V = Q Σ^½, which leaves users with U ~ Σ⁰; the balance term wants UᵀU/m =
    VᵀV/n, hence Q Σ^¼ (erratum 11).

    Parameters
    ----------
    C : (n, n), the released covariance Σ_i y_i y_iᵀ
    r, p, m : rank, share of known entries, number of users
    """
    n = len(C)
    values, Q = np.linalg.eigh((C + C.T) / 2 * tau**2 / (p**2 * m * n))
    values = values[-r:]
    Q = Q[:, -r:]
    root = np.maximum(values, 1e-6 * max(values[-1], 1e-12)) ** (0.25 if balanced else 0.5)
    return math.sqrt(n) * Q * root, tau / (p * math.sqrt(n)) * Q / root


# ------------------------------------------------------------ the model


class DPLMC(PrivateRecommender):
    """Private matrix completion by projected gradients, as in the paper; we recommend `DPMF`.

    For items that are rated about equally often.

    Parameters
    ----------
    factors : int, optional
        Rank. Default 16.
    iterations : int, optional
        Number of steps; each one costs. Default 5; the paper has 10 to 60.
    step_size : float, optional
        η. Default 1.
    user_norm, item_norm : float, optional
        The longest that the vectors of users and items may be. Default 1 and 4.
    """

    goal = "rating"
    _kinds = (ProjectedGradient,)

    factors: int | None = field(default=None, kw_only=False)
    iterations: int | None = None
    step_size: float | None = None
    user_norm: float | None = None
    item_norm: float | None = None
