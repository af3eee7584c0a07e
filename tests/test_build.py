"""What is built is what people install: a wheel and an archive of the sources, whole, with
nothing else in them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import discreet

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist), made without the network from a copy of what git knows."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_has_every_module_and_nothing_else(built):
    files = set(zipfile.ZipFile(built[0]).namelist())
    wanted = {
        f.relative_to(ROOT / "src").as_posix() for f in (ROOT / "src" / "discreet").rglob("*.py")
    }
    data = {
        f.relative_to(ROOT / "src").as_posix()
        for f in (ROOT / "src" / "discreet").rglob("*")
        if f.is_file() and f.suffix in (".toml", ".typed", ".js", ".css", ".html", ".svg")
    }
    assert sorted((wanted | data) - files) == []
    strange = [
        f
        for f in files
        if not f.startswith(("discreet/", f"discreet-{discreet.__version__}.dist-info/"))
    ]
    assert strange == []
    assert [f for f in files if f.endswith((".pyc", ".nbi", ".nbc", ".parquet", ".npz"))] == []


def test_the_wheel_says_what_it_is(built):
    name = f"discreet-{discreet.__version__}.dist-info"
    archive = zipfile.ZipFile(built[0])
    text = archive.read(f"{name}/METADATA").decode()
    assert f"Version: {discreet.__version__}\n" in text
    assert "Requires-Python: >=3.11" in text
    assert "License-Expression: Apache-2.0" in text
    assert "# discreet" in text
    assert "discreet = discreet.cli:main" in archive.read(f"{name}/entry_points.txt").decode()


def test_the_sources_can_be_built_and_tested_from_their_archive(built):
    with tarfile.open(built[1]) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "Makefile",
        "constraints.txt",
        "README.md",
        "LICENSE",
        "docs/conf.py",
    } <= files
    for folder in (
        "src/discreet",
        "tests/privacy",
        "docs/notebooks",
        "examples/extending",
        "benchmarks",
    ):
        assert any(name.startswith(f"{folder}/") for name in files), folder
    assert [
        f
        for f in files
        if f.startswith((".venv", "site/", "build/", "dist/")) or f.endswith((".pyc", ".nbi"))
    ] == []


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request, built, tmp_path_factory):
    """Python of a fresh environment into which pip has installed what was built.

    Without the network: the dependencies are those of this environment.
    """
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    where = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    theirs = [path for path in sys.path if path.endswith("site-packages")]
    # addsitedir would also read the .pth of an editable discreet
    (where / "theirs.pth").write_text("\n".join(theirs) + "\n")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--quiet"]
    _run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        *options,
        built[request.param == "sdist"],
    )
    assert _run(python, "-c", "import discreet; print(discreet.__file__)").startswith(str(where))
    return python


def _run(*command, **options):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), env=clean, capture_output=True, text=True, timeout=600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_what_was_built_installs_and_runs_in_a_fresh_environment(installed, tmp_path):
    command = ["train", "cinema", "--scale", "0.05", "--model", "popularity", "--not-private"]
    assert "Saved to m" in _run(installed, "-m", "discreet", *command, "--out", "m", cwd=tmp_path)


#: What a user writes, with the type of every result; mypy --strict finds nothing untyped in it.
TYPED = """
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import discreet
from discreet import DPMF, BudgetStore, Ratings
from discreet.errors import BudgetExceeded


def train(file: Path, store: BudgetStore) -> DPMF:
    ratings: Ratings = Ratings.read(file, user="user", item="item", rating="rating")
    model = DPMF(epsilon=1.0, delta=1e-6, rating_range=(1, 5))
    try:
        model.fit(ratings, account=store["customers"])
    except BudgetExceeded as error:
        print(error)
    model.save("model")
    return model


def use(model: DPMF) -> list[str]:
    ids, scores = model.recommend(["a", "b"], 10)
    best: float = float(scores.max())
    text: str = str(model.privacy_)
    epsilon: float = model.privacy_.epsilon
    left: float = BudgetStore("budget.sqlite")["customers"].balance.epsilon_left
    address: str = model.push_to_hub("user/films")
    print(best, text, epsilon, left, address, discreet.__version__)
    factors: NDArray[np.floating] = model.item_factors_
    return [str(item) for item in ids[: len(factors)]]
"""


#: Bodies of the library's own functions are not checked again: make check does that.
MYPY = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent"]


def test_a_users_program_is_fully_typed(built, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(built[0]).extractall(site)
    (tmp_path / "program.py").write_text(TYPED, encoding="utf-8")
    done = subprocess.run(
        [*MYPY, "program.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(site), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    own = [line for line in done.stdout.splitlines() if line.startswith("program.py")]
    assert own == [], done.stdout
    assert (site / "discreet" / "py.typed").is_file()


def test_the_lock_has_hashes_and_the_versions_that_were_tested():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    locked = {}
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line[:1].isalnum():
            name, version = re.match(r"([^ =]+)==([^ ;]+)", line).groups()
            assert after.strip().startswith("--hash=sha256:"), line
            locked[_plain(name)] = version
    tested = dict(
        re.match(r"([^=]+)==(\S+)", line).groups()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    tested = {_plain(name): version for name, version in tested.items()}
    assert {name for name in locked if locked[name] != tested.get(name, locked[name])} == set()
    assert len(set(locked) & set(tested)) > 100


def _plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_dockerfile_passes_its_linter():
    """Its steps are run by packaging/check_dockerfile.py."""
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_systemd_unit_is_valid():
    unit = ROOT / "packaging" / "discreet.service"
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    problems = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert problems == []


def test_the_version_has_its_place_in_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(
        rf"^## \[{re.escape(discreet.__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE
    )
