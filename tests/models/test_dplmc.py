"""DPLMC: without noise it completes a planted matrix; with noise it costs what the paper should
have said.
"""

import math

import numpy as np
import pytest

import discreet
from discreet.errors import ConfigError
from discreet.kernels import threads
from discreet.models.dplmc import spectral_start
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.release.session import Session
from discreet.privacy.release.unsafe import NoNoise
from discreet.testing import check_private_model, rule_names

SPECTRAL = dict(initialization="spectral")


def planted(m=400, n=40, r=3, share=0.6, seed=0):
    """A matrix of rank r with rows of at most norm 2 on both sides, and the entries that are
    known.
    """
    rng = np.random.default_rng(seed)
    U, V = rng.normal(size=(m, r)), rng.normal(size=(n, r))
    U, V = 2 * U / np.linalg.norm(U, axis=1).max(), 2 * V / np.linalg.norm(V, axis=1).max()
    X = U @ V.T
    user, item = np.nonzero(rng.random((m, n)) < share)
    ratings = discreet.Ratings.from_arrays(user, item, X[user, item], item_ids=range(n))
    return X, ratings


def open_wide(ratings, **changes):
    """Projections so wide that nothing is cut, and no noise."""
    given = dict(
        user_norm=50.0,
        item_norm=50.0,
        residual_norm=1e3,
        centering=0.0,
        rating_range=(-4.0, 4.0),
        ratings_per_item=ratings.n_ratings / ratings.n_items,
        ratings_per_user=ratings.n_ratings / ratings.n_users,
        step_size=2.0,
        iterations=40,
        noise=NoNoise(),
        epsilon=1.0,
        random_state=0,
    )
    return discreet.DPLMC.configure(factors=3, **(given | changes))


def completed(model, ratings):
    U = model.fold(ratings.indptr, ratings.indices, ratings.values)[0]
    return U.astype(float) @ model.item_factors_.T


# ---------------------------------------------------------------------- the algorithm


@pytest.mark.parametrize("initialization", ["random", "spectral"])
def test_without_noise_it_recovers_a_planted_matrix_at_a_linear_rate(initialization):
    X, ratings = planted()
    model = open_wide(ratings, iterations=250, initialization=initialization).fit(ratings)
    assert np.linalg.norm(completed(model, ratings) - X) < 1e-3 * np.linalg.norm(X)
    steps = np.log(model.details_["trace"][60:140])  # a line, in the logarithm
    slope = np.polyfit(np.arange(80), steps, 1)
    assert slope[0] < -0.02
    assert np.abs(steps - np.polyval(slope, np.arange(80))).max() < 0.5


def transcription(Y, known, V, W, T, eta, p, alpha, G):
    """Algorithm 1 in the paper's own units, X / √(mn), written down as it stands there, without
    noise.
    """
    m, n = Y.shape

    def cut(A, a):
        return A * np.minimum(1, a / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300))

    Y, V = Y / math.sqrt(m * n), V / math.sqrt(n)
    alpha_1, alpha_2 = alpha[0] / math.sqrt(m), alpha[1] / math.sqrt(n)
    U = cut(Y * math.sqrt(m * n) @ W / math.sqrt(m), alpha_1)
    steps = []
    for _ in range(T):
        E = np.where(known, U @ V.T - Y, 0)
        R = U.T @ U - V.T @ V
        new = V - eta / p * cut(E, G / math.sqrt(m * n)).T @ U + eta / 2 * V @ R
        U, V = cut(U - eta / p * E @ V - eta / 2 * U @ R, alpha_1), cut(new, alpha_2)
        steps.append(V * math.sqrt(n))
    return steps


@pytest.mark.parametrize("alpha", [(50.0, 50.0, 1e3), (0.9, 1.1, 0.8)])
def test_it_equals_a_transcription_of_the_paper_step_by_step(alpha):
    X, ratings = planted(m=200, n=20)
    Y, known = ratings.to_csr().toarray().astype(float), np.zeros(X.shape, bool)
    known[np.repeat(np.arange(200), np.diff(ratings.indptr)), ratings.indices] = True
    p, eta = known.mean(), 1.5
    V = 0.3 * np.random.default_rng(0).standard_normal((20, 3))
    expected = transcription(Y, known, V, eta / (p * 20) * V, 12, eta, p, alpha, alpha[2])
    for T in (1, 2, 5, 12):
        model = open_wide(
            ratings,
            iterations=T,
            step_size=eta,
            user_norm=alpha[0],
            item_norm=alpha[1],
            residual_norm=alpha[2],
        ).fit(ratings)
        np.testing.assert_allclose(model.item_factors_, expected[T - 1], atol=2e-5)


