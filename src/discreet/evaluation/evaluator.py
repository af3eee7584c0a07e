"""`evaluate`: score a fitted model on the held-out part of a split.

1. Rating metrics: predict every held-out rating from the same user's known ratings; errors are
   pooled over all rows.
2. Ranking metrics: rank the whole catalog without the user's known items. The held-out items are
   relevant (for goal "rating": those rated at least ``relevant``). Each user has one value; the
   score is the mean over users with a relevant item.
3. Popularity bias: coverage, share of the tail and others are computed from the same lists and
   from the popularity of items in training.
4. Slices: items are divided into five groups by popularity in training. Rating metrics use the rows
   of the group's items; ranking metrics keep the lists, but only the group's items are relevant.

Each group has a fifth of the *ratings*, not of the items. With a long tail, the least popular fifth
of the items has almost no ratings (ML-1M: 0.6 %), and the most popular fifth has two thirds of
them. With equal shares of ratings, all groups have comparable standard errors and the same share of
activity. ``slices="items"`` uses equal numbers of items instead.

Memory: users are ranked in blocks, so memory does not grow with users × items.

Privacy: without `epsilon`, scores are exact statistics of held-out users, not covered by the
model's ε. So are standard errors and slices, and per-user values describe individual users.
Choosing a model or its hyperparameters by such scores leaks held-out data into the choice. Publish
them only for data that may be disclosed (public benchmarks, consent), or pass `epsilon` to release
them with noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np

from discreet.data.features import item_categories
from discreet.data.ids import IdIndex, object_array
from discreet.data.splits import Holdout
from discreet.errors import ConfigError, DataError, NotFittedError
from discreet.evaluation.metrics import (
    N_QUINTILES,
    Array,
    ItemGroups,
    Metric,
    coverage,
    find_hits,
    gini,
    mean_over_rows,
    mean_over_users,
    parse,
    popularity_quintiles,
    root,
)
from discreet.evaluation.private_scores import PrivateEvaluation, ScorePrice, release_scores
from discreet.evaluation.results import Evaluation, Slice
from discreet.models.user_rows import clip_histories
from discreet.privacy.accounting.budget import DEFAULT_DELTA, Budget, Neighboring
from discreet.privacy.release.budget_store import Account
from discreet.progress import Progress, ShowProgress, no_progress, progress_bar

if TYPE_CHECKING:
    from discreet.data.ratings import Ratings
    from discreet.data.splits import Split

#: Popularity bias, which private models have more of: the counts of rare items are mostly noise.
BIAS_METRICS = (
    "coverage@20",
    "tail@20",
    "novelty@20",
    "popularity@20",
    "gini@20",
    "miscalibration@20",
)
DEFAULTS = {
    "rating": ("rmse", "recall@20", "ndcg@100", *BIAS_METRICS),
    "ranking": ("recall@20", "recall@50", "ndcg@100", *BIAS_METRICS),
}
#: Relevant ratings are in the top quarter of the scale: 4 and 5 of five stars.
RELEVANT_SHARE = 0.75
#: Users ranked in one call: enough to use all cores, few enough to hold all their scores.
BLOCK = 2048

Part = Literal["test", "valid"]


class Model(Protocol):
    """The part of a model's interface that `evaluate` uses."""

    goal: str

    @property
    def item_ids_(self) -> Any: ...
    def predict(self, ratings: Ratings, pairs: Ratings) -> Any: ...
    def recommend_indices(self, ratings: Ratings, n: int) -> tuple[Any, Any]: ...


@overload
def evaluate(
    model: Model,
    split: Split,
    metrics: str | Sequence[str] | None = None,
    *,
    part: Part = "test",
    relevant: float | None = None,
    slices: Literal["ratings", "items"] | None = "ratings",
    categories: Any = None,
    progress: ShowProgress = None,
) -> Evaluation: ...


