"""§6 of the DPLMC paper: planted matrices of low rank, completed privately by DPLMC, DPALS and the house's steps.

One cell is one method on one planted matrix: m users, 100 items, rank r, |Ω| = r m log m known entries, noiseless or
with noise of variance 1. The error is the mean square of X̂ − X* over the entries that were not known. Parameters are
chosen from the paper's grids on another planted matrix (the validation set), once for every setting of method, ε,
start, noise, rank and accounting: for DPLMC with 5,000 users, for DPALS with the m of the trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded
from discreet.experiments.entry import Record, Settings
from discreet.experiments.sources import Sources
from discreet.models.dpals import DPALS
from discreet.models.dplmc import DPLMC
from discreet.models.dpmf import DPMF
from discreet.privacy.accounting import gdp

N_ITEMS = 100
DELTA = 1e-5
RANGE = (-20.0, 20.0)
_VALIDATION = 90_210  # a seed that no trial has
_PRICED_BY_SIGMAS = 1e4  # a budget that says nothing: the ε is what the noise costs
HOUSE = "DPMF, its defaults"

#: Where the search begins, and the values of each parameter in the order in which they are tried.
_GRIDS: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "DPLMC": (
        {"iterations": 20, "step_size": 1.0, "user_norm": 2.0, "item_norm": 2.0},
        {"step_size": (0.1, 0.3, 2.0), "iterations": (10, 40), "item_norm": (3.0,), "user_norm": (3.0,)},
    ),
    "DPALS": (
        {"iterations": 3, "max_items": 45, "regularization": 1.0, "initial_scale": 0.1},
        {
            "regularization": (0.01, 0.1, 10.0, 100.0),
            "initial_scale": (0.03, 0.3),
            "iterations": (1, 2, 5),
            "max_items": (30, 60),
        },
    ),
    HOUSE: ({}, {}),
}


def run(settings: Settings, sources: Sources) -> Record:
    """One trial: the error, the ε that the method is labelled with is the cell's, and what it truly costs."""
    X, known, ratings = planted(settings["users"], settings["rank"], settings["noise_variance"], settings["seed"])
    if settings["model"] == "predict 0":
        return {"error": float((X**2)[~known].mean())}
    key = {name: settings[name] for name in ("model", "epsilon", "start", "noise_variance", "rank", "accounting")}
    tune = settings["tune_users"]  # 0: as the search begins
    found = _tuned(**key, tune_users=tune) if tune else _GRIDS[settings["model"]][0]
    model = make(**key, users=len(X), chosen=found, seed=settings["seed"]).fit(ratings)
    shown = {"step_size": found.get("step_size", math.nan), "steps": found.get("iterations", math.nan)}
    return {"error": error(model, X, known, ratings), "true_epsilon": model.privacy_.epsilon, **shown}


@lru_cache(maxsize=2)
def planted(m: int, r: int, variance: float, seed: int) -> tuple[NDArray[Any], NDArray[np.bool_], Ratings]:
    """X*, which entries are known, and the ratings: rows of U* and V* have at most norm 2."""
    rng = np.random.default_rng([seed, m, r])
    U, V = rng.standard_normal((m, r)), rng.standard_normal((N_ITEMS, r))
    X = (2 / np.linalg.norm(U, axis=1).max()) * (2 / np.linalg.norm(V, axis=1).max()) * U @ V.T
    size = min(round(r * m * math.log(m)), m * N_ITEMS)
    known = np.zeros((m, N_ITEMS), bool)
    known.ravel()[rng.choice(m * N_ITEMS, size, replace=False)] = True
    user, item = np.nonzero(known)
    Y = X[user, item] + math.sqrt(variance) * rng.standard_normal(len(user))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=m))])
    names = np.arange(m), np.arange(N_ITEMS)
    ratings = Ratings.from_indices(indptr, item.astype(np.int32), Y.astype(np.float32), *names, catalogue=True)
    return X, known, ratings


