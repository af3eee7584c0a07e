"""Plot of the demo: scores of all models, recall over ε, and recall by item popularity."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.evaluation.comparison import Comparison, Row

INK = "#22303c"
FAINT = "#d9dee3"
PAPER = "#ffffff"
COLORS = ("#00798c", "#d1495b", "#edae49", "#9aa5b1")  # the model, then what it is compared with


def check_plot(plot: str | None) -> None:
    """Raise a `ConfigError` where ``--plot`` could not be written at the end."""
    if plot is None:
        return
    file = Path(plot)
    if file.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ConfigError(
            f"plots are written as .png, .pdf or .svg, and {plot!r} ends in none of them"
        )
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise ConfigError(f"{plot} cannot be written: it is a folder, or its folder does not exist")
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'discreet[plot]'")


def draw_demo(found: Comparison, curve: Mapping[float, float], what: str) -> bytes:
    """Draw scores, recall over the privacy budget and recall by popularity; return the PNG."""
    from matplotlib.figure import Figure

    metric = found.metrics[0]
    figure = Figure(figsize=(13, 4.8), dpi=150, facecolor=PAPER)
    axes = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1.25, 1.25, 1.25]})
    figure.subplots_adjust(left=0.045, right=0.985, top=0.68, bottom=0.15, wspace=0.2)
    colors = {row.name: COLORS[min(at, len(COLORS) - 1)] for at, row in enumerate(found.rows)}
    _bars(axes[0], list(found.rows), list(found.metrics), colors)
    _over_budget(axes[1], curve, list(found.rows), metric, colors)
    _by_popularity(axes[2], list(found.rows), metric, colors)
    title(axes[0], "Held-out favorites found", "share of them in the top 20, higher is better")
    title(axes[1], "What privacy costs", f"{metric} over the budget ε, left is more private")
    title(
        axes[2],
        "From popular to rare films",
        f"{metric} by fifths of the ratings, higher is better",
    )
    figure.text(
        0.045, 0.925, "Quality of a private recommender", fontsize=15, weight="bold", color=INK
    )
    figure.text(0.985, 0.93, what, fontsize=10, color=INK, alpha=0.7, ha="right")
    handles = [axes[0].patches[at * len(found.metrics)] for at in range(len(found.rows))]
    figure.legend(
        handles,
        [row.name for row in found.rows],
        loc="upper left",
        bbox_to_anchor=(0.04, 0.905),
        ncols=4,
        frameon=False,
        fontsize=10,
        labelcolor=INK,
        handlelength=1.2,
        columnspacing=2,
    )
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    return drawn.getvalue()


def _bars(axis: Any, rows: list[Row], metrics: list[str], colors: dict[str, str]) -> None:
    """Draw grouped bars: one group per metric, one bar per model, its value on top."""
    width = 0.84 / len(rows)
    highest = max(row.scores[m].mean for row in rows for m in metrics)
    for at, row in enumerate(rows):
        places = [group + (at - (len(rows) - 1) / 2) * width for group in range(len(metrics))]
        values = [row.scores[m].mean for m in metrics]
        errors = [row.scores[m].stderr for m in metrics]
        axis.bar(places, values, 0.88 * width, color=colors[row.name], zorder=2)
        axis.errorbar(
            places, values, errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2, zorder=3
        )
        for x, y in zip(places, values, strict=True):
            axis.text(
                x,
                y + 0.03 * highest,
                f"{y:.3f}",
                ha="center",
                va="bottom",
                fontsize=9,
                color=INK,
                zorder=4,
            )
    axis.set_ylim(0, 1.15 * highest)
    axis.set_xticks(range(len(metrics)), metrics)
    plain(axis)


def _over_budget(
    axis: Any, curve: Mapping[float, float], rows: list[Row], metric: str, colors: dict[str, str]
) -> None:
    """Draw the private model at several budgets, and two models without privacy as lines."""
    model, *others = rows
    axis.plot(
        list(curve),
        list(curve.values()),
        color=colors[model.name],
        marker="o",
        linewidth=2.2,
        zorder=3,
    )
    for row in others[:2]:
        level = row.scores[metric].mean
        axis.axhline(level, color=colors[row.name], linewidth=1.8, linestyle=(0, (5, 2)), zorder=2)
        axis.text(
            max(curve),
            level,
            row.name,
            ha="right",
            va="bottom",
            fontsize=9,
            weight="bold",
            color=colors[row.name],
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(curve), [f"{epsilon:g}" for epsilon in curve])
    axis.minorticks_off()
    axis.set_ylim(0, 1.15 * max(*curve.values(), *(row.scores[metric].mean for row in others)))
    axis.set_xlabel("ε", fontsize=10, color=INK)
    plain(axis)


def _by_popularity(axis: Any, rows: list[Row], metric: str, colors: dict[str, str]) -> None:
    for row in rows:
        scores = [group[metric] for group in row.quintiles]
        places = range(1, len(scores) + 1)
        axis.errorbar(
            places,
            [s.mean for s in scores],
            [s.stderr for s in scores],
            color=colors[row.name],
            marker="o",
            linewidth=2.2,
            markersize=6,
            capsize=3,
            elinewidth=1,
            zorder=3,
        )
    axis.set_xticks(range(1, 6), ["1\nmost popular", "2\n", "3\n", "4\n", "5\nrarest"])
    axis.set_xlim(0.6, 5.4)
    axis.set_ylim(bottom=0)
    plain(axis)


def title(axis: Any, text: str, below: str) -> None:
    """Write a heading and a subtitle over a panel."""
    axis.text(0, 1.13, text, transform=axis.transAxes, fontsize=11, weight="bold", color=INK)
    axis.text(0, 1.055, below, transform=axis.transAxes, fontsize=9, color=INK, alpha=0.7)


def plain(axis: Any) -> None:
    """Style a panel with light grid lines and no frame."""
    axis.set_facecolor(PAPER)
    axis.grid(axis="y", color=FAINT, linewidth=0.8, zorder=0)
    axis.tick_params(length=0, labelsize=9, colors=INK)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)
