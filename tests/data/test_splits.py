"""Splits: nothing is lost, nothing is seen twice, and the same seed gives the same split."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.data.ratings import Ratings
from discreet.data.splits import (
    Split,
    by_time,
    k_fold,
    leave_one_out,
    random_ratings,
    strong_generalisation,
)
from discreet.errors import ConfigError, DataError


def make(n_users=60, n_items=40, seed=0, timestamps=True, least=0):
    """Random ratings whose values are all different, so that every one can be followed."""
    rng = np.random.default_rng(seed)
    counts = np.maximum(rng.integers(0, n_items, n_users), least)
    indices = np.concatenate([np.sort(rng.choice(n_items, k, replace=False)) for k in counts])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    times = rng.integers(0, 200, len(indices)) if timestamps else None
    return Ratings.from_indices(
        indptr, indices, np.arange(len(indices)), np.arange(n_users) * 10, np.arange(n_items) + 7, times
    )


def entries(*parts):
    return np.sort(np.concatenate([part.values for part in parts]))


def over_ratings(data):
    yield random_ratings(data, seed=3)
    yield random_ratings(data, (0.9, 0.1), seed=3)
    yield random_ratings(data, (0.98, 0.01, 0.01), seed=3)
    yield leave_one_out(data, seed=3)
    yield leave_one_out(data, seed=3, valid=True)
    yield leave_one_out(data, seed=3, by_time=True, valid=True)
    yield by_time(data, 0.2)
    yield by_time(data, 0.2, valid=0.1)
    yield by_time(data, at=150)
    yield from k_fold(data, 4, seed=3)


def test_splits_over_ratings_are_partitions():
    data = make()
    for split in over_ratings(data):
        held_out = [split.test.target] + ([split.valid.target] if split.valid else [])
        assert np.array_equal(entries(split.train, *held_out), np.sort(data.values)), split
        for part in [split.train, *held_out]:
            assert part.n_ratings > 0
            assert np.array_equal(part.user_ids, data.user_ids)
            assert np.array_equal(part.item_ids, data.item_ids)
        assert split.test.known is split.train


def test_random_ratings_has_exact_sizes_and_follows_the_seed():
    data = make(300, 50)
    split = random_ratings(data, seed=1)
    n = data.n_ratings
    assert split.test.target.n_ratings == split.valid.target.n_ratings == round(0.1 * n)
    assert split.train.n_ratings == n - 2 * round(0.1 * n)
    assert split.name == "random 80/10/10"
    again, other = random_ratings(data, seed=1), random_ratings(data, seed=2)
    assert again.train == split.train
    assert other.train != split.train
    assert random_ratings(data, seed=0).train != split.train


def test_random_ratings_is_uniform_over_ratings():
    data = make(200, 50)
    hit = np.zeros(data.n_ratings)
    for seed in range(60):
        hit[random_ratings(data, (0.5, 0.5), seed=seed).test.target.values.astype(int)] += 1
    assert abs(hit.mean() - 30) < 0.01
    assert 3.5 < hit.std() < 4.3  # binomial(60, 1/2): 3.87
    assert abs(np.corrcoef(np.arange(len(hit)), hit)[0, 1]) < 0.05


def test_k_fold_holds_every_rating_out_once():
    data = make()
    folds = k_fold(data, 5, seed=0)
    assert np.array_equal(entries(*(fold.test.target for fold in folds)), np.sort(data.values))
    sizes = [fold.test.target.n_ratings for fold in folds]
    assert max(sizes) - min(sizes) <= 1


def test_leave_one_out_takes_one_of_everybody_who_can_spare_it():
    data = make()
    counts = np.diff(data.indptr)
    split = leave_one_out(data, seed=5, valid=True)
    assert np.array_equal(np.diff(split.test.target.indptr), (counts >= 2).astype(int))
    assert np.array_equal(np.diff(split.valid.target.indptr), (counts >= 3).astype(int))


def test_leave_one_out_by_time_takes_the_newest():
    data = make(least=3)
    split = leave_one_out(data, by_time=True, valid=True)
    for user in range(data.n_users):
        times = np.sort(data.timestamps[data.indptr[user] : data.indptr[user + 1]])
        assert split.test.target.timestamps[user] == times[-1]
        assert split.valid.target.timestamps[user] == times[-2]


def test_by_time_never_lets_the_future_into_training():
    data = make()
    split = by_time(data, 0.2, valid=0.1)
    assert split.train.timestamps.max() < split.valid.target.timestamps.min()
    assert split.valid.target.timestamps.max() < split.test.target.timestamps.min()
    assert split.test.target.n_ratings >= 0.2 * data.n_ratings
    assert by_time(data, at=150).test.target.timestamps.min() >= 150
    assert by_time(data).name == "by time, newest 10 %"


@pytest.mark.parametrize("fold_in", [0.8, 0.5])
def test_strong_generalisation_keeps_held_out_users_out_of_training(fold_in):
    data = make(80, least=2)
    split = strong_generalisation(data, 15, 20, fold_in=fold_in, seed=4)
    groups = [split.train.user_ids, split.valid.known.user_ids, split.test.known.user_ids]
    assert [len(group) for group in groups] == [45, 15, 20]
    assert np.array_equal(np.sort(np.concatenate(groups)), data.user_ids)
    everything = entries(split.train, *(x for h in (split.test, split.valid) for x in (h.known, h.target)))
    assert np.array_equal(everything, np.sort(data.values))
    for holdout in (split.test, split.valid):
        assert np.array_equal(holdout.known.user_ids, holdout.target.user_ids)
        assert np.array_equal(holdout.known.item_ids, data.item_ids)
        known, hidden = np.diff(holdout.known.indptr), np.diff(holdout.target.indptr)
        assert np.array_equal(hidden, np.maximum(np.floor((1 - fold_in) * (known + hidden) + 1e-9), 1))
        assert known.min() >= 1
    assert split.train.catalogue == data.catalogue


def test_strong_generalisation_hides_one_of_five_and_nothing_of_one():
    def hidden(n):
        everybody = np.tile(np.arange(n), 4)
        data = Ratings.from_indices(np.arange(5) * n, everybody, np.ones(4 * n), np.arange(4), np.arange(n))
        return np.diff(strong_generalisation(data, 1, 1).test.target.indptr).tolist()

    assert hidden(5) == [1]
    assert hidden(2) == [1]
    assert hidden(10) == [2]
    assert hidden(1) == [0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(12, 50))
def test_any_seed_and_shape_gives_partitions(seed, n_users):
    data = make(n_users, 9, seed=seed % 1000, least=2)
    for split in (random_ratings(data, (0.7, 0.2, 0.1), seed), leave_one_out(data, seed, valid=True)):
        parts = (split.train, split.test.target, split.valid.target)
        assert np.array_equal(entries(*parts), np.sort(data.values))
    split = strong_generalisation(data, 3, 4, seed=seed)
    assert split.train.n_users + 7 == n_users


def test_parts_are_asked_for_by_name():
    split = random_ratings(make(), (0.9, 0.1))
    assert split.part("test") is split.test
    with pytest.raises(ConfigError, match="without a validation part"):
        split.part("valid")
    with pytest.raises(ConfigError, match="'train'"):
        split.part("train")
    assert random_ratings(make()).part("valid").known.n_ratings
    assert isinstance(split, Split)
    assert repr(split).startswith("Split('random 90/10', seed=0, train=")


def test_wrong_arguments_are_answered_with_a_sentence():
    data, dull = make(), make(timestamps=False)
    one_each = Ratings.from_indices(np.arange(4), [0, 1, 2], np.ones(3), np.arange(3), np.arange(3))
    cases = [
        (ConfigError, "fractions", lambda: random_ratings(data, (0.8, 0.1))),
        (ConfigError, "fractions", lambda: random_ratings(data, (1.0, 0.0))),
        (ConfigError, "fractions", lambda: random_ratings(data, (0.25,) * 4)),
        (DataError, "too few", lambda: random_ratings(one_each, (0.98, 0.01, 0.01))),
        (ConfigError, "seed", lambda: random_ratings(data, seed=-1)),
        (ConfigError, "seed", lambda: k_fold(data, seed=1.5)),
        (ConfigError, "k must be", lambda: k_fold(data, 1)),
        (DataError, "cannot make", lambda: k_fold(one_each, 5)),
        (DataError, "no user has two", lambda: leave_one_out(one_each)),
        (DataError, "needs timestamps", lambda: leave_one_out(dull, by_time=True)),
        (DataError, "needs timestamps", lambda: by_time(dull)),
        (ConfigError, "not both", lambda: by_time(data, 0.1, at=3)),
        (ConfigError, "leave something to train on", lambda: by_time(data, 0.6, valid=0.4)),
        (DataError, "leaves a part empty", lambda: by_time(data, at=10_000)),
        (DataError, "leaves a part empty", lambda: by_time(data, at=0)),
        (ConfigError, "fold_in", lambda: strong_generalisation(data, 1, 1, fold_in=1.0)),
        (ConfigError, "n_test", lambda: strong_generalisation(data, 1, 0)),
        (DataError, "nobody to train on", lambda: strong_generalisation(data, 30, 30)),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words):
            call()
