"""Batching: concurrent requests share one pass over the factors of the catalog.

The product of one vector with a million items takes as long as reading the items from memory; with
sixty vectors it takes little longer. Of a small catalog, users' vectors are computed sixteen at a
time, which halves the time of a request. No bit of a response depends on the other requests of a
batch, so that a client learns nothing about them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from discreet.serve.model_registry import ServedModel

MOST = 64  # requests of one pass; more save nothing, as the factors are read once for all


class Batcher:
    """Collector of requests that arrive while others are being answered.

    Without `workers`, what has arrived by the next turn of the event loop is answered in it: for
    catalogs of which a pass is short.
    """

    def __init__(self, workers: Executor | None) -> None:
        self._workers = workers
        self._waiting: list[tuple[ServedModel, tuple[Any, ...], asyncio.Future[Any]]] = []
        self._answering: asyncio.Task[None] | None = None

    async def best(self, served: ServedModel, question: tuple[Any, ...]) -> Any:
        """Return positions and scores for a history, its ratings, n and whether to skip it."""
        mine: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((served, question, mine))
        if self._answering is None or self._answering.done():
            # a task of its own, not of a request: the client of the first one may disconnect
            self._answering = asyncio.create_task(self._answer_all())
        return await mine

    async def _answer_all(self) -> None:
        while self._waiting:
            first = self._waiting[0][0]
            turn = [entry for entry in self._waiting if entry[0] is first][:MOST]
            chosen = {id(entry[2]) for entry in turn}
            self._waiting = [entry for entry in self._waiting if id(entry[2]) not in chosen]
            await self._answer(first, turn)

    async def _answer(self, served: ServedModel, turn: list[Any]) -> None:
        loop = asyncio.get_running_loop()
        try:
            asked = [question for _, question, _ in turn]
            if self._workers is None:
                found = best_here(served, asked)
            else:
                found = await loop.run_in_executor(self._workers, served.scorer.best_many, asked)
        except Exception as error:
            for _, _, mine in turn:
                if not mine.done():
                    mine.set_exception(error)
            return
        for (_, _, mine), answer in zip(turn, found, strict=True):
            if not mine.done():
                mine.set_result(answer)


def best_here(served: ServedModel, asked: list[tuple[Any, ...]]) -> list[Any]:
    """Rank for all requests; a single one takes the shorter way to the same bits."""
    if len(asked) > 1:
        return list(served.scorer.best_many(asked))
    at, values, n, exclude_seen = asked[0]
    return [served.scorer.best(at, values, n, exclude_seen=exclude_seen)]
