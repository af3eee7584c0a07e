"""The same history, ratings and catalog, however written; and what is said where nothing can be
predicted.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import discreet
from discreet.errors import DataError

FILES = {
    "comma.csv": "movieId,rating\n12,5\n13,1.5\n14,\n",
    "semicolon.csv": "movieId;rating\n12;5\n13;1.5\n14;null\n",
    "colons.dat": "12::5\n13::1.5\n14::NA\n",
    "titles.csv": (
        'title,rating\nFilm 2, the 0 one,5\nFilm 3, the 1 one (1953),1.5\n"Film 4, the 0 one",\n'
    ),
    "bare.txt": "Film 2, the 0 one,5\nFilm 3, the 1 one,1.5\nFilm 4, the 0 one (1954)\n",
    "pipes.txt": "rating|movieId\n5|12\n1.5|13\n|14\n",
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", FILES)
def test_a_history_file_may_be_written_in_many_ways(run, shelf, tmp_path, name, packed):
    file = tmp_path / (name + ".gz" if packed else name)
    file.write_bytes(gzip.compress(FILES[name].encode()) if packed else FILES[name].encode())
    assert rated(run("recommend", shelf / "model", "--history-file", file, "--json")) == {
        12: 5.0,
        13: 1.5,
        14: 5.0,
    }


def test_a_history_file_may_be_a_table_with_gaps(run, shelf, tmp_path):
    table = pa.table({"film": pa.array([12, 13, 14], pa.float64()), "my rating": [5.0, 1.5, None]})
    pq.write_table(table, tmp_path / "h.parquet")
    args = ["recommend", shelf / "model", "--history-file", tmp_path / "h.parquet", "--json"]
    assert rated(run(*args, "--rating", "my rating")) == {12: 5.0, 13: 1.5, 14: 5.0}
    assert "has no column 'stars'" in run(*args, "--rating", "stars").err


def rated(result):
    assert result.code == 0, result.err
    return {row["item"]: row["rating"] for row in json.loads(result.out)["history"]}


def test_a_huge_n_gives_all_items(run, shelf):
    for more in (["--history", "12"], ["--users", shelf / "known.csv"]):
        result = run("recommend", shelf / "model", *more, "-n", 10**15, "--json")
        assert result.code == 0, result.err
        assert (
            28
            <= sum(r.get("user_id", 500) == 500 for r in json.loads(result.out)["recommendations"])
            < 40
        )


def test_training_says_when_all_ratings_are_the_same(run, tmp_path):
    rows = [f"{u},{u * i % 7}\n" for u in range(20) for i in (1, 2)]
    (tmp_path / "clicks.csv").write_text("user,item\n" + "".join(rows))
    for model in ("als", "bias"):
        result = run(
            "train",
            "--not-private",
            tmp_path / "clicks.csv",
            "--model",
            model,
            "--out",
            tmp_path / model,
        )
        assert result.code == 0, result.err
        assert "every rating is 1, so there is nothing to predict. Use --goal ranking" in result.err
    result = run("evaluate", tmp_path / "clicks.csv", "--goal", "ranking")
    assert result.code == 0, result.err


def test_relevance_is_named_by_a_rating_that_exists(run):
    assert "rated 4 or more" in run("evaluate", "cinema", "--scale", 0.01, "--model", "bias").out


PIPES = ["cat {} | {} -", "gzip -c {} | {} /dev/stdin", "{1} - < {0}", "bash -c '{1} <(cat {0})'"]


@pytest.mark.parametrize("how", PIPES)
def test_ratings_come_through_a_pipe_as_from_a_file(shelf, tmp_path, how):
    file, out = shelf / "ratings.csv", tmp_path / "m"
    train = f'"{sys.executable}" -m discreet train --not-private --model bias --json --out "{out}"'
    done = subprocess.run(
        how.format(f'"{file}"', train), shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ratings"] == len(file.read_text().splitlines()) - 1
    assert (
        discreet.load(out).item_biases_
        == discreet.Bias().fit(discreet.Ratings.read(file)).item_biases_
    ).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("printf 'a,b\\n1,2\\n' |", "standard input has no column recognizable as the user"),
        ("printf '' |", "standard input is empty"),
        ("exec <&-;", "nothing is piped into it"),
    ],
)
def test_a_bad_pipe_is_called_by_its_name(tmp_path, given, sentence):
    command = (
        f"{given} '{sys.executable}' -m discreet train - --not-private --out '{tmp_path / 'm'}'"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_auto_is_an_accountant_of_huberals_only(run, shelf, tmp_path):
    words = [
        "train",
        shelf / "ratings.csv",
        "--epsilon",
        50,
        "--rating-range",
        "1,5",
        "--accountant",
        "auto",
    ]
    words.append("--trust-user-column")
    result = run(*words, "--model", "huberals", "--out", tmp_path / "m", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["model"]["parameters"]["accountant"] == "auto"
    result = run(*words, "--out", tmp_path / "n")
    assert result.code == 2
    assert "--accountant auto: choose one of 'gdp'" in result.err
    assert (
        run(
            "budget", "--model", "huberals", "--epsilon", 5, "--items", 30, "--accountant", "auto"
        ).code
        == 0
    )
    assert "auto (the least noise) for huberals" in " ".join(
        run("train", "--help").out.replace("│", " ").split()
    )


def test_one_is_not_many(run, tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\n1,1,2\n1,2,3\n")
    said = run(
        "train",
        "--not-private",
        tmp_path / "r.csv",
        "--model",
        "popularity",
        "--out",
        tmp_path / "m",
    ).out
    assert "1 user, 2 items, 2 ratings" in said


def test_unknown_kernels_are_refused(run, monkeypatch):
    monkeypatch.setenv("DISCREET_KERNELS", "foo")
    result = run("datasets")
    assert (result.code, result.out) == (2, "")
    assert "DISCREET_KERNELS is 'foo'" in result.err


@pytest.mark.parametrize(
    "how", ["recommend {} --history 12 -n 30", "recommend {} --history 12 --json", "--version"]
)
def test_a_closed_stdout_is_no_disaster(shelf, how):
    command = f"'{sys.executable}' -m discreet " + how.format(f"'{shelf / 'model'}'")
    for ending in ("| true", ">&-"):
        done = subprocess.run(
            ["sh", "-c", f"{command} {ending}"],
            capture_output=True,
            text=True,
            env={**os.environ, "DISCREET_DEBUG": ""},
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        assert "unexpected" not in done.stderr


def test_ratings_are_no_split():
    ratings = discreet.Ratings.from_arrays([1, 2], [1, 2], [3, 4])
    with pytest.raises(DataError, match=r"needs a split, not Ratings.*random_ratings"):
        discreet.evaluate(discreet.Bias().fit(ratings), ratings)


# ------------------------------------------------------------ catalogs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("code,what\n1,One\n2,Two\n", "looks like column names"),
        ("Kennzeichen,what\ntt1,One\ntt2,Two\n", "looks like column names"),
        (
            "item_id,title,year\n1,Good, the Bad,1966\n",
            "item 1 has 4 fields where there should be 3",
        ),
    ],
)
def test_catalogs_that_would_be_misread_are_refused(tmp_path, text, said):
    (tmp_path / "films.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        discreet.Ratings.from_arrays([1], [1]).with_items(tmp_path / "films.csv")


@pytest.mark.parametrize(
    "text",
    [
        "item_id,title\n1,One\n2,The Good, the Bad (1966)\n",
        "1,One\n2,The Good, the Bad (1966)\n",
        'film,title\n1,One\n2,"The Good, the Bad (1966)"\n',
    ],
)
def test_titles_may_hold_commas(tmp_path, text):
    (tmp_path / "films.csv").write_text(text)
    ratings = discreet.Ratings.from_arrays([1], [1]).with_items(tmp_path / "films.csv")
    assert ratings.item_ids.tolist() == [1, 2]
    assert ratings.titles.tolist() == ["One", "The Good, the Bad (1966)"]
