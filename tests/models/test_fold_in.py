"""No bit of what one user is told depends on who else is asked about: of every model, at many
ranks.
"""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from discreet import (
    ALS,
    DPALS,
    DPLMC,
    DPMF,
    DPSGD,
    DPSGLD,
    DPSVD,
    IRLS,
    Bias,
    DPFrankWolfe,
    HuberALS,
    Popularity,
    Ratings,
    evaluate,
)
from discreet.data.splits import Holdout, Split

USERS, ITEMS = 150, 260
RANKS = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    24,
    31,
    33,
    48,
    63,
    64,
    65,
    95,
    96,
    97,
    128,
    129,
    200,
)
RANGE = {"rating_range": (1, 5), "epsilon": 50.0, "noise": "seeded", "random_state": 3}
RATING = RANGE | {"goal": "rating"}
MODELS = {
    "ALS": lambda: ALS(20, iterations=2),
    "ALS without intercepts": lambda: ALS(20, iterations=2, intercepts=False, dtype="float64"),
    "ALS implicit": lambda: ALS(20, iterations=2, goal="ranking"),
    "ALS, some in the dual": lambda: ALS(100, iterations=1),
    "IRLS": lambda: IRLS(20, iterations=2),
    "Bias": Bias,
    "Popularity": Popularity,
    "DPMF": lambda: DPMF(20, **RANGE),
    "DPMF, ratings": lambda: DPMF(20, **RATING),
    "DPMF without factors": lambda: DPMF(0, **RATING),
    "DPMF, slopes given": lambda: DPMF.configure(
        factors=20, regularization=5.0, slope=0.5, taste=0.5, **RATING
    ),
    "DPALS": lambda: DPALS(20, **RANGE),
    "DPALS global centering": lambda: DPALS.configure(factors=20, centering="global", **RANGE),
    "DPALS implicit": lambda: DPALS(20, goal="ranking", **RANGE),
    "DPLMC": lambda: DPLMC(20, **RANGE),
    "HuberALS": lambda: HuberALS(8, **RANGE),
    "DPFrankWolfe": lambda: DPFrankWolfe(6, **RANGE),
    "DPFrankWolfe by steps": lambda: DPFrankWolfe.configure(factors=6, folding="steps", **RANGE),
    "DPSVD": lambda: DPSVD(20, **RANGE),
    "DPSVD by density": lambda: DPSVD.configure(factors=20, density=0.2, **RANGE),
    "DPSGLD": lambda: DPSGLD(20, **RANGE),
    "DPSGD": lambda: DPSGD(20, accountant="gdp", **RANGE),
}


def people():
    """Histories of every length from 0 on; some items are rated by one user alone."""
    rng = np.random.default_rng(0)
    counts = rng.permutation(np.r_[0, 1, 2, np.geomspace(3, 200, USERS - 3).astype(int)])
    rows = [np.sort(rng.choice(ITEMS - 5, count, replace=False)) for count in counts]
    rows[8] = np.arange(200, ITEMS)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    values = rng.integers(1, 6, indptr[-1]).astype(np.float32)
    matrix = sparse.csr_array((values, np.concatenate(rows), indptr), shape=(USERS, ITEMS))
    return Ratings.from_csr(
        matrix, user_ids=[f"u{i}" for i in range(USERS)], item_ids=[f"i{j}" for j in range(ITEMS)]
    )


PEOPLE = people()


def batches():
    """Users who are asked about together."""
    rng = np.random.default_rng(1)
    return [
        np.delete(np.arange(USERS), 8),
        rng.permutation(USERS),
        rng.permutation(USERS)[:33],
        [8],
        [0],
    ]


def only_their_items(ratings):
    """The same histories with a list of items of their own, as they would come from a file."""
    row = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    backwards = np.arange(len(row))[::-1]
    ids = ratings.item_ids[ratings.indices]
    return Ratings.from_arrays(
        ratings.user_ids[row][backwards], ids[backwards], ratings.values[backwards]
    )


