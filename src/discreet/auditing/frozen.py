"""Freeze clocks, process ids and seeded generators, on which noise must not depend."""

from __future__ import annotations

import datetime
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import numpy as np

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
# any fixed values: noise that repeats with them follows from a clock, a process id or a seed
_NOW = 1_700_000_000
_PID = 4242
_SEED = 20


class FrozenDatetime(datetime.datetime):
    """A datetime whose current time is constant."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(_NOW, tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.fromtimestamp(_NOW, datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Self:
        return cls.now()


@contextmanager
def freeze() -> Iterator[None]:
    """Freeze clocks, process ids, `random` and numpy's global generator for this thread."""
    constants: dict[Any, Any] = {getattr(time, name): float(_NOW) for name in _CLOCKS}
    constants |= {getattr(time, f"{name}_ns"): _NOW * 10**9 for name in _CLOCKS}
    constants |= {os.getpid: _PID, os.getppid: _PID}
    here = threading.get_ident()
    states = (random.getstate(), np.random.get_state())  # noqa: NPY002
    with ExitStack() as stack:
        for function, value in constants.items():
            frozen = _constant(function, value, here)
            for module, name in _holders(function):
                stack.enter_context(replace_attribute(module, name, frozen))
        for module, name in _holders(datetime.datetime):
            stack.enter_context(replace_attribute(module, name, FrozenDatetime))
        try:
            random.seed(_SEED)
            np.random.seed(_SEED)  # noqa: NPY002
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


@contextmanager
def replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a class or module within a block."""
    own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def _constant(function: Callable[..., Any], value: Any, here: int) -> Callable[..., Any]:
    """Return a function that is constant in this thread and unchanged in any other."""
    return lambda *given: value if threading.get_ident() == here else function(*given)


def _holders(wanted: Any) -> list[tuple[Any, str]]:
    """List where discreet could find it: in its own module, or imported into one of ours."""
    modules = [time, os, datetime]
    modules += [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "discreet"
    ]
    modules = [module for module in modules if module is not sys.modules[__name__]]
    return [
        (module, name)
        for module in modules
        for name, value in list(vars(module).items())
        if value is wanted
    ]
