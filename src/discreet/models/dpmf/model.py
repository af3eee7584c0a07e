"""DPMF, the recommended model and the default of the command line."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import ItemFeatures, item_categories, item_features
from discreet.data.similarities import similarity_features
from discreet.data.text_features import text_features
from discreet.models.algorithm import Algorithm
from discreet.models.dpmf.ranking import EVERYTHING, PairRanking
from discreet.models.dpmf.rating import RatingFactorization
from discreet.models.dpmf.released_rows import ReleasedRows
from discreet.models.parameters import check_choice, check_that
from discreet.models.private import CLIPPED, PrivateRecommender
from discreet.models.public_part import PublicPart
from discreet.privacy.release.session import Session


class DPMF(PrivateRecommender):
    """Private matrix factorization: ranked lists (the default) or predicted ratings.

    Parameters
    ----------
    factors : int, optional
        The largest number of dimensions of taste. Default: 64 for ranking, where noise hides most
        of them; for ratings, 32, of which those are learned that stand out of it. With 0, a model
        of ratings learns only how much each item is liked.
    goal : {"ranking", "rating"}
        Rank items by how much a user will like them, from ratings or plain interactions; or predict
        ratings.
    item_features : file, frame, mapping or array, optional
        Public features of the items, such as genres or years: a prior for their factors, at no
        privacy cost.
    features : list of str, optional
        For ranking: columns of `item_features` that make up a user's own profile ("more by the
        authors that I have"), a factor on every score. Default: all that items share values of;
        [] for no profile.
    text : list of str, or mapping, optional
        Columns of `item_features` that are text, such as titles or descriptions: hashed words,
        reduced to 16 numbers, are part of the prior. A mapping gives a function for each column,
        from a list of texts to an array, such as a language model's.
    item_similarities : file, frame, matrix or array, optional
        Public similarities of items as a prior for their factors: rows of (item, item, weight), a
        square matrix, or embeddings with one row per item.
    iterations : int, optional
        For ratings: the number of steps. Each one costs. Default 6, or 3 without factors.
    regularization : float, optional
        For ratings: λ, the ridge of a user's own least squares.
    """

    factors: int | None = field(default=None, kw_only=False)
    goal: Literal["ranking", "rating"] = "ranking"
    item_features: Any = None
    features: Sequence[str] | None = None
    text: Any = None
    item_similarities: Any = None
    iterations: int | None = None
    regularization: float | None = None

    @classmethod
    def kinds(cls, **settings: Any) -> tuple[type[Algorithm], ...]:
        goal = settings.get("goal", "ranking")
        check_choice("goal", goal, "ranking", "rating")
        return (PairRanking,) if goal == "ranking" else (RatingFactorization,)

    def make_algorithm(self) -> Algorithm:
        for name in ("iterations", "regularization") if self.goal == "ranking" else ():
            check_that(
                getattr(self, name) is None,
                f"{name} is for goal='rating': for ranking, users have nothing to solve",
            )
        check_that(
            self.features is None
            or (self.goal == "ranking" and not isinstance(self.features, str)),
            "features is a list of columns of item_features, for goal='ranking'.",
        )
        check_that(
            self.text is None
            or (self.item_features is not None and not isinstance(self.text, str)),
            "text is a list of columns of item_features. Pass both.",
        )
        found = super().make_algorithm()
        if isinstance(found, PairRanking) and self.item_features is not None:
            wanted = self.features is None or len(self.features) > 0
            found = replace(found, profile=found.profile or wanted)
        return found

    @property
    def like_threshold_(self) -> float | None:
        """For ranking: the rating from which on an item counts as liked; None where everything
        does.
        """
        found = getattr(self.algorithm_, "like_threshold", EVERYTHING)
        return None if found == EVERYTHING else float(found)

    @property
    def default_rating(self) -> float:
        if self.like_threshold_ is None:
            return super().default_rating
        return float(self.algorithm_.rating_range[1])  # type: ignore[attr-defined]

    def _observe_range(self, ratings: Any, algorithm: Algorithm) -> tuple[float, float] | None:
        """Observe the range for ranking as well, where no threshold says which ratings count as
        liked.
        """
        if self.goal == "rating" or self.rating_range is not None:
            return super()._observe_range(ratings, algorithm)
        if algorithm.like_threshold is not None:  # type: ignore[attr-defined]
            return None
        found: tuple[float, float] | None = ratings.rating_range()
        return found

    def _assume(
        self,
        session: Session,
        ratings: Any,
        algorithm: Algorithm,
        seen: tuple[float, float] | None,
        features: NDArray[Any] | None,
    ) -> None:
        super()._assume(session, ratings, algorithm, seen, features)
        graded = getattr(algorithm, "like_threshold", EVERYTHING) != EVERYTHING
        if self.goal == "ranking" and graded and (given := self._public_range(ratings)) is not None:
            session.record_assumption(
                "ratings", f"the range of ratings, {given[0]:g} to {given[1]:g}{CLIPPED}"
            )
        if self.item_similarities is not None:
            session.record_assumption("similarities", "the similarities of the items")
        if self.goal == "ranking" and seen is not None and seen[0] < seen[1]:
            session.record_assumption(
                "ratings", f"the range of ratings, {seen[0]:g} to {seen[1]:g}", inferred=True
            )
        elif self.goal == "ranking" and not ratings.rated:
            # the header of a file is public, unlike its values
            session.record_assumption("liked", "that every row counts as liked (no rating column)")
        elif self.goal == "ranking" and seen is not None:
            session.record_assumption(
                "liked",
                f"that all ratings are {seen[0]:g}, so that everything chosen is liked",
                inferred=True,
            )

    def _features(self, ratings: Any) -> Any:
        ids = ratings.item_ids
        more = self._more_features(ids)
        given = self.item_features
        if given is None and not more:
            return None
        ranking = self.goal == "ranking"
        categories = (
            [] if given is None or not ranking else item_categories(given, ids, self.features)
        )
        X = None if given is None else item_features(given, ids, bool(categories) or bool(more))
        parts = [part for part in (X, *more) if part is not None]
        found = np.hstack(parts) if parts else None
        return ItemFeatures(found, categories) if ranking else found

    def _more_features(self, ids: NDArray[Any]) -> list[NDArray[np.float64]]:
        """Return numbers of texts and similarities."""
        found = []
        if self.text:
            found.append(text_features(self.item_features, ids, self.text))
        if self.item_similarities is not None:
            found.append(similarity_features(self.item_similarities, ids))
        return found

    def _prior_rows(self, prior: Any, ratings: Any, algorithm: Algorithm) -> Any:
        check_that(
            isinstance(prior, DPMF) and prior.goal == self.goal == "ranking",
            "prior must be a fitted DPMF with goal='ranking', and so must this model.",
        )
        rows: Any = getattr(prior, "released_", None)
        check_that(
            rows is not None,
            "The prior has no released sums: it is not fitted, or was saved by an earlier version."
            " Train without prior.",
        )
        check_that(
            bool(ratings.catalog) and self._public_range(ratings) is not None,
            "prior needs a public catalog and a public range of ratings. Pass items to the"
            " ratings, and rating_range to the model.",
        )
        same = ("levels", "like_threshold", "rating_range", "centered")
        for name in same:
            check_that(
                getattr(prior.algorithm_, name) == getattr(algorithm, name),
                f"The prior has another {name}, so its sums count other things. Use the same.",
            )
        check_that(
            self.noise != "seeded" or self.random_state != prior.random_state,
            "The prior has the same random_state, so both would have the same noise. Pass another.",
        )
        return rows.move_rows(prior.item_ids_, ratings.item_ids)

    def _public_part(self, given: Any, ratings: Any, algorithm: Algorithm) -> PublicPart:
        return PublicPart.from_any(given, ratings.item_ids, algorithm.bounds())

    def restore_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.released_ = ReleasedRows.from_arrays(arrays, len(self.item_ids_))

    def params_to_save(self) -> dict[str, Any]:
        """Leave out features, which are input, like ratings; where their file lies says something
        about the owner.
        """
        inputs = {"item_features": None, "text": None, "item_similarities": None}
        return super().params_to_save() | inputs

    def __repr__(self) -> str:
        """Show the kind of item features instead of all their numbers."""
        short = copy.copy(self)
        for name in ("item_features", "text", "item_similarities"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, str | os.PathLike | list):
                setattr(short, name, f"<{type(given).__name__}>")
        return super(DPMF, short).__repr__()
