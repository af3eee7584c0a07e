"""The ONNX graph of a scorer gives the lists that Python gives."""

import json

import numpy as np
import onnxruntime
import pytest

from discreet.errors import ConfigError
from discreet.models.storage.load_scorer import open_model
from discreet.serve.onnx_scorer import write_onnx
from support.served_models import ITEMS, MODELS, fitted, histories

PROFILES = {name for name in MODELS if "profiles" in name}
WITHOUT = PROFILES | {"IRLS", "DPLMC", "DPFrankWolfe by steps", "DPSVD by density"}


@pytest.fixture
def run_command(request):
    return request.getfixturevalue("run")


@pytest.fixture
def opened(request, tmp_path):
    fitted(request.param).save(tmp_path / "model")
    return open_model(tmp_path / "model")


def run(session, at, values, n):
    asked = {
        "items": np.asarray(at, np.int64),
        "ratings": np.asarray(values, np.float32),
        "n": np.array([n], np.int64),
    }
    return session.run(["best", "scores"], asked)


@pytest.mark.parametrize("opened", sorted(set(MODELS) - WITHOUT), indirect=True)
def test_the_best_ten_are_those_of_python_for_200_histories(opened, tmp_path):
    write_onnx(opened, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    scorer = opened.scorer
    for history in histories(200, seed=3):
        at, values = scorer.history(history)
        best, scores = run(session, at, values, 10)
        mine, own = scorer.best(at, values, 10)
        assert set(best.tolist()) == set(mine.tolist())
        # only scores that are equal in single precision may change places
        tied = np.asarray(best) != mine
        np.testing.assert_allclose(np.asarray(scores)[tied], own[tied], rtol=2.5e-7)
        np.testing.assert_allclose(scores, own, atol=2e-5 * max(1.0, float(np.abs(own).max())))


@pytest.mark.parametrize("opened", ["DPMF, ratings"], indirect=True)
def test_lists_end_where_items_end_and_the_file_says_what_it_is(opened, tmp_path):
    assert write_onnx(opened, tmp_path / "model.onnx")["items"] == ITEMS
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    best, scores = run(session, [0, 1, 2], [5, 4, 3], 10_000)
    assert sorted(best) == list(range(3, ITEMS))
    assert scores.min() >= 1
    assert scores.max() <= 5
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["item_ids"]) == [f"i{j}" for j in range(ITEMS)]
    assert json.loads(about["privacy"])["text"] == opened.statement["text"]


@pytest.mark.parametrize("opened", sorted(WITHOUT), indirect=True)
def test_what_has_no_graph_is_refused(opened, tmp_path):
    with pytest.raises(ConfigError, match="has no ONNX graph"):
        write_onnx(opened, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize("opened", ["DPMF"], indirect=True)
def test_the_command_writes_it(run_command, opened, tmp_path):
    done = run_command("export", tmp_path / "model", "--onnx", "--out", tmp_path / "model.onnx")
    assert done.code == 0, done.err
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert len(run(session, [3], [5], 4)[0]) == 4
