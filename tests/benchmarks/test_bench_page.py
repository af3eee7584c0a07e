"""A page of benchmarks: measuring one section again leaves the others, and what people wrote,
as they were.
"""

import numpy as np
import pytest

from benchmarks import (
    bench,
    bench_growth,
    bench_machine,
    bench_page,
    bench_peers,
    bench_ratings,
    bench_reading,
)
from benchmarks.command import SECTIONS as NAMED
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError

ORDER = ("als", "topk", "csv")


def test_the_command_names_every_section_in_the_order_of_the_page():
    assert tuple(bench.SECTIONS) == NAMED


def test_a_new_page_has_the_sections_in_order(tmp_path):
    page = tmp_path / "speed.md"
    bench_page.write(page, {"csv": "## Reading\n"}, ORDER)
    bench_page.write(page, {"als": "## Sweeps\n"}, ORDER)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert text.index("## Sweeps") < text.index("## Reading")


def test_only_what_was_measured_is_replaced(tmp_path):
    page = tmp_path / "speed.md"
    before = (
        "# Ours\n\nBy hand.\n\n<!-- bench als -->\n## Sweeps\n\nold\n<!-- /bench als"
        " -->\n\nBetween.\n\n"
    )
    after = "<!-- bench csv -->\n## Reading\n<!-- /bench csv -->\n\nBelow, by hand.\n"
    page.write_text(before + after)
    bench_page.write(page, {"als": "## Sweeps\n\nnew\n"}, ORDER)
    assert page.read_text() == before.replace("old", "new") + after


def test_a_section_that_does_not_end_is_refused_and_the_page_kept(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text("<!-- bench als -->\n## Sweeps\n")
    with pytest.raises(ConfigError, match="without <!-- /bench als -->"):
        bench_page.write(page, {"als": "## Sweeps\n"}, ORDER)
    assert page.read_text() == "<!-- bench als -->\n## Sweeps\n"


def test_every_section_says_under_which_conditions_it_was_measured():
    measured = bench_machine.conditions(quick=True) | {"peak_gigabytes": 1.25}
    result = {
        "users": 9,
        "items": 8,
        "rank": 4,
        "seconds": 2.0,
        "product": 1.0,
        "measured": measured,
    }
    text = bench.render({"topk": result})["topk"]
    title, _, line, *_ = text.splitlines()
    assert title == "## The twenty best items of every user"
    for word in (
        measured["date"],
        measured["code"],
        "load",
        "GFLOP/s",
        "quick",
        "peak memory 1.25 GB",
    ):
        assert word in line
    assert "50 % of its rate" in text


def test_a_plot_stands_beside_the_page(tmp_path):
    rows = {"sizes": [1, 2, 4], "seconds": [0.5, 1.0, 2.0], "slope": 1.0}
    base = {"users": 1, "rank": 1}
    growth = {
        "base": base,
        "growth": dict.fromkeys(["one sweep", *bench_growth.WORK[1:]], dict.fromkeys(base, rows)),
        "measured": bench_machine.conditions(False),
    }
    text = bench.render({"growth": growth}, tmp_path / "speed.md")["growth"]
    assert "| one sweep | 1.00 | 0.50 → 2.00 s |" in text
    assert "![Growth](plots/bench-growth.png)" in text
    assert (tmp_path / "plots" / "bench-growth.png").stat().st_size > 1000
    assert "plots" not in bench.render({"growth": growth})["growth"]


@pytest.mark.parametrize(
    ("kind", "ids"), [("csv", "integers"), ("csv", "text"), ("parquet", "dictionary")]
)
def test_files_of_every_kind_are_read(tmp_path, kind, ids):
    path = tmp_path / f"ratings.{kind}"
    bench_reading.write_file(path, ids, 3_000)
    ratings = Ratings.read(path)
    assert ratings.n_ratings + ratings.merged == 3_000
    first = ratings.user_ids[0]
    assert isinstance(first, str) == (ids != "integers")


def test_generated_people_have_what_was_asked_for():
    ratings = bench_ratings.generated(200, 5_000, 40)
    assert (ratings.n_users, ratings.n_items) == (200, 5_000)
    assert 38 * 200 < ratings.n_ratings < 42 * 200
    assert set(np.unique(ratings.values)) == {1.0, 2.0, 3.0, 4.0, 5.0}
    again = Ratings.from_csr(ratings.to_csr())  # refuses what is not rows of sorted, distinct items
    assert np.array_equal(again.indices, ratings.indices)
    assert again.merged == 0


def test_tables_name_what_was_not_measured():
    result = {"users": 9, "items": 8, "ratings": 7, "missing": ["LensKit (needs torch)"]}
    seconds = {"discreet, implicit feedback": {"32": 0.5}, "implicit, Cholesky": {"32": 2.0}}
    text = "\n".join(bench_peers.show({**result, "seconds": seconds}))
    assert "| implicit, Cholesky | 2.00 | 4.0 |" in text
    assert "Not measured here: LensKit (needs torch)." in text
