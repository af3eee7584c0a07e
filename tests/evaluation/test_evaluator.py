"""The protocol against a plain loop over users, with a stub model whose scores are a table."""

import json
import math
import types

import numpy as np
import pytest
from scipy.sparse import csr_array

from discreet.data.cinema import make_cinema
from discreet.data.ratings import Ratings
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError, DataError, NotFittedError
from discreet.evaluation import evaluator, metrics
from discreet.evaluation.evaluator import evaluate, lowest_relevant
from discreet.models.bias import Bias


class Table:
    """A 'model' with a given score for every user and item."""

    def __init__(self, scores, item_ids, goal="rating"):
        self.scores, self.goal = scores, goal
        self.item_ids_ = item_ids
        self.widest = 0

    def predict(self, ratings, pairs):
        assert np.array_equal(ratings.user_ids, pairs.user_ids)
        return self.scores[np.repeat(pairs.user_ids, np.diff(pairs.indptr)), pairs.indices].astype(
            np.float32
        )

    def recommend_indices(self, ratings, n, exclude_seen=True, items=None):
        self.widest = max(self.widest, ratings.n_users)
        lists = np.full((ratings.n_users, n), -1, np.int32)
        for row, user in enumerate(ratings.user_ids):
            known = set(ratings.indices[ratings.indptr[row] : ratings.indptr[row + 1]].tolist())
            best = [
                i for i in np.argsort(-self.scores[user], kind="stable").tolist() if i not in known
            ][:n]
            lists[row, : len(best)] = best
        return lists, np.zeros(lists.shape, np.float32)


def split_of(train, known, target, name="made-up", seed=3, valid=None):
    holdout = types.SimpleNamespace(known=known, target=target)
    return types.SimpleNamespace(name=name, seed=seed, train=train, test=holdout, valid=valid)


def random_case(seed=0, n_users=60, n_items=25, density=0.4, held_out=0.3):
    """A split over ratings of 1–5, some users without a target, popularity falling with the
    item's index.
    """
    rng = np.random.default_rng(seed)
    there = rng.random((n_users, n_items)) < density * np.linspace(2, 0.2, n_items)
    full = Ratings.from_csr(csr_array(np.where(there, rng.integers(1, 6, there.shape), 0)))
    out = rng.random(full.n_ratings) < held_out
    assert np.diff(full.indptr).min() > 0
    out[full.indptr[:-1]] = True  # every user has a target …
    # … but for every tenth, who keeps all ratings
    out &= np.repeat(np.arange(n_users) % 10 > 0, np.diff(full.indptr))
    train, target = full.keep(~out), full.keep(out)
    scores = rng.normal(3.5, 1, (n_users, n_items))
    return split_of(train, train, target), scores


def by_hand(split, scores, metric, k, threshold=None, allowed=None):
    """Values by user of a ranking metric, from dictionaries and sets."""
    known, target = split.test.known, split.test.target
    values = []
    for u in range(target.n_users):
        seen = set(known.indices[known.indptr[u] : known.indptr[u + 1]].tolist())
        own = slice(target.indptr[u], target.indptr[u + 1])
        relevant = {
            i
            for i, v in zip(target.indices[own].tolist(), target.values[own].tolist(), strict=True)
            if (threshold is None or v >= threshold) and (allowed is None or i in allowed)
        }
        order = [i for i in np.argsort(-scores[u], kind="stable").tolist() if i not in seen]
        hits = np.array([[i in relevant for i in order]])
        values.append(metrics.RANKING[metric](hits, np.array([len(relevant)]), k)[0])
    return np.array(values)


RANKED = {
    "recall@5": ("recall", 5),
    "recall_all@99": ("recall_all", 99),
    "ndcg@10": ("ndcg", 10),
    "precision@3": ("precision", 3),
    "map@7": ("map", 7),
    "mrr": ("mrr", 100),
}


@pytest.fixture
def case():
    split, scores = random_case()
    return split, scores, Table(scores, split.train.item_ids)


