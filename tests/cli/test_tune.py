"""``discreet tune``: the best model, and nothing of the others."""

import json

import pytest


def tune(run, private, to, *more, epsilon=20):
    return run(
        "tune",
        private / "ratings.csv",
        "--items",
        private / "films.csv",
        "--rating-range",
        "1,5",
        "--epsilon",
        epsilon,
        "--out",
        to,
        *more,
    )


def test_the_best_model_is_saved_at_the_whole_price(run, private, tmp_path):
    result = tune(run, private, tmp_path / "m", "--try", "factors=2,3", "--runs", 3)
    assert result.code == 0, result.err
    assert "Best: factors = " in result.out
    assert "3 trainings on average" in result.out
    assert " s\n" not in result.out.split("Tuning by")[1]  # no time
    priced = json.loads(run("budget", tmp_path / "m", "--json").out)
    assert priced["epsilon"] == pytest.approx(20, rel=1e-6)
    assert [row["name"] for row in priced["releases"]] == ["best training"]
    assert run("report", tmp_path / "m", "--out", tmp_path / "r.html").code == 0


def test_composed_runs_are_listed_and_paid_for(run, private, tmp_path):
    store = f"{tmp_path / 'people.sqlite'}:all"
    run("budget", "open", store, "--epsilon", 25)
    more = (
        "--goal",
        "rating",
        "--try",
        "factors=2..4",
        "--try",
        "regularization=1.0..9.0",
        "--runs",
        2,
    )
    result = tune(
        run, private, tmp_path / "m", *more, "--distribution", "fixed", "--account", store, "--json"
    )
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert len(found["trials"]) == 2
    assert found["account"]["trainings"] == 1
    assert found["setting"] in [trial["setting"] for trial in found["trials"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--try", "factors"), "KEY=VALUES"),
        ((), "no candidates are given"),
        (("--try", "factors=a..b"), "is not a range"),
        (("--try", "factors=2,3", "--distribution", "all"), "choose one of"),
        (("--try", "factors=2,3", "--runs", 0.5), "above 1"),
        (("--try", "factors=2,3", "--account", "people.sqlite:all"), "needs --distribution fixed"),
        (
            ("--try", "delta=0.1,0.2"),
            "part of the guarantee and cannot be tuned. Remove it from --try.",
        ),
    ],
)
def test_bad_calls_are_one_sentence(run, private, tmp_path, options, said):
    result = tune(run, private, tmp_path / "m", *options)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_a_threshold_is_given_by_option_or_follows_from_a_public_range(run, private, tmp_path):
    call = ("tune", private / "ratings.csv", "--epsilon", 20, "--try", "factors=2,3", "--runs", 2)
    refused = run(*call, "--out", tmp_path / "m")
    assert refused.code == 2
    assert "Pass --relevant, the lowest relevant rating" in refused.err
    assert not refused.out
    assert run(*call, "--out", tmp_path / "m", "--relevant", 4).code == 0
    nothing = run(*call, "--out", tmp_path / "n", "--relevant", "nan")
    assert nothing.code == 2


def test_without_epsilon_there_is_nothing_to_price(run, private, tmp_path):
    result = run("tune", private / "ratings.csv", "--out", tmp_path / "m", "--try", "factors=2,3")
    assert result.code == 2
    assert "pass --epsilon" in result.err
