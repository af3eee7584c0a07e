"""The benchmark of secure noise: that it does what DPALS does, not how long it takes."""

import numpy as np

from benchmarks import bench_private


def test_an_item_step_of_either_grade_and_its_parts():
    users = bench_private.sealed_users(400, 30, 4)
    for grade in ("seeded", "secure"):
        V = bench_private.item_step(users, grade)
        assert V.shape == (30, 4)
        assert np.isfinite(V).all()
        parts = bench_private.timed_step(users, grade)
        assert parts["noise"] > 0
        assert parts["whole"] > parts["sums"] > 0


def test_the_result_says_how_it_compares_with_the_goals():
    seconds = {grade: {"whole": 2.0, "sums": 1.0, "noise": 0.5} for grade in ("seeded", "secure")}
    text = "\n".join(
        bench_private.show(
            {
                "items": 20000,
                "users": 7,
                "rank": 64,
                "seconds": seconds,
                "ratio": 1.25,
                "release_ratio": 1.75,
                "peak_gigabytes": 1.5,
                "before_gigabytes": 1.0,
            }
        )
    )
    for expected in (
        "1.25 times",
        "at most 2",
        "1.75 times",
        "1.50 GB",
        "below 3",
        "| secure | 2.00 | 1.00 | 0.50 |",
    ):
        assert expected in text
