"""The kernels that read-outs need, by numpy alone and in double precision: for a single question
from the shell.

Loading the compiler and its cached code takes half a second, which pays from the second question
on. The functions here have the names, arguments and results of the compiled ones, whose
specification their twins are; results are rounded to the type of the factors, so they agree to
single precision, not to the bit.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

PART = 1 << 16  # items scored at a time


class ReferencePanels:
    """Item factors (m, r), as they are."""

    def __init__(self, V: np.ndarray) -> None:
        self.V = V
        self.shape = V.shape

    def __len__(self) -> int:
        return len(self.V)


#: Scorers take kernels by the same names from here and from the compiled module.
Panels = ReferencePanels


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
    """Least-squares factors of every row; see `discreet.kernels.solve_rows`."""
    r = Y.shape[1]
    X = np.zeros((len(indptr) - 1, r))
    S = np.zeros((r, r)) if shared is None else shared.astype(np.float64)
    for i, (start, stop) in enumerate(pairwise(indptr)):
        at = indices[start:stop]
        y = Y[at].astype(np.float64)
        value = np.ones(len(at)) if values is None else values[start:stop].astype(np.float64)
        value = value if offset is None else value - offset[at]
        w = np.ones(len(at)) if weights is None else weights[start:stop].astype(np.float64)
        A = (w[:, None] * y).T @ y + S + float(ridge[i]) * np.eye(r)
        X[i] = np.linalg.lstsq(A, (w * value) @ y, rcond=None)[0] if r else 0
    return X.astype(Y.dtype)


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
    """`solve_rows` with one more coordinate, `constant` in every y, which S does not touch."""
    wide = np.column_stack([Y, np.full(len(Y), constant, Y.dtype)])
    X = solve_rows(
        indptr,
        indices,
        values,
        wide,
        ridge,
        None if shared is None else np.pad(shared, (0, 1)),
        weights,
        offset,
    )
    return X[:, :-1], X[:, -1]


def sum_rows(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """``Σ_j c_ij y_j`` for each row."""
    sums = [
        c[a:b].astype(np.float64) @ Y[indices[a:b]].astype(np.float64) for a, b in pairwise(indptr)
    ]
    return np.array(sums).reshape(-1, Y.shape[1]).astype(Y.dtype)


def pair_products(U: np.ndarray, V: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """``u_i · v_j`` for each pair."""
    products = (U[i].astype(np.float64) * V[j].astype(np.float64)).sum(axis=1)
    return products.astype(np.result_type(U, V))


def residual_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    largest: float,
    bias: np.ndarray,
    offset: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals (not cut: `largest` must be infinite) and the rows' own gradients."""
    assert np.isinf(largest)
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    v = V[indices].astype(np.float64)
    e = (U[row].astype(np.float64) * v).sum(axis=1) + bias[indices] + offset[row] - y
    g = np.zeros(U.shape)
    np.add.at(g, row, e[:, None] * v)
    return e.astype(U.dtype), g.astype(U.dtype)


def top_k(
    U: np.ndarray,
    V: np.ndarray | ReferencePanels,
    bias: np.ndarray,
    k: int,
    seen: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Best `k` items of each user by ``u · v_j + bias_j``, best first, equal scores by index,
    padded with −1.
    """
    factors = V.V if isinstance(V, ReferencePanels) else V
    items = np.full((len(U), k), -1, np.int32)
    best = np.full((len(U), k), -np.inf, np.float32)
    for i, u in enumerate(U.astype(np.float64)):
        scores = np.empty(len(factors), np.float32)
        for start in range(0, len(factors), PART):
            part = slice(start, start + PART)
            scores[part] = factors[part] @ u + bias[part]
        if seen is not None:
            scores[seen[1][seen[0][i] : seen[0][i + 1]]] = -np.inf
        n = min(k, len(scores))
        edge = np.partition(scores, len(scores) - n)[len(scores) - n] if n else 0.0
        among = np.flatnonzero((scores >= edge) & (scores > -np.inf))
        order = among[np.lexsort((among, -scores[among]))][:n]
        items[i, : len(order)] = order
        best[i, : len(order)] = scores[order]
    return items, best


def log_lifts(
    at: np.ndarray,
    x: np.ndarray,
    starts: np.ndarray,
    values: np.ndarray,
    inverse: np.ndarray,
    tau: float,
) -> np.ndarray:
    """Log lifts of all items by each feature; see `discreet.kernels.profiles`."""
    found = np.zeros((len(starts), starts.shape[1] - 1))
    for f, start in enumerate(starts):
        many = np.diff(start)
        item = np.repeat(np.arange(len(many)), many)
        weight = np.zeros(len(many))
        weight[at] = x / np.maximum(many[at], 1)
        mine = values[start[0] : start[-1]]
        own = np.bincount(mine, weight[item], minlength=len(inverse))
        lift = np.bincount(item, own[mine] * inverse[mine], minlength=len(many))
        lift = lift / np.maximum(many, 1)
        found[f] = np.where(many > 0, np.log((lift + tau) / (x.sum() + tau)), 0.0)
    return found
