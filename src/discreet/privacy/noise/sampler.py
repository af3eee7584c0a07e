r"""The draws of ``gaussian_spec``, compiled: intervals decide almost always, else it decides.

Each kernel has only the first 64 bits of a uniform number, so what it computes is an interval
that holds the exact value. If the whole interval leads to one decision, that decision is the exact
one. If not, the draw is left *pending*, with the words it has used, and ``gaussian_spec`` finishes
it with more bits. So the law of the result does not depend on any rounding here; only the share of
pending draws does: about σ·2⁻⁵³ for Gaussian noise, and 2·10⁻⁵ for rejected tails.

The intervals, for σ in grid units and q fractional bits with M_i = ⌊σ x_i 2^q⌋ < 2⁶³:

1. Gaussian, x = (j + v) 2⁻⁵⁵ x_i with 0 ≤ v < 1. Let h = ⌊j M_i / 2⁵⁵⌋, an integer operation
   without rounding. Then h ≤ σ x 2^q < (j + 1)(M_i + 1)/2⁵⁵ < h + 1 + (M_i + j + 1)/2⁵⁵ < h + 260,
   and the nearest integer is certain when ⌊(h + 2^{q−1})/2^q⌋ = ⌊(h + 2^{q−1} + 260)/2^q⌋.
2. Gaussian, step 3: both sides of the comparison are computed in float64, together in error by less
   than 2⁻⁴⁶, and must differ by ``WEDGE`` = 2⁻⁴⁰.
3. Tails and Laplace: with u = (j + ½) 2⁻ⁿ, |ln u − ln U| ≤ 1/j + 2⁻⁵² and the library's logarithm
   is off by at most two units in the last place; ``_log_error`` bounds the sum.

2 and 3 assume that exp and log of the C library are right to 2⁻⁵¹ of their value; libraries in use
reach about 2⁻⁵².
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.privacy.noise import gaussian_spec as exact

# 64 times the error of 2⁻⁴⁶ in 2., and the width of the interval in 1., of the docstring
WEDGE = 2.0**-40
SLACK = np.uint64(260)
#: One row per pending draw: index, how many words are known, and those words.
PENDING_COLUMNS = 5
#: A step needs at most this many words; the kernels stop when fewer are left.
MOST_WORDS = 3

Words = NDArray[np.uint64]

#: Outcome of a step: decided one way, decided the other way, or not decided by 64 bits.
TAKEN = 0
REJECTED = 1
OPEN = 2

_one, _u8, _u9 = np.uint64(1), np.uint64(8), np.uint64(9)
_REGION = np.uint64(255)
_LOW9 = np.uint64(511)
_TINY = np.uint64(2**40)
_TAIL = float(exact.TAIL)


@intrinsic
def _multiply_high(_context, a, b):  # type: ignore[no-untyped-def]
    """Return the upper 64 bits of the 128-bit product of two unsigned 64-bit numbers."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@njit(inline="always")
def _log_error(word, size):  # type: ignore[no-untyped-def]
    return 1.0 / np.float64(word) + 2.0**-50 * (1.0 + size)


@njit(inline="always")
def _hold(pending, count, index, known, first, second, third):  # type: ignore[no-untyped-def]
    pending[count, 0], pending[count, 1] = np.uint64(index), np.uint64(known)
    pending[count, 2] = first
    pending[count, 3] = second
    pending[count, 4] = third
    return count + 1


@njit(nogil=True, cache=True)
def gaussian(  # type: ignore[no-untyped-def]
    words, out, start, kinds, multiples, limits, q, sigmas, accept, edges, bells, pending
):
    """Add noise to ``out[n]`` from ``start`` on, until ``out`` or ``words`` is used up.

    Parameters
    ----------
    words : uint64 array
    out : int64 array
    kinds : uint8 array; entry ``n`` of ``out`` has kind ``kinds[n % len(kinds)]``, the row of the
        next three arrays
    multiples, limits, sigmas : M_i per kind; ⌊limit·σ·2^q⌋ per kind, 2⁶³ for none; σ per kind
    q : fractional bits
    accept, edges, bells : ``TABLES``
    pending : uint64 array of ``PENDING_COLUMNS``

    Returns
    -------
    (n, count) : the first entry not done, and the number of pending draws
    """
    n = start
    p = 0
    count = 0
    last = len(words) - MOST_WORDS
    bits = np.uint64(q)
    half = _one << np.uint64(q - 1)
    width = len(kinds)
    column = start % len(kinds)
    while n < len(out) and p <= last and count < len(pending):
        word = words[p]
        i = word & _REGION
        kind = kinds[column]
        status = TAKEN
        known = 1
        noise = np.int64(0)
        if word >> _u9 >= accept[i]:  # the cell is not wholly below the curve: one draw in seventy
            if i == 0:
                known = 3
                # next to the beginning of the tail: on which side is not known
                if word >> _u9 <= accept[i] + _u8:
                    status = OPEN
                elif multiples[kind, 1] > limits[kind]:  # the whole tail is outside the limit
                    p += known
                    continue
                else:
                    status, noise = _tail(words[p + 1], words[p + 2], sigmas[kind], limits[kind])
            else:
                status = _wedge(word >> _u9, words[p + 1], edges[i], bells[i], bells[i + 1])
                known = 2
                if status == REJECTED:
                    p += 2
                    continue
        if status == TAKEN and known < 3:
            high = _multiply_high(word & ~_LOW9, multiples[kind, i])  # type: ignore
            if high > limits[kind]:  # outside the center of Huber noise: draw again
                p += known
                continue
            size = (high + half) >> bits
            noise = np.int64(size)
            if size != (high + half + SLACK) >> bits or high + SLACK >= limits[kind]:
                status = OPEN
        if status == TAKEN:
            out[n] += -noise if word >> _u8 & _one else noise
        else:
            # a rejected tail begins again with fresh words; an undecided one keeps its words
            count = _hold(
                pending, count, n, known if status == OPEN else 1, word, words[p + 1], words[p + 2]
            )
        p += known
        n += 1
        column = column + 1 if column + 1 < width else 0
    return n, count


