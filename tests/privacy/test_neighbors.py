"""Drop a user, or exchange its whole history: no statistic moves by more than it says, whatever
the user is like.
"""

import datetime
import math
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.data.ratings import Ratings
from discreet.kernels import set_threads
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.item_sampling import pick, user_keys
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose, Solve
from support.privacy_reference import pick_numpy
from support.sealed_helpers import (
    NORMS,
    RELATIONS,
    STATISTICS,
    block,
    distance,
    exact,
    floating,
    make,
    prepared,
    quick,
    rarest,
    restrict_recenter_rarest,
    uniform,
)

N_ITEMS = 6
CASES = {
    "own mean, uniform": (
        Bounds(items=3, rating=0.9, center="user", prior_mean=3, prior_count=2, norm=0.7),
        uniform,
    ),
    "constant, rarest": (Bounds(items=2, rating=1.5, center=3.0, norm=2.0), rarest),
    "vectors bounded in l1": (
        Bounds(items=3, rating=0.5, center=3.0, norm=1.0, norm_l1=0.8),
        rarest,
    ),
    "bounded in l1": (Bounds(items=3, rating=1.0, center="user", norm=0.5, norm_l1=0.7), uniform),
    "implicit": (Bounds(items=3, norm=3.0), uniform),
    "more items allowed than there are": (Bounds(items=50, rating=2.0, center=1.0), uniform),
    "restricted and recentered": (
        Bounds(items=2, rating=1.0, center="user"),
        restrict_recenter_rarest,
    ),
    "intercept": (Bounds(items=3, rating=1.0, center=3.0, norm=0.8), rarest, 0.5),
    "intercept, bounded in l1": (Bounds(items=3, norm=0.8, norm_l1=1.0), uniform, 0.5),
}
BAD = [0.0, 1.0, 5.0, -2.5, 0.3, 1e-38, 1e30, -1e30, 3.4e38, -3.4e38, math.nan, math.inf, -math.inf]
IDS = [
    "a",
    "ß",
    "e\u0301",
    "",
    " ",
    "7",
    "-0",
    "\ud800",
    7.5,
    2**70,
    -3,
    b"7",
    (7, "x"),
    uuid.UUID(int=7),
    datetime.date(2020, 2, 29),
    "NaN",
    "None",
    True,
]


@dataclass
class World:
    """Users, one of whom will go or change, and the public values that everything is computed
    with.
    """

    rows: list
    who: int
    instead: dict
    V: np.ndarray
    ridge: float = 1e-3
    bias: np.ndarray | None = None
    ids: list = field(default_factory=lambda: IDS)

    def users(self, case, without=False, replaced=False):
        bounds, steps, *intercept = CASES[case]
        rows, ids = list(self.rows), list(self.ids[: len(self.rows)])
        if replaced:
            rows[self.who] = self.instead
        if without:
            del rows[self.who], ids[self.who]
        return prepared(
            rows,
            N_ITEMS,
            bounds,
            self.V,
            steps,
            ids=ids,
            ridge=self.ridge,
            bias=self.bias,
            intercept=sum(intercept),
        )


values = st.sampled_from(BAD) | st.floats(width=32)
histories = st.dictionaries(st.integers(0, N_ITEMS - 1), values, max_size=N_ITEMS)
giants = st.lists(values, min_size=N_ITEMS, max_size=N_ITEMS).map(lambda v: dict(enumerate(v)))


