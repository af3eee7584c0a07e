"""Generated data have the shape that is asked for, and nothing but the seed decides them."""

from dataclasses import replace

import numpy as np
import pytest

from discreet.errors import ConfigError
from research.families import FAMILIES, SCALES, Family, family, invented, made

SMALL = Family("small", 2_000, 400, 12)


def test_a_seed_decides_everything():
    one, same, other = made(SMALL, 1), made(SMALL, 1), made(SMALL, 2)
    assert np.array_equal(one.indices, same.indices)
    assert np.array_equal(one.values, same.values)
    assert one.n_ratings != other.n_ratings or not np.array_equal(one.indices, other.indices)


@pytest.mark.parametrize("scale", SCALES)
def test_ratings_are_on_their_scale(scale):
    low, high, step = SCALES[scale]
    found = made(replace(SMALL, scale=scale))
    assert found.values.min() >= low
    assert found.values.max() <= high
    assert len(np.unique(found.values)) > 1
    if step:
        steps = (found.values - low) / step
        assert np.allclose(steps, np.round(steps))


def test_people_rate_as_much_as_was_asked_for():
    found = made(SMALL)
    assert found.n_ratings / found.n_users == pytest.approx(12, rel=0.1)
    assert np.diff(found.indptr).min() >= 3
    rows = np.repeat(np.arange(found.n_users), np.diff(found.indptr))
    assert len(np.unique(rows * found.n_items + found.indices)) == found.n_ratings


def test_skew_makes_hits():
    def share_of_twenty(skew):
        counts = np.bincount(made(replace(SMALL, skew=skew)).indices, minlength=SMALL.items)
        return np.sort(counts)[-20:].sum() / counts.sum()

    assert share_of_twenty(0.0) < 0.12 < 0.25 < share_of_twenty(1.6)


def test_taste_makes_structure():
    """The second singular value of what is taken, over what it is where taste says nothing."""

    def second(taste):
        found = made(replace(SMALL, rank=1, taste=taste, skew=0.3))
        X = np.zeros((found.n_users, found.n_items), np.float32)
        X[np.repeat(np.arange(found.n_users), np.diff(found.indptr)), found.indices] = 1
        return np.linalg.svd(X, compute_uv=False)[1]

    assert second(2.0) > 2 * second(0.0)


def test_names():
    assert len({one.name for one in FAMILIES}) == len(FAMILIES)
    assert family("jokes").items == 100
    assert family("invented 3") == invented(3)
    assert family("world").scaled(5_000).users == 5_000
    with pytest.raises(ConfigError, match="there is no family 'joke'"):
        family("joke")


def test_invented_families_cover_the_space_and_stay_affordable():
    found = [invented(seed) for seed in range(200)]
    users = np.array([one.users for one in found])
    items = np.array([one.items for one in found])
    ratings = users * np.array([one.per_user for one in found])
    assert users.min() < 2_000 < 500_000 < users.max()
    assert items.min() < 200 < 50_000 < items.max()
    assert ratings.max() <= 5e6
    assert {one.scale for one in found} == set(SCALES)
