"""Item factors of rating DPMF: a prior from pairs of residuals, and steps that refine it.

All of it works on released numbers; `rating` has the equations. Every value here is frozen: a step,
a rotation or a check returns new factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models._empirical_bayes import Noisy
from discreet.models.dpmf.item_biases import KEPT
from discreet.models.dpmf.population import Counts
from discreet.models.dpmf.public_factors import PublicFactors
from discreet.models.dpmf.residual_covariance import FactorPosterior

CURVATURE_SPREAD = 0.5  # how far from the average an item's curvature is taken to be
OWN_SHARE = 0.5  # of D: see `subtract_own_share`
NOISE_EDGE = 1.0  # times √r deviations, which eigenvalues of noise alone reach: no steps there
LONGEST = 1.5  # bound on ‖v_j‖ over σ before factors: no item differs by more from the others
Z_IMPROVE = 3.0  # deviations of its noise from which on a smaller rank is better
Z_DROP = 0.5  # likewise, from which on factors lose
Z_REVERT = 3.0  # likewise, from which on factors are worse than before the last steps
BLOCK = 4096  # items whose factors are solved for at a time, so that memory stays small


class Step(NamedTuple):
    """One released step: where it was taken, its curvature, z of (5), and the noise of that."""

    V: NDArray[np.float64]
    K: NDArray[np.float64]
    z: NDArray[np.float64]
    deviation: float


class Gain(NamedTuple):
    """What users gain by factors on ratings left out, in squares of ratings, and its noise."""

    value: float
    deviation: float


@dataclass(frozen=True)
class Factors:
    """Item factors, their prior, and the steps taken so far.

    Parameters
    ----------
    V : (n_items, r)
    mean : (n_items, r)
        Prior means.
    core : (M,)
        Items with pairs.
    inside, outside : (M, r, r) and (r, r)
        Prior covariances of the items in the core, and of all others.
    dimensions : int
        How many stand out of the noise of the pairs.
    unit : float
        σ² before there were factors, in which gains are compared; ‖v_j‖² is at most `LONGEST`² of
        it.
    strength : float, optional
        Of public features.
    steps : tuple of Step
    moving : bool
        Whether there will be more steps.
    checked : (V, Gain), optional
        The best factors that users have compared.
    """

    V: NDArray[np.float64]
    mean: NDArray[np.float64]
    core: NDArray[np.int64]
    inside: NDArray[np.float64]
    outside: NDArray[np.float64]
    dimensions: int
    unit: float
    strength: float | None = None
    steps: tuple[Step, ...] = ()
    moving: bool = True
    checked: tuple[NDArray[np.float64], Gain] | None = None

    @classmethod
    def from_pairs(
        cls,
        core: NDArray[np.int64],
        found: FactorPosterior,
        features: NDArray[np.float64] | None,
        n_items: int,
        noise_variance: float,
    ) -> Factors:
        """Begin at the means of what the pairs say, for σ² without factors."""
        rank = len(found.T)
        mean = np.zeros((n_items, rank)) if features is None else features @ found.W
        mean[core] = found.mean
        small = 1e-9 * max(float(np.trace(found.T)), 1e-300)
        return cls(
            clip_norms(mean, LONGEST * math.sqrt(noise_variance)),
            mean,
            core,
            found.covariances(),
            found.T + small * np.eye(rank),
            found.dimensions,
            noise_variance,
            None if features is None else found.strength,
        )

    @classmethod
    def from_public(cls, found: PublicFactors, noise_variance: float) -> Factors:
        """Return the factors of public users, which do not change any more."""
        return cls(
            clip_norms(found.mean, LONGEST * math.sqrt(noise_variance)),
            found.mean,
            np.arange(len(found.mean)),
            found.covariance,
            found.T,
            found.rank,
            noise_variance,
            moving=False,
        )

    @property
    def rank(self) -> int:
        """r."""
        return int(self.V.shape[1])

    def rotate(self, Q: NDArray[np.float64]) -> Factors:
        """Return the same in the basis Q, which may be shorter: what is outside it is dropped."""
        return replace(
            self,
            V=self.V @ Q,
            mean=self.mean @ Q,
            inside=Q.T @ self.inside @ Q,
            outside=Q.T @ self.outside @ Q,
            dimensions=min(self.dimensions, Q.shape[1]),
            steps=tuple(Step(s.V @ Q, Q.T @ s.K @ Q, s.z @ Q, s.deviation) for s in self.steps),
        )

    def take_step(
        self, K: Noisy, g: Noisy, rho: float, counts: Counts, noise_variance: float
    ) -> Factors:
        """Return the factors after one step by (5), for σ² as given.

        All steps count by their noise, and by how far V has been off where they were taken, because
        the curvature of an item differs from the average.
        """
        c = KEPT * counts.weighted[:, None]
        z = c * (self.V @ subtract_own_share(K, rho)) - g.value
        steps = (*self.steps, Step(self.V, K.value, z, g.deviation))
        off = [float(((c * ((self.V - s.V) @ K.value)) ** 2).mean()) for s in self.steps]
        off.append(max(float((g.value**2).mean()) - g.deviation**2, 0.0))
        noise = [s.deviation**2 for s in steps] + CURVATURE_SPREAD**2 * np.array(off)
        total = float((1 / noise).sum())
        parts = 1 / noise / total
        Z = sum(part * (s.z @ s.K) for part, s in zip(parts, steps, strict=True))
        M = sum(part * (s.K.T @ s.K) for part, s in zip(parts, steps, strict=True))
        k, Q = np.linalg.eigh(M)
        k = np.sqrt(np.maximum(k, K.deviation**2))
        S = c * k
        known = np.maximum(1 - NOISE_EDGE**2 * self.rank * K.deviation**2 / k**2, 0.0)
        precision = known * S**2 / (1 / total + counts.weight * noise_variance * S)
        V = self._posterior_means(Q, precision, precision * (Z @ Q / k) / S)
        return replace(self, V=clip_norms(V, LONGEST * math.sqrt(self.unit)), steps=steps)

    def _posterior_means(
        self, Q: NDArray[Any], precision: NDArray[Any], pull: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Combine each item's prior with independent Gaussians along the columns of Q."""
        inside = np.linalg.inv(self.inside)
        outside = np.linalg.inv(self.outside)
        V = np.empty_like(pull)
        place = np.full(len(V), -1)
        place[self.core] = np.arange(len(self.core))
        for start in range(0, len(V), BLOCK):
            part = slice(start, min(start + BLOCK, len(V)))
            at = place[part]
            prior = np.where((at >= 0)[:, None, None], inside[np.maximum(at, 0)], outside)
            right = np.einsum("jab,jb->ja", prior, self.mean[part]) + pull[part] @ Q.T
            A = prior + (Q * precision[part][:, None, :]) @ Q.T
            V[part] = np.linalg.solve(A, right[:, :, None])[:, :, 0]
        return V

    def keep(self, gain: Gain, chance: float = 0.0) -> Factors | None:
        """Return what to go on with, by what users gain now and gained at the last check.

        Factors that are clearly worse than before are replaced by those, and there are no more
        steps; None where the better of the two does not gain more than by `chance`.
        """
        now = replace(self, checked=(self.V, gain))
        if self.checked is not None:
            V, before = self.checked
            noise = math.hypot(gain.deviation, before.deviation)
            if before.value - gain.value > Z_REVERT * noise:
                gain = before
                now = replace(self, V=V, moving=False)
        now = replace(now, dimensions=min(now.dimensions, now.rank))
        return None if gain.value < chance - Z_DROP * gain.deviation else now


