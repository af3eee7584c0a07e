import json

import pytest

from discreet.errors import BudgetExceeded, ConfigError, PlanMismatch
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import RESERVE, Plan, Release

RELEASES = [
    Release("counts", 1, 4.0),
    Release("gram", 3, 2.0, shape=(5, 6)),
    Release("sum", 3, 1.0),
]


@pytest.fixture
def plan():
    return Plan.calibrate(RELEASES, Budget(1.0, 1e-6))


def test_calibration_spends_the_budget(plan):
    assert plan.epsilon() <= 1.0
    assert plan.epsilon() == pytest.approx(1.0, rel=1e-9)
    plan.check()
    assert plan.noise_multiplier("gram") == 2 * plan.noise_multiplier("sum")
    assert plan.mu == pytest.approx(accounting.total_mu(plan.events))


def test_less_privacy_needs_less_noise():
    multipliers = [
        Plan.calibrate(RELEASES, Budget(e, 1e-6)).noise_multiplier("sum") for e in (0.5, 1.0, 10.0)
    ]
    assert multipliers == sorted(multipliers, reverse=True)


def test_the_papers_accountant_needs_more_noise(plan):
    other = Plan.calibrate(RELEASES, Budget(1.0, 1e-6), "rdp")
    assert other.noise_multiplier("sum") > 1.2 * plan.noise_multiplier("sum")
    assert other.epsilon("gdp") < 1.0


def test_explicit_multipliers_are_kept_and_priced():
    plan = Plan.explicit([Release("gram", 2, 17.8), Release("sum", 2, 8.9)], delta=1e-5)
    assert plan.noise_multiplier("gram") == 17.8
    assert plan.budget.epsilon == plan.epsilon()
    assert plan.epsilon() == pytest.approx(accounting.epsilon(plan.events, 1e-5), rel=1e-9)
    plan.check()


def test_what_the_sampler_uses_of_delta_is_set_aside(plan):
    assert RESERVE < 1e-17
    assert plan.epsilon() == accounting.epsilon(plan.events, 1e-6 - RESERVE)


def test_pure_plan():
    releases = [
        Release("sum", 4, mechanism="laplace"),
        Release("gram", 2, mechanism="huber", alpha=0.8),
    ]
    plan = Plan.calibrate(releases, Budget(2.0, 0.0))
    assert plan.epsilon() == pytest.approx(2.0, rel=1e-12)
    with pytest.raises(ConfigError, match="pure"):
        Plan.calibrate(RELEASES, Budget(2.0, 0.0))


def test_rows_are_a_table(plan):
    rows = plan.rows()
    assert [row["name"] for row in rows] == ["counts", "gram", "sum"]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert rows[2]["share"] == pytest.approx(3 / (1 / 16 + 3 / 4 + 3))
    assert all(0 < row["epsilon_alone"] < 1.0 for row in rows)


def test_json_round_trip(plan):
    for some in (
        plan,
        Plan.explicit([Release("b", 2, 3.0, "huber", 0.7, 0.5, ())], 1e-4, "replace-one", "rdp"),
    ):
        assert Plan.from_json(some.to_json()) == some
        json.loads(some.to_json())


def test_a_plan_that_was_edited_is_caught(plan):
    cheaper = {**plan.to_dict(), "scale": plan.scale / 2}
    with pytest.raises(BudgetExceeded, match="costs"):
        Plan.from_dict(cheaper).check()
    with pytest.raises(ConfigError, match="not a plan"):
        Plan.from_dict({"releases": []})


def test_unknown_names_and_bad_lines(plan):
    with pytest.raises(PlanMismatch, match=r"'grams'.*'counts', 'gram', 'sum'"):
        plan.release("grams")
    for make in (
        lambda: Release(""),
        lambda: Release("a", weight=0.0),
        lambda: Release("a", mechanism="huber"),
        lambda: Plan((Release("a"), Release("a")), Budget(1.0)),
        lambda: Plan((Release("a"),), Budget(1.0), "moments"),
        lambda: Plan((Release("a"),), Budget(1.0), scale=0.0),
        lambda: Plan.explicit([], 1e-6),
    ):
        with pytest.raises(ConfigError):
            make()


def test_plans_are_values(plan):
    assert plan == Plan.calibrate(RELEASES, Budget(1.0, 1e-6))
    assert hash(plan) == hash(Plan.calibrate(RELEASES, Budget(1.0, 1e-6)))
    with pytest.raises(AttributeError):
        plan.scale = 1.0


PARTS = (("first", 0.25), ("second", 0.75))


def test_parts_cost_what_the_whole_does():
    lines = [Release("counts", share=0.2), Release("rest", share=0.8, parts=PARTS)]
    for accountant in ("gdp", "rdp"):
        plan = Plan.from_shares(lines, Budget(2.0, 1e-6), accountant)
        divided = [line.event(plan.scale) for line in plan.list_made(["second"])]
        assert [line.name for line in plan.list_made(["second"])] == ["counts", "first", "second"]
        assert plan.list_made(["counts"]) == list(plan.releases)
        cost = accounting.epsilon(divided, plan.budget.delta, accountant)
        assert cost == pytest.approx(plan.epsilon(), rel=1e-6)
        assert plan.noise_multiplier("first") == pytest.approx(2 * plan.noise_multiplier("rest"))
        assert Plan.from_json(plan.to_json()) == plan
        assert [row.get("part_of") for row in plan.rows()] == [None, None, "rest", "rest"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"parts": (("a", 0.6), ("b", 0.6))},
        {"parts": (("a", -0.1), ("b", 0.5))},
        {"parts": (("a", 1.0),), "count": 2},
        {"parts": (("a", 1.0),), "mechanism": "laplace"},
        {"parts": (("a", 1.0),), "rate": 0.5},
    ],
)
def test_what_cannot_be_divided(wrong):
    with pytest.raises(ConfigError, match="divided"):
        Release("rest", **wrong)


def test_names_of_parts_differ_from_all_others():
    with pytest.raises(ConfigError, match="names must differ"):
        Plan((Release("first"), Release("rest", parts=PARTS)), Budget(1.0))
