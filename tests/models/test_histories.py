"""Every form in which a history, many histories or pairs may come gives the same rows."""

import datetime
import logging
import re
import uuid
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import discreet
from discreet import Ratings
from discreet.data.ids import object_array
from discreet.errors import DataError
from discreet.models.histories import parse_history, parse_typed_history, with_default
from discreet.models.item_lookup import ItemLookup
from discreet.models.scorer import Scorer
from discreet.models.user_rows import as_pairs, as_user_rows
from discreet.serve.app import Refused, parse_request
from discreet.serve.schemas import RecommendRequest
from support.served_models import fitted

ITEMS = np.array([10, 20, 30, 40], np.int64)
RATED = {20: 4.0, 40: 1.0}
COLUMNS = {"item_id": [20, 40], "rating": [4.0, 1.0]}
ROW = sparse.csr_array(np.array([[0, 4.0, 0, 1.0]]))


def parse(history, item_ids=ITEMS, **options):
    """{item id: rating} of a history, as a scorer of these items takes it."""
    scorer = Scorer(item_ids, np.zeros((len(item_ids), 1)), None, None, default_rating=5.0)
    found = parse_history(history, scorer, **options)
    assert found.at.dtype == np.int32
    assert found.values.dtype == np.float32
    assert found.at.tolist() == sorted(set(found.at.tolist()))
    return dict(zip(item_ids[found.at].tolist(), found.values.tolist(), strict=True))


@pytest.mark.parametrize(
    "history",
    [
        RATED,
        {np.int64(40): np.float32(1), 20: 4},
        pd.DataFrame(COLUMNS),
        pd.Series(RATED),
        pd.DataFrame(COLUMNS).set_index("item_id")["rating"],
        pl.DataFrame(COLUMNS),
        pl.LazyFrame(COLUMNS),
        pa.table(COLUMNS),
        pa.table(COLUMNS).to_batches()[0],
        pd.DataFrame({"movieId": [40, 20], "score": [1, 4], "anything": ["a", "b"]}),
        pd.DataFrame(COLUMNS | {"user_id": ["me", "me"]}),
        pd.DataFrame({"item_id": [20, 40, 20], "rating": [4.0, 1.0, 2.0], "timestamp": [9, 9, 3]}),
        ROW,
        sparse.csr_matrix(ROW),
        sparse.csc_array(ROW),
        sparse.coo_array(ROW),
        sparse.coo_array(ROW).reshape(4),
        Ratings.from_arrays(["me", "me"], [20, 40], [4, 1]),
    ],
    ids=lambda h: f"{type(h).__module__.split('.')[0]}.{type(h).__name__}",
)
def test_a_history_with_ratings(history):
    assert parse(history) == RATED


@pytest.mark.parametrize(
    "history",
    [
        [20, 40],
        (40, 20),
        {20, 40},
        np.array([20, 40]),
        pd.Series([20, 40]),
        pl.Series([20, 40]),
        pa.array([20, 40]),
        {20: None, 40: None}.keys(),
        iter([20, 40]),
        [20, 40, 20],
        pd.DataFrame({"item_id": [20, 40]}),
        pl.DataFrame({"item": [20, 40]}),
        pa.table({"product_id": [20, 40]}),
    ],
    ids=lambda h: f"{type(h).__module__.split('.')[0]}.{type(h).__name__}",
)
def test_a_history_without_ratings_is_liked(history):
    assert parse(history) == {20: 5.0, 40: 5.0}


@pytest.mark.parametrize(
    "history",
    [
        [],
        {},
        (),
        set(),
        np.array([]),
        pd.DataFrame({"item_id": [], "rating": []}),
        pl.DataFrame({"item_id": []}),
        pa.table({"item_id": pa.array([], pa.int64())}),
        sparse.csr_array((1, 4)),
        sparse.csr_matrix((1, 4)),
    ],
    ids=lambda h: f"{type(h).__module__.split('.')[0]}.{type(h).__name__}",
)
def test_an_empty_history(history):
    assert parse(history) == {}


@pytest.mark.parametrize(
    "make",
    [
        str,
        lambda i: (i, "x"),
        lambda i: uuid.UUID(int=i),
        lambda i: i / 16,
        lambda i: datetime.date(2000, 1, i),
    ],
)
def test_ids_of_any_kind(make):
    ids = {make(20): 4.0, make(30): 1.0}
    items = object_array([*ids, make(31)], 3)
    assert parse(ids, items) == ids
    assert parse(list(ids), items) == dict.fromkeys(ids, 5.0)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (
            "20",
            "a history is a list of item ids or a mapping item id -> rating, not '20'",
        ),
        (b"20", "a history is a list"),
        (20, "a history is a list"),
        (None, "a history is a list"),
        ({20: "good"}, "finite ratings, and 'good' is not one"),
        ({20: None}, "finite ratings, and None is not one"),
        ({20: float("nan")}, "finite ratings, and nan is not one"),
        ({20: np.inf}, "finite ratings, and inf is not one"),
        ([[20, 40]], "must be hashable"),
        ([None], "item id is missing"),
        (np.ones((2, 2), int), "must be one-dimensional"),
        (
            np.zeros(23),
            r"an array \(23,\) of float64 is not a history. Pass a list of item ids, a mapping",
        ),
        (np.array([20.0, 40.0]), r"an array \(2,\) of float64 is not a history"),
        (
            pd.DataFrame({"a": [1]}),
            r"needs a column item_id, and may have one for the rating. Its columns are \['a'\]",
        ),
        (
            pd.DataFrame(COLUMNS | {"user": [1, 2]}),
            "the history of one user is needed, but there are 2 users",
        ),
        (
            sparse.csr_array((2, 4)),
            "the history of one user is needed, but there are 2 users. Use recommend_many",
        ),
        (
            Ratings.from_arrays([1, 2], [10, 10]),
            "the history of one user is needed, but there are 2 users",
        ),
        (sparse.csr_array((1, 5)), "5 columns for the 4 items of the model"),
    ],
)
def test_what_is_no_history(history, message):
    with pytest.raises(DataError, match=message):
        parse(history)


