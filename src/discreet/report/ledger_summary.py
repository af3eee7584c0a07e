"""What a saved model's ledger says, made ready for reading: prices, releases, and how loud the
noise is.

Everything here follows from the ledger, which is public: it looks at nobody's ratings and costs
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.evaluation.metrics import N_QUINTILES, popularity_quintiles
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.release.ledger import Entry, Ledger
from discreet.privacy.release.statement import PrivacyStatement

_MOST_STEPS = 120  # of the staircase; more would be narrower than a pixel
_DELTAS = (1e-2, 1e-12)
SEEN = 0.01  # of the beliefs in the report: with less, δ says that there are no bounds on them
TYPICAL = 100  # items of a person, where there is no bound on them


@dataclass(frozen=True)
class Kind:
    """Equal releases counted together.

    ``hearing`` is about how many people an item needs before what they say in this release is as
    loud as its noise; NaN where the release is not one row per item, or how far people spread over
    items is not known.
    """

    entry: Entry
    count: int
    share: float
    hearing: float

    @property
    def deviation(self) -> float:
        return self.entry.deviation


@dataclass(frozen=True)
class Quintile:
    """Items of similar popularity: how many, how often rated, and how far above the noise that
    is at best.
    """

    n_items: int
    with_vector: int
    raters: float
    signal: float
    length: float


def kinds(model: Any) -> list[Kind]:
    """The ledger's releases, in the order of their first appearance, with their shares of μ²."""
    ledger: Ledger = model.privacy_.ledger
    found: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in ledger.entries:
        key = (
            entry.name,
            entry.mechanism,
            entry.sensitivity,
            entry.norm,
            entry.noise_multiplier,
            entry.shape,
            entry.alpha,
            entry.unsafe,
            entry.rate,
        )
        found.setdefault(key, []).append(entry)
    parts = [(some[0], len(some), _weight(some[0]) * len(some)) for some in found.values()]
    total = sum(weight for _, _, weight in parts)
    return [
        Kind(entry, n, weight / total if total else math.nan, _noise_ratio(entry, model))
        for entry, n, weight in parts
    ]


def _weight(entry: Entry) -> float:
    return 0.0 if entry.unsafe or entry.noise_multiplier <= 0 else float(entry.event.share_mu) ** 2


def _noise_ratio(entry: Entry, model: Any) -> float:
    """√(row length) · deviation over the most that one person adds to one item.

    A person is in `spread` items, each bounded alike, so one item gets Δ/√k (L2) or Δ/k (L1). To
    replace a person is to take one away and add one, at least √2 (L2) or 2 (L1) times that: with
    the least, nothing is overstated.
    """
    k = spread(model)
    if k is None or len(entry.shape) == 0 or entry.shape[0] < 2 or entry.unsafe or entry.rate < 1:
        return math.nan
    if (len(entry.shape) == 2 and entry.shape[0] == entry.shape[1]) or entry.name == "size":
        return math.nan  # about the crowd, no row per item
    l1 = entry.norm == "l1"
    one = entry.sensitivity / (k if l1 else math.sqrt(k))
    if model.privacy_.neighboring == "replace-one":
        one /= 2.0 if l1 else math.sqrt(2.0)
    return math.sqrt(math.prod(entry.shape[1:])) * entry.deviation / one


def has_joint_bound(model: Any) -> bool:
    """Whether a person's items share one bound, so that there is none on their number."""
    algorithm = getattr(model, "algorithm_", None)
    if algorithm is None:
        return False
    items = algorithm.bounds().items
    return items is None or items > len(model.item_ids_)


def spread(model: Any) -> int | None:
    """Through how many items a person contributes: the bound, or `TYPICAL` where all of them are
    bounded together.

    None where people are bounded in another way, which says nothing about single items.
    """
    if not hasattr(model, "algorithm_"):
        return None
    return (
        min(TYPICAL, len(model.item_ids_))
        if has_joint_bound(model)
        else int(model.algorithm_.bounds().items)
    )


