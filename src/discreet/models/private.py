"""What the private recommenders share: `fit`, written once, around an algorithm that is a value.

A private `fit` resolves the algorithm, seals the ratings, makes a session from the plan, and from
then on holds nothing but released numbers. The plan follows from the parameters and the number of
items in the public catalog; no rating is needed to price it. The resolved algorithm is saved with
the model, so that loading derives nothing. A `fit` that is cut short (Ctrl-C, an error) leaves the
ledger of what it had released, and nothing learned.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import secrets
from collections.abc import Mapping
from contextlib import closing
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.data.safe_io import parse_json
from discreet.data.user_column import check_user_column
from discreet.errors import ConfigError
from discreet.models.algorithm import Algorithm, Learned, algorithm_from, field_names
from discreet.models.base import Recommender, logger
from discreet.models.fold_in import FoldIn, HistoryRows, ItemSimilarity
from discreet.models.histories import to_learn_from
from discreet.models.parameters import check_int, check_range, check_that
from discreet.models.storage.ledger_history import LEDGER, earlier_name
from discreet.privacy.accounting.budget import Budget, Neighboring
from discreet.privacy.release.budget_store import Account, charge_account
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.sealed_users import RatingsSource, Users, seal
from discreet.progress import Progress, ShowProgress, progress_bar

CLIPPED = " (others are clipped to it)"  # said of any data, so that it says nothing about them
COMMON_RANGE = (1.0, 5.0)  # stands in for a range that is read from the data, before there are any


class PrivateRecommender(Recommender):
    """Base of the models with a promise.

    Subclasses take ``epsilon``, ``delta``, ``neighboring``, ``accountant``, ``noise``,
    ``random_state``, ``rating_range`` and ``method`` among their parameters, and say which kinds of
    algorithm they are a shell of. A parameter that the algorithm has as well is None for the
    algorithm's own default. With a `random_state` of None, every fit has a fresh seed; seeded noise
    needs an explicit one, because a seed that everybody knows hides nothing.

    Attributes whose names end with an underscore are what a fit learned; the next fit begins
    without them. Those whose names begin with one are its notes; they are dropped as well if it is
    cut short.

    Attributes
    ----------
    algorithm_ : Algorithm
        As it was resolved for the last fit.
    details_ : dict
        What was learned beside item factors and biases: plain numbers, all of them released or made
        of released ones.
    counts_ : (n_items,) float64 or None
        About how many people rated each item, where the algorithm releases that.
    summary_ : str
        In one sentence what survived the noise, where the algorithm says it.
    privacy_ : PrivacyStatement
        Of the last fit, also if it was interrupted; then it is all there is.
    earlier_ledgers_ : tuple of Ledger
        Those of the fits before, which have been spent as well. They are saved with the model.
    account_head_ : Head
        Where the account's chain ended after the last fit, where an account was charged. It is
        saved with the model, and the next fit on that account is refused if the account has lost
        that record.
    """

    epsilon: float
    delta: float
    neighboring: Neighboring
    accountant: str
    allow_large_delta: bool = False
    noise: Any
    random_state: int | None
    rating_range: tuple[float, float] | None
    method: Algorithm | None

    #: The algorithm of this model, and others that `method` may be.
    _kinds: ClassVar[tuple[type[Algorithm], ...]] = ()

    algorithm_: Algorithm
    details_: Mapping[str, Any]
    counts_: NDArray[np.float64] | None
    privacy_: PrivacyStatement
    earlier_ledgers_: tuple[Ledger, ...] = ()

    # ------------------------------------------------------------ the algorithm

    @classmethod
    def kinds(cls, **settings: Any) -> tuple[type[Algorithm], ...]:
        """The kind of algorithm that a model with these settings is a shell of, and others that
        `method` may be.
        """
        return cls._kinds

    def algorithm(self) -> Algorithm:
        """What the parameters say, with the rest still open: `method`, or an algorithm with the
        knobs given.
        """
        kinds = self.kinds(**self.get_params())
        knobs = {
            name: value
            for name in self._knobs(kinds[0])
            if (value := getattr(self, name)) is not None
        }
        fixed = {"feedback": self.feedback} if "feedback" in field_names(kinds[0]) else {}
        if self.method is None:
            return kinds[0](**knobs, **fixed)
        if not isinstance(self.method, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            what = (
                self.method.__name__
                if isinstance(self.method, type)
                else type(self.method).__name__
            )
            raise ConfigError(
                f"method is a {what}, but {type(self).__name__} needs a value of {names}"
            )
        if knobs:
            name = next(iter(knobs))
            raise ConfigError(
                f"{name} is given beside method, which has a {name} of its own: leave one of"
                " them out"
            )
        self._check_method(self.method)
        return dataclasses.replace(self.method, **fixed)

    def _check_method(self, method: Algorithm) -> None:
        """What is the model's to say is not said otherwise by its method, where it would have
        no effect.
        """
        scale = getattr(method, "rating_range", None)
        same = scale is None or (
            self.rating_range is not None and tuple(scale) == tuple(self.rating_range)
        )
        check_that(
            same,
            f"method has rating_range={scale!r}, which is the model's to say: give"
            f" {type(self).__name__} that",
        )
        check_that(
            method.feedback in ("explicit", self.feedback),
            f"method has feedback={method.feedback!r}, and {type(self).__name__} has"
            f" {self.feedback!r}, which counts: give both the same",
        )

    @classmethod
    def configure(cls, **settings: Any) -> Self:
        """A model from its own parameters and, by name, any field of its algorithm."""
        own = cls.parameter_names()
        kind = cls.kinds(**settings)[0]
        inner = field_names(kind)
        for name in settings:
            if name not in own and name not in inner:
                near = difflib.get_close_matches(name, [*own, *inner], n=1, cutoff=0.8)
                has = (
                    f"did you mean {near[0]!r}?"
                    if near
                    else f"it has {', '.join(dict.fromkeys([*own, *inner]))}"
                )
                raise ConfigError(f"{cls.__name__} has no parameter {name!r}: {has}")
        more = {name: value for name, value in settings.items() if name not in own}
        if not more:
            return cls(**settings)
        knobs = cls._knobs(kind)
        more |= {
            name: value for name, value in settings.items() if name in knobs and value is not None
        }
        rest = {
            name: value for name, value in settings.items() if name in own and name not in knobs
        }
        return cls(**(rest | {"method": kind(**more)}))

    @classmethod
    def _knobs(cls, kind: type[Algorithm]) -> list[str]:
        """Parameters that the algorithm has as well, but for those that are the model's to say."""
        inner = field_names(kind)
        return [
            name
            for name in cls.parameter_names()
            if name in inner and name not in ("rating_range", "feedback")
        ]

    def resolve(self, n_items: int) -> Algorithm:
        """The algorithm with nothing left open, for a catalog of that many items. Pure: no data
        are needed.
        """
        return self.algorithm().resolve(self.budget, n_items, self._range())

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta, self.neighboring, self.allow_large_delta)

    def bounds(self, n_items: int = 1) -> Bounds:
        """What one user may contribute at most."""
        return self.resolve(n_items).bounds()

    def plan(self, n_items: int) -> Plan:
        """What `fit` will release on a catalog of that many items, and at which price."""
        self.check()
        return self.resolve(n_items).plan(n_items, self.budget, self.accountant)

    def price_list(self, n_items: int) -> list[dict[str, Any]]:
        """The plan as a table, with how far one user can move each release and how much noise that
        means.

        No data are needed: the statistics are built for nobody at all, and say the same as for
        everybody.
        """
        algorithm = self.resolve(n_items)
        plan = self.plan(n_items)
        nobody = Ratings.from_indices(
            [0], [], [], np.zeros(0, np.int64), np.arange(n_items), catalog=True
        )
        found = algorithm.statistics(seal(nobody, algorithm.bounds()))
        rows = []
        for row, event in zip(plan.rows(), plan.events, strict=True):
            statistic = found[row["name"]]
            norm = event.noise.norm
            sensitivity = statistic.sensitivity(plan.budget.neighboring, norm)
            rows.append(
                row
                | {
                    "shape": None if row["shape"] is None else tuple(statistic.shape),
                    "norm": norm,
                    "sensitivity": sensitivity,
                    "deviation": plan.deviation(row["name"], statistic),
                    "symmetric": statistic.weights(norm) is not None,
                }
            )
        return rows

    def _check(self) -> None:
        if self.rating_range is not None:
            check_range("rating_range", self.rating_range)
        if self.random_state is not None:
            check_int("random_state", self.random_state, 0)
        check_that(
            self.noise != "seeded" or self.random_state is not None,
            "noise='seeded' needs a seed: give one with random_state=, and keep it to yourself",
        )
        self.resolve(1 << 20)  # so many items that no number of factors is too large

    # ------------------------------------------------------------ learning

    def fit(
        self,
        ratings: Any,
        *,
        budget: Account | None = None,
        progress: ShowProgress = None,
        verbose: bool = False,
        trust_user_column: bool = False,
    ) -> Self:
        """Learn from scratch and return self.

        Parameters
        ---------- ratings : Ratings, a frame of pandas, polars or pyarrow, a scipy sparse matrix,
        or people of another engine
            (`discreet.engines`)
        budget : Account, optional
            The account of these people in a `discreet.BudgetStore`, from which the price is taken
            before anything is sealed.
        progress : function, bool or None
            By default a bar is shown where a person looks, on a terminal or in a notebook. True
            shows the steps in any case, False never; a function is called as ``progress(done,
            total, text)``.
        verbose : bool
            A line on stderr for every step instead.
        trust_user_column : bool
            Learn although the user column does not look like one, as in `Ratings.from_frame`.
        """
        self.check()
        if not isinstance(ratings, RatingsSource):
            ratings = to_learn_from(ratings, trust_user_column)
        if hasattr(ratings, "user_problem") and not trust_user_column:
            check_user_column(ratings, self.rating_range)
        self._check_engine(ratings)
        given = self._public_range(ratings)
        seen = None if given else self._observe_range(ratings)
        rating_range = given or seen or COMMON_RANGE
        if self.feedback == "explicit":
            check_range("rating_range", rating_range)
        algorithm = self.algorithm().resolve(self.budget, ratings.n_items, rating_range)
        features = self._features(ratings)
        seed = secrets.randbits(63) if self.random_state is None else self.random_state
        plan = algorithm.plan(ratings.n_items, self.budget, self.accountant)
        session = Session(plan, self.noise, seed if self.noise == "seeded" else None)
        head = getattr(self, "account_head_", None)
        with charge_account(budget, session, type(self).__name__, head) as held:
            # a fit that is refused before there is a session leaves the last one as it is
            self._begin(ratings)
            self._assume(session, ratings, algorithm, seen, features)
            try:
                users = seal(ratings, algorithm.bounds(), seed=seed)
                with (
                    closing(users),
                    progress_bar(
                        progress, f"Training {type(self).__name__}", verbose=verbose
                    ) as told,
                ):
                    learned = self._learn(algorithm, users, session, features, seed, told)
                session.finish()
                self._keep(algorithm, learned, session.ledger)
                scale = rating_range if algorithm.feedback == "explicit" else None
                self.restore_items(
                    ratings.item_ids, learned.factors, learned.biases, ratings.titles, scale
                )
            except BaseException:  # Ctrl-C as well: what was released stays released
                self._abandon(algorithm, session.ledger)
                raise
        if held is not None:
            self.account_head_ = held.head
        return self

    def _abandon(self, algorithm: Algorithm, ledger: Ledger) -> None:
        """All that is left of a fit that was cut short is what it released."""
        self._forget()
        for name in [name for name in vars(self) if name.startswith("_")]:
            delattr(self, name)
        self.privacy_ = algorithm.statement(ledger)

    def _learn(
        self,
        algorithm: Algorithm,
        users: Users,
        session: Session,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
    ) -> Learned:
        return algorithm.learn(users, session, features=features, seed=seed, progress=progress)

    def _keep(self, algorithm: Algorithm, learned: Learned, ledger: Ledger) -> None:
        self.algorithm_ = algorithm
        self.details_ = learned.details
        self.counts_ = learned.counts
        self._state(ledger)

    def _state(self, ledger: Ledger) -> None:
        """What may be promised, and what was learned, side by side."""
        learned = str(self.details_.get("learned", ""))
        self.privacy_ = dataclasses.replace(self.algorithm_.statement(ledger), learned=learned)

    def _begin(self, ratings: Any) -> None:
        self._forget()
        before = vars(self).pop("privacy_", None)
        if before is not None and before.ledger.entries:
            self.earlier_ledgers_ = (*self.earlier_ledgers_, before.ledger)

    def _forget(self) -> None:
        """Drop what was learned, but for what was spent on it."""
        for name in set(vars(self)) - {"privacy_", "earlier_ledgers_"}:
            if name.endswith("_"):
                delattr(self, name)

    def _assume(
        self,
        session: Session,
        ratings: Any,
        algorithm: Algorithm,
        seen: tuple[float, float] | None,
        features: NDArray[Any] | None,
    ) -> None:
        """Write down what is taken to be public."""
        if getattr(ratings, "catalog", False):
            session.record_assumption("items", f"the catalog of {ratings.n_items:,} items")
        else:
            session.record_assumption(
                "items",
                f"the list of {ratings.n_items:,} items, found in the ratings",
                inferred=True,
            )
        if getattr(ratings, "filtered", ""):
            session.record_assumption("filter", ratings.filtered, inferred=True)
        session.record_assumption("parameters", "every parameter of the model")
        if engine := getattr(ratings, "engine", ""):
            session.record_assumption("engine", engine)
        if algorithm.feedback == "explicit":
            given = self._public_range(ratings)
            low, high = given or seen or COMMON_RANGE
            clipped = CLIPPED if given else ""
            session.record_assumption(
                "ratings",
                f"the range of ratings, {low:g} to {high:g}{clipped}",
                inferred=given is None,
            )
        for name, text in algorithm.assumptions().items():
            session.record_assumption(name, text)
        if features is not None:
            session.record_assumption(
                "features", f"the features of the items, {features.shape[1]:,} for each"
            )

    def _features(self, ratings: Any) -> NDArray[Any] | None:
        """Public features of the items, for models that have any."""
        return None

    def _check_engine(self, ratings: Any) -> None:
        """An engine says whether its machines agree before anything is charged, and adds up
        whole numbers only.
        """
        check_that(
            self.noise == "secure" or not getattr(ratings, "exact_only", False),
            "this engine adds up whole numbers, and seeded noise is for floating-point ones: train"
            " with noise='secure', or on Ratings in memory",
        )
        check_that(
            not (self.algorithm().secret_coins and getattr(ratings, "replays", False)),
            f"{type(self).__name__} draws people by secret coins, and an engine that reads them"
            " again for every sum would throw others: train it on Ratings in memory",
        )
        if hasattr(ratings, "ready"):
            ratings.ready()

    def _public_range(self, ratings: Any) -> tuple[float, float] | None:
        """The range of ratings where it is public: as the model has it, or the people's engine."""
        return self.rating_range or getattr(ratings, "public_range", None)

    def _range(self) -> tuple[float, float]:
        """The range of ratings: as given, as it was found in the last fit, or a common one."""
        return self.rating_range or getattr(self, "rating_range_", None) or COMMON_RANGE

    def _observe_range(self, ratings: Any) -> tuple[float, float] | None:
        """The range as it is in the data, where it was not given; the statement then says so."""
        if self.rating_range is not None or self.feedback != "explicit":
            return None
        found: tuple[float, float] | None = ratings.rating_range()
        return found

    # ------------------------------------------------------------ reading out

    def fold(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.algorithm_.fold(HistoryRows(indptr, indices, values), self._learned())

    def score_vectors(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        return self.algorithm_.score_vectors(HistoryRows(indptr, indices, values), self._learned())

    def fold_in_rule(self) -> FoldIn:
        return self.algorithm_.fold_in_rule(self._learned()) or super().fold_in_rule()

    def item_similarity(self) -> ItemSimilarity:
        return self.algorithm_.item_similarity(self._learned())

    @property
    def history_range(self) -> tuple[float, float] | None:
        """The range of ratings where it is public; where it was read from the data, histories
        are clipped to it.
        """
        public = any(a.name == "ratings" and not a.inferred for a in self.privacy_.assumptions)
        used = self.rating_range_ or getattr(self.algorithm_, "rating_range", None)
        return (float(used[0]), float(used[1])) if public and used is not None else None

    @property
    def summary_(self) -> str:
        """In one sentence what survived the noise; empty where the algorithm does not say."""
        self._check_fitted()
        return str(self.details_.get("learned", ""))

    def _check_comparable(self) -> None:
        if (
            self.item_factors_.shape[1] <= self.algorithm_.item_similarity(self._learned()).first
            and self.summary_
        ):
            raise ConfigError(
                f"there is nothing to compare items by. What was learned: {self.summary_}"
            )
        super()._check_comparable()
        if self.details_.get("dimensions") == 0:
            logger.warning(
                "what is shown as alike may be noise. What was learned: %s", self.summary_
            )

    def _learned(self) -> Learned:
        return Learned(self.item_factors_, self.item_biases_, self.counts_, self.details_)

    # ------------------------------------------------------------ on disk

    def params_to_save(self) -> dict[str, Any]:
        """Without the seed: whoever knows the seed of seeded noise can subtract it."""
        given = self.get_params()
        return given | {
            "random_state": None,
            "noise": given["noise"] if isinstance(given["noise"], str) else "seeded",
            "method": None if self.method is None else self.method.to_dict(),
        }

    @classmethod
    def from_saved(cls, parameters: dict[str, Any]) -> Self:
        method = parameters.get("method")
        scale = parameters.get("rating_range")
        return cls(
            **parameters
            | {
                "method": None if method is None else algorithm_from(method),
                "rating_range": None if scale is None else tuple(scale),
            }
        )

    def state(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm_.to_dict(),
            "details": dict(self.details_),
            "counts": None if self.counts_ is None else self.counts_.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.algorithm_ = algorithm_from(state["algorithm"])
        self.details_ = dict(state["details"])
        counts = state["counts"]
        self.counts_ = None if counts is None else np.asarray(counts, np.float64)
        check_that(
            self.counts_ is None or self.counts_.shape == (len(self.item_ids_),),
            "released counts and item ids differ in number",
        )
        check_that(
            self.counts_ is None or bool(np.isfinite(self.counts_).all()),
            "released counts are not finite",
        )

    def check_restored(self) -> None:
        """The algorithm must be one that could have been resolved, and what the parameters
        promise what was paid.
        """
        n_items = len(self.item_ids_)
        budget = self.budget
        plan = self.privacy_.ledger.plan
        kinds = self.kinds(**self.get_params())
        check_that(
            isinstance(self.algorithm_, kinds),
            f"its algorithm, {self.algorithm_.name!r}, is another model's",
        )
        self.algorithm_.resolve(budget, n_items, self.rating_range_ or COMMON_RANGE)
        promised = budget
        if plan.scale == 1:  # the noise was said, and not the ε: what that costs is the promise
            promised = self.algorithm_.plan(n_items, budget, plan.accountant).budget
        same = (promised.delta, promised.neighboring) == (
            plan.budget.delta,
            plan.budget.neighboring,
        )
        # the best of several: all of them together cost more than one
        if any(line.law for line in plan.releases):
            same = (
                promised.neighboring == plan.budget.neighboring
                and promised.epsilon <= plan.budget.epsilon
            )
        else:
            same = same and math.isclose(promised.epsilon, plan.budget.epsilon, rel_tol=1e-9)
        same = same and (self.noise != "secure" or self.privacy_.ledger.noise == "secure")
        check_that(
            same,
            f"its parameters promise something else than its {LEDGER} says: one of them was"
            " changed",
        )
        self._try_out()

    def extra_files(self) -> dict[str, str]:
        earlier = [ledger.to_text() for ledger in self.earlier_ledgers_]
        return {LEDGER: self.privacy_.ledger.to_text()} | {
            earlier_name(text.encode()): text for text in earlier
        }

    def restore_files(self, files: dict[str, bytes]) -> None:
        self._state(Ledger.from_dict(parse_json(files[LEDGER])))

    def card(self) -> str:
        from discreet.models.storage.model_card import private

        return private(self, self.privacy_)
