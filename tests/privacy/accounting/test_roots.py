"""Brent's method has the bits of scipy's, on functions that are easy, steep and flat."""

from __future__ import annotations

import math

import pytest
from scipy import optimize

from discreet.privacy.accounting.roots import brentq

FUNCTIONS = {
    "cubic": lambda x: 1e-6 * (x**3 - 0.3),
    "exponential": lambda x: math.exp(x) - math.exp(1.7),
    "steep": lambda x: 1e8 * math.tanh(50 * (x + 1.1)),
    "root of infinite slope": lambda x: math.copysign(abs(x - 2.2) ** 0.3, x - 2.2),
    "a step": lambda x: -1.0 if x < 0.7 else 1.0,
    "zero at an end": lambda x: x + 9.0,
}
SETTINGS = ({}, {"xtol": 1e-300, "rtol": 1e-7}, {"xtol": 1e-300, "rtol": 1e-15, "maxiter": 500})


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_same_bits_and_the_same_evaluations_as_scipy(name, settings):
    seen = {}
    for find in (optimize.brentq, brentq):
        points = []

        def f(x, points=points):
            points.append(x)
            return FUNCTIONS[name](x)

        seen[find] = (find(f, -9.0, 9.5, **settings), points)
    assert seen[brentq] == seen[optimize.brentq]


def test_what_has_no_root_is_an_error():
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: x * x + 1, -1, 1)
    with pytest.raises(ValueError, match="not a number"):
        brentq(lambda x: math.nan if x == 0.5 else x - 0.5, 0, 1)
    with pytest.raises(RuntimeError, match="3 steps"):
        brentq(lambda x: x**3 - 0.1, -5, 7, maxiter=3)
