"""Blocks that stay in memory between passes: fewer steps, the same bits, and no more memory
than there is room for.
"""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

import discreet
from discreet.engines.block_cache import BlockCache, memory_of
from discreet.engines.block_format import PackedBlock
from discreet.engines.spark import worker
from discreet.engines.user_hash import Secret
from discreet.errors import ConfigError
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.lazy_partitions import Node, Outlook, RecordedStep, follow
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import ComputeResiduals
from support.engine_helpers import (
    MODELS,
    SCALE,
    Interrupted,
    interrupt,
    same_bits,
    silenced,
    some_ratings,
    trained,
)

BOUNDS = Bounds(items=10**9, rating=1.0, center=3.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "blocks"
    discreet.BlockRatings.write(some_ratings(), folder, blocks=3)
    return folder


@pytest.fixture
def looks(monkeypatch):
    """How often users looked at the items, by block."""
    seen = []
    run = ComputeResiduals.run

    def noted(self, block, public):
        if block.n:
            seen.append(len(block.indices))
        return run(self, block, public)

    monkeypatch.setattr(ComputeResiduals, "run", noted)
    return seen


def test_who_moves_on_from_where_it_is_takes_every_step_about_once(folder, monkeypatch, looks):
    """DPLMC: without a cache, the fifth release takes five steps again, and all of them fifteen."""
    silent = silenced(monkeypatch)
    model = lambda: discreet.DPLMC(4, epsilon=8.0, rating_range=SCALE, random_state=1, iterations=5)  # noqa: E731
    whole = trained(model(), some_ratings(), silent)
    counts = {}
    for megabytes in (0, 64):
        looks.clear()
        same_bits(
            whole,
            trained(model(), discreet.BlockRatings(folder, cache_megabytes=megabytes), silent),
        )
        counts[megabytes] = len(looks)
    assert counts == {0: 3 * 15, 64: 3 * 6}


@pytest.mark.parametrize("name", MODELS)
def test_no_bit_depends_on_what_there_was_room_for(folder, monkeypatch, name):
    silent = silenced(monkeypatch)
    kept = BlockCache.keep
    rng = np.random.default_rng(5)

    def forgetful(self, at, states):
        """Of three blocks, one is never kept, and one every other time."""
        kept(self, at, states if at == 0 or (at == 1 and rng.random() < 0.5) else {})

    monkeypatch.setattr(BlockCache, "keep", forgetful)
    whole = trained(MODELS[name](), some_ratings(), silent)
    same_bits(whole, trained(MODELS[name](), discreet.BlockRatings(folder), silent))


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_kept_when_a_training_has_ended_or_failed(folder, monkeypatch, fails):
    """Also while the error, whose traceback holds everything that the training held, is still
    looked at.
    """
    most = []
    keep = BlockCache.keep

    def counted(self, name, states):
        keep(self, name, states)
        most.append(len(self))

    monkeypatch.setattr(BlockCache, "keep", counted)
    model = discreet.DPLMC(4, epsilon=8.0, rating_range=SCALE, random_state=1, iterations=2)
    people = discreet.BlockRatings(folder)
    with monkeypatch.context() as patch:
        if fails:
            interrupt(patch)
            with pytest.raises(Interrupted) as caught:
                model.fit(people)
            frames = [frame.frame.f_locals for frame in caught.traceback]
        else:
            model.fit(people)
            frames = []
    engines = [
        one["users"].open(KEY).engine for one in frames if isinstance(one.get("users"), Users)
    ]
    assert max(most) == 3
    assert bool(engines) == fails
    assert all(len(engine._kept) == 0 for engine in engines)


# ------------------------------------------------------------------ on the workers of Spark


def test_a_worker_drops_a_training_that_ended_or_went_silent():
    def work(training):
        return worker.Pass(Node(None), [], BOUNDS, 0, "", Secret(), training, room=1 << 20)

    def passed(training, name):
        with worker._cache_for(work(training)) as kept:
            assert not worker._timers, "no training is forgotten in the middle of a pass"
            kept.keep(name, {(): block()})
        (timer,) = worker._timers
        assert (timer.args, timer.daemon, timer.interval) == ([training], True, worker.IDLE_SECONDS)
        return timer

    try:
        passed("one", "a")
        timer = passed("one", "b")
        assert len(worker._kept["one"]) == 2
        timer.function(*timer.args)
        assert not worker._kept
        passed("one", "a")
        passed("two", "a")
        assert list(worker._kept) == ["two"], "the blocks of another training are dropped"
        list(worker.forgetter("one")([]))
        assert list(worker._kept) == ["two"]
        (batch,) = worker.forgetter("two")([])
        assert batch.column("kept").to_pylist() == [0]
        assert not worker._kept
    finally:
        for timer in worker._timers:
            timer.cancel()
        worker._timers.clear()
        worker._kept.clear()


# ------------------------------------------------------------------ room


def block(ratings=100):
    portion = PackedBlock(
        np.array([0, ratings]),
        np.array([3], np.uint64),
        np.array([7], np.uint64),
        np.arange(ratings, dtype=np.int32),
        np.ones(ratings, np.float32),
    )
    return PackedBlock.from_bytes(portion.to_bytes()).sealed(BOUNDS, 0, Secret())


def test_memory_is_counted_once_and_with_whatever_holds_it():
    one = block()
    size = memory_of([one])
    assert size >= 16 + 16 + 16 + 800 + 400, (
        "the file's own bytes, of which a part is used, and the centered ratings"
    )
    more = one.with_state(vectors=np.zeros(50))
    assert memory_of([one, more]) == size + 400
    assert memory_of([one, more, one.without()]) == size + 400


def test_there_is_no_more_than_there_is_room_for():
    one = block()
    size = memory_of([one])
    kept = BlockCache(2 * size)
    for name in "abc":
        kept.keep(name, {(): replace(one, values=one.values.copy())})
    assert [len(kept.lookup(name)) for name in "abc"] == [1, 1, 0], "who is there stays"
    kept.keep("b", {(): block(300)})
    assert not kept.lookup("b"), (
        "what does not fit is not kept, and what it stood for is out of date"
    )
    kept.keep("c", {(): one})
    kept.keep("a", {})
    assert [len(kept.lookup(name)) for name in "abc"] == [0, 0, 1]


@pytest.mark.parametrize("given", [-1, True, 1.5, "many"])
def test_room_is_a_whole_number(folder, given):
    with pytest.raises(ConfigError, match="cache_megabytes is"):
        discreet.BlockRatings(folder, cache_megabytes=given)


# ------------------------------------------------------------------ which points are kept


def chain(*steps):
    """A tree without branches; steps are the same where they are the same object."""
    root = Node(None)
    at = root
    for step in steps:
        at.then.append(Node(step))
        at = at.then[0]
    return root


def kept_at(*passes):
    """What is worth keeping of the last of these passes."""
    outlook = Outlook()
    return [outlook.worth_keeping(root) for root in passes][-1]


def test_points_that_two_passes_share_are_worth_keeping():
    a, b, c, d = (RecordedStep(None, None, frozenset(), frozenset(), False) for _ in range(4))
    assert len({one.number for one in (a, b, c, d)}) == 4
    assert kept_at(chain(a)) == {()}
    assert kept_at(chain(a, b), chain(a, c)) == {(a.number,)}, (
        "users who begin anew after the first step"
    )
    assert kept_at(chain(a, b), chain(d)) == {()}
    fork = chain(a, b)
    fork.then[0].then.append(Node(c))
    assert kept_at(chain(a, c, d), fork) == {(a.number, c.number)}


def test_ends_are_worth_keeping_once_users_went_on_from_one():
    a, b, c, d = (RecordedStep(None, None, frozenset(), frozenset(), False) for _ in range(4))
    end = {(a.number, b.number, c.number)}
    assert kept_at(chain(a, b), chain(a, b, c)) == {(a.number, b.number)} | end
    assert kept_at(chain(a, b), chain(a, b), chain(a, c, d)) == {
        (a.number,),
        (a.number, c.number, d.number),
    }
    assert kept_at(chain(), chain(a, b)) == {()}, "whoever was only counted is at no end"


def test_a_block_is_not_opened_where_something_later_is_known(folder):
    def opened():
        raise AssertionError("opened")

    step = RecordedStep(
        ComputeResiduals(np.ones((2, 1)), 1.0), None, frozenset(), frozenset(), False
    )
    one = block()
    assert follow(chain(step), opened, [], {(step.number,): one}, [(step.number,)]) == {
        (step.number,): one
    }
    with pytest.raises(AssertionError, match="opened"):
        follow(chain(step), opened, [], {}, [(step.number,)])


def test_a_block_that_is_not_kept_is_gone_at_once():
    """Not when Python next looks for garbage: until then, blocks of many passes would be in
    memory.
    """
    opened = []

    def begin():
        one = block()
        opened.append(weakref.ref(one))
        return one

    gc.collect()
    gc.disable()
    try:
        follow(chain(), begin, [], {}, [()])
        assert opened[0]() is None
    finally:
        gc.enable()
