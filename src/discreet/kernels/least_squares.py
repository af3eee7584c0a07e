"""Normal equations by row: the half-step of alternating least squares.

For each row i of a sparse matrix with entries (j, value, weight) and fixed factors Y:

    A_i = Σ_j w_ij · y_j y_jᵀ,      b_i = Σ_j w_ij · value_ij · y_j,
    x_i = (A_i + S + ridge_i · I)⁻¹ b_i.

`solve_rows` returns the x_i without storing the A_i, `solve_rows_constant` does so with one more
coordinate that is equal in all y_j. `discreet.kernels.gather` has the b_i alone, and
`discreet.kernels.integer_sums` the A_i. The vector path gathers the factors of a row, accumulates
PᵀP and vᵀP (see `gather`), and solves W rows at a time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from discreet._numba import njit
from discreet.kernels import simd
from discreet.kernels.blas import tall_product
from discreet.kernels.cholesky import (
    factor_turned,
    matrix_gap,
    pad_rank,
    panels_size,
    solve_one,
    substitute,
)
from discreet.kernels.gather import (
    PACK,
    add_sum,
    add_turned,
    allocate_aligned_array,
    frozen,
    pad_columns,
    rotate_blocks,
)
from discreet.kernels.simd import address, gather, gather_scaled, lanes
from discreet.kernels.threads import cost_cuts, run
from discreet.kernels.validation import floats, same_length, sparse_rows

# The places 0, 1, … of gathered rows, for kernels that read rows by an index.
_COUNTING = np.arange(PACK, dtype=np.int32)

#: From this rank on, rows with few entries are solved in the dual; below, its overhead is larger
#: than the gain.
DUAL_RANK = 96


class Entries(NamedTuple):
    """The entries of a sparse matrix by row; an empty array stands for one that is not given.

    Attributes
    ----------
    indptr, indices : CSR structure
    values, weights : one per entry
    offset : one per column, subtracted from its values
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    offset: np.ndarray


def solve_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    Y: np.ndarray,
    ridge: np.ndarray,
    shared: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> np.ndarray:
    """Return the least-squares factors of every row.

    Parameters
    ----------
    indptr, indices, values : CSR arrays of n rows; int64, int32 and the type of `Y`
        Values are 1 if not given.
    Y : (m, r) float32 or float64
    ridge : (n,)
        Added to the diagonal of each row. The solution of a row without entries, `shared` and
        ridge is 0.
    shared : (r, r), optional
        S, the same for every row.
    weights : (nnz,), optional
        Non-negative weights of the entries; 1 if not given.
    offset : (m,), optional
        Subtracted from every value of a column.

    Returns
    -------
    (n, r) array of the type of `Y`
    """
    return _solve_rows(indptr, indices, values, Y, ridge, shared, weights, offset, 0.0)[0]


