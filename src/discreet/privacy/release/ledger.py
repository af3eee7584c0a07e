"""The record of releases: an append-only list in which every record holds the hash of the previous.

A ledger can be priced again from its file alone, by any accountant, because an entry holds
everything that its price depends on. The chain detects later edits of the file: it starts from the
header (library, plan, budget, kind of noise), every record continues it, and the last hash seals
the stated ε and δ and the released number of users. It is a checksum, not a signature: rewriting
the whole file consistently is not detected.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from discreet.data.safe_io import read_document
from discreet.errors import DiscreetError, NotInstalled, PrivacyError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.pricing import Event, Price, deviation_of
from discreet.privacy.release.hash_chain import STATED, digest, early_seal_of, seal_of
from discreet.privacy.release.plan import Plan, title_of
from discreet.version import __version__

FORMAT = "discreet-ledger/1"


@dataclass(frozen=True)
class Entry:
    """One release, with the sensitivity in ``norm``.

    A ``rate`` below 1 marks a release of a Poisson batch, with each user in it by that probability.
    A ``law`` marks the best of a secret number of runs, of ``runs`` on average.
    """

    sequence: int
    name: str
    mechanism: str
    sensitivity: float
    norm: str
    noise_multiplier: float
    shape: tuple[int, ...]
    where: str
    alpha: float | None = None
    l2_ratio: float = 1.0
    unsafe: bool = False
    rate: float = 1.0
    law: str = ""
    runs: float = 1.0

    @property
    def event(self) -> Event:
        """The event to be priced; an unsafe entry has none, because its cost is infinite."""
        return Event(
            self.mechanism,
            self.noise_multiplier,
            1,
            self.alpha,
            self.l2_ratio,
            self.rate,
            self.law,
            self.runs,
        )

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise."""
        return deviation_of(self.noise_multiplier, self.sensitivity)

    @property
    def title(self) -> str:
        """Name of the release for readers."""
        return title_of(self.name, self.shape)


@dataclass(frozen=True)
class Assumption:
    """Something taken to be public; ``inferred`` if it came from the data, not from the caller."""

    sequence: int
    name: str
    text: str
    inferred: bool = False


