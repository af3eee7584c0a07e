"""HTML from the templates of this package: whatever is not `Markup` is escaped, so that no title or
id can become markup.
"""

from __future__ import annotations

import functools
import json
import re
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader
from markupsafe import Markup

from discreet.data.safe_io import content_policy

# what no HTML file may hold: control characters, halves of surrogate pairs, noncharacters
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def render_template(file: str, style: str, script: str | None = None, **values: Any) -> str:
    """Render a template, with a style sheet and a script that its policy allows by their hashes."""
    sheet = read_file(style)
    code = None if script is None else read_file(script)
    page = _environment().get_template(file)
    return (
        page.render(
            style=Markup(sheet),
            script=None if code is None else Markup(code),
            policy=content_policy(sheet, code),
            **values,
        ).strip()
        + "\n"
    )


def read_file(name: str) -> str:
    """Read a file of this package."""
    return resources.files("discreet.report").joinpath(name).read_text("utf-8")


@functools.cache
def _environment() -> Environment:
    def load(name: str) -> str:
        # sentences run over several lines of a template; a page has each in one line
        return re.sub(r"\s*\n\s*", " ", read_file(f"templates/{name}"))

    made = Environment(loader=FunctionLoader(load), autoescape=True, finalize=clean)
    made.filters |= {"power": power, "repr": repr}
    return made


def clean(value: Any) -> Any:
    """Replace what no HTML file may hold; None is nothing."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else _STRANGE.sub("\ufffd", str(value))


def markup(pattern: str, *values: Any, **named: Any) -> Markup:
    """Fill a pattern of HTML with escaped values."""
    return Markup(pattern).format(
        *map(clean, values), **{name: clean(value) for name, value in named.items()}
    )


def power(value: float) -> str:
    """Write a small probability as 10⁻⁶ or 7.3 × 10⁻⁶."""
    if not 0 < value < 1e-3:
        return f"{value:.3g}"
    digits, exponent = f"{value:.2e}".split("e")
    raised = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    digits = digits.rstrip("0").rstrip(".")
    return raised if digits == "1" else f"{digits} × {raised}"


def script_data(value: Any) -> Markup:
    """Write values for the page's script; nothing in them can end the script element."""
    packed = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = _STRANGE.sub("\ufffd", packed).replace("<", "\\u003c")
    return Markup(safe.replace("\u2028", " ").replace("\u2029", " "))
