"""Communities: counts of all items by community, for sparse catalogs with a long tail.

A pair of items gets 1/n of a user with n items, and an entry (item, community) gets 1/√n with the
same noise; it is positive, and it reaches all items. The items of a user are taken as drawn from a
mixture of K distributions over the catalog, with weights θ of the user's own:

    j ~ Σ_z θ_z P_jz                                                                            (1)

**Whether.** ĉ are posterior means of the released counts. This route is taken where the `HEAD` most
popular items have less than `HEAD_SHARE` of all choices, so that pairs would miss the rest, and
where popularity's own eigenvalue of the core's pairs, S = Σ_core ĉ²/(ñ t √M), is at least
`LEAST_SIGNAL` of the edge of their noise. The core has M items, ĉ_j ≥ .055 μ^−½ √Σĉ; with fewer
than `SMALLEST_CORE` of them the budget is spent on another route.

**Start.** Pairs of the core are released and give vectors, as in `ranking`. With d dimensions above
the noise, K = max(8 + 6 d, M/36) clusters of directions v_j − v̄ (spherical k-means) are the first
communities: P_jz ∝ ĉ_j · 5 in the own cluster, .3 in all others, and 1 outside the core.

**Rounds.** Three times, users choose a community by (1) and add their items to its column
(`discreet.privacy.statistics.communities`). The released entries are

    Ñ_jz = ĉ_j π_z L_jz + N(0, s² + κ ĉ_j π_z L_jz)                                             (2)

s is known, and π follows from the columns' sums. The lifts L have, for items of about the same
popularity, one distribution on a grid, which expectation maximization finds (Kiefer and Wolfowitz,
1956). With posterior means N̂ of the entries, P_jz = N̂_jz/Σ_j N̂_jz.

**Check.** Three tenths of the users are held out of the first two rounds, since communities fit
those whose items they were made of, taste or no taste. Before the last round they leave out items
of their own, and release by how many more of them communities have in their lists than popularity
would have with the rest of the budget (`popularity_handicap`). Unless that exceeds the deviation of
noise and chance `CHECKED` times, fewer where pairs show taste, the rest releases counts.

**Pairs as well.** Where the core's pairs have a direction above their noise, lists are by the sum
of (1) and `PAIRS_WEIGHT` times the score (8) of `ranking`, from the pairs of the start. This costs
nothing, and the noise of pairs is another than that of communities. Only without profiles.

Privacy: the five releases are parts of one planned release (`discreet.privacy.release.plan`). What
they contain is decided by earlier releases, and everything else here computes with released
numbers.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.kernels.threads import even_cuts, run
from discreet.models.algorithm import most_frequent
from discreet.models.dpmf.pair_factorization import FittedFactors
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.communities import CommunityCounts, LeftOutHits, Mixture
from discreet.privacy.users.sealed_users import Users

#: Parts of the budget after counts and size, by release.
PARTS = (
    ("core pairs", 0.275),
    ("communities 1", 0.11),
    ("communities 2", 0.145),
    ("left-out check", 0.05),
    ("communities 3 (or counts)", 0.42),
)
HEAD = 1000  # items; pairs of so many are released well at usual budgets
# at most .32 on two data sets of books, and at least .57 on three of films, for ε from .5 to 50
HEAD_SHARE = 0.42
# .06 where nothing can be learned (amazon-book at ε = 1), and from .3 on communities help
LEAST_SIGNAL = 0.15
CORE_FROM = 0.055
# fewer items make too few communities: about 90 of book-crossing and 50 of generated data at ε = 1,
# where communities are at or below popularity, and 230 or more where they gain
SMALLEST_CORE = 150
LARGEST_CORE = 3000  # of more the pairs are below the noise, and take time
OWN = 5.0  # lift of the start in the own cluster
OTHER = 0.3  # and in all others
# users with so many items, on average, get entries divided by ĉ to the power of `DISCOUNT` times
# the noise of counts, at most `LARGEST_DISCOUNT`: with 16 items it covers a quarter more items at
# ε = 5 at no loss of recall; with 8 any discount loses (two data sets of books, split 11)
MANY_ITEMS = 11.0
DISCOUNT = 0.13
LARGEST_DISCOUNT = 0.4
STRENGTH = 0.05  # α of `discreet.kernels.mixtures`, over K, while learning
# α of a history, whose prior is π. On split 11 of two data sets of books at ε = 5 and 20, a uniform
# prior finds up to 12 % less; 2 or 4 find up to 1 % more of the one and 1 % less of the other
STRENGTH_TO_READ = 3.0
STEPS = 5  # while learning
STEPS_TO_READ = 10  # of a history
LIFTS = np.concatenate([[0.0, 0.1, 0.3], np.geomspace(0.6, 300.0, 14)])
SAMPLING = 0.2  # variance over mean of a count: entries of a user are about 1/√25
# deviations of the check's noise that the gain must exceed, where the core's pairs do not reach
# beyond the edge of their own noise; fewer by REACH times the part by which they do, down to LEAST.
# Users who are held out of the rounds are in these pairs, and what some of them share by chance
# makes hits: without this 4 of 40 trainings of generated users without taste passed with a gain of
# up to 3 deviations, and lost a fifth of recall each. Their pairs reach .97 to 1.04 of the edge, in
# one of 150 trainings 1.06; those of book-crossing at ε = 5 between 1.01 and 1.14
CHECKED = 3.2
REACH = 40.0
LEAST_CHECKED = 0.5
# and at least so many where they exceed this part of popularity's hits: 2 of 20 trainings of 3,000
# generated users without taste passed with 1, and lost a fifth of recall each
UNCERTAIN_CHECKED = 2.0
UNCERTAIN = 0.08
# items that each user leaves out, one at a time: of few users more, since chance decides, and of
# many fewer, since they take time
LEFT_OUT = (2, 8)
LEFT_OUT_IN_ALL = 200_000  # over the number of all users
TOP = 20  # items of a list
HELD_OUT = 0.3  # of users, for the check
MOST_ENTRIES = 1 << 25  # of (items, K): 256 MB as int64
BUCKET = 200  # the most popular items, whose lifts are fitted apart; then four times as many each
SAMPLE = 60_000  # entries that a distribution of lifts is fitted to: more change nothing


class Prospect(NamedTuple):
    """What released counts say about communities.

    Attributes
    ----------
    c : (n_items,)
        Posterior means ĉ.
    core : positions of the core's items
    head : float
        Share of all choices that the most popular items have.
    signal : float
        S.
    clear : int
        Items whose counts are large enough for the core.
    """

    c: NDArray[np.float64]
    core: NDArray[np.int64]
    head: float
    signal: float
    clear: int

    @property
    def is_promising(self) -> bool:
        """Whether the route is taken; `summary.explain_untried_communities` says why not."""
        enough = self.clear >= SMALLEST_CORE and self.signal >= LEAST_SIGNAL
        return self.head < HEAD_SHARE and enough


class Communities(NamedTuple):
    """What was learned, and the gain of the check in left-out items per user.

    Attributes
    ----------
    P : (n_items, K) float32
    shares : (K,)
        π: of a user without a history.
    gain, noise : float
        By how many left-out items, per user, communities exceed popularity; and its deviation.
    kept : bool
        Whether the check kept them; P is that of the second round where it did not.
    """

    P: NDArray[np.float32]
    shares: NDArray[np.float64]
    gain: float
    noise: float
    kept: bool


class CommunityModel(NamedTuple):
    """P with estimated counts and shares π: what users need for a statistic."""

    P: NDArray[np.float32]
    c: NDArray[np.float64]
    shares: NDArray[np.float64]

    def counts(self, levels: int, held_out: float = 0.0) -> CommunityCounts:
        """Counts by community; with π as prior, large communities would draw in all users."""
        K = len(self.shares)
        mixture = Mixture(self.P, np.full(K, 1 / K), STRENGTH * K, STEPS)
        return CommunityCounts(mixture, levels, held_out)

    def hits(self, levels: int, left_out: int = 1, handicap: float = 1.0) -> LeftOutHits:
        """Hits of so many left-out items of each user."""
        return LeftOutHits(
            Mixture(self.P, self.shares, STRENGTH_TO_READ, STEPS),
            self.c,
            handicap=handicap,
            left_out=left_out,
            best=TOP,
            levels=levels,
            held_out=HELD_OUT,
        )


def no_communities(n_items: int) -> CommunityModel:
    """Return one community of equally popular items, for a plan without data."""
    P = np.ones((n_items, 1), np.float32)
    return CommunityModel(P, np.ones(n_items), np.ones(1))


def assess_counts(
    counts: NDArray[np.float64], deviation: float, size: float, mu: float, pair_deviation: float
) -> Prospect:
    """Estimate counts, and what communities could learn, from released numbers alone."""
    c = posterior_counts(counts, deviation)
    clear = int((c >= CORE_FROM * mu**-0.5 * math.sqrt(c.sum())).sum())
    core = most_frequent(c, min(int(np.clip(clear, SMALLEST_CORE, LARGEST_CORE)), len(c)))
    total = max(float(counts.sum()), float(c[core].sum()), 1e-9)
    signal = float((c[core] ** 2).sum()) / size / (pair_deviation * math.sqrt(len(core)))
    return Prospect(c, core, float(np.sort(c)[-HEAD:].sum()) / total, signal, clear)


def learn_communities(
    session: Session,
    users: Users,
    lines: list[Release],
    prospect: Prospect,
    fitted: FittedFactors,
    deviation: float,
    after: float,
    size: float,
    levels: int,
    seed: int,
) -> Communities:
    """Release all rounds and the check; the last round only where the check keeps communities.

    Parameters
    ----------
    lines : first round, second round, check, last round
    fitted : vectors of the core
    deviation, after : of the noise on counts, now and if the last line released them as well
    """
    first, second, check, last = lines
    c = prospect.c
    P = start_communities(prospect, fitted, seed)
    model = CommunityModel(P, c, np.full(P.shape[1], 1 / P.shape[1]))
    for line in (first, second):
        model = run_round(session, users, line, model, levels, HELD_OUT)
    handicap = popularity_handicap(c, deviation, after)
    left_out = int(np.clip(round(LEFT_OUT_IN_ALL / size), *LEFT_OUT))
    statistic = users.sum(model.hits(levels, left_out, handicap))
    checked = HELD_OUT * size
    # hits differ by chance as well: each left-out item is popular with about this probability
    popular = float(np.sort(c)[-TOP:].sum() / c.sum())
    noise = math.hypot(
        session.deviation(check, statistic), math.sqrt(2 * popular * checked / left_out)
    )
    gain = float(session.release(check, statistic)[0])
    required = float(np.clip(CHECKED - REACH * (fitted.heard - 1), LEAST_CHECKED, CHECKED))
    if noise > UNCERTAIN * popular * checked:
        required = max(required, UNCERTAIN_CHECKED)
    kept = gain > required * noise
    if kept:
        model = run_round(session, users, last, model, levels)
    return Communities(model.P, model.shares, gain / checked, noise / checked, kept)


# ------------------------------------------------------------------ start and rounds


def start_communities(prospect: Prospect, fitted: FittedFactors, seed: int) -> NDArray[np.float32]:
    """P of the start, (n_items, K)."""
    core = prospect.core
    c = prospect.c
    M = len(core)
    K = max(8 + 6 * fitted.dimensions, M // 36)
    K = max(min(K, M // 12, MOST_ENTRIES // len(c)), 2)
    weight = np.maximum(c[core], 1e-9)
    V = fitted.V - (weight @ fitted.V) / weight.sum()
    length = np.linalg.norm(V, axis=1)
    cluster = spherical_means(V / np.maximum(length, 1e-12)[:, None], weight * length, K, seed)
    lift = np.ones((len(c), K))
    lift[core] = OTHER
    lift[core, cluster] = OWN
    return normalize_columns(c[:, None] * lift)


def run_round(
    session: Session,
    users: Users,
    line: Release,
    model: CommunityModel,
    levels: int,
    held_out: float = 0.0,
) -> CommunityModel:
    """New P and shares π, after one release of (2)."""
    statistic = users.sum(model.counts(levels, held_out))
    N = session.release(line, statistic)
    s = max(session.deviation(line, statistic), 1e-2)
    shares = estimate_shares(N, s)
    entries = estimate_entries(N, s, (1 - held_out) * model.c, shares)
    return CommunityModel(normalize_columns(entries), model.c, shares)


def normalize_columns(N: NDArray[np.float64]) -> NDArray[np.float32]:
    """Distributions over the items, each entry at least 10⁻¹² of its column."""
    N = np.maximum(N, 1e-300)
    P: NDArray[np.float32] = np.maximum(N / N.sum(axis=0), 1e-12).astype(np.float32)
    return P


def discount_popularity(
    P: NDArray[np.float32], c: NDArray[np.float64], deviation: float, size: float
) -> NDArray[np.float32]:
    """Return P with less of popular items, where users have many; θ does not depend on the scale of
    an item's entries.
    """
    if (c.sum() / size) ** 2 < MANY_ITEMS:  # a user with k items adds √k to the counts
        return P
    scale = np.maximum(c, deviation) ** -min(DISCOUNT * deviation, LARGEST_DISCOUNT)
    scale *= c.sum() / (c @ scale)
    return np.asarray(P * scale[:, None], np.float32)


def spherical_means(
    V: NDArray[np.float64], weight: NDArray[np.float64], K: int, seed: int
) -> NDArray[np.int64]:
    """Return the cluster of each direction: weighted k-means by cosine, the best of four starts."""
    weight = np.maximum(weight, 1e-12 * max(float(weight.max(initial=0.0)), 1.0))
    best = -math.inf
    found = np.zeros(len(V), np.int64)
    for start in range(4):
        rng = np.random.default_rng(seed + start)
        centers = V[rng.choice(len(V), 1, p=weight / weight.sum())]
        near = V @ centers[0]
        for _ in range(K - 1):
            far = np.maximum(1 - near, 1e-9) * weight
            centers = np.vstack([centers, V[rng.choice(len(V), p=far / far.sum())]])
            near = np.maximum(near, V @ centers[-1])
        for _ in range(30):
            cluster = np.argmax(V @ centers.T, axis=1)
            total = np.zeros((K, V.shape[1]))
            np.add.at(total, cluster, weight[:, None] * V)
            length = np.linalg.norm(total, axis=1, keepdims=True)
            centers = np.where(length > 0, total / np.maximum(length, 1e-12), centers)
        fit = float((weight * (V @ centers.T).max(axis=1)).sum())
        if fit > best:
            best = fit
            found = cluster
    return found


# ------------------------------------------------------------------ estimates by known noise


def posterior_counts(noisy: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Posterior means of counts ≥ 0 from c + N(0, deviation²), with the mixture over sizes that
    all noisy counts suggest (`discreet.models._empirical_bayes`), one noise for all.
    """
    s = max(deviation, 1e-3)
    sizes = np.append(
        0.0, np.geomspace(max(0.05 * s, 0.05), max(noisy.max(initial=0.0), 2 * s), 60)
    )
    variance = s**2 + SAMPLING * sizes
    # noise is the same for all, so counts that agree to a sixteenth of it are one value
    value, place, many = np.unique(
        np.rint(noisy * (16 / s)), return_inverse=True, return_counts=True
    )
    fit = -0.5 * (value[:, None] * (s / 16) - sizes) ** 2 / variance - 0.5 * np.log(variance)
    fit = np.exp(fit - fit.max(axis=1, keepdims=True))
    share = np.full(len(sizes), 1 / len(sizes))
    for _ in range(60):
        belongs = fit * share
        belongs *= (many / belongs.sum(axis=1))[:, None]
        share = 0.999 * belongs.sum(axis=0) / many.sum() + 0.001 / len(sizes)
    belongs = fit * share
    mean = (belongs @ sizes) / belongs.sum(axis=1)
    return np.asarray(np.maximum(mean[place.reshape(-1)], 1e-4))


