"""What models of `implicit` do, on a checkerboard whose right answers are known, and in its own
evaluation.

Every even user likes every even item and every odd one every odd one, but for one item each, which
is withheld: it is the one that a list must begin with.
"""

import numpy as np
import pytest
from implicit.als import AlternatingLeastSquares
from implicit.evaluation import ranking_metrics_at_k, train_test_split
from scipy import sparse

import discreet
from discreet.adapters import ImplicitAdapter
from discreet.errors import ConfigError, DataError

USERS = 3000
ITEMS = 50


def checkerboard(users, items=ITEMS):
    """Who likes what, without the withheld item of each user, which is the first of the row's
    return value.
    """
    withheld = 2 * (np.arange(users) // 2 % (items // 2)) + np.arange(users) % 2
    likes = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    likes[np.arange(users), withheld] = False
    return withheld, sparse.csr_matrix(likes.astype(np.float32))


MODELS = {
    "DPMF": (
        lambda: discreet.DPMF(8, epsilon=20, rating_range=(0, 1), noise="seeded", random_state=0),
        USERS,
    ),
    "ALS": (lambda: discreet.ALS(3, goal="ranking", regularization=1.0), 100),
    # the tests are right
    "implicit": (lambda: AlternatingLeastSquares(3, regularization=1.0, random_state=1), 100),
}


@pytest.fixture(scope="module", params=MODELS)
def board(request):
    make, users = MODELS[request.param]
    withheld, user_items = checkerboard(users)
    model = make() if request.param == "implicit" else ImplicitAdapter(make())
    model.fit(user_items, show_progress=False)
    return model, withheld, user_items


def test_the_withheld_item_comes_first(board):
    model, withheld, user_items = board
    for user in range(0, user_items.shape[0], user_items.shape[0] // 50):
        ids, scores = model.recommend(user, user_items[user], N=1)
        assert ids.shape == scores.shape == (1,)
        assert ids[0] == withheld[user]


def test_users_together_get_what_each_gets_alone(board):
    model, _, user_items = board
    users = np.arange(20)
    ids, scores = model.recommend(users, user_items[users], N=5)
    assert ids.shape == scores.shape == (20, 5)
    for user in users:
        one, his = model.recommend(user, user_items[user], N=5)
        assert one.tolist() == ids[user].tolist()
        assert np.allclose(his, scores[user], rtol=1e-5)


def test_scores_go_down_and_what_is_liked_is_left_out(board):
    model, _, user_items = board
    ids, scores = model.recommend(0, user_items[0], N=10)
    assert (np.diff(scores) <= 0).all()
    assert not set(ids.tolist()) & set(user_items[0].indices.tolist())
    ids, _ = model.recommend(0, user_items[0], N=20, filter_already_liked_items=False)
    assert set(ids.tolist()) & set(user_items[0].indices.tolist())


def test_items_to_leave_out_and_to_choose_among(board):
    model, withheld, user_items = board
    ids, _ = model.recommend(0, user_items[0], N=5, filter_items=[int(withheld[0]), 1])
    assert not {int(withheld[0]), 1} & set(ids.tolist())
    ids, _ = model.recommend(0, user_items[0], N=10, items=[1, 3, int(withheld[0])])
    assert set(ids.tolist()) == {1, 3, int(withheld[0])}
    assert ids[0] == withheld[0]
    with pytest.raises(ValueError, match="items"):
        model.recommend(0, user_items[0], items=[1, 2], filter_items=[1])
    for wrong in ([-1, 2], [2, ITEMS]):
        with pytest.raises(IndexError):
            model.recommend(0, user_items[0], items=wrong)


def test_more_than_there_is(board):
    model, _, user_items = board
    ids, _ = model.recommend(0, user_items[0], N=10_000, filter_already_liked_items=False)
    assert set(ids.tolist()) == set(range(ITEMS))
    if isinstance(model, ImplicitAdapter):
        assert len(ids) == ITEMS  # and no item stands in for what there is not


def test_rows_must_fit_the_users(board):
    model, _, user_items = board
    with pytest.raises(ValueError, match="user_items"):
        model.recommend(0, user_items[0].tocoo())
    with pytest.raises(ValueError, match="user_items"):
        model.recommend(np.arange(3), user_items[:2])


def test_similar_items_are_of_the_same_color_and_begin_with_the_item(board):
    model, _, _ = board
    for item in range(ITEMS):
        ids, scores = model.similar_items(item, N=10)
        # implicit decides ties by chance
        assert ids[0] == item or not isinstance(model, ImplicitAdapter)
        assert scores[0] == pytest.approx(1.0, abs=1e-4)
        assert (ids % 2 == item % 2).all()
    many, _ = model.similar_items(np.arange(6), N=4)
    assert many.shape == (6, 4)
    assert (many % 2 == np.arange(6)[:, None] % 2).all()
    ids, _ = model.similar_items(0, N=3, filter_items=[0, 2])
    assert not {0, 2} & set(ids.tolist())
    ids, _ = model.similar_items(0, N=3, items=[4, 6, 8])
    assert set(ids.tolist()) == {4, 6, 8}


def test_a_users_vector_gives_the_scores(board):
    model, _, user_items = board
    vector = np.asarray(model.recalculate_user(0, user_items[0])).ravel()
    own = np.asarray(model.item_factors) @ vector
    ids, _ = model.recommend(
        0, user_items[0], N=ITEMS, filter_already_liked_items=False, recalculate_user=True
    )
    assert own[ids[0]] == pytest.approx(own.max(), abs=1e-5)
    assert (np.diff(own[ids]) <= 1e-5).all()


def test_implicits_own_evaluation_takes_it():
    """The same split and metrics: what is behind the adapter is as good as by our own lists."""
    ratings = discreet.load_dataset("cinema", scale=0.1).to_csr()
    train, test = train_test_split(sparse.csr_matrix(ratings), train_percentage=0.8, random_state=0)
    model = ImplicitAdapter(discreet.DPMF(epsilon=5, rating_range=(0.5, 5)), public_items=True)
    model.fit(train, show_progress=False)
    assert model.privacy_.private
    found = ranking_metrics_at_k(model, train, test, K=20, show_progress=False)
    lists, _ = model.model.recommend_many(
        discreet.Ratings.from_csr(train, item_ids=np.arange(train.shape[1])), 20
    )
    hits = sum(
        len(set(lists[u].tolist()) & set(test[u].indices.tolist())) for u in range(train.shape[0])
    )
    wanted = sum(min(20, len(test[u].indices)) for u in range(train.shape[0]))
    assert found["precision"] == pytest.approx(hits / wanted, rel=1e-6)
    other = AlternatingLeastSquares(8, random_state=0)
    other.fit(train, show_progress=False)
    assert set(found) == set(ranking_metrics_at_k(other, train, test, K=20, show_progress=False))


@pytest.fixture(scope="module")
def ours():
    make, users = MODELS["DPMF"]
    _, user_items = checkerboard(users)
    return ImplicitAdapter(make()).fit(user_items), user_items


def test_it_is_saved_and_read(tmp_path, ours):
    model, user_items = ours
    model.save(tmp_path / "m")
    again = ImplicitAdapter.load(tmp_path / "m")
    for found, expected in zip(
        again.recommend(3, user_items[3]), model.recommend(3, user_items[3]), strict=True
    ):
        assert np.array_equal(found, expected)


def test_steps_are_told():
    told = []
    ImplicitAdapter(discreet.ALS(2, iterations=3)).fit(
        checkerboard(40)[1], callback=lambda *what: told.append(what)
    )
    assert [step for step, _ in told] == [0, 1, 2]
    assert all(seconds >= 0 for _, seconds in told)


def test_what_is_refused_says_why(ours):
    model, user_items = ours
    with pytest.raises(ConfigError, match="each is computed from that user's own history"):
        model.similar_users(3)
    with pytest.raises(AttributeError, match="compute them with recalculate_user"):
        model.user_factors  # noqa: B018
    with pytest.raises(ConfigError, match="another release"):
        model.partial_fit_items([1], user_items.T.tocsr()[1])
    with pytest.raises(ConfigError, match="another release"):
        model.similar_items(1, recalculate_item=True, item_users=user_items.T.tocsr()[1])
    with pytest.raises(DataError, match="a sparse matrix"):
        model.fit([[1, 0]])
    model.partial_fit_users([1], user_items[1])  # nothing to do
