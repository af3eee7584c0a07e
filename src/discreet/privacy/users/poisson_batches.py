"""Poisson batches of users.

A batch holds every user with probability q, independently, drawn anew for every batch. An observer
of the released sum does not know whether a user was in it, which lowers the cost of one release
(Abadi et al., 2016; `discreet.privacy.accounting.pricing` prices it for add/remove one user). This
needs three conditions, ensured here or by the session:

1. *Poisson sampling.* Every row has a fresh word of 64 bits, and the user is in the batch when the
   word is below ⌊q 2⁶⁴⌋. Words do not depend on ids, so no two users share one. The size of a batch
   is private.
2. *Secret.* The words are those of AES in counter mode, keyed by the operating system for this
   batch alone, like the noise (`discreet.privacy.noise.sources`). With a `seed` they come from a
   stream of their own, for research, and a session with secure noise refuses such a batch.
3. *Once.* A batch gives one statistic, and each of its rows is computed once: a second sum over the
   same batch would reveal more than two batches do.
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

# separates the sampling of research from noise and starting points of the same seed
_COINS = 0x636F696E
_PER_KEY = 1 << 20  # words drawn with one key, as for noise


class Batch(Users):
    """A sealed Poisson sample of users with a public rate; it gives one statistic."""

    __slots__ = ("_used", "rate", "secret")

    rate: float
    secret: bool
    _used: bool

    @guard("a sum over a batch")
    def sum(self, statistic: Statistic) -> Sum:
        """Return the sum of the statistic over the batch; a second one would reveal more."""
        if self._used:
            raise PrivacyError("a batch can be released only once. Draw another one.")
        statistic.check(self.public)
        adder = self.open(KEY).adder(statistic, self.public)
        self._used = self.rate < 1
        return BatchSum(statistic, self.public, adder, self.rate, self.secret)


@guard("a batch")
def draw_batch(users: Users, rate: float, *, seed: tuple[int, int] | None = None) -> Batch:
    """Sample each user with probability `rate`.

    Parameters
    ----------
    users : Users
    rate : float
        q, above 0 and at most 1.
    seed : (int, int), optional
        Research only: a seed and the number of the batch, in place of secret sampling.

    Privacy: releases nothing. A sum over the batch costs less only if the sampling is independent
    and secret.
    """
    some = users.copy_after(PoissonSample(rate, seed))
    batch = Batch(some.open(KEY), some.public)
    batch.rate = float(rate)
    batch.secret = seed is None
    batch._used = False
    return batch


@dataclass(frozen=True)
class PoissonSample(UserStep):
    """Keep each user with probability `rate`, independently."""

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
        """Derive the seed of a block; with a shared one, equal rows would share their draws."""
        return None if self.seed is None else (*self.seed, *block.key[:1].tolist())


class BatchSum(Sum):
    """A sum over a batch: it has the public rate, and computes each of its rows once."""

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
            raise PrivacyError("a batch can be released only once. Draw another one.")
        self._seen[part] = True
        return super().compute(key, grid=grid, rows=rows)


# ------------------------------------------------------------ Poisson sampling


def who_is_in(block: Block, rate: float, seed: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Mark the users in a batch; only the number of rows is used of the block."""
    return np.ones(block.n, bool) if rate == 1 else throw(block.n, rate, seed)


def throw(n: int, rate: float, seed: tuple[int, ...] | None = None) -> NDArray[np.bool_]:
    """Draw n Bernoulli variables of probability ⌊rate · 2⁶⁴⌋ / 2⁶⁴, which is at most `rate`."""
    return _words(n, seed) < np.uint64(int(rate * 2.0**64))


def _words(n: int, seed: tuple[int, ...] | None) -> NDArray[np.uint64]:
    """Draw n words of 64 bits: from secret keys, or from the seed of a block."""
    if seed is None:
        return np.concatenate(
            [fresh_words()(min(_PER_KEY, n - begin)) for begin in range(0, max(n, 1), _PER_KEY)]
        )
    own = np.random.SeedSequence(seed, spawn_key=(_COINS,))
    return np.random.Generator(np.random.SFC64(own)).integers(
        0, 2**64 - 1, n, dtype=np.uint64, endpoint=True
    )
