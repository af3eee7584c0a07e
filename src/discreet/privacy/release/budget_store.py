"""One budget for all trainings on the same users, in one file that outlives them.

An *account* stands for a population, with a total (ε, δ) and a neighboring relation. Every training
reserves its cost before it seals a rating, and settles afterwards to what its ledger recorded:

1. Every release is μ-GDP for some μ: Gaussian noise by definition; Laplace and Huber noise by the
   bound of ``Event.mu``, a pure ε being (2Φ⁻¹(1/(1 + e^−ε)))-GDP; a release of a random batch is
   charged as if all users were in it, because given the sample it is a sum over some users,
   and an average over samples that do not depend on the data keeps the same trade-off curve (it is
   convex). Tuning has no such μ and is refused.
2. Σμ² ≤ B² is a *filter*: it holds for releases that are chosen, stopped and charged with all
   earlier results at hand (Smith & Thakurta, "Fully adaptive composition for Gaussian differential
   privacy", 2022), so the whole life of an account is B-GDP, and (ε, δ) for every δ(ε) of that
   curve.
3. What samplers add to δ is counted in draws, with a limit of its own, so that both filters hold
   apart: the guarantee is ε at δ plus `allowance` (1e-12, or a thousandth of δ where that is less).

All amounts are whole numbers (μ² in units of 2⁻⁵⁰, draws), rounded against the account, so sums are
exact. Nothing is ever changed or removed: the balance is the sum over an append-only log, in which
every record holds the hash of the one before, and ledgers are kept as well. A reservation whose
process died was never settled, and stays spent in full. What comes back is only what the ledger
says was never computed, because a ledger records before anything is opened.

The log is in an SQLite file (`budget_store_sqlite`) or in a PostgreSQL database
(`budget_store_postgres`): one writer at a time, every commit on disk before a rating is sealed.
Every use reads the whole log and checks it before it believes a balance, a reservation in the
transaction that writes it: a damaged store is refused and never gives budget back (`DamagedStore`).
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, ConfigError, DamagedStore, PrivacyError
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import DEFAULT_DELTA, Budget, Neighboring
from discreet.privacy.release import budget_store_log
from discreet.privacy.release.budget_store_log import (
    TABLES,
    UNITS,
    AccountSums,
    Damage,
    Database,
    Log,
    Record,
    Transaction,
)
from discreet.privacy.release.budget_store_postgres import SCHEMES, PostgresDatabase
from discreet.privacy.release.budget_store_sqlite import SQLiteDatabase
from discreet.privacy.release.hash_chain import Head

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from discreet.privacy.release.ledger import Ledger
    from discreet.privacy.release.plan import Plan
    from discreet.privacy.release.session import Session

#: Sums of units have to stay far from 2⁶³.
LARGEST_LIMIT = 2**12
#: Less is not offered as something that would fit.
SMALLEST_EPSILON = 1e-3


@dataclass(frozen=True)
class Balance:
    """Total budget of an account and what is left of it.

    Attributes
    ----------
    account : str
    epsilon, delta, neighboring
        The total budget.
    allowance : float
        Addition to δ for samplers and rounding.
    limit, spent, reserved, left : float
        Of μ²: in all, by trainings that were settled, by trainings that are under way or died, and
        for what is to come.
    trainings, unsettled : int
        How many were settled, and how many are under way or died.
    broken : bool
        A training released something without noise, so the guarantee no longer holds.
    """

    account: str
    epsilon: float
    delta: float
    neighboring: str
    allowance: float
    limit: float
    spent: float
    reserved: float
    left: float
    trainings: int
    unsettled: int
    broken: bool

    @property
    def epsilon_spent(self) -> float:
        """ε of everything spent or reserved, at the account's δ."""
        return (
            math.inf
            if self.broken
            else gdp.epsilon(math.sqrt(self.spent + self.reserved), self.delta)
        )

    @property
    def epsilon_left(self) -> float:
        """The ε of one further Gaussian training at the account's δ that uses up the rest,
        rounded down.
        """
        return 0.0 if self.broken else _largest_epsilon(self.left, self.delta)

    def to_dict(self) -> dict[str, Any]:
        spent = self.epsilon_spent
        more = {
            "epsilon_spent": spent if math.isfinite(spent) else "Infinity",
            "epsilon_left": self.epsilon_left,
        }
        return asdict(self) | more