@overload
def evaluate(
    model: Model,
    split: Split,
    metrics: str | Sequence[str] | None = None,
    *,
    epsilon: float,
    delta: float = DEFAULT_DELTA,
    neighboring: Neighboring = "add-remove",
    account: Account | None = None,
    max_ratings: int = 10,
    confidence: float = 0.95,
    part: Part = "test",
    relevant: float | None = None,
    progress: ShowProgress = None,
) -> PrivateEvaluation: ...


def evaluate(
    model: Model,
    split: Split,
    metrics: str | Sequence[str] | None = None,
    *,
    part: Part = "test",
    relevant: float | None = None,
    slices: Literal["ratings", "items"] | None = "ratings",
    categories: Any = None,
    epsilon: float | None = None,
    delta: float = DEFAULT_DELTA,
    neighboring: Neighboring = "add-remove",
    account: Account | None = None,
    max_ratings: int = 10,
    confidence: float = 0.95,
    progress: ShowProgress = None,
) -> Evaluation | PrivateEvaluation:
    """Score a fitted model on the held-out part of a split.

    Parameters
    ----------
    model : Recommender
        Fitted on ``split.train``.
    split : Split
    metrics : names, optional
        Any of ``rmse``, ``mae``, ``recall@k``, ``recall_all@k``, ``ndcg@k``, ``precision@k``,
        ``map@k``, ``mrr``, ``mrr@k``; of popularity bias ``coverage@k``, ``tail@k``,
        ``novelty@k``, ``popularity@k``, ``gini@k``, ``miscalibration@k``. Default: ``rmse,
        recall@20, ndcg@100`` for goal "rating", ``recall@20, recall@50, ndcg@100`` for goal
        "ranking", and all of popularity bias at 20.
    part : {"test", "valid"}
    relevant : float, optional
        Lowest held-out rating that is relevant for ranking metrics. Default: that of
        `choose_relevant`, such as 4 of five stars. The value used is in ``conditions``. With
        `epsilon` it is required, unless the model's range of ratings (or its own threshold) is
        public and was not read from the data.
    slices : {"ratings", "items", None}
        What each popularity quintile has a fifth of; None for no slices. Private scores have none.
    categories : file, frame or mapping, optional
        Item categories of ``miscalibration@k``, as for ``item_features``; the first column of
        categories counts. Default: popularity quintiles.
    epsilon, delta, neighboring
        Release the scores with noise at this cost, with their own ledger.
    account : Account, optional
        With `epsilon`: the account of these users in a `discreet.BudgetStore`, to be charged.
    max_ratings : int
        With `epsilon`: largest weight, in ratings, of a user in rmse and mae.
    confidence : float
        With `epsilon`: confidence level of the intervals.
    progress : function, bool or None
        As for `fit`. Not called with `epsilon`: the number of ranked users is an exact statistic.

    Returns
    -------
    Evaluation, or with epsilon a PrivateEvaluation
        Standard errors are over users: of the mean for ranking metrics, clustered by user for
        ``mae`` and ``rmse`` (see `metrics.mean_over_rows`), with the delta method for the root.

    Notes
    -----
    Privacy: without `epsilon`, these are exact statistics of held-out users, not covered by the
    model's ε; see the top of this module. With it, releases sums over users;
    `discreet.evaluation.private_scores` has their sensitivity.
    """
    if not (hasattr(split, "train") and hasattr(split, "test")):
        raise DataError(
            f"evaluate needs a split, not {type(split).__name__}. Hold ratings out, for example"
            " with discreet.data.splits.random_ratings(ratings), and fit on split.train."
        )
    if epsilon is not None:
        price = ScorePrice(Budget(epsilon, delta, neighboring), account, max_ratings, confidence)
        return _evaluate_privately(model, split, metrics, part, relevant, price)
    if account is not None:
        raise ConfigError("account is given without epsilon. Pass epsilon= as well, such as 0.1.")
    wanted = _parse_all(metrics, model.goal)
    holdout = _part(split, part)
    if getattr(model, "item_ids_", None) is None:
        raise NotFittedError(
            f"This {type(model).__name__} is not fitted. Call fit(split.train) first."
        )
    target = holdout.target
    counts = np.bincount(split.train.indices, minlength=target.n_items)
    groups = (
        _Groups(popularity_quintiles(counts, slices), N_QUINTILES)
        if slices
        else _Groups.empty(target.n_items)
    )
    if relevant is None:
        threshold = choose_relevant(model, split.train, target)
    else:
        threshold = _check_relevant(relevant)
    keep = _find_relevant(target, threshold)

    rating = [m for m in wanted if m.kind == "rating"]
    ranking = [m for m in wanted if m.kind != "rating"]
    found = _rate(model, holdout, rating, groups) if rating else {}
    n_ranked: list[int] | None = None
    if ranking:
        items = ItemGroups.from_counts(
            counts, split.train.n_users, _category_weights(categories, target.item_ids)
        )
        with progress_bar(progress, "Evaluating") as report:
            ranked, n_ranked = _rank(model, holdout, keep, ranking, groups, report, items)
        found |= ranked

    n_users = _users_by_group(target, groups)
    return Evaluation(
        values={m.name: found[m.name].scores[0][0] for m in wanted},
        stderr={m.name: found[m.name].scores[0][1] for m in wanted},
        slices=tuple(
            _slice(g, groups, counts, target, n_users, n_ranked, found) for g in range(groups.n)
        ),
        n_users=n_users[0],
        n_ranked=n_ranked[0] if n_ranked else None,
        n_targets=int(target.n_ratings),
        conditions={
            "model": type(model).__name__,
            "goal": model.goal,
            "split": split.name,
            "seed": split.seed,
            "part": part,
            "relevant": threshold if ranking else None,
            "slices": slices,
        },
        notes=_notes(model, rating, target.n_users, n_users[0], n_ranked, threshold),
        user_ids=target.user_ids,
        per_user={m.name: values for m in wanted if (values := found[m.name].per_user) is not None},
    )


