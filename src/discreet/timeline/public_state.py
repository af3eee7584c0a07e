"""The public part of a timeline: its settings, and a hash chain of what happened to each row.

    timeline.json      settings, which never change
    records.jsonl      one record a line; each holds the hash of the one before
    row-00007.safetensors   what row 7 released, with its ledger

A row is *begun*, then *drawing*, then *published*, each durable before the next step:

    begun → read the data → entries durable → drawing → sum and noise → sealed copy durable →
    published

A process that ends before entries are durable leaves a row that is run again, under the same
number. One that ends before drawing leaves a row that is skipped: the table of entries has its
number, and no number is used twice, also if the public part is an older copy. After drawing the
sealed copy is published if it is there; otherwise the row is *missing*: it counts as spent, and its
noise is not drawn again. A line that was cut off by a crash is not a record: nothing that follows a
record is done before it is durable. The chain is a checksum, not a signature.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.data.atomic_files import sync_folder
from discreet.errors import DamagedStore
from discreet.privacy.release.hash_chain import digest

SETTINGS = "timeline.json"
RECORDS = "records.jsonl"
KINDS = ("opened", "charged", "begun", "drawing", "published", "missing")


@dataclass(frozen=True)
class Records:
    """The chain of a timeline."""

    folder: Path
    records: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path) -> Records:
        """Read and check the chain; the last line may be cut off."""
        try:
            data = (folder / RECORDS).read_bytes()
        except OSError:
            raise DamagedStore(f"{folder} has no {RECORDS}. Restore the newest copy.") from None
        found: list[dict[str, Any]] = []
        previous = ""
        for number, line in enumerate(data.split(b"\n")[:-1]):
            try:
                record = json.loads(line)
                content = {name: value for name, value in record.items() if name != "hash"}
                good = record["kind"] in KINDS and record["hash"] == digest(previous, content)
            except (ValueError, KeyError, TypeError, AttributeError):
                good = False
            if not good:
                raise DamagedStore(
                    f"{folder / RECORDS} was changed or damaged: record {number} breaks the chain."
                    " Restore the newest copy."
                )
            found.append(record)
            previous = record["hash"]
        return cls(folder, tuple(found))

    def append(self, kind: str, **content: Any) -> Records:
        """Add a record, durable when this returns; a line that was cut off is removed."""
        record: dict[str, Any] = {"kind": kind, **content}
        record["hash"] = digest(self.head, record)
        whole = sum(len(_line(one)) for one in self.records)
        path = self.folder / RECORDS
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        with os.fdopen(handle, "r+b") as file:
            file.truncate(whole)
            file.seek(whole)
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)
        return Records(self.folder, (*self.records, record))

    @property
    def head(self) -> str:
        """Hash of the last record."""
        return str(self.records[-1]["hash"]) if self.records else ""

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.records if one["kind"] == kind]

    @property
    def next_row(self) -> int:
        """The row to be run next: one that was begun and not drawn is run again."""
        rows = [one["row"] for one in self.records if one["kind"] in ("drawing", "missing")]
        return max(rows, default=-1) + 1

    @property
    def find_unfinished(self) -> int | None:
        """A row that was drawn and is neither published nor missing."""
        drawn = {one["row"] for one in self.of_kind("drawing")}
        ended = {one["row"] for one in (*self.of_kind("published"), *self.of_kind("missing"))}
        return max(drawn - ended, default=None)

    @property
    def list_drawn(self) -> list[int]:
        """All rows whose noise may have been drawn, published or not."""
        return [int(one["row"]) for one in self.of_kind("drawing")]

    def has_begun(self, row: int) -> bool:
        return any(one["row"] == row for one in self.of_kind("begun"))


def _line(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()


def row_file(row: int) -> str:
    return f"row-{row:05d}.safetensors"


def pack(arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with the facts as JSON in its header."""
    from safetensors.numpy import save

    return save(dict(arrays), {"facts": json.dumps(facts, ensure_ascii=False)})


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and facts of `pack`."""
    from safetensors.numpy import load

    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return load(data), json.loads(header["__metadata__"]["facts"])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
