"""Level 2, noise: compare the noise of hundreds of trainings with the noise that was charged.

Level 1 trusts the sampler. Here every training draws its own noise, and a replay on the neighboring
data gives the direction in which the canary moves each release. Along this direction, noise of the
charged distribution is a standard normal number ζ_t, whatever was released before. (Laplace and
Huber noise is transformed entry by entry through its distribution function.) The log-likelihood
ratio of the two trainings, given data with the canary (+) or without it (−), is then

    ℓ = Σ_t μ_t ζ_t ± ½ Σ_t μ_t²     with law  N(±μ²/2, μ²),   μ² = Σ_t μ_t².

If the standard deviation of ℓ is below μ, the canary loses more than μ: with noise of s times the
size it loses μ/s. Four tests are one-sided, because too much noise is no risk: the standard
deviation of ℓ around its own mean (which also detects repeated noise), the variance of the noise of
each release, the rate of Poisson sampling, and whether two trainings ever draw the same noise or
batches. The fifth tests independence: noise that two releases share, with either sign, can be
subtracted (`discreet.auditing.correlation`). Together they refute a correct model with probability
at most `error`. All trainings share `random_state`, and numpy's global generator starts from the
same seed in each: neither may influence secure noise.

Two more checks are exact. Released values lie on the grid of their release, because the low bits of
float noise reveal the sum. And two trainings with frozen clocks and process ids
(`discreet.auditing.frozen`) draw different noise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from discreet.auditing.canaries import Canary, pair_canary, worst_cases
from discreet.auditing.conformance.recorder import Diverged, RecordedRelease, Recorder
from discreet.auditing.correlation import Correlation
from discreet.auditing.frozen import freeze
from discreet.auditing.neighboring_runs import (
    SLACK,
    NeighboringRuns,
    deviation_from_price,
    difference,
    moves,
    privacy_loss,
    reach,
)
from discreet.auditing.result import SIGNS, Level
from discreet.errors import DiscreetError
from discreet.privacy.accounting import mechanisms

SEES = (
    "noise that is smaller than charged, repeated, correlated between releases, off the grid, or"
    " derived from a seed, a clock or a process id, batches that are too large, and a canary that"
    " moves a release too far"
)
BLIND_TO = (
    "a standard deviation that is off by less than a few percent, noise that is missing in a few"
    " entries only, and a weak generator that passes statistical tests"
)
#: Most grid units in a standard deviation (`sources.grid_for`): a finer grid hides nothing.
FINEST = 2.0**37
#: Probability of refuting a correct model, small enough for audits in continuous integration.
ERROR = 1e-6
_SEED = 20

Progress = Callable[[int, int, str], None]


@dataclass
class Draws:
    """Observations of all trainings so far.

    Attributes
    ----------
    scores : Σ μ_t ζ_t / μ of each training, standard normal
    ratios : whether the training had the canary, and ℓ
    mus : μ of each training
    squares : by release, Σ z² and the number of terms
    coins : Poisson samples by sampling rate, the numbers of users sampled and of users in all
    noises : the noise of the largest release of each training
    batches : the members of all batches of each training
    correlation : products of noise that should be independent
    off_grid : names of releases that are not on a grid, in order
    """

    scores: list[float] = field(default_factory=list)
    ratios: list[tuple[bool, float]] = field(default_factory=list)
    mus: list[float] = field(default_factory=list)
    squares: dict[str, list[float]] = field(default_factory=dict)
    coins: dict[float, list[int]] = field(default_factory=dict)
    noises: list[bytes] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    correlation: Correlation = field(default_factory=Correlation)
    off_grid: dict[str, None] = field(default_factory=dict)


def audit_noise(
    worlds: NeighboringRuns,
    *,
    fits: int = 200,
    error: float = ERROR,
    canary: Canary | None = None,
    progress: Any = None,
) -> Level:
    """Run level 2.

    Parameters
    ----------
    worlds : NeighboringRuns
    fits : int
        Number of trainings; each is replayed once on the neighboring data.
    error : float
        Largest probability of refuting a correct model.
    canary : Canary, optional
        Default: the one of the known worst cases that loses most.
    """
    begin = time.perf_counter()
    claim = worlds.claim
    canary = canary or worst_guess(worlds)
    draws = Draws()
    findings: list[str] = []
    if canary is None:
        findings.append("no canary could be measured")
    else:
        _draw_all(worlds, canary, fits, draws, findings, progress)
        findings += _check_frozen_clock(worlds)
    # With fewer, the bound on the standard deviation is too wide to refute anything.
    enough = len(draws.scores) >= 20
    if not enough and not findings:
        findings.append("too few trainings could be compared")
    scatter, most = _scatter(draws.scores, error / 5) if enough else (math.nan, math.nan)
    if enough:
        findings += _refutations(draws, scatter, most, error)
    mu = float(np.mean(draws.mus)) if draws.mus else math.nan
    known = enough and scatter > 0
    share = worlds_share(worlds, canary) if canary is not None else math.nan
    found = claim.size * share / most if known else math.inf
    sign = SIGNS[claim.unit]
    if known and found > claim.size * (1 + SLACK):
        findings.insert(
            0,
            f"the canary loses at least {sign} = {found:.4g}, but {claim.size:.4g} is claimed",
        )
    refuted = bool(findings)
    note = (
        f"over {len(draws.scores)} trainings the standard deviation of ℓ is {scatter:.3f} μ"
        f" (at most {most:.3f}; 1 was charged)"
        if enough
        else "nothing could be measured"
    )
    if enough and claim.unit == "epsilon":
        note += f"; {sign} is scaled by it, which is correct to first order"
    return Level(
        "noise",
        refuted,
        claim.unit,
        claim.size,
        found,
        (*findings, note),
        SEES,
        BLIND_TO,
        time.perf_counter() - begin,
        {
            "fits": len(draws.scores),
            "canary": "" if canary is None else canary.label,
            "mu": mu,
            "scatter": scatter,
            "scatter_at_most": most,
            "estimate": claim.size * share / scatter if known else math.inf,
            "error": error,
            "with": [ratio for there, ratio in draws.ratios if there],
            "without": [ratio for there, ratio in draws.ratios if not there],
            "variance": {name: total / max(n, 1) for name, (total, n) in draws.squares.items()},
            "numbers": {name: int(n) for name, (_, n) in draws.squares.items()},
            "coins": {f"{rate:g}": heads / max(n, 1) for rate, (heads, n) in draws.coins.items()},
        },
    )


def worst_guess(worlds: NeighboringRuns) -> Canary | None:
    """Return the canary that loses most among the first known worst cases."""
    best: tuple[float, Canary | None] = (-1.0, None)
    for one in list(worst_cases(worlds.n_items, worlds.low, worlds.high))[:6]:
        canary = pair_canary(one, worlds.n_items) if worlds.is_replace_one else one
        try:
            share = reach(worlds.apart(canary))
        except (DiscreetError, Diverged, ValueError):
            continue
        best = max(best, (share, canary), key=lambda pair: pair[0])
    return best[1]


def worlds_share(worlds: NeighboringRuns, canary: Canary) -> float:
    """Return the canary's loss with the charged noise, as a share of the claim."""
    try:
        return privacy_loss(worlds.apart(canary), worlds.claim) / worlds.claim.size
    except (DiscreetError, Diverged, ValueError):
        return math.nan


