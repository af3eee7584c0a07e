"""Metrics: pure functions on arrays, independent of models and data sets.

Ranking metrics are functions of *hits*: h_j is 1 if the item at position j (from 0) of a user's
list is one of the R items that are relevant to that user. With m = min(k, R):

1. recall@k      = Σ_{j<k} h_j / m                      recall_all@k = Σ_{j<k} h_j / R
2. precision@k   = Σ_{j<k} h_j / k
3. ndcg@k        = Σ_{j<k} h_j d_j / Σ_{j<m} d_j,       d_j = 1 / log2(j + 2)
4. map@k         = (1/m) Σ_{j<k} h_j · precision@(j+1)
5. mrr@k         = 1 / (1 + first j < k with a hit), 0 without one; ``mrr`` alone is ``mrr@100``
6. rmse, mae     = root mean square, mean absolute value of (predicted − actual) over all rows

Popularity bias is measured on the same lists, with c_j of n training users having item j:

7. coverage@k    = share of the catalog that is in at least one user's first k
8. gini@k        = Gini index of how often the items of the catalog are in a first k: 0 if all are
   recommended equally often, near 1 if a few items take all positions
9. tail@k        = share of a user's first k in the last popularity quintile
10. novelty@k    = mean of −log2(c_j / n) over a user's first k, with c_j ≥ 1
11. popularity@k = mean of c_j / n over a user's first k
12. miscalibration@k = ½ Σ_g |p_g − q_g|: total variation distance between the shares of item
    categories in a user's history and in the first k

Each of 1–5 gives one number per user, NaN for a user without relevant items; the score is the mean
over the others, and so for 9–12, whose value is NaN for an empty list. A list shorter than k, or
padded with −1, has no hits in the missing positions, and the denominators do not change: a model
gains nothing by recommending less. A list has no repeated items. The model breaks ties: lists are
evaluated in the given order.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from discreet.errors import ConfigError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

N_QUINTILES = 5
#: Cut-off of ``mrr`` without one: a first hit further down would add less than 1/100.
MRR_DEPTH = 100


# --- Ratings
# --------------------------------------------------------------------------------------------------


def rmse(predicted: Array, actual: Array) -> float:
    """Return the root mean squared error over rows; NaN without rows."""
    error = _errors(predicted, actual)
    return float(np.sqrt(np.mean(error**2))) if error.size else float("nan")


def mae(predicted: Array, actual: Array) -> float:
    """Return the mean absolute error over rows; NaN without rows."""
    error = _errors(predicted, actual)
    return float(np.mean(np.abs(error))) if error.size else float("nan")


def _errors(predicted: Array, actual: Array) -> Floats:
    predicted, actual = np.asarray(predicted, np.float64), np.asarray(actual, np.float64)
    assert predicted.shape == actual.shape, (
        f"{predicted.shape} predictions for {actual.shape} ratings"
    )
    return predicted - actual


# --- Rankings
# --------------------------------------------------------------------------------------------------


def find_hits(ranked: Array, indptr: Array, indices: Array) -> npt.NDArray[np.bool_]:
    """Mark the positions of the lists that hold a relevant item.

    Parameters
    ----------
    ranked : (n_users, n) integers
        Item indices, best first; negative entries are padding.
    indptr, indices : (n_users + 1,), (n_relevant,) integers
        The relevant items of each user in CSR form, sorted within each user.

    Returns
    -------
    (n_users, n) bool
    """
    ranked = np.asarray(ranked)
    indptr, indices = np.asarray(indptr, np.int64), np.asarray(indices, np.int64)
    assert ranked.ndim == 2, (
        f"lists must be a matrix, one row per user, not {ranked.ndim}-dimensional"
    )
    assert len(indptr) == len(ranked) + 1, (
        f"relevant items of {len(indptr) - 1} users for {len(ranked)} lists"
    )
    if not indices.size:
        return np.zeros(ranked.shape, np.bool_)
    # One sorted array of (user, item) keys turns the whole block into a single binary search.
    width = max(int(indices.max()), int(ranked.max(initial=0))) + 1
    users = np.arange(len(ranked), dtype=np.int64)
    keys = np.repeat(users, np.diff(indptr)) * width + indices
    wanted = users[:, None] * width + ranked
    place = np.minimum(np.searchsorted(keys, wanted.ravel()), len(keys) - 1)
    return (keys[place].reshape(wanted.shape) == wanted) & (ranked >= 0)


def recall(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Return the hits in the first k over min(k, n_relevant).

    Parameters
    ----------
    hits : (n_users, n) bool
        From `find_hits`; fewer than k columns count as padded.
    n_relevant : (n_users,) integers
    k : int
        Cut-off, at least 1.

    Returns
    -------
    (n_users,) float64
        NaN if nothing is relevant. The other ranking metrics have the same signature.
    """
    return _ratio(hits[:, :k].sum(axis=1), np.minimum(n_relevant, k))


