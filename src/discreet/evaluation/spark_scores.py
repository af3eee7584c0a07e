"""Score a model on ratings in Spark DataFrames, with the metrics of `evaluate`.

Privacy: as for `evaluate`, these are exact statistics of held-out users, not covered by the model's
ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from discreet.data.columns import find_columns
from discreet.data.splits import Holdout, Split
from discreet.errors import ConfigError, DataError, hide_worker_errors
from discreet.evaluation.evaluator import evaluate
from discreet.evaluation.metrics import parse
from discreet.models.recommend_spark import Files, as_histories, pack_model, unpack_model

SCHEMA = "metric string, weight double, total double, squares double"


def evaluate_frame(
    model: Any,
    known: Any,
    held_out: Any,
    metrics: str | Sequence[str],
    *,
    relevant: float | None = None,
    partitions: int | None = None,
) -> dict[str, tuple[float, float]]:
    """Return the scores of a model by metric name: (value, standard error over users).

    Parameters
    ----------
    model : a fitted recommender
    known, held_out : pyspark.sql.DataFrame
        With the same columns: the histories for fold-in, and the ratings to predict.
    metrics : names
        As for `evaluate`, without those of popularity bias. For rmse, the standard error is NaN.
    relevant : float, optional
        Lowest relevant held-out rating for ranking metrics. Default: the model's threshold, or all.
    partitions : int, optional
    """
    from pyspark.sql import functions as F

    names = [metrics] if isinstance(metrics, str) else list(metrics)
    for name in names:
        if parse(name).kind in ("list", "catalog"):
            raise ConfigError(
                f"{name} needs the popularity of items or all lists. Use evaluate on in-memory"
                " Ratings."
            )
    found = list(known.columns)
    if sorted(found) != sorted(held_out.columns):
        raise DataError(
            "known and held_out have different columns. Pass DataFrames with the same columns."
        )
    columns = {
        role: found[at] for role, at in find_columns(found, {}, "the Spark DataFrame").items()
    }
    threshold = relevant if relevant is not None else getattr(model, "like_threshold_", None)
    task = scorer(pack_model(model), names, columns, threshold)
    both = known.select(*columns.values(), F.lit(False).alias("held")).union(
        held_out.select(*columns.values(), F.lit(True).alias("held"))
    )
    user = columns["user"]
    both = both.repartition(user) if partitions is None else both.repartition(partitions, user)
    rows = (
        both.mapInArrow(task, SCHEMA).groupBy("metric").sum("weight", "total", "squares").collect()
    )
    return {row[0]: _score(row[0], row[1], row[2], row[3]) for row in rows}


def _score(name: str, weight: float, total: float, squares: float) -> tuple[float, float]:
    mean = total / weight if weight else math.nan
    if parse(name).base == "rmse":
        return math.sqrt(mean), math.nan
    if parse(name).kind == "rating" or weight < 2:
        return mean, math.nan
    variance = max(squares - weight * mean**2, 0.0) / (weight - 1)
    return mean, math.sqrt(variance / weight)


def scorer(
    files: Files, names: Sequence[str], columns: dict[str, str], relevant: float | None
) -> Any:
    """Make the task of a partition, which sums scores over its users."""

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [batch for batch in batches if batch.num_rows]
        if not rows:
            return
        model = unpack_model(files)
        table = pa.Table.from_batches(rows)
        held = np.asarray(table.column("held").to_pylist(), bool)
        table = table.drop_columns(["held"])
        if not held.any():
            return
        target = as_histories(table.filter(pa.array(held)), columns, model)
        known = _same_users(table.filter(pa.array(~held)), columns, model, target)
        split = Split("frames", 0, known, Holdout(known, target))
        for name in names:
            found = evaluate(model, split, name, relevant=relevant, slices=None)
            values = found.per_user[name]
            there = ~np.isnan(values)
            weights = (
                np.diff(target.indptr) if parse(name).kind == "rating" else np.ones(target.n_users)
            )
            each = values**2 if parse(name).base == "rmse" else values
            w, x = weights[there], each[there]
            yield pa.RecordBatch.from_pydict(
                {
                    "metric": pa.array([name]),
                    "weight": pa.array([float(w.sum())]),
                    "total": pa.array([float((w * x).sum())]),
                    "squares": pa.array([float((w * x**2).sum())]),
                }
            )

    return hide_worker_errors(score)


def _same_users(table: pa.Table, columns: dict[str, str], model: Any, target: Any) -> Any:
    """Return the histories of the users of `target`, in their order; empty if there is none."""
    from discreet.data.ratings import Ratings

    if not table.num_rows:
        return Ratings.from_indices(
            np.zeros(target.n_users + 1, np.int64),
            [],
            [],
            target.user_ids,
            target.item_ids,
            catalog=True,
        )
    known = as_histories(table, columns, model)
    at = known.user_index(target.user_ids)
    counts = np.where(at >= 0, np.diff(known.indptr)[at], 0)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    entries = np.arange(indptr[-1]) + np.repeat(
        np.where(at >= 0, known.indptr[:-1][at], 0) - indptr[:-1], counts
    )
    return Ratings.from_indices(
        indptr,
        known.indices[entries],
        known.values[entries],
        target.user_ids,
        target.item_ids,
        catalog=True,
    )