def _evaluate_privately(
    model: Model,
    split: Split,
    metrics: str | Sequence[str] | None,
    part: Part,
    relevant: float | None,
    price: ScorePrice,
) -> PrivateEvaluation:
    """Release the scores with noise; every decision in this function is public."""
    if getattr(model, "item_ids_", None) is None:
        raise NotFittedError(
            f"This {type(model).__name__} is not fitted. Call fit(split.train) first."
        )
    usual = [name for name in DEFAULTS[model.goal] if name not in BIAS_METRICS]
    if model.goal == "rating":  # ranking metrics would need a public relevance threshold
        usual = ["rmse", "mae"]
    wanted = _parse_all(usual if metrics is None else metrics, model.goal)
    scale: tuple[float, float] | None = getattr(model, "rating_range_", None)
    relevant = public_threshold(model, wanted, relevant)
    holdout = align_items(model, split.part(part))

    def measure(names: Sequence[str]) -> Mapping[str, Array]:
        return measure_users(model, holdout, [parse(name) for name in names], relevant)

    conditions = {
        "model": type(model).__name__,
        "goal": model.goal,
        "split": split.name,
        "seed": split.seed,
        "part": part,
        "relevant": relevant,
        "apart": split.apart,
    }
    half = None if scale is None else (scale[1] - scale[0]) / 2
    rated = keep_known_items(model, holdout)
    cautions = _list_cautions(model, wanted, split)
    head = getattr(model, "account_head_", None)
    return release_scores(wanted, measure, rated, half, price, conditions, cautions, head)


def _list_cautions(model: Model, metrics: Iterable[Metric], split: Split) -> dict[str, str]:
    """List by name the values that scores depend on and that were read from data without noise."""
    cautions = {a.name: a.text for a in _list_inferred_range(model)}
    scale = getattr(model, "rating_range_", None)
    statement = getattr(model, "privacy_", None)
    if statement is None or not statement.finite:
        cautions["model"] = "the evaluated model, which was trained without privacy"
    if statement is None and scale is not None and any(m.kind == "rating" for m in metrics):
        cautions["ratings"] = f"the range of ratings, {scale[0]:g} to {scale[1]:g}"
    if split.train.filtered:
        cautions["filter"] = split.train.filtered
    return cautions


