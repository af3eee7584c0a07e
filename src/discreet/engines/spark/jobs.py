"""Spark jobs of the driver, in the DataFrame API alone, because serverless Spark has no RDDs."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from discreet.engines.fingerprint import fingerprint
from discreet.engines.spark import worker
from discreet.engines.spark.shuffle import SEALED
from discreet.engines.spark.worker import PROBLEMS, File, Pass, Piece, Work
from discreet.engines.user_hash import Secret
from discreet.errors import WORKER_MARK, DataError, EngineError
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.lazy_partitions import (
    Node,
    Outlook,
    SumRequest,
    nothing_yet,
)

T = TypeVar("T")
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# bytes that the driver may collect; larger sums are added on the workers, chunk by chunk
LARGE_SUMS = 1 << 28
LONGEST_CAUSE = 400  # characters of Spark's own words about a failure: its first two lines
_TYPE = re.compile(re.escape(WORKER_MARK) + r"(\w+)")
# Spark's own words about a worker that cannot run Python code; they contain no data
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_UNSTARTED = re.compile(r'Cannot run program "([^"\n]+)"')
_VERSION = re.compile(r"PYTHON_VERSION_MISMATCH|Python in worker has different version")


class SparkEngine:
    """Passes over sealed blocks, one job each.

    Parameters
    ----------
    sealed : Sealed
    bounds : Bounds
    seed : int
        Seed of users' random choices.
    room : int
        Bytes in which a worker may keep blocks between passes.
    """

    def __init__(self, sealed: SealedBlocks, bounds: Bounds, seed: int, room: int) -> None:
        self._sealed = sealed
        self._bounds = bounds
        self._seed = seed
        self._room = room
        self._training = secrets.token_hex(16)
        self._outlook = Outlook()
        self._started = False

    def close(self) -> None:
        """Make workers drop the blocks of this training; unreachable ones do so in a minute."""
        spark = self._sealed.spark
        tasks = 2 * cores(spark)

        def job() -> Any:
            return (
                spark.range(0, tasks, 1, tasks)
                .mapInArrow(worker.forgetter(self._training), "kept int")
                .collect()
            )

        if self._started:
            with suppress(EngineError):
                outcome(job)

    def run(self, root: Node, wanted: Sequence[SumRequest]) -> list[NDArray[np.int64]]:
        self._started = True
        keep = self._outlook.worth_keeping(root)
        secret = self._sealed.secret
        work = Pass(
            root,
            wanted,
            self._bounds,
            self._seed,
            fingerprint(),
            secret,
            self._training,
            keep,
            self._room,
        )
        for again in (False, True):
            try:
                sums, counted = self._pass(work)
            except EngineError:
                if again or self._sealed.complete():
                    raise
            else:
                if self._sealed.each_once(counted):
                    return sums
            if not again:
                self._sealed.renew()
        raise EngineError(
            "sealed blocks are lost, and sealing them again did not restore them: check the storage"
        )

    def _pass(self, work: Pass) -> tuple[list[NDArray[np.int64]], list[str]]:
        spark = self._sealed.spark
        wanted = work.wanted
        size = sum(8 * int(np.prod(want.shape)) for want in wanted)

        def job() -> Any:
            with arrow_batches(spark, 1):  # blocks are large, so transfer one at a time
                frame, tasks = self._sealed.run_on_blocks(partial(worker.add_up, work))
                if size * tasks > LARGE_SUMS:  # depends on public numbers only
                    frame = frame.groupBy("place", "chunk").applyInArrow(
                        worker.add_chunks, worker.SUMS
                    )
                return frame.collect()

        found = nothing_yet(wanted)
        flat = [total.reshape(-1) for total in found]
        counted: list[str] = []
        per_chunk = work.chunk // 8
        for row in outcome(job):
            if row["place"] < 0:
                counted += read_labels(row)
            else:
                begin = row["chunk"] * per_chunk
                part = np.frombuffer(bytes(row["data"]), np.int64)
                flat[row["place"]][begin : begin + len(part)] += part
        return found, counted


class SealedBlocks:
    """Blocks of users that Spark has written; read for every release, rewritten if lost.

    Parameters
    ----------
    spark : SparkSession
    path : str
    parts : int
        Number of blocks, which is public.
    secret : Secret
        Key of the users' hashes in the blocks; only the driver keeps it, and it ends with it.
    write : function
        Writes the blocks to the path again.
    """

    def __init__(
        self, spark: Any, path: str, parts: int, secret: Secret, write: Callable[[], None]
    ) -> None:
        self.spark = spark
        self.path = path
        self.parts = parts
        self.secret = secret
        self.within_reach = path.startswith("file:")  # workers can open the files themselves
        self._write = write
        write()
        self._files = self._list_files()

    def run_on_blocks(self, work: Work) -> tuple[Any, int]:
        """Return a frame of the workers' results over all blocks, and the number of tasks.

        If workers can open the files themselves (a local folder, or one mounted on all machines),
        Spark sends only the file numbers; otherwise it transfers the blocks.
        """
        if not self.within_reach:
            blocks = self._frame().select(*Piece._fields, "payload")
            return blocks.mapInArrow(worker.from_payloads(work), worker.SUMS), self.parts
        tasks = max(min(len(self._files), cores(self.spark)), 1)
        numbers = self.spark.range(0, len(self._files), 1, tasks)
        return numbers.mapInArrow(worker.from_files(work, self._files), worker.SUMS), tasks

    def hash_users(self, age_key: NDArray[np.uint64], least: int) -> NDArray[np.uint64]:
        """Return the workers' keyed hashes of users with at least so many ratings: secret."""
        work = partial(worker.hash_users, self.secret, age_key, least)

        def job() -> Any:
            with arrow_batches(self.spark, 1):
                return self.run_on_blocks(work)[0].collect()

        rows = outcome(job)
        counted = [one for row in rows if row["place"] < 0 for one in read_labels(row)]
        if not self.each_once(counted):
            raise EngineError("sealed blocks are lost: seal the ratings again")
        found = [np.frombuffer(bytes(row["data"]), np.uint64) for row in rows if row["place"] >= 0]
        return np.concatenate([np.zeros(0, np.uint64), *found])

    def _frame(self) -> Any:
        return self.spark.read.schema(SEALED).parquet(self.path)

    def renew(self) -> None:
        """Seal again: the same rows give the same blocks, bit for bit."""
        before = self._pieces
        self._write()
        self._files = self._list_files()
        if self._pieces != before:
            raise EngineError(
                "the ratings have changed since they were sealed: create a new SparkRatings"
            )

    def complete(self) -> bool:
        """Check whether all blocks still exist."""
        try:
            return self._list_files() == self._files
        except EngineError:
            return False

    def each_once(self, counted: list[str]) -> bool:
        """Check that a pass counted every block once; raise an error if one counted twice."""
        if len(set(counted)) != len(counted):
            raise EngineError("a block was counted twice in one pass: its sum was discarded")
        return set(counted) == {piece.label for piece in self._pieces}

    @property
    def _pieces(self) -> frozenset[Piece]:
        return frozenset(piece for file in self._files for piece in file.pieces)

    def _list_files(self) -> list[File]:
        from pyspark.sql import functions as F

        def job() -> Any:
            name = F.input_file_name().alias("file")
            return self._frame().select(name, "source", *Piece._fields).collect()

        sources: dict[int, int] = {}
        files: dict[str, list[Piece]] = {}
        for row in outcome(job):
            if sources.setdefault(row["part"], row["source"]) != row["source"]:
                raise EngineError(
                    "Spark divided the users of one block over two tasks: seal them again"
                )
            files.setdefault(row["file"], []).append(Piece(row["part"], row["piece"], row["crc32"]))
        return [
            File(unquote(urlsplit(name).path), tuple(sorted(files[name]))) for name in sorted(files)
        ]


