"""Exports: a database finds the same lists, MLflow and hubs find what they read, and everybody
gets a list.
"""

import json
import re

import numpy as np
import pytest
import yaml
from pyarrow import parquet

import discreet
from discreet.cli import main
from discreet.errors import ConfigError, DataError
from discreet.models.storage.load_scorer import open_model
from discreet.serve.mlflow_model import _load_pyfunc, write_mlflow
from discreet.serve.vectors import item_vectors, query, write_vectors
from support.served_models import ITEMS, MODELS, fitted, histories, ratings


@pytest.fixture
def opened(request, tmp_path):
    fitted(request.param).save(tmp_path / "model")
    return open_model(tmp_path / "model")


# ------------------------------------------------------------ vectors


@pytest.mark.parametrize(
    "opened", [name for name in MODELS if "profiles" not in name], indirect=True
)
def test_a_vector_database_finds_the_models_lists(opened, tmp_path):
    """End to end with FAISS: every model, by inner product with [u, 1]."""
    import faiss

    written = write_vectors(opened, tmp_path / "vectors")
    vectors = np.load(tmp_path / "vectors" / "vectors.npy")
    assert vectors.shape == (written["items"], written["length"])
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    scorer = opened.scorer
    for history in histories(8, seed=11):
        q, offset = query(scorer, history)
        found, places = index.search(q[None], 10 + len(history))
        unseen = [at for at in range(len(places[0])) if f"i{places[0][at]}" not in history][:10]
        best, scores = scorer.best(*scorer.history(history), 10)
        low, high = scorer.rating_range or (-np.inf, np.inf)
        reached = np.clip(found[0][unseen] + offset, low, high)
        size = max(1.0, float(np.abs(scores).max()))
        np.testing.assert_allclose(reached, scores, atol=2e-5 * size)
        differ = [at for at, place in enumerate(best.tolist()) if place != places[0][unseen[at]]]
        full = dict(
            zip(*(x.tolist() for x in scorer.best(*scorer.history(history), ITEMS)), strict=True)
        )
        assert all(
            abs(full[int(places[0][unseen[at]])] - scores[at]) < 2e-5 * size for at in differ
        )


@pytest.mark.parametrize("opened", ["DPMF"], indirect=True)
def test_what_is_in_the_folder_of_vectors(opened, tmp_path):
    write_vectors(opened, tmp_path / "vectors")
    table = parquet.read_table(tmp_path / "vectors" / "vectors.parquet")
    assert table.column_names == ["item_id", "title", "vector"]
    assert np.array_equal(
        np.array(table["vector"].to_pylist(), np.float32), item_vectors(opened.scorer)
    )
    recipe = json.loads((tmp_path / "vectors" / "recipe.json").read_text())
    assert recipe["query"] == "[u, 1]"
    assert recipe["fold_in_rule"]["kind"] == "posterior mean"
    assert recipe["privacy"]["epsilon"] == pytest.approx(50)
    readme = (tmp_path / "vectors" / "README.md").read_text()
    assert f"faiss.IndexFlatIP({recipe['length']})" in readme
    with pytest.raises(ConfigError, match=r"exists. Name a new folder"):
        write_vectors(opened, tmp_path / "vectors")
    with pytest.raises(ConfigError, match="does not exist"):
        write_vectors(opened, tmp_path / "nowhere" / "vectors")


# ------------------------------------------------------------ MLflow


@pytest.mark.parametrize("opened", ["DPMF", "ALS"], indirect=True)
def test_what_mlflow_reads(opened, tmp_path):
    import pandas as pd

    write_mlflow(opened, tmp_path / "flow")
    described = yaml.safe_load((tmp_path / "flow" / "MLmodel").read_text())
    flavor = described["flavors"]["python_function"]
    assert flavor["loader_module"] == "discreet.serve.mlflow_model"
    tags = described["metadata"]
    private = opened.name == "DPMF"
    assert tags["discreet.epsilon"] == str(opened.statement["epsilon"])
    assert tags["discreet.privacy"] == opened.statement["status"]
    assert (float(tags["discreet.epsilon"]) <= 50) == private
    assert (len(tags["discreet.ledger_sha256"]) == 64) == private
    loaded = _load_pyfunc(str(tmp_path / "flow" / flavor["data"]))
    frame = pd.DataFrame({"history": [{"i3": 5.0}, ["i4", "i5"], []], "n": [4, 2, 1]})
    found = loaded.predict(frame)
    assert [len(row) for row in found] == [4, 2, 1]
    assert [entry["item_id"] for entry in found[0]] == fitted(opened.name).recommend(
        {"i3": 5.0}, 4
    )[0].tolist()
    with pytest.raises(DataError, match="column 'history'"):
        loaded.predict(pd.DataFrame({"x": [1]}))


