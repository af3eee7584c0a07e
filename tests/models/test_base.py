"""The read-outs that all models share, against dense numpy."""

import uuid

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from discreet import ALS, DPALS, Bias, Popularity, Ratings
from discreet.errors import ConfigError, DataError, NotFittedError
from discreet.models import base

ITEMS = [f"item {j}" for j in range(14)]
MODELS = {
    "explicit": lambda: ALS(3, regularization=0.5, iterations=4),
    "plain": lambda: ALS(3, regularization=0.5, iterations=4, intercepts=False, dtype="float64"),
    "implicit": lambda: ALS(3, regularization=0.5, iterations=4, goal="ranking"),
    "bias": Bias,
    "popularity": Popularity,
}


def some_ratings(seed=0, n=25, item_ids=ITEMS):
    rng = np.random.default_rng(seed)
    table = np.where(
        rng.random((n, len(item_ids))) < 0.4, rng.integers(1, 6, (n, len(item_ids))), 0
    )
    table[2] = 0  # a user without history
    table[3] = 4  # a user who knows everything
    return Ratings.from_csr(
        sparse.csr_array(table), user_ids=[f"user {i}" for i in range(n)], item_ids=item_ids
    )


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    ratings = some_ratings()
    return MODELS[request.param]().fit(ratings), ratings


@pytest.fixture(scope="module")
def als():
    return MODELS["explicit"]().fit(some_ratings())


def dense_scores(model, ratings):
    """offset + u · v + b for every user and item."""
    U, offset = model.fold(ratings.indptr, ratings.indices, ratings.values)
    return offset[:, None] + U @ model.item_factors_.T + model.item_biases_


def one(ratings, user):
    return ratings.select_users([user])


# ------------------------------------------------------------ recommending


def test_recommends_the_best_unseen_items(fitted):
    model, ratings = fitted
    scores = dense_scores(model, ratings)
    scores[ratings.to_csr().toarray() != 0] = -np.inf
    for i, user in enumerate(ratings.user_ids):
        ids, found = model.recommend(one(ratings, user), n=5)
        best = [j for j in np.argsort(-scores[i], kind="stable")[:5] if scores[i, j] > -np.inf]
        assert ids.tolist() == [ITEMS[j] for j in best]
        shown = (
            scores[i, best]
            if model.rating_range_ is None
            else np.clip(scores[i, best], *model.rating_range_)
        )
        np.testing.assert_allclose(found, shown, rtol=1e-4, atol=1e-5)
        assert found.dtype == np.float32


def test_many_equals_one_by_one(fitted):
    model, ratings = fitted
    ids, scores = model.recommend_many(ratings, n=6)
    assert ids.shape == scores.shape == (ratings.n_users, 6)
    for i, user in enumerate(ratings.user_ids):
        own_ids, own_scores = model.recommend(one(ratings, user), n=6)
        k = len(own_ids)
        assert ids[i, :k].tolist() == own_ids.tolist()
        np.testing.assert_allclose(scores[i, :k], own_scores, rtol=1e-5, atol=1e-6)
        assert ids[i, k:].tolist() == [-1] * (6 - k)
        assert np.isneginf(scores[i, k:]).all()
    assert (ids[3] == -1).all(), "who knows everything gets nothing new"


def test_blocks_of_users_are_joined(fitted, monkeypatch):
    model, ratings = fitted
    whole = model.recommend_many(ratings, n=4)
    pairs = model.predict(ratings, ratings)
    monkeypatch.setattr(base, "BLOCK", 7)
    steps = []
    ids, scores = model.recommend_many(ratings, n=4, progress=lambda *step: steps.append(step))
    assert np.array_equal(ids, whole[0])
    np.testing.assert_allclose(scores, whole[1], rtol=1e-6)
    np.testing.assert_allclose(model.predict(ratings, ratings), pairs, rtol=1e-6)
    assert steps == [(min(7 * k, 25), 25, "lists") for k in range(1, 5)]


def test_indices_are_positions_of_the_ids(fitted):
    model, ratings = fitted
    at, scores = model.recommend_indices(ratings, n=20)
    ids, same = model.recommend_many(ratings, n=20)
    assert at.dtype == np.int32
    assert scores.dtype == np.float32
    assert np.array_equal(scores, same)
    assert np.array_equal(at == -1, np.isneginf(scores))
    assert all(
        ids[i, k] == (model.item_ids_[at[i, k]] if at[i, k] >= 0 else -1)
        for i, k in np.ndindex(at.shape)
    )


