"""Sealed objects show public facts and nothing else, whatever is tried."""

import ast
import copy
import inspect
import json
import math
import operator
import pickle
import re
import shutil
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import discreet
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DiscreetError, PrivacyError
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.sealed import KEY, Key, Sealed
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import (
    ContributedCovariance,
    GlobalGram,
    ItemCounts,
    ItemSums,
)
from discreet.privacy.statistics.sums import Sum
from discreet.privacy.users.sealed_users import Users, seal
from discreet.privacy.users.steps import (
    Choose,
    ComputeResiduals,
    Recenter,
    Restrict,
    Solve,
    UserStep,
    WeighEntries,
)
from support.sealed_helpers import STATISTICS, block, make, quick

SECRET = 4.140625  # a rating that occurs nowhere else, exact in float32
ROOT = Path(discreet.__file__).parent


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


@pytest.fixture
def users():
    ratings = make([{0: SECRET, 2: SECRET}, {1: SECRET}, {}], 3, ["anna", "ben", "carla"])
    made = seal(ratings, Bounds(items=2, rating=9.0))
    made.apply(Choose())
    made.apply(Solve(np.ones((3, 2), np.float32), 1.0))
    return made


@pytest.fixture
def session(users):
    made = Session(Plan.calibrate([Release("counts", 2)], Budget(1.0)))
    made.release("counts", users.sum(ItemCounts()))
    return made


def sealed_objects(users):
    return [
        users,
        Sealed(np.array([SECRET]), "a rating"),
        *(ask(users, np.ones((3, 2))) for ask in STATISTICS.values()),
    ]


ATTEMPTS = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "dict": dict,
    "iter": iter,
    "next": next,
    "sorted": sorted,
    "sum": sum,
    "max": max,
    "enumerate": enumerate,
    "zip": lambda x: list(zip(x, x, strict=False)),
    "star": lambda x: [*x],
    "len": len,
    "bool": bool,
    "not": operator.not_,
    "float": float,
    "int": int,
    "complex": complex,
    "round": round,
    "index": operator.index,
    "range": range,
    "math": math.sqrt,
    "abs": abs,
    "negative": operator.neg,
    "item 0": lambda x: x[0],
    "slice": lambda x: x[:],
    "string key": lambda x: x["anna"],
    "in": lambda x: SECRET in x,
    "reversed": reversed,
    "less": lambda x: x < 1.0,
    "plus": lambda x: x + 1,
    "matrix product": lambda x: x @ np.eye(3),
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "asarray": np.asarray,
    "array": np.array,
    "float array": lambda x: np.asarray(x, np.float64),
    "array, no copy": lambda x: np.array(x, copy=None),
    "np.sum": np.sum,
    "np.mean": np.mean,
    "np.add": lambda x: np.add(x, 1),
    "np.dot": lambda x: np.dot(x, x),
    "np.sort": np.sort,
    "np.concatenate": lambda x: np.concatenate([x, x]),
    "np.isfinite": np.isfinite,
    "array + sealed": lambda x: np.ones(3) + x,
    "array == sealed": lambda x: np.ones(3) == x,
    "asarray of list": lambda x: np.asarray([x], float),
    "frombuffer": np.frombuffer,
    "dlpack": np.from_dlpack,
    "fromiter": lambda x: np.fromiter(x, float),
    "assign": lambda x: np.zeros(3).__setitem__(0, x),
    "sparse": sparse.csr_array,
    "pickle": pickle.dumps,
    "pickle 0": lambda x: pickle.dumps(x, 0),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deep in a list": lambda x: copy.deepcopy([x]),
    "json": json.dumps,
    "vars": vars,
    "format": lambda x: format(x, ".3f"),
    "call": lambda x: x(),
    "getstate": lambda x: x.__getstate__(),
    "reduce": lambda x: x.__reduce__(),
    "open without key": lambda x: (x.open if isinstance(x, Sealed) else x.compute)(None),
    "open with another object": lambda x: (x.open if isinstance(x, Sealed) else x.compute)(
        object()
    ),
    "open with a new key": lambda x: (x.open if isinstance(x, Sealed) else x.compute)(Key()),
    "open with a forged key": lambda x: (x.open if isinstance(x, Sealed) else x.compute)(
        object.__new__(Key)
    ),
    "delete": lambda x: delattr(x, "open"),
    "attribute": lambda x: setattr(x, "values", 1),
    "with": lambda x: x.__enter__(),
    "await": lambda x: x.__await__(),
}
#: Refused before the object is asked, or by a library that was refused and says so in its own way.
UNASKED = (TypeError, AttributeError, ValueError)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_nothing_turns_a_sealed_object_into_values(attempt, users):
    for thing in sealed_objects(users):
        with pytest.raises((PrivacyError, *UNASKED)) as caught:
            ATTEMPTS[attempt](thing)
        assert str(SECRET) not in str(caught.value)
        assert "anna" not in str(caught.value)


