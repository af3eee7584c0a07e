"""ALS against a plain loop, against its own loss written out, against another library, and on
real data.
"""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import discreet
from discreet import ALS, Bias, Popularity, Ratings, evaluate
from discreet.data.cinema import make_cinema
from discreet.data.splits import k_fold, random_ratings
from discreet.errors import ConfigError, DataError, NotFittedError
from research.families import Family, made

SETTINGS = [
    {},
    {"intercepts": False},
    {"weighting": "row"},
    {"weighting": "row", "intercepts": False, "user_exponent": 1.0, "item_exponent": 0.0},
    {"user_exponent": 0.0, "item_exponent": 1.0, "regularization": 3.0},
    {"unobserved_weight": 0.05},
    {"unobserved_weight": 0.05, "intercepts": False},
    {"goal": "ranking", "regularization": 2.0},
    {"goal": "ranking", "weighting": "row", "unobserved_weight": 0.3, "regularization": 1.0},
    {"goal": "ranking", "user_exponent": 1.0, "item_exponent": 0.0, "unobserved_weight": 0.0},
]


def names(setting):
    return ",".join(f"{k}={v}" for k, v in setting.items()) or "default"


def some_ratings(seed=0, n=23, m=17, density=0.4):
    """Random ratings with a user and an item that nobody has anything to do with."""
    rng = np.random.default_rng(seed)
    mask = rng.random((n, m)) < density
    mask[3] = mask[:, 5] = False
    mask[4] = True
    mask[4, 5] = False
    values = rng.integers(1, 6, (n, m)).astype(np.float32)
    return Ratings.from_csr(sparse.csr_array((values[mask], np.nonzero(mask)), shape=(n, m)))


def model(setting, **more):
    return ALS(
        4,
        **(
            {"regularization": 0.7, "iterations": 3, "dtype": "float64", "random_state": 2}
            | setting
            | more
        ),
    )


# ------------------------------------------------------------ the loss (24), dense and plain


class Plain:
    """The loss (24) and its alternating minimization as one would write it down first, with
    dense matrices.
    """

    def __init__(self, als, ratings):
        p = als.get_params()
        self.explicit = p["goal"] == "rating"
        self.intercepts = self.explicit and p["intercepts"] is not False
        self.observed = ratings.to_csr().toarray() != 0  # all values are at least 1
        self.mean = ratings.values.mean(dtype=np.float64) if self.explicit else 0.0
        self.M = (
            ratings.to_csr().toarray().astype(np.float64)
            if self.explicit
            else self.observed.astype(np.float64)
        )
        # how much weaker the ridge of an intercept is
        self.s2 = 2 * ratings.values.std(dtype=np.float64)
        self.lam0 = {None: 0.0 if self.explicit else 0.1}.get(
            p["unobserved_weight"], p["unobserved_weight"]
        )
        self.user_ridge, self.item_ridge = (
            p["regularization"] * self.weights(self.observed.sum(axis), exponent, p["weighting"])
            for axis, exponent in ((1, p["user_exponent"]), (0, p["item_exponent"]))
        )

    @staticmethod
    def weights(counts, exponent, weighting):
        w = np.maximum(counts, 1.0) ** exponent
        return w / ((w * counts).sum() / counts.sum() if weighting == "rating" else w.mean())

    def loss(self, U, a, V, b):
        fit = self.M - self.mean - a[:, None] - b - U @ V.T
        size = [(x**2).sum(1) + c**2 / self.s2 for x, c in ((U, a), (V, b))]
        return (
            (fit[self.observed] ** 2).sum()
            + self.lam0 * ((U @ V.T) ** 2).sum()
            + self.user_ridge @ size[0]
            + self.item_ridge @ size[1]
        )

    def step(self, M, observed, Y, offset, ridge):
        """Rows of the left factor: the normal equations, row by row."""
        r = Y.shape[1]
        X, c = np.zeros((len(M), r)), np.zeros(len(M))
        Y1 = np.column_stack([Y, np.full(len(Y), self.s2**0.5)]) if self.intercepts else Y
        for i in range(len(M)):
            j = np.flatnonzero(observed[i])
            A = Y1[j].T @ Y1[j] + ridge[i] * np.eye(Y1.shape[1])
            A[:r, :r] += self.lam0 * Y.T @ Y
            x = np.linalg.solve(A, Y1[j].T @ (M[i, j] - self.mean - offset[j]))
            X[i], c[i] = x[:r], self.s2**0.5 * x[r] if self.intercepts else 0.0
        return X, c

    def sweep(self, V, b):
        U, a = self.step(self.M, self.observed, V, b, self.user_ridge)
        return U, a, *self.step(self.M.T, self.observed.T, U, a, self.item_ridge)