def test_ratings_agree_with_a_loop(case):
    split, _, model = case
    found = evaluate(model, split, ["rmse", "mae"])
    target = split.test.target
    predicted = model.predict(split.test.known, target)
    assert found.values["rmse"] == pytest.approx(metrics.rmse(predicted, target.values))
    assert found["mae"] == pytest.approx(metrics.mae(predicted, target.values))
    for u in range(target.n_users):
        own = slice(target.indptr[u], target.indptr[u + 1])
        want = metrics.rmse(predicted[own], target.values[own])
        np.testing.assert_allclose(found.per_user["rmse"][u], want, rtol=1e-6)
    group = metrics.popularity_quintiles(np.bincount(split.train.indices, minlength=25))
    for s in found.slices:
        rows = group[target.indices] == s.quintile - 1
        assert s.values["rmse"] == pytest.approx(metrics.rmse(predicted[rows], target.values[rows]))
        assert s.values["mae"] == pytest.approx(metrics.mae(predicted[rows], target.values[rows]))
        assert s.n_targets == rows.sum()
        assert s.n_ranked is None
        assert s.stderr["rmse"] > 0
    assert found.n_users == 54
    assert found.n_ranked is None
    assert found.n_targets == target.n_ratings
    weights = [s.n_targets / target.n_ratings for s in found.slices]
    pooled = sum(w * s.values["rmse"] ** 2 for w, s in zip(weights, found.slices, strict=True))
    assert found["rmse"] ** 2 == pytest.approx(pooled)


@pytest.mark.parametrize("block", [7, 2048])
@pytest.mark.parametrize("threshold", [None, 3.0])
def test_rankings_agree_with_a_loop(case, monkeypatch, block, threshold):
    split, scores, model = case
    monkeypatch.setattr(evaluator, "BLOCK", block)
    model.goal = "ranking"
    found = evaluate(model, split, list(RANKED), relevant=threshold)
    assert model.widest <= block
    group = metrics.popularity_quintiles(np.bincount(split.train.indices, minlength=25))
    for name, (metric, k) in RANKED.items():
        want = by_hand(split, scores, metric, k, threshold)
        np.testing.assert_allclose(found.per_user[name], want, err_msg=name)
        assert (found.values[name], found.stderr[name]) == pytest.approx(
            metrics.mean_over_users(want)
        )
        assert found.n_ranked == np.count_nonzero(~np.isnan(want))
        for s in found.slices:
            allowed = set(np.flatnonzero(group == s.quintile - 1).tolist())
            want = by_hand(split, scores, metric, k, threshold, allowed)
            assert (s.values[name], s.stderr[name]) == pytest.approx(
                metrics.mean_over_users(want), nan_ok=True
            )
            assert s.n_ranked == np.count_nonzero(~np.isnan(want))
            assert s.n_items == len(allowed)


def test_known_items_are_not_ranked_and_count_as_nothing():
    """The best-scored item is known: the target, second best, is then first."""
    train = Ratings.from_csr(csr_array(np.array([[1, 0, 0], [0, 1, 0]])))
    target = Ratings.from_csr(csr_array(np.array([[0, 1, 0], [0, 0, 1]])))
    model = Table(np.array([[9.0, 8, 7], [7, 9, 8]]), train.item_ids, "ranking")
    found = evaluate(
        model, split_of(train, train, target), ["recall@1", "mrr", "coverage@1", "coverage@9"]
    )
    assert found.values == {"recall@1": 1, "mrr": 1, "coverage@1": 2 / 3, "coverage@9": 1}
    assert math.isnan(found.stderr["coverage@1"])
    assert "coverage@1" not in found.per_user


def test_coverage_by_slice_and_over_blocks(case, monkeypatch):
    split, _, model = case
    monkeypatch.setattr(evaluator, "BLOCK", 7)
    found = evaluate(model, split, ["coverage@2"], slices="items", relevant=1)
    known = split.test.known
    lists, _ = model.recommend_indices(known.select_users(np.diff(split.test.target.indptr) > 0), 2)
    shown = set(lists.ravel().tolist())
    assert found["coverage@2"] == len(shown) / 25
    group = metrics.popularity_quintiles(np.bincount(split.train.indices, minlength=25), "items")
    for s in found.slices:
        mine = set(np.flatnonzero(group == s.quintile - 1).tolist())
        assert s.n_items == 5
        assert s.values["coverage@2"] == len(mine & shown) / 5


