"""The plan: what will be released, how often and with how much noise, priced before data access.

The plan owns the noise multiplier. A release has a *weight*, its noise relative to the others; one
scale, the same for all, is calibrated so that everything together costs the budget:

    noise multiplier of a release = scale × weight, noise standard deviation = noise multiplier ×
    sensitivity.

How to share a budget: with Gaussian noise, a release made n times has the share n/weight² of Σ
n/weight².

A release may be planned with *parts*: it is then made either as a whole or as all of its parts, as
earlier releases decide. A part with the share s has 1/√s times the noise multiplier. Given all
earlier releases, the whole is μ-GDP and the parts together are √(Σ s μ²)-GDP with Σ s ≤ 1, so the
price of the whole, which is the plan's, holds for both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, ConfigError, PlanMismatch
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.budget import Budget, Neighboring
from discreet.privacy.accounting.pricing import Event, deviation_of
from discreet.privacy.noise.sources import delta_of

if TYPE_CHECKING:
    from discreet.privacy.release.session import ReleasableSum

#: Most draws of a session; what they add to δ is set aside when a plan is priced.
MOST_DRAWS = 2**40
RESERVE = delta_of(MOST_DRAWS)


def title_of(name: str, shape: Sequence[int] | None) -> str:
    """Return what readers call a release; plans, ledgers and `shares` have the short name."""
    if name == "size":  # alone for rankings; with sums of ratings where ratings are predicted
        return (
            "user count" if shape is not None and list(shape) == [1] else "user and rating totals"
        )
    return "item counts" if name == "counts" else name


@dataclass(frozen=True)
class Release:
    """What is to be released: which sum, how often, and its part of the budget or its noise.

    An algorithm states shares; `Plan.from_shares` turns them into weights. Steps whose noise
    differs are releases of their own, numbered by `step`.

    Parameters
    ----------
    name : str
        What is summed, such as "gradient". With `step`, "gradient 3" is what ``Session.release``
        will be called with (`str` of the release).
    count : int
        How often.
    weight : float
        Noise relative to the other releases; twice the weight is twice the noise and, for Gaussian
        noise, a quarter of the cost. In an explicit plan, the noise multiplier itself.
    mechanism : {"gaussian", "laplace", "huber"}
    alpha : float, optional
        Huber only.
    l2_ratio : float, default 1.0
        Huber only: the statistic's Δ₂ is at most this times its Δ₁.
    shape : tuple of int, optional
        Of one release; follows from public numbers alone, and a statistic of another shape is
        refused. None: earlier releases decide.
    rate : float, default 1.0
        The share of users in the Poisson batch that is released
        (``discreet.privacy.users.poisson_batches``); Gaussian only.
    law, runs : str, float
        The best of a secret number of runs (``discreet.privacy.accounting.private_selection``).
    step : int, optional
        Number of the step, from 1.
    share : float
        Part of μ² for all `count` together, relative to the other releases.
    parts : pairs of name and share, optional
        What the release may be divided into; Gaussian only, and made once. Shares are of its own
        μ² and sum to 1 at most. Earlier releases decide the shapes.
    """

    name: str
    count: int = 1
    weight: float = 1.0
    mechanism: str = "gaussian"
    alpha: float | None = None
    l2_ratio: float = 1.0
    shape: tuple[int, ...] | None = None
    rate: float = 1.0
    law: str = ""
    runs: float = 1.0
    step: int | None = None
    share: float = 1.0
    parts: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"a release needs a name, not {self.name!r}")
        self.event(1.0)  # validates the rest
        object.__setattr__(self, "parts", tuple((str(name), part) for name, part in self.parts))
        if self.parts:
            shares = [part for _, part in self.parts]
            plain = self.mechanism == "gaussian" and self.count == self.rate == 1 and not self.law
            if not plain or not (min(shares) > 0 and math.fsum(shares) <= 1 + 1e-12):
                raise ConfigError(
                    f"release {self.name!r} cannot be divided. Parts need positive shares with a"
                    " sum of at most 1, of one Gaussian release of all users."
                )
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))

    def event(self, scale: float) -> Event:
        """Return what is priced at that scale."""
        return Event(
            self.mechanism,
            self.weight * scale,
            self.count,
            self.alpha,
            self.l2_ratio,
            self.rate,
            self.law,
            self.runs,
        )

    def with_weight(self, weight: float, **changes: Any) -> Release:
        """Return the release as a plan holds it: under its full name, with a weight."""
        return replace(self, name=str(self), step=None, share=1.0, weight=weight, **changes)

    def divide(self) -> list[Release]:
        """List the parts as releases of their own."""
        # a little more noise than 1/√share, so that rounding cannot make them cost more together
        return [
            replace(
                self,
                name=name,
                weight=self.weight * (1 + 1e-12) / math.sqrt(share),
                shape=None,
                parts=(),
            )
            for name, share in self.parts
        ]

    def __str__(self) -> str:
        """Return the name in plan and ledger."""
        return self.name if self.step is None else f"{self.name} {self.step}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON.

        A rate of 1, an absent law and no parts are omitted, so that older ledgers keep their
        hashes.
        """
        content = asdict(self) | {"shape": None if self.shape is None else list(self.shape)}
        del content["step"], content["share"]
        content["parts"] = [list(part) for part in self.parts]
        if not self.parts:
            del content["parts"]
        if self.rate == 1:
            del content["rate"]
        if not self.law:
            del content["law"], content["runs"]
        return content


