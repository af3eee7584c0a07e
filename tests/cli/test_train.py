"""``discreet train`` and what has been spent: no ledger is overwritten, and none is lost when
training fails.
"""

from __future__ import annotations

import errno
from types import SimpleNamespace

import numpy as np
import pytest

import discreet
from discreet.cli.train import examples
from discreet.models.fold_in import ItemSimilarity
from discreet.models.private import PrivateRecommender
from discreet.models.storage import save_load
from discreet.privacy.release.ledger import Ledger


@pytest.fixture
def train(run, private, tmp_path):
    """Trains a private model to ``m``."""

    def call(*more):
        data = [
            private / "ratings.csv",
            "--items",
            private / "films.csv",
            "--rating-range",
            "1,5",
            "--factors",
            2,
        ]
        return run("train", *data, "--out", tmp_path / "m", *more)

    return call


def test_a_private_model_is_replaced_only_with_replace(train, run, private, tmp_path):
    assert train("--epsilon", 20).code == 0
    ledger = (tmp_path / "m" / "ledger.json").read_bytes()
    opened = run(
        "train",
        private / "ratings.csv",
        "--not-private",
        "--model",
        "bias",
        "--out",
        tmp_path / "m",
    )
    for refused in (train("--epsilon", 30), opened):
        assert refused.code == 2
        assert refused.out == ""
        assert (
            refused.err
            == f"discreet: {tmp_path / 'm'} holds a private model. Choose a new folder, or pass"
            " --replace, which keeps its ledger.\n"
        )
    assert (tmp_path / "m" / "ledger.json").read_bytes() == ledger
    assert train("--epsilon", 30, "--replace").code == 0
    assert discreet.load(tmp_path / "m").privacy_.ledger.plan.budget.epsilon == 30
    (earlier,) = (tmp_path / "m").glob("earlier-ledger-*.json")
    assert earlier.read_bytes() == ledger
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_a_training_that_gives_up_leaves_the_ledger_of_what_it_released(train, tmp_path):
    """At so small an ε the counts are released, and turn out to be noise."""
    done = train("--model", "dpals", "--epsilon", 0.01, "--noise", "seeded", "--random-state", 1)
    assert done.code == 2
    (file,) = tmp_path.iterdir()
    ledger = Ledger.load(file)
    assert 0 < ledger.price().epsilon < 0.01
    note, problem = done.err.splitlines()
    assert note.startswith(f"discreet: training ended after {len(ledger.entries)} of ")
    assert note.endswith(f"their ledger is {file}")
    assert problem.startswith("discreet: ")


def test_a_model_that_cannot_be_saved_leaves_its_ledger(train, tmp_path, monkeypatch):
    """All of it was released."""

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(save_load, "_description", full)
    done = train("--epsilon", 20)
    assert done.code == 2
    (file,) = tmp_path.iterdir()
    assert Ledger.load(file).price().epsilon == pytest.approx(20, rel=1e-3)
    assert "No space left on device" in done.err


def test_a_ledger_that_cannot_be_written_is_shown(train, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(save_load, "_description", full)
    monkeypatch.setattr(Ledger, "save", full)
    done = train("--epsilon", 20)
    assert done.code == 2
    assert not list(tmp_path.iterdir())
    assert '"format": "discreet-ledger/1"' in done.err
    assert "could not be written to" in done.err


def test_a_training_that_released_nothing_leaves_nothing(train, tmp_path, monkeypatch):
    def broken(*args, **options):
        raise discreet.errors.DataError("no")

    monkeypatch.setattr(PrivateRecommender, "_begin", broken)
    done = train("--epsilon", 20)
    assert (done.code, done.err) == (2, "discreet: no\n")
    assert not list(tmp_path.iterdir())


def test_seeded_noise_needs_a_seed(train, tmp_path):
    refused = train("--epsilon", 20, "--noise", "seeded")
    assert (refused.code, refused.out) == (2, "")
    assert (
        refused.err
        == "discreet: --noise seeded needs a seed. Pass --random-state, and keep it secret.\n"
    )
    assert train("--epsilon", 20, "--noise", "seeded", "--random-state", 0).code == 0


def test_the_seed_of_seeded_noise_is_not_in_the_document(run, private, tmp_path):
    call = (
        "train",
        private / "ratings.csv",
        "--items",
        private / "films.csv",
        "--rating-range",
        "1,5",
        "--epsilon",
        5,
    )
    result = run(
        *call, "--noise", "seeded", "--random-state", 91827364, "--out", tmp_path / "m", "--json"
    )
    assert result.code == 0, result.err
    assert "91827364" not in result.out


@pytest.mark.parametrize("model", [[], ["--model", "als"], ["--model", "popularity"]])
def test_a_model_without_privacy_is_trained_only_where_that_is_said(run, private, tmp_path, model):
    """Forgetting --epsilon must not give a model that gives people away."""
    call = ["train", private / "ratings.csv", *model, "--out", tmp_path / "m"]
    refused = run(*call)
    assert (refused.code, refused.out) == (2, "")
    assert "is not private: pass --epsilon, for example --epsilon 1" in refused.err
    assert refused.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    meant = run(*call, "--not-private")
    assert meant.code == 0, meant.err
    assert "This model is NOT private" in meant.out


@pytest.mark.parametrize("model", [[], ["--model", "dpals"]])
def test_private_and_not_private_exclude_each_other(run, private, tmp_path, model):
    result = run(
        "train",
        private / "ratings.csv",
        "--epsilon",
        1,
        "--not-private",
        *model,
        "--out",
        tmp_path / "m",
    )
    assert (result.code, result.out) == (2, "")
    assert "is private: leave out --not-private" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("own_columns", "is_proposed"), [(2, False), (1, True)])
def test_similar_is_proposed_only_where_taste_was_learned(own_columns, is_proposed):
    """What is users' own, such as a slope, is among the factors too, but says nothing of taste."""
    model = SimpleNamespace(
        item_ids_=np.arange(3),
        item_factors_=np.ones((3, 2)),
        item_similarity=lambda: ItemSimilarity(own_columns),
    )
    assert any(" similar " in line for line in examples("model/", model)) == is_proposed
