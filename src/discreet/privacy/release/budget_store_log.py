"""The append-only log of a `discreet.BudgetStore`: records in a chain of hashes, and the ledgers
that they name.

Nothing is believed before it is checked. `read` is the only way to the records: it reads the table
itself, never an index, and checks the chain, its recorded end and the ledgers' checksums;
`sum_account` checks the sums of an account while it adds them up. What does not fit raises
`Damage`, which the store reports as `DamagedStore`.

Like that of a ledger, the chain is a checksum and no signature: a file that was rewritten
consistently, or replaced by an older copy, is found only by a hash that was kept elsewhere, such as
in the folder of a model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from discreet.errors import PrivacyError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.pricing import Event

#: So many units are a μ² of one.
UNITS = 2**50

#: Made once: `json.dumps` with separators makes an encoder for every row.
_COMPACT = json.JSONEncoder(separators=(",", ":")).encode

TABLES = ("log", "ledgers", "head")


class Damage(Exception):
    """What is wrong with a store, as the end of a sentence."""


class Transaction(Protocol):
    """One transaction of a database, in its own SQL.

    The tables are ``log`` (the fields of `Record`, in their order), ``ledgers`` (reservation,
    SHA-256 and text) and ``head`` (1, and sequence and hash of the last record: a chain that lost
    its last records is unbroken, so its end is recorded a second time).
    """

    def read(self, table: str) -> list[tuple[Any, ...]]:
        """Read all rows from the table itself, never through an index."""

    def insert(self, table: str, *row: Any) -> None:
        """Add a row."""

    def record_end(self, sequence: int, end: str) -> None:
        """Record where the chain ends."""

    def check_pages(self) -> None:
        """Let the database check its pages, where it can; raises `Damage`."""


class Database(Protocol):
    """A place for one store. Its methods raise `DataError` where it cannot be used, and `Damage`
    where the database itself finds its tables unreadable.
    """

    location: str

    def begin_read(self) -> AbstractContextManager[Transaction]:
        """See one state of the store throughout."""

    def begin_write(self, create: bool = False) -> AbstractContextManager[Transaction]:
        """Be the only writer, after a check of the pages; commit to disk at the end, or roll back
        by any exception.
        """

    def begin_copy(self) -> AbstractContextManager[Transaction]:
        """Fill a new store, which appears whole or not at all; refuse one that exists."""


@dataclass(frozen=True)
class Record:
    """One line of the log. ``units`` and ``draws`` are what it adds to the account's use, negative
    for what came back.

    ``kind`` is "open" (an account), "reserve" (before a training), "settle" (after it) or "broken"
    (it was settled, but something was released without noise: the guarantee of the account no
    longer holds).
    """

    sequence: int
    time: str
    account: str
    kind: str
    reservation: str
    units: int
    draws: int
    content: dict[str, Any]
    hash: str

    @property
    def mu2(self) -> float:
        """What it adds to the account's μ²."""
        return self.units / UNITS

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"mu2": self.mu2}


@dataclass(frozen=True)
class Log:
    """All records of a store, checked, oldest first, and its archived ledgers by reservation."""

    records: tuple[Record, ...]
    ledgers: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """All accounts, in the order in which they were opened."""
        return [record.account for record in self.records if record.kind == "open"]

    def for_account(self, name: str) -> list[Record]:
        """Return the records of one account."""
        return [record for record in self.records if record.account == name]


def read(base: Transaction) -> Log:
    """Read everything, within the caller's transaction, and check it; raises `Damage`."""
    try:
        records = _check_chain(sorted(base.read("log")))
        end = [(1, records[-1].sequence, records[-1].hash)] if records else []
        if base.read("head") != end:
            raise Damage("records are missing at its end")
        return Log(tuple(records), _check_ledgers(base.read("ledgers"), records))
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        # of values that no version has written
        raise Damage(
            f"it holds something that was never written ({type(error).__name__})"
        ) from error


def _check_chain(rows: list[tuple[Any, ...]]) -> list[Record]:
    """Return the records if every one follows from the one before."""
    previous = ""
    found: list[Record] = []
    for position, row in enumerate(rows, start=1):
        if row[0] != position or row[-1] != _chain_hash(previous, row[:-1]):
            raise Damage(f"record {position} breaks the hash chain")
        previous = row[-1]
        sequence, time, account, kind, reservation, units, draws, content, end = row
        found.append(
            Record(
                sequence, time, account, kind, reservation, units, draws, json.loads(content), end
            )
        )
    return found


def _check_ledgers(rows: list[tuple[Any, ...]], records: Sequence[Record]) -> dict[str, str]:
    """Return the archived ledgers if they are those that records name."""
    named = {r.reservation: r for r in records if r.kind in ("settle", "broken")}
    found = {reservation: text for reservation, _, text in rows}
    for reservation, checksum, text in rows:
        if reservation not in named:
            raise Damage(f"the ledger of reservation {reservation} belongs to no record of the log")
        if not checksum == named[reservation].content["ledger"] == digest(text):
            raise Damage(
                f"the ledger that record {named[reservation].sequence} names is missing, or was"
                " changed"
            )
    for reservation, record in named.items():
        if reservation not in found:
            raise Damage(
                f"the ledger that record {record.sequence} names is missing, or was changed"
            )
    return found


