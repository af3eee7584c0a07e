"""A damaged store never gives budget back, and is refused by one kind of error."""

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.store_damage import OUTCOMES, run
from discreet.errors import ConfigError, DamagedStore, DataError, PrivacyError
from discreet.privacy import Budget, BudgetStore, Plan, Release
from discreet.privacy.release import budget_store_log
from discreet.privacy.release.budget_store_log import digest

#: Set it to 5000 for the table of docs/budgets.md.
NUMBER = int(os.environ.get("DISCREET_STORE_DAMAGE", "200"))


def plan(epsilon=0.5):
    return Plan.calibrate([Release("sums", 4)], Budget(epsilon))


@pytest.fixture
def store(tmp_path):
    made = BudgetStore(tmp_path / "people.sqlite")
    account = made.open("customers", 2.0)
    for _ in range(3):
        account.reserve(plan(), "secure", "x")
    return made


def change(store, *statements):
    base = sqlite3.connect(store.path)
    for statement in ("DROP TRIGGER log_stays", "DROP TRIGGER log_is_kept", *statements):
        base.execute(statement)
    base.commit()
    base.close()


def test_random_damage_never_gives_budget_back_and_is_never_unexpected():
    found = run(NUMBER, seed=29)
    faults = {name: sum(counter[name] for counter in found.values()) for name in OUTCOMES[2:]}
    assert faults == dict.fromkeys(OUTCOMES[2:], 0)
    assert sum(counter["refused"] for counter in found.values()) > NUMBER / 10
    assert sum(counter["as before"] for counter in found.values()) > NUMBER / 10


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE log SET units = units - 5 WHERE sequence = 3", "record 3 breaks the hash chain"),
        ("UPDATE log SET units = -units WHERE sequence = 3", "record 3 breaks the hash chain"),
        ("UPDATE log SET account = 'another' WHERE sequence = 3", "record 3 breaks the hash chain"),
        ("DELETE FROM log WHERE sequence = 2", "record 2 breaks the hash chain"),
        ("DELETE FROM log WHERE sequence = 4", "records are missing at its end"),
        ("DELETE FROM head", "records are missing at its end"),
        ("DROP TABLE head", "SQLite cannot read its tables"),
        ("INSERT INTO ledgers VALUES ('stray', 'x', 'y')", "belongs to no record"),
    ],
)
def test_a_changed_file_reserves_nothing(store, statement, why):
    account = store["customers"]
    change(store, statement)
    uses = [
        lambda: account.reserve(plan(0.1), "secure", "x"),
        lambda: account.balance,
        lambda: store.open("others", 1.0),
        store.accounts,
        store.verify,
    ]
    for use in uses:
        with pytest.raises(DamagedStore, match=why):
            use()


def test_negative_spending_is_refused_when_it_is_reserved(store, monkeypatch):
    monkeypatch.setattr("discreet.privacy.release.budget_store_log.cost", lambda events: -(2**40))
    with pytest.raises(PrivacyError, match="less than nothing"):
        store["customers"].reserve(plan(0.1), "secure", "x")
    assert len(store.log()) == 4


@pytest.mark.parametrize(
    ("kind", "reservation", "units", "why"),
    [
        ("reserve", "new", -5, "less than nothing"),
        ("settle", "", -(2**62), "gives back more than was reserved"),
        ("settle", "new", -5, "never reserved, or twice"),
        ("grant", "new", -5, "no known kind"),
        ("reserve", "", 5, "reserved before"),
        ("reserve", "new", 2**60, "overspends"),
    ],
)
def test_sums_are_checked_also_where_the_chain_is_whole(store, kind, reservation, units, why):
    """A record as another program could have appended it."""
    account = store["customers"]
    named = reservation or store.log()[-1].reservation
    with store._open_write() as (base, log):
        if kind == "settle":
            base.insert("ledgers", named, digest(""), "")
        budget_store_log.append(
            base, log, "customers", kind, named, units, 0, {"ledger": digest("")}
        )
    for use in (
        store.verify,
        lambda: account.balance,
        lambda: account.reserve(plan(0.1), "secure", "x"),
    ):
        with pytest.raises(DamagedStore, match=why):
            use()


