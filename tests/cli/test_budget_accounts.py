"""``discreet budget open | show | log | verify`` and ``discreet train --account``."""

import hashlib
import json
import subprocess
import sys
import time

import pytest

from discreet.privacy import BudgetStore


@pytest.fixture
def people(run, tmp_path):
    store = tmp_path / "people.sqlite"
    result = run(
        "budget", "open", f"{store}:customers", "--epsilon", 6, "--note", "decided by the board"
    )
    assert result.code == 0, result.err
    return store


def train(run, private, to, store, *more, epsilon=5):
    return run(
        "train",
        private / "ratings.csv",
        "--items",
        private / "films.csv",
        "--factors",
        3,
        "--epsilon",
        epsilon,
        "--rating-range",
        "1,5",
        "--out",
        to,
        "--account",
        store,
        *more,
    )


def test_a_training_takes_from_its_account_and_the_next_one_is_refused(
    run, private, people, tmp_path
):
    result = train(run, private, tmp_path / "m", f"{people}:customers")
    assert result.code == 0, result.err
    assert "is left. One more training with ε ≤ " in result.out
    shown = json.loads(run("budget", "show", people, "--json").out)["accounts"]
    assert [account["account"] for account in shown] == ["customers"]
    assert shown[0]["trainings"] == 1
    assert shown[0]["epsilon_spent"] == pytest.approx(5, rel=1e-5)
    again = train(run, private, tmp_path / "m2", f"{people}:customers")
    assert again.code == 2
    assert "would fit" in again.err
    assert len(again.err.strip().splitlines()) == 1
    assert not (tmp_path / "m2").exists()


def test_log_and_verify(run, private, people, tmp_path):
    train(run, private, tmp_path / "m", f"{people}:customers", epsilon=1)
    logged = run("budget", "log", f"{people}:customers")
    assert "decided by the board" in logged.out
    assert "DPMF, ε = 1" in logged.out
    records = json.loads(run("budget", "log", people, "--json").out)["records"]
    assert [record["kind"] for record in records] == ["open", "reserve", "settle"]
    found = json.loads(run("budget", "verify", people, "--json").out)
    assert found["head"] == records[-1]["hash"]
    assert (
        "is verified: 3 records in an unbroken chain"
        in run("budget", "verify", people, "--head", found["head"]).out
    )
    assert run("budget", "verify", people, "--head", "0" * 64).code == 2


def test_the_page_to_sign_and_the_log_have_the_checksum_of_the_ledger(
    run, private, people, tmp_path
):
    train(run, private, tmp_path / "m", f"{people}:customers", epsilon=1)
    checksum = hashlib.sha256((tmp_path / "m" / "ledger.json").read_bytes()).hexdigest()
    assert f"ledger {checksum[:12]}" in run("budget", "log", people).out
    page = tmp_path / "page.html"
    result = run(
        "report", tmp_path / "m", "--sign-off", "--account", f"{people}:customers", "--out", page
    )
    assert result.code == 0, result.err
    assert checksum in page.read_text(encoding="utf-8")


def test_backup(run, people, tmp_path):
    copy = tmp_path / "copy.sqlite"
    found = json.loads(run("budget", "backup", people, "--out", copy, "--json").out)
    assert found["head"] == BudgetStore(people).verify().head == BudgetStore(copy).verify().head
    again = run("budget", "backup", people, "--out", copy)
    assert again.code == 2
    assert "exists already" in again.err
    explained = " ".join(run("budget", "--help").out.split())
    assert "a copy by other means may be damaged or lack recent costs" in explained


def test_a_model_notices_that_an_older_copy_of_its_account_was_put_back(
    run, private, people, tmp_path
):
    older = tmp_path / "older.sqlite"
    run("budget", "backup", people, "--out", older)
    train(run, private, tmp_path / "m", f"{people}:customers", epsilon=1)
    verified = run("budget", "verify", people, "--folder", tmp_path / "m").out
    assert f"It contains the training of {tmp_path / 'm'}." in verified
    older.replace(people)
    for result in (
        train(run, private, tmp_path / "m", f"{people}:customers", "--replace", epsilon=1),
        run("budget", "verify", people, "--folder", tmp_path / "m"),
    ):
        assert result.code == 2
        assert "it is an older copy" in result.err
        assert "Restore a backup" not in result.err, "that is what lost the record"
        assert len(result.err.strip().splitlines()) == 1
    assert run("budget", "verify", people).code == 0  # nothing else can tell


