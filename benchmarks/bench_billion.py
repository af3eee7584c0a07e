"""From a Parquet folder to models and lists, from 10⁷ ratings up to 10⁹, in bounded memory.

Ratings of 100 per user are generated in a stream, with groups of users that prefer groups of items.
The phases are those of a large deployment: ratings arrive as a folder of Parquet files, are divided
into block files, both kinds of DPMF train on them, and every user gets a list. Each phase runs in a
process of its own, so that its peak memory is its own, and reports CPU seconds.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

PER_USER = 100
ITEMS = {10**6: 5_000, 10**7: 20_000, 10**8: 50_000, 10**9: 100_000}
LARGEST = 10**8  # ratings without --scale: about ten CPU minutes
SCALE = "DISCREET_BENCH_SCALE"  # of the environment: --scale
PER_BLOCK = 1_500_000  # ratings, as docs/scale.md advises
PER_FILE = 10_000_000  # ratings of a Parquet file
CHUNK = 10_000  # users generated at a time: 1,000,000 ratings
GROUPS = 8
RANK = 8
N = 20
GIGABYTES = 1.5
PHASES = ("generate", "blocks", "ranking", "rating", "lists")
SHOWN = {
    "generate": "generate Parquet files",
    "blocks": "divide into block files",
    "ranking": "train DPMF for lists",
    "rating": "train DPMF for ratings",
    "lists": f"lists of {N} for all users, to Parquet",
}


def benchmark(quick: bool) -> dict[str, Any]:
    """CPU seconds, peak memory and bytes by size and phase; `quick` at 10⁶ only."""
    largest = int(os.environ.get(SCALE, LARGEST))
    sizes = [10**6] if quick else [size for size in ITEMS if 10**7 <= size <= largest]
    return {"sizes": [{"ratings": size} | _measure(size) for size in sizes]}


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    sizes = result["sizes"]
    lines = [
        "## A billion ratings on one machine",
        "",
        (
            f"{PER_USER} ratings per user, two threads. From a folder of Parquet files to two"
            f" private models (rank at most {RANK}, ε = 5) and to lists, each phase in a process of"
            " its own: CPU seconds, and peak memory of that process (goal: at most"
            f" {GIGABYTES:g} GB). The slope is that of the logarithm of CPU seconds from the"
            " smallest size to the largest; 1 is linear."
        ),
        "",
        "| phase | " + " | ".join(f"{_name(row)}: CPU s · GB" for row in sizes) + " | slope |",
        "|---|" + "---|" * (len(sizes) + 1),
    ]
    for phase in PHASES:
        cells = [f"{row[phase]['cpu']:.1f} · {row[phase]['gigabytes']:.2f}" for row in sizes]
        lines.append(f"| {SHOWN[phase]} | {' | '.join(cells)} | {_slope(sizes, phase)} |")
    last = sizes[-1]
    disk = ", ".join(
        f"{name} {last[phase]['bytes'] / 1e9:.2f} GB"
        for name, phase in (("Parquet", "generate"), ("blocks", "blocks"), ("lists", "lists"))
    )
    steps = [
        f"- {SHOWN[goal]}: "
        + ", ".join(f"{name} {cpu:.0f} s" for name, cpu in last[goal]["steps"].items())
        + f". {last[goal]['summary']}"
        for goal in ("ranking", "rating")
    ]
    return [
        *lines,
        "",
        "CPU seconds of the longest steps at the largest size, and what was learned:",
        "",
        *steps,
        "",
        f"On disk at the largest size: {disk}; while blocks are written, {_scratch(last)} more.",
    ]


def _name(row: dict[str, Any]) -> str:
    users = row["ratings"] // PER_USER
    return f"{row['ratings']:.0e} × {users:,} × {ITEMS[row['ratings']]:,}".replace("e+0", "e")


def _scratch(row: dict[str, Any]) -> str:
    return f"{row['blocks']['scratch'] / 1e9:.1f} GB"


def _slope(sizes: list[dict[str, Any]], phase: str) -> str:
    if len(sizes) < 2:
        return "–"
    times = np.log(sizes[-1][phase]["cpu"] / sizes[0][phase]["cpu"])
    return f"{times / np.log(sizes[-1]['ratings'] / sizes[0]['ratings']):.2f}"


# ------------------------------------------------------------------ ratings


def generate(ratings: int, seed: int = 0) -> Iterator[pa.Table]:
    """Yield tables of user, item and rating, of `CHUNK` users at a time.

    A user of group g rates popular items, half of them from the items of that group (i mod 8 = g),
    which get half a star more. Every item has a mean of its own.
    """
    items = ITEMS[ratings]
    means = np.random.default_rng(seed).normal(3.2, 0.4, items).astype(np.float32)
    for begin in range(0, ratings // PER_USER, CHUNK):
        rng = np.random.default_rng([seed, begin])
        users = min(CHUNK, ratings // PER_USER - begin)
        group = rng.integers(0, GROUPS, (users, 1), dtype=np.int32)
        draws = rng.random((users, PER_USER + 8), dtype=np.float32)
        place = (items // GROUPS * draws**2.5).astype(np.int32)
        other = rng.integers(0, 2 * GROUPS, place.shape, dtype=np.int32)
        item = place * GROUPS + np.where(other < GROUPS, other, group)
        item.sort(axis=1)  # equal items of a user are then adjacent, and dropped
        new = np.diff(item, axis=1, prepend=-1) > 0
        user = np.repeat(np.arange(begin, begin + users, dtype=np.int64), new.sum(axis=1))
        own = np.broadcast_to(group, item.shape)[new]
        item = item[new]
        liked = means[item] + 0.5 * (item % GROUPS == own)
        liked += rng.standard_normal(len(item), dtype=np.float32)
        rating = np.rint(liked).clip(1, 5)
        yield pa.table({"user": user, "item": item, "rating": rating})


# ------------------------------------------------------------------ phases, each in a process


def _measure(ratings: int) -> dict[str, Any]:
    place = os.environ.get("DISCREET_BENCH_FOLDER")  # a large disk, if /tmp is small
    with tempfile.TemporaryDirectory(prefix="discreet-bench-", dir=place) as folder:
        return {phase: _child(phase, ratings, folder) for phase in PHASES}


def _child(phase: str, ratings: int, folder: str) -> dict[str, Any]:
    words = [sys.executable, "-m", __name__, phase, str(ratings), folder]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _generate(ratings: int, folder: Path) -> dict[str, Any]:
    from pyarrow import parquet

    target = folder / "ratings"
    target.mkdir()
    each = PER_FILE // (CHUNK * PER_USER)
    writer = None
    for at, table in enumerate(generate(ratings)):
        if at % each == 0:
            if writer is not None:
                writer.close()
            writer = parquet.ParquetWriter(target / f"{at // each:05d}.parquet", table.schema)
        assert writer is not None
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return {"bytes": _bytes(target)}


def _blocks(ratings: int, folder: Path) -> dict[str, Any]:
    from discreet.engines.blocks import BlockRatings
    from discreet.engines.blocks.writer import row_type

    catalog = list(range(ITEMS[ratings]))
    count = max(8, -(-ratings // PER_BLOCK))
    BlockRatings.write(folder / "ratings", folder / "blocks", blocks=count, items=catalog)
    return {"bytes": _bytes(folder / "blocks"), "scratch": row_type(timed=False).itemsize * ratings}


def _train(goal: Literal["ranking", "rating"], folder: Path) -> dict[str, Any]:
    """Train and save; also the CPU seconds of the steps that take most of them."""
    from discreet.engines.blocks import BlockRatings
    from discreet.models.dpmf import DPMF

    spent: dict[str, float] = {}
    since = time.process_time()
    step = "begin"

    def note(done: int, total: int, text: str) -> None:
        nonlocal since, step
        now = time.process_time()
        spent[step] = spent.get(step, 0.0) + now - since
        since = now
        step = text

    model = DPMF(RANK, goal=goal, epsilon=5.0, rating_range=(1.0, 5.0), random_state=0)
    model.fit(BlockRatings(folder / "blocks"), progress=note)
    note(0, 0, "end")
    model.save(folder / goal)
    return {
        "releases": len(model.privacy_.ledger.entries),
        "summary": model.summary_,
        "steps": dict(sorted(spent.items(), key=lambda step: -step[1])[:6]),
    }


def _lists(ratings: int, folder: Path) -> dict[str, Any]:
    """Lists file by file: every file has all ratings of its users."""
    from pyarrow import parquet

    from discreet.data.ratings import Ratings
    from discreet.models.recommend_table import recommend_table
    from discreet.models.storage import load

    model = load(folder / "ranking")
    target = folder / "lists"
    target.mkdir()
    catalog = list(range(ITEMS[ratings]))
    for file in sorted((folder / "ratings").iterdir()):
        writer = None
        for group in _row_groups(file):
            known = Ratings.from_frame(group, items=catalog)
            table = recommend_table(model, known, n=N, progress=False)
            assert table is not None
            if writer is None:
                writer = parquet.ParquetWriter(target / file.name, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return {"bytes": _bytes(target)}


def _row_groups(file: Path) -> Iterator[pa.Table]:
    from pyarrow import parquet

    stored = parquet.ParquetFile(file)
    for number in range(stored.num_row_groups):
        yield stored.read_row_group(number)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def main(phase: str, ratings: int, folder: Path) -> None:
    """Run one phase here, and print what it took."""
    logging.getLogger("discreet").setLevel(logging.ERROR)
    start = time.perf_counter()
    work = {
        "generate": lambda: _generate(ratings, folder),
        "blocks": lambda: _blocks(ratings, folder),
        "ranking": lambda: _train("ranking", folder),
        "rating": lambda: _train("rating", folder),
        "lists": lambda: _lists(ratings, folder),
    }
    found = work[phase]()
    unit = 1 if sys.platform == "darwin" else 1024
    found["seconds"] = time.perf_counter() - start
    found["cpu"] = time.process_time()
    found["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
