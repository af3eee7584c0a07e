"""Run every block of code on the pages and in the README, in order, page by page, and every example
in the help of a command, in a folder with the files that they name.

`EXCLUDED` lists what does not run, with the reason; a test keeps that list minimal.
"""

from __future__ import annotations

import glob
import importlib
import logging
import re
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import typer

import discreet
from discreet.cli import app as cli
from discreet.cli import main
from discreet.data.cinema import films

ROOT = Path(__file__).resolve().parents[1]
PAGES = {page.stem: page for page in sorted((ROOT / "docs").glob("*.md"))} | {
    "README": ROOT / "README.md"
}
BLOCK = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

EXCLUDED = {
    "make ": (
        "commands of the repository: the Makefile's own comments, and the workflow, which runs them"
    ),
    "pip install": (
        "would install into the environment of the tests; tests/test_build.py installs a wheel"
    ),
    "discreet serve": "runs until it is stopped: tests/serve/test_server.py starts it",
    "curl": "asks a service that runs: tests/serve/test_app.py asks the same",
    "from pyspark.sql": (
        "names a bucket and a cluster: tests/engines/test_spark.py and the notebook run it locally"
    ),
    "from airflow": "needs Airflow: tests/cli/test_timeline_command.py runs its commands",
    "discreet train ratings.parquet --engine spark": (
        "needs Java: tests/engines/test_spark.py runs it"
    ),
    "discreet audit": "half a minute of processor time: tests/cli/test_audit_command.py runs it",
    "discreet report model/ --data train.csv": "as the line before it: tests/report",
    "from discreet.testing import check_private_model": (
        "eight seconds of work: tests/auditing/conformance/test_kit.py"
    ),
    "address = model.push_to_hub": (
        "publishes on the network: tests/models/storage/test_hub.py runs it against a local fake"
    ),
    "discreet tune": "a secret number of trainings: tests/cli/test_tune.py runs it",
    "discreet demo": "twenty seconds of work: tests/cli/test_commands.py runs it",
    "discreet doctor": "checks and compiles every kernel: tests/cli/test_warm_up.py runs it",
    "discreet bench": "minutes of work: tests/benchmarks runs its parts",
    "export DISCREET_TOKEN": "as discreet serve: tests/serve/test_server.py sends a token",
    "discreet reproduce dpals-table5": (
        "names data that may not be redistributed: tests/research/test_reproduce.py"
    ),
    "discreet reproduce changes": (
        "compares with results that a reader has: tests/research/test_reproduce.py"
    ),
}


def examples_of_help() -> dict[str, list[str]]:
    """The examples that end the help of each command."""
    for module in cli.MODULES:
        if module in cli._CLONE_MODULES:
            cli._import_from_clone(module)
        else:
            importlib.import_module(f"discreet.cli.{module}")
    return {
        command.name: [
            line.strip()
            for line in re.sub(r"\[/?bold\]", "", command.epilog).splitlines()[2:]
            if line
        ]
        for command in cli.app.registered_commands
    }


