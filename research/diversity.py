"""The dial `diversity` at read-out: one training, and its lists at every setting of the dial."""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet.data.splits import Holdout, Split
from discreet.evaluation.evaluator import evaluate
from discreet.models.dpmf import DPMF
from research.entry import Record, Settings
from research.public_features import _liked
from research.sources import Sources

METRICS = ["recall@20", "coverage@20", "gini@20", "novelty@20", "miscalibration@20"]


class _Dial:
    """A model whose lists are those at one setting of the dial."""

    goal = "ranking"

    def __init__(self, model: DPMF, diversity: float) -> None:
        self.model = model
        self.item_ids_ = model.item_ids_
        self.diversity = diversity

    def predict(self, ratings: Any, pairs: Any) -> Any:
        return self.model.predict(ratings, pairs)

    def recommend_indices(self, ratings: Any, n: int) -> tuple[Any, Any]:
        return self.model.recommend_indices(ratings, n, diversity=self.diversity)


def run(settings: Settings, sources: Sources) -> list[Record]:
    """``data``, ``epsilon``, ``diversities``, ``scale``, ``seed`` (of the split)."""
    liked = _liked(settings["data"], settings["scale"], settings["seed"], sources)
    shown = np.random.default_rng(settings["seed"]).random(liked.n_ratings) < 0.8
    train = liked.keep(shown).with_items(liked.item_ids, public=True)
    hidden = liked.keep(~shown).with_items(liked.item_ids, public=True)
    given = {"epsilon": settings["epsilon"], "delta": 1e-6}
    model = DPMF.configure(goal="ranking", like_threshold="everything", **given).fit(train)
    split = Split(
        "a random fifth of what users like", settings["seed"], train, Holdout(train, hidden)
    )
    found = []
    for beta in settings["diversities"]:
        scores = evaluate(_Dial(model, beta), split, METRICS, slices=None)
        found.append({"diversity": beta, **scores.values})
    return found
