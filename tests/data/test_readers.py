"""Reading ratings from files, written in every way that files are written."""

import bz2
import csv
import gzip
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import Ratings
from discreet.data.csv_format import Replaced
from discreet.data.ids import parse_id, stands_for_nothing
from discreet.errors import DataError

EXPECTED = Ratings.from_arrays([1, 1, 2], [30, 10, 20], [4.5, 3, 1], [7, 8, 9])
LINES = ["1,30,4.5,7", "1,10,3,8", "2,20,1,9"]
HEADER = "user_id,item_id,rating,timestamp"


def write(folder, lines, name="ratings.csv", separator=",", end="\n", last="\n"):
    path = folder / name
    path.write_bytes((end.join(line.replace(",", separator) for line in lines) + last).encode())
    return path


# ------------------------------------------------------------------------------------------------
# text


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::", " "])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("end", "last"), [("\n", "\n"), ("\r\n", "\r\n"), ("\n", ""), ("\n\n", "\n\n\n")]
)
def test_separators_headers_and_line_ends(tmp_path, separator, header, end, last):
    path = write(tmp_path, [HEADER] * header + LINES, "ratings.txt", separator, end, last)
    assert Ratings.read(path) == EXPECTED
    assert Ratings.read(str(path), separator=separator, header=header) == EXPECTED


@pytest.mark.parametrize(
    "header",
    [
        "userId,movieId,rating,timestamp",
        "UserID,ItemID,Score,TIMESTAMP",
        "USER,ITEM,WEIGHT,TIME",
        "user id,item id,Rating,Date",
        '"user","item","rating","timestamp"',
        "\ufeffuser_id,item_id,rating,timestamp",
        " uid , iid , stars , ts ",
    ],
)
def test_names_by_convention(tmp_path, header):
    assert Ratings.read(write(tmp_path, [header, *LINES])) == EXPECTED


def test_columns_in_any_order_among_others(tmp_path):
    lines = ["when,comment,stars,who,film", '7,"good, really",4.5,1,30', "8,,3,1,10", "9,x,1,2,20"]
    path = write(tmp_path, lines)
    assert Ratings.read(path, user="who", item="film", timestamp="when") == EXPECTED
    assert Ratings.read(path, user=3, item=4, timestamp=0) == EXPECTED
    assert Ratings.read(path, user="Who", item="film", timestamp="when") == EXPECTED
    plain = write(tmp_path, ["30,7,1,4.5", "10,8,1,3", "20,9,2,1"])
    assert Ratings.read(plain, user=2, item=0, rating=3, timestamp=1) == EXPECTED


def test_columns_may_be_absent_or_ignored(tmp_path):
    path = write(tmp_path, [HEADER, *LINES])
    assert Ratings.read(path, timestamp=False).timestamps is None
    assert Ratings.read(path, rating=False).values.tolist() == [1, 1, 1]
    implicit = Ratings.read(write(tmp_path, ["user_id,item_id", "1,30", "1,10"]))
    assert implicit.values.tolist() == [1, 1]
    assert implicit.timestamps is None
    assert Ratings.read(write(tmp_path, ["1,30", "1,10"])).values.tolist() == [1, 1]


def test_a_misspelled_rating_column_is_not_passed_over_in_silence(tmp_path, caplog):
    path = write(tmp_path, ["user,item,ratng", "1,2,3"])
    assert Ratings.read(path).values.tolist() == [1]
    assert "did you mean rating='ratng'?" in caplog.text


def test_a_column_that_may_hold_ratings_is_named_by_its_name_alone(tmp_path, caplog):
    lines = ["user;item;ratng;shade", "1;2;3;4"]
    assert Ratings.read(write(tmp_path, lines)).values.tolist() == [1]
    said = caplog.text
    assert "no rating column, so every rating is 1; did you mean rating='ratng'?" in said
    caplog.clear()
    Ratings.read(write(tmp_path, [lines[0], "1;2;red;"]))
    assert caplog.text == said, "values do not decide what a log says"
    caplog.clear()
    Ratings.read(write(tmp_path, lines), rating=False)
    Ratings.read(write(tmp_path, ["user,item", "1,2"]))
    Ratings.read(write(tmp_path, ["user,item,shade", "1,2,3"]))
    assert not caplog.text


