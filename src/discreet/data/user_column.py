"""Does the user column identify users? The guarantee of a private model is about the values of that
column.

With a column of stars in its place, a statement would protect five star values. So `Ratings` from
files and frames remember what speaks against their user column, and a private training refuses
them: where nearly all rows repeat a (user, item) pair, where there are fewer users than a public
minimum, where the ids of users are dates, and where a rating range is given and no rating column is
left. These refusals depend on the data and are not covered by ε: they come before anything is
released, and name no number but public ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.columns import describe_values
from discreet.data.ids import Coded, Integers
from discreet.errors import DataError

# at ε ≤ 10 the noise hides what fewer users have in common; scales of ratings have up to 101 steps
MIN_USERS = 100
MAX_MERGED = 0.9  # share of rows; a log of plays repeats pairs, but rarely nine times in ten
CHECKED_IDS = 1000  # enough to tell dates from ids


def find_user_problem(user_ids: NDArray[Any], n_rows: int, merged: int) -> str:
    """Say in a clause why a column may not identify users; empty where nothing speaks against it.

    Parameters
    ----------
    user_ids : (n_users,) array
        Distinct ids.
    n_rows, merged : int
        Rows that were read, and those of them that repeated a (user, item) pair.
    """
    return describe_problem(
        hold_dates(user_ids[:CHECKED_IDS].tolist()), len(user_ids), n_rows, merged
    )


def describe_problem(dates: bool, n_users: int, n_rows: int, merged: int) -> str:
    """Say the same of counts alone, for data that are read piece by piece."""
    if dates:
        return "the user column holds dates"
    if n_users < MIN_USERS:
        return f"the user column has fewer than {MIN_USERS} distinct values"
    if merged > MAX_MERGED * n_rows:
        return (
            "nearly all rows repeat a pair of user and item, so that the user column may not"
            " identify users"
        )
    return ""


def check_user_column(ratings: Any, rating_range: tuple[float, float] | None) -> None:
    """Raise a `DataError` for ratings whose user column may not identify users."""
    if rating_range is not None and not ratings.rated:
        raise DataError(
            "rating_range is given, and no column is left for the ratings: name it with rating=...,"
            " leave rating_range out, or say trust_user_column=True"
        )
    if problem := ratings.user_problem:
        raise DataError(
            f"{problem}: name the one that identifies users with user=... when reading, or, if this"
            " one does, say trust_user_column=True"
        )


def hold_dates(ids: Sequence[Any]) -> bool:
    """Tell whether the first ids are all dates."""
    first = ids[:CHECKED_IDS]
    if not len(first) or isinstance(first[0], int):
        return False
    return (
        all(isinstance(value, date | np.datetime64) for value in first)
        or describe_values(first) == "dates"
    )


def take_first(column: Any) -> list[Any]:
    """Take the first ids of a user column of any form."""
    if isinstance(column, Coded):
        return list(column.values[:CHECKED_IDS])
    if isinstance(column, Integers):
        return column.numbers[:CHECKED_IDS].tolist()
    first = column[:CHECKED_IDS]
    return list(first.to_pylist() if hasattr(first, "to_pylist") else first)
