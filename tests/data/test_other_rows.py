"""How anybody's rows are read does not depend on anybody else's.

One user's rows, as odd as rows can be, are added to a file: every other user's sealed rows must
stay the same to the last bit, or the whole file must be refused. Readers × odd values × places
where the odd rows stand.
"""

import bz2
import csv
import gzip
import io
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from discreet import Ratings
from discreet.data.csv_format import CsvFormat, read_text
from discreet.data.ids import Coded, encode
from discreet.data.values import seconds, text_times
from discreet.errors import DataError
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose

FILMS = {item: f"Film {item}" for item in range(1, 41)} | {
    "tt0111161": "Shawshank",
    "042": "Padded",
}


class Row(NamedTuple):
    """One line, as it is written."""

    user: str
    item: str
    rating: str = "3"
    time: str = "1600000000000000000"


def ordinary() -> list[Row]:
    """Seven users with twelve ratings each, the last of them twice, at times that a float would
    mix up.
    """
    rng = np.random.default_rng(5)
    rows = []
    for user in (2, 10, *range(99, 104)):
        for n, item in enumerate(rng.choice(np.arange(1, 41), 12, replace=False)):
            rows.append(
                Row(
                    str(user), str(item), f"{rng.integers(2, 11) / 2}", str(1600000000000000000 + n)
                )
            )
        # older than the last one
        rows.append(rows[-1]._replace(rating="0.5", time=str(1600000000000000000 + 10)))
    order = rng.permutation(len(rows))
    return [rows[at] for at in order]


BASE = ordinary()

# ------------------------------------------------------------------------------------------------
# readers


def as_written(column: list[str]) -> list[Any]:
    """What a program makes of a column: integers or decimals if all are, else text."""
    for kind, pattern in ((int, r"-?(0|[1-9]\d{0,17})"), (float, r"-?\d{1,15}(\.\d+)?")):
        if all(re.fullmatch(pattern, text, re.ASCII) for text in column):
            return [kind(text) for text in column]
    return column


def mixed(column: list[str]) -> list[Any]:
    return [int(text) if re.fullmatch(r"0|-?[1-9]\d*", text, re.ASCII) else text for text in column]


def columns(
    rows: list[Row], kind: Callable[[list[str]], list[Any]] = as_written
) -> dict[str, list[Any]]:
    user, item, rating, time = (list(column) for column in zip(*rows, strict=True))
    return {
        "user_id": kind(user),
        "item_id": kind(item),
        "rating": as_written(rating),
        "timestamp": as_written(time),
    }


def text(
    separator: str, header: bool, pack: Callable[[bytes], bytes] = bytes
) -> Callable[..., Any]:
    def read(rows: list[Row], folder: Path) -> Ratings:
        lines = io.StringIO()
        if separator in ",\t;":
            writer = csv.writer(lines, delimiter=separator, lineterminator="\n")
            writer.writerows([("user_id", "item_id", "rating", "timestamp")] * header + rows)
        else:
            names = [separator.join(("user_id", "item_id", "rating", "timestamp"))] * header
            lines.write("\n".join([*names, *(separator.join(row) for row in rows)]) + "\n")
        path = folder / "ratings"
        path.write_bytes(pack(lines.getvalue().encode()))
        return Ratings.read(path, items=FILMS, unknown_items="drop")

    return read


def table(write: Callable[[pa.Table, Path], None]) -> Callable[..., Any]:
    def read(rows: list[Row], folder: Path) -> Ratings:
        write(pa.table(columns(rows)), folder / "ratings")
        return Ratings.read(folder / "ratings", items=FILMS, unknown_items="drop")

    return read


def stream(made: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)


def frame(
    make: Callable[[dict[str, list[Any]]], Any], kind: Callable[..., Any] = as_written
) -> Callable[..., Any]:
    def read(rows: list[Row], folder: Path) -> Ratings:
        return Ratings.from_frame(make(columns(rows, kind)), items=FILMS, unknown_items="drop")

    return read


def arrays(
    make: Callable[[list[Any]], Any], kind: Callable[..., Any] = mixed
) -> Callable[..., Any]:
    def read(rows: list[Row], folder: Path) -> Ratings:
        given = columns(rows, kind)
        users, items = make(given["user_id"]), make(given["item_id"])
        return Ratings.from_arrays(
            users, items, given["rating"], given["timestamp"], item_ids=FILMS, unknown_items="drop"
        )

    return read


