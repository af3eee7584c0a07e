"""Base of algorithms: a value with every public number that one training needs.

A subclass is a frozen dataclass. `resolve` fills in what was left open, from the budget, the number
of items and the range of ratings; after it no field is None, and the resolved value is what a saved
model keeps. `bounds`, `releases`, `plan` and `statistics` are pure. `learn` accesses data only
through sealed users and a session; what it derives on the way, such as a ridge from released
counts, goes into `Learned`. `fold` reads the fields and `Learned`, and nothing else: so a folder
written today predicts the same in later versions.
"""

from __future__ import annotations

import importlib
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.errors import BudgetExceeded, DataError
from discreet.models.fold_in import FoldIn, HistoryRows, ItemSimilarity, LeastSquaresFoldIn
from discreet.models.parameters import check_that
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release, reshare
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.sealed_users import Users

logger = logging.getLogger("discreet")

Progress = Callable[[int, int, str], None]
Range = tuple[float, float]
EVERY_ITEM = 10**9  # more than any catalog has: users contribute through all their items
LEAST_SIGNAL = 0.1  # average signal over noise below which nothing can be learned


@dataclass(frozen=True)
class Learned:
    """What was learned of the items, made of released numbers and therefore public.

    Parameters
    ----------
    factors : (n_items, r) float32
    biases : (n_items,) float32
    counts : (n_items,) float64, optional
        Noisy number of users per item.
    details : dict
        Other values that `fold` or reports read, as plain JSON values.
    released : optional
        The released sums themselves, where a later training can use them (`fit(prior=...)`).
    """

    factors: NDArray[Any]
    biases: NDArray[Any]
    counts: NDArray[np.float64] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    released: Any = None

    def some(self, name: str) -> NDArray[np.bool_]:
        """Return a mask over the items from the positions listed under that name."""
        mask = np.zeros(len(self.biases), bool)
        mask[np.asarray(self.details[name], np.int64)] = True
        return mask


