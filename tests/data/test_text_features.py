"""Text columns and similarities of items become numbers, from public data alone."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

import discreet
from discreet.data.similarities import COMPONENTS, similarity_features
from discreet.data.text_features import embed_texts, hash_words, reduce_columns, text_features
from discreet.errors import ConfigError, DataError

SPACE = [f"A voyage to the distant star {name}" for name in ("Vega", "Rigel", "Deneb", "Mira")]
LOVE = [f"Summer letters of a secret heart in {name}" for name in ("Rome", "Oslo", "Lima", "Bern")]


def test_texts_with_the_same_words_are_near():
    X = embed_texts([*SPACE, *LOVE])
    Z = X / np.linalg.norm(X, axis=1, keepdims=True)
    near = Z @ Z.T
    assert near[:4, :4].min() > near[:4, 4:].max() + 0.5


def test_words_are_hashed_the_same_in_every_process():
    """Python's own hash differs between processes; these columns are fixed numbers."""
    X = hash_words(["red fox", "red dog"])
    assert X.shape == (2, 1 << 14)
    assert np.array_equal(embed_texts([*SPACE, *LOVE]), embed_texts([*SPACE, *LOVE]))
    two = hash_words(["red", "red", "fox", "fox"])
    assert np.flatnonzero(two.toarray().any(axis=0)).tolist() == [8466, 10509]


def test_items_without_text_are_unknown():
    X = embed_texts([*SPACE, "", "—"])
    assert np.isnan(X[4:]).all()
    assert np.isfinite(X[:4]).all()
    assert embed_texts(["", "one"]).shape == (2, 0)


def test_reduction_is_that_of_an_exact_svd():
    X = np.random.default_rng(0).standard_normal((60, 5)) @ np.diag([9, 7, 5, 3, 1])
    found = reduce_columns(X, 3)
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(found), np.abs(U[:, :3] * s[:3]), atol=1e-6)


def frame():
    rows = [*SPACE, *LOVE]
    return pa.table({"item_id": list(range(8)), "title": rows, "kind": ["a|b", "b"] * 4})


def test_columns_by_name_or_by_a_function():
    ids = np.arange(9)
    X = text_features(frame(), ids, ["title"])
    assert X.shape[0] == 9
    assert np.isnan(X[8]).all()
    lengths = text_features(frame(), ids, {"title": lambda texts: [[len(t)] * 3 for t in texts]})
    expected = np.array([len(t) for t in [*SPACE, *LOVE]], float)
    assert abs(np.corrcoef(lengths[:8, 0], expected)[0, 1]) == pytest.approx(1.0)
    with pytest.raises(DataError, match="no column 'plot'"):
        text_features(frame(), ids, ["plot"])
    with pytest.raises(DataError, match="must return finite numbers"):
        text_features(frame(), ids, {"title": lambda texts: [1.0]})


# ------------------------------------------------------------------ similarities


