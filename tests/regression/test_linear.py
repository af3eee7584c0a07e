"""Private regression: least squares without noise, intervals that cover, one ledger, an audit."""

import math
from decimal import Decimal

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from discreet.auditing.conformance.recorder import Recorder
from discreet.auditing.neighboring_runs import claim_of, moves, privacy_loss, reach
from discreet.errors import BudgetExceeded, ConfigError, DataError
from discreet.privacy.accounting import gdp
from discreet.privacy.release.budget_store import BudgetStore
from discreet.regression import DPRegression
from discreet.regression.linear import _as_table, _group_ids


def task(n, p, m, seed, spread=0.3):
    """Features of norm about 1, targets of norm about 1, and the coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) / math.sqrt(p)
    W = rng.standard_normal((p, m)) / math.sqrt(m)
    Y = X @ W + spread / math.sqrt(m) * rng.standard_normal((n, m))
    return X, Y, W.T


def seeded(epsilon=5.0, seed=0, **given):
    given = {"feature_norm": 3.0, "target_norm": 3.0, "fit_intercept": False} | given
    return DPRegression(epsilon, noise="seeded", random_state=seed, **given)


def test_next_to_no_noise_is_least_squares():
    X, Y, _ = task(3000, 6, 4, 1)
    found = seeded(1e8, feature_norm=5.0, target_norm=5.0, fit_intercept=True).fit(X, Y + 0.5)
    ones = np.hstack([X, np.ones((len(X), 1))])
    best = np.linalg.lstsq(ones, Y + 0.5, rcond=None)[0]
    np.testing.assert_allclose(found.coef_, best[:-1].T, atol=2e-3)
    np.testing.assert_allclose(found.intercept_, best[-1], atol=2e-3)
    np.testing.assert_allclose(found.residual_std_, 0.15, rtol=0.03)
    assert found.n_rows_ == pytest.approx(3000, rel=1e-3)


def test_all_noise_predicts_next_to_nothing():
    X, Y, W = task(200, 6, 4, 2)
    found = seeded(0.05).fit(X, Y)
    assert np.abs(found.coef_).max() < np.abs(W).max()
    low, high = found.coef_interval(0.99)
    assert ((low < W) & (high > W)).mean() > 0.9


def test_errors_fall_with_the_budget_and_with_users():
    risks = {}
    for n, epsilon in [(1000, 0.5), (1000, 5.0), (20_000, 0.5), (20_000, 5.0)]:
        X, Y, W = task(n, 8, 4, 3)
        found = [seeded(epsilon, seed).fit(X, Y).coef_ for seed in range(5)]
        risks[n, epsilon] = np.mean([((X @ (W - one).T) ** 2).mean() for one in found])
    assert risks[1000, 5.0] < risks[1000, 0.5] / 3
    assert risks[20_000, 0.5] < risks[1000, 0.5] / 10
    assert risks[20_000, 5.0] < risks[20_000, 0.5] / 3


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_intervals_cover_as_often_as_they_say(epsilon):
    """95 % or a little more of 30 × 32 coefficients and predictions, over noise, rows and
    coefficients; more where noise hides how large coefficients are.
    """
    inside, seen, new = [], [], []
    for seed in range(30):
        X, Y, W = task(4000, 8, 4, seed)
        found = seeded(epsilon, seed).fit(X, Y)
        low, high = found.coef_interval()
        inside.append(((low <= W) & (high >= W)).mean())
        low, high = found.predict_interval(X[:200])
        seen.append(((low <= X[:200] @ W.T) & (X[:200] @ W.T <= high)).mean())
        low, high = found.predict_interval(X[:200], observation=True)
        new.append(((low <= Y[:200]) & (Y[:200] <= high)).mean())
    assert 0.94 < np.mean(inside) < 0.995
    assert 0.94 < np.mean(seen) < 0.995
    assert np.mean(new) > 0.94


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize(("p", "n"), [(8, 1000), (16, 2000), (32, 4000)])
@pytest.mark.parametrize("kind", ["one", "equal", "one of four targets"])
def test_intervals_cover_one_large_coefficient_among_zeros(p, n, kind, epsilon):
    """Of 60 trials at least 52 cover the first coefficient, and 93 % of all are covered."""
    first, inside = 0, []
    m = 4 if "four" in kind else 1
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, p))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        W = np.zeros((m, p))
        W[0] = 1 / math.sqrt(p) if kind == "equal" else np.eye(p)[0]
        Y = X @ W.T + rng.uniform(-0.2, 0.2, (n, m))
        found = seeded(epsilon, seed, feature_norm=1.0, target_norm=1.5).fit(X, Y)
        low, high = found.coef_interval()
        covered = (low <= W) & (high >= W)
        first += covered[0, 0]
        inside.append(covered.mean())
    assert first >= 52
    assert np.mean(inside) > 0.93


@pytest.mark.parametrize(("epsilon", "n", "most"), [(10.0, 4000, 1.1), (1.0, 1000, 4.0)])
def test_intervals_are_wider_than_the_posterior_only_where_noise_hides(epsilon, n, most):
    """√8 times as wide, and more for the search of lengths, where all directions are hidden."""
    ratios = []
    for seed in range(10):
        found = seeded(epsilon, seed).fit(*task(n, 8, 4, seed)[:2])
        low, high = found.coef_interval()
        spread = found._posterior.variances(np.eye(8)).T
        ratios.append((high - low) / (2 * 1.96 * np.sqrt(spread)))
    assert 0.8 < np.mean(ratios) < most


def test_users_with_many_rows_count_as_max_rows():
    X, Y, _ = task(500, 4, 2, 5)
    users = np.repeat(np.arange(50), 10)
    found = seeded(1e8, max_rows=3).fit(X, Y, users)
    assert found.n_rows_ == pytest.approx(150, rel=1e-3)
    order = np.random.default_rng(0).permutation(500)
    other = seeded(1e8, max_rows=3).fit(X[order], Y[order], users[order])
    np.testing.assert_allclose(found.coef_, other.coef_, rtol=1e-9)


def test_one_gram_matrix_serves_all_targets():
    """Its share of the budget falls with the number of targets as theory says; costs do not."""
    for m in (1, 100):
        plan = seeded(2.0).plan(9, m)
        share = {row["name"]: row["share"] for row in plan.rows()}
        assert share["feature gram"] / share["cross products"] == pytest.approx(3 / math.sqrt(m))
        assert plan.epsilon() == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("neighboring", ["add-remove", "replace-one"])
def test_the_statement_is_the_budget_and_lists_three_releases(neighboring):
    X, Y, _ = task(300, 3, 2, 6)
    found = DPRegression(1.5, 2.0, 2.0, neighboring=neighboring).fit(X, Y)
    assert found.privacy_.epsilon == pytest.approx(1.5, rel=1e-3)
    assert found.privacy_.neighboring == neighboring
    names = [entry.name for entry in found.privacy_.ledger.entries]
    assert names == ["feature gram", "cross products", "row moments"]
    assert "features are cut to the norm 2" in str(found.privacy_)


def test_an_account_is_charged_and_refuses_what_is_too_much(tmp_path):
    X, Y, _ = task(300, 3, 2, 7)
    account = BudgetStore(tmp_path / "people.sqlite").open("customers", epsilon=2.0, delta=1e-5)
    DPRegression(1.5, 2.0, 2.0).fit(X, Y, account=account)
    with pytest.raises(BudgetExceeded):
        DPRegression(1.9, 2.0, 2.0).fit(X, Y, account=account)


# ------------------------------------------------------------ the transcript audit


def canaries(p, m):
    """Rows of one user: long, opposite, many, none, no numbers."""
    far = np.full((1, p + m), 1e9)
    one = np.zeros((1, p + m))
    one[0, 0] = one[0, p] = 1e9
    return [
        far,
        one,
        np.repeat(one, 7, axis=0),
        np.where(np.arange(p + m) < p, one, -one),
        np.full((2, p + m), math.nan),
        np.zeros((1, p + m)),
    ]


@pytest.mark.parametrize("intercept", [False, True])
def test_audit_by_transcript(intercept):
    """With the same releases, no user loses more than the claim, one loses nearly all of it, and
    nothing else changes.
    """
    p, m = 3, 2
    X, Y, _ = task(60, p, m, 8)
    users = np.repeat(np.arange(30), 2)

    def fit(rows, replay=None):
        model = DPRegression(2.0, 1.0, 1.0, max_rows=2, fit_intercept=intercept)
        with Recorder(replay) as watch:
            model.fit(
                np.vstack([X, rows[:, :p]]),
                np.vstack([Y, rows[:, p:]]),
                np.concatenate([users, np.full(len(rows), 99)]),
            )
        return model, watch

    model, first = fit(np.zeros((0, p + m)))
    claim = claim_of(model)
    assert claim.mu == pytest.approx(gdp.mu(2.0, claim.delta), rel=1e-3)
    found = []
    for rows in canaries(p, m):
        other, watch = fit(rows, first)
        shifts = moves(first, watch)
        assert privacy_loss(shifts, claim) <= claim.epsilon * (1 + 1e-6)
        found.append(reach(shifts))
        assert np.array_equal(model.coef_, other.coef_)
        assert model.n_rows_ == other.n_rows_
        assert str(model.privacy_) == str(other.privacy_)
    assert 0.99 < max(found) <= 1 + 1e-6
    assert first.stray == 0, "a sum was computed outside of a release"


# ------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "given",
    [
        dict(feature_norm=-1.0),
        dict(target_norm=math.nan),
        dict(max_rows=0),
        dict(max_rows=2.5),
        dict(fit_intercept="yes"),
        dict(epsilon=0.0),
    ],
)
def test_parameters_are_checked_before_data_are_read(given):
    model = DPRegression(**(dict(epsilon=1.0, feature_norm=1.0, target_norm=1.0) | given))
    with pytest.raises(ConfigError) as error:
        model.fit([[1.0]], [[1.0]])
    assert next(iter(given)) in str(error.value)
    assert not hasattr(model, "privacy_")


def test_errors_name_no_value():
    model = DPRegression(1.0, 1.0, 1.0)
    with pytest.raises(DataError, match="X has entries that are not numbers") as error:
        model.fit([["secret"]], [[1.0]])
    assert "secret" not in str(error.value)
    with pytest.raises(DataError, match="differ in length"):
        model.fit([[1.0], [2.0]], [[1.0]])
    with pytest.raises(DataError, match="3 dimensions"):
        model.fit(np.zeros((1, 1, 1)), [[1.0]])
    with pytest.raises(ConfigError, match="not fitted yet"):
        model.predict([[1.0]])
    with pytest.raises(ConfigError, match="confidence is 95"):
        seeded().fit([[1.0]], [1.0]).coef_interval(95)


def test_errors_say_what_to_do():
    fitted = seeded().fit([[1.0, 2.0]] * 3, [1.0] * 3)
    with pytest.raises(DataError, match="X has 3 columns, but the regression has 2 features"):
        fitted.predict([[1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match="X has 1 columns"):
        fitted.predict_interval([1.0, 2.0])
    with pytest.raises(ConfigError, match="confidence is 'high'"):
        fitted.coef_interval("high")
    for users in ([None] * 3, ["a", None, "b"], [1.0, math.nan, 2.0]):
        with pytest.raises(DataError, match="users has missing ids"):
            seeded().fit([[1.0]] * 3, [1.0] * 3, users)
    for users in (5, "abc", [[1], [2], [3]]):
        with pytest.raises(DataError, match="one user id per row"):
            seeded().fit([[1.0]] * 3, [1.0] * 3, users)
    with pytest.raises(DataError, match=r"Pass X.toarray\(\)"):
        seeded().fit(csr_matrix(np.eye(3)), [1.0] * 3)
    with pytest.raises(DataError, match="not numbers"):
        seeded().fit([[1j]] * 3, [1.0] * 3)
    with pytest.raises(ConfigError, match="needs a seed"):
        DPRegression(1.0, 1.0, 1.0, noise="seeded").fit([[1.0]], [1.0])
    with pytest.raises(ConfigError, match="noise is None"):
        DPRegression(1.0, 1.0, 1.0, noise=None).fit([[1.0]], [1.0])


BIG = [2**60 + i for i in range(20)]
SMALL = [*range(10), "007", "anna", 0.25, -3, (1, 2)]
#: Ids of one more user that no other user's group may depend on.
STRANGE = [
    0.5,
    "abc",
    2**63,
    -(2**63) - 1,
    2**200,
    1e300,
    math.inf,
    b"abc",
    b"",
    (0, "x"),
    np.float32(0.1),
    np.str_("q"),
    np.datetime64("2020-01-01"),
    Decimal("0.1"),
]


@pytest.mark.parametrize("extra", STRANGE, ids=repr)
@pytest.mark.parametrize("others", [BIG, SMALL, list(map(str, BIG))], ids=["big", "small", "text"])
def test_no_id_changes_the_groups_of_other_users(others, extra):
    """Groups of others are the same to the last, and one user moves a sum by its sensitivity."""
    ids = [one for one in others for _ in range(2)]
    alone = _group_ids(ids)
    joined = _group_ids([*ids, extra, extra])
    assert len(set(alone)) == len(others)
    assert np.array_equal(alone[:, None] == alone, joined[:-2, None] == joined[:-2])
    assert joined[-1] == joined[-2]
    assert joined[-1] not in joined[:-2]

    def fit(rows, whose, replay=None):
        model = DPRegression(1.0, 1.0, 1.0, max_rows=1, fit_intercept=False)
        with Recorder(replay) as watch:
            model.fit(rows[:, :2], rows[:, 2:], whose)
        return model, watch

    rows = np.random.default_rng(0).uniform(-1, 1, (len(ids) + 2, 3))
    rows[-2:] = 1e9
    model, first = fit(rows[:-2], ids)
    _, second = fit(rows, [*ids, extra, extra], first)
    assert 0.9 < reach(moves(first, second)) <= 1 + 1e-6
    assert privacy_loss(moves(first, second), claim_of(model)) <= 1.0 + 1e-6


def test_spellings_of_one_id_are_one_user():
    assert len(set(_group_ids([7, 7.0, "7", "7.0", np.int64(7), np.float32(7), " 7"]))) == 1
    assert len(set(_group_ids([7, "007", "+7", 7.5, "7.5", b"7"]))) == 6


@pytest.mark.parametrize(
    "one", [None, math.nan, np.float32("nan"), "", "nan", Decimal("NaN"), np.datetime64("NaT")]
)
def test_a_missing_id_is_refused_in_one_sentence_wherever_it_is(one):
    for ids in ([1, one, 3], ["a", one, "b"], [0.5, "b", one]):
        with pytest.raises(DataError, match="users has missing ids"):
            seeded().fit([[1.0]] * 3, [1.0] * 3, ids)


def test_ids_that_a_common_type_has_rounded_are_refused():
    """`pandas.read_csv` makes such a column of whole numbers if one user has the id 0.5."""
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    ids = [2.0**60, 0.5, 3.0]
    for users in (np.array(ids), pandas.Series(ids), arrow.array(ids)):
        with pytest.raises(DataError, match="users may have been merged"):
            seeded().fit([[1.0]] * 3, [1.0] * 3, users)
    for users in (pandas.Series([2.0**52, 0.5, 3.0]), arrow.array(["a", "b", "a"])):
        seeded().fit([[1.0]] * 3, [1.0] * 3, users)


def test_no_number_changes_how_others_are_rounded():
    """numpy's common type would write float32 as text next to text."""
    number = np.float32(0.1)
    assert _as_table("X", [[number], ["1"]])[0, 0] == float(number)
    assert _as_table("X", [[2**53 + 1], [2**70]])[0, 0] == float(2**53 + 1)


