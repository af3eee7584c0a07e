"""``discreet budget open | show | log | verify`` and ``discreet train --account``."""

import json
import subprocess
import sys
import time

import pytest

from discreet.privacy import BudgetStore


@pytest.fixture
def people(run, tmp_path):
    store = tmp_path / "people.sqlite"
    result = run("budget", "open", f"{store}:customers", "--epsilon", 6, "--note", "decided by the board")
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


def test_a_training_takes_from_its_account_and_the_next_one_is_refused(run, private, people, tmp_path):
    result = train(run, private, tmp_path / "m", f"{people}:customers")
    assert result.code == 0, result.err
    assert "is left; one more of ε = " in result.out
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
    assert "in order" in run("budget", "verify", people, "--head", found["head"]).out
    assert run("budget", "verify", people, "--head", "0" * 64).code == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("budget", "show"), "say which store"),
        (("budget", "show", "nowhere.sqlite"), "does not exist"),
        (("budget", "show", "{people}:nobody"), "no account 'nobody'"),
        (("budget", "open", "{people}", "--epsilon", 1), "whose account"),
        (("budget", "open", "{people}:x"), "give --epsilon"),
        (("budget", "open", "{people}:customers", "--epsilon", 1), "ever reset"),
        (("budget", "open", "{people}:x", "--epsilon", 1, "--factors", 3), "--factors has no meaning"),
        (("budget", "log", "{people}", "--note", "x"), "--note has no meaning"),
        (("budget", "verify", "{people}:customers"), "whole file"),
        (("budget", "model/", "{people}"), "a store goes with one of"),
        (
            ("train", "cinema", "--not-private", "--out", "m", "--account", "{people}:customers"),
            "--account is for private models",
        ),
        (("train", "cinema", "--epsilon", 1, "--out", "m", "--account", "{people}"), "names a store but no account"),
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