def csr(make: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def read(rows: list[Row], folder: Path) -> Ratings:
        users, items = (list(dict.fromkeys(column)) for column in list(zip(*rows, strict=True))[:2])
        newest = {
            (row.user, row.item): row for row in sorted(rows, key=lambda row: int(row.time))
        }.values()
        at = [users.index(row.user) for row in newest], [items.index(row.item) for row in newest]
        matrix = sparse.coo_array(
            ([float(row.rating) for row in newest], at), shape=(len(users), len(items))
        )
        ids = make(mixed(users)), make(mixed(items))
        return Ratings.from_csr(matrix.tocsr(), *ids, items=FILMS, unknown_items="drop")

    return read


READERS: dict[str, Callable[[list[Row], Path], Ratings]] = {
    "csv": text(",", True),
    "csv without header": text(",", False),
    "tsv": text("\t", True),
    "semicolons": text(";", False),
    "bars": text("|", True),
    "colons": text("::", False),
    "spaces": text(" ", False),
    "csv.gz": text(",", True, gzip.compress),
    "csv.zst": text(",", False, lambda data: pa.compress(data, "zstd", asbytes=True)),
    "csv.bz2": text(",", True, bz2.compress),
    "parquet": table(pa.parquet.write_table),
    "feather": table(pa.feather.write_feather),
    "arrow stream": table(stream),
    "pandas": frame(pd.DataFrame),
    "pandas objects": frame(lambda given: pd.DataFrame(given, dtype=object), mixed),
    "pandas text": frame(
        lambda given: pd.DataFrame(given).astype({"user_id": str, "item_id": str})
    ),
    "polars": frame(pl.DataFrame),
    "arrow": frame(pa.table),
    "lists": arrays(list),
    "numpy": arrays(np.array),
    "numpy objects": arrays(lambda ids: np.array(ids, object)),
    "csr": csr(list),
    "csr, numpy": csr(np.array),
}

# ------------------------------------------------------------------------------------------------
# the property


def sealed(ratings: Ratings) -> tuple[list[Any], dict[Any, Any]]:
    """Users in their order, and of each all that is sealed, and what it contributes through."""
    users = seal(ratings, Bounds(items=4, rating=1.5, center="user"), seed=3)
    users.apply(Choose(draw=2))
    (rows,) = users.open(KEY)
    given = defaultdict(list)
    for item, (start, end) in enumerate(zip(rows["by_item"], rows["by_item"][1:], strict=False)):
        for at in range(start, end):
            given[int(rows["user"][at])].append((item, rows["value"][at], rows["weight"][at]))
    ids = [as_id(user) for user in ratings.user_ids.tolist()]
    kept = {}
    for at, user in enumerate(ids):
        part = slice(rows.indptr[at], rows.indptr[at + 1])
        kept[user] = (
            rows.indices[part].tobytes(),
            rows.values[part].tobytes(),
            rows.mean[at].tobytes(),
            rows.key[at].tobytes(),
            given[at],
            None if ratings.timestamps is None else ratings.timestamps[part].tobytes(),
        )
    return ids, kept


def as_id(user: Any) -> str:
    return re.sub(r"\.0$", "", str(user))


def added(rows: list[Row], place: str) -> list[Row]:
    at = {"first": 0, "middle": len(BASE) // 2, "last": len(BASE)}[place]
    return BASE[:at] + rows + BASE[at:]


def unchanged(reader: str, rows: list[Row], place: str, folder: Path) -> bool | None:
    """Whether the others' sealed rows are the same with these rows; None if the file is refused."""
    before, expected = alone(reader, folder)
    try:
        order, found = sealed(READERS[reader](added(rows, place), folder))
    except DataError:
        return None
    others = [user for user in order if user in expected]
    return others == before and all(found[user] == expected[user] for user in before)


_ALONE: dict[str, Any] = {}


def alone(reader: str, folder: Path) -> tuple[list[Any], dict[Any, Any]]:
    """What is sealed of the ordinary rows, read once."""
    if reader not in _ALONE:
        _ALONE[reader] = order, kept = sealed(READERS[reader](BASE, folder))
        assert order == ["2", "10", "99", "100", "101", "102", "103"] or reader.startswith("csr")
        assert all(len(np.frombuffer(row[0], np.int32)) == 12 for row in kept.values())
    return _ALONE[reader]


ODD = {
    "text": "tt0111161",
    "unknown text": "tt7",
    "leading zeros": "007",
    "leading zero that is listed": "042",
    "zeros": "000",
    "decimal": "7.5",
    "integral decimal": "3007.0",
    "many digits": "12345678901234567890123",
    "19 digits": "9223372036854775808",
    "hexadecimal": "0x1F",
    "exponent": "1e3",
    "hex digits that read as infinity": "7e999999",
    "sign": "+3007",
    "minus zero": "-0",
    "unicode": "Ünïcode 日本 🎬",
    "other digits": "٣",
    "wide digits": "１２",
    "underscore": "1_0",
    "no-break space": "3007\u00a0",
    "blanks": "  ",
    "quote": 'say "hi"',
    "one quote": '"',
    "comma": "a,b",
    "all separators": "a,b;c|d\te::f g",
    "line break": "a\nb",
    "control character": "a\x1fb",
    "null character": "a\x00b",
    "long": "x" * 5000,
    "true": "true",
    "date": "2024-05-01",
    "column name": "item_id",
}
PLACES = ("first", "middle", "last")
TEXT = [name for name, read in READERS.items() if read.__qualname__.startswith("text")]
MATTER = {
    "text",
    "leading zeros",
    "decimal",
    "many digits",
    "hexadecimal",
    "minus zero",
    "other digits",
    "date",
}


@pytest.mark.parametrize("column", ["user", "item"])
@pytest.mark.parametrize("reader", READERS)
def test_odd_ids(reader, column, tmp_path):
    accepted = set()
    for name, value in ODD.items():
        for place in PLACES:
            rows = [Row("3001", "7")._replace(**{column: value}), Row("3001", "8")]
            same = unchanged(reader, rows, place, tmp_path)
            assert same in (True, None), f"{name}, {place}"
            accepted |= {name} if same else set()
    assert accepted >= MATTER


@pytest.mark.parametrize("column", ["user", "item"])
@pytest.mark.parametrize("word", ["", "NA", "nan", "NaN", "None", "null", "NULL", "<NA>"])
@pytest.mark.parametrize("reader", READERS)
def test_words_for_missing_ids_are_nobody(reader, word, column, tmp_path):
    rows = [Row("3001", "7")._replace(**{column: word})]
    if reader.startswith("csr") and column == "item":
        # a column that is called so, and not in the catalog
        assert unchanged(reader, rows, "middle", tmp_path)
        return
    for place in PLACES:
        assert unchanged(reader, rows, place, tmp_path) is None


@pytest.mark.parametrize("reader", [name for name in READERS if not name.startswith("csr")])
def test_odd_ratings(reader, tmp_path):
    accepted = set()
    for rating in (
        "",
        "nan",
        "inf",
        "1e400",
        "five",
        "3,5",
        "3,500",
        "0x4",
        "1_0",
        "٣",
        " 4 ",
        "-7",
        "1e3",
        "0.30000001192",
    ):
        for place in PLACES:
            same = unchanged(reader, [Row("3001", "7"), Row("3001", "8", rating)], place, tmp_path)
            assert same in (True, None), f"{rating}, {place}"
            accepted |= {rating} if same else set()
    assert {"-7", "0.30000001192"} <= accepted
    assert not accepted & {"", "nan", "inf", "1e400", "five", "3,500"}


@pytest.mark.parametrize("reader", [name for name in READERS if not name.startswith("csr")])
def test_odd_times(reader, tmp_path):
    accepted = set()
    times = (
        "",
        "nan",
        "noon",
        "7.5",
        "-3",
        "0x7",
        "1e3",
        "1e300",
        "9" * 25,
        "007",
        "true",
        "12:30:00",
        "2024-05-01",
    )
    for time in (*times, "2024-05-01T12:00:00Z", "2024-05-01 12:00:00.5+02:00", "20240501"):
        for place in PLACES:
            if reader in ("pandas", "polars", "arrow") and time in ("7.5", "-3"):
                continue  # these libraries make the whole column floats, before it gets here
            same = unchanged(
                reader, [Row("3001", "7"), Row("3001", "8", "3", time)], place, tmp_path
            )
            assert same in (True, None), f"{time}, {place}"
            accepted |= {time} if same else set()
    assert {"2024-05-01", "2024-05-01T12:00:00Z", "20240501"} <= accepted or reader == "spaces"
    assert not accepted & {"", "nan", "noon", "1e300", "9" * 25}


VALUES = st.one_of(
    st.text(min_size=1, max_size=6),
    st.from_regex(r"[ -]?[0-9]{1,25}(\.[0-9]{1,3})?[ ]?", fullmatch=True),
    st.sampled_from(sorted(ODD.values())),
)
ODD_ROWS = st.lists(
    st.builds(
        Row,
        VALUES,
        VALUES,
        st.sampled_from(["3", "4.5", "0"]),
        st.sampled_from(["5", "1600000000000000001"]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(READERS)), ODD_ROWS, st.sampled_from(PLACES))
def test_any_rows_of_strangers(tmp_path_factory, reader, rows, place):
    own = {as_id(user) for user in alone(reader, tmp_path_factory.mktemp("alone"))[0]}
    rows = [row for row in rows if as_id(row.user).strip() not in own]
    if rows:
        assert unchanged(reader, rows, place, tmp_path_factory.mktemp("odd")) in (True, None)


# ------------------------------------------------------------------------------------------------
# how a file is cut


def layouts(folder: Path, lines: list[str], first: list[str]) -> Any:
    """The ratings of these lines and, with others before them, of the same users; None if that
    is refused.
    """
    read = {}
    for name, content in (("alone", lines), ("with", first + lines)):
        path = folder / name
        path.write_text("\n".join(content) + "\n", encoding="utf-8")
        try:
            read[name] = sealed(Ratings.read(path, items=FILMS, unknown_items="drop"))[1]
        except DataError:
            return None
    assert read["alone"].items() <= read["with"].items()
    return read["with"]


@pytest.mark.parametrize("many", [1, 40_000])  # more than is looked at
def test_nobody_else_decides_how_lines_are_cut(many, tmp_path):
    spaced = [f"{user}, {item}, 3" for user in (1, 2) for item in (5, 6)]
    assert layouts(tmp_path, [line.replace(" ", "") for line in spaced], ["9,8,4"] * many)
    for other in (
        "x y 3",
        "x,y, 2, 3",
        "x;y;3",
        "x|y|3",
        "x\ty\t3",
        "a;b;c;d;e,5,3",
        "x::5::3",
        '"x, y", 5, 3',
    ):
        layouts(tmp_path, spaced, [other] * many)
    # which separator would be meant is anybody's guess
    for line in ("1,2,3;4", "1|2|3,5", "1::2::3|4"):
        assert layouts(tmp_path, [line], []) is None


@pytest.mark.parametrize(
    "first", ["user,7,3", "user,item,5", "item,8,4", "rating,8,1", "timestamp,8,1"]
)
def test_a_user_who_is_called_like_a_column_is_no_header(first, tmp_path):
    lines = [f"{user},{item},{item % 5 + 1}" for user in (1, 2) for item in (5, 6)]
    assert layouts(tmp_path, lines, ["9,7,3"])
    assert layouts(tmp_path, lines, [first]) is None
    path = tmp_path / "with"
    assert Ratings.read(path, header=False).n_users == 3


def test_a_quote_that_somebody_opens_swallows_nobody(tmp_path):
    path = tmp_path / "ratings.csv"
    for opened, closed in (('9,"x,5', '9,y",5'), ('"x,7,5', 'y",7,5'), ('9,"x', '",5')):
        path.write_text(
            "\n".join(["user,item,rating", "1,7,3", opened, "2,7,4", closed, "3,7,5"]),
            encoding="utf-8",
        )
        with pytest.raises(DataError):
            Ratings.read(path)


# ------------------------------------------------------------------------------------------------
# two ways, one result

IDS = st.one_of(st.integers(-(10**6), 10**6).map(str), st.integers(0, 9).map("{} ".format))


@given(st.lists(st.tuples(IDS, IDS, st.integers(0, 2**62)), min_size=1, max_size=30))
def test_integers_come_out_the_same_when_read_as_text(rows):
    content = "\n".join(f"{user},{item},3,{time}" for user, item, time in rows).encode()
    layout = CsvFormat(
        ",", False, ("0", "1", "2", "3"), 0, {"user": 0, "item": 1, "rating": 2, "timestamp": 3}, ()
    )
    fast = read_text(pa.BufferReader(content), layout)
    slow = read_text(pa.BufferReader(content), layout, {"user", "item", "timestamp"})
    assert pa.types.is_integer(fast.users.type)
    assert isinstance(slow.users, Coded)
    for one, other in ((fast.users, slow.users), (fast.items, slow.items)):
        (ids, codes), (same_ids, same_codes) = encode(one), encode(other)
        assert ids.dtype == same_ids.dtype == np.int64
        np.testing.assert_array_equal(ids, same_ids)
        np.testing.assert_array_equal(codes, same_codes)
    np.testing.assert_array_equal(fast.timestamps, slow.timestamps)


TIMES = st.one_of(
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=30))])),
    st.datetimes().map(lambda moment: moment.replace(microsecond=0)),
    st.dates(),
)
SPELLED = st.one_of(
    TIMES.map(str),
    TIMES.map(lambda moment: moment.isoformat()),
    st.floats(-1e9, 1e9).map(str),
    st.integers().map(str),
)


