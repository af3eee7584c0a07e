"""Keyed 128-bit hashes of user ids, for data that are read in parts.

A user's rows may be in any part of the data, so users cannot be numbered in the order of
appearance. Instead every id becomes a keyed 128-bit hash. The key is a random secret of the folder
that the ratings are written to (`Secret`). Without it, neither the hash nor the position of a user
in the folder reveals anything about the id, and ids with equal hashes cannot be searched for.

- An id that is a 64-bit integer: SipHash-2-4 with 128 bits of output, compiled.
- Any other id: BLAKE2b of its canonical form, with 128 bits of output.

Among n users, two have the same hash with a probability of about n²/2¹²⁹: 2⁻⁶⁹ for a billion
users. They would be treated as one user.

Text that is written as an integer is that number ("7" and "7.0" are 7), whatever the type of its
column: a user whose rows are numbers in one file and text in another must not count as two. "007"
is text, and another user.

The hash comes with the number that seeds a user's random choices (`item_sampling.user_numbers`).
It must be the same as for ratings in memory, and for an integer it is the id itself. So it is
encrypted by exclusive or with a keyed hash of the user's own hash (the SIV construction), and
decrypted when a block is sealed.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import compress
from operator import not_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.data.ids import (
    Coded,
    as_coded,
    as_ids,
    canonical,
    is_text,
    numpy_chunks,
    refuse_nulls,
    stands_for_nothing,
)
from discreet.errors import DataError
from discreet.privacy.users.item_sampling import user_numbers

WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
SECRET_BYTES = 32  # 256 bits: beyond any search

#: (n, 3) per user: two halves of the keyed hash, and the encrypted seed of random choices
Identity = NDArray[np.uint64]


class Secret:
    """Random secret of one folder of ratings, and the keys derived from it.

    Parameters
    ----------
    data : bytes, optional
        32 saved bytes; by default, fresh ones from the operating system.
    """

    __slots__ = ("_encryption_key", "_text_key", "_whole_key", "age_key", "data")

    def __init__(self, data: bytes | None = None) -> None:
        self.data = secrets.token_bytes(SECRET_BYTES) if data is None else bytes(data)
        if len(self.data) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes")
        self._text_key = self._derive(b"text", 32)
        self._whole_key = np.frombuffer(self._derive(b"whole", 16), "<u8").astype(np.uint64)
        self._encryption_key = np.frombuffer(self._derive(b"encrypt", 16), "<u8").astype(np.uint64)
        self.age_key = np.frombuffer(self._derive(b"age", 16), "<u8").astype(np.uint64)

    def _derive(self, purpose: bytes, size: int) -> bytes:
        return hashlib.blake2b(key=self.data, person=purpose, digest_size=size).digest()

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self.data,)

    def __repr__(self) -> str:
        return "<secret of a folder>"

    def check_value(self) -> str:
        """Return text by which a folder recognizes its secret, and which does not reveal it."""
        return self._derive(b"check", 16).hex()

    def hash_whole(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the (n, 2) hashes of 64-bit integers."""
        return siphash(ids.astype(np.uint64, copy=False), *self._whole_key)

    def hash_forms(self, forms: list[Any]) -> NDArray[np.uint64]:
        """Return the (n, 2) hashes of ids in canonical form that are not 64-bit integers."""
        found = (
            hashlib.blake2b(repr(form).encode(), key=self._text_key, digest_size=16).digest()
            for form in forms
        )
        return np.frombuffer(b"".join(found), "<u8").reshape(-1, 2)

    def encrypt(
        self, hashes: NDArray[np.uint64], numbers: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """Return the numbers encrypted, each by the first half of its own user's hash."""
        encrypted: NDArray[np.uint64] = numbers ^ siphash(hashes, *self._encryption_key)[:, 0]
        return encrypted

    decrypt = encrypt  # exclusive or with the same bits is its own inverse


def identities(column: Any, secret: Secret) -> Identity:
    """Return the keyed hash and the encrypted number of every row's user.

    Parameters
    ----------
    column : arrow array, numpy array, or anything that `Ratings.from_arrays` takes
    secret : Secret
    """
    if isinstance(column, Coded):
        return _others(list(column.values), secret)[column.codes]
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        chunked = refuse_nulls(column, "user id")
        if is_text(chunked.type):
            coded = as_coded(chunked)
            return _of_values(pa.array(coded.values, pa.string()), secret)[coded.codes]
        if pa.types.is_integer(chunked.type) and not pa.types.is_uint64(chunked.type):
            return _whole(np.concatenate(numpy_chunks(chunked)).astype(np.int64), secret)
    ids = as_ids(column, "user id")
    if ids.dtype == np.int64:
        return _whole(ids, secret)
    distinct: dict[Any, int] = {}
    codes = np.fromiter(
        (distinct.setdefault(one, len(distinct)) for one in ids.tolist()), np.int64, len(ids)
    )
    return _others(list(distinct), secret)[codes]


def block_of(who: Identity, blocks: int) -> NDArray[np.int64]:
    """Return the block of each user among `blocks`, by the keyed hash."""
    return (who[:, 1] % np.uint64(blocks)).astype(np.int64)


def _whole(ids: NDArray[np.int64], secret: Secret) -> Identity:
    """Return the identities of integers; rows of one user are often adjacent, and hashed once."""
    starts = np.flatnonzero(np.append(np.ones(min(len(ids), 1), bool), ids[1:] != ids[:-1]))
    own = ids[starts]
    who = _with_numbers(secret.hash_whole(own), own.astype(np.uint64), secret)
    return who if len(own) == len(ids) else np.repeat(who, np.diff(starts, append=len(ids)), axis=0)


def run_starts(who: Identity) -> NDArray[np.int64]:
    """Return where runs of adjacent rows of one user begin."""
    new = np.ones(len(who), bool)
    new[1:] = (who[1:, 0] != who[:-1, 0]) | (who[1:, 1] != who[:-1, 1])
    return np.flatnonzero(new)


def rows_of_runs(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row numbers of runs, one run after the other."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _with_numbers(
    hashes: NDArray[np.uint64], numbers: NDArray[np.uint64], secret: Secret
) -> Identity:
    return np.column_stack([hashes, secret.encrypt(np.ascontiguousarray(hashes[:, 0]), numbers)])


def _of_values(texts: pa.Array, secret: Secret) -> Identity:
    """Return the identities of distinct texts; arrow converts those that are integers."""
    plain = np.asarray(pc.match_substring_regex(texts, WHOLE).to_pylist(), bool)
    who = np.zeros((len(texts), 3), np.uint64)
    if plain.any():
        numbers = texts.filter(pa.array(plain)).cast(pa.int64())
        who[plain] = _whole(np.concatenate(numpy_chunks(pa.chunked_array([numbers]))), secret)
    if not plain.all():
        who[~plain] = _others(texts.filter(pa.array(~plain)).to_pylist(), secret)
    return who


def _others(values: list[Any], secret: Secret) -> Identity:
    forms = [canonical(value) for value in values]
    if any(map(stands_for_nothing, forms)):
        raise DataError(
            "a user id is missing or is a placeholder for a missing value: fill it in or drop the"
            " row"
        )
    forms = [form if isinstance(form, str) else _equal_form(form) for form in forms]
    whole = [isinstance(form, int) and -(2**63) <= form < 2**63 for form in forms]
    hashes = np.zeros((len(forms), 2), np.uint64)
    hashes[whole] = secret.hash_whole(np.array(list(compress(forms, whole)), np.int64))
    hashes[np.logical_not(whole)] = secret.hash_forms(
        [*map(_one_form, compress(forms, map(not_, whole)))]
    )
    numbers = user_numbers(np.fromiter(forms, dtype=object, count=len(forms)))
    return _with_numbers(hashes, numbers, secret)


def _equal_form(form: Any) -> Any:
    """Return one form for equal integers of any type, as `Ratings` does: 2.0**60 and 2**60."""
    if isinstance(form, tuple):
        return tuple(map(_equal_form, form))
    number: Any = (
        form if isinstance(form, (int, float, Decimal, Fraction)) and form == form else None
    )
    if number is not None and abs(number) < 2**1000 and number == int(number):
        return int(number)
    return form


def _one_form(form: Any) -> Any:
    """Return one form for equal ids, as `Ratings` treats them: 1.5 and Decimal("1.50")."""
    if isinstance(form, tuple):
        return tuple(map(_one_form, form))
    if isinstance(form, (float, Decimal)) and math.isfinite(form):
        return Fraction(form)
    if isinstance(form, datetime) and form.tzinfo is not None:
        return form.astimezone(UTC)
    return form


# ------------------------------------------------------------------ SipHash


@njit(nogil=True, cache=True)
def _turn(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@njit(nogil=True, cache=True)
def _rounds(v0: Any, v1: Any, v2: Any, v3: Any, count: int) -> Any:
    for _ in range(count):
        v0 += v1
        v2 += v3
        v1 = _turn(v1, 13) ^ v0
        v3 = _turn(v3, 16) ^ v2
        v0 = _turn(v0, 32)
        v2 += v1
        v0 += v3
        v1 = _turn(v1, 17) ^ v2
        v3 = _turn(v3, 21) ^ v0
        v2 = _turn(v2, 32)
    return v0, v1, v2, v3


@njit(nogil=True, cache=True)
def _siphash(words: np.ndarray, key_0: np.uint64, key_1: np.uint64, out: np.ndarray) -> None:
    for at in range(len(words)):
        v0 = key_0 ^ np.uint64(0x736F6D6570736575)
        v1 = key_1 ^ np.uint64(0x646F72616E646F6D ^ 0xEE)
        v2 = key_0 ^ np.uint64(0x6C7967656E657261)
        v3 = key_1 ^ np.uint64(0x7465646279746573)
        for word in (words[at], np.uint64(8 << 56)):  # the message, and its length in bytes
            v3 ^= word
            v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 2)
            v0 ^= word
        v2 ^= np.uint64(0xEE)
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 4)
        out[at, 0] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 4)
        out[at, 1] = v0 ^ v1 ^ v2 ^ v3


def siphash(words: NDArray[np.uint64], key_0: np.uint64, key_1: np.uint64) -> NDArray[np.uint64]:
    """Return SipHash-2-4-128 (Aumasson and Bernstein, 2012) of each word of 8 bytes, as (n, 2)."""
    out = np.empty((len(words), 2), np.uint64)
    _siphash(words, key_0, key_1, out)
    return out
