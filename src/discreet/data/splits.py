"""Splits: training ratings, known ratings of test users, and held-out ratings to predict.

Every function below is deterministic: the same ratings, arguments and seed give the same split on
every machine.

=========================  ==========================================  =============================
split                      held out                                    known of a test user
=========================  ==========================================  =============================
``random_ratings``         ratings, uniformly at random                the training ratings
``k_fold``                 each rating once in k splits                the training ratings
``leave_one_out``          one rating of every user                    the training ratings
``by_time``                everything from a moment on                 the training ratings
``by_person``              ratings, each by an independent draw        the training ratings
``strong_generalization``  whole users, never seen in training   a fold-in part of their own ratings
=========================  ==========================================  =============================
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError


@dataclass(frozen=True)
class Holdout:
    """Known and held-out ratings: same users, same items, disjoint ratings.

    Attributes
    ----------
    known : Ratings
        Ratings given to the model.
    target : Ratings
        Held-out ratings to predict.
    """

    known: Ratings
    target: Ratings

    def __post_init__(self) -> None:
        assert len(self.known.indptr) == len(self.target.indptr), (
            "known and target must have the same users"
        )
        assert self.known.n_items == self.target.n_items, (
            "known and target must have the same items"
        )


@dataclass(frozen=True)
class Split:
    """Training ratings and held-out parts, with the name and the seed that made them.

    Attributes
    ----------
    name : str
        Such as ``"random 80/10/10"``.
    seed : int
    train : Ratings
    test : Holdout
        ``test.known`` is ``train`` where ratings are held out, and a part of their own ratings
        where users are.
    valid : Holdout or None
        For choosing parameters.
    apart : bool
        Whether the held-out part of one user's ratings is independent of all other users, as
        private scores assume.
    """

    name: str
    seed: int
    train: Ratings
    test: Holdout
    valid: Holdout | None = None
    apart: bool = False

    def part(self, name: str) -> Holdout:
        """Return the held-out part ``"test"`` or ``"valid"``."""
        if name not in ("test", "valid"):
            raise ConfigError(f'a split has the parts "test" and "valid", not {name!r}')
        if name == "valid" and self.valid is None:
            raise ConfigError(f"the split {self.name!r} was made without a validation part")
        return self.test if name == "test" or self.valid is None else self.valid

    def __repr__(self) -> str:
        valid = "" if self.valid is None else f", valid={self.valid.target.n_ratings:,}"
        return (
            f"Split({self.name!r}, seed={self.seed}, train={self.train.n_ratings:,}{valid}, "
            f"test={self.test.target.n_ratings:,})"
        )


def random_ratings(
    ratings: Ratings, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> Split:
    """Hold out ratings uniformly at random over all users.

    Parameters
    ----------
    ratings : Ratings
    fractions : (train, valid, test) or (train, test)
        They sum to 1. ``(0.98, 0.01, 0.01)`` is the other split used in the papers.
    seed : int
    """
    _check_fractions(fractions)
    n = ratings.n_ratings
    held_out = [round(f * n) for f in fractions[1:]]
    if min(held_out) == 0 or n <= sum(held_out):
        raise DataError(
            f"{n:,} ratings are too few to split {_percent(fractions)}: every part needs at least"
            " one"
        )
    label = np.zeros(n, np.uint8)
    _rng(seed).shuffle(_assign_labels(label, held_out))
    return _over_ratings(
        ratings, f"random {_percent(fractions)}", seed, label, parts=len(fractions)
    )


def by_person(
    ratings: Ratings, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> Split:
    """Hold out each rating by an independent draw from the seed and its user and item id.

    No user's ratings influence which ratings of another are held out, so the fractions hold only on
    average. Private scores and private tuning require such a split.

    Parameters
    ----------
    ratings : Ratings
    fractions : (train, valid, test) or (train, test)
    seed : int
        Public.
    """
    _check_fractions(fractions)
    coin = _draw_per_rating(ratings, seed) / 2.0**64
    label = np.searchsorted(np.cumsum(fractions)[:-1], coin, side="right").astype(np.uint8)
    split = _over_ratings(
        ratings, f"by person {_percent(fractions)}", seed, label, parts=len(fractions)
    )
    return replace(split, apart=True)


def _draw_per_rating(ratings: Ratings, seed: int) -> NDArray[np.uint64]:
    """Draw 64 random bits for each rating from the seed, its user id and its item id alone.

    Privacy: no other user's row, no order of rows, users or items, and no type of a column changes
    the draw of a rating. Every split with ``apart=True`` takes its randomness from here.
    """
    _rng(seed)
    user, item = (_keys(ids, seed) for ids in (ratings.user_ids, ratings.item_ids))
    row = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    return _mix_bits(user[row] ^ _mix_bits(item[ratings.indices]))


def _keys(ids: NDArray[Any], seed: int) -> NDArray[np.uint64]:
    """Hash each id to 64 bits, from its written form and the seed."""
    texts = (f"{seed} {_write_id(one)}".encode(errors="surrogatepass") for one in ids.tolist())
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, np.uint64)


def _write_id(one: Any) -> str:
    """Write equal ids alike: 1, 1.0 and True are one id, in whichever form it came first."""
    if type(one) is int:
        return str(one)
    if isinstance(one, str):  # of an enumeration as well, which is equal to its text
        return str.__str__(one)
    if isinstance(one, datetime) and one.tzinfo is not None:  # one moment in two zones is one id
        return str(one.astimezone(UTC))
    if isinstance(one, complex) and one.imag == 0:
        one = one.real
    if isinstance(one, tuple):
        return f"({', '.join(map(_write_id, one))})"
    try:
        over, under = one.as_integer_ratio()
    except (AttributeError, OverflowError, ValueError):  # no number, or an infinite one
        return str(one)
    return f"{over}" if under == 1 else f"{over}/{under}"


def _mix_bits(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finalizer of splitmix64: every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def k_fold(ratings: Ratings, k: int = 5, seed: int = 0) -> list[Split]:
    """Make k splits in which every rating is held out exactly once."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 2:
        raise ConfigError(f"k must be an integer ≥ 2, not {k!r}")
    n = ratings.n_ratings
    if n < k:
        raise DataError(f"{n:,} ratings cannot make {k} folds")
    fold = (np.arange(n) * k // n).astype(np.int32)
    _rng(seed).shuffle(fold)
    return [
        _over_ratings(
            ratings, f"{k}-fold, fold {i + 1}", seed, (fold == i).astype(np.uint8), parts=2
        )
        for i in range(k)
    ]


def leave_one_out(
    ratings: Ratings, seed: int = 0, by_time: bool = False, *, valid: bool = False
) -> Split:
    """Hold out one rating of every user who has at least two.

    The held-out rating depends on the seed and on that user's own ratings alone. If no user has two
    ratings, nothing is held out.

    Parameters
    ----------
    ratings : Ratings
    seed : int
        Chooses the rating if ``by_time`` is false, and among equally new ones if it is true.
    by_time : bool
        Hold out the newest rating of each user instead of a random one.
    valid : bool
        Hold out a second rating for validation, of users who have at least three.
    """
    times = _timestamps(ratings, "leave_one_out with by_time=True") if by_time else None
    rank = _rank_in_row(ratings.indptr, _draw_per_rating(ratings, seed), times)
    counts = np.repeat(np.diff(ratings.indptr), np.diff(ratings.indptr))
    label = np.zeros(ratings.n_ratings, np.uint8)
    if valid:
        label[(rank == 1) & (counts >= 3)] = 1
    label[(rank == 0) & (counts >= 2)] = 2 if valid else 1
    name = f"leave one out, {'newest' if by_time else 'random'}"
    return replace(_over_ratings(ratings, name, seed, label, parts=3 if valid else 2), apart=True)


def by_time(
    ratings: Ratings,
    fraction: float | None = None,
    *,
    at: int | None = None,
    valid: float = 0.0,
    seed: int = 0,
) -> Split:
    """Train on the past and test on later ratings; ratings of one moment stay together.

    Parameters
    ----------
    ratings : Ratings
    fraction : float, optional
        Share of all ratings, the newest, to test on; 0.1 if ``at`` is not given either.
    at : int, optional
        Test on everything from this timestamp on.
    valid : float
        Share of all ratings, just before those, to validate on; 0 for none.
    seed : int
        Kept in the split; nothing here is random.
    """
    times = _timestamps(ratings, "by_time")
    if fraction is not None and at is not None:
        raise ConfigError("by_time takes either fraction= or at=, not both")
    share = 0.1 if fraction is None else fraction
    if not 0 < share < 1 or not 0 <= valid < 1 or (at is None and share + valid >= 1):
        raise ConfigError(
            "fraction and valid must lie in (0, 1) and leave something to train on; given:"
            f" {share:g}, {valid:g}"
        )
    if not len(times):
        raise DataError("by_time needs ratings, and there are none")
    ordered = np.sort(times)
    start = int(ordered[-math.ceil(share * len(ordered))]) if at is None else int(at)
    label = (times >= start).astype(np.uint8) * (2 if valid else 1)
    if valid:
        older = int(np.searchsorted(ordered, start))
        first = int(ordered[max(older - math.ceil(valid * len(ordered)), 0)])
        label[(times >= first) & (times < start)] = 1
    sizes = np.bincount(label, minlength=3 if valid else 2)
    if sizes.min() == 0:
        raise DataError(
            f"splitting at timestamp {start} leaves a part empty: the timestamps run from"
            f" {int(ordered[0])} to {int(ordered[-1])}; choose at= inside, or another fraction"
        )
    name = f"by time, newest {100 * share:g} %" if at is None else f"by time, from {start}"
    return _over_ratings(ratings, name, seed, label, parts=3 if valid else 2)


def strong_generalization(
    ratings: Ratings,
    n_valid: int = 10_000,
    n_test: int = 10_000,
    fold_in: float = 0.8,
    seed: int = 0,
) -> Split:
    """Hold out whole users: a random part of each is known (fold-in), the rest is to be predicted.

    This is the protocol of the DPALS supplement, D.1: training never sees the held-out users.

    Parameters
    ----------
    ratings : Ratings
    n_valid, n_test : int
        Held-out users; ``n_valid`` may be 0.
    fold_in : float
        Share of a held-out user's ratings that is known. At least one rating is known and, if the
        user has two or more, at least one is not.
    seed : int
    """
    if not 0 < fold_in < 1:
        raise ConfigError(f"fold_in must be in (0, 1), not {fold_in:g}")
    if n_valid < 0 or n_test < 1:
        raise ConfigError(
            f"n_test must be at least 1 and n_valid at least 0, not {n_test} and {n_valid}"
        )
    n = ratings.n_users
    if n_valid + n_test >= n:
        raise DataError(
            f"{n_valid + n_test:,} held-out users of {n:,} leave none to train on: choose smaller"
            " n_valid and n_test"
        )
    rng = _rng(seed)
    shuffled = rng.permutation(n)
    test, valid, train = (np.sort(part) for part in np.split(shuffled, [n_test, n_test + n_valid]))

    def holdout(rows: NDArray[np.int64]) -> Holdout:
        chosen = ratings.select_users(rows)
        counts = np.diff(chosen.indptr)
        # the small constant keeps 5 × (1 - 0.8) from being rounded down to 0
        hidden = np.minimum(np.maximum(np.floor((1 - fold_in) * counts + 1e-9), 1), counts - 1)
        target = _rank_in_row(chosen.indptr, rng.random(chosen.n_ratings)) < np.repeat(
            hidden, counts
        )
        return Holdout(known=chosen.keep(~target), target=chosen.keep(target))

    name = f"strong generalization, {n_valid:,} + {n_test:,} users, fold-in {100 * fold_in:g} %"
    tested = holdout(test)
    return Split(
        name, seed, ratings.select_users(train), tested, holdout(valid) if n_valid else None
    )


def _over_ratings(
    ratings: Ratings, name: str, seed: int, label: NDArray[np.uint8], parts: int
) -> Split:
    """Split by a label per rating: 0 train, the last one test, the one between validation."""
    train = ratings.keep(label == 0)
    held_out = [
        Holdout(known=train, target=ratings.keep(label == part)) for part in range(1, parts)
    ]
    return Split(name, seed, train, held_out[-1], held_out[0] if parts == 3 else None)


def _check_fractions(fractions: Sequence[float]) -> None:
    if (
        len(fractions) not in (2, 3)
        or not all(0 < f < 1 for f in fractions)
        or abs(sum(fractions) - 1) > 1e-6
    ):
        raise ConfigError(
            "fractions must be (train, valid, test) or (train, test), each above 0 and with sum 1,"
            f" not {tuple(fractions)}"
        )


def _assign_labels(label: NDArray[np.uint8], held_out: list[int]) -> NDArray[np.uint8]:
    """Write label 1 into the first ``held_out[0]`` places, 2 into the next, and so on."""
    start = 0
    for part, size in enumerate(held_out, start=1):
        label[start : start + size] = part
        start += size
    return label


def _rank_in_row(
    indptr: NDArray[np.int64], order: NDArray[Any], times: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Rank each entry within its row: newest first where ``times`` are given, else by ``order``."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    keys = (order, row) if times is None else (order, ~times, row)  # -times would overflow
    position = np.empty(len(order), np.int64)
    position[np.lexsort(keys)] = np.arange(len(order))
    return position - indptr[row]


def _timestamps(ratings: Ratings, what: str) -> NDArray[np.int64]:
    if ratings.timestamps is None:
        raise DataError(
            f"{what} needs timestamps, but these ratings have none: read them with"
            " timestamp=<column name>"
        )
    return ratings.timestamps


def _rng(seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed must be an integer ≥ 0, not {seed!r}")
    return np.random.Generator(np.random.PCG64(int(seed)))


def _percent(fractions: Sequence[float]) -> str:
    return "/".join(f"{100 * f:g}" for f in fractions)
