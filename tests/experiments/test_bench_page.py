"""A page of benchmarks: measuring one section again leaves the others, and what people wrote, as they were."""

import pytest

from discreet.cli.bench import SECTIONS as NAMED
from discreet.errors import ConfigError
from discreet.experiments import bench, bench_machine, bench_page

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
    before = "# Ours\n\nBy hand.\n\n<!-- bench als -->\n## Sweeps\n\nold\n<!-- /bench als -->\n\nBetween.\n\n"
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
    result = {"users": 9, "items": 8, "rank": 4, "seconds": 2.0, "product": 1.0, "measured": measured}
    text = bench.render({"topk": result})["topk"]
    title, _, line, *_ = text.splitlines()
    assert title == "## The twenty best items of every user"
    for word in (measured["date"], measured["code"], "load", "GFLOP/s", "quick", "peak memory 1.25 GB"):
        assert word in line
    assert "50 % of its rate" in text