def same_bits(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def check(model):
    """Lists and predictions of batches of users against those of all of them, and of histories
    in another form.
    """
    lists, predicted = told(model, PEOPLE)
    for batch in batches():
        some = PEOPLE.select_users(np.asarray(batch), by="index")
        expect(told(model, some), (lists, predicted), batch)
    written = only_their_items(some := PEOPLE.select_users(np.arange(20), by="index"))
    assert len(written.item_ids) < ITEMS
    expect(
        told(model, written),
        (lists, predicted),
        [list(PEOPLE.user_ids).index(user) for user in written.user_ids],
    )
    pairs = [(user, "i3") for user in some.user_ids]
    assert same_bits(model.predict(PEOPLE, pairs), predicted[:20, 1].copy())
    ids, scores = model.recommend(PEOPLE.select_users([8], by="index"), n=25)
    assert ids.tolist() == lists[0][8][: len(ids)].tolist()
    assert same_bits(scores, lists[1][8][: len(ids)])


def told(model, ratings):
    """The best items of every user with their scores, and predictions for three items."""
    pairs = [(user, item) for user in ratings.user_ids for item in ("i0", "i3", "i250")]
    return model.recommend_many(ratings, n=25), model.predict(ratings, pairs).reshape(-1, 3)


def expect(found, whole, rows):
    (ids, scores), predicted = found
    assert ids.tolist() == whole[0][0][rows].tolist()
    assert same_bits(scores, whole[0][1][rows])
    assert same_bits(predicted, whole[1][rows])


@pytest.mark.parametrize("kernels", ["vector", "plain"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_model(make, kernels, monkeypatch):
    monkeypatch.setenv("DISCREET_KERNELS", kernels)
    check(make().fit(PEOPLE))


@pytest.mark.parametrize("kernels", ["vector", "plain"])
@pytest.mark.parametrize("goal", ["rating", "ranking"])
@pytest.mark.parametrize("r", RANKS)
def test_every_rank(r, goal, kernels, monkeypatch):
    monkeypatch.setenv("DISCREET_KERNELS", kernels)
    rng = np.random.default_rng(r)
    model = ALS(r, goal=goal)
    model.restore({"mean": 3.2, "spread": 1.1, "regularization": 4.0, "user_scale": 0.3})
    V, b = (
        rng.standard_normal((ITEMS, r)).astype(np.float32),
        rng.standard_normal(ITEMS).astype(np.float32),
    )
    model.restore_items(PEOPLE.item_ids, V, b, None, None)
    check(model)


# People are asked about with and without the last of them; prints the ranks at which that changed a
# bit for the others.
ONE_LESS = """
import numpy as np
from discreet import ALS, Ratings
rng = np.random.default_rng(0)
items = np.argsort(rng.random((200, 2500)), axis=1)[:, :20]
people = Ratings.from_arrays(np.repeat(np.arange(200), 20), items.ravel(), rng.integers(1, 6, 4000))
ids = np.arange(2500)
for r in (8, 12, 16, 32):
    model = ALS(r)
    model.restore({"mean": 3.2, "spread": 1.1, "regularization": 4.0, "user_scale": 0.3})
    V = rng.standard_normal((2500, r)).astype(np.float32)
    model.restore_items(ids, V, np.zeros(2500, np.float32), None, None)
    first = lambda n: people.select_users(np.arange(n), by="index")
    told = {n: model.recommend_many(first(n), n=25)[1] for n in range(1, 66)}
    print(r, [n for n in range(2, 66) if told[n][:-1].tobytes() != told[n - 1].tobytes()])
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="names of processors that only OpenBLAS for x86-64 knows"
)
@pytest.mark.parametrize("processor", ["Haswell", "Nehalem"])
def test_whatever_the_matrix_products_of_the_processor(processor):
    """With a row less, a matrix product may add in another order; whether it does is up to the
    processor.
    """
    told = subprocess.run(
        [sys.executable, "-c", ONE_LESS],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_CORETYPE": processor},
    )
    assert told.stdout.splitlines() == ["8 []", "12 []", "16 []", "32 []"], told.stderr


def test_metrics_of_one_user():
    """What is measured of each user is of that user alone."""
    rng = np.random.default_rng(2)
    shown = rng.random(PEOPLE.n_ratings) < 0.7
    known, target = PEOPLE.keep(shown), PEOPLE.keep(~shown)
    model = ALS(40, iterations=2).fit(PEOPLE)

    def measured(rows):
        part = Holdout(known.select_users(rows, by="index"), target.select_users(rows, by="index"))
        return evaluate(
            model, Split("by hand", 0, PEOPLE, part), ["rmse", "ndcg@20"], relevant=4
        ).per_user

    whole = measured(np.arange(USERS))
    for batch in batches():
        for name, values in measured(np.asarray(batch)).items():
            assert same_bits(values, whole[name][batch])
