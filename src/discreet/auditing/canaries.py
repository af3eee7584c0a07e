"""Canaries: users who move the statistics as far as possible.

A canary is one user and its history; under replace-one, it is a pair of users. `worst_cases` has
the worst cases of single statistics. `mutate_canary` makes another canary from a good one, for a
search that knows nothing about the statistics: it flips the signs of ratings, drops and adds items,
and makes ratings larger or smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings

FAR = 1e6  # far outside any rating range, so that only clipping bounds a contribution
#: Ratings are not limited in size, so every bound must hold for these as well.
SIZES = (1.0, 1.0, 3.0, 1e3, FAR, 1e12)
_ID = 1  # the generated users' ids are large


@dataclass(frozen=True)
class Canary:
    """One user.

    Parameters
    ----------
    label : str
        A description.
    items, values : arrays
    other : Canary, optional
        The user to be replaced, under replace-one.
    user_id : int or str
    copies : int
        Number of rows with this user's id.
    odd : bool
        Whether the library may refuse such a user.
    recipe : Opposite, optional
        The parameters of the pair, for a search that changes them.
    """

    label: str
    items: NDArray[Any]
    values: NDArray[Any]
    other: Canary | None = None
    user_id: Any = _ID
    copies: int = 1
    odd: bool = False
    recipe: Opposite | None = None


@dataclass(frozen=True)
class Opposite:
    """Two users of opposite signs in everything that has a sign, with few items in common.

    The first item has a rating far above the range for one user and far below it for the other, so
    that it holds nearly all of their residuals, with opposite signs. Other ratings are near each
    user's mean, so that their residuals are small. Items in common differ from this level by
    the same amount in both, so that their products with the first item have opposite signs. Every
    other item belongs to one of the two users, which maximizes the difference of counts.

    Parameters
    ----------
    order : tuple of int
        All items: the first one, those in common, those of the first user, those of the second.
    common : tuple of float
        Difference of the items in common from the level, as a share of `FAR`.
    own : int
        Number of items that only the first user has.
    level : float
        Level of all other ratings, as a share of the first one.
    """

    order: tuple[int, ...]
    common: tuple[float, ...] = (-0.2,)
    own: int = 16
    level: float = 0.05

    def make(
        self, low: float, high: float, label: str = "opposite signs, few items in common"
    ) -> Canary:
        """Make the pair of users."""
        items = np.array(self.order)
        shared = 1 + len(self.common)
        sides = items[shared:][: self.own], items[shared:][self.own :]
        first, second = (
            self._user(np.append(items[:shared], own), sign, (low + high) / 2)
            for own, sign in zip(sides, (1.0, -1.0), strict=True)
        )
        return Canary(label, *first, Canary("", *second, user_id=_ID + 1), recipe=self)

    def _user(
        self, items: NDArray[Any], sign: float, center: float
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        values = np.full(len(items), sign * self.level)
        values[0] = sign
        values[1 : 1 + len(self.common)] += self.common
        ascending = np.argsort(items)
        return items[ascending], (center + FAR * values)[ascending]

    def change(self, rng: np.random.Generator) -> Opposite:
        """Make a similar recipe, for the search."""
        kind = rng.integers(5)
        m = len(self.order)
        if kind == 0:
            return replace(self, level=float(self.level + 0.05 * rng.standard_normal()))
        if kind == 1:
            return replace(self, own=int(np.clip(self.own + rng.integers(-6, 7), 1, max(1, m - 5))))
        if kind == 2:
            return replace(
                self,
                common=tuple(float(x * np.exp(0.4 * rng.standard_normal())) for x in self.common),
            )
        if kind == 3:
            order = list(self.order)
            at = rng.integers(1 + len(self.common))
            other = rng.integers(m)
            order[at], order[other] = order[other], order[at]
            return replace(self, order=tuple(order))
        if len(self.common) > 1 and rng.random() < 0.5:
            return replace(self, common=self.common[:-1])
        return replace(self, common=(*self.common, float(0.1 * rng.standard_normal())))


def opposites(n_items: int, low: float, high: float) -> Iterator[Canary]:
    """Generate pairs of opposite signs, with few or many items of their own, or two shared ones."""
    if n_items < 4:
        return
    rare_first = tuple(range(n_items))[::-1]
    yield Opposite(rare_first, own=n_items // 4).make(low, high)
    yield Opposite(rare_first, (-0.35,), n_items // 12).make(low, high)
    last = n_items - 2
    rest = tuple(range(n_items - 2))
    by_turns = (last, last + 1, *rest[::2], *rest[1::2])
    yield Opposite(by_turns, (-0.45,), len(rest[::2]), 0.2).make(low, high)
    two = np.arange(2)
    middle = (low + high) / 2
    other = Canary("", two, middle + FAR * np.array([-1.0, 0.1]), user_id=_ID + 1)
    yield Canary(
        "two items, of which one has the opposite sign",
        two,
        middle + FAR * np.array([1.0, 0.1]),
        other,
    )


def worst_cases(n_items: int, low: float, high: float) -> Iterator[Canary]:
    """Generate worst cases, one or more for every kind of statistic."""
    every = np.arange(n_items)
    ones = np.ones(n_items)
    signs = np.where(every % 2, -1.0, 1.0)
    middle = (low + high) / 2
    random_signs = np.random.default_rng(3).choice([-1.0, 1.0], n_items)
    yield Canary(
        "every item, far above or below the range at random", every, middle + FAR * random_signs
    )
    yield Canary("every item, far above the range", every, FAR * ones)
    yield Canary("every item, far above and below in turn", every, middle + FAR * signs)
    yield Canary("every item at the highest rating", every, high * ones)
    yield Canary("every item at the lowest rating", every, low * ones)
    yield Canary(
        "every item at the ends of the range in turn", every, np.where(signs > 0, high, low)
    )
    yield Canary("a single item at the highest rating", every[:1], high * ones[:1])
    yield Canary("two items at the highest rating", every[:2], high * ones[:2])
    yield Canary("three items at the highest rating", every[:3], high * ones[:3])
    yield Canary("a few items, far above the range", every[:6], FAR * ones[:6])
    yield Canary("every second item, close to zero", every[::2], ones[::2] / FAR)
    yield Canary("no item at all", every[:0], ones[:0])
    yield Canary(
        "ratings that are not finite", every, np.where(every % 3, np.nan, np.inf), odd=True
    )
    far = middle + FAR * random_signs
    yield Canary("every item twice", np.repeat(every, 2), np.repeat(far, 2), odd=True)
    yield Canary("the same user in two rows", every, far, copies=2, odd=True)
    yield Canary("an id that is a string", every, middle + FAR * signs, user_id="canary")


def opposite_pair(n_items: int, low: float, high: float) -> Canary:
    """Make two users with opposite vectors, who differ only in two exchanged, decisive ratings."""
    every = np.arange(n_items)
    values = (low + high) / 2 + FAR * np.random.default_rng(3).choice([-1.0, 1.0], n_items)
    large = FAR**2 * ((every == 0).astype(float) - (every == 1))
    other = Canary("", every, np.where(large == 0, values, -large), user_id=_ID + 1)
    return Canary(
        "two ratings that flip the vector", every, np.where(large == 0, values, large), other
    )


def pair_canary(canary: Canary, n_items: int) -> Canary:
    """Add the most different user to be replaced: with mirrored ratings, or with other items."""
    if len(canary.items) in (0, n_items):
        items = np.arange(n_items)
        center = (
            float(np.nanmean(canary.values))
            if len(canary.values) and np.isfinite(canary.values).all()
            else 3.0
        )
        values = 2 * center - canary.values if len(canary.items) else np.full(n_items, FAR)
    else:
        items = np.setdiff1d(np.arange(n_items), canary.items)
        values = np.full(len(items), -float(np.abs(canary.values).max(initial=1.0)))
    return replace(canary, other=Canary("", items, values, user_id=_ID + 1))


def mutate_canary(
    canary: Canary, n_items: int, low: float, high: float, rng: np.random.Generator
) -> Canary:
    """Make a similar canary, for the search."""
    if canary.recipe is not None:
        return canary.recipe.change(rng).make(low, high, "found by search")
    items = np.unique(canary.items)
    center = (low + high) / 2
    size = float(rng.choice(SIZES)) * (high - low) / 2
    way = rng.choice([-1.0, 1.0], n_items)
    own = np.zeros(n_items)
    own[canary.items] = np.sign(np.nan_to_num(canary.values - center))
    keep = rng.random(n_items) < rng.choice([0.5, 0.9, 1.0])
    signs = np.where(keep & (own != 0), own, way)
    there = np.isin(np.arange(n_items), items)
    kind = rng.integers(3)
    if kind == 0:  # other items
        there = there ^ (rng.random(n_items) < rng.choice([0.05, 0.3]))
    elif kind == 1:  # more or fewer
        there = rng.random(n_items) < rng.choice([0.1, 0.5, 1.0])
    chosen = np.flatnonzero(there)
    found = Canary("found by search", chosen, center + size * signs[chosen])
    if canary.other is None:
        return found
    return replace(
        found,
        other=replace(
            mutate_canary(replace(canary.other, other=None), n_items, low, high, rng), user_id=2
        ),
    )


def join_canary(crowd: Ratings, canary: Canary | None) -> Ratings:
    """Insert the canary as the first user, which shifts the rows of all others."""
    if canary is None:
        return crowd
    counts = [len(canary.items)] * canary.copies
    indptr = np.concatenate([[0], np.cumsum(counts), crowd.indptr[1:] + sum(counts)])
    own_items = np.tile(canary.items, canary.copies)
    own_values = np.tile(canary.values, canary.copies)
    ids = [canary.user_id] * canary.copies
    word = isinstance(canary.user_id, str)
    # One string id makes a whole column of strings when a file is read.
    others = [str(one) for one in crowd.user_ids.tolist()] if word else crowd.user_ids.tolist()
    return Ratings.from_indices(
        indptr,
        np.concatenate([own_items, crowd.indices]),
        np.concatenate([own_values, crowd.values]),
        np.array([*ids, *others], object) if word else np.array([*ids, *others]),
        crowd.item_ids,
        titles=crowd.titles,
        catalog=crowd.catalog,
    )
