"""A toy statistic: the sum of clipped rows, one per user, as simple as a statistic can be."""

import math

import numpy as np
import pytest

from discreet.privacy.sealed import Sealed, require


class RowSum:
    """Each user contributes a row of the given shape, of L2 norm at most ``bound`` (and L1 norm
    at most √d·bound).
    """

    def __init__(self, rows, bound=1.0, weights=None):
        rows = np.asarray(rows, float)
        norms = np.sqrt((rows.reshape(len(rows), -1) ** 2).sum(axis=1))
        scale = np.minimum(1.0, bound / np.maximum(norms, 1e-300))
        self._rows = Sealed(rows * scale.reshape(-1, *[1] * (rows.ndim - 1)), "rows")
        self._shape, self.bound, self._weights, self.opened = rows.shape[1:], bound, weights, 0

    @property
    def shape(self):
        return self._shape

    def sensitivity(self, neighboring, norm):
        one = {
            "l2": self.bound,
            "l1": self.bound * math.sqrt(math.prod(self._shape)),
            "inf": self.bound,
        }[norm]
        return one if neighboring == "add-remove" else 2 * one

    def weights(self, norm):
        return self._weights

    def compute(self, key, *, grid=None, rows=None):
        require(key)
        self.opened += 1
        content = self._rows.open(key)[:, rows] if rows is not None else self._rows.open(key)
        return (
            content.sum(axis=0)
            if grid is None
            else np.trunc(content / grid).astype(np.int64).sum(axis=0)
        )


@pytest.fixture
def row_sum():
    return RowSum
