"""Communities: learned from released numbers on sparse catalogs, and refuted where they fail."""

import re

import numpy as np
import pytest

import discreet
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.kernels import reference
from discreet.models.dpmf import communities, profile
from discreet.models.dpmf.communities import PARTS, Communities
from discreet.models.dpmf.summary import (
    explain_untried_communities,
    with_communities,
    without_communities,
)
from discreet.privacy.release.unsafe import NoNoise
from discreet.testing import check_private_model

K = 6
N_ITEMS = 9000


def planted(n=20_000, taste=1.0, seed=0, n_items=N_ITEMS):
    """K equal communities of items with power-law popularity; a part `taste` of each user's twelve
    items is of its own community.
    """
    rng = np.random.default_rng(seed)
    popular = (np.arange(n_items) + 60.0) ** -0.45
    rng.shuffle(popular)
    group = np.arange(n_items) % K
    columns = np.array([np.where(group == z, popular, 0.0) for z in range(K)])
    columns /= columns.sum(axis=1, keepdims=True)
    own = rng.integers(0, K, n)
    from_own = rng.random((n, 12)) < taste
    cumulative = np.cumsum(columns, axis=1)
    everything = np.cumsum(popular / popular.sum())
    u = rng.random((n, 12))
    item = np.searchsorted(everything, u)
    for z in range(K):
        rows = own == z
        item[rows] = np.where(from_own[rows], np.searchsorted(cumulative[z], u[rows]), item[rows])
    items = [np.unique(np.minimum(row, n_items - 1)) for row in item]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in items])])
    indices = np.concatenate(items).astype(np.int32)
    values = np.ones(len(indices), np.float32)
    return Ratings.from_indices(
        indptr, indices, values, np.arange(n), np.arange(n_items), catalog=True
    )


def model(epsilon=20.0, **options):
    return discreet.DPMF.configure(
        epsilon=epsilon,
        noise="seeded",
        **{"like_threshold": "everything", "random_state": 5} | options,
    )


@pytest.fixture(scope="module")
def ratings():
    return planted()


@pytest.fixture(scope="module")
def learned(ratings):
    return model().fit(ratings, progress=False)


def test_planted_communities_are_found(ratings, learned):
    """Items of a list are of the community of the history."""
    assert "communities of taste over all items" in learned.summary_
    assert learned.item_factors_.shape[0] == N_ITEMS
    right = []
    for i in range(100):
        history = ratings.indices[ratings.indptr[i] : ratings.indptr[i + 1]]
        own = np.bincount(history % K, minlength=K).argmax()
        ids, _ = learned.recommend(history.tolist(), n=10)
        right.append(np.mean(ids % K == own))
    assert np.mean(right) > 0.9


def test_the_ledger_has_the_parts_and_costs_the_budget(learned):
    ledger = learned.privacy_.ledger
    assert [entry.name for entry in ledger.entries] == ["counts", "size", *dict(PARTS)]
    assert learned.privacy_.epsilon == pytest.approx(20.0, rel=1e-6)
    assert learned.privacy_.epsilon <= 20.0 * (1 + 1e-9)
    assert sum(share for _, share in PARTS) == pytest.approx(1.0)


def test_dense_data_are_learned_from_pairs():
    """With the same bits as where there is no other route."""
    rng = np.random.default_rng(0)
    popular = np.append(np.full(300, 0.05), np.full(4700, 1e-4))
    taste = np.where(np.arange(5000) % 2 == rng.integers(0, 2, 1500)[:, None], 1.8, 0.2)
    user, item = np.nonzero(rng.random((1500, 5000)) < popular * taste)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=1500))])
    ones = np.ones(len(item), np.float32)
    ratings = Ratings.from_indices(
        indptr, item.astype(np.int32), ones, np.arange(1500), np.arange(5000), catalog=True
    )
    auto = model().fit(ratings, progress=False)
    pairs = model(route="pairs").fit(ratings, progress=False)
    assert "dimension" in auto.summary_
    assert re.search(
        r"Communities were not tried: the 1,000 most popular items have \d\d% of all choices, and"
        r" communities suit catalogs where that is below 42%\. To try them anyway, use"
        r" DPMF\.configure\(route=\"communities\", …\) or, on the command line, --set route=comm",
        auto.summary_,
    )
    assert "ommunities" not in pairs.summary_  # the other route was asked for
    np.testing.assert_array_equal(auto.item_factors_, pairs.item_factors_)
    one, other = (
        [(entry.name, entry.noise_multiplier) for entry in found.privacy_.ledger.entries]
        for found in (auto, pairs)
    )
    assert one == other