def audible(found: Sequence[Kind]) -> list[Kind]:
    """Of releases with a row per item that differ in the step only ("sum 1", "sum 2"), the one
    with least noise.
    """
    best: dict[str, Kind] = {}
    for kind in found:
        stem = kind.entry.name.rstrip("0123456789 ")
        if not math.isnan(kind.hearing) and (stem not in best or kind.hearing < best[stem].hearing):
            best[stem] = kind
    return list(best.values())


def loudest(found: Sequence[Kind]) -> Kind | None:
    """The release that decides whether an item is heard: of those that hold a vector per item, the
    quietest one.

    The right-hand sides say what people think of an item; without them nothing is learned about it.
    """
    vectors = [kind for kind in found if len(kind.entry.shape) > 1 and not math.isnan(kind.hearing)]
    return min(vectors, key=lambda kind: kind.hearing, default=None)


def curve(statement: PrivacyStatement) -> list[tuple[float, float]]:
    """(δ, ε) from likely to unlikely, by the accountant of the statement; empty where there is
    no such curve.
    """
    if not statement.finite or statement.accountant == "pure" or statement.delta == 0:
        return []
    slow = statement.accountant == "pld"  # a fraction of a second for each point
    deltas = np.geomspace(*_DELTAS, 11 if slow else 61).tolist()
    found = [(delta, epsilon_at(statement, delta)) for delta in deltas]
    # pld cannot see the far tail
    found = [(delta, epsilon) for delta, epsilon in found if math.isfinite(epsilon)]
    return found if len(found) > 2 else []


def epsilon_at(statement: PrivacyStatement, delta: float) -> float:
    """What the same releases cost at another δ; the sampler's part of δ is kept back."""
    ledger = statement.ledger
    spare = max(0.0, delta - ledger.noise_delta)
    return float(accounting.epsilon(ledger.events(), spare, statement.accountant))


def spending_steps(statement: PrivacyStatement) -> list[tuple[str, float]]:
    """(name of the release, ε of it and all before it); empty where the price has no such steps."""
    entries = [entry for entry in statement.ledger.entries if not entry.unsafe]
    if not statement.finite or not entries or statement.accountant == "pld":
        return []
    ends = np.unique(
        np.linspace(1, len(entries), min(len(entries), _MOST_STEPS)).round().astype(int)
    )
    delta = max(0.0, statement.delta - statement.ledger.noise_delta)
    events = [entry.event for entry in entries]
    return [
        (
            entries[end - 1].name,
            float(accounting.epsilon(events[:end], delta, statement.accountant)),
        )
        for end in ends.tolist()
    ]


def belief(prior: float, epsilon: float, delta: float = 0.0, seen: float = 1.0) -> float:
    """The most that a belief of probability `prior` can become by what is seen with a probability
    of `seen` or more.

    What is seen with probability β by those who are right, and α by the others, has odds of β/α for
    it, and α is at least (β − δ)·e^(−ε). So the odds grow by e^ε / (1 − δ/β) at most, and without
    bound where β is no more than δ.
    """
    if seen <= delta:
        return 1.0
    return 1.0 / (1.0 + (1.0 - prior) / prior * (1.0 - delta / seen) * math.exp(-epsilon))


def read_released_counts(model: Any) -> NDArray[np.float64] | None:
    """Noisy numbers of ratings per item, where the model kept what it released of them."""
    counts = getattr(model, "counts_", None)
    if counts is None or len(counts) != len(model.item_ids_):
        return None
    return np.maximum(np.nan_to_num(np.asarray(counts, np.float64)), 0.0)


def quintiles(model: Any, counts: NDArray[Any], people: float) -> list[Quintile]:
    """Five groups of items by popularity, a fifth of the ratings each, head first; `people`
    drown one item's noise.
    """
    group = popularity_quintiles(counts, "ratings")
    length = np.linalg.norm(model.item_factors_.astype(np.float64), axis=1)
    found = []
    for g in range(N_QUINTILES):
        mine = group == g
        middle = float(np.median(counts[mine])) if mine.any() else math.nan
        found.append(
            Quintile(
                int(mine.sum()),
                int((length[mine] > 0).sum()),
                middle,
                middle / people,
                float(length[mine & (length > 0)].mean()) if (length[mine] > 0).any() else math.nan,
            )
        )
    return found
