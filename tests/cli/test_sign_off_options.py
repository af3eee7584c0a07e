"""``discreet report --sign-off``."""

import json

import pytest


def test_the_page_is_written_and_says_what_is_missing(run, private, tmp_path):
    result = run("report", private / "model", "--sign-off", "--out", tmp_path / "page.html")
    assert result.code == 0, result.err
    assert "missing: an account, an audit, the conformance checks, a purpose" in result.out
    assert "Privacy sign-off" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_conformance_kit_is_run_where_asked_for(run, private, tmp_path):
    result = run(
        "report",
        private / "model",
        "--sign-off",
        "--conformance",
        "--out",
        tmp_path / "page.html",
        "--json",
    )
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["conformance"]["passed"]
    assert "checks passed, none failed" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_account_that_did_not_pay_ends_in_an_error(run, private, tmp_path):
    store = tmp_path / "people.sqlite"
    run("budget", "open", f"{store}:customers", "--epsilon", 4)
    page = tmp_path / "page.html"
    result = run(
        "report", private / "model", "--sign-off", "--account", f"{store}:customers", "--out", page
    )
    assert result.code == 2
    assert "does not verify: the account 'customers' was not charged" in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert "DOES NOT VERIFY" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--purpose", "x"), "--purpose needs --sign-off"),
        (("--conformance",), "--conformance needs --sign-off"),
        (("--sign-off", "--data", "cinema"), "uses no ratings"),
        (("--sign-off", "--audit", "nowhere.json"), "nowhere.json"),
        (("--sign-off", "--account", "nowhere.sqlite:x"), "does not exist"),
    ],
)
def test_bad_calls_are_one_sentence(run, private, tmp_path, options, said):
    result = run("report", private / "model", "--out", tmp_path / "page.html", *options)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_model_without_a_promise_has_nothing_to_sign(run, shelf, tmp_path):
    result = run("report", shelf / "model", "--sign-off", "--out", tmp_path / "page.html")
    assert result.code == 2
    assert "no guarantee to sign" in result.err
