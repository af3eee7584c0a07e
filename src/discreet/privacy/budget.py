"""The promise as a value: how much may be learned about one person, and what "one person" means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from discreet.errors import ConfigError

Neighbouring = Literal["add-remove", "replace-one"]
Norm = Literal["l1", "l2", "inf"]

RELATIONS: tuple[str, ...] = get_args(Neighbouring)


@dataclass(frozen=True)
class Budget:
    """User-level (ε, δ) under a neighbouring relation.

    Parameters
    ----------
    epsilon : float
        Positive and finite: the bound on the privacy loss. Smaller is more private.
    delta : float, default 1e-6
        In [0, 1): the probability with which that bound may fail. Zero asks for pure ε: Gaussian noise cannot give it.
    neighbouring : {"add-remove", "replace-one"}
        Two data sets are neighbours when one user, with all its ratings, is added or removed (default), or replaced.
    """

    epsilon: float
    delta: float = 1e-6
    neighbouring: Neighbouring = "add-remove"

    def __post_init__(self) -> None:
        require_number("epsilon", self.epsilon)
        require_number("delta", self.delta)
        if not 0.0 < self.epsilon < math.inf:
            raise ConfigError(
                f"epsilon={self.epsilon!r}: a budget needs a positive finite number, such as 1.0; "
                "for training without privacy use the class ALS"
            )
        if self.epsilon > 1e9:
            raise ConfigError(f"epsilon={self.epsilon!r}: that promises nothing, and is beyond what can be priced")
        if not 0.0 <= self.delta < 1.0:
            raise ConfigError(
                f"delta={self.delta!r}: it is a probability of failure, at least 0 and well below 1, such as 1e-6"
            )
        if self.neighbouring not in RELATIONS:
            raise ConfigError(f"neighbouring={self.neighbouring!r}: choose one of {', '.join(map(repr, RELATIONS))}")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    def to_dict(self) -> dict[str, Any]:
        """The three fields, ready for JSON."""
        return {"epsilon": self.epsilon, "delta": self.delta, "neighbouring": self.neighbouring}


def require_number(name: str, value: Any) -> None:
    """Refuse what is no real number, in words; booleans and NaN are no numbers here."""
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or _is_numpy_real(value)):
        raise ConfigError(f"{name}={value!r}: a number is needed, not {type(value).__name__}")
    if math.isnan(value):
        raise ConfigError(f"{name} is NaN: a number is needed")


def _is_numpy_real(value: Any) -> bool:
    return hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 and value.dtype.kind in "iuf"
