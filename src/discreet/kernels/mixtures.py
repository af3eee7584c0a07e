"""How much of a history belongs to each community: maximum a posteriori weights of a mixture.

Items are drawn from K public distributions P_z over the catalog. A user whose items j have weights
x_j ≥ 0 has, with the public prior π and its strength α, the mixture weights that expectation
maximization finds from θ = π:

    θ_z ← (α π_z + Σ_j x_j θ_z P_jz/Σ_y θ_y P_jy)/(α + Σ_j x_j)

A fixed number of steps is made, each in float64 and in the order of the history, so that no bit
depends on which users are computed together. Eight items are worked on at a time: their sums over
communities are eight registers of four partial sums, and the additions to θ stay in order. Products
are rounded before they are added, in vector instructions as in plain ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.kernels.simd import ADDRESS, I64, Emit, address, intrinsic
from discreet.kernels.threads import cost_cuts, run

LANES = 4  # of float64 at a time, on every machine
ITEMS = 8  # worked on at a time: as many independent sums


def mixture_weights(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    x: NDArray[Any],
    P: NDArray[Any],
    prior: NDArray[Any],
    strength: float,
    steps: int,
) -> NDArray[np.float64]:
    """θ (users, K) of every history; `discreet.kernels.reference` has its specification.

    Parameters
    ----------
    indptr, indices, x : CSR arrays of the histories and their weights
    P : (items, K), positive
    prior : (K,), positive
    strength : α > 0
    steps : int
    """
    theta = np.empty((len(indptr) - 1, P.shape[1]))
    x = np.asarray(x, np.float64)
    prior = np.asarray(prior, np.float64)

    def work(start: int, stop: int) -> None:
        for_users(indptr, indices, x, P, prior, strength, steps, start, stop, theta)

    run(work, cost_cuts(np.diff(indptr) + 1.0))
    return theta


@njit(nogil=True, cache=True)
def for_users(
    indptr: np.ndarray,
    indices: np.ndarray,
    x: np.ndarray,
    P: np.ndarray,
    prior: np.ndarray,
    strength: float,
    steps: int,
    start: int,
    stop: int,
    theta: np.ndarray,
) -> None:
    for i in range(start, stop):
        entries = slice(indptr[i], indptr[i + 1])
        one_mixture(indices[entries], x[entries], P, prior, strength, steps, theta[i])


@njit(nogil=True, cache=True)
def one_mixture(
    items: np.ndarray,
    x: np.ndarray,
    P: np.ndarray,
    prior: np.ndarray,
    strength: float,
    steps: int,
    theta: np.ndarray,
) -> None:
    """Write the weights of one history into `theta`."""
    K = len(prior)
    # Vectors of four communities; what is left over has vectors of its own, in the first lane, so
    # that it is added to the first partial sum one by one; zeros change no sum.
    whole = K // LANES
    left = K - LANES * whole
    vectors = whole + left
    vectors += vectors % 2
    W = LANES * vectors
    # items with a weight, and items of weight 0 up to a multiple of eight
    rows = np.zeros((len(items) + ITEMS - 1, W))
    scale = np.zeros(len(items) + ITEMS - 1)
    many = 0
    for e in range(len(items)):
        if x[e] > 0.0:
            j = items[e]
            for z in range(LANES * whole):
                rows[many, z] = P[j, z]
            for z in range(left):
                rows[many, LANES * (whole + z)] = P[j, LANES * whole + z]
            scale[many] = x[e]
            many += 1
    old = np.zeros(W)
    new = np.zeros(W)
    first = np.zeros(W)  # α π
    for z in range(K):
        at = z if z < LANES * whole else LANES * (z - (LANES - 1) * whole)
        old[at] = prior[z]
        first[at] = strength * prior[z]
    sums = np.empty((ITEMS, LANES))
    times = np.empty(ITEMS)
    stride = rows.itemsize * W
    for _ in range(steps):
        new[:] = first
        for e in range(0, many, ITEMS):
            row = address(rows) + stride * e
            _sum_products(address(old), row, stride, vectors, address(sums))
            for one in range(ITEMS):
                total = (sums[one, 0] + sums[one, 1]) + (sums[one, 2] + sums[one, 3])
                times[one] = scale[e + one] / total if total > 0.0 else 0.0
            _add_products(address(old), row, stride, vectors // 2, address(times), address(new))
        total = new.sum()
        for z in range(W):
            old[z] = new[z] / total
    for z in range(K):
        theta[z] = old[z if z < LANES * whole else LANES * (z - (LANES - 1) * whole)]


# ------------------------------------------------------------------ vector instructions


def _load(e: Emit, at: Any, lanes: int) -> Any:
    vector = ir.VectorType(ir.DoubleType(), lanes)
    return e.b.load(e.b.inttoptr(at, vector.as_pointer()), align=8, typ=vector)


def _store(e: Emit, value: Any, at: Any) -> None:
    e.b.store(value, e.b.inttoptr(at, value.type.as_pointer()), align=8)


def _generator(emit: Any) -> Any:
    """Return the code generator of an intrinsic of addresses and numbers."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        emit(Emit(builder, types.Array(types.float64, 1, "C")), *args)
        return context.get_dummy_value()

    return generate


