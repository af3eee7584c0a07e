"""The rules that every private model must satisfy, by name.

A rule is a function of the `Kit`, which fits the model on neighboring data and caches the fits. It
returns a summary of the check, or raises `Broken` with the finding. `release_rules` is about
releases, `guarantee_rules` about noise, cost and stored data. A `Report` has the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Broken(AssertionError):
    """A rule does not hold."""


class Skipped(Exception):
    """A rule cannot be checked with the given arguments."""


@dataclass(frozen=True)
class Rule:
    """A rule of the kit.

    Attributes
    ----------
    name : the identifier
    text : what must hold
    check : the function that checks it
    """

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
    """Raise `Broken` unless the condition holds; unlike assert, also under ``python -O``."""
    if not condition:
        raise Broken(found)


def names() -> list[str]:
    """List the names of the rules, in the order of the checks."""
    return [known.name for known in RULES]


def list_first(places: list[str], most: int = 4) -> str:
    """Join the first few of a list, with the number of those left out."""
    return ", ".join(places[:most]) + (
        f" and {len(places) - most} more" if len(places) > most else ""
    )


@dataclass(frozen=True)
class Check:
    """The result of one rule.

    Attributes
    ----------
    rule, text : the rule
    passed : None if it could not be checked
    detail : what was checked or found
    """

    rule: str
    text: str
    passed: bool | None
    detail: str

    def __str__(self) -> str:
        mark = {True: "kept   ", False: "BROKEN ", None: "skipped"}[self.passed]
        return f"{mark}  {self.rule}: {self.text}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Report:
    """The results of all rules for one model."""

    model: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    @property
    def broken(self) -> list[str]:
        """The names of the broken rules."""
        return [check.rule for check in self.checks if check.passed is False]

    def __str__(self) -> str:
        return "\n".join([self.model, *(f"  {check}" for check in self.checks)])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
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
