"""Where people are while a model learns from them: the options of ``discreet train`` for more
than memory holds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from discreet.cli.data_options import DataOptions, column
from discreet.cli.output import Output
from discreet.errors import ConfigError, DataError

_PANEL = "More than memory holds"
MOST_BLOCKS = 1 << 16
USUAL_BLOCKS = 64
_TABLES = {".parquet": "parquet", ".pq": "parquet", ".orc": "orc", ".json": "json"}


def _option(help: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **rest)


@dataclass
class EngineOptions:
    """Which engine holds the people, and in how many blocks."""

    engine: Annotated[
        Literal["memory", "blocks", "spark"],
        _option(
            "Where people are: in memory, in block files on this machine, or on a Spark cluster."
        ),
    ] = "memory"
    blocks: Annotated[
        int | None,
        _option(
            "Blocks that users are divided into; public, so choose it without looking. Default 64.",
            metavar="N",
        ),
    ] = None
    keep: Annotated[
        str | None,
        _option(
            "Keep the blocks in this folder, for later trainings; they hold people's ratings.",
            metavar="FOLDER",
        ),
    ] = None
    master: Annotated[
        str | None,
        _option(
            "Spark master; without it, as spark-submit or the configuration says.", metavar="MASTER"
        ),
    ] = None

    def check(self, model: Any) -> None:
        """Refuse what does not go together, before anything is read."""
        if self.engine == "memory":
            for name in ("blocks", "keep", "master"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"--{name} goes with --engine blocks or --engine spark")
        elif not hasattr(model, "plan"):
            raise ConfigError(f"--engine {self.engine} is for private models: give --epsilon")
        elif model.noise != "secure":
            raise ConfigError(
                f"--engine {self.engine} adds up whole numbers: leave --noise seeded out"
            )
        elif model.make_algorithm().secret_sampling:
            raise ConfigError(
                f"{type(model).__name__} draws people by secret coins: train it with --engine"
                " memory"
            )
        if self.blocks is not None and not 1 <= self.blocks <= MOST_BLOCKS:
            raise ConfigError(f"--blocks is {self.blocks:,}, but must be from 1 to {MOST_BLOCKS:,}")
        if self.engine == "blocks" and self.master is not None:
            raise ConfigError("--master goes with --engine spark")

    @contextmanager
    def people(
        self, data: list[str], source: DataOptions, out: Output, model: Any = None
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What `fit` learns from, and what was read as a dictionary; nothing exact for a
        private model.
        """
        if self.engine == "memory":
            if len(data) > 1:
                raise ConfigError(
                    f"{len(data)} files were given: several are read with --engine blocks"
                )
            yield source.read(data[0], out, model)
            return
        source.check()
        source.refuse_filters(f"goes with --engine memory, and this is --engine {self.engine}")
        with ExitStack() as stack:
            make = self._blocks if self.engine == "blocks" else self._spark
            found = make(data, source, out, stack)
            out.say(f"Learning from {found!r}")
            yield (
                found,
                {
                    "data": data if len(data) > 1 else data[0],
                    "engine": self.engine,
                    "blocks": found.parts,
                },
            )

    def _blocks(self, data: list[str], source: DataOptions, out: Output, stack: ExitStack) -> Any:
        from discreet.engines.blocks import BlockRatings
        from discreet.engines.blocks.manifest import MANIFEST

        if len(data) == 1 and (Path(data[0]) / MANIFEST).is_file():
            if self.blocks is not None or self.keep is not None or source.items is not None:
                raise ConfigError(
                    f"{data[0]} holds blocks already: leave --blocks, --keep and --items out"
                )
            return BlockRatings(data[0], trust_user_column=source.trust_user_column)
        if "-" in data:
            raise ConfigError(
                "blocks are written from files, and - is standard input: write it to a file first"
            )
        folder = self.keep
        if folder is not None and Path(folder).exists():
            raise ConfigError(
                f"--keep {folder} is there already: give another folder, or train from the blocks"
                " in it"
            )
        if folder is None:
            beside = Path(data[0]).absolute().parent
            place = beside if os.access(beside, os.W_OK) else None
            folder = str(
                Path(
                    stack.enter_context(tempfile.TemporaryDirectory(prefix=".discreet-", dir=place))
                )
                / "b"
            )
        with out.progress("Writing blocks") as progress:
            return BlockRatings.write(
                data,
                folder,
                blocks=self.blocks or USUAL_BLOCKS,
                progress=progress,
                **_read_options(source),
            )

    def _spark(self, data: list[str], source: DataOptions, out: Output, stack: ExitStack) -> Any:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise ConfigError(
                '--engine spark needs pyspark: pip install "discreet[spark]", and Java 17'
            ) from None
        from discreet.engines.spark import SparkRatings

        kind = _kind(data)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("discreet train").config(
            "spark.ui.showConsoleProgress", "false"
        )
        if self.master is not None:
            builder = builder.master(self.master)
        spark = _start_spark(builder)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        reading = _read_options(source)
        header = reading.pop("header")
        separator = reading.pop("separator")
        frame = _frame(spark, data, kind, separator, header is not False)
        reading["duplicates"] = source.duplicates
        return SparkRatings(
            frame, partitions=self.blocks or USUAL_BLOCKS, folder=self.keep, **reading
        )


def _start_spark(builder: Any) -> Any:
    failed = False
    try:
        return builder.getOrCreate()
    except Exception:  # Java's own words fill a screen
        failed = True
    if failed:
        raise ConfigError(
            "Spark could not be started: it needs Java 17 or later, and a master that can be"
            " reached"
        )


def _read_options(source: DataOptions) -> dict[str, Any]:
    return {
        "user": column(source.user),
        "item": column(source.item),
        "rating": column(source.rating),
        "timestamp": column(source.timestamp),
        "items": source.items,
        "duplicates": source.duplicates or "last",
        "unknown_items": source.unknown_items or "error",
        "separator": source.text_separator,
        "header": source.header,
        "trust_user_column": source.trust_user_column,
    }


def _kind(data: list[str]) -> str:
    """What the files or folders hold, by their names: Parquet, ORC, JSON, or text."""
    kinds = {_TABLES.get(Path(name.rstrip("/")).suffix.lower(), "csv") for name in data}
    if all(Path(name).is_dir() and not Path(name).suffix for name in data):
        inside = {
            _TABLES.get(one.suffix.lower(), "csv")
            for name in data
            for one in Path(name).glob("[!._]*")
        }
        kinds = inside or kinds
    if len(kinds) > 1:
        raise ConfigError(
            f"the files are of several kinds ({', '.join(sorted(kinds))}): give those of one kind"
        )
    (kind,) = kinds
    return kind


def _frame(spark: Any, data: list[str], kind: str, separator: str | None, header: bool) -> Any:
    """The rows of files or folders wherever Spark can read."""
    failed = ""
    try:
        if kind == "csv":
            return spark.read.csv(data, sep=separator or ",", header=header)
        return spark.read.format(kind).load(data)
    except Exception as error:
        failed = type(error).__name__
    raise DataError(f"Spark cannot read {', '.join(data)} as {kind} ({failed}): check the path")
