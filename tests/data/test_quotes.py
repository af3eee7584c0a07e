"""A stray quote in one person's words swallows nobody else's rows: the file is refused instead."""

import csv

import pytest

from discreet import Ratings
from discreet.errors import DataError

ROWS = [
    [user, item, (user * 7 + item) % 5 + 1, "fine"] for user in range(1, 40) for item in range(1, 8)
]
HEAD = ["userId", "movieId", "rating", "review"]


def written(path, lines, separator=","):
    text = [separator.join(HEAD), *(separator.join(map(str, row)) for row in ROWS)]
    for at, line in lines:
        text.insert(at, line.replace(",", separator))
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", [",", "\t", ";"])
@pytest.mark.parametrize(
    "lines",
    [
        [(101, '900,1,5,"great')],
        [(1, '900,1,5,"great')],
        [(101, '900,1,5,"great'), (201, '900,2,5,meh"')],
        [(101, '900,1,5,"great'), (201, '900,2,5,"')],
        [(101, '900,1,5,"great'), (103, '900,2,5,"')],
    ],
    ids=["open", "open, first", "closed by another row", "closed by a quote", "around one row"],
)
def test_rows_between_quotes_are_not_lost(tmp_path, lines, separator):
    path = written(tmp_path / "r.csv", lines, separator)
    with pytest.raises(DataError, match=r"a quoted field runs through|a quote is not closed"):
        Ratings.read(path)


def test_a_file_without_a_rating_column_or_a_header(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text('1,10,,a\n2,10,,b\n3,10,,"x\n4,10,,c\n5,10,,d"\n6,10,,e\n')
    with pytest.raises(
        DataError, match="a quoted field runs through other rows, in a row that ends on line 5"
    ):
        Ratings.read(path, header=False, rating=False, timestamp=False)


def test_rows_with_quotes_of_their_own_are_not_lost_either(tmp_path):
    """Whose commas are in quotes, and whose words come before the rating."""
    path = tmp_path / "r.csv"
    rows = [f'{user},"well, yes",{user % 7},4' for user in range(1, 20)]
    rows[9] = '10,"well, yes,3,4'
    path.write_text("\n".join(["user,review,item,rating", *rows]) + "\n")
    with pytest.raises(DataError, match="line 1"):
        Ratings.read(path)


def test_an_open_quote_on_the_last_line_harms_nobody(tmp_path):
    ratings = Ratings.read(written(tmp_path / "r.csv", [(274, '900,1,5,"great')]))
    alone = Ratings.read(written(tmp_path / "plain.csv", []))
    assert ratings.select_users(alone.user_ids, by="id") == alone


def test_words_in_quotes_over_several_lines_are_words(tmp_path):
    """Written as it should be, a text may hold line breaks, quotes and commas."""
    path = tmp_path / "r.csv"
    words = [
        "one\ntwo",
        'he said: "no"\n\nand left, slowly',
        "",
        "a, b, c, d, e\n1,2,3",
        'ends with a quote"',
        "\n",
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        writer.writerows([*row[:3], words[at % len(words)]] for at, row in enumerate(ROWS))
    plain = written(tmp_path / "plain.csv", [])
    assert Ratings.read(path) == Ratings.read(plain)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quotes_around_everything(tmp_path, end):
    path = tmp_path / "r.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator=end).writerows([HEAD, *ROWS])
    assert Ratings.read(path) == Ratings.read(written(tmp_path / "plain.csv", []))


def test_inches_are_no_quotes(tmp_path):
    path = written(tmp_path / "r.csv", [(101, '900,1,5,a 12" record')])
    assert Ratings.read(path).n_users == 40
