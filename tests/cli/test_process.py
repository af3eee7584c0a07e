"""What only a process of its own can show: fresh starts, pipes, terminals and signals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import discreet
from discreet.privacy.release.ledger import Ledger

DISCREET = [sys.executable, "-m", "discreet"]
WAIT = 120  # seconds that no answer takes, also on a busy machine that still has to compile


def shell(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DISCREET, *map(str, args)], capture_output=True, text=True, timeout=WAIT, **options
    )  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings that take a while to learn from, if there are very many sweeps."""
    file = tmp_path_factory.mktemp("big") / "ratings.csv"
    rng = np.random.default_rng(0)
    pairs = np.unique(
        np.column_stack([rng.integers(0, 2000, 50_000), rng.integers(0, 500, 50_000)]), axis=0
    )
    rows = np.column_stack([pairs, rng.integers(1, 6, len(pairs))])
    np.savetxt(file, rows, fmt="%d", delimiter=",", header="user,item,rating", comments="")
    return file


def test_a_model_trained_here_recommends_the_same_in_a_new_process(shelf, tmp_path):
    """Train in one process, recommend in a second; both as Python does in this third one."""
    done = shell(
        "train",
        shelf / "ratings.csv",
        "--out",
        tmp_path / "m",
        "--not-private",
        "--factors",
        3,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    json.loads(done.stdout)
    answer = json.loads(
        shell("recommend", tmp_path / "m", "--history", "12=5,13=2", "--json").stdout
    )
    python = discreet.ALS(3).fit(discreet.Ratings.read(shelf / "ratings.csv"))
    for model in (python, discreet.load(tmp_path / "m")):
        ids, scores = model.recommend({12: 5, 13: 2})
        assert [row["item_id"] for row in answer["recommendations"]] == ids.tolist()
        assert [row["score"] for row in answer["recommendations"]] == scores.tolist()


def test_no_bar_in_a_pipe(shelf, tmp_path):
    for color in ({}, {"FORCE_COLOR": "1"}):
        args = [
            "train",
            shelf / "ratings.csv",
            "--out",
            tmp_path / "m",
            "--not-private",
            "--model",
            "bias",
        ]
        done = shell(*args, env={**os.environ, **color})
        assert done.returncode == 0
        assert done.stderr == ""
        assert "%" not in done.stdout


def in_terminal(*args: object) -> tuple[int, str, str]:
    """Exit code, stdout (a pipe) and stderr (a terminal) of a command."""
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*DISCREET, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        shown, end = b"", time.monotonic() + WAIT
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # Linux says so when the other end is closed
                    break
            elif process.poll() is not None:
                break
        out, _ = process.communicate(timeout=WAIT)
    os.close(ours)
    return process.returncode, out, shown.decode()


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_a_bar_on_a_terminal(big, tmp_path):
    code, out, shown = in_terminal(
        "train", big, "--out", tmp_path / "m", "--not-private", "--iterations", 600, "--json"
    )
    assert code == 0
    assert json.loads(out)["command"] == "train"
    assert "Training ALS" in shown
    assert "%" in shown
    assert "Traceback" not in shown


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("place", ["new", "old"])
def test_control_c_leaves_with_130_and_no_mess(big, tmp_path, shelf, place):
    """In the middle of training; a model that was there before is still there, whole."""
    out = tmp_path / "m"
    if place == "old":
        discreet.load(shelf / "model").save(out)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with subprocess.Popen(
        [*DISCREET, "train", str(big), "--out", str(out), "--not-private", "--iterations", "10000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Read ")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert error.startswith("discreet: interrupted")
    assert error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == before
    if place == "old":
        discreet.load(out)


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_a_reader_that_leaves_early_is_no_trouble(shelf):
    with subprocess.Popen(
        [
            *DISCREET,
            "recommend",
            str(shelf / "model"),
            "--users",
            str(shelf / "ratings.csv"),
            "-n",
            "20",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT) == 1


def test_output_survives_a_terminal_without_unicode(shelf):
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = shell("evaluate", shelf / "ratings.csv", "--metrics", "rmse", "--factors", 2, env=env)
    assert done.returncode == 0, done.stderr
    assert "rmse" in done.stdout


def test_start_up_imports_nothing_heavy():
    code = (
        "import sys; from discreet.cli.app import run; run(['train', '--help']);"
        " print(sorted({'numpy', 'numba', 'scipy', 'pyarrow', 'matplotlib', 'pandas'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout[-200:] + done.stderr


def test_an_interrupt_that_python_drops_is_heard_all_the_same():
    """In a weak reference's callback an exception is only reported; the interrupt must not be
    lost there.
    """
    code = """
import sys, time, weakref
from discreet import cli
sys.unraisablehook = cli._interrupt_again
class Thing: pass
def interrupted(_): raise KeyboardInterrupt
thing = Thing(); reference = weakref.ref(thing, interrupted)
try:
    del thing
    time.sleep(5)
    print("lost")
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("heard\n", "")


SIGNALLED = """
import os, sys
from discreet.cli import main
from discreet.privacy.release.ledger import Ledger

number, record, save = int(sys.argv[1]), Ledger.record, Ledger.save

def recorded(ledger, *args, **rest):
    entry = record(ledger, *args, **rest)
    if len(ledger.entries) == 5:
        os.kill(os.getpid(), number)
    return entry

def saved(ledger, path):  # somebody impatient does it again
    os.kill(os.getpid(), number)
    save(ledger, path)

Ledger.record, Ledger.save = recorded, saved
main(sys.argv[2:])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_private_training_leaves_its_ledger(private, tmp_path, number, code):
    """What was released is said, and listed in a ledger beside the place of the model, which is
    not there.
    """
    args = [
        "train",
        private / "ratings.csv",
        "--items",
        private / "films.csv",
        "--rating-range",
        "1,5",
    ]
    args += ["--epsilon", 50, "--goal", "rating", "--factors", 2, "--out", tmp_path / "m"]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(number)), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode == code, done.stderr
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("m.unfinished-")
    assert file.name.endswith(".ledger.json")
    ledger = Ledger.load(file)
    planned = sum(release.count for release in ledger.plan.releases)
    assert len(ledger.entries) == 5 < planned
    assert 0 < ledger.price().epsilon < 50
    assert done.stderr.splitlines() == [
        (
            f"discreet: training ended after 5 of {planned} releases, which cost ε ="
            f" {ledger.price().epsilon:.4g} at δ = 1e-06 and count as spent budget; their ledger"
            f" is {file}"
        ),
        "discreet: interrupted: no file was left half-written",
    ]
    priced = shell("budget", file, "--json")
    assert priced.returncode == 0, priced.stderr


def test_a_signal_that_was_ignored_before_still_is(private, tmp_path):
    """As with nohup."""
    args = [
        sys.executable,
        "-c",
        SIGNALLED,
        str(int(signal.SIGHUP)),
        "train",
        private / "ratings.csv",
        "--epsilon",
        50,
    ]
    done = subprocess.run(
        [*map(str, args), "--out", str(tmp_path / "m")],
        capture_output=True,
        text=True,
        timeout=WAIT,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert done.returncode == 0, done.stderr
    assert discreet.load(tmp_path / "m").privacy_.finite
