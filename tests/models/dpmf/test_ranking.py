"""Lists from pairs: without noise it is a dense computation, and where pairs do not pay it is
private popularity.
"""

import numpy as np
import pytest
from scipy.stats import norm

import discreet
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.models.dpmf.ranking import PairRanking
from discreet.privacy.release.unsafe import NoNoise
from discreet.testing import check_private_model

N_ITEMS = 40


def people(n=1500, taste=0.9, seed=0, n_items=N_ITEMS, stars=False):
    """Two tastes, and popularity that falls; with `stars`, what is not to somebody's taste was
    rated low.
    """
    rng = np.random.default_rng(seed)
    popular = np.linspace(0.5, 0.05, n_items)
    mine = np.where(np.arange(n_items) % 2 == rng.integers(0, 2, n)[:, None], 1 + taste, 1 - taste)
    X = rng.random((n, n_items)) < popular * mine
    values = X.astype(np.float32)
    if stars:
        low = (rng.random((n, n_items)) < 0.2) & ~X
        values = np.where(X, 4.0 + (rng.random(X.shape) < 0.5), np.where(low, 2.0, 0.0)).astype(
            np.float32
        )
    indptr = np.concatenate([[0], np.cumsum((values > 0).sum(axis=1))])
    user, item = np.nonzero(values)
    return Ratings.from_indices(
        indptr,
        item.astype(np.int32),
        values[user, item],
        np.arange(n),
        np.arange(n_items),
        catalog=True,
    )


def dense(ratings):
    X = np.zeros((ratings.n_users, ratings.n_items))
    X[np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr)), ratings.indices] = 1
    return X


def reference(X, H, mu, rank, rounds=12):
    """The algorithm as it was studied, in plain numpy and without noise, with all items in the core
    and no features.

    Twenty of forty items have most choices: so 0.35 of the rest buys counts again.
    """
    n = X.sum(axis=1)
    share = 0.65 * (1 - np.clip(0.1 * mu**-0.5, 0.05, 0.3) - 0.005)
    t = 1 / (mu * np.sqrt(share)) / np.sqrt(2)
    users = (n > 0).sum()
    c = np.maximum((X / np.sqrt(np.maximum(n, 1))[:, None]).sum(axis=0), 0.5)
    M = len(c)
    p = np.floor(2**16 * c / np.linalg.norm(c)) / 2**16
    W = np.eye(M) - 45 / 64 * np.outer(p, p)
    G = np.zeros((M, M))
    for x in X:
        own = W @ (np.outer(x, x) - np.diag(x)) @ W
        np.fill_diagonal(own, 0)
        if x.sum() > 1:
            G += own / np.linalg.norm(own)
    kappa = 0.3 * users / (c.sum() ** 2 - (c**2).sum())
    h = (t + np.sqrt(kappa) * c) ** -0.5
    a = h * c
    G = h[:, None] * G * h
    L, Q = np.linalg.eigh(G)
    L, Q = L[::-1][:rank], Q[:, ::-1][:, :rank]
    v = Q * np.sqrt(np.maximum(L, 1e-3 * L.max())) / a[:, None]
    m = np.median(np.abs(v[:, 0]))
    v = np.clip(v, -5 * m, 5 * m)
    mean = v.mean(axis=0)
    T = np.diag(((v - mean) ** 2).mean(axis=0) + 25e-7 * m**2)
    C = np.zeros((M, rank, rank))
    for _ in range(rounds):
        A = sum(a[j] ** 2 * (np.outer(v[j], v[j]) + C[j]) for j in range(M))
        right = [
            a[j] * (G[j] @ (a[:, None] * v)) + a[j] ** 4 * (v[j] @ v[j] * v[j] + C[j] @ v[j])
            for j in range(M)
        ]
        Ti = np.linalg.inv(T)
        C = np.array([np.linalg.inv(Ti + a[j] ** 2 * A) for j in range(M)])
        v = np.array([0.5 * v[j] + 0.5 * C[j] @ (right[j] + Ti @ mean) for j in range(M)])
        mean = v.mean(axis=0)
        T = ((v - mean).T @ (v - mean) + C.sum(axis=0)) / M
    v = np.linalg.inv(np.eye(M) - 45 / 64 * np.outer(c, c) / (c @ c)) @ (c[:, None] * v)
    v = np.sqrt(0.8) * v / c[:, None]
    Y = c[:, None] * v / np.sqrt(users)
    popular = (v * c[:, None]).sum(axis=0) / c.sum()
    e = popular / np.linalg.norm(popular)
    lean = min(1 / (np.sqrt(users) * np.linalg.norm(popular)), 1)
    prior = np.eye(rank) + (max(1 - lean**2, 0.02) - 1) * np.outer(e, e)
    y = H / np.sqrt(np.maximum(H.sum(axis=1), 1))[:, None]
    S = Y @ prior @ Y.T + np.diag(c / c.sum())
    u = lean * e + (y - lean * Y @ e) @ np.linalg.solve(S, Y @ prior)
    return np.where(H.sum(axis=1)[:, None] > 0, u, lean * e) @ Y.T / c**0.1


