"""The privacy budget (ε, δ) and the neighboring relation that it is stated for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from discreet.errors import ConfigError

Neighboring = Literal["add-remove", "replace-one"]
Norm = Literal["l1", "l2", "inf"]

RELATIONS: tuple[str, ...] = get_args(Neighboring)

#: Default δ: well below one over the number of users of almost any data set.
DEFAULT_DELTA = 1e-6
#: Above the first, δ needs `allow_large_delta`. Below the second (except 0), rounding in the
#: accountants and the noise sampler would be comparable to δ itself.
LARGE_DELTA = 1e-3
SMALLEST_DELTA = 1e-15
#: Above this ε, reports call the guarantee weak: e^20 bounds almost nothing.
WEAK_EPSILON = 20.0


@dataclass(frozen=True)
class Budget:
    """User-level (ε, δ) under a neighboring relation.

    Parameters
    ----------
    epsilon : float
        Positive and finite: the bound on the privacy loss. Smaller is more private.
    delta : float, default DEFAULT_DELTA
        What the probability of any set of results may change by beyond the factor e^ε: from 1e-15
        to 1e-3, and well below one over the number of users. Zero asks for pure ε, which Gaussian
        noise cannot give.
    neighboring : {"add-remove", "replace-one"}
        Two data sets are neighbors when one user, with all its ratings, is added or removed
        (default), or replaced.
    allow_large_delta : bool
        Accept a delta above 1e-3. Ledger and statement record it.
    """

    epsilon: float
    delta: float = DEFAULT_DELTA
    neighboring: Neighboring = "add-remove"
    allow_large_delta: bool = False

    def __post_init__(self) -> None:
        require_number("epsilon", self.epsilon)
        require_number("delta", self.delta)
        if not 0.0 < self.epsilon < math.inf:
            raise ConfigError(
                f"epsilon={self.epsilon!r}: a budget needs a positive finite number, such as 1.0."
                " To train without privacy, use the class ALS."
            )
        if self.epsilon > 1e9:
            raise ConfigError(
                f"epsilon={self.epsilon!r} guarantees nothing and is too large to account for."
                " Choose a smaller epsilon, such as 1.0."
            )
        if not 0.0 <= self.delta < 1.0:
            raise ConfigError(
                f"delta={self.delta!r}: a failure probability is at least 0 and well below 1."
                " Choose a value such as 1e-6."
            )
        if 0.0 < self.delta < SMALLEST_DELTA:
            raise ConfigError(
                f"delta={self.delta!r} is below {SMALLEST_DELTA:g}, the precision of accountants"
                " and noise. Choose 1e-9, which is safe for any number of users, or 0 for pure ε."
            )
        if not isinstance(self.allow_large_delta, bool):
            raise ConfigError(f"allow_large_delta={self.allow_large_delta!r} must be True or False")
        if self.delta > LARGE_DELTA and not self.allow_large_delta:
            raise ConfigError(
                f"delta={self.delta!r} is above {LARGE_DELTA:g}: with that probability the"
                " guarantee may fail altogether. Choose 1e-6, or pass allow_large_delta=True."
            )
        if self.neighboring not in RELATIONS:
            raise ConfigError(
                f"neighboring={self.neighboring!r}: choose one of {', '.join(map(repr, RELATIONS))}"
            )
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(
            self, "allow_large_delta", self.allow_large_delta and self.delta > LARGE_DELTA
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; `allow_large_delta` only where it was needed."""
        allowed = {"allow_large_delta": True} if self.allow_large_delta else {}
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring,
        } | allowed


def require_number(name: str, value: Any) -> None:
    """Raise a `ConfigError` unless the value is a real number; booleans and NaN are not."""
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or _is_numpy_real(value)):
        raise ConfigError(f"{name}={value!r}: a number is needed, not {type(value).__name__}")
    if math.isnan(value):
        raise ConfigError(f"{name} is NaN: a number is needed")


def _is_numpy_real(value: Any) -> bool:
    return hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 and value.dtype.kind in "iuf"
