"""Private hyperparameter tuning: `tune` trains with several settings and releases the best model.

1. A share of each user's ratings is held out, at random for each user; it is the same in all runs.
2. K, the number of runs, is drawn at random and stays secret
   (``discreet.privacy.accounting.private_selection``).
3. A run draws a setting from the declared space, trains on the remaining ratings and scores itself:
   a sum over users of numbers in [0, 1], released with noise through a session. Training and score
   together are μ-GDP.
4. The model with the best score is released with its setting, its score and one ledger entry for
   all runs. K and the other scores, settings, warnings and progress stay secret. Ties are broken at
   random.

With ``distribution="fixed"`` nothing is secret: the number of runs is fixed, every score is
reported, and a function or a library such as Optuna may choose settings by earlier scores. The
costs of all runs then add up.

Privacy: μ of one run covers all of its releases, and is the largest for which the best of K runs
costs the model's (ε, δ). A run that gives up because of too much noise gets the worst score. The
total time depends on K, so an observer of the time learns about K: docs/tuning.md.
"""

from __future__ import annotations

import logging
import math
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.data.splits import Split, by_person
from discreet.data.user_column import check_user_column
from discreet.errors import ConfigError, DiscreetError
from discreet.evaluation.evaluator import measure_users, public_threshold
from discreet.evaluation.metrics import Metric, parse
from discreet.models.private import PrivateRecommender
from discreet.models.user_rows import to_learn_from
from discreet.privacy.accounting import gdp, private_selection
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.private_selection import Runs
from discreet.privacy.release.budget_store import Account
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import RESERVE, Plan, Release
from discreet.privacy.release.session import Session, caller
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.statistics.user_totals import UserValues
from discreet.privacy.users.sealed_users import seal_values

FIXED = "fixed"
RELEASE = "best training"
DEFAULT_METRIC = {"rating": "rmse", "ranking": "recall@20"}

Setting = dict[str, Any]


