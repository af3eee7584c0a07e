"""Blocks of people hold private arrays, and do not show them by accident."""

import numpy as np

from discreet.privacy.statistics.base import Block


def test_a_block_does_not_print_its_ratings():
    rating = np.array([4711.0], np.float32)
    block = Block(
        np.array([0, 1]), np.array([0], np.int32), rating, rating, np.array([7], np.uint64)
    )
    assert "4711" not in repr(block)
    assert "4711" not in f"{[block]} {block.with_state(value=rating)!r}"
