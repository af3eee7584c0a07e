"""One small model for every way to read a history, and histories to ask them with."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from scipy import sparse

import discreet
from discreet import Ratings

USERS = 120
ITEMS = 150
PRIVATE = {"rating_range": (1, 5), "epsilon": 50.0, "noise": "seeded", "random_state": 3}
MODELS = {
    "ALS": lambda: discreet.ALS(6, iterations=3),
    "ALS without intercepts": lambda: discreet.ALS(
        6, iterations=3, intercepts=False, dtype="float64"
    ),
    "ALS implicit": lambda: discreet.ALS(6, iterations=3, goal="ranking"),
    "IRLS": lambda: discreet.IRLS(6, iterations=3),
    "Bias": discreet.Bias,
    "Popularity": discreet.Popularity,
    "DPMF": lambda: discreet.DPMF(6, goal="ranking", **PRIVATE),
    "DPMF with profiles": lambda: discreet.DPMF(
        6, goal="ranking", item_features=genres(), **PRIVATE
    ),
    "DPMF, profiles alone": lambda: discreet.DPMF.configure(
        goal="ranking", gate=1e9, item_features=genres(), **PRIVATE
    ),
    "DPMF, communities": lambda: discreet.DPMF.configure(
        goal="ranking", route="communities", **(PRIVATE | {"epsilon": 1000.0})
    ),
    # pairs are hidden by the noise
    "DPMF, communities alone": lambda: discreet.DPMF.configure(
        goal="ranking",
        route="communities",
        **(PRIVATE | {"epsilon": 20.0, "random_state": 6}),
    ),
    "DPMF, communities with profiles": lambda: discreet.DPMF.configure(
        goal="ranking",
        route="communities",
        item_features=genres(),
        **(PRIVATE | {"epsilon": 1000.0}),
    ),
    "DPMF, ratings": lambda: discreet.DPMF(6, goal="rating", **PRIVATE),
    "DPMF without factors": lambda: discreet.DPMF.configure(factors=0, goal="rating", **PRIVATE),
    "DPALS": lambda: discreet.DPALS(6, item_fraction=0.5, **PRIVATE),
    "DPALS global centering": lambda: discreet.DPALS.configure(
        factors=6, centering="global", item_fraction=0.5, **PRIVATE
    ),
    "DPALS implicit": lambda: discreet.DPALS(6, goal="ranking", item_fraction=0.5, **PRIVATE),
    "DPLMC": lambda: discreet.DPLMC(6, **PRIVATE),
    "HuberALS": lambda: discreet.HuberALS(4, **PRIVATE),
    "DPFrankWolfe": lambda: discreet.DPFrankWolfe(4, item_fraction=0.5, **PRIVATE),
    "DPFrankWolfe by steps": lambda: discreet.DPFrankWolfe.configure(
        factors=4, folding="steps", item_fraction=0.5, **PRIVATE
    ),
    "DPSVD": lambda: discreet.DPSVD(4, item_fraction=0.5, **PRIVATE),
    "DPSVD by density": lambda: discreet.DPSVD.configure(
        factors=4, density=0.2, item_fraction=0.5, **PRIVATE
    ),
    "DPSGLD": lambda: discreet.DPSGLD(4, item_fraction=0.5, **PRIVATE),
    "DPSGD": lambda: discreet.DPSGD(4, accountant="gdp", item_fraction=0.5, **PRIVATE),
}


def genres() -> dict[str, str]:
    """What the items are like, by the signs of their two tastes."""
    rng = np.random.default_rng(0)
    rng.standard_normal((USERS, 2))
    items = rng.standard_normal((2, ITEMS))
    words = np.where(items[0] > 0, "loud", "quiet").tolist()
    more = np.where(items[1] > 0.5, "|long", np.where(items[1] < -0.5, "|short", "")).tolist()
    return {f"i{j}": words[j] + more[j] for j in range(ITEMS)}


@lru_cache(maxsize=1)
def ratings() -> Ratings:
    """People with two tastes, so that there is something to learn."""
    rng = np.random.default_rng(0)
    taste = rng.standard_normal((USERS, 2)) @ rng.standard_normal((2, ITEMS))
    known = rng.random((USERS, ITEMS)) < 0.4
    stars = np.clip(np.rint(3 + taste + 0.3 * rng.standard_normal(taste.shape)), 1, 5)
    matrix = sparse.csr_array(np.where(known, stars, 0))
    titles = [f"Film № {j} <b>" for j in range(ITEMS)]
    return Ratings.from_csr(matrix, item_ids=[f"i{j}" for j in range(ITEMS)], titles=titles)


@cache
def fitted(name: str):
    """The model of that name, trained once."""
    model = MODELS[name]().fit(ratings())
    if name.endswith("with profiles"):  # of factors that leave nothing for features to say
        alone = fitted("DPMF, profiles alone").details_["profile"]
        model.details_ = {**model.details_, "profile": alone | {"weights": [1.1, 0.7, 0.4]}}
        if model.details_.pop("pairs", None):  # which are not next to a profile
            K = len(model.details_["communities"])
            model.item_factors_ = np.ascontiguousarray(model.item_factors_[:, :K])
    return model


def histories(n: int, seed: int = 1) -> list[dict[str, float]]:
    """Random histories of 0 to 25 items."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        items = rng.choice(ITEMS, rng.integers(0, 26), replace=False)
        found.append({f"i{j}": float(rng.integers(1, 6)) for j in items})
    return found
