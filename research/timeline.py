"""Recall over weeks of models that are trained again and again, at one lifetime ε.

Policies, all at the same lifetime (ε, δ):

- "timeline": one row a week (`discreet.Timeline`), for any number of weeks;
- "composed": every week a training with 1/√T of μ, for T weeks;
- "composed, prior": the same with `fit(prior=...)`;
- "one training": all of the budget in that week, which can be had once;
- "three weeks old", "thirteen weeks old": the one training of an earlier week.

- "popularity": exact counts of that week, without noise.

Three worlds. *Own timestamps*: week p has all ratings before its end; lists for users with a
history are compared with what they rate in the week after. *No drift*: users of a data set arrive
evenly over all weeks with their whole history, and a tenth of them, who never contribute, is scored
on a fifth of their liked items. *Drift*: simulated users of a catalog, half of which is new within
the year; scored as with own timestamps (`simulate_drift`).
"""

from __future__ import annotations

import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ellipk

from discreet.data.ratings import Ratings
from discreet.models.dpmf import DPMF
from discreet.models.popularity import Popularity
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.age_weights import AgeWeights
from discreet.timeline import Timeline
from discreet.timeline.entries import VARIABLE
from research.beyond import _at_hand
from research.entry import Record, Settings
from research.sources import Sources

DELTA = 1e-6
WEEK = 7 * 86_400
MOST_TESTED = 2000
ITEMS = 1_000  # of the simulated catalog
RANK = 8
TASTE = 1.5
STALE = {"three weeks old": 3, "thirteen weeks old": 13}


class Weeks(NamedTuple):
    """A world: its ratings in each week, and histories with what was chosen next."""

    ratings: Callable[[int], Ratings]
    tested: Callable[[int], tuple[Ratings, Ratings]]
    rating_range: tuple[float, float]


def run(settings: Settings, sources: Sources) -> list[Record]:
    """Run one policy; one record for each week that is shown."""
    weeks = settings["weeks"]
    seed = settings.get("seed", 0)
    if settings["world"] == "drift":
        ratings, born = simulate_drift(settings["users"], settings["arriving"], weeks, seed)
        world = by_timestamps(ratings, weeks, born)
    else:
        name = settings["data"]
        scale = settings.get("scale", 1.0)
        ratings = _at_hand(name) if name == "movietweetings" else sources.ratings(name, scale=scale)
        dated = settings["world"] == "own timestamps"
        world = by_timestamps(ratings, weeks) if dated else without_drift(ratings, weeks, seed)
    shown = [week for week in settings["shown"]["weeks"] if week <= weeks]
    records: list[Record] = []
    for week, model in models(settings, world, shown):
        known, target = world.tested(week)
        records.append({"week": week, "recall@20": recall(model, known, target)})
    return records


def models(settings: Settings, world: Weeks, shown: list[int]) -> Iterator[tuple[int, Any]]:
    """Yield the model of each week that is shown, under the policy."""
    policy = settings["policy"]
    weeks = settings["weeks"]
    epsilon = settings.get("epsilon", 0.0)  # popularity has none
    options: dict[str, Any] = {"delta": DELTA, "rating_range": world.rating_range}
    low, high = world.rating_range
    once = options if low < high else {"delta": DELTA}  # every interaction counts alike
    if policy == "timeline":
        os.environ.setdefault(VARIABLE, secrets.token_hex(32))
        with tempfile.TemporaryDirectory() as folder:
            memory = settings.get("memory", AgeWeights.memory)
            line = Timeline(
                Path(folder) / "weeks.timeline", epsilon=epsilon, memory=memory, **options
            )
            for week in range(1, max(shown) + 1):
                line.add(world.ratings(week))
                if week in shown:
                    yield week, line.model()
        return
    if policy.startswith("composed"):
        mu = gdp.mu(epsilon, DELTA) / math.sqrt(weeks)
        each = gdp.epsilon(mu, DELTA)
        prior = None
        chain = policy.endswith("prior")
        for week in range(1, max(shown) + 1) if chain else shown:
            model = DPMF(epsilon=each, **once).fit(world.ratings(week), prior=prior, progress=False)
            prior = model if chain else None
            if week in shown:
                yield week, model
        return
    if policy == "popularity":
        for week in shown:
            yield week, Popularity().fit(world.ratings(week))
        return
    for week in shown:
        trained = max(week - STALE.get(policy, 0), 1)
        yield week, DPMF(epsilon=epsilon, **once).fit(world.ratings(trained), progress=False)


