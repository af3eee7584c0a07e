"""Ledgers outlive the models that they are about: a private model is not replaced by accident,
nor its ledger lost.
"""

import json
import shutil

import numpy as np
import pytest

import discreet
from discreet.errors import ConfigError
from discreet.models.storage import save_load
from discreet.privacy.release.ledger import Ledger

OPEN = {"factors.safetensors", "model.json", "README.md"}
PRIVATE = OPEN | {"ledger.json"}


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((150, 12)) < 0.5)
    return discreet.Ratings.from_arrays(
        user, item, rng.integers(1, 6, len(user)), item_ids=range(12)
    )


@pytest.fixture(scope="module")
def models(ratings):
    """Three private models and an open one."""
    private = [
        discreet.DPALS(2, epsilon=epsilon, rating_range=(1, 5)).fit(ratings)
        for epsilon in (20, 30, 40)
    ]
    return [*private, discreet.Bias().fit(ratings)]


def names(folder):
    return {file.name for file in folder.iterdir()}


def earlier(folder):
    """ε of the earlier ledgers, each of which is whole."""
    return sorted(
        Ledger.load(file).plan.budget.epsilon for file in folder.glob("earlier-ledger-*.json")
    )


def test_a_private_model_is_replaced_only_where_that_is_asked_for(models, tmp_path):
    first, second, third, opened = models
    folder = tmp_path / "m"
    first.save(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for other in (second, opened, first):
        with pytest.raises(
            ConfigError, match=r"m holds a private model. Choose a new folder, or pass replace=True"
        ):
            other.save(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    second.save(folder, replace=True)
    assert discreet.load(folder).privacy_.ledger.plan.budget.epsilon == 30
    assert earlier(folder) == [20]
    third.save(folder, replace=True)
    assert earlier(folder) == [20, 30]
    assert len(names(folder) - PRIVATE) == 2
    card = (folder / "README.md").read_text()
    assert all(name in card for name in names(folder) - PRIVATE)
    assert "privacy costs add up" in card
    assert not list(tmp_path.glob("m.*"))


def test_an_open_model_in_the_place_of_a_private_one_keeps_the_ledger_too(models, tmp_path):
    first, second, _, opened = models
    folder = tmp_path / "m"
    first.save(folder)
    kept = (folder / "ledger.json").read_bytes()
    opened.save(folder, replace=True)
    assert earlier(folder) == [20]
    assert len(names(folder) - OPEN) == 1
    assert next(folder.glob("earlier-*")).read_bytes() == kept
    assert isinstance(discreet.load(folder), discreet.Bias)
    with pytest.raises(ConfigError, match="replace=True"):
        opened.save(folder)
    second.save(folder, replace=True)
    assert earlier(folder) == [20]


def test_an_open_model_is_replaced_as_it_always_was(models, tmp_path):
    models[3].save(tmp_path / "m")
    models[3].save(tmp_path / "m")
    models[0].save(tmp_path / "m")
    assert names(tmp_path / "m") == PRIVATE


def test_a_model_does_not_come_before_itself(models, tmp_path):
    models[0].save(tmp_path / "m")
    discreet.load(tmp_path / "m").save(tmp_path / "m", replace=True)
    assert names(tmp_path / "m") == PRIVATE


def test_two_trainings_with_the_same_parameters_are_two(ratings, tmp_path):
    """Their ledgers differ in nothing but their ids; fits of one model, saved after each, are
    kept once each.
    """
    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5))
    for fits in (1, 2, 3):
        model.fit(ratings).save(tmp_path / "one", replace=True)
        discreet.DPALS(2, epsilon=20, rating_range=(1, 5)).fit(ratings).save(
            tmp_path / "many", replace=True
        )
        for folder in ("one", "many"):
            ids = [
                json.loads(file.read_text())["id"] for file in (tmp_path / folder).glob("*ledger*")
            ]
            assert len(set(ids)) == len(ids) == fits


def test_earlier_ledgers_are_part_of_what_is_checked(models, tmp_path):
    folder = tmp_path / "m"
    models[0].save(folder)
    models[1].save(folder, replace=True)
    (file,) = folder.glob("earlier-*")
    assert file.name in json.loads((folder / "model.json").read_text())["sha256"]
    file.write_text("{}")
    with pytest.raises(discreet.errors.DataError, match="damaged or was changed"):
        discreet.load(folder)


def test_of_two_that_save_at_the_same_time_no_ledger_is_lost(models, tmp_path, monkeypatch):
    """The second finds the first in its place only when it changes places with it."""
    folder = tmp_path / "m"
    models[3].save(folder)
    swap = save_load.swap_folders

    def late(one, other):
        monkeypatch.setattr(save_load, "swap_folders", swap)
        models[0].save(folder)
        swap(one, other)

    monkeypatch.setattr(save_load, "swap_folders", late)
    models[1].save(folder)
    assert discreet.load(folder).privacy_.ledger.plan.budget.epsilon == 30
    (beside,) = tmp_path.glob("m.earlier-ledger-*.json")
    assert Ledger.load(beside).plan.budget.epsilon == 20


def test_a_ledger_that_is_gone_is_no_trouble(models, tmp_path):
    folder = tmp_path / "m"
    models[0].save(folder)
    (folder / "ledger.json").unlink()
    models[1].save(folder, replace=True)
    assert names(folder) == PRIVATE
    shutil.rmtree(folder)
