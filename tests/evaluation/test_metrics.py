"""Each metric against a second implementation: plain Python written from the definition, and
scikit-learn's ndcg.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_error, mean_squared_error, ndcg_score

from discreet.errors import ConfigError
from discreet.evaluation import metrics
from discreet.evaluation.metrics import Metric, parse

# --- The second implementation: one user, lists and sets, no arrays
# ---------------------------------------------------


def naive_recall(ranked: list[int], relevant: set[int], k: int) -> float:
    return len([i for i in ranked[:k] if i in relevant]) / min(len(relevant), k)


def naive_recall_all(ranked: list[int], relevant: set[int], k: int) -> float:
    return len(set(ranked[:k]) & relevant) / len(relevant)


def naive_precision(ranked: list[int], relevant: set[int], k: int) -> float:
    return len(set(ranked[:k]) & relevant) / k


def naive_ndcg(ranked: list[int], relevant: set[int], k: int) -> float:
    gained = 0.0
    for place, item in enumerate(ranked[:k], start=1):
        if item in relevant:
            gained += 1 / math.log2(place + 1)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(relevant)) + 1))
    return gained / ideal


def naive_map(ranked: list[int], relevant: set[int], k: int) -> float:
    total, good = 0.0, 0
    for place, item in enumerate(ranked[:k], start=1):
        if item in relevant:
            good += 1
            total += good / place
    return total / min(k, len(relevant))


def naive_mrr(ranked: list[int], relevant: set[int], k: int) -> float:
    for place, item in enumerate(ranked[:k], start=1):
        if item in relevant:
            return 1 / place
    return 0.0


NAIVE = {
    "recall": naive_recall,
    "recall_all": naive_recall_all,
    "precision": naive_precision,
    "ndcg": naive_ndcg,
    "map": naive_map,
    "mrr": naive_mrr,
}


def as_csr(sets: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
    return indptr, np.array([i for s in sets for i in sorted(s)], np.int32)


def pad(lists: list[list[int]], n: int) -> np.ndarray:
    return np.array([row + [-1] * (n - len(row)) for row in lists], np.int32).reshape(len(lists), n)


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[list[int]], list[set[int]], int, int]:
    """Lists without repeats (some short), relevant sets (some empty), catalog size, cut-off
    (some beyond it).
    """
    m = draw(st.integers(1, 12))
    n_users = draw(st.integers(1, 6))
    lists = []
    for _ in range(n_users):
        order = draw(st.permutations(range(m)))
        lists.append(order[: draw(st.integers(0, m))])
    sets = [draw(st.sets(st.integers(0, m - 1))) for _ in range(n_users)]
    return lists, sets, m, draw(st.integers(1, 15))


@given(rankings())
def test_ranking_metrics_agree_with_plain_python(case):
    lists, sets, m, k = case
    hits = metrics.find_hits(pad(lists, m), *as_csr(sets))
    sizes = np.array([len(s) for s in sets])
    for name, naive in NAIVE.items():
        got = metrics.RANKING[name](hits, sizes, k)
        want = [naive(row, s, k) if s else math.nan for row, s in zip(lists, sets, strict=True)]
        np.testing.assert_allclose(got, want, err_msg=name)
        inside = got[~np.isnan(got)]
        assert ((inside >= 0) & (inside <= 1 + 1e-12)).all()


@given(rankings())
def test_hits_agree_with_sets(case):
    lists, sets, m, _ = case
    ranked = pad(lists, m)
    hits = metrics.find_hits(ranked, *as_csr(sets))
    assert hits.tolist() == [
        [i in s for i in row] for row, s in zip(ranked.tolist(), sets, strict=True)
    ]


@given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.integers(1, 25))
def test_ndcg_agrees_with_scikit_learn(seed, m, k):
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(m), (4, 1)), axis=1)
    truth = rng.random((4, m)) < 0.4
    truth[:, 0] = True
    sets = [set(np.flatnonzero(row).tolist()) for row in truth]
    hits = metrics.find_hits(np.argsort(-scores, axis=1), *as_csr(sets))
    got = metrics.ndcg(hits, truth.sum(axis=1), k)
    assert got.mean() == pytest.approx(ndcg_score(truth.astype(int), scores, k=k))


def test_ties_are_judged_in_the_order_given():
    """scikit-learn averages over the orders of tied scores; we are given an order, which
    settles it.
    """
    scores = np.zeros((1, 3))
    truth = np.array([[0, 0, 1]])
    order = np.array([[2, 1, 0]])
    assert metrics.ndcg(metrics.find_hits(order, *as_csr([{2}])), np.array([1]), 3)[0] == 1.0
    assert ndcg_score(truth, scores) < 1.0


def test_a_case_by_hand():
    """Relevant {1, 3, 5}; list 3, 0, 5, 2: hits in places 1 and 3."""
    hits = metrics.find_hits(np.array([[3, 0, 5, 2]]), *as_csr([{1, 3, 5}]))
    assert hits.tolist() == [[True, False, True, False]]
    r = np.array([3])
    # two places, three relevant: one of the two possible
    assert metrics.recall(hits, r, 2)[0] == 1 / 2
    assert metrics.recall_all(hits, r, 2)[0] == pytest.approx(1 / 3)
    assert (
        metrics.recall(hits, r, 4)[0] == metrics.recall_all(hits, r, 4)[0] == pytest.approx(2 / 3)
    )
    assert metrics.precision(hits, r, 4)[0] == 1 / 2
    assert metrics.precision(hits, r, 10)[0] == 2 / 10
    assert metrics.average_precision(hits, r, 4)[0] == pytest.approx((1 + 2 / 3) / 3)
    assert metrics.ndcg(hits, r, 4)[0] == pytest.approx(
        (1 + 1 / 2) / (1 + 1 / math.log2(3) + 1 / 2)
    )
    assert metrics.reciprocal_rank(hits, r)[0] == 1.0
    assert metrics.reciprocal_rank(hits[:, 1:], r)[0] == 1 / 2


def test_perfect_and_empty_lists():
    sets = [{0, 1}, {4}, set()]
    hits = metrics.find_hits(np.array([[1, 0, 2], [4, -1, -1], [0, 1, 2]]), *as_csr(sets))
    sizes = np.array([2, 1, 0])
    for name, metric in metrics.RANKING.items():
        value = metric(hits, sizes, 2)
        assert value[0] == 1.0
        assert value[1] == (0.5 if name == "precision" else 1.0)
        assert math.isnan(value[2])
    nothing = metrics.find_hits(np.full((3, 3), -1), *as_csr(sets))
    for metric in metrics.RANKING.values():
        assert metric(nothing, sizes, 2)[:2].tolist() == [0.0, 0.0]


def test_padding_is_never_a_hit():
    """Also not for item 0, for the last item (which −1 would index), or for another user's item."""
    assert not metrics.find_hits(np.array([[-1, -1], [0, 1]]), *as_csr([{0, 9}, {9}])).any()
    assert not metrics.find_hits(np.array([[3]]), *as_csr([set()])).any()


