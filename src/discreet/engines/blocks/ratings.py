"""Ratings in block files in a folder, for `fit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.catalog import Catalog
from discreet.data.columns import Column
from discreet.data.ratings import Duplicates, Missing, Ratings, Unknown
from discreet.engines.block_cache import BlockCache, room_for
from discreet.engines.block_format import PackedBlock
from discreet.engines.blocks.manifest import Manifest, read_portion, read_secret
from discreet.engines.blocks.readers import ItemColumn, ReadOptions
from discreet.engines.blocks.writer import write_blocks
from discreet.engines.user_hash import Secret
from discreet.kernels.threads import one_thread, thread_count
from discreet.privacy.sealed import guard
from discreet.privacy.statistics.base import Public
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.lazy_partitions import (
    Node,
    Outlook,
    Point,
    Replay,
    SumRequest,
    follow,
    nothing_yet,
)
from discreet.privacy.users.sealed_users import Users

CACHE_MEGABYTES = 256  # two or three blocks of a million ratings


class BlockRatings:
    """Ratings of any size in a folder of block files, as `BlockRatings.write` made it.

    A private model trains on it as on `Ratings`, and its releases have the same bits; but only a
    few blocks are in memory at a time: one per core, and those in the cache.

    Parameters
    ----------
    folder : path
    cache_megabytes : int
        Memory in which blocks and their users' intermediate results stay between passes; no bit of
        a result depends on it.
    trust_user_column : bool
        Train although the user column looked wrong when the blocks were written.
    """

    exact_only = True
    replays = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        cache_megabytes: int = CACHE_MEGABYTES,
        trust_user_column: bool = False,
    ) -> None:
        self._room = room_for(cache_megabytes)
        self._folder = Path(os.fspath(folder)).expanduser()
        self._manifest = Manifest.read(self._folder)
        self._secret = read_secret(self._folder, self._manifest)
        self._trusted = trust_user_column

    @classmethod
    def write(
        cls,
        source: Any,
        folder: str | os.PathLike[str],
        *,
        blocks: int = 64,
        user: Column = None,
        item: Column = None,
        rating: Column = None,
        timestamp: Column = None,
        items: Any = None,
        duplicates: Duplicates = "last",
        separator: str | None = None,
        header: bool | None = None,
        unknown_items: Unknown = "error",
        trust_user_column: bool = False,
        missing: Missing = "error",
        replace: bool = False,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> BlockRatings:
        """Divide ratings into blocks of users, reading one part of the source at a time.

        Parameters
        ----------
        source : path, frame, Ratings, or an iterable of paths or frames
            A file as for `Ratings.read`, a folder of such files, a frame, or several of these in
            sequence.
        folder : path
            Target of the blocks. They hold users' ratings: protect them like the data. They contain
            no user ids, but the file ``secret.key`` could be used to recover them.
        blocks : int
            Number of blocks: a public number, which must not depend on the data. Each core holds
            one at a time; a block of 1,500,000 ratings takes about 150 MB.
        items, user, item, rating, timestamp, duplicates, separator, header, unknown_items,
        trust_user_column, missing
            As in `Ratings.read`.
        replace : bool
            Replace existing blocks.
        progress : function, optional
            Called as ``progress(done, total, text)``.
        """
        given = None if items is None else Catalog.from_any(items, hint=item)
        titles = None if given is None else given.titles
        filtered = ""
        catalog = given is not None
        if isinstance(source, Ratings):
            filtered = source.filtered
            if given is None:
                given = Catalog(source.item_ids)
                titles = source.titles
                catalog = source.catalog
        reading = ReadOptions(
            {"user": user, "item": item, "rating": rating, "timestamp": timestamp},
            separator,
            header,
            missing,
        )
        target = Path(os.fspath(folder)).expanduser()
        table = ItemColumn(given, unknown_items)
        facts = (titles, filtered, catalog, trust_user_column)
        write_blocks(source, target, blocks, reading, table, duplicates, replace, *facts, progress)
        return cls(target)

    @property
    def n_items(self) -> int:
        return len(self._manifest.item_ids)

    @property
    def item_ids(self) -> NDArray[Any]:
        return self._manifest.item_ids

    @property
    def titles(self) -> NDArray[Any] | None:
        return self._manifest.titles

    @property
    def catalog(self) -> bool:
        return self._manifest.catalog

    @property
    def filtered(self) -> str:
        return self._manifest.filtered

    @property
    def parts(self) -> int:
        """Number of blocks, which is public."""
        return len(self._manifest.blocks)

    @property
    def engine(self) -> str:
        """Where the ratings were, for the ledger."""
        return f"blocks: users are in {self.parts:,} block files on one machine"

    @property
    def rated(self) -> bool:
        return self._trusted or self._manifest.rated

    @property
    def user_problem(self) -> str:
        return "" if self._trusted else self._manifest.user_problem

    def rating_range(self) -> tuple[float, float] | None:
        low, high = self._manifest.low, self._manifest.high
        return None if low is None or high is None else (low, high)

    def check(self) -> None:
        """Compare every block with its checksum; raise an `EngineError` if one is lost."""
        for at, block in enumerate(self._manifest.blocks):
            read_portion(self._folder, at, block)

    @guard("sealed ratings")
    def hash_users(self, age_key: NDArray[np.uint64], least: int) -> NDArray[np.uint64]:
        """Return hashes by the key of a timeline, of users with at least so many ratings: secret,
        for tables of entries.
        """
        found = [np.zeros(0, np.uint64)]
        for at, block in enumerate(self._manifest.blocks):
            portion = read_portion(self._folder, at, block)
            found.append(portion.hash_users(self._secret, age_key, least))
        return np.concatenate(found)

    @guard("sealed ratings")
    def seal(self, bounds: Bounds, *, seed: int = 0) -> Users:
        engine = FileEngine(self._folder, self._manifest, self._secret, bounds, seed, self._room)
        empty = PackedBlock.of_nobody().sealed(bounds, seed, self._secret)
        return Users(Replay(engine, empty), Public(bounds, self.n_items))

    def __repr__(self) -> str:
        return f"<BlockRatings: {self.n_items:,} items, {self.parts} block files>"


class FileEngine:
    """Passes over block files, one file per core at a time."""

    def __init__(
        self, folder: Path, manifest: Manifest, secret: Secret, bounds: Bounds, seed: int, room: int
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._secret = secret
        self._bounds = bounds
        self._seed = seed
        self._kept = BlockCache(room)
        self._outlook = Outlook()

    def close(self) -> None:
        self._kept = BlockCache(0)

    def run(self, root: Node, wanted: Sequence[SumRequest]) -> list[NDArray[np.int64]]:
        blocks = self._manifest.blocks
        keep = self._outlook.worth_keeping(root)
        workers = min(thread_count(), len(blocks))
        left = iter(range(len(blocks)))
        lock = Lock()

        def work(_: int) -> list[NDArray[np.int64]]:
            into = nothing_yet(wanted)
            with one_thread():
                while True:
                    with lock:
                        at = next(left, None)
                    if at is None:
                        return into
                    self._one(at, root, into, keep)

        if workers < 2:
            return work(0)
        with ThreadPoolExecutor(workers) as pool:
            first, *others = list(pool.map(work, range(workers)))
        for other in others:
            for total, part in zip(first, other, strict=True):
                total += part
        return first

    def _one(
        self, at: int, root: Node, into: Sequence[NDArray[np.int64]], keep: Collection[Point]
    ) -> None:
        @guard("sealed ratings")
        def block() -> Any:
            portion = read_portion(self._folder, at, self._manifest.blocks[at])
            return portion.sealed(self._bounds, self._seed, self._secret)

        self._kept.keep(at, follow(root, block, into, self._kept.lookup(at), keep))
