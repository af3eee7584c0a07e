"""DPALS: alternating least squares with user-level differential privacy (Chien et al., 2021).

Algorithms 1 and 2 and the loss (24) of the paper, with the corrections of docs/errata.md. Per user, private and free:

    u_i = clip((Σ_{j ∈ Ω_i} v_j v_jᵀ + λ₀ VᵀV + λ c_i^ν / Z · I)⁻¹ Σ_{j ∈ Ω_i} y_ij v_j,  Γ_u)                (1)

Released, with noise, from at most k items of each user:

    c̃ = Counts(Ω'),   G̃_j = Σ_{i ∈ Ω''_j} u_i u_iᵀ + noise,   g̃_j = Σ_{i ∈ Ω''_j} y_ij u_i + noise,
    K̃ = Σ_i u_i u_iᵀ + noise

and from these alone, for everybody to see:

    v_j = (Π_PSD(G̃_j) + λ₀ Π_PSD(K̃) + λ c̃_j^μ / Z′ · I)⁻¹ g̃_j                                              (2)

Steps: (a) noisy counts of a uniform sample decide which items are frequent; (b) every user keeps the k rarest frequent
items it has rated; (c) ratings are centred and cut to Γ_M; (d) T times (1) and (2). Items that are not frequent are
predicted by the user's own mean.

That is the paper, and implicit feedback as it comes. For ratings DPALS goes further (docs/beyond.md). As it comes,
``item_step="gradient"``, items take steps on released sums of residuals instead of (2):
`discreet.models.residual_steps`. With ``item_step="solve"``, every user contributes through all its frequent items with
weights w_ij² ∝ c̃_j^(-2a), Σ_j w_ij² = 1, instead of (b); factors are estimated from both sums by their known noise
(`discreet.models.dpals_shrink`); and later steps get more of the budget. ``shrinkage=False`` is the paper's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import item_features
from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded
from discreet.kernels import project_psd, solve_psd
from discreet.models.base import Progress
from discreet.models.dpals_prior import FeaturePrior
from discreet.models.dpals_readout import ReadableALS
from discreet.models.dpals_shrink import Repeated, item_factors, pooled, pooled_sums
from discreet.privacy.plan import Plan
from discreet.privacy.sealed import Users
from discreet.privacy.session import Session
from discreet.privacy.statistics import unpack

logger = logging.getLogger("discreet")

TYPICAL_WEIGHT = 0.1  # of a contribution when all of a user's items share Σ w² = 1: that of a user with 100 items


class DPALS(ReadableALS):
    """Private alternating least squares.

    Parameters
    ----------
    factors : int, optional
        Rank r. 0 learns nothing but a bias for each item. Default: chosen by the budget, 6 at ε = 1 and 8 at ε = 20
        (δ = 1e-5). Solving wants smaller ranks, because every item then has r(r+3)/2 noisy numbers per step: 2 and 6
        with shrinkage; 16 without, or 32 for implicit feedback on 10,000 items and more.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int, optional
        T. Every step costs. Default: 8, or 3 without factors; when solving, chosen by the budget, 4 at ε = 1 and 9 at ε
        = 20; 2 without shrinkage, or 2 to 4 for implicit feedback on 10,000 items and more.
    regularization : float, optional
        λ, of users. Default 8; when solving 2 (up to 3.3 beyond ε = 20), and 80 without shrinkage, where it is that of
        items too. For implicit feedback 0.5, or on 10,000 items and more 0.085 times the square of the average signal
        over noise, which follows from the released counts: less noise leaves more to over-fit.
    feedback : {"explicit", "implicit"}
    unobserved_weight : float, optional
        λ₀. Default 0 for explicit and 0.6 for implicit feedback; if positive, K̃ is released at every step.
    user_exponent, item_exponent : float, optional
        ν and μ. Default of ν: 0 with shrinkage, else 1.
    noise_ridge : float
        Added to every item's ridge, in units of the known size √(2r) · sd of the noise on its Gram matrix: what noise
        can turn into a small eigenvalue should not be divided by. 0 is the paper's algorithm.
    user_normalizer : float
        Z, a *public* number (erratum 4): a user with this many ratings gets the ridge λ.
    max_items : int
        k, how many items of a user are contributed, where they are not weighted.
    user_norm : float
        Γ_u.
    intercept : float, optional
        ι: a constant first coordinate of every user's vector, below Γ_u, so that items have a bias. Default for
        explicit feedback: between 0.5 and 0.9 of Γ_u, more where by the released counts there is little signal, and
        biases are most of what can be learnt. When solving 0.6, but 0.8 and 0.95 where the average signal over noise is
        below 7 and 4; 0.5 without shrinkage. 0 is the paper's algorithm.
    rating_range : (low, high), optional
        Public range of the ratings. Inferred where not given, which is recorded as a caution.
    rating_bound : float, optional
        What a user's residuals are cut to, as a weighted root mean square. Default: the width of the range over 5. When
        solving, Γ_M: centred ratings are cut to ±Γ_M, by default the width over 4.5, or over 3 without shrinkage.
    centring : {"user", "global"} or float
        Subtract every user's own mean (free), a released global mean, or a public constant.
    item_step : {"gradient", "solve"}, optional
        How items learn, see above. Default: "gradient" for ratings, unless a parameter is given that only solving has.
        For solving only: the exponents, `unobserved_weight`, `noise_ridge`, `user_normalizer`, `max_items`,
        ``centring="global"``, and of those below all but `adaptivity`, `growth`, `shares`, `initial_scale`,
        `item_features` and `popularity`.
    item_fraction : float, optional
        β: the share of items, the most frequent, that get factors. Default: 0.4 without shrinkage; with it, all items
        whose noisy count is at least as large as the noise on it.
    sampling : {"adaptive", "rarest", "uniform"}, optional
        Through which items a user contributes: all, with weights that favour rare ones; its k rarest; k at random.
        Default: "adaptive" with shrinkage, else "rarest".
    adaptivity : float
        a, how much adaptive weights favour rare items.
    shrinkage : bool, optional
        Estimate factors by the known noise instead of solving (2). Default: for explicit feedback, unless `sigmas` are
        given. False is the paper's algorithm, and changes the defaults that are said to depend on it.
    growth : float, optional
        How many times the budget μ² of a step is that of the step before. Default 1.4; when solving 2 with shrinkage,
        else 1.
    recount : bool
        Release the counts of what is contributed as well, as Algorithm 2 does; else the first counts serve.
    initialization : {"random", "spectral"}
        Item factors at random, or from the released covariance of the ratings (supplement B.4).
    isometric : bool
        Give the numbers off the diagonal of a Gram matrix 1/√2 of the noise (erratum 5); False is for comparison.
    projection, orthonormalize, resample : bool
        Project Gram matrices (else the ablation), replace V by V(VᵀV)^(−1/2), draw new samples at every step.
    shares : dict, optional
        Parts of the budget μ² (relative to each other) by the names of the plan: "size", "counts", "recounts", "bias",
        "balance", "gradient"; when solving "counts", "recounts", "gram", "sum", and where they apply "centre sum",
        "centre count", "initial", "global".
    sigmas : dict, optional
        Noise in the paper's units instead of a budget, by the same names: σ_p for counts and centre, σ_G for "gram" and
        "global", σ_g for "sum". ``epsilon`` is then ignored; the statement says what it really costs.
    initial_scale : float, optional
        The standard deviation of the item factors at the start.
    item_features : file, frame, mapping or array, optional
        Public features of the items (`discreet.data.features`), such as genres and years, as a prior for their factors:
        costs no privacy, helps rare items most, and gives factors to items that were not heard at all. They are input
        like ratings, and saved with a model only as the name of their file. Not without shrinkage.
    popularity : bool, optional
        Whether the released counts are such a feature too. Default: yes; when solving, if there are item_features.
    pooled_intercept : bool, optional
        Average what the steps release about the intercept, which is the same in all, so that no step's noise is wasted
        for the items' biases. With shrinkage only. Default: where the signal is faint (see `intercept`).
    pooled_items : bool, optional
        For implicit feedback: draw each item's sums towards what an item with its count has on average, by the known
        noise. Default: on catalogues below 10,000 items, and on larger ones where there is little signal.
    allow_large_delta : bool
        Take a `delta` above 1e-3 nevertheless; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
        Seed of where training starts and of which items people contribute; by default another one in every fit. Seeded
        noise needs one.

    Attributes
    ----------
    counts_ : (n_items,) float64, or None for models saved by versions that did not keep them
        About how many people rated each item: the released noisy counts, which may be negative, over what one rating
        adds on average; when solving with adaptive weights, over what one of somebody with 100 ratings adds.
    signal_to_noise_ : dict
        The most that an item's sum can hold over the noise on it, by quantile of items, from the released counts.
    """

    # ------------------------------------------------------------ learning

    def fit(self, ratings: Ratings, *, progress: Progress | None = None) -> Self:
        self._begin(ratings)
        self._infer_range(ratings)
        self._faint = 0.0
        X = None if self.item_features is None else item_features(self.item_features, ratings.item_ids)
        users, session = self._open_session(ratings)
        self._assume_range(session)
        if X is not None:
            session.assume("features", f"the features of the items, {X.shape[1]:,} for each")
        if self._descends:
            return self._descend(ratings, users, session, X, progress)
        self._contribute(users, None)
        counts = session.release("counts", users.item_counts())
        self.counts_ = counts.astype(np.float64) / self._one_rating(len(counts))
        unsure = session.plan.noise_multiplier("counts") * self._spread(users)
        frequent = self._frequent(counts)
        users, counts = users.restrict(frequent), counts[frequent]
        self._centre(users, session)
        priority = self._priority(counts, unsure)
        self._contribute(users, priority)
        if self.recount:
            counts = session.release("recounts", users.item_counts())
        heard = np.isfinite(priority)
        self._check_signal(session, counts[heard], *self._noise_levels(session.plan, self._spread(users)))
        prior = self._prior(X, unsure, frequent)
        V = self._initial(users, session, len(frequent), prior)
        for step in range(self._steps):
            if self.resample and step:
                self._contribute(users, priority, draw=step)
            F, b = self._parts(V)
            users.solve(
                F,
                self._lambda(),
                exponent=self._user_exponent,
                scale=self._user_scale(),
                unobserved=self._unobserved(),
                bias=b,
                intercept=self._intercept(),
            )
            if self._shrinks:
                V = self._estimate(users, session, counts, heard, step, prior)
            else:
                V = self._item_step(users, session, counts, step)
            if progress:
                progress(step + 1, self._steps, "steps")
        if prior is not None:  # which has factors for every item
            V, frequent, heard = prior.complete(V), np.arange(ratings.n_items), np.ones(ratings.n_items, bool)
        self._finish(ratings, V[heard], frequent[heard], session)
        return self

    def _descend(
        self, ratings: Ratings, users: Users, session: Session, X: NDArray[Any] | None, progress: Progress | None
    ) -> Self:
        """Steps of `discreet.models.residual_steps`."""

        def note(step: int, move: float) -> None:
            if progress:
                progress(step + 1, self._steps, "steps")

        def check(counts: NDArray[Any], deviation: float) -> None:
            self._check_signal(session, counts, deviation, steps.noise(session.plan))

        steps = self._residual_steps()
        found = steps.run(users, session, X, note, check)
        self.centre_, self.counts_ = found.centre, found.counts
        self.frequent_ = np.ones(ratings.n_items, bool)
        self.privacy_ = session.finish()
        self.restore_items(ratings.item_ids, found.factors, found.biases, ratings.titles, self._range())
        return self

    def _estimate(
        self,
        users: Users,
        session: Session,
        counts: NDArray[Any],
        heard: NDArray[np.bool_],
        step: int,
        prior: FeaturePrior | None,
    ) -> NDArray[Any]:
        """Equation (4) of `discreet.models.dpals_shrink`: the noise is known, so use it."""
        plan, relation = session.plan, self.neighbouring
        names = self._name("gram", step), self._name("sum", step)
        grams, sums = users.item_grams(), users.item_sums()
        g = session.release(names[1], sums, np.float32)
        G = np.empty(grams.shape, np.float32)
        for rows, block in session.release_blocks(names[0], grams, dtype=np.float32):
            G[rows] = block
        floor = plan.noise_multiplier("recounts") * self._spread(users) / 2
        gain = np.ones(g.shape[1])
        if self._pools:
            if step == 0:
                self._repeated = Repeated(), Repeated()
            G[:, 0], _ = self._repeated[0].add(G[:, 0], plan.noise_multiplier(names[0]))
            g[:, 0], gain[0] = self._repeated[1].add(g[:, 0], plan.noise_multiplier(names[1]))
        V = np.zeros(g.shape, np.float32)
        V[heard] = item_factors(
            G[heard],
            g[heard],
            np.maximum(counts[heard], floor),
            rating_bound=self.bounds().value,
            gram_noise=plan.noise_multiplier(names[0]) * grams.sensitivity(relation, "l2"),
            sum_noise=plan.noise_multiplier(names[1]) * sums.sensitivity(relation, "l2"),
            weight=TYPICAL_WEIGHT if self._sampling == "adaptive" else 1.0,
            towards=prior,
            heard=heard,
            gain=gain,
        )
        if prior is not None:
            V[~heard] = prior.mean(~heard)
        return V

    def _item_step(self, users: Users, session: Session, counts: NDArray[Any], step: int) -> NDArray[Any]:
        """Equation (2), block by block of items."""
        K, ridge = None, self._item_ridge(counts, session.plan.noise_multiplier(self._name("gram", step)))
        if self._unobserved() > 0:
            K = unpack(session.release("global", users.global_gram(), np.float32), self._rank)
            project_psd(K)
            K = self._unobserved() * K[0]
        g = session.release(self._name("sum", step), users.item_sums(), np.float32)
        blocks: Iterable[tuple[slice, NDArray[Any]]]
        if self._pools_items(self.signal_to_noise_["average"]):
            g, blocks = self._pool(users, session, counts, step, g)
        else:
            grams = users.item_grams(self.isometric)
            blocks = session.release_blocks(self._name("gram", step), grams, dtype=np.float32)
        V = np.empty((users.n_items, self._rank), np.float32)
        room = None  # for the matrices of a block: new memory for each would cost more than filling it
        for rows, G in blocks:
            room = np.empty((len(G), self._rank, self._rank), np.float32) if room is None else room
            V[rows] = solve_psd(unpack(G, self._rank, room, False), g[rows], ridge[rows], K, project=self.projection)
        if self.orthonormalize:
            values, Q = np.linalg.eigh((V.T @ V).astype(np.float64))
            V = (V @ (Q / np.sqrt(np.maximum(values, 1e-12))) @ Q.T).astype(np.float32)
        return V

    def _pool(
        self, users: Users, session: Session, counts: NDArray[Any], step: int, g: NDArray[Any]
    ) -> tuple[NDArray[Any], list[tuple[slice, NDArray[Any]]]]:
        """Sums, and Gram matrices as they are released, drawn towards what an item with its count has on average."""
        plan, relation = session.plan, self.neighbouring
        names, grams = (self._name("sum", step), self._name("gram", step)), users.item_grams()
        c = np.maximum(counts, plan.noise_multiplier("recounts") * self._spread(users) / 2)
        G = np.empty(grams.shape, np.float32)
        for rows, block in session.release_blocks(names[1], grams, dtype=np.float32):
            G[rows] = block
        C, own = pooled(G, c, plan.noise_multiplier(names[1]) * grams.sensitivity(relation, "l2"))
        G *= own[:, None].astype(np.float32)
        G += ((1 - own) * c)[:, None] * C
        deviation = plan.noise_multiplier(names[0]) * users.item_sums().sensitivity(relation, "l2")
        parts = [slice(start, start + 2048) for start in range(0, len(G), 2048)]
        return pooled_sums(g, c, deviation).astype(np.float32), [(rows, G[rows]) for rows in parts]

    def _spread(self, users: Users) -> float:
        """How far one user can move the counts: what their noise multiplier multiplies."""
        return users.item_counts().sensitivity(self.neighbouring, "l2")

    def _one_rating(self, n_items: int) -> float:
        """About what one rating adds to the first counts, by public numbers alone: 1, or 1/√n_i with weights."""
        return max(TYPICAL_WEIGHT, n_items**-0.5) if self._sampling == "adaptive" else 1.0

    def _frequent(self, counts: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of the ⌈β m⌉ items with the largest noisy counts (erratum 7: noisy, and charged)."""
        return np.sort(np.argsort(-counts, kind="stable")[: self._n_frequent(len(counts))])

    def _priority(self, counts: NDArray[Any], unsure: float) -> NDArray[Any]:
        """What users choose or weigh their items by; infinite where the noise alone could have made the count.

        Such an item gets no weight and no factors, and is predicted by the user's own mean.
        """
        if self._sampling != "adaptive":
            return counts
        floored = np.maximum(counts, max(unsure, 1e-9))
        if not self._heard:
            return floored
        heard = counts >= min(unsure, counts.max())
        return np.where(heard, floored, np.inf)

    def _centre(self, users: Users, session: Session) -> None:
        """Release the global mean, if that is what ratings are centred by (erratum 3: its sensitivity is k Γ_M)."""
        low, high = self._range()
        self.centre_ = float(self.centring) if isinstance(self.centring, (int, float)) else (low + high) / 2
        if self._explicit and self.centring == "global":
            users.recentre(self.centre_)  # around the middle of the range, sums are smaller
            self._contribute(users, None)
            total = session.release("centre sum", users.rating_sum())[0]
            count = session.release("centre count", users.rating_count())[0]
            self.centre_ = float(np.clip(self.centre_ + total / max(count, 1.0), low, high))
            users.recentre(self.centre_)

    def _item_ridge(self, counts: NDArray[Any], multiplier: float) -> NDArray[Any]:
        """λ c̃_j^μ / Z′, with Z′ such that an average rating has weight 1, and what the noise asks for."""
        c = np.maximum(counts, 1.0)
        weight = c**self.item_exponent * c.sum() / (c ** (1 + self.item_exponent)).sum()
        relation = math.sqrt(2.0) if self.neighbouring == "replace-one" else 1.0
        weights = 1.0 if self._sampling == "adaptive" else self.max_items
        sd = multiplier * math.sqrt(weights) * self.user_norm**2 * relation
        return self._lambda() * weight + self.noise_ridge * math.sqrt(2 * self._rank) * sd

    def _prior(self, X: NDArray[Any] | None, unsure: float, frequent: NDArray[np.int64]) -> FeaturePrior | None:
        """What features, and the released counts, say about items before they are estimated."""
        if X is None and not self.popularity:
            return None
        assert self.counts_ is not None
        floor = max(unsure, 1e-9) / self._one_rating(len(self.counts_))
        counts = np.where(self.counts_ < floor, floor / 2, self.counts_)  # what noise alone could be is not known
        return FeaturePrior(
            X, np.log(counts) if self.popularity is not False else None, frequent, self._rank - self._factors
        )

    def _initial(self, users: Users, session: Session, n: int, prior: FeaturePrior | None) -> NDArray[Any]:
        scale = self.initial_scale
        if scale is None:
            implicit = math.sqrt(max(self._lambda(), 0.5) / (self._unobserved() * n + 40))
            scale = (0.2 if self._shrinks else 0.3) if self._explicit else implicit
        none = np.zeros((n, self._rank - self._factors), np.float32)
        if self.initialization == "random":
            rng = np.random.default_rng(self.random_state)
            start = rng.standard_normal((n, self._factors))
            if prior is not None:
                start = prior.start(start)
            return np.hstack([none, (scale * start).astype(np.float32)])
        W = session.release("initial", users.covariance(self._row_norm()))
        Q = np.linalg.eigh((W + W.T) / 2)[1][:, -self._factors :]
        return np.hstack([none, (scale * math.sqrt(n) * Q).astype(np.float32)])

    def _parts(self, V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors and biases in what the item step solves for."""
        if self._rank == self._factors:
            return V, np.zeros(len(V), np.float32)
        return np.ascontiguousarray(V[:, 1:]), self._intercept() * V[:, 0]

    def _noise_levels(self, plan: Plan, spread: float) -> tuple[float, float]:
        """Deviations of the noise on counts and on the last right-hand sides, relative to what a rating can add."""
        last = plan.noise_multiplier(self._name("sum", self._steps - 1))
        replaced = self.neighbouring == "replace-one"  # which moves a sum by √2 times more than a count
        noise = last * spread * math.sqrt(self._rank) * (math.sqrt(2.0) if replaced else 1.0)
        return plan.noise_multiplier("recounts" if self.recount else "counts") * spread, noise

    def _check_signal(self, session: Session, counts: NDArray[Any], counting: float, noise: float) -> None:
        """Compare, from released counts alone, the most that an item's sum can hold with the noise on it."""
        levels = [*np.quantile(counts / noise, [0.1, 0.5, 0.9]), counts.mean() / noise]
        self.signal_to_noise_ = dict(zip(("10 %", "50 %", "90 %", "average"), map(float, levels), strict=True))
        shown = ", ".join(f"{name}: {value:.2g}" for name, value in self.signal_to_noise_.items())
        unsure = 2 * counting / math.sqrt(len(counts)) / noise
        if levels[3] < max(0.1, unsure):  # the average, because single counts drown in their own noise first
            advice = "raise epsilon" + ("" if self._descends else " or lower factors, iterations or item_fraction")
            self.privacy_ = session.statement
            raise BudgetExceeded(
                f"ε = {self.epsilon:g} is too little for so few people: the noise on an item's sum drowns all that the "
                f"sum can be (signal over noise by quantile of items, {shown}); {advice} (the counts that this is read "
                "from have been paid for: privacy_ says how much)"
            )
        self._signal_lambda = float(np.clip(0.085 * levels[3] ** 2, 0.1, 40.0))
        if self.intercept is None and self.pooled_intercept is None and self._shrinks and not self._descends:
            self._faint = 0.95 if levels[3] < 4 else 0.8 if levels[3] < 7 else 0.0
        if levels[1] < 1:
            advice = "they get little but what others share" if self._shrinks else "lower item_fraction"
            logger.warning("half of the items hold less signal than noise at best (%s): %s", shown, advice)

    def _finish(self, ratings: Ratings, V: NDArray[Any], frequent: NDArray[np.int64], session: Session) -> None:
        factors, biases = np.zeros((ratings.n_items, self._factors), np.float32), np.zeros(ratings.n_items, np.float32)
        factors[frequent], biases[frequent] = self._parts(V)
        self.frequent_ = np.zeros(ratings.n_items, bool)
        self.frequent_[frequent] = True
        self.privacy_ = session.finish()
        self.restore_items(ratings.item_ids, factors, biases, ratings.titles, self._range() if self._explicit else None)
