"""``discreet bench --only serve``: how fast the service answers, and what it bears.

Speed: questions of twenty items each over one connection per client, against the bare matrix
product u Vᵀ + b and the scorer without HTTP. Clients and service share this machine's cores, so the
service alone would be faster.

What it bears: replaced models, restarts and kills while clients ask, bodies of garbage (every
answer must be 4xx, and nothing of them may be written), slow clients who hold connections, clients
that do not read the answers to the largest batch, and headers without end. A client whose
connection breaks asks again, once, as a balancer would. Only SIGKILL may break one; every answer
must be 200 or a clean 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from discreet.models.als import ALS
from discreet.models.storage import load
from discreet.models.storage.load_scorer import open_model

RANK = 64
HISTORY = 20
MARK = "xq-unheard-of-7c1"  # what must not be written anywhere


def benchmark(quick: bool) -> dict[str, Any]:
    """Speed by number of items and clients, and what the service bears."""
    sizes = (2_000, 20_000) if quick else (20_000, 1_000_000)
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        place = Path(folder)
        speed = [_speed(place, items, quick) for items in sizes]
        alone = _alone(saved(place, sizes[0]))
        bears = {
            "soak": _soak(place, 6 if quick else 120),
            "garbage": _garbage(place, 500 if quick else 10_000),
            "slow": _slow(place, 200 if quick else 2_000),
            "unread": _measure_unread(place, 3.0 if quick else 10.0),
            "headers": _measure_headers(place, 3.0 if quick else 10.0),
            "workers": [_measure_workers(place, count, 2.0 if quick else 6.0) for count in (1, 2)],
        }
    return {"rank": RANK, "history": HISTORY, "speed": speed, "alone": alone, **bears}


# ------------------------------------------------------------------ models and services


def saved(place: Path, items: int, seed: int = 0) -> Path:
    """A folder of a model with random factors: of the size of a real one, and trained in no
    time.
    """
    folder = place / f"model-{items}-{seed}"
    if not folder.exists():
        rng = np.random.default_rng(seed)
        model = ALS(RANK, goal="ranking")
        model.restore(
            {
                "mean": 0.0,
                "spread": 1.0,
                "regularization": 4.0,
                "user_scale": 0.3,
                "unobserved_weight": 0.1,
                "intercept_scale": 0.0,
            }
        )
        V = rng.standard_normal((items, RANK), np.float32) / np.float32(8)
        model.restore_items(
            np.arange(items), V, rng.standard_normal(items).astype(np.float32), None, None
        )
        model.save(folder)
    return folder


class Service:
    """``discreet serve`` as a process of its own, on a socket that outlives it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listening.set_inheritable(True)
        self.port: int = self.listening.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `closed`
        self.start()

    def start(self) -> None:
        fd = self.listening.fileno()
        words = [
            sys.executable,
            "-m",
            "discreet",
            "serve",
            f"m={self.folder}",
            "--fd",
            str(fd),
            "--verbose",
        ]
        words += self.options
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            words, pass_fds=[fd], stdout=self.log, stderr=self.log, env=environment
        )
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1) as made,
            ):
                made.settimeout(5)
                made.sendall(
                    b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                if b" 200 " in made.recv(64):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"the service did not start: {self.written()[-500:]}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def memory(self) -> dict[str, float]:
        """Read the memory of the process in megabytes: now, and the most it had; empty where
        there is no /proc.
        """
        names = {"VmRSS": "now", "VmHWM": "most"}
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return {}
        pairs = (line.split(":") for line in lines)
        return {names[name]: int(value.split()[0]) / 1024 for name, value in pairs if name in names}

    def written(self) -> str:
        """Everything that it wrote so far."""
        self.log.seek(0)
        return self.log.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()
        self.listening.close()
        self.log.close()


@contextlib.contextmanager
def _running(folder: Path, *options: str) -> Iterator[Service]:
    service = Service(folder, *options)
    try:
        yield service
    finally:
        service.close()


# ------------------------------------------------------------------ clients


def request(body: bytes, close: bool = False) -> bytes:
    """A question as it goes over the wire."""
    kind = b"close" if close else b"keep-alive"
    head = (
        b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
        b" application/json\r\nConnection: "
    )
    return head + kind + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


async def answer(reader: asyncio.StreamReader) -> int:
    """The status of the next answer, which is read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    await reader.readexactly(int(length.split(b":")[1]))
    return int(head.split(b" ", 2)[1])


def questions(items: int, n: int = 200) -> list[bytes]:
    """Random histories, ready to be sent."""
    rng = np.random.default_rng(1)
    some = [rng.choice(items, HISTORY, replace=False).tolist() for _ in range(n)]
    return [request(json.dumps({"history": history, "n": 10}).encode()) for history in some]


async def _ask(port: int, sent: list[bytes], clients: int, seconds: float) -> list[float]:
    """Seconds of each answer, with so many clients who ask as soon as they are answered."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def client(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        at = first
        while time.perf_counter() < end:
            begun = time.perf_counter()
            writer.write(sent[at % len(sent)])
            status = await answer(reader)
            took.append(time.perf_counter() - begun)
            if status != 200:
                raise RuntimeError(f"a question was answered with {status}")
            at += 1
        writer.close()

    await asyncio.gather(*(client(7 * number) for number in range(clients)))
    return took


# ------------------------------------------------------------------ speed


def _speed(place: Path, items: int, quick: bool) -> dict[str, Any]:
    folder = saved(place, items)
    seconds = 2.0 if quick else 6.0
    with _running(folder) as service:
        sent = questions(items)
        asyncio.run(_ask(service.port, sent, 2, 0.5))
        by_clients = {}
        for clients in (1, 32):
            begun = time.perf_counter()
            took = asyncio.run(_ask(service.port, sent, clients, seconds))
            spent = time.perf_counter() - begun
            by_clients[str(clients)] = {
                "p50": float(np.percentile(took, 50)),
                "p99": float(np.percentile(took, 99)),
                "per_second": len(took) / spent,
            }
    opened = open_model(folder)
    scorer = opened.scorer
    at = np.arange(HISTORY, dtype=np.int32)
    values = np.ones(HISTORY, np.float32)
    u = np.random.default_rng(2).standard_normal(RANK).astype(np.float32)
    return {
        "items": items,
        "clients": by_clients,
        "product": _median(lambda: scorer.factors @ u + scorer.biases),
        "scorer": _median(lambda: scorer.best(at, values, 10)),
    }


def _alone(folder: Path) -> dict[str, Any]:
    """Without HTTP: `model.recommend`, and ``discreet recommend`` as a process from its start
    to its end.
    """
    model = load(folder)
    history = list(range(HISTORY))
    words = [sys.executable, "-m", "discreet", "recommend", str(folder)]
    words += ["--history", ",".join(map(str, history))]

    def command() -> None:
        subprocess.run(words, check=True, capture_output=True)

    return {
        "items": len(model.item_ids_),
        "recommend": _median(lambda: model.recommend(history, 10)),
        "command": _median(command, 5.0),
    }


def _median(work: Any, seconds: float = 1.0) -> float:
    for _ in range(3):
        work()
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and len(took) < 2_000:
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return float(np.median(took))


# ------------------------------------------------------------------ what it bears


def _soak(place: Path, seconds: float) -> dict[str, Any]:
    """Eight clients, each with a new connection for every question, while models are replaced and
    the service ends.

    Turn by turn: the model is replaced three times, the service ends and starts again; the fourth
    time it is killed.
    """
    folder = place / "soaked"
    shutil.copytree(saved(place, 2_000), folder)
    statuses: Counter[str] = Counter()
    events = {"replaced": 0, "ended": 0, "killed": 0, "broken": 0}
    with _running(folder) as service:
        body = json.dumps({"history": list(range(HISTORY)), "n": 10}).encode()
        end = time.monotonic() + seconds

        async def one() -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            try:
                writer.write(request(body, close=True))
                return await asyncio.wait_for(answer(reader), 60)
            finally:
                writer.close()

        async def client() -> None:
            while time.monotonic() < end:
                try:
                    try:
                        statuses[str(await one())] += 1
                    except (OSError, asyncio.IncompleteReadError):
                        events["broken"] += 1
                        statuses[str(await one())] += 1
                except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                    statuses[type(error).__name__] += 1

        def disturb() -> None:
            turn = 0
            while time.monotonic() < end - 1:
                turn += 1
                if turn % 4:
                    load(saved(place, 2_000, turn % 2)).save(folder, replace=True)
                    events["replaced"] += 1
                    time.sleep(1.2)
                else:
                    kill = turn % 16 == 0
                    service.stop(signal.SIGKILL if kill else signal.SIGTERM)
                    events["killed" if kill else "ended"] += 1
                    service.start()

        async def everything() -> None:
            await asyncio.gather(asyncio.to_thread(disturb), *(client() for _ in range(8)))

        asyncio.run(everything())
    return {"seconds": seconds, "answers": dict(statuses), **events}


def _garbage(place: Path, bodies: int) -> dict[str, Any]:
    """Bodies that are no questions: noise, half of JSON, wrong types, names that no item has."""
    rng = np.random.default_rng(3)
    statuses: Counter[str] = Counter()
    with _running(saved(place, 2_000)) as service:

        async def send() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            for at in range(bodies):
                noise = bytes(rng.integers(0, 256, int(rng.integers(1, 400)), dtype=np.uint8))
                kinds = (
                    noise,
                    b'{"history": {"' + MARK.encode() + b'": ' + noise,
                    json.dumps({"history": [MARK] * int(rng.integers(1, 50))}).encode(),
                    json.dumps({"history": [], "n": MARK}).encode(),
                    b"[" * int(rng.integers(1, 5_000)),
                    json.dumps({MARK: MARK}).encode(),
                )
                writer.write(request(kinds[at % len(kinds)]))
                statuses[str(await answer(reader))] += 1
            writer.close()

        asyncio.run(send())
        service.stop()
        return {"bodies": bodies, "answers": dict(statuses), "written": MARK in service.written()}


def _slow(place: Path, clients: int) -> dict[str, Any]:
    """Clients who send half a request and wait, and one who asks as usual meanwhile."""
    _more_files()
    with _running(saved(place, 2_000)) as service:
        sent = questions(2_000)

        async def crowd() -> tuple[list[float], int]:
            held = []
            for at in range(clients):
                _, writer = await asyncio.open_connection("127.0.0.1", service.port)
                half = sent[0].index(b"\r\n\r\n") + (4 if at % 2 else -10)
                writer.write(sent[0][:half])
                held.append(writer)
            took = await _ask(service.port, sent, 1, 2.0)
            for writer in held:
                writer.close()
            return took, len(held)

        took, held = asyncio.run(crowd())
    return {
        "clients": held,
        "answered": len(took),
        "p50": float(np.median(took)),
        "p99": float(np.percentile(took, 99)),
    }


BATCH_ITEMS = 10_000  # of all lists of a batch: the most that the service permits
LONGEST_LIST = 1_000  # items: the same for one list
UNREAD = 10  # clients that ask for the largest batch and do not read
ENDLESS = 4  # clients that send a header without end
ENDLESS_MEGABYTES = 66  # of each at most
OTHERS = 4  # clients that ask as usual meanwhile
CROWD = 64  # clients at once


def _measure_unread(place: Path, seconds: float) -> dict[str, Any]:
    """Measure other clients and memory while some ask for the largest batch, again and again,
    and do not read.
    """
    with _running(saved(place, 20_000)) as service:
        count = BATCH_ITEMS // LONGEST_LIST
        body = json.dumps({"requests": [{"history": [], "n": LONGEST_LIST}] * count}).encode()
        batch = request(body).replace(b"/v1/recommend ", b"/v1/recommend/batch ")
        held: list[socket.socket] = []

        def ask_without_reading() -> None:
            for _ in range(UNREAD):
                made = socket.create_connection(("127.0.0.1", service.port))
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                made.sendall(batch)
                held.append(made)

        found = _measure_others(service, 20_000, seconds, ask_without_reading)
        for made in held:
            made.close()
    return {"clients": UNREAD, "items": BATCH_ITEMS, **found}


def _measure_headers(place: Path, seconds: float) -> dict[str, Any]:
    """Measure other clients and memory while some send headers without end."""
    taken = [0] * ENDLESS

    with _running(saved(place, 20_000)) as service:

        def send(at: int) -> None:
            part = b"a" * (1 << 16)
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", service.port)) as made,
            ):
                made.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
                for _ in range(ENDLESS_MEGABYTES * 16):
                    made.sendall(part)
                    taken[at] += len(part)

        def send_headers() -> None:
            for at in range(ENDLESS):
                threading.Thread(target=send, args=(at,), daemon=True).start()

        found = _measure_others(service, 20_000, seconds, send_headers)
    return {"clients": ENDLESS, "megabytes": sum(taken) / 2**20, **found}


