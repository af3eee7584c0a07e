"""Splits: nothing is lost, nothing is seen twice, and the same seed gives the same split."""

import inspect
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from discreet.data import splits
from discreet.data.ids import canonical
from discreet.data.ratings import Ratings
from discreet.data.splits import (
    Split,
    by_person,
    by_time,
    k_fold,
    leave_one_out,
    random_ratings,
    strong_generalization,
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
        indptr,
        indices,
        np.arange(len(indices)),
        np.arange(n_users) * 10,
        np.arange(n_items) + 7,
        times,
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
def test_strong_generalization_keeps_held_out_users_out_of_training(fold_in):
    data = make(80, least=2)
    split = strong_generalization(data, 15, 20, fold_in=fold_in, seed=4)
    groups = [split.train.user_ids, split.valid.known.user_ids, split.test.known.user_ids]
    assert [len(group) for group in groups] == [45, 15, 20]
    assert np.array_equal(np.sort(np.concatenate(groups)), data.user_ids)
    everything = entries(
        split.train, *(x for h in (split.test, split.valid) for x in (h.known, h.target))
    )
    assert np.array_equal(everything, np.sort(data.values))
    for holdout in (split.test, split.valid):
        assert np.array_equal(holdout.known.user_ids, holdout.target.user_ids)
        assert np.array_equal(holdout.known.item_ids, data.item_ids)
        known, hidden = np.diff(holdout.known.indptr), np.diff(holdout.target.indptr)
        assert np.array_equal(
            hidden, np.maximum(np.floor((1 - fold_in) * (known + hidden) + 1e-9), 1)
        )
        assert known.min() >= 1
    assert split.train.catalog == data.catalog


def test_strong_generalization_hides_one_of_five_and_nothing_of_one():
    def hidden(n):
        everybody = np.tile(np.arange(n), 4)
        data = Ratings.from_indices(
            np.arange(5) * n, everybody, np.ones(4 * n), np.arange(4), np.arange(n)
        )
        return np.diff(strong_generalization(data, 1, 1).test.target.indptr).tolist()

    assert hidden(5) == [1]
    assert hidden(2) == [1]
    assert hidden(10) == [2]
    assert hidden(1) == [0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(12, 50))
def test_any_seed_and_shape_gives_partitions(seed, n_users):
    data = make(n_users, 9, seed=seed % 1000, least=2)
    for split in (
        random_ratings(data, (0.7, 0.2, 0.1), seed),
        leave_one_out(data, seed, valid=True),
    ):
        parts = (split.train, split.test.target, split.valid.target)
        assert np.array_equal(entries(*parts), np.sort(data.values))
    split = strong_generalization(data, 3, 4, seed=seed)
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
        (DataError, "needs timestamps", lambda: leave_one_out(dull, by_time=True)),
        (DataError, "needs timestamps", lambda: by_time(dull)),
        (DataError, "there are none", lambda: by_time(data.keep(np.zeros(data.n_ratings, bool)))),
        (ConfigError, "not both", lambda: by_time(data, 0.1, at=3)),
        (ConfigError, "leave something to train on", lambda: by_time(data, 0.6, valid=0.4)),
        (DataError, "leaves a part empty", lambda: by_time(data, at=10_000)),
        (DataError, "leaves a part empty", lambda: by_time(data, at=0)),
        (ConfigError, "fold_in", lambda: strong_generalization(data, 1, 1, fold_in=1.0)),
        (ConfigError, "n_test", lambda: strong_generalization(data, 1, 0)),
        (DataError, "none to train on", lambda: strong_generalization(data, 30, 30)),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words):
            call()


# ------------------------------------------------------------ each user apart

CALLS = {
    random_ratings: [{}, {"fractions": (0.5, 0.5)}],
    by_person: [{}, {"fractions": (0.5, 0.5)}, {"fractions": (0.4, 0.3, 0.3)}],
    k_fold: [{"k": 2}],
    leave_one_out: (
        [{"by_time": newest, "valid": not newest} for newest in (False, True)]
        + [{"by_time": newest, "valid": newest} for newest in (False, True)]
    ),
    by_time: [{"fraction": 0.4}, {"fraction": 0.3, "valid": 0.3}, {"at": 2}],
    strong_generalization: [{"n_valid": 1, "n_test": 1, "fold_in": 0.5}],
}
"""Every split function with arguments that reach all of its branches."""


