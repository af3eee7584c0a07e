"""Errors of ratings left out: against solving without each of them."""

import numpy as np
import pytest

from discreet.kernels import reference, threads
from discreet.kernels.leave_one_out import leave_one_out_errors


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2])
def test_it_is_what_solving_without_each_entry_gives(dtype, count):
    rng = np.random.default_rng(0)
    counts = np.array([0, 1, 2, 7, 0, 30, 3])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([rng.choice(40, k, replace=False) for k in counts]).astype(np.int32)
    y = rng.normal(size=len(indices))
    F = rng.normal(size=(40, 6)).astype(dtype)
    prior = np.array([0.5, 2.0, 1.0, 1.0, 3.0, 0.1])
    lengths = np.array([1, 3, 4, 6])
    threads.set_threads(count)
    try:
        found = leave_one_out_errors(indptr, indices, y, F, prior, lengths)
    finally:
        threads.set_threads(None)
    np.testing.assert_allclose(
        found, reference.leave_one_out_errors(indptr, indices, y, F, prior, lengths), rtol=1e-9
    )
    fewer = leave_one_out_errors(indptr, indices, y, F, prior, lengths[:2])
    np.testing.assert_array_equal(fewer, found[:, :2], "the models are nested")