@dataclass(frozen=True)
class Between:
    """A hyperparameter drawn log-uniformly from low to high, as an integer if both ends are."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ConfigError(
                f"Between({self.low}, {self.high}): a range goes from a positive number to a larger"
                " one."
            )

    def draw(self, rng: random.Random) -> float:
        found = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return min(max(round(found), int(self.low)), int(self.high)) if whole else found


Space = Mapping[str, Sequence[Any] | Between]


@dataclass(frozen=True)
class Trial:
    """A setting and its noisy score, None if the training gave up."""

    setting: Mapping[str, Any]
    score: float | None


@dataclass(frozen=True)
class TuningResult:
    """The released result of tuning.

    Attributes
    ----------
    model : the best trained model; its ``privacy_`` covers all runs
    setting : dict
    score : float
        The noisy sum over users of numbers in [0, 1]. As the best of several, it is biased upward.
    trials : tuple of Trial
        With ``distribution="fixed"`` only; otherwise the other runs are secret.
    privacy : PrivacyStatement
    """

    model: Any
    setting: Mapping[str, Any]
    score: float
    trials: tuple[Trial, ...]
    privacy: PrivacyStatement


def tune(
    model: PrivateRecommender,
    ratings: Ratings,
    space: Space | Callable[[tuple[Trial, ...]], Setting],
    *,
    runs: float = 10,
    distribution: str = "geometric",
    metric: str | None = None,
    relevant: float | None = None,
    held_out: float = 0.1,
    score_share: float = 0.1,
    account: Account | None = None,
) -> TuningResult:
    """Train with settings from a declared space, and return the best model.

    Parameters
    ----------
    model : a private model, not fitted
        Its ε and δ are the total cost of tuning; its other parameters are the defaults of settings.
    ratings : Ratings
    space : mapping, or a function with ``distribution="fixed"``
        Parameter (of the model or of its algorithm) to a list of values or a `Between`. The space
        is public. A function takes the trials so far and returns the next setting.
    runs : float
        Mean number of runs; with ``distribution="fixed"`` the exact number.
    distribution : {"geometric", "logarithmic", "poisson", "negative-binomial:η", "fixed"}
        Distribution of the secret number of runs. "fixed" keeps nothing secret, at the full cost
        of every run.
    metric : str, optional
        A ranking metric such as ``recall@20``, or ``rmse`` or ``mae``. Default: recall@20 for goal
        "ranking", rmse for goal "rating".
    relevant : float, optional
        Lowest relevant held-out rating for ranking metrics. Required unless the model has a public
        threshold, such as one from its ``rating_range``.
    held_out : float
        Share of each user's ratings to hold out for scores.
    score_share : float
        Share of each run's μ² for its score.
    account : Account, optional
        The account of these users, to be charged.
    """
    return Tuning(
        model,
        space,
        runs=runs,
        distribution=distribution,
        metric=metric,
        relevant=relevant,
        held_out=held_out,
        score_share=score_share,
    ).run(ratings, account)


class Tuning:
    """Tuning with its cost calibrated before any data are read; `tune` has the parameters.

    Attributes
    ----------
    mu : float
        μ of one run, including its score.
    base_epsilon : float
        ε of one training alone, at the model's δ.
    privacy_ : PrivacyStatement
        Statement of all releases so far; set once `run` has begun, even if it is interrupted.
    """

    privacy_: PrivacyStatement

    def __init__(
        self,
        model: PrivateRecommender,
        space: Space | Callable[[tuple[Trial, ...]], Setting],
        *,
        runs: float = 10,
        distribution: str = "geometric",
        metric: str | None = None,
        relevant: float | None = None,
        held_out: float = 0.1,
        score_share: float = 0.1,
    ):
        if not isinstance(model, PrivateRecommender):
            raise ConfigError(
                f"{type(model).__name__} is not private. Tuning is for private models."
            )
        if model.noise != "secure":
            raise ConfigError(
                f"noise={model.noise!r}: private tuning needs secure noise. Use noise='secure'."
            )
        _check_share("held_out", held_out)
        _check_share("score_share", score_share)
        model.check()
        self.model = model
        self.space = space if callable(space) else _check_space(space)
        self.metric = _check_metric(metric, model)
        self.relevant = relevant
        self.held_out = held_out
        self.score_share = score_share
        self.distribution = distribution
        self.runs = runs
        self._number = _fix_runs(runs) if distribution == FIXED else Runs(runs, distribution)
        if callable(space) and distribution != FIXED:
            raise ConfigError(
                "space is a function, which chooses settings by earlier scores. Use"
                " distribution='fixed'."
            )
        delta = model.budget.delta - 2 * RESERVE * max(2.0, runs)
        if isinstance(self._number, Runs):
            self.mu = private_selection.mu(model.epsilon, delta, self._number)
        else:
            self.mu = gdp.mu(model.epsilon, delta) / math.sqrt(self._number)
        training = self.mu * math.sqrt(1 - score_share)
        self.base_epsilon = gdp.epsilon(training, model.budget.delta - RESERVE) * (1 - 1e-9)
        self._draw = random.SystemRandom()
        if not callable(self.space):  # refuse invalid settings before reading data
            self.candidate(self._setting(()) | _list_open(self.space)).check()
            for _ in range(3):
                self.candidate(self._setting(())).check()

    # ------------------------------------------------------------ before any data

    def plan(self) -> Plan:
        """Return the plan: one release for all runs, or one per run where their number is fixed."""
        budget = self.model.budget
        if isinstance(self._number, Runs):
            release = Release(
                RELEASE, weight=1 / self.mu, shape=(), law=self.distribution, runs=self.runs
            )
        else:
            release = Release("training and score", self._number, 1 / self.mu, shape=())
        made = Plan((release,), budget, "gdp")
        made.check()
        return made

    def candidate(self, setting: Mapping[str, Any]) -> PrivateRecommender:
        """Return the model with this setting and the budget of one run."""
        model = self.model
        kind = type(model)
        params = model.get_params() | {"epsilon": self.base_epsilon, "random_state": None}
        own = {name: value for name, value in setting.items() if name in params}
        inner = {name: value for name, value in setting.items() if name not in params}
        for name in ("epsilon", "delta", "neighboring", "accountant", "noise", "allow_large_delta"):
            if name in own:
                raise ConfigError(
                    f"{name} is part of the guarantee and cannot be tuned. Remove it from space."
                )
        if not inner:
            made = kind(**(params | own))
        elif model.algorithm is None:
            made = kind.configure(**(params | own | inner))
        else:
            made = kind(**(params | own | {"algorithm": replace(model.algorithm, **inner)}))
        public_threshold(made, [self.metric], self.relevant)  # raises if it depended on data
        return made

    # ------------------------------------------------------------ with data

    def run(self, ratings: Ratings, account: Account | None = None) -> TuningResult:
        """Run the tuning, and return the best model."""
        ratings = to_learn_from(ratings)
        check_user_column(ratings, self.model.rating_range)  # before anything is charged
        plan = self.plan()
        ledger = Ledger(plan, "secure")
        self._check_price(
            self.candidate({} if callable(self.space) else self._setting(())), ratings.n_items
        )
        if account is not None:
            account.check_head(getattr(self.model, "account_head_", None))
        held = (
            None
            if account is None
            else account.reserve(plan, "secure", f"tuning of {type(self.model).__name__}")
        )
        try:
            self.privacy_ = PrivacyStatement.from_ledger(ledger)
            found = self._run(ratings, ledger)
        finally:
            self.privacy_ = PrivacyStatement.from_ledger(ledger)
            head = None if held is None else held.settle(ledger)
        if head is not None:
            found.model.account_head_ = head
        return found

    def _run(self, ratings: Ratings, ledger: Ledger) -> TuningResult:
        hidden = isinstance(self._number, Runs)
        split = by_person(ratings, (1 - self.held_out, self.held_out), seed=secrets.randbits(62))
        if hidden:
            self._record(ledger)
            # Training and score, times the mean number of runs.
            ledger.noise_delta = 2 * RESERVE * self.runs
        number = self._number.draw() if isinstance(self._number, Runs) else self._number
        best: tuple[float, int, Setting, Any] | None = None
        trials: tuple[Trial, ...] = ()
        for _ in range(number):
            setting = self._setting(trials)
            if not hidden:
                self._record(ledger)
                ledger.noise_delta += 2 * RESERVE
            with _without_logs(hidden):
                model, score = self._try(setting, split)
            if not hidden:
                trials = (*trials, Trial(setting, None if model is None else score))
            tie_breaker = secrets.randbits(64)
            if best is None or (score, tie_breaker) > best[:2]:
                best = (score, tie_breaker, setting, model)
        assert best is not None
        score, _, setting, model = best
        if model is None:
            raise ConfigError(
                "All trainings gave up because of too much noise. Use a larger epsilon, fewer runs,"
                " or another space. The budget of this tuning is spent."
            )
        return self._winner(model, setting, score, trials, ledger)

    def _winner(
        self, model: Any, setting: Setting, score: float, trials: tuple[Trial, ...], ledger: Ledger
    ) -> TuningResult:
        for a in model.privacy_.assumptions:
            ledger.assume(a.name, a.text, a.inferred)
        ledger.assume("settings", f"the space of hyperparameters: {self._describe_space()}")
        ledger.assume(
            "held out",
            "the ratings held out for scores, chosen for each user independently of others",
        )
        model.privacy_ = replace(model.algorithm_.statement(ledger), learned=model.privacy_.learned)
        return TuningResult(model, setting, score, trials, model.privacy_)

    def _record(self, ledger: Ledger) -> None:
        line = ledger.plan.releases[0]
        ledger.record(
            line.name,
            mechanism="gaussian",
            sensitivity=1.0,
            norm="l2",
            noise_multiplier=1 / self.mu,
            shape=(),
            where=caller(),
            law=line.law,
            runs=line.runs,
        )

    def _try(self, setting: Setting, split: Split) -> tuple[Any, float]:
        """Run once: return a trained model and its score, or None and −inf."""
        candidate = self.candidate(setting)
        self._check_price(candidate, split.train.n_items)
        try:
            model = candidate.fit(split.train, progress=False)  # the number of runs is secret
            return model, self._score(model, split)
        except DiscreetError:
            return None, -math.inf

    def _score(self, model: PrivateRecommender, split: Split) -> float:
        share = self.mu * math.sqrt(self.score_share)
        plan = Plan.explicit(
            [Release("score", weight=1 / share, shape=(1,))],
            self.model.budget.delta,
            self.model.neighboring,
        )
        session = Session(plan)
        scale = getattr(model, "rating_range_", None)
        relevant = public_threshold(model, [self.metric], self.relevant)

        def measure_all() -> NDArray[np.float64]:
            found = measure_users(model, split.test, [self.metric], relevant)
            return goodness(found[self.metric.name], self.metric, scale)[:, None]

        return float(session.release("score", seal_values(measure_all).sum(UserValues((1.0,))))[0])

    def _setting(self, trials: tuple[Trial, ...]) -> Setting:
        if callable(self.space):
            return dict(self.space(trials))
        return {name: _draw_value(values, self._draw) for name, values in self.space.items()}

    def _check_price(self, candidate: PrivateRecommender, n_items: int) -> None:
        """Check that a candidate costs at most the μ of a run; all inputs are public."""
        allowed = self.mu * math.sqrt(1 - self.score_share)
        if accounting.total_mu(candidate.plan(n_items).events) > allowed * (1 + 1e-9):
            raise ConfigError(
                f"{type(self.model).__name__} has releases that are not Gaussian sums over all"
                " users, so tuning has no price for it. Use another model, or accountant='gdp'."
            )

    def _describe_space(self) -> str:
        if callable(self.space):
            return "chosen one after another by the scores released before"
        parts = []
        for name, values in self.space.items():
            several = (
                f"{values.low:g} to {values.high:g}"
                if isinstance(values, Between)
                else ", ".join(map(str, values))
            )
            parts.append(f"{name} of {several}")
        return "; ".join(parts)


def goodness(
    per_user: NDArray[Any], metric: Metric, scale: tuple[float, float] | None
) -> NDArray[np.float64]:
    """Return each user's contribution to a score: in [0, 1], larger for better, 0 if none.

    For rmse and mae: one minus the user's mean error over half the width of the scale, at least 0.
    """
    if metric.kind == "ranking":
        return np.nan_to_num(per_user)
    assert scale is not None
    error = per_user / ((scale[1] - scale[0]) / 2)
    cut = np.minimum(1.0, error**2 if metric.base == "rmse" else error)
    return np.where(np.isfinite(per_user), 1.0 - np.nan_to_num(cut), 0.0)


@contextmanager
def _without_logs(hidden: bool) -> Iterator[None]:
    """Suppress log lines of secret runs, which would be releases."""
    logger = logging.getLogger("discreet")
    before = logger.disabled
    logger.disabled = before or hidden
    try:
        yield
    finally:
        logger.disabled = before


def _draw_value(values: Sequence[Any] | Between, rng: random.Random) -> Any:
    return values.draw(rng) if isinstance(values, Between) else rng.choice(list(values))


def _list_open(space: Space) -> Setting:
    """Return the parameters that a setting may set to None, such as the range of ratings."""
    listed = {name: values for name, values in space.items() if not isinstance(values, Between)}
    return {name: None for name, values in listed.items() if any(one is None for one in values)}


def _check_space(space: Space) -> dict[str, Sequence[Any] | Between]:
    if not isinstance(space, Mapping) or not space:
        raise ConfigError("space must map parameters to values, such as {'factors': [16, 32, 64]}.")
    for name, values in space.items():
        if isinstance(values, Between):
            continue
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise ConfigError(
                f"space has {values!r} for {name!r}. Pass a list of values, or Between(low, high)."
            )
    return dict(space)


def _check_metric(name: str | None, model: PrivateRecommender) -> Metric:
    metric = parse(name or DEFAULT_METRIC[model.goal])
    if metric.kind in ("list", "catalog"):
        raise ConfigError(
            f"{metric.name} is no sum over users with a public bound. Choose another metric."
        )
    if metric.kind == "rating" and model.goal == "ranking":
        raise ConfigError(
            f"{metric.name} compares predicted ratings, but this model predicts none."
        )
    return metric


def _check_share(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ConfigError(f"{name} is {value!r}, but must be between 0 and 1.")


def _fix_runs(runs: float) -> int:
    if isinstance(runs, bool) or runs != int(runs) or not 1 <= runs <= private_selection.MOST_RUNS:
        raise ConfigError(
            f"runs is {runs!r}. With distribution='fixed' it must be an integer, at most"
            f" {private_selection.MOST_RUNS:g}."
        )
    return int(runs)
