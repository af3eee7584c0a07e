"""What the private recommenders share: a budget, a plan, one session per fit, and a ledger saved with the model.

A private `fit` seals the ratings, makes a session from the plan, and from then on holds nothing but released numbers.
The plan follows from the parameters and the number of items in the public catalogue; no rating is needed to price it.
A `fit` that does not come to its end (Ctrl-C, an error) leaves the ledger of what it had released, and nothing learnt.
"""

from __future__ import annotations

import functools
import json
import secrets
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.models.base import Recommender
from discreet.models.checks import require, require_range, require_whole
from discreet.models.earlier import LEDGER, earlier_name
from discreet.privacy.bounds import Bounds
from discreet.privacy.budget import Budget, Neighbouring
from discreet.privacy.ledger import Ledger
from discreet.privacy.plan import Plan
from discreet.privacy.sealed import Users, seal
from discreet.privacy.session import Session, Statistic
from discreet.privacy.statement import PrivacyStatement


def kept_counts(state: dict[str, Any], n_items: int) -> NDArray[np.float64] | None:
    """Released counts out of a saved state; models saved before version 0.1 was finished have none."""
    if state.get("counts") is None:
        return None
    counts = np.asarray(state["counts"], np.float64)
    if counts.shape != (n_items,):
        raise ValueError("released counts and item ids differ in number")
    return counts


