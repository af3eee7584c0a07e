"""Private alternating least squares: Chien et al. (2021), Algorithms 1 and 2, corrected.

Per user, private and at no cost:

    u_i = clip((Σ_{j ∈ Ω_i} v_j v_jᵀ + λ₀ VᵀV + λ c_i^ν / Z · I)⁻¹ Σ_{j ∈ Ω_i} y_ij v_j,  Γ_u)   (1)

Released, with noise, from at most k items of each user:

    c̃ = Counts(Ω'),  G̃_j = Σ_{i ∈ Ω''_j} u_i u_iᵀ + noise,  g̃_j = Σ_{i ∈ Ω''_j} y_ij u_i + noise,
    K̃ = Σ_i u_i u_iᵀ + noise

and from these alone, as post-processing:

    v_j = (Π_PSD(G̃_j) + λ₀ Π_PSD(K̃) + λ c̃_j^μ / Z′ · I)⁻¹ g̃_j                                (2)

Steps: (a) noisy counts of a uniform sample decide which items are frequent; (b) every user keeps
the k rarest frequent items it has rated; (c) ratings are centered and cut to Γ_M; (d) T times (1)
and (2). Items that are not frequent are predicted by the user's own mean. docs/errata.md lists the
corrections. What is not in the paper is a field that 0 or False switches off: an `intercept`, so
that items have a bias, and a `noise_ridge` against the noise in small eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import project_psd, solve_psd
from discreet.models.algorithm import (
    Algorithm,
    Learned,
    Progress,
    Range,
    check_centering,
    check_signal,
    middle,
    most_frequent,
    share_of_items,
    spread_out,
    width,
)
from discreet.models.fold_in import FoldIn, LeastSquaresFoldIn
from discreet.models.parameters import (
    MOST_SWEEPS,
    check_bool,
    check_choice,
    check_fraction,
    check_growth,
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
from discreet.privacy.statistics.contributions import (
    ContributedCovariance,
    GlobalGram,
    ItemCounts,
    ItemGrams,
    ItemSums,
    RatingCount,
    RatingSum,
)
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, Recenter, Restrict, Solve

# from so many items on, implicit feedback usually comes from enough users to learn more
LARGE = 10_000
BY_SIGNAL = "by signal"


@dataclass(frozen=True, repr=False)
class NoisySolve(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    goal : {"rating", "ranking"}
    factors : int, optional
        Rank r. Default 16, or 32 for implicit feedback on 10,000 items and more.
    iterations : int, optional
        T. Every step costs. Default 2, or 1 to 6 by the budget for implicit feedback on 10,000
        items and more.
    regularization : float or "by signal", optional
        λ of users and items. Default 80 for explicit feedback. For implicit feedback 0.5, or on
        10,000 items and more 0.085 times the square of the average signal over noise, which follows
        from the released counts: less noise leaves more to over-fit.
    unobserved_weight : float, optional
        λ₀. Default 0 for explicit and 0.6 for implicit feedback; if positive, K̃ is released at
        every step.
    user_exponent, item_exponent : float
        ν and μ.
    user_normalizer : float
        Z, a *public* number (erratum 4): a user with this many ratings gets the ridge λ.
    weighting : {"rating", "row"}
        What the items' weights c̃_j^μ / Z′ average to 1 over: the ratings, or (as the supplement
        prints it) the items.
    noise_ridge : float
        Added to every item's ridge, in units of the known size √(2r) · sd of the noise on its Gram
        matrix: what noise can turn into a small eigenvalue should not be divided by. 0 is the
        paper's algorithm.
    max_items : int
        k, how many items of a user are contributed.
    item_fraction : float
        β: the share of items, the most frequent, that get factors.
    sampling : {"rarest", "uniform"}
        Through which items a user contributes: its k rarest, or k at random.
    resample : bool
        Draw new samples at every step.
    user_sampling : bool
        Let users solve for their vectors with a new random part of 1/T of their histories at every
        step (line 14 of Algorithm 1), which the paper's analysis needs and its experiments leave
        out. Fold-in uses all.
    stages : int
        Learn the factors in so many stages, more of them in each (stagewise ALS, Remark 5): in
        stage s of S the first ⌈r s/S⌉, while the others wait where they started. 1 is the paper's
        algorithm. At most one stage for each step.
    user_norm : float
        Γ_u.
    intercept : float, optional
        ι, the part of Γ_u that a constant first coordinate of every user's vector has, so that
        items have a bias. Default 0.5 for explicit feedback; 0 is the paper's algorithm.
    rating_bound : float, optional
        Γ_M: centered ratings are cut to ±Γ_M. Default: a third of the width of the rating range.
    centering : {"user", "global"} or float
        Subtract every user's own mean (free), a released global mean, or a public constant.
    prior_count : float
        A user's own mean also counts so many ratings of the middle of the range.
    recount : bool
        Release the counts of what is contributed as well, as Algorithm 2 does; else the first
        counts serve.
    initialization : {"random", "spectral"}
        Item factors at random, or from the released covariance of the ratings (supplement B.4).
    initial_norm : float, optional
        What a user contributes to that covariance is cut to this length. Default: √k Γ_M.
    initial_scale : float, optional
        Standard deviation of the factors to start from. Default 0.3, or what the loss suggests for
        implicit feedback.
    isometric : bool
        Give the numbers off the diagonal of a Gram matrix 1/√2 of the noise (erratum 5); False is
        for comparison.
    projection, orthonormalize : bool
        Project Gram matrices (else the ablation), replace V by V(VᵀV)^(−1/2).
    growth : float
        How many times the budget μ² of a step is that of the step before; 1 is the paper's.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    sigmas : dict
        Noise in the paper's units instead of parts of a budget: σ_p for "counts", "recounts",
        "center sum" and "center count", σ_G for "gram" and "global", σ_g for "sum", and that of
        "initial". The ε is what they cost.
    """

    name: ClassVar[str] = "noisy solve"
    added_later: ClassVar[Mapping[str, Any]] = {
        "weighting": "rating",
        "user_sampling": False,
        "stages": 1,
    }

    goal: str = "rating"  # type: ignore[misc]
    factors: int | None = None
    iterations: int | None = None
    regularization: float | str | None = None
    unobserved_weight: float | None = None
    user_exponent: float = 1.0
    item_exponent: float = 0.5
    user_normalizer: float = 400.0
    weighting: Literal["rating", "row"] = "rating"
    noise_ridge: float = 0.25
    max_items: int = 50
    item_fraction: float = 0.4
    sampling: Literal["rarest", "uniform"] = "rarest"
    resample: bool = False
    user_sampling: bool = False
    stages: int = 1
    user_norm: float = 1.0
    intercept: float | None = None
    rating_range: Range | None = None
    rating_bound: float | None = None
    centering: float | Literal["user", "global"] = "user"
    prior_count: float = 3.0
    recount: bool = True
    initialization: Literal["random", "spectral"] = "random"
    initial_norm: float | None = None
    initial_scale: float | None = None
    isometric: bool = True
    projection: bool = True
    orthonormalize: bool = False
    growth: float = 1.0
    shares: Mapping[str, float] = field(default_factory=dict)
    sigmas: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        check_choice("goal", self.goal, "rating", "ranking")
        explicit = self.goal == "rating"
        large = not explicit and n_items >= LARGE
        mu = gdp.mu(budget.epsilon, budget.delta)
        steps = int(np.clip(round(3 * mu**0.25), 1, 6)) if large else 2
        implicit_ridge: float | str = BY_SIGNAL if large else 0.5
        usual: dict[str, Any] = {
            "factors": 32 if large else 16,
            "iterations": steps,
            "regularization": 80.0 if explicit else implicit_ridge,
            "unobserved_weight": 0.0 if explicit else 0.6,
            "intercept": 0.5 if explicit else 0.0,
            "rating_bound": width(rating_range) / 3 if explicit else 1.0,
        }
        open_ones = {name: value for name, value in usual.items() if getattr(self, name) is None}
        found = replace(self, rating_range=rating_range, **open_ones)
        found._check(n_items)
        if found.initial_norm is None:
            found = replace(
                found, initial_norm=math.sqrt(found.max_items) * float(found.rating_bound or 0)
            )
        if found.initial_scale is None:
            found = replace(found, initial_scale=found._usual_scale(n_items))
        for name in ("initial_scale", "initial_norm"):
            check_positive(name, getattr(found, name))
        return found

    def _usual_scale(self, n_items: int) -> float:
        if self._explicit:
            return 0.3
        ridge = (
            0.5
            if isinstance(self.regularization, str)
            else max(float(self.regularization or 0), 0.5)
        )
        return math.sqrt(
            ridge / (float(self.unobserved_weight or 0) * self._n_frequent(n_items) + 40)
        )

    def _check(self, n_items: int) -> None:
        for name in ("factors", "max_items"):
            check_int(name, getattr(self, name))
        check_int("iterations", self.iterations, 1, MOST_SWEEPS)
        for name in ("user_norm", "user_normalizer", "growth", "rating_bound"):
            check_positive(name, getattr(self, name))
        for name in ("unobserved_weight", "noise_ridge", "prior_count", "intercept"):
            check_number(name, getattr(self, name))
        for name in ("user_exponent", "item_exponent"):
            check_number(name, getattr(self, name), -10)
        for name in (
            "resample",
            "user_sampling",
            "recount",
            "isometric",
            "projection",
            "orthonormalize",
        ):
            check_bool(name, getattr(self, name))
        if self.regularization != BY_SIGNAL:
            check_number("regularization", self.regularization)
        check_fraction("item_fraction", self.item_fraction)
        check_choice("sampling", self.sampling, "rarest", "uniform")
        check_choice("weighting", self.weighting, "rating", "row")
        check_choice("initialization", self.initialization, "random", "spectral")
        check_centering(self.centering, "user", "global")  # type: ignore[arg-type]
        check_that(
            self.iota < self.user_norm,
            f"intercept is {self.intercept!r} of the norm, but must be below 1",
        )
        check_growth(self.growth, self.steps)
        check_int("stages", self.stages)
        check_that(
            self.stages <= min(self.steps, self.rank_of_factors),
            f"stages is {self.stages}, but must be at most the number of iterations and of factors",
        )
        check_that(
            isinstance(self.sigmas, Mapping),
            f"sigmas is {self.sigmas!r}, but must be a mapping such as {{'sum': 1}}",
        )
        check_that(
            not self.sigmas or self.growth == 1,
            "sigmas cannot be combined with growth, because the paper's steps have equal noise",
        )
        check_that(
            not (self.sigmas and self.shares),
            "Pass either sigmas or shares, not both.",
        )
        most = self._n_frequent(n_items)
        check_that(
            self.initialization == "random" or self.rank_of_factors <= most,
            f"factors is {self.factors:,}, but a spectral start has at most {most:,}, one for each"
            " item that takes part. Lower factors, or pass initialization='random'.",
        )

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        own = self.centering == "user"
        number = 0.0 if isinstance(self.centering, str) else self.centering
        return Bounds(
            items=self.max_items,
            rating=self.rating_bound if self._explicit else None,
            center="user" if own else number,
            prior_mean=middle(self.rating_range),
            prior_count=self.prior_count if own else 0.0,
            norm=self.user_norm,
        )

    def releases(self, n_items: int) -> list[Release]:
        T = self.steps
        frequent = self._n_frequent(n_items)
        lines = [Release("counts", share=0.035, shape=(n_items,))]
        if self.recount:
            lines.append(Release("recounts", share=0.035, shape=(frequent,)))
        if self._explicit and self.centering == "global":
            lines += [
                Release("center sum", share=0.005, shape=(1,)),
                Release("center count", share=0.005, shape=(1,)),
            ]
        if self.initialization == "spectral":
            lines.append(Release("initial", share=0.2, shape=(frequent, frequent)))
        if self.lambda_0 > 0:
            lines.append(
                Release("global", count=T, share=0.02, shape=(1, triangle_size(self.rank)))
            )
        grams = self._steps_of("gram", 0.19, (frequent, triangle_size(self.rank)))
        sums = self._steps_of("sum", 0.74, (frequent, self.rank))
        return lines + list(dict.fromkeys(grams)) + list(dict.fromkeys(sums))

    def _steps_of(
        self, name: str, share: float = 1.0, shape: tuple[int, ...] = ()
    ) -> list[Release]:
        """Return the release of that name at each step; steps of different noise are separate."""
        T = self.steps
        if self.growth == 1:
            return [Release(name, count=T, share=share, shape=shape)] * T
        each = self.growth ** np.arange(T)
        return [
            Release(name, step=t + 1, share=float(share * each[t] / each.sum()), shape=shape)
            for t in range(T)
        ]

    def plan(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        """Return the plan, by `sigmas` where given: their ε may not exceed the budget."""
        if not self.sigmas:
            return super().plan(n_items, budget, accountant)
        lines = self.releases(n_items)
        exact = [line.with_weight(self._multiplier(line.name)) for line in lines]
        plan = Plan.explicit(
            exact, budget.delta, budget.neighboring, accountant, budget.allow_large_delta
        )
        cost = plan.budget.epsilon
        check_that(
            cost <= budget.epsilon * (1 + 1e-9),
            f"sigmas cost ε = {cost:.4g}, which is above epsilon = {budget.epsilon:g}. Raise one of"
            " them.",
        )
        return plan

    def _multiplier(self, name: str) -> float:
        """Return the paper's σ over the sensitivity: √k for item sums, 1 for K̃ and the start."""
        sigma = self.sigmas.get(name)
        check_that(sigma is not None and sigma > 0, f"sigmas needs a positive number for {name!r}")
        return float(sigma or 0) / (
            1.0 if name in ("global", "initial") else math.sqrt(self.max_items)
        )

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        users.apply(Choose())
        found: dict[str, ReleasableSum] = {"counts": users.sum(ItemCounts())}
        users = users.copy_after(Restrict(np.arange(self._n_frequent(users.n_items))))
        users.apply(Choose())
        users.apply(
            Solve(
                np.zeros((users.n_items, self.rank_of_factors), np.float32),
                1.0,
                intercept=self.iota,
            )
        )
        found["recounts"] = users.sum(ItemCounts())
        found |= {
            str(line): users.sum(ItemGrams(self.isometric)) for line in self._steps_of("gram")
        }
        found |= {str(line): users.sum(ItemSums()) for line in self._steps_of("sum")}
        found |= {
            "global": users.sum(GlobalGram()),
            "initial": users.sum(ContributedCovariance(self._start_norm)),
        }
        return found | {
            "center sum": users.sum(RatingSum()),
            "center count": users.sum(RatingCount()),
        }

    @property
    def _explicit(self) -> bool:
        return self.goal == "rating"

    @property
    def rank_of_factors(self) -> int:
        assert self.factors is not None
        return self.factors

    @property
    def steps(self) -> int:
        assert self.iterations is not None
        return self.iterations

    @property
    def iota(self) -> float:
        """Constant first coordinate of every user's vector."""
        return float(self.intercept or 0) * self.user_norm

    @property
    def rank(self) -> int:
        """Rank of what is released: factors, and the bias."""
        return self.rank_of_factors + (self.iota > 0)

    @property
    def lambda_0(self) -> float:
        return float(self.unobserved_weight or 0)

    @property
    def _start_norm(self) -> float:
        return float(self.initial_norm or 0)

    def _n_frequent(self, n_items: int) -> int:
        return share_of_items(self.item_fraction, n_items)

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
        users.apply(Choose())
        counts = session.release("counts", users.sum(ItemCounts()))
        everywhere = counts.astype(np.float64)
        frequent = most_frequent(counts, self._n_frequent(n_items))
        users = users.copy_after(Restrict(frequent))
        center = self._center(users, session)
        priority = counts[frequent] if self.sampling == "rarest" else None
        users.apply(Choose(priority))
        counts = (
            session.release("recounts", users.sum(ItemCounts()))
            if self.recount
            else counts[frequent]
        )
        signal = self._check_signal(users, session, counts)
        ridge = self._lambda(signal["average"])
        V = start = self._start(users, session, seed)
        grams = self._steps_of("gram")
        sums = self._steps_of("sum")
        for step in range(self.steps):
            if self.resample and step:
                users.apply(Choose(priority, draw=step))
            active = self._active(step)
            F, b = self._parts(np.where(np.arange(self.rank) < active, V, np.float32(0.0)))
            users.apply(
                Solve(
                    F,
                    ridge,
                    exponent=self.user_exponent,
                    scale=self._user_scale(),
                    unobserved=self.lambda_0,
                    bias=b,
                    intercept=self.iota,
                    fraction=1 / self.steps if self.user_sampling else 1.0,
                    draw=step,
                )
            )
            found = self._item_step(users, session, counts, ridge, grams[step], sums[step], active)
            # those of later stages stay where they started
            V = np.hstack([found, start[:, active:]])
            progress(step + 1, self.steps, "steps")
        factors, biases = self._parts(V)
        details = {
            "regularization": ridge,
            "center": center,
            "frequent": frequent.tolist(),
            "signal_to_noise": signal,
        }
        whole = spread_out(factors, frequent, n_items)
        return Learned(whole, spread_out(biases, frequent, n_items), everywhere, details)

    def _active(self, step: int) -> int:
        """Return how many coordinates that step learns: the bias, and the factors of its stage."""
        stage = 1 + step * self.stages // self.steps
        return (
            self.rank - self.rank_of_factors + math.ceil(self.rank_of_factors * stage / self.stages)
        )

    def _item_step(
        self,
        users: Users,
        session: Session,
        counts: NDArray[Any],
        lam: float,
        gram: Release,
        right: Release,
        active: int,
    ) -> NDArray[Any]:
        """Solve equation (2) in the first `active` coordinates, block by block of items."""
        grams = users.sum(ItemGrams(self.isometric))
        ridge = self._item_ridge(counts, lam, session.deviation(gram, grams))
        whole = users.sum(GlobalGram())
        shared = [("global", whole)] if self.lambda_0 > 0 else []
        *all_users, summed, squares = session.prepare(
            [*shared, (right, users.sum(ItemSums())), (gram, grams)]
        )
        K = None
        if all_users:
            K = whole.unpack(all_users[0].whole(np.float32))
            project_psd(K)
            K = self.lambda_0 * K[0, :active, :active]
        g = np.ascontiguousarray(summed.whole(np.float32)[:, :active])
        V = np.empty((users.n_items, active), np.float32)
        # buffer for the matrices of a block: allocating one each would cost more than filling it
        room = None
        for rows, G in squares.blocks(dtype=np.float32):
            room = np.empty((len(G), self.rank, self.rank), np.float32) if room is None else room
            squared = grams.unpack(G, room, False)
            if active < self.rank:
                squared = np.ascontiguousarray(squared[:, :active, :active])
            V[rows] = solve_psd(squared, g[rows], ridge[rows], K, project=self.projection)
        if self.orthonormalize:
            values, Q = np.linalg.eigh((V.T @ V).astype(np.float64))
            V = (V @ (Q / np.sqrt(np.maximum(values, 1e-12))) @ Q.T).astype(np.float32)
        return V

    def _item_ridge(self, counts: NDArray[Any], lam: float, deviation: float) -> NDArray[Any]:
        """Return λ c̃_j^μ / Z′, Z′ being the average of c̃_j^μ, plus the noise ridge."""
        c = np.maximum(counts, 1.0)
        weight = c**self.item_exponent
        if self.weighting == "rating":
            weight = weight * c.sum() / (c ** (1 + self.item_exponent)).sum()
        else:
            weight = weight / weight.mean()
        ridge: NDArray[Any] = lam * weight + self.noise_ridge * math.sqrt(2 * self.rank) * deviation
        return ridge

    def _lambda(self, signal: float) -> float:
        if isinstance(self.regularization, str):
            return float(np.clip(0.085 * signal**2, 0.1, 40.0))
        assert self.regularization is not None
        return float(self.regularization)

    def _user_scale(self) -> float:
        return float(self.user_normalizer**-self.user_exponent)

    def _center(self, users: Users, session: Session) -> float:
        """Release the global mean, if ratings are centered by it (erratum 3: sensitivity k Γ_M)."""
        assert self.rating_range is not None
        low, high = self.rating_range
        if not isinstance(self.centering, str):
            return float(self.centering)
        center = middle(self.rating_range)
        if self._explicit and self.centering == "global":
            users.apply(Recenter(center))  # around the middle of the range, sums are smaller
            users.apply(Choose())
            total = session.release("center sum", users.sum(RatingSum()))[0]
            count = session.release("center count", users.sum(RatingCount()))[0]
            center = float(np.clip(center + total / max(count, 1.0), low, high))
            users.apply(Recenter(center))
        return center

    def _start(self, users: Users, session: Session, seed: int) -> NDArray[Any]:
        n = users.n_items
        scale = float(self.initial_scale or 0)
        none = np.zeros((n, self.rank - self.rank_of_factors), np.float32)
        if self.initialization == "random":
            start = np.random.default_rng(seed).standard_normal((n, self.rank_of_factors))
            return np.hstack([none, (scale * start).astype(np.float32)])
        W = session.release("initial", users.sum(ContributedCovariance(self._start_norm)))
        Q = np.linalg.eigh((W + W.T) / 2)[1][:, -self.rank_of_factors :]
        return np.hstack([none, (scale * math.sqrt(n) * Q).astype(np.float32)])

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Split the solution of the item step into factors and biases."""
        if self.iota == 0:
            return V, np.zeros(len(V), np.float32)
        return np.ascontiguousarray(V[:, 1:]), self.iota * V[:, 0]

    def _check_signal(
        self, users: Users, session: Session, counts: NDArray[Any]
    ) -> dict[str, float]:
        """Check the noise on counts and on the last right-hand sides, per rating."""
        counted = users.sum(ItemCounts())
        last = self._steps_of("sum")[-1]
        # replacing a user moves a sum by √2 times more than a count
        replaced = session.plan.budget.neighboring == "replace-one"
        noise = (
            session.deviation(last, counted)
            * (math.sqrt(2.0) if replaced else 1.0)
            * math.sqrt(self.rank)
        )
        counting = session.deviation("recounts" if self.recount else "counts", counted)
        remedy = "Raise epsilon or lower factors, iterations or item_fraction"
        return check_signal(session, counts, counting, noise, remedy, "lower item_fraction")

    # ------------------------------------------------------------ fold-in

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """Return equation (1) without the cut; items without factors get the user's own mean."""
        V = learned.factors
        by_own_mean = self._explicit and self.centering == "user"
        ridge: dict[str, Any] = dict(
            ridge=learned.details["regularization"] * self._user_scale(),
            exponent=self.user_exponent,
            counted="known",
            known=learned.some("frequent"),
            shared=self.lambda_0 * (V.T @ V) if self.lambda_0 > 0 else None,
        )
        if not self._explicit:
            return LeastSquaresFoldIn(centering="liked", **ridge)
        if by_own_mean:
            assert self.rating_range is not None
            return LeastSquaresFoldIn(
                centering="own mean",
                center=middle(self.rating_range),
                prior_count=self.prior_count,
                **ridge,
            )
        return LeastSquaresFoldIn(
            centering="constant", center=learned.details["center"], tail=True, **ridge
        )


# ------------------------------------------------------------ the model


class DPALS(PrivateRecommender):
    """Private alternating least squares, as in the paper; we recommend `DPMF`.

    Parameters
    ----------
    factors : int, optional
        Rank r. Every step releases r(r+3)/2 numbers for each item. Default 16, or 32 for ranking
        on 10,000 items and more.
    goal : {"rating", "ranking"}
        Predict ratings, or rank items from plain interactions (implicit feedback).
    iterations : int, optional
        Number of steps; each one costs. Default 2, or by the budget for ranking on 10,000 items
        and more.
    regularization : float, optional
        λ of users and items. Default 80 for rating and 0.5 for ranking, or by the signal on 10,000
        items and more.
    max_items : int, optional
        Through how many items a user contributes. Default 50.
    item_fraction : float, optional
        The share of items, the most frequent, that get factors. Default 0.4.
    """

    _kinds = (NoisySolve,)

    factors: int | None = field(default=None, kw_only=False)
    goal: Literal["ranking", "rating"] = "rating"
    iterations: int | None = None
    regularization: float | None = None
    max_items: int | None = None
    item_fraction: float | None = None
