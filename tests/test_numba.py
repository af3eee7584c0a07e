"""Compiled code in hostile surroundings: nothing can be written, by somebody who is nobody."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import pytest

import discreet
from discreet import _numba
from discreet.data.download import cache_folder
from discreet.errors import DataError

NOBODY = 65_534
PACKAGE = Path(discreet.__file__).parent
SAID = "compiled code is cached in"

as_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0,
    reason="only root can become a user who may write nothing",
)


@pytest.fixture(scope="module")
def interpreter():
    """A Python that this user may run, and where the libraries are; root's own may lie in
    root's home.
    """
    libraries = str(Path(numba.__file__).parents[1])
    usual = shutil.which(f"python{sys.version_info[0]}.{sys.version_info[1]}", path=os.defpath)
    for found in filter(None, (sys.executable, usual)):
        with contextlib.suppress(OSError):
            command = [found, "-c", "import numba"]
            subprocess.run(
                command, env={"PYTHONPATH": libraries}, user=NOBODY, check=True, capture_output=True
            )
            return found, libraries
    return pytest.skip("no Python of this version can be run by anybody but root")


@pytest.fixture(scope="module")
def container(interpreter):
    """A copy of the package that is read-only and a home that cannot be written, for a user who
    owns nothing.

    What this machine has compiled before is put into the folder for temporary files, to save the
    time.
    """
    with tempfile.TemporaryDirectory() as made:  # pytest's own folders are for root alone
        yield locked(Path(made)), *interpreter


def locked(place: Path) -> Path:
    """Put everything in its place, and lock it."""
    shutil.copytree(
        PACKAGE, place / "site" / "discreet", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("home", "tmp", "work"):
        (place / name).mkdir()
    compiled = place / "tmp" / f"discreet-compiled-{NOBODY}"
    for room in {file.parent for file in PACKAGE.rglob("*.nbi")}:
        source = place / "site" / "discreet" / room.parent.relative_to(PACKAGE) / "any.py"
        kept = compiled / numba.core.caching.UserProvidedCacheLocator.get_suitable_cache_subpath(
            str(source)
        )
        kept.mkdir(parents=True, exist_ok=True)
        for file in [*room.glob("*.nbi"), *room.glob("*.nbc")]:
            shutil.copy(file, kept)
    compiled.mkdir(mode=0o700, exist_ok=True)
    compiled.chmod(0o700)
    for file in (compiled, *compiled.rglob("*"), place / "work"):
        os.chown(file, NOBODY, NOBODY)
    for folder in (place / "site", place / "home"):
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
    (place / "tmp").chmod(0o1777)
    place.chmod(0o755)
    return place


def inside(
    container: tuple[Path, str, str], *args: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments as that user."""
    place, python, libraries = container
    plain = {
        "PATH": os.defpath,
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "PYTHONPATH": f"{place / 'site'}{os.pathsep}{libraries}",
    }
    return subprocess.run(
        [python, *map(str, args)],
        env={name: value for name, value in (plain | environment).items() if value},
        cwd=place / "work",
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=300,
    )


@as_root
def test_this_user_really_cannot_write(container):
    script = (
        "import os, sys; print([os.access(path, os.W_OK) for path in sys.argv[1:]], os.getuid())"
    )
    place = container[0]
    done = inside(container, "-c", script, place / "site" / "discreet", place / "home", place)
    assert done.stdout.split("]") == ["[False, False, False", f" {NOBODY}\n"], done.stderr


