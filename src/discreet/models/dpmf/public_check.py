"""Which of two models has more of what public users leave out of their histories; free of cost.

Public users agreed that their ratings are public, so lists can be tried on them. They may have
many more items than others: histories are cut to the usual length of private users, which follows
from released counts (a user with n equally liked items adds √n to their sum).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import top_k
from discreet.models.algorithm import Learned
from discreet.models.fold_in import FoldIn, HistoryRows

DRAWS = 4  # of left-out items
SHORTEST = 3  # items, one of them left out
TOP = 20  # items of a list
# Pairs of half of the public users are compared with communities, and pairs of all are better
BETTER = 1.05


def usual_length(counts: NDArray[np.float64], size: float) -> int:
    """Return about how many items a user has, from estimated counts and number of users."""
    return max(round((max(float(counts.sum()), 0.0) / size) ** 2), SHORTEST)


def leave_items_out(
    rows: HistoryRows, length: int, rng: np.random.Generator
) -> tuple[HistoryRows, NDArray[np.int32]]:
    """Draw at most `length` items of each user, and leave one of them out: histories and items.

    Users with fewer than two items are left out of both.
    """
    order = np.lexsort((rng.random(len(rows.indices)), rows.row))
    place = np.arange(len(order)) - rows.indptr[rows.row]
    enough = (rows.counts > 1)[rows.row]
    first = order[enough & (place == 0)]
    kept = np.sort(order[enough & (place > 0) & (place < length)])
    many = np.bincount(rows.row[kept], minlength=rows.n)[rows.counts > 1]
    indptr = np.concatenate(([0], np.cumsum(many)))
    return HistoryRows(indptr, rows.indices[kept], rows.values[kept]), rows.indices[first]


def count_hits(rule: FoldIn, learned: Learned, rows: HistoryRows, items: NDArray[np.int32]) -> int:
    """Return for how many users the left-out item is among the best `TOP`."""
    vectors, _ = rule.score_vectors(rows, learned.factors, learned.biases)
    factors = rule.score_factors(learned.factors)
    best, _ = top_k(vectors, factors, learned.biases, TOP, (rows.indptr, rows.indices))
    return int((best == items[:, None]).any(axis=1).sum())
