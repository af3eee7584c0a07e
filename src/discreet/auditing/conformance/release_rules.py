"""Rules about releases: all are planned, their sensitivity holds, and nothing else leaves."""

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

#: Rounding of float sums (research mode) and of exact sums, as a share of the sensitivity.
FLOAT_SLACK = 1e-3
EXACT_SLACK = 1e-12


@rule("fit", "the model learns from small data with either grade of noise")
def _fit(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        must(
            bool(np.isfinite(run.model.item_factors_).all()),
            "the item factors are not all finite",
        )
    return repr(kit.ratings)


@rule(
    "plan",
    "the ledger equals the plan: the same releases, as often, with the same noise, and no others",
)
def _plan(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        plan = run.model.plan(kit.ratings.n_items)
        ledger = run.model.privacy_.ledger
        must(plan == ledger.plan, "the plan in the ledger is not plan(n_items)")
        made = dict(Counter(entry.name for entry in ledger.entries))
        planned = {line.name: line.count for line in plan.list_made(made)}
        must(made == planned, f"{planned} were planned, but the ledger has {made}")
        for entry in ledger.entries:
            wanted = plan.noise_multiplier(entry.name)
            used = entry.noise_multiplier
            must(
                used == wanted,
                f"{entry.name!r} has the noise multiplier {used}, but {wanted} was planned",
            )
    return f"{sum(planned.values())} releases of {len(planned)} kinds"


@rule("before data", "the shape and sensitivity of every release are known before reading any data")
def _before_data(kit: Kit) -> str:
    known = {row["name"]: row for row in kit.base.model.price_list(kit.ratings.n_items)}
    for entry in kit.base.model.privacy_.ledger.entries:
        row = known.get(entry.name, {"shape": (), "sensitivity": None})
        # None: earlier released values determine the shape.
        shape = entry.shape if row["shape"] is None else row["shape"]
        planned = (shape, row["sensitivity"])
        made = (entry.shape, entry.sensitivity)
        must(
            planned == made,
            f"{entry.name!r}: (shape, sensitivity) is {planned} in price_list, but {made} in the"
            " ledger",
        )
    return f"{len(known)} kinds of releases"


@rule(
    "one access",
    "every ledger entry is one access to the data, and every access has an entry",
)
def _one_access(kit: Kit) -> str:
    for run in (kit.base, kit.run_seeded):
        watch, entries = run.watch, run.model.privacy_.ledger.entries
        charged = sum(len(session.ledger.entries) for session in watch.sessions)
        many = f"{charged} entries were written in {len(watch.sessions)} sessions"
        must(len(watch.sessions) == 1, f"{many}, and the model's ledger has {len(entries)}")
        must(charged == len(entries), f"{many}, and the model's ledger has {len(entries)}")
        outside = watch.looks - watch.in_release + watch.stray
        must(outside == 0, f"{outside} statistics were computed outside Session.release")
        for record in watch.releases:
            length = record.statistic.shape[0]
            rows = [row for look in record.looks for row in range(length)[look or slice(None)]]
            found = (
                f"release {record.name!r} was charged once, but {len(rows)} of its {length} rows"
                " were computed"
            )
            must(sorted(rows) == list(range(length)), found)
    return f"{len(entries)} entries"


@rule(
    "extra release",
    "a release that was not planned, or is one too many, is refused before data are read",
)
def _extra(kit: Kit) -> str:
    must(bool(kit.base.watch.releases), "nothing was released through Session.release")
    session, record = kit.base.watch.sessions[-1], kit.base.watch.releases[-1]
    for name in ("an unplanned release", record.name):
        before = len(session.ledger.entries)
        try:
            session.release(name, record.statistic)
        except PlanMismatch:
            must(
                len(session.ledger.entries) == before, f"{name!r} was refused, but is in the ledger"
            )
        else:
            must(
                False,
                f"after the fit, the session released {name!r} again instead of raising"
                " PlanMismatch",
            )
    return "both refused"


@rule("shapes", "names, shapes and number of the releases do not depend on the ratings")
def _shapes(kit: Kit) -> str:
    """Compare shapes; those left open by the plan may depend on releases, which replays share."""
    others = [*kit.neighbors, ("with entirely different users", kit.other_people)]
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
    """List names and shapes in order; or sorted, without the shapes that the plan leaves open."""
    found = [(record.name, tuple(record.statistic.shape)) for record in run.watch.releases]
    if all_of_them:
        return list(found)
    plan = run.model.privacy_.ledger.plan.releases
    left_open = {line.name for line in plan if line.shape is None}
    # a release that earlier ones may divide counts as the whole, with whichever parts
    whole = {part: line.name for line in plan for part, _ in line.parts}
    parts = {(whole[name], None) for name, _ in found if name in whole}
    others = [(name, shape) for name, shape in found if name not in whole]
    return sorted(
        [*parts, *((name, None if name in left_open else shape) for name, shape in others)]
    )


@rule(
    "neighbors",
    "no statistic moves further than its sensitivity when one user is left out or replaced",
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
    return "largest moves, as shares of the sensitivity: " + ", ".join(
        f"{k} {v:.2f}" for k, v in furthest.items()
    )


def _measure_shift(
    one: RecordedRelease, other: RecordedRelease, label: str, relation: str, slack: float
) -> float:
    """Return how far the statistic moved, as a share of its sensitivity."""
    entry = one.entry
    if entry is None or one.exact.shape != other.exact.shape:
        return 0.0  # other rules report it
    step = one.exact - other.exact
    weights = one.parts[0].weights
    weighted = step if weights is None else step * weights
    size = {"l2": float(np.sqrt((weighted**2).sum())), "l1": float(np.abs(weighted).sum())}
    stated = one.statistic.sensitivity(relation, entry.norm)
    must(
        entry.sensitivity == stated,
        f"{one.name!r}: the sensitivity is {entry.sensitivity} in the ledger, but {stated} in the"
        " statistic",
    )
    must(
        size[entry.norm] <= stated * (1 + slack),
        f"{one.name!r}, {label}: it moved by {size[entry.norm]:.6g} in the {entry.norm} norm, but"
        f" its sensitivity is {stated:.6g}. A contribution is not clipped, or depends on others",
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
        f"{one.name!r}, {label}: an entry moved by {found:.6g}, but {most:.6g} is the bound",
    )
    return size[entry.norm] / stated


@rule(
    "post-processing",
    "given the same released values, the learned model is the same without any one user",
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
                f"{label}: {list_first(found)} changed, although the same values were released",
            )
    return f"{len(kit.base.learned)} learned values, {len(kit.neighbors)} neighboring data sets"


@rule(
    "silence",
    "printed text, log lines, warnings and progress do not depend on any one user",
)
def _silence(kit: Kit) -> str:
    for label, run in kit.neighbors:
        if isinstance(run, Run):
            other = [line for line in kit.base.said if line not in run.said] or [
                "another number of lines"
            ]
            must(run.said == kit.base.said, f"{label}, this output changed: {other[0][:200]!r}")
    return f"{len(kit.base.said)} lines"


@rule("repeated rows", "a user whose rows are repeated is refused, or counts once")
def _check_repeated_rows(kit: Kit) -> str:
    try:
        run = kit.run_with_repeats
    except DiscreetError:
        return "refused"
    for one, other in zip(kit.base.watch.releases, run.watch.releases, strict=False):
        _measure_shift(one, other, "with a user's rows repeated", kit.relation, EXACT_SLACK)
    return "counted once"


@rule("exact sums", "secure sums are bitwise equal in any order of the users")
def _exact(kit: Kit) -> str:
    for one, other in zip(kit.base.watch.releases, kit.run_reordered.watch.releases, strict=True):
        must(
            np.array_equal(one.exact, other.exact),
            f"{one.name!r} changed with the order of the users",
        )
    return "users in another order"


@rule("apart", "a user's contribution does not depend on the number of users in the same block")
def _apart(kit: Kit) -> str:
    """Compare with blocks of 1, 1, 2, …, in which a condition on the number of users fails."""
    if any(line.rate < 1 for line in kit.base.model.privacy_.ledger.plan.releases):
        raise Skipped("Poisson sampling needs all users in one block")
    changed = find_changed_sums(kit.base.watch.releases, kit.in_uneven_blocks.watch.releases)
    must(
        not changed,
        f"{list_first(changed)} changed with the blocks of users: a step depends on other users",
    )
    return "users in blocks of 1, 1, 2, 4, …"


def find_changed_sums(ours: list[RecordedRelease], theirs: list[RecordedRelease]) -> list[str]:
    """Name the releases whose exact sums differ between two trainings."""
    pairs = zip(ours, theirs, strict=False)
    found = [repr(one.name) for one, other in pairs if not np.array_equal(one.exact, other.exact)]
    return (
        list(dict.fromkeys(found))
        if len(ours) == len(theirs)
        else ["the number of releases", *found]
    )


def _releases(run: Run | Exception) -> list[RecordedRelease]:
    return run.watch.releases if isinstance(run, Run) else []
