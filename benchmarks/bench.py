"""Speed, measured against a peer in the same run.

Machines are noisy and differ, so what counts are ratios: our sweep of least squares against the
``implicit`` package and against the machine's own matrix-product rate; reading a CSV against a bare
arrow read; choosing the best items against the matrix product that scores them; secure noise
against seeded noise. ``discreet bench`` prints this; ``--out`` writes it as Markdown. Each section
runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import (
    bench_als,
    bench_billion,
    bench_cluster,
    bench_dplmc,
    bench_engines,
    bench_growth,
    bench_lists,
    bench_machine,
    bench_peers,
    bench_private,
    bench_ratings,
    bench_reading,
    bench_serve,
    bench_start,
    bench_topk,
    bench_training,
)
from discreet.errors import DiscreetError

Progress = Callable[[int, int, str], None]


class Section(NamedTuple):
    """What a section measures, given whether to be quick, and how it is shown: as Markdown
    under a heading.
    """

    benchmark: Callable[[bool], dict[str, Any]]
    show: Callable[[dict[str, Any]], list[str]]
    plot: Callable[[dict[str, Any], Path], None] | None = None


SECTIONS = {
    "start": Section(bench_start.benchmark, bench_start.show),
    "als": Section(bench_als.benchmark, bench_als.show),
    "peers": Section(bench_peers.benchmark, bench_peers.show),
    "topk": Section(bench_topk.benchmark, bench_topk.show),
    "reading": Section(bench_reading.benchmark, bench_reading.show),
    "lists": Section(bench_lists.benchmark, bench_lists.show),
    "ratings": Section(bench_ratings.benchmark, bench_ratings.show),
    "private": Section(bench_private.benchmark, bench_private.show),
    "training": Section(bench_training.benchmark, bench_training.show),
    "dplmc": Section(bench_dplmc.benchmark, bench_dplmc.show),
    "growth": Section(bench_growth.benchmark, bench_growth.show, bench_growth.plot),
    "serve": Section(bench_serve.benchmark, bench_serve.show),
    "engines": Section(bench_engines.benchmark, bench_engines.show),
    "billion": Section(bench_billion.benchmark, bench_billion.show),
    "cluster": Section(bench_cluster.benchmark, bench_cluster.show),
}


def run(
    quick: bool = False,
    only: set[str] | None = None,
    progress: Progress | None = None,
    largest: int = bench_billion.LARGEST,
) -> dict[str, Any]:
    """Measure everything, or `only` some sections; `quick` on a twentieth of the data, and the
    section billion on up to `largest` ratings.
    """
    chosen = [name for name in SECTIONS if only is None or name in only]
    results: dict[str, Any] = {}
    for done, name in enumerate(chosen):
        if progress:
            progress(done, len(chosen), name)
        results[name] = _apart(name, quick, largest)
    if progress:
        progress(len(chosen), len(chosen), "done")
    return results


def render(results: dict[str, Any], page: Path | None = None) -> dict[str, str]:
    """The results as Markdown, by section; plots go to ``plots/`` next to the page, if there is
    one.
    """
    sections = {}
    for name, result in results.items():
        section = SECTIONS[name]
        title, *lines = section.show(result)
        if page is not None and section.plot is not None:
            picture = Path("plots", f"bench-{name}.png")
            (page.parent / picture).parent.mkdir(exist_ok=True)
            section.plot(result, page.parent / picture)
            lines += ["", f"![{title.strip('# ')}]({picture.as_posix()})"]
        sections[name] = (
            "\n".join([title, "", bench_machine.sentence(result["measured"]), *lines]) + "\n"
        )
    return sections


def _apart(name: str, quick: bool, largest: int) -> dict[str, Any]:
    """One section in a process of its own."""
    words = [sys.executable, "-m", __name__, name, *(["quick"] if quick else [])]
    settings = os.environ | {bench_billion.SCALE: str(largest)}
    answer = subprocess.run(words, capture_output=True, text=True, env=settings)
    if answer.returncode:
        said = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise DiscreetError(f"the benchmark {name} failed: {said[-1]}")
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def main(name: str, quick: bool) -> None:
    """Measure one section here."""
    measured = bench_machine.conditions(quick)
    result = SECTIONS[name].benchmark(quick)
    measured["peak_gigabytes"] = bench_machine.peak_gigabytes()
    print(json.dumps({**result, "measured": measured}))


if __name__ == "__main__":
    main(sys.argv[1], "quick" in sys.argv[2:])
