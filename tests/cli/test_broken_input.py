"""Whatever is wrong with what a person gives: one sentence on stderr, exit code 2, no result,
no traceback.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import parquet

import discreet

HEAD = "userId,movieId,rating\n"
GOOD = HEAD + "".join(f"{u},{i},{1 + (u * i) % 5}\n" for u in range(1, 9) for i in range(1, 7))
Shelf = Path
Case = tuple[str, Callable[[Path, Shelf], list[object]], str]


def a_file(name: str, content: str | bytes) -> Callable[[Path, Shelf], list[object]]:
    """Train on a file with this content."""

    def prepare(tmp: Path, _: Shelf) -> list[object]:
        (tmp / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return ["train", "--not-private", tmp / name, "--out", tmp / "model"]

    return prepare


def good_file(*options: object, command: str = "train") -> Callable[[Path, Shelf], list[object]]:
    """A command on ratings that are fine, with options that are not."""

    def prepare(tmp: Path, shelf: Shelf) -> list[object]:
        open_model = [] if "--epsilon" in options else ["--not-private"]
        out = ["--out", tmp / "model", *open_model] if command == "train" else []
        return [command, shelf / "ratings.csv", *out, *options]

    return prepare


def saved(
    command: str, *options: object, model: str = "model"
) -> Callable[[Path, Shelf], list[object]]:
    return lambda tmp, shelf: [
        command,
        shelf / model,
        *(o(tmp, shelf) if callable(o) else o for o in options),
    ]


def bare(*args: object) -> Callable[[Path, Shelf], list[object]]:
    return lambda tmp, shelf: list(args)


def made(name: str, content: str) -> Callable[[Path, Shelf], Path]:
    """A file in the temporary folder, as an argument."""

    def make(tmp: Path, _: Shelf) -> Path:
        (tmp / name).write_text(content)
        return tmp / name

    return make


def damaged(change: Callable[[Path], object]) -> Callable[[Path, Shelf], list[object]]:
    """Recommend with a copy of a saved model that something happened to."""

    def prepare(tmp: Path, shelf: Shelf) -> list[object]:
        shutil.copytree(shelf / "model", tmp / "model")
        change(tmp / "model")
        return ["recommend", tmp / "model", "--history", "12"]

    return prepare


def flip_a_byte(model: Path) -> None:
    file = model / "factors.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))


def from_the_future(model: Path) -> None:
    described = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(described | {"format": 99}))


def out_is(make: Callable[[Path], Path]) -> Callable[[Path, Shelf], list[object]]:
    return lambda tmp, shelf: ["train", "--not-private", shelf / "ratings.csv", "--out", make(tmp)]


def a_full_folder(tmp: Path) -> Path:
    (tmp / "full").mkdir()
    (tmp / "full" / "letter.txt").write_text("dear")
    return tmp / "full"


def a_model_and_a_letter(tmp: Path) -> Path:
    discreet.Popularity().fit(discreet.Ratings.from_arrays([1], [2])).save(tmp / "both")
    (tmp / "both" / "letter.txt").write_text("dear")
    return tmp / "both"


def a_pipe(tmp: Path, _: Shelf) -> list[object]:
    os.mkfifo(tmp / "pipe")
    return ["train", "--not-private", tmp / "pipe", "--out", tmp / "m"]


def a_parquet(tmp: Path, shelf: Shelf) -> Path:
    parquet.write_table(
        discreet.Ratings.read(shelf / "ratings.csv").to_frame("pyarrow"), tmp / "r.parquet"
    )
    return tmp / "r.parquet"


def a_plain_file(tmp: Path) -> Path:
    (tmp / "plain").write_text("text")
    return tmp / "plain"


CUT_GZIP = gzip.compress(GOOD.encode() * 50)[:-30]
NOISE = bytes(range(256)) * 20

SAME = HEAD + "".join(f"{u},{i},1\n" for u in range(1, 9) for i in range(1, 7))
ASKED = "--known", lambda t, s: s / "known.csv", "--target", lambda t, s: s / "target.csv"

CASES: list[Case] = [
    # --- files
    (
        "missing file",
        lambda t, s: ["train", "--not-private", t / "ratings.csv", "--out", t / "m"],
        "does not exist",
    ),
    (
        "misspelled file",
        lambda t, s: ["train", "--not-private", s / "rating.csv", "--out", t / "m"],
        "did you mean",
    ),
    ("folder", lambda t, s: ["train", "--not-private", t, "--out", t / "m"], "is a folder"),
    ("empty file", a_file("r.csv", ""), "is empty"),
    ("header only", a_file("r.csv", HEAD), "no ratings"),
    ("missing column", a_file("r.csv", "userId,rating\n1,5\n2,4\n"), "item"),
    ("near miss of a column", a_file("r.csv", "usr_id,movieId,rating\n1,2,5\n2,3,4\n"), "--user"),
    ("column that is not there", good_file("--user", "customer"), "'customer'"),
    ("text in a number column", a_file("r.csv", GOOD + "1,7,great\n"), "line 50"),
    ("NaN", a_file("r.csv", GOOD + "1,7,NaN\n"), "line 50"),
    ("infinity", a_file("r.csv", GOOD + "1,7,inf\n"), "not a finite number"),
    (
        "comma of thousands",
        a_file("r.csv", "userId;movieId;rating\n1;2;3,500\n2;2;4,000\n"),
        "comma of thousands",
    ),
    ("cut line", a_file("r.csv", GOOD + "1,7\n"), "fields"),
    ("cut gz", a_file("r.csv.gz", CUT_GZIP), "cut off"),
    ("gz that is none", a_file("r.csv.gz", GOOD), "gzip"),
    ("wrong separator", good_file("--separator", ";"), "column"),
    ("parquet that is none", a_file("r.parquet", GOOD), "parquet"),
    ("noise", a_file("r.csv", NOISE), "not a text file"),
    ("pickle", a_file("r.csv", b"\x80\x04\x95noise"), "pickle"),
    ("zip", a_file("r.zip", b"PK\x03\x04noise"), "zip"),
    ("missing id", a_file("r.csv", GOOD + ",7,4\n"), "missing"),
    # gets --duplicates error below
    ("repeated ratings refused", a_file("r.csv", GOOD + "1,1,4\n"), ""),
    (
        "is a network address",
        bare("train", "--not-private", "https://example.org/r.csv", "--out", "m"),
        "download",
    ),
    ("catalog missing", good_file("--items", "nowhere.csv"), "nowhere.csv"),
    (
        "catalog too small",
        lambda t, s: [
            "train",
            "--not-private",
            s / "ratings.csv",
            "--out",
            t / "m",
            "--items",
            made("few.csv", "item_id,title\n10,Ten\n11,Eleven\n")(t, s),
        ],
        "catalog",
    ),
    (
        "noise that costs more than it may",
        good_file(
            "--model",
            "dpals",
            "--epsilon",
            1,
            "--rating-range",
            "1,5",
            "--set",
            'sigmas={"gram": 1, "sum": 1, "counts": 9, "recounts": 9}',
        ),
        "sigmas cost ε = ",
    ),
    ("nothing left by filter", good_file("--min-user-ratings", 1000), "relax"),
    ("nothing left by threshold", good_file("--binarize", 9), "relax"),
    ("threshold not finite", good_file("--min-rating", "nan"), "finite"),
    # --- data sets
    ("unknown data set", bare("train", "--not-private", "nonsense", "--out", "m"), "data sets are"),
    ("misspelled data set", bare("train", "--not-private", "cinma", "--out", "m"), "cinema"),
    (
        "data set that is not there",
        bare("train", "--not-private", "ml-1m", "--path", "nowhere.zip", "--out", "m"),
        "nowhere.zip",
    ),
    (
        "column of a data set",
        bare("train", "--not-private", "cinema", "--user", "x", "--out", "m"),
        "--user",
    ),
    ("path of a file", good_file("--path", "x"), "--path"),
    (
        "scale too large",
        bare("train", "--not-private", "cinema", "--scale", 7, "--out", "m"),
        "scale",
    ),
    (
        "model instead of data",
        lambda t, s: ["train", "--not-private", s / "model", "--out", t / "m"],
        "saved model",
    ),
    # --- models and their parameters
    ("unknown model", good_file("--model", "alss"), "did you mean als"),
    ("negative factors", good_file("--factors", -3), "factors is -3"),
    ("factors in words", good_file("--factors", "many"), "whole number"),
    ("no iterations", good_file("--iterations", 0), "iterations is 0"),
    ("negative regularization", good_file("--regularization", -1), "regularization"),
    ("regularization not a number", good_file("--regularization", "nan"), "finite"),
    ("unknown goal", good_file("--goal", "tacit"), "'rating'"),
    ("unknown setting", good_file("--set", "regularisation=3"), "did you mean 'regularization'"),
    ("setting without value", good_file("--set", "dtype"), "KEY=VALUE"),
    ("setting of the wrong kind", good_file("--set", "user_exponent=high"), "must be a number"),
    ("setting given twice", good_file("--factors", 3, "--set", "factors=4"), "twice"),
    ("setting not allowed", good_file("--set", "dtype=float16"), "float32"),
    ("negative seed", good_file("--random-state", -1), "greater than or equal to 0"),
    (
        "parameter of another model",
        good_file("--model", "popularity", "--factors", 3),
        "no parameter 'factors'",
    ),
    ("no threads", good_file("--threads", 0), "threads"),
    ("factors beyond memory", good_file("--factors", 10**13), "memory"),
    # --- where to save
    ("out is a file", out_is(a_plain_file), "is a file"),
    (
        "out holds other things",
        out_is(a_full_folder),
        "more than a saved model, such as 'letter.txt'",
    ),
    ("out holds a model and other things", out_is(a_model_and_a_letter), "such as 'letter.txt'"),
    ("out under a file", out_is(lambda t: a_plain_file(t) / "model"), "cannot be written"),
    (
        "out where nobody writes",
        out_is(lambda t: Path("/proc/discreet/model")),
        "cannot be written",
    ),
    # --- calling
    ("no such command", bare("trian"), "'train'"),
    ("no such option", good_file("--fators", 3), "--factors"),
    ("no data", bare("train", "--out", "m"), "DATA"),
    ("no out", bare("train", "--not-private", "cinema"), "--out"),
    (
        "too many arguments",
        bare("train", "--not-private", "cinema", "other", "--out", "m"),
        "reads one file, and 2 were given",
    ),
    # --- evaluate
    ("unknown metric", good_file("--metrics", "rsme", command="evaluate"), "did you mean 'rmse'"),
    ("metric without cut-off", good_file("--metrics", "recall", command="evaluate"), "cut-off"),
    ("no metric", good_file("--metrics", ",", command="evaluate"), "--metrics"),
    (
        "metric that fits no model",
        good_file(
            "--model", "popularity", "--no-baselines", "--metrics", "rmse", command="evaluate"
        ),
        "compares predicted ratings",
    ),
    ("unknown split", good_file("--split", "user", command="evaluate"), "did you mean users"),
    ("split beyond 100", good_file("--split", "90/20", command="evaluate"), "100"),
    ("split and folds", good_file("--split", "90/10", "--folds", 5, command="evaluate"), "--folds"),
    ("one fold", good_file("--folds", 1, command="evaluate"), "folds"),
    ("no seeds", good_file("--seeds", 0, command="evaluate"), "seeds"),
    (
        "no validation part",
        good_file("--split", "90/10", "--part", "valid", command="evaluate"),
        "validation",
    ),
    (
        "more test users than users",
        good_file("--split", "users", "--test-users", 500, command="evaluate"),
        "users",
    ),
    (
        "no time to split by",
        good_file("--split", "time", "--timestamp", "none", command="evaluate"),
        "timestamp",
    ),
    ("relevance not finite", good_file("--relevant", "inf", command="evaluate"), "finite"),
    ("saved model without data", saved("evaluate"), "--known"),
    ("saved model and split", saved("evaluate", "--split", "90/10"), "already trained"),
    (
        "unknown items in the target",
        saved(
            "evaluate",
            "--known",
            lambda t, s: s / "known.csv",
            "--target",
            made("t.csv", HEAD + "500,9999,4\n501,12,3\n"),
        ),
        "--skip-unknown",
    ),
    (
        "other users in the target",
        saved(
            "evaluate",
            "--known",
            lambda t, s: s / "known.csv",
            "--target",
            made("t.csv", HEAD + "1,12,4\n2,13,3\n"),
        ),
        "no user",
    ),
    # --- recommend and similar
    ("no model", bare("recommend", "nowhere", "--history", "1"), "does not exist"),
    ("folder without model", lambda t, s: ["recommend", t, "--history", "1"], "model.json"),
    (
        "file instead of model",
        saved("recommend", "--history", "1", model="films.csv"),
        "not a folder",
    ),
    ("damaged factors", damaged(flip_a_byte), "damaged"),
    ("cut factors", damaged(lambda m: (m / "factors.safetensors").write_bytes(b"")), "damaged"),
    (
        "missing factors",
        damaged(lambda m: (m / "factors.safetensors").unlink()),
        "not a complete model",
    ),
    (
        "broken description",
        damaged(lambda m: (m / "model.json").write_text("{")),
        "not a complete model",
    ),
    (
        "description of something else",
        damaged(lambda m: (m / "model.json").write_text("[]")),
        "not a complete model",
    ),
    ("model from the future", damaged(from_the_future), "newer"),
    ("no history", saved("recommend"), "--history"),
    ("empty history", saved("recommend", "--history", " , "), "has no item"),
    ("unknown item", saved("recommend", "--history", "999"), "'999'"),
    (
        "misspelled title",
        saved("recommend", "--history", "Film 7, teh 1 one"),
        "did you mean 'Film 7, the 1 one (1957)'",
    ),
    ("rating in words", saved("recommend", "--history", "12=good"), "'good'"),
    ("rating not finite", saved("recommend", "--history", "12=nan"), "'nan'"),
    ("item rated twice", saved("recommend", "--history", "12=1,12=5"), "twice"),
    ("nothing to recommend", saved("recommend", "--history", "12", "-n", 0), "1"),
    ("history file missing", saved("recommend", "--history-file", "nowhere.txt"), "nowhere.txt"),
    ("history file empty", saved("recommend", "--history-file", made("h.csv", "\n")), "empty"),
    (
        "history file with a bad line",
        saved("recommend", "--history-file", made("h.csv", "12,5\n13,x\n")),
        "line 2",
    ),
    ("one user and many", saved("recommend", "--history", "1", "--users", "x.csv"), "--users"),
    ("unknown format", saved("recommend", "--history", "12", "-o", "list.xlsx"), ".parquet"),
    (
        "no folder for the list",
        saved("recommend", "--history", "12", "-o", "nowhere/list.csv"),
        "nowhere",
    ),
    (
        "unknown items of many",
        saved("recommend", "--users", made("u.csv", HEAD + "1,12,4\n1,777,4\n")),
        "777",
    ),
    ("similar to nothing", saved("similar", "999"), "'999'"),
    ("similar without factors", saved("similar", "12", model="popular"), "no item factors"),
    # --- options that would do nothing
    ("seeds of a saved model", saved("evaluate", "--seeds", 3, *ASKED), "--seeds is for training"),
    (
        "seed of a saved model",
        saved("evaluate", "--random-state", 0, *ASKED),
        "--random-state is for training",
    ),
    (
        "threshold of a saved model",
        saved("evaluate", "--binarize", 4, *ASKED),
        "--binarize is for training",
    ),
    (
        "filter of a saved model",
        saved("evaluate", "--min-user-ratings", 4, *ASKED),
        "--min-user-ratings is for",
    ),
    (
        "catalog of a saved model",
        saved("evaluate", "--items", "x.csv", *ASKED),
        "--items is for training",
    ),
    (
        "part of a saved model",
        saved("evaluate", "--part", "valid", *ASKED),
        "--part valid is for training",
    ),
    ("baselines of a saved model", saved("evaluate", "--no-baselines", *ASKED), "--no-baselines"),
    (
        "unknown items in training",
        good_file("--skip-unknown", command="evaluate"),
        "for a saved model",
    ),
    (
        "fold-in of another split",
        good_file("--fold-in", 0.5, command="evaluate"),
        "--fold-in needs --split users",
    ),
    (
        "fold-in of all",
        good_file("--split", "users", "--fold-in", 1, command="evaluate"),
        "between 0 and 1",
    ),
    (
        "duplicates of a data set",
        bare("train", "--not-private", "cinema", "--duplicates", "mean", "--out", "m"),
        "--duplicates is for",
    ),
    ("unknown items without a catalog", good_file("--unknown-items", "drop"), "--items FILE"),
    (
        "separator of parquet",
        lambda t, s: [
            "train",
            "--not-private",
            a_parquet(t, s),
            "--separator",
            ";",
            "--out",
            t / "m",
        ],
        "--separator ';' is for text files",
    ),
    (
        "header of parquet",
        lambda t, s: ["train", "--not-private", a_parquet(t, s), "--header", "--out", t / "m"],
        "--header is for",
    ),
    (
        "ratings without ratings",
        good_file("--goal", "ranking", "--metrics", "rmse", command="evaluate"),
        "--goal ranking predicts none",
    ),
    (
        "columns of a typed history",
        saved("recommend", "--history", "12", "--item", "x"),
        "--item is for",
    ),
    (
        "user of one history",
        saved("recommend", "--history-file", "h.csv", "--user", "x"),
        "--user is for --users",
    ),
    # --- what is wrong is said before anything is read
    (
        "metric before data",
        bare("evaluate", "nowhere.csv", "--metrics", "rsme"),
        "did you mean 'rmse'",
    ),
    ("split before data", bare("evaluate", "nowhere.csv", "--split", "90/20"), "100"),
    ("setting before data", bare("evaluate", "nowhere.csv", "--factors", 0), "factors is 0"),
    (
        "setting before training data",
        bare("train", "--not-private", "nowhere.csv", "--factors", 0, "--out", "m"),
        "factors is 0",
    ),
    ("budget before data", bare("evaluate", "nowhere.csv", "--epsilon", -1), "--epsilon -1"),
    # --- nothing to predict, pipes
    ("all the same", lambda t, s: ["evaluate", made("same.csv", SAME)(t, s)], "every rating of"),
    (
        "all the same, with biases",
        lambda t, s: ["evaluate", made("same.csv", SAME)(t, s), "--model", "bias"],
        "use --model als --goal ranking",
    ),
    (
        "all the same, privately",
        lambda t, s: [
            "train",
            made("same.csv", SAME)(t, s),
            "--epsilon",
            1,
            "--goal",
            "rating",
            "--out",
            t / "m",
        ],
        "use --goal ranking",
    ),
    ("pipe", a_pipe, "is a pipe"),
    # --- files of spreadsheets and shops
    ("workbook", a_file("r.xlsx", b"PK\x03\x04noise"), "is a spreadsheet: save it as CSV UTF-8"),
    (
        "titles for items",
        a_file("r.csv", "userId,title,rating\n1,Up,5\n"),
        "did you mean --item title?",
    ),
    (
        "Windows encoding",
        a_file("r.csv", GOOD.encode() + "Jörg,7,4\n".encode("cp1252")),
        "line 50: the user is not UTF-8 text: pass --encoding cp1252",
    ),
    ("unknown encoding", good_file("--encoding", "cp12520"), "--encoding cp12520 is unknown"),
    (
        "wrong encoding",
        lambda t, s: [*a_file("r.csv", "userId,movieId\nö,1\n")(t, s), "--encoding", "ascii"],
        "is not ascii text: pass another --encoding",
    ),
    (
        "encoding of parquet",
        lambda t, s: ["train", "--not-private", a_parquet(t, s), "--encoding", "cp1252", "-o", "m"],
        "--encoding cp1252 is for text files",
    ),
    (
        "encoding of a data set",
        bare("train", "--not-private", "cinema", "--encoding", "cp1252", "--out", "m"),
        "--encoding is for files",
    ),
    (
        "day or month",
        a_file("r.csv", "userId,movieId,date\n1,2,05/06/2025\n"),
        "pass --dates day-first or --dates month-first",
    ),
    ("unknown order of dates", good_file("--dates", "dayfirst"), "'day-first'"),
    (
        "encoding of blocks",
        good_file("--epsilon", 1, "--engine", "blocks", "--encoding", "cp1252"),
        "--encoding needs --engine memory",
    ),
    (
        "orders for users",
        lambda t, s: [
            "train",
            made("o.csv", "order_id,sku\n" + "".join(f"{n},{n % 9}\n" for n in range(200)))(t, s),
            *("--user", "order_id", "--epsilon", 1, "--out", t / "m"),
        ],
        "seems to number orders or visits",
    ),
    # --- the others
    ("unknown genre", bare("demo", "--likes", "Sci-Fy"), "Sci-Fi"),
    ("demo into a file", lambda t, s: ["demo", "--out", a_plain_file(t)], "is a file"),
    ("unknown benchmark", bare("bench", "--only", "speed"), "als"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
@pytest.mark.parametrize("json_too", [False, True], ids=["", "json"])
def test_one_sentence_and_exit_code_2(
    run, tmp_path, shelf, monkeypatch, request, arguments, said, json_too
):
    monkeypatch.chdir(tmp_path)
    args = arguments(tmp_path, shelf)
    if "repeated ratings refused" in request.node.callspec.id:
        args += ["--duplicates", "error"]
    if json_too:
        args.append("--json")
    result = run(*args)
    assert result.code == 2, result
    assert not json_too or result.out == ""
    assert "Saved" not in result.out
    assert result.err.startswith("discreet: ")
    assert result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    assert said in result.err
    assert len(result.err) < 400


def test_a_bad_setting_is_found_before_the_data_are_read(run, tmp_path):
    assert (
        "factorz"
        in run("train", tmp_path / "missing.csv", "--out", tmp_path / "m", "--set", "factorz=3").err
    )


def test_nothing_is_left_behind(run, tmp_path, shelf):
    run(
        "train",
        "--not-private",
        shelf / "ratings.csv",
        "--out",
        tmp_path / "m",
        "--set",
        "dtype=float16",
    )
    run("train", "--not-private", shelf / "ratings.csv", "--out", tmp_path / "m", "--factors", -1)
    assert list(tmp_path.iterdir()) == []


def test_unexpected_errors_are_one_line_too_and_debug_shows_more(run, shelf, monkeypatch):
    monkeypatch.setattr(
        "discreet.models.storage.load_scorer.open_model", lambda folder, once: 1 / 0
    )
    result = run("similar", shelf / "model", "12")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "--debug" in result.err
    assert "division by zero" in result.err
    shown = run("similar", shelf / "model", "12", "--debug")
    assert shown.code == 1
    assert "Traceback" in shown.err


def test_running_out_of_disk_is_said(run, shelf, tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "model"))

    monkeypatch.setattr("discreet.models.storage.save_load.save", full)
    result = run(
        "train", "--not-private", shelf / "ratings.csv", "--out", tmp_path / "model", "--factors", 2
    )
    assert result.code == 2
    assert result.err == f"discreet: {tmp_path / 'model'}: No space left on device\n"