@pytest.mark.parametrize(
    "kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_matrix]
)
def test_sparse_matrices_are_histories(fitted, kind):
    model, ratings = fitted
    matrix = kind(ratings.to_csr())
    for a, b in zip(
        model.recommend_many(matrix, n=3), model.recommend_many(ratings, n=3), strict=True
    ):
        assert np.array_equal(a, b)
    row = kind(ratings.to_csr()[[7]])
    for a, b in zip(
        model.recommend(row, n=3), model.recommend(one(ratings, "user 7"), n=3), strict=True
    ):
        assert np.array_equal(a, b)


def test_a_transposed_matrix_is_recognized(als):
    turned = some_ratings().to_csr().T.tocsr()
    with pytest.raises(
        DataError, match=r"25 columns for the 14 items of the model: did you transpose\?"
    ):
        als.recommend_many(turned)
    with pytest.raises(DataError, match=r"did you transpose\?"):
        als.predict(turned, [(0, ITEMS[0])])


def test_histories_over_other_items_are_aligned(als):
    """The order of the items in the histories, and items nobody rated, make no difference."""
    ratings = some_ratings()
    turned = ratings.with_items([*reversed(ITEMS), "unheard of"])
    for a, b in zip(als.recommend_many(turned, n=5), als.recommend_many(ratings, n=5), strict=True):
        assert np.array_equal(a, b)
    np.testing.assert_array_equal(als.predict(turned, ratings), als.predict(ratings, ratings))


def test_what_to_leave_out(fitted):
    model, ratings = fitted
    history = {ITEMS[0]: 5.0, ITEMS[1]: 2.0}
    everything = model.recommend(history, n=99)[0].tolist()
    assert sorted(everything) == sorted(ITEMS[2:])
    assert sorted(model.recommend(history, n=99, exclude_seen=False)[0]) == sorted(ITEMS)
    rest = model.recommend(history, n=99, exclude=everything[:3])[0].tolist()
    assert rest == everything[3:]
    chosen = {everything[5], everything[1], ITEMS[0]}
    assert model.recommend(history, n=99, items=chosen)[0].tolist() == [
        everything[1],
        everything[5],
    ]
    assert model.recommend(history, n=99, items=list(chosen), exclude=[everything[1]])[
        0
    ].tolist() == [everything[5]]
    assert len(model.recommend(history, items=[])[0]) == 0
    ids, scores = model.recommend_many(ratings, n=3, items=ITEMS[:2])
    assert set(ids.ravel().tolist()) <= {*ITEMS[:2], -1}
    assert (ids[:, 2] == -1).all()
    assert np.isneginf(scores[:, 2]).all()
    assert set(model.recommend_many(ratings, n=14, exclude_seen=False)[0][3]) == set(ITEMS)


def test_newcomers_get_the_best_on_average(fitted):
    model, _ = fitted
    ids, scores = model.recommend([], n=3)
    assert ids.tolist() == [ITEMS[j] for j in np.argsort(-model.item_biases_, kind="stable")[:3]]
    assert np.isfinite(scores).all()
    assert not model.fold_in({}).any()


def test_a_list_means_liked(als):
    assert als.rating_range_ == (1.0, 5.0)
    assert np.array_equal(als.fold_in(ITEMS[:3]), als.fold_in(dict.fromkeys(ITEMS[:3], 5.0)))
    assert not np.array_equal(als.fold_in(ITEMS[:3]), als.fold_in(dict.fromkeys(ITEMS[:3], 1.0)))
    assert np.array_equal(als.fold_in([ITEMS[0]] * 3), als.fold_in([ITEMS[0]])), (
        "saying it thrice changes nothing"
    )


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", None, True])
def test_wrong_numbers_of_items(als, n):
    for call in (
        lambda: als.recommend([], n=n),
        lambda: als.recommend_many(some_ratings(), n=n),
        lambda: als.similar_items(ITEMS[0], n=n),
    ):
        with pytest.raises(ConfigError, match=r"n is .*, but must be a whole number of at least 1"):
            call()


def test_numpy_integers_count(als):
    assert len(als.recommend([], n=np.int64(3))[0]) == 3