@dataclass(frozen=True)
class Verified:
    """Number of records, ledgers and accounts that a check of the whole log found intact."""

    records: int
    ledgers: int
    accounts: tuple[str, ...]
    head: str


class BudgetStore:
    """Accounts of one or more populations in a file, or in a PostgreSQL database.

    Parameters
    ----------
    path : str or Path
        Path of the SQLite file, made when the first account is opened. For several hosts, the URL
        of a PostgreSQL database, such as ``postgresql://user@host/database`` (needs
        ``discreet[postgres]``; the password is best kept in ``~/.pgpass`` or ``PGPASSWORD``).

    Attributes
    ----------
    location : str
        The path or the URL, without a password.
    path : Path or None
        Of the SQLite file.

    Examples
    --------
    >>> store = BudgetStore("budget.sqlite")  # doctest: +SKIP
    >>> store.open("customers", epsilon=4, delta=1e-6)  # doctest: +SKIP
    >>> discreet.DPMF(epsilon=1).fit(ratings, account=store["customers"])  # doctest: +SKIP
    """

    def __init__(self, path: str | Path):
        self.path: Path | None = None
        self._database: Database
        if isinstance(path, str) and path.startswith(SCHEMES):
            self._database = PostgresDatabase(path)
        else:
            self.path = Path(path)
            self._database = SQLiteDatabase(self.path)
        self.location = self._database.location

    def __repr__(self) -> str:
        return f"BudgetStore({self.location!r})"

    def open(
        self,
        name: str,
        epsilon: float,
        delta: float = DEFAULT_DELTA,
        neighboring: Neighboring = "add-remove",
        note: str = "",
    ) -> Account:
        """Open an account for a population, with a total budget that cannot be changed later.

        Parameters
        ----------
        name : str
            Of the population, without a colon.
        epsilon, delta, neighboring
            As in `Budget`; δ is above 0.
        note : str
            Who they are and who decided, for the log.
        """
        named = isinstance(name, str) and name.isprintable() and name.strip() == name != ""
        if not named or ":" in name:
            raise ConfigError(
                "an account is named by a word such as 'customers', without a colon, and not"
                f" {name!r}"
            )
        budget = Budget(epsilon, delta, neighboring)
        if budget.delta == 0:
            raise ConfigError(
                "an account needs a delta above 0, such as 1e-6, because releases add up as"
                " Gaussian ones"
            )
        allowance = min(1e-12, budget.delta / 1000)
        # half for rounding, half for samplers
        most = gdp.mu(budget.epsilon, budget.delta + allowance / 2) ** 2
        if most > LARGEST_LIMIT:
            raise ConfigError(
                f"epsilon={budget.epsilon:g} is beyond what an account can count, and"
                " would guarantee nothing"
            )
        content = budget.to_dict() | {
            "allowance": allowance,
            "limit": math.floor(most * UNITS),
            "draws": math.floor(allowance / 2 / _draw()),
            "note": note,
            # tells it from an account of the same name and total in another store
            "id": secrets.token_hex(8),
        }
        with self._open_write(create=True) as (base, log):
            if log.for_account(name):
                raise ConfigError(
                    f"{self.location} has an account {name!r} already, and no account is ever reset"
                )
            budget_store_log.append(base, log, name, "open", "", 0, 0, content)
        return Account(self, name)

    def __getitem__(self, name: str) -> Account:
        known = self._read().names
        if name not in known:
            others = f"it has {', '.join(map(repr, known))}" if known else "it has none yet"
            raise ConfigError(f"{self.location} has no account {name!r}: {others}")
        return Account(self, name)

    def accounts(self) -> list[Account]:
        """List the accounts in the order in which they were opened."""
        return [Account(self, name) for name in self._read().names]

    def log(self, name: str | None = None) -> list[Record]:
        """List every record, or those of one account, oldest first."""
        found = self._read()
        return list(found.records) if name is None else found.for_account(name)

    def verify(self, head: str | Head | None = None) -> Verified:
        """Check everything: the database's pages, the chain of hashes, the sums, the ledgers and
        their prices.

        Parameters
        ----------
        head : str or Head, optional
            A hash from an earlier check, or from a model: it has to be in the chain, or records
            were removed since.

        Raises
        ------
        DamagedStore
            Names the first record that is not in order.
        """
        with self._open_read() as (base, log):
            verified = _check_all(base, log)
            if isinstance(head, Head):
                self._check_head(log, head)
            elif head is not None and head not in {record.hash for record in log.records}:
                raise DamagedStore(
                    f"{self.location} lacks the record with the hash {head[:12]}…: records were"
                    " taken away, or it is an older copy. Put the newest copy in its place: this"
                    " one has forgotten what was spent since."
                )
        return verified

    def backup(self, path: str | Path) -> Verified:
        """Copy the store to a new file or an empty database, whole or not at all, and verify the
        copy.

        Other processes may use the store at the same time.

        Parameters
        ----------
        path : as in `BudgetStore`; a file that exists, or a database with accounts, is refused
        """
        with self._open_read() as (base, _):
            tables = {table: base.read(table) for table in TABLES}
        copy = BudgetStore(path)
        with copy._raise_damage(), copy._database.begin_copy() as base:
            for table, rows in tables.items():
                for row in rows:
                    base.insert(table, *row)
            return _check_all(base, budget_store_log.read(base))

    def _check_head(self, log: Log, head: Head) -> None:
        """Raise unless the account is the one that the head was taken from, and still has that
        record.
        """
        records = {record.hash: record for record in log.records}
        if head.opened not in records:
            raise DamagedStore(
                f"{self.location} is not the store that the model was charged to: its account"
                f" {head.account[:60]!r} is not there, or was opened anew. Name the right store, or"
                " choose a new folder for the model."
            )
        if head.hash not in records or records[head.hash].sequence != head.sequence:
            raise DamagedStore(
                f"{self.location} lacks record {head.sequence}, which a model carries the hash of:"
                " it is an older copy. Put the newest copy in its place: this one has forgotten"
                " what was spent since."
            )

    @contextmanager
    def _open_read(self) -> Iterator[tuple[Transaction, Log]]:
        with self._raise_damage(), self._database.begin_read() as base:
            yield base, budget_store_log.read(base)

    def _read(self) -> Log:
        with self._open_read() as (_, log):
            return log

    @contextmanager
    def _open_write(self, create: bool = False) -> Iterator[tuple[Transaction, Log]]:
        """Be the only writer, in a transaction in which pages and log were checked."""
        with self._raise_damage(), self._database.begin_write(create) as base:
            yield base, budget_store_log.read(base)

    @contextmanager
    def _raise_damage(self) -> Iterator[None]:
        try:
            yield
        except Damage as error:
            raise DamagedStore(
                f"{self.location} is damaged or was changed: {error}. Restore a backup of it."
            ) from error


