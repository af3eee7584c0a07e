"""A user column is never suggested: messages list columns and what their values look like."""

import pytest
from foreign_headers import HEADERS, make_frame

from discreet import DPMF, Ratings
from discreet.data.columns import describe_values
from discreet.errors import DataError


@pytest.mark.parametrize("names", HEADERS.values(), ids=HEADERS)
def test_no_user_column_is_suggested_in_any_language(tmp_path, names):
    frame = make_frame(names)
    frame.to_csv(tmp_path / "r.csv", sep=";", index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    attempts = (
        lambda: Ratings.read(tmp_path / "r.csv"),
        lambda: Ratings.read(tmp_path / "r.parquet"),
        lambda: DPMF(epsilon=1).fit(frame),
    )
    for attempt in attempts:
        with pytest.raises(DataError) as refused:
            attempt()
        message = str(refused.value)
        assert "did you mean" not in message
        assert "user='" not in message
        listed = message.split("Columns: ")[1]
        assert (
            listed
            == f"{names[0]!r}, {names[1]!r}, {names[2]!r} (few distinct numbers, like ratings),"
            f" {names[3]!r} (dates)"
        )


def test_a_misspelled_user_column_gets_the_list_and_no_suggestion():
    with pytest.raises(
        DataError, match=r"has no column 'Stern': its columns are 'Stammkunde', .*'Datum'$"
    ):
        Ratings.from_frame(make_frame(HEADERS["German"]), user="Stern")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2", "3", "4", "5"] * 10, "few distinct numbers, like ratings"),
        ([0.5, 4.5, 3.0] * 20, "few distinct numbers, like ratings"),
        (["4,5", "3,0"] * 20, "few distinct numbers, like ratings"),
        (["Paris", "Lyon"] * 20, "few distinct values"),
        ([2019, 2020, 2021] * 20, "few distinct values"),
        (["2024-05-31", "2024-06-01T12:00:00"], "dates"),
        (["31.05.2024", "1.6.2024"], "dates"),
        (list(range(200)), ""),
        (["a", "b", "c"], ""),
        ([], ""),
    ],
)
def test_values_are_described_by_what_they_look_like(values, expected):
    assert describe_values(values) == expected
