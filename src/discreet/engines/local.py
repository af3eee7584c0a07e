"""Ratings in the memory of one machine, in one block or in several."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.privacy.sealed import guard
from discreet.privacy.statistics.base import Block, Public
from discreet.privacy.statistics.bounds import Bounds, check_rows
from discreet.privacy.users.item_sampling import user_keys
from discreet.privacy.users.sealed_users import Users, sealed_block


class RatingsSourceMixin:
    """Public facts about ratings in memory: the catalog, and the rating range on request."""

    _ratings: Ratings

    @property
    def n_items(self) -> int:
        return self._ratings.n_items

    @property
    def item_ids(self) -> NDArray[Any]:
        return self._ratings.item_ids

    @property
    def titles(self) -> NDArray[Any] | None:
        return self._ratings.titles

    @property
    def catalog(self) -> bool:
        return self._ratings.catalog

    @property
    def filtered(self) -> str:
        return self._ratings.filtered

    @property
    def rated(self) -> bool:
        return self._ratings.rated

    @property
    def user_problem(self) -> str:
        return self._ratings.user_problem

    def rating_range(self) -> tuple[float, float] | None:
        return self._ratings.rating_range()


class LocalRatings(RatingsSourceMixin):
    """`Ratings` divided into blocks of users; plain `Ratings` are one block and need no engine.

    Parameters
    ----------
    ratings : Ratings
    parts : int
        Number of blocks: a public number, which must not depend on the data. Releases do not
        depend on it.
    """

    def __init__(self, ratings: Ratings, parts: int = 1) -> None:
        if isinstance(parts, bool) or not isinstance(parts, int) or parts < 1:
            raise ConfigError(f"parts is {parts!r}, but must be a whole number of at least 1")
        self._ratings = ratings
        self.parts = parts

    @property
    def engine(self) -> str:
        """Where the ratings were, for the ledger."""
        return f"memory: users are in {self.parts:,} blocks in the memory of one machine"

    @guard("sealed ratings")
    def seal(self, bounds: Bounds, *, seed: int = 0) -> Users:
        ratings = self._ratings
        check_rows(ratings)
        keys = user_keys(ratings.user_ids, seed)
        blocks = [
            self._block(begin, end, keys, bounds)
            for begin, end in itertools.pairwise(self._cuts(len(keys)))
        ]
        return Users(blocks, Public(bounds, ratings.n_items))

    def _cuts(self, n: int) -> list[int]:
        """Return the boundaries, from 0 to n, that divide n users into blocks."""
        return [n * part // self.parts for part in range(self.parts + 1)]

    def _block(self, begin: int, end: int, keys: NDArray[np.uint64], bounds: Bounds) -> Block:
        indptr = self._ratings.indptr[begin : end + 1]
        entries = slice(indptr[0], indptr[-1])
        values = self._ratings.values[entries]
        return sealed_block(
            indptr - indptr[0], self._ratings.indices[entries], values, keys[begin:end], bounds
        )

    def __repr__(self) -> str:
        return f"<LocalRatings: {self.n_items:,} items, {self.parts} blocks>"