def test_tuning_into_a_model_folder_notices_an_older_account(run, private, people, tmp_path):
    older = tmp_path / "older.sqlite"
    run("budget", "backup", people, "--out", older)
    train(run, private, tmp_path / "m", f"{people}:customers", epsilon=1)
    older.replace(people)
    files = (private / "ratings.csv", "--items", private / "films.csv", "--rating-range", "1,5")
    how = (
        "--try",
        "factors=2,3",
        "--distribution",
        "fixed",
        "--runs",
        1,
        "--epsilon",
        1,
        "--replace",
    )
    result = run("tune", *files, *how, "--out", tmp_path / "m", "--account", f"{people}:customers")
    assert result.code == 2
    assert "it is an older copy" in result.err


def test_a_model_notices_that_its_account_was_opened_anew(run, private, people, tmp_path):
    train(run, private, tmp_path / "m", f"{people}:customers", epsilon=1)
    people.unlink()
    run("budget", "open", f"{people}:customers", "--epsilon", 6, "--note", "decided by the board")
    for result in (
        train(run, private, tmp_path / "m", f"{people}:customers", "--replace", epsilon=1),
        run("budget", "verify", people, "--folder", tmp_path / "m"),
    ):
        assert result.code == 2
        assert "opened anew" in result.err
    assert train(run, private, tmp_path / "new", f"{people}:customers", epsilon=1).code == 0


def test_a_damaged_store_is_one_sentence(run, private, people, tmp_path):
    content = bytearray(people.read_bytes())
    content[content.index(b"customers") + 1] ^= 1
    people.write_bytes(content)
    for result in (
        run("budget", "show", people),
        run("budget", "verify", people),
        train(run, private, tmp_path / "m", f"{people}:customers", epsilon=1),
    ):
        assert result.code == 2
        assert (
            "is damaged or was changed: record 1 breaks the hash chain. Restore a backup"
            in result.err
        )
        assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("budget", "backup", "{people}"), "Name a new file"),
        (("budget", "backup", "{people}:customers", "--out", "x"), "whole store"),
        (("budget", "show", "{people}", "--out", "x"), "--out has no effect"),
        (("budget", "show", "{people}", "--folder", "x"), "--folder has no effect"),
        (("budget", "verify", "{people}", "--folder", "missing"), "does not exist"),
        (("budget", "show"), "no store is given"),
        (("budget", "show", "nowhere.sqlite"), "does not exist"),
        (("budget", "show", "{people}:nobody"), "no account 'nobody'"),
        (("budget", "open", "{people}", "--epsilon", 1), "the account has no name"),
        (("budget", "open", "{people}:x"), "pass --epsilon"),
        (("budget", "open", "{people}:customers", "--epsilon", 1), "ever reset"),
        (
            ("budget", "open", "{people}:x", "--epsilon", 1, "--factors", 3),
            "--factors has no effect",
        ),
        (("budget", "log", "{people}", "--note", "x"), "--note has no effect"),
        (("budget", "verify", "{people}:customers"), "whole store"),
        (("budget", "model/", "{people}"), "a STORE needs one of"),
        (
            ("train", "cinema", "--not-private", "--out", "m", "--account", "{people}:customers"),
            "--account is for private models",
        ),
        (
            ("train", "cinema", "--epsilon", 1, "--out", "m", "--account", "{people}"),
            "names a store but no account",
        ),
    ],
)
def test_bad_calls_are_one_sentence(run, people, tmp_path, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    result = run(*(str(arg).replace("{people}", str(people)) for arg in args))
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_training_that_is_killed_stays_spent(private, people, tmp_path):
    """With SIGKILL, as soon as the log says that the price is reserved."""
    store = BudgetStore(people)
    files = [private / "ratings.csv", "--items", private / "films.csv", "--out", tmp_path / "m"]
    options = ["--epsilon", "2", "--rating-range", "1,5", "--account", f"{people}:customers"]
    command = [sys.executable, "-m", "discreet", "train", *map(str, files), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(store.log()) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.wait()
    kinds = [record.kind for record in store.log()]
    assert kinds[:2] == ["open", "reserve"]
    store.verify()
    balance = store["customers"].balance
    if len(kinds) == 2:  # or it was quicker than we are
        assert balance.unsettled == 1
        assert balance.reserved > 0
    assert balance.epsilon_spent == pytest.approx(2, rel=1e-5)