class Ledger:
    """The record of one session.

    Parameters
    ----------
    plan : Plan
        What was to be released; the header of the chain.
    noise : {"secure", "seeded", "none"}
        The grade of the noise.
    """

    def __init__(self, plan: Plan, noise: str):
        self.plan = plan
        self.noise = noise
        self.library = {"name": "discreet", "version": __version__}
        #: Distinguishes two trainings with the same records; random, and not part of the chain.
        self.id = secrets.token_hex(8)
        #: What the sampler's draws have added to δ so far.
        self.noise_delta = 0.0
        #: The cost stated in a file; used where the ledger cannot be priced again.
        self.stated: Price | None = None
        #: Whether it was used.
        self.as_stated = False
        #: The released number of users, if any; δ is compared with it.
        self.people: float | None = None
        self._records: list[Entry | Assumption] = []
        self._hashes = [digest("", self._header())]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The releases, in order."""
        return tuple(record for record in self._records if isinstance(record, Entry))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What was taken to be public, in order."""
        return tuple(record for record in self._records if isinstance(record, Assumption))

    @property
    def private(self) -> bool:
        """Whether any finite ε can be stated at all."""
        return self.noise in ("secure", "seeded") and not any(
            entry.unsafe for entry in self.entries
        )

    def record(self, name: str, **fields: Any) -> Entry:
        """Append a release: an `Entry` with these fields. Called before data are accessed."""
        entry = Entry(len(self._records), name, **fields)
        self._append(entry)
        return entry

    def assume(self, name: str, text: str, inferred: bool = False) -> Assumption:
        """Append an assumption; the same one twice is recorded once."""
        for known in self.assumptions:
            if (known.name, known.text, known.inferred) == (name, text, inferred):
                return known
        assumption = Assumption(len(self._records), name, text, inferred)
        self._append(assumption)
        return assumption

    def events(self) -> list[Event]:
        """Events of the safe entries; equal ones are counted together."""
        found = Counter(entry.event for entry in self.entries if not entry.unsafe)
        return [replace(event, count=count) for event, count in found.items()]

    def price(self, accountant: str | None = None) -> Price:
        """Compute ε of what was released, at the budget's δ less the sampler's part of it.

        Without the optional dependency that this needs, the sealed price is returned.
        """
        name = accountant or self.plan.accountant
        accounting.check_accountant(name)
        if not self.private:
            return Price(math.inf, self.plan.budget.delta, math.inf, name, "not private")
        budget = self.plan.budget.delta
        try:
            found = accounting.price(self.events(), max(0.0, budget - self.noise_delta), name)
        except NotInstalled:
            if self.stated is None or name != self.plan.accountant:
                raise
            self.as_stated = True
            return self.stated
        return Price(found.epsilon, max(budget, self.noise_delta), found.mu, name, found.conversion)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        price = self.price()
        stated = {
            "epsilon": jsonable(price.epsilon),
            "delta": price.delta,
            "mu": jsonable(price.mu),
            "conversion": price.conversion,
            "noise_delta": self.noise_delta,
        } | ({} if self.people is None else {"people": self.people})
        # hashes begin with that of the header
        records = {
            record: _plain(record) | {"hash": chained}
            for record, chained in zip(self._records, self._hashes[1:], strict=True)
        }
        return {
            **self._header(),
            "assumptions": [records[record] for record in self.assumptions],
            "entries": [records[record] for record in self.entries],
            **stated,
            "head": self._hashes[-1],
            "seal": seal_of(self._hashes[-1], stated),
            "id": self.id,
        }

    def to_text(self) -> str:
        """Write the ledger as JSON text.

        The same text is saved with a model and archived in an account, so its SHA-256 is the same
        everywhere.
        """
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the ledger as JSON."""
        Path(path).write_bytes(self.to_text().encode())

    @classmethod
    def load(cls, path: str | Path) -> Ledger:
        """Read a ledger and verify its chain.

        Raises
        ------
        PrivacyError
            Names the first record that does not follow from the previous ones, the header, or the
            statement.
        """
        try:
            document = read_document(Path(path))
        except (OSError, ValueError) as error:
            raise PrivacyError(f"{Path(path).name} cannot be read as a ledger: {error}") from error
        return cls.from_dict(document)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Ledger:
        """Read and verify the ledger that ``to_dict`` described."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            given = (
                document.get("format") if isinstance(document, dict) else type(document).__name__
            )
            raise PrivacyError(f"unknown ledger format {given!r}: this version reads {FORMAT!r}")
        try:
            return cls._verify(document)
        except DiscreetError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise PrivacyError(
                f"the ledger is incomplete: {error} is missing or malformed"
            ) from error

    @classmethod
    def _verify(cls, document: dict[str, Any]) -> Ledger:
        ledger = cls(Plan.from_dict(document["plan"]), document["noise"])
        if ledger.noise not in ("secure", "seeded", "none"):
            raise PrivacyError(f"unknown noise kind {ledger.noise!r} in the ledger")
        ledger.library = {str(name): str(value) for name, value in document["library"].items()}
        ledger.id = str(document.get("id", ""))  # the first ledgers had none
        ledger._hashes = [digest("", ledger._header())]
        records = sorted(
            document["assumptions"] + document["entries"], key=lambda shown: shown["sequence"]
        )
        hashes = [document["head"]] if not records else [shown["hash"] for shown in records]
        for position, shown in enumerate(records):
            ledger._append(_parse_record(shown))
            if shown["sequence"] != position or ledger._hashes[-1] != shown["hash"]:
                what = f"entry {shown['sequence']} ({shown.get('name')!r})"
                first = " or the header before it" if position == 0 else ""
                raise PrivacyError(
                    f"the ledger was changed after it was written: {what}{first} breaks the hash"
                    " chain"
                )
        ledger._check_end(document, hashes)
        return ledger

    def _check_end(self, document: dict[str, Any], hashes: list[str]) -> None:
        if document.get("head") != hashes[-1] or self._hashes[-1] != hashes[-1]:
            raise PrivacyError(
                "the ledger was changed after it was written: records are missing at its end"
            )
        stated = {name: document.get(name) for name in STATED}
        end = self._hashes[-1]
        if document.get("seal") == seal_of(end, document):
            self.people = None if document.get("people") is None else float(document["people"])
        elif document.get("seal") != early_seal_of(end, document):
            raise PrivacyError(
                "the ledger was changed after it was written: the stated ε, δ or number of users"
                " breaks the seal"
            )
        self.noise_delta, self.stated = _parse_price(stated, self.plan.accountant)
        cost = self.price()
        if cost.epsilon > self.stated.epsilon * (1 + 1e-9) or cost.delta > self.stated.delta * (
            1 + 1e-9
        ):
            raise PrivacyError(
                f"the ledger states ε={document['epsilon']}, but its entries cost more"
            )

    def _append(self, record: Entry | Assumption) -> None:
        self._records.append(record)
        self._hashes.append(digest(self._hashes[-1], _plain(record)))

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "library": self.library,
            "neighboring": self.plan.budget.neighboring,
            "accountant": self.plan.accountant,
            "noise": self.noise,
            "plan": self.plan.to_dict(),
        }


