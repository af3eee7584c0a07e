"""Exact sums of public users as a prior for released ones, its worth estimated from released sums.

Public users may be other people, at other times. So nothing is assumed of them but that large
public counts tend to be large private ones, and what they are worth is estimated.

Counts. Items are put into bins by their public count p_j (`COUNT_BINS`). In bin B the released
counts y_j = c_j + N(0, t²) give

    c_j ~ N(α_B p_j, V_B),  α_B = Σ_B y_j/Σ_B p_j,  V_B = mean of (y_j − α_B p_j)² − t² over B   (1)

(a constant for items without a public count), so that V has all that makes public counts differ:
other people, few of them. Estimates are posterior means. A public set that says nothing has bins
that are all alike, and estimates keep the order of the released counts.

Pairs. With Ĝ the released pairs and P those of public users times ñ/their number, both centered
alike, and whitened by h_j = (t + √θ₀ c_j)^−½,

    P = a G + N(0, a² θ c_j c_k)                                                                 (2)
    X = Σ Ĝ P,  S = Σ Ĝ² − noise,  a = X/S,  a² θ = (Σ P² − a X)/Σ c_j c_k                       (3)

θ₀ is the variance that drawing so few people leaves; a² θ is at least that. P/a has infinite noise
where X does not stand out of the noise of Ĝ, and (2) is then not used. Both are averaged by
1/t² and 1/(θ c_j c_k). What is left of the noise is about σ_j σ_k with σ_j^−2 = t^−2 + (θ c_j²)^−1;
entries are scaled to one noise for all items, as rows of several trainings are (`level_noise`).

All of this is post-processing of released numbers and of public ones.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models.dpmf.released_rows import center_pairs, uncenter_pairs
from discreet.privacy.statistics.base import Statistic
from discreet.privacy.statistics.pairs import LikeCounts, PairSums
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.public_users import PublicUsers
from discreet.privacy.users.steps import Restrict

FIRST_BIN = 32  # items with the largest public counts; every further bin has three times as many
# part of the variance of counts that public counts explain, from which on they are used, and pairs
# of public users alone; lowered from 0.5 after 0.42 to 0.45 was seen on split 3 of amazon-book
EXPLAINED = 0.2
# of the noise that public pairs leave at the edge of the core, which decides how large a core is.
# Interpolated, not compared: 0.25 and 0.375 and three fixed sizes were tried on splits 0 to 3 of
# MovieLens 1M, where a larger core gained at ε ≤ 1 and lost at ε = 5
CORE_POWER = 0.45
LEAST_CHOICES = 5  # by public users, of the items in the core where their pairs are used alone
# likewise, of items that the core is enlarged by. With 47 public users of MovieLens 100K, a core of
# 290 items instead of 215 lost 2.4 % at ε = 5 (splits 4 to 9 and 20 to 29)
CHOICES_IN_CORE = 10
Z_SHARED = 3.0  # standard errors from which on public and released pairs have something in common


class LeveledPairs(NamedTuple):
    """Pairs whose noise is about the same everywhere: values times f_j f_k, f, and the noise t."""

    G: NDArray[np.float32]
    f: NDArray[np.float64]
    t: float

    @property
    def is_combined(self) -> bool:
        """Whether public pairs are among them."""
        return bool((self.f != 1).any())


@dataclass(frozen=True)
class PublicSums:
    """What public users say about items.

    Parameters
    ----------
    users : PublicUsers
        With levels of liking as their values.
    counts : (n_items,)
        Like counts.
    size : float
        Number of users with an item.
    weight : float
        What one choice of an average user adds to a count.
    """

    users: PublicUsers
    counts: NDArray[np.float64]
    size: float
    weight: float

    @classmethod
    def from_users(cls, users: PublicUsers, levels: int) -> PublicSums:
        size = max(float(users.sum(UserCount(active=True))[0]), 1.0)
        counts = users.sum(LikeCounts(levels))
        # the squares of one user's choices add up to 1
        return cls(users, counts, size, size / max(float(counts.sum()), 1e-9))

    def combine_counts(
        self, value: NDArray[np.float64], deviation: float
    ) -> tuple[NDArray[np.float64], float]:
        """Return posterior means by (1), and the root of their mean variance."""
        if not self.agrees(value, deviation):
            return value, deviation
        found = value.copy()
        variance = np.full(len(value), deviation**2)
        for bin_ in self._bins():
            mean, spread = self._prior(bin_, value, deviation)
            weight = spread / (spread + deviation**2)
            found[bin_] = weight * value[bin_] + (1 - weight) * mean
            variance[bin_] = weight * deviation**2
        return found, math.sqrt(float(variance.mean()))

    def agrees(self, value: NDArray[np.float64], deviation: float) -> bool:
        """Return whether public counts explain enough of the released ones to be used."""
        return self.estimate_agreement(value, deviation) >= EXPLAINED

    def estimate_agreement(self, value: NDArray[np.float64], deviation: float) -> float:
        """Return the part of the variance of counts that public counts explain, at most 1."""
        total = float(((value - value.mean()) ** 2).sum()) - len(value) * deviation**2
        bins = self._bins()
        left = sum(len(one) * self._prior(one, value, deviation)[1] for one in bins)
        return 1 - left / total if total > 0 else 0.0

    def _bins(self) -> list[NDArray[np.int64]]:
        order = np.argsort(-self.counts, kind="stable")
        known = int((self.counts > 0).sum())
        edges = [0]
        while edges[-1] < known:
            edges.append(min(max(4 * edges[-1], FIRST_BIN), known))
        if len(edges) > 2 and edges[-1] - edges[-2] < edges[-2] - edges[-3]:
            del edges[-2]
        edges += [len(order)] if known < len(order) else []
        return [order[a:b] for a, b in itertools.pairwise(edges)]

    def _prior(
        self, some: NDArray[np.int64], value: NDArray[np.float64], deviation: float
    ) -> tuple[NDArray[np.float64], float]:
        """Return the mean of (1) for the items of a bin, and V, at least its standard error."""
        p = self.counts[some]
        y = value[some]
        total = float(p.sum())
        mean = np.full(len(y), max(float(y.mean()), 0.0))
        if total > 0:
            mean = max(float(y.sum()) / total, 0.0) * p
        spread = float(((y - mean) ** 2).mean()) - deviation**2
        return mean, max(spread, deviation**2 * math.sqrt(2 / len(y)))

    # ------------------------------------------------------------ pairs

    def pairs(
        self,
        statistic: Statistic,
        core: NDArray[np.int64],
        c: NDArray[np.float64],
        size: float,
        centered: bool,
    ) -> PublicPairs:
        """Return the pairs of these users in the core, as if there were `size` of them.

        Parameters
        ----------
        statistic : pair sums, with all that is released of private users
        c : (m,) counts of the core
        centered : whether the statistic centers pairs on c
        """
        P = np.zeros((len(core), len(core)), np.float32)
        summed = self.users.copy_after(Restrict(core)).sum(statistic)
        PairSums.unpack(summed, 0, P, size / self.size)
        theta = size / max(float(c.sum() ** 2 - (c**2).sum()), 1e-9) * size / self.size
        rho = self._preferences(core, c)
        S: NDArray[Any] = uncenter_pairs(P, c) if centered else P
        S = (S / np.outer(rho, rho)).astype(np.float32)
        return PublicPairs(center_pairs(S, c) if centered else S, c / np.sqrt(rho), theta)

    def _preferences(self, core: NDArray[np.int64], c: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how much more often than others these users choose each item, 1 on average.

        With mean μ_j = κ c_j and weight w of one choice, p_j/w ~ Poisson(ρ_j μ_j/w) and
        ρ_j ~ Gamma with mean 1 and variance ω, which follows from the moments of p.
        """
        p = self.counts[core]
        mean = c * max(float(p.sum() / c.sum()), 1e-12)
        unit = self.weight
        chance = float(((p - mean) ** 2 - unit * mean).sum())
        omega = max(chance / float((mean**2).sum()), 1e-3)
        return np.asarray((p / unit + 1 / omega) / (mean / unit + 1 / omega))

    def often_chosen(self, least: float) -> int:
        """Return how many items have so many choices of an average user, or more."""
        return int((self.counts >= least * self.weight).sum())

    def noise_left(self, c: NDArray[np.float64], t: float, size: float) -> float:
        """Return about how much of the noise t public pairs leave, for items at the edge of a core
        with these counts.
        """
        theta = size / max(float(c.sum() ** 2 - (c**2).sum()), 1e-9) * size / self.size
        least = max(float(c.min()), 0.5)
        return float((1 + t**2 / (theta * least**2)) ** -CORE_POWER)


