"""Do two machines compute the same bits? They say what they are, and compute a small sum that both can be judged by.

Vector and plain kernels round differently in the last bits, and so may two versions of a library or two processors. A
person whose contribution came out differently on another machine would be counted as two half-truths, and a retried
task would change a released number. So all machines of a training have to give the same `fingerprint`.
"""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache

import numpy as np

from discreet.kernels import second_moment, solve_rows, sum_rows
from discreet.kernels.gradient import residual_rows
from discreet.kernels.simd import VECTOR_BYTES, enabled
from discreet.kernels.threads import one_thread
from discreet.version import __version__


@lru_cache(maxsize=2)
def _fingerprint(vector: bool) -> str:
    import numba

    kernels = f"vectors of {VECTOR_BYTES} bytes" if vector else "plain kernels"
    return (
        f"discreet {__version__}, {kernels}, {platform.machine()}, numpy {np.__version__}, numba {numba.__version__}, "
        f"check {canary()}"
    )


def fingerprint() -> str:
    """Library, kernels, processor, and the digest of a small computation: nothing of it is about anybody's data."""
    return _fingerprint(enabled())


def canary() -> str:
    """Digest of the bits that a fixed, public example comes to in the kernels that users' steps are made of."""
    rng = np.random.default_rng(20)
    n = 64
    m = 50
    r = 8
    counts = rng.integers(1, 30, n)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([np.sort(rng.permutation(m)[:count]) for count in counts]).astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    V = rng.standard_normal((m, r)).astype(np.float32)
    with one_thread():
        shared = second_moment(V)
        U = solve_rows(indptr, indices, values, V, np.full(n, 2.0), 0.1 * shared)
        W = sum_rows(indptr, indices, values, V)
        x, g = residual_rows(
            indptr, indices, values, U, V, 1.0, np.zeros(m), np.zeros(n, np.float32), np.ones(len(indices), np.float32)
        )
    digest = hashlib.sha256()
    for array in (shared, U, W, x, g):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]
