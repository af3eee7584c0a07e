"""Released counts and pairs as estimates with known noise, and the signal that pairs will have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models.dpmf.pair_factorization import FittedFactors
from discreet.models.dpmf.public_sums import PublicSums
from discreet.models.dpmf.released_rows import ReleasedRows
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.statistics.centered_pairs import KAPPA
from discreet.privacy.statistics.pairs import PairSums

# mean of q_i/‖x_i‖²: 0.76 to 0.88 on four data sets; between 0.65 and 0.95 recall is the same
STRETCH = 0.8
TOP_ITEMS = 20  # items that may decide the lists


class Estimate(NamedTuple):
    """Released numbers with the deviation of their noise."""

    value: NDArray[np.float64]
    deviation: float

    @classmethod
    def release(cls, session: Session, line: str | Release, statistic: ReleasableSum) -> Estimate:
        return cls(
            session.release(line, statistic).astype(np.float64), session.deviation(line, statistic)
        )

    def above_noise(self, some: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return those of some items, at least as large as the noise or as half a user."""
        return np.maximum(self.value[some], max(self.deviation, 0.5))

    def with_another(self, other: Estimate) -> Estimate:
        """Both of the same numbers, averaged by their noise."""
        one, two = self.deviation**-2, other.deviation**-2
        return Estimate((one * self.value + two * other.value) / (one + two), (one + two) ** -0.5)


def with_public(counts: Estimate, public: PublicSums | None) -> Estimate:
    """Return the counts with those of public users as a prior."""
    return counts if public is None else Estimate(*public.combine_counts(*counts))


def counts_of(rows: ReleasedRows, size: float, forgetting: float) -> Estimate:
    """Counts of so many users by all rows, and their median deviation.

    Items that were in fewer rows than most have more noise, and are shrunk where it may be all that
    they have: by at most the ratio of deviations, and hardly if the count is far above its noise.
    """
    found = rows.counts(size, forgetting)
    deviation = float(np.median(found.deviation[np.isfinite(found.deviation)]))
    most = np.minimum(deviation / found.deviation, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = 1 - (found.deviation**2 - deviation**2) / found.value**2
    return Estimate(found.value * np.clip(np.nan_to_num(kept), most, 1.0), deviation)


def least_size(counts: Estimate) -> float:
    """Return a lower bound of the number of users: Σ_j c_j² = Σ_ik ⟨x_i, x_k⟩/(‖x_i‖ ‖x_k‖) is at
    most their number squared.
    """
    return math.sqrt(max(float((counts.value**2 - counts.deviation**2).sum()), 1.0))


class Signal(NamedTuple):
    """Signal-to-noise ratio of item pairs, estimated from released counts.

    `signal` is popularity's eigenvalue of the pairs over the edge of their noise, `top` the part of
    all choices that few items have; `faint` where not even the counts of the most popular items
    stand out of theirs.
    """

    worth: bool
    signal: float
    top: float
    faint: bool

    @classmethod
    def from_counts(
        cls, counts: Estimate, core: NDArray[np.int64], size: float, t: float, gate: float
    ) -> Signal:
        from scipy.special import ndtri

        c = counts.value
        k = max(min(128, len(c) // 10), 1)
        by_chance = -float(ndtri(k / len(c))) if len(c) > 1 else 0.0
        faint = bool(np.sort(c)[-k] < 1.25 * by_chance * counts.deviation)
        power = max(float((c[core] ** 2 - counts.deviation**2).sum()), 0.0)
        signal = power / size / (t * math.sqrt(len(core)))
        some = np.sort(np.maximum(c, 0.0))
        top = float(some[-TOP_ITEMS:].sum() / max(some.sum(), 1e-9))
        worth = not faint and len(core) > 3 and signal >= gate * (1 + 1.5 * top)
        return cls(bool(worth), float(signal), top, faint)


def deviation_of_pairs(session: Session, lines: list[Release], pairs: ReleasableSum) -> float:
    """Compute t of (3), the noise on one entry of G̃, where these lines release pairs.

    One line gives noise multiplier × sensitivity / √2 (`Plan.deviation`,
    `PairSums.entry_deviation`); several are averaged by their noise.
    """
    return PairSums.entry_deviation(session.deviation(line, pairs) for line in lines)


def release_pairs(
    session: Session,
    lines: list[Release],
    pairs: ReleasableSum,
    m: int,
    known: Mapping[Release, NDArray[np.float32]] | None = None,
) -> NDArray[np.float32]:
    """G̃ (m, m) of (3), 0 on the diagonal; several releases are averaged by their noise.

    Lines that are `known` were released before.
    """
    G = np.zeros((m, m), np.float32)
    precision = [session.deviation(line, pairs) ** -2 for line in lines]
    for line, weight in zip(lines, precision, strict=True):
        if known and line in known:
            G += np.float32(weight / sum(precision)) * known[line]
            continue
        for rows, noisy in session.release_blocks(line, pairs):
            PairSums.unpack(noisy, rows.start, G, weight / sum(precision))
    return G


def uncenter(fitted: FittedFactors, c: NDArray[Any]) -> FittedFactors:
    """Factors of plain pairs from those of centered ones: c v ← √q̄ Z⁻¹ c v, for any item.

    With p = c/‖c‖ all items get the same vector more, so the mean W of (4) gets it as well, in
    its constant.
    """
    popular = KAPPA / (1 - KAPPA) * (c**2 @ fitted.V) / float(c @ c)
    W = fitted.W.copy()
    W[0] += popular
    root = math.sqrt(STRETCH)
    return fitted._replace(V=root * (fitted.V + popular), W=root * W)
