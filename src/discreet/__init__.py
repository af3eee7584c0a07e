"""discreet: matrix-factorization recommenders trained with user-level differential privacy.

The names in ``__all__`` are the public API. They are imported on first use, so that ``import
discreet`` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from discreet.models import MODELS
from discreet.version import __version__

if TYPE_CHECKING:
    from discreet import errors, mechanisms, report
    from discreet.auditing import audit
    from discreet.data.datasets import load_dataset
    from discreet.data.ratings import Ratings
    from discreet.data.splits import Split
    from discreet.engines.blocks import BlockRatings
    from discreet.engines.spark import SparkRatings
    from discreet.evaluation.evaluator import evaluate
    from discreet.evaluation.tuning import tune
    from discreet.models.als import ALS
    from discreet.models.bias import Bias
    from discreet.models.dpals import DPALS
    from discreet.models.dplmc import DPLMC
    from discreet.models.dpmf import DPMF
    from discreet.models.dpsgd import DPSGD
    from discreet.models.dpsgld import DPSGLD
    from discreet.models.dpsvd import DPSVD
    from discreet.models.frank_wolfe import DPFrankWolfe
    from discreet.models.huber_als import HuberALS
    from discreet.models.irls import IRLS
    from discreet.models.popularity import Popularity
    from discreet.models.recommend_table import recommend_table
    from discreet.models.storage.save_load import load
    from discreet.privacy.release.budget_store import BudgetStore
    from discreet.report import write_report

__all__ = [
    "ALS",
    "DPALS",
    "DPLMC",
    "DPMF",
    "DPSGD",
    "DPSGLD",
    "DPSVD",
    "IRLS",
    "Bias",
    "BlockRatings",
    "BudgetStore",
    "DPFrankWolfe",
    "HuberALS",
    "Popularity",
    "Ratings",
    "SparkRatings",
    "Split",
    "__version__",
    "audit",
    "errors",
    "evaluate",
    "load",
    "load_dataset",
    "mechanisms",
    "recommend_table",
    "report",
    "tune",
    "write_report",
]

_HOME = MODELS | {
    "BlockRatings": "discreet.engines.blocks",
    "SparkRatings": "discreet.engines.spark",
    "BudgetStore": "discreet.privacy.release.budget_store",
    "Ratings": "discreet.data.ratings",
    "Split": "discreet.data.splits",
    "audit": "discreet.auditing",
    "evaluate": "discreet.evaluation.evaluator",
    "tune": "discreet.evaluation.tuning",
    "load": "discreet.models.storage.save_load",
    "load_dataset": "discreet.data.datasets",
    "recommend_table": "discreet.models.recommend_table",
    "write_report": "discreet.report",
}
_MODULES = ("errors", "mechanisms", "report")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"discreet.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