def start(als, m):
    """The first item factors; implicit feedback has its own scale, so tests that need them say
    `initial_scale`.
    """
    return als.initial_scale * np.random.default_rng(als.random_state).standard_normal(
        (m, als.factors)
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=names)
def test_equals_a_plain_loop(setting):
    ratings = some_ratings()
    als = model(setting, initial_scale=0.3).fit(ratings)
    plain = Plain(als, ratings)
    V, b = start(als, ratings.n_items), np.zeros(ratings.n_items)
    for _ in range(als.iterations):
        V, b = plain.sweep(V, b)[2:]
    U, a, *_ = plain.sweep(V, b)
    np.testing.assert_allclose(als.item_factors_, V, atol=1e-8)
    np.testing.assert_allclose(als.item_biases_, b, atol=1e-8)
    vectors, offsets = als.fold(ratings.indptr, ratings.indices, ratings.values)
    np.testing.assert_allclose(vectors, U, atol=1e-8)
    np.testing.assert_allclose(offsets, plain.mean + a, atol=1e-8)


@pytest.mark.parametrize("setting", SETTINGS, ids=names)
def test_every_half_step_minimizes_the_loss_over_its_side(setting):
    ratings = some_ratings(1)
    sweeps = [model(setting, iterations=t).fit(ratings) for t in range(1, 6)]
    plain = Plain(sweeps[0], ratings)
    losses, before = [], None
    for als in sweeps:
        V, b = als.item_factors_, als.item_biases_
        if before is not None:
            losses.append(plain.loss(*before, V, b))
            assert np.abs(gradient(lambda v, c, u=before: plain.loss(*u, v, c), V, b)).max() < 1e-4
        U, offset = als.fold(ratings.indptr, ratings.indices, ratings.values)
        before = U, offset - plain.mean
        losses.append(plain.loss(*before, V, b))
        assert np.abs(gradient(lambda u, c, v=(V, b): plain.loss(u, c, *v), *before)).max() < 1e-4
    assert len(losses) == 9
    assert all(np.diff(losses) <= 1e-9 * losses[0]), losses
    if not Plain(sweeps[0], ratings).intercepts:
        assert not before[1].any()


def gradient(f, X, c, h=1e-5):
    """Central differences of f(X, c) in a few directions along X, and along c where there are
    intercepts.
    """
    rng, slopes = np.random.default_rng(0), []
    for _ in range(10):
        dX, dc = rng.standard_normal(X.shape), rng.standard_normal(len(c)) * bool(c.any())
        slopes.append((f(X + h * dX, c + h * dc) - f(X - h * dX, c - h * dc)) / (2 * h))
    return np.array(slopes)


# ------------------------------------------------------------ right answers that can be proved


def test_checkerboard_is_completed():
    """A checkerboard has rank 2; with half of it hidden the rest is implied, so ALS must
    predict the hidden half.
    """
    n, m = 40, 30
    board = 1.0 + 4.0 * ((np.arange(n)[:, None] + np.arange(m)) % 2)
    shown = np.random.default_rng(0).random((n, m)) < 0.5
    ratings = Ratings.from_csr(sparse.csr_array(np.where(shown, board, 0)))
    als = ALS(1, regularization=1e-6, iterations=60, dtype="float64").fit(ratings)
    hidden = np.argwhere(~shown)
    np.testing.assert_allclose(als.predict(ratings, hidden), board[tuple(hidden.T)], atol=1e-4)
    ids, scores = als.recommend(ratings.select_users([0]), n=m)
    assert set(ids[scores > 3]) == set(np.flatnonzero(~shown[0] & (board[0] == 5)))


@pytest.mark.parametrize("rank", [1, 3])
def test_planted_matrix_is_recovered(rank):
    rng = np.random.default_rng(rank)
    n, m = 60, 50
    truth = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m)) + 3
    shown = rng.random((n, m)) < 0.5
    ratings = Ratings.from_csr(sparse.csr_array(np.where(shown, truth, 0)))
    als = ALS(
        rank + 1,
        intercepts=False,
        regularization=1e-7,
        user_exponent=0,
        item_exponent=0,
        iterations=300,
        initial_scale=1.0,
        dtype="float64",
    ).fit(ratings)
    # one factor more than planted, because subtracting the mean of what is shown leaves a constant
    # over
    U, offset = als.fold(ratings.indptr, ratings.indices, ratings.values)
    np.testing.assert_allclose(offset[:, None] + U @ als.item_factors_.T, truth, atol=1e-3)


