"""Users who agreed that their ratings are public: models with and without them
(docs/public-features.md).

Of the users who train, 5 % are public, drawn at random or those with the most ratings; all others
are private. "left out": the same users are neither, which a public set is compared with. For
ranking, of MovieLens and MovieTweetings, a tenth of the users is held out as in `ranking`; on
amazon-book, all users train on 80 % of their interactions as in `sparse`. For ratings, a tenth of
the ratings is held out as in `beyond`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet.data.ratings import Ratings
from discreet.evaluation.evaluator import evaluate
from discreet.models.base import Recommender
from discreet.models.dpmf import DPMF
from research import ranking, sparse
from research.beyond import STARS, split_of
from research.entry import Record, Settings
from research.public_features import average_trainings, measured
from research.sources import Sources

PART = 0.05
PRIVATE = "none"
WRONG = "5 % at random, shuffled items"
LEFT_OUT = "5 % at random, left out"


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``goal``, ``public`` (which users), ``epsilon``, ``scale``, ``seed`` (of the split
    and of the public users), ``noise`` (trainings of which a cell is the mean; noise is secure, but
    where public users are wrong).
    """
    if settings["public"] == WRONG:
        return compare_wrong(settings, sources)
    return average_trainings(lambda: run_once(settings, sources), settings["noise"])


def compare_wrong(settings: Settings, sources: Sources) -> Record:
    """Trainings with a wrong public set, each next to one that leaves the same users out, on the
    same seeded noise: what the set costs, in percent, with its standard error.
    """
    pairs = []
    for one in range(settings["noise"]):
        seeded = {"noise": "seeded", "random_state": 100 * settings["seed"] + one}
        pairs.append(
            [run_once(settings | {"public": kind}, sources, **seeded) for kind in (WRONG, LEFT_OUT)]
        )
    metric, sign = ("rmse", -1) if settings["goal"] == "rating" else ("recall@20", 1)
    wrong, left = np.array([[one[metric] for one in pair] for pair in pairs]).T
    lost = 100 * sign * (left - wrong) / left.mean()
    found = iter([one for one, _ in pairs])
    record = average_trainings(lambda: next(found), len(pairs)) | {"loss": float(lost.mean())}
    if len(pairs) > 1:
        record["error of loss"] = float(lost.std(ddof=1) / len(pairs) ** 0.5)
    return record


def run_once(settings: Settings, sources: Sources, **noise: Any) -> Record:
    """Train and measure once."""
    name, seed = settings["data"], settings["seed"]
    promise = {"epsilon": settings["epsilon"], "delta": 1e-6, **noise}
    if settings["goal"] == "rating":
        split = split_of(name, seed, settings["scale"], "rating", 0, sources)
        model = DPMF(goal="rating", rating_range=STARS.get(name, (0.5, 5.0)), **promise)
        fitted: Recommender = fit(model, split.train, settings)
        return {
            "rmse": evaluate(fitted, split, "rmse", slices=None)["rmse"],
            "true_epsilon": model.privacy_.epsilon,
        }
    if name == "amazon-book":
        user, item = sparse._interactions(settings, sources)
        shown = np.random.default_rng(seed).random(len(user)) < 0.8
        items = np.unique(item)
        known = np.isin(user, np.unique(user[shown]))
        train, hidden = (
            Ratings.from_arrays(user[rows], item[rows], item_ids=items)
            for rows in (shown, known & ~shown)
        )
        model = DPMF.configure(goal="ranking", like_threshold="everything", **promise)
        return measured(fit(model, train, settings), train, hidden)
    people = ranking.held_out(name, 0.1, settings["scale"], seed, sources)
    model = ranking.ours("DPMF", people, promise)
    return ranking.measured(fit(model, people.everything, settings), people)


def fit(model: DPMF, ratings: Ratings, settings: Settings) -> DPMF:
    """Train with so many public users, who are left out of the private part by their ids."""
    kind = settings["public"]
    if kind == PRIVATE:
        return model.fit(ratings, progress=False)
    public = choose_users(ratings, kind, settings["seed"])
    if "left out" in kind:
        others = ~np.isin(ratings.user_ids, public.user_ids)
        rest = ratings.select_users(np.flatnonzero(others), by="index")
        return model.fit(rest.with_items(ratings.item_ids, public=True), progress=False)
    return model.fit(ratings, public_ratings=public, progress=False)


def choose_users(ratings: Ratings, kind: str, seed: int) -> Ratings:
    """Return the ratings of 5 % of the users, with other items where they are shuffled."""
    rng = np.random.default_rng([seed, 36])
    many = round(PART * ratings.n_users)
    if "most ratings" in kind:
        rows: Any = np.argsort(-np.diff(ratings.indptr), kind="stable")[:many]
    else:
        rows = rng.choice(ratings.n_users, many, replace=False)
    chosen = ratings.select_users(np.sort(rows), by="index")
    if "shuffled" not in kind:
        return chosen
    other = rng.permutation(chosen.n_items)
    user = np.repeat(chosen.user_ids, np.diff(chosen.indptr))
    items = chosen.item_ids[other[chosen.indices]]
    return Ratings.from_arrays(user, items, chosen.values, item_ids=chosen.item_ids)
