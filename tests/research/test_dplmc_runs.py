"""§6 of the DPLMC paper: the planted matrices are as described, and the speed reference
computes what it says.
"""

import math

import numpy as np
import pytest
from scipy import sparse

from benchmarks import bench_dplmc
from discreet.models.dplmc import DPLMC
from discreet.models.dpmf import DPMF
from research import dplmc_runs
from research import entry as entries
from research.dplmc_runs import (
    OUTPUT,
    PAPER_RANGES,
    PRINTED_SPLIT,
    RANDOM_USERS,
    RANGES,
    REFIT,
    _rounds,
    error,
    make,
    nothing,
    planted,
    run,
)
from research.pair_start import PAIRS, lead
from research.search import Found
from research.sources import Sources


def test_planted_matrices_are_as_in_the_paper():
    X, known, ratings = planted(500, 3, 0.0, 1)
    assert X.shape == (500, 100)
    assert np.linalg.matrix_rank(X) == 3
    assert known.sum() == ratings.n_ratings == round(3 * 500 * math.log(500))
    assert np.abs(X).max() <= 4
    noisy = planted(500, 3, 1.0, 1)[2]
    assert (noisy.values - ratings.values).std() == pytest.approx(1.0, rel=0.1)


def test_skewed_sampling_knows_the_first_items_most_often():
    _, known, ratings = planted(2000, 3, 0.0, 1, skew=1.0)
    assert known.sum() == ratings.n_ratings == round(3 * 2000 * math.log(2000))
    shares = known.mean(axis=0)
    assert shares[0] > 0.9
    assert 0.03 < shares[-1] < 0.5 * shares[20]
    assert planted(2000, 3, 0.0, 1, per_user=10.0)[1].sum() == 20_000


@pytest.mark.parametrize("model", ["DPALS", "DPLMC"])
def test_a_start_by_dpmf_composes_to_the_budget_and_starts_there(model):
    X, known, ratings = planted(2000, 3, 0.0, 1)
    chosen = {
        "DPALS": {"iterations": 1, "max_items": 30, "regularization": 1.0, "initial_scale": 0.3},
        "DPLMC": {"iterations": 2, "step_size": 0.05, "user_norm": 2.0, "item_norm": 2.0},
    }[model]
    found = make(model, 50.0, PAIRS, 0.0, 3, "equal", 2000, chosen | {"pair_share": 0.4}, 0)
    found.fit(ratings)
    assert found.privacy_.epsilon == pytest.approx(50.0, rel=1e-6)
    assert found.first.privacy_.epsilon < 50.0 > found.model.privacy_.epsilon
    start = lead(found.first.item_factors_, 3)
    assert np.array_equal(found.model.algorithm.given, start)
    Q = np.linalg.svd(X, full_matrices=False)[2][:3]
    outside = start - Q.T @ (Q @ start)
    assert np.linalg.norm(outside) < 0.2 * np.linalg.norm(start)
    read_out = OUTPUT if model == "DPLMC" else ""
    assert error(found, X, known, ratings, read_out) < 0.5 * nothing(X, known)


@pytest.mark.parametrize("accounting", ["equal", "printed"])
@pytest.mark.parametrize("start", ["random", "private"])
def test_models_are_priced_as_the_cell_says(accounting, start):
    X, known, ratings = planted(500, 3, 0.0, 1)
    found = {}
    for name, chosen in (
        ("DPLMC", {"iterations": 10, "step_size": 1.0, "user_norm": 2.0, "item_norm": 2.0}),
        ("DPALS", {"iterations": 2, "max_items": 30, "regularization": 10.0}),
    ):
        model = make(name, 20.0, start, 0.0, 3, accounting, 500, chosen, 0).fit(ratings)
        found[name] = model.privacy_.epsilon
        assert math.isfinite(error(model, X, known, ratings))
    if accounting == "equal":
        assert found["DPLMC"] == pytest.approx(20.0, rel=1e-6)
        assert found["DPALS"] == pytest.approx(20.0, rel=1e-6)
    else:
        assert found["DPLMC"] < 20.0 < found["DPALS"], (
            "one paper prints too much noise, the other prices too little"
        )


