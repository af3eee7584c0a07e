"""Families of generated data, on which rules for defaults are chosen: many shapes and scales, and
none of them real.

One member is made like this, from a `Family` and a seed; everything is a function of these two:

    (1)  n_i = a log-normal number with the mean `per_user`           how many items user i rates
    (2)  p_j ∝ (j + 1 + items/300)^−skew                              how likely i is to meet item j
    (3)  u_i ~ N(0, I), v_jf ~ N(0, f^−2·decay), scaled so that       taste: a power-law spectrum
         u_i · v_j has variance 1
    (4)  i meets 8 n_i items by (2) and takes the n_i with the largest θ u_i · v_j + b_j/2 + Gumbel
         noise, θ = `taste`
    (5)  b_i + b_j + a u_i · v_j + noise, a = `strength`, onto the scale of the ratings; popular
         items are a bit better

The time is linear in the number of ratings, about 1.5 s for a million, so that a million users are
no obstacle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError

#: (lowest, highest, step) of ratings; a step of 0 stands for any number.
SCALES = {
    "1 to 5": (1.0, 5.0, 1.0),
    "0.5 to 5": (0.5, 5.0, 0.5),
    "0 to 10": (0.0, 10.0, 1.0),
    "-10 to 10": (-10.0, 10.0, 0.0),
    "0 to 1": (0.0, 1.0, 1.0),
}
MEETS = 8  # times as many items as a user rates
FEWEST = 3  # ratings of one user


@dataclass(frozen=True)
class Family:
    """A kind of data set.

    Parameters
    ----------
    users, items : int
    per_user : float
        Mean number of ratings, from 3 on.
    skew : float
        0 where all items are met equally often; 1 is Zipf's law.
    rank, decay : int, float
        Dimensions of taste, and how fast they fade: the f-th has the standard deviation f^−decay.
    taste : float
        How much taste decides what a user takes.
    strength : float
        How much taste decides the rating, in standard deviations of the noise on it.
    scale : str
        One of `SCALES`.
    """

    name: str
    users: int
    items: int
    per_user: float
    skew: float = 1.0
    rank: int = 10
    decay: float = 0.7
    taste: float = 1.5
    strength: float = 0.8
    scale: str = "1 to 5"

    def scaled(self, most_users: int) -> Family:
        """The same with at most so many users, for quick tries."""
        return replace(self, users=min(self.users, most_users))


#: Corners and the middle of the space; see `invented` for anything between.
FAMILIES = (
    Family("few people", 1_000, 500, 40),
    Family("few people, flat", 1_000, 2_000, 20, skew=0.3, scale="0 to 10"),
    Family("jokes", 20_000, 100, 50, skew=0.3, rank=4, strength=1.2, scale="-10 to 10"),
    Family("small shop", 3_000, 300, 8, skew=0.8, taste=1.0, scale="0 to 1"),
    Family("sparse", 20_000, 10_000, 6, skew=1.1, scale="0 to 10"),
    Family("sparse, no taste", 20_000, 3_000, 6, taste=0.0, strength=0.0),
    Family("films", 6_000, 3_500, 150, skew=1.2, scale="0.5 to 5"),
    Family("films, one taste", 6_000, 3_500, 100, skew=1.2, rank=1, taste=2.0),
    Family("films, many tastes", 10_000, 2_000, 100, skew=0.9, rank=40, decay=0.2),
    Family("heavy readers", 2_000, 20_000, 300, skew=0.8, rank=20),
    Family("long tail", 50_000, 100_000, 20, skew=0.7, rank=20, taste=2.0, scale="0.5 to 5"),
    Family("hits", 30_000, 5_000, 15, skew=1.6, taste=0.8, scale="0 to 1"),
    Family("town", 100_000, 10_000, 40, rank=30, decay=1.0, taste=2.0),
    Family("country", 300_000, 20_000, 30, rank=30, decay=1.0),
    Family("many people, few ratings", 1_000_000, 1_000, 4, skew=0.9, taste=1.0, scale="0 to 1"),
    Family("world", 1_000_000, 50_000, 30, rank=30, decay=1.0, scale="0.5 to 5"),
)


def family(name: str) -> Family:
    """One of `FAMILIES` by its name, or ``"invented 7"`` for `invented` (7)."""
    kind, _, number = name.rpartition(" ")
    if kind == "invented" and number.isdigit():
        return invented(int(number))
    for one in FAMILIES:
        if one.name == name:
            return one
    raise ConfigError(
        f"there is no family {name!r}: there are {', '.join(one.name for one in FAMILIES)},"
        " invented 0 …"
    )


def invented(seed: int, most_ratings: float = 5e6) -> Family:
    """A family drawn at random: 10³ to 10⁶ users, 10² to 10⁵ items, 3 to 300 ratings each, but
    not too many in all.
    """
    rng = np.random.default_rng([17, seed])
    users = round(10 ** rng.uniform(3, 6))
    items = round(10 ** rng.uniform(2, 5))
    most = min(300.0, items / 4, max(most_ratings / users, 4.0))
    return Family(
        f"invented {seed}",
        users,
        items,
        per_user=round(float(np.exp(rng.uniform(math.log(3), math.log(most)))), 1),
        skew=round(rng.uniform(0.2, 1.6), 2),
        rank=int(rng.choice([1, 3, 10, 30])),
        decay=round(rng.uniform(0.0, 1.2), 2),
        taste=round(rng.uniform(0.0, 2.5), 2),
        strength=round(rng.uniform(0.0, 1.5), 2),
        scale=str(rng.choice(list(SCALES))),
    )


def made(kind: Family, seed: int = 0) -> Ratings:
    """The ratings of one member of the family."""
    rng = np.random.default_rng([29, seed])
    counts = activity(kind, rng)
    U, V = _vectors(kind, rng)
    ids = rng.permutation(kind.items)  # the place of an item says nothing of its popularity
    weight = np.empty(kind.items)
    weight[ids] = (np.arange(1.0, kind.items + 1) + kind.items / 300) ** -kind.skew
    popular = np.log(weight) - np.log(weight).mean()
    bias = 0.4 * rng.standard_normal(kind.items) + 0.15 * popular / max(popular.std(), 1e-9)
    met = np.cumsum(weight / weight.sum())
    indptr, indices = _pick(counts, U, V, bias, met, kind.taste, rng)
    values = rated(kind, U, V, bias, indptr, indices, rng)
    return Ratings.from_indices(
        indptr, indices, values, np.arange(kind.users), np.arange(kind.items), catalog=True
    )


def item_vectors(kind: Family, seed: int = 0) -> NDArray[np.float32]:
    """v_j of (3), (items, rank), of the member that `made` makes from the same seed."""
    rng = np.random.default_rng([29, seed])
    activity(kind, rng)
    return _vectors(kind, rng)[1]


def _vectors(
    kind: Family, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(3)."""
    spectrum = np.arange(1.0, kind.rank + 1) ** -kind.decay
    spectrum /= np.linalg.norm(spectrum)
    U = rng.standard_normal((kind.users, kind.rank), dtype=np.float32)
    V = rng.standard_normal((kind.items, kind.rank), dtype=np.float32) * spectrum.astype(np.float32)
    return U, V


