"""A service needs what packaging/serve-requirements.txt names: no numba, no pyarrow."""

import importlib.metadata
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from discreet.models.storage.load_scorer import open_model
from support.served_models import fitted, histories

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from importlib.util import find_spec
from discreet.models.storage.load_scorer import open_model
import discreet.serve.app
opened = open_model(sys.argv[1])
lists = []
for history in json.loads(sys.argv[2]):
    items, scores = opened.scorer.best(*opened.scorer.history(history), 10)
    lists.append([items.tolist(), scores.tolist()])
absent = [n for n in ("numba", "pyarrow", "matplotlib", "cryptography") if find_spec(n) is None]
print(json.dumps({"lists": lists, "statement": opened.statement["text"], "absent": absent}))
"""


def required(lines):
    """The distributions that these requirements need, with those that they need themselves."""
    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = [Requirement(line) for line in lines]
    while wanted:
        need = wanted.pop()
        name = re.sub(r"[-_.]+", "-", need.name).lower()
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        found[name] = importlib.metadata.distribution(name)
        wanted += [Requirement(line) for line in found[name].requires or ()]
    return found


@pytest.fixture(scope="module")
def slim(tmp_path_factory):
    """A folder with links to these packages alone, in the place of site-packages."""
    lines = (ROOT / "packaging" / "serve-requirements.txt").read_text().splitlines()
    folder = tmp_path_factory.mktemp("slim")
    for found in required(line for line in lines if not line.startswith("#")).values():
        for file in found.files or ():
            top = folder / file.parts[0]
            if file.parts[0] != ".." and not top.exists():
                top.symlink_to(Path(str(found.locate_file(file.parts[0]))))
    (folder / "discreet").symlink_to(Path(find_spec("discreet").origin).parent)
    return folder


@pytest.mark.parametrize("name", ["DPMF", "DPMF, ratings", "Bias"])
def test_lists_and_statement_are_those_of_a_full_installation(slim, tmp_path, name):
    fitted(name).save(tmp_path / "model")
    asked = histories(10)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, tmp_path / "model", json.dumps(asked)],
        env={"PYTHONPATH": str(slim)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["absent"] == ["numba", "pyarrow", "matplotlib", "cryptography"]
    opened = open_model(tmp_path / "model")
    # what was learned is said by the model class, which needs a full installation
    assert opened.statement["text"].startswith(found["statement"])
    for history, (items, scores) in zip(asked, found["lists"], strict=True):
        mine, best = opened.scorer.best(*opened.scorer.history(history), 10)
        np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-5)
        assert len(set(items) ^ set(mine.tolist())) <= 2  # where scores are equal but for rounding