def test_a_cell_searches_once_and_has_all_its_trials():
    settings = dict(
        model="DPALS", users=300, rank=3, noise_variance=0.0, epsilon=50.0, start="private"
    )
    settings |= dict(
        accounting="equal", trials=3, search={"candidates": 4, "kept": [2], "sets": [1, 3]}
    )
    records = run(settings, Sources())
    assert [record["seed"] for record in records] == [0, 1, 2]
    assert len({str(record["chosen"]) for record in records}) == 1
    assert set(records[0]["chosen"]) == set(RANGES["DPALS"])
    assert records[0]["trainings"] == 4 + 2 * 2
    assert len({record["error"] for record in records}) == 3


def test_dplmc_has_both_read_outs_each_with_its_own_choice():
    settings = dict(
        model="DPLMC", users=300, rank=3, noise_variance=1.0, epsilon=50.0, start="private"
    )
    settings |= dict(
        accounting="equal", trials=2, search={"candidates": 4, "kept": [2], "sets": [1, 2]}
    )
    records = run(settings, Sources())
    assert [(r["model"], r["seed"]) for r in records] == [
        ("DPLMC, Uᵀ", 0),
        ("DPLMC, Uᵀ", 1),
        ("DPLMC, refit", 0),
        ("DPLMC, refit", 1),
    ]
    assert len({r["error"] for r in records}) == 4


CHOSEN = {"iterations": 7, "step_size": 0.4, "user_norm": 2.0, "item_norm": 2.0}


@pytest.mark.parametrize("start", ["private", PRINTED_SPLIT, "random", RANDOM_USERS])
def test_the_output_of_algorithm_1_is_that_of_its_last_step(start):
    """An independent transcription of lines 14 to 16, from the steps that the training took."""
    _, _, ratings = planted(200, 3, 1.0, 1)
    model = make("DPLMC", 1e6, start, 1.0, 3, "equal", 200, CHOSEN, 0).fit(ratings)
    first = next(at for at, step in enumerate(model.steps_) if "Start" in type(step).__name__)
    Y = ratings.to_csr().toarray().astype(np.float64)
    seen = Y != 0
    if start == RANDOM_USERS:
        U = 0.3 * np.random.default_rng([0, 31]).standard_normal((200, 3))
    else:
        U = Y @ model.steps_[first].W

    def cut(U):
        return U * np.minimum(1.0, 2.0 / np.maximum(np.linalg.norm(U, axis=1), 1e-9))[:, None]

    U = cut(U)
    for residuals, step in zip(
        model.steps_[first + 1 :: 2], model.steps_[first + 2 :: 2], strict=True
    ):
        E = np.where(seen, U @ residuals.V.T - Y, 0.0)
        U = cut(U - step.rate * E @ residuals.V - step.balance * U @ step.R)
    np.testing.assert_allclose(model.replay(ratings), U, atol=1e-3)


def test_recording_steps_changes_nothing():
    X, known, ratings = planted(300, 3, 1.0, 1)
    model = make("DPLMC", 20.0, "private", 1.0, 3, "equal", 300, CHOSEN, 0)
    plain = DPLMC.configure(
        **{name: value for name, value in model.get_params().items() if value is not None}
    ).fit(ratings)
    model.fit(ratings)
    assert np.array_equal(plain.item_factors_, model.item_factors_)
    assert error(model, X, known, ratings, REFIT) == error(plain, X, known, ratings)
    assert error(model, X, known, ratings, OUTPUT) != error(model, X, known, ratings, REFIT)


