"""The log of a `discreet.BudgetStore` in a PostgreSQL database, for teams with several hosts.

The three tables are those of the SQLite file, in a schema of their own (``discreet_budget``): one
database, one store.

1. A writer locks the table ``head`` before it reads the log, so there is one writer at a time and
   nothing changes between the check and the record (READ COMMITTED, lock first). Readers see one
   snapshot (REPEATABLE READ) and wait for no one.
2. A commit waits for the server's disk even where ``synchronous_commit`` is off; a server with
   ``fsync = off`` is refused.
3. A client that dies in a transaction has reserved nothing: the server rolls back when the
   connection closes, or after a minute where the host vanished.
4. The log is read by a scan of the table, never through an index, and checked against its chain of
   hashes within the transaction that writes. PostgreSQL has no check of all pages that a plain user
   may call; the chain covers every value that is used.

The password of the URL is never shown: `location` leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from discreet.errors import ConfigError, DataError
from discreet.privacy.release.budget_store_log import Damage

if TYPE_CHECKING:
    import psycopg

SCHEMES = ("postgresql://", "postgres://")
HIDDEN = "postgresql://(hidden)"
_HOST = r"(?:\[[^\]@]*\]|[^\[:@/?,]*)(?::\d*)?"
_URL = re.compile(
    rf"postgres(?:ql)?://(?:(?P<login>[^/?]*)(?P<at>@))?(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<name>(?:/[^@?]*)?)(?:\?.*)?"
)
_FORMAT = "discreet store of budgets, format 2"
_TABLES = f"""
CREATE SCHEMA discreet_budget;
COMMENT ON SCHEMA discreet_budget IS '{_FORMAT}';
SET LOCAL search_path = discreet_budget;
CREATE TABLE log (
    sequence BIGINT PRIMARY KEY, time TEXT NOT NULL, account TEXT NOT NULL, kind TEXT NOT NULL,
    reservation TEXT NOT NULL, units BIGINT NOT NULL, draws BIGINT NOT NULL,
    content TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE ledgers (reservation TEXT PRIMARY KEY, sha256 TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1), sequence BIGINT NOT NULL, hash TEXT NOT NULL
);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'nothing is changed or removed here'; END $$;
CREATE TRIGGER log_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON log
    EXECUTE FUNCTION refuse();
CREATE TRIGGER ledgers_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON ledgers
    EXECUTE FUNCTION refuse();
