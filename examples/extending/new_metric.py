"""A metric of your own: whether a list has at least one relevant item among its first k.

Run it with ``python examples/extending/new_metric.py``. A metric is a pure function on arrays, one
number per user.
"""

import numpy as np

import discreet
from discreet.data.splits import random_ratings
from discreet.evaluation.metrics import RANKING


def any_hit(hits, n_relevant, k):
    """1 if one of the first k items is relevant to the user, else 0; NaN for a user to whom nothing
    is.

    Parameters
    ----------
    hits : (n_users, length) bool
        Whether the item in each place of a user's list is relevant.
    n_relevant : (n_users,)
    k : int
    """
    return np.where(n_relevant > 0, hits[:, :k].any(axis=1).astype(float), np.nan)


def main():
    RANKING["any_hit"] = any_hit  # in the library, a line in evaluation/metrics.py
    try:
        split = random_ratings(discreet.load_dataset("cinema", scale=0.1), (0.8, 0.2), seed=0)
        result = discreet.evaluate(
            discreet.Popularity().fit(split.train), split, ["any_hit@10", "recall@10"]
        )
        print(result)
    finally:
        del RANKING["any_hit"]


if __name__ == "__main__":
    main()
