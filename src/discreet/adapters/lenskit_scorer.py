"""A scorer for LensKit's pipelines (`lenskit` 2025 and later), based on any model of discreet.

    scorer = PrivateScorer(epsilon=1, parameters={"rating_range": [0.5, 5]})
    pipeline = lenskit.topn_pipeline(scorer)
    pipeline.train(dataset)

Scores are computed from the items of the query alone (LensKit fetches them for known users), so a
trained scorer contains no user factors and no ratings. Unknown items have no score. LensKit needs
torch, so it is not a dependency: ``pip install lenskit``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel, JsonValue

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.models import MODELS, model_class
from discreet.models.fold_in import HistoryRows


class PrivateScorerConfig(BaseModel):
    """Model and parameters to train.

    Attributes
    ----------
    model : str
        Name of a model, such as DPMF, DPALS or, without privacy, ALS.
    epsilon : float or None
        Privacy budget; required by private models.
    parameters : dict
        Other parameters of the model class.
    public_items : bool
        Whether the items of the data set are a public catalog. Otherwise the statement has a
        caution.
    """

    model: str = "DPMF"
    epsilon: float | None = None
    parameters: dict[str, JsonValue] = {}
    public_items: bool = False


class PrivateScorer(Component[ItemList], Trainable):
    """Scorer with the trained model as ``model_`` and its privacy statement as ``privacy_``."""

    config: PrivateScorerConfig
    model_: Any

    # the default is that of LensKit's signature
    def train(self, data: Dataset, options: TrainingOptions = TrainingOptions()) -> None:  # noqa: B008
        """Train on the ratings of a data set, or on its interactions if it has none.

        The generator in `options` is not used: the seed of private training must stay secret.
        """
        if hasattr(self, "model_") and not options.retrain:
            return
        model = self._make()
        rated = "rating" in data.interactions().attribute_names
        matrix = data.interaction_matrix(format="scipy", field="rating" if rated else None)
        items = data.items.ids()
        ratings = Ratings.from_csr(
            matrix, item_ids=items, items=items.tolist() if self.config.public_items else None
        )
        self.model_ = model.fit(ratings)

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Score `items` for the user of the query; a user without items is a new user."""
        asked = RecQuery.create(query)
        scorer = self.model_.scorer()
        at = [scorer.position(item) for item in items.ids().tolist()]
        history = self._history(asked.query_items)
        u, offset = scorer.vector(*history)
        where = np.array(at, np.int64)
        known = where >= 0
        scores = np.full(len(where), np.nan, np.float32)
        rows = HistoryRows(np.array([0, len(history[0])]), *history)
        dense = scorer.fold_in_rule.item_scores(rows, u[None], scorer.factors)
        if dense is None:
            V = scorer.fold_in_rule.score_factors(scorer.factors)
            scores[known] = V[where[known]] @ u + scorer.biases[where[known]] + offset
        else:
            scores[known] = dense[0, where[known]]
        if scorer.rating_range is not None:
            scores = np.clip(scores, *scorer.rating_range)
        return ItemList(items, scores=scores)

    @property
    def privacy_(self) -> Any:
        """Privacy statement of the trained model, if it is private."""
        return self.model_.privacy_

    def _make(self) -> Any:
        if self.config.model not in MODELS:
            raise ConfigError(
                f"unknown model {self.config.model!r}: use one of {', '.join(MODELS)}"
            )
        cls = model_class(self.config.model)
        given = {
            name: tuple(v) if isinstance(v, list) else v
            for name, v in self.config.parameters.items()
        }
        if "epsilon" not in cls.parameter_names():
            if self.config.epsilon is not None:
                raise ConfigError(
                    f"epsilon is for private models, and {cls.__name__} is not private: leave it"
                    " out"
                )
            return cls(**given)
        if self.config.epsilon is None:
            raise ConfigError(
                f"{cls.__name__} needs a privacy budget: pass epsilon, for example epsilon=1"
            )
        return cls(**given, epsilon=self.config.epsilon)

    def _history(self, items: ItemList | None) -> tuple[Any, Any]:
        """Return sorted positions and ratings of the query's items that the model knows."""
        scorer = self.model_.scorer()
        if items is None or not len(items):
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        at = np.array([scorer.position(item) for item in items.ids().tolist()], np.int64)
        ratings = items.field("rating")
        liked = np.full(len(at), scorer.default_rating, np.float32)
        values = liked if ratings is None else np.asarray(ratings, np.float32)
        good = (at >= 0) & np.isfinite(values)
        # of repeated items, the last one counts
        unique, last = np.unique(at[good][::-1], return_index=True)
        return unique.astype(np.int32), values[good][::-1][last]
