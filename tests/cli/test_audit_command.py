"""``discreet audit``: a table, a plot, JSON and an exit code; people's own ratings only with
--spend.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import discreet
from discreet.auditing import Audit
from discreet.cli import model_options


class ScalesByN(discreet.DPALS):
    """Divides what it learned by the exact number of users."""

    def fit(self, ratings, *, progress=None, **given):
        super().fit(ratings, progress=progress, **given)
        self.item_factors_ = self.item_factors_ * np.float32(1000 / ratings.n_users)
        return self


QUICK = ("--search", 3, "--fits", 50, "--canaries", 200)


def test_an_audit_is_a_table_a_plot_and_a_file(run, tmp_path):
    result = run(
        "audit", "--epsilon", 1, *QUICK, "--out", tmp_path / "a.json", "--plot", tmp_path / "a.png"
    )
    assert result.code == 0, result.err
    for expected in (
        "transcript",
        "noise",
        "one run",
        "not refuted",
        "cannot detect",
        "An audit is no proof",
    ):
        assert expected in result.out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    found = Audit.load(tmp_path / "a.json")
    assert not found.refuted
    assert [level.name for level in found.levels] == [
        "transcript",
        "noise",
        "one run",
        "scores",
        "tuning",
    ]


def test_json_is_the_result_and_nothing_else(run):
    result = run(
        "audit",
        "--model",
        "dpals",
        "--epsilon",
        2,
        "--levels",
        "transcript",
        "--search",
        2,
        "--json",
    )
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["command"] == "audit"
    assert found["refuted"] is False
    (level,) = found["levels"]
    assert 0.9 < level["found"] / level["claimed"] <= 1
    assert {row["name"] for row in level["details"]["releases"]} == {
        "counts",
        "recounts",
        "gram",
        "sum",
    }


def test_a_refuted_claim_ends_with_code_1(run, monkeypatch, tmp_path):
    monkeypatch.setattr(model_options, "model_class", lambda name: ScalesByN)
    wanted = ("--levels", "transcript", "--search", 1, "--plot", tmp_path / "a.svg")
    result = run("audit", "--model", "dpals", "--epsilon", 1, *wanted)
    assert result.code == 1, result.err
    assert "REFUTED" in result.out
    assert "a canary changes what is learned" in result.out
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_saved_model_lends_its_parameters(run, private):
    claimed = discreet.load(private / "model").privacy_.epsilon
    result = run(
        "audit", "--like", private / "model", "--levels", "one-run", "--canaries", 200, "--json"
    )
    assert result.code == 0, result.err
    assert json.loads(result.out)["claim"]["epsilon"] == pytest.approx(claimed)
    result = run("audit", "--like", private / "model", "--epsilon", 1)
    assert result.code == 2
    assert "--like takes all parameters" in result.err


def test_people_are_charged_only_where_that_is_said(run, private, tmp_path):
    people = private / "ratings.csv"
    asked = (
        "audit",
        people,
        "--epsilon",
        1,
        "--rating-range",
        "1,5",
        "--levels",
        "one-run",
        "--canaries",
        300,
    )
    result = run(*asked)
    assert result.code == 2
    assert "--out" in result.err
    result = run(*asked, "--out", tmp_path / "a.json")
    assert result.code == 2
    assert "is a release" in result.err
    assert "--spend" in result.err
    assert not (tmp_path / "a.json").exists()
    result = run(*asked, "--out", tmp_path / "a.json", "--spend")
    assert result.code == 0, result.err
    assert "Spent on the users in the data" in result.out
    spent = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["spent"]
    assert spent["epsilon"] == pytest.approx(1.0)
    (tmp_path / "ledger.json").write_text(json.dumps(spent["ledger"]), encoding="utf-8")
    priced = run("budget", tmp_path / "ledger.json", "--json")
    assert json.loads(priced.out)["epsilon"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--epsilon", 1, "--levels", "everything"), "Unknown level 'everything'"),
        (
            (
                "--model",
                "als",
            ),
            "not private",
        ),
        (
            (
                "--model",
                "dpals",
            ),
            "pass --epsilon",
        ),
        (("--epsilon", 1, "--plot", "a.txt"), "'a.txt' ends in none of them"),
        (("--epsilon", 1, "--out", "no/such/folder/a.json"), "cannot be written"),
        (("--epsilon", 1, "--spend"), "--spend needs DATA"),
    ],
)
def test_bad_input_is_one_sentence(run, args, words):
    result = run("audit", *args)
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1
