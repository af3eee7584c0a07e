"""Several workers on one socket: they share the work, come back, add up their counts, and end
together.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from served_here import wait_for

from discreet.errors import DiscreetError
from discreet.serve import workers
from discreet.serve.app import Settings
from discreet.serve.metrics import Metrics, SharedCounters
from support.served_models import fitted

TOKEN = "open sesame, please"


class Supervised:
    """``discreet serve --workers 2`` as a process."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "discreet",
                "serve",
                f"films={folder}",
                "--port",
                "0",
                "--workers",
                "2",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "DISCREET_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"},
        )
        lines = iter(self.process.stdout.readline, "")
        said = next(line for line in lines if line.startswith("Listening"))
        self.port = int(re.search(r":(\d+) ", said)[1])

    def workers(self):
        """Process ids of the workers that are there."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                after_name = path.read_text().rpartition(")")[2].split()
                if after_name[1] == str(self.process.pid) and after_name[0] != "Z":
                    found.append(int(path.parent.name))
        return found

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name):
        text = self.ask("/metrics")[1]
        return sum(
            int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
        )


@pytest.fixture
def folder(tmp_path):
    fitted("DPMF").save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def supervised(folder):
    made = Supervised(folder)
    yield made
    made.process.kill()
    made.process.wait()
    made.process.stdout.close()


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes in /proc")
def test_killed_replaced_and_ended(supervised, folder):
    first = supervised.workers()
    assert len(first) == 2
    for pid in first:
        assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    body = json.dumps({"history": ["i3"]})
    for _ in range(20):
        assert supervised.ask("/v1/recommend", body)[0] == 200
    asked = 'discreet_requests_total{route="/v1/recommend",status="200"}'
    wait_for(lambda: supervised.metric(asked) == 20)
    assert supervised.metric("discreet_workers") == 2

    time.sleep(1.2)  # counts are written once a second
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: len(set(supervised.workers()) - set(first)) == 1)
    for _ in range(20):
        assert supervised.ask("/v1/recommend", body)[0] == 200
    wait_for(lambda: supervised.metric(asked) == 40)

    fitted("DPMF, ratings").save(folder, replace=True)
    wait_for(lambda: supervised.metric('discreet_reloads_total{result="ok"}') >= 1)
    assert supervised.ask("/v1/recommend", body)[0] == 200

    last = supervised.workers()
    supervised.process.send_signal(signal.SIGTERM)
    assert "Traceback" not in supervised.process.stdout.read()
    assert supervised.process.wait(30) == 0
    assert not any(map(is_there, last))


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes in /proc")
def test_workers_end_when_the_supervisor_is_killed(supervised):
    there = supervised.workers()
    supervised.process.kill()
    wait_for(lambda: not any(map(is_there, there)))


def test_workers_that_keep_dying_end_the_service(monkeypatch, caplog):
    """The number of restarts within a minute is bounded."""
    started = []

    class Dead:
        returncode = 7
        stdin = None
        stdout = SimpleNamespace(readline=lambda: '{"serving": []}\n', close=lambda: None)

        def poll(self):
            return self.returncode

        def wait(self, timeout=None):
            return self.returncode

    def start(self, number, counts):
        started.append(number)
        return Dead()

    monkeypatch.setattr(workers.Supervisor, "_start", start)
    supervisor = workers.Supervisor(None, {}, Settings(), 2, lambda models: None)
    with pytest.raises(DiscreetError, match="exit code was 7"):
        supervisor.run()
    assert len(started) == 2 + workers.MOST_RESTARTS


def test_counts_add_up_and_outlive_a_worker(tmp_path):
    shelf = SimpleNamespace(reloads=1, failed_reloads=0, names=[])
    pair = [SharedCounters(tmp_path, number, 2) for number in range(2)]
    for counters in pair:
        counters.add("/health", 200, 0.002)
        counters.under_way = 3
        counters.save(shelf)
    again = SharedCounters(tmp_path, 0, 2)  # takes the place of the first
    again.add("/health", 200, 0.002)
    fresh = SimpleNamespace(reloads=0, failed_reloads=0, names=[])
    text = again.text(fresh)
    assert 'discreet_requests_total{route="/health",status="200"} 3' in text
    assert 'discreet_request_seconds_bucket{route="/health",le="0.0025"} 3' in text
    assert "discreet_requests_under_way 3" in text  # of the other one alone
    assert 'discreet_reloads_total{result="ok"} 2' in text
    assert "discreet_workers 2" in text
    assert "discreet_workers 1" in Metrics().text(fresh)
