"""The report in a real browser: on a phone and on a desk, by day and by night, by mouse and by
keyboard, on paper.
"""

from __future__ import annotations

import os
from itertools import pairwise, product
from pathlib import Path

import pytest

from discreet.report import write_report
from support.reported import NASTY, invented

WIDE = """[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width > 1 && box.right > innerWidth + 1 && !e.closest('.unseen, .skip, svg, thead');
}).map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40))"""
CUT = (
    "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e"
    " => e.textContent)"
)


def check_layout(page, file: Path) -> None:
    page.open(file)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(WIDE) == []
    assert page.evaluate(CUT) == []
    assert page.complaints() == []
    assert page.requests() == [file.resolve().as_uri()]


@pytest.mark.parametrize("name", ["private", "implicit", "open"])
def test_no_overflow_no_console_errors_no_network_access(browser, reports, name, tmp_path):
    keep = os.environ.get("DISCREET_SCREENSHOTS")  # a folder, for looking at them
    for width, scheme in product((390, 1024, 1600), ("light", "dark")):
        with browser.page(width, scheme=scheme, phone=width < 500) as page:
            check_layout(page, reports[name])
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, dark[4:-1].split(","))) < 200) == (scheme == "dark")
            if keep:
                page.screenshot(Path(keep) / f"{name}-{width}-{scheme}.png")


def test_strange_titles_stay_text_and_break_no_line(browser, tmp_path):
    file = tmp_path / "nasty report ü.html"
    write_report(invented(60, NASTY), file, n=20)
    for width in (390, 1024):
        with browser.page(width, phone=width < 500) as page:
            check_layout(page, file)
            assert page.evaluate("window.hacked === undefined")
            assert (
                page.evaluate("document.querySelectorAll('img, article script, article b').length")
                == 0
            )
            assert page.evaluate(f"document.body.innerText.includes({NASTY[0]!r})")


def test_twenty_thousand_items_make_a_page_of_a_few_megabytes(browser, tmp_path):
    file = tmp_path / "large.html"
    write_report(
        invented(20_000, ["A film with a title of ordinary length (1999) · Drama, Romance"], 16),
        file,
    )
    assert file.stat().st_size < 4e6
    with browser.page(390, phone=True) as page:
        check_layout(page, file)
        assert page.evaluate("document.getElementById('plane').width") > 100


def test_the_map_answers_to_mouse_keyboard_and_search(browser, reports):
    with browser.page(1024, 900) as page:
        page.open(reports["open"])
        page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
        page.evaluate("document.getElementById('plane').scrollIntoView({block: 'center'})")
        box = page.evaluate(
            "(b => [b.left, b.top, b.width, b.height])(plane.getBoundingClientRect())"
        )
        said = "document.getElementById('chosen').textContent"
        assert page.evaluate(said) == ""
        for share in (0.3, 0.4, 0.5, 0.6):  # somewhere there is an item
            page.point(box[0] + share * box[2], box[1] + 0.5 * box[3])
        pointed = page.evaluate(said)
        assert "most alike" in pointed
        assert page.evaluate("tip.textContent.length > 3")
        page.evaluate("plane.focus()")
        heard = {pointed}
        for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"):
            page.press(key)
            heard.add(page.evaluate(said))
        assert len(heard) >= 3
        field = "document.getElementById('find')"  # a bare `find` is the window's own
        page.evaluate(f"{field}.value = 'dark'; {field}.dispatchEvent(new Event('input'))")
        assert page.evaluate("matches.textContent").endswith(("item", "items"))
        assert page.complaints() == []


def test_the_page_has_the_structure_that_screen_readers_go_by(browser, reports):
    with browser.page(390, phone=True) as page:
        page.open(reports["private"])
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.evaluate(
            "[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))"
        )
        assert page.evaluate(
            "[...document.querySelectorAll('table')].every(t => t.caption && t.rows.length > 1)"
        )
        assert page.evaluate("[...document.querySelectorAll('th')].every(t => t.scope)")
        assert page.evaluate(
            "[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))"
        )
        assert page.evaluate(
            "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size"
            " === document.querySelectorAll('[id]').length"
        )
        tree = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in tree if "role" in node]
        assert roles.count("table") >= 5  # cards on a phone, and tables all the same
        assert roles.count("columnheader") >= 20


def test_it_prints_in_ink_on_paper(browser, reports):
    with browser.page(1024, scheme="dark") as page:
        page.open(reports["private"])
        assert page.pdf().startswith(b"%PDF")
        page.call(
            "Emulation.setEmulatedMedia",
            media="print",
            features=[{"name": "prefers-color-scheme", "value": "dark"}],
        )
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert page.complaints() == []
