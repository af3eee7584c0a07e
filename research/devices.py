"""Server and users as processes that send messages: Figure 1 of Chien et al. (2021), for
simulations.

One process is the server. It holds the plan, the ledger and the noise, and never a rating. The
others are full of devices, one for each user, who keep their history and whatever they have
computed from it. Two kinds of messages go down to all devices, and both hold public values only:

    step what every user is to do by itself, such as solving for its vector with the item factors
    that were released sum which statistic is wanted; every device answers with its own
    contribution, already cut and in whole numbers

Answers go up, one from each device, in as few bytes as its contribution needs: the rows that are
not zero. The server adds them, which is exact, adds noise and releases. So what is learned has the
same bits as in one process. The server is trusted, as in the papers: it sees contributions. Secure
aggregation would hide them from it and change no sum.

`traffic` is what was sent, round by round. The size of an answer depends on its user's ratings, so
that it is private: use it for generated users only.
"""

from __future__ import annotations

import itertools
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.engines.local import RatingsSourceMixin
from discreet.errors import ConfigError, EngineError
from discreet.privacy.sealed import guard
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.statistics.bounds import Bounds, check_rows
from discreet.privacy.statistics.sums import Compute
from discreet.privacy.users.item_sampling import user_keys
from discreet.privacy.users.sealed_users import Partitions, Users, sealed_block
from discreet.privacy.users.steps import UserStep

_HEAD = struct.Struct("<qq")  # how many rows are sent, and how many numbers each has
_SIZE = struct.Struct("<q")


@dataclass(frozen=True)
class Round:
    """One sum: what went down to every device since the last one, and what each device sent up,
    in bytes.
    """

    what: str
    down: int
    up: tuple[int, ...]


