"""The page of the benchmark of a Spark cluster."""

from benchmarks import bench_cluster


def row(ratings, scale):
    cpu = {"blocks": 1.0, "sealing": 10.0, "train": 4.0, "killed": 5.0}
    found = {lap: {"cpu": 2 + value * scale, "seconds": 1.0} for lap, value in cpu.items()}
    return {
        "ratings": ratings,
        "same": True,
        "bytes": 8 * ratings,
        "code": "commit a",
        "load": 1.0,
    } | found


def test_the_page_compares_the_largest_size_with_a_line_through_the_others():
    rows = [row(10**6, 1), row(10**7, 10), row(10**8, 150)]
    text = "\n".join(bench_cluster.show({"sizes": rows}))
    assert "| 10,000,000 | 12.0 | 102.0 | 42.0 | 3.50 | 52.0 | yes | 8.0 |" in text
    assert "| blocks: training | 2.0 | 1.00 | 1.0 | 102 | 152 |" in text
    without = "\n".join(bench_cluster.show({"sizes": rows[:2]}))
    assert "| Spark: training | 2.0 | 4.00 | 4.0 | – | – |" in without
    assert "predicts" not in without