def _list_inferred_range(model: Model) -> list[Any]:
    """List the model's assumptions on its range of ratings that were read from data."""
    statement = getattr(model, "privacy_", None)
    assumptions = () if statement is None else statement.assumptions
    return [a for a in assumptions if a.inferred and a.name in ("ratings", "liked")]


def public_threshold(
    model: Model,
    metrics: Iterable[Metric],
    relevant: float | None,
) -> float | None:
    """Return the lowest rating that is relevant in a release, or None if all are.

    Privacy: the threshold must not depend on users' ratings, or one user could change the relevant
    items of all others. This function raises an error if it would, judging by the model's
    parameters and ledger alone. It accepts a model before or after training.
    """
    if relevant is not None:
        return _check_relevant(relevant)
    by_rating = model.goal == "rating" or hasattr(type(model), "like_threshold_")
    if not by_rating or all(metric.kind != "ranking" for metric in metrics):
        return None
    if not _has_public_range(model):
        raise ConfigError(
            "The relevance threshold of ranking scores would be read from the ratings. "
            "Pass relevant=, the lowest relevant rating, or train with a public rating_range=."
        )
    scale = getattr(model, "rating_range_", None)
    if model.goal == "rating" and scale is not None:
        return float(scale[0] + RELEVANT_SHARE * (scale[1] - scale[0]))
    threshold: float | None = getattr(model, "like_threshold_", None)
    return threshold


def _has_public_range(model: Any) -> bool:
    """Return whether the range of ratings, or the like threshold, was given and not inferred."""
    if getattr(model, "privacy_", None) is not None:
        return not _list_inferred_range(model)
    if getattr(model, "rating_range", None) is not None:
        return True
    return model.goal == "ranking" and model.make_algorithm().like_threshold is not None


def measure_users(
    model: Model,
    holdout: Holdout,
    metrics: Sequence[Metric],
    relevant: float | None,
) -> dict[str, Array]:
    """Return one value per user and metric for a release, NaN where there is none.

    Privacy: a user's value depends on the model, on public arguments and on that user's own
    ratings. No data are refused: without any held-out rating all values are NaN. Held-out items
    unknown to the model are left out of rating metrics, and are misses in rankings.
    """
    groups = _Groups.empty(holdout.target.n_items)
    rating = [m for m in metrics if m.kind == "rating"]
    ranking = [m for m in metrics if m.kind == "ranking"]
    found = _rate(model, keep_known_items(model, holdout), rating, groups) if rating else {}
    if ranking:
        keep = _find_relevant(holdout.target, relevant)
        # No progress: the number of ranked users is an exact statistic.
        found |= _rank(model, holdout, keep, ranking, groups, no_progress)[0]
    return {name: one.per_user for name, one in found.items() if one.per_user is not None}


def align_items(model: Model, holdout: Holdout) -> Holdout:
    """Index items as the model does, with unknown ones after its own.

    Privacy: each id of the data is matched on its own. If the model's ids were matched to those of
    the data instead, one user with 7.0 for 7 could change which ratings of all others count.
    """
    ids = np.asarray(model.item_ids_)
    found = holdout.target.item_ids
    if np.array_equal(ids, found):
        return holdout
    unknown = found[IdIndex(ids).positions(found, "item id") < 0]
    items = object_array([*ids.tolist(), *unknown.tolist()], len(ids) + len(unknown))
    return Holdout(holdout.known.with_items(items), holdout.target.with_items(items))


def keep_known_items(model: Model, holdout: Holdout) -> Holdout:
    """Keep only the ratings of items that the model knows."""
    relabel = _relabel(model, holdout.target)
    if relabel is None:
        return holdout
    parts = (holdout.known, holdout.target)
    return Holdout(*(part.keep(np.isin(part.indices, relabel)) for part in parts))


