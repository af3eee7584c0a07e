"""The training of rating DPMF: one method for each kind of release, between frozen states.

`rating` has the equations. A `State` is made of released numbers alone; every method that releases
something takes one and returns the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models._empirical_bayes import Noisy, log_counts
from discreet.models.algorithm import Learned, check_signal, most_frequent
from discreet.models.dpmf.feature_prior import prior_features, standardize
from discreet.models.dpmf.item_biases import ItemBiases
from discreet.models.dpmf.population import Counts, Population
from discreet.models.dpmf.public_biases import PublicBiases
from discreet.models.dpmf.public_factors import (
    PublicFactors,
    choose_dimensions,
    fit_public_factors,
    keep_most_active,
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
from discreet.models.dpmf.user_effects import SLOPES, UserPrior
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.gradients import BiasGradient, WeightedResidualGradient
from discreet.privacy.statistics.user_effects import ResidualPairs, SolutionGram
from discreet.privacy.users.public_users import PublicUsers
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import WeighEntries

if TYPE_CHECKING:
    from discreet.models.dpmf.rating import RatingFactorization

PRIOR_MOMENTS = "prior moments"
RESIDUAL_MOMENTS = "residual moments"
PAIRS = "item pairs (or biases)"
CHECKS = ("factor check 1", "factor check 2", "factor check 3")
COMPARE_RANKS_AFTER = 2  # steps: before, gains hardly show
MIN_RATINGS_IN_CORE = 6.0  # of an average user: with fewer, pairs cost more than factors gain
INTERCEPT = 0.6  # ι: the part of a step's norm that goes to biases
DEVIATION = 0.4  # of ratings and of biases, a priori, over half of the rating range


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
    public: PublicBiases | None = None
    public_users: PublicUsers | None = None

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
            self.algorithm.start_prior(self.population, popularity),
            ItemBiases(self.counts, F, deviation, np.zeros(n), public=self.public),
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
        n = self.users.n_items
        counts = self.counts
        M = len(self.core)
        self.users.apply(WeighEntries(np.ones(n)))
        state.prior.solve(self.users, state.V, state.biases.now)
        products = ResidualPairs(self.core)
        wanted = {name: self.users.sum(products) for name in names}
        moments = self.users.sum(state.prior.residual_moments())
        found = self._release({RESIDUAL_MOMENTS: moments, **wanted})
        self.users.apply(WeighEntries(counts.importance))
        prior = self._update_noise(state.prior, found)
        pairs = state.pairs
        for name in names:
            pairs = found[name].average(pairs)
        assert pairs is not None
        state = state._replace(prior=prior, pairs=pairs)
        c = np.maximum(counts.even[self.core], 0.5)
        per_user = max(self.population.per_user * counts.share_of(self.core), 1.0)
        with_pairs = self.population.users * (1 - math.exp(-per_user))
        deviation = products.entry_deviation(pairs.deviation)
        seen = whiten(products.unpack(pairs.value), deviation, c, with_pairs)
        if not seen.dimensions:
            return self.use_public_factors(state)
        scale = self.population.users * max(per_user - 0.5, 0.5) / prior.variance
        scale /= max(float(c.sum() ** 2 - (c**2).sum()), 1e-9)
        F = None if self.features is None else standardize(self.features)
        public = self._fit_public(state)
        if public is not None:
            X = public.unit_means(self.core)
            F = X if F is None else np.hstack([F, X])
        rank = min(self.algorithm.rank, M, seen.dimensions + EXTRA_DIMENSIONS)
        posterior = find_factors(seen, rank, scale, None if F is None else F[self.core])
        factors = Factors.from_pairs(self.core, posterior, F, n, prior.variance)
        return self.check_factors(state._replace(factors=factors), CHECKS[0])

    def use_public_factors(self, state: State) -> State:
        """Take the factors of public users as they are, unless private users lose by them.

        Three checks are averaged, since there will be no others: factors do not change any more.
        """
        found = self._fit_public(state)
        if found is None:
            return state
        factors = Factors.from_public(found, state.prior.variance)
        ranks = (factors.rank,)
        gains = state.prior.leave_one_out_gains(factors.V, state.biases.now, ranks, factors.unit)
        released = self._release({name: self.users.sum(gains) for name in CHECKS})
        one, two, three = (released[name].scale(factors.unit) for name in CHECKS)
        gain = one.average(two).average(three)
        return state._replace(factors=factors.keep(Gain(float(gain.value[0]), gain.deviation)))

    def _fit_public(self, state: State) -> PublicFactors | None:
        """Fit factors to public users; None where their biases have nothing in common with those
        of private users, or where one half of them does not gain by factors of the other.
        """
        if self.public_users is None or not state.biases.agrees:
            return None
        given = keep_most_active(self.public_users), state.prior, state.biases.now
        rank = choose_dimensions(*given)
        return fit_public_factors(*given).first(rank) if rank else None

    def step(self, state: State, names: Sequence[str]) -> State:
        """Take one step by (4) and (5); after the second, compare ranks."""
        prior, factors = state.prior, state.factors
        assert factors is not None
        rank = factors.rank
        longest = longest_solution(rank)
        rho = math.sqrt(1 - INTERCEPT**2)
        prior.solve(self.users, factors.V, state.biases.now, INTERCEPT)
        line, gram = names
        products = self.users.sum(SolutionGram(prior.n_slopes, rank, longest))
        found = self._release(
            {
                RESIDUAL_MOMENTS: self.users.sum(prior.residual_moments()),
                gram: products,
                line: self.users.sum(WeightedResidualGradient()),
            }
        )
        prior = self._update_noise(prior, found)
        g = found[line].scale(state.prior.cut)
        packed, deviation = found[gram]
        biases = state.biases.add(Noisy(g.value[:, 0], g.deviation), INTERCEPT)
        K = Noisy(products.unpack(packed)[0], deviation).scale(
            rho * longest / self.population.users
        )
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
        if state.factors is not None and CHECKS[2] in self.session.list_remaining():
            state = self.check_factors(state, CHECKS[2], last=True)
        left = [name for name in CHECKS if name in self.session.list_remaining()]
        return self.release_biases(state, left) if left else state

    def to_learned(self, state: State, signal: Mapping[str, float]) -> Learned:
        """Return the model in the form in which it is saved."""
        prior, bias, factors = state.prior, state.biases.now, state.factors
        dimensions = 0 if factors is None else factors.dimensions
        learned = describe(dimensions)
        if factors is not None and not factors.moving and not factors.steps:
            learned = f"{learned} Taste is that of public users alone."
        if self.public is not None:
            learned = f"{learned} {PUBLIC_BIASES[state.biases.agrees]}"
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
            "learned": learned,
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
        return [f"gradient {step}" for step in range(1, self.algorithm.n_steps + 1)]

    def _precision(self, name: str) -> float:
        return float(self.session.plan.noise_multiplier(name) ** -2)

    def _unit_noise(self, precision: float) -> float:
        """Return the noise of releases with that precision, over what a user can add to a sum."""
        factor = 2.0 if self.session.plan.budget.neighboring == "replace-one" else 1.0
        return float(factor * max(precision, 1e-12) ** -0.5)


PUBLIC_BIASES = {
    True: "The biases of public users are a prior.",
    False: "Public users change nothing: released biases do not agree with theirs.",
}


def describe(dimensions: int) -> str:
    """Say what was learned, for `summary_`."""
    learned = "item biases, user effects (level, and slopes on item averages and popularity)"
    if not dimensions:
        return f"Learned {learned}; no taste exceeds the noise."
    plural = "s" if dimensions > 1 else ""
    return f"Learned {learned} and about {dimensions} dimension{plural} of taste."
