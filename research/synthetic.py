"""The synthetic tasks of the three papers: a low-rank matrix that is known, of which some entries
are observed.

===========  =====================  ================================================================
task         paper                  the matrix, and what is seen of it
===========  =====================  ================================================================
dpals_task DPALS, 6.1 U*, V* random orthonormal, scaled so that the observations have standard
deviation
                                    1; each entry seen with probability p = 20·ln(n)/m
dplmc_task DPLMC, 6 U*, V* Gaussian, rows scaled to norms of at most 2; r·n·ln(n) entries seen, with
                                    Gaussian noise of variance 1 or without
huber_task   Huber mechanism, 4     U*, V* uniform on [0, 1]; a fraction of the entries seen exactly
===========  =====================  ================================================================

Here n is always the number of users and m the number of items (DPLMC calls them m and n). The
papers leave some things open; what was chosen is said at each function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.data.ratings import Ratings
from discreet.data.splits import Holdout, Split, random_ratings
from discreet.errors import ConfigError

Floats = NDArray[np.float64]

DPALS_USERS = (5_000, 10_000, 20_000, 50_000)
DPLMC_USERS = (5_000, 10_000, 15_000)
DPLMC_RANKS = (3, 5, 7)
HUBER_FRACTIONS = (0.05, 0.10, 0.15)
HUBER_RANKS = (5, 10, 20)


@dataclass(frozen=True)
class LowRankTask:
    """A matrix X* = U* V*ᵀ, observations of it, and the split of the paper.

    Attributes
    ----------
    name : str
    seed : int
    ratings : Ratings
        All observations that training, or training and tuning, may see.
    split : Split
    users : (n_users, rank) float64
        U*.
    items : (n_items, rank) float64
        V*.
    """

    name: str
    seed: int
    ratings: Ratings
    split: Split
    users: Floats
    items: Floats

    def truth(self, users: ArrayLike | slice | None = None) -> Floats:
        """Rows of X*, dense: those of the user indices or the slice given, else all (mind the
        memory).
        """
        if users is None:
            return self.users @ self.items.T
        some = users if isinstance(users, slice) else np.asarray(users)
        return self.users[some] @ self.items.T

    def truth_at(self, pairs: Ratings) -> NDArray[np.float32]:
        """X* at the entries of ``pairs``, aligned with its ``values``; users and items are
        looked up by id.
        """
        user = self.ratings.user_index(pairs.user_ids)
        item = self.ratings.item_index(pairs.item_ids)
        if (user < 0).any() or (item < 0).any():
            raise ConfigError("the pairs have users or items that this task does not have")
        out = np.empty(pairs.n_ratings, np.float32)
        rows = np.repeat(user, np.diff(pairs.indptr))
        for start in range(0, len(out), 1 << 18):
            part = slice(start, start + (1 << 18))
            out[part] = np.einsum(
                "ij,ij->i", self.users[rows[part]], self.items[item[pairs.indices[part]]]
            )
        return out

    def mean_squared_error(self, U: ArrayLike, V: ArrayLike) -> float:
        """‖U Vᵀ - X*‖² / (n·m) over *all* entries, without forming either matrix.

        U Vᵀ - U* V*ᵀ = [U, U*] [V, -V*]ᵀ; of the two tall matrices only their triangular factors
        count.
        """
        left: Floats = np.asarray(
            np.linalg.qr(np.hstack([np.asarray(U, np.float64), self.users]), mode="r")
        )
        right: Floats = np.asarray(
            np.linalg.qr(np.hstack([np.asarray(V, np.float64), -self.items]), mode="r")
        )
        return float(np.linalg.norm(left @ right.T) ** 2 / (len(self.users) * len(self.items)))


def dpals_task(
    n_users: int = 20_000,
    n_items: int = 1_000,
    rank: int = 5,
    *,
    density: float = 20.0,
    noise: float = 0.0,
    condition: float = 1.0,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> LowRankTask:
    """The task of DPALS, section 6.1 and Figure 4.

    Parameters
    ----------
    n_users : int
        The paper has :data:`DPALS_USERS`.
    n_items, rank : int
    density : float
        Every entry is observed with probability ``density · ln(n_users) / n_items``.
    noise : float
        Standard deviation of noise on the observations; the paper mentions none.
    condition : float
        κ, the largest over the smallest singular value, with even ratios between; the paper's
        matrices have 1.
    fractions : (train, valid, test)
        The paper partitions the observations without saying how; 80/10/10 is its split of MovieLens
        10M.
    seed : int
    """
    _check(n_users, n_items, rank, noise)
    rng = _rng(seed, 1)
    probability = min(density * math.log(n_users) / n_items, 1.0)
    if not probability > 0:
        raise ConfigError(f"density must be above 0, and {density:g} was given")
    if not (math.isfinite(condition) and condition >= 1):
        raise ConfigError(f"condition must be at least 1, and {condition:g} was given")
    users = np.linalg.qr(rng.standard_normal((n_users, rank)))[0] * math.sqrt(n_users)
    items = np.linalg.qr(rng.standard_normal((n_items, rank)))[0] * math.sqrt(n_items)
    if condition != 1:
        items = items * np.geomspace(condition, 1.0, rank)
    counts = []
    columns = []
    values = []
    for start in range(0, n_users, 2048):
        block = users[start : start + 2048] @ items.T
        seen = rng.random(block.shape, dtype=np.float32) < probability
        counts.append(seen.sum(axis=1))
        columns.append(np.nonzero(seen)[1].astype(np.int32))
        values.append(block[seen])
    observed = np.concatenate(values)
    scale = 1 / observed.std()
    observed = observed * scale + noise * rng.standard_normal(len(observed))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    ratings = _ratings(indptr, np.concatenate(columns), observed, n_users, n_items)
    return LowRankTask(
        f"dpals n={n_users}",
        seed,
        ratings,
        random_ratings(ratings, fractions, seed),
        users * math.sqrt(scale),
        items * math.sqrt(scale),
    )


def dplmc_task(
    n_users: int = 10_000,
    n_items: int = 100,
    rank: int = 5,
    *,
    largest_row: float = 2.0,
    scaling: Literal["each", "common"] = "each",
    noise: float = 1.0,
    n_observed: int | None = None,
    valid_fraction: float = 0.1,
    seed: int = 0,
) -> LowRankTask:
    """The task of DPLMC, section 6. Quality is :meth:`LowRankTask.mean_squared_error`.

    ``ratings`` are the training observations; ``split.valid`` holds other noisy entries, and
    ``split.test`` the true values of all entries that are in neither.

    Parameters
    ----------
    n_users : int
        The paper has :data:`DPLMC_USERS`.
    n_items : int
    rank : int
        5, or :data:`DPLMC_RANKS`.
    largest_row : float
        Largest norm of a row of U* and of V*.
    scaling : {"each", "common"}
        Whether U* and V* are scaled one by one, or by the same factor; the paper's sentence allows
        both.
    noise : float
        Standard deviation; 0 in the paper's noiseless case.
    n_observed : int, optional
        Training observations; ``rank · n_users · ln(n_users)`` where not given.
    valid_fraction : float
        Share of all entries set aside for tuning; the paper does not say how many.
    seed : int
    """
    _check(n_users, n_items, rank, noise)
    if scaling not in ("each", "common"):
        raise ConfigError(f'scaling must be "each" or "common", and {scaling!r} was given')
    total = n_users * n_items
    n_train = round(rank * n_users * math.log(n_users)) if n_observed is None else n_observed
    n_valid = round(valid_fraction * total)
    if not 0 < n_train < total - n_valid or n_valid < 1:
        raise ConfigError(
            f"{n_train:,} training and {n_valid:,} validation entries do not fit into {n_users:,} ×"
            f" {n_items:,} ones with some left to test on: choose n_observed or valid_fraction"
            " smaller"
        )
    rng = _rng(seed, 2)
    users, items = rng.standard_normal((n_users, rank)), rng.standard_normal((n_items, rank))
    largest = [np.linalg.norm(factors, axis=1).max() for factors in (users, items)]
    if scaling == "common":
        largest = [max(largest)] * 2
    users *= min(1.0, largest_row / largest[0])
    items *= min(1.0, largest_row / largest[1])
    part = np.full(total, 2, np.uint8)  # 0 train, 1 valid, 2 test
    part[:n_train] = 0
    part[n_train : n_train + n_valid] = 1
    rng.shuffle(part)
    exact = (users @ items.T).ravel()
    noisy = exact + noise * rng.standard_normal(total) if noise else exact
    train, valid, test = (
        _of_entries(np.flatnonzero(part == which), values, n_users, n_items)
        for which, values in ((0, noisy), (1, noisy), (2, exact))
    )
    split = Split("dplmc", seed, train, Holdout(train, test), Holdout(train, valid))
    return LowRankTask(f"dplmc n={n_users}", seed, train, split, users, items)


def huber_task(
    n_users: int = 200,
    n_items: int = 200,
    rank: int = 5,
    *,
    observed: float = 0.05,
    noise: float = 0.0,
    seed: int = 0,
) -> LowRankTask:
    """The task of the Huber paper, section 4 and Tables 3, 6 and 7.

    Its RMSE is over all entries: the square root of :meth:`LowRankTask.mean_squared_error`.
    ``split.test`` holds the true values of all entries that are not observed; there is no
    validation part. The paper's noise of variance 1 or 2 is that of its mechanism, not of the data.

    Parameters
    ----------
    n_users, n_items : int
        The paper gives neither size nor distribution. 200 × 200 and entries uniform on [0, 1] are a
        guess: of some thirty combinations tried they came closest to its results without noise at
        rank 5 (0.19, 0.09, 0.056 at 5, 10 and 15 %, where Table 3 has 0.204, 0.095, 0.057). At
        ranks 10 and 20 they come out too easy: 0.32, 0.18, 0.11 for 0.406, 0.232, 0.160, and 0.46,
        0.38, 0.31 for 0.690, 0.462, 0.396.
    rank : int
        One of :data:`HUBER_RANKS` in the paper.
    observed : float
        Fraction of the entries; :data:`HUBER_FRACTIONS` in the paper.
    noise : float
        Standard deviation of noise on the observations; the paper has none.
    seed : int
    """
    _check(n_users, n_items, rank, noise)
    total = n_users * n_items
    n_train = round(observed * total)
    if not 0 < n_train < total:
        raise ConfigError(
            f"observed must leave entries on both sides, and {observed:g} of {total:,} were"
            " asked for"
        )
    rng = _rng(seed, 3)
    users, items = rng.random((n_users, rank)), rng.random((n_items, rank))
    seen = np.zeros(total, bool)
    seen[rng.choice(total, n_train, replace=False)] = True
    exact = (users @ items.T).ravel()
    noisy = exact + noise * rng.standard_normal(total) if noise else exact
    train = _of_entries(np.flatnonzero(seen), noisy, n_users, n_items)
    test = _of_entries(np.flatnonzero(~seen), exact, n_users, n_items)
    name = f"huber rank={rank} observed={observed:g}"
    return LowRankTask(
        name, seed, train, Split("huber", seed, train, Holdout(train, test)), users, items
    )


def _of_entries(entries: NDArray[np.intp], values: Floats, n_users: int, n_items: int) -> Ratings:
    """Ratings at ascending positions in the flattened matrix."""
    indptr = np.searchsorted(entries, np.arange(n_users + 1) * n_items)
    return _ratings(indptr, (entries % n_items).astype(np.int32), values[entries], n_users, n_items)


def _ratings(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: Floats,
    n_users: int,
    n_items: int,
) -> Ratings:
    return Ratings.from_indices(
        indptr,
        indices,
        values.astype(np.float32),
        np.arange(n_users),
        np.arange(n_items),
        catalog=True,
    )


def _check(n_users: int, n_items: int, rank: int, noise: float) -> None:
    if not 1 <= rank <= min(n_users, n_items):
        raise ConfigError(
            f"rank must lie between 1 and the smaller side of {n_users:,} × {n_items:,}; given:"
            f" {rank}"
        )
    if not noise >= 0:
        raise ConfigError(f"noise is a standard deviation and cannot be {noise:g}")


def _rng(seed: int, task: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed must be an integer ≥ 0, and {seed!r} was given")
    return np.random.Generator(np.random.PCG64([task, int(seed)]))
