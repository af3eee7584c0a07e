"""discreet: matrix-factorisation recommenders trained with user-level differential privacy.

The names below are the public API. They are imported on first use, so that ``import discreet`` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.data.datasets import load_dataset
    from discreet.data.ratings import Ratings
    from discreet.data.splits import Split
    from discreet.evaluation.protocols import evaluate
    from discreet.models.als import ALS
    from discreet.models.bias import Bias
    from discreet.models.popularity import Popularity
    from discreet.models.store import load

__version__ = "0.1.0"

_HOME = {
    "ALS": "discreet.models.als",
    "Bias": "discreet.models.bias",
    "Popularity": "discreet.models.popularity",
    "Ratings": "discreet.data.ratings",
    "Split": "discreet.data.splits",
    "evaluate": "discreet.evaluation.protocols",
    "load": "discreet.models.store",
    "load_dataset": "discreet.data.datasets",
}

__all__ = ["ALS", "Bias", "Popularity", "Ratings", "Split", "__version__", "evaluate", "load", "load_dataset"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "errors":
        return importlib.import_module("discreet.errors")
    raise AttributeError(f"module 'discreet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