# --- The two protocols
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Groups:
    """Popularity groups of the items; without slices n is 0, and all items are in group 0.

    Attributes
    ----------
    of_item : the group of each item
    n : number of groups
    """

    of_item: Array
    n: int

    @staticmethod
    def empty(n_items: int) -> _Groups:
        return _Groups(np.zeros(n_items, np.int8), 0)


@dataclass(frozen=True)
class _UserScores:
    """Scores of one metric.

    Attributes
    ----------
    scores : (value, standard error) over all items, then of each group
    per_user : one value per user, or None for coverage
    """

    scores: list[tuple[float, float]]
    per_user: Array | None


def _rate(
    model: Model, holdout: Holdout, metrics: list[Metric], groups: _Groups
) -> dict[str, _UserScores]:
    """Compute rating metrics from sums by (group, user)."""
    target = holdout.target
    known = clip_histories(holdout.known, getattr(model, "history_range", None))
    predicted = np.zeros(0)
    if target.n_ratings:
        predicted = np.asarray(model.predict(known, target), np.float64)
    if predicted.shape != target.values.shape:
        raise DataError(
            f"predict gave {predicted.shape} scores for {target.n_ratings:,} held-out ratings."
        )
    error = np.abs(predicted - target.values)
    cell = groups.of_item[target.indices].astype(np.int64) * target.n_users + _row_users(target)
    shape = (max(groups.n, 1), target.n_users)
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    found = {}
    for metric in metrics:
        squared = metric.base == "rmse"
        weights = error**2 if squared else error
        sums = np.bincount(cell, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)
        pairs = [
            (sums.sum(axis=0), counts.sum(axis=0)),
            *((sums[g], counts[g]) for g in range(groups.n)),
        ]
        scores = [mean_over_rows(s, c) for s, c in pairs]
        # 0 / 0 gives users without rows the intended NaN.
        with np.errstate(invalid="ignore"):
            per_user = pairs[0][0] / pairs[0][1]
        found[metric.name] = _UserScores(
            [root(*score) for score in scores] if squared else scores,
            np.sqrt(per_user) if squared else per_user,
        )
    return found


def _rank(
    model: Model,
    holdout: Holdout,
    keep: Array,
    metrics: list[Metric],
    groups: _Groups,
    progress: Progress,
    items: ItemGroups | None = None,
) -> tuple[dict[str, _UserScores], list[int]]:
    """Compute ranking metrics in blocks, and the number of ranked users by group.

    `items` is for metrics of popularity bias.
    """
    target = holdout.target
    indices = target.indices[keep]
    n_relevant = np.diff(np.concatenate([[0], np.cumsum(keep)])[target.indptr])
    users = np.flatnonzero(n_relevant)
    indptr = np.concatenate([[0], np.cumsum(n_relevant[users])])
    relabel = _relabel(model, target)
    depth = min(max(m.k for m in metrics), len(model.item_ids_))
    values = {
        m.name: np.full((1 + groups.n, target.n_users), np.nan)
        for m in metrics
        if m.kind != "catalog"
    }
    chosen = {m: np.zeros(target.n_items, np.int64) for m in metrics if m.kind == "catalog"}
    n_ranked = np.zeros(1 + groups.n, np.int64)

    for start in range(0, len(users), BLOCK):
        stop = min(start + BLOCK, len(users))
        known = holdout.known.select_users(users[start:stop], by="index")
        # Histories may hold items that the model does not know.
        if relabel is not None:
            known = known.keep(np.isin(known.indices, relabel))
        lists = np.asarray(model.recommend_indices(known, n=depth)[0])
        if relabel is not None:
            lists = np.where(lists >= 0, relabel[lists], -1)
        own = slice(indptr[start], indptr[stop])
        hits = find_hits(lists, indptr[start : stop + 1] - indptr[start], indices[own])
        row = np.repeat(np.arange(stop - start), n_relevant[users[start:stop]])
        item_group, list_group = groups.of_item[indices[own]], groups.of_item[lists]
        for g in range(-1, groups.n):
            of_group = hits if g < 0 else hits & (list_group == g)
            size = np.bincount(row if g < 0 else row[item_group == g], minlength=stop - start)
            n_ranked[1 + g] += np.count_nonzero(size)
            for metric in metrics:
                if metric.kind == "ranking":
                    values[metric.name][1 + g, users[start:stop]] = metric.per_user(of_group, size)
        for metric in metrics:
            top = lists[:, : metric.k]
            if metric.kind == "list":
                assert items is not None
                values[metric.name][0, users[start:stop]] = items.mean_over_list(
                    metric.base, top, known.indptr, known.indices
                )
            elif metric.kind == "catalog":
                chosen[metric] += np.bincount(top[top >= 0], minlength=target.n_items)
        progress(stop, len(users), "ranking")

    found = {
        name: _UserScores([mean_over_users(row) for row in v], v[0]) for name, v in values.items()
    }
    for metric, n in chosen.items():
        parts = [n, *(n[groups.of_item == g] for g in range(groups.n))]
        whole = gini if metric.base == "gini" else coverage
        found[metric.name] = _UserScores([(whole(part), math.nan) for part in parts], None)
    return found, n_ranked.tolist()


