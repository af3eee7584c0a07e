"""The page in a real Chromium: the lists are Python's, people can use it, and nothing can leave."""

import dataclasses
import json
import re

import numpy as np
import pytest

from discreet.errors import ConfigError
from discreet.kernels import reference
from discreet.models.scorer import Scorer
from discreet.models.storage.load_scorer import open_model
from discreet.serve import web_page
from support.served_models import ITEMS, MODELS, fitted, histories

N = 10
ASK = "histories.map(h => recommend(model, new Map(h), 10))"
#: Two scores as close as this are a tie, which either side may break as it likes: the twin's
#: vectors are float32.
TIE = 3e-5


def statement_of(name, tmp_path):
    fitted(name).save(tmp_path / "model")
    return open_model(tmp_path / "model").statement


def written(name, tmp_path):
    """The page of a model as a file."""
    file = tmp_path / "page.html"
    file.write_text(
        web_page.web_page(fitted(name).scorer(), statement_of(name, tmp_path)), encoding="utf-8"
    )
    return file


def as_the_page_has_it(scorer):
    """The same scorer with numbers rounded as the page rounds them, in double precision."""
    fold_in_rule, factors = scorer.fold_in_rule, scorer.factors
    if "gain" in fold_in_rule.arrays():
        factors = web_page.round_half(factors)
        fold_in_rule = dataclasses.replace(
            fold_in_rule, gain=web_page.round_half(fold_in_rule.gain)
        )
    return Scorer(
        scorer.item_ids,
        factors,
        scorer.biases,
        fold_in_rule,
        titles=scorer.titles,
        rating_range=None,  # so that scores at the end of the scale still tell who is better
        default_rating=scorer.default_rating,
        item_similarity=scorer.item_similarity,
        kernels=reference,
    )


def asked(page, some, how=ASK):
    positions = [[[int(item[1:]), rating] for item, rating in history.items()] for history in some]
    return page.evaluate(
        f"(() => {{ const histories = {json.dumps(positions)}; return {how}; }})()"
    )


@pytest.mark.parametrize("name", MODELS)
def test_lists_are_those_of_python(name, browser, tmp_path):
    """200 random histories of the house model and 40 of each other: the same top 10 but for
    ties.
    """
    some = histories(200 if name.startswith("DPMF") else 40)
    scorer = fitted(name).scorer()
    twin = as_the_page_has_it(scorer)
    with browser.page(800) as page:
        page.open(written(name, tmp_path))
        # scores are cut for people; here they are to be compared
        page.evaluate("model.range = null")
        found = asked(page, some)
        assert page.complaints() == []
    for history, listed in zip(some, found, strict=True):
        at, values = scorer.history(history)
        places, scores = twin.best(at, values, ITEMS)
        expected = dict(zip(places.tolist(), scores.tolist(), strict=True))
        size = max(float(np.abs(scores).max()), 1.0)
        assert len(listed) == N
        for rank, (place, score) in enumerate(listed):
            assert score == pytest.approx(expected[place], abs=TIE * size)
            assert place == places[rank] or abs(expected[place] - scores[rank]) < TIE * size


@pytest.mark.parametrize(
    "name", ["DPMF", "DPMF, ratings", "DPALS implicit", "ALS", "ALS implicit", "DPSGD"]
)
def test_rounding_changes_scores_by_less_than_a_thousandth(name, browser, tmp_path):
    """The tolerance that the documentation states, against the model itself."""
    some = histories(100, seed=5)
    scorer = fitted(name).scorer()
    with browser.page(800) as page:
        page.open(written(name, tmp_path))
        found = asked(page, some)
    off = []
    for history, listed in zip(some, found, strict=True):
        places, scores = scorer.best(*scorer.history(history), ITEMS)
        expected = dict(zip(places.tolist(), scores.tolist(), strict=True))
        spread = max(float(scores.max() - scores.min()), 1e-6)
        off += [abs(score - expected[place]) / spread for place, score in listed]
        assert all(expected[place] >= scores[N - 1] - 2e-3 * spread for place, _ in listed)
    assert max(off) < 1e-3


