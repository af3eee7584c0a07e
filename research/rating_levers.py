"""DPMF for ratings with one lever changed, on data that no lever was chosen on (docs/beyond.md).

Most levers are parameters of the algorithm. The others are parts of it that nobody but this
comparison wants to change: a constant, or a class with another method. They are exchanged while a
model is trained (`Change.parts`), and saved models know nothing of it. A row is how much worse than
DPMF by default a change is, on the same split with the same seed of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from discreet.data.splits import Split, random_ratings
from discreet.models.dpals import DPALS
from discreet.models.dpmf import rating, rating_factors, residual_covariance
from discreet.models.dpmf.feature_prior import FeaturePrior, Sums, likelihood
from discreet.models.dpmf.rating_factors import FactorStage, Steps
from discreet.models.dpmf.residual_covariance import FactorPosterior
from discreet.models.dpmf.user_effects import UserEffects
from discreet.privacy.release.plan import Release
from research.beyond import genres_and_years, score, split_of
from research.entry import Record, Settings
from research.families import SCALES, Family, item_vectors, made
from research.sources import Sources

#: Generated data of other shapes than those that rules were chosen on; named and fixed before any
#: of it was looked at.
FRESH = {
    one.name: one
    for one in (
        Family("quizzes", 12_000, 250, 45, skew=0.6, rank=7, strength=1.0, scale="0 to 10"),
        Family("book club", 8_000, 5_000, 7, skew=0.9, rank=5),
        Family("canteen", 5_000, 80, 12, skew=0.5, rank=3, taste=1.0, scale="0.5 to 5"),
        Family("village", 1_500, 1_000, 15, skew=0.4, rank=10, strength=0.6, scale="-10 to 10"),
        Family(
            "songs", 15_000, 120, 35, skew=0.4, rank=5, taste=2.0, strength=1.3, scale="-10 to 10"
        ),
        Family("apps", 20_000, 3_000, 20, skew=1.5, taste=0.8, scale="0 to 1"),
        Family("forms", 15_000, 70, 9, skew=0.4, rank=5),
        Family("wines", 15_000, 60, 14, skew=0.4, rank=2, taste=1.0, strength=1.2, scale="0 to 10"),
    )
}
UNSEEN_REPLICAS = 60  # of the twin: those after it
RANK = 8  # of steps that begin at random
USUAL_TASTE = 0.2  # its variance, over that of the noise of ratings


# ------------------------------------------------------------------ parts in place of DPMF's own


class CutAsDeviation(UserEffects):
    """σ is the first cut, and stays so; released moments say no more than what the cut leaves."""

    def learn_fit(self, released: NDArray[np.float64], deviation: float) -> None:
        before = self.variance
        super().learn_fit(released, deviation)
        self.variance = before


class Believed(FeaturePrior):
    """How much features explain, popularity among them, stays what it is before anything is
    known.
    """

    def explain(self, sums: Sums, T: float, usual: float) -> NDArray[np.float64]:
        return likelihood(sums, self.F, T, self.explained * usual)[1]


class PairsAlone(FactorStage):
    """The lines of the steps buy pairs as well, or biases where pairs cost too much; factors
    come at the end.
    """

    lines_left = 7  # pairs, and six steps
    found: Steps | None = None

    def is_affordable(self, names: Sequence[str | Release]) -> bool:
        self.lines_left -= 1
        pairs = super().is_affordable(names)
        if not pairs and not self.lines_left:
            self.steps = self.found
        return pairs

    def release_pairs(self, names: Sequence[str | Release]) -> None:
        super().release_pairs(names)
        self.found = self.steps
        if self.lines_left:
            self.steps = None


class StepsAlone(FactorStage):
    """Factors begin at random, with a prior that is the same for all items; the line of the
    pairs buys biases.
    """

    def is_affordable(self, names: Sequence[str | Release]) -> bool:
        if super().is_affordable(names) and self.steps is None:
            M = len(self.core)
            deviation = np.sqrt(USUAL_TASTE / RANK * self.state.personal.variance)
            B = deviation * np.eye(RANK)
            nothing = np.zeros((M, RANK))
            found = FactorPosterior(nothing, B, np.ones((M, RANK)), B**2, nothing[:0], 0.0, 0)
            self.steps = Steps(self.core, found, None, self.state.counts)
            self.steps.V[self.core] = deviation * np.random.default_rng(0).standard_normal(
                (M, RANK)
            )
            self.check_gain(rating.WORTH)
        return False


# ------------------------------------------------------------------ what is changed


@dataclass(frozen=True)
class Change:
    """Parameters of DPMF, and parts of its algorithm: (where, name, what stands there instead).

    `features` are "public", "random" or none, and `beside` is the row that this one is compared
    with.
    """

    given: dict[str, Any] = field(default_factory=dict)
    parts: tuple[tuple[Any, str, Any], ...] = ()
    features: str = ""
    beside: str = "DPMF by default"


HOWEVER_FEW = ((rating_factors, "FEWEST", 0.0), (rating_factors, "FEWEST_OF_ALL", 0.0))
NEVER_GIVEN_UP = ((rating_factors, "Z_DROP", math.inf),)
NOT_COMPARED = ((rating_factors, "Z_IMPROVE", math.inf),)
NEVER_BACK = ((rating_factors, "Z_REVERT", math.inf),)
BELIEVED = ((rating, "FeaturePrior", Believed),)
AS_THEY_ARE = (*BELIEVED, (residual_covariance, "STRENGTHS", (3.0, 3.0)))
OWN_PRIOR = dict(regularization=8.0, prior_count=3.0, slope=0.05, taste=0.01)

#: The levers that are measured on all sets.
LEVERS: dict[str, Change] = {
    "DPMF by default": Change(),
    "σ is the cut": Change(parts=((rating, "UserEffects", CutAsDeviation),)),
    "the cut is not made up for": Change(dict(attenuation=False)),
    "users solve with λ = 8": Change(dict(regularization=8.0)),
    "users solve with a fixed prior": Change(OWN_PRIOR),
    "no popularity as a prior": Change(dict(popularity=False)),
    "popularity believed as it is": Change(parts=BELIEVED),
    "pairs whatever they cost": Change(dict(gate=1e9)),
    "pairs however few ratings": Change(parts=HOWEVER_FEW),
    "factors never given up": Change(parts=NEVER_GIVEN_UP),
    "steps never taken back": Change(parts=NEVER_BACK),
    "no gate at all": Change(dict(gate=1e9), parts=HOWEVER_FEW + NEVER_GIVEN_UP + NEVER_BACK),
    "biases alone": Change(dict(largest_core=0)),
    "pairs alone": Change(parts=((rating, "FactorStage", PairsAlone),)),
    "steps alone": Change(
        parts=((rating, "FactorStage", StepsAlone), *NEVER_GIVEN_UP, *NEVER_BACK)
    ),
    "ranks are not compared": Change(parts=NOT_COMPARED),
    "rank 8": Change(dict(factors=8), parts=((rating_factors, "MARGIN", 8), *NOT_COMPARED)),
    "4 steps": Change(dict(iterations=4)),
    "rank 8, λ = 8, 4 steps": Change(
        dict(factors=8, regularization=8.0, iterations=4),
        parts=((rating_factors, "MARGIN", 8), *NOT_COMPARED),
    ),
}
#: Where there are public features.
FEATURES: dict[str, Change] = {
    "with features": Change(features="public"),
    "features believed as they are": Change(
        parts=AS_THEY_ARE, features="public", beside="with features"
    ),
    "with features at random": Change(features="random"),
    "random features believed as they are": Change(
        parts=AS_THEY_ARE, features="random", beside="with features at random"
    ),
}
#: Parameters that are no lever of the issue, on ML-1M.
OTHERS: dict[str, Change] = {
    "accounted by RDP": Change(dict(accountant="rdp")),
    "counts as they are": Change(dict(likely=False)),
    "nobody follows others more": Change(dict(slope=0.0)),
    "nobody likes what is popular more": Change(dict(taste=0.0)),
    "a level that counts 3 ratings": Change(dict(prior_count=3.0)),
    "intercept of 0.5": Change(dict(intercept=0.5)),
    "even weights": Change(dict(rarity=0.0)),
    "all steps alike": Change(dict(growth=1.0)),
    "8 steps": Change(dict(iterations=8)),
    "rank 4 at most": Change(dict(factors=4)),
    "core of 400 items": Change(dict(largest_core=400)),
}
CHANGES = LEVERS | FEATURES | OTHERS
PAPER_CHANGES: dict[str, dict[str, Any]] = {
    "DPALS by default": {},
    "DPALS, counts once": dict(recount=False),
    "DPALS, noise not isometric": dict(isometric=False),
}


def change(settings: Settings, sources: Sources) -> Record:
    """``data``, ``scale``; ``change`` (of `CHANGES` or `PAPER_CHANGES`), ``epsilon``, ``seed``
    (of all).
    """
    name = settings["change"]
    place = (settings["data"], settings["scale"], settings["seed"], sources)
    if name in PAPER_CHANGES:
        return score(settings, _split(*place), PAPER_CHANGES[name], DPALS)
    found = _rmse(name, settings["epsilon"], *place)
    usual = _rmse(CHANGES[name].beside, settings["epsilon"], *place)
    return {"rmse": found, "worse, %": 100 * (found / usual - 1)}


@lru_cache(maxsize=32)
def _rmse(name: str, epsilon: float, data: str, scale: float, seed: int, sources: Sources) -> float:
    """Kept, because many rows are compared with one."""
    asked = CHANGES[name]
    split = _split(data, scale, seed, sources)
    given = dict(asked.given)
    if asked.features:
        given["item_features"] = _features(asked.features, data, seed, split.train.n_items, sources)
    if data in FRESH:
        given["rating_range"] = SCALES[FRESH[data].scale][:2]
    with ExitStack() as exchanged:
        for where, part, instead in asked.parts:
            exchanged.enter_context(patch.object(where, part, instead))
        return float(score({"data": data, "epsilon": epsilon, "seed": seed}, split, given)["rmse"])


@lru_cache(maxsize=1)
def _split(name: str, scale: float, seed: int, sources: Sources) -> Split:
    if name not in FRESH:
        replica = seed + UNSEEN_REPLICAS if name.startswith("twin") else seed
        return split_of(name, replica, scale, "rating", 0, sources)
    return random_ratings(made(FRESH[name], seed), (0.8, 0.1, 0.1), seed=seed)


def _features(kind: str, data: str, seed: int, n_items: int, sources: Sources) -> Any:
    """Genres and years; of generated items, three of their dimensions and as much noise; or
    nothing but noise.
    """
    rng = np.random.default_rng([41, seed])
    if kind == "random":
        return rng.standard_normal((n_items, 20))
    if data in FRESH:
        V = item_vectors(FRESH[data], seed)[:, :3]
        return V / V.std(axis=0) + rng.standard_normal(V.shape)
    return genres_and_years(data, sources)
