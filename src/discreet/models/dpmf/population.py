"""How many users there are and how often each item is rated: the first releases of rating DPMF.

Counts are Σ_i w_ij with w_ij² = q_j / Σ_{j ∈ Ω_i} q_j, so that a user has the norm 1. They are
released twice: with q = 1, and with q_j = c̃_j^(−2a), which gives rare items a share and is the
weight of every later sum. Both together, by their known noise, give the estimates below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.errors import BudgetExceeded
from discreet.models._empirical_bayes import likely_counts
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.gradients import Size, WeightCounts
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import WeighEntries


class Population(NamedTuple):
    """Released numbers about all users together.

    users : the number of users
    per_user : ratings of an average user
    center : mean of the users' mean ratings, from the middle of the range
    center_variance : variance of the noise that is left in `center`
    """

    users: float
    per_user: float
    center: float
    center_variance: float


class Counts(NamedTuple):
    """Released counts of the items.

    even : estimated counts with q = 1, in units of `weight`
    weighted : estimated counts in the weights of all later sums
    raw : the second release, as it came
    deviation : of the noise on `raw`
    weight : of an average rating
    importance : q, public from then on
    """

    even: NDArray[np.float64]
    weighted: NDArray[np.float64]
    raw: NDArray[np.float64]
    deviation: float
    weight: float
    importance: NDArray[np.float64]

    def share_of(self, items: NDArray[np.int64]) -> float:
        """Return the share of all ratings that these items have."""
        return min(float(self.even[items].sum()) / max(float(self.even.sum()), 1e-9), 1.0)


def release_population(users: Users, session: Session, half: float) -> Population:
    """Release the number of users and their mean rating, shrunk to the middle by its known noise.

    `half` is half of the width of the rating range.
    """
    size = users.sum(Size(half))
    share, m, mean = session.release("size", size)
    deviation = session.deviation("size", size)
    if m < deviation / 2:
        raise BudgetExceeded(
            f"ε = {session.plan.budget.epsilon:g} is too little for so few users: their number,"
            f" released as {m:,.0f}, is within its noise of ±{deviation:,.0f}. Raise epsilon"
            " (what was released has been charged: privacy_ says how much)."
        )
    m = max(float(m), 1.0)
    session.warn_if_delta_large(m)
    noise = deviation / m
    trust = 1 / (1 + 4 * noise**2)  # the means of users differ by about half of `half`
    center = float(np.clip(mean / m, -1, 1) * half) * trust
    per_user = min(max(float(share) / m, 1.0 / users.n_items), 1.0) * users.n_items
    return Population(m, per_user, center, trust * (noise * half) ** 2)


def release_counts(users: Users, session: Session, population: Population, rarity: float) -> Counts:
    """Release counts with even weights, then with weights that favor rare items; keep the latter.

    `rarity` is a.
    """
    users.apply(WeighEntries(np.ones(users.n_items)))
    counting = users.sum(WeightCounts())
    first = session.release("counts", counting)
    one = session.deviation("counts", counting)
    weight = population.users / max(float(first.sum()), population.users)
    q = np.maximum(first, max(one, 0.5)) ** (-2 * rarity)
    users.apply(WeighEntries(q))
    counting = users.sum(WeightCounts())
    raw = session.release("reweighted counts", counting)
    two = session.deviation("reweighted counts", counting)
    alone = likely_counts(first, np.full(len(first), one**2))
    unit = np.sqrt(q) * max(float(raw.sum()), 1.0) / max(float((alone * np.sqrt(q)).sum()), 1.0)
    precision = one**-2 + (unit / two) ** 2
    both = (first / one**2 + raw * unit / two**2) / precision
    even = likely_counts(both, 1 / precision)
    return Counts(np.maximum(even, 1e-3), np.maximum(even * unit, 1e-3), raw, two, weight, q)
