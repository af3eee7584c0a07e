"""The entries about DPMF name levers that exist, and every one of them makes a model that can
be fitted.
"""

import re
import sys

import discreet
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from research import beyond, beyond_references, rating_levers, rating_rules
from research import entry as entries
from research.families import FAMILIES
from research.sources import Sources

FREE = {"user's own mean", "bias, not private", "ALS, not private", "popular"}


def _named(entry, setting):
    return {cell[setting] for cell in entries.load(entry).settings(Sources())} - FREE


def test_entries_name_what_there_is():
    """Quick versions run a few cells only; a wrong name elsewhere would be found after an hour."""
    assert _named("beyond-ablation", "lever") == set(beyond.LEVERS)
    assert _named("beyond-features", "prior") == set(beyond.PRIORS)
    assert _named("beyond-floor", "model") == set(beyond.FLOORS)
    assert _named("beyond-dense", "family") == set(beyond_references.DENSE)
    assert _named("beyond-ratings", "data") <= {*beyond_references.GOALS, "cinema"}
    assert _named("beyond-levers", "change") == set(rating_levers.CHANGES) | set(
        rating_levers.PAPER_CHANGES
    )


def test_dense_sets_have_enough_people():
    for kind in beyond_references.DENSE.values():
        assert kind.users >= 20_000
        assert kind.per_user >= 0.1 * kind.items


def test_rules_are_compared_with_the_default(tmp_path, monkeypatch):
    """The script that chooses runs whole, here with few settings and people."""
    few = {"biases alone": {"factors": 0}, "default again": {}}
    monkeypatch.setattr(rating_rules, "SETTINGS", few)
    some = (("cinema", discreet.load_dataset("cinema", scale=0.02), (0.5, 5.0)),)
    monkeypatch.setattr(rating_rules, "sets", lambda people, given: some)
    out = tmp_path / "rules.md"
    monkeypatch.setattr(
        sys, "argv", ["rating_rules", "--epsilon", "20", "--draws", "1", "--out", str(out)]
    )
    rating_rules.main()
    head, _, biases, again, *rest = out.read_text(encoding="utf-8").splitlines()
    assert head == "| setting | ε = 20 |"
    assert re.fullmatch(r"\| biases alone \| [+-]0\.\d\d \([+-]0\.\d\d, cinema\) \|", biases)
    assert "+0.00 (+0.00" not in biases
    assert again == "| default again | +0.00 (+0.00, cinema) |"
    assert rest[-1] == 'Sets: "cinema".'


def test_levers_end_at_the_defaults():
    levers = beyond.LEVERS
    for kind, given in levers.values():
        beyond._private(kind, {"epsilon": 5.0, "seed": 0}, given, "rating").check()
    last = {name.rpartition(": ")[2]: lever for name, lever in levers.items() if ": " in name}
    assert all(last[kind.__name__] == (kind, {}) for kind in {kind for kind, _ in levers.values()})


def test_a_change_is_one_parameter_or_a_lever_with_parts():
    for change in rating_levers.OTHERS.values():
        assert len(change.given) == 1
        assert not change.parts
    for kind, changes in ((DPMF, rating_levers.CHANGES), (DPALS, rating_levers.PAPER_CHANGES)):
        for change in changes.values():
            given = change if kind is DPALS else change.given
            beyond._private(kind, {"epsilon": 5.0, "seed": 0}, given, "rating").check()


def test_levers_change_what_they_name_and_nothing_stays_changed():
    """On a small set where taste is learned, whose gates are all passed."""
    changes = rating_levers.LEVERS | rating_levers.FEATURES
    parts = [part for change in changes.values() for part in change.parts]
    before = [getattr(where, name) for where, name, _ in parts]
    settings = {"data": "canteen", "scale": 1.0, "seed": 1, "epsilon": 20}
    found = {name: rating_levers.change(settings | {"change": name}, Sources()) for name in changes}
    assert [getattr(where, name) for where, name, _ in parts] == before
    assert found["DPMF by default"]["worse, %"] == 0
    assert found["biases alone"]["worse, %"] > 1
    passed = {
        "pairs whatever they cost",
        "pairs however few ratings",
        "factors never given up",
        "no gate at all",
    }
    passed |= {"steps never taken back", "ranks are not compared", "DPMF by default"}
    passed.add("vectors not bounded")  # none comes near the bound here
    assert {name for name, record in found.items() if record["worse, %"] == 0} == passed


def test_fresh_families_are_no_family_that_rules_were_chosen_on():
    shapes = {(one.users, one.items, one.per_user) for one in FAMILIES}
    assert (
        not {(one.users, one.items, one.per_user) for one in rating_levers.FRESH.values()} & shapes
    )
