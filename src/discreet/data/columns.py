"""Find the column of each role (user, item, rating, timestamp) in a file or frame.

Names are words of `column_words`, in fifteen languages; case, accents and punctuation do not
matter: ``user_id``, ``userId`` and ``UserID`` are the same. Of several matching columns the one
whose name comes first in `conventions` is used; if two may be the user, the caller has to choose.
A user column is never suggested: with a wrong one the guarantee would protect star values or days.
Messages list the columns and describe their values.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.column_words import (
    AMBIGUOUS,
    ITEMS,
    ORDERS,
    RATINGS,
    TIMES,
    TITLES,
    USERS,
    english,
    names_of_ids,
    names_of_values,
    normalize,
)
from discreet.errors import ConfigError, DataError, NoColumn

logger = logging.getLogger("discreet")

#: Marks log messages that the command line shows also without --verbose.
NOTICE = {"notice": True}
ROLES = ("user", "item", "rating", "timestamp")
#: The most common English names, to which messages compare an unknown name.
USUAL = {
    "user": "userid user uid users username customerid customer",
    "item": "itemid item movieid movie iid items productid product parentasin asin bookid isbn"
    " songid trackid artistid articleid businessid gameid sku filmid film",
    "rating": "rating weight score ratings stars overall plays playcount",
    "timestamp": "timestamp timestamps time ts unixtime datetime date ratedat createdat",
}
_TABLES = {"user": USERS, "item": ITEMS, "rating": RATINGS, "timestamp": TIMES}

MAX_LISTED = 12  # columns that a message lists: as many as fit on two lines
MIN_LIKENESS = 0.75  # typing errors are above it, other words below ("country", "playcount": 0.63)
MAX_CATEGORIES = 25  # half stars from 0 to 10 are 21 values, the hours of a day 24
ROWS_PER_CATEGORY = 4  # below this, a short sample of distinct ids would pass for categories
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}(?!\d)")
_NUMBER = re.compile(r"[+-]?\d{1,3}([.,]\d{1,2})?")

#: Doubt about the users of a file without names; `user_column` explains such doubts.
ASSUMED = "the file has no header line, so that its first column was taken for users"

Column = str | int | bool | None
"""A column as the caller names it: a name, a position from 0, ``False`` (ignore) or ``None``."""


@lru_cache(maxsize=1)  # not at import: these are tens of thousands of names
def conventions() -> Mapping[str, tuple[str, ...]]:
    """Return the known names of each role's column, the most common first."""
    return {
        "user": names_of_ids(USUAL["user"], USERS),
        "item": names_of_ids(USUAL["item"], ITEMS),
        "rating": names_of_values(USUAL["rating"], RATINGS),
        "timestamp": names_of_values(USUAL["timestamp"], TIMES),
    }


@lru_cache(maxsize=1)
def _foreign_names() -> frozenset[str]:
    """Return the names that only other languages than English have."""
    names = frozenset().union(*conventions().values()) - AMBIGUOUS
    return names - {
        name for role in USUAL for name in names_of_ids(USUAL[role], english(_TABLES[role]))
    }


@lru_cache(maxsize=1)
def _order_names() -> frozenset[str]:
    return frozenset(names_of_ids("", ORDERS))


@lru_cache(maxsize=1)
def _title_names() -> frozenset[str]:
    """Return the names of titles, which are the items of files without other ones."""
    return frozenset(names_of_values("title", TITLES))


@dataclass
class Columns:
    """Columns with one entry per rating; :meth:`take` removes one, so that its memory is freed."""

    users: Any
    items: Any
    ratings: NDArray[np.float32] | None = None
    timestamps: NDArray[np.int64] | None = None
    rows: int = 0  # that were read, with those whose rating is missing; set for text
    user_doubt: str = ""  # why the user column may not identify users, as far as names tell

    def take(self, name: str) -> Any:
        column = getattr(self, name)
        setattr(self, name, None)
        return column


