"""Every broken file is answered by one sentence that names the file, the line and the way out."""

import gzip
import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from discreet import Ratings
from discreet.errors import DataError, DiscreetError

GZ = gzip.compress(
    b"user,item,rating\n" + b"".join(b"%d,%d,3\n" % (n, n * n % 997) for n in range(20_000)),
    mtime=0,
)
ZST = pa.compress(gzip.decompress(GZ), "zstd", asbytes=True)


def refused(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        Ratings.read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) - len(str(path)) < 300
    assert str(path) in message
    return message.replace(str(path), path.name)


TEXT = {
    "nan": ("user,item,rating\n1,2,3\n1,3,nan\n", "line 3: the rating is 'nan'"),
    "infinite": (
        "user,item,rating\n1,2,3\n\n1,3,inf\n",
        "line 4: the rating 'inf' is not a finite number",
    ),
    "minus infinite": (
        "user,item,rating\n1,2,-inf\n",
        "line 2: the rating '-inf' is not a finite number",
    ),
    "too large": (
        "user,item,rating\n1,2,1e300\n",
        "line 2: the rating '1e300' is not a finite number",
    ),
    "text as rating": (
        "user,item,rating\n1,2,3\n4,5,good\n",
        "line 3: the rating 'good' is not a number",
    ),
    "comma of thousands": (
        "user;item;rating\n1;2;3,500\n",
        "line 2: the rating '3,500' may have a decimal comma or a comma of thousands",
    ),
    "no rating": ("user,item,rating\n1,2,3\n4,5,\n", "line 3: the rating is missing"),
    "no user": ("user,item,rating\n1,2,3\n,5,1\n", "line 3: the user id is missing"),
    "no text user": ("user,item,rating\na,2,3\n,5,1\n", "line 3: the user id is missing"),
    "no item": ("user,item,rating\n1,2,3\n1,,1\n", "line 3: the item id is missing"),
    "NA among integers": (
        "user,item,rating\n1,2,3\n1,NA,1\n",
        "line 3: the item id is 'NA', a placeholder for",
    ),
    "null among text": (
        "user,item,rating\na,b,3\nnull,b,1\n",
        "line 3: the user id is 'null', a placeholder for",
    ),
    "line break in an id": (
        'user,item,rating\na,b,3\n"c\nd",b,1\n',
        "line 3: the user id runs over several lines",
    ),
    "name and number": (
        "user,item,4\nbob,cup,3\n",
        "the first line has both a known column name and a number",
    ),
    "two separators": (
        "1,2,3;4\n1,3,3;4\n",
        "can be split at ',' and at ';': pass the right one as separator=",
    ),
    "two user columns": ("user,item,user,rating\n1,2,3,4\n", "has several columns named 'user'"),
    "timestamp too large": (
        "user,item,rating,time\n1,2,3,1e30\n",
        "line 2: the timestamp is beyond 64 bits",
    ),
    "no timestamp": ("user,item,rating,timestamp\n1,2,3,\n", "line 2: the timestamp is missing"),
    "text as timestamp": (
        "user,item,rating,time\n1,2,3,noon\n",
        "line 2: the timestamp 'noon' is neither",
    ),
    "line too short": (
        "user,item,rating\n1,2,3\n1,2\n",
        "line 3: 2 fields where the first line has 3",
    ),
    "line too long": (
        "user,item,rating\n1,2,3\n1,2,3,4\n",
        "line 3: 4 fields where the first line has 3",
    ),
    "first line of numbers": ("1,2,good\n4,5,6\n", "line 1: the rating 'good' is not a number"),
    "colons": ("1::2::3\n1::2::x\n", "line 2: the rating 'x' is not a number"),
    "empty": ("", "is empty"),
    "blank": ("\n \n\n", "is empty"),
    "header only": ("user,item,rating\n", "has a header line but no ratings"),
    "one column": ("user\n1\n", "has only one column when split at any of"),
    "unknown separator": ("user#item\n1#2\n", "has only one column when split at any of"),
    "no user column": (
        "person_name,item,rating\nx,2,3\n",
        (
            "identifies users with user=..., or pass header=False if the first line holds no names."
            " Columns: 'person_name', 'item'"
        ),
    ),
    "no item column": (
        "user,flm,rating\nx,2,3\n",
        "recognizable as the item: its columns are 'user', 'flm', 'rating'",
    ),
    "no known column": (
        "a,b,c\nx,y,z\n",
        "name the column that identifies users with user=..., or pass header=False",
    ),
    "UTF-16 without mark": (
        ("user,item\na,b\n" * 9).encode("utf-16-le"),
        "is encoded as UTF-16: pass encoding='utf-16-le'",
    ),
    "half a letter of UTF-16": (
        "user,item\na,b\n".encode("utf-16") + b"c",
        "is not utf-16 text: pass another encoding=",
    ),
    "Latin-1 in the header": (
        "N° client;produit;note\n1;2;3\n".encode("latin-1"),
        "line 1: the column names are not UTF-8 text: pass encoding='cp1252'",
    ),
    "day or month": (
        "user,item,rating,date\n1,2,3,05/06/2025\n",
        "line 2: the timestamp '05/06/2025' may begin with the day or the month: pass"
        " dates='day-first' or dates='month-first'",
    ),
    "no such day": (
        "client;produit;note;date\n1;2;3;31/02/2025\n",
        "line 2: the timestamp '31/02/2025' is neither a number nor a date",
    ),
    "Latin-1": (
        "user,item,rating\na,b,3\nRené,b,2\n".encode("latin-1"),
        "line 3: the user is not UTF-8 text: pass encoding='cp1252' if Excel on Windows wrote",
    ),
    "binary": (bytes([7, 0, 1, 2, 255, 0]) * 9, "is not a text file"),
    "zip": (b"PK\x03\x04....", "is a zip archive: unpack it"),
    "pickle": (b"\x80\x05\x95....", "is a pickle, which is never loaded"),
    "JSON": ('[{"user": 1, "item": 2}]', "is JSON: convert it"),
    "web page": ("\n<!DOCTYPE html><html></html>", "is a web page: the download went wrong"),
    "endless line": ("user,item\n" + "x" * 400_000, "fields where the first line has 2"),
    "endless quote": ('user,item\n1,2\n"' + "x,1\n" * 100_000, "line 3"),
    "row after a long text": (
        'user,item,rating,text\n1,2,3,"a\nb"\n1,3,x,"c"\n',
        "line 4: the rating 'x'",
    ),
    "sqlite": (b"SQLite format 3", "is an SQLite database"),
    "old workbook": (b"\xd0\xcf\x11\xe0....", "is a spreadsheet: save it as CSV UTF-8"),
    "titles for items": ("user,title,rating\nx,Up,3\n", "did you mean item='title'?"),
}


