"""``discreet train --engine spark``, in a process of its own: a running Java keeps what it was
started with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

SECRET = "somebody-called-4711"
WAIT = 300  # seconds that it does not take, also on a busy machine

SCRIPT = """
import contextlib, io, json, sys
from discreet.cli import main
for call in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(call)
        except SystemExit as left:
            code = left.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def answers(private, tmp_path_factory):
    """What the command line answers to several calls, by name; Java starts once for all of them."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("there is no Java 17: make java installs it")
        pytest.skip("there is no Java 17: make java installs it")
    pytest.importorskip("pyspark")
    folder = tmp_path_factory.mktemp("spark")
    broken = folder / "broken.csv"
    broken.write_text(f"userId,movieId,rating\n1,10,{SECRET}\n")
    bare = folder / "bare.csv"
    bare.write_text("a,b\n1,2\n")
    films = [
        "--items",
        private / "films.csv",
        "--rating-range",
        "1,5",
        "--epsilon",
        8,
        "--random-state",
        3,
    ]
    spark = [*films, "--engine", "spark", "--master", "local[2]", "--blocks", 3, "--json"]
    known = ["--known", private / "ratings.csv", "--target", private / "ratings.csv"]
    ratings = private / "ratings.csv"
    calls = {
        "train": ["train", ratings, *spark, "--out", folder / "m"],
        "evaluate": ["evaluate", folder / "m", *known, "--metrics", "recall@5", "--json"],
        "recommend": ["recommend", folder / "m", "--history", "12=5,14=4", "--json"],
        "no file": ["train", folder / "none.parquet", *spark, "--out", folder / "n"],
        "no number": ["train", broken, *spark, "--trust-user-column", "--out", folder / "n"],
        "no columns": ["train", bare, *spark, "--out", folder / "n"],
        "two kinds": ["train", ratings, folder / "none.parquet", *spark, "--out", folder / "n"],
        "no order": [
            "train",
            ratings,
            *spark,
            "--timestamp",
            "none",
            "--duplicates",
            "last",
            "--out",
            folder / "n",
        ],
        "filter": ["train", ratings, *spark, "--min-rating", 3, "--out", folder / "n"],
        "not private": [
            "train",
            ratings,
            "--engine",
            "spark",
            "--not-private",
            "--out",
            folder / "n",
        ],
        "no master": [
            "train",
            ratings,
            *films,
            "--engine",
            "spark",
            "--master",
            "nowhere",
            "--out",
            folder / "n",
        ],
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([[str(word) for word in call] for call in calls.values()]),
        capture_output=True,
        text=True,
        timeout=WAIT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert not (folder / "n").exists()
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return dict(zip(calls, found, strict=True)), folder


def test_a_model_trained_on_spark_is_a_model_like_any_other(answers):
    said, folder = answers
    code, out, err = said["train"]
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["engine"], answer["blocks"]) == ("spark", 3)
    assert "users" not in answer
    assert "users are in 3 blocks on a Spark cluster" in (folder / "m" / "ledger.json").read_text()
    for name in ("evaluate", "recommend"):
        code, out, err = said[name]
        assert (code, err) == (0, "")
        assert json.loads(out)


def test_workers_without_their_python_get_one_sentence(answers, private):
    """Java's tracebacks do not precede it; what Java and Spark print when they start is theirs."""
    ratings = str(private / "ratings.csv")
    given = ["--engine", "spark", "--master", "local[1]", "--epsilon", "8"]
    given += ["--items", str(private / "films.csv"), "--rating-range", "1,5"]
    done = subprocess.run(
        [sys.executable, "-m", "discreet", "train", ratings, *given, "--out", "no-model"],
        capture_output=True,
        text=True,
        timeout=WAIT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": "/nope/python3"},
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("discreet: Spark's workers cannot start the Python /nope/python3. Set")
    assert "\tat " not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no file", "Spark cannot read"),
        ("no number", "a rating is missing, infinite or no number: correct it or drop the row"),
        ("no columns", "the Spark DataFrame"),
        ("two kinds", "the files have several formats (csv, parquet): pass files of one format"),
        ("no order", "needs to know which rating is newest"),
        ("filter", "--min-rating needs --engine memory, and this is --engine spark"),
        ("not private", "--engine spark is for private models: pass --epsilon"),
        ("no master", "Spark could not be started"),
    ],
)
def test_bad_input_gets_one_sentence(answers, name, words):
    code, out, err = answers[0][name]
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("discreet: ")
    assert err.count("\n") == 1