def estimate_shares(N: NDArray[np.float64], s: float) -> NDArray[np.float64]:
    """π: the columns' sums, shrunk to their mean by their noise s √m."""
    sums = N.sum(axis=0)
    mean = max(float(sums.sum()), 1.0) / len(sums)
    noise = s**2 * len(N)
    spread = max(float(sums.var()) - noise, 1e-9)
    shares = np.maximum(mean + (sums - mean) * spread / (spread + noise), 0.1 * mean)
    return np.asarray(shares / shares.sum())


def estimate_entries(
    N: NDArray[np.float64],
    s: float,
    c: NDArray[np.float64],
    shares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Posterior means N̂ of (2)."""
    found = c[:, None] * shares
    # entries of rarer items are noise, and stay what popularity says
    some = np.flatnonzero(c > 0.3 * s)
    some = some[np.argsort(-c[some], kind="stable")]
    edges = [0]
    while edges[-1] < len(some):
        edges.append(min(max(4 * edges[-1], BUCKET), len(some)))
    for begin, end in itertools.pairwise(edges):
        rows = some[begin:end]
        part = rows[:: max(1, len(rows) * len(shares) // SAMPLE)]
        weight = np.full(len(LIFTS), 1 / len(LIFTS))
        none = np.empty((0, 0))
        for _ in range(12):
            each = np.zeros((len(part), len(LIFTS)))
            _lifts(N, part, c, shares, s, LIFTS, weight, none, each, 0, len(part))
            weight = each.sum(axis=0)
            weight = 0.999 * weight / weight.sum() + 0.001 / len(LIFTS)

        def work(start: int, stop: int, rows: Any = rows, weight: Any = weight) -> None:
            each = np.empty((0, 0))
            _lifts(N, rows, c, shares, s, LIFTS, weight, found, each, start, stop)

        run(work, even_cuts(len(rows)))
    return found


@njit(nogil=True, cache=True)
def _lifts(
    N: np.ndarray,
    rows: np.ndarray,
    c: np.ndarray,
    shares: np.ndarray,
    s: float,
    lifts: np.ndarray,
    weight: np.ndarray,
    found: np.ndarray,
    each: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Write posterior means of some rows into `found`, or, where that is empty, add up the
    posterior probabilities of the lifts in `each`.
    """
    G = len(lifts)
    p = np.empty(G)
    for i in range(start, stop):
        j = rows[i]
        for z in range(len(shares)):
            base = c[j] * shares[z]
            best = -np.inf
            for g in range(G):
                mean = base * lifts[g]
                p[g] = -0.5 * (N[j, z] - mean) ** 2 / (s * s + SAMPLING * mean)
                best = max(best, p[g])
            total = 0.0
            lift = 0.0
            for g in range(G):
                variance = s * s + SAMPLING * base * lifts[g]
                p[g] = weight[g] * np.exp(p[g] - best) / np.sqrt(variance)
                total += p[g]
                lift += p[g] * lifts[g]
            if len(found):
                found[j, z] = base * lift / total
            else:
                for g in range(G):
                    each[i, g] += p[g] / total


def popularity_handicap(c: NDArray[np.float64], now: float, after: float) -> float:
    """Return how many more hits popularity has with noise `after` on its counts than with noise
    `now`.

    Counts ĉ are taken for the truth and noise is drawn on them: the ratio of what the best twenty
    have. It is between 1 and 2.
    """
    rng = np.random.default_rng(0)
    rich = np.sort(c)[::-1][:20_000]  # others are in no list
    have = np.zeros(2)
    for _ in range(8):
        noise = rng.standard_normal(len(rich))
        for at, deviation in enumerate((now, after)):
            best = np.argpartition(-(rich + deviation * noise), min(20, len(rich) - 1))[:20]
            have[at] += rich[best].sum()
    return float(np.clip(have[1] / max(have[0], 1e-9), 1.0, 2.0))
