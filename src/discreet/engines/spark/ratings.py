"""Ratings in a Spark DataFrame, for `fit`.

The frame is read once. All workers get the public catalog and find the positions of items; rows are
divided by a hash of the user, so that no user is in two blocks. The task of each block seals it
into compressed sparse rows and writes them as a binary column of Parquet (`shuffle`). From then on
Spark reads only these blocks: every release is one job over them.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from discreet.data.catalog import Catalog
from discreet.data.columns import Column, describe_orders, find_columns
from discreet.data.csr import check_duplicates_rule
from discreet.data.ids import MISSING, canonical, encode, object_array
from discreet.data.ratings import Duplicates, Missing, Unknown
from discreet.data.user_column import CHECKED_IDS, find_user_problem
from discreet.engines.block_cache import room_for
from discreet.engines.block_format import PackedBlock
from discreet.engines.spark import shuffle
from discreet.engines.spark.jobs import (
    SealedBlocks,
    SparkEngine,
    arrow_batches,
    check_workers,
    outcome,
)
from discreet.engines.user_hash import Secret
from discreet.errors import ConfigError, DataError
from discreet.privacy.sealed import guard
from discreet.privacy.statistics.base import Public
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.lazy_partitions import Replay
from discreet.privacy.users.sealed_users import Users

logger = logging.getLogger("discreet")

MOST_PARTITIONS = 1 << 16  # the shuffle numbers blocks in 16 bits
WHOLE = r"^[ \t]*(0|-?[1-9][0-9]{0,99})(?:\.0)?[ \t]*$"  # as in `discreet.data.ids.parse_id`
WHOLE_KINDS = ("byte", "short", "integer", "long")
ROWS_OF_A_BATCH = 1 << 12  # packets of this many rows are below 1 GB together
_EXACT = 2.0**53  # below, a float represents every whole number exactly
#: Files that Spark writes: blocks, checksums, the mark of success, and unfinished tasks.
_WRITTEN = re.compile(r"\.?(part-.*\.parquet|_SUCCESS)(\.crc)?|_temporary")


class SparkRatings:
    """Ratings in a Spark DataFrame, one row per rating.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    items : optional
        Public item catalog, as for `Ratings.read`. Without one, the items are found in the data,
        and the statement of every model reports this.
    rating_range : (low, high), optional
        The range of ratings, if it is public. Without it, a model that needs one reads it from the
        data.
    partitions : int
        Number of blocks of users: a public number, which must not depend on the data. Releases do
        not depend on it. Sealing takes the memory of one block per task: about 100 bytes per
        rating.
    user, item, rating, timestamp : str, optional
        Names of the columns; found by convention where not given. ``rating=False`` and
        ``timestamp=False`` ignore them.
    duplicates : {"last", "mean", "error"}, optional
        As for `Ratings.read`. Rows of a frame have no order, so "last" needs a timestamp column; of
        equally new ratings the highest counts. By default "last" with timestamps, and "error"
        without.
    unknown_items : {"error", "drop"}
    folder : str, optional
        Path for sealed blocks that all machines can access, such as ``hdfs:`` or ``s3a:``. They
        hold users' ratings, and a keyed hash instead of user ids. By default, if Spark runs on one
        machine, a temporary folder. A local folder is readable by its owner alone; protect and
        delete any other one yourself.
    trust_user_column : bool
        Train although the user column looks wrong, as in `Ratings.read`.
    cache_megabytes : int
        Memory of each Python worker for blocks between passes; no bit of a result depends on it.
    """

    exact_only = True
    replays = True

    def __init__(
        self,
        frame: Any,
        *,
        items: Any = None,
        rating_range: tuple[float, float] | None = None,
        partitions: int = 32,
        user: Column = None,
        item: Column = None,
        rating: Column = None,
        timestamp: Column = None,
        duplicates: Duplicates | None = None,
        unknown_items: Unknown = "error",
        folder: str | None = None,
        cache_megabytes: int = 256,
        trust_user_column: bool = False,
        missing: Missing = "error",
    ) -> None:
        if (
            isinstance(partitions, bool)
            or not isinstance(partitions, int)
            or not 1 <= partitions <= MOST_PARTITIONS
        ):
            raise ConfigError(
                f"partitions is {partitions!r}, but must be a whole number from 1 to"
                f" {MOST_PARTITIONS:,}"
            )
        if unknown_items not in ("error", "drop"):
            raise ConfigError(f'unknown_items must be "error" or "drop", not {unknown_items!r}')
        if not (hasattr(frame, "mapInArrow") and hasattr(frame, "sparkSession")):
            raise DataError(f"SparkRatings needs a Spark DataFrame, not a {type(frame).__name__}")
        self.spark = frame.sparkSession
        self.parts = partitions
        self.public_range = rating_range
        chosen = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
        names = list(frame.columns)
        positions = find_columns(names, chosen, "the Spark DataFrame")
        self._columns = {role: names[at] for role, at in positions.items()}
        if missing == "drop" and "rating" in positions:
            rated = frame[self._columns["rating"]]
            frame = frame.filter(rated.isNotNull() & ~rated.cast("string").isin(*MISSING))
        self._frame = frame
        timed = "timestamp" in positions
        self._duplicates = duplicates or ("last" if timed else "error")
        check_duplicates_rule(self._duplicates)
        if self._duplicates == "last" and not timed:
            raise ConfigError(
                'duplicates="last" needs to know which rating is newest, but rows of a frame have'
                ' no order: name a timestamp column with timestamp=, or pass duplicates="mean" or'
                ' duplicates="error"'
            )
        self._unknown = unknown_items
        self.catalog = items is not None
        self.filtered = ""
        given = (
            Catalog.from_any(items, hint=item)
            if items is not None
            else Catalog(self._collect_items())
        )
        self.item_ids: NDArray[Any] = given.ids
        self.titles: NDArray[Any] | None = given.titles
        self._folder = folder
        self._room = room_for(cache_megabytes)
        self._sealed: SealedBlocks | None = None
        self._trusted = trust_user_column

    @property
    def rated(self) -> bool:
        """Whether there is a rating column; see `Ratings`."""
        return self._trusted or "rating" in self._columns

    @property
    def user_problem(self) -> str:
        """Doubt about the user column, as in `Ratings`, but without counting repeated rows."""
        from pyspark.sql import functions as F

        if self._trusted:
            return ""
        ids = self._frame.select(F.col(self._columns["user"]).cast("string").alias("user"))
        some = ids.distinct().limit(CHECKED_IDS)
        found = [row["user"] for row in outcome(lambda: some.collect()) if row["user"] is not None]
        problem = find_user_problem(object_array(found, len(found)), 1, 0)
        return problem or describe_orders(self._columns["user"])

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def engine(self) -> str:
        """Where the ratings were, for the ledger."""
        return f"spark: users are in {self.parts:,} blocks on a Spark cluster"

    def rating_range(self) -> tuple[float, float] | None:
        from pyspark.sql import functions as F

        if "rating" not in self._columns:
            return (1.0, 1.0)
        number = self._rating()
        row = outcome(
            lambda: self._frame.select(
                F.min(number).alias("low"), F.max(number).alias("high")
            ).first()
        )
        return (
            None if row is None or row["low"] is None else (float(row["low"]), float(row["high"]))
        )

    def ready(self) -> None:
        """Compare fingerprints with the workers and, unless done before, seal the ratings."""
        check_workers(self.spark)
        if self._sealed is None:
            path = self._path()
            secret = Secret()
            self._sealed = SealedBlocks(
                self.spark, path, self.parts, secret, lambda: self._write(path, secret)
            )

    def hash_users(self, age_key: NDArray[np.uint64], least: int) -> NDArray[np.uint64]:
        """Return hashes by the key of a timeline, of users with at least so many ratings.

        Workers compute them; the driver sees no id. Secret, for tables of entries.
        """
        if self._sealed is None:
            self.ready()
        assert self._sealed is not None
        return self._sealed.hash_users(age_key, least)

    @guard("sealed ratings")
    def seal(self, bounds: Bounds, *, seed: int = 0) -> Users:
        if self._sealed is None:
            self.ready()
        assert self._sealed is not None
        engine = SparkEngine(self._sealed, bounds, seed, self._room)
        empty = PackedBlock.of_nobody().sealed(bounds, seed, self._sealed.secret)
        return Users(Replay(engine, empty), Public(bounds, self.n_items))

    def __repr__(self) -> str:
        return f"<SparkRatings: {self.n_items:,} items, {self.parts} blocks>"

    # ------------------------------------------------------------ sealing

    def rows(self) -> Any:
        """Return the frame as (user, item, rating, time), with ids as integers or text."""
        from pyspark.sql import functions as F

        frame = self._frame
        columns = self._columns
        kinds = {name: frame.schema[name].dataType.typeName() for name in columns.values()}
        found = [
            as_id(F.col(columns[role]), kinds[columns[role]]).alias(role)
            for role in ("user", "item")
        ]
        found.append(self._rating().alias("rating"))
        if "timestamp" in columns:
            found.append(
                seconds(F.col(columns["timestamp"]), kinds[columns["timestamp"]]).alias("time")
            )
        return frame.select(*found)

    def _write(self, path: str, secret: Secret) -> None:
        keys = partition_keys(self.spark, self.parts)
        local = local_folder(path)

        def job() -> None:
            divide = shuffle.divider(self.item_ids, self._unknown, keys, secret)
            seal = shuffle.sealer(self.n_items, self._duplicates, task_number)
            packets = self.rows().mapInArrow(divide, shuffle.PACKETS)
            blocks = packets.repartition(self.parts, "key").mapInArrow(seal, shuffle.SEALED)
            writing = blocks.write.mode("append" if local is not None else "overwrite").option(
                "compression", "none"
            )
            writing.option("parquet.enable.dictionary", "false").parquet(path)

        if local is not None:
            make_private(local)
        with arrow_batches(self.spark, ROWS_OF_A_BATCH):
            outcome(job)
        if local is not None:
            restrict_files(local)

    def _rating(self) -> Any:
        from pyspark.sql import functions as F

        if "rating" not in self._columns:
            return F.lit(1.0)
        return F.col(self._columns["rating"]).try_cast("double")

    def _collect_items(self) -> NDArray[Any]:
        """Read the items from the data, which the statement declares as not covered by ε."""
        from pyspark.sql import functions as F

        name = self._columns["item"]
        kind = self._frame.schema[name].dataType.typeName()
        key = key_of(F.col(name), kind).alias("key")
        found = [
            row["key"] for row in outcome(lambda: self._frame.select(key).distinct().collect())
        ]
        if not found or any(one is None for one in found):
            raise DataError(
                "the frame holds no ratings, or an item id is missing: fill it in or drop the row"
            )
        return encode([canonical(one) if kind == "string" else one for one in found], "item id")[0]

    def _path(self) -> str:
        if self._folder is not None:
            return self._folder if ":" in self._folder else Path(self._folder).absolute().as_uri()
        master = str(self.spark.conf.get("spark.master", ""))
        if not master.startswith("local"):
            raise ConfigError(
                "sealed blocks need a place: pass folder=, a path that all machines of the cluster"
                " can access (the blocks hold users' ratings)"
            )
        folder = tempfile.mkdtemp(prefix="discreet-spark-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return (Path(folder) / "sealed").as_uri()


def task_number() -> int:
    """Return the number of the task that this worker runs."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def partition_keys(spark: Any, parts: int) -> NDArray[np.int32]:
    """Return for each block a number that Spark's hash sends to the partition of that block.

    So each block is a task of its own. If no number hashes to a partition, or Spark partitions in
    another way, blocks only share tasks; rows with one key stay together in any case.
    """
    from pyspark.sql import functions as F

    keys = np.arange(parts, dtype=np.int32)
    tried = spark.range(0, 16 * parts + 64, 1, 1).select(F.col("id").cast("int").alias("key"))
    rows = outcome(
        lambda: tried.select("key", F.pmod(F.hash("key"), F.lit(parts)).alias("part")).collect()
    )
    for key, part in rows:
        keys[part] = key
    return keys


