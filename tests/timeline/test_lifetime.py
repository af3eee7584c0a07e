"""One user moves all rows together by no more than the lifetime allows, and planted faults do."""

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from discreet.auditing.conformance.recorder import Recorder
from discreet.auditing.conformance.rules import Broken
from discreet.auditing.conformance.timeline_rule import (
    AdversarialWorld,
    check_timeline,
    lifetime_ratio,
    run_world,
)
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DamagedStore, PrivacyError
from discreet.privacy.accounting.age_weights import AgeWeights
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.centered_pairs import CenteredPairSums
from discreet.privacy.statistics.pairs import LikeCounts, PairSums
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.sealed_users import Users, seal
from discreet.timeline import Timeline, entries, timeline
from discreet.timeline.entries import EntryTable
from discreet.timeline.public_state import Records

EPSILON = 300.0  # so little noise that pairs of thirty users are released


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv(entries.VARIABLE, "ab" * 32)
    number = itertools.count()

    def new(**options):
        settings = {"epsilon": EPSILON, "rating_range": (1, 5), "memory": 8} | options
        return Timeline(tmp_path / f"{next(number)}.timeline", **settings)

    return new


def test_one_user_uses_no_more_than_its_lifetime(make):
    assert "60 rows" in check_timeline(make, seeds=[0])


def test_pairs_and_counts_are_both_released(make):
    line = make()
    run_world(line, AdversarialWorld(0), range(3))
    assert any(row["core"] for row in line.rows_)


@pytest.mark.parametrize("options", [{"retention": 10}, {"memory": 4}])
def test_variants_stay_within_the_lifetime(make, options):
    ratio = lifetime_ratio(lambda: make(**options), 1, 0, run_some)
    assert 0.9 < ratio <= 1


def test_renewal_costs_one_lifetime_in_any_period(make):
    ratio = lifetime_ratio(lambda: make(renew=12), 1, 0, run_some)
    assert 1.9 < ratio <= 2  # 24 rows are two periods


# ------------------------------------------------------------------ planted faults


def run_some(line, world):
    run_world(line, world, range(24))


def caught(make, user=0, seed=0, run=run_some):
    """Return the ratio of a faulty timeline; infinite where the worlds have other shapes."""
    try:
        return lifetime_ratio(make, seed, user, run)
    except Broken:
        return math.inf


def test_entries_pruned_at_the_retention_limit(make, monkeypatch):
    enter = EntryTable.enter

    def prune(self, hashes, row):
        old = row - self.entry >= 4
        kept = EntryTable(self.row, self.hashes[~old], self.entry[~old], self.erased[~old])
        return enter(kept, hashes, row)

    monkeypatch.setattr(EntryTable, "enter", prune)
    assert caught(lambda: make(retention=4)) > 5


def test_a_dropped_tombstone(make, monkeypatch):
    def drop(self, hashes):
        kept = ~np.isin(self.hashes, hashes)
        return EntryTable(self.row, self.hashes[kept], self.entry[kept], self.erased[kept])

    monkeypatch.setattr(EntryTable, "erase", drop)
    monkeypatch.setattr(Timeline, "_table", lambda self, *_: EntryTable.read(self.secret_path))
    monkeypatch.setattr(AdversarialWorld, "forgotten", lambda self, row: leave(self, row, 0, 12))
    assert caught(make) > 1.5


def leave(world, row, user, when):
    return np.array([user] if row == when and world.without != user else [], np.int64)


def restore_after(line, world):
    """Restore a backup of the table that is eight rows old."""
    run_world(line, world, range(2))
    old = (line.secret_path / entries.FILE).read_bytes()
    run_world(line, world, range(2, 10))
    (line.secret_path / entries.FILE).write_bytes(old)
    run_world(line, world, range(10, 26))


def test_an_old_table_is_refused(make):
    with pytest.raises(DamagedStore, match="older copy"):
        restore_after(make(), AdversarialWorld(0))


def test_an_old_table_would_be_caught(make, monkeypatch):
    monkeypatch.setattr(Timeline, "_table", lambda self, *_: EntryTable.read(self.secret_path))
    monkeypatch.setattr(AdversarialWorld, "present", enter_at(3))
    assert caught(make, user=0, run=restore_after) > 1.2


