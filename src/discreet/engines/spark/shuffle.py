"""Tasks that seal ratings: divide rows by user before a shuffle, and seal blocks after it.

Spark moves rows one by one, which costs more than all other work on them. So the first task finds
the items, computes the keyed hash of every user (`user_hash`) and packs some thousand rows of one
block at a time, column by column. Spark moves these packets, and the second task converts them to
compressed sparse rows (`block_format`).

A packet is: number of rows, number of runs of adjacent rows of one user, whether there are times
(int64 each); then the columns, one after the other: first halves, second halves, encrypted numbers
and lengths (int32) of the runs, items (int32), ratings (float32), times (int64). It contains no id.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.catalog import Catalog
from discreet.engines.block_format import PackedBlock, portion_of
from discreet.engines.blocks.readers import ItemColumn
from discreet.engines.user_hash import Identity, Secret, block_of, identities, run_starts
from discreet.errors import DataError, DiscreetError, WorkerProblem, WorkerTask, hide_worker_errors

PACKETS = "key int, part int, data binary"
SEALED = "part int, piece int, source int, size long, crc32 long, payload binary"
ROWS_AT_ONCE = 1 << 20  # packed together: enough rows for full packets, about 40 MB
# at most 320 kB, so that no batch of Arrow comes near its limit of 2 GB
ROWS_OF_A_PACKET = 1 << 13
# a piece takes about 8 MB, and twenty times as much while its users' steps run
RATINGS_OF_A_PIECE = 1 << 20

Batches = Iterable[pa.RecordBatch]


class ShuffleRows(NamedTuple):
    """Some rows, column by column, as in `BlockRows`; `times` may be None."""

    who: Identity
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]
    times: NDArray[np.int64] | None

    def take(self, where: Any) -> ShuffleRows:
        """Select the rows at these positions."""
        times = None if self.times is None else self.times[where]
        return ShuffleRows(self.who[where], self.items[where], self.ratings[where], times)


# ------------------------------------------------------------------ before the shuffle


def divider(
    item_ids: NDArray[Any], unknown: str, keys: NDArray[np.int32], secret: Secret
) -> WorkerTask:
    """Make a task from rows (user, item, rating and, if there is one, time) to packets.

    Parameters
    ----------
    item_ids : the public catalog
    unknown : {"error", "drop"}
    keys : (parts,)
        For each block, the key by which Spark sends a packet to the task that seals it.
    secret : Secret
        Key of the hashes of users.
    """

    def divide(batches: Batches) -> Iterator[pa.RecordBatch]:
        items = ItemColumn(Catalog(item_ids), "drop")
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(one.num_rows for one in held) >= ROWS_AT_ONCE:
                yield from packets(_rows(held, items, unknown, secret), keys)
                held.clear()
        if any(one.num_rows for one in held):
            yield from packets(_rows(held, items, unknown, secret), keys)

    return hide_worker_errors(divide)


def packets(rows: ShuffleRows, keys: NDArray[np.int32]) -> Iterator[pa.RecordBatch]:
    """Pack rows by the block of their users."""
    part = block_of(rows.who, len(keys)).astype(np.uint16)  # numpy sorts these in linear time
    order = np.argsort(part, kind="stable")
    rows = rows.take(order)
    cuts = np.append(np.flatnonzero(np.diff(part[order].astype(np.int64), prepend=-1)), len(part))
    found: list[tuple[int, bytes]] = []
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        own = int(part[order[begin]])
        for start in range(begin, end, ROWS_OF_A_PACKET):
            found.append(
                (own, pack_rows(rows.take(slice(start, min(start + ROWS_OF_A_PACKET, end)))))
            )
    parts = np.array([own for own, _ in found], np.int32)
    yield pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys[parts]),
            "part": pa.array(parts),
            "data": pa.array([data for _, data in found]),
        }
    )


def pack_rows(rows: ShuffleRows) -> bytes:
    starts = run_starts(rows.who)
    counts = np.diff(starts, append=len(rows.who)).astype(np.int32)
    head = np.array([len(rows.who), len(starts), rows.times is not None], np.int64)
    own = rows.who[starts]
    columns: list[NDArray[Any]] = [head, *own.T, counts, rows.items, rows.ratings]
    if rows.times is not None:
        columns.append(rows.times)
    return b"".join(column.tobytes() for column in columns)


def _rows(
    batches: list[pa.RecordBatch], items: ItemColumn, unknown: str, secret: Secret
) -> ShuffleRows:
    table = pa.Table.from_batches(batches)
    ratings = _numbers(table.column("rating"), np.float64, "Rating")
    with np.errstate(all="ignore"):
        ratings = ratings.astype(np.float32)
    if not np.isfinite(ratings).all():
        raise WorkerProblem("Rating")
    times = (
        _numbers(table.column("time"), np.int64, "Time") if "time" in table.column_names else None
    )
    who = _ids(partial(identities, secret=secret), table.column("user"), "User")
    places = _ids(items.positions, table.column("item"), "ItemId")
    if unknown == "error" and (places < 0).any():
        raise WorkerProblem("Item")
    return ShuffleRows(who, places, ratings, times)


def _ids(read: Callable[[Any], Any], column: pa.ChunkedArray, problem: str) -> Any:
    try:
        return read(column)
    except DiscreetError:
        pass
    raise WorkerProblem(problem)


def _numbers(column: pa.ChunkedArray, kind: Any, problem: str) -> NDArray[Any]:
    if column.null_count:
        raise WorkerProblem(problem)
    numbers: NDArray[Any] = column.to_numpy().astype(kind, copy=False)
    return numbers


# ------------------------------------------------------------------ after the shuffle


def sealer(n_items: int, duplicates: str, source: Callable[[], int]) -> WorkerTask:
    """Make a task from packets to pieces of blocks; one task gets all packets of a block."""

    def seal(batches: Batches) -> Iterator[pa.RecordBatch]:
        found: dict[int, list[ShuffleRows]] = {}
        for batch in batches:
            for part, data in zip(
                batch.column("part").to_pylist(), batch.column("data"), strict=True
            ):
                found.setdefault(part, []).append(unpack_rows(data.as_buffer()))
        for part in sorted(found):
            whole = _sealed_whole(concatenate_rows(found.pop(part)), n_items, duplicates)
            for number, piece in enumerate(in_pieces(whole)):
                yield _sealed(part, number, source(), piece.to_bytes())

    return hide_worker_errors(seal)


def unpack_rows(data: Any) -> ShuffleRows:
    """Return the rows of a packet; the memory is shared where possible."""
    n, runs, timed = (int(x) for x in np.frombuffer(data, np.int64, 3))
    at = 24

    def column(kind: Any, length: int) -> NDArray[Any]:
        nonlocal at
        array = np.frombuffer(data, kind, length, at)
        at += array.nbytes
        return array

    own = np.column_stack([column(np.uint64, runs) for _ in range(3)])
    who = np.repeat(own, column(np.int32, runs), axis=0)
    items = column(np.int32, n)
    ratings = column(np.float32, n)
    return ShuffleRows(who, items, ratings, column(np.int64, n) if timed else None)


def concatenate_rows(rows: list[ShuffleRows]) -> ShuffleRows:
    times = (
        None
        if rows[0].times is None
        else np.concatenate([one.times for one in rows if one.times is not None])
    )
    who, items, ratings = (np.concatenate([one[at] for one in rows]) for at in range(3))
    return ShuffleRows(who, items, ratings, times)


def _sealed_whole(rows: ShuffleRows, n_items: int, duplicates: str) -> PackedBlock:
    try:
        return portion_of(rows.who, rows.items, rows.ratings, rows.times, n_items, "error")
    except DataError:
        # a user rated an item twice, which is rare; only then does the order of rows matter
        pass
    if duplicates == "error":
        raise WorkerProblem("Twice")
    # rows of a frame have no order: of two ratings, the newer and higher comes last
    keys = (rows.ratings,) if rows.times is None else (rows.ratings, rows.times)
    rows = rows.take(np.lexsort(keys))
    return portion_of(rows.who, rows.items, rows.ratings, rows.times, n_items, duplicates)


def in_pieces(whole: PackedBlock) -> Iterator[PackedBlock]:
    """Yield blocks of about `RATINGS_OF_A_PIECE` ratings, each of whole users."""
    n = len(whole.numbers)
    begin = 0
    while begin < n:
        end = int(np.searchsorted(whole.indptr, whole.indptr[begin] + RATINGS_OF_A_PIECE))
        end = min(max(end, begin + 1), begin + RATINGS_OF_A_PIECE, n)
        own = whole.indptr[begin : end + 1]
        entries = slice(int(own[0]), int(own[-1]))
        yield PackedBlock(
            own - own[0],
            whole.hashes[begin:end],
            whole.numbers[begin:end],
            whole.items[entries],
            whole.ratings[entries],
        )
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
