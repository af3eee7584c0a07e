"""From pairs of residuals to factors: buying pairs until taste stands out of their noise, and steps
from there.

All of it works on released numbers; `residual_gradient` has the equations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import most_frequent
from discreet.models.dpmf.feature_prior import standardize
from discreet.models.dpmf.residual_covariance import FactorPosterior, spectrum, tastes
from discreet.models.dpmf.user_effects import ItemBiases, PopulationStats, UserEffects
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.user_effects import ResidualPairs
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import WeighEntries

MARGIN = 3  # dimensions beside those that stand out of the noise
FORGET = 0.5  # how far from the average an item's curvature is taken to be
OWN_SHARE = 0.5  # of D: see `without_own_share`
# ratings of a user in the core: with less, pairs say little of taste, and steps from them go astray
FEWEST = 12.0
FEWEST_OF_ALL = 6.0  # where the core is the catalog, but for a tenth of the ratings
NEARLY_ALL = 0.9
Z_IMPROVE = 3.0  # times the deviation of its noise: from then on a gain is one
Z_DROP = 0.5  # likewise, for factors that lose
Z_REVERT = 3.0  # likewise, for steps after which factors are worth less than before
BLOCK = 4096  # items whose factors are solved for at a time


class Counts(NamedTuple):
    """Counts in even weights and in those of the sums, the latter as released, their noise,
    what a rating weighs, q.
    """

    even: NDArray[np.float64]
    c: NDArray[np.float64]
    raw: NDArray[np.float64]
    deviation: float
    heavy: float
    importance: NDArray[np.float64]


class RatingState(NamedTuple):
    """What is known beside taste."""

    personal: UserEffects
    biases: ItemBiases
    counts: Counts
    crowd: PopulationStats


class ReleasedGain(NamedTuple):
    """Factors, what users gained by them, and the noise on that."""

    V: NDArray[np.float64]
    gain: float
    deviation: float


class FactorStage:
    """Pairs, as far as they are worth it, and the steps after them.

    Parameters
    ----------
    users, session
    state : State
    features : (n_items, k), optional
    largest_core, rank : int
        Items with pairs, and dimensions, at most.
    gate : float
        How much worse biases may become, relative to the error, by what pairs cost in all.
    whole : float
        Σ 1/multiplier² of all lines that could buy biases.
    """

    def __init__(
        self,
        users: Users,
        session: Session,
        state: RatingState,
        features: NDArray[Any] | None,
        largest_core: int,
        rank: int,
        gate: float,
        whole: float,
    ) -> None:
        self._users = users
        self._session = session
        self.state = state
        self._features = None if features is None else standardize(features)
        self.core = most_frequent(state.counts.even, min(largest_core, users.n_items))
        self._rank = min(rank, len(self.core))
        self._gate = gate
        self._whole = whole
        self._given_up = 0.0
        self._sum = np.zeros((len(self.core), len(self.core)))
        self._precision = 0.0
        self.closed = False
        self.steps: Steps | None = None
        self.strength: float | None = None
        self.dimensions = 0
        self._best = ReleasedGain(np.zeros((users.n_items, 0)), 0.0, 0.0)

    def is_affordable(self, names: Sequence[str | Release]) -> bool:
        """Whether biases would lose next to nothing without these lines and those that were
        given up before.
        """
        plan = self._session.plan
        state = self.state
        largest = state.personal.largest * (
            2.0 if plan.budget.neighboring == "replace-one" else 1.0
        )
        cost = self._given_up + sum(plan.noise_multiplier(name) ** -2 for name in names)
        less, all_of_it = (
            state.biases.error(largest * max(part, 1e-12) ** -0.5, state.personal)
            for part in (self._whole - cost, self._whole)
        )
        return (
            not self.closed
            and len(self.core) > 2
            and self._enough_each()
            and (less - all_of_it) / (2 * state.personal.variance) < self._gate
        )

    def _enough_each(self) -> bool:
        """Whether people have rated enough items of the core, on average."""
        counts = self.state.counts.even
        share = min(float(counts[self.core].sum()) / max(float(counts.sum()), 1e-9), 1.0)
        return self.state.crowd.per_user * share >= (
            FEWEST_OF_ALL if share >= NEARLY_ALL else FEWEST
        )

    def prepare_residuals(self) -> None:
        """Users solve for what is personal but for taste, and weigh all items alike."""
        n = self._users.n_items
        self._users.apply(WeighEntries(np.ones(n)))
        self.state.personal.solve(self._users, np.zeros((n, 0)), self.state.biases.now)

    def release_pairs(self, names: Sequence[str | Release]) -> None:
        """Pairs from these lines, together with those bought before; steps can begin where a
        dimension stands out.
        """
        pairs = ResidualPairs(self.core)
        products = self._users.sum(pairs)
        deviations = [
            pairs.entry_deviation(self._session.deviation(name, products)) for name in names
        ]
        released = self._session.release_together([(name, products) for name in names])
        for one, deviation in zip(released, deviations, strict=True):
            self._sum += pairs.unpack(one) / deviation**2
            self._precision += deviation**-2
        self._users.apply(WeighEntries(self.state.counts.importance))
        self._given_up += sum(self._session.plan.noise_multiplier(name) ** -2 for name in names)
        self._taste()

    def _taste(self) -> None:
        counts, crowd, personal = self.state.counts, self.state.crowd, self.state.personal
        c = np.maximum(counts.even[self.core], 0.5)
        part = min(float(c.sum()) / max(float(counts.even.sum()), 1e-9), 1.0)
        per_user = max(crowd.per_user * part, 1.0)
        several = crowd.users * (1 - math.exp(-per_user))  # who have a pair, more or less
        both = max(float(c.sum() ** 2 - (c**2).sum()), 1e-9)
        scale = crowd.users * max(per_user - 0.5, 0.5) / personal.variance / both
        seen = spectrum(self._sum / self._precision, self._precision**-0.5, c, several)
        self.dimensions = seen.dimensions
        if not seen.dimensions:
            return
        F = self._features
        rank = min(self._rank, seen.dimensions + MARGIN)
        found = tastes(seen, rank, scale, None if F is None else F[self.core])
        self.strength = None if F is None else found.strength
        self.steps = Steps(self.core, found, F, counts)

    def check_gain(self, name: str) -> None:
        """No factors after all, where users predict ratings that they leave out of their solve
        worse with them.
        """
        assert self.steps is not None
        self.closed = True
        gains, deviation = self._release_gains(name, self.steps.V, (self.steps.V.shape[1],))
        self._best = ReleasedGain(self.steps.V, gains[0], deviation)
        self._give_up_losers()

    def prune(self, name: str) -> None:
        """Fewer dimensions, where that is clearly better by the same measure, now that steps have
        been taken.

        Where nothing is as good as before the steps, there are no more of them.
        """
        assert self.steps is not None
        Q = basis(self.steps.V, self.state.counts.even)
        ranks = ranks_to_compare(len(Q))
        gains, deviation = self._release_gains(name, self.steps.V @ Q, ranks)
        best = int(np.argmax(gains))
        if gains[best] - gains[-1] <= Z_IMPROVE * deviation:
            best = len(ranks) - 1
        else:
            self.steps.turn(Q[:, : ranks[best]])
        self._keep_the_better(gains[best], deviation)

    def final_check(self, name: str) -> None:
        """Now that all steps have been taken: the better of factors now and before, or none where
        they lose.

        A rating that a user leaves out has been learned from all the same. So factors seem to gain
        by what they have made of the scatter of ratings: σ² for each of their numbers and as much
        again, in the weights of `_left_out`.
        """
        assert self.steps is not None
        gains, deviation = self._release_gains(name, self.steps.V, (self.steps.V.shape[1],))
        self._keep_the_better(gains[0], deviation)
        numbers = self.steps.V.shape[1] * len(self.core)
        self._give_up_losers(numbers * self.state.personal.variance / self.state.crowd.per_user)

    def _keep_the_better(self, gain: float, deviation: float) -> None:
        """Back to the best factors so far, where those of now are clearly worse."""
        assert self.steps is not None
        if self._best.gain - gain > Z_REVERT * math.hypot(deviation, self._best.deviation):
            self.steps.stay_at(self._best.V)
        else:
            self._best = ReleasedGain(self.steps.V, gain, deviation)
        self.dimensions = min(self.dimensions, self.steps.V.shape[1])

    def _give_up_losers(self, scatter: float = 0.0) -> None:
        if self._best.gain < scatter - Z_DROP * self._best.deviation:
            self.steps = None
            self.dimensions = 0

    def _release_gains(
        self, name: str, V: NDArray[np.float64], ranks: tuple[int, ...]
    ) -> tuple[NDArray[np.float64], float]:
        """What users gain, in squares of ratings, so that it can be compared with what others
        say; and its noise.
        """
        state = self.state
        many = max(2 * state.crowd.per_user, 1.0)
        gains = self._users.sum(
            state.personal.leave_one_out_gains(V, state.biases.now, ranks, many)
        )
        unit = math.sqrt(len(ranks)) * state.personal.variance
        deviation = self._session.deviation(name, gains)
        return unit * self._session.release(name, gains), unit * deviation


def basis(V: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Another basis of the same vectors, in which what explains most of the ratings comes first."""
    _, Q = np.linalg.eigh((V * counts[:, None]).T @ V)
    return np.ascontiguousarray(Q[:, ::-1])


