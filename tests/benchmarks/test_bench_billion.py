"""The benchmark of a billion ratings, on twenty thousand."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks import bench_billion

N = 20_000


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bench_billion, "ITEMS", {N: 400, 10 * N: 800})
    monkeypatch.setattr(bench_billion, "CHUNK", 50)
    monkeypatch.setattr(bench_billion, "PER_FILE", N // 2)


def test_generated_users_are_whole_and_rate_an_item_once(small):
    tables = list(bench_billion.generate(N))
    table = pa.concat_tables(tables)
    pairs = table["user"].to_numpy() * 400 + table["item"].to_numpy()
    assert len(np.unique(pairs)) == len(pairs)
    assert np.unique(table["user"]).tolist() == list(range(N // bench_billion.PER_USER))
    assert set(np.unique(table["rating"])) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    edges = [(t["user"][0].as_py(), t["user"][-1].as_py()) for t in tables]
    assert edges == [(0, 49), (50, 99), (100, 149), (150, 199)]


def test_users_prefer_the_items_of_their_group(small):
    table = pa.concat_tables(bench_billion.generate(N))
    group = table["item"].to_numpy() % bench_billion.GROUPS
    counts = np.zeros((200, bench_billion.GROUPS))
    np.add.at(counts, (table["user"].to_numpy(), group), 1)
    share = counts.max(axis=1) / counts.sum(axis=1)
    assert 0.3 < share.mean() < 0.7


def test_from_files_to_lists(small, tmp_path):
    rows = []
    for factor in (1, 10):
        folder = tmp_path / str(factor)
        folder.mkdir()
        row = {"ratings": factor * N}
        for phase in bench_billion.PHASES:
            bench_billion.main(phase, factor * N, folder)
            row[phase] = json.loads((folder / f"{phase}.json").read_text())
        rows.append(row)
        lists = parquet.read_table(folder / "lists")
        assert len(lists) == factor * N // bench_billion.PER_USER * bench_billion.N
    assert set(rows[0]["ranking"]["steps"]) - {"begin"}
    text = "\n".join(bench_billion.show({"sizes": rows}))
    assert "| train DPMF for ratings |" in text
    assert "on disk" in text.lower()


def test_a_user_in_two_batches_gets_one_list(small, tmp_path, monkeypatch):
    monkeypatch.setattr("discreet.data.user_batches.ROWS", 777)
    for phase in ("generate", "blocks", "ranking"):
        bench_billion.main(phase, N, tmp_path)
    bench_billion.main("lists", N, tmp_path)
    lists = parquet.read_table(tmp_path / "lists")
    assert len(lists) == N // bench_billion.PER_USER * bench_billion.N
    assert len(np.unique(lists["user_id"])) == N // bench_billion.PER_USER


def test_an_interrupted_phase_goes_on_with_the_next_file(small, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_billion, "PER_FILE", N // 4)
    whole = tmp_path / "whole"
    whole.mkdir()
    bench_billion.main("generate", N, whole)
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    bench_billion.main("generate", N, stopped)
    (stopped / "ratings" / "00002.parquet").unlink()
    (stopped / "generate.json").unlink()
    bench_billion.main("generate", N, stopped)
    for file in sorted((whole / "ratings").iterdir()):
        assert file.read_bytes() == (stopped / "ratings" / file.name).read_bytes()
    took = json.loads((stopped / "generate.json").read_text())
    assert took["pieces"] == 2


def test_a_kept_folder_is_assembled_without_measuring_again(small, tmp_path, monkeypatch):
    monkeypatch.setenv(bench_billion.KEPT, str(tmp_path))
    folder = tmp_path / "2e4"
    folder.mkdir()
    for phase in bench_billion.PHASES:
        bench_billion.main(phase, N, folder)
    monkeypatch.setattr(bench_billion.subprocess, "run", lambda *_, **__: pytest.fail("ran"))
    row = {"ratings": N} | bench_billion._measure(N)
    assert "kept folder" in "\n".join(bench_billion.show({"sizes": [row]}))
