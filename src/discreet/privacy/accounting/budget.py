"""The promise as a value: how much may be learned about one person, and what "one person" means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from discreet.errors import ConfigError

Neighboring = Literal["add-remove", "replace-one"]
Norm = Literal["l1", "l2", "inf"]

RELATIONS: tuple[str, ...] = get_args(Neighboring)

#: The default of δ, everywhere: well below one over the number of users of almost any data set.
DEFAULT_DELTA = 1e-6
#: Above the first, δ has to be allowed in words; below the second, but for 0, no price is computed.
LARGE_DELTA = 1e-3
SMALLEST_DELTA = 1e-15
#: Above this ε, a promise is called weak wherever it is shown.
WEAK_EPSILON = 20.0


@dataclass(frozen=True)
class Budget:
    """User-level (ε, δ) under a neighboring relation.

    Parameters
    ----------
    epsilon : float
        Positive and finite: the bound on the privacy loss. Smaller is more private.
    delta : float, default 1e-6
        The probability with which that bound may fail: from 1e-15 to 1e-3, and well below one over
        the number of users. Zero asks for pure ε, which Gaussian noise cannot give.
    neighboring : {"add-remove", "replace-one"}
        Two data sets are neighbors when one user, with all its ratings, is added or removed
        (default), or replaced.
    allow_large_delta : bool
        Accept a delta above 1e-3. Ledger and statement say so.
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
                f"epsilon={self.epsilon!r}: a budget needs a positive finite number, such as 1.0; "
                "for training without privacy use the class ALS"
            )
        if self.epsilon > 1e9:
            raise ConfigError(
                f"epsilon={self.epsilon!r}: that promises nothing, and is beyond what can be priced"
            )
        if not 0.0 <= self.delta < 1.0:
            raise ConfigError(
                f"delta={self.delta!r}: it is a probability of failure, at least 0 and well below"
                " 1, such as 1e-6"
            )
        if 0.0 < self.delta < SMALLEST_DELTA:
            raise ConfigError(
                f"delta={self.delta!r}: it must be at least {SMALLEST_DELTA:g}, because prices and"
                " noise are exact to somewhat less than that; 1e-9 is safe for any number of"
                " people, and 0 asks for pure ε"
            )
        if not isinstance(self.allow_large_delta, bool):
            raise ConfigError(f"allow_large_delta={self.allow_large_delta!r}: it is True or False")
        if self.delta > LARGE_DELTA and not self.allow_large_delta:
            raise ConfigError(
                f"delta={self.delta!r}: with that probability the promise may fail altogether, and"
                f" above {LARGE_DELTA:g} it is hardly one; take 1e-6 or one over many times the"
                " number of people, or say allow_large_delta=True (--allow-large-delta)"
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
        """Ready for JSON; what was allowed is there where it was needed."""
        allowed = {"allow_large_delta": True} if self.allow_large_delta else {}
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring,
        } | allowed


def require_number(name: str, value: Any) -> None:
    """Refuse what is no real number, in words; booleans and NaN are no numbers here."""
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or _is_numpy_real(value)):
        raise ConfigError(f"{name}={value!r}: a number is needed, not {type(value).__name__}")
    if math.isnan(value):
        raise ConfigError(f"{name} is NaN: a number is needed")


def _is_numpy_real(value: Any) -> bool:
    return hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 and value.dtype.kind in "iuf"
