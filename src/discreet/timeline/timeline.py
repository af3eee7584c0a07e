"""`Timeline`: a model that stays fresh at one lifetime ε.

Each call of `add` releases one row: noisy sums over the current ratings of all users, weighted by
age (`privacy/accounting/age_weights` has the theorem). All rows together, any number of them, cost
the ε that was reserved when the timeline was opened. `model` is made of public rows, at any time,
and costs nothing.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import durable_write, only_process, temporary_sibling
from discreet.data.ids import as_ids
from discreet.data.ratings import Ratings
from discreet.data.user_column import check_user_column
from discreet.engines.ages import AgeUsers, HashesUsers, hash_ids, hash_users
from discreet.engines.block_format import SEED
from discreet.engines.user_hash import Secret
from discreet.errors import ConfigError, DamagedStore, PrivacyError
from discreet.models.dpmf.model import DPMF
from discreet.models.dpmf.ranking import PairRanking
from discreet.models.dpmf.released_rows import ReleasedRow, ReleasedRows
from discreet.models.parameters import check_number, check_range, check_that
from discreet.models.storage.read_folder import decode_id
from discreet.models.storage.save_load import encode_id
from discreet.models.user_rows import to_learn_from
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.age_weights import AgeWeights
from discreet.privacy.accounting.budget import DEFAULT_DELTA, Budget
from discreet.privacy.release.budget_store import Account
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import MOST_DRAWS, RESERVE, Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.users.sealed_users import RatingsSource, seal
from discreet.timeline.entries import EntryTable, read_key
from discreet.timeline.public_state import (
    SETTINGS,
    Records,
    pack,
    row_file,
    sha256,
    unpack,
)
from discreet.timeline.row import RowRule, row_shares

FORMAT = "discreet-timeline/2"  # 1 had one age for users "7" and "007"
YEARLY = 52  # rows a year, for renew="yearly"
#: Ratings with which a user enters. One with fewer would spend its largest weights on few pairs.
LEAST_RATINGS = 3
LEAST_FORGETTING = 0.1  # below, a model is made of the last row alone
EVERY_ROW = "all rows of the timeline"


@dataclass(frozen=True)
class TimelineCheck:
    """What `Timeline.verify` found to be in order.

    Attributes
    ----------
    rows, missing : int
        Published rows, and rows that were drawn and lost.
    mu_spent, mu : float
        μ of the user with the worst entry row so far, and of the lifetime.
    head : str
        Hash of the last record.
    """

    rows: int
    missing: int
    mu_spent: float
    mu: float
    head: str


class Timeline:
    """Weekly or daily models of one population at one lifetime ε.

    Opens the timeline in the folder `path`, or makes a new one, which takes its whole budget from
    the account at once. A new one needs `epsilon` and `rating_range`; an existing one refuses
    parameters that differ from its own.

    Parameters
    ----------
    path : path
        Folder of the public part. The secret part is in the folder `path` + ".secret": never share
        it.
    epsilon, delta : float
        The guarantee for everything that the timeline ever releases about one user.
    memory : int
        Rows after which a user's weight has fallen to about 1/e. Default 20.
    rating_range : (low, high)
        Public range of ratings; low = high where every interaction counts alike.
    account : Account, optional
        Charged once with the whole budget.
    renew : "yearly" or int, optional
        Count each user's cost anew after 52 rows, or this many: ε then holds for any period of
        that length, and the account is charged again for each period.
    retention : int, optional
        Rows after which a user's ratings are not used any more.
    key : path, optional
        File with the key of the secret part, written if it is new; by default the environment
        variable DISCREET_TIMELINE_KEY. Keep it apart from both folders.

    Attributes
    ----------
    plan : Plan
        Of the lifetime: one release with the whole budget.
    statement_ : PrivacyStatement
        The guarantee for all rows, past and future.
    rows_ : list of dict
        Released facts about every row.

    Examples
    --------
    >>> timeline = Timeline(  # doctest: +SKIP
    ...     "customers.timeline", epsilon=1, rating_range=(1, 5), key="keys/customers.key"
    ... )
    >>> timeline.add(ratings)  # doctest: +SKIP
    >>> model = timeline.model()  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        memory: int | None = None,
        rating_range: tuple[float, float] | None = None,
        account: Account | None = None,
        renew: Literal["yearly"] | int | None = None,
        retention: int | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = Path(os.fspath(path)).expanduser()
        self.secret_path = self.path.with_name(self.path.name + ".secret")
        self._account = account
        self._key = key
        self._read: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # rows by their records
        given = {
            "epsilon": epsilon,
            "delta": delta,
            "memory": memory,
            "rating_range": None if rating_range is None else [float(x) for x in rating_range],
            "renew": YEARLY if renew == "yearly" else renew,
            "retention": retention,
        }
        if not (self.path / SETTINGS).exists():
            self._create(given)
        self._settings = self._read_settings()
        for name, value in given.items():
            check_that(
                value is None or value == self._settings[name],
                f"{name} is {value!r}, but this timeline was opened with"
                f" {self._settings[name]!r}, which cannot change.",
            )
        self._rule, self.plan = self._make_rule()

    # ------------------------------------------------------------ opening

    def _create(self, given: dict[str, Any]) -> None:
        check_that(
            given["epsilon"] is not None and given["rating_range"] is not None,
            f"There is no timeline in {self.path}. Pass epsilon and rating_range to open one.",
        )
        check_that(
            not self.path.exists() and not self.secret_path.exists(),
            f"{self.path} or {self.secret_path} exists already. Choose another path.",
        )
        delta = DEFAULT_DELTA if given["delta"] is None else given["delta"]
        memory = AgeWeights.memory if given["memory"] is None else given["memory"]
        low, high = given["rating_range"]
        if low < high:
            check_range("rating_range", (low, high))
        Budget(given["epsilon"], delta)
        AgeWeights(memory, given["retention"], given["renew"])
        secret = read_key(self._key, True, self.path, self.secret_path)
        self._settings = {
            "format": FORMAT,
            "id": secrets.token_hex(8),
            **given,
            "delta": delta,
            "memory": memory,
            "key_check": secret.check_value(),
            "neighboring": "add-remove",
        }
        self._rule, self.plan = self._make_rule()
        ledger = self._charge()
        # durable and owner-only before the public part exists
        self.secret_path.mkdir(mode=0o700, parents=True)
        EntryTable.empty().write(self.secret_path)
        with temporary_sibling(self.path) as part:
            durable_write(part / SETTINGS, json.dumps(self._settings, indent=1).encode())
            settings = sha256((part / SETTINGS).read_bytes())
            records = Records(part, ()).append("opened", id=self._settings["id"], sha256=settings)
            records.append("charged", ledger=ledger.to_dict())
            part.rename(self.path)

    def _make_rule(self) -> tuple[RowRule, Plan]:
        """Return how rows are released, and the plan of the lifetime, from settings alone."""
        known = self._settings
        budget = Budget(known["epsilon"], known["delta"])
        lifetime = Plan.from_shares([Release(EVERY_ROW)], budget)
        # estimates combine rows: their noise is about twice that of one training with all of μ
        mu = gdp.mu(budget.epsilon, budget.delta)
        half = Budget(gdp.epsilon(mu / 2, budget.delta), budget.delta)
        low, high = known["rating_range"]
        algorithm = PairRanking().resolve(half, 1, (low, high))
        ages = AgeWeights(known["memory"], known["retention"], known["renew"])
        return RowRule(algorithm, ages), lifetime

    def _charge(self) -> Ledger:
        """Take the lifetime, or one period of it, from the account, and return its ledger."""
        ledger = Ledger(self.plan, "secure")
        for name, text in self._assumptions().items():
            ledger.assume(name, text)
        multiplier = self.plan.noise_multiplier(EVERY_ROW)
        if self._account is not None:
            held = self._account.reserve(self.plan, "secure", "Timeline")
        ledger.record(
            EVERY_ROW,
            mechanism="gaussian",
            sensitivity=1.0,
            norm="l2",
            noise_multiplier=multiplier,
            shape=(1,),
            where="timeline",
        )
        ledger.noise_delta = RESERVE  # draws of all rows that will ever be
        if self._account is not None:
            held.settle(ledger)
        return ledger

    def _assumptions(self) -> dict[str, str]:
        low, high = self._settings["rating_range"]
        ages = self._rule.ages
        over = "any number of rows" if ages.renew is None else f"any {ages.renew} consecutive rows"
        return {
            "items": "the catalog of every row",
            "parameters": "every parameter of the timeline",
            "ratings": f"the range of ratings, {low:g} to {high:g}",
            "timeline": (
                f"that a user of age k counts ⌊2²⁰(1 − 1/{ages.memory})ᵏ⌋/2²⁰ in a row; ε covers"
                f" {over}"
            ),
        }

    def _read_settings(self) -> dict[str, Any]:
        data = (self.path / SETTINGS).read_bytes()
        records = Records.read(self.path)
        if not records.records or records.records[0].get("sha256") != sha256(data):
            raise DamagedStore(f"{self.path / SETTINGS} was changed. Restore the newest copy.")
        found: dict[str, Any] = json.loads(data)
        check_that(found["format"] == FORMAT, f"{self.path} is of another version of discreet.")
        return found

    # ------------------------------------------------------------ rows

    def add(self, ratings: Any, items: Any = None) -> None:
        """Release one row: noisy sums over the current ratings of all users.

        Privacy: releases weighted counts, the weighted number of users, and weighted item pairs or
        counts; one user of age k moves each by at most its weight, so that all rows together cost
        the lifetime ε.

        Parameters
        ----------
        ratings : Ratings, BlockRatings, SparkRatings or a frame
            With a public catalog. Every user's whole history, not only what is new. Users enter
            with three ratings.
        items : optional
            The public catalog, as `fit` takes it, where the ratings have none.
        """
        if items is not None or not isinstance(ratings, RatingsSource):
            ratings = to_learn_from(ratings, items=items)
        check_source(ratings)
        if hasattr(ratings, "ready"):
            ratings.ready()  # bad rows and unlike machines are refused before the row is begun
        with self._alone() as records:
            secret = self._secret()
            table = self._table(records, secret)
            # never below a row that the table was prepared for, whatever the public part says
            row = max(records.next_row, table.row + 1)
            if row == 0 and hasattr(ratings, "user_problem"):
                check_user_column(ratings, tuple(self._settings["rating_range"]))
            records = self._renew(records, row)
            if not records.has_begun(row):
                now = datetime.now(UTC).isoformat(timespec="seconds")
                records = records.append("begun", row=row, time=now)
            table = table.enter(hash_users(ratings, secret, LEAST_RATINGS), row)
            table.write(self.secret_path)
            before, catalog = self._rows(records)
            catalog, items, new = extend(catalog, ratings)
            before = replace(before, n_items=len(catalog))
            records = records.append("drawing", row=row)
            users = seal(ratings, self._rule.algorithm.bounds(), seed=SEED)
            with closing(users):
                weights = self._rule.ages.at(table.ages(row))
                users.apply(AgeUsers(secret.age_key, table.hashes, weights))
                session = Session(self._row_plan())
                released = self._rule.release(users, session, before, items)
            session.finish()
            facts = {
                "row": row,
                "ledger": session.ledger.to_dict(),
                "items": [encode_id(i) for i in new.ids],
                "titles": new.titles,
                "entries": table.digest(secret),
            }
            arrays = ReleasedRows((released,), len(catalog)).to_arrays()
            durable_write(self._sealed(row), pack(arrays, facts), 0o600)
            self._publish(records, row)

    def _publish(self, records: Records, row: int) -> Records:
        """Publish the sealed copy of a row. May be repeated after a crash."""
        sealed = self._sealed(row)
        public = self.path / row_file(row)
        if not public.exists():
            durable_write(public, sealed.read_bytes())
        data = public.read_bytes()
        entries = unpack(data)[1]["entries"]
        records = records.append("published", row=row, sha256=sha256(data), entries=entries)
        sealed.unlink(missing_ok=True)
        return records

    def _sealed(self, row: int) -> Path:
        return self.secret_path / row_file(row)

    def _renew(self, records: Records, row: int) -> Records:
        """Charge the account again where a period begins."""
        renew = self._rule.ages.renew
        while renew is not None and len(records.of_kind("charged")) <= row // renew:
            records = records.append("charged", ledger=self._charge().to_dict())
        return records

    def _row_plan(self) -> Plan:
        shares = row_shares(self._rule.algorithm)
        lines = zip(shares, self.multipliers_, strict=True)
        releases = [Release(name, weight=weight) for name, weight in lines]
        return Plan.explicit(releases, self._settings["delta"])

    @property
    def multipliers_(self) -> list[float]:
        """Noise multipliers of the releases of each row: counts, size, pairs."""
        shares = row_shares(self._rule.algorithm).values()
        return self._rule.ages.multipliers(self.plan.noise_multiplier(EVERY_ROW), shares)

    @contextmanager
    def _alone(self) -> Iterator[Records]:
        """Be the only process that writes, after a row that a crash left was ended."""
        with only_process(self.path / ".lock") as alone:
            if not alone:
                raise ConfigError(f"Another process is adding a row to {self.path}. Wait for it.")
            records = Records.read(self.path)
            for one in records.of_kind("published"):
                self._sealed(one["row"]).unlink(missing_ok=True)
            row = records.find_unfinished
            if row is not None:
                if self._sealed(row).exists() or (self.path / row_file(row)).exists():
                    records = self._publish(records, row)
                else:
                    records = records.append("missing", row=row)
            yield records

    def _secret(self) -> Secret:
        secret = read_key(self._key, False, self.path, self.secret_path)
        check_that(
            secret.check_value() == self._settings["key_check"],
            "This is not the key that the timeline was opened with. Pass that one: with another,"
            " every user would count as new.",
        )
        return secret

    def _table(self, records: Records, secret: Secret) -> EntryTable:
        """Read the table of entries, and refuse one that is older than a row."""
        table = EntryTable.read(self.secret_path)
        published = records.of_kind("published")
        last = published[-1]["row"] if published else -1
        changed = bool(published) and published[-1]["entries"] != table.digest(secret)
        # a newer one was prepared for a row that was not published
        if table.row < last or (table.row == last and changed):
            raise DamagedStore(
                f"{self.secret_path} is not the table of the last row: it is an older copy, or was"
                " changed. Restore the newest copy: with this one users would be charged twice."
            )
        return table

    def _rows(self, records: Records, again: bool = False) -> tuple[ReleasedRows, BornItems]:
        """Read all published rows, or those that are new; a file that was changed is refused."""
        if again:
            self._read.clear()
        catalog = BornItems([], [])
        rows: list[ReleasedRow] = []
        for record in records.of_kind("published"):
            arrays, facts = self._read_row(record)
            catalog = BornItems(
                catalog.ids + [decode_id(one) for one in facts["items"]],
                catalog.titles + facts["titles"],
            )
            found = ReleasedRows.from_arrays(arrays, len(catalog))
            assert found is not None
            rows += found.rows
        return ReleasedRows(tuple(rows), len(catalog)), catalog

    def _read_row(self, record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        if record["hash"] not in self._read:
            data = (self.path / row_file(record["row"])).read_bytes()
            if sha256(data) != record["sha256"]:
                raise DamagedStore(
                    f"{row_file(record['row'])} was changed. Restore the newest copy of {self.path}"
                )
            self._read[record["hash"]] = unpack(data)
        return self._read[record["hash"]]

    # ------------------------------------------------------------ reading out

    def model(self, features: Any = None, *, forgetting: float | None = None) -> DPMF:
        """Return the model of all rows so far: post-processing, at no cost.

        Parameters
        ----------
        forgetting : float, optional
            Weight of a row relative to the next one, from 0.1 to 1, which forgets nothing. By
            default it follows from how much the largest released counts have changed.
        features : file, frame, mapping or array, optional
            Public features of the items, as `item_features` of `DPMF`: numbers, and words that many
            items share, such as genres. Models of a timeline have no profiles, so they take no
            table that has authors alone, and no `PublicItems` with text or similarities.
        """
        if forgetting is not None:
            check_number("forgetting", forgetting, LEAST_FORGETTING)
            check_that(forgetting <= 1, f"forgetting is {forgetting!r}, but must be at most 1.")
        records = Records.read(self.path)
        rows, catalog = self._rows(records)
        check_that(bool(rows.rows), "The timeline has no row yet. Call add first.")
        ledger = self._lifetime_ledger(records)
        budget = ledger.plan.budget
        scale = tuple(self._settings["rating_range"])
        model = DPMF(
            epsilon=budget.epsilon,
            delta=budget.delta,
            rating_range=scale if scale[0] < scale[1] else None,
            item_features=features,
        )
        ids = as_ids(catalog.ids, "item id")
        X = None
        if features is not None:
            from discreet.data.features import item_features

            X = item_features(features, ids)
        learned = replace(self._rule, forgetting=forgetting).learn(rows, X)
        guarantee = self._describe_lifetime(len(rows.rows))
        said = f"{guarantee} {learned.details['learned']}"
        timeline = {
            "rows": len(rows.rows),
            "id": self._settings["id"],
            "head": records.head,
            "guarantee": guarantee,
        }
        details = {**learned.details, "learned": said, "timeline": timeline}
        algorithm = self._rule.algorithm
        model._keep(algorithm, replace(learned, details=details), ledger)
        titles = np.array(catalog.titles, object) if any(catalog.titles) else None
        model.restore_items(ids, learned.factors, learned.biases, titles, None)
        return model

    def _lifetime_ledger(self, records: Records) -> Ledger:
        """Return the ledger of the lifetime; of all periods so far, where users are renewed."""
        charged = records.of_kind("charged")
        first = Ledger.from_dict(charged[0]["ledger"])
        if len(charged) == 1:
            return first
        mu = math.sqrt(len(charged)) / first.plan.noise_multiplier(EVERY_ROW)
        budget = Budget(gdp.epsilon(mu, self._settings["delta"] - RESERVE), self._settings["delta"])
        plan = Plan.from_shares([Release(EVERY_ROW, count=len(charged))], budget)
        ledger = Ledger(plan, "secure")
        for assumption in first.assumptions:
            ledger.assume(assumption.name, assumption.text)
        entry = asdict(first.entries[0]) | {"noise_multiplier": plan.noise_multiplier(EVERY_ROW)}
        for name in ("sequence", "name"):
            entry.pop(name)
        for _ in charged:
            ledger.record(EVERY_ROW, **entry)
        ledger.noise_delta = RESERVE
        return ledger

    @property
    def statement_(self) -> PrivacyStatement:
        records = Records.read(self.path)
        text = self._describe_lifetime(len(records.of_kind("published")))
        return replace(PrivacyStatement.from_ledger(self._lifetime_ledger(records)), learned=text)

    def _describe_lifetime(self, rows: int) -> str:
        """State what ε covers, for statements, services and sign-off pages."""
        renew = self._rule.ages.renew
        so_far = f"{rows} row so far" if rows == 1 else f"{rows} rows so far"
        if renew is None:
            return f"Lifetime ε, {so_far}; ε is the same for any number of rows."
        return (
            f"{so_far}; a user counts anew every {renew} rows, so ε ="
            f" {self._settings['epsilon']:g} holds for any {renew} consecutive rows, and"
            f" ε = {self.epsilon_after(10):.3g} for ten such periods."
        )

    def epsilon_after(self, periods: int) -> float:
        """Return ε of so many renewals: μ grows with the root of their number."""
        mu = math.sqrt(periods) / self.plan.noise_multiplier(EVERY_ROW)
        return gdp.epsilon(mu, self._settings["delta"] - RESERVE)

    @property
    def rows_(self) -> list[dict[str, Any]]:
        records = Records.read(self.path)
        rows, _ = self._rows(records)
        numbers = [one["row"] for one in records.of_kind("published")]
        return [
            {
                "row": number,
                "size": round(row.size, 1),
                "size_deviation": round(row.size_deviation, 1),
                "items": len(row.items),
                "core": len(row.core),
            }
            for number, row in zip(numbers, rows.rows, strict=True)
        ]

    def forget(self, users: Any) -> None:
        """Exclude these users from all later rows, for ever.

        Their ratings are not read again. What earlier rows contain of them stays covered by the
        guarantee, and fades. Nothing public shows that a user was erased.
        """
        with self._alone() as records:
            secret = self._secret()
            table = self._table(records, secret)
            table.erase(hash_ids(users, secret)).write(self.secret_path)

    def verify(self, head: str | None = None) -> TimelineCheck:
        """Check chain, files, ledgers and the cost of all rows; with the key, the table as well.

        Parameters
        ----------
        head : str, optional
            Hash of an earlier check, or in ``details_["timeline"]`` of a model: it has to be in the
            chain, or rows were taken away since.
        """
        records = Records.read(self.path)
        if head is not None and head not in {one["hash"] for one in records.records}:
            raise DamagedStore(
                f"{self.path} lacks the record {head[:12]}…: it is an older copy. Restore the"
                " newest one."
            )
        self._rows(records, again=True)
        multipliers = self.multipliers_
        draws = 0
        for record in records.of_kind("published"):
            ledger = Ledger.from_dict(self._read_row(record)[1]["ledger"])
            found = [entry.noise_multiplier for entry in ledger.entries]
            if found != multipliers or any(e.sensitivity != 1.0 for e in ledger.entries):
                raise DamagedStore(
                    f"row {record['row']} was released with other noise than planned"
                )
            draws += sum(math.prod(entry.shape) for entry in ledger.entries)
        drawn = records.list_drawn
        if len(set(drawn)) < len(drawn):
            raise DamagedStore("a row was drawn twice")
        spent = self._rule.ages.add_costs([(row, multipliers) for row in drawn])
        lifetime = self.plan.noise_multiplier(EVERY_ROW)
        if spent * type(spent)(lifetime) ** 2 > 1 or draws > MOST_DRAWS:
            raise PrivacyError("the rows cost more than the timeline's budget")
        if self._has_key():
            self._table(records, self._secret())
        published = len(records.of_kind("published"))
        return TimelineCheck(
            published, len(drawn) - published, math.sqrt(spent), 1 / lifetime, records.head
        )

    def _has_key(self) -> bool:
        try:
            self._secret()
        except ConfigError:
            return False
        return self.secret_path.exists()

    def __repr__(self) -> str:
        return f"<Timeline {str(self.path)!r}: ε = {self._settings['epsilon']:g}, lifetime>"


@dataclass(frozen=True)
class BornItems:
    """Items of all rows, in the order of their public birth."""

    ids: list[Any]
    titles: list[str]

    def __len__(self) -> int:
        return len(self.ids)


def extend(known: BornItems, ratings: Any) -> tuple[BornItems, NDArray[np.int32], BornItems]:
    """Return the catalog with the items of these ratings, their positions in it, and the new
    items.
    """
    place = {item: at for at, item in enumerate(known.ids)}
    ids = ratings.item_ids.tolist()
    fresh = [at for at, item in enumerate(ids) if item not in place]
    titles = [""] * len(ids) if ratings.titles is None else [str(t) for t in ratings.titles]
    new = BornItems([ids[at] for at in fresh], [titles[at] for at in fresh])
    whole = BornItems(known.ids + new.ids, known.titles + new.titles)
    place = {item: at for at, item in enumerate(whole.ids)}
    return whole, np.array([place[item] for item in ids], np.int32), new


def check_source(ratings: Any) -> None:
    """Refuse ratings with which one user could change what others contribute."""
    check_that(
        bool(ratings.catalog),
        "A timeline needs a public catalog: items found in the ratings would show who rated first."
        " Pass items.",
    )
    check_that(
        not ratings.filtered,
        "These ratings were filtered by counts, so that one user changes what others contribute."
        " Pass them unfiltered.",
    )
    check_that(
        isinstance(ratings, Ratings | HashesUsers),
        f"A timeline cannot read {type(ratings).__name__}. Pass Ratings, BlockRatings or"
        " SparkRatings.",
    )
