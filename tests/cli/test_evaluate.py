"""``discreet evaluate``: the numbers are those of Python, for every way to hold out."""

from __future__ import annotations

import json

import numpy as np
import pytest

import discreet
from conftest import write_ratings


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
    for model in found["models"]:
        missing = {name for name, score in model["scores"].items() if score["mean"] is None}
        # users of the newest tenth have no history to compare with
        assert missing == ({"miscalibration@20"} if "time" in options else set())
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
    scores = [
        {row["name"]: row["scores"] for row in found["models"]}
        for found in (favorites, implicit, explicit)
    ]
    assert scores[0]["Popularity"] != scores[1]["Popularity"]
    assert scores[0]["Popularity"] == scores[2]["Popularity"]


def test_evaluate_shows_what_privacy_costs(run):
    """The private model, the same without privacy and popularity, with paired differences."""
    args = ["evaluate", "cinema", "--scale", 0.05, "--epsilon", 5, "--rating-range", "0.5,5"]
    args += ["--noise", "seeded", "--random-state", 0]
    found = json.loads(run(*args, "--json").out)
    rows = {row["name"]: row for row in found["models"]}
    assert list(rows) == ["DPMF, ε = 5", "DPMF without privacy", "Popularity"]
    mine = rows["DPMF, ε = 5"]["scores"]
    assert rows["DPMF, ε = 5"]["differences"] == {}
    for name in list(rows)[1:]:
        assert rows[name]["differences"].keys() == mine.keys()
        for metric, difference in rows[name]["differences"].items():
            gap = mine[metric]["mean"] - rows[name]["scores"][metric]["mean"]
            assert difference["mean"] == pytest.approx(gap, abs=1e-12)
    cost = rows["DPMF without privacy"]["differences"]["recall@20"]
    both = [rows[name]["scores"]["recall@20"]["stderr"] for name in list(rows)[:2]]
    assert cost["mean"] < 0
    assert 0 < cost["stderr"] < np.hypot(*both)
    shown = run(*args).out
    assert "DPMF, ε = 5 less each of the others, paired by user" in shown
    assert f"−{-cost['mean']:.4f} ± {cost['stderr']:.4f}" in shown
    for heading in ("Popularity bias", "coverage@20", "recall@20 by item popularity"):
        assert heading in shown


@pytest.mark.parametrize("options", [["--epsilon", 5, "--rating-range", "1,5"], ["--model", "als"]])
@pytest.mark.parametrize("goal", ["ranking", "rating"])
def test_evaluate_and_report_give_the_same_numbers(run, private, tmp_path, options, goal):
    """For a split of the ratings, and for the saved model on test ratings."""
    ratings = private / "ratings.csv"
    model = [*options, "--goal", goal, "--random-state", 0]
    model += ["--noise", "seeded"] if "--epsilon" in options else []
    train = ["train", ratings, *model, "--out", tmp_path / "model"]
    train += [] if "--epsilon" in options else ["--not-private"]
    assert run(*train).code == 0
    direct = json.loads(run("evaluate", ratings, *model, "--json").out)
    report = ["report", tmp_path / "model", "--out", tmp_path / "r.html", "--json"]
    page = json.loads(run(*report, "--data", ratings).out)["quality"]
    for key in ("relevant", "metrics", "splits", "seeds"):
        assert page[key] == direct[key]
    for mine, other in zip(page["models"], direct["models"], strict=True):
        for key in ("name", "scores", "differences", "quintiles"):
            assert mine[key] == other[key], (mine["name"], key)
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    recall = direct["models"][0]["scores"]["recall@20"]
    assert f"{recall['mean']:.4f} ± {recall['stderr']:.4f}" in text
    assert "DPMF, ε = 5 less each of the others" in text or "ALS less each of the others" in text
    assert "axis is cut" not in text

    write_ratings(tmp_path / "test.csv", n_users=30, seed=9)
    saved = ["evaluate", tmp_path / "model", "--known", ratings, "--target", tmp_path / "test.csv"]
    direct = json.loads(run(*saved, "--json").out)
    page = json.loads(run(*report, "--data", ratings, "--test", tmp_path / "test.csv").out)
    assert page["quality"]["relevant"] == direct["relevant"]
    assert page["quality"]["models"][0]["scores"] == direct["models"][0]["scores"]
    assert page["quality"]["models"][0]["quintiles"] == direct["models"][0]["quintiles"]


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
