"""The private baselines: without noise they are their algorithms, with it they keep the
conformance kit.
"""

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.models.frank_wolfe import top_eigen
from discreet.privacy.release.unsafe import NoNoise
from discreet.testing import ConformanceError, PrivateModelConformance, check_private_model
from support import baseline_twins as twins

ALL = (discreet.DPFrankWolfe, discreet.DPSVD, discreet.DPSGLD, discreet.DPSGD)


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((120, 15)) < 0.5)
    taste = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 15))
    stars = np.clip(np.round(3 + taste[user, item]), 1, 5)
    return discreet.Ratings.from_arrays(user, item, stars, item_ids=range(15))


# ------------------------------------------------------------ Frank–Wolfe


def wolfe(T, k, **options):
    """Bounds so wide that nothing is cut."""
    given = dict(
        nuclear_norm=k,
        row_norm=1e6,
        residual_norm=1e6,
        centering=3.0,
        item_fraction=1.0,
        folding="steps",
        rating_range=(-1e6, 1e6),
        steps="decreasing",
        noise=NoNoise(),
        epsilon=1.0,
    )
    return discreet.DPFrankWolfe.configure(factors=T, **(given | options))


def predictions(model, ratings):
    vectors, offsets, V = model.score_vectors(ratings.indptr, ratings.indices, ratings.values)
    return vectors @ V.T + offsets[:, None]


def nuclear_optimum(Y, seen, k, steps=3000):
    """A reference: projected gradient with momentum on ½ ‖P_Ω(X − Y)‖², ‖X‖_nuclear ≤ k."""
    X = Z = np.zeros_like(Y)
    t = 1.0
    for _ in range(steps):
        U, s, W = np.linalg.svd(Z - np.where(seen, Z - Y, 0.0), full_matrices=False)
        if s.sum() > k:  # onto the simplex
            c = (np.cumsum(s) - k) / np.arange(1, len(s) + 1)
            s = np.maximum(s - c[np.flatnonzero(s > c)[-1]], 0.0)
        new = (U * s) @ W
        later = (1 + np.sqrt(1 + 4 * t * t)) / 2
        X, Z, t = new, new + (t - 1) / later * (new - X), later
    return X


def test_frank_wolfe_reaches_the_optimum_of_the_nuclear_norm_ball():
    rng = np.random.default_rng(3)
    Y = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 8)) + 0.2 * rng.normal(size=(12, 8))
    seen = rng.random(Y.shape) < 0.7
    user, item = np.nonzero(seen)
    ratings = discreet.Ratings.from_arrays(user, item, 3 + Y[seen], item_ids=range(8))
    Y = np.where(seen, Y, 0.0)
    k = 0.6 * np.linalg.svd(Y, compute_uv=False).sum()
    loss = lambda X: 0.5 * ((X - Y)[seen] ** 2).sum()  # noqa: E731
    best = loss(nuclear_optimum(Y, seen, k))
    losses = {
        T: loss(predictions(wolfe(T, k).fit(ratings), ratings) - 3.0) for T in (1, 4, 16, 64, 400)
    }
    values = list(losses.values())
    assert values == sorted(values, reverse=True)
    assert best <= losses[400] < best + 0.01 * (losses[1] - best)
    X = predictions(wolfe(400, k).fit(ratings), ratings) - 3.0
    assert np.linalg.svd(X, compute_uv=False).sum() <= k * (1 + 1e-5)


def test_frank_wolfe_with_constant_steps_is_a_numpy_loop(ratings):
    Y, seen = twins.dense(ratings)
    Y, X, k, T, L = np.where(seen, Y - 3, 0), np.zeros_like(Y), 60.0, 5, 2.5
    for _ in range(T):
        A = np.where(seen, X - Y, 0.0)
        v, size = top_eigen(A.T @ A)
        X = (1 - 1 / T) * X - k / T * np.outer(A @ v / np.sqrt(size), v)
        X *= np.minimum(1, L / np.maximum(np.linalg.norm(np.where(seen, X, 0), axis=1), 1e-30))[
            :, None
        ]
    model = wolfe(T, k, row_norm=L, residual_norm=1e6, steps="constant").fit(ratings)
    np.testing.assert_allclose(predictions(model, ratings) - 3, X, atol=2e-3)


def test_frank_wolfe_reads_out_new_users_from_what_was_released(ratings):
    for folding in ("steps", "least-squares"):
        model = discreet.DPFrankWolfe.configure(
            factors=4, epsilon=50.0, rating_range=(1, 5), folding=folding, item_fraction=0.8
        )
        model.fit(ratings)
        assert model.item_factors_.shape == (15, 4)
        assert (model.item_factors_ != 0).any(axis=1).sum() == 12
        assert np.isfinite(model.fold_in({0: 5.0, 3: 1.0})).all()


