"""One budget for all trainings on the same people: never overspent, nothing lost, no way back."""

import json
import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import psycopg
import pytest

import discreet
from benchmarks.store_stress import stress
from discreet.errors import BudgetExceeded, ConfigError, DamagedStore, DataError, PrivacyError
from discreet.privacy import Budget, BudgetStore, Plan, Release, Session
from discreet.privacy.accounting import gdp
from discreet.privacy.release.budget_store_log import UNITS
from discreet.privacy.release.hash_chain import seal_of
from discreet.privacy.release.ledger import Ledger


def plan(epsilon=0.5, delta=1e-6, neighboring="add-remove", **release):
    return Plan.calibrate([Release("sums", 4, **release)], Budget(epsilon, delta, neighboring))


def made(of, releases):
    """The ledger of a training that came to so many releases."""
    session = Session(of)
    for _ in range(releases):
        session.ledger.record(
            "sums",
            mechanism=of.releases[0].mechanism,
            sensitivity=1.0,
            norm="l2",
            noise_multiplier=of.noise_multiplier("sums"),
            shape=(1,),
            where="test",
        )
    return session.ledger


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "people.sqlite")


@pytest.fixture
def store(place):
    return BudgetStore(place)


def execute(place, *statements):
    """Change a store behind its back."""
    if place.startswith("postgresql"):
        base = psycopg.connect(place, options="-c search_path=discreet_budget", autocommit=True)
    else:
        base = sqlite3.connect(place, isolation_level=None)
    with closing(base):
        for statement in statements:
            base.execute(statement)


@pytest.fixture
def ratings():
    rng = np.random.default_rng(0)
    rows = [(u, i, 1 + (u + i) % 5) for u in range(200) for i in rng.choice(20, 6, replace=False)]
    users, items, values = (np.array(column) for column in zip(*rows, strict=True))
    return discreet.Ratings.from_arrays(users, items, values.astype(float), item_ids=np.arange(20))


# ------------------------------------------------------------ amounts


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 8])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_a_training_of_the_whole_budget_fits_and_nothing_beside_it(store, epsilon, delta):
    account = store.open("all", epsilon, delta)
    whole = plan(epsilon, delta)
    account.reserve(whole, "secure", "all of it").settle(made(whole, 4))
    assert account.balance.left >= 0
    assert account.balance.epsilon_spent <= epsilon * (1 + 1e-6)
    with pytest.raises(BudgetExceeded):
        account.reserve(plan(epsilon / 10, delta), "secure", "more")


def test_the_limit_keeps_the_promise():
    """μ at the limit implies ε at δ plus half the allowance; the other half is that of the
    draws.
    """
    for epsilon, delta in [(0.1, 1e-9), (1, 1e-6), (20, 1e-4)]:
        allowance = min(1e-12, delta / 1000)
        limit = math.floor(gdp.mu(epsilon, delta + allowance / 2) ** 2 * UNITS) / UNITS
        assert gdp.delta(epsilon, math.sqrt(limit)) <= delta + allowance / 2


def test_mu_squared_adds_up_and_what_was_not_looked_at_comes_back(store):
    account = store.open("customers", 2.0)
    small = plan(0.5)
    price = small.mu**2
    held = account.reserve(small, "secure", "first")
    assert account.balance.reserved == pytest.approx(price, rel=1e-9)
    assert account.balance.unsettled == 1
    held.settle(made(small, 3))  # interrupted before the last of four equal releases
    balance = account.balance
    assert balance.spent == pytest.approx(0.75 * price, rel=1e-9)
    assert (balance.reserved, balance.unsettled, balance.trainings) == (0.0, 0, 1)
    assert balance.limit == pytest.approx(balance.spent + balance.left)


def test_amounts_are_rounded_against_the_account(store):
    account = store.open("customers", 2.0)
    small = plan(0.3)
    held = account.reserve(small, "secure", "x")
    assert held.units / UNITS >= small.mu**2
    assert held.units / UNITS <= small.mu**2 * (1 + 1e-12) + 1 / UNITS


