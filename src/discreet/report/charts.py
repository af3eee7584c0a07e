"""Charts as SVG that take their colors from the page, so that light, dark and paper each have their
own.

All are drawn 360 units wide: on a phone one unit is about a pixel, on a desk text grows a little
with the picture. Numbers are also in a table beside every chart; the label says what there is to
see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from discreet.report.html import Html, power, tag

WIDTH = 360


@dataclass(frozen=True)
class Series:
    """A line: a name, values with their errors (NaN where there is none), and which of the
    page's colors it has.
    """

    name: str
    values: Sequence[float]
    errors: Sequence[float]
    color: int


def _figure(label: str, height: float, *parts: Html) -> Html:
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=label,
        class_="chart",
    )


def _text(x: float, y: float, words: str, **more: object) -> Html:
    return tag("text", words, x=f"{x:.1f}", y=f"{y:.1f}", **more)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _path(points: Sequence[tuple[float, float]], kind: str) -> Html:
    d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return tag("path", d=d, class_=kind)


def ticks(low: float, high: float, n: int = 4) -> list[float]:
    """About `n` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / n
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def epsilon_curve(points: Sequence[tuple[float, float]], delta: float, epsilon: float) -> Html:
    """ε over δ on a logarithmic axis, more certain to the right, with the promise marked."""
    left = 34
    right = WIDTH - 12
    top = 18
    bottom = 196
    small = math.log10(points[-1][0])
    large = math.log10(points[0][0])
    highest = 1.08 * max(max(e for _, e in points), epsilon)

    def point_at(d: float, e: float) -> tuple[float, float]:
        share = (large - math.log10(d)) / (large - small)
        return left + share * (right - left), bottom - e / highest * (bottom - top)

    parts = []
    for value in ticks(0, highest):
        y = point_at(points[0][0], value)[1]
        parts += [
            _line(left, y, right, y, "grid"),
            _text(left - 6, y + 3.5, f"{value:g}", text_anchor="end"),
        ]
    for exponent in range(math.floor(large), math.ceil(small) - 1, -2):
        x = point_at(10.0**exponent, 0)[0]
        parts.append(_text(x, bottom + 16, power(10.0**exponent), text_anchor="middle"))
    parts.append(_text(left - 6, top - 6, "ε", text_anchor="end", class_="strong"))
    parts.append(
        _text(
            (left + right) / 2,
            bottom + 34,
            "δ: the promise may fail with this probability",
            text_anchor="middle",
        )
    )
    parts.append(_path([point_at(d, e) for d, e in points], "line c0"))
    x, y = point_at(min(max(delta, points[-1][0]), points[0][0]), epsilon)
    parts.append(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=5, class_="dot c0"))
    end = "end" if x > 0.75 * WIDTH else "start"  # below the curve there is room
    x += 0 if end == "end" else 6
    parts.append(_text(x, y + 18, f"ε = {epsilon:.4g}", text_anchor=end, class_="strong"))
    label = (
        f"Curve: the smaller the δ, the larger the ε; promised is ε = {epsilon:.4g} at δ ="
        f" {power(delta)}"
    )
    return _figure(label, bottom + 42, *parts)


def staircase(names: Sequence[str], values: Sequence[float], label: str) -> Html:
    """What had been spent after each release."""
    left = 34
    right = WIDTH - 12
    top = 18
    bottom = 166
    highest = 1.1 * max(values)
    width = (right - left) / len(values)

    def y(value: float) -> float:
        return bottom - value / highest * (bottom - top)

    parts = []
    for value in ticks(0, highest):
        parts += [
            _line(left, y(value), right, y(value), "grid"),
            _text(left - 6, y(value) + 3.5, f"{value:g}", text_anchor="end"),
        ]
    points = [(float(left), y(0))]
    for at, value in enumerate(values):
        points += [(left + at * width, y(value)), (left + (at + 1) * width, y(value))]
    parts += [
        _text(left - 6, top - 6, "ε", text_anchor="end", class_="strong"),
        _path(points, "line c0"),
    ]
    if max(map(len, names)) * 6.5 < width:  # there is room for the names
        for at, name in enumerate(names):
            parts.append(_text(left + (at + 0.5) * width, bottom + 16, name, text_anchor="middle"))
    else:
        parts.append(
            _text(
                (left + right) / 2, bottom + 16, f"releases 1 to {len(names)}", text_anchor="middle"
            )
        )
    return _figure(label, bottom + 24, *parts)


