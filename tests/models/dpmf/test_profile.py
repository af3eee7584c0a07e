"""A user's own profile in public features: weights that are estimated, and what they change."""

import numpy as np
import pytest

import discreet
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError
from discreet.models.dpmf.profile import newton_step, pack_integers, unpack_integers
from discreet.models.storage.load_scorer import open_model
from discreet.privacy.release.unsafe import NoNoise
from discreet.testing import check_private_model

N_ITEMS, N_AUTHORS = 300, 60


def readers(n=1500, seed=0, loyal=0.8):
    """Users who stay with a few authors, whose books are hardly read by anyone else."""
    rng = np.random.default_rng(seed)
    author = np.arange(N_ITEMS) % N_AUTHORS
    rows = []
    for _ in range(n):
        own = rng.choice(N_AUTHORS, 2, replace=False)
        mine = np.flatnonzero(np.isin(author, own))
        from_own = rng.random(8) < loyal
        picks = np.where(from_own, rng.choice(mine, 8), rng.integers(0, N_ITEMS, 8))
        rows.append(np.unique(picks))
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    values = np.ones(indptr[-1], np.float32)
    ids = np.arange(N_ITEMS)
    return Ratings.from_indices(
        indptr, np.concatenate(rows).astype(np.int32), values, np.arange(n), ids, catalog=True
    )


def catalog(seed=None):
    """A frame of items; with a seed, authors are shuffled among them."""
    import pandas as pd

    author = np.arange(N_ITEMS) % N_AUTHORS
    if seed is not None:
        author = np.random.default_rng(seed).permutation(author)
    return pd.DataFrame({"item_id": np.arange(N_ITEMS), "author": [f"writer {a}" for a in author]})


SEEDED = {"epsilon": 1.0, "noise": "seeded", "random_state": 0}


def own_author(model, ratings, n=5):
    """The share of lists that is by an author of the history."""
    lists, _ = model.recommend_many(ratings, n)
    hits = []
    for i, row in enumerate(lists):
        mine = ratings.indices[ratings.indptr[i] : ratings.indptr[i + 1]] % N_AUTHORS
        hits.append(np.isin(row % N_AUTHORS, mine).mean())
    return float(np.mean(hits))


def test_lists_follow_the_authors_of_the_history():
    """Where there is too little for factors, as for most shops."""
    ratings, others = readers(), readers(100, seed=1)
    plain = discreet.DPMF(**SEEDED).fit(ratings)
    ours = discreet.DPMF(item_features=catalog(), **SEEDED).fit(ratings)
    assert plain.item_factors_.shape[1] == 0
    assert own_author(plain, others) < 0.3
    assert own_author(ours, others) > 0.9
    assert "each user's own profile in author" in ours.summary_
    assert ours.details_["profile"]["weights"][1] > 0.3
    names = [entry.name for entry in ours.privacy_.ledger.entries]
    assert names[-2:] == ["feature weights 1", "feature weights 2"]
    assert "feature weights 1" not in [entry.name for entry in plain.privacy_.ledger.entries]


def test_new_items_are_listed_whatever_the_noise_made_of_their_counts():
    """Nothing was released about them, so half of their counts are below 0."""
    ratings, others = readers(3000), readers(200, seed=1)
    new = np.arange(0, N_AUTHORS, 2)
    train, shown = (
        all_of_them.keep(~np.isin(all_of_them.indices, new)).with_items(
            np.arange(N_ITEMS), public=True
        )
        for all_of_them in (ratings, others)
    )
    model = discreet.DPMF(item_features=catalog(), **(SEEDED | {"epsilon": 5.0})).fit(train)
    assert len(model.details_["core"]) == N_ITEMS - len(new)
    assert "profile" in model.details_
    lists, _ = model.recommend_many(shown, 10)
    places = np.bincount(lists.ravel(), minlength=N_ITEMS)[new]
    negative = model.counts_[new] < 0
    assert 0.3 < negative.mean() < 0.7
    assert places[negative].mean() > 0.7 * places[~negative].mean() > 0


def test_features_that_say_nothing_are_not_used():
    ratings = readers(loyal=0.0)
    model = discreet.DPMF(item_features=catalog(seed=1), **SEEDED).fit(ratings)
    assert "profile" not in model.details_
    assert "Profiles are not used: no weight of a feature stands out" in model.summary_
    lists, _ = model.recommend_many(readers(20, seed=1), 5, exclude_seen=False)
    assert (lists == lists[0]).all()


def test_a_user_without_a_history_gets_what_is_popular():
    model = discreet.DPMF(item_features=catalog(), **SEEDED).fit(readers())
    ids, _ = model.recommend([], 10)
    assert set(ids.tolist()) == set(np.argsort(-model.counts_, kind="stable")[:10].tolist())


