"""Folders of models that strangers made: a sentence and exit code 2, or a sound load; no abort,
no hang.
"""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import discreet
from discreet.errors import ConfigError, DataError
from support import folder_mutations

HERE = Path(__file__).parent
PRIVATE = {"epsilon": 50.0, "rating_range": (1.0, 5.0)}
MODELS = {
    "ALS": partial(discreet.ALS, 3, iterations=2),
    "ALS implicit": partial(discreet.ALS, 3, iterations=2, goal="ranking"),
    "IRLS": partial(discreet.IRLS, 3, iterations=2),
    "EASE": partial(discreet.EASE, 5.0),
    "Bias": discreet.Bias,
    "Popularity": discreet.Popularity,
    "DPMF": partial(discreet.DPMF, 3, **PRIVATE),
    "DPMF rating": partial(discreet.DPMF, 3, goal="rating", **PRIVATE),
    "DPALS": partial(discreet.DPALS, 3, iterations=2, **PRIVATE),
    "DPLMC": partial(discreet.DPLMC, 3, iterations=2, **PRIVATE),
    "HuberALS": partial(discreet.HuberALS, 3, iterations=2, **PRIVATE),
    "DPFrankWolfe": partial(discreet.DPFrankWolfe, 3, **PRIVATE),
    "DPSVD": partial(discreet.DPSVD, 3, **PRIVATE),
    "DPSGLD": partial(discreet.DPSGLD, 3, iterations=3, **PRIVATE),
    "DPSGD": partial(discreet.DPSGD, 3, iterations=3, **PRIVATE),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A folder with a folder of every model."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((200, 12)) < 0.5)
    stars = np.clip(np.round(3 + rng.normal(size=200)[user] * rng.normal(size=12)[item]), 1, 5)
    ratings = discreet.Ratings.from_arrays(
        user, item, stars, item_ids=range(12), titles=[f"Film {j}" for j in range(12)]
    )
    folder = tmp_path_factory.mktemp("originals")
    for name, make in MODELS.items():
        make().fit(ratings).save(folder / name)
    return folder


def test_every_model_is_here():
    assert {name.split()[0] for name in MODELS} == set(discreet.models.MODELS)


#: Folders to damage, for each of two seeds.
MANY = int(os.environ.get("DISCREET_DAMAGED", "250"))


@pytest.mark.parametrize("seed", [0, 1])
def test_many_damaged_folders(originals, tmp_path, seed):
    """In a process of its own, so that an abort would be seen; what hangs ends with another
    code.
    """
    script = Path(folder_mutations.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(originals), str(tmp_path), str(MANY), str(seed)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert sum(found["codes"].values()) == MANY
    assert found["codes"]["2"] > 0.6 * MANY  # and some are no damage at all
    assert found["codes"]["0"] > 0.04 * MANY


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.bool_, np.float16])
@pytest.mark.parametrize("command", ["recommend", "report"])
def test_arrays_of_other_numbers_end_no_process(originals, tmp_path, dtype, command):
    """They corrupted the heap once; so each has a process of its own."""
    folder = folder_mutations.damaged(originals / "ALS", tmp_path, lambda *_: None, None)
    arrays = load_file(folder / "factors.safetensors")
    save_file(
        {name: array.astype(dtype) for name, array in arrays.items()},
        folder / "factors.safetensors",
    )
    folder_mutations.put_right(folder)
    more = (
        ["--history", "3"] if command == "recommend" else ["--out", str(tmp_path / "report.html")]
    )
    done = subprocess.run(
        [sys.executable, "-m", "discreet", command, str(folder), *more],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(
        r"discreet: .* holds '?\w+'?, but must be float32 or float64\)?\n", done.stderr
    )


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float16, object])
def test_arrays_of_other_numbers_are_refused_where_they_are_assigned(originals, dtype):
    model = discreet.load(originals / "ALS")
    model.item_factors_ = model.item_factors_.astype(dtype)
    with pytest.raises(
        ConfigError, match=r"item_factors_ is an array .* but must be one of float32 or float64"
    ):
        model.recommend([3])


def edited(originals, tmp_path, name, **changes):
    """The folder of a model with other parameters, and every checksum put right."""
    folder = folder_mutations.damaged(originals / name, tmp_path, lambda *_: None, None)
    document = json.loads((folder / "model.json").read_bytes())
    document["parameters"] |= changes
    folder_mutations.put_right(folder, document)
    return folder


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("DP", "Huber"))])
@pytest.mark.parametrize(
    "changes",
    [{"epsilon": 1.0}, {"epsilon": 500.0}, {"delta": 1e-9}, {"neighboring": "replace-one"}],
)
def test_an_edited_promise_is_found(originals, tmp_path, name, changes):
    with pytest.raises(
        DataError, match=r"state another guarantee than (its )?ledger.json|but Poisson batches"
    ):
        discreet.load(edited(originals, tmp_path, name, **changes))


def test_seeded_noise_does_not_become_secure(originals, tmp_path):
    ratings = discreet.Ratings.from_arrays(np.arange(300), np.arange(300) % 12, item_ids=range(12))
    model = discreet.DPMF(3, epsilon=50.0, noise="seeded", random_state=1).fit(ratings)
    model.save(tmp_path / "seeded" / "DPMF")
    assert discreet.load(tmp_path / "seeded" / "DPMF").privacy_.cautions
    with pytest.raises(DataError, match=r"state another guarantee than (its )?ledger.json"):
        discreet.load(edited(tmp_path / "seeded", tmp_path, "DPMF", noise="secure"))


def test_what_is_not_changed_loads(originals, tmp_path):
    for name in MODELS:
        before = discreet.load(originals / name)
        after = discreet.load(edited(originals, tmp_path, name))
        assert all(map(np.array_equal, before.recommend([1, 2]), after.recommend([1, 2]))), name


def test_a_pipe_in_the_place_of_a_ledger_hangs_nobody_who_saves(originals, tmp_path):
    folder = folder_mutations.damaged(originals / "DPMF", tmp_path, lambda *_: None, None)
    (folder / "ledger.json").unlink()
    os.mkfifo(folder / "ledger.json")
    with pytest.raises(DataError, match=r"ledger.json is not a regular file"):
        discreet.load(originals / "ALS").save(folder, replace=True)


def test_a_model_of_random_batches_loads_without_the_extra(originals):
    """The chain is verified, and ε is what it was sealed with, because nothing here could
    compute it again.
    """
    script = """if True:
        import sys
        sys.modules["dp_accounting"] = None
        import discreet
        model = discreet.load(sys.argv[1])
        stated = model.privacy_.ledger.as_stated
        print(model.privacy_.epsilon, len(model.recommend([1, 2])[0]), stated)
        assert "The ε is the one stated in the ledger" in str(model.privacy_)
        model.save(sys.argv[2])
        assert discreet.load(sys.argv[2]).privacy_ == model.privacy_
        assert model.privacy_.ledger.to_dict()["seal"]
    """
    again = originals.parent / "again"
    done = subprocess.run(
        [sys.executable, "-c", script, str(originals / "DPSGD"), str(again)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    there = discreet.load(originals / "DPSGD").privacy_
    assert done.stdout.split() == [str(there.epsilon), "10", "True"], done.stderr
    assert not there.ledger.as_stated
    assert there.accountant == "pld"
    assert discreet.load(again).privacy_ == there