def ranks_to_compare(rank: int) -> tuple[int, ...]:
    """Ranks up to this one, ascending, each about two thirds of the next: five at most."""
    ranks = [rank]
    while len(ranks) < 5 and ranks[-1] > 1:
        ranks.append(min(math.ceil(0.65 * ranks[-1]), ranks[-1] - 1))
    return tuple(reversed(ranks))


class Steps:
    """All steps taken, and the factors that explain them best with the pairs as a prior."""

    def __init__(
        self,
        core: NDArray[np.int64],
        found: FactorPosterior,
        features: NDArray[Any] | None,
        counts: Counts,
    ) -> None:
        self._core = core
        self._c = counts.c[:, None]
        self._heavy = counts.heavy
        n = len(counts.c)
        self._mean = np.zeros((n, len(found.T))) if features is None else features @ found.W
        self._mean[core] = found.mean
        small = 1e-9 * max(float(np.trace(found.T)), 1e-300)
        self._outside = np.linalg.inv(found.T + small * np.eye(len(found.T)))
        self._inside: NDArray[Any] = found.precisions()
        self._taken: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any], float]] = []
        self.V = self._mean.copy()
        self.over = False

    def stay_at(self, V: NDArray[np.float64]) -> None:
        """These factors, and no more steps."""
        self.V = V
        self.over = True

    def take(
        self,
        K: NDArray[np.float64],
        unsure: float,
        g: NDArray[np.float64],
        deviation: float,
        personal: UserEffects,
        rho: float,
    ) -> None:
        """One step with noisy K and g; `unsure` and `deviation` are those of their noise, and ρ
        is as in (4).
        """
        if self.over:
            return
        V = self.V
        c = personal.left * self._c
        self._taken.append((V, K, c * (V @ without_own_share(K, rho, unsure)) - g, deviation))
        weights = [
            1 / (noise**2 + FORGET**2 * float(((c * ((V - before) @ K)) ** 2).mean()))
            for before, _, _, noise in self._taken
        ]
        precision = sum(weights)
        Z = np.zeros_like(V)
        M = np.zeros_like(K)
        for weight, (_, k, z, _) in zip(weights, self._taken, strict=True):
            Z += weight / precision * (z @ k)
            M += weight / precision * (k.T @ k)
        s, Q = np.linalg.eigh(M)
        s = np.sqrt(np.maximum(s, unsure**2))
        S = c * s
        known = S**2 / (1 / precision + self._heavy * personal.variance * S)
        self.V = self._posterior(Q, known, known * (Z @ Q / s) / S)

    def turn(self, Q: NDArray[np.float64]) -> None:
        """Everything in the basis Q, which may be shorter: what is outside it is dropped."""
        self._mean = self._mean @ Q
        self._outside = np.linalg.inv(Q.T @ np.linalg.inv(self._outside) @ Q)
        self._inside = np.linalg.inv(Q.T @ np.linalg.inv(self._inside) @ Q)
        self._taken = [(V @ Q, Q.T @ K @ Q, z @ Q, noise) for V, K, z, noise in self._taken]
        self.V = self.V @ Q

    def _posterior(
        self, Q: NDArray[Any], known: NDArray[Any], pull: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Means of Gaussians: the prior of each item, times what is `known` of it in the basis
        Q.
        """
        V = np.empty_like(pull)
        place = np.full(len(V), -1)
        place[self._core] = np.arange(len(self._core))
        for start in range(0, len(V), BLOCK):
            part = slice(start, min(start + BLOCK, len(V)))
            at = place[part]
            prior = np.where(
                (at >= 0)[:, None, None], self._inside[np.maximum(at, 0)], self._outside
            )
            right = np.einsum("jab,jb->ja", prior, self._mean[part]) + pull[part] @ Q.T
            A = prior + (Q * known[part][:, None, :]) @ Q.T
            V[part] = np.linalg.solve(A, right[:, :, None])[:, :, 0]
        return V


def without_own_share(
    K: NDArray[np.float64], rho: float, unsure: float = 0.0
) -> NDArray[np.float64]:
    """K less what a user's solution owes to the very rating that it is compared with, as EM has it.

    û_i is fitted to y_ij too, so that its residual is less by C_i v_j, C_i being the posterior
    covariance of u_i. With E[û ûᵀ] + E[C] = I, and all ‖û_i‖ taken to be their mean ū = tr K/ρ, the
    sums lack D = E[C ρ/‖û‖] = (ρ/ū) I − K. Norms differ, so that this is too much: half of it is
    taken, which was better than none and than all of it. Nothing is taken where tr K cannot be told
    from its noise (`unsure` for an entry): it would be divided by next to nothing.
    """
    k, Q = np.linalg.eigh(K)
    trace = float(k.sum())
    if trace <= max(2 * unsure * math.sqrt(len(K)), 1e-9):
        return K
    length = trace / rho
    return np.asarray((Q * (k - OWN_SHARE * np.maximum(rho / length - k, 0.0))) @ Q.T)


def longest(rank: int) -> float:
    """L: the length from which on a user's coefficients count no more for K; they are N(0, I)
    before any rating.
    """
    return math.sqrt(2 * rank)


def in_words(dimensions: int) -> str:
    """What survived the noise."""
    own = "a user's own level, and how far it follows others and what is popular"
    if not dimensions:
        return f"How items are rated, and {own}; no taste stands out of the noise."
    return (
        f"How items are rated, {own}, and taste in about {dimensions}"
        f" dimension{'s' if dimensions > 1 else ''}."
    )