def test_an_account_without_a_total_is_damage(store):
    with store._open_write() as (base, log):
        budget_store_log.append(
            base, log, "others", "open", "", 0, 0, {"note": "by another program"}
        )
    with pytest.raises(DamagedStore, match="record 5 does not open the account 'others'"):
        _ = store["others"].balance


def test_a_balance_does_not_depend_on_an_index(store):
    """An index of a store of the first format, from which entries are missing, hides nothing."""
    left = store["customers"].balance.left
    base = sqlite3.connect(store.path)
    base.execute("CREATE INDEX by_account ON log (account) WHERE sequence < 2")
    base.execute("PRAGMA writable_schema = ON")
    base.execute(
        "UPDATE sqlite_master SET sql = 'CREATE INDEX by_account ON log (account)' WHERE name ="
        " 'by_account'"
    )
    base.commit()
    base.close()
    assert store["customers"].balance.left == left
    for use in (store.verify, lambda: store["customers"].reserve(plan(0.1), "secure", "x")):
        with pytest.raises(DamagedStore, match="do not fit together"):
            use()


def test_what_is_committed_is_in_the_file_itself(store):
    """Also while a process that has just reserved is still there: a copy of the file alone
    loses nothing.
    """
    text = (
        "import os, sys, shutil, sqlite3\n"
        "from discreet.privacy import BudgetStore\n"
        "from tests.privacy.release.test_store_damage import plan\n"
        "store = BudgetStore(sys.argv[1])\n"
        "with sqlite3.connect(store.path) as reader:\n"
        "    reader.execute('SELECT * FROM log').fetchall()\n"
        "    store['customers'].reserve(plan(0.1), 'secure', 'x')\n"
        "    shutil.copy(store.path, sys.argv[2])\n"
        "    os._exit(0)\n"
    )
    copy = store.path.with_name("copy.sqlite")
    subprocess.run(
        [sys.executable, "-c", text, store.path, copy], check=True, cwd=Path(__file__).parents[3]
    )
    assert len(BudgetStore(copy).log()) == len(store.log()) == 5
    assert not [
        file.name
        for file in store.path.parent.iterdir()
        if file.name.endswith(("-wal", "-shm", "-journal"))
    ]


def test_a_store_of_another_format_is_refused(store):
    base = sqlite3.connect(store.path, isolation_level=None)
    base.execute("PRAGMA user_version = 1")
    base.close()
    for use in (store.verify, lambda: store.open("others", 1.0)):
        with pytest.raises(DataError, match=r"another version of discreet \(format 1\)"):
            use()


# ------------------------------------------------------------ files


def test_only_the_owner_can_read_a_store_and_its_backup(tmp_path):
    before = os.umask(0o000)
    try:
        (tmp_path / "link.sqlite").symlink_to(tmp_path / "target.sqlite")
        for name in ("people.sqlite", "link.sqlite"):
            made = BudgetStore(tmp_path / name)
            made.open("customers", 1.0)
            assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o600
            with made._open_write() as (transaction, _):
                base = transaction.base
                base.execute("PRAGMA cache_size = 1")
                base.execute("INSERT INTO ledgers VALUES ('x', 'y', ?)", ("z" * 20_000,))
                journal = Path(f"{os.path.realpath(made.path)}-journal")
                assert stat.S_IMODE(journal.stat().st_mode) == 0o600
                base.execute("ROLLBACK")
                base.execute("BEGIN")
        made.backup(tmp_path / "copy.sqlite")
        assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_backup_is_complete_and_replaces_nothing(store, tmp_path, monkeypatch):
    target = tmp_path / "copy.sqlite"
    assert store.backup(target).head == store.verify().head
    assert BudgetStore(target).log() == store.log()
    with pytest.raises(ConfigError, match="exists already"):
        store.backup(target)
    with pytest.raises(DataError, match="cannot be written"):
        store.backup(tmp_path / "missing" / "copy.sqlite")
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(
            "discreet.privacy.release.budget_store_sqlite._move_to_new", Mock(side_effect=full)
        )
        with pytest.raises(DataError, match=r"other\.sqlite cannot be written: No space left"):
            store.backup(tmp_path / "other.sqlite")
    change(store, "DELETE FROM log WHERE sequence = 4")
    with pytest.raises(DamagedStore):
        store.backup(tmp_path / "other.sqlite")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.sqlite", "people.sqlite"]
