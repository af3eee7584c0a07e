"""``discreet evaluate --score-epsilon``: scores with noise."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import write_catalog, write_ratings
from discreet.data.ratings import Ratings


def test_a_saved_model_is_measured_with_noise_and_a_ledger(run, shelf, tmp_path):
    known = ("--known", shelf / "known.csv", "--target", shelf / "target.csv")
    more = ("--metrics", "rmse,recall@20", "--relevant", 4)
    call = ("evaluate", shelf / "model", *known, *more, "--score-epsilon", 2, "--trust-user-column")
    result = run(*call, "--score-ledger", tmp_path / "scores.json")
    assert result.code == 0, result.err
    assert "released with noise" in result.out
    assert "interval, 95%" in result.out
    priced = json.loads(run("budget", tmp_path / "scores.json", "--json").out)
    assert priced["epsilon"] == pytest.approx(2)
    whole = json.loads(run(*call, "--json").out)
    assert not {"users", "ratings", "left_out"} & set(whole)  # exact numbers, which nobody paid for
    found = whole["scores"]
    assert set(found["values"]) == {"rmse", "recall@20"}
    assert found["privacy"]["status"] == "private with cautions"
    cautions = " ".join(found["privacy"]["cautions"])  # ALS reads it from the data, without noise
    assert "trained without privacy" in cautions
    assert "the range of ratings, 1 to 5" in cautions


def test_a_model_is_trained_and_measured_and_an_account_pays(run, private, tmp_path):
    store = f"{tmp_path / 'people.sqlite'}:all"
    assert run("budget", "open", store, "--epsilon", 6).code == 0
    call = (
        "evaluate",
        private / "ratings.csv",
        "--epsilon",
        5,
        "--rating-range",
        "1,5",
        "--factors",
        3,
    )
    result = run(*call, "--score-epsilon", 2, "--account", store, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["account"]["trainings"] == 2  # the model, and its scores
    assert not {"users", "ratings", "merged", "kept"} & set(found)
    assert found["scores"]["conditions"]["split"].startswith("by person")
    again = run(*call, "--score-epsilon", 2, "--account", store)
    assert again.code == 2
    assert "would fit" in again.err


def test_exact_scores_are_called_a_look(run, shelf):
    call = ("evaluate", shelf / "ratings.csv", "--model", "als", "--factors", 2, "--iterations", 2)
    assert "not covered by the model's ε" in run(*call).out
    assert "not covered by" in json.loads(run(*call, "--json").out)["caution"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--score-delta", "1e-6"), "--score-delta needs --score-epsilon"),
        (("--account", "people.sqlite:x"), "--account needs --score-epsilon"),
        (("--score-epsilon", 1, "--seeds", 3), "covers one set of scores"),
        (("--score-epsilon", 1, "--slices"), "covers one set of scores"),
        (("--score-epsilon", 0), "--score-epsilon is 0, but must be above 0"),
        (("--score-epsilon", 1, "--metrics", "coverage@20"), "is no sum over users"),
        (
            ("--score-epsilon", 1),
            "Pass --relevant, the lowest relevant rating, or train with a public --rating-range",
        ),
        (("--score-epsilon", 1, "--epsilon", 5), "The relevance threshold of ranking scores"),
        (("--score-epsilon", 1, "--relevant", 4, "--split", "users"), "needs --test-users"),
    ],
)
def test_bad_calls_are_one_sentence(run, shelf, options, said):
    iterations = () if "--epsilon" in options else ("--iterations", 2)
    result = run("evaluate", shelf / "ratings.csv", "--factors", 2, *iterations, *options)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def list_integers(value):
    """List all whole numbers of a JSON document; what is released is none."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [number for one in parts for number in list_integers(one)]
    return [value] if isinstance(value, int) else []


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Ratings in numbers that nothing else has: 997 users, 11,964 ratings, 1,053 repeated rows."""
    folder = tmp_path_factory.mktemp("odd")
    file = write_ratings(folder / "ratings.csv", n_users=997)
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines + lines[1:1054]) + "\n")
    write_catalog(folder / "films.csv")
    return folder


COMMANDS = {
    "evaluate": ("evaluate", "--score-epsilon", 2, "--factors", 3),
    "evaluate --min-rating": ("evaluate", "--score-epsilon", 2, "--factors", 3, "--min-rating", 1),
    "evaluate --split newest": ("evaluate", "--score-epsilon", 2, "--split", "newest"),
    "tune": ("tune", "--try", "factors=2,3", "--runs", 3),
    "tune --distribution fixed": (
        "tune",
        "--try",
        "factors=2,3",
        "--runs",
        2,
        "--distribution",
        "fixed",
    ),
}


@pytest.mark.parametrize("call", COMMANDS.values(), ids=COMMANDS)
def test_no_exact_number_is_in_the_document_of_a_private_command(run, odd, tmp_path, call):
    to = ("--out", tmp_path / "m") if call[0] == "tune" else ()
    public = ("--items", odd / "films.csv", "--rating-range", "1,5", "--epsilon", 5)
    result = run(call[0], odd / "ratings.csv", *call[1:], *public, *to, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    shared = {"command", "data"}
    keys = (
        {"part", "scores"}
        if call[0] == "evaluate"
        else {
            *("model", "setting", "score", "runs", "distribution", "base_epsilon", "trials", "out")
        }
    )
    assert set(found) == shared | keys
    del found["data"]
    found.pop("out", None)
    assert not {997, 11_964, 13_017, 1053} & set(list_integers(found))
    assert not re.search(r"997|11,?964|13,?017|1,?053", result.err)
    assert "seconds" not in result.out


def test_a_pipe_gets_no_exact_number_of_priced_scores(run, odd):
    public = ("--items", odd / "films.csv", "--rating-range", "1,5", "--epsilon", 5, "--factors", 3)
    result = run("evaluate", odd / "ratings.csv", *public, "--score-epsilon", 2)
    assert result.code == 0, result.err
    assert "997 users" not in result.out


def test_priced_scores_refuse_nothing_that_a_file_holds(run, shelf, tmp_path):
    """Unknown items and users without a history: exact scores refuse them, with numbers."""
    (tmp_path / "strangers.csv").write_text("userId,movieId,rating\n1,9999,4.0\n2,9998,4.0\n")
    (tmp_path / "others.csv").write_text("userId,movieId,rating\n3,12,4.0\n4,13,4.0\n")
    call = ("evaluate", shelf / "model", "--metrics", "rmse,recall@5", "--relevant", 4)
    pairs = [("strangers", "strangers"), ("others", "strangers"), ("strangers", "others")]
    for known, target in pairs:
        files = ("--known", tmp_path / f"{known}.csv", "--target", tmp_path / f"{target}.csv")
        assert run(*call, *files).code != 0
        result = run(*call, *files, "--score-epsilon", 1, "--trust-user-column", "--json")
        assert result.code == 0, result.err
        assert "left out" not in result.err
        assert "left_out" not in result.out


def test_equal_ratings_are_not_refused_where_the_range_is_public(run, odd, tmp_path):
    lines = (odd / "ratings.csv").read_text().splitlines()
    same = [",".join([*line.split(",")[:2], "4.0", "7"]) for line in lines[1:]]
    (tmp_path / "same.csv").write_text("\n".join([lines[0], *same]) + "\n")
    public = ("--items", odd / "films.csv", "--rating-range", "1,5", "--epsilon", 50)
    call = ("evaluate", tmp_path / "same.csv", *public, "--goal", "rating", "--score-epsilon", 2)
    for split in ("by-person", "leave-one-out", "newest"):
        result = run(*call, "--split", split)
        assert result.code == 0, result.err


def test_scores_of_a_saved_model_refuse_a_bad_user_column(run, private, tmp_path):
    call = (
        "evaluate",
        private / "model",
        "--known",
        private / "ratings.csv",
        "--target",
        private / "ratings.csv",
    )
    call += ("--score-epsilon", 1, "--relevant", 4, "--score-ledger", tmp_path / "scores.json")
    columns = ("--user", "rating", "--item", "movieId", "--rating", "none", "--metrics", "recall@5")
    refused = run(*call, *columns)
    assert refused.code == 2
    assert "fewer than 100 distinct values" in refused.err
    assert "--trust-user-column" in refused.err
    assert not (tmp_path / "scores.json").exists()
    assert run(*call, *columns, "--trust-user-column").code == 0


def test_scores_of_a_saved_model_merge_spellings_of_an_id_if_asked_to(
    run, private, tmp_path, monkeypatch
):
    from discreet.evaluation import private_scores

    rows = [f"User {u},{i},{r}" for u in range(120) for i, r in (("1", 5), ("2", 3))]
    file = tmp_path / "known.csv"
    file.write_text("\n".join(["user,item,rating", *rows, *map(str.upper, rows)]) + "\n")
    counted = []
    columns = private_scores.ScoreLayout.columns
    monkeypatch.setattr(
        private_scores.ScoreLayout, "columns", lambda *a: counted.append(len(a[2])) or columns(*a)
    )
    call = (
        "evaluate",
        private / "model",
        "--known",
        file,
        "--target",
        file,
        "--score-epsilon",
        1,
        "--relevant",
        4,
    )
    assert run(*call).code == 0
    assert run(*call, "--normalize-ids").code == 0
    assert counted == [240, 120]


def test_released_scores_print_no_exact_number_of_users(run, shelf):
    known = ("--known", shelf / "known.csv", "--target", shelf / "target.csv", "--relevant", 4)
    result = run("evaluate", shelf / "model", *known, "--score-epsilon", 2, "--trust-user-column")
    assert result.code == 0, result.err
    assert "8 users" not in result.out + result.err
    assert "ratings to predict" not in result.out + result.err


def test_spellings_of_a_user_are_one_in_both_files(run, private, tmp_path):
    """A column of text with "7" and "7.0" next to one of whole numbers."""
    rows = [f"{user},12,5" for user in range(120)]
    (tmp_path / "known.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    users = [*map(str, range(120)), "7.0"]
    table = pa.table({"user": users, "item": [13] * 121, "rating": [5.0] * 121})
    pq.write_table(table, tmp_path / "target.parquet")
    files = ("--known", tmp_path / "known.csv", "--target", tmp_path / "target.parquet")
    result = run("evaluate", private / "model", *files, "--relevant", 4, "--score-epsilon", 1)
    assert result.code == 0, result.err
    assert Ratings.read(tmp_path / "target.parquet").n_users == 120