def jsonable(number: float | None) -> float | str | None:
    """Write infinity as text, which ``float`` parses, because JSON has no infinity."""
    return number if number is None or math.isfinite(number) else "Infinity"


def _plain(record: Entry | Assumption) -> dict[str, Any]:
    content = asdict(record)
    if isinstance(record, Entry):
        content["shape"] = list(record.shape)
        # omitted, so that ledgers from before Poisson batches keep their hashes
        if record.rate == 1:
            del content["rate"]
        if not record.law:  # likewise, from before private tuning
            del content["law"], content["runs"]
    return content


def _parse_price(stated: dict[str, Any], accountant: str) -> tuple[float, Price]:
    """Read the sampler's part of δ, and the price, as a file states them."""
    try:
        epsilon, delta, used = (float(stated[name]) for name in ("epsilon", "delta", "noise_delta"))
        mu = None if stated["mu"] is None else float(stated["mu"])
        good = epsilon >= 0 and 0 <= delta < 1 and 0 <= used < 1 and (mu is None or mu >= 0)
    except (TypeError, ValueError) as error:
        raise PrivacyError(f"the ledger states an invalid price: {error}") from error
    if not good:
        raise PrivacyError("the ledger states an invalid price")
    return used, Price(epsilon, delta, mu, accountant, str(stated["conversion"]))


def _parse_record(shown: dict[str, Any]) -> Entry | Assumption:
    content = {name: value for name, value in shown.items() if name != "hash"}
    try:
        if "mechanism" in content:
            record: Entry | Assumption = Entry(
                **{"rate": 1.0, "law": "", "runs": 1.0, **content, "shape": tuple(content["shape"])}
            )
        else:
            record = Assumption(**content)
    except (KeyError, TypeError) as error:
        raise PrivacyError(
            f"entry {shown.get('sequence')!r} of the ledger is malformed: {error}"
        ) from error
    for name, (kinds, good) in _FIELDS.items():
        value = getattr(record, name, None)
        absent = not hasattr(record, name) or (name == "alpha" and value is None)
        if not absent and not (type(value) in kinds and good(value)):
            raise PrivacyError(
                f"entry {shown.get('sequence')!r} of the ledger is malformed: its {name} is"
                f" {value!r}"
            )
    return record


def _whole_numbers(shape: tuple[Any, ...]) -> bool:
    return all(type(n) is int and n >= 0 for n in shape)


def _finite(number: float) -> bool:
    return 0 <= number < math.inf


#: Types that a field of a record may have, and a check of its value.
_FIELDS: dict[str, tuple[tuple[type, ...], Callable[[Any], bool]]] = {
    **{name: ((str,), lambda text: True) for name in ("name", "mechanism", "where", "text")},
    **dict.fromkeys(
        ("sensitivity", "noise_multiplier", "alpha", "l2_ratio", "rate"), ((int, float), _finite)
    ),
    **{name: ((bool,), lambda flag: True) for name in ("unsafe", "inferred")},
    "norm": ((str,), lambda norm: norm in ("l1", "l2", "inf")),
    "sequence": ((int,), _finite),
    "shape": ((tuple,), _whole_numbers),
}
