"""HTML from Python values: whatever is not `Html` already is escaped, so no title or id can
become markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


_VOID = frozenset({"meta", "input", "br", "hr"})
# what no HTML file may hold: control characters, halves of surrogate pairs, characters that are
# none
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def text(value: Any) -> Html:
    """A value as it may stand between tags and in attributes."""
    return (
        value
        if isinstance(value, Html)
        else Html(html.escape(_STRANGE.sub("\ufffd", str(value)), quote=True))
    )


def tag(name: str, /, *inner: Any, **attributes: Any) -> Html:
    """An element; ``class_`` is class, ``data_x`` is data-x, None leaves an attribute out and
    True has no value.
    """
    shown = ""
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            shown += f" {key}"
        elif value is not None and value is not False:
            shown += f' {key}="{text(value)}"'
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(inner)}</{name}>")


def join(parts: Iterable[Any], between: str = "") -> Html:
    """The parts one after another; None is nothing."""
    return Html(between.join(text(part) for part in parts if part is not None))


def title(value: Any) -> Html:
    """A name that somebody else wrote, which may run from right to left."""
    return tag("bdi", value)


def table(
    head: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    *,
    caption: str,
    words: Sequence[int] = (),
    quiet: bool = False,
) -> Html:
    """A table whose first column names the rows.

    On a phone rows of more than three cells become cards (by the style sheet), which would make
    browsers forget that this is a table: hence the roles, and the column's name at every cell.
    `words` are the columns that are not numbers; a `quiet` caption is for those who cannot see that
    the heading above says the same.
    """
    lines = []
    for row in rows:
        first, *others = row
        cells = [tag("th", first, scope="row", role="rowheader")]
        for at, value in enumerate(others, start=1):
            kind = "words" if at in words else None
            cells.append(
                tag("td", tag("span", value), role="cell", data_label=head[at], class_=kind)
            )
        lines.append(tag("tr", *cells, role="row"))
    names = [
        tag(
            "th",
            name,
            scope="col",
            role="columnheader",
            class_="words" if at in (0, *words) else None,
        )
        for at, name in enumerate(head)
    ]
    whole = tag(
        "table",
        tag("caption", caption, class_="unseen" if quiet else None),
        tag("thead", tag("tr", *names, role="row"), role="rowgroup"),
        tag("tbody", *lines, role="rowgroup"),
        role="table",
        class_="narrow" if len(head) <= 3 else None,
    )
    return tag("div", whole, class_="scroll")


def power(value: float) -> str:
    """A small probability as people write it: 10⁻⁶, 7.3 × 10⁻⁶."""
    if not 0 < value < 1e-3:
        return f"{value:.3g}"
    digits, exponent = f"{value:.2e}".split("e")
    raised = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    digits = digits.rstrip("0").rstrip(".")
    return raised if digits == "1" else f"{digits} × {raised}"


def data(name: str, value: Any) -> Html:
    """Values for the page's script; ``<`` is escaped, so that nothing in them can end the
    element.
    """
    packed = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = (
        _STRANGE.sub("\ufffd", packed)
        .replace("<", "\\u003c")
        .replace("\u2028", " ")
        .replace("\u2029", " ")
    )
    return Html(f'<script type="application/json" id="{text(name)}">{safe}</script>')


def content_policy(style: str, script: str | None = None) -> str:
    """Write the content policy of a page: this style sheet and this script by their hashes, and
    nothing else.
    """
    scripts = "'none'" if script is None else _hash_source(script)
    return (
        f"default-src 'none'; style-src {_hash_source(style)}; script-src {scripts}; "
        "form-action 'none'; base-uri 'none'"
    )


def _hash_source(inner: str) -> str:
    digest = hashlib.sha256(inner.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
