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
    number = isinstance(value, Real) and not isinstance(value, bool)
    require(not number or float(value) != math.inf, f"{name} is {value!r}, but must be a finite number")
    require(number and least <= float(value), f"{name} is {value!r}, but must be a number of at least {least}")


def require_positive(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is a finite number above 0."""
    require_number(name, value)
    require(value > 0, f"{name} is {value!r}, but must be above 0")


def require_fraction(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is a number above 0 and at most 1."""
    require_number(name, value)
    require(0 < value <= 1, f"{name} is {value!r}, but must be above 0 and at most 1")


def require_range(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is two finite numbers, the lower one first."""
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    good = pair and all(isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(x) for x in value)
    require(good, f"{name} is {value!r}, but must be two finite numbers such as (1, 5)")
    low, high = value
    require(low < high, f"{name} is ({low:g}, {high:g}), but must go from low to high")


def require_one_of(name: str, value: Any, *allowed: str) -> None:
    """Raise a `ConfigError` unless the value is one of these words."""
    good = isinstance(value, str) and value in allowed
    require(good, f"{name} is {value!r}, but must be {' or '.join(map(repr, allowed))}")


def require_flag(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is True or False."""
    import numpy as np

    require(isinstance(value, (bool, np.bool_)), f"{name} is {value!r}, but must be True or False")