def blocks(n=40, size=10):
    return (np.arange(n)[:, None] // size == np.arange(n) // size).astype(float)


@pytest.mark.parametrize("form", ["square", "sparse", "rows", "embeddings", "by id"])
def test_similar_items_have_similar_features(form, tmp_path):
    K = blocks()
    rows, columns = np.nonzero(np.triu(K, 1))
    ids = np.array([f"i{k}" for k in range(40)], object)
    given = {
        "square": K,
        "sparse": sparse.csr_array(K),
        "rows": pa.table({"a": ids[rows], "b": ids[columns], "weight": np.ones(len(rows))}),
        "embeddings": K[:, ::10],
        "by id": {ids[k]: K[k, ::10] for k in reversed(range(40))} | {"other": np.ones(4)},
    }[form]
    F = similarity_features(given, ids)
    assert F.shape[1] <= COMPONENTS
    centered = F - F.mean(axis=0)
    kernel = centered @ centered.T
    assert kernel[K > 0].min() > kernel[K == 0].max()


def test_items_without_similarities_are_unknown():
    K = np.zeros((5, 5))
    K[0, 1] = K[1, 2] = 1.0
    assert np.isnan(similarity_features(K, np.arange(5))[3:]).all()


def test_embeddings_by_id_do_not_depend_on_their_order():
    vectors = {k: np.random.default_rng(k).standard_normal(6) for k in range(20) if k != 3}
    other = {str(k): vectors[k] for k in reversed(vectors)}
    one, two = (similarity_features(given, np.arange(20)) for given in (vectors, other))
    assert np.array_equal(one, two, equal_nan=True)
    assert np.isnan(one[3]).all()
    assert np.isfinite(np.delete(one, 3, axis=0)).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({0: [1.0, 2.0], 1: [3.0]}, "same length"),
        ({0: "a long story"}, "same length"),
        ({70: [1.0, 2.0]}, "none of the items"),
        (np.ones((3, 4)), "one row"),
        (-np.ones((5, 5)), "negative"),
        (sparse.csr_array((4, 4)), "shape"),
        (pa.table({"a": [0], "b": [1]}), "2 columns"),
        (pa.table({"a": [70], "b": [71], "w": [1.0]}), "no pair"),
        (7, "^similarities must be a file or frame"),
        ("emb.npy", "similarities is emb.npy, an array without item ids"),
    ],
)
def test_wrong_similarities_are_one_sentence(given, message):
    with pytest.raises(DataError, match=message):
        similarity_features(given, np.arange(5))


# ------------------------------------------------------------------ models


def make_ratings(n=800, m=40):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, n)
    user, item = np.nonzero(
        rng.random((n, m)) < np.where(group[:, None] == np.arange(m) // 10, 0.6, 0.05)
    )
    values = rng.integers(1, 6, len(user)).astype(float)
    return discreet.Ratings.from_arrays(user, item, values, item_ids=np.arange(m))


@pytest.mark.parametrize("goal", ["ranking", "rating"])
def test_models_take_texts_and_similarities(goal, tmp_path):
    table = pa.table(
        {"item_id": list(range(40)), "title": [f"{'abcd'[i // 10] * 3} tale" for i in range(40)]}
    )
    model = discreet.DPMF(
        epsilon=20,
        rating_range=(1, 5),
        goal=goal,
        item_features=discreet.PublicItems(table, text=["title"], similarities=blocks()),
    )
    model.fit(make_ratings(), progress=False)
    names = {a.name for a in model.privacy_.assumptions}
    assert {"features", "similarities"} <= names
    model.save(tmp_path / "model")
    assert discreet.load(tmp_path / "model").item_features is None
    near = discreet.PublicItems(similarities=blocks())
    alone = discreet.DPMF(epsilon=20, rating_range=(1, 5), goal=goal, item_features=near)
    alone.fit(make_ratings(), progress=False)
    assert "PublicItems" in repr(alone)
    assert repr(near) == "<PublicItems: similarities>"


def test_text_and_similarities_are_named_in_the_statement():
    table = pa.table(
        {"item_id": list(range(40)), "title": [f"{'abcd'[i // 10] * 3} tale" for i in range(40)]}
    )
    texts = []
    for given in (
        discreet.PublicItems(table, text=["title"], similarities=blocks()),
        discreet.PublicItems(table, text=["title"]),
        discreet.PublicItems(similarities=blocks()),
    ):
        model = discreet.DPMF(epsilon=20, rating_range=(1, 5), item_features=given)
        model.fit(make_ratings(), progress=False)
        (found,) = [a.text for a in model.privacy_.assumptions if a.name == "features"]
        texts.append(found.partition(" for each")[2])
    assert texts == [" (with text and similarities)", " (with text)", " (from similarities)"]


def test_what_is_not_saved_is_said(tmp_path):
    table = pa.table({"item_id": list(range(40)), "kind": ["ab"[i % 2] for i in range(40)]})
    for features in (None, ["kind"]):
        model = discreet.DPMF(
            epsilon=20, rating_range=(1, 5), item_features=table, features=features
        )
        model.fit(make_ratings(), progress=False).save(tmp_path / "model", replace=True)
        loaded = discreet.load(tmp_path / "model")
        with pytest.raises(ConfigError, match=r"^item_features is not saved with a model. Pass it"):
            loaded.fit(make_ratings(), progress=False)
        assert loaded.privacy_.ledger.entries
        loaded.save(tmp_path / "again", replace=True)
        for folder in ("model", "again"):
            card = (tmp_path / folder / "README.md").read_text()
            assert "item_features=(not saved)" in card
            assert "item_features=None" not in card
        loaded.item_features = table
        loaded.fit(make_ratings(), progress=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "PublicItems is empty"),
        ({"features": {1: 2.0}, "text": 5}, "text is an int, but must be a list"),
        ({"features": {1: 2.0}, "text": {"title"}}, "text is a set, but must be a list"),
    ],
)
def test_public_items_without_use_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        discreet.PublicItems(**given)


