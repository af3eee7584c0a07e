"""Users who follow gradients: what each does by itself, and the sums that a Session may release.

`Descent` goes on where `discreet.privacy.sealed` ends. A user has a vector u_i and an offset o_i; from public item
factors V and biases b it computes its residuals, weighted and cut to a length:

    e_ij = u_i · v_j + b_j + o_i − y_ij,      x_i = (w_ij e_ij)_j  with ‖x_i‖ ≤ G,

and moves its vector by itself. What leaves are sums over users, with the bounds ‖u_i‖ ≤ Γ, Σ_j w_ij² ≤ 1, m items:

    statistic                                remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    gradient       Σ x_ij u_i  (per item)    G Γ          2 G Γ         √m G Γ₁      twice         G Γ
    bias_gradient  Σ x_ij      (per item)    G            2 G           √m G         twice         G
    gram           Σ u_i u_iᵀ                Γ²           √2 Γ²         (Γ₁²+Γ²)/2   twice         Γ²
    counts         Σ w_ij      (per item)    1            √2            √m           twice         1
    size           Σ (|Ω_i|/m, 1, ȳ_i/h)     √3           √5            3            3             1

For the last: the first entry of a user is between 0 and 1, the second is 1, the third between −1 and 1 (ȳ_i is the
user's own mean, cut to h), so exchanging a user moves them by at most 1, 0 and 2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.kernels import second_moment, solve_rows, solve_rows_constant, sum_rows
from discreet.kernels.gradient import residual_rows, turn_rows
from discreet.privacy.bounds import SHAVE, bound, clip_rows
from discreet.privacy.sealed import Users
from discreet.privacy.statistics import Reach, Sum, entry_sum
from discreet.privacy.vault import KEY, Box, guarded

_NONE = np.zeros(0, np.float32)


class _Path(NamedTuple):
    """What `Descent` holds beside the users' ratings, entry by entry or user by user."""

    weight: NDArray[np.float32]  # none where all are 1
    offset: NDArray[np.float32]
    residual: NDArray[Any]
    own: NDArray[Any]  # each user's own gradient