def test_without_noise_it_is_what_a_dense_computation_gives():
    """Scores are compared, which no turn of the factors changes; a wrong t would be off by 1e-4."""
    ratings, others = people(), people(50, seed=1)
    model = discreet.DPMF(4, epsilon=8.0, noise=NoNoise(), random_state=0).fit(ratings)
    found = np.array(
        [model.predict(others, [(u, i) for i in range(N_ITEMS)]) for u in others.user_ids[:20]]
    )
    mu = discreet_mu(8.0)
    expected = reference(dense(ratings), dense(others)[:20], mu, 4)
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


def discreet_mu(epsilon, delta=1e-6):
    """From the definition of Gaussian differential privacy, by bisection."""
    low, high = 1e-3, 50.0
    for _ in range(200):
        mu = (low + high) / 2
        spent = norm.cdf(-epsilon / mu + mu / 2) - np.exp(
            epsilon + norm.logcdf(-epsilon / mu - mu / 2)
        )
        low, high = (low, mu) if spent > delta else (mu, high)
    return low


def half_right(model, ratings):
    """The share of what is recommended that is of the taste of the history, among items of
    either.
    """
    lists, _ = model.recommend_many(ratings, 5)
    X = dense(ratings)
    likes_odd = X[:, 1::2].sum(axis=1) > X[:, ::2].sum(axis=1)
    return float(((lists % 2 == 1) == likes_odd[:, None]).mean())


def test_it_finds_taste_and_says_so():
    model = discreet.DPMF(epsilon=2.0).fit(people(4000))
    assert "of taste (the item-pair signal is" in model.summary_
    assert model.details_["dimensions"] >= 1
    assert half_right(model, people(300, seed=1)) > 0.85
    ids, cosine = model.similar_items(0, 5)
    assert (ids % 2 == 0).all()
    assert (cosine < 1.001).all()
    assert model.summary_ in model.card()


def test_without_signal_it_is_popularity_with_the_whole_budget(caplog):
    ratings = people(60)
    model = discreet.DPMF(epsilon=0.5, noise="seeded", random_state=1).fit(ratings)
    assert model.item_factors_.shape == (N_ITEMS, 0)
    assert "Learned item popularity only" in model.summary_
    assert "times as many users" in model.summary_
    assert np.array_equal(
        np.argsort(-model.item_biases_), np.argsort(-model.counts_.astype(np.float32))
    )
    lists, _ = model.recommend_many(people(20, seed=1), 5, exclude_seen=False)
    assert (lists == lists[0]).all()
    with pytest.raises(ConfigError, match=r"nothing to compare items by\. Learned"):
        model.similar_items(0)
    counting = [line for line in model.price_list(N_ITEMS) if line["name"] != "size"]
    together = sum(line["deviation"] ** -2 for line in counting) ** -0.5
    assert together < 1.005 / discreet_mu(0.5)  # as exact as one release with the whole budget
    names = [entry.name for entry in model.privacy_.ledger.entries]
    assert names == ["counts", "size", "item pairs 1 (or counts)", "item pairs 2 (or counts)"]
    assert {entry.shape for entry in model.privacy_.ledger.entries} == {(N_ITEMS,), (1,)}


