"""A private covariance of ratings, factorized (McSherry & Mironov, 2009), for whole users.

The paper measures, with noise, averages and then a covariance, and hands those to any recommender.
Sections 4.1–4.3:

    G = (Σ y + noise) / (Σ 1 + noise)                                       global mean          (1)
    b_j = (Σ_i y_ij + noise + β_j G) / (Σ_i 1 + noise + β_j) − G            item means, damped   (2)
    r_ij = clamp(y_ij − G − b_j − own damped mean of those, ±B)      per user, at no cost        (3)
    C = Σ_i w_i r_i r_iᵀ + noise,   N = Σ_i w_i 1_i 1_iᵀ + noise     covariance and its counts   (4)
    C_jl / (max(N_jl, 0) + β') ≈ Q Λ Qᵀ,   V = Q Λ^{1/2}                    factorization        (5)

with 1_i the indicator of what user i has rated. The paper protects single ratings. For whole users,
a user contributes through at most k items to (1) and (2), and w_i = 1/c_i with c_i its own number
of ratings, so that √w_i r_i has at most the norm B and √w_i 1_i the norm 1: what a user can move
(4) by does not depend on how much it rated.

A user's vector follows by ridge regression on V or, with a public `density` p, by the textbook's
estimate of a matrix of which a part p is observed, from its row with zeros for the rest,

    r̂_i = Q Qᵀ r_i / p.                                                                         (6)

The DPALS paper calls private SVD inconsistent, citing Jain et al. (2018). That is true of (6): the
unrated items of a user bias it for any number of other users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.models.algorithm import (
    Algorithm,
    Learned,
    Progress,
    Range,
    middle,
    most_frequent,
    share_of_items,
    spread_out,
    width,
)
from discreet.models.fold_in import FoldIn, LeastSquaresFoldIn, ProjectionFoldIn
from discreet.models.parameters import (
    check_bool,
    check_choice,
    check_fraction,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.base import triangle_size
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemCounts, ItemTotals, RatingCount, RatingSum
from discreet.privacy.statistics.covariance import PairCounts, ResidualCovariance
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, Restrict, SubtractBaseline


@dataclass(frozen=True, repr=False)
class CovarianceSVD(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int
        How many eigenvectors are kept.
    regularization : float
        Ridge of a user's least squares: the variance of a rating that factors do not explain, over
        that which they do.
    item_prior : float
        β of (2), in ratings; β_j has as much more as the known noise on an item's sum asks for.
    weighted : bool
        Release and divide by N of (4); else the covariance is taken as it is.
    pair_prior : float
        β' of (5), in standard deviations of the noise on N.
    centering : {"user", "items"}
        Whether (3) subtracts each user's own mean too, or (1) and (2) only.
    prior_count : float
        A user's own mean also counts so many zeros.
    density : float
        p of (6), public; then it is used for fold-in. 0: ridge regression.
    residual_bound : float, optional
        B. Default: a quarter of the rating range.
    max_items : int
        k: how many items of a user count for the means.
    item_fraction : float
        The share of items, the most frequent by noisy counts, that get factors; the rest get their
        mean only.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "covariance SVD"

    factors: int = 4
    regularization: float = 1.0
    item_prior: float = 20.0
    weighted: bool = True
    pair_prior: float = 2.0
    centering: Literal["user", "items"] = "user"
    prior_count: float = 3.0
    density: float = 0.0
    residual_bound: float | None = None
    max_items: int = 50
    item_fraction: float = 0.1
    rating_range: Range | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        usual = width(rating_range) / 4
        found = replace(
            self,
            rating_range=rating_range,
            residual_bound=usual if self.residual_bound is None else self.residual_bound,
        )
        for name in ("factors", "max_items"):
            check_int(name, getattr(found, name))
        for name in ("regularization", "residual_bound"):
            check_positive(name, getattr(found, name))
        for name in ("item_prior", "pair_prior", "prior_count", "density"):
            check_number(name, getattr(found, name))
        check_that(found.density <= 1, f"density is {found.density!r}, but must be at most 1")
        check_bool("weighted", found.weighted)
        check_fraction("item_fraction", found.item_fraction)
        check_choice("centering", found.centering, "user", "items")
        return found

    def bounds(self) -> Bounds:
        """Return bounds on ratings relative to the middle of the range: half of it."""
        assert self.rating_range is not None
        return Bounds(
            items=self.max_items,
            rating=width(self.rating_range) / 2,
            center=middle(self.rating_range),
        )

    def releases(self, n_items: int) -> list[Release]:
        pairs = (1, triangle_size(share_of_items(self.item_fraction, n_items)))
        lines = [
            Release("sum", share=0.005, shape=(1,)),
            Release("count", share=0.005, shape=(1,)),
            Release("item sums", share=0.3, shape=(n_items,)),
            Release("item counts", share=0.1, shape=(n_items,)),
            Release("covariance", share=0.45, shape=pairs),
        ]
        return [*lines, Release("pairs", share=0.15, shape=pairs)] if self.weighted else lines

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        users.apply(Choose())
        found: dict[str, ReleasableSum] = {
            "sum": users.sum(RatingSum()),
            "count": users.sum(RatingCount()),
        }
        found |= {"item sums": users.sum(ItemTotals()), "item counts": users.sum(ItemCounts())}
        rows = users.copy_after(
            Restrict(np.arange(share_of_items(self.item_fraction, users.n_items)))
        ).copy_after(SubtractBaseline())
        return found | {
            "covariance": rows.sum(ResidualCovariance(self.clamp, per_rating=True)),
            "pairs": rows.sum(PairCounts()),
        }

    @property
    def clamp(self) -> float:
        """B."""
        assert self.residual_bound is not None
        return self.residual_bound

    # ------------------------------------------------------------ learning

    def learn(
        self,
        users: Users,
        session: Session,
        *,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
    ) -> Learned:
        assert self.rating_range is not None
        n_items = users.n_items
        half = width(self.rating_range) / 2
        users.apply(Choose())
        total = session.release("sum", users.sum(RatingSum()))[0]
        count = session.release("count", users.sum(RatingCount()))[0]
        G = float(np.clip(total / max(count, 1.0), -half, half))
        totals = users.sum(ItemTotals())
        sums = session.release("item sums", totals)
        counts = np.maximum(session.release("item counts", users.sum(ItemCounts())), 0.0)
        # variance of the noise on a sum over the variance that item means are taken to have,
        # (range/9)²
        noise = (
            self._deviation(session, "item sums", totals) / (width(self.rating_range) / 9)
        ) ** 2
        b = shrink_means(sums, counts, G, self.item_prior + noise / np.maximum(counts, 1.0), half)
        frequent = most_frequent(counts, share_of_items(self.item_fraction, n_items))
        own_prior = self.prior_count if self.centering == "user" else None
        rows = users.copy_after(Restrict(frequent)).copy_after(
            SubtractBaseline(G + b[frequent], own_prior, self.clamp)
        )
        covariance = rows.sum(ResidualCovariance(self.clamp, per_rating=True))
        C = covariance.unpack(session.release("covariance", covariance))[0]
        if self.weighted:
            pairs = rows.sum(PairCounts())
            N = pairs.unpack(session.release("pairs", pairs))[0]
            C = C / (
                np.maximum(N, 0.0)
                + max(self.pair_prior * self._deviation(session, "pairs", pairs), 1e-9)
            )
        progress(1, 1, "covariance")
        details = {"frequent": frequent.tolist(), "center": middle(self.rating_range) + G}
        factors = spread_out(principal(C, self.factors), frequent, n_items)
        return Learned(factors, b.astype(np.float32), None, details)

    def _deviation(self, session: Session, name: str, statistic: ReleasableSum) -> float:
        return 0.0 if session.silent else session.deviation(name, statistic)

    # ------------------------------------------------------------ fold-in

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """Return a user's vector by ridge regression or, with `density` p, by (6)."""
        center = learned.details["center"]
        known = learned.some("frequent")
        personal = self.centering == "user"
        if not self.density:
            centering: Any = "own deviation" if personal else "constant"
            return LeastSquaresFoldIn(
                self.regularization,
                0.0,
                centering,
                center,
                self.prior_count,
                masked=True,
                known=known,
            )
        # V = Q Λ^{1/2}, so Q Qᵀ = V Λ⁻¹ Vᵀ
        squares = (learned.factors.astype(np.float64) ** 2).sum(axis=0)
        return ProjectionFoldIn(center, self.prior_count, self.density, personal, known, squares)


