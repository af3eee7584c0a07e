"""Speed, measured against a peer in the same run.

Machines are noisy and differ, so what counts are ratios: our sweep of least squares against the ``implicit`` package
and against the machine's own matrix-product rate; reading a CSV against a bare arrow read; choosing the best items
against the matrix product that scores them; secure noise against seeded noise. ``discreet bench`` prints this;
``--out`` writes it as Markdown.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from discreet.data.ratings import Ratings
from discreet.experiments import bench_csv, bench_engines, bench_private, bench_serve, bench_training, dplmc_bench
from discreet.kernels import thread_count, top_k
from discreet.kernels.simd import VECTOR_BYTES
from discreet.kernels.threads import blas_threads, even_cuts
from discreet.kernels.threads import run as run_threads
from discreet.models.als import ALS

Progress = Callable[[int, int, str], None]
RANKS = (32, 64, 128)
TARGETS = {32: 12.0, 64: 9.0, 128: 7.0}  # times faster than implicit's Cholesky


def run(quick: bool = False, only: set[str] | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Measure everything, or `only` some sections; `quick` on a twentieth of the data."""
    sections = {
        "als": _als,
        "topk": _topk,
        "csv": _csv,
        "start": _start,
        "private": bench_private.benchmark,
        "training": bench_training.benchmark,
        "dplmc": dplmc_bench.benchmark,
        "serve": bench_serve.benchmark,
        "engines": bench_engines.benchmark,
    }
    chosen = [name for name in sections if only is None or name in only]
    results: dict[str, Any] = {"machine": _machine(), "quick": quick}
    for done, name in enumerate(chosen):
        if progress:
            progress(done, len(chosen), name)
        results[name] = sections[name](quick)
    if progress:
        progress(len(chosen), len(chosen), "done")
    return results