class Devices(RatingsSourceMixin):
    """People in processes of their own, whom a private model trains on as on `Ratings`.

    Parameters
    ----------
    ratings : Ratings
        Divided among the devices when training starts; the server keeps the public catalog.
    processes : int
        Into how many processes the devices are put. What is released does not depend on it.
    """

    exact_only = True

    def __init__(self, ratings: Ratings, processes: int = 2) -> None:
        if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
            raise ConfigError(
                f"processes is {processes!r}, but must be a whole number of at least 1"
            )
        self._ratings = ratings
        self.processes = processes
        self._server: Server | None = None

    @property
    def engine(self) -> str:
        """Return the ledger's line about where users were."""
        return f"devices: users are simulated devices in {self.processes:,} processes"

    @property
    def traffic(self) -> list[Round]:
        """What was sent so far, one entry for each sum. Private: for generated users only."""
        return [] if self._server is None else list(self._server.rounds)

    @guard("sealed ratings")
    def seal(self, bounds: Bounds, *, seed: int = 0) -> Users:
        self.close()
        ratings = self._ratings
        check_rows(ratings)
        keys = user_keys(ratings.user_ids, seed)
        cuts = [len(keys) * part // self.processes for part in range(self.processes + 1)]
        parts = [self._part(begin, end, keys) for begin, end in itertools.pairwise(cuts)]
        self._server = Server(parts, bounds)
        return Users(OnDevices(self._server, 0), Public(bounds, ratings.n_items))

    def _part(self, begin: int, end: int, keys: NDArray[np.uint64]) -> tuple[NDArray[Any], ...]:
        indptr = self._ratings.indptr[begin : end + 1]
        entries = slice(indptr[0], indptr[-1])
        return (
            indptr - indptr[0],
            self._ratings.indices[entries],
            self._ratings.values[entries],
            keys[begin:end],
        )

    def close(self) -> None:
        """Let the processes end."""
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<devices with ratings of {self.n_items:,} items in {self.processes} processes>"


class OnDevices(Partitions):
    """People on devices, in the state with that number."""

    __slots__ = ("_server", "_state")

    def __init__(self, server: Server, state: int) -> None:
        self._server = server
        self._state = state

    def after(self, step: UserStep, public: Public) -> OnDevices:
        return OnDevices(self._server, self._server.step(self._state, step, public))

    def close(self) -> None:
        self._server.close()

    def adder(self, statistic: Statistic, public: Public) -> Compute:
        known: dict[float, NDArray[np.int64]] = {}

        def compute(grid: float | None, rows: slice) -> NDArray[Any]:
            if grid is None:
                raise EngineError("devices send whole numbers only: train with noise='secure'")
            if grid not in known:
                known[grid] = self._server.add_up(self._state, statistic, public, grid)
            return known[grid][rows].copy()  # noise is added in place

        return compute


# ------------------------------------------------------------------ the server


class Server:
    """The process that asks: it keeps connections, and counts what goes over them."""

    def __init__(self, parts: Sequence[tuple[NDArray[Any], ...]], bounds: Bounds) -> None:
        context = get_context("spawn")
        self.rounds: list[Round] = []
        self._connections: list[Connection] = []
        self._processes = []
        self._states = itertools.count(1)
        self._down = 0
        for part in parts:
            mine, theirs = context.Pipe()
            process = context.Process(target=_be_devices, args=(theirs, part, bounds), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(mine)
            self._processes.append(process)

    def step(self, state: int, step: UserStep, public: Public) -> int:
        """Every user takes the step from that state; the number of the state that it leads to."""
        after = next(self._states)
        self._tell(("step", state, after, step, public))
        return after

    def add_up(
        self, state: int, statistic: Statistic, public: Public, grid: float
    ) -> NDArray[np.int64]:
        self._tell(("sum", state, statistic, public, grid))
        total = np.zeros(statistic.shape(public), np.int64)
        sizes: list[int] = []
        for connection in self._connections:
            for answer in _unpacked(self._heard(connection)):
                _add(answer, total)
                sizes.append(len(answer))
        self.rounds.append(Round(type(statistic).__name__, self._down, tuple(sizes)))
        self._down = 0
        return total

    def close(self) -> None:
        for connection in self._connections:
            connection.close()  # a device that hears nothing more ends
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
        self._connections = []
        self._processes = []

    def _tell(self, message: tuple[Any, ...]) -> None:
        """The same bytes to all: every device downloads them once."""
        sent = pickle.dumps(message, protocol=5)
        self._down += len(sent)
        if not self._connections:
            raise EngineError("the devices have gone: train again")
        for connection in self._connections:
            try:
                connection.send_bytes(sent)
            except OSError:
                raise EngineError("a process of devices has ended before its time") from None

    def _heard(self, connection: Connection) -> bytes:
        try:
            answer = connection.recv_bytes()
        except (EOFError, OSError):
            raise EngineError("a process of devices has ended before its time") from None
        if answer[:1] == b"!":
            raise EngineError(f"a device could not answer ({answer[1:].decode()})")
        return answer[1:]


# ------------------------------------------------------------------ the devices


def _be_devices(connection: Connection, part: tuple[NDArray[Any], ...], bounds: Bounds) -> None:
    """The life of a process: one block for each user, led from state to state until the server
    hangs up.
    """
    from discreet.kernels.threads import set_threads

    set_threads(1)
    states = {0: _blocks(part, bounds)}
    failed = ""
    while True:
        try:
            kind, state, *rest = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            if kind == "step":
                after, step, public = rest
                with np.errstate(all="ignore"):
                    states[after] = [step.run(block, public) for block in states[state]]
                continue
            answers = [_answer(block, *rest) for block in states[state]]
        except Exception as error:
            failed = type(error).__name__  # its text could hold private numbers
        if kind == "sum":
            connection.send_bytes(f"!{failed}".encode() if failed else b"." + _packed(answers))


def _blocks(part: tuple[NDArray[Any], ...], bounds: Bounds) -> list[Block]:
    indptr, indices, values, keys = part
    found = []
    for user, (begin, end) in enumerate(itertools.pairwise(indptr.tolist())):
        own = np.array([0, end - begin], np.int64)
        found.append(
            sealed_block(own, indices[begin:end], values[begin:end], keys[user : user + 1], bounds)
        )
    return found


def _answer(block: Block, statistic: Statistic, public: Public, grid: float) -> bytes:
    """A user's own contribution: the rows that are not zero, with their numbers."""
    shape = statistic.shape(public)
    with np.errstate(all="ignore"):
        found = statistic.partial(block, public, grid)(slice(0, shape[0]))
    flat = np.ascontiguousarray(found, np.int64).reshape(shape[0], -1)
    rows = np.flatnonzero(flat.any(axis=1)).astype(np.int32)
    return _HEAD.pack(len(rows), flat.shape[1]) + rows.tobytes() + flat[rows].tobytes()


def _add(answer: bytes, total: NDArray[np.int64]) -> None:
    n, wide = _HEAD.unpack_from(answer)
    rows = np.frombuffer(answer, np.int32, n, _HEAD.size)
    numbers = np.frombuffer(answer, np.int64, n * wide, _HEAD.size + rows.nbytes)
    total.reshape(len(total), -1)[rows] += numbers.reshape(n, wide)


def _packed(answers: Sequence[bytes]) -> bytes:
    return b"".join(_SIZE.pack(len(answer)) + answer for answer in answers)


def _unpacked(text: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(text):
        (size,) = _SIZE.unpack_from(text, at)
        at += _SIZE.size
        found.append(text[at : at + size])
        at += size
    return found
