"""Any value as JSON text, for the command line and whatever else answers in JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# what JSON may hold as it is and a terminal must not get: control characters, and turns of the
# direction of writing; and halves of surrogate pairs, which JSON can escape and UTF-8 cannot hold
_STEERING = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(value: Any) -> str:
    """JSON text; numpy values become plain ones, and what JSON has no number for (NaN,
    infinity) becomes null.
    """
    text = json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
