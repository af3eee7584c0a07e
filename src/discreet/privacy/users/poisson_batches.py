"""Poisson batches of users.

A batch holds every user with probability q, independently, by a coin that is thrown anew for every
batch. Whoever sees the released sum does not know whether a user was in it at all, and that lowers
the price of one release (Abadi et al., 2016; `discreet.privacy.accounting.pricing` prices it for
add/remove one user). Three things are needed for that, and all are seen to here or by the session:

1. *Really Poisson.* Every row throws a coin of its own: a fresh word of 64 bits, and the user is in
   the batch when the word is below ⌊q 2⁶⁴⌋. Coins have nothing to do with ids, so no two users
   share one. A batch's size is private.
2. *Secret.* The words are those of AES in counter mode, keyed by the operating system for this
   batch alone, like the noise (`discreet.privacy.noise.sources`). With a `seed` they come from a
   stream of their own, which is for research, and a session with secure noise refuses such a batch.
3. *Once.* A batch gives one statistic, and each of its rows is computed once: a second sum over the
   same batch would show more than two batches do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError, PrivacyError
from discreet.privacy.noise.sources import fresh_words
from discreet.privacy.sealed import KEY, Key, guard
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.statistics.sums import Compute, Sum
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import UserStep

# keeps the coins of research apart from noise and starting points of the same seed
_COINS = 0x636F696E
_PER_KEY = 1 << 20  # coins thrown with one key, as for noise


class Batch(Users):
    """Some of the users, sealed. Public: with which probability each is there. It gives one
    statistic.
    """

    __slots__ = ("_used", "rate", "secret")

    rate: float
    secret: bool
    _used: bool

    @guard("a sum over a batch")
    def sum(self, statistic: Statistic) -> Sum:
        """Return the sum of the statistic over the batch; a second one would show more."""
        if self._used:
            raise PrivacyError("a batch is released once: draw another one")
        statistic.check(self.public)
        adder = self.open(KEY).adder(statistic, self.public)
        self._used = self.rate < 1
        return BatchSum(statistic, self.public, adder, self.rate, self.secret)


@guard("a batch")
def draw_batch(users: Users, rate: float, *, seed: tuple[int, int] | None = None) -> Batch:
    """Each user with probability `rate`.

    Parameters
    ----------
    users : Users
    rate : float
        q, above 0 and at most 1.
    seed : (int, int), optional
        Research only: a seed and the number of the batch, in place of secret coins.

    Privacy: releases nothing. That a sum over the batch costs less holds for coins that are
    independent and unknown.
    """
    some = users.copy_after(PoissonSample(rate, seed))
    batch = Batch(some.open(KEY), some.public)
    batch.rate = float(rate)
    batch.secret = seed is None
    batch._used = False
    return batch


@dataclass(frozen=True)
class PoissonSample(UserStep):
    """Each user stays with probability `rate`, by a coin of its own."""

    rate: float
    seed: tuple[int, int] | None = None

    what = "a batch"
    repeatable = False

    def check(self, public: Public) -> Public:
        if not 0 < self.rate <= 1:
            raise ConfigError(f"rate is {self.rate!r}, but must be above 0 and at most 1")
        return Public(public.bounds, public.n_items)

    def run(self, block: Block, public: Public) -> Block:
        there = who_is_in(block, self.rate, self._own_seed(block))
        kept = there[block.row]
        indptr = np.concatenate([[0], np.cumsum(block.counts[there])])
        return Block(
            indptr, block.indices[kept], block.values[kept], block.mean[there], block.key[there]
        )

    def _own_seed(self, block: Block) -> tuple[int, ...] | None:
        """Of research: another one for every block of users, or those at the same place in two
        would share a coin.
        """
        return None if self.seed is None else (*self.seed, *block.key[:1].tolist())


class BatchSum(Sum):
    """A sum over a batch: it says how large a part of the users that is, and shows each of its
    rows once.
    """

    __slots__ = ("_seen", "rate", "secret")

    def __init__(
        self, statistic: Statistic, public: Public, adder: Compute, rate: float, secret: bool
    ) -> None:
        super().__init__(statistic, public, adder)
        self.rate = rate
        self.secret = secret
        self._seen = np.zeros(self.shape[0], bool)

    def compute(
        self, key: Key, *, grid: float | None = None, rows: slice | None = None
    ) -> NDArray[Any]:
        part = rows or slice(None)
        if self.rate < 1 and self._seen[part].any():
            raise PrivacyError("a batch is released once: draw another one")
        self._seen[part] = True
        return super().compute(key, grid=grid, rows=rows)


# ------------------------------------------------------------ coins


def who_is_in(block: Block, rate: float, seed: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Which users are in a batch, by a coin for each row. Of the rows, only their number is
    used.
    """
    return np.ones(block.n, bool) if rate == 1 else throw(block.n, rate, seed)


def throw(n: int, rate: float, seed: tuple[int, ...] | None = None) -> NDArray[np.bool_]:
    """Which of n independent coins fall, each with probability ⌊rate · 2⁶⁴⌋ / 2⁶⁴, which is not
    above `rate`.
    """
    return _words(n, seed) < np.uint64(int(rate * 2.0**64))


def _words(n: int, seed: tuple[int, ...] | None) -> NDArray[np.uint64]:
    """n words of 64 bits: from keys that nobody knows, or from a seed, the number of a batch
    and that of a block.
    """
    if seed is None:
        return np.concatenate(
            [fresh_words()(min(_PER_KEY, n - begin)) for begin in range(0, max(n, 1), _PER_KEY)]
        )
    own = np.random.SeedSequence(seed, spawn_key=(_COINS,))
    return np.random.Generator(np.random.SFC64(own)).integers(
        0, 2**64 - 1, n, dtype=np.uint64, endpoint=True
    )
