"""Options of every command that reads ratings, and the reading."""

from __future__ import annotations

import difflib
import logging
import math
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from discreet.cli.app import ADVANCED
from discreet.cli.messages import format_count
from discreet.cli.output import Output, without_exact
from discreet.errors import ConfigError, DataError, DiscreetError, NoColumn

if TYPE_CHECKING:
    from discreet.data.ratings import Ratings

_READING = "Data file"
_DATA_SET = "Named data set"
_CHOOSING = "Filters"

_FILE_ONLY = (
    *(
        "user",
        "item",
        "rating",
        "timestamp",
        "separator",
        "header",
        "duplicates",
        "items",
        "items_id",
        "items_title",
        "unknown_items",
        "missing",
        "encoding",
        "dates",
    ),
    "trust_user_column",
    "normalize_ids",
)
_SET_ONLY = ("path", "catalog", "scale")
_FILTERS = ("min_rating", "binarize", "min_user_ratings", "min_item_ratings")


def _option(help: str, *names: str, panel: str = _READING, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **rest)


@dataclass
class ColumnOptions:
    """Layout of a file of ratings."""

    user: Annotated[
        str | None,
        _option("User column: its name, or its position starting at 0.", metavar="COLUMN"),
    ] = None
    item: Annotated[str | None, _option("Item column.", metavar="COLUMN")] = None
    rating: Annotated[
        str | None, _option("Rating column; 'none' to ignore ratings.", metavar="COLUMN")
    ] = None
    timestamp: Annotated[
        str | None, _option("Timestamp column; 'none' to ignore timestamps.", metavar="COLUMN")
    ] = None
    separator: Annotated[
        str | None,
        _option(
            "Column separator of a text file. Default: detected.", metavar="TEXT", panel=ADVANCED
        ),
    ] = None
    header: Annotated[
        bool | None,
        _option(
            "Whether a text file begins with a line of column names. Default: detected.",
            "--header/--no-header",
            panel=ADVANCED,
        ),
    ] = None
    missing: Annotated[
        Literal["error", "drop"] | None,
        _option("What to do with rows that lack a value. Default: error.", panel=ADVANCED),
    ] = None
    encoding: Annotated[
        str | None,
        _option(
            "Encoding of a text file that is not UTF-8, such as cp1252 (Excel on Windows).",
            metavar="NAME",
            panel=ADVANCED,
        ),
    ] = None
    dates: Annotated[
        Literal["day-first", "month-first"] | None,
        _option("Order of dates such as 5/6/2025.", panel=ADVANCED),
    ] = None
    duplicates: Annotated[
        Literal["last", "mean", "error"] | None,
        _option(
            "What to keep where a user rated an item more than once. Default: last.",
            panel=ADVANCED,
        ),
    ] = None

    def read_file(self, file: str, **more: Any) -> Ratings:
        """Read ratings from a file, or from a pipe (``-`` is standard input)."""
        from discreet.data.ratings import Ratings

        with as_file(file) as path:
            return Ratings.read(path, **self._reading, **more)

    def read_by_users(self, file: str) -> Iterator[Ratings]:
        """Read ratings from a file in pieces that have all ratings of their users."""
        from discreet.data.user_batches import read_by_users

        return read_by_users(file, **self._reading)

    @property
    def _reading(self) -> dict[str, Any]:
        """Arguments of `Ratings.read`."""
        return {
            "user": column(self.user),
            "item": column(self.item),
            "rating": column(self.rating),
            "timestamp": column(self.timestamp),
            "duplicates": self.duplicates or "last",
            "missing": self.missing or "error",
            "separator": self.text_separator,
            "header": self.header,
            "encoding": self.encoding,
            "dates": self.dates,
        }

    @property
    def text_separator(self) -> str | None:
        """The separator as a character."""
        words = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "space": " "}
        return words.get(self.separator, self.separator) if self.separator else None

    def refuse(self, why: str, *options: str) -> None:
        """Refuse options that would have no effect."""
        given = [
            name
            for name in options
            if (value := getattr(self, name)) is not None
            and value is not False
            and (name not in ("min_user_ratings", "min_item_ratings") or value)
        ]
        if given:
            raise ConfigError(f"--{given[0].replace('_', '-')} {why}")


