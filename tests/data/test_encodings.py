"""Text in the encodings of spreadsheets, dates with slashes, gaps, and orders that are no users."""

import gzip

import numpy as np
import pandas as pd
import pytest

from discreet import DPMF, Ratings
from discreet.data.encodings import transcode
from discreet.data.values import seconds
from discreet.engines.blocks import BlockRatings
from discreet.errors import ConfigError, DataError

TEXT = "Kundennummer;Artikel;Sterne\nJörg;Käse – groß;4,5\nZoë;Käse – groß;2\n"
JAPANESE = "ユーザー,商品,評価\n太郎,本,4\n花子,本,5\n"


def written(path, text, encoding):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-8-sig", "mac-roman"])
def test_the_encoding_makes_no_difference(tmp_path, encoding):
    plain = Ratings.read(written(tmp_path / "a.csv", TEXT, "utf-8"))
    assert plain.user_ids.tolist() == ["Jörg", "Zoë"]
    assert plain.item_ids.tolist() == ["Käse – groß"]
    file = written(tmp_path / "b.csv", TEXT, encoding)
    assert Ratings.read(file, encoding=encoding) == plain


@pytest.mark.parametrize("encoding", ["shift_jis", "euc-jp", "iso2022-jp", "gb18030"])
def test_encodings_of_several_bytes_are_read(tmp_path, encoding):
    file = written(tmp_path / "r.csv", JAPANESE, encoding)
    assert Ratings.read(file, encoding=encoding).user_ids.tolist() == ["太郎", "花子"]


def test_the_mark_of_utf_16_is_enough(tmp_path):
    plain = Ratings.read(written(tmp_path / "a.csv", TEXT, "utf-8"))
    file = written(tmp_path / "b.csv", TEXT, "utf-16")
    assert Ratings.read(file) == plain
    packed = tmp_path / "c.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert Ratings.read(packed) == plain
    assert BlockRatings.write(file, tmp_path / "blocks", blocks=1).n_items == 1


def test_one_line_never_changes_how_another_is_decoded(tmp_path):
    # the first user leaves the state of ISO-2022-JP at Japanese, where "ab" would be one letter
    lines = ["user,item", "x\x1b$B", "ab,cd"]
    file = tmp_path / "r.csv"
    file.write_bytes("\n".join(lines).encode("latin-1"))
    with file.open("rb") as stream:
        text = transcode(stream, "iso2022-jp", "it").read()
    assert text.split(b"\n")[2] == b"ab,cd"


@pytest.mark.parametrize("encoding", ["cp1253x", "rot13", "", 7])
def test_unknown_encodings_are_refused(tmp_path, encoding):
    file = written(tmp_path / "r.csv", TEXT, "utf-8")
    with pytest.raises(ConfigError, match="is unknown: pass one such as 'cp1252'"):
        Ratings.read(file, encoding=encoding)


def test_what_is_not_in_the_encoding_is_refused(tmp_path):
    file = written(tmp_path / "r.csv", TEXT, "cp1252")
    with pytest.raises(DataError, match=r"r\.csv is not ascii text: pass another encoding="):
        Ratings.read(file, encoding="ascii")
    Ratings.read(file, encoding="cp1252").to_frame("pandas").to_parquet(tmp_path / "r.parquet")
    with pytest.raises(ConfigError, match="encoding='cp1252' is for text files"):
        Ratings.read(tmp_path / "r.parquet", encoding="cp1252")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_catalogs_may_have_the_encodings_of_spreadsheets(tmp_path, encoding):
    ratings = written(tmp_path / "r.csv", TEXT, "utf-8")
    catalog = written(tmp_path / "c.csv", "Artikel;Titel\nKäse – groß;Käse für 5 €\n", encoding)
    assert Ratings.read(ratings, items=catalog).titles.tolist() == ["Käse für 5 €"]


# ------------------------------------------------------------ dates


