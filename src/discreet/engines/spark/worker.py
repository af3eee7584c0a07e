"""What runs on the workers: sealing rows into portions, and leading portions through the steps of a pass.

Nothing of an error but its type leaves a worker, for its text may hold somebody's rating or id: tasks are wrapped by
`quiet`. pyspark is not imported here, and nothing here knows how Spark divides the work.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.worker_errors import Problem, Task, quiet
from discreet.engines.handshake import fingerprint
from discreet.engines.identity import identities
from discreet.engines.portion import Portion, portion_of
from discreet.errors import DataError, DiscreetError
from discreet.kernels.threads import one_thread
from discreet.privacy.door.vault import guarded
from discreet.privacy.people.bounds import Bounds
from discreet.privacy.people.replay import Node, Wanted, follow, nothing_yet

SEALED = "part int, piece int, source int, size long, crc32 long, payload binary"
SUMS = "place int, chunk int, data binary"
RATINGS_OF_A_PIECE = 1 << 20  # a piece takes about 8 MB, and twenty times as much while its users take their steps
CHUNK_BYTES = 1 << 23  # of a sum that travels as one value

#: What a worker may say of data that cannot be used; the driver knows the sentence.
PROBLEMS = {
    "Rating": "a rating is missing, infinite or no number: correct it or drop the row",
    "User": "a user id is missing, or is a word that stands for a missing one: fill it in or drop the row",
    "Time": "a time is missing: fill it in, drop the row, or leave timestamp out",
    "Item": 'a rated item is not in the catalogue: add what is missing, or say unknown_items="drop"',
    "Twice": 'a user rated an item twice: say duplicates="last" with a column of times, or duplicates="mean"',
    "Machine": "the machines of this cluster do not compute alike: use one kind of processor and one version of every "
    "library, or set DISCREET_KERNELS=plain on all of them",
    "Portion": "a sealed block is damaged",
}


Batches = Iterable[pa.RecordBatch]


# ------------------------------------------------------------------ sealing


def sealer(n_items: int, duplicates: str, unknown: str, timed: bool, source: Callable[[], int]) -> Task:
    """A task from rows (part, user, item, rating, time) to portions; all rows of a user have the same part."""

    def seal(batches: Batches) -> Iterator[pa.RecordBatch]:
        rows = [_row_arrays(batch, unknown, timed) for batch in batches if batch.num_rows]
        if not rows:
            return
        part, who, items, ratings, times = (np.concatenate(column) for column in zip(*rows, strict=True))
        del rows
        if duplicates != "error":  # rows of a frame have no order: of two ratings, the newer and higher comes last
            order = np.lexsort((ratings, times)) if timed else np.argsort(ratings, kind="stable")
            part, who, items, ratings, times = part[order], who[order], items[order], ratings[order], times[order]
        if (part != part[0]).any():
            order = np.argsort(part, kind="stable")
            part, who, items, ratings, times = part[order], who[order], items[order], ratings[order], times[order]
        cuts = np.append(np.flatnonzero(np.diff(part, prepend=-1)), len(part))
        for begin, end in itertools.pairwise(cuts.tolist()):
            own = slice(begin, end)
            when = times[own] if timed else None
            try:
                whole = portion_of(who[own], items[own], ratings[own], when, n_items, duplicates)
            except DataError:
                whole = None
            if whole is None:
                raise Problem("Twice")
            for number, piece in enumerate(in_pieces(whole)):
                yield _sealed(int(part[begin]), number, source(), piece.to_bytes())

    return quiet(seal)


def _row_arrays(batch: pa.RecordBatch, unknown: str, timed: bool) -> tuple[NDArray[Any], ...]:
    ratings = _numbers(batch.column("rating"), np.float64, "Rating")
    with np.errstate(all="ignore"):
        ratings = ratings.astype(np.float32)
    if not np.isfinite(ratings).all():
        raise Problem("Rating")
    items = batch.column("item").fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    if unknown == "error" and (items < 0).any():
        raise Problem("Item")
    try:
        who = identities(batch.column("user"))
    except DiscreetError:
        who = None
    if who is None:
        raise Problem("User")
    n = batch.num_rows
    times = _numbers(batch.column("time"), np.int64, "Time") if timed else np.zeros(n, np.int64)
    return batch.column("part").to_numpy(zero_copy_only=False).astype(np.int64), who, items, ratings, times


def _numbers(column: pa.Array, kind: Any, problem: str) -> NDArray[Any]:
    if column.null_count:
        raise Problem(problem)
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False).astype(kind)
    return numbers


def in_pieces(whole: Portion) -> Iterator[Portion]:
    """Portions of about `RATINGS_OF_A_PIECE`, of whole users."""
    n = len(whole.numbers)
    begin = 0
    while begin < n:
        end = int(np.searchsorted(whole.indptr, whole.indptr[begin] + RATINGS_OF_A_PIECE))
        end = min(max(end, begin + 1), begin + RATINGS_OF_A_PIECE, n)
        own = whole.indptr[begin : end + 1]
        entries = slice(int(own[0]), int(own[-1]))
        yield Portion(own - own[0], whole.numbers[begin:end], whole.items[entries], whole.ratings[entries])
        begin = end


def _sealed(part: int, number: int, source: int, payload: bytes) -> pa.RecordBatch:
    columns = {
        "part": pa.array([part], pa.int32()),
        "piece": pa.array([number], pa.int32()),
        "source": pa.array([source], pa.int32()),
        "size": pa.array([len(payload)], pa.int64()),
        "crc32": pa.array([zlib.crc32(payload)], pa.int64()),
        "payload": pa.array([payload], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


# ------------------------------------------------------------------ passes


def adder(root: Node, wanted: Sequence[Wanted], bounds: Bounds, seed: int, expected: str) -> Task:
    """A task from portions to their exact sums, in chunks, and a list of the portions that are in them."""

    def add(batches: Batches) -> Iterator[pa.RecordBatch]:
        if fingerprint() != expected:
            raise Problem("Machine")
        into = nothing_yet(wanted)
        counted: list[str] = []
        with one_thread():
            for batch in batches:
                for at in range(batch.num_rows):
                    counted.append(_one(batch, at, root, bounds, seed, into))
        if counted:
            yield from sums_in_chunks(into)
            yield _row(-1, 0, "\n".join(counted).encode())

    return quiet(add)


def reader(files: Sequence[str], task: Task) -> Task:
    """The same task for numbers of files that a worker can open by itself: then no block passes through Spark."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from task(_in_files(files, batches))

    return quiet(read)


