"""Sealing on Spark, as workers do it and without Spark: packets, blocks, and what is refused in
one sentence.
"""

import numpy as np
import pyarrow as pa
import pytest

from discreet.engines.block_format import PackedBlock, portion_of
from discreet.engines.spark import shuffle
from discreet.engines.spark.jobs import outcome
from discreet.engines.user_hash import Secret, identities
from discreet.errors import DataError, WorkerError

SECRET = "somebody-called-4711"
ITEMS = np.arange(50)
KEY = Secret(bytes(range(32)))


def batches(user, item, rating, time=None, size=300):
    columns = {"user": user, "item": item, "rating": rating} | (
        {} if time is None else {"time": time}
    )
    return pa.table(columns).to_batches(size)


def sealed(given, parts=3, items=ITEMS, unknown="error", duplicates="error", shuffled=None):
    """Portions by block, as Spark would have them: packets of a block come to one task, in any
    order.
    """
    packets = [
        one
        for batch in given
        for one in shuffle.divider(items, unknown, np.arange(parts, dtype=np.int32), KEY)([batch])
    ]
    rows = [row for batch in packets for row in batch.to_pylist()]
    assert all(row["key"] == row["part"] for row in rows)
    if shuffled is not None:
        shuffled.shuffle(rows)
    found = {}
    for part in range(parts):
        own = pa.Table.from_pylist([row for row in rows if row["part"] == part], packets[0].schema)
        for batch in shuffle.sealer(len(items), duplicates, lambda part=part: part)(
            own.to_batches(2)
        ):
            (row,) = batch.to_pylist()
            assert (row["part"], row["source"], row["size"]) == (part, part, len(row["payload"]))
            found[part, row["piece"]] = row["payload"]
    return found


def someone(rng, n=2000):
    keys = rng.permutation(200 * 50)[:n]
    return keys // 50, keys % 50, rng.integers(1, 6, n).astype(np.float64)


@pytest.mark.parametrize("names", ["numbers", "text"])
@pytest.mark.parametrize("timed", [False, True])
def test_packets_come_out_as_the_blocks_that_their_rows_make(names, timed, monkeypatch):
    """In any order, from batches of any size, and in packets of a few rows."""
    monkeypatch.setattr(shuffle, "ROWS_OF_A_PACKET", 7)
    rng = np.random.default_rng(3)
    user, item, rating = someone(rng)
    users = (
        pa.array(user)
        if names == "numbers"
        else pa.array([f"u{one}" if one % 3 else str(one) for one in user])
    )
    time = rng.integers(0, 99, len(user)) if timed else None
    found = sealed(batches(users, item, rating, time), shuffled=rng)
    who = identities(users, KEY)
    part = shuffle.block_of(who, 3)
    for number in range(3):
        own = part == number
        when = None if time is None else time[own]
        whole = portion_of(
            who[own], item[own].astype(np.int32), rating[own].astype(np.float32), when, 50, "error"
        )
        assert found[number, 0] == whole.to_bytes()


@pytest.mark.parametrize("duplicates", ["last", "mean"])
def test_repeated_ratings_do_not_depend_on_the_order_of_rows(duplicates):
    rng = np.random.default_rng(4)
    user, item = rng.integers(0, 20, 900), rng.integers(0, 9, 900)
    rating, time = rng.integers(1, 6, 900).astype(np.float64), rng.integers(0, 30, 900)
    given = batches(user, item, rating, time)
    ways = [
        sealed(given, duplicates=duplicates, shuffled=np.random.default_rng(seed))
        for seed in range(3)
    ]
    assert ways[0] == ways[1] == ways[2]
    newest = {}
    for u, i, t, r in zip(user, item, time, rating, strict=True):
        newest[u, i] = max(newest.get((u, i), (-1, 0.0)), (t, r))
    portions = [PackedBlock.from_bytes(data) for data in ways[0].values()]
    assert sum(len(one.items) for one in portions) == len(newest)
    if duplicates == "last":
        assert sum(float(one.ratings.sum()) for one in portions) == sum(
            r for _, r in newest.values()
        )


def test_pieces_are_of_whole_users(monkeypatch):
    monkeypatch.setattr(shuffle, "RATINGS_OF_A_PIECE", 64)
    rng = np.random.default_rng(5)
    user, item, rating = someone(rng)
    found = sealed(batches(user, item, rating), parts=1)
    pieces = [PackedBlock.from_bytes(found[0, number]) for number in range(len(found))]
    assert len(pieces) > 20
    numbers = np.concatenate([KEY.decrypt(one.hashes, one.numbers) for one in pieces])
    assert np.array_equal(np.sort(numbers), np.unique(user))
    assert sum(len(one.items) for one in pieces) == len(user)


def test_people_whose_items_are_all_unknown_are_people_all_the_same():
    found = sealed(batches([1, 2], [3, 99], [1.0, 2.0]), parts=1, unknown="drop")
    portion = PackedBlock.from_bytes(found[0, 0])
    assert sorted(KEY.decrypt(portion.hashes, portion.numbers).tolist()) == [1, 2]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user": ["a", None]}, "a user id is missing"),
        ({"user": ["a", "nan"]}, "a user id is missing"),
        ({"rating": [1.0, None]}, "a rating is missing, infinite or no number"),
        ({"rating": [1.0, np.inf]}, "a rating is missing, infinite or no number"),
        ({"rating": [1.0, 1e300]}, "a rating is missing, infinite or no number"),
        ({"item": ["1", SECRET]}, "not in the catalog"),
        ({"item": ["1", None]}, "an item id is missing"),
        ({"time": [1, None]}, "a time is missing"),
        ({"item": [1, 1]}, "a user rated an item twice"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_in_one_sentence(columns, said):
    given = {"user": [SECRET, SECRET], "item": [1, 2], "rating": [1.0, 2.0]} | columns
    with pytest.raises(WorkerError) as caught:
        sealed(batches(**given), parts=1)
    assert caught.value.__context__ is None
    assert SECRET not in str(caught.value)

    def job():
        raise RuntimeError(f"Java says: {caught.value} and much more")

    with pytest.raises(DataError, match=said):
        outcome(job)