def test_ratings_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    a, p = rng.normal(size=(2, 1000)).astype(np.float32)
    assert metrics.rmse(p, a) == pytest.approx(math.sqrt(mean_squared_error(a, p)), rel=1e-5)
    assert metrics.mae(p, a) == pytest.approx(mean_absolute_error(a, p), rel=1e-5)
    assert metrics.rmse(np.array([1, 5]), np.array([2, 3])) == pytest.approx(math.sqrt(5 / 2))
    assert metrics.mae(np.array([1, 5]), np.array([2, 3])) == 1.5
    assert math.isnan(metrics.rmse(np.array([]), np.array([])))
    assert math.isnan(metrics.mae(np.array([]), np.array([])))


# --- Standard errors
# --------------------------------------------------------------------------------------------------


def test_mean_over_users():
    mean, stderr = metrics.mean_over_users(np.array([1.0, np.nan, 2.0, 6.0]))
    assert mean == 3.0
    # sample variance (4 + 1 + 9) / 2 over three users
    assert stderr == pytest.approx(math.sqrt(7 / 3))
    assert [math.isnan(x) for x in metrics.mean_over_users(np.array([5.0, np.nan]))] == [
        False,
        True,
    ]
    assert all(math.isnan(x) for x in metrics.mean_over_users(np.array([np.nan])))