"""
#: Reading goes through no index. A lock is waited for as long as SQLite's; a client that is silent
#: for a minute in a transaction is gone, and must not keep the others waiting.
_SETTINGS = """
SET LOCAL search_path = discreet_budget;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_indexonlyscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL lock_timeout = '120s';
SET LOCAL idle_in_transaction_session_timeout = '60s';
SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') = 'off';
"""


class PostgresTransaction:
    """A transaction of a database; see `budget_store_log.Transaction`."""

    def __init__(self, base: psycopg.Connection[Any]):
        self.base = base

    def read(self, table: str) -> list[tuple[Any, ...]]:
        return self.base.execute(f"SELECT * FROM {table}").fetchall()

    def insert(self, table: str, *row: Any) -> None:
        self.base.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)

    def record_end(self, sequence: int, end: str) -> None:
        self.base.execute(
            "INSERT INTO head VALUES (1, %s, %s) ON CONFLICT (id)"
            " DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash",
            (sequence, end),
        )

    def check_pages(self) -> None:
        """Do nothing: see 4. above."""


class PostgresDatabase:
    """A PostgreSQL database; see `budget_store_log.Database`.

    Parameters
    ----------
    url : as libpq reads it: ``postgresql://user@host:5432/database?sslmode=verify-full``
    """

    def __init__(self, url: str):
        self._url = url
        self.location = hide_password(url)

    @contextmanager
    def begin_read(self) -> Iterator[PostgresTransaction]:
        with self._connect() as base:
            base.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._check_schema(base)
            base.execute(_SETTINGS)
            yield PostgresTransaction(base)
            base.execute("ROLLBACK")

    @contextmanager
    def begin_write(self, create: bool = False) -> Iterator[PostgresTransaction]:
        with self._connect() as base:
            if create:
                self._create_tables(base)
            base.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            self._check_schema(base)
            if base.execute("SHOW fsync").fetchone() == ("off",):
                raise DataError(
                    f"{self.location} may forget what was spent: its server has fsync = off. Turn"
                    " fsync on."
                )
            base.execute(_SETTINGS)
            base.execute("LOCK TABLE head IN EXCLUSIVE MODE")
            yield PostgresTransaction(base)
            base.execute("COMMIT")

    @contextmanager
    def begin_copy(self) -> Iterator[PostgresTransaction]:
        with self.begin_write(create=True) as transaction:
            if transaction.read("log"):
                raise ConfigError(
                    f"{self.location} has accounts already. Name a new database for the backup."
                )
            yield transaction

    @contextmanager
    def _connect(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection for one use: none is ever shared between threads or inherited by a
        child. Whatever was not committed is rolled back when it closes.
        """
        psycopg = _import_psycopg()
        try:
            if self.location == HIDDEN:
                raise psycopg.ProgrammingError
            # of libpq; a value in the URL comes first
            options = {"connect_timeout": "15"} | psycopg.conninfo.conninfo_to_dict(self._url)
        except psycopg.Error:  # whose message may quote a part of the password
            raise ConfigError(
                f"{self.location} is not a valid URL. Write"
                " postgresql://user@host:5432/database, with special characters percent-encoded."
            ) from None
        base = None
        try:
            base = psycopg.connect(
                **options, autocommit=True, prepare_threshold=None, client_encoding="utf8"
            )
            yield base
        except psycopg.Error as error:
            # XX001, XX002: corrupted data or index; 42P01, 42703: no such table, no such column
            if error.sqlstate in ("XX001", "XX002", "42P01", "42703"):
                raise Damage("PostgreSQL cannot read its tables") from error
            reason = str(error).strip().partition("\n")[0]
            raise DataError(
                f"{self.location} cannot be used as a store of budgets: {reason}"
            ) from error
        finally:
            if base is not None:
                base.close()

    def _create_tables(self, base: psycopg.Connection[Any]) -> None:
        with base.transaction():
            base.execute("SELECT pg_advisory_xact_lock(hashtext('discreet_budget'))")
            if _read_format(base) is None:
                base.execute(_TABLES)

    def _check_schema(self, base: psycopg.Connection[Any]) -> None:
        found = _read_format(base)
        if found is None:
            raise DataError(
                f"{self.location} has no store of budgets: open an account in it first (discreet"
                " budget open)"
            )
        if found != _FORMAT:
            raise DataError(
                f"{self.location} was written by another version of discreet, or by another"
                f" program ({found[:60]!r})"
            )


def hide_password(url: str) -> str:
    """Shorten a URL to user, host and database; show nothing of one with a bare / or ? in its
    password, where no one can tell which part is secret.
    """
    parts = _URL.fullmatch(url)
    if parts is None:
        return HIDDEN
    login, at, host, name = parts.group("login", "at", "hosts", "name")
    return f"postgresql://{(login or '').partition(':')[0]}{at or ''}{host}{name}"


def _read_format(base: psycopg.Connection[Any]) -> str | None:
    """Return the comment of the schema, "" for none, None where there is no such schema."""
    row = base.execute(
        "SELECT coalesce(obj_description(oid, 'pg_namespace'), '')"
        " FROM pg_namespace WHERE nspname = 'discreet_budget'"
    ).fetchone()
    return None if row is None else str(row[0])


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            "A store in PostgreSQL needs psycopg. Install it: pip install 'discreet[postgres]'."
        ) from error
    return psycopg
