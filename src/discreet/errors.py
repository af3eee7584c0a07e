"""Every error that discreet raises on purpose.

Each message states what is wrong and what to do; the command line prints it and exits with code 2.
Errors raised from private data name the problem, never a user or a value.
"""

from __future__ import annotations

import errno
import functools
import typing
from collections import abc

WorkerTask = abc.Callable[[abc.Iterable[typing.Any]], abc.Iterator[typing.Any]]

WORKER_MARK = "discreet-worker:"  # precedes the type of a worker's error in the driver's log
LONGEST_MESSAGE = 800  # characters: two sentences with two long paths fit, a pasted file does not
_LONGEST_END = 300  # of these, at the end, where a message gives its advice
# messages of the library loader, the system, threads and C++ when memory runs out
_OUT_OF_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "can't start new thread",
    "bad_alloc",
    "out of memory",
)


def shorten(message: str) -> str:
    """Cut the middle out of a message that quotes a long value; beginning and advice stay."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    mark = " … "
    return message[: LONGEST_MESSAGE - _LONGEST_END - len(mark)] + mark + message[-_LONGEST_END:]


def is_out_of_memory(error: BaseException) -> bool:
    """Check whether an error, or any of its causes, means that memory ran out."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, MemoryError):  # also numpy's and arrow's
            return True
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            return True
        if isinstance(cause, OSError | ImportError | RuntimeError) and any(
            text in str(cause).lower() for text in _OUT_OF_MEMORY
        ):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def type_name(value: object) -> str:
    """Return the type of a value with its article, such as "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


class DiscreetError(Exception):
    """Base of all errors raised on purpose; no message is longer than `LONGEST_MESSAGE`."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(shorten(arg) if isinstance(arg, str) else arg for arg in args))


class DataError(DiscreetError, ValueError):
    """The ratings, or a file that should hold them, cannot be used as they are."""


class EmptyFile(DataError):
    """A file of ratings or items has no content."""


class NoColumn(DataError):
    """A file or frame has no column of the name, or at the position, that the caller gave."""


class ConfigError(DiscreetError, ValueError):
    """A parameter or option has a value that is not allowed."""


class NotInstalled(ConfigError):
    """An optional dependency is needed and not installed."""


class NotFittedError(DiscreetError, RuntimeError):
    """The model has not been fitted yet."""


class PrivacyError(DiscreetError):
    """Private data would leave, or has left, without being charged to the budget."""


class BudgetExceeded(PrivacyError):
    """The requested releases cost more than the budget allows."""


class DamagedStore(PrivacyError):
    """A budget store was damaged, changed or rolled back, so its balances are not reliable."""


class PlanMismatch(PrivacyError):
    """A release was not in the plan, came once too often, or had another shape."""


class EngineError(DiscreetError):
    """An engine lost a block or a worker, or its machines compute different bits."""


class WorkerProblem(DiscreetError):
    """A known problem of the data on a worker, by a name that reveals nothing about users."""


class WorkerError(DiscreetError):
    """The part of a worker's error that the driver and the logs may contain: its type."""


def hide_worker_errors(task: WorkerTask) -> WorkerTask:
    """Let only the type of an error leave a worker: its text may hold a rating or an id."""

    @functools.wraps(task)
    def run(batches: abc.Iterable[typing.Any]) -> abc.Iterator[typing.Any]:
        import numpy as np

        kind = ""
        try:
            with np.errstate(all="ignore"):
                yield from task(batches)
        except WorkerError:  # from a task nested in this one
            raise
        except WorkerProblem as error:
            kind = str(error)
        except Exception as error:
            kind = type(error).__name__
        if kind:  # outside the handler, so that the original error is not chained
            raise WorkerError(WORKER_MARK + kind)

    return run
