"""Every private model stands all three levels, and the worst canary comes close to what is
claimed.
"""

import json
import math

import numpy as np
import pytest

import discreet
from discreet.auditing import Audit, audit
from discreet.auditing.canaries import Canary, join_canary, worst_cases
from discreet.auditing.neighboring_runs import NeighboringRuns
from discreet.auditing.noise_distribution import audit_noise
from discreet.auditing.one_run import attack, audit_one_run
from discreet.auditing.transcript import audit_transcript
from discreet.errors import ConfigError, DataError, PrivacyError
from discreet.kernels import threads

# categories of the generated items, whose ids begin with 101
KINDS = {"item_features": {101 + 3 * i: f"kind {i // 6}" for i in range(60)}}
MODELS = {
    "DPMF": (discreet.DPMF, {}),
    "DPMF, features": (discreet.DPMF, KINDS),
    "DPMF, communities": (discreet.DPMF, {"route": "communities"}),
    "DPMF, rating": (discreet.DPMF, {"goal": "rating"}),
    "DPALS": (discreet.DPALS, {}),
    "DPALS, implicit": (discreet.DPALS, {"goal": "ranking"}),
    "DPLMC": (discreet.DPLMC, {}),
    "HuberALS, Gaussian noise": (discreet.HuberALS, {"mechanism": "gaussian"}),
    "HuberALS": (discreet.HuberALS, {}),
    "HuberALS, pure": (discreet.HuberALS, {"mechanism": "laplace", "delta": 0.0}),
    "DPFrankWolfe": (discreet.DPFrankWolfe, {}),
    "DPSVD": (discreet.DPSVD, {}),
    "DPSGLD": (discreet.DPSGLD, {"iterations": 6}),
    "DPSGD": (discreet.DPSGD, {"iterations": 8}),
}
#: Whose price is a bound that no user reaches: Huber noise is the same on and off the diagonal of a
#: Gram matrix; and on what factors are worth, three lines of 1 % of μ² each, nobody has so much to
#: say. Without them it is √0.97 = 0.985. Gradient and curvature of a choice model, two lines with 5
#: % of μ² together, are cut by one factor, so one of them is shorter: without them it is √0.95. No
#: canary is held out and moves the check of communities, 5 % of the rest of the budget.
NOT_REACHED = {
    "HuberALS": 0.95,
    "HuberALS, pure": 0.9,
    "DPMF, rating": 0.984,
    "DPMF, features": 0.974,
    "DPMF, communities": 0.974,
}


@pytest.fixture(autouse=True)
def _small():
    """These fits are so small that starting threads takes longer."""
    threads.set_threads(1)
    yield
    threads.set_threads(None)


def worlds_of(name, epsilon=1.0):
    cls, given = MODELS[name]
    return NeighboringRuns(cls.configure(epsilon=epsilon, **given))


@pytest.mark.parametrize("name", MODELS)
def test_the_worst_canary_loses_what_is_claimed_and_not_more(name):
    least = NOT_REACHED.get(name, 0.99)
    reached = 0.0
    for _ in range(3):  # one search in thirty for the worst canary ends at 0.98 of what there is
        level = audit_transcript(worlds_of(name), search=15)
        assert not level.refuted, level.findings
        assert level.found <= level.claimed * (1 + 1e-9)
        assert all(row["share"] <= 1 for row in level.details["releases"])
        reached = max(reached, level.found / level.claimed)
        if reached >= least:
            break
    assert reached >= least


@pytest.mark.parametrize(
    "name", ["DPMF", "DPMF, features", "DPALS", "HuberALS", "HuberALS, pure", "DPSGD"]
)
def test_the_noise_is_as_large_as_its_price(name):
    level = audit_noise(worlds_of(name), fits=40, error=1e-7)
    assert not level.refuted, level.findings
    assert level.found <= level.claimed * (1 + 1e-9)
    assert len(level.details["with"]) + len(level.details["without"]) == level.details["fits"] >= 30
    # seven standard errors: noise of another size would not pass for it
    for variance, n in zip(
        level.details["variance"].values(), level.details["numbers"].values(), strict=True
    ):
        assert abs(variance - 1) < 7 * math.sqrt(2 / n)


@pytest.mark.parametrize("name", MODELS)
def test_one_run_does_not_refute(name):
    cls, given = MODELS[name]
    level, fitted = audit_one_run(cls.configure(epsilon=1.0, **given), canaries=1000, error=1e-7)
    assert not level.refuted, level.findings
    assert len(fitted.privacy_.ledger.entries) > 0


def test_one_run_sees_who_took_part_where_epsilon_is_large():
    """At ε = 20; at 8 six steps hide people so well that one attack in six finds nothing."""
    level, _ = audit_one_run(discreet.DPMF(epsilon=20.0, goal="rating"), seed=3)
    assert level.details["right"] > 0.65 * level.details["guesses"]
    assert 0.1 < level.details["epsilon_steinke"] < 20.0
    assert 0.1 < level.details["epsilon_fdp"] < 20.0


@pytest.mark.parametrize("name", ["DPMF", "DPMF, features", "DPALS"])
def test_replacing_a_user_is_not_refuted_either(name):
    cls, given = MODELS[name]
    model = cls.configure(epsilon=1.0, neighboring="replace-one", **given)
    found = audit(model, levels=["transcript", "one run"], search=10, canaries=400, seed=1)
    assert not found.refuted, str(found)
    assert 0.3 < found.levels[0].found / found.levels[0].claimed <= 1


