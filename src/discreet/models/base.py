"""Base of all recommenders.

A fitted model scores item j for a user as

    score_j = offset + u · v_j + b_j,

where the item factors V and biases b belong to the model and (u, offset) are computed from that
user's own history by `fold`. Everything here follows from that: nothing is kept of any user, and
new users need no retraining. A subclass writes `_train`, which returns V and b, and `fold`.
"""

from __future__ import annotations

import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, overload

import numpy as np
from numpy.typing import NDArray

from discreet import kernels as compiled  # loaded when first used
from discreet.data.columns import Column
from discreet.data.ids import IdIndex, as_ids, replace_surrogates
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError, NotFittedError
from discreet.models.diversity import NO_EFFECT, NOTHING_TO_EXPLAIN, rank_diverse, score_all
from discreet.models.estimator import Estimator
from discreet.models.fold_in import (
    KINDS,
    FoldIn,
    HistoryRows,
    ItemSimilarity,
    ProfileScores,
    rank_scores,
)
from discreet.models.histories import parse_history
from discreet.models.parameters import check_choice, check_history_range, check_int
from discreet.models.recommendations import Recommendations
from discreet.models.scorer import Scorer
from discreet.models.user_rows import (
    Exclusions,
    as_exclusions,
    as_pairs,
    as_user_rows,
    to_learn_from,
)
from discreet.progress import Progress, ShowProgress, progress_bar

if TYPE_CHECKING:
    from discreet.models.storage.save_load import SavedModel

logger = logging.getLogger("discreet")

Unknown = Literal["error", "skip"]
BLOCK = 1 << 16  # users folded in at a time, so that few vectors are in memory
MOST_NUMBERS = 1 << 26  # in the vectors of a block: 256 MB, for models with thousands of factors
DENSE_BLOCK = 256  # the same where scores of all items are held
_KNOWN = "item_ids_ lists its items."


def _are_pairs(given: Any) -> bool:
    """Return whether these are pairs of users and items, not items of one user."""
    if isinstance(given, (list, tuple)):
        return bool(given) and isinstance(given[0], (list, tuple))
    return not isinstance(given, np.ndarray) or given.ndim > 1


