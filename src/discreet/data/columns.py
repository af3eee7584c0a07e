"""Which column holds what, and the columns themselves on their way into :class:`discreet.Ratings`.

Names are compared without regard to case and punctuation: ``user_id``, ``userId`` and ``UserID`` are the same. Of
several matching columns the one whose name comes first in ``CONVENTIONS`` is used; but of two that may be the user, the
caller has to say which one is.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError, DataError

logger = logging.getLogger("discreet")

ROLES = ("user", "item", "rating", "timestamp")
CONVENTIONS: Mapping[str, tuple[str, ...]] = {
    "user": (
        "userid",
        "user",
        "uid",
        "users",
        "username",
        "customerid",
        "customer",
        "reviewerid",
        "accountid",
        "memberid",
        "visitorid",
        "listenerid",
        "readerid",
        "person",
        "personid",
    ),
    "item": (
        "itemid",
        "item",
        "movieid",
        "movie",
        "iid",
        "items",
        "productid",
        "product",
        "parentasin",
        "asin",
        "bookid",
        "isbn",
        "songid",
        "trackid",
        "artistid",
        "articleid",
        "businessid",
        "gameid",
        "sku",
        "filmid",
        "film",
    ),
    "rating": ("rating", "weight", "score", "ratings", "stars", "overall", "plays", "playcount"),
    "timestamp": (
        "timestamp",
        "timestamps",
        "time",
        "ts",
        "unixtime",
        "datetime",
        "date",
        "ratedat",
        "createdat",
        "unixreviewtime",
    ),
}

Column = str | int | bool | None
"""A column as the caller names it: a name, a position from 0, ``False`` for "ignore it", ``None`` for "find it"."""


@dataclass
class Columns:
    """One entry per rating. Whoever uses a column takes it with :meth:`take`, so that its memory can be freed."""

    users: Any
    items: Any
    ratings: NDArray[np.float32] | None = None
    timestamps: NDArray[np.int64] | None = None

    def take(self, name: str) -> Any:
        column = getattr(self, name)
        setattr(self, name, None)
        return column


def normalise(name: object) -> str:
    """Name without case, spaces and punctuation."""
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def find_columns(
    names: Sequence[Any], chosen: Mapping[str, Column], where: str, no_header_hint: bool = False
) -> dict[str, int]:
    """Position of the column for each role; ``rating`` and ``timestamp`` may be absent.

    Parameters
    ----------
    names : sequence
        Column names present.
    chosen : mapping role -> Column
        What the caller asked for.
    where : str
        File or frame, for messages.
    no_header_hint : bool
        Whether the names were read from a first line that may be no header at all.
    """
    found: dict[str, int] = {}
    for role in ROLES:
        wish = chosen.get(role)
        if wish is False and role in ("rating", "timestamp"):
            continue
        if isinstance(wish, bool):
            raise ConfigError(f"{role}={wish} is not a column: give its name or its position")
        if wish is None:
            position = _by_convention(names, role, where)
        else:
            position = _as_chosen(names, role, wish, where)
        if position is not None:
            found[role] = position
        elif role in ("user", "item"):
            raise DataError(_not_found(names, role, where, no_header_hint))
    taken: dict[int, str] = {}
    for role, position in found.items():
        if position in taken:
            raise DataError(
                f"{where}: the column {names[position]!r} cannot be both the {taken[position]} and the {role}: "
                f"say which column is which with {taken[position]}= and {role}="
            )
        taken[position] = role
    if "rating" not in found and chosen.get("rating") is None:
        near = near_misses("rating", [name for at, name in enumerate(names) if at not in taken])
        if near:
            logger.warning("%s: no rating column, so every rating is 1; did you mean rating=%r?", where, near[0])
    return found


def by_order(n_columns: int, chosen: Mapping[str, Column], where: str) -> dict[str, int]:
    """Positions for a file without header: user, item, rating, timestamp from the left, unless positions are given."""
    found: dict[str, int] = {}
    for order, role in enumerate(ROLES):
        wish = chosen.get(role)
        if wish is False and order >= 2:
            continue
        if isinstance(wish, (str, bool)):
            raise DataError(
                f"{where} has no header line, so there is no column {wish!r}: give its position, such as "
                f"{role}={order}, or say header=True if the first line holds names"
            )
        position = order if wish is None else wish
        if 0 <= position < n_columns:
            found[role] = position
        elif wish is not None or order < 2:
            raise DataError(f"{where} has {n_columns} columns, so the {role} cannot be at position {position} (from 0)")
    if len(set(found.values())) < len(found):
        raise DataError(f"{where}: the same position was given for two columns: {found}")
    return found


def near_misses(role: str, names: Sequence[Any]) -> list[Any]:
    """Columns whose names look as if they might be meant for this role, best first."""
    scored = []
    for name in names:
        plain = normalise(name)
        likeness = max(difflib.SequenceMatcher(None, plain, known).ratio() for known in CONVENTIONS[role])
        if len(plain) > 3 and any(known in plain for known in CONVENTIONS[role] if len(known) > 3):
            likeness += 0.5
        if likeness >= 0.6:
            scored.append((-likeness, str(name), name))
    return [name for _, _, name in sorted(scored, key=lambda entry: entry[:2])]


def only(same: Sequence[int], names: Sequence[Any], role: str, where: str) -> int:
    """The one position among those whose names are the same; an error if there are several."""
    if len(same) > 1:
        called = " and ".join(repr(name) for name in dict.fromkeys(names[at] for at in same))
        raise DataError(
            f"{where} has several columns called {called}, and only one can be the {role}: rename the others"
        )
    return same[0]


def _by_convention(names: Sequence[Any], role: str, where: str) -> int | None:
    plain = [normalise(name) for name in names]
    several = [names[plain.index(known)] for known in CONVENTIONS[role] if known in plain]
    if role == "user" and len(several) > 1:  # whose ratings belong together is what a promise is about
        raise DataError(
            f"{where} has several columns that may be the user, {several[0]!r} and {several[1]!r}: "
            f"say which one is meant, such as user={several[0]!r}"
        )
    for known in CONVENTIONS[role]:
        if known in plain:
            return only([at for at, name in enumerate(plain) if name == known], names, role, where)
    return None


def _as_chosen(names: Sequence[Any], role: str, wish: str | int, where: str) -> int:
    if wish in names:
        return only([at for at, name in enumerate(names) if name == wish], names, role, where)
    if isinstance(wish, int):
        if 0 <= wish < len(names):
            return wish
        raise DataError(f"{where} has {len(names)} columns, so there is none at position {wish} (from 0) for {role}=")
    same = [at for at, name in enumerate(names) if normalise(name) == normalise(wish)]
    if same:
        return only(same, names, role, where)
    near = difflib.get_close_matches(wish, [str(name) for name in names], n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(f'{role}={name!r}' for name in near)}?" if near else ""
    raise DataError(f"{where} has no column {wish!r}: its columns are {_listed(names)}{hint}")


def _not_found(names: Sequence[Any], role: str, where: str, no_header_hint: bool) -> str:
    others = {known for other in ROLES if other != role for known in CONVENTIONS[other]}
    near = near_misses(role, [name for name in names if normalise(name) not in others])[:2]
    hint = f"did you mean {' or '.join(f'{role}={name!r}' for name in near)}?" if near else f"name it with {role}=..."
    if no_header_hint and not near:
        hint += " or, if the first line holds no names, header=False"
    return f"{where} has no column that is recognisably the {role}: its columns are {_listed(names)}; {hint}"


def _listed(names: Sequence[Any], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
