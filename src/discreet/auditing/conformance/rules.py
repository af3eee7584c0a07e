"""The rules that every private model keeps, by name.

A rule is a function of the `Kit`, which fits the model on neighboring data and remembers the fits.
It returns a few words about what was checked, and raises `Broken` with what was found where the
rule does not hold. `release_rules` has those about what leaves the data, `guarantee_rules` those
about noise, price and what is kept.
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