@dataclass
class DataOptions(ColumnOptions):
    """Source of ratings: a file or a named data set, catalog and filters."""

    items: Annotated[
        str | None,
        _option(
            "Public item catalog: a file with an item id and a title on each line.", metavar="FILE"
        ),
    ] = None
    items_id: Annotated[
        str | None,
        _option("Column of item ids in the catalog. Default: found by its name.", metavar="COLUMN"),
    ] = None
    items_title: Annotated[
        str | None,
        _option("Column of titles in the catalog. Default: found by its name.", metavar="COLUMN"),
    ] = None
    unknown_items: Annotated[
        Literal["error", "drop"] | None,
        _option("What to do with ratings of items outside the catalog. Default: error."),
    ] = None
    trust_user_column: Annotated[
        bool,
        _option(
            "Accept a user column that does not seem to hold user ids.",
            "--trust-user-column",
            panel=ADVANCED,
        ),
    ] = False
    normalize_ids: Annotated[
        bool,
        _option(
            "Merge user ids that differ only in case, blanks or Unicode form.",
            "--normalize-ids",
            panel=ADVANCED,
        ),
    ] = False
    path: Annotated[
        str | None, _option("Archive or folder with the data set.", metavar="PATH", panel=_DATA_SET)
    ] = None
    catalog: Annotated[
        bool, _option("Keep items without ratings as well.", "--catalog", panel=_DATA_SET)
    ] = False
    scale: Annotated[
        float | None,
        _option("Fraction of the users of a generated data set.", metavar="SHARE", panel=_DATA_SET),
    ] = None
    min_rating: Annotated[
        float | None, _option("Drop ratings below this.", metavar="RATING", panel=_CHOOSING)
    ] = None
    binarize: Annotated[
        float | None,
        _option("Keep ratings of at least this, each as 1.", metavar="RATING", panel=_CHOOSING),
    ] = None
    min_user_ratings: Annotated[
        int, _option("Drop users with fewer ratings.", min=0, metavar="N", panel=_CHOOSING)
    ] = 0
    min_item_ratings: Annotated[
        int,
        _option(
            "Drop items with fewer ratings. This uses exact counts, which the privacy statement"
            " reports as a caution.",
            min=0,
            metavar="N",
            panel=_CHOOSING,
        ),
    ] = 0

    def read(self, data: str, out: Output, model: Any = None) -> tuple[Ratings, dict[str, Any]]:
        """Read the ratings; return them with a dictionary of facts, and print the facts.

        For a private `model` the facts hold no exact numbers.
        """
        private = hasattr(model, "plan")
        self.check()
        self.name_item_columns(model)
        start = time.perf_counter()
        with out.progress(f"Reading {_describe_data(data)}") as progress:
            ratings = self._load(data, progress)
        facts = {"data": data, **_counts(ratings), "merged": ratings.merged}
        merged = (
            f", {format_count(ratings.merged, 'repeated rating')} merged" if ratings.merged else ""
        )
        line = (
            f"Read {_describe_data(data)}: {_sentence(ratings)}{merged}"
            f" ({time.perf_counter() - start:.1f} s)"
        )
        out.say_exact(line, f"Read {_describe_data(data)}") if private else out.say(line)
        out.show_notices()
        chosen = self._choose(ratings)
        if chosen is not ratings:
            facts["kept"] = _counts(chosen)
            line = f"Kept {_sentence(chosen)}"
            out.say_exact(line, "Applied the filters") if private else out.say(line)
        if chosen.n_ratings == 0:
            raise DataError(
                f"no rating of {data} passes the filters: relax --min-rating, --binarize,"
                " --min-user-ratings or --min-item-ratings"
            )
        return chosen, without_exact(facts) if private else facts

    def read_public(self, file: str) -> Ratings:
        """Read ratings of public users as those of DATA are, and keep those of its values.

        Where the file has no columns of the names that are given for DATA, columns are found by
        their own names.
        """
        try:
            found = self._read_public(file)
        except DataError as error:
            raise DataError(f"--public-ratings: {error}") from error
        return replace(self, min_user_ratings=0, min_item_ratings=0)._choose(found)

    def _read_public(self, file: str) -> Ratings:
        named = [
            role
            for role in ("user", "item", "rating", "timestamp")
            if column(getattr(self, role)) not in (None, False)
        ]
        with as_file(file) as path:
            try:
                return self.read_file(path, normalize_ids=self.normalize_ids)
            except NoColumn as error:
                if not named:
                    raise
                nothing: dict[str, Any] = dict.fromkeys(named)
                alone = replace(self, **nothing)
                try:
                    found = alone.read_file(path, normalize_ids=self.normalize_ids)
                except NoColumn:
                    raise NoColumn(
                        f"{error}. Name its columns as in DATA, or user_id, item_id and rating."
                    ) from None
        options = ", ".join(f"--{role}" for role in named)
        logging.getLogger("discreet").warning(
            "--public-ratings: %s are names of columns of DATA that this file does not have, so its"
            " columns are recognized by their own names.",
            options,
        )
        return found

    def check(self) -> None:
        """Refuse invalid options before any data are read."""
        for name in ("min_rating", "binarize"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigError(
                    f"--{name.replace('_', '-')} is {value}, but must be a finite number"
                )
        for name in ("unknown_items", "items_id", "items_title"):
            if getattr(self, name) is not None and self.items is None:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} needs a catalog: pass --items FILE")

    @property
    def catalog_source(self) -> Any:
        """The catalog, read by the names of its columns if they are given."""
        from discreet.data.catalog import read_catalog

        if self.items is None or not (self.items_id or self.items_title):
            return self.items
        return read_catalog(self.items, self.items_id, self.items_title, self.item)

    def name_item_columns(self, model: Any) -> None:
        """Let the file of item features have the same column of ids as the catalog or ratings."""
        from discreet.data.catalog import ItemColumns
        from discreet.data.features import FeatureFile
        from discreet.data.public_items import PublicItems

        file = getattr(model, "item_features", None)
        name = self.items_id or self.item
        if isinstance(file, str) and name:
            model.item_features = FeatureFile(file, ItemColumns(hint=name))
        elif isinstance(file, PublicItems) and isinstance(file.features, str) and name:
            named = FeatureFile(file.features, ItemColumns(hint=name))
            model.item_features = replace(file, features=named)

    def refuse_filters(self, why: str) -> None:
        """Refuse filters and the options of named data sets."""
        self.refuse(why, *_SET_ONLY, *_FILTERS, "normalize_ids", "encoding", "dates")

    def refuse_choosing(self, why: str) -> None:
        """Refuse catalog, filters and the options of named data sets."""
        self.refuse(why, "items", "unknown_items", *_SET_ONLY, *_FILTERS)

    def _load(self, data: str, progress: Any) -> Ratings:
        from discreet.data.datasets import datasets, load_dataset

        names = [entry.name for entry in datasets()]
        if data.lower() in names and not Path(data).is_file():
            self.refuse("is for files, not for named data sets", *_FILE_ONLY)
            return load_dataset(
                data.lower(),
                self.path,
                scale=self.scale,
                catalog=self.catalog or None,
                progress=progress,
            )
        self.refuse(f"is for data sets ({', '.join(names)})", *_SET_ONLY)
        if Path(data, "model.json").is_file():
            raise DataError(
                f"{data} is a saved model: pass a file of ratings or the name of a data set"
            )
        if data != "-" and "/" not in data and "." not in data and not Path(data).exists():
            near = difflib.get_close_matches(data.lower(), names, n=2, cutoff=0.5)
            meant = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"data sets are {', '.join(names)}"
            )
            raise DataError(f"{data!r} is neither a file nor a data set: {meant}")
        return self.read_named(
            data, items=self.catalog_source, unknown_items=self.unknown_items or "error"
        )

    def read_named(self, file: str, **more: Any) -> Ratings:
        """Read a file with the options about user ids."""
        who = {"trust_user_column": self.trust_user_column, "normalize_ids": self.normalize_ids}
        return self.read_file(file, **who, **more)

    def _choose(self, ratings: Ratings) -> Ratings:
        import numpy as np

        if self.min_rating is not None:
            ratings = ratings.keep(ratings.values >= self.min_rating)
        if self.binarize is not None:
            ratings = ratings.binarize(self.binarize)
        if self.min_rating is not None or self.binarize is not None:
            ratings = ratings.select_users(np.diff(ratings.indptr) > 0)
        if self.min_user_ratings or self.min_item_ratings:
            ratings = ratings.filter(
                min_user_ratings=self.min_user_ratings, min_item_ratings=self.min_item_ratings
            )
        return ratings


