"""Base of the private recommenders: `fit`, written once, around an algorithm that is a value.

A private `fit` resolves the algorithm, seals the ratings, makes a session from the plan, and from
then on holds nothing but released numbers. The plan follows from the parameters and the number of
items in the public catalog; no rating is needed to price it. The resolved algorithm is saved with
the model, so that loading derives nothing. A `fit` that is interrupted (Ctrl-C, an error) leaves
the ledger of what it had released, and nothing learned.
"""

from __future__ import annotations

import dataclasses
import math
import re
import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.data.safe_io import parse_json
from discreet.data.user_column import check_user_column
from discreet.errors import ConfigError
from discreet.models.algorithm import Algorithm, Learned, algorithm_from, field_names
from discreet.models.base import Recommender, logger
from discreet.models.estimator import no_parameter
from discreet.models.fold_in import FoldIn, HistoryRows, ItemSimilarity
from discreet.models.parameters import check_int, check_range, check_that
from discreet.models.public_part import PublicPart, check_confirmed_by
from discreet.models.storage.ledger_history import LEDGER, earlier_name
from discreet.models.user_rows import to_learn_from
from discreet.privacy.accounting.budget import DEFAULT_DELTA, Budget, Neighboring
from discreet.privacy.release.budget_store import Account, charge_account
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import PUBLIC_USERS, UNCONFIRMED, PrivacyStatement
from discreet.privacy.users.public_users import RemoveUsers
from discreet.privacy.users.sealed_users import RatingsSource, Users, seal
from discreet.progress import ShowProgress, progress_bar

# stated for any data, so it reveals nothing about them
CLIPPED = " (ratings outside of it are clipped)"
PRIOR = "the sums that the earlier trainings listed with this model released, whose cost adds up"
COMMON_RANGE = (1.0, 5.0)  # placeholder for a range that is read from the data, before access


#: Documentation of the parameters that all private models have; see `PrivateRecommender`.
SHARED_PARAMETERS = """
    epsilon : float
        The privacy budget: how much may be learned about any one user. Smaller is more private.
        There is no default.
    delta : float
        Probability that this bound fails. See docs/privacy.md.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says
        so.
    neighboring : {"add-remove", "replace-one"}
        What is hidden: whether a user is in the data at all, or which user it is.
    accountant : {"gdp", "rdp", "pld"}
        How the privacy cost is computed.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
        Seeded noise is for research: it can be subtracted by anyone who knows the seed, so it needs
        a `random_state`.
    random_state : int, optional
        Seed of the initial factors. Default: a fresh one for every fit.
    algorithm : Algorithm, optional
        The algorithm with all its hyperparameters, in place of the parameters above that it has as
        well.
"""


