"""Vector micro-kernels: the few inner loops that decide the speed of least squares, written as LLVM
vector code.

numba compiles them on the user's machine, so no C compiler is needed. Each is an ``@intrinsic``: a
Python function that emits the instructions of one inner loop. Its first argument, `like`, is any
array of the element type to work on (float32 or float64); the others are byte addresses and sizes.
What they compute (W = lanes of a vector register):

``tile_3``, ``tile_2``, ``tile_1``, ``row_8``, ``row_4``, ``row_2``, ``row_1``
    ``C = S + Pᵀ Q`` on a small tile that stays in registers over the whole loop of K rows. The
    heart of a Gram matrix.
``score_tile``, ``score_row``
    the same with one row S for every row of the tile.
``corner_0``, ``corner_1``, ``corner_2``, ``corner_0_both``, ``corner_1_both``
    a diagonal block of a Gram matrix, which is symmetric, by half its products ("turned", see
    `_emit_corner`); and next to it a right-hand side or two, a tile of the blocks to its right, and
    a prefetch of the next block.
``gather``, ``gather_scaled``, ``gather_truncated``
    copy the rows of Y that an index names into a packed buffer: as they are, times a factor each,
    and that rounded toward zero to whole numbers.
``transpose``, ``transpose_to``
    W x W elements, to turn W matrices side by side into one matrix of W-vectors ("interleaved").
``prefetch``
    asks for a cache line ahead of its use.

`discreet.kernels.gather` and `least_squares` hold the numpy references of what is built from these;
`discreet.kernels.simd_batched` has the inner loops that work on W interleaved matrices at once,
`simd_tridiagonal` those for tridiagonal matrices.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as numba_intrinsic

from discreet.errors import ConfigError

I64, I32 = ir.IntType(64), ir.IntType(32)
ADDRESS = types.intp
# its call signature differs inside compiled code, which no type checker can know
intrinsic: Any = numba_intrinsic


#: float32 lanes of a vector register: NEON and SSE, AVX2, AVX-512.
LANES = (4, 8, 16)
_ARM = ("aarch64", "arm64")


def _native_lanes() -> int:
    """Count the float32 lanes of this processor's vector registers, 0 where these kernels are not
    tested.
    """
    machine = platform.machine().lower()
    if machine in _ARM:
        # NEON is part of every 64-bit ARM processor.
        return 4
    if machine not in ("x86_64", "amd64"):
        return 0
    has = llvm.get_host_cpu_features()
    if has.get("avx512f"):
        return 16
    return 8 if has.get("avx2") and has.get("fma") else 4


def _chosen_lanes() -> int:
    """Read ``DISCREET_LANES``: another width than the processor's, for tests, or for machines that
    differ and have to compute the same bits.
    """
    wanted = os.environ.get("DISCREET_LANES", "")
    if wanted not in ("", *map(str, LANES)):
        raise ConfigError(f"DISCREET_LANES is {wanted!r}, but must be one of 4, 8 and 16")
    return int(wanted) if wanted else _native_lanes()


VECTOR_BYTES = 4 * _chosen_lanes()


def enabled() -> bool:
    """Return whether to use vector code: where the processor has it and ``DISCREET_KERNELS=plain``
    does not forbid it.
    """
    wanted = os.environ.get("DISCREET_KERNELS", "")
    if wanted not in ("", "vector", "plain"):
        raise ConfigError(
            f"DISCREET_KERNELS is {wanted!r}, but must be 'vector' (as it is without) or 'plain'"
        )
    return VECTOR_BYTES > 0 and wanted != "plain"


def describe() -> str:
    """Name the kernels that are used, for reports."""
    if not enabled():
        return "plain"
    lanes = VECTOR_BYTES // 4
    narrow = "NEON" if platform.machine().lower() in _ARM else "SSE"
    kind = {4: narrow, 8: "AVX2", 16: "AVX-512"}[lanes]
    return f"vector, {lanes} lanes ({kind}{'' if lanes == _native_lanes() else ', DISCREET_LANES'})"


# NEON and AVX-512 have thirty-two registers, the others sixteen. A register tile of 4 x 3 sums and
# 4 operands fills sixteen; 8 x 3 suit AVX-512.
_MANY_REGISTERS = VECTOR_BYTES == 64 or (VECTOR_BYTES == 16 and platform.machine().lower() in _ARM)
# Rows of a register tile, and never more than a vector has lanes.
TILE_ROWS = 8 if VECTOR_BYTES == 64 else 4
PANEL_COLUMNS = 4 if _MANY_REGISTERS else 2
# right of a diagonal block: what registers are left for
CORNER_VECTORS = 2 if _MANY_REGISTERS else 0
SCORE_VECTORS = 3  # a tile of scores is as wide as the largest tile of a Gram matrix
_WIDTH = VECTOR_BYTES or 32


class Emit:
    """Writes vector instructions for one element type at the end of a basic block."""

    def __init__(self, builder: ir.IRBuilder, like: types.Array) -> None:
        self.b = builder
        single = like.dtype == types.float32
        self.size = 4 if single else 8
        self.lanes = _WIDTH // self.size
        self.element = ir.FloatType() if single else ir.DoubleType()
        self.vector = ir.VectorType(self.element, self.lanes)
        self.tag = f"v{self.lanes}f{8 * self.size}"
        self.width = _WIDTH

    def address_at(self, address: Any, offset: int) -> Any:
        return self.b.add(address, I64(offset)) if offset else address

    def load(self, address: Any, offset: int = 0) -> Any:
        pointer = self.b.inttoptr(self.address_at(address, offset), self.vector.as_pointer())
        # Aligned to elements only: rows of a matrix need not begin on a vector.
        return self.b.load(pointer, align=self.size, typ=self.vector)

    def store(self, value: Any, address: Any, offset: int = 0) -> None:
        pointer = self.b.inttoptr(self.address_at(address, offset), self.vector.as_pointer())
        self.b.store(value, pointer, align=self.size)

    def constant(self, value: float) -> Any:
        return ir.Constant(self.vector, [value] * self.lanes)

    def splat(self, address: Any, offset: int = 0) -> Any:
        """Return a vector with the one element at `address` in every lane."""
        pointer = self.b.inttoptr(self.address_at(address, offset), self.element.as_pointer())
        return self.splat_value(self.b.load(pointer, align=self.size, typ=self.element))

    def number(self, n: Any) -> Any:
        """Return a vector with the whole number n in every lane."""
        return self.splat_value(self.b.sitofp(n, self.element))

    def splat_value(self, scalar: Any) -> Any:
        """Return a vector with this element in every lane."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.b.insert_element(undefined, scalar, I32(0))
        return self.b.shuffle_vector(
            first, undefined, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        )

    def call(self, name: str, *args: Any) -> Any:
        full = f"llvm.{name}.{self.tag}"
        kind = ir.FunctionType(self.vector, [self.vector] * len(args))
        function = self.b.module.globals.get(full) or ir.Function(self.b.module, kind, full)
        return self.b.call(function, args)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        # fmuladd is one instruction with one rounding wherever the processor has it.
        return self.call("fmuladd", x, y, z)

    def turn(self, x: Any, d: int) -> Any:
        """Lane a + d (modulo W) of x in lane a."""
        lanes = [(a + d) % self.lanes for a in range(self.lanes)]
        return (
            self.b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, self.lanes), lanes))
            if d
            else x
        )

    def prefetch(self, address: Any) -> None:
        _emit_prefetch(self.b, address)

    def rows(self, address: Any, stride: Any, n: int) -> list[Any]:
        """Addresses of n rows."""
        found = [address]
        for _ in range(n - 1):
            found.append(self.b.add(found[-1], stride))
        return found

    def loop(
        self, count: Any, carried: Sequence[Any], body: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """``for _ in range(count): carried = body(carried)``, everything carried in registers."""
        before, function = self.b.block, self.b.function
        head, inside, after = (
            function.append_basic_block(name) for name in ("head", "inside", "after")
        )
        self.b.branch(head)
        self.b.position_at_end(head)
        k = self.b.phi(I64)
        k.add_incoming(I64(0), before)
        # Phi nodes keep sums in registers: a loop over memory would store them every time.
        registers = [self.b.phi(x.type) for x in carried]
        for register, x in zip(registers, carried, strict=True):
            register.add_incoming(x, before)
        # Tested at the top, so that K = 0 runs no iteration.
        self.b.cbranch(self.b.icmp_signed("<", k, count), inside, after)
        self.b.position_at_end(inside)
        new = body(list(registers))
        end = self.b.block
        k.add_incoming(self.b.add(k, I64(1)), end)
        for register, x in zip(registers, new, strict=True):
            register.add_incoming(x, end)
        self.b.branch(head)
        self.b.position_at_end(after)
        return registers


def void(n_addresses: int, like: Any, emit: Callable[..., None]) -> Any:
    """Signature and code generator of an intrinsic that returns nothing."""
    signature = types.void(like, *[ADDRESS] * n_addresses)

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, args: Sequence[Any]) -> Any:
        emit(Emit(builder, like), *args[1:])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def lanes(typingctx: Any, like: Any) -> Any:
    """Elements in a vector register, as a constant."""
    n = _WIDTH // (4 if like.dtype == types.float32 else 8)
    return types.intp(like), lambda context, builder, signature, args: context.get_constant(
        types.intp, n
    )


