"""The service as a process: it starts, takes over replaced models, bears slow clients, and ends
in peace.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from discreet.cli import main
from discreet.cli.serve import _address
from support.served_models import ITEMS, fitted

SECRET = "xq-unheard-of-7c1"


class Running:
    """A service on an address of its own, which outlives the process."""

    def __init__(self, *words, environment=None):
        self.words = [str(word) for word in words]
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listening.set_inheritable(True)
        self.port = self.listening.getsockname()[1]
        self.environment = {**os.environ, **(environment or {})}
        self.start()

    def start(self):
        fd = self.listening.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "discreet", "serve", *self.words, "--fd", str(fd), "--verbose"],
            pass_fds=[fd],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        for line in self.process.stdout:
            if line.startswith("Listening"):
                return
        raise AssertionError(f"it ended with {self.process.wait()}")

    def stop(self, number=signal.SIGTERM):
        """Exit code, and everything that was written."""
        self.process.send_signal(number)
        written = self.process.stdout.read()
        return self.process.wait(30), written

    def ask(self, path="/v1/recommend", body=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            headers = {"Connection": "close", "Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


@pytest.fixture
def folder(tmp_path):
    fitted("DPMF").save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def service(folder):
    started = Running(f"films={folder}", "--max-concurrent", 40)
    yield started
    with contextlib.suppress(OSError):
        started.process.kill()
    started.process.wait()
    started.process.stdout.close()
    started.listening.close()


def question(n=5):
    return json.dumps({"history": ["i3"], "n": n})


def test_replaced_ended_and_started_again_no_request_is_lost(service, folder):
    """A reduced form of the soak of ``discreet bench --only serve``: clients ask all the time,
    whatever happens.
    """
    stop = threading.Event()
    answers = []
    problems = []

    def client():
        while not stop.is_set():
            try:
                answers.append(service.ask(body=question())[0])
            except OSError as error:
                problems.append(repr(error))

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()
    try:
        fitted("DPMF, ratings").save(folder, replace=True)
        end = time.monotonic() + 20
        while b'discreet_reloads_total{result="ok"} 1' not in service.ask("/metrics")[1]:
            assert time.monotonic() < end, "the new model was not taken over"
            time.sleep(0.1)
        (folder / "model.json").write_text("{}")  # damaged: the model that is served stays
        while b'discreet_reloads_total{result="failed"} 1' not in service.ask("/metrics")[1]:
            assert time.monotonic() < end + 20, "the damage was not noticed"
            time.sleep(0.1)
        assert service.ask(body=question())[0] == 200
        fitted("DPMF").save(folder.with_name("other"))
        code, written = service.stop()
        assert code == 0
        assert SECRET not in written
        service.words = [f"films={folder.with_name('other')}"]
        service.start()
        for _ in range(20):
            assert service.ask(body=question())[0] == 200
    finally:
        stop.set()
        for thread in clients:
            thread.join()
    assert problems == []
    assert set(answers) <= {200, 503}
    assert answers.count(200) > 20


def test_killed_it_leaves_no_trace_and_comes_back(service, folder):
    """SIGKILL takes the answers under way with it, and nothing else: the address stays, and so
    does the folder.
    """
    before = {path: path.read_bytes() for path in folder.iterdir()}
    beside = set(folder.parent.iterdir())
    answered = service.ask(body=question())
    code, written = service.stop(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "Traceback" not in written
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert set(folder.parent.iterdir()) == beside
    waiting = socket.create_connection(("127.0.0.1", service.port))  # while nobody listens
    with contextlib.closing(waiting):
        waiting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        service.start()
        waiting.settimeout(30)
        assert b" 200 " in waiting.recv(64)
    assert service.ask(body=question()) == answered


def test_slow_clients_do_not_stop_it(service):
    """A reduced form of two thousand of them: heads and bodies that never end."""
    slow = []
    try:
        for at in range(150):
            made = socket.create_connection(("127.0.0.1", service.port))
            head = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\n"
            made.sendall(head if at % 2 else head + b'Content-Length: 100\r\n\r\n{"history"')
            slow.append(made)
        for _ in range(10):
            assert service.ask(body=question(), timeout=10)[0] == 200
    finally:
        for made in slow:
            made.close()


SLOW_START = """
import sys, time
from discreet import _numba
from discreet.cli import main
from discreet.cli.serve import _address
from discreet.serve import model_registry

moment, folder = sys.argv[1:]
if moment == "loading":
    def wait(name, folder):
        print("now", flush=True)
        time.sleep(60)
    model_registry._open = wait
if moment == "starting":
    from discreet.serve import server
    def wait(gate, listening):
        print("now", flush=True)
        time.sleep(60)
    server.run = wait
if moment == "compiling":
    _numba._reports.append(lambda done, name: print("now", flush=True))
main(["serve", folder, "--port", "0"])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["loading", "compiling", "starting"])
def test_told_to_end_while_it_starts_it_ends_with_code_0(moment, number, folder, tmp_path):
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path / "compiled")} if moment == "compiling" else {}
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_START, moment, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **fresh},
    )
    with process:
        while process.stdout.readline() != "now\n":
            assert process.poll() is None
        process.send_signal(number)
        written = process.stdout.read()
        assert process.wait(30) == 0
    assert set(written.splitlines()) <= {"now"}


def test_nothing_of_a_request_is_written(service):
    for body in (
        json.dumps({"history": [SECRET]}),
        f'{{"{SECRET}',
        json.dumps({"history": {SECRET: 5}}),
    ):
        assert service.ask(body=body)[0] == 422
    service.ask(f"/v1/similar/{SECRET}")
    service.ask(f"/{SECRET}?{SECRET}={SECRET}")
    code, written = service.stop(signal.SIGINT)
    assert code == 0
    assert SECRET not in written


def test_the_page_is_served(service):
    status, body = service.ask("/")
    assert status == 200
    assert b"connect-src 'none'" in body
    assert json.loads(service.ask("/health")[1])["models"] == {"films": {"items": ITEMS}}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "does not exist"),
        (["a={0}", "a={0}"], "two models are called 'a'"),
        (["{0}", "--token", "short"], "too short"),
        (["{0}", "--host", "256.0.0.1"], "cannot listen on"),
        (["{0}", "--allow-host", "http://shop.example"], "is not a host name"),
        (["nowhere", "--workers", "2"], "does not exist"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(words, sentence, folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", *(word.format(folder) for word in words)])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://localhost:8000"),
        ("::", "http://localhost:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_the_address_shown_can_be_opened(host, address):
    assert _address(host, 8000) == address
