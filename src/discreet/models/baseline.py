"""What the private baselines share: ratings centred by each user's own mean, noisy counts, and how users are folded in.

All of them score item j as

    score_j = mean of the user's own ratings (with three of the middle of the scale) + u · v_j + b_j

for the frequent items, by noisy counts, and predict the user's own mean for the rest. They learn from ratings; the
files `frank_wolfe`, `private_svd`, `sgld` and `sgd` hold the algorithms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.kernels import solve_rows
from discreet.models.checks import (
    MOST_STEPS,
    require,
    require_fraction,
    require_positive,
    require_shares,
    require_whole,
)
from discreet.models.private import PrivateRecommender
from discreet.privacy.bounds import Bounds
from discreet.privacy.plan import Plan, Release
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session

#: So many ratings of the middle of the scale count towards a user's mean.
PRIOR_COUNT = 3.0

#: What a baseline releases, by name: how often, its share of the budget, the shape, and with which rate of users.
Lines = dict[str, tuple[int, float, tuple[int, ...], float]]


class Baseline(PrivateRecommender):
    """Base of `DPFrankWolfe`, `DPSVD`, `DPSGLD` and `DPSGD`."""

    factors: int
    regularization: float
    max_items: int
    user_norm: float = 1.0
    centring: Any = "user"
    rating_range: tuple[float, float] | None
    item_fraction: float
    shares: dict[str, float] | None

    frequent_: NDArray[np.bool_]

    #: 1 where λ is a ridge per rating of the user, 0 where it is one for all.
    _ridge_exponent: float = 0.0
    #: Parameters that are numbers above 0.
    _positive: tuple[str, ...] = ("regularization",)

    # ------------------------------------------------------------ the promise

    def bounds(self) -> Bounds:
        low, high = self._range()
        if self.centring != "user":
            return Bounds(items=self.max_items, rating=(high - low) / 2, centre=self.centring, norm=self.user_norm)
        return Bounds(
            items=self.max_items,
            rating=(high - low) / 3,
            centre="user",
            prior_mean=(low + high) / 2,
            prior_count=PRIOR_COUNT,
            norm=self.user_norm,
        )

    def _shared(self, lines: Lines) -> Plan:
        """The plan of these releases; `shares` overrides the shares of the budget."""
        require_shares(self.shares, lines)
        releases = []
        for name, (count, default, shape, rate) in lines.items():
            share = (self.shares or {}).get(name, default)
            releases.append(Release(name, count, math.sqrt(count / share), shape=shape, rate=rate))
        return Plan.calibrated(releases, self.budget, self.accountant)

    def _start(self, ratings: Ratings) -> tuple[Users, Session]:
        """Sealed users and the session of one fit, with what is assumed to be public written down."""
        self._begin(ratings)
        self._infer_range(ratings)
        users, session = self._open_session(ratings)
        self._assume_range(session)
        return users, session

    def _deviation(self, session: Session, name: str) -> float:
        """Standard deviation of the noise on what was released last by that name, as the ledger has it."""
        if session.ledger.noise == "none":
            return 0.0
        last = [entry for entry in session.ledger.entries if entry.name == name][-1]
        return last.noise_multiplier * last.sensitivity

    # ------------------------------------------------------------ parameters

    def _check(self) -> None:
        super()._check()
        for name in ("factors", "max_items"):
            require_whole(name, getattr(self, name))
        for name in self._positive:
            require_positive(name, getattr(self, name))
        require_fraction("item_fraction", self.item_fraction)
        require(
            self.feedback == "explicit",
            f"{type(self).__name__} learns from ratings, so feedback is 'explicit'; for {self.feedback!r} use DPALS",
        )
        self._check_centring()

    def _check_centring(self) -> None:
        number = isinstance(self.centring, (int, float)) and not isinstance(self.centring, bool)
        good = self.centring == "user" or (number and math.isfinite(self.centring))
        require(good, f"centring is {self.centring!r}, but must be 'user' or a number")

    def _n_frequent(self, n_items: int) -> int:
        return max(1, math.ceil(self.item_fraction * n_items))

    def _frequent(self, counts: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of the items with the largest noisy counts."""
        return np.sort(np.argsort(-counts, kind="stable")[: self._n_frequent(len(counts))])

    # ------------------------------------------------------------ what was learnt

    def _finish(
        self, ratings: Ratings, factors: NDArray[Any], biases: NDArray[Any], frequent: NDArray[Any], session: Session
    ) -> None:
        """Take over the factors and biases of the frequent items; the others have none."""
        self.privacy_ = session.finish()
        V, b = np.zeros((ratings.n_items, factors.shape[1]), np.float32), np.zeros(ratings.n_items, np.float32)
        V[frequent], b[frequent] = factors, biases
        self.frequent_ = np.zeros(ratings.n_items, bool)
        self.frequent_[frequent] = True
        self.restore_items(ratings.item_ids, V, b, ratings.titles, self._range())

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Least squares with a ridge on the user's own ratings; not cut, for only the user sees it."""
        offset, target = self._centred(indptr, indices, values)
        n = len(indptr) - 1
        kept = np.bincount(np.repeat(np.arange(n), np.diff(indptr)), self.frequent_[indices], minlength=n)
        ridge = self.regularization * np.maximum(kept, 1.0) ** self._ridge_exponent
        return solve_rows(indptr, indices, target.astype(np.float32), self.item_factors_, ridge), offset

    def _centred(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The offset of each user, and per entry what factors are to explain: nothing for items without them."""
        n, counts = len(indptr) - 1, np.diff(indptr)
        row, middle = np.repeat(np.arange(n), counts), sum(self._range()) / 2
        total = np.bincount(row, values, minlength=n) + middle * PRIOR_COUNT
        offset = (total / (counts + PRIOR_COUNT)).astype(np.float32)
        if self.centring != "user":
            offset = np.full(n, self.centring, np.float32)
        target = values.astype(np.float32) - offset[row] - self.item_biases_[indices]
        return offset, np.where(self.frequent_[indices], target, np.float32(0))

    def state(self) -> dict[str, Any]:
        return {"range": self._range(), "frequent": np.flatnonzero(self.frequent_).tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen_range = state["range"][0], state["range"][1]
        self.frequent_ = np.zeros(len(self.item_ids_), bool)
        self.frequent_[state["frequent"]] = True


class GradientBaseline(Baseline):
    """Base of `DPSGLD` and `DPSGD`, whose steps follow a noisy gradient of the item factors.

    Users' vectors are solved by least squares, with a constant ι before them so that items have a bias, and cut to the
    norm Γ: item factors V have the bias over ι as their first column, which `_parts` takes off.
    """

    iterations: int
    intercept: float
    gradient_norm: float
    initial_scale: float

    _ridge_exponent = 1.0
    _positive: tuple[str, ...] = ("regularization", "user_norm", "intercept", "gradient_norm", "initial_scale")

    def _check(self) -> None:
        super()._check()
        require_whole("iterations", self.iterations, 1, MOST_STEPS)
        require(self.intercept < self.user_norm, f"intercept is {self.intercept!r}, but must be below user_norm")

    def _count(self, users: Users, session: Session) -> tuple[Users, NDArray[np.int64], NDArray[Any]]:
        """Users with the frequent items only, the positions of those, and their noisy counts, at least 1."""
        users.choose()
        counts = session.release("counts", users.item_counts())
        frequent = self._frequent(counts)
        return users.restrict(frequent), frequent, np.maximum(counts[frequent], 1.0)

    def _solve_users(self, users: Users, V: NDArray[Any]) -> None:
        """Users solve for their vectors, each for itself."""
        F, b = self._parts(V)
        users.solve(F, self.regularization, exponent=self._ridge_exponent, bias=b, intercept=self.intercept)

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors and biases."""
        return np.ascontiguousarray(V[:, 1:], np.float32), (self.intercept * V[:, 0]).astype(np.float32)

    def _initial(self, m: int) -> NDArray[np.float64]:
        V = self.initial_scale * np.random.default_rng(self.random_state).standard_normal((m, self.factors))
        return np.hstack([np.zeros((m, 1)), V])
