"""``discreet train --engine blocks``: the bits of memory, a model like any other, one sentence
for bad input.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import discreet
from discreet.privacy.noise.sources import SecureNoise


@pytest.fixture
def train(run, private, tmp_path):
    """Trains to the folder that is named first."""

    def call(to, *data, **more):
        options = {
            "items": private / "films.csv",
            "rating-range": "1,5",
            "factors": 3,
            "epsilon": 8,
        } | more
        flags = [f"--{name}" for name, value in options.items() if value is True]
        valued = {
            name: value
            for name, value in options.items()
            if value is not None and value is not True
        }
        given = [*flags, *(word for name, value in valued.items() for word in (f"--{name}", value))]
        return run("train", *(data or [private / "ratings.csv"]), "--out", tmp_path / to, *given)

    return call


@pytest.fixture
def halves(private, tmp_path):
    """The same ratings in two files; some people are in both."""
    head, *lines = (private / "ratings.csv").read_text().splitlines()
    folder = tmp_path / "halves"
    folder.mkdir()
    for name, part in (
        ("a.csv", lines[: len(lines) // 2 + 5]),
        ("b.csv", lines[len(lines) // 2 + 5 :]),
    ):
        (folder / name).write_text("\n".join([head, *part]) + "\n")
    return folder


def factors(folder):
    return load_file(folder / "factors.safetensors")


def test_a_folder_of_files_leads_to_blocks(train, halves):
    said = train("m", halves)
    assert said.code == 2
    assert "is a folder. To train on all files in it, pass --engine blocks" in said.err
    said = train("m", halves, **{"epsilon": None, "rating-range": None, "not-private": True})
    assert "join them into one" in said.err


def test_files_in_blocks_give_the_model_that_memory_gives(
    train, run, halves, private, tmp_path, monkeypatch
):
    """Without noise: from two files, from their folder, and from the blocks that were kept."""
    monkeypatch.setattr(
        SecureNoise, "add", lambda self, values, mechanism, weights=None, grid=None: values * grid
    )
    assert train("memory").code == 0
    kept = tmp_path / "blocks"
    ways = {
        "files": train(
            "files", halves / "a.csv", halves / "b.csv", engine="blocks", blocks=5, keep=kept
        ),
        "folder": train("folder", halves, engine="blocks", blocks=3),
        "again": train("again", kept, engine="blocks", items=None),
    }
    whole = factors(tmp_path / "memory")
    for name, done in ways.items():
        assert (done.code, done.err) == (0, "")
        assert "Training on <BlockRatings: 40 items, " in done.out
        found = factors(tmp_path / name)
        assert found.keys() == whole.keys()
        assert all(np.array_equal(found[key], whole[key]) for key in whole)
    assert sorted(one.name for one in halves.iterdir()) == [
        "a.csv",
        "b.csv",
    ], "nothing is left beside the data"
    assert len(list(kept.glob("*.bin"))) == 5


def test_a_model_trained_on_blocks_is_a_model_like_any_other(train, run, private, tmp_path):
    done = train("m", engine="blocks", blocks=4, **{"random-state": 3})
    assert done.code == 0
    ledger = (tmp_path / "m" / "ledger.json").read_text()
    assert "users are in 4 block files on one machine" in ledger
    assert ".bin" not in ledger
    assert "crc32" not in ledger
    parts = ["--known", private / "ratings.csv", "--target", private / "ratings.csv"]
    found = run("evaluate", tmp_path / "m", *parts, "--metrics", "recall@5", "--json")
    assert found.code == 0, found.err
    json.loads(found.out)
    lists = run("recommend", tmp_path / "m", "--history", "12=5,14=4", "--json")
    ids, _ = discreet.load(tmp_path / "m").recommend({12: 5, 14: 4})
    assert [row["item_id"] for row in json.loads(lists.out)["recommendations"]] == ids.tolist()


def test_json_tells_nothing_but_the_public_number_of_blocks(train, run, private, tmp_path):
    call = [
        "train",
        private / "ratings.csv",
        "--items",
        private / "films.csv",
        "--rating-range",
        "1,5",
        "--epsilon",
        8,
    ]
    done = run(*call, "--engine", "blocks", "--blocks", 6, "--out", tmp_path / "m", "--json")
    assert (done.code, done.err) == (0, "")
    answer = json.loads(done.out)
    assert (answer["engine"], answer["blocks"]) == ("blocks", 6)
    assert "users" not in answer
    assert "ratings" not in answer


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"blocks": 4}, "--blocks needs --engine blocks or --engine spark"),
        ({"engine": "blocks", "master": "local[2]"}, "--master needs --engine spark"),
        (
            {"engine": "blocks", "epsilon": None, "rating-range": None, "not-private": True},
            "--engine blocks is for private models: pass --epsilon",
        ),
        ({"engine": "blocks", "blocks": 0}, "--blocks is 0, but must be from 1 to 65,536"),
        (
            {"engine": "blocks", "min-rating": 3},
            "--min-rating needs --engine memory, and this is --engine blocks",
        ),
        (
            {"engine": "blocks", "noise": "seeded", "random-state": 1},
            "--engine blocks supports secure noise only: leave out --noise seeded",
        ),
        (
            {"engine": "blocks", "model": "dpsgd"},
            "DPSGD relies on secret Poisson sampling, which this engine cannot replay: train it"
            " with --engine memory",
        ),
        (
            {"engine": "blocks", "keep": "{private}"},
            "already exists: name a new folder, or train from the blocks",
        ),
    ],
)
def test_options_that_do_not_go_together(train, private, tmp_path, options, said):
    given = {
        name: str(value).format(private=private) if name == "keep" else value
        for name, value in options.items()
    }
    refused = train("m", **given)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("discreet: ")
    assert refused.err.count("\n") == 1
    assert said in refused.err
    assert not (tmp_path / "m").exists()


def test_sources_that_blocks_cannot_be_written_from(train, private, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = tmp_path / "broken.csv"
    broken.write_text("userId,movieId,rating\n1,10,somebody-called-4711\n")
    for source, said in (
        (tmp_path / "none.csv", "does not exist"),
        (empty, "a folder without ratings files"),
        (broken, "has a line without a user, an item or a finite rating"),
        ("-", "cannot read standard input: write it to a file first"),
    ):
        refused = train("m", source, engine="blocks")
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err
        assert refused.err.count("\n") == 1
        assert "4711" not in refused.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["broken.csv", "empty"]


def test_kept_blocks_that_are_damaged_or_do_not_need_more(train, tmp_path):
    kept = tmp_path / "blocks"
    assert train("m", engine="blocks", blocks=3, keep=kept).code == 0
    refused = train("n", kept, engine="blocks")
    assert (refused.code, refused.err) == (
        2,
        f"discreet: {kept} already holds blocks: leave out --blocks, --keep and --items\n",
    )
    (kept / "block-00001.bin").unlink()
    lost = train("n", kept, engine="blocks", items=None)
    assert lost.code == 2
    assert (
        lost.err.splitlines()[-1]
        == f"discreet: block 2 of {kept} is lost: restore the file block-00001.bin, or write the"
        " blocks again"
    )
    (kept / "manifest.json").write_text("{")
    damaged = train("o", kept, engine="blocks", items=None)
    assert (damaged.code, damaged.err) == (
        2,
        f"discreet: {kept / 'manifest.json'} is damaged: write the blocks again\n",
    )
