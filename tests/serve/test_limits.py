"""What hostile clients can have the service hold: headers without end, answers that they do not
read, large bodies.
"""

import asyncio
import contextlib
import json
import threading

import pytest
from served_here import post, read_all, serve_here, status_of, wait_for

from discreet.serve import app, batching, server
from discreet.serve import middleware as gates
from discreet.serve.app import create_app
from discreet.serve.model_registry import ModelRegistry
from support.served_models import ITEMS, fitted

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "lists"
    fitted("DPMF").save(folder)
    return ModelRegistry({"lists": folder})


@pytest.fixture
def here(shelf, monkeypatch):
    with serve_here(create_app(shelf), monkeypatch) as made:
        yield made


# ------------------------------------------------------------------ headers


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (HEAD + b"X-Endless: ", b"a" * 8192),
        (HEAD, b"X-Many: a\r\n" * 700),
        (b"GET /", b"a" * 8192),
        (b"", b"\r\n" * 4096),
        (CHUNKED + b"2;x=", b"a" * 8192),
        (CHUNKED + b"2\r\n{}\r\n0\r\nX-Trailer: ", b"a" * 8192),
    ],
    ids=[
        "one header",
        "many headers",
        "the address",
        "blank lines",
        "a chunk's extension",
        "a trailer",
    ],
)
def test_a_header_without_end_is_cut_off(here, begins, goes_on):
    """The connection ends long before 8 MB are taken, and nothing is held afterwards."""
    taken = 0
    with contextlib.closing(here.connect()) as made, contextlib.suppress(ConnectionError):
        made.sendall(begins)
        for _ in range(1024):
            made.sendall(goes_on)
            taken += 1
    assert taken < 1024, "everything was taken"
    wait_for(lambda: not here.server.server_state.connections)
    assert server.PatientProtocol.header_bytes_in_all == 0
    assert status_of(here.get()) == 200


