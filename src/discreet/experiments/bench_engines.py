"""Engines beside each other: one pass in CPU seconds, whole trainings, and how time and memory grow with the data.

Everything runs in processes of its own, so that peak memory is that of one training. CPU seconds are those of the whole
family of processes (Spark's Java and its Python workers included), because machines are shared and wall clocks with
them. Data are the twin of MovieLens 20M for the passes, and generated people of 100 ratings each for the growth.
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
GOALS = {"blocks": 1.3, "spark": 2.0, "als": 3.0, "gigabytes": 1.5}
SIZES = ((1_000_000, 5_000), (10_000_000, 20_000), (100_000_000, 50_000))
BLOCKS = {1_000_000: 8, 10_000_000: 8, 100_000_000: 64}


def benchmark(quick: bool = False) -> dict[str, Any]:
    """All of it; `quick` on a twentieth of the data, and without the largest size."""
    sizes = [(n // 20, items) for n, items in SIZES[:2]] if quick else list(SIZES)
    share = 0.05 if quick else 1.0
    found: dict[str, Any] = {"passes": _child("passes", share), "als": _child("als", share), "sizes": []}
    for n, items in sizes:
        found["sizes"].append({"ratings": n, "items": items} | {e: _child(e, n, items) for e in ("blocks", "memory")})
    return found


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    passes, als = result["passes"], result["als"]
    lines = [
        "## Engines",
        "",
        f"One pass (every user solves and looks, a Gram matrix and a gradient of rank {RANK + 1} are added up) over "
        f"{passes['ratings']:,} ratings of {passes['items']:,} items in {passes['parts']} blocks, in CPU seconds of "
        "all processes, median of the later passes; all three give the same bits.",
        "",
        "| engine | CPU seconds | times memory | goal |",
        "|---|---|---|---|",
        f"| memory | {passes['memory']:.2f} | 1 | |",
    ]
    for engine in ("blocks", "spark"):
        if engine in passes:
            times = passes[engine] / passes["memory"]
            lines.append(f"| {engine} | {passes[engine]:.2f} | {times:.2f} | at most {GOALS[engine]:g} |")
    if "spark" in als:
        lines += [
            "",
            f"A whole training on Spark, {als['master']}, the same ratings, rank {RANK}, same run: DPMF for ratings "
            f"{als['spark']:.0f} s ({als['releases']} releases; sealing {als['sealing']:.0f} s, once for all "
            f"trainings), Spark's own ALS {als['als']:.0f} s ({als['iterations']} iterations, not private): "
            f"{als['als'] / als['spark']:.1f} times as fast with sealed blocks, "
            f"{als['als'] / (als['spark'] + als['sealing']):.1f} times with sealing (goal: {GOALS['als']:g}).",
        ]
    lines += [
        "",
        f"DPMF for ratings (rank {RANK}, 8 steps, {PER_USER} ratings a person), a whole training, by the size of the "
        "data; peak memory of a process that trains and does nothing else.",
        "",
        "| ratings | items | blocks: seconds | CPU seconds | peak GB | memory: seconds | CPU seconds | peak GB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["sizes"]:
        cells = [f"{row[e][key]:.{digits}f}" for e in ("blocks", "memory") for key, digits in _CELLS]
        lines.append(f"| {row['ratings']:,} | {row['items']:,} | {' | '.join(cells)} |")
    first, last = result["sizes"][0], result["sizes"][-1]
    growth = np.log(last["blocks"]["cpu"] / first["blocks"]["cpu"]) / np.log(last["ratings"] / first["ratings"])
    return [
        *lines,
        "",
        f"CPU seconds of the block engine grow as the number of ratings to the power {growth:.2f} from the first row "
        f"to the last (goal for its peak memory at 10⁸ ratings: at most {GOALS['gigabytes']:g} GB).",
    ]


_CELLS = (("seconds", 0), ("cpu", 0), ("gigabytes", 2))


# ------------------------------------------------------------------ people


def generated(n: int, items: int, seed: int = 0) -> Iterator[tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """(first user, indptr, items, ratings) of ten thousand people at a time, with a few popular items."""
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
    indptr = np.concatenate([*(part[1][:-1] + end for part, end in zip(parts, ends[:-1], strict=True)), ends[-1:]])
    item = np.concatenate([part[2] for part in parts])
    rating = np.concatenate([part[3] for part in parts])
    return Ratings.from_indices(indptr, item, rating, np.arange(len(indptr) - 1), np.arange(items), catalogue=True)


# ------------------------------------------------------------------ what a process does


def _child(what: str, *given: Any) -> dict[str, Any]:
    call = [sys.executable, "-m", __name__, what, *map(str, given)]
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        settings = os.environ | {"PYSPARK_PYTHON": sys.executable, "DISCREET_BENCH_FOLDER": folder}
        if what == "blocks":  # written by another process, whose memory is not the training's
            subprocess.run([*call[:3], "write", *call[4:]], check=True, capture_output=True, env=settings)
        done = subprocess.run(call, check=True, capture_output=True, text=True, env=settings)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _folder() -> Path:
    return Path(os.environ["DISCREET_BENCH_FOLDER"])


def write(n: int, items: int) -> dict[str, Any]:
    from discreet.engines.blocks import Blocks

    Blocks.write(frames(n, items), _folder() / "blocks", blocks=BLOCKS.get(n, 8), items=list(range(items)))
    return {}


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


def _train_blocks(n: int, items: int) -> dict[str, Any]:
    from discreet.engines.blocks import Blocks

    return train(Blocks(_folder() / "blocks"))


def _train_memory(n: int, items: int) -> dict[str, Any]:
    return train(in_memory(n, items))


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
    from discreet.engines.trial import trial_pass

    seconds = []
    step = trial_pass(people, n_items, RANK)
    for number in range(passes):
        before = family_cpu()
        step(number)
        seconds.append(family_cpu() - before)
    return float(np.median(seconds[passes // 2 :]))


def passes(share: float) -> dict[str, Any]:
    from discreet.engines.blocks import Blocks

    ratings = load_dataset("twin-ml20m", scale=share)
    found: dict[str, Any] = {"ratings": ratings.n_ratings, "items": ratings.n_items, "parts": 8}
    found["memory"] = one_engine(ratings, ratings.n_items, 8)
    people: Any = Blocks.write(ratings, _folder() / "blocks", blocks=8)
    found["blocks"] = one_engine(people, ratings.n_items, 8)
    if (spark := _spark()) is not None:
        people = _spark_people(spark, ratings)
        people.ready()
        found["spark"] = one_engine(people, ratings.n_items, 24)
        spark.stop()
    return found


def als(share: float) -> dict[str, Any]:
    from discreet.models.dpmf import DPMF

    logging.getLogger("discreet").setLevel(logging.ERROR)
    spark = _spark()
    if spark is None:
        return {}
    from pyspark.ml.recommendation import ALS

    ratings = load_dataset("twin-ml20m", scale=share)
    people = _spark_people(spark, ratings)
    start = time.perf_counter()
    people.ready()
    sealing = time.perf_counter() - start
    start = time.perf_counter()
    model = DPMF(RANK, epsilon=5.0, goal="rating", rating_range=SCALE, random_state=0).fit(people)
    ours = time.perf_counter() - start
    frame = spark.read.parquet(str(_folder() / "ratings.parquet"))
    start = time.perf_counter()
    ALS(rank=RANK, maxIter=10, regParam=0.1, userCol="user_id", itemCol="item_id", ratingCol="rating").fit(frame)
    theirs = time.perf_counter() - start
    releases = len(model.privacy_.ledger.entries)
    spark.stop()
    return {
        "spark": ours,
        "sealing": sealing,
        "als": theirs,
        "iterations": 10,
        "releases": releases,
        "master": "local[2]",
    }


def _spark() -> Any:
    """A session of Spark on this machine, or None where there is none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "6g").config("spark.ui.showConsoleProgress", "false")
    try:
        spark = builder.getOrCreate()
    except Exception:  # no Java
        return None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _spark_people(spark: Any, ratings: Ratings) -> Any:
    from pyarrow import parquet

    from discreet.engines.spark import SparkRatings

    file = _folder() / "ratings.parquet"
    parquet.write_table(ratings.to_frame("pyarrow"), file)
    frame = spark.read.parquet(str(file))
    return SparkRatings(frame, items=ratings.item_ids.tolist(), rating_range=SCALE, partitions=8)


_WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "write": write,
    "blocks": _train_blocks,
    "memory": _train_memory,
}


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what in ("passes", "als"):
        print(json.dumps({"passes": passes, "als": als}[what](float(given[0]))))
    else:
        print(json.dumps(_WORK[what](*map(int, given))))
