"""The hash chain of a ledger, checked from its document alone, without accounting imports.

`Head` is where the chain of an account ended when a model was trained, as the model's folder
carries it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from discreet.errors import PrivacyError

HEADER = ("format", "library", "neighboring", "accountant", "noise", "plan")
STATED = ("epsilon", "delta", "mu", "conversion", "noise_delta")


@dataclass(frozen=True)
class Head:
    """Where an account's chain ended when a training was settled, for a copy outside the store.

    Attributes
    ----------
    account : str
        Name of the account.
    opened : str
        Hash of the record that opened the account; it distinguishes accounts of the same name.
    sequence : int
        Number of the last record.
    hash : str
        Hash of the last record.
    """

    account: str
    opened: str
    sequence: int
    hash: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Any) -> Head:
        """Read a head from what `to_dict` returned; raise a `ValueError` for anything else."""
        kinds = {"account": str, "opened": str, "sequence": int, "hash": str}
        good = isinstance(document, dict) and set(document) == set(kinds)
        if not good or any(type(document[name]) is not kind for name, kind in kinds.items()):
            raise ValueError("the head of an account must be its name, two hashes and a number")
        return cls(**document)


def digest(previous: str, content: dict[str, Any]) -> str:
    """Return the hash of a record that follows another one."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{previous}{text}".encode()).hexdigest()


def seal_of(head: str, document: dict[str, Any]) -> str:
    """Return the hash that ends a chain: of the statement and the released number of users."""
    people = document.get("people")
    released = {} if people is None else {"people": people}
    return digest(head, {name: document[name] for name in STATED} | released)


def early_seal_of(head: str, document: dict[str, Any]) -> str:
    """Return the first version of the seal, which did not cover the number of users."""
    return digest(head, {name: document[name] for name in STATED})


def check_chain(document: dict[str, Any]) -> None:
    """Raise a `PrivacyError` unless every record follows from those before, and the end is sealed.

    `Ledger.from_dict` checks more: that the stated ε is what the entries cost.
    """
    try:
        now = digest("", {name: document[name] for name in HEADER})
        records = sorted(
            document["assumptions"] + document["entries"], key=lambda record: record["sequence"]
        )
        for record in records:
            now = digest(now, {name: value for name, value in record.items() if name != "hash"})
            if now != record["hash"]:
                raise PrivacyError(
                    f"the ledger was changed after it was written: entry {record['sequence']}"
                    " breaks the hash chain"
                )
        if now != document["head"] or document["seal"] not in (
            seal_of(now, document),
            early_seal_of(now, document),
        ):
            raise PrivacyError(
                "the ledger was changed after it was written: its end breaks the seal"
            )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PrivacyError(f"the ledger is incomplete: {error} is missing or malformed") from error
