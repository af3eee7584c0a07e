"""Twins: the published shape, the published difficulty, and a cache that never holds half a
twin.
"""

import logging

import numpy as np
import pytest

from discreet.data import splits
from discreet.data.datasets import load_dataset
from discreet.errors import ConfigError
from research import twins

NAMES = ("twin-ml10m", "twin-ml20m")


@pytest.fixture(scope="module")
def small_10m():
    return twins.make_twin("twin-ml10m", scale=0.05)


@pytest.fixture(scope="module")
def small_20m():
    return twins.make_twin("twin-ml20m", scale=0.05)


@pytest.mark.parametrize(
    ("name", "median", "mean", "most"),
    [("twin-ml10m", 69, 143.1, 7_359), ("twin-ml20m", 37, 73.1, 3_177)],
)
def test_activity_has_the_published_shape(name, median, mean, most):
    profile = twins.PROFILES[name]
    counts = twins.activity(profile, np.random.default_rng(0))
    assert len(counts) == profile.users
    assert counts.min() == profile.user_min
    assert np.median(counts) == pytest.approx(median, rel=0.03)
    assert counts.mean() == pytest.approx(mean, rel=1e-3)
    assert counts.max() <= most
    assert counts.sum() == pytest.approx(profile.ratings, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "median", "most"), [("twin-ml10m", 135, 34_864), ("twin-ml20m", 15, 48_000)]
)
def test_popularity_has_the_published_shape(name, median, most):
    profile = twins.PROFILES[name]
    counts = twins.popularity(profile)
    assert len(counts) == profile.items
    assert (np.diff(counts) <= 0).all()
    assert np.median(counts) == pytest.approx(median, rel=0.02)
    assert counts[0] == pytest.approx(most, rel=0.01)
    assert counts.sum() == pytest.approx(profile.ratings, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_taste_has_unit_variance_and_a_power_law(name):
    profile = twins.PROFILES[name].scaled(0.05)
    users, items = twins.taste(profile, np.random.default_rng(0))
    assert (users[:500] @ items.T).var() == pytest.approx(1, rel=0.05)
    spread = items.std(axis=0)
    assert spread[9] / spread[0] == pytest.approx(10**-profile.decay, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_small_twins_are_well_formed(name, small_10m, small_20m):
    ratings = small_10m if name == "twin-ml10m" else small_20m
    profile = twins.PROFILES[name].scaled(0.05)
    assert (ratings.n_users, ratings.n_items) == (profile.users, profile.items)
    assert ratings.n_ratings == pytest.approx(profile.ratings, rel=2e-3)
    assert np.diff(ratings.indptr).min() == profile.user_min
    assert np.bincount(ratings.indices, minlength=profile.items).min() >= 1  # every item is rated
    rows = np.repeat(np.arange(ratings.n_users, dtype=np.int64), np.diff(ratings.indptr))
    assert (np.diff(rows * ratings.n_items + ratings.indices) > 0).all()  # sorted, no repetition
    assert ratings.catalog


def test_item_ids_carry_no_information(small_10m):
    counts = np.bincount(small_10m.indices, minlength=small_10m.n_items)
    assert abs(np.corrcoef(np.arange(len(counts)), counts)[0, 1]) < 0.05


def test_stars_have_the_published_shares(small_10m):
    shares = (
        np.bincount(np.rint(small_10m.values * 2).astype(int), minlength=11)[1:]
        / small_10m.n_ratings
    )
    assert shares == pytest.approx(twins.ALL_SHARES, abs=2e-3)
    whole = [
        np.all(small_10m.values[a:b] % 1 == 0)
        for a, b in zip(small_10m.indptr[:-1], small_10m.indptr[1:], strict=True)
    ]
    assert np.mean(whole) == pytest.approx(0.58, abs=0.03)  # the others give half stars


def test_positives_are_all_one(small_20m):
    assert (small_20m.values == 1).all()


def test_means_and_biases_score_as_on_the_original(small_10m):
    """The published RMSE (full twin: 1.057, 0.943, 0.976, 0.863); the small twin knows its
    items less well.
    """
    split = splits.random_ratings(small_10m, seed=0)
    train, test = split.train, split.test.target
    rows, row = (np.repeat(np.arange(r.n_users), np.diff(r.indptr)) for r in (train, test))
    item_count, user_count = np.bincount(train.indices, minlength=train.n_items), np.bincount(rows)
    mean = train.values.mean(dtype=np.float64)
    user_bias, item_bias = np.zeros(train.n_users), np.zeros(train.n_items)
    for _ in range(10):
        residual = train.values - mean - user_bias[rows]
        item_bias = np.bincount(train.indices, residual, train.n_items) / (item_count + 5)
        residual = train.values - mean - item_bias[train.indices]
        user_bias = np.bincount(rows, residual, train.n_users) / (user_count + 5)
    user_mean = np.bincount(rows, train.values, train.n_users) / user_count

    def rmse(prediction):
        return np.sqrt(np.mean((prediction - test.values) ** 2))

    assert rmse(mean) == pytest.approx(1.057, abs=0.015)
    assert rmse(user_mean[row]) == pytest.approx(0.976, abs=0.015)
    assert 0.86 < rmse(mean + user_bias[row] + item_bias[test.indices]) < 0.91


def test_fitted_weights_bring_the_counts_out():
    target = 1000.0 / (1 + np.arange(200))
    true = np.log(target) + 0.3 * np.sin(np.arange(200) / 30)  # what distorts the draws

    def draw(log_weights, round_):
        expected = np.exp(log_weights + true - np.log(target))
        return np.rint(1e6 * expected / expected.sum()).astype(np.int64)

    fitted = twins.fit_log_weights(target, draw)
    drawn = draw(fitted, 0).astype(float)
    assert np.abs(drawn / drawn.sum() * target.sum() / target - 1).max() < 0.05


def test_the_cache_gives_the_same_twin(tmp_path, monkeypatch, small_20m, caplog):
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path / "cache"))
    made = twins.load_twin("twin-ml20m", 0, 0.05)
    assert made == small_20m
    [file] = (tmp_path / "cache").iterdir()
    assert file.name == f"twin-ml20m-seed0-scale0.05-recipe{twins.RECIPE}.npz"

    monkeypatch.setattr(twins, "_make", lambda *_: pytest.fail("made again"))
    assert twins.load_twin("twin-ml20m", 0, 0.05) == made

    remade = {"indptr": made.indptr, "indices": made.indices}
    monkeypatch.setattr(twins, "_make", lambda *_: remade)
    file.write_bytes(file.read_bytes()[:1000])  # a cut file is noticed and replaced
    with caplog.at_level(logging.WARNING, "discreet"):
        assert twins.load_twin("twin-ml20m", 0, 0.05) == made
    assert "made anew" in caplog.text
    assert file.stat().st_size > 1000


