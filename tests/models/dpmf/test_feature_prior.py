"""Item features as a prior: the likelihood it claims, what it does without and with signal, and
the model around it.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import discreet
from discreet.data.cinema import films, genre_matrix
from discreet.data.splits import random_ratings
from discreet.errors import DataError
from discreet.models.dpmf.feature_prior import (
    Sums,
    estimate,
    likelihood,
    prior_features,
    standardize,
)
from discreet.testing import check_private_model


def some_sums(n=6, K=3, seed=0):
    rng = np.random.default_rng(seed)
    return Sums(rng.normal(size=n), rng.uniform(0.5, 2.0, n), rng.uniform(0.5, 2.0, n)), rng.normal(
        size=(n, K)
    )


def test_the_likelihood_and_the_coefficients_are_those_of_the_model():
    sums, F = some_sums()
    right, ours = [], []
    for T, omega in ((0.5, 0.3), (0.2, 0.9), (0.7, 0.0)):
        score, b = likelihood(sums, F, T, omega)
        X = sums.S[:, None] * F
        covariance = omega * X @ X.T + np.diag(sums.D + T * sums.S**2)
        ours.append(score)
        right.append(multivariate_normal(cov=covariance).logpdf(sums.z))
        np.testing.assert_allclose(b, omega * X.T @ np.linalg.solve(covariance, sums.z), atol=1e-9)
    np.testing.assert_allclose(np.diff(ours), np.diff(right), rtol=1e-9)


def test_standardized_features():
    X = np.array([[1.0, 5.0, np.nan], [2.0, 5.0, 1.0], [6.0, 5.0, 3.0]])
    Z = standardize(X)
    assert Z.shape == (3, 2), "a constant says nothing"
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    assert (Z**2).sum() == pytest.approx(3)
    assert Z[0, 1] == 0, "what is not known is the average"
    assert standardize(np.random.default_rng(0).normal(size=(500, 200))).shape == (500, 64)


def planted(seed, explained, n=800, K=5, noise=40.0):
    """Features, biases that they explain a part of, and what is known of these."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, K))
    S = rng.integers(2, 60, n).astype(float)
    w = rng.normal(size=K)
    x = np.sqrt(explained) * X @ w / np.linalg.norm(w) + np.sqrt(1 - explained) * rng.normal(size=n)
    return X, x, Sums(S * x + noise * rng.normal(size=n), S, np.full(n, noise**2))


def test_features_that_explain_biases_help_and_others_do_no_harm():
    for explained, most in ((0.9, 0.5), (0.0, 1.02)):
        X, x, sums = planted(1, explained)
        priors = prior_features(len(x), None, None), prior_features(len(x), X, None)
        loss = [np.mean((estimate(sums, F, 0.2, 4.0)[0] - x) ** 2) for F in priors]
        assert loss[1] < most * loss[0]