class PrivateRecommender(Recommender):
    """Base of the models with a promise.

    Subclasses take ``epsilon``, ``delta``, ``neighbouring``, ``accountant``, ``noise`` and ``random_state`` among their
    parameters, and say `bounds` (what one user may contribute), `plan` (what will be released) and `statistics` (of
    what). A `random_state` of None, which a loaded model has, stands for another seed in every fit; seeded noise needs
    one that is given, because a seed that everybody knows hides nothing.

    Attributes whose names end with an underscore are what a fit learnt: the next one begins without them. Those that
    begin with one are its notes: they are dropped as well if it does not come to its end.

    Attributes
    ----------
    privacy_ : PrivacyStatement
        Of the last fit, also if it was interrupted; then it is all there is.
    earlier_ledgers_ : tuple of Ledger
        Those of the fits before, which have been spent as well. They are saved with the model.
    """

    epsilon: float
    delta: float
    allow_large_delta: bool = False
    neighbouring: Neighbouring
    accountant: str
    noise: Any
    random_state: int | None
    feedback: str
    rating_range: tuple[float, float] | None

    privacy_: PrivacyStatement
    earlier_ledgers_: tuple[Ledger, ...] = ()
    _learns_from_nobody = True  # an error would tell that there is nobody
    _seen_range: tuple[float, float] | None = None
    _session: Session | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "fit" in vars(cls):
            cls.fit = _accounted(cls.fit)  # type: ignore[method-assign]

    @abstractmethod
    def bounds(self) -> Bounds:
        """What one user may contribute at most."""

    @abstractmethod
    def plan(self, n_items: int) -> Plan:
        """What `fit` will release on a catalogue of that many items, and at which price."""

    @abstractmethod
    def statistics(self, users: Users) -> dict[str, Statistic]:
        """The statistics behind the plan's releases, by name, for any sealed users: so they are priced without data."""

    def price_list(self, n_items: int) -> list[dict[str, Any]]:
        """The plan as a table, with how far one user can move each release and how much noise that means.

        No data are needed: the statistics are built for nobody at all, and say the same as for everybody.
        """
        plan = self.plan(n_items)
        nobody = Ratings.from_indices([0], [], [], np.zeros(0, np.int64), np.arange(n_items), catalogue=True)
        found = self.statistics(seal(nobody, self.bounds()))
        rows = []
        for row, event in zip(plan.rows(), plan.events, strict=True):
            statistic, norm = found[row["name"]], event.noise.norm
            sensitivity = statistic.sensitivity(plan.budget.neighbouring, norm)
            rows.append(
                row
                | {
                    "shape": tuple(statistic.shape),
                    "norm": norm,
                    "sensitivity": sensitivity,
                    "deviation": sensitivity * row["noise_multiplier"],
                    "symmetric": statistic.weights(norm) is not None,
                }
            )
        return rows

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta, self.neighbouring, self.allow_large_delta)

    def _begin(self, ratings: Ratings) -> None:
        self.check()
        super()._begin(ratings)
        self._forget()
        before = vars(self).pop("privacy_", None)
        if before is not None and before.ledger.entries:
            self.earlier_ledgers_ = (*self.earlier_ledgers_, before.ledger)

    def _forget(self) -> None:
        """Drop what was learnt, but for what was spent on it."""
        for name in set(vars(self)) - {"privacy_", "earlier_ledgers_"}:
            if name.endswith("_"):
                delattr(self, name)

    def _abandon(self) -> None:
        """What is left of a fit that did not come to its end: the ledger, if it had one already."""
        session = self._session
        if session is not None:
            self._forget()
            for name in [name for name in vars(self) if name.startswith("_")]:
                delattr(self, name)
            self.privacy_ = self._statement(session.ledger)

    def _statement(self, ledger: Ledger) -> PrivacyStatement:
        """What may be said of what the ledger lists."""
        return PrivacyStatement.of(ledger)

    # ------------------------------------------------------------ parameters

    def _check(self) -> None:
        """What all of them have; with what was seen of the ratings, if their range was not given."""
        if self.rating_range is not None or self._seen_range is not None:
            require_range("rating_range", self._seen_range if self.rating_range is None else self.rating_range)
        if self.random_state is not None:
            require_whole("random_state", self.random_state, 0)

    def check(self) -> None:
        super().check()
        require(
            self.noise != "seeded" or self.random_state is not None,
            "noise='seeded' needs a seed: give one with random_state=, and keep it to yourself",
        )

    def _check_items(self, n_items: int) -> None:
        """Raise a `ConfigError` for parameters with which no fit can be made on so many items."""

    # ------------------------------------------------------------ the range of ratings

    @property
    def _explicit(self) -> bool:
        return self.feedback == "explicit"

    def _range(self) -> tuple[float, float]:
        """The public range of ratings; as it was seen where it was not given, which the statement then says."""
        return self.rating_range or self._seen_range or (1.0, 5.0)

    def _infer_range(self, ratings: Ratings) -> None:
        self._seen_range = None
        if self._explicit and self.rating_range is None and ratings.n_ratings:
            self._seen_range = float(ratings.values.min()), float(ratings.values.max())

    def _assume_range(self, session: Session) -> None:
        if self._explicit:
            low, high = self._range()
            session.assume("ratings", f"the range of ratings, {low:g} to {high:g}", inferred=self.rating_range is None)

    def _open_session(self, ratings: Ratings) -> tuple[Users, Session]:
        """Sealed users and the door to them, with the assumptions that hold for every model written down."""
        seed = secrets.randbits(63) if self.random_state is None else self.random_state
        plan = self.plan(ratings.n_items)
        self._check_items(ratings.n_items)
        session = Session(plan, self.noise, seed if self.noise == "seeded" else None)
        self._session = session
        if getattr(ratings, "catalogue", False):
            session.assume("items", f"the catalogue of {ratings.n_items:,} items")
        else:
            session.assume("items", f"the list of {ratings.n_items:,} items, found in the ratings", inferred=True)
        if getattr(ratings, "filtered", ""):
            session.assume("filter", ratings.filtered, inferred=True)
        session.assume("parameters", "every parameter of the model")
        return seal(ratings, self.bounds(), seed=seed), session

    # ------------------------------------------------------------ on disk

    def saved_params(self) -> dict[str, Any]:
        """Without the seed: whoever knows the seed of seeded noise can subtract it."""
        given = self.get_params()
        return given | {"random_state": None, "noise": given["noise"] if isinstance(given["noise"], str) else "seeded"}

    def extra_files(self) -> dict[str, str]:
        earlier = [_as_text(ledger) for ledger in self.earlier_ledgers_]
        return {LEDGER: _as_text(self.privacy_.ledger)} | {earlier_name(text.encode()): text for text in earlier}

    def restore_files(self, files: dict[str, bytes]) -> None:
        self.privacy_ = self._statement(Ledger.from_dict(json.loads(files[LEDGER])))

    def card(self) -> str:
        from discreet.models.card import private

        return private(self, self.privacy_)


def _as_text(ledger: Ledger) -> str:
    return json.dumps(ledger.to_dict(), indent=1, ensure_ascii=False) + "\n"


def _accounted(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` after which the ledger of what it released is there, also if it did not come to its end."""

    @functools.wraps(fit)
    def accounted(self: PrivateRecommender, *args: Any, **options: Any) -> Any:
        try:
            return fit(self, *args, **options)
        except BaseException:  # Ctrl-C as well: what was released stays released
            self._abandon()
            raise
        finally:
            vars(self).pop("_session", None)

    return accounted
