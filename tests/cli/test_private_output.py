"""Nothing exact about users leaves in JSON, logs or pipes of a private command."""

import json
import sys

import pytest

from conftest import write_catalog, write_ratings
from discreet.cli.output import EXACT, EXACT_MARK

OPTIONS = ("--epsilon", 20, "--rating-range", "1,5")
SEEDED = ("--noise", "seeded", "--random-state", 7)
ALLOWED = {
    "train": {"command", "data", "items", "model", "out"},
    "tune": {
        *("command", "data", "items", "model", "out", "setting", "score", "runs", "distribution"),
        *("base_epsilon", "trials"),
    },
    "evaluate": {"command", "data", "items", "part", "scores"},
}
COMMANDS = {
    "train": ("train", *SEEDED),
    "tune": ("tune", "--try", "factors=2,3", "--runs", 2),
    "evaluate": (
        "evaluate",
        "--score-epsilon",
        1,
        "--metrics",
        "recall@5",
        "--relevant",
        4,
        *SEEDED,
    ),
}


def add_user(file, copy, first_user=9000):
    """A neighboring file: one user more, with ratings of all items, some of them twice."""
    rows = [f"{first_user},{10 + item},5,{item}" for item in (*range(40), *range(7))]
    copy.write_text(file.read_text() + "\n".join(rows) + "\n")
    return copy


@pytest.fixture
def neighbors(tmp_path):
    """Two files of ratings that differ in one user, and a catalog."""
    one = write_ratings(tmp_path / "one.csv", n_users=150)
    return one, add_user(one, tmp_path / "two.csv"), write_catalog(tmp_path / "films.csv")


def call(run, name, file, films, folder, *more):
    out = (
        ()
        if name == "evaluate"
        else ("--out", folder / f"{file.stem}-{len(list(folder.iterdir()))}")
    )
    return run(
        *COMMANDS[name][:1], file, "--items", films, *COMMANDS[name][1:], *OPTIONS, *out, *more
    )


def walk(value, path=()):
    """(path, key or value) of everything in a document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield path, name
            yield from walk(inner, (*path, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from walk(inner, (*path, at))
    else:
        yield path, value


@pytest.mark.parametrize("name", COMMANDS)
def test_documents_of_neighbors_have_the_same_keys_and_no_exact_number(
    run, neighbors, tmp_path, name
):
    one, two, films = neighbors
    documents = []
    for file in (one, two):
        done = call(run, name, file, films, tmp_path, "--json")
        assert done.code == 0, done.err
        assert "merged" not in done.err
        documents.append(json.loads(done.out))
    counts = {150, 151, 150 * 12, 150 * 12 + 40}
    for document in documents:
        assert document.keys() <= ALLOWED[name]
        found = list(walk(document))
        assert not {key for path, key in found if not path} & set(EXACT)
        assert not [
            path for path, value in found if type(value) in (int, float) and value in counts
        ]
    assert documents[0].keys() == documents[1].keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_pipes_and_logs_of_neighbors_hold_no_exact_number(run, neighbors, tmp_path, name):
    one, two, films = neighbors
    for file in (one, two):
        done = call(run, name, file, films, tmp_path, "--verbose")
        assert done.code == 0, done.err
        text = done.out + done.err
        assert f"Read {file}\n" in done.out
        for exact in ("150 users", "151 users", "1,800", "1,840", "merged", EXACT_MARK):
            assert exact not in text


def test_on_a_terminal_exact_numbers_are_shown_and_marked(run, neighbors, tmp_path, monkeypatch):
    _, two, films = neighbors
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    done = call(run, "train", two, films, tmp_path)
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if "151 users" in line or "Trained" in line]
    assert len(lines) == 2
    assert all(EXACT_MARK in line for line in lines)


def test_unknown_items_are_refused_without_naming_or_counting_them(run, neighbors, tmp_path):
    one, _, films = neighbors
    messages = set()
    for extra in (
        ["9001,secret-1,5,1"],
        ["9001,secret-1,5,1", "9002,secret-2,4,1", "9003,secret-2,4,1"],
    ):
        odd = tmp_path / "odd.csv"
        odd.write_text(one.read_text() + "\n".join(extra) + "\n")
        done = call(run, "train", odd, films, tmp_path)
        assert done.code == 2
        assert "secret" not in done.err
        messages.add(done.err)
    (message,) = messages
    assert "some rated items are not in the catalog of 40" in message
    assert "--unknown-items drop" in message


def test_filters_that_leave_nothing_are_refused_without_a_number(run, neighbors, tmp_path):
    one, _, films = neighbors
    done = call(run, "train", one, films, tmp_path, "--min-rating", 6)
    assert done.code == 2
    assert "no rating of" in done.err
    assert "1,800" not in done.err


def test_training_always_says_that_ratings_are_clipped_to_the_range(run, neighbors, tmp_path):
    one, _, films = neighbors
    wild = tmp_path / "wild.csv"
    wild.write_text(one.read_text() + "9001,10,1e30,1\n9001,11,-4,1\n")
    for file in (one, wild):
        done = call(run, "train", file, films, tmp_path)
        assert done.code == 0, done.err
        assert "Ratings outside --rating-range 1,5 are clipped to it." in done.out
        assert "the range of ratings, 1 to 5 (ratings outside of it are clipped)" in done.out


# ------------------------------------------------------------ the column that identifies users


@pytest.fixture
def german(tmp_path):
    """A shop's file with German names, and its items."""
    lines = write_ratings(tmp_path / "r.csv", n_users=150).read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    days = [f"2024-{1 + at % 12:02}-{1 + at % 28:02}" for at in range(len(rows))]
    text = [
        f"K{user};{item};{stars};{day}"
        for (user, item, stars, _), day in zip(rows, days, strict=True)
    ]
    file = tmp_path / "kunden.csv"
    file.write_text("\n".join(["Stammkunde;Artikel;Sterne;Datum", *text]) + "\n")
    return file


