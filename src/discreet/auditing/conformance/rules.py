"""The rules that every private model keeps, by name.

A rule is a function of the `Kit`, which fits the model on neighboring data and remembers the fits.
It returns a few words about what was checked, and raises `Broken` with what was found where the
rule does not hold. `release_rules` has those about what leaves the data, `guarantee_rules` those
about noise, price and what is kept. A `Report` has the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Broken(AssertionError):
    """A rule does not hold."""


class Skipped(Exception):
    """A rule cannot be checked with what was given."""


@dataclass(frozen=True)
class Rule:
    """``name`` is for programs, ``text`` says what must hold."""

    name: str
    text: str
    check: Callable[[Any], str]


RULES: list[Rule] = []


def rule(name: str, text: str) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Add a function to the rules."""

    def add(check: Callable[[Any], str]) -> Callable[[Any], str]:
        RULES.append(Rule(name, text, check))
        return check

    return add


def must(condition: bool, found: str) -> None:
    """Raise `Broken` unless the condition holds; unlike an assert, also when Python optimizes."""
    if not condition:
        raise Broken(found)


def names() -> list[str]:
    """The rules, in the order in which they are checked."""
    return [known.name for known in RULES]


def list_first(places: list[str], most: int = 4) -> str:
    """The first few of a list, and how many more there are."""
    return ", ".join(places[:most]) + (
        f" and {len(places) - most} more" if len(places) > most else ""
    )


@dataclass(frozen=True)
class Check:
    """A rule and what came of it; ``passed`` is None where it could not be checked."""

    rule: str
    text: str
    passed: bool | None
    detail: str

    def __str__(self) -> str:
        mark = {True: "kept   ", False: "BROKEN ", None: "skipped"}[self.passed]
        return f"{mark}  {self.rule}: {self.text}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Report:
    """All checks of one model."""

    model: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    @property
    def broken(self) -> list[str]:
        """Names of the rules that are broken."""
        return [check.rule for check in self.checks if check.passed is False]

    def __str__(self) -> str:
        return "\n".join([self.model, *(f"  {check}" for check in self.checks)])

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "model": self.model,
            "passed": self.passed,
            "checks": [vars(check) for check in self.checks],
        }


class ConformanceError(AssertionError):
    """A private model breaks a rule; ``report`` has all of them."""

    def __init__(self, report: Report):
        self.report = report
        broken = [str(check) for check in report.checks if check.passed is False]
        super().__init__(
            "\n".join(
                [f"{report.model} breaks {len(broken)} of {len(report.checks)} rules:", *broken]
            )
        )
