"""Scores as a release: the same scores without noise, honest intervals, one ledger entry, and a
charged account.
"""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet
from discreet.data.cinema import make_cinema
from discreet.data.ids import canonical
from discreet.data.ratings import Ratings
from discreet.data.splits import by_person, leave_one_out, random_ratings
from discreet.errors import (
    BudgetExceeded,
    ConfigError,
    DamagedStore,
    DataError,
    NotFittedError,
    PrivacyError,
)
from discreet.evaluation import private_scores
from discreet.evaluation.metrics import parse
from discreet.evaluation.private_scores import MOMENTS, ScoreLayout, ratio
from research.score_coverage import coverage, crowd_of

METRICS = ["rmse", "mae", "recall@20", "ndcg@100"]


@pytest.fixture(scope="module")
def measured():
    split = by_person(make_cinema(seed=3, scale=0.075), seed=1)
    return discreet.ALS(4, iterations=3).fit(split.train), split


def columns(model, split, max_ratings, half=2.25):
    layout = ScoreLayout.from_metrics([parse(name) for name in METRICS])
    exact = discreet.evaluate(model, split, METRICS, slices=None)
    counts = np.diff(split.test.target.indptr)
    return exact, layout, layout.columns(exact.per_user, counts, half, max_ratings)


# ------------------------------------------------------------ without noise


def test_without_noise_and_bounds_that_bind_the_scores_are_the_exact_ones(measured):
    exact, layout, found = columns(*measured, max_ratings=10**6, half=50.0)
    scores = layout.read(found.sum(axis=0), 0.0, 0.95)
    assert 50 * math.sqrt(scores["rmse"].value) == pytest.approx(exact["rmse"])
    assert 50 * scores["mae"].value == pytest.approx(exact["mae"])
    for name in ("recall@20", "ndcg@100"):
        assert scores[name].value == pytest.approx(exact[name])
        assert scores[name].people == exact.n_ranked


def test_without_noise_intervals_are_those_of_the_standard_error(measured):
    exact, layout, found = columns(*measured, max_ratings=10**6, half=50.0)
    scores = layout.read(found.sum(axis=0), 0.0, 0.95)
    for name in ("recall@20", "ndcg@100"):
        width = (scores[name].high - scores[name].low) / (2 * 1.959964)
        assert width == pytest.approx(exact.stderr[name], rel=0.01)


def test_columns_stay_in_their_box(measured):
    model, split = measured
    _, layout, found = columns(model, split, max_ratings=2, half=0.1)
    assert (found >= 0).all()
    assert (found <= np.array(layout.most)).all()
    assert layout.most == (
        1,
        MOMENTS,
        1,
        MOMENTS,
        MOMENTS,
        1,
        MOMENTS,
        MOMENTS,
        1,
        1,
        MOMENTS,
        1,
        MOMENTS,
    )


def test_a_person_with_many_ratings_counts_as_a_few(measured):
    model, split = measured
    _, _, few = columns(model, split, max_ratings=2)
    counts = np.diff(split.test.target.indptr)
    assert np.array_equal(few[:, 0], np.minimum(counts, 2) / 2)


# ------------------------------------------------------------ intervals


def test_an_interval_is_wide_where_nothing_is_known():
    nothing = ratio(0.3, 0.5, (0.1, 0.1, 0.1), deviation=50.0, confidence=0.95)
    assert (nothing.low, nothing.high) == (0.0, 1.0)
    assert math.isnan(ratio(1.0, -2.0, (0.0, 0.0, 0.0), 1.0, 0.95).value)


