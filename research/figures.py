"""Results as a picture: lines over a number, bars over words, the spread over seeds, published
values marked.

A plot of an entry's file is one panel:

    title, x_label, y_label  text; what is usual needs no label (`LABELS`)
    x, y          the setting (or number) on each axis; words on x become bars
    line          settings that tell the lines apart
    where         optional: only records with these settings
    log_x, log_y  optional
    statistic   optional: "mean" with the standard deviation by default, "median" with the quartiles
    reference     optional: the published value to mark with crosses (the first one by default)
    mark          optional: another number of the records to mark with crosses, such as a goal
    points        optional: a setting whose values are one point each, at the mean of their x
    relative      optional: settings of the records that others are compared with, in percent
    diagonal      optional: draw the line y = x
    method        optional: the method that all lines are of, for their color
    share_y       optional: panels with the same word have the same vertical axis
    dots          optional: draw a mark for each word on x instead of a bar from 0
    levels     optional: numbers by name, each a dashed line across, such as what predicting 0 gives
    slopes     optional: exponents by method, each a dotted line through its first point on two
               logarithmic axes
    names      optional: labels for words on x and in names of lines, in addition to `NAMES`
    value      optional: a number to show as color, over two counts that double; with ``minus``,
                  against the records
                  that have those settings; ``value_label`` names it

Records without an x, such as models without privacy, become dashed lines across. A method has the
same color in all pictures (`METHODS`); where it has several lines they differ by shade, dashes and
marks. More than eight lines become several panels, and names stand below a panel, never on the
data.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.data.atomic_files import atomic_write
from research.entry import Entry, Record
from research.layout import Group, group, matches, reference

INK = "#22303c"
FAINT = "#d9dee3"
GRAY = "#8b98a5"
MOST_LINES = 8
WIDTH = 5.6
HEIGHT = 4.2
LEGEND = 0.19  # inches for each line of a legend

#: One color for each method, and hues of their own for the kinds of noise, in all figures. What is
#: not private or no model at all is gray.
METHODS = {
    "DPMF": "#00798c",
    "DPALS": "#c8553d",
    "DPLMC": "#5b5f97",
    "DPFW": "#e0a030",
    "DPFrankWolfe": "#e0a030",
    "FW": "#e0a030",
    "DPSVD": "#7fb069",
    "DPSGD": "#b0578d",
    "DPSGLD": "#8c6d46",
    "HuberALS": "#4d9de0",
    "DPRegression": "#2a9d5c",
    "ALS": "#3d3d3d",
    "IRLS": "#6d597a",
    "the paper's algorithm": "#c8553d",  # DPALS
    "McSherry & Mironov": "#7fb069",  # DPSVD
    "gaussian": "#14279b",
    "laplace": "#ff6f91",
    "huber": "#a89600",
    "vanilla": "#3d3d3d",
    "ALS + G": "#14279b",
    "IRLS + L": "#ff6f91",
    "IRLS + H": "#a89600",
    "IRLS-2 + H": "#a89600",
    "predict 0": GRAY,
    "global mean": GRAY,
    "mean": GRAY,
    "user": GRAY,
    "bias": GRAY,
    "Bias": GRAY,
    "biases": GRAY,
    "private item bias": GRAY,
    "popular": GRAY,
    "popularity": GRAY,
    "private popularity": GRAY,
}
#: For what is not a method: parts of one, data, readings.
OTHERS = ("#7a4fa3", "#3465a4", "#c77f2a", "#a63d57", "#5f8a1f", "#1b7f5c", "#4a5a6a", "#d0649a")
DASHES = ("-", "--", ":", "-.")
MARKS = "os^Dv<>P"

#: What words of the files are called in pictures.
NAMES = {
    "als": "ALS",
    "irls": "IRLS",
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
    "huber": "Huber noise",
    "vanilla": "no noise",
    "pure": "pure ε",
    "1e-5": "δ = 1e-5",
    "mean": "global mean",
    "user mean": "user's own mean",
    "bias": "biases, not private",
    "popular": "most popular, not private",
    "the paper's algorithm": "DPALS, as in the paper",
    "twin-ml10m": "simulated ML-10M",
    "twin-ml20m": "simulated ML-20M",
    "McSherry & Mironov, by ratings": "DPSVD, by ratings",
}

#: What axes are called where a file does not say.
LABELS = {
    "epsilon": "ε",
    "rmse": "test RMSE (stars)",
    "recall@20": "recall@20 of held-out users",
    "observed": "share of the entries that is observed",
    "visible": "share of the entries that is visible",
    "variance": "variance of the noise",
    "releases": "number of releases",
    "variance needed": "variance that is needed",
    "density": "probability density",
    "t": "noise t",
}


@dataclass(frozen=True)
class Style:
    """How a line looks."""

    color: str
    dashes: str
    mark: str


def draw(entry: Entry, records: list[Record], file: Path) -> None:
    """Write the picture as PNG."""
    from matplotlib.figure import Figure

    panels = [part for panel in entry.plots for part in split(records, panel)]
    across = 2 if len(panels) == 4 else min(3, len(panels))
    down = -(-len(panels) // across)
    extra = ("levels", "slopes")
    lines = max(
        (len(lines) + sum(len(panel.get(name, {})) for name in extra) for panel, lines in panels),
        default=0,
    )
    lines += bool(entry.references)
    size = (WIDTH * across, (HEIGHT + LEGEND * lines) * down + 0.5)
    figure = Figure(figsize=size, dpi=110, facecolor="white", layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis, (panel, groups) in zip(axes, panels, strict=False):
        if "value" in panel:
            _heat(axis, records, panel)
        else:
            _panel(axis, entry, panel, groups)
    _share_axes(axes, [panel for panel, _ in panels])
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    title = textwrap.fill(entry.title, int(10 * size[0]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold", color=INK)
    with atomic_write(file) as aside:
        figure.savefig(aside, format="png")


def _share_axes(axes: Any, panels: Sequence[Mapping[str, Any]]) -> None:
    """Give the parts of one panel, and panels that ask for it, the same vertical axis."""
    shared = [
        (panel.get("share_y", panel.get("part")), axis)
        for axis, panel in zip(axes, panels, strict=False)
    ]
    for key in {key for key, _ in shared if key is not None}:
        same = [axis for other, axis in shared if other == key]
        low, high = zip(*(axis.get_ylim() for axis in same), strict=True)
        for axis in same:
            axis.set_ylim(min(low), max(high))


def split(
    records: list[Record], panel: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], list[Group]]]:
    """The panel with its lines; as several if there are too many, each with those that go
    across.
    """
    if "value" in panel:
        return [(panel, [])]
    x, y = panel["x"], panel["y"]
    if "relative" in panel:
        records = compare(records, y, panel["relative"])
    groups = [
        line for line in group(records, panel.get("line", []), panel.get("where")) if line.values(y)
    ]
    across = [line for line in groups if not any(x in record for record in line.records)]
    along = [line for line in groups if line not in across]
    room = max(1, MOST_LINES - len(across))
    if len(groups) <= MOST_LINES:
        return [(panel, groups)]
    parts = -(-len(along) // room)
    each = -(-len(along) // parts)
    title = panel.get("title", "")
    return [
        (
            {**panel, "title": f"{title} ({at + 1} of {parts})".strip(), "part": title or y},
            along[at * each : (at + 1) * each] + across,
        )
        for at in range(parts)
    ]


def compare(records: list[Record], y: str, with_: Mapping[str, Any]) -> list[Record]:
    """Return the records with y in percent above those that differ by these settings only."""
    numbers = {name for record in records for name in record if isinstance(record[name], float)}
    settings = {name for record in records for name in record} - numbers - set(with_)
    settings |= {"epsilon", "observed", "variance"}

    def key(record: Record) -> tuple[Any, ...]:
        return tuple(str(record.get(name)) for name in sorted(settings))

    base = {key(record): record[y] for record in records if matches(record, with_) and y in record}
    return [
        {**record, y: 100 * (record[y] / base[key(record)] - 1)}
        for record in records
        if y in record and key(record) in base and not matches(record, with_)
    ]


def method(keys: Mapping[str, Any]) -> str | None:
    """The method that a line is of: the longest name that one of its settings begins with."""
    for value in keys.values():
        text = str(value).removeprefix("as printed: ")
        text = next((name for name in METHODS if text.endswith(f": {name}")), text)
        known = [
            name
            for name in METHODS
            if text == name or text.startswith(tuple(f"{name}{end}" for end in ", '-"))
        ]
        if known:
            return max(known, key=len)
    return None


def styles(lines: Sequence[Mapping[str, Any]]) -> list[Style]:
    """Of the lines of a panel. Several of one method: the first is strongest (of numbers the
    last), others lighter.
    """
    names = [method(keys) for keys in lines]
    free = iter(color for at in range(len(lines)) for color in [OTHERS[at % len(OTHERS)]])
    found: list[Style] = []
    for at, name in enumerate(names):
        mark = MARKS[at % len(MARKS)]
        if name is None:
            found.append(Style(next(free), "-", mark))
            continue
        of_it = [
            other
            for other, known in enumerate(names)
            if known is not None and METHODS[known] == METHODS[name]
        ]
        ends = [list(lines[other].values())[-1] for other in of_it]
        if all(isinstance(end, int | float) for end in ends):
            of_it.reverse()
        place = of_it.index(at)
        lighter = 0.55 * place / max(len(of_it) - 1, 1)
        found.append(Style(_mixed(METHODS[name], lighter), DASHES[place % len(DASHES)], mark))
    return found


def _colored_by(line: Group, panel: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that tell a line from others, and the model that all its records have where
    those name none.
    """
    if "method" in panel:
        return {"method": panel["method"], **line.keys}
    models = {record.get("model") for record in line.records}
    return (
        line.keys if method(line.keys) or len(models) > 1 else {"model": models.pop(), **line.keys}
    )


