"""Private models with one fault each, for the tests of the conformance kit: in the shell, or in
its algorithm.
"""

import secrets
from dataclasses import replace

import numpy as np

from discreet.models.dpals import DPALS, NoisySolve
from discreet.privacy.release import unsafe
from discreet.privacy.release.plan import Release
from discreet.privacy.statistics.contributions import ItemCounts, ItemSums
from discreet.privacy.users.steps import Choose

# ------------------------------------------------------------ faults of algorithms


class ReleasesTwiceSolve(NoisySolve):
    def _item_step(self, users, session, *rest):
        session.release("sum", users.sum(ItemSums()))
        return super()._item_step(users, session, *rest)


class ReleasesTwice(DPALS):
    """Asks the session for one sum more than was planned."""

    _kinds = (ReleasesTwiceSolve,)


class RevealsSolve(NoisySolve):
    def _center(self, users, session):
        users.apply(Choose())
        unsafe.reveal(session, "peek", users.sum(ItemCounts()))
        return super()._center(users, session)


class Reveals(DPALS):
    _kinds = (RevealsSolve,)


class PeeksUnseenSolve(NoisySolve):
    def _center(self, users, session):
        import sys

        users.apply(Choose())
        users.sum(ItemCounts()).compute(
            vars(sys.modules["discreet.privacy.release.session"])["KEY"]
        )
        return super()._center(users, session)


class PeeksUnseen(DPALS):
    """Computes a statistic with a key that it took from the session's own module."""

    _kinds = (PeeksUnseenSolve,)


class OpensSealedDataSolve(NoisySolve):
    def _center(self, users, session):
        assert users._content() is not None
        return super()._center(users, session)


class OpensSealedData(DPALS):
    _kinds = (OpensSealedDataSolve,)


class FetchesTheKeySolve(NoisySolve):
    def _center(self, users, session):
        from discreet.privacy import sealed as found

        assert found is not None
        return super()._center(users, session)


class FetchesTheKey(DPALS):
    """Imports the key where it needs it, so that no name in its module gives it away."""

    _kinds = (FetchesTheKeySolve,)


class LeavesOneOutSolve(NoisySolve):
    def releases(self, n_items):
        return [*super().releases(n_items), Release("spare", share=0.1, shape=(1,))]


class LeavesOneOut(DPALS):
    """Plans a release that it never makes, and never asks the session whether all is done."""

    _kinds = (LeavesOneOutSolve,)

    def _learn(self, algorithm, users, session, **given):
        session.finish = lambda: session.statement
        return super()._learn(algorithm, users, session, **given)


class KeepsARidgeToItselfSolve(NoisySolve):
    def learn(self, users, session, **given):
        object.__setattr__(self, "own_ridge", 7.0)
        return super().learn(users, session, **given)

    def _user_scale(self):
        return super()._user_scale() * getattr(self, "own_ridge", 1.0)


class KeepsARidgeToItself(DPALS):
    """Reads users out by a number that is no field and is not in `Learned`, and so is not saved."""

    _kinds = (KeepsARidgeToItselfSolve,)


# ------------------------------------------------------------ faults that take something from the
# ratings into these


class Told(NoisySolve):
    """An algorithm that is told something beside what was released."""

    def hear(self, **secrets):
        for name, value in secrets.items():
            object.__setattr__(self, name, value)


class Telling(DPALS):
    """A shell that tells its algorithm, when the people are sealed already, what it has seen of
    them.
    """

    def fit(self, ratings, *, progress=None):
        self.secrets = self.look(ratings)
        return super().fit(ratings, progress=progress)

    def _learn(self, algorithm, *rest, **given):
        algorithm.hear(**self.secrets)
        del self.secrets
        return super()._learn(algorithm, *rest, **given)


class NormalizesByMeanCountSolve(Told):
    def _user_scale(self):
        return 1e3 * (self.mean - round(self.mean, 1)) ** 2


class NormalizesByMeanCount(Telling):
    """Erratum 4: Z from everybody's exact counts, so that one user's vector depends on the
    others.
    """

    _kinds = (NormalizesByMeanCountSolve,)

    def look(self, ratings):
        return {"mean": float(np.diff(ratings.indptr).mean())}


class UsesExactCountsSolve(Told):
    def _item_ridge(self, counts, lam, deviation):
        return lam * np.sqrt(self.exact[: len(counts)] + 1.0)


class UsesExactCounts(Telling):
    """Erratum 7: ridges from exact counts instead of released ones."""

    _kinds = (UsesExactCountsSolve,)

    def look(self, ratings):
        return {"exact": np.bincount(ratings.indices, minlength=ratings.n_items)}


