"""What taste is worth, by ratings that users leave out of their own solve: the ranks of a model
compared.

Every user solves with the first columns of V, for several numbers of them, and predicts each of its
ratings by all of its others (`discreet.kernels.leave_one_out`). What it adds for each rank is how
much less its mean square error is than with none of the learned columns:

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    left-out gains  Σ w_i d_i/√K, K ranks            1            2  √K           2 √K          1/√K

*Proof.* −1 ≤ d_ik ≤ 1 after the cut and 0 ≤ w_i ≤ 1, so an entry of a user is between −1/√K and
1/√K, K of them have the norm 1, and a user and its opposite are 2 apart. So a line of a plan may
buy this or sums of residuals at the same price. Contributions are multiplied by `SHAVE` and rounded
toward zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.kernels.leave_one_out import leave_one_out_errors
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.statistics.bounds import SHAVE, check_bound
from discreet.privacy.statistics.contributions import Rows
from discreet.privacy.statistics.sums import SensitivityBounds, register

# so that coins have nothing to do with other choices by the same key
MIX = np.uint64(0x9E3779B97F4A7C15)


@register("left-out gains")
@dataclass(frozen=True)
class LeaveOneOutGains(Statistic):
    """Σ_i w_i clip((E_i0 − E_ik)/variance, −1, 1)/√K for each of K ranks k, w_i = min(n_i/many, 1).

    E_ik is user i's mean square error with `first` + k columns of V beside its level, by ratings
    left out; w lets those count for more who rate more. The prior is that of `SolveUserEffects`. Of
    very many users a `part` is enough: whether a user takes part is drawn from its own id, and w is
    0 for the others.
    """

    V: NDArray[Any]
    ridge: float
    center: float
    prior_count: float
    bias: NDArray[Any]
    first: int
    ranks: tuple[int, ...]
    variance: float
    many: float
    part: float = 1.0

    def check(self, public: Public) -> None:
        V = public.factors(self.V)
        public.per_item("bias", self.bias)
        for name in ("ridge", "prior_count", "variance", "many", "part"):
            check_bound(name, getattr(self, name))
        columns = V.shape[1] - self.first
        rising = all(a < b for a, b in zip((0, *self.ranks), self.ranks, strict=False))
        if not self.ranks or not rising or self.ranks[-1] > columns:
            raise ConfigError(
                f"ranks are {self.ranks!r}, but must rise from 1 to the {columns} learned columns"
                " at most"
            )

    def shape(self, public: Public) -> tuple[int, ...]:
        return (len(self.ranks),)

    def reach(self, public: Public) -> SensitivityBounds:
        root = math.sqrt(len(self.ranks))
        return SensitivityBounds(1.0, root, 1 / root, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        V = public.factors(self.V)
        F = np.column_stack([np.ones(len(V)), V]).astype(np.float64)
        prior = np.append(self.prior_count, np.full(V.shape[1], self.ridge))
        lengths = 1 + self.first + np.array([0, *self.ranks])
        indptr, indices, values = self._select_participants(block)
        with np.errstate(all="ignore"):
            y = values.astype(np.float64) - np.asarray(self.bias, np.float64)[indices] - self.center
            error = leave_one_out_errors(indptr, indices, y, F, prior, lengths)
            gain = (error[:, :1] - error[:, 1:]) / self.variance
        gain = np.clip(np.nan_to_num(gain, nan=0.0, posinf=1.0, neginf=-1.0), -1, 1)
        weight = np.minimum(np.diff(indptr) / self.many, 1.0) / math.sqrt(len(self.ranks))
        each = gain * weight[:, None] * SHAVE
        whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
        return lambda rows: whole.sum(axis=0)[rows]

    def _select_participants(self, block: Block) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """CSR arrays of those who take part."""
        if self.part >= 1:
            return block.indptr, block.indices, block.values
        coin = (block.key * MIX >> np.uint64(11)).astype(np.float64) * 2.0**-53
        who = coin < self.part
        entries = np.repeat(who, block.counts)
        indptr = np.concatenate([[0], np.cumsum(block.counts[who])])
        return indptr, block.indices[entries], block.values[entries]