def activity(kind: Family, rng: np.random.Generator) -> NDArray[np.int64]:
    """(1), at least `FEWEST` and at most half of all items."""
    most = max(kind.items // 2, 1)
    above = max(kind.per_user - FEWEST, 0.0)
    counts = FEWEST + above * np.exp(rng.standard_normal(kind.users) - 0.5)
    return np.clip(np.floor(counts + rng.random(kind.users)), 1, most).astype(np.int64)


def rated(
    kind: Family,
    U: NDArray[np.float32],
    V: NDArray[np.float32],
    bias: NDArray[np.float64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """(5), aligned with `indices`."""
    low, high, step = SCALES[kind.scale]
    row = np.repeat(np.arange(kind.users), np.diff(indptr))
    score = 0.5 * rng.standard_normal(kind.users, dtype=np.float32)[row] + bias[indices].astype(
        np.float32
    )
    score += rng.standard_normal(len(indices), dtype=np.float32)
    for f in range(kind.rank):  # one at a time keeps the memory small
        score += np.float32(kind.strength) * U[row, f] * V[indices, f]
    values = low + (high - low) * (0.62 + 0.2 * score)
    if step:
        values = low + step * np.round((values - low) / step)
    return np.clip(values, low, high).astype(np.float32)


@njit(cache=True, nogil=True)
def _pick(counts, U, V, bias, met, taste, rng):  # type: ignore[no-untyped-def]
    """(4): indptr, and the items of each user in ascending order."""
    n_items, rank = V.shape
    indptr = np.zeros(len(counts) + 1, np.int64)
    indices = np.empty(counts.sum(), np.int32)
    last_met = np.full(n_items, -1, np.int32)
    candidates = np.empty(MEETS * counts.max(), np.int32)
    keys = np.empty(MEETS * counts.max(), np.float32)
    for i in range(len(counts)):
        found = 0
        for _ in range(MEETS * counts[i]):
            j = min(np.searchsorted(met, rng.random()), n_items - 1)
            if last_met[j] == i:
                continue
            last_met[j] = i
            product = np.float32(0)
            for f in range(rank):
                product += U[i, f] * V[j, f]
            candidates[found] = j
            keys[found] = taste * product + 0.5 * bias[j] - np.log(-np.log(rng.random() + 1e-300))
            found += 1
        few = min(counts[i], found)
        best = np.argsort(-keys[:found])[:few]
        start = indptr[i]
        indices[start : start + few] = np.sort(candidates[best])
        indptr[i + 1] = start + few
    return indptr, indices[: indptr[-1]].copy()