def _slice(
    g: int,
    groups: _Groups,
    counts: Array,
    target: Ratings,
    n_users: list[int],
    n_ranked: list[int] | None,
    found: dict[str, _UserScores],
) -> Slice:
    mine = groups.of_item == g
    return Slice(
        quintile=g + 1,
        n_items=int(np.count_nonzero(mine)),
        train_share=float(counts[mine].sum() / counts.sum()) if counts.any() else math.nan,
        n_targets=int(np.count_nonzero(mine[target.indices])),
        n_users=n_users[1 + g],
        n_ranked=n_ranked[1 + g] if n_ranked else None,
        values={name: f.scores[1 + g][0] for name, f in found.items()},
        stderr={name: f.scores[1 + g][1] for name, f in found.items()},
    )


# --- Helpers
# --------------------------------------------------------------------------------------------------


def _parse_all(metrics: str | Iterable[str] | None, goal: str) -> list[Metric]:
    if metrics is None:
        if goal not in DEFAULTS:
            raise ConfigError(
                f"The goal of the model is {goal!r}, not 'rating' or 'ranking': name the metrics."
            )
        metrics = DEFAULTS[goal]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise ConfigError(
            "metrics is empty. Name at least one, such as 'ndcg@100', or leave it out for the"
            " defaults."
        )
    return [parse(name) for name in dict.fromkeys(names)]


def _part(split: Split, part: str) -> Holdout:
    if part not in ("test", "valid"):
        raise ConfigError(f"part must be 'test' or 'valid', not {part!r}.")
    holdout = split.test if part == "test" else split.valid
    if holdout is None:
        raise ConfigError(
            f"The split {split.name!r} has no validation part. Use part='test', or make one."
        )
    if holdout.target.n_ratings == 0:
        raise DataError(
            f"The {part} part of the split {split.name!r} has no ratings. Hold out a larger"
            " fraction."
        )
    return holdout


def choose_relevant(model: Any, *ratings: Ratings) -> float | None:
    """Return the lowest rating that is relevant in rankings by default; None if all are.

    The rule of `evaluate`, of the command and of the report. It depends on the ratings and on the
    model, trained or not: the model's own threshold of what is liked, where it has one; else the
    top quarter of the range of ratings for models that learn from ratings; else all are relevant.
    """
    graded = model.goal == "rating" or hasattr(type(model), "like_threshold_")
    if not graded or not any(some.n_ratings for some in ratings):
        return None
    threshold = None
    if model.goal == "ranking":
        threshold = model.make_algorithm().like_threshold
        if isinstance(threshold, str):  # "everything"
            return None
    scale = getattr(model, "rating_range", None) or getattr(model, "rating_range_", None)
    if scale is None:
        values = [some.values for some in ratings if some.n_ratings]
        scale = float(min(v.min() for v in values)), float(max(v.max() for v in values))
        if model.goal == "ranking" and scale[0] == scale[1]:
            return None
    return lowest_relevant(scale, *ratings, least=threshold)


