"""Sums of whole numbers are int64, and as exact for more users than float64 can add up."""

from itertools import pairwise

import numpy as np
import pytest

from discreet.privacy.noise.sources import grid_for
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import GlobalGram, ItemTotals
from discreet.privacy.statistics.covariance import PairCounts, ResidualCovariance
from discreet.privacy.statistics.gradients import (
    BiasGradient,
    ClippedGradient,
    Size,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.poisson_batches import draw_batch
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import ComputeResiduals, Solve, SubtractBaseline, WeighEntries
from support.sealed_helpers import STATISTICS, make, quick, uniform

N_ITEMS, RANK = 7, 3
V = np.random.default_rng(1).normal(size=(N_ITEMS, RANK))


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def crowd_of(n):
    rng = np.random.default_rng(2)
    rows = [
        {int(j): float(rng.normal(0, 3)) for j in rng.choice(N_ITEMS, 4, replace=False)}
        for _ in range(n)
    ]
    users = seal(make(rows, N_ITEMS), Bounds(items=3, rating=2.0, norm=0.7))
    uniform(users)
    users.apply(Solve(V, 0.1))
    return users


def everything(users):
    """Every statistic that there is, by name."""
    found = {name: ask(users, V) for name, ask in STATISTICS.items()}
    found |= {"item_totals": users.sum(ItemTotals()), "crowd": users.sum(UserCount())}
    walk = users
    walk.apply(WeighEntries(np.ones(N_ITEMS)))
    walk.apply(ComputeResiduals(V, 1.3))
    found |= {
        "descent gradient": walk.sum(WeightedResidualGradient()),
        "bias gradient": walk.sum(BiasGradient()),
        "gram": walk.sum(GlobalGram()),
    }
    found |= {"counts": walk.sum(WeightCounts()), "size": walk.sum(Size(2.0))}
    left = users.copy_after(SubtractBaseline())
    found |= {
        "residual covariance": left.sum(ResidualCovariance(0.9)),
        "pair counts": left.sum(PairCounts()),
    }
    batch = draw_batch(users, 1.0)
    batch.apply(Solve(V, 0.1))
    return found | {"clipped gradient": batch.sum(ClippedGradient(V, 0.8))}


def on_the_grid(statistic):
    return statistic.compute(KEY, grid=grid_for(statistic.sensitivity("add-remove", "inf"), 1e-300))


@pytest.mark.parametrize("chunk", [1, 2, 7, 40, 1000])
def test_any_number_of_users_at_a_time_gives_the_same_integers(chunk, monkeypatch):
    whole = {name: on_the_grid(statistic) for name, statistic in everything(crowd_of(41)).items()}
    assert {value.dtype for value in whole.values()} == {np.dtype(np.int64)}
    monkeypatch.setattr(integer_sums, "CHUNK", chunk)
    for name, statistic in everything(crowd_of(41)).items():
        assert np.array_equal(on_the_grid(statistic), whole[name]), name


def test_nobody_adds_up_to_zeros():
    for name, statistic in everything(crowd_of(0)).items():
        value = on_the_grid(statistic)
        assert value.dtype == np.int64, name
        assert value.shape == statistic.shape, name
        assert not value.any(), name
        assert not statistic.compute(KEY).any(), name


def test_a_contribution_has_at_most_2_to_the_30_units():
    for largest in np.geomspace(1e-12, 1e12, 97):
        for deviation in (1e-300, largest, 1e6 * largest):
            assert largest / grid_for(largest, deviation) <= 2**30
    assert integer_sums.CHUNK * 2**30 <= 2**52


def test_users_are_added_up_in_chunks_that_float64_can_hold(monkeypatch):
    for n, chunk in ((0, 4), (1, 4), (4, 4), (5, 4), (13, 4)):
        monkeypatch.setattr(integer_sums, "CHUNK", chunk)
        parts = list(integer_sums.chunks(n))
        assert [i for part in parts for i in range(n)[part]] == list(range(n))
        assert max(part.stop - part.start for part in parts) <= chunk
    monkeypatch.undo()
    assert integer_sums.CHUNK * 2**30 <= 2**52


def test_sums_beyond_the_reach_of_float64_are_exact(monkeypatch):
    """Entries as large as the sum of a whole chunk: three of them have no float64."""
    most = 2**52 + 1
    monkeypatch.setattr(integer_sums, "CHUNK", 1)
    entries = np.full(3, float(most))
    assert float(3 * most) != 3 * most
    assert integer_sums.units_at(np.zeros(3, np.int32), entries, 2, 1.0).tolist() == [3 * most, 0]
    indptr = np.array([0, 0, 3, 3])
    sums = integer_sums.by_segments(
        indptr, lambda cuts: np.array([[entries[a:b].sum()] for a, b in pairwise(cuts)])
    )
    assert sums.tolist() == [[0], [3 * most], [0]]


@pytest.mark.parametrize(
    "indptr", [[0], [0, 0], [0, 5], [3, 3, 8, 9], [0, 4, 4, 4, 12, 13], [2, 2, 2]]
)
@pytest.mark.parametrize("chunk", [1, 3, 4, 100])
def test_segments_are_those_of_the_rows(indptr, chunk, monkeypatch):
    monkeypatch.setattr(integer_sums, "CHUNK", chunk)
    x = np.arange(20.0) ** 2

    def sums(cuts):
        assert (np.diff(cuts) <= chunk).all()
        return np.array([[x[a:b].sum()] for a, b in pairwise(cuts)]).reshape(-1, 1)

    expected = [[int(x[a:b].sum())] for a, b in pairwise(indptr)]
    assert integer_sums.by_segments(np.array(indptr), sums).tolist() == expected


def test_sums_become_integers_in_the_memory_they_have():
    whole = np.rint(np.random.default_rng(0).normal(0, 2.0**40, (257, 300)))
    expected = whole.astype(np.int64)
    found = integer_sums.as_integers(whole)
    assert np.array_equal(found, expected)
    assert found.dtype == np.int64
    assert np.shares_memory(found, whole)
    assert integer_sums.as_integers(np.empty((0, 3))).shape == (0, 3)