def test_frank_wolfe_with_more_steps_than_anybody_waits_for_is_refused(ratings):
    with pytest.raises(ConfigError, match="factors is 100,000, but must be at most 1,000 for"):
        discreet.DPFrankWolfe(100_000, epsilon=1.0).fit(ratings)


# ------------------------------------------------------------ SVD


def test_svd_is_scipys(ratings):
    from scipy.sparse.linalg import svds

    model = discreet.DPSVD.configure(
        factors=3,
        epsilon=1.0,
        weighted=False,
        rating_range=(-1e3, 1e3),
        max_items=15,
        item_fraction=1.0,
        residual_bound=1e3,
        noise=NoNoise(),
    ).fit(ratings)
    Y, seen = twins.dense(ratings)
    mean = Y[seen].mean()
    b = np.where(seen, Y - mean, 0).sum(axis=0) / (seen.sum(axis=0) + model.algorithm_.item_prior)
    R = np.where(seen, Y - mean - b, 0.0)
    R = np.where(seen, R - (R.sum(axis=1) / (seen.sum(axis=1) + 3.0))[:, None], 0.0)
    R /= np.sqrt(seen.sum(axis=1))[:, None]
    _, s, W = svds(R, k=3)
    order = np.argsort(-s)
    expected = (s[order, None] * W[order]).T
    signs = np.sign((expected * model.item_factors_).sum(axis=0))
    np.testing.assert_allclose(
        model.item_factors_ * signs, expected, atol=2e-3 * np.abs(expected).max()
    )
    np.testing.assert_allclose(model.item_biases_, b, atol=1e-4)


def test_svd_weights_covariances_by_how_many_rated_both(ratings):
    options = dict(
        factors=15,
        epsilon=1.0,
        rating_range=(1, 5),
        item_fraction=1.0,
        residual_bound=1e3,
        noise=NoNoise(),
    )
    model = discreet.DPSVD.configure(pair_prior=0.0, **options).fit(ratings)
    plain = discreet.DPSVD.configure(weighted=False, **options).fit(ratings)
    assert not np.allclose(model.item_factors_, plain.item_factors_)
    C = model.item_factors_ @ model.item_factors_.T
    assert 0.1 < np.diag(C).mean() < 3, "an average of squares, not a sum"


def test_svd_reads_users_out_as_the_textbook_completes_a_matrix(ratings, tmp_path):
    """Equation (6): with zeros for what is not rated, projected on the eigenvectors, over the
    part that is seen.
    """
    options = dict(
        factors=3,
        epsilon=1.0,
        rating_range=(1, 5),
        item_fraction=0.8,
        weighted=False,
        centering="items",
        noise=NoNoise(),
    )
    model = discreet.DPSVD.configure(density=0.5, **options).fit(ratings)
    Y, seen = twins.dense(ratings)
    frequent = np.isin(np.arange(15), model.details_["frequent"])
    left = np.where(seen & frequent, Y - Y[seen].mean() - model.item_biases_, 0.0)
    Q = model.item_factors_ / np.linalg.norm(model.item_factors_, axis=0)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-5)
    found = predictions(model, ratings)
    np.testing.assert_allclose(found, Y[seen].mean() + left @ Q @ Q.T / 0.5, atol=1e-4)
    one = discreet.DPSVD.configure(density=1.0, **options).fit(ratings)
    assert np.array_equal(one.item_factors_, model.item_factors_), (
        "only how users are read out differs"
    )
    assert not np.allclose(predictions(one, ratings), found)
    model.save(tmp_path / "model")
    assert np.array_equal(predictions(discreet.load(tmp_path / "model"), ratings), found)


# ------------------------------------------------------------ gradients


@pytest.mark.parametrize("kind", [discreet.DPSGD, discreet.DPSGLD])
def test_gradient_descent_is_a_numpy_loop(ratings, kind):
    given = dict(
        factors=3, epsilon=1.0, iterations=5, item_fraction=1.0, rating_range=(1, 5), max_items=15
    )
    given |= dict(noise=NoNoise(), random_state=4)
    if kind is discreet.DPSGD:
        given |= dict(batch_rate=1.0, learning_rate=2.0)
    model = kind.configure(**given)
    expected = twins.gradient_walk(model, ratings)
    model.fit(ratings)
    np.testing.assert_allclose(model.item_factors_, expected[:, 1:], atol=2e-3)
    np.testing.assert_allclose(
        model.item_biases_, model.algorithm_.iota * expected[:, 0], atol=2e-3
    )
    assert not model.privacy_.private


