"""`normalize_ids`: spellings of one user id are one user, and each id is changed by itself."""

import unicodedata

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import Ratings
from discreet.data.ids import normalize_id

COMPOSED = unicodedata.normalize("NFC", "José")
SPELLINGS = [COMPOSED, unicodedata.normalize("NFD", "José"), " JOSÉ", "josé\t", "\u00a0José "]


@pytest.fixture
def rows():
    return {"user": [*SPELLINGS, "Anna", "007", "7"], "item": list(range(8)), "rating": [3] * 8}


def read_as(form, rows, folder, **options):
    if form == "csv":
        text = [
            f'"{user}",{item},{rating}' for user, item, rating in zip(*rows.values(), strict=True)
        ]
        (folder / "r.csv").write_text(
            "\n".join(["user,item,rating", *text]) + "\n", encoding="utf-8"
        )
        return Ratings.read(folder / "r.csv", **options)
    if form == "parquet":
        pd.DataFrame(rows).to_parquet(folder / "r.parquet")
        return Ratings.read(folder / "r.parquet", **options)
    return Ratings.from_frame((pd if form == "pandas" else pl).DataFrame(rows), **options)


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas", "polars"])
def test_spellings_are_different_users_unless_they_are_normalized(tmp_path, rows, form):
    assert read_as(form, rows, tmp_path).n_users == 8
    one = read_as(form, rows, tmp_path, normalize_ids=True)
    assert one.user_ids.tolist() == [7, "007", "anna", "josé"]
    assert np.diff(one.indptr).tolist() == [1, 1, 1, 5]


def test_numbers_stay_as_they_are():
    for users in ([3, 1, 2], np.array([3, 1, 2]), [3.0, 1.0, 2.0]):
        frame = pd.DataFrame({"user": users, "item": [1, 2, 3]})
        assert Ratings.from_frame(frame, normalize_ids=True) == Ratings.from_frame(frame)


@given(st.text())
def test_normalizing_twice_changes_nothing_more(text):
    once = normalize_id(text)
    assert normalize_id(str(once)) == once


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=2, max_size=6), st.integers(0, 5))
def test_an_id_is_normalized_whatever_the_other_rows_are(users, left_out):
    """Entry by entry: without one row, all others have the same users and ratings."""
    words = {"nan", "null", "none", "na", "n/a", "#n/a", "-nan", "<na>", "nat"}
    users = [user for user in users if user.strip().casefold() not in words]
    frame = pd.DataFrame({"user": [*users, "x"], "item": range(len(users) + 1)})
    whole = Ratings.from_frame(frame, normalize_ids=True).to_frame()
    fewer = Ratings.from_frame(
        frame.drop(index=min(left_out, len(users))), normalize_ids=True
    ).to_frame()
    kept = dict(zip(whole["item_id"], whole["user_id"], strict=True))
    assert all(
        kept[item] == user for item, user in zip(fewer["item_id"], fewer["user_id"], strict=True)
    )
