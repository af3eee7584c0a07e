"""Time and memory of reading large files into ``Ratings``, against a bare arrow read of the same
file.

Files of four columns in the manner of MovieLens, in random order and with a few repeated pairs; ids
are integers, text, or text that Parquet keeps as a dictionary. Both reads are measured in fresh
processes on the same machine in the same run, in turn; the best of each counts. The goals: at most
twice the bare read, and a peak of at most three times the memory that the ratings take in the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_RATIO = 2.0
MAX_PEAK = 3.0
USERS = 70_000  # for every ten million rows
ITEMS = 10_000
FILES = (
    ("csv", "integers"),
    ("parquet", "integers"),
    ("csv", "text"),
    ("parquet", "text"),
    ("parquet", "dictionary"),
)
LARGE = (("csv", "integers"), ("parquet", "integers"))  # of ten times the rows

# Imports are not what is compared, so they happen before the clock starts.
_MEASURE = """
import json, resource, sys, time
path, what = sys.argv[1:]
if what == "ratings":
    from discreet.data.ratings import Ratings
    act = lambda: Ratings.read(path)
elif path.endswith(".parquet"):
    from pyarrow import parquet
    act = lambda: parquet.read_table(path)
else:
    from pyarrow import csv
    act = lambda: csv.read_csv(path)
def peak():
    try:  # of this program alone; getrusage also remembers the process that started it
        status = open("/proc/self/status").read()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
before = peak()
start = time.perf_counter()
found = act()
seconds = time.perf_counter() - start
size = 0
if what == "ratings":
    arrays = [found.indptr, found.indices, found.values, found.timestamps]
    arrays += [found.user_ids, found.item_ids]
    size = sum(array.nbytes for array in arrays if array is not None)
print(json.dumps({"seconds": seconds, "peak": peak(), "before": before, "size": size}))
"""


def benchmark(quick: bool = False) -> dict[str, Any]:
    """Both reads of every kind of file at ten million rows, and of the largest ones at a
    hundred million.
    """
    rows = 500_000 if quick else 10_000_000
    files = [one_file(kind, ids, rows, repeats=2) for kind, ids in FILES]
    if not quick:
        files += [one_file(kind, ids, 10 * rows, repeats=1) for kind, ids in LARGE]
    return {"files": files}


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    lines = [
        "## Reading files",
        "",
        (
            "Into `Ratings`, against a bare `pyarrow.csv.read_csv` or `pyarrow.parquet.read_table`"
            " of the same file; best of alternating reads in fresh processes. Peak memory is that"
            " of the process without what it held before, against the arrays that the ratings"
            " consist of in the end."
        ),
        "",
        "| file | ids | rows | MB | arrow, s | Ratings, s | ratio | peak, GB | of the final size |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["files"]:
        lines.append(
            f"| {row['kind']} | {row['ids']} | {row['rows']:,} | {row['megabytes']:,.0f} |"
            f" {row['arrow']:.2f} | {row['ours']:.2f} | {row['ours'] / row['arrow']:.2f} |"
            f" {row['peak'] / 1e9:.2f} | {row['peak'] / row['size']:.1f} |"
        )
    return [
        *lines,
        "",
        f"Goals: a ratio of at most {MAX_RATIO:g}, and at most {MAX_PEAK:g} times the final size.",
    ]


def one_file(kind: str, ids: str, rows: int, repeats: int) -> dict[str, Any]:
    """Seconds of both reads, and peak memory and size of the ratings; the file is removed
    afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        path = Path(folder) / f"ratings.{kind}"
        write_file(path, ids, rows)
        if hasattr(os, "sync"):
            os.sync()  # or the first read would run during the writing
        megabytes = path.stat().st_size / 1e6
        runs = [(_measure(path, "arrow"), _measure(path, "ratings")) for _ in range(repeats)]
    return {
        "kind": kind,
        "ids": ids,
        "rows": rows,
        "megabytes": megabytes,
        "arrow": min(bare["seconds"] for bare, _ in runs),
        "ours": min(own["seconds"] for _, own in runs),
        "peak": max(own["peak"] - own["before"] for _, own in runs),
        "size": runs[0][1]["size"],
    }


def write_file(path: Path, ids: str = "integers", rows: int = 10_000_000, seed: int = 0) -> None:
    """A file in the manner of MovieLens, a million rows at a time."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng = np.random.default_rng(seed)
    scale = max(rows // 10_000_000, 1)
    id_type = {
        "integers": pa.int64(),
        "text": pa.string(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
    }[ids]
    schema = pa.schema(
        [
            ("user_id", id_type),
            ("item_id", id_type),
            ("rating", pa.float64()),
            ("timestamp", pa.int64()),
        ]
    )
    writer = (
        parquet.ParquetWriter(path, schema)
        if path.suffix == ".parquet"
        else csv.CSVWriter(path, schema)
    )
    with writer:
        for start in range(0, rows, 1_000_000):
            n = min(1_000_000, rows - start)
            columns = [
                _ids(rng.integers(1, USERS * scale + 1, n), "user", id_type),
                _ids((ITEMS * scale * rng.random(n) ** 2.5).astype(np.int64) + 1, "item", id_type),
                pa.array(rng.integers(1, 11, n) / 2),
                pa.array(rng.integers(800_000_000, 1_200_000_000, n)),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def _ids(numbers: Any, word: str, kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    plain = pa.array(numbers)
    if pa.types.is_integer(kind):
        return plain
    text = compute.binary_join_element_wise(word, plain.cast(pa.string()), "-")
    return text if pa.types.is_string(kind) else text.dictionary_encode()


def _measure(path: Path, what: str) -> dict[str, Any]:
    """One read in a fresh process; ``what`` is "arrow" or "ratings"."""
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path), what],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(run.stdout)
    return result
