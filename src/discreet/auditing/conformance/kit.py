"""The conformance kit: a function that checks every rule of a private model, and a test class."""

from __future__ import annotations

import functools
import json
import tempfile
import unittest
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from discreet.auditing.conformance import adversarial_ratings, guarantee_rules, release_rules
from discreet.auditing.conformance.recorded_fit import Run, clone, fit
from discreet.auditing.conformance.rules import (
    RULES,
    Broken,
    Check,
    ConformanceError,
    Report,
    Rule,
    Skipped,
    names,
)
from discreet.auditing.frozen import replace_attribute
from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded, ConfigError, PrivacyError
from discreet.models import MODELS
from discreet.models import algorithm as algorithm_module
from discreet.models.private import PrivateRecommender
from discreet.models.storage import read_folder, save_load
from discreet.models.storage.ledger_history import LEDGER
from discreet.privacy.release.unsafe import NoNoise

Twin = Callable[[Any, Ratings], Any]
_CROWDS = (40, 160, 640, 2560, 10240, 40960)  # numbers of users to try: a small ε needs more
_SEED = 58_204_713  # a number that a search in saved files finds

#: Importing these modules fills RULES, which are checked in this order of the modules.
_FILES_OF_RULES = (release_rules.__name__, guarantee_rules.__name__)
RULES.sort(key=lambda known: _FILES_OF_RULES.index(known.check.__module__))


def check_private_model(
    model: PrivateRecommender,
    *,
    ratings: Ratings | None = None,
    twin: Twin | None = None,
    people: int = 12,
    draws: int = 4000,
    tolerance: float = 1e-4,
    rules: Iterable[str] | None = None,
) -> Report:
    """Check the guarantees of a private model on small data, without changing the model.

    The kit fits it about forty times. Two fits on neighboring data share the same released values,
    so any other difference between them reveals the user in whom the data differ.

    Parameters
    ----------
    model : PrivateRecommender
        Tested with its own parameters, except `noise` and `random_state`, which the kit sets.
    ratings : Ratings, optional
        Default: as many generated users as the budget needs, and adversarial ones.
    twin : function (model, ratings) -> item factors, optional
        The non-private reference algorithm, for a model with these parameters.
    people : int
        Number of users to leave out (or replace) in turn.
    draws : int
        Draws of noise to test for each release and grade.
    tolerance : float
        For `twin`: largest difference, relative to the largest factor.
    rules : names of rules, optional
        Check only these; `discreet.testing.rule_names` lists them.

    Returns
    -------
    Report

    Raises
    ------
    ConformanceError
        An AssertionError that names every broken rule and the finding.
    """
    kit = Kit(model, ratings, twin, people, draws, tolerance)
    wanted = names() if rules is None else list(rules)
    if unknown := sorted(set(wanted) - set(names())):
        raise ConfigError(f"There is no rule {unknown[0]!r}. Choose from {', '.join(names())}.")
    report = Report(repr(model), tuple(kit.check(known) for known in RULES if known.name in wanted))
    if not report.passed:
        raise ConformanceError(report)
    return report


class PrivateModelConformance:
    """Every rule as a test, for pytest. Subclass it in a test file, and define the model::

        class TestMyModel(PrivateModelConformance):
            def make(self):
                return MyModel(factors=4, epsilon=1.0)

    `ratings`, `twin`, `people`, `draws` and `tolerance` may be set in the class; see
    `check_private_model`.
    """

    ratings: Ratings | None = None
    twin: Twin | None = None
    people: int = 12
    draws: int = 4000
    tolerance: float = 1e-4

    def make(self) -> PrivateRecommender:
        """Return the model to test."""
        raise NotImplementedError(f"{type(self).__name__} needs a model to test: def make(self).")

    def _kit(self) -> Kit:
        if "_made" not in vars(type(self)):
            twin = vars(type(self)).get("twin")  # the plain function, not a bound method
            twin = twin.__func__ if isinstance(twin, staticmethod) else twin
            made = Kit(self.make(), self.ratings, twin, self.people, self.draws, self.tolerance)
            type(self)._made = made  # type: ignore[attr-defined]
        return type(self)._made  # type: ignore[attr-defined,no-any-return]


def _as_test(known: Rule) -> Callable[[PrivateModelConformance], None]:
    def test(self: PrivateModelConformance) -> None:
        check = self._kit().check(known)
        if check.passed is None:
            raise unittest.SkipTest(check.detail)
        assert check.passed, str(check)

    test.__name__ = f"test_{known.name.replace(' ', '_').replace('-', '_')}"
    test.__doc__ = known.text
    return test


