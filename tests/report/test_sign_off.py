"""The page for whoever signs: complete, honest about what is missing, and one sheet of paper."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from html import unescape

import pytest

import discreet
from discreet.auditing.conformance.rules import Check, Report
from discreet.data.cinema import make_cinema
from discreet.errors import ConfigError, DataError
from discreet.privacy import Budget, Ledger, Plan, PrivacyStatement, Release
from discreet.privacy.release.plan import title_of
from discreet.report import page
from discreet.report.sign_off import Signing, families, read_audit, render, write_sign_off

AUDIT = {
    "format": "discreet-audit/1",
    "model": "DPALS(4)",
    "claim": {"epsilon": 5.0},
    "data": "generated people",
    "levels": [
        {"name": "transcript", "refuted": False, "unit": "mu", "claimed": 1.1, "found": 1.09},
        {
            "name": "one run",
            "refuted": True,
            "unit": "epsilon",
            "claimed": 5.0,
            "found": "Infinity",
        },
    ],
}


def text_of(page: str) -> str:
    body = page.split("<body>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def charge(account, ledger):
    """Have an account pay for a training that was made without one."""
    account.reserve(ledger.plan, "secure", "x").settle(ledger)


@pytest.fixture(scope="module")
def private(shelf):
    return discreet.load(shelf / "private")


def test_everything_that_has_to_be_signed_is_there(private, shelf, tmp_path):
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 20.0)
    charge(account, private.privacy_.ledger)
    conformance = Report(
        "DPALS(4)", (Check("plan", "as planned", True, ""), Check("twin", "a twin", None, "none"))
    )
    signing = Signing("all guests", "films for tonight", "the board", account, AUDIT, conformance)
    said = text_of(render(private, signing, shelf / "private"))
    statement = private.privacy_
    for expected in (
        "To all guests:",
        "Purpose: films for tonight",
        f"(ε = {statement.epsilon:.4g})",
        "one user added or removed",
        "the board",
        "no filter by counts",
        "account &#39;guests&#39;",
        "the log of 3 records is verified",
        "REFUTED",
        "μ 1.09 of 1.1",
        "1 of 2 checks passed, none failed; not applicable: twin",
        f"Trained by discreet {statement.ledger.library['version']}",
        "the ledger of this model is among them",
        hashlib.sha256((shelf / "private" / "ledger.json").read_bytes()).hexdigest(),
        "Signature",
    ):
        assert expected in said, expected
    assert "another ε" not in said
    assert "DOES NOT VERIFY" not in said


def test_an_account_that_did_not_pay_is_said_at_the_top(private, shelf, tmp_path):
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 20.0)
    discreet.DPALS(4, epsilon=5, rating_range=(1, 5), item_fraction=0.3).fit(
        make_cinema(0, 0.1), account=account
    )
    page = render(private, Signing(account=account), shelf / "private")
    said = text_of(page)
    assert "DOES NOT VERIFY: the account &#39;guests&#39; was not charged for this model." in said
    assert "NOT among them" in said
    assert said.index("DOES NOT VERIFY") < said.index("To all users")
    assert 'class="promise bad uncovered"' in page


def test_a_ledger_has_one_checksum_everywhere(tmp_path):
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("guests", 20.0)
    model = discreet.DPALS(4, epsilon=5, rating_range=(1, 5), item_fraction=0.3)
    model.fit(make_cinema(0, 0.1), account=account).save(tmp_path / "model")
    of_file = hashlib.sha256((tmp_path / "model" / "ledger.json").read_bytes()).hexdigest()
    assert account.log()[-1].content["ledger"] == of_file
    loaded = discreet.load(tmp_path / "model")
    assert of_file in render(loaded, Signing(account=account), tmp_path / "model")
    assert of_file in render(model, Signing())
    assert of_file in page.render(loaded, None, [])
    model.privacy_.ledger.save(tmp_path / "alone.json")
    assert hashlib.sha256((tmp_path / "alone.json").read_bytes()).hexdigest() == of_file


def test_what_is_missing_is_said_to_be_missing(private):
    said = text_of(render(private, Signing()))
    for expected in (
        "No account was given",
        "Not done.",
        "Not checked.",
        "Purpose: not given",
        "not confirmed: no name given",
        "not saved",
    ):
        assert expected in said


def test_every_release_has_its_price_by_two_accountants(private):
    page = render(private, Signing())
    rows = re.findall(r"<tr role=\"row\"><th scope=\"row\" role=\"rowheader\">(.*?)</tr>", page)
    names = [
        title_of(family.name, family.entries[0].shape) for family in families(private.privacy_)
    ]
    priced = [row for row in rows if row.split("</th>")[0] in names]
    assert (
        len(priced) == len(names) == len({entry.name for entry in private.privacy_.ledger.entries})
    )
    for row in priced:
        first, second = (float(value) for value in re.findall(r"<span>([\d.]+)</span>", row)[-2:])
        assert second == pytest.approx(first, rel=2e-3)
    total = next(row for row in rows if "all together" in row)
    first, second = (float(value) for value in re.findall(r"<strong>([\d.]+)</strong>", total)[-2:])
    assert first == pytest.approx(private.privacy_.epsilon, rel=1e-3)
    assert second == pytest.approx(first, rel=2e-3)


def test_numbered_steps_are_one_family():
    plan = Plan.calibrate([Release("sum 1"), Release("sum 2"), Release("counts")], Budget(1.0))
    ledger = Ledger(plan, "secure")
    for line in plan.releases:
        ledger.record(
            line.name,
            mechanism="gaussian",
            sensitivity=1.0,
            norm="l2",
            noise_multiplier=plan.noise_multiplier(line.name),
            shape=(1,),
            where="here",
        )
    found = families(PrivacyStatement.from_ledger(ledger))
    assert [(family.name, len(family.entries)) for family in found] == [("sum", 2), ("counts", 1)]


def test_delta_is_held_against_the_number_of_people_where_it_was_released(private):
    ratings = make_cinema(0, 0.1)
    model = discreet.DPMF(4, epsilon=8, goal="rating", rating_range=(0.5, 5), iterations=2).fit(
        ratings
    )
    people = model.privacy_.ledger.people
    assert abs(people - ratings.n_users) < 0.2 * ratings.n_users
    assert Ledger.from_dict(model.privacy_.ledger.to_dict()).people == people
    assert f"About {people:,.0f} users, as released" in text_of(render(model, Signing()))
    assert "was not released" in text_of(render(private, Signing()))


def test_cautions_and_filters_stand_out(tmp_path):
    ratings = make_cinema(0, 0.05).filter(min_item_ratings=3)
    page = render(discreet.DPMF(3, epsilon=8).fit(ratings), Signing())
    said = text_of(page)
    assert "PRIVATE WITH CAUTIONS" in said
    assert "not confirmed: read from the data" in said
    assert "based on exact counts, not covered by ε" in said
    assert 'class="promise bad"' in page


@pytest.mark.parametrize("name", ["A. Lee (data protection)", ""])
def test_public_users_are_promised_nothing(trained_with_public_users, name):
    model = trained_with_public_users(name)
    found = render(model, Signing())
    said = text_of(found)
    assert "To all private users whose ratings were used:" in said
    assert "Not covered: 20 public users, whose exact ratings the model uses." in said
    assert "Neighboring data sets: one private user added or removed." in said
    (row,) = (row for row in found.split("<tr")[1:] if "users in public_ratings" in row)
    column = text_of("<body>" + row[row.index("</th>") :])
    assert (name or "not confirmed: no name given") in column
    assert ("not confirmed" in column) == (name == "")
    assert "the board" in text_of(render(model, Signing(confirmed_by="the board")))
    assert "To all guests:" in text_of(render(model, Signing(population="all guests")))


def test_models_without_a_promise():
    with pytest.raises(ConfigError, match="no guarantee to sign"):
        render(discreet.ALS(2), Signing())


def test_an_audit_of_another_price_and_a_broken_rule_are_said(private):
    other = {**AUDIT, "claim": {"epsilon": 1.0}}
    broken = Report("x", (Check("silence", "says nothing", False, "said 3"),))
    said = text_of(render(private, Signing(audit=other, conformance=broken)))
    assert "of a model with another ε" in said
    assert "0 of 1 checks passed, 1 failed" in said
    assert "silence: says nothing" in said


def test_words_from_outside_are_no_markup(private):
    nasty = "<script>alert(1)</script>"
    page = render(private, Signing(nasty, nasty, nasty, None, {**AUDIT, "model": nasty}))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("content", ["no json", "[]", '{"levels": 3}', "{}"])
def test_files_that_are_no_audit(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match="discreet audit"):
        read_audit(tmp_path / "a.json")


def test_an_audit_in_a_pipe_or_without_end_is_refused(tmp_path):
    """A pipe that nothing writes to would be waited for, and JSON that is nested without end
    ended in a traceback.
    """
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is not a regular file"):
        read_audit(tmp_path / "pipe")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(DataError, match="discreet audit"):
        read_audit(tmp_path / "deep.json")


def test_an_audit_is_read_from_its_file_or_from_the_output_of_the_command(tmp_path):
    for content in (AUDIT, {"command": "audit", "audit": AUDIT}):
        (tmp_path / "a.json").write_text(json.dumps(content))
        assert read_audit(tmp_path / "a.json")["model"] == "DPALS(4)"
    with pytest.raises(DataError):
        read_audit(tmp_path / "missing.json")


def test_the_policy_allows_the_style_by_its_hash_and_no_script(private, tmp_path):
    write_sign_off(private, tmp_path / "page.html", Signing())
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    policy = unescape(re.search('Content-Security-Policy" content="([^"]*)"', text)[1])
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}';" in policy
    assert "script-src 'none';" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<[^>]*\s(?:style|on\w+)=", text) == []


def test_it_is_one_sheet_and_fits_a_phone(browser, private, tmp_path):
    write_sign_off(private, tmp_path / "page.html", Signing(audit=AUDIT))
    with browser.page(1000) as page:
        page.open(tmp_path / "page.html")
        paper = page.call("Page.printToPDF", preferCSSPageSize=True)
        assert page.complaints() == []
    assert len(re.findall(rb"/Type\s*/Page[^s]", base64.b64decode(paper["data"]))) == 1
    with browser.page(390, phone=True) as page:
        page.open(tmp_path / "page.html")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ------------------------------------------------------------ the statement in a notebook


def test_a_statement_shows_itself_in_a_notebook(private):
    shown = private.privacy_._repr_html_()
    assert "ε = " in shown
    assert private.privacy_.status in shown
    assert "The whole statement" in shown
    assert shown.count("<div") == shown.count("</div>")
