"""What the command line reads and leaves out is part of the promise."""

import json

import discreet


def test_items_filtered_by_exact_counts_are_a_caution_of_their_own_name(run, private, tmp_path):
    files = (private / "ratings.csv", "--items", private / "films.csv")
    options = ("--epsilon", 5, "--factors", 3, "--rating-range", "1,5", "--json")
    plain = run("train", *files, "--out", tmp_path / "plain", *options)
    assert plain.code == 0, plain.err
    assert "CAUTION" not in json.loads(plain.out)["model"]["privacy"]["text"]
    by_user = run("train", *files, "--out", tmp_path / "own", *options, "--min-user-ratings", 2)
    assert "CAUTION" not in json.loads(by_user.out)["model"]["privacy"]["text"]
    counted = run(
        "train", *files, "--out", tmp_path / "counted", *options, "--min-item-ratings", 100
    )
    assert counted.code == 0, counted.err
    statement = json.loads(counted.out)["model"]["privacy"]
    cautions = {a["name"]: a["text"] for a in statement["assumptions"] if a["inferred"]}
    assert "which items have at least 100 ratings, by exact counts" in cautions["filter"]
    assert cautions["filter"] in statement["text"]
    assert (
        "without --min-item-ratings"
        in run(
            "train", *files, "--out", tmp_path / "c", *options[:-1], "--min-item-ratings", 100
        ).out
    )


def test_one_odd_item_id_changes_nothing_for_the_others(run, private, tmp_path):
    odd = tmp_path / "odd.csv"
    odd.write_text((private / "ratings.csv").read_text() + "3001,tt0111161,5,1\n")
    options = (
        "--unknown-items",
        "drop",
        "--epsilon",
        5,
        "--factors",
        3,
        "--rating-range",
        "1,5",
        "--json",
    )
    for number, file in enumerate((private / "ratings.csv", odd)):
        done = run(
            "train",
            file,
            "--items",
            private / "films.csv",
            "--out",
            tmp_path / f"model {number}",
            *options,
        )
        assert done.code == 0, done.err
    read = [
        discreet.Ratings.read(file, items=private / "films.csv", unknown_items="drop")
        for file in (private / "ratings.csv", odd)
    ]
    assert [ratings.n_ratings for ratings in read] == [4800, 4800]