def test_columns_of_the_same_name_are_refused(tmp_path):
    text = write(tmp_path, ["user_id,userId,item,rating", "1,2,3,4"])
    with pytest.raises(
        DataError,
        match="has several columns named 'user_id' and 'userId', and only one can be the user",
    ):
        Ratings.read(text)
    assert Ratings.read(text, user=1).user_ids.tolist() == [2]
    for other in ("user", "customerId", "Person"):
        two = write(tmp_path, [f"{other},user_id,item", "1,2,3"])
        with pytest.raises(
            DataError, match=f"may be the user, 'user_id' and '{other}': choose one"
        ):
            Ratings.read(two)
        assert Ratings.read(two, user=other).user_ids.tolist() == [1]
    columns = [pa.array([1]), pa.array([2]), pa.array([3]), pa.array([4])]
    for names, message in (
        (["user", "item", "item", "x"], "several columns named 'item'"),
        (["user", "item", "x", "x"], None),
    ):
        table = pa.table(columns, names=names)
        pa.parquet.write_table(table, tmp_path / "r.parquet")
        pa.feather.write_feather(table, tmp_path / "r.feather")
        for file in (tmp_path / "r.parquet", tmp_path / "r.feather"):
            if message is None:
                assert Ratings.read(file).item_ids.tolist() == [2]
                continue
            for options in ({}, {"item": "item"}, {"item": 1}):
                with pytest.raises(DataError, match=message):
                    Ratings.read(file, **options)


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        (["alice,book,4", "bob,cup,3"], False),
        (["17,book,4", "18,cup,3"], False),
        (["alice,book,4,2024-05-01", "bob,cup,3,2024-05-02"], False),
        (["3,4", "5,6"], False),
        (["user,item", "bob,cup"], True),
        (["who,item,stars,comment", "bob,cup,3,fine"], True),
    ],
)
def test_header_is_found_out(tmp_path, lines, header):
    ratings = Ratings.read(
        write(tmp_path, lines), user="who" if lines[0].startswith("who") else None
    )
    assert ratings.n_ratings == 2 - header


def test_header_can_be_said(tmp_path):
    path = write(tmp_path, ["alice,book", "bob,cup"])
    assert Ratings.read(path, header=False).user_ids.tolist() == ["alice", "bob"]
    with pytest.raises(DataError, match="header=False"):
        Ratings.read(path)
    numbers = write(tmp_path, ["1,2,3", "4,5,6"])
    assert Ratings.read(numbers, header=True, user="1", item="2", rating="3").user_ids.tolist() == [
        4
    ]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (["1", "2", "10"], [1, 2, 10]),
        (["007", "7", "70"], [7, 70, "007"]),
        (["1.0", "2.0", "3.0"], [1, 2, 3]),
        (["1.5", "2.0", "3.0"], [2, 3, "1.5"]),
        (["true", "false", "true "], ["false", "true", "true "]),
        (["2024-01-01", "2024-01-02", "x"], ["2024-01-01", "2024-01-02", "x"]),
        (["12345678901234567890", "1", "2"], [1, 2, 12345678901234567890]),
        (["-5", "0", "5"], [-5, 0, 5]),
        ([" 1", "2 ", "3"], [1, 2, 3]),
        (["+1", "2", "3"], [2, 3, "+1"]),
        (["0x1F", "-0", "31"], [31, "-0", "0x1F"]),
        (["٣", "１２", "3"], [3, "٣", "１２"]),
        (["Ünïcode", "日本", "🎬"], ["Ünïcode", "日本", "🎬"]),
    ],
)
def test_ids_come_out_as_written(tmp_path, text, ids):
    path = write(tmp_path, ["user,item,rating", *(f"{value},{value},3" for value in text)])
    ratings = Ratings.read(path)
    assert ratings.user_ids.tolist() == ids
    assert ratings.item_ids.tolist() == ids


def test_ids_that_turn_out_to_be_text_far_down(tmp_path):
    lines = [f"{n},{n % 7},3" for n in range(60_000)]
    path = write(tmp_path, ["user,item,rating", *lines, "x1,3,4"])
    assert path.stat().st_size > 1 << 18
    ratings = Ratings.read(path)
    assert ratings.n_users == 60_001
    assert ratings.user_ids.tolist() == [*range(60_000), "x1"]
    assert ratings.item_ids.tolist() == list(range(7))  # the other column is left alone


def test_quotes(tmp_path):
    path = write(tmp_path, ["user,item,rating"], last="\n" + '"Smith, J.","say ""hi""",3\n')
    ratings = Ratings.read(path)
    assert ratings.user_ids.tolist() == ["Smith, J."]
    assert ratings.item_ids.tolist() == ['say "hi"']


def test_line_breaks_in_quoted_text(tmp_path):
    rows = '\n1,30,4.5,"good,\n\n""really"""\n1,10,3,\n2,20,1,"no\n1,2"\n'
    path = write(tmp_path, ["user,item,rating,review"], last=rows)
    assert Ratings.read(path) == Ratings.from_arrays([1, 1, 2], [30, 10, 20], [4.5, 3, 1])