def test_where_pairs_hold_nothing_but_noise_it_is_popularity_as_well():
    """Everybody is alike, so that pairs are bought, and nothing is heard in them."""
    model = discreet.DPMF(epsilon=5.0, noise="seeded", random_state=0).fit(people(3000, taste=0.0))
    names = {entry.name: entry.shape for entry in model.privacy_.ledger.entries}
    assert names["item pairs 1 (or counts)"] != (N_ITEMS,)
    assert model.item_factors_.shape == (N_ITEMS, 0)
    assert "Learned item popularity only" in model.summary_
    assert "no taste beyond popularity" in model.summary_


def tried(n, n_items, taste, seed=0):
    """A training whose signal is near the gate, and the shapes of what it released."""
    model = discreet.DPMF.configure(epsilon=1.0, gate=5.2, noise="seeded", random_state=seed)
    model.fit(people(n, taste, n_items=n_items))
    return model, {entry.name: entry.shape for entry in model.privacy_.ledger.entries}


@pytest.mark.parametrize(("n", "n_items"), [(400, 1200), (600, 400)])
def test_near_the_gate_a_part_tries_pairs(n, n_items):
    """With taste both parts buy pairs, which are averaged by their noise as if bought at once; 400
    items have two releases by plan, and 1,200 divide theirs.
    """
    model, shapes = tried(n, n_items, taste=0.9)
    once = discreet.DPMF.configure(epsilon=1.0, gate=0.0, noise="seeded", random_state=0)
    once.fit(people(n, n_items=n_items))
    assert shapes["item pairs 1 (or counts)"] == shapes["item pairs 2 (or counts)"] != (n_items,)
    assert "item pairs (or counts)" not in shapes
    assert model.privacy_.epsilon <= 1.0 + 1e-9
    assert half_right(model, people(200, seed=1, n_items=n_items)) == pytest.approx(
        half_right(once, people(200, seed=1, n_items=n_items)), abs=0.03
    )
    [row] = model.released_.rows
    [at_once] = once.released_.rows
    assert row.pairs_deviation == pytest.approx(at_once.pairs_deviation, rel=1e-9)


@pytest.mark.parametrize(("n", "n_items"), [(400, 1200), (600, 400)])
def test_pairs_that_were_tried_in_vain_leave_most_of_the_budget_to_counts(n, n_items):
    model, shapes = tried(n, n_items, taste=0.0)
    assert shapes["item pairs 1 (or counts)"] == (n_items,)
    assert shapes["item pairs 2 (or counts)"] != (n_items,)
    assert model.item_factors_.shape == (n_items, 0)
    assert "no taste beyond popularity" in model.summary_
    ratings = people(n, 0.0, n_items=n_items)
    exact = (dense(ratings) / np.sqrt(dense(ratings).sum(axis=1))[:, None]).sum(axis=0)
    first = np.clip(0.1 * discreet_mu(1.0) ** -0.5, 0.05, 0.3)
    spent = first + 0.65 * (1 - first - 0.005)
    off = np.std(model.counts_ - exact)
    assert off == pytest.approx(1 / discreet_mu(1.0) / np.sqrt(spent), rel=0.1)


def test_counts_are_averaged_by_their_noise():
    ratings = people(200, n_items=1200)
    exact = (dense(ratings) / np.sqrt(dense(ratings).sum(axis=1))[:, None]).sum(axis=0)
    off = [
        discreet.DPMF.configure(epsilon=1.0, gate=1e9, noise="seeded", random_state=seed)
        .fit(ratings)
        .counts_
        - exact
        for seed in range(3)
    ]
    assert np.std(off) == pytest.approx(1 / discreet_mu(1.0), rel=0.05)