def test_without_taste_the_check_buys_counts():
    """And nothing that is learned in vain remains."""
    ratings = planted(taste=0.0)
    found = model(route="communities").fit(ratings, progress=False)
    assert found.item_factors_.shape[1] == 0
    assert "item popularity only" in found.summary_
    plain = model(route="pairs").fit(ratings, progress=False)
    exact = np.bincount(ratings.indices, minlength=N_ITEMS)
    top = np.argsort(-exact)[:20]
    for one in (found, plain):
        assert len(set(np.argsort(-one.counts_)[:20]) & set(top)) >= 14


def test_too_few_users_get_popularity_with_all_of_the_budget():
    ratings = planted(n=300)
    found = model(epsilon=0.5).fit(ratings, progress=False)
    assert [entry.name for entry in found.privacy_.ledger.entries][-1] == "item pairs (or counts)"
    assert found.item_factors_.shape[1] == 0
    assert "item popularity" in found.summary_
    assert re.search(
        r"Communities were not tried: \d+ items are clearly above the noise of their counts,"
        r" and 150 are needed; more users or a larger ε may change that",
        found.summary_,
    )


@pytest.mark.parametrize(("clear", "promising"), [(100, False), (300, True)])
def test_few_items_above_the_noise_make_no_communities(clear, promising):
    """Whatever their signal: it is decided from counts, before anything else is released."""
    counts = np.append(np.full(clear, 100.0), np.full(20_000 - clear, 5.0))
    found = communities.assess_counts(counts, 0.5, size=10_000, mu=1.0, pair_deviation=1.0)
    assert found.clear == clear
    assert found.signal > communities.LEAST_SIGNAL
    assert found.head < communities.HEAD_SHARE
    assert found.is_promising == promising
    if not promising:
        assert "100 items are clearly above the noise" in explain_untried_communities(found)
    weak = found._replace(clear=150, signal=0.05)
    said = explain_untried_communities(weak)
    assert "signal of popular pairs is 0.05× the noise, and 0.15×" in said


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (0.0047, "0.47 percentage points more"),
        (-0.0012, "0.12 percentage points fewer"),
        (0.1384, "13.8 percentage points more"),
        (0.01, "1 percentage point more"),
    ],
)
def test_the_summary_counts_in_percentage_points(gain, expected):
    counts = np.append(np.full(300, 100.0), np.full(20_000, 5.0))
    prospect = communities.assess_counts(counts, 0.5, size=10_000, mu=1.0, pair_deviation=1.0)
    found = Communities(np.ones((9, 3), np.float32), np.ones(3) / 3, gain, 0.0031, True)
    said = with_communities(found, prospect, pairs=False)
    assert f"Their lists find {expected} of users' left-out items than popular items do." in said
    said = without_communities(found, prospect)
    assert f"{expected} of users' left-out items" in said
    assert "with a standard error of 0.31)" in said


def test_a_saved_model_recommends_the_same(learned, ratings, tmp_path):
    learned.save(tmp_path / "model")
    again = discreet.load(tmp_path / "model")
    others = planted(n=100, seed=1)
    one, two = learned.recommend_many(others, n=5), again.recommend_many(others, n=5)
    assert all(map(np.array_equal, one, two))
    assert again.summary_ == learned.summary_
    ids, _ = learned.similar_items(int(np.argmax(np.bincount(ratings.indices))), n=10)
    assert len(ids) == 10