class Recommender(Estimator, ABC):
    """Base of all models; see the module's docstring."""

    #: "rating" to predict ratings, or "ranking" from interactions. A parameter of some models.
    goal: str = field(init=False)

    item_ids_: NDArray[Any] = field(init=False)
    item_factors_: NDArray[np.floating[Any]] = field(init=False)
    item_biases_: NDArray[np.floating[Any]] = field(init=False)
    titles_: NDArray[Any] | None = field(init=False)
    rating_range_: tuple[float, float] | None = field(init=False)

    @property
    def feedback(self) -> str:
        """The kind of feedback learned from: "explicit" (ratings) or "implicit" (interactions)."""
        return "explicit" if self.goal == "rating" else "implicit"

    # ------------------------------------------------------------ what a model must define

    def check(self) -> None:
        """Raise a `ConfigError` for parameters that no data could be fitted with."""
        self._check()

    def fit(
        self,
        ratings: Any,
        *,
        items: Any = None,
        progress: ShowProgress = None,
        verbose: bool = False,
    ) -> Self:
        """Learn from scratch and return self.

        Parameters
        ----------
        ratings : Ratings, a frame of pandas, polars or pyarrow, or a scipy sparse matrix
        items : optional
            Catalog of items: a file, a frame, a list of ids or a mapping ``{id: title}``.
        progress : function, bool or None
            By default a bar is shown on a terminal or in a notebook. True always shows the steps,
            False never; a function is called as ``progress(done, total, text)``.
        verbose : bool
            A line on stderr for every step instead.
        """
        ratings = to_learn_from(ratings, items=items)
        self.check()
        self._begin(ratings)
        with progress_bar(progress, f"Training {type(self).__name__}", verbose=verbose) as report:
            factors, biases = self._train(ratings, report)
        self._learned_state(ratings, factors, biases)
        return self

    @abstractmethod
    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute vectors (n, factors) and offsets (n,) of n users, each from its own CSR row."""

    def score_vectors(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return vectors, offsets, and the item factors to score with (maybe one column more)."""
        return *self.fold(indptr, indices, values), self.item_factors_

    def state(self) -> dict[str, Any]:
        """Return what was learned other than factors and biases, as JSON values, for `restore`."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned, when loading."""
        if state:
            raise ValueError(f"{type(self).__name__} has no state other than its items")

    def check_restored(self) -> None:
        """Raise an error for a loaded model that cannot be used, by trying it."""
        self.check()
        self._try_out()

    def _try_out(self) -> None:
        """Fold in an empty and a short history, so that errors show here, not in a kernel."""
        some = np.arange(min(len(self.item_ids_), 8), dtype=np.int32)
        rows = (
            np.array([0, 0, len(some)], np.int64),
            some,
            np.full(len(some), self.default_rating, np.float32),
        )
        for found in self.score_vectors(*rows):
            if not np.isfinite(found).all():
                raise DataError("the model is damaged: its predictions are not finite")
        self._top(rows, 1, rows[:2], None, "error", 0.0)
        self._score_pairs(rows, np.zeros(1, np.int64), np.zeros(1, np.int64))

    @classmethod
    def from_saved(cls, parameters: dict[str, Any]) -> Self:
        """Construct a model with the parameters that `params_to_save` returned."""
        return cls(**parameters)

    def card(self) -> str:
        """Return the README that is saved with the model."""
        from discreet.models.storage.model_card import not_private

        return not_private(self)

    def extra_files(self) -> dict[str, str]:
        """Return further files to save with the model, by name."""
        return {}

    def extra_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays to save besides those that scoring needs."""
        return {}

    def restore_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `extra_arrays` returned, when loading."""

    def restore_files(self, files: dict[str, bytes]) -> None:
        """Restore what `extra_files` returned, when loading."""
        assert not self.extra_files()

    def params_to_save(self) -> dict[str, Any]:
        """Return the parameters as they are saved."""
        return self.get_params()

    # ------------------------------------------------------------ recommendations

    def recommend(
        self,
        history: Any,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Sequence[Any] = (),
        items: Sequence[Any] | None = None,
        unknown: Unknown = "error",
        diversity: float = 0.0,
    ) -> Recommendations:
        """Recommend the best items for one user.

        Parameters
        ----------
        history : {item_id: rating}, [item_id, ...], a frame, a CSR row or `Ratings` of one user
            Titles stand for ids where the model knows them. A list means "liked": where the model
            learned from ratings, each item counts as rated with the top of the scale.
        n : how many
        exclude_seen : leave out the items of the history
        exclude : further item ids to leave out
        items : if given, recommend only among these item ids
        unknown : {"error", "skip"}
            What to do with ids that the model does not know.
        diversity : float
            From 0 to 1: more means rarer items. The order is that of score / popularity^diversity;
            scores stay the model's own, so that they may rise down the list. For ranking models
            that learned popularity, such as DPMF; no effect where they learned nothing else.

        Returns
        -------
        Recommendations
            A table that unpacks to ``(item_ids, scores)``, best first; fewer than `n` where there
            are no more items. Predicted ratings stay within the range of the ratings learned from,
            so that several may be equal.
        """
        self._check_fitted()
        check_int("n", n)
        check_choice("unknown", unknown, "error", "skip")
        scorer = self.scorer()
        at, values, _ = parse_history(history, scorer, unknown)
        best, scores = scorer.best(
            at,
            values,
            n,
            exclude_seen=exclude_seen,
            exclude=self._select_known(exclude, unknown) if len(exclude) else None,
            only=None if items is None else self._select_known(items, unknown),
            diversity=diversity,
        )
        self._warn_without_effect(diversity)
        return self._list_items(best, scores)

    def _warn_without_effect(self, diversity: float) -> None:
        """Warn where diversity was asked of a model of popularity."""
        if diversity and self.scorer().is_popularity:
            logger.warning(NO_EFFECT)

    def recommend_many(
        self,
        ratings: Any,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Exclusions = (),
        items: Sequence[Any] | None = None,
        unknown: Unknown = "error",
        diversity: float = 0.0,
        progress: ShowProgress = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Recommend items for many users: ids (n_users, n) and scores, padded with −1 and −inf.

        Parameters
        ----------
        ratings : Ratings, a frame, or a sparse matrix with one column per item of the model
            One history per user.
        exclude : item ids, {user_id: item ids}, or Ratings
            What else to leave out: the same for all users, or for each user.
        n, exclude_seen, items, unknown, diversity
            As for `recommend`.
        progress
            As for `fit`.
        """
        self._check_fitted()
        ratings = as_user_rows(ratings, self.item_ids_)
        check_history_range(ratings.values, self.history_range)
        with progress_bar(progress, "Recommending") as told:
            at, scores = self.recommend_indices(
                ratings,
                n,
                exclude_seen=exclude_seen,
                exclude=exclude,
                items=items,
                unknown=unknown,
                diversity=diversity,
                progress=told,
            )
        return self._pad_ids()[at], scores

    def _pad_ids(self) -> NDArray[Any]:
        """Return item ids by position, and −1 at position −1, which is padding."""
        return np.append(self.item_ids_, np.array([-1], self.item_ids_.dtype))

    def recommend_spark(
        self,
        frame: Any,
        n: int = 10,
        *,
        user: Column = None,
        item: Column = None,
        rating: Column = None,
        timestamp: Column = None,
        exclude_seen: bool = True,
        diversity: float = 0.0,
        partitions: int | None = None,
    ) -> Any:
        """Recommend to all users of a Spark DataFrame, in rows as of `recommend_table`.

        Parameters
        ----------
        frame : pyspark.sql.DataFrame
            One row per rating; columns are found by convention, or named. Items that the model does
            not know are left out of histories.
        n : int
        exclude_seen : bool
            Leave out what is in a user's history.
        diversity : float
            As for `recommend`.
        partitions : int, optional
            Into how many tasks users are divided; by default as Spark is configured.

        Privacy: a list is made from the model and the user's own history, and is for that user
        alone. Store the resulting frame as securely as the ratings.
        """
        from discreet.models.recommend_spark import recommend_spark

        self._check_fitted()
        check_int("n", n)
        if diversity:
            self.scorer().boost(diversity)  # refuses models and numbers that it is not for
            self._warn_without_effect(diversity)
        return recommend_spark(
            self, frame, n, user, item, rating, timestamp, exclude_seen, partitions, diversity
        )

    def recommend_indices(
        self,
        ratings: Any,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Exclusions = (),
        items: Sequence[Any] | None = None,
        unknown: Unknown = "error",
        diversity: float = 0.0,
        progress: Progress | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Recommend as `recommend_many`, with positions in ``item_ids_`` and no progress bar.

        Ratings outside the public range are clipped: evaluation, which calls this, must not fail
        because of what users rated.
        """
        self._check_fitted()
        people = as_user_rows(ratings, self.item_ids_)
        rows = self._rows(people, unknown)
        hidden = rows[:2] if exclude_seen else (np.zeros_like(rows[0]), rows[1][:0])
        hidden = as_exclusions(exclude, hidden, people, lambda ids: self._positions(ids, unknown))
        found = self._top(rows, n, hidden, items, unknown, diversity, progress)
        self._warn_without_effect(diversity)
        return found

    @overload
    def similar_items(
        self, item_id: list[Any] | NDArray[Any], n: int = ...
    ) -> tuple[NDArray[Any], NDArray[Any]]: ...

    @overload
    def similar_items(self, item_id: Any, n: int = ...) -> Recommendations: ...

    def similar_items(
        self, item_id: Any, n: int = 10
    ) -> Recommendations | tuple[NDArray[Any], NDArray[Any]]:
        """Return the items of largest cosine similarity, without the item itself.

        For a list or an array of k items: ids (k, n), padded with −1, and cosines, padded with
        −inf, as `recommend_many` gives them.
        """
        self._check_fitted()
        check_int("n", n)
        many = isinstance(item_id, (list, np.ndarray)) or hasattr(item_id, "to_list")
        at = self._positions(item_id if many else [item_id], "error", _KNOWN)
        self._check_comparable()
        if not many:
            return self._list_items(*self.scorer().similar(int(at[0]), n))
        found, scores = self.scorer().similar_many(at, n)
        return self._pad_ids()[found], scores

    def explain(self, history: Any, item: Any, *, unknown: Unknown = "error") -> Recommendations:
        """Return the items of a history and what each adds to the score of `item`, largest first.

        The contribution of an item is the score of `item` less its score without that item in the
        history. Contributions need not add up to the score. Where lists are popularity, all are 0,
        and `note` of the result says so.

        Parameters
        ----------
        history : as for `recommend`
        item : id or title of the item to explain
        unknown : {"error", "skip"}
            What to do with ids in the history that the model does not know.
        """
        self._check_fitted()
        check_choice("unknown", unknown, "error", "skip")
        scorer = self.scorer()
        at, values, _ = parse_history(history, scorer, unknown)
        of = self._positions([item], "error", _KNOWN)
        found, contributions = scorer.explain(at, values, int(of[0]))
        listed = self._list_items(found, contributions.astype(np.float32))
        if scorer.is_popularity:
            listed.note = NOTHING_TO_EXPLAIN
        elif not len(found):
            listed.note = "no contributions: the history has no items"
        return listed

    def similar_users(self, *given: Any, **more: Any) -> NoReturn:
        """Raise: a user's vector is computed for that user alone, and is not stored."""
        raise ConfigError(
            "a model stores no user vectors, because each is computed from that user's own history."
            " Use similar_items to compare items."
        )

    def _list_items(self, at: NDArray[Any], scores: NDArray[np.float32]) -> Recommendations:
        return Recommendations(
            self.item_ids_[at], scores, None if self.titles_ is None else self.titles_[at]
        )

    def _check_comparable(self) -> None:
        """Raise a `ConfigError` where there is nothing to compare items by."""
        if self.item_factors_.shape[1] == 0:
            raise ConfigError(
                f"{type(self).__name__} has no item factors to compare items by. Use ALS or DPMF."
            )

    def fold_in_rule(self) -> FoldIn:
        """Return how a user's vector follows from a history; by default `fold`, in Python only."""
        return ByCode(self)

    def item_similarity(self) -> ItemSimilarity:
        """Return the part of the item factors that items are compared by."""
        return ItemSimilarity()

    def scorer(self) -> Scorer:
        """Return the lightweight scorer, cached until the items change."""
        made_of = (self.item_ids_, self.item_factors_, self.item_biases_)
        known = vars(self).get("_scorer")
        if known is None or any(
            one is not other for one, other in zip(known[0], made_of, strict=True)
        ):
            ids, factors, biases = made_of
            scorer = Scorer(
                ids,
                factors,
                biases,
                self.fold_in_rule(),
                titles=self.titles_,
                rating_range=self.rating_range_,
                default_rating=self.default_rating,
                item_similarity=self.item_similarity(),
                history_range=self.history_range,
            )
            known = self._scorer = (made_of, scorer)
        found: Scorer = known[1]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Drop caches."""
        return {name: value for name, value in vars(self).items() if name != "_scorer"}

    @property
    def default_rating(self) -> float:
        """Rating that a liked item of a history without ratings counts as."""
        return 1.0 if self.rating_range_ is None else self.rating_range_[1]

    @property
    def history_range(self) -> tuple[float, float] | None:
        """Public range that ratings of histories must lie in, or None."""
        return None

    def fold_in(self, history: Any, *, unknown: Unknown = "error") -> NDArray[np.floating[Any]]:
        """Compute the vector (factors,) of a user with this history; see `recommend`."""
        vector: NDArray[np.floating[Any]] = self.fold(*self._history(history, unknown))[0][0]
        return vector

    def predict(
        self, ratings: Any, pairs: Any, *, unknown: Unknown = "error"
    ) -> NDArray[np.float32]:
        """Predict one score per pair, from each user's rows of `ratings`.

        Parameters
        ----------
        ratings : Ratings, or a sparse matrix as for `recommend_many`
            Histories. A user without any gets the prediction for a new user. The history of one
            user may be a mapping or a list, as for `recommend`.
        pairs : Ratings, or rows of (user_id, item_id) as a list or a frame
            With `Ratings` the scores are in the order of its ``values``. For the history of one
            user: item ids or titles.
        unknown : {"error", "skip"}
            Items that the model does not know raise an error; or pairs with them get NaN, and
            histories go without.

        Returns
        -------
        (n_pairs,) float32; predicted ratings stay within the range of the ratings learned from.
        """
        self._check_fitted()
        if isinstance(ratings, (Mapping, list, tuple)) and not _are_pairs(pairs):
            at = self._positions(pairs, unknown)
            rows = self._history(ratings, unknown)
            scores = self._score_pairs(rows, np.zeros(len(at), np.int64), at)
            return scores if self.rating_range_ is None else np.clip(scores, *self.rating_range_)
        user_ids, item_ids, user, item = as_pairs(pairs)
        item = self._positions(item_ids, "skip")[item]
        if unknown == "error" and (item < 0).any():
            raise DataError(
                f"{int((item < 0).sum()):,} of {len(item):,} pairs have an item that is not in the"
                " model. Leave them out, or pass unknown='skip'."
            )
        ratings = as_user_rows(ratings, self.item_ids_)
        check_history_range(ratings.values, self.history_range)
        row = ratings.user_index(user_ids)
        known = row >= 0
        histories = ratings.select_users(row[known], by="index")
        where = np.where(known, np.cumsum(known) - 1, -1)
        scores = self._score_pairs(self._rows(histories, unknown), where[user], item)
        return scores if self.rating_range_ is None else np.clip(scores, *self.rating_range_)

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the model to a folder: safetensors, JSON and a README card; whole or not at all.

        A private model is only replaced with `replace`; its ledger is kept in the folder.
        """
        from discreet.models.storage import save_load

        save_load.save(self.to_saved(), path, replace=replace)

    def to_saved(self) -> SavedModel:
        """Return the model as one value, from which its folder is written."""
        from discreet.models.storage.save_load import SavedModel

        self._check_fitted()
        arrays: dict[str, NDArray[Any]] = {
            "item_factors": self.item_factors_,
            "item_biases": self.item_biases_,
        } | self.extra_arrays()
        fold_in: dict[str, Any] = {}
        scorer = self.scorer()
        rule = scorer.fold_in_rule
        if rule.kind in KINDS:
            fold_in = {
                "fold_in_rule": rule.numbers(),
                "default_rating": scorer.default_rating,
                "history_range": scorer.history_range,
                "item_similarity": {"first": scorer.item_similarity.first},
            }
            arrays |= {f"fold_in_rule.{name}": array for name, array in rule.arrays().items()}
            if scorer.item_similarity.known is not None:
                arrays["item_similarity.known"] = scorer.item_similarity.known
        head = getattr(self, "account_head_", None)
        return SavedModel(
            type(self).__name__,
            self.params_to_save(),
            self.state(),
            self.item_ids_,
            self.titles_,
            self.rating_range_,
            arrays,
            fold_in,
            self.extra_files(),
            self.card(),
            None if head is None else head.to_dict(),
        )

    def push_to_hub(
        self,
        name: str,
        *,
        replace: bool = False,
        private: bool | None = None,
        token: str | None = None,
    ) -> str:
        """Publish the model on the Hugging Face Hub and return its address for `discreet.load`.

        Only models that are private can be published. Needs ``discreet[hub]``.

        Parameters
        ----------
        name : str
            Of the repository, such as "user/films"; created if it does not exist.
        replace : bool
            Take the place of the model in it, whose ledger is kept.
        private : bool, optional
            Whether a new repository is visible to its owner only; the Hub's default if None.
        token : str, optional
            By default that of ``hf auth login`` or ``HF_TOKEN``.
        """
        from discreet.models.storage.hub import push

        return push(self, name, replace=replace, private=private, token=token)

    # ------------------------------------------------------------ for subclasses

    def _check(self) -> None:  # a model without parameters has nothing to check
        """Check parameters; called by `check`."""

    def _train(self, ratings: Ratings, report: Progress) -> tuple[NDArray[Any], NDArray[Any]]:
        """Learn item factors and biases, and set what else was learned; called by `fit`."""
        raise NotImplementedError

    def _begin(self, ratings: Ratings) -> None:
        """Check the input of `fit`, and drop what was learned before."""
        if ratings.n_ratings == 0:
            raise DataError("there are no ratings to learn from")
        vars(self).pop("item_ids_", None)

    def _learned_state(self, ratings: Ratings, factors: NDArray[Any], biases: NDArray[Any]) -> None:
        if not (np.isfinite(factors).all() and np.isfinite(biases).all()):
            raise DataError(
                "training diverged: the factors are not finite. Lower initial_scale, raise the"
                " regularization, or rescale the ratings."
            )
        scale = (
            (float(ratings.values.min()), float(ratings.values.max()))
            if self.goal == "rating"
            else None
        )
        if scale is not None and scale[0] == scale[1]:
            logger.warning(
                "every rating is %g, so there is nothing to predict. Use goal='ranking'.",
                scale[0],
            )
        self.restore_items(ratings.item_ids, factors, biases, ratings.titles, scale)

    def restore_items(
        self,
        item_ids: NDArray[Any],
        factors: NDArray[Any],
        biases: NDArray[Any],
        titles: NDArray[Any] | None,
        rating_range: tuple[float, float] | None,
    ) -> None:
        """Set what is known of the items, from `fit` or from a file."""
        assert len(item_ids) == len(factors) == len(biases)
        self.item_ids_ = item_ids
        self.item_factors_ = factors
        self.item_biases_ = biases
        self.titles_ = None if titles is None else replace_surrogates(titles)
        self.rating_range_ = rating_range
        self._index = IdIndex(item_ids)

    def _check_fitted(self) -> None:
        if not hasattr(self, "item_ids_"):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet. Call fit(ratings) first."
            )
        # users may have assigned other arrays
        for name, ndim in (("item_factors_", 2), ("item_biases_", 1)):
            array = getattr(self, name)
            # messages are made for errors only: a single list takes less than half a millisecond
            if not (
                isinstance(array, np.ndarray)
                and array.dtype in (np.float32, np.float64)
                and array.ndim == ndim
            ):
                what = (
                    f"an array {array.shape} of {array.dtype}"
                    if isinstance(array, np.ndarray)
                    else type(array).__name__
                )
                raise ConfigError(
                    f"{name} is {what}, but must be one of float32 or float64 with {ndim}"
                    " dimensions"
                )
            if len(array) != len(self.item_ids_):
                raise ConfigError(
                    f"{name} has {len(array):,} rows for {len(self.item_ids_):,} items"
                )

    def _positions(
        self, ids: Any, unknown: Unknown, advice: str = "Leave them out, or pass unknown='skip'."
    ) -> NDArray[np.int64]:
        check_choice("unknown", unknown, "error", "skip")
        ids = as_ids(ids, "item id")
        at = self._index.positions(ids, "item id")
        if (at < 0).any():
            at = self.scorer().find_titles(ids.tolist(), at)
        if unknown == "error" and (at < 0).any():
            raise self.scorer().unknown_items(ids[at < 0].tolist(), advice)
        return at

    def _select_known(self, ids: Any, unknown: Unknown) -> NDArray[np.int64]:
        """Return the positions of the known ones of these ids."""
        at = self._positions(ids, unknown)
        return at[at >= 0]

    def _history(
        self, history: Any, unknown: Unknown
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return CSR arrays of one history; unrated items count as the top of the scale."""
        self._check_fitted()
        check_choice("unknown", unknown, "error", "skip")
        at, values, _ = parse_history(history, self.scorer(), unknown)
        return np.array([0, len(at)]), at, values

    def _rows(
        self, ratings: Ratings, unknown: Unknown
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return CSR arrays of the histories over the model's items."""
        check_choice("unknown", unknown, "error", "skip")
        if ratings.item_ids is not self.item_ids_ and not np.array_equal(
            ratings.item_ids, self.item_ids_
        ):
            self._positions(ratings.item_ids[np.unique(ratings.indices)], unknown)
            ratings = ratings.with_items(self.item_ids_, "drop")
        return ratings.indptr, ratings.indices, ratings.values

    def _top(
        self,
        rows: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
        n: int,
        hidden: tuple[NDArray[Any], NDArray[Any]],
        items: Sequence[Any] | None,
        unknown: Unknown,
        diversity: float,
        progress: Progress | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Rank items for the histories `rows`, without the items in `hidden`, both as CSR."""
        indptr, indices, values = rows
        bias = self.item_biases_.astype(np.float32)
        if items is not None:
            allowed = np.zeros(len(bias), bool)
            allowed[self._select_known(items, unknown)] = True
            bias[~allowed] = -np.inf
        users = len(indptr) - 1
        check_int("n", n)
        best = np.empty((users, n), np.int32)
        scores = np.empty((users, n), np.float32)
        fold_in_rule = self.scorer().fold_in_rule
        logarithms = isinstance(fold_in_rule, ProfileScores)
        boost = self.scorer().boost(diversity) if diversity else None
        block = min(BLOCK, max(MOST_NUMBERS // max(self.item_factors_.shape[1], 1), 1))
        if logarithms or boost is not None:
            block = DENSE_BLOCK
        for start in range(0, users, block):
            stop = min(start + block, users)
            part = indptr[start : stop + 1]
            entries = slice(part[0], part[-1])
            vectors, offsets, V = self.score_vectors(
                part - part[0], indices[entries], values[entries]
            )
            left_out = (hidden[0][start : stop + 1], hidden[1])
            own = HistoryRows(part - part[0], indices[entries], values[entries])
            dense = fold_in_rule.item_scores(own, vectors, self.item_factors_)
            if boost is not None:
                if dense is None:
                    dense = score_all(fold_in_rule, vectors, self.item_factors_, bias)
                found_here = rank_diverse(dense, boost, logarithms, n, left_out, np.isneginf(bias))
                best[start:stop], scores[start:stop] = found_here
            elif dense is None:
                best[start:stop], scores[start:stop] = compiled.top_k(vectors, V, bias, n, left_out)
            else:
                found_here = rank_scores(dense, n, left_out, np.isneginf(bias))
                best[start:stop], scores[start:stop] = found_here
            scores[start:stop] += offsets[:, None].astype(np.float32)
            if self.rating_range_ is not None:  # as in `predict`; what is padding stays so
                found = best[start:stop] >= 0
                scores[start:stop][found] = np.clip(scores[start:stop][found], *self.rating_range_)
            if progress:
                progress(stop, users, "lists")
        return best, scores

    def _score_pairs(
        self,
        rows: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
        user: NDArray[Any],
        item: NDArray[Any],
    ) -> NDArray[np.float32]:
        """Score (row of the histories, item) pairs; row −1 has no history, item −1 gives NaN."""
        indptr, indices, values = rows
        vectors, offsets, V = self.score_vectors(
            np.append(indptr, indptr[-1]), indices, values
        )  # the last row stands for users without a history
        own = HistoryRows(np.append(indptr, indptr[-1]), indices, values)
        fold_in_rule = self.scorer().fold_in_rule
        if isinstance(fold_in_rule, ProfileScores):
            dense = fold_in_rule.item_scores(own, vectors, self.item_factors_)
            assert dense is not None
            return np.where(item >= 0, dense[user, item], np.nan).astype(np.float32)
        dots = compiled.pair_products(vectors, V, user, item)
        return np.where(item >= 0, dots + offsets[user] + self.item_biases_[item], np.nan).astype(
            np.float32
        )


class ByCode(FoldIn):
    """Fold-in of a model that defines `fold` itself: not saved, and in Python only."""

    kind = "by code"
    model: Recommender

    def __init__(self, model: Recommender) -> None:
        object.__setattr__(self, "model", weakref.proxy(model))  # the model keeps this

    def fold(
        self, rows: HistoryRows, V: NDArray[Any], b: NDArray[Any], kernels: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.model.fold(*rows)

    def score_vectors(
        self, rows: HistoryRows, V: NDArray[Any], b: NDArray[Any], kernels: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.model.score_vectors(*rows)[:2]

    def score_factors(self, V: NDArray[Any]) -> NDArray[Any]:
        return self.model.score_vectors(
            np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
        )[2]

    def exact_in_part(self, r: int) -> bool:
        return False
