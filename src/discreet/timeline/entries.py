"""The secret part of a timeline: which user entered in which row, under a keyed hash of the id.

Ages come from this table alone. An entry is never removed or changed: a user who leaves, is erased
or comes back keeps its age, because one who began again at age 0 would be charged twice. Erased
users are marked, and contribute to no later row.

The file holds no ids, and hashes of ids (`engines/ages`) that cannot be computed without the key.
The key is in the environment or in a file elsewhere, never with the table.

Each row's public record holds a keyed digest of (row, table): an older copy of the table is
refused, because it would make users younger than they are. Marks of erasure are not part of it,
since a public record of them would show that a user was erased; a copy of the same row without the
latest marks is not recognized.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.atomic_files import durable_write
from discreet.engines.ages import look_up
from discreet.engines.user_hash import SECRET_BYTES, Secret
from discreet.errors import ConfigError, DamagedStore

VARIABLE = "DISCREET_TIMELINE_KEY"
FILE = "entries.npz"
NEVER = -1  # entry row of a user who was erased before entering


def read_key(key: str | os.PathLike[str] | None, create: bool, *folders: Path) -> Secret:
    """Return the key of a timeline, from a file or from the environment.

    Parameters
    ----------
    key : path, optional
        File of 64 hexadecimal digits; by default the environment variable is read.
    create : bool
        Write a new key to the file if there is none.
    folders : of the timeline, which must not hold the key
    """
    text = os.environ.get(VARIABLE, "")
    if key is not None:
        path = Path(key).expanduser().resolve()
        if any(path.is_relative_to(folder.resolve()) for folder in folders):
            raise ConfigError(f"{path} is next to the table that it protects. Keep it elsewhere.")
        if create and not path.exists():
            durable_write(path, (secrets.token_hex(SECRET_BYTES) + "\n").encode(), 0o600)
        if not path.is_file():
            raise ConfigError(f"There is no key in {path}. Pass the file made by timeline open.")
        text = path.read_text()
    if not text:
        raise ConfigError(
            f"A timeline needs a secret key. Pass the path of a key file as key, or set {VARIABLE}"
            " to 64 hexadecimal digits."
        )
    try:
        return Secret(bytes.fromhex(text.strip()))
    except ValueError:
        raise ConfigError("The key must have 64 hexadecimal digits.") from None


@dataclass(frozen=True, repr=False)  # a repr would print who is there
class EntryTable:
    """Entry rows by keyed hash, as of a row.

    Parameters
    ----------
    row : int
        The last row that the table was prepared for, −1 before the first.
    hashes : (n,) uint64, ascending
    entry : (n,) int32
    erased : (n,) bool
    """

    row: int
    hashes: NDArray[np.uint64]
    entry: NDArray[np.int32]
    erased: NDArray[np.bool_]

    @classmethod
    def empty(cls) -> EntryTable:
        return cls(-1, np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, bool))

    def enter(self, hashes: NDArray[np.uint64], row: int) -> EntryTable:
        """Return the table for a row: users who are not in it enter now, at age 0."""
        grown = self._with(hashes, row)
        return replace(grown, row=row)

    def erase(self, hashes: NDArray[np.uint64]) -> EntryTable:
        """Return the table with these users marked."""
        grown = self._with(hashes, NEVER)
        return replace(grown, erased=grown.erased | np.isin(grown.hashes, hashes))

    def _with(self, hashes: NDArray[np.uint64], row: int) -> EntryTable:
        new = np.setdiff1d(hashes, self.hashes)
        order = np.argsort(everyone := np.concatenate([self.hashes, new]), kind="stable")
        entry = np.concatenate([self.entry, np.full(len(new), row, np.int32)])
        erased = np.concatenate([self.erased, np.zeros(len(new), bool)])
        return replace(self, hashes=everyone[order], entry=entry[order], erased=erased[order])

    def ages(self, row: int) -> NDArray[np.int64]:
        """Return the age of every user in a row; −1 for those who do not contribute."""
        age = row - self.entry.astype(np.int64)
        return np.where(self.erased | (self.entry == NEVER), -1, age)

    def entry_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        return look_up(hashes, self.hashes, self.entry)

    def digest(self, secret: Secret) -> str:
        """Return the keyed digest of row and entries, which reveals neither."""
        entered = self.entry != NEVER
        mac = hmac.new(secret.data, b"timeline entries", hashlib.sha256)
        mac.update(np.array([self.row], "<i8").tobytes())
        mac.update(self.hashes[entered].astype("<u8").tobytes())
        mac.update(self.entry[entered].astype("<i4").tobytes())
        return mac.hexdigest()

    def write(self, folder: Path) -> None:
        """Make the table durable; only its owner can read it."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {
            "row": np.array(self.row),
            "hashes": self.hashes,
            "entry": self.entry,
            "erased": self.erased,
        }
        np.savez(buffer, **arrays)
        durable_write(folder / FILE, buffer.getvalue(), 0o600)

    @classmethod
    def read(cls, folder: Path) -> EntryTable:
        try:
            with np.load(folder / FILE, allow_pickle=False) as found:
                return cls(int(found["row"]), found["hashes"], found["entry"], found["erased"])
        except (OSError, ValueError, KeyError, EOFError):
            raise DamagedStore(
                f"{folder / FILE} is missing or damaged, so no user's age is known. Restore its"
                " newest copy; without one, open a new timeline, which takes a new budget."
            ) from None
