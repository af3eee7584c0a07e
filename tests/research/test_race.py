"""The race that draws items: equal to its specification, and with the right probabilities."""

import numpy as np
import pytest

from research import race


def sides(n_users, n_items, rank=6, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    user = rng.standard_normal((n_users, rank)).astype(np.float32)
    item = spread * rng.standard_normal((n_items, rank)).astype(np.float32)
    return user, item


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
def test_equals_the_specification(spread):
    user, item = sides(120, 300, spread=spread)
    counts = np.random.default_rng(1).integers(0, 80, 120)
    counts[:6] = [0, 1, 300, 299, 280, 150]
    indptr, indices = race.draw_items(counts, user, item, seed=9)
    assert np.array_equal(np.diff(indptr), counts)
    expected = race.draw_items_reference(counts, user, item, seed=9)
    for u in range(120):
        assert np.array_equal(indices[indptr[u] : indptr[u + 1]], expected[u]), u


def test_first_pick_has_probability_proportional_to_weight():
    log_weights = np.log(np.array([1, 2, 3, 4, 10], np.float32))
    user = np.ones((200_000, 1), np.float32)
    _, picked = race.draw_items(np.ones(200_000, np.int64), user, log_weights[:, None], seed=3)
    share = np.bincount(picked, minlength=5) / 200_000
    assert share == pytest.approx(np.array([1, 2, 3, 4, 10]) / 20, abs=0.004)


def test_pairs_come_without_replacement():
    weights = np.array([1.0, 2.0, 4.0])
    user = np.ones((100_000, 1), np.float32)
    indptr, picked = race.draw_items(
        np.full(100_000, 2), user, np.log(weights, dtype=np.float32)[:, None], seed=4
    )
    pairs = picked.reshape(-1, 2)
    assert indptr[-1] == 200_000
    left_out = np.bincount(3 - pairs.sum(axis=1), minlength=3) / 100_000
    p = weights / weights.sum()
    expected = [
        sum(p[a] * p[b] / (1 - p[a]) for a, b in ((i, j), (j, i)))
        for i, j in ((1, 2), (0, 2), (0, 1))
    ]
    assert left_out == pytest.approx(np.array(expected), abs=0.006)


def test_neither_threads_nor_neighbors_change_a_user(monkeypatch):
    user, item = sides(150, 100)
    counts = np.full(150, 20)
    _, both = race.draw_items(counts, user, item, seed=1)
    monkeypatch.setattr(race, "BLOCK", 7)
    monkeypatch.setattr(race, "_workers", lambda: 1)
    _, one = race.draw_items(counts, user, item, seed=1)
    assert np.array_equal(both, one)
    _, other = race.draw_items(counts, user, item, seed=2)
    assert not np.array_equal(both, other)


def test_progress_reaches_the_end_and_may_stop_the_work():
    user, item = sides(100, 50)
    calls = []
    race.draw_items(
        np.full(100, 5), user, item, seed=1, progress=lambda *state: calls.append(state), text="t"
    )
    assert calls[-1] == (100, 100, "t")

    def stop(done, total, text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race.draw_items(np.full(100, 5), user, item, seed=1, progress=stop)
