"""How long it takes until the first model: importing, the first fit of a process, and the commands."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

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


def benchmark(quick: bool) -> dict[str, Any]:
    """Seconds of importing and of the first and the second fit of a process."""
    best: list[float] = []
    for _ in range(3):  # the first process may still compile; later ones find the code in the cache
        answer = subprocess.run([sys.executable, "-c", _FIRST_FIT], capture_output=True, text=True, check=True)
        now = [float(x) for x in answer.stdout.split()]
        best = [min(pair) for pair in zip(best or now, now, strict=True)]
    return {"import": best[0], "first": best[1], "second": best[2]}


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    return [
        "## Starting",
        "",
        f"`import discreet` {result['import']:.2f} s (goal: under 0.5); the first `fit` of a process takes "
        f"{result['first'] - result['second']:.2f} s longer than the second, with compiled code cached (goal: at "
        "most 2).",
    ]
