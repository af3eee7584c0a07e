"""Public item features: numbers about items that do not come from ratings.

A file (csv, tsv, ``::``- or ``|``-separated, parquet, feather) or a frame has one line per item:
its id, and columns of

    numbers                  each is a feature; an empty field, or one such as ``N/A``, is unknown
    lists of numbers         (parquet, feather, frames) such as embeddings: each number is a feature
    words such as ``Comedy|War`` each word that two items have becomes a feature of 0 and 1; a
                                 column without "|" must have at most 50 different words
    titles such as ``Up (2009)`` the year in parentheses is a feature, if half of the titles have it

Whole numbers are words where the name of their column ends in "id" or "code" (`publisher_id`,
`genreIds`, `zip code`), or where a frame has them as categories. Other text is ignored.

A mapping gives numbers, or words, by item id; an array has one row per item of the ratings, in
their order. Both hold finite numbers: leave an item without known features out of the mapping.

For a user's own profile (`item_categories`) the same columns are categories, also those that are
ignored above: authors, brands, publishers; series and other editions by titles; numbers by
tenths of the items, and years by decades.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.catalog import (
    TITLE_NAMES,
    ItemColumns,
    find_item_column,
    index_advice,
    looks_like_name,
)
from discreet.data.column_words import letters_of, normalize
from discreet.data.csv_format import guess_separator, split
from discreet.data.ids import IdIndex, as_ids, canonical, first_repeated
from discreet.data.readers import read_list
from discreet.errors import DataError, EmptyFile, type_name

logger = logging.getLogger("discreet")

MOST_CATEGORIES = 8  # features of a profile: each has a weight that has to be estimated
SHARED = 0.05  # of the items share a value of a feature that was not asked for, at least
MOST_WORDS = 50  # distinct words in a column without "|": more are names, not categories
_NOT_KNOWN = {"", "-", "?", "na", "n/a", "nan", "null", "none", "unknown"}
_YEAR = re.compile(r"\((\d{4})\)")
# "id" as a word of its own: not paid, bid or valid
_CODE_NAME = re.compile(r"(?:^|[\W_])(?i:ids?|codes?)\s*$|[a-z](?:I[Dd]s?|Codes?)\s*$")


class Codes(list[Any]):
    """A column whose values are categories, even where they look like numbers."""


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


@dataclass(frozen=True)
class FeatureFile:
    """A file of item features whose column of ids has a name of its own."""

    path: str
    columns: ItemColumns

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path


def _columns_of(source: Any) -> ItemColumns:
    return source.columns if isinstance(source, FeatureFile) else ItemColumns()


class NoNumbers(DataError):
    """A source without features that are numbers; it may have categories."""


@dataclass(frozen=True, eq=False)
class Categories:
    """One public feature as categories: item j has ``values[starts[j] : starts[j + 1]]``.

    Parameters
    ----------
    name : str
    names : of the values
    starts : (n_items + 1,) int64
    values : int32
    """

    name: str
    names: tuple[str, ...]
    starts: NDArray[np.int64]
    values: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """Public features of items: numbers X (n_items, k) for a prior, categories for profiles."""

    X: NDArray[np.float64] | None
    categories: list[Categories]

    @property
    def shape(self) -> tuple[int, int]:
        """Items, and features of both kinds."""
        numbers = 0 if self.X is None else self.X.shape[1]
        return (0 if self.X is None else len(self.X), numbers + len(self.categories))


def item_features(
    source: Any, item_ids: NDArray[Any], optional: bool = False
) -> NDArray[np.float64] | None:
    """Return features (n_items, k) from any form that the module lists; NaN where unknown.

    With `optional`, None where there are no numbers.
    """
    if isinstance(source, np.ndarray):
        X = np.asarray(source, np.float64) if source.dtype.kind in "fiub" else np.zeros(0)
        if X.ndim != 2 or len(X) != len(item_ids) or not X.shape[1]:
            raise DataError(
                f"item_features is an array of {source.dtype} with shape {source.shape}, but must"
                f" have one row of numbers for each of the {len(item_ids):,} items"
            )
        return _check_finite(X)
    try:
        given = source if isinstance(source, Features) else read_features(source)
    except NoNumbers:
        if optional:
            return None
        raise
    at = _find_items(given.ids, item_ids)
    X = np.where(at[:, None] >= 0, given.X[at], np.nan)
    known = int(np.isfinite(X).any(axis=1).sum())
    names = ", ".join(given.names[:8])
    more = f" and {len(given.names) - 8:,} more" if len(given.names) > 8 else ""
    say = logger.warning if 2 * known < len(X) else logger.info
    say("item_features: %s%s, for %s of %s items", names, more, f"{known:,}", f"{len(X):,}")
    return X


def _find_items(ids: NDArray[Any], item_ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row of each item, −1 for items without one; refuse a source with none of them."""
    at = IdIndex(ids).positions(item_ids, "item id")
    if (at < 0).all():
        raise DataError(
            f"item_features has none of the {len(item_ids):,} items: its ids are such as "
            f"{ids.tolist()[0]!r}, and those of the ratings such as {item_ids.tolist()[0]!r}"
        )
    return np.asarray(at)


