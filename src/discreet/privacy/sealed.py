"""The key to private data, for ``privacy`` and ``engines`` only (import-linter enforces it).

Python cannot hide data from code that insists on reading it. The key makes every access to private
data explicit, by an import of this file, and rules out access by accident.
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
    """The capability to open private data: ``KEY``, which cannot be copied, pickled or remade."""

    __slots__ = ()

    def __new__(cls) -> Key:
        if "KEY" in globals():
            raise PrivacyError("the key to private data exists once and cannot be made again")
        return super().__new__(cls)

    def __repr__(self) -> str:
        return "<key to private data>"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("the key to private data cannot be copied or stored")


KEY = Key()


def require(key: object) -> None:
    """Raise a `PrivacyError` for anything but the key."""
    if key is not KEY:
        raise PrivacyError("private data can be opened only by Session.release")


class Sealed(Generic[T]):
    """A closed container with a public label; only the key gives access to its content.

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
        """Return the content to the holder of the key."""
        require(key)
        return self._content()

    def __repr__(self) -> str:
        return f"<sealed {self.label}>"

    def refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Raise, because private data have no public length, elements, copy or file."""
        raise PrivacyError(
            f"{self!r} cannot be read, copied, stored or converted. Use Session.release."
        )

    __array__ = __buffer__ = __dlpack__ = __dlpack_device__ = refuse
    __iter__ = __len__ = __getitem__ = __contains__ = __bool__ = refuse
    __float__ = __int__ = __index__ = __complex__ = refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse


#: Modules whose errors contain only public values: parameters and environment settings.
_OUTSPOKEN = ("discreet.privacy.", "discreet.kernels.threads", "discreet.kernels.simd")


def _origin(error: BaseException) -> str:
    """Return the name of the module that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))


def guard(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Suppress warnings and error messages of a function that computes on private data.

    The text of an error may hold private numbers (a MemoryError names the shape of an array, and so
    the number of users). Only its type is reported, and the error itself is neither cause nor
    context of the one that is raised. Errors that this package raises on purpose pass, because they
    contain public values; those of kernels do not, because kernels handle private arrays.

    Parameters
    ----------
    what : str
        Public: name of what is computed.
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
                if isinstance(error, EngineError):  # its text is public by construction
                    raise
                kind = "MemoryError" if is_out_of_memory(error) else type(error).__name__
            raise PrivacyError(f"{what} could not be computed ({kind})")

        call.guarded = True  # type: ignore[attr-defined]
        return call

    return decorate