def test_every_way_to_read_out_gives_the_same(tmp_path):
    ratings, others = readers(), readers(30, seed=1)
    model = discreet.DPMF(item_features=catalog(), **SEEDED).fit(ratings)
    model.save(tmp_path / "model")
    again = discreet.load(tmp_path / "model")
    lists, scores = model.recommend_many(others, 7)
    assert np.array_equal(lists, again.recommend_many(others, 7)[0])
    opened, once = (open_model(tmp_path / "model", once=one).scorer for one in (False, True))
    questions = []
    for i in range(others.n_users):
        at = others.indices[others.indptr[i] : others.indptr[i + 1]]
        values = np.ones(len(at), np.float32)
        questions.append((at, values, 7, True))
        for scorer in (opened, once):
            items, found = scorer.best(at, values, 7)
            assert np.array_equal(items, lists[i])
            assert np.allclose(found, scores[i], atol=1e-5)
    for (items, _), row in zip(opened.best_many(questions), lists, strict=True):
        assert np.array_equal(items, row)
    pairs = [(int(u), int(lists[u, 0])) for u in range(5)]
    assert np.allclose(model.predict(others, pairs), scores[:5, 0], atol=1e-5)
    at = others.indices[: others.indptr[1]]
    found, reasons = opened.explain(at, np.ones(len(at), np.float32), int(lists[0, 0]))
    same = found % N_AUTHORS == lists[0, 0] % N_AUTHORS
    assert reasons[same].min() > reasons[~same].max()
    only, _ = model.recommend(at.tolist(), 3, items=[7, 9, 11], exclude=[9])
    assert set(only.tolist()) <= {7, 11}


def test_columns_are_chosen_by_name():
    ratings = readers(300)
    frame = catalog().assign(shelf=[f"s{i % 7}" for i in range(N_ITEMS)])
    model = discreet.DPMF(item_features=frame, features=["author"], **SEEDED).fit(ratings)
    assert [one["name"] for one in model.details_["profile"]["features"]] == ["author"]
    with pytest.raises(DataError, match="no column 'writer'"):
        discreet.DPMF(item_features=frame, features=["writer"], **SEEDED).fit(ratings)
    with pytest.raises(ConfigError, match="features is"):
        discreet.DPMF(item_features=frame, features="author", epsilon=1.0).check()
    with pytest.raises(ConfigError, match="Pass item_features"):
        discreet.DPMF(features=["author"], epsilon=1.0).check()
    with pytest.raises(ConfigError, match="profiles change lists, not ratings"):
        discreet.DPMF(item_features=frame, features=["author"], goal="rating", epsilon=1.0).check()
    none = discreet.DPMF(item_features=frame, features=[], **SEEDED)
    assert "feature weights 1" not in [line["name"] for line in none.price_list(N_ITEMS)]


def test_features_without_categories_leave_the_model_as_it_is():
    X = np.random.default_rng(0).standard_normal((N_ITEMS, 1))
    frame = catalog()[["item_id"]].assign(embedding=list(X))
    model = discreet.DPMF(item_features=frame, **SEEDED).fit(readers(300))
    assert "profile" not in model.details_
    names = [entry.name for entry in model.privacy_.ledger.entries]
    assert not [name for name in names if "weights" in name]  # the budget goes to the others


def test_a_step_without_noise_is_newtons():
    H = np.array([[3.0, 1.0], [1.0, 2.0]])
    g = np.array([1.0, -1.0])
    packed = np.append(np.sqrt(0.6) * g, np.sqrt(0.4) * np.array([3.0, np.sqrt(2.0), 2.0]))
    w, precision = newton_step(packed, 1e-9, np.zeros(2), np.zeros(2), 1e-9 * np.eye(2))
    assert np.allclose(w, np.linalg.solve(H, g), atol=1e-6)
    assert np.allclose(precision, H, atol=1e-6)


def test_two_steps_count_the_chance_of_the_same_choices_once():
    """Without noise the precision is that of the choices, as after one step."""
    H = np.array([[3.0, 1.0], [1.0, 2.0]])
    g = np.array([1.0, -1.0])
    curvature = np.sqrt(0.4) * np.array([3.0, np.sqrt(2.0), 2.0])
    w, precision = np.zeros(2), 1e-9 * np.eye(2)
    for slope in (g, np.zeros(2)):  # the likelihood is a parabola: its slope is 0 after one step
        packed = np.append(np.sqrt(0.6) * slope, curvature)
        w, precision = newton_step(packed, 1e-9, w, w, precision, left_out=3 / 2)
    assert np.allclose(w, np.linalg.solve(H, g), atol=1e-6)
    assert np.allclose(precision, 3 * H, atol=1e-5)


def test_numbers_of_a_profile_are_packed():
    for largest in (0, 255, 256, 65_535, 70_000):
        values = np.array([0, 3, largest], np.int32)
        assert np.array_equal(unpack_integers(pack_integers(values)), values)
    assert len(pack_integers(np.full(3000, 200))) < 4010
    assert not len(unpack_integers(pack_integers(np.zeros(0, np.int32))))


def test_without_noise_the_weight_of_authors_is_large():
    ratings = readers()
    settings = dict(epsilon=5.0, noise=NoNoise(), random_state=0)
    model = discreet.DPMF(item_features=catalog(), **settings).fit(ratings)
    assert model.details_["profile"]["weights"][-1] > 0.3


def test_it_keeps_every_rule():
    words = {i: ["a", "b", "a|b", "c"][i % 4] for i in range(200)}
    model = discreet.DPMF.configure(
        goal="ranking", epsilon=4.0, like_threshold="everything", item_features=words
    )
    check_private_model(model, people=9, draws=1000)
