"""Ratings that are public: read from any form, over the items of the private ones."""

from __future__ import annotations

import logging
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError
from discreet.models.user_rows import to_learn_from
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.public_users import PublicUsers

logger = logging.getLogger("discreet")


def check_confirmed_by(name: Any, public_ratings: Any) -> str:
    """Return who confirmed that ratings are public; refuse a name that is blank or of nothing."""
    if not isinstance(name, str):
        raise ConfigError(
            f"public_confirmed_by must be text, such as a name, not a {type(name).__name__}."
        )
    if name and not name.strip():
        raise ConfigError("public_confirmed_by is blank. Pass a name, or leave it out.")
    if name and public_ratings is None:
        raise ConfigError("public_confirmed_by needs public ratings. Pass public_ratings.")
    return name.strip()


class PublicPart(NamedTuple):
    """Public users of a training.

    user_ids : their ids, which are left out of the private part
    users : their ratings
    """

    user_ids: NDArray[Any]
    users: PublicUsers

    @classmethod
    def from_any(
        cls,
        given: Any,
        item_ids: NDArray[Any],
        bounds: Bounds,
        rating_range: tuple[float, float] | None = None,
        liked: float | None = None,
        needs_ratings: bool = False,
    ) -> PublicPart:
        """Read `given`; ratings of other items than these are dropped.

        Where most are outside of `rating_range`, they are refused: they are of another scale.
        Interactions without ratings count as `liked`, if it is given, and are refused where the
        model needs ratings.
        """
        if hasattr(given, "tocsr"):
            raise DataError(
                "public_ratings is a matrix without user ids, by which public users are left out of"
                " the private part. Pass Ratings.from_csr(matrix, user_ids)."
            )
        if isinstance(given, str | os.PathLike):
            ratings = Ratings.read(given)
        else:
            ratings = to_learn_from(given)
        there = ratings.item_index(item_ids) >= 0
        if not there.any():
            raise DataError(
                "public_ratings has none of the items of the ratings: its ids are such as"
                f" {ratings.item_ids.tolist()[0]!r}. Use the same item ids."
            )
        known = ratings.with_items(np.asarray(item_ids), unknown="drop")
        if not known.rated and needs_ratings:
            raise DataError(
                "public_ratings has no ratings, and this model predicts ratings. Pass ratings, or"
                " train with goal='ranking'."
            )
        if not known.rated and liked is not None:
            known = known._replace(values=np.full_like(known.values, liked))
        low, high = rating_range or (-np.inf, np.inf)
        outside = (known.values < low) | (known.values > high)
        if outside.sum() > len(outside) / 2:
            seen = (float(known.values.min()), float(known.values.max()))
            raise DataError(
                f"public_ratings are from {seen[0]:g} to {seen[1]:g}, but the range of ratings is"
                f" {low:g} to {high:g}. Bring them to the same scale."
            )
        if rating_range is not None and (known.values == low).all():
            logger.warning(
                "all public_ratings are %g, the lowest of the range, so nothing is liked. Pass"
                " interactions without ratings, or ratings of the same scale.",
                low,
            )
        return cls(ratings.user_ids, PublicUsers.from_ratings(known, bounds))

    def describe(self, confirmed_by: str) -> str:
        """Say what is taken to be public, and who said so."""
        who = f"confirmed by {confirmed_by}" if confirmed_by else "without a name who confirmed it"
        many = len(self.user_ids)
        return (
            f"the ratings of {many:,} user{'s' * (many != 1)} in public_ratings, who are not"
            f" protected and whose rows are left out of the private part ({who})"
        )