def test_standard_errors_agree_with_bootstrap_over_users():
    split, scores = random_case(seed=5, n_users=400)
    # users differ
    model = Table(scores + np.random.default_rng(0).normal(0, 1, (400, 1)), split.train.item_ids)
    found = evaluate(model, split, ["rmse", "mae", "ndcg@10"], relevant=1)
    target = split.test.target
    error = model.predict(split.test.known, target) - target.values
    rows = [error[target.indptr[u] : target.indptr[u + 1]] for u in range(400)]
    rng = np.random.default_rng(1)
    rmse, mae, ndcg = [], [], []
    for _ in range(1000):
        users = rng.integers(0, 400, 400)
        drawn = np.concatenate([rows[u] for u in users])
        rmse.append(np.sqrt(np.mean(drawn**2)))
        mae.append(np.mean(np.abs(drawn)))
        ndcg.append(np.nanmean(found.per_user["ndcg@10"][users]))
    for name, again in (("rmse", rmse), ("mae", mae), ("ndcg@10", ndcg)):
        assert found.stderr[name] == pytest.approx(np.std(again), rel=0.12), name


def test_relevance_is_named_by_a_rating_that_exists_and_counts_the_same():
    ratings = make_cinema(0, 0.02)
    split = random_ratings(ratings, (0.8, 0.2), 0)
    model = Bias().fit(split.train)
    found = evaluate(model, split, ["recall@20"])
    assert found.conditions["relevant"] == 4.0
    assert "rated 4 or more" in str(found)
    assert found["recall@20"] == evaluate(model, split, ["recall@20"], relevant=3.875)["recall@20"]
    stars = Ratings.from_arrays([1, 1], [1, 2], [1.0, 5.0])
    between = Ratings.from_arrays([1], [3], [4.1])
    # held out, and in no training rating
    assert lowest_relevant((1, 5), stars, between) == pytest.approx(4.1)
    assert lowest_relevant((1, 5)) == 4.0


def test_relevance_threshold(case):
    split, _, model = case
    # three quarters up a scale of 1 to 5
    assert evaluate(model, split, ["recall@5"]).conditions["relevant"] == 4.0
    assert evaluate(model, split, ["rmse"]).conditions["relevant"] is None
    assert evaluate(model, split, ["recall@5"], relevant=2).conditions["relevant"] == 2.0
    model.goal = "ranking"
    assert evaluate(model, split, ["recall@5"]).conditions["relevant"] is None
    none = evaluate(model, split, ["recall@5", "rmse"], relevant=99)
    assert math.isnan(none["recall@5"])
    assert none.n_ranked == 0
    assert "60 of 60 users have none" in str(none)
    for bad in (math.nan, "4", True):
        with pytest.raises(ConfigError, match="lowest rating"):
            evaluate(model, split, ["recall@5"], relevant=bad)


def test_defaults_follow_the_feedback(case):
    split, _, model = case
    bias = [
        f"{b}@20"
        for b in (*("coverage", "tail", "novelty", "popularity", "gini"), "miscalibration")
    ]
    assert list(evaluate(model, split).values) == ["rmse", "recall@20", "ndcg@100", *bias]
    model.goal = "ranking"
    assert list(evaluate(model, split).values) == ["recall@20", "recall@50", "ndcg@100", *bias]