def test_no_user_column_is_suggested_and_wrong_ones_are_refused(run, german, tmp_path):
    private = ("--epsilon", 5, "--factors", 2, "--out", tmp_path / "m")
    asked = run("train", german, *private)
    assert asked.code == 2
    assert "did you mean" not in asked.err
    assert "--user COLUMN" in asked.err
    assert (
        "'Stammkunde', 'Artikel', 'Sterne' (few distinct numbers, like ratings), 'Datum' (dates)"
        in asked.err
    )
    item = ("--item", "Artikel")
    reasons = {
        ("--user", "Sterne"): "fewer than 100 distinct values",
        ("--user", "Datum", "--rating", "Sterne"): "holds dates",
        ("--user", "Stammkunde", "--rating", "none", "--rating-range", "1,5"): (
            "there is no rating column"
        ),
    }
    for columns, reason in reasons.items():
        for engine in ("memory", "blocks"):
            done = run("train", german, *columns, *item, *private, "--engine", engine)
            assert done.code == 2
            assert reason in done.err
            assert "--trust-user-column" in done.err
            assert "when reading" not in done.err
            assert not (tmp_path / "m").exists()
            account = tmp_path / "people.sqlite"
            assert not account.exists()
    for engine in ("memory", "blocks"):
        stars = ("--user", "Sterne", *item, "--engine", engine, "--trust-user-column", "--replace")
        trusted = run("train", german, *stars, *private)
        assert trusted.code == 0, trusted.err
    right = run(
        "train",
        german,
        "--user",
        "Stammkunde",
        "--rating",
        "Sterne",
        *item,
        *private,
        "--replace",
    )
    assert right.code == 0, right.err


# ------------------------------------------------------------ histories, and spellings of ids


def test_histories_outside_the_public_range_are_refused(run, private, tmp_path):
    (tmp_path / "h.csv").write_text("movieId,rating\n12,99\n")
    (tmp_path / "users.csv").write_text("userId,movieId,rating\n1,12,4\n2,13,99\n")
    (tmp_path / "good.csv").write_text("userId,movieId,rating\n1,12,4\n2,13,5\n")
    for way in (
        ("--history", "12=99"),
        ("--history", "12=4,13=0.5"),
        ("--history-file", tmp_path / "h.csv"),
        ("--users", tmp_path / "users.csv"),
    ):
        done = run("recommend", private / "model", *way)
        assert done.code == 2
        assert "a rating in the history is outside the range 1 to 5" in done.err
        assert "99" not in done.err
    for way in (("--history", "12=5,13=1,14"), ("--users", tmp_path / "good.csv")):
        assert run("recommend", private / "model", *way).code == 0


def test_normalized_ids_are_an_option_of_files(run, tmp_path):
    rows = [
        f"{name},{item},{1 + item % 5}" for item in range(6) for name in ("Anna", "ANNA ", "bob")
    ]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    train = ("train", tmp_path / "r.csv", "--not-private", "--model", "bias", "--json")
    plain = run(*train, "--out", tmp_path / "a")
    one = run(*train, "--out", tmp_path / "b", "--normalize-ids")
    assert [json.loads(done.out)["users"] for done in (plain, one)] == [3, 2]
    files = ("--not-private", "--out", tmp_path / "c", "--normalize-ids")
    assert "is for files, not for named data sets" in run("train", "cinema", *files).err
    blocks = ("--epsilon", 1, "--engine", "blocks", "--out", tmp_path / "d", "--normalize-ids")
    assert "--normalize-ids needs --engine memory" in run("train", tmp_path / "r.csv", *blocks).err
