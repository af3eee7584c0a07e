"""Calls with parameters that a model does not have are answered with the model's own name and the
nearest parameter.

Models are built in layers (parameters, plan, algorithm), and Python would name the layer that has
the constructor.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def no_parameter(model: str, name: str, allowed: Iterable[str]) -> str:
    """The sentence about a parameter that there is not."""
    known = list(allowed)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"{model} has no parameter {name!r}: " + (
        f"did you mean {near[0]!r}?" if near else f"it has {known}"
    )


def name_by_class(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor whose complaints about its arguments name the class that was called."""
    signature = inspect.signature(init)
    known = [name for name in signature.parameters if name != "self"]

    @functools.wraps(init)
    def check_keywords(self: Any, *args: Any, **given: Any) -> None:
        try:
            signature.bind(self, *args, **given)
        except TypeError as problem:
            model = type(self).__name__
            unknown = [name for name in given if name not in known]
            if unknown:
                raise TypeError(no_parameter(model, unknown[0], known)) from None
            raise TypeError(
                f"{model}({', '.join(known)}): {problem}; give parameters by name"
            ) from None
        init(self, *args, **given)

    return check_keywords
