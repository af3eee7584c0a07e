"""A model with the interface of `implicit`: sparse matrices in, column numbers and scores out.

`implicit.evaluation` and programs for `implicit` 0.5 or later can use it like a model. Differences:

- A user's factors are computed from the row of ``user_items`` in the call and are not stored. So
  that row is always needed, ``recalculate_user`` has no effect, and ``user_factors`` and
  ``similar_users`` are refused.
- Updating items from users' data (``partial_fit_items``, ``recalculate_item``) would be another
  release: train again, with an account (`discreet.BudgetStore`) if the users are the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError
from discreet.models.base import Recommender
from discreet.models.storage.save_load import load

Array = NDArray[Any]


class ImplicitAdapter:
    """Adapter that gives any `Recommender` the interface of `implicit`.

    Parameters
    ----------
    model : Recommender
        Fitted or not, such as ``discreet.DPMF(epsilon=1)``. A fitted one must have been trained on
        a sparse matrix, so that its items are the numbers of columns.
    public_items : bool
        Whether the columns are a public catalog, which includes items without interactions.
        Otherwise the statement of a private model has a caution.
    """

    def __init__(self, model: Recommender, *, public_items: bool = False) -> None:
        self.model = model
        self.public_items = public_items

    def __repr__(self) -> str:
        return f"ImplicitAdapter({self.model!r})"

    # ------------------------------------------------------------ training

    def fit(
        self,
        user_items: Any,
        show_progress: bool = True,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Self:
        """Train on a sparse matrix with one row per user and one column per item.

        Parameters
        ----------
        user_items : scipy sparse matrix
            Values are ratings, for models that use them.
        show_progress : bool
            Show a progress bar on a terminal.
        callback : function, optional
            Called as ``callback(step, seconds)`` after each step.
        """
        if not sparse.issparse(user_items):
            raise DataError(
                f"user_items is a {type(user_items).__name__}, but must be a sparse matrix of users"
                " and items"
            )
        items = range(user_items.shape[1])
        ratings = Ratings.from_csr(user_items, items=list(items) if self.public_items else None)
        start = time.perf_counter()

        def report(done: int, total: int, text: str) -> None:
            if callback is not None:
                callback(done - 1, time.perf_counter() - start)

        shown = None if show_progress else False
        self.model.fit(ratings, progress=shown if callback is None else report)
        return self

    @property
    def privacy_(self) -> Any:
        """Privacy statement of the wrapped model, if it is private."""
        return self.model.privacy_  # type: ignore[attr-defined]

    # ------------------------------------------------------------ recommendations

    def recommend(
        self,
        userid: Any,
        user_items: Any,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = True,
        items: Any = None,
    ) -> tuple[Array, Array]:
        """Recommend items to one user, or to several at once.

        Parameters
        ----------
        userid : a number, or an array of them
            Only whether it is one or several matters: the model stores nothing about users.
        user_items : sparse matrix
            Histories, one row per user.
        N : int
        filter_already_liked_items : bool
            Leave out items in the user's row.
        filter_items : numbers of items, optional
            Items to leave out for all users.
        recalculate_user : bool
            Ignored: factors are always computed from the row.
        items : numbers of items, optional
            Items to choose from; not together with filter_items.

        Returns
        -------
        items, scores
            Arrays (n,) for one user, with at most N items; (users, N) for several, padded with −1
            and −inf.
        """
        alone = np.isscalar(userid)
        rows = self._rows(user_items, 1 if alone else len(userid))
        only = self._among(items, filter_items)
        left_out = [] if filter_items is None else list(np.asarray(filter_items).tolist())
        found, scores = self.model.recommend_many(
            rows,
            N if only is None else min(N, len(only)),
            exclude_seen=filter_already_liked_items,
            exclude=left_out,
            items=only,
            progress=False,
        )
        found = found.astype(np.int32)  # the type that implicit's compiled code expects
        if not alone:
            return found, scores
        there = found[0] >= 0
        return found[0][there], scores[0][there]

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> tuple[Array, Array]:
        """Find the items most similar to one or several items, themselves first, with cosines."""
        if recalculate_item or item_users is not None:
            raise ConfigError(
                "recalculate_item would be another release of users' data: train the model again"
            )
        asked = np.atleast_1d(np.asarray(itemid))
        only = self._among(items, filter_items)
        n_items = len(self.model.item_ids_)
        found, scores = self.model.similar_items(asked, n_items)
        found = np.hstack([asked[:, None], found])
        scores = np.hstack([np.ones((len(asked), 1), np.float32), scores])
        allowed = np.ones(n_items, bool)
        if only is not None:
            allowed = np.isin(np.arange(n_items), only)
        if filter_items is not None:
            allowed[np.asarray(filter_items)] = False
        keep = (found >= 0) & allowed[found]
        order = np.argsort(~keep, axis=1, kind="stable")[:, : min(N, n_items)]
        chosen = np.take_along_axis(keep, order, axis=1)
        found = np.where(chosen, np.take_along_axis(found, order, axis=1), -1).astype(np.int32)
        scores = np.where(chosen, np.take_along_axis(scores, order, axis=1), -np.inf)
        if not np.isscalar(itemid):
            return found, scores
        return found[0][chosen[0]], scores[0][chosen[0]]

    def recalculate_user(self, userid: Any, user_items: Any) -> Array:
        """Compute user factors; products with `item_factors` are scores up to a user constant."""
        rows = self._rows(user_items, 1 if np.isscalar(userid) else len(userid))
        vectors, _, _ = self.model.score_vectors(rows.indptr, rows.indices, rows.values)
        found = np.hstack([vectors, np.ones((len(vectors), 1), vectors.dtype)])
        return found[0] if np.isscalar(userid) else found

    @property
    def item_factors(self) -> Array:
        """Factors and bias of each item (items, factors + 1), covered by the statement."""
        no_users = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
        factors = self.model.score_vectors(*no_users)[2]
        return np.hstack([factors, self.model.item_biases_[:, None].astype(factors.dtype)])

    # ------------------------------------------------------------ not supported

    @property
    def user_factors(self) -> NoReturn:
        raise AttributeError(
            "the model has no user_factors: compute them with recalculate_user from the user's row"
        )

    def similar_users(
        self, userid: Any, N: int = 10, filter_users: Any = None, users: Any = None
    ) -> NoReturn:
        """Raise an error: the model stores no user factors."""
        self.model.similar_users(userid)

    def partial_fit_items(self, itemids: Any, item_users: Any) -> NoReturn:
        """Raise an error: updating items from users' data is a release."""
        raise ConfigError(
            "partial_fit_items would be another release of users' data: train the model again"
        )

    def partial_fit_users(self, userids: Any, user_items: Any) -> None:
        """Do nothing: users need no training."""

    # ------------------------------------------------------------ storage

    def save(self, file: str | os.PathLike[str]) -> None:
        """Save the wrapped model to a folder; see `Recommender.save`."""
        self.model.save(file)

    @classmethod
    def load(cls, fileobj_or_path: str | os.PathLike[str]) -> Self:
        """Load a saved model."""
        return cls(load(fileobj_or_path))

    # ------------------------------------------------------------ checks

    def _rows(self, user_items: Any, users: int) -> Ratings:
        if not (sparse.issparse(user_items) and user_items.format == "csr"):
            raise ValueError(
                "user_items must be a CSR matrix with one row per user: factors are computed from"
                " these rows, because the model stores none"
            )
        if user_items.shape[0] != users:
            raise ValueError(
                f"user_items has {user_items.shape[0]:,} rows for {users:,} users: pass one row per"
                " user"
            )
        return Ratings.from_csr(user_items, item_ids=self.model.item_ids_)

    def _among(self, items: Any, filter_items: Any) -> list[int] | None:
        if items is None:
            return None
        if filter_items is not None and len(filter_items):
            raise ValueError("Pass either items or filter_items, not both.")
        chosen = np.asarray(items)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= len(self.model.item_ids_)):
            raise IndexError(f"items must be from 0 to {len(self.model.item_ids_) - 1:,}")
        return list(chosen.tolist())
