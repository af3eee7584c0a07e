"""What is measured: pure functions on arrays that know neither models nor data sets.

A ranking is judged through its *hits*: h_j says whether the item in place j (from 0) of a user's
list is one of the R items that are relevant to that user. With m = min(k, R):

1. recall@k      = Σ_{j<k} h_j / m                      recall_all@k = Σ_{j<k} h_j / R
2. precision@k   = Σ_{j<k} h_j / k
3. ndcg@k        = Σ_{j<k} h_j d_j / Σ_{j<m} d_j,       d_j = 1 / log2(j + 2)
4. map@k         = (1/m) Σ_{j<k} h_j · precision@(j+1)
5. mrr@k         = 1 / (1 + first j < k with a hit), 0 without one; ``mrr`` alone is ``mrr@100``
6. coverage@k    = share of the catalog that is in at least one user's first k
7. rmse, mae     = root mean square, mean absolute value of (predicted − actual) over all rows

Each of 1–5 gives one number per user, NaN for a user to whom nothing is relevant; the score is the
mean over the others. A list shorter than k, or padded with −1, has no hits in the missing places,
and the denominators stay as they are: a model does not gain by recommending less. A list names no
item twice. Ties are the model's business: the order given is the order judged.
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
MRR_DEPTH = 100
"""Places that ``mrr`` without a cut-off looks at; a first hit further down would add less than
1/100.
"""


# --- Ratings
# --------------------------------------------------------------------------------------------------


def rmse(predicted: Array, actual: Array) -> float:
    """Root mean squared error over rows; NaN without rows."""
    error = _errors(predicted, actual)
    return float(np.sqrt(np.mean(error**2))) if error.size else float("nan")


def mae(predicted: Array, actual: Array) -> float:
    """Mean absolute error over rows; NaN without rows."""
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
    """Which places of the lists hold a relevant item.

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
    """Share of what could be found in k places that was found: hits in the first k over min(k,
    n_relevant).

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
        NaN where nothing is relevant. The other ranking metrics take and give the same.
    """
    return _ratio(hits[:, :k].sum(axis=1), np.minimum(n_relevant, k))


