"""The private baselines from the command line: they train, state what they promise, and refuse
what cannot be.
"""

import json

import pytest

import discreet
from conftest import write_ratings

ALL = {
    "dpfrankwolfe": "covariance × 5",
    "dpsvd": "covariance",
    "dpsgld": "gradient 1 to 20",
    "dpsgd": "gradient × 40",
}


@pytest.fixture
def ratings(tmp_path):
    return write_ratings(tmp_path / "ratings.csv", n_users=120)


@pytest.mark.parametrize("model", ALL)
def test_they_train_and_say_what_they_released(run, ratings, tmp_path, model):
    result = run(
        "train",
        ratings,
        "--model",
        model,
        "--epsilon",
        5,
        "--rating-range",
        "1,5",
        "--out",
        tmp_path / "m",
    )
    assert result.code == 0, result.err
    assert "ε = 5, δ = 1e-06" in result.out + result.err
    assert ALL[model] in result.out + result.err
    assert "range of ratings, 1 to 5: read from the data" not in result.out
    again = run("budget", tmp_path / "m", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["epsilon"] == pytest.approx(5.0, abs=1e-3)
    assert run("recommend", tmp_path / "m", "--history", "10,12").code == 0


def test_svd_by_projection_is_an_option_away(run, ratings, tmp_path):
    result = run(
        "train",
        ratings,
        "--model",
        "dpsvd",
        "--epsilon",
        5,
        "--rating-range",
        "1,5",
        "--out",
        tmp_path / "m",
        "--set",
        "density=0.3",
        "--set",
        "centering=items",
        "--set",
        "weighted=false",
    )
    assert result.code == 0, result.err
    model = discreet.load(tmp_path / "m")
    algorithm = model.algorithm_
    assert (algorithm.density, algorithm.centering, algorithm.weighted) == (0.3, "items", False)
    assert "pairs" not in str(model.privacy_)


@pytest.mark.parametrize(
    ("model", "wrong", "message"),
    [
        ("dpsvd", ["--set", "density=2"], "density is 2.0, but must be at most 1"),
        ("dpsvd", ["--set", "centering=3"], "centering is 3, but must be 'user' or 'items'"),
        ("dpsgd", ["--set", "batch_rate=0"], "batch_rate is 0.0, but must lie between 0.001 and 1"),
        ("dpsgd", ["--neighboring", "replace-one"], "pass batch_rate=1"),
        ("dpsgld", ["--set", "decay=1000"], "decay is 1000.0, but must be a number from 0 to 1"),
        ("dpsgld", ["--goal", "ranking"], "DPSGLD has no parameter 'goal'"),
        ("dpfrankwolfe", ["--set", "row_norm=-3"], "row_norm is -3.0, but must be"),
        ("dpfrankwolfe", ["--set", "steps=many"], "steps"),
        (
            "dpfrankwolfe",
            ["--iterations", 5],
            "has no parameter 'iterations': its number of steps is 'factors'",
        ),
        ("dpfrankwolfe", ["--factors", 100_000], "factors is 100,000, but must be at most"),
        (
            "dpsvd",
            ["--iterations", 5],
            "DPSVD has no parameter 'iterations': it has factors, epsilon, ",
        ),
        ("dpsvd", ["--set", "item_fractions=1"], "did you mean 'item_fraction'?"),
    ],
)
def test_bad_values_are_one_sentence(run, ratings, tmp_path, model, wrong, message):
    result = run(
        "train", ratings, "--model", model, "--epsilon", 1, *wrong, "--out", tmp_path / "m"
    )
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "m").exists()