@pytest.mark.parametrize("separator", ["#", "§", "<>", "~~~"])
def test_unusual_separators_can_be_said(tmp_path, separator):
    path = write(tmp_path, [HEADER, *LINES], separator=separator)
    assert Ratings.read(path, separator=separator) == EXPECTED


def test_tab_as_typed_in_a_shell(tmp_path):
    path = write(tmp_path, [HEADER, *LINES], separator="\t")
    assert Ratings.read(path, separator="\\t") == EXPECTED


def test_ids_with_single_colons_in_a_file_with_double_ones(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text("urn:1::a:b::3::5\nurn:2::c::4::6\n" * 3, encoding="utf-8")
    ratings = Ratings.read(path)
    assert ratings.user_ids.tolist() == ["urn:1", "urn:2"]
    assert ratings.item_ids.tolist() == ["a:b", "c"]
    assert ratings.merged == 4


def test_double_colons_cut_by_blocks():
    data = b"".join(b"%d::%d::3.5::100\n" % (n, n * 7) for n in range(50))
    for size in (2, 3, 7, 10_000):
        stream = Replaced(pa.BufferReader(data), b"::", b"\x1f")
        assert b"".join(iter(lambda s=stream, n=size: s.read(n), b"")) == data.replace(
            b"::", b"\x1f"
        )


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (["7", "8"], [7, 8]),
        (["7.9", "8"], [7, 8]),
        (["1970-01-01T00:01:00Z", "1970-01-01T01:00:00+01:00"], [60, 0]),
        (["1970-01-01 00:01:00", "1970-01-02 00:00:00.5"], [60, 86400]),
        (["1970-01-02", "1970-01-03"], [86400, 172800]),
        (["7", "1970-01-02"], [7, 86400]),
    ],
)
def test_timestamps(tmp_path, times, seconds):
    path = write(tmp_path, [HEADER, *(f"{n},1,3,{time}" for n, time in enumerate(times))])
    assert Ratings.read(path).timestamps.tolist() == seconds


def test_duplicates_follow_the_rule(tmp_path):
    path = write(tmp_path, [HEADER, "1,2,3,100", "1,2,4,50", "1,2,5,100", "1,2,1,99"])
    assert Ratings.read(path).values.tolist() == [5]
    assert Ratings.read(path).merged == 3
    assert Ratings.read(path, timestamp=False).values.tolist() == [1]
    assert Ratings.read(path, duplicates="mean").values.tolist() == [3.25]
    with pytest.raises(DataError, match=r"ratings\.csv: rows 1 and 0|ratings\.csv: rows 0 and 1"):
        Ratings.read(path, duplicates="error")


def test_catalog(tmp_path):
    path = write(tmp_path, [HEADER, *LINES])
    ratings = Ratings.read(path, items={30: "thirty", 20: "twenty", 10: "ten", 5: "five"})
    assert ratings.item_ids.tolist() == [30, 20, 10, 5]
    assert ratings.catalog
    with pytest.raises(
        DataError, match=r"ratings\.csv: some rated items are not in the catalog of 2: add"
    ):
        Ratings.read(path, items=[10, 20])
    assert Ratings.read(path, items=[10, 20], unknown_items="drop").n_ratings == 2


IDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda text: not stands_for_nothing(text))


@given(st.lists(st.tuples(IDS, IDS, st.floats(-100, 100, width=32)), min_size=1, max_size=20))
def test_any_text_survives_a_csv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "ratings.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerows([("user", "item", "rating"), ("x", "x", 1.0), *rows])
    users, items, values = zip(("x", "x", 1.0), *rows, strict=True)
    ratings = Ratings.read(path, separator=",", header=True)
    assert ratings == Ratings.from_arrays(
        list(map(parse_id, users)), list(map(parse_id, items)), values
    )


# ------------------------------------------------------------------------------------------------
# other formats


@pytest.mark.parametrize(
    "name", ["ratings.csv.gz", "ratings.csv.zst", "ratings.csv.bz2", "ratings.csv", "ratings.dat"]
)
@pytest.mark.parametrize("codec", ["gzip", "zstd", "bz2"])
@pytest.mark.parametrize("separator", [",", "::"])
def test_compressed(tmp_path, name, codec, separator):
    plain = "\n".join(line.replace(",", separator) for line in LINES).encode()
    pack = {
        "gzip": gzip.compress,
        "bz2": bz2.compress,
        "zstd": lambda data: pa.compress(data, "zstd", asbytes=True),
    }
    path = tmp_path / name
    path.write_bytes(pack[codec](plain))
    contradiction = path.suffix in (".gz", ".zst", ".bz2") and codec[:2] != path.suffix[1:3]
    if contradiction:
        with pytest.raises(DataError, match="is named as"):
            Ratings.read(path)
    else:
        assert Ratings.read(path) == EXPECTED