def _measure_others(
    service: Service, items: int, seconds: float, disturb: Callable[[], None]
) -> dict[str, Any]:
    """Measure usual clients, ``/health`` over new connections, and memory: before and while
    something disturbs.
    """
    sent = questions(items)

    async def ask_health(end: float) -> list[float]:
        took: list[float] = []
        while time.perf_counter() < end:
            begun = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            await answer(reader)
            writer.close()
            took.append(time.perf_counter() - begun)
            await asyncio.sleep(0.02)
        return took

    async def measure(disturb: Callable[[], None] | None) -> dict[str, float]:
        if disturb is not None:
            await asyncio.to_thread(disturb)
        end = time.perf_counter() + seconds
        took, health = await asyncio.gather(
            _ask(service.port, sent, OTHERS, seconds), ask_health(end)
        )
        return {
            "p50": float(np.median(took)),
            "p99": float(np.percentile(took, 99)),
            "health": float(np.median(health)),
            "health_p99": float(np.percentile(health, 99)),
            "health_most": max(health),
        }

    asyncio.run(_ask(service.port, sent, OTHERS, 0.5))
    alone = asyncio.run(measure(None)) | {"memory": service.memory().get("now")}
    disturbed = asyncio.run(measure(disturb)) | {"memory": service.memory().get("most")}
    return {"alone": alone, "disturbed": disturbed}


