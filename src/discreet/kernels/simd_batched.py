"""Vector micro-kernels that work on W small matrices at once, one in each lane of a vector
register.

``chol_diagonal``, ``chol_panel``
    steps of a Cholesky factorization UᵀU; reciprocals are kept on the diagonal.
``forward_panel``, ``backward_panel``
    one step of the triangular solves with that factor.
``reflect_rows``, ``reflect_first``, ``dot``, ``mix``
    two rows of a step that makes a symmetric matrix tridiagonal; its first row; and what else it
    needs of vectors.
``reflect_columns_4``, ``reflect_columns_1``
    a reflection of the rows of a matrix, and what the next one needs to know, in one pass.

How they are written, and what `like` is: see `discreet.kernels.simd`.
"""

from __future__ import annotations

from typing import Any

from discreet.kernels.simd import I64, PANEL_COLUMNS, Emit, intrinsic, void


def _emit_cholesky(
    e: Emit, first: int, columns: int, diagonal: bool, Ti: Any, Tj: Any, i: Any
) -> None:
    """Rows i..i+3 of some columns of panel Tj: subtract what rows < i explain, then solve with the
    4 x 4 corner in Ti.

    A panel holds four columns as [row][4][lane], so the loop over rows walks straight through
    memory. Where a pivot is not positive its reciprocal becomes 0: that coordinate drops out of the
    solution, and the caller can see the zero.
    """
    E = e.width
    row = 4 * e.width
    here, corner = (e.b.add(T, e.b.mul(i, I64(row))) for T in (Tj, Ti))
    cells = [
        (a, c) for a in range(4) for c in range(first, first + columns) if not diagonal or c >= a
    ]
    start = [e.load(here, row * a + E * c) for a, c in cells]

    def body(carried: list[Any]) -> list[Any]:
        p, q, *sums = carried
        right = {c: e.load(q, E * c) for c in range(first, first + columns)}
        # Negated once per row, so that the update is a fused multiply-add.
        left = [e.b.fneg(right[a] if diagonal else e.load(p, E * a)) for a in range(4)]
        new = [e.fma(left[a], right[c], sums[n]) for n, (a, c) in enumerate(cells)]
        return [e.address_at(p, row), e.address_at(q, row), *new]

    x = dict(zip(cells, e.loop(i, [Ti, Tj, *start], body)[2:], strict=True))
    for k in range(4):
        if diagonal:
            # Ordered, so that NaN counts as not positive.
            positive = e.b.fcmp_ordered(">", x[k, k], e.constant(1e-30))
            inverse = e.b.fdiv(e.constant(1.0), e.call("sqrt", x[k, k]))
            # A select and not a branch: the other lanes are other systems.
            x[k, k] = inverse = e.b.select(positive, inverse, e.constant(0.0))
        else:
            inverse = e.load(corner, row * k + E * k)
        for c in range(k + 1 if diagonal else first, first + columns):
            x[k, c] = e.b.fmul(x[k, c], inverse)
        for a in range(k + 1, 4):
            minus = e.b.fneg(x[k, a] if diagonal else e.load(corner, row * k + E * a))
            for c in range(a if diagonal else first, first + columns):
                x[a, c] = e.fma(minus, x[k, c], x[a, c])
    for a, c in cells:
        e.store(x[a, c], here, row * a + E * c)


@intrinsic
def chol_diagonal(typingctx: Any, like: Any, T: Any, i: Any) -> Any:
    return void(2, like, lambda e, T, i: _emit_cholesky(e, 0, 4, True, T, T, i))


@intrinsic
def chol_panel(typingctx: Any, like: Any, Ti: Any, Tj: Any, i: Any) -> Any:
    def emit(e: Emit, *args: Any) -> None:
        # Half a panel at a time where there are only sixteen registers.
        for first in range(0, 4, PANEL_COLUMNS):
            _emit_cholesky(e, first, PANEL_COLUMNS, False, *args)

    return void(3, like, emit)