def test_without_users_the_statement_says_that_rows_are_users():
    X, Y, _ = task(50, 2, 1, 3)
    text = "every row is a user of its own"
    assert text in str(DPRegression(1.0, 1.0, 1.0).fit(X, Y).privacy_)
    assert text not in str(DPRegression(1.0, 1.0, 1.0).fit(X, Y, np.arange(50)).privacy_)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars"])
def test_names_of_columns_are_kept_and_compared(kind):
    frames = pytest.importorskip(kind)
    make = frames.table if kind == "pyarrow" else frames.DataFrame
    X, Y, _ = task(50, 2, 1, 3)
    fitted = seeded().fit(make({"age": X[:, 0], "size": X[:, 1]}), Y)
    assert fitted.feature_names_in_ == ("age", "size")
    same = fitted.predict(make({"age": X[:, 0], "size": X[:, 1]}))
    assert np.array_equal(same, fitted.predict(X))
    for names in (("size", "age"), ("age", "weight")):
        other = make(dict(zip(names, X.T, strict=True)))
        for ask in (fitted.predict, fitted.predict_interval):
            with pytest.raises(DataError, match="other columns than at fit, or in another order"):
                ask(other)
    assert seeded().fit(X, Y).feature_names_in_ is None


def test_targets_of_one_dimension_have_predictions_of_one():
    X, Y, _ = task(50, 3, 1, 3)
    flat = seeded().fit(X, Y[:, 0])
    square = seeded().fit(X, Y)
    assert flat.predict(X).shape == (50,)
    assert square.predict(X).shape == (50, 1)
    assert [one.shape for one in flat.predict_interval(X, observation=True)] == [(50,)] * 2
    assert flat.coef_.shape == square.coef_.shape == (1, 3)
    assert np.array_equal(flat.predict(X), square.predict(X)[:, 0])


def test_missing_numbers_count_as_zero_and_ids_may_be_of_any_kind():
    X, Y, _ = task(30, 2, 1, 9)
    X[3, 0] = math.nan
    Y[4, 0] = math.inf
    found = seeded(1e8, max_rows=np.int64(2)).fit(X, Y, ["a", 1, "b"] * 10)
    X[3, 0] = Y[4, 0] = 0.0
    other = seeded(1e8, max_rows=2).fit(X, Y, [0, 1, 2] * 10)
    np.testing.assert_allclose(found.coef_, other.coef_, atol=1e-6)


def test_no_users_at_all_give_a_model():
    """An exact edge at no users would reveal that there are none."""
    found = DPRegression(1.0, 1.0, 1.0).fit(np.zeros((0, 2)), np.zeros((0, 1)))
    assert np.isfinite(found.coef_).all()


def test_the_example_runs(capsys):
    import runpy
    from pathlib import Path

    script = Path(__file__).parents[2] / "examples" / "private_regression.py"
    runpy.run_path(str(script))["main"](users=2000)
    told = capsys.readouterr().out
    assert "ε = 1" in told
    assert "target 1, feature 1" in told
