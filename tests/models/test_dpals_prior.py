"""Item features as a prior: the likelihood it claims, what it does without and with signal, and the model around it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import discreet
from discreet.data.cinema import films, genre_matrix
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError, DataError
from discreet.models.dpals_prior import FeaturePrior, Sums, likelihood, standardised
from discreet.models.dpals_shrink import item_factors
from discreet.testing import check_private_model


def some_sums(n=6, r=2, K=3, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, r, r))
    A, F = root @ root.transpose(0, 2, 1), rng.normal(size=(n, K))
    return Sums(A, rng.normal(size=(n, r)), np.eye(r) + 0.1 * A, F)


def dense(part, T, omega):
    """Covariance of all g̃ together, and of each with B, by the definition."""
    n, r, K = len(part.A), len(T), part.F.shape[1]
    X = np.einsum("nab,nk->nabk", part.A, part.F).reshape(n * r, r * K)
    prior = np.diag(np.repeat(omega, K))
    own = np.zeros((n * r, n * r))
    for j in range(n):
        own[j * r : (j + 1) * r, j * r : (j + 1) * r] = part.D[j] + part.A[j] @ np.diag(T) @ part.A[j]
    return X @ prior @ X.T + own, prior @ X.T


def test_the_likelihood_and_the_coefficients_are_those_of_the_model():
    part = some_sums()
    halves = [Sums(part.A[s], part.g[s], part.D[s], part.F[s]) for s in (slice(0, 2), slice(2, 6))]
    right, ours = [], []
    for T, omega in ((0.5, 0.3), (0.2, 0.9), (0.7, 0.0)):
        T, omega = np.array([T, 0.4]), np.array([omega, 0.2])
        covariance, cross = dense(part, T, omega)
        right.append(multivariate_normal(cov=covariance).logpdf(part.g.ravel()))
        score, B = likelihood(halves, T, omega)
        ours.append(score)
        np.testing.assert_allclose(B.T.ravel(), cross @ np.linalg.solve(covariance, part.g.ravel()), atol=1e-9)
    np.testing.assert_allclose(np.diff(ours), np.diff(right), rtol=1e-9)


def test_standardised_features():
    X = np.array([[1.0, 5.0, np.nan], [2.0, 5.0, 1.0], [6.0, 5.0, 3.0]])
    Z = standardised(X)
    assert Z.shape == (3, 2), "a constant says nothing"
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    assert (Z**2).sum() == pytest.approx(3)
    assert Z[0, 1] == 0, "what is not known is the average"
    assert standardised(np.random.default_rng(0).normal(size=(500, 200))).shape == (500, 64)


def planted(seed, explained, n=800, r=3, K=5, noise=40.0):
    rng = np.random.default_rng(seed)
    X, counts = rng.normal(size=(n, K)), rng.integers(2, 60, n).astype(float)
    V = np.sqrt(explained / K) * X @ rng.normal(size=(K, r)) + np.sqrt(1 - explained) * rng.normal(size=(n, r))
    upper = np.triu_indices(r)
    g = counts[:, None] * V + noise * rng.normal(size=(n, r))
    return (
        X,
        V,
        dict(
            G=counts[:, None] * np.eye(r)[upper],
            g=g,
            counts=counts,
            gram_noise=1e-3,
            sum_noise=noise,
            rating_bound=1.0,
            weight=1e-6,
        ),
    )


def test_features_that_explain_factors_help_and_others_do_no_harm():
    for explained, most in ((0.9, 0.5), (0.0, 1.02)):
        X, V, sums = planted(1, explained)
        prior = FeaturePrior(X, None, np.arange(len(X)), leading=1)
        loss = [np.mean((item_factors(**sums, **more) - V) ** 2) for more in ({}, dict(towards=prior))]
        assert loss[1] < most * loss[0]
        assert (max(prior.explained) > 0.1) == (explained > 0)


def test_without_explained_variance_it_is_what_it_is_without_features(monkeypatch):
    X, _, sums = planted(2, 0.9)
    prior = FeaturePrior(X, None, np.arange(len(X)), leading=1)
    monkeypatch.setattr("discreet.models.dpals_prior.EXPLAINED", (0.0,) * 15)
    assert np.array_equal(item_factors(**sums, towards=prior), item_factors(**sums))


# ------------------------------------------------------------ the model


@pytest.fixture(scope="module")
def cinema():
    return random_ratings(discreet.load_dataset("cinema", scale=0.1), (0.8, 0.1, 0.1), seed=5)


GENRES = {film.id: "|".join(film.genres) for film in films()}
SAME = dict(epsilon=3.0, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=0)


def test_it_is_worth_it(cinema):
    score = lambda model: discreet.evaluate(model, cinema, metrics=["rmse"]).values["rmse"]  # noqa: E731
    plain = discreet.DPALS(**SAME).fit(cinema.train)
    ours = discreet.DPALS(item_features=GENRES, **SAME).fit(cinema.train)
    assert score(ours) < score(plain) - 0.005
    assert ours.privacy_.epsilon == plain.privacy_.epsilon
    releases = [[entry.name for entry in model.privacy_.ledger.entries] for model in (ours, plain)]
    assert releases[0] == releases[1]
    assert [a.text for a in ours.privacy_.assumptions if a.name == "features"] == [
        "the features of the items, 16 for each"
    ]


def test_items_that_were_not_heard_have_factors(cinema):
    rare = cinema.train.filter(items=cinema.train.item_ids[:400])
    ids = [*rare.item_ids.tolist(), *(film.id for film in films()[400:])]
    ratings = discreet.Ratings.from_indices(rare.indptr, rare.indices, rare.values, rare.user_ids, ids, catalogue=True)
    enough = SAME | dict(epsilon=50.0)  # for features to be found to explain something
    for more in (dict(item_step="solve"), dict(item_fraction=0.3)):
        plain = discreet.DPALS(**enough, **more).fit(ratings)
        assert not plain.frequent_[400:].all()
        assert not plain.item_factors_[~plain.frequent_].any()
        ours = discreet.DPALS(item_features=GENRES, **enough, **more).fit(ratings)
        assert ours.frequent_.all()
        assert (np.abs(ours.item_factors_).max(axis=1) > 0).all()


def liked_if_popular(ratings):
    """The same people and films, but films are rated by how often they are watched, and a little by chance."""
    counts = np.bincount(ratings.indices, minlength=ratings.n_items)
    liked = 1.5 + 2.5 * counts.argsort().argsort() / ratings.n_items
    values = liked[ratings.indices] + np.random.default_rng(0).uniform(-1, 1, ratings.n_ratings)
    return discreet.Ratings.from_indices(
        ratings.indptr, ratings.indices, values.astype(np.float32), ratings.user_ids, ratings.item_ids, catalogue=True
    )


def test_popularity_alone(cinema):
    ratings = liked_if_popular(cinema.train)
    for step in ("gradient", "solve"):
        same = SAME | dict(item_step=step)
        model = discreet.DPALS(popularity=True, **same).fit(ratings)
        plain = discreet.DPALS(popularity=False, **same).fit(ratings)
        usual = discreet.DPALS(**same).fit(ratings)
        assert not np.array_equal(model.item_biases_, plain.item_biases_)
        assert np.array_equal(usual.item_biases_, (model if step == "gradient" else plain).item_biases_)
        assert "features" not in {a.name for a in model.privacy_.assumptions}
        without = discreet.DPALS(item_features=GENRES, popularity=False, **same).fit(ratings)
        both = discreet.DPALS(item_features=GENRES, **same).fit(ratings)
        assert not np.array_equal(without.item_factors_, both.item_factors_)


def test_it_comes_back_from_disk(cinema, tmp_path):
    file = tmp_path / "genres.csv"
    file.write_text("item_id,genres\n" + "".join(f"{i},{genres}\n" for i, genres in GENRES.items()))
    models = [discreet.DPALS(item_features=given, **SAME).fit(cinema.train) for given in (str(file), file, GENRES)]
    for model in models:
        model.save(tmp_path / "model", replace=True)
        again = discreet.load(tmp_path / "model")
        assert again.item_features is None, "features are input, like ratings"
        saved = b"".join(part.read_bytes() for part in (tmp_path / "model").iterdir())
        assert b"genres.csv" not in saved
        assert str(tmp_path).encode() not in saved
        assert np.array_equal(again.predict(cinema.train, cinema.train), model.predict(cinema.train, cinema.train))
        assert np.array_equal(model.item_factors_, models[0].item_factors_), "all three are the same features"
    assert "item_features='<dict>'" in repr(models[2])
    assert "item_features='<ndarray>'" in repr(discreet.DPALS(item_features=genre_matrix()))


def test_what_it_is_not_for_is_refused(cinema):
    for wrong in (dict(feedback="implicit"), dict(shrinkage=False)):
        for prior in (dict(item_features=GENRES), dict(popularity=True)):
            with pytest.raises(ConfigError, match="for explicit feedback, and not for the paper's"):
                discreet.DPALS(2, **prior, **wrong).plan(10)
    with pytest.raises(DataError, match="knows none of the 800 items"):
        discreet.DPALS(item_features={"nowhere": [1.0]}).fit(cinema.train)


def test_the_kit_is_content():
    check_private_model(
        discreet.DPALS(
            2,
            epsilon=5.0,
            iterations=2,
            rating_range=(1, 5),
            item_features={item: [item % 3, item / 7] for item in range(101, 161, 2)},
        ),
        people=4,
    )


# ------------------------------------------------------------ no factors


@pytest.mark.parametrize(
    ("step", "released"),
    [
        ("solve", ["counts", "recounts", "sum 1", "gram 1"]),
        (
            "gradient",
            [
                "size",
                "counts",
                "recounts",
                "bias",
                "bias",
                "bias",
                "balance",
                "gradient 1",
                "balance",
                "gradient 2",
                "balance",
                "gradient 3",
            ],
        ),
    ],
)
def test_no_factors_is_an_item_bias(cinema, step, released):
    same = SAME | dict(item_step=step)
    model = discreet.DPALS(0, **same).fit(cinema.train)
    assert model.item_factors_.shape == (800, 0)
    assert [e.name for e in model.privacy_.ledger.entries] == released
    mean = discreet.Bias(3.0, items=False).fit(cinema.train)
    score = [discreet.evaluate(m, cinema, metrics=["rmse"]).values["rmse"] for m in (model, mean)]
    assert score[0] < score[1] - 0.02
    model = discreet.DPALS(0, **same | dict(epsilon=1e4)).fit(cinema.train)
    exact = discreet.Bias(1.0, iterations=1).fit(cinema.train).item_biases_
    assert np.corrcoef(model.item_biases_, exact)[0, 1] > 0.95
    for wrong in (dict(feedback="implicit"), dict(intercept=0.0), dict(initialization="spectral")):
        with pytest.raises(ConfigError, match="factors is 0, which is for explicit feedback with an intercept"):
            discreet.DPALS(0, **wrong).plan(10)


def test_no_factors_comes_back_from_disk_and_keeps_the_promise(cinema, tmp_path):
    model = discreet.DPALS(0, item_features=GENRES, **SAME).fit(cinema.train)
    model.save(tmp_path / "model")
    again = discreet.load(tmp_path / "model")
    assert np.array_equal(again.predict(cinema.train, cinema.train), model.predict(cinema.train, cinema.train))
    check_private_model(discreet.DPALS(0, epsilon=5.0, rating_range=(1, 5)), people=4)
