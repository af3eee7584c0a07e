"""Plot of a budget: ε over δ, noise over ε, and the share of each release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.evaluation_plot import COLORS, FAINT, INK, PAPER, plain, title

if TYPE_CHECKING:
    from discreet.cli.budget import Bill

SECOND = "#c8553d"


def draw_budget(bill: Bill, independent: dict[str, Any] | None, file: Path) -> None:
    """Write the plot, in the format of the file name."""
    from matplotlib.figure import Figure

    from discreet.cli.budget import RELATION
    from discreet.data.atomic_files import atomic_write

    figure = Figure(figsize=(12, 4.6), dpi=150, facecolor=PAPER)
    axes = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1.25, 1, 1.1]})
    figure.subplots_adjust(left=0.055, right=0.985, top=0.72, bottom=0.15, wspace=0.3)
    _curve(axes[0], bill, independent)
    _noise(axes[1], bill)
    _shares(axes[2], bill)
    title(axes[0], "ε over δ", "what the same releases cost at another δ")
    title(axes[1], "Noise over ε", "all noise, relative to that of this budget")
    title(
        axes[2],
        "What the budget is spent on",
        "share of the budget, and standard deviation of the noise",
    )
    total = f"ε = {bill.epsilon:.4g} at δ = {bill.delta:g}, {RELATION[bill.neighboring]}"
    figure.text(0.055, 0.925, f"Privacy budget: {total}", fontsize=15, weight="bold", color=INK)
    what = bill.of if len(bill.of) < 150 else bill.of[:147] + "…"
    figure.text(0.055, 0.875, what, fontsize=9, color=INK, alpha=0.7)
    with atomic_write(file) as aside:
        figure.savefig(aside, format=file.suffix[1:].lower())


def _curve(axis: Any, bill: Bill, independent: dict[str, Any] | None) -> None:
    import numpy as np

    from discreet.cli.budget import curve

    deltas = np.geomspace(1e-12, 1e-2, 101).tolist()
    lines = (("rdp", "the papers' conversion", SECOND, "--"), ("gdp", "exact", COLORS[0], "-"))
    for accountant, name, color, style in lines:
        points = curve(bill, deltas, accountant)
        axis.plot(
            deltas,
            [p["epsilon"] for p in points],
            style,
            color=color,
            linewidth=2.2,
            zorder=3,
            label=name,
        )
    shade = SECOND if bill.accountant == "rdp" else COLORS[0]
    axis.plot([bill.delta], [bill.epsilon], "o", color=shade, markersize=8, zorder=5)
    if independent is not None:
        axis.plot(
            [bill.delta],
            [independent["epsilon"]],
            "o",
            markersize=14,
            markerfacecolor="none",
            zorder=4,
            markeredgecolor=INK,
            label="independent accountant",
        )
    axis.annotate(
        f"ε = {bill.epsilon:.4g}",
        (bill.delta, bill.epsilon),
        (9, -17),
        textcoords="offset points",
        fontsize=9,
        weight="bold",
        color=INK,
    )
    axis.set_xscale("log")
    axis.set_xlim(deltas[-1], deltas[0])  # more certain to the right
    axis.set_ylim(bottom=0)
    axis.set_xlabel("δ, the probability of failure", fontsize=9, color=INK)
    plain(axis)
    axis.legend(
        loc="lower right",
        fontsize=9,
        labelcolor=INK,
        facecolor=PAPER,
        edgecolor="none",
        framealpha=1,
    )


def _noise(axis: Any, bill: Bill) -> None:
    import numpy as np

    from discreet.cli.budget import noise_factor
    from discreet.privacy.accounting import pricing as accounting

    epsilons = bill.epsilon * np.geomspace(1 / 8, 8, 25)
    factors = [noise_factor(bill, float(e), accounting) for e in epsilons]
    axis.plot(epsilons, factors, color=COLORS[0], linewidth=2.2, zorder=3)
    for times in (0.25, 0.5, 1.0, 2.0, 4.0):
        epsilon = times * bill.epsilon
        factor = noise_factor(bill, epsilon, accounting)
        axis.plot(
            [epsilon],
            [factor],
            "o",
            color=COLORS[0] if times != 0.5 else SECOND,
            markersize=7,
            zorder=4,
        )
        axis.annotate(
            f"{factor:.2f}×",
            (epsilon, factor),
            (7, 6),
            textcoords="offset points",
            fontsize=9,
            color=INK,
            weight="bold" if times in (0.5, 1.0) else "normal",
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    marks = [times * bill.epsilon for times in (0.25, 0.5, 1.0, 2.0, 4.0)]
    axis.set_xticks(marks, [f"{mark:.3g}" for mark in marks], minor=False)
    axis.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["¼", "½", "1", "2", "4", "8"], minor=False)
    axis.minorticks_off()
    axis.set_ylim(min(factors) * 0.85, max(factors) * 1.25)
    axis.set_xlabel("ε at the same δ", fontsize=9, color=INK)
    plain(axis)


def _shares(axis: Any, bill: Bill) -> None:
    rows = sorted(bill.releases, key=lambda row: row["share"])
    names = [f"{row['name']} × {row['count']}" if row["count"] > 1 else row["name"] for row in rows]
    axis.barh(range(len(rows)), [row["share"] for row in rows], 0.62, color=COLORS[0], zorder=2)
    for at, row in enumerate(rows):
        spent = f"{row['share']:.1%}"
        noise = f"noise {row['deviation']:.3g}"
        axis.annotate(
            f"{spent}   {noise}",
            (row["share"], at),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
        )
    axis.set_yticks(range(len(rows)), names)
    axis.set_xlim(0, 1.75 * max(row["share"] for row in rows))
    axis.set_xticks([])
    plain(axis)
    axis.grid(False)
    axis.spines["bottom"].set_visible(False)
    axis.axvline(0, color=FAINT, linewidth=1.2)
