"""Two results pages are compared cell by cell."""

import numpy as np
import pytest

from discreet.errors import ConfigError
from research.changes import compare, markdown

PAGE = """<!-- entry one -->
| model | users | epsilon = 1 | epsilon = 5 |
|---|---|---|---|
| a | 5,000 | 0.5000 ± 0.0100 | 0.3000 ± 0.0100 |
| a: paper | 5,000 | 0.4 | 0.2 |
| {row} | 5,000 | 0.9000 | 0.8000 (0.7–0.9) |
<!-- /entry -->
<!-- entry {other} -->
| model | epsilon | true_epsilon | rmse | paper |
|---|---|---|---|---|
| a | 1 | 3.4 | {rmse} ± 0.0010 | 0.9 |
<!-- /entry -->
"""


def _page(tmp_path, name, row="b", other="two", rmse=0.95, **numbers):
    text = PAGE.format(row=row, other=other, rmse=rmse)
    for old, new in numbers.values():
        text = text.replace(old, new)
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def test_only_what_moved_by_more_than_two_deviations_is_told(tmp_path):
    old = _page(tmp_path, "old.md")
    moved = {
        "a": ("0.5000 ± 0.0100", "0.5300 ± 0.0020"),
        "b": ("0.3000 ±", "0.3150 ±"),
        "c": ("0.9000", "0.9100"),
    }
    found = compare(old, _page(tmp_path, "new.md", rmse=0.96, **moved))
    assert [(c.entry, c.row, c.column) for c in found if c.moved] == [
        ("one", ("a", "5,000"), "epsilon = 1"),
        ("one", ("b", "5,000"), "epsilon = 1"),
        ("two", ("a", "1", "3.4"), "rmse"),
    ]
    assert "| one | a · 5,000 | epsilon = 1 | 0.5 ± 0.01 | 0.53 ± 0.002 |" in markdown(found)


def test_the_same_page_has_no_changes(tmp_path):
    page = _page(tmp_path, "old.md")
    assert compare(page, page) == []


def test_rows_with_other_names_are_told_apart_from_numbers(tmp_path):
    found = compare(_page(tmp_path, "old.md"), _page(tmp_path, "new.md", row="c", other="three"))
    assert not any(change.moved for change in found)
    text = markdown(found)
    assert "New rows:\n\n- one: c · 5,000" in text
    assert "Rows that are gone:\n\n- one: b · 5,000" in text
    assert "three" not in text, "an entry that only one page has cannot be compared"


def test_a_page_that_is_not_there_is_told_in_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        compare(tmp_path / "no.md", tmp_path / "no.md")


def test_a_page_is_written_again_from_its_own_numbers(tmp_path):
    """The tables stay, and the figure is drawn from the means and deviations in them."""
    import shutil

    from research import entry as entries
    from research.redraw import DOCS, read_records, redraw

    (tmp_path / "results").mkdir()
    (tmp_path / "plots").mkdir()
    page = tmp_path / "results" / "beyond-unseen.md"
    shutil.copy(DOCS / "results" / page.name, page)
    before = page.read_text("utf-8")
    redraw("beyond-unseen", tmp_path)
    assert [line for line in page.read_text("utf-8").splitlines() if line.startswith("|")] == [
        line for line in before.splitlines() if line.startswith("|")
    ]
    assert (tmp_path / "plots" / "beyond-unseen.png").stat().st_size > 1000
    found = [
        record["rmse"]
        for record in read_records(entries.load("beyond-unseen"), before)
        if (record["users"], record["model"], record.get("epsilon")) == (5000, "DPMF", 1)
    ]
    assert np.mean(found) == pytest.approx(0.5086)
    assert np.std(found, ddof=1) == pytest.approx(0.0805)