@pytest.mark.parametrize(
    "attempt",
    [
        "list",
        "tuple",
        "iter",
        "sorted",
        "sum",
        "star",
        "len",
        "bool",
        "not",
        "float",
        "int",
        "complex",
        "index",
        "item 0",
        "slice",
        "in",
        "asarray",
        "array",
        "float array",
        "np.sum",
        "np.mean",
        "np.add",
        "np.sort",
        "array + sealed",
        "array == sealed",
        "fromiter",
        "pickle",
        "pickle 0",
        "copy",
        "deepcopy",
        "deep in a list",
        "getstate",
        "reduce",
        "open without key",
        "open with another object",
        "open with a new key",
        "open with a forged key",
    ],
)
def test_iteration_copies_files_arrays_and_numbers_are_refused_by_name(attempt, users):
    for thing in sealed_objects(users):
        with pytest.raises(PrivacyError):
            ATTEMPTS[attempt](thing)


def test_text_shows_public_facts_only(users, session):
    for thing in [*sealed_objects(users), session]:
        for text in (repr(thing), str(thing), f"{thing}", f"{[thing]}", str({"x": thing})):
            assert not re.search(r"anna|ben|carla|4\.1", text)
    assert repr(users) == "<sealed ratings of 3 items>"
    assert repr(users.sum(ItemCounts())) == "<sealed statistic of shape (3,)>"
    # and it is the same text with other users, of another number
    assert repr(seal(make([{0: 1.0}], 3), Bounds(items=2))) == repr(users)


def test_size_and_public_facts_do_not_depend_on_the_data(users):
    others = seal(make([{0: 1.0}] * 500, 3), Bounds(items=2, rating=9.0))
    assert sys.getsizeof(others) == sys.getsizeof(users)
    assert (others.bounds, others.n_items, others.label) == (
        users.bounds,
        users.n_items,
        users.label,
    )
    assert dir(others) == dir(users)
    assert (users == others) is False  # by identity: comparing says nothing about the ratings


