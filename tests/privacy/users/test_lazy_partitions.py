"""Steps that are written down: which a pass needs, what it reads once for several sums, and
what the twin refuses.
"""

import numpy as np
import pytest

import discreet
from discreet.engines.blocks.ratings import FileEngine
from discreet.errors import ConfigError, EngineError
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import GlobalGram, ItemCounts
from discreet.privacy.statistics.gradients import WeightCounts, WeightedResidualGradient
from discreet.privacy.statistics.sums import compute_together
from discreet.privacy.users.lazy_partitions import steps_of
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import ComputeResiduals, Solve, WeighEntries
from support.engine_helpers import some_ratings

BOUNDS = Bounds(items=10**9, rating=1.0, center=3.0)
GRID = 2.0**-20


@pytest.fixture
def people(tmp_path):
    return discreet.BlockRatings.write(some_ratings(), tmp_path / "blocks", blocks=3)


@pytest.fixture
def passes(monkeypatch):
    """The names of the steps of every pass."""
    seen = []
    run = FileEngine.run

    def noted(self, root, wanted):
        seen.append([type(taken.step).__name__ for taken in steps_of(root)])
        return run(self, root, wanted)

    monkeypatch.setattr(FileEngine, "run", noted)
    return seen


def walked(people):
    walk = seal(people, BOUNDS)
    walk.apply(WeighEntries(np.ones(people.n_items)))
    V = np.random.default_rng(0).standard_normal((people.n_items, 3)).astype(np.float32)
    for number in range(3):
        walk.apply(Solve(V + np.float32(number), 2.0, center=0.0))
        walk.apply(ComputeResiduals(V, 1.0))
    return walk


def test_only_the_steps_that_a_sum_needs_are_taken_again(people, passes):
    walk = walked(people)
    walk.sum(GlobalGram()).compute(KEY, grid=GRID)
    walk.sum(WeightedResidualGradient()).compute(KEY, grid=GRID)
    walk.sum(WeightCounts()).compute(KEY, grid=GRID)
    assert passes == [
        ["Solve"],
        ["WeighEntries", "Solve", "ComputeResiduals"],
        ["WeighEntries"],
    ]


def test_several_sums_are_added_up_in_one_pass_and_rows_in_blocks_as_well(people, passes):
    walk = walked(people)
    gram, gradient = walk.sum(GlobalGram()), walk.sum(WeightedResidualGradient())
    compute_together(KEY, [(gram, GRID), (gradient, GRID)])
    assert passes == [["WeighEntries", "Solve", "ComputeResiduals"]]
    alone = walked(some_ratings())
    assert np.array_equal(
        gram.compute(KEY, grid=GRID), alone.sum(GlobalGram()).compute(KEY, grid=GRID)
    )
    whole = alone.sum(WeightedResidualGradient()).compute(KEY, grid=GRID)
    for rows in (slice(0, 5), slice(5, people.n_items)):
        part = gradient.compute(KEY, grid=GRID, rows=rows)
        assert np.array_equal(part, whole[rows])
        part[:] = 0  # noise is added in place, and what was computed stays what it was
    assert np.array_equal(gradient.compute(KEY, grid=GRID), whole)
    assert len(passes) == 1


def test_what_a_statistic_saw_is_what_it_adds_up_later_steps_or_not(people):
    walk = walked(people)
    before = walk.sum(GlobalGram())
    alone = walked(some_ratings()).sum(GlobalGram()).compute(KEY, grid=GRID)
    walk.apply(Solve(np.zeros((people.n_items, 3), np.float32), 2.0))
    assert np.array_equal(before.compute(KEY, grid=GRID), alone)


def test_the_twin_finds_errors_before_any_block_is_read(people, passes):
    walk = walked(people)
    with pytest.raises(ConfigError, match="do not fit"):
        walk.apply(ComputeResiduals(np.zeros((people.n_items, 5), np.float32), 1.0))
    with pytest.raises(ConfigError, match="Choose first"):
        seal(people, BOUNDS).sum(ItemCounts())
    assert passes == []


def test_sums_of_floating_point_numbers_are_refused(people):
    with pytest.raises(EngineError, match="whole numbers only"):
        walked(people).sum(GlobalGram()).compute(KEY)
