"""The rules of the conformance kit that do not need a recommender, for private regression.

The rules are those of `discreet.auditing.conformance`, unchanged; `RowsKit` gives them fits of a
regression on neighboring data that share released values. Planted faults show that they see.
"""

import contextlib
import io
import logging
import math
import pickle
import sys
import warnings
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import pytest

import discreet
from discreet.auditing.conformance.recorded_fit import Run, flatten
from discreet.auditing.conformance.recorder import Recorder
from discreet.auditing.conformance.rules import RULES, Broken, names
from discreet.privacy.statistics.regression import RegressionSum
from discreet.regression import DPRegression

P, M = 3, 2
HONEST = 40  # users without canaries
DRAWS = 4000
#: Rules about releases, noise and price. The others are about lists, catalogs and saved folders,
#: which a regression does not have.
APPLICABLE = [
    "plan",
    "before data",
    "one access",
    "extra release",
    "shapes",
    "neighbors",
    "post-processing",
    "silence",
    "exact sums",
    "noise",
    "secure noise",
    "re-priced",
    "seed",
]
KINDS = {
    "usual": {},
    "many rows": {"max_rows": 3},
    "no intercept": {"fit_intercept": False},
    "replace-one": {"neighboring": "replace-one", "max_rows": 2},
    "rdp": {"accountant": "rdp", "delta": 1e-5},
}


def specials():
    """Rows of users who move sums as far as possible, or not at all."""
    far = np.full((1, P + M), 1e9)
    one = np.zeros((1, P + M))
    one[0, [0, P]] = 1e9
    sign = np.where(np.arange(P + M) < P, 1.0, -1.0)
    return [
        far,
        one,
        np.repeat(one, 7, axis=0),
        one * sign,
        np.full((2, P + M), math.nan),
        np.array([[math.inf] * P + [-math.inf] * M]),
        np.zeros((1, P + M)),
        np.full((1, P + M), 1e-300),
    ]


def make_users(seed=0, most=4):
    """Return a list with the rows of every user: the special ones, and honest ones."""
    rng = np.random.default_rng(seed)
    honest = [rng.uniform(-1, 1, (rng.integers(1, most + 1), P + M)) for _ in range(HONEST)]
    return specials() + honest


class RowsKit:
    """What the rules need: fits of one regression on neighboring data."""

    def __init__(self, kind=DPRegression, **given):
        self.kind = kind
        self.given = dict(epsilon=2.0, feature_norm=1.0, target_norm=1.5) | given
        self.users = make_users()
        self.ratings = SimpleNamespace(n_items=P, n_users=len(self.users))
        self.relation = self.given.get("neighboring", "add-remove")

    def fit(self, users, noise="secure", seed=7, order=None, times=1, **options):
        rows = np.vstack(users)
        whose = np.repeat(np.arange(len(users)), [len(one) for one in users])
        if order is not None:
            rows, whose = rows[order], whose[order]
        model = self.kind(
            **self.given, noise=noise, random_state=seed if noise == "seeded" else None
        )
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        logging.getLogger("discreet").addHandler(handler)
        try:
            with (
                Recorder(**options) as watch,
                contextlib.redirect_stdout(said),
                contextlib.redirect_stderr(said),
                warnings.catch_warnings(record=True) as caught,
            ):
                for _ in range(times):
                    model.fit(rows[:, :P], rows[:, P:], whose)
        finally:
            logging.getLogger("discreet").removeHandler(handler)
        told = [said.getvalue(), *(str(one.message) for one in caught), str(model.privacy_)]
        return Run(self.describe(model), watch, told, flatten(vars(model)), {})

    def describe(self, model):
        """Return a regression with the signatures of a recommender."""
        columns = SimpleNamespace(n_items=P + model.fit_intercept + M)
        prices = []
        for name, one in model.statistics(P).items():
            reach = one.reach(columns)
            factor = reach.replace_l2 if self.relation == "replace-one" else 1.0
            prices.append(
                {"name": name, "shape": one.shape(columns), "sensitivity": factor * reach.l2}
            )
        return SimpleNamespace(
            privacy_=model.privacy_,
            plan=lambda _: model.plan(P, M),
            price_list=lambda _: prices,
        )

    @cached_property
    def base(self):
        return self.fit(self.users, draws=DRAWS)

    @cached_property
    def run_seeded(self):
        return self.fit(self.users, "seeded", draws=DRAWS)

    @cached_property
    def again(self):
        return self.fit(self.users)

    def around(self, base, noise):
        """Leave special users and a few honest ones out in turn, or replace them."""
        found = []
        for at in range(len(specials()) + 3):
            other = list(self.users)
            if self.relation == "replace-one":
                other[at] = -np.nan_to_num(other[at], nan=1.0, posinf=1.0, neginf=-1.0)
            else:
                del other[at]
            found.append((f"with user {at} changed", self.fit(other, noise, replay=base.watch)))
        return found

    @cached_property
    def neighbors(self):
        return self.around(self.base, "secure")

    @cached_property
    def neighbor_runs(self):
        return self.around(self.run_seeded, "seeded")

    @cached_property
    def other_people(self):
        return self.fit(make_users(seed=1) + make_users(seed=2, most=9))

    @cached_property
    def run_reordered(self):
        order = np.random.default_rng(3).permutation(sum(map(len, self.users)))
        return self.fit(self.users, order=order, replay=self.base.watch)

    @cached_property
    def seeds(self):
        wanted = (0, 1), (0, 1), (0, 2), (1, 1)
        return tuple(self.fit(self.users, "seeded", seed, times=times) for seed, times in wanted)

    def ledger_file(self, run):
        return run.model.privacy_.ledger.to_dict()

    def check(self, name):
        """Return what a rule found wrong, or None."""
        known = next(one for one in RULES if one.name == name)
        try:
            known.check(self)
        except Broken as error:
            return str(error)
        return None


