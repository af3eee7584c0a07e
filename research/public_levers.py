"""Two levers that were tried and left out: pairs in the space of features, and groups of users.

Both are measured at their best, which no budget can reach: `run` takes the exact sums FᵀGF of the
private users, without noise and at no cost, as a prior for item pairs (its worth estimated as that
of public users is), so ε does not hold for that row. `groups` compares exact popularity with exact
popularity in the user's own group (gender and age, as published with MovieLens 1M), for lists of
held-out users.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import item_features
from discreet.data.public_items import PublicItems
from discreet.models.dpmf import DPMF
from discreet.models.dpmf.public_sums import PublicPairs, PublicSums
from discreet.models.dpmf.ranking import PairRanking
from discreet.models.public_part import PublicPart
from research import ranking
from research.entry import Record, Settings
from research.public_items import _table
from research.sources import Sources


class FeatureSpace(PublicSums):
    """Pairs of users in the space of public features, and no counts."""

    def combine_counts(self, value: Any, deviation: float) -> Any:
        return value, deviation

    def noise_left(self, c: Any, t: float, size: float) -> float:
        return 1.0

    def pairs(
        self, statistic: Any, core: Any, c: NDArray[np.float64], size: float, centered: bool
    ) -> PublicPairs:
        found = super().pairs(statistic, core, c, size, centered)
        F = np.column_stack([np.ones(len(core)), np.nan_to_num(FEATURES[core])]) * c[:, None]
        Q = np.linalg.svd(F, full_matrices=False)[0]
        P = Q @ (Q.T @ found.P @ Q) @ Q.T
        np.fill_diagonal(P, 0.0)
        return found._replace(P=P.astype(np.float32))


FEATURES: NDArray[np.float64] = np.zeros((0, 0))


@dataclass(frozen=True)
class FeaturePairRanking(PairRanking):
    """`PairRanking` with exact pairs in the space of features."""

    name = "pairs in the space of features"

    def _public_sums(self, users: Any) -> PublicSums:
        found = super()._public_sums(users)
        return FeatureSpace(found.users, found.counts, found.size, found.weight)


class FeaturePairsDPMF(DPMF):
    """`DPMF` whose private users are public as well, for their sums in the space of features."""

    def _public_part(self, given: Any, ratings: Any, algorithm: Any) -> PublicPart:
        found = super()._public_part(given, ratings, algorithm)
        return found._replace(user_ids=found.user_ids[:0])


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``epsilon``, ``scale``, ``seed`` (of the split; noise is secure)."""
    global FEATURES
    name = settings["data"]
    people = ranking.held_out(name, 0.1, settings["scale"], settings["seed"], sources)
    given: dict[str, Any] = {"epsilon": settings["epsilon"], "delta": 1e-6, "features": []}
    given |= {"rating_range": people.rating_range, "item_features": PublicItems(_table(name))}
    if settings["model"] == "features as a prior":
        model = DPMF(**given).fit(people.everything, progress=False)
    else:
        FEATURES = item_features(_table(name), people.everything.item_ids)  # type: ignore[assignment]
        model = FeaturePairsDPMF(algorithm=FeaturePairRanking(), **given)
        model.fit(people.everything, public_ratings=people.everything, progress=False)
    return ranking.measured(model, people)


def groups(settings: Settings, sources: Sources) -> Record:
    """``data``, ``model``, ``scale``, ``seed`` (of the split); exact counts, no privacy."""
    people = ranking.held_out(settings["data"], 0.1, settings["scale"], settings["seed"], sources)
    train = people.split.train
    group = _groups(settings["data"], sources)
    own = np.array([group.get(int(user), 0) for user in train.user_ids])
    counts = np.zeros((max(group.values()) + 1, train.n_items))
    np.add.at(counts, (np.repeat(own, np.diff(train.indptr)), train.indices), 1.0)
    total = counts.sum(axis=0)
    test = people.split.test
    found = []
    for at, user in enumerate(test.known.user_ids):
        score = total.copy()
        if settings["model"] == "popularity in the own group":
            part = counts[group.get(int(user), 0)]
            score = total / total.sum() * 50 + part  # fifty choices of all users as a prior
        rows = slice(test.known.indptr[at], test.known.indptr[at + 1])
        score[test.known.indices[rows]] = -1.0
        best = np.argsort(-score, kind="stable")[:20]
        rows = slice(test.target.indptr[at], test.target.indptr[at + 1])
        wanted = test.target.indices[rows]
        if len(wanted):
            found.append(np.isin(wanted, best).sum() / min(len(wanted), 20))
    return {"recall@20": float(np.mean(found))}


def _groups(name: str, sources: Sources) -> dict[int, int]:
    """Gender and age group of each user of MovieLens 1M; invented users have one group."""
    if name == "cinema":
        return {0: 0}
    place = sources.place("ml-1m")
    assert place is not None
    archive = place if place.suffix == ".zip" else next(place.glob("*.zip"))
    with zipfile.ZipFile(archive) as file:
        name = next(one for one in file.namelist() if one.endswith("users.dat"))
        lines = io.TextIOWrapper(file.open(name), "latin-1").read().splitlines()
    rows = [line.split("::")[:3] for line in lines]
    kinds = sorted({(gender, age) for _, gender, age in rows})
    return {int(user): kinds.index((gender, age)) for user, gender, age in rows}
