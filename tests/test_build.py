"""What is built is what people install: a wheel and an archive of the sources, whole, with
nothing else in them.
"""

from __future__ import annotations

import os
import re
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
        "mkdocs.yml",
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


def test_the_wheel_installs_and_runs_in_a_fresh_environment(built, tmp_path):
    """Without the network: the dependencies are those of this environment, and discreet is the
    wheel's.
    """
    home = tmp_path / "fresh"
    venv.create(home, with_pip=False)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    zipfile.ZipFile(built[0]).extractall(where)
    theirs = [path for path in sys.path if path.endswith("site-packages")]
    (Path(where) / "theirs.pth").write_text("\n".join(theirs) + "\n")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = (
        "import discreet, sys; from discreet.cli import main; print(discreet.__file__);"
        " main(sys.argv[1:])"
    )
    command = [
        "train",
        "cinema",
        "--scale",
        "0.05",
        "--model",
        "popularity",
        "--not-private",
        "--out",
        "m",
    ]
    done = subprocess.run(
        [python, "-c", code, *command],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(str(where))
    assert "Saved to m" in done.stdout


def test_the_version_has_its_place_in_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(
        rf"^## \[{re.escape(discreet.__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE
    )
