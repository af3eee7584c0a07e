"""Recall over weeks of models that are trained again and again, at one lifetime ε.

Policies, all at the same lifetime (ε, δ):

- "timeline": one row a week (`discreet.Timeline`), for any number of weeks;
- "composed": every week a training with 1/√T of μ, for T weeks;
- "composed, prior": the same with `fit(prior=...)`;
- "one training": all of the budget in that week, which can be had once;
- "three weeks old", "thirteen weeks old": the one training of an earlier week.

Two worlds. *Own timestamps*: week p has all ratings before its end; lists for users with a history
are compared with what they rate in the week after. *No drift*: users of a data set arrive evenly
over all weeks with their whole history, and a tenth of them, who never contribute, is scored on a
fifth of their liked items.
"""

from __future__ import annotations

import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.dpmf import DPMF
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
STALE = {"three weeks old": 3, "thirteen weeks old": 13}


class Weeks(NamedTuple):
    """A world: its ratings in each week, and histories with what was chosen next."""

    ratings: Callable[[int], Ratings]
    tested: Callable[[int], tuple[Ratings, Ratings]]
    rating_range: tuple[float, float]


def run(settings: Settings, sources: Sources) -> list[Record]:
    """Run one policy; one record for each week that is shown."""
    name = settings["data"]
    scale = settings.get("scale", 1.0)
    ratings = _at_hand(name) if name == "movietweetings" else sources.ratings(name, scale=scale)
    weeks = settings["weeks"]
    make = by_timestamps if settings["world"] == "own timestamps" else without_drift
    world = make(ratings, weeks, settings.get("seed", 0))
    shown = [week for week in settings["shown"]["weeks"] if week <= weeks]
    records: list[Record] = []
    for week, model in models(settings, world, shown):
        known, target = world.tested(week)
        records.append({"week": week, "recall@20": recall(model, known, target)})
    return records


def models(settings: Settings, world: Weeks, shown: list[int]) -> Iterator[tuple[int, Any]]:
    """Yield the model of each week that is shown, under the policy."""
    epsilon, policy, weeks = settings["epsilon"], settings["policy"], settings["weeks"]
    options: dict[str, Any] = {"delta": DELTA, "rating_range": world.rating_range}
    if policy == "timeline":
        os.environ.setdefault(VARIABLE, secrets.token_hex(32))
        with tempfile.TemporaryDirectory() as folder:
            memory = settings.get("memory", 13)
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
            model = DPMF(epsilon=each, **options).fit(
                world.ratings(week), prior=prior, progress=False
            )
            prior = model if chain else None
            if week in shown:
                yield week, model
        return
    for week in shown:
        trained = max(week - STALE.get(policy, 0), 1)
        yield week, DPMF(epsilon=epsilon, **options).fit(world.ratings(trained), progress=False)


# ------------------------------------------------------------------ worlds


def by_timestamps(ratings: Ratings, weeks: int, seed: int) -> Weeks:
    """Return the last weeks of a data set, by its own timestamps."""
    assert ratings.timestamps is not None
    # the last week is only predicted
    end = int(ratings.timestamps.max()) - WEEK * np.arange(weeks, -1, -1)

    def until(week: int) -> Ratings:
        return public(ratings.keep(ratings.timestamps < end[week - 1]))

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
    target = test.keep(chosen & (test.values >= 4))

    def until(week: int) -> Ratings:
        return public(ratings.select_users(train[arrival <= week], by="index"))

    return Weeks(until, lambda week: (known, target), (1.0, 5.0))


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
    rows, policy = settings["rows"], settings["policy"]
    p = np.arange(1, rows + 1.0)
    if policy == "composed":
        return {"noise": math.sqrt(rows)}
    if policy == "composed, average of all rows":
        return {"noise": rows / math.sqrt(float((p**2).sum()) / rows)}
    ages = AgeWeights(settings["memory"])
    delta = math.sqrt(ages.total)
    if policy == "timeline, one row":
        return {"noise": delta}
    weights = ages.at(np.arange(rows)) / 2**20
    size = np.convolve(np.ones(rows), weights)[:rows]  # users arrive evenly
    return {"noise": rows * delta / math.sqrt(float((size**2).sum()))}
