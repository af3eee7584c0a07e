"""The one place that limits threads."""

import _thread
import threading
import time

import numpy as np
import pytest

from discreet.errors import ConfigError
from discreet.kernels.threads import cost_cuts, even_cuts, run, set_threads, thread_count


def test_ranges_cover_everything_once():
    for n in (0, 1, 7, 100, 1001):
        for step in (1, 8):
            for cuts in (even_cuts(n, step), cost_cuts(np.arange(n) + 1.0, step)):
                done = np.zeros(n, int)
                run(lambda a, b, done=done: done.__setitem__(slice(a, b), done[a:b] + 1), cuts)
                assert (done == 1).all()
                assert all(c % step == 0 for c in cuts[:-1])


def test_an_error_in_one_range_reaches_the_caller_and_stops_the_rest():
    calls = []

    def work(start, stop):
        calls.append(start)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run(work, range(1001))
    assert len(calls) < 1000


def test_limits(monkeypatch):
    monkeypatch.setenv("DISCREET_THREADS", "3")
    assert thread_count() == 3
    set_threads(1)
    try:
        assert thread_count() == 1
        names = set()
        run(lambda a, b: names.add(threading.current_thread().name), range(9))
        assert names == {threading.current_thread().name}
    finally:
        set_threads(None)
    monkeypatch.setenv("DISCREET_THREADS", "many")
    with pytest.raises(ConfigError, match="DISCREET_THREADS"):
        thread_count()
    with pytest.raises(ConfigError, match="at least 1"):
        set_threads(0)


def test_callers_at_once_leave_blas_as_it_was():
    from threadpoolctl import threadpool_info

    def blas():
        return [
            library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
        ]

    before = blas()
    threads = [
        threading.Thread(target=run, args=(lambda a, b: np.ones(1000).sum(), range(200)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas() == before


def test_a_thread_that_cannot_start_stops_everything(monkeypatch):
    done = []

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    set_threads(2)
    try:
        with pytest.raises(RuntimeError, match="start"):
            run(lambda a, b: done.append(a), range(50))
    finally:
        set_threads(None)
    assert not done


def test_an_interrupt_waits_for_what_has_begun_but_not_for_ever(monkeypatch):
    monkeypatch.setattr("discreet.kernels.threads.PATIENCE", 0.3)
    stuck, ended = threading.Event(), []

    def work(start, stop):
        if start == 0:
            _thread.interrupt_main()
            time.sleep(0.1)
            ended.append(start)
        else:
            stuck.wait(60)

    set_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(work, range(3))
    finally:
        set_threads(None)
        stuck.set()
    assert ended == [0]


def test_work_is_done_under_the_callers_settings():
    set_threads(3)
    try:
        with np.errstate(all="raise"):
            seen = []
            run(lambda a, b: seen.append(np.geterr()["over"]), range(50))
    finally:
        set_threads(None)
    assert set(seen) == {"raise"}
