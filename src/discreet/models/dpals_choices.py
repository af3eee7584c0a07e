"""The parameters of DPALS: what they are where they are not given, and which do not go together.

Everything here is public and known before any rating is read; `discreet.models.dpals` says what the parameters mean,
`discreet.models.dpals_plan` what they cost.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal

import numpy as np

from discreet.models.checks import (
    MOST_SWEEPS,
    require,
    require_fraction,
    require_growth,
    require_number,
    require_positive,
    require_whole,
)
from discreet.models.private import PrivateRecommender
from discreet.models.residual_steps import GROWTH, MOMENTUM, RIDGE, ResidualSteps, usual_rank
from discreet.privacy import gdp
from discreet.privacy.budget import Neighbouring

LARGE = 10_000  # items from which implicit feedback is taken to come from so many users that more can be learnt


class ChosenALS(PrivateRecommender):
    """The parameters of `DPALS`, and what follows from them."""

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        iterations: int | None = None,
        regularization: float | None = None,
        feedback: str = "explicit",
        unobserved_weight: float | None = None,
        user_exponent: float | None = None,
        item_exponent: float = 0.5,
        noise_ridge: float = 0.25,
        user_normalizer: float = 400.0,
        max_items: int = 50,
        user_norm: float = 1.0,
        intercept: float | None = None,
        rating_range: tuple[float, float] | None = None,
        rating_bound: float | None = None,
        centring: float | Literal["user", "global"] = "user",
        item_step: Literal["gradient", "solve"] | None = None,
        item_fraction: float | None = None,
        sampling: Literal["adaptive", "rarest", "uniform"] | None = None,
        adaptivity: float = 0.3,
        shrinkage: bool | None = None,
        growth: float | None = None,
        recount: bool = True,
        initialization: Literal["random", "spectral"] = "random",
        isometric: bool = True,
        projection: bool = True,
        orthonormalize: bool = False,
        resample: bool = False,
        shares: dict[str, float] | None = None,
        sigmas: dict[str, float] | None = None,
        initial_scale: float | None = None,
        item_features: Any = None,
        popularity: bool | None = None,
        pooled_intercept: bool | None = None,
        pooled_items: bool | None = None,
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
        self.item_step = item_step
        self.item_fraction = item_fraction
        self.sampling = sampling
        self.adaptivity = adaptivity
        self.shrinkage = shrinkage
        self.growth = growth
        self.recount = recount
        self.initialization = initialization
        self.isometric = isometric
        self.projection = projection
        self.orthonormalize = orthonormalize
        self.resample = resample
        self.shares = shares
        self.sigmas = sigmas
        self.initial_scale = initial_scale
        self.item_features = item_features
        self.popularity = popularity
        self.pooled_intercept = pooled_intercept
        self.pooled_items = pooled_items
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    _signal_lambda = 0.5  # λ of implicit feedback, chosen by the released counts where there are any
    _faint = 0.0  # the part of the norm for the intercept, where the released counts leave little to learn beside it
    _large = False  # whether the public catalogue is that of a large service: all there is to guess its size by

    def _residual_steps(self) -> ResidualSteps:
        """The algorithm of ``item_step="gradient"`` with these parameters."""
        low, high = self._range()
        return ResidualSteps(
            factors=self._factors,
            iterations=self._steps,
            growth=self._growth,
            bias_iterations=3,
            intercept=None if self.intercept is None else self.intercept / self.user_norm,
            offsets=self.centring == "user",
            user_norm=self.user_norm,
            item_norm=4.0,
            residual_norm=self._residual_norm(),
            half=(high - low) / 2,
            rarity=self.adaptivity,
            ridge=self._lambda(),
            unobserved=0.0,
            shrinkage=3.0,
            momentum=MOMENTUM,
            stretch=True,
            step_size=1.0,
            initial_scale=self.initial_scale or 0.3,
            popularity=self.popularity is not False,
            neighbouring=self.neighbouring,
            seed=self.random_state,
        )

    def _residual_norm(self) -> float:
        """G: about what a user's ratings are off by, root mean square."""
        low, high = self._range()
        return self.rating_bound or (high - low) / 5

    # ------------------------------------------------------------ parameters

    @property
    def _descends(self) -> bool:
        """Unless said otherwise: for ratings, wherever nothing is asked for that only the other item step has."""
        if self.item_step is not None:
            return self.item_step == "gradient"
        return self._explicit and not self._only_solve()

    def _only_solve(self) -> str | None:
        """The first parameter given that ``item_step="gradient"`` has no place for."""
        usual = inspect.signature(ChosenALS.__init__).parameters
        for name in _ONLY_SOLVE:
            if getattr(self, name) != usual[name].default:
                return name
        if self.centring == "global":
            return "centring"
        other = isinstance(self.shares, dict) and any(name in _SOLVED for name in self.shares)
        return "shares" if other else None

    @property
    def _shrinks(self) -> bool:
        """Unless said otherwise: wherever none of the paper's own options is asked for that have no place in it."""
        if self.shrinkage is not None:
            return self.shrinkage
        paper = self.sigmas is not None or self.orthonormalize or self.resample
        paper = paper or not (self.projection and self.isometric)
        return self._explicit and self._unobserved() == 0 and self.recount and not paper

    @property
    def _strength(self) -> float:
        """μ of the whole budget: what rank and steps are chosen by, because it is what noise is inverse to."""
        return gdp.mu(self.epsilon, self.delta)

    @property
    def _factors(self) -> int:
        if self.factors is not None:
            return self.factors
        if self._descends:
            return usual_rank(self._strength)
        if self._shrinks:
            return int(np.clip(round(3.6 * self._strength**0.45), 1, 10))
        return 16 if self._explicit or not self._large else 32

    @property
    def _steps(self) -> int:
        if self.iterations is not None:
            return self.iterations
        if self._descends:
            return 8 if self._factors else 3
        if self._factors == 0:
            return 1  # what users contribute does not change
        if self._shrinks:
            return int(np.clip(round(6 * self._strength**0.3), 3, 10))
        return 2 if self._explicit or not self._large else int(np.clip(round(3 * self._strength**0.25), 1, 6))

    @property
    def _growth(self) -> float:
        if self.growth is not None:
            return self.growth
        return GROWTH if self._descends else 2.0 if self._shrinks else 1.0

    @property
    def _sampling(self) -> str:
        return self.sampling or ("adaptive" if self._shrinks else "rarest")

    @property
    def _user_exponent(self) -> float:
        return self.user_exponent if self.user_exponent is not None else 0.0 if self._shrinks else 1.0

    @property
    def _rank(self) -> int:
        return self._factors + (self._intercept() > 0)

    def _intercept(self) -> float:
        if self.intercept is not None:
            return self.intercept
        if self._factors == 0:
            return 0.999 * self.user_norm  # all of it, up to rounding
        return ((self._faint or 0.6) if self._shrinks else 0.5) * self.user_norm if self._explicit else 0.0

    @property
    def _pools(self) -> bool:
        return self._faint > 0 if self.pooled_intercept is None else self.pooled_intercept

    def _pools_items(self, signal: float) -> bool:
        """On small catalogues always, on large ones where the average signal over noise is low."""
        if self.pooled_items is not None:
            return self.pooled_items
        plain = self.sigmas is None and self.shrinkage is None and self.recount and self.isometric and self.projection
        return not self._explicit and plain and (not self._large or signal < 1.5)

    def _row_norm(self) -> float:
        """The most that the ratings which a user contributes can have as ℓ₂ norm."""
        return math.sqrt(1.0 if self._sampling == "adaptive" else self.max_items) * self.bounds().value

    def _lambda(self) -> float:
        if self.regularization is not None:
            return self.regularization
        if self._descends:
            return RIDGE
        if self._explicit:
            more = max(self._factors, 6) / 6 if self.factors is None else 1.0  # where little noise leaves larger ranks
            return 2.0 * more if self._shrinks else 80.0
        return self._signal_lambda if self._large else 0.5

    def _unobserved(self) -> float:
        return self.unobserved_weight if self.unobserved_weight is not None else 0.0 if self._explicit else 0.6

    def _user_scale(self) -> float:
        return float(self.user_normalizer**-self._user_exponent)

    @property
    def _heard(self) -> bool:
        """Whether the released counts decide which items are heard at all, by weights of 0 for the others."""
        return self.item_fraction is None and self._shrinks and self._sampling == "adaptive"

    def _n_frequent(self, n_items: int) -> int:
        """How many items take part: a number that no rating may change, so that shapes say nothing."""
        return n_items if self._heard else max(1, math.ceil((self.item_fraction or 0.4) * n_items))

    def _check(self) -> None:
        super()._check()
        if self.sigmas is None:
            self.budget  # noqa: B018  # refuses what is none
        for name in ("factors", "iterations", "max_items"):
            value, least = getattr(self, name), int(name != "factors")
            if value is not None or name == "max_items":
                require_whole(name, value, least, MOST_SWEEPS if name == "iterations" else math.inf)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if name == "item_step" and value is None:
                continue
            good = isinstance(value, str) and value in allowed
            if name == "centring" and isinstance(value, (int, float)) and not isinstance(value, bool):
                good = math.isfinite(value)
            good = good or (name == "sampling" and value is None)
            require(good, f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")
        for name in ("user_norm", "user_normalizer", "growth", "rating_bound", "initial_scale"):
            if (value := getattr(self, name)) is not None or name.startswith("user"):
                require_positive(name, value)
        for name in (
            "regularization",
            "unobserved_weight",
            "intercept",
            "noise_ridge",
            "user_exponent",
            "item_exponent",
        ):
            if (value := getattr(self, name)) is not None or name in ("noise_ridge", "item_exponent"):
                require_number(name, value, -10 if name.endswith("exponent") else 0)
        require_growth(self.growth, self._steps)
        sigmas = self.sigmas is None or isinstance(self.sigmas, dict)
        require(sigmas, f"sigmas is {self.sigmas!r}, but must be a mapping such as {{'sum': 1.0}}")
        bias = self._explicit and self._intercept() > 0 and self.initialization == "random"
        require(self._factors > 0 or bias, "factors is 0, which is for explicit feedback with an intercept")
        if self._descends:
            self._check_gradient()
            return
        prior = self.item_features is not None or bool(self.popularity)
        require(
            self._shrinks or not prior,
            "item_features and popularity are for explicit feedback, and not for the paper's item step: leave them out",
        )
        pools = self._shrinks and self._intercept() > 0
        require(pools or not self.pooled_intercept, "pooled_intercept needs shrinkage and an intercept: leave it out")
        require(
            not self.pooled_items or (not self._explicit and self.recount and self.isometric),
            "pooled_items is for implicit feedback, isometric noise and recounts: leave it out",
        )
        if self.item_fraction is not None:
            require_fraction("item_fraction", self.item_fraction)
        require_number("adaptivity", self.adaptivity)
        require(self.adaptivity <= 1, f"adaptivity is {self.adaptivity!r}, but must lie between 0 and 1")
        require(self.sigmas is None or self._growth == 1, "sigmas go without growth: the paper's steps are all alike")
        if self._shrinks:
            require(self._explicit and self._unobserved() == 0, "shrinkage is for explicit feedback: leave it out")
            require(self.sigmas is None, "shrinkage goes without sigmas: give a budget")
            require(self.recount, "shrinkage needs the second count: leave recount on")
            require(self.projection and not self.orthonormalize, "shrinkage projects and orthonormalizes nothing")
            require(self.isometric, "shrinkage knows isometric noise only: leave isometric on")
            self._check_without_effect()
        weighs = self._sampling == "adaptive"
        require(not (self.resample and weighs), "resample draws new samples, and adaptive weights sample nothing")

    def _check_without_effect(self) -> None:
        """What the estimate by known noise would ignore."""
        usual = inspect.signature(ChosenALS.__init__).parameters
        paper = dict.fromkeys(("noise_ridge", "item_exponent"), "shrinkage=False")
        if self._sampling == "adaptive":
            paper["max_items"] = "sampling='rarest' or 'uniform'"
        if self._user_exponent == 0:
            paper["user_normalizer"] = "a user_exponent"
        for name, wants in paper.items():
            value = getattr(self, name)
            require(
                value == usual[name].default,
                f"{name} is {value!r}, which goes with {wants}: give that too, or leave {name} out",
            )

    def _check_gradient(self) -> None:
        require(self._explicit, "item_step='gradient' is for explicit feedback: leave it out")
        name = self._only_solve()
        require(
            name is None,
            f"{name} is {getattr(self, name or 'item_step')!r}, but item_step='gradient' has no such "
            "choice: leave one of them out",
        )
        self._residual_steps()  # checks more
        require_number("adaptivity", self.adaptivity)
        require(self.adaptivity <= 1, f"adaptivity is {self.adaptivity!r}, but must lie between 0 and 1")
        usable = self.popularity is None or isinstance(self.popularity, (bool, np.bool_))
        require(usable, f"popularity is {self.popularity!r}, but must be True or False")

    def _check_items(self, n_items: int) -> None:
        most = self._n_frequent(n_items)
        few = self.initialization == "spectral" and self._factors > most
        require(
            not few,
            f"factors is {self._factors:,}, but a spectral start has at most {most:,}, one for each item "
            "that takes part: lower factors, or take initialization='random'",
        )


_ONLY_SOLVE = (
    "unobserved_weight",
    "user_exponent",
    "item_exponent",
    "noise_ridge",
    "user_normalizer",
    "max_items",
    "item_fraction",
    "sampling",
    "shrinkage",
    "recount",
    "initialization",
    "isometric",
    "projection",
    "orthonormalize",
    "resample",
    "sigmas",
    "pooled_intercept",
    "pooled_items",
)
_SOLVED = ("gram", "sum", "centre sum", "centre count", "initial", "global")  # released by the other item step alone
_CHOICES = {
    "item_step": ("gradient", "solve"),
    "feedback": ("explicit", "implicit"),
    "centring": ("user", "global"),
    "sampling": ("adaptive", "rarest", "uniform"),
    "initialization": ("random", "spectral"),
}