@pytest.fixture(scope="module")
def kits():
    return {name: RowsKit(**given) for name, given in KINDS.items()}


@pytest.mark.parametrize("rule", APPLICABLE)
@pytest.mark.parametrize("name", KINDS)
def test_regression_keeps_the_rule(kits, name, rule):
    assert kits[name].check(rule) is None


def test_a_pickle_holds_nothing_of_one_user():
    """There is no `save`: a pickle is how a regression is kept."""
    kit = RowsKit(max_rows=2)
    rows = np.vstack(kit.users)
    whose = np.repeat(np.arange(len(kit.users)), [len(one) for one in kit.users])
    model = DPRegression(**kit.given, noise="seeded", random_state=1)
    model.fit(rows[:, :P], rows[:, P:], whose)
    size = len(pickle.dumps(model))
    many = np.tile(rows, (20, 1))
    other = DPRegression(**kit.given, noise="seeded", random_state=1)
    other.fit(many[:, :P], many[:, P:], np.arange(len(many)))
    assert abs(len(pickle.dumps(other)) - size) < 64
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.coef_, model.coef_)
    assert again.privacy_ == model.privacy_


def test_statement_is_about_rows_of_users_and_promises_no_lists():
    found = RowsKit().fit(make_users()).model.privacy_
    assert "joint" not in str(found)
    assert "recommendations" not in str(found)
    assert "differential privacy for each user with ε = 2" in str(found)
    assert "features are cut to the norm 1, targets to 1.5" in str(found)


# ------------------------------------------------------------ planted faults


class CountsExactly(DPRegression):
    """Keeps the exact number of rows."""

    def fit(self, X, Y, users=None, *, account=None):
        super().fit(X, Y, users)
        self.exact_ = len(X)
        return self


class LooksTwice(DPRegression):
    """Computes a sum outside of a release, with the key of the session's own module."""

    def _learn(self, users, session, p):
        one = users.sum(next(iter(self.statistics(p).values())))
        one.compute(vars(sys.modules["discreet.privacy.release.session"])["KEY"])
        super()._learn(users, session, p)


class Talks(DPRegression):
    """Prints how many rows it read."""

    def _rows(self, X, Y, users):
        print(len(X))
        return super()._rows(X, Y, users)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [(CountsExactly, "post-processing"), (LooksTwice, "one access"), (Talks, "silence")],
)
def test_planted_faults_are_named(kind, rule):
    assert RowsKit(kind).check(rule) is not None


honest = RegressionSum._weigh


@pytest.mark.parametrize(
    "fault",
    [
        lambda self, block, rows, most: rows / 1e9 * most,  # all rows of a user count
        lambda self, block, rows, most: 2 * honest(self, block, rows, most),  # cut too late
    ],
)
def test_contributions_that_are_not_cut_are_named(monkeypatch, fault):
    monkeypatch.setattr(RegressionSum, "_weigh", fault)
    assert "its sensitivity is" in RowsKit(max_rows=2).check("neighbors")


def test_the_chosen_rules_exist():
    assert set(APPLICABLE) <= set(names())


def test_regression_is_a_public_name():
    assert discreet.DPRegression is DPRegression
    assert "DPRegression" in discreet.__all__
