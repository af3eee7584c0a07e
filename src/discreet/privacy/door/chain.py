"""The hash chain of a ledger, checked from its document alone: nothing is priced, and nothing heavy is imported."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from discreet.errors import PrivacyError

HEADER = ("format", "library", "neighbouring", "accountant", "noise", "plan")
STATED = ("epsilon", "delta", "mu", "conversion", "noise_delta")


def digest(previous: str, content: dict[str, Any]) -> str:
    """The hash of a record that follows another one."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{previous}{text}".encode()).hexdigest()


def seal_of(head: str, document: dict[str, Any]) -> str:
    """The hash that ends a chain: of what is stated and, where it was released, of the number of people."""
    people = document.get("people")
    released = {} if people is None else {"people": people}
    return digest(head, {name: document[name] for name in STATED} | released)


def early_seal_of(head: str, document: dict[str, Any]) -> str:
    """The same as it was at first, when the number of people stood outside the chain and could be changed."""
    return digest(head, {name: document[name] for name in STATED})


def check_chain(document: dict[str, Any]) -> None:
    """Raise a `PrivacyError` unless every record follows from those before, and the end is sealed.

    `Ledger.from_dict` checks more: that the stated ε is what the entries cost.
    """
    try:
        now = digest("", {name: document[name] for name in HEADER})
        records = sorted(document["assumptions"] + document["entries"], key=lambda record: record["sequence"])
        for record in records:
            now = digest(now, {name: value for name, value in record.items() if name != "hash"})
            if now != record["hash"]:
                raise PrivacyError(
                    f"the ledger was changed after it was written: entry {record['sequence']} breaks the hash chain"
                )
        if now != document["head"] or document["seal"] not in (seal_of(now, document), early_seal_of(now, document)):
            raise PrivacyError("the ledger was changed after it was written: its end breaks the seal")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PrivacyError(f"the ledger is incomplete: {error} is missing or has another form") from error