class PublicPairs(NamedTuple):
    """Pairs P (m, m) of public users; an entry has the variance θ₀ s_j s_k, by `spread` s."""

    P: NDArray[np.float32]
    spread: NDArray[np.float64]
    theta: float


def combine_pairs(
    G: NDArray[Any], t: float, public: PublicPairs, c: NDArray[np.float64]
) -> LeveledPairs:
    """Return released and public pairs together by (2) and (3).

    Parameters
    ----------
    G : (m, m) released pairs
    t : deviation of one entry
    public : PublicPairs
    c : (m,) counts
    """
    P, s, theta = public
    h = (t + math.sqrt(theta) * s) ** -0.5
    whiten = np.outer(h, h)
    np.fill_diagonal(whiten, 0.0)
    g, p = G * whiten, P * whiten
    noise = whiten**2 * t**2
    cc = float((whiten**2 * np.outer(s, s)).sum())
    power = float((p**2).sum())
    shared = float((g * p).sum())
    error = math.sqrt(2 * float((noise * p**2).sum()))
    if shared <= Z_SHARED * error:  # also where there is no public pair at all
        return LeveledPairs(G.astype(np.float32), np.ones(len(c)), t)
    own = float((g**2).sum() - noise.sum())
    own = max(own, shared**2 / max(power - theta * cc, 1e-3 * power))  # Cauchy and Schwarz
    a = shared / own
    found = max(power - a * shared, theta * cc) / cc / a**2
    return level_pairs(G, t, P / a, c, s, found)


def level_pairs(
    G: NDArray[Any] | None,
    t: float,
    P: NDArray[Any],
    c: NDArray[np.float64],
    spread: NDArray[np.float64],
    theta: float,
) -> LeveledPairs:
    """Average pairs by t² and θ s_j s_k and scale them to one noise; without G, public ones
    alone.
    """
    precision = 1 / (theta * spread**2)
    value: NDArray[Any] = P
    if G is not None:
        weight = 1 / (1 + theta * np.outer(spread, spread) / t**2)
        value = weight.astype(np.float32) * P + (1 - weight).astype(np.float32) * G
        precision = precision + t**-2
    item = precision**-0.5
    level = float(np.median(item))
    f = np.sqrt(level / item)
    G = (value * np.outer(f, f)).astype(np.float32)
    np.fill_diagonal(G, 0.0)
    return LeveledPairs(G, f, level)
