"""Bounds on the contribution of one user: the numbers that every sensitivity is made of.

A bound is not assumed of the data, it is enforced: `discreet.privacy.users.sealed_users`
cuts values that exceed it when data are sealed (`check_rows`) or a user's vector is formed
(`clip_rows`). All of them are public parameters.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, PrivacyError
from discreet.kernels import allocate_aligned_array
from discreet.kernels.threads import even_cuts, run
from discreet.privacy.accounting.budget import require_number

#: Bounds lie between these: below, float32 loses digits; above, its products overflow.
SMALLEST = 1e-12
LARGEST = 1e12
SHAVE = 1 - 2.0**-20  # float32 rounds by at most 2⁻²⁴, and a norm adds up a few such errors
_MOST_ROWS = 2**31  # rows are numbered by int32
_PIECE = 1 << 20  # entries checked at a time, so that temporary arrays stay small


@dataclass(frozen=True)
class Bounds:
    """Bounds on one user.

    Parameters
    ----------
    items : int
        k: a user contributes through at most this many items, with weights of at most 1.
    rating : float, optional
        Γ_M: centered ratings are cut to [−Γ_M, Γ_M]. None: ratings are not used, every value counts
        as 1 (implicit).
    center : float or "user"
        What is subtracted from ratings before they are cut: a public constant, or each user's own
        mean (which only that user computes, so it costs nothing).
    prior_mean, prior_count : float
        A user's own mean counts `prior_count` ratings of the public value `prior_mean` as well, so
        that one rating does not make a mean.
    norm : float
        Γ_u: a user's vector is cut to this ℓ₂ norm.
    norm_l1 : float, optional
        If given, it is also cut to this ℓ₁ norm (for Laplace and Huber noise).
    """

    items: int
    rating: float | None = None
    center: float | Literal["user"] = 0.0
    prior_mean: float = 0.0
    prior_count: float = 0.0
    norm: float = 1.0
    norm_l1: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", _whole("items", self.items))
        for name in ("rating", "norm", "norm_l1"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_bound(name, getattr(self, name)))
        object.__setattr__(self, "prior_mean", public_number("prior_mean", self.prior_mean))
        object.__setattr__(self, "prior_count", public_number("prior_count", self.prior_count))
        if self.prior_count < 0:
            raise ConfigError(f"prior_count is {self.prior_count!r}, but must be at least 0")
        if isinstance(self.center, str):
            if self.center != "user":
                raise ConfigError(f"center is {self.center!r}, but must be a number or 'user'")
        else:
            object.__setattr__(self, "center", public_number("center", self.center))

    def through(self, n_items: int) -> int:
        """Return k: the most items that a user can contribute through."""
        return min(self.items, n_items)

    @property
    def value(self) -> float:
        """c: the largest absolute value of a contributed rating."""
        return 1.0 if self.rating is None else self.rating

    @property
    def vector_l2(self) -> float:
        """Γ: the largest ℓ₂ norm of a vector; it never exceeds the ℓ₁ norm."""
        return self.norm if self.norm_l1 is None else min(self.norm, self.norm_l1)

    def vector_l1(self, rank: int) -> float:
        """Return Γ₁: the largest ℓ₁ norm of a vector."""
        most = math.sqrt(rank) * self.norm
        return most if self.norm_l1 is None else min(most, self.norm_l1)

    def triangle_l1(self, rank: int) -> float:
        """Bound the ℓ₁ norm of the triangle of u uᵀ: Σ_{a≤b} |u_a u_b| = (‖u‖₁² + ‖u‖₂²) / 2."""
        return (self.vector_l1(rank) ** 2 + self.vector_l2**2) / 2


@np.errstate(all="ignore")
def clip_rows(U: NDArray[Any], bounds: Bounds, intercept: float = 0.0) -> NDArray[Any]:
    """Cut vectors to the bounds: u · min(1, Γ / ‖u‖) (erratum 2), likewise in ℓ₁; NaN becomes 0.

    With an `intercept` ι, the result is (ι, u) with u cut to √(Γ² − ι²), so that the whole keeps
    the bound.
    """
    if intercept:
        if not 0 < intercept < bounds.norm or (
            bounds.norm_l1 is not None and intercept >= bounds.norm_l1
        ):
            raise ConfigError(
                f"intercept is {intercept!r}, but must be positive and below the norm"
                f" {bounds.norm:g}"
            )
        l1 = None if bounds.norm_l1 is None else bounds.norm_l1 - intercept
        rest = clip_rows(
            U, replace(bounds, norm=math.sqrt(bounds.norm**2 - intercept**2), norm_l1=l1)
        )
        return np.column_stack([np.full(len(U), intercept * SHAVE, U.dtype), rest])
    long = np.empty(len(U))
    wide = np.empty(len(U))
    cut = allocate_aligned_array(U.shape, U.dtype)
    run(lambda start, stop: _norms(U, long, wide, start, stop), even_cuts(len(U)))
    factor = np.minimum(1.0, bounds.norm / np.maximum(long, 1e-300))
    if bounds.norm_l1 is not None:
        factor = np.minimum(factor, bounds.norm_l1 / np.maximum(wide, 1e-300))
    run(lambda start, stop: _scale(U, SHAVE * factor, cut, start, stop), even_cuts(len(U)))
    return cut


@njit(nogil=True, cache=True)
def _norms(U: np.ndarray, l2: np.ndarray, l1: np.ndarray, start: int, stop: int) -> None:
    """Compute norms of rows in float64; infinite for non-finite rows, which then become 0."""
    for i in range(start, stop):
        squares = 0.0
        absolute = 0.0
        for k in range(U.shape[1]):
            x = np.float64(U[i, k])
            squares += x * x
            absolute += abs(x)
        l2[i] = np.sqrt(squares) if squares < np.inf else np.inf  # NaN as well
        l1[i] = absolute if absolute < np.inf else np.inf


@njit(nogil=True, cache=True)
def _scale(U: np.ndarray, factor: np.ndarray, cut: np.ndarray, start: int, stop: int) -> None:
    for i in range(start, stop):
        for k in range(U.shape[1]):
            cut[i, k] = np.float64(U[i, k]) * factor[i] if factor[i] > 0 else 0.0


def check_rows(ratings: Ratings) -> None:
    """Check that there is one row per user and one entry per pair, which the bounds rely on."""
    indptr, indices, ids = ratings.indptr, ratings.indices, ratings.user_ids
    if ratings.n_users > _MOST_ROWS:
        raise MemoryError  # reported by `seal` as such
    inside = len(indices) == 0 or 0 <= indices.min() <= indices.max() < ratings.n_items
    if indptr[0] != 0 or (np.diff(indptr) < 0).any() or not inside:
        raise PrivacyError(
            "the ratings are not a valid CSR matrix of users and items. Construct them with"
            " Ratings.read or from_csr."
        )
    # indices may fall from one user's last item to the next one's first, and nowhere else
    falls = _falls(indices)
    distinct = len(np.unique(ids)) if ids.dtype == np.int64 else len(set(ids.tolist()))
    if (
        len(falls) >= max(ratings.n_users, 1)
        or not np.isin(falls, indptr[1:-1]).all()
        or distinct != ratings.n_users
    ):
        raise PrivacyError(
            "the ratings repeat a user or a (user, item) pair. Merge duplicates first, as"
            " Ratings.read does."
        )


def _falls(indices: NDArray[Any]) -> NDArray[np.int64]:
    """Find entries that are not above the previous one, a part at a time."""
    parts = [
        np.flatnonzero(
            indices[a + 1 : a + 1 + _PIECE] <= indices[a : a + _PIECE][: len(indices) - a - 1]
        )
        + a
        + 1
        for a in range(0, max(len(indices) - 1, 0), _PIECE)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def check_bound(name: str, value: Any) -> float:
    """Return the number, if it is a valid bound."""
    require_number(name, value)
    if not SMALLEST <= value <= LARGEST:
        raise ConfigError(f"{name} is {value!r}, but must lie between {SMALLEST:g} and {LARGEST:g}")
    return float(value)


def public_number(name: str, value: Any) -> float:
    """Return the number, if ratings can be compared with it."""
    require_number(name, value)
    if not abs(value) <= LARGEST:
        raise ConfigError(f"{name} is {value!r}, but must lie between {-LARGEST:g} and {LARGEST:g}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value) if not isinstance(value, bool) else 0
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1")
    return number
