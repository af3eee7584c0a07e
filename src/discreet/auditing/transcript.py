"""Level 1, the transcript: two worlds, one user apart, that have seen the same releases.

Given the same public past, a release differs between the two worlds by what the canary adds to the
sum. Its length over the noise that was really added is the μ that the canary loses in it; all
together they must not exceed what the model claims. Nothing is estimated: sums are exact, so one
canary that loses more is a proof. And whatever is not a release, the model that was learned, the
files it saves, the lines it prints, must be the same in both worlds to the last bit.

Canaries are guessed for every kind of statistic, and then searched for. A claim is refuted when

- a release moves by more than its stated sensitivity, or all of them together cost more than is
  claimed;
- a sum was computed and not charged, or the statement is not what the ledger costs;
- with the same releases, a canary changes what is learned, saved or said, or in which order what is
  released;
- sums change with the blocks that users are in, because something depends on how many of them there
  are.
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
    " or has less noise than the ledger says, people who depend on each other or on their number,"
    " and anything that leaves without noise"
)
BLIND_TO = (
    "what the sampler really draws (level noise), canaries that were neither guessed nor found,"
    " what happens from a number of users on that is above that of the generated ones, and rounding"
    " below 2⁻²⁰ of a contribution"
)
#: How many canaries are looked at closely, with what they leave in the model and its files.
CLOSELY = 9

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class TriedCanary:
    """A canary, how far it moved every release, and how much of the price that is."""

    canary: Canary
    moves: list[ReleaseShift]
    reach: float


def audit_transcript(
    worlds: NeighboringRuns, *, search: int = 60, seed: int = 0, progress: Progress | None = None
) -> Level:
    """Level 1.

    Parameters
    ----------
    worlds : Worlds
    search : int
        How many canaries are tried beyond those that are guessed.
    seed : int
        Of the search.
    """
    begin = time.perf_counter()
    findings = _of_the_first(worlds.first)
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
        note = "no canary could be compared"
    else:
        share = 100 * found / claim.size
        who = f"the worst of {len(tried)} canaries ({worst.canary.label})"
        note = f"{who} loses {share:.2f} % of the claimed {sign}"
    if any(one.event is not None and one.event.rate < 1 for one in (worst.moves if worst else [])):
        note += (
            ", given that it is in every batch; who is in a batch stays secret, which is priced by"
            " the accountant"
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
    """Users who are added or, where users are replaced, pairs."""
    single = list(worst_cases(worlds.n_items, worlds.low, worlds.high))
    if not worlds.is_replace_one:
        return single
    pairs = [pair_canary(one, worlds.n_items) for one in single]
    opposite = opposites(worlds.n_items, worlds.low, worlds.high)
    return [opposite_pair(worlds.n_items, worlds.low, worlds.high), *opposite, *pairs]


def _try(
    worlds: NeighboringRuns, canary: Canary, tried: list[TriedCanary], findings: list[str]
) -> None:
    """Compare two worlds; a canary that is refused for its form tells nothing."""
    try:
        found = worlds.apart(canary)
    except Diverged as error:
        findings.append(f"with a canary ({canary.label}): {error}")
    except DiscreetError as error:
        if not canary.odd:
            findings.append(f"with a canary ({canary.label}) the training fails: {error}")
    except ValueError:
        findings.append(f"with a canary ({canary.label}) another number of releases is made")
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
    """Change the best canaries again and again; every third one starts from what moves some
    release the most.
    """
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


def _of_the_first(run: Run) -> list[str]:
    """What is wrong already with the training that everybody replays."""
    watch, said = run.watch, run.model.privacy_
    findings = []
    outside = watch.looks - watch.through_the_door + watch.stray
    if outside:
        findings.append(
            f"{outside} sums were computed outside Session.release, and nobody charged them"
        )
    charged = sum(len(session.ledger.entries) for session in watch.sessions)
    if len(watch.releases) != charged:
        findings.append(f"{len(watch.releases)} releases were made, and {charged} were charged")
    if len(said.ledger.entries) != charged:
        findings.append(
            f"{charged} releases were charged, and the model's ledger has"
            f" {len(said.ledger.entries)}"
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
                f"release {entry.name!r} was charged once, and computed {len(rows) / length:g}"
                " times"
            )
        priced = deviation_from_price(entry)
        used = record.parts[0].mechanism.standard_deviation
        if used < priced * (1 - SLACK):
            findings.append(
                f"release {entry.name!r} has {used / priced:.3g} of the noise that it is priced by"
            )
    with quiet():
        cost = said.ledger.price().epsilon
    if said.epsilon < cost * (1 - SLACK):
        findings.append(
            f"the statement says ε = {said.epsilon:.6g}, and its ledger costs {cost:.6g}"
        )
    findings += [
        f"the model keeps {kept.what} in {place}"
        for place, kept in run.learned.items()
        if _is_kept(kept)
    ]
    return findings


def _beyond_plan(run: Run) -> list[int]:
    planned = {line.name: line.count for line in run.model.privacy_.ledger.plan.releases}
    made = [record.name for record in run.watch.releases]
    return [made.count(name) - planned.get(name, 0) for name in set(made)]


def _is_kept(value: Any) -> bool:
    return isinstance(value, Kept)


def _leaks(worlds: NeighboringRuns, canary: Canary) -> list[str]:
    """What a canary changes although the same values were released."""
    try:
        there = worlds.closely(canary)
        absent = worlds.first if canary.other is None else worlds.closely(canary.other)
    except Exception:  # `_try` has told of it
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
        findings.append("with the same releases, a canary changes what is printed, logged or shown")
    return findings


def _gates(worlds: NeighboringRuns) -> list[str]:
    """What changes where users are in blocks of 1, 1, 2, 4, …: a gate on their number is not
    passed in all of these.
    """
    if worlds.has_batches:
        return []  # batches are drawn for one block of all users only
    try:
        divided = worlds.train_in_uneven_blocks()
    except Diverged as error:
        return [f"with users in other blocks: {error}"]
    except Exception as error:
        # a model that reads ratings itself, where it should ask sealed users
        return [f"with users in other blocks, training fails ({type(error).__name__})"]
    changed = find_changed_sums(worlds.first.watch.releases, divided.releases)
    if not changed:
        return []
    return [
        f"with users in other blocks, sums change ({list_first(changed, 3)}): what a user adds"
        " depends on others"
    ]


def _excesses(worlds: NeighboringRuns, tried: list[TriedCanary], found: float) -> list[str]:
    """Releases that moved further than stated, the furthest of each name, and the price of all
    together.
    """
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
        findings.insert(0, f"a canary loses {sign} = {found:.4g}, and {claim.size:.4g} is claimed")
    return findings


def _by_release(tried: list[TriedCanary]) -> list[dict[str, Any]]:
    """For every release, how far it was moved at most, as a share of its sensitivity, and by
    whom.
    """
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
