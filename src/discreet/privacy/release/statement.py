"""The privacy guarantee of one training: as labelled lines, as a paragraph, and as JSON."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal

from discreet.privacy.accounting.budget import LARGE_DELTA, WEAK_EPSILON
from discreet.privacy.accounting.pricing import conversion
from discreet.privacy.release.ledger import Assumption, Ledger, jsonable

WEAK: Final = "no meaningful protection"
Status = Literal["private", "private with cautions", "no meaningful protection", "not private"]

#: The scale of docs/choose-epsilon.md: the largest ε that each word describes.
_STRENGTHS = (
    (0.5, "very strong"),
    (1.0, "strong"),
    (2.0, "good"),
    (5.0, "moderate"),
    (10.0, "weak"),
    (WEAK_EPSILON, "formal only"),
    (math.inf, WEAK),
)

#: Names of assumptions: users whose ratings are public, with or without who confirmed it.
PUBLIC_USERS: Final = "public users"
UNCONFIRMED: Final = "unconfirmed public users"
#: The name at the end of the assumption about public users.
CONFIRMED: Final = re.compile(r" \(confirmed by (.*)\)$", re.DOTALL)

_RELATION = {
    "add-remove": "without it",
    "replace-one": "with another user's data in its place",
}

_UNIT = {
    "add-remove": "adding or removing all data of one {user}",
    "replace-one": "replacing all data of one {user}",
}

_NOISE = {
    "secure": "from the operating system's entropy through AES, added to exact integer sums",
    "seeded": (
        "RESEARCH MODE: drawn from a seed, in floating point; the guarantee holds only while the"
        " seed stays secret"
    ),
}


def describe_factor(epsilon: float, digits: str = ".3g") -> str:
    """Write e^ε, with three significant digits of what exceeds 1 where that is little."""
    excess = math.expm1(min(epsilon, 700.0))
    if excess <= 0 or excess >= 0.1:
        return f"{1 + excess:{digits}}"
    if excess < 1e-9:  # a float near 1 has no three digits of it left
        return f"1 + {excess:.3g}"
    decimals = 2 - math.floor(math.log10(excess))
    return f"{1 + excess:.{decimals}f}".rstrip("0")


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee that covers everything that was released.

    Attributes
    ----------
    epsilon : float
        Infinite, and the text says NOT PRIVATE, if any release had no noise.
    delta : float
    mu : float or None
        Parameter of Gaussian differential privacy, where the accountant has one.
    neighboring : str
        Whether one user is added or removed, or replaced.
    accountant : str
    noise : str
        "secure" or "seeded".
    assumptions : tuple of Assumption
        What is assumed public, and what was read from the data instead.
    ledger : Ledger
    learned : str
        What was learned, in one sentence.
    joint : bool
        Whether users also get results that only they see, such as their own recommendations.
    """

    epsilon: float
    delta: float
    mu: float | None
    neighboring: str
    accountant: str
    noise: str
    assumptions: tuple[Assumption, ...]
    ledger: Ledger = field(repr=False, compare=False)
    learned: str = ""
    joint: bool = True

    @classmethod
    def from_ledger(cls, ledger: Ledger) -> PrivacyStatement:
        """Return the statement that a ledger supports."""
        price = ledger.price()
        return cls(
            price.epsilon,
            price.delta,
            price.mu,
            ledger.plan.budget.neighboring,
            price.accountant,
            ledger.noise,
            ledger.assumptions,
            ledger,
        )

    @property
    def conversion(self) -> str:
        """How ε was computed from the releases."""
        return conversion(self.ledger.events(), self.accountant)

    @property
    def finite(self) -> bool:
        """Whether ε is finite, so that there is a guarantee at all."""
        return math.isfinite(self.epsilon)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Conditions of the guarantee that only the caller can vouch for; empty where it holds."""
        taken = [
            f"{a.text}: read from the data instead of a public source"
            for a in self.assumptions
            if a.inferred
        ]
        seed = ["the noise came from a seed, and anyone who knows it can subtract the noise"]
        seed = seed if self.noise == "seeded" else []
        weak = [f"ε is above {WEAK_EPSILON:g}, which is {WEAK}"] if self.weak else []
        unnamed = [
            "the ratings of public users: no name was given of who confirmed that they are public"
            for a in self.assumptions
            if a.name == UNCONFIRMED
        ]
        return (*weak, *taken, *unnamed, *seed, *self._large_delta())

    @property
    def user(self) -> str:
        """Whom the guarantee covers: "user", or "private user" where other users are public."""
        public = any(a.name in (PUBLIC_USERS, UNCONFIRMED) for a in self.assumptions)
        return "private user" if public else "user"

    @property
    def strength(self) -> str:
        """How strong this ε is, by the scale of the documentation."""
        return next(word for limit, word in _STRENGTHS if self.epsilon <= limit)

    @property
    def weak(self) -> bool:
        """Whether ε is finite and so large that the guarantee protects little."""
        return WEAK_EPSILON < self.epsilon < math.inf

    def _large_delta(self) -> list[str]:
        """Return why δ is too large, if it is."""
        allowed = (
            [f"a δ above {LARGE_DELTA:g} was allowed explicitly"]
            if self.delta > LARGE_DELTA
            else []
        )
        return allowed + [a.text for a in self.assumptions if a.name == "delta"]

    @property
    def private(self) -> bool:
        """Whether there is a meaningful guarantee, and it holds without cautions."""
        return self.finite and not self.cautions

    @property
    def status(self) -> Status:
        """The guarantee in two or three words."""
        if not self.finite:
            return "not private"
        if self.weak:
            return WEAK
        return "private with cautions" if self.cautions else "private"

    def lines(self) -> list[tuple[str, str]]:
        """Return the statement as (label, text) pairs, each of them short."""
        if not self.finite:
            return [("Guarantee", self._refusal())]
        numbers = f"ε = {self.epsilon:.4g}, δ = {self.delta:.3g} ({self.strength})"
        unit = _UNIT[self.neighboring].format(user=self.user)
        mu = "" if self.mu is None else f" (μ = {self.mu:.4g})"
        given = [a.text for a in self.assumptions if not a.inferred and a.name != "delta"]
        return [
            (
                "Guarantee",
                f"{numbers}: {self._kind} for {unit}",
            ),
            ("Accounting", f"{self.conversion}{mu}"),
            ("Released statistics", self._list_releases()),
            ("Noise", _NOISE.get(self.noise, self.noise)),
            *([("Assumed public", "; ".join(given))] if given else []),
            *([("Cautions", "; ".join(self.cautions))] if self.cautions else []),
        ]

    def __str__(self) -> str:
        """Return the guarantee as one paragraph, for model cards and sign-off."""
        parts = [self._promise() if self.finite else self._refusal()]
        if self.weak:
            parts.append(f"An ε above {WEAK_EPSILON:g} is WEAK: it gives {WEAK}.")
        if self.ledger.entries:
            parts.append(f"It covers these noisy statistics: {self._list_releases()}.")
        parts.append(self._describe_sampling())
        if self.finite:
            parts.append("Other trainings and releases on the same users add to the total.")
            parts.append(f"Noise: {_NOISE.get(self.noise, self.noise)}.")
        given = [a.text for a in self.assumptions if not a.inferred and a.name != "delta"]
        parts.append(f"Assumed public: {'; '.join(given)}." if given else "")
        taken = [a.text for a in self.assumptions if a.inferred]
        if taken:
            parts.append(f"CAUTION, read from the data: {'; '.join(taken)}.")
        if self._large_delta():
            parts.append(f"CAUTION, δ is large: {'; '.join(self._large_delta())}.")
        if any(a.name == UNCONFIRMED for a in self.assumptions):
            parts.append("CAUTION: nothing says who confirmed that public ratings are public.")
        parts.append(self.learned)
        return " ".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        """Show numbers, what they depend on and the paragraph, for notebooks."""
        color = "#14603a" if self.private else "#9c2f14"
        numbers = (
            f"ε = {self.epsilon:.4g}, δ = {self.delta:.3g}" if self.finite else "ε is infinite"
        )
        cautions = "".join(f"<li>{escape(text)}</li>" for text in self.cautions)
        listed = f'<ul style="margin:4px 0">{cautions}</ul>' if cautions else ""
        return (
            f'<div style="border-left:4px solid {color};padding:2px 12px;max-width:60em"><p'
            f' style="margin:4px 0"><strong style="color:{color}">{escape(self.status)}</strong>'
            f" &nbsp; <strong>{numbers}</strong></p>{listed}<details><summary>The whole"
            f" statement</summary><p>{escape(str(self))}</p></details></div>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; an infinite ε is the word "Infinity"."""
        return {
            "private": self.private,
            "status": self.status,
            "cautions": list(self.cautions),
            "epsilon": jsonable(self.epsilon),
            "delta": self.delta,
            "mu": jsonable(self.mu),
            "neighboring": self.neighboring,
            "unit": self.user,
            "accountant": self.accountant,
            "conversion": self.conversion,
            "noise": self.noise,
            "releases": len(self.ledger.entries),
            "assumptions": [
                {"name": a.name, "text": a.text, "inferred": a.inferred} for a in self.assumptions
            ],
            "learned": self.learned,
            "text": str(self),
        }

    @property
    def _kind(self) -> str:
        return "joint differential privacy" if self.joint else "differential privacy"

    def _promise(self) -> str:
        finite = self.epsilon < 700
        odds = describe_factor(self.epsilon, ".4g") if finite else f"e^{self.epsilon:.4g}"
        mu = "" if self.mu is None else f" (μ = {self.mu:.4g})"
        added = f", up to an additional probability of {self.delta:.3g}" if self.delta > 0 else ""
        stated = " The ε is the one stated in the ledger; it was not recomputed here."
        own = " A user's own recommendations are for that user alone." if self.joint else ""
        return (
            f"This is {self._kind} for each {self.user} with ε = {self.epsilon:.4g} and δ ="
            f" {self.delta:.3g} ({self.strength}). Anything others can observe about the released"
            f" result is at most {odds} times as likely with all data of any one {self.user} as"
            f" {_RELATION[self.neighboring]}, and conversely{added}.{own}"
            f" Accounting: {self.conversion}{mu}."
            f"{stated if self.ledger.as_stated else ''}"
        )

    def _refusal(self) -> str:
        unsafe = sorted({entry.name for entry in self.ledger.entries if entry.unsafe})
        why = f"{', '.join(unsafe)} released without noise" if unsafe else "no noise was added"
        return (
            f"NOT PRIVATE: {why}, so ε is infinite. Handle the result like the ratings themselves."
        )

    def _list_releases(self) -> str:
        counts = Counter(entry.title for entry in self.ledger.entries)
        named = [f"{name} × {count}" if count > 1 else name for name, count in counts.items()]
        return ", ".join(_runs(named))

    def _describe_sampling(self) -> str:
        """Describe what else is secret: the number of tuning runs, and who is in a batch."""
        for entry in self.ledger.entries:
            if entry.law:
                return (
                    f"The result is the best of a secret number of trainings, {entry.runs:g} on"
                    f" average ({entry.law} distribution); nothing else of them was released. The"
                    " total running time depends on that number."
                )
        rates = sorted({entry.rate for entry in self.ledger.entries if entry.rate < 1})
        if not rates:
            return ""
        shares = ", ".join(f"{rate:.3g}" for rate in rates)
        counted = "is" if self.accountant == "pld" else "is not"
        return (
            f"Some statistics are of batches: each user is in one with probability {shares} (secret"
            f" Poisson sampling, which {counted} part of the accounting)."
        )


def _runs(names: list[str]) -> list[str]:
    """Three or more names that differ by a number only, as in "gradient 1", "gradient 2", …,
    become one of a range.
    """
    numbers: dict[str, list[int]] = {}
    for name in names:
        stem, _, last = name.rpartition(" ")
        if stem and last.isdecimal() and "×" not in stem:
            numbers.setdefault(stem, []).append(int(last))
    long = {
        stem: n
        for stem, n in numbers.items()
        if len(n) > 2 and n == list(range(n[0], n[0] + len(n)))
    }
    stems = [name.rpartition(" ")[0] for name in names]
    listed = [
        f"{stem} {long[stem][0]} to {long[stem][-1]}" if stem in long else name
        for stem, name in zip(stems, names, strict=True)
    ]
    return list(dict.fromkeys(listed))