for _rule in RULES:
    setattr(PrivateModelConformance, _as_test(_rule).__name__, _as_test(_rule))


class Kit:
    """The fits that the rules examine, each made on first use."""

    seed = _SEED

    def __init__(
        self,
        model: PrivateRecommender,
        ratings: Ratings | None = None,
        twin: Twin | None = None,
        people: int = 12,
        draws: int = 4000,
        tolerance: float = 1e-4,
    ):
        if not isinstance(model, PrivateRecommender):
            raise ConfigError(
                f"{type(model).__name__} is no PrivateRecommender: there is no guarantee to check."
            )
        self.model = model
        self.twin = twin
        self.people = people
        self.draws = draws
        self.tolerance = tolerance
        self._given = ratings

    def check(self, known: Rule) -> Check:
        """Check one rule."""
        try:
            detail = known.check(self)
        except Skipped as reason:
            return Check(known.name, known.text, None, str(reason))
        except Broken as error:
            return Check(known.name, known.text, False, str(error))
        except FitFailed as failed:
            if known.name == ("plan" if isinstance(failed.cause, PrivacyError) else "fit"):
                return Check(known.name, known.text, False, str(failed))
            return Check(known.name, known.text, None, "not reached: the model could not be fitted")
        return Check(known.name, known.text, True, detail)

    # ------------------------------------------------------------ data

    @property
    def ratings(self) -> Ratings:
        return self._start[0]

    @property
    def some_people(self) -> Ratings:
        """Some of the users, for predictions."""
        return self.ratings.select_users(np.arange(min(50, self.ratings.n_users)), by="index")

    @property
    def base(self) -> Run:
        """The fit with secure noise and many draws, which fits on neighboring data replay."""
        return self._start[1]

    @cached_property
    def _start(self) -> tuple[Ratings, Run]:
        if self._given is not None:
            return self._given, self._first(self._given)
        crowd, found = self._large_enough()
        # Four times as many users, so that no fit gives up because of an unlikely draw; and no
        # ratings far outside a range that the model reads from the data.
        self._far = not self._reads_data(found)
        ratings = self._people(4 * crowd)
        return ratings, self._first(ratings)

    _far = True

    def _large_enough(self) -> tuple[int, Run]:
        """Find the smallest number of users with which three fits in a row succeed."""
        for crowd in _CROWDS:
            try:
                runs = [self._fit(self._people(crowd), "secure", luck=1) for _ in range(3)]
            except FitFailed as failed:
                if not isinstance(failed.cause, BudgetExceeded) or crowd == _CROWDS[-1]:
                    raise
            else:
                break
        return crowd, runs[0]

    def _people(
        self, crowd: int, seed: int = 0, n_items: int = adversarial_ratings.N_ITEMS
    ) -> Ratings:
        given = getattr(self.model, "rating_range", None)
        implicit = self.model.goal == "ranking" and given is None
        low, high = given or ((1.0, 1.0) if implicit else (1.0, 5.0))
        return adversarial_ratings.make_ratings(
            crowd, n_items=n_items, low=low, high=high, far=self._far, implicit=implicit, seed=seed
        )

    def _reads_data(self, run: Run) -> bool:
        """Return whether the model inferred more than the item list from the data."""
        return any(a.inferred and a.name != "items" for a in run.model.privacy_.assumptions)

    def _first(self, ratings: Ratings) -> Run:
        return self._fit(ratings, "secure", draws=self.draws)

    @cached_property
    def users(self) -> list[int]:
        """The users to leave out in turn."""
        if self._given is None:
            return adversarial_ratings.specials(self.ratings)[: self.people]
        chosen = adversarial_ratings.some_users(self.ratings, self.people)
        if not self._reads_data(self.base):
            return chosen
        ends = self.ratings.values.min(), self.ratings.values.max()
        rest = {user: adversarial_ratings.without(self.ratings, user).values for user in chosen}
        return [
            user
            for user in chosen
            if len(rest[user]) and (rest[user].min(), rest[user].max()) == ends
        ]

    @property
    def relation(self) -> Any:
        return self.model.neighboring

    # ------------------------------------------------------------ fits

    def _fit(
        self, ratings: Any, noise: Any, seed: int = _SEED, luck: int = 5, **options: Any
    ) -> Run:
        """Fit a new model; repeat with other noise if the fit gives up because of its noise."""
        model = clone(self.model, noise=noise, random_state=seed)
        try:
            return fit(model, ratings, **options)
        except BudgetExceeded as error:
            if luck > 1 and noise == "secure" and "replay" not in options:
                return self._fit(ratings, noise, seed, luck - 1, **options)
            raise FitFailed(error) from error
        except Exception as error:
            raise FitFailed(error) from error

    @cached_property
    def run_seeded(self) -> Run:
        return self._fit(self.ratings, "seeded", draws=self.draws)

    @cached_property
    def again(self) -> Run:
        return self._fit(self.ratings, "secure")

    @cached_property
    def neighbors(self) -> list[tuple[str, Run | Exception]]:
        return self._around(self.base, "secure", self.users)

    @cached_property
    def neighbor_runs(self) -> list[tuple[str, Run | Exception]]:
        return self._around(self.run_seeded, "seeded", self.users[:4])

    def _around(self, base: Run, noise: str, users: list[int]) -> list[tuple[str, Run | Exception]]:
        change = (
            adversarial_ratings.replace_user
            if self.relation == "replace-one"
            else adversarial_ratings.without
        )
        found: list[tuple[str, Run | Exception]] = []
        for user in users:
            count = int(np.diff(self.ratings.indptr)[user])
            what = "replaced" if change is adversarial_ratings.replace_user else "left out"
            label = f"with user {user} ({count} ratings) {what}"
            try:
                found.append(
                    (label, self._fit(change(self.ratings, user), noise, replay=base.watch))
                )
            except FitFailed as failed:
                found.append((label, failed))
        return found

    @cached_property
    def run_reordered(self) -> Run:
        return self._fit(
            adversarial_ratings.reorder_users(self.ratings), "secure", replay=self.base.watch
        )

    @cached_property
    def in_uneven_blocks(self) -> Run:
        return self._fit(
            adversarial_ratings.UnevenPeople(self.ratings), "secure", replay=self.base.watch
        )

    @property
    def run_with_repeats(self) -> Run:
        twice = adversarial_ratings.with_repeated_rows(
            self.ratings, int(np.argmax(np.diff(self.ratings.indptr)))
        )
        return fit(
            clone(self.model, noise="secure", random_state=_SEED), twice, replay=self.base.watch
        )

    @cached_property
    def other_people(self) -> Run | Exception:
        ids = self.ratings.item_ids
        strangers = self._people(2 * self.ratings.n_users, seed=1, n_items=len(ids))
        strangers = Ratings.from_indices(
            strangers.indptr,
            strangers.indices,
            strangers.values,
            strangers.user_ids,
            ids,
            catalog=self.ratings.catalog,
        )
        try:
            return self._fit(strangers, "secure")
        except FitFailed as failed:
            return failed

    @cached_property
    def seeds(self) -> tuple[Run, ...]:
        """Fits with seed 0, 0 again, 0 as a second fit, and 1."""
        wanted = (0, 1), (0, 1), (0, 2), (1, 1)
        return tuple(self._fit(self.ratings, "seeded", seed, times=times) for seed, times in wanted)

    @cached_property
    def without_noise(self) -> Any:
        try:
            return clone(self.model, noise=NoNoise(), random_state=_SEED).fit(self.ratings)
        except PrivacyError as error:
            raise FitFailed(error) from error

    # ------------------------------------------------------------ on disk

    def ledger_file(self, run: Run) -> dict[str, Any]:
        return json.loads(run.files[LEDGER])

    def load(self, run: Run) -> Any:
        """Load the saved model as `discreet.load` does, even if its class is not in discreet."""
        kind = type(run.model)
        algorithm = type(run.model.algorithm_)
        find = functools.partial(
            lambda own, name: kind if name == kind.__name__ else own(name), save_load.model_class
        )
        find_algorithm = functools.partial(
            lambda own, name: algorithm if name == algorithm.name else own(name),
            algorithm_module.algorithm_class,
        )
        with tempfile.TemporaryDirectory() as folder:
            for name, content in run.files.items():
                Path(folder, name).write_bytes(content)
            with (
                replace_attribute(read_folder, "MODELS", MODELS | {kind.__name__: ""}),
                replace_attribute(save_load, "model_class", find),
                replace_attribute(algorithm_module, "algorithm_class", find_algorithm),
            ):
                return save_load.load(folder)


class FitFailed(Exception):
    """A fit of the kit raised an exception."""

    def __init__(self, cause: Exception):
        self.cause = cause
        super().__init__(f"fit raised {type(cause).__name__}: {cause}")
