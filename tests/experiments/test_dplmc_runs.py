"""§6 of the DPLMC paper: the planted matrices are as described, and the speed reference computes what it says."""

import math

import numpy as np
import pytest
from scipy import sparse

from discreet.experiments import dplmc_bench
from discreet.experiments.dplmc_runs import error, make, planted


def test_planted_matrices_are_as_in_the_paper():
    X, known, ratings = planted(500, 3, 0.0, 1)
    assert X.shape == (500, 100)
    assert np.linalg.matrix_rank(X) == 3
    assert known.sum() == ratings.n_ratings == round(3 * 500 * math.log(500))
    assert np.abs(X).max() <= 4
    noisy = planted(500, 3, 1.0, 1)[2]
    assert (noisy.values - ratings.values).std() == pytest.approx(1.0, rel=0.1)


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
        assert found["DPLMC"] < 20.0 < found["DPALS"], "one paper prints too much noise, the other prices too little"


def test_the_speed_reference_is_the_residual_gradient():
    rng = np.random.default_rng(0)
    Y = sparse.random_array((30, 20), density=0.3, format="csr", rng=rng, dtype=np.float32)
    U, V = rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=(20, 4)).astype(np.float32)
    E = np.where(Y.toarray() != 0, U @ V.T - Y.toarray(), 0)
    items, users = dplmc_bench.residual_gradient(Y, U, V)
    np.testing.assert_allclose(items, E.T @ U, atol=1e-4)
    np.testing.assert_allclose(users, E @ V, atol=1e-4)


def test_the_benchmark_tells_seconds_and_ratios():
    result = dplmc_bench.benchmark(quick=True, repeats=1)
    assert set(result["ratios"]) == {"seeded", "secure"}
    assert "DPLMC, whole iteration, secure noise" in "\n".join(dplmc_bench.show(result))
