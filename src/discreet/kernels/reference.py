"""Plain numpy versions of all kernels: the specification that tests compare the compiled ones to.

Those for fold-in and ranking also serve single queries on the command line, where loading the
compiler and its cached code would take half a second. They compute in double precision and round to
the type of the factors, so they equal the compiled ones to single precision, not bit for bit.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

PART = 1 << 16  # items scored at a time: limits the memory of their copies in double precision


class ReferencePanels:
    """Unpacked item factors (m, r)."""

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
    """Return the least-squares factors of every row; see `discreet.kernels.solve_rows`."""
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
    """Do `solve_rows` with one more coordinate, `constant` in every y, to which S is not added."""
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
    """Return ``Σ_j c_ij y_j`` of each row."""
    sums = [
        c[a:b].astype(np.float64) @ Y[indices[a:b]].astype(np.float64) for a, b in pairwise(indptr)
    ]
    return np.array(sums).reshape(-1, Y.shape[1]).astype(Y.dtype)


def pair_products(U: np.ndarray, V: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return ``u_i · v_j`` of each pair."""
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
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted residuals, clipped to norm `largest` per row, and the rows' gradients."""
    n = len(indptr) - 1
    row = np.repeat(np.arange(n), np.diff(indptr))
    v = V[indices].astype(np.float64)
    e = (U[row].astype(np.float64) * v).sum(axis=1) + bias[indices] + offset[row] - y
    e = np.where(np.isfinite(e), e, 0)
    g = np.zeros(U.shape)
    np.add.at(g, row, e[:, None] * v)
    x = e if weights is None else e * weights
    length = np.sqrt(np.bincount(row, x**2, minlength=n))
    kept = np.minimum(1, largest / np.maximum(length, 1e-300))
    return (x * kept[row]).astype(U.dtype), g.astype(U.dtype)