def test_features_are_a_list_of_names():
    for wrong in ({"genres": 1}, {"genres"}, [1]):
        model = discreet.DPMF(epsilon=1, rating_range=(1, 5), item_features="x", features=wrong)
        with pytest.raises(ConfigError, match="must be a list of names of columns"):
            model.fit(make_ratings(), progress=False)


@pytest.mark.parametrize(
    ("column", "given", "message"),
    [
        (["", "", ""], None, "'x' in text has words for 0 of the items"),
        (["one", "", None], None, "'x' in text has words for 1 of the items"),
        (["a", "b", "c"], None, "no words that tell items apart"),
        ([1990, 1991, None], None, "holds numbers instead of text"),
        (["1990", "1991", "N/A"], None, "holds numbers instead of text"),
        ([[1.0], [2.0], [3.0]], None, "holds lists instead of text"),
        (["a", "b", "c"], lambda texts: np.ones((len(texts), 2)), "has no two columns"),
        (["a", "b", "c"], np.ones((3, 2)), "has no two columns of numbers that tell items apart"),
        (
            ["a", "b", "c"],
            lambda texts: np.where(np.arange(len(texts)) == 1, np.nan, 1.0)[:, None],
            r"returned NaN in row 1 \(from 0\)",
        ),
        (["a", "b", "c"], lambda texts: np.full((3, 2), np.inf), "returned an infinite number"),
    ],
)
def test_text_without_use_is_refused(column, given, message):
    table = pa.table({"item_id": [0, 1, 2], "x": column})
    text = ["x"] if given is None else {"x": given}
    with pytest.raises(DataError, match=message):
        text_features(table, np.arange(3), text)


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((4, 4)),
        np.eye(4),
        sparse.csr_array(np.eye(4)),
        pa.table({"a": [0, 1], "b": [0, 1], "w": [1.0, 2.0]}),
        pa.table({"a": [0, 1], "b": [1, 2], "w": [0.0, 0.0]}),
        np.ones((4, 2)),
        {0: [1.0, 2.0], 1: [1.0, 2.0]},
        {0: [1.0, 2.0]},
    ],
)
def test_similarities_that_tell_nothing_apart_are_refused(given):
    with pytest.raises(
        DataError, match=r"^similarities has (no two different|vectors that tell no)"
    ):
        similarity_features(given, np.arange(4))


def test_rows_of_unknown_items_are_counted(caplog):
    rows = pa.table({"a": [0, 1, 70], "b": [1, 2, 71], "w": [1.0, 1.0, 1.0]})
    similarity_features(rows, np.arange(4))
    assert "similarities: 1 of 3 rows are of items that are not among those" in caplog.text
    vectors = {0: [1.0, 2.0], 1: [2.0, 1.0], 9: [3.0, 1.0]}
    similarity_features(vectors, np.arange(4))
    assert "similarities: 1 of 3 vectors are of items" in caplog.text


