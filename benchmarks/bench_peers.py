"""One sweep of alternating least squares against other libraries, in one run on the same data.

Each library does a sweep as its users run it, on all cores. What is not installed is left out and
named: ``cmfrec`` compiles itself on installation, ``pyspark`` needs Java, and LensKit needs torch,
which this project does without (`make lenskit` compares scores with it in an environment of its
own).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench_als import peers, sweep
from benchmarks.bench_machine import twin
from discreet.data.ratings import Ratings
from discreet.kernels import thread_count
from discreet.models.als import ALS

RANKS = (32, 64)
ROUNDS = 2


def benchmark(quick: bool) -> dict[str, Any]:
    """Best seconds of a sweep by library and rank."""
    ratings = twin(quick)
    found: dict[str, dict[int, float]] = {}
    missing: list[str] = ["LensKit (needs torch)"]
    for rank in RANKS[:1] if quick else RANKS:
        work = _ours(ratings, rank) | peers(ratings, rank) | _cmfrec(ratings, rank)
        for _ in range(ROUNDS):
            for name, measure in work.items():
                row = found.setdefault(name, {})
                row[rank] = min(row.get(rank, float("inf")), measure())
    spark = _spark(ratings, RANKS[:1] if quick else RANKS)
    found |= {"Spark ALS, local": spark} if spark else {}
    for name, word in (
        ("implicit", "implicit,"),
        ("cmfrec", "cmfrec,"),
        ("Spark with Java", "Spark"),
    ):
        if not any(row.startswith(word) for row in found):
            missing.append(name)
    shape = {"users": ratings.n_users, "items": ratings.n_items, "ratings": ratings.n_ratings}
    return {
        **shape,
        "seconds": {name: {str(r): s for r, s in row.items()} for name, row in found.items()},
    } | {"missing": missing}


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    seconds = result["seconds"]
    ours = next(iter(seconds.values()))
    ranks = list(ours)
    lines = [
        "## Compared with other libraries",
        "",
        (
            f"Seconds of one sweep of alternating least squares, {result['users']:,} users ×"
            f" {result['items']:,} items, {result['ratings']:,} ratings, best of {ROUNDS}"
            " alternating rounds; and how many times as long as ours with implicit feedback."
            " Spark's is the difference of runs with four and with two iterations."
        ),
        "",
        "| | " + " | ".join(f"r = {r} | times ours" for r in ranks) + " |",
        "|---|" + "---|---|" * len(ranks),
    ]
    for name, row in seconds.items():
        cells = [f"{row[r]:.2f} | {row[r] / ours[r]:.1f}" if r in row else " | " for r in ranks]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, "", f"Not measured here: {', '.join(result['missing'])}."]


def _ours(ratings: Ratings, rank: int) -> dict[str, Callable[[], float]]:
    return {
        "discreet, implicit feedback": lambda: sweep(
            ALS(rank, goal="ranking", iterations=3), ratings
        ),
        "discreet, explicit with intercepts": lambda: sweep(ALS(rank, iterations=3), ratings),
    }


def _cmfrec(ratings: Ratings, rank: int) -> dict[str, Callable[[], float]]:
    """Seconds of a sweep of ``cmfrec``'s implicit model, if it is installed."""
    try:
        from cmfrec import CMF_implicit
    except ImportError:
        return {}
    matrix = ratings.to_csr().tocoo()

    def timed(cg: bool) -> float:
        def fit(iterations: int) -> float:
            model = CMF_implicit(
                k=rank,
                niter=iterations,
                use_cg=cg,
                nthreads=thread_count(),
                use_float=True,
                verbose=False,
            )
            start = time.perf_counter()
            model.fit(matrix)
            return time.perf_counter() - start

        return (fit(3) - fit(1)) / 2

    return {"cmfrec, Cholesky": lambda: timed(False), "cmfrec, CG": lambda: timed(True)}


def _spark(ratings: Ratings, ranks: tuple[int, ...]) -> dict[int, float]:
    """Seconds of an iteration of Spark's ALS on this machine, if it and Java are there."""
    from benchmarks.bench_engines import _spark as session

    spark = session()
    if spark is None:
        return {}
    from pyarrow import parquet
    from pyspark.ml.recommendation import ALS as SparkALS

    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        file = Path(folder) / "ratings.parquet"
        parquet.write_table(ratings.to_frame("pyarrow"), file)
        frame = spark.read.parquet(os.fspath(file)).cache()
        frame.count()
        columns: dict[str, Any] = {
            "userCol": "user_id",
            "itemCol": "item_id",
            "ratingCol": "rating",
        }
        for rank in ranks:
            seconds = []
            for iterations in (2, 4):
                start = time.perf_counter()
                SparkALS(rank=rank, maxIter=iterations, implicitPrefs=True, **columns).fit(frame)
                seconds.append(time.perf_counter() - start)
            found[rank] = (seconds[1] - seconds[0]) / 2
    spark.stop()
    return found
