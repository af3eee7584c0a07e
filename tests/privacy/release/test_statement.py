import json
from pathlib import Path

import numpy as np
import pytest

from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release import unsafe
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import describe_factor


@pytest.fixture
def session(row_sum):
    def make(noise="secure", **options):
        session = Session(
            Plan.calibrate([Release("gram", 2), Release("sum")], Budget(1.5, 1e-6, **options)),
            noise,
        )
        session.record_assumption("catalog", "the list of items")
        for name in ("gram", "sum", "gram"):
            session.release(name, row_sum(np.ones((3, 2))))
        return session

    return make


def test_the_paragraph_of_a_secure_session(session):
    text = str(session().finish())
    for part in (
        "ε = 1.5",
        "δ = 1e-06",
        "4.482 times",
        "with all data of any one user as without it, and conversely",
        "additional probability of 1e-06",
        "same users add to the total",
        "gram × 2",
        "closed form",
        "list of items",
    ):
        assert part in text
    assert "RESEARCH" not in text
    assert "\n" not in text


def test_numbered_releases_are_listed_as_a_range(row_sum):
    """Twenty steps with noise of their own each are one phrase; two are named, and so are
    numbers with a gap.
    """
    names = [
        "counts",
        "step 1",
        "gram 1",
        "step 2",
        "gram 2",
        "step 3",
        "block 1",
        "block 2",
        "block 4",
        "sum",
    ]
    plan = Plan.calibrate(
        [Release(name, 2 if name == "sum" else 1) for name in names], Budget(1.5, 1e-6)
    )
    door = Session(plan, "seeded", 0)
    for name in [*names, "sum"]:
        door.release(name, row_sum(np.ones((3, 2))))
    listed = "item counts, step 1 to 3, gram 1, gram 2, block 1, block 2, block 4, sum × 2"
    assert f"It covers these noisy statistics: {listed}." in str(door.finish())


def test_research_mode_is_declared(session):
    statement = session("seeded").statement
    assert "RESEARCH MODE" in str(statement)
    document = statement.to_dict()
    assert document["noise"] == "seeded"
    assert document["private"] is False
    assert document["status"] == "private with cautions"
    assert document["cautions"] == [
        "the noise came from a seed, and anyone who knows it can subtract the noise"
    ]


def test_replace_one_is_said(session):
    text = str(session(neighboring="replace-one").statement)
    assert "as with another user's data in its place, and conversely" in text
    assert "without it" not in text


def test_not_private_is_said_first(session, row_sum):
    door = session()
    unsafe.reveal(door, "peek", row_sum(np.ones((3, 2))))
    statement = door.statement
    assert str(statement).startswith("NOT PRIVATE: peek released without noise")
    assert statement.to_dict()["private"] is False
    assert statement.to_dict()["status"] == "not private"
    assert json.loads(json.dumps(statement.to_dict(), allow_nan=False))["epsilon"] == "Infinity"


def test_inferred_assumptions_come_with_a_caution(session):
    door = session()
    assert (door.statement.private, door.statement.status, door.statement.cautions) == (
        True,
        "private",
        (),
    )
    door.record_assumption("range", "ratings between 1 and 5", inferred=True)
    statement = door.statement
    assert "CAUTION" in str(statement)
    assert statement.finite
    assert not statement.private
    assert statement.cautions == (
        "ratings between 1 and 5: read from the data instead of a public source",
    )
    document = statement.to_dict()
    assert document["private"] is False
    assert document["status"] == "private with cautions"
    assert document["cautions"] == list(statement.cautions)


def test_json_has_everything(session):
    statement = session().statement
    document = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert document["epsilon"] == statement.epsilon <= 1.5
    assert document["text"] == str(statement)
    assert document["unit"] == "user"
    assert document["releases"] == 3
    assert statement.mu == statement.ledger.price().mu
    assert "entries" not in repr(statement)