@dataclass(frozen=True)
class Algorithm(ABC):
    """Base of all algorithms; see the module's docstring.

    Parameters
    ----------
    rating_range : (low, high), optional
        For those that learn from ratings. The model has it, and `resolve` fills it in.
    """

    name: ClassVar[str]
    #: What it learns to predict; algorithms that can do both have a field of this name.
    goal: ClassVar[str] = "rating"
    #: Whether it relies on secret Poisson sampling, which a replaying engine cannot repeat.
    secret_sampling: ClassVar[bool] = False
    #: Fields added after models had been saved, with the value that reproduces those models.
    added_later: ClassVar[Mapping[str, Any]] = {}

    # ------------------------------------------------------------ pure: before any rating is read

    @abstractmethod
    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        """Return the algorithm with nothing left open; raise a `ConfigError` if that fails."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """Return the bounds on what one user contributes."""

    @abstractmethod
    def releases(self, n_items: int) -> list[Release]:
        """List what will be released on a catalog of that many items."""

    @abstractmethod
    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        """Return the statistics by release name for any sealed users, to price without data."""

    def plan(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        """Return the releases with their noise."""
        return Plan.from_shares(reshare(self.releases(n_items), self._shares()), budget, accountant)

    def assumptions(self) -> dict[str, str]:
        """List what is taken to be public, other than catalog, range of ratings and parameters."""
        return {}

    def statement(self, ledger: Ledger) -> PrivacyStatement:
        """Return the guarantee of a training with this ledger."""
        return PrivacyStatement.from_ledger(ledger)

    # ------------------------------------------------------------ learning and reading out

    @abstractmethod
    def learn(
        self,
        users: Users,
        session: Session,
        *,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
    ) -> Learned:
        """Release what was planned and learn from it. `seed` is of the start, never of noise."""

    def fold_in_rule(self, learned: Learned) -> FoldIn | None:
        """Return how a user's vector follows from a history, as a value that is saved.

        An algorithm may write `fold` instead; its models then work in Python alone.
        """
        return None

    def fold(self, rows: HistoryRows, learned: Learned) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute vectors (n, r) and offsets (n,) of users, each from its own row."""
        fold_in_rule = self.fold_in_rule(learned)
        assert fold_in_rule is not None, "an algorithm writes fold_in_rule, or else fold"
        return fold_in_rule.fold(rows, learned.factors, learned.biases)

    def score_vectors(
        self, rows: HistoryRows, learned: Learned
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return vectors, offsets, and the item factors to score with (maybe one column more)."""
        fold_in_rule = self.fold_in_rule(learned)
        if fold_in_rule is None:
            return *self.fold(rows, learned), learned.factors
        return *fold_in_rule.score_vectors(
            rows, learned.factors, learned.biases
        ), fold_in_rule.score_factors(learned.factors)

    def item_similarity(self, learned: Learned) -> ItemSimilarity:
        """Return the part of the factors that items are compared by."""
        return ItemSimilarity()

    # ------------------------------------------------------------ as a document

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {"name": self.name} | {
            key: list(value) if isinstance(value, tuple) else value for key, value in found.items()
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read the algorithm that ``to_dict`` described; absent fields never get new defaults."""
        names = field_names(cls)
        given = {
            **cls.added_later,
            **{key: value for key, value in document.items() if key != "name"},
        }
        if sorted(given) != sorted(names):
            odd = sorted(set(given) ^ set(names))
            raise DataError(
                f"its algorithm ({cls.name}) has other parameters in this version of discreet, such"
                f" as {odd[0]}. Load it with the version that saved it, or train it again."
            )
        return cls(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in given.items()
            }
        )

    def __repr__(self) -> str:
        """List the fields that differ from their defaults."""
        usual = {entry.name: _default(entry) for entry in fields(self)}
        given = [
            f"{name}={getattr(self, name)!r}"
            for name, value in usual.items()
            if getattr(self, name) != value
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def _shares(self) -> Mapping[str, float]:
        shares = getattr(self, "shares", {})
        check_that(
            isinstance(shares, Mapping),
            f"shares is {shares!r}, but must be a mapping such as {{'counts': 0.1}}",
        )
        return shares


def _default(entry: Field[Any]) -> Any:
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


def field_names(kind: type[Algorithm]) -> list[str]:
    """List the parameters of an algorithm."""
    return [entry.name for entry in fields(kind)]


# ------------------------------------------------------------------ what several algorithms do


def most_frequent(counts: NDArray[Any], how_many: int) -> NDArray[np.int64]:
    """Return the sorted positions of the items with the largest noisy counts (erratum 7)."""
    return np.sort(np.argsort(-counts, kind="stable")[:how_many])


def share_of_items(item_fraction: float, n_items: int) -> int:
    """Return how many items take part: independent of ratings, so that shapes are public."""
    return max(1, math.ceil(item_fraction * n_items))


def spread_out(values: NDArray[Any], at: NDArray[np.int64], n_items: int) -> NDArray[np.float32]:
    """Scatter values to the items at these positions, with zeros for all others."""
    whole = np.zeros((n_items, *values.shape[1:]), np.float32)
    whole[at] = values
    return whole


def check_centering(centering: float | Literal["user"], *words: str) -> None:
    """Raise a `ConfigError` unless ratings can be centered by it."""
    number = (
        isinstance(centering, Real) and not isinstance(centering, bool) and math.isfinite(centering)
    )
    allowed = " or ".join(map(repr, words))
    check_that(
        number or centering in words,
        f"centering is {centering!r}, but must be {allowed} or a number",
    )


def middle(rating_range: Range) -> float:
    low, high = rating_range
    return (low + high) / 2


def width(rating_range: Range) -> float:
    low, high = rating_range
    return high - low


def check_signal(
    session: Session,
    counts: NDArray[Any],
    counting: float,
    noise: float,
    remedy: str | None,
    half_lost: str,
) -> dict[str, float]:
    """Return quantiles over the items of the largest possible signal over the noise.

    Parameters
    ----------
    counts : released, (n_items,)
    counting : deviation of the noise on a count
    noise : deviation of the noise on an item's sum, relative to what one rating can add
    remedy : what to do where too little can be learned; None where the caller goes on all the same
    half_lost : what happens to the items where noise is above signal, for a warning

    Raises
    ------
    BudgetExceeded
        The average item holds less signal than a tenth of the noise. What was released by then has
        been charged.
    """
    levels = [*np.quantile(counts / noise, [0.1, 0.5, 0.9]), counts.mean() / noise]
    signal = dict(zip(("10 %", "50 %", "90 %", "average"), map(float, levels), strict=True))
    shown = ", ".join(f"{name}: {value:.2g}" for name, value in signal.items())
    unsure = 2 * counting / math.sqrt(len(counts)) / noise
    # the average, because the noise exceeds single counts first
    if remedy is not None and signal["average"] < max(LEAST_SIGNAL, unsure):
        raise BudgetExceeded(
            f"ε = {session.plan.budget.epsilon:g} is too little for so few users: the noise on an"
            " item's sum is larger than the sum can be (signal over noise by quantile of items,"
            f" {shown}). {remedy} (the counts that this follows from have been charged: privacy_"
            " says how much)."
        )
    if signal["50 %"] < 1:
        logger.warning(
            "half of the items hold less signal than noise at best (%s): %s", shown, half_lost
        )
    return signal


# ------------------------------------------------------------ ratings relative to a user's own mean

# Baselines score item j as the mean of the user's own ratings (with a few of the middle of the
# scale) + u · v_j + b_j for the frequent items, and predict the user's own mean for the rest.


def own_mean_bounds(
    max_items: int,
    rating_range: Range,
    centering: float | str,
    prior_count: float,
    user_norm: float = 1.0,
) -> Bounds:
    """Return bounds: a third of the range relative to a user's own mean, else half of it."""
    if centering != "user":
        center = float(centering)
        return Bounds(
            items=max_items, rating=width(rating_range) / 2, center=center, norm=user_norm
        )
    return Bounds(
        items=max_items,
        rating=width(rating_range) / 3,
        center="user",
        prior_mean=middle(rating_range),
        prior_count=prior_count,
        norm=user_norm,
    )


def what_factors_explain(
    ridge: float,
    exponent: float,
    known: NDArray[np.bool_],
    rating_range: Range,
    centering: float | str,
    prior_count: float,
) -> LeastSquaresFoldIn:
    """Return ridge regression on the residuals of a user; items without factors have none."""
    settings: dict[str, Any] = dict(exponent=exponent, counted="known", masked=True, known=known)
    if centering == "user":
        return LeastSquaresFoldIn(
            ridge,
            centering="own mean",
            center=middle(rating_range),
            prior_count=prior_count,
            **settings,
        )
    return LeastSquaresFoldIn(ridge, centering="constant", center=float(centering), **settings)


# ------------------------------------------------------------ by name


ALGORITHMS = {
    "pair ranking": ("discreet.models.dpmf.ranking", "PairRanking"),
    "residual gradient": ("discreet.models.dpmf.rating", "RatingFactorization"),
    "noisy solve": ("discreet.models.dpals", "NoisySolve"),
    "projected gradient": ("discreet.models.dplmc", "ProjectedGradient"),
    "robust solve": ("discreet.models.huber_als", "RobustSolve"),
    "Frank–Wolfe": ("discreet.models.frank_wolfe", "FrankWolfe"),
    "covariance SVD": ("discreet.models.dpsvd", "CovarianceSVD"),
    "Langevin": ("discreet.models.dpsgld", "Langevin"),
    "Poisson descent": ("discreet.models.dpsgd", "PoissonDescent"),
}


def algorithm_from(document: Mapping[str, Any]) -> Algorithm:
    """Read the algorithm that ``to_dict`` described."""
    return algorithm_class(document.get("name")).from_dict(document)


def algorithm_class(name: str | None) -> type[Algorithm]:
    """Return the class of the algorithm of that name, imported on first use."""
    if name not in ALGORITHMS:
        raise DataError(f"unknown algorithm {name!r} in this version of discreet")
    module, cls = ALGORITHMS[name]
    found: type[Algorithm] = getattr(importlib.import_module(module), cls)
    return found