def test_implicit_feedback_equals_the_implicit_package():
    """Same path, step by step, as `implicit` with its exact solver, once the two parameterisations
    are matched.

    There the loss is Σ_{all} c (p − s)² + reg · (‖X‖² + ‖Y‖²), with c = 1 and p = 0 outside Ω. On
    Ω, up to a constant,

        c (1 − s)² = (c − 1) (s − c / (c − 1))² + s²,

    so with c = 1 + 1/λ₀ it is 1/λ₀ times our loss with the target 1 + λ₀ in the place of 1. Factors
    √(1 + λ₀) times ours turn one into the other if reg = λ (1 + λ₀) / λ₀.
    """
    from implicit.cpu.als import AlternatingLeastSquares

    ratings = some_ratings(3, n=60, m=40, density=0.2)
    lam, lam0, r, scale = 1.3, 0.25, 5, 0.4
    stretch = np.sqrt(1 + lam0)
    ours = ALS(
        r,
        goal="ranking",
        regularization=lam,
        unobserved_weight=lam0,
        user_exponent=0,
        item_exponent=0,
        iterations=4,
        initial_scale=scale,
        dtype="float64",
    ).fit(ratings)

    with threadpool_limits(1, "blas"):  # it warns otherwise
        theirs = AlternatingLeastSquares(
            r,
            regularization=lam * (1 + lam0) / lam0,
            iterations=4,
            use_cg=False,
            dtype=np.float64,
            num_threads=1,
        )
    theirs.item_factors = stretch * start(ours, ratings.n_items)
    confidence = sparse.csr_matrix(ratings.to_csr(), copy=True)
    confidence.data[:] = 1 + 1 / lam0
    theirs.fit(confidence, show_progress=False)
    rated = np.bincount(ratings.indices, minlength=ratings.n_items) > 0
    np.testing.assert_allclose(
        stretch * ours.item_factors_[rated], theirs.item_factors[rated], atol=1e-6
    )


def test_implicit_feedback_ignores_the_values():
    ratings = some_ratings()
    ones = ratings.binarize(0)
    als = [model({"goal": "ranking"}).fit(r) for r in (ratings, ones)]
    assert np.array_equal(als[0].item_factors_, als[1].item_factors_)
    assert np.array_equal(als[0].recommend({2: 5.0, 7: 1.0})[1], als[1].recommend([2, 7])[1])


def test_a_strong_ridge_leaves_the_mean():
    ratings = some_ratings()
    als = ALS(3, regularization=1e9).fit(ratings)
    np.testing.assert_allclose(als.predict(ratings, ratings), ratings.values.mean(), rtol=1e-5)


@pytest.mark.parametrize("goal", ["rating", "ranking"])
@pytest.mark.parametrize("n", [200, 1000])
def test_the_defaults_suit_small_data_too(goal, n):
    """The default λ follows the amount of data: a fixed one would shrink every vector to
    nothing here.
    """
    ratings = make_cinema(seed=3).select_users(np.arange(n)).filter(min_item_ratings=1)
    ratings = ratings if goal == "rating" else ratings.binarize(4)
    scores = []
    for seed in (7, 8):
        split = random_ratings(ratings, (0.8, 0.2), seed=seed)
        metric = "rmse" if goal == "rating" else "ndcg@20"
        models = ALS(goal=goal), Bias() if goal == "rating" else Popularity()
        scores.append(
            [
                evaluate(m.fit(split.train), split, metric, slices=None).values[metric]
                for m in models
            ]
        )
    als, baseline = np.mean(scores, axis=0)
    assert als < baseline if goal == "rating" else als > 1.2 * baseline


def test_the_unit_of_the_ratings_does_not_matter():
    stars = make_cinema(scale=0.02)
    percents = Ratings.from_indices(
        stars.indptr, stars.indices, 20 * stars.values, stars.user_ids, stars.item_ids
    )
    one = ALS(8, dtype="float64", initial_scale=0.3).fit(stars)
    other = ALS(8, dtype="float64", initial_scale=0.3 * 20**0.5).fit(percents)
    assert other.regularization_ == pytest.approx(20 * one.regularization_)
    np.testing.assert_allclose(
        other.predict(percents, percents), 20 * one.predict(stars, stars), rtol=1e-4
    )


