"""``discreet doctor --warm``: afterwards nothing is compiled for the default models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

#: Signatures of all kernels after warming, and those that commands add to them. What numba has on
#: disk is loaded instead of compiled, and counts all the same.
NEW = """
import gc, json, sys
from numba.core.dispatcher import Dispatcher
from discreet.cli import main
from discreet.cli.warm_up import warm_up

def signatures():
    return {
        f"{one.py_func.__module__}.{one.py_func.__name__} {signature}"
        for one in gc.get_objects() if isinstance(one, Dispatcher)
        for signature in one.signatures
    }

warm_up(lambda *given: None)
warm = signatures()
for call in json.load(sys.stdin):
    try:
        main(call)
    except SystemExit as left:
        assert not left.code, call
new = sorted(name for name in signatures() - warm if name.startswith("discreet."))
print(json.dumps([sorted(warm), new]))
"""

#: ``discreet doctor --warm`` with one kernel to compile instead of all.
ONE = """
import discreet.cli.warm_up as warming
from discreet.cli import main
from discreet.privacy.noise.sources import SecureNoise

warming.warm_up = lambda progress: SecureNoise().gaussian(10, 1.0)
main(["doctor", "--warm", "--json"])
"""


def run(script: str, text: str = "", **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | more,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_after_warming_nothing_is_compiled(tmp_path):
    rng = np.random.default_rng(0)
    data = tmp_path / "ratings.csv"
    lines = [
        f"{u},{i},{rng.integers(1, 6)}"
        for u in range(120)
        for i in rng.choice(40, 12, replace=False)
    ]
    data.write_text("user,item,rating\n" + "\n".join(lines))
    known = [str(data), "--epsilon", "20", "--rating-range", "1,5"]
    lists = str(tmp_path / "lists")
    calls = [
        ["train", *known, "--out", lists],
        ["train", *known, "--goal", "rating", "--out", str(tmp_path / "stars")],
        ["recommend", lists, "--history", "1,2"],
        ["evaluate", *known],
    ]
    warm, new = json.loads(run(NEW, json.dumps(calls)).splitlines()[-1])
    assert len(warm) > 20
    assert new == []


def test_doctor_reports_what_it_compiled_and_where_it_is_kept(tmp_path):
    told = json.loads(run(ONE, NUMBA_CACHE_DIR=str(tmp_path)))
    assert "gaussian" in told["compiled"]  # the noise of every private model
    assert Path(told["folder"]).is_relative_to(tmp_path)
    assert list(tmp_path.rglob("*.nbc"))
