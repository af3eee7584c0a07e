"""Text in other encodings than UTF-8, converted to it before anything is read.

Lines are converted one by one, so that the bytes of one user never change how the row of another is
read, also where an encoding has states (ISO-2022-JP).
"""

from __future__ import annotations

import codecs
from typing import Any

import pyarrow as pa

from discreet.errors import ConfigError, DataError

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BLOCK = 1 << 22  # bytes that are converted at a time


def check_encoding(encoding: str | None) -> None:
    """Raise an error unless `encoding` is None or one that Python knows for text."""
    try:
        known = encoding is None or "a".encode(encoding).decode(encoding) == "a"
    except (LookupError, TypeError, ValueError):
        known = False
    if not known:
        raise ConfigError(
            f"encoding={encoding!r} is unknown: pass one such as 'cp1252', 'latin-1', 'utf-16' or"
            " 'shift_jis'"
        )


def transcode(stream: Any, encoding: str, where: str) -> pa.BufferReader:
    """Read a binary stream in an encoding, and return its text in UTF-8, in memory."""
    sink = pa.BufferOutputStream()
    try:
        if "\n".encode(encoding) == b"\n":
            _convert_lines(stream, encoding, sink)
        else:  # UTF-16 and UTF-32, whose characters have a fixed width
            decoder = codecs.getincrementaldecoder(encoding)()
            while block := stream.read(_BLOCK):
                sink.write(decoder.decode(block).encode())
            sink.write(decoder.decode(b"", final=True).encode())
    except UnicodeError:
        raise DataError(
            f"{where} is not {encoding} text: pass another encoding=, or save the file as UTF-8"
        ) from None
    return pa.BufferReader(sink.getvalue())


def _convert_lines(stream: Any, encoding: str, sink: Any) -> None:
    """Write the lines of a stream in UTF-8, each converted by itself."""
    held = b""
    while block := stream.read(_BLOCK):
        *lines, held = (held + block).split(b"\n")
        sink.write("".join(line.decode(encoding) + "\n" for line in lines).encode())
    sink.write(held.decode(encoding).encode())


def decode_list(data: bytes) -> str:
    """Return the text of a public list of items: UTF-8, UTF-16 by its mark, or Windows-1252."""
    if data[:2] in UTF16_MARKS:
        return data.decode("utf-16", errors="replace")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")  # which has a letter for every byte
