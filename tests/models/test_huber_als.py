"""HuberALS: without noise it is its plain algorithm, and it keeps every rule of the kit."""

import numpy as np
import pytest

import discreet
from discreet.data.ratings import Ratings
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.kernels import threads
from discreet.models.huber_als import HuberALS, curvature
from discreet.privacy.release.unsafe import NoNoise
from discreet.testing import check_private_model

SMALL = {"epsilon": 8.0, "max_items": 6, "rating_range": (1.0, 5.0), "random_state": 0}
PURE = {"delta": 0.0}
OPTIONS = {
    "gaussian, als": {"mechanism": "gaussian"},
    "gaussian, irls": {"mechanism": "gaussian", "solver": "irls", "inner_iterations": 2},
    "laplace, als": {"mechanism": "laplace"},
    "laplace, irls, pure": {"mechanism": "laplace", "solver": "irls", "iterations": 1} | PURE,
    "huber, als": {"mechanism": "huber"},
    "huber, irls, pure": {"mechanism": "huber", "solver": "irls"} | PURE,
    "huber, l1, replace-one": {
        "mechanism": "huber",
        "clipping": "l1",
        "neighboring": "replace-one",
    },
    "huber, l2, replace-one": {
        "mechanism": "huber",
        "solver": "irls",
        "neighboring": "replace-one",
        "centering": 3.0,
    },
    "laplace, many steps": {
        "mechanism": "laplace",
        "iterations": 6,
        "intercept": 0.0,
        "user_norm_l1": 1.5,
    },
}


@pytest.fixture(autouse=True)
def _small():
    threads.set_threads(1)
    yield
    threads.set_threads(None)


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((200, 30)) < 0.4)
    taste = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 30))
    stars = np.clip(np.round(3 + taste[user, item]), 1, 5)
    return discreet.Ratings.from_arrays(user, item, stars, item_ids=range(30))


# ---------------------------------------------------------------------- the kit


@pytest.mark.parametrize("name", OPTIONS)
def test_it_keeps_every_rule(name):
    report = check_private_model(
        HuberALS.configure(factors=3, **(SMALL | OPTIONS[name])), people=6, draws=1000
    )
    assert report.passed
    assert [check.rule for check in report.checks if check.passed is None] == ["zero noise"]


# ---------------------------------------------------------------------- identities


def dense(ratings: Ratings):
    mask, X = (
        np.zeros((ratings.n_users, ratings.n_items)),
        np.zeros((ratings.n_users, ratings.n_items)),
    )
    user = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    mask[user, ratings.indices], X[user, ratings.indices] = 1.0, ratings.values
    return X, mask


def twin(model: HuberALS, ratings: Ratings) -> np.ndarray:
    """The sound algorithm without noise where nothing is cut but vectors in ℓ₂, in plain numpy."""
    X, M = dense(ratings)
    count = M.sum(axis=1)
    Y = M * (X - ((X.sum(axis=1) + 9.0) / (count + 3))[:, None])
    algorithm = model.algorithm_
    i, r, alpha = 0.5, algorithm.factors, algorithm.transition
    V = np.hstack(
        [
            np.zeros((len(X.T), 1)),
            0.3 * np.random.default_rng(model.random_state).standard_normal((len(X.T), r)),
        ]
    )
    noise = {row["name"]: row["deviation"] for row in model.price_list(ratings.n_items)}
    for _ in range(2):
        F, b = V[:, 1:], i * V[:, 0]
        lam = algorithm.ridge_per_rating * np.maximum(count, 1)[:, None, None] * np.eye(r)
        U = np.linalg.solve(
            np.einsum("ij,ja,jb->iab", M, F, F) + lam, ((Y - M * b) @ F)[..., None]
        )[..., 0]
        U *= np.minimum(1, np.sqrt(0.75) / np.maximum(np.linalg.norm(U, axis=1), 1e-300))[:, None]
        U = np.hstack([np.full((len(U), 1), i), U])
        C = np.clip(Y, -2.0, 2.0)
        for _ in range(2 if algorithm.solver == "irls" else 1):
            W = (
                M * alpha / np.maximum(np.abs(C - U @ V.T), alpha)
                if algorithm.solver == "irls"
                else M
            )
            G = np.einsum("ij,ia,ib->jab", W, U, U)
            a = curvature(np.trace(G, axis1=1, axis2=2) / (r + 1), noise["gram"], r + 1)
            ridge = 5.0 + noise["sum"] ** 2 / (algorithm.prior_variance * a)
            V = np.linalg.solve(
                G + ridge[:, None, None] * np.eye(r + 1), ((W * C).T @ U)[..., None]
            )[..., 0]
    return V[:, 1:]


@pytest.mark.parametrize("solver", ["als", "irls"])
def test_without_noise_it_is_its_plain_algorithm(solver):
    """Far ratings are cut in the contribution, and users' own vectors see them as they are: as
    in the twin.
    """
    model = HuberALS.configure(
        factors=3,
        solver=solver,
        mechanism="gaussian",
        transition=0.7,
        inner_iterations=2,
        epsilon=300.0,
        iterations=2,
        intercept=0.5,
        max_items=30,
        rating_bound=2.0,
        rating_range=(1.0, 5.0),
    )
    report = check_private_model(model, twin=twin, people=3, draws=100, rules=["zero noise"])
    assert report.checks[0].passed


@pytest.mark.parametrize("noisy", [False, True], ids=["vanilla", "noise"])
def test_irls_with_a_huge_transition_is_als(ratings, noisy):
    noise = "seeded" if noisy else NoNoise()
    same = dict(
        factors=3, iterations=2, rating_range=(1, 5), noise=noise, epsilon=50.0, random_state=0
    )
    als = HuberALS.configure(solver="als", **same).fit(ratings)
    irls = HuberALS.configure(solver="irls", transition=1e9, **same).fit(ratings)
    assert np.array_equal(irls.item_factors_, als.item_factors_)


