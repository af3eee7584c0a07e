"""DPMF for ratings with one lever changed, on data that no lever was chosen on (docs/dpmf.md).

Most levers are parameters of the algorithm. The others are parts of it that nothing but this
comparison wants to change: a constant, or a method. They are exchanged while a
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

from discreet.data.splits import Split, random_ratings
from discreet.models.algorithm import most_frequent
from discreet.models.dpals import DPALS
from discreet.models.dpmf import (
    feature_prior,
    rating_factors,
    rating_training,
    residual_covariance,
)
from discreet.models.dpmf.rating_factors import Factors
from discreet.models.dpmf.rating_training import CHECKS, RESIDUAL_MOMENTS, State, Training
from discreet.models.dpmf.user_effects import UserPrior
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


def unchanged(prior: UserPrior, *released: Any) -> UserPrior:
    """Stay with the prior, whatever was released."""
    return prior


def start_at_random(training: Training, state: State, names: Sequence[str]) -> State:
    """Begin with random factors and one prior for all items; release biases in place of pairs."""
    state = training.release_biases(state, names, [RESIDUAL_MOMENTS])
    n = training.users.n_items
    core = most_frequent(training.counts.even, min(training.algorithm.largest_core, n))
    variance = USUAL_TASTE / RANK * state.prior.variance
    V = np.zeros((n, RANK))
    V[core] = np.sqrt(variance) * np.random.default_rng(0).standard_normal((len(core), RANK))
    covariance = variance * np.eye(RANK)
    inside = np.repeat(covariance[None], len(core), axis=0)
    factors = Factors(V, 0 * V, core, inside, covariance, RANK, state.prior.variance)
    return training.check_factors(state._replace(factors=factors), CHECKS[0])


def no_step(training: Training, state: State, names: Sequence[str]) -> State:
    """Stay with the factors of the pairs; release biases in place of the step."""
    return training.release_biases(state, names, [RESIDUAL_MOMENTS])


# ------------------------------------------------------------------ what is changed


@dataclass(frozen=True)
class Change:
    """Parameters of DPMF, and parts of its algorithm: (where, name, what stands there instead).

    `features` are "public", "random" or none, and `compared_with` names the row of the
    comparison.
    """

    given: dict[str, Any] = field(default_factory=dict)
    parts: tuple[tuple[Any, str, Any], ...] = ()
    features: str = ""
    compared_with: str = "DPMF by default"


HOWEVER_FEW = ((rating_training, "MIN_RATINGS_IN_CORE", 0.0),)
NEVER_GIVEN_UP = ((rating_factors, "Z_DROP", math.inf),)
NOT_COMPARED = ((rating_factors, "Z_IMPROVE", math.inf),)
NEVER_BACK = ((rating_factors, "Z_REVERT", math.inf),)
RANK_8 = ((rating_training, "EXTRA_DIMENSIONS", 8), *NOT_COMPARED)
AS_THEY_ARE = (
    (feature_prior, "STRENGTHS", (feature_prior.POPULARITY,)),
    (residual_covariance, "STRENGTHS", (3.0, 3.0)),
)

#: The levers that are measured on all sets.
LEVERS: dict[str, Change] = {
    "DPMF by default": Change(),
    "σ is not estimated": Change(parts=((UserPrior, "update_noise", unchanged),)),
    "users solve with λ = 8": Change(dict(regularization=8.0)),
    "users solve with a fixed prior": Change(
        dict(regularization=8.0), parts=((UserPrior, "update_variances", unchanged),)
    ),
    "no popularity as a prior": Change(dict(popularity=False)),
    "pairs whatever they cost": Change(dict(gate=1e9)),
    "pairs however few ratings": Change(parts=HOWEVER_FEW),
    "factors never given up": Change(parts=NEVER_GIVEN_UP),
    "steps never taken back": Change(parts=NEVER_BACK),
    "vectors not bounded": Change(parts=((rating_factors, "LONGEST", math.inf),)),
    "no gate at all": Change(dict(gate=1e9), parts=HOWEVER_FEW + NEVER_GIVEN_UP + NEVER_BACK),
    "biases alone": Change(dict(largest_core=0)),
    "pairs alone": Change(parts=((Training, "step", no_step),)),
    "steps alone": Change(
        parts=((Training, "release_pairs", start_at_random), *NEVER_GIVEN_UP, *NEVER_BACK)
    ),
    "ranks are not compared": Change(parts=NOT_COMPARED),
    "rank 8": Change(dict(factors=8), parts=RANK_8),
    "4 steps": Change(dict(iterations=4)),
    "rank 8, λ = 8, 4 steps": Change(
        dict(factors=8, regularization=8.0, iterations=4), parts=RANK_8
    ),
}
#: Where there are public features.
FEATURES: dict[str, Change] = {
    "with features": Change(features="public"),
    "features believed as they are": Change(
        parts=AS_THEY_ARE, features="public", compared_with="with features"
    ),
    "with features at random": Change(features="random"),
    "random features believed as they are": Change(
        parts=AS_THEY_ARE, features="random", compared_with="with features at random"
    ),
}
#: Parameters that are no lever of the issue, on ML-1M.
OTHERS: dict[str, Change] = {
    "accounted by RDP": Change(dict(accountant="rdp")),
    "no user follows others more": Change(dict(slope=0.0)),
    "no user likes what is popular more": Change(dict(taste=0.0)),
    "even weights": Change(dict(rarity=0.0)),
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
    usual = _rmse(CHANGES[name].compared_with, settings["epsilon"], *place)
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
