"""One door: charge, then look, then add noise."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from discreet.errors import BudgetExceeded, ConfigError, PlanMismatch, PrivacyError
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.noise import sources as noise
from discreet.privacy.noise.sources import SecureNoise, SeededNoise
from discreet.privacy.release import unsafe
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.unsafe import NoNoise


def plan_of(*releases, epsilon=1.0, delta=1e-6, neighboring="add-remove"):
    return Plan.calibrate(releases, Budget(epsilon, delta, neighboring))


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((50, 4, 6))


@pytest.mark.parametrize("grade", ["secure", "seeded"])
def test_a_release_is_the_statistic_plus_noise_of_the_planned_size(row_sum, grade):
    data = np.random.default_rng(1).standard_normal((3, 400, 50))
    statistic = row_sum(data, bound=2.0)
    session = Session(plan_of(Release("sum")), grade, random_state=7 if grade == "seeded" else None)
    noisy = session.release("sum", statistic)
    expected = session.plan.noise_multiplier("sum") * 2.0
    error = noisy - row_sum(data, bound=2.0)._rows._content().sum(axis=0)
    # chi-square on the variance, and the shape of the distribution
    assert stats.chi2.cdf((error**2).sum() / expected**2, error.size) == pytest.approx(
        0.5, abs=0.4999995
    )
    assert stats.kstest(error.ravel() / expected, "norm").pvalue > 1e-6


def test_the_ledger_is_written_before_the_data_are_opened(row_sum, rows):
    session = Session(plan_of(Release("sum")))
    seen = []

    class Watched(row_sum):
        def compute(self, key, **options):
            seen.append(len(session.ledger.entries))
            return super().compute(key, **options)

    session.release("sum", Watched(rows))
    assert seen == [1]


def test_an_entry_says_everything(row_sum, rows):
    session = Session(
        plan_of(Release("sum", 2), Release("gram", 1, 3.0), neighboring="replace-one")
    )
    session.release("gram", row_sum(rows, bound=5.0))
    (entry,) = session.ledger.entries
    assert entry.name == "gram"
    assert entry.mechanism == "gaussian"
    assert entry.sensitivity == 10.0
    assert entry.noise_multiplier == session.plan.noise_multiplier("gram")
    assert entry.shape == (4, 6)
    assert entry.where.startswith("test_session.py:")
    assert "/" not in entry.where


def test_unplanned_repeated_and_reshaped_releases_are_refused_unopened(row_sum, rows):
    session = Session(plan_of(Release("sum", 2), Release("gram", shape=(9,))))
    statistic = row_sum(rows)
    with pytest.raises(PlanMismatch, match="no release named 'other'"):
        session.release("other", statistic)
    with pytest.raises(PlanMismatch, match="shape"):
        session.release("gram", statistic)
    assert statistic.opened == 0
    session.release("sum", statistic)
    with pytest.raises(PlanMismatch, match="shape"):
        session.release("sum", row_sum(rows[:, :2]))
    session.release("sum", statistic)
    with pytest.raises(PlanMismatch, match="2 times"):
        session.release("sum", statistic)
    assert statistic.opened == 2
    assert len(session.ledger.entries) == 2


def test_finish_wants_the_whole_plan(row_sum, rows):
    session = Session(plan_of(Release("sum", 2)))
    session.release("sum", row_sum(rows))
    with pytest.raises(PlanMismatch, match=r"missing: \{'sum': 1\}"):
        session.finish()
    session.release("sum", row_sum(rows))
    statement = session.finish()
    assert statement.epsilon <= 1.0
    assert statement.epsilon == pytest.approx(1.0, rel=1e-9)
    assert statement.delta == 1e-6


def test_fewer_releases_cost_less(row_sum, rows):
    session = Session(plan_of(Release("sum", 4)))
    session.release("sum", row_sum(rows))
    assert session.statement.epsilon < 0.6


@pytest.mark.parametrize("grade", ["secure", "seeded"])
def test_blocks_are_one_release(row_sum, grade):
    data = np.random.default_rng(2).standard_normal((5, 1000, 7))
    statistic = row_sum(data, weights=np.linspace(1, 3, 7))
    session = Session(plan_of(Release("sum")), grade)
    blocks = session.release_blocks("sum", statistic, rows=130)
    assert len(session.ledger.entries) == 1  # charged at once, although no block was taken
    assert statistic.opened == 0
    parts = list(blocks)
    assert [part for part, _ in parts][-1] == slice(910, 1000)
    together = np.concatenate([block for _, block in parts])
    assert together.shape == (1000, 7)
    error = together - statistic._rows._content().sum(axis=0)
    expected = session.plan.noise_multiplier("sum") / np.linspace(1, 3, 7)
    assert error.std(axis=0) == pytest.approx(expected, rel=0.15)
    assert statistic.opened == 8
    with pytest.raises(PlanMismatch):
        session.release_blocks("sum", statistic)


def test_secure_results_are_multiples_of_a_grid_and_seeded_ones_are_not(row_sum, rows):
    statistic = row_sum(rows)
    secure = Session(plan_of(Release("sum"))).release("sum", statistic)
    seeded = Session(plan_of(Release("sum")), "seeded", 1).release("sum", statistic)
    assert np.array_equal(secure * 2.0**40, np.rint(secure * 2.0**40))
    assert not np.array_equal(seeded * 2.0**40, np.rint(seeded * 2.0**40))


def test_the_exact_part_does_not_depend_on_the_order_of_users(row_sum, monkeypatch):
    rows = np.random.default_rng(3).standard_normal((2000, 5))
    monkeypatch.setattr(
        SecureNoise, "add", lambda self, values, mechanism, weights, grid: values * grid
    )
    released = [
        Session(plan_of(Release("s"))).release(
            "s", row_sum(rows[np.random.default_rng(i).permutation(2000)])
        )
        for i in range(3)
    ]
    assert np.array_equal(released[0], released[1])
    assert np.array_equal(released[0], released[2])


def test_seeded_noise_repeats_and_secure_noise_refuses_a_seed(row_sum, rows):
    first, second = (
        Session(plan_of(Release("s")), "seeded", 0).release("s", row_sum(rows)) for _ in range(2)
    )
    assert np.array_equal(first, second)
    with pytest.raises(ConfigError, match="no seed"):
        Session(plan_of(Release("s")), random_state=0)
    with pytest.raises(ConfigError, match="'safe'"):
        Session(plan_of(Release("s")), noise="safe")


def test_noise_is_graded_by_its_type_not_by_its_word(row_sum, rows):
    class Pretender(SeededNoise):
        grade = "secure"

    session = Session(plan_of(Release("s")), Pretender(0))
    session.release("s", row_sum(rows))
    assert session.statement.epsilon == math.inf
    assert Session(plan_of(Release("s")), SeededNoise(0)).statement.noise == "seeded"
    assert Session(plan_of(Release("s")), SecureNoise()).statement.noise == "secure"


def test_no_noise_is_exact_and_promises_nothing(row_sum, rows):
    session = Session(plan_of(Release("s")), NoNoise())
    assert np.array_equal(
        session.release("s", row_sum(rows)), row_sum(rows)._rows._content().sum(axis=0)
    )
    assert session.statement.epsilon == math.inf


def test_reveal_is_recorded_first_and_makes_epsilon_infinite(row_sum, rows):
    session = Session(plan_of(Release("s")))
    session.release("s", row_sum(rows))
    assert session.statement.private
    exact = unsafe.reveal(session, "peek", row_sum(rows))
    assert np.array_equal(exact, row_sum(rows)._rows._content().sum(axis=0))
    assert session.statement.epsilon == math.inf
    assert session.ledger.entries[-1].unsafe
    assert session.ledger.entries[-1].where.startswith("test_session.py:")
    assert "NOT PRIVATE" in str(session.statement)


def test_errors_from_private_data_do_not_speak(row_sum, rows):
    class Broken(row_sum):
        def compute(self, key, **options):
            raise ValueError("user 4711 rated 5.0")

    session = Session(plan_of(Release("s")))
    with pytest.raises(PrivacyError) as caught:
        session.release("s", Broken(rows))
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(session.ledger.entries) == 1  # it was charged all the same


def test_results_of_another_shape_are_withheld(row_sum, rows):
    class Liar(row_sum):
        def compute(self, key, **options):
            return super().compute(key, **options)[:1]

    with pytest.raises(PlanMismatch, match="computed as"):
        Session(plan_of(Release("s"))).release("s", Liar(rows))


@pytest.mark.parametrize("bound", [0.0, math.inf, math.nan, -1.0])
def test_a_sensitivity_that_is_no_bound_is_refused(row_sum, rows, bound):
    statistic = row_sum(rows)
    statistic.bound = bound
    session = Session(plan_of(Release("s")))
    with pytest.raises(PrivacyError, match="sensitivity"):
        session.release("s", statistic)
    assert statistic.opened == 0


def test_laplace_and_huber_use_the_l1_sensitivity(row_sum):
    data = np.zeros((2, 3000, 4))
    for line in (Release("s", mechanism="laplace"), Release("s", mechanism="huber", alpha=0.9)):
        for grade in ("secure", "seeded"):
            session = Session(plan_of(line, delta=0.0), grade)
            statistic = row_sum(data)
            noisy = session.release("s", statistic)
            assert session.ledger.entries[0].norm == "l1"
            assert session.ledger.entries[0].sensitivity == statistic.sensitivity(
                "add-remove", "l1"
            )
            expected = session.plan.noise_multiplier("s") * session.ledger.entries[0].sensitivity
            assert noisy.std() == pytest.approx(expected, rel=0.1)


def test_huber_with_both_norms_is_checked(row_sum):
    data = np.zeros((2, 8, 8))
    honest, lie = (
        Release("s", mechanism="huber", alpha=0.9, l2_ratio=ratio) for ratio in (0.125, 0.1)
    )
    Session(plan_of(honest)).release("s", row_sum(data))
    with pytest.raises(PlanMismatch, match="l2_ratio"):
        Session(plan_of(lie)).release("s", row_sum(data))


def test_an_overspent_plan_opens_no_session():
    plan = plan_of(Release("s"))
    cheaper = Plan(plan.releases, plan.budget, plan.accountant, plan.scale / 2)
    with pytest.raises(BudgetExceeded):
        Session(cheaper)


def test_a_session_cannot_be_copied(row_sum):
    session = Session(plan_of(Release("s")))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError):
            attempt(session)


def test_draws_are_charged_to_delta(row_sum, rows):
    session = Session(plan_of(Release("s")))
    session.release("s", row_sum(rows))
    assert session.ledger.noise_delta == noise.delta_of(24)
    assert session.statement.delta == 1e-6


def test_inferred_assumptions_are_warned_about(row_sum, caplog):
    session = Session(plan_of(Release("s")))
    session.record_assumption("catalog", "the items")
    assert not caplog.records
    session.record_assumption("range", "ratings from 1 to 5", inferred=True)
    assert "from the data" in caplog.text
    assert [a.inferred for a in session.ledger.assumptions] == [False, True]


def test_dtype_of_results(row_sum, rows):
    session = Session(plan_of(Release("s", 2)))
    assert session.release("s", row_sum(rows)).dtype == np.float64
    assert session.release("s", row_sum(rows), dtype=np.float32).dtype == np.float32


def test_importing_the_session_is_light():
    """Neither numba nor dp-accounting is imported before it is needed."""
    code = (
        "import sys, discreet.privacy.release.session; "
        "print([m for m in ('numba', 'dp_accounting') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_joint_releases_are_charged_before_any_is_opened(row_sum, rows):
    session = Session(plan_of(Release("a"), Release("b")))
    good, bad = row_sum(rows), row_sum(rows)

    def broken(key, *, grid=None, rows=None):
        raise ValueError("somebody")

    good.compute = broken
    with pytest.raises(PrivacyError, match="'a' could not be computed"):
        session.release_together([("a", good), ("b", bad)])
    assert [entry.name for entry in session.ledger.entries] == ["a", "b"]
    assert bad.opened == 0
    both = Session(plan_of(Release("a"), Release("b"))).release_together(
        [("a", row_sum(rows)), ("b", row_sum(rows))]
    )
    assert [one.shape for one in both] == [rows.shape[1:]] * 2
    assert not np.array_equal(*both)


def test_a_prepared_release_is_taken_once(row_sum, rows):
    session = Session(plan_of(Release("a")))
    (prepared,) = session.prepare([("a", row_sum(rows))])
    prepared.whole()
    with pytest.raises(PlanMismatch, match="was already taken"):
        prepared.blocks()


def test_a_release_is_made_as_a_whole_or_as_all_of_its_parts(row_sum, rows):
    parts = (("first", 0.25), ("second", 0.75))
    plan = Plan.from_shares([Release("rest", parts=parts)], Budget(1.0, 1e-6))
    whole = Session(plan)
    whole.release("rest", row_sum(rows))
    for name in ("first", "second", "rest"):
        with pytest.raises(PlanMismatch, match="all been made"):
            whole.release(name, row_sum(rows))
    assert whole.finish().epsilon <= 1.0 + 1e-9
    divided = Session(plan)
    divided.release("second", row_sum(rows))
    with pytest.raises(PlanMismatch, match="all been made"):
        divided.release("rest", row_sum(rows))
    with pytest.raises(PlanMismatch, match="missing"):
        divided.finish()
    divided.release("first", row_sum(rows[:, :2]))  # shapes are decided on the way
    with pytest.raises(PlanMismatch, match="all been made"):
        divided.release("second", row_sum(rows))
    assert len(divided.ledger.entries) == 2
    assert divided.finish().epsilon == pytest.approx(whole.statement.epsilon, rel=1e-9)
