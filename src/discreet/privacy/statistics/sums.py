"""Sums over users that own their sensitivity.

Each statistic is made of contributions that are already cut to their bounds, and states how far one
user can move it. Two facts do most of the work. For contributions x_i whose inner products are
never negative (counts, Gram matrices: ⟨u uᵀ, v vᵀ⟩ = (u·v)² ≥ 0), replacing a user moves the sum by
at most √2 times what removing one does; for signed ones, by at most twice. And a symmetric matrix
packed as (diagonal, √2 × off-diagonal) keeps its Frobenius norm, so that off-diagonal entries need
only 1/√2 of the noise (erratum 5).

With k items, squared weights B, values up to c, vectors of ℓ₂ norm Γ and ℓ₁ norm Γ₁, S = √(k B),
and m items in all:

    statistic                        remove, ℓ₂     replace, ℓ₂    remove, ℓ₁       one entry
    item_counts    Σ w               √B             √2 √B          S                √B
    item_grams     Σ w u uᵀ          √B Γ²          √2 √B Γ²       S (Γ₁² + Γ²)/2   √B Γ²
    item_sums      Σ w y u           √B c Γ         2 √B c Γ       S c Γ₁           √B c Γ
    global_gram    Σ u uᵀ            Γ²             √2 Γ²          (Γ₁² + Γ²)/2     Γ²
    covariance     Σ y yᵀ, ‖y‖ ≤ L   L²             √2 L²          k L²             L²
    gradient       Σ e uᵀ, ‖e‖ ≤ G   G Γ            2 G Γ          √m G Γ₁          G Γ
    rating_sum     Σ w y             S c            2 S c          S c              S c
    rating_count   Σ w               S              S              S                S

In ℓ₁, replacing a user counts twice everywhere but in rating_count; rating_sum of implicit feedback
is a rating_count. Every number is reached by some user, or pair of users, up to rounding;
tests/privacy/test_statistics.py builds them. The exceptions are in ℓ₁: the factor 2 for counts,
Gram matrices and covariances needs two users without a common item (global_gram: without a common
coordinate), and is an upper bound only where k > m/2.

Rounding on a grid keeps all of this, because it goes toward zero, entry by entry or factor by
factor: norms do not grow, counts stay counts and outer products stay outer products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError, EngineError, PrivacyError
from discreet.kernels.eigen import mirror
from discreet.kernels.threads import cost_cuts, even_cuts, run
from discreet.privacy.accounting.budget import RELATIONS, Neighboring, Norm
from discreet.privacy.sealed import Key, require
from discreet.privacy.statistics.base import Statistic
from discreet.privacy.statistics.integer_sums import units_at

Compute = Callable[[float | None, slice], NDArray[Any]]
S = TypeVar("S", bound=Statistic)


@dataclass(frozen=True)
class SensitivityBounds:
    """How far one user moves a statistic: remove in ℓ₂ and ℓ₁, the factor for replacing, and
    one entry at most.
    """

    l2: float
    l1: float
    entry: float
    replace_l2: float
    replace_l1: float = 2.0


class Sum:
    """A statistic: shape and sensitivity are public, the sum itself opens only with the key.

    Parameters
    ----------
    shape : tuple of int
    reach : Reach
    compute : function (grid, rows) -> array
        The exact sum of those rows; in units of the grid, rounded per contribution and int64, where
        one is given.
    symmetric : int, optional
        Rank of the symmetric matrices whose packed upper triangles are the rows.
    """

    __slots__ = ("_compute", "_reach", "_shape", "_symmetric")

    def __init__(
        self,
        shape: tuple[int, ...],
        reach: SensitivityBounds,
        compute: Compute,
        symmetric: int | None = None,
    ) -> None:
        self._shape = shape
        self._reach = reach
        self._symmetric = symmetric
        self._compute = compute

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def reach(self) -> SensitivityBounds:
        return self._reach

    def sensitivity(self, neighboring: Neighboring, norm: Norm) -> float:
        """See the table in the module's docstring."""
        if neighboring not in RELATIONS or norm not in ("l1", "l2", "inf"):
            raise ConfigError(
                f"there is no sensitivity for the relation {neighboring!r} in the norm {norm!r}"
            )
        if norm == "inf":
            return self._reach.entry
        reach, factor = (
            (self._reach.l2, self._reach.replace_l2)
            if norm == "l2"
            else (self._reach.l1, self._reach.replace_l1)
        )
        return reach * factor if neighboring == "replace-one" else reach

    def weights(self, norm: Norm) -> NDArray[np.float64] | None:
        return isometry(self._symmetric) if self._symmetric is not None and norm == "l2" else None

    def compute(
        self, key: Key, *, grid: float | None = None, rows: slice | None = None
    ) -> NDArray[Any]:
        require(key)
        begin, end, step = (rows or slice(None)).indices(self._shape[0])
        if step != 1 or end < begin:
            raise ConfigError(f"rows={rows!r}: a block of rows has no gaps and runs forwards")
        try:
            with np.errstate(all="ignore"):  # a warning would be a message about somebody's ratings
                return self._compute(grid, slice(begin, end))
        except EngineError:
            raise
        except Exception as error:
            kind = type(error).__name__
        # out here, no traceback is chained to this one: the other may speak of private values
        raise PrivacyError(f"a statistic of shape {self._shape} could not be computed ({kind})")

    def __repr__(self) -> str:
        return f"<statistic of shape {self._shape}>"

    def refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Raise: an exact sum has no values to look at."""
        raise PrivacyError(
            f"{self!r} cannot be read, copied, stored or turned into an array: use Session.release"
        )

    __array__ = __buffer__ = __dlpack__ = __dlpack_device__ = refuse
    __iter__ = __len__ = __getitem__ = __contains__ = __bool__ = refuse
    __float__ = __int__ = __index__ = __complex__ = refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse


def look_together(key: Key, asked: Sequence[tuple[Any, float | None]]) -> None:
    """Let engines compute these statistics, each on its grid, in one pass over their people; then
    they are known.

    What is not a sum of such an engine is left alone: it is computed when it is asked for.
    """
    require(key)
    sums: list[tuple[Any, float | None]] = [
        (one._compute, grid) for one, grid in asked if isinstance(one, Sum)
    ]
    recorded = [(one, grid) for one, grid in sums if hasattr(one, "engine")]
    kind = ""
    try:
        with np.errstate(all="ignore"):
            for engine in {id(one.engine): one.engine for one, _ in recorded}.values():
                engine.together([(one, grid) for one, grid in recorded if one.engine is engine])
    except (EngineError, PrivacyError):
        raise
    except Exception as error:
        kind = type(error).__name__
    if kind:  # out here, no traceback is chained to this one
        raise PrivacyError(f"some statistics could not be computed ({kind})")


#: Every kind of statistic by its name. The tests walk it, so that none is added without its worst
#: case.
STATISTICS: dict[str, type[Statistic]] = {}


def register(name: str) -> Callable[[type[S]], type[S]]:
    """Enter a kind of statistic under that name; messages call it so, too."""

    def enter(kind: type[S]) -> type[S]:
        if name in STATISTICS:
            raise ConfigError(f"there are two statistics called {name!r}")
        STATISTICS[name] = kind
        kind.what = name
        return kind

    return enter


def per_user_total(each: NDArray[np.float64], grid: float | None) -> NDArray[Any]:
    """One number: the sum over users of what each adds up to, rounded per user where there is a
    grid.
    """
    whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
    total: NDArray[Any] = whole.sum(keepdims=True)
    return total


def per_item_total(
    item: NDArray[np.integer], x: NDArray[Any], m: int, grid: float | None
) -> NDArray[Any]:
    """One number for each of m items: the sum of its entries in x."""
    return np.bincount(item, x, minlength=m) if grid is None else units_at(item, x, m, grid)


# ------------------------------------------------------------------ symmetric matrices as vectors


def triangle_size(r: int) -> int:
    """Entries of the upper triangle."""
    return r * (r + 1) // 2


def isometry(r: int) -> NDArray[np.float64]:
    """1 on the diagonal, √2 off it, in the order of `pack`."""
    a, b = np.triu_indices(r)
    return np.where(a == b, 1.0, math.sqrt(2.0))


def pack(A: NDArray[Any]) -> NDArray[Any]:
    """Upper triangles (n, r(r+1)/2) of symmetric matrices (n, r, r), row by row."""
    packed = np.empty((len(A), triangle_size(A.shape[1])), A.dtype)
    run(lambda start, stop: _pack(A, packed, start, stop), even_cuts(len(A)))
    return packed


def unpack(
    packed: NDArray[Any], r: int, room: NDArray[Any] | None = None, both: bool = True
) -> NDArray[Any]:
    """The matrices (n, r, r) again, with both triangles or the upper ones alone (the others then
    hold anything).

    They are in a part of the `room` that is there for them, if it is given.
    """
    A = np.empty((len(packed), r, r), packed.dtype) if room is None else room[: len(packed)]
    assert A.shape == (len(packed), r, r)
    run(lambda start, stop: _unpack(packed, A, both, start, stop), even_cuts(len(A)))
    return A


@njit(nogil=True, cache=True)
def _pack(A: np.ndarray, packed: np.ndarray, start: int, stop: int) -> None:
    r = A.shape[1]
    for i in range(start, stop):
        at = 0
        for a in range(r):
            for b in range(a, r):
                packed[i, at] = A[i, a, b]
                at += 1


@njit(nogil=True, cache=True)
def _unpack(packed: np.ndarray, A: np.ndarray, both: bool, start: int, stop: int) -> None:
    r = A.shape[1]
    for i in range(start, stop):
        at = 0
        for a in range(r):
            for b in range(a, r):
                A[i, a, b] = packed[i, at]
                at += 1
        if both:
            mirror(A[i])


# ------------------------------------------------------------------ residuals


def residuals_numpy(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    y: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    largest: float,
) -> NDArray[np.float64]:
    """The specification of `residuals`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    e = (U[row].astype(np.float64) * V[indices]).sum(axis=1) - y
    e[~np.isfinite(e)] = 0
    length = np.sqrt(np.bincount(row, e**2, minlength=len(indptr) - 1))
    cut: NDArray[np.float64] = e * (largest / np.maximum(length, largest))[row]
    return cut


def residuals(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    y: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    largest: float,
) -> NDArray[np.float64]:
    """e_ij = u_i · v_j − y_ij of each entry, cut to ‖e_i‖ ≤ largest; what is not finite becomes 0.

    A user's residuals are added up in the order of its items, so that no bit of them depends on
    other users.
    """
    e = np.empty(len(indices))
    run(
        lambda a, b: _residuals(indptr, indices, y, U, V, largest, e, a, b),
        cost_cuts(np.diff(indptr) + 1.0),
    )
    return e


@njit(nogil=True, cache=True, error_model="numpy")
def _residuals(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    largest: float,
    e: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for i in range(start, stop):
        square = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            value = -float(y[at])
            for k in range(U.shape[1]):
                value += float(U[i, k]) * float(V[indices[at], k])
            e[at] = value if np.isfinite(value) else 0.0
            square += e[at] * e[at]
        length = np.sqrt(square)
        if length > largest:
            for at in range(indptr[i], indptr[i + 1]):
                e[at] *= largest / length
