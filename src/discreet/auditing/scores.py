"""Levels "scores" and "tuning": audit the releases of evaluation on neighboring data.

*Scores.* `evaluate(..., epsilon=...)` releases sums over held-out users. As in the transcript, a
second evaluation replays the releases of the first. How far a canary moves the sums is exact, and
any other difference left without noise. The noise is drawn many times: it must have the charged
size and lie on its grid.

*Tuning.* Every run of `tune`, a training and its score together, is claimed to be μ-GDP, and is
compared in the same way. The number of runs must have the charged distribution. And the cost of
selecting the best run must cover the simplest case: scores that are normal numbers with mean 0 or
μ, of which the best is released.
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
    "scores with no noise or too little, a user who moves them further than is charged, and users"
    " whose held-out ratings depend on others"
)
BLIND_TO_SCORES = (
    "splits other than by_person, canaries other than the known worst cases, and the time that an"
    " evaluation takes"
)
SEES_TUNING = (
    "a training or a score that costs more than one run may, a score without noise, a number of"
    " runs that is not random, and a cost that is too small for selecting the best of them"
)
BLIND_TO_TUNING = (
    "the time that tuning takes, distributions of the number of runs other than geometric, and"
    " selections that leak more than the example"
)
EPSILON = 1.0  # any value serves: losses are compared with the claim for the same ε
#: Probability of refuting a correct model, per test.
ERROR = 1e-7
#: Draws of noise per release: its variance is then known to about 2 %.
DRAWS = 4000
#: Tunings of which the number of runs is counted: enough to tell a fixed number from a random one.
COUNTED = 100
_SEED = 7
#: Describes earlier trainings, so it may differ.
_LEARNED_ELSEWHERE = ("earlier_ledgers_",)

Do = Callable[[Ratings], Any]


@dataclass(frozen=True)
class Seen:
    """One recorded run.

    Attributes
    ----------
    watch : its releases
    result : all other output, flattened
    """

    watch: Recorder
    result: dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """The effect of the canaries on all output.

    Attributes
    ----------
    findings : sentences that refute the claim
    shares : by release, the largest move as a share of the sensitivity, and its canary
    lost : the largest μ that a canary lost
    canaries : number of canaries compared
    """

    findings: list[str]
    shares: dict[str, tuple[float, str]]
    lost: float
    canaries: int

    def releases(self) -> list[dict[str, Any]]:
        """List every release with its largest move, for plots."""
        return [
            {"name": name, "share": share, "canary": label}
            for name, (share, label) in self.shares.items()
        ]


# ------------------------------------------------------------------ scores


def audit_scores(
    worlds: NeighboringRuns, *, split: Callable[[Ratings], Split] | None = None
) -> Level:
    """Audit private scores of the model of the first training.

    Parameters
    ----------
    worlds : NeighboringRuns
    split : function of ratings, optional
        Holds out ratings. Default: `by_person` with a fixed seed.
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
        findings.append("two evaluations release equal scores: there is no noise")
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
    """Audit the claims of `tune` about one run, the number of runs, and the best of them.

    Raises a `ConfigError` for models that private tuning does not support.
    """
    begin = time.perf_counter()
    tuning = Tuning(worlds.model, {"random_state": [0, 1]})
    setting = {"random_state": 0}
    tuning._check_price(tuning.candidate(setting), worlds.n_items)

    def attempt(ratings: Ratings) -> Any:
        split = by_person(ratings, (1 - tuning.held_out, tuning.held_out), seed=_SEED)
        model, score = tuning._try(setting, split)
        if model is None:
            raise DiscreetError("The training gave up because of too much noise.")
        learned = {
            name: value for name, value in vars(model).items() if name not in _LEARNED_ELSEWHERE
        }
        return {"score": score, "model": learned}

    first = _see(worlds, attempt, None, tries=8)
    compared = _compare(worlds, attempt, first)
    findings = compared.findings + _faults_of_number(worlds, tuning) + _faults_of_price(tuning)
    return _level("tuning", findings, tuning.mu, compared, SEES_TUNING, BLIND_TO_TUNING, begin)


def _faults_of_number(worlds: NeighboringRuns, tuning: Tuning) -> list[str]:
    """Check that the number of runs is geometric: P[K ≤ k] = 1 − (1 − 1/mean)^k."""
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
                f"{found} of {COUNTED} tunings make at most {most} runs, but"
                f" {COUNTED * expected:.0f} are expected"
            ]
    return []


def _faults_of_price(tuning: Tuning) -> list[str]:
    """Check that the stated (ε, δ) holds for the best of several normal scores."""
    ledger = Ledger(tuning.plan(), "secure")
    tuning._record(ledger)
    stated = PrivacyStatement.from_ledger(ledger)
    found = delta_of_best(stated.epsilon, tuning.mu, float(tuning.runs))
    if found <= stated.delta:
        return []
    return [
        f"δ = {stated.delta:g} is stated at ε = {stated.epsilon:.4g}, but the best of several"
        f" normal scores loses δ = {found:.3g}"
    ]


def delta_of_best(epsilon: float, mu: float, mean: float) -> float:
    """Return δ(ε) of releasing the best of K normal numbers with mean 0 or μ, K geometric.

    The best of K has the distribution function f(Φ(s)) and so the density f'(Φ(s)) φ(s), where
    f'(x) = γ/(1 − (1 − γ) x)² and γ = 1/mean.
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
    """Record one run with the canary; repeat it if the noise makes the training give up."""
    ratings = join_canary(worlds.crowd, canary)
    for left in reversed(range(tries)):
        try:
            with quiet(), Recorder(replay, draws, newcomers=True) as watch:
                result = do(ratings)
            return Seen(watch, flatten(result))
        except DiscreetError:
            if not left:
                raise
    raise ConfigError("tries must be at least 1.")


def _compare(worlds: NeighboringRuns, do: Do, first: Seen) -> Compared:
    """Compare the known worst cases, each in a replay of the first run."""
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
            findings.append(f"with a canary ({canary.label}) the run changes: {error}")
            continue
        compared += 1
        lost = max(lost, math.sqrt(math.fsum(one.mu**2 for one in moved)))
        for one in moved:
            if one.share > shares.get(one.name, (-1.0, ""))[0]:
                shares[one.name] = (one.share, canary.label)
        changed = differences(absent.result, there.result)
        if changed:
            findings.append(
                f"with the same releases, a canary changes the output: {list_first(changed, 3)}"
            )
    findings += [
        f"release {name!r} moves by {share:.4g} times its stated sensitivity (canary: {label})"
        for name, (share, label) in shares.items()
        if share > 1 + SLACK
    ]
    return Compared(list(dict.fromkeys(findings)), shares, lost, compared)


def _find_uncharged(watch: Recorder) -> list[str]:
    outside = watch.looks - watch.in_release + watch.stray
    return [f"{outside} sums were computed outside Session.release"] if outside else []


def _faults_of_noise(watch: Recorder) -> list[str]:
    """Check that the noise of every release has the charged size, and lies on its grid."""
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
            findings.append(f"the noise of {record.name!r} has {size:.4g} of the charged size")
        if not is_on_grid(record):
            findings.append(
                f"the values released as {record.name!r} are not on a grid: their low bits reveal"
                " the sum"
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
        findings.insert(0, f"a canary loses μ = {found:.4g}, but {claimed:.4g} is claimed")
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
