"""Tasks of a pass: run the steps on the pieces of blocks, and add up.

Only the type of an error leaves a worker, because its text may hold a user's rating or id: tasks
are wrapped by `hide_worker_errors`. pyspark is not imported here, and nothing here depends on how
Spark divides the work.
"""

from __future__ import annotations

import gc
import itertools
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Timer
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.engines.block_cache import BlockCache
from discreet.engines.block_format import PackedBlock
from discreet.engines.fingerprint import fingerprint
from discreet.engines.user_hash import Secret
from discreet.errors import WorkerProblem, WorkerTask, hide_worker_errors
from discreet.kernels.threads import one_thread
from discreet.privacy.sealed import guard
from discreet.privacy.statistics.base import Block
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.lazy_partitions import Node, Point, SumRequest, follow, nothing_yet

SUMS = "place int, chunk int, data binary"
CHUNK_BYTES = 1 << 23  # of a sum that travels as one value: small compared with Spark's 2 GB limit

#: Problems of the data by the name that leaves the worker; the driver adds the message.
PROBLEMS = {
    "Rating": "a rating is missing, infinite or no number: correct it or drop the row",
    "User": (
        "a user id is missing or is a placeholder for a missing value: fill it in or drop the row"
    ),
    "ItemId": (
        "an item id is missing or is a placeholder for a missing value: fill it in or drop the row"
    ),
    "Time": "a time is missing: fill it in, drop the row, or omit timestamp",
    "Item": 'a rated item is not in the catalog: add it, or pass unknown_items="drop"',
    "Twice": (
        'a user rated an item twice: pass duplicates="last" with a timestamp column, or'
        ' duplicates="mean"'
    ),
    "Machine": (
        "the machines of this cluster compute different bits: use one kind of processor and one"
        " version of every library, or set DISCREET_KERNELS=plain on all of them"
    ),
    "Portion": "a sealed block is damaged: seal the ratings again",
}

Batches = Iterable[pa.RecordBatch]


class Piece(NamedTuple):
    """Numbers and checksum of a piece of a block."""

    part: int
    piece: int
    crc32: int

    @property
    def label(self) -> str:
        """Text that identifies this piece with this content."""
        return f"{self.part} {self.piece} {self.crc32}"


class File(NamedTuple):
    """Name of a file of sealed blocks, and its pieces in order."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Pass:
    """One pass as sent to every worker; all of it is public except the secret.

    Parameters
    ----------
    root, wanted : the tree of steps, and its sums
    bounds, seed
        As at sealing.
    expected : str
        The driver's fingerprint.
    secret : Secret
        Secret of the sealed folder. It is sent with the task, and we write it to no file.
    training : str
        A random name, which separates the caches of different trainings.
    keep : points at which blocks are kept for the next pass
    room : int
        Bytes that a worker may cache.
    chunk : int
        Bytes of a sum that travel as one value.
    """

    root: Node
    wanted: Sequence[SumRequest]
    bounds: Bounds
    seed: int
    expected: str
    secret: Secret
    training: str = ""
    keep: frozenset[Point] = frozenset()
    room: int = 0
    chunk: int = CHUNK_BYTES


Payload = Callable[[], Any]
Pieces = Iterable[tuple["Piece", Payload]]
#: What a task does with its pieces.
Work = Callable[[Pieces], Iterator[pa.RecordBatch]]


def from_payloads(work: Work) -> WorkerTask:
    """Make a task on pieces that Spark transfers."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from work(_iterate_payloads(batches))

    return hide_worker_errors(run)


def from_files(work: Work, files: Sequence[File]) -> WorkerTask:
    """Make the same task for files that workers can open: then no block passes through Spark."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from work(_in_files(files, batches))

    return hide_worker_errors(run)


def _iterate_payloads(batches: Batches) -> Iterator[tuple[Piece, Payload]]:
    for batch in batches:
        for at in range(batch.num_rows):
            part, piece, crc32 = (batch.column(name)[at].as_py() for name in Piece._fields)
            yield Piece(part, piece, crc32), batch.column("payload")[at].as_buffer


def _in_files(files: Sequence[File], batches: Batches) -> Iterator[tuple[Piece, Payload]]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with _OpenedLate(files[number].name) as opened:
                for piece in files[number].pieces:
                    yield piece, partial(opened.payload, piece)


class _OpenedLate:
    """A file of pieces, opened when the first one is needed, and read in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._file: Any = None
        self._rows: Iterator[pa.RecordBatch] = iter(())

    def __enter__(self) -> _OpenedLate:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def payload(self, wanted: Piece) -> Any:
        from pyarrow import parquet

        if self._file is None:
            self._file = parquet.ParquetFile(self._name, memory_map=True)
            self._rows = self._file.iter_batches(1, columns=["part", "piece", "payload"])
        for row in self._rows:
            if (
                row.column("part")[0].as_py() == wanted.part
                and row.column("piece")[0].as_py() == wanted.piece
            ):
                return row.column("payload")[0].as_buffer()
        raise WorkerProblem("Portion")