def _draw_all(
    worlds: NeighboringRuns,
    canary: Canary,
    fits: int,
    draws: Draws,
    findings: list[str],
    progress: Progress | None,
) -> None:
    """Train alternately with and without the canary, and replay each on the other data.

    With batches, always train without it: a canary that is sampled in no batch moves nothing.
    """
    batched = worlds.has_batches
    # An adversary could seed the global generator.
    before = np.random.get_state()  # noqa: NPY002
    try:
        for at in range(fits):
            np.random.seed(_SEED)  # noqa: NPY002
            there = at % 2 == 1 and not batched
            here, elsewhere = (canary, canary.other) if there else (canary.other, canary)
            try:
                own = worlds.train(here)
                replay = worlds.train(elsewhere, own)
            except (Diverged, ValueError) as error:
                findings.append(f"the releases of neighboring data differ in kind: {error}")
                return
            except DiscreetError:
                continue  # this training gave up because of too much noise
            _add(draws, own, replay, there)
            if progress is not None:
                progress(at + 1, fits, "trainings")
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _add(draws: Draws, own: Recorder, replay: Recorder, there: bool) -> None:
    """Add one training and its replay."""
    weights = []
    zetas = []
    noises = [_standardize(one) for one in own.releases]
    draws.correlation.add([(one.name, z) for one, z in zip(own.releases, noises, strict=True)])
    draws.off_grid |= {one.name: None for one in own.releases if not is_on_grid(one)}
    for one, other, z in zip(own.releases, replay.releases, noises, strict=True):
        total = draws.squares.setdefault(one.name, [0.0, 0.0])
        total[0] += float((z**2).sum())
        total[1] += z.size
        step = difference(one, other) * (-1.0 if there else 1.0)
        length = float(np.sqrt((step**2).sum()))
        if length > 0 and math.isfinite(length):
            zetas.append(float((z * step).sum()) / length)
            weights.append(length)
    mus = [step.mu for step in moves(own, replay) if step.mu > 0 and math.isfinite(step.mu)]
    if mus and len(mus) == len(zetas):
        mu = math.sqrt(math.fsum(one**2 for one in mus))
        score = math.fsum(a * b for a, b in zip(mus, zetas, strict=True)) / mu
        draws.scores.append(score)
        draws.mus.append(mu)
        draws.ratios.append((there, mu * score + (mu**2 / 2 if there else -(mu**2) / 2)))
    largest = max(noises, key=lambda z: z.size)
    if largest.size >= 8:  # fewer numbers on a grid may be equal by chance
        draws.noises.append(largest.tobytes())
    planned = [
        release.entry.rate
        for release in own.releases
        if release.entry is not None and release.entry.rate < 1
    ]
    for rate, batch in zip(planned, own.batches, strict=False):
        tally = draws.coins.setdefault(rate, [0, 0])
        tally[0] += sum(batch.values())
        tally[1] += len(batch)
    if planned and own.batches:
        draws.batches.append(
            b"".join(np.packbits(list(batch.values())).tobytes() for batch in own.batches)
        )


