"""The recommenders. `MODELS` maps each name to its file.

`base` has what every fitted model can do. Models without privacy (`als`, `irls`, `ease`, `bias`,
`popularity`) are one file each. Private ones have the algorithm and the model class in one file:
parameters, their documentation and their defaults. Their `fit` is in `private`, written once.
`storage` saves and loads.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MODELS", "model_class"]

MODELS = {
    "ALS": "discreet.models.als",
    "Bias": "discreet.models.bias",
    "DPALS": "discreet.models.dpals",
    "DPFrankWolfe": "discreet.models.frank_wolfe",
    "DPLMC": "discreet.models.dplmc",
    "DPMF": "discreet.models.dpmf",
    "DPSGD": "discreet.models.dpsgd",
    "DPSGLD": "discreet.models.dpsgld",
    "DPSVD": "discreet.models.dpsvd",
    "EASE": "discreet.models.ease",
    "HuberALS": "discreet.models.huber_als",
    "IRLS": "discreet.models.irls",
    "Popularity": "discreet.models.popularity",
}


def model_class(name: str) -> Any:
    """Return the class of that name, imported on first use."""
    return getattr(importlib.import_module(MODELS[name]), name)