def test_with_few_dominant_items_a_part_of_the_rest_counts_again():
    rng = np.random.default_rng(3)
    few = people(6000, n_items=30)
    model = discreet.DPMF(epsilon=5.0).fit(few)
    shapes = {entry.name: entry.shape for entry in model.privacy_.ledger.entries}
    assert shapes["item pairs 1 (or counts)"] == (15, 29)
    assert shapes["item pairs 2 (or counts)"] == (30,)
    many = Ratings.from_indices(
        np.arange(0, 6000 * 20 + 1, 20),
        np.concatenate([np.sort(rng.choice(400, 20, replace=False)) for _ in range(6000)]).astype(
            np.int32
        ),
        np.ones(6000 * 20, np.float32),
        np.arange(6000),
        np.arange(400),
        catalog=True,
    )
    model = discreet.DPMF(epsilon=20.0).fit(many)
    shapes = {entry.name: entry.shape for entry in model.privacy_.ledger.entries}
    assert shapes["item pairs 1 (or counts)"] == shapes["item pairs 2 (or counts)"]
    assert shapes["item pairs 1 (or counts)"][0] > 60
    assert model.details_["dimensions"] == 0


def test_from_ratings_everything_counts_by_its_place_in_the_range():
    stars = people(3000, stars=True)
    model = discreet.DPMF(epsilon=5.0, rating_range=(1, 5), noise=NoNoise(), random_state=0).fit(
        stars
    )
    X = dense(stars)
    X[X > 0] = (stars.values - 1) / 4
    assert model.counts_ == pytest.approx(
        (X / np.linalg.norm(X, axis=1, keepdims=True)).sum(axis=0), rel=1e-5
    )
    assert model.algorithm_.like_threshold == 4.0
    assert np.array_equal(model.recommend([0, 2])[1], model.recommend({0: 5, 2: 5})[1])
    even, odd = (
        np.mean([model.predict(model_history(low), [(0, i)])[0] for i in (8, 10)]) for low in (2, 5)
    )
    assert odd > even  # the more an even item is liked, the higher other even items
    assert not any(assumed.inferred for assumed in model.privacy_.assumptions)


def model_history(rating):
    """Somebody who likes an odd item, and an even one so much."""
    return Ratings.from_arrays([0, 0], [1, 2], [5.0, float(rating)])


def test_whoever_likes_nothing_is_taken_at_less_than_their_word():
    model = discreet.DPMF(epsilon=5.0, rating_range=(1, 5)).fit(people(4000, stars=True))
    everybody = model.fold_in([])
    far = [np.linalg.norm(model.fold_in({4: rating}) - everybody) for rating in (1, 2, 3, 4, 5)]
    assert far[0] == 0
    assert far[1] < 0.5 * far[3]
    assert far[3] == pytest.approx(far[4], rel=1e-5)


def test_without_grades_only_what_is_liked_counts():
    stars = people(3000, stars=True)
    given = dict(epsilon=5.0, noise="seeded", random_state=0)
    by_stars = discreet.DPMF.configure(rating_range=(1, 5), levels=1, **given).fit(stars)
    liked = discreet.DPMF.configure(like_threshold="everything", **given).fit(stars.binarize(4.0))
    assert np.allclose(by_stars.counts_, liked.counts_, atol=1e-6)
    one, other = by_stars.recommend({0: 5, 2: 4, 3: 1})[1], liked.recommend([0, 2], exclude=[3])[1]
    assert np.allclose(one, other, rtol=1e-4)


def test_what_counts_as_liked_is_read_from_the_data_with_a_caution():
    stars = discreet.DPMF(epsilon=5.0).fit(people(800, stars=True))
    assert stars.algorithm_.like_threshold == 2 + 0.75 * 3
    assert "range of ratings" in " ".join(stars.privacy_.cautions)
    plain = discreet.DPMF(epsilon=5.0).fit(people(800))
    assert plain.algorithm_.like_threshold == "everything"
    assert "everything chosen is liked" in " ".join(plain.privacy_.cautions)
    told = discreet.DPMF.configure(epsilon=5.0, like_threshold="everything").fit(people(800))
    assert not told.privacy_.cautions


def test_somebody_without_a_history_gets_what_is_popular():
    model = discreet.DPMF(epsilon=5.0).fit(people(4000))
    ids, _ = model.recommend([], 10)
    assert len(set(ids.tolist()) & set(np.argsort(-model.counts_)[:10].tolist())) >= 8
    nothing_liked = discreet.DPMF(epsilon=5.0, rating_range=(1, 5)).fit(people(4000, stars=True))
    one, other = nothing_liked.recommend({39: 1.0}, 5), nothing_liked.recommend([], 5, exclude=[39])
    assert np.array_equal(one[0], other[0])


