"""Plot of an audit: loss per release, distribution of the log-likelihood ratio, one-run bound."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.evaluation_plot import COLORS, FAINT, INK, PAPER, plain, title

if TYPE_CHECKING:
    from discreet.auditing import Audit, Level

WRONG = COLORS[1]
MOST_BARS = 12  # more labels would overlap at this figure height


def draw_audit(found: Audit, file: Path) -> None:
    """Write the plot, in the format of the file name."""
    from matplotlib.figure import Figure

    from discreet.data.atomic_files import atomic_write

    panels = {
        "transcript": _transcript,
        "noise": _noise,
        "one run": _one_run,
        "scores": _transcript,
    }
    panels["tuning"] = _transcript
    figure = Figure(figsize=(4.4 * len(found.levels) + 0.6, 4.8), dpi=150, facecolor=PAPER)
    axes = figure.subplots(1, len(found.levels), squeeze=False)[0]
    figure.subplots_adjust(
        left=0.11 / len(found.levels) + 0.05, right=0.98, top=0.7, bottom=0.14, wspace=0.42
    )
    for axis, level in zip(axes, found.levels, strict=True):
        panels[level.name](axis, level)
    claim = f"ε = {found.claim.epsilon:.4g} at δ = {found.claim.delta:g}"
    word = "refuted" if found.refuted else "not refuted"
    color = WRONG if found.refuted else INK
    figure.text(
        0.03,
        0.925,
        f"Audit: the claim of {claim} is {word}",
        fontsize=14,
        weight="bold",
        color=color,
    )
    what = found.model if len(found.model) < 110 else found.model[:107] + "…"
    figure.text(0.03, 0.87, f"{what}, on {found.data}", fontsize=9, color=INK, alpha=0.7)
    with atomic_write(file) as aside:
        figure.savefig(aside, format=file.suffix[1:].lower())


def _color(level: Level) -> str:
    return WRONG if level.refuted else COLORS[0]


def _transcript(axis: Any, level: Level) -> None:
    """Plot the largest change of each release by any canary."""
    rows = list(level.details["releases"])
    left_out = max(0, len(rows) - MOST_BARS)
    rows = sorted(rows, key=lambda row: -float(row["share"]))[:MOST_BARS][::-1]
    shares = [min(float(row["share"]), 3.0) for row in rows]
    colors = [WRONG if share > 1 + 1e-6 else COLORS[0] for share in shares]
    axis.barh(range(len(rows)), shares, 0.6, color=colors, zorder=2)
    axis.axvline(1, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), zorder=3)
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axis.set_xlim(0, max(1.15, *shares))
    axis.set_xlabel("share of the stated sensitivity", fontsize=9, color=INK)
    more = f", {left_out} more not shown" if left_out else ""
    title(axis, level.name.capitalize(), f"largest change of each release by a canary{more}")
    plain(axis)
    axis.grid(visible=False, axis="y")


def _noise(axis: Any, level: Level) -> None:
    """Plot ℓ of all trainings and its theoretical normal distribution."""
    import numpy as np

    mu = float(level.details["mu"])
    both = [
        ("with the canary", level.details["with"], +1),
        ("without", level.details["without"], -1),
    ]
    title(axis, "Noise", "log-likelihood ratio of the two data sets, and theory")
    plain(axis)
    if not math.isfinite(mu) or mu <= 0:
        axis.text(0.5, 0.5, "not measurable", ha="center", transform=axis.transAxes, color=INK)
        return
    x = np.linspace(-mu * mu / 2 - 4 * mu, mu * mu / 2 + 4 * mu, 300)
    for at, (name, values, sign) in enumerate(both):
        color = COLORS[(0, 2)[at]]
        axis.plot(
            x,
            np.exp(-((x / mu - sign * mu / 2) ** 2) / 2) / (mu * math.sqrt(2 * math.pi)),
            color=color,
            lw=2,
        )
        if values:
            bins = np.linspace(x[0], x[-1], 8 + round(math.sqrt(len(values))))
            axis.hist(
                np.clip(values, x[0], x[-1]),
                bins,
                density=True,
                color=color,
                alpha=0.35,
                label=name,
                zorder=2,
            )
    axis.set_xlabel("ℓ", fontsize=9, color=INK)
    axis.set_yticks([])
    axis.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper right")


def _one_run(axis: Any, level: Level) -> None:
    """Plot the lower bounds and the claim."""
    names = {"epsilon_fdp": "f-DP", "epsilon_steinke": "Steinke et al."}
    rows = [(names[key], level.details[key]) for key in names if level.details[key] is not None]
    axis.bar(range(len(rows)), [value for _, value in rows], 0.5, color=_color(level), zorder=2)
    for at, (_, value) in enumerate(rows):
        place = {"textcoords": "offset points", "ha": "center"}
        axis.annotate(f"{value:.3g}", (at, value), (0, 4), fontsize=9, color=INK, **place)
    axis.axhline(level.claimed, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), zorder=3)
    axis.annotate(
        f"claimed, {level.claimed:.3g}",
        (len(rows) - 0.5, level.claimed),
        (0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        color=INK,
    )
    axis.set_xticks(range(len(rows)), [name for name, _ in rows])
    axis.set_xlim(-0.6, len(rows) - 0.4)
    axis.set_ylim(0, 1.18 * max(level.claimed, *(value for _, value in rows)))
    axis.set_ylabel("ε", fontsize=9, color=INK)
    right, made = level.details["right"], level.details["guesses"]
    title(
        axis,
        "One run",
        f"ε at least ({level.details['confidence']:.0%}): {right} of {made} guesses right",
    )
    plain(axis)
    axis.spines["bottom"].set_color(FAINT)