@intrinsic
def address(typingctx: Any, array: Any) -> Any:
    """Address of the first element, signed.

    ``array.ctypes.data`` is unsigned, and its sum with a signed offset a float64: every kernel
    that receives addresses would be compiled for each mix of the three.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, I64)

    return ADDRESS(array), generate


def _emit_prefetch(builder: ir.IRBuilder, address: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, I32, I32, I32])
    name = "llvm.prefetch.p0"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    # Read, moderate locality, data: into the second-level cache, which holds a whole pack.
    builder.call(function, [builder.inttoptr(address, pointer), I32(0), I32(2), I32(1)])


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        _emit_prefetch(builder, args[0])
        return context.get_dummy_value()

    return types.void(ADDRESS), generate


def _emit_tile(
    e: Emit,
    rows: int,
    vectors: int,
    P: Any,
    ldp: Any,
    Q: Any,
    ldq: Any,
    K: Any,
    S: Any,
    C: Any,
    ldc: Any,
    lds: Any = None,
) -> None:
    """``C[a, v] = S[a, v] + Σ_k P[k, a] · Q[k, v]`` for scalars a and vectors v; ld* are strides in
    bytes.

    S has the stride of C where it is given none of its own.
    """
    row = e.rows(C, ldc, rows)
    old = e.rows(S, ldc if lds is None else lds, rows)
    start = [e.load(old[a], e.width * v) for a in range(rows) for v in range(vectors)]

    def body(carried: list[Any]) -> list[Any]:
        p, q, *sums = carried
        right = [e.load(q, e.width * v) for v in range(vectors)]
        new = []
        for a in range(rows):
            # One scalar against all vectors of the row: each load of Q serves every row of the
            # tile.
            left = e.splat(p, e.size * a)
            new += [e.fma(left, right[v], sums[a * vectors + v]) for v in range(vectors)]
        return [e.b.add(p, ldp), e.b.add(q, ldq), *new]

    sums = e.loop(K, [P, Q, *start], body)[2:]
    for a in range(rows):
        for v in range(vectors):
            e.store(sums[a * vectors + v], row[a], e.width * v)


def _tile(rows: int, vectors: int) -> Any:
    @intrinsic
    def tile(
        typingctx: Any,
        like: Any,
        P: Any,
        ldp: Any,
        Q: Any,
        ldq: Any,
        K: Any,
        S: Any,
        C: Any,
        ldc: Any,
    ) -> Any:
        def emit(e: Emit, *args: Any) -> None:
            # float64 vectors have half the lanes, and a block then half the rows.
            _emit_tile(e, min(rows, e.lanes), vectors, *args)

        return void(8, like, emit)

    return tile


tile_3, tile_2, tile_1 = _tile(TILE_ROWS, 3), _tile(TILE_ROWS, 2), _tile(16, 1)
row_8, row_4, row_2, row_1 = _tile(1, 8), _tile(1, 4), _tile(1, 2), _tile(1, 1)


def _emit_corner(
    e: Emit,
    vectors: int,
    also: tuple[Any, ...],
    P: Any,
    index: Any,
    K: Any,
    ldp: Any,
    x: Any,
    p: Any,
    q: Any,
    v: Any,
    b: Any,
    S: Any,
    C: Any,
    S_right: Any,
    C_right: Any,
    ldc: Any,
    Y: Any,
    ahead: Any,
) -> None:
    """``C = S + XᵀX`` of W columns, turned, and ``b += vᵀX``; and a tile to the right of it.

    X are the columns from byte x on of the K rows of P that `index` names (int32, a line is `ldp`
    bytes); the tile is ``C_right = S_right +`` the products of those from p on with those from q
    on. A second pair (v, b) may be given `also`. On the way, the row of Y that each of the K
    numbers at `ahead` names is asked for.

    Row d of a turned block has the product of the columns a and a + d (modulo W) in lane a. The
    rows 0 to W / 2 have every product, so that the others need not be made. They come from one x by
    moves between registers, and the tile fills the time with reading.
    """
    half = e.lanes // 2
    tile_rows = min(TILE_ROWS, e.lanes)
    sides = 2 if also else 1
    own = e.rows(C, ldc, half + 1)
    right = e.rows(C_right, ldc, tile_rows)
    totals = [e.load(at) for at in [b, *also[1:]]]
    start = [e.load(at) for at in e.rows(S, ldc, half + 1)]
    start += [
        e.load(at, e.width * k) for at in e.rows(S_right, ldc, tile_rows) for k in range(vectors)
    ]

    def line(of: Any, number: Any) -> Any:
        j = e.b.load(e.b.inttoptr(number, I32.as_pointer()), typ=I32)
        return e.b.add(of, e.b.mul(e.b.sext(j, I64), ldp))

    def body(carried: list[Any]) -> list[Any]:
        index, ahead = carried[:2]
        factors = carried[2 : 2 + sides]
        totals = carried[2 + sides : 2 + 2 * sides]
        sums = carried[2 + 2 * sides :]
        e.prefetch(line(Y, ahead))
        row = line(P, index)
        block = e.load(e.b.add(row, x))
        adjacent = [e.load(e.b.add(row, q), e.width * k) for k in range(vectors)]
        totals = [
            e.fma(e.splat(factor), block, total)
            for factor, total in zip(factors, totals, strict=True)
        ]
        # in turn, so that neither moves nor reads wait for each other
        for a in range(max(tile_rows, half + 1)):
            if a <= half:
                sums[a] = e.fma(block, e.turn(block, a), sums[a])
            if a < tile_rows and vectors:
                left = e.splat(e.b.add(row, p), e.size * a)
                for n in range(half + 1 + a * vectors, half + 1 + (a + 1) * vectors):
                    sums[n] = e.fma(left, adjacent[(n - half - 1) % vectors], sums[n])
        return [
            e.address_at(index, 4),
            e.address_at(ahead, 4),
            *[e.address_at(factor, e.size) for factor in factors],
            *totals,
            *sums,
        ]

    factors = [v, *also[:1]]
    found = e.loop(K, [index, ahead, *factors, *totals, *start], body)[2 + sides :]
    e.store(found[0], b)
    if also:
        e.store(found[1], also[1])
    sums = found[sides:]
    for a in range(half + 1):
        e.store(sums[a], own[a])
    for a in range(tile_rows):
        for k in range(vectors):
            e.store(sums[half + 1 + a * vectors + k], right[a], e.width * k)


def _corner(vectors: int, both: bool = False) -> Any:
    @intrinsic
    def corner(
        typingctx: Any,
        like: Any,
        P: Any,
        index: Any,
        K: Any,
        ldp: Any,
        x: Any,
        p: Any,
        q: Any,
        v: Any,
        b: Any,
        S: Any,
        C: Any,
        S_right: Any,
        C_right: Any,
        ldc: Any,
        Y: Any,
        ahead: Any,
        w: Any,
        h: Any,
    ) -> Any:
        return void(
            18,
            like,
            lambda e, *args: _emit_corner(e, vectors, args[-2:] if both else (), *args[:-2]),
        )

    return corner


corner_0, corner_1, corner_2 = _corner(0), _corner(1), _corner(2)
corner_0_both, corner_1_both = _corner(0, both=True), _corner(1, both=True)


def _score_tile(rows: int) -> Any:
    @intrinsic
    def tile(
        typingctx: Any,
        like: Any,
        P: Any,
        ldp: Any,
        Q: Any,
        ldq: Any,
        K: Any,
        S: Any,
        C: Any,
        ldc: Any,
    ) -> Any:
        def emit(
            e: Emit, P: Any, ldp: Any, Q: Any, ldq: Any, K: Any, S: Any, C: Any, ldc: Any
        ) -> None:
            _emit_tile(e, rows, SCORE_VECTORS, P, ldp, Q, ldq, K, S, C, ldc, I64(0))

        return void(8, like, emit)

    return tile


score_tile, score_row = _score_tile(TILE_ROWS), _score_tile(1)


def _emit_gather(
    e: Emit, Y: Any, index: Any, scale: Any | None, K: Any, P: Any, R: Any, truncate: bool = False
) -> None:
    """``P[k] = scale[k] · Y[index[k]]`` for K rows of R elements, R a multiple of W; `index` is
    int32.
    """
    line = e.b.mul(R, I64(e.size))

    def emit_copy(vectors: int) -> Callable[[list[Any]], list[Any]]:
        """Copy so many vectors of every row; a row at a time would need a loop in the loop."""

        def row(carried: list[Any]) -> list[Any]:
            index, p, y, *rest = carried
            number = e.b.load(e.b.inttoptr(index, I32.as_pointer()), typ=I32)
            source = e.b.add(y, e.b.mul(e.b.sext(number, I64), line))
            factor = e.splat(rest[0]) if rest else None
            for v in range(vectors):
                x = e.load(source, e.width * v)
                x = e.b.fmul(x, factor) if rest else x
                e.store(e.call("trunc", x) if truncate else x, p, e.width * v)
            return [
                e.address_at(index, 4),
                e.b.add(p, line),
                y,
                *[e.address_at(x, e.size) for x in rest],
            ]

        def columns(carried: list[Any]) -> list[Any]:
            y, p = carried
            e.loop(K, [index, p, y] + ([] if scale is None else [scale]), row)
            return [e.address_at(y, e.width * vectors), e.address_at(p, e.width * vectors)]

        return columns

    at = [Y, P]
    left = e.b.sdiv(line, I64(e.width))
    for vectors in (8, 4, 2, 1):
        at = e.loop(e.b.sdiv(left, I64(vectors)), at, emit_copy(vectors))
        left = e.b.srem(left, I64(vectors))


@intrinsic
def gather(typingctx: Any, like: Any, Y: Any, index: Any, K: Any, P: Any, R: Any) -> Any:
    return void(5, like, lambda e, Y, index, K, P, R: _emit_gather(e, Y, index, None, K, P, R))


@intrinsic
def gather_scaled(
    typingctx: Any, like: Any, Y: Any, index: Any, scale: Any, K: Any, P: Any, R: Any
) -> Any:
    return void(6, like, _emit_gather)


@intrinsic
def gather_truncated(
    typingctx: Any, like: Any, Y: Any, index: Any, scale: Any, K: Any, P: Any, R: Any
) -> Any:
    return void(
        6, like, lambda e, Y, index, scale, K, P, R: _emit_gather(e, Y, index, scale, K, P, R, True)
    )


def _emit_transpose(e: Emit, sources: list[Any], targets: list[Any]) -> None:
    """W x W elements, whose rows lie anywhere, by log2(W) rounds of shuffles."""
    W = e.lanes
    rows = [e.load(source) for source in sources]
    mask = ir.VectorType(I32, W)
    stride = 1
    while stride < W:
        new = list(rows)
        for i in (i for i in range(W) if not i & stride):
            low = [lane if not lane & stride else W + lane - stride for lane in range(W)]
            high = [lane + stride if not lane & stride else W + lane for lane in range(W)]
            new[i] = e.b.shuffle_vector(rows[i], rows[i + stride], ir.Constant(mask, low))
            new[i + stride] = e.b.shuffle_vector(rows[i], rows[i + stride], ir.Constant(mask, high))
        rows, stride = new, 2 * stride
    for row, target in zip(rows, targets, strict=True):
        e.store(row, target)


def _in_fours(e: Emit, base: Any, ld: Any, ld4: Any) -> list[Any]:
    return [
        e.b.add(base, e.b.add(e.b.mul(ld, I64(v % 4)), e.b.mul(ld4, I64(v // 4))))
        for v in range(e.lanes)
    ]


@intrinsic
def transpose(
    typingctx: Any, like: Any, source: Any, lds: Any, lds4: Any, target: Any, ldt: Any, ldt4: Any
) -> Any:
    """W x W transpose; row v lies at ``(v % 4) * ld + (v // 4) * ld4``."""

    def emit(e: Emit, source: Any, lds: Any, lds4: Any, target: Any, ldt: Any, ldt4: Any) -> None:
        _emit_transpose(e, _in_fours(e, source, lds, lds4), _in_fours(e, target, ldt, ldt4))

    return void(6, like, emit)


@intrinsic
def transpose_to(
    typingctx: Any, like: Any, source: Any, lds: Any, target: Any, offsets: Any
) -> Any:
    """W x W transpose of rows at a distance of `lds`; row v of the result goes to ``target +
    offsets[v]``, in bytes.
    """

    def emit(e: Emit, source: Any, lds: Any, target: Any, offsets: Any) -> None:
        pointers = [
            e.b.inttoptr(e.address_at(offsets, 8 * v), I64.as_pointer()) for v in range(e.lanes)
        ]
        targets = [e.b.add(target, e.b.load(pointer, typ=I64)) for pointer in pointers]
        _emit_transpose(e, e.rows(source, lds, e.lanes), targets)

    return void(4, like, emit)
