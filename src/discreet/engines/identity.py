"""Who is who in data that are read piece by piece: 128 bits per user, which follow from its id alone.

A user's rows may come in any piece of the data, so that users cannot be numbered in the order in which they appear.
Instead every id becomes a pair of 64-bit numbers. The first is the one that a user's random choices are drawn from
(`item_sampling.user_numbers`), as for ratings in memory. The second is 0 for an id that is a whole number, and a hash
of the id otherwise, so that "007" and 7, which choose alike, stay two people. Two other ids have the same 128 bits with
a probability of 2⁻⁶⁴ among a thousand million users; then the two would be taken for one person.

Text that is written as a whole number is that number ("7" and "7.0" are 7), whatever the type of its column: a person
whose rows came as numbers in one file and as text in another must not count as two.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.data.encode import (
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
from discreet.privacy.people.item_sampling import user_numbers

WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
_MIX = np.uint64(0x9E3779B97F4A7C15)

Identity = NDArray[np.uint64]  # (n, 2)


def identities(column: Any) -> Identity:
    """The 128 bits of every row's user.

    Parameters
    ----------
    column : arrow array, numpy array, or anything that `Ratings.from_arrays` takes
    """
    if isinstance(column, Coded):
        return _others(list(column.values))[column.codes]
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        chunked = refuse_nulls(column, "user id")
        if is_text(chunked.type):
            coded = as_coded(chunked)
            return _of_values(pa.array(coded.values, pa.string()))[coded.codes]
        if pa.types.is_integer(chunked.type) and not pa.types.is_uint64(chunked.type):
            return _whole(np.concatenate(numpy_chunks(chunked)).astype(np.int64))
    ids = as_ids(column, "user id")
    if ids.dtype == np.int64:
        return _whole(ids)
    distinct: dict[Any, int] = {}
    codes = np.fromiter((distinct.setdefault(one, len(distinct)) for one in ids.tolist()), np.int64, len(ids))
    return _others(list(distinct))[codes]


def block_of(who: Identity, blocks: int) -> NDArray[np.int64]:
    """In which of so many blocks a user is."""
    x = (who[:, 0] ^ (who[:, 1] * _MIX)) * _MIX
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    return (x % np.uint64(blocks)).astype(np.int64)


def _whole(ids: NDArray[np.int64]) -> Identity:
    who = np.zeros((len(ids), 2), np.uint64)
    who[:, 0] = ids.astype(np.uint64)
    return who


def _of_values(texts: pa.Array) -> Identity:
    """Of distinct texts: whole numbers at the speed of arrow."""
    plain = np.asarray(pc.match_substring_regex(texts, WHOLE).to_pylist(), bool)
    who = np.zeros((len(texts), 2), np.uint64)
    if plain.any():
        numbers = texts.filter(pa.array(plain)).cast(pa.int64())
        who[plain] = _whole(np.concatenate(numpy_chunks(pa.chunked_array([numbers]))))
    if not plain.all():
        who[~plain] = _others(texts.filter(pa.array(~plain)).to_pylist())
    return who


def _others(values: list[Any]) -> Identity:
    forms = [canonical(value) for value in values]
    if any(map(stands_for_nothing, forms)):
        raise DataError("a user id is missing, or is a word that stands for a missing one: fill it in or drop the row")
    array = np.fromiter(forms, dtype=object, count=len(forms))
    who = np.zeros((len(forms), 2), np.uint64)
    who[:, 0] = user_numbers(array)
    for at, form in enumerate(forms):
        if not isinstance(form, int) or not -(2**63) <= form < 2**63:
            who[at, 1] = int.from_bytes(hashlib.blake2b(repr(form).encode(), digest_size=8).digest(), "little") | 1
    return who
