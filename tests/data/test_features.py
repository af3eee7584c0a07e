"""Item features from files, frames, mappings and arrays."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import discreet
from discreet.data.features import Features, item_categories, item_features, read_features
from discreet.errors import DataError

IDS = np.array([1, 2, 3])


def write(tmp_path, text, name="items.csv"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_numbers_words_and_years_of_a_csv(tmp_path):
    file = write(
        tmp_path,
        "item_id,title,length,genres\n3,Up (2009),96,Comedy|War\n1,It"
        " (1990),,War\n7,Jaws,124,Comedy\n",
    )
    found = read_features(file)
    assert found.names == ("year", "length", "genres: Comedy", "genres: War")
    np.testing.assert_array_equal(
        item_features(file, IDS),
        [
            [1990, np.nan, 0, 1],
            [np.nan] * 4,
            [2009, 96, 1, 1],
        ],
    )


def test_movielens_layouts_without_names(tmp_path):
    file = write(
        tmp_path,
        "1::Toy (1995)::Comedy|War\n2::Heat (1995)::War\n3::Sabrina (1996)::Comedy\n",
        "movies.dat",
    )
    assert read_features(file).names == ("year", "column 2: Comedy", "column 2: War")
    many = "".join(f"{i}|Toy (1995)|{i}-Jan-1995|http://x/{i}|{i % 2}|1\n" for i in range(1, 61))
    assert read_features(write(tmp_path, many, "u.item")).names == ("year", "column 4", "column 5")


def test_a_column_of_a_few_words_and_one_of_many(tmp_path):
    lines = "".join(f"{i},{'film' if i % 2 else 'series'},text {i}\n" for i in range(60))
    assert read_features(write(tmp_path, "id,kind,blurb\n" + lines)).names == (
        "kind: film",
        "kind: series",
    )


def test_frames_mappings_and_arrays_say_the_same():
    X = np.array([[1.0, 0.0], [3.0, 2.0], [0.5, 0.5]])
    frame = pd.DataFrame({"item_id": IDS, "a": X[:, 0], "b": X[:, 1]})
    for source in (
        X,
        frame,
        dict(zip(IDS.tolist(), X.tolist(), strict=True)),
        Features(IDS, ("a", "b"), X),
    ):
        np.testing.assert_array_equal(item_features(source, IDS), X)
    words = item_features({1: "war|love", 2: ["love"], 3: "war"}, IDS)
    np.testing.assert_array_equal(words, [[1, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(item_features({"1": [5.0]}, IDS), [[5], [np.nan], [np.nan]])


REFUSED = [
    (np.zeros((2, 4)), r"one row of numbers for each of the 3 items"),
    (np.zeros(3), "one row of numbers"),
    (np.array([["a"], ["b"], ["c"]]), "one row of numbers"),
    ({9: [1.0]}, "has none of the 3 items: its ids are such as 9"),
    ({}, "empty mapping"),
    ({1: [1.0], 2: [1.0, 2.0]}, "equally many numbers for every item"),
    ({1: "a", 2: "b"}, "holds no features"),
    (
        np.array([[1.0], [np.nan], [2.0]]),
        r"The column 0 \(from 0\) of item_features has NaN in row 1 \(from 0\)\. Correct it",
    ),
    (np.array([[1.0], [2.0], [-np.inf]]), "has an infinite number in row 2"),
    ({1: [1.0], "b": [np.nan]}, "column 0 .* has NaN for item 'b' in row 1"),
    ({1: [1.0, 0.0], 2: [3.0, np.inf]}, r"column 1 \(from 0\) .* number for item 2 in row 1"),
    (
        pd.DataFrame({"item_id": [1, 7, 8], "x": [0, 1, 2], "price": [2.0, np.inf, -np.inf]}),
        r"The column 'price' of item_features has an infinite number for item 7 in row 1"
        r" \(from 0\), the first of 2 such items\.",
    ),
    (
        pd.DataFrame([[1, 2, 3]], columns=["item_id", "a", "a"]),
        "several columns of the same name",
    ),
    (7, "not an int"),
    (pd.DataFrame({"x": [1], "y": [2]}), "has no column recognizable as item ids"),
    (pd.DataFrame({"item_id": [1, 1], "y": [2, 3]}), "lists the item 1 twice"),
    (np.ones((3, 2))[:2], "one row of numbers for each of the 3 items"),
    (np.arange(3), "one row of numbers"),
    (np.array(["a"] * 3), "one row of numbers"),
    ({1: None}, "has None for the item 1, but must have numbers or words"),
    ({1: [None, 2.0]}, "has None for the item 1"),
    ({1: [[1.0], [1.0, 2.0]]}, "has a list for the item 1"),
    ({1: {"genre": "war"}}, "has a dict for the item 1"),
    ({1: 10**400}, "column 0 .* has an infinite number for item 1"),
    (pd.DataFrame({"year": [1990]}, index=[1]), r"Rename the column to item_id, or pass frame.r"),
    (pl.DataFrame({"year": [1990]}), r"Rename the column to item_id\.$"),
]


@pytest.mark.parametrize(("source", "message"), REFUSED)
def test_what_holds_no_features_is_refused_in_a_sentence(source, message):
    with pytest.raises(DataError, match=message):
        item_features(source, IDS)


@pytest.mark.parametrize("goal", ["ranking", "rating"])
@pytest.mark.parametrize(("source", "message"), REFUSED)
def test_models_refuse_them_alike_before_anything_is_released(source, message, goal):
    user = np.repeat(np.arange(30), 2)
    ratings = discreet.Ratings.from_arrays(
        user, np.tile([1, 2, 3], 20), np.tile([1.0, 5.0], 30), item_ids=IDS
    )
    for features in [None, ["a"]] if goal == "ranking" else [None]:
        model = discreet.DPMF(
            epsilon=1, rating_range=(0.5, 5), goal=goal, item_features=source, features=features
        )
        with pytest.raises(DataError, match=None if features else message):
            model.fit(ratings, progress=False)
        assert not hasattr(model, "privacy_")


def test_scalars_of_other_types_are_numbers():
    found = item_features({1: np.float32(2), 2: np.array(3), 3: True}, IDS)
    np.testing.assert_array_equal(found, [[2], [3], [1]])


@pytest.mark.parametrize(
    "text",
    [
        "werk,art\n1,war\n2,love\n",
        "werk,art,jahr\nup,war,1990\nheat,love,1991\n",
        "xx,price\nup,3\nheat,\n",
    ],
)
def test_names_that_are_not_known_are_no_item(tmp_path, text):
    with pytest.raises(
        DataError, match=r"looks like column names, .* Rename the column of item ids"
    ):
        read_features(write(tmp_path, text))


def test_a_first_line_that_may_hold_names_is_reported(tmp_path, caplog):
    file = write(tmp_path, "werk,art,land\nup,war,us\nheat,war,us\n")
    read_features(file)
    assert "the first line ('werk,art,land') is read as an item" in caplog.text
    caplog.clear()
    read_features(write(tmp_path, "film,art\nup,war\nheat,war\n"))
    assert not caplog.records


def test_categories_of_other_items_are_refused():
    frame = pd.DataFrame({"item_id": [7, 8], "author": ["a", "a"]})
    with pytest.raises(DataError, match="has none of the 3 items"):
        item_categories(frame, IDS)


def test_files_that_hold_none(tmp_path):
    files = {
        "item_id\n1\n2\n": "at least one more column",
        "item_id,title\n1,Up\n2,It\n": "holds no features",
        "item_id,a\n1,2\n2,3,4\n": "item 2 has 3 fields",
        "item_id,a\n": "no items below",
    }
    for text, message in files.items():
        with pytest.raises(DataError, match=message):
            item_features(write(tmp_path, text), IDS)
    with pytest.raises(DataError, match="does not exist"):
        item_features(tmp_path / "nothing.csv", IDS)


def test_columns_of_lists_are_features_and_usual_words_are_not_known(tmp_path, caplog):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table(
            {"item_id": [1, 2, 3], "embedding": [[0.5, 1.0], None, [2.0, 3.0]], "year": [1, 2, 3]}
        ),
        tmp_path / "e.parquet",
    )
    found = read_features(tmp_path / "e.parquet")
    assert found.names == ("embedding 0", "embedding 1", "year")
    np.testing.assert_array_equal(found.X[:, :2], [[0.5, 1.0], [np.nan, np.nan], [2.0, 3.0]])
    (tmp_path / "na.csv").write_text("item_id,year\n1,1990\n2,N/A\n3,2001\n")
    np.testing.assert_array_equal(read_features(tmp_path / "na.csv").X[:, 0], [1990, np.nan, 2001])
    item_features(tmp_path / "na.csv", np.arange(1, 10))
    assert "year, for 2 of 9 items" in caplog.text
    uneven = pa.table({"item_id": [1, 2], "embedding": [[0.5, 1.0], [2.0]]})
    pq.write_table(uneven, tmp_path / "u.parquet")
    with pytest.raises(DataError, match="equally many numbers"):
        read_features(tmp_path / "u.parquet")


def test_lists_of_words_are_words():
    frame = pd.DataFrame({"item_id": [1, 2, 3], "genres": [["War", "Comedy"], ["War"], ["Comedy"]]})
    (genres,) = item_categories(frame, IDS, ["genres"])
    assert genres.names == ("comedy", "war")
    assert read_features(frame).names == ("genres: Comedy", "genres: War")


@pytest.mark.parametrize(
    "name", ["publisher_id", "publisherId", "PublisherID", "publisher id", "zip_code", "tag.ids"]
)
@pytest.mark.parametrize("form", ["integers", "floats", "file", "Parquet"])
def test_whole_numbers_in_a_column_of_ids_are_categories(tmp_path, name, form):
    """The same for a column of integers, and of floats with gaps, as pandas reads such a file."""
    codes = [7, 12, 7, None, 12, 9007199254740993 if form in ("integers", "file") else 7]
    items = np.arange(1, 7)
    frame = pd.DataFrame({"item_id": items, name: pd.array(codes, "Int64"), "year": 1990 + items})
    source = frame.astype({name: float}) if form == "floats" else frame
    if form == "file":
        source = tmp_path / "items.csv"
        frame.to_csv(source, index=False)
    if form == "Parquet":
        source = tmp_path / "items.parquet"
        frame.to_parquet(source)
    (codes,) = item_categories(source, items, [name])
    assert codes.names == ("12", "7")
    assert np.diff(codes.starts)[:5].tolist() == [1, 1, 1, 0, 1]
    assert read_features(source).names == (f"{name}: 12", f"{name}: 7", "year")


def test_other_numbers_stay_numbers():
    for name in ("paid", "valid", "bid", "covid", "unicode", "year", "pages"):
        frame = pd.DataFrame({"item_id": IDS, name: [1990, 1990, 2001]})
        assert read_features(frame).names == (name,)
    for column in ([0.5, 1.0, 2.0], [0, 1, 1]):  # amounts, and flags
        assert read_features(pd.DataFrame({"item_id": IDS, "x_id": column})).names == ("x_id",)
    frame = pd.DataFrame({"item_id": IDS, "x_id": [1.0, 2.0, np.inf]})
    with pytest.raises(
        DataError, match="'x_id' of item_features has an infinite number for item 3"
    ):
        read_features(frame)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_column_of_categories_says_that_its_numbers_are_codes(kind):
    items = np.arange(5)
    codes = [7, 12, 7, 12, 3]
    source = pd.DataFrame({"item_id": items, "publisher": pd.Categorical(codes)})
    if kind == "polars":
        text = pl.Series(map(str, codes), dtype=pl.Categorical)
        source = pl.DataFrame({"item_id": items, "publisher": text})
    (publishers,) = item_categories(source, items, ["publisher"])
    assert publishers.names == ("12", "7")
    assert np.diff(publishers.starts).tolist() == [1, 1, 1, 1, 0]
    plain = pd.DataFrame({"item_id": ["007", "7a"], "length": [1, 2]})
    np.testing.assert_array_equal(
        item_features(plain.astype({"item_id": "category"}), np.array(["7a", "007"], object)),
        item_features(plain, np.array(["7a", "007"], object)),
    )


def test_nullable_columns_of_pandas_have_gaps():
    frame = pd.DataFrame({"item_id": IDS, "year": [1990, None, 2001], "kind": ["a", None, "a"]})
    frame = frame.astype({"year": "Int64", "kind": "string"})
    found = item_features(frame, IDS)
    np.testing.assert_array_equal(found, [[1990, 1], [np.nan, np.nan], [2001, 1]])
    assert item_categories(frame, IDS) == []


def test_ids_of_other_catalogs_say_nothing_of_an_item():
    """As in links.csv of MovieLens."""
    frame = pd.DataFrame({"movieId": IDS, "imdbId": [114709, 113497, 113228]})
    assert item_categories(frame, IDS) == []
    with pytest.raises(DataError, match=r"holds no features: .* 'imdbId' has codes"):
        item_features(frame, IDS)


def test_lists_of_codes_are_categories():
    frame = pd.DataFrame({"item_id": IDS, "genre_ids": [[28, 12], [28, 12], []]})
    (genres,) = item_categories(frame, IDS, ["genre_ids"])
    assert genres.names == ("12", "28")
    assert np.diff(genres.starts).tolist() == [2, 2, 0]


def test_whole_numbers_that_may_be_codes_are_named(caplog):
    items = np.arange(400)
    frame = pd.DataFrame(
        {
            "item_id": items,
            "publisher": items % 100,
            "year": 1900 + items % 100,
            "votes": items * 3,
            "score": items % 100 / 10,
            "season": items % 9,
        }
    )
    item_categories(frame, items)
    (record,) = caplog.records
    assert "read as amounts in 'publisher'. If they are codes" in record.getMessage()
    assert "name end in _id" in record.getMessage()
    caplog.clear()
    item_categories(frame.rename(columns={"publisher": "publisher_id"}), items)
    item_categories(frame, items, ["year", "season"])
    assert not caplog.records


def test_a_table_without_rows_is_refused():
    empty = pd.DataFrame({"item_id": [], "genres": []})
    with pytest.raises(DataError, match="item_features has no rows"):
        item_features(empty, IDS)


@pytest.mark.parametrize("column", [["a", "b", "c"], ["a", "a", "a"], [None, None, None]])
def test_a_named_column_without_shared_values_is_refused(column):
    frame = pd.DataFrame({"item_id": [1, 2, 3], "kind": column})
    with pytest.raises(DataError, match=r"'kind' of item_features has (no|fewer than two) "):
        item_categories(frame, IDS, ["kind"])


def test_a_named_column_of_0_and_1_has_two_values():
    """It was left out in silence, since it has 1 as its only value among several columns."""
    ids = np.arange(6)
    war = [1, 1, 0, 0, None, 1]
    frame = pd.DataFrame({"item_id": ids, "war": war, "funny": [0, 1, 1, 0, 1, 0]})
    (found,) = item_categories(frame, ids, ["war"])
    assert (found.name, found.names) == ("war", ("0", "1"))
    assert np.diff(found.starts).tolist() == [1, 1, 1, 1, 0, 1]
    assert found.values.tolist() == [1, 1, 0, 0, 1]
    (both,) = item_categories(frame, ids, ["war", "funny"])
    assert both.names == ("funny", "war")
    rare = pd.DataFrame({"item_id": ids, "war": [1, 0, 0, 0, 0, 0]})
    with pytest.raises(DataError, match="'war' of item_features has fewer than two values"):
        item_categories(rare, ids, ["war"])


def test_a_column_of_text_is_called_text():
    frame = pd.DataFrame({"item_id": [1, 2, 3], "title": ["up", "down", "left"]})
    with pytest.raises(DataError, match=r"it is text, .* for its words, name it in text"):
        item_categories(frame, IDS, ["title"])
