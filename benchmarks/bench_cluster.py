"""A standalone Spark cluster on this machine: a master and two workers, processes of their own.

Ratings are those of the section billion. They are sealed from the folder of Parquet files, and DPMF
for ratings trains on them twice. In the second training one executor is killed during a release.
Noise is left out, so that the exact sums behind all releases can be compared with those of the
block engine. CPU seconds are those of the whole family of processes. A line through the two
smallest sizes is compared with what the largest took: that is the model of cost in docs/scale.md.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

from benchmarks import bench_billion, bench_engines, bench_machine

EXECUTORS = 2
MEMORY = "3g"  # of a worker: one executor with 2 GB of Java
SIZES = (10**6, 10**7, 10**8)
KILL_AT = 3  # the call of progress at which an executor is killed
KILL_AFTER = 0.5  # seconds later: in the midst of the job of a release
GOAL = 2.0  # CPU of a training on Spark, as a multiple of that of the block engine
PATIENCE = 60.0  # seconds until a master answers
LAPS = ("blocks", "sealing", "train", "killed")


def benchmark(quick: bool) -> dict[str, Any]:
    """CPU seconds of sealing and of trainings by size; `quick` at 10⁶ only."""
    largest = int(os.environ.get(bench_billion.SCALE, bench_billion.LARGEST))
    sizes = SIZES[:1] if quick else [n for n in SIZES if n <= largest]
    return {"sizes": [{"ratings": n} | _measure(n) for n in sizes]}


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    rows = result["sizes"]
    lines = [
        "## A Spark cluster on one machine",
        "",
        (
            f"A standalone master and {EXECUTORS} workers of one core, processes of their own;"
            f" {bench_billion.PER_USER} ratings per user in Parquet files, DPMF for ratings of rank"
            f" at most {bench_billion.RANK}. CPU seconds of all processes, Java included. The"
            " second training loses an executor, killed during a release. Noise is left out, so"
            " that the exact sums of all releases can be compared with those of the block engine."
        ),
        "",
        (
            "| ratings | blocks: training | Spark: sealing | training | times blocks"
            f" (goal {GOAL:g}) | with a killed executor | same bits, both | sealed, bytes per"
            " rating |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cpu = {lap: row[lap]["cpu"] for lap in LAPS}
        lines.append(
            f"| {row['ratings']:,} | {cpu['blocks']:.1f} | {cpu['sealing']:.1f} |"
            f" {cpu['train']:.1f} | {cpu['train'] / cpu['blocks']:.2f} | {cpu['killed']:.1f} |"
            f" {'yes' if row['same'] else 'NO'} | {row['bytes'] / row['ratings']:.1f} |"
        )
    codes = sorted({f"{row['code']} (load {row['load']:.1f})" for row in rows})
    return [*lines, *_show_model(rows), "", f"Measured of {', '.join(codes)}."]


def _show_model(rows: list[dict[str, Any]]) -> list[str]:
    """Fit a line through the two smallest sizes, and compare the largest with it."""
    if len(rows) < 2:
        return []
    small, middle = rows[:2]
    large = rows[-1] if len(rows) > 2 else None
    lines = [
        "",
        (
            f"A line through {small['ratings']:,} and {middle['ratings']:,} ratings says what is"
            " fixed, such as starting Python on the workers, and what grows"
            + ("." if large is None else f"; and predicts {large['ratings']:,}:")
        ),
        "",
        "| CPU s | fixed | per million ratings | times blocks | predicted | measured |",
        "|---|---|---|---|---|---|",
    ]
    shown = ("blocks: training", "Spark: sealing", "Spark: training", "with a killed executor")
    slopes: list[float] = []
    for lap, name in zip(LAPS, shown, strict=True):
        step = middle["ratings"] - small["ratings"]
        slopes.append((middle[lap]["cpu"] - small[lap]["cpu"]) / step)
        fixed = small[lap]["cpu"] - slopes[-1] * small["ratings"]
        cells = [f"{fixed:.1f}", f"{1e6 * slopes[-1]:.2f}", f"{slopes[-1] / slopes[0]:.1f}"]
        if large is None:
            cells += ["–", "–"]
        else:
            predicted = fixed + slopes[-1] * large["ratings"]
            cells += [f"{predicted:.0f}", f"{large[lap]['cpu']:.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _measure(ratings: int) -> dict[str, Any]:
    kept = os.environ.get(bench_billion.KEPT)
    if kept is not None:
        return _in_folder(ratings, bench_billion.folder_of(Path(kept), ratings))
    place = os.environ.get("DISCREET_BENCH_FOLDER")
    with tempfile.TemporaryDirectory(prefix="discreet-bench-", dir=place) as temporary:
        return _in_folder(ratings, Path(temporary))


def _in_folder(ratings: int, folder: Path) -> dict[str, Any]:
    answer = folder / "cluster.json"
    if not answer.exists():
        for phase in ("generate", "blocks"):
            bench_billion.measure_phase(phase, ratings, folder)
        words = [sys.executable, "-m", "benchmarks.bench_cluster", str(ratings), str(folder)]
        subprocess.run(words, check=True, env=os.environ | {"PYSPARK_PYTHON": sys.executable})
    return dict(json.loads(answer.read_text()))


# ------------------------------------------------------------------ in a process of its own


def main(ratings: int, folder: Path) -> None:
    """Train on blocks and on a cluster, and write what it took."""
    from pyspark.sql import SparkSession

    from discreet.engines.blocks import BlockRatings
    from discreet.engines.spark import SparkRatings

    logging.getLogger("discreet").setLevel(logging.ERROR)
    found: dict[str, Any] = {"load": os.getloadavg()[0], "code": bench_machine.code()}
    seen = _without_noise()
    watch = bench_engines.Stopwatch()
    _train(BlockRatings(folder / "blocks"))
    found["blocks"] = watch.lap()
    expected = _digest(seen)
    with standalone_cluster() as master, tempfile.TemporaryDirectory(dir=folder) as sealed:
        spark = session(SparkSession, master)
        frame = spark.read.parquet(str(folder / "ratings"))
        frame.limit(1).collect()
        people = SparkRatings(
            frame,
            items=list(range(bench_billion.ITEMS[ratings])),
            rating_range=bench_engines.SCALE,
            partitions=max(8, -(-ratings // bench_billion.PER_BLOCK)),
            duplicates="error",
            folder=sealed,
        )
        watch.lap()
        people.ready()
        found["sealing"] = watch.lap()
        found["bytes"] = sum(file.stat().st_size for file in Path(sealed).rglob("*.parquet"))
        _train(people)
        found["train"] = watch.lap()
        digests = [_digest(seen)]
        lost = _train(people, kill=True)
        found["killed"] = watch.lap()
        found["killed"]["cpu"] += lost
        digests.append(_digest(seen))
        spark.stop()
    found["same"] = digests == [expected, expected]
    (folder / "cluster.json").write_text(json.dumps(found))


def _train(people: Any, kill: bool = False) -> float:
    """Train; with `kill`, end an executor in the midst, and return the CPU seconds it had used."""
    from discreet.models.dpmf import DPMF

    lost: list[float] = []
    calls = 0

    def note(done: int, total: int, text: str) -> None:
        nonlocal calls
        calls += 1
        if kill and calls == KILL_AT:
            Timer(KILL_AFTER, lambda: lost.append(_kill_executor())).start()

    model = DPMF(
        bench_billion.RANK,
        goal="rating",
        epsilon=5.0,
        rating_range=bench_engines.SCALE,
        random_state=0,
    )
    model.fit(people, progress=note)
    if kill and not lost:
        raise RuntimeError("the training ended before an executor was killed")
    return sum(lost)


def _kill_executor() -> float:
    import psutil

    for process in psutil.Process().children(recursive=True):
        if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
            family = [process, *process.children(recursive=True)]
            used = sum(sum(one.cpu_times()[:2]) for one in family)
            os.kill(process.pid, signal.SIGKILL)
            return used
    raise RuntimeError("there is no executor to kill")


def _without_noise() -> list[Any]:
    """Let secure noise add nothing, and return the list to which exact sums are appended."""
    from discreet.privacy.noise.sources import SecureNoise

    seen: list[Any] = []

    def add(self: Any, values: Any, mechanism: Any, weights: Any = None, grid: Any = None) -> Any:
        seen.append(hashlib.sha256(values.tobytes()).hexdigest())
        return values * grid

    SecureNoise.add = add  # type: ignore[method-assign]
    return seen


def _digest(seen: list[Any]) -> list[Any]:
    found = list(seen)
    seen.clear()
    return found


@contextmanager
def standalone_cluster(**environment: str) -> Iterator[str]:
    """Run a master and workers with these environment variables; yield the master's address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    kind = "org.apache.spark.deploy"
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    with tempfile.TemporaryDirectory(prefix="discreet-cluster-") as folder:
        settings = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": folder,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        worker = [f"{kind}.worker.Worker", *local, "-c", "1", "-m", MEMORY, "-d", folder, master]
        started: list[subprocess.Popen[bytes]] = []

        def start(*call: str) -> None:
            words = [str(home / "bin" / "spark-class"), *call]
            started.append(
                subprocess.Popen(
                    words,
                    env=settings | environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )

        try:
            start(f"{kind}.master.Master", *local, "--port", str(port))
            _wait_for("127.0.0.1", port)
            for _ in range(EXECUTORS):
                start(*worker)
            yield master
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(30)


def _wait_for(host: str, port: int) -> None:
    """Wait until the master listens: a worker that finds none waits for longer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host, port), 1):
            return
        time.sleep(0.2)
    raise RuntimeError("the master of the cluster did not start")


def session(builder: Any, master: str) -> Any:
    """Connect to a master, with executors of one core and 2 GB of Java."""
    usual = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.executor.memory": "2g",
        "spark.task.maxFailures": "6",
    }
    building = builder.builder.master(master).appName("bench")
    for name, value in usual.items():
        building = building.config(name, value)
    spark = building.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
