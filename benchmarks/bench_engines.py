"""Engines against each other: one pass in CPU seconds, whole trainings, and how time and memory
grow with the data.

Everything runs in processes of its own, so that peak memory is that of one training, and so that
Spark's own ALS and a training of ours both begin with a Java that has just started. CPU seconds are
those of the whole family of processes (Spark's Java and its Python workers included), because
machines are shared and wall clocks with them. Data are the simulated MovieLens 20M for passes and
trainings on Spark, and generated users with 100 ratings each for the growth.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.datasets import load_dataset
from discreet.data.ratings import Ratings

SCALE = (1.0, 5.0)
PER_USER = 100
RANK = 8
SPARK_RANKS = (10, 32)  # what Spark's ALS and DPMF have by default
SPARK_ITERATIONS = 10  # as Spark's ALS has by default
PASSES = 24
GOALS = {"blocks": 1.3, "spark": 2.0, "als": 3.0, "gigabytes": 1.5}
SIZES = ((1_000_000, 5_000), (10_000_000, 20_000), (100_000_000, 50_000))
BLOCKS = {1_000_000: 8, 10_000_000: 8, 100_000_000: 64}
BEYOND = ((10**9, "10⁹"), (10**10, "10¹⁰"))
SEALED_BYTES = 8.2  # of a rating, with its share of a user's own 16


def benchmark(quick: bool = False) -> dict[str, Any]:
    """All of it; `quick` on a twentieth of the data, and without the largest size."""
    sizes = [(n // 20, items) for n, items in SIZES[:2]] if quick else list(SIZES)
    share = 0.05 if quick else 1.0
    found: dict[str, Any] = {"passes": _child("passes", share), "spark": [], "sizes": []}
    for rank in SPARK_RANKS:
        ours = _child("spark", share, rank)
        if ours:
            found["spark"].append({"rank": rank} | ours | _child("als", share, rank))
    for n, items in sizes:
        found["sizes"].append(
            {"ratings": n, "items": items} | {e: _child(e, n, items) for e in ("blocks", "memory")}
        )
    return found


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    parts = [
        *_show_passes(result["passes"]),
        *_show_spark(result["spark"]),
        *_show_sizes(result["sizes"]),
    ]
    return ["## Engines, measured", *parts]


def _show_passes(passes: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "### One pass",
        "",
        (
            "Every user's factors and residuals are computed, a Gram matrix and a gradient of"
            f" rank {RANK + 1} are"
            f" added up, over {passes['ratings']:,} ratings of {passes['items']:,} items in"
            f" {passes['parts']} blocks. CPU seconds of all processes, median of the second half of"
            f" {PASSES} passes; all three give the same bits."
        ),
        "",
        "| engine | CPU seconds | times memory | goal |",
        "|---|---|---|---|",
        f"| memory | {passes['memory']:.2f} | 1 | |",
    ]
    for engine in ("blocks", "spark"):
        if engine in passes:
            times = passes[engine] / passes["memory"]
            lines.append(
                f"| {engine} | {passes[engine]:.2f} | {times:.2f} | at most {GOALS[engine]:g} |"
            )
    return lines


def _show_spark(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = [
        "",
        "### A whole training on Spark, compared with Spark's own ALS",
        "",
        (
            "The same ratings, the same rank, local[2], each in a Spark session of its own that"
            " has counted the rows before. DPMF for ratings with its usual steps"
            f" ({rows[0]['releases']} releases at rank {rows[0]['rank']}); Spark's ALS with its"
            f" usual {SPARK_ITERATIONS} iterations, not private. Sealing is done once for all"
            " trainings. CPU seconds of all processes, and seconds on the clock; goal:"
            f" {GOALS['als']:g} times as fast."
        ),
        "",
        (
            "| rank | DPMF: sealing | training | Spark's ALS | times as fast, sealed before | with"
            " sealing |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{row[name]['cpu']:.0f} CPU s, {row[name]['seconds']:.0f} s"
            for name in ("sealing", "train", "als")
        ]
        for before in (False, True):
            ratios = []
            for unit in ("cpu", "seconds"):
                ours = row["train"][unit] + (row["sealing"][unit] if before else 0.0)
                ratios.append(f"{row['als'][unit] / ours:.1f}")
            cells.append(f"{ratios[0]} by CPU, {ratios[1]} by the clock")
        lines.append(f"| {row['rank']} | {' | '.join(cells)} |")
    return lines


def _show_sizes(sizes: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "### How it grows",
        "",
        (
            f"DPMF for ratings (rank {RANK}, {PER_USER} ratings per user), a whole training, by the"
            " size of the data; peak memory of a process that trains and does nothing else."
            " Writing the blocks comes before it, once."
        ),
        "",
        (
            "| ratings | items | writing: CPU seconds | blocks: seconds | CPU seconds | peak GB "
            "| memory: seconds | CPU seconds | peak GB |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sizes:
        cells = [_cell(row["blocks"], "writing", 1)]
        cells += [
            _cell(row.get(e, {}), key, digits)
            for e in ("blocks", "memory")
            for key, digits in _CELLS
        ]
        lines.append(f"| {row['ratings']:,} | {row['items']:,} | {' | '.join(cells)} |")
    first, last = sizes[0], sizes[-1]
    growth = np.log(last["blocks"]["cpu"] / first["blocks"]["cpu"]) / np.log(
        last["ratings"] / first["ratings"]
    )
    each = last["blocks"]["cpu"] / last["ratings"]
    lines += [
        "",
        (
            "CPU seconds of the block engine grow as the number of ratings to the power"
            f" {growth:.2f} from the first row to the last (fixed costs weigh on small data); goal"
            f" for its peak memory at 10⁸ ratings: at most {GOALS['gigabytes']:g} GB. The last row"
            f" is {1e6 * each:.2f} µs of CPU per rating and training. Taken as proportional from"
            " there on, that says:"
        ),
        "",
        (
            "| ratings | CPU seconds | blocks on 16 cores | Spark on 64 cores, at twice the CPU |"
            " sealed |"
        ),
        "|---|---|---|---|---|",
    ]
    for n, name in BEYOND:
        cpu = each * n
        memory = 16 * 0.15 + 0.256
        lines.append(
            f"| {name} | {cpu:,.0f} | {cpu / 16 / 60:.1f} minutes, {memory:.1f} GB of memory |"
            f" {2 * cpu / 64 / 60:.1f} minutes, 0.4 GB for each worker |"
            f" {SEALED_BYTES * n / 1e9:,.0f} GB |"
        )
    return [
        *lines,
        "",
        (
            f"Assumed: {PER_USER} ratings per user, {last['items']:,} items, the same rank and"
            " steps; blocks of 1,500,000 ratings, 150 MB for each that is worked on, and the cache"
            " of 256 MB (one for all cores with blocks, one for each worker on Spark); all cores"
            " as fast as this machine's, files in the page cache or on disks of 2 GB/s, no"
            " stragglers. Sums are small against it: a release moves items × numbers per item × 8"
            " bytes per task."
        ),
    ]


def _cell(found: dict[str, float], key: str, digits: int) -> str:
    """A number, or a dash for what was not measured."""
    return f"{found[key]:.{digits}f}" if key in found else "–"


_CELLS = (("seconds", 0), ("cpu", 1), ("gigabytes", 2))


# ------------------------------------------------------------------ users


def generated(
    n: int, items: int, seed: int = 0
) -> Iterator[tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """(first user, indptr, items, ratings) of ten thousand users at a time, with a few popular
    items.
    """
    users = n // PER_USER
    for begin in range(0, users, 10_000):
        rng = np.random.default_rng([seed, begin])
        many = min(10_000, users - begin)
        drawn = (items * rng.random((many, PER_USER + 8)) ** 2.5).astype(np.int64)
        key = np.unique(drawn + items * np.arange(many)[:, None])
        row, item = np.divmod(key, items)
        indptr = np.searchsorted(row, np.arange(many + 1))
        yield begin, indptr, item.astype(np.int32), rng.integers(1, 6, len(item)).astype(np.float32)


def frames(n: int, items: int) -> Iterator[pa.Table]:
    for begin, indptr, item, rating in generated(n, items):
        user = np.repeat(np.arange(begin, begin + len(indptr) - 1), np.diff(indptr))
        yield pa.table({"user": pa.array(user), "item": pa.array(item), "rating": pa.array(rating)})


def in_memory(n: int, items: int) -> Ratings:
    parts = list(generated(n, items))
    ends = np.cumsum([0, *(len(part[2]) for part in parts)])
    indptr = np.concatenate(
        [*(part[1][:-1] + end for part, end in zip(parts, ends[:-1], strict=True)), ends[-1:]]
    )
    item = np.concatenate([part[2] for part in parts])
    rating = np.concatenate([part[3] for part in parts])
    return Ratings.from_indices(
        indptr, item, rating, np.arange(len(indptr) - 1), np.arange(items), catalog=True
    )


# ------------------------------------------------------------------ what a process does


def _child(what: str, *given: Any) -> dict[str, Any]:
    call = [sys.executable, "-m", __name__, what, *map(str, given)]
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        settings = os.environ | {"PYSPARK_PYTHON": sys.executable, "DISCREET_BENCH_FOLDER": folder}
        before: dict[str, Any] = {}
        if what == "blocks":  # written by another process, whose memory is not the training's
            before = _answer([*call[:3], "write", *call[4:]], settings)
        return before | _answer(call, settings)


def _answer(call: list[str], settings: dict[str, str]) -> dict[str, Any]:
    """The last line that a process prints."""
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=settings)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _folder() -> Path:
    return Path(os.environ["DISCREET_BENCH_FOLDER"])


def write(n: int, items: int) -> dict[str, Any]:
    from discreet.engines.blocks import BlockRatings

    making = [0.0]
    start = time.process_time()
    made = _timed(frames(n, items), making)
    BlockRatings.write(
        made, _folder() / "blocks", blocks=BLOCKS.get(n, 8), items=list(range(items))
    )
    return {"writing": time.process_time() - start - making[0]}


def _timed(made: Iterator[pa.Table], spent: list[float]) -> Iterator[pa.Table]:
    """The same frames; the cost of generating users is no part of writing them."""
    while True:
        start = time.process_time()
        frame = next(made, None)
        spent[0] += time.process_time() - start
        if frame is None:
            return
        yield frame


def train(people: Any) -> dict[str, Any]:
    """Seconds, CPU seconds and peak memory of a training."""
    import resource

    from discreet.models.dpmf import DPMF

    logging.getLogger("discreet").setLevel(logging.ERROR)
    start = time.perf_counter()
    cpu = time.process_time()
    DPMF(RANK, epsilon=5.0, goal="rating", rating_range=SCALE, random_state=0).fit(people)
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9,
    }


def _train_blocks() -> dict[str, Any]:
    from discreet.engines.blocks import BlockRatings

    return train(BlockRatings(_folder() / "blocks"))


def family_cpu() -> float:
    """CPU seconds of this process and of all that it started and that still run."""
    import psutil

    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def one_engine(people: Any, n_items: int, passes: int) -> float:
    """CPU seconds of one pass: the median of the last half of so many."""
    from benchmarks.trial import trial_pass

    seconds = []
    step = trial_pass(people, n_items, RANK)
    for number in range(passes):
        before = family_cpu()
        step(number)
        seconds.append(family_cpu() - before)
    return float(np.median(seconds[passes // 2 :]))


def passes(share: float) -> dict[str, Any]:
    from discreet.engines.blocks import BlockRatings

    ratings = load_dataset("twin-ml20m", scale=share)
    found: dict[str, Any] = {"ratings": ratings.n_ratings, "items": ratings.n_items, "parts": 8}
    found["memory"] = one_engine(ratings, ratings.n_items, PASSES)
    people: Any = BlockRatings.write(ratings, _folder() / "blocks", blocks=8)
    found["blocks"] = one_engine(people, ratings.n_items, PASSES)
    if (spark := _spark()) is not None:
        people = _spark_people(spark, ratings)
        people.ready()
        found["spark"] = one_engine(people, ratings.n_items, PASSES)
        spark.stop()
    return found


class Stopwatch:
    """Laps, in CPU seconds of all processes and on the clock."""

    def __init__(self) -> None:
        self._now = (family_cpu(), time.perf_counter())

    def lap(self) -> dict[str, float]:
        cpu, clock = self._now
        self._now = (family_cpu(), time.perf_counter())
        return {"cpu": self._now[0] - cpu, "seconds": self._now[1] - clock}


def train_on_spark(share: float, rank: float) -> dict[str, Any]:
    """A training of ours in a new session of Spark; empty where there is none."""
    from discreet.models.dpmf import DPMF

    logging.getLogger("discreet").setLevel(logging.ERROR)
    spark = _spark()
    if spark is None:
        return {}
    people = _spark_people(spark, load_dataset("twin-ml20m", scale=share))
    spark.read.parquet(str(_folder() / "ratings.parquet")).count()
    watch = Stopwatch()
    people.ready()
    sealing = watch.lap()
    model = DPMF(int(rank), epsilon=5.0, goal="rating", rating_range=SCALE, random_state=0).fit(
        people
    )
    found = {
        "sealing": sealing,
        "train": watch.lap(),
        "releases": len(model.privacy_.ledger.entries),
    }
    spark.stop()
    return found


def als_of_spark(share: float, rank: float) -> dict[str, Any]:
    """Spark's own ALS in a new session."""
    from pyspark.ml.recommendation import ALS

    spark = _spark()
    _write_ratings(load_dataset("twin-ml20m", scale=share))
    frame = spark.read.parquet(str(_folder() / "ratings.parquet"))
    frame.count()
    watch = Stopwatch()
    als = ALS(
        rank=int(rank),
        maxIter=SPARK_ITERATIONS,
        userCol="user_id",
        itemCol="item_id",
        ratingCol="rating",
    )
    model = als.fit(frame)
    model.itemFactors.count()
    found = {"als": watch.lap()}
    spark.stop()
    return found


def _spark() -> Any:
    """A session of Spark on this machine, or None where there is none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "6g").config(
        "spark.ui.showConsoleProgress", "false"
    )
    try:
        spark = builder.getOrCreate()
    except Exception:  # no Java
        return None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _write_ratings(ratings: Ratings) -> Path:
    from pyarrow import parquet

    file = _folder() / "ratings.parquet"
    parquet.write_table(ratings.to_frame("pyarrow"), file)
    return file


def _spark_people(spark: Any, ratings: Ratings) -> Any:
    from discreet.engines.spark import SparkRatings

    frame = spark.read.parquet(str(_write_ratings(ratings)))
    return SparkRatings(frame, items=ratings.item_ids.tolist(), rating_range=SCALE, partitions=8)


_WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "passes": passes,
    "spark": train_on_spark,
    "als": als_of_spark,
    "write": lambda n, items: write(int(n), int(items)),
    "blocks": lambda n, items: _train_blocks(),
    "memory": lambda n, items: train(in_memory(int(n), int(items))),
}


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    print(json.dumps(_WORK[what](*map(float, given))))