@pytest.mark.parametrize("name", ["DPMF", "DPMF, ratings", "DPALS implicit"])
def test_reasons_and_similar_items_are_those_of_python(name, browser, tmp_path):
    some = [history for history in histories(10, seed=3) if len(history) > 1]
    twin = as_the_page_has_it(fitted(name).scorer())
    with browser.page(800) as page:
        page.open(written(name, tmp_path))
        reasons = asked(page, some, "histories.map(h => explainItem(model, new Map(h), 7))")
        alike = page.evaluate("similarItems(model, 3, 5)")
    for history, found in zip(some, reasons, strict=True):
        at, values = twin.history(history)
        expected = dict(zip(*map(list, twin.explain(at, values, 7)), strict=True))
        assert [much for _, much in found] == sorted((much for _, much in found), reverse=True)
        for place, much in found:
            assert much == pytest.approx(expected[place], abs=2e-4)
    places, cosines = twin.similar(3, 5)
    assert [place for place, _ in alike] == places.tolist()
    assert [cosine for _, cosine in alike] == pytest.approx(cosines.tolist(), abs=1e-4)


def test_the_page_reads_a_history_as_the_parser_does(browser, tmp_path):
    """A like is the default rating, the last opinion of an item counts, in any order."""
    scorer = fitted("DPMF, ratings").scorer()
    with browser.page(800) as page:
        page.open(written("DPMF, ratings", tmp_path))
        page.evaluate("[9, 3, 5, 7].forEach(j => choose(j, LIKE)); remove(7)")
        page.evaluate("choose(5, 2); choose(5, DISLIKE)")
        held = page.evaluate("[...ratings()].sort((a, b) => a[0] - b[0])")
    at, values = scorer.history({"i9": scorer.default_rating, "i3": 5, "i5": 2})
    assert held == [list(pair) for pair in zip(at.tolist(), values.tolist(), strict=True)]
    assert at.tolist() == scorer.history(["i5", "i9", "i3"])[0].tolist()


# ------------------------------------------------------------ in use


def titles(page, where="#recommended"):
    return page.evaluate(
        f"[...document.querySelectorAll('{where} > li .name')].map(e => e.textContent)"
    )


def click(page, selector):
    page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def text_of(page, selector):
    return page.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def type_and_add(page, text):
    page.evaluate("document.getElementById('search').focus()")
    page.call("Input.insertText", text=text)
    page.press("Enter")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["DPMF", "DPMF, ratings"])
def test_type_click_and_see_the_list_change(name, width, scheme, browser, tmp_path):
    """In every state axe-core finds no violation of WCAG 2.2 AA."""
    with browser.page(width, 844, scheme=scheme, phone=width < 500) as page:
        page.open(written(name, tmp_path))
        before = titles(page)
        assert len(before) == N
        assert page.accessibility_problems() == []
        page.evaluate("document.getElementById('search').focus()")
        page.call("Input.insertText", text="film 12")
        assert page.evaluate("document.querySelectorAll('#suggestions li').length") > 2
        assert page.accessibility_problems() == []
        page.press("ArrowDown")
        page.press("Enter")
        assert page.focused() == "search"
        assert len(titles(page, "#chosen")) == 1
        after = titles(page)
        assert after != before
        assert titles(page, "#chosen")[0] not in after
        # on a phone the choices are collapsed, so that the list is in view
        assert page.evaluate("document.getElementById('choices').open") is (width > 500)
        place = "document.querySelector('#recommended > li:nth-child(2)').getBoundingClientRect()"
        assert page.evaluate(f"{place}.bottom") < 844
        worst = page.evaluate("OPINIONS.length - 1")
        page.evaluate(
            "(() => { const s = document.querySelector('#chosen select'); s.value ="
            f" {worst}; s.dispatchEvent(new Event('change')); }})()"
        )
        assert titles(page) != after
        click(page, "#chosen [data-key^=remove]")
        assert titles(page) == before
        type_and_add(page, "film 12")
        click(page, "#recommended [data-key^=why]")
        assert re.search("moved it (up|down)", text_of(page, ".panel"))
        assert page.accessibility_problems() == []
        click(page, "#recommended li:nth-child(2) [data-key^=similar]")
        assert page.evaluate("document.querySelectorAll('.panel li').length") >= 1
        assert page.evaluate("document.querySelectorAll('.panel').length") == 1
        assert page.accessibility_problems() == []
        click(page, "#recommended [data-key^=like]")
        assert len(titles(page, "#chosen")) == 2
        assert page.evaluate("document.querySelectorAll('button.main').length") == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints() == []
        assert [url.split("/")[-1] for url in page.requests()] == ["page.html"]


