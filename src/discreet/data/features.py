"""Public item features: numbers about items that do not come from ratings.

A file (csv, tsv, ``::``- or ``|``-separated, parquet, feather) or a frame has one line per item:
its id, and columns of

    numbers                  each is a feature; an empty field, or one such as ``N/A``, is unknown
    lists of numbers         (parquet, feather, frames) such as embeddings: each number is a feature
    words such as ``Comedy|War`` each word that two items have becomes a feature of 0 and 1; a
                                 column without "|" must have at most 50 different words
    titles such as ``Up (2009)`` the year in parentheses is a feature, if half of the titles have it

Other text is ignored. A mapping gives numbers, or words, by item id; an array has one row per item
of the ratings, in their order. Both hold finite numbers: leave an item without known features out
of the mapping.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.catalog import ID_NAMES, TITLE_NAMES
from discreet.data.columns import normalize
from discreet.data.csv_format import guess_separator, split
from discreet.data.ids import IdIndex, as_ids, canonical, first_repeated
from discreet.data.readers import read_list
from discreet.errors import DataError

logger = logging.getLogger("discreet")

MOST_WORDS = 50  # distinct words in a column without "|": more are names, not categories
_NOT_KNOWN = {"", "-", "?", "na", "n/a", "nan", "null", "none", "unknown"}
_YEAR = re.compile(r"\((\d{4})\)")


@dataclass(frozen=True, eq=False)
class Features:
    """Features of items.

    Attributes
    ----------
    ids : (n,) array
        Item ids of the rows of `X`.
    names : tuple of str
        Names of the columns of `X`.
    X : (n, k) float64
        NaN where a feature is unknown.
    """

    ids: NDArray[Any]
    names: tuple[str, ...]
    X: NDArray[np.float64]


def item_features(source: Any, item_ids: NDArray[Any]) -> NDArray[np.float64]:
    """Return features (n_items, k) from any form that the module lists; NaN where unknown."""
    if isinstance(source, np.ndarray):
        X = np.asarray(source, np.float64) if source.dtype.kind in "fiub" else np.zeros(0)
        if X.ndim != 2 or len(X) != len(item_ids) or not X.shape[1]:
            raise DataError(
                f"item_features is an array of {source.dtype} with shape {source.shape}, but must"
                f" have one row of numbers for each of the {len(item_ids):,} items"
            )
        return _finite(X)
    given = source if isinstance(source, Features) else read_features(source)
    at = IdIndex(given.ids).positions(item_ids, "item id")
    if (at < 0).all():
        raise DataError(
            f"item_features has none of the {len(item_ids):,} items: its ids are such as "
            f"{given.ids.tolist()[0]!r}, and those of the ratings such as {item_ids.tolist()[0]!r}"
        )
    X = np.where(at[:, None] >= 0, given.X[at], np.nan)
    known = int(np.isfinite(X).any(axis=1).sum())
    names = ", ".join(given.names[:8])
    more = f" and {len(given.names) - 8:,} more" if len(given.names) > 8 else ""
    say = logger.warning if 2 * known < len(X) else logger.info
    say("item_features: %s%s, for %s of %s items", names, more, f"{known:,}", f"{len(X):,}")
    return X


def read_features(source: Any) -> Features:
    """Read features from a file, a frame or a mapping."""
    if isinstance(source, (str, os.PathLike)):
        names, columns = _from_file(source)
        where = str(source)
    elif isinstance(source, Mapping):
        return _from_mapping(source)
    elif hasattr(type(source), "columns"):
        import narwhals.stable.v1 as nw

        try:
            frame: Any = nw.from_native(source)
            frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
            names = list(frame.columns)
            where = "item_features"
        except nw.exceptions.DuplicateError:
            raise DataError(
                "item_features has several columns of the same name: rename them"
            ) from None
        columns = [frame[name].to_list() for name in names]
    else:
        raise DataError(
            "item_features must be a file, a frame, an array or a mapping from item id to numbers"
            f" or words, not a {type(source).__name__}"
        )
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise DataError(f"{where} has several columns named {twice!r}: rename the others")
    at = next((i for i, name in enumerate(names) if normalize(name) in ID_NAMES), None)
    if at is None:
        raise DataError(
            f"{where} has no column of item ids: its columns are"
            f" {', '.join(map(repr, names[:12]))}; name one of them item_id"
        )
    found: dict[str, Any] = {}
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        if i != at:
            found |= _column(str(name), column)
    return _check_features(_ids(columns[at]), found, where)


def _check_features(ids: NDArray[Any], found: Mapping[str, Any], where: str) -> Features:
    repeated = first_repeated(ids)
    if repeated is not None:
        raise DataError(f"{where} lists the item {repeated!r} twice: list every item once")
    if not found:
        raise DataError(
            f"{where} holds no features: it needs columns of numbers, or of words such as"
            " Comedy|War"
        )
    X = np.column_stack([np.asarray(column, np.float64) for column in found.values()])
    return Features(ids, tuple(found), _finite(X, gaps=True))


def _finite(X: NDArray[np.float64], gaps: bool = False) -> NDArray[np.float64]:
    """Check that all numbers are finite or, with `gaps`, unknown; others cannot be learned from."""
    wrong = np.isinf(X) if gaps else ~np.isfinite(X)
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1))
        raise DataError(
            f"item_features of {len(rows):,} items are NaN or infinite, the first in row"
            f" {rows[0]:,} (from 0): correct them; leave out an item without known features, or"
            " leave its field empty in a file or frame"
        )
    return X


def _ids(values: Sequence[Any]) -> NDArray[Any]:
    forms = [canonical(value) for value in values]
    return as_ids(
        forms if all(isinstance(form, int) for form in forms) else list(values), "item id"
    )


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return the features of a column: itself, one per word, the years of titles, or none."""
    lists = [value for value in values if value is not None]
    if lists and all(isinstance(value, (list, tuple, np.ndarray)) for value in lists):
        return _lists(name, values)
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) == len(numbers) and not np.isnan(known).all():
        return {name: numbers}
    texts = ["" if value is None or value != value else str(value) for value in values]
    if normalize(name) in TITLE_NAMES:
        years = [_YEAR.findall(text) for text in texts]
        good = 2 * sum(map(bool, years)) >= len(years)
        last = [float(year[-1]) if year else np.nan for year in years]
        return {"year": last} if good else {}
    words = [{word.strip() for word in text.split("|")} - {""} for text in texts]
    many = len(set().union(*words)) > MOST_WORDS
    return _words(name, words) if not many or any("|" in text for text in texts) else {}


