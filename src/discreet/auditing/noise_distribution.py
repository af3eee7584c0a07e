"""Level 2, the noise: hundreds of trainings, and whether what they drew is what was priced.

Level 1 takes the sampler's word for the noise. Here every training draws its own, and a replay of
it in the other world gives the direction in which the canary moves each release. Along it, noise of
the priced law is a standard normal number ζ_t (Laplace and Huber noise is carried over by its
distribution function, entry by entry), whatever was released before. So the log-likelihood ratio of
the two worlds, seen from the one with the canary (+) or without it (−),

    ℓ = Σ_t μ_t ζ_t ± ½ Σ_t μ_t²     is  N(±μ²/2, μ²)   with  μ² = Σ_t μ_t²,

and a scatter of ℓ that is certainly below μ means that the canary loses certainly more than μ: with
noise of s times the size, μ/s. Four tests are one-sided, for too much noise is no danger: the
scatter of ℓ around its own mean, which sees repeated noise too; the variance of all noise of each
release; whether the coins of batches fall as often as priced; and whether two trainings ever draw
the same. A fifth one is about independence: noise that is the same in two releases, or has opposite
signs, can be subtracted (`discreet.auditing.correlation`). Together they refute a right model with
probability `error` at most. All trainings share `random_state`, and numpy's global generator starts
from the same seed in each: neither may have any influence on secure noise.

Two more checks are exact. What is released lies on the grid of its release: float noise leaves low
bits that show what was added to it. And two trainings during which clocks and process ids stand
still (`discreet.auditing.frozen`) draw different noise.
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
    "noise that is smaller than priced, repeated, correlated between releases, off the grid, or"
    " follows from a seed, a clock or a process id, batches that are too large, and a canary that"
    " moves a release too far"
)
BLIND_TO = (
    "a scatter that is off by less than a few per cent, noise that only a few entries lack, and a"
    " generator that is weak in ways that statistics do not show"
)
#: A grid has at most so many units in a standard deviation (`sources.grid_for`): finer than that is
#: no grid.
FINEST = 2.0**37
ERROR = 1e-6
_SEED = 20

Progress = Callable[[int, int, str], None]


@dataclass
class Draws:
    """What was seen of all trainings so far."""

    scores: list[float] = field(default_factory=list)  # Σ μ_t ζ_t / μ, standard normal
    ratios: list[tuple[bool, float]] = field(default_factory=list)  # whether with the canary, and ℓ
    mus: list[float] = field(default_factory=list)
    squares: dict[str, list[float]] = field(default_factory=dict)  # by release: [Σ z², how many]
    coins: dict[float, list[int]] = field(default_factory=dict)  # by rate: [heads, thrown]
    # of each training: the noise of its largest release
    noises: list[bytes] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    correlation: Correlation = field(default_factory=Correlation)
    off_grid: dict[str, None] = field(default_factory=dict)  # names of releases, in order


def audit_noise(
    worlds: NeighboringRuns,
    *,
    fits: int = 200,
    error: float = ERROR,
    canary: Canary | None = None,
    progress: Any = None,
) -> Level:
    """Level 2.

    Parameters
    ----------
    worlds : Worlds
    fits : int
        Trainings with noise of their own; each is replayed once in the other world.
    error : float
        The probability with which a right model may be refuted.
    canary : Canary, optional
        Default: the worst of the guesses.
    """
    begin = time.perf_counter()
    claim = worlds.claim
    canary = canary or worst_guess(worlds)
    draws = Draws()
    findings: list[str] = []
    if canary is None:
        findings.append("no canary could be compared")
    else:
        _draw_all(worlds, canary, fits, draws, findings, progress)
        findings += _check_frozen_clock(worlds)
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
            f"the worlds are at least {sign} = {found:.4g} apart, and {claim.size:.4g} is claimed",
        )
    refuted = bool(findings)
    note = (
        f"over {len(draws.scores)} trainings ℓ scatters by {scatter:.3f} μ (at most {most:.3f}, 1"
        " is what was priced)"
        if enough
        else "nothing could be measured"
    )
    if enough and claim.unit == "epsilon":
        note += f"; {sign} is scaled by that, which is right to first order"
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
    """Of the first few guesses, whoever loses the most."""
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
    """What the canary loses with noise as it is priced, as a share of the claim."""
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
    """Trainings in either world by turns; where there are batches, in the one without, for a
    canary may not be in.
    """
    batched = worlds.has_batches
    # The global generator is what an adversary could seed.
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
                findings.append(f"two worlds do not release the same: {error}")
                return
            except DiscreetError:
                continue  # too much noise to learn anything, this time
            _add(draws, own, replay, there)
            if progress is not None:
                progress(at + 1, fits, "trainings")
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _add(draws: Draws, own: Recorder, replay: Recorder, there: bool) -> None:
    """Count one training and its replay."""
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
    if largest.size >= 8:  # fewer numbers may be the same by chance, for they are on a grid
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
    """What is wrong with trainings during which clocks and process ids stand still."""
    seen: list[list[NDArray[np.float64]]] = []
    for _ in range(6):  # some learn nothing, by bad luck
        try:
            with freeze():
                watch = worlds.train(None)
        except DiscreetError:
            continue
        seen.append([_standardize(one) for one in watch.releases])
        if len(seen) == 2:
            break
    if len(seen) < 2:
        return ["too few trainings could be compared while the clock stands still"]
    same = [np.array_equal(a, b) for a, b in zip(*seen, strict=False) if min(a.size, b.size) >= 8]
    repeated = (
        "the noise follows from the clock or from the process: with both held still it repeats"
    )
    return [repeated] if any(same) else []


def is_on_grid(record: RecordedRelease) -> bool:
    """Say whether all that was released are whole numbers of units of a grid that is not too
    fine to be one.
    """
    for part in record.parts:
        if part.grid is None or part.mechanism.standard_deviation / part.grid > FINEST:
            return False
        units = part.released / part.grid
        if not np.array_equal(units, np.rint(units)):
            return False
    return True


def _standardize(record: RecordedRelease) -> NDArray[np.float64]:
    """The noise of one release, each number as a standard normal one if it has the law that the
    ledger prices.
    """
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
    # through the lower tail on either side, where the distribution function has all its digits
    return np.copysign(-ndtri(np.maximum(law.cdf(-np.abs(noise)), 1e-300)), noise)


def _scatter(scores: Sequence[float], error: float) -> tuple[float, float]:
    """The standard deviation of the scores around their own mean, and an upper bound on that of
    their law.
    """
    free = len(scores) - 1
    deviation = float(np.std(scores, ddof=1))
    return deviation, deviation * math.sqrt(free / stats.chi2.ppf(error, free))


def _refutations(draws: Draws, scatter: float, most: float, error: float) -> list[str]:
    """What cannot be by chance."""
    findings = []
    if most < 1:
        findings.append(
            f"ℓ scatters by at most {most:.3g} of what was priced: the noise is too small, or"
            " repeated"
        )
    each = error / (5 * max(1, len(draws.squares)))
    for name, (total, n) in draws.squares.items():
        if n and stats.chi2.cdf(total, n) < each:
            found = math.sqrt(total / n)
            findings.append(
                f"over {n:,.0f} numbers the noise of {name!r} has {found:.4g} of the size that was"
                " priced"
            )
    for rate, (heads, thrown) in draws.coins.items():
        if stats.binom.sf(heads - 1, thrown, rate) < error / 5:
            findings.append(
                f"coins that should fall with probability {rate:g} fall with {heads / thrown:.4g}"
            )
    if len(set(draws.noises)) < len(draws.noises):
        findings.append("two trainings drew the same noise")
    if len(set(draws.batches)) < len(draws.batches) and _chance_of_twins(draws) < error / 5:
        findings.append("two trainings drew the same batches")
    correlated = draws.correlation.find_correlation(error / 5)
    if correlated is not None:
        findings.append(correlated)
    findings += [
        f"what is released as {name!r} is not on a grid: its low bits show the sum"
        for name in draws.off_grid
    ]
    return findings


def _chance_of_twins(draws: Draws) -> float:
    """The probability that any two of all trainings drew the same batches, at most."""
    n = len(draws.batches)
    each = math.fsum(
        thrown / n * math.log(rate**2 + (1 - rate) ** 2)
        for rate, (_, thrown) in draws.coins.items()
        if rate < 1
    )
    return n * n / 2 * math.exp(each)