def test_every_split_function_is_called_below():
    public = {
        function
        for name, function in inspect.getmembers(splits, inspect.isfunction)
        if function.__module__ == splits.__name__ and not name.startswith("_")
    }
    assert public == set(CALLS)
    for function, calls in CALLS.items():  # a new parameter needs a call of its own
        used = {name for options in calls for name in options}
        assert used | {"ratings", "seed"} == set(inspect.signature(function).parameters)


def split_in_every_way(data, seed):
    """Make all splits that data allow; those that claim to treat users apart allow any."""
    found = {}
    for function, calls in CALLS.items():
        for options in calls:
            key = f"{function.__name__} {options}"
            try:
                made = function(data, seed=seed, **options)
            except DataError:
                assert function not in (by_person, leave_one_out)
                continue
            for at, split in enumerate(made if isinstance(made, list) else [made]):
                found[f"{key} {at}"] = split
    return found


def list_user(part, user):
    """Give one user's rows by ids, as (item, rating, time)."""
    at = int(part.user_index([user])[0])
    if at < 0:
        return set()
    own = slice(part.indptr[at], part.indptr[at + 1])
    items = part.item_ids[part.indices[own]].tolist()
    times = [0] * len(items) if part.timestamps is None else part.timestamps[own].tolist()
    return set(zip(items, part.values[own].tolist(), times, strict=True))


def list_parts(split, user):
    parts = [split.train, split.test.known, split.test.target]
    parts += [split.valid.known, split.valid.target] if split.valid else []
    return [list_user(part, user) for part in parts]


def make_rows(rows):
    users, items, values, times = ([row[at] for row in rows] for at in range(4))
    if not rows:
        return Ratings.from_indices([0], [], [], [], [1], np.zeros(0, np.int64))
    return Ratings.from_arrays(users, items, values, times)


WHOLE = st.integers(-3, 9)
TEXT = st.sampled_from(["a", "b", "7", "07", "é", "e\u0301", " a", "\U0001f600", "1e3", "x" * 50])
IDS = st.sampled_from([WHOLE, TEXT, st.one_of(WHOLE, TEXT)])
TIMES = st.sampled_from([st.just(5), st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)])


@st.composite
def rated(draw):
    """Draw rows of (user, item, rating, time) with ties in time; no pair occurs twice, and users
    are named as `Ratings` names them: "7" next to 7 is the same user.
    """
    users, items, times = draw(IDS), draw(IDS), draw(TIMES)
    row = st.tuples(users, items, st.integers(1, 5), times)
    rows = draw(st.lists(row, min_size=1, max_size=40, unique_by=lambda row: row[:2]))
    if len({type(row[0]) for row in rows}) > 1:
        rows = [(canonical(user), *rest) for user, *rest in rows]
    return list({row[:2]: row for row in rows}.values())


@settings(max_examples=40, deadline=None)
@given(rated(), st.integers(0, 2**70), st.randoms(use_true_random=False))
@example([(1, 1, 5, 0), (2, 1, 5, 0)], 0, None)
def test_splits_that_say_apart_hold_out_of_each_user_whatever_others_do(rows, seed, rng):
    whole = split_in_every_way(make_rows(rows), seed)
    apart = {key for key, split in whole.items() if split.apart}
    assert {key.split()[0] for key in apart} == {"by_person", "leave_one_out"}
    users = sorted({row[0] for row in rows}, key=repr)
    expected = {(key, user): list_parts(whole[key], user) for key in apart for user in users}
    for gone in users:
        left = [row for row in rows if row[0] != gone]
        if rng is not None:
            rng.shuffle(left)
        other = split_in_every_way(make_rows(left), seed)
        for key in apart:
            for user in users:
                if user != gone:
                    assert list_parts(other[key], user) == expected[key, user], (key, user, gone)


