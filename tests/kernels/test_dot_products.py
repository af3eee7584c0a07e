"""Inner products of pairs of rows."""

import numpy as np
import pytest

from discreet.errors import ConfigError
from discreet.kernels import reference
from discreet.kernels.dot_products import pair_products


@pytest.mark.parametrize("kinds", ["ff", "dd", "fd", "df"])
@pytest.mark.parametrize("r", [0, 1, 7, 64, 201])
def test_equals_numpy(kinds, r):
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(30, r)).astype(kinds[0]), rng.normal(size=(20, r)).astype(kinds[1])
    i, j = rng.integers(0, 30, 100), rng.integers(-1, 20, 100)
    products = pair_products(U, V, i, j)
    assert products.dtype == np.result_type(U, V)
    np.testing.assert_allclose(products, reference.pair_products(U, V, i, j), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("r", [1, 3, 8, 15, 16, 17, 64, 100, 200])
def test_no_bit_depends_on_the_other_pairs(kind, r):
    rng = np.random.default_rng(r)
    U, V = rng.normal(size=(101, r)).astype(kind), rng.normal(size=(99, r)).astype(kind)
    i, j = rng.integers(0, 101, 400), rng.integers(0, 99, 400)
    whole = pair_products(U, V, i, j)
    for some in (np.arange(399), np.array([7]), rng.permutation(400)):
        assert np.array_equal(pair_products(U, V, i[some], j[some]), whole[some])
    for at in (0, 50, 399):
        assert pair_products(U[i[[at]]], V[j[[at]]], [0], [0])[0] == whole[at]


def test_what_is_refused():
    U = np.ones((4, 3), np.float32)
    for arrays, message in [
        ((U.astype(int), U, [0], [0]), "U must be an array of float32 or float64, not int64"),
        ((U, U[:, :2], [0], [0]), "vectors must have the same length"),
        ((U, U, [4], [0]), "i must be between 0 and 3"),
        ((U, U, [0], [-5]), "j must be between 0 and 3"),
        ((U, U, [0.5], [0]), "i must be a one-dimensional array of integers"),
        ((U, U, [0, 1], [0]), "pairs must have the same length"),
    ]:
        with pytest.raises(ConfigError, match=message):
            pair_products(*arrays)
