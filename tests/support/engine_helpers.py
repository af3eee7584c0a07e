"""What the tests of all engines share: people, models, silence, and what was added up."""

import numpy as np

import discreet
from discreet.data.splits import random_ratings
from discreet.privacy.noise.sources import SecureNoise

SCALE = (0.5, 5.0)
MODELS = {
    "DPMF, ranking": lambda: discreet.DPMF(epsilon=8.0, rating_range=SCALE, random_state=1),
    "DPMF, rating": lambda: discreet.DPMF(epsilon=8.0, goal="rating", rating_range=SCALE, random_state=1, iterations=2),
    "DPALS": lambda: discreet.DPALS(8, epsilon=8.0, rating_range=SCALE, random_state=1),
    "DPLMC": lambda: discreet.DPLMC(6, epsilon=8.0, rating_range=SCALE, random_state=1, iterations=2),
}


def some_ratings():
    return random_ratings(discreet.load_dataset("cinema", scale=0.02), (0.9, 0.1), seed=5).train


def silenced(monkeypatch):
    """Secure noise adds nothing; everything that it would have been added to is kept in the list returned."""
    seen = []

    def add(self, values, mechanism, weights=None, grid=None):
        assert values.dtype == np.int64, "exact sums are int64"
        seen.append(values.copy())
        return values * grid

    monkeypatch.setattr(SecureNoise, "add", add)
    return seen


def trained(model, people, seen):
    """The model, and every exact sum behind its releases."""
    seen.clear()
    return model.fit(people), list(seen)


def same_bits(one, other):
    (model, sums), (model_2, sums_2) = one, other
    assert sums
    assert all(np.array_equal(a, b) for a, b in zip(sums, sums_2, strict=True))
    assert np.array_equal(model.item_factors_, model_2.item_factors_)
    assert np.array_equal(model.item_biases_, model_2.item_biases_)
    first, second = model.privacy_.ledger.entries, model_2.privacy_.ledger.entries
    assert [(entry.name, entry.sensitivity, entry.shape) for entry in first] == [
        (entry.name, entry.sensitivity, entry.shape) for entry in second
    ]