def test_erratum_11_a_balanced_start_is_balanced_and_comes_closer():
    X, ratings = planted(seed=3)
    Y, m, n, p = ratings.to_csr().toarray().astype(float), 400, 40, ratings.n_ratings / (400 * 40)
    apart = {}
    for balanced in (True, False):
        V, W = spectral_start(Y.T @ Y, 3, p, m, balanced=balanced)
        U = Y @ W
        # the same product either way
        np.testing.assert_allclose(U @ V.T, (Y / p) @ V @ np.linalg.pinv(V), atol=1e-8)
        apart[balanced] = np.linalg.norm(U.T @ U / m - V.T @ V / n)
    assert apart[True] < 0.05 * apart[False]
    moved = {}
    for balanced in (True, False):
        model = open_wide(
            ratings, initialization="spectral", balanced=balanced, iterations=25, step_size=1.0
        )
        moved[balanced] = np.linalg.norm(
            completed(model.fit(ratings), ratings) - X
        ) / np.linalg.norm(X)
    assert moved[True] < moved[False]


# ---------------------------------------------------------------------- the price


@pytest.mark.parametrize(
    ("relation", "expected"), [("add-remove", (2.25, 3.0)), ("replace-one", (2**0.5 * 2.25, 6.0))]
)
def test_erratum_09_sensitivities_are_tight(relation, expected):
    model = discreet.DPLMC.configure(
        factors=3, epsilon=1.0, user_norm=1.5, residual_norm=2.0, neighboring=relation
    )
    found = {row["name"]: row["sensitivity"] for row in model.price_list(30)}
    assert (found["balance"], found["gradient"]) == pytest.approx(expected)


def test_erratum_09_printed_noise_has_its_true_cost():
    T, eps, delta, omega = 20, 5.0, 1e-5, 0.3
    same = dict(
        factors=3,
        epsilon=eps,
        delta=delta,
        iterations=T,
        balance_share=omega,
        user_norm=2.0,
        item_norm=3.0,
        neighboring="replace-one",
        ratings_per_item=50.0,
        ratings_per_user=10.0,
        initialization="spectral",
        initial_epsilon=1.0,
    )
    model = discreet.DPLMC.configure(constants="printed", **same)
    rest, L = eps - 1.0, math.log(1 / delta)
    rows = {row["name"]: row["deviation"] for row in model.price_list(30)}
    assert rows["balance"] == pytest.approx(
        4 * math.sqrt(8 * T * (L + rest)) / (math.sqrt(omega) * rest)
    )
    assert rows["gradient"] == pytest.approx(
        4 * 2 * 6 * math.sqrt(T * (L + rest)) / (math.sqrt(1 - omega) * rest)
    )
    assert rows["initial"] == pytest.approx(4 * 36 * math.sqrt(L) / 1.0)
    assert model.plan(30).epsilon() < eps, "printed are larger constants than needed"
    tight = discreet.DPLMC.configure(constants="tight", **same)
    assert {row["name"]: row["deviation"] for row in tight.price_list(30)}["gradient"] < rows[
        "gradient"
    ]
    assert tight.plan(30).epsilon() == pytest.approx(eps, rel=1e-6)


def test_erratum_10_the_share_of_known_entries_is_public_or_a_release():
    _, ratings = planted(m=400)

    def lines(**given):
        return [
            line.name
            for line in discreet.DPLMC.configure(factors=3, epsilon=1.0, **given).plan(40).releases
        ]

    assert lines() == ["size", "balance", "gradient"]
    assert lines(ratings_per_item=9.0, ratings_per_user=9.0) == ["balance", "gradient"]
    released = open_wide(ratings, ratings_per_item=0.0, noise=NoNoise()).fit(ratings)
    given = open_wide(ratings).fit(ratings)
    np.testing.assert_allclose(released.item_factors_, given.item_factors_, atol=1e-3)
    assert [entry.name for entry in released.privacy_.ledger.entries].count("size") == 1
    assert "how many ratings an item and a user have" in str(given.privacy_.ledger.to_dict())


def test_the_budget_is_split_where_both_noises_together_do_least_harm():
    harm = {}
    for omega in (None, 0.05, 0.2, 0.5, 0.8):
        model = discreet.DPLMC.configure(
            factors=4, epsilon=1.0, balance_share=omega, ratings_per_user=9.0, ratings_per_item=99.0
        )
        rows = {row["name"]: row["deviation"] for row in model.price_list(30)}
        gram = (model.resolve(30).item_norm / 2) ** 2 * 30 * (4 + 1) / 2 * rows["balance"] ** 2
        harm[omega] = gram + 30 * 4 * (rows["gradient"] / 0.3) ** 2
    assert min(harm, key=harm.get) is None


def test_a_part_of_epsilon_is_set_aside_for_the_start():
    model = discreet.DPLMC.configure(
        factors=3, epsilon=5.0, delta=1e-5, initialization="spectral", initial_epsilon=1.0
    )
    event = accounting.Event("gaussian", model.plan(30).noise_multiplier("initial"))
    assert accounting.epsilon([event], 1e-5) == pytest.approx(1.0, rel=1e-3)


