"""Titles and ids that a stranger wrote, on their way into files: halves of surrogate pairs, and
formulas.
"""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from pyarrow import parquet
from scipy.sparse import csr_array

import discreet
from discreet.cli.recommend import escape_formula
from discreet.models.storage.read_folder import checksum

FORMULAS = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\tx", "\rx", "\uff1d1", "'=1"]
HARMLESS = ["-5", "+49301234", "-2.5", "1e-3", "a=b", "'71", "Alien", ""]


def save_model(folder, ids, titles):
    """A small model whose titles are changed on disk, as in a folder from a stranger."""
    stars = np.random.default_rng(0).integers(1, 6, (30, len(ids))).astype(float)
    ratings = discreet.Ratings.from_csr(csr_array(stars), item_ids=ids)
    discreet.ALS(3, iterations=2).fit(ratings).save(folder)
    described = json.loads((folder / "model.json").read_text())
    described.pop("checksum")
    described["titles"] = titles
    described["checksum"] = checksum(described)
    (folder / "model.json").write_text(json.dumps(described))
    return folder


@pytest.fixture
def half_a_pair(tmp_path):
    return save_model(
        tmp_path / "m", list(range(6)), ["half \ud83d of a pair", *map(str, range(1, 6))]
    )


@pytest.mark.parametrize("kind", ["--web", "--vectors", "--mlflow"])
def test_half_a_surrogate_pair_in_a_title_is_exported_as_a_replacement(
    run, half_a_pair, tmp_path, kind
):
    left = run("export", kind, half_a_pair, "--out", tmp_path / "out")
    assert left.code == 0, left.err
    if kind == "--vectors":
        assert (
            parquet.read_table(tmp_path / "out" / "vectors.parquet")["title"][0].as_py()
            == "half \ufffd of a pair"
        )


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "parquet"])
def test_half_a_surrogate_pair_in_a_title_is_listed_as_a_replacement(
    run, half_a_pair, tmp_path, suffix
):
    file = tmp_path / f"lists.{suffix}"
    left = run("recommend", half_a_pair, "--history", "1", "-n", "6", "-o", file)
    assert left.code == 0, left.err
    titles = (
        parquet.read_table(file)["title"].to_pylist()
        if suffix == "parquet"
        else [file.read_text("utf-8")]
    )
    assert any("half \ufffd of a pair" in title for title in titles)


@pytest.mark.parametrize("cell", FORMULAS)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(cell):
    assert escape_formula(cell) == "'" + cell


@pytest.mark.parametrize("cell", [*HARMLESS, -5, 2.5])
def test_numbers_and_other_text_stay_as_they_are(cell):
    assert escape_formula(cell) == cell


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_lists_for_spreadsheets_hold_no_formula_unless_asked_for(run, tmp_path, suffix, many):
    ids = [*FORMULAS, "-5"]
    model = save_model(tmp_path / "m", ids, [f"={at}" for at in range(len(ids))])
    users = tmp_path / "users.csv"
    users.write_text('user,item,rating\n"=evil()",-5,4\n-7,-5,4\n')
    asked = ["--users", users] if many else ["--history", "-5"]
    separator = "\t" if suffix == "tsv" else ","
    for raw in (False, True):
        file = tmp_path / f"{raw}.{suffix}"
        left = run(
            "recommend", model, *asked, "-n", "20", "-o", file, *(["--raw-csv"] if raw else [])
        )
        assert left.code == 0, left.err
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter=separator))
        found = {(row["item_id"], row["title"]) for row in rows}
        sign = "" if raw else "'"
        assert found == {(sign + item, f"{sign}={at}") for at, item in enumerate(FORMULAS)}
        if many:
            assert {row["user_id"] for row in rows} == {f"{sign}=evil()", "-7"}


def test_raw_csv_is_refused_where_no_csv_is_written(run, half_a_pair, tmp_path):
    for to in ([], ["-o", tmp_path / "lists.json"]):
        left = run("recommend", half_a_pair, "--history", "1", "--raw-csv", *to)
        assert left.code == 2
        assert "--raw-csv is for lists written as .csv or .tsv" in left.err