def read_features(source: Any) -> Features:
    """Read features from a file, a frame or a mapping."""
    if isinstance(source, Mapping):
        return _from_mapping(source)
    ids, columns, where = _read_columns(source, warn=True)
    found: dict[str, Any] = {}
    ignored = []
    for name, column in columns.items():
        features = _column(name, column)
        found |= features
        ignored += [name] if isinstance(column, Codes) and not features else []
    return _check_features(_ids(ids), found, where, ignored)


def _read_columns(
    source: Any, warn: bool = False
) -> tuple[Sequence[Any], dict[str, Sequence[Any]], str]:
    """Return item ids, other columns by name, and what to call the source.

    With `warn`, log where the first line of a file is read as an item and may hold names.
    """
    if isinstance(source, (str, os.PathLike)):
        names, columns = _from_file(source, warn=warn)
        where = str(source)
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
        kinds = (nw.Categorical, nw.Enum)
        columns = [
            (Codes if frame[name].dtype in kinds else list)(map(_replace_na, frame[name].to_list()))
            for name in names
        ]
    else:
        raise DataError(
            "item_features must be a file, a frame, an array or a mapping from item id to numbers"
            f" or words, not {type_name(source)}"
        )
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise DataError(f"{where} has several columns named {twice!r}: rename the others")
    at = find_item_column(names, where, _columns_of(source), index_advice(source))
    if not len(columns[at]):
        raise DataError(f"{where} has no rows. Give at least one item with features.")
    others = [i for i in range(len(names)) if i != at]
    read = {str(names[i]): _as_codes(str(names[i]), columns[i]) for i in others}
    return columns[at], {name: _join_words(values) for name, values in read.items()}, where


def _replace_na(value: Any) -> Any:
    """Return None for the NA of pandas, which is neither equal nor unequal to itself."""
    return None if type(value).__name__ == "NAType" else value