@pytest.mark.parametrize("squared", [False, True])
def test_clustered_error_agrees_with_bootstrap_over_users(squared):
    """Users of very different activity, whose errors hang together: rows alone would give a
    much shorter bar.
    """
    rng = np.random.default_rng(1)
    counts = 1 + rng.poisson(20 * rng.random(400) ** 2)
    error = np.repeat(rng.normal(0, 1, 400), counts) + rng.normal(0, 0.5, counts.sum())
    loss = error**2 if squared else np.abs(error)
    sums = np.bincount(np.repeat(np.arange(400), counts), weights=loss)
    estimate = metrics.mean_over_rows(sums, counts)
    value, stderr = metrics.root(*estimate) if squared else estimate
    assert value == pytest.approx((metrics.rmse if squared else metrics.mae)(error, 0 * error))

    draws = rng.integers(0, 400, (4000, 400))
    again = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    spread = (np.sqrt(again) if squared else again).std()
    assert stderr == pytest.approx(spread, rel=0.08)
    by_rows = loss.std() / math.sqrt(len(loss)) / (2 * value if squared else 1)
    assert stderr > 1.5 * by_rows


def test_mean_error_agrees_with_bootstrap():
    rng = np.random.default_rng(2)
    values = rng.beta(1, 4, 500)
    spread = values[rng.integers(0, 500, (4000, 500))].mean(axis=1).std()
    assert metrics.mean_over_users(values)[1] == pytest.approx(spread, rel=0.05)


def test_clustered_error_edges():
    nothing, one = np.array([0.0, 0.0]), np.array([3.0, 0.0])
    assert all(math.isnan(x) for x in metrics.mean_over_rows(nothing, np.array([0, 0])))
    mean, stderr = metrics.mean_over_rows(one, np.array([2, 0]))
    assert mean == 1.5
    assert math.isnan(stderr)
    assert metrics.root(0.0, 0.0) == (0.0, 0.0)
    # one row each: the same as the ordinary error of a mean
    x = np.array([1.0, 2.0, 6.0])
    assert metrics.mean_over_rows(x, np.ones(3)) == pytest.approx(metrics.mean_over_users(x))


# --- Quintiles
# --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.sampled_from(["ratings", "items"]))
def test_quintiles_are_ordered_by_popularity(counts, by):
    counts = np.array(counts)
    group = metrics.popularity_quintiles(counts, by)
    assert set(group.tolist()) <= set(range(5))
    for g in range(4):
        if (group == g).any() and (group > g).any():
            assert counts[group == g].min() >= counts[group > g].max()
    if by == "items":
        sizes = np.bincount(group, minlength=5)
        assert sizes.max() - sizes.min() <= 1
    else:
        assert (group[counts == 0] == 4).all()


def test_quintiles_by_ratings_have_equal_shares():
    counts = np.maximum(1000 / np.arange(1, 2001), 1).astype(int)[::-1]
    group = metrics.popularity_quintiles(counts)
    items = np.bincount(group, minlength=5)
    assert (np.diff(items) > 0).all()  # ever more items, the further down
    counts = 100 + np.arange(500)
    shares = np.bincount(metrics.popularity_quintiles(counts), weights=counts) / counts.sum()
    np.testing.assert_allclose(shares, 0.2, atol=0.005)


def test_quintiles_edges():
    assert metrics.popularity_quintiles(np.array([10, 1, 0])).tolist() == [2, 4, 4]
    assert metrics.popularity_quintiles(np.zeros(5)).tolist() == [4] * 5
    assert metrics.popularity_quintiles(np.arange(5), "items").tolist() == [4, 3, 2, 1, 0]
    with pytest.raises(ConfigError, match="'ratings' or by 'items', not 'users'"):
        metrics.popularity_quintiles(np.ones(3), "users")


# --- Popularity bias
# --------------------------------------------------------------------------------------------------


def test_gini_is_half_the_mean_difference_of_two_items_over_the_mean():
    rng = np.random.default_rng(0)
    for counts in (rng.integers(0, 9, 30), np.array([0, 0, 0, 7]), np.array([4, 4])):
        apart = np.abs(counts[:, None] - counts[None, :]).mean()
        assert metrics.gini(counts) == pytest.approx(apart / (2 * counts.mean()))
    assert math.isnan(metrics.gini(np.zeros(3)))


def test_popularity_bias_by_hand():
    """Four items of 8 training users; the last two are the tail."""
    items = metrics.ItemGroups.from_counts(np.array([8, 4, 1, 1]), 8, None)
    top = np.array([[0, 3], [2, 3], [1, -1], [-1, -1]])
    indptr, indices = np.array([0, 2, 2, 3, 4]), np.array([0, 3, 1, 0])
    expected = {
        "popularity": [(1 + 1 / 8) / 2, 1 / 8, 1 / 2, math.nan],
        "novelty": [3 / 2, 3.0, 1.0, math.nan],
        "tail": [0.5, 1.0, 0.0, math.nan],
        # a history like the list; no history; the same category alone; an empty list
        "miscalibration": [0.0, math.nan, 0.0, math.nan],
    }
    for base, values in expected.items():
        np.testing.assert_allclose(items.mean_over_list(base, top, indptr, indices), values)