def test_popularity_bias_against_a_loop_over_users(case, monkeypatch):
    """Over blocks of users, with categories by item id."""
    monkeypatch.setattr(evaluator, "BLOCK", 7)
    split, scores, model = case
    labels = {
        i: ["even|small", "odd"][i % 2] if i < 9 else ["even", "odd"][i % 2] for i in range(25)
    }
    names = [
        f"{b}@3" for b in ("coverage", "gini", "tail", "novelty", "popularity", "miscalibration")
    ]
    found = evaluate(model, split, names, relevant=1, categories=labels)
    counts = np.bincount(split.train.indices, minlength=25)
    tail = metrics.popularity_quintiles(counts) == 4
    chosen, values = np.zeros(25), {name: [] for name in names[2:]}

    def shares(items):
        total = {"even": 0.0, "odd": 0.0, "small": 0.0}
        for i in items:
            own = labels[i].split("|")
            for label in own:
                total[label] += 1 / len(own) / len(items)
        return np.array(list(total.values()))

    target = split.test.target
    for u in np.flatnonzero(np.diff(target.indptr)):
        seen = split.test.known.indices[slice(*split.test.known.indptr[u : u + 2])].tolist()
        best = [i for i in np.argsort(-scores[u], kind="stable").tolist() if i not in seen][:3]
        chosen[best] += 1
        values["tail@3"].append(tail[best].mean())
        values["novelty@3"].append(-np.log2(counts[best] / 60).mean())
        values["popularity@3"].append((counts[best] / 60).mean())
        values["miscalibration@3"].append(0.5 * np.abs(shares(seen) - shares(best)).sum())
    assert found["coverage@3"] == (chosen > 0).mean()
    assert found["gini@3"] == pytest.approx(metrics.gini(chosen))
    for name, each in values.items():
        assert found[name] == pytest.approx(np.mean(each)), name
        assert found.stderr[name] == pytest.approx(np.std(each, ddof=1) / np.sqrt(len(each)))
    with pytest.raises(DataError, match="no column"):
        evaluate(model, split, names, categories={0: "alone"})


def test_left_out_users_are_counted(case):
    split, _, model = case
    found = evaluate(model, split, ["recall@5"], relevant=1)
    assert found.n_ranked == 54
    assert np.isnan(found.per_user["recall@5"][::10]).all()
    assert any("6 of 60 users" in note for note in found.notes)


def test_items_in_another_order_and_unknown_ones(case):
    """A model may have its own item index; it is matched by id, and an item the split lacks is
    a miss.
    """
    split, scores, _ = case
    rng = np.random.default_rng(7)
    order = rng.permutation(25)
    new_ids = np.concatenate([split.train.item_ids[order], [999]])

    class Shuffled(Table):
        def recommend_indices(self, ratings, n, exclude_seen=True, items=None):
            lists, best = super().recommend_indices(ratings, n - 1)
            place = np.append(np.argsort(order), -1)
            first = np.full((len(lists), 1), 25)  # the unknown item comes first for everybody
            return np.hstack([first, place[lists]]).astype(np.int32), best

    found = evaluate(Shuffled(scores, new_ids), split, ["recall@5", "mrr@6"], relevant=1)
    np.testing.assert_allclose(
        found.per_user["recall@5"], by_hand_shifted(split, scores, "recall", 5)
    )
    assert found["mrr@6"] <= 0.5


def by_hand_shifted(split, scores, metric, k):
    """As `by_hand` with one wasted place in front of every list."""
    wide = np.hstack([scores, np.full((len(scores), 1), 1e9)])
    ids = np.arange(26)
    shifted = split_of(
        *(part.with_items(ids) for part in (split.train, split.test.known, split.test.target))
    )
    return by_hand(shifted, wide, metric, k)


def test_without_slices_and_by_items(case):
    split, _, model = case
    whole = evaluate(model, split, ["rmse", "ndcg@5", "coverage@5"], slices=None)
    assert whole.slices == ()
    assert (
        whole.values
        == evaluate(model, split, ["rmse", "ndcg@5", "coverage@5"], slices="items").values
    )
    assert "head" not in str(whole)
    with pytest.raises(ConfigError, match="'ratings' or by 'items'"):
        evaluate(model, split, ["rmse"], slices="users")


def test_valid_part(case):
    split, _, model = case
    with pytest.raises(ConfigError, match="no validation part"):
        evaluate(model, split, part="valid")
    split.valid = split.test
    assert evaluate(model, split, part="valid").conditions["part"] == "valid"
    with pytest.raises(ConfigError, match="'test' or 'valid', not 'train'"):
        evaluate(model, split, part="train")


