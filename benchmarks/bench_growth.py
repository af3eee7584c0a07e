"""How time grows with the data: CPU seconds over users, ratings of each, items and rank, one at a
time.

Everything else stays at the smallest size meanwhile. The slope is that of a line through the
logarithms, by least squares: 1 means twice the data, twice the time; what does not depend on the
data makes it smaller.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bench_machine
from benchmarks.bench_ratings import generated
from discreet.data.ratings import Ratings
from discreet.models.als import ALS
from discreet.models.dpmf import DPMF

BASE = {"users": 20_000, "ratings of each": 40, "items": 4_000, "rank": 16}
TIMES = (1, 2, 4, 8)
FIXED_CORE = 1_000
WORK = (
    "one sweep of ALS",
    "DPMF for lists",
    f"DPMF for lists, core of at most {FIXED_CORE:,} items",
    "DPMF for ratings",
)
#: Of the simulated MovieLens 20M: a core of so many items, rank, ε; and goals.
CORE = 10_000
CORE_RANK = 64
CORE_GOALS = {"cpu": 20.0, "gigabytes": 2.0}
#: Colors of the methods in all figures (`research.figures`); the two goals differ by dashes.
LOOKS = (("#3d3d3d", "o-"), ("#00798c", "s-"), ("#00798c", "s:"), ("#6ab7c2", "^--"))


def benchmark(quick: bool) -> dict[str, Any]:
    """CPU seconds by what is done, what grows, and how large it is, and the slopes."""
    base = BASE | ({"users": 2_000} if quick else {})
    logging.getLogger("discreet").setLevel(logging.ERROR)
    found: dict[str, dict[str, Any]] = {work: {} for work in WORK}
    _measure(base)  # compiles
    for name in base:
        sizes = [base[name] * times for times in TIMES]
        seconds: dict[str, list[float]] = {work: [] for work in WORK}
        for size in sizes:
            for work, value in _measure(base | {name: size}).items():
                seconds[work].append(value)
        for work in WORK:
            slope = float(np.polyfit(np.log(sizes), np.log(seconds[work]), 1)[0])
            found[work][name] = {"sizes": sizes, "seconds": seconds[work], "slope": slope}
    return {"base": base, "growth": found, "core": None if quick else _core_apart()}


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    base = result["base"]
    names = list(base)
    start = ", ".join(f"{base[name]:,} {name}" for name in names[:-1]) + f", rank {base['rank']}"
    lines = [
        "## Growth",
        "",
        (
            f"CPU seconds (best of two) as one size grows eightfold from {start}, and the slope of"
            " their logarithms. DPMF finds its own rank, so the rank is a limit there; the goal"
            " is a slope of at most 1 in users and ratings. With more users more items stand out of"
            " the noise, whose pairs are all summed and factorized."
        ),
        "",
        "| | " + " | ".join(f"{name}: slope | from → to" for name in names) + " |",
        "|---|" + "---|---|" * len(names),
    ]
    for work, rows in result["growth"].items():
        cells = [
            f"{rows[name]['slope']:.2f} | {rows[name]['seconds'][0]:.2f} →"
            f" {rows[name]['seconds'][-1]:.2f} s"
            for name in names
        ]
        lines.append(f"| {work} | " + " | ".join(cells) + " |")
    if result.get("core"):
        core = result["core"]
        lines += [
            "",
            (
                f"A core of {CORE:,} items, of the simulated MovieLens 20M at rank {CORE_RANK} and"
                f" ε = 20: {core['cpu']:.1f} CPU seconds, {core['seconds']:.1f} s on the clock"
                f" (goal: at most {CORE_GOALS['cpu']:g}), and a peak of {core['gigabytes']:.2f} GB"
                f" with the data (goal: at most {CORE_GOALS['gigabytes']:g})."
            ),
        ]
    return lines


def plot(result: dict[str, Any], path: Path) -> None:
    """Seconds over size, both in logarithms, a panel for each thing that grows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(result["base"])
    figure, panels = pyplot.subplots(1, len(names), figsize=(3.2 * len(names), 3.6), sharey=True)
    for panel, name in zip(panels, names, strict=True):
        lines = []
        for (work, rows), (color, look) in zip(result["growth"].items(), LOOKS, strict=True):
            row = rows[name]
            (line,) = panel.plot(row["sizes"], row["seconds"], look, color=color, label=work)
            lines.append(line)
            place = {
                "transform": panel.transAxes,
                "va": "top",
                "fontsize": 8,
                "color": line.get_color(),
            }
            panel.text(0.04, 1.03 - 0.07 * len(lines), f"slope {row['slope']:.2f}", **place)
        panel.set(xscale="log", yscale="log", xlabel=name)
        panel.set_xticks(
            rows[name]["sizes"],
            [f"{size:,}" for size in rows[name]["sizes"]],
            fontsize=7,
            minor=False,
        )
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("CPU seconds")
    panels[0].set_ylim(top=10 * panels[0].get_ylim()[1])  # room for the slopes
    figure.legend(
        lines,
        list(result["growth"]),
        loc="lower center",
        ncols=len(lines),
        fontsize=9,
        frameon=False,
    )
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _core_apart() -> dict[str, float]:
    """Train with the largest core, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.bench_growth"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _with_core(settings: dict[str, float]) -> type[DPMF]:
    """Return DPMF for lists by pairs, with other limits of the core."""

    class OtherCore(DPMF):
        """DPMF with these settings of its algorithm."""

        def make_algorithm(self) -> Any:
            made: Any = super().make_algorithm()
            return replace(made, route="pairs", **settings)

    return OtherCore


def train_core(items: int = CORE, quick: bool = False) -> dict[str, float]:
    """Train on pairs of so many items, whatever their counts are."""
    logging.getLogger("discreet").setLevel(logging.ERROR)

    ratings = bench_machine.twin(quick)
    model = _with_core({"largest_core": items, "core_from": 1e-6})(CORE_RANK, epsilon=20.0)
    cpu = time.process_time()
    clock = time.perf_counter()
    model.fit(ratings, progress=False)
    assert len(model.details_["core"]) == items
    return {
        "cpu": time.process_time() - cpu,
        "seconds": time.perf_counter() - clock,
        "gigabytes": bench_machine.peak_gigabytes(),
    }


def _measure(shape: dict[str, int]) -> dict[str, float]:
    ratings = generated(shape["users"], shape["items"], shape["ratings of each"])
    rank = shape["rank"]
    private: dict[str, Any] = {"epsilon": 20.0, "rating_range": (1.0, 5.0)}
    fixed = _with_core({"largest_core": FIXED_CORE})
    return {
        WORK[0]: _sweep(ratings, rank),
        WORK[1]: _best(lambda: DPMF(rank, **private).fit(ratings, progress=False)),
        WORK[2]: _best(lambda: fixed(rank, **private).fit(ratings, progress=False)),
        WORK[3]: _best(lambda: DPMF(rank, goal="rating", **private).fit(ratings, progress=False)),
    }


def _sweep(ratings: Ratings, rank: int) -> float:
    """CPU seconds of the best of the later sweeps."""
    times: list[float] = []
    ALS(rank, iterations=4).fit(ratings, progress=lambda *_: times.append(time.process_time()))
    return float(np.diff(times).min())


def _best(work: Callable[[], object]) -> float:
    best = np.inf
    for _ in range(2):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return float(best)


if __name__ == "__main__":
    print(json.dumps(train_core()))
