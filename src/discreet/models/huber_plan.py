"""The parameters of HuberALS, what they allow one user to contribute, and what will be released at which price.

Everything here is public and known before any rating is read; `discreet.models.huber` holds the algorithms and says
what the parameters mean.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from discreet.data.ratings import Ratings
from discreet.models.checks import MOST_SWEEPS, require, require_number, require_whole
from discreet.models.private import PrivateRecommender
from discreet.privacy.bounds import Bounds
from discreet.privacy.budget import Budget, Neighbouring
from discreet.privacy.ledger import Ledger
from discreet.privacy.mechanisms import LARGEST_ALPHA, SMALLEST_ALPHA, Gaussian, Huber, Laplace, Mechanism
from discreet.privacy.plan import Plan, Release
from discreet.privacy.sealed import Users, seal
from discreet.privacy.session import Statistic
from discreet.privacy.statement import PrivacyStatement

#: Bounds that nobody reaches: the paper has none.
UNBOUNDED = 1e9


class PlannedHuber(PrivateRecommender):
    """What `HuberALS` knows without data."""

    def __init__(
        self,
        factors: int = 4,
        *,
        mechanism: Literal["gaussian", "laplace", "huber"] = "huber",
        solver: Literal["als", "irls"] = "als",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "auto",
        alpha: float | None = None,
        transition: float | None = None,
        iterations: int | None = None,
        inner_iterations: int | None = None,
        regularization: float | None = None,
        user_regularization: float = 0.4,
        prior_variance: float = 0.4,
        feedback: str = "explicit",
        max_items: int = 30,
        user_norm: float = 1.0,
        clipping: Literal["auto", "l1", "l2"] = "auto",
        user_norm_l1: float | None = None,
        intercept: float | None = None,
        rating_range: tuple[float, float] | None = None,
        rating_bound: float | None = None,
        centring: float | Literal["user"] = "user",
        gram_share: float = 0.2,
        as_printed: bool = False,
        variance: float = 1.0,
        initial_scale: float | None = None,
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
    ) -> None:
        self.factors = factors
        self.mechanism = mechanism
        self.solver = solver
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.alpha = alpha
        self.transition = transition
        self.iterations = iterations
        self.inner_iterations = inner_iterations
        self.regularization = regularization
        self.user_regularization = user_regularization
        self.prior_variance = prior_variance
        self.feedback = feedback
        self.max_items = max_items
        self.user_norm = user_norm
        self.clipping = clipping
        self.user_norm_l1 = user_norm_l1
        self.intercept = intercept
        self.rating_range = rating_range
        self.rating_bound = rating_bound
        self.centring = centring
        self.gram_share = gram_share
        self.as_printed = as_printed
        self.variance = variance
        self.initial_scale = initial_scale
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state

    # ------------------------------------------------------------ the promise

    def bounds(self) -> Bounds:
        if self.as_printed:
            return Bounds(items=10**9, rating=UNBOUNDED, norm=UNBOUNDED)
        low, high = self._range()
        own = self.centring == "user"
        return Bounds(
            items=self.max_items,
            rating=self.rating_bound or (high - low) / 4,
            centre="user" if isinstance(self.centring, str) else self.centring,
            prior_mean=(low + high) / 2,
            prior_count=3.0 if own else 0.0,
            norm=self.user_norm,
            norm_l1=self._norm_l1(),
        )

    def plan(self, n_items: int) -> Plan:
        """Two releases in every inner iteration; none for the printed algorithm, which goes round the door."""
        self._check()
        if self.as_printed:
            return Plan((), self.budget, "gdp")
        shapes = self._shapes(n_items)
        candidates = self._accountants() if self.accountant == "auto" else [self.accountant]
        plans = [self._calibrated(accountant, shapes) for accountant in candidates]
        best = plans[0]
        for other in plans[1:]:  # the first is the simplest; another has to be better to be taken
            if other.noise_multiplier("sum") < best.noise_multiplier("sum") * (1 - 1e-6):
                best = other
        return best

    def _calibrated(self, accountant: str, shapes: dict[str, tuple[tuple[int, ...], float]]) -> Plan:
        n = self._steps() * self._inner()
        share = {"sum": 1 - self.gram_share, "gram": self.gram_share}
        power = 1.0 if accountant == "pure" else 0.5  # pure ε add up, otherwise the squares of μ do
        huber = self.mechanism == "huber"
        releases = tuple(
            Release(
                name,
                n,
                (n / share[name]) ** power,
                self.mechanism,
                self._alpha() if huber else None,
                ratio if huber else 1.0,
                shape,
            )
            for name, (shape, ratio) in shapes.items()
        )
        return _calibrate(releases, self.budget, accountant)

    def _accountants(self) -> list[str]:
        """Who may be asked for the price: the best is taken."""
        if self.mechanism == "gaussian":
            return ["gdp"]
        if self.delta == 0:
            return ["pure"]
        if self._clip() == "l2":  # Δ₁ is far above Δ₂ there, and only the GDP bound knows Δ₂
            return ["gdp"]
        return ["pure", "gdp", *(["pld"] if self._many() and importlib.util.find_spec("dp_accounting") else [])]

    def _many(self) -> bool:
        """Whether all releases at their worst are rarer than δ, more or less: else nothing is better than the sum of ε.

        A release has its largest loss where the noise lies in the far tail: half of the draws of Laplace noise. This
        saves asking for a loss distribution in vain, which takes seconds.
        """
        worst = 0.5 if self.mechanism == "laplace" else (1 - Huber(self._alpha()).core) / 2
        return 2 * self._steps() * self._inner() * math.log(1 / worst) > math.log(1 / self.delta) - 5

    def _shapes(self, n_items: int) -> dict[str, tuple[tuple[int, ...], float]]:
        """Shape and Δ₂/Δ₁ of every release, asked of the statistics of nobody at all."""
        found = self.statistics(seal(_nobody(n_items), self.bounds()))
        ratios = {
            name: s.sensitivity(self.neighbouring, "l2") / s.sensitivity(self.neighbouring, "l1")
            for name, s in found.items()
        }
        return {name: (tuple(s.shape), min(1.0, ratios[name])) for name, s in found.items()}

    def statistics(self, users: Users) -> dict[str, Statistic]:
        users.choose()
        users.solve(np.zeros((users.n_items, self.factors)), 1.0, intercept=self._intercept())
        return {"sum": users.item_sums(), "gram": users.item_grams()}

    def _deviations(self, plan: Plan, n_items: int) -> dict[str, float]:
        """Standard deviation of the noise on an entry of a sum, and on a diagonal entry of a Gram matrix."""
        return {row["name"]: row["deviation"] for row in self._price_rows(plan, n_items)}

    def _price_rows(self, plan: Plan, n_items: int) -> Iterable[dict[str, Any]]:
        found = self.statistics(seal(_nobody(n_items), self.bounds()))
        for line, event in zip(plan.releases, plan.events, strict=True):
            sensitivity = found[line.name].sensitivity(self.neighbouring, event.noise.norm)
            yield {"name": line.name, "deviation": sensitivity * event.noise_multiplier}

    # ------------------------------------------------------------ parameters

    @property
    def _rank(self) -> int:
        return self.factors + (self._intercept() > 0)

    def _intercept(self) -> float:
        if self.as_printed:
            return 0.0
        return 0.7 * self.user_norm if self.intercept is None else self.intercept

    def _steps(self) -> int:
        return self.iterations if self.iterations is not None else 50 if self.as_printed else 1

    def _inner(self) -> int:
        if self.solver == "als":
            return 1
        return self.inner_iterations if self.inner_iterations is not None else 20 if self.as_printed else 1

    def _lambda(self) -> float:
        return self.regularization if self.regularization is not None else 0.5 if self.as_printed else 5.0

    def _transition(self) -> float:
        return self.transition if self.transition is not None else self._alpha() if self.as_printed else 1.0

    def _alpha(self) -> float:
        """Large where the Gaussian bound prices it, small where pure ε does; as printed, what the variance asks for."""
        if self.alpha is not None:
            return self.alpha
        if self.as_printed:
            return Huber.with_variance(self.variance).alpha if self.variance > 1 else 3.0
        return 2.0 if self.delta > 0 and self._clip() == "l2" else 0.5

    def _clip(self) -> str:
        if self.clipping != "auto":
            return self.clipping
        if self.mechanism == "gaussian" or (self.mechanism == "huber" and self.delta > 0):
            return "l2"
        return "l1"

    def _norm_l1(self) -> float | None:
        return (self.user_norm_l1 or self.user_norm) if self._clip() == "l1" else None

    def _printed_noise(self) -> Mechanism | None:
        """Noise of that variance; α = 3 stands for Huber noise of variance 1, which no α has."""
        if self.variance == 0:
            return None
        if self.mechanism == "gaussian":
            return Gaussian(math.sqrt(self.variance))
        if self.mechanism == "laplace":
            return Laplace(math.sqrt(self.variance / 2))
        return Huber.with_variance(self.variance) if self.variance > 1 else Huber(3.0, math.sqrt(self.variance))

    def _check(self) -> None:
        super()._check()
        self.budget  # noqa: B018  # refuses what is none
        for name in ("factors", "max_items"):
            require_whole(name, getattr(self, name))
        for name in ("iterations", "inner_iterations"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1, MOST_SWEEPS)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            require(value in allowed, f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")
        for name in ("alpha", "transition", "prior_variance", "user_norm", "rating_bound", "user_norm_l1"):
            value = getattr(self, name)
            if value is not None:
                require_number(name, value)
                require(value > 0, f"{name} is {value!r}, but must be above 0")
        for name in ("regularization", "intercept", "initial_scale"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name))
        for name in ("variance", "user_regularization", "gram_share", "prior_variance", "user_norm"):
            require_number(name, getattr(self, name))
        if self.alpha is not None:
            near = "which is Laplace noise to all digits" if self.alpha < 1 else "which is Gaussian noise to all digits"
            require(
                SMALLEST_ALPHA <= self.alpha <= LARGEST_ALPHA,
                f"alpha is {self.alpha!r}, {near}: it must lie between {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}",
            )
        require(0 < self.gram_share < 1, f"gram_share is {self.gram_share!r}, but must be between 0 and 1")
        require(isinstance(self.as_printed, bool), f"as_printed is {self.as_printed!r}, but must be True or False")
        good = self.centring == "user" or (isinstance(self.centring, (int, float)) and math.isfinite(self.centring))
        require(good, f"centring is {self.centring!r}, but must be 'user' or a number")
        pure = self.mechanism == "gaussian" and self.delta == 0 and not self.as_printed
        require(not pure, "delta is 0 and mechanism is 'gaussian', which has no pure ε: take 'laplace' or 'huber'")

    def _statement(self, ledger: Ledger) -> PrivacyStatement:
        return PrintedStatement.of(ledger) if self.as_printed else super()._statement(ledger)


class PrintedStatement(PrivacyStatement):
    """What may be said of the algorithm as the paper prints it (erratum 12)."""

    def _refusal(self) -> str:
        return (
            "NOT PRIVATE: ε is infinite, because as printed the Gram matrices leave without noise, one user may move "
            "the noisy right-hand sides without bound, and no step is charged. "
            "The result must be handled like the ratings themselves."
        )

    def _noise(self) -> str:
        return "The noise is floating-point noise of a fixed variance."


@lru_cache(maxsize=64)
def _calibrate(releases: tuple[Release, ...], budget: Budget, accountant: str) -> Plan:
    """Loss distributions take a second, and a fit asks for its plan more than once."""
    return Plan.calibrated(releases, budget, accountant)


def _nobody(n_items: int) -> Ratings:
    return Ratings.from_indices([0], [], [], np.zeros(0, np.int64), np.arange(n_items), catalogue=True)


_CHOICES = {
    "mechanism": ("gaussian", "laplace", "huber"),
    "solver": ("als", "irls"),
    "clipping": ("auto", "l1", "l2"),
    "feedback": ("explicit",),
    "accountant": ("auto", "gdp", "rdp", "pld", "pure"),
}
