"""Who is added to the crowd: people who go as far as anybody can, guessed first, and then searched
for.

A canary is one user with a history of its own; where one user is replaced by another, it is two
histories. The guesses are the worst cases of single statistics. `changed` makes another canary out
of a good one, for a search that knows nothing of the statistics: it turns ratings over, drops and
adds items, and makes ratings larger or smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings

FAR = 1e6
#: Nothing forbids ratings like these, so a bound has to hold for them as well.
SIZES = (1.0, 1.0, 3.0, 1e3, FAR, 1e12)
_ID = 1  # everybody else's is large


@dataclass(frozen=True)
class Canary:
    """One user.

    Parameters
    ----------
    label : str
        In words.
    items, values : arrays
    other : Canary, optional
        Who is there instead, where users are replaced.
    user_id : int or str
    copies : int
        How many rows have this user's id.
    odd : bool
        Whether the library may refuse such a user.
    recipe : Opposite, optional
        What the pair was made from, for a search that changes it.
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
    that nearly all of their residuals are in it, with opposite signs. Other ratings are on a level
    near each user's own mean, so that little is left of them. Items in common are off this level by
    the same amount in both, so that their products with the first item have opposite signs. All
    other items belong to one user or to the other, which is as far apart as counts can be.

    Parameters
    ----------
    order : tuple of int
        All items: the first one, those in common, then the first user's own and the second user's.
    common : tuple of float
        By how much the items in common are off the level, as a share of `FAR`.
    own : int
        How many items the first user has alone.
    level : float
        Of all other ratings, as a share of the first one.
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
        """Make another recipe, near this one."""
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
    """Pairs of opposite signs: with few own items or every second one, and with no item but two
    in common.
    """
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
    """Worst cases, one or more for every kind of statistic there is."""
    every = np.arange(n_items)
    ones = np.ones(n_items)
    signs = np.where(every % 2, -1.0, 1.0)
    middle = (low + high) / 2
    lots = np.random.default_rng(3).choice([-1.0, 1.0], n_items)
    yield Canary(
        "every item, far beyond the range, either way at random", every, middle + FAR * lots
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
        "ratings that are no numbers", every, np.where(every % 3, np.nan, np.inf), odd=True
    )
    yield Canary(
        "every item twice", np.repeat(every, 2), np.repeat(middle + FAR * lots, 2), odd=True
    )
    yield Canary("the same user in two rows", every, middle + FAR * lots, copies=2, odd=True)
    yield Canary("an id that is a word", every, middle + FAR * signs, user_id="canary")


def opposite_pair(n_items: int, low: float, high: float) -> Canary:
    """Two who contribute the same ratings and have opposite vectors: two ratings decide these,
    and are exchanged.
    """
    every = np.arange(n_items)
    values = (low + high) / 2 + FAR * np.random.default_rng(3).choice([-1.0, 1.0], n_items)
    large = FAR**2 * ((every == 0).astype(float) - (every == 1))
    other = Canary("", every, np.where(large == 0, values, -large), user_id=_ID + 1)
    return Canary(
        "two ratings that turn the vector over", every, np.where(large == 0, values, large), other
    )


def pair_canary(canary: Canary, n_items: int) -> Canary:
    """The canary with somebody in its place who differs as much as can be: mirrored ratings, or
    other items.
    """
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
    """Another canary, near this one."""
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
    """The crowd with the canary before it: whoever comes first moves everybody else's row."""
    if canary is None:
        return crowd
    counts = [len(canary.items)] * canary.copies
    indptr = np.concatenate([[0], np.cumsum(counts), crowd.indptr[1:] + sum(counts)])
    own_items = np.tile(canary.items, canary.copies)
    own_values = np.tile(canary.values, canary.copies)
    ids = [canary.user_id] * canary.copies
    word = isinstance(canary.user_id, str)
    # as a file is read
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
