"""How good a model is: metrics are pure functions, protocols ask a model about ratings it has not seen.

`metrics` has one function per metric, `protocols` has `evaluate`, and `results` the tables that it returns. The names
below are public, and imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.evaluation.protocols import evaluate
    from discreet.evaluation.results import Evaluation, Slice

__all__ = ["Evaluation", "Slice", "evaluate"]

_HOME = {"Evaluation": "results", "Slice": "results", "evaluate": "protocols"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
