"""DPMF against private popularity on the same noise (docs/dpmf.md): the floor of its lists.

As in `research.ranking`: a tenth of the users is held out. Where DPMF decides for popularity itself
both are the same model, so that differences are those of the decision alone, and not of two draws
of noise.
"""

from __future__ import annotations

from typing import Any

from research.entry import Record, Settings
from research.ranking import held_out, measured, ours
from research.sources import Sources
from research.sparse import compare_trainings


def run(settings: Settings, sources: Sources) -> Record:
    """``data``, ``epsilon``, ``held`` (part of the users), ``scale``, ``seed`` (of the split),
    ``noise`` (pairs of trainings of which a cell is the mean).
    """
    names = ("data", "held", "scale", "seed")
    people = held_out(*(settings[name] for name in names), sources)
    promise: dict[str, Any] = {"epsilon": settings["epsilon"], "delta": 1e-6, "noise": "seeded"}

    def train(model: str, seed: int) -> Record:
        fitted = ours(model, people, promise | {"random_state": seed}).fit(people.everything)
        found = measured(fitted, people)
        return found | {"communities": float(len(fitted.details_.get("communities", ())))}

    pairs = [
        [train(model, seed) for model in ("DPMF", "private popularity")]
        for seed in range(settings["noise"])
    ]
    same = sum(one["dimensions"] == 0 for one, _ in pairs) / len(pairs)
    return compare_trainings(pairs) | {"popularity itself": same}