def enter_at(row_of_entry):
    def present(self, row, released):
        return [u for u in range(30) if u != self.without and (u or row >= row_of_entry)]

    return present


def test_a_row_cannot_be_drawn_twice(make, monkeypatch):
    """A number is never used again, and `verify` finds a repetition."""
    line = make()
    run_world(line, AdversarialWorld(0), range(3))
    with monkeypatch.context() as patch:
        patch.setattr(Records, "next_row", property(lambda self: 1))
        line.add(AdversarialWorld(0).ratings(4))
    assert [row["row"] for row in line.rows_] == [0, 1, 2, 3]
    Records.read(line.path).append("drawing", row=2)
    with pytest.raises(DamagedStore, match="drawn twice"):
        line.verify()


def test_a_row_that_is_drawn_again_and_seen(make, monkeypatch):
    ages = EntryTable.ages
    monkeypatch.setattr(EntryTable, "ages", lambda self, row: ages(self, max(row - 1, 0)))
    assert 1.2 < caught(make) < 1.3  # 1 + (1 − γ²): both rows of age 0 were released


class Mu:
    def __init__(self, line):
        self.mu = 1 / line.plan.noise_multiplier(timeline.EVERY_ROW)


def test_a_filter_by_counts(make, monkeypatch):
    whole = AdversarialWorld.ratings

    def filtered(self, row, released=0.0):
        ratings = whole(self, row, released)
        kept = np.bincount(ratings.indices, minlength=12) >= 12
        return ratings.keep(kept[ratings.indices])

    monkeypatch.setattr(AdversarialWorld, "ratings", filtered)
    found = [caught(make, user=user) for user in (0, 3)]
    assert any(one > 1.1 for one in found)


def test_filtered_ratings_are_refused(make):
    ratings = AdversarialWorld(0).ratings(30).filter(min_item_ratings=2)
    with pytest.raises(ConfigError, match="public catalog"):
        make().add(ratings)


def test_a_cap_on_entries(make, monkeypatch):
    enter = EntryTable.enter

    def cap(self, hashes, row):
        new = np.setdiff1d(hashes, self.hashes)
        return enter(self, np.setdiff1d(hashes, np.sort(new)[2:]), row)

    monkeypatch.setattr(EntryTable, "enter", cap)
    monkeypatch.setattr(AdversarialWorld, "present", enter_at(0))
    assert max(caught(make, user=user) for user in (0, 1, 4, 5)) > 1.2


def test_a_clock_that_restarts(make, monkeypatch):
    monkeypatch.setattr(EntryTable, "ages", lambda self, row: np.minimum(row - self.entry, row % 7))
    assert caught(make) > 3


def test_memory_that_changes_while_ages_are_kept(make, monkeypatch):
    def run(line, world):
        run_world(line, world, range(20))
        rule = dataclasses.replace(line._rule, ages=AgeWeights(26))
        monkeypatch.setattr(line, "_rule", rule)
        monkeypatch.setattr(line, "verify", lambda: Mu(line))
        run_world(line, world, range(20, 40))

    assert caught(lambda: make(memory=4), run=run) > 1.1


