"""Options of ``discreet train`` for data larger than memory."""

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

_PANEL = "Data larger than memory"
MOST_BLOCKS = 1 << 16  # names have five digits, and Spark's shuffle numbers blocks in 16 bits
USUAL_BLOCKS = 64  # about 1.5 million ratings each for 10⁸ ratings, 150 MB per core


def _option(help: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **rest)


@dataclass
class EngineOptions:
    """Engine that holds the ratings, and the number of its blocks."""

    engine: Annotated[
        Literal["memory", "blocks", "spark"],
        _option(
            "Where ratings are held: in memory, in block files on this machine, or on a Spark"
            " cluster."
        ),
    ] = "memory"
    blocks: Annotated[
        int | None,
        _option(
            "Number of blocks that users are divided into. It is public: choose it independently of"
            " the data. Default: 64.",
            metavar="N",
        ),
    ] = None
    keep: Annotated[
        str | None,
        _option(
            "Keep the blocks in this folder for later trainings. They contain users' ratings.",
            metavar="FOLDER",
        ),
    ] = None
    master: Annotated[
        str | None,
        _option(
            "Spark master. Default: as set by spark-submit or the configuration.", metavar="MASTER"
        ),
    ] = None

    def check(self, model: Any = None) -> None:
        """Refuse options that conflict, before any data are read.

        Parameters
        ----------
        model : optional
            To be trained; without one, as for a timeline, every engine will do.
        """
        if self.engine == "memory":
            for name in ("blocks", "keep", "master"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"--{name} needs --engine blocks or --engine spark")
        elif model is None:
            pass
        elif not hasattr(model, "plan"):
            raise ConfigError(f"--engine {self.engine} is for private models: pass --epsilon")
        elif model.noise != "secure":
            raise ConfigError(
                f"--engine {self.engine} supports secure noise only: leave out --noise seeded"
            )
        elif model.make_algorithm().secret_sampling:
            raise ConfigError(
                f"{type(model).__name__} relies on secret Poisson sampling, which this engine"
                " cannot replay: train it with --engine memory"
            )
        if self.blocks is not None and not 1 <= self.blocks <= MOST_BLOCKS:
            raise ConfigError(f"--blocks is {self.blocks:,}, but must be from 1 to {MOST_BLOCKS:,}")
        if self.engine == "blocks" and self.master is not None:
            raise ConfigError("--master needs --engine spark")

    @contextmanager
    def ratings(
        self, data: list[str], source: DataOptions, out: Output, model: Any = None
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the data for `fit` and a dictionary of facts, without exact numbers if private."""
        if self.engine == "memory":
            if len(data) > 1:
                raise ConfigError(
                    f"--engine memory reads one file, and {len(data)} were given: use --engine"
                    " blocks"
                )
            _refuse_folder(data[0], private=hasattr(model, "plan"))
            yield source.read(data[0], out, model)
            return
        source.check()
        source.name_item_columns(model)
        source.refuse_filters(f"needs --engine memory, and this is --engine {self.engine}")
        with ExitStack() as stack:
            make = self._blocks if self.engine == "blocks" else self._spark
            found = make(data, source, out, stack)
            out.show_notices()
            out.say(f"Training on {found!r}")
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
                    f"{data[0]} already holds blocks: leave out --blocks, --keep and --items"
                )
            return BlockRatings(data[0], trust_user_column=source.trust_user_column)
        if "-" in data:
            raise ConfigError(
                "--engine blocks cannot read standard input: write it to a file first"
            )
        folder = self.keep
        if folder is not None and Path(folder).exists():
            raise ConfigError(
                f"--keep {folder} already exists: name a new folder, or train from the blocks in it"
            )
        if folder is None:
            # next to the data, where there is space for as much again, if that is writable
            parent = Path(data[0]).absolute().parent
            place = parent if os.access(parent, os.W_OK) else None
            temporary = tempfile.TemporaryDirectory(prefix=".discreet-", dir=place)
            folder = str(Path(stack.enter_context(temporary)) / "b")
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
        from discreet.data.formats import find_spark_format
        from discreet.engines.spark import SparkRatings
        from discreet.engines.spark.jobs import check_workers

        kind = find_spark_format(data)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("discreet train").config(
            "spark.ui.showConsoleProgress", "false"
        )
        if self.master is not None:
            builder = builder.master(self.master)
        spark = _start_spark(builder)
        stack.callback(spark.stop)
        # their failure is reported in a sentence, and Java's tracebacks would fill screens
        spark.sparkContext.setLogLevel("OFF")
        check_workers(spark)
        spark.sparkContext.setLogLevel("ERROR")
        reading = _read_options(source)
        header = reading.pop("header")
        separator = reading.pop("separator")
        frame = _frame(spark, data, kind, separator, header is not False)
        reading["duplicates"] = source.duplicates
        return SparkRatings(
            frame, partitions=self.blocks or USUAL_BLOCKS, folder=self.keep, **reading
        )


def _refuse_folder(data: str, private: bool) -> None:
    """Refuse a folder of ratings: one of its files would train on a part of the users."""
    from discreet.data.datasets import datasets

    named = data.lower() in [entry.name for entry in datasets()]
    folder = Path(data).expanduser()
    if named or not folder.is_dir() or (folder / "model.json").is_file():
        return
    if any(entry.is_file() for entry in folder.iterdir()):
        advice = (
            "pass --engine blocks, which also takes several files"
            if private
            else "join them into one, because a model without privacy is trained on one file"
        )
        raise DataError(f"{data} is a folder. To train on all files in it, {advice}.")


def _start_spark(builder: Any) -> Any:
    failed = False
    try:
        return builder.getOrCreate()
    except Exception:  # Java's traceback would fill a screen
        failed = True
    if failed:
        raise ConfigError(
            "Spark could not be started. It needs Java 17 or later and a master that can be"
            " reached."
        )


def _read_options(source: DataOptions) -> dict[str, Any]:
    return {
        "user": column(source.user),
        "item": column(source.item),
        "rating": column(source.rating),
        "timestamp": column(source.timestamp),
        "items": source.catalog_source,
        "missing": source.missing or "error",
        "duplicates": source.duplicates or "last",
        "unknown_items": source.unknown_items or "error",
        "separator": source.text_separator,
        "header": source.header,
        "trust_user_column": source.trust_user_column,
    }


def _frame(spark: Any, data: list[str], kind: str, separator: str | None, header: bool) -> Any:
    """Return the rows of files or folders as a Spark data frame."""
    failed = ""
    try:
        if kind == "csv":
            return spark.read.csv(data, sep=separator or ",", header=header)
        return spark.read.format(kind).load(data)
    except Exception as error:
        failed = type(error).__name__
    raise DataError(f"Spark cannot read {', '.join(data)} as {kind} ({failed}): check the path")
