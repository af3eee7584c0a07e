"""Ledgers of earlier trainings, which stay in a model's folder whatever is saved there later.

What was released about people cannot be taken back, and training again on the same people adds to it. So a ledger is
never overwritten: the one of a model that is replaced lies beside the new one as ``earlier-ledger-….json``, byte for
byte, named by its own hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from discreet.errors import ConfigError

LEDGER = "ledger.json"
_EARLIER = re.compile(r"earlier-ledger-[0-9a-f]{16}\.json")


def earlier_name(content: bytes) -> str:
    """Under which name a ledger is kept."""
    return f"earlier-ledger-{hashlib.sha256(content).hexdigest()[:16]}.json"


def is_earlier(name: str) -> bool:
    """Whether a file of that name is the ledger of an earlier training."""
    return _EARLIER.fullmatch(name) is not None


def ledgers_in(folder: Path) -> list[Path]:
    """The ledgers that the model in the folder lists; none where there is no such model."""
    try:
        listed = json.loads((folder / "model.json").read_bytes())["sha256"]
        return [folder / name for name in listed if name == LEDGER or is_earlier(name)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def kept_ledgers(folder: Path) -> dict[str, bytes]:
    """The ledgers in the folder as they are to lie beside a new model, by name."""
    contents = [file.read_bytes() for file in ledgers_in(folder) if file.is_file()]
    return {earlier_name(content): content for content in contents}


def keep_beside(target: Path, replaced: Path, known: set[str]) -> None:
    """Keep ledgers of the folder `replaced` that `target` does not have: of a model that was saved at the same time."""
    for name, content in kept_ledgers(replaced).items():
        if name not in known:
            target.with_name(f"{target.name}.{name}").write_bytes(content)


def check_replaced(folder: Path, replace: bool) -> None:
    """Refuse to put another model in the place of a private one, unless that was asked for."""
    if not replace and ledgers_in(folder):
        raise ConfigError(
            f"{folder} holds a private model: choose a new folder, or say replace=True, which keeps its ledger beside "
            "the new one"
        )