def test_headers_are_limited_by_size_and_number(here):
    large = HEAD + b"X-Large: " + b"a" * server.LARGEST_HEADER + b"\r\n\r\n"
    fields = b"X-Field: a\r\n" * (server.MOST_HEADERS - 2)
    for sent, status in (
        (HEAD + fields + b"\r\n", 200),
        (HEAD + fields + b"X-Field: a\r\n\r\n", 431),
        (HEAD + b"X-Large: " + b"a" * (server.LARGEST_HEADER // 2) + b"\r\n\r\n", 200),
        (large, 431),
        (b"GET /" + b"a" * server.LARGEST_HEADER + large[len(b"GET /health") :], 431),
    ):
        response = here.send(sent)
        assert status_of(response) == status, (len(sent), response[:80])
        if status == 431:
            assert set(json.loads(response.partition(b"\r\n\r\n")[2])["error"]) == {
                "code",
                "message",
            }


def test_headers_of_all_connections_together_are_limited(here, monkeypatch):
    monkeypatch.setattr(server, "MOST_HEADER_BYTES_IN_ALL", 100_000)
    held = [here.connect() for _ in range(10)]
    try:
        for made in held:
            made.sendall(HEAD + b"X-Half: " + b"a" * 20_000)
        wait_for(lambda: len(here.server.server_state.connections) <= 5)
        wait_for(lambda: server.PatientProtocol.header_bytes_in_all <= 100_000)
        assert status_of(here.get()) == 200
    finally:
        for made in held:
            made.close()


def test_a_header_that_trickles_in_is_cut_off(here, monkeypatch):
    monkeypatch.setattr(server, "READ_SECONDS", 0.3)
    with contextlib.closing(here.connect()) as made:
        made.sendall(HEAD)
        made.settimeout(0.05)
        for _ in range(400):
            with contextlib.suppress(TimeoutError):
                assert made.recv(64) == b""
                return
            with contextlib.suppress(OSError):
                made.sendall(b"a")
    raise AssertionError("the connection was not closed")


def test_requests_that_wait_for_another_are_limited(here):
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert here.send(request * 5 + HEAD + b"\r\n").count(b"HTTP/1.1 200") == 6
    assert here.send(request * 1000).count(b"HTTP/1.1 200") <= server.MOST_PIPELINED + 1


def test_connections_are_limited(here, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    held = [here.connect() for _ in range(3)]
    try:
        wait_for(lambda: len(here.server.server_state.connections) == 3)
        assert here.get() == b""
    finally:
        for made in held:
            made.close()
    wait_for(lambda: not here.server.server_state.connections)
    assert status_of(here.get()) == 200


def test_connections_that_come_at_once_are_accepted_at_once(shelf, monkeypatch):
    """uvloop's server takes one in each round of the loop: of 64 clients, the last would wait
    for 64 rounds.
    """
    accepted = []
    rounds = 0

    class Counted(server.PatientProtocol):
        def connection_made(self, transport):
            super().connection_made(transport)
            accepted.append(rounds)

    async def count_rounds():
        nonlocal rounds
        while len(accepted) < 64:
            rounds += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(server, "PatientProtocol", Counted)
    with serve_here(create_app(shelf), monkeypatch) as here:
        held = [here.connect() for _ in range(2)]
        wait_for(lambda: len(accepted) == 2)
        accepted.clear()
        loop = here.server.servers[0]._loop if hasattr(here.server.servers[0], "_loop") else None
        assert loop is not None, "the server of uvloop accepts"
        blocked = threading.Event()
        loop.call_soon_threadsafe(blocked.wait, 20)
        held += [here.connect() for _ in range(64)]
        asyncio.run_coroutine_threadsafe(count_rounds(), loop)
        blocked.set()
        wait_for(lambda: len(accepted) == 64)
        for made in held:
            made.close()
    assert accepted[-1] - accepted[0] <= 20


# ------------------------------------------------------------------ answers


def largest_batch():
    n = ITEMS
    return {"requests": [{"history": [], "n": n}] * (app.LARGEST_BATCH_ITEMS // n)}


def test_clients_that_do_not_read_hold_little_and_are_dropped(here, monkeypatch):
    """Ten of them with the largest batch, and one with the page: others are answered meanwhile."""
    monkeypatch.setattr(server, "WRITE_SECONDS", 1.0)
    unread = [here.connect() for _ in range(10)]
    try:
        for made in unread:
            made.setsockopt(server.socket.SOL_SOCKET, server.socket.SO_RCVBUF, 4096)
            made.sendall(post("/v1/recommend/batch", largest_batch()))
        wait_for(
            lambda: (
                sum(c.flow.write_paused for c in list(here.server.server_state.connections)) == 10
            )
        )
        slice_bytes = 250 * app.SLICE_ITEMS
        for connection in list(here.server.server_state.connections):
            assert connection.transport.get_write_buffer_size() <= max(
                gates.WRITE_PART, slice_bytes
            )
        assert status_of(here.get()) == 200
        assert status_of(here.send(post("/v1/recommend", {"history": ["i3"]}, close=True))) == 200
        wait_for(lambda: not here.server.server_state.connections)
    finally:
        for made in unread:
            made.close()


def test_a_client_that_reads_slowly_gets_the_whole_batch(here):
    with contextlib.closing(here.connect()) as made:
        made.setsockopt(server.socket.SOL_SOCKET, server.socket.SO_RCVBUF, 1 << 16)
        made.sendall(post("/v1/recommend/batch", largest_batch(), close=True))
        wait_for(
            lambda: any(c.flow.write_paused for c in list(here.server.server_state.connections))
        )
        response = read_all(made)
    assert status_of(response) == 200
    assert response.count(b'"model"') == len(largest_batch()["requests"])
    assert response.endswith(b"0\r\n\r\n")


def test_http_1_0_gets_a_batch_in_one_piece(here):
    sent = post("/v1/recommend/batch", {"requests": [{"history": []}] * 40}).replace(
        b"HTTP/1.1", b"HTTP/1.0", 1
    )
    head, _, body = here.send(sent).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert len(json.loads(body)["answers"]) == 40


def test_an_end_with_a_client_that_does_not_read_is_clean(shelf, monkeypatch, caplog):
    monkeypatch.setattr(server, "DRAIN_SECONDS", 2.0)
    with (
        serve_here(create_app(shelf), monkeypatch) as here,
        contextlib.closing(here.connect()) as made,
    ):
        made.setsockopt(server.socket.SOL_SOCKET, server.socket.SO_RCVBUF, 4096)
        made.sendall(post("/v1/recommend/batch", largest_batch()))
        wait_for(
            lambda: any(c.flow.write_paused for c in list(here.server.server_state.connections))
        )
        here.server.should_exit = True
        wait_for(lambda: not here.server.server_state.connections)
    assert caplog.text == ""


def test_long_work_is_not_done_by_the_event_loop(here, monkeypatch):
    """Batches, long lists and large bodies are answered by another thread than short questions."""
    threads = []

    def watch(module, name):
        original = getattr(module, name)

        def answer(*given):
            threads.append(threading.current_thread().name)
            return original(*given)

        monkeypatch.setattr(module, name, answer)

    watch(app, "answer")
    watch(batching, "best_here")
    here.send(post("/v1/recommend", {"history": []}, close=True))
    loop = threads.pop()
    for path, value in (
        ("/v1/recommend/batch", {"requests": [{"history": []}]}),
        ("/v1/recommend", {"history": [], "n": ITEMS}),
        ("/v1/recommend", {"history": [], "exclude": ["i3"] * 9000}),
    ):
        assert status_of(here.send(post(path, value, close=True))) == 200
        assert threads.pop() != loop


# ------------------------------------------------------------------ bodies


def test_bodies_of_all_requests_together_are_limited(here, monkeypatch):
    """Large ones are refused while others hold what may be held; small ones are answered."""
    monkeypatch.setattr(gates, "MOST_HELD", 200_000)
    head = (
        b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
        b" application/json\r\nContent-Length: 100000"
    )
    held = [here.connect() for _ in range(3)]
    try:
        for made in held:
            made.sendall(head + b"\r\n\r\n" + b" " * 80_000)
        wait_for(lambda: here.app._held >= 160_000)
        assert (
            status_of(here.send(post("/v1/recommend", {"history": [], "exclude": ["i3"] * 10_000})))
            == 503
        )
        assert status_of(here.send(post("/v1/recommend", {"history": []}, close=True))) == 200
    finally:
        for made in held:
            made.close()
    wait_for(lambda: here.app._held == 0)