@contextmanager
def as_file(name: str) -> Iterator[str]:
    """Yield a path that can be read more than once: the file, or a temporary copy of a pipe.

    The copy is readable by this user only and is deleted when the block ends. Error messages name
    the pipe, not the copy.
    """
    stream = _pipe(name)
    if stream is None:
        yield name
        return
    with tempfile.NamedTemporaryFile(prefix="discreet-") as copy:
        with stream:
            shutil.copyfileobj(stream, copy)
        copy.flush()
        try:
            yield copy.name
        except DiscreetError as error:
            raise type(error)(str(error).replace(copy.name, _describe_data(name))) from error


def _pipe(name: str) -> BinaryIO | None:
    """Return the stream of a pipe that is already open; None if the name is not one of a pipe."""
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise ConfigError(
                "- reads ratings from standard input, but nothing is piped into it: name a file"
            )
        return open(sys.stdin.fileno(), "rb", closefd=False)
    if not name.startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
        return None
    try:
        return open(name, "rb") if stat.S_ISFIFO(os.stat(name).st_mode) else None
    except OSError:  # the reader of the file reports the reason
        return None


def _describe_data(data: str) -> str:
    return "standard input" if data == "-" else data


@contextmanager
def hold_back_warnings(text: str) -> Iterator[None]:
    """Suppress the library's warnings that begin with `text` while the block runs."""
    logger = logging.getLogger("discreet")

    def other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(text)

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def column(name: str | None) -> str | int | bool | None:
    """Parse a column option; a column whose name is "1" takes precedence over position 1."""
    if name is None or not name.strip():
        return None
    if name.lower() == "none":
        return False
    return int(name) if name.isdecimal() else name


def _counts(ratings: Ratings) -> dict[str, int]:
    return {"users": ratings.n_users, "items": ratings.n_items, "ratings": ratings.n_ratings}


def _sentence(ratings: Ratings) -> str:
    parts = (ratings.n_users, "user"), (ratings.n_items, "item"), (ratings.n_ratings, "rating")
    return ", ".join(format_count(n, what) for n, what in parts)


def keep_known_items(ratings: Ratings, model: Any, where: str, skip: bool) -> tuple[Ratings, int]:
    """Return the ratings of the model's items, and the number of others.

    Ids may differ in type but not in spelling.
    """
    from discreet.data.ids import IdIndex

    strange = (IdIndex(model.item_ids_).positions(ratings.item_ids, "item id") < 0)[ratings.indices]
    count = int(strange.sum())
    if count and not skip:
        example = ratings.item_ids[ratings.indices[strange][0]]
        raise DataError(
            f"{where}: {count:,} of {ratings.n_ratings:,} ratings are of items unknown to the"
            f" model, such as {example!r}. Remove them, or pass --skip-unknown."
        )
    return ratings.with_items(model.item_ids_, "drop"), count