def test_scores_are_those_of_communities_plus_those_of_pairs(learned, ratings):
    """Of a history with items outside the core as well, computed plainly."""
    details = learned.details_
    many = len(details["communities"])
    core = np.array(details["pairs"]["core"])
    assert "and pairs of" in learned.summary_
    P = learned.item_factors_[:, :many].astype(np.float64)
    Y = learned.item_factors_[:, many:].astype(np.float64)
    assert not Y[np.setdiff1d(np.arange(N_ITEMS), core)].any()
    history = ratings.indices[: ratings.indptr[1]]
    assert 0 < np.isin(history, core).sum() < len(history)
    theta = reference.mixture_weights(
        np.array([0, len(history)]),
        history,
        np.ones(len(history)),
        P,
        np.array(details["communities"]),
        details["strength"],
        details["steps"],
    )[0]
    y = np.isin(core, history) / np.sqrt(np.isin(core, history).sum())
    c = np.maximum(learned.counts_[core], details["least_count"])
    plain = Y[core] / details["pairs"]["weight"]
    D = c / c.sum()
    precision = np.ones(Y.shape[1])
    precision[0] = details["pairs"]["lean_precision"]
    prior = np.zeros(Y.shape[1])
    prior[0] = details["pairs"]["lean"]
    A = np.diag(precision) + plain.T @ (plain / D[:, None])
    u = prior + np.linalg.solve(A, plain.T @ ((y - plain @ prior) / D))
    scores = P @ theta + Y @ u
    scores[history] = -np.inf
    ids, found = learned.recommend(history.tolist(), n=5)
    np.testing.assert_allclose(found, np.sort(scores)[::-1][:5], rtol=1e-3)
    assert set(ids) <= set(np.argsort(-scores)[:6])


def test_popular_items_are_discounted_where_users_have_many():
    rng = np.random.default_rng(0)
    P = communities.normalize_columns(rng.random((50, 3)))
    c = np.linspace(100.0, 4.0, 50)
    short, long = c.sum() / 2, c.sum() / 4
    np.testing.assert_array_equal(communities.discount_popularity(P, c, 3.0, short), P)
    found = communities.discount_popularity(P, c, 3.0, long) / P
    np.testing.assert_allclose(found[-1] / found[0], (100 / 4) ** 0.39, rtol=1e-4)
    np.testing.assert_allclose(found.std(axis=1), 0.0, atol=1e-5)


def test_a_model_with_communities_is_a_prior_by_its_counts(ratings):
    """A later training has the counts of the earlier one, and communities of its own."""
    given = {"rating_range": (0, 1), "like_threshold": 1.0}
    first = model(random_state=4, **given).fit(ratings, progress=False)
    assert "communities" in first.details_
    assert not first.released_.have_pairs
    later = model(random_state=5, **given).fit(ratings, prior=first, progress=False)
    assert "communities" in later.details_
    assert len(later.released_.rows) == 2
    assert later.details_["least_count"] < first.details_["least_count"]


def test_a_prior_with_pairs_is_used_by_pairs(ratings):
    given = {"rating_range": (0, 1), "like_threshold": 1.0}
    first = model(random_state=4, route="pairs", **given).fit(ratings, progress=False)
    assert first.released_.have_pairs
    later = model(random_state=5, **given).fit(ratings, prior=first, progress=False)
    assert "communities" not in later.details_
    assert "the prior has item pairs" in later.summary_


def test_counts_in_place_of_communities_are_released_sums_as_well(monkeypatch, ratings):
    """Where the check refuses communities, a later training has both counts of the earlier one."""
    monkeypatch.setattr(communities, "LEAST_CHECKED", 1e9)
    monkeypatch.setattr(communities, "CHECKED", 1e9)
    refused = model(random_state=4).fit(ratings, progress=False)
    assert "communities" not in refused.details_
    [row] = refused.released_.rows
    first = refused.privacy_.ledger.entries[0]
    assert first.name == "counts"
    assert row.counts_deviation < 0.9 * first.deviation