def test_batches_are_in_the_ledger(ratings):
    model = discreet.DPSGD(2, epsilon=5.0, iterations=3, batch_rate=0.4, rating_range=(1, 5)).fit(
        ratings
    )
    entries = model.privacy_.ledger.entries
    assert [(e.name, e.rate) for e in entries] == [("counts", 1.0), *[("gradient", 0.4)] * 3]
    assert 4.99 < model.privacy_.epsilon <= 5.0
    with pytest.raises(ConfigError, match="add-remove"):
        discreet.DPSGD(epsilon=1.0, neighboring="replace-one").plan(10)
    full = discreet.DPSGD(
        epsilon=1.0, neighboring="replace-one", batch_rate=1.0, accountant="gdp", iterations=2
    )
    assert full.plan(10).epsilon() <= 1.0


def test_langevin_noise_is_that_of_the_release(ratings):
    """Equation (2): the step makes the released noise as large as √(τ h)."""
    model = discreet.DPSGLD.configure(
        factors=2,
        epsilon=0.05,
        iterations=4,
        rating_range=(1, 5),
        item_fraction=1.0,
        temperature=0.7,
    )
    algorithm = model.resolve(15)
    plan = model.plan(15)
    multipliers = [plan.noise_multiplier(f"gradient {t}") for t in (1, 4)]
    assert multipliers[1] / multipliers[0] == pytest.approx(4 ** (algorithm.decay / 2))
    model.fit(ratings)
    assert "It covers these noisy statistics: item counts, gradient 1 to 4." in str(model.privacy_)
    deviation = model.price_list(15)[-1]["deviation"]
    assert deviation == pytest.approx(multipliers[1] * algorithm.gradient_norm)
    h = algorithm._step_length(deviation, 3, np.full(15, 20.0))
    released = h / 2 * algorithm.precision * deviation
    np.testing.assert_allclose(released, np.sqrt(0.7 * h))


# ------------------------------------------------------------ all of them


@pytest.mark.parametrize("kind", ALL)
def test_wrong_parameters_are_named(ratings, kind):
    first = kind(epsilon=1.0).plan(9).releases[0].name
    for wrong, message in (
        (dict(factors=0), "factors is 0"),
        (dict(item_fraction=0.0), "item_fraction is 0.0"),
        (dict(goal="ranking"), "has no parameter 'goal'"),
        (dict(rating_range=(5, 1)), "rating_range"),
        (dict(shares={"nothing": 1.0}), "shares names"),
        (dict(shares={first: -1.0}), "shares has -1.0 for"),
        (dict(shares={first: "a"}), "shares has 'a' for"),
    ):
        with pytest.raises(ConfigError, match=message):
            kind.configure(**(dict(epsilon=1.0) | wrong)).fit(ratings)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (discreet.DPSVD, dict(density=-0.1), "density is -0.1, but must be"),
        (discreet.DPSVD, dict(density=1.5), "density is 1.5, but must be at most 1"),
        (discreet.DPSVD, dict(centering=3.0), "centering is 3.0, but must be 'user' or 'items'"),
        (discreet.DPSVD, dict(residual_bound=-1.0), "residual_bound is -1.0, but must be"),
        (
            discreet.DPFrankWolfe,
            dict(centering="items"),
            "centering is 'items', but must be 'user' or a number",
        ),
        (
            discreet.DPFrankWolfe,
            dict(centering=True),
            "centering is True, but must be 'user' or a number",
        ),
        (discreet.DPFrankWolfe, dict(row_norm=0.0), "row_norm is 0.0, but must be above 0"),
        (discreet.DPFrankWolfe, dict(residual_norm=-2.0), "residual_norm is -2.0, but must be"),
        (discreet.DPFrankWolfe, dict(nuclear_norm="large"), "nuclear_norm is 'large', but must be"),
        (discreet.DPFrankWolfe, dict(spread=0.0), "spread is 0.0, but must be above 0"),
        (
            discreet.DPFrankWolfe,
            dict(folding="none"),
            "folding is 'none', but must be 'least-squares' or 'steps'",
        ),
        (
            discreet.DPFrankWolfe,
            dict(residual_norm=float("inf")),
            "residual_norm is inf, but must be a finite number",
        ),
        (
            discreet.DPSGD,
            dict(user_norm=float("inf")),
            "user_norm is inf, but must be a finite number",
        ),
        (discreet.DPSGD, dict(user_norm="a"), "user_norm is 'a', but must be a number"),
        (
            discreet.DPSGD,
            dict(batch_rate=0.0),
            "batch_rate is 0.0, but must lie between 0.001 and 1",
        ),
        (
            discreet.DPSGD,
            dict(batch_rate=1.5),
            "batch_rate is 1.5, but must lie between 0.001 and 1",
        ),
        (discreet.DPSGD, dict(average=1), "average is 1, but must be True or False"),
        (discreet.DPSGD, dict(iterations=2.5), "iterations is 2.5, but must be a whole number"),
        (
            discreet.DPSGD,
            dict(neighboring="replace-one"),
            "'add-remove' only. Use that, or pass batch_rate=1",
        ),
        (discreet.DPSGLD, dict(decay=1.5), "decay is 1.5, but must be a number from 0 to 1"),
        (discreet.DPSGLD, dict(temperature=0.0), "temperature is 0.0, but must be above 0"),
        (discreet.DPSGLD, dict(intercept=1.0), "intercept is 1.0 of the norm, but must be below 1"),
    ],
)
def test_what_only_one_of_them_has_is_checked_too(kind, wrong, message):
    with pytest.raises(ConfigError, match=message):
        kind.configure(**(dict(epsilon=1.0) | wrong)).plan(10)


