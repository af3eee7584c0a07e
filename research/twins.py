"""Twins of MovieLens 10M and 20M: invented ratings with the published shape and difficulty of data
we may not pass on.

The recipe, each step a function below:

    (1)  n_i = a + s·exp(σ z_i), capped          how many items user i rates          -> activity
    (2)  m_j, a stretched exponential, capped    how often item j is rated            -> popularity
    (3)  u_i ~ N(0, I),  v_jf ~ N(0, f^-2d)   taste, a power-law spectrum of unit variance  -> taste
    (4)  i picks n_i items without replacement with weights exp(τ_i·l_j + θ⟨u_i, v_j⟩ + c_i·b_j),
         l_j fitted so that (2) comes out light users stay with the hits (τ_i) -> fit_log_weights,
         draw_items
    (5)  b_i + b_j + a⟨u_i, v_j⟩ + noise, cut into stars at the published shares       -> rate

``twin-ml10m`` has ratings of 0.5 to 5 stars; ``twin-ml20m`` has positives only, and step (5) falls
away. A twin is a function of (name, seed, scale); compare methods on one replica only.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.data.atomic_files import atomic_write
from discreet.data.download import Progress, cache_folder
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from research.race import draw_items

logger = logging.getLogger("discreet")

RECIPE = 1  # part of the cache key: raise it whenever a change below changes the ratings
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stars:
    """How step (5) turns taste into stars. All standard deviations are in stars."""

    user_bias: float = 0.355
    item_bias: float = 0.455
    popular_is_better: float = 0.12  # per unit of log popularity
    popular_varies_less: float = 0.08
    heavy_is_stricter: float = 0.03  # per unit of log activity
    taste: float = 0.555
    noise: float = 0.662
    noise_spread: float = 0.25  # how much users differ in noise, on a log scale
    choosiness: float = 0.6  # how much users differ in picking the better items
    half_star_users: float = 0.42


@dataclass(frozen=True)
class Profile:
    """Published facts of a data set, and the few constants that make its twin as hard as the
    original.
    """

    users: int
    items: int
    ratings: int
    user_min: int
    user_median: int
    user_max: int
    item_median: float
    item_max: float
    item_cap: float  # how sharply popularity bends before its maximum
    rank: int
    decay: float  # exponent of the taste spectrum
    taste: float  # how much taste decides what is picked
    reach: float  # how much further heavy users go into the tail
    stars: Stars | None = None
    item_min: float = 3.0

    def scaled(self, scale: float) -> Profile:
        """The same data set with fewer users."""
        if not 0 < scale <= 1:
            raise ConfigError(f"scale must lie in (0, 1], and {scale:g} was given")
        if scale == 1:
            return self
        return replace(
            self,
            users=int(self.users * scale),
            ratings=int(self.ratings * scale),
            item_min=self.item_min * scale,
            item_median=self.item_median * scale,
            item_max=self.item_max * scale,
        )


PROFILES = {
    "twin-ml10m": Profile(
        users=69_878,
        items=10_677,
        ratings=10_000_054,
        user_min=20,
        user_median=69,
        user_max=7_359,
        item_median=135,
        item_max=34_864,
        item_cap=3.0,
        rank=60,
        decay=0.85,
        taste=0.6,
        reach=0.12,
        stars=Stars(),
    ),
    "twin-ml20m": Profile(
        users=136_677,
        items=20_108,
        ratings=9_990_682,
        user_min=5,
        user_median=37,
        user_max=3_177,
        item_median=15,
        item_max=48_000,
        item_cap=1.5,
        rank=30,
        decay=1.2,
        taste=2.08,
        reach=0.10,
    ),
}

# Published shares of the ratings 0.5, 1, … 5: of users who give whole stars only, and of all users.
WHOLE_STAR_SHARES = np.array([0, 5.2, 0, 10.3, 0, 27.3, 0, 36.5, 0, 20.7]) / 100
ALL_SHARES = np.array([0.9, 3.8, 1.2, 7.9, 3.7, 23.6, 8.8, 28.8, 5.8, 15.4]) / 99.9


def load_twin(
    name: str, seed: int = 0, scale: float = 1.0, *, progress: Progress | None = None
) -> Ratings:
    """The twin from the cache folder, or made (a few seconds) and put there.

    Parameters
    ----------
    name : {"twin-ml10m", "twin-ml20m"}
    seed : int
        Another seed gives another replica.
    scale : float
        Fraction of the users, for quick tries; the items stay.
    """
    profile = _profile(name, seed, scale)
    file = cache_folder() / f"{name}-seed{seed}-scale{scale:g}-recipe{RECIPE}.npz"
    arrays = _read_cached(file)
    if arrays is None:
        arrays = _make(profile, seed, progress)
        try:
            with atomic_write(file) as part, part.open("wb") as stream:
                np.savez(stream, **arrays)  # type: ignore[arg-type]
        except OSError as problem:
            logger.warning(
                "%s was made but cannot be kept in %s (%s)", name, file.parent, problem.strerror
            )
    return _as_ratings(arrays, profile)


def make_twin(
    name: str, seed: int = 0, scale: float = 1.0, *, progress: Progress | None = None
) -> Ratings:
    """The twin made anew, without looking at the cache or writing to it."""
    profile = _profile(name, seed, scale)
    return _as_ratings(_make(profile, seed, progress), profile)


def activity(profile: Profile, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ratings per user: the minimum plus a log-normal with the published median and mean,
    capped at the maximum.
    """
    mean = profile.ratings / profile.users
    sigma = np.sqrt(
        2 * np.log((mean - profile.user_min) / (profile.user_median - profile.user_min))
    )
    shape = np.exp(sigma * rng.standard_normal(profile.users))
    most = min(profile.user_max, profile.items)

    def counts(size: float) -> Floats:
        return np.minimum(profile.user_min + size * shape, most)

    size = _solve(lambda x: counts(x).sum() - profile.ratings, 1e-2, 1e4)
    # up or down at random keeps the total
    rounded = np.floor(counts(size) + rng.random(profile.users))
    return np.clip(rounded, profile.user_min, most).astype(np.int64)


