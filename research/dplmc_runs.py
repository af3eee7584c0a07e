"""§6 of the DPLMC paper: planted matrices of low rank, completed privately by DPLMC, DPALS and
DPMF.

One cell is one method in one setting: m users, 100 items, rank r, |Ω| = r m log m known entries,
noiseless or with noise of variance 1. The error is the mean square of X̂ − X* over the entries that
were not known. Parameters are searched for on other planted matrices (`search`), once for every
setting of method, ε, start, noise, rank and accounting, with as many users as the trials have; then
come the trials, each on a matrix of its own.

DPLMC has two read-outs, each with parameters of its own from the same candidates: "Uᵀ", what
Algorithm 1 returns, the users' vectors after its last step; and "refit", what this library's model
predicts with, every user anew from 0 by plain gradient steps on the final item factors. Users'
vectors stay sealed in a training. Here they are computed again from the planted ratings, by the
same steps (`replay`).

Starts: "random" and "private" (Algorithm 2 with the balanced split of erratum 11); "private,
printed split" is Algorithm 2 as printed, and with "random, users too" U⁰ is drawn at random, where
"random" takes one gradient step from 0. "DPMF" starts from the item factors of a DPMF that has a
part of the budget (`pair_start`). With ``skew`` s, item j is known with a weight of (j + 1)^−s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded
from discreet.models.algorithm import Algorithm, Learned
from discreet.models.dpals import DPALS
from discreet.models.dplmc import DPLMC
from discreet.models.dpmf import DPMF
from discreet.models.dpsvd import DPSVD
from discreet.models.frank_wolfe import DPFrankWolfe
from discreet.privacy.accounting import gdp
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.base import Block, Public
from discreet.privacy.users.sealed_users import Users, sealed_block
from discreet.privacy.users.steps import StartFrom, UserStep, scale_vectors
from research.entry import Record, Settings
from research.pair_start import PAIRS, PairStarted
from research.search import Candidate, Found, Logarithmic, Rounds, Values, search_in
from research.sources import Sources

N_ITEMS = 100
DELTA = 1e-5
RATING_RANGE = (-20.0, 20.0)
_VALIDATION = 90_210  # a seed that no trial has
_PRICED_BY_SIGMAS = 1e4  # a budget that says nothing: the ε is what the noise costs
HOUSE = "DPMF, by default"
OUTPUT = "Uᵀ"
REFIT = "refit"
PRINTED_SPLIT = "private, printed split"
RANDOM_USERS = "random, users too"

#: What is searched: wider than the paper's ranges where it is silent or the best value is at their
#: end. These are η above 0.3 and α₁ below 2 for DPLMC, and for DPALS λ, the scale of its start, and
#: Γ_u and Γ_M below the 2 and 4 that the paper sets.
RANGES: dict[str, dict[str, Values | Logarithmic]] = {
    "DPLMC": {
        "step_size": Logarithmic(0.05, 2.0),
        "iterations": tuple(range(10, 65, 5)),
        "user_norm": (0.7, 1.0, 1.4, 2.0, 2.0, 2.0, 3.0, 4.0),
        "item_norm": (2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    },
    "DPALS": {
        "regularization": Logarithmic(0.01, 1000.0),
        "iterations": (1, 2, 3, 4, 5),
        "max_items": tuple(range(30, 61)),
        "initial_scale": Logarithmic(0.03, 1.0),
        "user_norm": (1.0, 1.4, 2.0, 2.0),
        "rating_bound": (1.5, 2.0, 3.0, 4.0),
    },
    "DPFW": {
        "factors": (3, 5, 10, 20, 40),
        "spread": Logarithmic(0.3, 3.0),
        "row_norm": (2.0, 3.0, 4.0, 6.0),
        "residual_norm": (1.0, 2.0, 3.0, 4.0),
        "steps": ("constant", "decreasing"),
    },
    "DPSVD": {
        "regularization": Logarithmic(0.003, 3.0),
        "residual_bound": (0.3, 0.5, 0.7, 1.0, 1.5),
        "pair_prior": (0.0, 1.0, 2.0),
        "weighted": (True, False),
        "centering": ("items", "user"),
    },
    HOUSE: {},
}
#: Parts of the budget of DPMF as a start.
PAIR_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6)
#: The ranges that the paper prints, with those of λ and the scale of DPALS' start, which it does
#: not. A cut of 2 is as long as the longest row, so it is drawn most often.
PAPER_RANGES = RANGES | {
    "DPLMC": RANGES["DPLMC"]
    | {
        "step_size": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        "user_norm": (2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    },
    "DPALS": RANGES["DPALS"] | {"user_norm": (2.0,), "rating_bound": (4.0,)},
}


def run(settings: Settings, sources: Sources) -> list[Record]:
    """Search, then so many ``trials``: each has its error and what it truly costs; the ε of the
    label is the cell's.

    Settings: ``model``, ``users``, ``rank``, ``noise_variance``, ``epsilon``, ``start``,
    ``accounting``, ``trials``; ``tune_users``, how many users the validation matrices have;
    ``search``, the fields of `Rounds`; ``known_from``, a rank whose settings are tried as well;
    ``ranges``, "paper" for `PAPER_RANGES`; ``skew``.
    """
    seeds = range(settings["trials"])
    plant = partial(
        planted,
        settings["users"],
        settings["rank"],
        settings["noise_variance"],
        skew=settings.get("skew", 0.0),
    )
    if settings["model"] == "predict 0":
        return [{"seed": seed, "error": nothing(*plant(seed)[:2])} for seed in seeds]
    key = {
        name: settings[name]
        for name in ("model", "epsilon", "start", "noise_variance", "rank", "accounting")
    }
    asked = key | {
        "users": settings.get("tune_users", settings["users"]),
        "rounds": _rounds(settings["search"]),
        "printed_ranges": settings.get("ranges") == "paper",
        "skew": settings.get("skew", 0.0),
    }
    other = settings.get("known_from", settings["rank"])
    if other != settings["rank"]:
        asked["known"] = tuple(
            (read_out, tuple(found.best.items()))
            for read_out, found in tune(**(asked | {"rank": other})).items()
        )
    tuned = tune(**asked)
    return [
        record
        for read_out, found in tuned.items()
        for record in _trials(key, plant, seeds, read_out, found)
    ]


def _trials(
    key: Mapping[str, Any],
    plant: Callable[[int], Any],
    seeds: range,
    read_out: str,
    found: Found,
) -> list[Record]:
    """Return one record for each seed, with what was chosen for that read-out."""
    chosen: Record = {
        "steps": found.best.get("iterations"),
        "validation_error": found.score,
        "trainings": found.trainings,
        "chosen": found.best,
    }
    if read_out:
        chosen["model"] = f"{key['model']}, {read_out}"
    records: list[Record] = []
    for seed in seeds:
        X, known, ratings = plant(seed)
        model = make(**key, users=len(X), chosen=found.best, seed=seed).fit(ratings)
        measured = {
            "seed": seed,
            "error": error(model, X, known, ratings, read_out),
            "true_epsilon": model.privacy_.epsilon,
        }
        records.append(measured | chosen)
    return records


def nothing(X: NDArray[Any], known: NDArray[np.bool_]) -> float:
    """The error of predicting 0."""
    return float((X**2)[~known].mean())


@lru_cache(maxsize=5)
def planted(
    m: int,
    r: int,
    variance: float,
    seed: int,
    items: int = N_ITEMS,
    per_user: float = 0.0,
    skew: float = 0.0,
) -> tuple[NDArray[Any], NDArray[np.bool_], Ratings]:
    """X*, which entries are known, and the ratings: rows of U* and V* have at most norm 2.

    |Ω| is r m log m, or `per_user` times m.
    """
    rng = np.random.default_rng([seed, m, r])
    U, V = rng.standard_normal((m, r)), rng.standard_normal((items, r))
    X = (2 / np.linalg.norm(U, axis=1).max()) * (2 / np.linalg.norm(V, axis=1).max()) * U @ V.T
    size = min(round(per_user * m if per_user else r * m * math.log(m)), m * items)
    known = np.zeros((m, items), bool)
    if skew:  # without replacement, by weights: the largest of log w + Gumbel noise
        keys = rng.gumbel(size=(m, items)) - skew * np.log(np.arange(1, items + 1))
        known.ravel()[np.argpartition(keys, -size, axis=None)[-size:]] = True
    else:
        known.ravel()[rng.choice(m * items, size, replace=False)] = True
    user, item = np.nonzero(known)
    Y = X[user, item] + math.sqrt(variance) * rng.standard_normal(len(user))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=m))])
    names = np.arange(m), np.arange(items)
    ratings = Ratings.from_indices(
        indptr, item.astype(np.int32), Y.astype(np.float32), *names, catalog=True
    )
    return X, known, ratings


def error(
    model: Any, X: NDArray[Any], known: NDArray[np.bool_], ratings: Ratings, read_out: str = ""
) -> float:
    """Mean square of X̂ − X* where nothing was known, for Algorithm 1's output or the fold-in."""
    if read_out == OUTPUT:
        found = model.replay(ratings) @ model.item_factors_.T.astype(np.float64)
    else:
        U, offset = model.fold(ratings.indptr, ratings.indices, ratings.values)
        found = (
            U.astype(np.float64) @ model.item_factors_.T.astype(np.float64)
            + model.item_biases_
            + offset[:, None]
        )
    return float(((found - X) ** 2)[~known].mean())