def test_with_a_profile_communities_have_no_pairs(ratings, monkeypatch):
    monkeypatch.setattr(profile, "FALSE_ALARMS", 1.0)  # whatever its weights are
    features = {j: "abcdef"[j % K] for j in range(N_ITEMS)}
    found = model(item_features=features).fit(ratings, progress=False)
    assert "communities" in found.details_
    assert "profile" in found.details_
    assert "pairs" not in found.details_
    assert found.item_factors_.shape[1] == len(found.details_["communities"])


def test_features_that_say_nothing_leave_pairs_next_to_communities(ratings):
    group = np.random.default_rng(3).integers(0, 40, N_ITEMS)
    features = {j: f"group {group[j]}" for j in range(N_ITEMS)}
    found = model(item_features=features).fit(ratings, progress=False)
    assert "profile" not in found.details_
    assert "pairs" in found.details_
    assert found.item_factors_.shape[1] > len(found.details_["communities"])


def test_a_user_without_a_history_gets_popular_items(learned, ratings):
    exact = np.bincount(ratings.indices, minlength=N_ITEMS)
    first, _ = learned.recommend([], n=10)
    assert exact[first].mean() > 0.7 * np.sort(exact)[-10:].mean()


@pytest.mark.parametrize("neighboring", ["add-remove", "replace-one"])
def test_it_keeps_every_rule(neighboring):
    check_private_model(
        discreet.DPMF.configure(
            epsilon=200.0, route="communities", rating_range=(1, 5), neighboring=neighboring
        ),
        people=9,
        draws=1000,
    )


# ------------------------------------------------------------------ estimates


def test_without_noise_counts_stay():
    exact = np.array([0.0, 1.0, 3.0, 10.0, 40.0, 41.0, 300.0])
    np.testing.assert_allclose(communities.posterior_counts(exact, 0.0)[3:], exact[3:], rtol=0.25)


def test_posterior_counts_are_nearer_than_noisy_ones():
    rng = np.random.default_rng(0)
    exact = 200.0 * (np.arange(5000) + 1.0) ** -0.7
    noisy = exact + 8 * rng.standard_normal(5000)
    found = communities.posterior_counts(noisy, 8.0)
    assert ((found - exact) ** 2).mean() < 0.2 * ((noisy - exact) ** 2).mean()
    assert (found > 0).all()


def test_posterior_entries_are_nearer_than_noisy_ones():
    rng = np.random.default_rng(0)
    c = 300.0 * (np.arange(2000) + 1.0) ** -0.5
    shares = np.array([0.5, 0.3, 0.2])
    lift = np.where(np.arange(3) == rng.integers(0, 3, 2000)[:, None], 0.9 / shares, 0.05 / shares)
    exact = c[:, None] * shares * lift
    noisy = exact + 5 * rng.standard_normal(exact.shape)
    found = communities.estimate_entries(noisy, 5.0, c, shares)
    assert ((found - exact) ** 2).mean() < 0.6 * ((noisy - exact) ** 2).mean()
    np.testing.assert_allclose(
        communities.estimate_shares(exact, 0.01), exact.sum(axis=0) / exact.sum(), rtol=1e-3
    )


def test_the_handicap_is_one_where_counts_are_known_and_larger_where_noise_hides_them():
    c = 300.0 * (np.arange(2000) + 1.0) ** -0.5
    assert communities.popularity_handicap(c, 1e-9, 1e-9) == 1.0
    assert communities.popularity_handicap(c, 60.0, 5.0) > 1.2


def test_an_unknown_route_is_refused():
    with pytest.raises(ConfigError, match="route is 'both'"):
        discreet.DPMF.configure(epsilon=1.0, route="both").plan(100)


def test_no_noise_is_the_plain_computation(ratings, monkeypatch):
    """The released entries are counts of all items by the communities that users choose."""
    monkeypatch.setattr(communities, "MANY_ITEMS", np.inf)  # no discount of popular items
    found = discreet.DPMF.configure(
        epsilon=20.0, like_threshold="everything", noise=NoNoise(), route="communities"
    ).fit(ratings, progress=False)
    many = len(found.details_["communities"])
    assert many >= K
    np.testing.assert_allclose(found.item_factors_[:, :many].sum(axis=0), 1.0, rtol=1e-4)
