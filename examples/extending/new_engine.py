"""An engine of your own: people whose ratings lie in several sources, such as one for each country.

Run it with ``python examples/extending/new_engine.py``. An engine seals people in blocks; steps and
sums are the library's, and exact, so that the model has the same bits as from one table. No user
may be in two blocks.
"""

import numpy as np

import discreet
from discreet.engines import LocalRatings, RatingsSource

# only `privacy` and `engines` may import this: an engine belongs to them
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.base import Public
from discreet.privacy.users.sealed_users import Users, seal


class ManySources:
    """Several `Ratings` over one public catalog, with different users."""

    catalog = True
    filtered = ""

    def __init__(self, sources, items):
        self._sources = [source.with_items(items, "drop") for source in sources]
        self.item_ids = self._sources[0].item_ids
        self.titles = self._sources[0].titles

    @property
    def n_items(self):
        return len(self.item_ids)

    def rating_range(self):
        ranges = [found for source in self._sources if (found := source.rating_range())]
        return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None

    def seal(self, bounds, *, seed=0):
        sealed = [seal(source, bounds, seed=seed) for source in self._sources]
        return Users(
            [block for users in sealed for block in users.open(KEY)], Public(bounds, self.n_items)
        )


def main():
    ratings = discreet.load_dataset("cinema", scale=0.1)
    half = ratings.n_users // 2
    north = ratings.select_users(np.arange(half))
    south = ratings.select_users(np.arange(half, ratings.n_users))
    people = ManySources(
        [north, south], dict(zip(ratings.item_ids.tolist(), ratings.titles, strict=True))
    )
    assert isinstance(people, RatingsSource)
    assert isinstance(LocalRatings(ratings), RatingsSource)
    model = discreet.DPMF(epsilon=5.0, goal="rating", rating_range=(0.5, 5.0)).fit(people)
    print(model.recommend(["the-binary-colony"], n=5)[0].tolist())
    print(f"ε = {model.privacy_.epsilon:g}")


if __name__ == "__main__":
    main()
