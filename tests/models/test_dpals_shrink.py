"""Item factors estimated by the known noise: limits in which the right answer is known, and what it is worth."""

import numpy as np
import pytest

import discreet
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.models.dpals_shrink import Repeated, item_factors, pooled, pooled_sums


def sums(rng, counts, r, noise_G=0.0, noise_g=0.0, spread=1.0):
    """Packed Gram matrices, right-hand sides and the planted factors of items that users of vectors u rated."""
    upper = np.triu_indices(r)
    V, G, g = rng.normal(size=(len(counts), r)), [], []
    for v, n in zip(V, counts, strict=True):
        U = rng.normal(size=(n, r)) * (1 + spread * rng.random(r))
        G.append((U.T @ U)[upper])
        g.append(U.T @ (U @ v))
    packed = np.array(G) + noise_G * rng.normal(size=(len(counts), len(upper[0]))) * np.where(
        upper[0] == upper[1], 1.0, 0.5**0.5
    )
    return packed, np.array(g) + noise_g * rng.normal(size=V.shape), V


known = dict(rating_bound=1.0, weight=1e-9)


def test_without_noise_it_is_least_squares():
    G, g, V = sums(np.random.default_rng(0), np.full(40, 60), 3)
    found = item_factors(G, g, np.full(40, 60.0), gram_noise=1e-6, sum_noise=1e-6, **known)
    np.testing.assert_allclose(found, V, atol=1e-4)


def test_sums_that_are_all_noise_give_no_factors():
    rng = np.random.default_rng(1)
    G, _, _ = sums(rng, np.full(400, 5), 3)
    g = 100 * rng.normal(size=(400, 3))
    found = item_factors(G, g, np.full(400, 5.0), gram_noise=1e-3, sum_noise=100.0, **known)
    assert np.abs(found).max() < 0.05 * np.abs(np.linalg.solve(np.eye(3) * 10, g.T)).max()


def test_it_beats_least_squares_where_noise_is_large_and_equals_it_where_it_is_small():
    rng = np.random.default_rng(2)
    counts = rng.integers(5, 400, 500)
    for noise, better in ((30.0, 0.7), (0.01, 1.05)):
        G, g, V = sums(rng, counts, 3, noise, noise)
        upper, A = np.triu_indices(3), np.empty((500, 3, 3))
        A[:, upper[0], upper[1]] = A[:, upper[1], upper[0]] = G
        plain = np.linalg.solve(A, g[..., None])[..., 0]
        found = item_factors(G, g, counts.astype(float), gram_noise=noise, sum_noise=noise, **known)
        assert np.mean((found - V) ** 2) < better * np.mean((plain - V) ** 2)


def test_popular_items_keep_their_own_gram_and_rare_ones_get_the_average():
    rng = np.random.default_rng(3)
    counts = np.repeat([4, 4000], 50)
    G, _, _ = sums(rng, counts, 3, noise_G=200.0, spread=3.0)
    average, own = pooled(G, counts.astype(float), 200.0)
    assert own[:50].max() < 0.1
    assert own[50:].min() > 0.9
    np.testing.assert_allclose(average, G.sum(axis=0) / counts.sum())
    exact, everyone = pooled(sums(rng, counts, 3)[0], counts.astype(float), 0.0)
    assert everyone.min() > 0.999
    assert exact.shape == (6,)


def test_later_steps_get_more_of_the_budget_and_all_of_it_is_spent():
    model = discreet.DPALS(3, epsilon=2.0, delta=1e-5, iterations=4, growth=3.0, item_step="solve")
    plan = model.plan(100)
    for base in ("gram", "sum"):
        spent = [plan.noise_multiplier(f"{base} {step}") ** -2 for step in (1, 2, 3, 4)]
        np.testing.assert_allclose(np.array(spent[1:]) / spent[:-1], 3.0)
    assert plan.epsilon() == pytest.approx(2.0, rel=1e-6)
    half = discreet.DPALS(3, epsilon=2.0, delta=1e-5, iterations=4, growth=3.0, shares={"gram": 0.74, "sum": 0.74})
    line = half.plan(100)
    assert line.noise_multiplier("gram 2") == pytest.approx(line.noise_multiplier("sum 2"))


def test_rank_and_steps_follow_the_budget():
    same = dict(delta=1e-5, item_step="solve")
    small, large = (discreet.DPALS(epsilon=epsilon, **same).plan(50) for epsilon in (1.0, 20.0))
    assert len(large.releases) > len(small.releases)
    given = discreet.DPALS(5, epsilon=1.0, iterations=2, item_step="solve").plan(50)
    assert {release.name for release in given.releases} == {"counts", "recounts", "gram 1", "gram 2", "sum 1", "sum 2"}


@pytest.mark.parametrize(
    "wrong",
    [
        dict(shrinkage=True, feedback="implicit"),
        dict(shrinkage=True, recount=False),
        dict(growth=0.0),
        dict(shrinkage=True, orthonormalize=True),
        dict(adaptivity=-1.0),
        dict(sampling="adaptive", resample=True),
        dict(shrinkage=True, sigmas={"counts": 1.0, "recounts": 1.0, "gram": 1.0, "sum": 1.0}),
    ],
)
def test_what_does_not_go_together_is_refused(wrong):
    with pytest.raises(ConfigError):
        discreet.DPALS(2, **wrong).plan(10)


