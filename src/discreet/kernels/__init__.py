"""Compiled functions on plain arrays. They know neither people nor privacy; each has a numpy twin in the same file."""

from discreet.kernels.cholesky import solve_spd
from discreet.kernels.dense import second_moment, tall_product
from discreet.kernels.exact import packed_grams
from discreet.kernels.normal import solve_rows, solve_rows_constant
from discreet.kernels.packed import aligned_empty, on_cache_lines, sum_rows
from discreet.kernels.pairs import pair_products
from discreet.kernels.psd import project_psd, solve_psd
from discreet.kernels.threads import set_threads, thread_count
from discreet.kernels.topk import Panels, top_k

__all__ = [
    "Panels",
    "aligned_empty",
    "on_cache_lines",
    "packed_grams",
    "pair_products",
    "project_psd",
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
