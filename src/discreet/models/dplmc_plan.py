"""The parameters of DPLMC, what they allow one user to contribute, and what will be released at which price.

Everything here is public and known before any rating is read; `discreet.models.dplmc` holds the algorithm and says what
the parameters mean.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal

import numpy as np

from discreet.models.checks import (
    MOST_SWEEPS,
    require,
    require_growth,
    require_number,
    require_one_of,
    require_positive,
    require_shares,
    require_whole,
)
from discreet.models.private import PrivateRecommender
from discreet.models.residual_steps import EVERY_ITEM, GROWTH, MOMENTUM, RIDGE, ResidualSteps, usual_rank
from discreet.privacy import gdp
from discreet.privacy.bounds import Bounds
from discreet.privacy.budget import Neighbouring
from discreet.privacy.descent import Descent
from discreet.privacy.plan import Plan, Release
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statistics import packed_size

_SIZE_SHARE = 0.02  # of μ², for how many users and ratings there are


class PlannedLMC(PrivateRecommender):
    """What `DPLMC` knows without data."""

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        iterations: int | None = None,
        variant: Literal["scaled", "paper"] = "scaled",
        step_size: float = 1.0,
        user_norm: float = 1.0,
        item_norm: float = 4.0,
        residual_norm: float | None = None,
        regularization: float | None = None,
        feedback: str = "explicit",
        unobserved_weight: float = 0.3,
        bias_iterations: int = 3,
        rarity: float = 0.3,
        shrinkage: float = 3.0,
        momentum: float | None = None,
        growth: float | None = None,
        intercept: float | None = None,
        popularity: bool = True,
        stretch: bool = True,
        rating_range: tuple[float, float] | None = None,
        centring: float | Literal["user"] = "user",
        balance_share: float | None = None,
        ratings_per_item: float | None = None,
        ratings_per_user: float | None = None,
        initialization: Literal["random", "spectral"] = "random",
        initial_epsilon: float | None = None,
        initial_scale: float = 0.3,
        spectral_scale: float = 1.0,
        balanced: bool = True,
        constants: Literal["tight", "printed"] = "tight",
        shares: dict[str, float] | None = None,
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.iterations = iterations
        self.variant = variant
        self.step_size = step_size
        self.user_norm = user_norm
        self.item_norm = item_norm
        self.residual_norm = residual_norm
        self.regularization = regularization
        self.feedback = feedback
        self.unobserved_weight = unobserved_weight
        self.bias_iterations = bias_iterations
        self.rarity = rarity
        self.shrinkage = shrinkage
        self.momentum = momentum
        self.growth = growth
        self.intercept = intercept
        self.popularity = popularity
        self.stretch = stretch
        self.rating_range = rating_range
        self.centring = centring
        self.balance_share = balance_share
        self.ratings_per_item = ratings_per_item
        self.ratings_per_user = ratings_per_user
        self.initialization = initialization
        self.initial_epsilon = initial_epsilon
        self.initial_scale = initial_scale
        self.spectral_scale = spectral_scale
        self.balanced = balanced
        self.constants = constants
        self.shares = shares
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    # ------------------------------------------------------------ the promise

    def bounds(self) -> Bounds:
        if not self._explicit:
            return Bounds(items=EVERY_ITEM, norm=self.user_norm)
        middle = sum(self._range()) / 2
        if self._paper and self.centring == "user":
            return Bounds(
                items=EVERY_ITEM,
                rating=self._largest(),
                centre="user",
                prior_mean=middle,
                prior_count=3.0,
                norm=self.user_norm,
            )
        centre = middle if isinstance(self.centring, str) else self.centring
        return Bounds(items=EVERY_ITEM, rating=self._largest(), centre=centre, norm=self.user_norm)

    def plan(self, n_items: int) -> Plan:
        self._check()
        lines = self._paper_lines(n_items) if self._paper else self._scaled().lines(n_items)
        require_shares(self.shares, dict.fromkeys(name.rstrip(" 0123456789") for name in lines))
        if self._paper and self.constants == "printed":
            printed = self._printed(n_items)
            exact = [Release(name, n, printed[name], shape=shape) for name, (n, _, shape) in lines.items()]
            return Plan.explicit(exact, self.delta, self.neighbouring, self.accountant, self.allow_large_delta)
        share = self._scaled().shares(self.shares, lines)
        releases = [Release(name, n, math.sqrt(n / share[name]), shape=shape) for name, (n, _, shape) in lines.items()]
        return Plan.calibrated(releases, self.budget, self.accountant)

    def _scaled(self) -> ResidualSteps:
        """The algorithm of ``variant="scaled"`` with these parameters."""
        explicit = self._explicit
        growth, momentum = (GROWTH, MOMENTUM) if explicit and self.bias_iterations else (1.0, 0.0)
        return ResidualSteps(
            factors=self._factors,
            iterations=self._steps,
            growth=growth if self.growth is None else self.growth,
            bias_iterations=self.bias_iterations if explicit else 0,
            intercept=self.intercept,
            offsets=explicit and self.centring == "user",
            user_norm=self.user_norm,
            item_norm=self.item_norm,
            residual_norm=self._largest(),
            half=self._half(),
            rarity=self.rarity,
            ridge=self._lambda(),
            unobserved=0.0 if explicit else self.unobserved_weight,
            shrinkage=self.shrinkage,
            momentum=momentum if self.momentum is None else self.momentum,
            stretch=self.stretch,
            step_size=self.step_size,
            initial_scale=self.initial_scale,
            popularity=self.popularity,
            neighbouring=self.neighbouring,
            seed=self.random_state,
        )

    def _paper_lines(self, n: int) -> dict[str, tuple[int, float, tuple[int, ...]]]:
        lines: dict[str, tuple[int, float, tuple[int, ...]]] = {}
        if not self._sized:
            lines["size"] = 1, _SIZE_SHARE, (3,)
        if self.initialization == "spectral":
            lines["initial"] = 1, self._initial_share(), (n, n)
        rest, omega = 1 - sum(part for _, part, _ in lines.values()), self._omega(n)
        lines["balance"] = self._steps, omega * rest, (1, packed_size(self._factors))
        lines["gradient"] = self._steps, (1 - omega) * rest, (n, self._factors)
        return lines

    def statistics(self, users: Users) -> dict[str, Statistic]:
        if not self._paper:
            return self._scaled().statistics(users)
        users.choose()
        walk, none = Descent(users), np.zeros((users.n_items, self._factors), np.float32)
        walk.start(none)
        found: dict[str, Statistic] = {"size": walk.size(self._half()), "balance": walk.gram()}
        found["initial"] = users.covariance(self._largest())
        walk.look(none, self._largest(), own=False)
        return found | {"gradient": walk.gradient()}

    def _omega(self, n: int) -> float:
        """ω: the part of R̃, such that both kinds of noise together move the item factors least.

        One step moves them by ½ V N₁ / m and by N₂ / (pm). With ‖v_j‖ ≤ α₂, the squared lengths of both are at most
        A/ω and B/(1 − ω), and their sum is least for ω = √A / (√A + √B).
        """
        if self.balance_share is not None:
            return self.balance_share
        gram, gradient = self._sensitivities()
        p = min(1.0, self.ratings_per_user / n) if self.ratings_per_user else 0.1  # of the right order is enough
        A = self.item_norm / 2 * math.sqrt(n * (self._factors + 1) / 2) * gram
        B = math.sqrt(n * self._factors) * gradient / p
        return A / (A + B)

    def _sensitivities(self) -> tuple[float, float]:
        """Of the Gram matrix and of the gradient: α₁² and G α₁, times √2 and 2 for replacing (erratum 9)."""
        replaced = self.neighbouring == "replace-one"
        a, G = self.user_norm, self._largest()
        return (2**0.5 if replaced else 1.0) * a * a, (2.0 if replaced else 1.0) * G * a

    def _printed(self, n: int) -> dict[str, float]:
        """Noise multipliers that give the standard deviations of Theorems 5.1 and 5.3 as they are printed."""
        first = (self.initial_epsilon or 0.0) if self.initialization == "spectral" else 0.0
        eps, T, L, omega = self.epsilon - first, self._steps, math.log(1 / self.delta), self._omega(n)
        a, G = self.user_norm, self._largest()
        nu_1 = a * a * math.sqrt(8 * T * (L + eps)) / (math.sqrt(omega) * eps)
        nu_2 = 4 * a * G * math.sqrt(T * (L + eps)) / (math.sqrt(1 - omega) * eps)
        gram, gradient = self._sensitivities()
        found = {"balance": nu_1 / gram, "gradient": nu_2 / gradient}
        if first:
            relation = 2**0.5 if self.neighbouring == "replace-one" else 1.0
            found["initial"] = 4 * G * G * math.sqrt(L) / first / (relation * G * G)
        return found

    def _initial_share(self) -> float:
        """The part of μ² for the start: that of its own ε, as §6 sets one aside, or a tenth."""
        if self.initial_epsilon is None:
            return 0.1
        mu = gdp.zcdp_mu if self.accountant == "rdp" else gdp.mu
        return (mu(self.initial_epsilon, self.delta) / mu(self.epsilon, self.delta)) ** 2

    # ------------------------------------------------------------ parameters

    @property
    def _paper(self) -> bool:
        return self.variant == "paper"

    @property
    def _sized(self) -> bool:
        return self.ratings_per_item is not None and self.ratings_per_user is not None

    @property
    def _factors(self) -> int:
        if self.factors is not None:
            return self.factors
        return usual_rank(gdp.mu(self.epsilon, self.delta)) if self._explicit and not self._paper else 16

    @property
    def _steps(self) -> int:
        return self.iterations if self.iterations is not None else 8 if self._explicit and not self._paper else 5

    def _largest(self) -> float:
        """G: α₁ α₂ in the paper; else a fifth of the width of the range, about what a user's ratings are off by."""
        if self.residual_norm is not None:
            return self.residual_norm
        if self._paper:
            return self.user_norm * self.item_norm
        low, high = self._range()
        return (high - low) / 5 if self._explicit else 1.0

    def _lambda(self) -> float:
        return self.regularization if self.regularization is not None else RIDGE if self._explicit else 1.0

    def _half(self) -> float:
        low, high = self._range()
        return (high - low) / 2

    def _assume(self, session: Session) -> None:
        self._assume_range(session)
        if self._paper and self._sized:
            session.assume("size", "how many ratings an item and a user have on average")
        if self._paper and self.constants == "printed":
            session.assume("constants", f"noise as printed for ε = {self.epsilon:g}; the ε stated is what it costs")

    def _check(self) -> None:
        super()._check()
        self.budget  # noqa: B018  # refuses what is none
        for name, least in (("factors", 1), ("iterations", 1), ("bias_iterations", 0)):
            if getattr(self, name) is not None or name == "bias_iterations":
                require_whole(name, getattr(self, name), least, math.inf if name == "factors" else MOST_SWEEPS)
        for name, allowed in _CHOICES.items():
            require_one_of(name, getattr(self, name), *allowed)
        if self.centring != "user":
            number = isinstance(self.centring, (int, float)) and not isinstance(self.centring, bool)
            good = number and math.isfinite(self.centring)
            require(good, f"centring is {self.centring!r}, but must be 'user' or a number")
        for name in _POSITIVE:
            if (value := getattr(self, name)) is not None or name not in _OPTIONAL:
                require_positive(name, value)
        for name in ("unobserved_weight", "shrinkage", "rarity", "momentum", "intercept"):
            if (value := getattr(self, name)) is not None or name not in ("momentum", "intercept"):
                require_number(name, value)
        require_growth(self.growth, self._steps)
        require(self.rarity <= 2, f"rarity is {self.rarity!r}, but must lie between 0 and 2")
        require(
            self.momentum is None or self.momentum < 1,
            f"momentum is {self.momentum!r}, but must be at least 0 and below 1",
        )
        for name in ("stretch", "balanced", "popularity"):
            value = getattr(self, name)
            require(isinstance(value, (bool, np.bool_)), f"{name} is {value!r}, but must be True or False")
        omega, first = self.balance_share, self.initial_epsilon
        require(omega is None or omega < 1, f"balance_share is {omega!r}, but must be between 0 and 1")
        require(first is None or first < self.epsilon, f"initial_epsilon is {first!r}, but must be below epsilon")
        self._check_variant()
        if not self._paper:
            self._scaled()  # checks more
            require(self._explicit or self.intercept is None, "intercept is for explicit feedback: leave it out")

    def _check_variant(self) -> None:
        """What one of the two has not, and would be ignored there, is refused."""
        spectral, printed = self.initialization == "spectral", self.constants == "printed"
        if not self._paper:
            require(not spectral, "initialization='spectral' is for variant='paper'")
            require(not printed, "constants='printed' is for variant='paper'")
        usual = inspect.signature(PlannedLMC.__init__).parameters
        for name in _ONLY_SCALED if self._paper else _ONLY_PAPER:
            value = getattr(self, name)
            require(
                value == usual[name].default,
                f"{name} is {value!r}, but variant={self.variant!r} has no {name}: leave it out",
            )
        if not self._paper:
            return
        require(
            self._explicit,
            "feedback is 'implicit', but variant='paper' learns from ratings and would see nothing "
            "but ones: use variant='scaled'",
        )
        if printed:
            require(self._sized, "constants='printed' needs ratings_per_item and ratings_per_user")
            require(
                not spectral or self.initial_epsilon is not None,
                "constants='printed' needs initial_epsilon for a spectral start",
            )
            require(self.shares is None, "shares go without constants='printed', which has noise of its own")
        elif spectral:
            left = 1 - self._initial_share() - (0 if self._sized else _SIZE_SHARE)
            require(
                left > 1e-3,
                f"initial_epsilon is {self.initial_epsilon!r}, which leaves nothing of epsilon = "
                f"{self.epsilon:g} for the steps: lower it",
            )

    def _check_items(self, n_items: int) -> None:
        few = self.initialization == "spectral" and self._factors > n_items
        require(
            not few,
            f"factors is {self._factors:,}, but a spectral start has at most {n_items:,}, one for each "
            "item: lower factors, or take initialization='random'",
        )


_CHOICES = {
    "variant": ("scaled", "paper"),
    "feedback": ("explicit", "implicit"),
    "initialization": ("random", "spectral"),
    "constants": ("tight", "printed"),
}

_OPTIONAL = (
    "residual_norm",
    "regularization",
    "ratings_per_item",
    "ratings_per_user",
    "initial_epsilon",
    "balance_share",
    "growth",
)
_POSITIVE = ("step_size", "user_norm", "item_norm", "initial_scale", "spectral_scale", *_OPTIONAL)
_ONLY_SCALED = (
    "rarity",
    "momentum",
    "shrinkage",
    "stretch",
    "regularization",
    "unobserved_weight",
    "bias_iterations",
    "growth",
    "intercept",
    "popularity",
)
_ONLY_PAPER = (
    "balance_share",
    "ratings_per_item",
    "ratings_per_user",
    "initial_epsilon",
    "balanced",
    "spectral_scale",
)
