"""Summary of a saved model's ledger: costs, releases and signal-to-noise ratios.

Everything here follows from the ledger, which is public: no ratings are accessed.
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

_MOST_STEPS = 120  # steps of the cost chart; more would be narrower than a pixel
_DELTAS = (1e-2, 1e-12)
SEEN = 0.01  # probability of an observation for `belief`; at δ or below there is no bound
TYPICAL = 100  # items per user that the report assumes if the model does not bound them


@dataclass(frozen=True)
class Kind:
    """Equal releases counted together.

    Attributes
    ----------
    entry : the first of the releases
    count : their number
    share : their share of μ²
    hearing : approximate number of users at which the signal of one item equals the noise; NaN if
        the release does not have one row per item, or items per user are unknown
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
    """Items of similar popularity.

    Attributes
    ----------
    n_items : number of items
    with_vector : number of items with nonzero factors
    raters : median number of users per item
    signal : signal-to-noise ratio of the median item
    length : mean norm of nonzero factors
    """

    n_items: int
    with_vector: int
    raters: float
    signal: float
    length: float


def kinds(model: Any) -> list[Kind]:
    """List the ledger's releases in order of first appearance, with their shares of μ²."""
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
    """Compute √(row length) · deviation, divided by the most that one user adds to one item.

    A user contributes to `spread` items, each bounded alike, so one item gets Δ/√k (L2) or Δ/k
    (L1). Replacing a user removes one and adds one, which is at least √2 (L2) or 2 (L1) times that.
    """
    k = spread(model)
    if k is None or len(entry.shape) == 0 or entry.shape[0] < 2 or entry.unsafe or entry.rate < 1:
        return math.nan
    if (len(entry.shape) == 2 and entry.shape[0] == entry.shape[1]) or entry.name == "size":
        return math.nan  # a statistic of all users, without a row per item
    l1 = entry.norm == "l1"
    one = entry.sensitivity / (k if l1 else math.sqrt(k))
    if model.privacy_.neighboring == "replace-one":
        one /= 2.0 if l1 else math.sqrt(2.0)
    return math.sqrt(math.prod(entry.shape[1:])) * entry.deviation / one


def has_joint_bound(model: Any) -> bool:
    """Return whether a user's items share one bound, so that their number is not bounded."""
    algorithm = getattr(model, "algorithm_", None)
    if algorithm is None:
        return False
    items = algorithm.bounds().items
    return items is None or items > len(model.item_ids_)


def spread(model: Any) -> int | None:
    """Return the bound on items per user, or `TYPICAL` if all items are bounded together.

    None if users are bounded in another way, which does not determine single items.
    """
    if not hasattr(model, "algorithm_"):
        return None
    return (
        min(TYPICAL, len(model.item_ids_))
        if has_joint_bound(model)
        else int(model.algorithm_.bounds().items)
    )


def audible(found: Sequence[Kind]) -> list[Kind]:
    """Keep, of per-item releases that differ only in the step ("sum 1"), the least noisy one."""
    best: dict[str, Kind] = {}
    for kind in found:
        stem = kind.entry.name.rstrip("0123456789 ")
        if not math.isnan(kind.hearing) and (stem not in best or kind.hearing < best[stem].hearing):
            best[stem] = kind
    return list(best.values())


def loudest(found: Sequence[Kind]) -> Kind | None:
    """Return the least noisy release with a vector per item.

    It holds the right-hand sides: an item whose signal is below its noise there is not learned.
    """
    vectors = [kind for kind in found if len(kind.entry.shape) > 1 and not math.isnan(kind.hearing)]
    return min(vectors, key=lambda kind: kind.hearing, default=None)


def curve(statement: PrivacyStatement) -> list[tuple[float, float]]:
    """Compute (δ, ε) from large to small δ by the statement's accountant; may be empty."""
    if not statement.finite or statement.accountant == "pure" or statement.delta == 0:
        return []
    slow = statement.accountant == "pld"  # a fraction of a second for each point
    deltas = np.geomspace(*_DELTAS, 11 if slow else 61).tolist()
    found = [(delta, epsilon_at(statement, delta)) for delta in deltas]
    # the discretized distribution of pld is truncated, so that ε is infinite for tiny δ
    found = [(delta, epsilon) for delta, epsilon in found if math.isfinite(epsilon)]
    return found if len(found) > 2 else []


def epsilon_at(statement: PrivacyStatement, delta: float) -> float:
    """Compute ε of the same releases at another δ, minus the sampler's part of δ."""
    ledger = statement.ledger
    spare = max(0.0, delta - ledger.noise_delta)
    return float(accounting.epsilon(ledger.events(), spare, statement.accountant))


def spending_steps(statement: PrivacyStatement) -> list[tuple[str, float]]:
    """List (name of a release, ε up to and including it); empty if ε has no such steps."""
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
            entries[end - 1].title,
            float(accounting.epsilon(events[:end], delta, statement.accountant)),
        )
        for end in ends.tolist()
    ]


def belief(prior: float, epsilon: float, delta: float = 0.0, seen: float = 1.0) -> float:
    """Bound the posterior probability of an event with probability `prior`.

    An observation with probability β ≥ `seen` if the event holds, and α otherwise, multiplies the
    odds by β/α, and α is at least (β − δ)·e^(−ε). So the odds grow by e^ε / (1 − δ/β) at most, and
    without bound if β ≤ δ.
    """
    if seen <= delta:
        return 1.0
    return 1.0 / (1.0 + (1.0 - prior) / prior * (1.0 - delta / seen) * math.exp(-epsilon))


def read_released_counts(model: Any) -> NDArray[np.float64] | None:
    """Return the noisy counts of ratings per item, if the model released and kept them."""
    counts = getattr(model, "counts_", None)
    if counts is None or len(counts) != len(model.item_ids_):
        return None
    return np.maximum(np.nan_to_num(np.asarray(counts, np.float64)), 0.0)


def quintiles(model: Any, counts: NDArray[Any], people: float) -> list[Quintile]:
    """Group items by popularity into fifths of the ratings, most popular first.

    `people` is the number of users at which the signal of one item equals its noise.
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
