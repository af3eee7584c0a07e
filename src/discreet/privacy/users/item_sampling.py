"""Random choices of a user, made from the user's id and a public seed alone.

If one user's choice depended on the others (on a row number, a shared random stream, or the parsed
type of the id column), removing a user would change what the other users contribute, and no
sensitivity would hold.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.data.ids import parse_id
from discreet.errors import PrivacyError
from discreet.kernels.threads import cost_cuts, run

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WRITTEN = (str, bytes, int, float, Decimal, Fraction, date, time, timedelta, UUID)


def user_keys(user_ids: NDArray[Any], seed: int) -> NDArray[np.uint64]:
    """Compute a number per user from its id and the seed alone.

    Raises
    ------
    PrivacyError
        Ids without a fixed written form: the address of an object or the order of a set would
        decide.
    """
    return keys_of(user_numbers(user_ids), seed)


def user_numbers(user_ids: NDArray[Any]) -> NDArray[np.uint64]:
    """Hash each id to 64 bits; kept where the id itself is not."""
    if user_ids.dtype == np.int64:
        return user_ids.astype(np.uint64)
    return np.fromiter(map(_number, user_ids.tolist()), np.uint64, len(user_ids))


def keys_of(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Derive the keys of users from their numbers and the seed."""
    keys: NDArray[np.uint64] = _mix(numbers * _GOLDEN + _mix(np.full(1, seed % 2**64, np.uint64)))
    return keys


def pick(
    indptr: NDArray[Any],
    items: NDArray[Any],
    keys: NDArray[np.uint64],
    priority: NDArray[Any],
    k: int,
    draw: int = 0,
) -> NDArray[np.bool_]:
    """Mark the k entries of lowest priority in each row; ties are broken at random.

    The tie-breaker is a hash of the row's key, the item and the number `draw`, from 0 to 2³¹ − 1.
    """
    picked = np.zeros(len(items), bool)
    # equal priorities share a rank
    place = np.unique(priority, return_inverse=True)[1].astype(np.uint64)
    run(
        lambda a, b: _pick(indptr, items, keys, place, k, draw, picked, a, b),
        cost_cuts(np.diff(indptr) + 1.0),
    )
    return picked


def sample(
    indptr: NDArray[Any], items: NDArray[Any], keys: NDArray[np.uint64], fraction: float, draw: int
) -> NDArray[np.bool_]:
    """Sample entries of each row with probability `fraction`; `draw` as in `pick`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    uniform = _mix(keys[row] + (items.astype(np.uint64) + np.uint64(1 + (draw << 32))) * _GOLDEN)
    sampled: NDArray[np.bool_] = uniform.astype(np.float64) < fraction * 2.0**64
    return sampled


def by_item(
    indptr: NDArray[Any],
    items: NDArray[Any],
    values: NDArray[Any],
    weights: NDArray[np.float64],
    n_items: int,
    chosen: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Transpose the chosen entries: offsets per item, then users, values and weights.

    Rows keep their order within an item. A single weight applies to all.
    """
    chosen = np.ones(len(items), bool) if chosen is None else chosen
    start = np.zeros(n_items + 1, np.int64)
    np.cumsum(_count(items, chosen, n_items), out=start[1:])
    user = np.empty(start[-1], np.int32)
    value = np.empty(start[-1])
    weight = np.empty(start[-1])
    _place(indptr, items, values, weights, chosen, start[:-1].copy(), user, value, weight)
    return start, user, value, weight


@njit(nogil=True, cache=True)
def _count(items: np.ndarray, chosen: np.ndarray, n_items: int) -> np.ndarray:
    counts = np.zeros(n_items, np.int64)
    for e in range(len(items)):
        counts[items[e]] += chosen[e]
    return counts


@njit(nogil=True, cache=True)
def _place(
    indptr: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    chosen: np.ndarray,
    at: np.ndarray,
    user: np.ndarray,
    value: np.ndarray,
    weight: np.ndarray,
) -> None:
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if chosen[e]:
                to = at[items[e]]
                user[to] = i
                value[to] = values[e]
                weight[to] = weights[e if len(weights) > 1 else 0]
                at[items[e]] = to + 1