class Descent(Box[_Path]):
    """Sealed users on their way down. Public: the number of items and the length of the vectors.

    Parameters
    ----------
    users : Users
        Their bounds say how long a vector may be (``norm``).
    """

    __slots__ = ("_cut", "_users")

    @guarded("the start of a descent")
    def __init__(self, users: Users) -> None:
        offset = np.zeros(len(users.open(KEY).indptr) - 1, np.float32)
        super().__init__(_Path(_NONE, offset, _NONE, _NONE), f"descent over {users.n_items:,} items")
        self._users, self._cut = users, 0.0

    @property
    def n_items(self) -> int:
        return self._users.n_items

    # ------------------------------------------------------------ what users do by themselves

    @guarded("the users' weights")
    def weigh(self, importance: NDArray[np.floating[Any]]) -> None:
        """Each user gives its entries the weights w_ij² = q_j / Σ_j q_j, for a public `importance` q > 0 of items."""
        q = np.asarray(importance, np.float64)
        if q.shape != (self.n_items,) or not (np.isfinite(q) & (q > 0)).all():
            raise ConfigError(f"importance needs {self.n_items:,} positive finite numbers")
        rows = self._users.open(KEY)
        q = (q / q.max())[rows.indices]
        row = rows.row
        share = q / np.maximum(np.bincount(row, q, minlength=len(rows.indptr) - 1)[row], 1e-300)
        self._now(weight=(SHAVE * np.sqrt(share)).astype(np.float32), residual=_NONE)

    @guarded("the users' vectors")
    def solve(
        self,
        V: NDArray[Any],
        ridge: float,
        *,
        bias: NDArray[Any] | None = None,
        centre: float | None = None,
        prior_count: float = 3.0,
        unobserved: float = 0.0,
        stretch: bool = False,
        intercept: float = 0.0,
    ) -> None:
        """Each user's offset and vector by least squares on its own history; then the vector is cut to the norm Γ.

            (o, u) = argmin Σ_j (o + u · v_j + b_j − y_j)² + λ ‖u‖² + κ (o − centre)² + λ₀ Σ_all (u · v_j)²

        Without a `centre` there is no offset. `stretch` makes every vector (but 0) as long as Γ: short ones say as much
        about their direction, and the noise is the same. With an `intercept` ι, that constant comes before each vector,
        whose other part is cut, or stretched, to √(Γ² − ι²).
        """
        V = self._factors(V)
        rows, given = self._users.open(KEY), np.zeros(self.n_items) if bias is None else self._items("bias", bias)
        n, lead = len(rows.indptr) - 1, 0.0 if centre is None else math.sqrt(ridge / prior_count)
        shared = unobserved * second_moment(V) if unobserved else None
        values, expected = rows.values.astype(V.dtype, copy=False), given + (centre or 0.0)
        if V.shape[1]:
            X, own = solve_rows_constant(
                rows.indptr, rows.indices, values, V, np.full(n, ridge), lead, shared, offset=expected
            )
        else:
            one = np.full((self.n_items, 1), lead, V.dtype)
            own = solve_rows(rows.indptr, rows.indices, values, one, np.full(n, ridge), offset=expected)[:, 0]
            X = np.zeros((n, 0), V.dtype)
        offset = np.nan_to_num(lead * own + (centre or 0.0), nan=0.0, posinf=0.0, neginf=0.0)
        self._place(X, stretch, intercept)
        self._now(offset=offset.astype(np.float32), residual=_NONE, own=_NONE)

    @guarded("the users' vectors")
    def start(self, W: NDArray[Any]) -> None:
        """Each user's vector as Σ_j y_j w_j, cut to the norm Γ."""
        W = self._factors(W)
        rows = self._users.open(KEY)
        self._place(sum_rows(rows.indptr, rows.indices, rows.values.astype(W.dtype), W), False)
        self._now(residual=_NONE, own=_NONE)

    @guarded("the users' residuals")
    def look(self, V: NDArray[Any], largest: float, *, bias: NDArray[Any] | None = None, own: bool = True) -> None:
        """Each user compares its ratings with V and b: its residuals, cut to `largest` (G), and its own gradient."""
        G, V = bound("largest", largest), self._factors(V)
        rows, path, U = self._users.open(KEY), self.open(KEY), self._users._opened()
        if V.shape[1] != U.shape[1]:
            raise ConfigError(f"item factors of rank {V.shape[1]} do not fit user vectors of rank {U.shape[1]}")
        b = np.zeros(self.n_items) if bias is None else self._items("bias", bias)
        weights = path.weight if len(path.weight) else None
        x, g = residual_rows(
            rows.indptr, rows.indices, rows.values, U, V.astype(U.dtype), G * SHAVE, b, path.offset, weights, own
        )
        self._now(residual=x, own=g)
        self._cut = G

    @guarded("the users' step")
    def step(self, rate: float, R: NDArray[Any], balance: float) -> None:
        """Each user moves: u − rate · Σ_j e_j v_j − balance · uᵀR, with what it saw last, and cut to the norm Γ."""
        U, own = self._users._opened(), self.open(KEY).own
        if own.shape != U.shape:
            raise ConfigError("users have not looked at the items yet: call look first")
        self._place(turn_rows(U, own, np.asarray(R, np.float64), rate, balance), False)
        self._now(residual=_NONE, own=_NONE)

    # ------------------------------------------------------------ what may be released

    @guarded("the gradient")
    def gradient(self) -> Sum:
        """Σ_i x_ij u_i for each item j."""
        return self._users._entry_sums(self._looked().residual, self._cut)

    @guarded("the gradient of biases")
    def bias_gradient(self) -> Sum:
        """Σ_i x_ij for each item j."""
        x, G, m = self._looked().residual, self._cut, self.n_items
        return entry_sum(self._users.open(KEY).indices, x, m, Reach(G, m**0.5 * G, G, 2.0))

    @guarded("the Gram matrix of users' vectors")
    def gram(self) -> Sum:
        """Σ_i u_i u_iᵀ, as one packed upper triangle."""
        return self._users.global_gram()

    @guarded("the counts of items")
    def counts(self) -> Sum:
        """Σ_i w_ij for each item j."""
        indices, weight, m = self._users.open(KEY).indices, self.open(KEY).weight, self.n_items
        if len(weight) != len(indices):
            raise ConfigError("users have not weighted their items yet: call weigh first")
        return entry_sum(indices, weight, m, Reach(1.0, m**0.5, 1.0, 2**0.5))

    @guarded("the size of the data")
    def size(self, half: float) -> Sum:
        """Σ_i (share of the items that i has rated, 1, its mean rating cut to ±half and divided by it)."""
        h, rows = bound("half", half), self._users.open(KEY)
        counts = np.diff(rows.indptr)
        mean = np.bincount(rows.row, rows.values, minlength=len(counts)) / np.maximum(counts, 1)
        each = np.column_stack([counts / max(self.n_items, 1), np.ones(len(counts)), np.clip(mean / h, -1, 1)]) * SHAVE

        def compute(grid: float | None, part: slice) -> NDArray[Any]:
            whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
            return whole.sum(axis=0)[part]

        return Sum((3,), Reach(3**0.5, 3.0, 1.0, (5 / 3) ** 0.5, 1.0), compute)

    # ------------------------------------------------------------ parts

    def _now(self, **changes: Any) -> None:
        path = self.open(KEY)._replace(**changes)
        self._content = lambda: path

    def _place(self, U: NDArray[Any], stretch: bool, intercept: float = 0.0) -> None:
        bounds = self._users.bounds
        if stretch:
            exact = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0).astype(np.float64)
            length = np.sqrt((exact**2).sum(axis=1, keepdims=True))
            U = np.where(length > 1e-12, exact * (bounds.norm / np.maximum(length, 1e-12)), 0).astype(U.dtype)
        U = np.ascontiguousarray(clip_rows(U, bounds, intercept))
        self._users._rank, self._users._vectors = U.shape[1], Box(U, f"vectors of rank {U.shape[1]}")

    def _looked(self) -> _Path:
        path = self.open(KEY)
        if self._cut == 0.0 or len(path.residual) != len(self._users.open(KEY).indices):
            raise ConfigError("users have not looked at the items yet: call look first")
        return path

    def _factors(self, V: NDArray[Any]) -> NDArray[Any]:
        return self._users._factors(V)

    def _items(self, name: str, given: Any) -> NDArray[np.float32]:
        return self._users._public(name, given, (self.n_items,)).astype(np.float32)
