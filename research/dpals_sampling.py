"""What sampling does to the popularity of items (Figures 2 and 6), and what Table 4 costs.

These access ratings without any noise, as the paper's figures do: run them on data that may be
looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.privacy.accounting import pricing as accounting
from research import papers
from research.entry import Record, Settings
from research.sources import Sources

GROUPS = 5


def popularity(settings: Settings, sources: Sources) -> list[Record]:
    """Figure 2: the share of the (sampled) ratings that the most popular items hold, by the
    share of those items.
    """
    ratings = sources.ratings(settings["data"], scale=settings["scale"])
    counts = np.sort(
        np.bincount(ratings.indices[_sample(ratings, settings)], minlength=ratings.n_items)
    )[::-1]
    share = np.cumsum(counts) / counts.sum()
    places = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0]
    return [
        {"items": place, "ratings": float(share[round(place * len(share)) - 1])} for place in places
    ]


def users_and_items(settings: Settings, sources: Sources) -> list[Record]:
    """Figure 6: ratings by how many their user and their item have; five groups of items with a
    fifth of all each.

    ``correlation`` is that of the counts of user and item over the ratings; ``share`` what a group
    has of the sample. Further records are the joint histogram: the ``part`` of the sample whose
    user and item have about so many ratings (``user_count`` and ``item_count``, the lower ends of
    ranges that double), in all ratings.
    """
    ratings = sources.ratings(settings["data"], scale=settings["scale"])
    chosen = _sample(ratings, settings)
    per_user = np.diff(ratings.indptr)
    per_item = np.bincount(ratings.indices, minlength=ratings.n_items)
    user = per_user[_rows(ratings)]
    item = per_item[ratings.indices]
    correlation = np.corrcoef(user[chosen], item[chosen])[0, 1]
    logs = np.corrcoef(np.log(user[chosen]), np.log(item[chosen]))[0, 1]
    order = np.argsort(-per_item, kind="stable")
    part = np.minimum(
        GROUPS * (np.cumsum(per_item[order]) - per_item[order]) // per_item.sum(), GROUPS - 1
    )
    group = np.empty(len(order), np.int64)
    group[order] = part
    shares = np.bincount(group[ratings.indices[chosen]], minlength=GROUPS) / np.count_nonzero(
        chosen
    )
    groups: list[Record] = [
        {
            "group": g + 1,
            "share": float(shares[g]),
            "correlation": correlation,
            "correlation_of_logs": logs,
        }
        for g in range(GROUPS)
    ]
    return groups + _joint(user[chosen], item[chosen])


def _joint(user: NDArray[Any], item: NDArray[Any]) -> list[Record]:
    """How ratings spread over the counts of their users and items, in ranges that double."""
    rows = np.floor(np.log2(user)).astype(int)
    columns = np.floor(np.log2(item)).astype(int)
    wide = int(columns.max()) + 1
    counts = np.bincount(rows * wide + columns, minlength=(int(rows.max()) + 1) * wide)
    return [
        {
            "user_count": 2 ** (at // wide),
            "item_count": 2 ** (at % wide),
            "part": float(n / len(user)),
        }
        for at, n in enumerate(counts.tolist())
        if n
    ]


def sizes(settings: Settings, sources: Sources) -> Record:
    """Table 2: users, items and ratings of the data set; of its most rated items only, if
    ``top`` is given.
    """
    ratings = sources.ratings(settings["data"], scale=settings["scale"])
    if "top" in settings:
        counts = np.bincount(ratings.indices, minlength=ratings.n_items)
        chosen = np.sort(np.argsort(-counts, kind="stable")[: settings["top"]])
        ratings = ratings.filter(items=ratings.item_ids[chosen], min_user_ratings=1)
    if settings.get("binary") and not settings["data"].startswith("twin"):
        ratings = ratings.binarize(4.0).filter(min_user_ratings=5, min_item_ratings=1)
    return {"users": ratings.n_users, "items": ratings.n_items, "ratings": ratings.n_ratings}


def prices(settings: Settings, sources: Sources) -> Record:
    """One column of Table 4: its ε by the paper's conversion, exactly, and by the theorem as it
    is printed.
    """
    column = papers.DPALS_TABLE_4[settings["column"] - 1]
    return {
        "papers_conversion": accounting.epsilon(column.events(), column.delta, "rdp"),
        "exact": accounting.epsilon(column.events(), column.delta, "gdp"),
        "exact_with_centering": accounting.epsilon(
            column.events_with_centering(), column.delta, "gdp"
        ),
        "theorem_1_as_printed": accounting.epsilon(column.events_as_printed(), column.delta, "rdp"),
    }


def _sample(ratings: Ratings, settings: Settings) -> NDArray[np.bool_]:
    """Which ratings are taken: all, k of each user at random, or each user's k least rated
    items.
    """
    if settings["sampling"] == "none":
        return np.ones(ratings.n_ratings, bool)
    rng = np.random.default_rng(settings["seed"])
    key: NDArray[Any] = rng.random(ratings.n_ratings)
    if settings["sampling"] == "adaptive":
        key = np.bincount(ratings.indices, minlength=ratings.n_items)[ratings.indices] + key
    row = _rows(ratings)
    order = np.lexsort((key, row))
    chosen = np.zeros(ratings.n_ratings, bool)
    chosen[order[np.arange(len(row)) - ratings.indptr[row] < settings["k"]]] = True
    return chosen


def _rows(ratings: Ratings) -> NDArray[np.int64]:
    return np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