def find_columns(
    names: Sequence[Any],
    chosen: Mapping[str, Column],
    where: str,
    no_header_hint: bool = False,
    sample: Callable[[int], Sequence[Any]] | None = None,
    naming: str = "user=...",
) -> dict[str, int]:
    """Return the position of the column for each role; ``rating`` and ``timestamp`` are optional.

    Parameters
    ----------
    names : sequence
        Names of the columns.
    chosen : mapping role -> Column
        Choices of the caller.
    where : str
        Name of the file or frame, for messages.
    no_header_hint : bool
        Whether the names were read from a first line that may not be a header.
    sample : function of a position, optional
        Returns the first values of that column; used only to describe columns in a message.
    naming : str
        How the caller names the user column, for messages.
    """
    found: dict[str, int] = {}
    # a column that the caller named is not taken for ratings or times as well
    named = {
        _as_chosen(names, role, wish, where)
        for role, wish in chosen.items()
        if wish is not None and not isinstance(wish, bool)
    }
    free = ["" if at in named else name for at, name in enumerate(names)]
    for role in ROLES:
        wish = chosen.get(role)
        if wish is False and role in ("rating", "timestamp"):
            continue
        if isinstance(wish, bool):
            raise ConfigError(f"{role}={wish} is not a column: pass its name or its position")
        if wish is None:
            optional = role in ("rating", "timestamp")
            position = _by_convention(free if optional else names, role, where)
        else:
            position = _as_chosen(names, role, wish, where)
        if position is not None:
            found[role] = position
        elif role in ("user", "item"):
            raise NoColumn(_not_found(names, role, where, no_header_hint, sample, naming))
    taken: dict[int, str] = {}
    for role, position in found.items():
        if position in taken:
            raise DataError(
                f"{where}: the column {names[position]!r} cannot be both the {taken[position]} and"
                f" the {role}: name each column with {taken[position]}= and {role}="
            )
        taken[position] = role
    unused = [name for at, name in enumerate(names) if at not in taken]
    near = near_misses("rating", unused) if chosen.get("rating") is None else []
    double = [
        name for name in unused if normalize(name) in AMBIGUOUS & set(conventions()["rating"])
    ]
    near = near or (double if chosen.get("rating") is None else [])
    if "rating" not in found and near:
        logger.warning(
            "%s: no rating column, so every rating is 1; did you mean rating=%r?", where, near[0]
        )
    _report({role: repr(names[at]) for role, at in found.items()}, where)
    return found


def find_date_order(names: Sequence[Any]) -> str | None:
    """Return "day-first" for headers in another language than English, where 5/6 is 5 June.

    Only the names of the columns decide, never a row: each date is read by itself.
    """
    return "day-first" if _foreign_names().intersection(map(normalize, names)) else None


def describe_orders(name: Any) -> str:
    """Describe in a clause why a user column of this name may number orders; else empty."""
    if normalize(name) not in _order_names():
        return ""
    return (
        f"the column {str(name)[:40]!r} seems to number orders or visits, so that the guarantee"
        " would protect one of them instead of a user"
    )


def _report(found: Mapping[str, str], where: str) -> None:
    """Report the column of each role before anything is read or released."""
    shown = ", ".join(f"{role} = {name}" for role, name in found.items())
    unrated = "" if "rating" in found else "; no rating column, so each row counts as liked"
    logger.info("%s: %s%s", where, shown, unrated, extra=NOTICE)


def by_order(n_columns: int, chosen: Mapping[str, Column], where: str) -> dict[str, int]:
    """Return positions for a file without header: user, item, rating, timestamp by default."""
    found: dict[str, int] = {}
    for order, role in enumerate(ROLES):
        wish = chosen.get(role)
        if wish is False and order >= 2:
            continue
        if isinstance(wish, (str, bool)):
            raise NoColumn(
                f"{where} has no header line, so there is no column {wish!r}: pass its position,"
                f" such as {role}={order}, or header=True if the first line holds names"
            )
        position = order if wish is None else wish
        if wish is None and order >= 2 and position in chosen.values():
            continue  # the caller gave this column another role
        if 0 <= position < n_columns:
            found[role] = position
        elif wish is not None or order < 2:
            raise NoColumn(
                f"{where} has {n_columns} columns, so the {role} cannot be at position {position}"
                " (from 0)"
            )
    if len(set(found.values())) < len(found):
        raise DataError(f"{where}: the same position was given for two columns: {found}")
    _report({role: f"column {at}" for role, at in found.items()}, where)
    return found


def near_misses(role: str, names: Sequence[Any]) -> list[Any]:
    """Return the columns whose names resemble those of this role, best first."""
    scored = []
    for name in names:
        plain = normalize(name)
        usual = USUAL[role].split()
        likeness = max(difflib.SequenceMatcher(None, plain, known).ratio() for known in usual)
        if len(plain) > 3 and any(known in plain for known in usual if len(known) > 3):
            likeness += 0.5
        if likeness >= MIN_LIKENESS:
            scored.append((-likeness, str(name), name))
    return [name for _, _, name in sorted(scored, key=lambda entry: entry[:2])]


