"""Private models with one fault each, for the tests of the conformance kit."""

from dataclasses import replace

import numpy as np

from discreet.models.dpals import DPALS
from discreet.privacy import unsafe
from discreet.privacy.noise import SeededNoise
from discreet.privacy.plan import Plan, Release


class ReleasesTwice(DPALS):
    """Asks the session for one sum more than was planned."""

    def _item_step(self, users, session, *rest):
        session.release("sum", users.item_sums())
        return super()._item_step(users, session, *rest)


class FitsTwice(DPALS):
    """Averages two private fits, and states the price of one."""

    def fit(self, ratings, *, progress=None):
        first = super().fit(ratings, progress=progress).item_factors_
        super().fit(ratings, progress=progress)
        self.item_factors_ = (first + self.item_factors_) / 2
        return self


class SavesAVector(DPALS):
    """Keeps the vector of somebody as an example."""

    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        end = ratings.indptr[1]
        self._example = self.fold(ratings.indptr[:2], ratings.indices[:end], ratings.values[:end])[0][0].tolist()
        return self

    def state(self):
        return super().state() | {"example": self._example}

    def restore(self, state):
        super().restore({name: value for name, value in state.items() if name != "example"})


class SavesTheNumberOfUsers(DPALS):
    def card(self):
        return super().card() + f"\nTrained on {self._n} people.\n"

    def fit(self, ratings, *, progress=None):
        self._n = ratings.n_users
        return super().fit(ratings, progress=progress)


class SavesTheSeed(DPALS):
    def saved_params(self):
        return self.get_params()


class ScalesByN(DPALS):
    """Divides what it learnt by the exact number of users."""

    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self.item_factors_ = self.item_factors_ * np.float32(1000 / ratings.n_users)
        return self


class NormalisesByMeanCount(DPALS):
    """Erratum 4: Z from everybody's exact counts, so that one user's vector depends on the others."""

    def fit(self, ratings, *, progress=None):
        self._mean = float(np.diff(ratings.indptr).mean())
        return super().fit(ratings, progress=progress)

    def _user_scale(self):
        return 1e3 * (self._mean - round(self._mean, 1)) ** 2 if hasattr(self, "_mean") else 1.0

    def __getstate__(self):
        return {}


class UsesExactCounts(DPALS):
    """Erratum 7: ridges from exact counts instead of released ones."""

    def fit(self, ratings, *, progress=None):
        self._counts = np.bincount(ratings.indices, minlength=ratings.n_items)
        return super().fit(ratings, progress=progress)

    def _item_ridge(self, counts, *rest):
        return self._lambda() * np.sqrt(self._counts[: len(counts)] + 1.0)


class PrintsTheShape(DPALS):
    def fit(self, ratings, *, progress=None):
        print(f"training on a matrix with {ratings.n_ratings} entries")
        return super().fit(ratings, progress=progress)


class ShapesByData(DPALS):
    """Releases factors for as many items as have many ratings, and so tells how many these are."""

    def fit(self, ratings, *, progress=None):
        self._many = max(2, int((np.bincount(ratings.indices) % 2).sum()))
        return super().fit(ratings, progress=progress)

    def _n_frequent(self, n_items):
        return getattr(self, "_many", 5)


class HoldsTheRatings(DPALS):
    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self.cache_ = {"data": ratings}
        return self


class StartsWarm(DPALS):
    """A second fit goes on from the first."""

    def _initial(self, *given):
        V = super()._initial(*given)
        return V if not hasattr(self, "_last") else self._last

    def _item_step(self, users, session, *rest):
        self._last = super()._item_step(users, session, *rest)
        return self._last


class ForgetsSeedZero(DPALS):
    def _open_session(self, ratings):
        users, session = super()._open_session(ratings)
        if self.noise == "seeded":
            session._noise = SeededNoise(self.random_state or None)
        return users, session


class Reveals(DPALS):
    def _centre(self, users, session):
        users.choose()
        unsafe.reveal(session, "peek", users.item_counts())
        super()._centre(users, session)


class PeeksUnseen(DPALS):
    """Computes a statistic with a key that it took from the session's own module."""

    def _centre(self, users, session):
        import sys

        users.choose()
        users.item_counts().compute(vars(sys.modules["discreet.privacy.session"])["KEY"])
        super()._centre(users, session)


class OpensSealedData(DPALS):
    def _centre(self, users, session):
        assert users._content() is not None
        super()._centre(users, session)


class LeavesOneOut(DPALS):
    """Plans a release that it never makes, and never asks the session whether all is done."""

    def plan(self, n_items):
        plan = super().plan(n_items)
        return Plan.calibrated([*plan.releases, Release("spare")], self.budget, self.accountant)

    def _finish(self, ratings, V, frequent, session):
        session.finish = lambda: session.statement
        super()._finish(ratings, V, frequent, session)


class PromisesLess(DPALS):
    """States another relation than the one that was priced."""

    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self.privacy_ = replace(self.privacy_, epsilon=self.privacy_.epsilon / 2)
        return self
