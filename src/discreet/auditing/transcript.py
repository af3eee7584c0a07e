"""Level 1, transcript: compare two trainings that differ in one user and share the same releases.

Given the same public past, a release differs between the two trainings by the canary's contribution
to the sum. The length of this difference, divided by the noise that was added, is the μ that the
canary loses in it. Together the losses must not exceed the claim. Nothing is estimated: sums are
exact, so one canary that loses more is a proof. All other output (the learned model, saved files,
printed lines) must be equal in both trainings, bit for bit.

Canaries are the known worst cases of every kind of statistic, and those that a search finds. A
claim is refuted if

- a release moves by more than its stated sensitivity, or all releases cost more than the claim;
- a sum was computed but not charged, or the statement is not the cost of its ledger;
- with the same releases, a canary changes what is learned, saved or printed, or the order of the
  releases;
- sums change with the blocks that users are in, because a step depends on the number of users.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.auditing.canaries import (
    Canary,
    mutate_canary,
    opposite_pair,
    opposites,
    pair_canary,
    worst_cases,
)
from discreet.auditing.conformance.recorded_fit import Kept, Run, differences
from discreet.auditing.conformance.recorder import Diverged
from discreet.auditing.conformance.release_rules import find_changed_sums
from discreet.auditing.conformance.rules import list_first
from discreet.auditing.neighboring_runs import (
    SLACK,
    NeighboringRuns,
    ReleaseShift,
    deviation_from_price,
    privacy_loss,
    quiet,
    reach,
)
from discreet.auditing.result import SIGNS, Level
from discreet.errors import DiscreetError

SEES = (
    "a bound that does not hold, a forgotten factor in a sensitivity, a release that is not charged"
    " or has less noise than the ledger states, users who depend on each other or on their number,"
    " and any output without noise"
)
BLIND_TO = (
    "what the sampler draws (level noise), canaries that are neither known worst cases nor found,"
    " code that runs only with more users than were generated, and rounding below 2⁻²⁰ of a"
    " contribution"
)
#: Canaries whose model and saved files are compared too, which takes ten times as long.
CLOSELY = 9

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class TriedCanary:
    """A canary and its effect.

    Attributes
    ----------
    canary : the added or replaced user
    moves : how far it moved each release
    reach : its loss as a share of the charged μ
    """

    canary: Canary
    moves: list[ReleaseShift]
    reach: float


def audit_transcript(
    worlds: NeighboringRuns, *, search: int = 60, seed: int = 0, progress: Progress | None = None
) -> Level:
    """Run level 1.

    Parameters
    ----------
    worlds : NeighboringRuns
    search : int
        Number of canaries to search for, in addition to the known worst cases.
    seed : int
        Seed of the search.
    """
    begin = time.perf_counter()
    findings = _check_first_run(worlds.first)
    tried: list[TriedCanary] = []
    guesses = _guesses(worlds)
    for at, canary in enumerate(guesses):
        _try(worlds, canary, tried, findings)
        if progress is not None:
            progress(at + 1, len(guesses) + search + CLOSELY, "canaries")
    if tried:
        _search(worlds, tried, findings, search, seed, progress)
    for canary in [one for one in guesses if not one.odd][:CLOSELY]:
        findings += _leaks(worlds, canary)
    findings += _gates(worlds)
    worst = max(tried, key=lambda one: one.reach, default=None)
    found = (
        math.inf
        if worst is None
        else max(privacy_loss(one.moves, worlds.claim) for one in _best(tried))
    )
    findings += _excesses(worlds, tried, found)
    findings = list(dict.fromkeys(findings))
    claim = worlds.claim
    sign = SIGNS[claim.unit]
    if worst is None:
        note = "no canary could be measured"
    else:
        share = 100 * found / claim.size
        who = f"the worst of {len(tried)} canaries ({worst.canary.label})"
        note = f"{who} loses {share:.2f} % of the claimed {sign}"
    if any(one.event is not None and one.event.rate < 1 for one in (worst.moves if worst else [])):
        note += (
            ", given that it is in every batch; the accountant takes into account that the sampling"
            " of batches is secret"
        )
    return Level(
        "transcript",
        bool(findings),
        claim.unit,
        claim.size,
        found,
        (*findings, note),
        SEES,
        BLIND_TO,
        time.perf_counter() - begin,
        {
            "canaries": len(tried),
            "searched": search,
            "crowd": worlds.crowd.n_users,
            "items": worlds.n_items,
            "reach": 0.0 if worst is None else worst.reach,
            "worst": "" if worst is None else worst.canary.label,
            "releases": _by_release(tried),
        },
    )


def _guesses(worlds: NeighboringRuns) -> list[Canary]:
    """List the known worst cases: users to add or, for replace-one, pairs of users."""
    single = list(worst_cases(worlds.n_items, worlds.low, worlds.high))
    if not worlds.is_replace_one:
        return single
    pairs = [pair_canary(one, worlds.n_items) for one in single]
    opposite = opposites(worlds.n_items, worlds.low, worlds.high)
    return [opposite_pair(worlds.n_items, worlds.low, worlds.high), *opposite, *pairs]


def _try(
    worlds: NeighboringRuns, canary: Canary, tried: list[TriedCanary], findings: list[str]
) -> None:
    """Measure one canary; an odd one that the library refuses is no finding."""
    try:
        found = worlds.apart(canary)
    except Diverged as error:
        findings.append(f"with a canary ({canary.label}): {error}")
    except DiscreetError as error:
        if not canary.odd:
            findings.append(f"with a canary ({canary.label}) the training fails: {error}")
    except ValueError:
        findings.append(f"with a canary ({canary.label}) the number of releases changes")
    else:
        tried.append(TriedCanary(canary, found, reach(found)))


def _search(
    worlds: NeighboringRuns,
    tried: list[TriedCanary],
    findings: list[str],
    search: int,
    seed: int,
    progress: Progress | None,
) -> None:
    """Mutate the best canary; every third time, the one that moves a random release most."""
    rng = np.random.default_rng(seed)
    for at in range(search):
        start = max(
            (one for one in tried if not one.canary.odd),
            key=lambda one: one.reach,
            default=tried[0],
        )
        if at % 3 == 2:
            which = int(rng.integers(len(start.moves)))
            start = max(
                tried, key=lambda one: one.moves[which].share if not one.canary.odd else 0.0
            )
        canary = mutate_canary(start.canary, worlds.n_items, worlds.low, worlds.high, rng)
        _try(worlds, canary, tried, findings)
        if progress is not None:
            progress(at, search, "search")


def _best(tried: list[TriedCanary], most: int = 3) -> list[TriedCanary]:
    return sorted(tried, key=lambda one: one.reach)[-most:]


# ------------------------------------------------------------------ what refutes a claim


def _check_first_run(run: Run) -> list[str]:
    """Check ledger, noise and statement of the training that all others replay."""
    watch, stated = run.watch, run.model.privacy_
    findings = []
    outside = watch.looks - watch.in_release + watch.stray
    if outside:
        findings.append(
            f"{outside} sums were computed outside Session.release, without being charged"
        )
    charged = sum(len(session.ledger.entries) for session in watch.sessions)
    if len(watch.releases) != charged:
        findings.append(f"{len(watch.releases)} releases were made, but {charged} were charged")
    if len(stated.ledger.entries) != charged:
        findings.append(
            f"{charged} releases were charged, but the model's ledger has"
            f" {len(stated.ledger.entries)}"
        )
    unplanned = sum(max(0, n) for n in _beyond_plan(run))
    if unplanned:
        findings.append(f"{unplanned} releases were made beyond the plan")
    for record in watch.releases:
        entry = record.entry
        if entry is None or not record.parts:
            continue
        length = record.statistic.shape[0]
        rows = [row for look in record.looks for row in range(length)[look or slice(None)]]
        if len(rows) != length:
            findings.append(
                f"release {entry.name!r} was charged once, but computed {len(rows) / length:g}"
                " times"
            )
        priced = deviation_from_price(entry)
        used = record.parts[0].mechanism.standard_deviation
        if used < priced * (1 - SLACK):
            findings.append(f"release {entry.name!r} has {used / priced:.3g} of the charged noise")
    with quiet():
        cost = stated.ledger.price().epsilon
    if stated.epsilon < cost * (1 - SLACK):
        findings.append(
            f"the statement claims ε = {stated.epsilon:.6g}, but its ledger costs {cost:.6g}"
        )
    findings += [
        f"the model keeps {kept.what} in {place}"
        for place, kept in run.learned.items()
        if _is_kept(kept)
    ]
    return findings


def _beyond_plan(run: Run) -> list[int]:
    made = [record.name for record in run.watch.releases]
    plan = run.model.privacy_.ledger.plan
    planned = {line.name: line.count for line in plan.list_made(made)}
    return [made.count(name) - planned.get(name, 0) for name in set(made)]


def _is_kept(value: Any) -> bool:
    return isinstance(value, Kept)


def _leaks(worlds: NeighboringRuns, canary: Canary) -> list[str]:
    """List what a canary changes although the same values were released."""
    try:
        there = worlds.closely(canary)
        absent = worlds.first if canary.other is None else worlds.closely(canary.other)
    except Exception:  # `_try` has reported it
        return []
    findings = []
    for what, one, other in (
        ("learned", absent.learned, there.learned),
        ("saved", absent.read_saved, there.read_saved),
    ):
        places = differences(one, other)
        if places:
            findings.append(
                f"with the same releases, a canary changes what is {what}: {list_first(places, 3)}"
            )
    if absent.said != there.said:
        findings.append("with the same releases, a canary changes printed, logged or shown text")
    return findings


def _gates(worlds: NeighboringRuns) -> list[str]:
    """Check that sums are equal with users in blocks of 1, 1, 2, 4, …

    A condition on the number of users does not hold in all of these blocks.
    """
    if worlds.has_batches:
        return []  # Poisson sampling needs all users in one block
    try:
        divided = worlds.train_in_uneven_blocks()
    except Diverged as error:
        return [f"with users in other blocks: {error}"]
    except Exception as error:
        # The model reads ratings directly, instead of summing over sealed users.
        return [f"with users in other blocks, training fails ({type(error).__name__})"]
    changed = find_changed_sums(worlds.first.watch.releases, divided.releases)
    if not changed:
        return []
    return [
        f"with users in other blocks, sums change ({list_first(changed, 3)}): a contribution"
        " depends on other users"
    ]


def _excesses(worlds: NeighboringRuns, tried: list[TriedCanary], found: float) -> list[str]:
    """List releases that moved further than stated, and the total loss if it exceeds the claim."""
    furthest: dict[str, tuple[float, str]] = {}
    for one in tried:
        for step in one.moves:
            if step.charged and step.share > furthest.get(step.name, (1 + SLACK, ""))[0]:
                furthest[step.name] = (step.share, one.canary.label)
    findings = [
        f"release {name!r} moves by {share:.4g} times its stated sensitivity (canary: {label})"
        for name, (share, label) in furthest.items()
    ]
    claim = worlds.claim
    if found > claim.size * (1 + SLACK):
        sign = SIGNS[claim.unit]
        findings.insert(0, f"a canary loses {sign} = {found:.4g}, but {claim.size:.4g} is claimed")
    return findings


def _by_release(tried: list[TriedCanary]) -> list[dict[str, Any]]:
    """List every release with its largest move, as a share of its sensitivity, and the canary."""
    rows: dict[str, dict[str, Any]] = {}
    for one in tried:
        for step in one.moves:
            row = rows.setdefault(
                step.name, {"name": step.name, "share": -1.0, "canary": "", "rate": 1.0}
            )
            if step.share > row["share"]:
                rate = 1.0 if step.event is None else step.event.rate
                row |= {"share": step.share, "canary": one.canary.label, "rate": rate}
    return list(rows.values())