def _as_codes(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return a column of whole numbers, or of lists of them, as codes if its name says so."""
    if isinstance(values, Codes):
        return Codes(map(_code, values))
    if not _CODE_NAME.search(name):
        return values
    rows = [one if isinstance(one, (list, tuple, np.ndarray)) else (one,) for one in values]
    known = {x for x in _numbers(list(chain.from_iterable(rows))) or () if x == x}
    if known <= {0.0, 1.0} or not all(x.is_integer() for x in known):
        return values
    return Codes("|".join(map(_code, row)) for row in rows)


def _code(value: Any) -> str:
    """Return a code as text, the same for 7, 7.0, "7" and "007"."""
    number = _number(value)
    if number is None or np.isinf(number):
        return str(value)
    if number != number:
        return ""
    try:
        return str(int(str(value)))  # exact, also beyond 2⁵³
    except ValueError:
        return str(int(number)) if number.is_integer() else str(value)


def _join_words(values: Sequence[Any]) -> Sequence[Any]:
    """Return a column with lists of words, as Parquet has them, as text such as Comedy|War."""
    lists = [value for value in values if isinstance(value, (list, tuple, np.ndarray))]
    words = [word for one in lists for word in one]
    if not words or not all(isinstance(word, str) for word in words):
        return values
    return ["|".join(one) if isinstance(one, (list, tuple, np.ndarray)) else one for one in values]


def item_categories(
    source: Any, item_ids: NDArray[Any], features: Sequence[str] | None = None
) -> list[Categories]:
    """Features of these items as categories, at most eight.

    Parameters
    ----------
    source : as for `item_features`
    item_ids : (n_items,)
    features : names of columns, optional
        Only these. By default all in which enough items share a value.
    """
    if isinstance(source, np.ndarray):
        item_features(source, item_ids)  # refuses other shapes, and what is no number
        ids: Sequence[Any] = item_ids.tolist()
        columns = {str(i): column for i, column in enumerate(source.T.tolist())}
    elif isinstance(source, Features):
        ids = source.ids.tolist()
        columns = dict(zip(source.names, source.X.T.tolist(), strict=True))
    elif isinstance(source, Mapping):
        ids = list(source)
        rows = _mapping_rows(source)
        if any(isinstance(cell, str) for row in rows for cell in row):
            columns = {"word": ["|".join(map(str, row)) for row in rows]}
        else:
            columns = {str(i): list(c) for i, c in enumerate(zip(*rows, strict=True))}
    else:
        ids, columns, _ = _read_columns(source)
    strange = [name for name in features or () if name not in columns]
    if strange:
        raise DataError(
            f"item_features has no column {strange[0]!r}. Its columns are"
            f" {', '.join(map(repr, list(columns)[:12]))}."
        )
    chosen = columns if features is None else {name: columns[name] for name in features}
    at = _find_items(_ids(ids), item_ids).tolist()
    found: list[Categories] = []
    for name, values_of_items in _as_categories(chosen, at, features is not None).items():
        one = _number_values(name, values_of_items)
        shared = np.count_nonzero(np.diff(one.starts)) / max(len(at), 1)
        if len(one.names) > 1 and (features is not None or shared >= SHARED):
            found.append(one)
    if features is not None:
        _refuse_without_values(features, columns, {one.name for one in found})
    if len(found) > MOST_CATEGORIES:
        logger.warning(
            "item_features: profiles use %s of %s features; name those that matter by features=",
            MOST_CATEGORIES,
            len(found),
        )
    return found[:MOST_CATEGORIES]


def _refuse_without_values(
    wanted: Sequence[str], columns: Mapping[str, Sequence[Any]], found: set[str]
) -> None:
    """Refuse a column without shared values before any budget is spent on its weight."""
    for name in wanted:
        numbers = _numbers(columns[name])
        known = {number for number in numbers or () if number == number}
        if known and known <= {0.0, 1.0} and "flags" in found:
            continue  # with other columns of 0 and 1 it is one feature
        if any(one in found for one in _category_names(name)):
            continue
        texts = {_text(value) for value in columns[name]} - {""}
        if numbers is None and len(texts) > 2:
            raise DataError(
                f"The column {name!r} of item_features has no shared values: it is text, and hardly"
                " any items have the same. Leave it out of features; for its words, name it in"
                " text."
            )
        raise DataError(
            f"The column {name!r} of item_features has fewer than two values that several items of"
            " the ratings share. Leave it out of features."
        )


def _category_names(name: str) -> tuple[str, str, str]:
    """Return the names of the categories that a column may become."""
    return name, f"decade of {name}", f"series in {name}"


def _as_categories(
    columns: Mapping[str, Sequence[Any]], at: Sequence[int], named: bool = False
) -> dict[str, list[tuple[Any, ...]]]:
    """Return the values of the items in rows `at`, −1 for none, by feature; columns of 0 and 1 are
    one feature. A single one has the values 0 and 1 if it was `named`: 1 alone is no choice.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    flags: dict[str, list[float]] = {}
    unclear: list[str] = []
    for name, values in columns.items():
        if any(isinstance(value, (list, tuple, np.ndarray)) for value in values):
            continue  # embeddings
        numbers = _numbers(values)
        if numbers is not None:
            x = np.array(numbers, np.float64)
            known = x[np.isfinite(x)]
            if len(known) and np.isin(known, (0.0, 1.0)).all():
                flags[name] = x.tolist()
            elif len(known):
                unclear += [name] if _may_be_codes(name, known) else []
                bins = _bins(name, x, known)
                found[name] = [bins[i] if i >= 0 else () for i in at]
            continue
        texts = [_text(values[i]) if i >= 0 else "" for i in at]
        if normalize(name) in TITLE_NAMES:
            found |= _title_categories(name, texts)
        else:
            known_words = {text: _split_words(text) for text in set(texts)}
            found[name] = [known_words[text] for text in texts]
    if unclear:
        logger.warning(
            "item_features: whole numbers are read as amounts in %s. If they are codes, such as"
            " those of publishers, let the column's name end in _id.",
            ", ".join(map(repr, unclear)),
        )
    if named and len(flags) == 1:
        ((name, cells),) = flags.items()
        known_cells = [() if x != x else (int(x),) for x in cells]
        found[name] = [known_cells[i] if i >= 0 else () for i in at]
    elif flags:
        rows = list(zip(*flags.values(), strict=True))
        found["flags"] = [
            tuple(n for n, x in zip(flags, rows[i], strict=True) if x == 1) if i >= 0 else ()
            for i in at
        ]
    return found


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)


