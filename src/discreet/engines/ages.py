"""Weights of users by age, looked up in a secret table by a keyed hash of their id.

The hash is SipHash of the number of the user's id (`item_sampling.user_numbers`), which is the same
for ratings in memory, in block files and in Spark, and differs for all users that `Ratings` tells
apart: for a whole number it is the id itself, for all others a 64-bit hash of their only form. So
another one of n users has the same hash with a probability of n/2⁶⁴, far below δ. On a cluster the
workers compute it, and the table is sent to them with the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.engines.block_format import SEED
from discreet.engines.user_hash import Secret, identities, siphash
from discreet.errors import ConfigError
from discreet.privacy.accounting.age_weights import ONE
from discreet.privacy.statistics.base import AGE_WEIGHT, Block, Public
from discreet.privacy.users.item_sampling import keys_of
from discreet.privacy.users.steps import UserStep


@dataclass(frozen=True, repr=False)  # a repr would print who is there
class AgeUsers(UserStep):
    """Weigh every user by the table; users who are not in it have weight 0.

    Parameters
    ----------
    key : (2,) uint64
        Of the hashes.
    hashes : (n,) uint64, ascending and distinct
    units : (n,) int64, from 0 to 2²⁰
    """

    key: NDArray[np.uint64]
    hashes: NDArray[np.uint64]
    units: NDArray[np.int64]

    what = "weights of users by age"

    def check(self, public: Public) -> Public:
        if self.units.min(initial=0) < 0 or self.units.max(initial=0) > ONE:
            raise ConfigError("weights by age must be from 0 to 1")
        return public

    def run(self, block: Block, public: Public) -> Block:
        who = siphash(block.key, *self.key)[:, 0]
        return block.with_state(**{AGE_WEIGHT: look_up(who, self.hashes, self.units) / ONE})


def look_up(
    who: NDArray[np.uint64], hashes: NDArray[np.uint64], values: NDArray[Any]
) -> NDArray[Any]:
    """Return the value of each hash in an ascending table, 0 where it is not there."""
    if not len(hashes):
        return np.zeros(len(who), values.dtype)
    at = np.minimum(np.searchsorted(hashes, who), len(hashes) - 1)
    return np.where(hashes[at] == who, values[at], np.zeros(1, values.dtype))


def hash_ids(ids: Any, secret: Secret) -> NDArray[np.uint64]:
    """Return the keyed hash of each id."""
    who = identities(ids, secret)
    numbers = secret.decrypt(np.ascontiguousarray(who[:, 0]), who[:, 2])
    return siphash(keys_of(numbers, SEED), *secret.age_key)[:, 0]


@runtime_checkable
class HashesUsers(Protocol):
    """Ratings elsewhere, in files or on a cluster, whose users are hashed there."""

    def hash_users(self, age_key: NDArray[np.uint64], least: int) -> NDArray[np.uint64]: ...


def hash_users(ratings: Ratings | HashesUsers, secret: Secret, least: int) -> NDArray[np.uint64]:
    """Return the keyed hashes of the users with at least so many ratings: secret."""
    if isinstance(ratings, Ratings):
        return hash_ids(ratings.user_ids, secret)[np.diff(ratings.indptr) >= least]
    return ratings.hash_users(secret.age_key, least)
