"""Leaderboard: entries carry an exact ε and their ledger, and the page is written from them."""

from __future__ import annotations

import json

import pytest

import discreet
from discreet.data.cinema import make_cinema
from discreet.errors import ConfigError, DataError
from research import leaderboard
from research.sources import Sources


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty leaderboard, on a small part of cinema."""
    monkeypatch.setattr(leaderboard, "FOLDER", tmp_path / "board")
    monkeypatch.setattr(leaderboard, "DOCS", tmp_path)
    monkeypatch.setattr(Sources, "ratings", lambda self, name: make_cinema(0, 0.03))
    return tmp_path


def trained(**given):
    split, _ = leaderboard.track("cinema", Sources())
    return discreet.DPMF(epsilon=8, rating_range=(0.5, 5), **given).fit(split.train)


def test_a_submission_has_scores_of_the_fixed_split_and_its_ledger(folder):
    model = trained()
    model.save(folder / "model")
    words = ["add", str(folder / "model"), "--data", "cinema", "--name", "Ours & co", "--by", "us"]
    leaderboard.main(words)
    entry = json.loads((folder / "board" / "cinema-ours-co.json").read_text(encoding="utf-8"))
    split, relevant = leaderboard.track("cinema", Sources())
    expected = discreet.evaluate(model, split, "recall@20", relevant=relevant)
    assert entry["scores"]["recall@20"][0] == pytest.approx(expected["recall@20"], rel=1e-6)
    assert entry["epsilon"] == model.privacy_.epsilon
    assert entry["ledger"] == json.loads(json.dumps(model.privacy_.ledger.to_dict()))
    leaderboard.main(["page"])
    page = (folder / "leaderboard.md").read_text(encoding="utf-8")
    assert f"| Ours & co | us | 8 | 1e-06 | {expected['recall@20']:.4f} ±" in page
    assert "(leaderboard/cinema-ours-co.json)" in page


def test_models_are_ranked_within_epsilon_and_references_come_last(folder):
    for name, epsilon, recall in (
        ("c", 5.0, 0.4),
        ("a", 0.9999, 0.2),
        ("b", 1.0, 0.3),
        ("d", None, 0.1),
    ):
        scores = {metric: [recall, 0.01] for metric in leaderboard.METRICS}
        ledger = {"entries": []}
        entry = {"data": "cinema", "scores": scores, "epsilon": epsilon, "delta": 1e-6}
        leaderboard.write_entry({**entry, "ledger": ledger}, name, "us")
    rows = [line for line in leaderboard.render().splitlines() if "| us |" in line]
    assert [row.split()[1] for row in rows] == ["b", "a", "c", "d"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": "seeded", "random_state": 0}, "secure noise"),
        ({"delta": 1e-4}, "at most 1e-05"),
        ({"neighboring": "replace-one"}, "add-remove"),
    ],
)
def test_guarantees_that_do_not_compare_are_refused(folder, given, message):
    with pytest.raises(DataError, match=message):
        leaderboard.measure(trained(**given), "cinema", Sources())
    with pytest.raises(ConfigError, match="no track"):
        leaderboard.track("netflix", Sources())


def test_the_page_is_the_one_of_the_entries():
    assert (leaderboard.DOCS / "leaderboard.md").read_text(encoding="utf-8") == leaderboard.render()