def _in_files(files: Sequence[str], batches: Batches) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    for batch in batches:
        for number in batch.column(0).to_pylist():
            with parquet.ParquetFile(files[number], memory_map=True) as file:
                yield from file.iter_batches(1, columns=["part", "piece", "crc32", "payload"])


def _one(
    batch: pa.RecordBatch, at: int, root: Node, bounds: Bounds, seed: int, into: Sequence[NDArray[np.int64]]
) -> str:
    payload = batch.column("payload")[at].as_buffer()
    if zlib.crc32(payload) != batch.column("crc32")[at].as_py():
        raise Problem("Portion")

    @guarded("sealed ratings")
    def block() -> Any:
        return Portion.from_bytes(payload).sealed(bounds, seed)

    follow(root, block(), into)
    return f"{batch.column('part')[at].as_py()} {batch.column('piece')[at].as_py()}"


def sums_in_chunks(sums: Sequence[NDArray[np.int64]]) -> Iterator[pa.RecordBatch]:
    """Sums, each cut into chunks that travel by themselves."""
    for place, total in enumerate(sums):
        data = total.tobytes()
        for chunk, begin in enumerate(range(0, max(len(data), 1), CHUNK_BYTES)):
            yield _row(place, chunk, data[begin : begin + CHUNK_BYTES])


def add_chunks(table: pa.Table) -> pa.Table:
    """The sum of the same chunk of several partitions; lists of portions are put one after the other."""
    place = table.column("place")[0].as_py()
    chunk = table.column("chunk")[0].as_py()
    parts = [value.as_buffer() for value in table.column("data")]
    if place < 0:
        data = b"\n".join(part.to_pybytes() for part in parts)
    else:
        data = np.sum([np.frombuffer(part, np.int64) for part in parts], axis=0, dtype=np.int64).tobytes()
    return pa.Table.from_batches([_row(place, chunk, data)])


def _row(place: int, chunk: int, data: bytes) -> pa.RecordBatch:
    columns = {
        "place": pa.array([place], pa.int32()),
        "chunk": pa.array([chunk], pa.int32()),
        "data": pa.array([data], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


# ------------------------------------------------------------------ shaking hands


def greet(batches: Batches) -> Iterator[pa.RecordBatch]:
    """What this machine is; see `discreet.engines.handshake`."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"machine": pa.array([fingerprint()])})
