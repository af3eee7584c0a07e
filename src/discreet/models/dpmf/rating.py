"""Rating DPMF: item biases, effects of users' own, pairs of residuals, and steps for item factors.

The model of a rating, with u_i ~ N(0, I):

    y_ij = o_i + b_j + β_i b_j + p_i ℓ_j + u_i · v_j + N(0, σ²)                                  (1)

o_i is the user's level, β_i how far it follows the item's bias, p_i how far it follows popularity,
ℓ_j being the logarithm of a released count. Every user solves for its own coefficients by ridge
regression on its own ratings and numbers that have been released anyway, which costs nothing. σ²
and the variances of o, β and p are estimated from released moments of these solutions
(`user_effects`), so that nothing has a unit, and training and fold-in solve the same.

Released, with noise, every user having the norm 1: the number of users and their mean, and counts
c̃_j = Σ_i w_ij (`population`); then, with residuals e_ij cut to ‖(w_ij e_ij)_j‖ ≤ G = 0.9 σ,

    g̃_j = Σ_i w_ij e_ij/G               for the biases, `bias_iterations` times                 (2)
    G̃_jk = Σ_i e_ij e_ik/q_i            pairs of residuals in the core (`residual_covariance`)  (3)
    g̃_j = Σ_i w_ij e_ij/G (ι, ρ ũ_i),   ũ_i = û_i/‖û_i‖,   ι² + ρ² = 1,   in every step         (4)

From (4), with K̃ = ρ Σ_i ‖û_i‖ ũ_i ũ_iᵀ/ñ released as well ("user gram"), and A the part of
residuals that the cut leaves,

    z_j = A c_j K̃ v_j − G g̃_j  =  A c_j K̃ v*_j + noise + what ratings scatter by themselves,   (5)

one Gauss–Newton step with the average curvature for all items. Every z counts by its noise, with
what the pairs say as a prior (`rating_factors`), and ‖v_j‖ is bounded by 1.5 σ as it was before
there were factors. Biases are estimated by their known noise from all of (2) and the first
coordinate of (4), with a regression on counts and features as a prior (`item_biases`).

Released numbers decide what the lines of the plan are spent on. Pairs are released if biases would
lose next to nothing without that part of the budget. If a dimension stands out of their noise,
steps follow; else all remaining lines release biases again. Three times users say what they gain by
factors, on ratings that they leave out of their own solve (`LeaveOneOutGains`): before the first
step, after the second, where smaller ranks are compared as well, and after the last. Factors that
lose are dropped, and factors that have become worse are replaced by those of the check before. So
the model is never far below its own bias-only form.

Privacy: lines, mechanism and noise multipliers are fixed and public. *What* a line releases is
decided by earlier releases; whatever it is, sums are of residuals over G, of unit norm, so that it
has the same sensitivity. Every line is μ-GDP with its own μ, and they compose adaptively. G and L
are public numbers when they are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learned,
    Progress,
    Range,
    middle,
    width,
)
from discreet.models.dpmf.population import Population, release_counts, release_population
from discreet.models.dpmf.public_biases import PublicBiases
from discreet.models.dpmf.rating_factors import longest_solution, ranks_to_compare
from discreet.models.dpmf.rating_training import (
    CHECKS,
    DEVIATION,
    INTERCEPT,
    PAIRS,
    PRIOR_MOMENTS,
    RESIDUAL_MOMENTS,
    Training,
)
from discreet.models.dpmf.user_effects import FIRST, LEAST_NOISE, SLOPES, UserPrior
from discreet.models.fold_in import FoldIn, ItemSimilarity, LeastSquaresFoldIn
from discreet.models.parameters import (
    MOST_SWEEPS,
    check_bool,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.bounds import SMALLEST, Bounds
from discreet.privacy.statistics.gradients import (
    BiasGradient,
    Size,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.statistics.user_effects import ResidualPairs, SolutionGram
from discreet.privacy.users.public_users import PublicUsers
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import WeighEntries

ESTIMATED = "estimated"
# `eigh` decomposes the whole matrix of pairs in float64: M³ operations and 8 M² bytes for
# each copy (32 MB for 2,000 items), and the noise hides pairs of rarer items anyway.
LARGEST_CORE = 2000


@dataclass(frozen=True, repr=False)
class RatingFactorization(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int, optional
        Largest rank of the vectors; the rank used follows from the pairs. 0 learns a bias for each
        item and nothing else. Default 32.
    iterations : int, optional
        T, steps after the pairs. Default 6, or 3 without factors.
    regularization : float or "estimated"
        λ of a user's own solve; estimated, it is σ².
    slope, taste : float or "estimated"
        Variances of β and of p √(mean ℓ²)/σ. 0 leaves the coefficient out.
    bias_iterations : int
        Releases for item biases before all else.
    rarity : float
        a: users weigh items by q_j = c̃_j^(−2a), so that rare items get a share.
    popularity : bool
        Shrink biases toward a regression on the released counts.
    largest_core : int
        Largest number of items that have pairs, at most `LARGEST_CORE`. 0 leaves pairs out, and
        factors with them. On MovieLens 1M, 400 were not better (docs/results/beyond-levers.md).
    gate : float
        Pairs are released where that makes biases worse by less than this part of the error.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "residual gradient"

    factors: int | None = None
    iterations: int | None = None
    regularization: float | str = ESTIMATED
    slope: float | str = ESTIMATED
    taste: float | str = ESTIMATED
    rating_range: Range | None = None
    bias_iterations: int = 3
    rarity: float = 0.3
    popularity: bool = True
    largest_core: int = 200
    gate: float = 0.0005
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        factors = 32 if self.factors is None else self.factors
        usual_steps = 6 if factors else 3
        found = replace(
            self,
            factors=factors,
            iterations=usual_steps if self.iterations is None else self.iterations,
            rating_range=rating_range,
        )
        found._check()
        return found

    def _check(self) -> None:
        check_int("factors", self.factors, 0)
        check_int("iterations", self.iterations, 1, MOST_SWEEPS)
        check_int("bias_iterations", self.bias_iterations, 1, MOST_SWEEPS)
        check_int("largest_core", self.largest_core, 0)
        check_that(
            self.largest_core <= LARGEST_CORE,
            f"largest_core is {self.largest_core!r}, but must be at most {LARGEST_CORE}",
        )
        check_number("rarity", self.rarity)
        check_that(self.rarity <= 2, f"rarity is {self.rarity!r}, but must lie between 0 and 2")
        check_number("gate", self.gate)
        check_bool("popularity", self.popularity)
        if self.regularization != ESTIMATED:
            check_positive("regularization", self.regularization)
        for name in SLOPES:
            if getattr(self, name) != ESTIMATED:
                check_number(name, getattr(self, name))

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        return Bounds(
            items=EVERY_ITEM, rating=self.half, center=middle(self.rating_range), norm=1.0
        )

    def releases(self, n_items: int) -> list[Release]:
        T, biases = self.n_steps, self.bias_iterations
        lines = [
            Release("size", share=0.03, shape=(3,)),
            Release("counts", share=0.04, shape=(n_items,)),
            Release("reweighted counts", share=0.04, shape=(n_items,)),
            Release(PRIOR_MOMENTS, count=biases, share=0.01, shape=(2, 1 + len(self._slopes))),
            Release(
                RESIDUAL_MOMENTS, count=biases + len(self.lines_by_step()), share=0.01, shape=(2,)
            ),
            Release("bias", count=biases, share=0.05, shape=(n_items,)),
        ]
        if self.has_pairs:
            lines.append(Release(PAIRS, share=0.15, shape=None))
            lines += [Release(name, share=0.01, shape=None) for name in CHECKS]
            lines += [
                Release("user gram", step=t, share=0.01 / T, shape=None) for t in range(1, T + 1)
            ]
        rest = (1 - sum(line.share for line in lines)) / T
        shape = None if self.has_pairs else (n_items,)
        return lines + [
            Release("gradient", step=t, share=rest, shape=shape) for t in range(1, T + 1)
        ]

    def lines_by_step(self) -> list[list[str]]:
        """Name the lines that release pairs, a step, or biases: all of one step together."""
        steps = range(1, self.n_steps + 1)
        if not self.has_pairs:
            return [[f"gradient {step}"] for step in steps]
        return [[PAIRS], *([f"gradient {step}", f"user gram {step}"] for step in steps)]

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        n = users.n_items
        rank = min(self.rank, n) if self.has_pairs else 0
        users.apply(WeighEntries(np.ones(n)))
        prior = self.start_prior(Population(1.0, 1.0, 0.0, 0.0), np.ones(n))
        bias = np.ones(n)
        V = np.zeros((n, rank))
        A = prior.solve(users, np.zeros((n, 0)), bias)
        counts = users.sum(WeightCounts())
        gradient = users.sum(BiasGradient())
        found: dict[str, ReleasableSum] = {
            "size": users.sum(Size(self.half)),
            "counts": counts,
            "reweighted counts": counts,
            PRIOR_MOMENTS: users.sum(prior.prior_moments(A)),
            RESIDUAL_MOMENTS: users.sum(prior.residual_moments()),
            "bias": gradient,
        }
        if self.has_pairs:
            found[PAIRS] = users.sum(ResidualPairs(np.arange(min(self.largest_core, n))))
            for name, ranks in zip(CHECKS, ((rank,), ranks_to_compare(rank), (rank,)), strict=True):
                found[name] = users.sum(prior.leave_one_out_gains(V, bias, ranks))
            prior.solve(users, V, bias, INTERCEPT)
            gradient = users.sum(WeightedResidualGradient())
            gram = users.sum(SolutionGram(len(self._slopes), rank, longest_solution(rank)))
            found |= {f"user gram {step}": gram for step in range(1, self.n_steps + 1)}
        return found | {f"gradient {step}": gradient for step in range(1, self.n_steps + 1)}

    @property
    def has_pairs(self) -> bool:
        """Whether factors may be learned."""
        return self.rank > 0 and self.largest_core > 2

    @property
    def half(self) -> float:
        """Half of the width of the rating range."""
        assert self.rating_range is not None
        return width(self.rating_range) / 2

    @property
    def _slopes(self) -> list[str]:
        return [name for name in SLOPES if getattr(self, name) != 0]

    @property
    def n_steps(self) -> int:
        """T."""
        assert self.iterations is not None
        return self.iterations

    @property
    def rank(self) -> int:
        """The largest rank."""
        assert self.factors is not None
        return self.factors

    def start_prior(self, population: Population, popularity: NDArray[np.float64]) -> UserPrior:
        """Make the prior of users' own effects before anything is known of them."""
        variance = (DEVIATION * self.half) ** 2
        given = {name: getattr(self, name) for name in self._slopes}
        fixed = {name: value for name, value in given.items() if value != ESTIMATED}
        level = FIRST["level"] + population.center_variance / variance
        variances = {name: FIRST[name] for name in given} | fixed | {"level": level}
        ridge = None if self.regularization == ESTIMATED else float(self.regularization)
        least = max(LEAST_NOISE * variance, SMALLEST)
        return UserPrior(
            population, popularity, variance, variances, frozenset(fixed), ridge, least
        )

    # ------------------------------------------------------------ learning

    def learn(
        self,
        users: Users,
        session: Session,
        *,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
        public: PublicUsers | None = None,
    ) -> Learned:
        population = release_population(users, session, self.half)
        counts = release_counts(users, session, population, self.rarity)
        biases = None if public is None else PublicBiases.from_users(public)
        training = Training(self, users, session, population, counts, features, biases, public)
        signal = training.check_signal()
        state = training.start()
        for _ in range(self.bias_iterations):
            state = training.release_biases(state, ["bias"], [PRIOR_MOMENTS, RESIDUAL_MOMENTS])
        for step, names in enumerate(self.lines_by_step()):
            if state.factors is not None and state.factors.moving:
                state = training.step(state, names)
            elif training.can_afford_pairs(state, names):
                state = training.release_pairs(state, names)
            else:
                if names == [PAIRS]:
                    state = training.use_public_factors(state)
                state = training.release_biases(state, names, [RESIDUAL_MOMENTS])
            progress(step + 1, len(self.lines_by_step()), "steps")
        state = training.finish_checks(state)
        return training.to_learned(state, signal)

    # ------------------------------------------------------------ fold-in

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """Solve as in training."""
        assert self.rating_range is not None
        found = learned.details
        lead = math.sqrt(found["ridge"] / found["prior_count"])
        center = middle(self.rating_range)
        return LeastSquaresFoldIn(
            found["ridge"], center=center, second_center=found["center"], intercept=lead
        )

    def item_similarity(self, learned: Learned) -> ItemSimilarity:
        """Compare items by their factors."""
        return ItemSimilarity(learned.details["own_columns"])