def label(keys: Mapping[str, Any]) -> str:
    """A line's name: its settings, numbers with what they are."""
    words = [
        _spoken(name, value) for name, value in keys.items() if (name, value) != ("start", "none")
    ]
    return textwrap.shorten(", ".join(words), 58, placeholder=" …")


def places(lines: Sequence[Sequence[str]]) -> tuple[list[dict[str, float]], float]:
    """Where the bars of each line stand over its words, and how wide they are: those over one
    word side by side.
    """
    words = list(dict.fromkeys(word for line in lines for word in line))
    over = {word: [at for at, line in enumerate(lines) if word in line] for word in words}
    width = 0.8 / max(map(len, over.values()), default=1)
    found: list[dict[str, float]] = [{} for _ in lines]
    for middle, word in enumerate(words):
        for place, at in enumerate(over[word]):
            found[at][word] = middle + width * (place - (len(over[word]) - 1) / 2)
    return found, width


def _panel(axis: Any, entry: Entry, panel: Mapping[str, Any], lines: list[Group]) -> None:
    x, y = panel["x"], panel["y"]
    name = panel.get("reference", entry.references[0] if entry.references else "")
    names = NAMES | panel.get("names", {})
    words = [
        list(dict.fromkeys(r[x] for r in line.records if isinstance(r.get(x), str)))
        for line in lines
    ]
    bars, width = places(words)
    marked = False
    for line, style, of_it in zip(
        lines, styles([_colored_by(line, panel) for line in lines]), bars, strict=True
    ):
        text = label({key: names.get(value, value) for key, value in line.keys.items()})
        flat = Group({}, [record for record in line.records if x not in record])
        if flat.values(y):
            level = flat.median(y) if panel.get("statistic") == "median" else flat.mean(y)
            axis.axhline(
                level, color=style.color, linestyle="--", linewidth=1.4, label=text, zorder=2
            )
        by = panel.get("points", x)
        points = [p for p in group([r for r in line.records if x in r], [by]) if p.values(y)]
        if not points:
            continue
        place = {id(p): of_it[p.keys[x]] if of_it else p.mean(x) for p in points}
        points.sort(key=lambda p: place[id(p)])
        at = [place[id(p)] for p in points]
        _one(axis, panel, points, at, style, text, width if of_it else 0.0)
        if (slope := panel.get("slopes", {}).get(method(line.keys))) is not None:
            start = points[0].mean(y)
            ends = [start, start * (at[-1] / at[0]) ** slope]
            bound = f"slope of the bound of {text}"
            axis.plot(
                [at[0], at[-1]], ends, ":", color=style.color, linewidth=1.2, label=bound, zorder=2
            )
        if "relative" in panel:
            continue
        known = [
            (where, p.mean(panel["mark"]) if "mark" in panel else reference(entry, p, name))
            for where, p in zip(at, points, strict=True)
        ]
        known = [(where, value) for where, value in known if value is not None]
        if known:
            cross = INK if of_it else style.color  # on a bar of its own color it would not be seen
            axis.plot(
                *zip(*known, strict=True),
                "x",
                color=cross,
                markersize=9,
                markeredgewidth=2,
                zorder=5,
            )
            marked = True
    if panel.get("diagonal"):
        ends = axis.get_xlim()
        axis.plot(ends, ends, "--", color=GRAY, linewidth=1.4, label="y = x", zorder=2)
    for text, level in panel.get("levels", {}).items():
        axis.axhline(level, color=GRAY, linestyle="--", linewidth=1.4, label=text, zorder=2)
    if marked:
        axis.plot(
            [],
            [],
            "x",
            color=INK,
            markersize=8,
            markeredgewidth=2,
            label=panel.get("mark", f"published ({name})"),
        )
    _dress(axis, panel, lines, list(dict.fromkeys(word for line in words for word in line)))


