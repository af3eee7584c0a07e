"""One pass over users whose result is thrown away: how benchmarks compare engines.

Only engines hold the key to private data, so this is here and not with the benchmarks. What is
computed is never shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import GlobalGram
from discreet.privacy.statistics.gradients import WeightedResidualGradient
from discreet.privacy.statistics.sums import compute_together
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import ComputeResiduals, Solve, WeighEntries

_GRIDS = (2.0**-40, 2.0**-30)


def trial_pass(people: Any, n_items: int, rank: int) -> Callable[[int], None]:
    """Return a function that runs a pass: each user's factors and residuals, and the sums of a
    Gram matrix and a gradient.
    """
    users = seal(people, Bounds(items=10**9, rating=1.0, center=3.0))
    walk = users
    walk.apply(WeighEntries(np.ones(n_items)))
    V = (0.3 * np.random.default_rng(0).standard_normal((n_items, rank))).astype(np.float32)
    x = np.hstack([np.zeros((n_items, 1), np.float32), V])

    def step(number: int) -> None:
        walk.apply(
            Solve(V + np.float32(0.01 * number), ridge=8.0, center=0.1, stretch=True, intercept=0.5)
        )
        walk.apply(ComputeResiduals(x, 1.0))
        sums = (walk.sum(GlobalGram()), walk.sum(WeightedResidualGradient()))
        compute_together(KEY, list(zip(sums, _GRIDS, strict=True)))
        for one, grid in zip(sums, _GRIDS, strict=True):
            one.compute(KEY, grid=grid)

    return step
