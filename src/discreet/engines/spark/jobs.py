"""Jobs: what the driver asks Spark to do, in words of the DataFrame API alone (serverless Spark has no RDDs)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from discreet.data.worker_errors import MARK, Task
from discreet.engines.handshake import fingerprint
from discreet.engines.spark import worker
from discreet.engines.spark.worker import CHUNK_BYTES, PROBLEMS
from discreet.errors import DataError, EngineError
from discreet.privacy.people.bounds import Bounds
from discreet.privacy.people.replay import Node, RecordedSum, Wanted, nothing_yet, one_pass

T = TypeVar("T")
ONE_ROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
LARGE_SUMS = 1 << 28  # bytes that may come to the driver; beyond, sums are added on the workers, chunk by chunk
_TYPE = re.compile(re.escape(MARK) + r"(\w+)")


class SparkEngine:
    """Passes over sealed blocks, one job each.

    Parameters
    ----------
    sealed : Sealed
    bounds : Bounds
    seed : int
        Of users' random choices.
    """

    def __init__(self, sealed: Sealed, bounds: Bounds, seed: int) -> None:
        self._sealed = sealed
        self._bounds = bounds
        self._seed = seed

    def together(self, asked: Sequence[tuple[RecordedSum, float | None]]) -> None:
        one_pass(asked)

    def run(self, root: Node, wanted: Sequence[Wanted]) -> list[NDArray[np.int64]]:
        task = worker.adder(root, wanted, self._bounds, self._seed, fingerprint())
        for again in (False, True):
            try:
                sums, counted = self._pass(task, wanted)
            except EngineError:
                if again or self._sealed.complete():
                    raise
            else:
                if self._sealed.each_once(counted):
                    return sums
            if not again:
                self._sealed.renew()
        raise EngineError("sealed blocks are lost, and sealing them again did not bring them back: look at the storage")

    def _pass(self, task: Task, wanted: Sequence[Wanted]) -> tuple[list[NDArray[np.int64]], list[str]]:
        spark = self._sealed.spark
        size = sum(8 * int(np.prod(want.shape)) for want in wanted)

        def job() -> Any:
            with one_row_batches(spark):
                frame = self._sealed.led_through(task)
                if size * self._sealed.parts > LARGE_SUMS:  # all public
                    frame = frame.groupBy("place", "chunk").applyInArrow(worker.add_chunks, worker.SUMS)
                return frame.collect()

        found = nothing_yet(wanted)
        flat = [total.reshape(-1) for total in found]
        counted: list[str] = []
        per_chunk = CHUNK_BYTES // 8
        for row in outcome(job):
            if row["place"] < 0:
                counted += bytes(row["data"]).decode().split("\n")
            else:
                begin = row["chunk"] * per_chunk
                part = np.frombuffer(bytes(row["data"]), np.int64)
                flat[row["place"]][begin : begin + len(part)] += part
        return found, counted


class Sealed:
    """Blocks of people that Spark has written: read again for every release, and written again if they are lost.

    Parameters
    ----------
    spark : SparkSession
    path : str
    parts : int
        How many blocks: public.
    write : function
        Writes the blocks to the path, anew.
    """

    def __init__(self, spark: Any, path: str, parts: int, write: Callable[[], None]) -> None:
        self.spark = spark
        self.path = path
        self.parts = parts
        self._write = write
        write()
        self._pieces = self._listed()

    def led_through(self, task: Task) -> Any:
        """A frame of what the task makes of all blocks.

        Where workers can open the files by themselves (a folder of this machine, or one that all machines have
        mounted), Spark only tells them which; else it hands the blocks over.
        """
        blocks = self._frame().select("part", "piece", "crc32", "payload")
        if not self.path.startswith("file:"):
            return blocks.mapInArrow(task, worker.SUMS)
        files = [unquote(urlsplit(one).path) for one in blocks.inputFiles()]
        tasks = max(min(len(files), 2 * cores(self.spark)), 1)
        numbers = self.spark.range(0, len(files), 1, tasks)
        return numbers.mapInArrow(worker.reader(files, task), worker.SUMS)

    def _frame(self) -> Any:
        return self.spark.read.schema(worker.SEALED).parquet(self.path)

    def renew(self) -> None:
        """Seal again: the same rows give the same blocks, to the last bit."""
        self._write()
        if self._listed() != self._pieces:
            raise EngineError("the ratings have changed since they were sealed: begin with a new SparkRatings")

    def complete(self) -> bool:
        """Whether all blocks are still there."""
        try:
            return self._listed() == self._pieces
        except EngineError:
            return False

    def each_once(self, counted: list[str]) -> bool:
        """Whether a pass counted every block once: none is missing, and none was counted twice."""
        if len(set(counted)) != len(counted):
            raise EngineError("a block was counted twice in one pass, so its sum was thrown away")
        return set(counted) == {f"{part} {piece}" for part, piece, _ in self._pieces}

    def _listed(self) -> frozenset[tuple[int, int, int]]:
        def job() -> Any:
            return self._frame().select("part", "piece", "source", "crc32").collect()

        rows = outcome(job)
        sources: dict[int, int] = {}
        for row in rows:
            if sources.setdefault(row["part"], row["source"]) != row["source"]:
                raise EngineError("Spark divided the people of one block over two tasks: seal them again")
        return frozenset((row["part"], row["piece"], row["crc32"]) for row in rows)


def cores(spark: Any) -> int:
    """About how many tasks run at once; a number of the cluster, not of the data."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return 8


def shake_hands(spark: Any, tasks: int) -> None:
    """Raise an `EngineError` unless the workers compute as the driver does: before anything is charged."""

    def job() -> Any:
        return spark.range(0, tasks, 1, tasks).mapInArrow(worker.greet, "machine string").distinct().collect()

    if any(row["machine"] != fingerprint() for row in outcome(job)):
        raise EngineError(PROBLEMS["Machine"])


@contextmanager
def one_row_batches(spark: Any) -> Iterator[None]:
    """Sealed blocks are large: they travel one at a time."""
    before = spark.conf.get(ONE_ROW)
    spark.conf.set(ONE_ROW, "1")
    try:
        yield
    finally:
        spark.conf.set(ONE_ROW, before)


def outcome(job: Callable[[], T]) -> T:
    """What a job gives. Of its errors, only the type is told: Spark's own text may hold rows of the data."""
    kind = ""
    try:
        return job()
    except (DataError, EngineError):
        raise
    except Exception as error:
        found = _TYPE.findall(str(error))
        kind = found[-1] if found else type(error).__name__
    if kind in PROBLEMS:
        raise (EngineError if kind in ("Machine", "Portion") else DataError)(PROBLEMS[kind])
    raise EngineError(f"a job on the cluster failed ({kind}): its log is with Spark, and may hold people's data")
