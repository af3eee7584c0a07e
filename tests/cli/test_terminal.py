"""Titles and ids come from strangers: what is printed of them cannot steer a terminal."""

import json
import sys

import numpy as np
import pytest

import discreet
from discreet.cli.messages import printable

NASTY = "Film \x1b]0;owned\x07\x1b[2J \x9b31m \u202egnp.exe\x7f"
STEERING = set("\x1b\x07\x9b\x7f\u202e")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose first title, and whose first id, are an attack."""
    place = tmp_path_factory.mktemp("strange")
    users = np.repeat(np.arange(30), 4)
    numbers = (np.arange(120) * 7 + users) % 6
    names = np.array([f"id \x1b[{n}m" for n in range(6)], object)
    titles = {name: NASTY if n == 0 else f"Film {n}" for n, name in enumerate(names)}
    ratings = discreet.Ratings.from_arrays(users, names[numbers], 1.0 + numbers).with_items(titles)
    discreet.ALS(2, iterations=2, regularization=1.0).fit(ratings).save(place / "model")
    lines = [f"{u},{names[n]},{1 + n}" for u, n in zip(users, numbers, strict=True)]
    (place / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    return place


def test_steering_characters_are_replaced_and_lines_stay():
    assert printable("a\tb\nc é 日本 · ε") == "a\tb\nc é 日本 · ε"
    assert not STEERING & set(printable(NASTY))
    assert len(printable(NASTY)) == len(NASTY)


@pytest.mark.parametrize(
    "call",
    [
        ("recommend", "--history", "Film 1", "--include-seen"),
        ("similar", NASTY),
        ("recommend", "--history", "Film \x1b[2J"),  # unknown: the error names what is near
        ("recommend", "--history", "Film"),
    ],
    ids=["list", "similar", "unknown", "near misses"],
)
@pytest.mark.parametrize("json_too", [False, True])
def test_nothing_printed_steers_a_terminal(run, folder, call, json_too):
    command, *options = call
    result = run(command, folder / "model", *options, *(["--json"] if json_too else []))
    assert "Film" in result.out + result.err
    assert not STEERING & set(result.out + result.err)


def test_json_keeps_titles_to_the_last_bit(run, folder):
    result = run("recommend", folder / "model", "--history", "Film 1", "--include-seen", "--json")
    assert NASTY in [row["title"] for row in json.loads(result.out)["recommendations"]]


@pytest.mark.parametrize("terminal", [False, True])
def test_lists_of_many_are_exact_in_a_pipe_and_harmless_on_a_terminal(
    run, folder, terminal, monkeypatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    result = run(
        "recommend", folder / "model", "--users", folder / "ratings.csv", "--include-seen", "-n", 6
    )
    assert result.code == 0, result.err
    assert (NASTY in result.out) is not terminal
    assert bool(STEERING & set(result.out)) is not terminal


@pytest.mark.parametrize(
    "call",
    [
        ["train", "x" * 10_000],
        ["train", "nowhere.csv", "--epsilon", "9" * 10_000],
        ["y" * 10_000],
        ["recommend", "model", "--history", "z" * 10_000],
    ],
)
def test_no_complaint_is_longer_than_a_few_lines(run, folder, call):
    """Also those that are not the library's own: of the operating system and of the parser of
    options.
    """
    left = run(*(folder / "model" if word == "model" else word for word in call))
    assert left.code == 2
    assert len(left.err) < 900


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,)"),
        ImportError("libarrow.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_ends_in_one_sentence_without_numbers(run, folder, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("discreet.models.storage.load_scorer.open_model", fail)
    left = run("recommend", folder / "model", "--history", "x")
    assert left.code == 2
    assert (
        left.err
        == "discreet: Not enough memory. Use fewer factors, or train with --engine blocks.\n"
    )