def _heat(axis: Any, records: list[Record], panel: Mapping[str, Any]) -> None:
    """Colors over two counts, each a power of two."""
    x, y, value = panel["x"], panel["y"], panel["value"]
    parts: dict[tuple[int, int], float] = {}
    for sign, where in ((1, panel.get("where")), (-1, panel.get("minus"))):
        for one in group(records, [x, y], where) if where is not None else []:
            if one.values(value):
                place = (int(math.log2(one.keys[x])), int(math.log2(one.keys[y])))
                seeds = len(
                    {record.get("seed") for record in records if matches(record, where or {})}
                )
                parts[place] = parts.get(place, 0.0) + sign * sum(one.values(value)) / max(seeds, 1)
    spans = [range(min(p[at] for p in parts), max(p[at] for p in parts) + 1) for at in (0, 1)]
    grid = [[parts.get((column, row), 0.0) for column in spans[0]] for row in spans[1]]
    most = max(abs(part) for part in parts.values())
    look = (
        {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
        if "minus" in panel
        else {"cmap": "BuGn", "vmin": 0.0}
    )
    edges = [[2**power for power in (*span, span.stop)] for span in spans]
    shown = axis.pcolormesh(edges[0], edges[1], grid, **look)
    axis.figure.colorbar(shown, ax=axis, label=panel.get("value_label", value), format="%.3g")
    _dress(axis, {**panel, "log_x": True, "log_y": True}, [], [])


def _one(
    axis: Any,
    panel: Mapping[str, Any],
    points: list[Group],
    at: list[float],
    style: Style,
    name: str,
    width: float,
) -> None:
    """One line, or the bars of one color where x is a word."""
    centers, below, above = _spread(points, panel)
    ends = [below, above] if any(below) or any(above) else None
    if width and panel.get("dots"):
        axis.errorbar(at, centers, ends, color=style.color, fmt="o", capsize=3, label=name)
        return
    if width:
        axis.bar(at, centers, width, yerr=ends, color=style.color, capsize=2, label=name, zorder=3)
        return
    axis.errorbar(
        at,
        centers,
        ends,
        color=style.color,
        linestyle=style.dashes,
        marker=style.mark if len(points) <= 40 else "",
        markersize=4.5,
        linewidth=1.7,
        capsize=2.5,
        label=name,
        zorder=3,
    )


def _spread(
    points: list[Group], panel: Mapping[str, Any]
) -> tuple[list[float], list[float], list[float]]:
    """The middle of every point, and how far it reaches below and above."""
    y = panel["y"]
    if panel.get("statistic") == "median":
        middles = [p.median(y) for p in points]
        ends = [p.quartiles(y) for p in points]
        below = [middle - low for middle, (low, _) in zip(middles, ends, strict=True)]
        return (
            middles,
            below,
            [high - middle for middle, (_, high) in zip(middles, ends, strict=True)],
        )
    middles = [p.mean(y) for p in points]
    above = [p.spread(y) for p in points]
    if not panel.get("log_y"):
        return middles, above, above
    # a deviation as large as the mean has no place on a logarithmic axis, the lowest value has
    lowest = [middle - min(p.values(y)) for middle, p in zip(middles, points, strict=True)]
    return middles, [min(pair) for pair in zip(above, lowest, strict=True)], above


def _dress(axis: Any, panel: Mapping[str, Any], lines: list[Group], words: list[str]) -> None:
    x = panel["x"]
    ticks = sorted(
        {r[x] for line in lines for r in line.records if isinstance(r.get(x), int | float)}
    )
    shown: list[str] = []
    if panel.get("log_x"):
        axis.set_xscale("log")
        _plain_numbers(axis.xaxis)
    if words:
        names = NAMES | panel.get("names", {})
        shown = [_wrapped(names.get(word, word)) for word in words]
        axis.set_xticks(range(len(words)), shown)
    elif 1 < len(ticks) <= 8 and _apart(
        [math.log(tick) for tick in ticks] if panel.get("log_x") else ticks
    ):
        axis.set_xticks(
            ticks, [f"{tick:,}" if isinstance(tick, int) else f"{tick:.3g}" for tick in ticks]
        )
        axis.minorticks_off()
    if panel.get("log_y"):
        axis.set_yscale("log")
        _plain_numbers(axis.yaxis)
    axis.set_title(panel.get("title", ""), fontsize=10, color=INK, loc="left")
    axis.set_xlabel(axis_label(panel, "x"), fontsize=9, color=INK)
    axis.set_ylabel(axis_label(panel, "y"), fontsize=9, color=INK)
    axis.grid(color=FAINT, linewidth=0.7, zorder=0)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8, colors=INK)
    axis.spines[["top", "right"]].set_visible(False)
    if told := axis.get_legend_handles_labels()[1]:
        columns = 2 if len(told) > 4 and max(map(len, told)) < 34 else 1
        below = -0.14 - 0.035 * max((word.count("\n") for word in shown), default=0)
        place = {"loc": "upper left", "bbox_to_anchor": (0.0, below), "ncols": columns}
        axis.legend(fontsize=8, frameon=False, labelcolor=INK, **place)


