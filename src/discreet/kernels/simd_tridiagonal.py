"""Vector micro-kernels for symmetric tridiagonal matrices T, with several shifts λ side by side in
vector registers.

``sturm``
    how many eigenvalues of T lie below each of some shifts.
``pivots``, ``joins``, ``chains``, ``combine``
    the four passes of a twisted factorization: an eigenvector for each of some shifts.

T has the diagonal d_0 … d_{r−1}; off the diagonal, e_i joins rows i − 1 and i, and e_0 = e_r = 0
(e² in `squares`). How kernels are written, and what `like` is: see `discreet.kernels.simd`.
"""

from __future__ import annotations

from typing import Any

from discreet.kernels.simd import I64, Emit, intrinsic, void

STURM_VECTORS = 4  # enough that divisions do not wait for each other
SHIFT_VECTORS = 2


def _away_from_zero(e: Emit, y: Any) -> Any:
    return e.b.select(
        e.b.fcmp_ordered("<", e.call("fabs", y), e.constant(1e-30)), e.constant(-1e-30), y
    )


@intrinsic
def sturm(typingctx: Any, like: Any, d: Any, squares: Any, shifts: Any, counts: Any, r: Any) -> Any:
    """``counts[k]`` = negative pivots of T − shifts[k], for 4 vectors of shifts."""

    def emit(e: Emit, d: Any, squares: Any, shifts: Any, counts: Any, r: Any) -> None:
        some = range(STURM_VECTORS)
        x = [e.load(shifts, e.width * v) for v in some]

        def body(carried: list[Any]) -> list[Any]:
            d, squares, *rest = carried
            pivot, n = rest[:STURM_VECTORS], rest[STURM_VECTORS:]
            a, b = e.splat(d), e.splat(squares)
            for v in some:
                pivot[v] = _away_from_zero(e, e.b.fsub(e.b.fsub(a, x[v]), e.b.fdiv(b, pivot[v])))
                below = e.b.fcmp_ordered("<", pivot[v], e.constant(0.0))
                n[v] = e.b.fadd(n[v], e.b.select(below, e.constant(1.0), e.constant(0.0)))
            return [e.address_at(d, e.size), e.address_at(squares, e.size), *pivot, *n]

        start = [e.constant(1.0) for _ in some] + [e.constant(0.0) for _ in some]
        n = e.loop(r, [d, squares, *start], body)[2 + STURM_VECTORS :]
        for v in some:
            e.store(n[v], counts, e.width * v)

    return void(5, like, emit)


@intrinsic
def pivots(
    typingctx: Any, like: Any, d: Any, squares: Any, shifts: Any, top: Any, bottom: Any, r: Any
) -> Any:
    """Inverse pivots of T − λ from the top (row i in row i + 1 of `top`) and, at the same time,
    from the bottom.
    """

    def emit(e: Emit, d: Any, squares: Any, shifts: Any, top: Any, bottom: Any, r: Any) -> None:
        some = range(SHIFT_VECTORS)
        line = SHIFT_VECTORS * e.width
        size = e.size
        x = [e.load(shifts, e.width * v) for v in some]
        elements, lines = e.b.mul(r, I64(size)), e.b.mul(r, I64(line))

        def body(carried: list[Any]) -> list[Any]:
            d1, s1, t, d2, s2, u, *inverse = carried
            for at, (a, b, out) in enumerate(
                ((e.splat(d1), e.splat(s1), t), (e.splat(d2), e.splat(s2), u))
            ):
                for v in some:
                    k = at * SHIFT_VECTORS + v
                    y = _away_from_zero(e, e.fma(e.b.fneg(b), inverse[k], e.b.fsub(a, x[v])))
                    inverse[k] = e.b.fdiv(e.constant(1.0), y)
                    e.store(inverse[k], out, e.width * v)
            return [
                e.address_at(d1, size),
                e.address_at(s1, size),
                e.address_at(t, line),
                e.address_at(d2, -size),
                e.address_at(s2, -size),
                e.address_at(u, -line),
                *inverse,
            ]

        first = [d, squares, e.address_at(top, line)]
        last = [
            e.address_at(e.b.add(d, elements), -size),
            e.b.add(squares, elements),
            e.b.add(bottom, lines),
        ]
        e.loop(r, [*first, *last, *[e.constant(0.0)] * (2 * SHIFT_VECTORS)], body)

    return void(6, like, emit)


