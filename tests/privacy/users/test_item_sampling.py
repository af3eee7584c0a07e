"""Numbers of users, which seed their choices and find their age in a timeline: one for each user
that `Ratings` tells apart, whatever else the column holds.
"""

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import Ratings
from discreet.engines.ages import hash_ids
from discreet.engines.user_hash import Secret, identities
from discreet.errors import PrivacyError
from discreet.privacy.users.item_sampling import user_numbers

NOON = datetime(2024, 2, 29, 12)
USERS = [
    "7",
    "007",
    "+7",
    "07",
    "7.",
    "7.00",
    " 7\n",
    "7.5",
    7.5,
    "1/2",
    Fraction(1, 2),
    "0.5x",
    "15/2",
    b"15/2",
    "f/2",
    b"f/2",
    "1e3",
    "1e999999",
    "2e999999",
    "inf",
    float("inf"),
    float("-inf"),
    Decimal("1e2000"),
    Decimal("2e2000"),
    2**70,
    2**64 + 7,
    "9" * 101,
    10**150,
    "ann",
    b"ann",
    "Ann",
    "b'ann'",
    ("ann",),
    ("7", "007"),
    (7, ("x",)),
    (7, "x"),
    "(7, 'x')",
    date(2024, 2, 29),
    NOON,
    NOON.replace(tzinfo=UTC),
    repr(NOON),
    str(NOON),
    uuid.UUID(int=3),
    str(uuid.UUID(int=3)),
    timedelta(3),
    "M 7",
]
SAME = [
    [7, "7", "7.0", 7.0, Decimal(7), Fraction(7), np.int8(7), np.float32(7), " 7\t", np.str_("7")],
    [0.5, Fraction(1, 2), Decimal("0.50"), np.float64(0.5)],
    [2**60, 2.0**60, str(2**60), Decimal(2**60)],
    [1e300, int(1e300), Decimal(int(1e300))],
    [(7, "a"), (7.0, "a"), ("7.0", "a")],
    [
        NOON.replace(tzinfo=UTC),
        NOON.replace(tzinfo=timezone(timedelta(hours=1), "x")) + timedelta(hours=1),
    ],
]
SECRET = Secret(bytes(range(32)))


def column(values):
    return np.fromiter(values, dtype=object, count=len(values))


def test_different_users_have_different_numbers_and_entries_of_a_timeline():
    ratings = Ratings.from_arrays(USERS, np.zeros(len(USERS), int))
    assert ratings.n_users == len(USERS)
    assert len(np.unique(user_numbers(column(USERS)))) == len(USERS)
    assert len(np.unique(hash_ids(USERS, SECRET))) == len(USERS)
    assert len(np.unique(identities(USERS, SECRET)[:, 0])) == len(USERS)


@pytest.mark.parametrize("same", SAME, ids=lambda same: repr(same[0]))
def test_spellings_of_a_user_have_one_number(same):
    assert len(np.unique(user_numbers(column(same)))) == 1
    assert len(np.unique(hash_ids([*same, "ann"], SECRET)[:-1])) == 1


def test_a_number_does_not_depend_on_other_ids():
    """Of a whole column of integers, of mixed ids, of texts: read from files, frames and blocks."""
    alone = int(hash_ids([7], SECRET)[0])
    for others in ([8], ["abc"], [7.5], [2**63], ["007"], [Decimal("1.5")], [(1, 2)]):
        for spelling in (7, "7"):
            assert int(hash_ids([spelling, *others], SECRET)[0]) == alone


WRITTEN = st.one_of(
    st.integers(-(10**6), 10**6),
    st.integers(-12, 12).map(lambda n: f"{n:03d}"),
    st.text("0123456789.+-/ eEinfx", max_size=5),
    st.floats(allow_nan=False, width=16),
    st.fractions(max_denominator=9),
    st.binary(max_size=2),
)


@given(st.lists(WRITTEN, min_size=2, max_size=40))
def test_numbers_tell_users_apart_as_ratings_do(ids):
    ids = [one for one in ids if not isinstance(one, str) or one.strip()]
    if not ids:
        return
    ratings = Ratings.from_arrays(ids, np.zeros(len(ids), int), duplicates="last")
    users = ratings.user_ids
    assert len(np.unique(user_numbers(users))) == ratings.n_users
    numbers = user_numbers(column(ids))
    assert len(np.unique(numbers)) == ratings.n_users


@pytest.mark.parametrize("without_form", [object(), frozenset({1}), None, float("nan")])
def test_ids_without_a_written_form_are_refused(without_form):
    with pytest.raises(PrivacyError, match="written form of its id"):
        user_numbers(column([without_form]))
