import ast
import copy
import pickle
import subprocess
import sys
import textwrap
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import discreet.privacy
from discreet.errors import ConfigError, PrivacyError
from discreet.kernels.validation import same_length
from discreet.privacy.sealed import KEY, Key, Sealed, guard, require
from discreet.privacy.statistics.base import SensitivityBounds, Statistic
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import (
    ContributedCovariance,
    GlobalGram,
    ItemCounts,
    ItemGrams,
    ItemSums,
    ItemTotals,
    RatingCount,
    RatingSum,
)
from discreet.privacy.statistics.covariance import PairCounts, ResidualCovariance
from discreet.privacy.statistics.gradients import (
    BiasGradient,
    ClippedGradient,
    Size,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.poisson_batches import PoissonSample, draw_batch
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import (
    Choose,
    ComputeResiduals,
    FrankWolfeStep,
    GradientStep,
    Recenter,
    Restrict,
    Reweigh,
    Solve,
    StartFrom,
    SubtractBaseline,
    UserStep,
    WeighEntries,
)


def test_only_the_key_opens():
    box = Sealed([1, 2, 3], "three numbers")
    assert box.open(KEY) == [1, 2, 3]
    for other in (None, object(), "KEY", 0):
        with pytest.raises(PrivacyError):
            box.open(other)
        with pytest.raises(PrivacyError):
            require(other)


def test_the_key_cannot_be_made_copied_or_stored():
    for attempt in (
        Key,
        lambda: copy.copy(KEY),
        lambda: copy.deepcopy(KEY),
        lambda: pickle.dumps(KEY),
    ):
        with pytest.raises(PrivacyError):
            attempt()


@pytest.mark.parametrize(
    "attempt",
    [
        np.asarray,
        np.array,
        list,
        tuple,
        len,
        float,
        int,
        complex,
        bool,
        iter,
        sorted,
        sum,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda b: b[0],
        lambda b: 1 in b,
        lambda b: np.add(b, 1),
        lambda b: [*b],
        lambda b: range(b),
    ],
)
def test_a_box_refuses_to_become_anything(attempt):
    with pytest.raises(PrivacyError):
        attempt(Sealed(np.array([12345.678]), "one number"))


def test_a_box_shows_its_label_only():
    box = Sealed(np.full(1000, 12345.678), "ratings of 10 items")
    assert repr(box) == str(box) == f"{box}" == "<sealed ratings of 10 items>"
    assert not hasattr(box, "__dict__")
    assert sys.getsizeof(box) == sys.getsizeof(Sealed(None, ""))
    with pytest.raises(AttributeError):
        box.content  # noqa: B018


# ------------------------------------------------------------ errors

N = 6040  # users, which no error may tell
OPENING = {"_after", "after", "adder", "open", "_content", "_each", "_adder", "run", "partial"}


#: Run on a twin that has nobody in it, so that there is nothing to hide.
OF_NOBODY = {"record_step", "reads_of"}
#: What `Users` asks of the place where its people are, from verbs that are guarded.
BEHIND_USERS = {"after", "adder"}


def opens_private_data(function):
    called = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in OPENING for func in called)


def public_functions(tree):
    """Functions of a module and methods of its classes, whose name begins with no underscore,
    and constructors.
    """
    scopes = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for node in (
        node for scope in scopes for node in scope.body if isinstance(node, ast.FunctionDef)
    ):
        if not node.name.startswith("_") or node.name == "__init__":
            yield node


def test_every_public_function_that_opens_private_data_is_guarded():
    """So that the next one is guarded as well."""
    seen = set()
    for file in Path(discreet.privacy.__path__[0]).rglob("*.py"):
        if file.name in ("sealed.py", "public_users.py"):  # its users are public
            continue
        for function in public_functions(ast.parse(file.read_text(encoding="utf-8"))):
            if opens_private_data(function) and function.name not in OF_NOBODY | BEHIND_USERS:
                seen.add(function.name)
                decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
                assert any("guard(" in text for text in decorators), f"{file.stem}.{function.name}"
    assert {"apply", "copy_after", "sum", "draw_batch"} <= seen


class Full(UserStep, Statistic):
    """A step, and a sum, for which there is no memory."""

    what = "all that there is"

    def check(self, public):
        return public

    def shape(self, public):
        return (2,)

    def reach(self, public):
        return SensitivityBounds(1.0, 1.0, 1.0, 1.0)

    def run(self, block, public):
        raise MemoryError(f"an array of shape ({N},)")

    partial = run


@pytest.mark.parametrize("grid", [None, 2.0**-20])
def test_whatever_users_do_or_add_up_to_fails_in_silence(grid):
    """Also the steps and statistics that nobody has written yet."""
    users = sealed_users()
    asked = users.sum(Full())
    for attempt in (
        lambda: users.apply(Full()),
        lambda: users.copy_after(Full()),
        lambda: asked.compute(KEY, grid=grid),
    ):
        with pytest.raises(PrivacyError, match=r"could not be computed \(\w+\)$") as caught:
            attempt()
        assert str(N) not in "".join(traceback.format_exception(caught.value)).replace(__file__, "")


