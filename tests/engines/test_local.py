"""People in blocks: what is released, and so what is learned, has the same bits for any number
of blocks.
"""

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.engines import LocalRatings, RatingsSource
from discreet.errors import ConfigError, DataError, PrivacyError
from discreet.privacy.noise.sources import SecureNoise

MODELS = {
    "DPMF, rating": lambda: discreet.DPMF(
        epsilon=8.0, goal="rating", rating_range=(0.5, 5.0), random_state=1
    ),
    "DPALS": lambda: discreet.DPALS(8, epsilon=8.0, rating_range=(0.5, 5.0), random_state=1),
    "DPALS, implicit": lambda: discreet.DPALS(8, epsilon=8.0, goal="ranking", random_state=1),
    "DPLMC": lambda: discreet.DPLMC(6, epsilon=8.0, rating_range=(0.5, 5.0), random_state=1),
    "HuberALS": lambda: discreet.HuberALS(epsilon=8.0, rating_range=(0.5, 5.0), random_state=1),
    "DPFrankWolfe": lambda: discreet.DPFrankWolfe(
        3, epsilon=8.0, rating_range=(0.5, 5.0), random_state=1
    ),
    "DPSVD": lambda: discreet.DPSVD(epsilon=8.0, rating_range=(0.5, 5.0), random_state=1),
    "DPSGLD": lambda: discreet.DPSGLD(
        epsilon=8.0, iterations=4, rating_range=(0.5, 5.0), random_state=1
    ),
}


@pytest.fixture(scope="module")
def ratings():
    return random_ratings(discreet.load_dataset("cinema", scale=0.05), (0.9, 0.1), seed=5).train


@pytest.fixture
def silent(monkeypatch):
    """Secure noise is silenced, and everything that it would have been added to is kept."""
    seen = []

    def add(self, values, mechanism, weights=None, grid=None):
        assert values.dtype == np.int64, "exact sums are int64"
        seen.append(values.copy())
        return values * grid

    monkeypatch.setattr(SecureNoise, "add", add)
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_blocks_gives_the_same_bits(ratings, silent, name):
    whole = MODELS[name]().fit(ratings)
    released = list(silent)
    assert released
    for parts in (1, 3, 7):
        silent.clear()
        model = MODELS[name]().fit(LocalRatings(ratings, parts))
        assert all(np.array_equal(a, b) for a, b in zip(released, silent, strict=True))
        assert np.array_equal(model.item_factors_, whole.item_factors_)
        assert np.array_equal(model.item_biases_, whole.item_biases_)
        assert [entry.name for entry in model.privacy_.ledger.entries] == [
            e.name for e in whole.privacy_.ledger.entries
        ]


def test_more_blocks_than_people(silent):
    few = discreet.Ratings.from_arrays([1, 1, 2], [1, 2, 1], [5.0, 1.0, 3.0])
    models = [
        discreet.DPLMC(2, epsilon=50.0, rating_range=(1, 5), random_state=0).fit(people)
        for people in (few, LocalRatings(few, 9))
    ]
    assert np.array_equal(models[0].item_factors_, models[1].item_factors_)


def test_what_fit_accepts(ratings):
    people = LocalRatings(ratings, 2)
    assert isinstance(people, RatingsSource)
    with pytest.raises(PrivacyError):
        len(people.seal(MODELS["DPALS"]().resolve(1).bounds()))
    assert str(ratings.n_users) not in repr(people)
    with pytest.raises(
        DataError, match="fit needs Ratings, a frame or a sparse matrix, not a list"
    ):
        MODELS["DPALS"]().fit([1, 2])
    with pytest.raises(ConfigError, match="parts is 0"):
        LocalRatings(ratings, 0)


def test_a_range_that_was_not_given_is_asked_of_the_people(ratings, silent):
    model = discreet.DPMF(epsilon=8.0, goal="rating").fit(LocalRatings(ratings, 3))
    assert model.rating_range_ == ratings.rating_range()
    assert any(
        assumption.inferred and assumption.name == "ratings"
        for assumption in model.privacy_.assumptions
    )