OPTIONS = {
    "usual": {"item_norm": 2.0},
    "spectral": {
        "initialization": "spectral",
        "centering": 3.0,
        "accountant": "rdp",
        "neighboring": "replace-one",
        "ratings_per_item": 20.0,
        "ratings_per_user": 5.0,
    },
    "printed": {
        "constants": "printed",
        "initialization": "spectral",
        "initial_epsilon": 1.0,
        "neighboring": "replace-one",
        "ratings_per_item": 20.0,
        "ratings_per_user": 5.0,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_it_keeps_every_rule(name):
    threads.set_threads(1)
    try:
        given = {
            "factors": 3,
            "epsilon": 4.0,
            "rating_range": (1.0, 5.0),
            "iterations": 3,
        } | OPTIONS[name]
        rules = [rule for rule in rule_names() if name == "usual" or rule != "re-priced"]
        report = check_private_model(
            discreet.DPLMC.configure(**given), people=4, draws=500, rules=rules
        )
    finally:
        threads.set_threads(None)
    assert [check.rule for check in report.checks if check.passed is None] == ["zero noise"]


# ---------------------------------------------------------------------- use


def test_a_fit_releases_its_plan_and_nothing_else():
    ratings = discreet.load_dataset("cinema", scale=0.02)
    model = discreet.DPLMC(2, epsilon=5.0, rating_range=(0.5, 5.0), iterations=2).fit(ratings)
    assert [e.name for e in model.privacy_.ledger.entries] == [
        "size",
        "balance",
        "gradient",
        "balance",
        "gradient",
    ]
    assert model.privacy_.epsilon == pytest.approx(5.0, rel=1e-6)
    assert model.privacy_.noise == "secure"


def test_it_comes_back_from_disk(tmp_path):
    _, ratings = planted(m=300)
    for changes in ({}, {"centering": 0.0}):
        model = discreet.DPLMC.configure(
            factors=3, epsilon=20.0, rating_range=(-4.0, 4.0), **changes
        ).fit(ratings)
        model.save(tmp_path / "model", replace=True)
        again = discreet.load(tmp_path / "model")
        assert np.array_equal(model.predict(ratings, ratings), again.predict(ratings, ratings))
        assert again.privacy_ == model.privacy_
        assert again.details_ == model.details_
        assert len(again.details_["trace"]) == 5
        assert again.counts_ is None is model.counts_


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(factors=0), "factors is 0"),
        (dict(initialization="fast"), "initialization is 'fast'"),
        (dict(balanced="yes"), "balanced is 'yes', but must be True or False"),
        (dict(momentum=0.5), "DPLMC has no parameter 'momentum'"),
        (dict(user_norm=0.0), "user_norm is 0.0"),
        (dict(balance_share=1.0), "balance_share is 1.0"),
        (dict(constants="printed"), "needs ratings_per_item"),
        (dict(initial_epsilon=2.0), "initial_epsilon is 2.0"),
        (dict(rating_range=(5, 1)), "rating_range"),
        (dict(shares={"gradient": 0.0}), "shares has 0.0 for 'gradient'"),
        (dict(shares={"gradient": "much"}), "shares has 'much' for 'gradient'"),
        (
            dict(shares={"bogus": 0.5}),
            "shares names 'bogus', but the releases are size, balance, gradient",
        ),
        (dict(shares=0.5), "shares is 0.5, but must be a mapping"),
        (dict(step_size=math.inf), "step_size is inf, but must be a finite number"),
        (dict(user_norm=math.inf), "user_norm is inf, but must be a finite number"),
        (dict(user_norm="a"), "user_norm is 'a', but must be a number"),
        (dict(residual_norm=math.inf), "residual_norm is inf, but must be a finite number"),
        (
            dict(SPECTRAL, initial_epsilon=0.999),
            "initial_epsilon is 0.999, which leaves nothing of epsilon = 1",
        ),
        (dict(centering=math.nan), "centering is nan, but must be 'user' or a number"),
        (
            dict(
                constants="printed",
                ratings_per_item=9.0,
                ratings_per_user=9.0,
                shares={"balance": 1},
            ),
            "shares cannot be combined with constants='printed'",
        ),
    ],
)
def test_wrong_parameters_are_named(wrong, message):
    with pytest.raises(ConfigError, match=message):
        discreet.DPLMC.configure(**(dict(epsilon=1.0) | wrong)).plan(30)


def test_a_spectral_start_with_too_few_items_is_refused_early(monkeypatch):
    _, ratings = planted(m=50, n=10)
    monkeypatch.setattr(Session, "release", lambda *_, **__: pytest.fail("released"))
    with pytest.raises(ConfigError, match="factors is 11, but a spectral start has at most 10"):
        discreet.DPLMC.configure(factors=11, epsilon=1.0, **SPECTRAL).fit(ratings)