def recall_all(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Share of all relevant items that is in the first k; cannot reach 1 for a user with more
    than k of them.
    """
    return _ratio(hits[:, :k].sum(axis=1), n_relevant)


def precision(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Share of the first k places that hold a relevant item; an empty place is a miss."""
    return _ratio(hits[:, :k].sum(axis=1), np.where(np.asarray(n_relevant) > 0, k, 0))


def ndcg(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Discounted cumulative gain of the first k, binary gains, over that of the best possible
    list.
    """
    discount = 1 / np.log2(np.arange(k) + 2.0)
    best = np.concatenate([[0.0], np.cumsum(discount)])
    top = hits[:, :k]
    gains = (top * discount[: top.shape[1]]).sum(axis=1)  # BLAS would round by who shares the block
    return _ratio(gains, best[np.minimum(n_relevant, k)])


def average_precision(hits: Array, n_relevant: Array, k: int) -> Floats:
    """Precision at the place of each hit in the first k, summed, over min(k, n_relevant); its
    mean is ``map@k``.
    """
    top = hits[:, :k]
    precisions = np.cumsum(top, axis=1) / np.arange(1, top.shape[1] + 1)
    return _ratio((top * precisions).sum(axis=1), np.minimum(n_relevant, k))


def reciprocal_rank(hits: Array, n_relevant: Array, k: int = MRR_DEPTH) -> Floats:
    """One over the place (from 1) of the first hit in the first k, 0 without one; its mean is
    ``mrr``.
    """
    top = hits[:, :k]
    found: Array = np.any(top, axis=1)
    return _ratio(found, np.where(np.asarray(n_relevant) > 0, top.argmax(axis=1) + 1, 0))


def _ratio(numerator: Array, denominator: Array) -> Floats:
    """numerator / denominator, NaN where the denominator is 0."""
    out = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=out, where=np.asarray(denominator) > 0)


def find_covered(ranked: Array, n_items: int, k: int) -> npt.NDArray[np.bool_]:
    """Which items are in the first k of at least one list: (n_items,) bool. Padding is skipped."""
    top = np.asarray(ranked)[:, :k]
    covered = np.zeros(n_items, np.bool_)
    covered[top[top >= 0]] = True
    return covered


def coverage(ranked: Array, n_items: int, k: int) -> float:
    """Share of the catalog that is in the first k of at least one list. Grows with the number
    of lists.
    """
    return float(find_covered(ranked, n_items, k).mean()) if n_items else float("nan")


# --- Summaries
# --------------------------------------------------------------------------------------------------


def mean_over_users(values: Array) -> tuple[float, float]:
    """Mean of the values that are not NaN, and its standard error (sample deviation over √n;
    NaN below two users).
    """
    known = values[~np.isnan(values)]
    n = len(known)
    mean = float(known.mean()) if n else float("nan")
    return mean, float(known.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def mean_over_rows(sums: Array, counts: Array) -> tuple[float, float]:
    """Mean over all rows, and its standard error clustered by user.

    Rows of one person are not independent (a harsh critic is off on all of them), and an error bar
    that treats them as such is too short. So users are the sampling unit: with s_u the sum and c_u
    the count of user u's rows, the mean is the ratio θ = Σ s_u / Σ c_u, and linearizing the ratio
    gives var θ ≈ n/(n−1) · Σ (s_u − θ c_u)² / (Σ c_u)².

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


def root(mean: float, stderr: float) -> tuple[float, float]:
    """Square root of an estimate and, by the delta method (d√x = dx / 2√x), the standard error
    of the root.
    """
    value = float(np.sqrt(mean))
    return value, stderr / (2 * value) if value > 0 else stderr


def popularity_quintiles(
    counts: Array, by: Literal["ratings", "items"] = "ratings"
) -> npt.NDArray[np.int8]:
    """Sort items into five groups by how often they were rated in training: 0 the head, 4 the tail.

    Parameters
    ----------
    counts : (n_items,)
        Training ratings of each item.
    by : {"ratings", "items"}
        What each group has a fifth of. With ``"ratings"`` an item belongs where the middle of its
        ratings falls when all ratings are laid out by item, most popular first; an item with more
        than a fifth of them can leave a group empty.

    Returns
    -------
    (n_items,) int8
        Equally popular items are kept in index order. An item never rated in training is in the
        tail.
    """
    if by not in ("ratings", "items"):
        raise ConfigError(f"slices are by 'ratings' or by 'items', not {by!r}")
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
SPELLINGS = [*RATING, *(f"{name}@k" for name in RANKING), "mrr", "coverage@k"]


@dataclass(frozen=True)
class Metric:
    """A metric as asked for: ``parse("ndcg@100")`` is ``Metric("ndcg@100", "ndcg", 100)``; k is
    0 for rmse and mae.
    """

    name: str
    base: str
    k: int

    @property
    def kind(self) -> Literal["rating", "ranking", "coverage"]:
        if self.base in RATING:
            return "rating"
        return "ranking" if self.base in RANKING else "coverage"

    def per_user(self, hits: Array, n_relevant: Array) -> Floats:
        """One value per user of a ranking metric."""
        return RANKING[self.base](hits, n_relevant, self.k)


def parse(name: str) -> Metric:
    """Read a metric's name, such as ``rmse``, ``mrr`` or ``ndcg@100``.

    Raises
    ------
    ConfigError
        Naming what was probably meant, or else all metrics there are.
    """
    if not isinstance(name, str):
        raise ConfigError(f"a metric is named by a string such as 'ndcg@100', not {name!r}")
    base, at, cut = name.partition("@")
    bases = [*RATING, *RANKING, "coverage"]
    if base not in bases:
        raise ConfigError(f"there is no metric {name!r}: {_suggest_name(base, at + cut, bases)}")
    if base in RATING:
        if at:
            raise ConfigError(f"{name!r}: {base} has no cut-off; write {base!r}")
        return Metric(name, base, 0)
    if base == "mrr" and not at:
        return Metric(name, base, MRR_DEPTH)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", cut):
        given = "has no cut-off" if not at else f"has the cut-off {cut!r}"
        raise ConfigError(f"{name!r} {given}: write a whole number from 1, for example '{base}@20'")
    return Metric(name, base, int(cut))


def _suggest_name(base: str, cut: str, bases: list[str]) -> str:
    close = difflib.get_close_matches(
        base.strip().lower().replace("-", "_"), bases, n=2, cutoff=0.5
    )
    if close:
        names = [b if b in RATING else b + (cut.strip() or "@20") for b in close]
        return f"did you mean {' or '.join(map(repr, names))}?"
    return "there are " + ", ".join(SPELLINGS)