@dataclass(frozen=True)
class Account:
    """One population's account in a store."""

    store: BudgetStore
    name: str

    @property
    def balance(self) -> Balance:
        with self.store._open_read() as (_, log):
            return self._balance(self._sums(log))

    def log(self) -> list[Record]:
        """List the account's records, oldest first."""
        return self.store.log(self.name)

    def ledgers(self) -> list[Ledger]:
        """Return the archived ledgers of its trainings, verified, oldest first."""
        from discreet.privacy.release.ledger import Ledger

        log = self.store._read()
        done = [
            record.reservation
            for record in log.for_account(self.name)
            if record.kind in ("settle", "broken")
        ]
        return [Ledger.from_dict(json.loads(log.ledgers[reservation])) for reservation in done]

    def has_ledger(self, ledger: Ledger) -> bool:
        """Tell whether a training with this ledger was charged: the same id, chain, cost and
        number of users.

        A ledger without an id is never recognized: another training could have the same records.
        """
        own = ledger.to_dict()
        log = self.store._read()
        texts = [
            log.ledgers[r.reservation]
            for r in log.for_account(self.name)
            if r.kind in ("settle", "broken")
        ]
        return bool(own["id"]) and any(_same_ledger(own, found) for found in map(json.loads, texts))

    def check_head(self, head: Head | None) -> None:
        """Raise a `DamagedStore` if the account lost records that a model carries the hash of.

        A head of an account with another name says nothing about this one.
        """
        if head is not None and head.account == self.name:
            with self.store._open_read() as (_, log):
                self.store._check_head(log, head)

    @contextmanager
    def charge(self, session: Session, what: str) -> Iterator[Reservation]:
        """Reserve the price of a session's plan, and settle to its ledger when the block ends,
        however it ends.
        """
        held = self.reserve(session.plan, session.ledger.noise, what)
        try:
            yield held
        finally:
            held.head = held.settle(session.ledger)

    def reserve(self, plan: Plan, noise: str, what: str) -> Reservation:
        """Take the price of a plan from the account, before anything is sealed.

        Parameters
        ----------
        plan : Plan
        noise : {"secure"}
            The grade of the noise; anything else protects only while its seed is secret,
            and is refused.
        what : str
            What for, in public words; for the log.

        Raises
        ------
        BudgetExceeded
            Says what would fit.
        DamagedStore
            The file was damaged or changed.
        PrivacyError
            The plan is of another relation, or has no price in μ.
        """
        from discreet.privacy.release.plan import MOST_DRAWS

        units = budget_store_log.cost(plan.events)
        if not any(event.count for event in plan.events):
            raise PrivacyError(
                "this training plans no release, so that it has no price: its model is not private"
            )
        if units < 0:
            raise PrivacyError(
                "this training would cost less than nothing. Report it as a fault of its plan."
            )
        if noise != "secure":
            raise PrivacyError(
                f"the account {self.name!r} is charged for secure noise only, and this noise is"
                f" {noise!r}"
            )
        held = Reservation(self, secrets.token_hex(8), units)
        with self.store._open_write() as (base, log):
            sums = self._sums(log)
            self._admit(plan, units, sums.left, self._balance(sums))
            if sums.draws + MOST_DRAWS > sums.opened.content["draws"]:
                raise BudgetExceeded(
                    f"the account {self.name!r} cannot count further draws of noise: too many"
                    " trainings were made, or crashed, since it was opened"
                )
            content = {
                "what": what,
                "plan": budget_store_log.digest(plan.to_json()),
                "epsilon": plan.budget.epsilon,
            }
            content["delta"] = plan.budget.delta
            budget_store_log.append(
                base, log, self.name, "reserve", held.id, units, MOST_DRAWS, content
            )
        return held

    def _sums(self, log: Log) -> AccountSums:
        found = budget_store_log.sum_account(log, self.name)
        if found is None:
            raise budget_store_log.Damage(f"the account {self.name!r} is gone")
        return found

    def _balance(self, sums: AccountSums) -> Balance:
        opened = sums.opened.content
        return Balance(
            self.name,
            opened["epsilon"],
            opened["delta"],
            opened["neighboring"],
            opened["allowance"],
            limit=opened["limit"] / UNITS,
            spent=(sums.units - sums.reserved) / UNITS,
            reserved=sums.reserved / UNITS,
            left=sums.left / UNITS,
            trainings=sums.trainings,
            unsettled=len(sums.held),
            broken=sums.broken,
        )

    def _admit(self, plan: Plan, units: int, left: int, balance: Balance) -> None:
        if balance.broken:
            raise PrivacyError(
                f"the account {self.name!r} no longer has a guarantee: a training released"
                " something without noise"
            )
        if plan.budget.neighboring != balance.neighboring:
            raise PrivacyError(
                f"the account {self.name!r} is for neighboring={balance.neighboring!r}, and this"
                f" training for {plan.budget.neighboring!r}: costs of two relations do not add up"
            )
        if units > left:
            fits = _largest_epsilon(balance.left, plan.budget.delta)
            remedy = f"epsilon={fits:g} would fit" if fits > 0 else "nothing would fit"
            batches = any(event.rate < 1 and event.count for event in plan.events)
            how = " (batches are charged as if all users were in each of them)" if batches else ""
            raise BudgetExceeded(
                f"the account {self.name!r} has μ² = {balance.left:.6g} of {balance.limit:.6g}"
                f" left, and this training takes {units / UNITS:.6g}{how}: at"
                f" delta={plan.budget.delta:g}, {remedy}"
            )