def _mix(x: Any) -> Any:
    """Apply the finalizer of SplitMix64, which decorrelates neighboring numbers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


_mix_one = njit(nogil=True, cache=True)(_mix)


@njit(nogil=True, cache=True)
def _pick(
    indptr: np.ndarray,
    items: np.ndarray,
    keys: np.ndarray,
    place: np.ndarray,
    k: int,
    draw: int,
    picked: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Pick the k smallest entries of each row by place, then by tie-breaker.

    All entries with places below the k-th one's are in, and of those with an equal place the ones
    with the smallest tie-breakers.
    """
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    places, ties = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    for i in range(start, stop):
        first, end = indptr[i], indptr[i + 1]
        if end - first <= k:
            picked[first:end] = True
            continue
        n = end - first
        for at in range(n):
            places[at] = place[items[first + at]]
        last = np.partition(places[:n], k - 1)[k - 1]
        below = 0
        equal = 0
        for at in range(n):
            below += places[at] < last
            if places[at] == last:
                number = (
                    np.uint64(items[first + at]) + np.uint64(1) + (np.uint64(draw) << np.uint64(32))
                )
                ties[equal] = _mix_one(keys[i] + number * _GOLDEN)
                equal += 1
        limit = np.partition(ties[:equal], k - below - 1)[k - below - 1]
        left = k - below
        seen = 0
        for at in range(n):
            if places[at] < last:
                picked[first + at] = True
            elif places[at] == last:
                if ties[seen] < limit:
                    picked[first + at] = True
                    left -= 1
                seen += 1
        seen = 0
        # entries with equal tie-breakers are indistinguishable: take the first ones, up to k
        for at in range(n):
            if places[at] == last:
                if ties[seen] == limit and left > 0:
                    picked[first + at] = True
                    left -= 1
                seen += 1


def _number(user_id: Any) -> int:
    """Hash an id to 64 bits."""
    form = _form(user_id)
    if isinstance(form, int) and -(2**63) <= form < 2**63:
        return form % 2**64
    return int.from_bytes(hashlib.blake2b(repr(form).encode(), digest_size=8).digest(), "little")


def _form(user_id: Any) -> Any:
    """Return one form for each user: equal for the spellings of an id, and for nothing else.

    7, 7.0 and "7" must be the same: one user called "abc" makes a file's whole column of ids text,
    and one called 7.5 makes it floating, and neither may change what the others choose. "007" and
    1.5 next to "1.5" are other users, as in `Ratings` (`discreet.data.ids`): with one form, one of
    two users would decide how old the other is in a timeline. Text never becomes a floating-point
    number: "1e999999" and "2e999999" would both be infinite. Whole numbers are int, texts str, and
    all others bytes, so that their representations differ.
    """
    if isinstance(user_id, np.generic):
        user_id = user_id.item()
    if isinstance(user_id, tuple):
        return tuple(_form(part) for part in user_id)
    if not isinstance(user_id, _WRITTEN) or user_id != user_id:
        raise PrivacyError(
            "user ids must be numbers, text, bytes, dates, UUIDs or tuples of these, because a"
            " user's random choices are derived from the written form of its id"
        )
    if isinstance(user_id, str):
        return parse_id(str(user_id))
    if isinstance(user_id, (int, float, Decimal, Fraction)):
        return _form_of_number(user_id)
    if isinstance(user_id, datetime) and user_id.tzinfo is not None:
        user_id = user_id.astimezone(UTC)  # equal times of two zones are one id
    return repr(user_id).encode()


def _form_of_number(number: Any) -> int | bytes:
    """Return one form for equal numbers of any type."""
    if isinstance(number, Decimal) and (not number.is_finite() or number.adjusted() > 999):
        return repr(number.normalize()).encode()  # no float is as large
    if isinstance(number, float) and math.isinf(number):
        return repr(Decimal(number)).encode()
    if abs(number) < 2**1000 and number == int(number):
        return int(number)
    exact = Fraction(number)
    return f"{exact.numerator:x}/{exact.denominator:x}".encode()  # hexadecimal has no limit
