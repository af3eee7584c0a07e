"""A private model of your own: items by the number of users who liked them, not personalized.

Run it with ``python examples/extending/new_model.py``. An algorithm is a frozen dataclass, and a
model class names it in `_kinds`. `discreet.testing` then tests all privacy rules.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import discreet
from discreet.models.algorithm import Algorithm, Learned
from discreet.models.fold_in import ConstantFoldIn
from discreet.models.private import PrivateRecommender
from discreet.privacy.release.plan import Release
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemCounts
from discreet.privacy.users.steps import Choose
from discreet.testing import check_private_model


@dataclass(frozen=True)
class NoisyCounts(Algorithm):
    """Each user picks at most `max_items` of its items; their noisy counts are the scores."""

    name: ClassVar[str] = "noisy counts"
    goal: ClassVar[str] = "ranking"
    max_items: int | None = None

    def resolve(self, budget, n_items, rating_range):
        return replace(self, max_items=20 if self.max_items is None else self.max_items)

    def bounds(self):
        return Bounds(items=self.max_items)

    def releases(self, n_items):
        return [Release("counts", shape=(n_items,))]

    def statistics(self, users):
        users.apply(Choose())
        return {"counts": users.sum(ItemCounts())}

    def learn(self, users, session, *, features, seed, progress):
        users.apply(Choose())
        counts = session.release("counts", users.sum(ItemCounts()))
        progress(1, 1, "counting")
        return Learned(np.zeros((users.n_items, 0), np.float32), counts.astype(np.float32), counts)

    def fold_in_rule(self, learned):
        return ConstantFoldIn()


class PrivatePopularity(PrivateRecommender):
    """The same list for all users, privately.

    Parameters
    ----------
    max_items : int, optional
        Through how many items a user contributes. Default 20.
    """

    goal = "ranking"
    _kinds = (NoisyCounts,)

    max_items: int | None = None


def main():
    model = PrivatePopularity(epsilon=1.0).fit(discreet.load_dataset("cinema", scale=0.1))
    print(model.recommend([], n=5)[0].tolist())
    print(model.privacy_)
    print(
        check_private_model(
            PrivatePopularity(epsilon=1.0), people=4, draws=2000, rules=["statement", "neighbors"]
        )
    )


if __name__ == "__main__":
    main()