def computations(users, V):
    """Everything that is computed on users, as functions of nothing."""
    left, ones = users.copy_after(SubtractBaseline()), np.ones(users.n_items)
    users.apply(WeighEntries(ones))
    users.apply(ComputeResiduals(V, 1.0))
    batch = draw_batch(users, 1.0)
    batch.apply(Solve(V, 1.0))
    steps = (
        Recenter(0.5),
        Choose(),
        Solve(V, 1.0),
        Solve(V, 1.0, center=0.0),
        StartFrom(V),
        ComputeResiduals(V, 1.0),
        GradientStep(0.1, np.eye(V.shape[1]), 0.1),
        WeighEntries(ones),
        Reweigh(V, 1.0),
        Restrict(np.array([0, 1])),
        SubtractBaseline(),
        PoissonSample(0.5),
    )
    sums = (
        ItemCounts(),
        ItemGrams(),
        ItemSums(),
        ItemTotals(),
        GlobalGram(),
        RatingSum(),
        RatingCount(),
        UserCount(),
        ContributedCovariance(1.0),
        Size(1.0),
        WeightedResidualGradient(),
        BiasGradient(),
        WeightCounts(),
    )
    found = {f"apply {step}": partial(users.apply, step) for step in steps}
    found |= {f"copy after {step}": partial(users.copy_after, step) for step in steps}
    found |= {f"sum {one}": partial(users.sum, one) for one in sums}
    return found | {
        "draw_batch": lambda: draw_batch(users, 0.5),
        "clipped gradient": lambda: batch.sum(ClippedGradient(V, 1.0)),
        "residual step": lambda: left.apply(FrankWolfeStep(ones, 1.0, 1.0, 0.5, 1.0)),
        "residual covariance": lambda: left.sum(ResidualCovariance(1.0)),
        "pair counts": lambda: left.sum(PairCounts()),
    }


def sealed_users():
    from support.sealed_helpers import make

    users = seal(make([{0: 1.0, 2: 3.0}, {1: 2.0}, {}], 4), Bounds(items=2, rating=1.0))
    users.apply(Choose())
    users.apply(Solve(np.eye(4, 2), 1.0))
    return users


def test_no_computation_of_users_tells_why_it_failed(monkeypatch):
    ask = computations(sealed_users(), np.eye(4, 2))
    for name in ask:  # they do run
        computations(sealed_users(), np.eye(4, 2))[name]()
    shape = f"Unable to allocate 2.95 MiB for an array with shape ({N}, 128)"

    def full(*_):
        raise MemoryError(shape)

    monkeypatch.setattr(Sealed, "open", full)
    for name, compute in ask.items():
        with pytest.raises(PrivacyError, match=r"could not be computed \(MemoryError\)$") as caught:
            compute()
        error = caught.value
        assert error.__cause__ is None, name
        assert error.__context__ is None, name
        assert str(N) not in "".join(traceback.format_exception(error)).replace(__file__, ""), name


def test_what_is_said_on_purpose_is_said():
    users = sealed_users()
    with pytest.raises(ConfigError, match="positions from 0 to 3"):
        users.copy_after(Restrict(np.array([7])))
    with pytest.raises(
        PrivacyError, match=r"^a thing could not be computed \(ZeroDivisionError\)$"
    ):
        guard("a thing")(lambda: 1 / 0)()
    with pytest.raises(
        PrivacyError, match=r"^a thing could not be computed \(ConfigError\)$"
    ) as caught:
        # of a kernel, about private arrays
        guard("a thing")(lambda: same_length("rows and ratings", N, N + 1))()
    assert caught.value.__context__ is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard("a thing")(lambda: np.log(np.zeros(2)))()


LIMITED = """
import resource, sys, traceback
import numpy as np
from discreet.data.ratings import Ratings
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose, ComputeResiduals, Solve, StartFrom

def sealed(n):
    indptr, items = np.arange(n + 1), np.zeros(n, np.int32)
    ratings = Ratings.from_indices(indptr, items, np.ones(n), np.arange(n), np.arange(4))
    users = seal(ratings, Bounds(items=2, rating=1.0))
    users.apply(Choose())
    return users

def ask(users, V):
    users.apply(Solve(V, 1.0))
    return [
        lambda: users.apply(Solve(V, 1.0)),
        lambda: users.apply(Solve(V, 1.0, center=0.0)),
        lambda: users.apply(ComputeResiduals(V, 1.0)),
        lambda: users.apply(StartFrom(V)),
    ]

V = np.ones((4, 40), np.float32)
for compute in ask(sealed(10), V):  # compiles
    compute()
computing = ask(sealed(987_654), V)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 1_000_000, -1))
for compute in computing:
    try: compute()
    except Exception: traceback.print_exc()
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="needs /proc to know how much memory is used"
)
def test_under_a_memory_limit_nothing_tells_how_many_users_there_are():
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said = [line for line in run.stderr.splitlines() if "Error: " in line]
    what = ("vectors", "vectors", "residuals", "vectors")
    assert said == [
        f"discreet.errors.PrivacyError: the users' {x} could not be computed (MemoryError)"
        for x in what
    ]
    assert run.stderr.count("Traceback") == len(what)