def test_an_interval_solves_its_equation():
    q = 1.959963984540054
    found = ratio(300.0, 1000.0, (150.0, 300.0, 1000.0), deviation=20.0, confidence=0.95)
    for theta in (found.low, found.high):
        people = 150 - 2 * theta * 300 + theta**2 * 1000
        assert (300 - theta * 1000) ** 2 == pytest.approx(
            q**2 * (400 * (1 + theta**2) + people), rel=1e-6
        )
    assert found.low < 0.3 < found.high
    narrow = ratio(3e8, 1e9, (1e8, 3e8, 1e9), 1.0, 0.95)
    assert narrow.low < 0.3 < narrow.high < narrow.low + 1e-4


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Four metrics, 80 repetitions: below 66 of 80 has a probability of less than one in a
    million at 95 %.
    """
    crowd, layout = crowd_of(scale=0.1)
    for one in coverage(crowd, layout, people=1000, epsilon=1.0, repetitions=80, seed=5):
        assert one.held >= 66 / 80, one
        assert one.width > one.exact_width


# ------------------------------------------------------------ the release


def test_scores_are_one_release_with_a_ledger(measured):
    model, split = measured
    found = discreet.evaluate(model, split, METRICS, epsilon=1.0, delta=1e-7, relevant=4)
    (entry,) = found.privacy.ledger.entries
    assert (entry.name, entry.shape) == ("scores", (13,))
    assert entry.sensitivity == pytest.approx(
        math.hypot(*ScoreLayout.from_metrics([parse(m) for m in METRICS]).most)
    )
    assert found.privacy.epsilon == pytest.approx(1.0)
    assert found.privacy.finite
    assert set(found.values) == set(METRICS)
    assert all(low <= found[name] <= high for name, (low, high) in found.intervals.items())
    assert "released with noise" in str(found)
    json.dumps(found.to_dict())
    exact = discreet.evaluate(model, split, METRICS, slices=None, relevant=4)
    noise = 6 * found.noise  # six deviations
    for name in ("recall@20", "ndcg@100"):
        assert abs(found.people[name] - exact.n_ranked) < noise
        assert abs(found[name] * found.people[name] - exact[name] * exact.n_ranked) < noise * 1.01
    again = discreet.evaluate(model, split, METRICS, epsilon=1.0, delta=1e-7, relevant=4)
    assert again["recall@20"] != found["recall@20"]


def test_without_epsilon_the_output_says_that_it_is_a_look(measured):
    model, split = measured
    assert "not covered by the model's ε" in str(discreet.evaluate(model, split))


def test_a_split_over_everybody_is_a_caution(measured):
    model, _ = measured
    split = random_ratings(make_cinema(seed=3, scale=0.015), seed=1)
    found = discreet.evaluate(model, split, "recall@20", epsilon=1.0, relevant=4)
    assert found.privacy.status == "private with cautions"
    assert "over all users together" in str(found.privacy)


def test_an_account_pays(measured, tmp_path):
    model, split = measured
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 1.0)
    found = discreet.evaluate(model, split, "rmse", epsilon=0.9, account=account)
    assert account.balance.spent == pytest.approx(found.privacy.mu**2, rel=1e-9)
    with pytest.raises(BudgetExceeded):
        discreet.evaluate(model, split, "rmse", epsilon=0.9, account=account)


def test_errors_of_measuring_say_nothing(measured):
    model, split = measured

    class Broken:
        goal = "rating"
        item_ids_ = model.item_ids_
        rating_range_ = (0.5, 5.0)

        def predict(self, ratings, pairs):
            raise ValueError(f"{ratings.n_users} users")

    with pytest.raises(PrivacyError) as caught:
        discreet.evaluate(Broken(), split, "rmse", epsilon=1.0)
    assert "1500" not in str(caught.value)
    assert caught.value.__context__ is None


def test_what_cannot_be_priced_is_refused(measured):
    model, split = measured
    for options, message in (
        ({"metrics": "coverage@20", "epsilon": 1.0}, "is no sum over users"),
        ({"metrics": "rmse", "epsilon": 1.0, "max_ratings": 0}, "max_ratings"),
        ({"metrics": "rmse", "epsilon": 1.0, "confidence": 1.0}, "confidence"),
        ({"metrics": "rmse", "epsilon": -1.0}, "epsilon"),
        ({"metrics": "rmse", "account": object()}, "Pass epsilon"),
    ):
        with pytest.raises(ConfigError, match=message):
            discreet.evaluate(model, split, **options)
    popular = discreet.Popularity().fit(split.train)
    with pytest.raises(ConfigError, match="public range"):
        discreet.evaluate(popular, split, "rmse", epsilon=1.0)
    with pytest.raises(NotFittedError):
        discreet.evaluate(discreet.ALS(4), split, epsilon=1.0)


# ------------------------------------------------------------ who is held out


def test_what_is_held_out_of_a_person_depends_on_nobody_else():
    ratings = make_cinema(seed=3, scale=0.01)
    whole = by_person(ratings, seed=7)
    some = np.arange(0, 200, 3)
    part = by_person(ratings.select_users(some), seed=7)
    for name in ("train", "test", "valid"):
        one = whole.train if name == "train" else whole.part(name).target
        other = part.train if name == "train" else part.part(name).target
        assert np.array_equal(one.select_users(some).indices, other.indices)
    share = whole.test.target.n_ratings / ratings.n_ratings
    assert abs(share - 0.1) < 6 * math.sqrt(0.09 / ratings.n_ratings)
    assert whole.apart
    assert by_person(ratings, seed=8).test.target.n_ratings != whole.test.target.n_ratings


# ------------------------------------------------------------ what counts as relevant is public


@pytest.fixture(scope="module")
def people():
    return make_cinema(seed=3, scale=0.02)


def ranks_from(ratings, **parameters):
    return discreet.DPMF.configure(epsilon=100, **parameters).fit(ratings, progress=False)


REFUSED = {
    "ALS": lambda r: discreet.ALS(2, iterations=1).fit(r),
    "Bias": lambda r: discreet.Bias().fit(r),
    "DPMF, rating": lambda r: ranks_from(r, goal="rating", factors=2, iterations=1),
    "DPMF, ranking": lambda r: ranks_from(r, factors=2),
    "DPMF, interactions": lambda r: ranks_from(r.binarize(1), factors=2),
}
ALLOWED = {
    "ALS, implicit": lambda r: discreet.ALS(2, iterations=1, goal="ranking").fit(r),
    "Popularity": lambda r: discreet.Popularity().fit(r),
    "DPMF, rating": lambda r: ranks_from(r, goal="rating", rating_range=(0.5, 5.0), iterations=1),
    "DPMF, ranking": lambda r: ranks_from(r, factors=2, rating_range=(0.5, 5.0)),
    "DPMF, liked from 4": lambda r: ranks_from(r, factors=2, like_threshold=4.0),
    "DPMF, everything": lambda r: ranks_from(r, factors=2, like_threshold="everything"),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_a_threshold_that_ratings_decide_is_refused_before_a_charge(people, make, tmp_path):
    split = by_person(people, seed=1)
    model = make(split.train)
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 1.0)
    for data in (split, by_person(people.select_users(np.arange(1, 9)), seed=1)):
        with pytest.raises(ConfigError, match="threshold of ranking scores") as caught:
            discreet.evaluate(model, data, ["recall@20", "rmse"], epsilon=0.5, account=account)
        assert not any(digit in str(caught.value) for digit in "0123456789")
    assert account.balance.spent == 0
    given = discreet.evaluate(model, split, "recall@20", epsilon=0.5, relevant=4)
    assert given.conditions["relevant"] == 4


@pytest.mark.parametrize("make", ALLOWED.values(), ids=ALLOWED)
def test_a_public_threshold_is_taken_and_no_rating_moves_it(people, make, tmp_path):
    model = make(people)
    items = people.item_ids
    mad = Ratings.from_arrays(["mad"] * 9, items[:9], [100.0] * 9, item_ids=items)
    splits = [by_person(data, seed=1) for data in (people, mad)]
    found = [discreet.evaluate(model, split, "recall@20", epsilon=0.5) for split in splits]
    assert found[0].conditions["relevant"] == found[1].conditions["relevant"]
    if hasattr(model, "privacy_"):
        model.save(tmp_path / "m")
        loaded = discreet.load(tmp_path / "m")
        again = discreet.evaluate(loaded, splits[0], "recall@20", epsilon=0.5)
        assert again.conditions == found[0].conditions


def test_scores_repeat_the_cautions_on_an_inferred_range_and_on_filters(people):
    def evaluate(model, metric, ratings=people):
        split = by_person(ratings, seed=1)
        return discreet.evaluate(model, split, metric, epsilon=1.0, relevant=4).privacy

    inferred = evaluate(REFUSED["DPMF, rating"](people), "rmse")
    assert inferred.status == "private with cautions"
    assert "range of ratings, 0.5 to 5" in " ".join(inferred.cautions)
    assert evaluate(REFUSED["DPMF, interactions"](people), "recall@20").cautions
    assert "range of ratings" in " ".join(evaluate(REFUSED["ALS"](people), "mae").cautions)
    (plain,) = evaluate(REFUSED["ALS"](people), "recall@20").cautions
    assert "trained without privacy" in plain
    given = ALLOWED["DPMF, rating"](people)
    assert evaluate(given, ["rmse", "recall@20"]).private
    few = people.filter(min_item_ratings=3)
    assert "by exact counts" in " ".join(evaluate(given, "rmse", few).cautions)


# ------------------------------------------------------------ no data are refused, none move others

ITEMS = [f"film {i}" for i in range(6)]
SPLITS = {
    "by person": lambda data: by_person(data, (0.4, 0.3, 0.3), seed=2),
    "leave one out": lambda data: leave_one_out(data, seed=2, valid=True),
    "newest": lambda data: leave_one_out(data, seed=2, by_time=True, valid=True),
}


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(60), 3)
    items = [ITEMS[i] for _ in range(60) for i in rng.permutation(6)[:3]]
    ratings = Ratings.from_arrays(users, items, rng.integers(1, 6, 180), item_ids=ITEMS)
    return [
        discreet.ALS(2, iterations=1).fit(ratings),
        discreet.Bias().fit(ratings),
        discreet.Popularity().fit(ratings),
        ranks_from(ratings, factors=2, rating_range=(1.0, 5.0)),
        ranks_from(ratings, factors=2, rating_range=(1.0, 5.0), goal="rating", iterations=1),
    ]


VALUES = st.sampled_from([-1e30, 0.0, 1.0, 3.0, 4.0, 5.0, 100.0, 1e38])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3, "a", "b", "1", "\u0301"]),
        st.sampled_from([*ITEMS, "unknown", "film 10", 7]),
        VALUES,
        st.integers(-1, 1),
    ),
    max_size=25,
    unique_by=lambda row: row[:2],
)


def as_ratings(rows):
    """Ratings of these rows, also where there are none."""
    if not rows:
        return Ratings.from_indices([0], [], [], [], ITEMS, np.zeros(0, np.int64), catalog=True)
    return Ratings.from_arrays(*([row[at] for row in rows] for at in range(4)))


def release(model, split, part):
    names = ["recall@2", "ndcg@9", "map@1", "mrr"]
    names += ["rmse", "mae"] if model.goal == "rating" else []
    return discreet.evaluate(model, split, names, epsilon=1.0, relevant=4, part=part)


def released_rows(monkeypatch, model, split, part):
    """What each user adds to the release, by id."""
    kept = {}
    original = private_scores.seal_values

    def watch(measure):
        found = measure()
        kept.update(zip(split.part(part).target.user_ids.tolist(), found.tolist(), strict=True))
        return original(lambda: found)

    with monkeypatch.context() as patched:
        patched.setattr(private_scores, "seal_values", watch)
        release(model, split, part)
    return kept


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, how=st.sampled_from(sorted(SPLITS)), part=st.sampled_from(["test", "valid"]))
def test_no_user_changes_what_another_adds_and_no_data_are_refused(models, rows, how, part):
    """The whole chain from the rows of a file to the sums: splits, thresholds, unknown items."""
    rows = [(canonical(user), *rest) for user, *rest in rows]  # "1" and 1 are one user
    rows = list({row[:2]: row for row in rows}.values())
    patch = pytest.MonkeyPatch()
    for model in models:
        everyone = released_rows(patch, model, SPLITS[how](as_ratings(rows)), part)
        assert everyone.keys() == {row[0] for row in rows}
        for gone in everyone:
            left = [row for row in reversed(rows) if row[0] != gone]
            others = released_rows(patch, model, SPLITS[how](as_ratings(left)), part)
            assert others == {user: row for user, row in everyone.items() if user != gone}


def test_without_a_held_out_rating_zeros_are_measured(models, monkeypatch):
    one_each = as_ratings([(user, "film 1", 5.0, 0) for user in range(3)])
    unknown = as_ratings([(user, item, 5.0, 0) for user in range(3) for item in ("x", "y", "z")])
    users_only = Ratings.from_indices(np.zeros(4, np.int64), [], [], [1, 2, 3], ITEMS, [])
    for model in models:
        for data in (one_each, users_only, as_ratings([]), unknown):
            for split in (leave_one_out(data, valid=True), by_person(data, (0.3, 0.3, 0.4))):
                for part in ("test", "valid"):
                    found = release(model, split, part)
                    assert found.noise > 0
                    assert all(0 <= low <= high for low, high in found.intervals.values())
    for row in released_rows(monkeypatch, models[0], leave_one_out(one_each), "test").values():
        assert not any(row)


def test_ratings_of_items_that_a_model_does_not_know_count_in_no_error(models, monkeypatch):
    model = models[0]
    rows = [(1, item, 3.0, 0) for item in ITEMS]
    whole = released_rows(monkeypatch, model, by_person(as_ratings(rows), (0.5, 0.5)), "test")
    more = [*rows, (1, "x", 1e30, 0), (1, "y", 1e30, 0), (1, "z", 1e30, 0), (2, "x", 5.0, 0)]
    split = by_person(as_ratings(more), (0.5, 0.5))
    assert {"x", "y", "z"} & set(split.test.target.item_ids[split.test.target.indices].tolist())
    found = released_rows(monkeypatch, model, split, "test")
    rating_columns = slice(0, 8)
    assert found[1][rating_columns] == whole[1][rating_columns]
    assert not any(found[2][rating_columns])


NUMBERS = st.floats(-1e6, 1e6)


@settings(max_examples=150, deadline=None)
@given(NUMBERS, NUMBERS, st.tuples(NUMBERS, NUMBERS, NUMBERS), st.floats(1e-3, 1e4))
def test_an_interval_is_found_whatever_the_noise_was(s, c, moments, deviation):
    found = ratio(s, c, moments, deviation, 0.95)
    assert 0 <= found.low <= found.high <= 1
    assert math.isnan(found.value) == (c <= 0)


@pytest.mark.parametrize("metric", ["rmse", "recall@2"])
def test_no_spelling_of_an_item_changes_what_others_add(metric, monkeypatch):
    """The model knows 0 to 9, everyone writes 0.0 to 9.0, and one more user writes 0 to 9
    before them.
    """
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(40), 4).tolist()
    items = np.concatenate([rng.permutation(10)[:4] for _ in range(40)]).tolist()
    stars = rng.integers(1, 6, 160).tolist()
    data = Ratings.from_arrays(users, items, stars, item_ids=range(10))
    model = ranks_from(data, factors=2, rating_range=(1.0, 5.0), goal="rating", iterations=1)
    rows = [
        (user, f"{item}.0", value, 0) for user, item, value in zip(users, items, stars, strict=True)
    ]
    odd = [("odd", str(item), 5.0, 0) for item in range(10)]

    def measure(rows):
        kept = {}
        original = private_scores.seal_values
        split = by_person(as_ratings(rows), (0.5, 0.5), seed=1)

        def watch(measure):
            found = measure()
            kept.update(zip(split.test.target.user_ids.tolist(), found.tolist(), strict=True))
            return original(lambda: found)

        with monkeypatch.context() as patched:
            patched.setattr(private_scores, "seal_values", watch)
            discreet.evaluate(model, split, metric, epsilon=1.0, relevant=4)
        return kept

    without = measure(rows)
    assert sum(row[0] for row in without.values()) > 5  # the model knows what they rated
    assert without == {user: row for user, row in measure(odd + rows).items() if user != "odd"}


# ------------------------------------------------------------ the user column, and the account


def stars_as_users():
    rng = np.random.default_rng(0)
    rows = pa.table(
        {name: rng.integers(0, 30, 900) for name in ("user", "item")}
        | {"stars": rng.integers(1, 6, 900)}
    )
    return Ratings.from_frame(rows, user="stars", item="item", rating=False, items=list(range(30)))


def test_scores_refuse_a_column_that_does_not_identify_users(models, tmp_path):
    split = by_person(stars_as_users(), (0.5, 0.5))
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 1.0)
    with pytest.raises(DataError, match="user column has fewer than 100"):
        discreet.evaluate(models[2], split, "recall@2", epsilon=0.5, relevant=1, account=account)
    assert [record.kind for record in account.log()] == ["open"]


def test_scores_notice_that_an_older_copy_of_the_account_was_put_back(people, tmp_path):
    store = discreet.BudgetStore(tmp_path / "people.sqlite")
    account = store.open("guests", 20.0)
    store.backup(tmp_path / "older.sqlite")
    model = discreet.DPMF(2, epsilon=10, rating_range=(0.5, 5)).fit(
        people, account=account, progress=False
    )
    split = by_person(people, seed=1)
    discreet.evaluate(model, split, "recall@20", epsilon=0.5, account=account)
    (tmp_path / "older.sqlite").replace(store.path)
    with pytest.raises(DamagedStore, match="older copy"):
        discreet.evaluate(model, split, "recall@20", epsilon=0.5, account=account)
    assert len(account.log()) == 1


def test_progress_of_a_release_says_nothing(people):
    calls = []
    model = ALLOWED["DPMF, ranking"](people)
    discreet.evaluate(
        model, by_person(people, seed=1), epsilon=1.0, progress=lambda *step: calls.append(step)
    )
    assert calls == []
