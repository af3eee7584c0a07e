"""Brent's method for a root of a function on an interval.

The same steps as `scipy.optimize.brentq`, to the last bit. Importing `scipy.optimize` takes as long
as training a small model, and every training needs a root.

Reference: R. P. Brent, Algorithms for Minimization Without Derivatives, 1973, chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

EPSILON = 2.0**-52


def brentq(
    f: Callable[[float], float],
    a: float,
    b: float,
    xtol: float = 2e-12,
    rtol: float = 4 * EPSILON,
    maxiter: int = 100,
) -> float:
    """Return x between a and b with f(x) = 0, to within ``xtol + rtol·|x|``.

    f must have different signs at a and b.
    """
    before = float(a)
    x = float(b)
    f_before = _value(f, before)
    fx = _value(f, x)
    if f_before == 0.0:
        return before
    if fx == 0.0:
        return x
    if (f_before < 0.0) == (fx < 0.0):
        raise ValueError("f(a) and f(b) must have different signs")
    other = f_other = step = last_step = 0.0
    for _ in range(maxiter):
        if f_before != 0.0 and fx != 0.0 and (f_before < 0.0) != (fx < 0.0):
            # The root is between the last two points.
            other = before
            f_other = f_before
            last_step = step = x - before
        if abs(f_other) < abs(fx):
            # x is always the better end of the bracket.
            before, x, other = x, other, x
            f_before, fx, f_other = fx, f_other, fx
        tolerance = (xtol + rtol * abs(x)) / 2
        bisection = (other - x) / 2
        if fx == 0.0 or abs(bisection) < tolerance:
            return x
        trial = math.inf
        if abs(last_step) > tolerance and abs(fx) < abs(f_before):
            trial = _interpolate(before, x, other, f_before, fx, f_other)
        if 2 * abs(trial) < min(abs(last_step), 3 * abs(bisection) - tolerance):
            last_step, step = step, trial
        else:
            last_step = step = bisection
        before = x
        f_before = fx
        if abs(step) > tolerance:
            x += step
        else:
            x += tolerance if bisection > 0 else -tolerance
        fx = _value(f, x)
    raise RuntimeError(f"no root within {maxiter} steps")


def _value(f: Callable[[float], float], x: float) -> float:
    value = float(f(x))
    if math.isnan(value):
        raise ValueError(f"the function is not a number at {x}")
    return value


def _interpolate(
    before: float, x: float, other: float, f_before: float, fx: float, f_other: float
) -> float:
    """Return the step to the root of a line or an inverse parabola; infinite if there is none."""
    try:
        if before == other:
            return -fx * (x - before) / (fx - f_before)
        slope = (f_before - fx) / (before - x)
        slope_other = (f_other - fx) / (other - x)
        top = -fx * (f_other * slope_other - f_before * slope)
        return top / (slope_other * slope * (f_other - f_before))
    except ZeroDivisionError:
        return math.inf
