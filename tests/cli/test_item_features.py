"""``--item-features``: a file of public features on the command line."""

import json

import numpy as np

import discreet
from conftest import write_ratings


def features(file):
    file.write_text(
        "movieId,kind,genres\n"
        + "".join(f"{i},{i % 2},{'even' if i % 2 else 'odd|all'}\n" for i in range(10, 45))
    )
    return file


def test_train_and_evaluate_take_features(run, tmp_path):
    ratings, kinds = (
        write_ratings(tmp_path / "ratings.csv", n_users=300),
        features(tmp_path / "kinds.csv"),
    )
    private = [
        "--epsilon",
        "20",
        "--rating-range",
        "1,5",
        "--noise",
        "seeded",
        "--random-state",
        "0",
    ]
    private += ["--item-features", kinds]
    result = run("train", ratings, "--out", tmp_path / "model", *private, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["model"]["parameters"]["item_features"] == str(kinds)
    same = discreet.DPMF(
        epsilon=20, rating_range=(1, 5), noise="seeded", random_state=0, item_features=kinds
    )
    same.fit(discreet.Ratings.read(ratings))
    assert np.array_equal(discreet.load(tmp_path / "model").item_factors_, same.item_factors_)
    assert run("evaluate", ratings, *private).code == 0
    chosen = run("train", ratings, "--out", tmp_path / "other", *private, "--features", "genres")
    assert chosen.code == 0, chosen.err
    assert list(discreet.load(tmp_path / "other").features) == ["genres"]


def test_columns_of_a_profile_are_named(run, tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", n_users=300)
    kinds = features(tmp_path / "kinds.csv")
    given = ["--epsilon", 20, "--rating-range", "1,5", "--item-features", kinds]
    given += ["--out", tmp_path / "model", "--features"]
    result = run("train", ratings, *given, "kind, genres", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["model"]["parameters"]["features"] == ["kind", "genres"]
    result = run("train", ratings, *given, "kinds", "--replace")
    assert result.code == 2
    assert "'kinds'" in result.err


def test_wrong_features_are_one_sentence_and_exit_code_2(run, tmp_path):
    ratings, kinds = (
        write_ratings(tmp_path / "ratings.csv", n_users=120),
        features(tmp_path / "kinds.csv"),
    )
    other = tmp_path / "other.csv"
    other.write_text("item_id,kind\nx,1\ny,2\n")
    for given, words in (
        (["--item-features", kinds], "ALS has no parameter --item-features"),
        (
            [
                "--epsilon",
                "9",
                "--model",
                "dpals",
                "--goal",
                "ranking",
                "--item-features",
                kinds,
            ],
            "DPALS has no parameter --item-features",
        ),
        (["--epsilon", "9", "--item-features", tmp_path / "none.csv"], "none.csv does not exist"),
        (["--epsilon", "9", "--item-features", other], "--item-features has none of the 40 items"),
    ):
        result = run("train", ratings, "--out", tmp_path / "model", *given)
        assert result.code == 2
        assert words in " ".join(result.err.split())
        assert not (tmp_path / "model").exists()