@given(st.lists(SPELLED, min_size=1, max_size=5))
def test_times_are_read_one_by_one_however_fast(texts):
    try:
        expected = [seconds(text) for text in texts]
    except DataError:
        with pytest.raises(DataError):
            text_times(pa.chunked_array([texts]))
        return
    assert text_times(pa.chunked_array([texts])).tolist() == expected


def test_the_mean_of_repeated_rows_is_the_same_wherever_they_stand():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(50, 37)).astype(np.float32)
    users = np.repeat(np.arange(50), 37)
    expected = Ratings.from_arrays(
        users, np.zeros(1850, int), values.ravel(), duplicates="mean"
    ).values
    for others in (1, 7, 1000, 8191, 20_001):
        with_others = Ratings.from_arrays(
            np.concatenate([np.full(others, -1), users]),
            np.zeros(others + 1850, int),
            np.concatenate([rng.normal(size=others).astype(np.float32), values.ravel()]),
            duplicates="mean",
        )
        assert with_others.values[1:].tobytes() == expected.tobytes()


@pytest.mark.parametrize("comment", ['5" disc', '"', '"" "', '"a"b"', '"5,""6"'])
@pytest.mark.parametrize("padded", ["007", "-0", '" 0x7"'])
def test_a_stray_quote_hides_no_leading_zero(padded, comment, tmp_path):
    """Far down, where the first lines say nothing about it, and arrow would read an integer."""
    lines = [f"{n},{n % 40 + 1},3,fine" for n in range(30_000)]
    lines[29_000:29_000] = [f"1,{padded},4,ok", f"{padded},7,4,ok"]
    path = tmp_path / "ratings.csv"

    def read(stray: list[str]) -> Any:
        path.write_text(
            "\n".join(["user,item,rating,comment", *lines[:28_990], *stray, *lines[28_990:]]) + "\n"
        )
        assert path.stat().st_size > 1 << 18
        try:
            return Ratings.read(path)
        except DataError:
            return None

    alone = read([])
    text = padded.strip('"')
    assert {text, 7} <= set(alone.user_ids.tolist())
    assert {text, 7} <= set(alone.item_ids.tolist())
    found = read([f"99999,7,3,{comment}"])
    if found is not None:
        assert found.select_users(alone.user_ids.tolist()) == alone


def test_the_log_does_not_say_whether_rows_were_repeated(tmp_path, caplog):
    """Whether and how many rows were repeated is a fact about users; `Ratings.merged` has it."""
    said = set()
    for repeated in (0, 1, 37, 1234):
        rows = [f"{u},{i},3" for u in range(50) for i in range(30)]
        (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *rows, *rows[:repeated]]))
        caplog.clear()
        assert Ratings.read(tmp_path / "r.csv").merged == repeated
        said.add(caplog.text)
    assert said == {""}