def trace(values: Sequence[float], label: str) -> Html:
    """One number per step of training, on an axis that begins at 0."""
    left = 46
    right = WIDTH - 12
    top = 12
    bottom = 150
    highest = 1.1 * (max(values) or 1.0)
    parts = []
    for value in ticks(0, highest):
        y = bottom - value / highest * (bottom - top)
        parts += [
            _line(left, y, right, y, "grid"),
            _text(left - 6, y + 3.5, f"{value:.3g}", text_anchor="end"),
        ]
    step = (right - left) / max(len(values) - 1, 1)
    points = [
        (left + at * step, bottom - value / highest * (bottom - top))
        for at, value in enumerate(values)
    ]
    parts.append(_path(points, "line c0") if len(points) > 1 else Html(""))
    parts += [
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.5, class_="dot c0") for x, y in points[:60]
    ]
    parts.append(
        _text((left + right) / 2, bottom + 18, f"steps 1 to {len(values)}", text_anchor="middle")
    )
    return _figure(label, bottom + 26, *parts)


def bars(
    rows: Sequence[tuple[str, float, float, int]], label: str, mark: float | None = None
) -> Html:
    """Horizontal bars (name, value, error or NaN, color) from 0, each with its value; `mark` is
    a line across.
    """
    row = 40.0
    top = 4.0
    known = [
        value + (0 if math.isnan(error) else error)
        for _, value, error, _ in rows
        if not math.isnan(value)
    ]
    highest = max([*known, mark or 0.0, 1e-12])
    scale = (WIDTH - 62) / highest
    parts = []
    for at, (name, value, error, color) in enumerate(rows):
        y = top + at * row
        parts.append(_text(0, y + 11, name))
        if math.isnan(value):
            parts.append(_text(0, y + 28, "not measured"))
            continue
        width = max(value * scale, 1.0)
        size = {"x": 0, "y": f"{y + 17:.1f}", "width": f"{width:.1f}", "height": 14, "rx": 2}
        parts.append(tag("rect", **size, class_=f"bar c{color}"))
        end = width
        if not math.isnan(error):
            half = error * scale
            end = width + half
            parts += [
                _line(width - half, y + 24, end, y + 24, "whisker"),
                _line(width - half, y + 20, width - half, y + 28, "whisker"),
                _line(end, y + 20, end, y + 28, "whisker"),
            ]
        parts.append(_text(end + 6, y + 28, _short(value), class_="strong"))
        if mark is not None:  # in pieces, so that it crosses no name
            parts.append(_line(mark * scale, y + 14, mark * scale, y + 34, "mark"))
    return _figure(label, top + len(rows) * row, *parts)


def lines(groups: Sequence[str], series: Sequence[Series], label: str) -> Html:
    """Lines over groups with error bars; the axis is cut to where the values are."""
    left = 42
    right = WIDTH - 14
    top = 12
    bottom = 190
    ends = [
        (v - e, v + e)
        for s in series
        for v, e in zip(s.values, (0 if math.isnan(x) else x for x in s.errors), strict=True)
        if not math.isnan(v)
    ]
    if not ends:
        return Html("")
    low = min(a for a, _ in ends)
    high = max(b for _, b in ends)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - room, high + room
    parts = []
    for value in ticks(low, high, 5):
        y = bottom - (value - low) / (high - low) * (bottom - top)
        parts += [
            _line(left, y, right, y, "grid"),
            _text(left - 6, y + 3.5, f"{value:.3g}", text_anchor="end"),
        ]
    step = (right - left) / len(groups)
    for at, name in enumerate(groups):
        parts.append(_text(left + (at + 0.5) * step, bottom + 16, name, text_anchor="middle"))
    for number, one in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * min(5.0, step / (len(series) + 1))
        points = []
        for at, (value, error) in enumerate(zip(one.values, one.errors, strict=True)):
            if math.isnan(value):
                continue
            x = left + (at + 0.5) * step + shift
            y = bottom - (value - low) / (high - low) * (bottom - top)
            points.append((x, y))
            if not math.isnan(error):
                half = error / (high - low) * (bottom - top)
                parts.append(_line(x, y - half, x, y + half, f"error c{one.color}"))
        if points:
            parts.append(_path(points, f"line c{one.color}"))
        parts += [
            tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.2, class_=f"dot c{one.color}")
            for x, y in points
        ]
    return _figure(label, bottom + 24, *parts)


def legend(series: Sequence[Series]) -> Html:
    """Names of the lines, each beside its color."""
    keys = [
        tag("li", tag("span", class_=f"key c{one.color}", aria_hidden="true"), one.name)
        for one in series
    ]
    return tag("ul", *keys, class_="legend")


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
