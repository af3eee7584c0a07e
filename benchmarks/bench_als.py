"""One sweep of exact least squares, compared with the ``implicit`` package and the machine's own
matrix-product rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_machine import matrix_rate, twin
from discreet.data.ratings import Ratings
from discreet.kernels import thread_count
from discreet.models.als import ALS

RANKS = (32, 64, 128)
SHARES = {
    32: 0.65,
    64: 0.75,
    128: 0.85,
}  # of the speed of matrix products that a sweep should reach


def benchmark(quick: bool) -> dict[str, Any]:
    """Seconds of a sweep by rank, feedback and library, and what the machine could do."""
    ratings = twin(quick)
    rows = [
        _one_rank(ratings, graded(ratings), r, sweeps=4) for r in (RANKS[:2] if quick else RANKS)
    ]
    return {
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": ratings.n_ratings,
        "ranks": rows,
    }


def graded(ratings: Ratings) -> Ratings:
    """The same users and items with half a star to five: the simulated data only say what users
    liked.
    """
    stars = np.random.default_rng(0).integers(1, 11, ratings.n_ratings) / 2
    return Ratings.from_indices(
        ratings.indptr, ratings.indices, stars, ratings.user_ids, ratings.item_ids, catalog=True
    )


def _one_rank(ratings: Ratings, stars: Ratings, r: int, sweeps: int) -> dict[str, Any]:
    """Best seconds of one sweep (both half-steps), ours and the peer's in turn."""
    flops = 2.0 * ratings.n_ratings * r * r + (ratings.n_users + ratings.n_items) * r**3 / 3
    row: dict[str, Any] = {"rank": r}
    ours: dict[str, Callable[[], float]] = {
        "implicit feedback": lambda: sweep(ALS(r, goal="ranking", iterations=sweeps), ratings),
        "explicit feedback": lambda: sweep(ALS(r, intercepts=False, iterations=sweeps), stars),
        "explicit, intercepts": lambda: sweep(ALS(r, iterations=sweeps), stars),
    }
    others = peers(ratings, r)
    best: dict[str, float] = {}
    rate = 0.0
    for _ in range(2):
        for name, measure in (ours | others).items():
            best[name] = min(best.get(name, np.inf), measure())
            rate = max(rate, matrix_rate())
    row["seconds"] = best
    row["limit"] = flops / rate / 1e9
    row["goal"] = SHARES[r]
    return row


def sweep(model: ALS, ratings: Ratings) -> float:
    """Seconds of the best sweep but the first."""
    times: list[float] = []
    model.fit(ratings, progress=lambda *_: times.append(time.perf_counter()))
    return float(np.diff(times).min())


def peers(ratings: Ratings, r: int) -> dict[str, Callable[[], float]]:
    """Seconds of a sweep of the ``implicit`` package, if it is installed."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        return {}
    from threadpoolctl import threadpool_limits

    matrix = ratings.to_csr().copy()  # its own, because implicit wants to be able to write

    def theirs(cg: bool, blas: int) -> float:
        times: list[float] = []
        model = AlternatingLeastSquares(
            factors=r,
            use_cg=cg,
            iterations=2 if cg else 1,
            num_threads=thread_count(),
            random_state=0,
        )
        with threadpool_limits(blas, user_api="blas"):
            model.fit(
                matrix,
                show_progress=False,
                callback=lambda _sweep, seconds, *_: times.append(seconds),
            )
        return min(times)

    return {
        "implicit, Cholesky": lambda: theirs(False, thread_count()),
        "implicit, Cholesky, BLAS on one thread": lambda: theirs(False, 1),
        "implicit, 3 CG steps, BLAS on one thread": lambda: theirs(True, 1),
    }


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    ranks = result["ranks"]
    names = list(ranks[0]["seconds"])
    ours = [name for name in names if not name.startswith("implicit,")]
    theirs = [name for name in names if name.startswith("implicit,")]

    def line(what: str, cells: list[str]) -> str:
        return f"| {what} | " + " | ".join(cells) + " |"

    return [
        "## One sweep of alternating least squares",
        "",
        (
            f"Seconds for both half-steps, {result['users']:,} users × {result['items']:,} items,"
            f" {result['ratings']:,} ratings, float32; best of the sweeps of two alternating"
            " rounds. Compared with the same arithmetic at the speed of the BLAS library's matrix"
            " products, the best of those measured between the sweeps. Gram matrices are symmetric"
            " and our kernels compute half of each, so they may exceed that speed."
        ),
        "",
        line("", [f"r = {row['rank']}" for row in ranks]),
        "|---|" + "---|" * len(ranks),
        *[
            line(f"discreet, {name}", [f"{row['seconds'][name]:.2f}" for row in ranks])
            for name in ours
        ],
        line("at the speed of matrix products", [f"{row['limit']:.2f}" for row in ranks]),
        *[
            line(
                f"share of that speed, {n}",
                [f"{100 * row['limit'] / row['seconds'][n]:.0f} %" for row in ranks],
            )
            for n in ours
        ],
        line("**goal**", [f"**{100 * row['goal']:.0f} %**" for row in ranks]),
        *[line(name, [f"{row['seconds'][name]:.2f}" for row in ranks]) for name in theirs],
        *[
            line(
                f"times as fast as {name}",
                [f"{row['seconds'][name] / row['seconds'][ours[0]]:.1f}" for row in ranks],
            )
            for name in theirs
        ],
        "",
        "The goal, against approximate sweeps of three CG steps, is to be no slower at rank 128.",
    ]