# ------------------------------------------------------------ arrays that somebody assigned


@pytest.mark.parametrize("kind", [np.int64, np.int32, bool, np.float16, object])
def test_arrays_of_another_type_are_refused_before_any_kernel(kind):
    """Compiled code would read integers as floating point, beyond their end."""
    ratings = some_ratings()
    for name in ("item_factors_", "item_biases_"):
        model = MODELS["explicit"]().fit(ratings)
        setattr(model, name, getattr(model, name).astype(kind))
        for call in (
            lambda: model.recommend([ITEMS[0]]),  # noqa: B023
            lambda: model.recommend_many(ratings),  # noqa: B023
            lambda: model.predict(ratings, ratings),  # noqa: B023
            lambda: model.similar_items(ITEMS[0]),  # noqa: B023
            lambda: model.fold_in([ITEMS[0]]),  # noqa: B023
        ):
            with pytest.raises(
                ConfigError, match=f"{name} is an array .* but must be one of float32 or float64"
            ):
                call()


def test_arrays_of_another_shape_are_refused():
    for name, array, message in (
        ("item_factors_", np.zeros((13, 3)), "item_factors_ has 13 rows for 14 items"),
        (
            "item_factors_",
            np.zeros(14),
            r"item_factors_ is an array \(14,\) of float64, but must .* 2 dimensions",
        ),
        ("item_biases_", np.zeros((14, 1)), "item_biases_ is an array .* with 1 dimensions"),
        ("item_biases_", [0.0] * 14, "item_biases_ is list, but must be"),
    ):
        model = MODELS["explicit"]().fit(some_ratings())
        setattr(model, name, array)
        with pytest.raises(ConfigError, match=message):
            model.recommend([ITEMS[0]])


# ------------------------------------------------------------ unknown ids


def test_unknown_ids_are_refused_or_skipped(fitted):
    model, _ = fitted
    history = {ITEMS[0]: 5.0, "new": 1.0, "newer": 1.0}
    message = (
        r"2 of the item ids are not in the model, such as 'new'. Leave them out, or pass"
        r" unknown='skip'"
    )
    calls = [
        lambda **how: model.recommend(history, **how),
        lambda **how: model.recommend([ITEMS[0]], exclude=["new", "newer"], **how),
        lambda **how: model.recommend(
            [ITEMS[0]], items=(i for i in [*ITEMS, "new", "newer"]), **how
        ),
        lambda **how: model.recommend_many(
            Ratings.from_arrays(["a"] * 3, list(history), [5, 1, 1]), **how
        ),
        lambda **how: model.fold_in(history, **how),
    ]
    for call in calls:
        with pytest.raises(DataError, match=message):
            call()
    known = model.recommend({ITEMS[0]: 5.0})
    # the top of the scale is 5, so that liking and rating with 5 are the same
    for call in calls[:3]:
        assert np.array_equal(call(unknown="skip")[0], known[0])
    assert np.array_equal(calls[3](unknown="skip")[0][0], known[0])
    assert np.array_equal(calls[4](unknown="skip"), model.fold_in({ITEMS[0]: 5.0}))
    for call in calls:
        with pytest.raises(ConfigError, match="unknown is 'drop', but must be 'error' or 'skip'"):
            call(unknown="drop")
    assert len(model.recommend(["new"], unknown="skip")[0]) == 10


def test_ids_of_another_type_are_unknown(als):
    with pytest.raises(DataError, match="1 of the item ids are not in the model, such as 7"):
        als.recommend([7])
    with pytest.raises(DataError, match="is needed, not the single value 'item 1'"):
        als.recommend([], exclude="item 1")


# ------------------------------------------------------------ similar items


def test_similar_items_by_cosine(als):
    V = als.item_factors_.astype(np.float64)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    for j in (0, 6):
        cosine = V @ V[j]
        expected = [k for k in np.argsort(-cosine, kind="stable") if k != j]
        ids, scores = als.similar_items(ITEMS[j], n=99)
        assert ids.tolist() == [ITEMS[k] for k in expected]
        np.testing.assert_allclose(scores, cosine[expected], atol=1e-5)
        assert als.similar_items(ITEMS[j], n=4)[0].tolist() == ids[:4].tolist()
    with pytest.raises(DataError, match=r"such as 'new'. item_ids_ lists its items"):
        als.similar_items("new")


