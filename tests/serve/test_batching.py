"""Requests that arrive together share one pass, and get the bits of single ones."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from discreet.serve.batching import Batcher
from support.served_models import MODELS, fitted


@pytest.mark.parametrize("name", MODELS)
def test_requests_of_one_turn_of_the_loop_share_a_pass(name):
    scorer = fitted(name).scorer()
    passes = []

    def best_many(asked):
        passes.append(len(asked))
        return scorer.best_many(asked)

    served = SimpleNamespace(scorer=SimpleNamespace(best=scorer.best, best_many=best_many))
    asked = [
        (np.arange(count, dtype=np.int32), np.ones(count, np.float32), 5, count % 2 == 0)
        for count in range(5)
    ]

    async def ask():
        batcher = Batcher(None)
        return await asyncio.gather(*(batcher.best(served, question) for question in asked))

    found = asyncio.run(ask())
    assert passes == [len(asked)]
    for (at, values, n, exclude_seen), (items, scores) in zip(asked, found, strict=True):
        alone = scorer.best(at, values, n, exclude_seen=exclude_seen)
        assert items.tolist() == alone[0].tolist()
        assert scores.tobytes() == alone[1].tobytes()
