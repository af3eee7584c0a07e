"""How good a model is: metrics are pure functions, protocols ask a model about ratings it has not
seen.

`metrics` has one function per metric, `protocols` has `evaluate`, `results` the tables that it
returns, `priced` the same as a release, and `tuning` has `tune`. The names below are public, and
imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.evaluation.evaluator import evaluate
    from discreet.evaluation.private_scores import PrivateEvaluation
    from discreet.evaluation.results import Evaluation, Slice
    from discreet.evaluation.tuning import Between, TuningResult, tune

__all__ = [
    "Between",
    "Evaluation",
    "PrivateEvaluation",
    "Slice",
    "TuningResult",
    "evaluate",
    "tune",
]

_HOME = {
    "Between": "tuning",
    "Evaluation": "results",
    "PrivateEvaluation": "private_scores",
    "Slice": "results",
    "TuningResult": "tuning",
    "evaluate": "evaluator",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