def walk(thing, seen, path):
    """Everything of ours that public attributes, containers and methods without arguments lead
    to.
    """
    if id(thing) in seen or isinstance(thing, (type, types.ModuleType)):
        return
    seen[id(thing)] = path, thing
    if isinstance(thing, dict):
        for key, value in thing.items():
            walk(key, seen, f"{path}{{}}")
            walk(value, seen, f"{path}[{key!r}]")
        return
    if isinstance(thing, (list, tuple, set, frozenset)):
        for value in thing:
            walk(value, seen, f"{path}[]")
    if isinstance(thing, (types.MethodType, types.FunctionType)):
        needed = [
            p
            for p in inspect.signature(thing).parameters.values()
            if p.default is p.empty
            and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if not needed and "refuse" not in path:
            try:
                walk(thing(), seen, f"{path}()")
            except DiscreetError as error:
                walk(error.args, seen, f"{path}() raised")
        return
    for name in dir(thing) if type(thing).__module__.startswith("discreet") else ():
        if not name.startswith("_"):
            walk(getattr(thing, name), seen, f"{path}.{name}")


def test_no_public_path_leads_to_an_array_or_to_ratings(users, session):
    seen = {}
    for name, thing in {"users": users, "session": session}.items():
        walk(thing, seen, name)
    for name, ask in STATISTICS.items():
        walk(ask(users, np.ones((3, 2))), seen, name)
    assert len(seen) > 100  # it went somewhere
    private = (np.ndarray, Ratings, sparse.sparray, memoryview)
    assert not [path for path, thing in seen.values() if isinstance(thing, private)]
    texts = "\n".join(f"{path} {thing!r}" for path, thing in seen.values())
    assert not re.search(r"anna|carla|4\.14", texts)


def test_bounds_cannot_be_changed_under_what_was_cut_to_others(users):
    for name in ("bounds", "n_items", "rank"):
        with pytest.raises(AttributeError):
            setattr(users, name, None)
    for name in ("shape", "reach", "compute"):
        with pytest.raises(AttributeError):
            setattr(users.sum(ItemCounts()), name, None)


def test_the_key_opens(users):
    assert block(users).values.tolist() == [SECRET] * 3
    assert users.sum(ItemCounts()).compute(KEY).sum() == pytest.approx(3, rel=1e-5)


# ---------------------------------------------------------------------- what goes wrong says
# nothing


MISTAKES = {
    "priority too short": Choose(np.ones(2)),
    "priority not a number": Choose(np.array([1.0, np.nan, 2.0])),
    "draw": Choose(draw=-1),
    "importance too short": WeighEntries(np.ones(2)),
    "importance negative": WeighEntries(np.array([1.0, -1e-9, 1.0])),
    "importance not finite": WeighEntries(np.array([1.0, np.inf, 1.0])),
    "center": Recenter(math.nan),
    "V too short": Solve(np.ones((2, 2)), 1.0),
    "V transposed": Solve(np.ones((2, 3)), 1.0),
    "V flat": Solve(np.ones(3), 1.0),
    "V not finite": Solve(np.full((3, 2), np.inf), 1.0),
    "bias too short": Solve(np.ones((3, 2)), 1.0, bias=np.ones(2)),
    "residuals, V too short": ComputeResiduals(np.ones((2, 2)), 1.0),
    "residuals, another rank": ComputeResiduals(np.ones((3, 5)), 1.0),
    "residuals, no bound": ComputeResiduals(np.ones((3, 2)), math.inf),
    "covariance, no bound": ContributedCovariance(0.0),
    "restrict, no such item": Restrict(np.array([0, 3])),
    "restrict, negative": Restrict(np.array([-1])),
    "restrict, twice": Restrict(np.array([1, 1])),
    "restrict, mask": Restrict(np.array([True, False, True])),
    "restricted, not chosen": ItemCounts(),
    "restricted, no vectors": GlobalGram(),
}


def make_mistake(name, users):
    users = users.copy_after(Restrict(np.array([0]))) if "restricted" in name else users
    mistake = MISTAKES[name]
    users.apply(mistake) if isinstance(mistake, UserStep) else users.sum(mistake)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found_before_they_meet_the_ratings(mistake, users):
    """The same message, whatever the ratings are: an index error from inside would tell which
    item somebody rated.
    """
    others = seal(make([{}], 3), Bounds(items=2, rating=9.0))
    others.apply(Choose())
    others.apply(Solve(np.ones((3, 2), np.float32), 1.0))
    said = []
    for made in (users, others):
        with pytest.raises(ConfigError) as caught:
            make_mistake(mistake, made)
        assert caught.value.__context__ is None
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_new_center_wants_a_new_choice_and_implicit_feedback_has_none(users):
    users.apply(Recenter(3.0))
    with pytest.raises(ConfigError, match="Choose"):
        users.sum(ItemSums())
    with pytest.raises(ConfigError, match="implicit"):
        seal(make([{0: 1.0}], 3), Bounds(items=2)).apply(Recenter(3.0))


def test_extreme_ratings_warn_about_nothing(caplog):
    """Under -W error a warning would be an exception, and whether it comes depends on
    somebody's ratings.
    """
    rows = [{0: 3.4e38, 1: -3.4e38, 2: math.nan}, {0: math.inf}, {0: 1e-45}, {}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bounds in (
            Bounds(items=2, rating=1.0, center="user"),
            Bounds(items=3, rating=1.0, center=-1e12),
        ):
            users = seal(make(rows, 3), bounds)
            users.apply(Choose())
            for V in (np.zeros((3, 2)), np.full((3, 2), 1e300), np.full((3, 2), 1e30, np.float32)):
                users.apply(Solve(V, 0.0))
                for ask in STATISTICS.values():
                    for grid in (None, 4.0**-15):
                        assert np.isfinite(ask(users, V).compute(KEY, grid=grid)).all()
    assert not caplog.records


# ---------------------------------------------------------------------- nobody else holds the key


def lint(folder):
    code = "from importlinter.cli import lint_imports_command as c; c()"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": "src", "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_import_linter_fails_when_a_model_imports_the_vault(tmp_path):
    shutil.copytree(ROOT, tmp_path / "src/discreet", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT.parents[1] / "pyproject.toml", tmp_path)
    clean = lint(tmp_path)
    assert clean.returncode == 0, clean.stdout
    (tmp_path / "src/discreet/models/peek.py").write_text(
        "from discreet.privacy.sealed import KEY\n"
    )
    caught = lint(tmp_path)
    assert caught.returncode != 0
    assert "discreet.models.peek" in caught.stdout
    assert "discreet.privacy.sealed" in caught.stdout


KEY_HOLDERS = ("privacy", "engines")
RESERVED = {"KEY", "vault", "_content", "_compute", "Block"}


def test_no_code_outside_privacy_and_engines_names_the_key():
    """The import contract sees modules; this sees ``from discreet.privacy.users.sealed_users
    import KEY`` as well.
    """
    looked_at = 0
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] in KEY_HOLDERS:
            continue
        looked_at += 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {
                getattr(node, "id", None),
                getattr(node, "attr", None),
                getattr(node, "asname", None),
            }
            if isinstance(node, ast.alias):
                names |= set(node.name.split("."))
            if isinstance(node, ast.ImportFrom):
                names |= set((node.module or "").split("."))
            assert not names & RESERVED, f"{path.name}:{node.lineno} uses {names & RESERVED}"
    assert looked_at > 30


def test_users_and_sums_are_sealed():
    assert issubclass(Users, Sealed)
    assert issubclass(Sum, Sealed)
    assert Sum.__slots__ == ("_public", "_statistic")
