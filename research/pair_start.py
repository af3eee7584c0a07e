"""Item factors of DPMF as a start for DPALS and DPLMC: both papers name it as their bottleneck.

A DPMF for ratings gets a part of the budget μ²; the r leading directions of its item factors are
V⁰, public from then on, and the other model trains with the rest. Both releases compose:
μ² = μ₁² + μ₂².
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.dpals import NoisySolve
from discreet.models.dplmc import ProjectedGradient
from discreet.privacy.accounting import gdp
from discreet.privacy.release.session import Session
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import StartFrom

PAIRS = "DPMF"


@dataclass(frozen=True, repr=False)
class StartedSolve(NoisySolve):
    """DPALS from given item factors (n, r)."""

    given: Any = None

    def _start(self, users: Users, session: Session, seed: int) -> NDArray[Any]:
        lengths = np.linalg.norm(self.given, axis=0)
        scale = float(self.initial_scale or 0) * math.sqrt(len(self.given))
        return (scale * self.given / np.maximum(lengths, 1e-9)).astype(np.float32)


@dataclass(frozen=True, repr=False)
class StartedDescent(ProjectedGradient):
    """DPLMC from given item factors (n, r), and users by least squares as if all were rated."""

    given: Any = None

    def _start(
        self, users: Users, session: Session, per_user: float, m: float, seed: int
    ) -> NDArray[np.float64]:
        V = np.asarray(self.given, np.float64)
        ridge = 1e-6 * np.trace(V.T @ V) * np.eye(V.shape[1])
        W = V @ np.linalg.inv(V.T @ V + ridge) * (users.n_items / per_user)
        users.apply(StartFrom(W))
        return V


class PairStarted:
    """A DPMF, and a DPALS or DPLMC that starts from what it released."""

    def __init__(self, first: Any, model: Any, rank: int) -> None:
        self.first = first
        self.model = model
        self.rank = rank

    def fit(self, ratings: Ratings) -> PairStarted:
        self.first.fit(ratings)
        V = lead(self.first.item_factors_, self.rank)
        old = self.model.make_algorithm()
        kind = StartedSolve if isinstance(old, NoisySolve) else StartedDescent
        known = {field.name: getattr(old, field.name) for field in fields(old)}
        self.model.algorithm = kind(**known, given=V)
        self.model.fit(ratings)
        return self

    @property
    def privacy_(self) -> Any:
        """What both cost together."""
        parts = [self.first.privacy_, self.model.privacy_]
        mu = math.hypot(*(gdp.mu(part.epsilon, part.delta) for part in parts))
        return Cost(gdp.epsilon(mu, parts[0].delta))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@dataclass(frozen=True)
class Cost:
    """The ε of a composition."""

    epsilon: float


def lead(factors: NDArray[Any], rank: int) -> NDArray[np.float64]:
    """Return the leading directions (n, r), balanced as the start of DPLMC is: √n Q (σ²/n)^¼."""
    n = len(factors)
    Q, size, _ = np.linalg.svd(np.asarray(factors, np.float64), full_matrices=False)
    found = np.zeros((n, rank))
    kept = min(rank, Q.shape[1])
    found[:, :kept] = math.sqrt(n) * Q[:, :kept] * (size[:kept] ** 2 / n) ** 0.25
    return found
