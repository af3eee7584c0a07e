"""What a store in PostgreSQL has beside that in a file: servers, locks, passwords.

`test_budget_store` runs on both.
"""

import json
import threading
import time
import traceback

import psycopg
import pytest

from discreet.errors import ConfigError, DamagedStore, DataError
from discreet.privacy import Budget, BudgetStore, Plan, Release
from discreet.privacy.release import budget_store_postgres
from discreet.privacy.release.budget_store_log import append
from discreet.privacy.release.budget_store_postgres import hide_password
from support import postgres


def plan(epsilon=0.5):
    return Plan.calibrate([Release("sums", 4)], Budget(epsilon))


@pytest.fixture
def store(postgres_url):
    made = BudgetStore(postgres_url)
    made.open("customers", 2.0)
    return made


def test_a_writer_waits_for_the_one_before_and_readers_for_no_one(store, postgres_url):
    account = store["customers"]
    waiting = threading.Thread(target=account.reserve, args=(plan(), "secure", "second"))
    with store._open_write() as (base, _):
        waiting.start()
        time.sleep(0.5)
        assert waiting.is_alive()
        assert store.verify().records == 1  # of the state before both
        with psycopg.connect(postgres_url) as other:
            locks = other.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
        assert locks == (1,)
        base.insert("ledgers", "x", "y", "z")
        base.base.execute("ROLLBACK")
        base.base.execute("BEGIN")
    waiting.join(60)
    assert [record.kind for record in store.log()] == ["open", "reserve"]


def test_a_writer_whose_connection_ends_has_reserved_nothing(store, postgres_url):
    def reserve_without_a_server():
        with store._open_write() as (base, log):
            append(base, log, "customers", "reserve", "r", 5, 5, {"plan": ""})
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (base.base.info.backend_pid,))

    with pytest.raises(DataError, match="cannot be used as a store of budgets"):
        reserve_without_a_server()
    assert store.verify().records == 1


def test_a_client_that_falls_silent_does_not_keep_the_others_waiting(store, monkeypatch):
    settings = budget_store_postgres._SETTINGS.replace("'60s'", "'1s'")
    monkeypatch.setattr(budget_store_postgres, "_SETTINGS", settings)
    with pytest.raises(DataError, match="idle-in-transaction"), store._open_write():
        time.sleep(2.5)
    store["customers"].reserve(plan(), "secure", "x")


def test_a_lock_is_not_waited_for_longer_than_said(store, monkeypatch):
    settings = budget_store_postgres._SETTINGS.replace("'120s'", "'1s'")
    monkeypatch.setattr(budget_store_postgres, "_SETTINGS", settings)
    with store._open_write(), pytest.raises(DataError, match="lock timeout"):
        store["customers"].reserve(plan(), "secure", "x")


def test_commits_are_on_disk_whatever_the_servers_default(store, postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as base:
        name = base.info.dbname
        base.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with store._open_write() as (base, _):
        assert base.base.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_a_server_that_forgets_is_refused(postgres_server):
    refused = pytest.raises(DataError, match=r"has fsync = off\. Turn fsync on")
    with postgres.server("fsync=off") as url, refused:
        BudgetStore(f"{url}/postgres").open("customers", 1.0)


def test_tables_are_read_without_an_index(store, postgres_url):
    """A covering index that lacks rows would hide spending."""
    with psycopg.connect(postgres_url, autocommit=True) as base:
        base.execute("CREATE INDEX ON discreet_budget.head (id, sequence, hash)")
    with store._open_read() as (base, _):
        for table in ("log", "ledgers", "head"):
            found = base.base.execute(f"EXPLAIN (FORMAT JSON) SELECT * FROM {table}").fetchone()
            assert found[0][0]["Plan"]["Node Type"] == "Seq Scan"


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ("DROP TABLE discreet_budget.head", DamagedStore, "PostgreSQL cannot read its tables"),
        ("DELETE FROM discreet_budget.head", DamagedStore, "missing at its end"),
        ("COMMENT ON SCHEMA discreet_budget IS 'mine'", DataError, "another program"),
        ("DROP SCHEMA discreet_budget CASCADE", DataError, "open an account in it first"),
    ],
)
def test_a_changed_database_reserves_nothing(store, postgres_url, change, error, why):
    account = store["customers"]
    with psycopg.connect(postgres_url, autocommit=True) as base:
        base.execute(change)
    for use in (store.verify, lambda: account.reserve(plan(0.1), "secure", "x")):
        with pytest.raises(error, match=why):
            use()