@intrinsic
def joins(
    typingctx: Any,
    like: Any,
    d: Any,
    squares: Any,
    shifts: Any,
    top: Any,
    bottom: Any,
    gamma: Any,
    join: Any,
    r: Any,
) -> Any:
    """Find where the pivots from both sides nearly cancel: the smallest γ in size, and its row (as
    a floating number).
    """

    def emit(
        e: Emit,
        d: Any,
        squares: Any,
        shifts: Any,
        top: Any,
        bottom: Any,
        gamma: Any,
        join: Any,
        r: Any,
    ) -> None:
        some = range(SHIFT_VECTORS)
        line = SHIFT_VECTORS * e.width
        x = [e.load(shifts, e.width * v) for v in some]

        def body(carried: list[Any]) -> list[Any]:
            d, squares, t, u, i, *rest = carried
            best, where = rest[:SHIFT_VECTORS], rest[SHIFT_VECTORS:]
            a = e.splat(d)
            above = e.b.fneg(e.splat(squares))
            below = e.b.fneg(e.splat(squares, e.size))
            for v in some:
                y = e.fma(above, e.load(t, e.width * v), e.b.fsub(a, x[v]))
                y = e.fma(below, e.load(u, e.width * v), y)
                better = e.b.fcmp_ordered("<", e.call("fabs", y), e.call("fabs", best[v]))
                best[v], where[v] = e.b.select(better, y, best[v]), e.b.select(better, i, where[v])
            return [
                e.address_at(d, e.size),
                e.address_at(squares, e.size),
                e.address_at(t, line),
                e.address_at(u, line),
                e.b.fadd(i, e.constant(1.0)),
                *best,
                *where,
            ]

        start = [e.constant(1e300)] * SHIFT_VECTORS + [e.constant(0.0)] * SHIFT_VECTORS
        found = e.loop(
            r, [d, squares, top, e.address_at(bottom, 2 * line), e.constant(0.0), *start], body
        )[5:]
        for v in some:
            e.store(found[v], gamma, e.width * v)
            e.store(found[SHIFT_VECTORS + v], join, e.width * v)

    return void(8, like, emit)


@intrinsic
def chains(
    typingctx: Any, like: Any, off_diagonal: Any, join: Any, top: Any, bottom: Any, r: Any
) -> Any:
    """1 where they join, from there upwards in `top` and downwards in `bottom`, in place of the
    pivots; else 0.
    """

    def emit(e: Emit, off_diagonal: Any, join: Any, top: Any, bottom: Any, r: Any) -> None:
        some = range(SHIFT_VECTORS)
        line = SHIFT_VECTORS * e.width
        size = e.size
        where = [e.load(join, e.width * v) for v in some]
        elements, lines = e.b.mul(r, I64(size)), e.b.mul(r, I64(line))
        last = e.b.fsub(e.number(r), e.constant(1.0))

        def body(carried: list[Any]) -> list[Any]:
            e1, u, e2, t, i, *z = carried
            for at, (row, b, out) in enumerate(
                ((i, e.splat(e1), u), (e.b.fsub(last, i), e.splat(e2), t))
            ):
                for v in some:
                    k = at * SHIFT_VECTORS + v
                    next_ = e.b.fmul(e.b.fmul(e.b.fneg(b), z[k]), e.load(out, e.width * v))
                    z[k] = e.b.select(e.b.fcmp_ordered("==", where[v], row), e.constant(1.0), next_)
                    e.store(z[k], out, e.width * v)
            return [
                e.address_at(e1, size),
                e.address_at(u, line),
                e.address_at(e2, -size),
                e.address_at(t, -line),
                e.b.fadd(i, e.constant(1.0)),
                *z,
            ]

        down = [off_diagonal, e.address_at(bottom, line)]
        up = [e.b.add(off_diagonal, elements), e.b.add(top, lines)]
        e.loop(r, [*down, *up, e.constant(0.0), *[e.constant(0.0)] * (2 * SHIFT_VECTORS)], body)

    return void(5, like, emit)


@intrinsic
def combine(
    typingctx: Any,
    like: Any,
    join: Any,
    top: Any,
    bottom: Any,
    z: Any,
    ldz: Any,
    lengths: Any,
    r: Any,
) -> Any:
    """Both chains as one vector per shift, in columns of z whose rows are `ldz` bytes apart,
    and its squared length.
    """

    def emit(
        e: Emit, join: Any, top: Any, bottom: Any, z: Any, ldz: Any, lengths: Any, r: Any
    ) -> None:
        some = range(SHIFT_VECTORS)
        line = SHIFT_VECTORS * e.width
        where = [e.load(join, e.width * v) for v in some]

        def body(carried: list[Any]) -> list[Any]:
            t, u, z, i, *length = carried
            for v in some:
                above = e.b.fcmp_ordered("<=", i, where[v])
                y = e.b.select(above, e.load(t, e.width * v), e.load(u, e.width * v))
                e.store(y, z, e.width * v)
                length[v] = e.fma(y, y, length[v])
            return [
                e.address_at(t, line),
                e.address_at(u, line),
                e.b.add(z, ldz),
                e.b.fadd(i, e.constant(1.0)),
                *length,
            ]

        start = [
            e.address_at(top, line),
            e.address_at(bottom, line),
            z,
            e.constant(0.0),
            *[e.constant(0.0)] * SHIFT_VECTORS,
        ]
        length = e.loop(r, start, body)[4:]
        for v in some:
            e.store(length[v], lengths, e.width * v)

    return void(7, like, emit)
