"""Equal scores are ordered by position in the catalog, by every implementation of top-n lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import discreet
from discreet import kernels
from discreet.kernels import reference
from discreet.models.recommend_spark import pack_model, ranker
from discreet.models.scorer import Scorer
from discreet.models.storage.load_scorer import open_model
from discreet.serve.vectors import item_vectors, query
from support.served_models import fitted, histories

ITEMS, N = 700, 60  # more than a chunk and a tile of the compiled kernel
HISTORY = [3, 7, 650]


@pytest.fixture(scope="module")
def ratings():
    """Items whose numbers of ratings are 1, 2 or 3, in no order of the catalog."""
    counts = np.random.default_rng(0).integers(1, 4, ITEMS)
    users = np.concatenate([np.arange(count) for count in counts])
    items = np.repeat(np.arange(ITEMS), counts)
    return discreet.Ratings.from_arrays(users, items, np.ones(len(items)))


@pytest.fixture(scope="module")
def model(ratings):
    return discreet.Popularity().fit(ratings)


@pytest.fixture(scope="module")
def expected(model):
    scores = model.item_biases_.copy()
    assert len(np.unique(scores)) == 3  # ties everywhere
    scores[HISTORY] = -np.inf
    return np.lexsort((np.arange(ITEMS), -scores))[:N].tolist()


def history_frame():
    return pa.table({"user": [5] * 3, "item": HISTORY, "rating": [1.0] * 3})


def rank_on_worker(model):
    task = ranker(pack_model(model), N, {"user": "user", "item": "item", "rating": "rating"}, True)
    return pa.Table.from_batches(task(history_frame().to_batches()))["item_id"].to_pylist()


def test_workers_take_diversity():
    model = fitted("DPMF")
    ids = list(next(iter(histories(20))))
    frame = pa.table({"user": [5] * len(ids), "item": ids, "rating": [5.0] * len(ids)})
    columns = {"user": "user", "item": "item", "rating": "rating"}
    task = ranker(pack_model(model), 7, columns, True, 0.6)
    found = pa.Table.from_batches(task(frame.to_batches()))["item_id"].to_pylist()
    expected, _ = model.recommend(ids, 7, diversity=0.6)
    assert found == expected.tolist()
    assert found != model.recommend(ids, 7)[0].tolist()


def rank_by_vectors(model):
    q, _ = query(model.scorer(), HISTORY)
    scores = item_vectors(model.scorer()) @ q
    scores[HISTORY] = -np.inf
    return np.argsort(-scores, kind="stable")[:N].tolist()


def rank_by_kernel(module, model):
    seen = (np.array([0, 3]), np.array(HISTORY, np.int32))
    V, bias = np.zeros((ITEMS, 1), np.float32), model.item_biases_.astype(np.float32)
    return module.top_k(np.zeros((1, 1), np.float32), V, bias, N, seen)[0][0].tolist()


def scorer_of(model, module):
    own = model.scorer()
    return Scorer(own.item_ids, own.factors, own.biases, own.fold_in_rule, kernels=module)


IMPLEMENTATIONS = {
    "kernels.top_k": lambda model: rank_by_kernel(kernels, model),
    "reference.top_k": lambda model: rank_by_kernel(reference, model),
    "recommend": lambda model: model.recommend(HISTORY, N)[0].tolist(),
    "recommend_many": lambda model: model.recommend_many(
        discreet.Ratings.from_frame(history_frame()), N
    )[0][0].tolist(),
    "recommend_table": lambda model: discreet.recommend_table(model, history_frame(), n=N)[
        "item_id"
    ].to_pylist(),
    "recommend_spark": rank_on_worker,
    "vectors": rank_by_vectors,
} | {
    f"Scorer.{name}, {module.__name__}": lambda model, module=module, ask=ask: ask(
        scorer_of(model, module)
    )
    for module in (kernels, reference)
    for name, ask in {
        "best": lambda scorer: scorer.best(*scorer.history(HISTORY), N)[0].tolist(),
        "best_many": lambda scorer: scorer.best_many([(*scorer.history(HISTORY), N, True)])[0][
            0
        ].tolist(),
    }.items()
}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_equal_scores_are_in_the_order_of_the_catalog(model, expected, name):
    assert IMPLEMENTATIONS[name](model) == expected


def test_a_saved_model_breaks_ties_alike(model, expected, tmp_path):
    model.save(tmp_path / "model")
    for once in (False, True):
        scorer = open_model(tmp_path / "model", once=once).scorer
        assert scorer.best(*scorer.history(HISTORY), N)[0].tolist() == expected