def luminance(color):
    """Relative luminance of a color such as rgb(85, 97, 108), as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_placeholder_has_the_contrast_that_axe_core_does_not_check(scheme, browser, tmp_path):
    with browser.page(390, 844, scheme=scheme, phone=True) as page:
        page.open(written("DPMF", tmp_path))
        style = "getComputedStyle(document.getElementById('search')"
        text = luminance(page.evaluate(f"{style}, '::placeholder').color"))
        paper = luminance(page.evaluate(f"{style}).backgroundColor"))
        assert (max(text, paper) + 0.05) / (min(text, paper) + 0.05) >= 4.5


def test_focus_stays_where_the_user_was(browser, tmp_path):
    """By keyboard alone: after every action the focus is on the same control or in its place."""
    with browser.page(1280) as page:
        page.open(written("DPMF", tmp_path))

        def keys(kind, where="#recommended"):
            return page.evaluate(
                f"[...document.querySelectorAll('{where} [data-key^={kind}]')]"
                ".map(one => one.dataset.key)"
            )

        def use(key):
            page.evaluate(f"document.querySelector('[data-key={key}]').focus()")
            page.press("Enter")
            return page.focused()

        for kind in ("like", "dislike"):
            third = keys(f"{kind}-")[2]
            assert use(third) == keys(f"{kind}-")[2] != third
            assert "The list was updated." in text_of(page, "#news")
        why = keys("why-")[4]
        assert use(why) == why
        assert text_of(page, ".panel h3").startswith("Why ")
        page.press("Tab")
        assert page.focused().startswith("similar-")
        page.press("Tab")
        assert page.focused() == "close"
        page.press("Escape")
        assert page.focused() == why
        assert page.evaluate("document.querySelector('.panel')") is None
        assert use(why) == why
        assert use("close") == why
        similar = keys("similar-")[9]
        assert use(similar) == similar
        for also in keys("also-")[:4]:
            assert use(also) == also
            pressed = f"document.querySelector('[data-key={also}]').ariaPressed"
            assert page.evaluate(pressed) == "true"
            assert similar in keys("similar-"), "its row stays while its panel is open"
        assert use(also) == also
        assert page.evaluate(pressed) == "false"
        page.press("Escape")
        assert page.focused() == similar
        chosen = keys("remove", "#chosen")
        assert len(chosen) == 5
        assert use(chosen[1]) == chosen[2]
        assert use(chosen[4]) == chosen[3]
        for key in keys("remove", "#chosen"):
            last = use(key)
        assert last == "search"
        type_and_add(page, "film 3")
        page.evaluate("document.getElementById('clear').focus()")
        page.press("Enter")
        assert page.focused() == "search"
        assert page.complaints() == []


def test_a_screen_reader_gets_names_and_news(browser, tmp_path):
    """In the accessibility tree every control has a name of its own, and messages are announced."""
    with browser.page(1280) as page:
        page.open(written("DPMF", tmp_path))
        type_and_add(page, "№ 149")
        click(page, "#recommended [data-key^=similar]")
        page.call("Accessibility.enable")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        found = [
            (node.get("role", {}).get("value"), node.get("name", {}).get("value"))
            for node in nodes
            if not node["ignored"]
        ]
        controls = [one for one in found if one[0] in ("button", "combobox", "DisclosureTriangle")]
        assert len(controls) > 40
        assert all(name for _, name in controls)
        assert len(set(controls)) >= len(controls) - 6  # an item may be in the list and the panel
        assert ("combobox", f"Search {ITEMS} items") in controls
        news = [node for node in nodes if node.get("role", {}).get("value") == "status"]
        assert len(news) == 3
        assert "Film № 149 <b> was added. The list was updated." in [name for _, name in found]


def test_no_matches_are_said_plainly(browser, tmp_path):
    with browser.page(390, phone=True) as page:
        page.open(written("DPMF", tmp_path))
        page.evaluate("document.getElementById('search').focus()")
        page.call("Input.insertText", text="zzz")
        assert text_of(page, "#found") == "No matches for “zzz”."
        page.press("Escape")
        assert text_of(page, "#found") == ""
        click(page, "#add")
        assert text_of(page, "#found").startswith("Type a part of a title")
        type_and_add(page, "№ 149")
        page.call("Input.insertText", text="№ 149")
        assert text_of(page, "#found") == "Film № 149 <b> is already among your choices."


def test_every_item_may_be_chosen(browser, tmp_path):
    with browser.page(800) as page:
        page.open(written("Popularity", tmp_path))
        page.evaluate("for (let j = 0; j < model.count; j++) choices.set(j, LIKE); showAll('')")
        assert text_of(page, "#none") == "Nothing is left to recommend."
        assert page.evaluate("document.getElementById('none').hidden") is False


def test_the_heading_and_the_noun_are_those_given(browser, tmp_path):
    file = tmp_path / "page.html"
    scorer = fitted("DPMF").scorer()
    text = web_page.web_page(scorer, statement_of("DPMF", tmp_path), "Tonight", "films & <series>")
    file.write_text(text, encoding="utf-8")
    with browser.page(800) as page:
        page.open(file)
        assert text_of(page, "h1") == "Tonight"
        assert text_of(page, "label") == f"Search {ITEMS} films & <series>"
        type_and_add(page, "film 3")
        assert text_of(page, "#how-many") == "Chosen films & <series>: 1"


def test_titles_are_set_off_from_years_and_genres(browser, tmp_path):
    with browser.page(800) as page:
        page.open(written("DPMF", tmp_path))
        page.evaluate(
            "model.titles[0] = 'Tale (a) (1995) · Drama, War'; model.titles[1] = '2001 (1968)';"
            " model.titles[2] = '(1999)'; model.titles[3] = 'A · B'"
        )
        assert page.evaluate("[0, 1, 2, 3].map(splitTitle)") == [
            ["Tale (a)", "1995 · Drama, War"],
            ["2001", "1968"],
            ["(1999)", ""],
            ["A", "B"],
        ]


def test_the_browser_forbids_every_way_out(browser, tmp_path):
    with browser.page(800) as page:
        page.open(written("DPMF", tmp_path))
        page.evaluate("document.getElementById('try').click()")
        page.evaluate("new Promise(done => setTimeout(done, 1500))")
        lines = page.evaluate("[...document.querySelectorAll('#tried li')].map(e => e.textContent)")
        assert len(lines) == 5
        assert all(line.endswith(": blocked by the browser") for line in lines)
        page.evaluate(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.injected"
            " = 1'; document.body.append(s); })()"
        )
        assert page.evaluate("window.injected") is None
        assert page.evaluate("location.href").startswith("file:")
        page.evaluate("1")
        answered = [e for e in browser.events if e.get("method") == "Network.responseReceived"]
        outside = [e for e in answered if "discreet-test" in json.dumps(e)]
        assert outside == []


def test_the_file_holds_no_markup_of_titles_and_names_its_policy(tmp_path):
    text = written("DPMF", tmp_path).read_text(encoding="utf-8")
    assert "<b>" not in text
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)[1]
    for part in (
        "default-src 'none'",
        "connect-src 'none'",
        "form-action 'none'",
        "script-src 'sha256-",
    ):
        assert part in policy
    assert "unsafe" not in policy
    assert not re.search(r"(src|href)=\"(https?:)?//", text)


def test_a_model_without_privacy_says_so(tmp_path):
    text = written("ALS", tmp_path).read_text(encoding="utf-8")
    assert "NOT PRIVATE" in text
    assert "<strong>No guarantee.</strong>" in text


def test_what_cannot_be_a_page_is_refused_in_a_sentence():
    class Own:
        kind = "by code"

    scorer = fitted("DPMF").scorer()
    own = Scorer(scorer.item_ids, scorer.factors, scorer.biases, Own())
    with pytest.raises(ConfigError, match="has its own fold-in code"):
        web_page.check_exportable(own)
    many = np.zeros((web_page.MOST_ITEMS + 1, 1), np.float32)
    with pytest.raises(ConfigError, match="a page can contain 200,000 items"):
        web_page.check_exportable(
            Scorer(np.arange(len(many)), many, many[:, 0], scorer.fold_in_rule)
        )
