"""The Huber paper's Tables 1 and 3 to 7 as printed: no privacy, only its noise.

Tables 3, 6 and 7 are millions of small least-squares problems. `printed` is Algorithms 1 to 3
without the ledger; a test holds it against ``HuberALSAsPrinted(algorithm=HuberAsPrinted())``, which
Tables 4 and 5 use.

What the paper leaves open, and the reading that came closest to its numbers: matrices of 100 users
and 500 items whose factors are uniform on [0, 1] (it gives neither; docs/algorithms.md says what
was tried); item factors start from a standard normal; Z = U Vᵀ takes the users from before the
last item step, as Algorithm 1 says; Tables 4 and 5 have noise of variance 1 and the RMSE of what is
not visible; SweetRS keeps its zeros ("never tried") as ratings, because only with them are "40 %"
of its entries there.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.datasets import load_dataset
from discreet.data.ratings import Ratings
from discreet.data.splits import random_ratings
from discreet.kernels import solve_rows
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace, Mechanism
from discreet.privacy.users.steps import huber_weights
from research import papers
from research.entry import Record, Settings
from research.huber_as_printed import HuberALSAsPrinted, HuberAsPrinted
from research.sources import Sources
from research.synthetic import huber_task

Floats = NDArray[np.float64]
ITEMS = "items"


def table_1(settings: Settings, sources: Sources) -> Record:
    """One cell of Table 1: the ε at which noise of that variance hides a sensitivity of 5, as
    printed and right.
    """
    variance = float(settings["variance"])
    kind = settings["mechanism"]
    right = papers.huber_table_1(variance)[kind]
    printed = (
        papers.gaussian_classic(variance, 5.0, math.log10(1.25e5)) if kind == "gaussian" else right
    )
    exact = of_variance(kind, variance).epsilon(5.0, 1e-5)
    return {"as printed": printed, "natural logarithm": right, "exact at 1e-5": exact}


def of_variance(kind: str, variance: float) -> Mechanism:
    """The paper's noise of that variance; α = 3 stands for Huber noise of variance 1, which no
    α has.
    """
    if kind == "gaussian":
        return Gaussian(math.sqrt(variance))
    if kind == "laplace":
        return Laplace(math.sqrt(variance / 2))
    return Huber.with_variance(variance) if variance > 1 else Huber(3.0, math.sqrt(variance))


# ------------------------------------------------------------------ Tables 3, 6 and 7


def synthetic(settings: Settings, sources: Sources) -> Record:
    """RMSE over all entries of one trial; matrices are shared, starts and noise are not."""
    rank, n, m, seed = settings["rank"], settings["users"], settings["items"], settings["seed"]
    task = huber_task(n, m, rank, observed=settings["observed"], seed=seed)
    kind = settings["mechanism"]
    variance = float(settings["variance"])
    noise = None if kind == "vanilla" else of_variance(kind, variance)
    inner = settings["inner"] if settings["solver"] == "irls" else 0
    row = (rank, variance, settings["observed"], kind, settings["solver"], settings.get("where"))
    rng = np.random.default_rng([seed, zlib.crc32(str(row).encode())])  # of its own in every row
    options: dict[str, Any] = {
        "steps": settings["steps"],
        "inner": inner,
        "alpha": of_alpha(variance),
    }
    start = time.process_time()
    U, V = printed(task.ratings, rank, noise, rng, where=settings.get("where", ITEMS), **options)
    seconds = time.process_time() - start
    return {"rmse": math.sqrt(task.mean_squared_error(U, V)), "seconds": seconds}


def differences(settings: Settings, sources: Sources) -> list[Record]:
    """Errors with Laplace and Huber noise compared with Gaussian noise of equal variance, in
    percent, with 95 % intervals over matrices.

    Each matrix is solved with all three; starts and noise are drawn independently for every rank,
    variance, matrix and mechanism.
    """
    rank, n, m = settings["rank"], settings["users"], settings["items"]
    variance = float(settings["variance"])
    errors: dict[str, list[float]] = {kind: [] for kind in ("gaussian", "laplace", "huber")}
    for matrix in range(settings["matrices"]):
        task = huber_task(n, m, rank, observed=settings["observed"], seed=500 + matrix)
        for at, kind in enumerate(errors):
            rng = np.random.default_rng([matrix, rank, settings["variance"], at, 83])
            noise = of_variance(kind, variance)
            U, V = printed(task.ratings, rank, noise, rng, steps=settings["steps"])
            errors[kind].append(math.sqrt(task.mean_squared_error(U, V)))
    return [
        {"mechanism": kind} | _compared(errors[kind], errors["gaussian"])
        for kind in ("laplace", "huber")
    ]


def _compared(errors: list[float], base: list[float]) -> Record:
    """Return the mean difference in percent, and its interval by Student's t."""
    from scipy import stats

    change = 100 * (np.array(errors) / np.array(base) - 1)
    reach = float(stats.t.ppf(0.975, len(change) - 1) * stats.sem(change))
    mean = float(change.mean())
    return {"difference": mean, "low": mean - reach, "high": mean + reach}