def _measure_workers(place: Path, workers: int, seconds: float) -> dict[str, Any]:
    """Measure many clients at once with some number of worker processes."""
    with _running(saved(place, 20_000), "--workers", str(workers)) as service:
        sent = questions(20_000)
        time.sleep(1.0)  # the first worker answers before the last is there
        asyncio.run(_ask(service.port, sent, CROWD, 1.0))
        took = asyncio.run(_ask(service.port, sent, CROWD, seconds))
    return {
        "workers": workers,
        "clients": CROWD,
        "p50": float(np.median(took)),
        "p99": float(np.percentile(took, 99)),
        "per_second": len(took) / seconds,
    }


def _more_files() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ------------------------------------------------------------------ in words


def show(found: dict[str, Any]) -> list[str]:
    """The results as Markdown."""
    lines = [
        "## The service",
        "",
        (
            f"Histories of {found['history']} items, rank {found['rank']}, lists of ten; clients"
            " run on the same cores."
        ),
        "",
        (
            "| items | clients | p50 | p99 | answers a second | the scorer alone | bare product u"
            " Vᵀ + b |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["speed"]:
        for clients, seen in row["clients"].items():
            lines.append(
                f"| {row['items']:,} | {clients} | {_ms(seen['p50'])} | {_ms(seen['p99'])} "
                f"| {seen['per_second']:,.0f} | {_ms(row['scorer'])} | {_ms(row['product'])} |"
            )
    alone = found["alone"]
    soak = found["soak"]
    garbage = found["garbage"]
    slow = found["slow"]
    answers = ", ".join(
        f"{count:,} × {status}" for status, count in sorted(soak["answers"].items())
    )
    refused = ", ".join(
        f"{count:,} × {status}" for status, count in sorted(garbage["answers"].items())
    )
    lines += [
        "",
        (
            f"- Without HTTP, {alone['items']:,} items: `model.recommend` {_ms(alone['recommend'])}"
            f" (goal: 0.4 ms), `discreet recommend` from start to end {_ms(alone['command'])}"
            " (goal: 300 ms)."
        ),
        (
            f"- Eight clients for {soak['seconds']:g} s while the model was replaced"
            f" {soak['replaced']} times and the service ended and started again {soak['ended']}"
            f" times: {answers}. It was killed (SIGKILL) {soak['killed']} times in addition, which"
            f" broke {soak['broken']} connections; asked again, these were answered as well."
        ),
        (
            f"- {garbage['bodies']:,} bodies of garbage: {refused}; anything of them written: "
            f"{'yes' if garbage['written'] else 'no'}."
        ),
        (
            f"- With {slow['clients']:,} clients who send half a request and wait:"
            f" {slow['answered']:,} answers in two seconds to one client, p50 {_ms(slow['p50'])},"
            f" p99 {_ms(slow['p99'])}."
        ),
        "",
        (
            f"Hostile clients, and what {OTHERS} others and `/health` (over new connections) see of"
            " them; 20,000 items."
        ),
        "",
        "| | p50 | p99 | `/health` p50 | p99 | longest | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    unread = found["unread"]
    headers = found["headers"]
    for name, seen in (
        ("nothing else", unread["alone"]),
        (
            f"{unread['clients']} batches of {unread['items']:,} items that are not read",
            unread["disturbed"],
        ),
        ("nothing else", headers["alone"]),
        (
            f"{headers['clients']} headers without end ({headers['megabytes']:.1f} MB were sent)",
            headers["disturbed"],
        ),
    ):
        times = (_ms(seen[key]) for key in ("p50", "p99", "health", "health_p99", "health_most"))
        memory = "" if seen["memory"] is None else f"{seen['memory']:,.0f} MB"
        lines.append(f"| {name} | {' | '.join(times)} | {memory} |")
    lines += ["", "| workers | clients | p50 | p99 | answers a second |", "|---|---|---|---|---|"]
    for seen in found["workers"]:
        lines.append(
            f"| {seen['workers']} | {seen['clients']} | {_ms(seen['p50'])} | {_ms(seen['p99'])} "
            f"| {seen['per_second']:,.0f} |"
        )
    lines += ["", f"Goal for {CROWD} clients: p99 of at most 60 ms with one of these."]
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"