def top_k(
    U: np.ndarray,
    V: np.ndarray | ReferencePanels,
    bias: np.ndarray,
    k: int,
    seen: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best `k` items of each user by ``u · v_j + bias_j``, padded with −1.

    This defines the order of every top-n list: larger scores (in single precision) first, then
    items in catalog order; items with scores −inf or NaN are left out. tests/models/test_ties.py
    compares all implementations with it.
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


def mixture_weights(
    indptr: np.ndarray,
    indices: np.ndarray,
    x: np.ndarray,
    P: np.ndarray,
    prior: np.ndarray,
    strength: float,
    steps: int,
) -> np.ndarray:
    """Mixture weights of all histories; see `discreet.kernels.mixtures`."""
    theta = np.tile(np.asarray(prior, np.float64), (len(indptr) - 1, 1))
    for i, weights in enumerate(theta):
        entries = slice(indptr[i], indptr[i + 1])
        for _ in range(steps):
            part = weights * P[indices[entries]]
            part *= (x[entries] / np.maximum(part.sum(axis=1), 1e-300))[:, None]
            new = strength * prior + part.sum(axis=0)
            weights[:] = new / new.sum()
    return theta


def profile_scores(
    at: np.ndarray,
    x: np.ndarray,
    u: np.ndarray,
    V: np.ndarray,
    popularity: np.ndarray,
    weights: tuple[float, float, np.ndarray],
    floor: float,
    lists: tuple[np.ndarray, np.ndarray, np.ndarray],
    tau: float,
    prepared: object = None,
) -> np.ndarray:
    """Scores of all items by popularity, factors and features: specifies `profile_scores`."""
    found = weights[0] * popularity + weights[2] @ log_lifts(at, x, *lists, tau)
    if weights[1]:
        ratio = (V @ u).astype(np.float64) * np.exp(-popularity)
        found += weights[1] * np.log(np.maximum(ratio, floor))
    return found.astype(np.float32)


def solve_spd(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solve ``A[i] x = b[i]``, with S and ridge already added: specifies `solve_spd`."""
    return np.linalg.solve(A, b[..., None])[..., 0]


def solve_dual(
    v: np.ndarray, Y: np.ndarray, ridge: float, S: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """Solve one row with factors Y (K, r), values v and weights w: specifies `solve_dual`."""
    D, Q = np.linalg.eigh(S)
    d = (D + ridge) ** -0.5
    Z = np.sqrt(w)[:, None] * (Y @ Q) * d
    return Q @ (d * (Z.T @ np.linalg.solve(np.eye(len(v)) + Z @ Z.T, np.sqrt(w) * v)))


def project_psd(A: np.ndarray) -> np.ndarray:
    """Project to positive semi-definite matrices: specifies `add_negative_parts`."""
    values, Q = np.linalg.eigh(A)
    return (Q * np.maximum(values, 0)[..., None, :]) @ np.swapaxes(Q, -1, -2)


def sum_columns(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, U: np.ndarray, m: int
) -> np.ndarray:
    """Return ``Σ_i c_ij u_i`` of each column j < m: specifies `sum_columns`."""
    sums = np.zeros((m, U.shape[1]))
    np.add.at(sums, indices, c[:, None] * U[np.repeat(np.arange(len(U)), np.diff(indptr))])
    return sums


def share_rows(indptr: np.ndarray, indices: np.ndarray, q: np.ndarray, most: float) -> np.ndarray:
    """Return the weights: specifies `share_rows`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    own = q[indices]
    share = own / np.maximum(np.bincount(row, own, minlength=len(indptr) - 1)[row], 1e-300)
    return (most * np.sqrt(share)).astype(np.float32)


def inverse_diagonals(
    indptr: np.ndarray, indices: np.ndarray, V: np.ndarray, ridge: float, constant: float
) -> np.ndarray:
    """Return the diagonals: specifies `inverse_diagonals`."""
    F = np.column_stack([V, np.ones(len(V))]).astype(np.float64)
    prior = np.diag([*[ridge] * V.shape[1], constant])
    own = [F[indices[a:b]] for a, b in pairwise(indptr)]
    return np.array([np.diag(np.linalg.inv(f.T @ f + prior)) for f in own]).reshape(
        len(own), F.shape[1]
    )


def sum_pair_products(indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, m: int) -> np.ndarray:
    """Sum p_jk over the rows as a strict upper triangle: specifies `add_pair_products`."""
    total = np.zeros((m, m))
    for a, b in pairwise(indptr):
        dense = np.zeros(m)
        dense[indices[a:b]] = x[a:b]
        squares = np.triu(np.outer(dense**2, dense**2), 1).sum()
        total += np.outer(dense, dense) / math.sqrt(squares) if squares > 0 else 0.0
    return total[np.triu_indices(m, 1)]


def exact_grams(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray
) -> np.ndarray:
    """Return Gram matrices of integers: specifies `exact_grams`."""
    P = np.trunc(c[:, None] * Y[indices])
    return np.array([P[a:b].T @ P[a:b] for a, b in pairwise(indptr)]).reshape(
        -1, Y.shape[1], Y.shape[1]
    )


def exact_sums(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return sums of integers: specifies `exact_sums`."""
    P = np.trunc(c[:, None] * Y[indices])
    return np.array([P[a:b].sum(axis=0) for a, b in pairwise(indptr)]).reshape(-1, Y.shape[1])


def gram_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gram matrices A and right-hand sides b of every row."""
    w = np.ones_like(values) if weights is None else weights
    rows = [slice(a, b) for a, b in pairwise(indptr)]
    A = [(w[s, None] * Y[indices[s]]).T @ Y[indices[s]] for s in rows]
    b = [(w[s] * values[s]) @ Y[indices[s]] for s in rows]
    return np.array(A).reshape(-1, Y.shape[1], Y.shape[1]), np.array(b).reshape(-1, Y.shape[1])


def leave_one_out_errors(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    F: np.ndarray,
    prior: np.ndarray,
    lengths: np.ndarray,
) -> np.ndarray:
    """Return the mean squared errors: specifies `leave_one_out_errors`."""
    found = np.zeros((len(indptr) - 1, len(lengths)))
    for i, (a, b) in enumerate(pairwise(indptr)):
        for at, k in enumerate(lengths):
            f = F[indices[a:b], :k].astype(np.float64)
            for j in range(b - a):
                others = np.arange(b - a) != j
                x = np.linalg.solve(
                    f[others].T @ f[others] + np.diag(prior[:k]), f[others].T @ y[a:b][others]
                )
                found[i, at] += (y[a + j] - f[j] @ x) ** 2 / (b - a)
    return found


def solve_psd(
    A: np.ndarray, b: np.ndarray, ridge: np.ndarray, shared: np.ndarray | None = None
) -> np.ndarray:
    """Solve the projected systems: specifies `solve_psd`."""
    S = 0 if shared is None else shared
    return np.linalg.solve(
        project_psd(A) + S + ridge[:, None, None] * np.eye(A.shape[-1]), b[..., None]
    )[..., 0]
