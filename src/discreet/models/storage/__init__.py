"""Models on disk: a folder of plain files, never a pickle.

`save_load` saves and loads, `model_card` writes the README of a saved model, `ledger_history` keeps
earlier ledgers. `save` and `load` are public.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.models.storage.save_load import load, save

__all__ = ["load", "save"]


def __getattr__(name: str) -> Any:
    """Import on first use, because models import their folders."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("discreet.models.storage.save_load"), name)
