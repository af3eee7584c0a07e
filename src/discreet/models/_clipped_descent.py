"""The base of DPSGLD and DPSGD: users solve, items follow a clipped noisy gradient.

Users' vectors are solved by least squares, with a constant ι before them so that items have a bias,
and cut to the norm Γ: item factors V have the bias over ι as their first column, which `parts`
splits off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import (
    Algorithm,
    Learned,
    Range,
    most_frequent,
    own_mean_bounds,
    share_of_items,
    spread_out,
    what_factors_explain,
)
from discreet.models.fold_in import FoldIn
from discreet.models.parameters import (
    MOST_STEPS,
    check_fraction,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemCounts
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, Restrict, Solve


@dataclass(frozen=True, repr=False)
class ClippedDescent(Algorithm):
    """Base of `Langevin` and `PoissonDescent`.

    Parameters
    ----------
    factors : int
    iterations : int
        T.
    ridge_per_rating : float
        λ: ridge of a user's least squares, per rating of the user.
    gradient_norm : float
        C: the norm to which a user's gradient is cut.
    user_norm : float
        Γ.
    intercept : float
        ι, as a part of Γ.
    initial_scale : float
        Standard deviation of the factors at the start.
    prior_count : float
        A user's own mean counts so many ratings of the middle of the range as well.
    max_items : int
        How many items of a user count when items are counted.
    item_fraction : float
        The share of items, the most frequent by noisy counts, that get factors.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    factors: int = 8
    iterations: int = 20
    ridge_per_rating: float = 0.2
    gradient_norm: float = 2.0
    user_norm: float = 1.0
    intercept: float = 0.5
    initial_scale: float = 0.3
    prior_count: float = 3.0
    max_items: int = 50
    item_fraction: float = 0.4
    rating_range: Range | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    def _check(self) -> None:
        for name in ("factors", "max_items"):
            check_int(name, getattr(self, name))
        check_int("iterations", self.iterations, 1, MOST_STEPS)
        for name in (
            "ridge_per_rating",
            "gradient_norm",
            "user_norm",
            "intercept",
            "initial_scale",
        ):
            check_positive(name, getattr(self, name))
        check_number("prior_count", self.prior_count)
        check_fraction("item_fraction", self.item_fraction)
        check_that(
            self.intercept < 1, f"intercept is {self.intercept!r} of the norm, but must be below 1"
        )

    def bounds(self) -> Bounds:
        assert self.rating_range is not None
        return own_mean_bounds(
            self.max_items, self.rating_range, "user", self.prior_count, self.user_norm
        )

    def n_frequent(self, n_items: int) -> int:
        return share_of_items(self.item_fraction, n_items)

    @property
    def iota(self) -> float:
        return self.intercept * self.user_norm

    def count(
        self, users: Users, session: Session
    ) -> tuple[Users, NDArray[np.int64], NDArray[Any]]:
        """Restrict users to the frequent items; return those and their noisy counts (≥ 1)."""
        users.apply(Choose())
        counts = session.release("counts", users.sum(ItemCounts()))
        frequent = most_frequent(counts, self.n_frequent(users.n_items))
        return users.copy_after(Restrict(frequent)), frequent, np.maximum(counts[frequent], 1.0)

    def solve_users(self, users: Users, V: NDArray[Any]) -> None:
        """Solve for the users' vectors, each from its own ratings."""
        F, b = self.parts(V)
        users.apply(Solve(F, self.ridge_per_rating, exponent=1.0, bias=b, intercept=self.iota))

    def parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Split V into factors and biases."""
        return np.ascontiguousarray(V[:, 1:], np.float32), (self.iota * V[:, 0]).astype(np.float32)

    def start(self, m: int, seed: int) -> NDArray[np.float64]:
        V = self.initial_scale * np.random.default_rng(seed).standard_normal((m, self.factors))
        return np.hstack([np.zeros((m, 1)), V])

    def make_learned(self, V: NDArray[Any], frequent: NDArray[np.int64], n_items: int) -> Learned:
        factors, biases = self.parts(V)
        details = {"frequent": frequent.tolist()}
        whole = spread_out(factors, frequent, n_items)
        return Learned(whole, spread_out(biases, frequent, n_items), None, details)

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        assert self.rating_range is not None
        known = learned.some("frequent")
        return what_factors_explain(
            self.ridge_per_rating, 1.0, known, self.rating_range, "user", self.prior_count
        )
