"""Ratings that are public: read from any form, over the items of the private ones."""

from __future__ import annotations

import logging
import os
import unicodedata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError, type_name
from discreet.models.user_rows import is_table, to_learn_from
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.public_users import PublicUsers

logger = logging.getLogger("discreet")


LONGEST_NAME = 200  # characters: a name with its office, on one line of the statement
# controls, line and paragraph separators, halves of surrogate pairs, and changes of text direction
_NO_TEXT = {"Cc", "Zl", "Zp", "Cs"}
_DIRECTIONS = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_confirmed_by(name: Any, public_ratings: Any) -> str:
    """Return who confirmed that ratings are public; refuse a name that is blank, long or more than
    a line of text.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"public_confirmed_by must be text, such as a name, not {type_name(name)}."
        )
    if name and not name.strip():
        raise ConfigError("public_confirmed_by is blank. Pass a name, or leave it out.")
    if name and public_ratings is None:
        raise ConfigError("public_confirmed_by needs public ratings. Pass public_ratings.")
    text: str = name.strip()
    if len(text) > LONGEST_NAME:
        raise ConfigError(
            f"public_confirmed_by has {len(text):,} characters. Pass a name of at most"
            f" {LONGEST_NAME}."
        )
    if any(unicodedata.category(letter) in _NO_TEXT or letter in _DIRECTIONS for letter in text):
        raise ConfigError(
            "public_confirmed_by has line breaks or control characters. Pass a name on one line."
        )
    return text


def _read_ratings(given: Any) -> Ratings:
    """Read public ratings from any form; errors name the parameter."""
    path = isinstance(given, str | os.PathLike)
    if not path and not isinstance(given, Ratings) and not is_table(given):
        raise DataError(
            f"public_ratings must be Ratings, a frame or a file, not {type_name(given)}. Pass for"
            " example Ratings.from_arrays(users, items, ratings)."
        )
    try:
        return Ratings.read(given) if path else to_learn_from(given)
    except DataError as error:
        raise DataError(f"public_ratings: {error}") from error


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
        range_is_public: bool = True,
    ) -> PublicPart:
        """Read `given`; ratings of other items than these are dropped.

        Where most are outside of `rating_range`, they are refused: they are of another scale. A
        warning says how many are, since public ratings cost nothing to inspect. Messages have no
        number of a range that was read from private ratings. Interactions without ratings count as
        `liked`, if it is given, and are refused where the model needs ratings.
        """
        if hasattr(given, "tocsr"):
            raise DataError(
                "public_ratings is a matrix without user ids, by which public users are left out of"
                " the private part. Pass Ratings.from_csr(matrix, user_ids)."
            )
        ratings = _read_ratings(given)
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
        share = float(outside.mean()) if len(outside) else 0.0
        if share > 0.5:
            seen = (float(known.values.min()), float(known.values.max()))
            other = f"is {low:g} to {high:g}" if range_is_public else "is another"
            raise DataError(
                f"public_ratings are from {seen[0]:g} to {seen[1]:g}, but the range of ratings"
                f" {other}. Bring them to the same scale."
            )
        if share > 0:
            many = f"{100 * share:.3g}%" if range_is_public else "Some"
            limits = f", {low:g} to {high:g}," if range_is_public else ""
            logger.warning(
                "%s of public_ratings are outside the range of ratings%s and are clipped to it."
                " Bring them to the same scale if theirs is another.",
                many,
                limits,
            )
        if rating_range is not None and (known.values == low).all():
            logger.warning(
                "All public_ratings are the lowest of the range, so nothing is liked. Pass"
                " interactions without ratings, or ratings of the same scale."
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