# ------------------------------------------------------------ cards


@pytest.mark.parametrize("opened", ["DPMF", "ALS"], indirect=True)
def test_a_card_begins_with_what_hubs_read(opened):
    card = opened.contents.files["README.md"].decode()
    front = yaml.safe_load(re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)[1])
    assert front["library_name"] == "discreet"
    private = opened.name == "DPMF"
    assert ("differential-privacy" in front["tags"]) == private
    assert front["discreet"].get("epsilon") == (pytest.approx(50) if private else None)
    assert front["discreet"].get("delta") == (pytest.approx(1e-6) if private else None)


# ------------------------------------------------------------ lists for everybody


def test_lists_for_everybody(tmp_path, monkeypatch):
    monkeypatch.setattr("discreet.models.recommend_table.BLOCK", 50)  # several blocks
    model = fitted("DPMF, ratings")
    table = discreet.recommend_table(model, ratings(), n=4)
    assert table.column_names == ["user_id", "rank", "item_id", "title", "score"]
    assert discreet.recommend_table(model, ratings(), tmp_path / "lists.parquet", n=4) is None
    assert parquet.read_table(tmp_path / "lists.parquet").equals(table)
    ids, scores = model.recommend_many(ratings(), 4)
    assert table["item_id"].to_pylist() == ids.ravel().tolist()
    assert np.float32(table["score"].to_pylist()).tobytes() == scores.tobytes()
    assert table["rank"].to_pylist()[:5] == [1, 2, 3, 4, 1]


def test_lists_are_as_long_as_there_are_items(tmp_path):
    table = discreet.recommend_table(
        fitted("Popularity"), ratings().select_users([0], by="index"), n=ITEMS + 5
    )
    assert table.num_rows == ITEMS - int(np.diff(ratings().indptr)[0])


# ------------------------------------------------------------ the command


@pytest.mark.parametrize("opened", ["DPMF"], indirect=True)
def test_the_command(opened, tmp_path, capsys):
    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(["export", *map(str, words)])
        return ended.value.code, capsys.readouterr()

    model = opened.contents.folder
    code, said = run(
        "--web", model, "--out", tmp_path / "page.html", "--json", "--heading", "Films <for> you"
    )
    assert code == 0
    assert json.loads(said.out)["items"] == ITEMS
    assert "Films &lt;for&gt; you" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert run("--vectors", model, "-o", tmp_path / "v")[0] == 0
    assert run("--mlflow", model, "-o", tmp_path / "m")[0] == 0
    for words, sentence in {
        (model, "-o", "x"): "pass exactly one of",
        ("--web", "--vectors", model, "-o", "x"): "pass exactly one of",
        ("--web", model, "-o", tmp_path): "is a folder",
        ("--web", model, "-o", tmp_path / "no" / "page.html"): "does not exist",
        ("--vectors", model, "-o", tmp_path / "v"): "exists. Name a new folder",
        ("--vectors", "--heading", "x", model, "-o", tmp_path / "w"): "--heading needs --web",
        ("--onnx", "--noun", "x", model, "-o", tmp_path / "w"): "--noun needs --web",
        ("--web", tmp_path / "nothing", "-o", tmp_path / "page.html"): "does not exist",
    }.items():
        code, said = run(*words)
        assert code == 2
        assert sentence in said.err


def test_vectors_of_a_model_with_profiles_are_refused(tmp_path):
    """Its scores are no inner products."""
    fitted("DPMF, profiles alone").save(tmp_path / "model")
    opened = open_model(tmp_path / "model")
    with pytest.raises(ConfigError, match="profile in public features"):
        write_vectors(opened, tmp_path / "vectors")