@intrinsic
def _sum_products(typingctx: Any, theta: Any, row: Any, stride: Any, count: Any, sums: Any) -> Any:
    """Write Σ θ_z P_jz of eight rows to `sums`, as four partial sums of every fourth z each."""

    def emit(e: Emit, theta: Any, row: Any, stride: Any, count: Any, sums: Any) -> None:
        b = e.b
        zero = ir.Constant(ir.VectorType(ir.DoubleType(), LANES), [0.0] * LANES)

        def body(carried: list[Any]) -> list[Any]:
            at, place, *totals = carried
            weights = _load(e, at, LANES)
            found = [
                b.fadd(total, b.fmul(weights, _load(e, here, LANES)))
                for total, here in zip(totals, e.rows(place, stride, ITEMS), strict=True)
            ]
            step = I64(8 * LANES)
            return [b.add(at, step), b.add(place, step), *found]

        _, _, *totals = e.loop(count, [theta, row, *[zero] * ITEMS], body)
        for number, total in enumerate(totals):
            _store(e, total, b.add(sums, I64(8 * LANES * number)))

    return types.void(*[ADDRESS] * 5), _generator(emit)


@intrinsic
def _add_products(
    typingctx: Any, theta: Any, row: Any, stride: Any, count: Any, times: Any, new: Any
) -> Any:
    """Add the products of eight rows with θ and a number each to `new`, one row after the other.

    Two vectors at a time: every number is added up on its own, in the same order.
    """

    def emit(e: Emit, theta: Any, row: Any, stride: Any, count: Any, times: Any, new: Any) -> None:
        b = e.b
        wide = 2 * LANES
        vector = ir.VectorType(ir.DoubleType(), wide)
        same = ir.Constant(ir.VectorType(ir.IntType(32), wide), [0] * wide)
        undefined = ir.Constant(vector, ir.Undefined)
        scales = []
        for number in range(ITEMS):
            pointer = b.inttoptr(b.add(times, I64(8 * number)), ir.DoubleType().as_pointer())
            scalar = b.load(pointer, align=8, typ=ir.DoubleType())
            first = b.insert_element(undefined, scalar, ir.IntType(32)(0))
            scales.append(b.shuffle_vector(first, undefined, same))

        def body(carried: list[Any]) -> list[Any]:
            at, place, target = carried
            weights = _load(e, at, wide)
            total = _load(e, target, wide)
            for scale, here in zip(scales, e.rows(place, stride, ITEMS), strict=True):
                part = b.fmul(weights, _load(e, here, wide))
                total = b.fadd(total, b.fmul(scale, part))
            _store(e, total, target)
            step = I64(8 * wide)
            return [b.add(at, step), b.add(place, step), b.add(target, step)]

        e.loop(count, [theta, row, new], body)

    return types.void(*[ADDRESS] * 6), _generator(emit)