@pytest.mark.parametrize(
    ("history", "typed", "expected"),
    [
        ({"i9": 2.0, "i3": 4.5}, "i9=2,i3=4.5", ([3, 9], [4.5, 2])),
        (["i9", "i3"], "i9,i3", ([3, 9], [5, 5])),
        ([], "", ([], [])),
        ({"i9": 7.0}, "i9=7", "outside the range 1 to 5"),
        ({"strange": 2.0}, "strange=2", "not in the model|does not know"),
    ],
)
def test_every_entry_point_has_one_rule(history, typed, expected):
    model = fitted("DPMF, ratings")
    scorer = model.scorer()
    served = SimpleNamespace(scorer=scorer, position=scorer.position, near=lambda text: [])
    rated = history
    if isinstance(history, dict):
        rated = [{"item": item, "rating": rating} for item, rating in history.items()]
    ways = (
        lambda: model._history(history, "error")[1:],
        lambda: scorer.history(history),
        lambda: parse_request(served, RecommendRequest(history=history))[:2],
        lambda: parse_request(served, RecommendRequest(history=rated))[:2],
        lambda: scorer.history(
            with_default(parse_typed_history([typed], ItemLookup.of_model(model)), model)
        ),
    )
    for way in ways:
        if isinstance(expected, str):
            with pytest.raises((DataError, Refused)) as raised:
                way()
            assert re.search(expected, getattr(raised.value, "message", str(raised.value)))
        else:
            assert tuple(part.tolist() for part in way()) == expected


def test_many_histories():
    table = np.array([[0, 4.0, 0, 1.0], [0, 0, 0, 0], [1, 2, 3, 4]])
    expected = Ratings.from_csr(sparse.csr_array(table), item_ids=ITEMS)
    for kind in (
        sparse.csr_array,
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_matrix,
        sparse.lil_array,
    ):
        assert as_user_rows(kind(table), ITEMS) == expected
    assert as_user_rows(expected, ITEMS) is expected


@pytest.mark.parametrize(
    ("histories", "message"),
    [
        (sparse.csr_array((4, 7)), r"7 columns for the 4 items of the model: did you transpose\?"),
        (sparse.csr_array((3, 7)), "7 columns for the 4 items of the model$"),
        (np.ones((3, 4)), "be Ratings, a frame or a sparse matrix, not a ndarray"),
        ([{20: 1.0}], "not a list. For a single history, use recommend"),
        (pd.DataFrame(COLUMNS), "has no column recognizable as the user"),
    ],
)
def test_what_are_no_histories(histories, message):
    with pytest.raises(DataError, match=message):
        as_user_rows(histories, ITEMS)


PAIRS = [("b", 20), ("a", 40), ("b", 40), ("b", 20)]


@pytest.mark.parametrize(
    "pairs",
    [
        PAIRS,
        [list(pair) for pair in PAIRS],
        iter(PAIRS),
        np.array(PAIRS, dtype=object),
        pd.DataFrame(PAIRS, columns=["user_id", "item_id"]),
        pl.DataFrame(PAIRS, schema=["user", "movieId"], orient="row"),
        pa.table(
            {
                "rating": ["x"] * 4,
                "user_id": [p[0] for p in PAIRS],
                "item_id": [p[1] for p in PAIRS],
            }
        ),
    ],
    ids=lambda p: f"{type(p).__module__.split('.')[0]}.{type(p).__name__}",
)
def test_pairs_keep_order_and_repetitions(pairs):
    user_ids, item_ids, user, item = as_pairs(pairs)
    assert list(zip(user_ids[user].tolist(), item_ids[item].tolist(), strict=True)) == PAIRS


def test_pairs_of_ratings_are_in_their_order():
    ratings = Ratings.from_arrays(["b", "a", "b"], [40, 40, 20])
    user_ids, item_ids, user, item = as_pairs(ratings)
    assert user_ids[user].tolist() == ["a", "b", "b"]
    assert item_ids[item].tolist() == [40, 20, 40]


