"""How long it takes until something is there: importing, the commands on a fresh installation and
later, one list.

A fresh installation is an empty folder for compiled code. Commands run as a person runs them, in
processes of their own, with everything from starting Python to the saved model; best of the runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GOALS = {
    "train, first": 4.0,
    "train": 1.6,
    "train for ratings, first": 8.0,
    "train for ratings": 2.0,
    "recommend, first": 3.0,
    "recommend": 0.3,
}
SHOWN = {
    "train, first": "`discreet train cinema --epsilon 1`, first after installation",
    "train": "the same, later",
    "train for ratings, first": (
        "`discreet train cinema --epsilon 1 --goal rating`, first after installation"
    ),
    "train for ratings": "the same, later",
    "recommend, first": "`discreet recommend`, first after installation",
    "recommend": "the same, later",
}

_FIRST_FIT = """
import time, numpy as np
start = time.perf_counter()
import discreet
discreet.ALS
imported = time.perf_counter() - start
rng = np.random.default_rng(0)
users, items = rng.integers(0, 2000, 40000), rng.integers(0, 500, 40000)
ratings = discreet.Ratings.from_arrays(users, items, rng.random(40000) * 5)
times = []
for _ in range(2):
    start = time.perf_counter()
    discreet.ALS(32, iterations=2).fit(ratings)
    times.append(time.perf_counter() - start)
print(imported, *times)
"""

_ONE_LIST = """
import sys, time, numpy as np
from benchmarks.bench_serve import saved
from discreet.models.storage import load
from pathlib import Path
model = load(saved(Path(sys.argv[1]), 20_000))
times = []
rng = np.random.default_rng(0)
for _ in range(200):
    history = {int(i): 1.0 for i in rng.choice(20_000, 20, replace=False)}
    start = time.perf_counter()
    model.recommend(history)
    times.append(time.perf_counter() - start)
print(np.median(times))
"""


def benchmark(quick: bool) -> dict[str, Any]:
    """Seconds of importing, of the first and the second fit of a process, of the commands, and
    of one list.
    """
    best: list[float] = []
    for _ in range(3):  # the first process may still compile; later ones find the code in the cache
        now = [float(x) for x in _python(_FIRST_FIT).split()]
        best = [min(pair) for pair in zip(best or now, now, strict=True)]
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        _commands(Path(folder, "before"), repeats=1)  # Python writes its bytecode
        commands = _commands(Path(folder), repeats=1 if quick else 3)
        one_list = float(_python(_ONE_LIST, folder))
    return {
        "import": best[0],
        "first": best[1],
        "second": best[2],
        "commands": commands,
        "list": one_list,
    }


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    lines = [
        "## Starting",
        "",
        (
            "Whole commands, from starting Python to the result on disk or on screen; best of"
            " three, after installation with an empty folder for compiled code."
        ),
        "",
        "| | seconds | goal |",
        "|---|---|---|",
    ]
    lines += [
        f"| {SHOWN[name]} | {seconds:.2f} | {GOALS[name]:g} |"
        for name, seconds in result["commands"].items()
    ]
    return [
        *lines,
        "",
        (
            f"`import discreet` with the first model takes {result['import']:.2f} s (goal: at most"
            f" 0.25); the first `fit` of a process takes {result['first'] - result['second']:.2f} s"
            " longer than the second, with compiled code cached (goal: at most 2)."
            " `model.recommend(history)` with 20,000 items at rank 64 and a history of 20 takes"
            f" {1000 * result['list']:.2f} ms, median (goal: 0.4)."
        ),
    ]


def _commands(folder: Path, repeats: int) -> dict[str, float]:
    best: dict[str, float] = {}
    folder.mkdir(exist_ok=True)
    lists = folder / "lists"
    train = ["train", "cinema", "--epsilon", "1", "--replace", "--out"]
    work = {
        "train": [*train, str(lists)],
        "train for ratings": [*train, str(folder / "stars"), "--goal", "rating"],
        "recommend": ["recommend", str(lists), "--history", "dear-kaspar,seven-promises"],
    }
    for turn in range(repeats):
        for name, words in work.items():
            cache = folder / f"compiled {name} {turn}"
            for when in (f"{name}, first", name):
                seconds = _timed(words, cache)
                best[when] = min(best.get(when, seconds), seconds)
    return {name: best[name] for name in SHOWN}


def _timed(words: list[str], cache: Path) -> float:
    """Seconds of a command with that folder for compiled code."""
    cache.mkdir(exist_ok=True)
    settings = _installed() | {"NUMBA_CACHE_DIR": str(cache)}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "discreet", *words], capture_output=True, check=True, env=settings
    )
    return time.perf_counter() - start


def _python(code: str, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        env=_installed(),
    ).stdout


def _installed() -> dict[str, str]:
    """Return an environment in which Python keeps its bytecode, as installers write it."""
    return {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