def test_an_item_without_factors_is_similar_to_none_and_says_so():
    ratings = some_ratings().with_items([*ITEMS, "unrated"])
    model = MODELS["implicit"]().fit(ratings)
    with pytest.raises(ConfigError, match="no factors were learned for 'unrated'"):
        model.similar_items("unrated")


# ------------------------------------------------------------ what fit takes


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy polars", "pyarrow", "sparse"])
@pytest.mark.parametrize("name", ["explicit", "implicit", "bias", "popularity", "private"])
def test_fit_takes_frames_and_matrices_as_they_are(name, kind):
    ratings = some_ratings()
    make = MODELS.get(
        name, lambda: DPALS(2, epsilon=50.0, rating_range=(1, 5), noise="seeded", random_state=0)
    )
    given = ratings.to_csr() if kind == "sparse" else ratings.to_frame(kind.removeprefix("lazy "))
    same = (
        Ratings.from_csr(given)
        if kind == "sparse"
        else Ratings.from_frame(given, trust_user_column=True)
    )
    few = {"trust_user_column": True} if name == "private" else {}
    found = make().fit(given.lazy() if kind == "lazy polars" else given, **few)
    expected = make().fit(same)
    assert np.array_equal(found.item_ids_, expected.item_ids_)
    assert np.array_equal(found.item_factors_, expected.item_factors_)
    assert np.array_equal(found.item_biases_, expected.item_biases_)


# ------------------------------------------------------------ predicting


def test_predicts_pairs_in_any_form(fitted):
    model, ratings = fitted
    scores = dense_scores(model, ratings)
    if model.rating_range_ is not None:
        scores = scores.clip(1, 5)
    observed = ratings.to_csr().toarray() != 0
    predicted = model.predict(ratings, ratings)
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(predicted, scores[observed], rtol=1e-4, atol=1e-4)
    users, items = np.nonzero(~observed)
    pairs = [(ratings.user_ids[i], ITEMS[j]) for i, j in zip(users, items, strict=True)][::-1]
    expected = scores[users, items][::-1]
    frame = pd.DataFrame(pairs, columns=["user_id", "item_id"])
    for form in (pairs, frame, np.array(pairs, dtype=object)):
        np.testing.assert_allclose(model.predict(ratings, form), expected, rtol=1e-4, atol=1e-4)
    assert model.predict(ratings, []).shape == (0,)


def test_predictions_stay_on_the_scale():
    table = np.array([[5.0, 5, 4, 1], [5, 5, 5, 2], [1, 2, 1, 2]])
    ratings = Ratings.from_csr(sparse.csr_array(table))
    model = ALS(2, regularization=1e-3).fit(ratings)
    eager = Ratings.from_arrays(["x", "x"], [2, 3], [500.0, -500.0], item_ids=range(4))
    predicted = model.predict(eager, [("x", j) for j in range(4)])
    assert {1.0, 5.0} <= set(predicted.tolist()), "the clipping is at work here"
    assert predicted.min() >= 1
    assert predicted.max() <= 5


def test_unknown_users_are_newcomers(fitted):
    model, ratings = fitted
    pairs = [("stranger", ITEMS[1]), ("user 4", ITEMS[1]), ("user 2", ITEMS[1])]
    predicted = model.predict(ratings, pairs)
    assert predicted[0] == predicted[2], "user 2 has no history either"
    nobody = model.fold(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))[1][0]
    assert predicted[0] == pytest.approx(nobody + model.item_biases_[1], rel=1e-5)
    assert model.predict(ratings, pairs[:1])[0] == predicted[0], "also if nobody asked for is known"


def test_unknown_items_in_pairs_and_histories(fitted):
    model, ratings = fitted
    pairs = [("user 1", ITEMS[1]), ("user 1", "new")]
    with pytest.raises(
        DataError, match=r"1 of 2 pairs have an item that is not in the model.*unknown='skip'"
    ):
        model.predict(ratings, pairs)
    predicted = model.predict(ratings, pairs, unknown="skip")
    assert predicted[0] == model.predict(ratings, pairs[:1])[0]
    assert np.isnan(predicted[1])
    more = Ratings.from_arrays(["user 1"] * 2, [ITEMS[4], "new"], [3, 5])
    with pytest.raises(DataError, match="1 of the item ids are not in the model, such as 'new'"):
        model.predict(more, pairs[:1])
    less = Ratings.from_arrays(["user 1"], [ITEMS[4]], [3])
    assert model.predict(more, pairs[:1], unknown="skip")[0] == model.predict(less, pairs[:1])[0]
    with pytest.raises(ConfigError, match="unknown is 'ignore'"):
        model.predict(ratings, pairs[:1], unknown="ignore")


