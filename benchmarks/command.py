"""``discreet bench``: speed on this machine, as ratios to a peer in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.app import command
from discreet.cli.output import Output
from discreet.errors import ConfigError

SECTIONS = (
    "start",
    "als",
    "peers",
    "topk",
    "reading",
    "lists",
    "ratings",
    "private",
    "training",
    "dplmc",
    "growth",
    "serve",
    "engines",
    "billion",
    "cluster",
)
LARGEST = 10**9  # ratings; more would not fit on the disk of one machine


@command(
    "discreet bench --quick",
    "discreet bench --only als,topk --out speed.md",
    "discreet bench --only billion --scale 1e9",
)
def bench(
    out: Output,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure on a twentieth of the data.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help=f"Comma-separated sections of {', '.join(SECTIONS)}.", metavar="SECTIONS"
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(
            help="Most ratings in the sections billion and cluster: 1e7, 1e8 or 1e9.",
            metavar="RATINGS",
        ),
    ] = 1e8,
    to: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help=(
                "Also write the results as Markdown. Of a file that exists, only the sections"
                " measured are replaced."
            ),
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Measure the speed of training, ranking, reading and starting, each against another
    library.
    """
    chosen = None if only is None else {name.strip() for name in only.split(",") if name.strip()}
    for name in chosen or ():
        if name not in SECTIONS:
            raise ConfigError(f"there is no benchmark {name!r}: there are {', '.join(SECTIONS)}")
    if chosen is not None and not chosen:
        raise ConfigError(f"--only names no benchmark: there are {', '.join(SECTIONS)}")
    if not 1e7 <= scale <= LARGEST:
        raise ConfigError(f"--scale is {scale:g}. Pass 1e7, 1e8 or 1e9.")
    if to is not None and not Path(to).absolute().parent.is_dir():
        raise ConfigError(f"{to} cannot be written: the folder {Path(to).parent} does not exist")
    from benchmarks import bench as measure
    from benchmarks import bench_page

    with out.progress("Measuring") as progress:
        results = measure.run(quick, chosen, progress, int(scale))
    sections = measure.render(results, None if to is None else Path(to))
    if to is not None:
        bench_page.write(Path(to), sections, SECTIONS)
    out.say("\n".join(sections.values()).rstrip("\n"))
    out.result({"command": "bench", **results})
