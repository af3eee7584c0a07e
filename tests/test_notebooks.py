"""The notebooks of the site run from the first cell to the last, and what they said when they
were stored is there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
NAMES = sorted(file.stem for file in FOLDER.glob("*.ipynb"))


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_four():
    assert NAMES == ["believe-it", "spark", "ten-minutes", "what-privacy-costs"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, monkeypatch):
    if name == "spark":
        java = loaded(ROOT / "tests" / "support" / "java.py")
        if java.find() is None:
            say = pytest.fail if os.environ.get("CI", "").lower() == "true" else pytest.skip
            say("there is no Java 17: make java installs it")
    # the real people are for who stores the notebooks
    monkeypatch.delenv("DISCREET_DATA", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)]))
    # notebooks are small, and threads that wait cost as well
    monkeypatch.setenv("DISCREET_THREADS", "1")
    # half the work for a short run
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    done = loaded(FOLDER / "execute.py").executed(FOLDER / f"{name}.ipynb")
    before = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for now, stored in zip(code_of(done), code_of(before), strict=True):
        said = {output.output_type for output in now.outputs if output.get("name") != "stderr"}
        assert said >= {output.output_type for output in stored.outputs}, now.source


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_whole_and_names_nobody(name):
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert [cell.execution_count for cell in code_of(notebook)] == list(
        range(1, len(code_of(notebook)) + 1)
    )
    assert sum(bool(cell.outputs) for cell in code_of(notebook)) >= len(code_of(notebook)) - 2
    assert "Traceback" not in text
    assert re.findall(r"/(?:tmp|home|root|work|Users)/", text) == []


def test_the_site_has_all_of_them():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"notebooks/{name}\n" not in index] == []