@njit(inline="always")
def _wedge(j, second, edge, low, high):  # type: ignore[no-untyped-def]
    """Decide step 3."""
    x = (np.float64(j) + 0.5) * 2.0**-55 * edge
    gap = math.exp(-0.5 * x * x) - (low + np.float64(second) * 2.0**-64 * (high - low))
    if abs(gap) <= WEDGE:
        return OPEN
    return TAKEN if gap > 0.0 else REJECTED


@njit(inline="always")
def _tail(first, second, sigma, limit):  # type: ignore[no-untyped-def]
    """Run step 4 once: (status, nearest integer)."""
    if first < _TINY or second < _TINY or limit < np.uint64(2**63):
        return OPEN, np.int64(0)
    one = -math.log((np.float64(first) + 0.5) * 2.0**-64)
    two = -math.log((np.float64(second) + 0.5) * 2.0**-64)
    beyond = one / _TAIL
    error = _log_error(first, one)
    gap = 2.0 * two - beyond * beyond
    if abs(gap) <= 4.0 * (1.0 + beyond) * (error + _log_error(second, two)) + 2.0**-45:
        return OPEN, np.int64(0)
    value = sigma * (_TAIL + beyond)
    doubt = sigma * error + value * 2.0**-49
    size = math.floor(value - doubt + 0.5)
    if gap > 0.0 and size != math.floor(value + doubt + 0.5):
        return OPEN, np.int64(0)
    return (TAKEN if gap > 0.0 else REJECTED), np.int64(size)


@njit(nogil=True, cache=True)
def exponential(words, out, start, kinds, offsets, scales, pending):  # type: ignore[no-untyped-def]
    """Add ±(offset + scale·E) as ``gaussian`` does: Laplace noise, and the tails of Huber noise."""
    n = start
    p = 0
    count = 0
    width = len(kinds)
    column = start % len(kinds)
    while n < len(out) and p < len(words) and count < len(pending):
        word = words[p]
        j = word >> _one
        kind = kinds[column]
        size = -math.log((np.float64(j) + 0.5) * 2.0**-63)
        level = offsets[kind] + scales[kind] * size
        doubt = scales[kind] * _log_error(j + _one, size) + level * 2.0**-50
        nearest = math.floor(level - doubt + 0.5)
        if j >= _TINY and nearest == math.floor(level + doubt + 0.5):
            noise = np.int64(nearest)
            out[n] += -noise if word & _one else noise
        else:
            count = _hold(pending, count, n, 1, word, word, word)
        p += 1
        n += 1
        column = column + 1 if column + 1 < width else 0
    return n, count


def fraction_bits(largest_sigma: float) -> int:
    """Return q, the most bits that keep σ·x₀·2^q below 2⁶³ (x₀ < 4)."""
    return 61 - max(0, math.ceil(math.log2(largest_sigma)))


def gaussian_tables(
    sigmas: Iterable[float], limit: float = 0.0
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], int]:
    """Return (multiples, limits, q) of ``gaussian``; ``limit`` in units of σ, zero for none."""
    sigmas = [float(sigma) for sigma in sigmas]
    q = fraction_bits(max(sigmas))
    multiples = [[exact.scale_edge(i, sigma, q) for i in range(exact.REGIONS)] for sigma in sigmas]
    whole = [int(Fraction(limit) * Fraction(sigma) * 2**q) for sigma in sigmas]
    cut = [min(end, 2**63 - 1) if limit else 2**63 for end in whole]
    return np.array(multiples, np.uint64), np.array(cut, np.uint64), q


def _constant_tables() -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.float64]]:
    x = exact.edges()
    below = [max(0, int(x[i + 1] / x[i] * 2**55) - 1) for i in range(exact.REGIONS)]
    edges = np.array([float(value) for value in x])
    bells = np.array([float((-value * value / 2).exp()) for value in x])
    return np.array(below, np.uint64), edges, bells


#: Largest certain j per region, the edges x_i, and f(x_i).
TABLES = _constant_tables()