HELP = examples_of_help()


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of every block that claims to run; blocks of text, data and pictures do
    not.
    """
    found = BLOCK.findall(PAGES[page].read_text(encoding="utf-8"))
    shell = [
        ("shell", code) if language in ("bash", "sh", "console") else (language, code)
        for language, code in found
    ]
    bare = [
        ("shell", code) if not language and "discreet " in code else (language, code)
        for language, code in shell
    ]
    return [(language, code) for language, code in bare if language in ("python", "shell")]


def commands(code: str) -> list[str]:
    """The lines of a shell block that are commands: with a $, where there is one, because the
    others are output.
    """
    lines = re.sub(r"\\\n\s*", "", code).splitlines()
    marked = [line for line in lines if line.startswith("$ ")]
    return marked or [line for line in lines if line.strip() and not line.startswith((" ", "#"))]


def reason(code: str) -> str | None:
    """Why a block or a command is not run, if it is not."""
    bare = code.removeprefix("$ ").replace(".venv/bin/", "").lstrip()
    return next((why for begin, why in EXCLUDED.items() if bare.startswith(begin)), None)


FROM_NOTHING = {"README", "index", "get-started", "deploy", "integrations"}

RUN = [page for page in PAGES if any(reason(code) is None for _, code in blocks(page))]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The files that pages name: the ratings of some invented people in many forms, their
    films, and a model.
    """
    folder = tmp_path_factory.mktemp("shelf")
    lines = ["item_id,title,genres"]
    lines += [f'{film.id},"{film.title}",{"|".join(film.genres)}' for film in films()]
    for name in ("films.csv", "movies.csv"):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    some = discreet.load_dataset("cinema", scale=0.1)
    some = some.keep(some.values >= 1)
    frame = some.to_frame("pandas")
    frame.to_csv(folder / "ratings.csv", index=False)
    frame.to_csv(folder / "export.csv", index=False, encoding="cp1252")
    frame.drop(columns="rating").to_csv(folder / "clicks.csv", index=False)
    frame.rename(columns={"user_id": "member", "item_id": "sku"}).to_csv(
        folder / "log.tsv", sep="\t", index=False
    )
    table = some.to_frame("pyarrow")
    for name in ("ratings.parquet", "2023.parquet"):
        parquet.write_table(table.slice(0, len(table) // 2), folder / name)
    parquet.write_table(table.slice(len(table) // 2), folder / "2024.parquet")
    (folder / "ratings").mkdir()
    for name in ("2023.parquet", "2024.parquet"):
        shutil.copy(folder / name, folder / "ratings")
    first = frame.groupby("user_id").cumcount() % 5 > 0
    for name in ("train.csv", "known.csv"):
        frame[first].to_csv(folder / name, index=False)
    frame[~first].to_csv(folder / "test.csv", index=False)
    model = discreet.DPMF(8, epsilon=20, rating_range=(0.5, 5), random_state=0).fit(
        discreet.Ratings.read(folder / "ratings.csv", items=folder / "films.csv")
    )
    model.save(folder / "model")
    return folder


@pytest.fixture
def folder(shelf, tmp_path, monkeypatch):
    copy = tmp_path / "here"
    shutil.copytree(shelf, copy)
    monkeypatch.chdir(copy)
    logger = logging.getLogger("discreet")
    before = logger.handlers, logger.propagate, logger.level, warnings.showwarning
    yield copy
    logger.handlers, logger.propagate, logger.level, warnings.showwarning = before


def names_of_a_page(page):
    """What pages about single models take for granted: ratings, in the forms that they are
    spoken of.
    """
    if page in FROM_NOTHING:
        return {}
    ratings = discreet.Ratings.read("ratings.csv", items="films.csv").select_users(
        range(600), by="index"
    )
    return {
        "discreet": discreet,
        "ratings": ratings,
        "clicks": ratings,
        "df": ratings.to_frame("pandas"),
        "matrix": ratings.to_csr(),
        "user_ids": ratings.user_ids,
        "item_ids": ratings.item_ids,
    }


@pytest.mark.parametrize("page", RUN)
def test_every_block_of_a_page_runs(page, folder, capsys):
    names = names_of_a_page(page)
    if page in FROM_NOTHING:
        shutil.rmtree("model")
    for language, code in blocks(page):
        if reason(code):
            continue
        if language == "python":
            exec(compile(code, f"{page}.md", "exec"), names)
            continue
        if page == "budgets":  # the account that Python opened is opened by the shell as well
            Path("budget.sqlite").unlink(missing_ok=True)
        for line in commands(code):
            if reason(line):
                continue
            words = shlex.split(line.removeprefix("$ ").replace(".venv/bin/", ""), comments=True)
            assert words[0] == "discreet", f"{line}: say in EXCLUDED why it does not run"
            if words[1] == "train" and page not in FROM_NOTHING and "--replace" not in words:
                words.append("--replace")  # of the model that is there for the other commands
            capsys.readouterr()
            with pytest.raises(SystemExit) as left:
                main(words[1:])
            out, err = capsys.readouterr()
            assert left.value.code == 0, f"{line}: {err}"
            check_output(code, line, out)


#: A training that an account is charged for.
CHARGED = shlex.split(
    "train ratings.csv --out model/ --replace --epsilon 20 --rating-range 0.5,5 --items films.csv"
    " --account budget.sqlite:customers"
)


@pytest.mark.parametrize("name", [name for name in HELP if not all(map(reason, HELP[name]))])
def test_every_example_of_a_help_runs(name, folder, capsys):
    """An account and an audit that an example names are there, as after the examples of others."""
    if name in ("train", "report", "timeline"):
        main_exits(["budget", "open", "budget.sqlite:customers", "--epsilon", "90"], capsys)
    if name == "report":
        main_exits(CHARGED, capsys)
        audit = ["audit", "--like", "model/", "--levels", "transcript", "--search", "0"]
        main_exits([*audit, "--out", "audit.json"], capsys)
    for line in HELP[name]:
        if reason(line):
            continue
        words = [path for word in shlex.split(line)[1:] for path in glob.glob(word) or [word]]
        if name == "train" and "--replace" not in words:
            words.append("--replace")
            if "--not-private" in words:
                shutil.rmtree("model")  # a model without privacy takes the place of none
                words.remove("--replace")
        main_exits(words, capsys)
        if words[:2] == ["budget", "open"]:
            main_exits(["1" if word == "20" else word for word in CHARGED], capsys)


def main_exits(words, capsys):
    """Run one command, which succeeds."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0, f"{words}: {capsys.readouterr().err}"


def test_commands_in_sentences_and_tables_have_options_that_exist():
    known = {
        name: {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        for name, command in typer.main.get_command(cli.app).commands.items()
    }
    for page, path in PAGES.items():
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for line in re.findall(r"`discreet ([a-z]+(?: [^`]*)?)`", text):
            name, *rest = shlex.split(line)
            assert name in known, f"{page}: {line}"
            flags = {
                word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"
            }
            assert flags - known[name] == set(), f"{page}: {line}"


def check_output(code, line, out):
    """What a page shows under a command with a $ is what the command says, up to columns that
    are cut.
    """
    if not line.startswith("$ "):
        return
    shown = code.partition(line)[2].partition("\n$ ")[0].strip("\n").splitlines()
    said = {" ".join(text.split()) for text in out.splitlines()}
    assert [text for text in shown if text.strip() and " ".join(text.split()) not in said] == [], (
        line
    )


def test_what_is_excluded_is_there_and_little():
    """An entry that no page needs any more goes; so does a page of which nothing runs, unless
    it has no code.
    """
    everything = [
        line for page in PAGES for _, code in blocks(page) for line in [code, *commands(code)]
    ]
    everything += [line for lines in HELP.values() for line in lines]
    used = {why for code in everything if (why := reason(code))}
    assert [begin for begin, why in EXCLUDED.items() if why not in used] == []
    silent = [page for page in PAGES if blocks(page) and page not in RUN]
    assert silent == []


def test_newcomers_see_no_caution(folder, capsys):
    """What the README and the first pages show on the embedded data is private without ifs."""
    for page in ("README", "index"):
        text = PAGES[page].read_text(encoding="utf-8")
        for command in re.findall(
            r"^(?:\.venv/bin/)?discreet (train .*?)(?:\s+#.*)?$", text, re.MULTILINE
        ):
            with pytest.raises(SystemExit) as left:
                main([*shlex.split(command), "--replace"])
            out, err = capsys.readouterr()
            assert left.value.code == 0
            assert "CAUTION" not in out + err


def test_five_lines_say_what_the_readme_shows(folder):
    """The list in the README is of one run: another has other noise, and the same kind of films."""
    shown = re.findall(
        r"^\d  ([\w-]+) +(.+?) · (.+?)  +[\d.]+$", PAGES["README"].read_text("utf-8"), re.MULTILINE
    )
    assert len(shown) == 5
    known = {film.id: film for film in films()}
    for item, title, genres in shown:
        assert f"{known[item].title}" in f"{title} · {genres}"
    model = discreet.DPMF(epsilon=1, rating_range=(0.5, 5)).fit(discreet.load_dataset("cinema"))
    found = model.recommend({"the-binary-colony": 5, "signal-from-quillon": 4.5}, n=5)
    near = [bool({"Sci-Fi", "Adventure", "Action"} & set(known[item].genres)) for item in found.ids]
    assert np.count_nonzero(near) >= 3
    assert model.privacy_.private