def clip_norms(V: NDArray[np.float64], longest: float) -> NDArray[np.float64]:
    """Return the vectors, shortened to that norm where they are longer."""
    norm = np.sqrt((V**2).sum(axis=1, keepdims=True))
    return np.asarray(V * np.minimum(1.0, longest / np.maximum(norm, 1e-300)))


def principal_basis(V: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the basis in which what explains most of the ratings comes first."""
    _, Q = np.linalg.eigh((V * counts[:, None]).T @ V)
    return np.ascontiguousarray(Q[:, ::-1])


def ranks_to_compare(rank: int) -> tuple[int, ...]:
    """Return ranks up to this one, ascending, each about two thirds of the next: five at most."""
    ranks = [rank]
    while len(ranks) < 5 and ranks[-1] > 1:
        ranks.append(min(math.ceil(0.65 * ranks[-1]), ranks[-1] - 1))
    return tuple(reversed(ranks))


def choose_rank(ranks: tuple[int, ...], gains: NDArray[np.float64], deviation: float) -> int:
    """Return the index of the best rank, or of the largest unless another is clearly better."""
    best = int(np.argmax(gains))
    return best if gains[best] - gains[-1] > Z_IMPROVE * deviation else len(ranks) - 1


def subtract_own_share(K: Noisy, rho: float) -> NDArray[np.float64]:
    """Subtract from K what a user's solution owes to the rating that it is compared with, as EM.

    û_i is fitted to y_ij too, so that its residual is less by C_i v_j, C_i being the posterior
    covariance of u_i. With E[û ûᵀ] + E[C] = I, and all ‖û_i‖ taken to be their mean ū = tr K/ρ, the
    sums lack D = E[C ρ/‖û‖] = (ρ/ū) I − K. Norms differ, so that this is too much: half of it is
    taken, which was better than none and than all of it. Nothing is taken where tr K cannot be told
    from its noise, because it is divided by.
    """
    k, Q = np.linalg.eigh(K.value)
    trace = float(k.sum())
    if trace <= max(2 * K.deviation * math.sqrt(len(k)), 1e-9):
        return K.value
    mean_norm = trace / rho
    return np.asarray((Q * (k - OWN_SHARE * np.maximum(rho / mean_norm - k, 0.0))) @ Q.T)


def longest_solution(rank: int) -> float:
    """Return L, the norm at which a user's coefficients are clipped for K: they are N(0, I)."""
    return math.sqrt(2 * rank)