@as_root
def test_doctor_is_content_and_says_once_where_compiled_code_is_kept(container):
    done = inside(container, "-m", "discreet", "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["problems"] == []
    assert found["folders"]["compiled"].startswith(str(container[0] / "tmp"))
    assert [note for note in found["notes"] if "DISCREET_CACHE" in note]
    assert done.stderr.count(SAID) == 1


@as_root
def test_a_model_is_trained_and_used(container):
    script = """if True:
        import numpy as np
        from discreet import DPMF, Ratings, load
        rng = np.random.default_rng(0)
        users, items = rng.integers(0, 300, 3000), rng.integers(0, 20, 3000)
        ratings = Ratings.from_arrays(users, items, item_ids=range(20))
        DPMF(2, epsilon=5).fit(ratings).save("model")
        print(len(load("model").recommend([3, 4])[0]))
    """
    done = inside(container, "-c", script)
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr
    assert done.stderr.count(SAID) == 1
    assert (
        inside(container, "-m", "discreet", "recommend", "model", "--history", "3,4").returncode
        == 0
    )


@as_root
@pytest.mark.parametrize("safe", [True, False], ids=["", "others may have changed it"])
def test_code_in_a_folder_that_cannot_be_written_is_used(container, safe):
    place = container[0]
    kept = place / f"kept-{safe}"
    tiny = place / f"tiny_{safe}.py"
    tiny.write_text(
        "from discreet._numba import njit, on_compile\n"
        "@njit(cache=True)\n"
        "def double(x):\n"
        "    return 2 * x\n"
        "with on_compile(lambda n, name: print('compiles', name)):\n"
        "    print(double(3))\n"
    )
    environment = {"PYTHONPATH": container[2], "NUMBA_CACHE_DIR": str(kept), "PATH": os.defpath}
    environment["PYTHONPATH"] = f"{place / 'site'}{os.pathsep}{environment['PYTHONPATH']}"
    made = subprocess.run(
        [container[1], tiny], env=environment, capture_output=True, text=True, timeout=300
    )
    assert made.stdout == "compiles double\n6\n", made.stderr
    for file in kept.rglob("*.nb?"):
        file.chmod(0o644 if safe else 0o666)
    done = inside(container, tiny, NUMBA_CACHE_DIR=str(kept))
    assert done.stdout == ("6\n" if safe else "compiles double\n6\n"), done.stderr
    assert done.stderr.count(SAID) == (0 if safe else 1)


def test_where_there_is_no_home_the_cache_folder_is_asked_for(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "DISCREET_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        Path, "home", classmethod(lambda cls: Path("~nobody-of-that-name").expanduser())
    )
    with pytest.raises(
        DataError, match="there is no home folder to store data sets in: set DISCREET_CACHE"
    ):
        cache_folder()


@as_root
def test_where_nothing_at_all_can_be_written_everything_is_compiled_anew(container):
    script = """if True:
        import tempfile
        tempfile.tempdir = "/nowhere"
        from discreet import _numba
        _numba.Path = lambda place: type("Missing", (), {"is_dir": lambda self: False})()
        import numpy as np
        from discreet.kernels.cholesky import solve_one
        from discreet.kernels import dot_products  # a second module: nothing is said twice
        print(solve_one(np.eye(2), np.ones(2)), solve_one.stats.cache_path)
    """
    done = inside(container, "-c", script)
    assert (done.returncode, done.stdout) == (0, "True None\n"), done.stderr
    assert (
        done.stderr.count("compiled code cannot be cached anywhere, so every start compiles again")
        == 1
    )


def test_the_folder_is_nobody_elses(tmp_path, monkeypatch):
    """What numba keeps there is code that it will run: a folder that others can write, or made,
    is not taken.
    """
    monkeypatch.setattr(_numba, "_usual", lambda: tmp_path)
    name = f"discreet-compiled-{os.getuid()}"
    assert next(_numba._private_folders()) == tmp_path / name
    (tmp_path / name).chmod(0o770)
    other = next(_numba._private_folders())
    assert other != tmp_path / name
    assert other.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(tmp_path / name)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    assert next(_numba._private_folders()).resolve() != tmp_path / "elsewhere"


def test_other_errors_of_the_compiler_are_not_hidden(monkeypatch):
    def fails(function):
        raise RuntimeError("something else")

    monkeypatch.setattr(numba, "njit", lambda **options: fails)
    monkeypatch.setattr(_numba, "_use_temporary_folder", lambda: None)
    with pytest.raises(RuntimeError, match="something else"):
        _numba.njit(cache=True)(len)