def read_labels(row: Any) -> list[str]:
    """Return the labels of the pieces that a task read."""
    return bytes(row["data"]).decode().split("\n")


def cores(spark: Any) -> int:
    """Return about how many tasks run at once, a property of the cluster and not of the data."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return 8  # a guess, which affects only speed


def check_workers(spark: Any) -> None:
    """Raise an `EngineError` unless all workers compute like the driver, before any charge."""
    use_own_python(spark)
    tasks = 2 * cores(spark)

    def job() -> Any:
        return spark.range(0, tasks, 1, tasks).mapInArrow(worker.greet, "machine string").collect()

    if any(row["machine"] != fingerprint() for row in outcome(job, holds_data=False)):
        raise EngineError(PROBLEMS["Machine"])


def use_own_python(spark: Any) -> None:
    """Let workers of a local master run the Python of this process, unless one is configured.

    Without PYSPARK_PYTHON, Spark starts the first `python3` of the search path, which may have
    another version and lack the package.
    """
    with suppress(Exception):  # Spark Connect has no context, and its workers are elsewhere
        context = spark.sparkContext
        chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains(
            "spark.pyspark.python"
        )
        if context.master.startswith("local") and not chosen:
            context.pythonExec = sys.executable


@contextmanager
def arrow_batches(spark: Any, rows: int) -> Iterator[None]:
    """Transfer `rows` rows at a time between Spark and Python while the block runs."""
    before = spark.conf.get(BATCH_ROWS)
    spark.conf.set(BATCH_ROWS, str(rows))
    try:
        yield
    finally:
        spark.conf.set(BATCH_ROWS, before)


def outcome(job: Callable[[], T], holds_data: bool = True) -> T:
    """Return the result of a job; report only the type of an error, whose text may hold data.

    The error of a job without data is reported with its first lines.
    """
    kind = problem = cause = ""
    try:
        return job()
    except (DataError, EngineError):
        raise
    except Exception as error:
        text = str(error)
        found = _TYPE.findall(text)
        kind = found[-1] if found else type(error).__name__
        problem = "" if found else _describe_python(text)
        cause = "" if holds_data else " ".join(text.split("\n", 2)[:2])[:LONGEST_CAUSE]
    if problem:
        raise EngineError(problem)
    if kind in PROBLEMS:
        raise (EngineError if kind in ("Machine", "Portion") else DataError)(PROBLEMS[kind])
    if cause:
        raise EngineError(f"Spark's workers failed a first job without data ({kind}): {cause}")
    raise EngineError(
        f"a job on the cluster failed ({kind}): see Spark's log, which may hold users' data"
    )


def _describe_python(text: str) -> str:
    """Return what is wrong with the Python of the workers, or nothing."""
    if _VERSION.search(text):
        return (
            "Spark's workers run another version of Python than this process. Set PYSPARK_PYTHON"
            " to the same Python on all machines before Spark starts."
        )
    unstarted = _UNSTARTED.search(text)
    if unstarted:
        return (
            f"Spark's workers cannot start the Python {unstarted[1]}. Set PYSPARK_PYTHON to a"
            " Python that has discreet before Spark starts."
        )
    missing = _MISSING.findall(text)
    if not missing:
        return ""
    return (
        f"The Python of Spark's workers has no package {missing[-1].split('.')[0]!r}. Install"
        " discreet there, or set PYSPARK_PYTHON to a Python that has it before Spark starts."
    )
