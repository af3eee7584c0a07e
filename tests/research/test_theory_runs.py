"""The entries of Remark 7, of the private start and of independent seeds compute what they say."""

import math

import numpy as np
import pytest

from research import huber_printed, regression_runs, start_runs
from research.sources import Sources


def test_nothing_is_cut_in_the_task_of_remark_7():
    X, Y, W = regression_runs.make_task(500, 6, 9, 0)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1.0)
    assert np.linalg.norm(Y, axis=1).max() <= regression_runs.NORM * math.sqrt(9)


@pytest.mark.parametrize("coefficients", ["one large", "equal"])
def test_intervals_of_regressions_cover_a_large_coefficient(coefficients):
    settings = dict(coefficients=coefficients, users=2000, features=16, epsilon=1.0)
    found = regression_runs.run(settings | {"coverage_trials": 100}, Sources())[0]
    assert found["first covered"] >= 0.88  # 95 % less three deviations of 100 trials
    assert found["all covered"] > 0.93
    assert found["width"] < 0.6


def test_errors_of_regressions_have_a_slope_and_a_bound():
    settings = dict(users=3000, features=4, targets=3, epsilon=2.0, trials=3, varied="users")
    records = regression_runs.run(settings | dict(sweep={"users": [3000, 12_000]}), Sources())
    assert [record["part"] for record in records] == ["point"] * 6 + ["slope"]
    assert -1.4 < records[-1]["slope"] < -0.6
    assert records[-1]["bound"] == -1.0
    assert all(0 < record["error"] < record["predict 0"] for record in records[:-1])


@pytest.mark.parametrize("split", ["balanced", "printed"])
def test_the_start_gets_better_with_its_own_budget(split):
    settings = dict(users=2000, items=60, rank=3, split=split)
    errors = [start_runs.measure(settings | {"epsilon": e}, 0) for e in (0.1, 100.0)]
    assert errors[1] < 0.7 < errors[0]


def test_independent_seeds_compare_mechanisms_on_the_same_matrices():
    settings = dict(rank=3, users=30, items=60, variance=1, observed=0.3, steps=3, matrices=4)
    found = huber_printed.differences(settings, Sources())
    assert [record["mechanism"] for record in found] == ["laplace", "huber"]
    assert all(record["low"] < record["difference"] < record["high"] for record in found)
    again = huber_printed.differences(settings | {"variance": 2}, Sources())
    assert again[0]["difference"] != found[0]["difference"]


def test_rows_of_the_huber_tables_have_starts_and_noise_of_their_own():
    settings = dict(rank=3, users=30, items=60, observed=0.3, steps=3, inner=2, seed=0)
    settings |= dict(mechanism="vanilla", solver="als")
    one, other = (huber_printed.synthetic(settings | {"variance": v}, Sources()) for v in (1, 2))
    assert one["rmse"] != other["rmse"]
    again = huber_printed.synthetic(settings | {"variance": 1}, Sources())
    assert one["rmse"] == again["rmse"]
