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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.grams import symmetric_of
from discreet.models._empirical_bayes import Noisy, log_counts
from discreet.models._signal_to_noise import check_signal
from discreet.models.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learned,
    Progress,
    Range,
    middle,
    most_frequent,
    width,
)
from discreet.models.dpmf.feature_prior import prior_features, standardize
from discreet.models.dpmf.item_biases import ItemBiases
from discreet.models.dpmf.population import (
    Counts,
    Population,
    release_counts,
    release_population,
)
from discreet.models.dpmf.rating_factors import (
    Factors,
    Gain,
    choose_rank,
    longest_solution,
    principal_basis,
    ranks_to_compare,
)
from discreet.models.dpmf.residual_covariance import EXTRA_DIMENSIONS, find_factors, whiten
from discreet.models.dpmf.user_effects import FIRST, SLOPES, UserPrior
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
from discreet.privacy.release.plan import Line
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.sums import unpack
from discreet.privacy.users.gradient_steps import (
    BiasGradient,
    Size,
    WeighEntries,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.users.ridge import ResidualPairs, SolutionGram
from discreet.privacy.users.sealed_users import Users

ESTIMATED = "estimated"
PRIOR_MOMENTS = "prior moments"
RESIDUAL_MOMENTS = "residual moments"
PAIRS = "item pairs (or biases)"
CHECKS = ("factor check 1", "factor check 2", "factor check 3")
COMPARE_RANKS_AFTER = 2  # steps: before, gains hardly show
MIN_RATINGS_IN_CORE = 6.0  # of an average user: with fewer, pairs cost more than factors gain
INTERCEPT = 0.6  # ι: the part of a step's norm that goes to biases
DEVIATION = 0.4  # of ratings and of biases, a priori, over half of the rating range


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
        How many items have pairs, at most. 0 leaves pairs out, and factors with them.
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
        # its matrix of pairs is inverted in memory, and noise hides pairs of rarer items
        check_that(
            self.largest_core <= 2000,
            f"largest_core is {self.largest_core!r}, but must be at most 2000",
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

    def releases(self, n_items: int) -> list[Line]:
        T, biases = self._steps, self.bias_iterations
        lines = [
            Line("size", share=0.03, shape=(3,)),
            Line("counts", share=0.04, shape=(n_items,)),
            Line("reweighted counts", share=0.04, shape=(n_items,)),
            Line(PRIOR_MOMENTS, times=biases, share=0.01, shape=(2, 1 + len(self._slopes))),
            Line(RESIDUAL_MOMENTS, times=biases + len(self._lines()), share=0.01, shape=(2,)),
            Line("bias", times=biases, share=0.05, shape=(n_items,)),
        ]
        if self.has_pairs:
            lines.append(Line(PAIRS, share=0.15, shape=None))
            lines += [Line(name, share=0.01, shape=None) for name in CHECKS]
            lines += [Line("user gram", t, share=0.01 / T, shape=None) for t in range(1, T + 1)]
        rest = (1 - sum(line.share for line in lines)) / T
        shape = None if self.has_pairs else (n_items,)
        return lines + [Line("gradient", t, share=rest, shape=shape) for t in range(1, T + 1)]

    def _lines(self) -> list[list[str]]:
        """Name the lines that release pairs, a step, or biases: all of one step together."""
        steps = range(1, self._steps + 1)
        if not self.has_pairs:
            return [[f"gradient {step}"] for step in steps]
        return [[PAIRS], *([f"gradient {step}", f"user gram {step}"] for step in steps)]

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        n = users.n_items
        rank = min(self._rank, n) if self.has_pairs else 0
        users.apply(WeighEntries(np.ones(n)))
        prior = self._prior(Population(1.0, 1.0, 0.0, 0.0), np.ones(n))
        bias, V = np.ones(n), np.zeros((n, rank))
        A = prior.solve(users, np.zeros((n, 0)), bias)
        counts, gradient = users.sum(WeightCounts()), users.sum(BiasGradient())
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
            found |= {f"user gram {step}": gram for step in range(1, self._steps + 1)}
        return found | {f"gradient {step}": gradient for step in range(1, self._steps + 1)}

    @property
    def has_pairs(self) -> bool:
        """Whether factors may be learned."""
        return self._rank > 0 and self.largest_core > 2

    @property
    def half(self) -> float:
        """Half of the width of the rating range."""
        assert self.rating_range is not None
        return width(self.rating_range) / 2

    @property
    def _slopes(self) -> list[str]:
        return [name for name in SLOPES if getattr(self, name) != 0]

    @property
    def _steps(self) -> int:
        assert self.iterations is not None
        return self.iterations

    @property
    def _rank(self) -> int:
        assert self.factors is not None
        return self.factors

    def _prior(self, population: Population, popularity: NDArray[np.float64]) -> UserPrior:
        """Make the prior of users' own effects before anything is known of them."""
        variance = (DEVIATION * self.half) ** 2
        given = {name: getattr(self, name) for name in self._slopes}
        fixed = {name: value for name, value in given.items() if value != ESTIMATED}
        level = FIRST["level"] + population.center_variance / variance
        variances = {name: FIRST[name] for name in given} | fixed | {"level": level}
        ridge = None if self.regularization == ESTIMATED else float(self.regularization)
        return UserPrior(population, popularity, variance, variances, frozenset(fixed), ridge)

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
        population = release_population(users, session, self.half)
        counts = release_counts(users, session, population, self.rarity)
        training = Training(self, users, session, population, counts, features)
        signal = training.check_signal()
        state = training.start()
        for _ in range(self.bias_iterations):
            state = training.release_biases(state, ["bias"], [PRIOR_MOMENTS, RESIDUAL_MOMENTS])
        for step, names in enumerate(self._lines()):
            if state.factors is not None and state.factors.moving:
                state = training.step(state, names)
            elif training.can_afford_pairs(state, names):
                state = training.release_pairs(state, names)
            else:
                state = training.release_biases(state, names, [RESIDUAL_MOMENTS])
            progress(step + 1, len(self._lines()), "steps")
        state = training.finish_checks(state)
        return training.learned(state, signal)

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


class State(NamedTuple):
    """What the releases so far say: made of released numbers alone."""

    prior: UserPrior
    biases: ItemBiases
    factors: Factors | None = None
    pairs: Noisy | None = None

    @property
    def V(self) -> NDArray[np.float64]:
        """Item factors, (n_items, r)."""
        return np.zeros((len(self.biases.now), 0)) if self.factors is None else self.factors.V


@dataclass(frozen=True)
class Training:
    """One training: the sealed users, the session, and what does not change any more.

    Every method that releases something takes a `State` and returns the next one.
    """

    algorithm: RatingFactorization
    users: Users
    session: Session
    population: Population
    counts: Counts
    features: NDArray[Any] | None

    @cached_property
    def core(self) -> NDArray[np.int64]:
        """The most rated items, which have pairs."""
        most = min(self.algorithm.largest_core, self.users.n_items)
        return most_frequent(self.counts.even, most)

    def start(self) -> State:
        """Return what is known before any bias is released."""
        n = self.users.n_items
        popularity = log_counts(self.counts.even)
        use = popularity if self.algorithm.popularity else None
        deviation = DEVIATION * self.algorithm.half
        F = prior_features(n, self.features, use)
        return State(
            self.algorithm._prior(self.population, popularity),
            ItemBiases(self.counts, F, deviation, np.zeros(n)),
        )

    def check_signal(self) -> dict[str, float]:
        """Compare the released counts with the noise that all steps together have."""
        return check_signal(
            self.session,
            self.counts.raw,
            self.counts.deviation,
            self._unit_noise(sum(map(self._precision, self._gradients))),
            None,
            "their predictions rest on little but what all items share",
        )

    def release_biases(
        self, state: State, names: Sequence[str], moments: Sequence[str] = ()
    ) -> State:
        """Release (2) by these lines, with moments of the users' own solutions."""
        prior, biases = state.prior, state.biases
        A = prior.solve(self.users, state.V, biases.now)
        made = {PRIOR_MOMENTS: prior.prior_moments(A), RESIDUAL_MOMENTS: prior.residual_moments()}
        wanted = {name: self.users.sum(made[name]) for name in moments}
        wanted |= {name: self.users.sum(BiasGradient()) for name in names}
        found = self._release(wanted)
        prior = self._update_noise(prior, found)
        for name in names:
            biases = biases.add(found[name].scale(state.prior.cut))
        biases = biases.estimate(prior.variance, moving=state.factors is not None)
        if PRIOR_MOMENTS in found:
            prior = prior.update_variances(found[PRIOR_MOMENTS])
        return state._replace(prior=prior, biases=biases)

    def can_afford_pairs(self, state: State, names: Sequence[str]) -> bool:
        """Tell whether biases would lose next to nothing without these lines.

        Pairs are released until a dimension stands out, which is followed by the first check.
        """
        per_user = self.population.per_user * self.counts.share_of(self.core)
        if CHECKS[0] not in self.session.list_remaining() or per_user < MIN_RATINGS_IN_CORE:
            return False
        whole = sum(map(self._precision, ["bias", PAIRS, *self._gradients]))
        spent = 0.0 if state.pairs is None else (self._unit_noise(1.0) / state.pairs.deviation) ** 2
        less = whole - spent - sum(map(self._precision, names))
        error, least = (
            state.biases.expected_error(
                state.prior.cut * self._unit_noise(precision), state.prior.variance
            )
            for precision in (less, whole)
        )
        return (error - least) / (2 * state.prior.variance) < self.algorithm.gate

    def release_pairs(self, state: State, names: Sequence[str]) -> State:
        """Release (3); factors begin where a dimension stands out of the noise."""
        n, counts, M = self.users.n_items, self.counts, len(self.core)
        self.users.apply(WeighEntries(np.ones(n)))
        state.prior.solve(self.users, state.V, state.biases.now)
        wanted = {name: self.users.sum(ResidualPairs(self.core)) for name in names}
        moments = self.users.sum(state.prior.residual_moments())
        found = self._release({RESIDUAL_MOMENTS: moments, **wanted})
        self.users.apply(WeighEntries(counts.importance))
        prior, pairs = self._update_noise(state.prior, found), state.pairs
        for name in names:
            pairs = found[name].average(pairs)
        assert pairs is not None
        state = state._replace(prior=prior, pairs=pairs)
        G, deviation = pairs.scale(1 / math.sqrt(2.0))
        c = np.maximum(counts.even[self.core], 0.5)
        per_user = max(self.population.per_user * counts.share_of(self.core), 1.0)
        with_pairs = self.population.users * (1 - math.exp(-per_user))
        seen = whiten(symmetric_of(G, M), deviation, c, with_pairs)
        if not seen.dimensions:
            return state
        scale = self.population.users * max(per_user - 0.5, 0.5) / prior.variance
        scale /= max(float(c.sum() ** 2 - (c**2).sum()), 1e-9)
        F = None if self.features is None else standardize(self.features)
        rank = min(self.algorithm._rank, M, seen.dimensions + EXTRA_DIMENSIONS)
        posterior = find_factors(seen, rank, scale, None if F is None else F[self.core])
        factors = Factors.from_pairs(self.core, posterior, F, n, prior.variance)
        return self.check_factors(state._replace(factors=factors), CHECKS[0])

    def step(self, state: State, names: Sequence[str]) -> State:
        """Take one step by (4) and (5); after the second, compare ranks."""
        prior, factors = state.prior, state.factors
        assert factors is not None
        rank, longest = factors.rank, longest_solution(factors.rank)
        rho = math.sqrt(1 - INTERCEPT**2)
        prior.solve(self.users, factors.V, state.biases.now, INTERCEPT)
        line, gram = names
        found = self._release(
            {
                RESIDUAL_MOMENTS: self.users.sum(prior.residual_moments()),
                gram: self.users.sum(SolutionGram(prior.n_slopes, rank, longest)),
                line: self.users.sum(WeightedResidualGradient()),
            }
        )
        prior = self._update_noise(prior, found)
        g, (packed, deviation) = found[line].scale(state.prior.cut), found[gram]
        biases = state.biases.add(Noisy(g.value[:, 0], g.deviation), INTERCEPT)
        K = Noisy(unpack(packed, rank)[0], deviation).scale(rho * longest / self.population.users)
        g = Noisy(g.value[:, 1:], g.deviation)
        factors = factors.take_step(K, g, rho, self.counts, prior.variance)
        biases = biases.estimate(prior.variance, moving=True)
        state = state._replace(prior=prior, biases=biases, factors=factors)
        if len(factors.steps) == COMPARE_RANKS_AFTER:
            return self.check_factors(state, CHECKS[1], compare_ranks=True)
        return state

    def check_factors(
        self, state: State, name: str, compare_ranks: bool = False, last: bool = False
    ) -> State:
        """Release what users gain by factors, and keep them, smaller ones, earlier ones or none.

        A rating that a user leaves out has been learned from all the same: at the end, factors seem
        to gain σ² for each of their numbers by what they have made of the scatter of ratings, and
        must gain more.
        """
        factors = state.factors
        assert factors is not None
        ranks: tuple[int, ...] = (factors.rank,)
        if compare_ranks:
            ranks = ranks_to_compare(factors.rank)
            factors = factors.rotate(principal_basis(factors.V, self.counts.even))
        gains = state.prior.leave_one_out_gains(factors.V, state.biases.now, ranks, factors.unit)
        released = self._release({name: self.users.sum(gains)})[name]
        released = released.scale(math.sqrt(len(ranks)) * factors.unit)
        best = choose_rank(ranks, *released)
        if ranks[best] < factors.rank:
            factors = factors.rotate(np.eye(factors.rank, ranks[best]))
        numbers = factors.rank * len(factors.core) if last else 0
        chance = numbers * state.prior.variance / self.population.per_user
        gain = Gain(float(released.value[best]), released.deviation)
        return state._replace(factors=factors.keep(gain, chance))

    def finish_checks(self, state: State) -> State:
        """Check factors for the last time; lines of checks that were not made release biases."""
        if state.factors is not None:
            state = self.check_factors(state, CHECKS[2], last=True)
        left = [name for name in CHECKS if name in self.session.list_remaining()]
        return self.release_biases(state, left) if left else state

    def learned(self, state: State, signal: Mapping[str, float]) -> Learned:
        """Return the model in the form in which it is saved."""
        prior, bias, factors = state.prior, state.biases.now, state.factors
        dimensions = 0 if factors is None else factors.dimensions
        details = {
            "center": self.population.center,
            "noise_variance": prior.variance,
            "ridge": prior.ridge,
            "prior_count": prior.prior_count,
            **{name: prior.variances.get(name, 0.0) for name in SLOPES},
            "own_columns": prior.n_slopes,
            "share_rated": self.population.per_user / len(bias),
            "signal_to_noise": signal,
            "dimensions": dimensions,
            "feature_strength": None if factors is None else factors.strength,
            "learned": describe(dimensions),
        }
        A = np.hstack([prior.columns(bias), state.V]).astype(np.float32)
        counts = self.counts.even / self.counts.weight
        return Learned(A, bias.astype(np.float32), counts, details)

    def _release(self, wanted: Mapping[str, ReleasableSum]) -> dict[str, Noisy]:
        """Release these statistics together."""
        found = self.session.release_together(list(wanted.items()))
        return {
            name: Noisy(value, self.session.deviation(name, wanted[name]))
            for name, value in zip(wanted, found, strict=True)
        }

    def _update_noise(self, prior: UserPrior, found: Mapping[str, Noisy]) -> UserPrior:
        moments = found.get(RESIDUAL_MOMENTS)
        return prior if moments is None else prior.update_noise(moments)

    @property
    def _gradients(self) -> list[str]:
        return [f"gradient {step}" for step in range(1, self.algorithm._steps + 1)]

    def _precision(self, name: str) -> float:
        return float(self.session.plan.noise_multiplier(name) ** -2)

    def _unit_noise(self, precision: float) -> float:
        """Return the noise of releases with that precision, over what a user can add to a sum."""
        factor = 2.0 if self.session.plan.budget.neighboring == "replace-one" else 1.0
        return float(factor * max(precision, 1e-12) ** -0.5)


def describe(dimensions: int) -> str:
    """Say what was learned, for `summary_`."""
    own = "each user's own level and how far it follows item averages and popularity"
    if not dimensions:
        return f"Learned item biases, and {own}; no factor stands out of the noise."
    return (
        f"Learned item biases, {own}, and taste in about {dimensions}"
        f" dimension{'s' if dimensions > 1 else ''}."
    )