@intrinsic
def forward_panel(typingctx: Any, like: Any, T: Any, B: Any, i: Any) -> Any:
    """``B[i..i+3] ← U[≤ i+3, i..i+3]⁻ᵀ`` step of the forward solve: what lies above first, then
    the 4 x 4 corner.
    """

    def emit(e: Emit, T: Any, B: Any, i: Any) -> None:
        E = e.width
        here = e.b.add(B, e.b.mul(i, I64(E)))

        def body(carried: list[Any]) -> list[Any]:
            t, b, *sums = carried
            minus = e.b.fneg(e.load(b))
            return [
                e.address_at(t, 4 * E),
                e.address_at(b, E),
                *[e.fma(minus, e.load(t, E * c), sums[c]) for c in range(4)],
            ]

        corner, _, *z = e.loop(i, [T, B, *[e.load(here, E * c) for c in range(4)]], body)
        for k in range(4):
            z[k] = e.b.fmul(z[k], e.load(corner, E * (4 * k + k)))
            for c in range(k + 1, 4):
                z[c] = e.fma(e.b.fneg(z[k]), e.load(corner, E * (4 * k + c)), z[c])
            e.store(z[k], here, E * k)

    return void(3, like, emit)


@intrinsic
def backward_panel(typingctx: Any, like: Any, T: Any, B: Any, i: Any) -> Any:
    """Solve the 4 x 4 corner for ``B[i..i+3]``, then take their share out of every row above."""

    def emit(e: Emit, T: Any, B: Any, i: Any) -> None:
        E = e.width
        here = e.b.add(B, e.b.mul(i, I64(E)))
        corner = e.b.add(T, e.b.mul(i, I64(4 * E)))
        x = [e.load(here, E * c) for c in range(4)]
        for k in (3, 2, 1, 0):
            for c in range(k + 1, 4):
                x[k] = e.fma(e.b.fneg(x[c]), e.load(corner, E * (4 * k + c)), x[k])
            x[k] = e.b.fmul(x[k], e.load(corner, E * (4 * k + k)))
            e.store(x[k], here, E * k)
        minus = [e.b.fneg(v) for v in x]

        def body(carried: list[Any]) -> list[Any]:
            t, b = carried
            value = e.load(b)
            for c in range(4):
                value = e.fma(minus[c], e.load(t, E * c), value)
            e.store(value, b)
            return [e.address_at(t, 4 * E), e.address_at(b, E)]

        e.loop(i, [T, B], body)

    return void(3, like, emit)


@intrinsic
def reflect_rows(
    typingctx: Any, like: Any, a: Any, b: Any, v: Any, q: Any, n: Any, p: Any, n_cols: Any
) -> Any:
    """Two rows of a symmetric matrix from the diagonal on: take out v qᵀ + q vᵀ, and add what they
    give to p = A n.

    The diagonal entries lie at a and b; v, q, n and p begin at the first of the two rows; n_cols
    are to the right.
    """

    def emit(e: Emit, a: Any, b: Any, v: Any, q: Any, n: Any, p: Any, n_cols: Any) -> None:
        E = e.width
        (va, vb), (qa, qb), (na, nb) = ((e.load(x), e.load(x, E)) for x in (v, q, n))
        minus = [e.b.fneg(x) for x in (va, qa, vb, qb)]

        def less(at: Any, offset: int, k: int, vj: Any, qj: Any) -> Any:
            x = e.fma(minus[k + 1], vj, e.fma(minus[k], qj, e.load(at, offset)))
            e.store(x, at, offset)
            return x

        aa, ab, bb = less(a, 0, 0, va, qa), less(a, E, 0, vb, qb), less(b, 0, 2, vb, qb)

        def body(carried: list[Any]) -> list[Any]:
            *at, sa, sb = carried
            a, b, v, q, n, p = at
            vj, qj, nj = e.load(v), e.load(q), e.load(n)
            x, y = less(a, 0, 0, vj, qj), less(b, 0, 2, vj, qj)
            e.store(e.fma(y, nb, e.fma(x, na, e.load(p))), p)
            return [
                *[e.address_at(address, E) for address in at],
                e.fma(x, nj, sa),
                e.fma(y, nj, sb),
            ]

        sums = [e.fma(ab, nb, e.b.fmul(aa, na)), e.fma(bb, nb, e.b.fmul(ab, na))]
        ahead = [
            e.address_at(a, 2 * E),
            e.address_at(b, E),
            *[e.address_at(x, 2 * E) for x in (v, q, n, p)],
        ]
        sums = e.loop(n_cols, [*ahead, *sums], body)[6:]
        for k in range(2):
            e.store(e.b.fadd(e.load(p, k * E), sums[k]), p, k * E)

    return void(7, like, emit)


