"""The log of a `discreet.BudgetStore` in an SQLite file.

One writer at a time (``BEGIN IMMEDIATE``), every commit on disk before a rating is sealed. This
needs a file system with working locks, which network shares often lack. What is committed is in the
file itself (a rollback journal, no write-ahead log), so a copy of the file holds all of it. A
writing transaction has SQLite check all pages before it reads the log.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from discreet.errors import ConfigError, DataError
from discreet.privacy.release.budget_store_log import Damage

_TABLES = """
CREATE TABLE log (
    sequence INTEGER PRIMARY KEY, time TEXT NOT NULL, account TEXT NOT NULL, kind TEXT NOT NULL,
    reservation TEXT NOT NULL, units INTEGER NOT NULL, draws INTEGER NOT NULL, content TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TABLE ledgers (reservation TEXT PRIMARY KEY, sha256 TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER log_stays BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'nothing is changed here'); END;
CREATE TRIGGER log_is_kept BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'nothing is removed here'); END;
CREATE TRIGGER ledgers_stay BEFORE UPDATE ON ledgers BEGIN SELECT RAISE(ABORT, 'nothing is changed here'); END;
CREATE TRIGGER ledgers_are_kept BEFORE DELETE ON ledgers BEGIN SELECT RAISE(ABORT, 'nothing is removed here'); END;
"""  # noqa: E501 (the text is part of the file format)
_APPLICATION = 0x64697363  # "disc", in the header of the file
_VERSION = 2  # 1, of version 0.2, did not record where the chain ends
_WAIT = 120.0  # seconds for other writers
#: Errors of SQLite that say: the file cannot be used here and now. All others are of its content.
_UNUSABLE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


class SQLiteTransaction:
    """A transaction of an SQLite file; see `budget_store_log.Transaction`."""

    def __init__(self, base: sqlite3.Connection):
        self.base = base

    def read(self, table: str) -> list[tuple[Any, ...]]:
        return self.base.execute(f"SELECT * FROM {table} NOT INDEXED").fetchall()

    def insert(self, table: str, *row: Any) -> None:
        self.base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def record_end(self, sequence: int, end: str) -> None:
        self.base.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?)", (sequence, end))

    def check_pages(self) -> None:
        if self.base.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise Damage("its pages do not fit together")


class SQLiteDatabase:
    """An SQLite file; see `budget_store_log.Database`."""

    def __init__(self, path: Path):
        self.path = path
        self.location = str(path)

    @contextmanager
    def begin_read(self) -> Iterator[SQLiteTransaction]:
        if not self.path.is_file():
            raise DataError(
                f"{self.path} does not exist: open an account in it first (discreet budget open)"
            )
        with self._connect() as base:
            self._check_file(base)
            base.execute("BEGIN")  # one state of the file throughout
            yield SQLiteTransaction(base)

    @contextmanager
    def begin_write(self, create: bool = False) -> Iterator[SQLiteTransaction]:
        if create:
            self._create_file()
        elif not self.path.is_file():
            raise DataError(
                f"{self.path} does not exist: open an account in it first (discreet budget open)"
            )
        with self._connect() as base:
            if create and not self._is_ours(base):
                self._create_tables(base)
            self._check_file(base)
            # another process reads just now: the next writing does it
            with suppress(sqlite3.OperationalError):
                base.execute("PRAGMA journal_mode = DELETE")
            base.execute("BEGIN IMMEDIATE")
            try:
                transaction = SQLiteTransaction(base)
                transaction.check_pages()
                yield transaction
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:
                    base.execute("ROLLBACK")
                raise

    @contextmanager
    def begin_copy(self) -> Iterator[SQLiteTransaction]:
        exists = ConfigError(f"{self.path} exists already. Name a new file for the backup.")
        if os.path.lexists(self.path):
            raise exists
        part = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.part")
        try:
            with SQLiteDatabase(part).begin_write(create=True) as transaction:
                yield transaction
            _move_to_new(part, self.path)
        except FileExistsError:
            raise exists from None
        except OSError as error:
            raise _unwritable(self.path, error) from error
        finally:
            for rest in (part, part.with_name(f"{part.name}-journal")):
                rest.unlink(missing_ok=True)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one use: none is ever shared between threads or inherited by a
        child.
        """
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as base:
                # the journal's end as well outlasts a power cut
                base.execute("PRAGMA synchronous = EXTRA")
                yield base
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in _UNUSABLE:
                raise DataError(
                    f"{self.path} cannot be used as a store of budgets: {error}"
                ) from error
            raise Damage("SQLite cannot read its tables") from error
        except UnicodeDecodeError as error:
            # from an error of SQLite that quotes what it cannot read
            raise Damage("SQLite cannot read its tables") from error

    def _create_file(self) -> None:
        """Make the file, for its owner alone; SQLite gives its journal the same permissions.

        A file that exists is never opened: to close a file of SQLite would drop the locks that
        other threads of this process hold on it.
        """
        try:
            with suppress(FileExistsError):
                path = os.path.realpath(self.path)
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _create_tables(self, base: sqlite3.Connection) -> None:
        base.execute("BEGIN IMMEDIATE")
        if not self._is_ours(base):  # another process may have been first
            if base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                base.execute("ROLLBACK")
                raise DataError(
                    f"{self.path} is another program's database: name a new file for the store"
                )
            for statement in _TABLES.split(";\n"):
                if statement.strip():
                    base.execute(statement)
            base.execute(f"PRAGMA application_id = {_APPLICATION}")
            base.execute(f"PRAGMA user_version = {_VERSION}")
        base.execute("COMMIT")

    def _is_ours(self, base: sqlite3.Connection) -> bool:
        return bool(base.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION)

    def _check_file(self, base: sqlite3.Connection) -> None:
        if not self._is_ours(base):
            raise DataError(f"{self.path} is not a store of budgets: open an account in a new file")
        version = base.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            raise DataError(
                f"{self.path} was written by another version of discreet (format {version})"
            )


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be written: {error.strerror or error}")


def _move_to_new(part: Path, target: Path) -> None:
    """Rename a file, but never over another one."""
    try:
        os.link(part, target)  # a rename would replace a file that another process has just made
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise
        part.rename(target)
