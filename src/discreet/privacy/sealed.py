"""The key to private data. Only ``privacy`` and ``engines`` may import this module; import-linter
enforces it.

Python cannot hide anything from code that is determined to look. What the key gives is that every
place which opens private data has to say so by importing this file, and that nothing else can
happen to open them by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

import numpy as np

from discreet.errors import ConfigError, EngineError, PrivacyError, is_out_of_memory

P = ParamSpec("P")
T = TypeVar("T")


class Key:
    """The capability to open private data. There is one, ``KEY``; it cannot be copied, pickled
    or made again.
    """

    __slots__ = ()

    def __new__(cls) -> Key:
        if "KEY" in globals():
            raise PrivacyError("there is one key, and it cannot be made again")
        return super().__new__(cls)

    def __repr__(self) -> str:
        return "<key to private data>"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("the key to private data cannot be copied or stored")


KEY = Key()


def require(key: object) -> None:
    """Refuse anything but the key."""
    if key is not KEY:
        raise PrivacyError(
            "private data are opened only by Session.release; a statistic needs its key"
        )


class Sealed(Generic[T]):
    """A closed container. It shows its public label, gives its content to the key, and refuses
    everything else.

    Parameters
    ----------
    content : object
        What must not leave.
    label : str
        Public: made of shapes and bounds that are known without the data.
    """

    __slots__ = ("_content", "label")

    def __init__(self, content: T, label: str):
        # a closure: neither ``vars`` nor a debugger's repr shows it
        self._content: Callable[[], T] = lambda: content
        self.label = label

    def open(self, key: Key) -> T:
        """The content, for whoever holds the key."""
        require(key)
        return self._content()

    def __repr__(self) -> str:
        return f"<sealed {self.label}>"

    def refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Raise: private data have no length, no elements, no copy and no file."""
        raise PrivacyError(
            f"{self!r} cannot be read, copied, stored or turned into an array: use Session.release"
        )

    __array__ = __buffer__ = __dlpack__ = __dlpack_device__ = refuse
    __iter__ = __len__ = __getitem__ = __contains__ = __bool__ = refuse
    __float__ = __int__ = __index__ = __complex__ = refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse


#: Modules whose errors speak of public values: parameters, and settings of the environment.
_OUTSPOKEN = ("discreet.privacy.", "discreet.kernels.threads", "discreet.kernels.simd")


def _origin(error: BaseException) -> str:
    """The module that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))


def guard(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For every function that computes on private data: it warns of nothing, and fails without
    saying why.

    The text of an error may hold private numbers (a MemoryError names the shape of an array, and so
    how many users there are). Only its type is told, and the error itself is neither cause nor
    context of the one that is raised. What this package itself raises on purpose passes, because it
    speaks of public values; the same kind of error from a kernel does not, for there the arrays are
    private.

    Parameters
    ----------
    what : str
        Public: what was to be computed.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            try:
                with np.errstate(all="ignore"):
                    return function(*arguments, **options)
            except Exception as error:
                if isinstance(error, (ConfigError, PrivacyError)) and _origin(error).startswith(
                    _OUTSPOKEN
                ):
                    raise
                if isinstance(error, EngineError):  # made of public words, whoever raises it
                    raise
                kind = "MemoryError" if is_out_of_memory(error) else type(error).__name__
            raise PrivacyError(f"{what} could not be computed ({kind})")

        call.guarded = True  # type: ignore[attr-defined]
        return call

    return decorate