# ------------------------------------------------------------------ adding up

IDLE_SECONDS = 60.0  # as long as Spark itself keeps an idle worker
FORGET_SECONDS = 0.2  # much longer than Spark takes to start the other tasks of a small job

_kept: dict[str, BlockCache] = {}
_timers: list[Timer] = []
_tasks = itertools.count()


def add_up(work: Pass, pieces: Pieces) -> Iterator[pa.RecordBatch]:
    """Yield the exact sums over the pieces, in chunks, and a list of the pieces added."""
    if fingerprint() != work.expected:
        raise WorkerProblem("Machine")
    _settle_down()
    into = nothing_yet(work.wanted)
    counted: list[str] = []
    with one_thread(), _cache_for(work) as kept:
        for piece, payload in pieces:
            _add_piece(work, piece, payload, kept, into)
            counted.append(piece.label)
    if counted:
        yield from sums_in_chunks(into, work.chunk)
        yield _row(-1, 0, "\n".join(counted).encode())


def _add_piece(
    work: Pass, piece: Piece, payload: Payload, kept: BlockCache, into: Sequence[NDArray[np.int64]]
) -> None:
    @guard("sealed ratings")
    def begin() -> Block:
        return _read_piece(piece, payload).sealed(work.bounds, work.seed, work.secret)

    kept.keep(piece, follow(work.root, begin, into, kept.lookup(piece), work.keep))


def _read_piece(piece: Piece, payload: Payload) -> PackedBlock:
    data = payload()
    if zlib.crc32(data) != piece.crc32:
        raise WorkerProblem("Portion")
    return PackedBlock.from_bytes(data)


def hash_users(
    secret: Secret, age_key: NDArray[np.uint64], least: int, pieces: Pieces
) -> Iterator[pa.RecordBatch]:
    """Yield the keyed hashes of the users with at least so many ratings, and the pieces read."""
    counted: list[str] = []
    for piece, payload in pieces:
        found = _read_piece(piece, payload).hash_users(secret, age_key, least)
        counted.append(piece.label)
        yield _row(0, 0, found.tobytes())
    if counted:
        yield _row(-1, 0, "\n".join(counted).encode())


@contextmanager
def _cache_for(work: Pass) -> Iterator[BlockCache]:
    """Yield this worker's cache for this training, and drop the cache of any other.

    It is dropped when the driver ends the training, and in any case after `IDLE_SECONDS` without a
    pass: the driver may have failed, and Spark keeps a worker as long as it has other work.
    """
    for timer in _timers:
        timer.cancel()
    _timers.clear()
    if work.training not in _kept:
        _kept.clear()
        _kept[work.training] = BlockCache(work.room)
    try:
        yield _kept[work.training]
    finally:
        timer = Timer(IDLE_SECONDS, forget, [work.training])
        timer.daemon = True
        _timers.append(timer)
        timer.start()


def forget(training: str) -> None:
    """Drop the blocks that this worker keeps for a training."""
    _kept.pop(training, None)


def forgetter(training: str) -> WorkerTask:
    """Make a task that drops a training's blocks; it sleeps, so that every worker gets one."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        forget(training)
        time.sleep(FORGET_SECONDS)
        yield pa.RecordBatch.from_pydict({"kept": pa.array([len(_kept)], pa.int32())})

    return hide_worker_errors(run)


def _settle_down() -> None:
    """Exclude imported and compiled objects from the garbage collection after every Spark task.

    Scanning them takes about 70 ms. The first tasks create most of them.
    """
    if next(_tasks) < 3:
        gc.collect()
        gc.freeze()


def sums_in_chunks(sums: Sequence[NDArray[np.int64]], chunk: int) -> Iterator[pa.RecordBatch]:
    """Cut each sum into chunks that travel separately."""
    for place, total in enumerate(sums):
        data = total.tobytes()
        for number, begin in enumerate(range(0, max(len(data), 1), chunk)):
            yield _row(place, number, data[begin : begin + chunk])


def add_chunks(table: pa.Table) -> pa.Table:
    """Add the same chunk of several partitions; lists of pieces are concatenated."""
    place = table.column("place")[0].as_py()
    chunk = table.column("chunk")[0].as_py()
    parts = [value.as_buffer() for value in table.column("data")]
    if place < 0:
        data = b"\n".join(part.to_pybytes() for part in parts)
    else:
        data = np.sum(
            [np.frombuffer(part, np.int64) for part in parts], axis=0, dtype=np.int64
        ).tobytes()
    return pa.Table.from_batches([_row(place, chunk, data)])


def _row(place: int, chunk: int, data: bytes) -> pa.RecordBatch:
    columns = {
        "place": pa.array([place], pa.int32()),
        "chunk": pa.array([chunk], pa.int32()),
        "data": pa.array([data], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


# ------------------------------------------------------------------ comparing machines


def greet(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Return the fingerprint of this machine; see `discreet.engines.fingerprint`."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"machine": pa.array([fingerprint()])})