def test_a_crash_stays_spent_and_a_reservation_is_settled_once(store):
    account = store.open("customers", 1.0)
    lost = plan(0.9)
    account.reserve(lost, "secure", "dies")
    with pytest.raises(BudgetExceeded):
        account.reserve(lost, "secure", "again")
    other = store.open("others", 1.0)
    held = other.reserve(lost, "secure", "x")
    held.settle(made(lost, 1))
    with pytest.raises(PrivacyError, match="settled before"):
        held.settle(made(lost, 0))


def test_a_ledger_of_another_plan_is_refused(store):
    held = store.open("customers", 2.0).reserve(plan(0.5), "secure", "x")
    with pytest.raises(PrivacyError, match="not of the plan"):
        held.settle(made(plan(0.4), 1))


# ------------------------------------------------------------ refusals


def test_what_would_fit_is_said_and_fits(store):
    account = store.open("customers", 1.0)
    account.reserve(plan(0.6), "secure", "x").settle(made(plan(0.6), 4))
    with pytest.raises(BudgetExceeded, match=r"epsilon=0\.\d+ would fit$") as caught:
        account.reserve(plan(0.9), "secure", "too much")
    fits = float(str(caught.value).split("epsilon=")[1].split()[0])
    with pytest.raises(BudgetExceeded):
        account.reserve(plan(fits * 1.02), "secure", "x")
    account.reserve(plan(fits), "secure", "fits")


def test_relations_do_not_mix(store):
    account = store.open("customers", 1.0, neighboring="replace-one")
    with pytest.raises(PrivacyError, match="two relations do not add up"):
        account.reserve(plan(), "secure", "x")
    account.reserve(plan(neighboring="replace-one"), "secure", "x")


def test_only_secure_noise_and_planned_releases_are_charged(store, ratings):
    account = store.open("customers", 4.0)
    model = discreet.DPALS(2, epsilon=1, noise="seeded", random_state=1, rating_range=(1, 5))
    with pytest.raises(PrivacyError, match="secure noise only"):
        model.fit(ratings, account=account)
    with pytest.raises(PrivacyError, match="no release"):
        account.reserve(Plan((), Budget(1.0)), "secure", "nothing")
    with pytest.raises(ConfigError, match="budget is an account"):
        discreet.DPMF(epsilon=1).fit(ratings, account=4.0)


def test_other_noise_is_charged_by_a_proven_mu(store):
    """ε of pure noise is 2Φ⁻¹(1/(1 + e^−ε))-GDP; batches count as if everybody were in them."""
    account = store.open("customers", 8.0)
    laplace = Plan.explicit([Release("sums", 1, 20.0, "laplace")], 1e-6)
    pure = laplace.events[0].pure
    held = account.reserve(laplace, "secure", "laplace")
    curve = [gdp.delta(e, math.sqrt(held.units / UNITS)) for e in (0.0, pure / 2, pure)]
    exact = [-math.expm1(min(e - pure, 0.0) / 2) for e in (0.0, pure / 2, pure)]
    assert all(bound >= true for bound, true in zip(curve, exact, strict=True))
    batches = Plan.explicit([Release("sums", 2, 10.0, rate=0.1)], 1e-6, accountant="gdp")
    assert account.reserve(batches, "secure", "batches").units / UNITS == pytest.approx(2 / 100)


def test_something_that_left_without_noise_ends_the_promise(store):
    account = store.open("customers", 4.0)
    some = plan()
    held = account.reserve(some, "secure", "x")
    ledger = made(some, 0)
    ledger.record(
        "all",
        mechanism="none",
        sensitivity=1.0,
        norm="l2",
        noise_multiplier=0.0,
        shape=(1,),
        where="t",
        unsafe=True,
    )
    held.settle(ledger)
    assert account.balance.broken
    assert account.balance.epsilon_spent == math.inf
    with pytest.raises(PrivacyError, match="no longer has a guarantee"):
        account.reserve(some, "secure", "x")
    store.verify()


@pytest.mark.parametrize("name", ["", "a:b", " x", 7])
def test_names_of_accounts(store, name):
    with pytest.raises(ConfigError, match="named by a word"):
        store.open(name, 1.0)


def test_bad_totals(store):
    with pytest.raises(ConfigError, match="delta above 0"):
        store.open("x", 1.0, 0.0)
    with pytest.raises(ConfigError, match="beyond what an account can count"):
        store.open("x", 1e6)
    with pytest.raises(DataError, match="open an account in it first"):
        store["x"]


