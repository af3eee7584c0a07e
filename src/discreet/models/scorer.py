"""The lightweight scorer: item factors, biases, ids, titles, and the fold-in of a history.

`Scorer` is shared by `Recommender.recommend`, the service and the exports. It needs neither a
model class nor a table library: only numpy and the kernels are imported. Item factors are packed
for the product on first use and kept so. A single query (``kernels=reference``) does without: it
reads a memory-mapped file part by part, and the catalog is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import kernels as compiled
from discreet.data.ids import canonical, replace_surrogates
from discreet.errors import ConfigError, DataError
from discreet.models.diversity import check_diversity, log_popularity, rank_diverse, score_all
from discreet.models.fold_in import (
    ConstantFoldIn,
    FoldIn,
    HistoryRows,
    ItemSimilarity,
    ProfileScores,
    rank_scores,
)
from discreet.models.histories import parse_history
from discreet.models.item_lookup import ItemLookup
from discreet.models.parameters import check_int, check_that

Array = NDArray[Any]
# entries of the histories, or scores, that `Scorer.explain` holds at a time: 16 MB in float32
EXPLAIN_ENTRIES = 1 << 22


class Scorer:
    """Scores and ranks items for histories.

    Parameters
    ----------
    item_ids : (m,) int64 or object
    factors, biases : (m, r), (m,) float32 or float64
    fold_in_rule : FoldIn
    titles : (m,) object, optional
    rating_range : (low, high), optional
        Of predicted ratings; None where scores are not ratings.
    default_rating : float
        Rating that a liked item of a history without ratings counts as.
    item_similarity : ItemSimilarity, optional
    history_range : (low, high), optional
        Public range of the ratings: histories with others are refused.
    kernels : module
        `discreet.kernels`, or `discreet.kernels.reference` for a single query without loading
        compiled code.
    """

    def __init__(
        self,
        item_ids: Array,
        factors: Array,
        biases: Array,
        fold_in_rule: FoldIn,
        *,
        titles: Array | None = None,
        rating_range: tuple[float, float] | None = None,
        default_rating: float = 1.0,
        item_similarity: ItemSimilarity | None = None,
        kernels: Any = compiled,
        history_range: tuple[float, float] | None = None,
    ) -> None:
        self.item_ids = item_ids
        self.factors = factors
        self.biases = biases
        self.fold_in_rule = fold_in_rule
        self.titles = None if titles is None else replace_surrogates(titles)
        self.rating_range = rating_range
        self.default_rating = default_rating
        self.item_similarity = item_similarity or ItemSimilarity()
        self.kernels = kernels
        self.history_range = history_range
        #: A model to keep, where the fold-in rule is its own code and refers to it weakly.
        self.model: Any = None

    def __len__(self) -> int:
        return len(self.item_ids)

    # ------------------------------------------------------------ names

    @cached_property
    def _table(self) -> dict[Any, int]:
        """Positions by id, and by the text of an id where it is unique."""
        ids = self.item_ids.tolist()
        table = {value: at for at, value in enumerate(ids)}
        if self.item_ids.dtype == np.int64:
            return table
        return {canonical(value): at for at, value in reversed(list(enumerate(ids)))} | table

    def position(self, item_id: Any) -> int:
        """Return the position of an id, −1 if unknown; 7 and "7" are the same unless both exist."""
        try:
            at = self._table.get(item_id)
            return self._table.get(canonical(item_id), -1) if at is None else at
        except TypeError:
            return -1

    @cached_property
    def lookup(self) -> ItemLookup:
        """Items by title."""
        return ItemLookup(self.item_ids, self.titles)

    def find_titles(self, ids: Sequence[Any], at: Array) -> Array:
        """Return the positions `at` with those of unknown ids (−1) that are titles filled in."""
        found = np.array(at)
        for place in np.flatnonzero(found < 0).tolist():
            if isinstance(ids[place], str):
                found[place] = self.lookup.find_title(ids[place])
                if found[place] < -1:
                    raise self.lookup.several(ids[place])
        return found

    def unknown_items(self, strange: Sequence[Any], advice: str) -> DataError:
        """Return the error about items that the model does not know."""
        near = self.lookup.near(str(strange[0])) or "."
        return DataError(
            f"{len(strange):,} of the item ids are not in the model, such as"
            f" {strange[0]!r}{near} {advice}"
        )

    def history(
        self, history: Any, unknown: str = "error"
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return sorted positions and ratings of a history; see `histories.parse_history`."""
        return parse_history(history, self, unknown)[:2]

    # ------------------------------------------------------------ read-outs

    def best(
        self,
        at: Array,
        values: Array,
        n: int,
        *,
        exclude_seen: bool = True,
        exclude: Array | None = None,
        only: Array | None = None,
        diversity: float = 0.0,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return positions and scores of the best `n` items for one history (sorted positions).

        Parameters
        ----------
        exclude, only : positions of items to leave out, or to choose among
        diversity : from 0 to 1, as in `discreet.models.diversity`
        """
        vector, offset = self._vector(at, values)
        bias = self._biases
        if only is not None or exclude is not None:
            bias = bias.copy()
        if only is not None:
            allowed = np.zeros(len(bias), bool)
            allowed[only] = True
            bias[~allowed] = -np.inf
        if exclude is not None:
            bias[exclude] = -np.inf
        seen = np.asarray(at, np.int32) if exclude_seen else np.empty(0, np.int32)
        hidden = (np.array([0, len(seen)]), seen)
        own = HistoryRows(np.array([0, len(at)]), np.asarray(at, np.int32), values)
        dense = self.fold_in_rule.item_scores(own, vector, self.factors, self.kernels)
        boost = self.boost(diversity) if diversity else None
        if boost is not None:
            if dense is None:
                dense = score_all(self.fold_in_rule, vector, self.factors, self._biases)
            logarithms = isinstance(self.fold_in_rule, ProfileScores)
            rows, best = rank_diverse(
                dense, boost, logarithms, min(n, len(self)), hidden, np.isneginf(bias)
            )
        elif dense is None:
            rows, best = self.kernels.top_k(vector, self._panels, bias, min(n, len(self)), hidden)
        else:
            rows, best = rank_scores(dense, min(n, len(self)), hidden, np.isneginf(bias))
        found = rows[0] >= 0
        items = rows[0][found]
        scores = best[0][found]
        scores += offset.astype(np.float32)
        if self.rating_range is not None:
            scores = np.clip(scores, *self.rating_range)
        return items, scores

    def best_many(
        self, questions: Sequence[tuple[Array, Array, int, bool]]
    ) -> list[tuple[Array, Array]]:
        """Rank as `best` for several histories (ratings, n, exclude_seen) in one pass.

        The bits are those of single queries.
        """
        own = [np.asarray(at, np.int32) for at, _, _, _ in questions]
        union = np.unique(np.concatenate(own)) if own else np.empty(0, np.int32)
        lengths = np.array([len(at) for at in own])
        flat = np.concatenate(own)
        values = np.concatenate([given for _, given, _, _ in questions])
        V, b, fold_in_rule = self.factors, self.biases, self.fold_in_rule
        whole = rows = HistoryRows(np.concatenate([[0], np.cumsum(lengths)]), flat, values)
        if fold_in_rule.exact_in_part(V.shape[1]):
            fold_in_rule = fold_in_rule.of_items(union)
            V = np.ascontiguousarray(V[union])
            b = b[union]
            rows = rows._replace(indices=np.searchsorted(union, flat).astype(np.int32))
        vectors, offsets = fold_in_rule.score_vectors(rows, V, b, self.kernels)
        left_out = [
            at if leave else at[:0] for at, (_, _, _, leave) in zip(own, questions, strict=True)
        ]
        seen = (
            np.concatenate([[0], np.cumsum([len(at) for at in left_out])]),
            np.concatenate(left_out),
        )
        longest = min(max(n for _, _, n, _ in questions), len(self))
        dense = self.fold_in_rule.item_scores(whole, vectors, self.factors, self.kernels)
        if dense is None:
            items, scores = self.kernels.top_k(vectors, self._panels, self._biases, longest, seen)
        else:
            items, scores = rank_scores(dense, longest, seen)
        scores += offsets[:, None].astype(np.float32)
        answers = []
        for row, (_, _, n, _) in enumerate(questions):
            found = np.flatnonzero(items[row, :n] >= 0)
            kept = scores[row, found]
            answers.append(
                (
                    items[row, found],
                    kept if self.rating_range is None else np.clip(kept, *self.rating_range),
                )
            )
        return answers

    def similar(self, at: int, n: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return positions of the most similar items, and cosines, without the item itself."""
        check_int("n", n)
        panels, lengths = self._unit
        check_that(
            lengths[at] > 0,
            f"no factors were learned for {self.name(at)!r}, so it has no similar items",
        )
        skip = np.zeros(len(self), np.float32)
        skip[at] = -np.inf
        items, scores = self.kernels.top_k(panels.V[at : at + 1], panels, skip, min(n, len(self)))
        found = items[0] >= 0
        return items[0][found], scores[0][found]

    def similar_many(self, at: Array, n: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return `similar` for several items: positions (k, n) and cosines, with −1, −inf padding.

        The row of an item of which nothing was learned is all padding.
        """
        check_int("n", n)
        panels, lengths = self._unit
        itself = (np.arange(len(at) + 1), np.asarray(at, np.int32))
        items, scores = self.kernels.top_k(
            np.ascontiguousarray(panels.V[at]), panels, np.zeros(len(self), np.float32), n, itself
        )
        nothing = lengths[at] == 0
        items[nothing] = -1
        scores[nothing] = -np.inf
        return items, scores

    def explain(
        self, at: Array, values: Array, item: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the items of a history and their contributions to a score, largest first.

        The contribution of an item is the score of `item` less its score without that item in the
        history. Contributions need not add up to the score. Equal ones are sorted by position.
        """
        at = np.asarray(at, np.int32)
        k = len(at)
        whole = self._item_scores(HistoryRows(np.array([0, k]), at, values), item)
        contributions = np.empty(k)
        step = max(1, EXPLAIN_ENTRIES // max(k, len(self)))
        for begin in range(0, k, step):
            part = np.arange(begin, min(begin + step, k))
            kept = part[:, None] != np.arange(k)
            rows = HistoryRows(
                np.arange(len(part) + 1) * (k - 1),
                np.broadcast_to(at, kept.shape)[kept],
                np.broadcast_to(values, kept.shape)[kept],
            )
            contributions[part] = whole - self._item_scores(rows, item)
        order = np.argsort(-contributions, kind="stable")
        return at[order], contributions[order]

    def vector(self, at: Array, values: Array) -> tuple[Array, float]:
        """Compute a user's vector, for ``fold_in_rule.score_factors``, and the offset."""
        vectors, offsets = self._vector(at, values)
        return vectors[0], float(offsets[0])

    def title(self, at: int) -> str | None:
        """Return the title of an item, or None."""
        return None if self.titles is None else str(self.titles[at])

    def name(self, at: int) -> Any:
        """Return the id of an item as a Python object."""
        found = self.item_ids[at]
        return found.item() if isinstance(found, np.generic) else found

    # ------------------------------------------------------------ the parts

    def _item_scores(self, rows: HistoryRows, item: int) -> NDArray[np.float64]:
        """Compute the score of one item for several histories, less its bias unless `dense`."""
        vectors, offsets = self.fold_in_rule.score_vectors(
            rows, self.factors, self.biases, self.kernels
        )
        dense = self.fold_in_rule.item_scores(rows, vectors, self.factors, self.kernels)
        if dense is not None:
            return np.asarray(dense[:, item], np.float64)
        v = self.fold_in_rule.score_factors(self.factors)[item].astype(np.float64)
        return np.asarray(vectors.astype(np.float64) @ v + offsets, np.float64)

    def _vector(self, at: Array, values: Array) -> tuple[Array, Array]:
        """Compute the vector (1, r) and the offset (1,) of one user."""
        V, b, fold_in_rule = self.factors, self.biases, self.fold_in_rule
        rows = HistoryRows(np.array([0, len(at)]), np.asarray(at, np.int32), values)
        if fold_in_rule.exact_in_part(V.shape[1]):
            fold_in_rule = fold_in_rule.of_items(at)
            V = np.ascontiguousarray(V[at])
            b = b[at]
            rows = rows._replace(indices=np.arange(len(at), dtype=np.int32))
        return fold_in_rule.score_vectors(rows, V, b, self.kernels)

    @property
    def is_popularity(self) -> bool:
        """Whether the list is the same for all users, but for the items that they have."""
        return isinstance(self.fold_in_rule, ConstantFoldIn)

    def boost(self, diversity: float) -> Array | None:
        """Return what diversity adds to the logarithm of each item's score; None where it has no
        effect.
        """
        diversity = check_diversity(diversity)
        if self.rating_range is not None or self._log_popularity is None:
            raise ConfigError(
                "diversity needs a model that ranks items and learned their popularity. Use DPMF"
                " with goal='ranking', or leave diversity out."
            )
        found: Array = -diversity * self._log_popularity
        return None if self.is_popularity else found

    @cached_property
    def _log_popularity(self) -> Array | None:
        return log_popularity(self.fold_in_rule, self.factors, self._biases)

    @cached_property
    def _biases(self) -> NDArray[np.float32]:
        return np.ascontiguousarray(self.biases, np.float32)

    @cached_property
    def _panels(self) -> Any:
        return self.kernels.Panels(self.fold_in_rule.score_factors(self.factors))

    @cached_property
    def _unit(self) -> tuple[Any, Array]:
        """Vectors of length 1 by which items are compared, and their lengths before."""
        if self.factors.shape[1] == 0:
            raise ConfigError("items cannot be compared: this model has no item factors")
        V = self.item_similarity.vectors(self.factors)
        lengths = np.linalg.norm(V, axis=1, keepdims=True)
        return self.kernels.Panels(V / np.maximum(lengths, 1e-30)), lengths[:, 0]
