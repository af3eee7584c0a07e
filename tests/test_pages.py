"""The pages for newcomers: every block of code runs, in order, in a folder with a file of ratings and one of films."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import discreet
from discreet.data.cinema import films

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ["index", "first-model", "ranking-or-ratings", "over-time", "how-it-works"]


def blocks(page):
    """(language, code) of every block of a page that is meant to be run."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    discreet.load_dataset("cinema", scale=0.5).to_frame("pandas").to_csv("ratings.csv", index=False)
    lines = ["item_id,title", *(f'{film.id},"{film.title}"' for film in films())]
    Path("films.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(page, folder, capsys):
    names: dict[str, object] = {}
    found = blocks(page)
    assert found
    for language, code in found:
        if language == "python":
            exec(compile(code, f"{page}.md", "exec"), names)
            continue
        for line in code.splitlines():
            words = shlex.split(line)
            if words[0] == "discreet":
                done = subprocess.run(
                    [sys.executable, "-m", *words], capture_output=True, text=True, timeout=300, check=False
                )
                assert done.returncode == 0, done.stderr
    assert capsys.readouterr().out


def test_every_page_that_has_code_for_newcomers_is_run():
    """A new page is either in the list or has no block that claims to run."""
    nav = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    first = nav[nav.index("Start here") : nav.index("- Data: data.md")]
    pages = re.findall(r": ([\w-]+)\.md", first)
    assert {page for page in pages if blocks(page)} <= set(PAGES)
