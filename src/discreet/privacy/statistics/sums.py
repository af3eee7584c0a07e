"""Sums over users that own their sensitivity.

Each statistic is made of contributions that are already cut to their bounds, and states how far one
user can move it. Two facts do most of the work. For contributions x_i whose inner products are
never negative (counts, Gram matrices: ⟨u uᵀ, v vᵀ⟩ = (u·v)² ≥ 0), replacing a user moves the sum by
at most √2 times what removing one does; for signed ones, by at most twice. And a symmetric matrix
packed as (diagonal, √2 × off-diagonal) keeps its Frobenius norm, so that off-diagonal entries need
only 1/√2 of the noise (erratum 5).

With k items, values up to c, vectors of ℓ₂ norm Γ and ℓ₁ norm Γ₁, and m items in all:

    statistic                        remove, ℓ₂     replace, ℓ₂    remove, ℓ₁       one entry
    item counts    Σ w               √k             √2 √k          k                1
    item totals    Σ w y             √k c           2 √k c         k c              c
    item grams     Σ w u uᵀ          √k Γ²          √2 √k Γ²       k (Γ₁² + Γ²)/2   Γ²
    item sums      Σ w y u           √k c Γ         2 √k c Γ       k c Γ₁           c Γ
    global gram    Σ u uᵀ            Γ²             √2 Γ²          (Γ₁² + Γ²)/2     Γ²
    covariance     Σ y yᵀ, ‖y‖ ≤ L   L²             √2 L²          k L²             min(L², c²)
    rating sum     Σ w y             k c            2 k c          k c              k c
    rating count   Σ w               k              k              k                k
    user count     Σ 1               1              1              1                1

In ℓ₁, replacing a user counts twice everywhere but in counts of ratings and users; the rating sum
of implicit feedback is a rating count. Every number is reached by some user, or pair of users, up
to rounding; tests/privacy/test_statistics.py builds them. The exceptions are in ℓ₁: the factor 2
for counts, Gram matrices and covariances needs two users without a common item (global gram:
without a common coordinate), and is an upper bound only where k > m/2.

Rounding on a grid keeps all of this, because it goes toward zero, entry by entry or factor by
factor: norms do not grow, counts stay counts and outer products stay outer products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.privacy.accounting.budget import RELATIONS, Neighboring, Norm
from discreet.privacy.sealed import Key, Sealed, guard, require
from discreet.privacy.statistics.base import Public, Statistic, isometry, unpack

Compute = Callable[[float | None, slice], NDArray[Any]]


class Sum(Sealed[Compute]):
    """The sum of a statistic over users: public shape and sensitivity, sealed value.

    Parameters
    ----------
    statistic : Statistic
    public : Public
        What is known of the users.
    compute : function (grid, rows) -> array
        The exact sum of those rows; in units of the grid, rounded per contribution and int64, where
        one is given.
    """

    __slots__ = ("_public", "_statistic")

    def __init__(self, statistic: Statistic, public: Public, compute: Compute) -> None:
        super().__init__(compute, f"statistic of shape {statistic.shape(public)}")
        self._statistic = statistic
        self._public = public

    @property
    def shape(self) -> tuple[int, ...]:
        return self._statistic.shape(self._public)

    def sensitivity(self, neighboring: Neighboring, norm: Norm) -> float:
        """Return the sensitivity; see the table in the module's docstring."""
        if neighboring not in RELATIONS or norm not in ("l1", "l2", "inf"):
            raise ConfigError(f"no sensitivity for neighboring={neighboring!r} and norm={norm!r}")
        bounds = self._statistic.reach(self._public)
        if norm == "inf":
            return bounds.entry
        reach, factor = (
            (bounds.l2, bounds.replace_l2) if norm == "l2" else (bounds.l1, bounds.replace_l1)
        )
        return reach * factor if neighboring == "replace-one" else reach

    def weights(self, norm: Norm) -> NDArray[np.float64] | None:
        rank = self._statistic.symmetric(self._public)
        if rank is None or not self._statistic.isometric or norm != "l2":
            return None
        return isometry(rank)

    def unpack(
        self, released: NDArray[Any], room: NDArray[Any] | None = None, both: bool = True
    ) -> NDArray[Any]:
        """Unpack released rows into symmetric matrices (n, r, r): see `unpack` of the base."""
        rank = self._statistic.symmetric(self._public)
        assert rank is not None
        return unpack(released, rank, room, both)

    @guard("a statistic")
    def compute(
        self, key: Key, *, grid: float | None = None, rows: slice | None = None
    ) -> NDArray[Any]:
        exact = self.open(key)
        begin, end, step = (rows or slice(None)).indices(self.shape[0])
        if step != 1 or end < begin:
            raise ConfigError(f"rows={rows!r}: a block of rows must be contiguous and ascending")
        return exact(grid, slice(begin, end))


@guard("some statistics")
def compute_together(key: Key, asked: Sequence[tuple[Any, float | None]]) -> None:
    """Let engines compute these statistics, each on its grid, in one pass over their users.

    Statistics of other engines are computed when they are requested.
    """
    require(key)
    sums: list[tuple[Any, float | None]] = [
        (one.open(key), grid) for one, grid in asked if isinstance(one, Sum)
    ]
    recorded = [(one, grid) for one, grid in sums if hasattr(one, "engine")]
    for engine in {id(one.engine): one.engine for one, _ in recorded}.values():
        own = [(one, grid) for one, grid in recorded if one.engine is engine]
        own[0][0].compute_together(own)