class TellsInDetailsSolve(Told):
    def learn(self, users, session, **given):
        learned = super().learn(users, session, **given)
        return replace(learned, details={**learned.details, "typical": self.typical})


class TellsInDetails(Telling):
    """Keeps a number beside the factors that was never released."""

    _kinds = (TellsInDetailsSolve,)

    def look(self, ratings):
        return {"typical": float(ratings.values.mean())}


class StartsWarmSolve(Told):
    def _start(self, users, session, seed):
        V = super()._start(users, session, seed)
        return V if self.last is None else self.last

    def _item_step(self, *given):
        self.hear(last=super()._item_step(*given))
        return self.last


class StartsWarm(DPALS):
    """A second fit goes on from the first."""

    _kinds = (StartsWarmSolve,)

    def _learn(self, algorithm, *rest, **given):
        algorithm.hear(last=getattr(self, "last", None))
        learned = super()._learn(algorithm, *rest, **given)
        self.last = algorithm.last
        return learned


class ShapesByData(DPALS):
    """Releases factors for as many items as have an odd number of ratings, and so tells how
    many these are.
    """

    def fit(self, ratings, *, progress=None):
        odd = np.bincount(ratings.indices, minlength=ratings.n_items) % 2
        self.odd = max(2, int(odd.sum())) / ratings.n_items
        return super().fit(ratings, progress=progress)

    def make_algorithm(self):
        return replace(super().make_algorithm(), item_fraction=getattr(self, "odd", 0.5))


# ------------------------------------------------------------ faults of shells


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
        self._example = self.fold(ratings.indptr[:2], ratings.indices[:end], ratings.values[:end])[
            0
        ][0].tolist()
        return self

    def state(self):
        return super().state() | {"example": self._example}

    def restore(self, state):
        super().restore({name: value for name, value in state.items() if name != "example"})


class SavesTheNumberOfUsers(DPALS):
    def card(self):
        return super().card() + f"\nTrained on {self._n} people.\n"

    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self._n = ratings.n_users
        return self


class SavesTheSeed(DPALS):
    def params_to_save(self):
        return super().params_to_save() | {"random_state": self.random_state}


class ScalesByN(DPALS):
    """Divides what it learned by the exact number of users."""

    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self.item_factors_ = self.item_factors_ * np.float32(1000 / ratings.n_users)
        return self


class PrintsTheShape(DPALS):
    def fit(self, ratings, *, progress=None):
        print(f"training on a matrix with {ratings.n_ratings} entries")
        return super().fit(ratings, progress=progress)


class HoldsTheRatings(DPALS):
    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self.cache_ = {"data": ratings}
        return self


class ForgetsSeedZero(DPALS):
    def fit(self, ratings, *, progress=None):
        given = self.random_state
        self.random_state = given or secrets.randbits(31)
        try:
            return super().fit(ratings, progress=progress)
        finally:
            self.random_state = given


class PromisesLess(DPALS):
    """States another relation than the one that was priced."""

    def fit(self, ratings, *, progress=None):
        super().fit(ratings, progress=progress)
        self.privacy_ = replace(self.privacy_, epsilon=self.privacy_.epsilon / 2)
        return self


#: Which rule of the kit names each fault, and a word of what it says.
RULES_BROKEN = [
    (ReleasesTwice, "plan", "PlanMismatch"),
    (LeavesOneOut, "plan", "spare"),
    (FitsTwice, "one access", "2 sessions"),
    (PeeksUnseen, "one access", "outside Session.release"),
    (TellsInDetails, "post-processing", r"details_\.typical"),
    (TellsInDetails, "saved folder", r"model\.json: state\.details\.typical"),
    (KeepsARidgeToItself, "round trip", "predictions changed by saving and loading"),
    (SavesAVector, "saved folder", r"model\.json: state\.example"),
    (SavesTheNumberOfUsers, "saved folder", "README.md"),
    (SavesTheSeed, "saved folder", "the seed"),
    (ScalesByN, "post-processing", "item_factors_"),
    (HoldsTheRatings, "post-processing", "the ratings themselves in cache_.data"),
    (UsesExactCounts, "post-processing", "item_factors_"),
    (NormalizesByMeanCount, "neighbors", "depends on others"),
    (PrintsTheShape, "silence", "matrix with"),
    (ShapesByData, "shapes", "shape"),
    (StartsWarm, "seed", "where the first one ended"),
    (ForgetsSeedZero, "seed", "random_state=0 gives another model every time"),
    (Reveals, "statement", "NOT PRIVATE"),
    (OpensSealedData, "key", "_content"),
    (FetchesTheKey, "key", "sealed"),
    (PromisesLess, "statement", "not what the ledger costs"),
]