def test_vectors_shrunk_to_nothing_are_said(caplog):
    ALS(3, regularization=1e6).fit(some_ratings())
    assert "has shrunk every vector to zero: lower it" in caplog.text


def test_float32_is_close_to_float64():
    ratings = some_ratings()
    for setting in SETTINGS:
        single, double = (model(setting, dtype=d).fit(ratings) for d in ("float32", "float64"))
        assert single.item_factors_.dtype == np.float32
        assert double.item_factors_.dtype == np.float64
        np.testing.assert_allclose(
            single.predict(ratings, ratings),
            double.predict(ratings, ratings),
            atol=2e-3,
            err_msg=names(setting),
        )


# ------------------------------------------------------------ being an estimator


@pytest.mark.parametrize("goal", ["rating", "ranking"])
def test_refit_starts_afresh(goal):
    first, second = some_ratings(1), some_ratings(2, n=31, m=19)
    fresh = model({"goal": goal}).fit(second)
    again = model({"goal": goal}).fit(first).fit(second)
    assert np.array_equal(fresh.item_factors_, again.item_factors_)
    assert np.array_equal(fresh.item_biases_, again.item_biases_)
    assert fresh.state() == again.state()
    assert fresh.rating_range_ == again.rating_range_
    assert len(again.item_ids_) == 19


def test_an_interrupted_refit_leaves_no_mixture():
    als = model({}).fit(some_ratings(1))

    def stop(done, total, text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        als.fit(some_ratings(2, m=19), progress=stop)
    with pytest.raises(NotFittedError):
        als.recommend([1])


def test_seeds():
    ratings = some_ratings()
    fits = {
        seed: [ALS(3, random_state=seed, iterations=1).fit(ratings).item_factors_ for _ in range(2)]
        for seed in (0, 1, None)
    }
    assert np.array_equal(*fits[0])
    assert np.array_equal(*fits[1])
    assert not np.array_equal(*fits[None])
    assert not np.array_equal(fits[0][0], fits[1][0])
    assert np.array_equal(fits[0][0], ALS(3, iterations=1).fit(ratings).item_factors_), (
        "the default seed is 0"
    )


def test_parameters_as_in_scikit_learn():
    als = ALS(7, regularization=2.5, goal="ranking", random_state=0)
    assert als.get_params()["factors"] == 7
    assert als.set_params(factors=3, iterations=2) is als
    twin = clone(als)
    assert twin is not als
    assert twin.get_params() == als.get_params() == als.get_params(deep=False)
    assert not hasattr(clone(als.fit(some_ratings())), "item_factors_")
    assert repr(als) == "ALS(factors=3, goal='ranking', iterations=2, regularization=2.5)"
    assert repr(ALS()) == "ALS()"
    with pytest.raises(ConfigError, match=r"ALS has no parameter 'rank': it has .*factors"):
        als.set_params(rank=3)
    with pytest.raises(TypeError):
        ALS(3, 15)


def test_fit_returns_self_and_reports_progress():
    seen = []
    als = ALS(2, iterations=3)
    assert als.fit(some_ratings(), progress=lambda *step: seen.append(step)) is als
    assert seen == [(1, 3, "sweeps"), (2, 3, "sweeps"), (3, 3, "sweeps")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"factors": 0}, "factors is 0, but must be a whole number of at least 1"),
        ({"factors": 2.5}, "factors is 2.5, but must be a whole number"),
        ({"factors": True}, "factors is True"),
        ({"iterations": 0}, "iterations is 0, but must be a whole number from 1 to 10,000"),
        (
            {"iterations": 10**9},
            "iterations is 1000000000, but must be a whole number from 1 to 10,000",
        ),
        ({"regularization": -1}, "regularization is -1, but must be a number of at least 0"),
        ({"regularization": float("nan")}, "regularization is nan"),
        ({"regularization": float("inf")}, "regularization is inf"),
        ({"regularization": "25"}, "regularization is '25'"),
        ({"unobserved_weight": -0.1}, "unobserved_weight is -0.1"),
        ({"user_exponent": None}, "user_exponent is None"),
        ({"item_exponent": -1}, "item_exponent is -1"),
        ({"initial_scale": 0}, "initial_scale is 0, but must be above 0"),
        ({"goal": "both"}, "goal is 'both', but must be 'rating' or 'ranking'"),
        ({"weighting": "user"}, "weighting is 'user', but must be 'rating' or 'row'"),
        ({"dtype": np.float32}, "dtype is .*, but must be 'float32' or 'float64'"),
        ({"intercepts": 1}, "intercepts is 1, but must be True, False or None"),
        ({"intercepts": True, "goal": "ranking"}, "only explicit feedback has intercepts"),
        ({"random_state": -1}, "random_state is -1, but must be a whole number of at least 0"),
        ({"random_state": "0"}, "random_state is '0'"),
    ],
)
def test_wrong_parameters_are_named_in_fit(wrong, message):
    als = ALS(**wrong)  # storing them is no crime
    with pytest.raises(ConfigError, match=message):
        als.fit(some_ratings())


