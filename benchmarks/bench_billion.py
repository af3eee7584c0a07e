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

from benchmarks import bench_machine

PER_USER = 100
ITEMS = {10**6: 5_000, 10**7: 20_000, 10**8: 50_000, 10**9: 100_000}
LARGEST = 10**8  # ratings without --scale: about ten CPU minutes
SCALE = "DISCREET_BENCH_SCALE"  # of the environment: --scale
KEPT = "DISCREET_BENCH_KEEP"  # of the environment: a folder where phases that were measured stay
CHOSEN = "DISCREET_BENCH_PHASES"  # of the environment: phases to run in a kept folder
PER_BLOCK = 1_500_000  # ratings, as docs/scale.md advises
PER_FILE = 10_000_000  # ratings of a Parquet file
CHUNK = 10_000  # users generated at a time: 1,000,000 ratings
GROUPS = 8
RANK = 8
N = 20
START = time.perf_counter()  # of this process
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
            f"{PER_USER} ratings per user. From a folder of Parquet files to two"
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
        cells = [_describe_phase(row, phase) for row in sizes]
        lines.append(f"| {SHOWN[phase]} | {' | '.join(cells)} | {_slope(sizes, phase)} |")
    last = [row for row in sizes if "blocks" in row][-1]
    disk = ", ".join(
        f"{name} {last[phase]['bytes'] / 1e9:.2f} GB"
        for name, phase in (("Parquet", "generate"), ("blocks", "blocks"), ("lists", "lists"))
        if phase in last
    )
    steps = [
        f"- {SHOWN[goal]}, {row['ratings']:.0e} ratings: ".replace("e+0", "e")
        + ", ".join(f"{name} {cpu:.0f} s" for name, cpu in row[goal]["steps"].items())
        + f". {row[goal]['summary']}"
        for goal in ("ranking", "rating")
        for row in [row for row in sizes if goal in row][-1:]
    ]
    return [
        *lines,
        "",
        "CPU seconds of the longest steps at the largest size measured, and what was learned:",
        "",
        *steps,
        "",
        f"On disk for {_name(last)}: {disk}; while blocks are written, {_scratch(last)} more.",
        *(["", _describe_pieces(sizes)] if any("kept" in row for row in sizes) else []),
    ]


def _describe_pieces(sizes: list[dict[str, Any]]) -> str:
    """Say that phases ran at different times, and with how many threads."""
    rows = [row[phase] for row in sizes for phase in PHASES if phase in row]
    threads = sorted({int(row["threads"]) for row in rows})
    pieces = max(int(row["pieces"]) for row in rows)
    codes = sorted({str(row["code"]) for row in rows})
    loads = sorted(float(row["load"]) for row in rows)
    return (
        f"Phases ran one after the other in a kept folder (`{KEPT}`), each in"
        f" {'one piece' if pieces == 1 else f'at most {pieces} pieces'}, of"
        f" {' and '.join(codes)}; load before a phase {loads[0]:.1f} to {loads[-1]:.1f};"
        f" threads: {', '.join(map(str, threads))}. The conditions above are those when the page"
        " was written. CPU seconds are summed over pieces, and memory is that of the largest."
        " A dash: not run."
    )


def _describe_phase(row: dict[str, Any], phase: str) -> str:
    """CPU seconds and memory, or a dash for what was not measured."""
    return f"{row[phase]['cpu']:.1f} · {row[phase]['gigabytes']:.2f}" if phase in row else "–"


def _name(row: dict[str, Any]) -> str:
    users = row["ratings"] // PER_USER
    return f"{row['ratings']:.0e} × {users:,} × {ITEMS[row['ratings']]:,}".replace("e+0", "e")


def _scratch(row: dict[str, Any]) -> str:
    return f"{row['blocks']['scratch'] / 1e9:.1f} GB"


def _slope(sizes: list[dict[str, Any]], phase: str) -> str:
    found = [row for row in sizes if phase in row]
    if len(found) < 2:
        return "–"
    times = np.log(found[-1][phase]["cpu"] / found[0][phase]["cpu"])
    return f"{times / np.log(found[-1]['ratings'] / found[0]['ratings']):.2f}"


# ------------------------------------------------------------------ ratings