def test_weights_above_one_are_refused(make, monkeypatch):
    """As those that are divided by an exact number of users would be."""
    at = AgeWeights.at
    monkeypatch.setattr(AgeWeights, "at", lambda self, age: at(self, age) * 10 // 5)
    with pytest.raises(PrivacyError, match="could not be computed"):
        make().add(AdversarialWorld(0).ratings(0))


def test_a_scale_that_depends_on_the_exact_number_of_users(make, monkeypatch):
    at = AgeWeights.at

    def divide(self, age):
        return at(self, age) // (1 + len(age) // 30)

    monkeypatch.setattr(AgeWeights, "at", divide)
    monkeypatch.setattr(AdversarialWorld, "present", enter_at(0))
    assert caught(make) > 20


def test_exact_numbers_in_public_records(make, monkeypatch):
    append = Records.append

    def tell(self, kind, **content):
        if kind == "published":
            content["users"] = "x" * len(EntryTable.read(f"{self.folder}.secret").hashes)
        return append(self, kind, **content)

    monkeypatch.setattr(EntryTable, "read", classmethod(read_anywhere(EntryTable.read)))
    monkeypatch.setattr(Records, "append", tell)
    with pytest.raises(Broken, match="differs"):
        lifetime_ratio(make, 0, 0, lambda line, world: run_world(line, world, range(3)))


def read_anywhere(read):
    return lambda cls, folder: read(Path(folder))


def test_noise_is_fresh_in_every_row(make):
    line = make()
    with Recorder() as seen:
        for _ in range(2):
            line.add(AdversarialWorld(0).ratings(30))
    first, second = (r.parts[0] for r in seen.releases if str(r.name) == "counts")
    noise = [part.released - part.exact for part in (first, second)]
    assert not np.allclose(noise[0], noise[1])


def test_size_counts_those_who_contribute_in_the_row(make):
    line = make()
    world = AdversarialWorld(0)
    with Recorder() as seen:
        line.add(world.ratings(30))
        line.add(world.ratings(30).select_users([0, 1, 2]))
    first, second = (float(r.exact[0]) for r in seen.releases if str(r.name) == "size")
    assert first > 4
    assert second <= 3


def test_two_ids_with_the_same_ratings_move_a_row_twice_as_far():
    """One person with two ids at the same time has 2μ, as the documentation states, not √2 μ."""
    one = Ratings.from_arrays([1] * 4, range(4), [5.0] * 4, item_ids=range(12))
    two = Ratings.from_arrays([1] * 4 + [2] * 4, [*range(4)] * 2, [5.0] * 8, item_ids=range(12))
    found = []
    for ratings in (one, two):
        users = seal(ratings, Bounds(items=99))
        found.append(np.linalg.norm(users.sum(LikeCounts(1)).compute(KEY, grid=2.0**-20)))
    assert found[1] == pytest.approx(2 * found[0], rel=1e-6)


def test_a_rating_out_of_range_does_not_make_the_row_vanish(make):
    """It is clipped for its own user: a row that is refused would show that the user is there."""
    ratings = AdversarialWorld(0).ratings(30)
    values = ratings.values.copy()
    values[0] = 99.0
    odd = Ratings.from_indices(
        ratings.indptr, ratings.indices, values, ratings.user_ids, ratings.item_ids, catalog=True
    )
    line = make()
    line.add(odd)
    assert line.verify().rows == 1


# ------------------------------------------------------------------ one row, on a coarse grid


def moves(statistic, weights, grid):
    """Return how far the first user moves the sum, in units of its weight."""
    world = AdversarialWorld(3)
    ratings = world.ratings(40)
    found = []
    for without in (False, True):
        users = seal(ratings, Bounds(items=99))
        now = weights[: ratings.n_users].copy()
        now[0] = 0.0 if without else now[0]
        (block,) = users.open(KEY)
        users = Users((block.with_state(age_weight=now),), users.public)
        total = users.sum(statistic)
        rows = slice(0, total.shape[0])
        found.append(total.compute(KEY, grid=grid, rows=rows))
    return float(np.linalg.norm((found[0] - found[1]) * grid)) / weights[0]


def test_nearest_rounding_moves_a_row_by_more_than_the_weight(monkeypatch):
    weights = np.ones(30)
    found = []
    for rounding in (np.trunc, np.rint):
        monkeypatch.setattr(np, "trunc", rounding)
        for weights[0] in np.linspace(0.05, 1, 12):
            found.append(moves(PairSums(1), weights, 2.0**-6))
    assert max(found[:12]) <= 1
    assert max(found[12:]) > 1.1


@pytest.mark.parametrize("weight", [1.0, 0.3, 0.07])
@pytest.mark.parametrize("grid", [2.0**-6, 2.0**-10, 2.0**-28])
@pytest.mark.parametrize(
    "statistic",
    [LikeCounts(1), PairSums(1), CenteredPairSums(np.arange(12) + 1.0, 1), UserCount(active=True)],
)
def test_a_user_moves_a_row_by_no_more_than_its_weight(statistic, weight, grid):
    weights = np.random.default_rng(0).random(30)
    weights[0] = weight
    assert moves(statistic, weights, grid) <= 1


def test_a_catalog_from_ratings_is_refused(make):
    ratings = Ratings.from_arrays([1, 1, 2], [1, 2, 2], [5.0, 5.0, 5.0])
    with pytest.raises(ConfigError, match="public catalog"):
        make().add(ratings)