def solve_rows_constant(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    Y: np.ndarray,
    ridge: np.ndarray,
    constant: float,
    shared: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Do `solve_rows` with one more coordinate, `constant` in every y; return (n, r) and (n,).

    S is not added to that coordinate. It is eliminated last, by a second right-hand side Σ w y, so
    that the matrices keep their size: padding to the next vector width would cost much more.
    """
    return _solve_rows(indptr, indices, values, Y, ridge, shared, weights, offset, constant)


def _solve_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    Y: np.ndarray,
    ridge: np.ndarray,
    shared: np.ndarray | None,
    weights: np.ndarray | None,
    offset: np.ndarray | None,
    constant: float,
) -> tuple[np.ndarray, np.ndarray]:
    Y = floats("Y", Y, 2)
    indptr, indices = sparse_rows(indptr, indices, None, len(Y))
    n = len(indptr) - 1
    r = Y.shape[1]
    for what, x, length in (
        ("values and indices", values, len(indices)),
        ("weights and indices", weights, len(indices)),
        ("offsets and columns", offset, len(Y)),
        ("ridge and rows", ridge, n),
        ("shared and columns of Y", shared, r),
    ):
        if x is not None:
            same_length(what, len(x), length)
    entries = Entries(
        frozen(indptr), frozen(indices), *(_ready(x, Y) for x in (values, weights, offset))
    )
    ridge, c, x0 = _ready(ridge, Y), Y.dtype.type(constant), np.zeros(n, Y.dtype)
    S = np.zeros((r, r), Y.dtype) if shared is None else _ready(shared, Y)
    assert ridge.shape == (n,)
    assert S.shape == (r, r)
    if not simd.enabled():
        if c:
            # Portable loops have no vector width, so one more column is cheaper than eliminating
            # it.
            Y, S = np.column_stack([Y, np.full(len(Y), c)]), np.pad(S, (0, 1))
        X = np.empty((n, Y.shape[1]), Y.dtype)
        P = frozen(np.ascontiguousarray(Y))
        run(lambda a, b: _solve_plain(entries, P, ridge, S, X, a, b), cost_cuts(_cost(indptr, r)))
        return (np.ascontiguousarray(X[:, :r]), X[:, r].copy()) if c else (X, x0)
    W = simd.VECTOR_BYTES // Y.itemsize
    R = pad_rank(r, Y.itemsize)
    X = allocate_aligned_array((n, R), Y.dtype)
    # Decided by a row's own length and public numbers, so no other user changes a user's bits.
    few = _solve_few(entries, Y, ridge, S, c, X, x0) if r >= DUAL_RANK else np.zeros(n, bool)
    rows = np.flatnonzero(~few)
    # Padding to whole vectors once, instead of handling remainders in every loop.
    P = frozen(pad_columns(Y, R))
    if r < R:
        S = np.pad(S, (0, R - r))
        S[range(r, R), range(r, R)] = 1  # the equation of a padded coordinate is 1 · x = 0
    S = rotate_blocks(S, W)
    places = _places(W, Y.itemsize, R)

    def solve(a: int, b: int) -> None:
        work = _allocate_workspace(P, W)
        _solve(entries, P, ridge, S, c, X, x0, rows, work, places, r, a, b)

    if n == 1:  # starting threads takes longer than solving one row
        solve(0, len(rows))
    else:
        # Cuts at multiples of W: which rows share a register does not depend on the threads.
        run(solve, cost_cuts(_cost(indptr, r)[rows], W))
    return X if r == R else np.ascontiguousarray(X[:, :r]), x0


def _cost(indptr: np.ndarray, r: int) -> np.ndarray:
    """Gram matrix, factorization and fixed cost: pieces of equal time, not of equal rows."""
    return np.diff(indptr) * float(r * r) + (r**3 / 1.5 + 100.0)


def _solve_few(
    entries: Entries,
    Y: np.ndarray,
    ridge: np.ndarray,
    S: np.ndarray,
    constant: float,
    X: np.ndarray,
    x0: np.ndarray,
) -> np.ndarray:
    """Solve the rows with few entries in the dual (see `dual`), and return a mask of them."""
    from discreet.kernels.dual import prefers_dual, solve_dual

    r, R = (Y.shape[1], X.shape[1])
    W = simd.VECTOR_BYTES // Y.itemsize
    counts = np.diff(entries.indptr)
    few = prefers_dual(counts, r, W)
    if not few.any():
        return few
    # In float64, because the rotation enters every solution; it is one matrix for all rows.
    D, Q = np.linalg.eigh(S.astype(np.float64)) if S.any() else (np.zeros(r), np.eye(r))
    # S is positive semi-definite; rounding can make a zero eigenvalue negative.
    D = np.maximum(D, 0)
    # The constant coordinate has no S: only the ridge bounds it from below.
    least = 0.0 if constant else D[0]
    # The inverse root of an almost singular B would lose all precision.
    few &= least + ridge > 1e-6 * (D[-1] + ridge)
    rows = np.flatnonzero(few)
    # Stable, so that equal lengths keep their order and grouping is reproducible.
    rows = rows[np.argsort(counts[rows], kind="stable")]
    P = frozen(pad_columns(tall_product(Y, Q.astype(Y.dtype)) if S.any() else Y, R))
    Qt = pad_columns(np.pad(Q.T, ((0, R - r), (0, 0))).astype(Y.dtype), R)
    D = np.append(D, np.ones(R - r)).astype(Y.dtype)
    cost = counts[rows] * 1.0 * (counts[rows] + 64) * r
    run(
        lambda a, b: solve_dual(entries, P, ridge, D, Qt, constant, rows, X, x0, a, b),
        cost_cuts(cost, W),
    )
    return few


def _ready(x: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    return frozen(np.empty(0, like.dtype) if x is None else np.ascontiguousarray(x, like.dtype))


@njit(inner=True, nogil=True, cache=True)
def read_targets(entries: Entries, first: int, K: int, v: np.ndarray, root: np.ndarray) -> None:
    """Write ``√w (value − offset)`` of K entries to v, and ``√w`` to root if there are weights."""
    _, indices, values, weights, offset = entries
    # Unsigned places, or numba would test for negative ones, which prevents vector code.
    begin = np.uint64(first)
    # Four loops instead of one with tests: each becomes vector code of its own.
    if len(values) and len(offset):
        for k in range(K):
            at = begin + np.uint64(k)
            v[k] = values[at] - offset[np.uint32(indices[at])]
    elif len(values):
        for k in range(K):
            v[k] = values[begin + np.uint64(k)]
    elif len(offset):
        for k in range(K):
            v[k] = 1 - offset[np.uint32(indices[begin + np.uint64(k)])]
    else:
        for k in range(K):
            v[k] = 1
    if len(weights):
        for k in range(K):
            # Square roots, so that the Gram matrix of scaled rows has the weights exactly once.
            root[k] = np.sqrt(weights[begin + np.uint64(k)])
            v[k] *= root[k]


@njit(inline="always", nogil=True, cache=True)
def _add_row(
    entries: Entries,
    Y: np.ndarray,
    i: int,
    after: int,
    packed: int,
    v: np.ndarray,
    root: np.ndarray,
    S: int,
    A: int,
    b: int,
    h: int,
) -> tuple[float, float]:
    """Set ``A = S + Σ w y yᵀ`` and add ``b += Σ w value y`` over row i.

    With an address h (not 0), also add ``h += Σ w y`` and return Σ w and Σ w value. The diagonal
    blocks of S and A are rotated (see `gather`). Up to `PACK` factors are gathered at the address
    `packed`; those of row `after` are prefetched.
    """
    indptr, indices, values, weights, offset = entries
    R = Y.shape[1]
    base = address(Y)
    targets = address(v)
    roots = address(root)
    entry = address(indices)
    small = 2 * lanes(Y) >= R
    # Rows of one or two blocks are read once or twice: copying them first would cost more.
    in_place = small and not len(weights)
    # The first pack starts from S, so that adding it costs no pass of its own.
    source = S
    weight = 0.0
    value = 0.0
    begin = indptr[i]
    end = indptr[i + 1]
    # A row without entries has one pack of none: A becomes S, since the solver reads A in any case.
    for first in range(begin, max(end, begin + 1), PACK):
        K = min(PACK, end - first)
        index = entry + first * 4
        if len(values) or len(offset) or len(weights):
            read_targets(entries, first, K, v, root)
        if len(weights):
            gather_scaled(Y, base, index, roots, K, packed, R)
        elif not in_place:
            gather(Y, base, index, K, packed, R)
        if h:
            if not small:
                add_sum(Y, packed, roots, K, h, R)
            if len(weights):
                for k in range(K):
                    # In float64 and in the order of the entries, whatever the type of Y: it is a
                    # pivot below.
                    weight += root[k] * root[k]
                    value += root[k] * v[k]
            else:
                weight += K
                for k in range(K):
                    value += v[k]
        # The next pack of this row, or the first one of the next row, is prefetched meanwhile.
        soon = min(first + K if first + K < end else indptr[after], len(indices) - K)
        add_turned(
            Y,
            base if in_place else packed,
            index if in_place else address(_COUNTING),
            K,
            targets,
            b,
            roots,
            h if small else 0,
            source,
            A,
            R,
            base,
            entry + soon * 4,
        )
        source = A
    return weight, value


@lru_cache(maxsize=8)
def _places(W: int, s: int, R: int) -> tuple[int, ...]:
    """Return where parts of the workspace of `_solve` begin, in elements of s bytes, and its size.

    The parts: W matrices, their factors, right-hand sides b and h, two copies, and three buffers
    for `PACK` entries. Each begins on a cache line, because R is a multiple of W.
    """
    sizes = (
        W * matrix_gap(s, R),
        panels_size(W, s, R),
        *[W * R] * 4,
        PACK * R,
        PACK,
        PACK,
    )
    return tuple(np.cumsum((0, *sizes)).tolist())


def _allocate_workspace(Y: np.ndarray, W: int) -> np.ndarray:
    """Allocate by numpy: every allocation in compiled code is compiled as well."""
    *_, v, _, size = _places(W, Y.itemsize, Y.shape[1])
    work = allocate_aligned_array((size,), Y.dtype)
    work[v:] = 1
    return work


@njit(nogil=True, cache=True, error_model="numpy")
def _solve(
    entries: Entries,
    Y: np.ndarray,
    ridge: np.ndarray,
    S: np.ndarray,
    constant: float,
    X: np.ndarray,
    x0: np.ndarray,
    rows: np.ndarray,
    work: np.ndarray,
    places: tuple[int, ...],
    r: int,
    start: int,
    stop: int,
) -> None:
    R = Y.shape[1]
    W = lanes(Y)
    s = Y.itemsize
    _, T, b, B, h, sums, packed, at_v, at_root, end = places
    gap = T // W
    base = address(work)
    v = work[at_v:at_root]
    root = work[at_root:end]
    pair = np.empty((2, W))
    for first in range(start, stop, W):
        last = min(first + W, stop)
        for k in range(W * R):
            work[b + k] = 0
            work[h + k] = 0
        for lane in range(W):
            # Unused lanes of the last group repeat its last row.
            i = rows[min(first + lane, stop - 1)]
            after = rows[min(first + lane + 1, stop - 1)]
            at = lane * R
            pair[0, lane], pair[1, lane] = _add_row(
                entries,
                Y,
                i,
                after,
                base + packed * s,
                v,
                root,
                address(S),
                base + lane * gap * s,
                base + (b + at) * s,
                base + (h + at) * s if constant else 0,
            )
            for k in range(r):
                # The diagonal of a rotated block is its first row.
                work[lane * gap + k // W * W * R + k] += ridge[i]
        factor_turned(Y, base, base + T * s, R)
        substitute(Y, base + b * s, base + T * s, base + B * s, R)
        if constant:
            for k in range(W * R):
                work[sums + k] = work[h + k]
            substitute(Y, base + h * s, base + T * s, base + B * s, R)
        # Repeated lanes are dropped here: they solved a row that another lane stores.
        for lane in range(last - first):
            i = rows[first + lane]
            at = lane * R
            z = x0.dtype.type(0)
            if constant:
                # Eliminate the constant coordinate: its Schur complement is `pivot`.
                # Divided by constant², because the coordinate is solved for as if it were 1.
                pivot = pair[0, lane] + ridge[i] / constant**2
                left = pair[1, lane]
                for k in range(r):
                    pivot -= work[sums + at + k] * work[h + at + k]
                    left -= work[sums + at + k] * work[b + at + k]
                # Without weights and ridge the coordinate is undetermined: 0, as elsewhere.
                z = x0.dtype.type(left / pivot) if pivot > 1e-30 else z
                x0[i] = z / constant
            for k in range(R):
                X[i, k] = work[b + at + k] - z * work[h + at + k]


@njit(inner=True, nogil=True, cache=True, fastmath=True)
def _add_row_plain(
    entries: Entries, Y: np.ndarray, start: int, stop: int, A: np.ndarray, b: np.ndarray
) -> None:
    r = Y.shape[1]
    one = Y.dtype.type(1)
    _, indices, values, weights, offset = entries
    for e in range(start, stop):
        y = Y[indices[e]]
        w = weights[e] if len(weights) else one
        value = (values[e] if len(values) else one) - (
            offset[indices[e]] if len(offset) else one * 0
        )
        for k in range(r):
            # Weighted once per coordinate, not once per pair.
            f = w * y[k]
            b[k] += f * value
            # The upper triangle suffices: `solve_one` reads no other entry.
            for j in range(k, r):
                A[k, j] += f * y[j]


@njit(nogil=True, cache=True)
def _solve_plain(
    entries: Entries,
    Y: np.ndarray,
    ridge: np.ndarray,
    S: np.ndarray,
    X: np.ndarray,
    start: int,
    stop: int,
) -> None:
    A = np.empty_like(S)
    for i in range(start, stop):
        X[i] = 0
        for k in range(len(S)):
            for j in range(len(S)):
                A[k, j] = S[k, j]
            A[k, k] += ridge[i]
        _add_row_plain(entries, Y, entries.indptr[i], entries.indptr[i + 1], A, X[i])
        solve_one(A, X[i])
