"""What a ranking model learned, in a sentence, with what would help."""

from __future__ import annotations

import math

from discreet.models.dpmf.communities import (
    HEAD,
    HEAD_SHARE,
    LEAST_SIGNAL,
    SMALLEST_CORE,
    Communities,
    Prospect,
)
from discreet.models.dpmf.estimates import Signal

POPULARITY_ONLY = "item popularity only: all users get the same list"


def without_pairs(signal: Signal, gate: float) -> str:
    """Summarize a training that released no pairs, and how much more signal they would need."""
    needed = gate * (1 + 1.5 * signal.top)
    why = f"{_ratio(signal)} and {_times(needed)} is needed"
    if signal.faint:
        return (
            "Learned almost nothing, not even item popularity: the counts of popular items are"
            " mostly noise. More users or a larger ε would be needed."
        )
    if signal.signal >= needed:
        return f"Learned {POPULARITY_ONLY} (with three items or fewer there are no pairs to learn)."
    learned = f"Learned {POPULARITY_ONLY} ({why})."
    more = needed / max(signal.signal, 1e-9)
    if not 1 < more < 100:  # no reason to advise users by the hundredfold
        return learned
    # the signal grows in proportion to the number of users, and nearly so with ε
    times = f"{math.ceil(10 * more) / 10:g} times"
    return f"{learned} About {times} as many users, or {times} the ε, would be needed."


def without_taste(signal: Signal) -> str:
    """Summarize a training whose released pairs hold nothing beyond popularity and noise."""
    return (
        f"Learned {POPULARITY_ONLY} ({_ratio(signal)}, but shows no taste beyond popularity). More"
        " users or a larger ε would be needed."
    )


def with_taste(dimensions: int, signal: Signal) -> str:
    """Summarize a training that found factors."""
    if not dimensions:
        return (
            "Learned item popularity and a trace of taste: no single dimension exceeds the noise"
            f" ({_ratio(signal)})."
        )
    plural = "s" if dimensions > 1 else ""
    return f"Learned about {dimensions} dimension{plural} of taste ({_ratio(signal)})."


def with_communities(found: Communities, prospect: Prospect, pairs: bool) -> str:
    """Summarize a training that learned communities, and whether lists are by pairs as well."""
    core = f" and pairs of {len(prospect.core):,} popular ones" if pairs else ""
    return (
        f"Learned {len(found.shares)} communities of taste over all items{core} ({_head(prospect)};"
        f" from {HEAD_SHARE:.0%} on, item pairs would be learned). Their lists find"
        f" {_points(found.gain)} of users' left-out items than popular items do."
    )


def without_communities(found: Communities, prospect: Prospect) -> str:
    """Summarize a training whose communities did not pass their check."""
    return (
        f"Learned {POPULARITY_ONLY} ({_head(prospect)}, and lists of communities find"
        f" {_points(found.gain)} of users' left-out items than popular items do, with a standard"
        f" error of {_short(100 * found.noise)}). More users or a larger ε would be needed."
    )


def explain_untried_communities(prospect: Prospect | None) -> str:
    """Say why communities were not tried, and what would change that; None stands for a prior."""
    none = "Communities were not tried:"
    more = "more users or a larger ε may change that."
    if prospect is None:
        return f"{none} the prior has item pairs, which are used; training without it may try them."
    # with few clear counts the rest are noise, and so is the share of the most popular items
    if prospect.clear < SMALLEST_CORE:
        return (
            f"{none} {prospect.clear:,} items are clearly above the noise of their counts, and"
            f" {SMALLEST_CORE} are needed; {more}"
        )
    if prospect.signal < LEAST_SIGNAL:
        return (
            f"{none} the signal of popular pairs is {prospect.signal:.2f}× the noise, and"
            f" {LEAST_SIGNAL}× is needed; {more}"
        )
    return (
        f"{none} {_head(prospect)}, and communities suit catalogs where that is below"
        f" {HEAD_SHARE:.0%}. To try them anyway, use"
        ' DPMF.configure(route="communities", …) or, on the command line, --set route=communities.'
    )


def _points(gain: float) -> str:
    """Name a difference of two shares, which is no percentage of either."""
    points = _short(100 * abs(gain))
    plural = "" if points == "1" else "s"
    return f"{points} percentage point{plural} {'fewer' if gain < 0 else 'more'}"


def _short(points: float) -> str:
    return f"{round(points, 2 if points < 1 else 1):g}"


def _head(prospect: Prospect) -> str:
    return f"the {HEAD:,} most popular items have {prospect.head:.0%} of all choices"


def explain_public_users(counts: bool, pairs: bool) -> str:
    """Say what of public users is a prior."""
    if not counts and not pairs:
        return "Public users change nothing: released sums do not agree with theirs."
    used = " and ".join(["counts"] * counts + ["pairs"] * pairs)
    return f"The {used} of public users are a prior."


WITHOUT_PROFILE = "Profiles are not used: no weight of a feature stands out of its noise."
WITHOUT_FEATURES = "Communities use no numbers, text or similarities of items."


def with_profile(learned: str, names: str) -> str:
    """Add to a summary that scores also follow profiles in these features."""
    learned = learned.replace(POPULARITY_ONLY, "item popularity")
    return f"{learned} Lists also follow each user's own profile in {names}."


def _ratio(signal: Signal) -> str:
    return f"the item-pair signal is {_times(signal.signal)} the noise"


def _times(signal: float) -> str:
    return f"{signal:.1f}×" if signal < 10 else f"{signal:,.0f}×"