def test_shuffled_rows_and_another_catalog_order_give_the_same_split():
    rng = np.random.default_rng(0)
    rows = [(u, f"film {i}", 1, t) for u, i, t in rng.integers(0, 12, (300, 3)).tolist()]
    rows = list({row[:2]: row for row in rows}.values())
    catalog = [f"film {i}" for i in range(12)]
    mixed = [rows[at] for at in rng.permutation(len(rows))]

    def make(rows, catalog):
        users, items, values, times = zip(*rows, strict=True)
        return Ratings.from_arrays(users, items, values, times, item_ids=catalog)

    one = split_in_every_way(make(rows, catalog), 3)
    other = split_in_every_way(make(mixed, catalog[::-1]), 3)
    for key, split in one.items():
        for user in range(12) if split.apart else ():
            assert list_parts(split, user) == list_parts(other[key], user), key


def test_how_another_user_writes_an_item_does_not_matter():
    """Equal ids are one id, in the form that came first: whose form that is must not matter."""
    own = [("a", item, 1, 0) for item in range(40)]
    for form in (float, Decimal, np.float32, lambda item: bool(item) if item < 2 else item):
        others = [("b", form(item), 1, 0) for item in range(40)]
        for rows in (others + own, own + others):
            found = split_in_every_way(make_rows(rows), 7)
            alone = split_in_every_way(make_rows(own), 7)
            for key, split in alone.items():
                if split.apart:
                    assert list_parts(found[key], "a") == list_parts(split, "a"), key


def test_a_text_column_holds_out_what_a_column_of_numbers_does():
    rows = [(u, i, 1, 0) for u in range(9) for i in range(9)]
    text = [("a", "x", 1, 0), *rows]
    one, other = (split_in_every_way(make_rows(some), 5) for some in (rows, text))
    for key, split in one.items():
        for user in range(9) if split.apart else ():
            assert list_parts(split, user) == list_parts(other[key], user), key


def test_leave_one_out_is_uniform_and_follows_the_seed():
    data = make(400, 40, least=8)
    first = leave_one_out(data, seed=1)
    assert leave_one_out(data, seed=1).train == first.train
    assert leave_one_out(data, seed=2).train != first.train
    place = np.zeros(8)
    first_of_user = np.repeat(data.indptr[:-1], np.diff(data.indptr))
    eight = data.keep(np.arange(data.n_ratings) - first_of_user < 8)
    for seed in range(25):
        held = leave_one_out(eight, seed).test.target.values
        place += np.bincount(np.searchsorted(eight.values, held) % 8, minlength=8)
    assert place.sum() == 10_000
    assert abs(place - 1250).max() < 6 * np.sqrt(1250 * 7 / 8)


def test_nothing_is_left_out_where_no_user_has_two_ratings():
    one_each = Ratings.from_indices([0, 1, 2], [0, 1], [1, 1], [0, 1], [0, 1], [5, 5])
    nothing = make_rows([])
    for data in (one_each, nothing):
        for options in CALLS[leave_one_out]:
            split = leave_one_out(data, **options)
            assert split.train == data
            assert split.test.target.n_ratings == 0
    assert by_person(nothing).test.target.n_users == 0


class Letter(str, Enum):  # noqa: UP042 - StrEnum would print its text
    A = "a"


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
EQUAL_IDS = [
    (NOON, NOON.astimezone(timezone(timedelta(hours=1)))),
    (1, complex(1)),
    ("a", Letter.A),
]


@pytest.mark.parametrize(("first", "other"), EQUAL_IDS, ids=["moments", "numbers", "texts"])
def test_how_one_user_writes_an_item_moves_no_rating_of_others(first, other):
    users = [f"user {at}" for at in range(40)] * 2
    items = [other] * 40 + ["z"] * 40
    data = [
        Ratings.from_arrays(users, items, timestamps=[0] * 80),
        Ratings.from_arrays(["odd", *users], [first, *items], timestamps=[0] * 81),
    ]
    for split in (by_person, leave_one_out, lambda ratings: leave_one_out(ratings, by_time=True)):
        alone, together = (split(ratings).test.target for ratings in data)
        others = together.select_users(alone.user_ids.tolist())
        held_out = [
            some.to_csr().toarray()[:, some.item_ids == "z"].ravel() for some in (alone, others)
        ]
        assert np.array_equal(*held_out)
        assert np.array_equal(np.diff(alone.indptr), np.diff(others.indptr))