@st.composite
def worlds(draw, dtype):
    rows = draw(st.lists(histories | giants, min_size=1, max_size=5))
    rank, seed = draw(st.integers(1, 3)), draw(st.integers(0, 999))
    V = np.random.default_rng(seed).normal(size=(N_ITEMS, rank)) * draw(
        st.sampled_from([0.0, 1e-18, 0.1, 1.0, 1e18])
    )
    bias = draw(st.none() | st.sampled_from([-1e6, 0.5]).map(lambda b: np.full(N_ITEMS, b)))
    return World(
        rows,
        draw(st.integers(0, len(rows) - 1)),
        draw(histories | giants),
        V.astype(dtype),
        draw(st.sampled_from([0.0, 1e-6, 1.0])),
        bias,
    )


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def assert_neighbors(world, case, observe, slack=0.0):
    """`observe` turns a statistic into numbers; they move by no more than stated, in both
    relations and norms.
    """
    before, after = (
        world.users(case),
        {
            "add-remove": world.users(case, without=True),
            "replace-one": world.users(case, replaced=True),
        },
    )
    V = np.column_stack([world.V, np.ones(N_ITEMS)])[: before.n_items, : before.rank]
    for name, ask in STATISTICS.items():
        statistic = ask(before, V)
        whole = observe(statistic)
        for relation in RELATIONS:
            other = observe(ask(after[relation], V))
            assert np.isfinite(other).all(), name
            for norm in NORMS:
                stated = statistic.sensitivity(relation, norm)
                assert distance(whole, other, statistic, norm) <= stated * (1 + slack), (
                    name,
                    relation,
                    norm,
                )
            if relation == "add-remove":
                assert np.abs(whole - other).max() <= statistic.sensitivity(relation, "inf") * (
                    1 + slack
                ), name


SETTINGS = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("deviation", [0.0, 3e5], ids=["fine grid", "coarse grid"])
@SETTINGS
@given(data=st.data())
def test_neighbors_on_the_grid(case, deviation, data):
    """What secure releases are made of: whole numbers of grid units, no tolerance at all."""
    world = data.draw(worlds(np.float32))
    assert_neighbors(world, case, lambda statistic: exact(statistic, deviation))


@pytest.mark.parametrize("case", CASES)
@SETTINGS
@given(world=worlds(np.float64))
def test_neighbors_in_float64(case, world):
    """Rounding in float64 is ten orders of magnitude below what contributions are shaved by: no
    tolerance either.
    """
    assert_neighbors(world, case, floating)


@pytest.mark.parametrize("case", CASES)
@SETTINGS
@given(world=worlds(np.float32))
def test_neighbors_in_float32_up_to_its_rounding(case, world):
    """Seeded noise works on float32 sums. With n users of norm Δ at most, a sum of n terms is off
    by n·2⁻²⁴·nΔ.

    That is little for the few users here and more than Δ for a few thousand: the reason why it is a
    research mode.
    """
    n = len(world.rows)
    assert_neighbors(world, case, floating, slack=2 * n * (n + 3) * 2.0**-24)


# ---------------------------------------------------------------------- the same without chance,
# one adversary each

EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 2.0, 3: 3.0, 5: 1.0}, {0: 2.0}]
ADVERSARIES = {
    "every item": EVERYTHING,
    "every item, far too high": dict.fromkeys(range(N_ITEMS), 1e30),
    "far too low": {0: -1e30, 1: -1e30, 4: -1e30},
    "both": {0: 1e30, 1: -1e30, 2: 1e30, 4: -1e30},
    "the largest float": {0: 3.4e38, 1: -3.4e38, 2: -3.4e38, 3: -3.4e38, 4: -3.4e38},
    "not a number": {0: math.nan, 2: math.nan, 4: 3.0},
    "infinite": {0: math.inf, 2: -math.inf, 4: math.inf},
    "nothing": {},
    "zeros": dict.fromkeys(range(N_ITEMS), 0.0),
    "tiny": {0: 1e-38, 3: -1e-38},
    "fractions": {0: 0.1, 1: 3.7, 4: -0.6},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_adversaries_on_the_grid(case, adversary):
    for V in (np.eye(N_ITEMS, 2), np.full((N_ITEMS, 2), 1e-3), np.zeros((N_ITEMS, 2))):
        for instead in (EVERYTHING, ADVERSARIES["far too low"], {}):
            rows = [ORDINARY[0], ADVERSARIES[adversary], *ORDINARY[1:]]
            assert_neighbors(World(rows, 1, instead, V.astype(np.float32)), case, exact)


@pytest.mark.parametrize("case", CASES)
def test_the_only_user_may_go(case):
    for adversary in ADVERSARIES.values():
        assert_neighbors(World([adversary], 0, EVERYTHING, np.eye(N_ITEMS, 2)), case, exact)


# ---------------------------------------------------------------------- nothing about one user
# depends on another


def own(users):
    """For each user: everything that it computed, to the last bit."""
    rows = block(users)
    U = rows["vectors"]
    item = np.repeat(np.arange(users.n_items), np.diff(rows["by_item"]))
    history = [
        (
            rows.indices[a:b].tobytes(),
            rows.values[a:b].tobytes(),
            rows.mean[i].tobytes(),
            U[i].tobytes(),
        )
        for i, (a, b) in enumerate(pairwise(rows.indptr))
    ]
    given = [[] for _ in history]
    for who, *what in zip(
        *(array.tolist() for array in (rows["user"], item, rows["value"], rows["weight"])),
        strict=True,
    ):
        given[who].append(what)
    return list(zip(history, given, strict=True))


@pytest.mark.parametrize("path", ["vector", "plain"])
@pytest.mark.parametrize(
    ("rank", "dtype"), [(1, "f4"), (3, "f4"), (17, "f4"), (100, "f4"), (5, "f8"), (128, "f8")]
)
@pytest.mark.parametrize("unobserved", [0.0, 0.3])
def test_other_users_stay_as_they_are_to_the_last_bit(path, rank, dtype, unobserved, monkeypatch):
    """Vectors are solved several at a time, from some rank on sorted by length: nobody in a
    group touches another.
    """
    monkeypatch.setenv("DISCREET_KERNELS", path)
    rng = np.random.default_rng(rank)
    rows = [
        {
            int(j): float(rng.integers(1, 6))
            for j in rng.choice(40, rng.integers(1, 30), replace=False)
        }
        for _ in range(37)
    ]
    rows[5], rows[18] = {0: 1e30, 7: math.nan, 9: -3.4e38}, {}
    V = rng.normal(size=(40, rank)).astype(dtype)
    bounds, ids = Bounds(items=4, rating=1.0, center="user", norm=0.5), list(range(100, 137))
    more = {"ridge": 0.1, "unobserved": unobserved}
    everyone = own(prepared(rows, 40, bounds, V, uniform, ids=ids, **more))
    for gone in (0, 1, 5, 7, 8, 12, 17, 18, 23, 30, 36):
        without = [part[:gone] + part[gone + 1 :] for part in (rows, ids, everyone)]
        assert (
            own(prepared(without[0], 40, bounds, V, uniform, ids=without[1], **more)) == without[2]
        )


@pytest.mark.parametrize("steps", [uniform, rarest])
def test_choices_do_not_depend_on_the_ids_of_others(steps):
    """One user called "x" turns a column of numbers into text; the others are still the same
    people.
    """
    rows, bounds, V = [EVERYTHING] * 4, Bounds(items=2), np.eye(N_ITEMS, 2)
    numbers = own(prepared(rows, N_ITEMS, bounds, V, steps, ids=[7, -3, 0, 2**40]))
    for ids in (
        ["7", "-3", "0", str(2**40), "x"],
        [7.0, -3.0, 0.0, float(2**40), 7.5],
        ["7.0", "-3.0", " 0", 2**40],
    ):
        assert (
            own(prepared([*rows, {}][: len(ids)], N_ITEMS, bounds, V, steps, ids=ids))[:4]
            == numbers
        )
    as_read = Ratings.from_arrays(np.repeat([0, 7], 6), [*range(6)] * 2, item_ids=range(6))
    with_x = Ratings.from_arrays(
        [*np.repeat(["0", "7"], 6), "x"], [*range(6)] * 2 + [0], item_ids=range(6)
    )
    chosen = []
    for ratings in (as_read, with_x):
        users = seal(ratings, bounds)
        users.apply(Choose())
        users.apply(Solve(V, 1.0))
        chosen.append(own(users)[:2])
    assert chosen[0] == chosen[1]


def test_ids_are_whole_numbers_or_text_and_never_floats():
    """Hexadecimal ids such as 1e999999 are no numbers, and two long numbers are two."""
    different = [
        "1e999999",
        "2e999999",
        "12e40",
        "120e39",
        "0x1f",
        "31",
        "1_000",
        "1000",
        "nan",
        "inf",
        "-inf",
        "7.5",
    ]
    different += [str(10**30), str(10**30 + 1), "0.1", "0.10000000000000001", "١", "Ⅶ"]
    assert len({int(key) for key in user_keys(np.array(different, object), 0)}) == len(different)
    different += ["07", "+7", "7."]
    assert len({int(key) for key in user_keys(np.array(different, object), 0)}) == len(different)
    written = [
        "7",
        "7.0",
        " 7 ",
        7,
        7.0,
        np.int8(7),
        np.float32(7),
        Decimal("7.00"),
        Fraction(7),
    ]
    assert len({int(key) for key in user_keys(np.fromiter(written, object, len(written)), 0)}) == 1


@pytest.mark.parametrize("k", [1, 3, 7, 100])
def test_picking_equals_its_numpy_twin(k):
    rng = np.random.default_rng(k)
    counts = rng.integers(0, 12, 300)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    items = np.concatenate([np.sort(rng.choice(50, c, replace=False)) for c in counts]).astype(
        np.int32
    )
    keys = user_keys(np.arange(300) - 150, 5)
    for priority in (np.zeros(50), rng.integers(0, 3, 50).astype(float), rng.normal(size=50)):
        for draw in (0, 1, 2**31 - 1):
            picked = pick(indptr, items, keys, priority, k, draw)
            assert np.array_equal(picked, pick_numpy(indptr, items, keys, priority, k, draw))
            row = np.repeat(np.arange(300), counts)
            assert np.array_equal(np.bincount(row, picked, minlength=300), np.minimum(counts, k))


def test_choices_differ_between_users_draws_and_seeds():
    V = np.eye(40, 2)
    first, other = (
        prepared([dict.fromkeys(range(40), 1.0)] * 300, 40, Bounds(items=10), V, uniform, seed=seed)
        for seed in (0, 1)
    )
    again = seal(make([dict.fromkeys(range(40), 1.0)] * 300, 40), Bounds(items=10))
    again.apply(Choose(draw=1))
    again.apply(Solve(V, 1.0))
    chosen = [
        [tuple(what[0] for what in given) for _, given in own(users)]
        for users in (first, other, again)
    ]
    assert all(len(set(sample)) == 10 for sets in chosen for sample in sets)
    for sets in chosen:  # each item is drawn by 75 ± 7.5 users
        assert np.abs(np.bincount(np.concatenate(sets), minlength=40) - 75).max() < 5.5 * 7.5
    for x, y in [(chosen[0], chosen[1]), (chosen[0], chosen[2]), (chosen[0][1:], chosen[0][:-1])]:
        assert np.mean([a == b for a, b in zip(x, y, strict=True)]) < 0.05


def test_any_number_of_threads_and_any_block_give_the_same_bits():
    rng = np.random.default_rng(4)
    rows = [
        {
            int(j): float(rng.integers(1, 6))
            for j in rng.choice(30, rng.integers(1, 20), replace=False)
        }
        for _ in range(400)
    ]
    V, bounds = (
        rng.normal(size=(30, 5)).astype(np.float32),
        Bounds(items=6, rating=1.0, center="user", norm=0.4),
    )
    seen = []
    for count in (1, 2, 5):
        set_threads(count)
        users = prepared(rows, 30, bounds, V, uniform)
        seen.append(
            {
                name: (exact(ask(users, V)), floating(ask(users, V)))
                for name, ask in STATISTICS.items()
            }
        )
    for name in STATISTICS:
        for parallel in seen[1:]:
            assert np.array_equal(seen[0][name][0], parallel[name][0]), name
            assert np.array_equal(seen[0][name][1], parallel[name][1]), name
    for name, ask in STATISTICS.items():
        statistic = ask(users, V)
        for grid in (None, 4.0**-12):
            whole = statistic.compute(KEY, grid=grid)
            assert whole.shape == statistic.shape
            cuts = [*range(0, len(whole), 7), len(whole)]
            blocks = [
                statistic.compute(KEY, grid=grid, rows=slice(a, b)) for a, b in pairwise(cuts)
            ]
            assert np.array_equal(np.concatenate(blocks), whole), name