JUNE = seconds("2025-06-05")
MAY = seconds("2025-05-06")


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        ("client;produit;note;date", {}, JUNE),
        ("Kunde;Artikel;Sterne;Datum", {}, JUNE),
        ("Kunde;Artikel;Sterne;Datum", {"dates": "month-first"}, MAY),
        ("user;item;rating;date", {"dates": "day-first"}, JUNE),
        ("user;item;rating;date", {"dates": "month-first"}, MAY),
    ],
)
@pytest.mark.parametrize("date", ["05/06/2025", "5-6-2025", "05/06/2025 00:00"])
def test_the_header_or_the_caller_says_the_order_of_dates(
    tmp_path, header, options, expected, date
):
    file = written(tmp_path / "r.csv", f"{header}\n1;2;3;{date}\n", "utf-8")
    assert Ratings.read(file, **options).timestamps.tolist() == [expected]
    frame = pd.DataFrame([[1, 2, 3, date]], columns=header.split(";"))
    assert Ratings.from_frame(frame, **options).timestamps.tolist() == [expected]
    frame.to_parquet(tmp_path / "r.parquet")
    assert Ratings.read(tmp_path / "r.parquet", **options).timestamps.tolist() == [expected]


def test_years_first_need_no_order(tmp_path):
    file = written(tmp_path / "r.csv", "user,item,date\n1,2,2025/06/05\n", "utf-8")
    assert Ratings.read(file).timestamps.tolist() == [JUNE]


def test_no_row_decides_the_order_of_another(tmp_path):
    text = "user,item,date\n1,2,31/05/2025\n1,3,05/06/2025\n"
    with pytest.raises(DataError, match=r"line 2: the timestamp '31/05/2025' may begin with"):
        Ratings.read(written(tmp_path / "r.csv", text, "utf-8"))
    with pytest.raises(ConfigError, match="dates must be"):
        Ratings.read(tmp_path / "r.csv", dates="dayfirst")


# ------------------------------------------------------------ gaps


def test_rows_with_any_gap_are_dropped_on_request(tmp_path):
    text = "user,item,rating\n1,2,3\n,2,4\n1,,4\n2,3,\n2,4,5\nNA,4,5\n"
    file = written(tmp_path / "r.csv", text, "utf-8")
    with pytest.raises(DataError, match=r"line 3: .* or drop such lines with missing='drop'"):
        Ratings.read(file)
    read = Ratings.read(file, missing="drop")
    assert read.user_ids.tolist() == [1, 2]
    assert read.values.tolist() == [3, 5]
    frame = pd.DataFrame({"user": ["a", None, "b"], "item": [1.0, 2.0, np.nan]})
    assert Ratings.from_frame(frame, missing="drop").user_ids.tolist() == ["a"]
    frame.to_parquet(tmp_path / "r.parquet")
    assert Ratings.read(tmp_path / "r.parquet", missing="drop").user_ids.tolist() == ["a"]
    blocks = BlockRatings.write(file, tmp_path / "b", blocks=1, missing="drop")
    assert blocks.item_ids.tolist() == [2, 4]


# ------------------------------------------------------------ orders


@pytest.mark.parametrize("name", ["order_id", "InvoiceNo", "session", "Bestellnummer", "commande"])
def test_orders_are_no_users(tmp_path, name):
    rows = [(f"o{n}", f"p{n % 7}") for n in range(300)]
    frame = pd.DataFrame(rows, columns=[name, "sku"])
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    found = [
        Ratings.from_frame(frame, user=name),
        Ratings.read(tmp_path / "r.csv", user=name),
        Ratings.read(tmp_path / "r.parquet", user=name),
        BlockRatings.write(tmp_path / "r.csv", tmp_path / "b", blocks=1, user=name),
        BlockRatings.write(tmp_path / "r.parquet", tmp_path / "c", blocks=1, user=name),
    ]
    for ratings in found:
        with pytest.raises(DataError, match="seems to number orders or visits"):
            DPMF(2, epsilon=1).fit(ratings, progress=False)
    trusted = Ratings.read(tmp_path / "r.csv", user=name, trust_user_column=True)
    assert not trusted.user_problem


# ------------------------------------------------------------ words of two languages


def test_a_word_of_two_languages_counts_among_words_of_its_own(tmp_path):
    file = written(tmp_path / "r.csv", "uid,lid,time\n1,2,3\n", "utf-8")  # location id
    assert Ratings.read(file, item="lid").user_ids.tolist() == [1]
    file = written(tmp_path / "s.csv", "lid,boek,tijd\n1,2,3\n", "utf-8")  # Dutch: member
    assert Ratings.read(file).user_ids.tolist() == [1]
