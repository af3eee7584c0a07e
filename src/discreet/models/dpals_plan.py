"""What DPALS allows one user to contribute, and what will be released at which price.

Everything here is public and known before any rating is read; `discreet.models.dpals` holds the algorithm and
`discreet.models.dpals_choices` the parameters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.models.checks import require, require_shares
from discreet.models.dpals_choices import LARGE, ChosenALS
from discreet.models.residual_steps import EVERY_ITEM, Lines
from discreet.privacy.bounds import Bounds
from discreet.privacy.plan import Plan, Release
from discreet.privacy.sealed import Users
from discreet.privacy.session import Statistic
from discreet.privacy.statistics import packed_size


class PlannedALS(ChosenALS):
    """What `DPALS` knows without data."""

    def bounds(self) -> Bounds:
        low, high = self._range()
        if self._descends:
            centre = (low + high) / 2 if isinstance(self.centring, str) else self.centring
            return Bounds(items=EVERY_ITEM, rating=self._residual_norm(), centre=centre, norm=self.user_norm)
        wide = (high - low) / (4.5 if self._shrinks else 3)
        rating = None if not self._explicit else self.rating_bound or wide
        centre = self.centring if isinstance(self.centring, (int, float)) else 0.0
        own = self.centring == "user"
        weighs = self._sampling == "adaptive"
        return Bounds(
            items=None if weighs else self.max_items,
            weight=1.0 if weighs else None,
            rating=rating,
            centre="user" if own else centre,
            prior_mean=(low + high) / 2,
            prior_count=3.0 if own else 0.0,
            norm=self.user_norm,
        )

    def plan(self, n_items: int) -> Plan:
        self._large = n_items >= LARGE
        self._check()
        if self._descends:
            steps = self._residual_steps()
            sums = steps.lines(n_items)
            require_shares(self.shares, dict.fromkeys(name.rstrip(" 0123456789") for name in sums))
            return self._calibrated(sums, steps.shares(self.shares, sums))
        T, frequent, r = self._steps, self._n_frequent(n_items), self._rank
        counting = 0.06 if self._shrinks else 0.035
        # how often, the part of μ², and how many numbers
        lines: Lines = {"counts": (1, counting, (n_items,))}
        if self.recount:
            lines["recounts"] = 1, counting, (frequent,)
        if self._explicit and self.centring == "global":
            lines |= {"centre sum": (1, 0.005, (1,)), "centre count": (1, 0.005, (1,))}
        if self.initialization == "spectral":
            lines["initial"] = 1, 0.2, (frequent, frequent)
        if self._unobserved() > 0:
            lines["global"] = T, 0.02, (1, packed_size(r))
        for base, part, width in (("gram", 0.19, packed_size(r)), ("sum", 0.74, r)):
            each = self._growth ** np.arange(T)
            for step in range(T if self._growth != 1 else 1):
                share = part * each[step] / each.sum() if self._growth != 1 else part
                lines[self._name(base, step)] = T if self._growth == 1 else 1, share, (frequent, width)
        require_shares(self.shares, dict.fromkeys(name.rstrip(" 0123456789") for name in lines))
        if self.sigmas is not None:
            exact = [Release(name, n, self._multiplier(name), shape=shape) for name, (n, _, shape) in lines.items()]
            return Plan.explicit(exact, self.delta, self.neighbouring, self.accountant, self.allow_large_delta)
        return self._calibrated(lines, {name: self._share(name, default) for name, (_, default, _) in lines.items()})

    def _calibrated(self, lines: Lines, share: dict[str, float]) -> Plan:
        releases = [Release(name, n, math.sqrt(n / share[name]), shape=shape) for name, (n, _, shape) in lines.items()]
        return Plan.calibrated(releases, self.budget, self.accountant)

    def _share(self, name: str, default: float) -> float:
        """The part of μ² of a release: of those whose budget grows, `shares` says the sum."""
        given = (self.shares or {}).get(name.split(" ")[0] if name[-1].isdigit() else name)
        if given is None or not name[-1].isdigit():
            return default if given is None else given
        each = self._growth ** np.arange(self._steps)
        return float(given * each[int(name.split(" ")[1]) - 1] / each.sum())

    def _name(self, base: str, step: int) -> str:
        """Of a release of one step: steps whose noise differs have names of their own."""
        return base if self._growth == 1 else f"{base} {step + 1}"

    def statistics(self, users: Users) -> dict[str, Statistic]:
        if self._descends:
            return self._residual_steps().statistics(users)
        self._contribute(users, None)
        found: dict[str, Statistic] = {"counts": users.item_counts()}
        users = users.restrict(np.arange(self._n_frequent(users.n_items)))
        self._contribute(users, None)
        users.solve(np.zeros((users.n_items, self._factors), np.float32), 1.0, intercept=self._intercept())
        found |= {"recounts": users.item_counts(), "gram": users.item_grams(self.isometric), "sum": users.item_sums()}
        found |= {self._name(base, step): found[base] for base in ("gram", "sum") for step in range(self._steps)}
        found |= {"global": users.global_gram(), "initial": users.covariance(self._row_norm())}
        return found | {"centre sum": users.rating_sum(), "centre count": users.rating_count()}

    def _contribute(self, users: Users, counts: NDArray[Any] | None, draw: int = 0) -> None:
        """Which items each user contributes through, and how much: by the noisy counts, where there are any."""
        if self._sampling == "adaptive":
            q = np.ones(users.n_items) if counts is None else counts ** (-2 * self.adaptivity)
            users.weigh(q if counts is None else np.where(np.isfinite(counts), q, 0.0))
        else:
            users.choose(counts if self._sampling == "rarest" else None, draw)

    def _multiplier(self, name: str) -> float:
        """The paper's σ over the sensitivity in its units: √k for what k items contribute to, 1 for K̃ and the start."""
        sigma = (self.sigmas or {}).get(name)
        require(sigma is not None and sigma > 0, f"sigmas needs a positive number for {name!r}")
        return float(sigma or 0) / (1.0 if name in ("global", "initial") else math.sqrt(self.max_items))
