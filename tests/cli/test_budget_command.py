"""``discreet budget`` prices plans and ledgers; ``discreet train --epsilon`` makes what it
prices.
"""

from __future__ import annotations

import json

import pytest

import discreet
from discreet.privacy.accounting import pricing as accounting

PLAN = ("budget", "--factors", 32, "--epsilon", 1, "--delta", "1e-6", "--items", 20000)


# ------------------------------------------------------------ before any data


def test_a_plan_is_priced_without_data(run):
    result = run(*PLAN, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["epsilon"] == pytest.approx(1.0, abs=1e-9)
    assert found["neighboring"] == "add-remove"
    rows = {row["name"]: row for row in found["releases"]}
    plan = discreet.DPMF(32, epsilon=1.0, delta=1e-6).plan(20000)
    assert list(rows) == [line.name for line in plan.releases]
    for line in plan.releases:
        row = rows[line.name]
        assert row["count"] == line.count
        assert line.shape == (None if row["shape"] is None else tuple(row["shape"]))
        assert row["noise_multiplier"] == plan.noise_multiplier(line.name)
        assert row["deviation"] == row["noise_multiplier"] * row["sensitivity"]
    assert rows["counts"]["sensitivity"] > 0
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
    prices = {price["accountant"]: price["epsilon"] for price in found["prices"]}
    assert prices["rdp"] > 1.2
    assert found["independent"]["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert found["curve"][2] == {"delta": 1e-6, "epsilon": pytest.approx(1.0, abs=1e-9)}
    assert found["noise_at"]["0.5"] == pytest.approx(1.91, abs=0.01)
    assert found["noise_at"]["1"] == pytest.approx(1.0, abs=1e-9)


def test_a_plan_is_shown_as_a_table(run, tmp_path):
    result = run(*PLAN, "--plot", tmp_path / "b.png", "--rating-range", "0.5:5")
    assert result.code == 0, result.err
    for expected in (
        "item pairs (or counts)",
        "noise multiplier",
        "share of budget",
        "ε = 1 at δ = 1e-06",
        "independent",
        "Half the ε",
        "rating_range=(0.5, 5.0)",
        "1.91 times the noise",
    ):
        assert expected in result.out
    assert "assumed to lie between" not in result.out
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_charged_is_what_was_quoted(run, private):
    quoted = json.loads(
        run(
            "budget",
            "--factors",
            3,
            "--epsilon",
            5,
            "--items",
            40,
            "--rating-range",
            "1,5",
            "--json",
        ).out
    )
    charged = json.loads(run("budget", private / "model", "--json").out)
    by_name = [{row["name"]: row for row in found["releases"]} for found in (quoted, charged)]
    assert by_name[0].keys() == by_name[1].keys()
    for name, row in by_name[0].items():
        expected = row | {"share": pytest.approx(row["share"])}
        if row["shape"] is None:  # left open by the plan
            expected["shape"] = by_name[1][name]["shape"]
        assert by_name[1][name] == expected


@pytest.mark.parametrize(
    "options",
    [
        ("--neighboring", "replace-one"),
        ("--accountant", "rdp"),
        ("--accountant", "pld", "--epsilon", 2),
        ("--model", "dpals", "--goal", "ranking", "--set", "recount=false"),
        ("--model", "dpals", "--set", "centering=global", "--set", "initialization=spectral"),
        (
            "--model",
            "dpals",
            "--epsilon",
            9,
            "--set",
            'sigmas={"counts": 20, "recounts": 20, "gram": 90, "sum": 60}',
        ),
        ("--model", "dpals", "--set", 'shares={"sum": 1.5}', "--set", "centering=3.5"),
        ("--goal", "rating", "--set", 'shares={"gradient": 1.5}', "--set", "slope=0"),
        ("--epsilon", 100),
    ],
)
def test_plans_of_every_kind(run, options):
    epsilon = () if "--epsilon" in options else ("--epsilon", 1)
    result = run("budget", "--items", 500, *options, *epsilon, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    if found["independent"] is not None:
        assert found["independent"]["epsilon"] <= found["epsilon"] + 1e-6
    else:
        assert "takes minutes" in found["notes"][-1]


def test_without_dp_accounting_the_rest_is_said(run, monkeypatch):
    from discreet.errors import NotInstalled

    def missing(*_):
        raise NotInstalled("dp-accounting is not installed")

    monkeypatch.setattr(accounting, "independent_epsilon", missing)
    result = run(*PLAN)
    assert result.code == 0
    assert "no independent accountant: to have one, run pip install" in result.out


# ------------------------------------------------------------ from a ledger


@pytest.mark.parametrize("what", ["model", "model/ledger.json"])
def test_a_ledger_is_priced_again(run, private, what, tmp_path):
    result = run("budget", private / what, "--plot", tmp_path / "b.svg")
    assert result.code == 0, result.err
    for expected in (
        "ε = 5 at δ = 1e-06",
        "5.0000000",
        "independent",
        " records and the stated ε and δ are verified",
        "item pairs 1 (or counts)",
    ):
        assert expected in result.out
    found = json.loads(run("budget", private / what, "--accountant", "pld", "--json").out)
    stated = discreet.load(private / "model").privacy_
    assert found["epsilon"] == stated.epsilon
    assert found["mu"] == pytest.approx(stated.mu)
    assert {price["accountant"] for price in found["prices"]} == {"gdp", "rdp", "pld"}
    assert found["independent"]["epsilon"] == pytest.approx(5.0, abs=1e-6)


def tampered(folder, tmp_path, change):
    document = json.loads((folder / "model" / "ledger.json").read_text())
    change(document)
    (tmp_path / "ledger.json").write_text(json.dumps(document))
    return tmp_path / "ledger.json"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["entries"][2].update(noise_multiplier=50.0), "hash chain"),
        (lambda d: d["entries"].pop(), "missing at its end"),
        (lambda d: d.update(epsilon=0.1), "the seal"),
        (lambda d: d.update(noise="seeded"), "hash chain"),
        (lambda d: d["assumptions"].pop(), "hash chain"),
        (lambda d: d.pop("plan"), "incomplete"),
        (lambda d: d.update(format="discreet-ledger/9"), "format"),
    ],
)
def test_a_changed_ledger_is_refused_in_one_sentence(run, private, tmp_path, change, said):
    result = run("budget", tampered(private, tmp_path, change))
    assert result.code == 2
    assert result.out == ""
    assert said in result.err
    assert result.err.startswith("discreet: ")
    assert result.err.count("\n") == 1