def test_the_variance_is_found_where_it_can_be_and_usual_elsewhere():
    rng = np.random.default_rng(3)
    S = np.full(4000, 2.0)
    for true in (1.0, 0.04):
        x = np.sqrt(true) * rng.normal(size=4000)
        sums = Sums(S * x + 0.5 * rng.normal(size=4000), S, np.full(4000, 0.25))
        found, variance = estimate(sums, np.zeros((4000, 0)), 0.2, 4.0)
        assert variance == pytest.approx(true, rel=0.15)
        least = 1 / (1 / true + 4 / 0.25)
        assert np.mean((found - x) ** 2) == pytest.approx(least, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_where_noise_drowns_everything_nothing_is_believed(seed):
    """What is most likely would be 0 or far too much here, depending on the noise: means stay
    near what is usual.
    """
    rng = np.random.default_rng([4, seed])
    S = rng.uniform(0.5, 3.0, 2000)
    x = 0.4 * rng.normal(size=2000)
    sums = Sums(S * x + 30.0 * rng.normal(size=2000), S, np.full(2000, 900.0))
    found, variance = estimate(sums, prior_features(2000, None, np.log(S)), 0.2, 4.0)
    assert 0.05 < variance < 0.6
    assert np.mean((found - x) ** 2) < 1.15 * np.mean(x**2)


def test_without_anything_to_explain_by_there_is_nothing_explained():
    _, _, sums = planted(2, 0.9)
    found, T = estimate(sums, np.zeros((800, 0)), 0.2, 4.0)
    np.testing.assert_allclose(found, T * sums.S * sums.z / (T * sums.S**2 + sums.D))


# ------------------------------------------------------------ the model


@pytest.fixture(scope="module")
def cinema():
    return random_ratings(discreet.load_dataset("cinema", scale=0.1), (0.8, 0.1, 0.1), seed=5)


GENRES = {film.id: "|".join(film.genres) for film in films()}
SAME = dict(
    goal="rating", epsilon=3.0, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=0
)


def test_it_is_worth_it(cinema):
    score = lambda model: discreet.evaluate(model, cinema, metrics=["rmse"]).values["rmse"]  # noqa: E731
    enough = SAME | dict(epsilon=20.0)  # for pairs to be bought
    plain = discreet.DPMF(**enough).fit(cinema.train)
    ours = discreet.DPMF(item_features=GENRES, **enough).fit(cinema.train)
    assert score(ours) < score(plain) - 0.005
    assert ours.details_["feature_strength"] > 0
    assert ours.privacy_.epsilon == plain.privacy_.epsilon
    releases = [[entry.name for entry in model.privacy_.ledger.entries] for model in (ours, plain)]
    assert releases[0] == releases[1]
    assert [a.text for a in ours.privacy_.assumptions if a.name == "features"] == [
        "the features of the items, 16 for each"
    ]


def test_items_that_nobody_rated_are_predicted_by_their_features(cinema):
    heard = cinema.train.filter(items=cinema.train.item_ids[:400])
    ids = [*heard.item_ids.tolist(), *(film.id for film in films()[400:])]
    ratings = discreet.Ratings.from_indices(
        heard.indptr, heard.indices, heard.values, heard.user_ids, ids, catalog=True
    )
    others = cinema.train.filter(items=ids[400:])
    enough = SAME | dict(epsilon=50.0)  # for features to be found to explain something
    plain = discreet.DPMF(**enough).fit(ratings)
    ours = discreet.DPMF(item_features=GENRES, **enough).fit(ratings)
    off = [
        np.sqrt(np.mean((model.predict(ratings, others) - others.values) ** 2))
        for model in (ours, plain)
    ]
    assert off[0] < off[1] - 0.01
    size = [np.linalg.norm(model.item_factors_[400:, 2:], axis=1) for model in (ours, plain)]
    assert size[0].min() > 0
    assert size[0].mean() > 5 * size[1].mean()


def liked_if_popular(ratings):
    """The same people and films, but films are rated by how often they are watched, and a
    little by chance.
    """
    counts = np.bincount(ratings.indices, minlength=ratings.n_items)
    liked = 1.5 + 2.5 * counts.argsort().argsort() / ratings.n_items
    values = liked[ratings.indices] + np.random.default_rng(0).uniform(-1, 1, ratings.n_ratings)
    return discreet.Ratings.from_indices(
        ratings.indptr,
        ratings.indices,
        values.astype(np.float32),
        ratings.user_ids,
        ratings.item_ids,
        catalog=True,
    )


def test_popularity_alone(cinema):
    ratings = liked_if_popular(cinema.train)
    model = discreet.DPMF.configure(popularity=True, **SAME).fit(ratings)
    plain = discreet.DPMF.configure(popularity=False, **SAME).fit(ratings)
    usual = discreet.DPMF(**SAME).fit(ratings)
    assert not np.array_equal(model.item_biases_, plain.item_biases_)
    assert np.array_equal(usual.item_biases_, model.item_biases_)
    assert "features" not in {a.name for a in model.privacy_.assumptions}
    without = discreet.DPMF.configure(item_features=GENRES, popularity=False, **SAME).fit(ratings)
    both = discreet.DPMF(item_features=GENRES, **SAME).fit(ratings)
    assert not np.array_equal(without.item_factors_, both.item_factors_)


def test_it_comes_back_from_disk(cinema, tmp_path):
    file = tmp_path / "genres.csv"
    file.write_text("item_id,genres\n" + "".join(f"{i},{genres}\n" for i, genres in GENRES.items()))
    models = [
        discreet.DPMF(item_features=given, **SAME).fit(cinema.train)
        for given in (str(file), file, GENRES)
    ]
    for model in models:
        model.save(tmp_path / "model", replace=True)
        again = discreet.load(tmp_path / "model")
        assert again.item_features is None, "features are input, like ratings"
        saved = b"".join(part.read_bytes() for part in (tmp_path / "model").iterdir())
        assert b"genres.csv" not in saved
        assert str(tmp_path).encode() not in saved
        assert np.array_equal(
            again.predict(cinema.train, cinema.train), model.predict(cinema.train, cinema.train)
        )
        assert np.array_equal(model.item_factors_, models[0].item_factors_), (
            "all three are the same features"
        )
    assert "item_features='<dict>'" in repr(models[2])
    assert "item_features='<ndarray>'" in repr(
        discreet.DPMF(item_features=genre_matrix(), epsilon=1.0, goal="rating")
    )


def test_features_of_other_items_are_refused(cinema):
    with pytest.raises(DataError, match="item_features has none of the 800 items"):
        discreet.DPMF(item_features={"nowhere": [1.0]}, epsilon=1.0, goal="rating").fit(
            cinema.train
        )


def test_the_kit_is_content():
    check_private_model(
        discreet.DPMF(
            2,
            epsilon=5.0,
            iterations=2,
            rating_range=(1, 5),
            item_features={item: [item % 3, item / 7] for item in range(101, 161, 2)},
            goal="rating",
        ),
        people=4,
    )