@pytest.mark.parametrize("case", TEXT)
def test_text_files(tmp_path, case):
    content, expected = TEXT[case]
    path = tmp_path / "ratings.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    message = refused(path)
    assert message.startswith("ratings.csv")
    assert expected in message


@pytest.mark.parametrize(
    "case", [name for name, (_, expected) in TEXT.items() if "line" in expected[:5]]
)
def test_lines_are_counted_in_compressed_files_too(tmp_path, case):
    content, expected = TEXT[case]
    path = tmp_path / "ratings.csv.gz"
    path.write_bytes(gzip.compress(content.encode() if isinstance(content, str) else content))
    assert expected in refused(path)


def test_line_number_far_down(tmp_path):
    path = tmp_path / "ratings.csv"
    lines = [f"{n},{n % 50},3" for n in range(300_000)]
    lines[250_000] = "5,5,five"
    path.write_text("user,item,rating\n" + "\n".join(lines), encoding="utf-8")
    assert "line 250,002: the rating 'five' is not a number" in refused(path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"user": "usr"}, "has no column 'usr': its columns are 'user', 'item', 'rating'"),
        ({"item": 9}, "has 3 columns, so there is none at position 9"),
        ({"rating": "ratings"}, "did you mean rating='rating'?"),
        ({"user": "item"}, "the column 'item' cannot be both the user and the item"),
        (
            {"separator": ";"},
            "at the separator ';' (first line 'user,item,rating'): pass separator=','",
        ),
        (
            {"header": False},
            "line 1: the rating 'rating' is not a number: pass user=0 and rating=False if the rows",
        ),
        (
            {"header": False, "user": "user"},
            "so there is no column 'user': pass its position, such as user=0",
        ),
        ({"header": False, "rating": 7}, "has 3 columns, so the rating cannot be at position 7"),
        ({"header": False, "rating": 1}, "the same position was given for two columns"),
    ],
    ids=str,
)
def test_options_that_do_not_fit(tmp_path, options, expected):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n1,2,3\n1,4,3\n", encoding="utf-8")
    assert expected in refused(path, **options)