class RecordedDPLMC(DPLMC):
    """DPLMC that keeps the public steps of its training, so that Uᵀ can be computed from ratings.

    With `random_users`, U⁰ is drawn at random instead of one gradient step from 0.
    """

    random_users = False

    def _learn(self, algorithm: Algorithm, users: Users, session: Session, **given: Any) -> Learned:
        recorder = StepRecorder(users, given["seed"] if self.random_users else None)
        learned = algorithm.learn(recorder, session, **given)  # type: ignore[arg-type]
        self.steps_ = recorder.steps
        return learned

    def replay(self, ratings: Ratings) -> NDArray[np.float64]:
        """Return Uᵀ (n, r): every user's vector after the last step of the training."""
        bounds = self.algorithm_.bounds()
        public = Public(bounds, ratings.n_items)
        keys = np.zeros(ratings.n_users, np.uint64)
        block = sealed_block(ratings.indptr, ratings.indices, ratings.values, keys, bounds)
        for step in self.steps_:
            known = step.check(public)
            block = step.run(block, public)
            public = known
        return block["vectors"].astype(np.float64)


class StepRecorder:
    """Users whose steps are noted down; with a seed, they start from random vectors."""

    def __init__(self, users: Users, seed: int | None) -> None:
        self.users = users
        self.seed = seed
        self.steps: list[UserStep] = []

    def apply(self, step: UserStep) -> None:
        if isinstance(step, StartFrom) and self.seed is not None:
            step = StartRandom(step.W.shape[1], self.seed)
        self.steps.append(step)
        self.users.apply(step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.users, name)