def shrink_means(
    sums: NDArray[Any], counts: NDArray[Any], G: float, prior: NDArray[Any], largest: float
) -> NDArray[np.float64]:
    """Compute (2): how far item means lie from the global one, between ±largest."""
    deviations: NDArray[np.float64] = np.clip(
        (sums - G * counts) / np.maximum(counts + prior, 1e-9), -largest, largest
    )
    return deviations


def principal(C: NDArray[Any], factors: int) -> NDArray[np.float64]:
    """Compute (5): leading eigenvectors times roots of eigenvalues, (m, factors), zero-padded."""
    from scipy.linalg import eigh

    m = len(C)
    r = min(factors, m)
    values, Q = eigh((C + C.T) / 2, subset_by_index=[m - r, m - 1])
    V = np.zeros((m, factors))
    Q = Q * np.sign(Q[np.argmax(np.abs(Q), axis=0), np.arange(r)])  # LAPACK leaves the sign open
    V[:, :r] = (Q * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    return V


# ------------------------------------------------------------ the model


class DPSVD(PrivateRecommender):
    """A private covariance of ratings, factorized (McSherry & Mironov, 2009).

    Parameters
    ----------
    factors : int, optional
        How many eigenvectors are kept. Default 4.
    regularization : float, optional
        λ, the ridge of a user's own least squares. Default 1.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that get factors. Default 0.1.
    """

    goal = "rating"
    _kinds = (CovarianceSVD,)

    factors: int | None = field(default=None, kw_only=False)
    regularization: float | None = None
    item_fraction: float | None = None
