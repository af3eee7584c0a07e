"""Levels "scores" and "tuning": what evaluation releases beside a model, in two worlds that are one
user apart.

*Scores.* `evaluate(..., epsilon=...)` releases sums over held-out users. As in the transcript, a
second evaluation sees what the first one released: how far a canary moves the sums is exact, and
whatever else it changes left without noise. The noise is drawn many times and must be as large as
its price, and on its grid.

*Tuning.* Every run of `tune`, a training and its score together, is claimed to be μ-GDP, and is
compared in the same way. How many runs there are must be as random as the price says. And the price
of the best of them must cover the simplest case there is: runs whose score is a normal number with
mean 0 or μ, of which the best is shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from discreet.auditing.canaries import Canary, join_canary, pair_canary, worst_cases
from discreet.auditing.conformance.recorded_fit import differences, flatten
from discreet.auditing.conformance.recorder import Diverged, Recorder
from discreet.auditing.conformance.rules import list_first
from discreet.auditing.neighboring_runs import (
    SLACK,
    NeighboringRuns,
    deviation_from_price,
    moves,
    quiet,
)
from discreet.auditing.noise_distribution import is_on_grid
from discreet.auditing.result import Level
from discreet.data.ratings import Ratings
from discreet.data.splits import Split, by_person
from discreet.errors import ConfigError, DiscreetError
from discreet.evaluation.evaluator import evaluate
from discreet.evaluation.tuning import Tuning
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import DEFAULT_DELTA
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.statement import PrivacyStatement

SEES_SCORES = (
    "scores that leave without noise or with too little, a user who moves them further than is"
    " priced, and users whose held-out ratings depend on others"
)
BLIND_TO_SCORES = (
    "splits other than by_person, canaries that were not guessed, and how long measuring takes"
)
SEES_TUNING = (
    "a training or a score that costs more than one run may, a score without noise, a number of"
    " runs that is not random, and a price that is too small for the best of them"
)
BLIND_TO_TUNING = (
    "how long tuning takes, laws other than geometric, and selections that leak more than the"
    " example"
)
EPSILON = 1.0
ERROR = 1e-7
DRAWS = 4000
#: Tunings of which the number of runs is counted.
COUNTED = 100
_SEED = 7
_LEARNED_ELSEWHERE = ("earlier_ledgers_",)

Do = Callable[[Ratings], Any]


@dataclass(frozen=True)
class Seen:
    """One run in one world: its releases, and everything else that leaves."""

    watch: Recorder
    result: dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """What canaries did to all that is released."""

    findings: list[str]
    shares: dict[str, tuple[float, str]]
    lost: float
    canaries: int

    def releases(self) -> list[dict[str, Any]]:
        """For plots: every release with the furthest that it was moved."""
        return [
            {"name": name, "share": share, "canary": label}
            for name, (share, label) in self.shares.items()
        ]


# ------------------------------------------------------------------ scores


def audit_scores(
    worlds: NeighboringRuns, *, split: Callable[[Ratings], Split] | None = None
) -> Level:
    """Audit priced scores of the model that was trained first.

    Parameters
    ----------
    worlds : Worlds
    split : function of ratings, optional
        How ratings are held out. Default: `by_person` with a fixed seed.
    """
    begin = time.perf_counter()
    model = worlds.first.model
    divide = split or (lambda ratings: by_person(ratings, (0.5, 0.5), seed=_SEED))
    relevant = None if model.goal == "ranking" else worlds.low + 0.75 * (worlds.high - worlds.low)
    metrics = ["recall@10", "ndcg@10"] if model.goal == "ranking" else ["rmse", "mae", "recall@10"]

    def score(ratings: Ratings) -> Any:
        found = evaluate(
            model,
            divide(ratings),
            metrics,
            epsilon=EPSILON,
            delta=DEFAULT_DELTA,
            neighboring=model.neighboring,
            relevant=relevant,
            progress=False,
        )
        return vars(found)

    first = _see(worlds, score, None, draws=DRAWS)
    again = _see(worlds, score, None)
    compared = _compare(worlds, score, first)
    findings = compared.findings + _faults_of_noise(first.watch)
    if first.result == again.result:
        findings.append("two evaluations release the same scores: they have no noise")
    return _level(
        "scores",
        findings,
        gdp.mu(EPSILON, DEFAULT_DELTA),
        compared,
        SEES_SCORES,
        BLIND_TO_SCORES,
        begin,
    )


# ------------------------------------------------------------------ tuning


def audit_tuning(worlds: NeighboringRuns) -> Level:
    """Audit what `tune` claims of one run, of the number of runs, and of the best of them.

    Raises a `ConfigError` for models that tuning refuses.
    """
    begin = time.perf_counter()
    tuning = Tuning(worlds.model, {"random_state": [0, 1]})
    setting = {"random_state": 0}
    tuning._check_price(tuning.candidate(setting), worlds.n_items)

    def attempt(ratings: Ratings) -> Any:
        split = by_person(ratings, (1 - tuning.held_out, tuning.held_out), seed=_SEED)
        model, score = tuning._try(setting, split)
        if model is None:
            raise DiscreetError("nothing was learned")
        learned = {
            name: value for name, value in vars(model).items() if name not in _LEARNED_ELSEWHERE
        }
        return {"score": score, "model": learned}

    first = _see(worlds, attempt, None, tries=8)
    compared = _compare(worlds, attempt, first)
    findings = compared.findings + _faults_of_number(worlds, tuning) + _faults_of_price(tuning)
    return _level("tuning", findings, tuning.mu, compared, SEES_TUNING, BLIND_TO_TUNING, begin)


def _faults_of_number(worlds: NeighboringRuns, tuning: Tuning) -> list[str]:
    """Whether the number of runs has the geometric law: at most k with probability 1 − (1 −
    1/mean)^k.
    """
    counted = Tuning(worlds.model, {"random_state": [0]}, runs=tuning.runs)
    numbers: list[int] = []

    def count_run(setting: Any, split: Any) -> tuple[Any, float]:
        numbers[-1] += 1
        return object(), 0.0

    counted._try = count_run  # type: ignore[method-assign]
    counted._winner = lambda *given: None  # type: ignore[method-assign,assignment,return-value]
    few = worlds.people(1)
    with quiet():
        for _ in range(COUNTED):
            numbers.append(0)
            counted.run(few)
    mean = float(tuning.runs)
    for most in (1, round(mean / 2), round(mean), round(2 * mean)):
        expected = 1 - (1 - 1 / mean) ** most
        found = int((np.array(numbers) <= most).sum())
        tail = min(
            stats.binom.cdf(found, COUNTED, expected), stats.binom.sf(found - 1, COUNTED, expected)
        )
        if tail < ERROR / 8:
            return [
                f"{found} of {COUNTED} tunings make at most {most} runs, where"
                f" {COUNTED * expected:.0f} are priced"
            ]
    return []


def _faults_of_price(tuning: Tuning) -> list[str]:
    """Whether the stated (ε, δ) holds for the best of several normal numbers, whose mean is 0
    or μ.
    """
    ledger = Ledger(tuning.plan(), "secure")
    tuning._record(ledger)
    said = PrivacyStatement.from_ledger(ledger)
    found = delta_of_best(said.epsilon, tuning.mu, float(tuning.runs))
    if found <= said.delta:
        return []
    stated = f"ε = {said.epsilon:.4g} and δ = {said.delta:g}"
    return [
        f"{stated} are stated, and at this ε the best of several normal scores loses δ ="
        f" {found:.3g}"
    ]


def delta_of_best(epsilon: float, mu: float, mean: float) -> float:
    """δ(ε) of showing the best of K normal numbers with mean 0 or μ, K geometric with this mean.

    The best of K has the distribution function f(Φ(s)) and so the density f'(Φ(s)) φ(s), f'(x) =
    γ/(1 − (1 − γ) x)² with γ = 1/mean.
    """
    s = np.linspace(-12.0, 12.0 + mu, 40_001)
    gamma = 1 / mean

    def density(shift: float) -> NDArray[np.float64]:
        slope = gamma / (gamma + (1 - gamma) * ndtr(shift - s)) ** 2
        return np.asarray(slope * np.exp(-((s - shift) ** 2) / 2) / math.sqrt(2 * math.pi))

    one, other = density(0.0), density(mu)
    step = s[1] - s[0]
    ways = ((one, other), (other, one))
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * step) for p, q in ways)


# ------------------------------------------------------------------ two worlds


def _see(
    worlds: NeighboringRuns,
    do: Do,
    canary: Canary | None,
    replay: Recorder | None = None,
    draws: int = 0,
    tries: int = 1,
) -> Seen:
    """Do it with the canary among the generated people; where it may learn nothing by bad luck,
    try again.
    """
    ratings = join_canary(worlds.crowd, canary)
    for left in reversed(range(tries)):
        try:
            with quiet(), Recorder(replay, draws, newcomers=True) as watch:
                result = do(ratings)
            return Seen(watch, flatten(result))
        except DiscreetError:
            if not left:
                raise
    raise ConfigError("tries must be at least 1")


def _compare(worlds: NeighboringRuns, do: Do, first: Seen) -> Compared:
    """Try the guessed canaries, each in a replay of the first run."""
    findings = _find_uncharged(first.watch)
    shares: dict[str, tuple[float, str]] = {}
    lost = 0.0
    compared = 0
    for single in worst_cases(worlds.n_items, worlds.low, worlds.high):
        if single.odd:
            continue
        canary = pair_canary(single, worlds.n_items) if worlds.is_replace_one else single
        try:
            there = _see(worlds, do, canary, first.watch)
            absent = first if canary.other is None else _see(worlds, do, canary.other, first.watch)
            moved = moves(absent.watch, there.watch)
        except (Diverged, DiscreetError, ValueError) as error:
            findings.append(f"with a canary ({canary.label}) something else happens: {error}")
            continue
        compared += 1
        lost = max(lost, math.sqrt(math.fsum(one.mu**2 for one in moved)))
        for one in moved:
            if one.share > shares.get(one.name, (-1.0, ""))[0]:
                shares[one.name] = (one.share, canary.label)
        changed = differences(absent.result, there.result)
        if changed:
            findings.append(
                f"with the same releases, a canary changes what leaves: {list_first(changed, 3)}"
            )
    findings += [
        f"release {name!r} moves by {share:.4g} times its stated sensitivity (canary: {label})"
        for name, (share, label) in shares.items()
        if share > 1 + SLACK
    ]
    return Compared(list(dict.fromkeys(findings)), shares, lost, compared)


def _find_uncharged(watch: Recorder) -> list[str]:
    outside = watch.looks - watch.through_the_door + watch.stray
    return [f"{outside} sums were computed outside Session.release"] if outside else []


def _faults_of_noise(watch: Recorder) -> list[str]:
    """Whether the noise of every release is as large as its price, and on its grid."""
    findings = []
    for record in watch.releases:
        if record.entry is None or not record.parts:
            continue
        deviation = deviation_from_price(record.entry)
        z = (
            np.concatenate([np.ravel(draw) for part in record.parts for draw in part.draws])
            / deviation
        )
        if stats.chi2.cdf(float((z**2).sum()), z.size) < ERROR:
            size = math.sqrt(float((z**2).mean()))
            findings.append(
                f"the noise of {record.name!r} has {size:.4g} of the size that was priced"
            )
        if not is_on_grid(record):
            findings.append(
                f"what is released as {record.name!r} is not on a grid: its low bits show the sum"
            )
    return findings


def _level(
    name: str,
    findings: list[str],
    claimed: float,
    compared: Compared,
    sees: str,
    blind_to: str,
    begin: float,
) -> Level:
    found = compared.lost
    if found > claimed * (1 + SLACK):
        findings.insert(0, f"a canary loses μ = {found:.4g}, and {claimed:.4g} is claimed")
    note = (
        f"the worst of {compared.canaries} canaries loses {100 * found / claimed:.2f} % of the"
        " claimed μ"
    )
    details = {"canaries": compared.canaries, "releases": compared.releases()}
    seconds = time.perf_counter() - begin
    return Level(
        name,
        bool(findings),
        "mu",
        claimed,
        found,
        (*findings, note),
        sees,
        blind_to,
        seconds,
        details,
    )
