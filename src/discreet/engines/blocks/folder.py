"""A folder of blocks: the manifest, and the files beside it.

The manifest knows how many people and ratings are in each block. It belongs to the data, says so in its first line, and
is written for its owner only; none of it but the number of blocks and the catalogue goes into a model or a ledger.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.encode import as_ids, object_array
from discreet.engines.portion import Portion
from discreet.errors import DataError, EngineError

MANIFEST = "manifest.json"
FORMAT = 1
NOTICE = (
    "PRIVATE: this file tells how many people and ratings there are. Keep it with the data, and publish it as little "
    "as them."
)


@dataclass(frozen=True)
class BlockFile:
    """One block as the manifest knows it."""

    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """What there is in a folder of blocks.

    Parameters
    ----------
    blocks : the files, in their order
    item_ids, titles, catalogue, filtered
        As in `Ratings`.
    low, high : float, optional
        The lowest and the highest rating there is; None where there is none.
    """

    blocks: tuple[BlockFile, ...]
    item_ids: NDArray[Any]
    titles: NDArray[Any] | None
    catalogue: bool
    filtered: str
    low: float | None
    high: float | None

    def to_json(self) -> str:
        document = {
            "notice": NOTICE,
            "format": FORMAT,
            "blocks": [asdict(block) for block in self.blocks],
            "item_ids": self.item_ids.tolist(),
            "titles": None if self.titles is None else self.titles.tolist(),
            "catalogue": self.catalogue,
            "filtered": self.filtered,
            "rating_range": None if self.low is None else [self.low, self.high],
        }
        return json.dumps(document, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        file = folder / MANIFEST
        if not file.is_file():
            there = "does not exist" if not folder.exists() else f"holds no {MANIFEST}"
            raise DataError(f"{folder} {there}: write blocks with discreet.Blocks.write(source, folder)")
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise DataError(f"{file} is of format {found['format']}, and this version of discreet reads {FORMAT}")
            scale = found["rating_range"]
            titles = found["titles"]
            manifest = cls(
                tuple(BlockFile(str(b["name"]), int(b["bytes"]), int(b["crc32"])) for b in found["blocks"]),
                as_ids(found["item_ids"], "item id"),
                None if titles is None else object_array(map(str, titles), len(titles)),
                bool(found["catalogue"]),
                str(found["filtered"]),
                None if scale is None else float(scale[0]),
                None if scale is None else float(scale[1]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            broken = True
        else:
            broken = any(os.path.basename(block.name) != block.name for block in manifest.blocks)
        if broken or not manifest.blocks:
            raise DataError(f"{file} is damaged: write the blocks again")
        return manifest


def write_portion(file: Path, portion: Portion) -> BlockFile:
    """Write a block, readable by its owner alone."""
    checksum = 0
    size = 0
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        for array in portion.chunks():
            data = np.ascontiguousarray(array).tobytes()
            checksum = zlib.crc32(data, checksum)
            size += stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return BlockFile(file.name, size, checksum)


def read_portion(folder: Path, at: int, block: BlockFile) -> Portion:
    """A block; raises an `EngineError` where it is lost or damaged."""
    try:
        data = (folder / block.name).read_bytes()
        if len(data) == block.bytes and zlib.crc32(data) == block.crc32:
            return Portion.from_bytes(data)
        problem = "is damaged"
    except (OSError, ValueError) as error:
        problem = "is lost" if isinstance(error, FileNotFoundError) else "cannot be read"
    raise EngineError(f"block {at + 1} of {folder} {problem}: restore the file {block.name}, or write the blocks again")
