"""The benchmark of private training: what it says, not how long it takes."""

from benchmarks import bench_training
from research.synthetic import dpals_task


def test_both_sides_of_the_ratio_are_measured():
    ratings = dpals_task(400, 40, 3, seed=0).ratings
    assert bench_training._sweeps(ratings, 4) > 0
    assert bench_training._private(ratings, 4, 1.0, "seeded") > 0


def test_the_result_says_how_it_compares_with_the_goals():
    seconds = {
        "sweeps": 4.0,
        "seeded, 0.4": 5.0,
        "secure, 0.4": 6.0,
        "seeded, 1": 8.0,
        "secure, 1": 9.0,
    }
    text = "\n".join(
        bench_training.show(
            {
                "users": 1000,
                "items": 100,
                "ratings": 5000,
                "rank": 128,
                "steps": 3,
                "shares": (0.4, 1.0),
                "seconds": seconds,
                "peak_gigabytes": 3.25,
            }
        )
    )
    rows = "| seeded | 40 % | 5.0 | 1.25 | 1.5 |", "| secure | 100 % | 9.0 | 2.25 | 2.5 |"
    for expected in ("4.0 s", *rows, "3.25 GB"):
        assert expected in text