@pytest.mark.parametrize("header", ["a,b,w", "item_a,item_b,similarity", "item,other,weight", ""])
@pytest.mark.parametrize("ids", [["u", "v", "x", "y"], [0, 1, 2, 3]])
def test_a_header_of_similarities_is_recognized(tmp_path, header, ids):
    file = tmp_path / "near.csv"
    a, b, c, d = ids
    file.write_text(f"{header}\n{a},{b},1\n{b},{c},0.5\n{c},{d},2\n".lstrip())
    table = pa.table({"i": [a, b, c], "j": [b, c, d], "w": [1.0, 0.5, 2.0]})
    item_ids = np.array(ids, object if isinstance(a, str) else np.int64)
    one, two = (similarity_features(given, item_ids) for given in (file, table))
    assert np.array_equal(one, two)


def test_empty_files_of_similarities_are_called_so(tmp_path):
    file = tmp_path / "near.csv"
    for text in ("", "\n \n"):
        file.write_text(text)
        with pytest.raises(DataError, match=r"^similarities is .*near.csv, which is empty"):
            similarity_features(file, np.arange(4))
    with pytest.raises(DataError, match=r"^similarities has no rows"):
        similarity_features(pa.table({"a": [], "b": [], "w": []}), np.arange(4))
    file.write_text("a,b,w\n0,1,much\n")
    with pytest.raises(DataError, match="weights that are no numbers"):
        similarity_features(file, np.arange(4))


def test_text_needs_features():
    with pytest.raises(ConfigError, match="columns of features, which is not given"):
        discreet.PublicItems(text=["title"])


def test_text_names_a_list_of_columns_of_a_table():
    table = pa.table({"item_id": [1, 2], "title": ["a b", "b c"]})
    with pytest.raises(ConfigError, match=r"Pass text=\['title'\]"):
        discreet.PublicItems(table, text="title")
    for given in (np.ones((2, 3)), {1: [0.5], 2: [1.5]}):
        with pytest.raises(ConfigError, match="has no names of columns"):
            discreet.PublicItems(given, text=["title"])


def test_a_text_column_as_an_array_is_that_of_a_function():
    """Its rows are those of the table, whatever the order of the items."""
    ids = np.array([3, 1, 9, 2])
    table = pa.table({"item_id": [1, 2, 3, 4], "title": ["a b", "b c", "c d", "e"]})
    X = np.random.default_rng(0).standard_normal((4, 3))
    place = {"a b": 0, "b c": 1, "c d": 2, "e": 3}
    by_function = {"title": lambda texts: X[[place[text] for text in texts]]}
    one = discreet.PublicItems(table, text={"title": X}).numbers(ids, True)
    other = discreet.PublicItems(table, text=by_function).numbers(ids, True)
    assert np.array_equal(one, other, equal_nan=True)
    assert np.isnan(one[2]).all()


@pytest.mark.parametrize("given", [np.ones((3, 2)), np.full((4, 2), np.nan), np.ones(4)])
def test_an_array_for_text_has_a_row_for_each_row_of_the_table(given):
    table = pa.table({"item_id": [1, 2, 3, 4], "title": ["a b", "b c", "c d", "e"]})
    with pytest.raises(DataError, match="for each of the 4 rows of features"):
        discreet.PublicItems(table, text={"title": given}).numbers(np.array([1, 2]), True)


@pytest.mark.parametrize("text", [{"title": 5}, {"title": lambda texts: texts}])
def test_what_is_no_function_to_numbers_is_refused(text):
    table = pa.table({"item_id": [1, 2, 3], "title": ["a b", "b c", "c d"]})
    with pytest.raises((ConfigError, DataError), match="text must"):
        discreet.PublicItems(table, text=text).numbers(np.array([1, 2, 3]), False)


@pytest.mark.parametrize("given", [np.full((3, 2), "x"), np.full((3, 2), np.nan)])
def test_embeddings_that_are_no_numbers_are_refused(given):
    with pytest.raises(DataError, match="one row of finite numbers"):
        similarity_features(given, np.array([1, 2, 3]))
