"""Released sums of several trainings: combined by their noise, over catalogs that change."""

import numpy as np
import pytest

import discreet
from discreet.errors import ConfigError, DataError
from discreet.models.dpmf.estimates import Estimate
from discreet.models.dpmf.released_rows import (
    ReleasedRows,
    center_pairs,
    make_row,
    uncenter_pairs,
)


def symmetric(rng, m):
    S = rng.random((m, m)).astype(np.float32)
    S = S + S.T
    np.fill_diagonal(S, 0.0)
    return S


def make_ratings(seed=0, n=400, m=30, ids=None):
    rng = np.random.default_rng(seed)
    taste = rng.random(n) < 0.5
    chance = np.where(taste[:, None] == (np.arange(m) % 2 == 0), 0.5, 0.1)
    user, item = np.nonzero(rng.random((n, m)) < chance)
    ids = np.arange(m) if ids is None else ids
    return discreet.Ratings.from_arrays(user, ids[item], np.full(len(user), 5.0), item_ids=ids)


def fit(ratings, seed, prior=None, epsilon=20):
    model = discreet.DPMF(epsilon=epsilon, rating_range=(1, 5), noise="seeded", random_state=seed)
    return model.fit(ratings, prior=prior, progress=False)


@pytest.mark.parametrize("m", [4, 9, 40])
def test_centering_of_pairs_can_be_undone(m):
    rng = np.random.default_rng(m)
    S, c = symmetric(rng, m), rng.random(m) ** 2
    np.testing.assert_allclose(uncenter_pairs(center_pairs(S, c), c), S, atol=2e-4)


def test_rows_are_combined_by_their_precision():
    rng = np.random.default_rng(0)
    true = rng.random(20)
    rows = ReleasedRows((), 20)
    for deviation, size in ((2.0, 100.0), (5.0, 300.0)):
        counts = Estimate(size * true + deviation * rng.standard_normal(20), deviation)
        rows = rows.append_row(make_row(counts, size=size, size_deviation=0.0))
    found = rows.counts(300.0, 1.0)
    weights = np.array([100.0**2 / 4, 300.0**2 / 25])
    means = np.array([row.counts / row.size for row in rows.rows])
    expected = 300 * weights @ means / weights.sum()
    np.testing.assert_allclose(found.value, expected, rtol=1e-6)
    np.testing.assert_allclose(found.deviation, 300 / np.sqrt(weights.sum()), rtol=1e-6)


def test_an_item_that_becomes_popular_at_once_begins_anew():
    old, new = np.array([100.0, 0.0, 50.0]), np.array([100.0, 90.0, 51.0])
    rows = [
        make_row(Estimate(counts, 1.0), size=1000.0, size_deviation=1.0)
        for counts in (old, old, old, new)
    ]
    found = ReleasedRows(tuple(rows), 3).counts(1000.0, 1.0)
    np.testing.assert_allclose(found.value, [100.0, 90.0, 50.25], rtol=1e-4)
    np.testing.assert_allclose(found.deviation, [0.5, 1.0, 0.5], rtol=1e-4)


def test_pairs_of_changing_cores_are_added_where_both_items_were_there():
    rng = np.random.default_rng(1)
    S = symmetric(rng, 6)
    counts = Estimate(np.ones(6), 1.0)
    rows = ReleasedRows((), 6)
    for core in (np.array([0, 1, 2]), np.array([1, 2, 4])):
        part = S[np.ix_(core, core)]
        rows = rows.append_row(make_row(counts, core, part, 1.0, size=10.0, size_deviation=0.0))
    found = rows.pairs(np.array([0, 1, 2, 4]), 10.0, 1.0)
    assert np.isinf(found.deviation[0, 3])
    assert found.value[0, 3] == 0
    assert found.deviation[1, 2] == pytest.approx(0.5**0.5)
    np.testing.assert_allclose(found.value[1, 2], S[1, 2], rtol=1e-6)
    np.testing.assert_allclose(found.value[1, 3], S[1, 4], rtol=1e-6)


def test_forgetting_follows_from_released_counts():
    rng = np.random.default_rng(2)
    still, moving = ReleasedRows((), 60), ReleasedRows((), 60)
    mean = rng.random(60)
    step = np.zeros(60)
    for _ in range(10):
        step = step + 0.05 * rng.standard_normal(60)
        for name, value in (("still", mean), ("moving", mean + step)):
            counts = Estimate(1000 * value + 10 * rng.standard_normal(60), 10.0)
            row = make_row(counts, size=1000.0, size_deviation=0.0)
            if name == "still":
                still = still.append_row(row)
            else:
                moving = moving.append_row(row)
    assert still.choose_forgetting()[0] > 0.9
    assert moving.choose_forgetting()[0] < 0.4
    assert moving.choose_forgetting(least=0.8)[0] == 0.8


def test_a_prior_lowers_the_noise_and_its_ledger_is_kept():
    ratings = make_ratings()
    first = fit(ratings, 1)
    second = fit(ratings, 2, first)
    assert len(second.released_.rows) == 2
    assert second.earlier_ledgers_ == (first.privacy_.ledger,)
    assert "earlier trainings" in str(second.privacy_)
    exact = np.bincount(ratings.indices, minlength=30).astype(float)
    off = [np.abs(np.corrcoef(m.counts_, exact)[0, 1]) for m in (first, second)]
    assert min(off) > 0.9
    assert second.details_["least_count"] <= first.details_["least_count"]


def test_released_sums_survive_saving_and_a_new_catalog(tmp_path):
    first = fit(make_ratings(), 1)
    first.save(tmp_path / "model")
    loaded = discreet.load(tmp_path / "model")
    assert len(loaded.released_.rows) == 1
    np.testing.assert_array_equal(loaded.released_.rows[0].pairs, first.released_.rows[0].pairs)
    ids = np.append(np.arange(5, 30), [100, 101])
    others = make_ratings(seed=3, m=27, ids=ids)
    with pytest.raises(ConfigError, match=r"was loaded, and its seeded noise may be the same"):
        fit(others, 1, loaded)
    second = discreet.DPMF(epsilon=20, rating_range=(1, 5)).fit(others, prior=loaded)
    assert second.released_.n_items == 27
    assert set(second.released_.rows[0].items) == set(range(25))


def test_priors_that_do_not_fit_are_refused():
    ratings = make_ratings()
    first = fit(ratings, 1)
    with pytest.raises(ConfigError, match="same random_state"):
        fit(ratings, 1, first)
    with pytest.raises(ConfigError, match="catalog"):
        discreet.DPMF(epsilon=1).fit(ratings, prior=first)
    with pytest.raises(ConfigError, match="goal='ranking'"):
        discreet.DPALS(epsilon=1, rating_range=(1, 5)).fit(ratings, prior=first)
    with pytest.raises(ConfigError, match="another like_threshold"):
        discreet.DPMF(epsilon=1, rating_range=(0, 5)).fit(ratings, prior=first)


def test_damaged_rows_are_refused():
    arrays = fit(make_ratings(), 1).released_.to_arrays()
    arrays["released.0.core"] = arrays["released.0.core"] + 1000
    with pytest.raises(DataError, match="wrong shape"):
        ReleasedRows.from_arrays(arrays, 30)
