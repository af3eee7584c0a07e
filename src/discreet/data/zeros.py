"""Ids such as ``007`` anywhere in a large text file, noticed in a small part of the time that reading it takes.

Arrow reads ``007`` as the integer 7, ``-0`` as 0 and ``0x1F`` as 31, so that two people would become one. The first
lines decide whether reading ids as integers is worth trying; this looks through all the others, by comparing bytes in
bulk.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.text import Layout, Replaced, looks_whole

_BLOCK = 1 << 18  # what is compared stays in the cache
_BEFORE = b' "-\t'  # what may stand between the beginning of a field and its number
_ZERO, _MINUS, _QUOTE, _X, _LOWER = np.frombuffer(b'0-"x ', np.uint8)  # a letter with the bit of a space is lower case


def padded_ids(stream: Any, layout: Layout) -> set[str]:
    """Which of ``user`` and ``item`` looked like integers in the first lines, and have such an id further down."""
    roles = {at: role for role, at in layout.columns.items() if role in ("user", "item")}
    roles = {at: role for at, role in roles.items() if looks_whole(layout.sample, at)}
    separator = layout.separator.encode()
    if len(separator) > 1:
        stream, separator = Replaced(stream, separator, b"\x1f"), b"\x1f"
    found: set[str] = set()
    held = b""
    while roles and len(found) < len(roles):
        fresh = stream.read(_BLOCK)
        block = held + fresh
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 if fresh else len(block)
        found |= {roles[at] for at in _columns_with(block[:cut], separator[0], layout.quoted, roles)}
        held = block[cut:]
        if not fresh:
            break
    return found


def _columns_with(block: bytes, separator: int, quoted: bool, wanted: Collection[int]) -> set[int]:
    """Columns among those wanted in which a number of these whole lines has a leading zero."""
    text = np.frombuffer(b"\n" + block + b"\n", np.uint8)
    at = np.flatnonzero(text == _ZERO)
    before, after = text[at - 1], text[at + 1]
    # a byte minus "0" is at most 9 for digits alone, because smaller ones wrap round to large numbers
    at = at[(before - _ZERO > 9) & ((after - _ZERO <= 9) | (before == _MINUS) | (after | _LOWER == _X))]
    if not len(at):
        return set()
    ends = (text == ord("\n")) | (text == ord("\r"))
    fields = text == separator
    if quoted and (text == _QUOTE).any():
        outside = (np.cumsum(text == _QUOTE) & 1) == 0
        fields &= outside
        ends &= outside
    column, start = _place(at, np.flatnonzero(ends), np.flatnonzero(fields))
    return {int(c) for c in wanted if _any_first(text, at[column == c], start[column == c])}


def _place(at: NDArray[Any], ends: NDArray[Any], fields: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Column of each position, and where its field begins; `ends` are line ends and `fields` separators."""
    line = ends[np.searchsorted(ends, at) - 1]
    before = np.searchsorted(fields, at)
    column = before - np.searchsorted(fields, line)
    last = fields[np.maximum(before - 1, 0)] if len(fields) else line
    return column, np.where(column > 0, last, line) + 1


def _any_first(text: NDArray[np.uint8], at: NDArray[Any], start: NDArray[Any]) -> bool:
    """Whether a position is the first digit of its field."""
    if (at == start).any():
        return True
    return any(not bytes(text[s:a]).strip(_BEFORE) for a, s in zip(at.tolist(), start.tolist(), strict=True))
