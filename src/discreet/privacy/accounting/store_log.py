"""The append-only log of a `discreet.BudgetStore`: records in a chain of hashes, and ledgers beside it.

Nothing here decides anything: it writes what it is told, adds up, and finds out whether what is there is in order. Like
that of a ledger, the chain is a checksum and no signature. Whoever rewrites all of it is caught by nothing but a hash
that somebody else has kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from discreet.errors import PrivacyError
from discreet.privacy.accounting import events as accounting
from discreet.privacy.accounting.events import Event

#: So many units are a μ² of one.
UNITS = 2**50

TABLES = """
CREATE TABLE log (
    sequence INTEGER PRIMARY KEY, time TEXT NOT NULL, account TEXT NOT NULL, kind TEXT NOT NULL,
    reservation TEXT NOT NULL, units INTEGER NOT NULL, draws INTEGER NOT NULL, content TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX once ON log (kind, account, reservation);
CREATE INDEX by_account ON log (account);
CREATE TABLE ledgers (reservation TEXT PRIMARY KEY, sha256 TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TRIGGER log_stays BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'nothing is changed here'); END;
CREATE TRIGGER log_is_kept BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'nothing is removed here'); END;
CREATE TRIGGER ledgers_stay BEFORE UPDATE ON ledgers BEGIN SELECT RAISE(ABORT, 'nothing is changed here'); END;
CREATE TRIGGER ledgers_are_kept BEFORE DELETE ON ledgers BEGIN SELECT RAISE(ABORT, 'nothing is removed here'); END;
"""


@dataclass(frozen=True)
class Record:
    """One line of the log. ``units`` and ``draws`` are what it adds to the account's use, negative for what came back.

    ``kind`` is "open" (an account), "reserve" (before a training), "settle" (after it) or "broken" (it was settled, but
    something had left without noise: the account promises nothing from then on).
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


def append(
    base: sqlite3.Connection, account: str, kind: str, reservation: str, units: int, draws: int, content: dict[str, Any]
) -> None:
    """Add a record to the end of the chain; within the caller's transaction."""
    last = base.execute("SELECT sequence, hash FROM log ORDER BY sequence DESC LIMIT 1").fetchone() or (0, "")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    row = (last[0] + 1, now, account, kind, reservation, units, draws, text)
    base.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, _chained(last[1], row)))


def _chained(previous: str, row: tuple[Any, ...]) -> str:
    return digest(previous + json.dumps(row, separators=(",", ":")))


def digest(text: str) -> str:
    """SHA-256, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def _record(row: tuple[Any, ...]) -> Record:
    sequence, time, account, kind, reservation, units, draws, content, end = row
    return Record(sequence, time, account, kind, reservation, units, draws, json.loads(content), end)


def records(base: sqlite3.Connection) -> Iterator[Record]:
    """All of them, oldest first."""
    for row in base.execute("SELECT * FROM log ORDER BY sequence"):
        yield _record(row)


def found(base: sqlite3.Connection, account: str, kind: str, reservation: str) -> Record | None:
    """The one record of that kind for a reservation, if there is one."""
    row = base.execute(
        "SELECT * FROM log WHERE account = ? AND kind = ? AND reservation = ?", (account, kind, reservation)
    ).fetchone()
    return None if row is None else _record(row)


def opened(base: sqlite3.Connection, name: str) -> dict[str, Any] | None:
    """What an account was opened with."""
    record = found(base, name, "open", "")
    return None if record is None else record.content


def names(base: sqlite3.Connection) -> list[str]:
    """All accounts, in the order in which they were opened."""
    return [name for (name,) in base.execute("SELECT account FROM log WHERE kind = 'open' ORDER BY sequence")]


def used(base: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Units and draws that the account has spent or reserved."""
    sums = "SELECT COALESCE(SUM(units), 0), COALESCE(SUM(draws), 0) FROM log WHERE account = ?"
    units, draws = base.execute(sums, (name,)).fetchone()
    return int(units), int(draws)


def unsettled(base: sqlite3.Connection, name: str) -> tuple[int, int]:
    """How many reservations of the account were never settled, and their units."""
    found = base.execute(
        "SELECT COUNT(*), COALESCE(SUM(units), 0) FROM log WHERE account = ? AND kind = 'reserve' AND reservation "
        "NOT IN (SELECT reservation FROM log WHERE account = ? AND kind IN ('settle', 'broken'))",
        (name, name),
    )
    number, units = found.fetchone()
    return int(number), int(units)


def kinds(base: sqlite3.Connection, name: str) -> dict[str, int]:
    """How many records of each kind the account has."""
    return dict(base.execute("SELECT kind, COUNT(*) FROM log WHERE account = ? GROUP BY kind", (name,)))


def cost(events: list[Event]) -> int:
    """Σμ² in units, rounded up; `discreet.privacy.accounting.lifetime` says why this is the price."""
    if any(event.count and event.law for event in events):
        raise PrivacyError(
            "the best of a secret number of trainings has no price in μ, so that no account can be charged for it: "
            "tune with law='composed', which has one"
        )
    if any(event.count and not math.isfinite(event.mu) for event in events):
        raise PrivacyError("this training has no price in μ, so that no account can be charged for it")
    return math.ceil(accounting.total_mu(events) ** 2 * (1 + 1e-13) * UNITS)  # a hair for rounding of the square


# ------------------------------------------------------------------ verifying


def check_chain(chain: list[Record]) -> None:
    """Raise unless every record follows from the one before."""
    previous = ""
    for position, r in enumerate(chain, start=1):
        text = json.dumps(r.content, sort_keys=True, allow_nan=False)
        row = (r.sequence, r.time, r.account, r.kind, r.reservation, r.units, r.draws, text)
        if r.sequence != position or r.hash != _chained(previous, row):
            raise PrivacyError(f"the log was changed after it was written: record {position} breaks the hash chain")
        previous = r.hash


def check_account(name: str, own: list[Record], archived: Mapping[str, str]) -> None:
    """The sums of one account, step by step, and the ledgers that they rest on."""
    first = own[0]
    held: dict[str, Record] = {}
    units = 0
    draws = 0
    for record in own[1:]:
        units += record.units
        draws += record.draws
        if record.kind == "reserve":
            held[record.reservation] = record
        elif record.kind in ("settle", "broken"):
            if record.reservation not in held:
                raise PrivacyError(f"record {record.sequence} settles what was never reserved, or twice")
            _check_settled(record, held.pop(record.reservation), archived)
        else:
            raise PrivacyError(f"record {record.sequence} of the account {name!r} is of no known kind")
        if units > first.content["limit"] or draws > first.content["draws"]:
            raise PrivacyError(f"record {record.sequence} overspends the account {name!r}")


def _check_settled(record: Record, reserved: Record, archived: Mapping[str, str]) -> None:
    from discreet.privacy.door.ledger import Ledger

    checksum, _, text = archived.get(record.reservation, "").partition(" ")
    if not text or not checksum == record.content["ledger"] == digest(text):
        raise PrivacyError(f"the ledger that record {record.sequence} names is missing, or was changed")
    ledger = Ledger.from_dict(json.loads(text))  # which verifies its own chain
    taken = reserved.units if record.kind == "broken" else cost(ledger.events())
    if record.units != taken - reserved.units or reserved.content["plan"] != digest(ledger.plan.to_json()):
        raise PrivacyError(f"record {record.sequence} gives back something else than its ledger says")