def generate(
    ratings: int, seed: int = 0, begin: int = 0, end: int | None = None
) -> Iterator[pa.Table]:
    """Yield tables of user, item and rating, of `CHUNK` users at a time, from users `begin` on.

    A user of group g rates popular items, half of them from the items of that group (i mod 8 = g),
    which get half a star more. Every item has a mean of its own.
    """
    items = ITEMS[ratings]
    means = np.random.default_rng(seed).normal(3.2, 0.4, items).astype(np.float32)
    last = min(ratings // PER_USER, end or ratings)
    for first in range(begin, last, CHUNK):
        rng = np.random.default_rng([seed, first])
        users = min(CHUNK, last - first)
        group = rng.integers(0, GROUPS, (users, 1), dtype=np.int32)
        draws = rng.random((users, PER_USER + 8), dtype=np.float32)
        place = (items // GROUPS * draws**2.5).astype(np.int32)
        other = rng.integers(0, 2 * GROUPS, place.shape, dtype=np.int32)
        item = place * GROUPS + np.where(other < GROUPS, other, group)
        item.sort(axis=1)  # equal items of a user are then adjacent, and dropped
        new = np.diff(item, axis=1, prepend=-1) > 0
        user = np.repeat(np.arange(first, first + users, dtype=np.int64), new.sum(axis=1))
        own = np.broadcast_to(group, item.shape)[new]
        item = item[new]
        liked = means[item] + 0.5 * (item % GROUPS == own)
        liked += rng.standard_normal(len(item), dtype=np.float32)
        rating = np.rint(liked).clip(1, 5)
        yield pa.table({"user": user, "item": item, "rating": rating})


# ------------------------------------------------------------------ phases, each in a process


def _measure(ratings: int) -> dict[str, Any]:
    kept = os.environ.get(KEPT)
    if kept is not None:
        folder = folder_of(Path(kept), ratings)
        chosen = os.environ.get(CHOSEN, ",".join(PHASES)).split(",")
        known = [p for p in PHASES if p in chosen or (folder / f"{p}.json").exists()]
        return {phase: measure_phase(phase, ratings, folder) for phase in known} | {"kept": True}
    place = os.environ.get("DISCREET_BENCH_FOLDER")  # a large disk, if /tmp is small
    with tempfile.TemporaryDirectory(prefix="discreet-bench-", dir=place) as temporary:
        return {phase: measure_phase(phase, ratings, Path(temporary)) for phase in PHASES}


def folder_of(kept: Path, ratings: int) -> Path:
    """Return the folder of a size in a kept folder, such as ``1e9``."""
    folder = kept / f"{ratings:.0e}".replace("e+0", "e")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def measure_phase(phase: str, ratings: int, folder: Path) -> dict[str, Any]:
    """Return what a phase took, measured now or, in a kept folder, by an earlier run."""
    answer = folder / f"{phase}.json"
    if not answer.exists():
        words = [sys.executable, "-m", __name__, phase, str(ratings), str(folder)]
        subprocess.run(words, check=True)
    return dict(json.loads(answer.read_text()))


def _generate(ratings: int, folder: Path) -> None:
    target = folder / "ratings"
    target.mkdir(exist_ok=True)
    users = PER_FILE // PER_USER
    files = {
        target / f"{at:05d}.parquet": generate(ratings, begin=begin, end=begin + users)
        for at, begin in enumerate(range(0, ratings // PER_USER, users))
    }
    _write_missing(folder / "generate-pieces.json", files)


def _write_missing(pieces: Path, files: dict[Path, Iterator[pa.Table]]) -> None:
    """Write the files that are not there yet, and after each what this process took so far.

    A run that was stopped goes on with the next file; its CPU seconds count.
    """
    from pyarrow import parquet

    before = json.loads(pieces.read_text()) if pieces.exists() else []
    for file, tables in files.items():
        if file.exists():
            continue
        part = file.with_suffix(".part")
        writer = None
        for table in tables:
            writer = writer or parquet.ParquetWriter(part, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
            part.rename(file)
        pieces.write_text(json.dumps([*before, _usage()]))


def _blocks(ratings: int, folder: Path) -> dict[str, Any]:
    from discreet.engines.blocks import BlockRatings
    from discreet.engines.blocks.writer import RUN, row_type

    catalog = list(range(ITEMS[ratings]))
    count = max(8, -(-ratings // PER_BLOCK))
    BlockRatings.write(folder / "ratings", folder / "blocks", blocks=count, items=catalog)
    scratch = row_type(timed=False).itemsize * ratings + RUN.itemsize * (ratings // PER_USER)
    return {"scratch": scratch}


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


def _lists(ratings: int, folder: Path) -> None:
    """Lists file by file: every file has all ratings of its users."""
    from discreet.models.storage import load

    model = load(folder / "ranking")
    target = folder / "lists"
    target.mkdir(exist_ok=True)
    catalog = list(range(ITEMS[ratings]))
    files = {
        target / file.name: _lists_of(model, file, catalog)
        for file in sorted((folder / "ratings").glob("*.parquet"))
    }
    _write_missing(folder / "lists-pieces.json", files)


def _lists_of(model: Any, file: Path, catalog: list[int]) -> Iterator[pa.Table]:
    """Lists of the users of one file, a million ratings at a time."""
    from discreet.data.user_batches import read_by_users
    from discreet.models.recommend_table import recommend_table

    for known in read_by_users(file, items=catalog):
        table = recommend_table(model, known, n=N, progress=False)
        assert table is not None
        yield table


def main(phase: str, ratings: int, folder: Path) -> None:
    """Run one phase here, and write what it took, of which code and under which load."""
    found: dict[str, Any] = {"load": os.getloadavg()[0], "code": bench_machine.code()}
    logging.getLogger("discreet").setLevel(logging.ERROR)
    work = {
        "generate": lambda: _generate(ratings, folder),
        "blocks": lambda: _blocks(ratings, folder),
        "ranking": lambda: _train("ranking", folder),
        "rating": lambda: _train("rating", folder),
        "lists": lambda: _lists(ratings, folder),
    }
    found |= work[phase]() or {}
    written = folder / {"generate": "ratings"}.get(phase, phase)
    pieces = folder / f"{phase}-pieces.json"
    took = json.loads(pieces.read_text()) if pieces.exists() else [_usage()]
    found["bytes"] = sum(file.stat().st_size for file in written.iterdir())
    found["pieces"] = len(took)
    found["seconds"] = sum(piece["seconds"] for piece in took)
    found["cpu"] = sum(piece["cpu"] for piece in took)
    found["gigabytes"] = max(piece["gigabytes"] for piece in took)
    found["threads"] = max(piece["threads"] for piece in took)
    (folder / f"{phase}.json").write_text(json.dumps(found))


def _usage() -> dict[str, float]:
    """Return what this process took so far."""
    from discreet.kernels.threads import thread_count

    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": time.perf_counter() - START,
        "cpu": time.process_time(),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9,
        "threads": thread_count(),
    }


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
