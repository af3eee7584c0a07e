"""Keyed hashes of user ids: 128 independent bits, the same for every spelling, unknown without
the key.
"""

import hashlib
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import discreet
from discreet.engines.blocks.manifest import Manifest, read_portion, read_secret
from discreet.engines.user_hash import Secret, block_of, identities, siphash
from discreet.privacy.users.item_sampling import user_numbers

KEY = Secret(bytes(range(32)))
OTHER = Secret(bytes(range(1, 33)))


def hashes(column, secret=KEY):
    return identities(column, secret)[:, :2]


def distinct(array):
    return len(np.unique(array, axis=0))


def test_siphash_is_the_published_one():
    """The ninth vector of the reference implementation: key 00 … 0f, message 00 … 07."""
    words = np.frombuffer(bytes(range(16)), "<u8").astype(np.uint64)
    found = siphash(words[:1], *words).astype("<u8").tobytes()
    assert found.hex() == "3b62a9ba6258f5610f83e264f31497b4"


def test_users_whose_unkeyed_hashes_collide_stay_two_users(tmp_path, monkeypatch):
    """A collision of 64 bits takes 2³² tries to find; here the hash itself is made to collide
    for two ids.
    """
    real = hashlib.blake2b

    def weak(data=b"", /, **given):
        if data == b"'mallory'" and not given.get("key"):
            data = b"'alice'"
        return real(data, **given)

    monkeypatch.setattr(hashlib, "blake2b", weak)
    rows = pa.table({"user": ["alice", "mallory"], "item": [1, 2], "rating": [1.0, 5.0]})
    discreet.BlockRatings.write(rows, tmp_path / "blocks", blocks=1)
    manifest = Manifest.read(tmp_path / "blocks")
    portion = read_portion(tmp_path / "blocks", 0, manifest.blocks[0])
    assert np.diff(portion.indptr).tolist() == [
        1,
        1,
    ], "two users with a rating each, not one with two"


@pytest.mark.parametrize("kind", ["text", "whole"])
def test_the_second_half_has_bits_of_its_own(kind):
    """It used to be 0 for whole numbers, and the first half with its last bit set for text."""
    column = pa.array([f"user {n}" for n in range(2000)] if kind == "text" else np.arange(2000))
    first, second = hashes(column).T
    assert not (second == first).any()
    assert not ((second | np.uint64(1)) == (first | np.uint64(1))).any()
    bits = (
        np.unpackbits((first ^ second).astype("<u8").view(np.uint8)).reshape(2000, 64).mean(axis=0)
    )
    assert (abs(bits - 0.5) < 0.08).all(), "seven standard deviations, and the key is fixed"


def test_structured_ids_collide_in_neither_half():
    n = np.arange(100_000)
    bits = np.int64(1) << np.arange(63)
    columns = [n, -n, n << 40, n * 0x1_0000_0001, n * np.int64(-7046029254386353131), bits, ~bits]
    whole = np.unique(np.concatenate(columns))
    text = [
        f"{word}{one}"
        for word in ("u", "user-", "0", "+", "00000000-0000-")
        for one in range(10_000)
    ]
    both = np.concatenate([hashes(whole), hashes(pa.array(text))])
    assert (
        distinct(both)
        == len(np.unique(both[:, 0]))
        == len(np.unique(both[:, 1]))
        == len(whole) + len(text)
    )


def test_blocks_are_of_similar_size_for_structured_ids():
    for ids in (np.arange(64_000), np.arange(64_000) * 64, np.arange(64_000) << 32):
        counts = np.bincount(block_of(identities(ids, KEY), 64), minlength=64)
        assert (abs(counts - 1000) < 6 * np.sqrt(1000)).all()


def test_every_spelling_of_an_id_is_one_user_whatever_its_column_holds():
    same = [
        pa.array([7]),
        pa.array([7], pa.int8()),
        pa.array([7.0]),
        pa.array(["7"]),
        pa.array(["7.0"]),
        pa.array(["7", "ann"]).slice(0, 1),
        [7, "ann"],
        ["7", (1, 2)],
        [Decimal(7), "ann"],
        [Fraction(7), "ann"],
        [7.0, 7.5],
    ]
    rows = np.stack([identities(one, KEY)[0] for one in same])
    assert distinct(rows) == 1
    large = np.stack(
        [identities([one, "ann"], KEY)[0] for one in (2**60, 2.0**60, Decimal(2**60), str(2**60))]
    )
    assert distinct(large) == 1
    assert (
        distinct(np.stack([identities([one, "ann"], KEY)[0] for one in ((7, "a"), (7.0, "a"))]))
        == 1
    )


def test_what_is_written_otherwise_is_another_user():
    others = [
        "7",
        "007",
        "+7",
        "7.5",
        "ann",
        "Ann",
        "ann ",
        "é",
        "e\u0301",
        str(2**63),
        str(2**64 + 7),
        "-7",
    ]
    assert distinct(hashes(pa.array(others))) == len(others)


def test_another_secret_gives_unrelated_hashes_and_other_blocks():
    column = np.arange(4000)
    one, other = hashes(column), hashes(column, OTHER)
    assert not (one == other).any()
    assert not np.array_equal(
        block_of(identities(column, KEY), 64), block_of(identities(column, OTHER), 64)
    )


def test_numbers_are_encrypted_and_come_back():
    for column in (np.arange(-50, 50), np.array(["ann", "7", "007", (1, 2)], object)[:3]):
        who = identities(column, KEY)
        plain = user_numbers(np.asarray(column))
        assert not np.isin(who, plain).any()
        assert np.array_equal(KEY.decrypt(np.ascontiguousarray(who[:, 0]), who[:, 2]), plain)
        assert not (OTHER.decrypt(np.ascontiguousarray(who[:, 0]), who[:, 2]) == plain).any()


def test_a_secret_is_shown_to_no_one(tmp_path):
    assert repr(KEY) == "<secret of a folder>"
    again = pickle.loads(pickle.dumps(KEY))
    assert np.array_equal(hashes([1, "a"], again), hashes([1, "a"]))
    with pytest.raises(ValueError, match="32 bytes"):
        Secret(b"short")
    rows = pa.table({"user": [1, 2], "item": [1, 2], "rating": [1.0, 5.0]})
    for name in ("one", "two"):
        discreet.BlockRatings.write(rows, tmp_path / name, blocks=1)
    assert (tmp_path / "one" / "secret.key").read_bytes() not in (
        tmp_path / "one" / "manifest.json"
    ).read_bytes()
    secret = read_secret(tmp_path / "one", Manifest.read(tmp_path / "one"))
    assert secret.data.hex() not in (tmp_path / "one" / "manifest.json").read_text()
    (tmp_path / "two" / "secret.key").write_bytes(secret.data)
    with pytest.raises(
        discreet.errors.DataError, match=r"secret\.key is not the secret of these blocks: restore"
    ):
        discreet.BlockRatings(tmp_path / "two")
    (tmp_path / "two" / "secret.key").unlink()
    with pytest.raises(discreet.errors.DataError, match=r"secret\.key is lost: restore the file"):
        discreet.BlockRatings(tmp_path / "two")


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.50"), Decimal("1.5")),
        (1.5, Fraction(3, 2)),
        (NOON, NOON.astimezone(timezone(timedelta(hours=1)))),
        ((1.5, "a"), (Decimal("1.50"), "a")),
    ],
)
def test_ids_that_are_equal_are_one_user(one, other):
    assert one == other
    secret = Secret()
    assert np.array_equal(identities([one], secret)[:, :2], identities([other], secret)[:, :2])