def append(
    base: Transaction,
    log: Log,
    account: str,
    kind: str,
    reservation: str,
    units: int,
    draws: int,
    content: dict[str, Any],
) -> Record:
    """Add a record to the end of the chain; within the transaction in which `log` was read."""
    sequence, previous = (
        (log.records[-1].sequence, log.records[-1].hash) if log.records else (0, "")
    )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    row = (sequence + 1, now, account, kind, reservation, units, draws, text)
    end = _chain_hash(previous, row)
    base.insert("log", *row, end)
    base.record_end(sequence + 1, end)
    return Record(*row[:7], content, end)


def _chain_hash(previous: str, row: tuple[Any, ...]) -> str:
    return digest(previous + _COMPACT(row))


def digest(text: str) -> str:
    """SHA-256, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def cost(events: list[Event]) -> int:
    """Σμ² in units, rounded up; `discreet.privacy.release.budget_store` says why this is the
    price.
    """
    if any(event.count and event.law for event in events):
        raise PrivacyError(
            "the best of a secret number of trainings has no price in μ, so that no account can be"
            " charged for it: tune with distribution='fixed', which has one"
        )
    if any(event.count and not math.isfinite(event.mu) for event in events):
        raise PrivacyError(
            "this training has no price in μ, so that no account can be charged for it"
        )
    # a hair for rounding of the square
    return math.ceil(accounting.total_mu(events) ** 2 * (1 + 1e-13) * UNITS)


# ------------------------------------------------------------------ sums


@dataclass
class AccountSums:
    """What the records of one account add up to.

    Attributes
    ----------
    opened : Record
        The first record, with the total.
    units, draws : int
        Spent or reserved.
    held : dict
        Reservations that were never settled.
    trainings : int
        How many were settled.
    broken : bool
        Something left without noise.
    """

    opened: Record
    units: int = 0
    draws: int = 0
    held: dict[str, Record] = field(default_factory=dict)
    trainings: int = 0
    broken: bool = False

    @property
    def reserved(self) -> int:
        """Units of trainings that were never settled."""
        return sum(record.units for record in self.held.values())

    @property
    def left(self) -> int:
        """Units that are not spent."""
        return int(self.opened.content["limit"]) - self.units


#: What an account is opened with, and its balance needs.
_TERMS = {"epsilon", "delta", "neighboring", "allowance", "limit", "draws"}


def sum_account(log: Log, name: str) -> AccountSums | None:
    """Add up an account record by record, and check every step; None where there is no such
    account.
    """
    own = log.for_account(name)
    if not own:
        return None
    if own[0].kind != "open" or own[0].units or own[0].draws or not set(own[0].content) >= _TERMS:
        raise Damage(f"record {own[0].sequence} does not open the account {name!r}")
    sums = AccountSums(own[0])
    seen: set[str] = set()
    for record in own[1:]:
        if record.kind == "reserve":
            _add_reservation(sums, record, seen)
        elif record.kind in ("settle", "broken"):
            _add_settlement(sums, record)
        else:
            raise Damage(f"record {record.sequence} of the account {name!r} is of no known kind")
    return sums


def _add_reservation(sums: AccountSums, record: Record, seen: set[str]) -> None:
    if record.units < 0 or record.draws < 0:
        raise Damage(f"record {record.sequence} reserves less than nothing")
    if record.reservation in seen:
        raise Damage(f"record {record.sequence} reserves what was reserved before")
    seen.add(record.reservation)
    sums.held[record.reservation] = record
    sums.units += record.units
    sums.draws += record.draws
    if sums.left < 0 or sums.draws > sums.opened.content["draws"]:
        raise Damage(f"record {record.sequence} overspends the account {record.account!r}")


def _add_settlement(sums: AccountSums, record: Record) -> None:
    reserved = sums.held.pop(record.reservation, None)
    if reserved is None:
        raise Damage(f"record {record.sequence} settles what was never reserved, or twice")
    if reserved.units + record.units < 0 or reserved.draws + record.draws < 0:
        raise Damage(f"record {record.sequence} gives back more than was reserved")
    sums.units += record.units
    sums.draws += record.draws
    sums.trainings += 1
    sums.broken = sums.broken or record.kind == "broken"


# ------------------------------------------------------------------ verifying


def check_prices(log: Log) -> None:
    """Check that every record gives back what its ledger says, by pricing all ledgers again."""
    reserved = {(r.account, r.reservation): r for r in log.records if r.kind == "reserve"}
    for record in log.records:
        if record.kind in ("settle", "broken"):
            _check_price(
                record,
                reserved[record.account, record.reservation],
                log.ledgers[record.reservation],
            )


def _check_price(record: Record, reserved: Record, text: str) -> None:
    from discreet.privacy.release.ledger import Ledger

    ledger = Ledger.from_dict(json.loads(text))  # which verifies its own chain
    taken = reserved.units if record.kind == "broken" else cost(ledger.events())
    if record.units != taken - reserved.units or reserved.content["plan"] != digest(
        ledger.plan.to_json()
    ):
        raise Damage(f"record {record.sequence} gives back something else than its ledger says")
