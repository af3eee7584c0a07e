"""DPMF, the recommended model and the default of the command line."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from numpy.typing import NDArray

from discreet.data.features import ItemFeatures, item_categories
from discreet.data.public_items import PublicItems
from discreet.models.algorithm import Algorithm
from discreet.models.dpmf.ranking import EVERYTHING, PairRanking
from discreet.models.dpmf.rating import RatingFactorization
from discreet.models.dpmf.released_rows import ReleasedRows
from discreet.models.parameters import check_choice, check_that
from discreet.models.private import CLIPPED, PrivateRecommender
from discreet.models.public_part import PublicPart
from discreet.privacy.release.session import Session

NOT_SAVED = "item_features is not saved with a model. Pass item_features to a new DPMF."


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
    item_features : file, frame, mapping, array or PublicItems, optional
        Public features of the items, such as genres or years: a prior for their factors, at no
        privacy cost. Whole numbers in a column whose name ends in ``_id`` or ``_code`` are
        categories. `PublicItems` adds texts and similarities.
    features : list of str, optional
        For ranking: columns of `item_features` that make up a user's own profile ("more by the
        authors that I have"), a factor on every score. Default: all that items share values of;
        [] for no profile.
    iterations : int, optional
        For ratings: the number of steps. Each one costs. Default 6, or 3 without factors.
    regularization : float, optional
        For ratings: λ, the ridge of a user's own least squares.
    """

    factors: int | None = field(default=None, kw_only=False)
    goal: Literal["ranking", "rating"] = "ranking"
    item_features: Any = None
    features: Sequence[str] | None = None
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
        self._check_feature_names()
        found = super().make_algorithm()
        given = self._public_items
        if isinstance(found, PairRanking) and given is not None and given.features is not None:
            wanted = self.features is None or len(self.features) > 0
            found = replace(found, profile=found.profile or wanted)
        return found

    @property
    def _public_items(self) -> PublicItems | None:
        """What is public about the items, or None."""
        return None if self.item_features is None else PublicItems.from_any(self.item_features)

    def _describe_sources(self) -> str:
        given = self._public_items
        return "" if given is None else given.describe_sources()

    def _check_feature_names(self) -> None:
        check_that(
            not isinstance(self.features, str),
            f"features is {self.features!r}, but must be a list such as [{self.features!r}].",
        )
        check_that(
            self.features is None
            or (
                isinstance(self.features, (list, tuple))
                and all(isinstance(name, str) for name in self.features)
            ),
            f"features is {self.features!r}, but must be a list of names of columns. Pass for"
            " example features=['genres'].",
        )
        check_that(
            self.features is None or self.goal == "ranking",
            "features is for goal='ranking': profiles change lists, not ratings. Leave it out.",
        )
        check_that(
            not self.features or self.item_features is not None,
            NOT_SAVED
            if self._lacks_features()
            else "features names columns of item_features, but there are none. Pass item_features.",
        )

    def _lacks_features(self) -> bool:
        """Return whether this was loaded, and trained with features, which are not saved."""
        loaded = getattr(self, "_loaded", False) and self.item_features is None
        return loaded and any(a.name == "features" for a in self.privacy_.assumptions)

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
        public = self._public_items
        if public is not None and public.similarities is not None:
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
        check_that(not self._lacks_features(), NOT_SAVED)
        given = self._public_items
        if given is None:
            return None
        ids = ratings.item_ids
        if self.goal == "rating":
            return given.numbers(ids, False)
        X = given.numbers(ids, True)  # first, because it checks what is given
        categories = []
        if given.features is not None:
            categories = item_categories(given.features, ids, self.features)
        return ItemFeatures(given.numbers(ids, bool(categories)) if X is None else X, categories)

    def _suit_features(self, algorithm: Algorithm, features: Any) -> Algorithm:
        """Plan no weights of profiles where no feature is a category."""
        if isinstance(algorithm, PairRanking) and not getattr(features, "categories", ()):
            return replace(algorithm, profile=False)
        return algorithm

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
        if self.noise == prior.noise == "seeded":
            check_that(
                prior.random_state is not None,  # a saved model does not keep its seed
                "The prior was loaded, and its seeded noise may be the same as this one's. Train"
                " it again, or use secure noise.",
            )
            check_that(
                self.random_state != prior.random_state,
                "The prior has the same random_state, so both would have the same noise. Pass"
                " another.",
            )
        return rows.move_rows(prior.item_ids_, ratings.item_ids)

    def _public_part(self, given: Any, ratings: Any, algorithm: Algorithm) -> PublicPart:
        graded = getattr(algorithm, "like_threshold", None) != EVERYTHING
        found = getattr(algorithm, "rating_range", None)
        liked = found[1] if graded and found is not None else None
        # a range is in force where it is public, or where ratings are graded by it
        graded_by_range = self.goal == "rating" or getattr(algorithm, "levels", 1) != 1
        is_public = self._public_range(ratings) is not None
        known = found if graded and (graded_by_range or is_public) else None
        needs_ratings = self.goal == "rating"
        return PublicPart.from_any(
            given, ratings.item_ids, algorithm.bounds(), known, liked, needs_ratings, is_public
        )

    def restore_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.released_ = ReleasedRows.from_arrays(arrays, len(self.item_ids_))
        self._loaded = True

    def params_to_save(self) -> dict[str, Any]:
        """Leave out features, which are input, like ratings; where their file lies says something
        about the owner.
        """
        return super().params_to_save() | {"item_features": None}

    def __repr__(self) -> str:
        """Show the kind of item features instead of all their numbers."""
        if self.item_features is None or isinstance(self.item_features, str | os.PathLike):
            return super().__repr__()
        short = copy.copy(self)
        short.item_features = f"<{type(self.item_features).__name__}>"
        return super(DPMF, short).__repr__()
