"""Weights by age: any number of releases about the same users at one lifetime cost.

Row p of a timeline releases y_p = Σ_i w(p − a_i) s_i(p) + N(0, σ² I): user i entered in row a_i,
its current statistic has norm at most 1, and its weight falls with its age k = p − a_i,

    w(k) = W_k/2²⁰,  W_k = ⌊2²⁰ γ^k⌋,  γ = 1 − 1/memory,     Δ² = Σ_k w(k)²                      (1)

**All rows together, without end, are μ-GDP for one user with its whole stream, if σ = Δ/μ.**

*Proof.* Fix a user, and let h be what was released before row p. Without the user the mean of row p
is m_p(h), with it m_p(h) + v_p(h), and Σ_p ‖v_p‖²/σ² ≤ μ² on every path, because each age occurs
once. Let W be Brownian motion on [0, μ²], X_t = W_t + θt with θ = 0 or 1, and Z_p standard normal.
Build y_p = m_p + σ (ξ e + (I − e eᵀ) Z_p) with u = v_p/σ, e = u/‖u‖, τ_p = τ_{p−1} + ‖u‖² ≤ μ² and
ξ = (X_{τ_p} − X_{τ_{p−1}})/‖u‖. By the strong Markov property y_p is N(m_p + θ v_p, σ² I) given h:
θ = 0 gives the law without the user, θ = 1 the law with it, by one map of (X, Z) that does not
depend on θ. A test of the rows is a test of X, for which X_{μ²} ~ N(θμ², μ²) is sufficient. ∎

It needs that no other user's contribution, and no shape, number or existence of a row, depends on
the user except through releases; that noise is fresh in every row; and that no age is used twice.
Rows may be skipped, a user may be absent or erased, and the statistic may change. Several releases
in a row share it: multipliers Δ/(μ √α) with Σα ≤ 1. The principle is individual accounting (Feldman
& Zrnic 2021; Koskela, Tobaben & Honkela 2023; Smith & Thakurta 2022).

W_k are whole numbers, so (1) is a finite sum that is computed exactly. A *retention* limit K sets
w(k) = 0 from age K on. *Renewal* after R rows takes the age modulo R: any R consecutive rows then
use each age below R at most once and cost μ², and n periods cost √n μ. Two ids of one person at the
same time cost up to 2μ, because they add up; one after the other, √2 μ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError

ONE = 1 << 20  # the weight 1: finer weights would change Δ² by less than 2·10⁻⁶
MOST_MEMORY = 10_000  # rows: weights then end after 139,000 rows
#: Rounding of a multiplier in float64 is covered by this much more noise.
MARGIN = 1 + 2.0**-40


@dataclass(frozen=True)
class AgeWeights:
    """The weights (1).

    Parameters
    ----------
    memory : int
        Rows after which a user's weight has fallen to about 1/e.
    retention : int, optional
        Rows after which a user contributes nothing. It is part of the mechanism: noise is smaller.
    renew : int, optional
        Rows after which a user's weight begins again at 1.
    """

    memory: int = 20
    retention: int | None = None
    renew: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("memory", 2), ("retention", 1), ("renew", 2)):
            value = getattr(self, name)
            if value is None and name != "memory":
                continue
            if type(value) is not int or not least <= value <= MOST_MEMORY:
                raise ConfigError(
                    f"{name} is {value!r}, but must be a whole number of rows from {least} to"
                    f" {MOST_MEMORY:,}"
                )
        if self.retention is not None and self.renew is not None:
            raise ConfigError("Pass either retention or renew, not both.")

    @cached_property
    def units(self) -> tuple[int, ...]:
        """W_k of one life, or of one period, without the zeros at its end."""
        found: list[int] = []
        up = ONE
        down = 1
        last = self.retention or self.renew
        while (last is None or len(found) < last) and (weight := up // down) > 0:
            found.append(weight)
            up *= self.memory - 1
            down *= self.memory
        return tuple(found)

    def at(self, age: NDArray[Any]) -> NDArray[np.int64]:
        """Return W of ages; 0 for a negative one, of a user who has not entered."""
        table = np.array([*self.units, 0], np.int64)
        age = np.asarray(age, np.int64)
        within = age if self.renew is None else age % self.renew
        found: NDArray[np.int64] = table[np.clip(within, 0, len(self.units))]
        return np.where(age < 0, 0, found)

    @cached_property
    def total(self) -> Fraction:
        """Δ² of one life, or of one period."""
        return Fraction(sum(w * w for w in self.units), ONE * ONE)

    def multipliers(self, lifetime: float, shares: Iterable[float]) -> list[float]:
        """Return the noise multipliers of the releases of a row.

        Parameters
        ----------
        lifetime : float
            1/μ: the noise multiplier of one training with all of the budget.
        shares : of the row; together at most 1
        """
        delta = math.sqrt(self.total)
        return [MARGIN * delta * lifetime / math.sqrt(share) for share in shares]

    def add_costs(self, rows: Sequence[tuple[int, Sequence[float]]]) -> Fraction:
        """Return the μ² that these rows cost the user who entered at the worst time, exactly.

        With renewal, in the worst `renew` consecutive rows.

        Parameters
        ----------
        rows : of (number of the row, noise multipliers of all its releases)
        """
        cost = [(p, sum((Fraction(m) ** -2 for m in some), Fraction())) for p, some in rows]
        worst = Fraction()
        # rows mostly have the same multipliers: each sum of squares is multiplied once
        for entry in {p for p, _ in cost}:
            squares: dict[Fraction, int] = {}
            for p, each in cost:
                age = p - entry
                if 0 <= age < len(self.units):
                    squares[each] = squares.get(each, 0) + self.units[age] ** 2
            worst = max(worst, sum((c * n for c, n in squares.items()), Fraction()))
        return worst / (ONE * ONE)
