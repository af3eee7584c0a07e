"""Ratings, the house's way: biases, what is personal for nothing, pairs of residuals, and steps on
what is left.

A rating is what everybody gives, plus three things that only its user knows, plus taste:

    y_ij = o_i + b_j + β_i b_j + p_i ℓ_j + u_i · v_j + N(0, σ²)                                  (1)

o_i is the user's level, β_i says how far it goes along with what others think, p_i whether it likes
what is popular, ℓ_j being the logarithm of a released count. None of the three needs a number that
has not been released anyway, so they cost nothing. Every user solves for its coefficients by ridge
regression on its own ratings. σ² and the variances of o, β and p are estimated from released
moments of these solutions (`PriorMoments`, `FitMoments`), so that nothing has a unit, and training
and reading out solve the same. u_i ~ N(0, I) is the scale of v.

Released, with noise: the number of users and their mean; counts c̃_j = Σ_i w_ij, w_ij² = q_j / Σ_{j
∈ Ω_i} q_j, in even weights and in such that favor rare items, q_j = c̃_j^(−2a), from which the
likely counts follow (`_empirical_bayes`); and

    g̃_j = Σ_i w_ij e_ij,   ‖(w_ij e_ij)_j‖ ≤ G      for the biases, `bias_iterations` times     (2)
    G̃_jk = Σ_i e_ij e_ik/q_i            pairs of residuals in the core (`residual_covariance`)  (3)
    g̃_j = Σ_i w_ij e_ij (ι, ρ ũ_i),   ũ_i = û_i/‖û_i‖,   ι² + ρ² = 1,   in every step after it  (4)

From (4), with K̃ = ρ Σ_i ‖û_i‖ ũ_i ũ_iᵀ/ñ released as well, and A the part of residuals that the
cut G leaves,

    z_j = A c_j K̃ v_j − g̃_j  =  A c_j K̃ v*_j + noise + what ratings scatter by themselves.    (5)

That is one step of Gauss and Newton with the average curvature for all items. Every z counts by its
noise, with what the pairs say as a prior (`rating_factors`); a step that was taken far from where
the model is now counts less. Biases are estimated by their known noise from all of (2) and the
first coordinate of (4), with a regression on counts and features as a prior (`feature_prior`); sums
from before there were factors count by how far biases have moved since. G follows the released σ².

What is bought is decided by numbers that have been released: pairs, where biases would lose next to
nothing without that part of the budget, until a dimension of taste stands out of the noise of the
pairs, and from then on steps for factors. Else the lines buy biases again. Three times users say
what factors are worth to them, by ratings that they leave out of their own solve
(`LeaveOneOutGains`): before the first step, when factors that lose are given up; after the second,
when dimensions that lose are dropped; and after the last. Where factors have become clearly worse
than they were, those of before come back, and there are no more steps. So the model is never far
below its own bias-only form.

Privacy: lines, mechanism and noise multipliers are fixed and public. *What* the lines of the rest
release is decided by earlier releases. Whatever it is, sums are of residuals over G, of unit
length, so that it has the same sensitivity; every line is μ-GDP with its own μ, and composes
adaptively. G and L are public numbers when they are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.errors import BudgetExceeded
from discreet.models._empirical_bayes import likely_counts, log_counts
from discreet.models._signal_to_noise import check_signal
from discreet.models.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learned,
    Progress,
    Range,
    middle,
    width,
)
from discreet.models.dpmf.feature_prior import FeaturePrior
from discreet.models.dpmf.rating_factors import (
    Counts,
    FactorStage,
    RatingState,
    Steps,
    in_words,
    longest,
    ranks_to_compare,
)
from discreet.models.dpmf.user_effects import ItemBiases, PopulationStats, UserEffects
from discreet.models.fold_in import FoldIn, ItemSimilarity, LeastSquaresFoldIn
from discreet.models.parameters import (
    MOST_SWEEPS,
    check_bool,
    check_int,
    check_number,
    check_positive,
    check_that,
    require_growth,
)
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.gradients import BiasGradient, Size, WeightCounts
from discreet.privacy.statistics.gradients import WeightedResidualGradient as Gradients
from discreet.privacy.statistics.user_effects import ResidualPairs, SolutionGram
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import WeighEntries

BY_SIGNAL = "by signal"
ESTIMATED = "estimated"
PAIRS = "pairs or biases"
WORTH = "worth or biases"
RANK = "rank or biases"
LAST = "last or biases"
COMPARISONS = (WORTH, RANK, LAST)
PRUNE_AFTER = 2  # steps
NEARLY_ALL_BIAS = 0.99  # ι where there are no more steps for factors


@dataclass(frozen=True, repr=False)
class RatingFactorization(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int, optional
        Largest rank of the vectors; how many there are follows from the pairs. 0 learns a bias for
        each item and nothing else. Default 32.
    iterations : int, optional
        T, steps after the pairs. Default 6, or 3 without factors.
    regularization : float or "estimated"
        λ of a user's own solve; estimated, it is σ².
    prior_count : float or "estimated"
        κ: how many ratings at everybody's mean a user's level starts with; estimated, σ² over the
        variance of levels.
    slope, taste : float or "estimated"
        Variances of β and of p √(mean ℓ²)/σ. 0 leaves the coefficient out.
    residual_norm : float, optional
        G of the first step: what a user's residuals are cut to, as a weighted root mean square.
        Default: a fifth of the rating range. Later it is 0.9 σ.
    intercept : float or "by signal"
        ι, the part of the users' norm that goes to biases in every step, from 0.001 to below 1. By
        signal: between 0.5 and 0.9 by the released counts, more where there is little signal.
    bias_iterations : int
        Steps that learn item biases before all else.
    rarity : float
        a: users weigh items by q_j = c̃_j^(−2a), so that rare items get a share.
    growth : float
        How many times the budget μ² of a step is that of the step before.
    likely : bool
        Estimate counts by their known noise; else they are taken as they are.
    attenuation : bool
        Divide sums by the part of the residuals that the cut leaves.
    popularity : bool
        Draw biases toward a regression on the released counts.
    largest_core : int
        How many items have pairs, at most. 0 leaves pairs out, and factors with them.
    gate : float
        Pairs are bought where that makes biases worse by less than this part of the error. 1 always
        buys.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "residual gradient"

    factors: int | None = None
    iterations: int | None = None
    regularization: float | str = ESTIMATED
    prior_count: float | str = ESTIMATED
    slope: float | str = ESTIMATED
    taste: float | str = ESTIMATED
    rating_range: Range | None = None
    residual_norm: float | None = None
    intercept: float | str = BY_SIGNAL
    bias_iterations: int = 3
    rarity: float = 0.3
    growth: float = 1.4
    likely: bool = True
    attenuation: bool = True
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
            residual_norm=(
                width(rating_range) / 5 if self.residual_norm is None else self.residual_norm
            ),
        )
        found._check()
        return found

    def _check(self) -> None:
        check_int("factors", self.factors, 0)
        check_int("iterations", self.iterations, 1, MOST_SWEEPS)
        check_int("bias_iterations", self.bias_iterations, 1, MOST_SWEEPS)
        check_int("largest_core", self.largest_core, 0)
        check_that(
            self.largest_core <= 2000,
            f"largest_core is {self.largest_core!r}, but must be at most 2000",
        )
        for name in ("rarity", "gate"):
            check_number(name, getattr(self, name))
        for name in ("residual_norm", "growth"):
            check_positive(name, getattr(self, name))
        for name in ("likely", "attenuation", "popularity"):
            check_bool(name, getattr(self, name))
        for name in ("regularization", "prior_count", "slope", "taste"):
            value = getattr(self, name)
            if value != ESTIMATED:
                check_number(name, value)
                check_that(
                    value > 0 or name in ("slope", "taste"),
                    f"{name} is {value!r}, but must be above 0",
                )
        check_that(self.rarity <= 2, f"rarity is {self.rarity!r}, but must lie between 0 and 2")
        require_growth(self.growth, self._steps)
        if self.intercept != BY_SIGNAL:
            check_number("intercept", self.intercept)
            inside = 1e-3 <= float(self.intercept) < 1
            check_that(
                inside,
                f"intercept is {self.intercept!r} of the norm, but must be at least 0.001 and"
                " below 1",
            )

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        return Bounds(
            items=EVERY_ITEM, rating=self.first_cut, center=middle(self.rating_range), norm=1.0
        )

    def releases(self, n_items: int) -> list[Release]:
        biases = self.bias_iterations
        lines = [
            Release("size", share=0.03, shape=(3,)),
            Release("counts", share=0.04, shape=(n_items,)),
            Release("recounts", share=0.04, shape=(n_items,)),
            Release("prior", count=biases, share=0.01, shape=(2, 1 + len(self._columns))),
            Release("fit", count=biases + self._steps, share=0.01, shape=(3,)),
            Release("bias", count=biases, share=0.05, shape=(n_items,)),
        ]
        if self.has_pairs:
            lines.append(Release(PAIRS, share=0.15, shape=None))
            lines += [Release(name, share=0.01, shape=None) for name in COMPARISONS]
            lines += [
                Release("balance", step=step + 1, share=0.01 / self._steps, shape=None)
                for step in range(self._steps)
            ]
        rest = 1 - sum(line.share for line in lines)
        return lines + list(dict.fromkeys(self._gradients(n_items, rest)))

    def _gradients(self, n_items: int, share: float = 1.0) -> list[Release]:
        """The release of each step; steps whose noise differs, or what they may buy, are lines
        of their own.
        """
        shape = None if self.has_pairs else (n_items,)
        if self.growth == 1 and not self.has_pairs:
            return [Release("gradient", count=self._steps, share=share, shape=shape)] * self._steps
        parts = self.growth ** np.arange(self._steps)
        each = share * parts / parts.sum()
        return [
            Release("gradient", step=step + 1, share=float(part), shape=shape)
            for step, part in enumerate(each)
        ]

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        n = users.n_items
        users.apply(WeighEntries(np.ones(n)))
        counts = users.sum(WeightCounts())
        personal = self._personal(PopulationStats(1.0, 1.0, 0.0, 0.0), np.ones(n))
        rank = min(self._rank, n) if self.has_pairs else 0
        bias = np.ones(n)
        A = personal.solve(users, np.zeros((n, 0)), bias)
        found: dict[str, ReleasableSum] = {
            "size": users.sum(Size(self.half)),
            "counts": counts,
            "recounts": counts,
        }
        found["prior"] = users.sum(personal.prior_moments(A))
        found["bias"] = users.sum(BiasGradient())
        found["fit"] = users.sum(personal.fit_moments())
        if self.has_pairs:
            found[PAIRS] = users.sum(ResidualPairs(np.arange(min(self.largest_core, n))))
            for name, ranks in ((WORTH, (rank,)), (RANK, ranks_to_compare(rank)), (LAST, (rank,))):
                found[name] = users.sum(
                    personal.leave_one_out_gains(np.zeros((n, rank)), bias, ranks, 1.0)
                )
        gradient = found["bias"]
        if rank:
            personal.solve(users, np.zeros((n, rank)), bias, 0.5)
            balance = users.sum(SolutionGram(len(self._columns), rank, longest(rank)))
            found |= {f"balance {step + 1}": balance for step in range(self._steps)}
            gradient = users.sum(Gradients())
        return found | {str(line): gradient for line in self._gradients(n)}

    @property
    def has_pairs(self) -> bool:
        """Whether there is anything to learn beside biases."""
        return self._rank > 0 and self.largest_core > 2

    @property
    def half(self) -> float:
        """Half of the width of the rating range."""
        assert self.rating_range is not None
        return width(self.rating_range) / 2

    @property
    def first_cut(self) -> float:
        """G before anything has been released."""
        assert self.residual_norm is not None
        return self.residual_norm

    @property
    def _columns(self) -> list[str]:
        return [name for name in ("slope", "taste") if getattr(self, name) != 0]

    @property
    def _steps(self) -> int:
        assert self.iterations is not None
        return self.iterations

    @property
    def _rank(self) -> int:
        assert self.factors is not None
        return self.factors

    def _personal(self, crowd: PopulationStats, popular: NDArray[np.float64]) -> UserEffects:
        given = {
            name: getattr(self, name)
            for name in ("regularization", "prior_count", "slope", "taste")
        }
        return UserEffects(given, (0.4 * self.half) ** 2, self.first_cut, crowd, popular)

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
        n = users.n_items
        crowd = self._size(users, session)
        counts = self._count(users, session, crowd)
        lines = self._gradients(n)
        noise = self._noise(session, lines)
        signal = check_signal(
            session,
            counts.raw,
            counts.deviation,
            noise,
            None,
            "they get little but what others share",
        )
        popular = log_counts(counts.even)
        personal = self._personal(crowd, popular)
        prior = FeaturePrior(n, features, popular if self.popularity else None)
        biases = ItemBiases(counts.c, counts.even, counts.heavy, 0.4 * self.half, prior)
        none = np.zeros((n, 0))
        for _ in range(self.bias_iterations):
            G = personal.largest
            A = personal.solve(users, none, biases.now)
            moments = users.sum(personal.prior_moments(A))
            fitting = users.sum(personal.fit_moments())
            gradient = users.sum(BiasGradient())
            prior_sum, fit, g = session.release_together(
                [("prior", moments), ("fit", fitting), ("bias", gradient)]
            )
            self._update_priors(personal, fit, session.deviation("fit", fitting))
            biases.add(G * g, G * session.deviation("bias", gradient), 1.0, personal)
            biases.settle(personal)
            personal.learn_prior(prior_sum, session.deviation("prior", moments))
            personal.cut_again()
        state = RatingState(personal, biases, counts, crowd)
        tasting = self._factor_stage(users, session, state, features) if self.has_pairs else None
        if tasting is not None:
            self._pairs_or_biases(users, session, [PAIRS], state, tasting, with_fit=False)
        iota = self._iota(counts.c, noise)
        steps_taken = 0
        for step, line in enumerate(lines):
            bought: list[str | Release] = (
                [line, f"balance {step + 1}"] if self.has_pairs else [line]
            )
            if tasting is not None and tasting.steps is not None:
                self._step(users, session, bought, state, tasting.steps, iota)
                steps_taken += 1
                if steps_taken == PRUNE_AFTER:
                    tasting.prune(RANK)
            else:
                self._pairs_or_biases(users, session, bought, state, tasting)
            progress(step + 1, self._steps, "steps")
        if tasting is not None:
            self._leftovers(users, session, state, tasting, steps_taken)
        return self._learned(state, tasting, signal, iota)

    def _size(self, users: Users, session: Session) -> PopulationStats:
        """The mean is drawn to the middle of the range by its known noise."""
        sizes = users.sum(Size(self.half))
        share, m, mean = session.release("size", sizes)
        deviation = session.deviation("size", sizes)
        if m < deviation / 2:
            raise BudgetExceeded(
                f"ε = {session.plan.budget.epsilon:g} is too little for so few people: their"
                f" number, released as {m:,.0f}, cannot be told from its noise of"
                f" ±{deviation:,.0f}; raise epsilon (what was released has been paid for: privacy_"
                " says how much)"
            )
        m = max(float(m), 1.0)
        session.judge_delta(m)
        noise = deviation / m
        trust = 1 / (1 + 4 * noise**2)  # means differ by half of it
        center = float(np.clip(mean / m, -1, 1) * self.half) * trust
        per_user = min(max(float(share) / m, 1.0 / users.n_items), 1.0) * users.n_items
        return PopulationStats(m, per_user, center, trust * (noise * self.half) ** 2)

    def _count(self, users: Users, session: Session, crowd: PopulationStats) -> Counts:
        """Counts in even weights, and in those that all sums have from then on."""
        users.apply(WeighEntries(np.ones(users.n_items)))
        counting = users.sum(WeightCounts())
        first = session.release("counts", counting)
        one = session.deviation("counts", counting)
        heavy = crowd.users / max(float(first.sum()), crowd.users)
        q = np.maximum(first, max(one, 0.5)) ** (-2 * self.rarity)
        users.apply(WeighEntries(q))
        counting = users.sum(WeightCounts())
        raw = session.release("recounts", counting)
        two = session.deviation("recounts", counting)
        if not self.likely:
            floor = max(two / 2, 1e-3)
            return Counts(
                np.maximum(first, max(one, 0.5)), np.maximum(raw, floor), raw, two, heavy, q
            )
        alone = likely_counts(first, np.full(len(first), one**2))
        unit = np.sqrt(q) * max(float(raw.sum()), 1.0) / max(float((alone * np.sqrt(q)).sum()), 1.0)
        precision = one**-2 + (unit / two) ** 2
        both = (first / one**2 + raw * unit / two**2) / precision
        even = likely_counts(both, 1 / precision)
        return Counts(np.maximum(even, 1e-3), np.maximum(even * unit, 1e-3), raw, two, heavy, q)

    def _noise(self, session: Session, lines: list[Release]) -> float:
        """The deviation of the noise on the gradients of all steps together, relative to what
        one user can add.
        """
        precision = float(sum(session.plan.noise_multiplier(line) ** -2 for line in lines))
        factor = 2.0 if session.plan.budget.neighboring == "replace-one" else 1.0
        return factor / math.sqrt(precision)

    def _iota(self, c: NDArray[Any], noise: float) -> float:
        """ι by the signal that all steps together can hold over the noise on it, for an average
        item.
        """
        if self.intercept != BY_SIGNAL:
            return float(self.intercept)
        return float(np.clip(1.05 - 0.027 * c.mean() / noise, 0.5, 0.9))

    def _update_priors(self, personal: UserEffects, fit: NDArray[Any], deviation: float) -> None:
        personal.learn_fit(fit, deviation)
        if not self.attenuation:
            personal.left = 1.0

    # ------------------------------------------------------------ what the rest buys

    def _factor_stage(
        self, users: Users, session: Session, state: RatingState, features: NDArray[Any] | None
    ) -> FactorStage:
        lines = [Release("bias"), Release(PAIRS), *self._gradients(1)]
        whole = sum(
            session.plan.noise_multiplier(name) ** -2 for name in dict.fromkeys(map(str, lines))
        )
        return FactorStage(
            users, session, state, features, self.largest_core, self._rank, self.gate, whole
        )

    def _pairs_or_biases(
        self,
        users: Users,
        session: Session,
        names: list[str | Release],
        state: RatingState,
        tasting: FactorStage | None,
        with_fit: bool = True,
    ) -> None:
        """Pairs where biases can do without, else (2) again."""
        personal = state.personal
        G = personal.largest
        pairs = tasting is not None and tasting.is_affordable(names)
        if pairs:
            assert tasting is not None
            tasting.prepare_residuals()
        else:
            personal.solve(users, np.zeros((users.n_items, 0)), state.biases.now)
        if with_fit:
            fitting = users.sum(personal.fit_moments())
            self._update_priors(
                personal, session.release("fit", fitting), session.deviation("fit", fitting)
            )
        if pairs:
            assert tasting is not None
            tasting.release_pairs(names)
            if tasting.steps is not None:
                tasting.check_gain(WORTH)
        else:
            gradient = users.sum(BiasGradient())
            sums = session.release_together([(name, gradient) for name in names])
            for name, g in zip(names, sums, strict=True):
                state.biases.add(G * g, G * session.deviation(name, gradient), 1.0, personal)
            state.biases.settle(personal)
        personal.cut_again()

    def _leftovers(
        self,
        users: Users,
        session: Session,
        state: RatingState,
        tasting: FactorStage,
        steps_taken: int,
    ) -> None:
        """What the lines that compare ranks buy where there was nothing to compare."""
        left: list[str | Release] = [] if tasting.closed else [WORTH]
        if tasting.steps is None:
            left += [RANK, LAST]
        else:
            if steps_taken < PRUNE_AFTER:
                tasting.prune(RANK)
            tasting.final_check(LAST)
        if left:
            self._pairs_or_biases(users, session, left, state, None, with_fit=False)

    def _step(
        self,
        users: Users,
        session: Session,
        names: list[str | Release],
        state: RatingState,
        steps: Steps,
        iota: float,
    ) -> None:
        """(4) and (5)."""
        personal = state.personal
        line, balance = names
        rank = steps.V.shape[1]
        G = personal.largest
        iota = NEARLY_ALL_BIAS if steps.over else iota
        personal.solve(users, steps.V, state.biases.now, iota)
        fitting = users.sum(personal.fit_moments())
        gram = users.sum(SolutionGram(len(self._columns), rank, longest(rank)))
        gradient = users.sum(Gradients())
        fit, packed, g = session.release_together(
            [("fit", fitting), (balance, gram), (line, gradient)]
        )
        self._update_priors(personal, fit, session.deviation("fit", fitting))
        deviation = session.deviation(line, gradient) * G
        g = g * G
        state.biases.add(g[:, 0], deviation, iota, personal)
        state.biases.settle(personal, moving=True)
        rho = math.sqrt(1 - iota**2)
        per_user = rho * longest(rank) / state.crowd.users
        K = per_user * gram.unpack(packed)[0]
        unsure = per_user * session.deviation(balance, gram)
        steps.take(K, unsure, g[:, 1:], deviation, personal, rho)
        personal.cut_again()

    def _learned(
        self,
        state: RatingState,
        tasting: FactorStage | None,
        signal: Mapping[str, float],
        iota: float,
    ) -> Learned:
        personal = state.personal
        bias = state.biases.now
        steps = None if tasting is None else tasting.steps
        V = np.zeros((len(bias), 0)) if steps is None else steps.V
        A = np.hstack([personal.columns(bias), V])
        counts = state.counts
        dimensions = 0 if tasting is None else tasting.dimensions
        details = {
            "center": state.crowd.center,
            **personal.values,
            "own_columns": len(self._columns),
            "share_rated": state.crowd.per_user / len(bias),
            "intercept": 1.0 if steps is None else iota,
            "signal_to_noise": signal,
            "dimensions": dimensions,
            "feature_strength": None if tasting is None else tasting.strength,
            "learned": in_words(dimensions),
        }
        return Learned(
            A.astype(np.float32), bias.astype(np.float32), counts.even / counts.heavy, details
        )

    # ------------------------------------------------------------ reading out

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """A user's own solve, as in training."""
        assert self.rating_range is not None
        found = learned.details
        lead = math.sqrt(found["ridge"] / found["prior_count"])
        center = middle(self.rating_range)
        return LeastSquaresFoldIn(
            found["ridge"], center=center, second_center=found["center"], intercept=lead
        )

    def item_similarity(self, learned: Learned) -> ItemSimilarity:
        """By what was learned of taste."""
        return ItemSimilarity(learned.details["own_columns"])
