"""The recommenders, each in a file of its own that reads like its paper; see `MODELS` for where."""

from __future__ import annotations

import importlib
from typing import Any

MODELS = {
    "ALS": "discreet.models.als",
    "Bias": "discreet.models.bias",
    "DPALS": "discreet.models.dpals",
    "DPFrankWolfe": "discreet.models.baselines",
    "DPLMC": "discreet.models.dplmc",
    "DPMF": "discreet.models.dpmf",
    "DPSGD": "discreet.models.baselines",
    "DPSGLD": "discreet.models.baselines",
    "DPSVD": "discreet.models.baselines",
    "HuberALS": "discreet.models.huber",
    "IRLS": "discreet.models.irls",
    "Popularity": "discreet.models.popularity",
}


def model_class(name: str) -> Any:
    """The class of that name, imported on first use."""
    return getattr(importlib.import_module(MODELS[name]), name)