def test_predict_takes_a_matrix_with_row_numbers_as_users(als):
    ratings = some_ratings()
    by_row = als.predict(ratings.to_csr(), [(4, ITEMS[0]), (0, ITEMS[3])])
    assert np.array_equal(
        by_row, als.predict(ratings, [("user 4", ITEMS[0]), ("user 0", ITEMS[3])])
    )
    assert np.array_equal(als.predict(ratings.to_frame(), ratings), als.predict(ratings, ratings))
    with pytest.raises(
        DataError,
        match="histories must be Ratings, a frame or a sparse matrix, not a list",
    ):
        als.predict([1, 2], ratings)


# ------------------------------------------------------------ before fit, and ids of any kind


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_nothing_works_before_fit(make, tmp_path):
    model, ratings = make(), some_ratings()
    calls = [
        lambda: model.recommend([ITEMS[0]]),
        lambda: model.recommend_many(ratings),
        lambda: model.recommend_many(ratings.to_csr()),
        lambda: model.recommend_indices(ratings),
        lambda: model.similar_items(ITEMS[0]),
        lambda: model.fold_in([ITEMS[0]]),
        lambda: model.predict(ratings, ratings),
        lambda: model.save(tmp_path / "model"),
    ]
    for call in calls:
        with pytest.raises(
            NotFittedError,
            match=f"this {type(model).__name__} is not fitted yet. Call fit",
        ):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "make",
    [
        int,
        lambda j: -5 - j,
        str,
        lambda j: (j, str(j)),
        lambda j: uuid.UUID(int=j),
        lambda j: j / 3,
        lambda j: 2**70 + j,
        lambda j: j if j % 2 else str(j),
    ],
    ids=["int", "negative", "str", "tuple", "UUID", "float", "long", "mixed"],
)
def test_item_ids_of_any_kind(make):
    plain = some_ratings()
    ids = [make(j) for j in range(len(ITEMS))]
    ratings = some_ratings(item_ids=ids)
    expected, model = MODELS["explicit"]().fit(plain), MODELS["explicit"]().fit(ratings)
    rename = dict(zip(ITEMS, ids, strict=True))
    for got, want in (
        (model.recommend({ids[3]: 5, ids[7]: 1}), expected.recommend({ITEMS[3]: 5, ITEMS[7]: 1})),
        (
            model.recommend([ids[3]], exclude=ids[4:6]),
            expected.recommend([ITEMS[3]], exclude=ITEMS[4:6]),
        ),
        (model.similar_items(ids[3]), expected.similar_items(ITEMS[3])),
    ):
        assert got[0].tolist() == [rename[i] for i in want[0]]
        assert np.array_equal(got[1], want[1])
    got = model.predict(ratings, [("user 1", i) for i in ids])
    assert np.array_equal(got, expected.predict(plain, [("user 1", i) for i in ITEMS]))
    many = model.recommend_many(ratings.to_csr(), n=3)[0]
    want = expected.recommend_many(plain, n=3)[0]
    assert many.tolist() == [[rename.get(i, -1) for i in row] for row in want]


def test_a_huge_n_is_no_more_than_all_items(als):
    ids, _ = als.recommend({ITEMS[0]: 5.0}, n=10**12)
    assert len(ids) == len(ITEMS) - 1
    assert len(als.similar_items(ITEMS[0], n=10**12)[0]) == len(ITEMS) - 1


def test_recommended_scores_stay_within_the_scale(als):
    _, scores = als.recommend_many(some_ratings(), n=50)
    found = scores[scores > -np.inf]
    low, high = als.rating_range_
    assert low <= found.min()
    assert found.max() <= high


@pytest.mark.parametrize("model", [ALS(2, iterations=1), Bias()])
def test_ratings_that_are_all_the_same_are_said(model, caplog):
    model.fit(some_ratings().binarize(0))
    assert "every rating is 1, so there is nothing to predict. Use goal='ranking'" in caplog.text
