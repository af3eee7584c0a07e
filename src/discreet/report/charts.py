"""Charts as SVG that take their colors from the page, so that light, dark and paper each have their
own.

All are drawn 360 units wide: on a phone one unit is about a pixel, on a desk text grows a little
with the picture. Numbers are also in a table next to every chart; the label describes the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from discreet.report.html import markup, power

WIDTH = 360  # fits a phone of 390 pixels


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    name : of the line, in the legend
    values, errors : one per group; NaN where there is none
    color : number of one of the page's colors
    """

    name: str
    values: Sequence[float]
    errors: Sequence[float]
    color: int


def ticks(low: float, high: float, n: int = 4) -> list[float]:
    """Choose about `n` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / n
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def epsilon_curve(points: Sequence[tuple[float, float]], delta: float, epsilon: float) -> Markup:
    """Draw ε over δ on a logarithmic axis, more certain to the right, with the guarantee marked."""
    frame = _Frame(34, WIDTH - 12, 18, 196, 0, 1.08 * max(max(e for _, e in points), epsilon))
    small = math.log10(points[-1][0])
    large = math.log10(points[0][0])

    def place(d: float, e: float) -> tuple[float, float]:
        share = (large - math.log10(d)) / (large - small)
        return frame.left + share * (frame.right - frame.left), frame.y(e)

    parts = frame.grid()
    for exponent in range(math.floor(large), math.ceil(small) - 1, -2):
        x = place(10.0**exponent, 0)[0]
        parts.append(_text(x, frame.bottom + 16, power(10.0**exponent), "middle"))
    parts.append(_text(frame.left - 6, frame.top - 6, "ε", "end", "strong"))
    parts.append(frame.caption("δ: additional probability up to which the bound holds", 34))
    parts.append(_path([place(d, e) for d, e in points], "line c0"))
    x, y = place(min(max(delta, points[-1][0]), points[0][0]), epsilon)
    parts.append(_dot(x, y, "5", "dot c0"))
    end = "end" if x > 0.75 * WIDTH else "start"  # below the curve there is space
    x += 0 if end == "end" else 6
    parts.append(_text(x, y + 18, f"ε = {epsilon:.4g}", end, "strong"))
    label = (
        f"Curve: the smaller the δ, the larger the ε; the guarantee is ε = {epsilon:.4g} at δ ="
        f" {power(delta)}"
    )
    return _figure(label, frame.bottom + 42, parts)


def staircase(names: Sequence[str], values: Sequence[float], label: str) -> Markup:
    """Draw what had been spent after each release."""
    frame = _Frame(34, WIDTH - 12, 18, 166, 0, 1.1 * max(values))
    width = (frame.right - frame.left) / len(values)
    points = [(float(frame.left), frame.y(0))]
    for at, value in enumerate(values):
        left = frame.left + at * width
        points += [(left, frame.y(value)), (frame.left + (at + 1) * width, frame.y(value))]
    parts = [
        *frame.grid(),
        _text(frame.left - 6, frame.top - 6, "ε", "end", "strong"),
        _path(points, "line c0"),
    ]
    if max(map(len, names)) * 6.5 < width:  # there is space for the names
        parts += frame.names(names)
    else:
        parts.append(frame.caption(f"releases 1 to {len(names)}", 16))
    return _figure(label, frame.bottom + 24, parts)


def trace(values: Sequence[float], label: str) -> Markup:
    """Draw one number per step of training, on an axis that begins at 0."""
    frame = _Frame(46, WIDTH - 12, 12, 150, 0, 1.1 * (max(values) or 1.0))
    step = (frame.right - frame.left) / max(len(values) - 1, 1)
    points = [(frame.left + at * step, frame.y(value)) for at, value in enumerate(values)]
    parts = frame.grid(".3g")
    if len(points) > 1:
        parts.append(_path(points, "line c0"))
    parts += [_dot(x, y, "2.5", "dot c0") for x, y in points[:60]]
    parts.append(frame.caption(f"steps 1 to {len(values)}", 18))
    return _figure(label, frame.bottom + 26, parts)


def bars(
    rows: Sequence[tuple[str, float, float, int]], label: str, mark: float | None = None
) -> Markup:
    """Draw horizontal bars (name, value, error or NaN, color) from 0, each with its value.

    `mark` is a line across all bars.
    """
    row = 40.0
    top = 4.0
    known = [
        value + (0 if math.isnan(error) else error)
        for _, value, error, _ in rows
        if not math.isnan(value)
    ]
    scale = (WIDTH - 62) / max([*known, mark or 0.0, 1e-12])
    parts = []
    for at, (name, value, error, color) in enumerate(rows):
        y = top + at * row
        parts.append(_text(0, y + 11, name))
        if math.isnan(value):
            parts.append(_text(0, y + 28, "not measured"))
            continue
        end = width = max(value * scale, 1.0)
        parts.append(
            markup(
                '<rect x="0" y="{}" width="{}" height="14" rx="2" class="bar c{}"></rect>',
                *(f"{y + 17:.1f}", f"{width:.1f}", color),
            )
        )
        if not math.isnan(error):
            half = error * scale
            end = width + half
            parts += [
                _line(width - half, y + 24, end, y + 24, "whisker"),
                _line(width - half, y + 20, width - half, y + 28, "whisker"),
                _line(end, y + 20, end, y + 28, "whisker"),
            ]
        parts.append(_text(end + 6, y + 28, _short(value), "", "strong"))
        if mark is not None:  # in pieces, so that it crosses no name
            parts.append(_line(mark * scale, y + 14, mark * scale, y + 34, "mark"))
    return _figure(label, top + len(rows) * row, parts)


def lines(groups: Sequence[str], series: Sequence[Series], label: str) -> Markup:
    """Draw lines over groups with error bars, on an axis from 0."""
    ends = [
        (v - e, v + e)
        for s in series
        for v, e in zip(s.values, (0 if math.isnan(x) else x for x in s.errors), strict=True)
        if not math.isnan(v)
    ]
    if not ends:
        return Markup()
    low = min(0.0, *(a for a, _ in ends))
    high = max(b for _, b in ends)
    frame = _Frame(42, WIDTH - 14, 12, 190, low, low + 1.08 * ((high - low) or 1.0))
    parts = [*frame.grid(".3g", 5), *frame.names(groups)]
    step = (frame.right - frame.left) / len(groups)
    for number, one in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * min(5.0, step / (len(series) + 1))
        points = []
        for at, (value, error) in enumerate(zip(one.values, one.errors, strict=True)):
            if math.isnan(value):
                continue
            x = frame.left + (at + 0.5) * step + shift
            y = frame.y(value)
            points.append((x, y))
            if not math.isnan(error):
                half = error / (frame.high - frame.low) * (frame.bottom - frame.top)
                parts.append(_line(x, y - half, x, y + half, f"error c{one.color}"))
        if points:
            parts.append(_path(points, f"line c{one.color}"))
        parts += [_dot(x, y, "3.2", f"dot c{one.color}") for x, y in points]
    return _figure(label, frame.bottom + 24, parts)


def legend(series: Sequence[Series]) -> Markup:
    """List the names of the lines with their colors."""
    keys = [
        markup('<li><span class="key c{}" aria-hidden="true"></span>{}</li>', one.color, one.name)
        for one in series
    ]
    return markup('<ul class="legend">{}</ul>', Markup().join(keys))


@dataclass(frozen=True)
class _Frame:
    """The area of a chart, in units of the picture, and the values at its bottom and top."""

    left: float
    right: float
    top: float
    bottom: float
    low: float
    high: float

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)

    def grid(self, form: str = "g", n: int = 4) -> list[Markup]:
        """Draw horizontal lines with their values."""
        parts = []
        for value in ticks(self.low, self.high, n):
            y = self.y(value)
            parts += [
                _line(self.left, y, self.right, y, "grid"),
                _text(self.left - 6, y + 3.5, format(value, form), "end"),
            ]
        return parts

    def names(self, names: Sequence[str]) -> list[Markup]:
        """Write names side by side below the area."""
        step = (self.right - self.left) / len(names)
        return [
            _text(self.left + (at + 0.5) * step, self.bottom + 16, name, "middle")
            for at, name in enumerate(names)
        ]

    def caption(self, words: str, below: float) -> Markup:
        return _text((self.left + self.right) / 2, self.bottom + below, words, "middle")


def _figure(label: str, height: float, parts: Sequence[Markup]) -> Markup:
    return markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" class="chart">{}</svg>',
        *(WIDTH, f"{height:g}", label, Markup().join(parts)),
    )


def _text(x: float, y: float, words: str, anchor: str = "", kind: str = "") -> Markup:
    more = markup(' text-anchor="{}"', anchor) if anchor else Markup()
    more += markup(' class="{}"', kind) if kind else Markup()
    return markup('<text x="{}" y="{}"{}>{}</text>', f"{x:.1f}", f"{y:.1f}", more, words)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    ends = (f"{value:.1f}" for value in (x1, y1, x2, y2))
    return markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"></line>', *ends, kind)


def _path(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return markup('<path d="{}" class="{}"></path>', d, kind)


def _dot(x: float, y: float, radius: str, kind: str) -> Markup:
    return markup(
        '<circle cx="{}" cy="{}" r="{}" class="{}"></circle>', f"{x:.1f}", f"{y:.1f}", radius, kind
    )


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