def test_the_papers_ranges_are_those_that_it_prints():
    assert PAPER_RANGES["DPLMC"]["step_size"] == (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    assert set(PAPER_RANGES["DPLMC"]["user_norm"]) <= {2.0, 3.0, 4.0, 5.0, 6.0}
    assert set(PAPER_RANGES["DPLMC"]["item_norm"]) <= {2.0, 3.0, 4.0, 5.0, 6.0}
    assert PAPER_RANGES["DPALS"]["user_norm"] == (2.0,)
    assert PAPER_RANGES["DPALS"]["rating_bound"] == (4.0,)


def test_predicting_0_has_the_error_of_what_was_not_known():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert nothing(X, np.array([[True, False], [False, True]])) == (4 + 9) / 2


def test_the_house_model_has_its_defaults():
    model = make("DPMF, by default", 5.0, "none", 1.0, 5, "equal", 500, {}, 0)
    public = dict(epsilon=5.0, delta=1e-5, goal="rating", rating_range=model.rating_range)
    given = dict(neighboring="replace-one", noise="seeded", random_state=0)
    assert model.get_params() == DPMF(**public, **given).get_params()


@pytest.mark.parametrize(
    "name", ["dplmc-figure1", "dplmc-figure2", "dplmc-figure3", "dplmc-printed"]
)
def test_both_algorithms_are_searched_equally_in_every_setting(name):
    """DPALS, which the paper says loses, with as many trainings as DPLMC; every panel has what
    no learning gives.
    """
    cells = entries.load(name).settings(Sources())
    searched = [cell for cell in cells if cell["model"] in RANGES and RANGES[cell["model"]]]
    trainings = {
        model: {_rounds(c["search"]).trainings for c in searched if c["model"] == model}
        for model in RANGES
    }
    assert len(trainings["DPALS"]) == len(trainings["DPLMC"]) == 1
    assert min(trainings["DPALS"]) >= max(trainings["DPLMC"])
    assert len({cell.get("known_from") for cell in searched}) == 1
    names = ("start", "users", "epsilon", "accounting", "rank")
    by_model = {}
    for cell in searched:
        by_model.setdefault(cell["model"], set()).add(tuple(cell[key] for key in names))
    # starts that DPALS does not have
    extra = {key for key in by_model["DPLMC"] if key[0] in (PRINTED_SPLIT, RANDOM_USERS)}
    assert by_model["DPLMC"] - by_model["DPALS"] == extra
    assert by_model["DPALS"] <= by_model["DPLMC"]
    floors = {cell["users"] for cell in cells if cell["model"] == "predict 0"}
    assert floors == {cell["users"] for cell in searched} or name == "dplmc-printed"


def test_what_was_found_at_one_rank_is_tried_at_the_others(monkeypatch):
    asked = []

    def tune(**given):
        asked.append((given["rank"], given.get("known")))
        return {OUTPUT: Found({"steps": given["rank"]}, 1.0, 1)}

    monkeypatch.setattr(dplmc_runs, "tune", tune)
    monkeypatch.setattr(dplmc_runs, "_trials", lambda *_: [])
    [cell, *_] = (
        one
        for one in entries.load("dplmc-figure3").settings(Sources())
        if one["model"] == "DPLMC" and one["rank"] == 7
    )
    dplmc_runs.run(cell, Sources())
    dplmc_runs.run(cell | {"rank": 5}, Sources())
    assert asked == [(5, None), (7, ((OUTPUT, (("steps", 5),)),)), (5, None)]


def test_the_speed_reference_is_the_residual_gradient():
    rng = np.random.default_rng(0)
    Y = sparse.random_array((30, 20), density=0.3, format="csr", rng=rng, dtype=np.float32)
    U, V = rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=(20, 4)).astype(np.float32)
    E = np.where(Y.toarray() != 0, U @ V.T - Y.toarray(), 0)
    items, users = bench_dplmc.residual_gradient(Y, U, V)
    np.testing.assert_allclose(items, E.T @ U, atol=1e-4)
    np.testing.assert_allclose(users, E @ V, atol=1e-4)


def test_the_benchmark_tells_seconds_and_ratios():
    result = bench_dplmc.benchmark(quick=True, repeats=1)
    assert set(result["ratios"]) == {"seeded", "secure"}
    assert "DPLMC, whole iteration, secure noise" in "\n".join(bench_dplmc.show(result))