def as_id(column: Any, kind: str) -> Any:
    """Return an id as workers read it: text unchanged, because they parse all spellings."""
    return column if kind == "string" else key_of(column, kind)


def key_of(column: Any, kind: str) -> Any:
    """Return the form that all spellings of an id share: an integer if it is one, else text."""
    from pyspark.sql import functions as F

    if kind in WHOLE_KINDS:
        return column.cast("long")
    if kind in ("float", "double"):
        whole = (F.abs(column) < F.lit(_EXACT)) & (column == F.floor(column))
        return F.when(whole, F.floor(column).cast("long").cast("string")).otherwise(
            column.cast("string")
        )
    text = column.cast("string")
    return F.when(text.rlike(WHOLE), F.regexp_extract(text, WHOLE, 1)).otherwise(text)


def seconds(column: Any, kind: str) -> Any:
    """Return a time as an integer."""
    from pyspark.sql import functions as F

    if kind in WHOLE_KINDS:
        return column.cast("long")
    if kind in ("float", "double"):
        return F.floor(column).cast("long")
    return F.unix_timestamp(column.try_cast("timestamp"))


# ------------------------------------------------------------ local folders


def local_folder(path: str) -> Path | None:
    """Return the local folder of a Spark path, or None if only Spark can access its storage."""
    return Path(unquote(urlsplit(path).path)) if path.startswith("file:") else None


def make_private(folder: Path) -> None:
    """Create or empty the folder for its owner alone: Spark would let all users read it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = list(folder.iterdir())
    if any(_WRITTEN.fullmatch(one.name) is None for one in inside):
        raise ConfigError(
            f"{folder} holds other files than sealed blocks: choose another folder, or an empty one"
        )
    os.chmod(folder, 0o700)
    for one in inside:
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


def restrict_files(folder: Path) -> None:
    """Let only the owner read the files of the folder."""
    for one in folder.rglob("*"):
        os.chmod(one, 0o700 if one.is_dir() else 0o600)