@intrinsic
def reflect_first(typingctx: Any, like: Any, row: Any, v: Any, q: Any, own: Any, n: Any) -> Any:
    """``row_j -= v_k q_j + q_k v_j``, and the sum of the squares; v_k, q_k and then the sum lie
    at `own`.
    """

    def emit(e: Emit, row: Any, v: Any, q: Any, own: Any, n: Any) -> None:
        vk = e.b.fneg(e.load(own))
        qk = e.b.fneg(e.load(own, e.width))

        def body(carried: list[Any]) -> list[Any]:
            row, v, q, total = carried
            x = e.fma(qk, e.load(v), e.fma(vk, e.load(q), e.load(row)))
            e.store(x, row)
            return [
                e.address_at(row, e.width),
                e.address_at(v, e.width),
                e.address_at(q, e.width),
                e.fma(x, x, total),
            ]

        e.store(e.loop(n, [row, v, q, e.constant(0.0)], body)[3], own, 2 * e.width)

    return void(5, like, emit)


@intrinsic
def dot(typingctx: Any, like: Any, x: Any, y: Any, total: Any, n: Any) -> Any:
    """``total = Σ x_j y_j``."""

    def emit(e: Emit, x: Any, y: Any, total: Any, n: Any) -> None:
        def body(carried: list[Any]) -> list[Any]:
            x, y, s = carried
            return [
                e.address_at(x, e.width),
                e.address_at(y, e.width),
                e.fma(e.load(x), e.load(y), s),
            ]

        e.store(e.loop(n, [x, y, e.constant(0.0)], body)[2], total)

    return void(4, like, emit)


@intrinsic
def mix(typingctx: Any, like: Any, x: Any, y: Any, own: Any, z: Any, n: Any) -> Any:
    """``z_j = a x_j − b y_j``, with a and b at `own`."""

    def emit(e: Emit, x: Any, y: Any, own: Any, z: Any, n: Any) -> None:
        a = e.load(own)
        b = e.b.fneg(e.load(own, e.width))

        def body(carried: list[Any]) -> list[Any]:
            x, y, z = carried
            e.store(e.fma(b, e.load(y), e.b.fmul(a, e.load(x))), z)
            return [e.address_at(pointer, e.width) for pointer in carried]

        e.loop(n, [x, y, z], body)

    return void(5, like, emit)


def _reflect_columns(vectors: int) -> Any:
    @intrinsic
    def reflect(
        typingctx: Any, like: Any, X: Any, ldx: Any, n_rows: Any, c: Any, t: Any, c2: Any, t2: Any
    ) -> Any:
        """``X[j] -= c_j t`` for each row j, and then ``t2 += c2_j X[j]``, on some vectors of
        columns.
        """

        def emit(e: Emit, X: Any, ldx: Any, n_rows: Any, c: Any, t: Any, c2: Any, t2: Any) -> None:
            minus = [e.b.fneg(e.load(t, e.width * k)) for k in range(vectors)]

            def body(carried: list[Any]) -> list[Any]:
                x, c, c2, *sums = carried
                out, into = e.splat(c), e.splat(c2)
                for k in range(vectors):
                    y = e.fma(out, minus[k], e.load(x, e.width * k))
                    e.store(y, x, e.width * k)
                    sums[k] = e.fma(into, y, sums[k])
                return [e.b.add(x, ldx), e.address_at(c, e.size), e.address_at(c2, e.size), *sums]

            sums = e.loop(
                n_rows, [X, c, c2, *[e.load(t2, e.width * k) for k in range(vectors)]], body
            )[3:]
            for k in range(vectors):
                e.store(sums[k], t2, e.width * k)

        return void(7, like, emit)

    return reflect


reflect_columns_4, reflect_columns_1 = _reflect_columns(4), _reflect_columns(1)
