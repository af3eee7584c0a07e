"""Parameters checked before anything is done with them; every message says what was given and what is allowed."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from discreet.errors import ConfigError


def require(condition: bool, message: str) -> None:
    """Raise a `ConfigError` with the message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def require_whole(name: str, value: Any, least: int = 1) -> None:
    """Raise a `ConfigError` unless the value is a whole number of at least `least`."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    require(good, f"{name} is {value!r}, but must be a whole number of at least {least}")


def require_number(name: str, value: Any, least: float = 0) -> None:
    """Raise a `ConfigError` unless the value is a finite number of at least `least`."""
    good = isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) < math.inf
    require(good, f"{name} is {value!r}, but must be a number of at least {least}")


def require_one_of(name: str, value: Any, *allowed: str) -> None:
    """Raise a `ConfigError` unless the value is one of these words."""
    good = isinstance(value, str) and value in allowed
    require(good, f"{name} is {value!r}, but must be {' or '.join(map(repr, allowed))}")