def test_a_ledger_of_another_model_is_refused(run, private, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (private / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    document = json.loads((folder / "ledger.json").read_text())
    # the same content, written in another way
    (folder / "ledger.json").write_text(json.dumps(document))
    result = run("budget", folder)
    assert result.code == 2
    assert "was changed after it was saved" in result.err
    assert run("budget", folder / "ledger.json").code == 0  # the chain itself is whole


def test_an_independent_price_above_the_stated_one_is_an_error(run, private, monkeypatch):
    monkeypatch.setattr(accounting, "independent_epsilon", lambda *_: 5.1)
    result = run("budget", private / "model")
    assert result.code == 2
    assert "independent accountant computes 5.1" in result.err


def test_a_model_that_gave_its_promise_away(run, private, tmp_path):
    from discreet.privacy.release.unsafe import NoNoise

    data = discreet.Ratings.read(private / "ratings.csv", items=private / "films.csv")
    discreet.DPMF(3, epsilon=5, noise=NoNoise()).fit(data).save(tmp_path / "m")
    result = run("budget", tmp_path / "m")
    assert result.code == 2
    assert "NOT PRIVATE" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("budget",), "--items 20000"),
        (("budget", "--items", 0), "greater than or equal to 1"),
        (("budget", "--items", 9, "--model", "als"), "ALS is not private"),
        (
            ("budget", "--items", 9, "--model", "als", "--epsilon", 1),
            "--epsilon is for private models",
        ),
        (("budget", "--items", 9, "--epsilon", 0), "--epsilon 0.0"),
        (("budget", "--items", 9, "--epsilon", -2), "--epsilon -2.0"),
        (
            ("budget", "--items", 9),
            "DPMF needs a privacy budget: pass --epsilon",
        ),
        (("budget", "--items", 9, "--epsilon", 1, "--delta", 2), "probability"),
        (("budget", "--items", 9, "--epsilon", 1, "--delta", 0), "delta"),
        (("budget", "--items", 9, "--epsilon", 1, "--accountant", "pure"), "Gaussian"),
        (
            ("budget", "--items", 9, "--epsilon", 1, "--rating-range", "five"),
            "--rating-range is",
        ),
        (("budget", "--items", 9, "--epsilon", 1, "--rating-range", "5,1"), "low to high"),
        (("budget", "--items", 9, "--epsilon", 1, "--set", "shares=3"), "a mapping"),
        (
            ("budget", "--items", 9, "--epsilon", 1, "--goal", "rating", "--set", "slope=steep"),
            "must be a number",
        ),
        (
            (
                "budget",
                "--items",
                9,
                "--epsilon",
                1,
                "--model",
                "dpals",
                "--set",
                "centering=median",
            ),
            "'global'",
        ),
        (("budget", "--items", 9, "--epsilon", 1, "--set", "rnk=3"), "no parameter"),
        (("budget", "--items", 9, "--epsilon", 1, "--plot", "b.txt"), ".png"),
        (("budget", "--items", 9, "--epsilon", 1, "--plot", "nowhere/b.png"), "cannot be written"),
        (("budget", "nowhere"), "does not exist"),
        (("budget", "{shelf}/model"), "not private"),
        (("budget", "{shelf}"), "not a saved model"),
        (("budget", "{shelf}/films.csv"), "cannot be read as a ledger"),
        (("budget", "{shelf}/model", "--epsilon", 1), "before training"),
        (("train", "{shelf}/ratings.csv", "--out", "m", "--epsilon", 0), "positive"),
        (("train", "{shelf}/ratings.csv", "--out", "m", "--delta", "1e-6"), "give --epsilon"),
        (
            ("train", "{shelf}/ratings.csv", "--out", "m", "--model", "dplmc"),
            "DPLMC needs a privacy budget",
        ),
        (
            ("train", "{shelf}/ratings.csv", "--out", "m", "--model", "bias", "--noise", "seeded"),
            "--noise is for",
        ),
        (
            ("train", "{shelf}/ratings.csv", "--out", "m", "--epsilon", 1, "--neighboring", "both"),
            "add-remove",
        ),
        # a large rank, because whether a small one is refused depends on the luck of the noise
        (
            (
                "train",
                "{shelf}/ratings.csv",
                "--trust-user-column",
                "--out",
                "m",
                "--model",
                "dpals",
                "--factors",
                1000,
                "--set",
                "item_fraction=1",
                "--epsilon",
                0.01,
            ),
            "is too little for so few users",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    run, shelf, arguments, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = run(*(str(argument).format(shelf=shelf) for argument in arguments))
    assert result.code == 2, result.out
    assert result.out == "" or arguments[-1] == 0.01  # what had been read by then was said
    last = result.err.strip().splitlines()[-1]
    assert last.startswith("discreet: ")
    assert said in last
    left = [file.name for file in tmp_path.iterdir()]
    released = arguments[-1] == 0.01  # before it was found to be too little
    assert len(left) == int(released)
    assert all(name.endswith(".ledger.json") for name in left)


# ------------------------------------------------------------ train


def test_train_with_epsilon_is_private(run, private, tmp_path):
    result = run(
        "train",
        private / "ratings.csv",
        "--items",
        private / "films.csv",
        "--out",
        tmp_path / "m",
        "--epsilon",
        5,
        "--delta",
        "1e-5",
        "--rating-range",
        "1-5",
        "--goal",
        "rating",
        "--factors",
        3,
        "--set",
        "rarity=0.2",
    )
    assert result.code == 0, result.err
    assert "ε = 5, δ = 1e-05" in result.out
    assert "discreet budget" in result.out
    assert "NOT private" not in result.out
    assert "Cautions" not in result.out
    model = discreet.load(tmp_path / "m")
    assert isinstance(model, discreet.DPMF)
    assert model.privacy_.delta == 1e-5
    assert model.privacy_.noise == "secure"
    assert model.rating_range == (1.0, 5.0)


def test_train_says_what_was_taken_from_the_data(run, private, tmp_path):
    options = (
        "--epsilon",
        9,
        "--factors",
        3,
        "--noise",
        "seeded",
        "--random-state",
        0,
        "--neighboring",
        "replace-one",
        "--goal",
        "rating",
        "--set",
        "rarity=0.2",
    )
    result = run("train", private / "ratings.csv", "--out", tmp_path / "m", *options)
    assert result.code == 0, result.err
    assert "Cautions" in result.out
    assert "RESEARCH MODE" in result.out
    assert (
        "pass a public catalog with --items and the public range of ratings with --rating-range"
        in result.out
    )
    assert "read from the data" in result.err
    document = json.loads(
        run("train", private / "ratings.csv", "--out", tmp_path / "n", *options, "--json").out
    )
    assert document["model"]["private"] is False
    assert document["model"]["privacy"]["status"] == "private with cautions"
    assert len(document["model"]["privacy"]["cautions"]) == 3  # items, range and seed
    assert document["model"]["epsilon"] == pytest.approx(9)
    assert document["model"]["privacy"]["neighboring"] == "replace-one"
    one, other = (discreet.load(tmp_path / name) for name in "mn")
    assert (one.item_factors_ == other.item_factors_).all()  # seed 0 is a seed
    assert one.random_state is None


def test_evaluate_with_epsilon_measures_a_private_model(run, private):
    result = run(
        "evaluate",
        private / "ratings.csv",
        "--epsilon",
        20,
        "--goal",
        "rating",
        "--factors",
        2,
        "--rating-range",
        "1,5",
        "--metrics",
        "rmse",
        "--no-baselines",
    )
    assert result.code == 0, result.err
    assert "DPMF" in result.out


def test_a_large_delta_must_be_allowed_and_weak_numbers_are_named(run):
    large = [*PLAN[:3], "--epsilon", 30, "--delta", "0.01", "--items", 100]
    refused = run(*large)
    assert refused.code == 2
    assert "--allow-large-delta" in refused.err
    allowed = run(*large, "--allow-large-delta")
    assert allowed.code == 0, allowed.err
    for expected in (
        "an ε above 20 is a weak guarantee",
        "a δ above 0.001 is a weak guarantee",
        "allow_large_delta=True",
    ):
        assert expected in allowed.out
    assert "weak" not in run(*PLAN).out


def test_mu_is_not_shown_for_batches(run):
    batches = ("budget", "--model", "dpsgd", "--epsilon", 5, "--items", 50, "--set", "iterations=3")
    found = json.loads(run(*batches, "--json").out)
    assert found["mu"] is None
    assert {price["mu"] for price in found["prices"]} == {None}
    assert "μ" not in run(*batches).out
    assert "total μ = " in run(*PLAN).out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--goal", "rating", "--iterations", 10**9), "iterations is 1000000000"),
        (("--iterations", "1e9"), "should be a whole number"),
        (("--delta", "1e-300"), "is below 1e-15"),
        (("--model", "huberals", "--set", "alpha=1e9"), "alpha is 1000000000.0"),
        (("--model", "dpsgd", "--set", "batch_rate=1e-9"), "batch_rate is 1e-09"),
    ],
)
def test_numbers_that_cannot_be_meant_are_answered_with_a_sentence(run, options, why):
    result = run("budget", "--epsilon", 1, "--items", 100, *options)
    assert result.code == 2
    assert why in result.err
    assert "Traceback" not in result.err
