"""The promise, in a paragraph that a lawyer can read and in JSON that a program can."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal

from discreet.privacy.accounting.budget import LARGE_DELTA, WEAK_EPSILON
from discreet.privacy.accounting.pricing import conversion
from discreet.privacy.release.ledger import Assumption, Ledger, jsonable

WEAK: Final = "no meaningful protection"
Status = Literal["private", "private with cautions", "no meaningful protection", "not private"]

_RELATION = {
    "add-remove": "with or without all the ratings of any one person",
    "replace-one": "with all the ratings of any one person replaced by those of another",
}

_NOISE = {
    "secure": (
        "The noise came from the operating system's entropy through AES and was added to exact"
        " integers; what its sampling adds to δ is included."
    ),
    "seeded": (
        "RESEARCH MODE: the noise came from a seed, in floating point; whoever learns the seed can"
        " subtract it, and the promise holds only as long as nobody does."
    ),
}


@dataclass(frozen=True)
class PrivacyStatement:
    """What may be promised for everything that was released.

    ``epsilon`` is infinite, and the text says NOT PRIVATE, when any release went round the noise.
    ``private`` is true only where a promise holds without ``cautions``. ``learned`` is what a model
    says of what survived the noise.
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

    @classmethod
    def from_ledger(cls, ledger: Ledger) -> PrivacyStatement:
        """The statement that a ledger supports."""
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
        """How the price was computed."""
        return conversion(self.ledger.events(), self.accountant)

    @property
    def finite(self) -> bool:
        """Whether there is a promise at all."""
        return math.isfinite(self.epsilon)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What the promise depends on and nobody but the caller can vouch for; empty where it
        simply holds.
        """
        taken = [
            f"{a.text}: read from the data instead of a public source"
            for a in self.assumptions
            if a.inferred
        ]
        seed = (
            ["the noise came from a seed: whoever learns it can subtract the noise"]
            if self.noise == "seeded"
            else []
        )
        weak = [f"ε is above {WEAK_EPSILON:g}, which is {WEAK}"] if self.weak else []
        return (*weak, *taken, *seed, *self._large_delta())

    @property
    def weak(self) -> bool:
        """Whether ε is finite and so large that the guarantee protects little."""
        return WEAK_EPSILON < self.epsilon < math.inf

    def _large_delta(self) -> list[str]:
        """Why δ is too large, if it is."""
        allowed = (
            [f"a δ above {LARGE_DELTA:g} was allowed explicitly"]
            if self.delta > LARGE_DELTA
            else []
        )
        return allowed + [a.text for a in self.assumptions if a.name == "delta"]

    @property
    def private(self) -> bool:
        """Whether there is a promise, and it holds without cautions."""
        return self.finite and not self.cautions

    @property
    def status(self) -> Status:
        """The shortest true thing to say about it."""
        if not self.finite:
            return "not private"
        if self.weak:
            return WEAK
        return "private with cautions" if self.cautions else "private"

    def __str__(self) -> str:
        promise = self._promise() if self.finite else self._refusal()
        learned = f"What was learned: {self.learned}" if self.learned else ""
        parts = (
            promise,
            self._assess_epsilon(),
            self._releases(),
            self._noise(),
            self._describe_assumptions(),
            learned,
        )
        return " ".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        """For notebooks: the numbers, what they depend on, and the paragraph."""
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
            "unit": "user",
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

    def _promise(self) -> str:
        times = math.exp(self.epsilon) if self.epsilon < 700 else math.inf
        odds = f"{times:.4g} times" if math.isfinite(times) else f"e^{self.epsilon:.4g} times"
        together = "" if self.mu is None else f" (μ = {self.mu:.4g})"
        failing = (
            f", except with a probability of at most δ = {self.delta:.3g}" if self.delta > 0 else ""
        )
        seen = "Whatever anyone but a user's own self can see of the result is nearly as likely"
        if self.weak:
            seen = "How likely anything is that others can see of the result may differ much"
        again = ""
        if self.ledger.as_stated:
            again = " It is the one that the ledger states: what computes it is not installed here."
        return (
            f"This is joint differential privacy for each user with ε = {self.epsilon:.4g} and δ ="
            f" {self.delta:.3g}. {seen} {_RELATION[self.neighboring]}: no conclusion becomes more"
            f" than {odds} as likely{failing}. The price was computed by:"
            f" {self.conversion}{together}.{again}"
        )

    def _assess_epsilon(self) -> str:
        """What the numbers are worth, where that is little."""
        parts = []
        if self.weak:
            parts.append(
                f"An ε above {WEAK_EPSILON:g} is WEAK: it bounds what can be learned about anybody,"
                " but so far up that little is promised by it."
            )
        if self._large_delta():
            parts.append(f"CAUTION, somebody may be exposed: {'; '.join(self._large_delta())}.")
        return " ".join(parts)

    def _refusal(self) -> str:
        unsafe = sorted({entry.name for entry in self.ledger.entries if entry.unsafe})
        why = f"{', '.join(unsafe)} left without noise" if unsafe else "no noise was added"
        return (
            f"NOT PRIVATE: {why}, so ε is infinite and nothing is promised to anybody. "
            "The result must be handled like the ratings themselves."
        )

    def _releases(self) -> str:
        counts = Counter(entry.name for entry in self.ledger.entries)
        listed = ", ".join(
            _runs([f"{name} × {count}" if count > 1 else name for name, count in counts.items()])
        )
        made = len(self.ledger.entries)
        what = "one release of a sum" if made == 1 else f"{made} releases of sums"
        text = f"It rests on {what} over users: {listed}." if counts else ""
        for entry in self.ledger.entries:
            if entry.law:
                text = (
                    f"What left is the best of a secret number of trainings, {entry.runs:g} on"
                    f" average, by the {entry.law} law; nothing of the others did. How long it took"
                    " says something about that number."
                )
        rates = sorted({entry.rate for entry in self.ledger.entries if entry.rate < 1})
        if not rates:
            return text
        shares = ", ".join(f"{rate:.3g}" for rate in rates)
        secret = "coins from the operating system's entropy through AES that nobody sees"
        coins = secret if self.noise == "secure" else "coins that nobody must know"
        amplified = (
            "lowers the price" if self.accountant == "pld" else "is not counted in the price"
        )
        return (
            f"{text} Some are of batches: each user is in one with probability {shares}, by"
            f" {coins}, which {amplified}."
        )

    def _noise(self) -> str:
        return _NOISE.get(self.noise, "")

    def _describe_assumptions(self) -> str:
        given = [a.text for a in self.assumptions if not a.inferred and a.name != "delta"]
        taken = [a.text for a in self.assumptions if a.inferred]
        parts = [f"Taken to be public: {'; '.join(given)}."] if given else []
        if taken:
            parts.append(
                f"CAUTION, read from the data instead of a public source: {'; '.join(taken)}."
            )
        return " ".join(parts)


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
