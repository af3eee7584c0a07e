"""Time and memory of reading a large CSV into ``Ratings``, beside a bare arrow read of the same file.

Both are measured in fresh processes on the same machine in the same run, alternating; the best of each counts. The
goal: at most three times the bare read and at most 1.5 GB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_RATIO = 3.0
MAX_BYTES = 1.5e9

# Imports and the first touch of the file are not what is compared, so both happen before the clock starts.
_MEASURE = """
import json, resource, sys, time
path, what = sys.argv[1:]
if what == "arrow":
    from pyarrow import csv
    act = lambda: csv.read_csv(path).num_rows
else:
    from discreet.data.ratings import Ratings
    act = lambda: Ratings.read(path).n_ratings
start = time.perf_counter()
rows = act()
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps({"seconds": seconds, "rows": rows, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}))
"""


def write_csv(path: Path, rows: int = 10_000_000, users: int = 70_000, items: int = 10_000, seed: int = 0) -> None:
    """A file in the manner of MovieLens, but with rows in random order and with a few repeated pairs."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(seed)
    names = ["user_id", "item_id", "rating", "timestamp"]
    with csv.CSVWriter(path, pa.schema([(n, pa.float64() if n == "rating" else pa.int64()) for n in names])) as writer:
        for start in range(0, rows, 1_000_000):
            n = min(1_000_000, rows - start)
            columns = [
                rng.integers(1, users + 1, n),
                (items * rng.random(n) ** 2.5).astype(np.int64) + 1,  # a few items get most of the ratings
                rng.integers(1, 11, n) / 2,
                rng.integers(800_000_000, 1_200_000_000, n),
            ]
            writer.write_table(pa.table(columns, names=names))


def measure(path: Path, what: str) -> dict[str, Any]:
    """Seconds, rows and peak memory (bytes) of one read in a fresh process; ``what`` is "arrow" or "ratings"."""
    run = subprocess.run([sys.executable, "-c", _MEASURE, str(path), what], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def benchmark(rows: int = 10_000_000, repeats: int = 3, path: Path | None = None) -> dict[str, Any]:
    """Ratio of times and peak memory, with whether each meets its goal.

    Parameters
    ----------
    rows : int
        Rows of the file that is written (to a temporary folder, removed afterwards) unless ``path`` is given.
    repeats : int
        How often each read is measured.
    path : Path, optional
        A file to read instead.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.csv" if path is None else path
        if path is None:
            write_csv(file, rows)
        size = file.stat().st_size
        runs = [(measure(file, "arrow"), measure(file, "ratings")) for _ in range(repeats)]
    arrow = min(bare["seconds"] for bare, _ in runs)
    ours = min(own["seconds"] for _, own in runs)
    peak = max(own["peak"] for _, own in runs)
    return {
        "rows": runs[0][0]["rows"],
        "file_megabytes": round(size / 1e6, 1),
        "arrow_seconds": round(arrow, 3),
        "ratings_seconds": round(ours, 3),
        "ratio": round(ours / arrow, 2),
        "max_ratio": MAX_RATIO,
        "peak_gigabytes": round(peak / 1e9, 3),
        "max_gigabytes": MAX_BYTES / 1e9,
        "arrow_peak_gigabytes": round(max(bare["peak"] for bare, _ in runs) / 1e9, 3),
        "passed": ours <= MAX_RATIO * arrow and peak <= MAX_BYTES,
    }


def section(quick: bool) -> dict[str, Any]:
    """The section of ``discreet bench``."""
    return benchmark(500_000 if quick else 10_000_000, repeats=2)


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    return [
        "## Reading a CSV",
        "",
        f"{result['rows']:,} rows ({result['file_megabytes']:.0f} MB) into `Ratings`: "
        f"{result['ratings_seconds']:.2f} s, {result['ratio']:.2f} times a bare `pyarrow.csv.read_csv` "
        f"({result['arrow_seconds']:.2f} s; goal: at most 3), peak memory {result['peak_gigabytes']:.2f} GB "
        "(goal: at most 1.5).",
    ]
