"""DPALS on MovieLens (Figures 3, 5, 8 to 12 and Table 5): a cell trains one model of Table 4 and
scores it.

Three readings of the noise on the right-hand sides of explicit ratings are kept apart
(docs/errata.md, 8):

    "as Algorithm 1 says"   σ_g · Γ_u · Γ_M, which is what the ε of the label asks for
    "as published"          σ_g · Γ_u, with which the published scores come out, and which is
                            private at a larger ε only
    "Γ_M = 3"               σ_g · Γ_u · 3: centered ratings are within ±3, so that is enough

Prices are for ratings within ±Γ_M = ±5, and with "as published, within ±3" for that.

Either way the ledger prices what was done: ``true_epsilon`` is exact, for the δ of the paper.

Where the paper says that it tuned other parameters anew, ``tune`` names them with the values to try
(`tuned`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.splits import Holdout, Split
from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.base import Recommender
from discreet.models.bias import Bias
from discreet.models.dpals import DPALS
from discreet.models.fold_in import project
from discreet.models.frank_wolfe import DPFrankWolfe
from discreet.models.popularity import Popularity
from discreet.models.private import PrivateRecommender
from research.entry import Record, Settings
from research.search import Candidate
from research.sources import Sources
from research.tuned import choose, trials

DELTA = 1e-5
METRIC = {"rating": "rmse", "ranking": "recall@20"}
STARS = (0.5, 5.0)
# a budget that says nothing: the noise is that of Table 4, and the ε what it costs
PRICED_BY_SIGMAS = 1e9
# replace a number of Table 4
VARIED = {"beta": "beta", "rank": "r", "nu": "nu", "mu": "mu", "lambda": "lambda", "steps": "T"}
# bounds on centered ratings other than the largest rating
TIGHT = {"Γ_M = 3": 3.0, "as published, within ±3": 3.0}
# Z of the users' weights, by ν and by the share of items, for a user's c ratings of those items; of
# the published shape of ML-10M (its twin's, 80 %), known before any training, hence public. Over
# ratings: such that Σ c (c/Z)^ν = Σ c.
NORMALIZERS = {
    1.0: {
        0.05: 111.6,
        0.1: 180.2,
        0.2: 279.8,
        0.25: 318.4,
        0.4: 406.6,
        0.5: 447.2,
        0.6: 476.4,
        1.0: 512.9,
    },
    0.5: {
        0.05: 95.7,
        0.1: 147.7,
        0.2: 216.5,
        0.25: 241.0,
        0.4: 291.9,
        0.5: 312.6,
        0.6: 326.1,
        1.0: 340.7,
    },
}
# As the supplement prints it, for ν = 1: the mean over users of c; of the 400 most rated items it
# is that of 98 %.
PRINTED_NORMALIZERS: dict[str, dict[float, float]] = {
    "ml10m": {0.05: 57.5, 0.4: 110.1, 0.5: 112.4, 0.6: 113.6, 1.0: 114.5},
    "top400": {1.0: 61.0},
}


def run(settings: Settings, sources: Sources) -> Record | list[Record]:
    """One model on one task, or, with ``tune``, one search and then so many ``trials``.

    Settings: ``task`` ("ml10m", "top400" or "ml20m"), ``data``, ``scale``, ``users`` (a part of
    them), ``model``, ``seed`` (of the noise and the start, never of the split); for DPALS also
    ``reading``, ``table4`` (the numbers of Table 4 by the paper's names, and Z), those of `VARIED`
    that replace one of them, ``normalizers`` ("as printed": Z and Z′ averaged over users and
    items), and ``change``, parameters of the model that an ablation sets otherwise; for other
    models ``parameters``. ``k`` replaces that of Table 4 at about the same ε: all σ grow with √k.
    With ``clipped``, users' vectors are clipped for predictions as well (D.1). ``tune`` has lists:
    of ``steps``, of ``times``, by which λ is multiplied, and of parameters of other models.
    """
    split = _split(settings, sources)
    if "users" in settings:
        split = _some_users(split, settings["users"])
    if "tune" not in settings:
        return _scored(settings, split)
    metric = METRIC[_feedback(settings)]
    found = choose(
        settings["tune"], lambda some, seed: _model(_tried(settings, some, seed)), split, metric
    )
    return trials(settings, found, lambda some, seed: _scored(_tried(settings, some, seed), split))


def _tried(settings: Settings, candidate: Candidate, seed: int) -> Settings:
    """The settings with what is tried in them; σ_G and σ_g grow with √T, so that the steps cost
    the same together.
    """
    settings = settings | {"seed": seed}
    if settings["model"] != "DPALS":
        return settings | {"parameters": settings.get("parameters", {}) | candidate}
    t = dict(settings["table4"])
    t["lambda"] *= candidate.get("times", 1.0)
    steps = candidate.get("steps", t["T"])
    more = math.sqrt(steps / t["T"])
    return settings | {
        "table4": t | {"T": steps, "sigma_G": more * t["sigma_G"], "sigma_g": more * t["sigma_g"]}
    }


def _scored(settings: Settings, split: Split) -> Record:
    model = _model(settings).fit(split.train)
    metric = METRIC[_feedback(settings)]
    found: Record = {metric: evaluate(model, split, metric, slices=None)[metric]}
    if isinstance(model, PrivateRecommender):
        found["true_epsilon"] = model.privacy_.epsilon
    if isinstance(model, DPALS):
        counts = np.bincount(split.train.indices, minlength=split.train.n_items)
        found["data_fraction"] = round(
            float(counts[model.details_["frequent"]].sum() / counts.sum()), 2
        )
    return found


def _feedback(settings: Settings) -> str:
    return "ranking" if settings["task"] == "ml20m" else "rating"


def _model(settings: Settings) -> Any:
    goal = _feedback(settings)
    return table_4(settings, goal) if settings["model"] == "DPALS" else _other(settings, goal)


def _split(settings: Settings, sources: Sources) -> Split:
    name, scale = settings["data"], settings["scale"]
    if settings["task"] == "ml20m":
        return sources.strong(name, settings["held"], scale=scale)
    if settings["task"] == "top400":
        return sources.random(name, (0.98, 0.01, 0.01), top=400, scale=scale)
    return sources.random(name, (0.8, 0.1, 0.1), scale=scale)


def table_4(settings: Settings, goal: str) -> DPALS:
    """Table 4 in this library's words; σ_p, σ_G and σ_g are in the paper's units."""
    explicit = goal == "rating"
    t: dict[str, Any] = settings["table4"] | {
        VARIED[name]: settings[name] for name in VARIED if name in settings
    }
    if "k" in settings:
        more = math.sqrt(settings["k"] / t["k"])
        t |= {name: more * t[name] for name in ("sigma_G", "sigma_g", "sigma_p")}
        t["k"] = settings["k"]
    printed = settings.get("normalizers") == "as printed"
    if explicit and printed:
        t["Z"] = PRINTED_NORMALIZERS[settings["task"]][t["beta"]]
    elif explicit and "Z" not in t:
        t["Z"] = NORMALIZERS.get(t["nu"], {}).get(t["beta"], 1.0)
    reading = settings["reading"]
    bound = TIGHT.get(reading, STARS[1])
    right = t["sigma_g"] / (bound if explicit and reading.startswith("as published") else 1.0)
    before = dict.fromkeys(("counts", "recounts", "center sum", "center count"), t["sigma_p"])
    parameters: dict[str, Any] = dict(
        epsilon=PRICED_BY_SIGMAS,
        factors=t["r"],
        iterations=t["T"],
        regularization=t["lambda"],
        goal=goal,
        unobserved_weight=t["lambda_0"],
        item_exponent=t.get("mu", 0.0),
        user_exponent=t.get("nu", 0.0),
        max_items=t["k"],
        item_fraction=t["beta"],
        user_normalizer=t.get("Z", 1.0),
        weighting="row" if printed else "rating",
        delta=t["delta"],
        sigmas=before | {"gram": t["sigma_G"], "global": t["sigma_G"], "sum": right},
        sampling="rarest",
        noise_ridge=0.0,
        intercept=0.0,
        centering="global",
        rating_range=STARS if explicit else None,
        rating_bound=bound,
        noise="seeded",
        random_state=settings["seed"],
    )
    kind = ClippedDPALS if settings.get("clipped") else DPALS
    return kind.configure(**(parameters | settings.get("change", {})))


class ClippedDPALS(DPALS):
    """DPALS that clips users' vectors to Γ_u for predictions, as training does."""

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        U, offset = super().fold(indptr, indices, values)
        return project(U, self.algorithm_.user_norm), offset  # type: ignore[attr-defined]

    def score_vectors(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        return *self.fold(indptr, indices, values), self.item_factors_


def _other(settings: Settings, goal: str) -> Recommender:
    name = settings["model"]
    if name == "ALS":
        plain: dict[str, Any] = {"intercepts": False}
        if goal == "ranking":
            plain = {"user_exponent": 0.0, "item_exponent": 0.0}
        if "rank" in settings:
            plain["factors"] = settings["rank"]
        return ALS(goal=goal, random_state=settings["seed"], **(plain | settings["parameters"]))
    if name.startswith("DPFW"):
        private = dict(epsilon=float(settings["epsilon"]), delta=DELTA, rating_range=STARS)
        private |= dict(noise="seeded", random_state=settings["seed"])
        return DPFrankWolfe.configure(**private, **settings.get("parameters", {}))
    if name == "popular":
        return Popularity()
    return Bias() if name == "bias" else Bias(0.0, users=name == "user mean", items=False)


def _some_users(split: Split, n: int) -> Split:
    """Train and test on `n` users only, taken at random (Figure 8)."""
    chosen = np.sort(np.random.default_rng(0).permutation(split.train.n_users)[:n])
    train = split.train.select_users(chosen, by="index")
    parts = [split.part(name).target.select_users(chosen, by="index") for name in ("test", "valid")]
    test, valid = (Holdout(train, target) for target in parts)
    return Split(f"{split.name}, {n:,} users", split.seed, train, test, valid)
