"""Results as a picture like the paper's: lines over a setting, the spread over seeds, the paper's values marked.

A plot of an entry's file is one panel:

    title, x_label, y_label  text
    x, y          the setting (or number) on each axis
    line          settings that tell the lines apart
    where         optional: only records with these settings
    log_x, log_y  optional
    reference     optional: the published value to mark with crosses (the first one by default)

Records without an x, such as models without privacy, become dashed lines across.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discreet.data.download import written_aside
from discreet.experiments.entry import Entry, Record
from discreet.experiments.layout import Group, group, reference

INK = "#22303c"
FAINT = "#d9dee3"
MANY = 8  # more lines have their names beside the plot, and the second eight another mark
COLOURS = ("#00798c", "#c8553d", "#edae49", "#5b5f97", "#7fb069", "#9aa5b1", "#b0578d", "#3d3d3d")
WIDTH = 5.6
HEIGHT = 4.6


def draw(entry: Entry, records: list[Record], file: Path) -> None:
    """Write the picture as PNG."""
    from matplotlib.figure import Figure

    across = 2 if len(entry.plots) == 4 else min(3, len(entry.plots))
    down = -(-len(entry.plots) // across)
    width = WIDTH * across + (1.6 if across == 1 else 0)
    figure = Figure(figsize=(width, HEIGHT * down + 0.5), dpi=110, facecolor="white", layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis, panel in zip(axes, entry.plots, strict=False):
        _panel(axis, entry, records, panel)
    for axis in axes[len(entry.plots) :]:
        axis.set_axis_off()
    if any(len(axis.get_legend_handles_labels()[1]) > MANY for axis in axes):
        width += 3.0 * across
        figure.set_figwidth(width)
    title = textwrap.fill(entry.title, int(10 * width))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold", color=INK)
    with written_aside(file) as aside:
        figure.savefig(aside, format="png")


def _panel(axis: Any, entry: Entry, records: list[Record], panel: Mapping[str, Any]) -> None:
    x = panel["x"]
    y = panel["y"]
    by = panel.get("line", [])
    marked = False
    for at, line in enumerate(group(records, by, panel.get("where"))):
        colour = COLOURS[at % len(COLOURS)]
        label = ", ".join(v if isinstance(v, str) else f"{name} {v:,g}" for name, v in line.keys.items()) or None
        flat = Group({}, [record for record in line.records if x not in record])
        if flat.values(y):
            axis.axhline(flat.mean(y), color=colour, linestyle="--", linewidth=1.5, label=label, zorder=2)
        points = [p for p in group([r for r in line.records if x in r], [x]) if p.values(y)]
        points.sort(key=lambda p: p.keys[x])
        if not points:
            continue
        places = [p.keys[x] for p in points]
        axis.errorbar(
            places,
            [p.mean(y) for p in points],
            [p.spread(y) for p in points],
            color=colour,
            marker="os^D"[at // len(COLOURS) % 4],
            markersize=4.5,
            linewidth=1.8,
            capsize=2.5,
            label=label,
            zorder=3,
        )
        name = panel.get("reference", entry.references[0] if entry.references else "")
        known = [(p.keys[x], reference(entry, p, name)) for p in points]
        known = [(place, value) for place, value in known if value is not None]
        if known:
            axis.plot(
                *zip(*known, strict=True),
                "x",
                color=colour,
                markersize=9,
                markeredgewidth=2,
                zorder=4,
                label=None if marked else name,
            )
            marked = True
    _dress(axis, panel, records)


def _dress(axis: Any, panel: Mapping[str, Any], records: list[Record]) -> None:
    x = panel["x"]
    ticks = sorted({record[x] for record in records if isinstance(record.get(x), int | float)})
    if panel.get("log_x"):
        axis.set_xscale("log")
    if 1 < len(ticks) <= 8 and (panel.get("log_x") or all(isinstance(tick, int) for tick in ticks)):
        axis.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axis.minorticks_off()
    if panel.get("log_y"):
        from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_title(panel.get("title", ""), fontsize=10, color=INK, loc="left")
    axis.set_xlabel(panel.get("x_label", x), fontsize=9, color=INK)
    axis.set_ylabel(panel.get("y_label", panel["y"]), fontsize=9, color=INK)
    axis.grid(color=FAINT, linewidth=0.7, zorder=0)
    axis.tick_params(labelsize=8, colors=INK)
    axis.spines[["top", "right"]].set_visible(False)
    if names := axis.get_legend_handles_labels()[1]:
        beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if len(names) > MANY else {}
        axis.legend(fontsize=8, frameon=False, labelcolor=INK, **beside)
