"""Entries can be read, run, stopped and gone on with, and say what they found."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from discreet.errors import BudgetExceeded, ConfigError, DataError
from research import entry as entries
from research import figures, layout, pages, reproduce
from research.sources import Sources

SMALL = "dpals-figure4"
TEXT = """
title = "A table"
run = "nowhere:run"
references = ["paper"]
published = [{model = "a", epsilon = 1, paper = 0.5}]
[common]
seed = [0, 1]
size = 10
options = {fractions = [0.8, 0.2]}
[[cells]]
model = "a"
epsilon = [1, 2]
[[cells]]
model = "b"
quick = false
[quick]
seed = [0]
epsilon = [1]
size = 2
[[tables]]
rows = ["model"]
columns = "epsilon"
values = ["rmse"]
digits = 2
[[tables]]
rows = ["model", "epsilon"]
values = ["rmse", "true"]
digits = 2
[[plots]]
x = "epsilon"
y = "rmse"
line = ["model"]
"""


@pytest.fixture
def entry():
    return entries.parse("fake", TEXT)


def _records(entry, quick=False):
    return [
        s | {"rmse": 0.6 + 0.02 * s["seed"], "true": 3.0}
        for s in entry.settings(Sources(), quick=quick)
    ]


# ------------------------------------------------------------ the file


def test_lists_are_crossed_and_tables_are_passed_on(entry):
    cells = entry.settings(Sources())
    assert len(cells) == 2 * 2 + 2
    assert cells[0] == {
        "seed": 0,
        "size": 10,
        "options": {"fractions": [0.8, 0.2]},
        "model": "a",
        "epsilon": 1,
    }
    assert {"seed": 1, "size": 10, "options": {"fractions": [0.8, 0.2]}, "model": "b"} in cells
    assert len({entries.key(cell) for cell in cells}) == len(cells)


def test_quick_replaces_settings_and_leaves_blocks_out(entry):
    (cell,) = entry.settings(Sources(), quick=True)
    assert (cell["size"], cell["seed"], cell["epsilon"], cell["model"]) == (2, 0, 1, "a")


def test_unknown_names_and_broken_files_are_told_in_a_sentence():
    with pytest.raises(ConfigError, match="did you mean dpals-figure4"):
        entries.load("dpals-figur4")
    with pytest.raises(ConfigError, match="cannot be used"):
        entries.parse("x", "title = ")
    with pytest.raises(ConfigError, match="cannot be used"):
        entries.parse("x", 'title = "a"\nrun = "b"\nrows = 3')


@pytest.mark.parametrize("name", entries.names())
def test_every_file_fits_together(name):
    """Functions exist, tables and plots name what is there, and means are taken over seeds and
    what a table says.
    """
    entry = entries.load(name)
    assert callable(entry.runner())
    assert entry.title
    assert entry.tables
    cells = entry.settings(Sources())
    assert 0 < len(entry.settings(Sources(), quick=True)) <= len(cells)
    known = {key for cell in cells for key in cell}
    for form in entry.tables:
        by = [
            *form["rows"],
            *([form["columns"]] if "columns" in form else []),
            *form.get("over", ()),
        ]
        if not set(by) <= known:  # told apart by something that only the run knows
            continue
        for group in layout.group(cells, by, form.get("where")):
            rest = {
                entries.key({k: v for k, v in r.items() if k != layout.SEED}) for r in group.records
            }
            assert len(rest) == 1, (
                f"{name}: the table by {by} averages over more than the seed: {group.keys}"
            )
    for line in entry.published:
        assert set(line) & set(entry.references), f"{name}: {line} has no published value"


# ------------------------------------------------------------ tables and pictures


@pytest.mark.parametrize("name", entries.names())
def test_axes_of_every_picture_are_named(name):
    for panel in entries.load(name).plots:
        for axis in ("x", "y"):
            assert figures.axis_label(panel, axis) != panel[axis] or panel[axis] in (
                "rank",
                "steps",
            ), panel


def test_many_lines_become_several_panels():
    records = [{"model": f"m{at}", "epsilon": e, "rmse": 1.0} for at in range(11) for e in (1, 2)]
    records += [{"model": "ALS", "rmse": 0.5}]
    panels = figures.split(records, {"x": "epsilon", "y": "rmse", "line": ["model"], "title": "t"})
    assert [panel["title"] for panel, _ in panels] == ["t (1 of 2)", "t (2 of 2)"]
    assert all(len(lines) <= figures.MOST_LINES for _, lines in panels)
    assert all(lines[-1].keys == {"model": "ALS"} for _, lines in panels), (
        "what goes across is in all of them"
    )
    shown = [line.keys["model"] for _, lines in panels for line in lines[:-1]]
    assert shown == [f"m{at}" for at in range(11)]


def test_a_method_has_one_color_and_its_lines_differ():
    few, many = [{"model": "DPALS"}], [{"model": "DPMF"}, {"model": "DPALS, by default"}]
    assert figures.styles(few)[0].color == figures.styles(many)[1].color == figures.METHODS["DPALS"]
    lines = figures.styles([{"model": "DPALS", "rank": rank} for rank in (8, 32, 128)])
    assert len({(style.color, style.dashes, style.mark) for style in lines}) == 3
    assert lines[-1].color == figures.METHODS["DPALS"], "the largest number is strongest"
    words = figures.styles([{"model": "DPALS", "start": start} for start in ("private", "random")])
    assert words[0].color == figures.METHODS["DPALS"], "the first word is strongest"
    assert figures.method({"model": "DPALS, as published"}) == "DPALS"
    assert figures.METHODS[figures.method({"row": "IRLS-2 + H"})] == figures.METHODS["huber"], (
        "noise has the color"
    )
    assert figures.method({"row": "IRLS-2"}) == "IRLS"
    assert figures.method({"model": "user's own mean"}) == "user"
    assert figures.method({"lever": "+ likely counts"}) is None
    assert (
        figures.label({"model": "DPLMC", "start": "private", "users": 5000})
        == "DPLMC, private start, 5,000 users"
    )


def test_bars_over_a_label_are_side_by_side_or_centered():
    found, width = figures.places([["a", "b"], ["a"]])
    assert width == pytest.approx(0.4)
    assert found[0] == pytest.approx({"a": -0.2, "b": 1.0})
    assert found[1] == pytest.approx({"a": 0.2})


def test_levels_go_across_and_words_may_have_other_names(entry):
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    records = [{"model": "DPALS", "part": part, "rmse": 0.5} for part in ("first", "second")]
    panel = {
        "x": "part",
        "y": "rmse",
        "line": ["model"],
        "levels": {"predict 0": 1.0},
        "names": {"first": "the 1st"},
    }
    figures._panel(axis, replace(entry, plots=(panel,)), panel, layout.group(records, ["model"]))
    assert [text.get_text() for text in axis.get_xticklabels()] == ["the 1st", "second"]
    assert axis.get_legend_handles_labels()[1] == ["predict 0", "DPALS"]


def test_a_deviation_as_large_as_the_mean_stays_on_a_logarithmic_axis():
    points = layout.group([{"x": 1, "rmse": value} for value in (0.01, 0.01, 0.4)], ["x"])
    (middle,), (below,), (above,) = figures._spread(points, {"y": "rmse", "log_y": True})
    assert above > middle, "or the test shows nothing"
    assert middle - below == pytest.approx(0.01)


def test_words_on_x_become_bars(tmp_path, entry):
    records = [
        {"model": m, "part": part, "rmse": 0.5} for m in "ab" for part in ("first", "second")
    ]
    drawn = replace(entry, plots=({"x": "part", "y": "rmse", "line": ["model"]},))
    figures.draw(drawn, records, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


def test_medians_are_shown_with_their_range():
    found = layout.Group({}, [{"error": value} for value in (0.1, 0.2, 900.0)])
    assert found.shown("error", 2, "median") == "0.20 (0.10–900)"
    assert found.shown("error", 2) == "300.10 ± 519.53"
    assert found.quartiles("error") == pytest.approx((0.15, 450.1))


def test_tables_show_means_spread_and_published_values(entry):
    records = _records(entry)
    crossed = layout.table(entry, records, entry.tables[0])
    assert crossed == [
        ["model", "epsilon = 1", "epsilon = 2"],
        ["a", "0.61 ± 0.01", "0.61 ± 0.01"],
        ["a: paper", "0.50", ""],
        ["b", "0.61 ± 0.01", "0.61 ± 0.01"],
    ]
    plain = layout.table(entry, records, entry.tables[1])
    assert plain[0] == ["model", "epsilon", "rmse", "true", "paper"]
    assert plain[1] == ["a", "1", "0.61 ± 0.01", "3.00", "0.50"]
    assert plain[3] == ["b", "–", "0.61 ± 0.01", "3.00", ""]
    assert layout.markdown(crossed).splitlines()[1] == "|---|---|---|"


def test_a_refusal_is_a_result(entry, monkeypatch, tmp_path):
    def refuse(settings, sources):
        raise BudgetExceeded("too little")

    monkeypatch.setattr(entries.Entry, "runner", lambda self: refuse)
    finished = reproduce.run(entries.load(SMALL), tmp_path, quick=True)
    assert {record["refused"] for record in finished.records} == {"too little"}
    assert "refused" in (finished.folder / "README.md").read_text()


# ------------------------------------------------------------ running


def test_a_run_writes_its_folder_and_does_not_run_again(tmp_path, monkeypatch):
    told = []
    entry = entries.load(SMALL)
    first = reproduce.run(entry, tmp_path, quick=True, progress=lambda *a: told.append(a))
    assert first.ran == len(first.records) > 0
    assert first.missing == 0
    assert told[-1][:2] == (first.ran, first.ran)
    assert "left" in told[-1][2]
    folder = tmp_path / "quick" / SMALL
    document = json.loads((folder / "results.json").read_text())
    assert document["records"] == first.records
    assert {"discreet", "python", "numpy", "machine", "cores"} <= set(document["conditions"])
    with (folder / "results.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == len(first.records)
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    readme = (folder / "README.md").read_text()
    assert "Quick version" in readme
    assert "seconds" in readme
    assert str(tmp_path) not in readme
    monkeypatch.setattr(
        reproduce, "run_cell", lambda *a: pytest.fail("a finished cell was run again")
    )
    assert reproduce.run(entry, tmp_path, quick=True).ran == 0


def test_a_cell_knows_its_code_and_old_cells_can_be_read(tmp_path):
    entry = entries.load("dpals-table4")
    first = reproduce.run(entry, tmp_path, quick=True)
    assert {one["code"] for one in first.conditions} == {reproduce.code(entry)}
    assert first.other == 0
    document = json.loads((first.folder / "results.json").read_text())
    assert document["code"] == {reproduce.code(entry): len(first.conditions)}
    cell = next((first.folder / "cells").glob("*.json"))
    old = json.loads(cell.read_text())
    del old["conditions"]["code"]
    cell.write_text(json.dumps(old))
    kept = reproduce.run(entry, tmp_path, quick=True)
    assert (kept.ran, kept.other, len(kept.records)) == (0, 1, len(first.records))
    assert reproduce.others(entry, tmp_path, quick=True) == (0, 1)
    assert reproduce.run(entry, tmp_path, quick=True, fresh=True).ran == 1


def test_the_code_is_that_of_the_runner_and_what_it_imports(monkeypatch, tmp_path):
    """Another runner, another hash; a changed model, another hash; the text of an entry is no
    code.
    """
    import shutil

    import discreet
    import research

    copy = tmp_path / "discreet"
    ignore = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    for package in (discreet, research):
        shutil.copytree(Path(package.__file__).parent, tmp_path / package.__name__, ignore=ignore)
    monkeypatch.setattr(reproduce, "files", lambda package: tmp_path / package)
    entry = entries.load("huber-sound")

    def now(entry):
        reproduce._hash.cache_clear()
        return reproduce.code(entry)

    first = now(entry)
    assert first != now(entries.load("huber-table3"))
    for name in ("../research/layout.py", "../research/beyond.py", "cli/train.py"):
        (copy / name).write_text("changed")
        assert now(entry) == first
    matter = (
        "models/huber_als.py",
        "models/huber_als.py",
        "kernels/integer_sums.py",
        "privacy/noise/sources.py",
    )
    for name in ("../research/huber_printed.py", *matter):
        (copy / name).write_text((copy / name).read_text() + "# changed\n")
        assert now(entry) != first
        first = now(entry)
    reproduce._hash.cache_clear()


def test_times_are_of_entries_that_exist():
    import tomllib

    file = Path(reproduce.__file__).with_name("minutes.toml")
    assert set(tomllib.loads(file.read_text())) <= set(entries.names())
    assert entries.minutes("dpals-table5") == tomllib.loads(file.read_text())["dpals-table5"] > 0
    assert entries.minutes("nothing") is None


def test_a_figure_in_parts_means_its_entries():
    assert entries.meant(["dpals-figure3b", "dpals-table5"]) == ["dpals-table5"]
    assert entries.meant(["all"]) == entries.names()
    for parts in entries.PARTS.values():
        assert set(parts) <= set(entries.names())


def test_killing_a_run_loses_no_finished_cell(tmp_path):
    entry = entries.load(SMALL)
    total = len(entry.settings(Sources(), quick=True))
    command = [
        sys.executable,
        "-m",
        "discreet",
        "reproduce",
        SMALL,
        "--quick",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cells = tmp_path / "quick" / SMALL / "cells"
    for _ in range(600):
        if list(cells.glob("*.json")) or process.poll() is not None:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {file: file.stat().st_mtime_ns for file in cells.glob("*.json")}
    assert before
    for file in before:
        json.loads(file.read_text())
    finished = reproduce.run(entry, tmp_path, quick=True)
    assert finished.ran == total - len(before)
    assert len(finished.records) == total
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_workers_end_when_their_parent_is_killed(tmp_path):
    psutil = pytest.importorskip("psutil")
    command = [
        sys.executable,
        "-m",
        "discreet",
        "reproduce",
        "dplmc-figure1",
        "--jobs",
        "2",
        "--out",
        str(tmp_path),
    ]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def workers():
        return [child for child in process.children() if "spawn_main" in " ".join(child.cmdline())]

    for _ in range(200):
        if len(found := workers()) == 2:
            break
        time.sleep(0.05)
    assert len(found) == 2
    time.sleep(3)  # until they have begun to work
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(found, timeout=20)
    for child in alive:
        child.kill()
    assert alive == []


def test_processes_find_the_same_as_one(tmp_path):
    entry = entries.load(SMALL)
    alone = reproduce.run(entry, tmp_path / "1", quick=True)
    both = reproduce.run(entry, tmp_path / "2", quick=True, jobs=2)
    assert [r["rmse"] for r in both.records] == pytest.approx(
        [r["rmse"] for r in alone.records], rel=1e-4
    )
    with pytest.raises(ConfigError, match="jobs is 0"):
        reproduce.run(entry, tmp_path, jobs=0)


# ------------------------------------------------------------ data, and the page


def test_official_data_are_used_where_they_are_given(tmp_path, monkeypatch):
    monkeypatch.delenv("DISCREET_DATA", raising=False)
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path / "cache"))
    assert Sources().at_hand("ml-10m", "twin-ml10m") == "twin-ml10m"
    place = tmp_path / "ml-10m.zip"
    place.write_bytes(b"")
    for word in (f"ml-10m={place}", str(place)):
        assert Sources.given([word]).at_hand("ml-10m", "twin-ml10m") == "ml-10m"
    with pytest.raises(ConfigError, match="names no data set"):
        Sources.given(["films.csv"])
    with pytest.raises(DataError, match="does not exist"):
        Sources.given(["ml-10m=nowhere.zip"])


def test_splits_are_kept_for_the_next_cell():
    sources = Sources()
    first = sources.random("cinema", (0.9, 0.1), top=40, scale=0.02)
    assert sources.random("cinema", (0.9, 0.1), top=40, scale=0.02) is first
    assert first.train.n_items == 40
    sources.random("cinema", (0.9, 0.1), seed=1, scale=0.02)
    sources.random("cinema", (0.9, 0.1), seed=2, scale=0.02)
    assert sources.random("cinema", (0.9, 0.1), top=40, scale=0.02) is not first


def test_every_finished_entry_has_a_page_and_a_line_in_the_index(tmp_path, entry, monkeypatch):
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    (folder / "reference.md").write_text("# Reference scores\n")
    monkeypatch.setattr(entries, "names", lambda: ["fake"])
    monkeypatch.setattr(entries, "load", lambda name: entry)
    monkeypatch.setattr(reproduce, "load", lambda name: entry)
    monkeypatch.setattr(pages, "GROUPS", {"fake": "Examples"})
    assert pages.write(folder, tmp_path, ["fake"], Sources()) == []
    monkeypatch.setattr(
        entries.Entry, "runner", lambda self: lambda s, _: {"rmse": 0.6, "true": 3.0}
    )
    reproduce.run(entry, tmp_path)
    for _ in range(2):
        assert pages.write(folder, tmp_path, ["fake"], Sources()) == ["fake"]
    text = (folder / "fake.md").read_text()
    assert text.count("\n# A table\n") == 1
    assert "![A table](../plots/fake.png)" in text
    assert (tmp_path / "docs" / "plots" / "fake.png").is_file()
    assert "- [A table](fake.md)" in (folder / "index.md").read_text()
    assert set(pages.read(folder)) == {"fake", "reference"}
    next((tmp_path / "fake" / "cells").iterdir()).unlink()
    assert pages.write(folder, tmp_path, ["fake"], Sources()) == []
    assert pages.write(folder, tmp_path, ["fake"], Sources(), partial=True) == ["fake"]
    assert "1 of 6 cells have not been run yet" in (folder / "fake.md").read_text()
    assert pages.write(folder, tmp_path / "empty", ["fake"], Sources(), partial=True) == []
    assert pages.write(folder, tmp_path / "empty", [], Sources()) == []
    assert "\n# A table\n" in (folder / "fake.md").read_text()
    with pytest.raises(ConfigError, match="does not exist"):
        pages.write(Path("nowhere"), tmp_path, [], Sources())


# ------------------------------------------------------------ every entry


@pytest.mark.parametrize("name", [name for name in entries.names() if name != SMALL])
def test_every_entry_has_a_quick_version_that_runs(name, tmp_path):
    finished = reproduce.run(entries.load(name), tmp_path, quick=True)
    assert finished.records
    assert finished.missing == 0
    assert (finished.folder / "README.md").is_file()