def test_a_role_that_may_only_append_is_enough(store, postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as base:
        role = f"trainer{time.time_ns()}"
        base.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        base.execute(f"GRANT USAGE ON SCHEMA discreet_budget TO {role}")
        base.execute(f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA discreet_budget TO {role}")
        base.execute(f"GRANT UPDATE ON discreet_budget.head TO {role}")
    place = postgres_url.rpartition("@")[2]
    BudgetStore(f"postgresql://{role}:x@{place}")["customers"].reserve(plan(), "secure", "x")
    assert store.verify().records == 2


# ------------------------------------------------------------ passwords


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgres://me:se@cret@a:1,b:2/db?password=secret", "postgresql://me@a:1,b:2/db"),
        ("postgresql:///db?host=/run/x", "postgresql:///db"),
        ("postgresql://host", "postgresql://host"),
        ("postgresql://[::1]:5432/db?user=me@corp", "postgresql://[::1]:5432/db"),
        ("postgresql://me:se/cret@host/db", "postgresql://(hidden)"),
        ("postgresql://me:se?cret@host/db", "postgresql://(hidden)"),
        ("postgresql://me:se@cr/et@host/db", "postgresql://(hidden)"),
    ],
)
def test_a_location_has_no_password(url, location):
    assert hide_password(url) == location
    assert repr(BudgetStore(url)) == f"BudgetStore({location!r})"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:%zzsecret@127.0.0.1:1/db",
        "postgresql://me:secret@127.0.0.1:1/db",
        "postgresql://me:secret/x@127.0.0.1:1/db",
        "postgresql://me:x/secret@127.0.0.1:1/db",
        "postgresql://me:secret?x@127.0.0.1:1/db",
    ],
)
def test_no_error_has_the_password(url):
    with pytest.raises((ConfigError, DataError)) as caught:
        BudgetStore(url).accounts()
    assert "secret" not in "".join(traceback.format_exception(caught.value)).replace(url, "")


def test_the_command_line_prints_no_password(run, postgres_url, tmp_path):
    opened = run("budget", "open", f"{postgres_url}:customers", "--epsilon", 2)
    assert opened.code == 0, opened.err
    shown = [run("budget", verb, postgres_url, "--json") for verb in ("show", "log", "verify")]
    charge = ["--epsilon", 1, "--out", tmp_path / "m", "--account", f"{postgres_url}:customers"]
    trained = run("train", "cinema", "--scale", 0.1, *charge)
    assert f"{hide_password(postgres_url)}:customers: μ²" in trained.out
    failed = [
        run("budget", "show", f"{postgres_url}:nobody"),
        run("budget", "open", postgres_url, "--epsilon", 2),
        run("budget", "verify", f"{postgres_url}:customers"),
        run("budget", "backup", postgres_url, "--out", f"{postgres_url}"),
        run("train", "x.csv", "--epsilon", 1, "--out", "m", "--account", postgres_url),
    ]
    assert [result.code for result in shown] == [0, 0, 0]
    assert [result.code for result in failed] == [2] * len(failed)
    assert json.loads(shown[0].out)["store"] == hide_password(postgres_url)
    for result in (opened, trained, *shown, *failed):
        assert postgres.ENCODED not in result.out + result.err
        assert postgres.PASSWORD not in result.out + result.err
