"""Kill -9 at random moments of `Timeline.add`, and a year of weekly rows.

    python -m benchmarks.timeline_stress kill 50
    python -m benchmarks.timeline_stress year 100000
    python -m benchmarks.timeline_stress blocks 10000000

The first kills a process that adds a row, runs it again, and checks each time: no row was drawn
twice, no user's entry changed, and `verify` holds. The second prints seconds per row, memory and
the size of the state. The third adds one row of so many interactions from block files.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from discreet.data.ratings import Ratings
from discreet.engines.blocks import BlockRatings
from discreet.timeline import Timeline
from discreet.timeline.entries import VARIABLE, EntryTable
from discreet.timeline.public_state import Records


def make_ratings(users: int, items: int, each: int, seed: int, first: int = 0) -> Ratings:
    """Return ratings of users with two tastes and popular items."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), each)
    taste = np.repeat(rng.integers(0, 2, users), each)
    item = (items * rng.random(users * each) ** 3).astype(np.int64) // 2 * 2 + taste
    item = np.minimum(item, items - 1)
    stars = rng.integers(3, 6, len(user)).astype(float)
    return Ratings.from_arrays(user + first, item, stars, item_ids=np.arange(items))


def _add(path: str, ratings: Ratings, ready: object) -> None:
    ready.set()  # type: ignore[attr-defined]
    Timeline(path).add(ratings)


def kill(times: int) -> None:
    """Kill a process at so many random moments of `add`."""
    os.environ[VARIABLE] = "5a" * 32
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.timeline"
        line = Timeline(path, epsilon=8, rating_range=(1, 5))
        ratings = make_ratings(2000, 60, 10, 0)
        start = time.perf_counter()
        line.add(ratings)
        start = time.perf_counter()
        line.add(ratings)
        length = time.perf_counter() - start
        killed = 0
        known = EntryTable.read(line.secret_path)
        for at in range(times):
            more = make_ratings(2000 + 20 * at, 60, 10, 0)
            ready = context.Event()
            process = context.Process(target=_add, args=(str(path), more, ready))
            process.start()
            ready.wait()
            time.sleep(random.uniform(0, 1.2 * length))
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGKILL)
                killed += 1
            process.join()
            known = _check(path, known)
        line = Timeline(path)
        line.add(ratings)
        found = line.verify()
        print(
            f"{times} processes, {killed} killed: {found.rows} rows published, {found.missing}"
            " drawn and lost, none twice, every age kept, verified"
        )


def _check(path: Path, known: EntryTable) -> EntryTable:
    line = Timeline(path)
    line.verify()
    drawn = Records.read(path).list_drawn
    assert len(set(drawn)) == len(drawn), "a row was drawn twice"
    table = EntryTable.read(line.secret_path)
    assert np.array_equal(table.entry_of(known.hashes), known.entry), "an age was lost"
    return table


def year(users: int) -> None:
    """Add 52 rows; users arrive over the year, each with 20 ratings of 2,000 items."""
    os.environ[VARIABLE] = "5a" * 32
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.timeline"
        line = Timeline(path, epsilon=1, rating_range=(1, 5))
        seconds = []
        for week in range(52):
            ratings = make_ratings(users // 2 + users * week // 104, 2000, 20, 0)
            start = time.process_time()
            line.add(ratings)
            seconds.append(time.process_time() - start)
        start = time.process_time()
        model = line.model()
        whole = time.process_time() - start
        public = sum(file.stat().st_size for file in path.iterdir())
        secret = sum(file.stat().st_size for file in line.secret_path.iterdir())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{users:,} users, 52 rows: {np.median(seconds):.1f} s of CPU a row (last"
            f" {seconds[-1]:.1f}), model {whole:.1f} s, public {public / 1e6:.1f} MB, secret"
            f" {secret / 1e6:.2f} MB, {memory:,.0f} MB of memory. {model.summary_}"
        )


def blocks(interactions: int) -> None:
    """Add one row of so many interactions, 50 of each user, from block files."""
    os.environ[VARIABLE] = "5a" * 32
    with tempfile.TemporaryDirectory() as folder:
        ratings = make_ratings(interactions // 50, 5000, 50, 0)
        count = ratings.n_ratings
        source = BlockRatings.write(ratings, Path(folder) / "blocks", blocks=64)
        del ratings
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        line = Timeline(Path(folder) / "x.timeline", epsilon=1, rating_range=(1, 5))
        start = time.process_time()
        line.add(source)
        seconds = time.process_time() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{count:,} different interactions of {interactions // 50:,} users in block files: one"
            f" row {seconds:.0f} s of CPU, {line.rows_[0]['core']:,} items with pairs, peak memory"
            f" {memory:,.0f} MB ({before:,.0f} MB before, for generating the data)"
        )


if __name__ == "__main__":
    {"kill": kill, "year": year, "blocks": blocks}[sys.argv[1]](int(sys.argv[2]))