def error(model: Any, X: NDArray[Any], known: NDArray[np.bool_], ratings: Ratings) -> float:
    """Mean square of X̂ − X* where nothing was known."""
    U, offset = model.fold(ratings.indptr, ratings.indices, ratings.values)
    found = U.astype(np.float64) @ model.item_factors_.T.astype(np.float64) + model.item_biases_ + offset[:, None]
    return float(((found - X) ** 2)[~known].mean())


def make(
    model: str,
    epsilon: float,
    start: str,
    noise_variance: float,
    rank: int,
    accounting: str,
    users: int,
    chosen: dict[str, Any],
    seed: int,
) -> Any:
    """The model of a cell. "equal": true (ε, δ), one user exchanged for another. "printed": as each paper says."""
    common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "rating_range": RANGE, "centring": 0.0}
    common |= {"noise": "seeded", "random_state": seed, "factors": rank}
    spectral = start == "private"
    first = 0.2 if epsilon <= 2 else 1.0
    if model == "DPALS":
        common |= {
            "user_norm": 2.0,
            "rating_bound": 4.0,
            "item_fraction": 1.0,
            "recount": False,
            "intercept": 0.0,
            "noise_ridge": 0.0,
            "user_exponent": 0.0,
            "item_exponent": 0.0,
            "sampling": "uniform",
            "initialization": "spectral" if spectral else "random",
            "initial_norm": 4.0,  # what a user contributes to the start is cut to the length that DPLMC cuts to
        }
        share = {"counts": 1e-3, "gram": 0.3, "sum": 0.7}
        if accounting == "printed":
            sigmas = _printed_sigmas(epsilon, first if spectral else 0.0, chosen)
            return DPALS.configured(**(common | {"epsilon": _PRICED_BY_SIGMAS}), sigmas=sigmas, **chosen)
        if spectral:
            part = (gdp.mu(first, DELTA) / gdp.mu(epsilon, DELTA)) ** 2
            share = {k: v * (1 - part) for k, v in share.items()} | {"initial": part}
        return DPALS.configured(**common, neighbouring="replace-one", shares=share, **chosen)
    common["neighbouring"] = "replace-one"
    if model == HOUSE:
        return DPMF(**{name: value for name, value in common.items() if name != "centring"}, goal="rating")
    per_user = min(rank * math.log(users), N_ITEMS)
    common |= {"ratings_per_item": per_user * users / N_ITEMS, "ratings_per_user": per_user}
    if spectral:
        common |= {"initialization": "spectral", "initial_epsilon": first}
    return DPLMC.configured(**common, constants="printed" if accounting == "printed" else "tight", **chosen)


def _printed_sigmas(epsilon: float, first: float, chosen: dict[str, Any]) -> dict[str, float]:
    """Theorem 1 of DPALS: one release per item and step, and ε = ρ + 2 √(ρ log 1/δ)."""
    rho = gdp.zcdp_mu(epsilon - first, DELTA) ** 2 / 2
    sigma = math.sqrt(chosen["max_items"] * chosen["iterations"] / (2 * rho))
    start = 1 / gdp.zcdp_mu(first, DELTA) if first else 1.0
    return {"counts": 200.0, "gram": sigma, "sum": sigma, "initial": start}


@cache
def _tuned(
    model: str, epsilon: float, start: str, noise_variance: float, rank: int, accounting: str, tune_users: int
) -> dict[str, Any]:
    """The best parameters on the validation set: one at a time, in the order of the grid."""
    X, known, ratings = planted(tune_users, rank, noise_variance, _VALIDATION)

    def score(chosen: dict[str, Any]) -> float:
        trial = make(model, epsilon, start, noise_variance, rank, accounting, tune_users, chosen, _VALIDATION)
        try:
            return error(trial.fit(ratings), X, known, ratings)
        except BudgetExceeded:
            return math.inf

    best = dict(_GRIDS[model][0])
    grid = _GRIDS[model][1]
    least = score(best)
    for parameter, values in grid.items():
        for trial in _others(best, parameter, values):
            if (found := score(trial)) < least:
                best = trial
                least = found
    return best


def _others(best: dict[str, Any], parameter: str, values: tuple[Any, ...]) -> Iterable[dict[str, Any]]:
    return [best | {parameter: value} for value in values if value != best[parameter]]
