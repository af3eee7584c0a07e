"""Ratings to test private models on: typical users, and a few adversarial ones.

The adversarial users move statistics as far as possible: with every item and the highest rating,
the lowest, both in turn, ratings far outside the range, a single rating, or none. User ids are
numbers that are unlikely to occur elsewhere, so that a search in saved files finds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.engines.local import LocalRatings

N_ITEMS = 23  # few, because the kit trains about forty times
_FIRST_ID = 7_301_946_000  # long enough that an id in a file or message is found by its text
_FAR = 1e6  # far outside any rating range, so that only clipping bounds a contribution


def make_ratings(
    n_users: int,
    *,
    n_items: int = N_ITEMS,
    low: float = 1.0,
    high: float = 5.0,
    far: bool = True,
    implicit: bool = False,
    seed: int = 0,
) -> Ratings:
    """Generate adversarial users, and after them `n_users` typical users with two tastes.

    Parameters
    ----------
    low, high : the public range of ratings
    far : whether some ratings are far outside it
    implicit : whether all ratings of the typical users are 1
    """
    rng = np.random.default_rng([11, seed])
    all_items = np.arange(n_items)
    middle = (low + high) / 2
    special: list[tuple[NDArray[Any], Any]] = [
        (all_items, high),
        (all_items, low),
        (all_items, np.where(all_items % 2, low, high)),
        (all_items[:1], high),
        (all_items[-1:], low),
        (all_items[::2], middle),
        (all_items[:0], middle),
        (all_items, _FAR * np.where(all_items % 3, -1.0, 1.0) if far else high),
        (all_items[1::2], 1 / _FAR if far else low),
    ]
    rows = [
        (items, np.broadcast_to(np.asarray(values, float), items.shape))
        for items, values in special
    ]
    for taste in rng.integers(0, 2, n_users):
        items = np.flatnonzero(rng.random(n_items) < np.linspace(0.95, 0.25, n_items))
        liked = (items % 2 == taste) * 0.6 + 0.2 + rng.uniform(-0.2, 0.2, len(items))
        stars = np.ones(len(items)) if implicit else np.round(2 * (low + (high - low) * liked)) / 2
        rows.append((items, stars))
    return _assemble(rows, _FIRST_ID + 37 * rng.permutation(len(rows)), n_items)


def specials(ratings: Ratings, crowd: int = 3) -> list[int]:
    """List the users to be left out in turn, for ratings made by `make_ratings`."""
    return list(range(min(9 + crowd, ratings.n_users)))


def some_users(ratings: Ratings, most: int) -> list[int]:
    """List at most `most` users, from the one with the fewest ratings to the one with the most."""
    order = np.argsort(np.diff(ratings.indptr), kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int))
    return order[places].tolist()


def without(ratings: Ratings, user: int) -> Ratings:
    """Remove one user."""
    return ratings.select_users(np.arange(ratings.n_users) != user)


def replace_user(ratings: Ratings, user: int) -> Ratings:
    """Replace one user by the most different one: with mirrored ratings, and all other items."""
    values = ratings.values[np.isfinite(ratings.values) & (np.abs(ratings.values) < _FAR / 10)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    begin, end = ratings.indptr[user], ratings.indptr[user + 1]
    mine = dict(
        zip(ratings.indices[begin:end].tolist(), ratings.values[begin:end].tolist(), strict=True)
    )
    other = np.array(
        [low + high - mine[item] if item in mine else high for item in range(ratings.n_items)]
    )
    rows: list[tuple[Any, Any]] = [
        (ratings.indices[a:b], ratings.values[a:b]) for a, b in _spans(ratings)
    ]
    rows[user] = (np.arange(ratings.n_items), other)
    ids = ratings.user_ids.copy()
    ids[user] = max(ids.tolist()) + 1 if ids.dtype == np.int64 else f"replacement of {ids[user]!r}"
    return _assemble(rows, ids, ratings.n_items, ratings)


def reorder_users(ratings: Ratings, seed: int = 5) -> Ratings:
    """Permute the users."""
    return ratings.select_users(
        np.random.default_rng(seed).permutation(ratings.n_users), by="index"
    )


class UnevenPeople(LocalRatings):
    """`Ratings` sealed in blocks of 1, 1, 2, 4, 8, … users.

    A step that depends on the number of users acts differently in the smaller blocks, so its sums
    differ from those of one block.
    """

    def _cuts(self, n: int) -> list[int]:
        return [0, *(2**at for at in range(n.bit_length()) if 2**at < n), n]


def with_repeated_rows(ratings: Ratings, user: int) -> Ratings:
    """Repeat every row of one user, as a careless reader of files would."""
    rows = [(ratings.indices[a:b], ratings.values[a:b]) for a, b in _spans(ratings)]
    items, values = rows[user]
    rows[user] = np.repeat(items, 2), np.repeat(values, 2)
    return _assemble(rows, ratings.user_ids, ratings.n_items, ratings)


def _spans(ratings: Ratings) -> list[tuple[int, int]]:
    return list(zip(ratings.indptr[:-1].tolist(), ratings.indptr[1:].tolist(), strict=True))


def _assemble(
    rows: list[tuple[Any, Any]], user_ids: Any, n_items: int, like: Ratings | None = None
) -> Ratings:
    indptr = np.concatenate([[0], np.cumsum([len(items) for items, _ in rows])])
    indices, values = (np.concatenate([row[side] for row in rows]) for side in (0, 1))
    item_ids = 101 + 3 * np.arange(n_items) if like is None else like.item_ids
    titles, public = (None, True) if like is None else (like.titles, like.catalog)
    return Ratings.from_indices(
        indptr, indices, values, np.asarray(user_ids), item_ids, titles=titles, catalog=public
    )
