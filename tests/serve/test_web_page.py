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
        reasons = asked(page, some, "histories.map(h => whyItem(model, new Map(h), 7))")
        alike = page.evaluate("similarItems(model, 3, 5)")
    for history, found in zip(some, reasons, strict=True):
        at, values = twin.history(history)
        expected = dict(zip(at.tolist(), twin.why(at, values, 7).tolist(), strict=True))
        assert [much for _, much in found] == sorted((much for _, much in found), reverse=True)
        for place, much in found:
            assert much == pytest.approx(expected[place], abs=2e-4)
    places, cosines = twin.similar(3, 5)
    assert [place for place, _ in alike] == places.tolist()
    assert [cosine for _, cosine in alike] == pytest.approx(cosines.tolist(), abs=1e-4)


# ------------------------------------------------------------ in use


def titles(page, where="#recommended"):
    return page.evaluate(
        f"[...document.querySelectorAll('{where} > li .name')].map(e => e.textContent)"
    )


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_type_click_and_see_the_list_change(width, scheme, browser, tmp_path):
    with browser.page(width, scheme=scheme, phone=width < 500) as page:
        page.open(written("DPMF, ratings", tmp_path))
        before = titles(page)
        assert len(before) == N
        page.evaluate("document.getElementById('search').focus()")
        page.call("Input.insertText", text="film 12")
        assert page.evaluate("document.querySelectorAll('#suggestions li').length") > 2
        page.press("ArrowDown")
        page.press("Enter")
        assert len(titles(page, "#chosen")) == 1
        after = titles(page)
        assert after != before
        assert titles(page, "#chosen")[0] not in after
        page.evaluate(
            "(() => { const s = document.querySelector('#chosen input'); s.value = 1; "
            "s.dispatchEvent(new Event('input')); })()"
        )
        assert titles(page) != after
        page.evaluate("document.querySelector('#recommended button').click()")
        assert re.search(
            "pulled it up|pushed it down",
            page.evaluate("document.querySelector('.why').textContent"),
        )
        page.evaluate(
            "document.querySelector('#recommended li:nth-child(2) .acts"
            " button:nth-child(2)').click()"
        )
        assert page.evaluate("document.querySelectorAll('#alike-list li').length") >= 1
        page.evaluate("document.querySelector('#recommended .main').click()")
        assert len(titles(page, "#chosen")) == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints() == []
        assert [url.split("/")[-1] for url in page.requests()] == ["page.html"]


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