def popularity(profile: Profile) -> Floats:
    """Intended ratings per item, descending: a stretched exponential with the published median,
    mean and maximum.
    """
    quantile = -np.log((np.arange(profile.items) + 0.5) / profile.items) / np.log(2)

    def counts(exponent: float) -> Floats:
        free = profile.item_median * quantile**exponent
        excess = max((free[0] / profile.item_max) ** profile.item_cap - 1, 0.0)
        return free * (1 + excess * (free / free[0]) ** profile.item_cap) ** (-1 / profile.item_cap)

    return np.maximum(
        counts(_solve(lambda x: counts(x).sum() - profile.ratings, 0.5, 8.0)), profile.item_min
    )


def taste(
    profile: Profile, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """User and item factors whose inner products have variance 1 and a power-law spectrum."""
    spectrum = np.arange(1.0, profile.rank + 1) ** -profile.decay
    spectrum /= np.linalg.norm(spectrum)
    users = rng.standard_normal((profile.users, profile.rank), dtype=np.float32)
    items = rng.standard_normal((profile.items, profile.rank), dtype=np.float32)
    return users, items * spectrum.astype(np.float32)


def fit_log_weights(
    target: Floats,
    draw: Callable[[NDArray[np.float32], int], NDArray[np.int64]],
    rounds: int = 7,
    width: int = 25,
    step: float = 0.8,
) -> NDArray[np.float32]:
    """Log weights l_j with which drawn item counts come out near ``target`` (descending), by
    multiplicative updates.

    ``draw(log_weights, round)`` says how often each item was drawn by a sample of users. The first
    ``2 * width`` items are drawn often enough to be corrected one by one; all others are averaged
    over their neighbors in popularity.
    """
    log_weights = np.log(target / target.sum()).astype(np.float32)
    head = np.arange(len(target)) < 2 * width
    for round_ in range(rounds):
        drawn = draw(log_weights, round_).astype(np.float64)
        drawn *= target.sum() / drawn.sum()
        alone = (target + 1) / (drawn + 1)
        together = (_running_mean(target, width) + 1) / (_running_mean(drawn, width) + 1)
        log_weights += np.float32(step) * np.log(np.where(head, alone, together)).astype(np.float32)
    return log_weights


def cut_into_stars(scores: NDArray[np.float32], half: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Scores to half stars 1 … 10 with the published shares, apart for raters of whole and of
    half stars.
    """
    stars = np.empty(len(scores), np.uint8)
    # what the half-star raters must give
    rest = np.maximum(ALL_SHARES - (1 - half.mean()) * WHOLE_STAR_SHARES, 0)
    for group, shares in ((~half, WHOLE_STAR_SHARES), (half, rest)):
        if group.any():
            of_group = scores[group]
            edges = np.quantile(of_group, np.clip(np.cumsum(shares / shares.sum())[:-1], 0, 1))
            stars[group] = np.searchsorted(edges.astype(np.float32), of_group, side="left") + 1
    return stars


# -------------------------------------------------------------------- putting it together


def _make(profile: Profile, seed: int, progress: Progress | None) -> dict[str, NDArray[np.generic]]:
    # The words and the order of the first draws are those under which the constants were tuned:
    # replica 0 has the tastes and item biases of the published scores. Another order would move the
    # item-mean RMSE by ±1 %.
    root = np.random.SeedSequence([5, profile.items, seed])
    rng = np.random.Generator(np.random.Philox(root))
    draw_seed = [int(word) for word in root.generate_state(16)]
    counts = activity(profile, rng)
    target = popularity(profile)
    users, items = taste(profile, rng)
    heaviness = np.log(counts / np.median(counts))
    tilt = np.clip(1 - profile.reach * heaviness, 0.3, 1.6)
    item_bias, choosiness = _quality(profile, target, rng)
    user_side = np.column_stack([users * np.float32(profile.taste), choosiness, tilt]).astype(
        np.float32
    )

    def item_side(log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.column_stack([items, item_bias, log_weights]).astype(np.float32)

    def draw(log_weights: NDArray[np.float32], round_: int) -> NDArray[np.int64]:
        # few users reach the tail, so the last rounds ask more of them
        size = 5_000 if round_ < 5 else 20_000
        some = rng.choice(profile.users, min(size, profile.users), replace=False)
        text = f"fitting popularity {round_ + 1}/7"
        _, picked = draw_items(
            counts[some],
            user_side[some],
            item_side(log_weights),
            draw_seed[round_],
            progress=progress,
            text=text,
        )
        return np.bincount(picked, minlength=profile.items)

    columns = item_side(fit_log_weights(target, draw))
    # popularity rank of each item id: ids must carry no information
    by_id = rng.permutation(profile.items)
    indptr, indices = draw_items(
        counts, user_side, np.ascontiguousarray(columns[by_id]), draw_seed[-1], progress=progress
    )
    _rate_everything_once(indptr, indices, by_id < profile.items // 10, rng)
    arrays: dict[str, NDArray[np.generic]] = {"indptr": indptr, "indices": indices}
    if profile.stars is not None:
        arrays["half_stars"] = _rate(
            profile.stars, indptr, indices, users, items[by_id], item_bias[by_id], heaviness, rng
        )
    return arrays


def _quality(profile: Profile, target: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Item biases (popular items are better and vary less), and how much each user picks by
    them; 0 without stars.
    """
    stars = profile.stars
    if stars is None:
        return np.zeros(profile.items), np.zeros(profile.users)
    log_popularity = np.log(target)
    relative = np.clip(log_popularity - np.average(log_popularity, weights=target), -2, 2)
    spread = stars.item_bias * (1 - stars.popular_varies_less * relative)
    item_bias = stars.popular_is_better * relative + spread * rng.standard_normal(profile.items)
    return item_bias, stars.choosiness * rng.standard_normal(profile.users)


def _rate(
    stars: Stars,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    users: NDArray[np.float32],
    items: NDArray[np.float32],
    item_bias: Floats,
    heaviness: Floats,
    rng: np.random.Generator,
) -> NDArray[np.uint8]:
    """Step (5): half stars for every rating, aligned with ``indices``."""
    n = len(users)
    user_bias = stars.user_bias * rng.standard_normal(n) - stars.heavy_is_stricter * heaviness
    noise = stars.noise * np.exp(
        stars.noise_spread * rng.standard_normal(n) - stars.noise_spread**2
    )
    scores = rng.standard_normal(len(indices), dtype=np.float32)
    _add_taste(
        scores, indptr, indices, users, items, user_bias, item_bias, np.float32(stars.taste), noise
    )
    half = rng.random(n) < stars.half_star_users
    return cut_into_stars(scores, np.repeat(half, np.diff(indptr)))


@njit(cache=True, nogil=True, fastmath=True)
def _add_taste(scores, indptr, indices, users, items, user_bias, item_bias, amplitude, noise):  # type: ignore[no-untyped-def]
    """scores <- b_i + b_j + amplitude·⟨u_i, v_j⟩ + noise_i·scores, in place."""
    for i in range(len(indptr) - 1):
        for entry in range(indptr[i], indptr[i + 1]):
            j = indices[entry]
            product = np.float32(0)
            for f in range(users.shape[1]):
                product += users[i, f] * items[j, f]
            scores[entry] = (
                user_bias[i] + item_bias[j] + amplitude * product + noise[i] * scores[entry]
            )


def _rate_everything_once(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    popular: NDArray[np.bool_],
    rng: np.random.Generator,
) -> None:
    """Give every item that no user picked one of the ratings of the popular items, in place;
    rows stay sorted.
    """
    missing = np.flatnonzero(np.bincount(indices, minlength=len(popular)) == 0)
    entries = rng.choice(np.flatnonzero(popular[indices]), len(missing), replace=False)
    indices[entries] = missing
    for row in np.unique(np.searchsorted(indptr, entries, side="right") - 1):
        indices[indptr[row] : indptr[row + 1]].sort()


def _profile(name: str, seed: int, scale: float) -> Profile:
    if name not in PROFILES:
        raise ConfigError(f"there is no twin named {name!r}: choose one of {', '.join(PROFILES)}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed must be an integer ≥ 0, and {seed!r} was given")
    return PROFILES[name].scaled(scale)


def _as_ratings(arrays: dict[str, NDArray[np.generic]], profile: Profile) -> Ratings:
    indices = arrays["indices"]
    if "half_stars" in arrays:
        values = arrays["half_stars"].astype(np.float32) / np.float32(2)
    else:
        values = np.ones(len(indices), np.float32)
    # which items exist is part of the recipe, not learned from users' ratings
    return Ratings.from_indices(
        arrays["indptr"],
        indices,
        values,
        np.arange(profile.users),
        np.arange(profile.items),
        catalog=True,
    )


def _read_cached(file: Path) -> dict[str, NDArray[np.generic]] | None:
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        logger.warning("%s cannot be read and is made anew", file)
        return None


def _running_mean(values: Floats, width: int) -> Floats:
    padded = np.concatenate([[0.0], np.cumsum(np.pad(values, width, mode="edge"))])
    window = 2 * width + 1
    return (padded[window:] - padded[:-window]) / window


def _solve(f: Callable[[float], float], low: float, high: float) -> float:
    """Where the increasing function f crosses zero in [low, high], by bisection on a log scale."""
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return middle