def test_miscalibration_is_the_total_variation_of_category_shares():
    weights = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 0]])
    items = metrics.ItemGroups.from_counts(np.ones(4), 4, weights)
    found = items.mean_over_list(
        "miscalibration", np.array([[2, 3]]), np.array([0, 2]), np.array([0, 1])
    )
    # history (1/2, 1/2, 0); list (0, 1/2, 1/2), as an item without categories does not count
    assert found.tolist() == [0.5]


@pytest.mark.parametrize("name", ["rmse", "mae", "recall@5"])
def test_paired_differences_agree_with_the_bootstrap_over_users(name):
    rng = np.random.default_rng(1)
    n = 400
    counts = rng.integers(0, 9, n)
    easy = rng.gamma(4.0, 0.2, n)  # the same for both models
    a, b = easy + rng.normal(0, 0.05, n), easy + 0.1 + rng.normal(0, 0.05, n)
    a[counts == 0] = b[counts == 0] = np.nan
    metric = parse(name)

    def score(values, at):
        v, c = values[at][counts[at] > 0], counts[at][counts[at] > 0]
        if metric.kind == "ranking":
            return v.mean()
        return math.sqrt(np.sum(v**2 * c) / c.sum()) if name == "rmse" else np.sum(v * c) / c.sum()

    mean, stderr = metrics.paired_difference(metric, a, b, counts)
    assert mean == pytest.approx(score(a, np.arange(n)) - score(b, np.arange(n)))
    draws = [rng.integers(0, n, n) for _ in range(2000)]
    again = np.std([score(a, at) - score(b, at) for at in draws])
    assert stderr == pytest.approx(again, rel=0.1)
    assert stderr < 0.5 * np.std([score(a, at) for at in draws])  # what both find hard cancels


# --- Names
# --------------------------------------------------------------------------------------------------


def test_parse():
    assert parse("ndcg@100") == Metric("ndcg@100", "ndcg", 100)
    assert parse("recall_all@5").k == 5
    assert parse("mrr").k == metrics.MRR_DEPTH
    assert parse("mrr@7").k == 7
    names = ("rmse", "map@3", "coverage@3", "gini@3", "tail@3", "miscalibration@3")
    kinds = ["rating", "ranking", "catalog", "catalog", "list", "list"]
    assert [parse(name).kind for name in names] == kinds


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ndgc@100", "did you mean 'ndcg@100'"),
        ("NDCG@10", "did you mean 'ndcg@10'"),
        ("recal@20", "'recall@20'"),
        ("recall-all@20", "'recall_all@20'"),
        ("rsme", "'rmse'"),
        ("prec@5", "'precision@5'"),
        ("auc", "choose from rmse, mae, recall@k"),
        ("", "choose from rmse"),
        ("recall", "has no cut-off.*'recall@20'"),
        ("coverage@", "cut-off ''"),
        ("recall@0", "cut-off '0'"),
        ("recall@-3", "cut-off '-3'"),
        ("recall@2.5", "cut-off '2.5'"),
        ("recall@20@3", "cut-off '20@3'"),
        ("rmse@10", "rmse has no cut-off"),
        (20, "must be a string"),
    ],
)
def test_parse_says_what_was_meant(name, says):
    with pytest.raises(ConfigError, match=says):
        parse(name)


@pytest.mark.parametrize("name", sorted(metrics.RANKING))
def test_a_user_has_the_same_value_whoever_shares_the_block(name):
    """To the last bit: a release counts on it."""
    rng = np.random.default_rng(0)
    hits = rng.random((400, 100)) < 0.1
    n_relevant = hits.sum(axis=1) + rng.integers(0, 3, 400)
    together = metrics.RANKING[name](hits, n_relevant, 100)
    for block in (1, 7, 133):
        parts = [slice(start, start + block) for start in range(0, 400, block)]
        apart = [metrics.RANKING[name](hits[part], n_relevant[part], 100) for part in parts]
        assert np.array_equal(np.concatenate(apart), together, equal_nan=True)