def printed(
    ratings: Ratings,
    rank: int,
    noise: Mechanism | None,
    rng: np.random.Generator,
    *,
    steps: int = 50,
    inner: int = 0,
    alpha: float = 3.0,
    ridge: float = 0.5,
    V: Floats | None = None,
    where: str = ITEMS,
) -> tuple[Floats, Floats]:
    """Algorithm 1 (``inner=0``) or 2 and 3: U and V of the last step.

    Parameters
    ----------
    noise : Mechanism, optional
        Of every entry t of every right-hand side.
    inner : int
        K of R-IRLS.
    V : (m, rank), optional
        Where to start.
    where : {"items", "both sides", "output"}
        On the right-hand sides of the items, as printed; on those of users as well, which the paper
        speaks of and does not do; or on the item factors themselves, with which it says that
        nothing converges.
    """
    n, m = ratings.n_users, ratings.n_items
    turned = ratings.to_csr().T.tocsr()
    values = ratings.values.astype(float)
    users = _HalfStep(ratings.indptr, ratings.indices, values, rank, n, m, ridge)
    items = _HalfStep(turned.indptr, turned.indices, turned.data, rank, m, n, ridge)
    item = np.repeat(np.arange(m), np.diff(turned.indptr))
    V = rng.standard_normal((m, rank)) if V is None else V
    for _ in range(steps):
        if where == "both sides":
            U = users.solve(V, noise, rng)
        else:
            U = solve_rows(ratings.indptr, ratings.indices, values, V, np.full(n, ridge))
        if inner:
            V = rng.standard_normal((m, rank))
        for _ in range(max(inner, 1)):
            weights = (
                huber_weights(item, turned.indices, turned.data, U, V, alpha) if inner else None
            )
            V = items.solve(U, None if where == "output" else noise, rng, weights)
            if where == "output" and noise is not None:
                V = V + noise.sample(V.size, rng).reshape(V.shape)
    return U, V


class _HalfStep:
    """All ridge regressions of one side, with noise on their right-hand sides.

    A right-hand side b + t with the ridge λ is that of r more observations: of t_k/√λ by √λ e_k,
    for each k. So one call of the least-squares kernel does the whole half-step.
    """

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        values: Floats,
        rank: int,
        rows: int,
        columns: int,
        ridge: float,
    ) -> None:
        self.rank = rank
        self.rows = rows
        self.root = math.sqrt(ridge)
        self.indptr = indptr + rank * np.arange(rows + 1, dtype=np.int64)
        self.extra = (self.indptr[1:, None] - rank + np.arange(rank)).ravel()
        self.real = np.setdiff1d(np.arange(self.indptr[-1]), self.extra)
        self.indices = np.empty(self.indptr[-1], np.int32)
        self.indices[self.real] = indices
        self.indices[self.extra] = np.tile(columns + np.arange(rank), rows)
        self.values = np.zeros(self.indptr[-1])
        self.values[self.real] = values

    def solve(
        self,
        other: Floats,
        noise: Mechanism | None,
        rng: np.random.Generator,
        weights: Floats | None = None,
    ) -> Floats:
        self.values[self.extra] = 0.0
        if noise is not None:
            self.values[self.extra] = noise.sample(self.rows * self.rank, rng) / self.root
        known = np.vstack([other, self.root * np.eye(self.rank)])
        every = np.ones(len(self.values))
        if weights is not None:
            every[self.real] = weights
        found: Floats = solve_rows(
            self.indptr, self.indices, self.values, known, np.zeros(self.rows), None, every
        )
        return found


# ------------------------------------------------------------------ Tables 4 and 5


def real(settings: Settings, sources: Sources) -> Record:
    """RMSE of the ratings that are not visible; ``visible`` is a fraction of the whole matrix."""
    data = sources.ratings(settings["data"])
    if settings.get("zeros") == "kept" and settings["data"] == "sweetrs":
        folder = sources.paths.get("sweetrs") or Path(
            os.environ.get("DISCREET_DATA", ""), "sweetrs"
        )
        data = load_dataset("sweetrs", path=folder, drop_zeros=False, download=False)
    part = settings["visible"] * data.n_users * data.n_items / data.n_ratings
    split = random_ratings(data, (part, 1 - part), seed=settings["seed"])
    low = float(data.values.min())
    high = float(data.values.max())
    printed = HuberAsPrinted(
        factors=settings["rank"],
        mechanism=settings["mechanism"],
        solver=settings["solver"],
        variance=settings["variance"],
        iterations=settings["steps"],
        inner_iterations=settings["inner"],
    )
    model = HuberALSAsPrinted(
        epsilon=1.0,  # of no account: the statement says that ε is infinite
        rating_range=(low, high),
        noise="seeded",
        random_state=settings["seed"],
        algorithm=printed,  # type: ignore[arg-type]
    ).fit(split.train)
    return {"rmse": held_out_rmse(model, split.train, split.test.target)}


def of_alpha(variance: float) -> float:
    return Huber.with_variance(variance).alpha if variance > 1 else 3.0


def held_out_rmse(model: Any, train: Ratings, held: Ratings) -> float:
    """As the paper: U from before the last item step, and no cut to the range."""
    V = np.asarray(model.details_["previous_factors"])
    U = solve_rows(
        train.indptr, train.indices, train.values.astype(V.dtype), V, np.full(train.n_users, 0.5)
    )
    # the same users, in the same order
    row = np.repeat(np.arange(held.n_users), np.diff(held.indptr))
    predicted = np.einsum("nr,nr->n", U[row], model.item_factors_[held.indices])
    return float(np.sqrt(np.mean((predicted - held.values) ** 2)))
