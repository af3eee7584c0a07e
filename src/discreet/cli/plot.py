"""The demo's picture: how good the model is beside the baselines, as a whole and by the popularity of the items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.experiments.compare import Comparison, Row

INK, FAINT, PAPER = "#22303c", "#d9dee3", "#ffffff"
COLOURS = ("#00798c", "#edae49", "#9aa5b1")  # the model, then the baselines


def draw_quality(found: Comparison, what: str, file: Path) -> None:
    """Write the picture as PNG: rating error, rankings, and rating error from popular to rare items."""
    from matplotlib.figure import Figure

    from discreet.data.download import written_aside

    figure = Figure(figsize=(12, 4.6), dpi=150, facecolor=PAPER)
    axes = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1, 1.5, 1.5]})
    figure.subplots_adjust(left=0.055, right=0.985, top=0.74, bottom=0.15, wspace=0.24)
    colours = {row.name: COLOURS[min(at, len(COLOURS) - 1)] for at, row in enumerate(found.rows)}
    rated = [row for row in found.rows if "rmse" in row.scores]
    rankings = [name for name in found.metrics if name != "rmse"]
    _bars(axes[0], rated, ["rmse"], colours)
    _bars(axes[1], list(found.rows), rankings, colours)
    _by_popularity(axes[2], rated, colours)
    title(axes[0], "Error of predicted stars", "RMSE, lower is better")
    title(axes[1], "Held-out favourites found", "higher is better")
    title(axes[2], "Error from popular to rare films", "RMSE by fifths of the ratings (axis cut), lower is better")
    figure.text(0.055, 0.93, "Quality on held-out ratings", fontsize=15, weight="bold", color=INK)
    figure.text(0.985, 0.935, what, fontsize=10, color=INK, alpha=0.7, ha="right")
    handles = [axes[1].patches[at * len(rankings)] for at in range(len(found.rows))]
    axes[1].legend(handles, [row.name for row in found.rows], facecolor=PAPER, edgecolor="none",
                   framealpha=1, fontsize=9, labelcolor=INK)  # fmt: skip
    with written_aside(file) as aside:
        figure.savefig(aside, format="png")


def _bars(axis: Any, rows: list[Row], metrics: list[str], colours: dict[str, str]) -> None:
    """Grouped bars: one group per metric, one bar per model, its value on top."""
    width = (0.8 if len(metrics) > 1 else 0.6) / len(rows)
    highest = max(row.scores[m].mean for row in rows for m in metrics)
    for at, row in enumerate(rows):
        places = [group + (at - (len(rows) - 1) / 2) * width for group in range(len(metrics))]
        values = [row.scores[m].mean for m in metrics]
        errors = [row.scores[m].stderr for m in metrics]
        axis.bar(places, values, 0.88 * width, color=colours[row.name], zorder=2)
        axis.errorbar(places, values, errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2, zorder=3)
        for x, y in zip(places, values, strict=True):
            axis.text(x, y + 0.035 * highest, f"{y:.3f}", ha="center", va="bottom", fontsize=9, color=INK,
                      bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}, zorder=4)  # fmt: skip
    axis.set_ylim(0, 1.18 * highest)
    if len(metrics) == 1:  # a single group: name the bars instead
        axis.set_xticks([(at - (len(rows) - 1) / 2) * width for at in range(len(rows))], [row.name for row in rows])
        axis.set_xlim(-0.45, 0.45)
    else:
        axis.set_xticks(range(len(metrics)), metrics)
    plain(axis)


def _by_popularity(axis: Any, rows: list[Row], colours: dict[str, str]) -> None:
    for row in rows:
        scores = [group["rmse"] for group in row.quintiles]
        places = range(1, len(scores) + 1)
        means, errors = [s.mean for s in scores], [s.stderr for s in scores]
        axis.errorbar(places, means, errors, color=colours[row.name], marker="o", linewidth=2.2, markersize=6,
                      capsize=3, elinewidth=1, zorder=3)  # fmt: skip
        axis.annotate(row.name, (places[-1], means[-1]), (0, 9), textcoords="offset points", ha="center", fontsize=9,
                      weight="bold", color=colours[row.name])  # fmt: skip
    axis.set_xticks(range(1, 6), ["1\nmost popular", "2\n", "3\n", "4\n", "5\nrarest"])
    axis.set_xlim(0.6, 5.4)
    axis.margins(y=0.2)
    plain(axis)


def title(axis: Any, text: str, below: str) -> None:
    """A heading over a panel, and what it shows."""
    axis.text(0, 1.13, text, transform=axis.transAxes, fontsize=11, weight="bold", color=INK)
    axis.text(0, 1.055, below, transform=axis.transAxes, fontsize=9, color=INK, alpha=0.7)


def plain(axis: Any) -> None:
    """A panel with light grid lines and little else."""
    axis.set_facecolor(PAPER)
    axis.grid(axis="y", color=FAINT, linewidth=0.8, zorder=0)
    axis.tick_params(length=0, labelsize=9, colors=INK)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)
