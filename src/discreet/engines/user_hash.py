"""Keyed 128-bit hashes of user ids, for data that are read piece by piece.

A user's rows may come in any piece of the data, so that users cannot be numbered in the order in
which they appear. Instead every id becomes one keyed 128-bit hash. The key is a random secret of
the folder that the ratings are written to (`Secret`), so that neither the hash nor the place of a
user in the folder says anything about the id to a reader without the secret, and so that two ids
with the same hash cannot be searched for.

- An id that is a whole number of 64 bits: SipHash-2-4 with 128 bits of output, compiled.
- Any other id: BLAKE2b of its canonical form, with 128 bits of output.

Among n users, two have the same hash with a probability of about n²/2¹²⁹: 2⁻⁶⁹ for a thousand
million users. They would be taken for one person.

Text that is written as a whole number is that number ("7" and "7.0" are 7), whatever the type of
its column: a person whose rows came as numbers in one file and as text in another must not count as
two. "007" is text, and another person.

With the hash goes the number from which a user's random choices are drawn
(`item_sampling.user_numbers`). It has to be the same as for ratings in memory, and for a whole
number it is the id itself. So it is encrypted, by exclusive or with a keyed hash of the user's own
hash (the construction of SIV), and decrypted when a block is sealed.
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
SECRET_BYTES = 32

#: (n, 3) of a user: two halves of the keyed hash, and the number of its random choices, encrypted
Identity = NDArray[np.uint64]


class Secret:
    """The random secret of one folder of ratings, and the keys that are derived from it.

    Parameters
    ----------
    data : bytes, optional
        32 bytes, as they were saved; without them, fresh ones from the operating system.
    """

    __slots__ = ("_encryption_key", "_text_key", "_whole_key", "data")

    def __init__(self, data: bytes | None = None) -> None:
        self.data = secrets.token_bytes(SECRET_BYTES) if data is None else bytes(data)
        if len(self.data) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes")
        self._text_key = self._derive(b"text", 32)
        self._whole_key = np.frombuffer(self._derive(b"whole", 16), "<u8").astype(np.uint64)
        self._encryption_key = np.frombuffer(self._derive(b"encrypt", 16), "<u8").astype(np.uint64)

    def _derive(self, purpose: bytes, size: int) -> bytes:
        return hashlib.blake2b(key=self.data, person=purpose, digest_size=size).digest()

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self.data,)

    def __repr__(self) -> str:
        return "<secret of a folder>"

    def check_value(self) -> str:
        """Return text by which a folder recognizes its own secret, and which says nothing about
        it.
        """
        return self._derive(b"check", 16).hex()

    def hash_whole(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the (n, 2) hashes of whole numbers."""
        return siphash(ids.astype(np.uint64, copy=False), *self._whole_key)

    def hash_forms(self, forms: list[Any]) -> NDArray[np.uint64]:
        """Return the (n, 2) hashes of ids in their canonical form, none of them a whole number
        of 64 bits.
        """
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

    decrypt = encrypt  # adding the same bits again takes them away


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
    """Return in which of so many blocks each user is, by the keyed hash."""
    return (who[:, 1] % np.uint64(blocks)).astype(np.int64)


def _whole(ids: NDArray[np.int64], secret: Secret) -> Identity:
    return _with_numbers(secret.hash_whole(ids), ids.astype(np.uint64), secret)


def _with_numbers(
    hashes: NDArray[np.uint64], numbers: NDArray[np.uint64], secret: Secret
) -> Identity:
    return np.column_stack([hashes, secret.encrypt(np.ascontiguousarray(hashes[:, 0]), numbers)])


def _of_values(texts: pa.Array, secret: Secret) -> Identity:
    """Return those of distinct texts: whole numbers at the speed of arrow."""
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
            "a user id is missing, or is a word that stands for a missing one: fill it in or drop"
            " the row"
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
    """Return one form for whole numbers of any type, which are one id for `Ratings`: 2.0**60
    and 2**60.
    """
    if isinstance(form, tuple):
        return tuple(map(_equal_form, form))
    number: Any = (
        form if isinstance(form, (int, float, Decimal, Fraction)) and form == form else None
    )
    if number is not None and abs(number) < 2**1000 and number == int(number):
        return int(number)
    return form


def _one_form(form: Any) -> Any:
    """Return one form for ids that are equal, as they are one id for `Ratings`: 1.5 and
    Decimal("1.50").
    """
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
