r"""Release scores of held-out users with noise, a ledger and confidence intervals.

User i contributes a sum s_i and a weight c_i to every metric, and the score is θ = Σ s_i / Σ c_i:

1. rankings (recall, ndcg, …): s_i is the user's value in [0, 1] and c_i = 1; both are 0 for a user
   without relevant items;
2. rmse, mae: s_i = c_i · min(1, e_i / D^p), with e_i the user's mean squared (p = 2) or absolute
   (p = 1) error and D = (high − low) / 2, the largest error of a constant prediction in the middle
   of the scale. c_i = min(n_i, M) / M for a user with n_i held-out ratings, so the weight of a user
   is at most M ratings. Then rmse = D √θ and mae = D θ.

All of them are in [0, 1]. One vector is released (`UserValues`): Σ s, Σ c and, for the variance
over users, Σ s², Σ s c and Σ c². The second moments have a fourth of the weight, because they need
less precision. With noise of standard deviation τ on each,

3. V(θ) = τ² (1 + θ²) + max(0, Σs² − 2θ Σsc + θ² Σc²) (the noise, and the sampling of users);
4. the interval is { θ : (Σs − θ Σc)² ≤ q² V(θ) } ∩ [0, 1], with q the normal quantile. This is
   Fieller's interval, which is valid even where Σc is small compared to its noise.

Privacy: releases (Σ s, Σ c, …); sensitivity ‖m‖₂, m the bounds of the entries, because a user's
numbers depend on the model and on that user's ratings alone. The cost of the model is in its own
ledger, and the two costs add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.data.user_column import check_user_column
from discreet.errors import ConfigError
from discreet.evaluation.metrics import Metric
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.accounting.roots import brentq
from discreet.privacy.release.budget_store import Account, charge_account
from discreet.privacy.release.hash_chain import Head
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.statistics.user_totals import UserValues
from discreet.privacy.users.sealed_users import seal_values
from discreet.progress import html_notes, html_table

if TYPE_CHECKING:
    from discreet.data.splits import Holdout

RELEASE = "scores"
#: The weight of second moments in the release: less noise on the scores, more on their variance.
MOMENTS = 0.25
_POINTS = 4097  # grid of θ: an interval narrower than 1/4096 is found by `_around`

Measure = Callable[[Sequence[str]], Mapping[str, NDArray[np.float64]]]


@dataclass(frozen=True)
class ScorePrice:
    """The budget and the bounds of private scores.

    Parameters
    ----------
    budget : Budget
    account : Account, optional
        Account in a `discreet.BudgetStore`, to be charged.
    max_ratings : int
        M, the largest weight of a user in rmse and mae.
    confidence : float
        Confidence level of the intervals.
    noise, random_state
        As for a `Session`.
    """

    budget: Budget
    account: Account | None = None
    max_ratings: int = 10
    confidence: float = 0.95
    noise: Any = "secure"
    random_state: int | None = None

    def __post_init__(self) -> None:
        if (
            isinstance(self.max_ratings, bool)
            or not isinstance(self.max_ratings, int)
            or self.max_ratings < 1
        ):
            raise ConfigError(
                f"max_ratings is {self.max_ratings!r}, but must be an integer of at least 1."
            )
        if not 0.5 <= self.confidence < 1:
            raise ConfigError(
                f"confidence is {self.confidence!r}, but must be at least 0.5 and below 1, such as"
                " 0.95."
            )


@dataclass(frozen=True, repr=False)
class PrivateEvaluation:
    """Scores with noise, which may be published.

    Attributes
    ----------
    values : dict
        Metric name to score; NaN if the noise exceeds the signal.
    intervals : dict
        Metric name to (low, high), the confidence interval for the population that the users are a
        sample of; it includes the noise and the sampling of users.
    people : dict
        Metric name to the approximate number of users (in rmse and mae, a user with fewer than M
        ratings counts in part).
    noise : float
        Standard deviation of the noise on every sum.
    confidence : float
    privacy : PrivacyStatement
    conditions : dict
    """

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    people: Mapping[str, float]
    noise: float
    confidence: float
    privacy: PrivacyStatement
    conditions: Mapping[str, Any]

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    def __repr__(self) -> str:
        scores = ", ".join(f"{name}={value:.4f}" for name, value in self.values.items())
        return (
            f"<PrivateEvaluation of {self.conditions['model']}: {scores}; ε ="
            f" {self.privacy.epsilon:.4g}>"
        )

    def __str__(self) -> str:
        lines = [
            self._head(),
            "",
            *(f"{name:12} {_format_score(self, name)}" for name in self.values),
            "",
        ]
        return "\n".join([*lines, *(f"- {note}" for note in self._notes())])

    def _repr_html_(self) -> str:
        """Return the printed result as HTML for notebooks."""
        rows = [(name, _format_score(self, name)) for name in self.values]
        table = html_table(("metric", "score"), rows)
        return f"<div><p>{escape(self._head())}</p>{table}{html_notes(self._notes())}</div>"

    def _head(self) -> str:
        c = self.conditions
        return (
            f"{c['model']} on {c['split']}, {c['part']}: released with noise, ε ="
            f" {self.privacy.epsilon:.4g}"
        )

    def _notes(self) -> list[str]:
        return [
            f"{self.confidence:.0%} confidence intervals, for the noise and the sampling of users",
            f"the privacy cost of the model is separate; {self.conditions['bounded']}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "values": {
                name: value if math.isfinite(value) else None for name, value in self.values.items()
            },
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "people": dict(self.people),
            "noise": self.noise,
            "confidence": self.confidence,
            "privacy": self.privacy.to_dict(),
            "conditions": dict(self.conditions),
        }


def _format_score(found: PrivateEvaluation, name: str) -> str:
    low, high = found.intervals[name]
    value = found.values[name]
    score = "–" if math.isnan(value) else f"{value:.4f}"
    return f"{score}  ({low:.4f} to {high:.4f}), about {max(found.people[name], 0):,.0f} users"


def release_scores(
    metrics: Sequence[Metric],
    measure: Measure,
    holdout: Holdout,
    half: float | None,
    price: ScorePrice,
    conditions: Mapping[str, Any],
    cautions: Mapping[str, str] | None = None,
    head: Head | None = None,
) -> PrivateEvaluation:
    """Compute sealed exact scores, and release them with noise.

    Parameters
    ----------
    metrics : rating or ranking metrics
    measure : function of metric names
        Returns one number per user and metric, NaN for users who are left out. Its exact values
        stay sealed. Called after the account was charged.
    holdout : Holdout
    half : float or None
        D, half the public width of the rating scale; only rating metrics need it.
    price : ScorePrice
    conditions : what the scores depend on
    cautions : values read from data that the scores depend on, by name
    head : the account's last hash as the model stores it; the charged account must still contain it
    """
    _check(metrics, half)
    check_user_column(holdout.target, None)  # the protected unit is a value of that column
    layout = ScoreLayout.from_metrics(metrics)
    plan = Plan.calibrate([Release(RELEASE, shape=(len(layout.most),))], price.budget)
    session = Session(plan, price.noise, price.random_state)
    with charge_account(price.account, session, "scores", head):
        if "model" not in (cautions or {}):
            session.record_assumption(
                "model", "the evaluated model, whose privacy cost is separate"
            )
        if conditions["apart"]:
            session.record_assumption(
                "held out", "the held-out ratings, chosen for each user independently of others"
            )
        else:
            session.record_assumption(
                "held out", "the held-out ratings, chosen over all users together", inferred=True
            )
        for name, text in (cautions or {}).items():
            session.record_assumption(name, text, inferred=True)
        bounded = (
            f"each user counts as at most {price.max_ratings} ratings"
            if layout.rated
            else "each user counts once"
        )
        if layout.rated:
            session.record_assumption(
                "errors",
                f"errors are clipped to {half:g}, and {bounded} in rmse and mae",
            )

        def columns() -> NDArray[np.float64]:
            exact = measure([metric.name for metric in metrics])
            counts = np.diff(holdout.target.indptr)
            return layout.columns(exact, counts, half or 1.0, price.max_ratings)

        statistic = seal_values(columns).sum(UserValues(layout.most))
        noisy = session.release(RELEASE, statistic)
        deviation = session.deviation(RELEASE, statistic)
        statement = session.finish()
    found = layout.read(noisy, deviation, price.confidence)
    scale = {m.name: _scale(m, half or 1.0) for m in metrics}
    return PrivateEvaluation(
        values={name: scale[name](one.value) for name, one in found.items()},
        intervals={
            name: (scale[name](one.low), scale[name](one.high)) for name, one in found.items()
        },
        people={name: one.people for name, one in found.items()},
        noise=deviation,
        confidence=price.confidence,
        privacy=statement,
        conditions={**conditions, "bounded": bounded},
    )


def _check(metrics: Sequence[Metric], half: float | None) -> None:
    for metric in metrics:
        if metric.kind in ("list", "catalog"):
            raise ConfigError(
                f"{metric.name} is no sum over users with a public bound, so it cannot be released."
                " Leave it out."
            )
        if metric.kind == "rating" and half is None:
            raise ConfigError(
                f"{metric.name} needs a public range of ratings, but this model has none."
            )


def _scale(metric: Metric, half: float) -> Callable[[float], float]:
    """Return the function from θ to the score."""
    if metric.base == "rmse":
        return lambda theta: half * math.sqrt(theta)
    if metric.base == "mae":
        return lambda theta: half * theta
    return lambda theta: theta


@dataclass(frozen=True)
class ScoreSums:
    """θ, its interval, and Σ c.

    Attributes
    ----------
    value, low, high : θ and its interval
    people : Σ c
    """

    value: float
    low: float
    high: float
    people: float


@dataclass(frozen=True)
class ScoreLayout:
    """The layout of the released vector; see the equations at the top of the module."""

    rated: tuple[Metric, ...]
    ranked: tuple[Metric, ...]

    @classmethod
    def from_metrics(cls, metrics: Sequence[Metric]) -> ScoreLayout:
        return cls(
            tuple(m for m in metrics if m.kind == "rating"),
            tuple(m for m in metrics if m.kind == "ranking"),
        )

    @property
    def most(self) -> tuple[float, ...]:
        """The bound on each column."""
        rated = [1.0, MOMENTS] + [1.0, MOMENTS, MOMENTS] * len(self.rated) if self.rated else []
        ranked = [1.0] + [1.0, MOMENTS] * len(self.ranked) if self.ranked else []
        return (*rated, *ranked)

    def columns(
        self,
        exact: Mapping[str, NDArray[Any]],
        counts: NDArray[Any],
        half: float,
        max_ratings: int,
    ) -> NDArray[np.float64]:
        """Return each user's contribution.

        The columns are c, c², then s, s², s c of each rating metric; c, then s, s² of each ranking
        metric.
        """
        found = []
        if self.rated:
            c = np.minimum(counts, max_ratings) / max_ratings
            found += [c, MOMENTS * c**2]
            for metric in self.rated:
                error = np.nan_to_num(exact[metric.name]) / half
                s = c * np.minimum(1.0, error**2 if metric.base == "rmse" else error)
                found += [s, MOMENTS * s**2, MOMENTS * s * c]
        if self.ranked:
            there = np.isfinite(exact[self.ranked[0].name])
            found.append(there.astype(np.float64))
            for metric in self.ranked:
                s = np.where(there, np.nan_to_num(exact[metric.name]), 0.0)
                found += [s, MOMENTS * s**2]
        return np.column_stack(found)

    def read(
        self, noisy: NDArray[Any], deviation: float, confidence: float
    ) -> dict[str, ScoreSums]:
        """Compute every score from the released vector alone."""
        left = [float(x) for x in noisy]
        found = {}
        if self.rated:
            c = left.pop(0)
            c2 = left.pop(0) / MOMENTS
            for metric in self.rated:
                s = left.pop(0)
                s2 = left.pop(0) / MOMENTS
                sc = left.pop(0) / MOMENTS
                found[metric.name] = ratio(s, c, (s2, sc, c2), deviation, confidence)
        if self.ranked:
            c = left.pop(0)
            for metric in self.ranked:
                s = left.pop(0)
                s2 = left.pop(0) / MOMENTS
                found[metric.name] = ratio(s, c, (s2, s, c), deviation, confidence)
        return found


def ratio(
    s: float, c: float, moments: tuple[float, float, float], deviation: float, confidence: float
) -> ScoreSums:
    """Return θ = Σs / Σc and its interval (3, 4) from noisy sums; `moments` are Σs², Σsc, Σc²."""
    q = float(ndtri(0.5 + confidence / 2))
    s2, sc, c2 = moments

    def excess(theta: NDArray[Any] | float) -> Any:
        people = np.maximum(0.0, s2 - 2 * theta * sc + theta**2 * c2)
        return (s - theta * c) ** 2 - q**2 * (deviation**2 * (1 + theta**2) + people)

    grid = np.linspace(0.0, 1.0, _POINTS)
    inside = np.flatnonzero(excess(grid) <= 0)
    value = min(max(s / c, 0.0), 1.0) if c > 0 else math.nan
    if not len(inside):  # the interval is between two grid points, or noise moved it beyond [0, 1]
        return (
            ScoreSums(value, *_around(excess, value), c) if c > 0 else ScoreSums(value, 0.0, 1.0, c)
        )
    first = int(inside[0])
    last = int(inside[-1])
    low = float(brentq(excess, grid[first - 1], grid[first])) if first > 0 else 0.0
    high = float(brentq(excess, grid[last], grid[last + 1])) if last < _POINTS - 1 else 1.0
    return ScoreSums(value, low, high, c)


def _around(excess: Callable[[float], Any], value: float) -> tuple[float, float]:
    step = 1.0 / (_POINTS - 1)
    if not excess(value) < 0:
        return value, value
    low = (
        float(brentq(excess, max(value - step, 0.0), value))
        if excess(max(value - step, 0.0)) > 0
        else 0.0
    )
    high = (
        float(brentq(excess, value, min(value + step, 1.0)))
        if excess(min(value + step, 1.0)) > 0
        else 1.0
    )
    return low, high
