"""Ranking from one noisy matrix of pairs, the house's way to lists: count, look once, and know the noise.

A user's history is what it likes, x_ij ∈ {0, 1}, with n_i items in all. Three sums over users are released; M is the
number of items in the core, those whose released counts are large enough:

    c̃_j  = Σ_i x_ij/√n_i + noise                                   counts, all items                            (1)
    ñ    = #{i : an item of the core} + noise                      size                                         (2)
    G̃_jk = Σ_i x_ij x_ik/√(n_i (n_i − 1)) + N(0, t²),  j < k        pairs, in the core                           (3)

with n_i in (3) counting items of the core. What is fitted to the pairs has one vector per item and is weighed by noise
that is known, also that of sampling: κ = ñ/((Σ c)² − Σ c²), since the squares of what one user adds to (3) sum to ½:

    G̃_jk = c_j c_k v_j · v_k + N(0, t² + κ c_j c_k),       v_j ~ N(Wᵀ f_j, T),    W_f ~ N(0, T / strength)         (4)

f_j are public features of the item, or a constant alone; W, T and the strength are estimated with the rest. With
whitening h_j = (t + √κ c_j)^−½, a = h c, and G for h G̃ h, whose noise has deviation 1, a round of variational Bayes is

    A   = Σ_j a_j² (v_j v_jᵀ + C_j),    B with Bᵀ T⁻¹ B = I and Bᵀ A B = diag(α),                                (5)
    C_j = B diag(1/(1 + a_j² α)) Bᵀ   for all items in the same basis, which is why a round is cheap,             (6)
    v_j ← ½ v_j + ½ C_j (a_j (G (a v))_j + a_j⁴ (‖v_j‖² + C_j) v_j + T⁻¹ Wᵀ f_j)                                  (7)

where the second term of (7) stands for the diagonal, which is not released. After some rounds (ten: later ones prune
too much), histories are read by the model that (4) implies, y = x/‖x‖ on the core:

    y = Y u + N(0, D),    Y_j = c_j R v_j/√ñ,    D_j = c_j/Σ c,    u ~ N(u₀ e₁, diag(1 − u₀², 1, …, 1))            (8)
    score_j = E[u | y] · Y_j

R turns v so that popularity, v̄ = Σ c_j v_j/Σ c_j, is the first axis, and u₀ = 1/(√ñ ‖v̄‖): E y_j = c_j/ñ. Somebody
without a history gets u₀ e₁: what is popular. Items outside the core are scored in the same way with v_j = Wᵀ f_j.

The floor. Whether pairs are worth their price is decided from (1) and (2), before they are bought: the signal
Σ_core c̃²/ñ, which is popularity's own eigenvalue of (3), over the edge t√M of the noise. Where it is below the gate,
what is left of the budget buys the counts again: together, they are as exact as if (nearly) all had gone to them, and
the model ranks by counts. On small catalogues a part of the rest is a line of its own, which buys counts again where
twenty items have much of all choices, because then counts decide the list.

Privacy: the lines of the plan, their mechanism and their noise multipliers are fixed and public. *What* a line of the
rest releases, pairs or counts and on which core, is decided by numbers that have been released before. Both have the
same ℓ₂ sensitivity, so that every line is μ-GDP with its own μ whatever was released earlier, and Gaussian differential
privacy composes adaptively: a line may depend on earlier results in any way, but not on the data. Only the shape of
such a line is open in the plan.

The noisy matrix of items by items, released once and used for everything, is McSherry & Mironov's (KDD 2009), who clip
and average covariances of ratings and feed them to nearest neighbours or an SVD. New are the contribution that has the
same length for every user (no clipping, no diagonal), the estimate by known noise (4)–(7) in place of a cut spectrum,
the read-out (8) without a constant to tune, features as a prior, and buying only what pays.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.threads import blas_threads
from discreet.models.algorithms.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learnt,
    Progress,
    Range,
    most_frequent,
)
from discreet.models.algorithms.feature_prior import standardised
from discreet.models.checks import require, require_number, require_positive, require_whole
from discreet.models.read_outs import Likeness, PosteriorMean, ReadOut, Same
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.door.plan import Line
from discreet.privacy.door.session import Session, Statistic
from discreet.privacy.people.bounds import Bounds
from discreet.privacy.people.descent import WeighEntries, WeightCounts
from discreet.privacy.people.users import Users
from discreet.privacy.statistics.pairs import ActiveUsers, KeepLiked, PairSums, unfold_triangle

EVERYTHING = "everything"
LEAST_MU = 1e-6  # below it, and where pure ε is asked for, a plan has no price; what to say of that is the plan's
SMALL_CATALOGUE = 1000  # up to here a part of the rest may buy counts again
FEW = 20  # items that may decide the lists
MUCH = 0.15  # of all choices
BEYOND = 1.1  # times the edge of the noise: what is taken for a dimension of taste


@dataclass(frozen=True)
class PairRanking(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int
        Largest rank of the vectors; dimensions that the noise hides are drawn to nothing.
    rounds : int
        Of (5)–(7). They cost nothing but time.
    liked_from : float or "everything", optional
        Ratings from here on say that an item is liked; "everything" takes all that was chosen. Public. Default: three
        quarters up the rating range (4 of 1 to 5), or everything where all ratings are the same.
    largest_core, least_core : int
        How many items have pairs, at most and at least.
    core_from : float, optional
        Items with this released count are in the core. Default 18 μ^−0.6.
    counts_share : float, optional
        Part of the budget μ² for the first counts. Default 0.1 μ^−½, between 0.05 and 0.3.
    gate : float
        The signal over noise from which pairs are bought.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "pair ranking"
    feedback: ClassVar[str] = "implicit"

    factors: int = 64
    rounds: int = 10
    liked_from: float | Literal["everything"] | None = None
    rating_range: Range | None = None
    largest_core: int = 2000
    least_core: int = 128
    core_from: float | None = None
    counts_share: float | None = None
    gate: float = 3.5
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        mu = gdp.mu(budget.epsilon, budget.delta) / (2**0.5 if budget.neighbouring == "replace-one" else 1.0)
        mu = max(mu, LEAST_MU)
        found = replace(
            self,
            liked_from=usual_threshold(rating_range) if self.liked_from is None else self.liked_from,
            rating_range=rating_range,
            core_from=18 * mu**-0.6 if self.core_from is None else self.core_from,
            counts_share=float(np.clip(0.1 * mu**-0.5, 0.05, 0.3)) if self.counts_share is None else self.counts_share,
        )
        found._check()
        return found

    def _check(self) -> None:
        for name in ("factors", "rounds", "largest_core", "least_core"):
            require_whole(name, getattr(self, name))
        for name in ("core_from", "gate"):
            require_positive(name, getattr(self, name))
        assert self.counts_share is not None
        require_number("counts_share", self.counts_share, 1e-3)
        require(self.counts_share <= 0.9, f"counts_share is {self.counts_share!r}, but must be at most 0.9")
        if self.liked_from != EVERYTHING:
            require_number("liked_from", self.liked_from, -1e12)

    def bounds(self) -> Bounds:
        if self.liked_from == EVERYTHING:
            return Bounds(items=EVERY_ITEM)
        assert self.rating_range is not None
        return Bounds(items=EVERY_ITEM, rating=max(1.0, *map(abs, self.rating_range)))

    def assumptions(self) -> dict[str, str]:
        if self.liked_from == EVERYTHING:
            return {}
        return {"liked": f"that ratings of {self.liked_from:g} and above count as liked"}

    def releases(self, n_items: int) -> list[Line]:
        assert self.counts_share is not None
        counts = Line("counts", share=self.counts_share, shape=(n_items,))
        size = Line("size", share=0.005, shape=(1,))
        return [counts, size, *self._rest(n_items, 1 - counts.share - size.share)]

    def _rest(self, n_items: int, share: float = 1.0) -> list[Line]:
        """What is decided on the way; its shapes are left open."""
        if n_items > SMALL_CATALOGUE:
            return [Line("pairs or counts", share=share, shape=None)]
        return [
            Line("pairs or counts", 1, share=0.65 * share, shape=None),
            Line("pairs or counts", 2, share=0.35 * share, shape=None),
        ]

    def statistics(self, users: Users) -> dict[str, Statistic]:
        counts = self._counts(users)
        core = users.restrict(np.arange(min(self.largest_core, users.n_items)))
        rest = {str(line): core.add_up(PairSums()) for line in self._rest(users.n_items)}
        return {"counts": counts, "size": core.add_up(ActiveUsers()), **rest}

    def _counts(self, users: Users) -> Statistic:
        """(1), of users who keep only what they like."""
        if self.liked_from != EVERYTHING:
            assert self.liked_from is not None
            users.map(KeepLiked(float(self.liked_from)))
        users.map(WeighEntries(np.ones(users.n_items)))
        return users.add_up(WeightCounts())

    # ------------------------------------------------------------ learning

    def learn(
        self, users: Users, session: Session, *, features: NDArray[Any] | None, seed: int, progress: Progress
    ) -> Learnt:
        n = users.n_items
        lines = self._rest(n)
        steps = len(lines) + 3
        counting = self._counts(users)
        counts = Estimate.of(session, "counts", counting)
        core = self._core(counts.value)
        some = users.restrict(core)
        size = max(float(session.release("size", some.add_up(ActiveUsers()))[0]), 1.0)
        progress(2, steps, "counts")
        pairs = some.add_up(PairSums())
        t = sum(session.deviation(line, pairs) ** -2 for line in lines) ** -0.5 / math.sqrt(2.0)
        found = Signal.of(counts, core, size, t, self.gate)
        bought = lines if found.worth else []
        if found.worth and found.top > MUCH and len(lines) > 1:  # counts decide much of the list
            bought = lines[:1]
        for line in lines:
            if line not in bought:
                counts = counts.with_another(Estimate.of(session, line, counting))
        if not bought:
            return self._popular(counts, found)
        G, t = released_pairs(session, bought, pairs, len(core))
        progress(steps - 1, steps, "pairs")
        c = np.maximum(counts.value[core], max(counts.deviation, 0.5))
        F = None if features is None else standardised(features)
        with blas_threads():
            fitted = factorise(G, t, c, size, self.factors, self.rounds, seed, None if F is None else F[core])
            if fitted.dimensions == 0 and found.top > MUCH:  # nothing personal was heard: what pairs say of popularity
                fitted = factorise(G, t, c, size, 1, self.rounds, seed, None if F is None else F[core])
        progress(steps, steps, "factors")
        return self._personal(counts, core, c, size, fitted, F, found)

    def _core(self, counts: NDArray[Any]) -> NDArray[np.int64]:
        many = int(np.clip((counts >= self.core_from).sum(), self.least_core, self.largest_core))
        return most_frequent(counts, min(many, len(counts)))

    def _popular(self, counts: Estimate, found: Signal) -> Learnt:
        """Nothing but what is liked how much."""
        details = {
            "core": [],
            "featured": False,
            "dimensions": 0,
            "signal": found.signal,
            "learnt": without_taste(found, self.gate),
        }
        none = np.zeros((len(counts.value), 0), np.float32)
        return Learnt(none, counts.value.astype(np.float32), counts.value, details)

    def _personal(
        self,
        counts: Estimate,
        core: NDArray[np.int64],
        c: NDArray[Any],
        size: float,
        fitted: Fitted,
        F: NDArray[Any] | None,
        found: Signal,
    ) -> Learnt:
        R, lean = read_out(fitted.V, c, size)
        n = len(counts.value)
        design = np.ones((n, 1)) if F is None else np.column_stack([np.ones(n), F - F[core].mean(axis=0)])
        V = design @ fitted.W
        V[core] = fitted.V
        scale = np.maximum(counts.value, 0.0)
        scale[core] = c
        details = {
            "core": core.tolist(),
            "least_count": max(counts.deviation, 0.5),
            "lean": lean,
            "lean_precision": 1 / max(1 - lean**2, 0.02),
            "dimensions": fitted.dimensions,
            "signal": found.signal,
            "featured": F is not None,
            "strength": fitted.strength,
            "learnt": with_taste(fitted.dimensions, found),
        }
        factors = (scale[:, None] * (V @ R) / math.sqrt(size)).astype(np.float32)
        return Learnt(factors, np.zeros(n, np.float32), counts.value, details)

    # ------------------------------------------------------------ reading out

    def read_out(self, learnt: Learnt) -> ReadOut:
        """E[u | y] of (8)."""
        if not learnt.factors.shape[1]:
            return Same()
        place, gain, base, prior = gain_of(learnt)
        liked_from = None if isinstance(self.liked_from, str) else self.liked_from
        return PosteriorMean(liked_from, place, gain, base, prior)

    def likeness(self, learnt: Learnt) -> Likeness:
        """Without popularity, which all items share; and of the core alone, unless features say something of others."""
        if not learnt.factors.shape[1]:
            return Likeness()
        return Likeness(1, None if learnt.details["featured"] else learnt.some("core"))


# ------------------------------------------------------------------ what is released


class Estimate(NamedTuple):
    """Released numbers with the deviation of their noise."""

    value: NDArray[np.float64]
    deviation: float

    @classmethod
    def of(cls, session: Session, line: str | Line, statistic: Statistic) -> Estimate:
        return cls(session.release(line, statistic).astype(np.float64), session.deviation(line, statistic))

    def with_another(self, other: Estimate) -> Estimate:
        """Both of the same numbers, averaged by their noise."""
        one, two = self.deviation**-2, other.deviation**-2
        return Estimate((one * self.value + two * other.value) / (one + two), (one + two) ** -0.5)


class Signal(NamedTuple):
    """Whether pairs are worth their price, from released counts.

    `signal` is popularity's eigenvalue of the pairs over the edge of their noise, `top` the part of all choices that
    few items have; `faint` where not even the counts of the most popular items stand out of theirs.
    """

    worth: bool
    signal: float
    top: float
    faint: bool

    @classmethod
    def of(cls, counts: Estimate, core: NDArray[np.int64], size: float, t: float, gate: float) -> Signal:
        from scipy.special import ndtri

        c = counts.value
        k = max(min(128, len(c) // 10), 1)
        by_chance = -float(ndtri(k / len(c))) if len(c) > 1 else 0.0
        faint = bool(np.sort(c)[-k] < 1.25 * by_chance * counts.deviation)
        power = max(float((c[core] ** 2 - counts.deviation**2).sum()), 0.0)
        signal = power / size / (t * math.sqrt(len(core)))
        some = np.sort(np.maximum(c, 0.0))
        top = float(some[-FEW:].sum() / max(some.sum(), 1e-9))
        worth = not faint and len(core) > 3 and signal >= gate * (1 + 1.5 * top)
        return cls(bool(worth), float(signal), top, faint)


def released_pairs(session: Session, lines: list[Line], pairs: Statistic, m: int) -> tuple[NDArray[np.float32], float]:
    """G̃ (m, m) of (3), 0 on the diagonal, and t; several releases are averaged by their noise."""
    G = np.zeros((m, m), np.float32)
    precision = [session.deviation(line, pairs) ** -2 for line in lines]
    for line, weight in zip(lines, precision, strict=True):
        part = np.zeros((m, m), np.float32)
        for rows, noisy in session.release_blocks(line, pairs):
            unfold_triangle((noisy * (weight / sum(precision) / math.sqrt(2.0))).astype(np.float32), rows.start, part)
        G += part
    return G, sum(precision) ** -0.5 / math.sqrt(2.0)


# ------------------------------------------------------------------ estimating by known noise


class Fitted(NamedTuple):
    """V (M, r) and W (K, r) of (4), the strength of the features, and how many dimensions stand out of the noise."""

    V: NDArray[np.float64]
    W: NDArray[np.float64]
    strength: float
    dimensions: int


def factorise(
    G: NDArray[np.float32],
    t: float,
    c: NDArray[np.float64],
    size: float,
    rank: int,
    rounds: int,
    seed: int,
    features: NDArray[np.float64] | None = None,
) -> Fitted:
    """(4) by rounds of (5)–(7).

    Parameters
    ----------
    G : (M, M), symmetric, 0 on the diagonal
    t : deviation of its noise
    c : (M,), counts above 0
    size : ñ
    rank, rounds : int
    seed : of the start of the eigenvectors
    features : (M, K), optional
    """
    M = len(c)
    rank = min(rank, M - 2)
    kappa = size / max(float(c.sum() ** 2 - (c**2).sum()), 1e-9)
    h = (t + math.sqrt(kappa) * c) ** -0.5
    a = (h * c)[:, None]
    G = (h[:, None] * G * h).astype(np.float32)
    F = np.ones((M, 1)) if features is None else np.column_stack([np.ones(M), features - features.mean(axis=0)])
    length, Q, edge = leading(G, rank, seed)
    v = Q * np.sqrt(np.maximum(length, 1e-3 * max(length[0], edge))) / a
    largest = 5 * max(float(np.median(np.abs(v[:, 0]))), 1e-12)
    v = np.clip(v, -largest, largest)
    strength = np.full(F.shape[1], 3.0)
    strength[0] = 1e-9  # the constant is free
    S = np.linalg.inv(F.T @ F + np.diag(strength))
    mean = F @ (S @ (F.T @ v))
    T = np.diag(((v - mean) ** 2).mean(axis=0) + 1e-7 * largest**2)
    B = np.eye(rank)
    C = np.zeros((M, rank))
    for _ in range(rounds):
        A = (v * a**2).T @ v + (B * (a[:, 0] ** 2 @ C)) @ B.T
        own = a**3 * (v * (v**2).sum(axis=1)[:, None] + ((v @ B) * C) @ B.T)
        right = a * (G @ (a * v).astype(np.float32) + own)
        B, inverse, alpha = common_basis(T, A)
        C = 1 / (1 + a**2 * alpha)
        v = 0.5 * v + 0.5 * (C * (right @ B + mean @ inverse.T)) @ B.T
        S = np.linalg.inv(F.T @ F + np.diag(strength))
        W = S @ (F.T @ v)
        mean = F @ W
        T = ((v - mean).T @ (v - mean) + (B * C.sum(axis=0)) @ B.T) / M
        if F.shape[1] > 1:
            w = W[1:] @ inverse.T
            found = w.size / max(float((w**2).sum() + rank * np.trace(S[1:, 1:])), 1e-12)
            strength[1:] = np.clip(found, 1e-2, 1e6)
    beyond = int((length[1:] > BEYOND * edge).sum())  # the first is popularity
    return Fitted(v, W, float(strength[-1]), beyond)


def leading(G: NDArray[np.float32], rank: int, seed: int) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Eigenvalues, largest first, eigenvectors, and the edge of the noise: by subspace iteration where G is large.

    The noise has deviation 1 and so eigenvalues between ±2√M; G + 2√M I keeps its negative end behind.
    """
    M = len(G)
    edge = 2 * math.sqrt(M)
    if M <= 600:
        values, vectors = np.linalg.eigh(G.astype(np.float64))
        return values[::-1][:rank], vectors[:, ::-1][:, :rank], max(-float(values[0]), 1e-9)
    Q = np.random.default_rng(seed).standard_normal((M, min(rank + 8, M))).astype(np.float32)
    for _ in range(8):
        Q = np.linalg.qr(G @ Q + np.float32(edge) * Q)[0]
    values, turn = np.linalg.eigh((Q.T @ (G @ Q)).astype(np.float64))
    return values[::-1][:rank], (Q @ turn[:, ::-1][:, :rank]).astype(np.float64), edge