def test_true_is_no_column(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n1,2,3\n", encoding="utf-8")
    with pytest.raises(DiscreetError, match="user=True is not a column"):
        Ratings.read(path, user=True)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("r.csv.gz", GZ[: len(GZ) // 2], "is incomplete"),
        ("r.csv.gz", GZ[:-4], "is incomplete"),
        ("r.csv.gz", GZ[:6], "is incomplete"),
        ("r.csv.zst", ZST[: len(ZST) // 2], "is incomplete"),
        ("r.csv.gz", b"user,item\n1,2\n", "is named as gzip and holds no gzip data"),
        ("r.csv.zst", b"user,item\n1,2\n", "is named as zstd and holds no zstd data"),
        ("r.csv.gz", GZ[:-8] + bytes(4) + GZ[-4:], "is damaged"),
        ("r.csv.gz", GZ[:500] + bytes(500) + GZ[1000:], "is damaged"),
        ("r.parquet", b"user,item\n1,2\n", "is named as parquet and does not hold parquet data"),
        ("r.feather", b"user,item\n1,2\n", "is named as feather and does not hold feather data"),
        ("r.parquet", b"PAR1 and then nothing", "cannot be read"),
        ("r.feather", b"ARROW1\0\0 and then nothing", "cannot be read"),
        ("r.parquet", b"", "is empty"),
    ],
)
def test_damaged_containers(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    assert expected in refused(path)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"user": [1, None], "item": [1, 2]}, "row 1 (counting from 0): the user id is missing"),
        ({"user": [1, 2], "item": ["a", None]}, "row 1 (counting from 0): the item id is missing"),
        (
            {"user": [1, 2], "item": [1, 2], "rating": [1.0, np.nan]},
            "row 1 (counting from 0): the rating is nan",
        ),
        (
            {"user": [1, 2], "item": [1, 2], "rating": [-np.inf, 1.0]},
            "row 0 (counting from 0): the rating is -inf",
        ),
        (
            {"user": [1, 2], "item": [1, 2], "rating": [1.0, None]},
            "row 1 (counting from 0): the rating is missing",
        ),
        (
            {"user": [1, 2], "item": [1, 2], "rating": ["1", "x"]},
            "row 1 (counting from 0): the rating 'x' is not",
        ),
        (
            {"user": [1, 2], "item": [1, 2], "time": [1, None]},
            "row 1 (counting from 0): the timestamp is missing",
        ),
        ({"user": [[1], [2]], "item": [1, 2]}, "must be hashable"),
        ({"user": [], "item": []}, "holds no ratings"),
        (
            {"usr": [1], "item": [1]},
            "name the column that identifies users with user=.... Columns: 'usr', 'item'",
        ),
    ],
    ids=str,
)
def test_columnar_content(tmp_path, columns, expected):
    path = tmp_path / "r.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    assert expected in refused(path)
    pa.feather.write_feather(pa.table(columns), tmp_path / "r.feather")
    assert expected in refused(tmp_path / "r.feather")


