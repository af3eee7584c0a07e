"""Ratings, and every way to get them: files, frames, sparse matrices, known data sets, generated
data.

`ratings` is what all else makes and takes; `files`, `text`, `frames` and `csr` read; `catalog` and
`features` are what is public about items; `datasets` knows the official archives; `splits` holds
ratings out; `cinema` is generated. The names below are public, and imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.data.catalog import Catalog
    from discreet.data.datasets import load_dataset
    from discreet.data.ratings import Ratings
    from discreet.data.splits import Holdout, Split

__all__ = ["Catalog", "Holdout", "Ratings", "Split", "load_dataset"]

_HOME = {
    "Catalog": "catalog",
    "Holdout": "splits",
    "Ratings": "ratings",
    "Split": "splits",
    "load_dataset": "datasets",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
