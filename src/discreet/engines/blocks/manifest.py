"""A folder of blocks: the manifest, the secret, and the block files.

The manifest holds the size of each block, which determines the numbers of users and ratings. It is
as private as the data, states this in its first line, and is readable by its owner only. Only the
number of blocks and the catalog go into a model or a ledger.

The secret is the key of the hashes that represent users in the blocks (`engines.user_hash`).
Together with the blocks it reveals user ids: integers by decryption, text by trial. It is written
last, for its owner only, and is deleted or replaced with the folder. Without it the blocks cannot
be used for training any more, and reveal nothing about ids.
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

from discreet.data.ids import as_ids, object_array
from discreet.engines.block_format import PackedBlock
from discreet.engines.user_hash import Secret
from discreet.errors import DataError, EngineError

MANIFEST = "manifest.json"
SECRET = "secret.key"
FORMAT = 3  # 1 had raw user ids in the blocks, 2 one number for users "7" and "007"
NOTICE = (
    "PRIVATE: this file reveals how many users and ratings there are. Keep it with the data, and"
    " do not publish it."
)


@dataclass(frozen=True)
class BlockFile:
    """Name, size in bytes and checksum of one block file."""

    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """Content of a folder of blocks.

    Parameters
    ----------
    blocks : the files, in their order
    item_ids, titles, catalog, filtered
        As in `Ratings`.
    low, high : float, optional
        Lowest and highest rating; None if there are no ratings.
    secret_check : str
        Text by which the folder recognizes its own secret (`Secret.check_value`).
    rated, user_problem
        As in `Ratings`.
    """

    blocks: tuple[BlockFile, ...]
    item_ids: NDArray[Any]
    titles: NDArray[Any] | None
    catalog: bool
    filtered: str
    low: float | None
    high: float | None
    secret_check: str
    rated: bool = True
    user_problem: str = ""

    def to_json(self) -> str:
        document = {
            "notice": NOTICE,
            "format": FORMAT,
            "blocks": [asdict(block) for block in self.blocks],
            "item_ids": self.item_ids.tolist(),
            "titles": None if self.titles is None else self.titles.tolist(),
            "catalog": self.catalog,
            "filtered": self.filtered,
            "rating_range": None if self.low is None else [self.low, self.high],
            "secret_check": self.secret_check,
            "rated": self.rated,
            "user_problem": self.user_problem,
        }
        return json.dumps(document, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        file = folder / MANIFEST
        if not file.is_file():
            there = "does not exist" if not folder.exists() else f"holds no {MANIFEST}"
            raise DataError(
                f"{folder} {there}: write blocks with discreet.BlockRatings.write(source, folder)"
            )
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise DataError(
                    f"{file} has format {found['format']}, but this version of discreet reads"
                    f" {FORMAT}: write the blocks again"
                )
            scale = found["rating_range"]
            titles = found["titles"]
            manifest = cls(
                tuple(
                    BlockFile(str(b["name"]), int(b["bytes"]), int(b["crc32"]))
                    for b in found["blocks"]
                ),
                as_ids(found["item_ids"], "item id"),
                None if titles is None else object_array(map(str, titles), len(titles)),
                bool(found["catalog"]),
                str(found["filtered"]),
                None if scale is None else float(scale[0]),
                None if scale is None else float(scale[1]),
                str(found["secret_check"]),
                bool(found.get("rated", True)),  # older folders lack these two fields
                str(found.get("user_problem", "")),
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


def write_private(file: Path, data: bytes) -> None:
    """Write a new file, readable by its owner alone."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def read_secret(folder: Path, manifest: Manifest) -> Secret:
    """Read the secret of a folder; raise a `DataError` if it is lost or of another folder."""
    try:
        secret = Secret((folder / SECRET).read_bytes())
        problem = (
            ""
            if secret.check_value() == manifest.secret_check
            else "is not the secret of these blocks"
        )
    except (OSError, ValueError) as error:
        problem = "is lost" if isinstance(error, FileNotFoundError) else "cannot be read"
    if problem:
        raise DataError(f"{folder / SECRET} {problem}: restore the file, or write the blocks again")
    return secret


def write_portion(file: Path, portion: PackedBlock) -> BlockFile:
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


def read_portion(folder: Path, at: int, block: BlockFile) -> PackedBlock:
    """Read a block; raise an `EngineError` if it is lost or damaged."""
    try:
        data = (folder / block.name).read_bytes()
        if len(data) == block.bytes and zlib.crc32(data) == block.crc32:
            return PackedBlock.from_bytes(data)
        problem = "is damaged"
    except (OSError, ValueError) as error:
        problem = "is lost" if isinstance(error, FileNotFoundError) else "cannot be read"
    raise EngineError(
        f"block {at + 1} of {folder} {problem}: restore the file {block.name}, or write the blocks"
        " again"
    )
