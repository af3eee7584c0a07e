"""Ledgers of earlier trainings, which stay in a model's folder when it is saved again.

Releases cannot be taken back, and training again on the same users adds to their cost. So a ledger
is never overwritten: that of a replaced model is kept next to the new one as
``earlier-ledger-….json``, byte for byte, named by its own hash.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from discreet.data.safe_io import OpenFolder, consistently, parse_json
from discreet.errors import ConfigError, DataError

LEDGER = "ledger.json"
_EARLIER = re.compile(r"earlier-ledger-[0-9a-f]{16}\.json")


def earlier_name(content: bytes) -> str:
    """Return the file name of an earlier ledger."""
    return f"earlier-ledger-{hashlib.sha256(content).hexdigest()[:16]}.json"


def is_earlier(name: str) -> bool:
    """Check whether a file of that name is the ledger of an earlier training."""
    return _EARLIER.fullmatch(name) is not None


def list_ledgers(folder: OpenFolder) -> list[str]:
    """List the ledgers of the model in the folder; none where there is no such model."""
    try:
        listed = parse_json(folder.read("model.json"))["sha256"]
        return [
            name
            for name in listed
            if isinstance(name, str) and (name == LEDGER or is_earlier(name))
        ]
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return []


def ledgers_to_keep(folder: Path) -> dict[str, bytes]:
    """Return the ledgers in the folder by the name they get next to a new model."""
    if not folder.is_dir():
        return {}

    def read(opened: OpenFolder) -> dict[str, bytes]:
        there = set(opened.names())
        contents = [opened.read(name) for name in list_ledgers(opened) if name in there]
        return {earlier_name(content): content for content in contents}

    return consistently(folder, read)


def names_of_ledgers(folder: Path) -> set[str]:
    """Return the names of the ledgers in the folder."""
    return set(_still_there(folder))


def keep_beside(target: Path, replaced: Path, known: set[str]) -> None:
    """Keep ledgers of `replaced` that `target` lacks, of a model saved at the same time."""
    for name, content in _still_there(replaced).items():
        if name not in known:
            target.with_name(f"{target.name}.{name}").write_bytes(content)


def _still_there(folder: Path) -> dict[str, bytes]:
    """Return the ledgers of a folder that another process may be removing."""
    try:
        return ledgers_to_keep(folder)
    except (OSError, DataError):
        return {}


def check_replaced(folder: Path, replace: bool) -> None:
    """Raise a `ConfigError` for replacing a private model without `replace`."""
    if not replace and folder.is_dir() and consistently(folder, list_ledgers):
        raise ConfigError(
            f"{folder} holds a private model. Choose a new folder, or pass replace=True, which"
            " keeps its ledger."
        )
