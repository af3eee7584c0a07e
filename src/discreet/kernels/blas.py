"""Products of tall matrices with small ones, on our own threads.

BLAS could use all cores as well, but its threads then busy-wait for more work, and the next kernel
has to share the cores with them: a sweep of rank 32 took a third longer.
"""

from __future__ import annotations

import numpy as np

from discreet.kernels.threads import even_cuts, run

PIECES = 16  # a fixed number, so that sums do not depend on the number of threads


def second_moment(Y: np.ndarray) -> np.ndarray:
    """Return ``YᵀY`` of a tall matrix."""
    parts: dict[int, np.ndarray] = {}
    cuts = even_cuts(len(Y), pieces=PIECES)
    run(lambda start, stop: parts.__setitem__(start, Y[start:stop].T @ Y[start:stop]), cuts)
    return sum((parts[start] for start in sorted(parts)), np.zeros((Y.shape[1],) * 2, Y.dtype))


def tall_product(Y: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return ``Y M`` of a tall matrix and a small one."""
    out = np.empty((len(Y), M.shape[1]), np.result_type(Y, M))
    run(
        lambda start, stop: np.matmul(Y[start:stop], M, out=out[start:stop]),
        even_cuts(len(Y), pieces=PIECES),
    )
    return out
