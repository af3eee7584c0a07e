"""Unsafe releases: they make ε infinite, and every statement and card is marked NOT PRIVATE."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.privacy.accounting.mechanisms import Mechanism
from discreet.privacy.release.session import ReleasableSum, Session, caller
from discreet.privacy.sealed import KEY


def reveal(session: Session, name: str, statistic: ReleasableSum) -> NDArray[Any]:
    """Return the statistic without noise and outside the plan.

    Privacy: none. The entry is written first, and from then on ``session.statement.epsilon`` is
    infinite.
    """
    session.ledger.record(
        name,
        mechanism="none",
        sensitivity=float(statistic.sensitivity(session.plan.budget.neighboring, "l2")),
        norm="l2",
        noise_multiplier=0.0,
        shape=tuple(statistic.shape),
        where=caller(),
        unsafe=True,
    )
    return statistic.compute(KEY)


def under_noised(
    session: Session,
    name: str,
    statistic: ReleasableSum,
    noise: Mechanism | None,
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Add noise of a fixed size, however far one user moves the statistic, as the Huber paper does.

    Privacy: none. The entry is written first and marked unsafe: from then on
    ``session.statement.epsilon`` is infinite.
    """
    sensitivity = statistic.sensitivity(
        session.plan.budget.neighboring, noise.norm if noise else "l2"
    )
    deviation = noise.standard_deviation if noise else 0.0
    session.ledger.record(
        name,
        mechanism=noise.kind if noise else "none",
        sensitivity=sensitivity,
        norm=noise.norm if noise else "l2",
        noise_multiplier=deviation / sensitivity,
        shape=tuple(statistic.shape),
        where=caller(),
        alpha=getattr(noise, "alpha", None),
        unsafe=True,
    )
    exact = statistic.compute(KEY)
    return exact + noise.sample(exact.shape, rng) if noise else exact


class NoNoise:
    """A source without noise: for tests that compare with the non-private algorithm.

    A session with it states an infinite ε.
    """

    grade: ClassVar[str] = "none"
    delta: float = 0.0

    def add(
        self,
        values: NDArray[Any],
        mechanism: Mechanism,
        weights: ArrayLike | None = None,
        grid: float | None = None,
    ) -> NDArray[Any]:
        """Return ``values`` in real units."""
        return values if grid is None else values * grid