def test_paths(tmp_path):
    (tmp_path / "ratings.csv").write_text("1,2,3\n", encoding="utf-8")
    assert refused(tmp_path) == (
        f"{tmp_path.name} is a folder: pass one of the files inside, such as ratings.csv; for the"
        " ratings of all files, use BlockRatings.write"
    )
    assert f"did you mean {tmp_path / 'ratings.csv'}?" in refused(tmp_path / "rating.csv")
    assert "does not exist: check the path" in refused(tmp_path / "zzzzzz")
    assert "does not exist either" in refused(tmp_path / "none" / "x.csv")
    with pytest.raises(DataError, match="is a network address"):
        Ratings.read("https://example.org/ratings.csv")
    with pytest.raises(DataError, match="a file path is needed, not int"):
        Ratings.read(7)


@pytest.mark.skipif(
    os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs permissions"
)
def test_unreadable_file(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("1,2,3\n", encoding="utf-8")
    path.chmod(0)
    assert "Permission denied" in refused(path)


def test_a_line_without_end_is_refused_before_it_is_held(tmp_path):
    """Some megabytes of one letter are a few kilobytes of gzip, and took time by the square of
    their length.
    """
    from discreet.data.catalog import read_catalog
    from discreet.data.csv_format import MOST_LINE, find_layout
    from discreet.data.csv_scan import scan
    from discreet.data.features import read_features
    from discreet.engines.blocks import BlockRatings

    head = b"item_id,user,rating\n1,2,3\n"
    long = head + b"7" * (4 * MOST_LINE) + b",2,3\n"
    file = tmp_path / "long.csv.gz"
    file.write_bytes(gzip.compress(long))

    def write_blocks(source):
        return BlockRatings.write(source, tmp_path / "blocks", blocks=2)

    for read in (Ratings.read, write_blocks, read_catalog, read_features):
        with pytest.raises(
            DataError, match=r"long.csv.gz.* has a line of more than 1,048,576 bytes"
        ) as caught:
            read(file)
        assert len(str(caught.value)) < 300

    class Endless(io.RawIOBase):
        """A line that never ends, and how much of it was read."""

        taken = 0

        def read(self, size=-1):
            self.taken += size
            assert self.taken < 4 * MOST_LINE
            return b"7" * size

    layout = find_layout(head.decode().splitlines(), {}, None, None, "it")
    with pytest.raises(DataError, match="it has a line of more than"):
        scan(Endless(), layout, "it")


def test_a_link_that_leads_nowhere_is_called_that(tmp_path):
    for name, goal in (("loop.csv", "loop.csv"), ("gone.csv", "nowhere.csv")):
        (tmp_path / name).symlink_to(tmp_path / goal)
        with pytest.raises(DataError, match=f"{name} is a broken link"):
            Ratings.read(tmp_path / name)


def test_a_million_columns_are_refused_before_their_names_are_compared(tmp_path):
    (tmp_path / "wide.csv").write_text(",".join(f"c{at}" for at in range(1_000_000)) + "\n1,2,3\n")
    with pytest.raises(DataError, match="has a first line of more than 262,144 bytes"):
        Ratings.read(tmp_path / "wide.csv")


def test_lines_up_to_the_limit_and_old_line_ends_are_read(tmp_path):
    from discreet.data.csv_format import MOST_LINE
    from discreet.engines.blocks import BlockRatings

    note = "x" * (MOST_LINE - 100)
    (tmp_path / "wide.csv").write_text(f"user,item,rating,note\n1,2,3,{note}\n2,2,4,short\n")
    assert Ratings.read(tmp_path / "wide.csv").n_users == 2
    (tmp_path / "old.csv").write_bytes(b"user,item,rating\r1,2,3\r2,2,4\r" + b"3,2,1\r" * 10)
    assert Ratings.read(tmp_path / "old.csv").n_users == 3
    assert (
        len(BlockRatings.write(tmp_path / "old.csv", tmp_path / "blocks", blocks=2).item_ids) == 1
    )


def test_a_list_of_items_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    from discreet.data import readers
    from discreet.data.catalog import read_catalog

    monkeypatch.setattr(readers, "MOST_LIST", 1000)
    file = tmp_path / "items.csv.gz"
    file.write_bytes(gzip.compress(b"item_id,title\n" + b"1,a\n" * 1000))
    with pytest.raises(DataError, match="holds more than 1,000 bytes of text"):
        read_catalog(file)
