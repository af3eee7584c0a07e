"""Rules about what leaves the data: only what was planned, moved by no person further than
stated, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from discreet.auditing.conformance.recorded_fit import Kept, Run, differences
from discreet.auditing.conformance.recorder import RecordedRelease
from discreet.auditing.conformance.rules import Skipped, list_first, must, rule
from discreet.errors import DiscreetError, PlanMismatch

if TYPE_CHECKING:
    from discreet.auditing.conformance.kit import Kit

#: Rounding of floating-point sums in research mode, and of exact ones, as a share of the
#: sensitivity.
FLOAT_SLACK = 1e-3
EXACT_SLACK = 1e-12


@rule("fit", "the model learns from small data with either grade of noise")
def _fit(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        must(
            bool(np.isfinite(run.model.item_factors_).all()),
            "the item factors are not all finite numbers",
        )
    return repr(kit.ratings)


@rule(
    "plan",
    "the ledger is the plan: what was planned was released, as often, with that noise, and nothing"
    " else",
)
def _plan(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        plan = run.model.plan(kit.ratings.n_items)
        ledger = run.model.privacy_.ledger
        must(plan == ledger.plan, "the ledger was kept for another plan than plan(n_items) gives")
        planned = {line.name: line.count for line in plan.releases}
        made = dict(Counter(entry.name for entry in ledger.entries))
        must(made == planned, f"planned were {planned}, and the ledger has {made}")
        for entry in ledger.entries:
            wanted = plan.noise_multiplier(entry.name)
            used = entry.noise_multiplier
            must(
                used == wanted,
                f"{entry.name!r} has the noise multiplier {used}, and {wanted} was planned",
            )
    return f"{sum(planned.values())} releases of {len(planned)} kinds"


@rule("before data", "the shape and the sensitivity of every release are known before any data are")
def _before_data(kit: Kit) -> str:
    known = {row["name"]: row for row in kit.base.model.price_list(kit.ratings.n_items)}
    for entry in kit.base.model.privacy_.ledger.entries:
        row = known.get(entry.name, {"shape": (), "sensitivity": None})
        # left open: released numbers decide
        shape = entry.shape if row["shape"] is None else row["shape"]
        said = (shape, row["sensitivity"])
        done = (entry.shape, entry.sensitivity)
        must(
            said == done,
            f"{entry.name!r}: price_list says (shape, sensitivity) {said}, and the ledger {done}",
        )
    return f"{len(known)} kinds of releases"


@rule(
    "one look",
    "every entry of the ledger stands for one look at the data, and no look is without an entry",
)
def _one_look(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        watch, entries = run.watch, run.model.privacy_.ledger.entries
        charged = sum(len(session.ledger.entries) for session in watch.sessions)
        many = f"{charged} entries were written in {len(watch.sessions)} sessions"
        must(len(watch.sessions) == 1, f"{many}, and the model's ledger has {len(entries)}")
        must(charged == len(entries), f"{many}, and the model's ledger has {len(entries)}")
        outside = watch.looks - watch.through_the_door + watch.stray
        must(outside == 0, f"{outside} statistics were computed outside Session.release")
        for record in watch.releases:
            length = record.statistic.shape[0]
            rows = [row for look in record.looks for row in range(length)[look or slice(None)]]
            found = (
                f"release {record.name!r} was charged once, and {len(rows)} of its {length} rows"
                " were computed"
            )
            must(sorted(rows) == list(range(length)), found)
    return f"{len(entries)} entries"


@rule(
    "extra release",
    "a release that was not planned, or is one too many, is refused before the data are opened",
)
def _extra(kit: Kit) -> str:
    must(bool(kit.base.watch.releases), "nothing was released through Session.release")
    session, record = kit.base.watch.sessions[-1], kit.base.watch.releases[-1]
    for name in ("a release that nobody planned", record.name):
        before = len(session.ledger.entries)
        try:
            session.release(name, record.statistic)
        except PlanMismatch:
            must(
                len(session.ledger.entries) == before, f"{name!r} was refused, and is in the ledger"
            )
        else:
            must(
                False,
                f"after the fit, the session released {name!r} again instead of raising"
                " PlanMismatch",
            )
    return "both refused"


@rule("shapes", "what is released, in which shape and how often does not depend on the ratings")
def _shapes(kit: Kit) -> str:
    """What the plan leaves open may follow from released numbers, which neighbors see as well."""
    others = [*kit.neighbors, ("with other people altogether", kit.other_people)]
    for label, run in others:
        if not isinstance(run, Run):
            must(False, f"{label}: {run}")
            continue
        same_values = run is not kit.other_people
        ours = _shapes_of(kit.base, same_values)
        theirs = _shapes_of(run, same_values)
        must(
            ours == theirs,
            f"{label}:"
            f" {list_first([str(t) for t in theirs if t not in ours] or ['fewer releases'])}",
        )
    return f"{len(others)} other data sets"


def _shapes_of(run: Run, all_of_them: bool) -> list[tuple[str, tuple[int, ...] | None]]:
    """Names and shapes in the order of the releases; or, without what the plan leaves open, in
    that of the names.
    """
    found = [(record.name, tuple(record.statistic.shape)) for record in run.watch.releases]
    if all_of_them:
        return list(found)
    left_open = {
        line.name for line in run.model.privacy_.ledger.plan.releases if line.shape is None
    }
    return sorted((name, None if name in left_open else shape) for name, shape in found)


@rule(
    "neighbors",
    "no statistic moves further than its sensitivity when one person is left out or replaced",
)
def _neighbors(kit: Kit) -> str:
    furthest: dict[str, float] = {}
    grades = (
        (kit.base, EXACT_SLACK, kit.neighbors),
        (
            kit.run_seeded,
            FLOAT_SLACK,
            kit.neighbor_runs,
        ),
    )
    for base, slack, others in grades:
        for label, run in others:
            for one, other in zip(base.watch.releases, _releases(run), strict=False):
                share = _measure_shift(one, other, label, kit.relation, slack)
                furthest[one.name] = max(furthest.get(one.name, 0.0), share)
    return "furthest, as a share of the sensitivity: " + ", ".join(
        f"{k} {v:.2f}" for k, v in furthest.items()
    )


def _measure_shift(
    one: RecordedRelease, other: RecordedRelease, label: str, relation: str, slack: float
) -> float:
    """How far the statistic moved, as a share of its sensitivity."""
    entry = one.entry
    if entry is None or one.exact.shape != other.exact.shape:
        return 0.0  # other rules are about that
    step = one.exact - other.exact
    weights = one.parts[0].weights
    weighted = step if weights is None else step * weights
    size = {"l2": float(np.sqrt((weighted**2).sum())), "l1": float(np.abs(weighted).sum())}
    stated = one.statistic.sensitivity(relation, entry.norm)
    must(
        entry.sensitivity == stated,
        f"{one.name!r}: the ledger has {entry.sensitivity}, the statistic {stated}",
    )
    must(
        size[entry.norm] <= stated * (1 + slack),
        f"{one.name!r}, {label}: it moved by {size[entry.norm]:.6g} in the {entry.norm} norm, and"
        f" its sensitivity is {stated:.6g}; a contribution is not cut, or what one person adds"
        " depends on others",
    )
    if entry.mechanism == "huber":
        must(
            size["l2"] <= stated * entry.l2_ratio * (1 + slack),
            f"{one.name!r}, {label}: l2_ratio does not hold",
        )
    most = one.statistic.sensitivity("add-remove", "inf") * (2 if relation == "replace-one" else 1)
    found = float(np.abs(step).max(initial=0.0))
    must(
        found <= most * (1 + slack),
        f"{one.name!r}, {label}: an entry moved by {found:.6g}, at most {most:.6g}",
    )
    return size[entry.norm] / stated


@rule(
    "post-processing",
    "once the same values are released, what the model learned is the same without any one person",
)
def _post_processing(kit: Kit) -> str:
    for place, content in kit.base.learned.items():
        if isinstance(content, Kept):
            must(False, f"the fitted model holds {content.what} in {place}")
    for label, run in kit.neighbors:
        if isinstance(run, Run):
            found = differences(kit.base.learned, run.learned)
            must(
                not found,
                f"{label}: {list_first(found)} changed, although the same values had been released",
            )
    return f"{len(kit.base.learned)} learned values, {len(kit.neighbors)} neighboring data sets"


@rule(
    "silence",
    "what is printed, logged, warned of or shown as progress does not depend on any one person",
)
def _silence(kit: Kit) -> str:
    for label, run in kit.neighbors:
        if isinstance(run, Run):
            other = [line for line in kit.base.said if line not in run.said] or [
                "another number of lines"
            ]
            must(run.said == kit.base.said, f"{label}, the model did not say: {other[0][:200]!r}")
    return f"{len(kit.base.said)} lines"


@rule("repeated rows", "a person whose rows come twice is refused, or counts once")
def _check_repeated_rows(kit: Kit) -> str:
    try:
        run = kit.run_with_repeats
    except DiscreetError:
        return "refused"
    for one, other in zip(kit.base.watch.releases, run.watch.releases, strict=False):
        _measure_shift(one, other, "with a person's rows given twice", kit.relation, EXACT_SLACK)
    return "counted once"


@rule("exact sums", "secure sums have the same bits in any order of the users")
def _exact(kit: Kit) -> str:
    for one, other in zip(kit.base.watch.releases, kit.run_reordered.watch.releases, strict=True):
        must(
            np.array_equal(one.exact, other.exact),
            f"{one.name!r} changed with the order of the users",
        )
    return "users in another order"


@rule("apart", "what a user adds to a sum does not depend on how many users are computed together")
def _apart(kit: Kit) -> str:
    """A gate on the number of users inside a step is passed by the one block of all users, and
    not by a block of 1.
    """
    if any(line.rate < 1 for line in kit.base.model.privacy_.ledger.plan.releases):
        raise Skipped("batches of users are drawn for one block of all users only")
    changed = find_changed_sums(kit.base.watch.releases, kit.in_uneven_blocks.watch.releases)
    must(
        not changed,
        f"{list_first(changed)} changed with the blocks that users are in: a step looks at other"
        " users",
    )
    return "users in blocks of 1, 1, 2, 4, …"


def find_changed_sums(ours: list[RecordedRelease], theirs: list[RecordedRelease]) -> list[str]:
    """Name the releases whose exact sums are not the same in two trainings."""
    pairs = zip(ours, theirs, strict=False)
    found = [repr(one.name) for one, other in pairs if not np.array_equal(one.exact, other.exact)]
    return (
        list(dict.fromkeys(found))
        if len(ours) == len(theirs)
        else ["the number of releases", *found]
    )


def _releases(run: Run | Exception) -> list[RecordedRelease]:
    return run.watch.releases if isinstance(run, Run) else []
