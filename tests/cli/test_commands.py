"""What the commands answer when all is well."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer

import discreet
from discreet.cli.app import app
from discreet.cli.recommend import show_score
from discreet.data.cinema import films

COMMANDS = [
    "demo",
    "train",
    "evaluate",
    "recommend",
    "similar",
    "budget",
    "timeline",
    "audit",
    "tune",
    "datasets",
    "doctor",
    "bench",
    "reproduce",
    "report",
    "export",
    "serve",
]


def test_help_lists_every_command_and_nothing_else(run):
    result = run("--help")
    assert result.code == 0
    assert all(name in result.out for name in COMMANDS)
    registered = [c.name for c in app.registered_commands]
    assert set(COMMANDS) <= set(registered)
    assert registered[: len(COMMANDS)] == COMMANDS, "in the order of the modules, the demo first"
    assert run().out == result.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(run, name):
    result = run(name, "--help")
    assert result.code == 0
    assert f"discreet {name}" in re.split("Examples?:", result.out)[1]
    for option in ("--json", "--verbose", "--debug", "--help"):
        assert option in result.out


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_given_twice_is_added_up_or_refused(run, name):
    """Never silently the last one, whatever the command and the option."""
    run(name, "--help")  # registers the command
    options = [
        option
        for option in typer.main.get_command(app).commands[name].params
        if option.param_type_name == "option"
    ]
    assert options
    for option in options:
        for given in (*option.opts, *option.secondary_opts):
            once = [given] if option.is_flag else [given, "1"]
            result = run(name, *once, *once)
            refused = f"{option.opts[0]} was given 2 times" in result.err
            assert refused is not option.multiple, (given, result.err)
            assert option.multiple or result.code == 2


def test_values_that_commas_separate_are_named(run):
    assert (
        "Give it once, with commas between values"
        in run("evaluate", "x.csv", "--metrics", "rmse", "--metrics", "mae").err
    )
    assert "--header was given 2 times" in run("train", "x.csv", "--no-header", "--header").err


def test_version(run):
    assert run("--version").out == f"discreet {discreet.__version__}\n"


# ------------------------------------------------------------ train


def test_train_saves_what_python_would(run, shelf, tmp_path):
    result = run(
        "train",
        "--not-private",
        shelf / "ratings.csv",
        "--items",
        shelf / "films.csv",
        "--out",
        tmp_path / "m",
        "--factors",
        4,
        "--iterations",
        3,
        "--set",
        "regularization=1",
    )
    assert result.code == 0, result.err
    assert result.err == ""
    for expected in (
        "60 users, 40 items, 720 ratings",
        "Saved to",
        "NOT private",
        "recommend",
        "similar",
    ):
        assert expected in result.out
    cli, python = discreet.load(tmp_path / "m"), discreet.load(shelf / "model")
    assert np.array_equal(cli.item_factors_, python.item_factors_)
    assert cli.get_params() == python.get_params()
    assert list(cli.titles_) == list(python.titles_)


def test_train_replaces_a_model(run, shelf, tmp_path):
    for model in ("als", "Popularity", "BIAS"):
        assert (
            run(
                "train",
                "--not-private",
                shelf / "ratings.csv",
                "--out",
                tmp_path / "m",
                "--model",
                model,
            ).code
            == 0
        )
    assert type(discreet.load(tmp_path / "m")) is discreet.Bias
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_train_reports_merged_ratings_and_filters_as_json(run, tmp_path):
    rows = [f"{u},{i},{1 + (u + i) % 5}" for u in range(20) for i in range(8)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,stars", *rows, "0,0,5", "0,1,5"]))
    result = run(
        "train",
        "--not-private",
        tmp_path / "r.csv",
        "--out",
        tmp_path / "m",
        "--model",
        "bias",
        "--min-rating",
        2,
        "--json",
    )
    assert result.err == ""
    found = json.loads(result.out)
    assert (found["users"], found["items"], found["ratings"], found["merged"]) == (20, 8, 160, 2)
    assert found["kept"]["ratings"] < 160
    assert found["model"]["class"] == "Bias"
    assert found["model"]["private"] is False
    assert found["out"] == str(tmp_path / "m")


def test_train_on_a_data_set(run, tmp_path):
    result = run(
        "train",
        "--not-private",
        "cinema",
        "--scale",
        0.01,
        "--binarize",
        4,
        "--goal",
        "ranking",
        "--factors",
        3,
        "--iterations",
        2,
        "--threads",
        1,
        "--out",
        tmp_path / "m",
        "--json",
    )
    assert result.code == 0, result.err
    assert json.loads(result.out)["model"]["parameters"]["goal"] == "ranking"
    assert discreet.load(tmp_path / "m").titles_ is not None


def test_columns_by_name_and_position(run, tmp_path):
    (tmp_path / "r.tsv").write_text(
        "".join(f"{i}\t{u}\t{1 + (u + i) % 5}\n" for u in range(9) for i in range(5))
    )
    result = run(
        "train",
        "--not-private",
        tmp_path / "r.tsv",
        "--user",
        1,
        "--item",
        0,
        "--no-header",
        "--model",
        "popularity",
        "--out",
        tmp_path / "m",
        "--json",
    )
    assert json.loads(result.out)["users"] == 9


# ------------------------------------------------------------ recommend and similar


def test_recommend_by_id_by_title_and_by_file_is_what_python_says(run, shelf, tmp_path):
    model = discreet.load(shelf / "model")
    ids, scores = model.recommend({12: 5.0, 13: 1.5, 14: 5.0}, 7)
    (tmp_path / "h.csv").write_text("movieId,rating\n12,5\n13,1.5\n14,\n")
    (tmp_path / "h.txt").write_text("Film 2, the 0 one\n13=1.5\n14\n")
    ways = [
        ["--history", "12=5,13=1.5,14"],
        ["--history", "12", "--history", "13=1.5", "--history", "14=5"],
        ["--history", "Film 2, the 0 one (1952),film 3, the 1 one=1.5,FILM 4, THE 0 ONE"],
        ["--history-file", tmp_path / "h.csv"],
        ["--history-file", tmp_path / "h.txt"],
    ]
    for way in ways:
        result = run("recommend", shelf / "model", *way, "-n", 7, "--json")
        assert result.code == 0, result.err
        rows = json.loads(result.out)["recommendations"]
        assert [row["item_id"] for row in rows] == ids.tolist()
        assert [row["score"] for row in rows] == scores.tolist()
        assert rows[0]["title"] == str(model.titles_[model.item_ids_.tolist().index(ids[0])])
    shown = run("recommend", shelf / "model", *ways[0], "-n", 7).out
    assert all(str(item) in shown for item in ids)


def test_recommend_for_all_users_of_a_folder(run, shelf, tmp_path):
    folder = tmp_path / "ratings"
    folder.mkdir()
    (folder / "known.csv").write_bytes((shelf / "known.csv").read_bytes())
    given = ("recommend", shelf / "model", "--users", folder, "-n", 3)
    assert "a new folder for the lists" in run(*given).err
    found = json.loads(run(*given, "-o", tmp_path / "lists", "--json").out)
    assert found["users"] == 8
    lists = pq.read_table(tmp_path / "lists" / "known.parquet")
    assert len(lists) == 24
    one = ("recommend", shelf / "model", "--users", shelf / "known.csv", "-n", 3)
    run(*one, "-o", tmp_path / "lists.parquet")
    assert pq.read_table(tmp_path / "lists.parquet").equals(lists)
    assert lists.column_names == ["user_id", "rank", "item_id", "title", "score"]
    rows = json.loads(run(*one, "--json").out)["recommendations"]
    assert list(rows[0]) == lists.column_names
    assert run(*given, "-o", "more", "--diversity", 0.5).code == 2


@pytest.mark.parametrize(
    ("score", "shown"),
    [(3.91234, "3.912"), (0.12345, "0.123"), (0.0012345, "0.00123"), (0.0, "0.000")],
)
def test_small_scores_have_three_significant_digits(score, shown):
    assert show_score(score) == shown


def test_recommend_leaves_out_and_lets_in(run, shelf):
    def items(*options: object) -> list[int]:
        found = json.loads(
            run(
                "recommend", shelf / "model", "--history", "12,14", "-n", 40, *options, "--json"
            ).out
        )
        return [row["item_id"] for row in found["recommendations"]]

    assert set(items()) == set(range(10, 50)) - {12, 14}
    assert set(items("--include-seen")) == set(range(10, 50))
    assert set(items("--exclude", "20", "--exclude", "Film 11, the 1 one")) == set(
        range(10, 50)
    ) - {12, 14, 20, 21}
    assert items("--history", "999", "--skip-unknown") == items()


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "parquet"])
def test_recommend_to_many_writes_a_file(run, shelf, tmp_path, kind):
    file = tmp_path / f"lists.{kind}"
    result = run("recommend", shelf / "model", "--users", shelf / "known.csv", "-n", 3, "-o", file)
    assert result.code == 0, result.err
    if kind == "parquet":
        rows = pq.read_table(file).to_pylist()
    elif kind == "json":
        rows = json.loads(file.read_text())
    else:
        rows = list(csv.DictReader(file.open(newline=""), delimiter="\t" if kind == "tsv" else ","))
    known = discreet.Ratings.read(shelf / "known.csv")
    ids, _ = discreet.load(shelf / "model").recommend_many(known, 3)
    assert [int(row["item_id"]) for row in rows] == ids.ravel().tolist()
    assert [int(row["user_id"]) for row in rows] == np.repeat(known.user_ids, 3).tolist()
    assert [int(row["rank"]) for row in rows] == [1, 2, 3] * 8
    assert list(tmp_path.iterdir()) == [file]


def test_recommend_to_many_on_stdout(run, shelf):
    plain = run("recommend", shelf / "model", "--users", shelf / "known.csv", "-n", 2)
    rows = list(csv.DictReader(io.StringIO(plain.out)))
    found = json.loads(
        run("recommend", shelf / "model", "--users", shelf / "known.csv", "-n", 2, "--json").out
    )
    assert [row["item_id"] for row in rows] == [
        str(row["item_id"]) for row in found["recommendations"]
    ]
    assert found["users"] == 8


def test_ids_of_another_type_are_the_same_ids(run, tmp_path):
    """A file in which one id is no number gives text ids; the model's 12 and the file's "12"
    are one item.
    """
    rows = "".join(f"u{u},i{i},{1 + (u + i) % 5}\n" for u in range(9) for i in range(5))
    (tmp_path / "r.csv").write_text("user,item,rating\n" + rows.replace("i", ""))
    assert (
        run(
            "train", "--not-private", tmp_path / "r.csv", "--model", "bias", "--out", tmp_path / "m"
        ).code
        == 0
    )
    (tmp_path / "u.csv").write_text("user,item,rating\nu1,2,4\nu1,x9,4\n")
    result = run(
        "recommend", tmp_path / "m", "--users", tmp_path / "u.csv", "--skip-unknown", "--json"
    )
    assert result.code == 0, result.err
    assert json.loads(result.out)["ignored_ratings"] == 1
    assert "1 ratings of unknown items" in result.err


def test_similar(run, shelf):
    ids, scores = discreet.load(shelf / "model").similar_items(17, 5)
    found = json.loads(run("similar", shelf / "model", "17", "-n", 5, "--json").out)
    assert [row["item_id"] for row in found["similar"]] == ids.tolist()
    assert [row["score"] for row in found["similar"]] == scores.tolist()
    assert found["item_id"] == 17
    assert run("similar", shelf / "model", "film 7, the 1 one", "-n", 5).out.count("\n") > 5


# ------------------------------------------------------------ the others


def test_datasets(run, tmp_path, monkeypatch):
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path))
    found = json.loads(run("datasets", "--json").out)
    by_name = {entry["name"]: entry for entry in found["datasets"]}
    assert by_name["cinema"]["present"] is True
    assert by_name["ml-1m"]["present"] is False
    assert by_name["ml-1m"]["place"].startswith(str(tmp_path))
    shown = run("datasets").out
    for expected in (
        "cinema",
        "not for commercial use",
        by_name["ml-1m"]["url"],
        by_name["ml-1m"]["place"],
    ):
        assert expected in shown


def test_doctor_is_content(run):
    result = run("doctor", "--json")
    found = json.loads(result.out)
    assert result.code == 0
    assert found["ok"] is True
    assert {check["kernel"] for check in found["kernels"]["checks"]} >= {
        "solve_rows",
        "solve_spd",
        "top_k",
    }
    assert "Everything is in order." in run("doctor").out


def test_doctor_finds_a_wrong_kernel(run, monkeypatch):
    monkeypatch.setattr("discreet.kernels.solve_spd", lambda A, b: (0 * b, np.ones(len(b), bool)))
    result = run("doctor")
    assert result.code == 1
    assert "PROBLEM: the kernel solve_spd" in result.out
    assert json.loads(run("doctor", "--json").out)["ok"] is False


def test_doctor_survives_a_broken_part(run, monkeypatch):
    monkeypatch.setenv("DISCREET_THREADS", "many")
    result = run("doctor", "--json")
    assert result.code == 1
    assert any("DISCREET_THREADS" in problem for problem in json.loads(result.out)["problems"])


def test_bench_is_wired(run, monkeypatch, tmp_path):
    asked = {}

    def measure(
        quick: bool, only: set[str] | None, progress: object, scale: int
    ) -> dict[str, object]:
        asked.update(quick=quick, only=only, scale=scale)
        return {"als": {"seconds": 1.5}}

    monkeypatch.setattr("benchmarks.bench.run", measure)
    monkeypatch.setattr("benchmarks.bench.render", lambda results, page: {"als": "## Speed\n"})
    assert json.loads(run("bench", "--quick", "--only", "als,topk", "--json").out)["als"] == {
        "seconds": 1.5
    }
    assert asked == {"quick": True, "only": {"als", "topk"}, "scale": 10**8}
    assert run("bench", "--out", tmp_path / "speed.md").out == "## Speed\n"
    assert (
        "<!-- bench als -->\n## Speed\n<!-- /bench als -->" in (tmp_path / "speed.md").read_text()
    )
    assert asked == {"quick": False, "only": None, "scale": 10**8}


def test_verbose_shows_log_lines_and_quiet_does_not(run, tmp_path, monkeypatch):
    # this one is smaller than the published one
    monkeypatch.setattr("discreet.data.datasets.FIXED", set())
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    rows = [f"{u}\t{i}\t{1 + (u + i) % 5}\t88{u}{i}\n" for u in range(1, 9) for i in range(1, 6)]
    (folder / "u.data").write_text("".join(rows))
    (folder / "u.item").write_text(
        "".join(f"{i}|Film {i} (1990)|01-Jan-1990||\n" for i in range(1, 6))
    )
    args = [
        "train",
        "--not-private",
        "ml-100k",
        "--path",
        folder,
        "--model",
        "bias",
        "--out",
        tmp_path / "m",
    ]
    quiet, verbose = run(*args), run(*args, "-v")
    assert (quiet.code, verbose.code) == (0, 0), quiet.err
    assert quiet.err == ""
    assert "discreet: INFO: ml-100k: license" in verbose.err


def test_demo_shows_everything_and_its_next_commands_work(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--quick", "--out", "my demo")
    assert result.code == 0, result.err
    assert result.err == ""
    for expected in (
        "DPMF, private, ε = 4",
        "ALS, not",
        "Bias",
        "Popularity",
        "recall@20",
        "10 ",
        "Sci-Fi",
        "ε = 4, δ = 1e-06 (moderate): joint differential privacy for adding or removing all data of"
        " one user",
        "Try next:",
    ):
        assert expected in result.out
    assert (tmp_path / "my demo" / "quality.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in (tmp_path / "my demo").iterdir()) == [
        "model",
        "page.html",
        "quality.png",
    ]
    again = json.loads(run("demo", "--quick", "--out", "my demo", "--json").out)
    scores = {m["name"]: m["scores"] for m in again["quality"]["models"]}
    recall = {name: found["recall@20"]["mean"] for name, found in scores.items()}
    assert recall["DPMF, private, ε = 4"] > 1.3 * recall["Popularity, not private"]
    assert again["model"]["private"] is True
    assert list(again["curve"]) == ["0.5", "1.0", "2.0", "4.0", "8.0"]
    assert len(again["recommendations"]) == 10
    assert (
        sum("Sci-Fi" in r["title"] or "Adventure" in r["title"] for r in again["recommendations"])
        >= 3
    )
    assert len(again["next"]) == 3
    for line in again["next"]:
        assert line in result.out
        words = shlex.split(line)
        words = words[words.index("-m") + 2 :] if words[0] == sys.executable else words[1:]
        done = run(*words)
        assert done.code == 0, done.err


def test_help_tells_the_defaults_of_als_and_films_that_exist(run):
    told = " ".join(run("train", "--help").out.replace("│", " ").split())
    defaults = discreet.ALS().get_params()
    assert f"Default: {defaults['factors']} for als" in told
    steps = discreet.DPMF(epsilon=1.0, goal="rating").resolve(9).iterations
    assert f"Default: {defaults['iterations']} for als, {steps} for dpmf with --goal rating" in told
    titles = {film.title for film in films()}
    for name, film in (("recommend", "Signal from Quillon"), ("similar", "The Binary Colony")):
        assert film in titles
        assert film in " ".join(run(name, "--help").out.split())


def test_the_example_for_newcomers_runs(tmp_path, capsys):
    import runpy
    from pathlib import Path

    script = Path(__file__).parents[2] / "examples" / "private_recommender.py"
    runpy.run_path(str(script))["main"](tmp_path / "model", scale=0.1)
    told = capsys.readouterr().out
    assert "joint differential privacy for each user with ε = 2" in told
    assert "README.md, factors.safetensors, ledger.json, model.json" in told
    assert "<title>DPMF: private, ε = 2" in (tmp_path / "model.html").read_text(encoding="utf-8")
