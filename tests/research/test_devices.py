"""Server and users as processes: the same bits as in one process, and every byte is counted."""

import multiprocessing

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.engines import RatingsSource
from discreet.errors import ConfigError, EngineError
from discreet.models.dpals import NoisySolve
from discreet.privacy.users.steps import Choose
from research.devices import Devices
from support.engine_helpers import MODELS, same_bits, silenced, trained


@pytest.fixture(scope="module")
def ratings():
    return random_ratings(discreet.load_dataset("cinema", scale=0.003), (0.9, 0.1), seed=5).train


@pytest.mark.parametrize("name", ["DPALS", "DPLMC"])
def test_messages_give_the_same_bits_as_one_process(ratings, monkeypatch, name):
    seen = silenced(monkeypatch)
    here = trained(MODELS[name](), ratings, seen)
    with Devices(ratings, 2) as devices:
        apart = trained(MODELS[name](), devices, seen)
        traffic = devices.traffic
    same_bits(here, apart)
    assert 0 < len(traffic) <= len(seen), "a sum is asked for once, however its noise is added"
    assert all(len(one.up) == ratings.n_users for one in traffic), "every device answers every time"
    assert all(one.down > 0 for one in traffic)
    assert not multiprocessing.active_children(), "no process is left behind"


def test_bytes_are_those_of_what_is_contributed(ratings, monkeypatch):
    """A step of DPALS: r(r + 3)/2 numbers of eight bytes for each of a user's k items, and
    which items they are.
    """
    silenced(monkeypatch)
    rank, k = 4, 10
    algorithm = NoisySolve(
        factors=rank,
        iterations=1,
        max_items=k,
        item_fraction=1.0,
        intercept=0.0,
        recount=False,
        initial_scale=1.0,
    )
    model = discreet.DPALS(
        epsilon=50.0, rating_range=(0.5, 5.0), random_state=1, algorithm=algorithm
    )
    with Devices(ratings, 1) as devices:
        model.fit(devices)
        sizes = {one.what: np.array(one.up) for one in devices.traffic}
    taken = np.minimum(np.diff(ratings.indptr), k)
    head = 16
    assert np.array_equal(sizes["ItemCounts"], head + taken * (4 + 8))
    assert np.all(sizes["ItemGrams"] <= head + taken * (4 + 8 * rank * (rank + 1) // 2))
    assert np.all(sizes["ItemSums"] <= head + taken * (4 + 8 * rank))
    assert (
        sizes["ItemGrams"].mean() > 0.9 * (head + taken * (4 + 8 * rank * (rank + 1) // 2)).mean()
    )


def test_what_devices_refuse(ratings):
    with pytest.raises(ConfigError, match="processes is 0"):
        Devices(ratings, 0)
    devices = Devices(ratings, 1)
    assert isinstance(devices, RatingsSource)
    assert devices.traffic == []
    assert str(ratings.n_users) not in repr(devices)
    with devices, pytest.raises((EngineError, ConfigError), match="secure"):
        discreet.DPALS(2, epsilon=8.0, noise="seeded", random_state=0, rating_range=(0.5, 5.0)).fit(
            devices
        )


def test_devices_that_are_gone_are_told_of_in_a_sentence(ratings):
    devices = Devices(ratings, 1)
    users = devices.seal(
        discreet.DPALS(2, epsilon=8.0, rating_range=(0.5, 5.0)).resolve(ratings.n_items).bounds()
    )
    devices.close()
    with pytest.raises(EngineError, match="the devices have gone"):
        users.apply(Choose())
