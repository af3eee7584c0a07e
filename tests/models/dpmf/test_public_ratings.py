"""Public ratings: users who agreed improve every estimate, are not in the private part, and a
public set that says nothing costs nothing.
"""

import numpy as np
import pandas as pd
import pytest

import discreet
from discreet.errors import ConfigError, DataError
from discreet.models.dpmf.feature_prior import Sums
from discreet.models.dpmf.public_biases import PublicBiases
from discreet.models.dpmf.public_sums import PublicPairs, PublicSums, combine_pairs
from discreet.models.storage.model_card import escape_markdown
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.pairs import LikeCounts, PairSums
from discreet.privacy.users.public_users import PublicUsers, RemoveUsers
from discreet.privacy.users.sealed_users import sealed_block
from discreet.report.sign_off import Signing, render
from support.engine_helpers import same_bits, silenced, trained


def make_ratings(seed, n, m=60, first=0):
    """Two kinds of users, each with its own half of the items, and some items liked by all."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < 0.5
    popular = 0.5 * (1 + np.arange(m)) ** -0.3
    match = kind[:, None] == (np.arange(m) % 2 == 0)
    user, item = np.nonzero(rng.random((n, m)) < popular * np.where(match, 1.0, 0.2))
    liked = 1 + np.rint(4 * rng.beta(3 + 2 * (item % 3), 3)).astype(float)
    return discreet.Ratings.from_arrays(user + first, item, liked, item_ids=np.arange(m))


def shuffle_items(ratings, seed=1):
    other = np.random.default_rng(seed).permutation(ratings.n_items)
    user = np.repeat(ratings.user_ids, np.diff(ratings.indptr))
    return discreet.Ratings.from_arrays(
        user, other[ratings.indices], ratings.values, item_ids=ratings.item_ids
    )


def fit(ratings, public=None, epsilon=1.0, goal="ranking", **options):
    model = discreet.DPMF(
        epsilon=epsilon, rating_range=(1, 5), goal=goal, noise="seeded", random_state=5
    )
    return model.fit(ratings, public_ratings=public, progress=False, **options)


# ------------------------------------------------------------------ who is public


@pytest.mark.parametrize("goal", ["ranking", "rating"])
def test_private_rows_of_public_users_change_nothing(goal):
    public = make_ratings(1, 40, first=1000)
    private = make_ratings(2, 300)
    both = discreet.Ratings.from_frame(
        __import__("pandas").concat([private.to_frame(), shuffle_items(public).to_frame()]),
        items=list(range(60)),
    )
    one, two = fit(private, public, goal=goal), fit(both, public, goal=goal)
    assert np.array_equal(one.item_factors_, two.item_factors_)
    assert np.array_equal(one.counts_, two.counts_)
    assert not np.array_equal(fit(both, goal=goal).counts_, fit(private, goal=goal).counts_)


def test_interactions_of_public_users_count_as_liked_next_to_ratings(caplog):
    public = make_ratings(1, 200, first=1000)
    user = np.repeat(public.user_ids, np.diff(public.indptr))
    rows = {"user": user, "item": public.item_ids[public.indices]}
    private = make_ratings(2, 600)
    best = discreet.Ratings.from_arrays(*rows.values(), np.full(len(user), 5.0))
    without = discreet.Ratings.from_frame(pd.DataFrame(rows), rating=None)
    assert not without.rated
    found = fit(private, without, epsilon=5).counts_
    assert np.array_equal(fit(private, best, epsilon=5).counts_, found)
    assert not np.array_equal(found, fit(private, epsilon=5).counts_)
    fit(private, discreet.Ratings.from_arrays(*rows.values()))
    assert "the lowest of the range, so nothing is liked" in caplog.text
    with pytest.raises(DataError, match="has no ratings, and this model predicts ratings"):
        fit(private, without, goal="rating")


def test_the_summary_says_what_public_users_change():
    public = make_ratings(1, 100, first=1000)
    private = make_ratings(2, 600)
    assert "pairs of public users are a prior" in fit(private, public, epsilon=5).summary_
    wrong = fit(private, shuffle_items(public), epsilon=5).summary_
    assert "Public users change nothing" in wrong
    assert "public" not in fit(private, epsilon=5).summary_.lower()
    assert "biases of public users" in fit(private, public, epsilon=5, goal="rating").summary_


@pytest.mark.parametrize("removed", range(5))
def test_removal_of_users_keeps_neighbors_neighbors(removed):
    """Without one user, at most that user is missing after the step, to the last bit."""
    ratings = make_ratings(3, 5)
    step = RemoveUsers.from_ids(np.array([1, 3, 99]), seed=7)
    users = {}
    for name, rows in (("all", range(5)), ("fewer", [i for i in range(5) if i != removed])):
        some = ratings.select_users(np.array(list(rows)))
        keys = np.array(
            [RemoveUsers.from_ids(some.user_ids[[i]], 7).keys[0] for i in range(len(rows))]
        )
        block = sealed_block(some.indptr, some.indices, some.values, keys, Bounds(items=60))
        public = PublicUsers(block, None).block
        left = step.run(public, None)
        users[name] = {
            int(key): left.indices[a:b].tolist()
            for key, a, b in zip(left.key, left.indptr[:-1], left.indptr[1:], strict=True)
        }
    own = int(RemoveUsers.from_ids(np.array([removed]), 7).keys[0])
    expected = {key: items for key, items in users["all"].items() if key != own}
    assert users["fewer"] == expected
    assert len(users["all"]) == 3


@pytest.mark.parametrize("goal", ["ranking", "rating"])
def test_blocks_give_the_same_bits_as_memory(tmp_path, monkeypatch, goal):
    silent = silenced(monkeypatch)
    public = make_ratings(1, 40)  # ids 0 to 39, who are private users as well
    private = make_ratings(2, 300)
    blocks = discreet.BlockRatings.write(private, tmp_path / "blocks", blocks=3)

    class WithPublic(discreet.DPMF):
        def fit(self, ratings, **options):
            return super().fit(ratings, public_ratings=public, **options)

    def model():
        return WithPublic(epsilon=8.0, rating_range=(1, 5), goal=goal, random_state=1)

    same_bits(trained(model(), private, silent), trained(model(), blocks, silent))


def test_the_statement_says_who_is_public_and_who_said_so():
    model = fit(make_ratings(2, 300), make_ratings(1, 40, first=1000), public_confirmed_by="A. Lee")
    text = next(a.text for a in model.privacy_.assumptions if a.name == "public users")
    assert "the ratings of 40 users in public_ratings" in text
    assert "confirmed by A. Lee" in text
    statement = model.privacy_
    assert text in str(statement)
    assert "private user" in dict(statement.lines())["Guarantee"]
    assert "any one private user" in str(statement)
    assert not any("public users" in caution for caution in statement.cautions)
    unnamed = fit(make_ratings(2, 300), make_ratings(1, 40)).privacy_
    assert any("no name was given" in caution for caution in unnamed.cautions)
    assert unnamed.status == "private with cautions"
    assert "CAUTION: nothing says who confirmed" in str(unnamed)
    assert "private user" not in str(fit(make_ratings(2, 300)).privacy_)


@pytest.mark.parametrize(
    ("name", "public", "message"),
    [
        ("A. Lee", False, "needs public ratings"),
        (" ", True, "is blank"),
        (7, True, "must be text"),
        (None, True, "must be text"),
    ],
)
def test_names_that_confirm_nothing_are_refused(name, public, message):
    given = make_ratings(1, 40, first=1000) if public else None
    with pytest.raises(ConfigError, match=f"public_confirmed_by {message}"):
        fit(make_ratings(2, 300), given, public_confirmed_by=name)


def test_a_saved_model_with_public_users_says_what_it_holds_of_private_ones(tmp_path):
    fit(make_ratings(2, 300), make_ratings(1, 40, first=1000)).save(tmp_path / "public")
    fit(make_ratings(2, 300)).save(tmp_path / "private")
    cards = [(tmp_path / name / "README.md").read_text() for name in ("public", "private")]
    assert "no exact number of private users" in cards[0]
    assert "no exact number of users" in cards[1]


def test_mistakes_are_refused_before_anything_is_charged():
    private = make_ratings(2, 300)
    other = discreet.Ratings.from_arrays([1, 2], ["a", "b"], [5.0, 4.0])
    for given in (other, 7):
        model = discreet.DPMF(epsilon=1.0, rating_range=(1, 5))
        with pytest.raises(DataError):
            model.fit(private, public_ratings=given, progress=False)
        assert not hasattr(model, "privacy_")
    with pytest.raises(ConfigError, match="either prior or public_ratings"):
        fit(private, private, prior=discreet.DPMF(epsilon=1.0, rating_range=(1, 5)).fit(private))
    with pytest.raises(ConfigError, match="public_ratings is for DPMF"):
        discreet.DPALS(epsilon=1.0, rating_range=(1, 5)).fit(private, public_ratings=private)


# ------------------------------------------------------------------ sums


def test_sums_of_public_users_are_exact():
    ratings = make_ratings(4, 30, m=8).binarize(4.0)
    users = PublicUsers.from_ratings(ratings, Bounds(items=8))
    X = ratings.to_csr().toarray() > 0
    many = X.sum(axis=1, keepdims=True)
    counts = (X / np.sqrt(np.maximum(many, 1))).sum(axis=0)
    np.testing.assert_allclose(users.sum(LikeCounts(1)), counts, rtol=1e-5)
    P = np.zeros((8, 8))
    PairSums.unpack(users.sum(PairSums(1)), 0, P, 1.0)
    each = X / np.sqrt(np.sqrt(np.maximum(many * (many - 1.0), 1)))
    expected = (each * (many > 1)).T.astype(float) @ each
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(P, expected, rtol=1e-5, atol=1e-9)


# ------------------------------------------------------------------ worth


def public_counts(counts, size=100.0):
    return PublicSums(None, counts, size, 0.2)


def test_public_counts_improve_released_ones():
    rng = np.random.default_rng(0)
    true = 2000 * (1 + np.arange(2000.0)) ** -0.8
    noisy = true + 10 * rng.standard_normal(2000)
    public = public_counts(rng.poisson(true / 4) / 5)
    found, deviation = public.combine_counts(noisy, 10.0)
    error = np.sqrt(((found - true) ** 2).mean())
    assert error < 0.6 * np.sqrt(((noisy - true) ** 2).mean())
    assert 0.5 * error < deviation < 2 * error


def test_public_counts_of_other_items_are_ignored():
    rng = np.random.default_rng(0)
    true = 2000 * (1 + np.arange(2000.0)) ** -0.8
    noisy = true + 10 * rng.standard_normal(2000)
    public = public_counts(rng.permutation(rng.poisson(true / 4) / 5))
    found, deviation = public.combine_counts(noisy, 10.0)
    assert np.array_equal(found, noisy)
    assert deviation == 10.0


def make_pairs(seed, theta, m=120):
    rng = np.random.default_rng(seed)
    c = 50 + 200 * rng.random(m)
    V = rng.standard_normal((m, 3)) / 40
    true = np.outer(c, c) * (V @ V.T) / 30

    def noise():
        Z = np.triu(rng.standard_normal((m, m)), 1)
        return Z + Z.T

    np.fill_diagonal(true, 0.0)
    G = true + 3.0 * noise()
    P = true + np.sqrt(theta * np.outer(c, c)) * noise()
    return c, true, G, P


def test_public_pairs_improve_released_ones_and_their_scale_is_found():
    theta = 1e-4
    c, true, G, P = make_pairs(0, theta)
    found = combine_pairs(G, 3.0, PublicPairs((1.7 * P).astype(np.float32), c, theta), c)
    together = found.G / np.outer(found.f, found.f)
    best = 1 / (1 / 9.0 + 1 / (theta * np.outer(c, c)))
    off = ~np.eye(len(c), dtype=bool)
    error = ((together - true)[off] ** 2).mean()
    assert error < 1.3 * best[off].mean()
    assert error < 0.5 * ((G - true)[off] ** 2).mean()


def test_pairs_of_other_items_are_ignored():
    c, _, G, P = make_pairs(1, 1e-4)
    order = np.random.default_rng(3).permutation(len(c))
    P = P[np.ix_(order, order)].astype(np.float32)
    found = combine_pairs(G, 3.0, PublicPairs(P, c, 1e-4), c)
    np.testing.assert_allclose(found.G, G, rtol=1e-6)
    assert (found.f == 1).all()


def make_biases(order):
    rng = np.random.default_rng(2)
    b = 0.5 * rng.standard_normal(400)
    sums = Sums(10 * b + 8 * rng.standard_normal(400), np.full(400, 10.0), np.full(400, 64.0))
    many = rng.integers(0, 20, 400).astype(float)
    r = 0.3 + 0.8 * b[order] + rng.standard_normal(400) / np.sqrt(np.maximum(many, 1))
    return b, sums, PublicBiases(r, many, 1.0)


def test_public_biases_improve_released_ones():
    b, sums, public = make_biases(np.arange(400))
    found = public.combine(sums)
    known = public.many > 5
    error = ((found.z / found.S - b)[known] ** 2).mean()
    assert error < 0.35 * ((sums.z / sums.S - b)[known] ** 2).mean()
    assert np.array_equal(found.z[public.many == 0], sums.z[public.many == 0])


def test_biases_of_other_items_are_ignored():
    _, sums, public = make_biases(np.random.default_rng(0).permutation(400))
    assert public.combine(sums) is sums


def test_models_with_public_users_are_closer_to_what_users_like():
    private, public = make_ratings(5, 1500, m=200), make_ratings(6, 150, m=200, first=9000)
    exact = np.bincount(private.indices, minlength=200)
    near = {}
    for name, given in (("none", None), ("public", public), ("shuffled", shuffle_items(public))):
        found = fit(private, given, epsilon=0.5).counts_
        near[name] = np.corrcoef(found, exact)[0, 1]
    assert near["public"] > near["none"] + 0.05
    assert near["shuffled"] > near["none"] - 0.02


# ------------------------------------------------------------------ odd public sets


@pytest.mark.parametrize("kind", ["one item each", "one row", "lowest ratings", "one rare item"])
def test_public_users_without_pairs_cost_nothing_and_train(kind):
    private = make_ratings(2, 300)
    user = np.arange(1000, 1040)
    item = np.random.default_rng(0).integers(0, 60, 40)
    rating = np.full(40, 5.0)
    if kind == "one row":
        user, item, rating = user[:1], item[:1], rating[:1]
    if kind == "lowest ratings":
        user, item, rating = np.repeat(user, 2), np.tile([0, 1], 40), np.ones(80)
    if kind == "one rare item":
        item[:] = 59
    public = discreet.Ratings.from_arrays(user, item, rating, item_ids=np.arange(60))
    model = fit(private, public, epsilon=8.0)
    assert np.isfinite(model.item_factors_).all()


def test_public_ratings_of_another_scale_are_refused():
    public = make_ratings(1, 40, first=1000)
    user = np.repeat(public.user_ids, np.diff(public.indptr))
    wide = discreet.Ratings.from_arrays(user, public.indices, 20 * public.values)
    with pytest.raises(DataError, match="from 40 to 100, but the range of ratings is 1 to 5"):
        fit(make_ratings(2, 300), wide)


def rescale(public, factor, offset=0.0):
    user = np.repeat(public.user_ids, np.diff(public.indptr))
    values = factor * public.values + offset
    return discreet.Ratings.from_arrays(user, public.indices, values)


@pytest.mark.parametrize("goal", ["ranking", "rating"])
@pytest.mark.parametrize("rating_range", [(1, 5), None])
def test_the_share_outside_the_range_is_reported(caplog, goal, rating_range):
    """Up to half of them outside was accepted in silence, and all without a range. What is read
    from private ratings is in no message.
    """
    private, public = make_ratings(2, 300), make_ratings(1, 40, first=1000)
    top = np.sort(public.values)[int(0.7 * len(public.values))]
    some = rescale(public, 1.0, 5.5 - top)
    share = (some.values > 5).mean()
    assert 0.1 < share < 0.5
    model = discreet.DPMF(epsilon=5, rating_range=rating_range, goal=goal)
    model.fit(private, public_ratings=some, progress=False)
    said = {
        (1, 5): f"{100 * share:.3g}% of public_ratings are outside the range of ratings, 1 to 5,",
        None: "Some of public_ratings are outside the range of ratings and are clipped",
    }
    assert said[rating_range] in caplog.text
    caplog.clear()
    model = discreet.DPMF(epsilon=5, rating_range=rating_range, goal=goal)
    other = "is another" if rating_range is None else "is 1 to 5"
    with pytest.raises(DataError, match=f"but the range of ratings {other}"):
        model.fit(private, public_ratings=rescale(public, 20), progress=False)
    assert not hasattr(model, "privacy_")
    model.fit(private, public_ratings=public, progress=False)
    assert "outside the range" not in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        7,
        [1, 2],
        pd.DataFrame({"x": [1], "y": [2]}),
        pd.DataFrame({"user": [1], "item": [2], "rating": [np.nan]}),
        "no-such-file.csv",
    ],
)
def test_errors_about_public_ratings_name_them(given):
    with pytest.raises(DataError, match=r"^public_ratings(:| must be Ratings, a frame or a file)"):
        fit(make_ratings(2, 60), given)


@pytest.mark.parametrize(
    "name",
    [
        "A\n# Not a heading\n<script>alert(1)</script>",
        "A\x1b[31m",
        "A\u2028B",
        "A\u202eB",
        "A" * 201,
    ],
)
def test_a_name_is_one_line_of_text(name):
    model = discreet.DPMF(epsilon=1.0, rating_range=(1, 5))
    with pytest.raises(ConfigError, match=r"public_confirmed_by has .* Pass a name"):
        model.fit(
            make_ratings(2, 60),
            public_ratings=make_ratings(1, 5, first=99),
            public_confirmed_by=name,
            progress=False,
        )
    assert not hasattr(model, "privacy_")


def test_a_name_is_plain_text_in_the_card():
    name = "A. Lee <script>alert(1)</script> **b** [c](https://d) `e` & f"
    model = fit(
        make_ratings(2, 60), make_ratings(1, 5, first=99), epsilon=5, public_confirmed_by=name
    )
    assert name in str(model.privacy_)
    card = model.card()
    assert "<script" not in card
    assert (
        r"A. Lee &lt;script&gt;alert(1)&lt;/script&gt; \*\*b\*\* \[c\](https\://d) \`e\` &amp; f"
        in card
    )
    # a ledger of before may hold more than a line
    several = escape_markdown("A\n# Not a heading\n<script>alert(1)</script>")
    assert several == r"A \# Not a heading &lt;script&gt;alert(1)&lt;/script&gt;"


def test_the_sign_off_page_names_who_confirmed_once():
    model = fit(
        make_ratings(2, 60), make_ratings(1, 5, first=99), epsilon=5, public_confirmed_by="A. Lee"
    )
    page = render(model, Signing())
    assert page.count("A. Lee") == 1
    assert "(confirmed by" not in page


def test_a_public_matrix_without_user_ids_is_refused():
    with pytest.raises(DataError, match="a matrix without user ids"):
        fit(make_ratings(2, 300), make_ratings(1, 40).to_csr())