def test_numpy_numbers_are_numbers():
    ALS(
        np.int32(2), regularization=np.float32(3), iterations=np.int64(1), random_state=np.uint8(3)
    ).fit(some_ratings())


def test_wrong_ratings_are_refused():
    ratings = some_ratings()
    with pytest.raises(
        DataError, match=r"fit needs Ratings, a frame or a sparse matrix, not a ndarray"
    ):
        ALS().fit(ratings.to_csr().toarray())
    with pytest.raises(DataError, match="the pandas Series is not a data frame"):
        ALS().fit(ratings.to_frame("pandas")["rating"])
    with pytest.raises(DataError, match="no ratings to learn from"):
        ALS().fit(ratings.keep(np.zeros(ratings.n_ratings, bool)))


# ------------------------------------------------------------ real data


def rmse(model, split):
    model.fit(split.train)
    predicted = model.predict(split.test.known, split.test.target)
    return float(np.sqrt(np.mean((predicted - split.test.target.values) ** 2)))


@pytest.mark.real_data
def test_ml_1m(shared_data):
    """The defaults on a random tenth of ML-1M: as good as tuned matrix factorization in the
    literature.
    """
    split = random_ratings(
        Ratings.read(shared_data / "ml-1m" / "ratings.parquet"), (0.9, 0.1), seed=0
    )
    als, bias = rmse(ALS(), split), rmse(Bias(), split)
    assert als <= 0.850
    assert als < bias - 0.05


@pytest.mark.real_data
def test_ml_100k(shared_data):
    """One fold of five, with the defaults."""
    split = k_fold(Ratings.read(shared_data / "ml-100k" / "ratings.parquet"), 5, seed=0)[0]
    assert rmse(ALS(), split) <= 0.915


def test_units_do_not_matter():
    """Ten times the ratings give ten times the predictions, with λ by the rule."""
    ratings = discreet.load_dataset("cinema", scale=0.03)
    ten = discreet.Ratings.from_csr(ratings.to_csr() * 10)
    once, tenfold = (discreet.ALS(8, dtype="float64").fit(data) for data in (ratings, ten))
    np.testing.assert_allclose(
        tenfold.predict(ten, ten), 10 * once.predict(ratings, ratings), rtol=1e-4
    )
    assert tenfold.regularization_ == pytest.approx(10 * once.regularization_, rel=1e-6)


def _by_the_rule(ratings):
    own, others = np.diff(ratings.indptr), np.bincount(ratings.indices)
    return (
        2.3
        * ratings.values.std()
        * np.average(own, weights=own) ** 0.1
        * np.average(others, weights=others) ** 0.25
    )


def test_the_search_for_lambda_follows_the_noise():
    """λ grows from the rule where ratings are noise, and not where they are taste."""
    factors = []
    for strength in (0.0, 3.0):
        ratings = made(Family("made", 2_000, 300, 30, taste=0.0, rank=3, strength=strength), 1)
        factors.append(ALS(8).fit(ratings).regularization_ / _by_the_rule(ratings))
    assert factors[0] > 1.4
    assert factors[1] < 1.1


def test_no_search_where_lambda_is_given_or_ratings_are_few(monkeypatch):
    def refuse(*given):
        raise AssertionError("searched")

    monkeypatch.setattr(ALS, "_error_on", refuse)
    ALS(2, regularization=3.0, iterations=2).fit(make_cinema(seed=3))
    ALS(2, goal="ranking", iterations=2).fit(make_cinema(seed=3))
    ALS(2, iterations=2).fit(some_ratings())
    with pytest.raises(AssertionError, match="searched"):
        ALS(2, iterations=2).fit(make_cinema(seed=3))