def recall_all(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Return the share of all relevant items in the first k, below 1 for users with more than k."""
    return _ratio(hits[:, :k].sum(axis=1), n_relevant)


def precision(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Return the share of the first k positions with a relevant item; empty ones are misses."""
    return _ratio(hits[:, :k].sum(axis=1), np.where(np.asarray(n_relevant) > 0, k, 0))


def ndcg(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Return the binary discounted cumulative gain of the first k over that of the ideal list."""
    discount = 1 / np.log2(np.arange(k) + 2.0)
    best = np.concatenate([[0.0], np.cumsum(discount)])
    top = hits[:, :k]
    gains = (top * discount[: top.shape[1]]).sum(axis=1)  # BLAS rounds by block
    return _ratio(gains, best[np.minimum(n_relevant, k)])


def average_precision(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Return the sum of the precisions at the hits in the first k, over min(k, n_relevant)."""
    top = hits[:, :k]
    precisions = np.cumsum(top, axis=1) / np.arange(1, top.shape[1] + 1)
    return _ratio((top * precisions).sum(axis=1), np.minimum(n_relevant, k))


def reciprocal_rank(hits: Array, n_relevant: Array, k: int = MRR_DEPTH) -> Floats:
    """Return one over the position (from 1) of the first hit in the first k, 0 without one."""
    top = hits[:, :k]
    found: Array = np.any(top, axis=1)
    return _ratio(found, np.where(np.asarray(n_relevant) > 0, top.argmax(axis=1) + 1, 0))


def _ratio(numerator: Array, denominator: Array) -> Floats:
    """Divide, with NaN where the denominator is 0."""
    out = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=out, where=np.asarray(denominator) > 0)


def coverage(counts: Array) -> float:
    """Return the share of items that are recommended at least once; grows with the lists."""
    return float(np.mean(np.asarray(counts) > 0)) if len(counts) else float("nan")


def gini(counts: Array) -> float:
    """Return the Gini index of the numbers of recommendations of all items; NaN without any."""
    x = np.sort(np.asarray(counts, np.float64))
    total = x.sum()
    if not total:
        return float("nan")
    n = len(x)
    return float((2 * np.arange(1, n + 1) - n - 1) @ x / (n * total))


@dataclass(frozen=True, eq=False)
class ItemGroups:
    """What popularity-bias metrics know of the items.

    Attributes
    ----------
    share : (n_items,) float64
        Share of the training users who have the item; at least one user.
    tail : (n_items,) bool
        Whether the item is in the last popularity quintile.
    categories : (n_items, n_categories) float64
        Weights of each item's categories, with sum 1, or 0 for an item without any.
    """

    share: Array
    tail: Array
    categories: Array

    @classmethod
    def from_counts(cls, counts: Array, n_users: int, categories: Array | None) -> ItemGroups:
        """Take popularity quintiles as categories where none are given."""
        quintile = popularity_quintiles(counts)
        if categories is None:
            categories = np.eye(N_QUINTILES)[quintile]
        share = np.asarray(counts, np.float64) / max(n_users, 1)
        return cls(share, quintile == N_QUINTILES - 1, categories)

    def mean_over_list(self, base: str, top: Array, indptr: Array, indices: Array) -> Floats:
        """Compute metrics 9–12 of lists: one value per user, NaN for an empty list.

        Parameters
        ----------
        base : name of the metric, without the cut-off
        top : (n_users, k) item indices, negative for padding
        indptr, indices : the users' histories in CSR form, of which 12 is a function as well
        """
        there = top >= 0
        n = there.sum(axis=1)
        if base == "miscalibration":
            own = _shares(self.categories[indices], indptr)
            ends = np.concatenate([[0], np.cumsum(n)])
            return 0.5 * np.abs(own - _shares(self.categories[top[there]], ends)).sum(axis=1)
        value = {
            "tail": self.tail.astype(np.float64),
            "popularity": self.share,
            "novelty": -np.log2(np.maximum(self.share, self.share[self.share > 0].min(initial=1))),
        }[base]
        return _ratio(np.where(there, value[top], 0.0).sum(axis=1), n)


def _shares(weights: Array, indptr: Array) -> Array:
    """Sum the rows of each user and normalize to 1; NaN for a user without any category."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    total = np.zeros((len(indptr) - 1, weights.shape[1]))
    np.add.at(total, row, weights)
    size = total.sum(axis=1, keepdims=True)
    return np.divide(total, size, out=np.full_like(total, np.nan), where=size > 0)


# --- Summaries
# --------------------------------------------------------------------------------------------------


def mean_over_users(values: Array) -> tuple[float, float]:
    """Return the mean of the values that are not NaN, and its standard error (NaN if n < 2)."""
    known = values[~np.isnan(values)]
    n = len(known)
    mean = float(known.mean()) if n else float("nan")
    return mean, float(known.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def mean_over_rows(sums: Array, counts: Array) -> tuple[float, float]:
    """Return the mean over all rows, and its standard error clustered by user.

    Rows of one user are not independent (a harsh critic deviates in all of them), and treating them
    as such underestimates the error. So users are the sampling unit: with s_u the sum and c_u the
    count of user u's rows, the mean is the ratio θ = Σ s_u / Σ c_u, and linearizing the ratio gives
    var θ ≈ n/(n−1) · Σ (s_u − θ c_u)² / (Σ c_u)².

    Parameters
    ----------
    sums, counts : (n_users,)
        Sum and number of each user's rows. Users without rows are not counted in n.
    """
    present = counts > 0
    s, c = np.asarray(sums[present], np.float64), np.asarray(counts[present], np.float64)
    n = len(s)
    total = c.sum()
    if n == 0:
        return float("nan"), float("nan")
    mean = float(s.sum() / total)
    if n == 1:
        return mean, float("nan")
    return mean, float(np.sqrt(n / (n - 1) * np.sum((s - mean * c) ** 2)) / total)


def paired_difference(metric: Metric, a: Array, b: Array, counts: Array) -> tuple[float, float]:
    """Return the score of model a less that of model b, and its standard error over users.

    The users are the same, so that what makes a user easy or hard for both models cancels.

    Parameters
    ----------
    a, b : (n_users,)
        Values of each user; NaN for users left out.
    counts : (n_users,)
        Held-out ratings of each user, the weights of rmse and mae. The linearization of
        `mean_over_rows` (and of the root) is that of the difference.
    """
    if metric.kind != "rating":
        return mean_over_users(a - b)
    present = counts > 0
    c = np.asarray(counts[present], np.float64)
    scores = []
    deviations = []
    for each in (a[present], b[present]):
        s = each**2 * c if metric.base == "rmse" else each * c
        mean = float(s.sum() / c.sum()) if len(c) else float("nan")
        score, slope = root(mean, 1.0) if metric.base == "rmse" else (mean, 1.0)
        scores.append(score)
        deviations.append(slope * (s - mean * c))
    n = len(c)
    spread = deviations[0] - deviations[1]
    stderr = float(np.sqrt(n / (n - 1) * np.sum(spread**2)) / c.sum()) if n > 1 else float("nan")
    return scores[0] - scores[1], stderr


def root(mean: float, stderr: float) -> tuple[float, float]:
    """Return the square root of an estimate and its standard error (delta method, dx / 2√x)."""
    value = float(np.sqrt(mean))
    return value, stderr / (2 * value) if value > 0 else stderr


def popularity_quintiles(
    counts: Array, by: Literal["ratings", "items"] = "ratings"
) -> npt.NDArray[np.int8]:
    """Divide items into five groups by popularity in training, from 0 (head) to 4 (tail).

    Parameters
    ----------
    counts : (n_items,)
        Training ratings of each item.
    by : {"ratings", "items"}
        What each group has a fifth of. With ``"ratings"``, ratings are ordered by item, most
        popular first, and an item's group is that of its middle rating. An item with more than a
        fifth of all ratings can leave a group empty.

    Returns
    -------
    (n_items,) int8
        Equally popular items are in index order. Items without training ratings are in the tail.
    """
    if by not in ("ratings", "items"):
        raise ConfigError(f"slices must be by 'ratings' or by 'items', not {by!r}.")
    counts = np.asarray(counts, np.float64)
    order = np.argsort(-counts, kind="stable")
    weights = counts[order] if by == "ratings" and counts.sum() > 0 else np.ones(len(counts))
    middle = (np.cumsum(weights) - weights / 2) / max(weights.sum(), 1)
    group = np.empty(len(counts), np.int8)
    group[order] = np.minimum((middle * N_QUINTILES).astype(np.int8), N_QUINTILES - 1)
    if by == "ratings":
        group[counts == 0] = N_QUINTILES - 1
    return group


# --- Names
# --------------------------------------------------------------------------------------------------

RATING: dict[str, Callable[[Array, Array], float]] = {"rmse": rmse, "mae": mae}
RANKING: dict[str, Callable[[Array, Array, int], Floats]] = {
    "recall": recall,
    "recall_all": recall_all,
    "ndcg": ndcg,
    "precision": precision,
    "map": average_precision,
    "mrr": reciprocal_rank,
}
#: Of the lists alone: one value per user, or one of all lists.
LISTS = ("tail", "novelty", "popularity", "miscalibration")
CATALOG = ("coverage", "gini")
SPELLINGS = [*RATING, *(f"{name}@k" for name in (*RANKING, *CATALOG, *LISTS)), "mrr"]


@dataclass(frozen=True)
class Metric:
    """A parsed metric: ``parse("ndcg@100")`` is ``Metric("ndcg@100", "ndcg", 100)``.

    Attributes
    ----------
    name : as given
    base : without the cut-off
    k : the cut-off, 0 for rmse and mae
    """

    name: str
    base: str
    k: int

    @property
    def kind(self) -> Literal["rating", "ranking", "list", "catalog"]:
        if self.base in RATING:
            return "rating"
        if self.base in RANKING:
            return "ranking"
        return "list" if self.base in LISTS else "catalog"

    def per_user(self, hits: Array, n_relevant: Array) -> Floats:
        """Compute a ranking metric, one value per user."""
        return RANKING[self.base](hits, n_relevant, self.k)


def parse(name: str) -> Metric:
    """Parse the name of a metric, such as ``rmse``, ``mrr`` or ``ndcg@100``.

    Raises
    ------
    ConfigError
        With the closest names, or else with all metrics.
    """
    if not isinstance(name, str):
        raise ConfigError(f"A metric must be a string such as 'ndcg@100', not {name!r}.")
    base, at, cut = name.partition("@")
    bases = [*RATING, *RANKING, *CATALOG, *LISTS]
    if base not in bases:
        raise ConfigError(f"Unknown metric {name!r}: {_suggest_name(base, at + cut, bases)}")
    if base in RATING:
        if at:
            raise ConfigError(f"{name!r}: {base} has no cut-off. Write {base!r}.")
        return Metric(name, base, 0)
    if base == "mrr" and not at:
        return Metric(name, base, MRR_DEPTH)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", cut):
        given = "has no cut-off" if not at else f"has the cut-off {cut!r}"
        raise ConfigError(f"{name!r} {given}. Write a positive integer, for example '{base}@20'.")
    return Metric(name, base, int(cut))


def _suggest_name(base: str, cut: str, bases: list[str]) -> str:
    close = difflib.get_close_matches(
        base.strip().lower().replace("-", "_"), bases, n=2, cutoff=0.5
    )
    if close:
        names = [b if b in RATING else b + (cut.strip() or "@20") for b in close]
        return f"did you mean {' or '.join(map(repr, names))}?"
    return f"choose from {', '.join(SPELLINGS)}."
