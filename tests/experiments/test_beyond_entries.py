"""The entries about DPMF name levers that exist, and every one of them makes a model that can be fitted."""

import pytest

from discreet.experiments import beyond
from discreet.experiments import entry as entries
from discreet.experiments.sources import Sources
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF

FREE = {"user's own mean", "bias, not private", "ALS, not private", "popular"}


def _named(entry, setting):
    return {cell[setting] for cell in entries.load(entry).settings(Sources())} - FREE


def test_entries_name_what_there_is():
    """Quick versions run a few cells only; a wrong name elsewhere would be found after an hour."""
    assert _named("beyond-ablation", "lever") == set(beyond.LEVERS["explicit"])
    assert _named("beyond-implicit", "lever") == set(beyond.LEVERS["implicit"])
    assert _named("beyond-features", "prior") == set(beyond.PRIORS)
    assert _named("beyond-floor", "model") == set(beyond.FLOORS)
    assert _named("beyond-levers", "change") == set(beyond.CHANGES) | set(beyond.PAPER_CHANGES)


@pytest.mark.parametrize("feedback", ["explicit", "implicit"])
def test_levers_end_at_the_defaults(feedback):
    levers = beyond.LEVERS[feedback]
    for kind, given in levers.values():
        beyond._private(kind, {"epsilon": 5.0, "seed": 0}, given, feedback).check()
    last = {name.rpartition(": ")[2]: lever for name, lever in levers.items() if ": " in name}
    assert all(last[kind.__name__] == (kind, {}) for kind in {kind for kind, _ in levers.values()})


@pytest.mark.parametrize("kind", [DPMF, DPALS])
def test_a_change_is_one_parameter(kind):
    changes = beyond.CHANGES if kind is DPMF else beyond.PAPER_CHANGES
    for change in changes.values():
        assert len(change) <= 1
        beyond._private(kind, {"epsilon": 5.0, "seed": 0}, change, "explicit").check()
