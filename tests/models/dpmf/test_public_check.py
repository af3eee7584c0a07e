"""Public users try the lists of two models: what they leave out is theirs, and the better wins."""

import numpy as np
import pytest

import discreet
from discreet.models.dpmf.public_check import SHORTEST, leave_items_out, usual_length
from discreet.models.dpmf.ranking import PairRanking
from discreet.models.fold_in import HistoryRows
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.pairs import grade_ratings
from discreet.privacy.users.public_users import PublicUsers


def make_rows(seed=0, n=50, m=30):
    user, item = np.nonzero(np.random.default_rng(seed).random((n, m)) < 0.1)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(user, minlength=n))))
    return HistoryRows(indptr, item.astype(np.int32), 1.0 + item.astype(np.float32))


@pytest.mark.parametrize("length", [2, 3, 100])
def test_left_out_items_are_own_ones_and_not_in_the_history(length):
    rows = make_rows()
    left, items = leave_items_out(rows, length, np.random.default_rng(1))
    enough = np.flatnonzero(rows.counts > 1)
    assert left.n == len(items) == len(enough) < rows.n
    for place, user in enumerate(enough):
        own = rows.indices[rows.indptr[user] : rows.indptr[user + 1]].tolist()
        kept = left.indices[left.indptr[place] : left.indptr[place + 1]].tolist()
        assert items[place] in own
        assert items[place] not in kept
        assert set(kept) < set(own)
        assert kept == sorted(kept)
        assert len(kept) == min(len(own), length) - 1
    assert np.array_equal(left.values, 1.0 + left.indices)


def test_the_usual_length_is_that_of_equal_users():
    counts = np.full(10, 100 * np.sqrt(9) / 10)  # a hundred users with nine items each
    assert usual_length(counts, 100.0) == 9
    assert usual_length(np.zeros(10), 100.0) == SHORTEST


def test_graded_users_have_histories_of_the_same_grades():
    rated = np.arange(1.0, 5.5, 0.5)
    ratings = discreet.Ratings.from_arrays(np.zeros(9, int), np.arange(9), rated)
    algorithm = PairRanking().resolve(Budget(1.0, 1e-6), 9, (1.0, 5.0))
    users = PublicUsers.from_ratings(ratings, Bounds(items=100, rating=5.0))
    algorithm._counts(users)
    found = algorithm._histories(users)
    # the lowest rating is no liking, and grades are a fifth of a star apart
    assert np.abs(found.values - rated[1:]).max() <= 0.1 + 1e-6
    assert np.array_equal(grade_ratings(found.values, 1.0, 5.0), users.block.ratings)


def make_neighbors(seed, n, per_user, m=600, first=0):
    """Users who choose near a place of their own on a ring, rather popular items than others."""
    rng = np.random.default_rng(seed)
    popular = (1.0 + np.arange(m) % 7) ** 2
    place = rng.integers(m, size=n)
    near = (place[:, None] + np.rint(12 * rng.standard_normal((n, 3 * per_user)))) % m
    liked = rng.random(near.shape) < popular[near.astype(int)] / popular.max()
    user, at = np.nonzero(liked & (np.cumsum(liked, axis=1) <= per_user))
    return discreet.Ratings.from_arrays(
        user + first, near[user, at].astype(int), item_ids=np.arange(m)
    )


@pytest.mark.parametrize(("many", "alone"), [(3000, True), (30, False)])
def test_public_users_replace_communities_only_where_their_lists_are_better(many, alone):
    private = make_neighbors(1, 2000, 8)
    public = make_neighbors(2, many, 30, first=10_000)
    model = discreet.DPMF.configure(
        epsilon=8.0,
        like_threshold="everything",
        noise="seeded",
        random_state=3,
        route="communities",
    )
    model.fit(private, public_ratings=public, progress=False)
    assert ("public users alone" in model.summary_) == alone, model.summary_