@pytest.mark.parametrize("kind", ALL)
def test_a_range_read_from_the_data_is_a_caution(ratings, kind):
    assert "CAUTION" in str(kind(2, epsilon=50.0).fit(ratings).privacy_)


@pytest.mark.parametrize("kind", ALL)
def test_they_learn_more_than_a_users_own_mean(kind):
    """On 4,000 invented people, at a budget where there is something to learn."""
    split = random_ratings(discreet.load_dataset("cinema", scale=0.2), (0.9, 0.1), seed=0)
    alone = discreet.evaluate(
        discreet.Bias(3.0, items=False).fit(split.train), split, ["rmse"], slices=None
    )["rmse"]
    model = kind(
        epsilon=10.0, rating_range=(0.5, 5), noise="seeded", random_state=0, item_fraction=0.4
    )
    model.fit(split.train)
    assert discreet.evaluate(model, split, ["rmse"], slices=None)["rmse"] < alone - 0.005


@pytest.mark.parametrize(
    ("kind", "twin", "other"),
    [
        (discreet.DPFrankWolfe, twins.frank_wolfe, {"row_norm": 6.5}),
        (discreet.DPSVD, twins.private_svd, {"item_prior": 21.0}),
        (discreet.DPSGLD, twins.gradients, {"longest": 2.02}),
        (discreet.DPSGD, twins.gradients, {"random_state": 8}),
    ],
)
def test_the_twins_tell_a_small_difference(kind, twin, other):
    """A twin that followed whatever the model does would show nothing."""
    model = kind(2, epsilon=20.0, rating_range=(1, 5), item_fraction=0.5)

    def slightly_other(fitted, ratings):
        given = {name: value for name, value in fitted.get_params().items() if name != "algorithm"}
        return twin(kind.configure(**(given | other)), ratings)

    assert check_private_model(model, twin=twin, rules=["zero noise"]).passed
    with pytest.raises(ConformanceError, match=r"zero noise.*off by"):
        check_private_model(model, twin=slightly_other, rules=["zero noise"])


class TestFrankWolfe(PrivateModelConformance):
    twin = twins.frank_wolfe

    def make(self):
        return discreet.DPFrankWolfe(2, epsilon=20.0, rating_range=(1, 5), item_fraction=0.5)


class TestFrankWolfeReplaced(PrivateModelConformance):
    people, twin = 6, twins.frank_wolfe

    def make(self):
        return discreet.DPFrankWolfe(
            2, epsilon=20.0, rating_range=(1, 5), item_fraction=1.0, neighboring="replace-one"
        )


class TestSVD(PrivateModelConformance):
    twin = twins.private_svd

    def make(self):
        return discreet.DPSVD(2, epsilon=20.0, rating_range=(1, 5), item_fraction=0.5)


class TestSVDByProjection(PrivateModelConformance):
    people, twin = 6, twins.private_svd

    def make(self):
        return discreet.DPSVD.configure(
            factors=2,
            epsilon=20.0,
            rating_range=(1, 5),
            centering="items",
            density=0.4,
            weighted=False,
            neighboring="replace-one",
        )


class TestSGLD(PrivateModelConformance):
    twin = twins.gradients

    def make(self):
        return discreet.DPSGLD(
            2, epsilon=20.0, rating_range=(1, 5), iterations=2, item_fraction=0.5
        )


class TestSGD(PrivateModelConformance):
    twin = twins.gradients

    def make(self):
        return discreet.DPSGD(
            2, epsilon=20.0, rating_range=(1, 5), iterations=2, item_fraction=0.5, batch_rate=0.3
        )
