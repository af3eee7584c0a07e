"""Models on the Hugging Face Hub, against a stand-in for its HTTP interface."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import discreet
from discreet.errors import PrivacyError
from support import fake_hub
from support.served_models import ratings

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
    import json
    import numpy as np
    import discreet
    from discreet.errors import ConfigError, DataError

    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((200, 20)) < 0.4)
    stars = 1.0 + (users + items) % 5
    ratings = discreet.Ratings.from_arrays(users, items, stars, item_ids=np.arange(20))

    def outcome(call):
        try:
            return str(call())
        except (ConfigError, DataError) as error:
            return f"{type(error).__name__}: {error}"

    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5), item_fraction=0.5).fit(ratings)
    first = model.push_to_hub("user/films")
    loaded = discreet.load("hf://user/films")
    again = model.fit(ratings)
    refused = outcome(lambda: again.push_to_hub("user/films"))
    second = again.push_to_hub("user/films", replace=True)
    same = [
        np.array_equal(discreet.load(where).item_factors_, of)
        for where, of in (
            (first, loaded.item_factors_), (second, again.item_factors_),
            ("hf://user/films", again.item_factors_),
        )
    ]
    missing = outcome(lambda: discreet.load("hf://user/nothing"))
    print(json.dumps({
        "first": first, "refused": refused, "same": same, "missing": missing,
        "statement": str(loaded.privacy_), "private": loaded.privacy_.private,
    }))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the program printed, and what the Hub holds afterwards."""
    with fake_hub.serve() as (address, held):
        settings = {
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path_factory.mktemp("hub")),
            "HF_TOKEN": fake_hub.TOKEN,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr + "\n".join(held.asked)
    return json.loads(done.stdout.splitlines()[-1]), held


def test_a_model_comes_back_to_the_bit_and_so_does_an_earlier_revision(told):
    assert told[0]["same"] == [True, True, True]
    assert told[0]["private"]
    assert "ε = 20" in told[0]["statement"]


def test_a_hub_model_is_replaced_only_on_demand_and_keeps_its_ledger(told):
    said, held = told
    assert said["refused"] == "ConfigError: user/films has a model already: pass replace=True"
    *_, last = held.commits["user/films"]
    assert {"README.md", "factors.safetensors", "ledger.json", "model.json"} < set(last[1])
    assert len([name for name in last[1] if name.startswith("earlier-ledger-")]) == 1
    assert not [name for name in last[1] if name.startswith(".")]


def test_what_is_not_there_is_said_in_one_sentence(told):
    assert told[0]["missing"].startswith("DataError: hf://user/nothing cannot be loaded: ")


def test_models_without_privacy_are_not_published():
    seeded = discreet.DPALS(
        2, epsilon=20, rating_range=(1, 5), item_fraction=0.5, noise="seeded", random_state=1
    )
    for model in (discreet.Popularity(), seeded):
        with pytest.raises(PrivacyError, match="is not private"):
            model.fit(ratings()).push_to_hub("user/films")