def test_it_is_worth_it():
    """On a small cinema, where the paper's item step cannot beat a user's own mean."""
    split = random_ratings(discreet.load_dataset("cinema", scale=0.2), (0.8, 0.1, 0.1), seed=3)
    same = dict(epsilon=3.0, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=0)
    score = lambda model: discreet.evaluate(model.fit(split.train), split, metrics=["rmse"]).values["rmse"]  # noqa: E731
    ours = score(discreet.DPALS(**same))
    assert ours < score(discreet.DPALS(4, shrinkage=False, **same)) - 0.01
    assert ours < score(discreet.Bias(1e9)) - 0.02


def test_what_is_the_same_at_every_step_is_averaged():
    rng = np.random.default_rng(4)
    kept, truth = Repeated(), rng.normal(size=5000)
    for deviation in (3.0, 2.0, 1.0):
        average, gain = kept.add(truth + deviation * rng.normal(size=5000), deviation)
    assert gain == pytest.approx(1 + 1 / 4 + 1 / 9)
    assert (average - truth).std() == pytest.approx(gain**-0.5, rel=0.05)


def test_a_coordinate_with_less_noise_counts_for_more():
    rng = np.random.default_rng(5)
    counts = np.full(2000, 20)
    G, g, V = sums(rng, counts, 3, noise_g=0.0)
    noise = 60.0 * rng.normal(size=g.shape) / np.array([10.0, 1.0, 1.0])
    same = dict(gram_noise=1e-3, sum_noise=60.0, **known)
    plain = item_factors(G, g + noise, counts.astype(float), **same)
    told = item_factors(G, g + noise, counts.astype(float), gain=np.array([100.0, 1.0, 1.0]), **same)
    assert np.mean((told - V)[:, 0] ** 2) < 0.8 * np.mean((plain - V)[:, 0] ** 2)
    ones = item_factors(G, g + noise, counts.astype(float), gain=np.ones(3), **same)
    assert np.array_equal(ones, plain)


def test_a_pooled_intercept_releases_the_same_and_knows_biases_better():
    split = random_ratings(discreet.load_dataset("cinema", scale=0.1), (0.8, 0.1, 0.1), seed=3)
    same = dict(epsilon=1.0, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=0)
    models = [discreet.DPALS(**same, pooled_intercept=pooled).fit(split.train) for pooled in (False, True)]
    ledgers = [[(e.name, e.noise_multiplier) for e in m.privacy_.ledger.entries] for m in models]
    assert ledgers[0] == ledgers[1]
    exact = discreet.Bias(1.0, iterations=1).fit(split.train).item_biases_
    near = [np.corrcoef(m.item_biases_, exact)[0, 1] for m in models]
    assert near[1] > near[0] + 0.02
    for wrong in (dict(shrinkage=False), dict(intercept=0.0), dict(feedback="implicit")):
        with pytest.raises(ConfigError, match="pooled_intercept needs shrinkage and an intercept"):
            discreet.DPALS(2, pooled_intercept=True, **wrong).plan(10)


def test_a_faint_signal_is_spent_on_biases_and_a_strong_one_is_not():
    split = random_ratings(discreet.load_dataset("cinema", scale=0.1), (0.8, 0.2), seed=1)
    same = dict(epsilon=0.5, delta=1e-5, rating_range=(0.5, 5.0), noise="seeded", random_state=1, item_step="solve")
    model = discreet.DPALS(**same).fit(split.train)
    assert model.signal_to_noise_["average"] < 4
    largest = discreet.DPALS(**same, intercept=0.95, pooled_intercept=True).fit(split.train)
    assert np.array_equal(model.item_biases_, largest.item_biases_)
    assert model.privacy_.epsilon == largest.privacy_.epsilon
    model.set_params(epsilon=20.0).fit(split.train)
    assert model.signal_to_noise_["average"] > 7
    usual = discreet.DPALS(**same | dict(epsilon=20.0), intercept=0.6, pooled_intercept=False).fit(split.train)
    assert np.array_equal(model.item_factors_, usual.item_factors_), "nothing is left of the fit before"


def test_sums_of_nothing_but_noise_follow_the_counts():
    rng = np.random.default_rng(0)
    counts, u = rng.pareto(1.0, 500) * 20 + 5, np.array([0.6, -0.3])
    noisy = counts[:, None] * u + rng.normal(size=(500, 2)) * 50
    found = pooled_sums(noisy, counts, 50.0)
    np.testing.assert_allclose(found, counts[:, None] * (noisy.sum(axis=0) / counts.sum()), rtol=0.05, atol=1.0)
    own = counts[:, None] * (u + rng.normal(size=(500, 2)))
    np.testing.assert_allclose(pooled_sums(own, counts, 1e-3), own, atol=1e-4 * np.abs(own).max())


def test_implicit_feedback_with_little_signal_falls_back_on_what_is_popular():
    split = random_ratings(discreet.load_dataset("cinema", scale=0.1).binarize(4.0), (0.8, 0.2), seed=1)
    same = dict(epsilon=1.0, delta=1e-5, feedback="implicit", noise="seeded", random_state=0)
    recall = {}
    for drawn in (None, True, False):
        model = discreet.DPALS(pooled_items=drawn, **same).fit(split.train)
        recall[drawn] = discreet.evaluate(model, split, ["recall@20"]).values["recall@20"]
    assert recall[None] == recall[True] > recall[False] + 0.02
    with pytest.raises(ConfigError, match="pooled_items is for implicit feedback"):
        discreet.DPALS(pooled_items=True, item_step="solve").plan(10)
