"""Inner products of pairs of rows, each summed on its own: no bit depends on the other pairs."""

from __future__ import annotations

import numpy as np

from discreet._numba import njit
from discreet.kernels.threads import even_cuts, run
from discreet.kernels.validation import floats, positions, same_length


def pair_products(U: np.ndarray, V: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return ``u_i · v_j`` of each pair (i, j).

    Parameters
    ----------
    U, V : (n, r), (m, r) float32 or float64
    i, j : (pairs,) integers; −1 is the last row, as in numpy

    Returns
    -------
    (pairs,) of the wider type of U and V
    """
    # The wider type: a product of float32 and float64 must not lose the digits of either.
    kind = np.result_type(U, V)
    U, V = floats("U", U, 2, kind), floats("V", V, 2, kind)
    same_length("vectors", U.shape[1], V.shape[1])
    i, j = positions("i", i, len(U)), positions("j", j, len(V))
    same_length("pairs", len(i), len(j))
    # Zeros, so that vectors of length 0 need no case of their own.
    products = np.zeros(len(i), kind)
    run(lambda start, stop: _products(U, V, i, j, products, start, stop), even_cuts(len(i)))
    return products


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _products(
    U: np.ndarray,
    V: np.ndarray,
    i: np.ndarray,
    j: np.ndarray,
    products: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for at in range(start, stop):
        u = U[i[at]]
        v = V[j[at]]
        # Typed, because a Python 0.0 would make numba sum in float64 for float32 rows.
        total = U.dtype.type(0)
        # The compiler may reorder this sum for vector registers, by the length alone.
        for k in range(U.shape[1]):
            total += u[k] * v[k]
        products[at] = total
