"""Item steps on residuals: how DPALS and DPLMC learn as they come. Users solve, items descend, the noise is known.

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
towards a regression on public features and on the released counts (`discreet.models.dpals_prior`), where there is any.

For implicit feedback there is no offset and no bias, all y_ij are 1, and (1) has λ₀ Σ_all (û · v_j)² as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import solve_rows, solve_rows_constant, tall_product
from discreet.models.checks import require
from discreet.models.dpals_prior import FeaturePrior, Sums
from discreet.privacy.budget import Neighbouring
from discreet.privacy.descent import Descent
from discreet.privacy.plan import Plan
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import packed_size, unpack

GROWTH, MOMENTUM, RIDGE = 1.4, 0.25, 8.0  # as they come, for ratings
EVERY_ITEM = 10**9  # more than any catalogue has: users contribute through all their items
PRIOR_COUNT = 3.0  # a user's offset counts this many ratings at everybody's mean as well
Lines = dict[str, tuple[int, float, tuple[int, ...]]]  # how often, the part of μ², and how many numbers


def usual_rank(mu: float) -> int:
    """Rank by the budget: 6 at ε = 1 and 8 at ε = 20, for δ = 1e-5."""
    return int(np.clip(round(7 * mu**0.13), 4, 8))


class Found(NamedTuple):
    """What was learnt: all of it made of released numbers."""

    factors: NDArray[np.float32]
    biases: NDArray[np.float32]
    centre: float  # everybody's mean, relative to what ratings are centred by
    counts: NDArray[np.float64]  # about how many people rated each item
    per_user: float  # how many items a user has rated on average
    intercept: float  # ι


@dataclass(frozen=True)
class ResidualSteps:
    """The algorithm above with its parameters, all public; see `discreet.DPALS` and `discreet.DPLMC`."""

    factors: int
    iterations: int
    growth: float  # of the budget μ² from step to step
    bias_iterations: int  # 0: neither biases nor intercept
    intercept: float | None  # ι; None: by the released counts
    offsets: bool  # whether users have an offset
    user_norm: float
    item_norm: float
    residual_norm: float  # G
    half: float  # half of the width of the rating range
    rarity: float  # a
    ridge: float  # λ
    unobserved: float  # λ₀
    shrinkage: float
    momentum: float
    stretch: bool
    step_size: float
    initial_scale: float
    popularity: bool
    neighbouring: Neighbouring
    seed: int | None

    def __post_init__(self) -> None:
        part = self.intercept
        require(
            part is None or part == 0 or 1e-3 <= part < 1,
            f"intercept is {part!r} of the norm, but must be 0, or at least 0.001 and below 1",
        )
        require(1e-6 <= self.user_norm <= 1e6, f"user_norm is {self.user_norm!r}, but must lie between 1e-6 and 1e6")

    # ------------------------------------------------------------ the promise

    def lines(self, n: int) -> Lines:
        """What is released on n items."""
        lines: Lines = {"size": (1, 0.005, (3,)), "counts": (1, 0.04, (n,)), "recounts": (1, 0.04, (n,))}
        if self.bias_iterations:
            lines["bias"] = self.bias_iterations, 0.05, (n,)
        rank = self.factors + self.has_intercept
        lines["balance"] = self.iterations, 0.02, (1, packed_size(rank))
        rest, parts = 1 - sum(part for _, part, _ in lines.values()), self.growth ** np.arange(self.iterations)
        if self.growth == 1:
            return lines | {"gradient": (self.iterations, rest, (n, rank))}
        each = rest * parts / parts.sum()
        return lines | {self.name(step): (1, float(each[step]), (n, rank)) for step in range(self.iterations)}

    def shares(self, given: dict[str, float] | None, lines: Lines) -> dict[str, float]:
        """The parts of μ² by name; of the steps' gradients, `given` says the sum."""
        shares = {name: (given or {}).get(name, part) for name, (_, part, _) in lines.items()}
        if given and "gradient" in given and self.growth != 1:
            steps = [name for name in lines if name.startswith("gradient")]
            whole = sum(lines[name][1] for name in steps)
            shares |= {name: given["gradient"] * lines[name][1] / whole for name in steps}
        return shares

    def name(self, step: int) -> str:
        """Of the release of a step: steps whose noise differs have names of their own."""
        return "gradient" if self.growth == 1 else f"gradient {step + 1}"

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        walk, none = Descent(users), np.zeros((users.n_items, self.factors), np.float32)
        walk.weigh(np.ones(users.n_items))
        intercept = 0.5 * self.user_norm if self.has_intercept else 0.0
        walk.solve(none, 1.0, intercept=intercept)
        found: dict[str, Statistic] = {"size": walk.size(self.half), "balance": walk.gram()}
        found |= {"counts": walk.counts(), "recounts": walk.counts()}
        x = np.zeros((users.n_items, self.factors + self.has_intercept), np.float32)
        walk.look(x, self.residual_norm, own=False)
        gradient = walk.gradient()
        found |= {self.name(step): gradient for step in range(self.iterations)}
        return found | {"bias": walk.bias_gradient()}

    @property
    def has_intercept(self) -> bool:
        return self.bias_iterations > 0 and self.intercept != 0

    # ------------------------------------------------------------ learning

    def run(
        self,
        users: Users,
        session: Session,
        X: NDArray[np.float64] | None,
        progress: Callable[[int, float], None],
        check: Callable[[NDArray[Any], float], None] | None = None,
    ) -> Found:
        """All of it; `progress` hears after each step how far the factors moved, root mean square.

        `check` sees the counts and the deviation of their noise before anything is learnt, and may refuse.
        """
        walk, n, r = Descent(users), users.n_items, self.factors
        m, per_user, centre = self._size(walk, session)
        first, least, c, deviation = self._weigh(walk, session)
        heavy = m / max(float(first.sum()), m)  # what an average rating weighs
        if check is not None:
            check(c, deviation)
        c = np.maximum(c, max(deviation / 2, 1e-3))[:, None]
        known, spread, G = first / heavy, heavy * self.residual_norm**2, self.residual_norm
        popular = np.log(np.maximum(known, least / heavy)) if self.popularity and self.bias_iterations else None
        solve = partial(
            walk.solve,
            ridge=self.ridge,
            centre=centre if self.offsets else None,
            prior_count=PRIOR_COUNT,
            unobserved=self.unobserved,
        )
        none = np.zeros((n, 0), np.float32)
        biases = _Biases(c, spread, self, self._prior(X, popular, n, 1))
        for _ in range(self.bias_iterations):
            solve(none, bias=biases.now)
            walk.look(none, G, bias=biases.now, own=False)
            g = session.release("bias", gradient := walk.bias_gradient())
            biases.learn(g, self._deviation(session, "bias", gradient), 1.0)
        iota = self._iota(session, c)
        rho = math.sqrt(1 - iota**2)
        prior = self._prior(X, popular, n, 0) if X is not None else None
        V = self._start(n, prior)
        z, P, precision = np.zeros((n, r)), np.zeros((r, r)), 0.0
        for step in range(self.iterations):
            solve(V, bias=biases.now, stretch=self.stretch, intercept=iota * self.user_norm)
            x = np.hstack([biases.now[:, None] / (iota * self.user_norm), V / rho]) if iota else V
            walk.look(x, G, bias=None if iota else biases.now, own=False)
            K = unpack(session.release("balance", gram := walk.gram()), x.shape[1])[0]
            g = session.release(self.name(step), gradient := walk.gradient())
            K, deviation = K / self._users(K, m), self._deviation(session, self.name(step), gradient)
            if iota:
                biases.learn(g[:, 0], deviation, iota * self.user_norm)
            some = slice(int(iota > 0), None)
            K, g = K[some, some], g[:, some]
            z = self.momentum * z + (c * tall_product(V / rho, K) - g) / deviation**2
            P = self.momentum * P + K / deviation**2
            precision = self.momentum**2 * precision + deviation**-2
            s, Q = np.linalg.eigh(P / precision)
            s = np.maximum(s, self._deviation(session, "balance", gram) / m)  # noise may have made some negative
            unseen = self.unobserved * heavy * m  # in the units of c
            moved = (
                settle(
                    z @ Q / precision,
                    (c + unseen) * s,
                    1 / precision,
                    spread,
                    self.shrinkage,
                    G / self.user_norm,
                    1.0,
                    prior,
                )
                @ Q.T
            )
            V, before = project(V + self.step_size * (rho * moved - V), self.item_norm), V
            progress(step, float(np.sqrt(((V - before) ** 2).mean())) if r else 0.0)
        return Found(V.astype(np.float32), biases.now.astype(np.float32), centre, known, per_user, iota)

    def _size(self, walk: Descent, session: Session) -> tuple[float, float, float]:
        """How many users there are, how many items they have rated, and their mean, drawn to 0 by its known noise."""
        sizes, n = walk.size(self.half), walk.n_items
        share, m, mean = session.release("size", sizes)
        m = max(float(m), 1.0)
        session.judge_delta(m)
        noise = self._deviation(session, "size", sizes) / m
        centre = float(np.clip(mean / m, -1, 1) * self.half) / (1 + 16 * noise**2)  # means differ by a quarter of it
        return m, min(max(float(share) / m, 1.0 / n), 1.0) * n, centre

    def _weigh(self, walk: Descent, session: Session) -> tuple[NDArray[Any], float, NDArray[Any], float]:
        """The counts of the items in even weights and what they are floored at; those of (2) and their deviation."""
        walk.weigh(np.ones(walk.n_items))
        first = session.release("counts", counts := walk.counts()).astype(np.float64)
        least = max(self._deviation(session, "counts", counts), 0.5)
        walk.weigh(np.maximum(first, least) ** (-2 * self.rarity))
        c = session.release("recounts", counts := walk.counts()).astype(np.float64)
        return first, least, c, self._deviation(session, "recounts", counts)

    def _iota(self, session: Session, c: NDArray[Any]) -> float:
        """ι by the signal that all steps together can hold over the noise on it, for an average item."""
        if not self.has_intercept:
            return 0.0
        if self.intercept is not None:
            return self._part(self.intercept)
        if self.factors == 0:
            return self._part(1.0)
        return self._part(float(np.clip(1.05 - 0.027 * c.mean() / self.noise(session.plan), 0.5, 0.9)))

    def noise(self, plan: Plan) -> float:
        """The deviation of the noise on the gradients of all steps together, relative to what one user can add."""
        precision = sum(plan.noise_multiplier(self.name(step)) ** -2 for step in range(self.iterations))
        return precision**-0.5 * (2.0 if self.neighbouring == "replace-one" else 1.0)

    def _part(self, iota: float) -> float:
        return min(iota, 0.999)  # all of it, up to rounding

    def _users(self, K: NDArray[Any], m: float) -> float:
        """How many users K is a sum over: all their vectors have the same length, so its trace says it best."""
        trace = float(np.trace(K)) / self.user_norm**2
        return trace if self.stretch and trace > m / 2 else m

    def _prior(self, X: NDArray[Any] | None, popular: NDArray[Any] | None, n: int, leading: int) -> FeaturePrior | None:
        return None if X is None and popular is None else FeaturePrior(X, popular, np.arange(n), leading)

    def _start(self, n: int, prior: FeaturePrior | None) -> NDArray[np.float64]:
        start = np.random.default_rng(self.seed).standard_normal((n, self.factors))
        return self.initial_scale * (start if prior is None else prior.start(start))

    def _deviation(self, session: Session, name: str, statistic: Statistic) -> float:
        """Standard deviation of the noise on a release: public."""
        return session.plan.noise_multiplier(name) * statistic.sensitivity(self.neighbouring, "l2")

    # ------------------------------------------------------------ reading out

    def fold(
        self,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        y: NDArray[np.float32],
        V: NDArray[Any],
        b: NDArray[Any],
        centre: float,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """(1) for users with the ratings y, centred as in training: what a user computes for itself is its own."""
        n, y = len(indptr) - 1, y - b[indices]
        if not self.offsets:
            shared = self.unobserved * (V.T @ V) if self.unobserved else None
            return solve_rows(indptr, indices, y, V, np.full(n, self.ridge), shared), np.zeros(n, np.float32)
        lead, y = math.sqrt(self.ridge / PRIOR_COUNT), y - np.float32(centre)
        if not V.shape[1]:
            own = solve_rows(indptr, indices, y, np.full((len(V), 1), lead, V.dtype), np.full(n, self.ridge))[:, 0]
            return np.zeros((n, 0), V.dtype), np.float32(centre) + np.float32(lead) * own
        U, own = solve_rows_constant(indptr, indices, y, V, np.full(n, self.ridge), lead)
        return U, np.float32(centre) + np.float32(lead) * own


class _Biases:
    """Item biases: what all steps say about them, averaged by the known noise."""

    def __init__(self, c: NDArray[Any], spread: float, steps: ResidualSteps, prior: FeaturePrior | None) -> None:
        self._c, self._spread, self._steps, self._prior = c, spread, steps, prior
        self._z, self._precision = np.zeros_like(c), 0.0
        self.now: NDArray[np.float64] = np.zeros(len(c))

    def learn(self, g: NDArray[Any], deviation: float, first: float) -> None:
        """(3) for the first coordinate, which is `first` for every user."""
        G, c = self._steps.residual_norm, self._c
        self._z += (c[:, 0] * self.now - g / first)[:, None] * (first / deviation) ** 2
        self._precision += (first / deviation) ** 2
        z = self._z / self._precision
        self.now = settle(z, c, 1 / self._precision, self._spread, 1.0, G, 0.0, self._prior)[:, 0]


def project(A: NDArray[Any], largest: float) -> NDArray[Any]:
    """Rows cut to the length `largest`."""
    return A * np.minimum(1.0, largest / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-30))


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
    tau, mean = np.clip(tau, 1e-4 * largest**2, largest**2), np.zeros_like(z)
    if prior is not None and z.shape[1]:
        tau = prior.learn([Sums(S, z, rest, prior.F)], tau, largest**2)
        mean = prior.mean(slice(None))
    return mean + S * (z - S * mean) / (S**2 + (noise + shrinkage * spread * S) / tau)
