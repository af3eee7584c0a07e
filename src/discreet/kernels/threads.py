"""The one place that decides how many threads work, and the one loop that uses them.

Compiled kernels here are single-threaded functions over a range of rows that let go of the
interpreter lock; `run` hands ranges to a few threads, so work is balanced as it goes, an interrupt
is handled between two ranges, and BLAS never starts threads of its own underneath.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache
from itertools import pairwise
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ConfigError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

# seconds that an interrupt waits for what has begun: it writes to arrays that are the caller's
PATIENCE = 10.0
# rows; the eigenvectors of larger ones take more than a tenth of a second on one thread
SMALL_MATRIX = 600

_limit: int | None = None
# whether this thread is one of several that share cores
_alone: ContextVar[bool] = ContextVar("alone", default=False)
_lock = Lock()
_callers = 0
_limiter: Any = None  # what sets BLAS free


def available_cores() -> int:
    """Cores this process may use (its affinity mask, not the machine's size)."""
    if hasattr(os, "sched_getaffinity"):
        # A container or a batch system often allows fewer cores than the machine has.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Threads that kernels use: `set_threads`, else ``DISCREET_THREADS``, else every core
    available.
    """
    # A kernel inside a worker that already has its own core must not start threads.
    if _alone.get():
        return 1
    if _limit is not None:
        return _limit
    setting = os.environ.get("DISCREET_THREADS", "").strip()
    if not setting:
        return available_cores()
    if not setting.isdigit() or int(setting) < 1:
        raise ConfigError(
            f"DISCREET_THREADS is {setting!r}, but must be a whole number of at least 1"
        )
    return int(setting)


def set_threads(n: int | None) -> None:
    """Use `n` threads from now on; ``None`` returns to the default."""
    global _limit
    if n is not None and n < 1:
        raise ConfigError(f"threads is {n}, but must be at least 1")
    _limit = n


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict kernels to the calling thread: for engines that give every core work of its own."""
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Find numpy's BLAS; the search takes milliseconds, so that is done
    once.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def run(work: Callable[[int, int], object], cuts: Sequence[int] | np.ndarray) -> None:
    """Call ``work(start, stop)`` for each pair of neighbors in `cuts`, on all threads.

    The first exception stops what has not begun and is raised here; so does an interrupt. Where
    there are several threads, this one only waits: an interrupt in the midst of compiling would
    leave the compiler's lock shut for all.
    """
    # More jobs than threads: a thread that finishes early takes the next one.
    jobs = deque((int(a), int(b)) for a, b in pairwise(cuts) if b > a)
    errors: list[BaseException] = []

    def drain() -> None:
        try:
            # After an error elsewhere no new job begins; running ones write to the caller's
            # arrays.
            while (job := _next(jobs)) is not None and not errors:
                work(*job)
        # Also KeyboardInterrupt: it has to reach the caller, not end a worker thread silently.
        except BaseException as error:
            errors.append(error)

    others: list[Thread] = []
    with one_blas_thread():
        try:
            for _ in range(n if (n := min(thread_count(), len(jobs))) > 1 else 0):
                # errstate and the like are those of the caller
                others.append(Thread(target=copy_context().run, args=(drain,), daemon=True))
                others[-1].start()
        except BaseException as error:
            errors.append(error)
        # A single job runs here: starting a thread takes longer than a short kernel.
        if not others:
            drain()
        _wait(others, errors)
    if errors:
        raise errors[0]


def _wait(others: list[Thread], errors: list[BaseException]) -> None:
    """Wait until all have ended; after an interrupt, for a bounded time."""
    end = math.inf
    while any(thread.is_alive() for thread in others) and time.monotonic() < end:
        try:
            for thread in others:
                if thread.is_alive():
                    # With a timeout after an interrupt, so that the deadline is checked.
                    thread.join(None if end == math.inf else 0.1)
        except KeyboardInterrupt as error:
            errors.append(error)
            end = min(end, time.monotonic() + PATIENCE)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread; of several callers at once, the first limits it and the last
    sets it free.

    Also for factorizations of small matrices: LAPACK waits for the other threads at every
    column, which takes ten times as long as its work where these have other work to do.
    """
    global _callers, _limiter
    with _lock:
        if not _callers:
            # Threads of BLAS underneath ours would be cores squared threads.
            _limiter = _libraries().limit(limits=1, user_api="blas")
            _limiter.__enter__()
        _callers += 1
    try:
        yield
    finally:
        with _lock:
            _callers -= 1
            if not _callers:
                # The last caller restores the limit: a first one that ends early must not free
                # BLAS for others.
                _limiter.__exit__(None, None, None)


def blas_threads_for(n: int) -> AbstractContextManager[None]:
    """Keep BLAS to one thread while matrices of up to `SMALL_MATRIX` rows are decomposed.

    On a busy machine, two threads take up to a hundred times as long for them.
    """
    return one_blas_thread() if n <= SMALL_MATRIX else nullcontext()


def _after_fork() -> None:
    """Reset the state of a child, which has no threads: a lock that one held would stay
    shut.
    """
    global _lock, _callers
    _lock = Lock()
    _callers = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _next(jobs: deque[tuple[int, int]]) -> tuple[int, int] | None:
    with suppress(IndexError):  # another thread may take the last one at any time
        return jobs.popleft()
    return None


def even_cuts(n: int, step: int = 1, pieces: int = 0) -> np.ndarray:
    """Cut ``range(n)`` into about `pieces` ranges whose borders are multiples of `step`."""
    # Eight pieces per thread: an uneven machine wastes at most an eighth of a thread's time.
    pieces = pieces or 8 * thread_count()
    width = max(step, ((n + pieces - 1) // pieces + step - 1) // step * step)
    return np.append(np.arange(0, n, width), n)


def cost_cuts(cost: np.ndarray, step: int = 1, pieces: int = 0) -> np.ndarray:
    """Cut ``range(len(cost))`` into ranges of about equal summed cost whose borders are
    multiples of `step`.
    """
    n = len(cost)
    # More than in `even_cuts`, because one row may hold most of the cost of its piece.
    pieces = pieces or 16 * thread_count()
    total = np.concatenate([[0.0], np.cumsum(cost, dtype=np.float64)])
    inner = np.searchsorted(total, total[-1] * np.arange(1, pieces) / pieces) // step * step
    # A row that costs more than a piece makes cuts coincide; unique drops the empty pieces.
    return np.unique(np.concatenate([[0], inner, [n]]).clip(0, n))


@contextmanager
def blas_threads() -> Iterator[None]:
    """Let BLAS use as many threads as the kernels may."""
    with _libraries().limit(limits=thread_count(), user_api="blas"):
        yield
