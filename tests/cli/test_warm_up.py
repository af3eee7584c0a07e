"""``discreet doctor --warm``: afterwards nothing is compiled for the default models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np


def discreet(cache: Path, *words: object) -> str:
    settings = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "discreet", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_after_warming_nothing_is_compiled(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    told = json.loads(discreet(cache, "doctor", "--warm", "--json"))
    assert "gaussian" in told["compiled"]  # the noise of every private model
    assert Path(told["folder"]).is_relative_to(cache)
    kept = sorted(cache.rglob("*.nbc"))
    assert kept
    rng = np.random.default_rng(0)
    data = tmp_path / "ratings.csv"
    lines = [
        f"{u},{i},{rng.integers(1, 6)}"
        for u in range(120)
        for i in rng.choice(40, 12, replace=False)
    ]
    data.write_text("user,item,rating\n" + "\n".join(lines))
    known = (data, "--epsilon", 20, "--rating-range", "1,5")
    discreet(cache, "train", *known, "--out", tmp_path / "lists")
    discreet(cache, "train", *known, "--goal", "rating", "--out", tmp_path / "stars")
    discreet(cache, "recommend", tmp_path / "lists", "--history", "1,2")
    discreet(cache, "evaluate", *known)
    assert sorted(cache.rglob("*.nbc")) == kept
