"""Formats of files of ratings: how they are recognized, and how tables of each are read.

The first bytes of a file determine its format; the name matters only where it contradicts them,
and for Spark, which reads the files itself. A new format of tables is an entry of `FORMATS`:
`data.readers`, `engines.blocks.readers` and ``--engine spark`` find it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from discreet.data.encodings import UTF16_MARKS, transcode
from discreet.errors import ConfigError, DataError, EmptyFile


@dataclass(frozen=True)
class TableFormat:
    """A format of tables that arrow reads.

    Attributes
    ----------
    name : for messages
    heads : first bytes of its files
    endings : of file names
    spark : name of the format for Spark, empty if Spark cannot read it
    """

    name: str
    heads: tuple[bytes, ...]
    endings: tuple[str, ...] = ()
    spark: str = ""

    def names(self, file: Path) -> list[str]:
        """Return the names of the columns."""
        raise NotImplementedError

    def read(self, file: Path, columns: list[str] | None = None) -> pa.Table:
        """Read the named columns, or all."""
        raise NotImplementedError

    def batches(self, file: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read the named columns in batches, of about as many rows where the format allows."""
        raise NotImplementedError


class _Parquet(TableFormat):
    def names(self, file: Path) -> list[str]:
        from pyarrow import parquet

        return list(parquet.read_schema(file).names)

    def read(self, file: Path, columns: list[str] | None = None) -> pa.Table:
        from pyarrow import parquet

        return parquet.ParquetFile(file).read(columns=columns)

    def batches(self, file: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        from pyarrow import parquet

        yield from parquet.ParquetFile(file).iter_batches(rows, columns=columns)


class _Feather(TableFormat):
    def names(self, file: Path) -> list[str]:
        try:
            return list(pa.ipc.open_file(pa.OSFile(str(file))).schema.names)
        except pa.ArrowInvalid:  # feather version 1
            return list(self.read(file).schema.names)

    def read(self, file: Path, columns: list[str] | None = None) -> pa.Table:
        from pyarrow import feather

        return feather.read_table(file, columns=columns)

    def batches(self, file: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        for at in range(reader.num_record_batches):
            yield reader.get_batch(at).select(columns)


class _ArrowStream(TableFormat):
    def names(self, file: Path) -> list[str]:
        return list(pa.ipc.open_stream(pa.OSFile(str(file))).schema.names)

    def read(self, file: Path, columns: list[str] | None = None) -> pa.Table:
        table = pa.ipc.open_stream(pa.OSFile(str(file))).read_all()
        return table if columns is None else table.select(columns)

    def batches(self, file: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for batch in pa.ipc.open_stream(pa.memory_map(str(file))):
            yield batch.select(columns)


FORMATS: tuple[TableFormat, ...] = (
    _Parquet("parquet", (b"PAR1",), (".parquet", ".pq"), spark="parquet"),
    _Feather("feather", (b"ARROW1", b"FEA1"), (".feather", ".arrow")),
    _ArrowStream("stream", (b"\xff\xff\xff\xff",)),
)
_SPARK_ALONE = {".orc": "orc", ".json": "json"}  # formats that only Spark reads
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_COMPRESSED_ENDINGS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".ods", ".numbers")  # zip archives inside
_XLS = b"\xd0\xcf\x11\xe0"  # Excel up to 2003
_REFUSED = {
    b"PK\x03\x04": (
        "a zip archive: unpack it and give the file inside, or use load_dataset for a known"
        " data set"
    ),
    b"\xfd7zXZ": "an xz file: unpack it first",
    b"\x89HDF": "an HDF5 file: convert it to csv or parquet",
    b"SQLite": "an SQLite database: export the table to csv or parquet",
    b"\x80": "a pickle, which is never loaded: save the table as csv or parquet",
    b"%PDF": "a PDF document",
}


def find_format(file: Path) -> TableFormat | None:
    """Return the format of a file of tables; None for text."""
    head = _read_head(file)
    if not head:
        raise EmptyFile(
            f"{file} is empty: it should hold one line per rating, with a user, an item and a"
            " rating"
        )
    if head.startswith(_XLS) or (head.startswith(b"PK") and file.suffix.lower() in _SPREADSHEETS):
        raise DataError(f"{file} is a spreadsheet: save it as CSV UTF-8, and pass that file")
    for magic, meaning in _REFUSED.items():
        if head.startswith(magic):
            raise DataError(f"{file} is {meaning}")
    for one in FORMATS:
        if head.startswith(one.heads):
            return one
    named = _by_ending(file)
    if named is not None:
        raise DataError(
            f"{file} is named as {named.name} and does not hold {named.name} data: rename it or"
            " write it again"
        )
    return None


def find_spark_format(paths: Iterable[str]) -> str:
    """Return Spark's name of the format of files or folders, by their names; csv if unknown."""
    files = [Path(path.rstrip("/")) for path in paths]
    if all(file.is_dir() and not file.suffix for file in files):
        files = [inside for file in files for inside in file.glob("[!._]*")] or files
    kinds = {_spark_name(file) for file in files}
    if len(kinds) > 1:
        raise ConfigError(
            f"the files have several formats ({', '.join(sorted(kinds))}): pass files of one format"
        )
    return kinds.pop()


def open_text(file: Path, encoding: str | None = None) -> Any:
    """Open the text of a file as a binary stream, decompressed and, if need be, made UTF-8.

    A byte order mark of UTF-16, as Excel writes it, stands for that encoding.
    """
    stream = _open_bytes(file)
    if encoding is None:
        with _open_bytes(file) as head:
            encoding = "utf-16" if head.read(2) in UTF16_MARKS else None
    return stream if encoding is None else transcode(stream, encoding, str(file))


def _open_bytes(file: Path) -> Any:
    head = _read_head(file)
    named = _COMPRESSED_ENDINGS.get(file.suffix.lower())
    found = next((codec for magic, codec in _COMPRESSED.items() if head.startswith(magic)), None)
    if named and named != found:
        raise DataError(
            f"{file} is named as {named} and holds no {named} data: download it again, or rename it"
            " if it is plain text"
        )
    plain = pa.OSFile(str(file), "rb")
    return pa.CompressedInputStream(plain, found) if found else plain


def _read_head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(8)


def _by_ending(file: Path) -> TableFormat | None:
    return next((one for one in FORMATS if file.suffix.lower() in one.endings), None)


def _spark_name(file: Path) -> str:
    named = _by_ending(file)
    if named is not None and not named.spark:
        raise ConfigError(f"Spark cannot read {named.name} files. Convert them to Parquet or CSV.")
    return named.spark if named else _SPARK_ALONE.get(file.suffix.lower(), "csv")