def render(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    machine = results["machine"]
    lines = [
        f"Measured on {machine['date']} with {machine['threads']} threads ({machine['processor']}, "
        f"{machine['vector']}), Python {machine['python']}, numba {machine['numba']}; "
        f"matrix products (float32) run at {machine['gflops']:.0f} GFLOP/s on all threads.",
    ]
    if results["quick"]:
        lines += ["", "Quick run on a twentieth of the data: the ratios are not those of the full size."]
    shown: dict[str, Callable[[dict[str, Any]], list[str]]]
    shown = {"als": _show_als, "topk": _show_topk, "csv": _show_csv, "start": _show_start}
    shown |= {"private": bench_private.show, "training": bench_training.show, "dplmc": dplmc_bench.show}
    shown |= {"serve": bench_serve.show, "engines": bench_engines.show}
    for name, show in shown.items():
        if name in results:
            lines += ["", *show(results[name])]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ alternating least squares


def _als(quick: bool) -> dict[str, Any]:
    ratings = _shape(quick)
    rows = [_als_rank(ratings, r, sweeps=4) for r in (RANKS[:2] if quick else RANKS)]
    return {"users": ratings.n_users, "items": ratings.n_items, "ratings": ratings.n_ratings, "ranks": rows}


def _als_rank(ratings: Ratings, r: int, sweeps: int) -> dict[str, Any]:
    """Best seconds of one sweep (both half-steps), ours and the peer's in turn."""
    flops = 2.0 * ratings.n_ratings * r * r + (ratings.n_users + ratings.n_items) * r**3 / 3
    row: dict[str, Any] = {"rank": r}
    ours: dict[str, Callable[[], float]] = {
        "implicit feedback": lambda: _sweep(ALS(r, feedback="implicit", iterations=sweeps), ratings),
        "explicit feedback": lambda: _sweep(ALS(r, intercepts=False, iterations=sweeps), ratings),
        "explicit, intercepts": lambda: _sweep(ALS(r, iterations=sweeps), ratings),
    }
    peers = _peers(ratings, r)
    best: dict[str, float] = {}
    for _ in range(2):
        for name, measure in (ours | peers).items():
            best[name] = min(best.get(name, np.inf), measure())
    row["seconds"] = best
    row["limit"] = flops / _matrix_rate() / 1e9
    row["target"] = TARGETS[r]
    return row


def _sweep(model: ALS, ratings: Ratings) -> float:
    times: list[float] = []
    model.fit(ratings, progress=lambda *_: times.append(time.perf_counter()))
    return float(np.diff(times).min())


def _peers(ratings: Ratings, r: int) -> dict[str, Callable[[], float]]:
    """Seconds of a sweep of the ``implicit`` package, if it is installed."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        return {}
    from threadpoolctl import threadpool_limits

    matrix = ratings.to_csr().copy()  # its own, because implicit wants to be able to write

    def sweep(cg: bool, blas: int) -> float:
        times: list[float] = []
        model = AlternatingLeastSquares(
            factors=r, use_cg=cg, iterations=2 if cg else 1, num_threads=thread_count(), random_state=0
        )
        with threadpool_limits(blas, user_api="blas"):
            model.fit(matrix, show_progress=False, callback=lambda _sweep, seconds, *_: times.append(seconds))
        return min(times)

    return {
        "implicit, Cholesky": lambda: sweep(False, thread_count()),
        "implicit, Cholesky, BLAS on one thread": lambda: sweep(False, 1),
        "implicit, 3 CG steps, BLAS on one thread": lambda: sweep(True, 1),
    }


def _show_als(result: dict[str, Any]) -> list[str]:
    names = list(result["ranks"][0]["seconds"])
    lines = [
        "## One sweep of alternating least squares",
        "",
        f"Seconds for both half-steps, {result['users']:,} users × {result['items']:,} items, "
        f"{result['ratings']:,} ratings, float32; best of the sweeps of two alternating rounds.",
        "",
        "| | " + " | ".join(f"r = {row['rank']}" for row in result["ranks"]) + " |",
        "|---|" + "---|" * len(result["ranks"]),
    ]
    for name in names:
        who = name if name.startswith("implicit,") else f"discreet, {name}"
        lines.append(f"| {who} | " + " | ".join(f"{row['seconds'][name]:.2f}" for row in result["ranks"]) + " |")
    limits = " | ".join(f"{row['limit']:.2f}" for row in result["ranks"])
    lines.append(f"| the machine's limit: the same arithmetic at matrix-product speed | {limits} |")
    for peer in (n for n in names if n.startswith("implicit,")):
        ratios = [row["seconds"][peer] / row["seconds"]["implicit feedback"] for row in result["ranks"]]
        lines.append(f"| times faster than {peer} | " + " | ".join(f"{x:.1f}×" for x in ratios) + " |")
    targets = " | ".join(f"{row['target']:.0f}×" for row in result["ranks"])
    lines.append(f"| goal against implicit, Cholesky | {targets} |")
    return lines


# ------------------------------------------------------------------ top-k


def _topk(quick: bool) -> dict[str, Any]:
    ratings = _shape(quick)
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

    run_threads(work, even_cuts(len(U)))


def _show_topk(result: dict[str, Any]) -> list[str]:
    return [
        "## The twenty best items of every user",
        "",
        f"{result['users']:,} users × {result['items']:,} items, rank {result['rank']}, seen items left out: "
        f"{result['seconds']:.2f} s; the matrix product of the scores alone takes {result['product']:.2f} s, so "
        f"ranking runs at {100 * result['product'] / result['seconds']:.0f} % of its rate (goal: 50 %).",
    ]


# ------------------------------------------------------------------ reading and starting


def _csv(quick: bool) -> dict[str, Any]:
    return bench_csv.benchmark(500_000 if quick else 10_000_000, repeats=2)


def _show_csv(result: dict[str, Any]) -> list[str]:
    return [
        "## Reading a CSV",
        "",
        f"{result['rows']:,} rows ({result['file_megabytes']:.0f} MB) into `Ratings`: "
        f"{result['ratings_seconds']:.2f} s, {result['ratio']:.2f} times a bare `pyarrow.csv.read_csv` "
        f"({result['arrow_seconds']:.2f} s; goal: at most 3), peak memory {result['peak_gigabytes']:.2f} GB "
        "(goal: at most 1.5).",
    ]


_FIRST_FIT = """
import time, numpy as np
start = time.perf_counter()
import discreet
imported = time.perf_counter() - start
rng = np.random.default_rng(0)
ratings = discreet.Ratings.from_arrays(rng.integers(0, 2000, 40000), rng.integers(0, 500, 40000), rng.random(40000) * 5)
times = []
for _ in range(2):
    start = time.perf_counter()
    discreet.ALS(32, iterations=2).fit(ratings)
    times.append(time.perf_counter() - start)
print(imported, *times)
"""


def _start(quick: bool) -> dict[str, Any]:
    best: list[float] = []
    for _ in range(3):  # the first process may still compile; later ones find the code in the cache
        answer = subprocess.run([sys.executable, "-c", _FIRST_FIT], capture_output=True, text=True, check=True)
        now = [float(x) for x in answer.stdout.split()]
        best = [min(pair) for pair in zip(best or now, now, strict=True)]
    return {"import": best[0], "first": best[1], "second": best[2]}


def _show_start(result: dict[str, Any]) -> list[str]:
    return [
        "## Starting",
        "",
        f"`import discreet` {result['import']:.2f} s (goal: under 0.5); the first `fit` of a process takes "
        f"{result['first'] - result['second']:.2f} s longer than the second, with compiled code cached (goal: at "
        "most 2).",
    ]


# ------------------------------------------------------------------ the machine


def _shape(quick: bool) -> Ratings:
    """The twin of MovieLens 20M."""
    from discreet.data.datasets import load_dataset

    return load_dataset("twin-ml20m", scale=0.05 if quick else 1.0)


def _matrix_rate() -> float:
    """GFLOP/s of float32 matrix products on all threads, now."""
    A = np.ones((3072, 3072), np.float32)
    best = np.inf
    with blas_threads():
        for _ in range(4):
            start = time.perf_counter()
            A @ A
            best = min(best, time.perf_counter() - start)
    return float(2 * len(A) ** 3 / best / 1e9)


def _machine() -> dict[str, Any]:
    import numba

    vector = {64: "AVX-512 kernels", 32: "AVX2 kernels", 0: "plain kernels"}[VECTOR_BYTES]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "threads": thread_count(),
        "vector": vector,
        "python": platform.python_version(),
        "numba": numba.__version__,
        "gflops": _matrix_rate(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