def test_an_account_is_never_reset(store, place):
    store.open("customers", 1.0)
    with pytest.raises(ConfigError, match="ever reset"):
        store.open("customers", 100.0)
    with pytest.raises(ConfigError, match="it has 'customers'"):
        store["custmers"]
    execute(place, "INSERT INTO ledgers VALUES ('a', 'b', 'c')")
    for change in ("DELETE FROM log", "UPDATE log SET units = 0", "DELETE FROM ledgers"):
        with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match="nothing is"):
            execute(place, change)


def test_files_that_are_something_else(tmp_path):
    text = tmp_path / "ratings.csv"
    text.write_text("userId,movieId\n" * 100)
    with pytest.raises(DataError, match="cannot be used as a store"):
        BudgetStore(text).accounts()
    foreign = tmp_path / "foreign.sqlite"
    base = sqlite3.connect(foreign)
    base.execute("CREATE TABLE mine (x)")
    base.commit()
    base.close()
    with pytest.raises(DataError, match="another program"):
        BudgetStore(foreign).open("customers", 1.0)
    with pytest.raises(DataError, match="not a store"):
        BudgetStore(foreign).accounts()


# ------------------------------------------------------------ fit


def test_fit_takes_the_price_and_the_ledger_is_archived(store, ratings):
    account = store.open("students", 30.0)
    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5)).fit(ratings, account=account)
    balance = account.balance
    assert balance.spent == pytest.approx(model.privacy_.mu**2, rel=1e-9)
    assert balance.reserved == 0
    (ledger,) = account.ledgers()
    assert ledger.to_dict() == model.privacy_.ledger.to_dict()
    assert [record.kind for record in account.log()] == ["open", "reserve", "settle"]
    assert store.verify().ledgers == 1


@pytest.mark.parametrize("name", ["people", "noise_delta", "id"])
def test_a_ledger_that_was_rewritten_is_not_recognized(store, ratings, name):
    account = store.open("students", 30.0)
    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5)).fit(ratings, account=account)
    document = model.privacy_.ledger.to_dict()
    assert account.has_ledger(Ledger.from_dict(document))
    changed = {"people": 12.0, "noise_delta": 1e-14, "id": ""}[name]
    document |= {name: changed}
    document["seal"] = seal_of(document["head"], document)  # as a forger would write it
    assert not account.has_ledger(Ledger.from_dict(document))


def test_the_next_fit_notices_that_an_older_copy_was_put_back(ratings, tmp_path):
    store = BudgetStore(tmp_path / "people.sqlite")
    account = store.open("students", 60.0)
    store.backup(tmp_path / "older.sqlite")
    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5)).fit(ratings, account=account)
    assert model.account_head_.hash == account.log()[-1].hash
    model.save(tmp_path / "model")
    assert discreet.load(tmp_path / "model").account_head_ == model.account_head_
    discreet.load(tmp_path / "model").fit(ratings, account=account)  # nothing is lost so far
    (tmp_path / "older.sqlite").replace(store.path)
    with pytest.raises(DamagedStore, match=r"older copy\. Put the newest copy in its place"):
        discreet.load(tmp_path / "model").fit(ratings, account=account)
    assert len(account.log()) == 1


def test_a_fit_without_an_account_carries_no_head(store, ratings):
    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5)).fit(
        ratings, account=store.open("students", 30.0)
    )
    assert not hasattr(model.fit(ratings), "account_head_")


def test_a_refused_fit_looks_at_nothing_and_leaves_the_model_as_it_was(store, ratings):
    account = store.open("students", 22.0)
    model = discreet.DPALS(2, epsilon=20, rating_range=(1, 5)).fit(ratings, account=account)
    before = model.privacy_
    with pytest.raises(BudgetExceeded):
        model.fit(ratings, account=account)
    assert model.privacy_ is before
    assert account.balance.trainings == 1


def test_an_interrupted_fit_pays_for_what_it_released(store, ratings):
    account = store.open("students", 30.0)
    model = discreet.DPALS(2, iterations=3, epsilon=20, rating_range=(1, 5))

    def stop(done, total, text):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(ratings, account=account, progress=stop)
    balance = account.balance
    assert 0 < balance.spent < model.plan(20).mu ** 2 * 0.99
    assert balance.reserved == 0
    assert account.ledgers()[0].to_dict() == model.privacy_.ledger.to_dict()