def reshare(lines: Iterable[Release], shares: Mapping[str, float]) -> list[Release]:
    """Replace shares of the budget: `shares` maps a name to the total of all lines of that name."""
    lines = list(lines)
    names = list(dict.fromkeys(line.name for line in lines))
    for name, part in shares.items():
        if name not in names:
            raise ConfigError(f"shares names {name!r}, but the releases are {', '.join(names)}")
        if isinstance(part, bool) or not isinstance(part, Real) or not 0 < float(part) < math.inf:
            raise ConfigError(
                f"shares has {part!r} for {name!r}, but every release needs a positive part"
            )
    whole = {name: sum(line.share for line in lines if line.name == name) for name in names}
    return [
        (
            replace(line, share=shares[line.name] * line.share / whole[line.name])
            if line.name in shares
            else line
        )
        for line in lines
    ]


@dataclass(frozen=True)
class Plan:
    """Releases with a calibrated scale. Make one with ``Plan.calibrated`` or ``Plan.explicit``."""

    releases: tuple[Release, ...]
    budget: Budget
    accountant: str = "gdp"
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(self.releases))
        accounting.check_accountant(self.accountant)
        names = [line.name for one in self.releases for line in (one, *one.divide())]
        if len(set(names)) < len(names):
            raise ConfigError(f"release names must differ, but are {', '.join(names)}")
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"scale={self.scale!r} must be positive and finite")
        if self.budget.neighboring != "add-remove" and any(
            release.rate < 1 for release in self.releases
        ):
            raise ConfigError(
                "Poisson batches are priced for neighboring='add-remove' only. Use that relation,"
                " or batches of all users."
            )

    @classmethod
    def from_shares(cls, lines: Iterable[Release], budget: Budget, accountant: str = "gdp") -> Plan:
        """Find the least noise with which all lines cost at most the budget, by their shares."""
        lines = list(lines)
        for line in lines:
            if not 0 < line.share < math.inf:
                raise ConfigError(
                    f"release {str(line)!r} would get {line.share!r} of the budget, but every"
                    " release needs a positive part. Choose fewer iterations, or a smaller growth."
                )
        releases = [line.with_weight(math.sqrt(line.count / line.share)) for line in lines]
        return cls.calibrate(releases, budget, accountant)

    @classmethod
    def calibrate(
        cls, releases: Iterable[Release], budget: Budget, accountant: str = "gdp"
    ) -> Plan:
        """Find the least noise, in proportion to the weights, that costs at most the budget."""
        plan = cls(tuple(releases), budget, accountant)
        scale = accounting.calibrate(plan.events, budget.epsilon, plan._delta, accountant)
        if accountant == "pld" and any(line.parts for line in plan.releases):
            # its rounding adds up, so that parts may cost a little more than the whole
            parts = [line.event(1.0) for one in plan.releases for line in one.divide() or [one]]
            divided = accounting.calibrate(parts, budget.epsilon, plan._delta, accountant)
            scale = max(scale, divided)
        return replace(plan, scale=scale)

    @classmethod
    def explicit(
        cls,
        releases: Iterable[Release],
        delta: float,
        neighboring: Neighboring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
    ) -> Plan:
        """Take weights as the noise multipliers, as in the papers' tables, and compute their ε."""
        draft = cls(tuple(releases), Budget(1.0, delta, neighboring, allow_large_delta), accountant)
        epsilon = draft.epsilon()
        if not 0 < epsilon < math.inf:
            raise ConfigError(
                f"these releases cost ε={epsilon!r} at δ={delta!r}, but a plan needs a positive"
                " finite cost"
            )
        return replace(draft, budget=replace(draft.budget, epsilon=epsilon))

    @property
    def events(self) -> list[Event]:
        """One event per release."""
        return [line.event(self.scale) for line in self.releases]

    @property
    def mu(self) -> float | None:
        """μ of everything together, where the plan is Gaussian; see `pricing.gdp_mu`."""
        return accounting.gdp_mu(self.events, self.accountant)

    def epsilon(self, accountant: str | None = None) -> float:
        """Compute ε at the budget's δ, by the plan's or another accountant."""
        return accounting.epsilon(self.events, self._delta, accountant or self.accountant)

    def list_made(self, names: Collection[str]) -> list[Release]:
        """List the releases, with parts in place of a release of which a part is among `names`."""
        return [
            line
            for one in self.releases
            for line in (one.divide() if {part for part, _ in one.parts} & set(names) else [one])
        ]

    def check(self) -> None:
        """Raise a `BudgetExceeded` if the plan costs more than its budget."""
        cost = self.epsilon()
        if cost > self.budget.epsilon * (1 + 1e-9):
            raise BudgetExceeded(
                f"the plan costs ε={cost:.6g}, the budget allows {self.budget.epsilon:.6g}"
            )

    def release(self, name: str | Release) -> Release:
        """Return the release of that name."""
        name = str(name)
        for one in self.releases:
            for line in (one, *one.divide()):
                if line.name == name:
                    return line
        planned = ", ".join(repr(line.name) for line in self.releases) or "none"
        raise PlanMismatch(f"the plan has no release named {name!r}; planned are: {planned}")

    def noise_multiplier(self, name: str | Release) -> float:
        """Return the standard deviation of the noise over the sensitivity."""
        return self.scale * self.release(name).weight

    def deviation(self, name: str | Release, statistic: ReleasableSum) -> float:
        """Return the noise deviation on a release of the statistic; weight w divides it by w."""
        norm = self.release(name).event(self.scale).noise.norm
        return deviation_of(
            self.noise_multiplier(name), statistic.sensitivity(self.budget.neighboring, norm)
        )

    def rows(self) -> list[dict[str, Any]]:
        """List the releases as dictionaries, with share of μ² and cost as a single release.

        Parts follow the release that they may replace; their "part_of" is its name.
        """
        total = accounting.share_mu(self.events) ** 2
        lines = [(line, one) for one in self.releases for line in (one, *one.divide())]
        return [
            {
                "name": line.name,
                "count": line.count,
                "mechanism": line.mechanism,
                "weight": line.weight,
                "noise_multiplier": event.noise_multiplier,
                "share": event.share_mu**2 * event.count / total if total else 0.0,
                "epsilon_alone": accounting.epsilon([event], self._delta, self.accountant),
                "shape": line.shape,
            }
            | ({} if line is one else {"part_of": one.name})
            for line, one in lines
            for event in [line.event(self.scale)]
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "releases": [line.to_dict() for line in self.releases],
            "budget": self.budget.to_dict(),
            "accountant": self.accountant,
            "scale": self.scale,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Plan:
        """Read the plan that ``to_dict`` described."""
        # spelled out, so that later changes of the defaults do not change old plans
        absent = {"rate": 1.0, "law": "", "runs": 1.0, "step": None, "share": 1.0, "parts": ()}
        try:
            lines = [Release(**absent | line) for line in document["releases"]]
            # a large delta was allowed or refused when the plan was written
            budget = Budget(**{"allow_large_delta": True} | document["budget"])
            return cls(tuple(lines), budget, document["accountant"], document["scale"])
        except (KeyError, TypeError) as error:
            raise ConfigError(f"not a plan written by discreet: {error}") from error

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        return cls.from_dict(json.loads(text))

    @property
    def _delta(self) -> float:
        """δ for the releases themselves, after what the sampler may use of it."""
        return max(0.0, self.budget.delta - RESERVE)