def only(same: Sequence[int], names: Sequence[Any], role: str, where: str) -> int:
    """Return the only position in `same`; raise an error if several columns share the name."""
    if len(same) > 1:
        named = " and ".join(repr(name) for name in dict.fromkeys(names[at] for at in same))
        raise DataError(
            f"{where} has several columns named {named}, and only one can be the {role}: rename"
            " the others"
        )
    return same[0]


def _by_convention(names: Sequence[Any], role: str, where: str) -> int | None:
    plain = [normalize(name) for name in names]
    if not _foreign_names().intersection(plain):
        plain = ["" if name in AMBIGUOUS else name for name in plain]
    several = [names[plain.index(known)] for known in conventions()[role] if known in plain]
    # the guarantee protects the values of this column, so it must not be guessed
    if role == "user" and len(several) > 1:
        raise DataError(
            f"{where} has several columns that may be the user, {several[0]!r} and {several[1]!r}: "
            f"choose one, such as user={several[0]!r}"
        )
    for known in conventions()[role]:
        if known in plain:
            return only([at for at, name in enumerate(plain) if name == known], names, role, where)
    return None


def _as_chosen(names: Sequence[Any], role: str, wish: str | int, where: str) -> int:
    if wish in names:
        return only([at for at, name in enumerate(names) if name == wish], names, role, where)
    if isinstance(wish, int):
        if 0 <= wish < len(names):
            return wish
        raise NoColumn(
            f"{where} has {len(names)} columns, so there is none at position {wish} (from 0) for"
            f" {role}="
        )
    same = [at for at, name in enumerate(names) if normalize(name) == normalize(wish)]
    if same:
        return only(same, names, role, where)
    near = difflib.get_close_matches(wish, [str(name) for name in names], n=2, cutoff=0.5)
    near = [] if role == "user" else near
    hint = f"; did you mean {' or '.join(f'{role}={name!r}' for name in near)}?" if near else ""
    raise NoColumn(f"{where} has no column {wish!r}: its columns are {_list_names(names)}{hint}")


def _not_found(
    names: Sequence[Any],
    role: str,
    where: str,
    no_header_hint: bool,
    sample: Callable[[int], Sequence[Any]] | None,
    naming: str,
) -> str:
    missing = f"{where} has no column recognizable as the {role}"
    if role == "user":
        no_header = (
            ", or pass header=False if the first line holds no names" if no_header_hint else ""
        )
        return (
            f"{missing}: name the column that identifies users with {naming}{no_header}. "
            f"Columns: {_describe_column(names, sample)}"
        )
    others = {known for other in ROLES if other != role for known in conventions()[other]}
    near = near_misses(role, [name for name in names if normalize(name) not in others])
    near = (near or [name for name in names if normalize(name) in _title_names()])[:2]
    hint = (
        f"did you mean {' or '.join(f'{role}={name!r}' for name in near)}?"
        if near
        else f"name it with {role}=..."
    )
    if no_header_hint and not near:
        hint += " or, if the first line holds no names, header=False"
    return f"{missing}: its columns are {_list_names(names)}; {hint}"


def _describe_column(names: Sequence[Any], sample: Callable[[int], Sequence[Any]] | None) -> str:
    """Describe the columns in the order of the file, each with the kind of its values."""
    if sample is None:
        return _list_names(names)
    kinds = [describe_values(sample(at)) for at in range(min(len(names), MAX_LISTED))]
    shown = ", ".join(
        f"{name!r}{f' ({kind})' if kind else ''}" for name, kind in zip(names, kinds, strict=False)
    )
    return shown + _more(names)


def describe_values(values: Sequence[Any]) -> str:
    """Describe values that do not look like ids: dates, ratings, or few distinct values."""
    texts = [text for value in values if (text := str(value).strip())]
    if not texts:
        return ""
    if all(_DATE.match(text) for text in texts):
        return "dates"
    distinct = set(texts)
    if len(distinct) > MAX_CATEGORIES or len(texts) < ROWS_PER_CATEGORY * len(distinct):
        return ""
    numbers = [float(text.replace(",", ".")) for text in distinct if _NUMBER.fullmatch(text)]
    rated = len(numbers) == len(distinct) and min(numbers) >= -10 and max(numbers) <= 100
    return "few distinct numbers, like ratings" if rated else "few distinct values"


def _list_names(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names[:MAX_LISTED]) + _more(names)


def _more(names: Sequence[Any]) -> str:
    return f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