def test_items_outside_the_core_are_reached_by_features():
    ratings = people(6000, n_items=60)
    kind = np.column_stack([np.arange(60) % 2, np.arange(60) % 2 == 0]).astype(float)
    settings = dict(epsilon=10.0, largest_core=40, core_from=0.01, noise="seeded", random_state=0)
    plain = discreet.DPMF.configure(**settings).fit(ratings)
    ours = discreet.DPMF.configure(item_features=kind, **settings).fit(ratings)
    outside = np.setdiff1d(np.arange(60), ours.details_["core"])
    assert len(outside) == 20
    history = [item for item in ours.details_["core"] if item % 2][:4]
    shown = Ratings.from_arrays([0] * 4, history)
    scores = ours.predict(shown, [(0, int(j)) for j in outside])
    assert scores[outside % 2 == 1].mean() > 1.5 * scores[outside % 2 == 0].mean()
    with pytest.raises(ConfigError, match="no factors were learned for"):
        plain.similar_items(int(outside[0]))
    assert (ours.similar_items(int(outside[0]), 3)[0] % 2 == outside[0] % 2).all()


def test_features_that_say_nothing_do_no_harm():
    ratings, others = people(4000), people(300, seed=1)
    noise = np.random.default_rng(0).normal(size=(N_ITEMS, 5))
    settings = dict(epsilon=2.0, noise="seeded", random_state=0)
    plain, ours = (
        discreet.DPMF(item_features=given, **settings).fit(ratings) for given in (None, noise)
    )
    assert half_right(ours, others) > half_right(plain, others) - 0.02


def test_it_comes_back_as_it_was(tmp_path):
    model = discreet.DPMF(epsilon=5.0, rating_range=(1, 5)).fit(people(2000, stars=True))
    model.save(tmp_path / "model")
    again = discreet.load(tmp_path / "model")
    others = people(50, seed=1, stars=True)
    assert all(map(np.array_equal, model.recommend_many(others), again.recommend_many(others)))
    assert again.summary_ == model.summary_
    assert again.algorithm_ == model.algorithm_
    assert (tmp_path / "model" / "model.json").stat().st_size < 20_000


@pytest.mark.parametrize(
    "given",
    [
        dict(epsilon=8.0, factors=4, rating_range=(1, 5)),
        dict(epsilon=8.0, factors=4, rating_range=(1, 5), neighboring="replace-one"),
        dict(epsilon=4.0, like_threshold="everything"),
        dict(epsilon=0.3, like_threshold="everything"),
    ],
    ids=["ratings", "replace-one", "choices", "too faint for pairs"],
)
def test_it_keeps_every_rule(given):
    check_private_model(discreet.DPMF.configure(goal="ranking", **given), people=9, draws=1000)


def test_what_cannot_be_done_is_said():
    for wrong, message in (
        (dict(iterations=3), "iterations is for goal='rating'"),
        (dict(goal="lists"), "goal is 'lists', but must be 'ranking' or 'rating'"),
        (dict(factors=0), "factors is 0"),
        (dict(algorithm=PairRanking(gate=-1.0)), "gate is -1"),
        (
            dict(algorithm=PairRanking(largest_core=10_001)),
            "largest_core is 10001, but at most 10,000",
        ),
        (dict(algorithm=PairRanking(levels=21)), "levels is 21, but must be at most 20"),
        (dict(algorithm=PairRanking(like_threshold="all")), "like_threshold is 'all'"),
        (dict(algorithm=PairRanking(counts_share=1.0)), "counts_share is 1.0"),
    ):
        with pytest.raises(ConfigError, match=message):
            discreet.DPMF(epsilon=1.0, **wrong).check()


@pytest.mark.parametrize("n_items", [1, 2, 3, 4, 5])
def test_tiny_catalogs(n_items):
    model = discreet.DPMF(epsilon=50.0).fit(people(500, n_items=n_items))
    assert np.isfinite(model.item_factors_).all()
    assert len(model.recommend([0], 5)[0]) == n_items - 1