@pytest.mark.parametrize(
    ("accountant", "shown"), [("gdp", True), ("pure", False), ("pld", False), ("rdp", False)]
)
def test_mu_is_shown_where_it_is_the_parameter_of_gaussian_privacy(row_sum, accountant, shown):
    plan = Plan.calibrate([Release("sum", mechanism="laplace")], Budget(1.5, 1e-6), accountant)
    door = Session(plan, "seeded", 0)
    door.release("sum", row_sum(np.ones((3, 2))))
    statement = door.finish()
    assert ("μ = " in str(statement)) is shown
    assert (statement.mu is not None) is shown
    gaussian = Plan.calibrate(
        [Release("sum")], Budget(1.5, 1e-6), "gdp" if accountant == "pure" else accountant
    )
    assert gaussian.mu == pytest.approx(1 / gaussian.noise_multiplier("sum"))


@pytest.mark.parametrize(("epsilon", "weak"), [(1.5, False), (20.0, False), (21.0, True)])
def test_a_large_epsilon_is_called_weak(row_sum, epsilon, weak):
    door = Session(Plan.calibrate([Release("sum")], Budget(epsilon, 1e-6)), "seeded", 0)
    door.release("sum", row_sum(np.ones((3, 2))))
    text = str(door.finish())
    assert ("An ε above 20 is WEAK" in text) is weak
    assert "almost as likely" not in text


@pytest.mark.parametrize(
    ("epsilon", "strength"),
    [
        (0.5, "very strong"),
        (1, "strong"),
        (2, "good"),
        (5, "moderate"),
        (10, "weak"),
        (20, "formal only"),
        (21, "no meaningful protection"),
    ],
)
def test_the_strength_is_that_of_the_documented_table(row_sum, epsilon, strength):
    session = Session(Plan.calibrate([Release("sum")], Budget(epsilon, 1e-6)), "seeded", 0)
    session.release("sum", row_sum(np.ones((3, 2))))
    statement = session.finish()
    assert statement.strength == strength
    assert f"({strength})" in str(statement)
    assert f"({strength})" in dict(statement.lines())["Guarantee"]
    if epsilon <= 20:
        table = Path(__file__).parents[3].joinpath("docs/choose-epsilon.md").read_text("utf-8")
        (row,) = (line for line in table.splitlines() if line.startswith(f"| {epsilon} |"))
        assert row.endswith(f"| {strength} |")


def test_a_large_delta_is_called_weak(row_sum):
    door = Session(
        Plan.calibrate([Release("sum")], Budget(1.0, 0.01, allow_large_delta=True)), "seeded", 0
    )
    door.release("sum", row_sum(np.ones((3, 2))))
    assert "CAUTION, δ is large: a δ above 0.001 was allowed explicitly." in str(door.finish())
    assert not door.statement.private
    assert Ledger.from_dict(door.ledger.to_dict()).plan == door.plan


@pytest.mark.parametrize(("people", "warned"), [(1e6 - 1, False), (1.2e6, True)])
def test_a_delta_above_one_over_the_released_number_of_users_is_a_caution(
    session, caplog, people, warned
):
    door = session()
    door.warn_if_delta_large(people)
    assert ("released as about 1,200,000" in caplog.text) is warned
    assert (
        "δ is large: δ = 1e-06 is above one over the number of users" in str(door.statement)
    ) is warned
    assert bool(door.statement.cautions) is warned
    assert "Assumed public: the list of items." in str(door.statement)
    assert Ledger.from_dict(door.ledger.to_dict()).assumptions == door.ledger.assumptions


@pytest.mark.parametrize(("epsilon", "weak"), [(20.0, False), (21.0, True), (500.0, True)])
def test_a_large_epsilon_is_not_called_private(row_sum, epsilon, weak):
    door = Session(Plan.calibrate([Release("sum")], Budget(epsilon, 1e-6)), "secure")
    door.release("sum", row_sum(np.ones((3, 2))))
    statement = door.finish()
    assert statement.finite
    assert statement.weak is weak
    assert statement.private is not weak
    assert statement.status == ("no meaningful protection" if weak else "private")
    assert statement.cautions == (
        ("ε is above 20, which is no meaningful protection",) if weak else ()
    )
    assert statement.to_dict()["status"] == statement.status


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (1e-4, "1.0001"),
        (1e-5, "1.00001"),
        (0.01, "1.0101"),
        (0.05, "1.0513"),
        (1.0, "2.72"),
        (0.0, "1"),
        (1e-12, "1 + 1e-12"),
    ],
)
def test_a_small_epsilon_shows_what_exceeds_one(epsilon, shown):
    assert describe_factor(epsilon) == shown