def _lists(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return each number of a column of embeddings, which must all have the same length."""
    rows = [None if value is None else np.asarray(value) for value in values]
    shapes = {row.shape for row in rows if row is not None}
    if len(shapes) > 1 or any(row.dtype.kind not in "fiub" for row in rows if row is not None):
        raise DataError(
            f"the column {name!r} of item_features must hold lists of equally many numbers"
        )
    width = next(iter(shapes))[0]
    X = np.array([np.full(width, np.nan) if row is None else row for row in rows], np.float64)
    return {f"{name} {i}": X[:, i] for i in range(width)}


def _words(name: str, words: Sequence[set[str]]) -> dict[str, Any]:
    held = Counter(word for one in words for word in one)
    known = np.array([bool(one) for one in words])
    columns = {
        word: np.array([word in one for one in words], float)
        for word in sorted(held)
        if held[word] > 1
    }
    return {f"{name}: {word}": np.where(known, column, np.nan) for word, column in columns.items()}


def _number(value: Any) -> float | None:
    """Return a cell as a number, NaN if it is empty, None if it is something else."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOT_KNOWN):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _from_mapping(given: Mapping[Any, Any]) -> Features:
    if not given:
        raise DataError(
            "item_features is an empty mapping: it must give numbers or words by item id"
        )
    ids = as_ids(list(given), "item id")
    rows = [
        [value] if isinstance(value, (str, int, float)) else list(value) for value in given.values()
    ]
    if any(isinstance(cell, str) for row in rows for cell in row):
        return _check_features(
            ids,
            _words("word", [set("|".join(map(str, row)).split("|")) - {""} for row in rows]),
            "item_features",
        )
    if len(set(map(len, rows))) > 1:
        raise DataError(
            "item_features must have equally many numbers for every item: leave out items without"
            " known features"
        )
    _finite(np.array(rows, np.float64))
    return _check_features(
        ids,
        {str(i): list(column) for i, column in enumerate(zip(*rows, strict=True))},
        "item_features",
    )


def _from_file(path: str | os.PathLike[str]) -> tuple[list[str], list[list[Any]]]:
    """Return names and columns; without a line of names these are ids, titles and others."""
    file = os.fspath(path)
    content = read_list(path)
    if not isinstance(content, list):
        return content.column_names, [column.to_pylist() for column in content.columns]
    lines = [line for line in content if line.strip()]
    separator = guess_separator(lines) or guess_separator(lines[:1])
    if not separator:
        raise DataError(
            f"{file} holds no features: it needs an id and at least one more column per line"
        )
    rows = list(split(lines, separator))
    names = [str(name) for name in rows[0]]
    if any(normalize(name) in ID_NAMES for name in names):
        rows = rows[1:]
    else:
        names = ["item_id", "title", *(f"column {i}" for i in range(2, len(names)))][: len(names)]
        if len(names) > 1 and all(_number(row[1]) is not None for row in rows if len(row) > 1):
            names[1] = "column 1"
    wrong = next((i for i, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if wrong is not None:
        raise DataError(
            f"{file}: item {wrong:,} has {len(rows[wrong - 1])} fields where there should be"
            f" {len(names)}: put text with {separator!r} in quotes"
        )
    if not rows:
        raise DataError(f"{file} holds no items below its line of names")
    return names, [list(column) for column in zip(*rows, strict=True)]