# ------------------------------------------------------------ the log


def tampered(place, *changes):
    """Change a store after its triggers were dropped."""
    if place.startswith("postgresql"):
        triggers = ["log_stays ON log", "ledgers_stay ON ledgers"]
    else:
        triggers = ["log_stays", "log_is_kept", "ledgers_stay", "ledgers_are_kept"]
    execute(place, *(f"DROP TRIGGER {trigger}" for trigger in triggers), *changes)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE log SET units = units - 5 WHERE sequence = 3", "record 3 breaks the hash chain"),
        (
            """UPDATE log SET content = replace(content, '"epsilon": 2.0', '"epsilon": 3.0')""",
            "record 1 breaks",
        ),
        ("DELETE FROM log WHERE sequence = 2", "record 2 breaks"),
        (
            "UPDATE ledgers SET text = replace(text, 'gaussian', 'laplace')",
            "missing, or was changed",
        ),
        ("DELETE FROM ledgers", "missing, or was changed"),
        ("INSERT INTO ledgers VALUES ('stray', 'x', 'y')", "belongs to no record"),
    ],
)
def test_changes_of_the_tables_are_found(store, place, change, found):
    account = store.open("customers", 2.0)
    some = plan()
    account.reserve(some, "secure", "x").settle(made(some, 2))
    store.verify()
    tampered(place, change)
    with pytest.raises(PrivacyError, match=found):
        store.verify()


def test_records_taken_from_the_end_are_found_by_a_hash_kept_elsewhere(store, place):
    account = store.open("customers", 2.0)
    account.reserve(plan(), "secure", "x")
    head = store.verify().head
    assert store.verify(head).head == head
    tampered(place, "DELETE FROM log WHERE sequence = 2")
    with pytest.raises(DamagedStore, match="missing at its end"):
        account.reserve(plan(), "secure", "x")
    rewritten = (
        "UPDATE head SET (sequence, hash) = (SELECT sequence, hash FROM log WHERE sequence = 1)"
    )
    execute(place, rewritten)
    store.verify()  # nothing else can tell
    with pytest.raises(PrivacyError, match="taken away, or it is an older copy"):
        store.verify(head)


def test_records_and_balances_are_json(store):
    account = store.open("customers", 2.0, note="all of them")
    account.reserve(plan(), "secure", "x")
    text = json.dumps([record.to_dict() for record in account.log()] + [account.balance.to_dict()])
    assert "all of them" in text


# ------------------------------------------------------------ many processes


@pytest.mark.parametrize("accounts", [1, 2])
def test_processes_that_are_killed_lose_nothing_and_overspend_nothing(tmp_path, place, accounts):
    settings = dict(processes=4, reservations=20, kills=6)
    found = stress(tmp_path, accounts=accounts, seed=accounts, url=place, **settings)
    assert found.attempts >= 80
    assert found.kills == 6
    assert found.missing == 0
    assert found.given > 20
    assert found.largest_use <= 1.0
    assert found.unsaid <= found.kills


def test_many_who_open_a_new_store_at_once_all_get_their_account(store):
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda at: store.open(f"population {at}", 1.0).name, range(16)))
    assert sorted(account.name for account in store.accounts()) == sorted(opened)
    assert store.verify().records == 16


# ------------------------------------------------------------ backups between the two


def test_a_store_moves_from_a_file_to_a_server_and_back(tmp_path, postgres_url):
    first = BudgetStore(tmp_path / "people.sqlite")
    account = first.open("customers", 2.0, note="«all»")
    some = plan()
    account.reserve(some, "secure", "x").settle(made(some, 2))
    assert first.backup(postgres_url) == first.verify()
    second = BudgetStore(postgres_url)
    assert second.log() == first.log()
    with pytest.raises(ConfigError, match=r"has accounts already\. Name a new database"):
        first.backup(postgres_url)
    second["customers"].reserve(some, "secure", "y")
    second.backup(tmp_path / "copy.sqlite")
    assert BudgetStore(tmp_path / "copy.sqlite").log() == second.log()
    assert len(second.log()) == 4
