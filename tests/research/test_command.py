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
    again = json.loads(
        run("reproduce", "dpals-figure4", "--quick", "--out", tmp_path, "--json").out
    )
    assert again["entries"][0]["ran"] == 0
    assert again["entries"][0]["records"]


def test_show_tells_about_an_entry_without_running_it(run, tmp_path):
    words = run("reproduce", "show", "dpals-table5", "--out", tmp_path)
    assert words.code == 0, words.err
    for part in (
        "of Table 4",
        "twin-ml20m",
        "0, 1, 2",
        "434, and 13 with --quick",
        "about 30 min",
        "0 of 434",
    ):
        assert part in words.out
    (found,) = json.loads(
        run("reproduce", "show", "dpals-table5", "--out", tmp_path, "--json").out
    )["entries"]
    assert (found["cells"], found["seeds"], found["minutes"], found["finished"]) == (
        434,
        list(range(20)),
        30,
        0,
    )
    assert list(tmp_path.iterdir()) == []


def test_a_figure_in_several_entries_is_known_by_its_own_name(run, tmp_path):
    parts = json.loads(run("reproduce", "show", "dpals-figure3", "--out", tmp_path, "--json").out)[
        "entries"
    ]
    assert [part["name"] for part in parts] == ["baselines-figure3a", "dpals-table5"]
    assert "dpals-figure3 " in run("reproduce", "list").out


def test_a_quick_run_says_so_and_names_its_data(run, tmp_path):
    out = run("reproduce", "dpals-figure2", "--quick", "--out", tmp_path).out
    assert "Quick version, too small to compare with the paper" in out
    assert "Data: twin-ml10m (0.03 of its users)." in out
    # small enough to be the whole
    out = run("reproduce", "dpals-table4", "--quick", "--out", tmp_path).out
    assert "Quick version" not in out
    assert "no data set" in out


def test_cells_of_other_code_are_told_and_run_again_when_asked(run, tmp_path):
    words = ["reproduce", "dpals-table4", "--quick", "--out", tmp_path]
    assert run(*words).err == ""
    cells = sorted((tmp_path / "quick" / "dpals-table4" / "cells").glob("*.json"))
    for cell, code in zip(cells, ["0123456789", "0123456789", None], strict=False):
        document = json.loads(cell.read_text())
        document["conditions"] = document["conditions"] | {"code": code}
        if code is None:
            del document["conditions"]["code"]
        cell.write_text(json.dumps(document))
    told = run(*words)
    assert (
        told.err
        == "discreet: dpals-table4: 2 cells were computed by other code and 1 by unknown code:"
        " --fresh runs them again\n"
    )
    readme = (tmp_path / "quick" / "dpals-table4" / "README.md").read_text()
    assert "`0123456789` (2 cells), not recorded (1 cells)" in readme
    assert "No seeds are varied." in readme
    again = run(*words, "--fresh", "--json")
    assert json.loads(again.out)["entries"][0]["ran"] == 3
    assert again.err == ""
    assert run(*words).err == ""


def test_of_several_entries_the_others_are_run_all_the_same(run, tmp_path, monkeypatch):
    monkeypatch.delenv("DISCREET_DATA", raising=False)
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path / "cache"))
    from research import entry as entries

    load = entries.load
    text = 'title = "t"\nrun = "research.real_data:run"\n[common]\ndata = "ml-1m"'
    monkeypatch.setattr(
        entries, "load", lambda name: entries.parse(name, text) if name == "gone" else load(name)
    )
    result = run("reproduce", "gone", "dpals-table4", "--quick", "--out", tmp_path)
    assert result.code == 2
    assert (
        "ml-1m is not on this machine, and nothing stands for it: give it with --data ml-1m=PATH"
        in result.err
    )
    assert "1 of 2 entries could not be run: gone" in result.err
    assert "ML-10M-top400" in result.out


def test_bad_requests_are_answered_in_a_sentence(run, tmp_path):
    for words in (
        ["dpals-fig4"],
        ["dpals-figure4", "--jobs", "0"],
        ["list", "--data", "x"],
        ["docs", "--to", "no.md"],
        ["show"],
        ["list", "dpals-figure4"],
        ["show", "nothing"],
    ):
        result = run("reproduce", *words, "--out", tmp_path)
        assert result.code == 2
        assert result.err.count("\n") == 1


def test_changes_between_two_pages_are_told(run, tmp_path):
    page = (
        "<!-- entry one -->\n| model | epsilon = 1 |\n|---|---|\n| a | {} ± 0.0100 |\n<!-- /entry"
        " -->\n"
    )
    for name, value in (("old.md", 0.5), ("new.md", 0.6)):
        (tmp_path / name).write_text(page.format(value), encoding="utf-8")
    result = run("reproduce", "changes", tmp_path / "old.md", "--to", tmp_path / "new.md")
    assert result.code == 0, result.err
    assert "| one | a | epsilon = 1 | 0.5 ± 0.01 | 0.6 ± 0.01 |" in result.out
    assert "1 cell moved" in result.out
    same = run("reproduce", "changes", tmp_path / "old.md", "--to", tmp_path / "old.md", "--json")
    assert json.loads(same.out)["changed"] == []
    for words in (("changes",), ("changes", tmp_path / "none.md")):
        wrong = run("reproduce", *words)
        assert wrong.code == 2
        assert "Traceback" not in wrong.err
