"""The dial ``diversity``: rank by score over popularity to a power.

    adjusted_j = score_j / max(p_j / max p, FLOOR)^β,      0 ≤ β ≤ 1,                          (1)

with p_j the score of item j for an empty history: the popularity that the model learned. β = 0 is
the model's own order; a larger β recommends rarer items. Scores that are logarithms (profiles) have
−β log max(…) added instead, and a negative score is multiplied, so that a rarer item never falls.
Where popularity is all that was learned, (1) keeps its order for β < 1 and makes ties of it for
β = 1, so diversity has no effect.

Privacy: (1) is a function of the released model and of the user's own history. It costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.models.fold_in import FoldIn, HistoryRows, ProfileScores, rank_scores

Array = NDArray[Any]
#: Below this share of the largest popularity, popularity is mostly noise: it counts as this share.
FLOOR = 0.05
#: What is said where the list of each user is by popularity.
POPULARITY_LIST = (
    "This list is popularity: the same for all users, but for the items that they have."
)
#: The note of an explanation of such a list.
NOTHING_TO_EXPLAIN = f"{POPULARITY_LIST} No item of a history changes its scores."
NO_EFFECT = (
    "diversity has no effect: the model learned popularity alone, and has no personal part by which"
    " rarer items could rise."
)


def check_diversity(diversity: Any) -> float:
    """Return β as a float, or raise a `ConfigError`."""
    number = isinstance(diversity, (int, float)) and not isinstance(diversity, bool)
    if not number or not 0 <= diversity <= 1:
        raise ConfigError(f"diversity is {diversity!r}, but must be a number from 0 to 1.")
    return float(diversity)


def log_popularity(rule: FoldIn, factors: Array, biases: Array) -> NDArray[np.float64] | None:
    """Return log max(p_j / max p, FLOOR), or None for a model that learned no popularity."""
    if isinstance(rule, ProfileScores):
        known: Array = np.asarray(rule.popularity, np.float64)
        return np.asarray(np.maximum(known - known.max(initial=-np.inf), np.log(FLOOR)))
    nothing = HistoryRows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    vector, _ = rule.score_vectors(nothing, factors, biases)
    popularity = score_all(rule, vector, factors, biases)[0].astype(np.float64)
    largest = popularity.max(initial=0.0)
    if largest <= 0 or popularity.min() == largest:
        return None
    found: NDArray[np.float64] = np.log(np.maximum(popularity / largest, FLOOR))
    return found


def score_all(rule: FoldIn, vectors: Array, factors: Array, biases: Array) -> NDArray[np.float32]:
    """Return the scores (n, m) of all items, without offsets."""
    dense: Array = vectors @ rule.score_factors(factors).T + biases
    return dense.astype(np.float32)


def rank_diverse(
    scores: Array,
    boost: Array,
    logarithms: bool,
    n: int,
    hidden: tuple[Array, Array],
    left_out: Array | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rank as `rank_scores` does, by (1), with the model's own scores as result.

    Parameters
    ----------
    scores : (users, items)
    boost : (items,)
        −β times `log_popularity`.
    logarithms : bool
        Whether scores are logarithms.
    """
    if logarithms:
        adjusted = scores + boost
    else:
        weight = np.exp(boost)
        adjusted = np.where(scores > 0, scores * weight, scores / weight)
    best, _ = rank_scores(adjusted.astype(np.float32), n, hidden, left_out)
    own = np.take_along_axis(scores, np.maximum(best, 0), axis=1)
    return best, np.where(best >= 0, own, -np.inf).astype(np.float32)