def test_what_is_refused(case):
    split, scores, model = case
    with pytest.raises(ConfigError, match="did you mean 'ndcg@10'"):
        evaluate(model, split, ["rmse", "ngcd@10"])
    with pytest.raises(ConfigError, match="metrics is empty"):
        evaluate(model, split, [])
    with pytest.raises(NotFittedError, match=r"Table is not fitted.*fit\(split.train\)"):
        evaluate(Table(scores, None), split)
    with pytest.raises(DataError, match="no ratings"):
        evaluate(
            model,
            split_of(
                split.train, split.train, split.train.keep(np.zeros(split.train.n_ratings, bool))
            ),
        )
    model.predict = lambda ratings, pairs: np.zeros(3)
    with pytest.raises(DataError, match="predict gave"):
        evaluate(model, split)
    odd = Table(scores, split.train.item_ids, goal="both")
    with pytest.raises(ConfigError, match="name the metrics"):
        evaluate(odd, split)


def test_one_name_as_a_string_and_repeated_names(case):
    split, _, model = case
    assert list(evaluate(model, split, "rmse").values) == ["rmse"]
    assert list(evaluate(model, split, ["mae", "rmse", "mae"]).values) == ["mae", "rmse"]


def test_progress(case, monkeypatch):
    split, _, model = case
    monkeypatch.setattr(evaluator, "BLOCK", 20)
    calls = []
    evaluate(
        model, split, ["rmse", "recall@5"], relevant=1, progress=lambda *args: calls.append(args)
    )
    assert calls == [(20, 54, "ranking"), (40, 54, "ranking"), (54, 54, "ranking")]


def test_prints_a_table_and_becomes_json(case):
    split, _, model = case
    found = evaluate(model, split, ["rmse", "ndcg@10", "coverage@5"])
    text = str(found)
    assert text.splitlines()[0].startswith("Table on made-up (seed 3), test: 54 users, ")
    assert "1 (head)" in text
    assert f"{found['rmse']:.4f}" in text
    assert "a fifth of the training ratings each" in text
    assert "rated 4 or more" in text
    assert repr(found).startswith("<Evaluation of Table on test: rmse=")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["values"]["rmse"] == found["rmse"]
    assert data["stderr"]["coverage@5"] is None
    assert [s["quintile"] for s in data["slices"]] == [1, 2, 3, 4, 5]
    assert sum(s["train_share"] for s in data["slices"]) == pytest.approx(1)
    assert data["conditions"] == {
        "model": "Table",
        "goal": "rating",
        "split": "made-up",
        "seed": 3,
        "part": "test",
        "relevant": 4.0,
        "slices": "ratings",
    }
    assert "per_user" not in data
    assert "user_ids" not in data
    full = json.loads(json.dumps(found.to_dict(per_user=True), allow_nan=False))
    assert len(full["user_ids"]) == len(full["per_user"]["rmse"]) == 60
    assert full["per_user"]["rmse"][0] is None
    with pytest.raises(AttributeError):
        found.n_users = 3


def test_scores_of_an_implicit_model_are_no_ratings(case):
    split, _, model = case
    model.goal = "ranking"
    assert any("not predicted ratings" in note for note in evaluate(model, split, ["rmse"]).notes)


def test_nan_predictions_are_not_hidden(case):
    split, scores, model = case
    scores[5, :] = np.nan
    found = evaluate(model, split, ["rmse"])
    assert math.isnan(found["rmse"])
    assert found.to_dict()["values"]["rmse"] is None


def test_a_model_of_some_of_the_items_is_judged_on_all():
    """Histories and targets hold items that the model has never heard of: the first are
    ignored, the others missed.
    """
    import discreet
    from discreet.data.splits import strong_generalization

    ratings = discreet.load_dataset("cinema", scale=0.02)
    split = strong_generalization(ratings, 50, 50, seed=0)
    some = split.train.filter(items=split.train.item_ids[:400])
    found = discreet.evaluate(
        discreet.ALS(4, goal="ranking").fit(some), split, ["recall@20"], slices=None
    )
    assert found.n_ranked == 50
    assert 0 < found["recall@20"] < 1
