"""Lists are measured on people whom no model has seen, and rules are chosen on validation parts."""

import numpy as np
import pytest

from research import ranking, ranking_rules
from research.sources import Sources

SETTINGS = dict(data="family: few people", epsilon=20.0, held=0.1, scale=0.001, seed=0)


def people(**changes):
    given = SETTINGS | changes
    return ranking.held_out(given["data"], given["held"], given["scale"], given["seed"], Sources())


def test_nobody_who_is_held_out_is_learned_from():
    found = people()
    held = set(found.split.test.known.user_ids.tolist())
    assert held.isdisjoint(found.everything.user_ids.tolist())
    assert held.isdisjoint(found.split.train.user_ids.tolist())
    assert np.array_equal(found.everything.user_ids, found.split.train.user_ids)
    assert np.array_equal(found.everything.item_ids, found.split.train.item_ids)
    assert set(np.unique(found.split.train.values)) == {1.0}
    assert (found.split.test.known.values >= 4).all()


@pytest.mark.parametrize(
    "model",
    ["popularity, not private", "private popularity", "DPMF", "pairs with a cut spectrum", "DPALS"],
)
def test_every_row_has_its_numbers(model):
    found = ranking.run(SETTINGS | {"model": model}, Sources())
    assert 0 < found["recall@20"] < 1
    assert 0 < found["coverage@20"] <= 1
    assert {f"quintile {k}" for k in range(1, 6)} <= set(found)
    if "not private" not in model:
        assert found["true_epsilon"] <= 20.0
    if model == "private popularity":
        assert found["core"] == 0
    if model in ("DPMF", "pairs with a cut spectrum"):
        assert found["core"] >= 20


def test_rules_are_chosen_beside_popularity(capsys):
    ranking_rules.main(
        [
            "--data",
            "family: small shop",
            "--epsilon",
            "5",
            "--seeds",
            "1",
            "--most-users",
            "1500",
            "--try",
            "gate=1e6",
        ]
    )
    (line,) = capsys.readouterr().out.splitlines()
    words = line.split("  ")
    assert words[0] == "family: small shop"
    found = {name: float(value) for name, value in (word.rsplit(" ", 1) for word in words[1:])}
    assert found["epsilon"] == 5
    assert found['{"gate": 1000000.0}'] == found["popularity"] > 0
    assert found["{}"] > 0