def _split_words(text: str) -> tuple[str, ...]:
    """Return the words that "|" separates, without case."""
    return tuple(sorted({word.strip().casefold() for word in text.split("|")} - _NOT_KNOWN))


def _may_be_codes(name: str, known: NDArray[np.float64]) -> bool:
    """Return whether these are whole numbers that many items share, and no years."""
    if _are_years(name, known) or not (np.isfinite(known) & (known == np.floor(known))).all():
        return False
    return MOST_WORDS < len(np.unique(known)) <= len(known) / 2


def _are_years(name: str, known: NDArray[np.float64]) -> bool:
    return bool(normalize(name).endswith("year") or 1800 < np.median(known) < 2100)


def _bins(name: str, x: NDArray[np.float64], known: NDArray[np.float64]) -> list[tuple[Any, ...]]:
    """Decades of years, and tenths of the items by other numbers."""
    if _are_years(name, known):
        group = np.floor(x / 10)
        inside = (x > 1000) & (x < 3000)
    else:
        group = np.searchsorted(np.unique(np.quantile(known, np.linspace(0.1, 0.9, 9))), x)
        inside = np.isfinite(x)
    return [(int(g),) if good else () for g, good in zip(group, inside, strict=True)]


def _title_categories(name: str, texts: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Decades, series and other editions, of titles such as ``Dune (Dune, Book 1)``."""
    years = [_YEAR.findall(text) for text in texts]
    plain = [letters_of(text.partition("(")[0]) for text in texts]
    brackets = [letters_of(text.partition("(")[2].rstrip(")")) for text in texts]
    return {
        f"decade of {name}": [(int(one[-1]) // 10,) if one else () for one in years],
        f"series in {name}": [
            (b,) if b and not y else () for b, y in zip(brackets, years, strict=True)
        ],
        name: [(one,) if one else () for one in plain],
    }


def _number_values(name: str, rows: Sequence[tuple[Any, ...]]) -> Categories:
    """Values numbered from 0; those of a single item, which no other shares, are left out."""
    held = Counter(chain.from_iterable(rows))
    number = {value: i for i, value in enumerate(sorted(v for v in held if held[v] > 1))}
    numbered = {row: [number[value] for value in row if value in number] for row in set(rows)}
    kept = [numbered[row] for row in rows]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in kept])]).astype(np.int64)
    values = np.array(list(chain.from_iterable(kept)), np.int32)
    return Categories(name, tuple(map(str, number)), starts, values)


def _check_features(
    ids: NDArray[Any], found: Mapping[str, Any], where: str, ignored: Sequence[str] = ()
) -> Features:
    repeated = first_repeated(ids)
    if repeated is not None:
        raise DataError(f"{where} lists the item {repeated!r} twice: list every item once")
    if not found:
        raise NoNumbers(
            f"{where} holds no features: it needs columns of numbers, or of words such as"
            " Comedy|War"
            + (f", and {ignored[0]!r} has codes of too many or of single items" if ignored else "")
        )
    X = np.column_stack([np.asarray(column, np.float64) for column in found.values()])
    return Features(ids, tuple(found), _check_finite(X, ids, tuple(found), gaps=True))


def _check_finite(
    X: NDArray[np.float64],
    ids: NDArray[Any] | None = None,
    names: Sequence[str] | None = None,
    gaps: bool = False,
) -> NDArray[np.float64]:
    """Check that all numbers are finite or, with `gaps`, unknown; others cannot be learned from."""
    wrong = np.isinf(X) if gaps else ~np.isfinite(X)
    if wrong.any():
        row, at = np.argwhere(wrong)[0].tolist()
        column = f"{at} (from 0)" if names is None else repr(names[at])
        what = "an infinite number" if np.isinf(X[row, at]) else "NaN"
        item = "" if ids is None else f" for item {ids.tolist()[row]!r}"
        many = int(wrong.any(axis=1).sum())
        more = f", the first of {many:,} such items" if many > 1 else ""
        raise DataError(
            f"The column {column} of item_features has {what}{item} in row {row:,} (from 0){more}."
            " Correct it; leave out an item without known features, or leave its field empty in a"
            " file or frame."
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
    numbers = _numbers(values)
    if numbers is not None and not np.isnan(numbers).all():
        return {name: numbers}
    texts = list(map(_text, values))
    if normalize(name) in TITLE_NAMES:
        years = [_YEAR.findall(text) for text in texts]
        good = 2 * sum(map(bool, years)) >= len(years)
        last = [float(year[-1]) if year else np.nan for year in years]
        return {"year": last} if good else {}
    split_texts = {text: {word.strip() for word in text.split("|")} - {""} for text in set(texts)}
    many = len(set().union(*split_texts.values())) > MOST_WORDS
    if many and not any("|" in text for text in split_texts):
        return {}
    return _words(name, [split_texts[text] for text in texts])


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


def _numbers(values: Sequence[Any]) -> list[float] | None:
    """Return a column as numbers, or None for codes and at the first cell that is no number."""
    if isinstance(values, Codes):
        return None
    found = []
    for value in values:
        number = _number(value)
        if number is None:
            return None
        found.append(number)
    return found


def _number(value: Any) -> float | None:
    """Return a cell as a number, NaN if it is empty, None if it is something else."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOT_KNOWN):
        return np.nan
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return np.inf
    except (TypeError, ValueError):
        return None


def _mapping_rows(given: Mapping[Any, Any]) -> list[list[Any]]:
    """Return the numbers or words of each item, as many numbers for each."""
    if not given:
        raise DataError(
            "item_features is an empty mapping: it must give numbers or words by item id"
        )
    rows = []
    for item, value in given.items():
        value = np.atleast_1d(value) if isinstance(value, np.ndarray) else value
        several = isinstance(value, (list, tuple, set, frozenset, np.ndarray))
        row = list(value) if several else [value]
        strange = [cell for cell in row if cell is None or _number(cell) is None]
        strange = [cell for cell in strange if not isinstance(cell, str)]
        if strange:
            what = "None" if strange[0] is None else type_name(strange[0])
            raise DataError(
                f"item_features has {what} for the item {item!r}, but must have numbers or words."
                " Correct it, or leave the item out."
            )
        rows.append(row)
    if any(isinstance(cell, str) for row in rows for cell in row):
        return rows
    if len(set(map(len, rows))) > 1:
        raise DataError(
            "item_features must have equally many numbers for every item: leave out items without"
            " known features"
        )
    return [list(map(_number, row)) for row in rows]


def _from_mapping(given: Mapping[Any, Any]) -> Features:
    rows = _mapping_rows(given)
    ids = as_ids(list(given), "item id")
    if any(isinstance(cell, str) for row in rows for cell in row):
        return _check_features(
            ids,
            _words("word", [set("|".join(map(str, row)).split("|")) - {""} for row in rows]),
            "item_features",
        )
    _check_finite(np.array(rows, np.float64), ids)
    return _check_features(
        ids,
        {str(i): list(column) for i, column in enumerate(zip(*rows, strict=True))},
        "item_features",
    )


def _has_unknown_names(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line holds names: a word above ids with digits, or above numbers."""
    first, others = rows[0], rows[1:]
    if not others:
        return False
    if looks_like_name(first[0], others):
        return True
    for name, *column in zip(*rows, strict=False):
        numbers = list(map(_number, column))
        above = _number(name) is None and not any(map(str.isdigit, name))
        if above and None not in numbers and not np.isnan(numbers).all():  # type: ignore[arg-type]
            return True
    return False


def _from_file(
    path: str | os.PathLike[str],
    is_header: Callable[[Sequence[str]], bool] | None = None,
    warn: bool = False,
) -> tuple[list[str], list[list[Any]]]:
    """Return names and columns; without a line of names these are ids, titles and others.

    Parameters
    ----------
    path : of the file
    is_header : function of the first line, optional
        Whether it holds names that are not known. By default, a line that seems to is refused.
    warn : whether to log that a line without digits is read as an item
    """
    file = os.fspath(path)
    content = read_list(path)
    if not isinstance(content, list):
        return content.column_names, [column.to_pylist() for column in content.columns]
    lines = [line for line in content if line.strip()]
    if not lines:
        raise EmptyFile(f"{file} is empty: it should hold one line per item")
    separator = guess_separator(lines) or guess_separator(lines[:1])
    if not separator:
        raise DataError(
            f"{file} has one column. It needs an id and at least one more column per line."
        )
    rows = list(split(lines, separator))
    names = [str(name) for name in rows[0]]
    if _columns_of(path).in_header(names) or (is_header is not None and is_header(names)):
        rows = rows[1:]
    elif is_header is None and _has_unknown_names(rows):
        raise DataError(
            f"{file}: the first line ({lines[0][:60]!r}) looks like column names, but none is known"
            " as item ids. Rename the column of item ids to item_id."
        )
    else:
        if warn and not any(map(str.isdigit, lines[0])):
            logger.warning(
                "%s: the first line (%r) is read as an item. If it holds column names, rename the"
                " column of item ids to item_id.",
                file,
                lines[0][:60],
            )
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
