"""Entries about timelines: noise multipliers by their closed forms, and the simulated worlds."""

import numpy as np
import pytest

from research import timeline
from research.sources import Sources

#: Of the last row over one training with all of the budget, for 12, 52 and 365 rows.
TABLE = {
    "composed": (3.46, 7.21, 19.1),
    "binary tree, Honaker's estimate": (2.10, 3.09, 5.71),
    "square root": (1.85, 2.32, 2.94),
    "composed, average of all rows": (1.63, 1.71, 1.73),
}
FOR_EVER = {
    "square root of the decayed sum": {12: 1.50, 26: 1.73, 52: 1.94, 365: 2.54},
    "timeline, one row": {12: 2.50, 26: 3.64, 52: 5.12, 365: 13.52},
}


@pytest.mark.parametrize("policy", TABLE)
def test_noise_of_the_last_row(policy):
    for rows, expected in zip((12, 52, 365), TABLE[policy], strict=True):
        found = timeline.multipliers({"policy": policy, "rows": rows}, Sources())
        assert found["noise"] == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize("policy", FOR_EVER)
def test_noise_for_ever(policy):
    for memory, expected in FOR_EVER[policy].items():
        settings = {"policy": policy, "rows": 52, "memory": memory}
        found = timeline.multipliers(settings, Sources())
        assert found["noise"] == pytest.approx(expected, rel=3e-3)


def test_regression_over_rows_and_the_worst_row_of_a_tree():
    for memory, expected in ((13, 1.78), (26, 1.61), (52, 1.70)):
        settings = {"policy": "timeline, all rows", "rows": 52, "memory": memory}
        assert timeline.multipliers(settings, Sources())["noise"] == pytest.approx(
            expected, rel=3e-3
        )
    assert timeline.tree_noise(12) == pytest.approx(2.99, abs=0.005)
    assert timeline.tree_noise(52) == pytest.approx(4.44, abs=0.005)


def test_the_square_root_squares_to_a_prefix_sum():
    c = timeline.root_weights(20)
    np.testing.assert_allclose(np.convolve(c, c)[:20], 1.0)


def test_the_simulated_world_has_births_arrivals_and_an_end():
    ratings, born = timeline.simulate_drift(300, 20, 6, 1)
    world = timeline.by_timestamps(ratings, 6, born)
    items = [world.ratings(week).n_items for week in (1, 6)]
    assert items[0] < items[1]
    assert all(world.ratings(week).catalog for week in (1, 6))
    known, target = world.tested(6)
    assert known.n_users == target.n_users > 0
    both = known.to_csr().multiply(target.to_csr()[:, : known.n_items])
    assert both.nnz == 0  # nothing that is predicted was seen
