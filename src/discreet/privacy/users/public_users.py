"""Users whose ratings are public: exact sums over them, and their removal from the private part.

Some users have consented to publish their ratings, or the ratings are another public data set. What
is computed from them costs no privacy, so they are not sealed. They must not be in the private part
as well: `RemoveUsers` drops them there. Each user decides by its own key and public values ("my key
is in the published list"), so that neighboring data stay neighboring and every sensitivity holds.
Refusing data in which a user is in both parts would reveal that the user is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.item_sampling import user_keys
from discreet.privacy.users.sealed_users import MemoryPartitions, sealed_block
from discreet.privacy.users.steps import PER_USER, UserStep


@dataclass(frozen=True)
class RemoveUsers(UserStep):
    """Drop the users with these keys (public), whatever they have rated.

    Parameters
    ----------
    keys : (k,) uint64, ascending
        By `user_keys`, with the seed of the training.
    """

    keys: NDArray[np.uint64]

    what = "users who are not public"

    @classmethod
    def from_ids(cls, user_ids: NDArray[Any], seed: int) -> RemoveUsers:
        return cls(np.unique(user_keys(user_ids, seed)))

    def check(self, public: Public) -> Public:
        if self.keys.ndim != 1 or self.keys.dtype != np.uint64:
            raise ConfigError("users are removed by their keys: pass whole numbers of 64 bits")
        return Public(public.bounds, public.n_items)

    def run(self, block: Block, public: Public) -> Block:
        return keep_users(block, ~np.isin(block.key, self.keys))


def keep_users(block: Block, keep: NDArray[np.bool_]) -> Block:
    """Return the block with these users only."""
    entries = np.repeat(keep, block.counts)
    indptr = np.concatenate(([0], np.cumsum(block.counts[keep], dtype=np.int64)))
    state = {name: block.state[name][keep] for name in PER_USER if name in block.state}
    return Block(
        indptr,
        block.indices[entries],
        block.values[entries],
        block.mean[keep],
        block.key[keep],
        state,
    )


class PublicUsers:
    """Users whose ratings are public, with the operations of sealed `Users`; sums are exact arrays.

    Parameters
    ----------
    block : Block
    public : Public
    """

    def __init__(self, block: Block, public: Public) -> None:
        self.block = block
        self.public = public

    @classmethod
    def from_ratings(cls, ratings: Ratings, bounds: Bounds) -> PublicUsers:
        keys = np.zeros(ratings.n_users, np.uint64)
        block = sealed_block(ratings.indptr, ratings.indices, ratings.values, keys, bounds)
        return cls(block, Public(bounds, ratings.n_items))

    @property
    def n_items(self) -> int:
        return self.public.n_items

    def apply(self, step: UserStep) -> None:
        known = step.check(self.public)
        self.block = step.run(self.block, self.public)
        self.public = known

    def copy_after(self, step: UserStep) -> PublicUsers:
        known = step.check(self.public)
        return PublicUsers(step.run(self.block, self.public), known)

    def select(self, keep: NDArray[np.bool_]) -> PublicUsers:
        """Return these users only."""
        return PublicUsers(keep_users(self.block, keep), self.public)

    def sum(self, statistic: Statistic) -> NDArray[Any]:
        """Return the exact sum over these users, in real numbers."""
        statistic.check(self.public)
        adder = MemoryPartitions((self.block,)).adder(statistic, self.public)
        compute = statistic.transform(adder, self.public)
        return np.asarray(compute(None, slice(0, statistic.shape(self.public)[0])))