class PrivateRecommender(Recommender):
    """Base of the differentially private models.

    A subclass adds its own parameters and names its algorithms. A parameter that the algorithm
    has as well is None for the algorithm's own default.

    Learned attributes end with an underscore; the next fit begins without them. Notes of a fit
    begin with one, and are dropped as well if it is interrupted.

    Parameters
    ----------
    epsilon, delta, rating_range, neighboring, accountant, allow_large_delta, noise, random_state,
    algorithm
        See `SHARED_PARAMETERS`, which is appended to the documentation of each subclass.

    Attributes
    ----------
    algorithm_ : Algorithm
        As it was resolved for the last fit.
    details_ : dict
        Other learned values: plain numbers, all of them released or made of released ones.
    counts_ : (n_items,) float64 or None
        Noisy number of users per item, where the algorithm releases that.
    summary_ : str
        What was learned, in one sentence, where the algorithm reports it.
    privacy_ : PrivacyStatement
        Of the last fit, also if it was interrupted; then it is all there is.
    released_ : ReleasedRows or None
        The released sums of this training and its priors, for `fit(prior=...)`.
    earlier_ledgers_ : tuple of Ledger
        Ledgers of earlier fits, whose cost adds up. They are saved with the model.
    account_head_ : Head
        End of the account's hash chain after the last fit, where an account was charged. It is
        saved with the model, and the next fit on that account is refused if the account has lost
        that record.
    """

    epsilon: float
    delta: float = DEFAULT_DELTA
    rating_range: tuple[float, float] | None = None
    neighboring: Neighboring = "add-remove"
    accountant: str = "gdp"
    allow_large_delta: bool = False
    noise: Any = "secure"
    random_state: int | None = None
    algorithm: Any = None

    #: The algorithm of this model, and others that `algorithm` may be.
    _kinds: ClassVar[tuple[type[Algorithm], ...]] = ()

    algorithm_: Algorithm = field(init=False)
    details_: Mapping[str, Any] = field(init=False)
    counts_: NDArray[np.float64] | None = field(init=False)
    privacy_: PrivacyStatement = field(init=False)
    earlier_ledgers_: tuple[Ledger, ...] = field(default=(), init=False)
    released_: Any = field(default=None, init=False)

    def __init_subclass__(cls, **options: Any) -> None:
        own = set(vars(cls).get("__annotations__", ()))
        super().__init_subclass__(**options)
        if "Parameters\n" in (cls.__doc__ or ""):
            shared = re.split(r"(?m)^(?=    \w)", SHARED_PARAMETERS.strip("\n"))
            added = "".join(part for part in shared if part.split(" : ")[0].strip() not in own)
            cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n{added}"

    # ------------------------------------------------------------ the algorithm

    @classmethod
    def kinds(cls, **settings: Any) -> tuple[type[Algorithm], ...]:
        """Return the class of algorithm for these settings, and others that `algorithm` may be."""
        return cls._kinds

    def make_algorithm(self) -> Algorithm:
        """Return `algorithm`, or one made of the parameters; fields not given are still open."""
        kinds = self.kinds(**self.get_params())
        own = {name: v for name in self._shared(kinds[0]) if (v := getattr(self, name)) is not None}
        fixed = {"goal": self.goal} if "goal" in field_names(kinds[0]) else {}
        given = self.algorithm
        if given is None:
            return kinds[0](**own, **fixed)
        if not isinstance(given, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            what = given.__name__ if isinstance(given, type) else type(given).__name__
            raise ConfigError(
                f"algorithm is a {what}, but {type(self).__name__} needs a value of {names}"
            )
        if own:
            raise ConfigError(f"Pass either {next(iter(own))} or algorithm, not both.")
        self._check_algorithm(given)
        return dataclasses.replace(given, **fixed)

    def _check_algorithm(self, algorithm: Algorithm) -> None:
        """Refuse an algorithm that contradicts the model's own parameters."""
        scale = getattr(algorithm, "rating_range", None)
        same = self.rating_range is not None and scale == tuple(self.rating_range)
        name = type(self).__name__
        check_that(
            scale is None or same,
            f"algorithm has rating_range={scale!r}. Pass rating_range to {name} instead.",
        )
        check_that(
            algorithm.goal in ("rating", self.goal),
            f"algorithm has goal={algorithm.goal!r}, but {name} has goal={self.goal!r}. Give both"
            " the same.",
        )

    @classmethod
    def configure(cls, **settings: Any) -> Self:
        """Return a model from its own parameters and, by name, any field of its algorithm."""
        own = cls.parameter_names()
        kind = cls.kinds(**settings)[0]
        known = list(dict.fromkeys([*own, *field_names(kind)]))
        for name in settings:
            if name not in known:
                raise ConfigError(no_parameter(cls.__name__, name, known))
        inner = {name: value for name, value in settings.items() if name not in own}
        if not inner:
            return cls(**settings)
        shared = cls._shared(kind)
        inner |= {name: v for name, v in settings.items() if name in shared and v is not None}
        rest = {name: v for name, v in settings.items() if name in own and name not in shared}
        return cls(**(rest | {"algorithm": kind(**inner)}))

    @classmethod
    def _shared(cls, kind: type[Algorithm]) -> list[str]:
        """Return the parameters that the algorithm has as well and may set."""
        fixed = ("rating_range", "goal")
        return [n for n in cls.parameter_names() if n in field_names(kind) and n not in fixed]

    def resolve(self, n_items: int) -> Algorithm:
        """Return the algorithm with no field left open, for a catalog of that many items.

        Pure: no data are needed.
        """
        scale = self.rating_range or getattr(self, "rating_range_", None) or COMMON_RANGE
        return self.make_algorithm().resolve(self.budget, n_items, scale)

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta, self.neighboring, self.allow_large_delta)

    def plan(self, n_items: int) -> Plan:
        """Return what `fit` will release on a catalog of that many items, and at which cost."""
        self._check_parameters()
        return self.resolve(n_items).plan(n_items, self.budget, self.accountant)

    def price_list(self, n_items: int) -> list[dict[str, Any]]:
        """Return the plan as a table, with the sensitivity and noise of each release.

        No data are needed: statistics of no users have the same shapes and sensitivities.
        """
        self._check_parameters()
        algorithm = self.resolve(n_items)
        plan = algorithm.plan(n_items, self.budget, self.accountant)
        no_users = Ratings.from_indices(
            [0], [], [], np.zeros(0, np.int64), np.arange(n_items), catalog=True
        )
        found = algorithm.statistics(seal(no_users, algorithm.bounds()))
        rows = []
        for row in plan.rows():
            statistic = found[row["name"]]
            norm = plan.release(row["name"]).event(plan.scale).noise.norm
            rows.append(
                row
                | {
                    "shape": None if row["shape"] is None else tuple(statistic.shape),
                    "norm": norm,
                    "sensitivity": statistic.sensitivity(plan.budget.neighboring, norm),
                    "deviation": plan.deviation(row["name"], statistic),
                    "symmetric": statistic.weights(norm) is not None,
                }
            )
        return rows

    def check(self) -> None:
        self._check_parameters()
        self.resolve(1 << 20)  # so many items that no number of factors is too large

    def _check_parameters(self) -> None:
        if self.rating_range is not None:
            check_range("rating_range", self.rating_range)
        if self.random_state is not None:
            check_int("random_state", self.random_state, 0)
        check_that(
            self.noise != "seeded" or self.random_state is not None,
            "noise='seeded' needs a seed. Pass random_state, and keep it secret.",
        )

    # ------------------------------------------------------------ learning

    def fit(
        self,
        ratings: Any,
        *,
        items: Any = None,
        account: Account | None = None,
        prior: Recommender | None = None,
        public_ratings: Any = None,
        public_confirmed_by: str = "",
        progress: ShowProgress = None,
        verbose: bool = False,
        trust_user_column: bool = False,
    ) -> Self:
        """Learn from the ratings, and from what `prior` released, and return self.

        Parameters
        ----------
        ratings : Ratings, frame, sparse matrix, BlockRatings or SparkRatings
            Frames are of pandas, polars or pyarrow.
        items : optional
            Public item catalog: a file, a frame, a list of ids or a mapping ``{id: title}``. For
            block files and Spark it is given where they are made.
        account : Account, optional
            The privacy account of these users in a `discreet.BudgetStore`, which is charged before
            anything is released.
        prior : model, optional
            An earlier DPMF for ranking on the same population. The sums that it released are
            combined with the new ones, which costs nothing: both trainings were charged. The
            catalog and the rating range must be public.
        public_ratings : Ratings, frame or file, optional
            For DPMF: ratings of users who agreed that theirs are public, or another public data set
            over the same items. They improve every estimate at no privacy cost. Ratings of the same
            user ids in `ratings` are left out there, so give users of another data set other ids.
        public_confirmed_by : str, optional
            Who confirmed that `public_ratings` are public, for the statement.
        progress : function, bool or None
            By default a bar is shown on a terminal or in a notebook. True always shows the steps,
            False never; a function is called as ``progress(done, total, text)``.
        verbose : bool
            A line on stderr for every step instead.
        trust_user_column : bool
            Train although the user column seems not to hold users, as in `Ratings.from_frame`.
        """
        self._check_parameters()
        confirmed_by = check_confirmed_by(public_confirmed_by, public_ratings)
        if account is None and hasattr(self, "privacy_"):
            logger.warning(
                "this model was trained before: if users are in both trainings, the cost of both"
                " adds up. An account of a BudgetStore keeps the total."
            )
        algorithm = self.make_algorithm()
        if not isinstance(ratings, RatingsSource):
            ratings = to_learn_from(ratings, trust_user_column, items)
        elif items is not None:
            raise ConfigError(
                f"items is for ratings in memory: pass it to {type(ratings).__name__} instead"
            )
        if hasattr(ratings, "user_problem") and not trust_user_column:
            check_user_column(ratings, self.rating_range)
        self._check_engine(ratings, algorithm)
        given = self._public_range(ratings)
        seen = None if given else self._observe_range(ratings, algorithm)
        rating_range = given or seen or COMMON_RANGE
        if self.goal == "rating":
            check_range("rating_range", rating_range)
        features = self._features(ratings)
        algorithm = self._suit_features(algorithm, features)
        algorithm = algorithm.resolve(self.budget, ratings.n_items, rating_range)
        rows = None if prior is None else self._prior_rows(prior, ratings, algorithm)
        public = None
        if public_ratings is not None:
            check_that(prior is None, "Pass either prior or public_ratings, not both.")
            public = self._public_part(public_ratings, ratings, algorithm)
        seed = secrets.randbits(63) if self.random_state is None else self.random_state
        plan = algorithm.plan(ratings.n_items, self.budget, self.accountant)
        session = Session(plan, self.noise, seed if self.noise == "seeded" else None)
        head = getattr(self, "account_head_", None)
        with charge_account(account, session, type(self).__name__, head) as held:
            # a fit that is refused before there is a session leaves the last one as it is
            earlier = () if prior is None or prior is self else _ledgers_of(prior)
            self._begin(ratings)
            if earlier:
                self.earlier_ledgers_ = (*self.earlier_ledgers_, *earlier)
            self._assume(session, ratings, algorithm, seen, features)
            if prior is not None:
                session.record_assumption("prior", PRIOR)
            if public is not None:
                name = PUBLIC_USERS if confirmed_by else UNCONFIRMED
                session.record_assumption(name, public.describe(confirmed_by))
            try:
                users = seal(ratings, algorithm.bounds(), seed=seed)
                if public is not None:
                    users.apply(RemoveUsers.from_ids(public.user_ids, seed))
                text = f"Training {type(self).__name__}"
                with closing(users), progress_bar(progress, text, verbose=verbose) as report:
                    options: dict[str, Any] = {"features": features, "seed": seed}
                    options["progress"] = report
                    options |= {} if rows is None else {"prior": rows}
                    options |= {} if public is None else {"public": public.users}
                    learned = self._learn(algorithm, users, session, **options)
                session.finish()
                self._keep(algorithm, learned, session.ledger)
                scale = rating_range if algorithm.goal == "rating" else None
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
        """Keep only the ledger of an interrupted fit."""
        self._forget()
        for name in [name for name in vars(self) if name.startswith("_")]:
            delattr(self, name)
        self.privacy_ = algorithm.statement(ledger)

    def _learn(self, algorithm: Algorithm, users: Users, session: Session, **given: Any) -> Learned:
        """Run the algorithm: the step that planted faults of the conformance tests replace."""
        return algorithm.learn(users, session, **given)

    def _keep(self, algorithm: Algorithm, learned: Learned, ledger: Ledger) -> None:
        self.algorithm_ = algorithm
        self.details_ = learned.details
        self.counts_ = learned.counts
        self.released_ = learned.released
        self._state(ledger)

    def _state(self, ledger: Ledger) -> None:
        """Set the privacy statement and the summary."""
        learned = str(self.details_.get("learned", ""))
        self.privacy_ = dataclasses.replace(self.algorithm_.statement(ledger), learned=learned)

    def _begin(self, ratings: Any) -> None:
        self._forget()
        before = vars(self).pop("privacy_", None)
        if before is not None and before.ledger.entries:
            self.earlier_ledgers_ = (*self.earlier_ledgers_, before.ledger)

    def _forget(self) -> None:
        """Drop what was learned, but not what was spent on it."""
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
        """Record what is taken to be public."""
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
        if algorithm.goal == "rating":
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
            text = f"the features of the items, {features.shape[1]:,} for each"
            session.record_assumption("features", text + self._describe_sources())

    def _describe_sources(self) -> str:
        """Return a clause that names what else than features of the items is public."""
        return ""

    def _features(self, ratings: Any) -> NDArray[Any] | None:
        """Return public features of the items, for models that have any."""
        return None

    def _prior_rows(self, prior: Any, ratings: Any, algorithm: Algorithm) -> Any:
        """Return the released sums of an earlier model, over the items of these ratings."""
        raise ConfigError("prior is for DPMF with goal='ranking'. Leave it out.")

    def _suit_features(self, algorithm: Algorithm, features: Any) -> Algorithm:
        """Return the algorithm for these public features of the items."""
        return algorithm

    def _public_part(self, given: Any, ratings: Any, algorithm: Algorithm) -> PublicPart:
        """Return users whose ratings are public, for models that use any."""
        raise ConfigError("public_ratings is for DPMF. Leave it out.")

    def _check_engine(self, ratings: Any, algorithm: Algorithm) -> None:
        """Refuse an engine that cannot run this training, before anything is charged."""
        check_that(
            self.noise == "secure" or not getattr(ratings, "exact_only", False),
            "This engine sums integers only, and seeded noise is for floating-point sums. Train"
            " with noise='secure', or on in-memory Ratings.",
        )
        check_that(
            not (algorithm.secret_sampling and getattr(ratings, "replays", False)),
            f"{type(self).__name__} relies on secret Poisson sampling, which this engine cannot"
            " replay. Train it on in-memory Ratings.",
        )
        if hasattr(ratings, "ready"):
            ratings.ready()

    def _public_range(self, ratings: Any) -> tuple[float, float] | None:
        """Return the range of ratings if it is public: of the model, or of the engine."""
        return self.rating_range or getattr(ratings, "public_range", None)

    def _observe_range(self, ratings: Any, algorithm: Algorithm) -> tuple[float, float] | None:
        """Return the range found in the data, where none was given; the statement reports it."""
        if self.rating_range is not None or self.goal != "rating":
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
        """Public range of ratings, or None; a range read from the data clips histories instead."""
        public = any(a.name == "ratings" and not a.inferred for a in self.privacy_.assumptions)
        used = self.rating_range_ or getattr(self.algorithm_, "rating_range", None)
        return (float(used[0]), float(used[1])) if public and used is not None else None

    @property
    def summary_(self) -> str:
        """One sentence on what was learned; empty where the algorithm does not report it."""
        self._check_fitted()
        return str(self.details_.get("learned", ""))

    def _check_comparable(self) -> None:
        if (
            self.item_factors_.shape[1] <= self.algorithm_.item_similarity(self._learned()).first
            and self.summary_
        ):
            raise ConfigError(f"there is nothing to compare items by. {self.summary_}")
        super()._check_comparable()
        if self.details_.get("dimensions") == 0:
            logger.warning("similar items may be noise. What was learned: %s", self.summary_)

    def _learned(self) -> Learned:
        return Learned(self.item_factors_, self.item_biases_, self.counts_, self.details_)

    # ------------------------------------------------------------ on disk

    def params_to_save(self) -> dict[str, Any]:
        """Return the parameters without the seed, with which seeded noise could be subtracted."""
        given = self.get_params()
        return given | {
            "random_state": None,
            "noise": given["noise"] if isinstance(given["noise"], str) else "seeded",
            "algorithm": None if self.algorithm is None else self.algorithm.to_dict(),
        }

    @classmethod
    def from_saved(cls, parameters: dict[str, Any]) -> Self:
        algorithm = parameters.get("algorithm")
        scale = parameters.get("rating_range")
        return cls(
            **parameters
            | {
                "algorithm": None if algorithm is None else algorithm_from(algorithm),
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
        """Check that the algorithm is this model's, and that parameters and ledger agree."""
        n_items = len(self.item_ids_)
        budget = self.budget
        plan = self.privacy_.ledger.plan
        kinds = self.kinds(**self.get_params())
        check_that(
            isinstance(self.algorithm_, kinds),
            f"its algorithm, {self.algorithm_.name!r}, belongs to another model",
        )
        self.algorithm_.resolve(budget, n_items, self.rating_range_ or COMMON_RANGE)
        promised = budget
        if plan.scale == 1:  # the noise was given, not ε: the guarantee is what it costs
            promised = self.algorithm_.plan(n_items, budget, plan.accountant).budget
        same = (promised.delta, promised.neighboring) == (
            plan.budget.delta,
            plan.budget.neighboring,
        )
        # best of several runs: together they cost more than one
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
            f"its parameters state another guarantee than its {LEDGER}: one of them was changed",
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

    def extra_arrays(self) -> dict[str, NDArray[Any]]:
        return {} if self.released_ is None else self.released_.to_arrays()


def _ledgers_of(model: Any) -> tuple[Ledger, ...]:
    """Return the ledgers of a model and of those before it."""
    return (*model.earlier_ledgers_, model.privacy_.ledger)
