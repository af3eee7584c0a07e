"""The thin read-out path: the same bits as the model, from memory or from a folder, and nothing
heavy on the way.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

import discreet
from discreet.errors import ConfigError, DataError, PrivacyError
from discreet.kernels import reference
from discreet.models.fold_in import KINDS, PosteriorMeanFoldIn, fold_in_from_dict
from discreet.models.storage import read_folder
from discreet.models.storage.load_scorer import open_model
from discreet.privacy.release.hash_chain import check_chain
from support.served_models import ITEMS, MODELS, fitted, histories


@pytest.fixture
def saved(request, tmp_path):
    fitted(request.param).save(tmp_path / "model")
    return fitted(request.param), tmp_path / "model"


@pytest.mark.parametrize("saved", MODELS, indirect=True)
def test_a_folder_answers_as_the_model_does(saved):
    """Compiled: to the bit. By numpy alone: to single precision, and the same items but for
    ties.
    """
    model, folder = saved
    opened = open_model(folder)
    quick = open_model(folder, once=True)
    assert quick.scorer.kernels is reference
    assert opened.default_rating == model.default_rating
    for history in histories(12, seed=7):
        ids, scores = model.recommend(history, 10)
        at, values = opened.scorer.history(history)
        best, same = opened.scorer.best(at, values, 10)
        assert opened.item_ids_[best].tolist() == ids.tolist()
        assert same.tobytes() == scores.tobytes()
        _, close = quick.scorer.best(at, values, 10)
        np.testing.assert_allclose(close, scores, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("saved", MODELS, indirect=True)
def test_read_outs_survive_being_written(saved):
    model, folder = saved
    fold_in_rule = model.fold_in_rule()
    described = json.loads((folder / "model.json").read_text())
    assert described["fold_in_rule"] == json.loads(json.dumps(fold_in_rule.numbers()))
    again = open_model(folder).scorer.fold_in_rule
    assert type(again) is type(fold_in_rule)
    for name, array in fold_in_rule.arrays().items():
        assert np.array_equal(again.arrays()[name], array)


def test_every_kind_of_read_out_is_tried():
    assert {fitted(name).fold_in_rule().kind for name in MODELS} == set(KINDS)


@pytest.mark.parametrize("saved", ["DPMF", "DPALS"], indirect=True)
def test_a_folder_from_before_read_outs_were_saved(saved):
    model, folder = saved
    described = json.loads((folder / "model.json").read_text())
    for name in ("checksum", "fold_in_rule", "item_similarity", "default_rating"):
        del described[name]
    (folder / "model.json").write_text(
        json.dumps({"checksum": read_folder.checksum(described)} | described)
    )
    opened = open_model(folder)
    history = histories(3)[2]
    best, scores = opened.scorer.best(*opened.scorer.history(history), 5)
    ids, expected = model.recommend(history, 5)
    assert opened.item_ids_[best].tolist() == ids.tolist()
    assert scores.tobytes() == expected.tobytes()


@pytest.mark.parametrize("saved", ["DPMF"], indirect=True)
def test_factors_of_a_large_catalog_stay_on_disk(saved, monkeypatch):
    model, folder = saved
    monkeypatch.setattr("discreet.models.storage.load_scorer.MAPPED", 1)
    opened = open_model(folder, once=True)
    base = opened.scorer.factors
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    ids, _ = model.recommend({"i1": 5.0}, 5)
    assert (
        opened.item_ids_[opened.scorer.best(*opened.scorer.history({"i1": 5.0}), 5)[0]].tolist()
        == ids.tolist()
    )


@pytest.mark.parametrize("saved", ["DPMF"], indirect=True)
@pytest.mark.parametrize("change", ["kind", "missing", "not finite"])
def test_a_read_out_that_nobody_wrote_is_refused(saved, change):
    folder = saved[1]
    described = json.loads((folder / "model.json").read_text())
    described.pop("checksum")
    if change == "kind":
        described["fold_in_rule"]["kind"] = "magic"
    elif change == "missing":
        del described["fold_in_rule"]["like_threshold"]
    else:
        described["fold_in_rule"]["low"] = float("inf")
    (folder / "model.json").write_text(
        json.dumps({"checksum": read_folder.checksum(described)} | described)
    )
    with pytest.raises(DataError):
        open_model(folder)


def test_arrays_that_point_outside_are_refused():
    good = fitted("DPMF").fold_in_rule()
    arrays = good.arrays()
    shape = (ITEMS, arrays["gain"].shape[1])
    assert isinstance(fold_in_from_dict(good.numbers(), arrays, shape), PosteriorMeanFoldIn)
    wild = arrays["place"].copy()
    wild[3] = len(arrays["gain"])
    for wrong in (
        {"place": wild},
        {"place": arrays["place"][:-1]},
        {"gain": arrays["gain"] * np.nan},
        {"gain": arrays["gain"][:, :-1]},
        {"base": arrays["base"].astype(np.int32)},
    ):
        with pytest.raises(DataError):
            fold_in_from_dict(good.numbers(), arrays | wrong, shape)


def test_a_changed_ledger_breaks_its_chain():
    document = fitted("DPMF").privacy_.ledger.to_dict()
    check_chain(document)
    for change in (
        {"epsilon": 0.1},
        {"noise": "secure"},
        {"head": "0" * 64},
        {"entries": document["entries"][:-1]},
    ):
        with pytest.raises(PrivacyError):
            check_chain(document | change)
    shown = [dict(entry) for entry in document["entries"]]
    shown[0]["sensitivity"] = 0.5
    with pytest.raises(PrivacyError, match="breaks the hash chain"):
        check_chain(document | {"entries": shown})
    with pytest.raises(PrivacyError, match="incomplete"):
        check_chain({name: value for name, value in document.items() if name != "plan"})


# ------------------------------------------------------------ histories


def test_plain_histories_are_read_without_tables():
    scorer = fitted("ALS").scorer()
    at, values = scorer.history({"i9": 2, "i3": 4.5})
    assert at.tolist() == [3, 9]
    assert values.tolist() == [4.5, 2.0]
    assert scorer.history(["i9", "i3"])[1].tolist() == [5.0, 5.0]


def test_ids_may_be_typed_as_text():
    model = discreet.Popularity().fit(discreet.Ratings.from_arrays([1, 1, 2], [7, 8, 7], [1, 1, 1]))
    scorer = model.scorer()
    assert scorer.history(["7"])[0].tolist() == [0]
    assert scorer.history({"8": 1})[0].tolist() == [1]
    assert scorer.position((1, 2)) == -1
    assert scorer.position([]) == -1


def test_what_is_wrong_with_a_history_is_said():
    scorer = fitted("ALS").scorer()
    for wrong, words in (
        ("i3", "a list of item ids"),
        (5, "a list of item ids"),
        ({"i3": "x"}, "finite ratings"),
        ({"i9": None}, "finite ratings"),
        ({"i9": float("nan")}, "finite ratings"),
        ([("i", 1)], "not in the model"),
        (["nobody"], "1 of the item ids are not in the model"),
    ):
        with pytest.raises(DataError, match=words):
            scorer.history(wrong)
    at, values = scorer.history(["i3", "i3"])
    assert at.tolist() == [3]
    assert values.tolist() == [5.0]


@pytest.mark.parametrize("name", MODELS)
def test_several_questions_at_once_have_the_bits_of_one(name):
    scorer = fitted(name).scorer()
    rows = [scorer.history(history) for history in histories(9, seed=21)]
    questions = [(*row, 3 + 40 * (at % 4), at % 3 > 0) for at, row in enumerate(rows)]
    for question, (best, scores) in zip(questions, scorer.best_many(questions), strict=True):
        at, values, n, leave = question
        alone, expected = scorer.best(at, values, n, exclude_seen=leave)
        assert best.tolist() == alone.tolist()
        assert scores.tobytes() == expected.tobytes()


def test_items_that_are_assigned_anew_are_used():
    model = discreet.ALS(3, iterations=1).fit(
        discreet.Ratings.from_arrays([1, 1, 2], [7, 8, 7], [1, 5, 4])
    )
    first = model.recommend([7], 1)[1]
    model.item_biases_ = model.item_biases_ - np.float32(3)
    assert model.recommend([7], 1)[1] != first


def test_a_reason_is_the_score_less_that_without_the_item():
    scorer = fitted("DPMF, ratings").scorer()
    at, values = scorer.history({"i1": 5, "i2": 1, "i30": 4})
    found, contributions = scorer.explain(at, values, 50)
    assert (np.diff(contributions) <= 0).all()
    reasons = dict(zip(found.tolist(), contributions.tolist(), strict=True))

    def score(keep):
        vector, offset = scorer.vector(at[keep], values[keep])
        return vector.astype(np.float64) @ scorer.factors[50] + offset

    every = np.arange(3)
    for left in range(3):
        assert reasons[int(at[left])] == pytest.approx(
            score(every) - score(np.delete(every, left)), abs=1e-5
        )


@pytest.mark.parametrize("name", MODELS)
def test_reasons_are_the_same_whatever_is_held_at_a_time(name, monkeypatch):
    scorer = fitted(name).scorer()
    at, values = scorer.history(histories(5)[-1])
    items, contributions = scorer.explain(at, values, 7)
    monkeypatch.setattr("discreet.models.scorer.EXPLAIN_ENTRIES", 1)
    again, found = scorer.explain(at, values, 7)
    expected = dict(zip(items.tolist(), contributions.tolist(), strict=True))
    assert dict(zip(again.tolist(), found.tolist(), strict=True)) == pytest.approx(
        expected, abs=1e-5
    )


def test_an_empty_history_has_no_reasons():
    scorer = fitted("DPMF, ratings").scorer()
    items, contributions = scorer.explain(*scorer.history([]), 3)
    assert len(items) == len(contributions) == 0


def test_nothing_is_alike_without_factors():
    with pytest.raises(ConfigError, match="items cannot be compared"):
        fitted("Popularity").scorer().similar(0, 3)


def test_one_question_from_the_shell_imports_neither_compiler_nor_tables(tmp_path):
    fitted("DPMF").save(tmp_path / "model")
    code = (
        "import sys; from discreet.cli import main\ntry: main(['recommend', sys.argv[1],"
        " '--history', 'i3'])\nfinally: print(sorted({name.split('.')[0] for name in sys.modules} &"
        " {'numba', 'scipy', 'pyarrow'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
