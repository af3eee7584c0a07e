"""Poisson batches: who is in one, what it may show, what it costs, and that the ledger says so."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.errors import ConfigError, PlanMismatch, PrivacyError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.accounting.pricing import Event
from discreet.privacy.noise.sources import delta_of, fresh_words
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemCounts
from discreet.privacy.statistics.gradients import ClippedGradient
from discreet.privacy.users import poisson_batches as subsample
from discreet.privacy.users.poisson_batches import draw_batch, throw
from discreet.privacy.users.sealed_users import Users, seal
from discreet.privacy.users.steps import Choose, Solve
from support.batch_helpers import ADVERSARIES, N_ITEMS, ORDINARY, sealed
from support.sealed_helpers import NORMS, RELATIONS, block, distance, exact, floating, make, quick

BOUNDS = Bounds(items=3, rating=1.0, center="user", norm=0.7)
V = np.random.default_rng(0).normal(size=(N_ITEMS, 2))


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def batch_of(rows, rate=0.5, seed=(5, 0), ids=None, intercept=0.0):
    users = draw_batch(sealed(rows, BOUNDS, ids), rate, seed=seed)
    users.apply(Solve(V.astype(np.float32), 0.1, intercept=intercept))
    return users


# ------------------------------------------------------------ coins


CROWD = 20_000


@pytest.fixture(scope="module")
def crowd():
    """Users of whom batches are large enough to be counted."""
    return sealed([{n % N_ITEMS: 1.0} for n in range(CROWD)], BOUNDS)


def coins_of(users, rate, seed=None):
    """Who is in a batch of users with one rating each, and keys of their own."""
    everybody = block(users).key
    return np.isin(everybody, block(draw_batch(users, rate, seed=seed)).key)


def assert_independent(there, rate):
    """Coins of rows, (batches, users), fall as often as they should, and know nothing of each
    other.
    """
    for seen, chance in (
        (there, rate),
        (there[:-1] & there[1:], rate**2),  # the same user in the next batch
        (there[:, :-1] & there[:, 1:], rate**2),  # the next user in the same batch
        (there[:, : CROWD // 2] & there[:, CROWD // 2 :], rate**2),
    ):
        assert stats.binomtest(int(seen.sum()), seen.size, chance).pvalue > 1e-9
    for sizes, n in ((there.sum(axis=1), there.shape[1]), (there.sum(axis=0), there.shape[0])):
        excess = ((sizes - rate * n) ** 2).sum() / (n * rate * (1 - rate))
        assert 1e-9 < stats.chi2.cdf(excess, len(sizes)) < 1 - 1e-9


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("seeded", [False, True])
def test_coins_are_independent_and_have_their_rate(crowd, rate, seeded):
    there = np.array([coins_of(crowd, rate, (3, t) if seeded else None) for t in range(60)])
    assert_independent(there, rate)


@pytest.mark.parametrize("rate", [1e-15, 0.01, 0.3, 1 / 3, 1 - 2.0**-53])
def test_a_coin_falls_below_its_rate_exactly(rate, monkeypatch):
    """Two to the 64 equally likely words, of which ⌊rate · 2⁶⁴⌋ are below the mark: to the last
    one.
    """
    mark = math.floor(Fraction(rate) * 2**64)
    words = np.array([0, mark - 1, mark, 2**64 - 1], np.uint64)
    monkeypatch.setattr(subsample, "_words", lambda n, seed: words[:n])
    assert throw(4, rate).tolist() == [True, True, False, False]


def test_nobody_can_know_the_coins(crowd):
    """They come from no generator that a program, or somebody else in it, may have seeded or
    looked at.
    """
    before, seen = [], []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002  # a program may do that
        random.seed(7)
        before.append((random.getstate(), str(np.random.get_state())))  # noqa: NPY002
        seen.append([coins_of(crowd, 0.3), coins_of(crowd, 0.3)])
        assert (random.getstate(), str(np.random.get_state())) == before[-1]  # noqa: NPY002
    assert_independent(np.concatenate(seen), 0.3)


def test_a_key_throws_few_coins(crowd, monkeypatch):
    keys = []
    monkeypatch.setattr(subsample, "_PER_KEY", 7000)
    monkeypatch.setattr(
        subsample, "fresh_words", lambda: keys.append(words := fresh_words()) or words
    )
    there = np.array([coins_of(crowd, 0.3) for _ in range(60)])
    assert len(keys) == 3 * 60
    assert_independent(there, 0.3)
    assert throw(0, 0.3).shape == (0,)


@pytest.mark.parametrize(
    "ids",
    [
        ["7", "07", "7.0", "+7", " 7", "007"],
        [f"{n}e9999{n}" for n in range(10, 16)],
    ],
    ids=["written alike", "infinite as numbers"],
)
def test_users_do_not_share_a_coin_whatever_their_ids(ids):
    """Ids that read as one number, or as none: each of these people is in half of the batches,
    by itself.
    """
    rows = [{0: 1.0 + n} for n in range(len(ids))]
    users = seal(make(rows, N_ITEMS, ids), Bounds(items=1, rating=9.0))
    values = block(users).values.tolist()
    drawn = [block(draw_batch(users, 0.5)).values.tolist() for _ in range(400)]
    there = np.array([[value in batch for value in values] for batch in drawn])
    assert (np.abs(there.mean(axis=0) - 0.5) < 0.15).all()  # six standard deviations
    together = np.corrcoef(there.T) - np.eye(len(ids))
    assert np.abs(together).max() < 0.3


@pytest.mark.parametrize("seed", [None, (3, 1)])
def test_blocks_of_users_do_not_share_coins(crowd, seed):
    """Users at the same place in two blocks are two."""
    block = crowd.open(KEY)[0]
    other = replace(block, key=block.key + np.uint64(1))
    two = draw_batch(Users((block, other), crowd.public), 0.5, seed=seed).open(KEY)
    there = [np.isin(one.key, some.key) for one, some in zip((block, other), two, strict=True)]
    assert_independent(np.array(there), 0.5)


def test_research_batches_are_repeated_by_their_seed_alone(crowd):
    first = coins_of(crowd, 0.5, (0, 1))
    np.random.seed(3)  # noqa: NPY002
    assert np.array_equal(first, coins_of(crowd, 0.5, (0, 1)))
    both = np.array(
        [
            first,
            coins_of(crowd, 0.5, (0, 2)),
            coins_of(crowd, 0.5, (1, 1)),
            coins_of(crowd, 0.5, (1, 0)),
        ]
    )
    assert_independent(both, 0.5)
    noise = np.random.Generator(
        np.random.SFC64(np.random.SeedSequence(0, spawn_key=(0, 0)))
    ).random(CROWD)
    assert abs(np.corrcoef(noise, first)[0, 1]) < 6 / CROWD**0.5  # a stream of their own


# ------------------------------------------------------------ what one user moves


histories = st.dictionaries(st.integers(0, N_ITEMS - 1), st.floats(width=32), max_size=N_ITEMS)


def assert_moves_no_further(rows, who, instead, observe, rate, scale, intercept, slack=0.0):
    ids = list(range(50, 50 + len(rows)))
    W = np.column_stack([np.ones(N_ITEMS), V]) if intercept else V

    def by_person(rows, rate, seed):  # the same coin in both data sets, wherever the row is
        return rows.key % np.uint64(100) < np.uint64(100 * rate)

    def ask(rows, ids):
        with patch.object(subsample, "who_is_in", by_person):
            return batch_of(rows, rate, ids=ids, intercept=intercept).sum(
                ClippedGradient(W, 0.8, scale)
            )

    whole = ask(rows, ids)
    left = [n for n in range(len(rows)) if n != who]
    others = {
        "add-remove": ask([rows[n] for n in left], [ids[n] for n in left]),
        "replace-one": ask([instead if n == who else row for n, row in enumerate(rows)], ids),
    }
    before = observe(whole)
    for relation in RELATIONS:
        after = observe(others[relation])
        assert np.isfinite(after).all()
        for norm in NORMS:
            assert distance(before, after, whole, norm) <= whole.sensitivity(relation, norm) * (
                1 + slack
            )
        if relation == "add-remove":
            assert np.abs(before - after).max() <= whole.sensitivity(relation, "inf") * (1 + slack)


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize(
    "scale", [None, np.array([0.0, 1e-9, 1.0, 3.0, 1e6, 10.0])], ids=["plain", "scaled"]
)
@pytest.mark.parametrize("intercept", [0.0, 0.4])
def test_no_adversary_moves_the_gradient_further(rate, scale, intercept):
    for row in ADVERSARIES.values():
        for instead in (ADVERSARIES["both"], ORDINARY[0], {}):
            rows = [*ORDINARY, row]
            assert_moves_no_further(rows, len(rows) - 1, instead, exact, rate, scale, intercept)
            assert_moves_no_further(
                rows, len(rows) - 1, instead, floating, rate, scale, intercept, slack=1e-5
            )


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(histories, min_size=1, max_size=4), instead=histories)
def test_no_user_moves_the_gradient_further(rows, instead):
    assert_moves_no_further(rows, 0, instead, exact, 0.7, None, 0.0)


def test_the_bound_is_reached():
    g = floating(
        batch_of([{n: 1e6 * (-1) ** n for n in range(N_ITEMS)}], 1.0).sum(ClippedGradient(V, 0.8))
    )
    assert 0.79 < np.linalg.norm(g) <= 0.8


def test_a_batch_is_released_once():
    users = batch_of(ORDINARY)
    statistic = users.sum(ClippedGradient(V, 1.0))
    with pytest.raises(PrivacyError, match="released only once"):
        users.sum(ClippedGradient(V, 1.0))
    statistic.compute(KEY, rows=slice(0, 2))
    statistic.compute(KEY, rows=slice(2, N_ITEMS))
    with pytest.raises(PrivacyError, match="released only once"):
        statistic.compute(KEY)


def test_an_empty_batch_is_a_batch():
    assert not floating(batch_of([{0: 1.0}], 1e-12).sum(ClippedGradient(V, 1.0))).any()


# ------------------------------------------------------------ what it costs


def hockey_stick(epsilon, z, q):
    """δ of (1 − q) N(0, z²) + q N(1, z²) against N(0, z²), and the other way round, by
    quadrature.
    """
    x = np.linspace(-12 * z, 1 + 12 * z, 400_001)
    p = stats.norm.pdf(x, 0, z)
    mixed = (1 - q) * p + q * stats.norm.pdf(x, 1, z)
    gap = [np.maximum(a - math.exp(epsilon) * b, 0) for a, b in ((mixed, p), (p, mixed))]
    return max(float(g.sum() * (x[1] - x[0])) for g in gap)


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.2), (0.6, 0.05), (3.0, 0.5)])
def test_one_batch_costs_what_its_definition_says(z, q):
    epsilon = accounting.epsilon([Event("gaussian", z, rate=q)], 1e-3, "pld")
    assert hockey_stick(epsilon, z, q) <= 1e-3 * (1 + 1e-6)
    assert hockey_stick(epsilon * 0.999 - 2e-4, z, q) > 1e-3 * 0.999


def test_two_different_batches_cost_what_their_product_says():
    """Composition, by drawing from the law of the loss."""
    events = [
        Event("gaussian", 0.8, rate=0.3),
        Event("gaussian", 1.2, rate=0.1),
        Event("gaussian", 4.0),
    ]
    epsilon = accounting.epsilon(events, 0.01, "pld")
    rng, n = np.random.default_rng(0), 400_000
    loss = np.zeros(n)
    for event in events:
        z, q = event.noise_multiplier, event.rate
        x = rng.normal(0, z, n) + (rng.random(n) < q)
        loss += np.log(1 - q + q * np.exp((2 * x - 1) / (2 * z * z)))
    found = np.maximum(0, 1 - np.exp(epsilon - loss)).mean()
    assert found == pytest.approx(0.01, rel=0.05)


def test_accountants_agree_and_amplification_helps():
    events = [Event("gaussian", 2.0, 30, rate=0.1), Event("gaussian", 20.0)]
    ours = accounting.epsilon(events, 1e-6, "pld")
    google = accounting.independent_epsilon(events, 1e-6)
    assert google <= ours <= google * 1.001
    assert (
        ours
        < accounting.independent_epsilon(events, 1e-6, "rdp")
        < accounting.epsilon(events, 1e-6, "gdp")
    )
    everybody = [Event("gaussian", 2.0, 30), Event("gaussian", 20.0)]
    for accountant in ("gdp", "rdp"):  # they do not count it, and never too little
        assert accounting.epsilon(events, 1e-6, accountant) == accounting.epsilon(
            everybody, 1e-6, accountant
        )
    for accountant in ("pld", "gdp", "rdp"):
        # the loss of a batch has another law
        assert accounting.price(events, 1e-6, accountant).mu is None
        assert accounting.price(everybody, 1e-6, accountant).mu == accounting.total_mu(everybody)


def test_a_plan_with_batches_keeps_its_budget():
    lines = [Release("counts", weight=3.0), Release("gradient", 10, rate=0.2)]
    plan = Plan.calibrate(lines, Budget(2.0, 1e-6), "pld")
    assert 2.0 * 0.999 < plan.epsilon() <= 2.0
    assert Plan.from_json(plan.to_json()) == plan
    assert "rate" not in plan.to_dict()["releases"][0]
    assert 0.9 < sum(row["share"] for row in plan.rows()) < 1.1
    with pytest.raises(ConfigError, match="add-remove"):
        Plan.calibrate(lines, Budget(2.0, 1e-6, "replace-one"), "pld")


def test_what_has_no_price_is_refused():
    with pytest.raises(ConfigError, match="Gaussian noise only"):
        Event("laplace", 1.0, rate=0.5)
    for rate in (0.0, 1e-9, 9e-4, 1.1):
        with pytest.raises(ConfigError, match=f"rate={rate}"):
            Event("gaussian", 1.0, rate=rate)
    for epsilon, delta, why in (
        (1e8, 1e-6, "cannot be priced"),
        (1.0, 1e-13, "too small for accountant='pld'"),
    ):
        with pytest.raises(ConfigError, match=why):
            Plan.calibrate([Release("gradient", 3, rate=0.1)], Budget(epsilon, delta), "pld")
    with pytest.raises(ConfigError, match=r"rate is 1\.5"):
        draw_batch(sealed(ORDINARY, BOUNDS), 1.5)


# ------------------------------------------------------------ the door


def session_of(rate, noise="seeded"):
    plan = Plan.calibrate([Release("gradient", 2, rate=rate)], Budget(2.0, 1e-6), "pld")
    return Session(plan, noise, random_state=0 if noise == "seeded" else None)


def test_the_session_lets_no_larger_batch_through():
    session = session_of(0.3)
    with pytest.raises(PlanMismatch, match=r"priced for batches of rate 0\.3, but has rate 0\.5"):
        session.release("gradient", batch_of(ORDINARY, 0.5).sum(ClippedGradient(V, 1.0)))
    users = sealed(ORDINARY, BOUNDS)
    users.apply(Choose())
    with pytest.raises(PlanMismatch, match="but has rate 1"):
        session.release("gradient", users.sum(ItemCounts()))
    assert not session.ledger.entries


def test_secure_noise_wants_secret_sampling():
    session = session_of(0.3, "secure")
    with pytest.raises(PrivacyError, match="needs secret Poisson sampling"):
        session.release("gradient", batch_of(ORDINARY, 0.3).sum(ClippedGradient(V, 1.0)))
    session.release("gradient", batch_of(ORDINARY, 0.3, seed=None).sum(ClippedGradient(V, 1.0)))


def test_ledger_and_statement_say_that_there_were_batches():
    session = session_of(0.3)
    for n in range(2):
        session.release("gradient", batch_of(ORDINARY, 0.3, (0, n)).sum(ClippedGradient(V, 1.0)))
    statement = session.finish()
    assert "with probability 0.3" in str(statement)
    assert "μ" not in str(statement)
    assert statement.to_dict()["mu"] is session.ledger.to_dict()["mu"] is None
    document = session.ledger.to_dict()
    assert [entry["rate"] for entry in document["entries"]] == [0.3, 0.3]
    again = Ledger.from_dict(document)
    assert PrivacyStatement.from_ledger(again) == statement
    assert accounting.independent_epsilon(again.events(), 1e-6) <= statement.epsilon + 1e-6
    document["entries"][0]["rate"] = 0.1
    with pytest.raises(PrivacyError, match="hash chain"):
        Ledger.from_dict(document)


def test_the_coins_of_a_batch_are_charged_whatever_its_size():
    for rows in (ORDINARY, ORDINARY[:1]):
        session = session_of(0.3, "secure")
        for made in (1, 2):
            session.release("gradient", batch_of(rows, 0.3, seed=None).sum(ClippedGradient(V, 1.0)))
            draws = made * (N_ITEMS * 2 + 2**22)
            assert session.ledger.noise_delta == delta_of(draws)
    text = session.statement.to_dict()["text"]
    assert text.count("through AES") == text.count("secret Poisson sampling") == 1
    seeded = session_of(0.3)
    seeded.release("gradient", batch_of(ORDINARY, 0.3).sum(ClippedGradient(V, 1.0)))
    assert seeded.ledger.noise_delta == 0.0


def test_ledgers_without_batches_have_no_rates():
    """So that the hashes of those written before there were batches still hold."""
    session = Session(
        Plan.calibrate([Release("counts")], Budget(1.0, 1e-6)), "seeded", random_state=0
    )
    users = sealed(ORDINARY, BOUNDS)
    users.apply(Choose())
    session.release("counts", users.sum(ItemCounts()))
    assert "rate" not in session.ledger.to_dict()["entries"][0]
    assert "batches" not in str(session.statement)


def test_an_adversary_sees_the_mixture_and_no_more():
    """One person, in or out, through the door 600 times: what leaves has the law that was
    priced.
    """
    z, q, times = 0.5, 0.3, 600
    plan = Plan.explicit([Release("gradient", 2 * times, z, rate=q)], 1e-6, accountant="gdp")
    session = Session(plan, "seeded", random_state=3)
    seen = []
    for rows in ([{0: 1e6, 1: -1e6}, {}], [{}]):
        users = sealed(rows, Bounds(items=3, rating=1.0, center=0.0, norm=0.7))
        for _ in range(times):
            batch = draw_batch(users, q)
            batch.apply(Solve(V.astype(np.float32), 0.1))
            seen.append(session.release("gradient", batch.sum(ClippedGradient(V, 1.0))))
    there, away = np.array(seen[:times]), np.array(seen[times:])
    direction = there.mean(axis=0) - away.mean(axis=0)
    direction /= np.linalg.norm(direction)
    x, y = ((part * direction).sum(axis=(1, 2)) for part in (there, away))
    assert stats.kstest(y - y.mean(), stats.norm(0, z).cdf).pvalue > 1e-4
    mixture = lambda t: (1 - q) * stats.norm.cdf(t, 0, z) + q * stats.norm.cdf(t, 1, z)  # noqa: E731
    assert stats.kstest(x, mixture).pvalue > 1e-4