def table(**columns):
    given = {
        "user": [1, 1, 2],
        "item": [30, 10, 20],
        "rating": [4.5, 3.0, 1.0],
        "timestamp": [7, 8, 9],
    }
    return pa.table(given | columns)


@pytest.mark.parametrize("name", ["r.parquet", "r.feather", "r.arrow", "r.arrows", "r.anything"])
def test_columnar_files(tmp_path, name):
    path = tmp_path / name
    if name == "r.feather":
        pa.feather.write_feather(table(), path)
    elif name == "r.arrow":
        with pa.ipc.new_file(path, table().schema) as writer:
            writer.write_table(table())
    elif name == "r.arrows":
        with pa.ipc.new_stream(path, table().schema) as writer:
            writer.write_table(table())
    else:
        pa.parquet.write_table(table(extra=[[1], [2], [3]]), path)
    assert Ratings.read(path) == EXPECTED
    assert Ratings.read(path, user="user", timestamp=False).timestamps is None


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (pa.array(["b", "b", "a"]), ["a", "b"]),
        (pa.array(["b", "b", "a"]).dictionary_encode(), ["a", "b"]),
        (pa.array(["b", "b", "a"], pa.large_string()), ["a", "b"]),
        (pa.array([5, 5, 3], pa.uint16()), [3, 5]),
        (pa.array([5, 5, 3], pa.uint64()), [3, 5]),
        (pa.array([5.0, 5.0, 3.0]), [3, 5]),
        (pa.array([b"x", b"x", b"a"]), [b"a", b"x"]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_columnar_id_types(tmp_path, users, expected):
    path = tmp_path / "r.parquet"
    pa.parquet.write_table(table(user=users), path)
    assert Ratings.read(path).user_ids.tolist() == expected


def test_columnar_dates_and_text_numbers(tmp_path):
    path = tmp_path / "r.parquet"
    times = pa.array(np.array(["1970-01-02", "1970-01-03", "1970-01-04"], "datetime64[ns]"))
    pa.parquet.write_table(table(timestamp=times, rating=["1", "2.5", "3"]), path)
    ratings = Ratings.read(path)
    assert sorted(ratings.timestamps.tolist()) == [86400, 172800, 259200]
    assert sorted(ratings.values.tolist()) == [1, 2.5, 3]


# ------------------------------------------------------------------------------------------------
# real data


@pytest.mark.real_data
def test_official_files_equal_the_parquet_ones(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data / "ml-1m" / "ml-1m.zip") as archive:
        archive.extract("ml-1m/ratings.dat", tmp_path)
    official = Ratings.read(tmp_path / "ml-1m" / "ratings.dat")
    assert (official.n_users, official.n_items, official.n_ratings) == (6040, 3706, 1_000_209)
    assert official == Ratings.read(shared_data / "ml-1m" / "ratings.parquet")
    small = Ratings.read(
        shared_data / "ml-100k" / "u.data", items=shared_data / "ml-100k" / "u.item"
    )
    assert (small.n_users, small.n_items, small.n_ratings) == (943, 1682, 100_000)
    assert small == Ratings.read(shared_data / "ml-100k" / "ratings.parquet")
    assert small.titles[0] == "Toy Story (1995)"


FAR = 60_000  # lines: far beyond what is looked at first


@pytest.mark.parametrize(
    ("separator", "line", "changed"),
    [
        (",", "{u},{i},0.5", "007,{i},0.5"),
        (",", "{u},{i},0.5", "{u},007,0.5"),
        (",", '{u},"a, b",{i},05', '{u},"a, b", 007,05'),
        (",", '"{u}","{i}",4', '"{u}","007",4'),
        (",", "{u},{i},4", "-07,{i},4"),
        (",", "{u},{i},4", "{u},-0,4"),
        ("\t", "{u}\t{i}\t05", "{u}\t007\t05"),
        ("::", "{u}::{i}::0.5::978300760", "{u}::007::0.5::978300760"),
    ],
)
def test_leading_zeros_far_down_are_kept(tmp_path, separator, line, changed):
    rows = [line.format(u=1 + n % 500, i=1 + n % 90) for n in range(FAR)]
    rows.append(changed.format(u=7, i=7))
    names = ["user", "review", "item", "rating"] if "a, b" in line else ["user", "item", "rating"]
    head = [] if separator == "::" else [separator.join(names)]
    ratings = Ratings.read(write(tmp_path, head + rows))
    ids = {"007", "-07", "-0"}
    assert ids & {str(i).strip() for i in [*ratings.user_ids.tolist(), *ratings.item_ids.tolist()]}
    whole = Ratings.read(write(tmp_path, head + rows[:-1]))
    # zeros in the other columns change nothing
    assert whole.user_ids.dtype == whole.item_ids.dtype == np.int64
