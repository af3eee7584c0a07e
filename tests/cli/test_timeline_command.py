"""``discreet timeline open | add | model | forget | show | verify`` and ``train --prior``."""

import asyncio
import json

import pytest

import discreet
from discreet.report import sign_off
from discreet.serve import model_registry
from discreet.serve.model_registry import ModelRegistry, parse_folders


@pytest.fixture
def line(run, tmp_path):
    path = tmp_path / "x.timeline"
    key = tmp_path / "keys" / "x.key"
    result = run(*("timeline", "open", path, "--epsilon", 5, "--rating-range", "1,5", "--key", key))
    assert result.code == 0, result.err
    assert "ε covers any number of rows" in result.out
    return path, key


def add(run, line, private, *more):
    path, key = line
    films = private / "films.csv"
    ratings = private / "ratings.csv"
    return run("timeline", "add", path, ratings, "--items", films, "--key", key, *more)


def test_rows_models_and_checks(run, line, private, tmp_path):
    path, key = line
    for _ in range(2):
        result = add(run, line, private, "--out", tmp_path / "model")
        assert result.code == 0, result.err
    assert "2 rows so far; ε is the same for any number of rows." in result.out
    model = discreet.load(tmp_path / "model")
    assert model.details_["timeline"]["rows"] == 2
    shown = json.loads(run("timeline", "show", path, "--json").out)
    assert len(shown["rows"]) == 2
    assert shown["privacy"]["epsilon"] == pytest.approx(5)
    result = run("timeline", "forget", path, "1", "--key", key)
    assert result.code == 0, result.err
    head = model.details_["timeline"]["head"]
    result = run("timeline", "verify", path, "--key", key, "--head", head)
    assert result.code == 0, result.err
    assert "2 rows in an unbroken chain" in result.out
    forgetting = ("--forgetting", 0.5, "--out", tmp_path / "model")
    assert run("timeline", "model", path, *forgetting).code == 0


async def reload_once(registry):
    watching = asyncio.create_task(registry.watch())
    async with asyncio.timeout(60):
        while not registry.reloads:
            await asyncio.sleep(0.01)
    watching.cancel()


def test_a_service_finds_the_newest_model_of_a_timeline(run, line, private, monkeypatch):
    monkeypatch.setattr(model_registry, "POLL_SECONDS", 0.01)
    path, _ = line
    with pytest.raises(discreet.errors.ConfigError, match="has no model yet"):
        parse_folders([str(path)])
    assert add(run, line, private).code == 0
    registry = ModelRegistry(parse_folders([str(path)]))
    text = registry.get("x.timeline").opened.statement["text"]
    assert "Lifetime ε, 1 row so far; ε is the same for any number of rows." in text
    assert add(run, line, private).code == 0
    asyncio.run(reload_once(registry))
    text = registry.get("x.timeline").opened.statement["text"]
    assert "Lifetime ε, 2 rows so far" in text
    assert run("timeline", "verify", path).code == 0


def test_rows_are_read_from_block_files(run, line, private):
    for _ in range(2):
        result = add(run, line, private, "--engine", "blocks", "--blocks", 3)
        assert result.code == 0, result.err
    path, _ = line
    assert "2 rows" in run("timeline", "verify", path).out
    assert run("timeline", "show", path, "--engine", "blocks").code == 2


def test_pages_state_the_lifetime(run, line, private, tmp_path):
    path, _ = line
    assert add(run, line, private).code == 0
    model = discreet.load(path / "model")
    sentence = "Lifetime ε, 1 row so far; ε is the same for any number of rows."
    assert sentence in sign_off.render(model, sign_off.Signing())
    discreet.write_report(model, tmp_path / "page.html")
    assert sentence in (tmp_path / "page.html").read_text()


def test_mistakes_are_one_sentence(run, line, private, tmp_path):
    path, key = line
    for wrong in (
        ("timeline", "add", path, "--key", key),
        ("timeline", "show", path, "--epsilon", 1),
        ("timeline", "model", path),  # no row yet
        ("timeline", "model", path, "--forgetting", 2),
        ("timeline", "forget", path, "--key", key),
        ("timeline", "verify", path, "--head", "0" * 64),
        ("timeline", "show", tmp_path / "nothing"),
        ("timeline", "add", path, private / "ratings.csv", "--key", key),  # without a catalog
    ):
        result = run(*wrong)
        assert result.code == 2, wrong
        assert len(result.err.strip().splitlines()) == 1, result.err


def test_a_training_uses_what_an_earlier_one_released(run, private, tmp_path):
    options = ("--items", private / "films.csv", "--epsilon", 5, "--rating-range", "1,5")
    first = run("train", private / "ratings.csv", *options, "--out", tmp_path / "one")
    assert first.code == 0, first.err
    prior = ("--prior", tmp_path / "one", "--out", tmp_path / "two")
    second = run("train", private / "ratings.csv", *options, *prior)
    assert second.code == 0, second.err
    assert len(discreet.load(tmp_path / "two").released_.rows) == 2
    assert list((tmp_path / "two").glob("earlier-ledger*"))