def test_an_attack_on_coins_alone_guesses_nothing():
    """The features say nothing of the coins: about half of the guesses are right."""
    rng = np.random.default_rng(5)
    found = attack(rng.normal(size=(4000, 5)), rng.random(4000) < 0.5, 0.05)
    assert abs(found.right - found.made / 2) < 5 * math.sqrt(found.made) / 2
    coins = rng.random(4000) < 0.5
    found = attack(
        np.column_stack([coins + 0.1 * rng.normal(size=4000), rng.normal(size=4000)]), coins, 0.05
    )
    assert found.right == found.made


def test_canaries_come_first_and_leave_the_crowd_as_it_is():
    worlds = worlds_of("DPALS")
    crowd = worlds.people(40)
    for canary in worst_cases(crowd.n_items, 1.0, 5.0):
        with_it = join_canary(crowd, canary)
        own = canary.copies * len(canary.items)
        assert with_it.n_users == crowd.n_users + canary.copies
        assert np.array_equal(with_it.indices[own:], crowd.indices)
        assert np.array_equal(with_it.values[own:], crowd.values)
    assert join_canary(crowd, None) is crowd


# ------------------------------------------------------------------ the entry


def test_an_audit_is_a_value_that_comes_back_from_json(tmp_path):
    found = discreet.audit(
        discreet.DPMF, epsilon=1.0, levels=["transcript", "one-run"], search=2, canaries=200, seed=1
    )
    assert [level.name for level in found.levels] == ["transcript", "one run"]
    assert not found.refuted
    assert "no proof" in found.verdict
    assert found.claim.unit == "mu"
    found.save(tmp_path / "audit.json")
    again = Audit.load(tmp_path / "audit.json")
    assert (
        again.to_dict()
        == found.to_dict()
        == json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    )
    assert str(again) == str(found)
    for text in ("not JSON", "[]", "{}", '{"format": "another"}'):
        (tmp_path / "bad.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError):
            Audit.load(tmp_path / "bad.json")


def test_a_name_a_class_and_a_model_are_all_models():
    given = {"levels": "one run", "canaries": 100, "seed": 1}
    for found in (
        audit("dpmf", epsilon=1.0, **given),
        audit(discreet.DPMF, epsilon=1.0, **given),
        audit(discreet.DPMF(epsilon=1.0), **given),
    ):
        assert found.model == "DPMF(epsilon=1.0)"


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        ("nothing", {"epsilon": 1.0}, "Unknown model 'nothing'"),
        ("ALS", {"epsilon": 1.0}, "ALS is not private"),
        (discreet.DPMF, {}, "epsilon is missing"),
        (discreet.DPMF(epsilon=1.0), {"factors": 3}, "factors is given with a model object"),
        (discreet.ALS(), {}, "ALS is not private"),
        (discreet.DPMF(epsilon=1.0, noise="seeded", random_state=0), {}, "no claim to audit"),
        (discreet.DPMF, {"epsilon": 1.0, "levels": ["all"]}, "Unknown level 'all'"),
        (discreet.DPMF, {"epsilon": 1.0, "levels": []}, "levels is empty"),
        (discreet.DPMF, {"epsilon": 1.0, "levels": "one run", "canaries": 10}, "at least 100"),
    ],
)
def test_what_cannot_be_audited_is_said_in_words(model, given, words):
    with pytest.raises(ConfigError, match=words):
        audit(model, **given)


def test_people_are_charged_or_left_alone():
    people = worlds_of("DPMF").people(300)
    model = discreet.DPMF(epsilon=1.0, rating_range=(1.0, 5.0))
    with pytest.raises(PrivacyError, match=r"is a release.*--spend"):
        audit(model, people)
    with pytest.raises(ConfigError, match="generated users only"):
        audit(model, people, levels=["transcript", "noise"], spend=True)
    with pytest.raises(ConfigError, match="an audit takes Ratings"):
        audit(model, [1, 2, 3], spend=True)
    assert model.earlier_ledgers_ == ()
    found = audit(model, people, levels=["one run"], spend=True, canaries=400)
    assert found.spent["epsilon"] == pytest.approx(1.0)
    (ledger,) = model.earlier_ledgers_
    assert found.spent["ledger"] == ledger.to_dict()
    assert ledger.price().epsilon == found.spent["epsilon"]
    assert "the given ratings" in found.data


def test_an_account_is_charged(tmp_path):
    account = discreet.BudgetStore(tmp_path / "people.sqlite").open("customers", 2.0, 1e-6)
    people = worlds_of("DPMF").people(300)
    before = account.balance.left
    audit(
        discreet.DPMF(epsilon=1.0, rating_range=(1.0, 5.0)),
        people,
        levels=["one run"],
        spend=True,
        canaries=400,
        account=account,
    )
    assert account.balance.left < before
    with pytest.raises(ConfigError, match="generated users cost no budget"):
        audit("DPMF", epsilon=1.0, account=account)


def test_an_audit_of_people_that_is_interrupted_leaves_its_ledger():
    people = worlds_of("DPMF").people(300)
    model = discreet.DPMF(epsilon=1.0, rating_range=(1.0, 5.0))

    def stop(done, total, text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(model, people, levels=["one run"], spend=True, canaries=400, progress=stop)
    assert len(model.earlier_ledgers_) == 1
    assert model.earlier_ledgers_[0].entries


def test_an_odd_canary_may_be_refused_and_an_ordinary_one_may_not():
    from discreet.auditing.transcript import _try

    worlds = worlds_of("DPALS")
    tried, findings = [], []
    twice = Canary("twice", np.array([0, 0]), np.array([1.0, 2.0]), odd=True)
    _try(worlds, twice, tried, findings)
    assert tried == findings == []
    _try(worlds, Canary("twice", twice.items, twice.values), tried, findings)
    assert tried == []
    assert "the training fails" in findings[0]
