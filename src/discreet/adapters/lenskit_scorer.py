"""A scorer for LensKit's pipelines (`lenskit` 2025 and later), which trains and reads out one of
our models.

    scorer = PrivateScorer(epsilon=1, parameters={"rating_range": [0.5, 5]})
    pipeline = lenskit.topn_pipeline(scorer)
    pipeline.train(dataset)

Scores come from the items of the query alone (LensKit looks them up for known users), so that a
trained scorer holds no user's vector and no rating. Items that the model does not know have no
score. LensKit needs torch, so it is no dependency of ours: ``pip install lenskit``.
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


class PrivateScorerConfig(BaseModel):
    """What to train.

    Attributes
    ----------
    model : str
        The name of a model, such as DPMF, DPALS or, without privacy, ALS.
    epsilon : float or None
        Of a private model, which has no default: training is refused without.
    parameters : dict
        Other parameters of the model, as its class takes them.
    public_items : bool
        Whether the items of the data set are a public catalog. Otherwise the statement carries a
        caution.
    """

    model: str = "DPMF"
    epsilon: float | None = None
    parameters: dict[str, JsonValue] = {}
    public_items: bool = False


class PrivateScorer(Component[ItemList], Trainable):
    """Scores items by one of our models; ``model_`` is that model, and ``privacy_`` what it
    promises.
    """

    config: PrivateScorerConfig
    model_: Any

    # The default is that of LensKit's own signature.
    def train(self, data: Dataset, options: TrainingOptions = TrainingOptions()) -> None:  # noqa: B008
        """Learn from the ratings of a data set, or from its interactions where it has none.

        The generator in `options` is not used: the seed of a private training is nobody's business.
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
        """Scores of `items` for whoever chose the items of the query; somebody without any is a
        newcomer.
        """
        asked = RecQuery.create(query)
        scorer = self.model_.scorer()
        at = [scorer.position(item) for item in items.ids().tolist()]
        u, offset = scorer.vector(*self._history(asked.query_items))
        where = np.array(at, np.int64)
        known = where >= 0
        scores = np.full(len(where), np.nan, np.float32)
        V = scorer.fold_in_rule.score_factors(scorer.factors)
        scores[known] = V[where[known]] @ u + scorer.biases[where[known]] + offset
        if scorer.rating_range is not None:
            scores = np.clip(scores, *scorer.rating_range)
        return ItemList(items, scores=scores)

    @property
    def privacy_(self) -> Any:
        """The statement of the model inside, if it is a private one."""
        return self.model_.privacy_

    def _make(self) -> Any:
        if self.config.model not in MODELS:
            raise ConfigError(
                f"there is no model {self.config.model!r}: there are {', '.join(MODELS)}"
            )
        cls = model_class(self.config.model)
        given = {
            name: tuple(v) if isinstance(v, list) else v
            for name, v in self.config.parameters.items()
        }
        if "epsilon" not in cls.parameter_names():
            if self.config.epsilon is not None:
                raise ConfigError(
                    f"epsilon is for private models, and {cls.__name__} is not: leave it out"
                )
            return cls(**given)
        if self.config.epsilon is None:
            raise ConfigError(
                f"{cls.__name__} needs a privacy budget: pass epsilon, for example epsilon=1"
            )
        return cls(**given, epsilon=self.config.epsilon)

    def _history(self, items: ItemList | None) -> tuple[Any, Any]:
        """Positions in order, and ratings, of what the model knows of the query."""
        scorer = self.model_.scorer()
        if items is None or not len(items):
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        at = np.array([scorer.position(item) for item in items.ids().tolist()], np.int64)
        ratings = items.field("rating")
        liked = np.full(len(at), scorer.default_rating, np.float32)
        values = liked if ratings is None else np.asarray(ratings, np.float32)
        good = (at >= 0) & np.isfinite(values)
        # the last one counts where an item is there twice
        unique, last = np.unique(at[good][::-1], return_index=True)
        return unique.astype(np.int32), values[good][::-1][last]
