"""Compiled functions on plain arrays. They know neither people nor privacy; each has a numpy twin
in the same file.

The names below are public and imported on first use: loading the compiler takes longer than
answering one question, and `reference` answers it without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.kernels.blas import second_moment, tall_product
    from discreet.kernels.cholesky import solve_spd
    from discreet.kernels.dot_products import pair_products
    from discreet.kernels.gather import allocate_aligned_array, on_cache_lines, sum_rows
    from discreet.kernels.gradient import residual_rows
    from discreet.kernels.integer_sums import pack_grams
    from discreet.kernels.least_squares import solve_rows, solve_rows_constant
    from discreet.kernels.profiles import log_lifts
    from discreet.kernels.psd import project_psd, solve_psd
    from discreet.kernels.threads import set_threads, thread_count
    from discreet.kernels.topk import Panels, top_k

__all__ = [
    "Panels",
    "allocate_aligned_array",
    "log_lifts",
    "on_cache_lines",
    "pack_grams",
    "pair_products",
    "project_psd",
    "residual_rows",
    "second_moment",
    "set_threads",
    "solve_psd",
    "solve_rows",
    "solve_rows_constant",
    "solve_spd",
    "sum_rows",
    "tall_product",
    "thread_count",
    "top_k",
]

_HOME = {
    "Panels": "topk",
    "allocate_aligned_array": "gather",
    "log_lifts": "profiles",
    "on_cache_lines": "gather",
    "pack_grams": "integer_sums",
    "pair_products": "dot_products",
    "project_psd": "psd",
    "residual_rows": "gradient",
    "second_moment": "blas",
    "set_threads": "threads",
    "solve_psd": "psd",
    "solve_rows": "least_squares",
    "solve_rows_constant": "least_squares",
    "solve_spd": "cholesky",
    "sum_rows": "gather",
    "tall_product": "blas",
    "thread_count": "threads",
    "top_k": "topk",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet.kernels' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"discreet.kernels.{_HOME[name]}"), name)
    globals()[name] = found
    return found
