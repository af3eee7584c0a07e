import json
import math

import pytest

from discreet.errors import PrivacyError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.hash_chain import check_chain, early_seal_of
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release


@pytest.fixture
def ledger():
    plan = Plan.calibrate([Release("gram", 2), Release("sum", 2, 0.5)], Budget(2.0, 1e-6))
    ledger = Ledger(plan, "secure")
    ledger.assume("catalog", "the list of items")
    for _ in range(2):
        for name in ("gram", "sum"):
            multiplier = plan.noise_multiplier(name)
            ledger.record(
                name,
                mechanism="gaussian",
                sensitivity=7.07,
                norm="l2",
                noise_multiplier=multiplier,
                shape=(10, 3),
                where="models/x.py:12",
            )
    ledger.noise_delta = 1e-20
    return ledger


@pytest.fixture
def path(ledger, tmp_path):
    ledger.save(tmp_path / "ledger.json")
    return tmp_path / "ledger.json"


def test_round_trip(ledger, path):
    again = Ledger.load(path)
    assert again.to_dict() == ledger.to_dict()
    assert again.entries == ledger.entries
    assert again.assumptions == ledger.assumptions
    assert again.plan == ledger.plan


def test_file_has_the_promised_fields(path):
    document = json.loads(path.read_text())
    assert {
        "plan",
        "entries",
        "assumptions",
        "epsilon",
        "delta",
        "neighboring",
        "accountant",
    } <= set(document)
    for entry in document["entries"]:
        assert {
            "name",
            "mechanism",
            "sensitivity",
            "noise_multiplier",
            "shape",
            "where",
            "sequence",
        } <= set(entry)
    assert document["library"]["name"] == "discreet"
    assert document["epsilon"] <= 2.0


def test_price_from_the_file_alone(path):
    document = json.loads(path.read_text())
    ledger = Ledger.load(path)
    assert ledger.price().epsilon == pytest.approx(2.0, rel=1e-9)
    assert ledger.price("rdp").epsilon > 2.2
    by_hand = math.sqrt(sum(entry["noise_multiplier"] ** -2 for entry in document["entries"]))
    assert ledger.price().mu == pytest.approx(by_hand)


def test_the_independent_accountant_does_not_exceed_the_stated_epsilon(path):
    document = json.loads(path.read_text())
    independent = accounting.independent_epsilon(Ledger.load(path).events(), document["delta"])
    assert independent <= document["epsilon"] + 1e-4  # its own discretization
    assert Ledger.load(path).price("pld").epsilon <= document["epsilon"] + 1e-4


def edited(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d["entries"][1].update(noise_multiplier=1e9), "entry 2 .'sum'"),
        (lambda d: d["entries"][3].update(sensitivity=1e-9), "entry 4 .'sum'"),
        (lambda d: d["entries"].pop(1), "entry 3 .'gram'"),
        (lambda d: d["entries"].pop(), "missing at its end"),
        (lambda d: d["assumptions"].clear(), "entry 1 .'gram'"),
        (lambda d: d["assumptions"][0].update(text="nothing"), "entry 0 .'catalog'"),
        (lambda d: d["plan"].update(scale=1e9), "header"),
        (lambda d: d.update(noise="seeded"), "header"),
        (lambda d: d["plan"]["budget"].update(delta=0.5), "header"),
        (lambda d: d.update(epsilon=0.1), "seal"),
        (lambda d: d.update(delta=1e-9), "seal"),
        (lambda d: d.update(noise_delta=1e-9), "seal"),
        (lambda d: d.update(head="0" * 64), "end"),
        (lambda d: d.update(format="other/1"), "format"),
        (lambda d: d.pop("plan"), "plan"),
        (lambda d: d["entries"][0].pop("mechanism"), "malformed"),
    ],
)
def test_tampering_is_found_and_named(path, change, named):
    with pytest.raises(PrivacyError, match=named):
        Ledger.load(edited(path, change))


def test_the_number_of_people_is_sealed(ledger):
    ledger.people = 2e6 + 0.5
    written = json.loads(json.dumps(ledger.to_dict()))
    assert Ledger.from_dict(written).people == ledger.people
    check_chain(written)
    without = {name: value for name, value in written.items() if name != "people"}
    for edited in (
        written | {"people": 10.0},
        written | {"people": None},
        written | {"people": "many"},
        without,
    ):
        with pytest.raises(PrivacyError, match="number of users"):
            Ledger.from_dict(edited)
        with pytest.raises(PrivacyError, match="breaks the seal"):
            check_chain(edited)


def test_a_number_of_people_that_nothing_seals_is_not_believed(ledger):
    written = ledger.to_dict()
    for people in ({}, {"people": 10.0}):  # as ledgers were at first
        early = written | people
        assert early["seal"] == early_seal_of(early["head"], early)
        assert Ledger.from_dict(early).people is None
        assert Ledger.from_dict(early).entries == ledger.entries
        check_chain(early)


def test_a_file_that_is_no_ledger(tmp_path):
    (tmp_path / "a.json").write_text("not json")
    for name in ("a.json", "none.json"):
        with pytest.raises(PrivacyError, match="cannot be read"):
            Ledger.load(tmp_path / name)


def test_entries_cannot_be_taken_back(ledger):
    with pytest.raises(AttributeError):
        ledger.entries[0].noise_multiplier = 100.0
    with pytest.raises(AttributeError):
        ledger.entries.clear()
    with pytest.raises(AttributeError):
        ledger.entries = ()


def test_an_unsafe_entry_makes_epsilon_infinite(ledger, tmp_path):
    ledger.record(
        "peek",
        mechanism="none",
        sensitivity=1.0,
        norm="l2",
        noise_multiplier=0.0,
        shape=(),
        where="x:1",
        unsafe=True,
    )
    for accountant in accounting.ACCOUNTANTS:
        assert ledger.price(accountant).epsilon == math.inf
    ledger.save(tmp_path / "l.json")
    assert json.loads((tmp_path / "l.json").read_text())["epsilon"] == "Infinity"
    assert Ledger.load(tmp_path / "l.json").price().epsilon == math.inf


def test_equal_assumptions_are_recorded_once(ledger):
    ledger.assume("catalog", "the list of items")
    assert len(ledger.assumptions) == 1


def test_empty_ledger(tmp_path):
    ledger = Ledger(Plan.calibrate([Release("a")], Budget(1.0)), "seeded")
    assert ledger.price().epsilon == 0.0
    ledger.save(tmp_path / "l.json")
    assert Ledger.load(tmp_path / "l.json").entries == ()