def common_basis(T: NDArray[Any], A: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """B of (5), its inverse, and α."""
    values, R = np.linalg.eigh(T)
    root = np.sqrt(np.maximum(values, 1e-6 * values[-1]))
    L = R * root
    alpha, Q = np.linalg.eigh(L.T @ A @ L)
    return L @ Q, Q.T @ (R / root).T, np.maximum(alpha, 0.0)


# ------------------------------------------------------------------ reading histories


def read_out(V: NDArray[Any], c: NDArray[Any], size: float) -> tuple[NDArray[Any], float]:
    """R of (8), and u₀: E u uᵀ = I is the scale of V, and E u follows from the counts; nothing is tuned."""
    popular = (V * c[:, None]).sum(axis=0) / c.sum()
    length = max(float(np.linalg.norm(popular)), 1e-30)
    r = len(popular)
    R = np.linalg.qr(np.column_stack([popular / length, np.eye(r)]))[0][:, :r]
    R[:, 0] *= 1.0 if R[:, 0] @ popular >= 0 else -1.0
    return R, min(1 / (math.sqrt(size) * length), 1.0)


_Gain = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
_GAINS: dict[int, tuple[weakref.ref[Any], _Gain]] = {}


def gain_of(learnt: Learnt) -> _Gain:
    """Which row of the gain is an item's; the gain, (core, r); what is added to it; u of an empty history.

    It follows from what is saved, so it is not saved itself; it is kept as long as the factors are.
    """
    key = id(learnt.factors)
    known = _GAINS.get(key)
    if known is None or known[0]() is not learnt.factors:
        known = (weakref.ref(learnt.factors, lambda _: _GAINS.pop(key, None)), _gain(learnt))
        _GAINS[key] = known
    return known[1]


def _gain(learnt: Learnt) -> _Gain:
    assert learnt.counts is not None
    core = np.asarray(learnt.details["core"], np.int64)
    Y = learnt.factors[core].astype(np.float64)
    c = np.maximum(learnt.counts[core], learnt.details["least_count"])
    lean = learnt.details["lean"]
    precision = np.ones(Y.shape[1])
    precision[0] = learnt.details["lean_precision"]
    YD = Y / (c / c.sum())[:, None]
    gain = YD @ np.linalg.inv(np.diag(precision) + Y.T @ YD)
    prior = np.zeros(Y.shape[1])
    prior[0] = lean
    base = prior - prior @ (Y.T @ gain)
    place = np.full(len(learnt.factors), -1, np.int32)
    place[core] = np.arange(len(core))
    return place, gain.astype(np.float32), base.astype(np.float32), prior.astype(np.float32)


# ------------------------------------------------------------------ in words


def usual_threshold(rating_range: Range) -> float | Literal["everything"]:
    """Three quarters up the range; everything where there is but one rating."""
    low, high = rating_range
    return EVERYTHING if low == high else low + 0.75 * (high - low)  # type: ignore[return-value]


def without_taste(found: Signal, gate: float) -> str:
    """What survived the noise where pairs were not bought."""
    why = f"pairs of items have {_times(found.signal)} the noise, and {_times(gate * (1 + 1.5 * found.top))} is needed"
    if found.faint:
        return f"Nothing personal, and little of which items are liked: even popular items drown in the noise ({why})."
    return f"Which items are liked, and nothing personal: everybody gets the same list ({why})."


def with_taste(dimensions: int, found: Signal) -> str:
    """What survived the noise where they were."""
    why = f"pairs of items have {_times(found.signal)} the noise"
    if not dimensions:
        return f"Which items are liked, and only a hint of personal taste: no dimension of it stands out ({why})."
    return f"Personal taste in about {dimensions} dimension{'s' if dimensions > 1 else ''} ({why})."


def _times(signal: float) -> str:
    return f"{signal:.1f} times" if signal < 10 else f"{signal:,.0f} times"
