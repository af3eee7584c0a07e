"""Ranking from one noisy matrix of item pairs, estimated with noise of known variance.

A user likes item j by x_ij ≥ 0: the position of its rating in the range, 0 for the lowest and 1 for
the highest; 1 for every interaction where there are no ratings. Three sums over users are released.
M is the number of items in the core, those whose released counts are large enough:

    c̃_j  = Σ_i x_ij/‖x_i‖ + noise                                  counts, all items            (1)
    ñ    = #{i : x_i ≠ 0} + noise                                  size                          (2)
    G̃    = Σ_i Z (x_i x_iᵀ − diag x_i²) Z/q_i + N(0, t²), off the diagonal,
           Z = I − κ p pᵀ, p = c/‖c‖,                              pairs, in the core          (3)

q_i is the norm of the matrix that it divides. **Noise of one entry**: t = noise multiplier ×
sensitivity / √2. The sensitivity is 1 where a user is added or removed. The factor √2 is there
because the triangle is released once, with norm 1 per user, and G̃ has every pair twice;
`deviation_of_pairs` computes t. Z (W in `centered_pairs`) removes popularity, the direction p,
which the counts contain already; left in, it takes a fifth of every user's norm. Where a user may
be replaced, κ = 0: without signs the sensitivity is √2 and not 2, and centering gains less.

One vector per item is fitted to the pairs, weighted by the known noise and by that of sampling,
with λ = SAMPLING ñ/((Σ c)² − Σ c²), since the squares of one user's contribution to (3) sum to ½:

    G̃_jk = c_j c_k v_j · v_k + N(0, t² + λ c_j c_k), v_j ~ N(Wᵀ f_j, T), W_f ~ N(0, T / strength)
    (4)

f_j are public features of the item, or a constant alone; W, T and the strength are estimated with
the rest. With whitening h_j = (t + √λ c_j)^−½, a = h c, and G for h G̃ h, whose noise has deviation
1, a round of variational Bayes is

    A   = Σ_j a_j² (v_j v_jᵀ + C_j),    B with Bᵀ T⁻¹ B = I and Bᵀ A B = diag(α),                (5)
    C_j = B diag(1/(1 + a_j² α)) Bᵀ  for all items in the same basis, so a round is cheap,       (6)
    v_j ← ½ v_j + ½ C_j (a_j (G (a v))_j + a_j⁴ (‖v_j‖² + C_j) v_j + T⁻¹ Wᵀ f_j)                 (7)

where the second term of (7) replaces the diagonal, which is not released. After twelve rounds
(later ones prune too much) Z is undone, c v ← √q̄ Z⁻¹ c v, or v_j ← √q̄ (v_j + κ/(1 − κ)
Σ_k p_k² v_k), with q̄ = STRETCH, about the mean of q_i/‖x_i‖². Fold-in uses the model that (4) then
implies, with y = x/‖x‖ on the core:

    y = Y u + N(0, D), Y_j = c_j R v_j/√ñ, D_j = c_j/Σ c, u ~ N(u₀ e₁, diag(1 − u₀², 1, …, 1)) (8)
    score_j = E[u | y] · Y_j / c_j^β

β = 0.1 costs no recall and covers more items. R turns v so that popularity, v̄ = Σ c_j v_j/Σ c_j, is
the first axis, and u₀ = 1/(√ñ ‖v̄‖): E y_j = c_j/ñ. A user without a history gets u₀ e₁: popular
items. Items outside the core are scored in the same way with v_j = Wᵀ f_j.

Signal check. Whether pairs are released is decided from (1) and (2): the signal Σ_core c̃²/ñ, which
is popularity's own eigenvalue of (3), over the edge t√M of the noise. Below the gate the rest of
the budget releases counts again. Their average is as exact as if nearly all of the budget had gone
to them, and the model ranks by counts. It also ranks by counts where the released pairs contain
nothing above their noise except popularity. On small catalogs a part of the rest is a release of
its own; it contains counts where twenty items have a large share of all choices. With a signal from
three quarters of the gate on, 35 % of the rest release pairs: only if these show taste does the
remainder release pairs too, and otherwise counts.

Sparse catalogs. Where a catalog is larger than a core and few choices are of popular items, the
rest of the budget is divided and communities are learned instead (`communities`).

Privacy: the releases of the plan, their mechanism and their noise multipliers are fixed and public.
*What* a later one contains, pairs or counts and on which core, is decided by numbers that have been
released before. Both have the same ℓ₂ sensitivity, so every release is μ-GDP with its own μ
whatever was released earlier, and Gaussian differential privacy composes adaptively. Only the shape
of such a release is open in the plan.

McSherry & Mironov (KDD 2009) release a noisy matrix of items by items once: they clip and average
covariances of ratings, for nearest neighbors or an SVD. New are the contribution of the same norm
for every user (no clipping, no diagonal), the estimate by known noise (4)–(7) in place of a cut
spectrum, the fold-in (8) without a constant to tune, features as a prior, and the signal check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.threads import blas_threads
from discreet.models.algorithm import (
    EVERY_ITEM,
    Algorithm,
    Learned,
    Progress,
    Range,
    most_frequent,
)
from discreet.models.dpmf.communities import (
    PARTS,
    STEPS_TO_READ,
    STRENGTH_TO_READ,
    Prospect,
    assess_counts,
    discount_popularity,
    learn_communities,
    no_communities,
)
from discreet.models.dpmf.estimates import (
    TOP_ITEMS,
    Estimate,
    Signal,
    counts_of,
    deviation_of_pairs,
    least_size,
    release_pairs,
    uncenter,
    with_public,
)
from discreet.models.dpmf.feature_prior import standardize
from discreet.models.dpmf.pair_factorization import FittedFactors, factorize, largest_taste
from discreet.models.dpmf.profile import (
    SHARE,
    example_moments,
)
from discreet.models.dpmf.profile import STEPS as WEIGHTS
from discreet.models.dpmf.public_check import (
    BETTER,
    DRAWS,
    count_hits,
    leave_items_out,
    usual_length,
)
from discreet.models.dpmf.public_sums import (
    CHOICES_IN_CORE,
    LEAST_CHOICES,
    LeveledPairs,
    PublicPairs,
    PublicSums,
    combine_pairs,
    level_pairs,
)
from discreet.models.dpmf.read_out import (
    add_pairs,
    add_profile,
    community_fold_in,
    fold_in_rule,
    pair_fold_in,
    profile_fold_in,
)
from discreet.models.dpmf.released_rows import (
    ReleasedRow,
    ReleasedRows,
    center_pairs,
    level_noise,
    make_row,
    uncenter_pairs,
)
from discreet.models.dpmf.summary import (
    WITHOUT_FEATURES,
    WITHOUT_PROFILE,
    explain_public_users,
    explain_untried_communities,
    with_communities,
    with_taste,
    without_communities,
    without_pairs,
    without_taste,
)
from discreet.models.fold_in import ConstantFoldIn, FoldIn, HistoryRows, ItemSimilarity
from discreet.models.parameters import (
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_positive,
    check_that,
)
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.base import Statistic
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.centered_pairs import CenteredPairSums
from discreet.privacy.statistics.pairs import LEVELS, LikeCounts, PairSums
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.public_users import PublicUsers
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import GradeRatings, Restrict, ThresholdRatings

EVERYTHING = "everything"
# below it, and for pure ε, no plan can be calibrated; the plan raises that error itself
LEAST_MU = 1e-6
SIZE_SHARE = 0.005  # of the budget, for ñ
SMALL_CATALOG = 1000  # up to here a part of the rest may release counts again
# Memory: with M items the sums (int64, one triangle) and G (float32) take 4 M² bytes each, and so
# do G and its whitened copy afterwards; 800 MB for 10,000 items. `CenteredPairSums` is exact in
# int64 up to 2¹⁴ items, so this limit must stay below that.
LARGEST_CORE = 10_000
TOP_SHARE = 0.15  # of all choices
# times what noise alone does, popularity projected out: at most 1.06 on data without taste, and
# 1.3 where pairs of ML-100K at ε = 1 say something
MIN_SIGNAL_RATIO = 1.08
# From so much of the gate on, the second of TWO tries pairs before the first is spent. Counts from
# the first alone cost 0.3 % of recall; below this part of the gate pairs lose even with taste.
TRY_FROM = 0.75
TWO = (("item pairs 1 (or counts)", 0.65), ("item pairs 2 (or counts)", 0.35))
# of the gate where later trainings will add to the same pairs: their noise falls with every one
ACCUMULATE = 0.5


@dataclass(frozen=True)
class PairRanking(Algorithm):
    """The algorithm above with its parameters.

    Parameters
    ----------
    factors : int
        Largest rank of the vectors; dimensions that the noise hides are drawn to nothing.
    rounds : int
        Of (5)–(7). They cost nothing but time.
    like_threshold : float or "everything", optional
        Ratings from here on are called liked; "everything" takes all that was chosen, whatever its
        rating. Public. Default: three quarters up the rating range (4 of 1 to 5), or everything
        where all ratings are the same.
    levels : int, optional
        Items count by the place of their rating in the range, in so many steps; with 1, alike from
        `like_threshold` on. Default 20, or 1 where everything is liked.
    largest_core : int
        Largest number of items in the core, at most `LARGEST_CORE`. Memory grows with its square:
        about 130 MB for 4,000 items. More items also raise the edge t√M of the noise.
    core_from : float, optional
        The core are the items with a released count of at least this times √(Σ c̃). Default 0.13
        μ^−½.
    counts_share : float, optional
        Part of the budget μ² for the first counts. Default 0.1 μ^−½, between 0.05 and 0.3.
    gate : float
        The signal-to-noise ratio from which pairs are released.
    centered : bool, optional
        Whether pairs are centered on released popularity. Default: where users are added or
        removed; not where they are replaced, which costs 2 with centering and √2 without.
    route : {"auto", "pairs", "communities"}
        What personal lists are learned from: item pairs, communities, or whichever the released
        counts suggest, on catalogs of more than `largest_core` items.
    profile : bool
        Whether scores are multiplied by a user's own profile in public features, whose weights
        take a twentieth of the budget. Set where there are features.
    popularity_discount : float
        β: scores are divided by the released count to this power.
    shares : dict
        Parts of the budget μ² by the names of the releases.
    """

    name: ClassVar[str] = "pair ranking"
    goal: ClassVar[str] = "ranking"
    added_later: ClassVar[Mapping[str, Any]] = {"route": "pairs"}

    factors: int = 64
    rounds: int = 12
    like_threshold: float | Literal["everything"] | None = None
    levels: int | None = None
    rating_range: Range | None = None
    largest_core: int = 4000
    core_from: float | None = None
    counts_share: float | None = None
    gate: float = 3.5
    centered: bool | None = None
    route: Literal["auto", "pairs", "communities"] = "auto"
    profile: bool = False
    popularity_discount: float = 0.1
    shares: Mapping[str, float] = field(default_factory=dict)

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        mu = gdp.mu(budget.epsilon, budget.delta) / (
            2**0.5 if budget.neighboring == "replace-one" else 1.0
        )
        mu = max(mu, LEAST_MU)
        like_threshold = (
            usual_threshold(rating_range) if self.like_threshold is None else self.like_threshold
        )
        usual_levels = 1 if like_threshold == EVERYTHING else LEVELS
        found = replace(
            self,
            like_threshold=like_threshold,
            levels=usual_levels if self.levels is None else self.levels,
            rating_range=rating_range,
            centered=budget.neighboring == "add-remove" if self.centered is None else self.centered,
            core_from=0.13 * mu**-0.5 if self.core_from is None else self.core_from,
            counts_share=(
                float(np.clip(0.1 * mu**-0.5, 0.05, 0.3))
                if self.counts_share is None
                else self.counts_share
            ),
        )
        found._check()
        return found

    def _check(self) -> None:
        for name in ("factors", "rounds", "largest_core"):
            check_int(name, getattr(self, name))
        check_that(
            self.largest_core <= LARGEST_CORE,
            f"largest_core is {self.largest_core}, but at most {LARGEST_CORE:,}",
        )
        check_positive("core_from", self.core_from)
        check_number("gate", self.gate, 0)
        check_number("popularity_discount", self.popularity_discount, 0)
        check_that(
            self.popularity_discount <= 1,
            f"popularity_discount is {self.popularity_discount!r}, but must be at most 1",
        )
        check_bool("centered", self.centered)
        check_choice("route", self.route, "auto", "pairs", "communities")
        check_bool("profile", self.profile)
        assert self.counts_share is not None
        check_number("counts_share", self.counts_share, 1e-3)
        check_that(
            self.counts_share <= 0.9,
            f"counts_share is {self.counts_share!r}, but must be at most 0.9",
        )
        check_int("levels", self.levels)
        most = 1 if self.like_threshold == EVERYTHING else LEVELS
        check_that(
            self._levels <= most,
            f"levels is {self.levels}, but must be at most {most} with this like_threshold",
        )
        if self.like_threshold != EVERYTHING:
            check_number("like_threshold", self.like_threshold, -1e12)

    def bounds(self) -> Bounds:
        if self.like_threshold == EVERYTHING:
            return Bounds(items=EVERY_ITEM)
        assert self.rating_range is not None
        return Bounds(items=EVERY_ITEM, rating=max(1.0, *map(abs, self.rating_range)))

    def assumptions(self) -> dict[str, str]:
        if self.like_threshold == EVERYTHING:
            return {}
        if self._levels > 1:
            return {"liked": "the weight of a rating, by its position in the range"}
        return {"liked": f"that ratings of {self.like_threshold:g} and above count as liked"}

    def releases(self, n_items: int) -> list[Release]:
        assert self.counts_share is not None
        counts = Release("counts", share=self.counts_share, shape=(n_items,))
        size = Release("size", share=SIZE_SHARE, shape=(1,))
        weights = self._weights()
        spent = sum(line.share for line in (counts, size, *weights))
        return [counts, size, *self._rest(n_items, 1 - spent), *weights]

    def _weights(self) -> list[Release]:
        if not self.profile:
            return []
        return [Release(name, share=SHARE / len(WEIGHTS), shape=None) for name in WEIGHTS]

    @property
    def _gate(self) -> float:
        """The gate, lower by what weights of features cost: they do not decide about pairs."""
        assert self.counts_share is not None
        weights = sum(line.share for line in self._weights())
        return self.gate * math.sqrt(1 - weights / (1 - self.counts_share - SIZE_SHARE))

    def _rest(self, n_items: int, share: float = 1.0) -> list[Release]:
        """List releases that are decided on the way; their shapes are left open."""
        if n_items > SMALL_CATALOG or self._seeks_communities(n_items):
            parts = PARTS if self._seeks_communities(n_items) else TWO
            return [Release("item pairs (or counts)", share=share, shape=None, parts=parts)]
        return [Release(name, share=part * share, shape=None) for name, part in TWO]

    def _seeks_communities(self, n_items: int) -> bool:
        """Return whether the rest may be divided for communities, if counts suggest them."""
        return self.route == "communities" or (self.route == "auto" and n_items > self.largest_core)

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        counts = self._counts(users)
        core = users.copy_after(Restrict(np.arange(min(self.largest_core, users.n_items))))
        ones = np.ones(core.n_items)
        lines = self._rest(users.n_items)
        lines += lines[0].divide()
        rest: dict[str, ReleasableSum] = {str(line): core.sum(self._pairs(ones)) for line in lines}
        if self._seeks_communities(users.n_items):
            rest |= self._parts(users, core.sum(self._pairs(ones)))
        weights = {str(line): users.sum(example_moments(users.n_items)) for line in self._weights()}
        return {"counts": counts, "size": users.sum(UserCount(active=True)), **rest, **weights}

    def _parts(self, users: Users, pairs: ReleasableSum) -> dict[str, ReleasableSum]:
        """Examples of what the parts release, by name."""
        none = no_communities(users.n_items)
        by_community = users.sum(none.counts(self._levels))
        hits = users.sum(none.hits(self._levels))
        found = (pairs, by_community, by_community, hits, by_community)
        return {name: one for (name, _), one in zip(PARTS, found, strict=True)}

    def _pairs(self, c: NDArray[Any]) -> Statistic:
        """Return the statistic (3), for these counts of the core."""
        return CenteredPairSums(c, self._levels) if self.centered else PairSums(self._levels)

    @property
    def _levels(self) -> int:
        """Of liking, once resolved."""
        assert self.levels is not None
        return self.levels

    @property
    def _liked(self) -> dict[str, Any]:
        """By which rule the items of a history are liked, as a fold-in takes it."""
        threshold = self.like_threshold
        rule = {"like_threshold": None if isinstance(threshold, str) else threshold}
        if self._levels == 1:
            return rule
        low, high = self.rating_range  # type: ignore[misc]
        return {**rule, "levels": self._levels, "low": low, "high": high}

    def _counts(self, users: Users) -> ReleasableSum:
        """Return the statistic (1), of users who keep only what they like, by how much."""
        if self._levels > 1:
            assert self.rating_range is not None
            users.apply(GradeRatings(*self.rating_range, self._levels))
        elif self.like_threshold != EVERYTHING:
            assert self.like_threshold is not None
            users.apply(ThresholdRatings(float(self.like_threshold)))
        return users.sum(LikeCounts(self._levels))

    # ------------------------------------------------------------ learning

    def learn(
        self,
        users: Users,
        session: Session,
        *,
        features: Any,
        seed: int,
        progress: Progress,
        prior: ReleasedRows | None = None,
        public: PublicUsers | None = None,
    ) -> Learned:
        X = getattr(features, "X", features)
        known = None if public is None else self._public_sums(public)
        learned, base, size = self._learn_items(users, session, X, seed, progress, prior, known)
        if not self.profile:
            return learned
        categories = list(getattr(features, "categories", ()))
        lines = self._weights()
        with_profile = add_profile(base, users, session, lines, categories, size, self._levels)
        if "profile" in with_profile.details:
            return with_profile
        return add_sentence(learned, WITHOUT_PROFILE)

    def _learn_items(
        self,
        users: Users,
        session: Session,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
        prior: ReleasedRows | None,
        public: PublicSums | None = None,
    ) -> tuple[Learned, Learned, float]:
        """Learn (1)–(8); what was released before improves every estimate. Return that, what a
        profile multiplies, and ñ.
        """
        lines = self._rest(users.n_items)
        steps = len(lines) + 3
        counting = self._counts(users)
        counts = Estimate.release(session, "counts", counting)
        counted = users.sum(UserCount(active=True))
        size = max(float(session.release("size", counted)[0]), least_size(counts))
        session.warn_if_delta_large(size)
        row = partial(make_row, size=size, size_deviation=session.deviation("size", counted))
        rows = ReleasedRows((), users.n_items) if prior is None else prior
        untried = ""
        # counts of a prior are used; pairs of it are more than what communities would start from
        if self._seeks_communities(users.n_items) and rows.have_pairs:
            untried = explain_untried_communities(None)
        elif self._seeks_communities(users.n_items):
            known = with_public(self._with_rows(rows, row, counts, size), public)
            found = self._learn_communities(users, session, known, size, seed, progress, public)
            if isinstance(found, Prospect):
                untried = explain_untried_communities(found)
            else:
                learned, base, again = found
                counts = counts if again is None else counts.with_another(again)
                if features is not None:
                    learned = add_sentence(learned, WITHOUT_FEATURES)
                    base = add_sentence(base, WITHOUT_FEATURES)
                if public is not None:
                    best = self._try_public(public, counts, learned, size, features, seed)
                    pairs = best is not learned or learned.details.get("public_pairs", False)
                    base = base if best is learned else best
                    used = explain_public_users(public.agrees(*counts), pairs)
                    learned, base = (add_sentence(one, used) for one in (best, base))
                rows = rows.append_row(row(counts))
                return replace(learned, released=rows), replace(base, released=rows), size
        known = with_public(self._with_rows(rows, row, counts, size), public)
        core = self._core(known)
        liked = users.copy_after(Restrict(core))
        pairs = liked.sum(self._pairs(known.above_noise(core)))
        t = deviation_of_pairs(session, lines, pairs)
        gate = self._gate
        if rows.rows:
            less = self._with_prior(rows, t, size)
            core = self._core(known, less / t)
            liked = users.copy_after(Restrict(core))
            t = less
            gate *= ACCUMULATE
        agrees = public is not None and public.agrees(*counts)
        if public is not None and agrees:
            core = self._enlarge_core(core, known, public, t, size)
            liked = users.copy_after(Restrict(core))
        signal = Signal.from_counts(known, core, size, t, gate)
        progress(2, steps, "counts")
        bought = self._worth_buying(lines, signal)
        tried: dict[Release, NDArray[np.float32]] = {}
        near = Signal.from_counts(known, core, size, t, TRY_FROM * gate)
        if not bought and not rows.rows and not agrees and self._worth_trying(lines, near):
            lines = lines[0].divide() or lines
            tried[lines[1]] = release_pairs(session, lines[1:], pairs, len(core))
            if self._shows_taste(session, tried, pairs, known.above_noise(core), size, seed):
                bought = lines
        for line in lines:
            if line not in bought and line not in tried:
                counts = counts.with_another(Estimate.release(session, line, counting))
        released = self._with_rows(rows, row, counts, size)
        known = with_public(released, public)
        c = known.above_noise(core)
        if not bought:
            rows = rows.append_row(row(counts))
            why = without_taste(signal) if tried else without_pairs(signal, gate)
            learned = self._popular(known, signal, why)
            if public is not None:
                alone = self._rank_public(public, released, learned, size, features, seed)
                agree = public.agrees(*released)
                learned = add_sentence(alone, explain_public_users(agree, alone is not learned))
            learned = replace(add_sentence(learned, untried), released=rows)
            return learned, learned, size
        pairs = liked.sum(self._pairs(c))
        G = release_pairs(session, bought, pairs, len(core), tried)
        progress(steps - 1, steps, "pairs")
        t = deviation_of_pairs(session, bought, pairs)
        rows = rows.append_row(row(counts, core, uncenter_pairs(G, c) if self.centered else G, t))
        leveled = None
        if public is not None:
            leveled = combine_pairs(G, t, self._public_pairs(public, core, c, size), c)
        learned = self.rank(
            known, core, size, signal, features, seed, rows, (G, t), leveled=leveled
        )
        if public is not None and leveled is not None:
            used = explain_public_users(public.agrees(*released), leveled.is_combined)
            learned = add_sentence(learned, used)
        progress(steps, steps, "factors")
        learned = replace(add_sentence(learned, untried), released=rows)
        return learned, learned, size

    def rank(
        self,
        counts: Estimate,
        core: NDArray[np.int64],
        size: float,
        signal: Signal,
        features: NDArray[Any] | None,
        seed: int,
        rows: ReleasedRows,
        last: tuple[NDArray[Any], float] | None = None,
        forgetting: float | None = None,
        leveled: LeveledPairs | None = None,
    ) -> Learned:
        """Compute (4)–(8) from released rows: `last` are the centered pairs of the last row and
        their t.

        A single row is used as it was released. Several are combined at no cost, with the weight
        `forgetting` from row to row, which by default is chosen from them.
        """
        c = counts.above_noise(core)
        F = None if features is None else standardize(features)
        f = np.ones(len(core))
        if leveled is not None:
            G, f, t = leveled
        elif last is not None and len(rows.rows) == 1:
            G, t = last
        else:
            weight = rows.choose_forgetting()[1] if forgetting is None else forgetting
            found = rows.pairs(core, size, weight)
            value = center_pairs(found.value, c) if self.centered else found.value
            G, f, t = level_noise(replace(found, value=value))
        with blas_threads():
            fitted = self.estimate(G, t, f * c, size, seed, None if F is None else F[core])
        if fitted.heard < MIN_SIGNAL_RATIO and F is None:
            return self._popular(counts, signal, without_taste(signal))
        if self.centered:
            fitted = uncenter(fitted, c)
        return self._personal(counts, core, c, size, fitted, F, signal)

    def _public_sums(self, users: PublicUsers) -> PublicSums:
        """Grade what public users like, as private ones, and count it exactly."""
        self._counts(users)  # type: ignore[arg-type]
        return PublicSums.from_users(users, self._levels)

    def _public_pairs(
        self, public: PublicSums, core: NDArray[np.int64], c: NDArray[Any], size: float
    ) -> PublicPairs:
        """Compute (3) of public users, exactly, scaled to so many users."""
        return public.pairs(self._pairs(c), core, c, size, bool(self.centered))

    def _try_public(
        self,
        public: PublicSums,
        released: Estimate,
        found: Learned,
        size: float,
        features: NDArray[Any] | None,
        seed: int,
    ) -> Learned:
        """Rank by pairs of public users where they agree with released counts; in place of
        communities, only if their lists have more of the items that other public users leave out.
        """
        alone = self._rank_public(public, released, found, size, features, seed)
        if "communities" not in found.details or alone is found:
            return alone
        assert found.counts is not None
        rng = np.random.default_rng(seed)
        length = usual_length(found.counts, size)
        half = rng.random(public.users.block.n) < 0.5
        hits = np.zeros(2)
        for some in (half, ~half):
            others = PublicSums.from_users(public.users.select(~some), self._levels)
            models = (found, self._rank_public(others, released, found, size, features, seed))
            rows = self._histories(public.users.select(some))
            for _ in range(DRAWS):
                left = leave_items_out(rows, length, rng)
                hits += [count_hits(self.fold_in_rule(one), one, *left) for one in models]
        return alone if hits[1] > BETTER * hits[0] else found

    def _histories(self, users: PublicUsers) -> HistoryRows:
        """Return what these users like as histories, with ratings that have their levels."""
        block = users.block
        ratings = block.ratings
        if self._levels > 1:
            low, high = self.rating_range  # type: ignore[misc]
            ratings = low + ratings / self._levels * (high - low)
        elif not isinstance(self.like_threshold, str):
            ratings = np.full(len(ratings), self.like_threshold)
        return HistoryRows(block.indptr, block.indices, ratings.astype(np.float32))

    def _rank_public(
        self,
        public: PublicSums,
        released: Estimate,
        popular: Learned,
        size: float,
        features: NDArray[Any] | None,
        seed: int,
    ) -> Learned:
        """Rank by pairs of public users alone, where released counts agree with theirs; else by
        popularity, as learned.
        """
        if not public.agrees(*released):
            return popular
        details = popular.details
        assert popular.counts is not None
        known = Estimate(popular.counts, details["least_count"])
        many = int(np.clip(public.often_chosen(LEAST_CHOICES), TOP_ITEMS, self.largest_core))
        core = most_frequent(known.value, min(many, len(known.value)))
        c = known.above_noise(core)
        found = self._public_pairs(public, core, c, size)
        alone = level_pairs(None, 1.0, found.P, c, found.spread, found.theta)
        signal = Signal(False, details["signal"], details["top"], False)
        rows = ReleasedRows((), len(known.value))
        learned = self.rank(known, core, size, signal, features, seed, rows, leveled=alone)
        return add_sentence(learned, "Taste is that of public users alone.")

    def _with_rows(
        self, rows: ReleasedRows, row: Callable[..., ReleasedRow], counts: Estimate, size: float
    ) -> Estimate:
        """Combine the counts with those of earlier rows."""
        if not rows.rows:
            return counts
        together = rows.append_row(row(counts))
        return counts_of(together, size, together.choose_forgetting()[0])

    def _with_prior(self, rows: ReleasedRows, t: float, size: float) -> float:
        """Return t after earlier rows of pairs are added to one with deviation t."""
        others = (row for row in rows.rows if len(row.core))
        more = sum(r.power / (size * r.pairs_deviation) ** 2 for r in others)
        return 1 / math.sqrt(t**-2 + more)

    def _learn_communities(
        self,
        users: Users,
        session: Session,
        counts: Estimate,
        size: float,
        seed: int,
        progress: Progress,
        public: PublicSums | None = None,
    ) -> tuple[Learned, Learned, Estimate | None] | Prospect:
        """Learn communities, or popularity where the check refutes them; return that, what a
        profile multiplies, and the counts that the last part released instead. For another route,
        return what counts say about communities.
        """
        lines = self._rest(users.n_items)[0].divide()
        counting = users.sum(LikeCounts(self._levels))
        noise = [session.deviation(line, counting) for line in session.plan.releases]
        mu = math.sqrt(sum(one**-2 for one in noise))
        t = session.deviation(lines[0], counting) / math.sqrt(2.0)
        prospect = assess_counts(counts.value, counts.deviation, size, mu, t)
        if not (prospect.is_promising or self.route == "communities"):
            return prospect
        core = prospect.core
        c = np.maximum(prospect.c[core], max(counts.deviation, 0.5))
        pairs = users.copy_after(Restrict(core)).sum(self._pairs(c))
        t = deviation_of_pairs(session, lines[:1], pairs)
        signal = Signal.from_counts(counts, core, size, t, self.gate)
        progress(2, len(lines) + 2, "counts")
        G = release_pairs(session, lines[:1], pairs, len(core))
        f = np.ones(len(core))
        if public is not None:
            G, f, t = combine_pairs(G, t, self._public_pairs(public, core, c, size), c)
        with blas_threads():
            fitted = self.estimate(G, t, f * c, size, seed, None)
        progress(3, len(lines) + 2, "pairs")
        again = session.deviation(lines[-1], counting)
        after = counts.with_another(Estimate(counts.value, again)).deviation
        found = learn_communities(
            session,
            users,
            lines[1:],
            prospect,
            fitted,
            counts.deviation,
            after,
            size,
            self._levels,
            seed,
        )
        if not found.kept:
            last = Estimate.release(session, lines[-1], counting)
            counts = counts.with_another(last)
        progress(len(lines) + 2, len(lines) + 2, "communities")
        if not found.kept:
            learned = self._popular(counts, signal, without_communities(found, prospect))
            return learned, learned, last
        details = {
            "core": [],
            "least_count": max(counts.deviation, 0.5),
            "featured": False,
            "communities": found.shares.tolist(),
            "strength": STRENGTH_TO_READ,
            "steps": STEPS_TO_READ,
            "signal": signal.signal,
            "top": signal.top,
            "head": prospect.head,
            "gain": found.gain,
            "public_pairs": bool((f != 1).any()),
        }
        none = np.zeros(len(counts.value), np.float32)
        said = with_communities(found, prospect, False)
        # weights of a profile are fitted to communities as they are
        base = Learned(found.P, none, counts.value, details | {"learned": said})
        factors = discount_popularity(found.P, prospect.c, counts.deviation, size)
        if fitted.dimensions:
            vectors = uncenter(fitted, c) if self.centered else fitted
            factors, details["pairs"] = add_pairs(factors, found.shares, core, vectors, c, size)
        details["learned"] = with_communities(found, prospect, "pairs" in details)
        return replace(base, factors=factors, details=details), base, None

    def _worth_buying(self, lines: list[Release], signal: Signal) -> list[Release]:
        """Return the lines that release pairs; the others count again."""
        if not signal.worth:
            return []
        return lines[:1] if signal.top > TOP_SHARE else lines  # counts decide much of the list

    def _worth_trying(self, lines: list[Release], near: Signal) -> bool:
        """Return whether a part of the rest may try pairs, of signal near the gate."""
        divided = len(lines) > 1 or lines[0].parts == TWO
        return divided and near.worth and near.top <= TOP_SHARE

    def _shows_taste(
        self,
        session: Session,
        tried: Mapping[Release, NDArray[np.float32]],
        pairs: ReleasableSum,
        c: NDArray[Any],
        size: float,
        seed: int,
    ) -> bool:
        """Return whether tried pairs reach beyond the edge of the noise without popularity."""
        [(line, G)] = tried.items()
        t = deviation_of_pairs(session, [line], pairs)
        with blas_threads():
            return largest_taste(G, t, c, size, seed) > 1

    def estimate(
        self,
        G: NDArray[Any],
        t: float,
        c: NDArray[Any],
        size: float,
        seed: int,
        features: NDArray[Any] | None,
    ) -> FittedFactors:
        """Vectors of the core's items from its pairs, (4)–(7)."""
        return factorize(G, t, c, size, self.factors, self.rounds, seed, features)

    def _core(self, counts: Estimate, noise: float = 1.0) -> NDArray[np.int64]:
        """Return the most liked items; earlier rows leave so much of a training's own noise."""
        assert self.core_from is not None
        least = self.core_from * math.sqrt(noise) * math.sqrt(max(float(counts.value.sum()), 1.0))
        many = int(np.clip((counts.value >= least).sum(), TOP_ITEMS, self.largest_core))
        return most_frequent(counts.value, min(many, len(counts.value)))

    def _enlarge_core(
        self, core: NDArray[np.int64], known: Estimate, public: PublicSums, t: float, size: float
    ) -> NDArray[np.int64]:
        """Return a core of more items, as far as public users have rated them often enough."""
        larger = self._core(known, public.noise_left(known.value[core], t, size))
        many = min(len(larger), max(len(core), public.often_chosen(CHOICES_IN_CORE)))
        return most_frequent(known.value, many)

    def _popular(self, counts: Estimate, signal: Signal, learned: str) -> Learned:
        """Nothing but what is liked how much."""
        details = {
            "core": [],
            "least_count": max(counts.deviation, 0.5),
            "featured": False,
            "dimensions": 0,
            "signal": signal.signal,
            "top": signal.top,
            "learned": learned,
        }
        none = np.zeros((len(counts.value), 0), np.float32)
        return Learned(none, counts.value.astype(np.float32), counts.value, details)

    def _personal(
        self,
        counts: Estimate,
        core: NDArray[np.int64],
        c: NDArray[Any],
        size: float,
        fitted: FittedFactors,
        F: NDArray[Any] | None,
        signal: Signal,
    ) -> Learned:
        R, lean = fold_in_rule(fitted.V, c, size)
        n = len(counts.value)
        design = (
            np.ones((n, 1))
            if F is None
            else np.column_stack([np.ones(n), F - F[core].mean(axis=0)])
        )
        V = design @ fitted.W
        V[core] = fitted.V
        least = max(counts.deviation, 0.5)
        # with a profile, an item whose count the noise made negative may still be what a user likes
        scale = np.maximum(counts.value, least if self.profile else 0.0)
        scale[core] = c
        details = {
            "core": core.tolist(),
            "least_count": least,
            "discount": self.popularity_discount,
            "lean": lean,
            "lean_precision": 1 / max(1 - lean**2, 0.02),
            "dimensions": fitted.dimensions,
            "signal": signal.signal,
            "top": signal.top,
            "featured": F is not None,
            "strength": fitted.strength,
            "learned": with_taste(fitted.dimensions, signal),
        }
        scale /= np.maximum(counts.value, least) ** self.popularity_discount
        factors = (scale[:, None] * (V @ R) / math.sqrt(size)).astype(np.float32)
        return Learned(factors, np.zeros(n, np.float32), counts.value, details)

    # ------------------------------------------------------------ reading out

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        """E[u | y] of (8), times the profile where there is one."""
        if "profile" in learned.details:
            return profile_fold_in(learned, self._liked)
        if "communities" in learned.details:
            return community_fold_in(learned, self._liked)
        if not learned.factors.shape[1]:
            return ConstantFoldIn()
        return pair_fold_in(learned, self._liked)

    def item_similarity(self, learned: Learned) -> ItemSimilarity:
        """Compare items without popularity, which all share; and of the core alone, unless features
        say something of others.
        """
        if not learned.factors.shape[1]:
            return ItemSimilarity()
        if "communities" in learned.details:
            shares = np.asarray(learned.details["communities"])
            return ItemSimilarity(
                shares=np.pad(shares, (0, learned.factors.shape[1] - len(shares)))
            )
        return ItemSimilarity(1, None if learned.details["featured"] else learned.some("core"))


def add_sentence(learned: Learned, sentence: str) -> Learned:
    """Return the same with one more sentence in the summary, if it is not empty."""
    said = f"{learned.details['learned']} {sentence}".rstrip()
    return replace(learned, details={**learned.details, "learned": said})


def usual_threshold(rating_range: Range) -> float | Literal["everything"]:
    """Three quarters up the range; everything where there is but one rating."""
    low, high = rating_range
    return EVERYTHING if low == high else low + 0.75 * (high - low)  # type: ignore[return-value]