def _check_relevant(relevant: Any) -> float:
    if isinstance(relevant, bool) or not isinstance(relevant, Real) or not math.isfinite(relevant):
        raise ConfigError(
            f"relevant must be a number, the lowest rating that is relevant, not {relevant!r}."
        )
    return float(relevant)


def _find_relevant(target: Ratings, threshold: float | None) -> Array:
    """Mark the relevant held-out ratings; all of them without a threshold."""
    if threshold is None:
        return np.ones(target.n_ratings, np.bool_)
    return np.asarray(target.values >= np.float32(threshold))


def lowest_relevant(
    scale: tuple[float, float], *ratings: Ratings, least: float | None = None
) -> float:
    """Return the lowest of these ratings that is relevant on the scale, or at least `least`.

    On a scale of half stars from 0.5 to 5, the bound is 3.875 and the result is 4.
    """
    if least is None:
        least = scale[0] + RELEVANT_SHARE * (scale[1] - scale[0])
    enough = [some.values[some.values >= np.float32(least)] for some in ratings]
    return min((float(values.min()) for values in enough if len(values)), default=least)


def _category_weights(source: Any, item_ids: Array) -> Array | None:
    """Return the weights of each item's categories, (n_items, n_categories) with row sums 1 or 0.

    A category has equal weight in every item that has as many categories.
    """
    if source is None:
        return None
    found = item_categories(source, item_ids)
    if not found:
        raise DataError("categories has no column with values that items share.")
    sizes = np.diff(found[0].starts)
    weights = np.zeros((len(item_ids), len(found[0].names)))
    np.add.at(
        weights,
        (np.repeat(np.arange(len(sizes)), sizes), found[0].values),
        np.repeat(1 / np.maximum(sizes, 1), sizes),
    )
    return weights


def _relabel(model: Model, target: Ratings) -> Array | None:
    """Map the model's item indices to the split's (−1 if missing); None if they are the same."""
    ids = np.asarray(model.item_ids_)
    if len(ids) == target.n_items and np.array_equal(ids, target.item_ids):
        return None
    return np.asarray(target.item_index(ids))


def _row_users(ratings: Ratings) -> Array:
    return np.repeat(np.arange(ratings.n_users, dtype=np.int64), np.diff(ratings.indptr))


def _users_by_group(target: Ratings, groups: _Groups) -> list[int]:
    """Count users with a held-out rating: of any item, then of an item of each group."""
    user = _row_users(target)
    group = groups.of_item[target.indices]
    chosen = [user if g < 0 else user[group == g] for g in range(-1, groups.n)]
    return [int(np.count_nonzero(np.bincount(u, minlength=1))) for u in chosen]


def _notes(
    model: Model,
    rating: list[Metric],
    total: int,
    n_users: int,
    n_ranked: list[int] | None,
    threshold: float | None,
) -> tuple[str, ...]:
    notes = []
    if n_users < total:
        notes.append(
            f"{total - n_users:,} of {total:,} users have no held-out rating and are left out"
        )
    if n_ranked is not None:
        what = (
            "all held-out items"
            if threshold is None
            else f"held-out items rated {threshold:g} or more"
        )
        out = total - n_ranked[0]
        left = (
            f"; {out:,} of {total:,} users have none and are left out of the ranking metrics"
            if out
            else ""
        )
        notes.append(f"relevant: {what}{left}")
    if rating and model.goal == "ranking":
        names = " and ".join(m.name for m in rating)
        notes.append(
            f"{names}: this model has goal 'ranking', its scores are not predicted ratings"
        )
    return tuple(notes)