def test_no_pairs():
    assert [len(part) for part in as_pairs([])] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "pairs", [[1, 2], [(1, 2, 3)], ("a", "b"), 7, None, ["ab"], {1: 2}, np.ones((2, 3))]
)
def test_what_are_no_pairs(pairs):
    with pytest.raises(DataError, match=r"pairs must be rows of \(user_id, item_id\)"):
        as_pairs(pairs)


@pytest.fixture(scope="module")
def films():
    titles = {1: "Matrix, The (1999)", 2: "Up (2009)", 3: "Up (1984)", 4: "Toy Story (1995)"}
    rng = np.random.default_rng(2)
    ratings = Ratings.from_arrays(
        np.repeat(np.arange(60), 2), rng.integers(1, 5, 120), item_ids=list(titles)
    ).with_items(titles)
    return discreet.ALS(factors=2, goal="ranking", random_state=1).fit(ratings)


def test_titles_stand_for_ids(films):
    by_id = films.recommend([1, 4], 2, exclude_seen=False)
    for history in (["The Matrix", "toy story"], ["Matrix, The (1999)", "Toy Story (1995)"]):
        assert films.recommend(history, 2, exclude_seen=False).scores.tolist() == (
            by_id.scores.tolist()
        )
    assert films.similar_items("Toy Story", 1).ids == films.similar_items(4, 1).ids
    with pytest.raises(DataError, match=r"2 items have the title 'Up'. Use an id: 2 or 3"):
        films.recommend(["Up"])
    with pytest.raises(DataError, match=r"such as 'Toy Stori': did you mean 'Toy Story \(1995\)'"):
        films.recommend(["Toy Stori"])
    assert len(films.recommend(["Toy Stori"], 2, unknown="skip").ids) == 2


def test_titles_are_found_without_accents_and_text_ids_in_any_case():
    titles = ["Amélie (2001)", "Käsereibe", "Leon", "Léon"]
    items = ItemLookup(np.arange(4), np.array(titles, object))
    assert [items.find_title(text) for text in ("amelie", "KASEREIBE")] == [0, 1]
    assert [items.find_title(text) for text in ("Leon", "léon", "LÉON")] == [2, 3, 3]
    plain = ItemLookup(np.array(["Käsereibe 1", "SKU-7"], object), None)
    assert [plain.find_title(text) for text in ("kasereibe 1", "sku-7", "sku 8")] == [0, 1, -1]
    assert ItemLookup(np.array([1, 2]), None).find_title("1") == -1
    model = discreet.Popularity().fit(Ratings.from_arrays([1, 2], ["Käsereibe 1", "SKU-7"]))
    assert model.recommend(["sku-7"], 1).ids.tolist() == ["Käsereibe 1"]


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 5)])
def test_an_empty_matrix_is_refused_as_an_empty_file_is(shape):
    with pytest.raises(DataError, match="the matrix holds no ratings"):
        discreet.DPMF(epsilon=1).fit(sparse.csr_matrix(shape))


def test_one_history_predicts_and_explains(films):
    whole = films.recommend({1: 1.0, 4: 1.0}, 4, exclude_seen=False)
    scores = dict(zip(whole.ids.tolist(), whole.scores.tolist(), strict=True))
    found = films.predict({1: 1.0, 4: 1.0}, [2, "The Matrix"])
    np.testing.assert_allclose(found, [scores[2], scores[1]], rtol=1e-5)
    why = films.explain([1, 4], 2)
    without = films.predict([4], [2])[0]
    first = dict(zip(why.ids.tolist(), why.scores.tolist(), strict=True))
    assert first[1] == pytest.approx(scores[2] - without, rel=1e-4)
    assert why.scores.tolist() == sorted(why.scores.tolist(), reverse=True)


def test_fit_takes_a_catalog():
    frame = pd.DataFrame({"user": np.repeat(np.arange(120), 2), "item": [1, 2] * 120})
    model = discreet.DPMF(epsilon=5, noise="seeded", random_state=1)
    model.fit(frame, items={1: "A", 2: "B", 3: "C"})
    assert model.titles_.tolist() == ["A", "B", "C"]
    assert model.privacy_.cautions == (
        "the noise came from a seed, and anyone who knows it can subtract the noise",
    )


def test_training_twice_says_that_costs_add_up(caplog):
    frame = pd.DataFrame({"user": np.repeat(np.arange(120), 2), "item": [1, 2] * 120})
    model = discreet.DPMF(epsilon=5, noise="seeded", random_state=1)
    caplog.set_level(logging.WARNING, logger="discreet")
    model.fit(frame, items=[1, 2])
    assert not caplog.records
    model.fit(frame, items=[1, 2])
    assert "the cost of both adds up" in caplog.text


def test_a_decimal_comma_in_a_typed_history_is_not_another_item():
    items = ItemLookup(ITEMS, None)
    for text in ("10=4,5", "10=4,5,20", "20,10=3,5"):
        with pytest.raises(DataError, match="may be a rating with a decimal comma"):
            parse_typed_history([text], items)
    assert parse_typed_history(["10=4,20=1,30"], items) == {10: 4.0, 20: 1.0, 30: None}