@dataclass(frozen=True)
class StartRandom(UserStep):
    """Draw every user's vector from a normal distribution with standard deviation 0.3."""

    rank: int
    seed: int

    what = "the users' vectors"

    def check(self, public: Public) -> Public:
        return replace(public, rank=self.rank, has_vectors=True, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        rng = np.random.default_rng([self.seed, 31])
        U = 0.3 * rng.standard_normal((block.n, self.rank)).astype(np.float32)
        return block.without("residual", "own").with_state(vectors=scale_vectors(U, public))


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
    per_user: float = 0.0,
) -> Any:
    """The model of a cell. "equal": true (ε, δ), one user exchanged for another. "printed": as
    each paper says.
    """
    if start == PAIRS:
        share = chosen["pair_share"]
        rest = {name: value for name, value in chosen.items() if name != "pair_share"}
        mu = gdp.mu(epsilon, DELTA)
        parts = [gdp.epsilon(math.sqrt(part) * mu, DELTA) for part in (share, 1 - share)]
        build = partial(
            make,
            start="random",
            noise_variance=noise_variance,
            rank=rank,
            accounting=accounting,
            users=users,
            seed=seed,
            items=items,
            per_user=per_user,
        )
        first = build(model=HOUSE, epsilon=parts[0], chosen={})
        return PairStarted(first, build(model=model, epsilon=parts[1], chosen=rest), rank)
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "rating_range": RATING_RANGE,
        "centering": 0.0,
    }
    common |= {"noise": "seeded", "random_state": seed, "factors": rank}
    spectral = start in ("private", PRINTED_SPLIT)
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
            return DPALS.configure(**(common | {"sigmas": sigmas} | chosen))
        if spectral:
            part = (gdp.mu(first, DELTA) / gdp.mu(epsilon, DELTA)) ** 2
            share = {k: v * (1 - part) for k, v in share.items()} | {"initial": part}
        common |= {"neighboring": "replace-one", "shares": share}
        return DPALS.configure(**(common | chosen))
    common["neighboring"] = "replace-one"
    if model == HOUSE:
        own = {
            name: value for name, value in common.items() if name not in ("centering", "factors")
        }
        return DPMF(**own, goal="rating")
    per_user = per_user or min(rank * math.log(users), items)
    if model in ("DPFW", "DPSVD"):
        return _baseline(model, common | {"max_items": items, "item_fraction": 1.0} | chosen)
    common |= {"ratings_per_item": per_user * users / items, "ratings_per_user": per_user}
    if spectral:
        common |= {"initialization": "spectral", "initial_epsilon": first}
        common["balanced"] = start != PRINTED_SPLIT
    found = RecordedDPLMC.configure(
        **common, constants="printed" if accounting == "printed" else "tight", **chosen
    )
    found.random_users = start == RANDOM_USERS
    return found


