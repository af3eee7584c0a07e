"""Every error that discreet raises on purpose.

The message of each says what was given, what is allowed and what to do; the command line prints it
as one sentence and exits with code 2. Errors raised from private data name the problem, never a
user or a value.
"""

from __future__ import annotations

import errno
import functools
import typing
from collections import abc

WorkerTask = abc.Callable[[abc.Iterable[typing.Any]], abc.Iterator[typing.Any]]

WORKER_MARK = "discreet-worker:"  # before the type of an error on a worker, in the driver's log
LONGEST_MESSAGE = 800  # characters: two sentences with two long paths fit, a pasted file does not
_LONGEST_END = 300  # of these, at the end, where a message says what to do
# what the loader of libraries, the system, threads and C++ say when there is too little memory
_OUT_OF_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "can't start new thread",
    "bad_alloc",
    "out of memory",
)


def shorten(message: str) -> str:
    """Cut the middle out of a message that quotes a long value; its beginning and its advice
    stay.
    """
    if len(message) <= LONGEST_MESSAGE:
        return message
    mark = " … "
    return message[: LONGEST_MESSAGE - _LONGEST_END - len(mark)] + mark + message[-_LONGEST_END:]


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether too little memory is what went wrong, in whatever words the part that failed
    says it.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, MemoryError):  # also numpy's and arrow's
            return True
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            return True
        if isinstance(cause, OSError | ImportError | RuntimeError) and any(
            words in str(cause).lower() for words in _OUT_OF_MEMORY
        ):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


class DiscreetError(Exception):
    """Base of all errors raised on purpose; no message is longer than `LONGEST_MESSAGE`."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(shorten(arg) if isinstance(arg, str) else arg for arg in args))


class DataError(DiscreetError, ValueError):
    """The ratings, or a file that should hold them, cannot be used as they are."""


class ConfigError(DiscreetError, ValueError):
    """A parameter or option has a value that is not allowed."""


class NotInstalled(ConfigError):
    """Something needs an optional dependency that is not there."""


class NotFittedError(DiscreetError, RuntimeError):
    """The model was asked for something that it learns in ``fit``."""


class PrivacyError(DiscreetError):
    """Private data would leave, or has left, without being paid for."""


class BudgetExceeded(PrivacyError):
    """The releases asked for cost more than the budget allows."""


class DamagedStore(PrivacyError):
    """A store of budgets was damaged, changed or rolled back, so that no balance in it can be
    believed.
    """


class PlanMismatch(PrivacyError):
    """A release was not in the plan, came once too often, or had another shape."""


class EngineError(DiscreetError):
    """An engine lost what it needs: a block, a worker, or the agreement of its machines."""


class WorkerProblem(DiscreetError):
    """A known problem of the data on a worker, by a name that is about no user."""


class WorkerError(DiscreetError):
    """All that the driver and the logs see of an error on a worker of a cluster."""


def hide_worker_errors(task: WorkerTask) -> WorkerTask:
    """Let only the type of an error leave a worker: its text may hold a rating or an id."""

    @functools.wraps(task)
    def run(batches: abc.Iterable[typing.Any]) -> abc.Iterator[typing.Any]:
        import numpy as np

        kind = ""
        try:
            with np.errstate(all="ignore"):
                yield from task(batches)
        except WorkerError:  # of a task within this one
            raise
        except WorkerProblem as error:
            kind = str(error)
        except Exception as error:
            kind = type(error).__name__
        if kind:  # out here, the error is neither cause nor context of the one that is raised
            raise WorkerError(WORKER_MARK + kind)

    return run
