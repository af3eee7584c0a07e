"""``discreet evaluate --score-epsilon``: scores with noise."""

import json

import pytest


def test_a_saved_model_is_measured_with_noise_and_a_ledger(run, shelf, tmp_path):
    known = ("--known", shelf / "known.csv", "--target", shelf / "target.csv")
    call = ("evaluate", shelf / "model", *known, "--metrics", "rmse,recall@20", "--score-epsilon", 2)
    result = run(*call, "--score-ledger", tmp_path / "scores.json")
    assert result.code == 0, result.err
    assert "released with noise" in result.out
    assert "interval, 95%" in result.out
    priced = json.loads(run("budget", tmp_path / "scores.json", "--json").out)
    assert priced["epsilon"] == pytest.approx(2)
    whole = json.loads(run(*call, "--json").out)
    assert not {"users", "ratings", "left_out"} & set(whole)  # exact numbers, which nobody paid for
    found = whole["scores"]
    assert set(found["values"]) == {"rmse", "recall@20"}
    assert found["privacy"]["private"]


def test_a_model_is_trained_and_measured_and_an_account_pays(run, private, tmp_path):
    store = f"{tmp_path / 'people.sqlite'}:all"
    assert run("budget", "open", store, "--epsilon", 3).code == 0
    call = ("evaluate", private / "ratings.csv", "--epsilon", 5, "--rating-range", "1,5", "--factors", 3)
    result = run(*call, "--score-epsilon", 2, "--account", store, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["account"]["trainings"] == 1
    assert not {"users", "ratings", "merged", "kept"} & set(found)
    assert found["scores"]["conditions"]["split"].startswith("by person")
    again = run(*call, "--score-epsilon", 2.9, "--account", store)
    assert again.code == 2
    assert "would fit" in again.err


def test_exact_scores_are_called_a_look(run, shelf):
    call = ("evaluate", shelf / "ratings.csv", "--model", "als", "--factors", 2, "--iterations", 2)
    assert "a look at people's ratings" in run(*call).out
    assert "no ε pays" in json.loads(run(*call, "--json").out)["look"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--score-delta", "1e-6"), "--score-delta goes with --score-epsilon"),
        (("--account", "people.sqlite:x"), "--account goes with --score-epsilon"),
        (("--score-epsilon", 1, "--seeds", 3), "pays for one look"),
        (("--score-epsilon", 1, "--slices"), "pays for one look"),
        (("--score-epsilon", 0), "positive finite number"),
        (("--score-epsilon", 1, "--metrics", "coverage@20"), "belongs to no single person"),
    ],
)
def test_bad_calls_are_one_sentence(run, shelf, options, said):
    result = run("evaluate", shelf / "ratings.csv", "--factors", 2, "--iterations", 2, *options)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1