# ---------------------------------------------------------------------- the price


def test_the_accountant_is_the_one_with_the_least_noise():
    few = HuberALS(3, mechanism="laplace", epsilon=5.0, delta=1e-5, iterations=1)
    many = HuberALS(3, mechanism="laplace", epsilon=1.0, delta=1e-5, iterations=40)
    assert few.plan(50).accountant == "pure"
    assert many.plan(50).accountant == "pld"
    for accountant in ("pure", "gdp"):
        other = HuberALS(**(many.get_params() | {"accountant": accountant})).plan(50)
        assert many.plan(50).noise_multiplier("sum") < other.noise_multiplier("sum")
    assert HuberALS(3, epsilon=1.0, mechanism="huber", delta=1e-5).plan(50).accountant == "gdp"
    assert HuberALS(3, epsilon=1.0, mechanism="huber", delta=0.0).plan(50).accountant == "pure"
    assert HuberALS(3, epsilon=1.0, mechanism="gaussian").plan(50).accountant == "gdp"


def test_the_statement_says_which(ratings):
    model = HuberALS(3, mechanism="huber", epsilon=20.0, delta=0.0, rating_range=(1, 5)).fit(
        ratings
    )
    assert "sum of pure ε" in str(model.privacy_)
    assert model.privacy_.epsilon == pytest.approx(20.0)
    assert model.privacy_.delta < 1e-18


def test_every_inner_iteration_is_charged(ratings):
    model = HuberALS.configure(
        factors=3,
        solver="irls",
        iterations=2,
        inner_iterations=3,
        epsilon=50.0,
        rating_range=(1, 5),
    ).fit(ratings)
    assert [e.name for e in model.privacy_.ledger.entries] == ["sum", "gram"] * 6
    assert model.privacy_.epsilon == pytest.approx(50.0, rel=1e-6)


def test_clipping_follows_the_noise():
    kinds = ("gaussian", "laplace", "huber")
    norms = {
        kind: HuberALS(3, epsilon=1.0, mechanism=kind, delta=1e-6).resolve(1).bounds().norm_l1
        for kind in kinds
    }
    assert norms == {"gaussian": None, "laplace": 1.0, "huber": None}
    assert HuberALS(3, epsilon=1.0, mechanism="huber", delta=0.0).resolve(1).bounds().norm_l1 == 1.0
    assert (
        HuberALS(3, epsilon=1.0, mechanism="laplace", delta=0.0).price_list(40)[0]["norm"] == "l1"
    )


def test_curvature_is_kept_where_it_is_known_and_pooled_where_it_is_noise():
    rng = np.random.default_rng(0)
    truth = rng.uniform(5, 50, 400)
    np.testing.assert_allclose(curvature(truth, 1e-6, 4), truth, rtol=1e-6)
    seen = truth + 500 * rng.normal(size=400)
    found = curvature(seen, 1000.0, 4)
    assert np.abs(found - truth).mean() < 0.2 * np.abs(seen - truth).mean()
    assert (curvature(-np.ones(5), 1.0, 4) > 0).all()


# ---------------------------------------------------------------------- use


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "huber"])
def test_it_learns_more_than_a_users_own_mean(mechanism):
    split = random_ratings(discreet.load_dataset("cinema", scale=0.05), (0.9, 0.1), seed=0)
    alone = discreet.evaluate(
        discreet.Bias(3.0, items=False).fit(split.train), split, ["rmse"], slices=None
    )["rmse"]
    model = HuberALS(
        4, mechanism=mechanism, epsilon=20.0, rating_range=(0.5, 5), noise="seeded", random_state=0
    )
    model.fit(split.train)
    assert discreet.evaluate(model, split, ["rmse"], slices=None)["rmse"] < alone - 0.02


def test_save_load_recommend(ratings, tmp_path):
    model = HuberALS(3, epsilon=40.0, rating_range=(1, 5)).fit(ratings)
    model.save(tmp_path / "m")
    again = discreet.load(tmp_path / "m")
    assert type(again) is HuberALS
    assert again.privacy_ == model.privacy_
    assert np.array_equal(again.recommend_many(ratings, 5)[0], model.recommend_many(ratings, 5)[0])
    assert (
        again.recommend({0: 5.0, 3: 1.0}, n=3)[0].tolist()
        == model.recommend({0: 5.0, 3: 1.0}, n=3)[0].tolist()
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(mechanism="cauchy"), "mechanism is 'cauchy'"),
        (dict(solver="sgd"), "solver is 'sgd'"),
        (dict(mechanism="gaussian", delta=0.0), "no pure ε"),
        (dict(goal="ranking"), "HuberALS has no parameter 'goal'"),
        (dict(inner_iterations=0), "inner_iterations is 0"),
        (dict(gram_share=1.0), "gram_share is 1.0"),
        (dict(centering="item"), "centering is 'item'"),
        (dict(transition=-1.0), "transition is -1.0"),
        (dict(rating_range=(5, 1)), "rating_range"),
        (dict(alpha=0.0), "alpha is 0.0"),
        (dict(factors=0), "factors is 0"),
        (dict(epsilon=-1.0), "epsilon=-1.0"),
        (dict(clipping="l3"), "clipping is 'l3'"),
        (dict(clipping=""), "clipping is ''"),
        (dict(prior_count=-1), "prior_count"),
    ],
)
def test_wrong_parameters_are_named(ratings, wrong, message):
    with pytest.raises(ConfigError, match=message):
        HuberALS.configure(**(dict(epsilon=1.0) | wrong)).fit(ratings)
