"""§6 of the DPLMC paper: planted matrices of low rank, completed privately by DPLMC, DPALS and
DPMF.

One cell is one method in one setting: m users, 100 items, rank r, |Ω| = r m log m known entries,
noiseless or with noise of variance 1. The error is the mean square of X̂ − X* over the entries that
were not known. Parameters are searched for on other planted matrices (`search`), once for every
setting of method, ε, start, noise, rank and accounting; then come the trials, each on a matrix of
its own. DPLMC is tuned with 5,000 users, because its parameters are in units that do not depend on
their number, and DPALS with as many as the trials have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded
from discreet.models.dpals import DPALS
from discreet.models.dplmc import DPLMC
from discreet.models.dpmf import DPMF
from discreet.privacy.accounting import gdp
from research.entry import Record, Settings
from research.search import Candidate, Found, Logarithmic, Rounds, Values, search_in
from research.sources import Sources

N_ITEMS = 100
DELTA = 1e-5
RATING_RANGE = (-20.0, 20.0)
_VALIDATION = 90_210  # a seed that no trial has
_PRICED_BY_SIGMAS = 1e4  # a budget that says nothing: the ε is what the noise costs
HOUSE = "DPMF, by default"

#: What is searched: the paper's ranges. Where it is silent, or its range ends at the best value,
#: they are wider: η above 0.3, λ and the scale of DPALS' start. A cut of 2 is as long as the
#: longest row, so it is drawn most often.
RANGES: dict[str, dict[str, Values | Logarithmic]] = {
    "DPLMC": {
        "step_size": Logarithmic(0.05, 2.0),
        "iterations": tuple(range(10, 65, 5)),
        "user_norm": (2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        "item_norm": (2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    },
    "DPALS": {
        "regularization": Logarithmic(0.01, 1000.0),
        "iterations": (1, 2, 3, 4, 5),
        "max_items": tuple(range(30, 61)),
        "initial_scale": Logarithmic(0.03, 1.0),
    },
    HOUSE: {},
}


def run(settings: Settings, sources: Sources) -> list[Record]:
    """Search, then so many ``trials``: each has its error and what it truly costs; the ε of the
    label is the cell's.

    Settings: ``model``, ``users``, ``rank``, ``noise_variance``, ``epsilon``, ``start``,
    ``accounting``, ``trials``; ``tune_users``, how many users the validation matrices have;
    ``search``, the fields of `Rounds`.
    """
    seeds = range(settings["trials"])
    size = (settings["users"], settings["rank"], settings["noise_variance"])
    if settings["model"] == "predict 0":
        return [{"seed": seed, "error": nothing(*planted(*size, seed)[:2])} for seed in seeds]
    key = {
        name: settings[name]
        for name in ("model", "epsilon", "start", "noise_variance", "rank", "accounting")
    }
    found = _tuned(
        **key,
        users=settings.get("tune_users", settings["users"]),
        rounds=_rounds(settings["search"]),
    )
    records: list[Record] = []
    for seed in seeds:
        X, known, ratings = planted(*size, seed)
        model = make(**key, users=len(X), chosen=found.best, seed=seed).fit(ratings)
        records.append(
            {
                "seed": seed,
                "error": error(model, X, known, ratings),
                "true_epsilon": model.privacy_.epsilon,
            }
        )
    chosen = {
        "steps": found.best.get("iterations"),
        "validation_error": found.score,
        "trainings": found.trainings,
    }
    return [record | chosen | {"chosen": found.best} for record in records]


def nothing(X: NDArray[Any], known: NDArray[np.bool_]) -> float:
    """The error of predicting 0."""
    return float((X**2)[~known].mean())


@lru_cache(maxsize=5)
def planted(
    m: int, r: int, variance: float, seed: int, items: int = N_ITEMS
) -> tuple[NDArray[Any], NDArray[np.bool_], Ratings]:
    """X*, which entries are known, and the ratings: rows of U* and V* have at most norm 2."""
    rng = np.random.default_rng([seed, m, r])
    U, V = rng.standard_normal((m, r)), rng.standard_normal((items, r))
    X = (2 / np.linalg.norm(U, axis=1).max()) * (2 / np.linalg.norm(V, axis=1).max()) * U @ V.T
    size = min(round(r * m * math.log(m)), m * items)
    known = np.zeros((m, items), bool)
    known.ravel()[rng.choice(m * items, size, replace=False)] = True
    user, item = np.nonzero(known)
    Y = X[user, item] + math.sqrt(variance) * rng.standard_normal(len(user))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=m))])
    names = np.arange(m), np.arange(items)
    ratings = Ratings.from_indices(
        indptr, item.astype(np.int32), Y.astype(np.float32), *names, catalog=True
    )
    return X, known, ratings


def error(model: Any, X: NDArray[Any], known: NDArray[np.bool_], ratings: Ratings) -> float:
    """Mean square of X̂ − X* where nothing was known."""
    U, offset = model.fold(ratings.indptr, ratings.indices, ratings.values)
    found = (
        U.astype(np.float64) @ model.item_factors_.T.astype(np.float64)
        + model.item_biases_
        + offset[:, None]
    )
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
    items: int = N_ITEMS,
) -> Any:
    """The model of a cell. "equal": true (ε, δ), one user exchanged for another. "printed": as
    each paper says.
    """
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "rating_range": RATING_RANGE,
        "centering": 0.0,
    }
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
            # what a user contributes to the start is cut to the length that DPLMC cuts to
            "initial_norm": 4.0,
        }
        share = {"counts": 1e-3, "gram": 0.3, "sum": 0.7}
        if accounting == "printed":
            sigmas = _printed_sigmas(epsilon, first if spectral else 0.0, chosen)
            common |= {"epsilon": _PRICED_BY_SIGMAS, "neighboring": "replace-one"}
            return DPALS.configure(**common, sigmas=sigmas, **chosen)
        if spectral:
            part = (gdp.mu(first, DELTA) / gdp.mu(epsilon, DELTA)) ** 2
            share = {k: v * (1 - part) for k, v in share.items()} | {"initial": part}
        return DPALS.configure(**common, neighboring="replace-one", shares=share, **chosen)
    common["neighboring"] = "replace-one"
    if model == HOUSE:
        own = {
            name: value for name, value in common.items() if name not in ("centering", "factors")
        }
        return DPMF(**own, goal="rating")
    per_user = min(rank * math.log(users), items)
    common |= {"ratings_per_item": per_user * users / items, "ratings_per_user": per_user}
    if spectral:
        common |= {"initialization": "spectral", "initial_epsilon": first}
    return DPLMC.configure(
        **common, constants="printed" if accounting == "printed" else "tight", **chosen
    )


def _printed_sigmas(epsilon: float, first: float, chosen: dict[str, Any]) -> dict[str, float]:
    """Theorem 1 of DPALS: one release per item and step, and ε = ρ + 2 √(ρ log 1/δ).

    The theorem is for a user who is added or removed. The promise of these entries is for one who
    is exchanged, which moves sums by 2 and products with themselves by √2 times as much: in these
    units the same noise is so much smaller.
    """
    rho = gdp.zcdp_mu(epsilon - first, DELTA) ** 2 / 2
    sigma = math.sqrt(chosen["max_items"] * chosen["iterations"] / (2 * rho))
    start = 1 / gdp.zcdp_mu(first, DELTA) if first else 1.0
    products = {"counts": 200.0, "gram": sigma, "initial": start}
    return {name: value / math.sqrt(2) for name, value in products.items()} | {"sum": sigma / 2}


@cache
def _tuned(
    model: str,
    epsilon: float,
    start: str,
    noise_variance: float,
    rank: int,
    accounting: str,
    users: int,
    rounds: Rounds,
) -> Found:
    """The best parameters on validation matrices that no trial has."""

    def score(chosen: Candidate, at: int) -> float:
        X, known, ratings = planted(users, rank, noise_variance, _VALIDATION + at)
        trial = make(
            model, epsilon, start, noise_variance, rank, accounting, users, chosen, _VALIDATION + at
        )
        try:
            return error(trial.fit(ratings), X, known, ratings)
        except BudgetExceeded:
            return math.inf

    return search_in(RANGES[model], score, rounds) if RANGES[model] else Found({}, math.nan, 0)


def _rounds(given: Mapping[str, Any]) -> Rounds:
    return Rounds(
        given["candidates"], tuple(given["kept"]), tuple(given["sets"]), given.get("refined", 0)
    )