@dataclass
class Reservation:
    """What a training under way has taken from an account. If it is never settled, all of it stays
    spent.

    Attributes
    ----------
    account : Account
    id : str
        Names the reservation in the log.
    units : int
        How much of μ² was taken, in units of 1 / `UNITS`.
    head : Head or None
        Where the chain ended when it was settled by `Account.charge`.
    """

    account: Account
    id: str
    units: int
    head: Head | None = None

    def settle(self, ledger: Ledger) -> Head:
        """Give back what the ledger says was never computed, and keep the ledger. Can be done
        once.

        Returns where the chain ends now, to be kept outside the store.
        """
        broken = not ledger.private and bool(ledger.entries)
        used = self.units if broken else budget_store_log.cost(ledger.events())
        text = ledger.to_text()
        with self.account.store._open_write() as (base, log):
            name = self.account.name
            sums = self.account._sums(log)
            own = [record for record in log.for_account(name) if record.reservation == self.id]
            if len(own) > 1:
                raise PrivacyError(
                    f"reservation {self.id} of the account {name!r} was settled before"
                )
            reserved = sums.held.get(self.id)
            if reserved is None or reserved.content["plan"] != budget_store_log.digest(
                ledger.plan.to_json()
            ):
                raise PrivacyError(
                    f"the ledger is not of the plan that reservation {self.id} was made for"
                )
            drawn = min(reserved.draws, math.ceil(ledger.noise_delta / _draw()))
            base.insert("ledgers", self.id, budget_store_log.digest(text), text)
            content = {"ledger": budget_store_log.digest(text), "releases": len(ledger.entries)}
            kind = "broken" if broken else "settle"
            units = used - self.units
            draws = drawn - reserved.draws
            end = budget_store_log.append(base, log, name, kind, self.id, units, draws, content)
        return Head(name, sums.opened.hash, end.sequence, end.hash)


