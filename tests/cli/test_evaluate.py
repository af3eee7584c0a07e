"""``discreet evaluate``: the numbers are those of Python, for every way to hold out."""

from __future__ import annotations

import json

import numpy as np
import pytest

import discreet


def test_evaluate_by_split_and_seeds_shows_baselines(run, shelf):
    args = [
        "evaluate",
        shelf / "ratings.csv",
        "--split",
        "80/10/10",
        "--seeds",
        2,
        "--metrics",
        "rmse,recall@5",
        "--factors",
        2,
        "--set",
        "regularization=2",
    ]
    found = json.loads(run(*args, "--slices", "--json").out)
    assert [m["name"] for m in found["models"]] == ["ALS", "Bias", "Popularity"]
    assert found["seeds"] == [0, 1]
    als = found["models"][0]
    assert als["parameters"]["regularization"] == 2.0
    score = als["scores"]["rmse"]
    assert score["mean"] == pytest.approx(np.mean(score["runs"]))
    assert score["spread"] == pytest.approx(np.std(score["runs"], ddof=1))
    assert len(als["quintiles"]) == 5
    assert "rmse" not in found["models"][2]["scores"]
    shown = run(*args, "--slices").out
    assert "Popularity" in shown
    assert "5 (tail)" in shown
    assert f"{score['mean']:.4f} ± {score['stderr']:.4f}" in shown


def test_evaluate_says_what_python_says(run, shelf):
    ratings = discreet.Ratings.read(shelf / "ratings.csv")
    from discreet.data.splits import random_ratings

    split = random_ratings(ratings, (0.9, 0.1), 3)
    model = discreet.ALS(2, regularization=2.0, random_state=3).fit(split.train)
    metrics = ["rmse", "ndcg@10"]
    python = discreet.evaluate(model, split, metrics)
    found = json.loads(
        run(
            "evaluate",
            shelf / "ratings.csv",
            "--split",
            "90/10",
            "--random-state",
            3,
            "--factors",
            2,
            "--regularization",
            2,
            "--metrics",
            ",".join(metrics),
            "--json",
        ).out
    )
    assert {m: found["models"][0]["scores"][m]["mean"] for m in metrics} == pytest.approx(
        dict(python.values)
    )
    assert {m: found["models"][0]["scores"][m]["stderr"] for m in metrics} == pytest.approx(
        dict(python.stderr)
    )
    assert found["relevant"] == python.conditions["relevant"]


@pytest.mark.parametrize(
    "options",
    [
        ["--folds", 3],
        ["--split", "users", "--test-users", 10, "--goal", "ranking"],
        ["--split", "leave-one-out"],
        ["--split", "newest"],
        ["--split", "time"],
        ["--part", "valid"],
        ["--model", "popularity"],
        ["--no-baselines", "--metrics", "mae"],
        ["--binarize", 4, "--goal", "ranking"],
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_every_way_to_hold_out(run, shelf, options):
    result = run("evaluate", shelf / "ratings.csv", *options, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert len(found["splits"]) == (3 if "--folds" in options else 1)
    assert all(score["mean"] is not None for m in found["models"] for score in m["scores"].values())
    assert run("evaluate", shelf / "ratings.csv", *options).code == 0


def test_models_side_by_side_count_the_same_items_as_relevant(run, shelf):
    """Left to themselves, models of implicit feedback would be judged on all items and the
    others on favorites.
    """
    explicit = json.loads(
        run("evaluate", shelf / "ratings.csv", "--metrics", "recall@5", "--json").out
    )
    implicit = json.loads(
        run(
            "evaluate",
            shelf / "ratings.csv",
            "--metrics",
            "recall@5",
            "--goal",
            "ranking",
            "--json",
        ).out
    )
    assert explicit["relevant"] == 4.0
    assert implicit["relevant"] is None
    favorites = json.loads(
        run(
            "evaluate",
            shelf / "ratings.csv",
            "--metrics",
            "recall@5",
            "--goal",
            "ranking",
            "--relevant",
            4,
            "--json",
        ).out
    )
    assert favorites["models"][1:] != implicit["models"][1:]
    for mine, other in zip(favorites["models"][1:], explicit["models"][1:], strict=True):
        assert mine["scores"] == other["scores"]


def test_evaluate_a_saved_model(run, shelf, tmp_path):
    args = [
        "--known",
        shelf / "known.csv",
        "--target",
        shelf / "target.csv",
        "--metrics",
        "rmse,recall@5",
    ]
    found = json.loads(run("evaluate", shelf / "model", *args, "--json").out)
    model = discreet.load(shelf / "model")
    known, target = (discreet.Ratings.read(shelf / f"{name}.csv") for name in ("known", "target"))
    error = model.predict(known, target) - target.values
    assert found["models"][0]["scores"]["rmse"]["mean"] == pytest.approx(
        float(np.sqrt(np.mean(error**2))), rel=1e-6
    )
    more = (shelf / "target.csv").read_text() + "500,9999,4.0,1\n777,12,5.0,1\n"
    (tmp_path / "t.csv").write_text(more)
    args[3] = tmp_path / "t.csv"
    result = run("evaluate", shelf / "model", *args, "--skip-unknown", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["left_out"] == 1
