"""Check that the user column identifies users: the privacy guarantee protects its values.

With a column of stars in its place, a statement would protect five star values. So `Ratings` from
files and frames record doubts about their user column, and private training refuses them: if nearly
all rows repeat a (user, item) pair, if there are fewer users than a public minimum, if user ids are
dates, if its name is one of orders or sessions, if a file has no header line and the caller names
no user column, or if a rating range is given without a rating column. These refusals depend on the
data and are not covered by ε: they come before any release, and contain only public numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.columns import ASSUMED, describe_values
from discreet.data.ids import Coded, Integers
from discreet.errors import DataError

# at ε ≤ 10 noise hides the signal of fewer users; rating scales have up to 101 values
MIN_USERS = 100
MAX_MERGED = 0.9  # share of rows; a log of plays repeats pairs, but rarely nine times in ten
CHECKED_IDS = 1000  # enough to tell dates from ids


def find_user_problem(user_ids: NDArray[Any], n_rows: int, merged: int) -> str:
    """Describe in a clause why a column may not identify users; empty if there is no doubt.

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
    """Describe the same from counts alone, for data that are read in parts."""
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
            "rating_range is given, but there is no rating column: name it with rating=...,"
            " omit rating_range, or pass trust_user_column=True"
        )
    if problem := ratings.user_problem:
        advice = (
            "name the one that identifies users with user=... when reading, or, if this one does,"
            " pass trust_user_column=True"
        )
        if problem == ASSUMED:
            advice = (
                "pass user=0 when reading if it identifies users, else the position of the one"
                " that does"
            )
        raise DataError(f"{problem}: {advice}")


def hold_dates(ids: Sequence[Any]) -> bool:
    """Check whether the first ids are all dates."""
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
