"""The parameters of DPALS, what they allow one user to contribute, and what will be released at which price.

Everything here is public and known before any rating is read; `discreet.models.dpals` holds the algorithm and says what
the parameters mean.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from discreet.data.ratings import Ratings
from discreet.models.base import require
from discreet.models.private import PrivateRecommender
from discreet.privacy.bounds import Bounds
from discreet.privacy.budget import Neighbouring
from discreet.privacy.plan import Plan, Release
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import packed_size


class PlannedALS(PrivateRecommender):
    """What `DPALS` knows without data."""

    def __init__(
        self,
        factors: int = 16,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        iterations: int = 2,
        regularization: float | None = None,
        feedback: str = "explicit",
        unobserved_weight: float | None = None,
        user_exponent: float = 1.0,
        item_exponent: float = 0.5,
        noise_ridge: float = 0.25,
        user_normalizer: float = 400.0,
        max_items: int = 50,
        user_norm: float = 1.0,
        intercept: float | None = None,
        rating_range: tuple[float, float] | None = None,
        rating_bound: float | None = None,
        centring: float | Literal["user", "global"] = "user",
        item_fraction: float = 0.4,
        sampling: Literal["rarest", "uniform"] = "rarest",
        recount: bool = True,
        initialization: Literal["random", "spectral"] = "random",
        projection: bool = True,
        orthonormalize: bool = False,
        resample: bool = False,
        shares: dict[str, float] | None = None,
        sigmas: dict[str, float] | None = None,
        initial_scale: float | None = None,
        noise: Any = "secure",
        random_state: int = 0,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.iterations = iterations
        self.regularization = regularization
        self.feedback = feedback
        self.unobserved_weight = unobserved_weight
        self.user_exponent = user_exponent
        self.item_exponent = item_exponent
        self.noise_ridge = noise_ridge
        self.user_normalizer = user_normalizer
        self.max_items = max_items
        self.user_norm = user_norm
        self.intercept = intercept
        self.rating_range = rating_range
        self.rating_bound = rating_bound
        self.centring = centring
        self.item_fraction = item_fraction
        self.sampling = sampling
        self.recount = recount
        self.initialization = initialization
        self.projection = projection
        self.orthonormalize = orthonormalize
        self.resample = resample
        self.shares = shares
        self.sigmas = sigmas
        self.initial_scale = initial_scale
        self.noise = noise
        self.random_state = random_state

    _seen_range: tuple[float, float] | None = None

    # ------------------------------------------------------------ the promise

    def bounds(self) -> Bounds:
        low, high = self._range()
        rating = None if not self._explicit else self.rating_bound or (high - low) / 3
        centre = self.centring if isinstance(self.centring, (int, float)) else 0.0
        own = self.centring == "user"
        return Bounds(
            items=self.max_items, rating=rating, centre="user" if own else centre, prior_mean=(low + high) / 2,
            prior_count=3.0 if own else 0.0, norm=self.user_norm,
        )  # fmt: skip

    def plan(self, n_items: int) -> Plan:
        self._check()
        T, frequent = self.iterations, self._n_frequent(n_items)
        # how often, the part of μ², and how many numbers
        lines: dict[str, tuple[int, float, tuple[int, ...]]] = {"counts": (1, 0.035, (n_items,))}
        if self.recount:
            lines["recounts"] = 1, 0.035, (frequent,)
        if self._explicit and self.centring == "global":
            lines |= {"centre sum": (1, 0.005, (1,)), "centre count": (1, 0.005, (1,))}
        if self.initialization == "spectral":
            lines["initial"] = 1, 0.2, (frequent, frequent)
        if self._unobserved() > 0:
            lines["global"] = T, 0.02, (1, packed_size(self._rank))
        lines["gram"] = T, 0.19, (frequent, packed_size(self._rank))
        lines["sum"] = T, 0.74, (frequent, self._rank)
        if self.sigmas is not None:
            exact = [Release(name, n, self._multiplier(name), shape=shape) for name, (n, _, shape) in lines.items()]
            return Plan.explicit(exact, self.delta, self.neighbouring, self.accountant)
        share = {name: (self.shares or {}).get(name, default) for name, (_, default, _) in lines.items()}
        releases = [Release(name, n, math.sqrt(n / share[name]), shape=shape) for name, (n, _, shape) in lines.items()]
        return Plan.calibrated(releases, self.budget, self.accountant)

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        found: dict[str, Statistic] = {"counts": users.item_counts()}
        users = users.restrict(np.arange(self._n_frequent(users.n_items)))
        users.choose()
        users.solve(np.zeros((users.n_items, self.factors), np.float32), 1.0, intercept=self._intercept())
        found |= {"recounts": users.item_counts(), "gram": users.item_grams(), "sum": users.item_sums()}
        found |= {"global": users.global_gram(), "initial": users.covariance(self._row_norm())}
        return found | {"centre sum": users.rating_sum(), "centre count": users.rating_count()}

    def _multiplier(self, name: str) -> float:
        """The paper's σ over the sensitivity in its units: √k for what k items contribute to, 1 for K̃ and the start."""
        sigma = (self.sigmas or {}).get(name)
        require(sigma is not None and sigma > 0, f"sigmas needs a positive number for {name!r}")
        return float(sigma or 0) / (1.0 if name in ("global", "initial") else math.sqrt(self.max_items))

    # ------------------------------------------------------------ parameters

    @property
    def _explicit(self) -> bool:
        return self.feedback == "explicit"

    @property
    def _rank(self) -> int:
        return self.factors + (self._intercept() > 0)

    def _intercept(self) -> float:
        if self.intercept is not None:
            return self.intercept
        return 0.5 * self.user_norm if self._explicit else 0.0

    def _row_norm(self) -> float:
        """The most that the ratings which a user contributes can have as ℓ₂ norm."""
        return math.sqrt(self.max_items) * self.bounds().value

    def _lambda(self) -> float:
        return self.regularization if self.regularization is not None else 80.0 if self._explicit else 0.5

    def _unobserved(self) -> float:
        return self.unobserved_weight if self.unobserved_weight is not None else 0.0 if self._explicit else 0.6

    def _user_scale(self) -> float:
        return float(self.user_normalizer**-self.user_exponent)

    def _n_frequent(self, n_items: int) -> int:
        return max(1, math.ceil(self.item_fraction * n_items))

    def _range(self) -> tuple[float, float]:
        return self.rating_range or self._seen_range or (1.0, 5.0)

    def _infer_range(self, ratings: Ratings) -> None:
        self._seen_range = None
        if self._explicit and self.rating_range is None and ratings.n_ratings:
            self._seen_range = float(ratings.values.min()), float(ratings.values.max())

    def _assume_range(self, session: Session) -> None:
        if self._explicit:
            low, high = self._range()
            session.assume("ratings", f"the range of ratings, {low:g} to {high:g}", inferred=self.rating_range is None)

    def _check(self) -> None:
        for name in ("factors", "iterations", "max_items"):
            value = getattr(self, name)
            require(isinstance(value, (int, np.integer)) and bool(value >= 1),
                    f"{name} is {value!r}, but must be a whole number of at least 1")  # fmt: skip
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            good = value in allowed or (name == "centring" and isinstance(value, (int, float)))
            require(good, f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")
        require(0 < self.item_fraction <= 1, f"item_fraction is {self.item_fraction!r}, but must be above 0, up to 1")
        low, high = self._range()
        require(low < high, f"rating_range is ({low:g}, {high:g}), but must go from low to high")


_CHOICES = {
    "feedback": ("explicit", "implicit"),
    "centring": ("user", "global"),
    "sampling": ("rarest", "uniform"),
    "initialization": ("random", "spectral"),
}