# ------------------------------------------------------------------ worlds


def by_timestamps(ratings: Ratings, weeks: int, born: NDArray[np.float64] | None = None) -> Weeks:
    """Return the last weeks of a data set, by its own timestamps.

    Parameters
    ----------
    born : (n_items,), ascending, optional
        Week in which each item joins the catalog; by default all are there from the start.
    """
    assert ratings.timestamps is not None
    # the last week is only predicted
    end = int(ratings.timestamps.max()) - WEEK * np.arange(weeks, -1, -1)

    def until(week: int) -> Ratings:
        before = ratings.keep(ratings.timestamps < end[week - 1])
        there = ratings.n_items if born is None else int((born < week).sum())
        return before.with_items(before.item_ids[:there], public=True)

    def tested(week: int) -> tuple[Ratings, Ratings]:
        known = until(week)
        after = (ratings.timestamps >= end[week - 1]) & (ratings.timestamps < end[week])
        target = ratings.keep(after)
        both = (np.diff(known.indptr) >= 3) & (np.diff(target.indptr) > 0)
        users = np.flatnonzero(both)[:MOST_TESTED]
        return known.select_users(users, by="index"), target.select_users(users, by="index")

    low, high = ratings.rating_range() or (1.0, 5.0)
    return Weeks(until, tested, (low, high))


