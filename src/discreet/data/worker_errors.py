"""Errors on the workers of a cluster: their type leaves, and nothing else; their text may hold
a rating or an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import numpy as np

from discreet.errors import DiscreetError

MARK = "discreet-worker:"  # after it, the driver finds the type of an error, and nothing else

Task = Callable[[Iterable[Any]], Iterator[Any]]


class Problem(DiscreetError):
    """Something known that is wrong with the data, by a name that says nothing of anybody."""


class WorkerError(Exception):
    """All that the driver and the logs see of what went wrong on a worker."""


def quiet(task: Task) -> Task:
    """The same task over record batches, whose errors say nothing but their type."""

    @wraps(task)
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        kind = ""
        try:
            with np.errstate(all="ignore"):
                yield from task(batches)
        except WorkerError:  # of a task within this one
            raise
        except Problem as error:
            kind = str(error)
        except Exception as error:
            kind = type(error).__name__
        if kind:  # out here, the error is neither cause nor context of the one that is raised
            raise WorkerError(MARK + kind)

    return run