def _baseline(model: str, given: dict[str, Any]) -> Any:
    """Private Frank–Wolfe as its paper reads users out, or the private covariance."""
    if model == "DPFW":
        return DPFrankWolfe.configure(**given, folding="steps")
    # on planted matrices items have no means to speak of
    shares = {"sum": 0.005, "count": 0.005, "item sums": 0.02, "item counts": 0.02}
    shares |= {"covariance": 0.7, "pairs": 0.25} if given["weighted"] else {"covariance": 0.95}
    return DPSVD.configure(**given, shares=shares)


def _printed_sigmas(epsilon: float, first: float, chosen: dict[str, Any]) -> dict[str, float]:
    """Theorem 1 of DPALS: σ = √(2 k T (ε + ln 1/δ)) / ε, for one release per item and step.

    The theorem is for a user who is added or removed. The promise of these entries is for one who
    is exchanged, which moves sums by 2 and products with themselves by √2 times as much: in these
    units the same noise is so much smaller.
    """

    def sigma_of_one(part: float) -> float:
        return math.sqrt(2 * (part + math.log(1 / DELTA))) / part

    sigma = math.sqrt(chosen["max_items"] * chosen["iterations"]) * sigma_of_one(epsilon - first)
    start = sigma_of_one(first) if first else 1.0
    products = {"counts": 200.0, "gram": sigma, "initial": start}
    return {name: value / math.sqrt(2) for name, value in products.items()} | {"sum": sigma / 2}


@cache
def tune(
    model: str,
    epsilon: float,
    start: str,
    noise_variance: float,
    rank: int,
    accounting: str,
    users: int,
    rounds: Rounds,
    printed_ranges: bool = False,
    skew: float = 0.0,
    items: int = N_ITEMS,
    per_user: float = 0.0,
    fixed: tuple[tuple[str, Values], ...] = (),
    known: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = (),
) -> dict[str, Found]:
    """The best parameters for each read-out on validation matrices that no trial has.

    `fixed` replaces ranges by name; `known` are settings for a read-out that are tried as well.
    """
    read_outs = (OUTPUT, REFIT) if model == "DPLMC" else ("",)
    ranges = (PAPER_RANGES if printed_ranges else RANGES)[model] | dict(fixed)
    if start == PAIRS:
        ranges = ranges | {"pair_share": PAIR_SHARES}
    if not ranges:
        return {"": Found({}, math.nan, 0)}
    measured: dict[tuple[str, int], dict[str, float]] = {}
    key = (model, epsilon, start, noise_variance, rank, accounting, users)

    def measure(chosen: Candidate, at: int) -> dict[str, float]:
        """Train once for all read-outs."""
        seed = _VALIDATION + at
        X, known, ratings = planted(users, rank, noise_variance, seed, items, per_user, skew)
        trial = make(*key, chosen, seed, items, per_user)
        try:
            trial.fit(ratings)
        except BudgetExceeded:
            return dict.fromkeys(read_outs, math.inf)
        return {name: error(trial, X, known, ratings, name) for name in read_outs}

    def score(read_out: str, chosen: Candidate, at: int) -> float:
        name = (str(chosen), at)
        if name not in measured:
            measured[name] = measure(chosen, at)
        return measured[name][read_out]

    return {
        name: search_in(
            ranges,
            partial(score, name),
            rounds,
            [dict(settings) for read_out, settings in known if read_out == name],
        )
        for name in read_outs
    }


def _rounds(given: Mapping[str, Any]) -> Rounds:
    return Rounds(
        given["candidates"], tuple(given["kept"]), tuple(given["sets"]), given.get("refined", 0)
    )