def _wrapped(word: str) -> str:
    """In short lines, none of which ends with an equals sign."""
    whole = word.replace(" = ", "\u00a0=\u00a0")
    return "\n".join(textwrap.wrap(whole, 12, break_long_words=False))


def _apart(ticks: Sequence[float]) -> bool:
    """Whether a label for each has room on the axis, which is as long as they reach."""
    gaps = [high - low for low, high in itertools.pairwise(ticks)]
    return min(gaps) > 0.08 * (ticks[-1] - ticks[0])


def _plain_numbers(of: Any) -> None:
    """1, 2, 5, 10 … on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    of.set_major_locator(LogLocator(subs=(1, 2, 5)))
    of.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    of.set_minor_formatter(NullFormatter())


def axis_label(panel: Mapping[str, Any], axis: str) -> str:
    """What the file says, what is usual, or the bare name."""
    return str(panel.get(f"{axis}_label") or LABELS.get(panel[axis], panel[axis]))


def _spoken(name: str, value: Any) -> str:
    if isinstance(value, str):
        return f"{value} start" if name == "start" else value
    if name == "users":
        return f"{value:,g} users"
    symbols = {
        "nu": "ν =",
        "mu": "μ =",
        "lambda": "λ =",
        "epsilon": "ε =",
        "sigma": "σ =",
        "condition": "condition number",
    }
    symbol = symbols.get(name, name)
    return f"{symbol} {value:,g}"


def _mixed(color: str, white: float) -> str:
    """The color with that part of white."""
    parts: Iterable[int] = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)