def _check_frozen_clock(worlds: NeighboringRuns) -> list[str]:
    """Check that two trainings with frozen clocks and process ids draw different noise."""
    seen: list[list[NDArray[np.float64]]] = []
    for _ in range(6):  # some trainings give up because of their noise
        try:
            with freeze():
                watch = worlds.train(None)
        except DiscreetError:
            continue
        seen.append([_standardize(one) for one in watch.releases])
        if len(seen) == 2:
            break
    if len(seen) < 2:
        return ["too few trainings could be compared with a frozen clock"]
    same = [np.array_equal(a, b) for a, b in zip(*seen, strict=False) if min(a.size, b.size) >= 8]
    repeated = "the noise depends on the clock or the process id: with both frozen it repeats"
    return [repeated] if any(same) else []


def is_on_grid(record: RecordedRelease) -> bool:
    """Return whether all released values are multiples of a grid unit that is not too fine."""
    for part in record.parts:
        if part.grid is None or part.mechanism.standard_deviation / part.grid > FINEST:
            return False
        units = part.released / part.grid
        if not np.array_equal(units, np.rint(units)):
            return False
    return True


def _standardize(record: RecordedRelease) -> NDArray[np.float64]:
    """Return the noise of one release, standard normal if it has the charged distribution."""
    entry = record.entry
    noise = np.concatenate([np.atleast_1d(part.draws[0]) for part in record.parts])
    weights = record.parts[0].weights
    noise = noise if weights is None else noise * weights
    if entry is None:
        return noise / record.parts[0].mechanism.standard_deviation
    deviation = deviation_from_price(entry)
    if entry.mechanism == "gaussian":
        return noise / deviation
    law = mechanisms.make_mechanism(entry.mechanism, deviation, entry.alpha)
    # The lower tail for either sign: only there does the distribution function keep its digits.
    return np.copysign(-ndtri(np.maximum(law.cdf(-np.abs(noise)), 1e-300)), noise)


def _scatter(scores: Sequence[float], error: float) -> tuple[float, float]:
    """Return the sample standard deviation, and an upper confidence bound on the true one."""
    free = len(scores) - 1
    deviation = float(np.std(scores, ddof=1))
    return deviation, deviation * math.sqrt(free / stats.chi2.ppf(error, free))


def _refutations(draws: Draws, scatter: float, most: float, error: float) -> list[str]:
    """List the findings that chance cannot explain."""
    findings = []
    if most < 1:
        findings.append(
            f"the standard deviation of ℓ is at most {most:.3g} of the charged one: the noise is"
            " too small, or repeated"
        )
    each = error / (5 * max(1, len(draws.squares)))
    for name, (total, n) in draws.squares.items():
        if n and stats.chi2.cdf(total, n) < each:
            found = math.sqrt(total / n)
            findings.append(
                f"over {n:,.0f} numbers the noise of {name!r} has {found:.4g} of the charged size"
            )
    for rate, (heads, thrown) in draws.coins.items():
        if stats.binom.sf(heads - 1, thrown, rate) < error / 5:
            findings.append(
                f"Poisson sampling at rate {rate:g} includes a share of {heads / thrown:.4g}"
            )
    if len(set(draws.noises)) < len(draws.noises):
        findings.append("two trainings drew the same noise")
    if (
        len(set(draws.batches)) < len(draws.batches)
        and _equal_batches_probability(draws) < error / 5
    ):
        findings.append("two trainings drew the same batches")
    correlated = draws.correlation.find_correlation(error / 5)
    if correlated is not None:
        findings.append(correlated)
    findings += [
        f"the values released as {name!r} are not on a grid: their low bits reveal the sum"
        for name in draws.off_grid
    ]
    return findings


def _equal_batches_probability(draws: Draws) -> float:
    """Bound the probability that any two trainings drew the same batches."""
    n = len(draws.batches)
    each = math.fsum(
        thrown / n * math.log(rate**2 + (1 - rate) ** 2)
        for rate, (_, thrown) in draws.coins.items()
        if rate < 1
    )
    return n * n / 2 * math.exp(each)
