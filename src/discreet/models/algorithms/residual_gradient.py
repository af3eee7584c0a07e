"""Item steps on residuals, the house's way to learn ratings: users solve, items descend, the noise is known.

Every user computes, from its own ratings, an offset and a vector, which is stretched to the same length for all:

    (o_i, û_i) = argmin Σ_{j ∈ Ω_i} (o + û · v_j + b_j − y_ij)² + λ ‖û‖² + κ (o − ȳ)²                            (1)

and contributes u_i = (ι, ρ û_i), ι² + ρ² = 1, so that x_j = (b_j/ι, v_j/ρ) holds an item's bias and factors. Its
weights w_ij² = q_j / Σ_{j ∈ Ω_i} q_j, q_j = c̃_j^(−2a), favour rare items, and its weighted residuals are cut to a
length G. Released, with noise, at each step:

    K̃ = Σ_i u_i u_iᵀ,      g̃_j = Σ_i w_ij (o_i + u_i · x_j − y_ij) u_i,      ‖(w_ij e_ij)_j‖ ≤ G                  (2)

and from these alone, for everybody to see, with K̄ = K̃ over the number of users and c̃_j = Σ_i w_ij + noise:

    z_j = c̃_j K̄ x_j − g̃_j  =  c̃_j K̄ x*_j + noise + what ratings scatter by themselves,                         (3)
    x*_j estimated from z_j (`settle`): biases by themselves, factors coordinate by coordinate in the basis of K̄

(biases and factors each as if the other were right, so without the part of K̄ that is between them; the steps to come
make up for it). (3) is one step of Gauss and Newton with the average curvature in place of each item's own, which would
cost r times as many numbers. A sum of residuals shrinks while the model learns, and so does what the cut G loses: that
is why G can be small, and noise is proportional to it. ι, the part of biases, follows from the released counts: where
they leave little signal, biases are most of what can be learnt. The first coordinate of u_i is the same in all steps,
so their sums are averaged for the biases, by the known noise; factors keep a quarter of the step before (`momentum`),
because û_i changes. Later steps get more of the budget.

Before the first step, biases are learnt alone in the same way, with 1 in place of u_i. They and the factors are drawn
towards a regression on public features and on the released counts (`feature_prior`), where there is any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import tall_product
from discreet.models.algorithms.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learnt,
    Progress,
    Range,
    check_centring,
    middle,
    width,
)
from discreet.models.algorithms.feature_prior import FeaturePrior, Sums
from discreet.models.algorithms.signal import check_signal
from discreet.models.checks import (
    MOST_SWEEPS,
    require,
    require_flag,
    require_growth,
    require_number,
    require_positive,
    require_whole,
)
from discreet.models.read_outs import LeastSquares, ReadOut, project
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.door.plan import Line
from discreet.privacy.door.session import Session, Statistic
from discreet.privacy.people.bounds import Bounds
from discreet.privacy.people.descent import Descent
from discreet.privacy.people.users import Users
from discreet.privacy.statistics.sums import packed_size, unpack

BY_SIGNAL = "by signal"


@dataclass(frozen=True, repr=False)
class ResidualGradient(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int, optional
        Rank r. 0 learns nothing but a bias for each item. Default: by the budget, 6 at ε = 1 and 8 at ε = 20
        (δ = 1e-5).
    iterations : int, optional
        T. Every step costs. Default 8, or 3 without factors.
    regularization : float
        λ of a user's least squares.
    centring : "user" or float
        Every user has an offset of its own, or a public constant is subtracted from all ratings.
    prior_count : float
        κ: a user's offset counts so many ratings at everybody's mean as well.
    residual_norm : float, optional
        G: what a user's residuals are cut to, as a weighted root mean square. Default: a fifth of the rating range.
    user_norm, item_norm : float
        To which the vectors of users are stretched and those of items cut.
    intercept : float or "by signal"
        ι, the part of the users' norm that goes to biases in every step: 0, or from 0.001 to below 1. By signal:
        between 0.5 and 0.9 by the released counts, more where there is little signal.
    bias_iterations : int
        Steps that learn item biases before all else; 0 is for data without any.
    rarity : float
        a: users weigh items by q_j = c̃_j^(−2a), so that rare items get a share.
    growth : float
        How many times the budget μ² of a step is that of the step before.
    momentum : float
        Released gradients of earlier steps count on with this factor per step; they have been paid for.
    shrinkage : float
        How many times what ratings scatter by themselves counts when factors are estimated.
    step_size : float
        How far items move towards their estimate.
    stretch : bool
        Stretch users' vectors to `user_norm`; else they are only cut.
    popularity : bool
        Draw biases towards a regression on the released counts.
    initial_scale : float
        Standard deviation of the factors to start from.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "residual gradient"

    factors: int | None = None
    iterations: int | None = None
    regularization: float = 8.0
    centring: float | Literal["user"] = "user"
    prior_count: float = 3.0
    rating_range: Range | None = None
    residual_norm: float | None = None
    user_norm: float = 1.0
    item_norm: float = 4.0
    intercept: float | str = BY_SIGNAL
    bias_iterations: int = 3
    rarity: float = 0.3
    growth: float = 1.4
    momentum: float = 0.25
    shrinkage: float = 3.0
    step_size: float = 1.0
    stretch: bool = True
    popularity: bool = True
    initial_scale: float = 0.3
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        factors = usual_rank(gdp.mu(budget.epsilon, budget.delta)) if self.factors is None else self.factors
        usual_steps = 8 if factors else 3
        found = replace(
            self,
            factors=factors,
            iterations=usual_steps if self.iterations is None else self.iterations,
            rating_range=rating_range,
            residual_norm=width(rating_range) / 5 if self.residual_norm is None else self.residual_norm,
        )
        found._check()
        return found

    def _check(self) -> None:
        require_whole("factors", self.factors, 0)
        require_whole("iterations", self.iterations, 1, MOST_SWEEPS)
        require_whole("bias_iterations", self.bias_iterations, 0, MOST_SWEEPS)
        for name in ("regularization", "rarity", "momentum", "shrinkage", "prior_count"):
            require_number(name, getattr(self, name))
        for name in ("residual_norm", "user_norm", "item_norm", "growth", "step_size", "initial_scale"):
            require_positive(name, getattr(self, name))
        for name in ("stretch", "popularity"):
            require_flag(name, getattr(self, name))
        require(self.rarity <= 2, f"rarity is {self.rarity!r}, but must lie between 0 and 2")
        require(self.momentum < 1, f"momentum is {self.momentum!r}, but must be at least 0 and below 1")
        require_growth(self.growth, self._steps)
        require(1e-6 <= self.user_norm <= 1e6, f"user_norm is {self.user_norm!r}, but must lie between 1e-6 and 1e6")
        iota = self.intercept
        if iota != BY_SIGNAL:
            require_number("intercept", iota)
            small = iota == 0 or 1e-3 <= float(iota) < 1
            require(small, f"intercept is {iota!r} of the norm, but must be 0, or at least 0.001 and below 1")
        check_centring(self.centring, "user")
        require(
            bool(self.factors) or self.has_intercept,
            "factors is 0, which leaves item biases, and they need an intercept and bias_iterations",
        )

    def bounds(self) -> Bounds:
        return Bounds(items=EVERY_ITEM, rating=self.residual_norm, centre=self.middle, norm=self.user_norm)

    def releases(self, n_items: int) -> list[Line]:
        lines = [
            Line("size", share=0.005, shape=(3,)),
            Line("counts", share=0.04, shape=(n_items,)),
            Line("recounts", share=0.04, shape=(n_items,)),
        ]
        if self.bias_iterations:
            lines.append(Line("bias", times=self.bias_iterations, share=0.05, shape=(n_items,)))
        lines.append(Line("balance", times=self._steps, share=0.02, shape=(1, packed_size(self.rank))))
        rest = 1 - sum(line.share for line in lines)
        return lines + list(dict.fromkeys(self._gradients(n_items, rest)))

    def _gradients(self, n_items: int, share: float = 1.0) -> list[Line]:
        """The release of each step; steps whose noise differs are lines of their own."""
        shape = (n_items, self.rank)
        if self.growth == 1:
            return [Line("gradient", times=self._steps, share=share, shape=shape)] * self._steps
        parts = self.growth ** np.arange(self._steps)
        each = share * parts / parts.sum()
        return [Line("gradient", step + 1, share=float(part), shape=shape) for step, part in enumerate(each)]

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        walk = Descent(users)
        walk.weigh(np.ones(users.n_items))
        found: dict[str, Statistic] = {"size": walk.size(self.half)}
        found |= {"counts": walk.counts(), "recounts": walk.counts()}
        intercept = 0.5 * self.user_norm if self.has_intercept else 0.0
        walk.solve(np.zeros((users.n_items, self._rank_of_factors), np.float32), 1.0, intercept=intercept)
        found["balance"] = walk.gram()
        walk.look(np.zeros((users.n_items, self.rank), np.float32), self.largest, own=False)
        found |= {str(line): walk.gradient() for line in self._gradients(users.n_items)}
        return found | {"bias": walk.bias_gradient()}

    @property
    def has_intercept(self) -> bool:
        return self.bias_iterations > 0 and self.intercept != 0

    @property
    def rank(self) -> int:
        """Of what is released: factors, and the bias."""
        return self._rank_of_factors + self.has_intercept

    @property
    def half(self) -> float:
        """Half of the width of the rating range."""
        assert self.rating_range is not None
        return width(self.rating_range) / 2

    @property
    def largest(self) -> float:
        """G."""
        assert self.residual_norm is not None
        return self.residual_norm

    @property
    def middle(self) -> float:
        """What is subtracted from every rating."""
        assert self.rating_range is not None
        return middle(self.rating_range) if isinstance(self.centring, str) else self.centring

    @property
    def _steps(self) -> int:
        assert self.iterations is not None
        return self.iterations

    @property
    def _rank_of_factors(self) -> int:
        assert self.factors is not None
        return self.factors

    # ------------------------------------------------------------ learning

    def learn(
        self, users: Users, session: Session, *, features: NDArray[Any] | None, seed: int, progress: Progress
    ) -> Learnt:
        walk = Descent(users)
        n = users.n_items
        r = self._rank_of_factors
        G = self.largest
        m, per_user, centre = self._size(walk, session)
        first, least, c, deviation = self._weigh(walk, session)
        heavy = m / max(float(first.sum()), m)  # what an average rating weighs
        spread = heavy * G**2
        lines = self._gradients(n)
        noise = self._noise(session, lines)
        signal = check_signal(session, c, deviation, noise, "raise epsilon", "they get little but what others share")
        c = np.maximum(c, max(deviation / 2, 1e-3))[:, None]
        known = first / heavy
        popular = np.log(np.maximum(known, least / heavy)) if self.popularity and self.bias_iterations else None
        solve = partial(
            walk.solve,
            ridge=self.regularization,
            centre=centre if self.centring == "user" else None,
            prior_count=self.prior_count,
        )
        none = np.zeros((n, 0), np.float32)
        biases = _Biases(c, spread, G, _prior(features, popular, 1))
        for _ in range(self.bias_iterations):
            solve(none, bias=biases.now)
            walk.look(none, G, bias=biases.now, own=False)
            gradient = walk.bias_gradient()
            g = session.release("bias", gradient)
            biases.learn(g, session.deviation("bias", gradient), 1.0)
        iota = self._iota(c, noise)
        rho = math.sqrt(1 - iota**2)
        some = slice(int(iota > 0), None)
        prior = _prior(features, popular, 0) if features is not None else None
        V = self._start(n, seed, prior)
        z = np.zeros((n, r))
        P = np.zeros((r, r))
        precision = 0.0
        for step, line in enumerate(lines):
            solve(V, bias=biases.now, stretch=self.stretch, intercept=iota * self.user_norm)
            x = np.hstack([biases.now[:, None] / (iota * self.user_norm), V / rho]) if iota else V
            walk.look(x, G, bias=None if iota else biases.now, own=False)
            gram = walk.gram()
            gradient = walk.gradient()
            K, g = session.release_together([("balance", gram), (line, gradient)])
            K = unpack(K, x.shape[1])[0]
            deviation = session.deviation(line, gradient)
            K = K / self._users(K, m)
            if iota:
                biases.learn(g[:, 0], deviation, iota * self.user_norm)
            K = K[some, some]
            z = self.momentum * z + (c * tall_product(V / rho, K) - g[:, some]) / deviation**2
            P = self.momentum * P + K / deviation**2
            precision = self.momentum**2 * precision + deviation**-2
            s, Q = np.linalg.eigh(P / precision)
            s = np.maximum(s, session.deviation("balance", gram) / m)  # noise may have made some negative
            target = settle(
                z @ Q / precision, c * s, 1 / precision, spread, self.shrinkage, G / self.user_norm, 1.0, prior
            )
            V = project(V + self.step_size * (rho * (target @ Q.T) - V), self.item_norm)
            progress(step + 1, self._steps, "steps")
        details = {
            "centre": centre,
            "share_rated": per_user / n,
            "intercept": iota,
            "signal_to_noise": signal,
        }
        return Learnt(V.astype(np.float32), biases.now.astype(np.float32), known, details)

    def _size(self, walk: Descent, session: Session) -> tuple[float, float, float]:
        """How many users there are, how many items they have rated, and their mean, drawn to 0 by its known noise."""
        sizes = walk.size(self.half)
        share, m, mean = session.release("size", sizes)
        m = max(float(m), 1.0)
        session.judge_delta(m)
        noise = session.deviation("size", sizes) / m
        centre = float(np.clip(mean / m, -1, 1) * self.half) / (1 + 16 * noise**2)  # means differ by a quarter of it
        return m, min(max(float(share) / m, 1.0 / walk.n_items), 1.0) * walk.n_items, centre

    def _weigh(self, walk: Descent, session: Session) -> tuple[NDArray[Any], float, NDArray[Any], float]:
        """The counts of the items in even weights and what they are floored at; those of (2) and their deviation."""
        walk.weigh(np.ones(walk.n_items))
        counts = walk.counts()
        first = session.release("counts", counts).astype(np.float64)
        least = max(session.deviation("counts", counts), 0.5)
        walk.weigh(np.maximum(first, least) ** (-2 * self.rarity))
        counts = walk.counts()
        c = session.release("recounts", counts).astype(np.float64)
        return first, least, c, session.deviation("recounts", counts)

    def _noise(self, session: Session, lines: list[Line]) -> float:
        """The deviation of the noise on the gradients of all steps together, relative to what one user can add."""
        precision = sum(session.plan.noise_multiplier(line) ** -2 for line in lines)
        return float(precision**-0.5) * (2.0 if session.plan.budget.neighbouring == "replace-one" else 1.0)

    def _iota(self, c: NDArray[Any], noise: float) -> float:
        """ι by the signal that all steps together can hold over the noise on it, for an average item."""
        if not self.has_intercept:
            return 0.0
        if isinstance(self.intercept, str):
            by_signal = float(np.clip(1.05 - 0.027 * c.mean() / noise, 0.5, 0.9))
            iota = by_signal if self.factors else 1.0
        else:
            iota = self.intercept
        return min(iota, 0.999)  # all of it, up to rounding

    def _users(self, K: NDArray[Any], m: float) -> float:
        """How many users K is a sum over: all their vectors have the same length, so its trace says it best."""
        trace = float(np.trace(K)) / self.user_norm**2
        return trace if self.stretch and trace > m / 2 else m

    def _start(self, n: int, seed: int, prior: FeaturePrior | None) -> NDArray[np.float64]:
        start = np.random.default_rng(seed).standard_normal((n, self._rank_of_factors))
        return self.initial_scale * (start if prior is None else prior.start(start))

    # ------------------------------------------------------------ reading out

    def read_out(self, learnt: Learnt) -> ReadOut:
        """(1) as in training, but for the stretch."""
        if self.centring != "user":
            return LeastSquares(self.regularization, centre=self.middle)
        lead = math.sqrt(self.regularization / self.prior_count)
        return LeastSquares(
            self.regularization, centre=self.middle, second_centre=learnt.details["centre"], intercept=lead
        )


class _Biases:
    """Item biases: what all steps say about them, averaged by the known noise."""

    def __init__(self, c: NDArray[Any], spread: float, largest: float, prior: FeaturePrior | None) -> None:
        self._c = c
        self._spread = spread
        self._largest = largest
        self._prior = prior
        self._z = np.zeros_like(c)
        self._precision = 0.0
        self.now: NDArray[np.float64] = np.zeros(len(c))

    def learn(self, g: NDArray[Any], deviation: float, first: float) -> None:
        """(3) for the first coordinate, which is `first` for every user."""
        self._z += (self._c[:, 0] * self.now - g / first)[:, None] * (first / deviation) ** 2
        self._precision += (first / deviation) ** 2
        z = self._z / self._precision
        found = settle(z, self._c, 1 / self._precision, self._spread, 1.0, self._largest, 0.0, self._prior)
        self.now = found[:, 0]


def usual_rank(mu: float) -> int:
    """Rank by the budget: 6 at ε = 1 and 8 at ε = 20, for δ = 1e-5."""
    return int(np.clip(round(7 * mu**0.13), 4, 8))


def settle(
    z: NDArray[Any],
    S: NDArray[Any],
    noise: float,
    spread: float,
    shrinkage: float,
    largest: float,
    by_chance: float = 1.0,
    prior: FeaturePrior | None = None,
) -> NDArray[Any]:
    """What best explains z = S x + noise + scatter, entry by entry, with x of a variance τ² that z itself tells.

    Parameters
    ----------
    z, S : (n, r), S > 0
    noise : variance of the noise
    spread : the variance of z for other reasons, over S
    shrinkage : what `spread` is multiplied by once τ is known; above 1 it draws to 0 more than this model asks for
    largest : τ is between this and a hundredth of it
    by_chance : how many standard deviations Σ z² must be above what noise alone would give
    prior : what x is like by the features of the items, which learns from z; else 0
    """
    rest = noise + spread * S
    chance = by_chance * np.sqrt(2 * (rest**2).sum(axis=0))
    tau = ((z**2 - rest).sum(axis=0) - chance) / (S**2).sum(axis=0)
    tau = np.clip(tau, 1e-4 * largest**2, largest**2)
    mean = np.zeros_like(z)
    if prior is not None and z.shape[1]:
        tau = prior.learn(Sums(z, S, rest), tau, largest**2)
        mean = prior.mean()
    x: NDArray[Any] = mean + S * (z - S * mean) / (S**2 + (noise + shrinkage * spread * S) / tau)
    return x


def _prior(X: NDArray[Any] | None, popular: NDArray[Any] | None, leading: int) -> FeaturePrior | None:
    return None if X is None and popular is None else FeaturePrior(X, popular, leading)
