"""What may be left out of lists for many, items like many others, and what a model refuses to
say of users.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import discreet
from discreet import Ratings
from discreet.data.user_batches import read_by_users
from discreet.errors import ConfigError, DataError
from discreet.models.recommend_table import recommend_folder, recommend_table


@pytest.fixture(scope="module")
def ratings():
    return discreet.load_dataset("cinema", scale=0.02)


@pytest.fixture(scope="module")
def model(ratings):
    return discreet.ALS(4, iterations=2, goal="ranking").fit(ratings)


def alone(model, ratings, row, **options):
    """The list of one user, asked for alone."""
    return model.recommend(ratings.select_users([row], by="index"), 8, **options).ids.tolist()


def test_items_that_nobody_is_to_be_shown(model, ratings):
    hidden = model.item_ids_[np.argsort(-model.item_biases_)][:20].tolist()
    few = ratings.select_users(range(12), by="index")
    lists, scores = model.recommend_many(few, 8, exclude=hidden)
    assert not set(lists.ravel().tolist()) & set(hidden)
    assert np.isfinite(scores).all()
    for row in range(12):
        assert lists[row].tolist() == alone(model, few, row, exclude=hidden)


@pytest.mark.parametrize("form", ["mapping", "ratings"])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_items_that_one_user_is_not_to_be_shown(model, ratings, form, exclude_seen):
    few = ratings.select_users(range(6), by="index")
    plain = model.recommend_many(few, 8, exclude_seen=exclude_seen)[0]
    users = few.user_ids.tolist()
    own = {
        users[0]: plain[0, :3].tolist(),
        users[4]: plain[4, [5]].tolist(),
        "a stranger": plain[0, :1].tolist(),
    }
    given = own
    if form == "ratings":
        pairs = [(user, item) for user, items in own.items() for item in items]
        given = Ratings.from_arrays(
            [user for user, _ in pairs], [item for _, item in pairs], np.ones(len(pairs))
        )
    lists = model.recommend_many(few, 8, exclude=given, exclude_seen=exclude_seen)[0]
    for row in range(6):
        hidden = own.get(users[row], [])
        assert lists[row].tolist() == alone(
            model, few, row, exclude=hidden, exclude_seen=exclude_seen
        )
    assert lists[1].tolist() == plain[1].tolist()


def test_exclusions_that_cannot_be_meant(model, ratings):
    few = ratings.select_users(range(2), by="index")
    with pytest.raises(DataError, match="exclude is a list of item ids"):
        model.recommend_many(few, exclude="the-binary-colony")
    with pytest.raises(
        DataError, match="1 of the item ids are not in the model, such as 'no such film'"
    ):
        model.recommend_many(few, exclude=["no such film"])
    assert model.recommend_many(few, exclude=["no such film"], unknown="skip")[0].shape == (2, 10)
    assert np.array_equal(model.recommend_many(few, exclude={})[0], model.recommend_many(few)[0])


def test_more_exclusions_than_items_leave_padding(model, ratings):
    few = ratings.select_users(range(2), by="index")
    lists, scores = model.recommend_many(
        few, 5, exclude=model.item_ids_[2:].tolist(), exclude_seen=False
    )
    assert (lists[:, 2:] == -1).all()
    assert (scores[:, 2:] == -np.inf).all()


def test_frames_of_histories(model, ratings):
    few = ratings.select_users(range(5), by="index")
    for backend in ("pandas", "polars", "pyarrow"):
        assert np.array_equal(
            model.recommend_many(few.to_frame(backend))[0], model.recommend_many(few)[0]
        )


@pytest.mark.parametrize("form", [list, np.array])
def test_many_items_have_the_neighbors_that_each_has_alone(model, form):
    asked = model.item_ids_[[0, 3, 99]].tolist()
    found, scores = model.similar_items(form(asked), 5)
    assert found.shape == scores.shape == (3, 5)
    for row, item in enumerate(asked):
        ids, cosines = model.similar_items(item, 5)
        assert found[row].tolist() == ids.tolist()
        assert np.array_equal(scores[row], cosines)
        assert item not in found[row]


def test_more_neighbors_than_items_are_padding(ratings):
    model = discreet.ALS(2, iterations=1).fit(
        Ratings.from_arrays([1, 1, 2, 2], ["a", "b", "b", "c"], [1, 5, 2, 4.0])
    )
    found, scores = model.similar_items(["a"], 9)
    assert (found[0, 2:] == -1).all()
    assert (scores[0, 2:] == -np.inf).all()
    with pytest.raises(DataError, match="1 of the item ids are not in the model"):
        model.similar_items(["a", "z"])


def test_an_item_of_which_nothing_was_learned_is_like_no_other():
    model = discreet.ALS(2, iterations=1).fit(
        Ratings.from_arrays([1, 1, 2, 2], ["a", "b", "b", "c"], [1, 5, 2, 4.0])
    )
    model.item_factors_ = model.item_factors_.copy()
    model.item_factors_[1] = 0
    found, _ = model.similar_items(["a", "b"], 2)
    assert (found[1] == -1).all()
    assert (found[0] != -1).all()


def test_users_are_not_compared_and_the_reason_is_given(model):
    with pytest.raises(ConfigError, match="each is computed from that user's own history"):
        model.similar_users(7, 10)


@pytest.fixture
def two_files(ratings, tmp_path):
    folder = tmp_path / "ratings"
    folder.mkdir()
    frame = ratings.to_frame("pandas")
    half = np.median(frame["user_id"])
    frame[frame["user_id"] < half].to_parquet(folder / "a.parquet")
    frame[frame["user_id"] >= half].to_parquet(folder / "b.parquet")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("rows", [1 << 20, 7, 50])
def test_lists_of_a_folder_are_those_of_one_table(
    model, ratings, two_files, tmp_path, monkeypatch, rows
):
    monkeypatch.setattr("discreet.data.user_batches.ROWS", rows)

    def read(file):
        return read_by_users(file, items=model.item_ids_.tolist())

    count = recommend_folder(model, two_files, read, tmp_path / "lists", n=7)
    assert count == ratings.n_users
    written = parquet.read_table(tmp_path / "lists")
    assert written.column_names == ["user_id", "rank", "item_id", "title", "score"]
    assert written.equals(recommend_table(model, ratings, n=7, progress=False))
    with pytest.raises(ConfigError, match="already exists"):
        recommend_folder(model, two_files, read, tmp_path / "lists")


def test_a_user_of_two_files_gets_no_lists(model, two_files, tmp_path):
    again = two_files[0].with_name("c.parquet")
    again.write_bytes(two_files[0].read_bytes())
    with pytest.raises(DataError, match=r"a user of .*c\.parquet is also in an earlier file"):
        recommend_folder(model, [*two_files, again], read_by_users, tmp_path / "lists")
    assert not (tmp_path / "lists").exists()


def test_users_of_two_files_are_compared_by_value(model, tmp_path):
    """hash(-1) is hash(-2), and an integer is known from a file whose other ids are text."""
    item = model.item_ids_[:2].tolist()
    pieces = {
        Path("a"): Ratings.from_arrays([-1, "x"], item, [1.0, 1.0]),
        Path("b"): Ratings.from_arrays([-2, "y"], item, [1.0, 1.0]),
        Path("c"): Ratings.from_arrays([5, 6], item, [1.0, 1.0]),
        Path("d"): Ratings.from_arrays(["z", 6], item, [1.0, 1.0]),
        Path("e"): Ratings.from_arrays(["w", "x"], item, [1.0, 1.0]),
    }

    def write(*names):
        to = tmp_path / "".join(names)
        return recommend_folder(model, list(map(Path, names)), lambda file: [pieces[file]], to)

    assert write("a", "b", "c") == 6
    for names in (["c", "d"], ["a", "e"], ["a", "b", "c", "d"]):
        with pytest.raises(DataError, match="also in an earlier file"):
            write(*names)


@pytest.mark.parametrize("rows", [1, 5, 1000])
@pytest.mark.parametrize("kind", ["int64", "string", "dictionary"])
def test_a_file_in_order_of_users_is_read_in_pieces(tmp_path, monkeypatch, rows, kind):
    monkeypatch.setattr("discreet.data.user_batches.ROWS", rows)
    rng = np.random.default_rng(0)
    user = np.sort(rng.integers(10, 30, 200))
    table = pa.table({"user": user, "item": np.arange(200) % 9, "rating": rng.random(200)})
    if kind != "int64":
        text = table["user"].cast("string")
        table = table.set_column(0, "user", text.dictionary_encode() if "d" in kind else text)
    file = tmp_path / "a.parquet"
    parquet.write_table(table, file)
    whole = Ratings.read(file)
    pieces = list(read_by_users(file))
    assert (len(pieces) > 1) == (rows < 200)
    assert np.concatenate([one.user_ids for one in pieces]).tolist() == whole.user_ids.tolist()
    assert np.array_equal(np.concatenate([one.values for one in pieces]), whole.values)


def test_other_files_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("discreet.data.user_batches.ROWS", 3)
    table = pa.table({"user": [1, 1, 2, 2, 1], "item": [1, 2, 3, 4, 5]})
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("user,item\n" + "1,2\n2,3\n3,4\n4,5\n", encoding="utf-8")
    for name, users in (("a.parquet", 2), ("a.csv", 4)):
        (only,) = read_by_users(tmp_path / name)
        assert only.n_users == users