def test_a_cache_that_cannot_be_written_is_only_a_warning(tmp_path, monkeypatch, small_20m, caplog):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path / "file"))
    arrays = {"indptr": small_20m.indptr, "indices": small_20m.indices}
    monkeypatch.setattr(twins, "_make", lambda *_: arrays)
    with caplog.at_level(logging.WARNING, "discreet"):
        assert twins.load_twin("twin-ml20m", 0, 0.05) == small_20m
    assert "cannot be kept" in caplog.text


def test_seeds_give_other_replicas():
    one, again, two = (twins.make_twin("twin-ml10m", seed, 0.005) for seed in (0, 0, 1))
    assert one == again
    assert one != two


def test_wrong_arguments_are_answered_with_a_sentence():
    twin = NAMES[0]
    for name, seed, scale in (
        ("ml10m", 0, 1),
        (twin, -1, 1),
        (twin, True, 1),
        (twin, 0, 0),
        (twin, 0, 2),
    ):
        with pytest.raises(ConfigError):
            twins.make_twin(name, seed, scale)


def test_importing_research_adds_the_simulated_sets_by_name():
    assert load_dataset("twin-ml20m", scale=0.01).n_users == 1366
    with pytest.raises(ConfigError, match="scale must lie"):
        load_dataset("twin-ml10m", scale=3.0)
