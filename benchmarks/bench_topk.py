"""The best items of every user, compared with the matrix product that scores them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.bench_machine import twin
from discreet.kernels import top_k
from discreet.kernels.threads import even_cuts, run


def benchmark(quick: bool) -> dict[str, Any]:
    """Seconds of ranking for all users, and of the scores alone."""
    ratings = twin(quick)
    r = 64
    rng = np.random.default_rng(0)
    U = rng.standard_normal((ratings.n_users, r), dtype=np.float32)
    V = rng.standard_normal((ratings.n_items, r), dtype=np.float32)
    bias = np.zeros(len(V), np.float32)
    seen = (ratings.indptr, ratings.indices)
    ours, product = np.inf, np.inf
    for _ in range(3):
        start = time.perf_counter()
        top_k(U, V, bias, 20, seen)
        ours = min(ours, time.perf_counter() - start)
        start = time.perf_counter()
        _score_all(U, V)
        product = min(product, time.perf_counter() - start)
    return {"users": len(U), "items": len(V), "rank": r, "seconds": ours, "product": product}


def _score_all(U: np.ndarray, V: np.ndarray) -> None:
    """All scores, thrown away block by block: what a ranking costs at least."""

    def work(start: int, stop: int) -> None:
        for first in range(start, stop, 512):
            U[first : min(first + 512, stop)] @ V.T

    run(work, even_cuts(len(U)))


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    return [
        "## The twenty best items of every user",
        "",
        (
            f"{result['users']:,} users × {result['items']:,} items, rank {result['rank']}, seen"
            f" items left out: {result['seconds']:.2f} s; the matrix product of the scores alone"
            f" takes {result['product']:.2f} s, so ranking runs at"
            f" {100 * result['product'] / result['seconds']:.0f} % of its rate (goal: 50 %)."
        ),
    ]