def without_drift(ratings: Ratings, weeks: int, seed: int) -> Weeks:
    """Return a world in which users arrive evenly, with all their ratings."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(ratings.n_users)
    held = np.sort(order[: len(order) // 10])
    train = np.sort(order[len(order) // 10 :])
    arrival = rng.integers(1, weeks + 1, len(train))
    test = ratings.select_users(held, by="index")
    chosen = rng.random(test.n_ratings) < 0.2
    known = test.keep(~chosen)
    low, high = ratings.rating_range() or (1.0, 5.0)
    target = test.keep(chosen & (test.values >= min(high, 4.0)))

    def until(week: int) -> Ratings:
        return public(ratings.select_users(train[arrival <= week], by="index"))

    return Weeks(until, lambda week: (known, target), (low, high))


@lru_cache(maxsize=3)
def simulate_drift(
    users: int, arriving: int, weeks: int, seed: int
) -> tuple[Ratings, NDArray[np.float64]]:
    """Return ratings of users who arrive, and choose among items that are new and age; and the
    weeks in which items were born.

    Half of `ITEMS` items are there from the start, and the others are born evenly over the weeks;
    an item's popularity falls by half every ten weeks, to a tenth of what it was. So many users
    arrive each week, the others are there from the start; each is active in a week with a chance
    of 0.2, and then rates three items that it has not rated, with the weight
    popularity × exp(taste · item) in `RANK` dimensions. Stars are 3 to 5, higher for what suits.
    """
    rng = np.random.default_rng([seed, 34])
    born = np.append(np.zeros(ITEMS // 2), np.linspace(1, weeks, ITEMS - ITEMS // 2))
    appeal = rng.normal(0.0, 1.0, ITEMS)
    taste = rng.normal(0.0, 1.0, (users, RANK)).astype(np.float32)
    item = rng.normal(0.0, 1.0, (ITEMS, RANK)).astype(np.float32)
    present = users - arriving * weeks
    since = np.append(np.zeros(present), np.repeat(np.arange(1, weeks + 1), arriving))
    rated = np.zeros((users, ITEMS), bool)
    columns: list[list[NDArray[Any]]] = [[], [], [], []]
    for week in range(weeks + 2):
        active = np.flatnonzero((since <= week) & (rng.random(users) < 0.2))
        fresh = 0.1 + 0.9 * 0.5 ** ((week - born) / 10)
        weight = np.where(born <= week, appeal + np.log(fresh), -np.inf).astype(np.float32)
        suits = taste[active] @ item.T / math.sqrt(RANK) * TASTE
        score = suits + weight
        score[rated[active]] = -np.inf
        # the largest of scores with Gumbel noise are a draw without replacement
        score -= np.log(rng.standard_exponential(score.shape, np.float32) + np.float32(1e-30))
        chosen = np.argpartition(-score, 3, axis=1)[:, :3]
        who = np.repeat(active, 3)
        what = chosen.ravel()
        rated[who, what] = True
        like = np.take_along_axis(suits, chosen, 1).ravel() / TASTE + rng.normal(size=len(what))
        stars = np.clip(np.round(4 + 0.7 * like), 3, 5)
        when = np.full(len(who), week * WEEK)
        for column, values in zip(columns, (who, what, stars, when), strict=True):
            column.append(values)
    user, chosen, stars, when = (np.concatenate(column) for column in columns)
    return Ratings.from_arrays(user, chosen, stars, when, item_ids=np.arange(ITEMS)), born


def public(ratings: Ratings) -> Ratings:
    """Return the ratings with their items taken as a public catalog."""
    return ratings.with_items(ratings.item_ids, public=True)


def recall(model: Any, known: Ratings, target: Ratings) -> float:
    """Return recall@20: the part of min(20, n) chosen items that is listed, known ones excluded."""
    vectors, _, factors = model.score_vectors(known.indptr, known.indices, known.values)
    found = []
    for at in range(known.n_users):
        relevant = target.indices[target.indptr[at] : target.indptr[at + 1]]
        if not len(relevant):
            continue
        scores: NDArray[Any] = vectors[at] @ factors.T + model.item_biases_
        scores[known.indices[known.indptr[at] : known.indptr[at + 1]]] = -np.inf
        top = np.argpartition(-scores, 20)[:20]
        found.append(np.isin(top, relevant).sum() / min(20, len(relevant)))
    return float(np.mean(found))


# ------------------------------------------------------------------ noise


def multipliers(settings: Settings, sources: Sources) -> Record:
    """Return the noise of the last row over one training with all of μ, without drift."""
    rows = settings["rows"]
    policy = settings["policy"]
    memory = settings.get("memory", AgeWeights.memory)
    if policy == "binary tree, Honaker's estimate":
        return {"noise": tree_noise(rows, rows), "worst": tree_noise(rows)}
    ages = AgeWeights(memory)
    delta = math.sqrt(ages.total)
    p = np.arange(1, rows + 1.0)
    size = np.convolve(np.ones(rows), ages.at(np.arange(rows)) / 2**20)[:rows]  # arriving evenly
    found = {
        "composed": lambda: math.sqrt(rows),
        "composed, average of all rows": lambda: rows / math.sqrt(float((p**2).sum()) / rows),
        "square root": lambda: float((root_weights(rows) ** 2).sum()),
        "square root of the decayed sum": lambda: float(
            2 / math.pi * ellipk((1 - 1 / memory) ** 2)
        ),
        "timeline, one row": lambda: delta,
        "timeline, all rows": lambda: rows * delta / math.sqrt(float((size**2).sum())),
    }
    return {"noise": found[policy]()}


def root_weights(rows: int) -> NDArray[np.float64]:
    """Return the first coefficients of (1 − z)^(−1/2), the square root of a prefix sum.

    The noise of the last total is their sum of squares: as encoder and as decoder each has the norm
    √Σc².
    """
    k = np.arange(1, rows)
    return np.append(1.0, np.cumprod((2 * k - 1) / (2 * k)))


def tree_noise(rows: int, row: int | None = None) -> float:
    """Return the deviation of a prefix sum by a binary tree with Honaker's estimate (2015).

    A user is in one node of each complete level, so that every node has the variance of their
    number; a node is estimated by itself and by its children. Of the worst row by default.
    """
    levels = rows.bit_length()
    variance = [float(levels)]
    for _ in range(levels - 1):
        variance.append(1 / (1 / levels + 1 / (2 * variance[-1])))
    some = range(1, rows + 1) if row is None else [row]
    return max(math.sqrt(sum(v for at, v in enumerate(variance) if t >> at & 1)) for t in some)
