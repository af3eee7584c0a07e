"""``discreet reproduce`` from the shell."""

from __future__ import annotations

import json


def test_the_list_names_every_entry(run):
    result = run("reproduce", "list", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)["entries"]
    assert {"dpals-figure4"} <= {entry["name"] for entry in found}
    assert "dpals-figure4" in run("reproduce", "list").out


def test_an_entry_is_run_and_shown(run, tmp_path):
    result = run("reproduce", "dpals-figure4", "--quick", "--out", tmp_path)
    assert result.code == 0, result.err
    assert "epsilon = 1" in result.out
    again = json.loads(run("reproduce", "dpals-figure4", "--quick", "--out", tmp_path, "--json").out)
    assert again["entries"][0]["ran"] == 0
    assert again["entries"][0]["records"]


def test_bad_requests_are_answered_in_a_sentence(run, tmp_path):
    for words in (["dpals-fig4"], ["dpals-figure4", "--jobs", "0"], ["list", "--data", "x"], ["docs", "--to", "no.md"]):
        result = run("reproduce", *words, "--out", tmp_path)
        assert result.code == 2
        assert result.err.count("\n") == 1