def charge_account(
    account: Account | None, session: Session, what: str, head: Head | None = None
) -> AbstractContextManager[Any]:
    """`Account.charge`, or nothing where no account was given; `head` is one that the account
    must still have.
    """
    if account is None:
        return nullcontext()
    if not isinstance(account, Account):
        raise ConfigError(
            "budget is an account, such as BudgetStore('budget.sqlite')['customers'], not"
            f" {type(account).__name__}"
        )
    account.check_head(head)
    return account.charge(session, what)


def _largest_epsilon(left: float, delta: float) -> float:
    """Return the ε of a Gaussian training that takes no more than that of μ², to three digits,
    rounded down.
    """
    if left <= 0 or delta <= 0:
        return 0.0
    found = gdp.epsilon(math.sqrt(left), delta)
    if found < SMALLEST_EPSILON:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(found)) - 2)
    return float(f"{max(0.0, math.floor(found / step) * step):.6g}")


def _same_ledger(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Compare two ledgers; ε is computed anew by every version, so that its last digits may
    differ.
    """
    exact = ("id", "head", "delta", "noise_delta", "people")
    # "Infinity" is read as well
    epsilons = (float(document["epsilon"]) for document in (one, other))
    return all(one.get(name) == other.get(name) for name in exact) and math.isclose(
        *epsilons, rel_tol=1e-6
    )


def _draw() -> float:
    from discreet.privacy.noise.sources import DRAW_DISTANCE

    return DRAW_DISTANCE


def _check_all(base: Transaction, log: Log) -> Verified:
    """Check pages, sums and prices of a log whose chain and ledgers were checked."""
    base.check_pages()
    for name in dict.fromkeys(record.account for record in log.records):
        budget_store_log.sum_account(log, name)
    budget_store_log.check_prices(log)
    end = log.records[-1].hash if log.records else ""
    return Verified(len(log.records), len(log.ledgers), tuple(log.names), end)
