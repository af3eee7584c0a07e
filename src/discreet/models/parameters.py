"""Checks of parameters; every message has the given value and what is allowed."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from discreet.errors import ConfigError, DataError

#: Every iteration of a private model is released and charged, so more would be nothing but noise.
MOST_SWEEPS = 1_000
MOST_STEPS = 10_000


def check_that(condition: bool, message: str) -> None:
    """Raise a `ConfigError` with the message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def check_history_range(values: Any, history_range: tuple[float, float] | None) -> None:
    """Raise a `DataError` for ratings of a history outside the public range, if there is one."""
    if history_range is None:
        return
    values = np.asarray(values, np.float32)
    low, high = map(np.float32, history_range)
    if not ((low <= values) & (values <= high)).all():
        raise DataError(
            f"a rating in the history is outside the range {low:g} to {high:g}. Correct it or leave"
            " it out."
        )


def check_int(name: str, value: Any, least: int = 1, most: float = math.inf) -> None:
    """Raise a `ConfigError` unless the value is a whole number from `least` to `most`."""
    good = (
        isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most
    )
    allowed = f"of at least {least}" if most == math.inf else f"from {least} to {most:,}"
    check_that(good, f"{name} is {value!r}, but must be a whole number {allowed}")


def check_number(name: str, value: Any, least: float = 0) -> None:
    """Raise a `ConfigError` unless the value is a finite number of at least `least`."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    check_that(
        not number or float(value) != math.inf, f"{name} is {value!r}, but must be a finite number"
    )
    check_that(
        number and least <= float(value),
        f"{name} is {value!r}, but must be a number of at least {least}",
    )


def check_positive(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is a finite number above 0."""
    check_number(name, value)
    check_that(value > 0, f"{name} is {value!r}, but must be above 0")


def check_fraction(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is a number above 0 and at most 1."""
    check_number(name, value)
    check_that(0 < value <= 1, f"{name} is {value!r}, but must be above 0 and at most 1")


def check_range(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is two finite numbers, the lower one first."""
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    good = pair and all(
        isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(x) for x in value
    )
    check_that(good, f"{name} is {value!r}, but must be two finite numbers such as (1, 5)")
    low, high = value
    check_that(low < high, f"{name} is ({low:g}, {high:g}), but must go from low to high")


def check_growth(growth: float, iterations: int) -> None:
    """Raise a `ConfigError` unless every iteration gets a part of a budget that grows so."""
    check_that(0.01 <= growth <= 100, f"growth is {growth!r}, but must lie between 0.01 and 100")
    check_that(
        abs(iterations * math.log(growth)) < 500,
        f"growth is {growth!r} over {iterations:,} iterations, which leaves nothing of the budget"
        " for some of them. Choose fewer iterations, or a growth nearer to 1.",
    )


def check_choice(name: str, value: Any, *allowed: str) -> None:
    """Raise a `ConfigError` unless the value is one of these strings."""
    good = isinstance(value, str) and value in allowed
    check_that(good, f"{name} is {value!r}, but must be {' or '.join(map(repr, allowed))}")


def check_bool(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is True or False."""
    import numpy as np

    check_that(
        isinstance(value, (bool, np.bool_)), f"{name} is {value!r}, but must be True or False"
    )
